// test_project.c: the laws of the source tree, held by reading it.
#include "check.h"
#include "tree.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The folders that hold code, and the folders of src/ in the order a computation flows: a file
// includes from its own folder and from those before it.
static const char *const code[] = { "src",      "include", "models", "cli",   "test",
                                    "examples", "bench",   "tools",  "python" };
static const char *const flow[] = { "base", "tensor", "dist",   "ops",     "grad", "kernel",
                                    "plan", "device", "engine", "inspect", "io",   "data",
                                    "nn",   "optim",  "train",  "onnx" };

enum { CODE = sizeof code / sizeof *code, FLOW = sizeof flow / sizeof *flow };
enum { MAX_FILE = 1000, MAX_FUNCTION = 100, PATH_ROOM = 1024 };

static tree_list code_files(const char *endings)
{
    tree_list l = { 0 };
    for (int i = 0; i < CODE; i++) tree_add(&l, code[i], endings);
    tree_sort(&l);
    return l;
}

// ---- includes

// The n-th folder of a path ("src/device/cpu/gemm.c": src, device, cpu), "" when there is none.
static void folder_of(const char *path, int n, char *out, size_t size)
{
    const char *slash = strchr(path, '/');
    for (; slash && n > 0; n--, slash = strchr(path, '/')) path = slash + 1;
    *out = 0;
    if (slash) snprintf(out, size, "%.*s", (int)(slash - path), path);
}

static int flow_of(const char *path)
{
    char folder[PATH_ROOM];
    folder_of(path, 1, folder, sizeof folder);
    for (int i = 0; i < FLOW; i++)
        if (strcmp(flow[i], folder) == 0) return i;
    return -1;
}

// Finds what a quoted include in `file` means, as the compiler does: beside the file, then in
// src/, then in include/.
static bool resolve(const char *file, const char *name, char *out, size_t size)
{
    const char *slash = strrchr(file, '/');
    snprintf(out, size, "%.*s/%s", (int)(slash - file), file, name);
    if (tree_exists(out)) return true;
    snprintf(out, size, "src/%s", name);
    if (tree_exists(out)) return true;
    snprintf(out, size, "include/%s", name);
    return tree_exists(out);
}

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool is_of_nodes(const char *target)
{
    return !strcmp(target, "src/tensor/node.h") || !strcmp(target, "src/tensor/tensor.h") ||
           !strcmp(target, "src/tensor/context.h") || !strcmp(target, "src/ops/ops.h");
}

// Why `file` may not include `target`, or NULL.
static const char *include_fault(const char *file, const char *target)
{
    char a[PATH_ROOM], b[PATH_ROOM];
    if (starts(target, "include/")) return NULL;
    if (starts(file, "include/")) return "a public header includes public headers only";
    if (!starts(file, "src/")) {
        folder_of(file, 0, a, sizeof a);
        folder_of(target, 0, b, sizeof b);
        return strcmp(a, b) == 0 ? NULL : "only public headers and its own folder are open to it";
    }
    if (!starts(target, "src/")) return "src/ includes from src/ and include/ only";
    if (flow_of(file) < 0 || flow_of(target) < 0)
        return "a folder of src/ without a place in the order";
    if (flow_of(target) > flow_of(file)) return "includes point to earlier folders only";
    if ((starts(file, "src/device/") || starts(file, "src/kernel/")) && is_of_nodes(target))
        return "kernels and devices see no nodes: ops/op_table.h has what they may know of ops";
    folder_of(file, 2, a, sizeof a);
    folder_of(target, 2, b, sizeof b);
    if (starts(target, "src/device/") && starts(file, "src/device/") && *a && *b &&
        strcmp(a, b) != 0 && strcmp(b, "simt") != 0)
        return "devices do not know each other";
    return NULL;
}

static void check_include(const char *file, int line, const char *name)
{
    char target[PATH_ROOM];
    if (strstr(name, "..")) {
        test_that(false, "%s:%d: \"%s\" climbs out of its folder", file, line, name);
    } else if (!resolve(file, name, target, sizeof target)) {
        test_that(false, "%s:%d: \"%s\" is nowhere to be found", file, line, name);
    } else {
        const char *fault = include_fault(file, target);
        test_that(!fault, "%s:%d: \"%s\": %s", file, line, name, fault ? fault : "");
    }
}

