// test_background.c: work in the background, and kernels that are compiled there.
#include "check.h"
#include "kernel_kit.h"

#include "base/background.h"
#include "device/cuda/cubin.h"
#include "device/cuda/driver.h"
#include "device/simt/compiled.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// ---- tasks -------------------------------------------------------------------------------------

static atomic_int done;

static void count(void *arg)
{
    (void)arg;
    atomic_fetch_add(&done, 1);
}

static void wait_until(atomic_int *what, int n)
{
    for (int i = 0; i < 5000 && atomic_load(what) < n; i++) usleep(1000);
}

static void every_task_is_done_once(void)
{
    enum { TASKS = 100 };
    done = 0;
    for (int i = 0; i < TASKS; i++)
        CHECK(tni_background(count, NULL, (tni_task_kind)(i % TNI_TASK_KINDS)));
    wait_until(&done, TASKS);
    usleep(1000);
    CHECK_INT(atomic_load(&done), TASKS);
}

static void take_place(void *arg)
{
    *(int *)arg = atomic_fetch_add(&done, 1);
    usleep(100);
}

// As given within a kind, but for the threads (16 at most) that begin at once.
static void tasks_begin_in_order_by_their_kinds(void)
{
    enum { TASKS = 120, THREADS = 16 };
    static int place[TNI_TASK_KINDS][TASKS];
    done = 0;
    tni_background_need(true);
    tni_background_need(false);
    for (int i = 0; i < TASKS; i++)
        for (int kind = TNI_TASK_KINDS - 1; kind >= 0; kind--)
            CHECK(tni_background(take_place, &place[kind][i], (tni_task_kind)kind));
    tni_background_need(true);
    wait_until(&done, TNI_TASK_KINDS * TASKS);
    for (int i = 0; i < TASKS; i++)
        for (int kind = 0; kind < TNI_TASK_KINDS; kind++)
            CHECK(abs(place[kind][i] - kind * TASKS - i) <= THREADS);
    tni_background_need(false);
}

static void dawdle(void *arg)
{
    usleep(50000);
    atomic_fetch_add((atomic_int *)arg, 1);
}

static void after_the_last_who_needs_them_no_task_is_done(void)
{
    enum { TASKS = 40 };
    static atomic_int slow;
    tni_background_need(true);
    for (int i = 0; i < TASKS; i++) CHECK(tni_background(dawdle, &slow, TNI_TASK_IN_TURN));
    usleep(20000);
    tni_background_need(false);
    int before = atomic_load(&slow);
    CHECK(before > 0 && before < TASKS);
    usleep(120000);
    CHECK_INT(atomic_load(&slow), before);
    tni_background_need(true);
    wait_until(&slow, TASKS);
    CHECK_INT(atomic_load(&slow), TASKS);
}

static void the_child_of_a_fork_has_a_background_of_its_own(void)
{
    if (strstr(TN_SANITIZE, "thread")) SKIP("its sanitizer does not take threads after a fork");
    done = 0;
    CHECK(tni_background(count, NULL, TNI_TASK_IN_TURN));
    wait_until(&done, 1);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        bool ok = tni_background(count, NULL, TNI_TASK_IN_TURN);
        wait_until(&done, 2);
        exit(ok && atomic_load(&done) == 2 ? 0 : 1);
    }
    int status = 1;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
}

// ---- the end of the process --------------------------------------------------------------------

static void compile_interpreter(void *arg)
{
    tni_heap              heap  = tni_heap_default();
    tni_interpreter_level level = (tni_interpreter_level)(intptr_t)arg;
    tni_emit_item         item  = { .opts = &level };
    tni_text              why   = { "" };
    bool                  found;
    tni_cubin             c;
    char *text = tni_emit_program(&heap, &tni_dialect_cuda, tni_emit_interpreter, 1, &item,
                                  level < 2);
    tni_cubin_get(&c, text, "sm_90", true, &found, &why);
    tni_cubin_free(&c);
    tni_free(&heap, text);
}

