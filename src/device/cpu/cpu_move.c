// Moving elements: copies and casts between any strides, concat, pad; and values made from
// nothing but their place: full, scalar, iota.
#include "base/pool.h"
#include "device/cpu/cpu_walk.h"

#include <string.h>

enum {
    LINE  = 16384,  // most elements of a block that follows the rows of both sides
    BLOCK = 64,     // side of a block that turns rows into columns
    TASK  = 16384   // least elements of a task
};

// ---- copy ----

// A copy as planes of rows and columns. The last axis is the one in which out is densest, the one
// before it is that in which in is densest, if they differ. Blocks of a plane are small enough
// for their lines to stay in cache.
typedef struct {
    const tni_tiles *tiles;
    tni_arg          in, out;  // merged and permuted alike
    int64_t          rows, cols, row_step, col_step;
    int64_t          down, across, blocks, per_task;
} copy;

// Brings the axis in which in is densest next to the last; false if it is the last.
static bool turn(copy *c)
{
    int last = c->in.rank - 1, dense = last, perm[TN_MAX_RANK], n = 0;
    for (int i = 0; i <= last; i++)
        if (c->in.stride[i] != 0 && tni_reach(c->in.stride[i]) < tni_reach(c->in.stride[dense]))
            dense = i;
    if (dense == last || c->in.stride[last] == 0) return false;
    for (int i = 0; i < last; i++)
        if (i != dense) perm[n++] = i;
    perm[n++] = dense;
    perm[n++] = last;
    tni_permute(&c->in, n, perm);
    tni_permute(&c->out, n, perm);
    return true;
}

static copy plan_copy(const tni_arg *in, const tni_arg *out)
{
    copy     c       = { .tiles = tni_tiles_get(), .in = *in, .out = *out };
    tni_arg *both[2] = { &c.out, &c.in };
    tni_merge(2, both);
    tni_sort_axes(2, both);
    tni_merge(2, both);
    int  rank   = c.out.rank;
    bool turned = rank >= 2 && turn(&c);
    c.cols      = rank >= 1 ? c.out.size[rank - 1] : 1;
    c.rows      = rank >= 2 ? c.out.size[rank - 2] : 1;
    c.col_step  = tni_lesser(c.cols, turned ? BLOCK : LINE);
    c.row_step  = tni_lesser(c.rows, turned ? BLOCK : LINE / c.col_step);
    c.down      = tni_pieces(c.rows, c.row_step);
    c.across    = tni_pieces(c.cols, c.col_step);
    c.blocks    = c.down * c.across;
    for (int i = 0; i < rank - 2; i++) c.blocks *= c.out.size[i];
    c.per_task = tni_pieces(TASK, c.row_step * c.col_step);
    return c;
}

enum { LINE_ROWS = 16 };

// Rows become columns by way of a small square, so that every line of x is read whole at once and
// every row of y is written in one go, however their strides fall into the cache's sets.
static inline void turn_lines(size_t bytes, char *square, const char *x, int64_t x_col, int64_t n,
                              int64_t cols)
{
    for (int64_t j = 0; j < cols; j++, x += x_col * (int64_t)bytes)
        for (int64_t i = 0; i < n; i++)
            memcpy(square + (size_t)(i * BLOCK + j) * bytes, x + i * (int64_t)bytes, bytes);
}

static inline void turn_block(size_t bytes, char *y, int64_t y_row, const char *x, int64_t x_col,
                              int64_t rows, int64_t cols)
{
    char square[LINE_ROWS * BLOCK * 8];
    for (int64_t i0 = 0; i0 < rows; i0 += LINE_ROWS) {
        int64_t     n    = tni_lesser(LINE_ROWS, rows - i0);
        const char *from = x + i0 * (int64_t)bytes;
        if (n == LINE_ROWS) turn_lines(bytes, square, from, x_col, LINE_ROWS, cols);
        else turn_lines(bytes, square, from, x_col, n, cols);
        for (int64_t i = 0; i < n; i++)
            memcpy(y + (i0 + i) * y_row * (int64_t)bytes, square + (size_t)(i * BLOCK) * bytes,
                   (size_t)cols * bytes);
    }
}

