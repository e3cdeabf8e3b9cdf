// A compiled regular expression: regex_parse.c writes it, regex.c runs it.
#ifndef TNI_DATA_REGEX_CODE_H
#define TNI_DATA_REGEX_CODE_H

#include "data/regex.h"
#include "data/unicode.h"

typedef enum {
    RE_SET,     // one character of a set
    RE_RUN,     // a to b characters of a set; b < 0: any number
    RE_SPLIT,   // goes on at +a; if that fails, at +b
    RE_JUMP,    // goes on at +a
    RE_AHEAD,   // the block behind it, up to its RE_MATCH, matches here; goes on at +a
    RE_ATOMIC,  // the same, and goes on where the block's match ends: its other ways are not tried
    RE_BEHIND,  // the character before is of a set
    RE_LINE_START,
    RE_LINE_END,
    RE_TEXT_START,
    RE_TEXT_END,
    RE_WORD_EDGE,
    RE_MATCH
} tni_regex_op;

typedef enum { RE_GREEDY, RE_LAZY, RE_POSSESSIVE } tni_regex_mode;

// Places are relative, so that a block of instructions can be moved and repeated.
typedef struct {
    uint8_t  op, mode;
    bool     negated;  // of RE_AHEAD, RE_BEHIND, RE_WORD_EDGE
    uint16_t set;
    int32_t  a, b;
} tni_regex_instruction;

// Part of a set: a range of code points, or what has one of some categories, or is white space, or
// belongs to words.
typedef struct {
    enum { RE_RANGE, RE_CATEGORY, RE_SPACE, RE_WORD } kind;
    bool     negated;
    uint32_t first, last;  // of a range; of categories, first is the mask
} tni_regex_item;

// A set of characters. The answers for ASCII are computed beforehand.
typedef struct {
    uint64_t ascii[2];
    bool     negated;
    uint32_t first, count;  // its items
} tni_regex_set;

// A choice to come back to: at p, from `at`. Of a greedy run, at any character from least to before
// `at`; of a lazy one, with one character more than the `count` it has.
typedef struct {
    const tni_regex_instruction *p;
    const char                  *at, *least;
    int32_t                      count;
} tni_regex_choice;

struct tni_regex {
    tni_heap              *heap;
    tni_regex_instruction *code;
    tni_regex_set         *set;
    tni_regex_item        *item;
    size_t                 codes, code_cap, sets, set_cap, items, item_cap;

    // While it runs.
    tni_regex_choice *choice;
    size_t            choices, choice_cap;
    const char       *text, *end;
    int64_t           steps;
    tni_found         failure;  // TNI_REGEX_FOUND: none
};

// Whether a character beyond ASCII, or tni_no_character, is in a set; and any.
bool tni_regex_has(const tni_regex *r, const tni_regex_set *s, uint32_t c);

#endif
