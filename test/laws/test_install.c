// test_install.c: what was built, seen from outside: exported names, size, warnings, and programs
// that use an installed Tenon.
#include "check.h"
#include "nvidia_headers.h"
#include "tree.h"

#include <ctype.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIBRARY TN_BUILD_DIR "/libtenon.so"

// What a program that links Tenon carries along. On ARM 3.0 MB held tensors, networks and language
// models, half a megabyte more pictures, linear algebra, recurrences, transforms and sparse
// matrices; ONNX's operators are the next. x86 has each kernel of the CPU three times, for AVX2,
// AVX-512 and neither, which takes a megabyte.
enum { MAX_BYTES = 5000000, MIN_FUNCTIONS = 150 };

static bool is_sanitized(void)
{
    return TN_SANITIZE[0] != 0;
}

// Fails the running test with what the command printed, unless it exits with 0.
static bool must_run(const char *command)
{
    char out[1024];
    if (tree_run(command, out, sizeof out) == 0) return true;
    CHECK_STR(out, "success");
    return false;
}

// ---- the shared library

// Whether `name` stands in the text as a whole word.
static bool has_word(const char *text, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = text; (at = strstr(at, name)) != NULL; at += n) {
        char before = at > text ? at[-1] : ' ';
        if (isalnum((unsigned char)before) || before == '_') continue;
        if (isalnum((unsigned char)at[n]) || at[n] == '_') continue;
        return true;
    }
    return false;
}

// All public headers after the preprocessor, so that declarations made by macros are seen.
static int preprocess_headers(char *out, size_t size)
{
    return tree_run("(cd include && for h in tenon.h $(ls tenon/*.h 2>/dev/null); do"
                    " echo \"#include <$h>\"; done)"
                    " | '" TN_CC "' -std=c11 -E -P -Iinclude -x c -",
                    out, size);
}

static void the_library_exports_declared_tn_names_only(void)
{
    if (is_sanitized()) SKIP("a sanitizer exports names of its own");
    enum { ROOM = 1 << 21 };
    char *names   = malloc(ROOM);
    char *headers = malloc(ROOM);
    int   count   = 0;
    if (CHECK(names && headers) &&
        CHECK_INT(tree_run("nm -D --defined-only '" LIBRARY "' | awk '{ print $NF }'", names, ROOM),
                  0) &&
        CHECK_INT(preprocess_headers(headers, ROOM), 0)) {
        for (char *name = strtok(names, "\n"); name; name = strtok(NULL, "\n"), count++) {
            bool ours = strncmp(name, "tn_", 3) == 0;
            test_that(ours, "%s is exported", name);
            if (ours) test_that(has_word(headers, name), "%s is not declared in include/", name);
        }
        CHECK(count >= MIN_FUNCTIONS);
    }
    free(names);
    free(headers);
}

// Returns how many bytes of a library a program loads: code and data, without the names of
// functions that are not exported, which a package strips and only profilers read. -1 if the file
// is none.
static int64_t loaded_bytes(const char *path)
{
    FILE      *f = fopen(path, "rb");
    Elf64_Ehdr head;
    Elf64_Phdr part;
    int64_t    bytes = 0;
    bool ok = f && fread(&head, sizeof head, 1, f) == 1 && !memcmp(head.e_ident, ELFMAG, SELFMAG) &&
              fseek(f, (long)head.e_phoff, SEEK_SET) == 0;
    for (int i = 0; ok && i < head.e_phnum; i++) {
        ok = fread(&part, sizeof part, 1, f) == 1;
        if (ok && part.p_type == PT_LOAD) bytes += (int64_t)part.p_filesz;
    }
    if (f) fclose(f);
    return ok ? bytes : -1;
}

static void the_library_is_under_5_megabytes(void)
{
    if (is_sanitized()) SKIP("a sanitized library is larger");
    if (TEST_DEBUG) SKIP("a debug build is larger");
    int64_t bytes = loaded_bytes(LIBRARY);
    test_that(bytes > 0 && bytes < MAX_BYTES, "%s: %lld bytes", LIBRARY, (long long)bytes);
}

// ---- warnings

