// shared_names.c: finding them. A declaration begins with a word for shared memory where a
// statement may begin, and names no pointer: those point to shared memory and do not lie there.
#include "shared_names.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

// A name in a text.
typedef struct {
    const char *s;
    size_t      n;
} word;

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

// The first word at or after `at`; of no length at the end.
static word word_at(const char *at)
{
    word w = { at, 0 };
    while (*w.s && !is_name(*w.s)) w.s++;
    while (is_name(w.s[w.n])) w.n++;
    return w;
}

static bool same(word a, word b)
{
    return a.n == b.n && !memcmp(a.s, b.s, a.n);
}

static bool is(word w, const char *s)
{
    return same(w, (word){ s, strlen(s) });
}

// Whether a statement may begin at `at`, the word extern aside.
static bool begins_statement(const char *text, const char *at)
{
    while (at > text && isspace((unsigned char)at[-1])) at--;
    if (at - text > 6 && !memcmp(at - 6, "extern", 6)) return begins_statement(text, at - 6);
    return at > text && strchr("{};", at[-1]);
}

// Behind the word that begins the next declaration; NULL if there is none.
static const char *next_declaration(const char *text, const char *at)
{
    for (word w = word_at(at); w.n; w = word_at(w.s + w.n)) {
        size_t to = strcspn(w.s, ";");
        if (!is(w, "__local") && !is(w, "__shared__") && !is(w, "LOCAL")) continue;
        if (begins_statement(text, w.s) && w.s[to] && !memchr(w.s, '*', to)) return w.s + w.n;
    }
    return NULL;
}

// The next name that a declaration declares: what a comma, a bracket or the end comes after. Goes
// on to behind its brackets.
static word next_name(const char **at)
{
    word w = word_at(*at);
    while (w.s[w.n] && !strchr(",;[", w.s[w.n])) w = word_at(w.s + w.n);
    *at = w.s + w.n;
    *at += strcspn(*at, ",;");
    return w;
}

// Whether a word is used from `at` to the end of the block that this lies in.
static bool used_after(const char *at, word name)
{
    for (int depth = 0; *at && depth >= 0; at++) {
        depth += *at == '{';
        depth -= *at == '}';
        if (!is_name(*at)) continue;
        word w = word_at(at);
        if (same(w, name)) return true;
        at = w.s + w.n - 1;
    }
    return false;
}

bool shared_names_used(const char *text, char *unused, size_t room)
{
    for (const char *at = text; (at = next_declaration(text, at)) != NULL;) {
        const char *end = at + strcspn(at, ";");
        while (at < end) {
            word name = next_name(&at);
            if (used_after(end, name)) continue;
            snprintf(unused, room, "%.*s", (int)name.n, name.s);
            return false;
        }
    }
    return true;
}

int shared_names_count(const char *text)
{
    int n = 0;
    for (const char *at = text; (at = next_declaration(text, at)) != NULL;)
        for (const char *end = at + strcspn(at, ";"); at < end; n++) next_name(&at);
    return n;
}
