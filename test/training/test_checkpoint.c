// test_checkpoint.c: training that stops and goes on is the training that did not stop; and what is
// at a checkpoint's path is always a whole one.
#include "device/cpu/cpu_kernels.h"
#include "faulty.h"
#include "rules_kit.h"
#include "scratch.h"
#include "train/checksum.h"

#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ITEMS = 50, BATCH = 8, ROUNDS = sizeof TN_SANITIZE > 1 ? 20 : 200 };

// ---- a training with everything on

// A network with dropout and batch norm, an optimizer that accumulates, clips and follows a
// schedule, a shuffled dataset.
typedef struct {
    tn_ctx   *cx;
    tn_layer *net;
    tn_optim *opt;
    tn_data  *data;
    int64_t   step;
    double    user;  // the caller's bytes: the sum of all losses
} training;

static tn_data *dataset(tn_ctx *cx)
{
    float   x[ITEMS * 6];
    int64_t y[ITEMS];
    for (int i = 0; i < ITEMS * 6; i++) x[i] = (float)((i * 37 % 101) - 50) / 25;
    for (int i = 0; i < ITEMS; i++) y[i] = i * 7 % 3;
    tn_tensor *fields[] = { tn_from(cx, TN_F32, TN_SHAPE(ITEMS, 6), x),
                            tn_from(cx, TN_I64, TN_SHAPE(ITEMS), y) };
    return tn_arrays(cx, 2, fields);
}

// seed decides where it starts; a checkpoint that is loaded decides it anew.
static training start_in(tn_ctx *cx, uint64_t seed)
{
    training t = { .cx = cx };
    tn_seed(cx, seed);
    t.net  = tn_nn_seq(cx, tn_nn_linear(cx, 6, 8), tn_nn_batch_norm(cx, 8), tn_nn_act(cx, tn_relu),
                       tn_nn_dropout(cx, 0.3), tn_nn_linear(cx, 8, 3));
    t.opt  = tn_adam(t.net,
                     (tn_adam_opts){ .lr         = 1e-2f,
                                     .accumulate = 3,
                                     .clip_norm  = 0.5f,
                                     .schedule   = { TN_LR_COSINE, .warmup = 5, .total = 60 } });
    t.data = dataset(cx);
    return t;
}

static training start(uint64_t seed)
{
    tn_ctx *cx = tn_open_with((tn_open_opts){ .device = "cpu", .threads = 1 });
    tn_on_error(cx, NULL, NULL);
    return start_in(cx, seed);
}

static double train(training *t)
{
    tn_scope  *s    = tn_begin(t->cx);
    tn_batch   b    = tn_next(t->data, BATCH);
    tn_tensor *loss = tn_cross_entropy(tn_forward(t->net, b.x), b.y);
    tn_step(t->opt, loss);
    double v = tn_item(loss);
    tn_end(s);
    t->step++;
    t->user += v;
    return v;
}

static tn_checkpoint everything(training *t)
{
    return (tn_checkpoint){ .net        = { t->net },
                            .opt        = { t->opt },
                            .data       = { t->data },
                            .step       = t->step,
                            .user       = &t->user,
                            .user_bytes = sizeof t->user };
}

static tn_status save(training *t, const char *path)
{
    tn_checkpoint c = everything(t);
    return tn_checkpoint_save(t->cx, path, &c);
}

static tn_status load(training *t, const char *path)
{
    tn_checkpoint c = everything(t);
    tn_status     s = tn_checkpoint_load(t->cx, path, &c);
    t->step         = c.step;
    return s;
}

// Equal numbers for equal training states, as far as a network, the counts and the cursor tell.
static void add_tensor(const char *name, tn_tensor *t, void *user)
{
    double v[64] = { 0 };
    (void)name;
    tn_read(t, TN_F64, v, tn_count(t));
    for (int i = 0; i < 64; i++) *(double *)user = *(double *)user * 1.25 + v[i];
}

