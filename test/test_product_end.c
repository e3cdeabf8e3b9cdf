// test_product_end.c: which kernels after a product a library does with it, found in those that the
// planner makes.
#include "check.h"

#include "device/cuda/product.h"
#include "engine/engine.h"

#include <tenon.h>

enum {
    ROWS  = 12,
    COLS  = 20,
    INNER = 8,
    BIAS  = TNI_LT_EPILOGUE_BIAS,
    RELU  = TNI_LT_EPILOGUE_RELU,
    GELU  = TNI_LT_EPILOGUE_GELU
};

// What follows a product y. b has an element for each column, c one for each row.
typedef struct {
    tn_tensor *y, *b, *c;
} values;

typedef struct {
    const char *name;
    tn_tensor *(*then)(const values *v);
    tn_dtype dtype;
    int      want;  // 0: the library cannot
} ending;

static tn_tensor *bias(const values *v)
{
    return tn_add(v->y, v->b);
}

static tn_tensor *bias_first(const values *v)
{
    return tn_add(v->b, v->y);
}

static tn_tensor *relu(const values *v)
{
    return tn_relu(v->y);
}

static tn_tensor *bias_relu(const values *v)
{
    return tn_relu(tn_add(v->y, v->b));
}

static tn_tensor *gelu(const values *v)
{
    return tn_gelu_tanh(v->y);
}

static tn_tensor *bias_gelu(const values *v)
{
    return tn_gelu_tanh(tn_add(v->b, v->y));
}

static tn_tensor *exact_gelu(const values *v)
{
    return tn_gelu(tn_add(v->y, v->b));
}

static tn_tensor *gelu_of_relu(const values *v)
{
    return tn_gelu_tanh(tn_relu(v->y));
}

static tn_tensor *relu_of_gelu(const values *v)
{
    return tn_relu(tn_gelu_tanh(v->y));
}

static tn_tensor *bias_after(const values *v)
{
    return tn_add(tn_relu(v->y), v->b);
}

static tn_tensor *column(const values *v)
{
    return tn_add(v->y, v->c);
}

static tn_tensor *twice(const values *v)
{
    return tn_add(tn_add(v->y, v->b), v->b);
}

static tn_tensor *itself(const values *v)
{
    return tn_add(v->y, v->y);
}

static tn_tensor *wider(const values *v)
{
    return tn_cast(tn_relu(v->y), TN_F32);
}

static tn_tensor *rounded(const values *v)
{
    return tn_relu(tn_cast(tn_cast(v->y, TN_F16), TN_BF16));
}

// gelu by tanh but for one of its numbers, which is `of` of four.
static tn_tensor *nearly(const values *v, int of)
{
    static const double number[] = { 0.044715, 0.79788456080286535588, 1, 0.5 };
    double              n[4];
    for (int i = 0; i < 4; i++) n[i] = number[i] * (i == of ? 1.01 : 1);
    tn_tensor *x    = tn_cast(v->y, TN_F32);
    tn_tensor *u    = tn_add(x, tn_mul_s(tn_mul(tn_mul(x, x), x), n[0]));
    tn_tensor *gate = tn_add_s(tn_tanh(tn_mul_s(u, n[1])), n[2]);
    return tn_cast(tn_mul(tn_mul_s(x, n[3]), gate), TN_BF16);
}

static tn_tensor *by_hand(const values *v)
{
    return nearly(v, -1);
}

static tn_tensor *other_cube(const values *v)
{
    return nearly(v, 0);
}

static tn_tensor *other_scale(const values *v)
{
    return nearly(v, 1);
}

static tn_tensor *other_one(const values *v)
{
    return nearly(v, 2);
}

static tn_tensor *other_half(const values *v)
{
    return nearly(v, 3);
}

