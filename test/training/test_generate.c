// test_generate.c: caches of keys and values, drawing tokens, and generation, on every device.
#include "rules_kit.h"
#include "speaking.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 50, NEW = 12, ROWS = PROMPTS, CONTEXT = 200 };

// A GPT-2 whose weights are large enough that the most likely token changes from step to step.
static tn_layer *some_gpt2(tn_ctx *cx)
{
    tn_gpt2_opts o   = { .layers = 2, .heads = 2, .width = 16, .vocab = VOCAB, .context = CONTEXT };
    tn_layer    *net = tn_gpt2(cx, o);
    tn_init_normal(tn_layer_find(net, "transformer.wte.weight"), 0, 0.7);
    tn_init_normal(tn_layer_find(net, "transformer.wpe.weight"), 0, 0.7);
    tn_init_normal(tn_layer_find(net, "transformer.h.0.attn.c_attn.weight"), 0, 0.5);
    tn_init_normal(tn_layer_find(net, "transformer.h.1.attn.c_attn.weight"), 0, 0.5);
    tn_eval(cx);
    return net;
}

// A Llama with grouped heads, in which each token sees 9 tokens.
static tn_layer *some_llama(tn_ctx *cx)
{
    tn_llama_opts o   = { .layers   = 2,
                          .heads    = 4,
                          .kv_heads = 2,
                          .width    = 32,
                          .hidden   = 48,
                          .vocab    = VOCAB,
                          .context  = CONTEXT,
                          .window   = 9 };
    tn_layer     *net = tn_llama(cx, o);
    tn_init_normal(tn_layer_find(net, "model.embed_tokens.weight"), 0, 1);
    tn_eval(cx);
    return net;
}

// ---- generation

static void cached_and_uncached_generation_agree(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_layer *nets[] = { some_gpt2(cx), some_llama(cx) };
        for (int i = 0; i < 6; i++)
            for (int rows = 1; rows <= ROWS; rows += ROWS - 1) {
                tn_layer        *net = nets[i / 4];
                tn_generate_opts o   = way_of_choosing(i % WAYS, NEW);
                int64_t          a[ROWS * NEW], b[ROWS * NEW], na[ROWS], nb[ROWS];
                CHECK_STATUS(tn_generate(net, rows, prompts, o, a, na), TN_OK);
                o.no_cache = true;
                CHECK_STATUS(tn_generate(net, rows, prompts, o, b, nb), TN_OK);
                CHECK(!memcmp(a, b, (size_t)rows * NEW * sizeof *a));
                CHECK(na[0] == NEW && nb[0] == NEW);
            }
        CHECK_STR(tn_error_text(cx), "");
    }
}

static void rows_do_not_see_each_other(void)
{
    tn_ctx   *cx  = rules_open("cpu");
    tn_layer *net = some_gpt2(cx);
    int64_t   all[ROWS * NEW], one[NEW], n[ROWS];
    CHECK_STATUS(tn_generate(net, ROWS, prompts, way_of_choosing(0, NEW), all, n), TN_OK);
    for (int i = 0; i < ROWS; i++) {
        CHECK_STATUS(tn_generate(net, 1, prompts + i, way_of_choosing(0, NEW), one, n), TN_OK);
        CHECK(!memcmp(one, all + i * NEW, sizeof one));
    }
    bool differs = false;
    for (int i = 1; i < NEW; i++) differs |= all[i] != all[0];
    CHECK(differs);  // or this says nothing
    tn_close(cx);
}

// Notes the tokens of row 0; ends after `most`.
typedef struct {
    int64_t id[NEW];
    int     count, most;
} noted;

static bool note(int row, int64_t token, void *user)
{
    noted *n = user;
    if (row == 0) n->id[n->count++] = token;
    return n->count < n->most;
}

static void a_stop_token_ends_its_row_alone(void)
{
    tn_ctx          *cx  = rules_open("cpu");
    tn_layer        *net = some_gpt2(cx);
    int64_t          all[2 * NEW], some[2 * NEW], n[2];
    tn_generate_opts o = way_of_choosing(1, NEW);
    CHECK_STATUS(tn_generate(net, 2, prompts, o, all, n), TN_OK);
    o.stops = 1;
    o.stop  = all + 4;
    int end = 0;
    while (all[end] != all[4]) end++;
    CHECK_STATUS(tn_generate(net, 2, prompts, o, some, n), TN_OK);
    CHECK_INT(n[0], end);
    CHECK(!memcmp(some, all, (size_t)n[0] * sizeof *all));
    CHECK(!memcmp(some + NEW, all + NEW, (size_t)n[1] * sizeof *all));
    tn_close(cx);
}

