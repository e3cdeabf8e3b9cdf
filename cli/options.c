// options.c: every option of the tool in one table. The same rows parse the command line, print the
// help, write the settings into a trained network's file and read them from there.
#include "cli.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

typedef enum { OF_FLAG, OF_TEXT, OF_WHOLE, OF_REAL } option_kind;
typedef enum { MODEL, DATA, TRAINING, FILES, TEXTS, MACHINE, GROUPS } option_group;

static const char *const group_titles[GROUPS] = {
    [MODEL] = "The network",        [DATA] = "Data",  [TRAINING] = "Training",
    [FILES] = "Files and progress", [TEXTS] = "Text", [MACHINE] = "Machine",
};

// One option. A number must be in least .. most. A text must be one of the words of `form`, or
// accepted by is_value, which form then describes. `with` names an option that must also be given,
// "save", or must have one of these values, "model mlp".
typedef struct {
    const char  *name, *value, *what;
    option_group group;
    unsigned     uses;  // the commands that take it, and KEPT
    option_kind  kind;
    size_t       at;  // in cli_settings
    double       least, most;
    const char  *form;
    bool (*is_value)(const char *text);
    const char *with;
} option;

enum { KEPT = 32 };  // a setting of a trained network, saved with it

#define MANY   1e15
#define TRAINS (CLI_TRAIN | CLI_DEMO)
#define LOADS  (CLI_EVAL | CLI_SAMPLE | CLI_PREDICT)
#define BUILDS (TRAINS | CLI_EVAL)  // eval: for weights of other programs
#define TABLES (CLI_TRAIN | CLI_EVAL | CLI_PREDICT)

// The end of a row: the kind of the value, its field, and its allowed values.
#define FLAG(field)                .kind = OF_FLAG, .at = offsetof(cli_settings, field)
#define TEXT(field)                .kind = OF_TEXT, .at = offsetof(cli_settings, field)
#define WORDS(field, words)        TEXT(field), .form = words
#define FORM(field, is, described) TEXT(field), .form = described, .is_value = is
#define WHOLE(field, from, to) \
    .kind = OF_WHOLE, .at = offsetof(cli_settings, field), .least = from, .most = to
#define REAL(field, from, to) \
    .kind = OF_REAL, .at = offsetof(cli_settings, field), .least = from, .most = to

