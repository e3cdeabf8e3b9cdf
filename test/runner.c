// runner.c: the runner of the tests.
//
//     tenon-tests [--list] [--no-fork] [--ops] [--worked] [-j N | --jobs N] [filter...]
//
// A filter is a part of "file/test"; without one every test runs. The tests of a file run in a
// child process, so that a crash costs one test: the runner names it and forks again for those
// behind it. --no-fork keeps all in this process, for a debugger. A test that takes longer than
// TN_TEST_LIMIT seconds (600 unless set) is ended.
//
// N files run at once: TN_TEST_JOBS unless given, else one for every two cores, two at least. With
// more than one, a file prints when it is done, and those that want to be alone come one by one
// behind all others.
#include "check.h"
#include "recorded_kernels.h"
#include "runner_jobs.h"

#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PRINTED = 20 };  // failures printed of one test

// A file of tests: its name, its table, and whether it wants no other beside it.
typedef struct {
    const char      *name;
    const test_case *cases;
    bool             alone;
} test_file;

// What a child tells the runner of a file, in memory shared by both, so that it outlives a crash.
// The counts of a file grow as its tests end; `checks` and what follows belong to the test that
// runs now. Checks may come from several threads.
typedef struct {
    int        at;  // index of the running test
    bool       done;
    int        passed, failed, skipped;
    int64_t    cases;
    atomic_int checks_failed, cases_passed, cases_failed, printed;
    bool       skip;
} report;

#define TESTS(name) extern const test_case tests_##name[];
#include "tests.h"

static const test_file files[] = {
#define TESTS(name)       { #name, tests_##name, false },
#define TESTS_ALONE(name) { #name, tests_##name, true },
#include "tests.h"
};

enum { FILES = sizeof files / sizeof *files };

static report     *reports;         // one for each file: all that children tell
static report      outside;         // of checks that no test makes
static report     *now = &outside;  // that of the running file
static const char *now_file;        // name of the running file
static const char *now_test;        // name of the running test
static char      **filters;         // NULL-terminated
static int         limit = 600;     // seconds a test may take

// Writes the reference of all ops in Markdown, where a file of tests defines it.
#if defined(__GNUC__)
__attribute__((weak))
#endif
int test_ops_write(FILE *f);
// Writes the texts of the worked example of docs/design.md.
#if defined(__GNUC__)
__attribute__((weak))
#endif
int test_worked_write(FILE *f);
// Runs this process as one rank of several, for the tests of worlds.
#if defined(__GNUC__)
__attribute__((weak))
#endif
int test_rank_run(const char *name);

// An allocation that is too large is no error of a program here: the library tells of it.
#if defined(__SANITIZE_ADDRESS__)
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char                                        *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}
#endif

// ---- checks

// Prints one failure of the running test; the first names the test.
TEST_PRINTF(1, 2) static void complain(const char *fmt, ...)
{
    int before = atomic_fetch_add(&now->printed, 1);
    if (before >= PRINTED) return;

    char    text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (before == 0) printf("FAIL %s/%s: %s\n", now_file, now_test, text);
    else printf("     %s\n", text);
}

bool test_check(bool ok, const char *file, int line, const char *text)
{
    if (ok) return true;
    atomic_fetch_add(&now->checks_failed, 1);
    complain("%s:%d: %s", file, line, text);
    return false;
}

bool test_int(int64_t a, int64_t b, const char *file, int line, const char *text)
{
    if (a == b) return true;
    atomic_fetch_add(&now->checks_failed, 1);
    complain("%s:%d: %s is %lld, not %lld", file, line, text, (long long)a, (long long)b);
    return false;
}

bool test_str(const char *a, const char *b, const char *file, int line, const char *text)
{
    if (a && b ? strcmp(a, b) == 0 : a == b) return true;
    atomic_fetch_add(&now->checks_failed, 1);
    complain("%s:%d: %s is \"%s\", not \"%s\"", file, line, text, a ? a : "(null)",
             b ? b : "(null)");
    return false;
}

bool test_near(double a, double b, double tol, const char *file, int line, const char *text)
{
    if (a == b || fabs(a - b) <= tol) return true;
    atomic_fetch_add(&now->checks_failed, 1);
    complain("%s:%d: %s is %.17g, not within %g of %.17g", file, line, text, a, tol, b);
    return false;
}

