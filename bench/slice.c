// slice.c: runs the cases of the slice on one device: fill, poison, run once, check, time.
//
// TN_SLICE_DEVICE names the device (cuda), TN_SLICE_SHRINK divides the rows, for a try on a slow
// one, and TN_SLICE takes only the cases with this text in their name.
#include "slice.h"

#include "base/pool.h"
#include "device/cuda/cuda.h"
#include "engine/engine.h"
#include "tensor/dtype.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TIMES = 20, ROUNDS = 15, PIECE = 1 << 16 };

// ---- random arrays -----------------------------------------------------------------------------

int64_t slice_elements(const slice *s, int array)
{
    const slice_spec *a = &s->c->array[array];
    return (a->by_row ? s->rows : 1) * (a->by_col ? s->cols : 1);
}

static uint32_t mixed(uint32_t array, uint64_t i)
{
    uint64_t h = (i + 1) * 0x9e3779b97f4a7c15u ^ (uint64_t)array << 40;
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93u;
    return (uint32_t)(h >> 32);
}

// bf16 is the upper half of a float; what is cut off here was random.
static void put(void *at, tn_dtype dt, int64_t i, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    if (dt == TN_BF16) ((uint16_t *)at)[i] = (uint16_t)(bits >> 16);
    else ((float *)at)[i] = v;
}

typedef struct {
    const slice *s;
    int          array;
} filling;

static void fill_piece(void *arg, int64_t piece, int worker)
{
    const filling    *f   = arg;
    const slice      *s   = f->s;
    const slice_spec *a   = &s->c->array[f->array];
    int64_t           n   = slice_elements(s, f->array);
    int64_t           end = (piece + 1) * PIECE < n ? (piece + 1) * PIECE : n;
    (void)worker;
    for (int64_t i = piece * PIECE; i < end; i++) {
        uint32_t h = mixed((uint32_t)f->array, (uint64_t)i);
        float    u = (float)(h >> 8) * 0x1p-24f;
        if (a->fill == SLICE_INDEX) ((int64_t *)s->host[f->array])[i] = h % s->cols;
        else put(s->host[f->array], a->dtype, i, a->fill == SLICE_POSITIVE ? u : u * 6 - 3);
    }
}

static bool fill_host(slice *s, int array)
{
    int64_t n      = slice_elements(s, array);
    filling f      = { s, array };
    s->host[array] = malloc((size_t)n * tni_dtype_size(s->c->array[array].dtype));
    if (!s->host[array]) return false;
    tni_parallel(tni_threads_default(), (n + PIECE - 1) / PIECE, fill_piece, &f);
    return true;
}

static double number_at(const void *at, tn_dtype dt, int64_t i)
{
    if (dt == TN_I64) return (double)((const int64_t *)at)[i];
    if (dt == TN_F32) return (double)((const float *)at)[i];
    uint32_t bits = (uint32_t)((const uint16_t *)at)[i] << 16;
    float    v;
    memcpy(&v, &bits, sizeof v);
    return (double)v;
}

double slice_in(const slice *s, int array, int64_t i)
{
    return number_at(s->host[array], s->c->array[array].dtype, i);
}

// ---- results -----------------------------------------------------------------------------------

// From a tensor of any shape: its elements are in a row.
static bool read_tensor(slice *s, int array, int64_t first, int64_t n, double *v)
{
    tn_scope  *scope = tn_begin(s->cx);
    tn_tensor *flat  = tn_reshape(s->t[array], TN_SHAPE(-1));
    tn_tensor *part  = tn_slice(flat, 0, first, first + n, 1);
    tn_dtype   dt    = s->c->array[array].dtype;
    void      *to    = malloc((size_t)n * tni_dtype_size(dt));
    bool       ok    = to && tn_read(part, dt, to, n) == TN_OK;
    for (int64_t i = 0; ok && i < n; i++) v[i] = number_at(to, dt, i);
    free(to);
    tn_end(scope);
    return ok;
}

bool slice_out(slice *s, int array, int64_t first, int64_t n, double *v)
{
    if (!s->data[array]) return read_tensor(s, array, first, n, v);
    tn_dtype dt = s->c->array[array].dtype;
    size_t   w  = tni_dtype_size(dt);
    void    *to = malloc((size_t)n * w);
    if (!to) return false;
    s->device->download(s->cx->engine->seat, to, dt, s->data[array] + (size_t)first * w, n,
                        &(tni_text){ 0 });
    for (int64_t i = 0; i < n; i++) v[i] = number_at(to, dt, i);
    free(to);
    return true;
}

