// sample.c: `tenon sample`, which continues a text with a gpt2 and prints it while it is generated.
#include "cli.h"

#include <stdlib.h>
#include <string.h>

// Appends a token. A full buffer keeps only the newest `context` tokens, which the network can see.
static void add_token(cli_tokens *t, int64_t id, int64_t context)
{
    if (t->count == t->room) {
        memmove(t->ids, t->ids + t->count - context, (size_t)context * sizeof *t->ids);
        t->count = context;
    }
    t->ids[t->count++] = id;
}

bool cli_tokens_read(tn_ctx *cx, const char *prompt, tn_bpe *bpe, int64_t more, cli_tokens *t)
{
    if (!*prompt) prompt = "\n";
    int64_t bytes = (int64_t)strlen(prompt);
    int64_t n     = bpe ? tn_bpe_encode(bpe, prompt, bytes, NULL, 0) : bytes;
    t->room       = n + more;
    t->ids        = n < 0 ? NULL : cli_alloc(cx, t->room, sizeof *t->ids);
    if (!t->ids) return false;
    if (bpe) tn_bpe_encode(bpe, prompt, bytes, t->ids, n);
    else
        for (int64_t i = 0; i < n; i++) t->ids[i] = (unsigned char)prompt[i];
    t->count = n;
    return true;
}

tn_tensor *cli_tokens_next(tn_layer *net, const cli_tokens *t, int64_t context)
{
    int64_t    n = t->count < context ? t->count : context;
    tn_tensor *x = tn_from(tn_layer_ctx(net), TN_I64, TN_SHAPE(1, n), t->ids + t->count - n);
    return tn_select(tn_select(tn_forward(net, x), 0, 0), 0, n - 1);
}

char *cli_token_text(tn_ctx *cx, tn_bpe *bpe, int64_t id, int64_t *bytes)
{
    *bytes     = bpe ? tn_bpe_decode(bpe, &id, 1, NULL, 0) : 1;
    char *text = *bytes < 0 ? NULL : cli_alloc(cx, *bytes, 1);
    if (text && bpe) tn_bpe_decode(bpe, &id, 1, text, *bytes);
    else if (text) text[0] = (char)id;
    return text;
}

// Draws the next token from the prediction after the newest `context` ones; temperature 0 takes the most
// likely one.
static int64_t next_token(tn_ctx *cx, tn_layer *net, const cli_settings *s, const cli_tokens *t)
{
    tn_scope  *scope = tn_begin(cx);
    tn_tensor *y     = cli_tokens_next(net, t, s->context);
    int64_t    vocab = y ? tn_size(y, 0) : 0, id;
    if (!(s->temperature > 0)) id = tn_item_i64(tn_argmax_all(y));
    else {
        int64_t k   = s->top_k > 0 && s->top_k < vocab ? s->top_k : vocab;
        tn_pair top = tn_topk(tn_div_s(y, s->temperature), k, 0, TN_LARGEST);
        id = tn_item_i64(tn_gather(top.indices, 0, tn_multinomial(tn_softmax(top.values, 0), 1)));
    }
    tn_end(scope);
    return id;
}

static bool print_token(tn_ctx *cx, tn_bpe *bpe, cli_partial *partial, int64_t id)
{
    int64_t n;
    char   *bytes = cli_token_text(cx, bpe, id, &n);
    if (!bytes) return false;
    cli_print_text(partial, bytes, (size_t)n);
    free(bytes);
    return fflush(stdout) == 0;
}

// Generates --tokens tokens after the prompt. Returns the exit status.
static int sample(tn_ctx *cx, cli_settings *s, const cli_saved *f)
{
    cli_tokens  t       = { 0 };
    cli_partial partial = { 0 };
    tn_bpe     *bpe;
    if (f->facts.task != CLI_TOKENS) return cli_fail("%s is not a network for text", s->load);
    cli_options_default(s, "tokens=200 temperature=0.8 seed=0");
    const char *prompt = s->prompt && *s->prompt ? s->prompt : "\n";
    tn_layer   *net    = cli_saved_build(cx, s, s->load, f);
    if (!net || !cli_tokenizer(cx, s, &bpe)) return 1;
    if (!cli_tokens_read(cx, prompt, bpe, 2 * s->context, &t)) return cli_fail_of(cx);
    tn_seed(cx, (uint64_t)s->seed);
    tn_layer_train(net, false);
    tn_grad_mode(cx, false);
    cli_print_text(&partial, prompt, strlen(prompt));
    for (int64_t i = 0; i < s->tokens && tn_error(cx) == TN_OK; i++) {
        int64_t id = next_token(cx, net, s, &t);
        add_token(&t, id, s->context);
        if (tn_error(cx) != TN_OK || !print_token(cx, bpe, &partial, id)) break;
    }
    putchar('\n');
    free(t.ids);
    return tn_error(cx) == TN_OK ? 0 : cli_fail_of(cx);
}

int cli_sample(int argc, char **argv)
{
    return cli_with_saved(CLI_SAMPLE, argc, argv, sample);
}
