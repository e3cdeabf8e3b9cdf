// The page of a report: what was collected as JSON, and the script that shows it.
//
//   { "kind": "report", "title": "lenet on digits",
//     "settings": [["lr", "0.001"], ...], "figures": [["test_accuracy", 0.98], ...], "machine": [["device", "cpu"], ...],
//     "curves": [{ "name": "loss", "stride": 1, "points": [[1, 2.3], ...] }, ...],      of stride > 1: [step, mean, low, high]
//     "samples": [{ "image": "data:...", "truth": "7", "prediction": "7", "chance": 0.99 }, ...],
//     "confusion": { "names": ["0", ...], "counts": [[98, 0], [1, 97]] } }
#include "base/page.h"
#include "base/pool.h"
#include "engine/engine.h"
#include "io/outfile.h"
#include "train/report_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

extern const char tni_run_values_js[], tni_report_page_js[];

// ---- JSON --------------------------------------------------------------------------------------

// JSON has no NaN and no infinity; 9 digits are those of a float, and a count has all of its own.
static void put_number(tni_json_writer *w, double v)
{
    bool whole = fabs(v) < 1e15 && v == floor(v);
    tni_json_put(w, isfinite(v) ? tni_text_of(whole ? "%.0f" : "%.9g", v).s : "null");
}

// A member whose value is a text; nothing for NULL.
static void put_member(tni_json_writer *w, const char *name, const char *text)
{
    if (!text) return;
    tni_json_quote(w, name);
    tni_json_put(w, ":");
    tni_json_quote(w, text);
    tni_json_put(w, ",");
}

// Pairs, not an object: their order is that of the page, and objects of JSON have none.
static void put_pairs(tni_json_writer *w, const char *name, const tni_report_pairs *list)
{
    tni_json_put(w, tni_text_of("\"%s\":[", name).s);
    for (size_t i = 0; i < list->count; i++) {
        const tni_report_pair *p = &list->pair[i];
        tni_json_put(w, i ? ",[" : "[");
        tni_json_quote(w, p->name);
        tni_json_put(w, ",");
        if (p->text) tni_json_quote(w, p->text);
        else put_number(w, p->v);
        tni_json_put(w, "]");
    }
    tni_json_put(w, "],\n");
}

// The range is left out where it is the value itself, which halves the page of a short run.
static void put_point(tni_json_writer *w, const tni_report_point *p, bool range)
{
    tni_json_put(w, "[");
    tni_json_put_int(w, p->step);
    for (int i = 0; i < (range ? 3 : 1); i++) {
        tni_json_put(w, ",");
        put_number(w, i == 0 ? p->mean : i == 1 ? p->low : p->high);
    }
    tni_json_put(w, "]");
}

// The stride comes before the points, as the reader needs it.
static void put_curves(tni_json_writer *w, const tn_report *r)
{
    tni_json_put(w, "\"curves\":[");
    for (size_t i = 0; i < r->curves; i++) {
        const tni_report_curve *c = &r->curve[i];
        tni_json_put(w, i ? ",\n{" : "{");
        put_member(w, "name", c->name);
        tni_json_put(w, tni_text_of("\"stride\":%lld,\"points\":[", (long long)c->stride).s);
        for (size_t k = 0; k < c->count; k++) {
            if (k) tni_json_put(w, ",");
            put_point(w, &c->point[k], c->stride > 1);
        }
        tni_json_put(w, "]}");
    }
    tni_json_put(w, "],\n");
}

// Members that a sample has not are left out.
static void put_samples(tni_json_writer *w, const tn_report *r)
{
    tni_json_put(w, "\"samples\":[");
    for (size_t i = 0; i < r->samples; i++) {
        const tni_report_sample *s = &r->sample[i];
        tni_json_put(w, i ? ",\n{" : "{");
        put_member(w, "image", s->image);
        put_member(w, "text", s->text);
        put_member(w, "truth", s->truth);
        put_member(w, "prediction", s->prediction);
        tni_json_put(w, "\"chance\":");
        put_number(w, s->chance);
        tni_json_put(w, "}");
    }
    tni_json_put(w, "],\n");
}

