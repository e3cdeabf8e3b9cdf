// test_examples.c: what a newcomer runs first: the examples, the program in the README, the tool.
#include "check.h"
#include "scratch.h"
#include "tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon.h>
#include <unistd.h>

enum { ROOM = 1 << 16, COMMAND = 2048 };

static char out[ROOM];  // what the last program printed

// Runs a command; its status and output are checked against what is expected of it. A status below
// zero stands for any but zero.
static void runs(const char *command, int status, const char *const *lines)
{
    int got = tree_run(command, out, sizeof out);
    test_that(status < 0 ? got != 0 : got == status, "%s: status %d: %.300s", command, got, out);
    for (; lines && *lines; lines++)
        test_that(strstr(out, *lines) != NULL, "%s does not print \"%s\" but: %.300s", command,
                  *lines, out);
}

#define LINES(...) ((const char *const[]){ __VA_ARGS__, NULL })

// ---- examples

// What an example prints, in part, and how many steps it takes here, if not all: a minute of
// training is for people.
static const struct {
    const char *name, *line[2], *steps;
} expected[] = {
    { "01_tensor", { "[[10. 21. 32.]\n [40. 51. 62.]]", "TN_ESHAPE: matmul" }, NULL },
    { "02_autograd", { "d(x^3)/dx at 2: 12", "w = 3.0" }, NULL },
    { "03_mlp", { "step 1250  loss 0.", "test accuracy 9" }, NULL },
    { "04_conv", { "norm2 (BatchNorm)", "step 120  lr 0.000" }, NULL },
    { "05_gpt", { "110336 parameters", "This is the" }, NULL },
    { "06_custom_op", { "0.5        1.20710678", "gradients agree" }, NULL },
    { "07_save_and_resume", { "resumed at step 25, update 12", "60 steps: equal" }, NULL },
    { "10_vae", { "step    0  error ", "divergence  0.0" }, "4" },
    { "11_gan", { "step    0  critic 1.", "generator 0." }, "4" },
    { "12_diffusion", { " parameters", "step    0  loss " }, "4" },
    { "13_ctc", { "step   0  loss ", "of 32 strips without an error" }, "4" },
    { "14_report", { "report.html is a page of 20 steps", "tensorboard" }, "20" },
    { "08_custom_cuda", { "largest difference from the composed op", "they agree" }, NULL },
};

// Where the examples run: they leave files behind.
#define WORK TN_BUILD_DIR "/examples/work"

static const char *steps_of(const char *name)
{
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        if (!strcmp(expected[i].name, name) && expected[i].steps) return expected[i].steps;
    return "";
}

// Calls f for every example of the source tree, with the command that runs it. Those that train
// take the number of steps; few is for places where each step is slow, of those that have few here
// a single one.
static void each_example(bool few, void (*f)(const char *name, const char *command))
{
    tree_list l = { 0 };
    tree_add(&l, "examples", ".c");
    tree_sort(&l);
    CHECK(l.count > 0);
    for (int i = 0; i < l.count; i++) {
        char name[256], command[COMMAND];
        snprintf(name, sizeof name, "%s", strrchr(l.path[i], '/') + 1);
        name[strlen(name) - 2] = 0;
        snprintf(command, sizeof command, "'%s/examples/%s' %s", TN_BUILD_DIR, name,
                 !few              ? steps_of(name)
                 : *steps_of(name) ? "1"
                                   : "2");
        f(name, command);
    }
    tree_free(&l);
}

static void run_example(const char *name, const char *command)
{
    char line[COMMAND + 512];
    snprintf(line, sizeof line, "mkdir -p '" WORK "' && cd '" WORK "' && %s", command);
    runs(line, 0, NULL);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        for (int k = 0; k < 2 && !strcmp(expected[i].name, name); k++)
            test_that(strstr(out, expected[i].line[k]) != NULL, "%s does not print \"%s\"", name,
                      expected[i].line[k]);
}

static void every_example_runs(void)
{
    each_example(false, run_example);
}

static void run_on_ref(const char *name, const char *command)
{
    char line[COMMAND + 512];
    (void)name;
    snprintf(line, sizeof line, "mkdir -p '" WORK "' && cd '" WORK "' && TN_DEVICE=ref %s",
             command);
    runs(line, 0, NULL);
}

static void every_example_runs_on_the_reference_device(void)
{
    each_example(true, run_on_ref);
}

// Those that train long are like the others to valgrind, which takes half a minute for a step of
// each: they are for `make test-long`.
static void run_in_valgrind(const char *name, const char *command)
{
    char line[COMMAND + 512];
    if (*steps_of(name) && !test_long()) return;
    snprintf(line, sizeof line,
             "mkdir -p '" WORK "' && cd '" WORK "' && "
             "TN_BLAS=none TN_NUM_THREADS=2 valgrind -q --error-exitcode=9 --leak-check=full %s",
             command);
    runs(line, 0, NULL);
}

static void valgrind_finds_nothing_in_the_examples(void)
{
    if (TN_SANITIZE[0]) SKIP("valgrind does not run sanitized programs");
    if (!tree_has("valgrind")) SKIP("valgrind is not installed");
    each_example(true, run_in_valgrind);
}

