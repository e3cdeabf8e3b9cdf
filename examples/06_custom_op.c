// 06_custom_op.c: an op of your own, in C: the softplus-like "squareplus",
//
//     y = (x + sqrt(x * x + b)) / 2
//
// with b an attribute. It has a shape rule, a computation and a gradient, and from then on behaves
// like any other op: it is recorded, differentiated and planned with the rest.
#include <math.h>
#include <stdio.h>
#include <tenon.h>

typedef struct {
    double b;
} plus_attr;

static int64_t count_of(const tn_array *a)
{
    int64_t n = 1;
    for (int i = 0; i < a->rank; i++) n *= a->size[i];
    return n;
}

// Called when the op is recorded: out[] gets dtype, rank and size. A nonzero status is an error of
// the call.
static tn_status plus_shape(const void *attr, const tn_array *in, tn_array *out)
{
    (void)attr;
    if (in[0].dtype != TN_F64) return TN_EDTYPE;
    out[0] = in[0];
    return TN_OK;
}

// Called when the value is needed. Inputs are row-major. It must depend on nothing else.
static tn_status plus_compute(const void *attr, const tn_array *in, tn_array *out)
{
    const plus_attr *p = attr;
    const double    *x = in[0].data;
    double          *y = out[0].data;
    for (int64_t i = 0, n = count_of(&in[0]); i < n; i++)
        y[i] = (x[i] + sqrt(x[i] * x[i] + p->b)) / 2;
    return TN_OK;
}

// Called by a backward pass, to record the gradient with ops: dy/dx = y / sqrt(x * x + b), where
// sqrt(x * x + b) = 2 y - x. Since these are ops, it can be differentiated again.
static tn_status plus_grad(const void *attr, tn_tensor *const *x, tn_tensor *const *y,
                           tn_tensor *const *gy, tn_tensor **gx)
{
    (void)attr;
    tn_tensor *root = tn_sub(tn_mul_s(y[0], 2), x[0]);
    gx[0]           = tn_mul(gy[0], tn_div(y[0], root));
    return gx[0] ? TN_OK : TN_EUSER;
}

static const tn_op_def squareplus = {
    .name = "squareplus", .nin = 1, .shape = plus_shape, .compute = plus_compute, .grad = plus_grad
};

// The op as a function, like those of tenon.h.
static tn_tensor *plus(tn_tensor *x, double b)
{
    return tn_custom(&squareplus, &x, &(plus_attr){ b }, sizeof(plus_attr));
}

static tn_tensor *sum_of_plus(tn_tensor *const *x, void *user)
{
    return tn_sum_all(plus(x[0], *(double *)user));
}

int main(void)
{
    tn_ctx *cx = tn_open(NULL);
    if (!cx) {
        fprintf(stderr, "%s\n", tn_error_text(NULL));
        return 1;
    }
    tn_tensor *x = tn_requires_grad(tn_linspace(cx, TN_F64, -2, 2, 5), true);
    tn_tensor *y = plus(x, 1.0);
    tn_print(y, stdout);
    tn_backward(tn_sum_all(y), NULL);
    tn_print(tn_grad_of(x), stdout);

    // Finite differences agree with the gradient, and with the gradient of the gradient.
    double b      = 1.0;
    int    failed = tn_gradcheck(sum_of_plus, 1, &x, &b) != TN_OK ||
                 tn_gradgradcheck(sum_of_plus, 1, &x, &b) != TN_OK;
    printf("gradients %s\n", failed ? tn_error_text(cx) : "agree with finite differences");
    tn_close(cx);
    return failed;
}
