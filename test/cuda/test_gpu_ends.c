// test_gpu_ends.c: relu and gelu behind products, which a library may do with the product: NaN and
// infinity come out where they do on ref, and numbers as near as their dtype is; and products with
// matrices of 2:4 sparsity. Without a GPU it is skipped.
//
//     TN_TEST_DEVICE=cpu tenon-tests gpu_ends   runs it on another device
#include "check.h"
#include "gpu_parts.h"
#include "table.h"

#include "device/cuda/cusparselt.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon.h>

// ---- what follows a product --------------------------------------------------------------------

typedef enum { NAN_ROWS, NAN_COLUMNS, UP, DOWN, LARGE, KINDS } kind;

// A product of (m, k) and (k, n), what is in it, and what follows: maybe a bias, then f.
typedef struct {
    tn_dtype dt;
    int64_t  m, k, n;
    kind     kind;
    bool     bias;
    tn_tensor *(*f)(tn_tensor *x);
} product;

enum { MOST_IN = 784 * 256, MOST_OUT = 64 * 128 };

// From -1 to 1, and never 0.
static float spread(uint32_t i)
{
    i = (i + 1) * 2654435761u;
    i = (i ^ i >> 15) * 2246822519u;
    return ((float)(i >> 20) + 0.5f) / 2048 - 1;
}

static double scale_of(const product *p)
{
    return p->kind == LARGE ? 7500 / sqrt((double)p->k) : 0.5;
}

static tn_tensor *operand(tn_ctx *cx, const product *p, int which)
{
    static float v[MOST_IN];
    int64_t      rows = which == 0 ? p->m : which == 1 ? p->k : 1, cols = which == 0 ? p->k : p->n;
    float        odd = p->kind == UP ? INFINITY : p->kind == DOWN ? -INFINITY : NAN;
    for (int64_t i = 0; i < rows * cols; i++) {
        v[i]        = spread((uint32_t)(i + which * 1000003)) * (float)(which ? 1 : scale_of(p));
        bool in_row = which == 0 && p->kind != NAN_COLUMNS && p->kind != LARGE &&
                      i / cols % 5 == 0 && i % cols == i / cols % p->k;
        bool in_column = which == 1 && p->kind == NAN_COLUMNS && i % cols % 7 == 3 && i / cols == 5;
        if (in_row || in_column || (which == 2 && p->kind == NAN_COLUMNS && i == 8)) v[i] = odd;
    }
    tn_tensor *t = tn_from(cx, TN_F32, TN_SHAPE(rows, cols), v);
    return tn_want(tn_cast(which == 2 ? tn_reshape(t, TN_SHAPE(cols)) : t, p->dt));
}

// The result, and the product alone where h is not NULL.
static void compute(const char *device, const product *p, float *y, float *h)
{
    tn_ctx    *cx = open_quiet(device, 1);
    tn_tensor *x = operand(cx, p, 0), *w = operand(cx, p, 1), *b = operand(cx, p, 2), *z;
    CHECK_STATUS(tn_eval(cx), TN_OK);
    z = tn_matmul(x, w);
    if (h) CHECK_STATUS(tn_read(z, TN_F32, h, p->m * p->n), TN_OK);
    z = p->f(p->bias ? tn_add(h ? tn_matmul(x, w) : z, b) : h ? tn_matmul(x, w) : z);
    CHECK_STATUS(tn_read(z, TN_F32, y, p->m * p->n), TN_OK);
    tn_close(cx);
}

// How far a result may be from ref's, h being the product. Ref rounds three times, to the product,
// to the sum and to the result, by half a unit each, and the device once or as often: two units of
// the largest of them. Beyond 4 the functions are 0, or the value itself, so that the result's own
// unit counts. Besides, sums in f32 have an error that grows with what is summed; and a library's
// tanh may be good to 2^-11, which |z| / 2 multiplies, up to 4, where it is 1.
static double allowed(const product *p, double y, double h)
{
    double unit = p->dt == TN_F16 ? 0x1p-10 : p->dt == TN_BF16 ? 0x1p-7 : 0x1p-23;
    double sums = 0x1p-20 * (double)p->k * scale_of(p) / 4;
    double near = fmin(fabs(h) + 1, fabs(y) + 4);
    return 2 * unit * near + sums + (p->f == tn_gelu_tanh && p->dt != TN_F32 ? 0x1p-10 : 0);
}

static void check_product(const product *p)
{
    static const char *const name[KINDS] = { "NaN in rows", "NaN in columns", "inf", "-inf",
                                             "large" };
    static float             y[MOST_OUT], want[MOST_OUT], h[MOST_OUT];
    int                      wrong = 0, first = -1;
    compute(tested_device(), p, y, NULL);
    compute("ref", p, want, h);
    for (int i = 0; i < p->m * p->n; i++) {
        bool ok = isnan(want[i]) ? isnan(y[i]) : isinf(want[i]) ? y[i] == want[i] : !isnan(y[i]);
        if (ok && isfinite(want[i]))
            ok = fabs((double)y[i] - want[i]) <= allowed(p, want[i], isfinite(h[i]) ? h[i] : 0);
        if (!ok && !wrong++) first = i;
    }
    test_case_result(!wrong, "%s of %s (%d, %d, %d)%s, %s: %d wrong, [%d] is %g, not %g (of %g)",
                     p->f == tn_relu ? "relu" : "gelu_tanh", tn_dtype_name(p->dt), (int)p->m,
                     (int)p->k, (int)p->n, p->bias ? " with bias" : "", name[p->kind], wrong, first,
                     wrong ? y[first] : 0, wrong ? want[first] : 0, wrong ? h[first] : 0);
}

