// test_faults.c: every allocation fails once, and from each on for ever; steps go over a memory
// limit. Each time an error is reported, nothing crashes or leaks, and the context works on.
#include "check.h"
#include "tensor/context.h"
#include "faulty.h"
#include "host.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon.h>

// ---- contexts

static void silent(tn_ctx *cx, const tn_fault *f, void *user)
{
    (void)cx;
    (void)f;
    (void)user;
}

static tn_ctx *open_faulty(const char *device, faulty *h)
{
    tn_ctx *cx = tn_open_with((tn_open_opts){ .device      = device,
                                              .handler     = silent,
                                              .user        = h,
                                              .alloc       = faulty_alloc,
                                              .flush_nodes = 60,
                                              .threads     = 1 });
    if (cx) cx->heap.keeps = false;  // so that every block is asked for
    return cx;
}

// ---- what scenarios see

enum { MOST = 256 };

// The numbers a scenario read, in order. The first run, without faults, is the model: what a later
// one reads before its first error must be the same, bit for bit.
typedef struct {
    tn_ctx *cx;
    double  want[MOST];
    int     count, wanted;
    bool    model, wrong;
    int     borrowed, released;
    int     unheard;  // passes whose failure was no error
} session;

static void note(session *s, double v)
{
    if (s->count >= MOST) return;
    if (s->model) s->want[s->wanted++] = v;
    else if (tn_error(s->cx) == TN_OK && memcmp(&v, &s->want[s->count], sizeof v)) s->wrong = true;
    s->count++;
}

static void note_item(session *s, tn_tensor *t)
{
    note(s, tn_item(t));
}

static void note_all(session *s, tn_tensor *t)
{
    double v[64] = { 0 };
    tn_read(t, TN_F64, v, t ? tn_count(t) : 0);
    for (int i = 0; t && i < tn_count(t) && i < 64; i++) note(s, v[i]);
}

// ---- scenarios

static tn_tensor *grid(session *s, tn_dtype dt, int64_t rows, int64_t cols)
{
    return tn_reshape(tn_arange(s->cx, dt, 0, (double)(rows * cols), 1), TN_SHAPE(rows, cols));
}

static void train(session *s)
{
    tn_ctx    *cx = s->cx;
    tn_tensor *w  = tn_requires_grad(tn_mul_s(grid(s, TN_F64, 3, 2), 0.1), true);
    tn_tensor *b  = tn_requires_grad(tn_zeros(cx, TN_F64, TN_SHAPE(2)), true);
    for (int step = 0; step < 3; step++) {
        tn_scope  *in   = tn_begin(cx);
        tn_tensor *x    = tn_mul_s(grid(s, TN_F64, 4, 3), 0.01 * (step + 1));
        tn_tensor *y    = tn_tanh(tn_add(tn_matmul(x, w), b));
        tn_tensor *loss = tn_mean_all(tn_square(tn_sub_s(y, 0.5)));
        if (step == 1) note_item(s, loss);
        tn_backward(loss, NULL);
        bool mode = tn_grad_mode(cx, false);
        tn_sub_(w, tn_mul_s(tn_grad_of(w), 0.5));
        tn_sub_(b, tn_mul_s(tn_grad_of(b), 0.5));
        tn_grad_mode(cx, mode);
        tn_zero_grad(w);
        tn_zero_grad(b);
        tn_set_name(loss, "loss");
        loss = tn_keep(loss);
        if (step == 2) tn_eval(cx);
        if (in) tn_end(in);
        note_item(s, loss);
        tn_item_late(loss);
        tn_drop(loss);
    }
    note_all(s, w);
    note_all(s, b);
    tn_drop(w);
    tn_drop(b);
}

static void write_in_place(session *s)
{
    tn_scope  *in = tn_begin(s->cx);
    tn_tensor *x  = grid(s, TN_F32, 4, 4);
    tn_tensor *c  = tn_clone(x);
    tn_assign(tn_slice(x, 0, 0, -1, 1), tn_slice(x, 0, 1, TN_TO_END, 1));
    tn_add_(tn_diagonal(x, 0, 0, 1), tn_flip(tn_select(c, 1, 2), 0));
    tn_fill_(tn_slice(tn_transpose(x, 0, 1), 0, 0, 4, 3), 7);
    note_all(s, x);
    tn_mul_(x, c);
    tn_want(x);
    tn_eval(s->cx);
    note_all(s, tn_sum(x, 1));
    note_all(s, tn_sum_all(tn_window(x, 1, 2, 1)));
    if (in) tn_end(in);
}