// Fills memory of the device with NaN.
static bool poison(const slice *s, char *p, tn_dtype dt, int64_t n)
{
    tni_text why  = { "" };
    tni_attr attr = { .num = { .f = NAN } };
    tni_call call = { .seat    = s->cx->engine->seat,
                      .op      = TNI_full,
                      .attr    = &attr,
                      .threads = tni_threads_default(),
                      .why     = &why };
    call.out      = (tni_arg){ .dtype = dt, .rank = 1, .size = { n }, .stride = { 1 }, .data = p };
    if (s->device->run(&call) == TN_OK) return true;
    fprintf(stderr, "tenon-bench: poisoning: %s\n", why.s);
    return false;
}

// ---- time --------------------------------------------------------------------------------------

static double time_calls(const slice *s, void (*f)(void *arg), void *arg, int times)
{
    if (s->device == &tni_device_cuda)
        return tni_cuda_seconds(s->cx->engine->seat, f, arg, times) / times;
    double start = bench_seconds();
    for (int i = 0; i < times; i++) f(arg);
    if (s->device->wait) s->device->wait(s->cx->engine->seat, &(tni_text){ 0 });
    return (bench_seconds() - start) / times;
}

// The median time of a call, between two events of the device: of so many one after the other, or
// (1) of one that nothing runs before.
static double timed(const slice *s, void (*f)(void *arg), void *arg, int times)
{
    double took[ROUNDS];
    for (int i = 0; i < 3; i++) f(arg);
    for (int r = 0; r < ROUNDS; r++) {
        if (s->device->wait) s->device->wait(s->cx->engine->seat, &(tni_text){ 0 });
        took[r] = time_calls(s, f, arg, times);
    }
    return bench_middle(took, ROUNDS);
}

// Adds the row: microseconds, and how much of the copy rate the least bytes are.
static void report(const slice *s, const char *group, double seconds, double error, double copy)
{
    double bytes = s->c->bytes * (double)s->rows * (double)s->cols;
    if (!(error <= s->c->most)) {
        bench_note(group, "%s: WRONG, error %.2e", s->c->name, error);
        return;
    }
    bench_add((bench_row){ group, s->c->name, seconds * 1e6, "us", bytes / copy / seconds,
                           "copy limit" });
}

// ---- kernels by hand ---------------------------------------------------------------------------

typedef struct {
    slice     *s;
    tni_kernel kernel[SLICE_KERNELS];
    tni_launch launch[SLICE_KERNELS];
    void      *entry[SLICE_KERNELS];
    bool       failed;
} raw;

static void launch_all(void *arg)
{
    raw     *r   = arg;
    tni_text why = { "" };
    for (int i = 0; i < r->s->c->kernels && !r->failed; i++) {
        if (r->s->device->launch(r->s->cx->engine->seat, r->entry[i], &r->launch[i], &why) == TN_OK)
            continue;
        fprintf(stderr, "tenon-bench: %s: %s\n", r->s->c->name, why.s);
        r->failed = true;
    }
}

// One kernel of several.
typedef struct {
    raw *r;
    int  which;
} one;

static void launch_one(void *arg)
{
    one     *o   = arg;
    raw     *r   = o->r;
    tni_text why = { "" };
    if (r->s->device->launch(r->s->cx->engine->seat, r->entry[o->which], &r->launch[o->which],
                             &why) != TN_OK)
        r->failed = true;
}

static void time_each(raw *r)
{
    for (int i = 0; i < r->s->c->kernels && r->s->c->kernels > 1; i++) {
        one o = { r, i };
        bench_note("slice_raw", "%s: kernel %d takes %.1f us", r->s->c->name, i,
                   timed(r->s, launch_one, &o, TIMES) * 1e6);
    }
}

static void build_all(raw *r)
{
    slice *s = r->s;
    for (int i = 0; i < s->c->kernels; i++) {
        tni_kernel *k = &r->kernel[i];
        tni_launch *l = &r->launch[i];
        l->kernel     = k;
        l->threads    = tni_threads_default();
        l->size[0]    = s->rows;
        l->size[1]    = s->cols;
        k->nbuffer    = (int16_t)s->c->arrays;
        for (int b = 0; b < s->c->arrays; b++) k->buffer[b].dtype = (uint8_t)s->c->array[b].dtype;
        s->c->build(i, k, l);
        if (!k->nr) l->size[0] = s->rows * s->cols;
        if (!k->nr) l->size[1] = 0;
        if (!tni_kernel_seal(k)) fprintf(stderr, "tenon-bench: %s: no kernel\n", s->c->name);
    }
}

