// sources.c: the data that --data names. A SPEC is KIND[:PATH][:KEY=VALUE]...; the table has a row
// for each kind.
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_ROOM = 4096, KEYS = 2 };

static const double HELD_OUT = 0.1;  // fraction for the test, of data without a test part

enum { LEAST_ITEMS = 5 };  // the fewest items of which that fraction, rounded, is one

typedef struct kind kind;

// A parsed SPEC. Keys that were not given are "".
typedef struct {
    const kind *kind;
    char        path[PATH_ROOM];
    char        value[KEYS][256];
} spec;

// The arguments of a kind's open function.
typedef struct {
    const spec         *spec;
    const cli_settings *s;
    const char         *schema;     // of a table that a network was trained on, or NULL
    tn_tokenizer       *tokenizer;  // NULL: text is bytes
} request;

struct kind {
    const char *name, *key[KEYS];
    const char *item;  // the word for one item, for messages
    bool        has_path, has_test;
    const char *defaults;
    // Opens the training or the test part, or everything if there is no test part. Returns NULL on
    // failure, with the error in the context.
    tn_data *(*open)(tn_ctx *cx, const request *r, bool test);
};

// ---- kinds

// The test part has a sixth of the images, as MNIST has.
static tn_data *open_digits(tn_ctx *cx, const request *r, bool test)
{
    const char *given = r->spec->value[0];
    int64_t     count = *given ? strtoll(given, NULL, 10) : 60000, limit = r->s->limit;
    if (test) return tn_digits(cx, (tn_digits_opts){ .count = (count + 5) / 6, .test = true });
    if (limit > 0 && limit < count) count = limit;  // all are drawn alike, so the first ones do
    return tn_digits(cx, (tn_digits_opts){ .count = count, .seed = (uint64_t)r->s->seed });
}

static tn_data *open_idx(tn_ctx *cx, const request *r, bool test)
{
    return tn_idx(cx, r->spec->path, test);
}

static tn_data *open_cifar10(tn_ctx *cx, const request *r, bool test)
{
    return tn_cifar10(cx, r->spec->path, test);
}

static tn_missing missing_of(const cli_settings *s)
{
    static const char *const words[] = { [TN_MISSING_ERROR]    = "error",
                                         [TN_MISSING_MEAN]     = "mean",
                                         [TN_MISSING_CATEGORY] = "category",
                                         [TN_MISSING_SKIP]     = "skip" };
    for (int i = 0; s->missing && i <= TN_MISSING_SKIP; i++)
        if (!strcmp(words[i], s->missing)) return (tn_missing)i;
    return TN_MISSING_ERROR;
}

bool cli_is_separator(const char *text)
{
    return !strcmp(text, "tab") || !strcmp(text, "\\t") ||
           (strlen(text) == 1 && !strchr("\"\r\n", *text));
}

// Returns the options of a table. The split is the one that hold_out makes, so that means which
// fill missing cells leave out the test rows.
static tn_csv_opts csv_options(const cli_settings *s, const spec *p, const char *schema)
{
    const char *separator = s->separator ? s->separator : "", *header = p->value[1];
    return (tn_csv_opts){ .target        = *p->value[0] ? p->value[0] : NULL,
                          .separator     = (char)(strlen(separator) > 1 ? '\t' : *separator),
                          .no_header     = *header ? !strcmp(header, "no") : s->no_header,
                          .schema        = schema,
                          .missing       = missing_of(s),
                          .missing_words = s->missing_words,
                          .held_out      = HELD_OUT,
                          .split_seed    = (uint64_t)s->seed };
}

static tn_data *open_csv(tn_ctx *cx, const request *r, bool test)
{
    (void)test;
    return tn_csv(cx, r->spec->path, csv_options(r->s, r->spec, r->schema));
}

static tn_data *open_text(tn_ctx *cx, const request *r, bool test)
{
    (void)test;
    return tn_text(cx, r->spec->path,
                   (tn_text_opts){ .length = r->s->context, .tokenizer = r->tokenizer });
}

static bool has_folder(const char *path, const char *name)
{
    char        sub[PATH_ROOM];
    struct stat st;
    int         n = snprintf(sub, sizeof sub, "%s/%s", path, name);
    return n < PATH_ROOM && stat(sub, &st) == 0 && S_ISDIR(st.st_mode);
}

// The folder of classes: DIR/train and DIR/val or DIR/test if there is a train, else DIR itself.
static tn_data *open_images(tn_ctx *cx, const request *r, bool test)
{
    char          path[PATH_ROOM + 8];
    const char   *dir  = r->spec->path;
    const char   *part = !has_folder(dir, "train") ? "" : !test ? "/train" : "/val";
    tn_image_opts o    = { .size    = strtoll(r->spec->value[0], NULL, 10),
                           .resize  = strtoll(r->spec->value[1], NULL, 10),
                           .threads = (int)r->s->threads };
    if (test && *part && !has_folder(dir, "val")) part = "/test";
    snprintf(path, sizeof path, "%s%s", dir, part);
    return tn_images(cx, path, o);
}

