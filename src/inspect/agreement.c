// How long samples are, and the comparison of results: see agreement.h.
#include "inspect/agreement.h"

#include "base/pool.h"
#include "device/ref/ref.h"

#include <math.h>
#include <string.h>

// Elements that are compared at a time, in blocks for the threads; and the most such pieces where
// parts are compared whose numbers may differ: logits of a thousand million elements would take
// seconds.
enum { PIECE = 1 << 20, BLOCK = 1 << 11, PIECES = 32 };

// ---- times -------------------------------------------------------------------------------------

// With events of the device 300 us are a thousand times what they resolve; by the host's clock a
// sample has to be longer than a turn of the scheduler.
int tni_repeats_for(const tni_engine *e, double seconds)
{
    return tni_sample_runs(seconds, e->events->event_record ? TNI_SAMPLE_BY_EVENTS : 4e-3);
}

// ---- results -----------------------------------------------------------------------------------

// A first piece comes from the host, then copies of all before.
bool tni_spoil_memory(tn_ctx *cx, char *data, int64_t bytes)
{
    enum { FIRST = 4096 };
    const tni_engine *e = cx->engine;
    unsigned char     piece[FIRST];
    tni_text          why  = { "" };
    int64_t           have = bytes < FIRST ? bytes : FIRST;
    memset(piece, 0xff, sizeof piece);
    bool ok = e->device->memory->upload(e->session, data, TN_U8, piece, have, &why) == TN_OK;
    while (ok && have < bytes) {
        int64_t n = have < bytes - have ? have : bytes - have;
        tni_arg x = { .dtype = TN_U8, .rank = 1, .size = { n }, .stride = { 1 }, .data = data };
        ok        = tni_arg_copy(cx, x, TN_U8, data + have, &why) == TN_OK;
        have += n;
    }
    return ok;
}

// Part of a value by which two orders of summing may differ: some units of the dtype in which
// results are stored.
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

// What two results differ by. most: the largest finite number that is wanted; excess: the most by
// which a difference is beyond a part of what is wanted.
typedef struct {
    double most, excess;
} distance;

// A piece of two results on the host, one behind the other in memory, and the distance of each of
// its blocks.
typedef struct {
    tn_dtype dt;
    int64_t  n;
    double   part;
    char    *have, *want;
    distance block[PIECE / BLOCK];
} piece;

// Takes memory for a piece of results of n elements; NULL if there is none.
static piece *take_piece(tn_ctx *cx, tn_dtype dt, int64_t n, double part)
{
    size_t bytes = (size_t)(n < PIECE ? n : PIECE) * tni_dtype_size(dt);
    piece *p     = tni_alloc(&cx->heap, sizeof *p + 2 * bytes);
    if (!p) return NULL;
    p->dt   = dt;
    p->part = part;
    p->have = (char *)(p + 1);
    p->want = p->have + bytes;
    return p;
}

// Copies the piece of two results that begins at an element; they have n. False if the device does
// not give them.
static bool load_piece(tn_ctx *cx, piece *p, const char *have, const char *want, int64_t at,
                       int64_t n)
{
    const tni_device_memory *m    = cx->engine->device->memory;
    int64_t                  from = at * (int64_t)m->element_size(p->dt);
    tni_text                 why  = { "" };
    p->n                          = n - at < PIECE ? n - at : PIECE;
    return m->download(cx->engine->session, p->have, p->dt, have + from, p->n, &why) == TN_OK &&
           m->download(cx->engine->session, p->want, p->dt, want + from, p->n, &why) == TN_OK;
}

static bool bits_agree(const piece *p)
{
    return !memcmp(p->have, p->want, (size_t)p->n * tni_dtype_size(p->dt));
}

