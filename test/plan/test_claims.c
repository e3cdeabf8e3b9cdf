// test_claims.c: library ops with the kernel that follows them: one step, and the same bits as one
// after the other, interpreted and compiled, on any number of threads.
#include "check.h"

#include "device/cpu/cpu_kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon.h>

enum { ROUNDS = 3 };

// x and w make the product, b and r are what follows reads besides.
typedef struct {
    tn_tensor *x, *w, *b, *r;
} values;

typedef tn_tensor *function(const values *v, tn_tensor *product);

typedef struct {
    const char *name;
    int         x[5], w[5], b[5], r[5];  // rank and sizes
    bool        conv, last;              // channels last
    function   *then;
} claim;

// ---- what follows

static tn_tensor *bias_gelu(const values *v, tn_tensor *y)
{
    return tn_gelu(tn_add(y, v->b));
}

static tn_tensor *residual(const values *v, tn_tensor *y)
{
    return tn_add(v->r, tn_relu(tn_add(y, v->b)));
}

static tn_tensor *softmax(const values *v, tn_tensor *y)
{
    return tn_softmax(tn_add(y, v->b), -1);
}

static tn_tensor *norm(const values *v, tn_tensor *y)
{
    return tn_layer_norm(tn_add(y, v->r), 1, NULL, v->b, 0);
}

static tn_tensor *dropped(const values *v, tn_tensor *y)
{
    return tn_add(tn_dropout(y, 0.5, true), v->r);
}

static tn_tensor *narrowed(const values *v, tn_tensor *y)
{
    (void)v;
    return tn_cast(tn_mul_s(y, 0.25), TN_F16);
}

// Reads the product from elsewhere too: nothing to be run by parts.
static tn_tensor *turned(const values *v, tn_tensor *y)
{
    (void)v;
    return tn_add(y, tn_transpose(y, 0, 1));
}

static const claim cases[] = {
    { "linear", { 2, 37, 50 }, { 2, 50, 29 }, { 1, 29 }, { 1, 29 }, .then = bias_gelu },
    { "linear of many rows",
      { 2, 900, 64 },
      { 2, 64, 96 },
      { 1, 96 },
      { 1, 96 },
      .then = bias_gelu },
    { "residual", { 2, 640, 96 }, { 2, 96, 96 }, { 1, 96 }, { 2, 640, 96 }, .then = residual },
    { "residual of x", { 2, 640, 96 }, { 2, 96, 96 }, { 1, 96 }, { 0 }, .then = residual },
    { "one column", { 2, 300, 40 }, { 2, 40, 1 }, { 1, 1 }, { 2, 300, 1 }, .then = residual },
    { "one row", { 2, 1, 700 }, { 2, 700, 900 }, { 1, 900 }, { 2, 1, 900 }, .then = residual },
    { "batches",
      { 3, 9, 70, 33 },
      { 3, 9, 33, 65 },
      { 1, 65 },
      { 3, 9, 70, 65 },
      .then = residual },
    { "softmax", { 3, 4, 130, 64 }, { 3, 4, 64, 130 }, { 1, 130 }, { 1, 1 }, .then = softmax },
    { "norm", { 3, 5, 70, 64 }, { 2, 64, 96 }, { 1, 96 }, { 3, 5, 70, 96 }, .then = norm },
    { "dropout", { 2, 333, 64 }, { 2, 64, 77 }, { 1, 77 }, { 2, 333, 77 }, .then = dropped },
    { "narrowed", { 2, 333, 64 }, { 2, 64, 77 }, { 1, 77 }, { 1, 77 }, .then = narrowed },
    { "over rows",
      { 3, 8, 60, 16 },
      { 2, 16, 24 },
      { 2, 60, 1 },
      { 3, 8, 60, 24 },
      .then = residual },
    { "conv",
      { 4, 6, 3, 20, 22 },
      { 4, 8, 3, 3, 3 },
      { 3, 8, 1, 1 },
      { 1, 1 },
      true,
      .then = bias_gelu },
    { "conv 1x1",
      { 4, 6, 8, 20, 22 },
      { 4, 8, 8, 1, 1 },
      { 3, 8, 1, 1 },
      { 1, 1 },
      true,
      .then = bias_gelu },
    { "conv of small images",
      { 4, 30, 4, 7, 7 },
      { 4, 8, 4, 3, 3 },
      { 3, 8, 1, 1 },
      { 1, 1 },
      true,
      .then = bias_gelu },
    { "conv, channels last",
      { 4, 6, 8, 20, 22 },
      { 4, 8, 8, 3, 3 },
      { 3, 8, 1, 1 },
      { 1, 1 },
      true,
      true,
      .then = bias_gelu },
};

// ---- running them

static tn_tensor *numbers(tn_ctx *cx, const int *shape)
{
    int64_t size[TN_MAX_RANK] = { 0 };
    for (int i = 0; i < shape[0]; i++) size[i] = shape[1 + i];
    return tn_randn(cx, TN_F32, shape[0], size);
}