static double digest(const training *t)
{
    double    sum = 0;
    tn_cursor at  = tn_data_cursor(t->data);
    tn_layer_each(t->net, add_tensor, &sum);
    return sum + 1e3 * (double)tn_optim_updates(t->opt) + 1e4 * tn_optim_lr(t->opt) +
           1e5 * (double)(at.epoch * ITEMS + at.index) + t->user + (double)t->step;
}

// ---- resuming

// Trains, saves now and then and in the end, and is killed.
static void die_after(int steps, const char *path)
{
    training t = start(1);
    for (int i = 1; i <= steps; i++) {
        train(&t);
        if ((i % 10 == 0 || i == steps) && save(&t, path) != TN_OK) _exit(1);
    }
    kill(getpid(), SIGKILL);
}

static void check_resume(int stop, int steps)
{
    const char *path = scratch_path("state"), *one = scratch_path("one"),
               *two = scratch_path("two");
    pid_t child     = fork();
    int   how       = 0;
    if (child == 0) die_after(stop, path);
    training whole = start(1), rest = start(77);
    double   losses[256];
    for (int i = 0; i < steps; i++) losses[i] = train(&whole);
    for (int i = 0; i < 5; i++) train(&rest);  // whatever it did before is forgotten
    waitpid(child, &how, 0);
    CHECK(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
    if (!CHECK_STATUS(load(&rest, path), TN_OK)) printf("     %s\n", tn_error_text(rest.cx));
    CHECK_INT(rest.step, stop);
    for (int i = stop; i < steps; i++) {
        double loss = train(&rest);
        test_case_result(loss == losses[i], "step %d: %.17g, not %.17g", i, loss, losses[i]);
    }
    CHECK_STATUS(save(&whole, one), TN_OK);
    CHECK_STATUS(save(&rest, two), TN_OK);
    CHECK(scratch_equal(one, two));
    CHECK_STR(tn_error_text(rest.cx), "");
    tn_close(whole.cx);
    tn_close(rest.cx);
}

// It comes first in the file: the first child is of a process that has no threads yet, which the
// thread sanitizer takes.
static void training_that_was_killed_goes_on_bit_for_bit(void)
{
    bool again = !strstr(TN_SANITIZE, "thread");
    if (!CHECK(scratch_open())) return;
    check_resume(99, 200);              // between two updates
    if (again) check_resume(100, 200);  // in the middle of an accumulation
    if (again) check_resume(1, 8);      // before the first update
    scratch_close();
    if (!again) SKIP("past the first stop: the sanitizer allows no threads after a fork");
}

static void saving_changes_nothing(void)
{
    if (!CHECK(scratch_open())) return;
    training a = start(3), b = start(3);
    for (int i = 0; i < 20; i++) {
        double x = train(&a), y = train(&b);
        CHECK(x == y);
        save(&b, scratch_path("each"));
        tn_save(b.net, scratch_path("weights"));
    }
    save(&a, scratch_path("a"));
    save(&b, scratch_path("b"));
    CHECK(scratch_equal(scratch_path("a"), scratch_path("b")));
    tn_close(a.cx);
    tn_close(b.cx);
    scratch_close();
}

static void rule_22_what_the_file_says_of_the_optimizer_counts(void)
{
    if (!CHECK(scratch_open())) return;
    training a = start(4), b = start(5);
    for (int i = 0; i < 7; i++) train(&a);
    tn_optim_set_lr(a.opt, 0.25);
    tn_optim_add_group(a.opt, "*.bias", 0.5f, 0.125f);
    CHECK_STATUS(save(&a, scratch_path("a")), TN_OK);
    tn_optim_free(b.opt);
    b.opt = tn_adam(b.net, (tn_adam_opts){ .lr = 3 });
    CHECK_STATUS(load(&b, scratch_path("a")), TN_OK);
    CHECK(tn_optim_lr(b.opt) == tn_optim_lr(a.opt));
    for (int i = 0; i < 7; i++) CHECK(train(&a) == train(&b));
    tn_optim_set_lr(b.opt, 1);
    CHECK(tn_optim_lr(b.opt) != tn_optim_lr(a.opt));
    tn_close(a.cx);
    tn_close(b.cx);
    scratch_close();
}

static void every_kind_of_optimizer_comes_back(void)
{
    if (!CHECK(scratch_open())) return;
    for (int kind = 0; kind < 9; kind++) {
        training t[2] = { start(6), start(7) };
        for (int k = 0; k < 2; k++) {
            tn_optim_free(t[k].opt);
            tn_layer *net = t[k].net;
            if (kind == 0)
                t[k].opt = tn_sgd(net, (tn_sgd_opts){ .momentum = 0.9f, .nesterov = true });
            if (kind == 1) t[k].opt = tn_sgd(net, (tn_sgd_opts){ 0 });
            if (kind == 2) t[k].opt = tn_adamw(net, (tn_adamw_opts){ 0 });
            if (kind == 3)
                t[k].opt = tn_rmsprop(net, (tn_rmsprop_opts){ .momentum = 0.9f, .centered = true });
            if (kind == 4)
                t[k].opt = tn_adagrad(net, (tn_adagrad_opts){ .lr_decay = 0.1f + (float)k,
                                                              .ema      = 0.9f });
            if (kind == 5) t[k].opt = tn_adadelta(net, (tn_adadelta_opts){ 0 });
            if (kind == 6)
                t[k].opt = tn_nadam(net, (tn_nadam_opts){ .momentum_decay = 0.1f + (float)k });
            if (kind == 7) t[k].opt = tn_lamb(net, (tn_lamb_opts){ 0 });
            if (kind == 8) t[k].opt = tn_muon(net, (tn_muon_opts){ 0 });
        }
        for (int i = 0; i < 4; i++) train(&t[0]);
        CHECK_STATUS(save(&t[0], scratch_path("state")), TN_OK);
        CHECK_STATUS(load(&t[1], scratch_path("state")), TN_OK);
        for (int i = 0; i < 4; i++) CHECK(train(&t[0]) == train(&t[1]));
        for (int k = 0; k < 2 && kind == 4; k++)  // the averages too
            CHECK_STATUS(tn_optim_average_to(t[k].opt, t[k].net), TN_OK);
        CHECK(train(&t[0]) == train(&t[1]));
        tn_close(t[0].cx);
        tn_close(t[1].cx);
    }
    scratch_close();
}

static void a_checkpoint_goes_to_another_device_and_back(void)
{
    if (!CHECK(scratch_open())) return;
    training a = start(8), b = start_in(rules_open("ref"), 9);
    for (int i = 0; i < 4; i++) train(&a);
    CHECK_STATUS(save(&a, scratch_path("cpu")), TN_OK);
    CHECK_STATUS(load(&b, scratch_path("cpu")), TN_OK);
    CHECK_STATUS(save(&b, scratch_path("ref")), TN_OK);
    CHECK(scratch_equal(scratch_path("cpu"), scratch_path("ref")));
    tn_close(a.cx);
    tn_close(b.cx);
    scratch_close();
}

// ---- killing

static void pause_for(int microseconds)
{
    nanosleep(&(struct timespec){ .tv_nsec = microseconds * 1000L }, NULL);
}

// Loads, says that it begins, then trains and saves as fast as it can, telling each step that is
// safe.
static void save_for_ever(const char *path, int tell)
{
    training t = start(1);
    if (load(&t, path) != TN_OK) _exit(1);
    for (;; train(&t)) {
        if (save(&t, path) != TN_OK) _exit(1);
        if (write(tell, &t.step, sizeof t.step) != sizeof t.step) _exit(1);
    }
}

// Kills a child at a random instant. The newest step it told to be safe, or -1.
static int64_t kill_one(const char *path, uint32_t random)
{
    int     ends[2], how;
    int64_t step, newest = -1;
    if (pipe(ends) != 0) return -1;
    pid_t child = fork();
    if (child == 0) save_for_ever(path, ends[1]);
    close(ends[1]);
    poll(&(struct pollfd){ .fd = ends[0], .events = POLLIN }, 1, 10000);
    pause_for((int)(random % 30000));
    kill(child, SIGKILL);
    waitpid(child, &how, 0);
    while (read(ends[0], &step, sizeof step) == sizeof step) newest = step;
    close(ends[0]);
    return WIFSIGNALED(how) ? newest : -1;
}

static void a_kill_leaves_the_newest_or_the_previous_checkpoint(void)
{
    if (strstr(TN_SANITIZE, "thread")) SKIP("the sanitizer allows no threads after a fork");
    if (!CHECK(scratch_open())) return;
    const char *path = scratch_path("state");
    training    t    = start(1);
    uint32_t    r    = 12345;
    int64_t     last = 0;
    for (int k = 0; k < 4; k++) train(&t);
    tni_cpu_kernels_wait();  // a compiler that a child starts would live on after the kill
    last = t.step;
    CHECK_STATUS(save(&t, path), TN_OK);
    for (int i = 0; i < ROUNDS; i++) {
        r              = r * 1664525 + 1013904223;
        int64_t   safe = kill_one(path, r >> 8);
        tn_status s    = load(&t, path);
        test_case_result(s == TN_OK && safe >= last && (t.step == safe || t.step == safe + 1),
                         "kill %d: told %lld, loaded %lld: %s", i, (long long)safe,
                         (long long)t.step, tn_error_text(t.cx));
        last = t.step;
    }
    CHECK(last > 10);
    CHECK(scratch_count() <= 2);  // unfinished files do not pile up
    tn_close(t.cx);
    scratch_close();
}

// ---- damage

// A training whose checkpoint is small: one layer, one kind of state.
static training start_small(tn_ctx *cx)
{
    training t = { .cx = cx };
    tn_seed(cx, 1);
    t.net  = tn_nn_linear(cx, 6, 3);
    t.opt  = tn_sgd(t.net, (tn_sgd_opts){ .momentum = 0.5f });
    t.data = dataset(cx);
    return t;
}

// Whether data is refused and leaves the training as it was.
static bool refused(training *t, const char *path, const char *data, size_t n, double before)
{
    scratch_write(path, data, n);
    tn_status s  = load(t, path);
    bool      ok = s != TN_OK && tn_error(t->cx) == s && digest(t) == before;
    tn_error_clear(t->cx);
    return ok;
}

static void a_damaged_checkpoint_is_refused_and_changes_nothing(void)
{
    if (!CHECK(scratch_open())) return;
    const char *path = scratch_path("state"), *bad = scratch_path("bad");
    training    t = start_small(rules_open("cpu"));
    for (int i = 0; i < 3; i++) train(&t);
    CHECK_STATUS(save(&t, path), TN_OK);
    train(&t);
    size_t n;
    char  *data = scratch_read(path, &n);
    if (!CHECK(data != NULL)) return;
    double   before = digest(&t);
    uint64_t header;
    memcpy(&header, data, sizeof header);
    for (size_t i = 0; i < n; i++) {
        for (int bit = i < 8 + header ? 0 : 8; bit <= 8; bit++) {  // of the data, all bits at once
            char flip = (char)(bit < 8 ? 1 << bit : 0xff);
            data[i] ^= flip;
            test_case_result(refused(&t, bad, data, n, before), "byte %zu ^ %d", i, flip);
            data[i] ^= flip;
        }
    }
    for (size_t i = 0; i < n; i++)
        test_case_result(refused(&t, bad, data, i, before), "cut at %zu", i);
    char *longer = calloc(1, n + 64);
    memcpy(longer, data, n);
    for (size_t i = 1; i <= 64; i++)
        test_case_result(refused(&t, bad, longer, n + i, before), "%zu bytes behind", i);
    scratch_write(bad, data, n);
    CHECK_STATUS(load(&t, bad), TN_OK);
    CHECK_INT(t.step, 3);
    free(data);
    free(longer);
    tn_close(t.cx);
    scratch_close();
}

static void a_checkpoint_of_something_else_is_refused(void)
{
    if (!CHECK(scratch_open())) return;
    const char   *path = scratch_path("state");
    training      t    = start_small(rules_open("cpu"));
    tn_ctx       *cx   = t.cx;
    tn_checkpoint c    = everything(&t);
    train(&t);
    CHECK_STATUS(save(&t, path), TN_OK);
    double before = digest(&t);

    c.net[0] = tn_nn_linear(cx, 7, 3);
    CHECK_STATUS(tn_checkpoint_load(cx, path, &c), TN_ESHAPE);
    CHECK_FAILED(cx, TN_ESHAPE, "net.0.weight is (3, 6) in the file, but (3, 7) here");
    c.net[0] = tn_nn_seq(cx, tn_nn_linear(cx, 6, 3));
    CHECK_STATUS(tn_checkpoint_load(cx, path, &c), TN_EFORMAT);
    CHECK_FAILED2(cx, TN_EFORMAT, "missing (net.0.0.weight", "not expected (net.0.weight");
    c.net[0] = tn_nn_linear(cx, 6, 3);
    tn_layer_cast(c.net[0], TN_F64);
    CHECK_STATUS(tn_checkpoint_load(cx, path, &c), TN_EDTYPE);
    CHECK_FAILED(cx, TN_EDTYPE, "net.0.weight is f32 in the file, but f64 here");
    c        = everything(&t);
    c.opt[0] = tn_adam(t.net, (tn_adam_opts){ 0 });
    CHECK_STATUS(tn_checkpoint_load(cx, path, &c), TN_EFORMAT);
    CHECK_FAILED(cx, TN_EFORMAT, "optimizer 0 is sgd in the file, but adam here");
    c         = everything(&t);
    c.data[0] = tn_arrays(cx, 1, (tn_tensor *[]){ tn_zeros(cx, TN_F32, TN_SHAPE(9, 1)) });
    CHECK_STATUS(tn_checkpoint_load(cx, path, &c), TN_EFORMAT);
    CHECK_FAILED(cx, TN_EFORMAT, "dataset 0 has 50 items in the file, but 9 here");
    c            = everything(&t);
    c.user_bytes = 4;
    CHECK_STATUS(tn_checkpoint_load(cx, path, &c), TN_ESHAPE);
    CHECK_FAILED(cx, TN_ESHAPE, "user is (8,) in the file, but (4,) here");
    c         = everything(&t);
    c.data[0] = NULL;
    CHECK_STATUS(tn_checkpoint_load(cx, path, &c), TN_EFORMAT);
    CHECK_FAILED(cx, TN_EFORMAT, "1 not expected (data.0)");
    CHECK(digest(&t) == before);

    c      = everything(&t);
    c.user = NULL;  // not asked for
    CHECK_STATUS(tn_checkpoint_load(cx, path, &c), TN_OK);
    CHECK_STATUS(tn_save(t.net, path), TN_OK);
    CHECK_STATUS(load(&t, path), TN_EFORMAT);
    CHECK_FAILED(cx, TN_EFORMAT, "it is not a checkpoint");
    CHECK_STATUS(load(&t, scratch_path("none")), TN_EIO);
    CHECK_FAILED(cx, TN_EIO, "none");
    tn_close(cx);
    scratch_close();
}

// ---- checkpoints made by hand

// Writes a checkpoint again: with a tensor of the file in another form, an entry more in the
// metadata and another checksum, where they are not NULL.
static void write_again(tn_ctx *cx, const char *path, const char *name, tn_tensor *with,
                        const char *extra, const char *checksum)
{
    const char *names[16], *meta[32];
    tn_tensor  *t[16];
    int         n = 0, entries = 0;
    tn_file    *f = tn_file_open(cx, path);
    for (; n < tn_file_count(f) && n < 16; n++) {
        names[n] = tn_file_name(f, n);
        t[n]     = with && !strcmp(names[n], name) ? with : tn_file_tensor(f, names[n]);
    }
    for (const char *key; entries < 15 && (key = tn_file_meta_key(f, entries)); entries++) {
        bool sum              = checksum && !strcmp(key, TNI_SUM_KEY);
        meta[2 * entries]     = key;
        meta[2 * entries + 1] = sum ? checksum : tn_file_meta(f, key);
    }
    meta[2 * entries]     = extra;
    meta[2 * entries + 1] = "1";
    CHECK_STATUS(tn_file_write(cx, path, n, names, t, entries + (extra != NULL), meta), TN_OK);
    tn_file_free(f);
}

static void correct_checksum(tn_ctx *cx, const char *path)
{
    char     text[TNI_SUM_TEXT];
    uint64_t sum = 0;
    tn_file *f   = tn_file_open(cx, path);
    CHECK(f && tni_sum_file("test", f, &sum));
    tn_file_free(f);
    tni_sum_text(sum, text);
    write_again(cx, path, NULL, NULL, NULL, text);
}

static void an_entry_more_in_the_metadata_is_damage(void)
{
    if (!CHECK(scratch_open())) return;
    const char *path = scratch_path("state");
    training    t    = start_small(rules_open("cpu"));
    CHECK_STATUS(save(&t, path), TN_OK);
    write_again(t.cx, path, NULL, NULL, NULL, NULL);
    CHECK_STATUS(load(&t, path), TN_OK);
    write_again(t.cx, path, NULL, NULL, "more", NULL);
    CHECK_STATUS(load(&t, path), TN_EFORMAT);
    CHECK_FAILED(t.cx, TN_EFORMAT, "its checksum does not agree");
    correct_checksum(t.cx, path);
    CHECK_STATUS(load(&t, path), TN_OK);
    tn_close(t.cx);
    scratch_close();
}

// Whether a checkpoint whose checksum is right is refused for one number of its optimizer.
static bool number_refused(training *t, const char *path, const char *name, int i, double v)
{
    tn_ctx    *cx = t->cx;
    tn_scope  *s  = tn_begin(cx);
    tn_file   *f  = tn_file_open(cx, path);
    tn_tensor *x  = tn_clone(tn_file_tensor(f, name));
    double     at = digest(t);
    tn_assign(tn_slice(x, 0, i, i + 1, 1), tn_full(cx, tn_dtype_of(x), TN_SHAPE(1), v));
    tn_eval_of(x);
    tn_file_free(f);
    write_again(cx, path, name, x, NULL, NULL);
    correct_checksum(cx, path);
    CHECK_STATUS(tn_error(cx), TN_OK);
    tn_status status = load(t, path);
    bool      told   = strstr(tn_error_text(cx), "numbers of optimizer 0 are out of range") != NULL;
    tn_error_clear(cx);
    tn_end(s);
    return status == TN_EFORMAT && told && digest(t) == at;
}

static void a_cursor_past_the_last_epoch_is_refused(void)
{
    if (!CHECK(scratch_open())) return;
    const char *path = scratch_path("state");
    tn_ctx     *cx   = rules_open("cpu");
    tn_tensor  *x    = rules_ramp(cx, 2);

    tn_checkpoint c    = { .data = { tn_arrays(cx, 1, &x) } };
    tn_cursor     last = { .epoch = INT64_MAX / 2 };
    CHECK_STATUS(tn_data_seek(c.data[0], last), TN_OK);
    CHECK_INT(tn_next(c.data[0], 2).epoch, last.epoch);
    CHECK_STATUS(tn_checkpoint_save(cx, path, &c), TN_OK);
    CHECK_STATUS(tn_data_rewind(c.data[0]), TN_OK);
    CHECK_STATUS(tn_checkpoint_load(cx, path, &c), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "epoch 4611686018427387904, item 0 of 2");
    CHECK_INT(tn_data_cursor(c.data[0]).epoch, 0);
    tn_close(cx);
    scratch_close();
}

static void numbers_that_no_optimizer_has_are_refused(void)
{
    static const struct {
        const char *name;
        int         i;
        double      v;
    } cases[] = {
        { "opt.0.settings", 0, NAN },       { "opt.0.settings", 0, -1 },
        { "opt.0.settings", 1, 1 },         { "opt.0.settings", 4, INFINITY },
        { "opt.0.settings", 5, -0.5 },      { "opt.0.settings", 7, NAN },
        { "opt.0.settings", 8, -INFINITY }, { "opt.0.settings", 10, 1.5 },
        { "opt.0.settings", 11, -2 },       { "opt.0.counts", 0, -1 },
        { "opt.0.counts", 1, 1 },           { "opt.0.counts", 2, 0 },
        { "opt.0.counts", 3, 2 },           { "opt.0.counts", 5, 4294967296.0 },
        { "opt.0.counts", 5, 9 },           { "opt.0.groups", 0, NAN },
        { "opt.0.groups", 1, -1 },          { "opt.0.updates", 0, -1 },
    };
    if (!CHECK(scratch_open())) return;
    const char *path = scratch_path("state");
    training    t    = start_small(rules_open("cpu"));
    train(&t);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_STATUS(save(&t, path), TN_OK);
        test_case_result(number_refused(&t, path, cases[i].name, cases[i].i, cases[i].v),
                         "%s[%d] = %g", cases[i].name, cases[i].i, cases[i].v);
    }
    tn_close(t.cx);
    scratch_close();
}

