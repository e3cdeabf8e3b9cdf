// test_splits.c: kernels that a thread's registers do not hold are cut in two. The cpu stands for a
// device on which every kernel of more than a few instructions spills; what is computed stays
// right, and a plan is cut once.
#include "check.h"

#include "device/cuda/gpu.h"
#include "engine/engine.h"
#include "faulty.h"
#include "gpu_parts.h"
#include "graph_ways.h"
#include "program.h"
#include "recorded_kernels.h"
#include "tensor/context.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tenon.h>
#include <tenon/models.h>

// ---- a device with few registers

// The cpu, interpreted, on which kernels of more than `most` instructions spill, the more the
// longer they are. asked: how often it was asked; longest: the longest kernel that ran; launched:
// how many did.
static struct {
    int                most, asked, longest, launched;
    tni_device         device;
    tni_device_kernels kernels;
} tight;

static tni_registers count_registers(void *session, void *entry, const tni_launch *l)
{
    (void)session, (void)entry;
    int over = l->kernel->nins - tight.most;
    tight.asked++;
    return (tni_registers){ .used = l->kernel->nins, .spilled = over > 0 ? over << 23 : 0 };
}

static tn_status no_entries(void *session, int n, const tni_launch *const *first, void **entry,
                            bool wait, tni_text *why)
{
    (void)session, (void)first, (void)wait, (void)why;
    for (int i = 0; i < n; i++) entry[i] = NULL;
    return TN_OK;
}

static tn_status count_launch(void *session, void *entry, tni_launch *l, tni_text *why)
{
    if (tight.longest < l->kernel->nins) tight.longest = l->kernel->nins;
    tight.launched++;
    return tni_device_cpu.kernels->launch(session, entry, l, why);
}

// most: 0: nothing spills.
static void tighten(tn_ctx *cx, int most)
{
    tight.most                          = most ? most : TNI_MAX_INS;
    tight.asked                         = 0;
    tight.longest                       = 0;
    tight.launched                      = 0;
    tight.device                        = tni_device_cpu;
    tight.kernels                       = *tni_device_cpu.kernels;
    tight.device.kernels                = &tight.kernels;
    tight.kernels.compile_on_second_run = false;
    tight.kernels.prepare               = no_entries;
    tight.kernels.launch                = count_launch;
    tight.kernels.registers             = count_registers;
    tni_engine_set(cx->engine, &tight.device);
}

static void hush(tn_ctx *cx, const tn_fault *f, void *user)
{
    (void)cx, (void)f, (void)user;
}

static tn_ctx *open_tight(int most)
{
    tn_ctx *cx = tn_open_with((tn_open_opts){ .device = "cpu", .handler = hush });
    if (cx) tighten(cx, most);
    return cx;
}

// ---- values

enum { ROWS = 24, COLS = 40, COUNT = ROWS * COLS };

static tn_tensor *values(tn_ctx *cx)
{
    float v[COUNT];
    for (int i = 0; i < COUNT; i++) v[i] = (float)((i * 37) % 101) / 50 - 1;
    return tn_keep(tn_from(cx, TN_F32, TN_SHAPE(ROWS, COLS), v));
}

static tn_tensor *chain(tn_tensor *x)
{
    tn_tensor *y = x;
    for (int i = 0; i < 80; i++) y = i % 2 ? tn_sin(y) : tn_add(tn_mul_s(y, 0.75), x);
    return y;
}

// Two sides that share nothing but what they read.
static tn_tensor *branches(tn_tensor *x)
{
    tn_tensor *a = x, *b = tn_neg(x);
    for (int i = 0; i < 20; i++) {
        a = tn_tanh(tn_add_s(a, 0.125));
        b = tn_cos(tn_mul(b, x));
    }
    return tn_mul(a, b);
}

// Three values that become one.
static tn_tensor *waist(tn_tensor *x)
{
    tn_tensor *y[3] = { tn_exp(x), tn_sin(x), tn_cos(x) };
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 3; k++) y[k] = tn_tanh(tn_add(y[k], x));
    tn_tensor *z = tn_add(tn_add(y[0], y[1]), y[2]);
    for (int i = 0; i < 10; i++) z = tn_sin(tn_mul_s(z, 1.5));
    return z;
}

