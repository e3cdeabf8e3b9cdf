// 02_autograd.c: gradients: of one expression, in a loop that fits a line, and of a gradient.
#include <math.h>
#include <stdio.h>
#include <tenon.h>

// Learns y = 3 x - 1 from noisy points, by gradient descent.
static void fit_a_line(tn_ctx *cx)
{
    tn_tensor *x = tn_want(tn_randn(cx, TN_F32, TN_SHAPE(64)));
    tn_tensor *e = tn_mul_s(tn_randn(cx, TN_F32, TN_SHAPE(64)), 0.05);
    tn_tensor *y = tn_want(tn_add(tn_sub_s(tn_mul_s(x, 3), 1), e));

    // Leaves: the tensors that tn_backward computes gradients for.
    tn_tensor *w = tn_requires_grad(tn_zeros(cx, TN_F32, TN_0D), true);
    tn_tensor *b = tn_requires_grad(tn_zeros(cx, TN_F32, TN_0D), true);

    for (int step = 0; step < 60; step++) {
        tn_scope  *s    = tn_begin(cx);  // the tensors of a step die with its scope
        tn_tensor *loss = tn_mse(tn_add(tn_mul(x, w), b), y);
        tn_backward(loss, NULL);

        // A write to a leaf must not be recorded in its history, so gradient mode is off here.
        // tn_end would also restore the mode.
        bool mode = tn_grad_mode(cx, false);
        tn_sub_(w, tn_mul_s(tn_grad_of(w), 0.1));
        tn_sub_(b, tn_mul_s(tn_grad_of(b), 0.1));
        tn_zero_grad(w);  // otherwise the next gradient would be added to this one
        tn_zero_grad(b);
        tn_grad_mode(cx, mode);

        tn_eval(cx);  // ends the step: launches all pending work and stores the loss
        if (step % 20 == 0) printf("step %2d  loss %.4f\n", step, tn_item(loss));
        tn_end(s);
    }
    printf("w = %.2f, b = %.2f\n", tn_item(w), tn_item(b));
}

// tn_grad returns gradients as tensors that can be differentiated again.
static void differentiate_twice(tn_ctx *cx)
{
    tn_tensor *x = tn_requires_grad(tn_full(cx, TN_F64, TN_0D, 0.5), true);
    tn_tensor *y = tn_sin(tn_mul(x, x)), *dy, *ddy;
    tn_grad(1, &y, 1, &x, NULL, &dy);
    tn_grad(1, &dy, 1, &x, NULL, &ddy);

    double v = 0.5, want = 2 * cos(v * v) - 4 * v * v * sin(v * v);
    printf("second derivative of sin(x*x) at 0.5: %.6f, by hand %.6f\n", tn_item(ddy), want);
}

int main(void)
{
    tn_ctx *cx = tn_open_with((tn_open_opts){ .seed = 1 });
    if (!cx) {
        fprintf(stderr, "%s\n", tn_error_text(NULL));
        return 1;
    }

    // The smallest case: y = x * x * x, so dy/dx = 3 x * x.
    tn_tensor *x = tn_requires_grad(tn_full(cx, TN_F32, TN_0D, 2), true);
    tn_backward(tn_mul(x, tn_mul(x, x)), NULL);
    printf("d(x^3)/dx at 2: %g\n", tn_item(tn_grad_of(x)));

    fit_a_line(cx);
    differentiate_twice(cx);

    int failed = tn_error(cx) != TN_OK;
    tn_close(cx);
    return failed;
}