static void the_caller_gets_each_token_and_can_end(void)
{
    tn_ctx          *cx   = rules_open("cpu");
    tn_layer        *net  = some_gpt2(cx);
    noted            list = { .most = 3 };
    int64_t          all[NEW], n;
    tn_generate_opts o = way_of_choosing(1, NEW);
    o.on_token         = note;
    o.user             = &list;
    CHECK_STATUS(tn_generate(net, 1, prompts, o, all, &n), TN_OK);
    CHECK_INT(n, 3);
    CHECK(!memcmp(list.id, all, 3 * sizeof *all));
    CHECK(tn_layer_training(net));  // as it was
    tn_close(cx);
}

static void wrong_prompts_are_refused(void)
{
    tn_ctx          *cx  = rules_open("cpu");
    tn_layer        *net = some_gpt2(cx);
    int64_t          all[ROWS * NEW], n[ROWS], bad[] = { 3, VOCAB };
    tn_generate_opts o      = way_of_choosing(0, NEW);
    const tn_tokens  none   = { prompts[0].ids, 0 };
    tn_tokens        beyond = { bad, 2 };
    CHECK_STATUS(tn_generate(net, 1, &none, o, all, n), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "generate: prompt 0 has no tokens");
    CHECK_STATUS(tn_generate(net, 1, &beyond, o, all, n), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "generate: token 1 of prompt 0 is 50, not in 0 .. 49");
    beyond = (tn_tokens){ bad + 1, 1 };
    CHECK_STATUS(tn_generate(net, 1, &beyond, o, all, n), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "generate: token 0 of prompt 0 is 50");
    o.length = 10;
    CHECK_STATUS(tn_generate(net, 1, prompts, o, all, n), TN_ESHAPE);
    CHECK_FAILED(cx, TN_ESHAPE, "prompt of 5 tokens and 12 new ones are more than the cache's 10");
    o.length             = 0;
    o.repetition_penalty = -1;
    CHECK_STATUS(tn_generate(net, 1, prompts, o, all, n), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "repetition_penalty -1");
    o       = way_of_choosing(0, NEW);
    o.stops = 2;
    CHECK_STATUS(tn_generate(net, 1, prompts, o, all, n), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "generate: stops is 2, and stop is NULL");
    CHECK_STATUS(tn_generate(net, 1, prompts, way_of_choosing(0, NEW), all, n), TN_OK);
    tn_close(cx);
}

// ---- steps that are repeated

// Plans looked up in a generation: one for each step that is recorded.
static int64_t generate_counting(tn_layer *net, int rows, tn_generate_opts o, int64_t *ids)
{
    tn_ctx *cx     = tn_layer_ctx(net);
    int64_t before = tn_ctx_stats(cx).hits, n[ROWS];
    CHECK_STATUS(tn_generate(net, rows, prompts, o, ids, n), TN_OK);
    return tn_ctx_stats(cx).hits - before;
}

// Generates by repeated and by recorded steps, with every way of choosing, and for rows of unequal
// lengths. in_place: whether the device marks tokens that were seen in place.
static void compare_repeated(tn_ctx *cx, bool in_place)
{
    enum { MANY = 40, LONG = 150 };
    tn_layer *nets[] = { some_gpt2(cx), some_llama(cx) };
    for (int i = 0; i < 8; i++) {
        int64_t          a[ROWS * LONG], b[ROWS * LONG];
        tn_generate_opts o    = way_of_choosing(i % WAYS, NEW);
        tn_layer        *net  = nets[i / 4];
        int              rows = i % 2 ? ROWS : 1;
        o.max_tokens          = i == 0 ? LONG : MANY;
        generate_counting(net, rows, o, a);  // plans are built
        int64_t some = generate_counting(net, rows, o, a);
        tn_layer_repeatable(net, false);
        int64_t all = generate_counting(net, rows, o, b);
        tn_layer_repeatable(net, true);
        CHECK(!memcmp(a, b, (size_t)(rows * o.max_tokens) * sizeof *a));
        CHECK(all >= o.max_tokens);
        CHECK(all - some >= o.max_tokens - 15 || (i % 4 == 3 && !in_place));
    }
    CHECK_STR(tn_error_text(cx), "");
}

