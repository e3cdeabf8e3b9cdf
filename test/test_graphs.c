// test_graphs.c: random graphs, planned and fused, against op by op, against ref. One that fails is
// shrunk and printed as C.
//
//     TN_GRAPH=12345 tenon-tests graphs     runs and prints that one
//     TN_GRAPHS=1000000 tenon-tests graphs  runs that many on each way that takes no compiler
#include "check.h"
#include "graphs.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// A way to run graphs: a device with what the environment says as its context opens.
typedef struct {
    const char *name, *device, *variable, *setting;
} way;

static const way as_ref       = { "ref", "ref", "TN_EAGER", "0" };
static const way op_by_op     = { "cpu, op by op", "cpu", "TN_EAGER", "1" };
static const way interpreted  = { "cpu, fused, interpreted", "cpu", "TN_CC", "none" };
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

// Most of the time goes by while kernels are compiled, one after the other: a second process compiles
// those of the later graphs meanwhile, which are then found on disk.
static pid_t compile_ahead(const way *w, uint64_t first, int count)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid != 0) return pid;
    tn_ctx *cx = open_way(w);
    for (int i = 0; cx && i < count; i++) {
        graph        g;
        graph_result out = { 0 };
        graph_draw(&g, first + (uint64_t)i);
        graph_run(&g, cx, &out, NULL);
        graph_result_free(&out);
    }
    _exit(0);
}

static void graphs_fused_on_opencl_agree_with_ref(void)
{
    pid_t ahead = getenv("TN_GRAPH") ? -1 : compile_ahead(&on_opencl, 200151, 150);
    run_graphs(&on_opencl, 200001, 300);
    if (ahead > 0) kill(ahead, SIGKILL);
    if (ahead > 0) waitpid(ahead, NULL, 0);
}

static void graphs_op_by_op_on_opencl_agree_with_ref(void)
{
    run_graphs(&opencl_alone, 300001, 30);
}

const test_case tests_graphs[] = {
    TEST(graphs_op_by_op_agree_with_ref),
    TEST(graphs_fused_and_interpreted_agree_with_ref),
    TEST(graphs_fused_on_opencl_agree_with_ref),
    TEST(graphs_op_by_op_on_opencl_agree_with_ref),
    TEST_END,
};