// Rows, and a cheap value that is there for each row alone.
static tn_tensor *rows(tn_tensor *x)
{
    tn_tensor *e = tn_exp(tn_sub(x, tn_max_keep(x, 1)));
    tn_tensor *y = tn_div(e, tn_sum_keep(e, 1));
    for (int i = 0; i < 10; i++) y = tn_sin(tn_add(y, x));
    return y;
}

static tn_tensor *turned(tn_tensor *x)
{
    tn_tensor *y = tn_tanh(tn_mul_s(x, 2));
    for (int i = 0; i < 6; i++) y = tn_add(tn_exp(tn_neg(y)), x);
    tn_tensor *z = tn_transpose(tn_contiguous(tn_transpose(y, 0, 1)), 0, 1);
    for (int i = 0; i < 6; i++) z = tn_sin(tn_add(z, y));
    return z;
}

typedef tn_tensor *function(tn_tensor *x);

static const struct {
    const char *name;
    function   *f;
} functions[] = { { "chain", chain },
                  { "branches", branches },
                  { "waist", waist },
                  { "rows", rows },
                  { "turned", turned } };

enum { FUNCTIONS = sizeof functions / sizeof *functions };

// As a step, which stores the result alone. The n-th allocation of its evaluation fails.
static tn_status compute_faulty(tn_ctx *cx, function *f, float *to, faulty *h, long n)
{
    tn_tensor *x = values(cx);
    tn_scope  *s = tn_begin(cx);
    tn_tensor *y = f(x);
    tn_want(y);
    h->countdown     = n;
    tn_status status = tn_eval(cx);
    h->countdown     = 0;
    if (status == TN_OK) status = tn_read(y, TN_F32, to, COUNT);
    tn_end(s);
    tn_drop(x);
    return status;
}

static tn_status compute(tn_ctx *cx, function *f, float *to)
{
    faulty none = { 0 };
    return compute_faulty(cx, f, to, &none, 0);
}

// ---- what is cut

static void kernels_that_spill_are_cut_and_give_the_same_bits(void)
{
    static const int limits[] = { 60, 30, 12 };

    for (int i = 0; i < FUNCTIONS; i++) {
        float   want[COUNT], have[COUNT];
        tn_ctx *cx = open_tight(0);
        CHECK_STATUS(compute(cx, functions[i].f, want), TN_OK);
        int whole = tight.launched, longest = tight.longest;
        tn_close(cx);
        for (int k = 0; k < 3; k++) {
            cx = open_tight(limits[k]);
            CHECK_STATUS(compute(cx, functions[i].f, have), TN_OK);
            bool cut = longest <= limits[k] ? tight.launched == whole
                                            : tight.launched > whole && tight.longest < longest;
            test_case_result(cut && !memcmp(want, have, sizeof want),
                             "%s, %d at most: %d kernels of %d at most, first %d of %d",
                             functions[i].name, limits[k], tight.launched, tight.longest, whole,
                             longest);
            test_case_result(tight.longest <= limits[k] + 4, "%s, %d at most: %d",
                             functions[i].name, limits[k], tight.longest);
            tn_close(cx);
        }
    }
}

// A cut near the middle where one value is all that goes on: nothing else is stored.
static void a_cut_goes_where_little_is_stored(void)
{
    float   have[COUNT];
    tn_ctx *cx = open_tight(36);
    CHECK_STATUS(compute(cx, waist, have), TN_OK);
    CHECK_INT(tight.launched, 2);
    CHECK_INT((int)tn_ctx_stats(cx).planned, COUNT * (int)sizeof(float));
    tn_close(cx);
}

// What no cut makes better runs as it is: one op of many instructions, and a spill of nothing much.
static void what_cannot_be_cut_runs_as_it_is(void)
{
    tn_ctx    *cx = open_tight(1);
    tn_tensor *x  = values(cx);
    CHECK_STATUS(tn_eval_of(tn_exp(x)), TN_OK);
    CHECK_INT(tight.launched, 1);
    tn_close(cx);
}

// ---- once

