// 10_vae.c: a variational autoencoder learns to draw digits. An encoder turns an image into a
// normal distribution of 16 numbers, and a decoder turns numbers drawn from it back into the image.
// The distributions are kept near the standard normal one, so that in the end the decoder makes
// digits of any 16 normal numbers.
//
//     10_vae [steps]
//
// B batch, Z numbers of an image
#include <stdio.h>
#include <stdlib.h>
#include <tenon.h>

enum { B = 64, Z = 16 };

// The images without the noise of their paper, which no few numbers could describe.
static tn_tensor *ink(tn_tensor *x)
{
    return tn_clamp(tn_mul_s(tn_sub_s(x, 0.25), 3), 0, 1);
}

static tn_tensor *to_map(tn_tensor *x)
{
    return tn_reshape(x, TN_SHAPE(-1, 32, 7, 7));
}

int main(int argc, char **argv)
{
    int     steps = argc > 1 ? atoi(argv[1]) : 2000;
    tn_ctx *cx    = tn_open_with((tn_open_opts){ .seed = 1 });
    if (!cx) {
        fprintf(stderr, "%s\n", tn_error_text(NULL));
        return 1;
    }
    tn_data *data = tn_digits(cx, (tn_digits_opts){ .count = 60000 });

    // Down from 28 x 28 places to 7 x 7, and up again.
    tn_nn_conv_opts two = { .stride = { 2 }, .padding = { 1 } };
    tn_layer *encoder = tn_nn_seq(cx, tn_nn_conv2d_hw(cx, 1, 16, 4, 4, two), tn_nn_act(cx, tn_relu),
                                  tn_nn_conv2d_hw(cx, 16, 32, 4, 4, two), tn_nn_act(cx, tn_relu),
                                  tn_nn_flatten(cx), tn_nn_linear(cx, 32 * 7 * 7, 2 * Z));
    tn_layer *decoder = tn_nn_seq(cx, tn_nn_linear(cx, Z, 256), tn_nn_act(cx, tn_relu),
                                  tn_nn_linear(cx, 256, 32 * 7 * 7), tn_nn_act(cx, tn_relu),
                                  tn_nn_act(cx, to_map),
                                  tn_nn_conv_transpose2d_hw(cx, 32, 16, 4, 4, two),
                                  tn_nn_act(cx, tn_relu),
                                  tn_nn_conv_transpose2d_hw(cx, 16, 1, 4, 4, two));
    tn_layer *net     = tn_layer_new(cx, NULL, NULL, NULL);  // holds both, for the optimizer
    tn_layer_child(net, "encoder", encoder);
    tn_layer_child(net, "decoder", decoder);
    tn_schedule rate = { .kind = TN_LR_COSINE, .warmup = 50, .total = steps > 50 ? steps : 51 };
    tn_optim   *opt  = tn_adamw(net, (tn_adamw_opts){ .lr = 3e-3, .schedule = rate });

    for (int step = 0; step < steps; step++) {
        tn_scope  *s = tn_begin(cx);
        tn_batch   b = tn_next(data, B);
        tn_tensor *x = ink(b.x), *code[2];
        tn_chunk(tn_forward(encoder, x), 2, 1, code);
        tn_tensor *mean = code[0], *log_var = code[1];
        // Normal numbers times the deviation: gradients pass through to mean and deviation.
        tn_tensor *z = tn_add(mean, tn_mul(tn_exp(tn_mul_s(log_var, 0.5)), tn_randn_like(mean)));
        tn_tensor *y = tn_forward(decoder, z);
        // Per image: the error of all pixels, and the divergence from the standard normal
        // distribution.
        tn_tensor *error = tn_bce_logits_with(y, x, (tn_loss_opts){ .reduce = TN_REDUCTION_SUM });
        tn_tensor *far   = tn_sub(tn_add(tn_square(mean), tn_exp(log_var)), tn_add_s(log_var, 1));
        error            = tn_div_s(error, (double)b.count);
        far              = tn_div_s(tn_sum_all(far), 2 * (double)b.count);
        tn_step(opt, tn_add(error, far));
        if (step % 250 == 0)
            printf("step %4d  error %5.1f  divergence %4.1f\n", step, tn_item(error), tn_item(far));
        tn_end(s);
    }

    tn_scope *s = tn_begin(cx);
    tn_grad_mode(cx, false);
    tn_image_show_opts o = { .columns = 10, .style = TN_IMAGE_DOTS, .width = 160 };
    tn_tensor *drawn     = tn_sigmoid(tn_forward(decoder, tn_randn(cx, TN_F32, TN_SHAPE(80, Z))));
    tn_image_print_with(tn_slice(drawn, 0, 0, 20, 1), stdout, o);
    tn_image_write_with(drawn, "vae.png", o);
    tn_end(s);
    int failed = tn_error(cx) != TN_OK;
    tn_close(cx);
    return failed;
}
