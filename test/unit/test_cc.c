// test_cc.c: running the system's compiler: what it makes is loaded; compilers that fail, lie or
// hang cost nothing but their reason.
#include "check.h"
#include "scratch.h"

#include "device/cpu/cc.h"
#include "device/cpu/object.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// ---- a compiler in a scratch folder; temporary files go to a folder of their own in it

static bool begin(void)
{
    if (!CHECK(scratch_open()) || !CHECK(mkdir(scratch_path("tmp"), 0700) == 0)) return false;
    setenv("TMPDIR", scratch_path("tmp"), 1);
    return true;
}

// Nothing temporary is left.
static void end(void)
{
    test_that(rmdir(scratch_path("tmp")) == 0, "a temporary file is left");
    unsetenv("TMPDIR");
    unsetenv("TN_CC");
    scratch_close();
}

// A shell script in the scratch folder; its path.
static const char *script(const char *name, const char *text)
{
    const char *path = scratch_path(name);
    char        whole[2000];
    snprintf(whole, sizeof whole, "#!/bin/sh\n%s\n", text);
    CHECK(scratch_write(path, whole, strlen(whole)));
    CHECK(chmod(path, 0700) == 0);
    return path;
}

// The compiler that TN_CC names, asked for its name. *why is set where it is not found.
static bool find(tni_cc *c, const char *named, tni_text *why)
{
    if (named) setenv("TN_CC", named, 1);
    else unsetenv("TN_CC");
    *why = (tni_text){ "" };
    if (!tni_cc_open(c, why)) return false;
    if (tni_cc_find(c, why)) return true;
    tni_cc_close(c);
    return false;
}

static void check_not_found(const char *named, const char *part)
{
    tni_cc   c;
    tni_text why;
    bool     found = find(&c, named, &why);
    if (found) tni_cc_close(&c);
    CHECK(!found);
    test_that(strstr(why.s, part) != NULL, "\"%s\" does not say \"%s\"", why.s, part);
}

// Compiles a function that returns n, loads it and calls it.
static int compile_number(tni_cc *c, int n, tni_text *why)
{
    char   text[100];
    int    got   = -1;
    size_t bytes = 0;
    int (*f)(void);
    snprintf(text, sizeof text, "int number(void) { return %d; }", n);
    void *data   = tni_cc_compile(c, text, &bytes, why);
    void *object = data ? tni_object_load(&c->runner, data, bytes, why) : NULL;
    free(data);
    if (object && tni_object_symbol(object, "number", &f)) got = f();
    if (object && got != n) *why = tni_text_of("it gives %d", got);
    return object ? got : -1;  // stays loaded, as kernels do
}

#define FIND_OR_SKIP(c, why)                                \
    do {                                                    \
        if (!find(&(c), NULL, &(why))) {                    \
            end();                                          \
            SKIP("there is no compiler here: %s", (why).s); \
        }                                                   \
    } while (0)

// ---- what works

static void a_text_is_compiled_and_loaded(void)
{
    tni_cc   c;
    tni_text why;
    if (!begin()) return;
    FIND_OR_SKIP(c, why);
    CHECK(c.path[0] == '/' && c.name.s[0] && c.chip[0]);
    CHECK(strstr(c.options, "-ffp-contract=off") != NULL);
    if (!CHECK_INT(compile_number(&c, 42, &why), 42)) CHECK_STR(why.s, "");
    tni_cc_close(&c);
    end();
}

