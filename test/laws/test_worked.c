// The worked example of docs/design.md: one small function, printed as each layer of the library
// has it. The page holds these texts between marks, and the test compares them, so that the page
// cannot fall behind the program. `build/tenon-tests --worked` prints them; `make golden` writes
// them into the page anew.
#define TN_HERE "example.c", __LINE__ - ABOVE

#include "check.h"

#include "engine/engine.h"
#include "kernel/simt.h"
#include "plan/fuse.h"
#include "recorded_kernels.h"
#include "tensor/context.h"
#include "tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon.h>

// Lines of the example count from here, as its own file would have them.
enum { ABOVE = __LINE__ };
static tn_tensor *classify(tn_tensor *x, tn_tensor *w, tn_tensor *b)
{
    tn_tensor *z = tn_linear(x, w, b);  // x (64, 32), w (16, 32), b (16)
    return tn_softmax(z, 1);            // (64, 16)
}

// What the sections print: the example as recorded, opened as a step would open it, and its plan.
typedef struct {
    tn_ctx            *cx;
    tni_graph          g;
    tni_plan          *plan;
    tni_planned_kernel kernel;  // the one kernel of the plan
} example;

// ---- calls and nodes ---------------------------------------------------------------------------

// The text of the function above, from this file.
static void write_calls(FILE *f, const example *e)
{
    tree_list l = { 0 };
    (void)e;
    tree_add(&l, "test", ".c");
    int i = 0;
    while (i < l.count && !strstr(l.path[i], "/test_worked.c")) i++;
    char *text = i < l.count ? tree_read(l.path[i], NULL) : NULL;
    char *from = text ? strstr(text, "\nstatic tn_tensor *classify") : NULL;
    char *to   = from ? strstr(from, "\n}\n") : NULL;
    if (CHECK(to != NULL)) fprintf(f, "%.*s", (int)(to + 3 - from) - 1, from + 1);
    free(text);
    tree_free(&l);
}

// "%3" of item 3; an input by the name it has in the example.
static tni_text name_of(const tni_graph *g, const tni_node *n)
{
    for (size_t i = 0; i < g->count; i++)
        if (g->item[i].n == n) return tni_text_of("%%%zu", i);
    return tni_text_of(n->rank == 1 ? "b" : n->size[0] == 64 ? "x" : "w");
}

// " %3  add         f32 (64, 16)   %1 %2   example.c:3 linear"
static void write_nodes(FILE *f, const example *e)
{
    for (size_t i = 0; i < e->g.count; i++) {
        const tni_node *n       = e->g.item[i].n;
        tni_text        sources = tni_text_of(" ");
        for (uint32_t s = 0; s < n->nsrc; s++)
            tni_text_add(&sources, "%s ", name_of(&e->g, n->src[s]).s);
        fprintf(f, "%3s  %-10s  %s %-9s %-8s %s:%d %s\n", name_of(&e->g, n).s,
                tni_op_table[n->op].name, tn_dtype_name((tn_dtype)n->dtype),
                tni_shape_text(n->rank, n->size).s, sources.s, n->site.file, n->site.line,
                n->site.op);
    }
}

// ---- decisions and units -----------------------------------------------------------------------

static const char *reason_of(const tni_decision *x, const tni_node *n)
{
    if (x->kind == TNI_AS_VIEW) return "only strides: nothing is computed";
    if (x->kind == TNI_AS_ALONE) return "no kernel is written for it: a call of the device";
    if (x->kind == TNI_AS_INLINED) return "cheap: its readers compute it";
    if (tni_op_table[n->op].class == TNI_REDUCE) return "a reduction";
    return x->in_memory ? "its value is stored" : "costly, and has several readers";
}

