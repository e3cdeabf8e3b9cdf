// test_compiled.c: kernels compiled in the background: the same bits before and after, what is
// found on disk, compilers that fail, processes that fork or end meanwhile.
#include "check.h"
#include "kernel_kit.h"
#include "scratch.h"

#include "device/cpu/cpu_kernels.h"
#include "device/cpu/interpret.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { KERNELS = 4, MANY = 16, THREADS = 3 };

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// ---- the world of a test: a compiler, a cache, temporary files, all in the scratch folder

// Number n of the files of a folder whose names end so; NULL if there is none.
static const char *file_of(const char *folder, const char *end, int n)
{
    static char path[700];
    DIR        *dir = opendir(scratch_path(folder));
    *path           = 0;
    for (struct dirent *e; dir && !*path && (e = readdir(dir));) {
        size_t all = strlen(e->d_name), last = strlen(end);
        if (*e->d_name == '.' || all < last || strcmp(e->d_name + all - last, end) || n--) continue;
        snprintf(path, sizeof path, "%s/%s", scratch_path(folder), e->d_name);
    }
    if (dir) closedir(dir);
    return *path ? path : NULL;
}

static const char *file_in(const char *folder)
{
    return file_of(folder, "", 0);
}

static void empty(const char *folder)
{
    for (const char *p; (p = file_in(folder)) && unlink(p) == 0;) {}
}

// A compiler that notes in "calls" each text it is given, after what `text` does; more: options, of
// which the last is obeyed. False, skipped, if there is none.
static bool begin_with(const char *text, const char *more)
{
    char     whole[1500];
    tni_text detail = { "" };
    unsetenv("TN_CC");
    if (!tni_cpu_compiler(&detail)) {
        test_skip("there is no compiler here: %s", detail.s);
        return false;
    }
    if (!CHECK(scratch_open()) || !CHECK(mkdir(scratch_path("tmp"), 0700) == 0)) return false;
    snprintf(whole, sizeof whole,
             "#!/bin/sh\ncase \"$*\" in *-shared*-o*)\n%s\necho text >> %s;; esac\n"
             "exec cc \"$@\" %s\n",
             text, scratch_path("calls"), more);
    CHECK(scratch_write(scratch_path("mycc"), whole, strlen(whole)));
    CHECK(chmod(scratch_path("mycc"), 0700) == 0);
    setenv("TN_CC", scratch_path("mycc"), 1);
    setenv("TN_CACHE_DIR", scratch_path("cache"), 1);
    setenv("TMPDIR", scratch_path("tmp"), 1);
    return true;
}

// What matters here is not how good the code is, so that it is made in a hurry.
static bool begin(const char *text)
{
    return begin_with(text, "-O0");
}

// How many texts were compiled.
static int calls(void)
{
    size_t n    = 0;
    char  *text = scratch_read(scratch_path("calls"), &n);
    free(text);
    return (int)(n / strlen("text\n"));
}

// No temporary file is left.
static void end(void)
{
    empty("cache");
    rmdir(scratch_path("cache"));
    test_that(rmdir(scratch_path("tmp")) == 0, "%s is left", file_in("tmp"));
    scratch_close();
    unsetenv("TN_CC");
    unsetenv("TN_CACHE_DIR");
    unsetenv("TMPDIR");
    unsetenv("TN_COMPILE");
}

// Runs a function in a process of its own, which has no kernels yet; its checks are counted here.
static pid_t start(void (*f)(int), int arg)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid != 0) return pid;
    alarm(300);
    f(arg);
    fflush(NULL);
    _exit(0);
}

static void finish(pid_t pid)
{
    int status = -1;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
}

static void in_child(void (*f)(int), int arg)
{
    finish(start(f, arg));
}

// ---- kernels

static kit_case *kit_of(uint64_t seed)
{
    kit_case *c = calloc(1, sizeof *c);
    if (!CHECK(c && kit_random_case(c, seed, KIT_SMALL))) exit(3);
    c->l.threads = THREADS;
    return c;
}

