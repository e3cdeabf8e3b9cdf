// Golden kernel texts: what small graphs become in each dialect, kept in test/golden so that a
// change of an emitter shows as a change of text, and so that a reader sees what the emitters
// print. `make golden` writes them anew.
//
// A file has the graph, and for each kernel of its plan the instructions (kernel/kernel.h), then
// the text in C, in OpenCL C and in CUDA C as it is chosen for an H200. The functions that a text
// calls are left out.
#include "check.h"

#include "engine/engine.h"
#include "kernel/emit_c.h"
#include "kernel/simt.h"
#include "recorded_kernels.h"
#include "tensor/context.h"
#include "tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon.h>

// A graph of up to two inputs: how they are made, and what is recorded of them.
typedef struct {
    const char *name, *graph;
    tn_dtype    dtype;
    int64_t     size[2][2];  // of the inputs; 0 rows: a vector
    tn_tensor *(*record)(tn_tensor *x, tn_tensor *y);
} golden;

// ---- the graphs --------------------------------------------------------------------------------

static tn_tensor *record_point(tn_tensor *x, tn_tensor *y)
{
    return tn_add(tn_mul_s(tn_relu(x), 0.5), y);
}

static tn_tensor *record_row(tn_tensor *x, tn_tensor *y)
{
    (void)y;
    return tn_softmax(x, 1);
}

static tn_tensor *record_col(tn_tensor *x, tn_tensor *y)
{
    return tn_add(tn_sum(x, 0), y);
}

static tn_tensor *record_tails(tn_tensor *x, tn_tensor *y)
{
    (void)y;
    return tn_mean_all(tn_logsumexp(x, 1));
}

static tn_tensor *record_norm(tn_tensor *x, tn_tensor *y)
{
    return tn_layer_norm(x, 1, y, NULL, 1e-5);
}

static tn_tensor *record_tile(tn_tensor *x, tn_tensor *y)
{
    return tn_mul(tn_tanh(tn_transpose(x, 0, 1)), y);
}

static tn_tensor *record_random(tn_tensor *x, tn_tensor *y)
{
    (void)y;
    return tn_mul(x, tn_rand_like(x));
}

static tn_tensor *record_gather(tn_tensor *x, tn_tensor *y)
{
    return tn_embed(tn_cast(y, TN_I64), x);
}

static tn_tensor *record_strip(tn_tensor *x, tn_tensor *y)
{
    (void)y;
    return tn_sin(tn_mul_s(x, 2));
}

static const golden graphs[] = {
    { "point", "add(mul_s(relu(x), 0.5), y)", TN_F32, { { 64, 48 }, { 0, 48 } }, record_point },
    { "row", "softmax(x, 1)", TN_F32, { { 512, 1000 } }, record_row },
    { "col", "add(sum(x, 0), y)", TN_F32, { { 4096, 64 }, { 0, 64 } }, record_col },
    { "tails", "mean_all(logsumexp(x, 1))", TN_F32, { { 512, 1000 } }, record_tails },
    { "norm",
      "layer_norm(x, 1, y, NULL, 1e-5)",
      TN_BF16,
      { { 512, 768 }, { 0, 768 } },
      record_norm },
    { "tile",
      "mul(tanh(transpose(x, 0, 1)), y)",
      TN_F32,
      { { 256, 512 }, { 512, 256 } },
      record_tile },
    { "random", "mul(x, rand_like(x))", TN_F32, { { 64, 48 } }, record_random },
    { "gather", "embed(cast(y, i64), x)", TN_F32, { { 100, 64 }, { 0, 32 } }, record_gather },
    { "long_row", "softmax(x, 1)", TN_BF16, { { 300, 65536 } }, record_row },
    { "row_ahead", "softmax(x, 1)", TN_F32, { { 60, 131072 } }, record_row },
    { "strip", "sin(mul_s(x, 2))", TN_F32, { { 64, 48 } }, record_strip },
};

// ---- the texts ---------------------------------------------------------------------------------

static void add_text(tni_out *o, const char *title, char *text)
{
    tni_out_line(o, "---- %s\n", title);
    tni_out_line(o, "%s", text ? text : "out of memory");
    tni_free(o->heap, text);
}