// Rows as arrays of their own, so that they can be read by eye in the file, too. null where there
// are no classes.
static void put_matrix(tni_json_writer *w, const tn_report *r)
{
    tni_json_put(w, "\"confusion\":");
    if (!r->classes) {
        tni_json_put(w, "null");
        return;
    }
    tni_json_put(w, "{\"names\":[");
    for (int64_t i = 0; i < r->classes; i++) {
        if (i) tni_json_put(w, ",");
        tni_json_quote(w, r->names[i] ? r->names[i] : "");
    }
    tni_json_put(w, "],\"counts\":[");
    for (int64_t i = 0; i < r->classes * r->classes; i++) {
        tni_json_put(w, i % r->classes ? "," : i ? "],\n[" : "[");
        tni_json_put_int(w, r->counts[i]);
    }
    tni_json_put(w, "]]}");
}

// The kind is what tells pages of runs from those of profiles and plans, which have the same form
// otherwise.
void tni_report_json(const tn_report *r, tni_json_writer *w, bool samples)
{
    tni_json_put(w, "{\"kind\":\"report\",");
    put_member(w, "title", r->title);
    put_pairs(w, "settings", &r->settings);
    put_pairs(w, "figures", &r->figures);
    put_pairs(w, "machine", &r->machine);
    put_curves(w, r);
    if (samples) put_samples(w, r);
    put_matrix(w, r);
    tni_json_put(w, "}");
}

// ---- the page ----------------------------------------------------------------------------------

// The script comes after what pages of runs share. The page is made in memory first, so that the
// file at path is the old one or the whole new one.
tn_status tni_report_page(tn_ctx *cx, const char *op, const char *path, const char *title,
                          const char *note, tni_json_writer *data, const char *script)
{
    char    *text  = NULL;
    size_t   bytes = 0, room = strlen(tni_run_values_js) + strlen(script) + 1;
    char    *both = tni_alloc(&cx->heap, room);
    FILE    *f    = data->full || !both ? NULL : open_memstream(&text, &bytes);
    tni_page page = { title, note, data->text, both };
    if (both) snprintf(both, room, "%s%s", tni_run_values_js, script);
    bool         ok  = f && tni_page_write(f, &page);
    tni_outfile *out = NULL;
    if (f && fclose(f) != 0) ok = false;
    tni_free(data->heap, data->text);
    tni_free(&cx->heap, both);
    if (ok) out = tni_outfile_open(cx, op, path);
    else tni_fail_memory(cx, op);
    bool written = out && tni_outfile_write(out, text, bytes);
    free(text);
    if (written) return tni_outfile_commit(out);
    if (out) tni_outfile_abandon(out);
    return tni_failed();
}

// What the machine is, as it is when the page is written. The context's device alone is asked,
// since others may take long to answer.
static bool set_machine(tn_report *r, const char *op)
{
    tn_ctx   *cx        = r->owned.cx;
    char      host[128] = "", when[64] = "";
    tni_text  detail = { "" };
    time_t    now    = time(NULL);
    struct tm t;
    gethostname(host, sizeof host - 1);
    if (localtime_r(&now, &t)) strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S %z", &t);
    cx->engine->device->probe(&detail);
    tni_report_pairs *m = &r->machine;
    return tni_report_set(r, op, m, "device", tn_ctx_device(cx), NAN) &&
           tni_report_set(r, op, m, "chip", detail.s, NAN) &&
           tni_report_set(r, op, m, "threads", tni_text_of("%d", tni_threads_default()).s, NAN) &&
           tni_report_set(r, op, m, "host", host, NAN) &&
           tni_report_set(r, op, m, "tenon", tn_version(), NAN) &&
           tni_report_set(r, op, m, "written", when, NAN);
}

// The report stays as it is, and may be written again when there is more: a page of a run that goes
// on.
tn_status tn_report_write(tn_report *r, const char *path)
{
    static const char op[] = "report_write";

    tn_ctx *cx = tni_owned_ok(op, r, TNI_REPORT);
    if (!cx) return tni_failed();
    if (!path || !*path) return tni_fail_status(cx, TN_EARG, "%s: there is no path", op);
    if (!set_machine(r, op)) return tni_failed();
    tni_json_writer w = { .heap = &cx->heap };
    tni_report_json(r, &w, true);
    return tni_report_page(cx, op, path, r->title, NULL, &w, tni_report_page_js);
}