// The flags of CMakeLists.txt, and for every source the include folders it is built with. The files
// of test/cuda/headers are put aside: they need those of NVIDIA.
#define SYNTAX_CHECK                                                                                                     \
    "set -e\n"                                                                                                           \
    "flags='-std=c11 -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Wshadow -Werror -fwrapv -Iinclude "                         \
    "-Isrc -Itest -Itest/kits -DTN_SOURCE_DIR=\"\" -DTN_BUILD_DIR=\"\" -DTN_CC=\"\" -DTN_SANITIZE=\"\" -DTN_WERROR=0'\n" \
    "all=$(find src models cli test bench examples -name '*.c' 2>/dev/null | grep \"$only\" | sort)\n"                   \
    "core=$(echo \"$all\" | grep '^src/' | grep -v '_avx[0-9]*\\.c$') || core=\n"                                        \
    "plain=$(echo \"$all\" | grep -v '^src/' | grep -v '^test/cuda/headers/' | grep -v \"$but\") || plain=\n"            \
    "real=$(echo \"$all\" | grep '^test/cuda/headers/') || real=\n"                                                      \
    "avx=$(echo \"$all\" | grep '_avx[0-9]*\\.c$') || avx=\n"                                                            \
    "echo $core | xargs -r -P 4 -n 8 $cc $flags -DTN_INSIDE -fsyntax-only\n"                                             \
    "echo $plain | xargs -r -P 4 -n 8 $cc $flags -fsyntax-only\n"                                                        \
    "[ -z \"$avx\" ] || [ $(uname -m) != x86_64 ] || echo $avx | xargs -n 8 $cc $flags -DTN_INSIDE"                      \
    " -mavx2 -mfma -mf16c -mavx512f -mavx512vl -mavx512dq -mavx512bw -fsyntax-only\n"

// only: files whose paths match are looked at; but: not at those of them outside of src whose paths
// match. Where no headers of NVIDIA are installed, nor are the files that need them.
static void gives_no_warning(const char *cc, const char *only, const char *but)
{
    enum { ROOM = NVIDIA_FLAGS + sizeof SYNTAX_CHECK + 200 };
    char folder[NVIDIA_PATH], nvidia[NVIDIA_FLAGS], command[ROOM];
    bool found = nvidia_headers_find(folder);
    if (!tree_has(cc)) SKIP("%s is not installed", cc);
    int n = snprintf(command, ROOM, "cc=%s only='%s' but='%s'\n%s", cc, only, but, SYNTAX_CHECK);
    if (found) nvidia_headers_flags(folder, nvidia);
    else printf("test/cuda/headers is not looked at: %s\n", NVIDIA_NO_HEADERS);
    if (found && !strcmp(only, "."))
        snprintf(command + n, ROOM - (size_t)n, "echo $real | xargs $cc $flags %s -fsyntax-only\n",
                 nvidia);
    must_run(command);
}

// Where gcc has built Tenon and warnings were errors, what `make test` does not build is left.
static void gcc_gives_no_warning(void)
{
    const char *only = ".";
#ifndef __clang__
    if (TN_WERROR) only = "^test/\\(fuzz\\|onnx\\|peer\\|standin\\|transformers\\)/";
#endif
    gives_no_warning("gcc", only, "^$");
}

// Most of what clang finds in tests, gcc finds too: a plain run leaves them to it.
static void clang_gives_no_warning(void)
{
    gives_no_warning("clang", ".", test_long() ? "^$" : "^test/");
}

static void the_header_is_one_for_cpp_too(void)
{
    if (!tree_has("g++")) SKIP("g++ is not installed");
    must_run("at=$(mktemp -d)\n"
             "cat > $at/header.cpp <<'END'\n"
             "#include <tenon.h>\n"
             "tn_tensor *(*f)(tn_tensor *) = tn_relu;\n"
             "tn_tensor *g(tn_ctx *cx)\n"
             "{\n"
             "    tn_tensor *x = tn_ones(cx, TN_F32, TN_SHAPE(2, 3));\n"
             "    return tn_sum_axes(tn_permute(f(x), TN_AXES(1, 0)), TN_AXES(0, 1), false);\n"
             "}\n"
             "END\n"
             "g++ -Wall -Wextra -Werror -Iinclude -fsyntax-only $at/header.cpp\n"
             "rm -r $at\n");
}

// ---- C++