static void drop(kit_case *c)
{
    kit_free(c);
    free(c);
}

// Gives a launch scratch of its size, and runs it by its entry, or by the interpreter.
static tn_status run(kit_case *c, void *entry)
{
    tni_text  why    = { "" };
    size_t    bytes  = entry ? tni_cpu_scratch(NULL, entry, &c->l) : tni_interpret_scratch(&c->l);
    tn_status status = TN_OK;
    kit_reset(c);
    c->l.scratch = aligned_alloc(64, (bytes + 127) / 64 * 64);
    memset(c->l.scratch, 0xa5, bytes);
    if (entry) status = tni_cpu_launch(NULL, entry, &c->l, &why);
    else tni_interpret(&c->l);
    free(c->l.scratch);
    c->l.scratch = NULL;
    if (entry) CHECK_INT(status, c->l.fail[0] ? TN_EARG : TN_OK);
    if (entry) CHECK_INT(why.s[0] != 0, status != TN_OK);
    return status;
}

static bool is_compiled(void *entry)
{
    return atomic_load(&((tni_cpu_code *)entry)->run) != NULL;
}

// So many random kernels, from a seed on, prepared together.
typedef struct {
    int       count;
    kit_case *kit[MANY], *plain[MANY];  // plain: run by the interpreter, to compare with
    void     *entry[MANY];
} batch;

static void prepare(batch *b, uint64_t seed, int count)
{
    const tni_launch *first[MANY];
    tni_text          why = { "" };
    b->count              = count;
    for (int i = 0; i < count; i++) {
        b->kit[i]   = kit_of(seed + (uint64_t)i);
        b->plain[i] = kit_of(seed + (uint64_t)i);
        first[i]    = &b->kit[i]->l;
        run(b->plain[i], NULL);
    }
    CHECK_STATUS(tni_cpu_prepare(NULL, count, first, b->entry, false, &why), TN_OK);
}

static void check_batch(batch *b)
{
    char why[KIT_WHY];
    for (int i = 0; i < b->count; i++) {
        run(b->kit[i], b->entry[i]);
        CHECK_INT(b->kit[i]->l.fail[0], b->plain[i]->l.fail[0]);
        test_that(kit_same(b->kit[i], b->plain[i], why), "%s", why);
    }
}

// Whether all are compiled that can be, or none is.
static void check_compiled(const batch *b, bool wanted)
{
    for (int i = 0; i < b->count; i++) {
        const char *why;
        bool        want = wanted && tni_can_emit(&b->kit[i]->k, &why);
        test_that(is_compiled(b->entry[i]) == want, "kernel %d is %s", i,
                  want ? "not compiled" : "compiled");
    }
}

static void release(batch *b)
{
    for (int i = 0; i < b->count; i++) {
        drop(b->kit[i]);
        drop(b->plain[i]);
    }
}

// ---- the switch

static void switch_over(int arg)
{
    batch b;
    (void)arg;
    prepare(&b, 100, MANY);
    check_batch(&b);
    for (int rounds = 0; rounds < 10000 && tni_cpu_kernels_counts().queued; rounds++)
        check_batch(&b);
    tni_cpu_kernels_wait();
    check_compiled(&b, true);
    check_batch(&b);
    tni_cpu_counts n = tni_cpu_kernels_counts();
    CHECK_STR(n.why.s, "");
    CHECK_INT(n.queued + n.failed + n.found, 0);
    CHECK(n.compiled > 0 && n.compiled <= MANY);
    release(&b);
}

static void nobody_sees_when_compiled_code_takes_over(void)
{
    if (!begin_with("", "")) return;
    in_child(switch_over, 0);
    CHECK_INT(calls(), 1);
    end();
}

static void prepare_again(int arg)
{
    batch a, b;
    (void)arg;
    prepare(&a, 200, KERNELS);
    prepare(&b, 200, KERNELS);
    for (int i = 0; i < KERNELS; i++) CHECK(a.entry[i] == b.entry[i]);
    check_compiled(&a, true);
    check_batch(&b);
    release(&a);
    release(&b);
}

