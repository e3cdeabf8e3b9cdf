// Regular expressions as tokenizer.json files have them: Oniguruma's syntax over Unicode, the part
// of it that cuts texts into words. What is not supported is an error when the pattern is compiled.
#ifndef TNI_DATA_REGEX_H
#define TNI_DATA_REGEX_H

#include "base/heap.h"
#include "base/text.h"

// Supported: alternatives, groups (?: ) ( ) (?> ) (?i: ) (?i), look-ahead (?= ) (?! ), look-behind
// of one character, classes, \p{L}, \p{Lu}, \s \d \w and their opposites, . ^ $ \A \z \b \B, and
// the repetitions * + ? {m,n}, greedy, lazy and possessive.
typedef struct tni_regex tni_regex;

typedef enum { TNI_REGEX_FOUND, TNI_REGEX_NONE, TNI_REGEX_NO_MEMORY, TNI_REGEX_TOO_LONG } tni_found;

// Compiles n bytes of UTF-8. NULL with the reason in *why, or with an empty *why when memory is
// out.
tni_regex *tni_regex_open(tni_heap *h, const char *pattern, size_t n, tni_text *why);
void       tni_regex_free(tni_heap *h, tni_regex *r);

// Finds the leftmost match of text .. end that begins at or after `at`: *from to *to. A byte that
// is not UTF-8 counts as a character without any property. TOO_LONG: backtracking passed a limit.
tni_found tni_regex_find(tni_regex *r, const char *text, const char *at, const char *end,
                         const char **from, const char **to);

#endif
