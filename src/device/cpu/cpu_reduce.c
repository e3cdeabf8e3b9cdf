// Reductions. Sums of floats have a shape that follows from the sizes and strides alone: blocks of
// TNI_TILE elements (or groups of rows) are summed in their own type, in lanes; blocks are added
// in order in double, within chunks; chunks are added in order.
#include "device/cpu/cpu_reduce.h"

#include "base/pool.h"
#include "kernel/prelude.h"

#include <string.h>

enum {
    NARROW = 16,       // fewer columns, or reduced elements, than this are not worth the other way
    CHUNK  = 1 << 16,  // elements of a partial result, along a row
    GROUP  = 64,       // rows added in their own type before they go into the totals
    AREA   = 1 << 18,  // elements of a partial result of columns, at least
    TOTALS = 256,      // results written at a time
    TASKS  = 16,       // with as many strips as this, rows are not cut into chunks
    TASK   = 1 << 15   // least elements of a task
};

// ---- taking apart ----

// The least distance between elements of an axis, leaving out axes that stand still.
static int64_t density(const tni_arg *x)
{
    int64_t least = INT64_MAX;
    for (int i = 0; i < x->rank; i++)
        if (x->stride[i] != 0 && tni_reach(x->stride[i]) < least) least = tni_reach(x->stride[i]);
    return least;
}

tni_reduction tni_reduction_of(const tni_call *call, tn_dtype acc, bool ordered)
{
    const tni_arg *in = &call->in[0];
    tni_reduction  r  = {
          .tiles = tni_tiles_get(), .acc = acc, .kept = *in, .out = call->out, .red = *in
    };
    int kept[TN_MAX_RANK], red[TN_MAX_RANK], nkept = 0, nred = 0;
    for (int i = 0; i < in->rank; i++) {
        if (call->attr->reduce.axes >> i & 1) red[nred++] = i;
        else kept[nkept++] = i;
    }
    tni_permute(&r.kept, nkept, kept);
    tni_permute(&r.out, nkept, kept);
    tni_permute(&r.red, nred, red);
    r.results = tni_arg_count(&r.kept);
    r.folded  = tni_arg_count(&r.red);
    if (r.folded == 0) return r;

    tni_arg *both[2] = { &r.kept, &r.out }, *one[1] = { &r.red };
    tni_merge(2, both);
    tni_sort_axes(2, both);
    tni_merge(2, both);
    tni_merge(1, one);
    if (!ordered) {
        tni_sort_axes(1, one);
        tni_merge(1, one);
    }
    int64_t cols = r.kept.rank > 0 ? r.kept.size[r.kept.rank - 1] : 1;
    r.by_column  = cols >= NARROW && (density(&r.kept) < density(&r.red) || r.folded < NARROW);
    return r;
}

// ---- totals ----

static tni_total join_d(int op, tni_total a, tni_total b)
{
    double x = a.d, y = b.d;
    double v = op == TNI_sum    ? x + y
               : op == TNI_prod ? x * y
               : op == TNI_max  ? m_max(x, y)
                                : m_min(x, y);
    return (tni_total){ .d = v };
}

static tni_total join_l(int op, tni_total a, tni_total b)
{
    int64_t x = a.l, y = b.l;
    int64_t v = op == TNI_sum    ? x + y
                : op == TNI_prod ? x * y
                : op == TNI_max  ? m_max(x, y)
                                 : m_min(x, y);
    return (tni_total){ .l = v };
}

static tni_total join_u(int op, tni_total a, tni_total b)
{
    if (op == TNI_sum || op == TNI_prod) return join_l(op, a, b);
    return (a.u > b.u) == (op == TNI_max) ? a : b;
}

static tni_total join(const tni_reduction *r, int op, tni_total a, tni_total b)
{
    if (r->acc == TN_U64) return join_u(op, a, b);
    return tni_is_float(r->acc) ? join_d(op, a, b) : join_l(op, a, b);
}

// ---- the job ----

typedef struct {
    tni_reduction   r;
    const tni_call *call;
    int64_t         chunks;    // partial results per result
    int64_t         chunk;     // reduced elements of a chunk
    int64_t         per_task;  // results (by row)
    int64_t         strip, strips;
    bool            by_tile;  // few elements to each of many results
    tni_total      *partial;  // [result][chunk], or [chunk][result] by column
} job;