// A step that is repeated chooses the token that it would if it were recorded, also where a plan
// ends (the cpu's after 128 places).
static void repeated_steps_are_those_that_would_be_recorded(void)
{
    static const char *const devices[] = { "cpu", "ref" };
    for (int i = 0; i < 2; i++) {
        tn_ctx *cx = rules_open(devices[i]);
        compare_repeated(cx, i == 0);
        tn_close(cx);
    }
}

// What a callback does to the network or the context after some tokens.
typedef struct {
    tn_layer *net;
    int       way, count;
} meddler;

static bool meddle(int row, int64_t token, void *user)
{
    meddler   *m  = user;
    tn_ctx    *cx = tn_layer_ctx(m->net);
    tn_tensor *w  = tn_layer_find(m->net, "transformer.wte.weight");
    (void)row;
    if (++m->count % 9 || token < 0) return true;
    switch (m->way) {
    case 0: tn_assign(w, tn_flip(w, 0)); break;
    case 1: tn_item(tn_sum_all(tn_rand(cx, TN_F32, TN_SHAPE(50000)))); break;
    case 2: tn_seed(cx, (uint64_t)m->count); break;
    case 3: tn_keep(tn_zeros(cx, TN_F32, TN_SHAPE(4096))); break;
    case 4: tn_layer_train(m->net, m->count == 9); break;
    }
    return true;
}

// Whatever the caller does between two tokens counts for the next one.
static void what_happens_between_tokens_counts(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx))
        for (int i = 0; i < 5; i++) {
            int64_t          ids[2][40];
            tn_generate_opts o = way_of_choosing(1, NEW);
            o.max_tokens       = 40;
            o.on_token         = meddle;
            for (int k = 0; k < 2; k++) {
                tn_scope *s = tn_begin(cx);
                tn_seed(cx, 4);
                meddler m = { some_gpt2(cx), i, 0 };
                tn_layer_repeatable(m.net, k == 0);
                o.user = &m;
                generate_counting(m.net, 1, o, ids[k]);
                tn_layer_free(m.net);
                tn_end(s);
            }
            CHECK(!memcmp(ids[0], ids[1], sizeof ids[0]));
            CHECK_STR(tn_error_text(cx), "");
        }
}

// A layer of the user's that runs a GPT-2, counts how often it is called and, if it likes, looks at
// the number of tokens.
typedef struct {
    tn_layer *net;
    int       calls;
    bool      looks;
} counting;

static tn_tensor *run_counting(tn_layer *l, tn_tensor *x)
{
    counting *c = tn_layer_self(l);
    c->calls++;
    if (c->looks) tn_layer_past(l);
    return tn_forward(c->net, x);
}

// Functions that did not say that they can be left out are called for every token, as are those
// that ask how many there are.
static void functions_are_called_unless_they_are_repeatable(void)
{
    tn_ctx          *cx = rules_open("cpu");
    int64_t          ids[40];
    tn_generate_opts o = { .max_tokens = 40 };
    for (int i = 0; i < 3; i++) {
        counting  c = { .looks = i == 1 };
        tn_layer *l = tn_layer_new(cx, run_counting, &c, NULL);
        c.net       = tn_layer_child(l, "net", some_gpt2(cx));
        tn_layer_repeatable(l, i > 0);
        generate_counting(l, 1, o, ids);
        CHECK(i == 2 ? c.calls < 15 : c.calls >= 40);
        tn_layer_free(l);
    }
    tn_close(cx);
}

// The context ends where it does without repetition.
static void a_context_ends_repetition(void)
{
    tn_ctx          *cx     = rules_open("cpu");
    tn_layer        *nets[] = { some_gpt2(cx), some_llama(cx) };
    int64_t          ids[2 * CONTEXT], n;
    tn_generate_opts o = { .max_tokens = CONTEXT, .length = 2 * CONTEXT };
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(tn_generate(nets[i], 1, prompts, o, ids, &n), TN_ESHAPE);
        CHECK_FAILED(cx, TN_ESHAPE, "201 tokens are more than the context of 200");
    }
    tn_close(cx);
}

// ---- the cache