static tn_status two_shape(const void *attr, const tn_array *in, tn_array *out)
{
    (void)attr;
    out[0] = out[1] = in[0];
    return TN_OK;
}

// y0 = k x, y1 = x * x
static tn_status two_compute(const void *attr, const tn_array *in, tn_array *out)
{
    double k;
    memcpy(&k, attr, sizeof k);
    const double *x = in[0].data;
    double       *a = out[0].data, *b = out[1].data;
    int64_t       n = 1;
    for (int i = 0; i < in[0].rank; i++) n *= in[0].size[i];
    for (int64_t i = 0; i < n; i++) {
        a[i] = k * x[i];
        b[i] = x[i] * x[i];
    }
    return TN_OK;
}

static tn_status two_grad(const void *attr, tn_tensor *const *x, tn_tensor *const *y,
                          tn_tensor *const *gy, tn_tensor **gx)
{
    double k;
    (void)y;
    memcpy(&k, attr, sizeof k);
    gx[0] = tn_add(tn_mul_s(gy[0], k), tn_mul_s(tn_mul(gy[1], x[0]), 2));
    return gx[0] ? TN_OK : TN_EUSER;
}

static const tn_op_def two = {
    .name = "two", .nin = 1, .nout = 2, .shape = two_shape, .compute = two_compute, .grad = two_grad
};

static void custom(session *s)
{
    double     k    = 3;
    tn_scope  *in   = tn_begin(s->cx);
    tn_tensor *y[2] = { NULL, NULL }, *gx = NULL;
    tn_tensor *x = tn_requires_grad(tn_linspace(s->cx, TN_F64, -1, 1, 5), true);
    if (tn_custom_n(&two, &x, &k, sizeof k, y) == TN_OK) {
        tn_tensor *z = tn_sum_all(tn_mul(y[0], y[1]));
        note_item(s, z);
        tn_grad(1, &z, 1, &x, NULL, &gx);
        note_all(s, gx);
        tn_backward(z, NULL);
        note_all(s, tn_grad_of(x));
    }
    if (in) tn_end(in);
}

static void move_about(session *s)
{
    tn_scope *in = tn_begin(s->cx);
    tn_seed(s->cx, 5);
    tn_tensor *x = tn_randn(s->cx, TN_F32, TN_SHAPE(1, 2, 6, 6));
    tn_tensor *w = tn_requires_grad(tn_randn(s->cx, TN_F32, TN_SHAPE(3, 2, 3, 3)), true);
    tn_tensor *y = tn_conv2d(x, w, NULL, (tn_conv_opts){ .padding = { 1 } });
    tn_tensor *parts[6];
    for (int i = 0; i < 6; i++) parts[i] = tn_select(y, 2, i);
    tn_tensor *all   = tn_concat(6, parts, 1);
    tn_tensor *order = tn_argsort(tn_sum(all, 2), 1, true);
    tn_tensor *best  = tn_gather(tn_sum(all, 2), 1, order);
    note_all(s, tn_softmax(best, 1));
    tn_tensor *loss = tn_cross_entropy(tn_reshape(tn_slice(y, 3, 0, 2, 1), TN_SHAPE(12, -1)),
                                       tn_randint(s->cx, TN_I64, 0, 3, TN_SHAPE(12)));
    tn_backward(loss, NULL);
    note_item(s, loss);
    note_all(s, tn_grad_of(w));
    if (in) tn_end(in);
}

static void released(void *data, void *user)
{
    (void)data;
    ((session *)user)->released++;
}

static void look(session *s)
{
    static float data[6] = { 1, 2, 3, 4, 5, 6 };
    char        *text    = NULL;
    size_t       size    = 0;
    FILE        *f       = open_memstream(&text, &size);
    tn_scope    *in      = tn_begin(s->cx);
    s->borrowed++;
    tn_tensor *x = tn_borrow(s->cx, TN_F32, TN_SHAPE(2, 3), data, released, s);
    tn_add_(x, tn_scalar(s->cx, 1));
    tn_print(tn_exp(x), f);
    fclose(f);
    note(s, (double)size);
    note_all(s, tn_copy_to(s->cx, x));
    if (in) tn_end(in);
    free(text);
}