static void write_decisions(FILE *f, const example *e)
{
    static const char *const kinds[] = { [TNI_AS_VIEW]    = "view",
                                         [TNI_AS_INLINED] = "inlined",
                                         [TNI_AS_SEED]    = "seed",
                                         [TNI_AS_ALONE]   = "alone" };

    tni_limits limits = tni_limits_of(e->cx->engine);
    tni_fusion fusion = { .g = (tni_graph *)&e->g, .limits = &limits };
    if (!CHECK(tni_fuse(&fusion))) return;
    for (size_t i = 0; i < e->g.count; i++) {
        const tni_decision *x    = &fusion.decision[i];
        const tni_node     *n    = e->g.item[i].n;
        int32_t             unit = tni_final_unit(&fusion, x->unit);
        tni_text            in   = unit < 0 ? tni_text_of("-") : tni_text_of("unit %d", unit);
        fprintf(f, "%3s  %-10s  %-7s %-7s %s\n", name_of(&e->g, n).s, tni_op_table[n->op].name,
                kinds[x->kind], in.s, reason_of(x, n));
    }
    tni_fusion_close(&fusion);
}

// ---- the plan ----------------------------------------------------------------------------------

static void write_plan(FILE *f, const example *e)
{
    CHECK_STATUS(tn_explain_with(e->cx, f, (tn_explain_opts){ .stored = true }), TN_OK);
}

static void write_kernel(FILE *f, const example *e)
{
    static char text[1 << 14];
    tni_kernel_print(e->kernel.kernel, text, sizeof text);
    fprintf(f, "%s", text + (*text == '\n'));
}

static void write_cuda(FILE *f, const example *e)
{
    tni_out       o;
    tni_simt      shape = tni_simt_choose(&e->kernel.launch, &recorded_chip);
    tni_emit_item item  = { .kernel = e->kernel.kernel, .name = "kernel", .opts = &shape.class };
    tni_out_open(&o, &e->cx->heap);
    tni_emit_simt(&o, &tni_dialect_cuda, &item);
    char *text = tni_out_take(&o);
    if (CHECK(text != NULL)) fprintf(f, "%s", text + (*text == '\n'));
    tni_free(&e->cx->heap, text);
}

// ---- the launch --------------------------------------------------------------------------------

static void write_buffers(FILE *f, const example *e)
{
    const tni_kernel *k = e->kernel.kernel;
    for (int i = 0; i < k->nbuffer; i++) {
        int32_t  at   = e->kernel.buffer[i];
        tni_text name = name_of(&e->g, at < 0 ? e->g.input[~at].n : e->g.item[at].n);
        fprintf(f, "  b[%d]  address of %s\n", i, name.s);
    }
    fprintf(f, "  b[%d]  scratch, b[%d] state\n", k->nbuffer, k->nbuffer + 1);
}

static void write_words(FILE *f, const example *e, const tni_simt *shape)
{
    static const char *const fixed[] = { "lines", "vectors", "columns", "chunk",
                                         "parts", "scratch", "size",    "size" };

    const tni_kernel *k = e->kernel.kernel;
    tni_simt_layout   at;
    int64_t           word[TNI_MAX_WORDS];
    tni_simt_layout_of(k, &at);
    int n = tni_simt_words(&e->kernel.launch, shape, &at, word);
    for (int i = 0; i < n; i++) {
        tni_text what = tni_text_of("%s", i < 8 ? fixed[i] : "");
        for (int a = 0; a < k->naccess; a++) {
            int buffer = k->access[a].buffer;
            if (at.offset[a] == i) what = tni_text_of("offset in b[%d]", buffer);
            for (int j = 0; j <= TNI_AXES; j++)
                if (at.stride[a][j] == i) what = tni_text_of("stride %d of b[%d]", j, buffer);
        }
        fprintf(f, "  w[%d]%s %4lld  %s\n", i, i < 10 ? " " : "", (long long)word[i], what.s);
    }
}