// clang-format off
static const kind kinds[] = {
    { "digits",  { "count" },            "image",  false, true,  "", open_digits },
    { "idx",     { NULL },               "image",  true,  true,  "", open_idx },
    { "cifar10", { NULL },               "image",  true,  true,  "epochs=30 batch=128", open_cifar10 },
    { "images",  { "size", "resize" },   "image",  true,  false,
      "epochs=90 augment=resized,flip normalize=0.485,0.456,0.406/0.229,0.224,0.225", open_images },
    { "csv",     { "target", "header" }, "row",    true,  false, "epochs=100 batch=32 hidden=64,64",
      open_csv },
    { "text",    { NULL },               "window", true,  false, "", open_text },
};
// clang-format on

enum { KINDS = sizeof kinds / sizeof *kinds };

// ---- SPECs

static const kind *kind_of(const char *text)
{
    size_t n = strcspn(text, ":");
    for (int i = 0; i < KINDS; i++)
        if (strlen(kinds[i].name) == n && !strncmp(kinds[i].name, text, n)) return &kinds[i];
    return NULL;
}

// Returns the number of the key in "name=...", or -1. A path may contain colons, so only known keys
// end it.
static int key_of(const kind *k, const char *text)
{
    for (int i = 0; i < KEYS && k->key[i]; i++) {
        size_t n = strlen(k->key[i]);
        if (!strncmp(text, k->key[i], n) && text[n] == '=') return i;
    }
    return -1;
}

// Moves every ":key=value" at the end of the path to its value.
static void cut_keys(spec *p)
{
    for (char *colon; (colon = strrchr(p->path, ':')) != NULL; *colon = 0) {
        int i = key_of(p->kind, colon + 1);
        if (i < 0) return;
        snprintf(p->value[i], sizeof p->value[i], "%s", strchr(colon, '=') + 1);
    }
}

static bool check_header(const char *text)
{
    return !*text || !strcmp(text, "yes") || !strcmp(text, "no");
}

static bool check_count(const char *text)
{
    char *end;
    errno       = 0;
    long long n = strtoll(text, &end, 10);
    return !*text || (errno == 0 && !*end && n >= 1 && n <= 1000000000);
}

// Splits a SPEC into its parts. Returns false if it is malformed.
static bool parse(const char *text, spec *p)
{
    *p = (spec){ .kind = kind_of(text) };
    if (!p->kind || strlen(text) >= sizeof p->path) return false;
    snprintf(p->path, sizeof p->path, "%s", text + strlen(p->kind->name));
    cut_keys(p);
    if (*p->path) memmove(p->path, p->path + 1, strlen(p->path));  // the colon
    if (p->kind->has_path != (*p->path != 0)) return false;
    if (p->kind->open == open_csv) return check_header(p->value[1]);
    if (p->kind->open == open_images) return check_count(p->value[0]) && check_count(p->value[1]);
    return p->kind->open != open_digits || check_count(p->value[0]);
}

// Whether the path does not exist and ends in ":word=...", which was probably meant as a key.
// Reports it.
static bool has_unknown_key(const spec *p)
{
    const char *colon = strrchr(p->path, ':'), *equals = colon ? strchr(colon, '=') : NULL;
    if (!equals || access(p->path, F_OK) == 0) return false;
    const char *const *key = p->kind->key;
    cli_fail("--data: %s has no setting \"%.*s\"; %s%s%s%s", p->kind->name,
             (int)(equals - colon - 1), colon + 1, key[0] ? "it has: " : "it has none",
             key[0] ? key[0] : "", key[1] ? ", " : "", key[1] ? key[1] : "");
    return true;
}

bool cli_is_spec(const char *text)
{
    spec p;
    return parse(text, &p);
}

void cli_source_path(const char *text, char *room, size_t size)
{
    spec p;
    snprintf(room, size, "%s", parse(text, &p) ? p.path : "");
}

const char *cli_source_kind(const char *text)
{
    const kind *k = kind_of(text);
    return k ? k->name : "";
}

const char *cli_source_defaults(const char *text)
{
    const kind *k = kind_of(text);
    return k ? k->defaults : "";
}

static bool has_test(const spec *p)
{
    return p->kind->has_test || (p->kind->open == open_images && has_folder(p->path, "train"));
}

bool cli_source_has_test(const char *text)
{
    spec p;
    return parse(text, &p) && has_test(&p);
}

