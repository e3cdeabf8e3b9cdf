// test_rules_rest.c: the other rules: 20 (PyTorch decides), 23 (users' ops), 24 (options, plain
// functions) and 25 (names).
#include "rules_kit.h"

#include <math.h>
#include <string.h>

enum { N = 3 };

// ---- 20: PyTorch decides -----------------------------------------------------------------------

static void rule_20_dtypes_are_those_of_pytorch(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *b = tn_from(cx, TN_BOOL, TN_SHAPE(3), (uint8_t[]){ 1, 0, 1 });
        tn_tensor *i = tn_from(cx, TN_I32, TN_SHAPE(3), (int32_t[]){ 3, 1, -2 });
        tn_tensor *h = tn_ones(cx, TN_F16, TN_SHAPE(3)), *f = rules_ramp(cx, 3);
        tn_tensor *u = tn_full(cx, TN_U8, TN_SHAPE(3), 200),
                  *s = tn_full(cx, TN_I8, TN_SHAPE(3), -1);
        CHECK_INT(tn_dtype_of(tn_sum_all(b)), TN_I64);
        CHECK_VALUES(tn_sum_all(b), 2);
        CHECK_INT(tn_dtype_of(tn_sum(i, 0)), TN_I64);
        CHECK_INT(tn_dtype_of(tn_prod(u, 0)), TN_I64);
        CHECK_VALUES(tn_sum_all(u), 600);
        CHECK_INT(tn_dtype_of(tn_cumsum(b, 0)), TN_I64);
        CHECK_INT(tn_dtype_of(tn_div(i, i)), TN_F32);
        CHECK_VALUES(tn_div(i, tn_full(cx, TN_I32, TN_0D, 2)), 1.5, 0.5, -1);
        CHECK_INT(tn_dtype_of(tn_argmax(f, 0)), TN_I64);
        CHECK_INT(tn_dtype_of(tn_argmin_all(i)), TN_I64);
        CHECK_INT(tn_dtype_of(tn_max(i, 0)), TN_I32);
        CHECK_INT(tn_dtype_of(tn_add(u, s)), TN_I16);
        CHECK_INT(tn_dtype_of(tn_add(i, h)), TN_F16);
        CHECK_INT(tn_dtype_of(tn_add(h, tn_cast(h, TN_BF16))), TN_F32);
        CHECK_INT(tn_dtype_of(tn_add(h, tn_ones(cx, TN_F64, TN_0D))), TN_F16);  // 0-d counts less
        CHECK_INT(tn_dtype_of(tn_add(i, tn_ones(cx, TN_F64, TN_0D))), TN_F64);  // a higher kind
        CHECK_INT(tn_dtype_of(tn_add(b, b)), TN_BOOL);
        CHECK_VALUES(tn_add(b, b), 1, 0, 1);
        CHECK_INT(tn_dtype_of(tn_eq(i, f)), TN_BOOL);
        CHECK_INT(tn_dtype_of(tn_sqrt(i)), TN_F32);
        CHECK_INT(tn_dtype_of(tn_one_hot(tn_cast(b, TN_I64), 2)), TN_I64);
        CHECK(tn_sub(b, b) == NULL);
        CHECK_FAILED2(cx, TN_EDTYPE, "sub: ", "bool");
    }
}

static void rule_20_max_along_an_axis_gives_values_and_ties_share_the_gradient(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = tn_from(cx, TN_F32, TN_SHAPE(2, 3), (float[]){ 1, 5, 5, 7, 2, 0 });
        tn_requires_grad(x, true);
        CHECK_VALUES(tn_max(x, 1), 5, 7);
        CHECK_STATUS(tn_backward(tn_sum_all(tn_max(x, 1)), NULL), TN_OK);
        CHECK_VALUES(tn_grad_of(x), 0, 0.5, 0.5, 1, 0, 0);
        tn_zero_grad(x);
        CHECK_STATUS(tn_backward(tn_min_all(tn_mul(x, tn_zeros_like(x))), NULL), TN_OK);
        CHECK_VALUES(tn_grad_of(x), 0, 0, 0, 0, 0, 0);
        CHECK_VALUES(tn_argmax(x, 1), 1, 0);  // the first
    }
}

