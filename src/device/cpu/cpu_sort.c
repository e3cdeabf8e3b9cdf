// argsort, and the sorted elements. Each line becomes unsigned keys whose order is the order wanted
// (NaN largest, both zeros equal; inverted to sort downwards), and the keys are sorted stably:
// short lines by insertion; others by radix sort, byte by byte from the lowest, skipping bytes in
// which all keys agree, such as the upper ones of small integers.
#include "base/pool.h"
#include "device/cpu/cpu_ops.h"
#include "device/cpu/strided.h"

#include <string.h>

// SHORT: up to this length insertion takes fewer steps than clearing and summing the counts of
// radix sort. TASK: least elements of a task; an element costs more than in other ops.
enum { SHORT = 48, BYTES = 8, VALUES = 256, TASK = 1 << 12 };

// An element as its key, and its number in the line.
typedef struct {
    uint64_t key;
    int64_t  at;
} entry;

// A sort of lines along one axis; the other axes number the lines.
typedef struct {
    const tni_tiles *tiles;
    tni_arg          in, out;  // the axes other than the sorted one
    int64_t          n, step, out_step, lines, per_task;
    bool             descending;
    char            *values;  // the sorted elements, with out's layout; NULL: not wanted
    char            *scratch;
    size_t           worker_bytes;  // of a worker
} sort_job;

// Returns the scratch of a worker: two arrays of entries to sort between, and the counts of all
// bytes.
static size_t sort_worker_bytes(int64_t n)
{
    return (size_t)tni_align64(2 * n * (int64_t)sizeof(entry) + BYTES * VALUES * 8);
}

size_t tni_cpu_argsort_scratch(const tni_call *call)
{
    int axis = call->attr->axis.axis;
    return sort_worker_bytes(call->out.rank > 0 ? call->out.size[axis] : 1) * (size_t)call->threads;
}

// ---- keys --------------------------------------------------------------------------------------

// Turns a float into a key of the same order. Adding 0 turns -0 into 0. A negative number has all
// bits inverted, a positive one its sign. NaN is above all.
static uint64_t key_f(float x)
{
    uint32_t u;
    x += 0.0f;
    memcpy(&u, &x, 4);
    if (x != x) return UINT32_MAX;
    return u >> 31 ? ~u : u | 0x80000000u;
}

static uint64_t key_d(double x)
{
    uint64_t u;
    x += 0.0;
    memcpy(&u, &x, 8);
    if (x != x) return UINT64_MAX;
    return u >> 63 ? ~u : u | UINT64_C(1) << 63;
}

static uint64_t sort_key(tn_dtype dt, const void *x, int64_t i)
{
    switch (dt) {
    case TN_F32: return key_f(((const float *)x)[i]);
    case TN_F64: return key_d(((const double *)x)[i]);
    case TN_U64: return ((const uint64_t *)x)[i];
    case TN_I32: return (uint32_t)((const int32_t *)x)[i] ^ 0x80000000u;
    default: return (uint64_t)((const int64_t *)x)[i] ^ UINT64_C(1) << 63;
    }
}

// Makes the entries of a line. `inverted` inverts the keys of the width in use to sort downwards,
// which keeps equals in their order.
static void make_keys(const sort_job *j, const char *x, entry *e)
{
    tn_dtype dt       = tni_compute_dtype(j->in.dtype);
    uint64_t inverted = !j->descending ? 0 : tni_dtype_size(dt) == 4 ? UINT32_MAX : UINT64_MAX;
    tni_tile_scratch scratch;
    for (int64_t at = 0; at < j->n; at += TNI_TILE) {
        int64_t     n = tni_min_i64(TNI_TILE, j->n - at);
        const char *p = x + at * j->step * (int64_t)tni_dtype_size(j->in.dtype);
        const void *v = tni_tile_load_run(j->tiles, p, j->in.dtype, j->step, dt, n, &scratch);
        for (int64_t i = 0; i < n; i++)
            e[at + i] = (entry){ sort_key(dt, v, i) ^ inverted, at + i };
    }
}

// ---- sorting -----------------------------------------------------------------------------------

// Insertion sort, stable.
static void sort_short(entry *e, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        entry   v = e[i];
        int64_t k = i;
        for (; k > 0 && e[k - 1].key > v.key; k--) e[k] = e[k - 1];
        e[k] = v;
    }
}