tn_image_opts cli_image_options(const char *text, const cli_facts *f)
{
    spec p;
    bool of_images = parse(text, &p) && p.kind->open == open_images;
    if (!of_images) return (tn_image_opts){ 0 };
    return (tn_image_opts){ .size     = f->size[1],
                            .resize   = strtoll(p.value[1], NULL, 10),
                            .channels = (int)f->size[0] };
}

bool cli_source_same(const char *a, const char *b)
{
    spec p, q;
    if (!strcmp(a, b)) return true;
    if (!kind_of(a) || kind_of(a) != kind_of(b) || !parse(a, &p) || !parse(b, &q)) return false;
    return cli_same_file(p.path, q.path);
}

// ---- opening

bool cli_tokenizer(tn_ctx *cx, const cli_settings *s, tn_tokenizer **t)
{
    *t = s->tokenizer ? tn_tokenizer_open(cx, s->tokenizer) : NULL;
    return *t || !s->tokenizer || (cli_fail_of(cx), false);
}

// Parses "shift=2,flip,crop=4", or "none". The hue is turned by less, since it is what classes
// differ in.
static bool parse_augment(const char *text, tn_augment_opts *o)
{
    double jitter = 0;
    *o            = (tn_augment_opts){ 0 };
    if (!strcmp(text, "none")) return true;
    while (*text) {
        int n = 0;
        if (!strncmp(text, "flip", 4)) o->flip = true, n = 4;
        else if (!strncmp(text, "resized", 7)) o->resized_crop = true, n = 7;
        else if (sscanf(text, "jitter=%lf%n", &jitter, &n) == 1) {
            o->brightness = o->contrast = o->saturation = jitter;
            o->hue                                      = jitter / 4;
        } else if (sscanf(text, "shift=%d%n", &o->shift, &n) != 1 &&
                   sscanf(text, "crop=%d%n", &o->crop, &n) != 1 &&
                   sscanf(text, "mixup=%lf%n", &o->mixup, &n) != 1)
            return false;
        if (text[n] && text[n] != ',') return false;
        text += n + (text[n] == ',');
    }
    return o->shift >= 0 && o->shift < 1000 && o->crop >= 0 && o->crop < 1000 && jitter >= 0 &&
           jitter <= 1 && o->mixup >= 0 && o->mixup <= 1;
}

bool cli_is_augment(const char *text)
{
    tn_augment_opts o;
    return parse_augment(text, &o);
}

static bool augment(tn_ctx *cx, const cli_settings *s, tn_data *d)
{
    tn_augment_opts o;
    if (!s->augment || !parse_augment(s->augment, &o)) return true;
    return tn_data_augment(d, o) == TN_OK || (cli_fail_of(cx), false);
}

// Returns `limit` items, chosen by the seed, as a dataset of their own.
static tn_data *limited(tn_data *d, const cli_settings *s)
{
    int64_t n = tn_data_count(d);
    if (!d || s->limit <= 0 || s->limit >= n) return d;
    return tn_data_split(d, (double)s->limit / (double)n, (uint64_t)s->seed + 1);
}

// ---- facts

void cli_facts_write(const cli_facts *f, char *to, size_t size)
{
    int n = 0;
    if (f->task == CLI_TOKENS) {
        snprintf(to, size, "a text of %lld different tokens", (long long)f->outputs);
        return;
    }
    if (f->task == CLI_CLASSES)
        n = snprintf(to, size, "%lld class%s of ", (long long)f->outputs,
                     f->outputs == 1 ? "" : "es");
    else n = snprintf(to, size, "a number to ");
    for (int i = 0; i < f->rank; i++)
        n += snprintf(to + n, size - (size_t)n, i ? " x %lld" : "%lld", (long long)f->size[i]);
    if (f->rank == 1) snprintf(to + n, size - (size_t)n, " input%s", cli_s(f->size[0]));
}

bool cli_facts_fit(const cli_facts *a, const cli_facts *b)
{
    bool same = a->task == b->task && a->rank == b->rank;
    same = same && (a->task == CLI_CLASSES ? a->outputs <= b->outputs : a->outputs == b->outputs);
    for (int i = 0; same && a->task != CLI_TOKENS && i < a->rank; i++)
        same = a->size[i] == b->size[i];
    return same;
}

// Returns the facts of a dataset. Text without a tokenizer has 256 tokens, one for each byte.
static cli_facts facts_of(tn_data *d, const spec *p, tn_tokenizer *tokenizer)
{
    tn_data_desc info = tn_data_info(d);
    cli_facts    f    = { .task = info.classes > 0 ? CLI_CLASSES : CLI_NUMBERS };
    f.rank            = info.field[0].rank;
    for (int i = 0; i < f.rank && i < 3; i++) f.size[i] = info.field[0].size[i];
    f.outputs = info.classes > 0 ? info.classes : 1;
    if (p->kind->open == open_text) {
        f.task    = CLI_TOKENS;
        f.outputs = tokenizer ? tn_tokenizer_count(tokenizer) : 256;
    }
    return f;
}

