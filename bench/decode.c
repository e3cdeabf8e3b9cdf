// decode.c: generating tokens one by one with a GPT-2 124M of random weights, beside PyTorch, with
// one thread and with all. Every weight but the table of positions is read once a token, so the
// rate of memory is the limit.
#include "bench.h"

#include "base/pool.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <tenon/models.h>

enum { TOKENS = 48, WARM = 8, PROMPT = 8, LENGTH = 256, ROUNDS = 3 };

// When each token came.
typedef struct {
    double at[TOKENS];
    int    count;
} arrivals;

static bool note_token(int row, int64_t token, void *user)
{
    arrivals *a = user;
    (void)row;
    (void)token;
    a->at[a->count++] = bench_seconds();
    return true;
}

// The median time between two tokens, after some to warm up.
static double seconds_of_token(tn_layer *net)
{
    arrivals         a           = { .count = 0 };
    int64_t          ids[TOKENS] = { 0 }, prompt[PROMPT] = { 1, 2, 3, 4, 5, 6, 7, 8 }, n;
    double           took[TOKENS];
    const tn_tokens  p = { prompt, PROMPT };
    tn_generate_opts o = {
        .max_tokens = TOKENS, .length = LENGTH, .on_token = note_token, .user = &a
    };
    tn_generate(net, 1, &p, o, ids, &n);
    bench_check(tn_layer_ctx(net));
    for (int i = WARM; i < TOKENS; i++) took[i - WARM] = a.at[i] - a.at[i - 1];
    return bench_middle(took, TOKENS - WARM);
}

// A large sum, which reads memory as decoding does.
typedef struct {
    tn_ctx    *cx;
    tn_tensor *x;
} large_sum;

static void sum_all(void *arg)
{
    large_sum *s     = arg;
    tn_scope  *scope = tn_begin(s->cx);
    tn_item(tn_sum_all(s->x));
    tn_end(scope);
}

// Bytes a second that a sum over 256 MiB reads.
static double read_rate(tn_ctx *cx)
{
    int64_t   n = bench_quick() ? 1 << 16 : 1 << 26;
    large_sum s = { cx, tn_want(tn_rand(cx, TN_F32, TN_SHAPE(n))) };
    tn_eval(cx);
    double took = bench_median(sum_all, &s);
    tn_drop(s.x);
    return (double)n * 4 / took;
}

// The medians of some rounds: seconds of a token by Tenon and by PyTorch, and the rate of a sum.
typedef struct {
    double     ours, theirs, rate;
    bench_peer peer;
} turns;

// Times all three in turn, so that what else the machine does is done to all of them.
static turns take_turns(tn_layer *net, const char *peer_name, int threads)
{
    double ours[ROUNDS], theirs[ROUNDS], rate[ROUNDS];
    turns  t      = { .theirs = NAN };
    int    rounds = bench_quick() ? 1 : ROUNDS;
    seconds_of_token(net);  // kernels are compiled
    for (int i = 0; i < rounds; i++) {
        rate[i]   = read_rate(tn_layer_ctx(net));
        ours[i]   = seconds_of_token(net);
        t.peer    = bench_ask_peer(peer_name, threads);
        theirs[i] = t.peer.seconds;
    }
    t.rate = bench_middle(rate, rounds);
    t.ours = bench_middle(ours, rounds);
    if (!isnan(t.peer.seconds)) t.theirs = bench_middle(theirs, rounds);
    return t;
}

// Adds the rows of one dtype: tokens a second beside PyTorch, and bytes a second beside what a sum
// reads.
static void measure_decoding(tn_ctx *cx, tn_dtype dt, int threads)
{
    char         what[80], of[96];
    bool         narrow = dt == TN_BF16;
    tn_gpt2_opts o   = { .layers = bench_quick() ? 1 : 12, .vocab = bench_quick() ? 100 : 50257 };
    tn_layer    *net = tn_gpt2(cx, o);
    tn_layer_cast(net, dt);
    double bytes = (double)(tn_layer_count(net) - 1024 * 768) * (narrow ? 2 : 4);
    turns  t     = take_turns(net, narrow ? "decode_bf16" : "decode_f32", threads);
    if (isnan(t.theirs) && !bench_quick()) bench_note("decode", "no PyTorch found");
    snprintf(what, sizeof what, "GPT-2 %s, %d thread%s", narrow ? "bf16" : "f32", threads,
             threads > 1 ? "s" : "");
    snprintf(of, sizeof of, "%s (%.1f)", t.peer.name, 1 / t.theirs);
    bench_add((bench_row){ "decode", what, 1 / t.ours, "tokens/s", t.theirs / t.ours, of });
    snprintf(of, sizeof of, "a sum's %.1f GB/s", t.rate / 1e9);
    bytes /= t.ours;
    bench_add((bench_row){ "decode", what, bytes / 1e9, "GB/s", bytes / t.rate, of });
    tn_layer_free(net);
}

// With one thread, then with all.
void bench_decode(void)
{
    int all = tni_threads_default();
    for (int threads = 1; threads <= all; threads += all > 1 ? all - 1 : 1) {
        tn_open_opts o  = { .device = "cpu", .seed = 1, .threads = threads };
        tn_ctx      *cx = bench_open(o);
        measure_decoding(cx, TN_F32, threads);
        measure_decoding(cx, TN_BF16, threads);
        tn_close(cx);
    }
}
