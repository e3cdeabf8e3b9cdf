// run_page.c: the page of a run, for --report: its measurements, and at the end samples with
// predictions, the confusion matrix, settings and results.
#include "cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Items of the test that are looked at for samples: the first SHOWN, and up to SHOWN mistakes among
// LOOKED.
enum { SHOWN = 12, LOOKED = 512, CELLS = 8, TEXT = 1024, TAIL = 48 };

// ---- opening and steps

// Sets what the run was set to. Kept options describe it; files and the machine do not.
static void add_settings(cli_run *r)
{
    char        room[64];
    const char *name, *text;
    for (int i = 0; (name = cli_options_kept(i)) != NULL; i++)
        if ((text = cli_options_text(r->s, name, room, sizeof room)) != NULL)
            tn_report_setting(r->report, name, text);
    snprintf(room, sizeof room, "%lld", (long long)tn_layer_count(r->net));
    tn_report_setting(r->report, "parameters", room);
    snprintf(room, sizeof room, "%lld", (long long)tn_data_count(r->data.train));
    tn_report_setting(r->report, "training items", room);
    if (tn_dist_size(r->dist) == 1) return;
    snprintf(room, sizeof room, "%d", tn_dist_size(r->dist));
    tn_report_setting(r->report, "ranks", room);
}

// A resumed run goes on with the page that the run has already.
bool cli_report_open(cli_run *r)
{
    char title[320];
    bool again = r->s->resume && access(r->s->report, R_OK) == 0;
    snprintf(title, sizeof title, "%s on %s", r->model->name, cli_shown(r->s->data));
    r->report = again ? tn_report_read(r->cx, r->s->report) : tn_report_open(r->cx, title);
    if (r->report && again) tn_report_rewind(r->report, r->first_step);
    if (r->report) add_settings(r);
    return (r->report && tn_error(r->cx) == TN_OK) || (cli_fail_of(r->cx), false);
}

void cli_report_close(cli_run *r)
{
    tn_report_close(r->report);
    r->report = NULL;
    free(r->confusion.count);
    r->confusion = (cli_confusion){ 0 };
}

const char *cli_report_step(cli_run *r, const cli_moment *m)
{
    cli_measure list[CLI_MEASURES];
    int         n = cli_measures(m, list);
    for (int i = 0; i < n; i++)
        if (strcmp(list[i].name, "time") != 0 &&
            tn_report_scalar(r->report, list[i].name, m->step, list[i].v) != TN_OK)
            return cli_sink_error(r);
    return NULL;
}

// ---- samples

typedef struct {
    char digit[24];
} number;

// Returns the name of a class, all of it: names that are cut may be equal. Its number, written to
// n, if it has none that a page can hold.
static const char *class_name(const cli_run *r, int64_t i, number *n)
{
    enum { MOST = 4000 };
    const char *name = tn_data_class_name(r->data.test, i);
    if (!name) name = tn_data_class_name(r->data.train, i);
    if (name && strlen(name) <= MOST && cli_is_utf8(name)) return name;
    snprintf(n->digit, sizeof n->digit, "%lld", (long long)i);
    return n->digit;
}

// Writes the first numbers of a row: "5.1, 3.5, 1.4, 0.2".
static void write_row(tn_tensor *x, int64_t i, char *to)
{
    double     v[CELLS];
    int64_t    n = tn_count(x) / tn_size(x, 0), shown = n < CELLS ? n : CELLS;
    int        at  = 0;
    tn_tensor *row = tn_reshape(tn_slice(x, 0, i, i + 1, 1), TN_SHAPE(n));
    if (tn_read(tn_slice(row, 0, 0, shown, 1), TN_F64, v, shown) != TN_OK) return;
    for (int64_t k = 0; k < shown; k++)
        at += snprintf(to + at, TEXT - (size_t)at, "%s%.4g", k ? ", " : "", v[k]);
    if (shown < n) snprintf(to + at, TEXT - (size_t)at, ", ...");
}

static bool is_picture(const cli_run *r)
{
    const cli_facts *f = &r->data.facts;
    return f->rank == 3 && (f->size[0] == 1 || f->size[0] == 3);
}

// Adds item i of a batch of classes with its guess.
static void add_class(cli_run *r, tn_tensor *x, int64_t i, int64_t truth, int64_t guess,
                      double chance)
{
    char                  text[TEXT] = "";
    number                n[2];
    tn_report_sample_opts o = { .truth      = class_name(r, truth, &n[0]),
                                .prediction = class_name(r, guess, &n[1]),
                                .chance     = chance };
    if (!is_picture(r)) write_row(x, i, text), o.text = text;
    tn_tensor *picture = is_picture(r) ? tn_slice(x, 0, i, i + 1, 1) : NULL;
    tn_report_sample(r->report, picture, o);
}