static void a_plan_is_cut_once(void)
{
    float   want[COUNT], have[COUNT];
    tn_ctx *cx = open_tight(20);
    CHECK_STATUS(compute(cx, chain, want), TN_OK);
    int64_t plans = tn_ctx_stats(cx).plans;
    int     asked = tight.asked, launched = tight.launched;
    CHECK(plans > 1);
    for (int i = 0; i < 3; i++) {
        tight.launched = 0;
        CHECK_STATUS(compute(cx, chain, have), TN_OK);
        CHECK(!memcmp(want, have, sizeof want));
        CHECK_INT(tight.launched, launched);
    }
    CHECK_INT((int)tn_ctx_stats(cx).plans, (int)plans);
    CHECK_INT(tight.asked, asked);
    tn_close(cx);
}

// The memory that a step will take is that of the plan that runs.
static void memory_is_told_of_the_plan_that_runs(void)
{
    tn_ctx *cx = open_tight(20);
    tn_want(chain(values(cx)));
    tn_plan_memory m     = tn_ctx_plan_memory(cx);
    int64_t        plans = tn_ctx_stats(cx).plans;
    CHECK_STATUS(tn_eval(cx), TN_OK);
    CHECK_INT((int)tn_ctx_stats(cx).plans, (int)plans);
    CHECK_INT((int)tn_ctx_stats(cx).peak, (int)m.peak);
    tn_close(cx);
}

// What is explained is what runs: as one kernel before, and cut afterwards.
static void the_plan_that_runs_is_explained(void)
{
    char       page[1 << 12];
    float      have[COUNT];
    tn_ctx    *cx = open_tight(36);
    tn_tensor *x  = values(cx);
    for (int i = 0; i < 2; i++) {
        tn_scope *s = tn_begin(cx);
        FILE     *f = fmemopen(page, sizeof page, "w");
        tn_want(waist(x));
        CHECK_STATUS(tn_explain(cx, f), TN_OK);
        fclose(f);
        CHECK(!strncmp(page, i ? "2 kernels" : "1 kernel,", 9));
        CHECK_STATUS(tn_eval(cx), TN_OK);
        tn_end(s);
    }
    CHECK_STATUS(compute(cx, waist, have), TN_OK);
    tn_close(cx);
}

// ---- training

enum { STEPS = 4, WEIGHTS = 64 * 16 };

// Losses, and the plans of the last step.
static int train(tn_ctx *cx, double *loss)
{
    tn_seed(cx, 5);
    tn_layer *net    = tn_mlp(cx, TN_SHAPE(64, 16, 10));
    tn_optim *opt    = tn_adamw(net, (tn_adamw_opts){ .lr = 1e-2f, .clip_norm = 1 });
    int64_t   before = 0;
    for (int i = 0; i < STEPS; i++) {
        tn_scope  *s = tn_begin(cx);
        tn_tensor *x = tn_rand(cx, TN_F32, TN_SHAPE(32, 64));
        tn_tensor *y = tn_cast(tn_mul_s(tn_select(x, 1, 0), 9.99), TN_I64);
        tn_tensor *l = tn_cross_entropy(tn_forward(net, x), y);
        before       = tn_ctx_stats(cx).plans;
        CHECK_STATUS(tn_step(opt, l), TN_OK);
        loss[i] = tn_item(l);
        tn_end(s);
    }
    return (int)(tn_ctx_stats(cx).plans - before);
}

static void training_is_the_same_with_few_registers(void)
{
    static const int limits[] = { 40, 15, 6 };

    double  want[STEPS], have[STEPS];
    tn_ctx *cx = open_tight(0);
    train(cx, want);
    int whole = tight.launched;
    tn_close(cx);
    for (int k = 0; k < 3; k++) {
        cx        = open_tight(limits[k]);
        int plans = train(cx, have);
        CHECK(tight.launched > whole);
        CHECK_INT(plans, 0);
        for (int i = 0; i < STEPS; i++) CHECK_NEAR(have[i], want[i], 1e-5);
        tn_close(cx);
    }
}

// ---- compilers

enum { SUMS_ROWS = 2048, SUMS_COLS = 1024, SUMS = 16 };

// Columns added up, of so many functions that threads run out of registers.
static void want_sums(tn_tensor *x, tn_tensor **y)
{
    for (int i = 0; i < SUMS; i++) {
        tn_tensor *v = tn_mul_s(x, 0.01 * i);
        for (int j = 0; j < 2; j++) v = tn_mul(tn_add_s(tn_mul(v, v), 0.3), x);
        tn_want(y[i] = tn_sum(v, 0));
    }
}

