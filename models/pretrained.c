// Networks from folders as Hugging Face publishes them: config.json says what to build, and
// model.safetensors, or the files of model.safetensors.index.json, have the weights.
#include "part.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

// ---- reading config.json -----------------------------------------------------------------------

// A folder that is read. The first wrong setting is reported and sets failed; reading goes on with
// zeros, so that only the end needs a check.
typedef struct {
    tn_ctx     *cx;
    const char *folder;
    tn_file    *file;  // config.json
    bool        failed;
} config;

__attribute__((format(printf, 2, 3))) static void wrong(config *c, const char *format, ...)
{
    char    why[300], text[700];
    va_list list;
    if (c->failed) return;
    va_start(list, format);
    vsnprintf(why, sizeof why, format, list);
    va_end(list);
    snprintf(text, sizeof text, "pretrained: %.300s/config.json: %s", c->folder, why);
    tn_error_set(c->cx, TN_EFORMAT, text);
    c->failed = true;
}

// Returns the text of a setting; NULL if it is missing or null.
static const char *setting(const config *c, const char *key)
{
    const char *v = tn_file_meta(c->file, key);
    return v && strcmp(v, "null") != 0 ? v : NULL;
}

// Returns a number of a setting, `missing` if there is none.
static double real(config *c, const char *key, double missing)
{
    const char *v = setting(c, key);
    char       *end;
    if (!v) return missing;
    double d = strtod(v, &end);
    if (end == v || *end || !isfinite(d)) wrong(c, "%s is %.40s, not a number", key, v);
    return c->failed ? 0 : d;
}

// The same for a size, 1 .. INT_MAX. Without a value for `missing` (0) the setting is required.
static int64_t size(config *c, const char *key, int64_t missing)
{
    const char *v = setting(c, key);
    if (!v && !missing) wrong(c, "%s is missing", key);
    double d = real(c, key, (double)missing);
    if (!c->failed && (d != floor(d) || d < 1 || d > INT_MAX))
        wrong(c, "%s is %.40s, not a whole number in 1 .. %d", key, v ? v : "missing", INT_MAX);
    return c->failed ? 0 : (int64_t)d;
}

// The number of blocks. Nothing of the files has been compared yet, and each block takes memory.
static int64_t blocks(config *c, const char *key)
{
    enum { MOST_BLOCKS = 10000 };
    int64_t n = size(c, key, 0);
    if (n > MOST_BLOCKS) wrong(c, "%s is %lld, above %d", key, (long long)n, (int)MOST_BLOCKS);
    return c->failed ? 0 : n;
}

static bool truth(config *c, const char *key, bool missing)
{
    const char *v = setting(c, key);
    if (!v) return missing;
    bool yes = !strcmp(v, "true"), no = !strcmp(v, "false");
    if (!yes && !no) wrong(c, "%s is %.40s, not true or false", key, v);
    return yes;
}

// Reports a setting that has another value than the network here is made for. Missing is accepted.
static void expect(config *c, const char *key, const char *value, const char *also)
{
    const char *v = setting(c, key);
    if (v && strcmp(v, value) != 0 && strcmp(v, also) != 0)
        wrong(c, "%s is %.40s, and only %s is supported", key, v, value);
}

// ---- settings of the kinds of networks ---------------------------------------------------------

// The name of a setting of the rotary embedding, wherever this version of the format keeps it:
// rope_parameters, or rope_scaling before.
typedef struct {
    char s[80];
} rope_name;

static rope_name rope_key(const config *c, const char *name)
{
    rope_name key;
    snprintf(key.s, sizeof key.s, "rope_parameters.%s", name);
    if (!setting(c, key.s)) snprintf(key.s, sizeof key.s, "rope_scaling.%s", name);
    return key;
}

static tn_rope_scaling scaling_of(config *c)
{
    static const char *const names[] = { "default", "linear", "dynamic", "llama3", "yarn" };
    const char              *v       = setting(c, rope_key(c, "rope_type").s);
    if (!v) v = setting(c, rope_key(c, "type").s);
    for (int i = TN_ROPE_PLAIN; v && i <= TN_ROPE_YARN; i++)
        if (!strcmp(v, names[i])) return (tn_rope_scaling)i;
    if (v) wrong(c, "rope_type %.40s is none of default, linear, dynamic, llama3 and yarn", v);
    return TN_ROPE_PLAIN;
}

// The factor of YaRN's sines and cosines, if the settings give it by mscale.
static double yarn_attention(config *c, double factor)
{
    double given = real(c, rope_key(c, "attention_factor").s, 0);
    double over  = real(c, rope_key(c, "mscale").s, 0),
           under = real(c, rope_key(c, "mscale_all_dim").s, 0);
    if (given != 0 || over == 0 || under == 0 || factor <= 1) return given;
    return (0.1 * over * log(factor) + 1) / (0.1 * under * log(factor) + 1);
}