// A compiler takes down at exit what its threads are in: who no longer needs them waits for them.
static void a_process_may_end_while_its_kernels_are_compiled(void)
{
    tni_text why = { "" };
    if (!tni_nvrtc_get(&why)) SKIP("%s", why.s);
    setenv("TN_CACHE_DIR", "none", 1);
    setenv("CUDA_CACHE_DISABLE", "1", 1);
    for (int ms = 1; ms <= 600; ms = 2 * ms + 20) {
        fflush(NULL);
        pid_t pid = fork();
        if (pid == 0) {
            tni_background_need(true);
            for (int i = 0; i < TNI_INTERPRETERS; i++)
                tni_background(compile_interpreter, (void *)(intptr_t)i, TNI_TASK_IN_TURN);
            usleep(1000 * (useconds_t)ms);
            tni_background_need(false);
            exit(0);
        }
        int status = 1;
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
        CHECK_INT(status, 0);
    }
}

// ---- kernels -----------------------------------------------------------------------------------

// A compiler that waits until it may go on, and finds nothing on disk. `fails`: texts that it
// refuses.
static struct {
    atomic_int  built, looked;
    atomic_bool goes, fails, spills;
} maker;

static void *slow_build(void *device, const char *source, const char *what, tni_build_kind how,
                        bool *found, tn_status *s, tni_text *why)
{
    (void)device, (void)source, (void)what;
    *found = false;
    *s     = TN_OK;
    if (how == TNI_BUILD_FROM_DISK) {
        atomic_fetch_add(&maker.looked, 1);
        return NULL;
    }
    for (int i = 0; i < 5000 && !maker.goes; i++) usleep(1000);
    atomic_fetch_add(&maker.built, 1);
    if (maker.fails) {
        *s = TN_EDEVICE;
        tni_text_add(why, "refused");
        return NULL;
    }
    return &maker;
}

static tn_status any_function(void *device, void *of, const char *name, void **f, tni_text *why)
{
    (void)device, (void)name, (void)why;
    *f = of;
    return TN_OK;
}

// The first kernel of a table takes more registers than there are, if that is asked for.
static tni_registers some_registers(void *device, void *f)
{
    (void)device, (void)f;
    return (tni_registers){ .spilled = maker.spills && atomic_load(&maker.built) == 1 ? 64 : 0 };
}

static const tni_compiler compiler = { &tni_dialect_cuda, slow_build, any_function,
                                       some_registers };

// A table lives as long as the process, and so does what leads to it.
static tni_compiled *keep(tni_compiled *t)
{
    enum { TABLES = 8 };
    static tni_compiled *kept[TABLES];
    static int           n;
    CHECK(n < TABLES);
    return n < TABLES ? kept[n++] = t : t;
}

static tni_compiled *new_table(void)
{
    static tni_compiled_counts counts;
    tni_simt_limits            limits = {
                   .threads = 256, .shared_bytes = 32768, .units = 2, .features = TNI_GPU_ALL
    };
    tni_compiled_opts o = { &compiler, NULL, limits, 1, true, &counts, "test" };
    maker.built = maker.looked = 0;
    maker.goes = maker.fails = maker.spills = false;
    return keep(tni_compiled_new(&o));
}

// A sum over rows, or over columns, whose shape with few registers is another.
static void make_sum(kit_case *c, bool over_p)
{
    kit_begin(c, 1, (int64_t[]){ 8 }, 1, (int64_t[]){ 64 }, true);
    int x = kit_load(c, kit_input(c, TN_F32, TNI_PER_ELEM));
    kit_store(c, kit_output(c, TN_F32, over_p ? TNI_PER_COL : TNI_PER_ROW),
              kit_reduce(c, TNI_sum, x, over_p));
    CHECK(tni_kernel_seal(&c->k));
}

// A table, and a kernel that it was given to prepare.
typedef struct {
    kit_case     *c;
    tni_compiled *t;
    void         *entry;
    tni_simt      shape;
    tn_status     s;
    tni_text      why;
} prepared;

static void prepare_sum_of(prepared *p, bool over_p, bool goes, bool fails)
{
    *p          = (prepared){ .c = calloc(1, sizeof *p->c), .t = new_table() };
    maker.goes  = goes;
    maker.fails = fails;
    make_sum(p->c, over_p);
    const tni_launch *first = &p->c->l;
    CHECK_STATUS(tni_compiled_prepare(p->t, 1, &first, &p->entry, false, &p->why), TN_OK);
}

