// Moving elements: copies and casts between any strides, and concat.
#include "base/pool.h"
#include "device/cpu/cpu_walk.h"

#include <string.h>

enum {
    LINE  = 16384,  // most elements of a block that follows the rows of both sides
    BLOCK = 64,     // side of a block that turns rows into columns
    TASK  = 16384   // least elements of a task
};

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
    c.col_step  = tni_min_i64(c.cols, turned ? BLOCK : LINE);
    c.row_step  = tni_min_i64(c.rows, turned ? BLOCK : LINE / c.col_step);
    c.down      = tni_ceil_div(c.rows, c.row_step);
    c.across    = tni_ceil_div(c.cols, c.col_step);
    c.blocks    = c.down * c.across;
    for (int i = 0; i < rank - 2; i++) c.blocks *= c.out.size[i];
    c.per_task = tni_ceil_div(TASK, c.row_step * c.col_step);
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
        int64_t     n    = tni_min_i64(LINE_ROWS, rows - i0);
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
            int64_t     n    = tni_min_i64(TNI_TILE, cols - j);
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
    int64_t     end   = tni_min_i64(c->blocks, (item + 1) * c->per_task);
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
                   tni_min_i64(c->row_step, c->rows - i0), tni_min_i64(c->col_step, c->cols - j0));
    }
}

void tni_copy_arg(int threads, const tni_arg *in, const tni_arg *out)
{
    int64_t count = tni_arg_count(out);
    if (count == 0) return;
    copy c = plan_copy(in, out);
    tni_parallel(tni_threads_for(threads, count), tni_ceil_div(c.blocks, c.per_task), copy_task,
                 &c);
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
