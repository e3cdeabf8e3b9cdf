// test_docs.c: the pages and the interface agree with the code. Also writes docs/ops.md.
#include "check.h"
#include "tree.h"

#include "ops/ops.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- docs/ops.md

static const struct {
    const char *title, *what;
} classes[] = {
    [TNI_UNARY]   = { "Maps of one input", "Element by element; `a` is the input." },
    [TNI_BINARY]  = { "Maps of two inputs",
                      "Inputs broadcast and are promoted to one dtype first." },
    [TNI_TERNARY] = { "Maps of three inputs", "Inputs broadcast." },
    [TNI_CAST]    = { "Casts", "From one dtype to another." },
    [TNI_REDUCE]  = { "Reductions", "Over any set of axes; `acc` is the fold so far." },
    [TNI_SCAN]    = { "Scans", "Along one axis; `acc` is the fold so far." },
    [TNI_SOURCE]  = { "Sources", "Values from nothing." },
    [TNI_MOVE]    = { "Movement", "Elements in other places." },
    [TNI_EFFECT]  = { "Effects", "The next state of a store." },
    [TNI_LIBRARY] = { "Library ops", "What a device may have a library for, and users' own ops." },
};

enum { CLASSES = sizeof classes / sizeof *classes };

static const char *const rules[] = {
    [TNI_ANY]     = "any",
    [TNI_PROMOTE] = "any, promoted",
    [TNI_NUMBER]  = "all but bool, promoted",
    [TNI_REAL]    = "all but bool; integers as they are",
    [TNI_FLOAT]   = "floats; others become f32",
    [TNI_INTEGER] = "integers",
    [TNI_BITS]    = "integers and bool",
    [TNI_TO_BOOL] = "any, gives bool",
    [TNI_TO_I64]  = "any, gives i64",
    [TNI_ACCUM]   = "any; integers and bool give i64",
    [TNI_SELECT]  = "bool, then any, promoted",
    [TNI_INDEX]   = "any, with an i64 or i32 index",
    [TNI_WIDE]    = "gives i64",
};

// A bar would end the cell.
static void write_expression(FILE *f, const char *text)
{
    if (!*text) return;
    fputc('`', f);
    for (; *text; text++) fprintf(f, *text == '|' ? "\\%c" : "%c", *text);
    fputc('`', f);
}

static void write_row(FILE *f, const tni_op_facts *op)
{
    fprintf(f, "| `%s` | %s | ", op->name, rules[op->rule]);
    write_expression(f, op->expr);
    fprintf(f, " | %d | %s | %s |\n", op->cost, op->has_grad ? "yes" : "no", op->doc);
}

int test_ops_write(FILE *f)
{
    fprintf(f,
            "# Primitive ops\n\n"
            "Written by `make docs` from [src/ops/ops.def](../src/ops/ops.def): the %d ops that "
            "everything else is\ncomposed of. An expression is in the inputs `a`, `b`, `c` and "
            "the functions of the math prelude. Cost is\nin additions per element.\n",
            TNI_OPS);
    for (int c = 0; c < CLASSES; c++) {
        fprintf(f, "\n## %s\n\n%s\n\n", classes[c].title, classes[c].what);
        fprintf(f, "| name | dtypes | expression | cost | gradient | meaning |\n");
        fprintf(f, "| --- | --- | --- | --- | --- | --- |\n");
        for (int i = 0; i < TNI_OPS; i++)
            if ((int)tni_op_table[i].class == c) write_row(f, &tni_op_table[i]);
    }
    return ferror(f) != 0;
}

static void the_page_of_ops_is_up_to_date(void)
{
    char  *want = NULL, *have = tree_read("docs/ops.md", NULL);
    size_t size;
    FILE  *f = open_memstream(&want, &size);
    if (CHECK(f != NULL)) {
        CHECK_INT(test_ops_write(f), 0);
        fclose(f);
        test_that(have && strcmp(have, want) == 0, "docs/ops.md is stale: run `make docs`");
    }
    free(want);
    free(have);
}

// ---- the interface and its call forms

// Whether one of the headers that tools/sites.sh writes is what it writes now.
static void check_made(const char *folder, const char *name)
{
    char command[512], out[256];
    snprintf(command, sizeof command, "cmp '%s/%s' include/tenon/%s", folder, name, name);
    test_that(tree_run(command, out, sizeof out) == 0,
              "include/tenon/%s is stale: run `make sites`", name);
}

// So no function that the public headers declare lacks its two forms.
static void the_call_forms_are_made_from_the_declarations(void)
{
    char dir[] = "/tmp/tenon-test-XXXXXX", command[512], out[1024];
    if (!CHECK(mkdtemp(dir) != NULL)) return;
    snprintf(command, sizeof command, "tools/sites.sh '%s' 2>&1", dir);
    test_that(tree_run(command, out, sizeof out) == 0, "tools/sites.sh: %s", out);
    check_made(dir, "sites.h");
    check_made(dir, "models_sites.h");
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    tree_run(command, out, sizeof out);
}

// ---- links