// Some know a chip by its name, and not that the system has switched off a part of it.
static void every_compiler_makes_code_for_this_chip(void)
{
    static const char *const names[] = { "cc", "gcc", "clang" };
    static const char        text[]  = "void scale(float *restrict y, const float *restrict x) {\n"
                                       "    for (int i = 0; i < 1000; i++) y[i] = 2 * x[i] + 1;\n}";
    if (!begin()) return;
    for (int i = 0; i < 3; i++) {
        tni_cc   c;
        tni_text why;
        size_t   bytes;
        float    x[1000] = { [999] = 3 }, y[1000];
        void (*f)(float *, const float *);
        if (!find(&c, names[i], &why)) continue;
        void *data   = tni_cc_compile(&c, text, &bytes, &why);
        void *object = data ? tni_object_load(&c.runner, data, bytes, &why) : NULL;
        if (CHECK(object && tni_object_symbol(object, "scale", &f))) {
            f(y, x);
            CHECK(y[0] == 1 && y[999] == 7);
        }
        free(data);
        tni_cc_close(&c);
    }
    end();
}

// The loader must not take the second for the first, though both come by the same descriptor.
static void objects_with_the_same_names_are_apart(void)
{
    tni_cc   c;
    tni_text why;
    if (!begin()) return;
    FIND_OR_SKIP(c, why);
    for (int i = 0; i < 5; i++) CHECK_INT(compile_number(&c, i, &why), i);
    tni_cc_close(&c);
    end();
}

static void a_compiler_may_be_a_command_with_arguments(void)
{
    tni_cc   c, plain;
    tni_text why;
    char     named[700];
    if (!begin()) return;
    FIND_OR_SKIP(plain, why);
    snprintf(named, sizeof named, "%s one two",
             script("wrap", "test $1 = one -a $2 = two || exit 3; shift 2; exec cc \"$@\""));
    if (CHECK(find(&c, named, &why))) {
        CHECK_STR(c.words, " one two");
        CHECK_INT(compile_number(&c, 7, &why), 7);
        tni_cc_close(&c);
    }
    // A path with a space in it is one word.
    script("a b", "exec cc \"$@\"");
    if (CHECK(find(&c, scratch_path("a b"), &why))) tni_cc_close(&c);
    tni_cc_close(&plain);
    end();
}

static void a_name_is_looked_for_on_the_path(void)
{
    tni_cc   c;
    tni_text why;
    char     saved[4096], path[5000];
    if (!begin()) return;
    FIND_OR_SKIP(c, why);
    tni_cc_close(&c);
    script("mycc", "exec cc \"$@\"");
    snprintf(saved, sizeof saved, "%s", getenv("PATH"));
    snprintf(path, sizeof path, "/nowhere::%s:%s", scratch_path("."), saved);
    setenv("PATH", path, 1);
    if (CHECK(find(&c, "mycc", &why))) {
        CHECK(strstr(c.path, "/mycc") != NULL);
        tni_cc_close(&c);
    }
    setenv("PATH", ".:relative", 1);
    check_not_found(NULL, "no cc, gcc or clang is on PATH");
    setenv("PATH", saved, 1);
    check_not_found("mycc", "TN_CC names no program");
    end();
}

// ---- what does not

static void none_turns_the_compiler_off(void)
{
    if (!begin()) return;
    check_not_found("none", "TN_CC is none");
    end();
}

static void compilers_that_fail_are_refused_with_the_reason(void)
{
    if (!begin()) return;
    check_not_found("/nowhere/cc", "names no program: \"/nowhere/cc\"");
    check_not_found("/", "names no program");
    check_not_found("/bin/false", "failed with status 1");
    check_not_found(script("dies", "kill -SEGV $$"), "was ended by signal 11");
    check_not_found(script("chatter", "echo hello; echo world"), "is not a C11 compiler");
    check_not_found(script("noise", "head -c 100000 /dev/urandom"), "is not a C11 compiler");
    check_not_found(script("silent", ":"), "is not a C11 compiler");
    CHECK(scratch_write(scratch_path("text"), "not a program", 13));
    CHECK(chmod(scratch_path("text"), 0700) == 0);
    check_not_found(scratch_path("text"), "does not start: Exec format error");
    end();
}

