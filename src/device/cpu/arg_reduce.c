// argmax and argmin: the first best element, where NaN is best of all, and its number within the
// reduced axes in row-major order. A tile is first folded to its best value; only where that beats
// the best so far is the tile searched.
#include "base/pool.h"
#include "device/cpu/cpu_walk.h"

#include <string.h>

enum {
    CHUNK  = 1 << 16,
    TASK   = 1 << 15,
    STRIP  = 256,
    NARROW = 16  // fewer columns, or reduced elements, than this are not worth the other way
};

// The kept axes of in, the same axes of out, and the reduced axes of in. An element of the result
// folds the elements of red that begin at its place in kept.
//
// by_column: strips along the last kept axis are folded side by side, one reduced element after
// the other. Otherwise each result folds its own elements, tile by tile.
typedef struct {
    const tni_tiles *tiles;
    tn_dtype         acc;  // the type elements are folded in
    tni_arg          kept, out, red;
    int64_t          results, folded;  // counts of kept and red
    bool             by_column;
} reduction;

// The least distance between elements of an axis, leaving out axes that stand still.
static int64_t density(const tni_arg *x)
{
    int64_t least = INT64_MAX;
    for (int i = 0; i < x->rank; i++)
        if (x->stride[i] != 0 && tni_reach(x->stride[i]) < least) least = tni_reach(x->stride[i]);
    return least;
}

static reduction take_apart(const tni_call *call, tn_dtype acc)
{
    const tni_arg *in = &call->in[0];
    reduction      r  = {
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
    int64_t cols = r.kept.rank > 0 ? r.kept.size[r.kept.rank - 1] : 1;
    r.by_column  = cols >= NARROW && (density(&r.kept) < density(&r.red) || r.folded < NARROW);
    return r;
}

typedef struct {
    tni_total value;
    int64_t   at;
} best;

typedef struct {
    reduction r;
    bool      least;
    int64_t   chunks, per_task;
    best     *partial;  // [result][chunk]
} job;

static job plan(const tni_call *call)
{
    tn_dtype acc = tni_compute_dtype(call->in[0].dtype);
    job      j   = { .r = take_apart(call, acc), .least = call->op == TNI_argmin };
    j.chunks     = j.r.by_column || j.r.folded == 0 ? 1 : tni_ceil_div(j.r.folded, CHUNK);
    j.per_task   = tni_ceil_div(TASK, tni_min_i64(CHUNK, j.r.folded > 0 ? j.r.folded : 1));
    j.partial    = call->scratch;
    return j;
}

size_t tni_cpu_arg_scratch(const tni_call *call)
{
    job j = plan(call);
    return j.chunks > 1 ? (size_t)(j.chunks * j.r.results) * sizeof(best) : 0;
}

static bool is_nan(const job *j, tni_total v)
{
    return tni_is_float(j->r.acc) && v.d != v.d;
}

static bool beats(const job *j, tni_total a, tni_total b)
{
    if (j->r.acc == TN_U64) return j->least ? a.u < b.u : a.u > b.u;
    if (!tni_is_float(j->r.acc)) return j->least ? a.l < b.l : a.l > b.l;
    if (a.d != a.d) return b.d == b.d;
    return j->least ? a.d < b.d : a.d > b.d;
}

static best search(const job *j, int64_t result, int64_t first, int64_t n, tni_room *room)
{
    const reduction      *r     = &j->r;
    const tni_type_tiles *type  = r->tiles->of[r->acc];
    tni_tile_block       *block = type->block[j->least ? TNI_min : TNI_max];
    tni_arg               red   = r->red;
    best                  b     = { 0 };
    red.data += tni_arg_place(&r->kept, result) * (int64_t)tni_dtype_size(red.dtype);
    for (int64_t at = 0; at < n; at += TNI_TILE) {
        int64_t     m = tni_min_i64(TNI_TILE, n - at);
        const void *x = tni_tile_of(r->tiles, &red, r->acc, first + at, m, room);
        tni_total   v = block(x, m);
        if (at > 0 && !beats(j, v, b.value)) continue;
        b = (best){ v, first + at + type->find(x, v, m) };
        if (is_nan(j, v)) break;
    }
    return b;
}

static void put(const job *j, int64_t result, int64_t at)
{
    ((int64_t *)j->r.out.data)[tni_arg_place(&j->r.out, result)] = at;
}

static void row_task(void *arg, int64_t item, int worker)
{
    (void)worker;
    const job *j = arg;
    tni_room   room;
    int64_t    end = tni_min_i64(j->r.results * j->chunks, (item + 1) * j->per_task);
    for (int64_t i = item * j->per_task; i < end; i++) {
        int64_t first = i % j->chunks * CHUNK;
        best    b = search(j, i / j->chunks, first, tni_min_i64(CHUNK, j->r.folded - first), &room);
        if (j->chunks > 1) j->partial[i] = b;
        else put(j, i, b.at);
    }
}

static void join_rows(const job *j)
{
    for (int64_t i = 0; i < j->r.results; i++) {
        best b = j->partial[i * j->chunks];
        for (int64_t c = 1; c < j->chunks; c++) {
            best other = j->partial[i * j->chunks + c];
            if (beats(j, other.value, b.value)) b = other;
        }
        put(j, i, b.at);
    }
}

static void column_task(void *arg, int64_t item, int worker)
{
    (void)worker;
    const job        *j = arg;
    const reduction  *r = &j->r;
    tni_room          room;
    _Alignas(64) char value[STRIP * 8];
    int64_t           at[STRIP] = { 0 };
    int64_t           cols = r->kept.size[r->kept.rank - 1], across = tni_ceil_div(cols, STRIP);
    int64_t           col = item % across * STRIP, n = tni_min_i64(STRIP, cols - col);
    int64_t     result = item / across * cols + col, bytes = (int64_t)tni_dtype_size(r->red.dtype);
    int64_t     step = r->kept.stride[r->kept.rank - 1];
    const char *x    = r->kept.data + tni_arg_place(&r->kept, result) * bytes;
    for (int64_t i = 0; i < r->folded; i++) {
        const char *p   = x + tni_arg_place(&r->red, i) * bytes;
        const void *row = tni_tile_run(r->tiles, p, r->red.dtype, step, r->acc, n, &room);
        if (i == 0) memcpy(value, row, (size_t)n * tni_dtype_size(r->acc));
        else r->tiles->of[r->acc]->better[j->least](value, at, row, i, n);
    }
    int64_t *y = (int64_t *)r->out.data + tni_arg_place(&r->out, result);
    tni_scatter_run(8, y, at, r->out.stride[r->out.rank - 1], n);
}

void tni_cpu_arg(const tni_call *call)
{
    job j       = plan(call);
    int threads = tni_threads_for(call->threads, j.r.folded * j.r.results);
    if (j.r.folded == 0) {
        memset(call->out.data, 0, (size_t)j.r.results * 8);
    } else if (j.r.by_column) {
        int64_t cols = j.r.kept.size[j.r.kept.rank - 1];
        tni_parallel(threads, j.r.results / cols * tni_ceil_div(cols, STRIP), column_task, &j);
    } else {
        tni_parallel(threads, tni_ceil_div(j.r.results * j.chunks, j.per_task), row_task, &j);
        if (j.chunks > 1) join_rows(&j);
    }
}
