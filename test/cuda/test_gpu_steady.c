// test_gpu_steady.c: what a training loop on the GPU asks of the driver once it repeats itself: one
// graph launch a step and the batch, no wait, no memory; and contexts that leave nothing behind.
// Without a GPU it is skipped.
//
//     TN_TEST_DEVICE=cpu tenon-tests gpu_steady   runs what does not ask the driver on another device
#include "check.h"
#include "driver_watch.h"
#include "fake_gpu.h"
#include "gpu_parts.h"
#include "host.h"

#include "engine/engine.h"

#include <math.h>
#include <stdlib.h>
#include <tenon.h>
#include <tenon/models.h>

// ---- steady steps ------------------------------------------------------------------------------

enum { BATCH = 64, WARM = 30, STEADY = 20 };

typedef enum { RESIDENT, LATE, CLIPPED, BY_HAND, UPLOADED, LOADED, WAYS } way;

static const char *const way_name[WAYS] = {
    "batch on the device", "loss read late", "gradients clipped",
    "clipped by hand",     "batch uploaded", "batch loaded",
};

// A training loop of a way, with its batch on the device and on the host.
typedef struct {
    way       way;
    tn_ctx   *cx;
    tn_layer *net;
    tn_optim *opt;
    tn_data  *data;
    tn_batch  batch;
    float    *x;
    int64_t   y[BATCH];
    double    late;
} loop;

static void begin(loop *l, way w)
{
    *l         = (loop){ .way = w, .cx = open_seeded(tested_device(), 1) };
    tn_ctx *cx = l->cx;
    l->net     = tn_mlp(cx, TN_SHAPE(784, 256, 128, 10));
    l->opt     = tn_adam(l->net, (tn_adam_opts){ .clip_norm = w == CLIPPED ? 0.5f : 0 });
    l->data    = tn_digits(cx, (tn_digits_opts){ .count = 10 * BATCH });
    l->x       = calloc((size_t)BATCH * 784, sizeof *l->x);
    l->late    = NAN;
    l->batch.x = tn_want(tn_rand(cx, TN_F32, TN_SHAPE(BATCH, 784)));
    l->batch.y = tn_want(tn_randint(cx, TN_I64, 0, 10, TN_SHAPE(BATCH)));
    CHECK_STATUS(tn_eval(cx), TN_OK);
}

static tn_batch batch_of(loop *l, int i)
{
    tn_batch b = { 0 };
    if (l->way == LOADED) return tn_next(l->data, BATCH);
    if (l->way != UPLOADED) return l->batch;
    for (int k = 0; k < BATCH; k++) l->y[k] = (k + i) % 10, l->x[k * 784 + i] = 1;
    b.x = tn_from(l->cx, TN_F32, TN_SHAPE(BATCH, 784), l->x);
    b.y = tn_from(l->cx, TN_I64, TN_SHAPE(BATCH), l->y);
    return b;
}

static void steady_step(loop *l, int i)
{
    tn_scope  *s    = tn_begin(l->cx);
    tn_batch   b    = batch_of(l, i);
    tn_tensor *loss = tn_cross_entropy(tn_forward(l->net, b.x), b.y);
    if (l->way == BY_HAND) {
        CHECK_STATUS(tn_backward(loss, NULL), TN_OK);
        tn_optim_clip_norm(l->opt, 0.5);
        CHECK_STATUS(tn_optim_step(l->opt), TN_OK);
        tn_optim_zero_grad(l->opt);
    } else {
        CHECK_STATUS(tn_step(l->opt, loss), TN_OK);
    }
    if (l->way == LATE) l->late = tn_item_late(loss);
    CHECK_STATUS(tn_end(s), TN_OK);
}

// Where the elements of the first weight lie.
static const char *place_of_weights(const loop *l)
{
    const tni_node *n = tn_layer_find(l->net, "1.weight")->store->node;
    return n->buf->data + n->start * 4;
}