// ---- where nothing can be written

static void a_full_disk_leaves_the_old_checkpoint(void)
{
    if (!CHECK(scratch_open())) return;
    const char   *path = scratch_path("state");
    training      t    = start(1);
    size_t        n    = 0;
    struct rlimit old, tight;
    train(&t);
    CHECK_STATUS(save(&t, path), TN_OK);
    char *data = scratch_read(path, &n);
    train(&t);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    rlim_t limits[] = { 0, 1, n / 4, n / 2, n - 1 };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        tight          = old;
        tight.rlim_cur = limits[i];
        setrlimit(RLIMIT_FSIZE, &tight);
        tn_status s = save(&t, path);
        setrlimit(RLIMIT_FSIZE, &old);
        CHECK_STATUS(s, TN_EIO);
        CHECK_FAILED(t.cx, TN_EIO, path);
        CHECK_INT(scratch_count(), 1);
    }
    signal(SIGXFSZ, SIG_DFL);
    size_t m     = 0;
    char  *after = scratch_read(path, &m);
    CHECK(data && after && n == m && !memcmp(data, after, n));
    CHECK_STATUS(load(&t, path), TN_OK);
    CHECK_INT(t.step, 1);
    free(data);
    free(after);
    tn_close(t.cx);
    scratch_close();
}

