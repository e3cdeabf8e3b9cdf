// test_soak.c: long chains, wide graphs, many steps, many threads: nothing recurses over the graph,
// nothing grows in a steady loop, recording is cheap.
#include "check.h"
#include "host.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon.h>
#include <time.h>

// Whether freed objects and closed contexts stay, so that stale handles can be told.
#ifdef TN_DEBUG
enum { DEBUG = 1 };
#else
enum { DEBUG = 0 };
#endif

static bool has_sanitizer(void)
{
    return TN_SANITIZE[0] != 0;
}

// Sanitizers are slow and keep freed memory: there, a part of the work is enough.
static int scaled(int n)
{
    if (DEBUG) n /= 10;
    return has_sanitizer() ? n / 50 : n;
}

static void say_scale(void)
{
    if (has_sanitizer()) printf("     sanitizer: a fiftieth of the work\n");
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// ---- long chains

static tn_tensor *chain(tn_tensor *x, int n)
{
    for (int i = 0; i < n; i++) {
        tn_tensor *y = tn_neg(x);
        tn_drop(x);
        x = y;
    }
    return x;
}

static void long_chains(void)
{
    int        n  = scaled(1000000);
    tn_ctx    *cx = tn_open_with((tn_open_opts){ .device = "cpu", .flush_nodes = 1 << 30 });
    tn_scope  *s  = tn_begin(cx);
    tn_tensor *x  = tn_ones(cx, TN_F32, TN_SHAPE(2));

    x = chain(x, n);
    CHECK(tn_ctx_stats(cx).nodes > n);
    CHECK(tn_item(tn_select(x, 0, 1)) == (n % 2 ? -1 : 1));
    CHECK(tn_ctx_stats(cx).nodes < 20);  // computed values let their sources go

    x = chain(x, n);
    tn_drop(x);  // freed, never computed
    CHECK(tn_ctx_stats(cx).nodes < 20);

    tn_tensor *w = tn_requires_grad(tn_ones(cx, TN_F32, TN_SHAPE(2)), true);
    tn_tensor *y = chain(tn_neg(w), n / 4);
    CHECK_STATUS(tn_backward(tn_sum_all(y), NULL), TN_OK);
    CHECK(tn_item(tn_select(tn_grad_of(w), 0, 1)) == ((n / 4 + 1) % 2 ? -1 : 1));
    CHECK_STR(tn_error_text(cx), "");
    tn_end(s);
    tn_close(cx);
}

static void *on_small_stack(void *arg)
{
    ((void (*)(void))(uintptr_t)arg)();
    return NULL;
}

static void chains_of_a_million_nodes_need_no_stack(void)
{
    pthread_t      thread;
    pthread_attr_t attr;
    say_scale();
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, (size_t)(has_sanitizer() ? 2048 : 256) << 10);
    if (CHECK(!pthread_create(&thread, &attr, on_small_stack, (void *)(uintptr_t)long_chains)))
        pthread_join(thread, NULL);
    pthread_attr_destroy(&attr);
}

// ---- wide graphs

static void graphs_may_be_wide(void)
{
    enum { PIECES = 1000 };
    int        n   = scaled(100000);
    tn_ctx    *cx  = tn_open_with((tn_open_opts){ .device = "cpu", .flush_nodes = 1 << 30 });
    tn_scope  *s   = tn_begin(cx);
    double     one = 1;
    tn_tensor *sum = tn_zeros(cx, TN_F64, TN_0D), *piece[PIECES];
    for (int i = 0; i < n; i++) sum = tn_add(sum, tn_from(cx, TN_F64, TN_0D, &one));
    CHECK(tn_item(sum) == n);

    tn_tensor *w = tn_requires_grad(tn_full(cx, TN_F64, TN_SHAPE(PIECES), 2), true);
    for (int i = 0; i < PIECES; i++) piece[i] = tn_slice(w, 0, i, i + 1, 1);
    tn_tensor *y = tn_sum_all(tn_square(tn_concat(PIECES, piece, 0)));
    CHECK(tn_item(y) == 4 * PIECES);
    CHECK_STATUS(tn_backward(y, NULL), TN_OK);
    CHECK(tn_item(tn_sum_all(tn_grad_of(w))) == 4 * PIECES);
    CHECK_STR(tn_error_text(cx), "");
    tn_end(s);
    tn_close(cx);
}