// One step of greedy decoding: from a token to the next, which the caller drops.
static tn_tensor *step(tn_layer *net, tn_tensor *token, tn_cache *c, FILE *explain)
{
    tn_ctx    *cx = tn_layer_ctx(net);
    tn_scope  *s  = tn_begin(cx);
    tn_tensor *y  = tn_forward_cached(net, tn_reshape(token, TN_SHAPE(1, 1)), c);
    tn_tensor *t  = tn_keep(tn_argmax(tn_select(y, 1, 0), -1));
    if (explain) tn_explain(cx, explain);
    tn_eval(cx);
    tn_drop(token);
    tn_end(s);
    return t;
}

// The text of a plan. The caller frees it.
static char *plan_of_step(tn_layer *net, tn_tensor **token, tn_cache *c)
{
    char  *text = NULL;
    size_t size;
    FILE  *f = open_memstream(&text, &size);
    *token   = step(net, *token, c, f);
    fclose(f);
    return text;
}

// A step computes two rows of numbers per layer into the cache, and its plan serves every place.
static void a_step_writes_in_place_by_one_plan(void)
{
    static const char *const devices[] = { "cpu", "opencl" };
    for (int d = 0; d < 2; d++) {
        tn_ctx *cx = rules_open(devices[d]);
        if (!cx) continue;
        tn_layer *net = some_gpt2(cx);
        tn_layer_train(net, false);
        tn_grad_mode(cx, false);
        tn_cache  *c     = tn_cache_new(cx, 1, 100, (tn_cache_opts){ 0 });
        tn_tensor *token = tn_argmax(tn_rand(cx, TN_F32, TN_SHAPE(1, VOCAB)), -1);
        for (int i = 0; i < 3; i++) token = step(net, token, c, NULL);
        int64_t plans = tn_ctx_stats(cx).plans, steps = d ? 8 : 40;  // a step on opencl takes 0.3 s
        for (int64_t i = 0; i < steps; i++) token = step(net, token, c, NULL);
        CHECK_INT(tn_ctx_stats(cx).plans, plans);
        CHECK_INT(tn_cache_count(c), 3 + steps);
        char *text = plan_of_step(net, &token, c);
        CHECK(!strstr(text, "update") && !strstr(text, "copy"));
        free(text);
        tn_close(cx);
    }
}

// More places than a plan reads: the next plan takes over.
static void a_long_text_needs_few_plans(void)
{
    tn_ctx          *cx  = rules_open("cpu");
    tn_layer        *net = some_gpt2(cx);
    tn_generate_opts o   = { .max_tokens = 190, .length = CONTEXT };
    int64_t          a[190], b[190], n;
    for (int i = 0; i < 2; i++) CHECK_STATUS(tn_generate(net, 1, prompts, o, a, &n), TN_OK);
    int64_t plans = tn_ctx_stats(cx).plans;
    CHECK_STATUS(tn_generate(net, 1, prompts, o, b, &n), TN_OK);
    CHECK_INT(tn_ctx_stats(cx).plans, plans);
    CHECK(plans < 12);
    CHECK(!memcmp(a, b, sizeof a));
    tn_close(cx);
}

// Passes of several tokens give the logits of one pass over all.
static void passes_of_any_length_agree_with_one(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_layer *net = some_gpt2(cx);
        tn_layer_train(net, false);
        tn_grad_mode(cx, false);
        tn_tensor *x    = tn_randint(cx, TN_I64, 0, VOCAB, TN_SHAPE(2, 12));
        tn_tensor *want = tn_forward(net, x);
        tn_cache  *c    = tn_cache_new(cx, 2, 16, (tn_cache_opts){ 0 });
        for (int round = 0; round < 2; round++, tn_cache_clear(c)) {
            static const int cut[] = { 0, 5, 6, 9, 12 };
            for (int i = 0; i < 4; i++) {
                tn_tensor *part = tn_slice(x, 1, cut[i], cut[i + 1], 1);
                tn_tensor *y    = tn_forward_cached(net, part, c);
                tn_tensor *far  = tn_max_all(
                     tn_abs(tn_sub(y, tn_slice(want, 1, cut[i], cut[i + 1], 1))));
                CHECK(tn_item(far) < 1e-4);
            }
        }
        CHECK_STR(tn_error_text(cx), "");
    }
}