static void turn_rows(size_t bytes, char *y, int64_t y_row, const char *x, int64_t x_col,
                      int64_t rows, int64_t cols)
{
    if (bytes == 4) turn_block(4, y, y_row, x, x_col, rows, cols);
    else if (bytes == 2) turn_block(2, y, y_row, x, x_col, rows, cols);
    else if (bytes == 8) turn_block(8, y, y_row, x, x_col, rows, cols);
    else turn_block(1, y, y_row, x, x_col, rows, cols);
}

// A block of rows and columns at y and x. Strides in elements.
static void copy_block(const copy *c, char *y, const char *x, int64_t rows, int64_t cols)
{
    int     last     = c->out.rank - 1;
    int64_t in_bytes = (int64_t)tni_dtype_size(c->in.dtype);
    int64_t bytes    = (int64_t)tni_dtype_size(c->out.dtype);
    int64_t xc = last >= 0 ? c->in.stride[last] : 1, yc = last >= 0 ? c->out.stride[last] : 1;
    int64_t xr = last >= 1 ? c->in.stride[last - 1] : 0,
            yr = last >= 1 ? c->out.stride[last - 1] : 0;
    bool same  = c->in.dtype == c->out.dtype;
    // Where tiles have neither dtype, elements go by way of the one that the first is computed in.
    bool     direct = same || c->tiles->as[c->in.dtype] || c->tiles->as[c->out.dtype];
    tn_dtype by     = direct ? c->out.dtype : tni_compute_dtype(c->in.dtype);
    tni_room room;

    if (same && yc == 1 && xr == 1 && xc != 1 && rows > 1 && cols <= BLOCK) {
        turn_rows((size_t)bytes, y, yr, x, xc, rows, cols);
        return;
    }
    for (int64_t i = 0; i < rows; i++, x += xr * in_bytes, y += yr * bytes) {
        if (same && (yc == 1 || xc == 1)) {
            if (yc == 1) tni_gather_run((size_t)bytes, y, x, xc, cols);
            else tni_scatter_run((size_t)bytes, y, x, yc, cols);
            continue;
        }
        for (int64_t j = 0; j < cols; j += TNI_TILE) {
            int64_t     n    = tni_lesser(TNI_TILE, cols - j);
            const char *from = x + j * xc * in_bytes;
            char       *to   = y + j * yc * bytes;
            if (!same && xc == 1 && yc == 1 && by == c->out.dtype) {
                tni_converter(c->tiles, c->in.dtype, by)(to, from, n);
                continue;
            }
            const void *v = tni_tile_run(c->tiles, from, c->in.dtype, xc, by, n, &room);
            if (by != c->out.dtype) {
                tni_converter(c->tiles, by, c->out.dtype)(room.raw, v, n);
                v = room.raw;
            }
            tni_scatter_run((size_t)bytes, to, v, yc, n);
        }
    }
}

static void copy_task(void *arg, int64_t item, int worker)
{
    (void)worker;
    const copy *c     = arg;
    int64_t     end   = tni_lesser(c->blocks, (item + 1) * c->per_task);
    tni_arg     outer = c->in, outer_out = c->out;
    outer.rank = outer_out.rank = c->out.rank > 2 ? c->out.rank - 2 : 0;
    for (int64_t b = item * c->per_task; b < end; b++) {
        int64_t plane = b / (c->down * c->across), block = b % (c->down * c->across);
        int64_t i0 = block / c->across * c->row_step, j0 = block % c->across * c->col_step;
        int64_t at = tni_arg_place(&outer, plane), to = tni_arg_place(&outer_out, plane);
        int     last = c->out.rank - 1;
        if (last >= 0) at += j0 * c->in.stride[last], to += j0 * c->out.stride[last];
        if (last >= 1) at += i0 * c->in.stride[last - 1], to += i0 * c->out.stride[last - 1];
        copy_block(c, c->out.data + to * (int64_t)tni_dtype_size(c->out.dtype),
                   c->in.data + at * (int64_t)tni_dtype_size(c->in.dtype),
                   tni_lesser(c->row_step, c->rows - i0), tni_lesser(c->col_step, c->cols - j0));
    }
}

