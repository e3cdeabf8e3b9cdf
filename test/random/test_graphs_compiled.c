// test_graphs_compiled.c: random graphs whose kernels are interpreted first and compiled then:
// equal bits, and near to ref.
#include "check.h"
#include "device/cpu/cpu_kernels.h"
#include "graphs.h"

#include <math.h>
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
enum { SOME = 50, ALL = 700, AT_ONCE = 50, SHORT = 8 };

// Short ones, since compiling takes most of the time.
static void draw_short(graph *g, uint64_t seed)
{
    graph_draw(g, seed);
    if (g->count > SHORT) g->count = SHORT;
}

// Each graph first while its kernels wait to be compiled, which the second run asks for; then with
// what became of them.
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

// Opens the two contexts with a folder of their own, so that every kernel is compiled here and now.
static bool begin(char *dir, tn_ctx **ref, tn_ctx **cx)
{
    if (!CHECK(mkdtemp(dir) != NULL)) return false;
    setenv("TN_CACHE_DIR", dir, 1);
    *ref = tn_open_with((tn_open_opts){ .device = "ref", .handler = quiet });
    *cx  = tn_open_with((tn_open_opts){ .device = "cpu", .handler = quiet });
    return CHECK(*ref && *cx);
}

static void end(const char *dir, tn_ctx *ref, tn_ctx *cx)
{
    char command[64];
    CHECK_INT(tni_cpu_kernels_counts().failed, 0);
    tn_close(cx);
    tn_close(ref);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    CHECK_INT(system(command), 0);
}

static void graphs_fused_and_compiled_give_the_same_bits(void)
{
    static graph_result before[AT_ONCE];
    char                dir[] = "/tmp/tenon-graphs-XXXXXX";
    tni_text            why   = { "" };
    tn_ctx             *ref, *cx;
    if (!tni_cpu_compiler(&why)) SKIP("%s", why.s);
    if (!begin(dir, &ref, &cx)) return;
    int n = test_long() ? ALL : SOME;
    for (int i = 0; i < n; i += AT_ONCE) compile_graphs(ref, cx, 100001 + (uint64_t)i, before);
    CHECK(tni_cpu_kernels_counts().compiled > n);
    end(dir, ref, cx);
}

// ---- windows: several rows of an image are one turn of their loop ------------------------------

enum { ROOM = 1 << 14 };  // elements of a shape, at most

// y, and the gradient of the sum of its squares behind it, of ROOM elements each.
static bool pool(tn_ctx *cx, const int64_t *size, int64_t stride, float *y)
{
    static float x[ROOM];
    int64_t      count = size[0] * size[1] * size[2] * size[3];
    for (int64_t i = 0; i < count; i++) x[i] = (float)(i * 7919 % 1009) / 97;
    tn_scope  *s = tn_begin(cx);
    tn_tensor *t = tn_requires_grad(tn_from(cx, TN_F32, 4, size, x), true), *g = NULL;
    tn_tensor *most = tn_max_pool2d(tn_relu(tn_sub_s(t, 1)), 2, 2,
                                    (tn_pool_opts){ .stride = { stride } });
    tn_tensor *sum  = tn_sum_all(tn_mul(most, most));
    tn_grad(1, &sum, 1, &t, NULL, &g);
    bool ok = tn_read(most, TN_F32, y, tn_count(most)) == TN_OK &&
              tn_read(g, TN_F32, y + ROOM, count) == TN_OK;
    tn_end(s);
    return ok;
}

// Rows that a strip holds many of, fewer than an image has, and one of; and those that it holds a
// part of.
static void windows_of_rows_of_any_length_give_the_same_bits(void)
{
    static const int64_t shapes[][4] = { { 3, 2, 11, 13 },  { 2, 1, 700, 9 },  { 2, 2, 5, 700 },
                                         { 1, 2, 3, 2048 }, { 1, 2, 3, 2051 }, { 1, 1, 2, 2 } };
    static float         y[3][2 * ROOM];
    char                 dir[] = "/tmp/tenon-windows-XXXXXX";
    tni_text             why   = { "" };
    tn_ctx              *ref, *cx;
    if (!tni_cpu_compiler(&why)) SKIP("%s", why.s);
    if (!begin(dir, &ref, &cx)) return;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int64_t stride = 1; stride <= 3; stride++) {
            memset(y, 0, sizeof y);
            bool ok = pool(ref, shapes[i], stride, y[0]);
            for (int k = 0; k < 2; k++) ok = ok && pool(cx, shapes[i], stride, y[1]);
            tni_cpu_kernels_wait();
            ok = ok && pool(cx, shapes[i], stride, y[2]);
            test_case_result(ok && !memcmp(y[1], y[2], sizeof *y), "shape %zu, stride %lld: bits",
                             i, (long long)stride);
            for (int k = 0; k < 2 * ROOM && ok; k++)
                ok = fabsf(y[0][k] - y[2][k]) <= 1e-5f * (1 + fabsf(y[0][k]));
            test_case_result(ok, "shape %zu, stride %lld: ref differs", i, (long long)stride);
        }
    end(dir, ref, cx);
}

const test_case tests_graphs_compiled[] = {
    TEST(graphs_fused_and_compiled_give_the_same_bits),
    TEST(windows_of_rows_of_any_length_give_the_same_bits),
    TEST_END,
};
