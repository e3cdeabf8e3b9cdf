// The device's roofline, measured: the rate of a large copy, and of a large product of each dtype.
// Memory for it is allocated from the device directly and not counted by the context; without
// enough of it there is no roofline.
#include "inspect/profile.h"

#include "device/ref/ref.h"
#include "kernel/prelude.h"

#include <math.h>

// Three runs after a warm-up; the best counts, since a ceiling is wanted.
enum { TRIES = 3, PIECE = 1 << 13 };

static tni_arg square(tn_dtype dt, int64_t n, void *data)
{
    return (tni_arg){ .dtype = dt, .rank = 2, .size = { n, n }, .stride = { n, 1 }, .data = data };
}

// Returns the least seconds that a call takes, after a first run for what happens only once. NAN if
// it fails.
static double best_time(const tni_engine *e, const tni_call *c)
{
    double best = INFINITY;
    for (int i = 0; i <= TRIES; i++) {
        tni_time_point from = tni_time_now(e);
        if (tni_call_run(c) != TN_OK) return NAN;
        double s = tni_seconds_between(e, from, tni_time_now(e));
        if (isnan(s)) return NAN;
        if (i > 0 && s < best) best = s;
    }
    return best;
}

// Fills with random numbers: on some chips zeros take less power, and so less time. Every PIECE
// elements are the same ones.
static bool fill_random(const tni_engine *e, tni_arg out)
{
    const tni_device_memory *m = e->device->memory;

    tni_text why   = { "" };
    int64_t  count = tni_shape_count(out.rank, out.size);
    int64_t  size  = (int64_t)m->element_size(out.dtype);
    bool     ok    = true;
    tni_cell cell[PIECE], host[PIECE];
    for (int i = 0; i < PIECE; i++) cell[i].f = m_rand_uniform_d(1, 0, (uint64_t)i);
    tni_device_ref.memory->download(NULL, host, out.dtype, cell, PIECE, &why);
    for (int64_t at = 0; at < count && ok; at += PIECE)
        ok = m->upload(e->session, out.data + at * size, out.dtype, host,
                       count - at < PIECE ? count - at : PIECE, &why) == TN_OK;
    return ok;
}

// Returns the seconds of `op` over squares of n x n elements: a copy of one, or a product of two.
// NAN if it cannot be run. block: inputs, result, scratch.
static double time_squares(const tni_engine *e, int op, tn_dtype dt, int64_t n)
{
    const tni_device *d     = e->device;
    size_t            bytes = (size_t)(n * n) * d->memory->element_size(dt);
    void             *block[4];
    tni_arg           in[2];
    int               nin  = op == TNI_copy ? 1 : 2;
    tni_attr          attr = { 0 };
    tni_text          why  = { "" };
    bool              ok   = true;
    tni_call          c    = {
                    .device = e->device, .session = e->session, .op = op, .nin = nin, .in = in, .attr = &attr
    };
    for (int i = 0; i <= nin; i++) ok &= (block[i] = d->memory->alloc(e->session, bytes)) != NULL;
    for (int i = 0; i < nin; i++) in[i] = square(dt, n, block[i]);
    c.out     = square(dt, n, block[nin]);
    c.threads = e->threads;
    c.why     = &why;
    ok        = ok && fill_random(e, in[0]) && (nin == 1 || fill_random(e, in[1]));
    bytes     = ok ? tni_call_scratch(&c) : 0;
    c.scratch = block[nin + 1] = bytes ? d->memory->alloc(e->session, bytes) : NULL;
    double s                   = ok && (!bytes || c.scratch) ? best_time(e, &c) : NAN;
    for (int i = 0; i <= nin + 1; i++)
        if (block[i]) d->memory->free(e->session, block[i]);
    return s;
}

// Doubles the size until a copy takes milliseconds or has 256 MiB; the last is larger than caches
// are.
static double measure_copy(const tni_engine *e)
{
    double rate = -1;
    for (int64_t n = 512; n <= 8192; n *= 2) {
        double s = time_squares(e, TNI_copy, TN_F32, n);
        if (isnan(s) || s <= 0) break;
        rate = 2.0 * 4 * (double)(n * n) / s;
        if (s > 5e-3) break;
    }
    return rate;
}

// Grows the size while the next one would not take longer than a tenth of a second; returns the
// best rate.
static double measure_product(const tni_engine *e, tn_dtype dt)
{
    double rate = -1;
    for (int64_t n = 128; n <= 8192;) {
        double s = time_squares(e, TNI_matmul, dt, n), cube = (double)(n * n) * (double)n;
        if (isnan(s) || s <= 0) break;
        if (2 * cube / s > rate) rate = 2 * cube / s;
        if (s * 8 > 0.1) break;
        n *= s < 1e-3 ? 4 : 2;
    }
    return rate;
}

double tni_roofline_copy(tn_ctx *cx, tni_profile *p)
{
    if (p->copy == 0) p->copy = measure_copy(cx->engine);
    return p->copy > 0 ? p->copy : 0;
}

double tni_roofline_product(tn_ctx *cx, tni_profile *p, tn_dtype dt)
{
    if (!tni_is_float(dt)) return 0;
    if (p->product[dt] == 0) p->product[dt] = measure_product(cx->engine, dt);
    return p->product[dt] > 0 ? p->product[dt] : 0;
}

double tn_ctx_peak(tn_ctx *cx, tn_dtype dt)
{
    if (!tni_ctx_ok(cx, "ctx_peak") || !tni_dtype_ok(dt) || !tni_is_float(dt) ||
        tni_is_storage_only(dt))
        return 0;
    double rate = measure_product(cx->engine, dt);
    return rate > 0 ? rate : 0;
}