// ---- steps

// A small regression trained by hand.
typedef struct {
    tn_ctx    *cx;
    tn_tensor *w, *b, *x, *target;
} model;

static model model_open(const char *device, uint64_t seed)
{
    model m = { .cx = tn_open_with(
                    (tn_open_opts){ .device = device, .seed = seed, .threads = 1 }) };
    m.w = tn_requires_grad(tn_want(tn_mul_s(tn_randn(m.cx, TN_F32, TN_SHAPE(4, 3)), 0.1)), true);
    m.b = tn_requires_grad(tn_want(tn_zeros(m.cx, TN_F32, TN_SHAPE(3))), true);
    m.x = tn_want(tn_randn(m.cx, TN_F32, TN_SHAPE(8, 4)));
    m.target = tn_want(tn_randn(m.cx, TN_F32, TN_SHAPE(8, 3)));
    tn_eval(m.cx);
    return m;
}

static tn_tensor *model_loss(const model *m)
{
    return tn_mean_all(tn_square(tn_sub(tn_tanh(tn_add(tn_matmul(m->x, m->w), m->b)), m->target)));
}

static void descend(const model *m, tn_tensor *w)
{
    bool mode = tn_grad_mode(m->cx, false);
    tn_assign(w, tn_sub(w, tn_mul_s(tn_grad_of(w), 0.05)));
    tn_grad_mode(m->cx, mode);
    tn_zero_grad(w);
}

// One step, its work launched by tn_eval or by the end of the scope.
static void model_step(const model *m, bool by_eval)
{
    tn_scope *s = tn_begin(m->cx);
    tn_backward(model_loss(m), NULL);
    descend(m, m->w);
    descend(m, m->b);
    if (by_eval) tn_eval(m->cx);
    tn_end(s);
}

static void training_does_not_grow(bool by_eval)
{
    int   steps = scaled(100000);
    model m     = model_open("cpu", 3);
    say_scale();
    tn_scope *s     = tn_begin(m.cx);
    double    start = tn_item(model_loss(&m));
    tn_end(s);
    for (int i = 0; i < 100; i++) model_step(&m, by_eval);
    tn_stats before = tn_ctx_stats(m.cx);
    long     memory = host_resident();
    for (int i = 0; i < steps; i++) model_step(&m, by_eval);
    tn_stats after = tn_ctx_stats(m.cx);
    CHECK_INT(after.nodes, before.nodes);
    CHECK_INT(after.bytes, before.bytes);
    CHECK_INT(after.peak, before.peak);
    CHECK_INT(after.plans, before.plans);
    if (!has_sanitizer() && !DEBUG) CHECK(host_resident() - memory < 1 << 20);
    s = tn_begin(m.cx);
    CHECK(tn_item(model_loss(&m)) < 0.9 * start);
    tn_end(s);
    CHECK_STR(tn_error_text(m.cx), "");
    tn_close(m.cx);
}

static void steps_ended_by_eval_do_not_grow(void)
{
    training_does_not_grow(true);
}

static void steps_ended_by_their_scope_do_not_grow(void)
{
    training_does_not_grow(false);
}

// A running sum carried from step to step keeps no history of the steps that are spent.
static void a_carried_loss_does_not_grow(void)
{
    model m = model_open("cpu", 5);
    say_scale();
    tn_tensor *total  = tn_zeros(m.cx, TN_F32, TN_0D);
    tn_stats   before = { 0 };
    for (int i = 0; i < scaled(20000); i++) {
        tn_scope  *s    = tn_begin(m.cx);
        tn_tensor *loss = model_loss(&m), *old = total;
        tn_backward(loss, NULL);
        total = tn_keep(tn_add(total, loss));
        tn_drop(old);
        descend(&m, m.w);
        tn_zero_grad(m.b);
        tn_eval(m.cx);
        tn_end(s);
        if (i == 50) before = tn_ctx_stats(m.cx);
    }
    CHECK_INT(tn_ctx_stats(m.cx).nodes, before.nodes);
    CHECK_INT(tn_ctx_stats(m.cx).bytes, before.bytes);
    CHECK(isfinite(tn_item(total)) && tn_item(total) > 0);
    CHECK_STR(tn_error_text(m.cx), "");
    tn_close(m.cx);
}