void tni_copy_arg(int threads, const tni_arg *in, const tni_arg *out)
{
    int64_t count = tni_arg_count(out);
    if (count == 0) return;
    copy c = plan_copy(in, out);
    tni_parallel(tni_threads_for(threads, count), tni_pieces(c.blocks, c.per_task), copy_task, &c);
}

void tni_cpu_copy(const tni_call *call)
{
    tni_copy_arg(call->threads, &call->in[0], &call->out);
}

void tni_cpu_concat(const tni_call *call)
{
    int     axis  = call->attr->axis.axis;
    tni_arg slice = call->out;
    for (int k = 0; k < call->nin; k++) {
        slice.size[axis] = call->in[k].size[axis];
        if (call->in[k].data != slice.data) tni_copy_arg(call->threads, &call->in[k], &slice);
        slice.data += slice.size[axis] * slice.stride[axis] * (int64_t)tni_dtype_size(slice.dtype);
    }
}

// ---- pad ----

// Row by row of the output: a row lies outside of the input altogether, or is room, a run of the
// input, and room again.
typedef struct {
    tni_arg in, out;
    int64_t before[TN_MAX_RANK], rows, per_task;
    char    value[8];
} padding;

// Merges each axis that is padded nowhere into the one before it.
static void merge_padding(padding *p)
{
    int n = 0;
    for (int i = 0; i < p->out.rank; i++) {
        bool    whole = p->before[i] == 0 && p->in.size[i] == p->out.size[i];
        bool    joins = n > 0 && whole && p->in.stride[n - 1] == p->in.stride[i] * p->in.size[i];
        int     to    = joins ? n - 1 : n;
        int64_t in = p->in.size[i], out = p->out.size[i];
        p->before[to]    = joins ? p->before[to] * in : p->before[i];
        p->in.size[to]   = joins ? p->in.size[to] * in : in;
        p->out.size[to]  = joins ? p->out.size[to] * out : out;
        p->in.stride[to] = p->in.stride[i];
        if (!joins) n++;
    }
    p->in.rank = p->out.rank = n;
}

// Where row r of the output begins in the input; false if it is all room.
static bool row_in_input(const padding *p, int64_t r, int64_t *place)
{
    *place = 0;
    for (int i = p->out.rank - 2; i >= 0; i--) {
        int64_t at = r % p->out.size[i] - p->before[i];
        if (at < 0 || at >= p->in.size[i]) return false;
        *place += at * p->in.stride[i];
        r /= p->out.size[i];
    }
    return true;
}

static void pad_rows(void *arg, int64_t item, int worker)
{
    (void)worker;
    const padding *p     = arg;
    int            last  = p->out.rank - 1;
    size_t         es    = tni_dtype_size(p->out.dtype);
    int64_t        bytes = (int64_t)es, cols = p->out.size[last], place;
    int64_t        end = tni_lesser(p->rows, (item + 1) * p->per_task);
    for (int64_t r = item * p->per_task; r < end; r++) {
        char *y = p->out.data + r * cols * bytes;
        if (!row_in_input(p, r, &place)) {
            tni_fill_run(es, y, p->value, cols);
            continue;
        }
        int64_t left = p->before[last], from = left < 0 ? -left : 0;
        int64_t lo = tni_lesser(left > 0 ? left : 0, cols);
        int64_t n  = tni_lesser(p->in.size[last] - from, cols - lo);
        if (n < 0) n = 0;
        tni_fill_run(es, y, p->value, lo);
        if (n > 0)
            tni_gather_run(es, y + lo * bytes,
                           p->in.data + (place + from * p->in.stride[last]) * bytes,
                           p->in.stride[last], n);
        tni_fill_run(es, y + (lo + n) * bytes, p->value, cols - lo - n);
    }
}

