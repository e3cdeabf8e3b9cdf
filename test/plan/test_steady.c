// test_steady.c: what a training loop must not do once it repeats itself: take memory, plan,
// compile, touch a file; and how few kernels a sweep over batch sizes takes.
#include "check.h"

#include "device/cpu/cpu_kernels.h"
#include "tensor/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <tenon.h>
#include <tenon/models.h>

enum { WARM = 6, STEPS = 5, LAST_BATCH = 256 };

// A model in training. taken: calls of the allocator that take memory.
typedef struct {
    tn_ctx   *cx;
    tn_layer *net;
    tn_optim *opt;
    tn_data  *data;
    long      taken;
} loop;

static void *counting(void *user, void *old, size_t n)
{
    long *taken = user;
    if (n) {
        ++*taken;
        return realloc(old, n);
    }
    free(old);
    return NULL;
}

static bool begin(loop *l, const char *device, bool convolutional)
{
    *l    = (loop){ 0 };
    l->cx = tn_open_with((tn_open_opts){ .device = device, .user = &l->taken, .alloc = counting });
    if (!CHECK(l->cx != NULL)) return false;
    l->net  = convolutional ? tn_lenet(l->cx) : tn_mlp(l->cx, TN_SHAPE(784, 32, 10));
    l->opt  = tn_adamw(l->net, (tn_adamw_opts){ .lr = 1e-3f, .clip_norm = 1 });
    l->data = tn_digits(l->cx, (tn_digits_opts){ .count = 1024 });
    tn_data_drop_last(l->data, true);
    return CHECK(l->opt && l->data);
}

static void step(loop *l, int64_t batch)
{
    tn_scope *s = tn_begin(l->cx);
    tn_batch  b = tn_next(l->data, batch);
    if (!b.x) b = tn_next(l->data, batch);  // an epoch ended
    tn_tensor *loss = tn_cross_entropy(tn_forward(l->net, b.x), b.y);
    CHECK_STATUS(tn_step(l->opt, loss), TN_OK);
    tn_end(s);
}

// Kernels that were asked for, whatever became of them.
static int64_t kernels(void)
{
    tni_cpu_counts c = tni_cpu_kernels_counts();
    return c.compiled + c.found + c.queued + c.failed;
}

// Read and write calls of this process, that of this function included; -1 where nobody counts.
static long file_calls(void)
{
    long  reads = -1, writes = -1;
    FILE *f = fopen("/proc/self/io", "r");
    char  line[80];
    while (f && fgets(line, sizeof line, f)) {
        sscanf(line, "syscr: %ld", &reads);
        sscanf(line, "syscw: %ld", &writes);
    }
    if (f) fclose(f);
    return reads < 0 ? -1 : reads + writes;
}

// Steps in a process that can open no file.
static void steps_without_files(loop *l)
{
    struct rlimit old, none;
    CHECK(getrlimit(RLIMIT_NOFILE, &old) == 0);
    none          = old;
    none.rlim_cur = 0;
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    for (int i = 0; i < STEPS; i++) step(l, 64);
    CHECK(setrlimit(RLIMIT_NOFILE, &old) == 0);
}

// Blocks are not kept for the next step where a memory checker is to see them come and go.
static bool keeps_blocks(void)
{
    return !TEST_DEBUG && !strstr(TN_SANITIZE, "address");
}

static void check_steady(const char *device, bool convolutional)
{
    loop l;
    if (!begin(&l, device, convolutional)) return;
    for (int i = 0; i < WARM; i++) step(&l, 64);
    tni_cpu_kernels_wait();
    step(&l, 64);
    tn_stats before = tn_ctx_stats(l.cx);
    int64_t  known  = kernels();
    long     taken = l.taken, calls = file_calls(), own = file_calls() - calls;
    steps_without_files(&l);
    long     more  = file_calls() - calls - 2 * own;
    tn_stats after = tn_ctx_stats(l.cx);
    CHECK_INT(after.plans, before.plans);
    CHECK_INT(after.kernels, before.kernels);
    CHECK_INT(after.disk_hits, before.disk_hits);
    CHECK_INT(kernels(), known);
    if (keeps_blocks()) CHECK_INT(l.taken, taken);
    CHECK_INT(more, 0);
    tn_close(l.cx);
}

