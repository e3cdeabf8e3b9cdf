// test_spellings.c: the names of the public headers. Old spellings mean what the new ones do, the
// headers compile by every standard, and tn_X_with keeps the rule that tenon.h states.
#include "check.h"
#include "tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY  TN_BUILD_DIR "/libtenon.so"
#define WARNINGS "-Wall -Wextra -Wpedantic -Werror "

// Compiles test/laws/old_spellings.cpp with these flags and runs it.
static void runs_old_spellings(const char *compiler)
{
    char script[1024], out[4096];
    snprintf(script, sizeof script,
             "at=$(mktemp -d); trap 'rm -r $at' EXIT\n"
             "%s " WARNINGS "-Iinclude test/laws/old_spellings.cpp -x none -o $at/program '" LIBRARY
             "' -Wl,-rpath,'" TN_BUILD_DIR "' 2>&1 && TN_DEVICE=cpu $at/program",
             compiler);
    int status = tree_run(script, out, sizeof out);
    test_that(status == 0 && strstr(out, "all of them"), "%s: status %d: %.1000s", compiler, status,
              out);
}

static void old_spellings_mean_the_same_in_c(void)
{
    if (TN_SANITIZE[0]) SKIP("the program would need the sanitizer too");
    runs_old_spellings("'" TN_CC "' -std=c11 -x c");
    runs_old_spellings("'" TN_CC "' -std=c11 -DTN_PLAIN -x c");
}

static void old_spellings_mean_the_same_in_cpp(void)
{
    if (TN_SANITIZE[0]) SKIP("the program would need the sanitizer too");
    if (!tree_has("g++")) SKIP("g++ is not installed");
    runs_old_spellings("g++ -std=c++11");
    runs_old_spellings("g++ -std=c++20");
    runs_old_spellings("g++ -std=c++11 -DTN_PLAIN");
}

// Whether a program of this one line compiles.
static bool compiles(const char *flags, const char *line)
{
    char command[1024], out[8192];
    snprintf(command, sizeof command,
             "echo '%s' | '" TN_CC "' -std=c11 -Werror=implicit-function-declaration %s -Iinclude "
             "-include tenon.h -fsyntax-only -x c - 2>&1",
             line, flags);
    return tree_run(command, out, sizeof out) == 0;
}

static void old_spellings_can_be_hidden(void)
{
    static const char *const lines[] = {
        "int f(void) { return tn_devices(); }",
        "tn_stats f(tn_ctx *cx) { return tn_stats_get(cx); }",
        "tn_plan_memory f(tn_ctx *cx) { return tn_plan_bytes(cx); }",
        "tn_tensor *f(tn_tensor *w, tn_tensor *i) { return tn_embedding(w, i); }",
        "tn_status f(tn_optim *o) { return tn_optim_group(o, \"*\", 1, 0); }",
        "tn_reduce f(void) { return 0; }",
        "int f(void) { return TN_MEAN; }",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        test_that(compiles("", lines[i]), "does not compile: %s", lines[i]);
        test_that(!compiles("-DTN_NO_OLD", lines[i]), "is not hidden: %s", lines[i]);
    }
}

static void the_headers_compile_by_every_standard(void)
{
    static const char *const ways[] = {
        "gcc -std=c99 -x c",         "gcc -std=c11 -x c",         "gcc -std=c17 -x c",
        "clang -std=c99 -x c",       "clang -std=c17 -x c",       "g++ -std=c++11 -x c++",
        "g++ -std=c++14 -x c++",     "g++ -std=c++17 -x c++",     "g++ -std=c++20 -x c++",
        "clang++ -std=c++11 -x c++", "clang++ -std=c++20 -x c++",
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char compiler[16], command[512], out[2048];
        sscanf(ways[i], "%15s", compiler);
        if (!tree_has(compiler)) continue;
        snprintf(
            command, sizeof command,
            "for f in '' -DTN_NO_OLD -DTN_PLAIN; do echo '#include <tenon/models.h>' | %s $f " WARNINGS
            "-Iinclude -fsyntax-only - 2>&1 || exit 1; done",
            ways[i]);
        test_that(tree_run(command, out, sizeof out) == 0, "%s: %.1000s", ways[i], out);
    }
}

// ---- tn_X_with ---------------------------------------------------------------------------------

// The parameters of a row of sites.h, "tn_tensor *x, int axis", of the function with this name;
// NULL if there is none. `to` has room for them.
static char *parameters(const char *rows, const char *name, char *to, size_t room)
{
    char key[80];
    snprintf(key, sizeof key, "%s, (", name);
    const char *at = rows;
    while ((at = strstr(at, key)) && at[-1] != '(' && at[-1] != ' ') at++;
    if (!at) return NULL;
    at += strlen(key);
    const char *end = strstr(at, "), (");
    snprintf(to, room, "%.*s", (int)(end - at), at);
    return to;
}

// Checks one function tn_X_with: its parameters are those of tn_X and options.
static void check_with(const char *rows, const char *name)
{
    char with[512], plain[512], want[600], shorter[80];
    snprintf(shorter, sizeof shorter, "%.*s", (int)(strlen(name) - strlen("_with")), name);
    bool ok = parameters(rows, name, with, sizeof with) &&
              parameters(rows, shorter, plain, sizeof plain);
    snprintf(want, sizeof want, "%s, tn_", plain);
    ok = ok && !strncmp(with, want, strlen(want)) && !strchr(with + strlen(want), ',') &&
         strstr(with + strlen(want), "_opts o");
    test_that(ok, "%s is not %s with options", name, shorter);
}

static void with_means_the_same_call_and_options(void)
{
    char *rows  = tree_read("include/tenon/sites.h", NULL);
    int   count = 0;
    for (char *at = rows; at && (at = strstr(at, "_with, (")); at++) {
        char *start = at, name[80];
        while (start[-1] != '(' && start[-1] != ' ') start--;
        snprintf(name, sizeof name, "%.*s_with", (int)(at - start), start);
        check_with(rows, name);
        count++;
    }
    CHECK(count > 15);
    free(rows);
}

const test_case tests_spellings[] = {
    TEST(old_spellings_mean_the_same_in_c),     TEST(old_spellings_mean_the_same_in_cpp),
    TEST(old_spellings_can_be_hidden),          TEST(the_headers_compile_by_every_standard),
    TEST(with_means_the_same_call_and_options), TEST_END,
};
