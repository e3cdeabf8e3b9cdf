// predict.c: `tenon predict`, which applies a trained network to new data and writes CSV: one line
// for each row, image or prompt.
//
// N images, C channels, H rows, W columns
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

// The state of a prediction.
typedef struct {
    tn_ctx             *cx;
    const cli_settings *s;
    const cli_saved    *f;
    tn_layer           *net;
    tn_tokenizer       *tokenizer;  // NULL: text is bytes
    tn_data            *rows;       // the table being predicted, for the names of its classes
    FILE               *out;
    const char         *file;    // the input being predicted
    int64_t             top;     // classes or tokens of a line
    double             *chance;  // `top` values for each item of a batch
    int64_t            *index;
    bool                begun;  // the header line was written
    bool draws;  // pictures are drawn in the terminal, with their classes, instead of CSV
} prediction;

// ---- CSV, as in RFC 4180

// Writes a cell, quoted if necessary. An empty text is quoted too: an unquoted empty cell means no
// value.
static void write_cell(FILE *f, const char *text, size_t n)
{
    bool quote = false;
    for (size_t i = 0; i < n; i++) quote = quote || (text[i] && strchr(",\"\r\n", text[i]));
    quote = quote || n == 0 || text[0] == ' ' || text[n - 1] == ' ';
    if (!quote) {
        fwrite(text, 1, n, f);
        return;
    }
    fputc('"', f);
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '"') fputc('"', f);
        fputc(text[i], f);
    }
    fputc('"', f);
}

// Writes a name; on a terminal, escaped as in messages.
static void write_name(const prediction *p, const char *name, size_t n)
{
    char room[4096];
    if (!cli_is_terminal(p->out) || n >= sizeof room) {
        write_cell(p->out, name, n);
        return;
    }
    snprintf(room, sizeof room, "%.*s", (int)n, name);
    write_cell(p->out, cli_shown(room), strlen(cli_shown(room)));
}

static void write_header(const prediction *p)
{
    if (p->s->inputs > 1) fputs("file,", p->out);
    fputs("item", p->out);
    for (int64_t k = 1; k <= p->top; k++) {
        char rank[32] = "";
        if (k > 1) snprintf(rank, sizeof rank, "_%lld", (long long)k);
        if (p->f->facts.task == CLI_TOKENS)
            fprintf(p->out, ",token%s,text%s,probability%s", rank, rank, rank);
        else if (p->f->facts.task == CLI_CLASSES)
            fprintf(p->out, ",class%s,probability%s", rank, rank);
        else fputs(",value", p->out);
    }
    fputc('\n', p->out);
}

// The header is written with the first line, so that an input that cannot be read leaves no output.
static void begin_line(prediction *p, int64_t item)
{
    if (!p->begun) write_header(p);
    p->begun = true;
    if (p->s->inputs > 1) {
        write_name(p, p->file, strlen(p->file));
        fputc(',', p->out);
    }
    fprintf(p->out, "%lld", (long long)item);
}

// Returns the name of class i and its length: from the table, or line i of the names saved with the
// network. NULL: it has none.
static const char *class_name(const prediction *p, int64_t i, size_t *n)
{
    const char *name = p->rows ? tn_data_class_name(p->rows, i) : p->f->classes;
    *n               = name ? strcspn(name, p->rows ? "" : "\n") : 0;
    for (int64_t k = 0; name && !p->rows && k < i; k++, *n = strcspn(name, "\n"))
        name += *n + (name[*n] == '\n');
    return name;
}

// Writes the name of a class, or its number.
static void write_class(const prediction *p, int64_t i)
{
    size_t      n;
    const char *name = class_name(p, i, &n);
    fputc(',', p->out);
    if (name) write_name(p, name, n);
    else fprintf(p->out, "%lld", (long long)i);
}

// Writes a token and its text. A token may be a newline or a part of a character: bytes that are
// not text by themselves are written as \xe2.
static bool write_token(const prediction *p, int64_t id)
{
    int64_t n;
    char    shown[4096] = "\\x00";
    char   *text = cli_token_text(p->cx, p->tokenizer, id, &n), *whole = NULL;
    if (text) whole = cli_alloc(p->cx, n + 1, 1);
    if (whole) memcpy(whole, text, (size_t)n);
    if (whole && *whole) tn_escape(shown, sizeof shown, whole);
    fprintf(p->out, ",%lld,", (long long)id);
    write_cell(p->out, shown, strlen(shown));
    free(text);
    free(whole);
    return whole != NULL;
}