static void run_products(int part, int parts)
{
    static const tn_dtype dtypes[] = { TN_F32, TN_F16, TN_BF16 };
    setenv("TN_TF32", "0", 1);
    for (int i = part; i < 3 * 2 * KINDS * 2 * 2; i += parts) {
        bool    one = i / 3 % 2;
        product p   = { dtypes[i % 3],
                      one ? 1 : 64,
                      one ? 784 : 96,
                      one ? 256 : 128,
                        (kind)(i / 6 % KINDS),
                        i / (6 * KINDS) % 2,
                      i / (12 * KINDS) ? tn_gelu_tanh : tn_relu };
        check_product(&p);
        if (p.dt != TN_F32 || p.f != tn_relu) continue;
        setenv("TN_SMALL", "1", 1);  // by our own kernel, if it is not anyway
        check_product(&p);
        unsetenv("TN_SMALL");
    }
}

static void what_is_no_number_stays_so_behind_a_product(void)
{
    in_parts(run_products, 4);
}

// ---- what follows a product of the backward pass -----------------------------------------------

// Two linear layers with gelu between them: rows, inputs, hidden, outputs. And the elements of all
// gradients: of the input, the first layer's weights and bias, the second's weights.
enum { R = 256, I = 96, H = 128, O = 64, GRADS = 4, ALL = R * I + I * H + H + H * O };

static const int64_t sizes[GRADS][2] = { { R, I }, { I, H }, { H }, { H, O } };

static void train(const char *device, tn_dtype dt, float *grad)
{
    static float v[R * I];
    tn_ctx      *cx = open_quiet(device, 1);
    tn_tensor   *x[GRADS];
    for (int i = 0; i < GRADS; i++) {
        int rank = i == 2 ? 1 : 2;
        for (int k = 0; k < R * I; k++)
            v[k] = spread((uint32_t)(k + i * 1000003)) * (i == 0 ? 2 : i == 2 ? 1 : 0.25f);
        x[i] = tn_want(tn_cast(tn_from(cx, TN_F32, rank, sizes[i], v), dt));
        tn_requires_grad(x[i], true);
    }
    CHECK_STATUS(tn_eval(cx), TN_OK);
    tn_tensor *y = tn_matmul(tn_gelu_tanh(tn_add(tn_matmul(x[0], x[1]), x[2])), x[3]);
    CHECK_STATUS(tn_backward(tn_mean_all(tn_square(tn_add_s(y, 1))), NULL), TN_OK);
    for (int i = 0; i < GRADS; i++) tn_want(tn_grad_of(x[i]));
    CHECK_STATUS(tn_eval(cx), TN_OK);
    for (int i = 0; i < GRADS; grad += tn_count(x[i++]))
        CHECK_STATUS(tn_read(tn_grad_of(x[i]), TN_F32, grad, tn_count(x[i])), TN_OK);
    tn_close(cx);
}

// Gradients of halves are rounded several times on their way, by half a unit each, at random: of
// all elements of one the distance from ref's is some units of its length.
static void check_training(tn_dtype dt)
{
    static const char *const name[GRADS] = { "the input", "the weights", "the bias",
                                             "the next weights" };
    static float             have[ALL], want[ALL];
    double                   unit = dt == TN_F16 ? 0x1p-10 : 0x1p-7;
    train(tested_device(), dt, have);
    train("ref", dt, want);
    for (int i = 0, at = 0; i < GRADS; i++) {
        double length = 0, off = 0;
        for (int end = at + (int)(sizes[i][0] * (sizes[i][1] ? sizes[i][1] : 1)); at < end; at++) {
            length += (double)want[at] * want[at];
            off += ((double)have[at] - want[at]) * ((double)have[at] - want[at]);
        }
        test_case_result(length > 0 && sqrt(off) <= 2 * unit * sqrt(length),
                         "the gradient of %s in %s: %g of %g", name[i], tn_dtype_name(dt),
                         sqrt(off), sqrt(length));
    }
}

static void run_trainings(int part, int parts)
{
    static const tn_dtype dtypes[] = { TN_F16, TN_BF16 };
    for (int i = part; i < 2; i += parts) check_training(dtypes[i]);
}

static void gradients_behind_gelu_are_those_of_ref(void)
{
    in_parts(run_trainings, 2);
}

// ---- pruned matrices ---------------------------------------------------------------------------