static void a_path_that_cannot_be_written_is_an_error(void)
{
    if (!CHECK(scratch_open())) return;
    training t = start_small(rules_open("cpu"));
    CHECK_STATUS(save(&t, scratch_path("none/state")), TN_EIO);
    CHECK_FAILED(t.cx, TN_EIO, "none/state");
    CHECK_INT(mkdir(scratch_path("folder"), 0777), 0);
    CHECK_STATUS(save(&t, scratch_path("folder")), TN_EIO);
    CHECK_FAILED(t.cx, TN_EIO, "folder");
    CHECK_STATUS(load(&t, scratch_path("folder")), TN_EIO);
    CHECK_FAILED(t.cx, TN_EIO, "folder");
    if (geteuid() != 0) {  // to whom no folder is closed
        chmod(scratch_path("folder"), 0555);
        CHECK_STATUS(save(&t, scratch_path("folder/state")), TN_EIO);
        CHECK_FAILED(t.cx, TN_EIO, "folder/state");
    }
    CHECK_STATUS(tn_checkpoint_save(t.cx, NULL, &(tn_checkpoint){ 0 }), TN_EARG);
    CHECK_FAILED(t.cx, TN_EARG, "checkpoint_save: the path or the checkpoint is NULL");
    CHECK_STATUS(tn_checkpoint_load(t.cx, "state", NULL), TN_EARG);
    CHECK_FAILED(t.cx, TN_EARG, "checkpoint_load: the path or the checkpoint is NULL");
    CHECK_INT(scratch_count(), 1);
    tn_close(t.cx);
    scratch_close();
}