static void misuse_of_a_cache_is_reported(void)
{
    tn_ctx    *cx  = rules_open("cpu");
    tn_layer  *net = some_gpt2(cx), *other = tn_nn_flatten(cx);
    tn_tensor *x = tn_zeros(cx, TN_I64, TN_SHAPE(2, 5));
    tn_cache  *c = tn_cache_new(cx, 2, 8, (tn_cache_opts){ 0 });
    CHECK(tn_cache_new(cx, 2, 0, (tn_cache_opts){ 0 }) == NULL);
    CHECK_FAILED(cx, TN_EARG, "cache_new: 2 rows of 0 tokens");
    CHECK(tn_cache_new(cx, 2, 8, (tn_cache_opts){ .padding = (int64_t[]){ 0, 8 } }) == NULL);
    CHECK_FAILED(cx, TN_EARG, "cache_new: padding 8 of row 1 is not in 0 .. 7");
    CHECK(tn_forward_cached(net, tn_zeros(cx, TN_I64, TN_SHAPE(3, 5)), c) == NULL);
    CHECK_FAILED(cx, TN_ESHAPE, "forward_cached: x (3, 5) is not (2, T)");
    CHECK(tn_forward_cached(other, x, c) == NULL);
    CHECK_FAILED(cx, TN_EARG, "no layer of the network attends by tn_layer_attention");
    CHECK_INT(tn_cache_count(c), 0);
    CHECK(tn_forward_cached(net, x, c) != NULL);
    CHECK(tn_forward_cached(net, x, c) == NULL);
    CHECK_FAILED(cx, TN_ESHAPE, "forward_cached: 5 tokens after 5 are more than the cache's 8");
    CHECK_INT(tn_cache_count(c), 5);
    tn_gpt2_opts o = { .layers = 3, .heads = 2, .width = 16, .vocab = VOCAB, .context = CONTEXT };
    tn_layer    *deeper = tn_gpt2(cx, o);
    CHECK(tn_forward_cached(deeper, tn_slice(x, 1, 0, 1, 1), c) == NULL);
    CHECK_FAILED(cx, TN_EARG, "forward_cached: 3 layers attend, but the cache was filled by 2");
    tn_cache_clear(c);
    CHECK(tn_forward_cached(deeper, x, c) != NULL);
    tn_cache  *longer = tn_cache_new(cx, 1, 2 * CONTEXT, (tn_cache_opts){ 0 });
    tn_tensor *many   = tn_zeros(cx, TN_I64, TN_SHAPE(1, CONTEXT));
    CHECK(tn_forward_cached(net, many, longer) != NULL);
    CHECK(tn_forward_cached(net, many, longer) == NULL);
    CHECK_FAILED(cx, TN_ESHAPE, "gpt2: 400 tokens are more than the context of 200");
    tn_cache_free(c);
    tn_close(cx);
}

// A step that fails takes the tokens back that it had put into the cache.
static void a_cache_knows_that_it_lost_tokens(void)
{
    tn_ctx    *cx  = rules_open("cpu");
    tn_layer  *net = some_gpt2(cx);
    tn_cache  *c   = tn_cache_new(cx, 1, 8, (tn_cache_opts){ 0 });
    tn_tensor *bad = tn_full_i64(cx, TN_I64, TN_SHAPE(1, 2), VOCAB);
    tn_forward_cached(net, bad, c);
    CHECK(tn_eval(cx) != TN_OK);
    tn_error_clear(cx);
    tn_tensor *x = tn_zeros(cx, TN_I64, TN_SHAPE(1, 2));
    CHECK(tn_forward_cached(net, x, c) == NULL);
    CHECK_FAILED(cx, TN_EGONE, "the cache lost tokens in a failed step: clear it");
    tn_cache_clear(c);
    CHECK(tn_item(tn_sum_all(tn_isfinite(tn_forward_cached(net, x, c)))) == 2 * VOCAB);
    tn_close(cx);
}

// ---- drawing

enum { DRAWS = 20000 };

// How often each of four indices is drawn from these logits, in 0 .. 1.
static void frequencies(tn_ctx *cx, tn_sample_opts o, double *f)
{
    static const float logits[4] = { 0, 1, -1, 2 };
    tn_tensor         *x = tn_expand(tn_from(cx, TN_F32, TN_SHAPE(4), logits), TN_SHAPE(DRAWS, 4));
    tn_tensor         *y = tn_sample(x, o);
    for (int i = 0; i < 4; i++) f[i] = tn_item(tn_sum_all(tn_eq_i64(y, i))) / DRAWS;
}