// Sums of integers are of i64, of u64 of u64. Products of floats in double: lanes could overflow.
static tn_dtype acc_dtype(const tni_call *call)
{
    tn_dtype dt = call->in[0].dtype;
    if (call->op == TNI_sum && tni_is_float(dt)) return tni_compute_dtype(dt);
    if (call->op == TNI_sum || call->op == TNI_prod) return tni_total_dtype(dt);
    return tni_compute_dtype(dt);
}

static job plan(const tni_call *call)
{
    job j   = { .r = tni_reduction_of(call, acc_dtype(call), false), .call = call, .chunks = 1 };
    j.chunk = j.r.folded;
    if (j.r.folded == 0) return j;
    j.by_tile = !j.r.by_column && j.r.folded <= GROUP && j.r.results >= TNI_TILE &&
                tni_arg_is_rows(&j.r.out);
    if (j.by_tile) {
        j.per_task = tni_pieces(TASK, TNI_TILE * j.r.folded);
        return j;
    }
    if (j.r.by_column) {
        int64_t cols = j.r.kept.size[j.r.kept.rank - 1];
        j.strip      = tni_lesser(cols, TNI_TILE);
        j.strips     = tni_pieces(cols, j.strip) * (j.r.results / cols);
        int64_t rows = tni_pieces(tni_pieces(AREA, j.strip), GROUP) * GROUP;
        if (j.strips < TASKS && rows < j.r.folded) j.chunk = rows;
    } else if (j.r.folded > CHUNK) {
        j.chunk = CHUNK;
    }
    j.chunks   = tni_pieces(j.r.folded, j.chunk);
    j.per_task = tni_pieces(TASK, j.chunk);
    j.partial  = call->scratch;
    return j;
}

size_t tni_cpu_reduce_scratch(const tni_call *call)
{
    job j = plan(call);
    return j.chunks > 1 ? (size_t)(j.chunks * j.r.results) * sizeof(tni_total) : 0;
}

// ---- each result by itself ----

// Elements first .. first+n-1 of those that begin at x.
static tni_total fold_chunk(const job *j, char *x, int64_t first, int64_t n, tni_room *room)
{
    const tni_reduction *r     = &j->r;
    tni_tile_block      *block = r->tiles->of[r->acc]->block[j->call->op];
    tni_total            total = { 0 };
    if (r->red.rank <= 1 && n <= TNI_TILE) {
        int64_t step = r->red.rank == 1 ? r->red.stride[0] : 1;
        x += first * step * (int64_t)tni_dtype_size(r->red.dtype);
        return block(tni_tile_run(r->tiles, x, r->red.dtype, step, r->acc, n, room), n);
    }
    tni_arg red = r->red;
    red.data    = x;
    for (int64_t at = 0; at < n; at += TNI_TILE) {
        int64_t     m = tni_lesser(TNI_TILE, n - at);
        const void *v = tni_tile_of(r->tiles, &red, r->acc, first + at, m, room);
        tni_total   t = block(v, m);
        total         = at == 0 ? t : join(r, j->call->op, total, t);
    }
    return total;
}

// Writes n totals from a result on.
static void put(const job *j, int64_t result, const tni_total *v, int64_t n)
{
    const tni_arg    *out   = &j->r.out;
    int64_t           bytes = (int64_t)tni_dtype_size(out->dtype);
    tni_tile_convert *f     = tni_converter(j->r.tiles, tni_total_dtype(j->r.acc), out->dtype);
    if (out->rank == 0 || (out->rank == 1 && out->stride[0] == 1)) {
        f(out->data + result * bytes, v, n);
        return;
    }
    for (int64_t i = 0; i < n; i++) f(out->data + tni_arg_place(out, result + i) * bytes, &v[i], 1);
}

