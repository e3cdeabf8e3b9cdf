// argmax and argmin: the first best element, where NaN is best of all, and its number within the
// reduced axes in row-major order. A tile is first folded to its best value; only where that beats
// the best so far is the tile searched.
#include "base/pool.h"
#include "device/cpu/cpu_reduce.h"

#include <string.h>

enum { CHUNK = 1 << 16, TASK = 1 << 15, STRIP = 256 };

typedef struct {
    tni_total value;
    int64_t   at;
} best;

typedef struct {
    tni_reduction r;
    bool          least;
    int64_t       chunks, per_task;
    best         *partial;  // [result][chunk]
} job;

static job plan(const tni_call *call)
{
    tn_dtype acc = tni_compute_dtype(call->in[0].dtype);
    job      j   = { .r = tni_reduction_of(call, acc, true), .least = call->op == TNI_argmin };
    j.chunks     = j.r.by_column || j.r.folded == 0 ? 1 : tni_pieces(j.r.folded, CHUNK);
    j.per_task   = tni_pieces(TASK, tni_lesser(CHUNK, j.r.folded > 0 ? j.r.folded : 1));
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
    const tni_reduction  *r     = &j->r;
    const tni_type_tiles *type  = r->tiles->of[r->acc];
    tni_tile_block       *block = type->block[j->least ? TNI_min : TNI_max];
    tni_arg               red   = r->red;
    best                  b     = { 0 };
    red.data += tni_arg_place(&r->kept, result) * (int64_t)tni_dtype_size(red.dtype);
    for (int64_t at = 0; at < n; at += TNI_TILE) {
        int64_t     m = tni_lesser(TNI_TILE, n - at);
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
    int64_t    end = tni_lesser(j->r.results * j->chunks, (item + 1) * j->per_task);
    for (int64_t i = item * j->per_task; i < end; i++) {
        int64_t first = i % j->chunks * CHUNK;
        best    b = search(j, i / j->chunks, first, tni_lesser(CHUNK, j->r.folded - first), &room);
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
    const job           *j = arg;
    const tni_reduction *r = &j->r;
    tni_room             room;
    _Alignas(64) char    value[STRIP * 8];
    int64_t              at[STRIP] = { 0 };
    int64_t              cols = r->kept.size[r->kept.rank - 1], across = tni_pieces(cols, STRIP);
    int64_t              col = item % across * STRIP, n = tni_lesser(STRIP, cols - col);
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
        tni_parallel(threads, j.r.results / cols * tni_pieces(cols, STRIP), column_task, &j);
    } else {
        tni_parallel(threads, tni_pieces(j.r.results * j.chunks, j.per_task), row_task, &j);
        if (j.chunks > 1) join_rows(&j);
    }
}
