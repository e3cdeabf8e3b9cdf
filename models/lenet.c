// A small convolutional network for 28 x 28 images of one channel.
#include "part.h"

tn_layer *tn_lenet(tn_ctx *cx)
{
    tn_layer *step[] = {
        tn_nn_conv2d(cx, 1, 32, 3),  // (B, 32, 26, 26)
        tn_nn_batch_norm(cx, 32),    tn_nn_act(cx, tn_relu),
        tn_nn_max_pool2d(cx, 2),      // (B, 32, 13, 13)
        tn_nn_conv2d(cx, 32, 64, 3),  // (B, 64, 11, 11)
        tn_nn_batch_norm(cx, 64),    tn_nn_act(cx, tn_relu),
        tn_nn_max_pool2d(cx, 2),  // (B, 64, 5, 5)
        tn_nn_flatten(cx),        // (B, 1600)
        tn_nn_linear(cx, 1600, 128), tn_nn_act(cx, tn_relu),
        tn_nn_linear(cx, 128, 10),
    };
    return tn_nn_seq_n(cx, sizeof step / sizeof *step, step);
}
