// 06_custom_op.c: an op of your own, as one expression: the softplus-like "squareplus",
//
//     y = (x + sqrt(x * x + b)) / 2
//
// Its value and its gradient are texts in the language of Tenon's own table of ops, and are
// recorded as such ops. So it takes every float dtype, broadcasts, runs on every device, and fuses
// with its neighbours.
#include <stdio.h>
#include <tenon.h>

// a is the first input, x, and b the second. The gradients of both, separated by a semicolon, also
// use g, the gradient of the result, and y, the result: since sqrt(x * x + b) = 2 y - x, neither
// root nor square is computed again. Without grad_expr, Tenon would differentiate the expression.
static const tn_op_def squareplus = {
    .name      = "squareplus",
    .nin       = 2,
    .expr      = "(a + sqrt(a * a + b)) / 2",
    .grad_expr = "g * y / (2 * y - a); g / (4 * (2 * y - a))",
};

// The op as a function, like those of tenon.h.
static tn_tensor *plus(tn_tensor *x, tn_tensor *b)
{
    return tn_custom(&squareplus, (tn_tensor *[]){ x, b }, NULL, 0);
}

static tn_tensor *sum_of_plus(tn_tensor *const *x, void *user)
{
    (void)user;
    return tn_sum_all(plus(x[0], x[1]));
}

int main(void)
{
    tn_ctx *cx = tn_open(NULL);
    if (!cx) {
        fprintf(stderr, "%s\n", tn_error_text(NULL));
        return 1;
    }
    tn_tensor *x = tn_requires_grad(tn_linspace(cx, TN_F64, -2, 2, 5), true);
    tn_tensor *y = plus(x, tn_scalar(cx, 1));
    tn_print(y, stdout);
    tn_backward(tn_sum_all(y), NULL);
    tn_print(tn_grad_of(x), stdout);

    // Finite differences agree with both gradients, and with the gradients of the gradients.
    tn_tensor *in[]   = { x, tn_full(cx, TN_F64, TN_SHAPE(1), 1) };
    int        failed = tn_gradcheck(sum_of_plus, 2, in, NULL) != TN_OK ||
                 tn_gradgradcheck(sum_of_plus, 2, in, NULL) != TN_OK;
    printf("gradients %s\n", failed ? tn_error_text(cx) : "agree with finite differences");

    // A malformed text is an error of the call, which names the place.
    tn_op_def bad = { .name = "bad", .nin = 1, .expr = "(a + 1" };
    tn_on_error(cx, NULL, NULL);
    if (!tn_custom(&bad, &x, NULL, 0)) printf("%s\n", tn_error_text(cx));
    tn_close(cx);
    return failed;
}