// A compiler that says who it is as cc does, and does otherwise with a text.
static const char *liar(const char *text)
{
    char whole[1500];
    snprintf(whole, sizeof whole,
             "case \"$*\" in *--version*|*-dM*) exec cc \"$@\";; esac\n"
             "while [ \"$1\" != -o ]; do shift; done; out=$2\n%s",
             text);
    return script("liar", whole);
}

static void check_no_code(const char *text, const char *part)
{
    tni_cc   c;
    tni_text why;
    if (!CHECK(find(&c, liar(text), &why))) return;
    CHECK_INT(compile_number(&c, 5, &why), -1);
    test_that(strstr(why.s, part) != NULL, "\"%s\" does not say \"%s\"", why.s, part);
    tni_cc_close(&c);
}

static void what_a_compiler_makes_is_not_trusted(void)
{
    tni_cc   c;
    tni_text why;
    if (!begin()) return;
    FIND_OR_SKIP(c, why);
    tni_cc_close(&c);
    check_no_code("echo 'kernels.c:3: error: no such thing' >&2; exit 1",
                  "failed with status 1: error: no such thing");
    check_no_code("exit 0", "wrote no file");
    check_no_code(": > $out", "not a complete shared object");
    check_no_code("head -c 20000 /dev/urandom > $out", "not a complete shared object");
    check_no_code("cc -shared -o $out.whole -x c /dev/null; head -c 3000 $out.whole > $out",
                  "not a complete shared object");
    check_no_code("cc -c -o $out -x c /dev/null", "only ET_DYN");
    end();
}

static void a_text_that_does_not_compile_says_why(void)
{
    tni_cc   c;
    tni_text why;
    size_t   bytes;
    if (!begin()) return;
    FIND_OR_SKIP(c, why);
    CHECK(tni_cc_compile(&c, "int f(void) { return nothing; }", &bytes, &why) == NULL);
    CHECK(strstr(why.s, "nothing") != NULL);
    tni_cc_close(&c);
    end();
}

// ---- time

static bool is_alive(const char *file)
{
    size_t n;
    char  *text = scratch_read(file, &n);
    pid_t  pid  = text ? (pid_t)atoi(text) : 0;
    free(text);
    if (!CHECK(pid > 0)) return false;
    for (int i = 0; i < 100; i++) {
        // Whoever takes in orphans here may be slow to; a process that is dead has no memory.
        char  path[64];
        FILE *f;
        int   pages = 0;
        snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
        if (kill(pid, 0) != 0 || !(f = fopen(path, "r"))) return false;
        if (fscanf(f, "%d", &pages) != 1) pages = 0;
        fclose(f);
        if (!pages) return false;
        nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
    }
    return true;
}

// A hanging compiler is ended in time, and so is what it started.
static void check_hang(const char *before)
{
    tni_cc   c;
    tni_text why = { "" };
    char     text[800];
    snprintf(text, sizeof text, "%s sleep 100 & echo $! > %s; wait; sleep 100", before,
             scratch_path("pid"));
    setenv("TN_CC", script("hangs", text), 1);
    if (!CHECK(tni_cc_open(&c, &why))) return;
    c.runner.limit_ms = 300;
    double start      = seconds();
    CHECK(!tni_cc_find(&c, &why));
    CHECK(seconds() - start < 5);
    test_that(strstr(why.s, "took more than 300 ms") != NULL, "%s", why.s);
    CHECK(!is_alive(scratch_path("pid")));
    tni_cc_close(&c);
}

static void a_compiler_that_hangs_is_ended(void)
{
    if (!begin()) return;
    check_hang("");
    check_hang("trap '' TERM;");
    end();
}

static void *stop_later(void *c)
{
    nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
    atomic_store(&((tni_cc *)c)->runner.stop, true);
    return NULL;
}