// clang-format off
static const option options[] = {
    { "model", "NAME", "one of the networks below",
      MODEL, CLI_TRAIN | CLI_EVAL | KEPT, FORM(model, cli_is_model, CLI_MODEL_FORM) },
    { "hidden", "N,N,..", "mlp: sizes of the hidden layers, or none; llama: one size",
      MODEL, BUILDS | KEPT, FORM(hidden, cli_is_hidden, CLI_HIDDEN_FORM),
      .with = "model mlp llama" },
    { "depth", "N", "resnet: 18, 34, 50, 101, 152, or for small images 20, 56",
      MODEL, BUILDS | KEPT, WHOLE(depth, 1, 10000), .with = "model resnet" },
    { "layers", "N", "gpt2, llama: blocks",
      MODEL, BUILDS | KEPT, WHOLE(layers, 1, 10000), .with = "model gpt2 llama" },
    { "heads", "N", "gpt2, llama: attention heads",
      MODEL, BUILDS | KEPT, WHOLE(heads, 1, 10000), .with = "model gpt2 llama" },
    { "kv-heads", "N", "llama: heads of keys and values; as many as heads by default",
      MODEL, BUILDS | KEPT, WHOLE(kv_heads, 1, 10000), .with = "model llama" },
    { "tied", NULL, "llama: the output layer is the embedding",
      MODEL, BUILDS | KEPT, FLAG(tied), .with = "model llama" },
    { "width", "N", "gpt2, llama: numbers per token",
      MODEL, BUILDS | KEPT, WHOLE(width, 1, 1e6), .with = "model gpt2 llama" },
    { "context", "N", "gpt2, llama: length of the context in tokens",
      MODEL, BUILDS | LOADS | KEPT, WHOLE(context, 1, 1e6), .with = "model gpt2 llama" },
    { "dropout", "P", "gpt2: probability, 0 for none",
      MODEL, TRAINS | KEPT, REAL(dropout, 0, 0.99), .with = "model gpt2" },

    { "normalize", "M,S", "images: subtract mean M, divide by S; M,M,M/S,S,S by channel",
      MODEL, BUILDS | KEPT, FORM(normalize, cli_is_normalize, CLI_NORMALIZE_FORM),
      .with = "data digits idx cifar10 images" },

    { "load", "FILE", "the network, as train --save wrote it, or a folder of Hugging Face's",
      DATA, LOADS, TEXT(load) },
    { "data", "SPEC", "the data, see below",
      DATA, TRAINS | CLI_EVAL | KEPT, FORM(data, cli_is_spec, CLI_SPEC_FORM) },
    { "part", "PART", "test, train or all",
      DATA, CLI_EVAL, WORDS(part, "test train all") },
    { "separator", "C", "tables: one character, or tab; detected by default",
      DATA, TABLES | KEPT, FORM(separator, cli_is_separator, CLI_SEPARATOR_FORM),
      .with = "data csv" },
    { "no-header", NULL, "tables: the first line is a row",
      DATA, TABLES | KEPT, FLAG(no_header), .with = "data csv" },
    { "missing", "WHAT",
      "tables: missing cells: error, mean, category (mean and a flag) or skip the row",
      DATA, TABLES | KEPT, WORDS(missing, "error mean category skip"), .with = "data csv" },
    { "missing-words", "W,W", "tables: words for missing cells; NA,NaN,null,? by default",
      DATA, TABLES | KEPT, TEXT(missing_words), .with = "data csv" },
    { "limit", "N", "train on N items, chosen by the seed",
      DATA, TRAINS | KEPT, WHOLE(limit, 1, MANY) },
    { "augment", "LIST", "change images: shift=2,flip,crop=4,jitter=0.4,mixup=0.2; of images:DIR also resized",
      DATA, TRAINS | KEPT, FORM(augment, cli_is_augment, CLI_AUGMENT_FORM),
      .with = "data digits idx cifar10 images" },
    { "tokenizer", "PATH", "a tokenizer.json, or a folder with it or GPT-2's two files, instead of bytes",
      DATA, CLI_TRAIN | LOADS | KEPT, TEXT(tokenizer), .with = "data text" },
    { "batch", "N", "items in a batch",
      DATA, TRAINS | CLI_EVAL | CLI_PREDICT | KEPT, WHOLE(batch, 1, 1e9) },

    { "epochs", "N", "passes over the data",
      TRAINING, TRAINS | KEPT, WHOLE(epochs, 1, MANY) },
    { "optim", "NAME", "sgd, adam, adamw, rmsprop, adagrad, adadelta, nadam, lamb, lion or muon",
      TRAINING, TRAINS | KEPT,
      WORDS(optim, "sgd adam adamw rmsprop adagrad adadelta nadam lamb lion muon") },
    { "lr", "X", "learning rate",
      TRAINING, TRAINS | KEPT, REAL(lr, 1e-30, 1e30) },
    { "schedule", "NAME",
      "of the learning rate: constant, step (a tenth after each third), cosine, linear or one-cycle",
      TRAINING, TRAINS | KEPT, WORDS(schedule, "constant step cosine linear one-cycle") },
    { "warmup", "N", "updates during which the learning rate rises",
      TRAINING, TRAINS | KEPT, WHOLE(warmup, 0, MANY) },
    { "momentum", "X", "of sgd, rmsprop and muon",
      TRAINING, TRAINS | KEPT, REAL(momentum, 0, 0.99999), .with = "optim sgd rmsprop muon" },
    { "weight-decay", "X", "the optimizer's default unless given",
      TRAINING, TRAINS | KEPT, REAL(weight_decay, 0, 1e30) },
    { "clip", "X", "largest norm of the gradient; 0: no limit",
      TRAINING, TRAINS | KEPT, REAL(clip, 0, 1e30) },
    { "accumulate", "N", "batches per update",
      TRAINING, TRAINS | KEPT, WHOLE(accumulate, 1, 1e9) },
    { "precision", "NAME",
      "of products: f32, tf32 (on GPUs that have it), or autocast in bf16 or f16",
      TRAINING, TRAINS | KEPT, WORDS(precision, "f32 tf32 bf16 f16") },
    { "recompute", NULL, "compute the values inside blocks again in the backward pass, to save memory",
      TRAINING, CLI_TRAIN | KEPT, FLAG(recompute), .with = "data text" },
    { "seed", "N", "of weights, order and all random numbers",
      TRAINING, TRAINS | CLI_SAMPLE | KEPT, WHOLE(seed, 0, MANY) },

    { "save", "FILE", "write the network (safetensors), and FILE.state for resuming",
      FILES, TRAINS, TEXT(save) },
    { "save-every", "N", "also save every N steps, not only after epochs",
      FILES, TRAINS, WHOLE(save_every, 1, MANY), .with = "save" },
    { "force", NULL, "overwrite a finished run at --save",
      FILES, TRAINS, FLAG(force), .with = "save" },
    { "force", NULL, "overwrite the file at --out",
      FILES, CLI_PREDICT, FLAG(force), .with = "out" },
    { "resume", NULL, "continue the run at --save; --epochs may be raised",
      FILES, CLI_TRAIN, FLAG(resume) },
    { "log", "FILE", "write one line of JSON per step",
      FILES, TRAINS, TEXT(log) },
    { "tensorboard", "DIR", "write what TensorBoard shows: curves, histograms, images",
      FILES, TRAINS, TEXT(tensorboard) },
    { "report", "FILE", "write a page of the run: curves, samples, mistakes (HTML)",
      FILES, TRAINS, TEXT(report) },
    { "every", "N", "steps between lines of the log and of progress",
      FILES, TRAINS, WHOLE(every, 1, MANY) },
    { "eval-every", "N", "also evaluate every N steps, not only at the end",
      FILES, TRAINS, WHOLE(eval_every, 1, MANY) },
    { "patience", "N", "stop after N evaluations without improvement; save the best network",
      FILES, TRAINS | KEPT, WHOLE(patience, 1, MANY), .with = "save" },
    { "out", "FILE", "write the predictions to FILE instead of stdout",
      FILES, CLI_PREDICT, TEXT(out) },
    { "top", "N", "the N most likely classes or tokens, not only the first",
      FILES, CLI_PREDICT, WHOLE(top, 1, 1e9) },
    { "quiet", NULL, "no progress; results and errors are printed",
      FILES, TRAINS | CLI_SAMPLE, FLAG(quiet) },

    { "prompt", "TEXT", "the start of the text",
      TEXTS, CLI_SAMPLE | CLI_PREDICT, TEXT(prompt) },
    { "tokens", "N", "number of tokens to add",
      TEXTS, CLI_SAMPLE, WHOLE(tokens, 1, MANY) },
    { "temperature", "X", "below 1 safer, above 1 wilder, 0 always the most likely",
      TEXTS, CLI_SAMPLE, REAL(temperature, 0, 1000) },
    { "top-k", "N", "choose among the N most likely only",
      TEXTS, CLI_SAMPLE, WHOLE(top_k, 1, 1e9) },
    { "top-p", "X", "choose among the fewest tokens whose probabilities sum up to X",
      TEXTS, CLI_SAMPLE, REAL(top_p, 1e-9, 1) },
    { "repetition-penalty", "X", "above 1: tokens that are in the text become less likely",
      TEXTS, CLI_SAMPLE, REAL(repetition_penalty, 1e-3, 1e3) },
    { "stop", "N,N,..", "end before any of these tokens",
      TEXTS, CLI_SAMPLE, FORM(stop, cli_is_stop, CLI_STOP_FORM) },

    { "device", "NAME", "from tenon devices; default: TN_DEVICE, or the fastest",
      MACHINE, TRAINS | LOADS, TEXT(device) },
    { "threads", "N", "default: TN_NUM_THREADS, or all cores",
      MACHINE, TRAINS | LOADS, WHOLE(threads, 1, 256) },
};
// clang-format on

