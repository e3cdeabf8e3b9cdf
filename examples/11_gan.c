// 11_gan.c: two networks play against each other until one draws digits. The generator makes images
// of random numbers and the digit that it is asked for; the critic learns to tell them from those
// of the dataset, and the generator learns to be taken for real.
//
//     11_gan [steps]
//
// B batch, Z random numbers of an image
#include <stdio.h>
#include <stdlib.h>
#include <tenon.h>

enum { B = 64, Z = 32, SIDE = 14 };

// Images of half the size, which are quicker to learn, without the noise of their paper.
static tn_tensor *ink(tn_tensor *x)
{
    x = tn_clamp(tn_mul_s(tn_sub_s(x, 0.25), 3), 0, 1);
    return tn_avg_pool2d(x, 2, 2, (tn_pool_opts){ 0 });
}

static tn_tensor *leaky(tn_tensor *x)
{
    return tn_leaky_relu(x, 0.2);
}

static tn_tensor *to_map(tn_tensor *x)
{
    return tn_reshape(x, TN_SHAPE(-1, 64, SIDE / 2, SIDE / 2));
}

// Draws an image of each digit of y.
static tn_tensor *draw(tn_layer *generator, tn_tensor *y)
{
    tn_tensor *noise = tn_randn(tn_ctx_of(y), TN_F32, TN_SHAPE(tn_size(y, 0), Z));
    tn_tensor *in[]  = { noise, tn_cast(tn_one_hot(y, 10), TN_F32) };
    return tn_forward(generator, tn_concat(2, in, 1));
}

// The critic has an answer for each digit: whether x is a real one. This is how far those for y are
// from the target.
static tn_tensor *loss_of(tn_layer *critic, tn_tensor *x, tn_tensor *y, double target)
{
    tn_tensor *answer = tn_gather(tn_forward(critic, x), 1, tn_unsqueeze(y, 1));
    return tn_bce_logits(answer, tn_full_like(answer, target));
}

int main(int argc, char **argv)
{
    int     steps = argc > 1 ? atoi(argv[1]) : 2000;
    tn_ctx *cx    = tn_open_with((tn_open_opts){ .seed = 1 });
    if (!cx) {
        fprintf(stderr, "%s\n", tn_error_text(NULL));
        return 1;
    }
    tn_data        *data  = tn_digits(cx, (tn_digits_opts){ .count = 60000 });
    tn_nn_conv_opts two   = { .stride = { 2 }, .padding = { 1 } };
    int64_t         width = 64 * SIDE / 2 * SIDE / 2;
    tn_layer *generator   = tn_nn_seq(cx, tn_nn_linear(cx, Z + 10, 256), tn_nn_batch_norm(cx, 256),
                                      tn_nn_act(cx, tn_relu), tn_nn_linear(cx, 256, width),
                                      tn_nn_batch_norm(cx, width), tn_nn_act(cx, tn_relu),
                                      tn_nn_act(cx, to_map),
                                      tn_nn_conv_transpose2d_hw(cx, 64, 1, 4, 4, two),
                                      tn_nn_act(cx, tn_sigmoid));
    tn_layer *critic = tn_nn_seq(cx, tn_nn_conv2d_hw(cx, 1, 64, 4, 4, two), tn_nn_act(cx, leaky),
                                 tn_nn_flatten(cx), tn_nn_dropout(cx, 0.3),
                                 tn_nn_linear(cx, width, 128), tn_nn_act(cx, leaky),
                                 tn_nn_dropout(cx, 0.3), tn_nn_linear(cx, 128, 10));
    // A long memory would be of an opponent that has changed since: beta1 is small.
    tn_adamw_opts how     = { .lr = 5e-4, .beta1 = 0.5 };
    tn_optim     *drawing = tn_adamw(generator, how), *judging = tn_adamw(critic, how);

    for (int step = 0; step < steps; step++) {
        tn_scope  *s    = tn_begin(cx);
        tn_batch   b    = tn_next(data, B);
        tn_tensor *fake = draw(generator, b.y);
        // This loss is the critic's alone. A target of 0.9 for real images keeps it from being too
        // sure.
        tn_tensor *judged = tn_add(loss_of(critic, ink(b.x), b.y, 0.9),
                                   loss_of(critic, tn_detach(fake), b.y, 0));
        tn_step(judging, judged);
        tn_layer_freeze(critic, true);  // and this one the generator's alone
        tn_tensor *taken = loss_of(critic, fake, b.y, 1);
        tn_step(drawing, taken);
        tn_layer_freeze(critic, false);
        if (step % 250 == 0)
            printf("step %4d  critic %.2f  generator %.2f\n", step, tn_item(judged),
                   tn_item(taken));
        tn_end(s);
    }

    tn_scope *s = tn_begin(cx);
    tn_grad_mode(cx, false);
    tn_image_show_opts o = { .columns = 10, .style = TN_IMAGE_DOTS, .width = 160 };
    tn_tensor         *y = tn_tile(tn_arange_i64(cx, TN_I64, 0, 10, 1), 1, (int64_t[]){ 8 });
    tn_tensor         *x = tn_interpolate(draw(generator, y), TN_SHAPE(2 * SIDE, 2 * SIDE),
                                          (tn_interpolate_opts){ .mode = TN_INTERPOLATE_LINEAR });
    tn_image_print_with(tn_slice(x, 0, 0, 20, 1), stdout, o);
    tn_image_write_with(x, "gan.png", o);
    tn_end(s);
    int failed = tn_error(cx) != TN_OK;
    tn_close(cx);
    return failed;
}