// A device that compiles as those with work groups do, and is the cpu else. spill: what each
// program spills, by the order they are built in; the last is that of all that follow.
static struct {
    tni_compiled       *compiled, *before[8];  // they live as long as the process
    int                 makes;
    tni_compiled_counts counts;
    int                 built, spill[4];
} maker;

static void *fake_build(void *device, const char *source, const char *what, tni_build_kind how,
                        bool *found, tn_status *s, tni_text *why)
{
    (void)how, (void)device, (void)source, (void)what, (void)why;
    int i  = maker.built++;
    *found = false;
    *s     = TN_OK;
    return &maker.spill[i < 3 ? i : 3];
}

static tn_status fake_function(void *device, void *of, const char *name, void **f, tni_text *why)
{
    (void)device, (void)name, (void)why;
    *f = of;
    return TN_OK;
}

static tni_registers fake_registers(void *device, void *f)
{
    (void)device;
    return (tni_registers){ .used = 128, .spilled = *(int *)f };
}

// For an H200, whose compiler says what is taken.
static void *chip_build(void *device, const char *source, const char *what, tni_build_kind how,
                        bool *found, tn_status *s, tni_text *why)
{
    (void)how, (void)device, (void)what;
    tni_cubin *c = calloc(1, sizeof *c);
    *found       = false;
    *s           = c ? tni_cubin_compile(c, source, "sm_90", true, why) : TN_EMEM;
    maker.built++;
    return *s == TN_OK ? c : NULL;
}

typedef struct {
    const tni_cubin *in;
    char             name[TNI_KERNEL_NAME + 8];
} chip_kernel;

static tn_status chip_function(void *device, void *of, const char *name, void **f, tni_text *why)
{
    (void)device, (void)why;
    chip_kernel *k = calloc(1, sizeof *k);
    if (!k) return TN_EMEM;
    k->in = of;
    snprintf(k->name, sizeof k->name, "%s", name);
    *f = k;
    return TN_OK;
}

static tni_registers chip_registers(void *device, void *f)
{
    (void)device;
    const chip_kernel *k = f;
    tni_usage          u = { 0 };
    CHECK(tni_cubin_usage(k->in, k->name, &u));
    return (tni_registers){ .used = u.registers, .spilled = u.stack };
}

static const tni_compiler fake = { &tni_dialect_cuda, fake_build, fake_function, fake_registers };
static const tni_compiler chip = { &tni_dialect_cuda, chip_build, chip_function, chip_registers };

static tn_status make_entries(void *session, int n, const tni_launch *const *first, void **entry,
                              bool wait, tni_text *why)
{
    (void)session, (void)wait;
    return tni_compiled_prepare(maker.compiled, n, first, entry, true, why);
}

static tni_registers made_registers(void *session, void *entry, const tni_launch *l)
{
    (void)session;
    return tni_compiled_registers(maker.compiled, entry, l);
}

static tn_status launch_anyway(void *session, void *entry, tni_launch *l, tni_text *why)
{
    (void)entry;
    return count_launch(session, NULL, l, why);
}

static size_t room_for(void *session, void *entry, const tni_launch *l)
{
    (void)entry;
    return tni_device_cpu.kernels->scratch(session, NULL, l);
}

// The most that a kernel of the plans that are kept takes.
static tni_registers most_registers(tn_ctx *cx)
{
    const tni_engine *e    = cx->engine;
    tni_registers     most = { 0 };
    for (int i = 0; i < e->plans.count; i++) {
        const tni_plan *p = e->plans.plan[i];
        for (size_t j = 0; j < p->kernels; j++) {
            tni_registers r = e->device->kernels->registers(e->session, p->kernel[j].entry,
                                                            &p->kernel[j].launch);
            if (most.used < r.used) most.used = r.used;
            if (most.spilled < r.spilled) most.spilled = r.spilled;
        }
    }
    return most;
}

