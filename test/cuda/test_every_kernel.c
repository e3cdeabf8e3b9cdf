// The kernels that all other tests of this run made, compiled for an H200 by NVRTC, which needs no
// GPU: each compiles, fits into the registers and the shared memory of the chip, and spills
// nothing.
//
// There are tens of thousands. A plain run takes EACH of every file that goes through products or
// draws its kernels, evenly picked, and at most MOST of every other file; with TN_TEST_LONG set it
// takes all, which takes an hour.
#include "check.h"

#include "../../cli/cli.h"
#include "base/pool.h"
#include "device/cuda/cubin.h"
#include "device/cuda/driver.h"
#include "recorded_kernels.h"
#include "shared_names.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 32, WORKERS = 8, EACH = 3, MOST = 8 };

static const char *chip = "sm_90";

// Files that draw their kernels at random or go through products of ops, dtypes and layouts.
static const char *const large[] = { "opencl",          "composed", "expression", "programs",
                                     "simplify",        "graphs",   "layout",     "slices",
                                     "graphs_compiled", "check",    "table",      "gradients",
                                     "awkward",         "cpu",      "recompute",  "outputs" };

// What is to be compiled, taken by the workers a batch at a time.
typedef struct {
    const recorded_kernel **kernel;
    int                     count;
    atomic_int              next;
    atomic_int              registers, shared;  // the most that one has
} work;

// ---- one program -------------------------------------------------------------------------------

// The kernels of a program and what they are called in it.
typedef struct {
    int                     n;
    const recorded_kernel **kernel;
    tni_emit_item           item[BATCH];
    char                    name[BATCH][TNI_KERNEL_NAME];
} program;

static void begin_program(program *p, const recorded_kernel **kernel, int n)
{
    p->n      = n;
    p->kernel = kernel;
    for (int i = 0; i < n; i++) {
        snprintf(p->name[i], sizeof p->name[i], "k%d", i);
        p->item[i] = (tni_emit_item){ &kernel[i]->kernel, p->name[i], &kernel[i]->shape.class };
    }
}

static void note_most(atomic_int *most, int x)
{
    int now = *most;
    while (x > now && !atomic_compare_exchange_weak(most, &now, x)) continue;
}

// What a kernel takes in a shape.
typedef struct {
    int registers, finish, shared, spills;
} taken;

// Whether a kernel of a program that was compiled is as it should be. A thread has at most 255
// registers, and a multiprocessor 65536 for all threads of a group.
static bool is_right(const tni_simt *shape, const tni_cubin *c, const char *name, taken *t)
{
    char      finish[TNI_KERNEL_NAME + 8];
    tni_usage u = { 0 }, v = { 0 };
    snprintf(finish, sizeof finish, "%s_finish", name);
    bool ok = tni_cubin_usage(c, name, &u);
    if (shape->class.finish == TNI_FINISH_KERNEL) ok = ok && tni_cubin_usage(c, finish, &v);
    *t = (taken){ u.registers, v.registers, u.shared + shape->shared_bytes, u.spills + v.spills };
    return ok && !t->spills && u.registers <= 255 && u.registers * shape->block <= 65536 &&
           v.registers * shape->finish_block <= 65536 && t->shared <= recorded_chip.shared_bytes &&
           v.shared <= recorded_chip.shared_bytes;
}

static bool compile(const program *p, tni_cubin *c, tni_text *why);

// The same of the shape with few registers, which the device compiles where the other spills.
static bool is_right_with_few_registers(const recorded_kernel *k, taken *t)
{
    program   p   = { .n = 1, .kernel = &k };
    tni_text  why = { "" };
    tni_cubin c;
    snprintf(p.name[0], sizeof p.name[0], "k0");
    p.item[0] = (tni_emit_item){ &k->kernel, p.name[0], &k->few_registers.class };
    bool ok   = compile(&p, &c, &why) && is_right(&k->few_registers, &c, p.name[0], t);
    tni_cubin_free(&c);
    return ok;
}

// A case.
static void check_kernel(work *w, const recorded_kernel *k, const tni_cubin *c, const char *name)
{
    char  text[512];
    taken t;
    bool  ok = is_right(&k->shape, c, name, &t);
    if (!ok && t.spills) ok = is_right_with_few_registers(k, &t);
    if (!ok) tni_kernel_print(&k->kernel, text, sizeof text);
    test_case_result(ok,
                     "of %s: %d + %d registers for %d threads, %d bytes shared, %d spilled:\n%s",
                     k->file, t.registers, t.finish, k->shape.block, t.shared, t.spills, text);
    note_most(&w->registers, t.registers > t.finish ? t.registers : t.finish);
    note_most(&w->shared, t.shared);
}

