// 12_diffusion.c: a network learns to take noise out of digits, and then makes digits of nothing
// but noise.
//
//     12_diffusion [steps]
//
// An image x and noise e are mixed by an angle a: cos(a) x + sin(a) e. The network sees the
// mixture, the angle and which digit it is, and says how the mixture changes as the angle grows: v
// = cos(a) e - sin(a) x. The image and the noise follow from both, so an image is made by turning
// the angle of pure noise back, step by step.
//
// B batch
#include <stdio.h>
#include <stdlib.h>
#include <tenon.h>
#include <tenon/models.h>

enum { B = 32, SIDE = 14 };

static const double RIGHT_ANGLE = 1.5707963267948966;

// Images of half the size, which are quicker to learn, with ink at 1 and paper, without its noise,
// at -1.
static tn_tensor *ink(tn_tensor *x)
{
    x = tn_clamp(tn_sub_s(tn_mul_s(x, 4), 1.6), -1, 1);
    return tn_avg_pool2d(x, 2, 2, (tn_pool_opts){ 0 });
}

// cos(a) x + sin(a) y
static tn_tensor *turn(tn_tensor *x, tn_tensor *y, tn_tensor *a)
{
    return tn_add(tn_mul(tn_cos(a), x), tn_mul(tn_sin(a), y));
}

// What the network says of mixtures x (N, 1, SIDE, SIDE) at angles a (N, 1, 1, 1) of digits y (N):
// angles and digits are further channels.
static tn_tensor *predict(tn_layer *net, tn_tensor *x, tn_tensor *a, tn_tensor *y)
{
    tn_tensor *digit = tn_reshape(tn_cast(tn_one_hot(y, 10), TN_F32), TN_SHAPE(-1, 10, 1, 1));
    tn_tensor *in[]  = { x, tn_expand(a, TN_SHAPE(-1, -1, SIDE, SIDE)),
                         tn_expand(digit, TN_SHAPE(-1, -1, SIDE, SIDE)) };
    return tn_forward(net, tn_concat(3, in, 1));
}

// Turns noise into images of the digits y, by that many turns of the angle.
static tn_tensor *draw(tn_ctx *cx, tn_layer *net, tn_tensor *y, int turns)
{
    int64_t    n = tn_size(y, 0);
    tn_tensor *x = tn_randn(cx, TN_F32, TN_SHAPE(n, 1, SIDE, SIDE));
    for (int i = turns; i > 0; i--) {
        tn_tensor *a     = tn_full(cx, TN_F32, TN_SHAPE(n, 1, 1, 1), RIGHT_ANGLE * i / turns);
        tn_tensor *v     = predict(net, x, a, y);
        tn_tensor *image = tn_clamp(turn(x, tn_neg(v), a), -1, 1), *noise = turn(v, x, a);
        x = turn(image, noise, tn_sub_s(a, RIGHT_ANGLE / turns));
    }
    return x;
}

int main(int argc, char **argv)
{
    int     steps = argc > 1 ? atoi(argv[1]) : 1600;
    tn_ctx *cx    = tn_open_with((tn_open_opts){ .seed = 1 });
    if (!cx) {
        fprintf(stderr, "%s\n", tn_error_text(NULL));
        return 1;
    }
    tn_data  *data = tn_digits(cx, (tn_digits_opts){ .count = 60000 });
    tn_layer *net  = tn_unet(
         cx, (tn_unet_opts){ .levels = 2, .width = 32, .channels = 1 + 1 + 10, .classes = 1 });
    tn_schedule rate = { .kind = TN_LR_COSINE, .warmup = 50, .total = steps > 50 ? steps : 51 };
    tn_optim *opt = tn_adamw(net, (tn_adamw_opts){ .lr = 4e-3, .clip_norm = 1, .schedule = rate });
    printf("%lld parameters\n", (long long)tn_layer_count(net));

    for (int step = 0; step < steps; step++) {
        tn_scope  *s = tn_begin(cx);
        tn_batch   b = tn_next(data, B);
        tn_tensor *x = ink(b.x), *noise = tn_randn_like(x);
        tn_tensor *a    = tn_mul_s(tn_rand(cx, TN_F32, TN_SHAPE(b.count, 1, 1, 1)), RIGHT_ANGLE);
        tn_tensor *v    = turn(noise, tn_neg(x), a);
        tn_tensor *loss = tn_mse(predict(net, turn(x, noise, a), a, b.y), v);
        tn_step(opt, loss);
        if (step % 200 == 0) printf("step %4d  loss %.3f\n", step, tn_item(loss));
        tn_end(s);
    }

    tn_scope *s = tn_begin(cx);
    tn_grad_mode(cx, false);
    tn_layer_train(net, false);
    tn_image_show_opts o = {
        .columns = 10, .lo = -1, .hi = 1, .style = TN_IMAGE_DOTS, .width = 160
    };
    int64_t    rows = steps < 100 ? 1 : 8;
    tn_tensor *y    = tn_tile(tn_arange_i64(cx, TN_I64, 0, 10, 1), 1, &rows);
    tn_tensor *x    = tn_interpolate(draw(cx, net, y, steps < 100 ? 2 : 30),
                                     TN_SHAPE(2 * SIDE, 2 * SIDE),
                                     (tn_interpolate_opts){ .mode = TN_INTERPOLATE_LINEAR });
    tn_image_print_with(tn_slice(x, 0, 0, 20, 1), stdout, o);
    tn_image_write_with(x, "diffusion.png", o);
    tn_end(s);
    int failed = tn_error(cx) != TN_OK;
    tn_close(cx);
    return failed;
}