static const ending cases[] = {
    { "bias", bias, TN_F32, BIAS },
    { "bias first", bias_first, TN_BF16, BIAS },
    { "relu", relu, TN_F32, RELU },
    { "bias, relu", bias_relu, TN_F16, BIAS | RELU },
    { "gelu", gelu, TN_F16, GELU },
    { "bias, gelu", bias_gelu, TN_BF16, BIAS | GELU },
    { "gelu by hand", by_hand, TN_BF16, GELU },
    { "gelu of f32, of which the library has fewer digits", bias_gelu, TN_F32, 0 },
    { "gelu by erf", exact_gelu, TN_BF16, 0 },
    { "gelu of relu", gelu_of_relu, TN_BF16, 0 },
    { "relu of gelu", relu_of_gelu, TN_BF16, 0 },
    { "bias after relu", bias_after, TN_F32, 0 },
    { "a bias along the other axis", column, TN_F32, 0 },
    { "two biases", twice, TN_F32, 0 },
    { "the product as its own bias", itself, TN_F32, 0 },
    { "a result of another dtype", wider, TN_BF16, 0 },
    { "rounded on the way", rounded, TN_BF16, 0 },
    { "another number in the cube", other_cube, TN_BF16, 0 },
    { "another scale", other_scale, TN_BF16, 0 },
    { "another one", other_one, TN_BF16, 0 },
    { "another half", other_half, TN_BF16, 0 },
};

// The kernel that runs with the product, as it was launched.
static const tni_fused *claiming(const tn_ctx *cx)
{
    const tni_plans *all = &((const tni_engine *)cx->engine)->plans;
    for (int i = 0; i < all->count; i++)
        for (size_t k = 0; k < all->plan[i]->kernels; k++)
            if (all->plan[i]->kernel[k].claimed >= 0) return &all->plan[i]->kernel[k];
    return NULL;
}

// The address that the product was read from.
static char *product_at(const tni_fused *f)
{
    const tni_launch *l = &f->launch;
    for (int i = 0; i < l->kernel->naccess; i++) {
        int b = l->kernel->access[i].buffer;
        if (b < 0 || f->buffer[b] != f->claimed) continue;
        size_t size = tni_dtype_size((tn_dtype)l->kernel->buffer[b].dtype);
        return l->buffer[b] + l->offset[i] * (int64_t)size;
    }
    return NULL;
}

static void look_at(const ending *e)
{
    tn_ctx    *cx = tn_open("cpu");
    tn_scope  *s  = tn_begin(cx);
    tn_tensor *x  = tn_cast(tn_randn(cx, TN_F32, TN_SHAPE(ROWS, INNER)), e->dtype);
    tn_tensor *w  = tn_cast(tn_randn(cx, TN_F32, TN_SHAPE(INNER, COLS)), e->dtype);
    values     v  = { .b = tn_cast(tn_randn(cx, TN_F32, TN_SHAPE(COLS)), e->dtype),
                      .c = tn_cast(tn_randn(cx, TN_F32, TN_SHAPE(ROWS, 1)), e->dtype) };
    tn_keep(x), tn_keep(w), tn_keep(v.b), tn_keep(v.c);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    v.y = tn_matmul(x, w);
    tn_keep(e->then(&v));
    CHECK_STATUS(tn_eval(cx), TN_OK);
    const tni_fused *f = claiming(cx);
    if (CHECK(f)) {
        tni_ending found;
        tni_call   call = { .op  = TNI_matmul,
                            .out = { .dtype  = e->dtype,
                                     .rank   = 2,
                                     .size   = { ROWS, COLS },
                                     .stride = { COLS, 1 },
                                     .data   = product_at(f) } };
        bool       can  = tni_product_end(&call, &f->launch, &found);
        test_that((can ? found.epilogue : 0) == e->want, "%s: epilogue %d, and not %d", e->name,
                  can ? found.epilogue : 0, e->want);
        CHECK(!can || !(e->want & BIAS) == !found.bias);
    }
    tn_end(s);
    tn_close(cx);
}

static void kernels_that_a_library_does_with_its_product_are_found(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) look_at(&cases[i]);
}

const test_case tests_product_end[] = {
    TEST(kernels_that_a_library_does_with_its_product_are_found),
    TEST_END,
};