// ---- a batch of items

// Writes the line of one item, which is number `at` of the batch that was read.
static bool write_item(prediction *p, int64_t item, int64_t at)
{
    cli_task task = p->f->facts.task;
    bool     ok   = true;
    begin_line(p, item);
    for (int64_t k = at * p->top; ok && k < (at + 1) * p->top; k++) {
        if (task == CLI_CLASSES) write_class(p, p->index[k]);
        if (task == CLI_TOKENS) ok = write_token(p, p->index[k]);
        fprintf(p->out, task == CLI_NUMBERS ? ",%.9g" : ",%.6g", p->chance[k]);
    }
    fputc('\n', p->out);
    return ok;
}

// Reads the predictions y (n, outputs) of n items into chance and index.
static bool look(const prediction *p, tn_tensor *y, int64_t n)
{
    if (p->f->facts.task == CLI_NUMBERS) return tn_read(y, TN_F64, p->chance, n) == TN_OK;
    tn_pair top = tn_topk(tn_softmax(y, 1), p->top, 1, true);
    return tn_read(top.values, TN_F64, p->chance, n * p->top) == TN_OK &&
           tn_read(top.indices, TN_I64, p->index, n * p->top) == TN_OK;
}

// ---- tables

// Writes empty lines for rows that were skipped, so that line numbers agree with those of the
// table.
static void write_skipped(prediction *p, int64_t *next, int64_t until)
{
    for (; *next < until; ++*next) {
        begin_line(p, *next + 1);
        for (int64_t k = 0; k < p->top; k++)
            fputs(p->f->facts.task == CLI_CLASSES ? ",," : ",", p->out);
        fputc('\n', p->out);
    }
}

static int predict_rows(prediction *p)
{
    tn_data *d = p->rows = cli_rows_open(p->cx, p->s, p->file, p->f->schema);
    if (!d || tn_data_shuffle(d, false, 0) != TN_OK) return cli_fail_of_data(p->cx);
    int64_t count = tn_data_count(d), next = 0;
    for (int64_t done = 0, n = 0; done < count; done += n) {
        tn_scope *scope = tn_begin(p->cx);
        tn_batch  b     = tn_next(d, p->s->batch);
        n               = b.count;
        bool ok         = b.x && look(p, tn_forward(p->net, b.x), n);
        for (int64_t i = 0; ok && i < n; i++) {
            write_skipped(p, &next, tn_data_row(d, done + i));
            ok   = write_item(p, next + 1, i);
            next = next + 1;
        }
        if (tn_end(scope) != TN_OK || !ok) return cli_fail_of(p->cx);
    }
    write_skipped(p, &next, count + tn_data_info(d).skipped);
    tn_data_free(d);
    p->rows = NULL;
    return 0;
}

// ---- images

typedef enum { NPY, IDX, PORTABLE } image_kind;

// Determines the format of an image file by its first bytes, or by its name if it is gzip.
static bool kind_of(const char *path, image_kind *kind)
{
    unsigned char b[6] = { 0 };
    FILE         *f    = fopen(path, "rb");
    if (!f) return cli_fail("%s: %s", path, strerror(errno)), false;
    size_t n = fread(b, 1, sizeof b, f);
    fclose(f);
    bool packed = b[0] == 0x1f && b[1] == 0x8b;
    *kind       = n == 6 && !memcmp(b, "\x93NUMPY", 6)                            ? NPY
                  : (n >= 4 && !b[0] && !b[1]) || (packed && strstr(path, "idx")) ? IDX
                                                                                  : PORTABLE;
    return true;
}