// Past flush_nodes, so that work is flushed in the middle; and sources of more than three.
static void flush(session *s)
{
    tn_scope  *in = tn_begin(s->cx), *inner = NULL;
    tn_tensor *x = tn_ones(s->cx, TN_F64, TN_SHAPE(3)), *kept = NULL;
    for (int i = 0; i < 150; i++) {
        if (i % 40 == 0) inner = tn_begin(s->cx);
        x = tn_add_s(tn_mul_s(x, 0.5), i);
        if (i % 40 == 39) {
            kept = tn_keep(x);
            if (inner) tn_end(inner);
            if (!kept) break;
        }
    }
    note_all(s, x);
    if (in) tn_end(in);
}

// Attention in plain ops, of which a device makes one call; with a score program where it runs
// these.
static void attend(session *s)
{
    tn_scope *in      = tn_begin(s->cx);
    s->cx->recognizes = 1;
    for (int i = 0; i < 2; i++) {
        tn_tensor *q = tn_requires_grad(tn_full(s->cx, TN_F64, TN_SHAPE(1, 2, 3, 4), 0.5), true);
        tn_tensor *score = tn_mul_s(tn_matmul(q, tn_transpose(q, -1, -2)), 0.5);
        if (i) score = tn_tanh(score);
        tn_tensor *y = tn_sum_all(tn_square(tn_matmul(tn_softmax(score, -1), q)));
        if (y && tn_backward(y, NULL) == TN_OK) note_all(s, tn_grad_of(q));
        else note(s, 0);
    }
    s->cx->recognizes = 0;
    if (in) tn_end(in);
}

static void (*const scenarios[])(session *) = { train, write_in_place, custom, move_about,
                                                look,  flush,          attend };
enum { SCENARIOS = sizeof scenarios / sizeof *scenarios };

static void play(session *s)
{
    s->count = 0;
    for (int i = 0; i < SCENARIOS; i++) scenarios[i](s);
}

// ---- the loops

static void no_leak(const faulty *h, const char *when, long n)
{
    test_that(TEST_DEBUG || h->live == 0, "%s allocation %ld: %ld blocks are left", when, n,
              h->live);
}

// One pass with allocation n failing. False when there was no such allocation.
static bool pass(const char *device, session *s, long n, bool forever)
{
    const char *when = forever ? "from" : "at";
    faulty      h    = { .countdown = n, .forever = forever };
    tn_error_clear(NULL);
    s->cx    = open_faulty(device, &h);
    s->wrong = false;
    if (!s->cx) {
        test_case_result(h.failed && tn_error(NULL) == TN_EMEM, "%s allocation %ld: open: %s", when,
                         n, tn_error_text(NULL));
        no_leak(&h, when, n);
        return true;
    }
    play(s);
    bool failed = h.failed > 0;
    bool told   = tn_error(s->cx) == TN_EMEM;
    // An allocation that only makes things faster, or is tried again, may fail unheard.
    if (failed && !told) s->unheard++;
    if (!told && tn_error(s->cx) != TN_OK) {
        test_case_result(false, "%s %s allocation %ld: %s", device, when, n, tn_error_text(s->cx));
    } else {
        test_case_result(!s->wrong && (failed || !told),
                         "%s %s allocation %ld: wrong numbers before an error", device, when, n);
    }
    h.countdown = 0;
    h.forever   = false;
    tn_error_clear(s->cx);
    s->wrong = false;
    play(s);
    test_case_result(tn_error(s->cx) == TN_OK && !s->wrong && s->count == s->wanted,
                     "%s after %s allocation %ld: %s", device, when, n,
                     tn_error(s->cx) ? tn_error_text(s->cx) : "wrong numbers");
    tn_close(s->cx);
    no_leak(&h, when, n);
    test_that(s->borrowed == s->released, "%s allocation %ld: %d borrowed, %d released", when, n,
              s->borrowed, s->released);
    return failed;
}

static void model(const char *device, session *s, long *allocations)
{
    faulty h = { 0 };
    *s       = (session){ .model = true };
    s->cx    = open_faulty(device, &h);
    if (!CHECK(s->cx != NULL)) return;
    play(s);
    s->model = false;
    CHECK_STR(tn_error_text(s->cx), "");
    CHECK(s->wanted > 100 && s->wanted < MOST);
    play(s);
    CHECK(!s->wrong);
    tn_close(s->cx);
    no_leak(&h, "no", 0);
    *allocations = h.made / 2;
}