// Calls check_include for every quoted include of a file.
static void check_includes_of(const char *path)
{
    char *text = tree_read(path, NULL);
    int   n    = 1;
    if (!CHECK(text != NULL)) return;
    for (char *line = text, *end; *line; line = end, n++) {
        char name[256];
        end = line + strcspn(line, "\n");
        if (*end) *end++ = 0;
        if (sscanf(line, " # include \"%255[^\"]\"", name) == 1) check_include(path, n, name);
    }
    free(text);
}

static void includes_follow_the_order_of_folders(void)
{
    static const char *const lawful[] = { "src", "include", "models", "cli", "examples" };

    tree_list l = { 0 };
    for (size_t i = 0; i < sizeof lawful / sizeof *lawful; i++)
        tree_add(&l, lawful[i], ".c .h .def .inc");
    tree_sort(&l);
    CHECK(l.count > 0);
    for (int i = 0; i < l.count; i++) check_includes_of(l.path[i]);
    tree_free(&l);
}

static void folders_outside_src_name_public_headers_only(void)
{
    CHECK(include_fault("cli/main.c", "src/base/mem.h") != NULL);
    CHECK(include_fault("cli/main.c", "cli/doctor.h") == NULL);
    CHECK(include_fault("models/gpt2.c", "include/tenon.h") == NULL);
    CHECK(include_fault("src/base/mem.c", "src/tensor/node.h") != NULL);
    CHECK(include_fault("src/tensor/node.c", "src/base/mem.h") == NULL);
    CHECK(include_fault("src/device/cpu/gemm.c", "src/device/cuda/driver.h") != NULL);
    CHECK(include_fault("src/device/cpu/gemm.c", "src/device/device.h") == NULL);
}

// ---- sizes

static int count_lines(const char *text)
{
    int n = 0;
    for (; (text = strchr(text, '\n')) != NULL; text++) n++;
    return n;
}

static void no_file_is_past_1000_lines(void)
{
    tree_list l = code_files(".c .h .def .inc .sh .py .cl .cu");
    for (int i = 0; i < l.count; i++) {
        char *text  = tree_read(l.path[i], NULL);
        int   lines = text ? count_lines(text) : 0;
        test_that(text && lines <= MAX_FILE, "%s has %d lines", l.path[i], lines);
        free(text);
    }
    tree_free(&l);
}

// In our form a function's body lies between a line "{" and a line "}", both in the first column.
static void check_functions_of(const char *path, const char *text)
{
    int open = 0, n = 1;
    for (const char *line = text; *line; n++) {
        size_t length = strcspn(line, "\n");
        if (length == 1 && *line == '{') open = n;
        if (length == 1 && *line == '}' && open) {
            test_that(n - open - 1 <= MAX_FUNCTION, "%s:%d: a function of %d lines", path, open,
                      n - open - 1);
            open = 0;
        }
        line += length + (line[length] == '\n');
    }
}

static void no_function_is_past_100_lines(void)
{
    tree_list l = code_files(".c .h");
    for (int i = 0; i < l.count; i++) {
        char *text = tree_read(l.path[i], NULL);
        if (CHECK(text != NULL)) check_functions_of(l.path[i], text);
        free(text);
    }
    tree_free(&l);
}

// ---- form

static void the_code_is_formatted(void)
{
    static const char command[] =
        "find src include models cli test examples bench python -name '*.[ch]' 2>/dev/null | sort |"
        " xargs clang-format --dry-run -Werror";
    if (!tree_has("clang-format")) SKIP("clang-format is not installed");

    char out[4096];
    int  status = tree_run(command, out, sizeof out);

    out[strcspn(out, "\n")] = 0;
    if (!CHECK_INT(status, 0)) CHECK_STR(out, "");
}