// Returns x as (N, C, H, W). A single image may lack N, grey images C.
static tn_tensor *as_batch(const prediction *p, tn_tensor *x)
{
    int            rank = x ? tn_rank(x) : 0;
    const int64_t *want = p->f->facts.size;
    if (rank == 2) return tn_reshape(x, TN_SHAPE(1, 1, tn_size(x, 0), tn_size(x, 1)));
    if (rank != 3) return x;
    int64_t a = tn_size(x, 0), b = tn_size(x, 1), c = tn_size(x, 2);
    return want[0] > 1 ? tn_reshape(x, TN_SHAPE(1, a, b, c)) : tn_reshape(x, TN_SHAPE(a, 1, b, c));
}

// Whether x has the size of the network's images. Reports the shape of the file otherwise.
static bool images_fit(const prediction *p, tn_tensor *file, tn_tensor *x)
{
    const int64_t *want = p->f->facts.size;
    if (tn_rank(x) == 4 && tn_size(x, 1) == want[0] && tn_size(x, 2) == want[1] &&
        tn_size(x, 3) == want[2])
        return true;
    char have[256] = "one number";
    for (int i = 0, n = 0; i < tn_rank(file); i++)
        n += snprintf(have + n, sizeof have - (size_t)n, i ? " x %lld" : "%lld",
                      (long long)tn_size(file, i));
    return cli_fail("%s has %s; the network is for images of %lld x %lld x %lld: channels, rows, "
                    "columns",
                    p->file, have, (long long)want[0], (long long)want[1], (long long)want[2]),
           false;
}

// For a network that was trained on pictures of many sizes, another one is resized as they were.
static tn_tensor *read_picture(const prediction *p)
{
    return tn_image_read_with(p->cx, p->file, cli_image_options(p->s->data, &p->f->facts));
}

// Reads images as numbers in the range of the training data: bytes are divided by 255.
static tn_tensor *read_images(const prediction *p)
{
    image_kind kind;
    if (!kind_of(p->file, &kind)) return NULL;
    tn_tensor *file = kind == NPY   ? tn_npy_read(p->cx, p->file)
                      : kind == IDX ? tn_idx_read(p->cx, p->file)
                                    : read_picture(p);
    tn_tensor *x    = as_batch(p, file);
    if (!x) return cli_fail_of(p->cx), NULL;
    if (!images_fit(p, file, x)) return NULL;
    return tn_dtype_of(x) == TN_U8 ? tn_div_s(tn_cast(x, TN_F32), 255) : tn_cast(x, TN_F32);
}

// Draws image i of x, and what the network sees in it, which is number `at` of the batch.
static bool draw_item(const prediction *p, tn_tensor *x, int64_t i, int64_t at)
{
    enum { MOST = 5, ROOM = 256 };

    cli_guess guess[MOST];
    char      names[MOST][ROOM];
    int       n = p->top < MOST ? (int)p->top : MOST;
    for (int k = 0; k < n; k++) {
        int64_t     id = p->index[at * p->top + k];
        size_t      length;
        const char *name = class_name(p, id, &length);
        if (name) snprintf(names[k], ROOM, "%.*s", (int)length, name);
        else snprintf(names[k], ROOM, "%lld", (long long)id);
        guess[k] = (cli_guess){ cli_shown(names[k]), p->chance[at * p->top + k] };
        if (guess[k].name != names[k]) snprintf(names[k], ROOM, "%s", guess[k].name);
        guess[k].name = names[k];
    }
    return cli_answer(p->file, tn_select(x, 0, i), n, guess);
}

static int predict_images(prediction *p)
{
    tn_scope  *all = tn_begin(p->cx);
    tn_tensor *x   = read_images(p);
    int64_t    n   = x ? tn_size(x, 0) : 0;
    bool       ok  = x != NULL;
    for (int64_t from = 0; ok && from < n; from += p->s->batch) {
        int64_t   to    = from + p->s->batch < n ? from + p->s->batch : n;
        tn_scope *scope = tn_begin(p->cx);
        ok              = look(p, tn_forward(p->net, tn_slice(x, 0, from, to, 1)), to - from);
        for (int64_t i = from; ok && i < to; i++)
            ok = p->draws ? draw_item(p, x, i, i - from) : write_item(p, i + 1, i - from);
        if (tn_end(scope) != TN_OK) ok = false;
        if (!ok) cli_fail_of(p->cx);
    }
    tn_end(all);
    return ok ? 0 : 1;
}