static void waiting_is_for_who_asks_for_it(void)
{
    if (!begin("")) return;
    setenv("TN_COMPILE", "wait", 1);
    in_child(prepare_again, 0);
    CHECK_INT(calls(), 1);
    end();
}

// ---- the disk

// Prepares kernels and waits; arg: how many are to be found on disk, -1: all.
static void use_disk(int arg)
{
    batch b;
    prepare(&b, 300, KERNELS);
    tni_cpu_kernels_wait();
    check_compiled(&b, true);
    check_batch(&b);
    tni_cpu_counts n = tni_cpu_kernels_counts();
    if (arg < 0) CHECK_INT(n.compiled, 0);
    else CHECK_INT(n.found, arg);
    CHECK_INT(n.failed + n.queued, 0);
    release(&b);
}

// The same, whatever is to be found.
static void use_disk_somehow(int arg)
{
    batch b;
    (void)arg;
    prepare(&b, 300, KERNELS);
    tni_cpu_kernels_wait();
    check_compiled(&b, true);
    check_batch(&b);
    release(&b);
}

static void another_process_finds_the_code_on_disk(void)
{
    if (!begin("")) return;
    in_child(use_disk, 0);
    CHECK_INT(calls(), 1);
    in_child(use_disk, -1);
    CHECK_INT(calls(), 1);
    // A damaged file is as none, and replaced.
    size_t      n    = 0;
    const char *path = file_of("cache", ".so", 0);
    char       *data = path ? scratch_read(path, &n) : NULL;
    if (CHECK(data && n > 3000)) {
        data[n - 2000] ^= 1;
        CHECK(scratch_write(path, data, n) && chmod(path, 0600) == 0);
        in_child(use_disk, 0);
        CHECK_INT(calls(), 2);
        in_child(use_disk, -1);
        CHECK_INT(calls(), 2);
    }
    free(data);
    // Without the cache there is only the compiler.
    setenv("TN_CACHE_DIR", "none", 1);
    in_child(use_disk, 0);
    CHECK_INT(calls(), 3);
    end();
}

// Meets kernels as a plan's first run does. arg: whether they are there.
static void recall(int arg)
{
    batch             b;
    const tni_launch *first[KERNELS];
    b.count = KERNELS;
    for (int i = 0; i < KERNELS; i++) {
        b.kit[i]   = kit_of(300 + (uint64_t)i);
        b.plain[i] = kit_of(300 + (uint64_t)i);
        first[i]   = &b.kit[i]->l;
        run(b.plain[i], NULL);
    }
    tni_cpu_recall(NULL, KERNELS, first, b.entry);
    for (int i = 0; i < KERNELS; i++) CHECK_INT(b.entry[i] != NULL, arg);
    if (arg) {
        check_compiled(&b, true);
        check_batch(&b);
    }
    tni_cpu_counts n = tni_cpu_kernels_counts();
    CHECK_INT(n.found > 0, arg);
    CHECK_INT(n.compiled + n.failed + n.queued, 0);
    release(&b);
}

static void code_on_disk_is_used_from_the_first_run_on(void)
{
    if (!begin("")) return;
    in_child(recall, false);
    in_child(use_disk, 0);
    CHECK_INT(calls(), 1);
    in_child(recall, true);
    // By another compiler it would be other code.
    CHECK(chmod(scratch_path("mycc"), 0700) == 0);
    setenv("TN_CC", "cc", 1);
    in_child(recall, false);
    CHECK_INT(calls(), 1);
    end();
}

