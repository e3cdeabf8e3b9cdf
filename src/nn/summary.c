// The summary of a network: every layer with its output shape and its parameters, as a table.
//
//   Layer         Output shape  Parameters
//   --------------------------------------
//   Sequential    (64, 10)               -
//     0 (Linear)  (64, 128)        100,480
//     1 (ReLU)    (64, 128)              0
//     2 (Linear)  (64, 10)           1,290
//   --------------------------------------
//   Total parameters      101,770
//
// The layers run as in evaluation, but what they record is never computed: shapes are known as soon
// as an op is recorded. Modes, the random counter and the gradients are as before afterwards.
#include "nn/layer.h"

#include <string.h>

// One layer in the table. Parameters that were counted in a row above (tied ones) do not count.
typedef struct {
    tn_layer *l;
    bool      tied;  // has parameters, all of them counted above
    int64_t   params;
    tni_text  label, shape;
} row;

// The rows are in the order of the tree, parents before children.
typedef struct {
    tn_ctx *cx;
    row    *row;
    size_t  count, cap;
    int64_t params, trainable, bytes;
} table;

// Writes 1234567 as "1,234,567".
static tni_text with_commas(int64_t n)
{
    tni_text digits = { "" }, t = { "" };
    tni_text_add(&digits, "%lld", (long long)n);
    size_t len = strlen(digits.s);
    for (size_t i = 0; i < len; i++)
        tni_text_add(&t, i && (len - i) % 3 == 0 ? ",%c" : "%c", digits.s[i]);
    return t;
}

// ---- gathering ---------------------------------------------------------------------------------

// Returns "  conv1 (Conv2d)", indented by the layer's depth.
static tni_text label_of(const tn_layer *root, const tn_layer *l)
{
    tni_text t = { "" };
    for (const tn_layer *k = l; k != root; k = k->parent) tni_text_add(&t, "  ");
    if (l == root) tni_text_add(&t, "%s", l->type);
    else tni_text_add(&t, "%.60s (%s)", tni_escaped(tni_layer_name(l)).s, l->type);
    return t;
}

// Counts the tensors of a row; entries lists them from i on, parameters first. A tied tensor counts
// where it is listed first.
static void count_tensors(table *t, row *r, const tni_entries *entries, size_t i)
{
    bool   counted     = false;
    size_t end_dry_run = i + r->l->params + r->l->buffers;
    for (; i < end_dry_run; i++) {
        const tni_entry *e = &entries->entry[i];
        if (e->first != (int)i) continue;
        int64_t n = tn_count(e->t);
        t->bytes += n * (int64_t)tni_dtype_size(tn_dtype_of(e->t));
        if (!e->is_param) continue;
        counted = true;
        r->params += n;
        t->params += n;
        if (tn_needs_grad(e->t)) t->trainable += n;
    }
    r->tied = r->l->params && !counted;
}

// Makes a row for each layer. Both walks, of layers and of entries, go in the same order, so one
// index follows.
static bool gather_rows(table *t, tn_layer *root)
{
    tni_entries entries;
    size_t      at = 0;
    if (!tni_layer_list(root, "layer_summary", &entries)) return false;
    for (tn_layer *l = root; l; l = tni_layer_next(root, l)) {
        if (!tni_grow(&t->cx->heap, (void **)&t->row, &t->cap, t->count + 1, sizeof *t->row)) {
            tni_fail_memory(t->cx, "layer_summary");
            break;
        }
        row *r = &t->row[t->count++];
        *r     = (row){ .l = l, .label = label_of(root, l) };
        count_tensors(t, r, &entries, at);
        at += l->params + l->buffers;
    }
    bool all = at == entries.count;
    tni_entries_free(&entries);
    return all;
}

// ---- running -----------------------------------------------------------------------------------

// Called at the end of each forward call. A layer that runs several times shows the shapes of its
// last run.
static void record_shape(tn_layer *l, int ny, tn_tensor *const *y, void *user)
{
    table *t = user;
    for (size_t i = 0; i < t->count; i++) {
        if (t->row[i].l != l) continue;
        t->row[i].shape = tni_shape_of(y[0]);
        for (int k = 1; k < ny; k++) tni_text_add(&t->row[i].shape, ", %s", tni_shape_of(y[k]).s);
    }
}

