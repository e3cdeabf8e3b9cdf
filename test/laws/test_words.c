// test_words.c: the language of the tree. Words and phrases that a reader would need a glossary for
// stay out of the sources, the headers and the pages, each with the field's word for it; and .c
// files say what they do: a share of their lines is comment, and no long function is without one.
#include "check.h"
#include "tree.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- words

// A word or phrase, and what to write instead. '*' at its end stands for any letters, digits and
// underscores; a word of letters is banned in any case and as a whole word only.
typedef struct {
    const char *word, *instead;
} banned;

// clang-format off
static const banned words[] = {
    { "seat", "session" },
    { "seats", "sessions" },
    { "wish", "request, options" },
    { "wishes", "requests, options" },
    { "deed", "op, launch" },
    { "deeds", "ops, launches" },
    { "fate", "decision" },
    { "fates", "decisions" },
    { "scribe", "emitter, writer" },
    { "tray", "batch buffer, staging buffer" },
    { "trays", "batch buffers, staging buffers" },
    { "laid", "stored, permuted, in order (`laid out` may stay)" },
    { "roomy", "large enough" },
    { "abreast", "side by side, at the same time" },
    { "dear", "costly, expensive" },
    { "hurry", "low occupancy, few registers" },
    { "lent", "borrowed, aliased" },
    { "spot", "place, index, slot" },
    { "spots", "places, indices, slots" },
    { "thing", "the noun that is meant" },
    { "things", "the noun that is meant" },
    { "so many", "n, that many, as many as" },
    { "nobody", "no one, nothing, none, the noun in question" },
    { "at hand", "available, given" },
    { "for want of", "without, since there is no" },
    { "is told", "is reported, receives" },
    { "are told", "are reported, receive" },
    { "tni_hand", "tni_arg" },
    { "tni_then*", "tni_epilogue*" },
    { "run_then", "run_epilogue" },
    { "room_then", "scratch of the epilogue" },
    { "tni_lay", "a verb with its noun" },
    { "tni_lay_*", "a verb with its noun" },
    { "tni_is_laid", "tni_is_permuted" },
    { "tni_which", "a name that says which" },
    { "TNI_THE_*", "a name without its article" },
    { "tni_bound", "tni_kernel_arg, tni_error_bound" },
    { "tni_reading", "tni_read_request" },
    { "tells_late", "deferred errors" },
    { "at_once", "synchronous, concurrent" },
    { "fixed_room", "scratch size" },
    { "lies_somehow", "is_permuted" },
    { "goes_along", "is_contiguous, in_order" },
    { "goes_across", "is_transposed" },
};
// clang-format on

enum { WORDS = sizeof words / sizeof *words };

