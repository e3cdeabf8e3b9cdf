// test_graphs_compiled.c: random graphs whose kernels are interpreted first and compiled then: equal bits,
// and near to ref.
#include "check.h"
#include "device/cpu/cpu_kernels.h"
#include "graphs.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void quiet(tn_ctx *cx, const tn_fault *f, void *user)
{
    (void)cx, (void)f, (void)user;
}

static bool same_bits(const graph_result *a, const graph_result *b)
{
    return a->count == b->count && !memcmp(a->x, b->x, (size_t)a->count * sizeof *a->x);
}

// Compiling takes most of the time, so that a plain run draws SOME graphs and `make test-long` ALL.
enum { SOME = 200, ALL = 700, AT_ONCE = 100, SHORT = 8 };

// Short ones, since compiling takes most of the time.
static void draw_short(graph *g, uint64_t seed)
{
    graph_draw(g, seed);
    if (g->count > SHORT) g->count = SHORT;
}

// Each graph first while its kernels wait to be compiled, which the second run asks for; then with what
// became of them.
static void compile_graphs(tn_ctx *ref, tn_ctx *cx, uint64_t first, graph_result *before)
{
    graph g;
    char  text[256] = "";
    for (int i = 0; i < AT_ONCE; i++) {
        draw_short(&g, first + (uint64_t)i);
        bool ok = graph_run(&g, cx, &before[i], NULL) && graph_run(&g, cx, &before[i], NULL);
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
    tn_ctx *ref = tn_open_with((tn_open_opts){ .device = "ref", .handler = quiet });
    tn_ctx *cx  = tn_open_with((tn_open_opts){ .device = "cpu", .handler = quiet });
    int     n   = test_long() ? ALL : SOME;
    for (int i = 0; i < n; i += AT_ONCE) compile_graphs(ref, cx, 100001 + (uint64_t)i, before);
    CHECK(tni_cpu_kernels_counts().compiled > n);
    CHECK_INT(tni_cpu_kernels_counts().failed, 0);
    tn_close(cx);
    tn_close(ref);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    CHECK_INT(system(command), 0);
}

const test_case tests_graphs_compiled[] = {
    TEST(graphs_fused_and_compiled_give_the_same_bits),
    TEST_END,
};