static void rule_20_the_gradient_of_a_norm_at_0_is_0(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = tn_from(cx, TN_F32, TN_SHAPE(2, 2), (float[]){ 0, 0, 3, 4 });
        tn_requires_grad(x, true);
        CHECK_STATUS(tn_backward(tn_sum_all(tn_norm(x, 1)), NULL), TN_OK);
        double g[4];
        CHECK_STATUS(tn_read(tn_grad_of(x), TN_F64, g, 4), TN_OK);
        CHECK(g[0] == 0 && g[1] == 0);
        CHECK_NEAR(g[2], 0.6, 1e-6);
        CHECK_NEAR(g[3], 0.8, 1e-6);
    }
}

static void rule_20_small_cases_are_those_of_pytorch(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *none = tn_zeros(cx, TN_F32, TN_SHAPE(0)),
                  *i    = tn_full(cx, TN_I32, TN_SHAPE(1), -7);
        tn_tensor *two  = tn_full(cx, TN_I32, TN_SHAPE(1), 2),
                  *nan  = tn_full(cx, TN_F32, TN_SHAPE(1), NAN);
        CHECK_VALUES(tn_sum_all(none), 0);
        CHECK_VALUES(tn_prod_all(none), 1);
        CHECK_VALUES(tn_mean_all(none), NAN);
        CHECK(tn_max_all(none) == NULL);
        CHECK_FAILED2(cx, TN_ESHAPE, "max_all: ", "(0,)");
        CHECK_VALUES(tn_remainder(i, two), 1);
        CHECK_VALUES(tn_floor_divide(i, two), -4);
        CHECK_VALUES(tn_maximum(nan, tn_ones_like(nan)), NAN);
        CHECK_VALUES(tn_round(tn_from(cx, TN_F32, TN_SHAPE(3), (float[]){ 0.5, 1.5, -2.5 })), 0, 2,
                     -2);
        CHECK_VALUES(tn_var_all(rules_ramp(cx, 3)), 1);  // over n - 1
        CHECK_VALUES(tn_relu(nan), NAN);
        CHECK_VALUES(tn_sum(tn_scalar(cx, 3), -1), 3);  // a 0-d tensor takes axis 0 and -1
        CHECK(tn_sum(tn_scalar(cx, 3), 1) == NULL);
        CHECK_FAILED(cx, TN_EARG, "sum: axis 1");
    }
}

// ---- 23: users' ops ----------------------------------------------------------------------------

// y = scale * x^power, f64, with attributes.
typedef struct {
    double scale, power;
} monomial;

static const tn_op_def monomial_op;
static int             shapes, computes, grads;

static tn_tensor *power_of(tn_tensor *x, double scale, double power)
{
    monomial m = { scale, power };
    return tn_custom(&monomial_op, &x, &m, sizeof m);
}

static tn_status monomial_shape(const void *attr, const tn_array *in, tn_array *out)
{
    shapes++;
    *out = *in;
    return ((const monomial *)attr)->power > 100 ? TN_EARG : TN_OK;
}

static tn_status monomial_compute(const void *attr, const tn_array *in, tn_array *out)
{
    monomial m;
    memcpy(&m, attr, sizeof m);
    computes++;
    int64_t n = 1;
    for (int i = 0; i < in->rank; i++) n *= in->size[i];
    for (int64_t i = 0; i < n; i++)
        ((double *)out->data)[i] = m.scale * pow(((const double *)in->data)[i], m.power);
    return TN_OK;
}

static tn_status monomial_grad(const void *attr, tn_tensor *const *x, tn_tensor *const *y,
                               tn_tensor *const *gy, tn_tensor **gx)
{
    const monomial *m = attr;
    (void)y;
    grads++;
    gx[0] = tn_mul(gy[0], power_of(x[0], m->scale * m->power, m->power - 1));
    return gx[0] ? TN_OK : TN_EUSER;
}

