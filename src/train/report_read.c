// Reading a report again: the data of its page, or the log of a run, line by line. Both come from
// files that others may have made, so everything is checked.
//
// Of a page only the data count, as report_write.c describes them; style and scripts are passed
// over:
//
//   <script id="data" type="application/json">
//   {"kind":"report","title":"lenet on digits", ...}
//   </script>
//
// A line of a log is an object of numbers at a step:
//
//   {"step": 12, "epoch": 1, "loss": 2.2731, "lr": 0.001, "grad_norm": 1.34, "samples_per_s": 4810.7, "time": 0.21}
//
// The reader walks the text once, token by token, and fills the report as it goes; a report of a
// file with a fault in it is freed again as a whole.
#include "io/mapping.h"
#include "train/report_parts.h"

#include <math.h>
#include <string.h>

// Where the data of a page stand; page.c writes it so.
static const char data_start[] = "<script id=\"data\" type=\"application/json\">",
                  data_end[]   = "</script>";

// A report that is being filled from JSON. bad: something in it is not as it should be; memory: it
// was out, and that is reported.
typedef struct {
    tn_report *r;
    tni_json   j;
    bool       bad, memory;
} reader;

static const char op[] = "report_read";

// ---- values ------------------------------------------------------------------------------------

// The current string, to be freed; NULL if it is none, or memory is out.
static char *take_text(reader *d)
{
    tni_heap *h = &d->r->owned.cx->heap;
    int64_t   n = d->j.kind == TNI_JSON_STRING || d->j.kind == TNI_JSON_KEY
                      ? tni_json_string(&d->j, NULL, 0)
                      : -1;
    char     *s = n >= 0 ? tni_alloc(h, (size_t)n + 1) : NULL;
    if (s) tni_json_string(&d->j, s, (size_t)n + 1);
    else if (n >= 0) d->memory = true;
    else d->bad = true;
    return s;
}

// The current number; null is NaN.
static double take_number(reader *d)
{
    double v      = NAN;
    bool   number = d->j.kind == TNI_JSON_NUMBER && tni_json_double(&d->j, &v);
    if (!number && d->j.kind != TNI_JSON_NULL) d->bad = true;
    return v;
}

// Steps and counts are whole numbers; anything else is no report of ours.
static int64_t take_int(reader *d)
{
    int64_t v = 0;
    if (d->j.kind != TNI_JSON_NUMBER || !tni_json_int(&d->j, &v)) d->bad = true;
    return v;
}

// Loops end at the first fault: what follows it cannot be trusted.
static bool going(const reader *d)
{
    return !d->bad && !d->memory;
}

// Moves to the next element of the array that was begun; false at its end.
static bool next_element(reader *d)
{
    tni_json_kind k = tni_json_next(&d->j);
    if (k == TNI_JSON_ERROR) d->bad = true;
    return going(d) && k != TNI_JSON_ARRAY_END;
}

// Moves to the value of the next member, whose key is in name; false at the end of the object.
static bool next_member(reader *d, char *name, size_t size)
{
    tni_json_kind k = tni_json_next(&d->j);
    if (k == TNI_JSON_ERROR) d->bad = true;
    if (!going(d) || k != TNI_JSON_KEY) return false;
    if (tni_json_string(&d->j, name, size) < 0 || tni_json_next(&d->j) == TNI_JSON_ERROR)
        d->bad = true;
    return going(d);
}

// Whether the current token begins an array; it is bad otherwise.
static bool is_array(reader *d)
{
    if (d->j.kind != TNI_JSON_ARRAY) d->bad = true;
    return going(d);
}

// Members that are not known may come from a newer version, and are passed over.
static void skip(reader *d)
{
    if (!tni_json_skip(&d->j)) d->bad = true;
}

// ---- the parts of a page -----------------------------------------------------------------------

// [["lr", "0.001"], ...], with a number in place of the text for figures.
static void read_pairs(reader *d, tni_report_pairs *list)
{
    tni_heap *h = &d->r->owned.cx->heap;
    if (!is_array(d)) return;
    while (next_element(d) && is_array(d) && next_element(d)) {
        char *name = take_text(d), *text = NULL;
        tni_json_next(&d->j);
        bool   is_text = d->j.kind == TNI_JSON_STRING;
        double v       = is_text ? NAN : take_number(d);
        if (is_text) text = take_text(d);
        if (going(d) && !tni_report_set(d->r, op, list, name, text, v)) d->memory = true;
        tni_free(h, name);
        tni_free(h, text);
        if (next_element(d)) d->bad = true;  // a pair has two
    }
}