static void check_stats(const loop *l, const tn_stats *a, const tn_stats *b)
{
    const char *name   = way_name[l->way];
    bool        loaded = l->way == LOADED && !l->cx->engine->device->memory->host;
    int64_t     copies = l->way == UPLOADED || loaded ? 2 * STEADY : 0;
    test_case_result(b->plans == a->plans && b->kernels == a->kernels &&
                         b->disk_hits == a->disk_hits && b->hits - a->hits == STEADY,
                     "%s: %lld plans, %lld compiled, %lld evaluations", name,
                     (long long)(b->plans - a->plans), (long long)(b->kernels - a->kernels),
                     (long long)(b->hits - a->hits));
    test_case_result(b->copies - a->copies == copies && b->syncs == a->syncs,
                     "%s: %lld copies, %lld waits", name, (long long)(b->copies - a->copies),
                     (long long)(b->syncs - a->syncs));
    test_case_result(b->bytes == a->bytes && b->peak == a->peak, "%s: %lld bytes more, peak %lld",
                     name, (long long)(b->bytes - a->bytes), (long long)(b->peak - a->peak));
}

// What the driver was asked for in the steady steps.
static void check_driver(const char *name, way w, const int64_t *before)
{
    static const char *const what[WATCH_KINDS] = { "graphs", "kernels", "uploads", "downloads",
                                                   "waits",  "memory",  "modules", "captures" };
    int64_t                  want[WATCH_KINDS] = { [WATCH_GRAPHS] = STEADY };
    if (w == UPLOADED || w == LOADED) want[WATCH_UPLOADS] = 2 * STEADY;
    if (w == LATE) want[WATCH_KERNELS] = STEADY;  // that write one number into the host's memory
    for (int k = 0; k < WATCH_KINDS; k++)
        test_case_result(driver_watched((watch_kind)k) - before[k] == want[k],
                         "%s: %lld %s in %d steps, not %lld", name,
                         (long long)(driver_watched((watch_kind)k) - before[k]), what[k], STEADY,
                         (long long)want[k]);
}

// The device has something to do while the host goes on, so that two batches are on the way: memory
// for the second is taken when that happens first.
static void occupy(tn_ctx *cx)
{
    tn_scope  *s = tn_begin(cx);
    tn_tensor *a = tn_mul_s(tn_rand(cx, TN_F32, TN_SHAPE(4096, 4096)), 1e-4);
    for (int i = 0; i < 6; i++) a = tn_matmul(a, a);
    tn_want(a);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    tn_end(s);
}

static void run_steady(int part, int parts)
{
    loop    l;
    int64_t calls[WATCH_KINDS];
    setenv("TN_TF32", "1", 1);
    setenv("TN_COMPILE", "wait", 1);
    for (int w = part; w < WAYS; w += parts) {
        begin(&l, (way)w);
        bool watched = driver_watch(l.cx);
        for (int i = 0; i < WARM; i++) {
            if (watched && i == WARM / 3) occupy(l.cx);
            steady_step(&l, i);
        }
        tn_sync(l.cx);
        const char *place  = place_of_weights(&l);
        tn_stats    before = tn_ctx_stats(l.cx);
        for (int k = 0; k < WATCH_KINDS; k++) calls[k] = driver_watched((watch_kind)k);
        for (int i = 0; i < STEADY; i++) steady_step(&l, WARM + i);
        tn_stats after = tn_ctx_stats(l.cx);
        if (watched) check_driver(way_name[w], (way)w, calls);
        check_stats(&l, &before, &after);
        CHECK(place_of_weights(&l) == place);
        CHECK(w != LATE || isfinite(l.late));
        CHECK_STATUS(tn_sync(l.cx), TN_OK);
        tn_close(l.cx);
        free(l.x);
    }
}

static void a_steady_step_is_one_graph_and_nothing_else(void)
{
    in_parts(run_steady, 1);
}

// On a fake GPU, so that what finds nothing on a real one is known to look.
static void the_watch_sees_what_is_asked_for(void)
{
    static tni_engine engine;
    static tn_ctx     cx;
    int64_t           v[2] = { 7, 0 };
    tni_text          why  = { "" };
    fake_gpu_open(1);
    tni_cuda *c = fake_gpu_session();
    tni_engine_set(&engine, &tni_device_cpu);
    engine.session = c;
    cx.engine      = &engine;
    CHECK(!driver_watch(&cx));
    tni_engine_set(&engine, &tni_device_cuda);
    CHECK(driver_watch(&cx));
    void *p = tni_cuda_alloc(c, 8);
    CHECK_INT(driver_watched(WATCH_MEMORY), 1);
    CHECK_STATUS(tni_cuda_upload(c, p, TN_I64, &v[0], 1, &why), TN_OK);
    CHECK_INT(driver_watched(WATCH_UPLOADS), 1);
    CHECK_INT(driver_watched(WATCH_WAITS), 0);
    CHECK_STATUS(tni_cuda_download(c, &v[1], TN_I64, p, 1, &why), TN_OK);
    CHECK_INT(driver_watched(WATCH_DOWNLOADS), 1);
    CHECK_INT(driver_watched(WATCH_WAITS), 1);
    CHECK_INT(v[1], 7);
    tni_cuda_free(c, p);
    CHECK_INT(fake_gpu_close(), 0);
}

