// test_runner.c: the runner of the tests, run by itself: files one after another and at once, with
// tests that go wrong on purpose.
#include "check.h"
#include "tree.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROOM = 1 << 14 };

// ---- what goes wrong

static bool is_wanted(void)
{
    const char *text = getenv("TN_TEST_MISTAKE");
    return text && !strcmp(text, "runner");
}

static void on_purpose_a_check_fails(void)
{
    CHECK(!is_wanted());
    if (is_wanted()) fprintf(stderr, "it fails\n");
}

// Not by a signal that a sanitizer would take.
static void on_purpose_it_is_killed(void)
{
    if (is_wanted()) raise(SIGKILL);
}

static void on_purpose_it_takes_long(void)
{
    if (is_wanted()) sleep(100);
}

static void on_purpose_it_leaves(void)
{
    if (is_wanted()) exit(3);
}

static void on_purpose_nothing_happens(void)
{
    CHECK(true);
}

// ---- what the runner says

#define PROGRAM "'" TN_BUILD_DIR "/tenon-tests' "

static bool is_built(void)
{
    return access(TN_BUILD_DIR "/tenon-tests", X_OK) == 0;
}

static int run_mistakes(int jobs, char *out)
{
    char command[512];
    snprintf(command, sizeof command,
             "TN_TEST_MISTAKE=runner TN_TEST_LIMIT=1 " PROGRAM
             "-j %d runner/on_purpose json/ print/ npy/",
             jobs);
    return tree_run(command, out, ROOM);
}

// The counts, which end the output.
static const char *totals(const char *out)
{
    const char *at = strstr(out, "\ntables: ");
    return at ? at : out;
}

// What a file prints stays together, and its line comes last.
static void check_mistakes(const char *out)
{
    static const char want[] = "FAIL runner/on_purpose_it_is_killed: crashed: Killed\n"
                               "FAIL runner/on_purpose_it_takes_long: took more than 1 s\n"
                               "FAIL runner/on_purpose_it_leaves: the process ended with status 3\n"
                               "runner              1 passed   4 failed   0 skipped ";
    test_that(strstr(out, "FAIL runner/on_purpose_a_check_fails: ") != NULL, "%.600s", out);
    test_that(strstr(out, "!is_wanted()\nit fails\nFAIL ") != NULL, "%.600s", out);
    test_that(strstr(out, want) != NULL, "%.600s", out);
    test_that(strstr(totals(out), " 4 failed, 0 skipped\n") != NULL, "%.600s", out);
}

static void files_at_once_say_what_they_say_one_by_one(void)
{
    static char one[ROOM], several[ROOM];
    if (!is_built()) SKIP("tenon-tests is not built");
    CHECK_INT(run_mistakes(1, one), 1);
    CHECK_INT(run_mistakes(3, several), 1);
    check_mistakes(one);
    check_mistakes(several);
    CHECK_STR(totals(several), totals(one));
}

// Whoever still runs holds a pipe open, that of descriptor 9. Only the runner gets the signal.
static void who_ends_the_runner_ends_its_tests(void)
{
    char out[1024];
    if (access("/proc/self/status", R_OK) != 0) SKIP("this is no Linux");
    if (!is_built()) SKIP("tenon-tests is not built");
    int status = tree_run("TN_TEST_MISTAKE=runner timeout --foreground 1 " PROGRAM
                          "-j 2 runner/on_purpose_it_takes_long json/ 9>&1 >/dev/null 2>&1 |"
                          " timeout 20 cat",
                          out, sizeof out);
    CHECK_INT(status, 0);
}

static void the_runner_refuses_what_is_no_number_of_jobs(void)
{
    static const char *const bad[] = { "-j", "-j 0", "-j some", "--jobs -3", "--job 3" };
    char                     command[256], out[1024];
    if (!is_built()) SKIP("tenon-tests is not built");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(command, sizeof command, PROGRAM "%s", bad[i]);
        CHECK_INT(tree_run(command, out, sizeof out), 2);
        CHECK(strstr(out, "usage: tenon-tests ") != NULL);
    }
}

const test_case tests_runner[] = {
    TEST(on_purpose_a_check_fails),
    TEST(on_purpose_it_is_killed),
    TEST(on_purpose_it_takes_long),
    TEST(on_purpose_it_leaves),
    TEST(on_purpose_nothing_happens),
    TEST(files_at_once_say_what_they_say_one_by_one),
    TEST(who_ends_the_runner_ends_its_tests),
    TEST(the_runner_refuses_what_is_no_number_of_jobs),
    TEST_END,
};
