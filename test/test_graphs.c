// test_graphs.c: random graphs, planned and fused, against op by op, against ref. One that fails is
// shrunk and printed as C.
//
//     TN_GRAPH=12345 tenon-tests graphs     runs and prints that one
//     TN_GRAPHS=1000000 tenon-tests graphs  runs that many on each way that takes no compiler
#include "check.h"
#include "device/cpu/cpu_kernels.h"
#include "graphs.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// A way to run graphs: a device with what the environment says as its context opens.
typedef struct {
    const char *name, *device, *variable, *setting;
} way;

static const way as_ref       = { "ref", "ref", "TN_EAGER", "0" };
static const way op_by_op     = { "cpu, op by op", "cpu", "TN_EAGER", "1" };
static const way interpreted  = { "cpu, fused, interpreted", "cpu", "TN_CC", "none" };
static const way fused        = { "cpu, fused", "cpu", "TN_EAGER", "0" };
static const way on_opencl    = { "opencl, fused", "opencl", "TN_EAGER", "0" };
static const way opencl_alone = { "opencl, op by op", "opencl", "TN_EAGER", "1" };

static void quiet(tn_ctx *cx, const tn_fault *f, void *user)
{
    (void)cx, (void)f, (void)user;
}

static tn_ctx *open_way(const way *w)
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
static void shrink(graph g, tn_ctx *ref, tn_ctx *cx, const way *w)
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

static int how_many(int normal)
{
    const char *n = getenv("TN_GRAPHS");
    return n && atoi(n) > 0 ? atoi(n) : normal;
}

static void run_graphs(const way *w, uint64_t first, int count)
{
    tn_ctx     *ref = open_way(&as_ref), *cx = open_way(w);
    const char *one = getenv("TN_GRAPH");
    int         bad = 0;
    if (!cx) {
        tn_close(ref);
        SKIP("%s is not here: %s", w->device, tn_error_text(NULL));
    }
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

static void graphs_op_by_op_agree_with_ref(void)
{
    run_graphs(&op_by_op, 1, how_many(1000));
}

static void graphs_fused_and_interpreted_agree_with_ref(void)
{
    run_graphs(&interpreted, 1, how_many(4000));
}

static bool same_bits(const graph_result *a, const graph_result *b)
{
    return a->count == b->count && !memcmp(a->x, b->x, (size_t)a->count * sizeof *a->x);
}

enum { COMPILED = 700, AT_ONCE = 100, SHORT = 8 };

// Short ones, since compiling takes most of the time.
static void draw_short(graph *g, uint64_t seed)
{
    graph_draw(g, seed);
    if (g->count > SHORT) g->count = SHORT;
}

// Each graph first while its kernels wait to be compiled, then with what became of them.
static void compile_graphs(tn_ctx *ref, tn_ctx *cx, uint64_t first, graph_result *before)
{
    graph g;
    char  text[256] = "";
    for (int i = 0; i < AT_ONCE; i++) {
        draw_short(&g, first + (uint64_t)i);
        bool ok = graph_run(&g, cx, &before[i], NULL);
        test_case_result(ok, "graph %llu: %s", (unsigned long long)g.seed, before[i].error);
    }
    tni_cpu_kernels_wait();
    for (int i = 0; i < AT_ONCE; i++) {
        graph_result after = { 0 }, want = { 0 };
        draw_short(&g, first + (uint64_t)i);
        bool ok = graph_run(&g, cx, &after, NULL) && graph_run(&g, ref, &want, NULL);
        test_case_result(ok && same_bits(&before[i], &after),
                         "graph %llu: compiled it gives other bits", (unsigned long long)g.seed);
        ok = ok && graph_agree(&want, &after, text);
        test_case_result(ok, "graph %llu, compiled: %s", (unsigned long long)g.seed, text);
        graph_result_free(&after);
        graph_result_free(&want);
        graph_result_free(&before[i]);
    }
}

// In a folder of its own, so that every kernel is compiled here and now.
static void graphs_fused_and_compiled_give_the_same_bits(void)
{
    static graph_result before[AT_ONCE];
    char                dir[] = "/tmp/tenon-graphs-XXXXXX", command[64];
    tni_text            why   = { "" };
    if (!tni_cpu_compiler(&why)) SKIP("%s", why.s);
    if (!CHECK(mkdtemp(dir) != NULL)) return;
    setenv("TN_CACHE_DIR", dir, 1);
    tn_ctx *ref = open_way(&as_ref), *cx = open_way(&fused);
    for (int i = 0; i < COMPILED; i += AT_ONCE)
        compile_graphs(ref, cx, 100001 + (uint64_t)i, before);
    CHECK(tni_cpu_kernels_counts().compiled > COMPILED);
    CHECK_INT(tni_cpu_kernels_counts().failed, 0);
    tn_close(cx);
    tn_close(ref);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    CHECK_INT(system(command), 0);
}

static void graphs_fused_on_opencl_agree_with_ref(void)
{
    run_graphs(&on_opencl, 200001, 300);
}

static void graphs_op_by_op_on_opencl_agree_with_ref(void)
{
    run_graphs(&opencl_alone, 300001, 30);
}

const test_case tests_graphs[] = {
    TEST(graphs_op_by_op_agree_with_ref),
    TEST(graphs_fused_and_interpreted_agree_with_ref),
    TEST(graphs_fused_and_compiled_give_the_same_bits),
    TEST(graphs_fused_on_opencl_agree_with_ref),
    TEST(graphs_op_by_op_on_opencl_agree_with_ref),
    TEST_END,
};
