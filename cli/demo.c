// demo.c: a network of two hidden layers learns a curve from noisy points. Gradients come from
// tn_backward; the update is written out, with momentum.
#include "cli.h"

#include <stdio.h>
#include <tenon.h>
#include <time.h>

// N points, H hidden units, C points of the drawn curve
enum { N = 96, H = 32, C = 200, STEPS = 3000, PARAMS = 6 };

static const int reported[] = { 0, 10, 30, 100, 300, 1000, STEPS };

static const double LEARNING_RATE = 0.02, MOMENTUM = 0.9;

typedef struct {
    tn_tensor *w[PARAMS], *speed[PARAMS];  // w1 b1 w2 b2 w3 b3, and their running gradients
} net;

static tn_tensor *forward(const net *n, tn_tensor *x)
{
    x = tn_tanh(tn_linear(x, n->w[0], n->w[1]));
    x = tn_tanh(tn_linear(x, n->w[2], n->w[3]));
    return tn_linear(x, n->w[4], n->w[5]);
}

static bool make(tn_ctx *cx, net *n)
{
    n->w[0] = tn_mul_s(tn_randn(cx, TN_F32, TN_SHAPE(H, 1)), 2.0);
    n->w[1] = tn_mul_s(tn_randn(cx, TN_F32, TN_SHAPE(H)), 1.0);
    n->w[2] = tn_mul_s(tn_randn(cx, TN_F32, TN_SHAPE(H, H)), 0.18);  // about 1 / sqrt(H)
    n->w[3] = tn_zeros(cx, TN_F32, TN_SHAPE(H));
    n->w[4] = tn_mul_s(tn_randn(cx, TN_F32, TN_SHAPE(1, H)), 0.18);
    n->w[5] = tn_zeros(cx, TN_F32, TN_SHAPE(1));
    for (int i = 0; i < PARAMS; i++) {
        n->speed[i] = tn_want(tn_zeros_like(n->w[i]));
        if (!tn_requires_grad(tn_want(n->w[i]), true)) return false;
    }
    return tn_eval(cx) == TN_OK;
}

// sin(3 x) + x / 2 at random places of -2 .. 2, with noise.
static tn_tensor *make_data(tn_ctx *cx, tn_tensor **x)
{
    *x               = tn_sub_s(tn_mul_s(tn_rand(cx, TN_F32, TN_SHAPE(N, 1)), 4), 2);
    tn_tensor *noise = tn_mul_s(tn_randn(cx, TN_F32, TN_SHAPE(N, 1)), 0.12);
    return tn_add(tn_add(tn_sin(tn_mul_s(*x, 3)), tn_mul_s(*x, 0.5)), noise);
}

// One step down the gradient; the loss before it, where it is asked for.
static double step(tn_ctx *cx, net *n, tn_tensor *x, tn_tensor *y, bool report)
{
    tn_scope  *s    = tn_begin(cx);
    tn_tensor *loss = tn_mse(forward(n, x), y);
    tn_backward(loss, NULL);

    bool mode = tn_grad_mode(cx, false);  // writing to parameters is not part of the graph
    for (int i = 0; i < PARAMS; i++) {
        tn_assign(n->speed[i], tn_add(tn_mul_s(n->speed[i], MOMENTUM), tn_grad_of(n->w[i])));
        tn_sub_(n->w[i], tn_mul_s(n->speed[i], LEARNING_RATE));
        tn_zero_grad(n->w[i]);
    }
    tn_grad_mode(cx, mode);
    tn_eval(cx);
    double value = report ? tn_item(loss) : 0;
    tn_end(s);
    return value;
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void train(tn_ctx *cx, net *n, tn_tensor *x, tn_tensor *y)
{
    double start = seconds();
    printf("    step       loss\n");
    for (int i = 0, next = 0; i <= STEPS && tn_error(cx) == TN_OK; i++) {
        bool   report = i == reported[next];
        double loss   = step(cx, n, x, y, report);
        if (!report) continue;
        next++;
        printf("  %6d  %9.5f  ", i, loss);
        for (double bar = 0; bar < loss && bar < 1; bar += 0.02) putchar('#');
        putchar('\n');
    }
    printf("  %d steps in %.2f s\n\n", STEPS + 1, seconds() - start);
}

static void draw(tn_ctx *cx, net *n, tn_tensor *x, tn_tensor *y)
{
    float      px[N], py[N], cx_[C], cy[C];
    tn_scope  *s       = tn_begin(cx);
    tn_tensor *along   = tn_linspace(cx, TN_F32, -2, 2, C);
    tn_tensor *learned = forward(n, tn_reshape(along, TN_SHAPE(C, 1)));
    tn_read(x, TN_F32, px, N);
    tn_read(y, TN_F32, py, N);
    tn_read(along, TN_F32, cx_, C);
    tn_read(learned, TN_F32, cy, C);
    tn_end(s);
    if (tn_error(cx) != TN_OK) return;
    cli_plot_draw(&(cli_plot){ .width   = 68,
                               .height  = 18,
                               .points  = N,
                               .steps   = C,
                               .x       = px,
                               .y       = py,
                               .curve_x = cx_,
                               .curve_y = cy });
    printf("       o data   * what the network learned\n\n");
}

int cli_demo(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    tn_ctx *cx = tn_open_with((tn_open_opts){ .seed = 7 });
    if (!cx) {
        fprintf(stderr, "tenon: %s\n", tn_error_text(NULL));
        return 1;
    }
    net        n;
    tn_tensor *x, *y = make_data(cx, &x);
    tn_want(x);
    tn_want(y);
    printf("Fitting %d noisy points of sin(3x) + x/2 with 1 -> %d -> %d -> 1, tanh between.\n\n", N,
           H, H);
    if (make(cx, &n)) train(cx, &n, x, y);
    if (tn_error(cx) == TN_OK) draw(cx, &n, x, y);
    int status = tn_error(cx) != TN_OK;  // the error itself has been printed
    tn_close(cx);
    if (!status)
        printf("Next: cli/demo.c is this program; examples/01_tensor.c is the first lesson;\n"
               "      `tenon doctor` says what this machine has; `make bench` measures it.\n");
    return status;
}