// Plans and kernels of the sums, where a compiler says what they take.
static tni_registers run_sums(const tni_compiler *by, int *plans, int *kernels)
{
    tni_registers     most;
    tni_compiled_opts o  = { by, NULL, recorded_chip, 256, false, &maker.counts, "test" };
    tn_ctx           *cx = open_tight(0);
    maker.built          = 0;
    maker.compiled       = tni_compiled_new(&o);
    if (maker.makes < 8) maker.before[maker.makes++] = maker.compiled;
    tight.kernels.prepare   = make_entries;
    tight.kernels.launch    = launch_anyway;
    tight.kernels.scratch   = room_for;
    tight.kernels.registers = made_registers;
    static const uint16_t zeros[SUMS_ROWS * SUMS_COLS];  // from outside: no kernel makes them
    tn_tensor            *x = tn_from(cx, TN_BF16, TN_SHAPE(SUMS_ROWS, SUMS_COLS), zeros), *y[SUMS];
    tn_keep(x);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    *plans         = (int)tn_ctx_stats(cx).plans;
    tight.launched = 0;
    tn_scope *s    = tn_begin(cx);
    want_sums(x, y);
    test_that(tn_eval(cx) == TN_OK, "%s", tn_error_text(cx));
    tn_end(s);
    *plans   = (int)tn_ctx_stats(cx).plans - *plans;
    *kernels = tight.launched;
    most     = most_registers(cx);
    tn_close(cx);
    return most;
}

static void a_kernel_that_spills_is_tried_with_less_in_hand_first(void)
{
    int plans, whole, kernels;
    memcpy(maker.spill, (int[4]){ 0, 0, 0, 0 }, sizeof maker.spill);
    run_sums(&fake, &plans, &whole);
    CHECK_INT(maker.built, 1);
    memcpy(maker.spill, (int[4]){ 400, 0, 0, 0 }, sizeof maker.spill);
    CHECK_INT(run_sums(&fake, &plans, &kernels).spilled, 0);
    CHECK_INT(maker.built, 2);
    CHECK_INT(plans, 1);
    CHECK_INT(kernels, whole);
    memcpy(maker.spill, (int[4]){ 400, 400, 0, 0 }, sizeof maker.spill);
    run_sums(&fake, &plans, &kernels);
    CHECK_INT(maker.built, 3);
    CHECK_INT(plans, 2);
    CHECK(kernels > whole);
}

static void little_spills_on_an_h200_in_the_end(void)
{
    tni_text why = { "" };
    int      plans, kernels;
    if (!tni_nvrtc_get(&why)) SKIP("%s", why.s);
    tni_registers most = run_sums(&chip, &plans, &kernels);
    test_that(most.used > 0 && most.used <= 255 && most.spilled <= 16,
              "%d kernels, %d plans, %d programs: %d registers, %d bytes spilled", kernels, plans,
              maker.built, most.used, most.spilled);
}

// ---- on a GPU

static void read_sums(tn_ctx *cx, tn_dtype dt, double *to)
{
    tn_seed(cx, 3);
    tn_tensor *x = tn_keep(tn_rand(cx, dt, TN_SHAPE(SUMS_ROWS, SUMS_COLS))), *y[SUMS];
    tn_eval(cx);
    tn_scope *s = tn_begin(cx);
    want_sums(x, y);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    for (int i = 0; i < SUMS; i++)
        CHECK_STATUS(tn_read(y[i], TN_F64, to + i * SUMS_COLS, SUMS_COLS), TN_OK);
    tn_end(s);
}

static bool is_near(const double *a, const double *b, int n, double by)
{
    for (int i = 0; i < n; i++)
        if (!(fabs(a[i] - b[i]) <= by * (1 + fabs(b[i])))) return false;
    return true;
}

static void compare_with_ref(tn_ctx *cx, tn_ctx *ref)
{
    static double have[SUMS * SUMS_COLS], want[SUMS * SUMS_COLS];

    for (int k = 0; k < 2; k++) {
        tn_dtype dt = k ? TN_BF16 : TN_F64;
        read_sums(cx, dt, have);
        read_sums(ref, dt, want);
        test_case_result(is_near(have, want, SUMS * SUMS_COLS, k ? 0x1p-7 : 1e-9), "sums of %s",
                         tn_dtype_name(dt));
    }
    for (int i = 0; i < FUNCTIONS; i++) {
        float x[COUNT], y[COUNT];
        bool  near = compute(cx, functions[i].f, x) == TN_OK &&
                    compute(ref, functions[i].f, y) == TN_OK;
        for (int k = 0; near && k < COUNT; k++) near = fabsf(x[k] - y[k]) <= 1e-4f;
        test_case_result(near, "%s", functions[i].name);
    }
}