// A product of (tokens, in) and a pruned (out, in), and what is added to it. Of whole numbers from
// -1 to 1, so that every sum is exact in bf16, too.
typedef struct {
    tn_dtype dt;
    int64_t  tokens, in, out;
    bool     bias, residual;
} pruned_case;

enum { MOST_PRUNED = 768 * 2304 };

// Numbers that look drawn, so that no sum of a product of two such matrices is large.
static float drawn(int64_t i, int64_t seed)
{
    uint32_t h = (uint32_t)(i + 1000003 * seed) * 2654435761u;
    h          = (h ^ h >> 15) * 2246822519u;
    return (float)((h ^ h >> 13) % 3) - 1;
}

static tn_tensor *whole(tn_ctx *cx, tn_dtype dt, int64_t rows, int64_t cols, int64_t seed)
{
    static float v[MOST_PRUNED];
    for (int64_t i = 0; i < rows * cols; i++) v[i] = drawn(i, seed);
    return tn_cast(tn_from(cx, TN_F32, TN_SHAPE(rows, cols), v), dt);
}

static tn_tensor *pruned_product(tn_ctx *cx, tn_tensor *w, const pruned_case *p, int seed)
{
    tn_tensor *b = tn_select(whole(cx, p->dt, 1, p->out, 3), 0, 0);
    tn_tensor *y = tn_linear(whole(cx, p->dt, p->tokens, p->in, 10 + seed), w, p->bias ? b : NULL);
    return p->residual ? tn_add(y, whole(cx, p->dt, p->tokens, p->out, 4)) : y;
}

// Whether the library takes a case: of bf16, and its matrices are of whole tiles.
static bool is_the_library_here(const pruned_case *p)
{
    tni_text why = { "" };
    if (strncmp(tested_device(), "cuda", 4) || !tni_cusparselt_get(&why)) return false;
    return p->dt == TN_BF16 && !p->bias && !p->residual && p->tokens % 8 == 0 && p->in % 32 == 0 &&
           p->out % 32 == 0;
}

static void check_method(tn_ctx *cx)
{
    char  *page = NULL;
    size_t size = 0;
    FILE  *f    = open_memstream(&page, &size);
    CHECK_STATUS(tn_explain(cx, f), TN_OK);
    fclose(f);
    if (!CHECK(strstr(page, "by cuSPARSELt"))) puts(page);
    free(page);
}

// What the device and ref make of it, with the matrix as it was compressed and as it is after a
// write, again and again, so that runs become graphs.
static void check_pruned(const pruned_case *p)
{
    static float have[MOST_PRUNED], want[MOST_PRUNED];
    tn_ctx      *cx[2] = { open_seeded(tested_device(), 1), open_seeded("ref", 1) };
    int64_t      n     = p->tokens * p->out;
    tn_tensor   *w[2];
    for (int k = 0; k < 2; k++) {
        w[k] = whole(cx[k], p->dt, p->out, p->in, 1);
        w[k] = tn_keep(tn_mul(w[k], tn_cast(tn_prune_2_4(w[k], false), p->dt)));
    }
    CHECK_STATUS(tn_compress_2_4(w[0]), TN_OK);
    for (int run = 0; run < 6; run++) {
        for (int k = 0; k < 2; k++) {
            tn_scope *s = tn_begin(cx[k]);
            if (run == 4) tn_assign(w[k], tn_neg(w[k]));
            tn_tensor *y = pruned_product(cx[k], w[k], p, run);
            if (run == 1 && !k && is_the_library_here(p)) check_method(cx[k]);
            CHECK_STATUS(tn_read(y, TN_F32, k ? want : have, n), TN_OK);
            tn_end(s);
        }
        int64_t i = 0;
        while (i < n && have[i] == want[i]) i++;
        test_case_result(i == n, "%s (%lld, %lld) times 2:4 (%lld, %lld)%s%s, run %d: %g, not %g",
                         tn_dtype_name(p->dt), (long long)p->tokens, (long long)p->in,
                         (long long)p->in, (long long)p->out, p->bias ? " bias" : "",
                         p->residual ? " residual" : "", run, (double)have[i], (double)want[i]);
    }
    tn_close(cx[0]);
    tn_close(cx[1]);
}

static void run_pruned(int part, int parts)
{
    static const int64_t size[][3] = {
        { 128, 768, 768 }, { 136, 768, 2304 }, { 64, 2304, 768 }, { 30, 64, 96 }, { 64, 100, 36 }
    };
    setenv("TN_METHOD", "cuSPARSELt", 1);
    for (int i = part; i < 5 * 8; i += parts) {
        const int64_t *n = size[i / 8];
        check_pruned(&(pruned_case){ i & 1 ? TN_F16 : TN_BF16, n[0], n[1], n[2], i & 2, i & 4 });
    }
}

static void pruned_products_are_those_of_ref(void)
{
    in_parts(run_pruned, 4);
}

const test_case tests_gpu_ends[] = {
    TEST(pruned_products_are_those_of_ref),
    TEST(what_is_no_number_stays_so_behind_a_product),
    TEST(gradients_behind_gelu_are_those_of_ref),
    TEST_END,
};