static void write_launch(FILE *f, const example *e)
{
    tni_simt shape = tni_simt_choose(&e->kernel.launch, &recorded_chip);
    fprintf(f, "grid (%lld, %lld), block %d, %d bytes of dynamic shared memory\n",
            (long long)shape.grid[0], (long long)shape.grid[1], shape.block, shape.shared_bytes);
    write_buffers(f, e);
    write_words(f, e, &shape);
}

// ---- running again -----------------------------------------------------------------------------

// One step of the example with a batch of so many rows, in a context of its own that is asked what
// it did.
static void run_step(FILE *f, tn_ctx *cx, tn_tensor *w, tn_tensor *b, int64_t rows)
{
    tn_scope  *s = tn_begin(cx);
    tn_tensor *x = tn_rand(cx, TN_F32, TN_SHAPE(rows, 32));
    CHECK_STATUS(tn_eval_of(x), TN_OK);
    tn_want(classify(x, w, b));
    tn_stats before = tn_ctx_stats(cx);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    tn_stats after = tn_ctx_stats(cx);
    fprintf(f, "%lld rows: plans built %lld, found %lld; launches %lld\n", (long long)rows,
            (long long)(after.plans - before.plans), (long long)(after.hits - before.hits),
            (long long)(after.launches - before.launches));
    tn_end(s);
}

static void write_again(FILE *f, const example *e)
{
    (void)e;
    tn_ctx    *cx = tn_open_with((tn_open_opts){ .device = "cpu", .threads = 1 });
    tn_tensor *w  = tn_want(tn_rand(cx, TN_F32, TN_SHAPE(16, 32)));
    tn_tensor *b  = tn_want(tn_rand(cx, TN_F32, TN_SHAPE(16)));
    CHECK_STATUS(tn_eval(cx), TN_OK);
    run_step(f, cx, w, b, 64);
    run_step(f, cx, w, b, 64);
    run_step(f, cx, w, b, 48);
    run_step(f, cx, w, b, 64);
    tn_close(cx);
}

// ---- the page ----------------------------------------------------------------------------------

static const struct {
    const char *name;
    void (*write)(FILE *f, const example *e);
} sections[] = {
    { "calls", write_calls },   { "nodes", write_nodes },   { "decisions", write_decisions },
    { "plan", write_plan },     { "kernel", write_kernel }, { "cuda", write_cuda },
    { "launch", write_launch }, { "again", write_again },
};
enum { SECTIONS = sizeof sections / sizeof *sections };

// The example, recorded over inputs that are computed, and planned. False when something failed.
static bool open_example(example *e)
{
    memset(e, 0, sizeof *e);
    e->cx        = tn_open_with((tn_open_opts){ .device = "cpu", .threads = 1 });
    tn_tensor *x = tn_want(tn_rand(e->cx, TN_F32, TN_SHAPE(64, 32)));
    tn_tensor *w = tn_want(tn_rand(e->cx, TN_F32, TN_SHAPE(16, 32)));
    tn_tensor *b = tn_want(tn_rand(e->cx, TN_F32, TN_SHAPE(16)));
    if (!CHECK_STATUS(tn_eval(e->cx), TN_OK)) return false;
    tn_want(classify(x, w, b));
    return true;
}

// A section as the program prints it, to be freed. What is public has to run before the graph is
// open.
static char *text_of(example *e, int i)
{
    char  *text = NULL;
    size_t size;
    FILE  *f = open_memstream(&text, &size);
    if (!CHECK(f != NULL)) return NULL;
    bool public = sections[i].write == write_plan;
    if (!public) {
        tni_limits limits = tni_limits_of(e->cx->engine);
        CHECK(tni_graph_open(&e->g, e->cx, TNI_STEP, NULL));
        e->plan = tni_plan_build(&e->g, &limits);
        if (CHECK(e->plan && e->plan->kernels == 1)) e->kernel = e->plan->kernel[0];
    }
    sections[i].write(f, e);
    if (!public) {
        tni_plan_free(&e->cx->heap, e->plan);
        tni_graph_close(&e->g);
    }
    fclose(f);
    return text;
}