// ---- text

static bool predict_prompt(prediction *p, int64_t item, const char *prompt)
{
    cli_tokens t     = { 0 };
    tn_scope  *scope = tn_begin(p->cx);
    bool       ok    = cli_tokens_read(p->cx, prompt, p->tokenizer, p->f->folder, 0, &t);
    if (ok) ok = look(p, tn_unsqueeze(cli_tokens_next(p->net, &t, p->s->context), 0), 1);
    free(t.ids);
    ok = ok && write_item(p, item, 0);
    return tn_end(scope) == TN_OK && ok;
}

// Predicts the token after each line of a file.
static int predict_lines(prediction *p)
{
    char   *line = NULL;
    size_t  room = 0;
    FILE   *f    = fopen(p->file, "rb");
    bool    ok   = true;
    ssize_t n;
    if (!f) return cli_fail("%s: %s", p->file, strerror(errno));
    for (int64_t item = 1; ok && (n = getline(&line, &room, f)) >= 0; item++) {
        while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r')) line[--n] = 0;
        ok = predict_prompt(p, item, line);
    }
    bool read = !ferror(f);
    free(line);
    fclose(f);
    if (!read) return cli_fail("%s: it cannot be read", p->file);
    return ok ? 0 : cli_fail_of(p->cx);
}

// ---- the command

static int predict_all(prediction *p)
{
    const cli_facts *f      = &p->f->facts;
    int              status = 0;
    if (p->s->prompt && !predict_prompt(p, 1, p->s->prompt)) return cli_fail_of(p->cx);
    for (int i = 0; i < p->s->inputs && status == 0; i++) {
        p->file = p->s->input[i];
        status  = f->task == CLI_TOKENS ? predict_lines(p)
                  : f->rank == 1        ? predict_rows(p)
                                        : predict_images(p);
    }
    return status;
}

// Whether the command line suits the network. Reports it otherwise: exit with 2.
static bool suits(const cli_settings *s, const cli_saved *f)
{
    bool        text = f->facts.task == CLI_TOKENS, numbers = f->facts.task == CLI_NUMBERS;
    const char *why = s->prompt && !text       ? "--prompt is for a network of text"
                      : s->prompt && s->inputs ? "either --prompt or an INPUT"
                      : !s->prompt && !s->inputs && text
                          ? "an INPUT or --prompt TEXT is needed, the text to continue"
                      : !s->prompt && !s->inputs ? "an INPUT is needed, the file to predict for"
                      : s->top && numbers
                          ? "--top is for classes and tokens, and this network predicts a number"
                          : NULL;
    if (why) fprintf(stderr, "tenon predict: %s; see tenon help predict\n", why);
    return !why;
}

static int predict(tn_ctx *cx, cli_settings *s, const cli_saved *f)
{
    cli_out    out = { 0 };
    prediction p   = { .cx = cx, .s = s, .f = f };
    p.draws        = !s->out && f->facts.task == CLI_CLASSES && f->facts.rank == 3 &&
              cli_image_options(s->data, &f->facts).size && cli_is_terminal(stdout);
    p.top = s->top > 0 ? s->top : p.draws ? CLI_TOP : 1;
    if (!suits(s, f) || !cli_options_fit(s)) return 2;
    cli_options_default(s, "batch=64");
    if (p.top > f->facts.outputs) p.top = f->facts.outputs;
    p.net = cli_saved_build(cx, s, s->load, f);
    if (!p.net || !cli_tokenizer(cx, s, &p.tokenizer) || !cli_out_open(&out, s)) return 1;
    p.out    = out.f;
    p.chance = cli_alloc(cx, s->batch * p.top, sizeof *p.chance);
    p.index  = cli_alloc(cx, s->batch * p.top, sizeof *p.index);
    tn_layer_train(p.net, false);
    tn_grad_mode(cx, false);
    int status = p.chance && p.index ? predict_all(&p) : cli_fail_of(cx);
    free(p.chance);
    free(p.index);
    return cli_out_close(&out, status == 0) ? status : 1;
}

int cli_predict(int argc, char **argv)
{
    return cli_with_saved(CLI_PREDICT, argc, argv, predict);
}