static tn_rope_opts read_rope(config *c, int64_t context)
{
    tn_rope_opts o = { .scaling = scaling_of(c) };
    o.theta        = real(c, rope_key(c, "rope_theta").s, real(c, "rope_theta", 10000));
    if (o.scaling == TN_ROPE_PLAIN) return o;
    bool own = o.scaling == TN_ROPE_LLAMA3 || o.scaling == TN_ROPE_YARN;
    o.factor = real(c, rope_key(c, "factor").s, 0);
    if (!(o.factor > 0)) wrong(c, "the rotary embedding is scaled, and its factor is missing");
    o.trained = own ? size(c, rope_key(c, "original_max_position_embeddings").s, context) : context;
    o.low_freq  = real(c, rope_key(c, "low_freq_factor").s, 0);
    o.high_freq = real(c, rope_key(c, "high_freq_factor").s, 0);
    o.beta_fast = real(c, rope_key(c, "beta_fast").s, 0);
    o.beta_slow = real(c, rope_key(c, "beta_slow").s, 0);
    o.attention = o.scaling == TN_ROPE_YARN ? yarn_attention(c, o.factor) : 0;
    expect(c, rope_key(c, "truncate").s, "true", "true");
    return o;
}

// The longest text: but for llama3, scalings are for texts beyond what max_position_embeddings
// says.
static int64_t read_context(config *c, const tn_rope_opts *rope, const tn_pretrained_opts *o)
{
    int64_t n      = size(c, "max_position_embeddings", 2048);
    double  longer = (double)rope->trained * rope->factor;
    if (rope->scaling != TN_ROPE_LLAMA3 && longer > (double)n && longer < INT_MAX)
        n = (int64_t)longer;
    return o->context && o->context < n ? o->context : n;
}

// How many tokens a token sees; 0 for all. Mistral has a window unless it says null.
static int64_t read_window(config *c, const char *type)
{
    bool given = tn_file_meta(c->file, "sliding_window") != NULL;
    if (!strcmp(type, "mistral"))
        return setting(c, "sliding_window") || !given ? size(c, "sliding_window", 4096) : 0;
    if (truth(c, "use_sliding_window", false)) wrong(c, "use_sliding_window is not supported");
    return 0;
}

static tn_layer *make_llama(config *c, const tn_pretrained_opts *p)
{
    const char   *type = setting(c, "model_type");
    bool          qwen = !strcmp(type, "qwen2"), bias = truth(c, "attention_bias", false);
    tn_llama_opts o = { .layers   = blocks(c, "num_hidden_layers"),
                        .heads    = size(c, "num_attention_heads", 0),
                        .width    = size(c, "hidden_size", 0),
                        .hidden   = size(c, "intermediate_size", 0),
                        .vocab    = size(c, "vocab_size", 0),
                        .eps      = real(c, "rms_norm_eps", 1e-6),
                        .window   = read_window(c, type),
                        .tied     = truth(c, "tie_word_embeddings", false),
                        .qkv_bias = qwen || bias,
                        .out_bias = !qwen && bias,
                        .mlp_bias = truth(c, "mlp_bias", false) };
    o.kv_heads      = size(c, "num_key_value_heads", c->failed ? 1 : o.heads);
    o.rope          = read_rope(c, size(c, "max_position_embeddings", 2048));
    o.context       = read_context(c, &o.rope, p);
    if (setting(c, "head_dim")) o.head_width = size(c, "head_dim", 0);
    expect(c, "hidden_act", "silu", "swish");
    expect(c, "partial_rotary_factor", "1.0", "1");
    if (!c->failed && o.head_width == 0 && o.width % o.heads)
        wrong(c, "hidden_size %lld is no multiple of num_attention_heads %lld", (long long)o.width,
              (long long)o.heads);
    return c->failed ? NULL : tn_llama(c->cx, o);
}

static tn_layer *make_gpt2(config *c, const tn_pretrained_opts *p)
{
    double       dropout = real(c, "resid_pdrop", 0.1);
    tn_gpt2_opts o       = { .layers  = blocks(c, "n_layer"),
                             .heads   = size(c, "n_head", 0),
                             .width   = size(c, "n_embd", 0),
                             .vocab   = size(c, "vocab_size", 0),
                             .context = size(c, "n_positions", 1024),
                             .dropout = dropout > 0 ? dropout : TN_ZERO };
    if (p->context && p->context < o.context) o.context = p->context;
    expect(c, "activation_function", "gelu_new", "gelu_pytorch_tanh");
    expect(c, "scale_attn_weights", "true", "true");
    expect(c, "scale_attn_by_inverse_layer_idx", "false", "false");
    expect(c, "tie_word_embeddings", "true", "true");
    if (!c->failed && setting(c, "n_inner") && size(c, "n_inner", 0) != 4 * o.width)
        wrong(c, "n_inner is not 4 times n_embd");
    if (!c->failed && fabs(real(c, "layer_norm_epsilon", 1e-5) - 1e-5) > 1e-12)
        wrong(c, "layer_norm_epsilon is not 1e-5");
    return c->failed ? NULL : tn_gpt2(c->cx, o);
}

// A kind of network. Files of the network without its output layer lack `prefix`, which `first`, a
// tensor that every file has, tells. Tensors that fit `ignore` or `unknown` are computed here.
typedef struct {
    const char *type;
    tn_layer *(*make)(config *c, const tn_pretrained_opts *p);
    const char *first, *prefix, *ignore, *unknown;
} kind;