static const tn_op_def monomial_op = { .name    = "monomial",
                                       .nin     = 1,
                                       .shape   = monomial_shape,
                                       .compute = monomial_compute,
                                       .grad    = monomial_grad };

static tn_tensor *doubles(tn_ctx *cx)
{
    return tn_cast(rules_ramp(cx, N), TN_F64);
}

static void rule_23_shape_and_grad_run_at_recording_compute_at_evaluation(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = tn_requires_grad(doubles(cx), true);
        shapes = computes = grads = 0;
        tn_tensor *y              = power_of(x, 2, 3);
        CHECK(shapes == 1 && computes == 0 && grads == 0);
        CHECK_VALUES(y, 2, 16, 54);
        CHECK(computes == 1 && grads == 0);
        CHECK_STATUS(tn_backward(tn_sum_all(y), NULL), TN_OK);
        CHECK(grads == 1 && computes == 1);
        CHECK_VALUES(tn_grad_of(x), 6, 24, 54);
        CHECK_INT(computes, 2);
    }
}

static void rule_23_attributes_are_copied_into_the_node_and_the_key(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = doubles(cx), *y[2];
        tn_eval_of(x);
        for (int i = 0; i < 2; i++) {
            monomial m = { i + 1, 1 };
            y[i]       = tn_custom(&monomial_op, &x, &m, sizeof m);
            m          = (monomial){ 77, 77 };  // the node has its own
        }
        CHECK_VALUES(y[0], 1, 2, 3);
        CHECK_VALUES(y[1], 2, 4, 6);
        tn_stats last = tn_ctx_stats(cx);
        CHECK_VALUES(power_of(x, 2, 1), 2, 4, 6);
        CHECK_INT(tn_ctx_stats(cx).plans, last.plans);
        CHECK_VALUES(power_of(x, 5, 1), 5, 10, 15);
    }
}

static tn_tensor *cube(tn_tensor *const *x, void *user)
{
    (void)user;
    return power_of(x[0], 0.5, 3);
}

static void rule_23_second_order_works(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = doubles(cx), *w = tn_requires_grad(doubles(cx), true), *g, *y;
        CHECK_STATUS(tn_gradcheck(cube, 1, &x, NULL), TN_OK);
        CHECK_STATUS(tn_gradgradcheck(cube, 1, &x, NULL), TN_OK);
        y = tn_sum_all(power_of(w, 1, 3));
        CHECK_STATUS(tn_grad(1, &y, 1, &w, NULL, &g), TN_OK);
        CHECK_STATUS(tn_backward(tn_sum_all(tn_square(g)), NULL), TN_OK);
        CHECK_VALUES(tn_grad_of(w), 36, 288, 972);
    }
}

static void rule_23_inputs_are_row_major_whatever_their_strides(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = doubles(cx);
        CHECK_VALUES(power_of(tn_flip(x, 0), 1, 1), 3, 2, 1);
        CHECK_VALUES(power_of(tn_expand(tn_select(x, 0, 1), TN_SHAPE(2, 2)), 1, 1), 2, 2, 2, 2);
        CHECK_VALUES(power_of(tn_slice(x, 0, 1, 3, 1), 1, 1), 2, 3);
        CHECK_VALUES(power_of(tn_slice(tn_neg(x), 0, 1, 3, 1), 1, 2), 4, 9);
        CHECK_VALUES(power_of(tn_select(x, 0, 2), 1, 2), 9);  // 0-d
        tn_tensor *none = power_of(tn_slice(x, 0, 0, 0, 1), 1, 1);
        CHECK(tn_count(none) == 0 && tn_eval_of(none) == TN_OK);
    }
}

// Quotient and rest of two f32 inputs: the quotient i32 of x's shape, the rest f32.
static tn_status divide_shape(const void *attr, const tn_array *in, tn_array *out)
{
    (void)attr;
    out[0]       = in[0];
    out[1]       = in[0];
    out[0].dtype = TN_I32;
    return TN_OK;
}