// Compiles a program by several standards, with all warnings, and runs it; what it prints has these
// lines.
static void runs_in_cpp(const char *path, const char *const *lines)
{
    static const char *const standards[] = { "c++11", "c++17", "c++20" };

    char script[1024], out[4096];
    if (is_sanitized()) SKIP("the program would need the sanitizer too");
    if (!tree_has("g++")) SKIP("g++ is not installed");
    for (size_t i = 0; i < sizeof standards / sizeof *standards; i++) {
        snprintf(
            script, sizeof script,
            "at=$(mktemp -d); trap 'rm -r $at' EXIT\n"
            "g++ -std=%s -Wall -Wextra -Wpedantic -Werror -Iinclude %s -o $at/program '" LIBRARY
            "' -Wl,-rpath,'" TN_BUILD_DIR "' 2>&1 && TN_DEVICE=cpu $at/program",
            standards[i], path);
        int status = tree_run(script, out, sizeof out);
        test_that(status == 0, "%s: status %d: %.500s", standards[i], status, out);
        for (int k = 0; lines[k]; k++)
            test_that(strstr(out, lines[k]) != NULL, "%s: no \"%s\" in %.500s", standards[i],
                      lines[k], out);
    }
}

static void the_cpp_example_runs(void)
{
    static const char *const lines[] = { "step 60  loss 0.0", "y = 3.0 x -2.0\n",
                                         "add: shapes (2, 3) and (4,) do not broadcast", NULL };
    runs_in_cpp("examples/09_cpp.cpp", lines);
}

static void the_cpp_layer_keeps_its_word(void)
{
    static const char *const lines[] = { "all of it\n", NULL };
    runs_in_cpp("test/laws/cpp_layer.cpp", lines);
}

// ---- call forms

// A program in C or C++ that calls a composed op in both ways; what it leaves are its two tensors.
static const char forms[] = "#include <tenon.h>\n"
                            "int main(void)\n"
                            "{\n"
                            "    tn_tensor *(*f)(tn_tensor *) = tn_gelu;\n"
                            "    tn_ctx    *cx = tn_open(\"cpu\");\n"
                            "    tn_tensor *x  = tn_zeros(cx, TN_F32, TN_SHAPE(2));\n"
                            "    tn_eval_of(x);\n"
                            "    for (int i = 0; i < 1000; i++) tn_drop(tn_gelu(x));\n"
                            "    int64_t called = tn_ctx_stats(cx).nodes;\n"
                            "    for (int i = 0; i < 1000; i++) tn_drop(f(x));\n"
                            "    int64_t pointed = tn_ctx_stats(cx).nodes;\n"
                            "    printf(\"%d and %d nodes\", (int)called, (int)pointed);\n"
                            "    tn_close(cx);\n"
                            "    return called == 1 && pointed == 1 ? 0 : 3;\n"
                            "}\n";

static void leaves_no_temporaries(const char *compiler, const char *source)
{
    char script[4096];
    snprintf(script, sizeof script,
             "set -e; at=$(mktemp -d); trap 'rm -r $at' EXIT\n"
             "cat > $at/%s <<'END'\n%sEND\n"
             "%s -Iinclude $at/%s -o $at/forms '" LIBRARY "' -Wl,-rpath,'" TN_BUILD_DIR "'\n"
             "$at/forms\n",
             source, forms, compiler, source);
    must_run(script);
}

static void macros_pointers_and_plain_calls_leave_no_temporaries(void)
{
    if (is_sanitized()) SKIP("the program would need the sanitizer too");
    leaves_no_temporaries("'" TN_CC "' -std=c11", "forms.c");
    leaves_no_temporaries("'" TN_CC "' -std=c11 -DTN_PLAIN", "forms.c");
}

static void in_cpp_too(void)
{
    if (is_sanitized()) SKIP("the program would need the sanitizer too");
    if (!tree_has("g++")) SKIP("g++ is not installed");
    leaves_no_temporaries("g++", "forms.cpp");
    leaves_no_temporaries("g++ -DTN_PLAIN", "forms.cpp");
}

// ---- an installed Tenon

static const char consumer[] = "#include <tenon.h>\n"
                               "int main(void)\n"
                               "{\n"
                               "    tn_ctx *cx = tn_open(\"cpu\");\n"
                               "    tn_tensor *x = tn_scalar(cx, 2.0);\n"
                               "    double y = tn_item(tn_add(x, x));\n"
                               "    tn_close(cx);\n"
                               "    return y == 4.0 ? 0 : 3;\n"
                               "}\n";

static const char project[] = "cmake_minimum_required(VERSION 3.18)\n"
                              "project(consumer C)\n"
                              "find_package(tenon CONFIG REQUIRED)\n"
                              "add_executable(shared main.c)\n"
                              "add_executable(static main.c)\n"
                              "target_link_libraries(shared PRIVATE tenon::tenon)\n"
                              "target_link_libraries(static PRIVATE tenon::static)\n";

static bool write_file(const char *folder, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    return f && fputs(text, f) >= 0 && fclose(f) == 0;
}