// ---- tokens ------------------------------------------------------------------------------------

enum { TOKENS = 60, FROM = 20, TO = 50 };

// What the driver was asked for, and plans looked up, when token FROM came and when token TO did.
typedef struct {
    tn_ctx *cx;
    int     count;
    int64_t calls[2][WATCH_KINDS], hits[2];
} counted_tokens;

static bool count_token(int row, int64_t token, void *user)
{
    counted_tokens *t = user;
    (void)row, (void)token;
    if (++t->count != FROM && t->count != TO) return true;
    for (int k = 0; k < WATCH_KINDS; k++)
        t->calls[t->count == TO][k] = driver_watched((watch_kind)k);
    t->hits[t->count == TO] = tn_ctx_stats(t->cx).hits;
    return true;
}

// A token that repeats the step before is one launch of a graph, which also writes it into the
// host's memory. Nothing is recorded for it, and the host does not wait by a call of the driver.
static void run_tokens(int part, int parts)
{
    static const int64_t prompt[] = { 1, 2, 3 };
    const tn_tokens      p        = { prompt, 3 };
    int64_t              ids[TOKENS], n;
    (void)part, (void)parts;
    setenv("TN_COMPILE", "wait", 1);
    tn_ctx   *cx      = open_seeded(tested_device(), 1);
    tn_layer *net     = tn_gpt2(cx,
                                (tn_gpt2_opts){ .layers = 2, .heads = 2, .width = 64, .vocab = 99 });
    bool      watched = driver_watch(cx);
    for (int i = 0; i < 3; i++) {
        counted_tokens   t = { .cx = cx };
        tn_generate_opts o = { .max_tokens = TOKENS, .on_token = count_token, .user = &t };
        CHECK_STATUS(tn_generate(net, 1, &p, o, ids, &n), TN_OK);
        if (i < 2) continue;
        CHECK_INT(t.hits[1] - t.hits[0], 0);
        for (int k = 0; k < WATCH_KINDS && watched; k++)
            CHECK_INT(t.calls[1][k] - t.calls[0][k], k == WATCH_GRAPHS ? TO - FROM : 0);
    }
    tn_close(cx);
}

static void a_repeated_token_is_one_graph_and_nothing_else(void)
{
    in_parts(run_tokens, 1);
}

// ---- contexts ----------------------------------------------------------------------------------

// Bytes that are free on the device; 0 where nobody knows.
static int64_t device_free(tn_ctx *cx)
{
    size_t            bytes = 0, all = 0;
    const tni_device *d = cx->engine->device;
    return d->memory->space && d->memory->space(cx->engine->session, &bytes, &all) ? (int64_t)bytes
                                                                                   : 0;
}

// Each trains a network, with uploads, a late read and a graph.
static void run_contexts(int part, int parts)
{
    enum { FIRST = 20, CONTEXTS = 200, MIB = 1 << 20 };
    int64_t there = 0, left = 0;
    long    host = 0;
    (void)part, (void)parts;
    for (int i = 0; i < CONTEXTS; i++) {
        loop l;
        begin(&l, i % 2 ? UPLOADED : LATE);
        for (int k = 0; k < 5; k++) steady_step(&l, k);
        CHECK_STATUS(tn_sync(l.cx), TN_OK);
        if (i % 2 == 0) left = device_free(l.cx);
        if (i == FIRST) there = left, host = host_resident();
        tn_close(l.cx);
        free(l.x);
    }
    test_that(there - left <= 4 * MIB, "%lld bytes of the device are gone",
              (long long)(there - left));
    if (TN_SANITIZE[0] || TEST_DEBUG) return;
    test_that(host_resident() - host < 16 * MIB, "%ld bytes of the host are gone",
              host_resident() - host);
}

static void contexts_leave_nothing_behind(void)
{
    in_parts(run_contexts, 1);
}

const test_case tests_gpu_steady[] = {
    TEST(the_watch_sees_what_is_asked_for),
    TEST(a_steady_step_is_one_graph_and_nothing_else),
    TEST(a_repeated_token_is_one_graph_and_nothing_else),
    TEST(contexts_leave_nothing_behind),
    TEST_END,
};