enum { OPTIONS = sizeof options / sizeof *options };
_Static_assert(OPTIONS <= 64, "a bit each");

int cli_whole_numbers(const char *text, int64_t least, int64_t most, int64_t *v, int room)
{
    int n = 0;
    for (const char *at = text; n < room; at++) {
        char     *end;
        long long x = strtoll(at, &end, 10);
        if (end == at || x < least || x > most) return 0;
        v[n++] = x;
        if (!*end) return n;
        if (*end != ',') return 0;
        at = end;
    }
    return 0;
}

// Returns the option of this name that one of the commands takes. Another command may have another
// option of the same name.
static const option *find_for(unsigned commands, const char *name, size_t length)
{
    for (int i = 0; i < OPTIONS; i++)
        if ((options[i].uses & commands) && strlen(options[i].name) == length &&
            !strncmp(options[i].name, name, length))
            return &options[i];
    return NULL;
}

static const option *find(const char *name, size_t length)
{
    return find_for(~0u, name, length);
}

static uint64_t bit_of(const option *o)
{
    return (uint64_t)1 << (o - options);
}

static void *field_of(const cli_settings *s, const option *o)
{
    return (char *)s + o->at;
}

bool cli_options_given(const cli_settings *s, const char *name)
{
    const option *o = find(name, strlen(name));
    return o && (s->given & bit_of(o));
}

