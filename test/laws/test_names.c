// test_names.c: every tni_ and TNI_ name of src/ is defined once, so that a reader who finds a
// definition has found the only one. Functions, types, tags, variables, macros and enum constants
// share one space.
#include "check.h"
#include "tree.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_ROOM = 64, PATH_ROOM = 128, MOST = 6000 };

typedef enum { NONE, MACRO, TYPE, FUNCTION, VARIABLE, CONSTANT } kind;

typedef struct {
    char name[NAME_ROOM], path[PATH_ROOM];
    int  line;
    kind kind;
} definition;

static definition defined[MOST];
static int        count;

// ---- what a line defines

static bool is_name_char(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

// Copies the tni_ or TNI_ identifier that begins at `at`; false if none does.
static bool name_at(const char *at, char name[NAME_ROOM])
{
    int n = 0;
    if (strncmp(at, "tni_", 4) && strncmp(at, "TNI_", 4)) return false;
    while (is_name_char(at[n])) n++;
    return snprintf(name, NAME_ROOM, "%.*s", n, at) < NAME_ROOM;
}

// The next such identifier in a text, from `at` on; NULL if there is none.
static const char *next_name(const char *text, const char *at)
{
    for (; *at; at++)
        if ((at == text || !is_name_char(at[-1])) &&
            (!strncmp(at, "tni_", 4) || !strncmp(at, "TNI_", 4)))
            return at;
    return NULL;
}

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

// "} tni_x;", "struct tni_x {", "typedef int tni_x;", "typedef bool tni_x(int n);", "typedef bool
// (*tni_x)(int n);". "typedef struct tni_x tni_x;" declares only.
static bool defines_type(const char *line, char name[NAME_ROOM])
{
    const char *brace = strrchr(line, '}'), *first = next_name(line, line), *at;
    if (!first) return false;
    if (brace && starts(brace, "} ") && name_at(brace + 2, name))
        return brace[2 + strlen(name)] == ';';
    at = starts(line, "typedef ") ? line + 8 : line;
    if (starts(at, "struct ") || starts(at, "enum ") || starts(at, "union ")) {
        return name_at(strchr(at, ' ') + 1, name) &&
               starts(strchr(at, ' ') + 1 + strlen(name), " {");
    }
    if (at == line) return false;
    for (at = first; at && name_at(at, name); at = next_name(line, at + strlen(name)))
        if (strchr(";()", at[strlen(name)])) return true;
    return false;
}

// A signature in the first column whose last line is followed by "{". `rest` is the text from it
// on.
static bool defines_function(const char *rest, char name[NAME_ROOM])
{
    const char *line_end = rest + strcspn(rest, "\n"), *open = strchr(rest, '('), *at, *body;
    if (!isalpha((unsigned char)*rest) || !open || open > line_end || starts(rest, "typedef"))
        return false;
    for (at = open; at > rest && is_name_char(at[-1]);) at--;
    body = strstr(open, ")\n{\n");
    if (!starts(at, "tni_") || !name_at(at, name) || at + strlen(name) != open || !body)
        return false;
    return !memchr(open, ';', (size_t)(body - open));
}

// "const tni_type tni_x = {", "tni_type tni_x[] = {": in the first column.
static bool defines_variable(const char *line, char name[NAME_ROOM])
{
    const char *equals = strstr(line, " = "), *at;
    if (!isalpha((unsigned char)*line) || !equals || starts(line, "typedef")) return false;
    if (starts(line, "enum ")) return false;
    const char *end = memchr(line, '[', (size_t)(equals - line));
    for (at = end ? end : equals; at > line && is_name_char(at[-1]);) at--;
    return at > line && name_at(at, name) && strlen(name) == (size_t)((end ? end : equals) - at);
}

static kind defined_by(const char *line, const char *rest, char name[NAME_ROOM])
{
    const char *macro = starts(line, "#define ") ? line + 8 : NULL;
    if (macro) return name_at(macro, name) ? MACRO : NONE;
    if (defines_type(line, name)) return TYPE;
    if (defines_function(rest, name)) return FUNCTION;
    return defines_variable(line, name) ? VARIABLE : NONE;
}

// ---- what a file defines

static const char *const kinds[] = { "", "macro", "type", "function", "variable", "constant" };

// A tag and its type are one name of one file, and so is a macro on both sides of an #if.
static bool may_share(const definition *a, const definition *b)
{
    return a->kind == b->kind && (a->kind == TYPE || a->kind == MACRO) && !strcmp(a->path, b->path);
}

static void add(const char *name, kind k, const char *path, int line)
{
    if (!CHECK(count < MOST)) return;
    definition *d = &defined[count];
    *d            = (definition){ .line = line, .kind = k };
    snprintf(d->name, sizeof d->name, "%s", name);
    snprintf(d->path, sizeof d->path, "%s", path);
    for (int i = 0; i < count; i++)
        if (!strcmp(defined[i].name, name) && !may_share(&defined[i], d))
            test_that(false, "%s:%d: %s is a %s, and a %s of %s:%d: give one of them another name",
                      path, line, name, kinds[k], kinds[defined[i].kind], defined[i].path,
                      defined[i].line);
    count++;
}

// The constants of an enum that a line has: names before a comma, a brace or "=".
static void add_constants(const char *line, const char *path, int n)
{
    const char *comment = strstr(line, "//"), *at = line;
    char        name[NAME_ROOM];
    while ((at = next_name(line, at)) != NULL && (!comment || at < comment) && name_at(at, name)) {
        const char *before = at, *after = at + strlen(name);
        while (before > line && before[-1] == ' ') before--;
        after += strspn(after, " ");
        if ((before == line || strchr(",{", before[-1])) && strchr(",}=/", *after))
            add(name, CONSTANT, path, n);
        at += strlen(name);
    }
}

static void read_file(const char *path)
{
    char *text    = tree_read(path, NULL), name[NAME_ROOM], line[512];
    bool  in_enum = false;
    int   n       = 1;
    if (!CHECK(text != NULL)) return;
    for (const char *at = text; *at; n++) {
        size_t length = strcspn(at, "\n");
        snprintf(line, sizeof line, "%.*s", (int)length, at);
        kind k = defined_by(line, at, name);
        if (k) add(name, k, path, n);
        if (strstr(line, "enum {") || (strstr(line, "enum tni_") && strchr(line, '{')))
            in_enum = true;
        if (in_enum) add_constants(line, path, n);
        if (strchr(line, '}')) in_enum = false;
        at += length + (at[length] == '\n');
    }
    free(text);
}

static void every_internal_name_is_defined_once(void)
{
    tree_list l = { 0 };
    tree_add(&l, "src", ".c .h");
    tree_sort(&l);
    for (int i = 0; i < l.count; i++) read_file(l.path[i]);
    CHECK(count > 1500);
    tree_free(&l);
}

static void definitions_are_recognized(void)
{
    static const struct {
        const char *text;
        kind        kind;
    } cases[] = {
        { "} tni_x;", TYPE },
        { "typedef enum { A, B } tni_x;", TYPE },
        { "struct tni_x {", TYPE },
        { "typedef struct tni_x {", TYPE },
        { "typedef int32_t tni_x;", TYPE },
        { "typedef bool tni_x(int n);", TYPE },
        { "typedef struct tni_x tni_x;", NONE },
        { "void tni_x(int n)\n{\n", FUNCTION },
        { "static inline tni_y *tni_x(int n,\n                 int k)\n{\n", FUNCTION },
        { "void tni_x(int n);", NONE },
        { "    tni_x(n);", NONE },
        { "const tni_y tni_x = {", VARIABLE },
        { "const tni_y tni_x[2] = { 0 };", VARIABLE },
        { "    tni_y tni_x = 1;", NONE },
        { "#define tni_x 1", MACRO },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[256], name[NAME_ROOM] = "";
        snprintf(line, sizeof line, "%.*s", (int)strcspn(cases[i].text, "\n"), cases[i].text);
        kind k = defined_by(line, cases[i].text, name);
        test_that(k == cases[i].kind && (!k || !strcmp(name, "tni_x")), "\"%s\": %s %s", line,
                  kinds[k], name);
    }
}

const test_case tests_names[] = {
    TEST(definitions_are_recognized),
    TEST(every_internal_name_is_defined_once),
    TEST_END,
};
