// test_llama.c: names and shapes of Llama, what it computes, and folders of Hugging Face's. Its
// numbers are compared with transformers in test_recordings.c.
#include "faulty.h"
#include "rules_kit.h"
#include "scratch.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tenon/models.h>

static const tn_llama_opts small = {
    .layers = 2, .heads = 4, .kv_heads = 2, .width = 16, .hidden = 24, .vocab = 11, .context = 8
};

static tn_tensor *ids(tn_ctx *cx)
{
    static const int64_t v[] = { 1, 2, 3, 4, 5, 6, 10, 9, 8, 7, 6, 5 };
    return tn_from(cx, TN_I64, TN_SHAPE(2, 6), v);
}

static bool equal(tn_tensor *a, tn_tensor *b)
{
    return a && b && tn_item(tn_all_all(tn_eq(a, b))) == 1;
}

static double distance(tn_tensor *a, tn_tensor *b)
{
    return tn_item(tn_max_all(tn_abs(tn_sub(a, b))));
}

// ---- sizes and names

// As in test_models.c: the number of tensors, and the sum of the FNV-1a hashes of names and shapes.
typedef struct {
    int      count;
    uint32_t sum;
} digest;

static void digest_one(const char *name, tn_tensor *t, void *user)
{
    digest  *d = user;
    char     text[256];
    uint32_t h = 0x811c9dc5u;
    int      n = snprintf(text, sizeof text, "%s", name);
    for (int i = 0; i < tn_rank(t); i++)
        n += snprintf(text + n, sizeof text - (size_t)n, " %d", (int)tn_size(t, i));
    for (const char *s = text; *s; s++) h = (h ^ (unsigned char)*s) * 0x01000193u;
    d->sum += h;
    d->count++;
}

// The digests are of named_parameters() of Hugging Face's LlamaForCausalLM.
static void names_and_shapes_are_hugging_faces(void)
{
    tn_ctx   *cx   = rules_open("cpu");
    digest    d    = { 0 };
    tn_layer *tiny = tn_llama(cx, (tn_llama_opts){ 0 });
    CHECK_INT(tn_layer_count(tiny), 1100048384);
    CHECK_STATUS(tn_layer_each(tiny, digest_one, &d), TN_OK);
    CHECK_INT(d.count, 201);
    CHECK_INT(d.sum, 0xa74d5460);
    d              = (digest){ 0 };
    tn_layer *smol = tn_llama(
        cx,
        (tn_llama_opts){
            .layers = 30, .heads = 9, .kv_heads = 3, .width = 576, .vocab = 49152, .tied = true });
    CHECK_INT(tn_layer_count(smol), 134515008);
    CHECK_STATUS(tn_layer_each(smol, digest_one, &d), TN_OK);
    CHECK_INT(d.count, 272);
    CHECK_INT(d.sum, 0xd0ea6c5e);
    CHECK(tn_layer_find(smol, "lm_head.weight") ==
          tn_layer_find(smol, "model.embed_tokens.weight"));
    tn_close(cx);
}

static void biases_are_optional(void)
{
    tn_ctx       *cx = rules_open("cpu");
    tn_llama_opts o  = small;
    o.qkv_bias = o.mlp_bias = true;
    tn_layer *net           = tn_llama(cx, o);
    CHECK(tn_layer_find(net, "model.layers.1.self_attn.k_proj.bias") != NULL);
    CHECK(tn_layer_find(net, "model.layers.0.mlp.down_proj.bias") != NULL);
    CHECK(tn_layer_find(net, "model.layers.0.self_attn.o_proj.bias") == NULL);
    tn_error_clear(cx);
    o          = small;
    o.out_bias = true;
    net        = tn_llama(cx, o);
    CHECK(tn_layer_find(net, "model.layers.0.self_attn.o_proj.bias") != NULL);
    CHECK(tn_layer_find(net, "model.layers.0.self_attn.q_proj.bias") == NULL);
    tn_close(cx);
}