// ---- values

static bool is_word_of(const char *words, const char *text)
{
    size_t n = strlen(text);
    for (const char *c = words; n > 0 && c; c = strchr(c, ' ')) {
        c += *c == ' ';
        if (!strncmp(c, text, n) && (c[n] == ' ' || !c[n])) return true;
    }
    return false;
}

static bool is_text_of(const option *o, const char *text)
{
    if (!o->form) return true;
    return o->is_value ? o->is_value(text) : is_word_of(o->form, text);
}

// Reads a number, which must be the whole text and in the range of the option.
static bool read_number(const option *o, const char *text, double *real, int64_t *whole)
{
    char *end;
    errno = 0;
    if (o->kind == OF_WHOLE) {
        long long v = strtoll(text, &end, 10);
        *whole      = v;
        *real       = (double)v;
    } else {
        *real = strtod(text, &end);
        if (errno == ERANGE && fabs(*real) < 1) errno = 0;  // tiny, not wrong
    }
    bool blank = *text == ' ' || *text == '\t' || *text == '\n';
    return errno == 0 && end != text && !*end && !blank && *real >= o->least && *real <= o->most;
}

// Stores the text as the option's value. False if it is not a valid value, or out of memory.
static bool set(cli_settings *s, const option *o, const char *text)
{
    double  real  = 0;
    int64_t whole = 0;
    if (o->kind == OF_FLAG) *(bool *)field_of(s, o) = true;
    else if (o->kind == OF_TEXT) {
        char *copy = is_text_of(o, text) ? strdup(text) : NULL;
        if (!copy) return false;
        free(*(char **)field_of(s, o));
        *(char **)field_of(s, o) = copy;
    } else {
        if (!read_number(o, text, &real, &whole)) return false;
        if (o->kind == OF_WHOLE) *(int64_t *)field_of(s, o) = whole;
        else *(double *)field_of(s, o) = real;
    }
    s->given |= bit_of(o);
    return true;
}

const char *cli_options_text(const cli_settings *s, const char *name, char *room, size_t size)
{
    const option *o = find(name, strlen(name));
    if (!o || !(s->given & bit_of(o))) return NULL;
    if (o->kind == OF_TEXT) return *(char **)field_of(s, o);
    if (o->kind == OF_WHOLE) snprintf(room, size, "%lld", (long long)*(int64_t *)field_of(s, o));
    else if (o->kind == OF_REAL) snprintf(room, size, "%.9g", *(double *)field_of(s, o));
    else snprintf(room, size, "yes");
    return room;
}

void cli_options_default(cli_settings *s, const char *pairs)
{
    while (*pairs) {
        char   value[64];
        size_t name = strcspn(pairs, "="), end = strcspn(pairs, " ");
        snprintf(value, sizeof value, "%.*s", (int)(end - name - 1), pairs + name + 1);
        const option *o = find(pairs, name);
        if (o && !(s->given & bit_of(o))) set(s, o, value);
        pairs += end + strspn(pairs + end, " ");
    }
}

bool cli_options_of_network(const cli_settings *s, const char *name)
{
    const option *o = find(name, strlen(name));
    return o && o->group == MODEL && (s->asked & bit_of(o));
}

const char *cli_options_kept(int i)
{
    for (int k = 0; k < OPTIONS; k++)
        if ((options[k].uses & KEPT) && i-- == 0) return options[k].name;
    return NULL;
}

bool cli_options_restore(cli_settings *s, const char *name, const char *text)
{
    const option *o = find(name, strlen(name));
    return !o || (s->given & bit_of(o)) || set(s, o, text);
}

void cli_settings_free(cli_settings *s)
{
    for (int i = 0; i < OPTIONS; i++)
        if (options[i].kind == OF_TEXT) free(*(char **)field_of(s, &options[i]));
    *s = (cli_settings){ 0 };
}

// ---- the command line

bool cli_line_wrong(const char *command, const char *format, ...)
{
    char    before[64], after[64];
    va_list list;
    va_start(list, format);
    snprintf(before, sizeof before, "tenon %s: ", command);
    snprintf(after, sizeof after, "; see tenon help %s", command);
    cli_say(before, format, list, after);
    va_end(list);
    return false;
}