static values make(tn_ctx *cx, const claim *c)
{
    tn_seed(cx, 7);
    values v = { numbers(cx, c->x), numbers(cx, c->w), numbers(cx, c->b), NULL };
    v.r      = c->r[0] ? numbers(cx, c->r) : v.x;
    if (c->last) v.x = tn_channels_last(v.x);
    return v;
}

static tn_tensor *product(const claim *c, const values *v)
{
    if (c->conv) return tn_conv2d(v->x, v->w, NULL, (tn_conv_opts){ .padding = { 1, 1 } });
    return tn_matmul(v->x, v->w);
}

static double *read(tn_tensor *y, size_t *bytes)
{
    int64_t count = y ? tn_count(y) : 1;
    *bytes        = (size_t)count * sizeof(double);
    double *got   = calloc(*bytes, 1);
    CHECK(got && y && tn_read(y, TN_F64, got, count) == TN_OK);
    return got;
}

// The whole at once, or the product first.
static double *compute(tn_ctx *cx, const claim *c, bool at_once, size_t *bytes)
{
    tn_scope *s = tn_begin(cx);
    values    v = make(cx, c);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    tn_tensor *y = product(c, &v);
    if (!at_once) CHECK_STATUS(tn_eval(cx), TN_OK);
    double *got = read(c->then(&v, y), bytes);
    tn_end(s);
    return got;
}

static void check_case(tn_ctx *cx, const claim *c, int threads)
{
    size_t  bytes, also;
    double *want = compute(cx, c, false, &bytes);
    for (int i = 0; i < ROUNDS; i++) {
        double *got = compute(cx, c, true, &also);
        test_case_result(bytes == also && memcmp(want, got, bytes) == 0, "%s, %d threads, round %d",
                         c->name, threads, i);
        free(got);
        tni_cpu_kernels_wait();
    }
    free(want);
}

static void parts_give_the_same_bits(void)
{
    for (int threads = 1; threads <= 3; threads++) {
        tn_ctx *cx = tn_open_with((tn_open_opts){ .device = "cpu", .threads = threads });
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            check_case(cx, &cases[i], threads);
        tn_close(cx);
    }
}

// ---- what is one step, and what is not

static char page[4000];

static int steps_of(tn_ctx *cx)
{
    int   n = -1;
    FILE *f = fmemopen(page, sizeof page, "w");
    if (!CHECK(f != NULL)) return -1;
    CHECK_STATUS(tn_explain(cx, f), TN_OK);
    fclose(f);
    return sscanf(page, "%d kernel", &n) == 1 ? n : -1;
}

static int steps_of_case(tn_ctx *cx, const claim *c)
{
    tn_scope *s = tn_begin(cx);
    values    v = make(cx, c);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    tn_tensor *p = product(c, &v), *y = c->then(&v, p);
    tn_drop(p);
    int n = steps_of(cx);
    CHECK(y != NULL);
    tn_end(s);
    return n;
}

static void a_product_and_what_follows_are_one_step(void)
{
    tn_ctx *cx = tn_open("cpu");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        test_case_result(steps_of_case(cx, &cases[i]) == 1, "%s: %s", cases[i].name, page);
    tn_close(cx);
}

static void what_reads_a_product_crosswise_waits_for_all_of_it(void)
{
    claim   c  = { "turned", { 2, 64, 32 }, { 2, 32, 64 }, { 1, 64 }, { 1, 64 }, .then = turned };
    tn_ctx *cx = tn_open("cpu");
    CHECK_INT(steps_of_case(cx, &c), 2);
    check_case(cx, &c, 0);
    tn_close(cx);
}

// dW + the gradient so far: one step for each of two backward passes.
static void a_gradient_is_added_to_as_it_is_computed(void)
{
    tn_ctx    *cx = tn_open("cpu");
    tn_tensor *x  = tn_randn(cx, TN_F32, TN_SHAPE(64, 48)),
              *g  = tn_randn(cx, TN_F32, TN_SHAPE(64, 32));
    tn_tensor *w  = tn_requires_grad(tn_randn(cx, TN_F32, TN_SHAPE(48, 32)), true);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    tn_backward(tn_matmul(x, w), g);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    tn_backward(tn_matmul(x, w), g);
    CHECK_INT(steps_of(cx), 2);
    test_that(strstr(page, "matmul + POINT") != NULL, "%s", page);
    tn_close(cx);
}

// The device declines where every value is looked at.
static void checked_steps_are_apart(void)
{
    setenv("TN_CHECK", "nan", 1);
    tn_ctx *cx = tn_open("cpu");
    unsetenv("TN_CHECK");
    CHECK(steps_of_case(cx, &cases[0]) > 1);
    test_that(!strstr(page, "matmul +"), "%s", page);
    tn_close(cx);
}

const test_case tests_claims[] = {
    TEST(parts_give_the_same_bits),
    TEST(a_product_and_what_follows_are_one_step),
    TEST(what_reads_a_product_crosswise_waits_for_all_of_it),
    TEST(a_gradient_is_added_to_as_it_is_computed),
    TEST(checked_steps_are_apart),
    TEST_END,
};
