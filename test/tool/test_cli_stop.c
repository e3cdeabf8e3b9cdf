// test_cli_stop.c: how the tool is stopped: by signals, in a step that never ends, before the first
// step.
#include "cli_kit.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// ---- a process of the tool

static void sleep_ms(int ms)
{
    nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L }, NULL);
}

// Starts the tool in the scratch folder, its output in the file "said".
static pid_t start(char *const *argv)
{
    const char *said = scratch_path("said"), *folder = scratch_path(".");
    pid_t       child = fork();
    if (child != 0) return child;
    if (chdir(folder) != 0 || !freopen(said, "w", stdout) || dup2(1, 2) < 0) _exit(99);
    for (int s = SIGHUP; s <= SIGTERM; s++) signal(s, SIG_DFL);  // also under nohup
    setenv("TN_DEVICE", "cpu", 1);
    execv(TN_BUILD_DIR "/tenon", argv);
    _exit(99);
}

// Waits for it to end; its status as waitpid has it, -1 after a minute: then it is killed. With a
// sanitizer, on a busy machine, looking for leaks alone takes a quarter of that.
static int status_of(pid_t child)
{
    int status;
    for (int i = 0; i < 6000; i++, sleep_ms(10))
        if (waitpid(child, &status, WNOHANG) == child) return status;
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return -1;
}

static bool is_running(pid_t child)
{
    return kill(child, 0) == 0 && waitpid(child, &(int){ 0 }, WNOHANG) == 0;
}

// Waits until a file is there and has the text.
static bool comes(const char *name, const char *text)
{
    for (int i = 0; i < 3000; i++, sleep_ms(10)) {
        size_t n;
        char  *s = scratch_read(scratch_path(name), &n);
        if (s) s[n] = 0;  // for which there is room
        bool there = s && strstr(s, text);
        free(s);
        if (there) return true;
    }
    return false;
}

static void ends_by(pid_t child, int signal_number)
{
    int status = status_of(child);
    test_that(status >= 0 && WIFSIGNALED(status) && WTERMSIG(status) == signal_number,
              "the status is 0x%x, not that of signal %d", (unsigned)status, signal_number);
}

// ---- a step that never ends

// A BLAS whose product leaves a note and sleeps for ever.
static bool build_sleeping_blas(void)
{
    static const char source[] =
        "#include <stdio.h>\n#include <unistd.h>\n"
        "void cblas_sgemm(void) { FILE *f = fopen(\"asleep\", \"w\"); fputs(\"asleep\", f);"
        " fclose(f); for (;;) pause(); }\n"
        "void cblas_dgemm(void) { cblas_sgemm(); }\n";
    CHECK(scratch_write(scratch_path("blas.c"), source, sizeof source - 1));
    return runs(0, "'" TN_CC "' -shared -fPIC -o blas.so blas.c");
}

static char *const long_run[] = { "tenon",  "train",          "--model", "mlp",      "--data",
                                  "digits", "--hidden",       "512,512", "--epochs", "1000",
                                  "--save", "it.safetensors", NULL };

static void end_in_a_step(int signal_number)
{
    unlink(scratch_path("asleep"));
    pid_t child = start(long_run);
    if (!CHECK(comes("asleep", "asleep"))) {
        kill(child, SIGKILL);
        return;
    }
    kill(child, signal_number);
    CHECK(comes("said", "stopping after this step; a second signal ends it at once\n"));
    sleep_ms(400);
    CHECK(is_running(child));
    kill(child, signal_number);
    ends_by(child, signal_number);
    CHECK(comes("said", "tenon: ended at once; earlier saved files stay\n"));
}

static void a_second_signal_ends_a_step_that_hangs(void)
{
    char path[512];
    if (!begin() || !build_sleeping_blas()) return;
    snprintf(path, sizeof path, "%s", scratch_path("blas.so"));
    setenv("TN_BLAS", path, 1);
    end_in_a_step(SIGINT);
    end_in_a_step(SIGTERM);
    unsetenv("TN_BLAS");
    scratch_close();
}

// timeout(1) sends its signal to the process and to the group.
static void two_signals_at_once_are_one_request(void)
{
    if (!begin()) return;
    pid_t child = start(long_run);
    CHECK(comes("said", "epochs of"));
    sleep_ms(500);
    kill(child, SIGTERM);
    sleep_ms(5);
    kill(child, SIGTERM);
    int status = status_of(child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGTERM);
    CHECK(comes("said", "; saved\nresume with: "));
    scratch_close();
}

// A log that nobody takes keeps the tool from its first step, in which nothing can be lost.
static void a_signal_before_the_first_step_ends_the_run(void)
{
    static char *const argv[] = { "tenon",  "train", "--model", "mlp", "--data",
                                  "digits", "--log", "fifo",    NULL };
    if (!begin()) return;
    CHECK_INT(mkfifo(scratch_path("fifo"), 0600), 0);
    pid_t child = start(argv);
    sleep_ms(300);
    CHECK(is_running(child));
    kill(child, SIGTERM);
    ends_by(child, SIGTERM);
    scratch_close();
}

// Whether a file beside p.csv is there, or p.csv itself.
static bool is_something_written(void)
{
    bool           is = false;
    DIR           *d  = opendir(scratch_path("."));
    struct dirent *e;
    while (d && (e = readdir(d)) != NULL) is = is || !strncmp(e->d_name, "p.csv", 5);
    if (d) closedir(d);
    return is;
}

// Lines that nobody writes keep the tool in the middle of its predictions.
static void a_prediction_that_is_ended_leaves_no_file(void)
{
    static char *const argv[] = {
        "tenon", "predict", "--load", "m", "fifo", "--out", "p.csv", NULL
    };
    static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
    if (!begin()) return;
    CHECK_INT(mkfifo(scratch_path("fifo"), 0600), 0);
    runs(0, "yes ab | head -300 >t.txt; tenon train --model gpt2 --layers 1 --heads 1 --width 8"
            " --context 8 --epochs 1 --data text:t.txt --save m --quiet");
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        pid_t child = start(argv);
        for (int k = 0; k < 1000 && !is_something_written(); k++) sleep_ms(10);
        CHECK(is_something_written());
        kill(child, signals[i]);
        ends_by(child, signals[i]);
        CHECK(!is_something_written());
    }
    scratch_close();
}

const test_case tests_cli_stop[] = {
    TEST(a_second_signal_ends_a_step_that_hangs),
    TEST(two_signals_at_once_are_one_request),
    TEST(a_signal_before_the_first_step_ends_the_run),
    TEST(a_prediction_that_is_ended_leaves_no_file),
    TEST_END,
};
