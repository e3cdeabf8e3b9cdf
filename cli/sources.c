// sources.c: what --data names. A SPEC is KIND[:PATH][:KEY=VALUE]...; one row a kind.
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_ROOM = 4096, KEYS = 2 };

static const double HELD_OUT = 0.1;  // of data without a test part

typedef struct kind kind;

// A SPEC in its parts. Keys that were not given are "".
typedef struct {
    const kind *kind;
    char        path[PATH_ROOM];
    char        value[KEYS][256];
} spec;

// What a kind is asked to open.
typedef struct {
    const spec         *spec;
    const cli_settings *s;
    const char         *schema;  // of a table that a network was trained on, or NULL
    tn_bpe             *bpe;     // NULL: text is bytes
} request;

struct kind {
    const char *name, *key[KEYS];
    bool        has_path, has_test;
    const char *defaults;
    // Opens the training or the test part, or all where there is no test part. NULL, reported in the
    // context, on failure.
    tn_data *(*open)(tn_ctx *cx, const request *r, bool test);
};

// ---- kinds

static tn_data *open_digits(tn_ctx *cx, const request *r, bool test)
{
    const char *given = r->spec->value[0];
    int64_t     count = *given ? strtoll(given, NULL, 10) : 60000, limit = r->s->limit;
    if (test) return tn_digits(cx, (tn_digits_opts){ .count = (count + 5) / 6, .test = true });
    if (limit > 0 && limit < count) count = limit;  // drawn, so there is no need to choose
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

static tn_data *open_csv(tn_ctx *cx, const request *r, bool test)
{
    const spec *p = r->spec;
    (void)test;
    return tn_csv(cx, p->path,
                  (tn_csv_opts){ .target    = *p->value[0] ? p->value[0] : NULL,
                                 .no_header = !strcmp(p->value[1], "no"),
                                 .schema    = r->schema });
}

static tn_data *open_text(tn_ctx *cx, const request *r, bool test)
{
    (void)test;
    return tn_text(cx, r->spec->path, (tn_text_opts){ .length = r->s->context, .bpe = r->bpe });
}

// clang-format off
static const kind kinds[] = {
    { "digits",  { "count" },            false, true,  "", open_digits },
    { "idx",     { NULL },               true,  true,  "", open_idx },
    { "cifar10", { NULL },               true,  true,  "epochs=30 batch=128", open_cifar10 },
    { "csv",     { "target", "header" }, true,  false, "epochs=100 batch=32 hidden=64,64", open_csv },
    { "text",    { NULL },               true,  false, "", open_text },
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

// Which key "name=..." is; -1 for none. A path may have colons, so only known keys end it.
static int key_of(const kind *k, const char *text)
{
    for (int i = 0; i < KEYS && k->key[i]; i++) {
        size_t n = strlen(k->key[i]);
        if (!strncmp(text, k->key[i], n) && text[n] == '=') return i;
    }
    return -1;
}

// Cuts ":key=value" off the end of the path, as often as there is one.
static void cut_keys(spec *p)
{
    for (char *colon; (colon = strrchr(p->path, ':')) != NULL; *colon = 0) {
        int i = key_of(p->kind, colon + 1);
        if (i < 0) return;
        snprintf(p->value[i], sizeof p->value[i], "%s", strchr(colon, '=') + 1);
    }
}

static bool check_count(const char *text)
{
    char *end;
    errno       = 0;
    long long n = strtoll(text, &end, 10);
    return !*text || (errno == 0 && !*end && n >= 1 && n <= 1000000000);
}

static bool parse(const char *text, spec *p)
{
    *p = (spec){ .kind = kind_of(text) };
    if (!p->kind || strlen(text) >= sizeof p->path) return false;
    snprintf(p->path, sizeof p->path, "%s", text + strlen(p->kind->name));
    cut_keys(p);
    if (*p->path) memmove(p->path, p->path + 1, strlen(p->path));  // the colon
    if (p->kind->has_path != (*p->path != 0)) return false;
    return strcmp(p->kind->name, "digits") || check_count(p->value[0]);
}

bool cli_is_spec(const char *text)
{
    spec p;
    return parse(text, &p);
}

const char *cli_source_defaults(const char *text)
{
    const kind *k = kind_of(text);
    return k ? k->defaults : "";
}

bool cli_source_has_test(const char *text)
{
    const kind *k = kind_of(text);
    return k && k->has_test;
}

bool cli_source_same(const char *a, const char *b)
{
    spec        p, q;
    struct stat s, t;
    if (!strcmp(a, b)) return true;
    if (!kind_of(a) || kind_of(a) != kind_of(b) || !parse(a, &p) || !parse(b, &q)) return false;
    return stat(p.path, &s) == 0 && stat(q.path, &t) == 0 && s.st_dev == t.st_dev &&
           s.st_ino == t.st_ino;
}

// ---- opening

bool cli_tokenizer(tn_ctx *cx, const cli_settings *s, tn_bpe **bpe)
{
    char vocab[PATH_ROOM], encoder[PATH_ROOM];
    *bpe = NULL;
    if (!s->vocab_dir) return true;
    if (strlen(s->vocab_dir) > PATH_ROOM - 32) return cli_fail("--vocab-dir is too long"), false;
    snprintf(vocab, sizeof vocab, "%s/vocab.bpe", s->vocab_dir);
    snprintf(encoder, sizeof encoder, "%s/encoder.json", s->vocab_dir);
    *bpe = tn_bpe_open(cx, vocab, encoder);
    return *bpe || (cli_fail_of(cx), false);
}

// "shift=2,flip,crop=4"
static bool parse_augment(const char *text, tn_augment_opts *o)
{
    *o = (tn_augment_opts){ 0 };
    while (*text) {
        int n = 0;
        if (!strncmp(text, "flip", 4)) o->flip = true, n = 4;
        else if (sscanf(text, "shift=%d%n", &o->shift, &n) != 1 &&
                 sscanf(text, "crop=%d%n", &o->crop, &n) != 1)
            return false;
        if (text[n] && text[n] != ',') return false;
        text += n + (text[n] == ',');
    }
    return o->shift >= 0 && o->shift < 1000 && o->crop >= 0 && o->crop < 1000;
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

// The first `limit` items in the seed's order, as a dataset of their own.
static tn_data *limited(tn_data *d, const cli_settings *s)
{
    int64_t n = tn_data_count(d);
    if (!d || s->limit <= 0 || s->limit >= n) return d;
    return tn_data_split(d, (double)s->limit / (double)n, (uint64_t)s->seed + 1);
}

static cli_facts facts_of(tn_data *d, const spec *p, tn_bpe *bpe)
{
    tn_data_desc info = tn_data_info(d);
    cli_facts    f    = { .task = info.classes > 0 ? CLI_CLASSES : CLI_NUMBERS };
    f.rank            = info.field[0].rank;
    for (int i = 0; i < f.rank && i < 3; i++) f.size[i] = info.field[0].size[i];
    f.outputs = info.classes > 0 ? info.classes : 1;
    if (p->kind->open == open_text) {
        f.task    = CLI_TOKENS;
        f.outputs = bpe ? tn_bpe_count(bpe) : 256;
    }
    return f;
}

// Training and test part of data that has only one: the same rows every time, by the seed.
static void hold_out(cli_source *d, tn_data *all, const cli_settings *s, cli_part part)
{
    tn_data *held = part == CLI_PART_ALL ? NULL : tn_data_split(all, HELD_OUT, (uint64_t)s->seed);
    d->train      = all;
    d->test       = part == CLI_PART_BOTH || part == CLI_PART_TEST ? held : all;
}

bool cli_source_open(tn_ctx *cx, const cli_settings *s, cli_part part, const char *schema,
                     cli_source *d)
{
    spec p;
    *d = (cli_source){ 0 };
    if (!parse(s->data, &p)) return cli_fail("--data is %s", CLI_SPEC_FORM), false;
    if (!cli_tokenizer(cx, s, &d->bpe)) return false;
    const request r = { .spec = &p, .s = s, .schema = schema, .bpe = d->bpe };
    if (!p.kind->has_test) hold_out(d, p.kind->open(cx, &r, false), s, part);
    else if (part == CLI_PART_ALL)
        return cli_fail("%s data has a training and a test part; --part all is not for it",
                        p.kind->name),
               false;
    else {
        if (part != CLI_PART_TEST) d->train = p.kind->open(cx, &r, false);
        d->test = part == CLI_PART_TRAIN ? d->train : p.kind->open(cx, &r, true);
    }
    if (part == CLI_PART_BOTH) d->train = limited(d->train, s);
    if (!d->test || tn_error(cx) != TN_OK) return cli_fail_of(cx), false;
    d->facts = facts_of(d->test, &p, d->bpe);
    return part != CLI_PART_BOTH || augment(cx, s, d->train);
}