// Compiles, and takes scratch; addresses come after that.
static bool prepare_all(raw *r)
{
    slice            *s = r->s;
    const tni_launch *first[SLICE_KERNELS];
    tni_text          why = { "" };
    for (int i = 0; i < s->c->kernels; i++) first[i] = &r->launch[i];
    if (s->device->prepare(s->cx->engine->seat, s->c->kernels, first, r->entry, &why) != TN_OK) {
        fprintf(stderr, "tenon-bench: %s: %s\n", s->c->name, why.s);
        return false;
    }
    for (int i = 0; i < s->c->kernels; i++) {
        size_t room = s->device->room
                          ? s->device->room(s->cx->engine->seat, r->entry[i], &r->launch[i])
                          : 0;
        memcpy(r->launch[i].buffer, s->data, sizeof s->data);
        r->launch[i].scratch = room ? s->device->alloc(s->cx->engine->seat, room) : NULL;
        if (room && !r->launch[i].scratch) return false;
    }
    return true;
}

static bool raw_arrays(slice *s)
{
    for (int i = 0; i < s->c->arrays; i++) {
        tn_dtype dt = s->c->array[i].dtype;
        int64_t  n  = slice_elements(s, i);
        s->data[i]  = s->device->alloc(s->cx->engine->seat, (size_t)n * tni_dtype_size(dt));
        if (!s->data[i]) return false;
        if (s->host[i])
            s->device->upload(s->cx->engine->seat, s->data[i], dt, s->host[i], n, &(tni_text){ 0 });
        else if (!poison(s, s->data[i], dt, n)) return false;
    }
    return true;
}

static void raw_close(raw *r)
{
    slice *s = r->s;
    if (s->device->wait) s->device->wait(s->cx->engine->seat, &(tni_text){ 0 });
    for (int i = 0; i < SLICE_ARRAYS; i++) {
        if (s->data[i]) s->device->free(s->cx->engine->seat, s->data[i]);
        s->data[i] = NULL;
    }
    for (int i = 0; i < SLICE_KERNELS; i++)
        if (r->launch[i].scratch) s->device->free(s->cx->engine->seat, r->launch[i].scratch);
}

static void run_raw(slice *s, double copy)
{
    raw *r = calloc(1, sizeof *r);
    if (!r) return;
    r->s = s;
    build_all(r);
    if (!raw_arrays(s) || !prepare_all(r)) {
        bench_note("slice_raw", "%s: could not be run", s->c->name);
    } else {
        launch_all(r);
        double error = s->c->error(s);
        report(s, "slice_raw", timed(s, launch_all, r, TIMES), error, copy);
        time_each(r);
    }
    raw_close(r);
    free(r);
}

// ---- through the interface ---------------------------------------------------------------------

static void evaluate(void *arg)
{
    slice    *s     = arg;
    tn_scope *scope = tn_begin(s->cx);
    if (s->c->record(s)) tn_eval(s->cx);
    tn_end(scope);
}

static bool make_tensors(slice *s)
{
    for (int i = 0; i < s->c->arrays; i++) {
        const slice_spec *a       = &s->c->array[i];
        int               rank    = a->by_row && a->by_col && s->cols > 1 ? 2 : 1;
        int64_t           size[2] = { rank == 2 ? s->rows : slice_elements(s, i), s->cols };
        if (!s->host[i]) continue;
        if (!(s->t[i] = tn_from(s->cx, a->dtype, rank, size, s->host[i]))) return false;
    }
    return true;
}

// The buffers that the results will get lie poisoned in the context's bins.
static void poison_bins(slice *s)
{
    tni_buffer *b[SLICE_ARRAYS] = { NULL };
    for (int i = 0; i < s->c->arrays; i++) {
        int64_t n = slice_elements(s, i);
        size_t  w = tni_dtype_size(s->c->array[i].dtype);
        if (!s->host[i]) b[i] = tni_buffer_new(&s->cx->buffers, (size_t)n * w);
        if (b[i]) poison(s, b[i]->data, s->c->array[i].dtype, n);
    }
    for (int i = 0; i < SLICE_ARRAYS; i++) tni_buffer_unref(&s->cx->buffers, b[i]);
}

