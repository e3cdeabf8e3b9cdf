// test_fuzz.c: every reader of files, fuzzed for a few seconds with sanitizers. `make fuzz` takes
// longer.
#include "check.h"
#include "tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SECONDS = 2 };

// Structs are those of the library that is linked.
#ifdef TN_DEBUG
#define CHECKED " -DTN_DEBUG=ON"
#else
#define CHECKED ""
#endif

static bool has_sanitizers(void)
{
    char out[256];
    return tree_run("at=$(mktemp -d) && echo 'int main(void) { return 0; }' > $at/a.c &&"
                    " '" TN_CC "' -fsanitize=address,undefined $at/a.c -o $at/a && $at/a;"
                    " status=$?; rm -r $at; exit $status",
                    out, sizeof out) == 0;
}

// Builds the fuzzer in a folder, which is made a sanitized build if it is none yet: without
// optimization, and of the readers alone, since compiling takes longer than the fuzzing here. What
// they call beyond them, such as devices, is that of this build; `make fuzz` watches all of it.
static bool build(const char *folder)
{
    char script[2048], out[4096];
    snprintf(
        script, sizeof script,
        "mkdir -p '%s' && cd '%s' || exit 1\n"
        "grep -q FUZZ_LIBRARY CMakeCache.txt 2>/dev/null || {\n"
        "    launcher=$(command -v ccache) && set -- -DCMAKE_C_COMPILER_LAUNCHER=\"$launcher\"\n"
        "    cmake -S '" TN_SOURCE_DIR "' -B . -DCMAKE_C_COMPILER='" TN_CC "'"
        " -DSANITIZE=address,undefined '-DSANITIZE_FLAGS=-O0;-g1' '-DFUZZ_LIBRARY=" TN_BUILD_DIR
        "/libtenon.a'" CHECKED " \"$@\" >fuzz.log || { cat fuzz.log; exit 1; }\n"
        "}\n"
        "MAKEFLAGS= cmake --build . --parallel 2 --target tenon-fuzz >fuzz.log 2>&1 ||"
        " { tail -n 40 fuzz.log; exit 1; }\n",
        folder, folder);
    int status = tree_run(script, out, sizeof out);
    return test_that(status == 0, "tenon-fuzz cannot be built: %s", out);
}

// Findings are left in the build folder.
static void fuzz(const char *folder, const char *target)
{
    char command[1024], out[8192];
    snprintf(command, sizeof command, "cd '%s' && ./tenon-fuzz '%s' %d 2>&1", folder, target,
             SECONDS);
    int status = tree_run(command, out, sizeof out);
    test_case_result(status == 0, "%s: %s", target, out);
}

static void no_damaged_file_does_harm(void)
{
    bool        here   = strstr(TN_SANITIZE, "address") != NULL;
    const char *folder = here ? TN_BUILD_DIR : TN_BUILD_DIR "/fuzz";
    char        list[1024], command[512];
    if (strstr(TN_SANITIZE, "thread")) SKIP("readers have no threads");
    if (!here && !has_sanitizers()) SKIP("the compiler has no sanitizers");
    if (!build(folder)) return;
    snprintf(command, sizeof command, "'%s/tenon-fuzz' --list", folder);
    if (!CHECK_INT(tree_run(command, list, sizeof list), 0)) return;
    for (char *name = strtok(list, "\n"); name; name = strtok(NULL, "\n")) fuzz(folder, name);
}

const test_case tests_fuzz[] = {
    TEST(no_damaged_file_does_harm),
    TEST_END,
};
