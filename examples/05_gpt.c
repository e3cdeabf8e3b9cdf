// 05_gpt.c: a very small GPT-2 learns a nursery rhyme, byte by byte, and continues it.
//
//     05_gpt [steps]
//
// B batch, T time, V vocabulary
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon.h>
#include <tenon/models.h>

enum { B = 16, T = 32, V = 128 };  // bytes below 128: plain ASCII

static const char text[] =
    "This is the house that Jack built.\n"
    "This is the malt that lay in the house that Jack built.\n"
    "This is the rat that ate the malt that lay in the house that Jack built.\n"
    "This is the cat that killed the rat that ate the malt that lay in the house that Jack built.\n";

// Sets x to windows of the text at random places, and y, the target, to the same one byte later.
static void windows(tn_ctx *cx, tn_tensor **x, tn_tensor **y)
{
    int64_t tokens[B][T], next[B][T], at[B];
    tn_read(tn_randint(cx, TN_I64, 0, (int64_t)strlen(text) - T, TN_SHAPE(B)), TN_I64, at, B);
    for (int b = 0; b < B; b++)
        for (int t = 0; t < T; t++) {
            tokens[b][t] = text[at[b] + t];
            next[b][t]   = text[at[b] + t + 1];
        }
    *x = tn_from(cx, TN_I64, TN_SHAPE(B, T), tokens);
    *y = tn_from(cx, TN_I64, TN_SHAPE(B, T), next);
}

// Prints the prompt and `count` more bytes, each drawn from the prediction after the last T bytes.
static void write_on(tn_ctx *cx, tn_layer *net, const char *prompt, int count)
{
    int64_t line[256], n = (int64_t)strlen(prompt);
    for (int64_t i = 0; i < n; i++) line[i] = prompt[i];
    printf("%s", prompt);
    tn_layer_train(net, false);
    for (int i = 0; i < count && n < 256; i++) {
        tn_scope *s = tn_begin(cx);
        tn_grad_mode(cx, false);
        int64_t    from = n > T ? n - T : 0;
        tn_tensor *x    = tn_from(cx, TN_I64, TN_SHAPE(1, n - from), line + from);
        tn_tensor *last = tn_select(tn_forward(net, x), 1, -1);  // (1, V)
        tn_tensor *p    = tn_softmax(tn_div_s(last, 0.5), -1);   // a low temperature
        line[n]         = tn_item_i64(tn_multinomial(p, 1));
        putchar((char)line[n++]);
        tn_end(s);
    }
    putchar('\n');
    tn_layer_train(net, true);
}

int main(int argc, char **argv)
{
    int     steps = argc > 1 ? atoi(argv[1]) : 150;
    tn_ctx *cx    = tn_open_with((tn_open_opts){ .seed = 1 });
    if (!cx) {
        fprintf(stderr, "%s\n", tn_error_text(NULL));
        return 1;
    }
    tn_layer *net = tn_gpt2(
        cx,
        (tn_gpt2_opts){
            .layers = 2, .heads = 4, .width = 64, .vocab = V, .context = T, .dropout = TN_ZERO });
    tn_optim *opt = tn_adamw(net, (tn_adamw_opts){ .lr = 3e-3f, .clip_norm = 1 });
    printf("%lld parameters\n", (long long)tn_layer_count(net));

    for (int step = 0; step < steps; step++) {
        tn_scope  *s = tn_begin(cx);
        tn_tensor *x, *y;
        windows(cx, &x, &y);
        tn_tensor *logits = tn_reshape(tn_forward(net, x), TN_SHAPE(B * T, V));
        tn_tensor *loss   = tn_cross_entropy(logits, tn_reshape(y, TN_SHAPE(B * T)));
        tn_step(opt, loss);
        if (step % 50 == 0) printf("step %3d  loss %.3f\n", step, tn_item(loss));
        tn_end(s);
    }
    write_on(cx, net, "This is the ", steps < 50 ? 5 : 120);

    int failed = tn_error(cx) != TN_OK;
    tn_close(cx);
    return failed;
}
