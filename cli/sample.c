// sample.c: `tenon sample`, which continues a text with a gpt2 or llama and prints it while it is
// generated.
#include "cli.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STOPS = 16 };

bool cli_is_stop(const char *text)
{
    int64_t stop[MOST_STOPS];
    return cli_whole_numbers(text, 0, 1000000000, stop, MOST_STOPS) > 0;
}

// Writes the tokens of a text, at most room of them; without a tokenizer its bytes are. Returns
// their number, -1 on failure.
static int64_t encode(tn_tokenizer *tokenizer, const char *text, bool special, int64_t *ids,
                      int64_t room)
{
    int64_t bytes = (int64_t)strlen(text);
    if (tokenizer)
        return tn_tokenizer_encode_with(tokenizer, text, bytes, ids, room,
                                        (tn_encode_opts){ .add_special = special });
    for (int64_t i = 0; i < bytes && i < room; i++) ids[i] = (unsigned char)text[i];
    return bytes;
}

bool cli_tokens_read(tn_ctx *cx, const char *prompt, tn_tokenizer *tokenizer, bool special,
                     int64_t more, cli_tokens *t)
{
    int64_t n = encode(tokenizer, prompt, special, NULL, 0);
    if (n == 0) n = encode(tokenizer, prompt = "\n", special, NULL, 0);
    t->room  = n + more;
    t->ids   = n < 0 ? NULL : cli_alloc(cx, t->room, sizeof *t->ids);
    t->count = n;
    return t->ids && encode(tokenizer, prompt, special, t->ids, n) == n;
}

tn_tensor *cli_tokens_next(tn_layer *net, const cli_tokens *t, int64_t context)
{
    int64_t    n = t->count < context ? t->count : context;
    tn_tensor *x = tn_from(tn_layer_ctx(net), TN_I64, TN_SHAPE(1, n), t->ids + t->count - n);
    return tn_select(tn_select(tn_forward(net, x), 0, 0), 0, n - 1);
}

char *cli_token_text(tn_ctx *cx, tn_tokenizer *tokenizer, int64_t id, int64_t *bytes)
{
    // In the middle of a text: at its start, some tokenizers drop a space.
    tn_token_stream s    = { .tokens = 1, .stripped = INT_MAX };
    int64_t         room = tokenizer ? tn_tokenizer_longest(tokenizer) : 1;
    char           *text = cli_alloc(cx, room, 1);
    if (!text) return NULL;
    text[0] = (char)id;
    if (tokenizer && id >= tn_tokenizer_count(tokenizer)) return *bytes = 0, text;
    int64_t whole = tokenizer ? tn_tokenizer_stream(tokenizer, &s, id, text, room) : 1;
    int64_t rest  = 0;  // a part of a character
    if (tokenizer && whole >= 0)
        rest = tn_tokenizer_stream(tokenizer, &s, -1, text + whole, room - whole);
    *bytes = whole + rest;
    if (whole >= 0) return text;
    free(text);
    return NULL;
}

// A run of the command: what the callback of tn_generate needs. `t` are the newest tokens, of which
// the network sees the last `context`.
typedef struct {
    tn_ctx       *cx;
    tn_tokenizer *tokenizer;
    cli_tokens    t;
    cli_partial   partial;
    int64_t       stop[MOST_STOPS];
    int           stops;
    int64_t       prompt, made, left;  // tokens of the prompt, new ones, and those still wanted
    double begin, first, last;  // when the run began, and the first and the newest token came
    bool   ok;                  // printing works
} sampling;

// Keeps the newest `most` tokens, if there are more.
static void forget_tokens(cli_tokens *t, int64_t most)
{
    if (t->count <= most) return;
    memmove(t->ids, t->ids + t->count - most, (size_t)most * sizeof *t->ids);
    t->count = most;
}