static void wrong_settings_are_errors(void)
{
    tn_ctx *cx = rules_open("cpu");
    CHECK(tn_llama(cx, (tn_llama_opts){ .heads = 9, .kv_heads = 2 }) == NULL);
    CHECK_FAILED(cx, TN_EARG, "llama: 9 heads are no multiple of 2 kv_heads");
    CHECK(tn_llama(cx, (tn_llama_opts){ .layers = -1 }) == NULL);
    CHECK_FAILED(cx, TN_EARG, "llama: layers -1 is not in 1 .. 2147483647");
    CHECK(tn_llama(cx, (tn_llama_opts){ .width = INT64_MAX }) == NULL);
    CHECK_FAILED(cx, TN_EARG, "llama: width 9223372036854775807 is not in");
    CHECK(tn_llama(cx, (tn_llama_opts){ .heads = 4, .width = 12 }) == NULL);
    CHECK_FAILED(cx, TN_EARG,
                 "llama: rope.width 3 is not an even number up to the head_width of 3");
    CHECK(tn_llama(cx, (tn_llama_opts){ .heads = 3, .width = 32 }) == NULL);
    CHECK_FAILED(cx, TN_EARG, "llama: width 32 is no multiple of 3 heads");
    CHECK(tn_llama(cx, (tn_llama_opts){ .rope = { .width = 66 } }) == NULL);
    CHECK_FAILED(cx, TN_EARG, "rope.width 66 is not an even number up to the head_width of 64");
    CHECK(tn_llama(cx, (tn_llama_opts){ .window = -4 }) == NULL);
    CHECK_FAILED(cx, TN_EARG, "llama: window -4 is negative");
    CHECK(tn_llama(cx, (tn_llama_opts){ .eps = NAN }) == NULL);
    CHECK_FAILED(cx, TN_EARG, "llama: eps nan is not 0 or more");
    tn_layer *net = tn_llama(cx, small);
    CHECK(tn_forward(net, tn_zeros(cx, TN_I64, TN_SHAPE(1, 9))) == NULL);
    CHECK_FAILED(cx, TN_ESHAPE, "llama: 9 tokens are more than the context of 8");
    CHECK(tn_forward(net, tn_zeros(cx, TN_I64, TN_SHAPE(4))) == NULL);
    CHECK_FAILED(cx, TN_ESHAPE, "llama: tokens have rank 1, not (B, T)");
    tn_tensor *two[] = { ids(cx), tn_zeros(cx, TN_F32, TN_SHAPE(6)) }, *y;
    CHECK(tn_forward_n(net, 2, two, 1, &y) != TN_OK && y == NULL);
    CHECK_FAILED(cx, TN_EDTYPE, "rope: positions are f32, not i64 or i32");
    tn_tensor *x = tn_zeros(cx, TN_F32, TN_SHAPE(2, 3, 6, 4)), *at = two[1];
    CHECK(tn_rope(x, at, (tn_rope_opts){ 0 }) == NULL);
    CHECK_FAILED(cx, TN_EDTYPE, "rope: positions are f32, not i64 or i32");
    CHECK(tn_rope(x, tn_zeros(cx, TN_I64, TN_SHAPE(5)), (tn_rope_opts){ 0 }) == NULL);
    CHECK_FAILED(cx, TN_ESHAPE, "rope: positions (5,) are not (T) or (B, T) for x (2, 3, 6, 4)");
    tn_close(cx);
}

static void any_allocation_may_fail_while_it_is_made(void)
{
    faulty h = { .failed = 1 };
    for (long n = 1; h.failed; n++) {
        h              = (faulty){ 0 };
        tn_ctx *cx     = faulty_open("cpu", &h);
        h.countdown    = n;
        bool      made = tn_llama(cx, small) != NULL;
        tn_status e    = tn_error(cx);
        h.countdown    = 0;
        tn_close(cx);
        test_case_result(e == (made ? TN_OK : TN_EMEM) && faulty_left(&h) == 0,
                         "allocation %ld: %s, %ld blocks left", n, tn_status_name(e),
                         faulty_left(&h));
    }
}

// ---- positions

// The logits of the text at these positions.
static tn_tensor *at_positions(tn_layer *net, tn_tensor *x, tn_tensor *positions)
{
    tn_tensor *in[] = { x, positions }, *y = NULL;
    CHECK_STATUS(tn_forward_n(net, 2, in, 1, &y), TN_OK);
    return y;
}