static void a_compiler_at_work_can_be_stopped(void)
{
    static tni_cc c;
    tni_text      why = { "" };
    pthread_t     thread;
    if (!begin()) return;
    setenv("TN_CC", script("slow", "sleep 100"), 1);
    if (!CHECK(tni_cc_open(&c, &why))) return;
    double start = seconds();
    CHECK(pthread_create(&thread, NULL, stop_later, &c) == 0);
    CHECK(!tni_cc_find(&c, &why));
    CHECK(seconds() - start < 5);
    pthread_join(thread, NULL);
    tni_cc_close(&c);
    end();
}

// ---- the host program

static void take_all(int signal)
{
    int saved = errno;
    (void)signal;
    while (waitpid(-1, NULL, WNOHANG) > 0) {}
    errno = saved;
}

// Waits until a file is there, or is not; false after half a minute.
static bool await_file(const char *path, bool there)
{
    for (int i = 0; i < 3000; i++) {
        if ((access(path, F_OK) == 0) == there) return true;
        nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
    }
    return false;
}

// One that has ended may stay in the list of processes, if nobody asks for its status.
static bool runs(pid_t pid)
{
    char path[64], text[256] = "";
    if (kill(pid, 0) != 0) return false;
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    FILE *f = fopen(path, "r");
    if (f && !fgets(text, sizeof text, f)) *text = 0;
    if (f) fclose(f);
    const char *state = strrchr(text, ')');
    return !state || (state[2] != 'Z' && state[2] != 'X');
}

static bool await_end(pid_t pid)
{
    for (int i = 0; i < 3000; i++) {
        if (!runs(pid)) return true;
        nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
    }
    return false;
}

// The compiler, what it started, and its files.
static void a_killed_process_leaves_no_compiler_behind(void)
{
    char     text[1500];
    tni_cc   c;
    tni_text why;
    if (!begin()) return;
    FIND_OR_SKIP(c, why);
    tni_cc_close(&c);
    snprintf(
        text, sizeof text,
        "case \"$*\" in *-shared*-o*) sleep 1000 & echo $TMPDIR > %s; echo $! > %s; wait;; esac\n"
        "exec cc \"$@\"",
        scratch_path("folder"), scratch_path("pid"));
    const char *hangs = script("hangs", text);
    pid_t       pid   = fork();
    if (pid == 0) {
        alarm(200);
        if (find(&c, hangs, &why)) compile_number(&c, 1, &why);
        _exit(0);
    }
    char   folder[600] = "";
    long   sleeper     = 0;
    size_t n           = 0;
    CHECK(await_file(scratch_path("pid"), true));
    nanosleep(&(struct timespec){ .tv_nsec = 300000000 }, NULL);
    char *text_pid = scratch_read(scratch_path("pid"), &n);
    if (CHECK(text_pid && n > 1)) sleeper = strtol(text_pid, NULL, 10);
    char *place = scratch_read(scratch_path("folder"), &n);
    if (CHECK(place && n > 1)) snprintf(folder, sizeof folder, "%.*s", (int)n - 1, place);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    CHECK(sleeper > 1 && await_end((pid_t)sleeper));
    CHECK(*folder && await_file(folder, false));
    free(text_pid);
    free(place);
    end();
}

static void compiling_works_whatever_the_host_does_with_its_children(void)
{
    void (*const handlers[])(int) = { SIG_IGN, take_all };
    tni_cc   c;
    tni_text why;
    if (!begin()) return;
    FIND_OR_SKIP(c, why);
    tni_cc_close(&c);
    for (int i = 0; i < 2; i++) {
        struct sigaction act = { .sa_handler = handlers[i] }, before;
        sigaction(SIGCHLD, &act, &before);
        if (CHECK(find(&c, NULL, &why))) {
            CHECK_INT(compile_number(&c, 10 + i, &why), 10 + i);
            size_t bytes;
            CHECK(tni_cc_compile(&c, "broken", &bytes, &why) == NULL);
            tni_cc_close(&c);
        }
        sigaction(SIGCHLD, &before, NULL);
    }
    end();
}

