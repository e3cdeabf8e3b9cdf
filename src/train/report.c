// tn_report_*: collecting what a run shows.
#include "train/report_parts.h"

#include "base/text.h"
#include "data/image_show.h"

#include <math.h>
#include <string.h>

// A name or a text longer than this is no name; and the most classes whose matrix can be looked at.
enum { MOST_TEXT = 4096, MOST_CLASSES = 1000, MOST_SAMPLES = 256 };

// ---- making and freeing ------------------------------------------------------------------------

// The list itself is cleared by the caller, who may use it again.
static void free_pairs(tni_heap *h, tni_report_pairs *list)
{
    for (size_t i = 0; i < list->count; i++) {
        tni_free(h, list->pair[i].name);
        tni_free(h, list->pair[i].text);
    }
    tni_free(h, list->pair);
}

// What a sample has not is NULL, which frees nothing.
static void free_sample(tni_heap *h, const tni_report_sample *s)
{
    tni_free(h, s->image);
    tni_free(h, s->text);
    tni_free(h, s->truth);
    tni_free(h, s->prediction);
}

// Leaves no matrix, so that another can be made; names may be missing if memory ran out while they
// were copied.
static void free_matrix(tn_report *r)
{
    tni_heap *h = &r->owned.cx->heap;
    for (int64_t i = 0; r->names && i < r->classes; i++) tni_free(h, r->names[i]);
    tni_free(h, r->names);
    tni_free(h, r->counts);
    r->names   = NULL;
    r->counts  = NULL;
    r->classes = 0;
}

// Called by tn_report_close, or by tn_close for a report that was left open.
static void free_report(tni_owned *t)
{
    tn_report *r = (tn_report *)t;
    tni_heap  *h = &t->cx->heap;
    for (size_t i = 0; i < r->curves; i++) {
        tni_free(h, r->curve[i].name);
        tni_free(h, r->curve[i].point);
    }
    for (size_t i = 0; i < r->samples; i++) free_sample(h, &r->sample[i]);
    free_pairs(h, &r->settings);
    free_pairs(h, &r->figures);
    free_pairs(h, &r->machine);
    free_matrix(r);
    tni_free(h, r->curve);
    tni_free(h, r->sample);
    tni_free(h, r->title);
    tni_free(h, r);
}

// The report is given to the context last: until then a failure has nothing to take back there.
tn_report *tni_report_new(tn_ctx *cx, const char *op, const char *title)
{
    tn_report *r = tni_zalloc(&cx->heap, sizeof *r);
    if (r) r->title = tni_strdup(&cx->heap, title);
    if (r && r->title) {
        tni_owned_add(cx, &r->owned, TNI_REPORT, free_report);
        return r;
    }
    tni_free(&cx->heap, r);
    return tni_fail_memory(cx, op);
}

void tn_report_close(tn_report *r)
{
    if (!r || !tni_owned_ok("report_close", r, TNI_REPORT)) return;
    tni_owned_remove(&r->owned);
    free_report(&r->owned);
}

// ---- curves ------------------------------------------------------------------------------------

// A run has a handful of curves, so they are compared one by one.
tni_report_curve *tni_report_find(const tn_report *r, const char *name)
{
    for (size_t i = 0; i < r->curves; i++)
        if (!strcmp(r->curve[i].name, name)) return &r->curve[i];
    return NULL;
}

// Curves stand in the order in which they began, which is the order of their charts. NULL when
// memory is out.
static tni_report_curve *find_or_add(tn_report *r, const char *name)
{
    tni_heap         *h = &r->owned.cx->heap;
    tni_report_curve *c = tni_report_find(r, name);
    if (c) return c;
    if (!tni_grow(h, (void **)&r->curve, &r->curve_cap, r->curves + 1, sizeof *r->curve))
        return NULL;
    c  = &r->curve[r->curves];
    *c = (tni_report_curve){ .name = tni_strdup(h, name), .stride = 1 };
    if (!c->name) return NULL;
    r->curves++;
    return c;
}