// Values that are only read, outside any scope, each dropped by hand.
static void reading_without_scopes_does_not_grow(void)
{
    model m = model_open("cpu", 4);
    say_scale();
    tn_stats before = { 0 };
    long     memory = 0;
    int      steps  = scaled(100000);
    double   last   = 0;
    for (int i = 0; i < steps; i++) {
        tn_tensor *y = tn_matmul(m.x, m.w), *z = tn_exp(y), *sum = tn_sum_all(z);
        last = tn_item(sum);
        tn_drop(y);
        tn_drop(z);
        tn_drop(sum);
        if (i != steps / 10) continue;
        before = tn_ctx_stats(m.cx);
        memory = host_resident();
    }
    CHECK(isfinite(last));
    CHECK_INT(tn_ctx_stats(m.cx).nodes, before.nodes);
    CHECK_INT(tn_ctx_stats(m.cx).bytes, before.bytes);
    if (!has_sanitizer() && !DEBUG) CHECK(host_resident() - memory < 1 << 20);
    tn_close(m.cx);
}

static void a_steady_loop_builds_no_plan_after_the_third_step(void)
{
    model    m = model_open("cpu", 6);
    tn_stats at[20];
    for (int i = 0; i < 20; i++) {
        model_step(&m, i % 2);
        model_step(&m, true);
        at[i] = tn_ctx_stats(m.cx);
    }
    CHECK_INT(at[19].plans, at[2].plans);
    CHECK(at[19].hits > at[2].hits + 16);
    tn_close(m.cx);
}

// ---- networks

static tn_data *random_classes(tn_ctx *cx)
{
    tn_tensor *const fields[] = { tn_randn(cx, TN_F32, TN_SHAPE(44, 6)),
                                  tn_randint(cx, TN_I64, 0, 3, TN_SHAPE(44)) };
    return tn_arrays(cx, 2, fields);
}

// Six batches, the last one short: an epoch of the data above.
static void train_epoch(tn_ctx *cx, tn_layer *net, tn_optim *opt, tn_data *data)
{
    for (int i = 0; i < 6; i++) {
        tn_scope *s = tn_begin(cx);
        tn_batch  b = tn_next(data, 8);
        tn_step(opt, tn_cross_entropy(tn_forward(net, b.x), b.y));
        tn_end(s);
    }
}

static void training_a_network_from_a_loader_does_not_grow(void)
{
    tn_ctx   *cx    = tn_open_with((tn_open_opts){ .device = "cpu", .seed = 7, .threads = 1 });
    tn_layer *net   = tn_nn_seq(cx, tn_nn_linear(cx, 6, 16), tn_nn_batch_norm(cx, 16),
                                tn_nn_act(cx, tn_relu), tn_nn_dropout(cx, 0.2),
                                tn_nn_linear(cx, 16, 3));
    tn_optim *opt   = tn_adam(net, (tn_adam_opts){ .accumulate = 2, .clip_norm = 1 });
    tn_data  *data  = random_classes(cx);
    int       steps = scaled(10000), warm = 20;
    say_scale();
    for (int i = 0; i < warm; i++) train_epoch(cx, net, opt, data);
    tn_stats before = tn_ctx_stats(cx);
    long     memory = host_resident();
    for (int i = 0; i < steps; i += 6) train_epoch(cx, net, opt, data);
    tn_stats after = tn_ctx_stats(cx);
    CHECK_INT(after.nodes, before.nodes);
    CHECK_INT(after.bytes, before.bytes);
    CHECK_INT(after.peak, before.peak);
    CHECK_INT(after.plans, before.plans);
    if (!has_sanitizer() && !DEBUG) CHECK(host_resident() - memory < 1 << 20);
    CHECK_INT(tn_optim_updates(opt), 3 * (warm + (steps + 5) / 6));
    CHECK_STR(tn_error_text(cx), "");
    tn_close(cx);
}