// One step of a program, once or several times; arg: whether its first run finds kernels on disk.
static void run_program(int arg)
{
    tn_ctx *cx = tn_open("cpu");
    for (int i = 0; i < (arg ? 1 : 3); i++) {
        tn_scope  *s = tn_begin(cx);
        tn_tensor *x = tn_full(cx, TN_F32, TN_SHAPE(40, 50), 0.5);
        CHECK_NEAR(tn_item(tn_sum_all(tn_mul(tn_sin(x), tn_add_s(x, 1)))), 1438.276616, 1e-2);
        tn_end(s);
        tni_cpu_kernels_wait();
    }
    tn_stats st = tn_ctx_stats(cx);
    if (arg) CHECK(st.disk_hits > 0 && st.kernels == 0);
    else CHECK(st.disk_hits == 0 && st.kernels > 0);
    tn_close(cx);
}

static void a_program_that_ran_before_begins_with_compiled_code(void)
{
    if (!begin("")) return;
    in_child(run_program, false);
    in_child(run_program, true);
    CHECK_INT(calls(), 1);
    end();
}

static void look_for_many(int arg)
{
    enum { ALL = 200 };
    static kit_case  *kit[ALL];
    const tni_launch *first[ALL];
    void             *entry[ALL];
    (void)arg;
    recall(true);
    for (int i = 0; i < ALL; i++) {
        kit[i]   = kit_of(5000 + (uint64_t)i);
        first[i] = &kit[i]->l;
    }
    double from = seconds();
    tni_cpu_recall(NULL, ALL, first, entry);
    double each = (seconds() - from) / ALL;
    printf("     looking for a kernel that is not on disk: %.1f us\n", 1e6 * each);
    CHECK(each < 1e-3);  // a hundred times what it takes
    for (int i = 0; i < ALL; i++) {
        CHECK(entry[i] == NULL);
        drop(kit[i]);
    }
}

static void a_kernel_that_is_not_on_disk_costs_little(void)
{
    if (!begin("")) return;
    in_child(use_disk, 0);
    in_child(look_for_many, 0);
    end();
}

// Every file in turn is cut, changed, and replaced by a pipe that nobody writes to.
static void damaged_files_on_disk_keep_nobody_waiting(void)
{
    if (!begin("")) return;
    in_child(use_disk, 0);
    for (int i = 0; file_of("cache", "", i) && i < 20; i++)
        for (int way = 0; way < 3; way++) {
            char        path[700];
            size_t      n  = 0;
            const char *at = file_of("cache", "", i);
            snprintf(path, sizeof path, "%s", at ? at : "");
            char *data = scratch_read(path, &n);
            if (!data) continue;
            if (way == 1) data[n / 2] ^= 1;
            if (way == 2) CHECK(unlink(path) == 0 && mkfifo(path, 0600) == 0);
            else CHECK(scratch_write(path, data, way ? n : n / 2) && chmod(path, 0600) == 0);
            free(data);
            double from = seconds();
            in_child(use_disk_somehow, 0);
            CHECK(seconds() - from < 100);
            if (way == 2) unlink(path);
        }
    end();
}

static void compile_some(int arg)
{
    batch b;
    prepare(&b, arg % 2 ? 400 : 500 + (uint64_t)arg, KERNELS);
    check_batch(&b);
    tni_cpu_kernels_wait();
    check_compiled(&b, true);
    check_batch(&b);
    release(&b);
}

static void eight_processes_compile_at_once(void)
{
    pid_t pid[8];
    if (!begin("")) return;
    for (int i = 0; i < 8; i++) pid[i] = start(compile_some, i);
    // The folder goes while they run.
    for (int i = 0; i < 20; i++) {
        nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
        empty("cache");
        rmdir(scratch_path("cache"));
    }
    for (int i = 0; i < 8; i++) finish(pid[i]);
    CHECK(calls() <= 8);
    end();
}

// ---- compilers that do not do

static void never_compiled(int arg)
{
    batch b;
    (void)arg;
    for (int i = 0; i < 3; i++) {
        prepare(&b, 600 + 10 * (uint64_t)i, KERNELS);
        tni_cpu_kernels_wait();
        check_compiled(&b, false);
        check_batch(&b);
        release(&b);
    }
    tni_cpu_counts n = tni_cpu_kernels_counts();
    CHECK_INT(n.compiled + n.found + n.queued, 0);
    CHECK(n.why.s[0] != 0);
}