// Sorts e by one byte into y, stably. count: how many entries have each value of the byte.
static void sort_byte(const entry *e, entry *y, int64_t n, int byte, const int64_t *count)
{
    int64_t start[VALUES], sum = 0;
    for (int v = 0; v < VALUES; v++) {
        start[v] = sum;
        sum += count[v];
    }
    for (int64_t i = 0; i < n; i++) y[start[e[i].key >> (8 * byte) & 255]++] = e[i];
}

static bool all_agree(const int64_t *count, int64_t n)
{
    for (int v = 0; v < VALUES; v++)
        if (count[v] != 0) return count[v] == n;
    return true;
}

// Sorts n entries, back and forth between e and spare; returns the one that ends up sorted. The
// counts of all bytes come from one pass, as they do not depend on the order.
static entry *sort_entries(entry *e, entry *spare, int64_t (*count)[VALUES], int64_t n)
{
    if (n <= SHORT) {
        sort_short(e, n);
        return e;
    }
    memset(count, 0, BYTES * sizeof *count);
    for (int64_t i = 0; i < n; i++)
        for (int b = 0; b < BYTES; b++) count[b][e[i].key >> (8 * b) & 255]++;
    for (int b = 0; b < BYTES; b++) {
        if (all_agree(count[b], n)) continue;
        sort_byte(e, spare, n, b, count[b]);
        entry *sorted = spare;
        spare         = e;
        e             = sorted;
    }
    return e;
}

// Writes the elements of the line at x, in the order of sorted, to v.
static void move_line(const sort_job *j, const entry *sorted, const char *x, char *v)
{
#define MOVE(type)                     \
    for (int64_t k = 0; k < j->n; k++) \
        ((type *)v)[k * j->out_step] = ((const type *)x)[sorted[k].at * j->step];
    switch (tni_dtype_size(j->in.dtype)) {
    case 1: MOVE(uint8_t) break;
    case 2: MOVE(uint16_t) break;
    case 4: MOVE(uint32_t) break;
    default: MOVE(uint64_t) break;
    }
#undef MOVE
}

// Sorts lines in a worker's scratch.
static void sort_task(void *arg, int64_t item, int worker)
{
    const sort_job *j = arg;
    entry          *e = (entry *)(j->scratch + (size_t)worker * j->worker_bytes), *spare = e + j->n;
    int64_t(*count)[VALUES] = (int64_t(*)[VALUES])(spare + j->n);
    int64_t end             = tni_min_i64(j->lines, (item + 1) * j->per_task);
    for (int64_t i = item * j->per_task; i < end; i++) {
        int64_t     bytes = (int64_t)tni_dtype_size(j->in.dtype), at = tni_arg_offset(&j->out, i);
        const char *x = j->in.data + tni_arg_offset(&j->in, i) * bytes;
        make_keys(j, x, e);
        const entry *sorted = sort_entries(e, spare, count, j->n);
        int64_t     *y      = (int64_t *)j->out.data + at;
        for (int64_t k = 0; k < j->n; k++) y[k * j->out_step] = sorted[k].at;
        if (j->values) move_line(j, sorted, x, j->values + at * bytes);
    }
}

// A line is sorted by one thread: sorting is rarely the bottleneck, and merging would need more
// scratch.
tn_status tni_cpu_argsort(const tni_call *call)
{
    int      axis = call->attr->axis.axis, perm[TN_MAX_RANK], n = 0, rank = call->out.rank;
    sort_job j = { .tiles      = tni_tiles_get(),
                   .in         = call->in[0],
                   .out        = call->out,
                   .n          = 1,
                   .descending = call->attr->axis.descending,
                   .values     = call->nmore ? call->more[0].data : NULL,
                   .scratch    = call->scratch };
    if (rank > 0) {
        j.n        = call->out.size[axis];
        j.step     = call->in[0].stride[axis];
        j.out_step = call->out.stride[axis];
    }
    for (int i = 0; i < rank; i++)
        if (i != axis) perm[n++] = i;
    tni_permute_axes(&j.in, n, perm);
    tni_permute_axes(&j.out, n, perm);
    j.lines        = tni_arg_count(&j.out);
    j.worker_bytes = sort_worker_bytes(j.n);
    j.per_task     = tni_ceil_div(TASK, j.n);
    tni_parallel(tni_threads_for(call->threads, 16 * j.lines * j.n),
                 tni_ceil_div(j.lines, j.per_task), sort_task, &j);
    return TN_OK;
}