// ---- recording

// Nanoseconds a node, the best of several runs over n nodes.
static double record_cost(tn_ctx *cx, int n)
{
    double best = 1e9;
    for (int k = 0; k < 30; k++) {
        tn_scope  *s = tn_begin(cx);
        tn_tensor *a = tn_zeros(cx, TN_F32, TN_SHAPE(16, 16)), *x = a;
        int64_t    before = tn_ctx_stats(cx).nodes;
        double     start  = seconds();
        for (int i = 0; i < n; i += 4) x = tn_add(tn_exp(tn_mul(x, a)), tn_neg(a));
        double took = (seconds() - start) / (double)(tn_ctx_stats(cx).nodes - before);
        tn_end(s);
        if (took < best) best = took;
    }
    return best * 1e9;
}

static void a_node_is_recorded_in_200_nanoseconds(void)
{
    if (DEBUG) SKIP("a TN_DEBUG build checks more and reuses nothing");
    if (has_sanitizer()) SKIP("the build has the sanitizer " TN_SANITIZE);
    tn_ctx *cx   = tn_open("cpu");
    double  cost = record_cost(cx, 4000);
    printf("     recording: %.0f ns a node\n", cost);
    CHECK(cost < 200);
    tn_close(cx);
}

// ---- threads

enum { THREADS = 8 };

typedef struct {
    uint64_t seed;
    float    w[12], b[3];
    bool     ok;
} job;

static void *train(void *arg)
{
    job  *j = arg;
    model m = model_open("cpu", j->seed);
    for (int i = 0; i < scaled(500); i++) model_step(&m, i % 3 == 0);
    j->ok = tn_read(m.w, TN_F32, j->w, 12) == TN_OK && tn_read(m.b, TN_F32, j->b, 3) == TN_OK &&
            tn_error(m.cx) == TN_OK;
    tn_close(m.cx);
    return NULL;
}

static void threads_with_their_own_contexts_do_not_disturb_each_other(void)
{
    pthread_t thread[THREADS];
    job       alone[THREADS] = { 0 }, together[THREADS] = { 0 };
    bool      started[THREADS];
    say_scale();
    for (int i = 0; i < THREADS; i++) {
        alone[i].seed = together[i].seed = (uint64_t)i + 10;
        train(&alone[i]);
    }
    for (int i = 0; i < THREADS; i++)
        started[i] = CHECK(!pthread_create(&thread[i], NULL, train, &together[i]));
    for (int i = 0; i < THREADS; i++)
        if (started[i]) pthread_join(thread[i], NULL);
    for (int i = 0; i < THREADS; i++) {
        CHECK(alone[i].ok && together[i].ok);
        CHECK(!memcmp(alone[i].w, together[i].w, sizeof alone[i].w));
        CHECK(!memcmp(alone[i].b, together[i].b, sizeof alone[i].b));
    }
    CHECK(memcmp(alone[0].w, alone[1].w, sizeof alone[0].w));
}

const test_case tests_soak[] = {
    TEST(chains_of_a_million_nodes_need_no_stack),
    TEST(graphs_may_be_wide),
    TEST(steps_ended_by_eval_do_not_grow),
    TEST(steps_ended_by_their_scope_do_not_grow),
    TEST(a_carried_loss_does_not_grow),
    TEST(reading_without_scopes_does_not_grow),
    TEST(a_steady_loop_builds_no_plan_after_the_third_step),
    TEST(training_a_network_from_a_loader_does_not_grow),
    TEST(a_node_is_recorded_in_200_nanoseconds),
    TEST(threads_with_their_own_contexts_do_not_disturb_each_other),
    TEST_END,
};