// Whether a line is a comment of words alone: a table or a sample in one is set apart by spaces,
// and may be wider.
static bool is_prose(const char *line, size_t n)
{
    size_t at = strspn(line, " ");
    if (at + 3 >= n || strncmp(line + at, "// ", 3) != 0 || line[at + 3] == ' ') return false;
    for (size_t i = at + 3; i + 1 < n; i++)
        if (line[i] == ' ' && line[i + 1] == ' ') return false;
    return true;
}

// The formatter leaves comments as they are.
static void no_comment_is_wider_than_100_columns(void)
{
    tree_list l = code_files(".c .h .inc .def");
    for (int i = 0; i < l.count; i++) {
        char *text = tree_read(l.path[i], NULL), *line = text;
        for (int n = 1; CHECK(text != NULL) && *line; n++) {
            size_t length = strcspn(line, "\n");
            bool   wide   = length > 100 && is_prose(line, length);
            test_that(!wide, "%s:%d: a comment of %zu columns", l.path[i], n, length);
            line += length + (line[length] == '\n');
        }
        free(text);
    }
    tree_free(&l);
}

static void every_folder_of_src_has_a_readme(void)
{
    char      last[PATH_ROOM] = "", readme[PATH_ROOM + 16];
    tree_list l               = { 0 };
    tree_add(&l, "src", ".c .h .def");
    tree_sort(&l);
    for (int i = 0; i < l.count; i++) {
        int n = (int)(strrchr(l.path[i], '/') - l.path[i]);
        if (n == (int)strlen(last) && strncmp(last, l.path[i], (size_t)n) == 0) continue;
        snprintf(last, sizeof last, "%.*s", n, l.path[i]);
        snprintf(readme, sizeof readme, "%s/README.md", last);
        test_that(tree_exists(readme), "%s is missing", readme);
    }
    tree_free(&l);
}

// Whether a text has a name that no letter, digit or underscore goes on with.
static bool names(const char *text, const char *name, size_t n)
{
    for (const char *at = text; (at = strstr(at, name)) != NULL; at++) {
        char before = at > text ? at[-1] : ' ', after = at[n];
        if (!isalnum((unsigned char)before) && before != '_' && !isalnum((unsigned char)after) &&
            after != '_')
            return true;
    }
    return false;
}

// So that a reader finds every file, and where its functions are declared.
static void every_file_of_src_is_in_its_folders_readme(void)
{
    tree_list l = { 0 };
    tree_add(&l, "src", ".c .h .def .inc");
    for (int i = 0; i < l.count; i++) {
        char        readme[PATH_ROOM + 16], stem[256];
        const char *slash = strrchr(l.path[i], '/');
        snprintf(readme, sizeof readme, "%.*s/README.md", (int)(slash - l.path[i]), l.path[i]);
        snprintf(stem, sizeof stem, "%.*s", (int)strcspn(slash + 1, "."), slash + 1);
        char *text = tree_read(readme, NULL);
        test_that(text && names(text, stem, strlen(stem)), "%s does not name %s", readme,
                  slash + 1);
        free(text);
    }
    tree_free(&l);
}

// The order of folders is the same wherever it is told: the names come in that order.
static void the_pages_tell_the_order_of_folders(void)
{
    char *tour  = tree_read("README.md", NULL);
    char *rules = tree_read("CONTRIBUTING.md", NULL), *design = tree_read("docs/design.md", NULL);
    char  list[256] = "";
    for (int i = 0; i < FLOW; i++) {
        strcat(strcat(list, i ? " " : ""), flow[i]);
        char link[64];
        snprintf(link, sizeof link, "[src/%s](", flow[i]);
        char *at = tour ? strstr(tour, link) : NULL;
        test_that(at != NULL, "README.md: %s is not in its place of the tour", flow[i]);
        if (at) memmove(tour, at, strlen(at) + 1);
    }
    test_that(rules && strstr(rules, list), "CONTRIBUTING.md has another order than %s", list);
    test_that(design && strstr(design, list), "docs/design.md has another order than %s", list);
    free(tour);
    free(rules);
    free(design);
}