static tn_status divide_compute(const void *attr, const tn_array *in, tn_array *out)
{
    (void)attr;
    int64_t n = 1;
    for (int i = 0; i < in->rank; i++) n *= in->size[i];
    for (int64_t i = 0; i < n; i++) {
        float a = ((float *)in[0].data)[i], b = ((float *)in[1].data)[i];
        ((int32_t *)out[0].data)[i] = (int32_t)(a / b);
        ((float *)out[1].data)[i]   = fmodf(a, b);
    }
    return TN_OK;
}

static const tn_op_def divide_op = {
    .name = "divide", .nin = 2, .nout = 2, .shape = divide_shape, .compute = divide_compute
};

static void rule_23_several_outputs(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x[]  = { tn_mul_s(rules_ramp(cx, N), 3), tn_full(cx, TN_F32, TN_SHAPE(N), 2) };
        tn_tensor *y[2] = { 0 };
        CHECK_STATUS(tn_custom_n(&divide_op, x, NULL, 0, y), TN_OK);
        if (!CHECK(y[0] && y[1])) return;
        CHECK(tn_dtype_of(y[0]) == TN_I32 && tn_dtype_of(y[1]) == TN_F32);
        CHECK_VALUES(y[1], 1, 0, 1);
        CHECK_VALUES(y[0], 1, 3, 4);
        // Used after they were computed, and written.
        CHECK_VALUES(tn_add(y[0], y[1]), 2, 3, 5);
        CHECK_VALUES(tn_flip(y[1], 0), 1, 0, 1);
        tn_tensor *copy = tn_clone(y[1]);
        tn_fill_(tn_slice(y[1], 0, 0, 1, 1), 9);
        CHECK_VALUES(y[1], 9, 0, 1);
        CHECK_VALUES(copy, 1, 0, 1);
        CHECK_VALUES(y[0], 1, 3, 4);
        tn_add_(y[0], tn_ones_like(y[0]));
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_VALUES(y[0], 2, 4, 5);
        CHECK(tn_custom(&divide_op, x, NULL, 0) == NULL);
        CHECK_FAILED2(cx, TN_EARG, "divide: ", "tn_custom_n");
    }
}

static void rule_23_one_of_several_outputs_outlives_the_others(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_scope  *s   = tn_begin(cx);
        tn_tensor *x[] = { rules_ramp(cx, N), tn_full(cx, TN_F32, TN_SHAPE(N), 2) }, *y[2];
        CHECK_STATUS(tn_custom_n(&divide_op, x, NULL, 0, y), TN_OK);
        tn_tensor *kept = tn_keep(y[1]), *sum = tn_keep(tn_add(y[0], y[1]));
        CHECK_STATUS(tn_end(s), TN_OK);
        CHECK_VALUES(kept, 1, 0, 1);
        CHECK_VALUES(sum, 1, 1, 2);
        tn_tensor *again = tn_mul_s(kept, 2);
        tn_drop(kept);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_VALUES(again, 2, 0, 2);
    }
}

// Sum and product of two inputs, with gradients that use both.
static tn_status both_shape(const void *attr, const tn_array *in, tn_array *out)
{
    (void)attr;
    out[0] = out[1] = in[0];
    return TN_OK;
}

static tn_status both_compute(const void *attr, const tn_array *in, tn_array *out)
{
    (void)attr;
    const double *a = in[0].data, *b = in[1].data;
    for (int i = 0; i < N; i++) {
        ((double *)out[0].data)[i] = a[i] + b[i];
        ((double *)out[1].data)[i] = a[i] * b[i];
    }
    return TN_OK;
}

static tn_status both_grad(const void *attr, tn_tensor *const *x, tn_tensor *const *y,
                           tn_tensor *const *gy, tn_tensor **gx)
{
    (void)attr;
    if (tn_count(y[0]) != N || tn_count(y[1]) != N) return TN_EUSER;
    gx[0] = tn_add(gy[0], tn_mul(gy[1], x[1]));
    gx[1] = tn_add(gy[0], tn_mul(gy[1], x[0]));
    return gx[0] && gx[1] ? TN_OK : TN_EUSER;
}