bool test_status(int a, int b, const char *file, int line, const char *text, const char *want)
{
    if (a == b) return true;
    atomic_fetch_add(&now->checks_failed, 1);
    complain("%s:%d: %s gives status %d, not %s (%d)", file, line, text, a, want, b);
    return false;
}

bool test_that(bool ok, const char *fmt, ...)
{
    if (ok) return true;
    atomic_fetch_add(&now->checks_failed, 1);

    char    text[768];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    complain("%s", text);
    return false;
}

int test_draws(int normal)
{
    const char *n = getenv("TN_GRAPHS");
    return n && atoi(n) > 0 ? atoi(n) : normal;
}

bool test_long(void)
{
    const char *v = getenv("TN_TEST_LONG");
    return v && *v;
}

bool test_case_result(bool ok, const char *fmt, ...)
{
    if (ok) {
        atomic_fetch_add(&now->cases_passed, 1);
        return true;
    }
    atomic_fetch_add(&now->cases_failed, 1);

    char    text[768];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    complain("case %s", text);
    return false;
}

void test_skip(const char *fmt, ...)
{
    char    text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    now->skip = true;
    printf("skip %s/%s: %s\n", now_file, now_test, text);
}

// ---- running

static bool selected(const char *file, const char *test)
{
    char full[512];
    snprintf(full, sizeof full, "%s/%s", file, test);
    if (!*filters) return true;
    for (char **f = filters; *f; f++)
        if (strstr(full, *f)) return true;
    return false;
}

// Adds the running test's outcome to its file's counts. A test with cases counts itself beside
// them, and has failed if one of them has.
static void settle(bool crashed)
{
    bool failed = crashed || now->checks_failed || now->cases_failed;
    int  hidden = now->printed - PRINTED;
    if (hidden > 0) printf("     and %d more\n", hidden);
    if (failed) now->failed++;
    else if (now->skip) now->skipped++;
    else now->passed++;
    now->passed += now->cases_passed;
    now->failed += now->cases_failed;
    now->cases += now->cases_passed + now->cases_failed;

    now->checks_failed = now->printed = 0;
    now->cases_passed = now->cases_failed = 0;

    now->skip = false;
}

// Runs the selected tests of a file from its test now->at on.
static void run_tests(const test_file *f)
{
    for (; f->cases[now->at].name; now->at++) {
        if (!selected(f->name, f->cases[now->at].name)) continue;
        now_test = f->cases[now->at].name;
        alarm((unsigned)limit);
        f->cases[now->at].run();
        alarm(0);
        settle(false);
        fflush(stdout);
    }
    now->done = true;
}

// What ended a child, in words.
static const char *cause(int status, char *text, size_t size)
{
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        snprintf(text, size, "took more than %d s", limit);
    else if (WIFSIGNALED(status)) snprintf(text, size, "crashed: %s", strsignal(WTERMSIG(status)));
    else snprintf(text, size, "the process ended with status %d", WEXITSTATUS(status));
    return text;
}

// A process ended badly at a test, or at what the name says instead: that is a failure.
static void note_end(const char *test, int status)
{
    char text[128];
    now_test = test;
    complain("%s", cause(status, text, sizeof text));
    settle(true);
}