// [step, mean] or [step, mean, low, high]; steps rise.
static void read_points(reader *d, const char *name, int64_t stride)
{
    int64_t before = -1;
    if (!is_array(d)) return;
    while (next_element(d) && is_array(d)) {
        double v[3] = { NAN, NAN, NAN };
        int    n    = 0;
        next_element(d);
        int64_t step = take_int(d);
        while (next_element(d) && n < 3) v[n++] = take_number(d);
        if (n != 1 && n != 3) d->bad = true;
        if (step <= before) d->bad = true;
        before             = step;
        tni_report_point p = { step, v[0], n == 3 ? v[1] : v[0], n == 3 ? v[2] : v[0] };
        if (going(d) && !tni_report_add(d->r, op, name, p, stride)) d->memory = true;
    }
}

// Members come in the order in which they are written: the points last.
static void read_curve(reader *d)
{
    char    key[32], *name = NULL;
    int64_t stride = 1;
    if (d->j.kind != TNI_JSON_OBJECT) d->bad = true;
    while (next_member(d, key, sizeof key)) {
        if (!strcmp(key, "name") && !name) name = take_text(d);
        else if (!strcmp(key, "stride")) stride = take_int(d);
        else if (!strcmp(key, "points") && name) read_points(d, name, stride > 1 ? stride : 1);
        else skip(d);
    }
    tni_free(&d->r->owned.cx->heap, name);
}

// In any order. A picture must be inside the page: an address elsewhere would make a page that was
// copied from this one ask the network for it.
static void read_sample(reader *d)
{
    tni_heap *h = &d->r->owned.cx->heap;
    char      key[32], *text[4] = { 0 };
    double    chance = 0;
    if (d->j.kind != TNI_JSON_OBJECT) d->bad = true;
    while (next_member(d, key, sizeof key)) {
        int at = !strcmp(key, "image")   ? 0
                 : !strcmp(key, "text")  ? 1
                 : !strcmp(key, "truth") ? 2
                                         : 3;
        if (!strcmp(key, "chance")) chance = take_number(d);
        else if ((at == 3 && strcmp(key, "prediction") != 0) || text[at]) skip(d);
        else text[at] = take_text(d);
    }
    tn_report_sample_opts o = { text[1], text[2], text[3], chance };
    if (text[0] && strncmp(text[0], "data:image/png;base64,", 22) != 0) d->bad = true;
    if (going(d) && !tni_report_add_sample(d->r, op, text[0], o)) d->memory = true;
    for (int i = 0; i < 4; i++) tni_free(h, text[i]);
}

// Rows of counts, as many as there are names.
static void read_counts(reader *d)
{
    int64_t n = d->r->classes, at = 0;
    if (!is_array(d)) return;
    while (next_element(d) && is_array(d)) {
        int64_t end = at + n;
        while (next_element(d))
            if (at < end && at < n * n) d->r->counts[at++] = take_int(d);
            else d->bad = true;
        if (at != end) d->bad = true;
    }
    if (at != n * n) d->bad = true;
}

// The names decide how large the matrix is, so they are counted first.
static void read_matrix(reader *d)
{
    char key[32];
    if (d->j.kind == TNI_JSON_NULL) return;
    if (d->j.kind != TNI_JSON_OBJECT) d->bad = true;
    while (next_member(d, key, sizeof key)) {
        if (!strcmp(key, "names") && is_array(d)) {
            reader  ahead = *d;
            int64_t n     = 0;
            while (next_element(&ahead) && n <= 1000) n++, skip(&ahead);
            if (n < 1 || n > 1000) d->bad = true;
            else if (!tni_report_make_matrix(d->r, op, n)) d->memory = true;
            for (int64_t i = 0; next_element(d);) {
                if (i < n) d->r->names[i++] = take_text(d);
            }
        } else if (!strcmp(key, "counts") && d->r->classes) read_counts(d);
        else skip(d);
    }
}

// [one, one, ...].
static void read_list(reader *d, void (*one)(reader *))
{
    if (!is_array(d)) return;
    while (next_element(d)) one(d);
}