// The text of a program as the cuda device makes it, compiled. False, with the reason, if that
// fails.
static bool compile(const program *p, tni_cubin *c, tni_text *why)
{
    tni_heap heap = tni_heap_default();
    char    *text = tni_emit_program(&heap, &tni_dialect_cuda, tni_emit_simt, p->n, p->item, false);
    bool     ok   = text && !strstr(text, "#include");
    char     it[32] = "";
    *c              = (tni_cubin){ 0 };
    if (!ok) tni_text_add(why, text ? "a header is included" : "out of memory");
    if (ok && !shared_names_used(text, it, sizeof it)) {
        tni_text_add(why, "shared memory %s is never used", it);
        ok = false;
    }
    ok = ok && tni_cubin_compile(c, text, chip, true, why) == TN_OK;
    if (ok && c->log && strstr(c->log, "warning")) {
        tni_text_add(why, "%.200s", strstr(c->log, "warning"));
        ok = false;
    }
    tni_free(&heap, text);
    return ok;
}

// Kernels as one program, or, where that does not compile, each for itself, to name the culprit.
static void check_kernels(work *w, const recorded_kernel **kernel, int n)
{
    program   p;
    tni_cubin c;
    tni_text  why = { "" };
    begin_program(&p, kernel, n);
    bool ok = compile(&p, &c, &why);
    for (int i = 0; i < n; i++) {
        char text[400];
        if (ok) check_kernel(w, kernel[i], &c, p.name[i]);
        else if (n > 1) check_kernels(w, &kernel[i], 1);
        else tni_kernel_print(&kernel[i]->kernel, text, sizeof text);
        if (!ok && n == 1) test_case_result(false, "of %s: %s\n%s", kernel[i]->file, why.s, text);
    }
    tni_cubin_free(&c);
}

// ---- all of them -------------------------------------------------------------------------------

static void *labour(void *arg)
{
    work *w = arg;
    for (int at; (at = atomic_fetch_add(&w->next, BATCH)) < w->count;)
        check_kernels(w, w->kernel + at, w->count - at < BATCH ? w->count - at : BATCH);
    return NULL;
}

static bool is_large(const char *file)
{
    for (size_t i = 0; i < sizeof large / sizeof *large; i++)
        if (!strcmp(file, large[i])) return true;
    return false;
}

static int wanted_of(const char *file, int n)
{
    int most = is_large(file) ? EACH : MOST;
    return n <= most || test_long() ? n : most;
}

// Keeps those of all n kernels that are to be compiled, of each file evenly: the same ones in every
// run.
static void pick(work *w, int n)
{
    for (int from = 0, to = 0; from < n; from = to) {
        while (to < n && w->kernel[to]->place == w->kernel[from]->place) to++;
        int64_t there = to - from, wanted = wanted_of(w->kernel[from]->file, to - from);
        for (int64_t at = 0; at < there; at++)
            if ((at + 1) * wanted / there > at * wanted / there)
                w->kernel[w->count++] = w->kernel[from + at];
    }
}

static void run_all(work *w)
{
    pthread_t thread[WORKERS];
    int       n = 0, cores = tni_threads_default(), most = cores < WORKERS ? cores : WORKERS;
    while (n < most - 1 && !pthread_create(&thread[n], NULL, labour, w)) n++;
    labour(w);
    while (n > 0) pthread_join(thread[--n], NULL);
}

static void kernels_of_all_tests_compile_for_an_h200(void)
{
    tni_text why = { "" };
    work     w   = { 0 };
    if (!tni_nvrtc_get(&why)) SKIP("%s", why.s);
    if (!recorded_can()) SKIP("this program does not see the plans of its tests");
    if (!recorded_count()) SKIP("no test before this one made a kernel");
    CHECK_INT(recorded_lost(), 0);
    w.kernel = calloc((size_t)recorded_count(), sizeof *w.kernel);
    if (!CHECK(w.kernel != NULL)) return;
    int n = recorded_list(w.kernel);
    pick(&w, n);
    run_all(&w);
    printf("kernels for %s: %d of %d compiled, at most %d registers, %d bytes shared\n", chip,
           w.count, n, (int)w.registers, (int)w.shared);
    free(w.kernel);
}

// ---- the cases of `tenon explain` --------------------------------------------------------------

// Their kernels are made by another program, so they are made here once more.
static void the_cases_of_explain_are_planned(void)
{
    const cli_case *c;
    FILE           *f    = fopen("/dev/null", "w");
    int             from = recorded_count();
    for (int i = 0; CHECK(f != NULL) && (c = cli_case_at(i)) != NULL; i++) {
        cli_kit k = { .cx = tn_open_with((tn_open_opts){ .device = "cpu" }) };
        if (!CHECK(k.cx != NULL)) break;
        c->make(&k);
        for (int s = 0; s <= c->steps; s++) {
            tn_eval(k.cx);
            c->record(&k);
        }
        CHECK_STATUS(tn_explain(k.cx, f), TN_OK);
        tn_close(k.cx);
    }
    if (f) fclose(f);
    CHECK(!recorded_can() || recorded_count() > from);
}

static void no_plan_fell_back_to_ops_one_by_one(void)
{
    if (!recorded_can())
        SKIP("this program does not see plans: the linker puts nothing before them");
    CHECK_INT(recorded_unfused(), 0);
}

const test_case tests_every_kernel[] = {
    TEST(the_cases_of_explain_are_planned),
    TEST(kernels_of_all_tests_compile_for_an_h200),
    TEST(no_plan_fell_back_to_ops_one_by_one),
    TEST_END,
};