// Attention sees differences of positions only; that is what rotations are for.
static void positions_count_by_their_differences(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_layer  *net = tn_llama(cx, small);
        tn_tensor *x = ids(cx), *y = tn_forward(net, x);
        tn_tensor *near = tn_arange_i64(cx, TN_I64, 0, 6, 1), *far = tn_add_i64(near, 50);
        tn_tensor *rows = tn_stack(2, (tn_tensor *const[]){ near, far }, 0);
        CHECK(equal(at_positions(net, x, near), y));
        CHECK(distance(at_positions(net, x, far), y) < 1e-5);
        CHECK(distance(at_positions(net, x, rows), y) < 1e-5);
        CHECK(distance(at_positions(net, x, tn_mul_i64(near, 3)), y) > 1e-5);
    }
}

// Positions are values: no plan is made for others.
static void one_plan_serves_every_position(void)
{
    tn_ctx   *cx  = rules_open("cpu");
    tn_layer *net = tn_llama(cx, small);
    int64_t   at, plans = 0;
    tn_layer_train(net, false);
    tn_grad_mode(cx, false);
    for (at = 0; at < 6; at++) {
        tn_scope  *s = tn_begin(cx);
        tn_tensor *y = at_positions(net, tn_full_i64(cx, TN_I64, TN_SHAPE(2, 1), at),
                                    tn_from(cx, TN_I64, TN_SHAPE(1), &at));
        CHECK(isfinite(tn_item(tn_sum_all(y))));
        tn_end(s);
        if (at == 1) plans = tn_ctx_stats(cx).plans;
    }
    CHECK_INT(tn_ctx_stats(cx).plans, plans);
    tn_close(cx);
}

static void a_later_token_does_not_change_earlier_logits(void)
{
    static const int64_t v[] = { 1, 2, 3, 4, 9, 10, 10, 9, 8, 7, 1, 1 };
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_layer  *net = tn_llama(cx, small);
        tn_tensor *a   = tn_forward(net, ids(cx)),
                  *b   = tn_forward(net, tn_from(cx, TN_I64, TN_SHAPE(2, 6), v));
        CHECK(equal(tn_slice(a, 1, 0, 4, 1), tn_slice(b, 1, 0, 4, 1)));
        CHECK(!equal(tn_slice(a, 1, 4, 6, 1), tn_slice(b, 1, 4, 6, 1)));
    }
}

// ---- generation

// By parts through a cache, with heads that share keys, and with a window that ends inside it.
static void passes_with_a_cache_agree_with_one(void)
{
    static const int cut[] = { 0, 3, 4, 6 };
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx))
        for (int64_t window = 0; window <= 3; window += 3) {
            tn_llama_opts o = small;
            o.window        = window;
            tn_layer  *net  = tn_llama(cx, o);
            tn_tensor *want = tn_forward(net, ids(cx));
            tn_cache  *c    = tn_cache_new(cx, 2, 8, (tn_cache_opts){ 0 });
            for (int i = 0; i < 3; i++) {
                tn_tensor *x = tn_slice(ids(cx), 1, cut[i], cut[i + 1], 1);
                tn_tensor *y = tn_forward_cached(net, x, c);
                CHECK(distance(y, tn_slice(want, 1, cut[i], cut[i + 1], 1)) < 1e-5);
            }
            tn_forward_cached(net, ids(cx), c);
            CHECK_FAILED(cx, TN_ESHAPE, "are more than the cache's 8");
        }
}

static void cached_and_uncached_generation_agree(void)
{
    enum { NEW = 5 };
    static const int64_t   first[] = { 3, 1, 4 }, second[] = { 10 };
    static const tn_tokens prompts[] = { { first, 3 }, { second, 1 } };
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx))
        for (int64_t window = 0; window <= 2; window += 2) {
            tn_llama_opts o    = small;
            o.window           = window;
            tn_generate_opts g = { .max_tokens = NEW };
            int64_t          a[2 * NEW], b[2 * NEW], n[2];
            tn_layer        *net = tn_llama(cx, o);
            CHECK_STATUS(tn_generate(net, 2, prompts, g, a, n), TN_OK);
            g.no_cache = true;
            CHECK_STATUS(tn_generate(net, 2, prompts, g, b, n), TN_OK);
            CHECK(!memcmp(a, b, sizeof a));
        }
}

