// graph_ways.c: ways to run random graphs, each against ref. A graph that fails is shrunk and
// printed as C.
#include "graph_ways.h"

#include "check.h"
#include "graphs.h"

#include <stdlib.h>
#include <string.h>

static const graph_way as_ref = { "ref", "ref", "TN_EAGER", "0" };

static void quiet(tn_ctx *cx, const tn_fault *f, void *user)
{
    (void)cx, (void)f, (void)user;
}

tn_ctx *graph_way_open(const graph_way *w)
{
    const char *before = getenv(w->variable);
    char        old[64];
    snprintf(old, sizeof old, "%s", before ? before : "");
    setenv(w->variable, w->setting, 1);
    tn_ctx *cx = tn_open_with((tn_open_opts){ .device = w->device, .handler = quiet });
    if (!strcmp(w->variable, "TN_EAGER")) {
        if (before) setenv(w->variable, old, 1);
        else unsetenv(w->variable);
    }
    return cx;
}

tn_ctx *graph_way_next(const graph_way *list, const graph_way **w, tn_ctx *cx)
{
    const graph_way *at = cx ? *w + 1 : list;
    if (cx && tn_error(cx)) test_that(false, "%s: %s", (*w)->name, tn_error_text(cx));
    if (cx) unsetenv((*w)->variable);
    tn_close(cx);
    for (; at->name; at++) {
        *w = at;
        if ((cx = graph_way_open(at))) return cx;
        printf("skip of %s: %s\n", at->name, tn_error_text(NULL));
    }
    return NULL;
}

// Whether a graph gives on cx what it gives on ref; why not, in text.
static bool agrees(const graph *g, tn_ctx *ref, tn_ctx *cx, char *text)
{
    graph_result want = { 0 }, have = { 0 };
    bool         ok = graph_run(g, ref, &want, NULL);
    if (!ok) snprintf(text, 256, "ref: %.240s", want.error);
    if (ok) {
        ok = graph_run(g, cx, &have, NULL);
        if (!ok) snprintf(text, 256, "%s", have.error[0] ? have.error : "not run");
    }
    ok = ok && graph_agree(&want, &have, text);
    graph_result_free(&want);
    graph_result_free(&have);
    return ok;
}

// Takes out steps as long as the graph still fails, and prints what is left.
static void shrink(graph g, tn_ctx *ref, tn_ctx *cx, const graph_way *w)
{
    char         text[256];
    graph_result out = { 0 };
    for (bool smaller = true; smaller;) {
        smaller = false;
        for (int i = g.count - 1; i >= 0; i--) {
            graph h = g;
            memmove(&h.step[i], &h.step[i + 1], (size_t)(g.count - i - 1) * sizeof *h.step);
            h.count--;
            if (agrees(&h, ref, cx, text)) continue;
            g       = h;
            smaller = true;
        }
    }
    printf("---- graph %llu on %s\n", (unsigned long long)g.seed, w->name);
    graph_run(&g, ref, &out, stdout);
    if (!agrees(&g, ref, cx, text)) printf("    // %s\n", text);
    printf("----\n");
    graph_result_free(&out);
}

void graph_way_run(const graph_way *w, uint64_t first, int count)
{
    tn_ctx *cx = graph_way_open(w);
    if (!cx) SKIP("%s is not here: %s", w->device, tn_error_text(NULL));
    graph_way_run_in(w, cx, first, count);
}

void graph_way_run_in(const graph_way *w, tn_ctx *cx, uint64_t first, int count)
{
    tn_ctx     *ref = graph_way_open(&as_ref);
    const char *one = getenv("TN_GRAPH");
    int         bad = 0;
    if (one) first = strtoull(one, NULL, 10), count = 1;
    for (int i = 0; i < count && bad < 3; i++) {
        graph g;
        char  text[256] = "";
        graph_draw(&g, first + (uint64_t)i);
        bool ok = agrees(&g, ref, cx, text);
        test_case_result(ok, "graph %llu, %s: %s", (unsigned long long)g.seed, w->name, text);
        if (!ok) shrink(g, ref, cx, w), bad++;
    }
    tn_close(cx);
    tn_close(ref);
}