// Adds an element to a distance. An infinity agrees with itself alone: every part of it is
// infinite.
static void add_element(distance *d, double have, double want, double part)
{
    if (isfinite(want) && fabs(want) > d->most) d->most = fabs(want);
    if (have == want || (isnan(have) && isnan(want))) return;
    double excess = isfinite(have) && isfinite(want) ? fabs(have - want) - part * fabs(want)
                                                     : INFINITY;
    if (excess > d->excess) d->excess = excess;
}

// Measures a block, as the reference device has it.
static void measure_block(void *arg, int64_t i, int worker)
{
    piece   *p    = arg;
    size_t   size = tni_dtype_size(p->dt), from = (size_t)i * BLOCK * size;
    int64_t  n = p->n - i * BLOCK < BLOCK ? p->n - i * BLOCK : BLOCK;
    distance d = { 0 };
    tni_cell have[BLOCK], want[BLOCK];
    (void)worker;
    tni_ref_from_host(have, p->dt, p->have + from, n);
    tni_ref_from_host(want, p->dt, p->want + from, n);
    for (int64_t k = 0; k < n; k++)
        if (tni_is_float(p->dt)) add_element(&d, have[k].f, want[k].f, p->part);
        else add_element(&d, (double)have[k].i, (double)want[k].i, p->part);
    p->block[i] = d;
}

// Measures a piece by all threads of the context.
static distance measure_piece(const tn_ctx *cx, piece *p)
{
    int64_t  blocks = (p->n + BLOCK - 1) / BLOCK;
    distance d      = { 0 };
    tni_parallel(cx->engine->threads, blocks, measure_block, p);
    for (int64_t i = 0; i < blocks; i++) {
        d.most   = fmax(d.most, p->block[i].most);
        d.excess = fmax(d.excess, p->block[i].excess);
    }
    return d;
}

// Up to a part of each number and a tenth of that of the piece's largest, since sums of both signs
// can be anything beside what was added.
static bool numbers_agree(const tn_ctx *cx, piece *p, double slack)
{
    distance d = measure_piece(cx, p);
    return isfinite(d.excess) && d.excess <= 0.1 * p->part * d.most + slack;
}

// Where the i-th of some pieces begins, of n elements: they are as far apart as they can be, and
// the last one ends with the result, where it would else be a rest of a few elements that have
// their own largest number.
static int64_t piece_at(int64_t n, int64_t i, int64_t some)
{
    int64_t pieces = (n + PIECE - 1) / PIECE;
    int64_t at     = some < 2 ? 0 : i * (pieces - 1) / (some - 1) * PIECE;
    return n > PIECE && at > n - PIECE ? n - PIECE : at;
}

bool tni_results_agree(tn_ctx *cx, tn_dtype dt, const char *have, const char *want, int64_t n,
                       unsigned how, double slack)
{
    piece  *p  = take_piece(cx, dt, n, tolerance_of(dt));
    bool    ok = p, bits = how & TNI_COMPARE_BITS || tolerance_of(dt) <= 0;
    int64_t some = (n + PIECE - 1) / PIECE;
    if (how & TNI_COMPARE_PARTS && !bits && some > PIECES) some = PIECES;
    for (int64_t i = 0; ok && i < some; i++)
        ok = load_piece(cx, p, have, want, piece_at(n, i, some), n) &&
             (bits_agree(p) || (!bits && numbers_agree(cx, p, slack)));
    tni_free(&cx->heap, p);
    return ok;
}

double tni_results_differ(tn_ctx *cx, tn_dtype dt, const char *have, const char *want, int64_t n)
{
    piece  *p    = take_piece(cx, dt, n, 0);
    double  most = p ? 0 : INFINITY;
    int64_t some = (n + PIECE - 1) / PIECE;
    for (int64_t i = 0; p && i < some; i++) {
        bool ok = load_piece(cx, p, have, want, piece_at(n, i, some), n);
        most    = fmax(most, ok ? measure_piece(cx, p).excess : INFINITY);
    }
    tni_free(&cx->heap, p);
    return most;
}