// Joins the values of two points. One that is not a number is left out, as a chart does.
static tni_report_point join(tni_report_point a, double na, tni_report_point b, double nb)
{
    tni_report_point y = isnan(a.mean) ? b : a;
    y.step             = b.step;
    if (isnan(a.mean) || isnan(b.mean)) return y;
    y.mean = (a.mean * na + b.mean * nb) / (na + nb);
    y.low  = a.low < b.low ? a.low : b.low;
    y.high = a.high > b.high ? a.high : b.high;
    return y;
}

// Halves the points. All are complete, since this is called where a new one would begin.
static void merge_pairs(tni_report_curve *c)
{
    for (size_t i = 0; i < c->count / 2; i++)
        c->point[i] = join(c->point[2 * i], 1, c->point[2 * i + 1], 1);
    c->count /= 2;
    c->stride *= 2;
}

// A page that is read again has points of several values; its curves begin with that many.
bool tni_report_add(tn_report *r, const char *op, const char *name, tni_report_point p,
                    int64_t values)
{
    tni_report_curve *c = find_or_add(r, name);
    if (!c) return tni_no_memory(r->owned.cx, op);
    if (!c->count && values > c->stride) c->stride = values;
    if (c->count && c->held + values <= c->stride) {
        c->point[c->count - 1] = join(c->point[c->count - 1], (double)c->held, p, (double)values);
        c->held += values;
        return true;
    }
    if (c->count == TNI_REPORT_POINTS) merge_pairs(c);
    if (!tni_grow(&r->owned.cx->heap, (void **)&c->point, &c->cap, c->count + 1, sizeof *c->point))
        return tni_no_memory(r->owned.cx, op);
    c->point[c->count++] = p;
    c->held              = values;
    return true;
}

// ---- what is known by a name -------------------------------------------------------------------

// As with curves, there are few.
const tni_report_pair *tni_report_pair_of(const tni_report_pairs *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++)
        if (!strcmp(list->pair[i].name, name)) return &list->pair[i];
    return NULL;
}

// The text is copied before anything changes: without memory the list is as it was. A name that is
// there keeps its place, so that a report which is continued shows settings in their old order.
bool tni_report_set(tn_report *r, const char *op, tni_report_pairs *list, const char *name,
                    const char *text, double v)
{
    tni_heap        *h    = &r->owned.cx->heap;
    char            *copy = text ? tni_strdup(h, text) : NULL;
    tni_report_pair *p    = (tni_report_pair *)tni_report_pair_of(list, name);
    if (text && !copy) return tni_no_memory(r->owned.cx, op);
    if (!p && tni_grow(h, (void **)&list->pair, &list->cap, list->count + 1, sizeof *list->pair)) {
        list->pair[list->count] = (tni_report_pair){ .name = tni_strdup(h, name) };
        if (list->pair[list->count].name) p = &list->pair[list->count++];
    }
    if (!p) {
        tni_free(h, copy);
        return tni_no_memory(r->owned.cx, op);
    }
    tni_free(h, p->text);
    p->text = copy;
    p->v    = v;
    return true;
}

// ---- samples -----------------------------------------------------------------------------------

// A copy of a text that may be missing; *ok becomes false when memory is out, and stays so.
static char *copy_or_null(tni_heap *h, const char *s, bool *ok)
{
    char *copy = s ? tni_strdup(h, s) : NULL;
    *ok &= copy || !s;
    return copy;
}

// All copies are tried before they are judged together; a sample that lacks one of them is not
// counted.
bool tni_report_add_sample(tn_report *r, const char *op, const char *image, tn_report_sample_opts o)
{
    tni_heap *h = &r->owned.cx->heap;
    bool ok = tni_grow(h, (void **)&r->sample, &r->sample_cap, r->samples + 1, sizeof *r->sample);
    if (!ok) return tni_no_memory(r->owned.cx, op);
    tni_report_sample *s = &r->sample[r->samples];
    *s                   = (tni_report_sample){ .chance = o.chance };
    s->image             = copy_or_null(h, image, &ok);
    s->text              = copy_or_null(h, o.text, &ok);
    s->truth             = copy_or_null(h, o.truth, &ok);
    s->prediction        = copy_or_null(h, o.prediction, &ok);
    if (ok) r->samples++;
    else free_sample(h, s);
    return ok || tni_no_memory(r->owned.cx, op);
}

