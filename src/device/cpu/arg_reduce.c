// argmax and argmin: the number of the first best element within the reduced axes, in row-major
// order; NaN is better than any number. A tile is first folded to its best value, which vectorizes;
// it is searched for that value only if it beats the best so far, which becomes rare quickly.
#include "base/pool.h"
#include "device/cpu/cpu_ops.h"
#include "device/cpu/strided.h"

#include <string.h>

enum {
    CHUNK  = 1 << 16,  // elements that one task searches; longer rows are merged from chunks
    TASK   = 1 << 15,  // least elements of a task
    STRIP  = 256,      // columns searched side by side: their state stays in the L1 cache
    NARROW = 16        // below this many columns (reduced elements), search by row (by column)
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

// Returns the least distance between neighbours along any axis, ignoring axes that are broadcast.
static int64_t least_stride(const tni_arg *x)
{
    int64_t least = INT64_MAX;
    for (int i = 0; i < x->rank; i++)
        if (x->stride[i] != 0 && tni_abs_stride(x->stride[i]) < least)
            least = tni_abs_stride(x->stride[i]);
    return least;
}

// Splits the axes of in into kept and reduced ones, and chooses the way: by column if neighbouring
// results are closer in memory than neighbouring elements of a result.
static reduction split_reduced_axes(const tni_call *call, tn_dtype acc)
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
    tni_permute_axes(&r.kept, nkept, kept);
    tni_permute_axes(&r.out, nkept, kept);
    tni_permute_axes(&r.red, nred, red);
    r.results = tni_arg_count(&r.kept);
    r.folded  = tni_arg_count(&r.red);
    if (r.folded == 0) return r;

    tni_arg *both[2] = { &r.kept, &r.out }, *one[1] = { &r.red };
    tni_merge_axes(2, both);
    tni_sort_axes(2, both);
    tni_merge_axes(2, both);
    tni_merge_axes(1, one);
    int64_t cols = r.kept.rank > 0 ? r.kept.size[r.kept.rank - 1] : 1;
    r.by_column  = cols >= NARROW &&
                  (least_stride(&r.kept) < least_stride(&r.red) || r.folded < NARROW);
    return r;
}

// A value, and its number in its result.
typedef struct {
    tni_total value;
    int64_t   at;
} best;

// A search: how it is cut, and the best of each chunk if a result has several.
typedef struct {
    reduction r;
    bool      least;
    int64_t   chunks, per_task;
    best     *partial;  // [result][chunk]
} arg_job;

// Cuts long rows into chunks of a fixed size: by sizes alone.
static arg_job plan_search(const tni_call *call)
{
    tn_dtype acc = tni_compute_dtype(call->in[0].dtype);
    arg_job  j   = { .r = split_reduced_axes(call, acc), .least = call->op == TNI_argmin };
    j.chunks     = j.r.by_column || j.r.folded == 0 ? 1 : tni_ceil_div(j.r.folded, CHUNK);
    j.per_task   = tni_ceil_div(TASK, tni_min_i64(CHUNK, j.r.folded > 0 ? j.r.folded : 1));
    j.partial    = call->scratch;
    return j;
}

size_t tni_cpu_arg_scratch(const tni_call *call)
{
    arg_job j = plan_search(call);
    return j.chunks > 1 ? (size_t)(j.chunks * j.r.results) * sizeof(best) : 0;
}

static bool total_is_nan(const arg_job *j, tni_total v)
{
    return tni_is_float(j->r.acc) && v.d != v.d;
}

// Returns whether a is better than b. Never true for equals, so that the first stays.
static bool total_beats(const arg_job *j, tni_total a, tni_total b)
{
    if (j->r.acc == TN_U64) return j->least ? a.u < b.u : a.u > b.u;
    if (!tni_is_float(j->r.acc)) return j->least ? a.l < b.l : a.l > b.l;
    if (a.d != a.d) return b.d == b.d;
    return j->least ? a.d < b.d : a.d > b.d;
}