static const tn_op_def both_op = { .name    = "both",
                                   .nin     = 2,
                                   .nout    = 2,
                                   .shape   = both_shape,
                                   .compute = both_compute,
                                   .grad    = both_grad };

static tn_tensor *both_of(tn_tensor *const *x, void *user)
{
    tn_tensor *y[2];
    int        which = *(int *)user;
    if (tn_custom_n(&both_op, x, NULL, 0, y) != TN_OK) return NULL;
    return which == 2 ? tn_add(y[0], tn_square(y[1])) : tn_square(y[which]);
}

static void rule_23_gradients_of_several_outputs_come_at_once(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x[] = { doubles(cx), tn_add_s(doubles(cx), 2) };
        for (int which = 0; which < 3; which++) {  // the first alone, the second alone, both
            test_that(tn_gradcheck(both_of, 2, x, &which) == TN_OK, "output %d: %s", which,
                      tn_error_text(cx));
            test_that(tn_gradgradcheck(both_of, 2, x, &which) == TN_OK, "output %d again: %s",
                      which, tn_error_text(cx));
            tn_error_clear(cx);
        }
        tn_tensor *w = tn_requires_grad(doubles(cx), true), *in[] = { w, w }, *y[2];
        CHECK_STATUS(tn_custom_n(&both_op, in, NULL, 0, y), TN_OK);
        CHECK_VALUES(y[0], 2, 4, 6);  // a read in between
        CHECK_STATUS(tn_backward(tn_add(tn_sum_all(y[0]), tn_sum_all(y[1])), NULL), TN_OK);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_VALUES(tn_grad_of(w), 4, 6, 8);
    }
}

// ---- callbacks that fail -----------------------------------------------------------------------

static tn_status bad_status(const void *attr, const tn_array *in, tn_array *out)
{
    (void)attr, (void)in, (void)out;
    return TN_EIO;
}

static tn_status bad_rank(const void *attr, const tn_array *in, tn_array *out)
{
    (void)attr;
    *out      = *in;
    out->rank = 9;
    return TN_OK;
}

static tn_status bad_dtype(const void *attr, const tn_array *in, tn_array *out)
{
    (void)attr;
    *out       = *in;
    out->dtype = (tn_dtype)77;
    return TN_OK;
}

static tn_status bad_size(const void *attr, const tn_array *in, tn_array *out)
{
    (void)attr;
    *out         = *in;
    out->size[0] = INT64_MAX;
    return TN_OK;
}

static tn_status bad_grad(const void *attr, tn_tensor *const *x, tn_tensor *const *y,
                          tn_tensor *const *gy, tn_tensor **gx)
{
    (void)attr, (void)x, (void)y, (void)gy, (void)gx;
    return TN_EIO;
}

static tn_status no_grad(const void *attr, tn_tensor *const *x, tn_tensor *const *y,
                         tn_tensor *const *gy, tn_tensor **gx)
{
    (void)attr, (void)x, (void)y, (void)gy, (void)gx;  // nothing flows
    return TN_OK;
}

static tn_status wrong_grad(const void *attr, tn_tensor *const *x, tn_tensor *const *y,
                            tn_tensor *const *gy, tn_tensor **gx)
{
    (void)attr, (void)x, (void)y;
    gx[0] = tn_concat(2, (tn_tensor *const[]){ gy[0], gy[0] }, 0);  // of another shape
    return TN_OK;
}

