// test_faults_training.c: every allocation of building a network, of a whole training step and of
// saving and loading fails, once and from then on for ever. Each time an error is reported or the
// call went through without it, parameters and files are as they were, nothing leaks, and the
// context works on.
#include "check.h"
#include "faulty.h"
#include "scratch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const devices[] = { "cpu", "ref" };

// ---- a training

// A context with faults, and what is trained in it.
typedef struct {
    faulty    heap;
    tn_ctx   *cx;
    tn_layer *net;
    tn_optim *opt;
    tn_data  *data;
} training;

static bool build(training *t)
{
    tn_ctx   *cx = t->cx;
    tn_scope *s  = tn_begin(cx);
    t->net  = tn_nn_seq(cx, tn_nn_linear(cx, 4, 8), tn_nn_batch_norm(cx, 8), tn_nn_act(cx, tn_relu),
                        tn_nn_dropout(cx, 0.2), tn_nn_linear(cx, 8, 3));
    t->opt  = tn_adamw(t->net, (tn_adamw_opts){ .clip_norm = 1 });
    t->data = tn_arrays(cx, 2,
                        (tn_tensor *const[]){ tn_randn(cx, TN_F32, TN_SHAPE(12, 4)),
                                              tn_randint(cx, TN_I64, 0, 3, TN_SHAPE(12)) });
    if (s) tn_end(s);
    return t->net && t->opt && t->data;
}

static tn_status step(training *t)
{
    tn_scope *s      = tn_begin(t->cx);
    tn_batch  b      = tn_next(t->data, 4);
    tn_status status = tn_step(t->opt, tn_cross_entropy(tn_forward(t->net, b.x), b.y));
    if (s) tn_end(s);
    return status;
}

static void training_open(training *t, const char *device)
{
    *t    = (training){ 0 };
    t->cx = faulty_open(device, &t->heap);
    CHECK(t->cx != NULL);
}

static void start_faults(training *t, long n, bool forever)
{
    t->heap.countdown = n;
    t->heap.forever   = forever;
    t->heap.failed    = 0;
}

// Whether there was one. What it led to, if anything, was an error of memory.
static bool end_faults(training *t, const char *what, long n)
{
    t->heap.countdown = 0;
    t->heap.forever   = false;
    tn_status code    = tn_error(t->cx);
    test_case_result(code == TN_EMEM || code == TN_OK, "%s, allocation %ld: %s", what, n,
                     tn_error_text(t->cx));
    tn_error_clear(t->cx);
    return t->heap.failed > 0;
}

static void training_close(training *t, const char *what, long n)
{
    tn_close(t->cx);
    long left = faulty_left(&t->heap);
    test_case_result(left == 0, "%s, allocation %ld: %ld blocks are left", what, n, left);
}

// ---- values

enum { MOST = 256 };

typedef struct {
    double v[MOST];
    int    count;
    bool   buffers, ok;
} values;

static void add_values(const char *name, tn_tensor *t, void *user)
{
    values *all = user;
    (void)name;
    if (!all->buffers && !tn_needs_grad(t)) return;
    int n = (int)tn_count(t);
    all->ok &= all->count + n <= MOST && tn_read(t, TN_F64, all->v + all->count, n) == TN_OK;
    if (all->ok) all->count += n;
}

// The parameters, and where asked for the buffers.
static values read_values(tn_layer *net, bool buffers)
{
    values all = { .buffers = buffers, .ok = true };
    CHECK_STATUS(tn_layer_each(net, add_values, &all), TN_OK);
    CHECK(all.ok && all.count > 80);
    return all;
}

static bool same_values(const values *a, const values *b)
{
    return a->count == b->count && !memcmp(a->v, b->v, (size_t)a->count * sizeof *a->v);
}

// ---- building and steps

// False when there was no such allocation.
static bool fail_building(const char *device, long n, bool forever)
{
    training t;
    training_open(&t, device);
    start_faults(&t, n, forever);
    bool built  = build(&t);
    bool failed = end_faults(&t, "building", n);
    test_case_result(built || failed, "building, allocation %ld", n);
    if (CHECK(built || build(&t))) CHECK_STATUS(step(&t), TN_OK);
    training_close(&t, "building", n);
    return failed;
}

static void any_allocation_of_building_a_network_may_fail(void)
{
    for (int forever = 0; forever < 2; forever++) {
        long n = 1;
        while (fail_building(devices[0], n, forever)) n++;
        CHECK(n > 20);
    }
}