static void a_steady_step_of_mlp_takes_nothing(void)
{
    check_steady("cpu", false);
}

static void a_steady_step_of_lenet_takes_nothing(void)
{
    check_steady("cpu", true);
}

// Where the elements of the first parameter lie.
static const char *place_of_weights(loop *l)
{
    const tni_node *n = tn_layer_find(l->net, "1.weight")->store->node;
    return n->buf->data + n->start * 4;
}

// From the second step on what is updated stays where it is.
static void parameters_are_updated_in_place(void)
{
    loop l;
    if (!begin(&l, "cpu", false)) return;
    l.opt = tn_adamw(l.net, (tn_adamw_opts){ .lr = 1e-3f });
    for (int i = 0; i < 2; i++) step(&l, 64);
    const char *place = place_of_weights(&l);
    int64_t     bytes = tn_ctx_stats(l.cx).bytes;
    for (int i = 0; i < STEPS; i++) {
        step(&l, 64);
        CHECK(place_of_weights(&l) == place);
    }
    CHECK_INT(tn_ctx_stats(l.cx).bytes, bytes);
    tn_close(l.cx);
}

static void a_new_learning_rate_is_no_new_plan(void)
{
    loop l;
    if (!begin(&l, "cpu", false)) return;
    for (int i = 0; i < WARM; i++) step(&l, 64);
    tn_stats before = tn_ctx_stats(l.cx);
    int64_t  known  = kernels();
    for (int i = 0; i < STEPS; i++) {
        tn_optim_set_lr(l.opt, i == 0 ? 0 : i == 1 ? 1 : 1e-3f / (float)i);
        step(&l, 64);
    }
    CHECK_INT(tn_ctx_stats(l.cx).plans, before.plans);
    CHECK_INT(kernels(), known);
    tn_close(l.cx);
}

// Kernels asked for by steps from one batch size up to another.
static int64_t sweep(loop *l, int from, int to)
{
    int64_t before = kernels();
    for (int b = from; b <= to; b++) step(l, b);
    return kernels() - before;
}

// Kernels keep classes of sizes, so a new batch size rarely needs a new one.
static void a_sweep_of_batch_sizes_takes_few_kernels(void)
{
    loop l;
    if (!begin(&l, "cpu", false)) return;
    int64_t one = 0;
    for (int i = 0; i < 3; i++) one += sweep(&l, 64, 64);
    CHECK(one > 0);
    int64_t all = one + sweep(&l, 2, LAST_BATCH);
    test_that(all <= 3 * one, "%lld kernels against %lld", (long long)all, (long long)one);
    CHECK_INT(sweep(&l, 2, LAST_BATCH), 0);
    tn_close(l.cx);
}

// No plan has run twice before the second sweep begins.
static void a_second_sweep_takes_no_kernels(void)
{
    loop l;
    if (!begin(&l, "cpu", false)) return;
    step(&l, 1);  // makes the weights too
    sweep(&l, 2, LAST_BATCH);
    int64_t plans = tn_ctx_stats(l.cx).plans;
    CHECK_INT(sweep(&l, 2, LAST_BATCH), 0);
    CHECK_INT(tn_ctx_stats(l.cx).plans, plans);
    tn_close(l.cx);
}

const test_case tests_steady[] = {
    TEST(a_sweep_of_batch_sizes_takes_few_kernels),  // before others have made kernels
    TEST(a_second_sweep_takes_no_kernels),          TEST(a_steady_step_of_mlp_takes_nothing),
    TEST(a_steady_step_of_lenet_takes_nothing),     TEST(parameters_are_updated_in_place),
    TEST(a_new_learning_rate_is_no_new_plan),       TEST_END,
};