// The first items, and then mistakes among the others; `seen` items came before this batch.
static void add_classes(cli_run *r, tn_batch b, tn_tensor *y, int64_t seen, int64_t *mistakes)
{
    int64_t    n      = b.count;
    tn_tensor *chance = tn_softmax(y, 1);
    int64_t   *ids    = cli_alloc(r->cx, 2 * n, sizeof *ids);
    double    *most   = ids ? cli_alloc(r->cx, n, sizeof *most) : NULL;
    bool       ok     = most && tn_read(tn_argmax(y, 1), TN_I64, ids, n) == TN_OK &&
              tn_read(b.y, TN_I64, ids + n, n) == TN_OK &&
              tn_read(tn_max(chance, 1), TN_F64, most, n) == TN_OK;
    for (int64_t i = 0; ok && i < n; i++) {
        bool first = seen + i < SHOWN, wrong = ids[i] != ids[n + i] && *mistakes < SHOWN;
        if (first || wrong) add_class(r, b.x, i, ids[n + i], ids[i], most[i]);
        *mistakes += !first && wrong;
    }
    free(ids);
    free(most);
}

static void add_numbers(cli_run *r, tn_batch b, tn_tensor *y)
{
    int64_t n = b.count < SHOWN ? b.count : SHOWN, each = tn_count(y) / b.count;
    double *v  = cli_alloc(r->cx, 2 * b.count * each, sizeof *v);
    bool    ok = v && tn_read(y, TN_F64, v, b.count * each) == TN_OK &&
              tn_read(b.y, TN_F64, v + b.count * each, b.count * each) == TN_OK;
    for (int64_t i = 0; ok && i < n; i++) {
        char                  text[TEXT] = "", guess[64];
        tn_report_sample_opts o          = { .text = text, .prediction = guess };
        write_row(b.x, i, text);
        snprintf(guess, sizeof guess, "%.5g, it is %.5g", v[i * each], v[(b.count + i) * each]);
        tn_report_sample(r->report, NULL, o);
    }
    free(v);
}

// Appends the bytes of a token, of which one may be a part of a character.
static void append_token(cli_run *r, int64_t id, char *to)
{
    int64_t bytes = 0;
    char   *text  = cli_token_text(r->cx, r->data.tokenizer, id, &bytes);
    size_t  at    = strlen(to);
    for (int64_t i = 0; text && i < bytes && at + 5 < TEXT; i++) {
        if (text[i]) to[at++] = text[i];
        else memcpy(to + at, "\\x00", 4), at += 4;
    }
    to[at] = 0;
    free(text);
}

// Shows lines as they are, but for what is no text in them. What comes before the first character
// that is whole is left out.
static void show_lines(char *bytes, char *to)
{
    char *end;
    *to = 0;
    while ((*bytes & 0xc0) == 0x80) bytes++;
    for (char *line = bytes; line; line = end ? end + 1 : NULL) {
        if ((end = strchr(line, '\n')) != NULL) *end = 0;
        size_t at = strlen(to);
        tn_escape(to + at, TEXT - at, line);
        at = strlen(to);
        if (end && at + 1 < TEXT) memcpy(to + at, "\n", 2);
    }
}

// Shows a token in quotes, in which a space can be seen.
static void show_token(cli_run *r, int64_t id, char *to)
{
    char text[TEXT] = "";
    append_token(r, id, text);
    *to = '"';
    tn_escape(to + 1, TEXT - 2, text);
    strcat(to, "\"");
}

// Of each text its end, the token that follows and the one that the network expects.
static void add_texts(cli_run *r, tn_batch b, tn_tensor *y)
{
    int64_t    n = b.count < SHOWN ? b.count : SHOWN, T = tn_size(b.x, 1);
    int64_t    from  = T > TAIL ? T - TAIL : 0;
    tn_tensor *guess = tn_argmax(tn_select(y, 1, -1), 1), *truth = tn_select(b.y, 1, -1);
    int64_t   *ids = cli_alloc(r->cx, b.count * (T + 2), sizeof *ids);
    bool       ok  = ids && tn_read(b.x, TN_I64, ids, b.count * T) == TN_OK &&
              tn_read(guess, TN_I64, ids + b.count * T, b.count) == TN_OK &&
              tn_read(truth, TN_I64, ids + b.count * (T + 1), b.count) == TN_OK;
    for (int64_t i = 0; ok && i < n; i++) {
        char bytes[TEXT] = "", text[TEXT], next[2][TEXT];
        for (int64_t k = from; k < T; k++) append_token(r, ids[i * T + k], bytes);
        show_lines(bytes, text);
        show_token(r, ids[b.count * (T + 1) + i], next[0]);
        show_token(r, ids[b.count * T + i], next[1]);
        tn_report_sample_opts o = { .text = text, .truth = next[0], .prediction = next[1] };
        tn_report_sample(r->report, NULL, o);
    }
    free(ids);
}