// Installs the build below a new temporary folder, puts the consumer beside it and runs the
// command there, with $prefix, $lib and $cc set.
static void with_installed(const char *command)
{
    char dir[] = "/tmp/tenon-test-XXXXXX", script[4096], out[64];
    if (!CHECK(mkdtemp(dir) != NULL)) return;
    snprintf(
        script, sizeof script,
        "set -e; cd '%s'; prefix=$PWD/prefix; cc='%s'\n"
        "cmake --install '%s' --prefix \"$prefix\" >install.log || { cat install.log; exit 1; }\n"
        "lib=$(dirname \"$(find \"$prefix\" -name libtenon.a)\")\n%s",
        dir, TN_CC, TN_BUILD_DIR, command);
    if (CHECK(write_file(dir, "main.c", consumer)) &&
        CHECK(write_file(dir, "CMakeLists.txt", project)))
        must_run(script);
    snprintf(script, sizeof script, "rm -rf '%s'", dir);
    tree_run(script, out, sizeof out);
}

static void a_program_builds_with_pkg_config(void)
{
    if (is_sanitized()) SKIP("the program would need the sanitizer too");
    with_installed(
        "if command -v pkg-config >/dev/null; then\n"
        "    export PKG_CONFIG_PATH=\"$lib/pkgconfig\"\n"
        "    flags=$(pkg-config --cflags --libs tenon)\n"
        "else\n"
        "    pcfiledir=$lib/pkgconfig\n"
        "    eval \"$(grep '^[a-z]*=' \"$pcfiledir/tenon.pc\")\"\n"
        "    flags=$(eval echo $(sed -n 's/^Cflags: //p; s/^Libs: //p' \"$pcfiledir/tenon.pc\"))\n"
        "fi\n"
        "$cc main.c -o consumer $flags -Wl,-rpath,\"$lib\"\n"
        "./consumer\n");
}

static void a_program_builds_with_find_package(void)
{
    if (is_sanitized()) SKIP("the program would need the sanitizer too");
    with_installed(
        "cmake -S . -B b -DCMAKE_C_COMPILER=\"$cc\" -DCMAKE_PREFIX_PATH=\"$prefix\" >log &&"
        " cmake --build b >>log || { cat log; exit 1; }\n"
        "b/shared\n"
        "b/static\n");
}

static void the_installed_tool_finds_its_library(void)
{
    if (is_sanitized()) SKIP("an installed tool is not sanitized");
    with_installed("cd /; test -x \"$prefix/bin/tenon\"\n"
                   "\"$prefix/bin/tenon\" --version >/dev/null || [ $? != 127 ]\n");
}

static void a_moved_prefix_still_works(void)
{
    if (is_sanitized()) SKIP("the program would need the sanitizer too");
    with_installed(
        "mv prefix moved\n"
        "cmake -S . -B b -DCMAKE_C_COMPILER=\"$cc\" -DCMAKE_PREFIX_PATH=\"$PWD/moved\" >log &&"
        " cmake --build b --target shared >>log || { cat log; exit 1; }\n"
        "b/shared\n");
}

// Not that of its call-site form.
static void a_wrong_number_of_arguments_names_the_function_that_was_written(void)
{
    char out[4096];
    int  status = tree_run("echo 'tn_tensor *f(tn_tensor *x) { return tn_add(x); }' | '" TN_CC
                           "' -std=c11 -Iinclude -include tenon.h -fsyntax-only -x c - 2>&1",
                           out, sizeof out);
    CHECK(status != 0);
    CHECK(strstr(out, "macro \"tn_add\" requires 2 arguments") || strstr(out, "macro 'tn_add'"));
}

const test_case tests_install[] = {
    TEST(a_wrong_number_of_arguments_names_the_function_that_was_written),
    TEST(the_library_exports_declared_tn_names_only),
    TEST(the_library_is_under_5_megabytes),
    TEST(gcc_gives_no_warning),
    TEST(clang_gives_no_warning),
    TEST(the_header_is_one_for_cpp_too),
    TEST(the_cpp_example_runs),
    TEST(the_cpp_layer_keeps_its_word),
    TEST(macros_pointers_and_plain_calls_leave_no_temporaries),
    TEST(in_cpp_too),
    TEST(a_program_builds_with_pkg_config),
    TEST(a_program_builds_with_find_package),
    TEST(the_installed_tool_finds_its_library),
    TEST(a_moved_prefix_still_works),
    TEST_END,
};
