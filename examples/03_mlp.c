// 03_mlp.c: train a two-layer perceptron on images of digits, and measure its accuracy.
//
//     03_mlp [steps]
#include <stdio.h>
#include <stdlib.h>
#include <tenon.h>

// Returns the fraction of items that the network classifies correctly.
static double accuracy(tn_ctx *cx, tn_layer *net, tn_data *data, int64_t items)
{
    int64_t right = 0, seen = 0;
    tn_layer_train(net, false);  // evaluation mode: no dropout, no batch statistics
    while (seen < items && tn_error(cx) == TN_OK) {
        tn_scope *s = tn_begin(cx);
        tn_grad_mode(cx, false);  // until tn_end
        tn_batch   b     = tn_next(data, 500);
        tn_tensor *guess = tn_argmax(tn_forward(net, b.x), 1);
        right += tn_item_i64(tn_sum_all(tn_eq(guess, b.y)));
        seen += b.count;
        tn_end(s);
    }
    tn_layer_train(net, true);
    return seen ? (double)right / (double)seen : 0;
}

int main(int argc, char **argv)
{
    int     steps = argc > 1 ? atoi(argv[1]) : 1500;
    tn_ctx *cx    = tn_open(NULL);  // the fastest device present
    if (!cx) {
        fprintf(stderr, "%s\n", tn_error_text(NULL));
        return 1;
    }
    // The images are drawn on demand, so there is nothing to download. The test images differ.
    tn_data *data = tn_digits(cx, (tn_digits_opts){ .count = 20000 });
    tn_data *test = tn_digits(cx, (tn_digits_opts){ .count = 2000, .test = true });

    // Layers and optimizers belong to the context; tn_close frees them.
    tn_layer *net = tn_nn_seq(cx, tn_nn_flatten(cx), tn_nn_linear(cx, 784, 128),
                              tn_nn_act(cx, tn_relu), tn_nn_linear(cx, 128, 10));
    tn_optim *opt = tn_adamw(net, (tn_adamw_opts){ .lr = 1e-3f });

    for (int step = 0; step < steps; step++) {
        tn_scope *s = tn_begin(cx);
        tn_batch  b = tn_next(data, 64);  // b.x (64, 1, 28, 28), b.y (64); shuffled, without end

        tn_tensor *loss = tn_cross_entropy(tn_forward(net, b.x), b.y);
        tn_step(opt, loss);  // backward, update, clear gradients
        if (step % 250 == 0) printf("step %4d  loss %.3f\n", step, tn_item(loss));
        tn_end(s);  // every tensor of this step is gone
    }
    printf("test accuracy %.1f %%\n", 100 * accuracy(cx, net, test, steps < 100 ? 500 : 2000));
    tn_save(net, "mlp.safetensors");

    int failed = tn_error(cx) != TN_OK;  // the first error, if any, was printed
    tn_close(cx);
    return failed;
}