// Prints a new token as soon as it is known.
static bool print_token(int row, int64_t id, void *user)
{
    sampling *r = user;
    int64_t   n;
    char     *bytes = cli_token_text(r->cx, r->tokenizer, id, &n);
    (void)row;
    if (bytes) cli_print_text(&r->partial, bytes, (size_t)n);
    r->ok   = bytes && fflush(stdout) == 0;
    r->last = cli_seconds();
    if (!r->made++) r->first = r->last;
    free(bytes);
    return r->ok;
}

// Generates until the context is full, or enough. A text that fills the context goes on with its
// newest half.
static bool fill_context(sampling *r, tn_layer *net, const cli_settings *s)
{
    int64_t most = s->context, before = r->made;
    if (r->t.count > most) forget_tokens(&r->t, most > 1 ? most / 2 : 1);
    int64_t          room = most - r->t.count + 1, want = r->left < room ? r->left : room, n = 0;
    tn_generate_opts o = {
        .max_tokens         = want,
        .sample             = { s->temperature, s->top_k, s->top_p },
        .repetition_penalty = s->repetition_penalty,
        .length             = most,
        .stops              = r->stops,
        .stop               = r->stop,
        .on_token           = print_token,
        .user               = r,
    };
    tn_tokens prompt = { r->t.ids, r->t.count };
    if (tn_generate(net, 1, &prompt, o, r->t.ids + r->t.count, &n) != TN_OK) return false;
    r->t.count += n;
    r->left -= want;
    return r->ok && r->made - before == want;
}

// Says that the start of a prompt is not seen.
static void note_cut(const sampling *r, const cli_settings *s)
{
    long long most = s->context > 1 ? s->context / 2 : 1;
    if (r->t.count > s->context && !s->quiet)
        fprintf(stderr,
                "of the prompt's %lld tokens the network sees the last %lld: its context is %lld\n",
                (long long)r->t.count, most, (long long)s->context);
}

// Prints how fast it went, beside the text.
static void print_rates(const sampling *r)
{
    double first = r->first - r->begin, rest = r->last - r->first;
    if (!r->made) return;
    fprintf(stderr, "prompt: %lld token%s, %.0f a second; first token after %.3f s",
            (long long)r->prompt, cli_s(r->prompt), (double)r->prompt / first, first);
    if (r->made > 1)
        fprintf(stderr, "; then %lld, %.1f a second", (long long)r->made - 1,
                (double)(r->made - 1) / rest);
    fputc('\n', stderr);
}

// Generates --tokens tokens after the prompt. Returns the exit status.
static int sample(tn_ctx *cx, cli_settings *s, const cli_saved *f)
{
    sampling r = { .cx = cx, .ok = true };
    if (f->facts.task != CLI_TOKENS) return cli_fail("%s is not a network for text", s->load);
    cli_options_default(s, "tokens=200 temperature=0.8 seed=0");
    const char *prompt = s->prompt ? s->prompt : "";
    tn_layer   *net    = cli_saved_build(cx, s, s->load, f);
    if (!net || !cli_tokenizer(cx, s, &r.tokenizer)) return 1;
    if (!cli_tokens_read(cx, prompt, r.tokenizer, f->folder, s->context + 1, &r.t))
        return cli_fail_of(cx);
    if (s->stop) r.stops = cli_whole_numbers(s->stop, 0, INT64_MAX, r.stop, MOST_STOPS);
    tn_seed(cx, (uint64_t)s->seed);
    tn_layer_train(net, false);
    note_cut(&r, s);
    cli_print_text(&r.partial, *prompt ? prompt : "\n", *prompt ? strlen(prompt) : 1);
    r.left   = s->tokens;
    r.prompt = r.t.count;
    r.begin  = cli_seconds();
    while (r.left > 0 && fill_context(&r, net, s)) continue;
    putchar('\n');
    fflush(stdout);
    if (!s->quiet) print_rates(&r);
    free(r.t.ids);
    return tn_error(cx) == TN_OK ? 0 : cli_fail_of(cx);
}

int cli_sample(int argc, char **argv)
{
    return cli_with_saved(CLI_SAMPLE, argc, argv, sample);
}