static void without_a_compiler_kernels_are_interpreted(void)
{
    static const char *const named[] = { "none", "/bin/false", "/nowhere/cc", "/bin/true" };
    if (!begin("")) return;
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        setenv("TN_CC", named[i], 1);
        in_child(never_compiled, 0);
    }
    end();
}

static void a_compiler_that_refuses_every_text_is_asked_no_more(void)
{
    if (!begin("echo text >> $(dirname $0)/calls; echo 'error: no' >&2; exit 1")) return;
    in_child(never_compiled, 0);
    CHECK_INT(calls(), 2);  // the first text, and a sample to see whether it compiles anything
    end();
}

// What is waited for until it has to be ended is not waited for again.
static void wait_for_one_that_hangs(int arg)
{
    double from = seconds();
    (void)arg;
    tni_cpu_kernels_limit(1000);
    never_compiled(0);
    CHECK(seconds() - from < 100);
    tni_cpu_counts n = tni_cpu_kernels_counts();
    CHECK(n.off);
    test_that(strstr(n.why.s, "took more than 1000 ms") != NULL, "%s", n.why.s);
}

static void a_compiler_that_hangs_is_waited_for_once(void)
{
    static const char *const hangs[] = {
        "echo text >> $(dirname $0)/calls; sleep 1000",
        // It takes a sample, and hangs at what has kernels.
        "for f; do case $f in *.c) grep -q tenon_kernel $f && "
        "{ echo text >> $(dirname $0)/calls; sleep 1000; };; esac; done",
    };
    for (size_t i = 0; i < sizeof hangs / sizeof *hangs; i++) {
        if (!begin(hangs[i])) return;
        setenv("TN_COMPILE", "wait", 1);
        in_child(wait_for_one_that_hangs, 0);
        CHECK_INT(calls(), 1);
        end();
    }
}

static void one_bad_kernel_keeps_no_other_from_being_compiled(void)
{
    // Texts of more than two kernels are refused.
    if (!begin("for f; do case $f in *.c) grep -q tenon_kernel_2 $f && exit 1;; esac; done"))
        return;
    in_child(use_disk, 0);
    CHECK(calls() > 2);
    in_child(use_disk, -1);
    end();
}

// ---- fork and exit

