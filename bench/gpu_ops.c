// gpu_ops.c: runs single ops on a GPU: fill, poison, run once, check, time.
//
// bench_chosen says which of them are measured.
#include "gpu_ops.h"
#include "gpu_kit.h"

#include "base/pool.h"
#include "engine/engine.h"
#include "tensor/dtype.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 16, QUICK_SIZE = GPU_PARTS, SECONDS = 60 };

static const char group[] = "gpu_ops";

// ---- random arrays -----------------------------------------------------------------------------

int gpu_arrays(const gpu_case *c)
{
    int n = 0;
    while (n < GPU_ARRAYS && c->array[n].axes) n++;
    return n;
}

static int shape_of(const gpu_op *s, int array, int64_t *size)
{
    const char *axes = s->c->array[array].axes;
    int         n    = 0;
    for (; axes[n]; n++) size[n] = axes[n] == 'r' ? s->rows : axes[n] == 'c' ? s->cols : s->inner;
    return n;
}

int64_t gpu_elements(const gpu_op *s, int array)
{
    int64_t size[TN_MAX_RANK], n = 1;
    int     rank = shape_of(s, array, size);
    for (int i = 0; i < rank; i++) n *= size[i];
    return n;
}

static uint32_t mixed(uint32_t array, uint64_t i)
{
    uint64_t h = (i + 1) * 0x9e3779b97f4a7c15u ^ (uint64_t)array << 40;
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93u;
    return (uint32_t)(h >> 32);
}

// A float as f16, cut off; 0 where it is too small for a normal number.
static uint16_t half_of(uint32_t bits)
{
    uint32_t exponent = bits >> 23 & 255;
    if (exponent < 113) return 0;
    return (uint16_t)((bits >> 16 & 0x8000) | (exponent - 112) << 10 | (bits >> 13 & 0x3ff));
}

// What is cut off here was random.
static void put(void *at, tn_dtype dt, int64_t i, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    if (dt == TN_BF16) ((uint16_t *)at)[i] = (uint16_t)(bits >> 16);
    else if (dt == TN_F16) ((uint16_t *)at)[i] = half_of(bits);
    else ((float *)at)[i] = v;
}

typedef struct {
    const gpu_op *s;
    int           array;
} filling;

static void fill_piece(void *arg, int64_t piece, int worker)
{
    const filling   *f   = arg;
    const gpu_op    *s   = f->s;
    const gpu_array *a   = &s->c->array[f->array];
    int64_t          n   = gpu_elements(s, f->array);
    int64_t          end = (piece + 1) * PIECE < n ? (piece + 1) * PIECE : n;
    (void)worker;
    for (int64_t i = piece * PIECE; i < end; i++) {
        uint32_t h = mixed((uint32_t)f->array, (uint64_t)i);
        if (a->fill == GPU_INDEX) ((int64_t *)s->host[f->array])[i] = h % s->cols;
        else put(s->host[f->array], a->dtype, i, (float)(h >> 8) * 0x6p-24f - 3);
    }
}

static bool fill_host(gpu_op *s, int array)
{
    int64_t n      = gpu_elements(s, array);
    filling f      = { s, array };
    s->host[array] = malloc((size_t)n * tni_dtype_size(s->c->array[array].dtype));
    if (!s->host[array]) return false;
    tni_parallel(tni_threads_default(), (n + PIECE - 1) / PIECE, fill_piece, &f);
    return true;
}

static double from_bits(uint32_t bits)
{
    float v;
    memcpy(&v, &bits, sizeof v);
    return (double)v;
}

double gpu_in(const gpu_op *s, int array, int64_t i)
{
    const void *at = s->host[array];
    switch (s->c->array[array].dtype) {
    case TN_I64: return (double)((const int64_t *)at)[i];
    case TN_BF16: return from_bits((uint32_t)((const uint16_t *)at)[i] << 16);
    case TN_F16: {
        uint32_t h = ((const uint16_t *)at)[i];
        return h ? from_bits((h & 0x8000) << 16 | (((h & 0x7fff) << 13) + (112u << 23))) : 0;
    }
    default: return (double)((const float *)at)[i];
    }
}

// ---- results -----------------------------------------------------------------------------------

bool gpu_out(gpu_op *s, int array, int64_t first, int64_t n, double *v)
{
    tn_scope  *scope = tn_begin(s->cx);
    tn_tensor *flat  = tn_reshape(s->t[array], TN_SHAPE(-1));
    tn_tensor *part  = tn_slice(flat, 0, first, first + n, 1);
    float     *to    = malloc((size_t)n * sizeof *to);
    bool       ok    = to && tn_read(part, TN_F32, to, n) == TN_OK;
    for (int64_t i = 0; ok && i < n; i++) v[i] = (double)to[i];
    free(to);
    tn_end(scope);
    return ok;
}

