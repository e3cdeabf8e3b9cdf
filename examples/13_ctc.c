// 13_ctc.c: a network learns to read strips of digits without being told where they stand.
// Convolutions look at the strip, a recurrent layer goes along it in both directions, and
// connectionist temporal classification adds up all ways to spread the right digits, with blanks
// between them, over the columns of the answer.
//
//     13_ctc [steps]
//
// B batch, L digits of a strip at most, T columns of the answer
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon.h>

enum { B = 32, L = 6, SIDE = 28, APART = 20, WIDTH = SIDE + APART * (L - 1), T = WIDTH / 4 };
enum { BLANK = 10 };  // the class after the ten digits

typedef struct {
    tn_tensor *x, *digits, *lengths;  // (B, 1, SIDE, WIDTH), (B, L), (B)
} strips;

// Draws strips of 1 to L digits, whose images overlap; those behind the last digit are left out.
static strips draw(tn_ctx *cx, tn_data *data)
{
    strips   s;
    tn_batch b      = tn_next(data, B * L);
    s.digits        = tn_reshape(b.y, TN_SHAPE(B, L));
    s.lengths       = tn_randint(cx, TN_I64, 1, L + 1, TN_SHAPE(B));
    tn_tensor *seen = tn_lt(tn_arange_i64(cx, TN_I64, 0, L, 1), tn_unsqueeze(s.lengths, 1));
    tn_tensor *each = tn_transpose(tn_reshape(b.x, TN_SHAPE(B, L, SIDE * SIDE)), 1, 2);
    s.x             = tn_fold_windows(tn_mul(each, tn_unsqueeze(seen, 1)), SIDE, WIDTH, SIDE, SIDE,
                                      (tn_conv_opts){ .stride = { SIDE, APART } });
    return s;
}

// From features (B, C, H, T) to a sequence (T, B, C * H).
static tn_tensor *columns(tn_tensor *x)
{
    return tn_flatten(tn_permute(x, TN_AXES(3, 0, 1, 2)), 2, 3);
}

// Writes what the likeliest classes of strip b spell: equal ones in a row count once, blanks do
// not.
static void spell(int64_t best[T][B], int b, char *text)
{
    for (int t = 0; t < T; t++)
        if (best[t][b] != BLANK && (t == 0 || best[t][b] != best[t - 1][b]))
            *text++ = (char)('0' + best[t][b]);
    *text = 0;
}

// Reads strips of test images: prints some of them, and how many were read without an error.
static void test_on(tn_ctx *cx, tn_layer *net, tn_data *data, int shown)
{
    int64_t   best[T][B], digits[B][L], lengths[B];
    int       right = 0;
    tn_scope *scope = tn_begin(cx);
    tn_grad_mode(cx, false);
    strips s = draw(cx, data);
    tn_read(tn_argmax(tn_forward(net, s.x), -1), TN_I64, best, T * B);
    tn_read(s.digits, TN_I64, digits, B * L);
    tn_read(s.lengths, TN_I64, lengths, B);
    for (int b = 0; b < B && tn_error(cx) == TN_OK; b++) {
        char text[T + 1], truth[L + 1] = "";
        spell(best, b, text);
        for (int i = 0; i < lengths[b]; i++) truth[i] = (char)('0' + digits[b][i]);
        right += !strcmp(text, truth);
        if (b >= shown) continue;
        tn_image_print_with(tn_select(s.x, 0, b), stdout,
                            (tn_image_show_opts){ .style = TN_IMAGE_DOTS });
        printf("read %s, written %s\n", text, truth);
    }
    printf("%d of %d strips without an error\n", right, B);
    if (shown) tn_image_write_with(s.x, "ctc.png", (tn_image_show_opts){ .columns = 2 });
    tn_end(scope);
}

int main(int argc, char **argv)
{
    int     steps = argc > 1 ? atoi(argv[1]) : 600;
    tn_ctx *cx    = tn_open_with((tn_open_opts){ .seed = 1 });
    if (!cx) {
        fprintf(stderr, "%s\n", tn_error_text(NULL));
        return 1;
    }
    tn_data        *data  = tn_digits(cx, (tn_digits_opts){ .count = 60000 });
    tn_data        *test  = tn_digits(cx, (tn_digits_opts){ .count = 6000, .test = true });
    tn_nn_conv_opts half  = { .stride = { 2 }, .padding = { 1 } };
    tn_nn_rnn_opts  along = { .kind = TN_GRU, .bidirectional = true };
    tn_layer *net = tn_nn_seq(cx, tn_nn_conv2d_hw(cx, 1, 16, 3, 3, half), tn_nn_act(cx, tn_relu),
                              tn_nn_conv2d_hw(cx, 16, 32, 3, 3, half), tn_nn_act(cx, tn_relu),
                              tn_nn_act(cx, columns), tn_nn_rnn(cx, 32 * 7, 64, along),
                              tn_nn_linear(cx, 2 * 64, BLANK + 1));
    tn_data_drop_last(data, true);  // every batch makes B strips
    tn_data_drop_last(test, true);
    tn_optim *opt = tn_adamw(net, (tn_adamw_opts){ .lr = 3e-3, .clip_norm = 1 });

    for (int step = 0; step < steps; step++) {
        tn_scope  *scope = tn_begin(cx);
        strips     s     = draw(cx, data);
        tn_tensor *p     = tn_log_softmax(tn_forward(net, s.x), -1);  // (T, B, BLANK + 1)
        tn_tensor *loss  = tn_ctc_loss(p, s.digits, NULL, s.lengths,
                                       (tn_ctc_opts){ .blank = BLANK });
        tn_step(opt, loss);
        if (step % 100 == 0) printf("step %3d  loss %.3f  ", step, tn_item(loss));
        tn_end(scope);
        if (step % 100 == 0) test_on(cx, net, test, 0);
    }
    test_on(cx, net, test, 4);
    int failed = tn_error(cx) != TN_OK;
    tn_close(cx);
    return failed;
}