static void names_of_files_are_unique(void)
{
    tree_list l = code_files(".c .h .def .inc");
    for (int i = 0; i < l.count; i++)
        for (int k = 0; k < i; k++)
            test_that(strcmp(strrchr(l.path[i], '/'), strrchr(l.path[k], '/')) != 0,
                      "%s and %s have one name", l.path[k], l.path[i]);
    tree_free(&l);
}

static void the_readme_names_demo_and_test(void)
{
    char *text = tree_read("README.md", NULL);
    if (!CHECK(text != NULL)) return;
    CHECK(strstr(text, "make demo") != NULL);
    CHECK(strstr(text, "make test") != NULL);
    free(text);
}

static void every_file_of_tests_is_listed(void)
{
    char     *table = tree_read("test/tests.h", NULL);
    tree_list l     = { 0 };
    tree_add(&l, "test", ".c");
    for (int i = 0; table && i < l.count; i++) {
        char name[256], row[300], alone[300];
        if (sscanf(l.path[i], "test/%*[a-z]/test_%255[^./]", name) != 1) continue;
        snprintf(row, sizeof row, "\nTESTS(%s)", name);
        snprintf(alone, sizeof alone, "\nTESTS_ALONE(%s)", name);
        test_that(strstr(table, row) || strstr(table, alone), "%s is not in test/tests.h",
                  l.path[i]);
    }
    tree_free(&l);
    free(table);
}

// A filter of test/check.list that matches nothing would leave a part of the library unchecked.
static void every_line_of_the_check_list_names_a_test(void)
{
    char *list = tree_read("test/check.list", NULL), *tests = tree_read("test/tests.h", NULL);
    int   n = 0;
    for (char *line = list; list && tests && *line;
         line += strcspn(line, "\n"), line += *line == '\n') {
        char filter[128] = "", row[128];
        if (sscanf(line, "%127[a-z0-9_/]", filter) != 1) continue;
        bool whole = strchr(filter, '/') != NULL;
        snprintf(row, sizeof row, "(%.*s%s", (int)strcspn(filter, "/"), filter, whole ? ")" : "");
        test_that(strstr(tests, row) != NULL, "test/check.list: %s names no file of tests", filter);
        n++;
    }
    CHECK(n > 50);
    free(list);
    free(tests);
}

// ---- paths of somebody's machine

// Whether the text names this folder of a file system's root.
static bool names_root_folder(const char *text, const char *folder)
{
    for (const char *at = text; (at = strstr(at, folder)) != NULL; at++) {
        char before = at > text + 1 ? at[-2] : ' ', after = at[strlen(folder)];
        if (at == text || at[-1] != '/') continue;
        if (isalnum((unsigned char)before) || strchr("_.-/*)}>~", before)) continue;
        if (isalnum((unsigned char)after) || after == '_' || after == '-') continue;
        return true;
    }
    return false;
}

static void no_file_names_a_path_of_one_machine(void)
{
    tree_list l = { 0 };
    tree_add(&l, "", NULL);
    tree_sort(&l);
    for (int i = 0; i < l.count; i++) {
        size_t size;
        char  *text = tree_read(l.path[i], &size);
        if (text && strlen(text) == size)
            test_that(!names_root_folder(text, "work") && !names_root_folder(text, "root"),
                      "%s names a path of one machine", l.path[i]);
        free(text);
    }
    tree_free(&l);
}

const test_case tests_project[] = {
    TEST(includes_follow_the_order_of_folders),
    TEST(folders_outside_src_name_public_headers_only),
    TEST(no_file_is_past_1000_lines),
    TEST(no_function_is_past_100_lines),
    TEST(the_code_is_formatted),
    TEST(no_comment_is_wider_than_100_columns),
    TEST(every_folder_of_src_has_a_readme),
    TEST(every_file_of_src_is_in_its_folders_readme),
    TEST(the_pages_tell_the_order_of_folders),
    TEST(names_of_files_are_unique),
    TEST(the_readme_names_demo_and_test),
    TEST(every_file_of_tests_is_listed),
    TEST(every_line_of_the_check_list_names_a_test),
    TEST(no_file_names_a_path_of_one_machine),
    TEST_END,
};