static void row_task(void *arg, int64_t item, int worker)
{
    (void)worker;
    const job     *j    = arg;
    const tni_arg *kept = &j->r.kept;
    tni_room       room;
    tni_total      done[TOTALS];
    int64_t        bytes = (int64_t)tni_dtype_size(kept->dtype), n = 0;
    int64_t        end = tni_lesser(j->r.results * j->chunks, (item + 1) * j->per_task);
    for (int64_t i = item * j->per_task; i < end; i++) {
        int64_t   result = j->chunks > 1 ? i / j->chunks : i;
        int64_t   first  = (i - result * j->chunks) * j->chunk;
        char     *x      = kept->data + tni_arg_place(kept, result) * bytes;
        int64_t   count  = tni_lesser(j->chunk, j->r.folded - first);
        tni_total v      = fold_chunk(j, x, first, count, &room);
        if (j->chunks > 1) j->partial[i] = v;
        else done[n++] = v;
        if (n == TOTALS || (n > 0 && i + 1 == end)) {
            put(j, i + 1 - n, done, n);
            n = 0;
        }
    }
}

static void join_rows(const job *j)
{
    for (int64_t i = 0; i < j->r.results; i++) {
        tni_total v = j->partial[i * j->chunks];
        for (int64_t c = 1; c < j->chunks; c++)
            v = join(&j->r, j->call->op, v, j->partial[i * j->chunks + c]);
        put(j, i, &v, 1);
    }
}

// ---- strips of columns ----

typedef struct {
    _Alignas(64) char acc[TNI_TILE * 8];
    _Alignas(64) char widened[TNI_TILE * 8];
    _Alignas(64) char total[TNI_TILE * 8];
    tni_room room;
} columns;

// Folds rows first .. first+rows-1 of a strip at x into acc, which begins as the first of them.
static void fold_group(const job *j, const char *x, int64_t first, int64_t rows, int64_t n,
                       columns *s)
{
    const tni_reduction *r    = &j->r;
    tni_tile_fold       *fold = r->tiles->of[r->acc]->fold[j->call->op];
    int64_t bytes = (int64_t)tni_dtype_size(r->red.dtype), inner = r->kept.stride[r->kept.rank - 1];
    int     last    = r->red.rank - 1;
    int64_t run_end = last < 0 ? 1 : r->red.size[last], step = last < 0 ? 0 : r->red.stride[last];
    bool    in_place = inner == 1 && r->red.dtype == r->acc, begun = false;
    for (int64_t i = 0; i < rows;) {
        const char *p   = x + tni_arg_place(&r->red, first + i) * bytes;
        int64_t     run = in_place ? tni_lesser(rows - i, run_end - (first + i) % run_end) : 1;
        const char *row = tni_tile_run(r->tiles, p, r->red.dtype, inner, r->acc, n, &s->room);
        i += run;
        if (!begun) {
            memcpy(s->acc, row, (size_t)n * tni_dtype_size(r->acc));
            row += step * bytes;
            run--;
            begun = true;
        }
        fold(s->acc, row, step, run, n);
    }
}

// Folds rows first .. first+rows-1 of a strip into s->total.
static void fold_strip(const job *j, const char *x, int64_t first, int64_t rows, int64_t n,
                       columns *s)
{
    const tni_reduction *r     = &j->r;
    tn_dtype             total = tni_total_dtype(r->acc);
    for (int64_t at = 0; at < rows; at += GROUP) {
        fold_group(j, x, first + at, tni_lesser(GROUP, rows - at), n, s);
        if (at == 0) {
            tni_converter(r->tiles, r->acc, total)(s->total, s->acc, n);
        } else {
            tni_converter(r->tiles, r->acc, total)(s->widened, s->acc, n);
            r->tiles->of[total]->fold[j->call->op](s->total, s->widened, 0, 1, n);
        }
    }
}

// The first result of a strip and how many it has.
static int64_t strip_at(const job *j, int64_t strip, int64_t *n)
{
    int64_t cols = j->r.kept.size[j->r.kept.rank - 1], across = tni_pieces(cols, j->strip);
    int64_t col = strip % across * j->strip;
    *n          = tni_lesser(j->strip, cols - col);
    return strip / across * cols + col;
}

