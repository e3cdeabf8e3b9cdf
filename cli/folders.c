// folders.c: folders as Hugging Face publishes them, in the place of a file that `tenon train`
// saved.
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tenon/models.h>
#include <unistd.h>

enum { PATH_ROOM = 4096, USUAL_CONTEXT = 2048 };

bool cli_is_folder(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

tn_file *cli_folder_config(tn_ctx *cx, const char *path)
{
    char config[PATH_ROOM];
    snprintf(config, sizeof config, "%.*s/config.json", PATH_ROOM - 32, path);
    return tn_file_open(cx, config);
}

tn_file *cli_folder_weights(tn_ctx *cx, const char *path)
{
    char weights[PATH_ROOM];
    snprintf(weights, sizeof weights, "%.*s/model.safetensors.index.json", PATH_ROOM - 32, path);
    if (access(weights, R_OK) != 0)
        snprintf(weights, sizeof weights, "%.*s/model.safetensors", PATH_ROOM - 32, path);
    return tn_file_open(cx, weights);
}

// Returns the value of the first key that config.json has, NULL if it has none.
static const char *value_of(const tn_file *config, const char *key, const char *also)
{
    const char *v = tn_file_meta(config, key);
    if (!v) v = tn_file_meta(config, also);
    return v && strcmp(v, "null") ? v : NULL;
}

// Adds the end tokens that a file of settings names, one or a list of them, to "0,2".
static void add_ends(const tn_file *file, char *text, size_t room)
{
    for (int i = -1; i < 7; i++) {
        char key[32] = "eos_token_id";
        if (i >= 0) snprintf(key, sizeof key, "eos_token_id.%d", i);
        const char *end = value_of(file, key, key);
        size_t      n   = strlen(text);
        if (end) snprintf(text + n, room - n, "%s%s", n ? "," : "", end);
    }
}

// A text ends at the end tokens of the model, of which generation_config.json may know more than
// config.json.
static void restore_ends(tn_ctx *cx, cli_settings *s, const char *path, const tn_file *config)
{
    char text[160] = "", more[PATH_ROOM];
    add_ends(config, text, sizeof text);
    snprintf(more, sizeof more, "%.*s/generation_config.json", PATH_ROOM - 32, path);
    tn_file *file = access(more, R_OK) == 0 ? tn_file_open(cx, more) : NULL;
    if (file) add_ends(file, text, sizeof text);
    tn_file_free(file);
    if (cli_is_stop(text)) cli_options_restore(s, "stop", text);
}

// Whether the folder has a file of a tokenizer. Text is bytes otherwise.
static bool has_tokenizer(const char *path)
{
    static const char *const names[] = { "tokenizer.json", "merges.txt", "vocab.bpe" };
    for (int i = 0; i < 3; i++) {
        char file[PATH_ROOM];
        snprintf(file, sizeof file, "%.*s/%s", PATH_ROOM - 32, path, names[i]);
        if (access(file, R_OK) == 0) return true;
    }
    return false;
}

// Sets what a file of `tenon train` would say. The memory of generation is as long as the context,
// so that is not more than usual unless asked for.
static void set_options(tn_ctx *cx, cli_settings *s, const char *path, const tn_file *config)
{
    char        text[24], data[PATH_ROOM];
    const char *longest = value_of(config, "max_position_embeddings", "n_positions");
    const char *type    = value_of(config, "model_type", "model_type");
    long long   context = longest ? strtoll(longest, NULL, 10) : USUAL_CONTEXT;
    if (context > USUAL_CONTEXT) context = USUAL_CONTEXT;
    snprintf(text, sizeof text, "%lld", context);
    snprintf(data, sizeof data, "text:%.*s", PATH_ROOM - 32, path);
    cli_options_restore(s, "model", type && !strcmp(type, "gpt2") ? "gpt2" : "llama");
    cli_options_restore(s, "context", text);
    cli_options_restore(s, "data", data);
    if (has_tokenizer(path)) cli_options_restore(s, "tokenizer", path);
    restore_ends(cx, s, path, config);
    cli_options_default(s, "batch=1 seed=0");
}

bool cli_folder_open(tn_ctx *cx, cli_settings *s, const char *path, cli_saved *f)
{
    tn_file *config = cli_folder_config(cx, path);
    if (!config) return cli_fail_of(cx), false;
    const char *vocab  = value_of(config, "vocab_size", "vocab_size");
    long long   tokens = vocab ? strtoll(vocab, NULL, 10) : 0;
    set_options(cx, s, path, config);
    tn_file_free(config);
    if (!s->tokenizer && tokens > 256)
        return cli_fail("%s has no tokenizer.json, and its %lld tokens are not bytes; give "
                        "--tokenizer PATH",
                        cli_shown(path), tokens),
               false;
    *f = (cli_saved){
        .folder = true,
        .model  = cli_model_find(s->model),
        .data   = strdup(s->data ? s->data : ""),
        .facts  = { .task = CLI_TOKENS, .rank = 1, .size = { s->context }, .outputs = tokens }
    };
    return f->data || (cli_fail("out of memory"), false);
}

tn_layer *cli_folder_build(tn_ctx *cx, const cli_settings *s, const char *path)
{
    tn_layer *net = tn_pretrained_with(cx, path, (tn_pretrained_opts){ .context = s->context });
    if (!net) cli_fail_of(cx);
    return net;
}