// One batch of the test, in order.
static void add_batch(cli_run *r, int64_t *seen, int64_t *mistakes)
{
    tn_scope *scope = tn_begin(r->cx);
    cli_task  task  = r->data.facts.task;
    tn_grad_mode(r->cx, false);
    tn_batch   b = tn_next(r->data.test, r->s->batch);
    tn_tensor *y = tn_forward(r->net, b.x);
    if (y && task == CLI_CLASSES) add_classes(r, b, y, *seen, mistakes);
    if (y && task == CLI_NUMBERS) add_numbers(r, b, y);
    if (y && task == CLI_TOKENS) add_texts(r, b, y);
    *seen += y ? b.count : LOOKED;
    tn_end(scope);
}

// In evaluation mode. More than one batch is looked at for mistakes of classes alone.
static void add_samples(cli_run *r)
{
    int64_t seen = 0, mistakes = 0, all = tn_data_count(r->data.test);
    int64_t most = r->data.facts.task == CLI_CLASSES ? LOOKED : 1;
    tn_layer_train(r->net, false);
    tn_data_shuffle(r->data.test, false, 0);
    tn_data_rewind(r->data.test);
    while (seen < most && seen < all && mistakes < SHOWN) add_batch(r, &seen, &mistakes);
    tn_layer_train(r->net, true);
}

// ---- the end

// The matrix of the newest evaluation, with the names of the classes.
static void add_confusion(cli_run *r)
{
    const cli_confusion *c       = &r->confusion;
    number              *numbers = c->count ? cli_alloc(r->cx, c->classes, sizeof *numbers) : NULL;
    const char         **names   = numbers ? cli_alloc(r->cx, c->classes, sizeof *names) : NULL;
    for (int64_t i = 0; names && i < c->classes; i++) names[i] = class_name(r, i, &numbers[i]);
    if (names) tn_report_confusion(r->report, c->classes, c->count, names);
    free(numbers);
    free(names);
}

static void add_figures(cli_run *r)
{
    const cli_score *s    = &r->score;
    cli_task         task = r->data.facts.task;
    tn_report       *p    = r->report;
    tn_report_figure(p, "steps", (double)r->memory.step);
    tn_report_figure(p, "seconds", r->earlier + cli_run_seconds(r));
    if (r->memory.weight > 0) tn_report_figure(p, "loss", r->memory.loss / r->memory.weight);
    if (!r->is_scored) return;
    tn_report_figure(p, "test_items", (double)s->items);
    tn_report_figure(p, "test_loss", s->loss);
    if (task == CLI_CLASSES) tn_report_figure(p, "test_accuracy", s->accuracy);
    if (task == CLI_CLASSES && r->data.facts.outputs > CLI_FEW_CLASSES)
        tn_report_figure(p, "test_top5", s->top5);
    if (task == CLI_NUMBERS) tn_report_figure(p, "test_rmse", s->rmse);
    if (task == CLI_NUMBERS) tn_report_figure(p, "test_r2", s->r2);
    if (task == CLI_TOKENS) tn_report_figure(p, "test_bits_per_byte", s->bits_per_byte);
    if (task == CLI_TOKENS) tn_report_figure(p, "test_perplexity", exp(s->loss));
    tn_report_figure(p, "memory_bytes", (double)tn_ctx_stats(r->cx).peak);
}

// A run that ended early looks like any other by its curves.
static void add_end(cli_run *r)
{
    char      text[96] = "complete";
    long long step = (long long)r->memory.step, all = (long long)r->steps;
    if (r->signal) snprintf(text, sizeof text, "stopped at step %lld of %lld", step, all);
    else if (cli_is_out_of_patience(r))
        snprintf(text, sizeof text, "stopped early, at step %lld of %lld: no better", step, all);
    else if (step < all) snprintf(text, sizeof text, "failed at step %lld of %lld", step, all);
    tn_report_setting(r->report, "ended", text);
}

const char *cli_report_end(cli_run *r)
{
    add_end(r);
    add_figures(r);
    add_samples(r);
    add_confusion(r);
    tn_report_write(r->report, r->s->report);
    return tn_error(r->cx) == TN_OK ? NULL : cli_sink_error(r);
}