// A page of another kind, such as a profile, has no curves and is refused.
static bool read_page(reader *d, const char *text, size_t bytes)
{
    char key[32];
    bool is_report = false;
    tni_json_open(&d->j, text, bytes);
    if (tni_json_next(&d->j) != TNI_JSON_OBJECT) return false;
    while (next_member(d, key, sizeof key)) {
        if (!strcmp(key, "kind")) is_report = tni_json_is(&d->j, "report");
        else if (!strcmp(key, "title")) {
            char *title = take_text(d);
            if (title) {
                tni_free(&d->r->owned.cx->heap, d->r->title);
                d->r->title = title;
            }
        } else if (!strcmp(key, "settings")) read_pairs(d, &d->r->settings);
        else if (!strcmp(key, "figures")) read_pairs(d, &d->r->figures);
        else if (!strcmp(key, "machine")) read_pairs(d, &d->r->machine);
        else if (!strcmp(key, "curves")) read_list(d, read_curve);
        else if (!strcmp(key, "samples")) read_list(d, read_sample);
        else if (!strcmp(key, "confusion")) read_matrix(d);
        else skip(d);
    }
    return going(d) && is_report;
}

// ---- a log -------------------------------------------------------------------------------------

// {"step": 1, "epoch": 1, "loss": 2.3, ...}: numbers at a step. Time and epoch are no curves.
static bool read_line(reader *d, const char *text, size_t bytes, int64_t *before)
{
    char    key[64];
    int64_t step = -1;
    tni_json_open(&d->j, text, bytes);
    if (tni_json_next(&d->j) != TNI_JSON_OBJECT) return false;
    while (next_member(d, key, sizeof key)) {
        if (!strcmp(key, "step")) step = take_int(d);
        else if (!strcmp(key, "epoch") || !strcmp(key, "time")) skip(d);
        else if (step <= *before) d->bad = true;
        else {
            double           v = take_number(d);
            tni_report_point p = { step, v, v, v };
            if (going(d) && !tni_report_add(d->r, op, key, p, 1)) d->memory = true;
        }
    }
    *before = step;
    return going(d) && step >= 0;
}

// A run that is still going on may have written a part of its last line, which does not count.
static bool read_log(reader *d, const char *text, size_t bytes)
{
    int64_t     before = -1;
    const char *end    = text + bytes, *next;
    if (!bytes || *text != '{') return false;
    for (; text < end && (next = memchr(text, '\n', (size_t)(end - text))); text = next + 1)
        if (!read_line(d, text, (size_t)(next - text), &before)) return false;
    return before >= 0;
}

// ---- the call ----------------------------------------------------------------------------------

// The last value of each curve of a test is a result, which a log has no other place for.
static bool add_results(tn_report *r)
{
    for (size_t i = 0; i < r->curves; i++) {
        const tni_report_curve *c = &r->curve[i];
        if (strncmp(c->name, "test_", 5) || !c->count) continue;
        if (!tni_report_set(r, op, &r->figures, c->name, NULL, c->point[c->count - 1].mean))
            return false;
    }
    return true;
}

// A page is known by its data, wherever in the file it stands; anything else is tried as a log.
static bool fill(reader *d, const tni_mapping *m)
{
    const char *text = (const char *)m->data, *end = text + m->bytes;
    const char *from = m->bytes ? memmem(text, m->bytes, data_start, sizeof data_start - 1) : NULL;
    if (!from) return read_log(d, text, m->bytes) && add_results(d->r);
    from += sizeof data_start - 1;
    const char *to = memmem(from, (size_t)(end - from), data_end, sizeof data_end - 1);
    return to && read_page(d, from, (size_t)(to - from));
}

// A failure leaves nothing behind but its error, which names the file.
tn_report *tn_report_read(tn_ctx *cx, const char *path)
{
    if (!tni_ctx_ok(cx, op)) return NULL;
    if (!path) return tni_fail(cx, TN_EARG, "%s: the path is NULL", op);
    tni_mapping *m     = tni_mapping_open(cx, op, path);
    const char  *slash = strrchr(path, '/');
    reader       d     = { .r = m ? tni_report_new(cx, op, slash ? slash + 1 : path) : NULL };
    bool         ok    = d.r && fill(&d, m);
    if (d.r && !ok && !d.memory)
        tni_fail(cx, TN_EFORMAT, "%s: %s is neither the page of a run nor a log", op,
                 tni_quoted(path).s);
    if (m) tni_mapping_unref(m);
    if (ok) return d.r;
    if (d.r) tn_report_close(d.r);
    return NULL;
}