static void run_large(int part, int parts)
{
    (void)part, (void)parts;
    tn_ctx *cx = open_seeded(tested_device(), 1), *ref = open_seeded("ref", 1);
    compare_with_ref(cx, ref);
    if (cx->engine->device->kernels->registers) {
        tni_registers most = most_registers(cx);
        test_that(most.used > 0 && most.used <= 255, "%d registers, %d bytes spilled", most.used,
                  most.spilled);
    }
    tn_close(cx);
    tn_close(ref);
}

static void large_kernels_on_a_gpu_agree_with_ref_and_their_registers_are_known(void)
{
    in_parts(run_large, 1);
}

// ---- random graphs and programs

static const graph_way few = { "cpu with few registers", "cpu", "TN_CC", "none" };

static void random_graphs_agree_with_ref_when_cut(void)
{
    static const int limits[] = { 2, 5, 10, 20 };

    for (int k = 0; k < 4; k++) {
        tn_ctx *cx = graph_way_open(&few);
        tighten(cx, limits[k]);
        graph_way_run_in(&few, cx, 400001 + 1000 * (uint64_t)k, 600);
    }
}

static void open_very_tight(tn_ctx *cx)
{
    tighten(cx, 2);
}

static void random_programs_agree_with_the_oracle_when_cut(void)
{
    program     p;
    const char *many = getenv("TN_PROGRAMS");
    int         n    = many ? atoi(many) : TN_SANITIZE[0] ? 100 : 2000;
    for (int i = 0; i < n; i++) {
        char text[512];
        prg_generate(&p, 2000001 + (uint64_t)i, "cpu");
        p.opened = open_very_tight;
        bool ok  = prg_agrees(&p, NULL, text);
        test_case_result(ok, "program %llu: %s", (unsigned long long)p.seed, text);
    }
}

// ---- no memory

// Every allocation of a run fails once. A failure while kernels are cut is no error.
static void no_memory_while_cutting_is_no_error(void)
{
    float want[COUNT];
    int   unheard = 0;
    for (long n = 0; n < 100000; n++) {
        faulty  h = { 0 };
        float   have[COUNT];
        tn_ctx *cx = faulty_open("cpu", &h);
        if (!CHECK(cx != NULL)) return;
        tighten(cx, 20);
        cx->heap.keeps = false;
        tn_status s    = compute_faulty(cx, chain, n ? have : want, &h, n);
        bool      hit  = h.failed > 0;
        unheard += hit && s == TN_OK;
        bool ok = s == TN_OK ? tn_error(cx) == TN_OK && (!n || !memcmp(want, have, sizeof want))
                             : s == TN_EMEM && tn_error(cx) == TN_EMEM;
        tn_error_clear(cx);
        ok = ok && compute(cx, chain, have) == TN_OK && !memcmp(want, have, sizeof want);
        tn_close(cx);
        ok = ok && !faulty_left(&h);
        if (!ok || n == 0) test_case_result(ok, "allocation %ld: %s", n, tn_status_name(s));
        if (n && !hit) break;
    }
    CHECK(unheard > 20);
}

const test_case tests_splits[] = {
    TEST(kernels_that_spill_are_cut_and_give_the_same_bits),
    TEST(a_cut_goes_where_little_is_stored),
    TEST(what_cannot_be_cut_runs_as_it_is),
    TEST(a_plan_is_cut_once),
    TEST(the_plan_that_runs_is_explained),
    TEST(memory_is_told_of_the_plan_that_runs),
    TEST(training_is_the_same_with_few_registers),
    TEST(a_kernel_that_spills_is_tried_with_less_in_hand_first),
    TEST(little_spills_on_an_h200_in_the_end),
    TEST(large_kernels_on_a_gpu_agree_with_ref_and_their_registers_are_known),
    TEST(random_graphs_agree_with_ref_when_cut),
    TEST(random_programs_agree_with_the_oracle_when_cut),
    TEST(no_memory_while_cutting_is_no_error),
    TEST_END,
};