static bool wrong_value(const char *command, const option *o, const char *text)
{
    const char *whole = o->kind == OF_WHOLE ? "whole " : "";
    if (o->kind == OF_TEXT && is_text_of(o, text)) return cli_line_wrong(command, "out of memory");
    if (o->kind == OF_TEXT && o->is_value)
        return cli_line_wrong(command, "--%s is %s; not \"%s\"", o->name, o->form, text);
    if (o->kind == OF_TEXT)
        return cli_line_wrong(command, "--%s is one of: %s; not \"%s\"", o->name, o->form, text);
    if (o->most >= MANY)
        return cli_line_wrong(command, "--%s needs a %snumber from %g, not \"%s\"", o->name, whole,
                              o->least, text);
    return cli_line_wrong(command, "--%s needs a %snumber from %g to %.10g, not \"%s\"", o->name,
                          whole, o->least, o->most, text);
}

// Parses the option at argv[0], whose value is there or in the next argument; `used` counts both.
static bool parse_one(cli_settings *s, unsigned command, const char *called, int argc, char **argv,
                      int *used)
{
    const char *text = argv[0];
    if (strncmp(text, "--", 2) != 0 && command == CLI_PREDICT) {
        s->input[s->inputs++] = argv[0];
        *used                 = 1;
        return true;
    }
    if (strncmp(text, "--", 2) != 0) return cli_line_wrong(called, "\"%s\" is not an option", text);
    size_t        length = strcspn(text + 2, "=");
    const char   *value  = text[2 + length] ? text + 3 + length : NULL;
    const option *o      = find_for(command, text + 2, length);
    if (!o) return cli_line_wrong(called, "there is no option \"--%.*s\"", (int)length, text + 2);
    *used = 1;
    if (o->kind == OF_FLAG && value) return cli_line_wrong(called, "--%s takes no value", o->name);
    if (o->kind != OF_FLAG && !value) {
        // A word that begins with two dashes is the next option, not a value, unless joined by "=".
        if (argc < 2 || !strncmp(argv[1], "--", 2))
            return cli_line_wrong(called, "--%s needs a value, %s", o->name, o->value);
        value = argv[1];
        *used = 2;
    }
    return set(s, o, value) || wrong_value(called, o, value);
}

bool cli_options_parse(cli_settings *s, unsigned command, int argc, char **argv)
{
    // Inputs are moved to the front of the arguments, which have been read already.
    *s = (cli_settings){ .program = argv[0], .command = argv[1], .input = argv + 2 };
    for (int i = 2, used = 0; i < argc; i += used)
        if (!parse_one(s, command, argv[1], argc - i, argv + i, &used)) {
            cli_settings_free(s);
            return false;
        }
    s->asked = s->given;
    return true;
}

// Whether the value of an option is one of the words; for a SPEC, its kind.
static bool has_value(const cli_settings *s, const option *o, const char *words, const char **value)
{
    *value = *(char **)field_of(s, o);
    if (*value && !strcmp(o->name, "data")) *value = cli_source_kind(*value);
    return *value && is_word_of(words, *value);
}

bool cli_options_fit(const cli_settings *s)
{
    for (int i = 0; i < OPTIONS; i++) {
        const option *o = &options[i];
        if (!o->with || !(s->asked & bit_of(o))) continue;
        const char *value, *words = strchr(o->with, ' ');
        if (!words && !cli_options_given(s, o->with))
            return cli_line_wrong(s->command, "--%s does nothing without --%s", o->name, o->with);
        const option *other = words ? find(o->with, (size_t)(words - o->with)) : NULL;
        if (other && !has_value(s, other, words + 1, &value))
            return cli_line_wrong(s->command, "--%s does nothing for --%s %s; it is for:%s",
                                  o->name, other->name, value ? value : "", words);
    }
    return true;
}

// ---- help

static void help_row(const option *o)
{
    char left[64];
    snprintf(left, sizeof left, "--%s%s%s", o->name, o->value ? " " : "", o->value ? o->value : "");
    printf("  %-20s  %s\n", left, o->what);
}

void cli_options_help(unsigned command)
{
    for (int g = 0; g < GROUPS; g++) {
        bool titled = false;
        for (int i = 0; i < OPTIONS; i++) {
            if ((int)options[i].group != g || !(options[i].uses & command)) continue;
            if (!titled) printf("\n%s:\n", group_titles[g]);
            titled = true;
            help_row(&options[i]);
        }
    }
}