// Whether training and test part have the same form. Reports it otherwise.
static bool parts_fit(const cli_facts *train, const cli_facts *test, const char *data)
{
    char a[128], b[128];
    if (cli_facts_fit(test, train)) return true;
    cli_facts_write(train, a, sizeof a);
    cli_facts_write(test, b, sizeof b);
    return cli_fail("%s: its training part has %s, its test part %s", data, a, b), false;
}

// ---- parts

// Splits data without a test part, in the same way for each run with the same seed. Returns false,
// with a message, if there are too few items.
static bool hold_out(cli_source *d, tn_data *all, const spec *p, const cli_settings *s,
                     cli_part part)
{
    int64_t n      = tn_data_count(all);
    bool    splits = part != CLI_PART_ALL;
    if (all && splits && n < LEAST_ITEMS)
        return cli_fail("%s has %lld %s%s%s; at least %d are needed, since a tenth is held out for "
                        "the test",
                        s->data, (long long)n, p->kind->item, cli_s(n),
                        p->kind->open == open_text ? " of --context tokens" : "", LEAST_ITEMS),
               false;
    tn_data *held = splits ? tn_data_split(all, HELD_OUT, (uint64_t)s->seed) : NULL;
    d->train      = all;
    d->test       = part == CLI_PART_BOTH || part == CLI_PART_TEST ? held : all;
    return true;
}

void cli_report_skipped(const tn_data *d)
{
    enum { SHOWN = 5 };

    int64_t n = tn_data_info(d).skipped;
    if (n == 0 || !tn_data_skipped(d, 0)) return;  // rows of a table were reported before
    fprintf(stderr, "tenon: %lld image%s could not be read and %s skipped:\n", (long long)n,
            cli_s(n), n == 1 ? "was" : "were");
    for (int64_t i = 0; i < SHOWN && tn_data_skipped(d, i); i++)
        fprintf(stderr, "  %s\n", cli_shown(tn_data_skipped(d, i)));
    if (n > SHOWN) fprintf(stderr, "  and %lld more\n", (long long)(n - SHOWN));
}

// Errors of the library name its options, as .no_header; the message names those of the tool
// instead.
int cli_fail_of_data(tn_ctx *cx)
{
    static const char *const words[][2] = { { "set .no_header", "add :header=no to --data" },
                                            { "set .missing", "use --missing" } };

    const char *text = tn_error_text(cx);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const char *at = strstr(text, words[i][0]);
        if (at)
            return cli_fail("%.*s%s%s", (int)(at - text), text, words[i][1],
                            at + strlen(words[i][0]));
    }
    return cli_fail_of(cx);
}

tn_data *cli_rows_open(tn_ctx *cx, const cli_settings *s, const char *path, const char *schema)
{
    spec p;
    if (!parse(s->data, &p)) return NULL;
    tn_csv_opts o = csv_options(s, &p, schema);
    o.no_target   = true;
    return tn_csv(cx, path, o);
}

// The facts are those of the training part, if both parts are opened: the test must fit it.
bool cli_source_open(tn_ctx *cx, const cli_settings *s, cli_part part, const char *schema,
                     cli_source *d)
{
    spec p;
    *d = (cli_source){ 0 };
    if (!parse(s->data, &p)) return cli_fail("--data is %s", CLI_SPEC_FORM), false;
    if (has_unknown_key(&p) || !cli_tokenizer(cx, s, &d->tokenizer)) return false;
    const request r = { .spec = &p, .s = s, .schema = schema, .tokenizer = d->tokenizer };
    if (!has_test(&p)) {
        if (!hold_out(d, p.kind->open(cx, &r, false), &p, s, part)) return false;
    } else if (part == CLI_PART_ALL)
        return cli_fail("%s data has a training and a test part; --part all does not apply",
                        p.kind->name),
               false;
    else {
        if (part != CLI_PART_TEST) d->train = p.kind->open(cx, &r, false);
        d->test = part == CLI_PART_TRAIN ? d->train : p.kind->open(cx, &r, true);
    }
    if (part == CLI_PART_BOTH) d->train = limited(d->train, s);
    if (!d->test || tn_error(cx) != TN_OK) return cli_fail_of_data(cx), false;
    d->facts = facts_of(d->test, &p, d->tokenizer);
    if (part != CLI_PART_BOTH) return true;
    cli_facts test = d->facts;
    d->facts       = facts_of(d->train, &p, d->tokenizer);
    return parts_fit(&d->facts, &test, s->data) && augment(cx, s, d->train);
}