// ---- folders

static const char small_config[] =
    "{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
    "\"num_key_value_heads\": 2, \"hidden_size\": 16, \"intermediate_size\": 24, \"vocab_size\": 11, "
    "\"max_position_embeddings\": 8, \"rms_norm_eps\": 1e-05, \"hidden_act\": \"silu\", "
    "\"tie_word_embeddings\": false, \"rope_theta\": 10000.0, \"rope_scaling\": null}";

static const char gpt2_config[] =
    "{\"model_type\": \"gpt2\", \"n_layer\": 1, \"n_head\": 2, \"n_embd\": 8, \"vocab_size\": 11, "
    "\"n_positions\": 8, \"activation_function\": \"gelu_new\", \"n_inner\": null}";

static bool put_config(const char *text)
{
    return CHECK(scratch_write(scratch_path("config.json"), text, strlen(text)));
}

// Replaces the first `from` of a config by `to`, and writes that.
static void put_changed(const char *config, const char *from, const char *to)
{
    char        text[1024];
    const char *at = strstr(config, from);
    if (!CHECK(at != NULL)) return;
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - config), config, to, at + strlen(from));
    put_config(text);
}

static const char *folder(void)
{
    return scratch_path(".");
}

static void a_folder_is_built_and_loaded(void)
{
    CHECK(scratch_open());
    tn_ctx   *cx = rules_open("cpu");
    tn_layer *a  = tn_llama(cx, small);
    put_config(small_config);
    CHECK_STATUS(tn_save(a, scratch_path("model.safetensors")), TN_OK);
    tn_layer *b = tn_pretrained(cx, folder());
    CHECK(b && !tn_layer_training(b));
    CHECK(equal(tn_forward(a, ids(cx)), tn_forward(b, ids(cx))));
    tn_layer *half = tn_pretrained_with(cx, folder(), (tn_pretrained_opts){ .dtype = TN_BF16 });
    CHECK_INT(tn_dtype_of(tn_layer_find(half, "model.norm.weight")), TN_BF16);
    CHECK(distance(tn_forward(a, ids(cx)), tn_forward(half, ids(cx))) < 0.02);
    CHECK_STATUS(tn_save(half, scratch_path("model.safetensors")), TN_OK);
    tn_layer *kept = tn_pretrained(cx, folder());
    CHECK_INT(tn_dtype_of(tn_forward(kept, ids(cx))), TN_BF16);
    CHECK(equal(tn_forward(half, ids(cx)), tn_forward(kept, ids(cx))));
    tn_layer *brief = tn_pretrained_with(cx, folder(), (tn_pretrained_opts){ .context = 4 });
    CHECK_STR(tn_error_text(cx), "");
    CHECK(tn_forward(brief, ids(cx)) == NULL);
    CHECK_FAILED(cx, TN_ESHAPE, "llama: 6 tokens are more than the context of 4");
    tn_close(cx);
    scratch_close();
}

// The tensors of a network in two files, the first half and the rest, and the text of their index.
typedef struct {
    int         count;
    char        names[64][80];
    const char *name[64];
    tn_tensor  *t[64];
} contents;

static void collect(const char *name, tn_tensor *t, void *user)
{
    contents *c = user;
    snprintf(c->names[c->count], sizeof c->names[0], "%s", name);
    c->name[c->count] = c->names[c->count];
    c->t[c->count++]  = t;
}