static void run_recorded(slice *s, double copy)
{
    tn_scope *outer = tn_begin(s->cx), *scope = NULL;
    double    error = INFINITY;
    bool      ok    = make_tensors(s);
    poison_bins(s);
    scope = tn_begin(s->cx);
    ok    = ok && s->c->record(s) && tn_eval(s->cx) == TN_OK;
    if (ok) error = s->c->error(s);
    tn_end(scope);
    if (ok) {
        int64_t before = tn_stats_get(s->cx).launches;
        evaluate(s);
        int64_t kernels = tn_stats_get(s->cx).launches - before;
        if (kernels != 1) bench_note("slice", "%s: %d launches", s->c->name, (int)kernels);
        report(s, "slice", timed(s, evaluate, s, TIMES), error, copy);
        report(s, "slice_alone", timed(s, evaluate, s, 1), error, copy);
    }
    if (tn_error(s->cx) != TN_OK) bench_note("slice", "%s: %s", s->c->name, tn_error_text(s->cx));
    tn_error_clear(s->cx);
    tn_end(outer);
    memset(s->t, 0, sizeof s->t);
}

// ---- all ---------------------------------------------------------------------------------------

typedef struct {
    const tni_device *device;
    tni_call          call;
} copying;

static void copy_once(void *arg)
{
    copying *c = arg;
    c->device->run(&c->call);
}

// Bytes read and written in a second by a copy on the device, of 1 GiB.
static double copy_rate(const slice *s, int64_t bytes)
{
    tni_text why = { "" };
    int64_t  n   = bytes / 4;
    tni_arg  in = { .dtype = TN_F32, .rank = 1, .size = { n }, .stride = { 1 } }, out = in;
    in.data        = s->device->alloc(s->cx->engine->seat, (size_t)bytes);
    out.data       = s->device->alloc(s->cx->engine->seat, (size_t)bytes);
    copying c      = { s->device,
                       { .seat = s->cx->engine->seat,
                         .op   = TNI_copy,
                         .nin  = 1,
                         .in   = &in,
                         .out  = out,
                         .why  = &why } };
    c.call.threads = tni_threads_default();
    double rate    = NAN;
    if (in.data && out.data && poison(s, in.data, TN_F32, n))
        rate = 2 * (double)bytes / timed(s, copy_once, &c, TIMES);
    s->device->free(s->cx->engine->seat, in.data);
    s->device->free(s->cx->engine->seat, out.data);
    return rate;
}

static void ignore_fault(tn_ctx *cx, const tn_fault *f, void *user)
{
    (void)cx, (void)f, (void)user;
}

static int64_t shrink(void)
{
    const char *text = getenv("TN_SLICE_SHRINK");
    return text && atoll(text) > 0 ? atoll(text) : 1;
}

static void run_case(slice *s, bool by_hand, double copy)
{
    bool ok = true;
    for (int i = 0; i < s->c->arrays; i++)
        if (s->c->array[i].fill != SLICE_RESULT) ok = ok && fill_host(s, i);
    if (!ok) bench_note("slice", "%s: no memory", s->c->name);
    else if (by_hand) run_raw(s, copy);
    else run_recorded(s, copy);
    for (int i = 0; i < SLICE_ARRAYS; i++) free(s->host[i]);
}

static void run_slice(const char *group, bool by_hand)
{
    const char *name = getenv("TN_SLICE_DEVICE"), *only = getenv("TN_SLICE");
    tn_ctx     *cx = tn_open_with(
            (tn_open_opts){ .device = name ? name : "cuda", .handler = ignore_fault });
    if (!cx) {
        bench_note(group, "%s", tn_error_text(NULL));
        return;
    }
    slice  base = { .device = cx->engine->device, .cx = cx };
    double copy = copy_rate(&base, (1 << 30) / shrink() / 64 * 64);
    bench_add((bench_row){ group, "copy of 1 GiB", copy / 1e9, "GB/s", NAN, NULL });
    if (by_hand && !base.device->prepare) bench_note(group, "the device takes no kernels");
    for (int i = 0; i < slice_count && (!by_hand || base.device->prepare); i++) {
        slice s = base;
        s.c     = &slice_cases[i];
        s.rows  = (s.c->rows + shrink() - 1) / shrink();
        s.cols  = s.c->cols;
        if (!only || strstr(s.c->name, only)) run_case(&s, by_hand, copy);
    }
    tn_close(cx);
}

void bench_slice(void)
{
    run_slice("slice", false);
}

void bench_slice_raw(void)
{
    run_slice("slice_raw", true);
}