static bool is_word_char(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

// Whether `text` begins with `word`, letters of either case taken as equal; a space stands for one.
static bool begins(const char *text, const char *word, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (tolower((unsigned char)text[i]) != tolower((unsigned char)word[i])) return false;
    return true;
}

// The first place of a banned word in a line; NULL if it is not there.
// A word of letters alone is also found as a part of a name: seat in device_seat.
static bool joins_word(char c, const char *word)
{
    return is_word_char(c) && (c != '_' || strchr(word, '_'));
}

static const char *find_word(const char *line, const char *word)
{
    size_t n    = strlen(word);
    bool   open = word[n - 1] == '*';
    n -= open;
    for (const char *at = line; *at; at++) {
        if ((at > line && joins_word(at[-1], word)) || !begins(at, word, n)) continue;
        if (!open && joins_word(at[n], word)) continue;
        if (!strcmp(word, "laid") && begins(at + n, " out", 4)) continue;
        if (!strcmp(word, "are told") && begins(at + n, " apart", 6)) continue;
        return at;
    }
    return NULL;
}

static void check_words_of(const char *path)
{
    char *text = tree_read(path, NULL);
    int   n    = 1;
    if (!CHECK(text != NULL)) return;
    for (char *line = text, *end; *line; line = end, n++) {
        end = line + strcspn(line, "\n");
        if (*end) *end++ = 0;
        for (int i = 0; i < WORDS; i++)
            if (find_word(line, words[i].word))
                test_that(false, "%s:%d: \"%s\": write %s", path, n, words[i].word,
                          words[i].instead);
    }
    free(text);
}

static void banned_words_are_found(void)
{
    CHECK(find_word("// the Seat of a device", "seat") != NULL);
    CHECK(find_word("int seats = 2;", "seat") == NULL);
    CHECK(find_word("tni_seat_of(x)", "seat") != NULL);
    CHECK(find_word("device_seat = 1;", "seat") != NULL);
    CHECK(find_word("// nothing, anything", "thing") == NULL);
    CHECK(find_word("// it is told late", "is told") != NULL);
    CHECK(find_word("tni_then_run(x)", "tni_then*") != NULL);
    CHECK(find_word("tni_layer *l", "tni_lay") == NULL);
    CHECK(find_word("tni_layer *l", "tni_lay_*") == NULL);
    CHECK(find_word("laid out as NumPy does", "laid") == NULL);
    CHECK(find_word("laid across", "laid") != NULL);
}

static void the_words_are_the_fields(void)
{
    static const char *const places[] = { "src", "include", "docs", "cli" };

    tree_list l = { 0 };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        tree_add(&l, places[i], ".c .h .hpp .def .inc .md .1");
    tree_sort(&l);
    CHECK(l.count > 300);
    for (int i = 0; i < l.count; i++) check_words_of(l.path[i]);
    check_words_of("README.md");
    check_words_of("CONTRIBUTING.md");
    tree_free(&l);
}

// ---- comments

typedef struct {
    int code, comment;
} lines_of;

// Counts a line: a comment, code, or code with a comment behind it, which counts as both.
static void count_line(const char *line, bool *block, lines_of *n)
{
    line += strspn(line, " \t");
    if (!*line) return;
    const char *slashes = strstr(line, "//");
    bool        whole   = *block || !strncmp(line, "//", 2) || !strncmp(line, "/*", 2);
    if (!strncmp(line, "/*", 2)) *block = true;
    if (strstr(line, "*/")) *block = false;
    n->code += !whole;
    if (!whole && slashes) {
        int quotes = 0;
        for (const char *c = line; c < slashes; c++) quotes += *c == '"';
        whole = quotes % 2 == 0;
    }
    n->comment += whole;
}

// Share of comment lines in the .c files of src that this test demands, in percent.
enum { SHARE = 14 };

static void sources_explain_themselves(void)
{
    tree_list l = { 0 };
    lines_of  n = { 0 };
    tree_add(&l, "src", ".c");
    for (int i = 0; i < l.count; i++) {
        char *text  = tree_read(l.path[i], NULL);
        bool  block = false;
        for (char *line = text, *end; line && *line; line = end) {
            end = line + strcspn(line, "\n");
            if (*end) *end++ = 0;
            count_line(line, &block, &n);
        }
        free(text);
    }
    test_that(100 * n.comment >= SHARE * (n.code + n.comment),
              "%d of %d lines of src/*.c are comment: less than %d %%", n.comment,
              n.code + n.comment, SHARE);
    tree_free(&l);
}

// ---- functions

enum { LONG = 15 };  // lines of a body from which on a function has to say what it does

// The line before `at`, which is the beginning of one; NULL at the beginning of the text.
static const char *line_before(const char *text, const char *at)
{
    if (at == text) return NULL;
    for (at--; at > text && at[-1] != '\n';) at--;
    return at;
}

// Whether a comment ends on the line before a function's signature. What lies between, the lines of
// the signature and of macros that belong to it, has no blank line.
static bool has_comment_above(const char *text, const char *brace)
{
    const char *at = brace;
    while ((at = line_before(text, at)) != NULL && *at != '\n')
        if (!strncmp(at, "//", 2) || strstr(at, "*/") == at + strcspn(at, "\n") - 2) return true;
    return false;
}

// A function's body lies between a line "{" and a line "}", both in the first column.
static void check_functions_of(const char *path, const char *text)
{
    const char *open = NULL;
    int         n = 1, first = 0;
    for (const char *line = text; *line; n++) {
        size_t length = strcspn(line, "\n");
        if (length == 1 && *line == '{') open = line, first = n;
        if (length == 1 && *line == '}' && open) {
            test_that(n - first - 1 <= LONG || has_comment_above(text, open),
                      "%s:%d: a function of %d lines without a comment above it", path, first,
                      n - first - 1);
            open = NULL;
        }
        line += length + (line[length] == '\n');
    }
}

static void long_functions_say_what_they_do(void)
{
    tree_list l = { 0 };
    tree_add(&l, "src", ".c .h .inc");
    tree_sort(&l);
    for (int i = 0; i < l.count; i++) {
        char *text = tree_read(l.path[i], NULL);
        if (CHECK(text != NULL)) check_functions_of(l.path[i], text);
        free(text);
    }
    tree_free(&l);
}

const test_case tests_words[] = {
    TEST(banned_words_are_found),
    TEST(the_words_are_the_fields),
    TEST(sources_explain_themselves),
    TEST(long_functions_say_what_they_do),
    TEST_END,
};