static void a_folder_of_several_files_is_loaded(void)
{
    CHECK(scratch_open());
    tn_ctx   *cx          = rules_open("cpu");
    tn_layer *a           = tn_llama(cx, small);
    contents  c           = { 0 };
    char      index[8192] = "{\"metadata\": {}, \"weight_map\": {";
    CHECK_STATUS(tn_layer_each(a, collect, &c), TN_OK);
    int half = c.count / 2;
    tn_file_write(cx, scratch_path("m-1.safetensors"), half, c.name, c.t, 0, NULL);
    tn_file_write(cx, scratch_path("m-2.safetensors"), c.count - half, c.name + half, c.t + half, 0,
                  NULL);
    for (int i = 0; i < c.count; i++)
        snprintf(index + strlen(index), sizeof index - strlen(index),
                 "%s\"%s\": \"m-%d.safetensors\"", i ? ", " : "", c.name[i], i < half ? 1 : 2);
    snprintf(index + strlen(index), sizeof index - strlen(index), "}}");
    put_config(small_config);
    scratch_write(scratch_path("model.safetensors.index.json"), index, strlen(index));
    tn_layer *b = tn_pretrained(cx, folder());
    CHECK(equal(tn_forward(a, ids(cx)), tn_forward(b, ids(cx))));
    CHECK_STR(tn_error_text(cx), "");
    remove(scratch_path("m-2.safetensors"));
    CHECK(tn_pretrained(cx, folder()) == NULL);
    CHECK_FAILED(cx, TN_EIO, "m-2.safetensors: No such file");
    tn_close(cx);
    scratch_close();
}