static void fail_everywhere(const char *device, bool forever)
{
    static session s;
    long           allocations = 0, step = TN_SANITIZE[0] ? 7 : 1, n = 1;
    model(device, &s, &allocations);
    while (pass(device, &s, n, forever)) n += step;
    if (step > 1) printf("     sanitizer: every %ldth of %ld allocations\n", step, n);
    CHECK(n > 50);
    if (forever) CHECK(s.unheard < 3);
}

static void any_allocation_may_fail_on_cpu(void)
{
    fail_everywhere("cpu", false);
}

static void any_allocation_may_fail_on_ref(void)
{
    fail_everywhere("ref", false);
}

static void all_allocations_may_fail_from_any_on(void)
{
    fail_everywhere("cpu", true);
}

static void no_block_outlives_its_context(void)
{
    if (TEST_DEBUG) SKIP("a TN_DEBUG build keeps closed contexts, to tell stale handles");
    faulty  h  = { 0 };
    tn_ctx *cx = open_faulty("cpu", &h);
    tn_begin(cx);
    tn_tensor *x = tn_requires_grad(tn_ones(cx, TN_F32, TN_SHAPE(100)), true);
    tn_backward(tn_sum_all(tn_exp(x)), NULL);
    tn_begin(cx);
    tn_item_late(tn_sum_all(x));
    CHECK(h.live > 0);
    tn_close(cx);  // with scopes open and work pending
    CHECK_INT(h.live, 0);
}

// ---- the memory limit

// A step that does not fit: w is to become something that needs room for big values.
static void over_the_limit(tn_ctx *cx, tn_tensor *w, bool check)
{
    tn_scope  *s   = tn_begin(cx);
    tn_tensor *big = tn_want(tn_exp(tn_rand(cx, TN_F32, TN_SHAPE(200, 1000))));
    tn_tensor *sq  = tn_want(tn_mul(big, big));
    tn_add_(w, tn_mean(tn_add(big, sq), 1));
    tn_status st = tn_eval(cx);
    float     v[200];
    if (check) {
        CHECK_STATUS(st, TN_EMEM);
        CHECK_STATUS(tn_error(cx), TN_EMEM);
        tn_error_clear(cx);
        CHECK_STATUS(tn_read(w, TN_F32, v, 200), TN_OK);  // all or nothing
        CHECK(v[0] == 1 && v[199] == 1);
        CHECK(isnan(tn_item(tn_select(tn_select(sq, 0, 0), 0, 0))));
        CHECK_STATUS(tn_error(cx), TN_EGONE);
        tn_error_clear(cx);
        CHECK(tn_item(tn_sum_all(w)) == 200);
    }
    tn_error_clear(cx);
    tn_end(s);
}

static void a_step_over_the_memory_limit_fails_whole(void)
{
    tn_ctx *cx = tn_open_with(
        (tn_open_opts){ .device = "cpu", .handler = silent, .mem_limit = 1000000, .threads = 1 });
    tn_tensor *w = tn_keep(tn_from(cx, TN_F32, TN_SHAPE(200), (float[200]){ 0 }));
    tn_fill_(w, 1);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    int cycles = TN_SANITIZE[0] ? 100 : 1000;
    for (int i = 0; i < 10; i++) over_the_limit(cx, w, true);
    tn_stats before = tn_ctx_stats(cx);
    long     memory = host_resident();
    for (int i = 0; i < cycles; i++) over_the_limit(cx, w, i % 50 == 0);
    tn_stats after = tn_ctx_stats(cx);
    CHECK_INT(after.bytes, before.bytes);
    CHECK_INT(after.nodes, before.nodes);
    CHECK(after.peak <= 1000000);
    if (!TN_SANITIZE[0] && !TEST_DEBUG) CHECK(host_resident() - memory < 1 << 20);
    CHECK_STR(tn_error_text(cx), "");
    tn_close(cx);
}

const test_case tests_faults[] = {
    TEST(any_allocation_may_fail_on_cpu),           TEST(any_allocation_may_fail_on_ref),
    TEST(all_allocations_may_fail_from_any_on),     TEST(no_block_outlives_its_context),
    TEST(a_step_over_the_memory_limit_fails_whole), TEST_END
};