static void rule_23_failing_callbacks_are_errors(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = rules_ramp(cx, N), *w = tn_requires_grad(rules_ramp(cx, N), true);
        static const tn_op_def bad[] = {
            { .name = "b0", .nin = 1, .shape = bad_status, .compute = bad_status },
            { .name = "b1", .nin = 1, .shape = bad_rank, .compute = bad_status },
            { .name = "b2", .nin = 1, .shape = bad_dtype, .compute = bad_status },
            { .name = "b3", .nin = 1, .shape = bad_size, .compute = bad_status },
            { .name = "b4", .nin = 1, .shape = both_shape, .compute = bad_status },
        };
        static const tn_status want[] = { TN_EUSER, TN_ESHAPE, TN_EDTYPE, TN_ESHAPE };
        for (int i = 0; i < 4; i++) {
            CHECK(tn_custom(&bad[i], &x, NULL, 0) == NULL);
            CHECK_FAILED(cx, want[i], bad[i].name);
        }
        tn_op_def        op = rules_twice;
        static tn_op_def kept[4];  // a table must outlive its nodes
        for (int i = 0; i < 4; i++) {
            kept[i]       = op;
            kept[i].name  = "odd";
            kept[i].grad  = i == 0 ? bad_grad : i == 1 ? NULL : i == 2 ? wrong_grad : no_grad;
            tn_tensor *l  = tn_sum_all(tn_custom(&kept[i], &w, NULL, 0));
            tn_status  st = tn_backward(l, NULL);
            CHECK_INT(st, i == 0 ? TN_EUSER : i == 1 ? TN_EGRAD : i == 2 ? TN_ESHAPE : TN_OK);
            if (i < 3) CHECK_FAILED(cx, st, "odd");
            CHECK(!tn_has_grad(w));
        }
        kept[0].compute = bad_status;
        CHECK(isnan(tn_item(tn_sum_all(tn_custom(&kept[0], &x, NULL, 0)))));
        CHECK_FAILED2(cx, TN_EUSER, "odd: ", "compute");
        CHECK_VALUES(rules_double(x), 2, 4, 6);
    }
}

static tn_ctx *busy_cx;
static double  busy_item;

static tn_status calls_back(const void *attr, const tn_array *in, tn_array *out)
{
    (void)attr, (void)in, (void)out;
    busy_item = tn_item(tn_add_s(rules_ramp(busy_cx, 1), 1));  // not allowed here
    return TN_OK;
}

static void rule_23_compute_may_not_evaluate(void)
{
    static const tn_op_def op = {
        .name = "busy", .nin = 1, .shape = bad_size, .compute = calls_back
    };
    static tn_op_def busy;
    busy       = op;
    busy.shape = rules_twice.shape;
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = rules_ramp(cx, N);
        busy_cx      = cx;
        tn_eval_of(tn_custom(&busy, &x, NULL, 0));
        CHECK(isnan(busy_item));
        CHECK_FAILED(cx, TN_EARG, "in progress");
        CHECK_VALUES(tn_add_s(x, 1), 2, 3, 4);
    }
}

static void rule_23_calls_that_make_no_sense_are_errors(void)
{
    tn_ctx    *cx = rules_open("cpu");
    tn_tensor *x  = rules_ramp(cx, N), *y[32];
    CHECK(tn_custom(NULL, &x, NULL, 0) == NULL);
    CHECK_FAILED(NULL, TN_EARG, "custom: op is NULL");
    CHECK(tn_custom(&rules_twice, NULL, NULL, 0) == NULL);
    CHECK_FAILED(NULL, TN_EARG, "custom: x is NULL");
    CHECK(tn_custom(&rules_twice, &(tn_tensor *){ NULL }, NULL, 0) == NULL);
    CHECK_FAILED(NULL, TN_EARG, "twice: ");
    tn_op_def op = rules_twice;
    op.shape     = NULL;
    CHECK(tn_custom(&op, &x, NULL, 0) == NULL);
    CHECK_FAILED(cx, TN_EARG, "shape");
    op         = rules_twice;
    op.compute = NULL;
    CHECK(tn_custom(&op, &x, NULL, 0) == NULL);
    CHECK_FAILED(cx, TN_EARG, "compute");
    op      = rules_twice;
    op.name = NULL;
    CHECK(tn_custom(&op, &x, NULL, 0) == NULL);
    CHECK_FAILED(cx, TN_EARG, "name");
    op     = rules_twice;
    op.nin = 0;
    CHECK(tn_custom(&op, &x, NULL, 0) == NULL);
    tn_error_clear(cx);
    tn_error_clear(NULL);
    op      = rules_twice;
    op.nout = 31;  // more than the walk has room for
    CHECK_STATUS(tn_custom_n(&op, &x, NULL, 0, y), TN_EARG);
    CHECK_FAILED2(cx, TN_EARG, "twice ", "outputs");
    CHECK(tn_custom(&rules_twice, &x, NULL, 8) == NULL);
    CHECK_FAILED2(cx, TN_EARG, "twice: ", "attr");
    CHECK_STATUS(tn_custom_n(&rules_twice, &x, NULL, 0, NULL), TN_EARG);
    CHECK_FAILED2(cx, TN_EARG, "twice: ", "y is NULL");
    tn_close(cx);
}