// clang-format off
static const kind kinds[] = {
    { "gpt2",    make_gpt2,  "wte.weight",          "transformer.", "*.attn.bias",           "*.attn.masked_bias" },
    { "llama",   make_llama, "embed_tokens.weight", "model.",       "*rotary_emb.inv_freq",  NULL },
    { "mistral", make_llama, "embed_tokens.weight", "model.",       "*rotary_emb.inv_freq",  NULL },
    { "qwen2",   make_llama, "embed_tokens.weight", "model.",       "*rotary_emb.inv_freq",  NULL },
};
// clang-format on

static const kind *kind_of(config *c)
{
    const char *type = setting(c, "model_type");
    // Loading names what lies beside quantized weights, but would take these as they are.
    if (setting(c, "quantization_config.quant_method"))
        wrong(c, "quantized weights are not supported");
    for (size_t i = 0; type && i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].type, type)) return &kinds[i];
    if (!type) wrong(c, "model_type is missing");
    else wrong(c, "model_type %.40s is none of gpt2, llama, mistral and qwen2", type);
    return NULL;
}

// ---- weights -----------------------------------------------------------------------------------

// Returns FOLDER/NAME, which the caller frees. NULL, reported, if memory is out.
static char *path_in(const config *c, const char *name)
{
    size_t n    = strlen(c->folder) + strlen(name) + 2;
    char  *path = malloc(n);
    if (!path) return tn_error_set(c->cx, TN_EMEM, "pretrained: out of memory");
    snprintf(path, n, "%s/%s", c->folder, name);
    return path;
}

// Returns the path of the weights: the index of several files, if there is one.
static char *weights_path(const config *c)
{
    char *path = path_in(c, "model.safetensors.index.json");
    FILE *f    = path ? fopen(path, "rb") : NULL;
    if (f) fclose(f);
    if (f || !path) return path;
    free(path);
    return path_in(c, "model.safetensors");
}

// Returns the dtype of a tensor of the file; f32 for those that networks do not compute in.
static tn_dtype dtype_of(const tn_file *f, int i)
{
    const char *name = tn_file_info(f, i).dtype;
    return !strcmp(name, "BF16")  ? TN_BF16
           : !strcmp(name, "F16") ? TN_F16
           : !strcmp(name, "F64") ? TN_F64
                                  : TN_F32;
}

// Loads the weights in their own dtype or in the one asked for. What the file calls the embedding
// tells whether its names lack their first part.
static bool load_weights(config *c, const kind *k, tn_layer *net, const char *path, tn_dtype dt)
{
    tn_load_opts o    = { .ignore = k->ignore, .allow_unknown = k->unknown };
    tn_file     *file = tn_file_open(c->cx, path);
    size_t       n    = strlen(k->prefix);
    if (!file) return false;
    for (int i = 0; i < tn_file_count(file); i++) {
        const char *name = tn_file_name(file, i);
        bool        bare = !strcmp(name, k->first);
        if (bare) o.add_prefix = k->prefix;
        if (!bare && (strncmp(name, k->prefix, n) || strcmp(name + n, k->first))) continue;
        if (dt == TN_BOOL) dt = dtype_of(file, i);
    }
    tn_file_free(file);
    if (dt != TN_BOOL && dt != TN_F32 && tn_layer_cast(net, dt) != TN_OK) return false;
    return tn_load_with(net, path, o) == TN_OK;
}

// Builds and loads the network of an open config.json.
static tn_layer *make_net(config *c, const tn_pretrained_opts *o)
{
    const kind *k    = kind_of(c);
    tn_layer   *net  = k ? k->make(c, o) : NULL;
    char       *path = net ? weights_path(c) : NULL;
    bool        ok   = path && load_weights(c, k, net, path, o->dtype);
    free(path);
    if (ok) tn_layer_train(net, false);
    return tni_model_done(net, ok);
}

tn_layer *tn_pretrained_with(tn_ctx *cx, const char *folder, tn_pretrained_opts o)
{
    config c          = { .cx = cx, .folder = folder };
    bool   float_or_0 = o.dtype == TN_BOOL || o.dtype == TN_F32 || o.dtype == TN_F16 ||
                      o.dtype == TN_BF16 || o.dtype == TN_F64;
    if (!folder) return tn_error_set(cx, TN_EARG, "pretrained: the folder is NULL");
    if (!float_or_0)
        return tn_error_set(cx, TN_EDTYPE, "pretrained: dtype is none of f32, f16, bf16 and f64");
    if (o.context < 0) return tn_error_set(cx, TN_EARG, "pretrained: context is negative");
    char *path = path_in(&c, "config.json");
    c.file     = path ? tn_file_open(cx, path) : NULL;
    free(path);
    tn_layer *net = c.file ? make_net(&c, &o) : NULL;
    if (c.file) tn_file_free(c.file);
    return net;
}

tn_layer *tn_pretrained(tn_ctx *cx, const char *folder)
{
    return tn_pretrained_with(cx, folder, (tn_pretrained_opts){ 0 });
}
