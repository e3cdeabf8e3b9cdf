// A profile as a page: timeline, table, roofline, and memory over time by owner. Here its data is
// written; what draws it is profile_html.js. Times are in nanoseconds, rates in units a second.
//
//   {"device":"cpu","wall":81000,"time":72000,"launches":140,"runs":20,"lost":0,
//    "ceilings":{"copy":1.2e10,"products":[{"dtype":"f32","rate":4.4e10}]},
//    "rows":[{"name":"matmul (64, 10)","time":1100,"count":7,"best":120,"bytes":400,"flops":81920,"products":81920,
//             "dtype":"f32","percent":41.9,"lines":["train.c:4 forward"],"alike":["h.1.attn"]}],
//    "events":[[from, time, row]],"host":[[from, time, what, bytes]],"hosts":180,"work":["record",...],
//    "owners":["parameters",...],"memory":[[when, bytes, ...]],"changes":320,"most":4300800}
//
// Lists that are long are cut; launches, hosts and changes say how long they were, so that the page
// says what it leaves out.
#include "base/json.h"
#include "base/page.h"
#include "inspect/profile.h"

extern const char tni_profile_html_js[];

// What a page shows of the runs of kernels, and of changes of memory: enough for any screen, and it
// opens at once.
enum { SHOWN = 20000, SHOWN_MEMORY = 4000 };

// Writes ,"name":v
static void put_int(tni_json_writer *w, const char *name, int64_t v)
{
    tni_json_put(w, ",");
    tni_json_quote(w, name);
    tni_json_put(w, ":");
    tni_json_put_int(w, v);
}

// The same for a number that may have a fraction.
static void put_double(tni_json_writer *w, const char *name, double v)
{
    tni_json_put(w, ",");
    tni_json_quote(w, name);
    tni_json_put(w, ":");
    tni_json_put_double(w, v);
}

// Writes the ceilings of the dtypes that were multiplied; of f32 where there were none, so that the
// roofline has a flat part in any case.
static void put_ceilings(tn_ctx *cx, tni_profile *p, tni_json_writer *w)
{
    bool used[TNI_DTYPES] = { false }, any = false;
    for (size_t i = 0; i < p->rows; i++)
        if (p->row[i].effort.products > 0) any = used[p->row[i].effort.dtype] = true;
    if (!any) used[TN_F32] = true;
    tni_json_put(w, ",\"ceilings\":{\"copy\":");
    tni_json_put_double(w, tni_roofline_copy(cx, p));
    tni_json_put(w, ",\"products\":[");
    for (int dt = 0, n = 0; dt < TNI_DTYPES; dt++) {
        double rate = used[dt] ? tni_roofline_product(cx, p, (tn_dtype)dt) : 0;
        if (rate <= 0) continue;
        tni_json_put(w, n++ ? ",{\"dtype\":" : "{\"dtype\":");
        tni_json_quote(w, tn_dtype_name((tn_dtype)dt));
        put_double(w, "rate", rate);
        tni_json_put(w, "}");
    }
    tni_json_put(w, "]}");
}

// Writes the lines of a group, and the layers of the rows that are alike.
static void put_lines(tni_json_writer *w, const tni_profile_group *g)
{
    tni_json_put(w, ",\"lines\":[");
    for (int i = 0; i < g->sum.sites; i++) {
        if (i) tni_json_put(w, ",");
        tni_json_quote(w, tni_profile_line(&g->sum.site[i]).s);
    }
    tni_json_put(w, "],\"alike\":[");
    for (size_t i = 1; i < g->rows; i++) {
        if (i > 1) tni_json_put(w, ",");
        tni_json_quote(w, tni_escaped(tni_profile_layer(g->row[i])).s);
    }
    tni_json_put(w, "]");
}

// Writes a row of the table with the figures that the columns are computed from, so that the page
// can show them in other units and sort by them.
static void put_group(tn_ctx *cx, tni_profile *p, tni_json_writer *w, const tni_profile_group *g)
{
    const tni_profile_row *r    = &g->sum;
    int64_t                part = tni_profile_per_mille(cx, p, r);
    tni_json_put(w, "{\"name\":");
    tni_json_quote(w, r->name.s);
    put_int(w, "time", r->ns);
    put_int(w, "count", r->count);
    put_int(w, "best", r->best);
    put_int(w, "bytes", r->bytes);
    put_double(w, "flops", r->effort.flops);
    put_double(w, "products", r->effort.products);
    if (part >= 0) put_double(w, "percent", (double)part / 10);
    if (r->registers.spilled) put_int(w, "spilled", r->registers.spilled);
    put_lines(w, g);
    tni_json_put(w, "}");
}

// Writes the groups as rows, and says in `of` which group each row of the profile is in.
static void put_rows(tn_ctx *cx, tni_profile *p, tni_json_writer *w, const tni_profile_group *g,
                     size_t n, uint32_t *of)
{
    tni_json_put(w, ",\n\"rows\":[");
    for (size_t i = 0; i < n; i++) {
        tni_json_put(w, i ? ",\n" : "\n");
        put_group(cx, p, w, &g[i]);
        for (size_t k = 0; k < g[i].rows; k++) of[g[i].row[k] - p->row] = (uint32_t)i;
    }
    tni_json_put(w, "]");
}