// Writes the totals of a strip that begins at a result.
static void put_strip(const job *j, int64_t result, int64_t n, const void *total, void *room)
{
    const tni_arg *out  = &j->r.out;
    size_t         es   = tni_dtype_size(out->dtype);
    char          *y    = out->data + tni_arg_place(out, result) * (int64_t)es;
    int64_t        step = out->stride[out->rank - 1];
    tni_converter(j->r.tiles, tni_total_dtype(j->r.acc), out->dtype)(step == 1 ? y : room, total,
                                                                     n);
    if (step != 1) tni_scatter_run(es, y, room, step, n);
}

static void column_task(void *arg, int64_t item, int worker)
{
    (void)worker;
    const job *j = arg;
    columns    s;
    int64_t    n, chunk = item / j->strips, result = strip_at(j, item % j->strips, &n);
    int64_t    first = chunk * j->chunk, rows = tni_lesser(j->chunk, j->r.folded - first);
    int64_t    bytes = (int64_t)tni_dtype_size(j->r.red.dtype);
    fold_strip(j, j->r.kept.data + tni_arg_place(&j->r.kept, result) * bytes, first, rows, n, &s);
    if (j->chunks > 1)
        memcpy(j->partial + chunk * j->r.results + result, s.total, (size_t)n * sizeof(tni_total));
    else put_strip(j, result, n, s.total, s.room.ready);
}

static void join_columns(void *arg, int64_t item, int worker)
{
    (void)worker;
    const job *j     = arg;
    tn_dtype   total = tni_total_dtype(j->r.acc);
    char       room[TNI_TILE * 8];
    int64_t    n, result = strip_at(j, item, &n);
    j->r.tiles->of[total]->fold[j->call->op](
        j->partial + result, j->partial + j->r.results + result, j->r.results, j->chunks - 1, n);
    put_strip(j, result, n, j->partial + result, room);
}

// ---- tiles of results, one reduced element after the other ----

static void tile_task(void *arg, int64_t item, int worker)
{
    (void)worker;
    const job           *j     = arg;
    const tni_reduction *r     = &j->r;
    tni_tile_fold       *fold  = r->tiles->of[r->acc]->fold[j->call->op];
    int64_t              bytes = (int64_t)tni_dtype_size(r->kept.dtype);
    int64_t              size  = (int64_t)tni_dtype_size(r->out.dtype);
    columns              s;
    int64_t              end = tni_lesser(r->results, (item + 1) * j->per_task * TNI_TILE);
    for (int64_t at = item * j->per_task * TNI_TILE; at < end; at += TNI_TILE) {
        int64_t n = tni_lesser(TNI_TILE, end - at);
        for (int64_t i = 0; i < r->folded; i++) {
            tni_arg x = r->kept;
            x.data += tni_arg_place(&r->red, i) * bytes;
            const void *v = tni_tile_of(r->tiles, &x, r->acc, at, n, &s.room);
            if (i == 0) memcpy(s.acc, v, (size_t)n * tni_dtype_size(r->acc));
            else fold(s.acc, v, 0, 1, n);
        }
        tni_converter(r->tiles, r->acc, r->out.dtype)(r->out.data + at * size, s.acc, n);
    }
}

// ---- all ways ----

static void empty(const tni_call *call)
{
    int64_t one = call->op == TNI_prod, count = tni_arg_count(&call->out);
    char    value[8];
    size_t  es = tni_dtype_size(call->out.dtype);
    tni_converter(tni_tiles_get(), TN_I64, call->out.dtype)(value, &one, 1);
    tni_fill_run(es, call->out.data, value, count);
}

void tni_cpu_reduce(const tni_call *call)
{
    job j       = plan(call);
    int threads = tni_threads_for(call->threads, j.r.folded * j.r.results);
    if (j.r.folded == 0) {
        empty(call);
    } else if (j.by_tile) {
        tni_parallel(threads, tni_pieces(j.r.results, j.per_task * TNI_TILE), tile_task, &j);
    } else if (j.r.by_column) {
        tni_parallel(threads, j.strips * j.chunks, column_task, &j);
        if (j.chunks > 1) tni_parallel(threads, j.strips, join_columns, &j);
    } else {
        tni_parallel(threads, tni_pieces(j.r.results * j.chunks, j.per_task), row_task, &j);
        if (j.chunks > 1) join_rows(&j);
    }
}