// Old files of Llama have the frequencies; the network without its output layer lacks "model.".
static void names_of_other_files_are_understood(void)
{
    CHECK(scratch_open());
    tn_ctx       *cx = rules_open("cpu");
    tn_llama_opts o  = small;
    contents      c  = { 0 };
    o.tied           = true;
    tn_layer *a      = tn_llama(cx, o);
    CHECK_STATUS(tn_layer_each(a, collect, &c), TN_OK);
    for (int i = 0; i < c.count; i++) c.name[i] += strlen("model.");
    c.name[c.count] = "layers.0.self_attn.rotary_emb.inv_freq";
    c.t[c.count++]  = tn_ones(cx, TN_F32, TN_SHAPE(2));
    put_changed(small_config, "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
    tn_file_write(cx, scratch_path("model.safetensors"), c.count, c.name, c.t, 0, NULL);
    tn_layer *b = tn_pretrained(cx, folder());
    CHECK(equal(tn_forward(a, ids(cx)), tn_forward(b, ids(cx))));
    CHECK_STR(tn_error_text(cx), "");
    tn_close(cx);
    scratch_close();
}

static void folders_of_gpt2_are_loaded_with_and_without_the_prefix(void)
{
    CHECK(scratch_open());
    tn_ctx      *cx = rules_open("cpu");
    tn_gpt2_opts o  = { .layers = 1, .heads = 2, .width = 8, .vocab = 11, .context = 8 };
    tn_layer    *a  = tn_gpt2(cx, o);
    contents     c  = { 0 };
    put_config(gpt2_config);
    CHECK_STATUS(tn_save(a, scratch_path("model.safetensors")), TN_OK);
    tn_layer_train(a, false);
    tn_layer *b = tn_pretrained(cx, folder());
    CHECK(equal(tn_forward(a, ids(cx)), tn_forward(b, ids(cx))));
    CHECK_STATUS(tn_layer_each(a, collect, &c), TN_OK);
    for (int i = 0; i < c.count; i++) c.name[i] += strlen("transformer.");
    c.name[c.count] = "h.0.attn.bias";  // a mask
    c.t[c.count++]  = tn_ones(cx, TN_F32, TN_SHAPE(1, 1, 8, 8));
    c.name[c.count] = "h.0.attn.masked_bias";
    c.t[c.count++]  = tn_ones(cx, TN_F32, TN_0D);
    tn_file_write(cx, scratch_path("model.safetensors"), c.count, c.name, c.t, 0, NULL);
    b = tn_pretrained(cx, folder());
    CHECK(equal(tn_forward(a, ids(cx)), tn_forward(b, ids(cx))));
    CHECK_STR(tn_error_text(cx), "");
    tn_close(cx);
    scratch_close();
}

// What config.json says reaches the network: each change makes other logits, as the options do.
static void settings_of_a_folder_reach_the_network(void)
{
    static const char scaling[] = "\"rope_theta\": 10000.0, \"rope_scaling\": null";
    static const struct {
        const char  *from, *to;
        int64_t      window;
        double       eps;
        tn_rope_opts rope;
    } cases[] = {
        { "1e-05", "1e-02", 0, 1e-2, { .theta = 0 } },
        { "\"llama\"", "\"mistral\", \"sliding_window\": 2", 2, 0, { .theta = 0 } },
        { "\"llama\"", "\"mistral\", \"sliding_window\": null", 0, 0, { .theta = 0 } },
        { scaling, "\"rope_theta\": 20", 0, 0, { .theta = 20 } },
        { scaling,
          "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 20.0}",
          0,
          0,
          { .theta = 20 } },
        { scaling,
          "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 3.0}",
          0,
          0,
          { .scaling = TN_ROPE_LINEAR, .factor = 3 } },
        { scaling,
          "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 0.5, "
          "\"high_freq_factor\": 2.0, \"original_max_position_embeddings\": 4}",
          0,
          0,
          { .scaling   = TN_ROPE_LLAMA3,
            .factor    = 8,
            .trained   = 4,
            .low_freq  = 0.5,
            .high_freq = 2 } },
        { scaling,
          "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0, \"attention_factor\": 1.5}",
          0,
          0,
          { .scaling = TN_ROPE_YARN, .factor = 4, .trained = 8, .attention = 1.5 } },
    };
    CHECK(scratch_open());
    tn_ctx   *cx    = rules_open("cpu");
    tn_layer *plain = tn_llama(cx, small);
    CHECK_STATUS(tn_save(plain, scratch_path("model.safetensors")), TN_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tn_llama_opts o = small;
        o.window        = cases[i].window;
        o.eps           = cases[i].eps;
        o.rope          = cases[i].rope;
        put_changed(small_config, cases[i].from, cases[i].to);
        tn_layer *a = tn_llama(cx, o), *b = tn_pretrained(cx, folder());
        CHECK_STATUS(tn_load(a, scratch_path("model.safetensors")), TN_OK);
        tn_tensor *y = tn_forward(b, ids(cx));
        test_case_result(equal(tn_forward(a, ids(cx)), y), "case %d", (int)i);
        bool same = !cases[i].window && !cases[i].eps && !cases[i].rope.theta &&
                    !cases[i].rope.factor;
        test_case_result(equal(tn_forward(plain, ids(cx)), y) == same, "case %d beside plain",
                         (int)i);
    }
    CHECK_STR(tn_error_text(cx), "");
    tn_close(cx);
    scratch_close();
}

static void what_is_wrong_in_a_folder_is_named(void)
{
    static const struct {
        const char *from, *to, *part;
    } cases[] = {
        { "\"llama\"", "\"bert\"", "model_type bert is none of gpt2, llama, mistral and qwen2" },
        { "\"model_type\"", "\"type\"", "model_type is missing" },
        { "\"hidden_size\"", "\"hidden\"", "hidden_size is missing" },
        { "\"hidden_size\": 16", "\"hidden_size\": 18", "no multiple of num_attention_heads 4" },
        { "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 2.5",
          "num_hidden_layers is 2.5, not a whole number" },
        { "\"num_hidden_layers\": 2", "\"num_hidden_layers\": -2",
          "num_hidden_layers is -2, not a whole number" },
        { "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 20000", "is 20000, above 10000" },
        { "\"vocab_size\": 11", "\"vocab_size\": \"many\"", "vocab_size is many, not a number" },
        { "\"silu\"", "\"gelu\"", "hidden_act is gelu, and only silu is supported" },
        { "\"rope_scaling\": null", "\"rope_scaling\": {\"rope_type\": \"longrope\"}",
          "rope_type longrope is none of" },
        { "\"rope_scaling\": null", "\"rope_scaling\": {\"type\": \"linear\"}",
          "its factor is missing" },
        { "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": 3",
          "is 3, not true or false" },
        { "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3",
          "4 heads are no multiple of 3 kv_heads" },
        { "\"vocab_size\": 11", "\"vocab_size\": 12",
          "embed_tokens.weight is (11, 16) in the file" },
        { "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3",
          "model.layers.2.self_attn.q_proj.weight" },
        { "\"rope_scaling\": null", "\"quantization_config\": {\"quant_method\": \"fp8\"}",
          "quantized weights are not supported" },
        { "\"vocab_size\": 11", "\"vocab_size\": 3000000000",
          "vocab_size is 3000000000, not a whole number in 1 .. 2147483647" },
        { "\"llama\"", "\"llama", "config.json" },
    };
    CHECK(scratch_open());
    tn_ctx *cx = rules_open("cpu");
    CHECK(tn_pretrained(cx, folder()) == NULL);
    CHECK_FAILED(cx, TN_EIO, "config.json: No such file");
    put_config(small_config);
    CHECK(tn_pretrained(cx, folder()) == NULL);
    CHECK_FAILED(cx, TN_EIO, "model.safetensors: No such file");
    CHECK_STATUS(tn_save(tn_llama(cx, small), scratch_path("model.safetensors")), TN_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_changed(small_config, cases[i].from, cases[i].to);
        CHECK(tn_pretrained(cx, folder()) == NULL);
        test_case_result(strstr(tn_error_text(cx), cases[i].part) != NULL, "%s: %s", cases[i].to,
                         tn_error_text(cx));
        tn_error_clear(cx);
    }
    put_changed(gpt2_config, "gelu_new", "relu");
    CHECK(tn_pretrained(cx, folder()) == NULL);
    CHECK_FAILED(cx, TN_EFORMAT, "activation_function is relu, and only gelu_new is supported");
    put_changed(gpt2_config, "\"n_inner\": null", "\"n_inner\": 48");
    CHECK(tn_pretrained(cx, folder()) == NULL);
    CHECK_FAILED(cx, TN_EFORMAT, "n_inner is not 4 times n_embd");
    CHECK(tn_pretrained_with(cx, folder(), (tn_pretrained_opts){ .dtype = TN_I32 }) == NULL);
    CHECK_FAILED(cx, TN_EDTYPE, "pretrained: dtype is none of f32, f16, bf16 and f64");
    CHECK(tn_pretrained(cx, NULL) == NULL);
    CHECK_FAILED(cx, TN_EARG, "pretrained: the folder is NULL");
    tn_close(cx);
    scratch_close();
}

// ---- learning

static void it_learns_a_batch_by_heart(void)
{
    tn_ctx    *cx  = rules_open("cpu");
    tn_layer  *net = tn_llama(cx, small);
    tn_optim  *o   = tn_adam(net, (tn_adam_opts){ .lr = 1e-2 });
    tn_tensor *x = ids(cx), *y = tn_roll(x, -1, 1);
    double     first = 0, last = 0;
    for (int i = 0; i < 40; i++) {
        tn_scope  *s    = tn_begin(cx);
        tn_tensor *loss = tn_cross_entropy(tn_transpose(tn_forward(net, x), 1, 2), y);
        CHECK_STATUS(tn_step(o, loss), TN_OK);
        last = tn_item(loss);
        if (i == 0) first = last;
        CHECK_STATUS(tn_end(s), TN_OK);
    }
    test_that(last <= 0.5 * first, "the loss goes from %g to %g only", first, last);
    tn_close(cx);
}

const test_case tests_llama[] = {
    TEST(names_and_shapes_are_hugging_faces),
    TEST(biases_are_optional),
    TEST(wrong_settings_are_errors),
    TEST(any_allocation_may_fail_while_it_is_made),
    TEST(positions_count_by_their_differences),
    TEST(one_plan_serves_every_position),
    TEST(a_later_token_does_not_change_earlier_logits),
    TEST(passes_with_a_cache_agree_with_one),
    TEST(cached_and_uncached_generation_agree),
    TEST(a_folder_is_built_and_loaded),
    TEST(a_folder_of_several_files_is_loaded),
    TEST(names_of_other_files_are_understood),
    TEST(folders_of_gpt2_are_loaded_with_and_without_the_prefix),
    TEST(settings_of_a_folder_reach_the_network),
    TEST(what_is_wrong_in_a_folder_is_named),
    TEST(it_learns_a_batch_by_heart),
    TEST_END,
};
