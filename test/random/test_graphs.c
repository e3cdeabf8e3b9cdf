// test_graphs.c: random graphs, planned and fused, against op by op, against ref. One that fails is
// shrunk and printed as C.
//
//     TN_GRAPH=12345 tenon-tests graphs     runs and prints that one
//     TN_GRAPHS=1000000 tenon-tests graphs  runs that many on each way that takes no compiler
#include "check.h"
#include "graph_ways.h"
#include "graphs.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const graph_way op_by_op     = { "cpu, op by op", "cpu", "TN_EAGER", "1" };
static const graph_way interpreted  = { "cpu, fused, interpreted", "cpu", "TN_CC", "none" };
static const graph_way on_opencl    = { "opencl, fused", "opencl", "TN_EAGER", "0" };
static const graph_way opencl_alone = { "opencl, op by op", "opencl", "TN_EAGER", "1" };

static void graphs_op_by_op_agree_with_ref(void)
{
    graph_way_run(&op_by_op, 1, test_draws(1000));
}

static void graphs_fused_and_interpreted_agree_with_ref(void)
{
    graph_way_run(&interpreted, 1, test_draws(4000));
}

// Most of the time goes by while kernels are compiled, one after the other: a second process
// compiles those of the later graphs meanwhile, which are then found on disk.
static pid_t compile_ahead(const graph_way *w, uint64_t first, int count)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid != 0) return pid;
    tn_ctx *cx = graph_way_open(w);
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
    enum { FIRST = 200001, SOME = 30, ALL = 300 };  // a graph takes a second to compile
    int   count = test_long() ? ALL : SOME;
    pid_t ahead = getenv("TN_GRAPH") ? -1 : compile_ahead(&on_opencl, FIRST + count / 2, count / 2);
    graph_way_run(&on_opencl, FIRST, count);
    if (ahead > 0) kill(ahead, SIGKILL);
    if (ahead > 0) waitpid(ahead, NULL, 0);
}

static void graphs_op_by_op_on_opencl_agree_with_ref(void)
{
    graph_way_run(&opencl_alone, 300001, test_long() ? 30 : 15);
}

const test_case tests_graphs[] = {
    TEST(graphs_op_by_op_agree_with_ref),
    TEST(graphs_fused_and_interpreted_agree_with_ref),
    TEST(graphs_fused_on_opencl_agree_with_ref),
    TEST(graphs_op_by_op_on_opencl_agree_with_ref),
    TEST_END,
};