// Searches n elements of a result from element `first` on. Stops at a NaN, which nothing beats.
static best search_elements(const arg_job *j, int64_t result, int64_t first, int64_t n,
                            tni_tile_scratch *scratch)
{
    const reduction      *r     = &j->r;
    const tni_type_tiles *type  = r->tiles->of[r->acc];
    tni_tile_block       *block = type->block[j->least ? TNI_min : TNI_max];
    tni_arg               red   = r->red;
    best                  b     = { 0 };
    red.data += tni_arg_offset(&r->kept, result) * (int64_t)tni_dtype_size(red.dtype);
    for (int64_t at = 0; at < n; at += TNI_TILE) {
        int64_t     m = tni_min_i64(TNI_TILE, n - at);
        const void *x = tni_tile_load(r->tiles, &red, r->acc, first + at, m, scratch);
        tni_total   v = block(x, m);
        if (at > 0 && !total_beats(j, v, b.value)) continue;
        b = (best){ v, first + at + type->find(x, v, m) };
        if (total_is_nan(j, v)) break;
    }
    return b;
}

static void put_result(const arg_job *j, int64_t result, int64_t at)
{
    ((int64_t *)j->r.out.data)[tni_arg_offset(&j->r.out, result)] = at;
}

// Searches results one after the other, each tile by tile.
static void search_rows_task(void *arg, int64_t item, int worker)
{
    (void)worker;
    const arg_job   *j = arg;
    tni_tile_scratch scratch;
    int64_t          end = tni_min_i64(j->r.results * j->chunks, (item + 1) * j->per_task);
    for (int64_t i = item * j->per_task; i < end; i++) {
        int64_t first = i % j->chunks * CHUNK;
        best b = search_elements(j, i / j->chunks, first, tni_min_i64(CHUNK, j->r.folded - first),
                                 &scratch);
        if (j->chunks > 1) j->partial[i] = b;
        else put_result(j, i, b.at);
    }
}

// Merges the chunks of each result in order, so that the first of equals wins.
static void merge_chunks(const arg_job *j)
{
    for (int64_t i = 0; i < j->r.results; i++) {
        best b = j->partial[i * j->chunks];
        for (int64_t c = 1; c < j->chunks; c++) {
            best other = j->partial[i * j->chunks + c];
            if (total_beats(j, other.value, b.value)) b = other;
        }
        put_result(j, i, b.at);
    }
}

// Searches a strip of columns side by side, one reduced element after the other.
static void search_columns_task(void *arg, int64_t item, int worker)
{
    (void)worker;
    const arg_job    *j = arg;
    const reduction  *r = &j->r;
    tni_tile_scratch  scratch;
    _Alignas(64) char value[STRIP * 8];
    int64_t           at[STRIP] = { 0 };
    int64_t           cols = r->kept.size[r->kept.rank - 1], across = tni_ceil_div(cols, STRIP);
    int64_t           col = item % across * STRIP, n = tni_min_i64(STRIP, cols - col);
    int64_t     result = item / across * cols + col, bytes = (int64_t)tni_dtype_size(r->red.dtype);
    int64_t     step = r->kept.stride[r->kept.rank - 1];
    const char *x    = r->kept.data + tni_arg_offset(&r->kept, result) * bytes;
    for (int64_t i = 0; i < r->folded; i++) {
        const char *p   = x + tni_arg_offset(&r->red, i) * bytes;
        const void *row = tni_tile_load_run(r->tiles, p, r->red.dtype, step, r->acc, n, &scratch);
        if (i == 0) memcpy(value, row, (size_t)n * tni_dtype_size(r->acc));
        else r->tiles->of[r->acc]->better[j->least](value, at, row, i, n);
    }
    int64_t *y = (int64_t *)r->out.data + tni_arg_offset(&r->out, result);
    tni_scatter_run(8, y, at, r->out.stride[r->out.rank - 1], n);
}

// If there are no elements to search, the index is 0.
void tni_cpu_arg(const tni_call *call)
{
    arg_job j       = plan_search(call);
    int     threads = tni_threads_for(call->threads, j.r.folded * j.r.results);
    if (j.r.folded == 0) {
        memset(call->out.data, 0, (size_t)j.r.results * 8);
    } else if (j.r.by_column) {
        int64_t cols = j.r.kept.size[j.r.kept.rank - 1];
        tni_parallel(threads, j.r.results / cols * tni_ceil_div(cols, STRIP), search_columns_task,
                     &j);
    } else {
        tni_parallel(threads, tni_ceil_div(j.r.results * j.chunks, j.per_task), search_rows_task,
                     &j);
        if (j.chunks > 1) merge_chunks(&j);
    }
}
