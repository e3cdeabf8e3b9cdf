// GPT-2's words: a run of letters, of numbers or of other characters, each with one space before
// it; the endings of English contractions; and runs of white space, without the space that belongs
// to the word after them.
#include "data/words.h"
#include "base/text.h"

#include <string.h>

typedef enum { OTHER, LETTER, NUMBER, SPACE } char_class;

typedef struct {
    uint32_t first, last;
    char_class class;
} range;

// Ascending.
static const range ranges[] = {
#define LETTER(first, last) { first, last, LETTER },
#define NUMBER(first, last) { first, last, NUMBER },
#define SPACE(first, last)  { first, last, SPACE },
#include "data/unicode.def"
#undef LETTER
#undef NUMBER
#undef SPACE
};

static char_class class_of_ascii(unsigned char c)
{
    if ((c | 32) >= 'a' && (c | 32) <= 'z') return LETTER;
    if (c >= '0' && c <= '9') return NUMBER;
    return c == ' ' || (c >= '\t' && c <= '\r') ? SPACE : OTHER;
}

// Binary search in the ranges; a character in none of them is OTHER.
static char_class class_of(uint32_t c)
{
    size_t low = 0, high = sizeof ranges / sizeof *ranges;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (c > ranges[middle].last) low = middle + 1;
        else high = middle;
    }
    bool inside = low < sizeof ranges / sizeof *ranges && c >= ranges[low].first;
    return inside ? ranges[low].class : OTHER;
}

// Returns the class of the character at s; *next is where the one after it begins. A byte that is not
// UTF-8 is one character.
static char_class class_at(const char *s, const char *end, const char **next)
{
    size_t n = (unsigned char)*s < 0x80 ? 1 : tni_utf8(s, (size_t)(end - s));
    *next    = s + (n ? n : 1);
    if ((unsigned char)*s < 0x80) return class_of_ascii((unsigned char)*s);
    return n ? class_of(tni_code_point(s, n)) : OTHER;
}

// Returns the end of 's, 't, 're and so on at a quote; NULL if there is none.
static const char *contraction(const char *at, const char *end)
{
    static const char *const endings[] = { "s", "t", "re", "ve", "m", "ll", "d" };
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t n = strlen(endings[i]);
        if ((size_t)(end - at) > n && memcmp(at + 1, endings[i], n) == 0) return at + 1 + n;
    }
    return NULL;
}

// Returns where the run of this class that goes on at `at` ends; *last is where its last character
// begins.
static const char *run_end(const char *at, const char *end, char_class class, const char **last)
{
    const char *next;
    for (; at < end && class_at(at, end, &next) == class; at = next) *last = at;
    return at;
}

// Follows GPT-2's pattern by hand: a space belongs to the word after it, and of a run of white space
// only the last space does.
const char *tni_word_end(const char *at, const char *end)
{
    const char *next, *last = at, *ending = *at == '\'' ? contraction(at, end) : NULL;
    if (ending) return ending;

    const char *body = *at == ' ' && at + 1 < end ? at + 1 : at;
    char_class class = class_at(body, end, &next);
    if (class != SPACE) return run_end(next, end, class, &last);

    const char *stop = run_end(at, end, SPACE, &last);
    return stop == end || last == at ? stop : last;
}