// Whether a page links to something that is not there; links to the web are taken on trust.
static void check_link(const char *page, const char *target, int length)
{
    char path[1024];
    if (length == 0 || target[0] == '#' || strncmp(target, "http", 4) == 0) return;
    const char *slash = strrchr(page, '/');
    int         up    = slash ? (int)(slash - page) + 1 : 0;
    const char *hash  = memchr(target, '#', (size_t)length);
    if (hash) length = (int)(hash - target);
    snprintf(path, sizeof path, "%.*s%.*s", up, page, length, target);
    test_that(tree_exists(path), "%s links to %.*s, which is not there", page, length, target);
}

static void every_link_of_a_page_leads_somewhere(void)
{
    tree_list l = { 0 };
    tree_add(&l, "", ".md");
    CHECK(l.count > 0);
    for (int i = 0; i < l.count; i++) {
        char *text = tree_read(l.path[i], NULL);
        for (char *s = text; s && (s = strstr(s, "](")) != NULL;) {
            s += 2;
            check_link(l.path[i], s, (int)strcspn(s, ") \n"));
        }
        free(text);
    }
    tree_free(&l);
}

// ---- names

// All code of the tree as one text, in which a name that a page mentions is looked for; and the paths of all
// its files, each followed by a line end.
typedef struct {
    char *text, *paths;
} whole_tree;

static whole_tree read_tree(void)
{
    static const char *const folders[] = { "src",      "include", "models", "cli",  "test",
                                           "examples", "bench",   "tools",  "docs", "" };

    whole_tree w = { 0 };
    tree_list  l = { 0 };
    size_t     size;
    FILE      *paths = open_memstream(&w.paths, &size), *text = open_memstream(&w.text, &size);
    for (int i = 0; *folders[i]; i++) tree_add(&l, folders[i], NULL);
    for (int i = 0; i < l.count; i++) {
        bool  page = strstr(l.path[i], ".md") || strstr(l.path[i], "/golden/");
        char *file = page ? NULL : tree_read(l.path[i], NULL);
        fprintf(paths, "/%s\n", l.path[i]);
        fprintf(text, "%s\n", file ? file : "");
        free(file);
    }
    fprintf(paths, "/CMakeLists.txt\n/Makefile\n/CHANGELOG.md\n/CONTRIBUTING.md\n/README.md\n");
    fclose(paths);
    fclose(text);
    tree_free(&l);
    return w;
}

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

// Whether a text has a name as a whole word; one that ends in * stands for all that begin so.
static bool has_word(const char *text, const char *name)
{
    size_t n    = strlen(name);
    bool   open = n && name[n - 1] == '*';
    char   word[128];
    snprintf(word, sizeof word, "%.*s", (int)(n - open), name);
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++)
        if ((at == text || !is_name(at[-1])) && (open || !is_name(at[n]))) return true;
    return false;
}

// The text of the file that a page means by `name`: a path from the root, below src/, or the end of one; the
// path is put into `path`. False if there is none.
static bool find_file(const whole_tree *w, const char *name, char *path, size_t size)
{
    char        end[300];
    const char *tail = name;
    while (!strncmp(tail, "../", 3)) tail += 3;
    snprintf(end, sizeof end, "/%s\n", tail);
    const char *at = strstr(w->paths, end);
    if (!at) return false;
    const char *from = at;
    while (from > w->paths && from[-1] != '\n') from--;
    snprintf(path, size, "%.*s", (int)(at + strlen(end) - 1 - (from + 1)), from + 1);
    return true;
}

// Whether a span of code names a file: a name with one of our endings. NAME stands for any.
static bool is_file(const char *name)
{
    static const char *const endings[] = {
        ".c", ".h", ".def", ".inc", ".sh", ".py", ".md", ".hpp"
    };

    size_t n = strlen(name);
    if (strpbrk(name, " *<>()[]{}\"'$,:=") || strstr(name, "NAME")) return false;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t e = strlen(endings[i]);
        if (n > e && !strcmp(name + n - e, endings[i])) return true;
    }
    return false;
}

// Whether a span of code is a name of ours without anything in capitals, which would stand for others.
static bool is_our_name(const char *name)
{
    if (strncmp(name, "tn_", 3) && strncmp(name, "tni_", 4)) return false;
    for (; is_name(*name) && !isupper((unsigned char)*name); name++) continue;
    return !*name || !strcmp(name, "*") || !strcmp(name, "()");
}

// A span of code in a page: a file of ours is there, a name of ours is somewhere in the code, and
// "file.c: name" is a name in that file.
static void check_span(const whole_tree *w, const char *page, const char *span)
{
    char file[256], name[128], path[512];
    int  end = 0;
    if (sscanf(span, "%255[^ :]: %127[a-z0-9_]%n", file, name, &end) == 2 && is_file(file) &&
        !span[end]) {
        bool  found = find_file(w, file, path, sizeof path);
        char *text  = found ? tree_read(path, NULL) : NULL;
        test_that(text && has_word(text, name), "%s: `%s`: no such name there", page, span);
        free(text);
    } else if (is_file(span)) {
        test_that(find_file(w, span, path, sizeof path), "%s: there is no file `%s`", page, span);
    } else if (is_our_name(span)) {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(span, "("), span);
        test_that(has_word(w->text, name), "%s: there is no `%s`", page, span);
    }
}