static void rule_23_calls_outside_a_scope_leave_nothing_behind(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = rules_ramp(cx, N), *t = tn_flip(x, 0);
        CHECK_VALUES(rules_double(t), 6, 4, 2);
        int64_t nodes = 0;
        for (int i = 0; i < 50; i++) {
            tn_tensor *y = rules_double(t);
            tn_eval_of(y);
            tn_drop(y);
            if (i == 9) nodes = tn_ctx_stats(cx).nodes;
        }
        CHECK_INT(tn_ctx_stats(cx).nodes, nodes);
    }
}

// ---- 24: options and plain functions -----------------------------------------------------------

static void rule_24_zero_means_the_default_and_tn_zero_a_real_zero(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x    = tn_from(cx, TN_F32, TN_SHAPE(2, 1), (float[]){ 1, 3 });
        tn_tensor *mean = tn_zeros(cx, TN_F32, TN_SHAPE(1)),
                  *var  = tn_ones(cx, TN_F32, TN_SHAPE(1));
        tn_batch_norm(x, mean, var, NULL, NULL, (tn_batch_norm_opts){ .training = true });
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_NEAR(tn_item(mean), 0.2, 1e-6);  // momentum 0.1
        tn_batch_norm(x, mean, var, NULL, NULL,
                      (tn_batch_norm_opts){ .training = true, .momentum = TN_ZERO });
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_NEAR(tn_item(mean), 0.2, 1e-6);
        // eps of a constant row: 0 by default 1e-5, a real zero divides by nothing.
        tn_tensor *flat = tn_ones(cx, TN_F32, TN_SHAPE(1, 4));
        CHECK_VALUES(tn_layer_norm(flat, 1, NULL, NULL, 0), 0, 0, 0, 0);
        CHECK_VALUES(tn_layer_norm(flat, 1, NULL, NULL, TN_ZERO), NAN, NAN, NAN, NAN);
        // Attention's scale: 0 is 1 / sqrt(D); a real zero weighs all alike.
        tn_tensor *q = tn_from(cx, TN_F32, TN_SHAPE(1, 1), (float[]){ 100 });
        tn_tensor *k = tn_from(cx, TN_F32, TN_SHAPE(2, 1), (float[]){ 1, -1 });
        tn_tensor *v = tn_from(cx, TN_F32, TN_SHAPE(2, 1), (float[]){ 4, 8 });
        CHECK_NEAR(tn_item(tn_attention(q, k, v, (tn_attention_opts){ 0 })), 4, 1e-5);
        CHECK_NEAR(tn_item(tn_attention(q, k, v, (tn_attention_opts){ .scale = TN_ZERO })), 6,
                   1e-5);
        // Huber's delta.
        tn_tensor *p = tn_full(cx, TN_F32, TN_SHAPE(1), 3), *t = tn_zeros(cx, TN_F32, TN_SHAPE(1));
        CHECK_NEAR(tn_item(tn_huber_with(p, t, (tn_loss_opts){ 0 })), 2.5, 1e-6);
        CHECK_NEAR(tn_item(tn_huber_with(p, t, (tn_loss_opts){ .delta = 2 })), 4, 1e-6);
    }
}