// Switches to evaluation without gradients, and turns off flushing, so that even a huge network
// records everything and computes nothing.
bool tni_dry_begin(tni_dry_run *d, const char *op, tn_layer *l)
{
    tn_ctx *cx = l->owned.cx;
    size_t  n  = 0;
    for (tn_layer *k = l; k; k = tni_layer_next(l, k)) n++;
    *d = (tni_dry_run){ .l = l, .counter = cx->counter, .flush_at = cx->flush_at };
    if (!(d->training = tni_alloc(&cx->heap, n))) return tni_no_memory(cx, op);
    if (!(d->scope = tn_begin(cx))) {
        tni_free(&cx->heap, d->training);
        return false;
    }
    n = 0;
    for (tn_layer *k = l; k; k = tni_layer_next(l, k)) {
        d->training[n++] = k->training;
        k->training      = false;
    }
    cx->grad_mode = false;
    cx->flush_at  = INT64_MAX;  // a network however large is not computed
    return true;
}

// Restores everything that tni_dry_begin changed, also the counter of random numbers: a summary
// must not change what is trained afterwards.
void tni_dry_end(const tni_dry_run *d)
{
    tn_ctx *cx = d->l->owned.cx;
    size_t  n  = 0;
    for (tn_layer *k = d->l; k; k = tni_layer_next(d->l, k)) k->training = d->training[n++];
    tni_free(&cx->heap, d->training);
    tni_scope_close(d->scope);
    cx->flush_at = d->flush_at;
    cx->counter  = d->counter;
}

// Runs x through the network and drops everything that this recorded.
static bool run_dry(table *t, tn_layer *l, tn_tensor *x)
{
    tni_dry_run d;
    tn_layer   *root                                                     = tni_layer_root(l);
    void (*watch)(tn_layer * l, int ny, tn_tensor *const *y, void *user) = root->watch;
    void *watch_user                                                     = root->watch_user;
    if (!tni_dry_begin(&d, "layer_summary", l)) return false;
    root->watch      = record_shape;
    root->watch_user = t;
    bool ok          = tn_forward(l, x) != NULL;
    root->watch      = watch;
    root->watch_user = watch_user;
    tni_dry_end(&d);
    return ok;
}

// ---- printing ----------------------------------------------------------------------------------

// A container that only has children shows a dash, not 0.
static tni_text params_of(const row *r)
{
    tni_text dash = { "-" }, tied = { "tied" };
    return r->tied ? tied : r->l->children && !r->params ? dash : with_commas(r->params);
}

static void widen_column(int *width, const char *s)
{
    if ((int)strlen(s) > *width) *width = (int)strlen(s);
}

static void print_rule(FILE *f, int width)
{
    for (int i = 0; i < width; i++) fputc('-', f);
    fputc('\n', f);
}

// Prints the table with columns as wide as their longest text.
static void print_table(const table *t, FILE *f)
{
    static const char *const head[] = { "Layer", "Output shape", "Parameters" };
    int                      w[3]   = { 0 };
    for (int i = 0; i < 3; i++) widen_column(&w[i], head[i]);
    for (size_t i = 0; i < t->count; i++) {
        widen_column(&w[0], t->row[i].label.s);
        widen_column(&w[1], t->row[i].shape.s);
        widen_column(&w[2], params_of(&t->row[i]).s);
    }
    int all = w[0] + w[1] + w[2] + 4;
    fprintf(f, "%-*s  %-*s  %*s\n", w[0], head[0], w[1], head[1], w[2], head[2]);
    print_rule(f, all);
    for (size_t i = 0; i < t->count; i++) {
        const row *r = &t->row[i];
        fprintf(f, "%-*s  %-*s  %*s\n", w[0], r->label.s, w[1], *r->shape.s ? r->shape.s : "-",
                w[2], params_of(r).s);
    }
    print_rule(f, all);
    fprintf(f, "%-21s %s\n", "Total parameters", with_commas(t->params).s);
    fprintf(f, "%-21s %s\n", "Trainable parameters", with_commas(t->trainable).s);
    fprintf(f, "%-21s %.2f MB\n", "Size", (double)t->bytes / 1e6);
}

tn_status tn_layer_summary(tn_layer *l, tn_tensor *x, FILE *f)
{
    tn_ctx *cx = tni_owned_ok("layer_summary", l, TNI_LAYER);
    if (!cx) return tni_failed();
    if (!f) return tni_fail_status(cx, TN_EARG, "layer_summary: the file is NULL");
    table t  = { .cx = cx };
    bool  ok = gather_rows(&t, l) && run_dry(&t, l, x);
    if (ok) print_table(&t, f);
    tni_free(&cx->heap, t.row);
    if (ok && ferror(f))
        return tni_fail_status(cx, TN_EIO, "layer_summary: the file cannot be written");
    return ok ? TN_OK : tni_failed();
}
