// test_custom_host.c: users' ops that a function of the host computes, on devices whose memory is
// not the host's.
#include "check.h"
#include "gpu_parts.h"
#include "rules_kit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tenon.h>

// Sum and scaled difference of two arrays; fails where the scale is 0. Outputs of two dtypes.
typedef struct {
    double scale;
} scaled;

static int64_t count_of(const tn_array *a)
{
    int64_t n = 1;
    for (int i = 0; i < a->rank; i++) n *= a->size[i];
    return n;
}

static tn_status two_shapes(const void *attr, const tn_array *in, tn_array *out)
{
    (void)attr;
    out[0]       = in[0];
    out[1]       = in[0];
    out[1].dtype = TN_F64;
    return TN_OK;
}

static tn_status both(const void *attr, const tn_array *in, tn_array *out)
{
    const scaled *s = attr;
    const float  *a = in[0].data, *b = in[1].data;
    if (s->scale == 0) return TN_EUSER;
    for (int64_t i = 0; i < count_of(&in[0]); i++) {
        ((float *)out[0].data)[i]  = a[i] + b[i];
        ((double *)out[1].data)[i] = s->scale * (a[i] - b[i]);
    }
    return TN_OK;
}

static tn_status both_grad(const void *attr, tn_tensor *const *x, tn_tensor *const *y,
                           tn_tensor *const *gy, tn_tensor **gx)
{
    const scaled *s = attr;
    (void)x, (void)y;
    tn_tensor *d = tn_mul_s(tn_cast(gy[1], TN_F32), s->scale);
    gx[0]        = tn_add(gy[0], d);
    gx[1]        = tn_sub(gy[0], d);
    return TN_OK;
}

static const tn_op_def op = {
    .name = "both", .nin = 2, .nout = 2, .shape = two_shapes, .compute = both, .grad = both_grad
};

// What a step leaves: a weight that is moved along a gradient through the op.
static void step(tn_ctx *cx, tn_tensor *w, tn_tensor *x, int i)
{
    tn_scope  *s    = tn_begin(cx);
    tn_tensor *y[2] = { NULL, NULL };
    scaled     a    = { .scale = i == 4 ? 0 : 0.5 };
    tn_custom_n(&op, (tn_tensor *[]){ tn_mul(w, x), tn_transpose(x, 0, 1) }, &a, sizeof a, y);
    tn_tensor *loss = tn_add(tn_sum_all(tn_square(y[0])), tn_cast(tn_sum_all(y[1]), TN_F32));
    tn_tensor *g    = NULL;
    tn_grad(1, &loss, 1, &w, NULL, &g);
    bool mode = tn_grad_mode(cx, false);
    tn_sub_(w, tn_mul_s(g, 1e-3));
    tn_grad_mode(cx, mode);
    CHECK_STATUS(tn_eval(cx), i == 4 ? TN_EUSER : TN_OK);
    if (i == 4) CHECK(strstr(tn_error_text(cx), "both: compute failed with status"));
    tn_error_clear(cx);
    tn_end(s);
}

static void compare(int part, int parts)
{
    enum { N = 9 };
    float v[2][N * N];
    (void)part, (void)parts;
    for (int k = 0; k < 2; k++) {
        tn_ctx    *cx = rules_open(k ? "cpu" : tested_device());
        tn_tensor *x  = tn_reshape(tn_linspace(cx, TN_F32, -1, 1, N * N), TN_SHAPE(N, N));
        tn_tensor *w  = tn_requires_grad(tn_ones(cx, TN_F32, TN_SHAPE(N, N)), true);
        for (int i = 0; i < 8; i++) step(cx, w, x, i);
        CHECK_STATUS(tn_read(w, TN_F32, v[k], N * N), TN_OK);
        tn_close(cx);
    }
    for (int i = 0; i < N * N; i++) CHECK(fabsf(v[0][i] - v[1][i]) < 1e-5f);
    CHECK(v[0][3] != 1);
}

static void a_function_of_the_host_computes_for_a_gpu(void)
{
    in_parts(compare, 1);
}

static void a_function_of_the_host_computes_for_opencl(void)
{
    tn_ctx *cx = rules_open("opencl");
    if (!cx) SKIP("%s", tn_error_text(NULL));
    tn_close(cx);
    setenv("TN_TEST_DEVICE", "opencl", 1);
    compare(0, 1);
    unsetenv("TN_TEST_DEVICE");
}

const test_case tests_custom_host[] = {
    TEST(a_function_of_the_host_computes_for_a_gpu),
    TEST(a_function_of_the_host_computes_for_opencl),
    TEST_END,
};