int test_worked_write(FILE *f);

int test_worked_write(FILE *f)
{
    example e;
    if (!open_example(&e)) return 1;
    for (int i = 0; i < SECTIONS; i++) {
        char *text = text_of(&e, i);
        fprintf(f, "%s---- %s\n%s", i ? "\n" : "", sections[i].name, text ? text : "");
        free(text);
    }
    tn_close(e.cx);
    return ferror(f) != 0;
}

// The lines of a section from the first that contains `first` to the next that contains `last`; all
// of it where `first` is empty.
static void write_lines(FILE *f, const char *text, const char *first, const char *last)
{
    const char *from = *first ? strstr(text, first) : text;
    const char *to   = from && *first ? strstr(from, last) : text + strlen(text);
    if (!test_that(to != NULL, "no lines from \"%s\" to \"%s\"", first, last)) return;
    while (from > text && from[-1] != '\n') from--;
    if (*first) to += strcspn(to, "\n") + 1;
    fprintf(f, "%.*s", (int)(to - from), from);
}

// Writes what a mark asks for: "cuda", or "cuda | first | last" for some of its lines.
static void write_marked(FILE *f, example *e, const char *mark)
{
    char name[32] = "", first[80] = "", last[80] = "";
    int  got = sscanf(mark, "%31[a-z] | %79[^|\n] | %79[^|\n] -->", name, first, last);
    if (got == 3) first[strlen(first) - 1] = 0;  // the blank before the bar
    char *end = strstr(last, " -->");
    if (end) *end = 0;
    for (int i = 0; i < SECTIONS; i++) {
        if (strcmp(sections[i].name, name)) continue;
        char *text = text_of(e, i);
        if (text) write_lines(f, text, got == 3 ? first : "", last);
        free(text);
        return;
    }
    test_that(false, "docs/design.md: the worked example has no section \"%s\"", name);
}

// Copies the page with the fenced block behind each mark replaced by what the mark asks for, and
// returns how many marks there are.
static int fill_page(FILE *f, example *e, const char *page)
{
    static const char mark[] = "<!-- worked: ";

    int         n = 0;
    const char *at;
    for (; (at = strstr(page, mark)) != NULL; n++) {
        const char *from = strstr(at, "-->\n```");
        const char *body = from ? strchr(from + 7, '\n') : NULL;
        const char *to   = body ? strstr(body, "\n```") : NULL;
        if (!test_that(to != NULL, "docs/design.md: no block behind %.40s", at)) break;
        fprintf(f, "%.*s\n", (int)(body - page), page);
        write_marked(f, e, at + sizeof mark - 1);
        page = to + 1;
    }
    fprintf(f, "%s", page);
    return n;
}

// The page as it should be, to be freed; NULL when something failed.
static char *expected_page(const char *page)
{
    char   *out = NULL;
    size_t  size;
    example e;
    bool    ok = open_example(&e);
    FILE   *f  = ok ? open_memstream(&out, &size) : NULL;
    if (CHECK(f != NULL)) {
        CHECK(fill_page(f, &e, page) >= SECTIONS);
        fclose(f);
    }
    tn_close(e.cx);
    return out;
}

static void the_page_shows_what_the_program_prints(void)
{
    char *page = tree_read("docs/design.md", NULL);
    char *now  = page ? expected_page(page) : NULL;
    bool  same = now && !strcmp(now, page);
    if (now && !same && getenv("TN_GOLDEN")) {
        FILE *f = fopen("docs/design.md", "w");
        if (CHECK(f != NULL)) same = fputs(now, f) >= 0 && !fclose(f);
    }
    test_that(same, "docs/design.md: the worked example prints something else; run `make golden`");
    free(page);
    free(now);
}

const test_case tests_worked[] = {
    TEST(the_page_shows_what_the_program_prints),
    TEST_END,
};