// The bytes of a picture as a data URL, which a page can hold.
static char *url_of(tni_heap *h, const unsigned char *data, size_t n)
{
    static const char start[] = "data:image/png;base64,",
                      digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    char *url = tni_alloc(h, sizeof start + (n + 2) / 3 * 4), *to = url;
    if (!url) return NULL;
    memcpy(to, start, sizeof start - 1);
    to += sizeof start - 1;
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)data[i] << 16 | (i + 1 < n ? (uint32_t)data[i + 1] << 8 : 0) |
                     (i + 2 < n ? data[i + 2] : 0);
        for (int k = 0; k < 4; k++) *to++ = i + (size_t)k > n ? '=' : digit[v >> (18 - 6 * k) & 63];
    }
    *to = 0;
    return url;
}

// Reads a picture and makes its URL; NULL, reported.
static char *picture_of(tn_ctx *cx, const char *op, tn_tensor *x)
{
    tni_shown s;
    size_t    bytes = 0;
    if (!tni_arg1(op, x, "x") || !tni_shown_read(op, x, (tn_image_show_opts){ 0 }, &s)) return NULL;
    unsigned char *png = tni_png_of(cx, op, &s, &bytes);
    char          *url = png ? url_of(&cx->heap, png, bytes) : NULL;
    if (png && !url) tni_fail_memory(cx, op);
    tni_free(&cx->heap, png);
    tni_free(&cx->heap, s.pixels);
    return url;
}

// ---- the matrix --------------------------------------------------------------------------------

// At most a thousand classes: a million counts of 8 bytes, which nothing is placed beside.
bool tni_report_make_matrix(tn_report *r, const char *op, int64_t classes)
{
    tni_heap *h = &r->owned.cx->heap;
    free_matrix(r);
    r->counts = tni_zalloc(h, (size_t)(classes * classes) * sizeof *r->counts);
    r->names  = tni_zalloc(h, (size_t)classes * sizeof *r->names);
    if (r->counts && r->names) {
        r->classes = classes;
        return true;
    }
    free_matrix(r);
    return tni_no_memory(r->owned.cx, op);
}

// ---- public calls ------------------------------------------------------------------------------

// A text that a page can hold: UTF-8, and not longer than anyone reads.
static bool is_text(tn_ctx *cx, const char *op, const char *what, const char *s)
{
    if (!s) return tni_refuse(cx, TN_EARG, "%s: the %s is NULL", op, what);
    size_t n = strlen(s);
    if (n <= MOST_TEXT && tni_utf8_ok(s, n)) return true;
    return tni_refuse(cx, TN_EARG, "%s: the %s is not UTF-8, or longer than %d bytes", op, what,
                      MOST_TEXT);
}

// Charts, rows and settings are found by their names.
static bool is_name(tn_ctx *cx, const char *op, const char *name)
{
    if (!is_text(cx, op, "name", name)) return false;
    return *name || tni_refuse(cx, TN_EARG, "%s: the name is empty", op);
}

// The title is that of the page and of the tab that shows it.
tn_report *tn_report_open(tn_ctx *cx, const char *title)
{
    if (!tni_ctx_ok(cx, "report_open") || !is_text(cx, "report_open", "title", title)) return NULL;
    return tni_report_new(cx, "report_open", title);
}

// A step that came already would draw a line backwards. The program counts wrong then, which is an
// error of its own.
tn_status tn_report_scalar(tn_report *r, const char *name, int64_t step, double v)
{
    tn_ctx *cx = tni_owned_ok("report_scalar", r, TNI_REPORT);
    if (!cx || !is_name(cx, "report_scalar", name)) return tni_failed();
    const tni_report_curve *c = tni_report_find(r, name);
    if (step < 0 || (c && c->count && step <= c->point[c->count - 1].step))
        return tni_fail_status(cx, TN_EARG, "report_scalar: step %lld of \"%.60s\" comes too late",
                               (long long)step, name);
    tni_report_point p = { step, v, v, v };
    return tni_report_add(r, "report_scalar", name, p, 1) ? TN_OK : tni_failed();
}

