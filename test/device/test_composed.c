// test_composed.c: values and gradients of the composed ops against numbers of PyTorch 2.15.
// A gradient is that of the result weighed by 1/n, 2/n, ... 1, so that sums of it do not cancel.
#include "check.h"
#include "tenon.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 256 };  // elements of a recorded result

static tn_ctx *open_ctx(void)
{
    tn_ctx *cx = tn_open(NULL);
    if (cx) tn_on_error(cx, NULL, NULL);
    test_that(cx != NULL, "no context: %s", tn_error_text(NULL));
    return cx;
}

// f32 results agree to a few units of their last places; 16-bit ones were rounded once.
static bool close_to(double a, double b, tn_dtype dt)
{
    double tol = dt == TN_BF16 ? 1e-2 : 2e-5;
    if (a != a || b != b) return a != a && b != b;
    return a == b || fabs(a - b) <= tol * fabs(b) + tol / 10;
}

// One case: y has this shape and these values.
static void is(int line, const char *text, tn_tensor *y, int rank, const int64_t *size,
               const double *want)
{
    double  have[MOST];
    int64_t n    = 1;
    bool    same = y && tn_rank(y) == rank;
    for (int i = 0; same && i < rank; i++) same = tn_size(y, i) == size[i];
    for (int i = 0; i < rank; i++) n *= size[i];
    if (!y || !same || n > MOST || tn_read(y, TN_F64, have, n) != TN_OK) {
        const char *why = tn_error_text(tn_ctx_of(y));
        test_case_result(false, "line %d: %s: %s", line, text, *why ? why : "another shape");
        if (y) tn_error_clear(tn_ctx_of(y));
        return;
    }
    int64_t bad = 0;
    while (bad < n && close_to(have[bad], want[bad], tn_dtype_of(y))) bad++;
    test_case_result(bad == n, "line %d: %s: [%lld] is %.9g, not %.9g", line, text, (long long)bad,
                     bad < n ? have[bad] : 0, bad < n ? want[bad] : 0);
}
#define IS(y, ...) is(__LINE__, #y, y, __VA_ARGS__)

static tn_tensor *weighed_gradient(tn_tensor *y, tn_tensor *x)
{
    int64_t size[TN_MAX_RANK], n = tn_count(y);
    for (int i = 0; i < tn_rank(y); i++) size[i] = tn_size(y, i);
    tn_ctx    *cx = tn_ctx_of(x);
    tn_tensor *gy = tn_div_s(tn_arange(cx, TN_F32, 1, (double)n + 1, 1), (double)n);
    tn_tensor *gx = NULL;
    gy            = tn_cast(tn_reshape(gy, tn_rank(y), size), tn_dtype_of(y));
    return tn_grad(1, &y, 1, &x, &gy, &gx) == TN_OK ? gx : NULL;
}