// ---- memory

static void any_allocation_may_fail_while_saving_a_checkpoint(void)
{
    if (!CHECK(scratch_open())) return;
    const char *path = scratch_path("state");
    faulty      h    = { 0 };
    training    t = start_in(faulty_open("cpu", &h), 1), other = start(2);
    long        failed = 0;
    train(&t);
    CHECK_STATUS(save(&t, path), TN_OK);
    double before = digest(&t);
    for (long n = 1;; n++, failed++) {
        h           = (faulty){ .live = h.live, .countdown = n };
        tn_status s = save(&t, path);
        bool      f = h.failed > 0;
        h.countdown = 0;
        if (s != TN_OK) CHECK_STATUS(tn_error(t.cx), TN_EMEM);
        tn_error_clear(t.cx);
        test_case_result(digest(&t) == before && load(&other, path) == TN_OK, "allocation %ld", n);
        if (!f) break;
    }
    CHECK(failed > 50);
    CHECK_INT(scratch_count(), 1);
    tn_close(t.cx);
    tn_close(other.cx);
    CHECK_INT(faulty_left(&h), 0);
    scratch_close();
}

static void any_allocation_may_fail_while_loading_a_checkpoint(void)
{
    if (!CHECK(scratch_open())) return;
    const char *path = scratch_path("state");
    faulty      h    = { 0 };
    training    t = start_in(faulty_open("cpu", &h), 1), other = start(2);
    long        failed = 0;
    for (int i = 0; i < 4; i++) train(&other);  // with state, and gradients under way
    CHECK_STATUS(save(&other, path), TN_OK);
    double before = digest(&t), after = digest(&other);
    for (long n = 1;; n++, failed++) {
        h           = (faulty){ .live = h.live, .countdown = n };
        tn_status s = load(&t, path);
        bool      f = h.failed > 0;
        h.countdown = 0;
        if (s != TN_OK) CHECK_STATUS(tn_error(t.cx), TN_EMEM);
        tn_error_clear(t.cx);
        test_case_result(digest(&t) == (s == TN_OK ? after : before), "allocation %ld", n);
        if (s == TN_OK) before = after;
        if (!f) break;
    }
    CHECK(failed > 50);
    CHECK(train(&t) == train(&other));
    CHECK_STATUS(save(&t, scratch_path("a")), TN_OK);
    CHECK_STATUS(save(&other, scratch_path("b")), TN_OK);
    CHECK(scratch_equal(scratch_path("a"), scratch_path("b")));
    tn_close(t.cx);
    tn_close(other.cx);
    CHECK_INT(faulty_left(&h), 0);
    scratch_close();
}

const test_case tests_checkpoint[] = { TEST(training_that_was_killed_goes_on_bit_for_bit),
                                       TEST(saving_changes_nothing),
                                       TEST(rule_22_what_the_file_says_of_the_optimizer_counts),
                                       TEST(every_kind_of_optimizer_comes_back),
                                       TEST(a_checkpoint_goes_to_another_device_and_back),
                                       TEST(a_kill_leaves_the_newest_or_the_previous_checkpoint),
                                       TEST(a_damaged_checkpoint_is_refused_and_changes_nothing),
                                       TEST(a_checkpoint_of_something_else_is_refused),
                                       TEST(an_entry_more_in_the_metadata_is_damage),
                                       TEST(a_cursor_past_the_last_epoch_is_refused),
                                       TEST(numbers_that_no_optimizer_has_are_refused),
                                       TEST(a_full_disk_leaves_the_old_checkpoint),
                                       TEST(a_path_that_cannot_be_written_is_an_error),
                                       TEST(any_allocation_may_fail_while_saving_a_checkpoint),
                                       TEST(any_allocation_may_fail_while_loading_a_checkpoint),
                                       TEST_END };