// Spans of code in running text; blocks between fences and indented ones are no prose.
static void check_spans(const whole_tree *w, const char *page, char *text)
{
    bool fenced = false;
    for (char *line = text, *next; *line; line = next) {
        char *end = line + strcspn(line, "\n");
        next      = *end ? end + 1 : end;
        *end      = 0;
        if (!strncmp(line, "```", 3)) fenced = !fenced;
        if (fenced) continue;
        for (char *at = line; (at = strchr(at, '`')) != NULL;) {
            char *stop = strchr(at + 1, '`');
            if (!stop) break;
            *stop = 0;
            check_span(w, page, at + 1);
            at = stop + 1;
        }
    }
}

static void files_and_functions_that_pages_name_are_there(void)
{
    whole_tree w = read_tree();
    tree_list  l = { 0 };
    tree_add(&l, "", ".md");
    for (int i = 0; i < l.count; i++) {
        char *text = strstr(l.path[i], "CHANGELOG") ? NULL : tree_read(l.path[i], NULL);
        if (text) check_spans(&w, l.path[i], text);
        free(text);
    }
    CHECK(l.count > 0);
    tree_free(&l);
    free(w.text);
    free(w.paths);
}

static void every_page_of_docs_is_in_its_index(void)
{
    char     *index = tree_read("docs/README.md", NULL);
    tree_list l     = { 0 };
    tree_add(&l, "docs", ".md");
    for (int i = 0; index && i < l.count; i++) {
        char link[300];
        snprintf(link, sizeof link, "](%s)", strrchr(l.path[i], '/') + 1);
        test_that(!strcmp(l.path[i], "docs/README.md") || strstr(index, link) != NULL,
                  "%s is not in docs/README.md", l.path[i]);
    }
    CHECK(index != NULL);
    tree_free(&l);
    free(index);
}

// Every variable of ours that the code asks for is explained on the page of variables.
static void every_environment_variable_is_explained(void)
{
    char      *page  = tree_read("docs/environment.md", NULL);
    tree_list  l     = { 0 };
    const char ask[] = "getenv(\"TN_";
    tree_add(&l, "src", ".c");
    for (int i = 0; page && i < l.count; i++) {
        char *text = tree_read(l.path[i], NULL);
        for (char *s = text; s && (s = strstr(s, ask)) != NULL;) {
            char cell[128];
            s += sizeof ask - 1;
            snprintf(cell, sizeof cell, "| `TN_%.*s` |", (int)strcspn(s, "\""), s);
            test_that(strstr(page, cell) != NULL, "%s asks for %s, which docs/environment.md lacks",
                      l.path[i], cell);
        }
        free(text);
    }
    tree_free(&l);
    free(page);
}

// The figures are those of the results, not typed in.
static void the_figures_of_the_readme_are_those_of_the_results(void)
{
    char out[512];
    if (tree_run("command -v python3", out, sizeof out) != 0) SKIP("there is no python3");
    int status = tree_run("python3 bench/readme_figures.py --check 2>&1", out, sizeof out);
    test_that(status == 0, "status %d: %s", status, out);
}

// ---- where builds land

static void a_build_with_sanitizers_lands_where_contributing_says(void)
{
    const struct {
        const char *asked, *folder;
    } builds[] = { { "SANITIZE=address,undefined", "build/asan" },
                   { "SANITIZE=address", "build/asan" },
                   { "SANITIZE=thread", "build/tsan" },
                   { "SANITIZE=undefined", "build/ubsan" },
                   { "CC=clang TN_DEBUG=1", "build/clang-debug" } };
    char *page = tree_read("CONTRIBUTING.md", NULL);
    if (!CHECK(page != NULL)) return;
    for (size_t i = 0; i < sizeof builds / sizeof *builds; i++) {
        char command[256], out[4096], want[64];
        snprintf(command, sizeof command,
                 "env -u MAKEFLAGS -u MAKEOVERRIDES make -n --no-print-directory %s configure 2>&1",
                 builds[i].asked);
        snprintf(want, sizeof want, " -B %s ", builds[i].folder);
        tree_run(command, out, sizeof out);
        test_that(strstr(out, want) != NULL, "make %s: %.300s", builds[i].asked, out);
        test_that(strstr(page, builds[i].folder) != NULL, "CONTRIBUTING.md: no %s",
                  builds[i].folder);
    }
    free(page);
}

const test_case tests_docs[] = {
    TEST(a_build_with_sanitizers_lands_where_contributing_says),
    TEST(the_page_of_ops_is_up_to_date),
    TEST(the_call_forms_are_made_from_the_declarations),
    TEST(every_link_of_a_page_leads_somewhere),
    TEST(files_and_functions_that_pages_name_are_there),
    TEST(every_page_of_docs_is_in_its_index),
    TEST(every_environment_variable_is_explained),
    TEST(the_figures_of_the_readme_are_those_of_the_results),
    TEST_END,
};