// Writes an array of numbers, with a comma before it unless it is the first: events are arrays
// instead of objects, which would take four times the space.
static void put_numbers(tni_json_writer *w, bool first, int n, const int64_t *v)
{
    tni_json_put(w, first ? "[" : ",[");
    for (int i = 0; i < n; i++) {
        if (i) tni_json_put(w, ",");
        tni_json_put_int(w, v[i]);
    }
    tni_json_put(w, "]");
}

// Writes the runs of kernels, each with the number of its group, and the work of the host.
static void put_events(tni_profile *p, tni_json_writer *w, const uint32_t *of)
{
    tni_json_put(w, ",\n\"events\":[");
    for (size_t i = 0; i < p->events && i < SHOWN; i++) {
        const tni_profile_event *e = &p->event[i];
        put_numbers(w, i == 0, 3, (int64_t[]){ e->from, e->ns, of[e->row] });
    }
    tni_json_put(w, "],\n\"host\":[");
    for (size_t i = 0; i < p->hosts && i < SHOWN; i++) {
        const tni_profile_host_event *e = &p->host[i];
        put_numbers(w, i == 0, 4, (int64_t[]){ e->from, e->ns, e->what, e->bytes });
    }
    tni_json_put(w, "]");
    put_int(w, "hosts", p->hosts_in_all);
    tni_json_put(w, ",\"work\":[");
    for (int i = 0; i <= TNI_HOST_DOWNLOAD; i++) {
        if (i) tni_json_put(w, ",");
        tni_json_quote(w, tni_host_name[i]);
    }
    tni_json_put(w, "]");
}

// Memory on its way into the page: how often it changed, and the most that there was, also where
// the page ends before it.
typedef struct {
    tni_json_writer *w;
    int64_t          count, most;
} memory_writer;

// A program that runs for long changes its memory often; the page shows the first of these changes.
static void put_memory(void *to, int64_t ns, const int64_t *bytes)
{
    memory_writer *m                 = to;
    int64_t        v[1 + TNI_OWNERS] = { ns }, sum = 0;
    for (int i = 0; i < TNI_OWNERS; i++) sum += v[1 + i] = bytes[i];
    if (sum > m->most) m->most = sum;
    if (m->count < SHOWN_MEMORY) put_numbers(m->w, m->count == 0, 1 + TNI_OWNERS, v);
    m->count++;
}

static void put_all_memory(tni_profile *p, tni_json_writer *w)
{
    memory_writer m = { .w = w };
    tni_json_put(w, ",\n\"owners\":[");
    for (int i = 0; i < TNI_OWNERS; i++) {
        if (i) tni_json_put(w, ",");
        tni_json_quote(w, tni_owner_name[i]);
    }
    tni_json_put(w, "],\"memory\":[");
    tni_profile_memory(p, &m, put_memory);
    tni_json_put(w, "]");
    put_int(w, "changes", m.count);
    put_int(w, "most", m.most);
}

// Writes what the head of the table says.
static void put_head(tn_ctx *cx, tni_profile *p, tni_json_writer *w)
{
    tni_json_put(w, "{\"device\":");
    tni_json_quote(w, cx->engine->device->name);
    put_int(w, "wall", (int64_t)(1e9 * (p->ended - p->begun)));
    put_int(w, "time", p->ns);
    put_int(w, "launches", p->launches);
    put_int(w, "runs", p->runs);
    put_int(w, "lost", p->lost);
    put_ceilings(cx, p, w);
}

// The page is made in memory before it is written: its data is bounded by SHOWN.
bool tni_profile_html(tn_ctx *cx, tni_profile *p, FILE *f)
{
    tni_heap               *h   = &cx->heap;
    tni_json_writer         w   = { .heap = h };
    const tni_profile_row **row = tni_alloc(h, p->rows * sizeof *row + 1);
    tni_profile_group      *all = tni_alloc(h, p->rows * sizeof *all + 1);
    uint32_t               *of  = tni_zalloc(h, p->rows * sizeof *of + 1);
    bool                    ok  = row && all && of;
    if (ok) {
        put_head(cx, p, &w);
        put_rows(cx, p, &w, all, tni_profile_groups(p, row, all), of);
        put_events(p, &w, of);
        put_all_memory(p, &w);
        tni_json_put(&w, "}");
        ok = !w.full;
    }
    tni_text title = tni_text_of("profile on %s", cx->engine->device->name);
    if (ok)
        tni_page_write(f, &(tni_page){
                              .title = title.s, .data = w.text, .script = tni_profile_html_js });
    tni_free(h, w.text);
    tni_free(h, of);
    tni_free(h, all);
    tni_free(h, row);
    return ok;
}
