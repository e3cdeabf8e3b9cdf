// How long samples are, and the comparison of results: see agreement.h.
#include "inspect/agreement.h"

#include "inspect/host_copy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Elements that are compared at a time: copies of them have 8 bytes each.
enum { PIECE = 1 << 22 };

// ---- times -------------------------------------------------------------------------------------

// With events of the device 300 us are a thousand times what they resolve; by the host's clock a
// sample has to be longer than a turn of the scheduler.
int tni_repeats_for(const tni_engine *e, double seconds)
{
    return tni_sample_runs(seconds, e->events->event_record ? TNI_SAMPLE_BY_EVENTS : 4e-3);
}

// ---- results -----------------------------------------------------------------------------------

// Part of a value by which two orders of summing may differ: some units of the dtype in which results are stored.
static double tolerance_of(tn_dtype dt)
{
    switch (dt) {
    case TN_F64: return 1e-11;
    case TN_F32: return 2e-5;
    case TN_F16: return 4e-3;
    case TN_BF16: return 3e-2;
    default: return 0;
    }
}

// Whether n elements have the same bits on the device.
static bool bits_agree(tn_ctx *cx, tn_dtype dt, const char *have, const char *want, int64_t n)
{
    const tni_device_memory *m     = cx->engine->device->memory;
    size_t                   bytes = (size_t)n * tni_dtype_size(dt);
    char                    *host  = malloc(2 * bytes);
    tni_text                 why   = { "" };
    bool ok = host && m->download(cx->engine->session, host, dt, have, n, &why) == TN_OK &&
              m->download(cx->engine->session, host + bytes, dt, want, n, &why) == TN_OK &&
              !memcmp(host, host + bytes, bytes);
    free(host);
    return ok;
}

// A piece of two results on the host, to be looked at one by one.
typedef struct {
    void   *memory[2];
    tni_arg have, want;
} piece;

// Frees what copy_piece took; either may be NULL.
static void free_piece(tni_heap *h, piece *p)
{
    tni_free(h, p->memory[0]);
    tni_free(h, p->memory[1]);
}

// Copies n elements of both to the host; false when memory is out.
static bool copy_piece(tn_ctx *cx, tn_dtype dt, const char *have, const char *want, int64_t n,
                       piece *p)
{
    tni_arg x    = { .dtype = dt, .rank = 1, .size = { n }, .stride = { 1 }, .data = (char *)have };
    *p           = (piece){ .memory = { NULL } };
    p->memory[0] = tni_host_copy(&cx->heap, cx->engine, &x, &p->have);
    x.data       = (char *)want;
    if (p->memory[0]) p->memory[1] = tni_host_copy(&cx->heap, cx->engine, &x, &p->want);
    if (p->memory[1]) return true;
    free_piece(&cx->heap, p);
    return false;
}

// Whether the numbers of two copies agree after sums: up to a part of each and a tenth of that of the largest, since sums of
// both signs can be anything beside what was added. An infinity agrees with itself alone: every part of it is infinite.
static bool values_agree(const tni_arg *have, const tni_arg *want, double slack)
{
    double part = tolerance_of(want->dtype), most = 0;
    for (int64_t i = 0; i < want->size[0]; i++) {
        double v = fabs(tni_host_value(want, &i));
        if (isfinite(v) && v > most) most = v;
    }
    for (int64_t i = 0; i < want->size[0]; i++) {
        double a = tni_host_value(have, &i), b = tni_host_value(want, &i);
        if (a == b || (isnan(a) && isnan(b))) continue;
        if (isinf(b) || !(fabs(a - b) <= part * fabs(b) + 0.1 * part * most + slack)) return false;
    }
    return true;
}

// Compares by value, where bits may differ.
static bool numbers_agree(tn_ctx *cx, tn_dtype dt, const char *have, const char *want, int64_t n,
                          double slack)
{
    piece p;
    if (!copy_piece(cx, dt, have, want, n, &p)) return false;
    bool ok = values_agree(&p.have, &p.want, slack);
    free_piece(&cx->heap, &p);
    return ok;
}

// A piece at a time, so that the host needs little memory for it.
bool tni_results_agree(tn_ctx *cx, tn_dtype dt, const char *have, const char *want, int64_t n,
                       bool exact, double slack)
{
    int64_t size = (int64_t)cx->engine->device->memory->element_size(dt);
    bool    ok   = true;
    for (int64_t at = 0; ok && at < n; at += PIECE) {
        int64_t part = n - at < PIECE ? n - at : PIECE;
        ok           = bits_agree(cx, dt, have + at * size, want + at * size, part);
        if (!ok && !exact && tolerance_of(dt) > 0)
            ok = numbers_agree(cx, dt, have + at * size, want + at * size, part, slack);
    }
    return ok;
}

// The largest difference within a piece.
static double differ_by(const piece *p)
{
    double most = 0;
    for (int64_t i = 0; i < p->want.size[0]; i++) {
        double a = tni_host_value(&p->have, &i), b = tni_host_value(&p->want, &i);
        if (a == b || (isnan(a) && isnan(b))) continue;
        double d = fabs(a - b);
        most     = d <= most ? most : isnan(d) ? INFINITY : d;
    }
    return most;
}

// An element that is NaN in one of the two alone is beyond every bound.
double tni_results_differ(tn_ctx *cx, tn_dtype dt, const char *have, const char *want, int64_t n)
{
    int64_t size = (int64_t)cx->engine->device->memory->element_size(dt);
    double  most = 0;
    for (int64_t at = 0; at < n; at += PIECE) {
        piece   p;
        int64_t part = n - at < PIECE ? n - at : PIECE;
        if (!copy_piece(cx, dt, have + at * size, want + at * size, part, &p)) return INFINITY;
        most = fmax(most, differ_by(&p));
        free_piece(&cx->heap, &p);
    }
    return most;
}