static char *emit(tni_heap *h, tni_skeleton *skeleton, const tni_dialect *d,
                  const tni_emit_item *item)
{
    tni_out o;
    tni_out_open(&o, h);
    skeleton(&o, d, item);
    return tni_out_take(&o);
}

static void add_kernel(tni_out *o, const tni_launch *l)
{
    static char   ins[1 << 16];
    tni_emit_item item   = { .kernel = l->kernel, .name = "kernel" };
    tni_simt      opencl = tni_simt_choose(
             l, &(tni_simt_limits){ .threads = 256, .shared_bytes = 32 << 10, .units = 16 });
    tni_simt cuda = tni_simt_choose(l, &recorded_chip);
    tni_kernel_print(l->kernel, ins, sizeof ins);
    tni_out_line(o, "==== %s\n", tni_kernel_kind(l->kernel));
    tni_out_line(o, "%s", ins);
    add_text(o, "C", emit(o->heap, tni_emit_c, &tni_dialect_c, &item));
    item.opts = &opencl.class;
    add_text(o, "OpenCL C", emit(o->heap, tni_emit_simt, &tni_dialect_opencl, &item));
    item.opts = &cuda.class;
    add_text(o, "CUDA C", emit(o->heap, tni_emit_simt, &tni_dialect_cuda, &item));
}

static tn_tensor *input_of(tn_ctx *cx, const golden *g, int i)
{
    const int64_t *size = g->size[i];
    if (!size[1]) return NULL;
    tn_tensor *x = size[0] ? tn_rand(cx, TN_F32, TN_SHAPE(size[0], size[1]))
                           : tn_rand(cx, TN_F32, TN_SHAPE(size[1]));
    return tn_want(tn_cast(x, g->dtype));
}

// The file of a graph, to be freed by tni_free.
static char *text_of(tni_heap *h, const golden *g)
{
    tni_out          o;
    tn_ctx          *cx  = tn_open_with((tn_open_opts){ .device = "cpu", .threads = 1 });
    const tni_plans *all = &((const tni_engine *)cx->engine)->plans;
    tn_tensor       *x = input_of(cx, g, 0), *y = input_of(cx, g, 1);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    tn_want(g->record(x, y));
    CHECK_STATUS(tn_eval(cx), TN_OK);
    tni_out_open(&o, h);
    tni_out_line(&o, "%s\n", g->graph);
    for (size_t k = 0; k < all->last->kernels; k++) add_kernel(&o, &all->last->kernel[k].launch);
    tn_close(cx);
    return tni_out_take(&o);
}

// ---- comparing ---------------------------------------------------------------------------------

// The number of the first line that differs, and its text in a.
static int first_difference(const char *a, const char *b, char *line, size_t room)
{
    int n = 1;
    while (*a && *b) {
        size_t i = strcspn(a, "\n"), j = strcspn(b, "\n");
        if (i != j || strncmp(a, b, i) != 0) break;
        a += i + (a[i] != 0);
        b += j + (b[j] != 0);
        n++;
    }
    snprintf(line, room, "%.*s", (int)strcspn(a, "\n"), a);
    return n;
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    if (!CHECK(f != NULL)) return;
    fputs(text, f);
    CHECK(fclose(f) == 0);
}

static void check_graph(const golden *g)
{
    char     path[128], line[160];
    tni_heap heap = tni_heap_default();
    char    *now  = text_of(&heap, g), *kept;
    snprintf(path, sizeof path, "test/golden/%s.txt", g->name);
    if (!CHECK(now != NULL)) return;
    if (getenv("TN_GOLDEN")) write_file(path, now);
    kept      = tree_read(path, NULL);
    bool same = kept && !strcmp(now, kept);
    int  n    = kept && !same ? first_difference(now, kept, line, sizeof line) : 0;
    test_that(same, "%s:%d: the text now is \"%s\"; if that is meant, run make golden", path, n,
              n ? line : "missing");
    tni_free(&heap, now);
    free(kept);
}

static void kernels_become_these_texts(void)
{
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) check_graph(&graphs[i]);
}

const test_case tests_golden[] = {
    TEST(kernels_become_these_texts),
    TEST_END,
};