static bool compile_in_child(const batch *b)
{
    batch more;
    int   status = -1;
    pid_t pid    = fork();
    if (pid == 0) {
        alarm(200);
        prepare(&more, 800, KERNELS);
        check_batch(&more);
        tni_cpu_kernels_wait();
        check_compiled(&more, true);
        check_compiled(b, true);
        check_batch(&more);
        fflush(NULL);
        _exit(0);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

// Forks again and again while kernels are compiled.
static void fork_meanwhile(int arg)
{
    batch b;
    (void)arg;
    prepare(&b, 700, KERNELS);
    for (int i = 0; i < 4; i++) {
        CHECK(compile_in_child(&b));
        nanosleep(&(struct timespec){ .tv_nsec = 70000000 }, NULL);
    }
    check_batch(&b);
    tni_cpu_kernels_wait();
    check_compiled(&b, true);
    check_batch(&b);
    release(&b);
}

static void a_forked_process_compiles_for_itself(void)
{
    if (strstr(TN_SANITIZE, "thread")) SKIP("its sanitizer does not take threads after a fork");
    if (!begin("sleep 0.1")) return;
    in_child(fork_meanwhile, 0);
    setenv("TN_CACHE_DIR", "none", 1);
    in_child(fork_meanwhile, 0);
    end();
}

static void leave_at_once(int ms)
{
    batch b;
    prepare(&b, 900, KERNELS);
    if (ms) nanosleep(&(struct timespec){ .tv_nsec = 1000000L * ms }, NULL);
    release(&b);
    exit(0);
}

static void a_process_ends_without_waiting_for_the_compiler(void)
{
    if (!begin("sleep 100")) return;
    for (int ms = 0; ms <= 400; ms += 80) {
        double from = seconds();
        in_child(leave_at_once, ms);
        CHECK(seconds() - from < 50);
    }
    CHECK_INT(calls(), 0);
    end();
}

// ---- threads

static void *use_kernels(void *seed)
{
    batch b;
    for (int i = 0; i < 3; i++) {
        prepare(&b, *(uint64_t *)seed + (uint64_t)i, KERNELS);
        for (int k = 0; k < 3; k++) check_batch(&b);
        if (i == 1) tni_cpu_kernels_wait();
        check_batch(&b);
        release(&b);
    }
    return NULL;
}

static void share_kernels(int arg)
{
    enum { USERS = 3 };
    pthread_t thread[USERS];
    uint64_t  seed[USERS] = { 1000, 1000, 1003 };
    (void)arg;
    for (int i = 0; i < USERS; i++)
        CHECK(pthread_create(&thread[i], NULL, use_kernels, &seed[i]) == 0);
    for (int i = 0; i < USERS; i++) pthread_join(thread[i], NULL);
    tni_cpu_kernels_wait();
    CHECK_INT(tni_cpu_kernels_counts().queued, 0);
}

static void threads_share_the_table(void)
{
    if (!begin("")) return;
    in_child(share_kernels, 0);
    end();
}

// ---- failures that a kernel finds

static void look_up(int arg)
{
    static const int64_t index[] = { 1, 0, 9, 3 };
    kit_case            *c       = calloc(1, sizeof *c);
    void                *entry;
    tni_text             why = { "" };
    (void)arg;
    kit_begin(c, 1, (int64_t[]){ 4 }, 0, NULL, false);
    int at = kit_check(c, kit_load(c, kit_input(c, TN_I64, TNI_PER_ROW)), 5);
    int x  = kit_access(c, kit_buffer(c, TN_F32, 5, false), 0, (int64_t[]){ 0 }, 1);
    kit_store(c, kit_output(c, TN_F32, TNI_PER_ROW), kit_load_at(c, x, at, TNI_NO_VALUE));
    if (!CHECK(kit_end(c))) return;
    memcpy(c->mem[0], index, sizeof index);
    kit_keep(c);
    c->l.threads            = 1;
    const tni_launch *first = &c->l;
    CHECK_STATUS(tni_cpu_prepare(NULL, 1, &first, &entry, false, &why), TN_OK);
    CHECK_STATUS(run(c, entry), TN_EARG);
    CHECK_INT(c->l.fail[1], 9);
    tni_cpu_kernels_wait();
    CHECK(is_compiled(entry));
    CHECK_STATUS(run(c, entry), TN_EARG);
    CHECK_INT(c->l.fail[1], 9);
    drop(c);
}

static void an_index_out_of_range_is_an_error_either_way(void)
{
    if (!begin("")) return;
    in_child(look_up, 0);
    end();
}

const test_case tests_compiled[] = {
    TEST(nobody_sees_when_compiled_code_takes_over),
    TEST(waiting_is_for_who_asks_for_it),
    TEST(another_process_finds_the_code_on_disk),
    TEST(code_on_disk_is_used_from_the_first_run_on),
    TEST(a_program_that_ran_before_begins_with_compiled_code),
    TEST(a_kernel_that_is_not_on_disk_costs_little),
    TEST(damaged_files_on_disk_keep_nobody_waiting),
    TEST(a_compiler_that_hangs_is_waited_for_once),
    TEST(eight_processes_compile_at_once),
    TEST(without_a_compiler_kernels_are_interpreted),
    TEST(a_compiler_that_refuses_every_text_is_asked_no_more),
    TEST(one_bad_kernel_keeps_no_other_from_being_compiled),
    TEST(a_forked_process_compiles_for_itself),
    TEST(a_process_ends_without_waiting_for_the_compiler),
    TEST(threads_share_the_table),
    TEST(an_index_out_of_range_is_an_error_either_way),
    TEST_END,
};