// One element of a number: f of floats, i of integers.
static void set_number(tn_dtype dt, char *value, double f, int64_t i)
{
    const tni_tiles *t = tni_tiles_get();
    if (tni_is_float(dt)) tni_converter(t, TN_F64, dt)(value, &f, 1);
    else tni_converter(t, TN_I64, dt)(value, &i, 1);
}

void tni_cpu_pad(const tni_call *call)
{
    padding p = { .in = call->in[0], .out = call->out };
    if (call->out.rank == 0) {
        tni_copy_arg(1, &call->in[0], &call->out);
        return;
    }
    for (int i = 0; i < p.out.rank; i++) p.before[i] = call->attr->pad.before[i];
    set_number(p.out.dtype, p.value, call->attr->pad.value, call->attr->pad.ivalue);
    merge_padding(&p);
    int64_t count = tni_arg_count(&p.out), cols = p.out.size[p.out.rank - 1];
    p.rows     = count / cols;
    p.per_task = tni_pieces(TASK, cols);
    tni_parallel(tni_threads_for(call->threads, count), tni_pieces(p.rows, p.per_task), pad_rows,
                 &p);
}

// ---- values from nothing ----

typedef struct {
    const tni_tiles *tiles;
    const tni_call  *call;
    int64_t          count;
    char             value[8];
} source;

static void fill_task(void *arg, int64_t item, int worker)
{
    (void)worker;
    const source *s  = arg;
    size_t        es = tni_dtype_size(s->call->out.dtype);
    tni_fill_run(es, s->call->out.data + item * TASK * (int64_t)es, s->value,
                 tni_lesser(TASK, s->count - item * TASK));
}

void tni_cpu_fill(const tni_call *call)
{
    source s = { .tiles = tni_tiles_get(), .call = call, .count = tni_arg_count(&call->out) };
    set_number(call->out.dtype, s.value, call->attr->num.f, call->attr->num.i);
    tni_parallel(tni_threads_for(call->threads, s.count), tni_pieces(s.count, TASK), fill_task, &s);
}

static void iota_task(void *arg, int64_t item, int worker)
{
    (void)worker;
    const source   *s   = arg;
    const tni_attr *a   = s->call->attr;
    tn_dtype        dt  = s->call->out.dtype;
    int64_t         end = tni_lesser(s->count, (item + 1) * TASK);
    double          f[TNI_TILE];
    int64_t         l[TNI_TILE];
    for (int64_t at = item * TASK; at < end; at += TNI_TILE) {
        int64_t n = tni_lesser(TNI_TILE, end - at);
        char   *y = s->call->out.data + at * (int64_t)tni_dtype_size(dt);
        if (tni_is_float(dt)) {
            for (int64_t i = 0; i < n; i++) f[i] = a->iota.start + (double)(at + i) * a->iota.step;
            tni_converter(s->tiles, TN_F64, dt)(y, f, n);
        } else {
            for (int64_t i = 0; i < n; i++)
                l[i] = (int64_t)((uint64_t)a->iota.istart +
                                 (uint64_t)(at + i) * (uint64_t)a->iota.istep);
            tni_converter(s->tiles, TN_I64, dt)(y, l, n);
        }
    }
}

void tni_cpu_iota(const tni_call *call)
{
    source s = { .tiles = tni_tiles_get(), .call = call, .count = tni_arg_count(&call->out) };
    tni_parallel(tni_threads_for(call->threads, s.count), tni_pieces(s.count, TASK), iota_task, &s);
}