static void draws_follow_the_softmax(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        double f[4], z = 1 + exp(1) + exp(-1) + exp(2);
        tn_seed(cx, 3);
        frequencies(cx, (tn_sample_opts){ .temperature = 1 }, f);
        CHECK_NEAR(f[0], 1 / z, 0.015);
        CHECK_NEAR(f[1], exp(1) / z, 0.015);
        CHECK_NEAR(f[3], exp(2) / z, 0.015);
        frequencies(cx, (tn_sample_opts){ .temperature = 2, .top_k = 2 }, f);
        CHECK_NEAR(f[3], exp(1) / (exp(1) + exp(0.5)), 0.015);
        CHECK(f[0] == 0 && f[2] == 0);
        // The two most likely have 0.88 of the probability, three 0.97.
        frequencies(cx, (tn_sample_opts){ .temperature = 1, .top_p = 0.9 }, f);
        CHECK_NEAR(f[0], 1 / (z - exp(-1)), 0.015);
        CHECK(f[2] == 0);
        frequencies(cx, (tn_sample_opts){ .temperature = 1, .top_p = 0.1 }, f);
        CHECK(f[3] == 1);
        frequencies(cx, (tn_sample_opts){ 0 }, f);
        CHECK(f[3] == 1);
    }
}

static void wrong_ways_to_draw_are_refused(void)
{
    tn_ctx    *cx = rules_open("cpu");
    tn_tensor *x  = tn_zeros(cx, TN_F32, TN_SHAPE(2, 3));
    CHECK(tn_sample(x, (tn_sample_opts){ .temperature = -1 }) == NULL);
    CHECK_FAILED(cx, TN_EARG, "sample: temperature -1");
    CHECK(tn_sample(x, (tn_sample_opts){ .top_p = 1.5 }) == NULL);
    CHECK_FAILED(cx, TN_EARG, "top_p 1.5");
    CHECK(tn_sample(tn_zeros(cx, TN_I64, TN_SHAPE(2, 3)), (tn_sample_opts){ 0 }) == NULL);
    CHECK_FAILED(cx, TN_EDTYPE, "i64 is not a float type");
    tn_close(cx);
}

// ---- indices that need no check

// The result of an argmax is known to be in range, so no step that gathers by it can fail.
static void an_argmax_needs_no_check(void)
{
    tn_ctx    *cx    = rules_open("cpu");
    tn_tensor *table = rules_there(cx, TN_SHAPE(5, 3)), *x = rules_there(cx, TN_SHAPE(4, 5));
    tn_tensor *small = rules_there(cx, TN_SHAPE(2, 3));
    tn_tensor *best  = tn_argmax(x, 1);
    CHECK(tn_item(tn_sum_all(tn_isfinite(tn_embed(best, table)))) == 12);
    tn_eval_of(tn_embed(tn_add_i64(best, 5), table));  // a sum is checked
    CHECK_FAILED(cx, TN_EARG, "out of range");
    tn_eval_of(tn_embed(tn_argmax(tn_flip(tn_arange(cx, TN_F32, 5, 0, -1), 0), 0), small));
    CHECK_FAILED(cx, TN_EARG, "out of range");
    tn_close(cx);
}

const test_case tests_generate[] = {
    TEST(cached_and_uncached_generation_agree),
    TEST(rows_do_not_see_each_other),
    TEST(a_stop_token_ends_its_row_alone),
    TEST(the_caller_gets_each_token_and_can_end),
    TEST(wrong_prompts_are_refused),
    TEST(repeated_steps_are_those_that_would_be_recorded),
    TEST(what_happens_between_tokens_counts),
    TEST(functions_are_called_unless_they_are_repeatable),
    TEST(a_context_ends_repetition),
    TEST(a_step_writes_in_place_by_one_plan),
    TEST(a_long_text_needs_few_plans),
    TEST(passes_of_any_length_agree_with_one),
    TEST(misuse_of_a_cache_is_reported),
    TEST(a_cache_knows_that_it_lost_tokens),
    TEST(draws_follow_the_softmax),
    TEST(wrong_ways_to_draw_are_refused),
    TEST(an_argmax_needs_no_check),
    TEST_END,
};