static bool fail_step(const char *device, int steps, long n, bool forever)
{
    training t;
    training_open(&t, device);
    if (!CHECK(build(&t))) return false;
    for (int i = 0; i < steps; i++) CHECK_STATUS(step(&t), TN_OK);
    values before = read_values(t.net, false);
    start_faults(&t, n, forever);
    tn_status status = step(&t);
    bool      failed = end_faults(&t, "a step", n);
    values    after  = read_values(t.net, false);
    bool      done   = status == TN_OK;
    test_case_result(done == !same_values(&before, &after) &&
                         tn_optim_updates(t.opt) == steps + done,
                     "%s, step %d, allocation %ld: %s, but a part of it happened", device, steps, n,
                     tn_status_name(status));
    CHECK_STATUS(step(&t), TN_OK);
    CHECK_INT(tn_optim_updates(t.opt), steps + done + 1);
    values end = read_values(t.net, true);
    for (int i = 0; i < end.count; i++) CHECK(isfinite(end.v[i]));
    CHECK_STR(tn_error_text(t.cx), "");
    training_close(&t, "a step", n);
    return failed;
}

static void any_allocation_of_a_training_step_may_fail(void)
{
    for (int d = 0; d < 2; d++)
        for (int steps = 0; steps < 4; steps += 2)
            for (int forever = 0; forever < 2; forever++) {
                long n = 1;
                while (fail_step(devices[d], steps, n, forever)) n++;
                if (steps == 0) CHECK(n > 20);
            }
}

// ---- files

static tn_status save_weights(training *t, const char *path)
{
    return tn_save(t->net, path);
}
static tn_status load_weights(training *t, const char *path)
{
    return tn_load(t->net, path);
}
static tn_checkpoint all_of(training *t)
{
    return (tn_checkpoint){ .net = { t->net }, .opt = { t->opt }, .data = { t->data } };
}
static tn_status save_all(training *t, const char *path)
{
    tn_checkpoint c = all_of(t);
    return tn_checkpoint_save(t->cx, path, &c);
}
static tn_status load_all(training *t, const char *path)
{
    tn_checkpoint c = all_of(t);
    return tn_checkpoint_load(t->cx, path, &c);
}

// A newer state is saved over a file, then the file is loaded, each with faults. The file is always
// the old one or the new one, and so are the values.
static bool fail_files(tn_status (*save)(training *t, const char *path),
                       tn_status (*load)(training *t, const char *path), long n, bool forever)
{
    training t;
    training_open(&t, "cpu");
    if (!CHECK(build(&t))) return false;
    const char *path = scratch_path("a.tn"), *copy = scratch_path("b.tn");
    CHECK_STATUS(step(&t), TN_OK);
    CHECK_STATUS(save(&t, path), TN_OK);
    CHECK_STATUS(save(&t, copy), TN_OK);
    values old = read_values(t.net, true);
    CHECK_STATUS(step(&t), TN_OK);
    values new = read_values(t.net, true);

    start_faults(&t, n, forever);
    tn_status status = save(&t, path);
    bool      failed = end_faults(&t, "saving", n);
    test_case_result((status == TN_OK) == !scratch_equal(path, copy) && scratch_count() == 2,
                     "saving, allocation %ld: %s", n, tn_status_name(status));

    start_faults(&t, n, forever);
    status = load(&t, copy);
    failed |= end_faults(&t, "loading", n);
    values now = read_values(t.net, true);
    test_case_result(same_values(&now, status == TN_OK ? &old : &new),
                     "loading, allocation %ld: %s", n, tn_status_name(status));
    CHECK_STATUS(step(&t), TN_OK);
    training_close(&t, "a file", n);
    return failed;
}

static void weights_survive_memory_that_stays_away(void)
{
    CHECK(scratch_open());
    long n = 1;
    while (fail_files(save_weights, load_weights, n, true)) n++;
    CHECK(n > 3);
    scratch_close();
}

static void checkpoints_survive_memory_that_stays_away(void)
{
    CHECK(scratch_open());
    long n = 1;
    while (fail_files(save_all, load_all, n, true)) n++;
    CHECK(n > 3);
    scratch_close();
}

const test_case tests_faults_training[] = {
    TEST(any_allocation_of_building_a_network_may_fail),
    TEST(any_allocation_of_a_training_step_may_fail),
    TEST(weights_survive_memory_that_stays_away),
    TEST(checkpoints_survive_memory_that_stays_away),
    TEST_END,
};