static void rule_24_a_context_opened_with_zeros_has_the_defaults(void)
{
    tn_ctx *cx = tn_open_with((tn_open_opts){ 0 });
    if (!CHECK(cx != NULL)) return;
    CHECK(tn_grad_mode(cx, true));
    CHECK_VALUES(tn_add_s(rules_ramp(cx, 2), 1), 2, 3);
    tn_close(cx);
}

static void rule_24_the_plain_functions_stay(void)
{
    tn_tensor *(*const unary[])(tn_tensor *)               = { tn_relu, tn_gelu, tn_exp, tn_clone };
    tn_tensor *(*const binary[])(tn_tensor *, tn_tensor *) = { tn_add, tn_matmul, tn_mse };
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = rules_ramp(cx, N);
        for (int i = 0; i < 4; i++) CHECK(tn_eval_of(unary[i](x)) == TN_OK);
        CHECK_VALUES(unary[0](tn_neg(x)), 0, 0, 0);
        CHECK_VALUES(binary[0](x, x), 2, 4, 6);
        CHECK_VALUES(binary[1](x, x), 14);
        CHECK_NEAR(tn_item(binary[2](x, tn_zeros_like(x))), 14.0 / 3, 1e-6);
        CHECK(binary[0](x, tn_zeros(cx, TN_F32, TN_SHAPE(2))) == NULL);
        CHECK_FAILED2(cx, TN_ESHAPE, "add: shapes (3,) and (2,)", "broadcast");
        CHECK_VALUES((tn_sub)(x, x), 0, 0, 0);
        CHECK_VALUES(tn_add_at("elsewhere.c", 7, x, x), 2, 4, 6);
        CHECK_VALUES(tn_add_at(NULL, 0, x, x), 2, 4, 6);
    }
}

// ---- 25: names ---------------------------------------------------------------------------------

static void rule_25_maximum_is_elementwise_max_a_reduction_where_the_ternary(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *a = rules_ramp(cx, 3), *b = tn_flip(a, 0);
        CHECK_VALUES(tn_maximum(a, b), 3, 2, 3);
        CHECK_VALUES(tn_minimum(a, b), 1, 2, 1);
        CHECK_VALUES(tn_max(a, 0), 3);
        CHECK_VALUES(tn_min_all(a), 1);
        CHECK_VALUES(tn_where(tn_lt(a, b), a, tn_neg(b)), 1, -2, -1);
        tn_tensor *w = tn_ones(cx, TN_F32, TN_SHAPE(2, 3));
        CHECK_VALUES(tn_linear(a, w, tn_zeros(cx, TN_F32, TN_SHAPE(2))), 6, 6);
        CHECK_VALUES(tn_dropout(a, 0.9, false), 1, 2, 3);
    }
}

const test_case tests_rules_rest[] = {
    TEST(rule_20_dtypes_are_those_of_pytorch),
    TEST(rule_20_max_along_an_axis_gives_values_and_ties_share_the_gradient),
    TEST(rule_20_the_gradient_of_a_norm_at_0_is_0),
    TEST(rule_20_small_cases_are_those_of_pytorch),
    TEST(rule_23_shape_and_grad_run_at_recording_compute_at_evaluation),
    TEST(rule_23_attributes_are_copied_into_the_node_and_the_key),
    TEST(rule_23_second_order_works),
    TEST(rule_23_inputs_are_row_major_whatever_their_strides),
    TEST(rule_23_several_outputs),
    TEST(rule_23_one_of_several_outputs_outlives_the_others),
    TEST(rule_23_gradients_of_several_outputs_come_at_once),
    TEST(rule_23_failing_callbacks_are_errors),
    TEST(rule_23_compute_may_not_evaluate),
    TEST(rule_23_calls_that_make_no_sense_are_errors),
    TEST(rule_23_calls_outside_a_scope_leave_nothing_behind),
    TEST(rule_24_zero_means_the_default_and_tn_zero_a_real_zero),
    TEST(rule_24_a_context_opened_with_zeros_has_the_defaults),
    TEST(rule_24_the_plain_functions_stay),
    TEST(rule_25_maximum_is_elementwise_max_a_reduction_where_the_ternary),
    TEST_END,
};