// Runs a file's tests in a child, and in another after each test that brings one down. A child
// that ends badly after its last test (a leak, say) is a failure of the file.
static void run_forked(const test_file *f)
{
    pid_t self = getpid();
    while (!now->done) {
        fflush(NULL);
        pid_t pid = fork();
        if (pid == 0) {
            jobs_end_with((int)self);
            run_tests(f);
            exit(0);
        }
        int status = 0;
        if (pid < 0 || waitpid(pid, &status, 0) < 0) {
            perror("tenon-tests");
            exit(2);
        }
        if (now->done && status == 0) break;
        note_end(now->done ? "(end)" : f->cases[now->at].name, status);
        now->at++;
    }
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool any_selected(const test_file *f)
{
    for (const test_case *c = f->cases; c->name; c++)
        if (selected(f->name, c->name)) return true;
    return false;
}

// Kernels are recorded where a test that looks at them runs too.
static void record_kernels(void)
{
    for (int i = 0; i < FILES; i++)
        if (!strcmp(files[i].name, "every_kernel") && any_selected(&files[i])) recorded_open();
}

static void begin_file(int i)
{
    now      = &reports[i];
    now_file = files[i].name;
}

static void run_file(int i, bool forked)
{
    double start = seconds();
    begin_file(i);
    // What a test has cut at will is nothing that a device would be given.
    recorded_from(strcmp(now_file, "splits") ? now_file : NULL, i);
    if (forked) run_forked(&files[i]);
    else run_tests(&files[i]);
    printf("%-14s %6d passed %3d failed %3d skipped %7.2f s\n", now_file, now->passed, now->failed,
           now->skipped, seconds() - start);
}

// ---- files at once

static bool is_shared(int i)
{
    return !files[i].alone && any_selected(&files[i]);
}

// In a process of its own, which forks those that run the tests.
static void run_shared(int i)
{
    run_file(i, true);
}

static void shared_ended(int i, int status)
{
    begin_file(i);
    if (status != 0) note_end("(runner)", status);
}

// ---- all files

static int print_totals(void)
{
    report sum = { 0 };
    for (int i = 0; i < FILES; i++) {
        sum.passed += reports[i].passed;
        sum.failed += reports[i].failed;
        sum.skipped += reports[i].skipped;
        sum.cases += reports[i].cases;
    }
    printf("tables: %lld cases\n", (long long)sum.cases);
    printf("%d passed, %d failed, %d skipped\n", sum.passed, sum.failed, sum.skipped);
    return sum.failed > 0 || sum.passed + sum.skipped == 0;
}

static int run_files(bool forked, int jobs)
{
    bool      several = forked && jobs > 1;
    jobs_work shared  = { FILES, is_shared, run_shared, shared_ended };
    if (several && !jobs_run(&shared, jobs)) return 2;
    for (int i = 0; i < FILES; i++)
        if (any_selected(&files[i]) && !(several && is_shared(i))) run_file(i, forked);
    return print_totals();
}

static int list(void)
{
    for (int i = 0; i < FILES; i++)
        for (const test_case *c = files[i].cases; c->name; c++)
            if (selected(files[i].name, c->name)) printf("%s/%s\n", files[i].name, c->name);
    return 0;
}

static int usage(void)
{
    fprintf(stderr,
            "usage: tenon-tests [--list] [--no-fork] [--ops] [--worked] [-j N] [filter...]\n");
    return 2;
}

// Asked by the leak checker of sanitized builds: what PoCL leaves behind at exit is not ours.
const char *__lsan_default_suppressions(void) __attribute__((visibility("default")));

const char *__lsan_default_suppressions(void)
{
    return "leak:libpocl\n";
}

static report *open_reports(void)
{
    void *p = mmap(NULL, FILES * sizeof(report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                   -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

// The number of -j N, -jN, --jobs N or --jobs=N at *i, which goes past it; 0 if it is none of them.
static int read_jobs(int argc, char **argv, int *i)
{
    const char *text = argv[*i];
    size_t      n    = !strncmp(text, "--jobs", 6) ? 6 : !strncmp(text, "-j", 2) ? 2 : 0;
    if (!n) return 0;
    if (text[n]) return atoi(text + n + (n == 6 && text[n] == '='));
    return ++*i < argc ? atoi(argv[*i]) : 0;
}

int main(int argc, char **argv)
{
    bool forked = true, only_list = false;
    int  i = 1, jobs = jobs_default();
    for (; i < argc && argv[i][0] == '-'; i++) {
        if (!strcmp(argv[i], "--list")) only_list = true;
        else if (!strcmp(argv[i], "--no-fork")) forked = false;
        else if (!strcmp(argv[i], "--ops") && test_ops_write) return test_ops_write(stdout);
        else if (!strcmp(argv[i], "--worked") && test_worked_write)
            return test_worked_write(stdout);
        else if (!strcmp(argv[i], "--rank") && argv[i + 1] && test_rank_run)
            return test_rank_run(argv[i + 1]);
        else if ((jobs = read_jobs(argc, argv, &i)) < 1) return usage();
    }
    filters = argv + i;
    if (only_list) return list();
    setenv("TN_CACHE_DIR", TN_BUILD_DIR "/cache", 0);  // not the user's
    setenv("TN_DEVICE", "cpu", 0);                     // the same tests wherever there is a GPU
    // PoCL compiles in a third of the time if it optimizes less; a long run lets it, as programs of
    // users do. Other drivers do not know what is set for it.
    if (!test_long()) setenv("POCL_EXTRA_BUILD_FLAGS", "-cl-opt-disable", 0);

    const char *text = getenv("TN_TEST_LIMIT");
    if (text && atoi(text) > 0) limit = atoi(text);
    if (!(reports = open_reports())) {
        perror("tenon-tests");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    record_kernels();
    return run_files(forked, jobs);
}