// The buffers that the results will get lie poisoned in the context's bins.
static void poison_bins(gpu_op *s)
{
    tni_buffer *b[GPU_ARRAYS] = { NULL };
    for (int i = 0; i < gpu_arrays(s->c); i++) {
        int64_t  n  = gpu_elements(s, i);
        tn_dtype dt = s->c->array[i].dtype;
        if (s->c->array[i].fill != GPU_RESULT) continue;
        b[i] = tni_buffer_new(&s->cx->buffers, (size_t)n * tni_dtype_size(dt));
        if (b[i]) gpu_fill(s->cx, b[i]->data, dt, n, NAN);
    }
    for (int i = 0; i < GPU_ARRAYS; i++) tni_buffer_unref(&s->cx->buffers, b[i]);
}

// ---- a case ------------------------------------------------------------------------------------

static void evaluate(void *arg)
{
    gpu_op   *s     = arg;
    tn_scope *scope = tn_begin(s->cx);
    if (s->c->record(s)) tn_eval(s->cx);
    tn_end(scope);
}

static bool make_tensors(gpu_op *s)
{
    for (int i = 0; i < gpu_arrays(s->c); i++) {
        int64_t size[TN_MAX_RANK];
        int     rank = shape_of(s, i, size);
        if (!s->host[i]) continue;
        if (!(s->t[i] = tn_from(s->cx, s->c->array[i].dtype, rank, size, s->host[i]))) return false;
    }
    return !s->c->open || s->c->open(s);
}

static double limit_of(const gpu_op *s, double copy)
{
    double elements = (double)s->rows * (double)s->cols;
    double moving   = s->c->bytes * elements / copy;
    double counting = s->c->flop_rate > 0 ? 2 * elements * (double)s->inner / s->c->flop_rate : 0;
    return fmax(moving, counting);
}

// Microseconds, and how much of them the limit is; and the number of launches.
static void time_case(gpu_op *s)
{
    int64_t before = tn_ctx_stats(s->cx).launches;
    evaluate(s);
    double launches = (double)(tn_ctx_stats(s->cx).launches - before);
    double seconds  = gpu_median(s->cx, evaluate, s);
    double copy     = gpu_copy_rate(s->cx);
    if (!gpu_is_well(s->cx, group, s->c->name)) return;
    bench_add((bench_row){ group, s->c->name, seconds * 1e6, "us", limit_of(s, copy) / seconds,
                           "limit" });
    bench_add((bench_row){ "gpu_launches", s->c->name, launches, "", NAN, NULL });
}

static void check_and_time(gpu_op *s)
{
    tn_scope *outer = tn_begin(s->cx), *scope = NULL;
    double    error = INFINITY;
    bool      ok    = make_tensors(s);
    poison_bins(s);
    scope = tn_begin(s->cx);
    ok    = ok && s->c->record(s) && tn_eval(s->cx) == TN_OK;
    if (ok) error = s->c->error(s);
    tn_end(scope);
    if (gpu_is_well(s->cx, group, s->c->name)) {
        if (error <= s->c->most) time_case(s);
        else bench_note(group, "%s: WRONG, error %.2e", s->c->name, error);
    }
    tn_end(outer);
}

static int64_t at_most(int64_t n, int64_t most)
{
    return n < most ? n : most;
}

static void run_case(void *arg)
{
    const gpu_case *c     = arg;
    bool            quick = bench_quick(), ok = true;
    gpu_op          s = { .c = c, .cx = gpu_open(group, c->tf32) };
    if (!s.cx) return;
    s.rows  = quick ? at_most(c->rows, QUICK_SIZE) : c->rows;
    s.cols  = quick ? at_most(c->cols, QUICK_SIZE) : c->cols;
    s.inner = quick ? at_most(c->inner, QUICK_SIZE) : c->inner;
    for (int i = 0; i < gpu_arrays(c); i++)
        if (c->array[i].fill != GPU_RESULT) ok = ok && fill_host(&s, i);
    if (ok) check_and_time(&s);
    else bench_note(group, "%s: no memory", c->name);
    for (int i = 0; i < GPU_ARRAYS; i++) free(s.host[i]);
    tn_close(s.cx);
}

static void measure_copy(void *unused)
{
    tn_ctx *cx = gpu_open(group, false);
    (void)unused;
    if (!cx) return;
    bench_add((bench_row){ group, "copy of 1 GiB", gpu_copy_rate(cx) / 1e9, "GB/s", NAN, NULL });
    tn_close(cx);
}

void bench_gpu_ops(void)
{
    if (!gpu_there(group)) return;
    bench_apart(group, "copy of 1 GiB", SECONDS, measure_copy, NULL);
    for (int i = 0; i < gpu_case_count; i++) {
        const gpu_case *c = &gpu_cases[i];
        if (bench_chosen(c->name)) bench_apart(group, c->name, SECONDS, run_case, (void *)c);
    }
}