static void prepare_sum(prepared *p, bool goes, bool fails)
{
    prepare_sum_of(p, false, goes, fails);
}

static const tni_variant *take(prepared *p, bool wait)
{
    return tni_compiled_variant(p->t, p->entry, &p->c->l, false, wait, &p->shape, &p->s, &p->why);
}

static bool is_ready(const prepared *p)
{
    return tni_compiled_ready(p->t, p->entry, &p->c->l);
}

static void wait_ready(const prepared *p)
{
    for (int i = 0; i < 5000 && !is_ready(p); i++) usleep(1000);
}

// It was compiled once.
static void done_with(prepared *p)
{
    CHECK_INT(atomic_load(&maker.built), 1);
    kit_free(p->c);
    free(p->c);
}

static void a_kernel_that_is_not_compiled_yet_is_not_waited_for(void)
{
    prepared p;
    prepare_sum(&p, false, false);
    CHECK_INT(atomic_load(&maker.looked), 1);
    CHECK(!is_ready(&p));
    CHECK(take(&p, false) == NULL && p.s == TN_OK);
    maker.goes = true;
    wait_ready(&p);
    CHECK(take(&p, false) != NULL);
    done_with(&p);
}

static void who_needs_a_kernel_waits_for_it_and_it_is_compiled_once(void)
{
    prepared p;
    prepare_sum(&p, true, false);
    const tni_launch *first = &p.c->l;
    CHECK(take(&p, true) != NULL);
    CHECK_STATUS(tni_compiled_prepare(p.t, 1, &first, &p.entry, true, &p.why), TN_OK);
    done_with(&p);
}

static void a_kernel_that_does_not_compile_is_tried_once_and_told_to_who_waits(void)
{
    prepared p;
    prepare_sum(&p, true, true);
    wait_ready(&p);
    CHECK(take(&p, false) == NULL && p.s == TN_OK);
    CHECK(take(&p, true) == NULL);
    CHECK_STATUS(p.s, TN_EDEVICE);
    CHECK(strstr(p.why.s, "refused"));
    done_with(&p);
}

// What forks and then has threads comes before those that have threads: the thread sanitizer wants
// it so.
static void what_spills_is_ready_once_its_lean_shape_is_compiled(void)
{
    prepared p;
    prepare_sum_of(&p, true, false, false);
    maker.spills = maker.goes = true;
    wait_ready(&p);
    CHECK_INT(atomic_load(&maker.built), 2);
    CHECK_INT(tni_compiled_registers(p.t, p.entry, &p.c->l).spilled, 0);
    CHECK(take(&p, false) != NULL);
    CHECK_INT(atomic_load(&maker.built), 2);
    kit_free(p.c);
    free(p.c);
}

// As after a GPU could not be opened: what was compiled for it had no place.
static void interpreters_that_failed_are_tried_again_when_they_are_asked_for_again(void)
{
    tni_compiled *t = new_table();
    maker.goes = maker.fails = true;
    tni_compiled_interpreters_soon(t);
    CHECK(tni_compiled_interpreter(t, TNI_INTERPRET_ALL) == NULL);
    maker.fails = false;
    CHECK(tni_compiled_interpreter(t, TNI_INTERPRET_ALL) == NULL);
    tni_compiled_interpreters_soon(t);
    CHECK(tni_compiled_interpreter(t, TNI_INTERPRET_ALL) != NULL);
}

const test_case tests_background[] = {
    TEST(a_process_may_end_while_its_kernels_are_compiled),
    TEST(every_task_is_done_once),
    TEST(tasks_begin_in_order_by_their_kinds),
    TEST(after_the_last_who_needs_them_no_task_is_done),
    TEST(the_child_of_a_fork_has_a_background_of_its_own),
    TEST(a_kernel_that_is_not_compiled_yet_is_not_waited_for),
    TEST(who_needs_a_kernel_waits_for_it_and_it_is_compiled_once),
    TEST(a_kernel_that_does_not_compile_is_tried_once_and_told_to_who_waits),
    TEST(what_spills_is_ready_once_its_lean_shape_is_compiled),
    TEST(interpreters_that_failed_are_tried_again_when_they_are_asked_for_again),
    TEST_END,
};