// Two cases: y and the gradient with respect to x, of x's shape.
static void are(int line, const char *text, tn_tensor *y, tn_tensor *x, int rank,
                const int64_t *size, const double *want, const double *want_grad)
{
    int64_t own[TN_MAX_RANK];
    char    of[256];
    for (int i = 0; i < tn_rank(x); i++) own[i] = tn_size(x, i);
    snprintf(of, sizeof of, "gradient of %s", text);
    is(line, text, y, rank, size, want);
    is(line, of, weighed_gradient(y, x), tn_rank(x), own, want_grad);
}
// x is a leaf while y is recorded.
#define ARE(y, x, ...)                        \
    do {                                      \
        tn_requires_grad(x, true);            \
        are(__LINE__, #y, y, x, __VA_ARGS__); \
        tn_requires_grad(x, false);           \
    } while (0)

// One case: the call failed with this text.
#define FAILS(cx, call, text)                                                                \
    do {                                                                                     \
        bool failed = (call) == NULL && strcmp(tn_error_text(cx), text) == 0;                \
        test_case_result(failed, "line %d: %s: \"%s\"", __LINE__, #call, tn_error_text(cx)); \
        tn_error_clear(cx);                                                                  \
    } while (0)

// clang-format off

static void activations_are_as_recorded(void)
{
    tn_ctx *cx = open_ctx();
    tn_tensor *x = tn_from(cx, TN_F32, TN_SHAPE(8), (float[]){ -200, -3, -1.5, -0.3, 0, 0.7, 3,
        90 });
    ARE(tn_relu(x), x, TN_SHAPE(8), (double[]){ 0, 0, 0, 0, 0, 0.7, 3, 90 }, (double[]){ 0, 0, 0, 0,
        0, 0.75, 0.875, 1 });
    ARE(tn_leaky_relu(x, 0.01), x, TN_SHAPE(8), (double[]){ -2, -0.03, -0.015, -0.003, 0, 0.7, 3, 90
        }, (double[]){ 0.00125, 0.0025, 0.00375, 0.005, 0.00625, 0.75, 0.875, 1 });
    ARE(tn_elu(x, 1.3), x, TN_SHAPE(8), (double[]){ -1.3, -1.23528, -1.00993, -0.336936, 0, 0.7, 3,
        90 }, (double[]){ 0, 0.0161808, 0.108776, 0.481532, 0.8125, 0.75, 0.875, 1 });
    ARE(tn_sigmoid(x), x, TN_SHAPE(8), (double[]){ 0, 0.0474259, 0.182426, 0.425557, 0.5, 0.668188,
        0.952574, 1 }, (double[]){ 0, 0.0112942, 0.0559299, 0.122229, 0.15625, 0.166285, 0.0395296,
        0 });
    ARE(tn_silu(x), x, TN_SHAPE(8), (double[]){ 0, -0.142278, -0.273638, -0.127667, 0, 0.467731,
        2.85772, 90 }, (double[]){ 0, -0.022026, -0.0154853, 0.17611, 0.3125, 0.61754, 0.952091,
        1 });
    ARE(tn_gelu(x), x, TN_SHAPE(8), (double[]){ 0, -0.00404969, -0.100211, -0.114627, 0, 0.530625,
        2.99595, 90 }, (double[]){ 0, -0.00298641, -0.047801, 0.133836, 0.3125, 0.732461, 0.885452,
        1 });
    ARE(tn_gelu_tanh(x), x, TN_SHAPE(8), (double[]){ 0, -0.00363725, -0.100428, -0.114629, 0,
        0.53057, 2.99636, 90 }, (double[]){ 0, -0.00289607, -0.0478916, 0.133852, 0.3125, 0.732268,
        0.885136, 1 });
    ARE(tn_softplus(x), x, TN_SHAPE(8), (double[]){ 0, 0.0485874, 0.201413, 0.554355, 0.693147,
        1.10319, 3.04859, 90 }, (double[]){ 0, 0.0118565, 0.0684096, 0.212779, 0.3125, 0.501141,
        0.833502, 1 });
    ARE(tn_hardswish(x), x, TN_SHAPE(8), (double[]){ 0, 0, -0.375, -0.135, 0, 0.431667, 3, 90 },
        (double[]){ 0, 0, 0, 0.2, 0.3125, 0.55, 0.875, 1 });
    ARE(tn_square(x), x, TN_SHAPE(8), (double[]){ 40000, 9, 2.25, 0.09, 0, 0.49, 9, 8100 },
        (double[]){ -50, -1.5, -1.125, -0.3, 0, 1.05, 5.25, 180 });
    ARE(tn_clamp(x, -1.4, 0.8), x, TN_SHAPE(8), (double[]){ -1.4, -1.4, -1.4, -0.3, 0, 0.7, 0.8, 0.8
        }, (double[]){ 0, 0, 0, 0.5, 0.625, 0.75, 0, 0 });
    ARE(tn_clamp(x, -INFINITY, 0.8), x, TN_SHAPE(8), (double[]){ -200, -3, -1.5, -0.3, 0, 0.7, 0.8,
        0.8 }, (double[]){ 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0, 0 });
    ARE(tn_clamp(x, 1, -1), x, TN_SHAPE(8), (double[]){ -1, -1, -1, -1, -1, -1, -1, -1 },
        (double[]){ 0, 0, 0, 0, 0, 0, 0, 0 });
    tn_close(cx);
}

static void activations_keep_nan_and_infinity(void)
{
    tn_ctx *cx = open_ctx();
    tn_tensor *x = tn_from(cx, TN_F32, TN_SHAPE(3), (float[]){ NAN, INFINITY, -INFINITY });
    IS(tn_relu(x), TN_SHAPE(3), (double[]){ NAN, INFINITY, 0 });
    IS(tn_leaky_relu(x, 0.01), TN_SHAPE(3), (double[]){ NAN, INFINITY, -INFINITY });
    IS(tn_elu(x, 1), TN_SHAPE(3), (double[]){ NAN, INFINITY, -1 });
    IS(tn_sigmoid(x), TN_SHAPE(3), (double[]){ NAN, 1, 0 });
    IS(tn_softplus(x), TN_SHAPE(3), (double[]){ NAN, INFINITY, 0 });
    IS(tn_clamp(x, -1, 2), TN_SHAPE(3), (double[]){ NAN, 2, -1 });
    tn_tensor *i = tn_from(cx, TN_I64, TN_SHAPE(4), (int64_t[]){ -2, 0, 1, 5 });
    IS(tn_relu(i), TN_SHAPE(4), (double[]){ 0, 0, 1, 5 });
    IS(tn_clamp(i, 0, 2), TN_SHAPE(4), (double[]){ 0, 0, 1, 2 });
    IS(tn_clamp(i, 0.5, 1.5), TN_SHAPE(4), (double[]){ 0.5, 0.5, 1, 1.5 });
    IS(tn_sigmoid(i), TN_SHAPE(4), (double[]){ 0.119203, 0.5, 0.731059, 0.993307 });
    tn_close(cx);
}

static void masked_fill_broadcasts_its_mask(void)
{
    tn_ctx *cx = open_ctx();
    tn_tensor *x = tn_from(cx, TN_F32, TN_SHAPE(2, 3), (float[]){ -0.147, 0.786, 0.947, -1.114,
        1.691, -0.895 });
    tn_tensor *m = tn_from(cx, TN_BOOL, TN_SHAPE(3), (bool[]){ 1, 0, 1 });
    tn_tensor *i = tn_from(cx, TN_I64, TN_SHAPE(3), (int64_t[]){ 4, 5, 6 });
    ARE(tn_masked_fill(x, m, -INFINITY), x, TN_SHAPE(2, 3), (double[]){ -INFINITY, 0.786, -INFINITY,
        -INFINITY, 1.691, -INFINITY }, (double[]){ 0, 0.333333, 0, 0, 0.833333, 0 });
    IS(tn_masked_fill(i, m, -1), TN_SHAPE(3), (double[]){ -1, 5, -1 });
    tn_close(cx);
}

static void softmax_is_as_recorded(void)
{
    tn_ctx *cx = open_ctx();
    tn_tensor *x = tn_from(cx, TN_F32, TN_SHAPE(2, 3), (float[]){ -0.356, 1.232, 0.138, -1.682,
        0.318, 0.133 });
    ARE(tn_softmax(x, 1), x, TN_SHAPE(2, 3), (double[]){ 0.132753, 0.649685, 0.217563, 0.0688225,
        0.508533, 0.422644 }, (double[]){ -0.0240019, -0.00918331, 0.0331852, -0.0155289,
        -0.0299883, 0.0455173 });
    IS(tn_softmax(x, 0), TN_SHAPE(2, 3), (double[]){ 0.790178, 0.713818, 0.50125, 0.209822,
        0.286182, 0.49875 });
    ARE(tn_log_softmax(x, -1), x, TN_SHAPE(2, 3), (double[]){ -2.01927, -0.431268, -1.52527,
        -2.67622, -0.676225, -0.861225 }, (double[]){ 0.0339141, -0.316351, 0.282437, 0.49461,
        -0.438, -0.0566105 });
    tn_tensor *big = tn_from(cx, TN_F32, TN_SHAPE(4, 3), (float[]){ 1000, 1001, -1000, -INFINITY, 0,
        1, -INFINITY, -INFINITY, -INFINITY, INFINITY, 0, 0 });
    IS(tn_softmax(big, 1), TN_SHAPE(4, 3), (double[]){ 0.268941, 0.731059, 0, 0, 0.268941, 0.731059,
        NAN, NAN, NAN, NAN, NAN, NAN });
    IS(tn_logsumexp(big, 1), TN_SHAPE(4), (double[]){ 1001.31, 1.31326, -INFINITY, INFINITY });
    tn_tensor *z = tn_from(cx, TN_F32, TN_0D, (float[]){ 2.5 });
    IS(tn_softmax(z, 0), TN_0D, (double[]){ 1 });
    IS(tn_log_softmax(z, -1), TN_0D, (double[]){ 0 });
    tn_tensor *e = tn_from(cx, TN_F32, TN_SHAPE(2, 0), (float[]){ 0 });
    IS(tn_softmax(e, 1), TN_SHAPE(2, 0), (double[]){ 0 });
    IS(tn_logsumexp(e, 1), TN_SHAPE(2), (double[]){ -INFINITY, -INFINITY });
    tn_close(cx);
}

static void logsumexp_reduces_in_four_forms(void)
{
    tn_ctx *cx = open_ctx();
    tn_tensor *x = tn_from(cx, TN_F32, TN_SHAPE(2, 3, 2), (float[]){ 0.137, 0.241, 1.395, 1.347,
        2.438, 0.203, 2.451, 2.026, 1.779, -0.918, -0.458, -0.724 });
    tn_tensor *i = tn_from(cx, TN_I64, TN_SHAPE(3), (int64_t[]){ 1, 2, 3 });
    ARE(tn_logsumexp(x, 1), x, TN_SHAPE(2, 2), (double[]){ 2.81132, 1.84742, 2.89902, 2.13627 },
        (double[]){ 0.0172384, 0.100302, 0.0606511, 0.303136, 0.172111, 0.0965618, 0.479167,
        0.89559, 0.244704, 0.047157, 0.0261291, 0.0572531 });
    IS(tn_logsumexp_keep(x, -1), TN_SHAPE(2, 3, 1), (double[]){ 0.883499, 2.06444, 2.53965, 2.95406,
        1.84423, 0.110966 });
    ARE(tn_logsumexp_all(x), x, TN_0D, (double[]){ 3.90398 }, (double[]){ 0.0231217, 0.0256559,
        0.0813509, 0.0775383, 0.230851, 0.0246992, 0.233872, 0.152898, 0.119435, 0.0080508,
        0.0127531, 0.00977445 });
    ARE(tn_logsumexp_axes(x, TN_AXES(0, 2), true), x, TN_SHAPE(1, 3, 1), (double[]){ 3.07283,
        2.65353, 2.62413 }, (double[]){ 0.0176955, 0.019635, 0.189381, 0.180505, 0.830167,
        0.0888214, 0.178987, 0.117016, 0.278039, 0.0187419, 0.0458615, 0.0351501 });
    IS(tn_logsumexp_all(i), TN_0D, (double[]){ 3.40761 });
    tn_close(cx);
}

static void statistics_are_as_recorded(void)
{
    tn_ctx *cx = open_ctx();
    tn_tensor *x = tn_from(cx, TN_F32, TN_SHAPE(2, 3, 2), (float[]){ 1.28, -0.994, 1.815, -0.603,
        1.615, 1.93, -0.423, -0.083, -0.984, -1.249, -0.188, 0.283 });
    ARE(tn_mean(x, 1), x, TN_SHAPE(2, 2), (double[]){ 1.57, 0.111, -0.531667, -0.349667 },
        (double[]){ 0.0833333, 0.166667, 0.0833333, 0.166667, 0.0833333, 0.166667, 0.25, 0.333333,
        0.25, 0.333333, 0.25, 0.333333 });
    IS(tn_mean_keep(x, -1), TN_SHAPE(2, 3, 1), (double[]){ 0.143, 0.606, 1.7725, -0.253, -1.1165,
        0.0475 });
    IS(tn_mean_all(x), TN_0D, (double[]){ 0.199917 });
    ARE(tn_mean_axes(x, TN_AXES(0, 2), false), x, TN_SHAPE(3), (double[]){ -0.055, -0.25525, 0.91 },
        (double[]){ 0.0833333, 0.0833333, 0.166667, 0.166667, 0.25, 0.25, 0.0833333, 0.0833333,
        0.166667, 0.166667, 0.25, 0.25 });
    ARE(tn_var(x, 1), x, TN_SHAPE(2, 2), (double[]){ 0.073075, 2.51979, 0.16726, 0.640089 },
        (double[]){ -0.0725, -0.5525, 0.06125, -0.357, 0.01125, 0.9095, 0.0815, 0.266667, -0.33925,
        -0.899333, 0.25775, 0.632667 });
    IS(tn_var_keep(x, -1), TN_SHAPE(2, 3, 1), (double[]){ 2.58554, 2.92336, 0.0496125, 0.0578,
        0.0351125, 0.11092 });
    IS(tn_var_all(x), TN_0D, (double[]){ 1.36066 });
    ARE(tn_var_axes(x, TN_AXES(0, 2), false), x, TN_SHAPE(3), (double[]){ 0.933385, 1.97516, 1.04539
        }, (double[]){ 0.296667, -0.208667, 0.920111, -0.154556, 0.47, 0.68, -0.0817778,
        -0.00622222, -0.323889, -0.441667, -0.732, -0.418 });
    IS(tn_var_axes(x, TN_AXES(-1, 0), true), TN_SHAPE(1, 3, 1), (double[]){ 0.933385, 1.97516,
        1.04539 });
    ARE(tn_std(x, 1), x, TN_SHAPE(2, 2), (double[]){ 0.270324, 1.58738, 0.408975, 0.800056 },
        (double[]){ -0.134098, -0.174028, 0.11329, -0.112449, 0.0208083, 0.286477, 0.0996394,
        0.166655, -0.414757, -0.562044, 0.315117, 0.395389 });
    IS(tn_std_keep(x, -1), TN_SHAPE(2, 3, 1), (double[]){ 1.60796, 1.70978, 0.222739, 0.240416,
        0.187383, 0.333047 });
    IS(tn_std_all(x), TN_0D, (double[]){ 1.16647 });
    ARE(tn_std_axes(x, TN_AXES(0, 2), false), x, TN_SHAPE(3), (double[]){ 0.966118, 1.4054, 1.02244
        }, (double[]){ 0.153535, -0.107992, 0.327348, -0.0549862, 0.229842, 0.332537, -0.0423229,
        -0.00322022, -0.11523, -0.157132, -0.357967, -0.204413 });
    ARE(tn_norm(x, 1), x, TN_SHAPE(2, 2), (double[]){ 2.74606, 2.25312, 1.08744, 1.28335 },
        (double[]){ 0.116531, -0.220583, 0.165237, -0.133814, 0.147029, 0.428295, -0.29174,
        -0.0646746, -0.678657, -0.973237, -0.129662, 0.220517 });
    IS(tn_norm_keep(x, -1), TN_SHAPE(2, 3, 1), (double[]){ 1.62063, 1.91255, 2.51657, 0.431066,
        1.59005, 0.339754 });
    IS(tn_norm_all(x), TN_0D, (double[]){ 3.93025 });
    ARE(tn_norm_axes(x, TN_AXES(0, 2), false), x, TN_SHAPE(3), (double[]){ 1.67698, 2.48719, 2.5394
        }, (double[]){ 0.254426, -0.197578, 0.486494, -0.161628, 0.635977, 0.760022, -0.0840798,
        -0.0164979, -0.263752, -0.334783, -0.0740332, 0.111444 });
    tn_close(cx);
}

static void statistics_at_their_edges(void)
{
    tn_ctx *cx = open_ctx();
    tn_tensor *one = tn_from(cx, TN_F32, TN_SHAPE(1), (float[]){ 3 });
    tn_tensor *none = tn_from(cx, TN_F32, TN_SHAPE(0, 2), (float[]){ 0 });
    tn_tensor *equal = tn_from(cx, TN_F32, TN_SHAPE(3), (float[]){ 2, 2, 2 });
    tn_tensor *zero = tn_from(cx, TN_F32, TN_SHAPE(2), (float[]){ 0, 0 });
    tn_tensor *far = tn_from(cx, TN_F32, TN_SHAPE(3), (float[]){ 10000, 10001, 10002 });
    IS(tn_var(one, 0), TN_0D, (double[]){ NAN });
    IS(tn_std_all(one), TN_0D, (double[]){ NAN });
    IS(tn_mean(none, 0), TN_SHAPE(2), (double[]){ NAN, NAN });
    IS(tn_var(none, 0), TN_SHAPE(2), (double[]){ NAN, NAN });
    IS(tn_norm(none, 0), TN_SHAPE(2), (double[]){ 0, 0 });
    ARE(tn_std_all(equal), equal, TN_0D, (double[]){ 0 }, (double[]){ 0, 0, 0 });
    ARE(tn_norm_all(zero), zero, TN_0D, (double[]){ 0 }, (double[]){ 0, 0 });
    IS(tn_var_all(far), TN_0D, (double[]){ 1 });
    IS(tn_norm(one, 0), TN_0D, (double[]){ 3 });
    tn_close(cx);
}

static void any_and_all_give_bool(void)
{
    tn_ctx *cx = open_ctx();
    tn_tensor *i = tn_from(cx, TN_I64, TN_SHAPE(2, 3), (int64_t[]){ 0, 1, 2, 0, 0, 0 });
    tn_tensor *f = tn_from(cx, TN_F32, TN_SHAPE(3), (float[]){ NAN, 0, 1 });
    tn_tensor *none = tn_from(cx, TN_F32, TN_SHAPE(0), (float[]){ 0 });
    IS(tn_any(i, 1), TN_SHAPE(2), (double[]){ 1, 0 });
    IS(tn_any_keep(i, 0), TN_SHAPE(1, 3), (double[]){ 0, 1, 1 });
    IS(tn_any_all(f), TN_0D, (double[]){ 1 });
    IS(tn_any_all(none), TN_0D, (double[]){ 0 });
    IS(tn_any_axes(i, TN_AXES(0, 1), true), TN_SHAPE(1, 1), (double[]){ 1 });
    CHECK(tn_dtype_of(tn_any_all(f)) == TN_BOOL);
    IS(tn_all(i, 1), TN_SHAPE(2), (double[]){ 0, 0 });
    IS(tn_all_keep(i, 0), TN_SHAPE(1, 3), (double[]){ 0, 0, 0 });
    IS(tn_all_all(f), TN_0D, (double[]){ 0 });
    IS(tn_all_all(none), TN_0D, (double[]){ 1 });
    IS(tn_all_axes(i, TN_AXES(0, 1), true), TN_SHAPE(1, 1), (double[]){ 0 });
    CHECK(tn_dtype_of(tn_all_all(f)) == TN_BOOL);
    tn_close(cx);
}

static void layer_and_rms_norm_are_as_recorded(void)
{
    tn_ctx *cx = open_ctx();
    tn_tensor *x = tn_from(cx, TN_F32, TN_SHAPE(2, 2, 3), (float[]){ 0.131, 0.33, -0.077, -0.922,
        -1.894, 1.006, -0.695, 0.906, 0.107, 0.613, 0.33, -0.876 });
    tn_tensor *w = tn_from(cx, TN_F32, TN_SHAPE(3), (float[]){ -1.677, -0.725, 0.963 });
    tn_tensor *b = tn_from(cx, TN_F32, TN_SHAPE(3), (float[]){ 0.134, 0.549, 2.135 });
    tn_tensor *w2 = tn_from(cx, TN_F32, TN_SHAPE(2, 3), (float[]){ -0.878, -2.083, 1.832, -0.554,
        1.039, -1.26 });
    ARE(tn_layer_norm(x, 1, w, b, 0), x, TN_SHAPE(2, 2, 3), (double[]){ 0.10373, -0.332164,
        0.947189, 0.577424, 1.32543, 3.42094, 2.18915, -0.338374, 2.13647, -1.4002, 0.203519,
        0.795111 }, (double[]){ -0.784915, 0.400739, 0.384176, -0.277354, 0.18439, 0.092964,
        -0.739413, -0.742172, 1.48159, -0.210784, 0.260189, -0.0494044 });
    ARE(tn_layer_norm(x, 1, w, b, 0), w, TN_SHAPE(2, 2, 3), (double[]){ 0.10373, -0.332164,
        0.947189, 0.577424, 1.32543, 3.42094, 2.18915, -0.338374, 2.13647, -1.4002, 0.203519,
        0.795111 }, (double[]){ -0.0391351, 1.00913, -1.03091 });
    IS(tn_layer_norm(x, 2, w2, NULL, 0.1), TN_SHAPE(2, 2, 3), (double[]){ -0.328025, -1.19829,
        0.298284, 0.384199, -1.74398, -1.58801, 0.920999, -2.42294, 0.108426, -0.420124, 0.381639,
        1.63683 });
    IS(tn_layer_norm(x, 1, NULL, NULL, 0), TN_SHAPE(2, 2, 3), (double[]){ 0.0180503, 1.2154,
        -1.23345, -0.264415, -1.07094, 1.33535, -1.22549, 1.22396, 0.00152991, 0.914845, 0.476525,
        -1.39137 });
    ARE(tn_rms_norm(x, 1, w, 1e-5), x, TN_SHAPE(2, 2, 3), (double[]){ -1.04724, -1.14049, -0.353474,
        1.14723, 1.01884, 0.718805, 1.76019, -0.991991, 0.155615, -1.59125, -0.370337, -1.3058 },
        (double[]){ -0.303287, 0.338156, 0.934339, -0.217427, 0.181235, 0.141945, -1.22261,
        -1.06205, 1.05154, -0.708484, -0.245587, -0.588212 });
    IS(tn_rms_norm(x, 2, NULL, 0.1), TN_SHAPE(2, 2, 3), (double[]){ 0.129064, 0.325123, -0.0758621,
        -0.908375, -1.86601, 0.991133, -0.95656, 1.24697, 0.147269, 0.843699, 0.454194, -1.20568 });
    tn_tensor *h = tn_cast(x, TN_BF16);
    tn_tensor *y = tn_layer_norm(h, 1, tn_cast(w, TN_BF16), tn_cast(b, TN_BF16), 0);
    CHECK(tn_dtype_of(y) == TN_BF16);
    IS(y, TN_SHAPE(2, 2, 3), (double[]){ 0.104004, -0.332031, 0.949219, 0.582031, 1.32812, 3.42188,
        2.1875, -0.337891, 2.14062, -1.40625, 0.205078, 0.796875 });
    tn_close(cx);
}

static void group_norm_is_as_recorded(void)
{
    tn_ctx *cx = open_ctx();
    tn_tensor *x = tn_from(cx, TN_F32, TN_SHAPE(2, 4, 2), (float[]){ -0.384, -0.268, 0.679, -0.395,
        1.327, 0.111, 0.337, -0.32, -1.298, -0.787, 1.742, 0.588, 0.276, -0.934, -0.153, -0.53 });
    tn_tensor *w = tn_from(cx, TN_F32, TN_SHAPE(4), (float[]){ -0.867, -0.137, -0.671, 0.997 });
    tn_tensor *b = tn_from(cx, TN_F32, TN_SHAPE(4), (float[]){ -0.159, 0.68, -0.867, 2.503 });
    ARE(tn_group_norm(x, 2, w, b, 0), x, TN_SHAPE(2, 4, 2), (double[]){ 0.406199, 0.181668,
        0.444183, 0.772675, -1.93683, -0.586284, 2.45886, 1.37465, 0.830864, 0.458732, 0.486589,
        0.619385, -1.78223, 0.0295123, 2.90846, 2.06973 }, (double[]){ 0.0238983, -0.105296,
        0.0122091, 0.069189, -0.00687772, -0.75304, 0.511211, 0.248707, 0.0311898, -0.0832261,
        -0.0481857, 0.100222, -1.65313, -1.76527, 1.64257, 1.77583 });
    IS(tn_group_norm(x, 1, NULL, NULL, 0.1), TN_SHAPE(2, 4, 2), (double[]){ -0.788474, -0.612541,
        0.823736, -0.805157, 1.80653, -0.037727, 0.305038, -0.691408, -1.19217, -0.66745, 1.92944,
        0.744463, 0.424087, -0.818396, -0.0164295, -0.40355 });
    IS(tn_group_norm(x, 4, w, NULL, 0), TN_SHAPE(2, 4, 2), (double[]){ 0.865714, -0.865714,
        -0.136998, 0.136998, -0.670991, 0.670991, 0.996954, -0.996954, 0.866933, -0.866934,
        -0.136998, 0.136998, -0.670991, 0.670991, 0.99686, -0.99686 });
    tn_close(cx);
}

static void batch_norm_updates_its_statistics(void)
{
    tn_ctx *cx = open_ctx();
    tn_tensor *x = tn_from(cx, TN_F32, TN_SHAPE(2, 2, 3), (float[]){ -0.564, 1.156, -0.688, 0.352,
        1.505, -0.522, 0.023, -3.321, 1.963, 0.101, -1.201, 1.265 });
    tn_tensor *w = tn_from(cx, TN_F32, TN_SHAPE(2), (float[]){ 0.36, 0.634 });
    tn_tensor *b = tn_from(cx, TN_F32, TN_SHAPE(2), (float[]){ -0.62, 0.574 });
    tn_tensor *mean = tn_from(cx, TN_F32, TN_SHAPE(2), (float[]){ 0, 0 });
    tn_tensor *var = tn_from(cx, TN_F32, TN_SHAPE(2), (float[]){ 1, 1 });
    tn_batch_norm_opts train = { .training = true }, faster = { .training = true, .momentum = 0.5 };
    IS(tn_batch_norm(x, mean, var, w, b, train), TN_SHAPE(2, 2, 3), (double[]){ -0.690302,
        -0.318813, -0.717084, 0.642552, 1.41746, 0.0551521, -0.563521, -1.28576, -0.144516, 0.47386,
        -0.401192, 1.25616 });
    IS(mean, TN_SHAPE(2), (double[]){ -0.02385, 0.025 });
    IS(var, TN_SHAPE(2), (double[]){ 1.23339, 1.00678 });
    IS(tn_batch_norm(x, mean, var, NULL, NULL, faster), TN_SHAPE(2, 2, 3), (double[]){ -0.195283,
        0.836629, -0.269677, 0.108127, 1.33038, -0.818372, 0.156887, -1.84934, 1.32079, -0.15795,
        -1.53816, 1.07597 });
    IS(mean, TN_SHAPE(2), (double[]){ -0.131175, 0.1375 });
    IS(var, TN_SHAPE(2), (double[]){ 2.28364, 1.03732 });
    ARE(tn_batch_norm(x, mean, var, w, b, (tn_batch_norm_opts){ .eps = 0.01 }), x, TN_SHAPE(2, 2,
        3), (double[]){ -0.722885, -0.314031, -0.752361, 0.706886, 1.42118, 0.165431, -0.583352,
        -1.37824, -0.122202, 0.551388, -0.255218, 1.2725 }, (double[]){ 0.0198088, 0.0396177,
        0.0594265, 0.206504, 0.25813, 0.309756, 0.138662, 0.158471, 0.17828, 0.516261, 0.567887,
        0.619513 });
    IS(mean, TN_SHAPE(2), (double[]){ -0.131175, 0.1375 });
    ARE(tn_batch_norm(x, NULL, NULL, w, b, train), x, TN_SHAPE(2, 2, 3), (double[]){ -0.690302,
        -0.318813, -0.717084, 0.642552, 1.41746, 0.0551521, -0.563521, -1.28576, -0.144516, 0.47386,
        -0.401192, 1.25616 }, (double[]){ -0.072662, -0.0511331, -0.0369196, -0.220582, -0.125631,
        -0.138089, 0.0365337, 0.0476684, 0.0765126, 0.106981, 0.119011, 0.258311 });
    tn_close(cx);
}

static void max_pools_are_as_recorded(void)
{
    tn_ctx *cx = open_ctx();
    tn_tensor *x = tn_from(cx, TN_F32, TN_SHAPE(1, 1, 5, 4), (float[]){ 1.75, 1.5, 2, 2.5, 1.25,
        -1.25, -0.5, 0.75, -2, -1.5, -1, -0.25, 2.25, 0.25, 1, -0.75, -1.75, 0, 0.5, 2.75 });
    tn_tensor *l = tn_from(cx, TN_F32, TN_SHAPE(2, 7), (float[]){ 1, -0.5, -1.25, 0.75, 0.5, -1,
        -0.75, -0.25, -1.5, 1.25, 0.25, 0, -2, -1.75 });
    tn_tensor *i = tn_from(cx, TN_I64, TN_SHAPE(1, 3, 3), (int64_t[]){ -24, -22, -25, -20, -23, -21,
        -28, -27, -26 });
    ARE(tn_max_pool2d(x, 2, 2, (tn_pool_opts){ 0 }), x, TN_SHAPE(1, 1, 2, 2), (double[]){ 1.75, 2.5,
        2.25, 1 }, (double[]){ 0.25, 0, 0, 0.5, 0, 0, 0, 0, 0, 0, 0, 0, 0.75, 0, 1, 0, 0, 0, 0,
        0 });
    IS(tn_max_pool2d(tn_select(x, 0, 0), 3, 2, (tn_pool_opts){ .stride = { 1 } }), TN_SHAPE(1, 3,
        3), (double[]){ 1.75, 2, 2.5, 2.25, 1, 1, 2.25, 1, 2.75 });
    ARE(tn_max_pool2d(x, 3, 3, (tn_pool_opts){ .stride = { 2, 1 }, .padding = { 1 } }), x,
        TN_SHAPE(1, 1, 3, 4), (double[]){ 1.75, 2, 2.5, 2.5, 2.25, 2.25, 1, 1, 2.25, 2.25, 2.75,
        2.75 }, (double[]){ 0.0833333, 0, 0.166667, 0.583333, 0, 0, 0, 0, 0, 0, 0, 0, 2.5, 0, 1.25,
        0, 0, 0, 0, 1.91667 });
    IS(tn_max_pool2d(x, 2, 2, (tn_pool_opts){ .stride = { 1 }, .dilation = { 2, 3 } }), TN_SHAPE(1,
        1, 3, 1), (double[]){ 2.5, 2.25, 2.75 });
    IS(tn_max_pool2d(x, 2, 2, (tn_pool_opts){ .padding = { 0, 1 } }), TN_SHAPE(1, 1, 2, 3),
        (double[]){ 1.75, 2, 2.5, 2.25, 1, -0.25 });
    IS(tn_max_pool1d(l, 3, (tn_pool_opts){ .stride = { 2 }, .padding = { 1 } }), TN_SHAPE(2, 4),
        (double[]){ 1, 0.75, 0.75, -0.75, -0.25, 1.25, 0.25, -1.75 });
    IS(tn_max_pool1d(l, 2, (tn_pool_opts){ .dilation = { 3 } }), TN_SHAPE(2, 2), (double[]){ 1, -1,
        0.25, 1.25 });
    IS(tn_max_pool2d(i, 2, 2, (tn_pool_opts){ .stride = { 1 }, .padding = { 1 } }), TN_SHAPE(1, 4,
        4), (double[]){ -24, -22, -22, -25, -20, -20, -21, -21, -20, -20, -21, -21, -28, -27, -26,
        -26 });
    IS(tn_max_pool2d(tn_cast(i, TN_I8), 2, 2, (tn_pool_opts){ .stride = { 1 }, .padding = { 1 } }),
        TN_SHAPE(1, 4, 4), (double[]){ -24, -22, -22, -25, -20, -20, -21, -21, -20, -20, -21, -21,
        -28, -27, -26, -26 });
    tn_close(cx);
}

static void avg_pools_are_as_recorded(void)
{
    tn_ctx *cx = open_ctx();
    tn_tensor *x = tn_from(cx, TN_F32, TN_SHAPE(1, 1, 4, 3), (float[]){ -0.25, 0.5, -2, 0.75, -1.25,
        -0.75, -0.5, 0, -1, -1.75, 0.25, -1.5 });
    tn_tensor *l = tn_from(cx, TN_F32, TN_SHAPE(2, 7), (float[]){ 0.25, 1.25, -0.75, -1.25, -1.75,
        1, 0.5, -2, -1.5, -0.5, 0.75, -0.25, 0, -1 });
    ARE(tn_avg_pool2d(x, 2, 2, (tn_pool_opts){ 0 }), x, TN_SHAPE(1, 1, 2, 1), (double[]){ -0.0625,
        -0.5 }, (double[]){ 0.125, 0.125, 0, 0.125, 0.125, 0, 0.25, 0.25, 0, 0.25, 0.25, 0 });
    ARE(tn_avg_pool2d(x, 3, 2, (tn_pool_opts){ .stride = { 2, 1 }, .padding = { 1 } }), x,
        TN_SHAPE(1, 1, 2, 4), (double[]){ 0.0833333, -0.0416667, -0.583333, -0.458333, -0.25,
        -0.416667, -0.708333, -0.541667 }, (double[]){ 0.0625, 0.104167, 0.145833, 0.291667, 0.375,
        0.458333, 0.229167, 0.270833, 0.3125, 0.229167, 0.270833, 0.3125 });
    ARE(tn_avg_pool2d(x, 3, 2, (tn_pool_opts){ .stride = { 2, 1 }, .padding = { 1 },
        .exclude_padding = true }), x, TN_SHAPE(1, 1, 2, 4), (double[]){ 0.25, -0.0625, -0.875,
        -1.375, -0.5, -0.416667, -0.708333, -1.08333 }, (double[]){ 0.125, 0.15625, 0.34375,
        0.458333, 0.427083, 0.822917, 0.333333, 0.270833, 0.479167, 0.333333, 0.270833, 0.479167 });
    IS(tn_avg_pool1d(l, 3, (tn_pool_opts){ .stride = { 2 }, .padding = { 1 } }), TN_SHAPE(2, 4),
        (double[]){ 0.5, -0.25, -0.666667, 0.5, -1.16667, -0.416667, 0.166667, -0.333333 });
    IS(tn_avg_pool1d(l, 3, (tn_pool_opts){ .padding = { 1 }, .exclude_padding = true }), TN_SHAPE(2,
        3), (double[]){ 0.75, -1.25, 0.75, -1.75, 0, -0.5 });
    tn_close(cx);
}

static void adaptive_pools_are_as_recorded(void)
{
    tn_ctx *cx = open_ctx();
    tn_tensor *x = tn_from(cx, TN_F32, TN_SHAPE(1, 1, 4, 5), (float[]){ 1.5, -1.75, -2, 1.75, 0.5,
        -1.25, 0.25, 0.75, 1.25, 2.75, -0.25, -1, -0.5, 2.25, -1.5, 0, -0.75, 1, 2.5, 2 });
    ARE(tn_adaptive_avg_pool2d(x, 3, 2), x, TN_SHAPE(1, 1, 3, 2), (double[]){ -0.416667, 0.833333,
        -0.333333, 0.833333, -0.25, 0.958333 }, (double[]){ 0.0277778, 0.0277778, 0.0833333,
        0.0555556, 0.0555556, 0.111111, 0.111111, 0.277778, 0.166667, 0.166667, 0.222222, 0.222222,
        0.5, 0.277778, 0.277778, 0.138889, 0.138889, 0.305556, 0.166667, 0.166667 });
    IS(tn_adaptive_avg_pool2d(x, 2, 5), TN_SHAPE(1, 1, 2, 5), (double[]){ 0.125, -0.75, -0.625, 1.5,
        1.625, -0.125, -0.875, 0.25, 2.375, 0.25 });
    IS(tn_adaptive_avg_pool2d(tn_select(x, 0, 0), 1, 1), TN_SHAPE(1, 1, 1), (double[]){ 0.375 });
    IS(tn_adaptive_avg_pool2d(tn_slice(x, 1, 0, 1, 1), 6, 2), TN_SHAPE(1, 1, 6, 2), (double[]){
        -0.75, 0.0833333, -0.416667, 0.833333, -0.0833333, 1.58333, -0.583333, 0.0833333, -0.25,
        0.958333, 0.0833333, 1.83333 });
    ARE(tn_adaptive_max_pool2d(x, 3, 2), x, TN_SHAPE(1, 1, 3, 2), (double[]){ 1.5, 2.75, 0.75, 2.75,
        1, 2.5 }, (double[]){ 0.166667, 0, 0, 0, 0, 0, 0, 0.5, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0.833333,
        1, 0 });
    IS(tn_adaptive_max_pool2d(x, 2, 5), TN_SHAPE(1, 1, 2, 5), (double[]){ 1.5, 0.25, 0.75, 1.75,
        2.75, 0, -0.75, 1, 2.5, 2 });
    IS(tn_adaptive_max_pool2d(tn_select(x, 0, 0), 1, 1), TN_SHAPE(1, 1, 1), (double[]){ 2.75 });
    IS(tn_adaptive_max_pool2d(tn_slice(x, 1, 0, 1, 1), 6, 2), TN_SHAPE(1, 1, 6, 2), (double[]){ 1.5,
        1.75, 1.5, 2.75, 0.75, 2.75, -0.25, 2.25, 1, 2.5, 1, 2.5 });
    tn_close(cx);
}

static void attention_is_as_recorded(void)
{
    tn_ctx *cx = open_ctx();
    tn_tensor *q = tn_from(cx, TN_F32, TN_SHAPE(2, 3, 2), (float[]){ -0.694, 1.215, 0.052, 0.816,
        -0.701, -2.77, -0.744, 0.25, 3.099, -0.31, 0.435, 0.578 });
    tn_tensor *k = tn_from(cx, TN_F32, TN_SHAPE(2, 4, 2), (float[]){ 0.397, 0.431, -1.036, -0.617,
        1.466, -0.501, -0.613, -0.362, -0.844, -0.181, -0.349, 1.151, -1.564, 0.653, 2.668,
        0.703 });
    tn_tensor *v = tn_from(cx, TN_F32, TN_SHAPE(2, 4, 2), (float[]){ 0.436, 0.905, 0.375, 1.105,
        0.091, -0.135, -0.858, -1.126, -0.06, 0.613, -0.235, -1.514, 0.17, -0.507, 1.045, -1.431 });
    tn_tensor *mask = tn_from(cx, TN_BOOL, TN_SHAPE(3, 4), (bool[]){ 1, 0, 1, 0, 0, 1, 0, 0, 1, 1,
        1, 1 });
    tn_tensor *bias = tn_from(cx, TN_F32, TN_SHAPE(2, 3, 4), (float[]){ 0.009, 0.641, 0.619, -0.792,
        -0.736, 0.849, -0.649, -1.632, 0.688, -0.577, 1.178, -0.568, 0.402, 0.912, -1.625, 0.135,
        1.502, 0.231, -1.753, 0.536, -0.95, -0.247, -0.193, 0.223 });
    tn_tensor *v1 = tn_from(cx, TN_F32, TN_SHAPE(4, 2), (float[]){ 0.561, 0.079, -0.492, 0.459,
        0.636, -0.151, 1.46, 0.477 });
    tn_tensor *k1 = tn_from(cx, TN_F32, TN_SHAPE(4, 2), (float[]){ 0.453, -0.619, 1.513, 0.13,
        -0.095, 0.802, -0.022, -0.082 });
    ARE(tn_attention(q, k, v, (tn_attention_opts){ 0 }), q, TN_SHAPE(2, 3, 2), (double[]){ 0.01901,
        0.288342, 0.0593824, 0.2592, 0.000725456, 0.323078, 0.0496036, -0.515425, 1.04275, -1.42989,
        0.487663, -1.08193 }, (double[]){ 0.0110674, 0.0185987, 0.0200218, 0.0537981, -0.116016,
        -0.0434368, -0.0942108, -0.179589, 0.00144021, -0.000698327, 0.0917519, -0.173763 });
    ARE(tn_attention(q, k, v, (tn_attention_opts){ .causal = true }), k, TN_SHAPE(2, 3, 2),
        (double[]){ 0.436, 0.905, 0.415179, 0.973265, 0.327367, 0.874277, -0.06, 0.613, -0.180473,
        -0.851262, -0.0822704, -0.724976 }, (double[]){ -0.00189089, -0.0124622, -0.0513833,
        -0.198051, 0.0532742, 0.210513, 0, 0, 0.995909, 0.04479, -1.03357, -0.0948366, 0.0376648,
        0.0500466, 0, 0 });
    IS(tn_attention(q, k, v, (tn_attention_opts){ .mask = mask }), TN_SHAPE(2, 3, 2), (double[]){
        0.363572, 0.686666, 0.375, 1.105, 0.000725456, 0.323078, 0.084578, -0.0910318, -0.235,
        -1.514, 0.487663, -1.08193 });
    ARE(tn_attention(q, k, v, (tn_attention_opts){ .mask = mask, .scale = 2 }), v, TN_SHAPE(2, 3,
        2), (double[]){ 0.428061, 0.881069, 0.375, 1.105, 0.226951, 0.827067, 0.127641, -0.300732,
        -0.235, -1.514, 0.877069, -1.39098 }, (double[]){ 0.081562, 0.163007, 0.612092, 0.767844,
        0.00762316, 0.0106818, 0.048723, 0.0584676, 0.120801, 0.137364, 0.845911, 0.937963,
        0.494642, 0.564332, 0.788646, 0.860341 });
    IS(tn_attention(q, k, v, (tn_attention_opts){ .mask = bias }), TN_SHAPE(2, 3, 2), (double[]){
        0.217195, 0.624115, 0.277231, 0.749818, 0.0549534, 0.186117, -0.0857873, -0.723176, 1.04225,
        -1.42811, 0.647418, -1.24503 });
    IS(tn_attention(q, k1, v1, (tn_attention_opts){ 0 }), TN_SHAPE(2, 3, 2), (double[]){ 0.670903,
        0.103112, 0.50983, 0.181183, 0.717605, 0.204991, 0.709424, 0.16597, -0.304195, 0.409087,
        0.396274, 0.224576 });
    IS(tn_attention(tn_select(q, 0, 0), k1, v1, (tn_attention_opts){ .causal = true }), TN_SHAPE(3,
        2), (double[]){ 0.561, 0.079, -0.0872852, 0.312949, 0.448064, 0.106232 });
    tn_close(cx);
}

static void cross_entropy_is_as_recorded(void)
{
    tn_ctx *cx = open_ctx();
    tn_tensor *x = tn_from(cx, TN_F32, TN_SHAPE(3, 4), (float[]){ 0.643, -2.054, -1.311, -3.722,
        5.363, 4.117, -0.58, -0.797, 2.071, -0.067, -2.412, 0.238 });
    tn_tensor *y = tn_from(cx, TN_I64, TN_SHAPE(3), (int64_t[]){ 2, 0, 3 });
    tn_tensor *w = tn_from(cx, TN_F32, TN_SHAPE(4), (float[]){ 0.5, 1, 2, 0.25 });
    tn_tensor *ignored = tn_from(cx, TN_I64, TN_SHAPE(3), (int64_t[]){ 2, -100, 1 });
    tn_tensor *p = tn_from(cx, TN_F32, TN_SHAPE(3, 4), (float[]){ 0.18, 0.31, 0.043, 0.467, 0.26,
        0.062, 0.2, 0.477, 0.669, 0.186, 0.068, 0.077 });
    tn_tensor *y32 = tn_from(cx, TN_I32, TN_SHAPE(3), (int32_t[]){ 2, 0, 3 });
    ARE(tn_cross_entropy(x, y), x, TN_0D, (double[]){ 1.49927 }, (double[]){ 0.272815, 0.0183898,
        -0.294674, 0.00346875, -0.0754132, 0.0741915, 0.00067682, 0.000544793, 0.258574, 0.0304834,
        0.00292175, -0.291979 });
    IS(tn_cross_entropy(x, y32), TN_0D, (double[]){ 1.49927 });
    ARE(tn_cross_entropy(x, ignored), x, TN_0D, (double[]){ 2.27316 }, (double[]){ 0.409223,
        0.0275847, -0.442011, 0.00520313, 0, 0, 0, 0, 0.387861, -0.454275, 0.00438262, 0.0620317 });
    IS(tn_cross_entropy_with(x, ignored, (tn_class_opts){ .weight = w }), TN_0D, (double[]){
        2.23355 });
    ARE(tn_cross_entropy_with(x, ignored, (tn_class_opts){ .weight = w, .reduce = TN_REDUCTION_SUM }), x,
        TN_0D, (double[]){ 6.70066 }, (double[]){ 1.63689, 0.110339, -1.76804, 0.0208125, 0, 0, 0,
        0, 0.775721, -0.90855, 0.00876524, 0.124063 });
    ARE(tn_cross_entropy_with(x, ignored, (tn_class_opts){ .weight = w, .reduce = TN_REDUCTION_NONE }), x,
        TN_SHAPE(3), (double[]){ 4.3087, 0, 2.39196 }, (double[]){ 0.54563, 0.0367795, -0.589348,
        0.0069375, 0, 0, 0, 0, 0.775721, -0.90855, 0.00876524, 0.124063 });
    IS(tn_cross_entropy_with(x, ignored, (tn_class_opts){ .label_smoothing = 0.1 }), TN_0D,
        (double[]){ 2.28693 });
    ARE(tn_cross_entropy_with(x, ignored, (tn_class_opts){ .weight = w, .label_smoothing = 0.2 }),
        x, TN_0D, (double[]){ 2.13621 }, (double[]){ 0.479324, 0.0162051, -0.497563, 0.00203373, 0,
        0, 0, 0, 0.247008, -0.253231, -0.0304481, 0.0366709 });
    IS(tn_cross_entropy_with(x, ignored, (tn_class_opts){ .weight = w, .label_smoothing = 0.2,
        .reduce = TN_REDUCTION_NONE }), TN_SHAPE(3), (double[]){ 3.86934, 0, 2.5393 });
    IS(tn_cross_entropy_with(x, ignored, (tn_class_opts){ .reduce = TN_REDUCTION_SUM }), TN_0D, (double[]){
        4.54631 });
    IS(tn_cross_entropy_with(x, y, (tn_class_opts){ .ignore = 1, .use_ignore = true }), TN_0D,
        (double[]){ 1.49927 });
    IS(tn_cross_entropy_with(x, y, (tn_class_opts){ .weight = w, .label_smoothing = 0.1, .ignore =
        1, .use_ignore = true }), TN_0D, (double[]){ 1.95553 });
    ARE(tn_cross_entropy(x, p), x, TN_0D, (double[]){ 2.90564 }, (double[]){ 0.212815, -0.0849436,
        0.0243262, -0.152198, 0.170996, 0.0534507, -0.0659905, -0.158456, 0.0355737, -0.0315166,
        -0.0197449, 0.0156878 });
    IS(tn_cross_entropy_with(x, p, (tn_class_opts){ .weight = w, .label_smoothing = 0.1 }), TN_0D,
        (double[]){ 2.17103 });
    IS(tn_cross_entropy_with(x, p, (tn_class_opts){ .reduce = TN_REDUCTION_NONE }), TN_SHAPE(3), (double[]){
        3.1589, 4.46041, 1.09762 });
    IS(tn_cross_entropy_with(x, p, (tn_class_opts){ .weight = w, .reduce = TN_REDUCTION_SUM }), TN_0D,
        (double[]){ 6.22021 });
    tn_tensor *none = tn_from(cx, TN_I64, TN_SHAPE(3), (int64_t[]){ -100, -100, -100 });
    IS(tn_cross_entropy(x, none), TN_0D, (double[]){ NAN });
    IS(tn_cross_entropy_with(x, none, (tn_class_opts){ .reduce = TN_REDUCTION_SUM }), TN_0D, (double[]){ 0 });
    tn_tensor *big = tn_from(cx, TN_F32, TN_SHAPE(1, 3), (float[]){ 10000, -10000, 0 });
    tn_tensor *yb = tn_from(cx, TN_I64, TN_SHAPE(1), (int64_t[]){ 1 });
    ARE(tn_cross_entropy(big, yb), big, TN_0D, (double[]){ 20000 }, (double[]){ 1, -1, 0 });
    tn_close(cx);
}

static void classes_stand_behind_the_batch(void)
{
    tn_ctx *cx = open_ctx();
    tn_tensor *x = tn_from(cx, TN_F32, TN_SHAPE(2, 3, 2), (float[]){ -1.691, -0.712, 0.039, -0.244,
        -1.092, 0.28, -1.107, -0.713, 1.78, -0.271, 1.387, -1.474 });
    tn_tensor *y = tn_from(cx, TN_I64, TN_SHAPE(2, 2), (int64_t[]){ 0, 2, 1, -100 });
    tn_tensor *x1 = tn_from(cx, TN_F32, TN_SHAPE(3), (float[]){ 0.107, 0.711, 0.58 });
    tn_tensor *y0 = tn_from(cx, TN_I64, TN_0D, (int64_t[]){ 1 });
    tn_tensor *w = tn_from(cx, TN_F32, TN_SHAPE(3), (float[]){ 0.5, 1, 2 });
    tn_tensor *p = tn_from(cx, TN_F32, TN_SHAPE(2, 3, 2), (float[]){ 0.425, 0.354, 0.332, 0.385,
        0.243, 0.261, 0.157, 0.222, 0.052, 0.243, 0.791, 0.535 });
    ARE(tn_cross_entropy(x, y), x, TN_0D, (double[]){ 1.1195 }, (double[]){ -0.293937, 0.0629713,
        0.222223, 0.100552, 0.0717137, -0.163524, 0.0107357, 0, -0.140741, 0, 0.130005, 0 });
    IS(tn_cross_entropy_with(x, y, (tn_class_opts){ .weight = w, .label_smoothing = 0.1 }), TN_0D,
        (double[]){ 0.877499 });
    IS(tn_cross_entropy_with(x, y, (tn_class_opts){ .weight = w, .reduce = TN_REDUCTION_NONE }), TN_SHAPE(2,
        2), (double[]){ 1.06773, 1.34893, 0.548568, 0 });
    IS(tn_cross_entropy_with(x, p, (tn_class_opts){ .weight = w }), TN_0D, (double[]){ 1.62838 });
    ARE(tn_cross_entropy(x1, y0), x1, TN_0D, (double[]){ 0.885352 }, (double[]){ 0.225519,
        -0.587431, 0.361913 });
    IS(tn_cross_entropy_with(x1, y0, (tn_class_opts){ .weight = w, .label_smoothing = 0.3 }), TN_0D,
        (double[]){ 0.98602 });
    ARE(tn_nll(x, y), x, TN_0D, (double[]){ -0.123 }, (double[]){ -0.333333, 0, 0, 0, 0, -0.333333,
        0, 0, -0.333333, 0, 0, 0 });
    IS(tn_nll_with(x, y, (tn_class_opts){ .weight = w }), TN_0D, (double[]){ -0.427 });
    IS(tn_nll(x1, y0), TN_0D, (double[]){ -0.711 });
    tn_close(cx);
}

static void losses_of_elements_are_as_recorded(void)
{
    tn_ctx *cx = open_ctx();
    tn_tensor *x = tn_from(cx, TN_F32, TN_SHAPE(2, 3), (float[]){ 0.5, -2, 3, 1, 0.25, -0.75 });
    tn_tensor *y = tn_from(cx, TN_F32, TN_SHAPE(2, 3), (float[]){ 0, -2, 0.5, 2, 0.5, 1 });
    tn_tensor *w = tn_from(cx, TN_F32, TN_SHAPE(2, 3), (float[]){ 1, 2, 3, 0.5, 0, 1 });
    ARE(tn_mse(x, y), x, TN_0D, (double[]){ 1.77083 }, (double[]){ 0.166667, 0, 0.833333, -0.333333,
        -0.0833333, -0.583333 });
    IS(tn_mse_with(x, y, (tn_loss_opts){ .weight = w }), TN_0D, (double[]){ 3.00833 });
    IS(tn_mse_with(x, y, (tn_loss_opts){ .weight = w, .reduce = TN_REDUCTION_SUM }), TN_0D, (double[]){
        22.5625 });
    IS(tn_mse_with(x, y, (tn_loss_opts){ .reduce = TN_REDUCTION_NONE }), TN_SHAPE(2, 3), (double[]){ 0.25, 0,
        6.25, 1, 0.0625, 3.0625 });
    ARE(tn_l1(x, y), x, TN_0D, (double[]){ 1 }, (double[]){ 0.166667, 0, 0.166667, -0.166667,
        -0.166667, -0.166667 });
    IS(tn_l1_with(x, y, (tn_loss_opts){ .weight = w }), TN_0D, (double[]){ 1.36667 });
    IS(tn_l1_with(x, y, (tn_loss_opts){ .weight = w, .reduce = TN_REDUCTION_SUM }), TN_0D, (double[]){
        10.25 });
    IS(tn_l1_with(x, y, (tn_loss_opts){ .reduce = TN_REDUCTION_NONE }), TN_SHAPE(2, 3), (double[]){ 0.5, 0,
        2.5, 1, 0.25, 1.75 });
    ARE(tn_huber(x, y), x, TN_0D, (double[]){ 0.651042 }, (double[]){ 0.0833333, 0, 0.166667,
        -0.166667, -0.0416667, -0.166667 });
    IS(tn_huber_with(x, y, (tn_loss_opts){ .weight = w }), TN_0D, (double[]){ 1.27083 });
    IS(tn_huber_with(x, y, (tn_loss_opts){ .weight = w, .reduce = TN_REDUCTION_SUM }), TN_0D, (double[]){
        7.625 });
    IS(tn_huber_with(x, y, (tn_loss_opts){ .reduce = TN_REDUCTION_NONE }), TN_SHAPE(2, 3), (double[]){ 0.125,
        0, 2, 0.5, 0.03125, 1.25 });
    ARE(tn_huber_with(x, y, (tn_loss_opts){ .delta = 0.5, .reduce = TN_REDUCTION_NONE }), x, TN_SHAPE(2, 3),
        (double[]){ 0.125, 0, 1.125, 0.375, 0.03125, 0.75 }, (double[]){ 0.0833333, 0, 0.25,
        -0.333333, -0.208333, -0.5 });
    IS(tn_mse(x, tn_select(y, 0, 0)), TN_0D, (double[]){ 2.35417 });
    tn_close(cx);
}

static void binary_cross_entropy_is_as_recorded(void)
{
    tn_ctx *cx = open_ctx();
    tn_tensor *p = tn_from(cx, TN_F32, TN_SHAPE(6), (float[]){ 0.1, 0.9, 0.5, 1e-09, 0.999, 0.3 });
    tn_tensor *y = tn_from(cx, TN_F32, TN_SHAPE(6), (float[]){ 0, 1, 1, 1, 0, 0.25 });
    tn_tensor *end = tn_from(cx, TN_F32, TN_SHAPE(4), (float[]){ 0, 1, 0, 1 });
    tn_tensor *yend = tn_from(cx, TN_F32, TN_SHAPE(4), (float[]){ 1, 0, 0, 1 });
    tn_tensor *x = tn_from(cx, TN_F32, TN_SHAPE(6), (float[]){ -100, -1, 0, 0.5, 3, 200 });
    tn_tensor *w = tn_from(cx, TN_F32, TN_SHAPE(6), (float[]){ 1, 2, 0.5, 1, 0, 3 });
    tn_tensor *pw = tn_from(cx, TN_F32, TN_SHAPE(6), (float[]){ 2, 0.5, 1, 3, 1, 2 });
    ARE(tn_bce(p, y), p, TN_0D, (double[]){ 4.85057 }, (double[]){ 0.185185, -0.185185, -0.333333,
        -166666672, 166.669, 0.0396825 });
    ARE(tn_bce(p, y), y, TN_0D, (double[]){ 4.85057 }, (double[]){ 0.366204, -0.366204, 0, 3.45388,
        -1.15113, 0.141216 });
    IS(tn_bce_with(end, yend, (tn_loss_opts){ .reduce = TN_REDUCTION_NONE }), TN_SHAPE(4), (double[]){ 100,
        100, 0, 0 });
    ARE(tn_bce(tn_slice(end, 0, 0, 2, 1), tn_slice(yend, 0, 0, 2, 1)), end, TN_0D, (double[]){ 100
        }, (double[]){ -499999997952, 499999997952, 0, 0 });
    IS(tn_bce_with(p, y, (tn_loss_opts){ .weight = w }), TN_0D, (double[]){ 3.84857 });
    ARE(tn_bce_logits(x, y), x, TN_0D, (double[]){ 25.9215 }, (double[]){ 0, -0.121843, -0.0833333,
        -0.0629234, 0.158762, 0.125 });
    IS(tn_bce_logits_with(x, y, (tn_loss_opts){ .weight = w, .pos_weight = pw }), TN_0D, (double[]){
        75.5137 });
    ARE(tn_bce_logits_with(x, y, (tn_loss_opts){ .pos_weight = pw, .reduce = TN_REDUCTION_NONE }), x,
        TN_SHAPE(6), (double[]){ 0, 0.656631, 0.693147, 1.42223, 3.04859, 150 }, (double[]){ 0,
        -0.121843, -0.25, -0.755081, 0.793812, 0.75 });
    tn_close(cx);
}

static void kl_is_as_recorded(void)
{
    tn_ctx *cx = open_ctx();
    tn_tensor *x = tn_from(cx, TN_F32, TN_SHAPE(2, 3), (float[]){ -0.863, -1.828, -0.873, -0.247,
        -1.851, -2.782 });
    tn_tensor *y = tn_from(cx, TN_F32, TN_SHAPE(2, 3), (float[]){ 0.2, 0.5, 0.3, 0, 1, 0 });
    tn_tensor *l = tn_from(cx, TN_F32, TN_SHAPE(2, 3), (float[]){ -0.219, -2.464, -2.195, -2.186,
        -0.537, -1.192 });
    ARE(tn_kl(x, y), x, TN_0D, (double[]){ 0.361641 }, (double[]){ -0.0333333, -0.0833333, -0.05, 0,
        -0.166667, 0 });
    IS(tn_kl_with(x, y, (tn_loss_opts){ .reduce = TN_REDUCTION_NONE }), TN_SHAPE(2, 3), (double[]){ -0.149288,
        0.567426, -0.0992919, 0, 1.851, 0 });
    IS(tn_kl_with(x, y, (tn_loss_opts){ .batch_mean = true }), TN_0D, (double[]){ 1.08492 });
    ARE(tn_kl_with(x, l, (tn_loss_opts){ .log_target = true, .reduce = TN_REDUCTION_SUM }), l, TN_0D,
        (double[]){ 1.3489 }, (double[]){ 1.32066, 0.0309742, -0.0358575, -0.105511, 1.35253,
        0.786359 });
    tn_close(cx);
}

static void pieces_join_and_part(void)
{
    tn_ctx *cx = open_ctx();
    tn_tensor *a = tn_from(cx, TN_F32, TN_SHAPE(2, 3), (float[]){ 1.627, -1.478, 0.019, -1.689,
        -0.05, 0.171 });
    tn_tensor *b = tn_from(cx, TN_F32, TN_SHAPE(2, 3), (float[]){ -2.576, 0.258, 1.305, -0.243,
        1.102, -0.14 });
    tn_tensor *i = tn_from(cx, TN_I64, TN_SHAPE(2, 3), (int64_t[]){ 0, 1, 2, 3, 4, 5 });
    tn_tensor *ab[] = { a, b }, *part[3];
    IS(tn_stack(2, ab, 0), TN_SHAPE(2, 2, 3), (double[]){ 1.627, -1.478, 0.019, -1.689, -0.05,
        0.171, -2.576, 0.258, 1.305, -0.243, 1.102, -0.14 });
    IS(tn_stack(2, ab, 1), TN_SHAPE(2, 2, 3), (double[]){ 1.627, -1.478, 0.019, -2.576, 0.258,
        1.305, -1.689, -0.05, 0.171, -0.243, 1.102, -0.14 });
    IS(tn_stack(2, ab, -1), TN_SHAPE(2, 3, 2), (double[]){ 1.627, -2.576, -1.478, 0.258, 0.019,
        1.305, -1.689, -0.243, -0.05, 1.102, 0.171, -0.14 });
    CHECK_INT(tn_split(a, 2, 1, 3, part), 2);
    IS(part[0], TN_SHAPE(2, 2), (double[]){ 1.627, -1.478, -1.689, -0.05 });
    IS(part[1], TN_SHAPE(2, 1), (double[]){ 0.019, 0.171 });
    CHECK(part[2] == NULL && tn_is_view(part[0]));
    CHECK_INT(tn_chunk(i, 2, -1, part), 2);
    IS(part[0], TN_SHAPE(2, 2), (double[]){ 0, 1, 3, 4 });
    IS(part[1], TN_SHAPE(2, 1), (double[]){ 2, 5 });
    CHECK_INT(tn_chunk(a, 3, 0, part), 2);
    ARE(tn_repeat(a, TN_SHAPE(2, 1, 2)), a, TN_SHAPE(2, 2, 6), (double[]){ 1.627, -1.478, 0.019,
        1.627, -1.478, 0.019, -1.689, -0.05, 0.171, -1.689, -0.05, 0.171, 1.627, -1.478, 0.019,
        1.627, -1.478, 0.019, -1.689, -0.05, 0.171, -1.689, -0.05, 0.171 }, (double[]){ 1.41667,
        1.58333, 1.75, 2.41667, 2.58333, 2.75 });
    IS(tn_repeat(i, TN_SHAPE(1, 0)), TN_SHAPE(2, 0), (double[]){ 0 });
    IS(tn_repeat(i, TN_SHAPE(1, 1)), TN_SHAPE(2, 3), (double[]){ 0, 1, 2, 3, 4, 5 });
    ARE(tn_roll(a, 1, 1), a, TN_SHAPE(2, 3), (double[]){ 0.019, 1.627, -1.478, 0.171, -1.689, -0.05
        }, (double[]){ 0.333333, 0.5, 0.166667, 0.833333, 1, 0.666667 });
    IS(tn_roll(i, -4, 1), TN_SHAPE(2, 3), (double[]){ 1, 2, 0, 4, 5, 3 });
    IS(tn_roll(i, 3, 1), TN_SHAPE(2, 3), (double[]){ 0, 1, 2, 3, 4, 5 });
    IS(tn_flatten(tn_transpose(i, 0, 1), 0, -1), TN_SHAPE(6), (double[]){ 0, 3, 1, 4, 2, 5 });
    IS(tn_flatten(tn_unsqueeze(i, 0), 0, 1), TN_SHAPE(2, 3), (double[]){ 0, 1, 2, 3, 4, 5 });
    IS(tn_flatten(tn_select(tn_select(i, 0, 1), 0, 2), 0, -1), TN_SHAPE(1), (double[]){ 5 });
    tn_close(cx);
}

static void triangles_and_ranges_are_as_recorded(void)
{
    tn_ctx *cx = open_ctx();
    tn_tensor *a = tn_from(cx, TN_F32, TN_SHAPE(2, 2, 3), (float[]){ -0.719, -1.285, 0.642, 1.82,
        1.238, 0.99, -0.548, -0.293, 0.497, 0.753, -0.319, 2.363 });
    ARE(tn_tril(a, 0), a, TN_SHAPE(2, 2, 3), (double[]){ -0.719, 0, 0, 1.82, 1.238, 0, -0.548, 0, 0,
        0.753, -0.319, 0 }, (double[]){ 0.0833333, 0, 0, 0.333333, 0.416667, 0, 0.583333, 0, 0,
        0.833333, 0.916667, 0 });
    IS(tn_tril(a, 1), TN_SHAPE(2, 2, 3), (double[]){ -0.719, -1.285, 0, 1.82, 1.238, 0.99, -0.548,
        -0.293, 0, 0.753, -0.319, 2.363 });
    IS(tn_triu(a, -1), TN_SHAPE(2, 2, 3), (double[]){ -0.719, -1.285, 0.642, 1.82, 1.238, 0.99,
        -0.548, -0.293, 0.497, 0.753, -0.319, 2.363 });
    IS(tn_triu(a, 2), TN_SHAPE(2, 2, 3), (double[]){ 0, 0, 0.642, 0, 0, 0, 0, 0, 0.497, 0, 0, 0 });
    IS(tn_eye(cx, TN_F32, 2, 3), TN_SHAPE(2, 3), (double[]){ 1, 0, 0, 0, 1, 0 });
    IS(tn_eye(cx, TN_I64, 2, 2), TN_SHAPE(2, 2), (double[]){ 1, 0, 0, 1 });
    IS(tn_linspace(cx, TN_F32, 1, 2, 4), TN_SHAPE(4), (double[]){ 1, 1.33333, 1.66667, 2 });
    IS(tn_linspace(cx, TN_F64, -1, 1, 5), TN_SHAPE(5), (double[]){ -1, -0.5, 0, 0.5, 1 });
    IS(tn_linspace(cx, TN_F32, 3, 9, 1), TN_SHAPE(1), (double[]){ 3 });
    IS(tn_linspace(cx, TN_I64, 0, 10, 4), TN_SHAPE(4), (double[]){ 0, 3, 6, 10 });
    IS(tn_linspace(cx, TN_I32, 3, -3, 5), TN_SHAPE(5), (double[]){ 3, 1, 0, -1, -3 });
    IS(tn_linspace(cx, TN_F32, 0, 1, 0), TN_SHAPE(0), (double[]){ 0 });
    tn_close(cx);
}

static void indices_choose_elements(void)
{
    tn_ctx *cx = open_ctx();
    tn_tensor *x = tn_from(cx, TN_F32, TN_SHAPE(3, 4), (float[]){ -0.703, 0.285, -0.91, 1.271,
        -0.394, -1.367, -1.109, 0.534, -0.499, 0.395, 0.146, -1.492 });
    tn_tensor *i = tn_from(cx, TN_I64, TN_SHAPE(3), (int64_t[]){ 2, 0, 2 });
    tn_tensor *ii = tn_from(cx, TN_I64, TN_SHAPE(2, 2), (int64_t[]){ 0, 2, 1, 1 });
    tn_tensor *take = tn_from(cx, TN_I64, TN_SHAPE(3, 1), (int64_t[]){ 3, 0, 1 });
    tn_tensor *row = tn_from(cx, TN_I64, TN_SHAPE(1, 4), (int64_t[]){ 2, 0, 1, 1 });
    ARE(tn_index_select(x, 0, i), x, TN_SHAPE(3, 4), (double[]){ -0.499, 0.395, 0.146, -1.492,
        -0.703, 0.285, -0.91, 1.271, -0.499, 0.395, 0.146, -1.492 }, (double[]){ 0.416667, 0.5,
        0.583333, 0.666667, 0, 0, 0, 0, 0.833333, 1, 1.16667, 1.33333 });
    IS(tn_index_select(x, -1, i), TN_SHAPE(3, 3), (double[]){ -0.91, -0.703, -0.91, -1.109, -0.394,
        -1.109, 0.146, -0.499, 0.146 });
    ARE(tn_embed(ii, x), x, TN_SHAPE(2, 2, 4), (double[]){ -0.703, 0.285, -0.91, 1.271, -0.499,
        0.395, 0.146, -1.492, -0.394, -1.367, -1.109, 0.534, -0.394, -1.367, -1.109, 0.534 },
        (double[]){ 0.0625, 0.125, 0.1875, 0.25, 1.375, 1.5, 1.625, 1.75, 0.3125, 0.375, 0.4375,
        0.5 });
    IS(tn_embed(tn_cast(tn_select(i, 0, 0), TN_I32), x), TN_SHAPE(4), (double[]){ -0.499, 0.395,
        0.146, -1.492 });
    IS(tn_one_hot(ii, 3), TN_SHAPE(2, 2, 3), (double[]){ 1, 0, 0, 0, 0, 1, 0, 1, 0, 0, 1, 0 });
    ARE(tn_take_along_axis(x, take, 1), x, TN_SHAPE(3, 1), (double[]){ 1.271, -0.394, 0.395 },
        (double[]){ 0, 0, 0, 0.333333, 0.666667, 0, 0, 0, 0, 1, 0, 0 });
    IS(tn_take_along_axis(x, row, 0), TN_SHAPE(1, 4), (double[]){ -0.499, 0.285, -1.109, 0.534 });
    IS(tn_take_along_axis(tn_slice(x, 0, 0, 1, 1), take, 1), TN_SHAPE(3, 1), (double[]){ 1.271,
        -0.703, 0.285 });
    tn_close(cx);
}

static void sort_and_topk_are_as_recorded(void)
{
    tn_ctx *cx = open_ctx();
    tn_tensor *x = tn_from(cx, TN_F32, TN_SHAPE(2, 5), (float[]){ 3, 1, 2, 1, NAN, 0, -INFINITY, 5,
        INFINITY, 5 });
    tn_tensor *z = tn_from(cx, TN_F32, TN_SHAPE(2, 5), (float[]){ -0.154, -0.689, 0.317, -1.269,
        0.128, -0.859, -0.244, 0.231, 0.398, -0.748 });
    tn_pair p;
    p = tn_sort(x, 1, false);
    IS(p.values, TN_SHAPE(2, 5), (double[]){ 1, 1, 2, 3, NAN, -INFINITY, 0, 5, 5, INFINITY });
    IS(p.indices, TN_SHAPE(2, 5), (double[]){ 1, 3, 2, 0, 4, 1, 0, 2, 4, 3 });
    p = tn_sort(x, -1, true);
    IS(p.values, TN_SHAPE(2, 5), (double[]){ NAN, 3, 2, 1, 1, INFINITY, 5, 5, 0, -INFINITY });
    IS(p.indices, TN_SHAPE(2, 5), (double[]){ 4, 0, 2, 1, 3, 3, 2, 4, 0, 1 });
    p = tn_sort(x, 0, false);
    IS(p.values, TN_SHAPE(2, 5), (double[]){ 0, -INFINITY, 2, 1, 5, 3, 1, 5, INFINITY, NAN });
    IS(p.indices, TN_SHAPE(2, 5), (double[]){ 1, 1, 0, 0, 1, 0, 0, 1, 1, 0 });
    p = tn_topk(z, 2, 1, TN_LARGEST);
    IS(p.values, TN_SHAPE(2, 2), (double[]){ 0.317, 0.128, 0.398, 0.231 });
    IS(p.indices, TN_SHAPE(2, 2), (double[]){ 2, 4, 3, 2 });
    p = tn_topk(z, 3, -1, TN_SMALLEST);
    IS(p.values, TN_SHAPE(2, 3), (double[]){ -1.269, -0.689, -0.154, -0.859, -0.748, -0.244 });
    IS(p.indices, TN_SHAPE(2, 3), (double[]){ 3, 1, 0, 0, 4, 1 });
    p = tn_topk(z, 1, 0, true);
    IS(p.values, TN_SHAPE(1, 5), (double[]){ -0.154, -0.244, 0.317, 0.398, 0.128 });
    IS(p.indices, TN_SHAPE(1, 5), (double[]){ 0, 1, 0, 1, 0 });
    ARE(tn_topk(z, 2, 1, true).values, z, TN_SHAPE(2, 2), (double[]){ 0.317, 0.128, 0.398, 0.231 },
        (double[]){ 0, 0, 0.25, 0, 0.5, 0, 0, 1, 0.75, 0 });
    ARE(tn_sort(z, 1, true).values, z, TN_SHAPE(2, 5), (double[]){ 0.317, 0.128, -0.154, -0.689,
        -1.269, 0.398, 0.231, -0.244, -0.748, -0.859 }, (double[]){ 0.3, 0.4, 0.1, 0.5, 0.2, 1, 0.8,
        0.7, 0.6, 0.9 });
    tn_close(cx);
}

// clang-format on

static void clamp_passes_the_gradient_at_its_bounds(void)
{
    tn_ctx    *cx = open_ctx();
    tn_tensor *x  = tn_from(cx, TN_F32, TN_SHAPE(5), (float[]){ -2, -1, 0, 1, 2 });
    ARE(tn_clamp(x, -1, 1), x, TN_SHAPE(5), (double[]){ -1, -1, 0, 1, 1 },
        (double[]){ 0, 0.4, 0.6, 0.8, 0 });
    tn_close(cx);
}

static void a_query_without_keys_gives_zero(void)
{
    tn_ctx    *cx = open_ctx();
    tn_tensor *q = tn_ones(cx, TN_F32, TN_SHAPE(2, 2)), *v = tn_ones(cx, TN_F32, TN_SHAPE(2, 1));
    tn_attention_opts o = { .mask = tn_from(cx, TN_BOOL, TN_SHAPE(2, 2), (bool[]){ 1, 0, 0, 0 }) };
    IS(tn_attention(q, q, v, o), TN_SHAPE(2, 1), (double[]){ 1, 0 });
    tn_close(cx);
}

static void the_first_of_tied_maxima_has_the_gradient_of_a_pool(void)
{
    tn_ctx    *cx = open_ctx();
    tn_tensor *x  = tn_from(cx, TN_F32, TN_SHAPE(1, 2, 2), (float[]){ 1, 3, 3, 2 });
    ARE(tn_max_pool2d(x, 2, 2, (tn_pool_opts){ 0 }), x, TN_SHAPE(1, 1, 1), (double[]){ 3 },
        (double[]){ 0, 1, 0, 0 });
    tn_close(cx);
}

static void dropout_keeps_scales_and_drops(void)
{
    tn_ctx *cx = open_ctx();
    enum { N = 4000 };
    float      have[N];
    int        kept = 0, odd = 0;
    tn_tensor *x = tn_full(cx, TN_F32, TN_SHAPE(N), 3);
    tn_tensor *s = tn_from(cx, TN_F32, TN_SHAPE(2), (float[]){ 1, -2 });
    if (CHECK(tn_read(tn_dropout(x, 0.25, true), TN_F32, have, N) == TN_OK))
        for (int i = 0; i < N; i++) {
            kept += have[i] != 0;
            odd += have[i] != 0 && fabsf(have[i] - 4) > 1e-5f;
        }
    CHECK_INT(odd, 0);
    CHECK_NEAR(kept, 0.75 * N, 150);
    IS(tn_dropout(s, 0.5, false), TN_SHAPE(2), (double[]){ 1, -2 });
    IS(tn_dropout(s, 0, true), TN_SHAPE(2), (double[]){ 1, -2 });
    IS(tn_dropout(s, 1, true), TN_SHAPE(2), (double[]){ 0, 0 });
    CHECK(!tn_is_view(tn_dropout(s, 0.5, false)));
    FAILS(cx, tn_dropout(s, 1.5, true), "dropout: p 1.5 is not in 0 .. 1");
    tn_close(cx);
}

static void multinomial_draws_in_proportion(void)
{
    tn_ctx *cx = open_ctx();
    enum { N = 4000 };
    int64_t    have[2 * N];
    int        count[2][4] = { { 0 } }, outside = 0;
    tn_tensor *w = tn_from(cx, TN_F32, TN_SHAPE(2, 4), (float[]){ 0, 1, 3, 0, 5, 0, 0, 5 });
    if (CHECK(tn_read(tn_multinomial(w, N), TN_I64, have, 2 * N) == TN_OK))
        for (int i = 0; i < 2 * N; i++) {
            bool in = have[i] >= 0 && have[i] < 4;
            outside += !in;
            count[i / N][in ? have[i] : 0] += in;
        }
    CHECK_INT(outside, 0);
    CHECK_INT(count[0][0] + count[0][3] + count[1][1] + count[1][2], 0);
    CHECK_NEAR(count[0][1], 0.25 * N, 150);
    CHECK_NEAR(count[1][0], 0.5 * N, 180);
    tn_tensor *one = tn_from(cx, TN_F32, TN_SHAPE(3), (float[]){ 0, 2, 0 });
    IS(tn_multinomial(one, 2), TN_SHAPE(2), (double[]){ 1, 1 });
    tn_close(cx);
}

static void targets_out_of_range_are_refused(void)
{
    tn_ctx       *cx    = open_ctx();
    const int64_t bad[] = { 3, -1, 100 };
    tn_tensor    *x     = tn_zeros(cx, TN_F32, TN_SHAPE(1, 3));
    for (int i = 0; i < 3; i++) {
        tn_tensor *y = tn_from(cx, TN_I64, TN_SHAPE(1), &bad[i]);
        double     v = tn_item(tn_cross_entropy(x, y));
        test_case_result(v != v && tn_error(cx) != TN_OK, "target %d gave %g", (int)bad[i], v);
        tn_error_clear(cx);
        v = tn_item(tn_sum_all(tn_one_hot(y, 2)));
        if (bad[i] >= 0)
            test_case_result(tn_error(cx) != TN_OK, "index %d gave %g", (int)bad[i], v);
        tn_error_clear(cx);
    }
    tn_close(cx);
}

static void errors_name_the_op_and_the_shapes(void)
{
    tn_ctx    *cx = open_ctx();
    tn_tensor *x = tn_zeros(cx, TN_F32, TN_SHAPE(2, 3)), *w = tn_zeros(cx, TN_F32, TN_SHAPE(4));
    tn_tensor *i = tn_zeros(cx, TN_I32, TN_SHAPE(2, 3)), *t = tn_zeros(cx, TN_I64, TN_SHAPE(2));
    tn_tensor *m = tn_zeros(cx, TN_F32, TN_SHAPE(1, 2, 2)), *none = NULL;
    tn_tensor *xw[] = { x, w };
    FAILS(cx, tn_layer_norm(x, 1, w, none, 0),
          "layer_norm: x (2, 3) and w (4,): the last axes differ");
    FAILS(cx, tn_layer_norm(x, 3, w, none, 0), "layer_norm: 3 is not a number of axes of x (2, 3)");
    FAILS(cx, tn_softmax(i, 1), "softmax: i32 is not a float type");
    FAILS(cx, tn_softmax(x, 2), "softmax: axis 2 is out of range for rank 2");
    FAILS(cx, tn_mean(i, 0), "mean: i32 is not a float type");
    FAILS(cx, tn_mse(x, w), "mse: x (2, 3) and target (4,) do not broadcast");
    FAILS(cx, tn_cross_entropy(x, w), "cross_entropy: x (2, 3) and target (4,) do not fit");
    FAILS(cx, tn_cross_entropy(x, i), "cross_entropy: i32 is not a float type");
    FAILS(cx, tn_cross_entropy_with(x, t, (tn_class_opts){ .weight = w }),
          "cross_entropy: x (2, 3) and weight (4,): not one number per class");
    FAILS(cx, tn_batch_norm(m, none, none, none, none, (tn_batch_norm_opts){ 0 }),
          "batch_norm: mean is NULL outside training");
    FAILS(cx,
          tn_batch_norm(tn_slice(x, 0, 0, 1, 1), none, none, none, none,
                        (tn_batch_norm_opts){ .training = true }),
          "batch_norm: x (1, 3) has one value per channel in training");
    FAILS(cx, tn_group_norm(x, 2, none, none, 0),
          "group_norm: 2 groups do not divide the channels of x (2, 3)");
    FAILS(
        cx, tn_max_pool2d(m, 3, 3, (tn_pool_opts){ 0 }),
        "max_pool2d: kernel (3, 3) with stride 3, padding 0 (at most half of it), dilation 1 does "
        "not fit axis 1 of x (1, 2, 2)");
    FAILS(cx, tn_max_pool2d(x, 2, 2, (tn_pool_opts){ 0 }),
          "max_pool2d: x (2, 3) is not (C, H, W) or (N, C, H, W)");
    FAILS(cx, tn_attention(x, w, x, (tn_attention_opts){ 0 }),
          "attention: q (2, 3), k (4,) and v (2, 3) are not (T, D), (S, D) and (S, E)");
    FAILS(cx, tn_stack(2, xw, 0), "stack: x[0] (2, 3) and x[1] (4,) differ");
    FAILS(cx, tn_tril(w, 0), "tril: x (4,) is not a matrix");
    FAILS(cx, tn_masked_fill(x, i, 0), "masked_fill: mask is i32, not bool");
    FAILS(cx, tn_embed(w, x), "embed: index is f32, not i64 or i32");
    FAILS(cx, tn_topk(x, 4, 1, true).values, "topk: k 4 is not in 0 .. 3, axis 1 of x (2, 3)");
    FAILS(cx, tn_relu(tn_softmax(x, 5)), "softmax: axis 5 is out of range for rank 2");
    tn_tensor *part[1];
    CHECK_INT(tn_split(x, 1, 0, 1, part), -1);
    CHECK_STR(tn_error_text(cx), "split: x (2, 3) along axis 0 has 2 pieces, y has room for 1");
    tn_close(cx);
}

// clang-format off
const test_case tests_composed[] = {
    TEST(activations_are_as_recorded),
    TEST(activations_keep_nan_and_infinity),
    TEST(masked_fill_broadcasts_its_mask),
    TEST(softmax_is_as_recorded),
    TEST(logsumexp_reduces_in_four_forms),
    TEST(statistics_are_as_recorded),
    TEST(statistics_at_their_edges),
    TEST(any_and_all_give_bool),
    TEST(layer_and_rms_norm_are_as_recorded),
    TEST(group_norm_is_as_recorded),
    TEST(batch_norm_updates_its_statistics),
    TEST(max_pools_are_as_recorded),
    TEST(avg_pools_are_as_recorded),
    TEST(adaptive_pools_are_as_recorded),
    TEST(attention_is_as_recorded),
    TEST(cross_entropy_is_as_recorded),
    TEST(classes_stand_behind_the_batch),
    TEST(losses_of_elements_are_as_recorded),
    TEST(binary_cross_entropy_is_as_recorded),
    TEST(kl_is_as_recorded),
    TEST(pieces_join_and_part),
    TEST(triangles_and_ranges_are_as_recorded),
    TEST(indices_choose_elements),
    TEST(sort_and_topk_are_as_recorded),
    TEST(clamp_passes_the_gradient_at_its_bounds),
    TEST(a_query_without_keys_gives_zero),
    TEST(the_first_of_tied_maxima_has_the_gradient_of_a_pool),
    TEST(dropout_keeps_scales_and_drops),
    TEST(multinomial_draws_in_proportion),
    TEST(targets_out_of_range_are_refused),
    TEST(errors_name_the_op_and_the_shapes),
    TEST_END,
};
// clang-format on
