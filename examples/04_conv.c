// 04_conv.c: a layer of your own. A small residual network for digits, whose blocks are a struct
// and a function, is printed as a table and trained with a schedule and augmented images.
//
//     04_conv [steps]
#include <stdio.h>
#include <stdlib.h>
#include <tenon.h>

// A residual block: two convolutions with batch norm, and a shortcut around them.
typedef struct {
    tn_layer *conv1, *norm1, *conv2, *norm2;
} block;

static tn_tensor *block_forward(tn_layer *l, tn_tensor *x)
{
    block     *b = tn_layer_self(l);
    tn_tensor *y = tn_relu(tn_forward(b->norm1, tn_forward(b->conv1, x)));
    y            = tn_forward(b->norm2, tn_forward(b->conv2, y));
    return tn_relu(tn_add(y, x));
}

// Files and optimizers use the names of the children: "0.conv1.weight". The struct is freed with
// the layer.
static tn_layer *block_new(tn_ctx *cx, int64_t channels)
{
    block *b = calloc(1, sizeof *b);
    if (!b) return NULL;
    tn_nn_conv_opts same = { .padding = { 1 }, .no_bias = true };
    tn_layer       *l    = tn_layer_new(cx, block_forward, b, free);
    if (!l) return NULL;
    b->conv1 = tn_layer_child(l, "conv1", tn_nn_conv2d_hw(cx, channels, channels, 3, 3, same));
    b->norm1 = tn_layer_child(l, "norm1", tn_nn_batch_norm(cx, channels));
    b->conv2 = tn_layer_child(l, "conv2", tn_nn_conv2d_hw(cx, channels, channels, 3, 3, same));
    b->norm2 = tn_layer_child(l, "norm2", tn_nn_batch_norm(cx, channels));
    return l;
}

int main(int argc, char **argv)
{
    int     steps = argc > 1 ? atoi(argv[1]) : 120;
    tn_ctx *cx    = tn_open(NULL);
    if (!cx) {
        fprintf(stderr, "%s\n", tn_error_text(NULL));
        return 1;
    }
    tn_data *data = tn_digits(cx, (tn_digits_opts){ .count = 10000 });
    tn_data_augment(data, (tn_augment_opts){ .shift = 2 });

    tn_nn_conv_opts half = { .stride = { 2 }, .padding = { 1 } };
    tn_layer       *net  = tn_nn_seq(cx, tn_nn_conv2d_hw(cx, 1, 16, 3, 3, half), block_new(cx, 16),
                                     tn_nn_conv2d_hw(cx, 16, 32, 3, 3, half), block_new(cx, 32),
                                     tn_nn_adaptive_avg_pool2d(cx, 1, 1), tn_nn_flatten(cx),
                                     tn_nn_linear(cx, 32, 10));
    tn_layer_summary(net, tn_zeros(cx, TN_F32, TN_SHAPE(1, 1, 28, 28)), stdout);

    // The learning rate rises for 20 updates, then falls along a cosine. Norms and biases have no
    // weight decay.
    tn_optim *opt = tn_sgd(net, (tn_sgd_opts){ .lr           = 0.1f,
                                               .momentum     = 0.9f,
                                               .nesterov     = true,
                                               .weight_decay = 5e-4f,
                                               .clip_norm    = 5,
                                               .schedule     = { .kind   = TN_LR_COSINE,
                                                                 .warmup = 20,
                                                                 .total  = steps > 20 ? steps : 21 } });
    tn_optim_add_group(opt, "*.bias,*norm*", 1, 0);

    double right = 0, seen = 0;
    for (int step = 0; step < steps; step++) {
        tn_scope  *s    = tn_begin(cx);
        tn_batch   b    = tn_next(data, 32);
        tn_tensor *y    = tn_forward(net, b.x);
        tn_tensor *hits = tn_sum_all(tn_eq(tn_argmax(y, 1), b.y));
        tn_tensor *loss = tn_cross_entropy(y, b.y);
        tn_step(opt, loss);  // hits has one element, so it can be read after the step
        right += tn_item(hits);
        seen += (double)b.count;
        if ((step + 1) % 30 == 0) {
            printf("step %3d  lr %.3f  loss %.3f  right %3.0f %%\n", step + 1, tn_optim_lr(opt),
                   tn_item(loss), 100 * right / seen);
            right = seen = 0;
        }
        tn_end(s);
    }
    int failed = tn_error(cx) != TN_OK;
    tn_close(cx);
    return failed;
}