static void every_example_is_a_lesson_of_at_most_120_lines(void)
{
    tree_list l = { 0 };
    tree_add(&l, "examples", ".c");
    for (int i = 0; i < l.count; i++) {
        char *text  = tree_read(l.path[i], NULL);
        int   lines = 0;
        for (char *s = text; s && (s = strchr(s, '\n')) != NULL; s++) lines++;
        test_that(lines > 0 && lines <= 120, "%s has %d lines", l.path[i], lines);
        test_that(text && strncmp(text, "// ", 3) == 0, "%s does not say what it is", l.path[i]);
        free(text);
    }
    tree_free(&l);
}

// ---- the README

// The first block of C in a page, cut out in place; NULL if there is none.
static char *first_c_block(char *page)
{
    char *begin = strstr(page, "```c\n");
    char *end   = begin ? strstr(begin + 5, "```") : NULL;
    if (!end) return NULL;
    *end = 0;
    return begin + 5;
}

static void build_and_run(const char *program)
{
    char command[COMMAND];
    CHECK(scratch_write(scratch_path("readme.c"), program, strlen(program)));
    snprintf(command, sizeof command,
             "'%s' -std=c11 -Wall -Wextra -Wpedantic -Werror %s%s '%s' -o '%s' -Iinclude"
             " -L'%s' -ltenon -Wl,-rpath,'%s' && cd '%s' && ./readme",
             TN_CC, TN_SANITIZE[0] ? "-fsanitize=" : "", TN_SANITIZE, scratch_path("readme.c"),
             scratch_path("readme"), TN_BUILD_DIR, TN_BUILD_DIR, scratch_path("."));
    runs(command, 0, LINES("step   0  loss 2.3", "step 500  loss 0."));
}

static void the_program_in_the_readme_runs(void)
{
    char *page    = tree_read("README.md", NULL);
    char *program = page ? first_c_block(page) : NULL;
    if (CHECK(program != NULL) && CHECK(scratch_open())) {
        build_and_run(program);
        scratch_close();
    }
    free(page);
}

// ---- the tool

#define TOOL "'" TN_BUILD_DIR "/tenon' "

static void the_tool_tells_its_version(void)
{
    char want[64];
    snprintf(want, sizeof want, "tenon %s\n", tn_version());
    runs(TOOL "version", 0, LINES(want));
    runs(TOOL "--version", 0, LINES(want));
}

static void the_tool_explains_its_commands(void)
{
    runs(TOOL "help", 0, LINES("usage: tenon COMMAND", "demo", "devices", "doctor", "version"));
    runs(TOOL "help demo", 0, LINES("tenon demo: "));
    runs(TOOL "help doctor", 0, LINES("tenon doctor: "));
}

static void the_tool_refuses_unknown_commands(void)
{
    runs(TOOL "nonsense 2>&1 >/dev/null", 2, LINES("no command \"nonsense\"", "usage: "));
    runs(TOOL "help nonsense 2>&1 >/dev/null", 2, LINES("no command \"nonsense\""));
    runs(TOOL "2>&1 >/dev/null", 2, LINES("usage: "));
}

static void the_tool_lists_the_devices(void)
{
    runs(TOOL "devices", 0, LINES("cpu ", "ref ", "ready"));
}

static void the_doctor_says_what_is_there_and_what_is_not(void)
{
    runs(TOOL "doctor", 0,
         LINES("devices\n  cpu ", "threads\n", "matrix products\n", "compiler\n",
               "compiled kernels\n", "pictures\n  JPEG  ",
               "ranks\n  no launcher: one rank\n  mpi  ", "environment\n", "  cuda     "));
    runs("TN_CC=none TN_CACHE_DIR=none " TOOL "doctor", 0,
         LINES("none, kernels are interpreted: ", "not kept: "));
    runs("TN_BLAS=none TN_NUM_THREADS=3 " TOOL "doctor", 0,
         LINES("3, from TN_NUM_THREADS", "Tenon's own", "unset TN_BLAS", "  TN_BLAS=none\n"));
    runs("TN_NUM_THREADS=some " TOOL "doctor", 0, LINES("TN_NUM_THREADS=some is not a number"));
    runs("TN_DEVICE=none " TOOL "doctor", 0,
         LINES("tn_open(NULL) fails: open: there is no device"));
}

static void a_full_disk_is_an_error_of_the_tool(void)
{
    if (access("/dev/full", W_OK) != 0) SKIP("there is no /dev/full");
    runs(TOOL "doctor 2>&1 >/dev/full", 1, LINES("could not be written"));
}

const test_case tests_examples[] = {
    TEST(every_example_runs),
    TEST(every_example_runs_on_the_reference_device),
    TEST(every_example_is_a_lesson_of_at_most_120_lines),
    TEST(valgrind_finds_nothing_in_the_examples),
    TEST(the_program_in_the_readme_runs),
    TEST(the_tool_tells_its_version),
    TEST(the_tool_explains_its_commands),
    TEST(the_tool_refuses_unknown_commands),
    TEST(the_tool_lists_the_devices),
    TEST(the_doctor_says_what_is_there_and_what_is_not),
    TEST(a_full_disk_is_an_error_of_the_tool),
    TEST_END,
};