static void the_compiler_is_run_as_from_a_fresh_shell(void)
{
    tni_cc   c;
    tni_text why = { "" };
    char     text[1000];
    sigset_t all, before;
    if (!begin()) return;
    int fd = open("/dev/null", O_RDONLY);
    int at = fd < 0 ? -1 : fcntl(fd, F_DUPFD, 50);  // not closed by exec
    CHECK(at >= 50);
    snprintf(text, sizeof text,
             "test -e /proc/self/fd/%d && exit 10\n"
             "read x && exit 11\n"
             "test \"$LC_ALL\" = C -a -z \"$LD_PRELOAD\" || exit 12\n"
             "test -f $TMPDIR/out || exit 13\n"
             "grep -q 'SigBlk:.*[1-9a-f]' /proc/self/status && exit 14\n"
             "exit 77",
             at);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    setenv("TN_CC", script("looks", text), 1);
    if (CHECK(tni_cc_open(&c, &why))) {
        CHECK(!tni_cc_find(&c, &why));
        test_that(strstr(why.s, "status 77") != NULL, "%s", why.s);
        tni_cc_close(&c);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (at >= 0) close(at);
    if (fd >= 0) close(fd);
    end();
}

static void without_a_folder_for_temporary_files_there_is_a_reason(void)
{
    tni_cc   c;
    tni_text why;
    setenv("TMPDIR", "/nowhere/at/all", 1);
    // /tmp is taken then; most machines have it.
    bool found = find(&c, NULL, &why);
    CHECK(found || why.s[0]);
    if (found) tni_cc_close(&c);
    unsetenv("TMPDIR");
}

// What a process that was killed left behind, an hour ago; what is younger or not ours stays.
static void leftovers_are_removed(void)
{
    static const char *const names[] = { "tmp/tenon-cc-aaaaaa", "tmp/tenon-cc-bbbbbb",
                                         "tmp/tenon-cc-notours" };
    struct timespec          old[2]  = { { .tv_sec = 1000 }, { .tv_sec = 1000 } };
    tni_cc                   c;
    tni_text                 why;
    if (!begin()) return;
    for (int i = 0; i < 3; i++) CHECK(mkdir(scratch_path(names[i]), 0700) == 0);
    CHECK(scratch_write(scratch_path("tmp/tenon-cc-aaaaaa/kernels.c"), "x", 1));
    CHECK(utimensat(AT_FDCWD, scratch_path(names[0]), old, 0) == 0);
    CHECK(utimensat(AT_FDCWD, scratch_path(names[2]), old, 0) == 0);
    if (find(&c, NULL, &why)) tni_cc_close(&c);
    CHECK(access(scratch_path(names[0]), F_OK) != 0);
    CHECK(rmdir(scratch_path(names[1])) == 0);
    CHECK(rmdir(scratch_path(names[2])) == 0);
    end();
}

const test_case tests_cc[] = {
    TEST(a_text_is_compiled_and_loaded),
    TEST(every_compiler_makes_code_for_this_chip),
    TEST(objects_with_the_same_names_are_apart),
    TEST(a_compiler_may_be_a_command_with_arguments),
    TEST(a_name_is_looked_for_on_the_path),
    TEST(none_turns_the_compiler_off),
    TEST(compilers_that_fail_are_refused_with_the_reason),
    TEST(what_a_compiler_makes_is_not_trusted),
    TEST(a_text_that_does_not_compile_says_why),
    TEST(a_compiler_that_hangs_is_ended),
    TEST(a_compiler_at_work_can_be_stopped),
    TEST(a_killed_process_leaves_no_compiler_behind),
    TEST(compiling_works_whatever_the_host_does_with_its_children),
    TEST(the_compiler_is_run_as_from_a_fresh_shell),
    TEST(leftovers_are_removed),
    TEST(without_a_folder_for_temporary_files_there_is_a_reason),
    TEST_END,
};