// A point of several values goes if its last one does. The last that stays counts as complete.
tn_status tn_report_rewind(tn_report *r, int64_t step)
{
    if (!tni_owned_ok("report_rewind", r, TNI_REPORT)) return tni_failed();
    for (size_t i = 0; i < r->curves; i++) {
        tni_report_curve *c = &r->curve[i];
        if (!c->count || c->point[c->count - 1].step <= step) continue;
        while (c->count && c->point[c->count - 1].step > step) c->count--;
        c->held = c->stride;
    }
    for (size_t i = 0; i < r->samples; i++) free_sample(&r->owned.cx->heap, &r->sample[i]);
    free_pairs(&r->owned.cx->heap, &r->figures);
    free_matrix(r);
    r->samples = 0;
    r->figures = (tni_report_pairs){ 0 };
    return TN_OK;
}

// A text as it was given, "1e-3", not a number: settings are compared by what the user wrote.
tn_status tn_report_setting(tn_report *r, const char *name, const char *text)
{
    static const char op[] = "report_setting";

    tn_ctx *cx = tni_owned_ok(op, r, TNI_REPORT);
    if (!cx || !is_name(cx, op, name) || !is_text(cx, op, "text", text)) return tni_failed();
    return tni_report_set(r, op, &r->settings, name, text, NAN) ? TN_OK : tni_failed();
}

// A number, so that two runs can be subtracted. NaN is shown as missing.
tn_status tn_report_figure(tn_report *r, const char *name, double v)
{
    tn_ctx *cx = tni_owned_ok("report_figure", r, TNI_REPORT);
    if (!cx || !is_name(cx, "report_figure", name)) return tni_failed();
    return tni_report_set(r, "report_figure", &r->figures, name, NULL, v) ? TN_OK : tni_failed();
}

// A page is for looking at, so the number of samples has a limit.
tn_status tn_report_sample(tn_report *r, tn_tensor *x, tn_report_sample_opts o)
{
    static const char op[] = "report_sample";

    tn_ctx *cx = tni_owned_ok(op, r, TNI_REPORT);
    if (!cx) return tni_failed();
    if (!x && !o.text) return tni_fail_status(cx, TN_EARG, "%s: neither picture nor text", op);
    if ((o.text && !is_text(cx, op, "text", o.text)) ||
        (o.truth && !is_text(cx, op, "truth", o.truth)) ||
        (o.prediction && !is_text(cx, op, "prediction", o.prediction)))
        return tni_failed();
    if (r->samples >= MOST_SAMPLES)
        return tni_fail_status(cx, TN_EARG, "%s: there are %d samples already", op, MOST_SAMPLES);
    char *image = x ? picture_of(cx, op, x) : NULL;
    if (x && !image) return tni_failed();
    bool ok = tni_report_add_sample(r, op, image, o);
    tni_free(&cx->heap, image);
    return ok ? TN_OK : tni_failed();
}

// Everything is checked before the old matrix goes. Classes without names get their numbers, so
// that a page always has names to show.
tn_status tn_report_confusion(tn_report *r, int64_t classes, const int64_t *counts,
                              const char *const *names)
{
    static const char op[] = "report_confusion";

    tn_ctx *cx = tni_owned_ok(op, r, TNI_REPORT);
    if (!cx) return tni_failed();
    if (classes < 1 || classes > MOST_CLASSES || !counts)
        return tni_fail_status(cx, TN_EARG, "%s: %s", op,
                               counts ? "a matrix has 1 .. 1000 classes" : "counts is NULL");
    for (int64_t i = 0; names && i < classes; i++)
        if (!is_text(cx, op, "name", names[i])) return tni_failed();
    if (!tni_report_make_matrix(r, op, classes)) return tni_failed();
    memcpy(r->counts, counts, (size_t)(classes * classes) * sizeof *counts);
    for (int64_t i = 0; i < classes; i++) {
        tni_text number = tni_text_of("%lld", (long long)i);
        r->names[i]     = tni_strdup(&cx->heap, names ? names[i] : number.s);
        if (!r->names[i]) return tni_no_memory(cx, op), tni_failed();
    }
    return TN_OK;
}
