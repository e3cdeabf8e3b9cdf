// Compiles a regular expression in one pass, by recursive descent. A block of instructions is
// written first; what stands around it (a choice before it, its repetition) is known only
// afterwards, so the block is moved by one, which relative places allow.
#include "data/regex_code.h"

#include <string.h>

enum { MOST_CODE = 8192, MOST_SETS = 4096, MOST_DEPTH = 60, MOST_REPEAT = 1000, MANY = -1 };

// The state of compiling. After an error `why` is set, and everything returns.
typedef struct {
    tni_regex  *r;
    const char *start, *at, *end;
    bool        fold;  // upper and lower case are equal here
    int         depth;
    bool        failed;
    tni_text   *why;
} parser;

static void parse_choice(parser *p, bool *empty);

// The message names the construct by its first characters.
static void refuse(parser *p, const char *at, const char *what)
{
    if (p->failed) return;
    p->failed = true;
    char   text[48];
    size_t n = at < p->end ? (size_t)(p->end - at) : 0;
    tni_escape(text, n < 12 ? n + 1 : 13, at, n);
    *p->why = tni_text_of("%s: \"%s\" at byte %zu", what, text, (size_t)(at - p->start));
}

static void out_of_memory(parser *p)
{
    if (!p->failed) *p->why = (tni_text){ "" };
    p->failed = true;
}

static bool is_next(const parser *p, char c)
{
    return p->at < p->end && *p->at == c;
}

static bool accept(parser *p, const char *s)
{
    size_t n = strlen(s);
    if ((size_t)(p->end - p->at) < n || memcmp(p->at, s, n) != 0) return false;
    p->at += n;
    return true;
}

// ---- instructions ------------------------------------------------------------------------------

// Appends n instructions, zeroed; returns the place of the first.
static size_t reserve(parser *p, size_t n)
{
    tni_regex *r    = p->r;
    void      *code = r->code;
    if (!p->failed && r->codes + n > MOST_CODE) refuse(p, p->at, "the pattern is too long");
    if (!p->failed && !tni_grow(r->heap, &code, &r->code_cap, r->codes + n, sizeof *r->code))
        out_of_memory(p);
    if (p->failed) return 0;
    r->code = code;
    memset(r->code + r->codes, 0, n * sizeof *r->code);
    r->codes += n;
    return r->codes - n;
}

static void emit(parser *p, tni_regex_instruction i)
{
    size_t at = reserve(p, 1);
    if (!p->failed) p->r->code[at] = i;
}

// Moves everything from `at` on by one, and puts an instruction there.
static void insert(parser *p, size_t at, tni_regex_instruction i)
{
    reserve(p, 1);
    if (p->failed) return;
    tni_regex_instruction *code = p->r->code;
    memmove(code + at + 1, code + at, (p->r->codes - at - 1) * sizeof *code);
    code[at] = i;
}

// Appends n copies of the `length` instructions from `from` on.
static void repeat_block(parser *p, size_t from, size_t length, int n)
{
    for (int i = 0; i < n && !p->failed; i++) {
        size_t to = reserve(p, length);
        if (!p->failed) memcpy(p->r->code + to, p->r->code + from, length * sizeof *p->r->code);
    }
}

// ---- sets --------------------------------------------------------------------------------------

static size_t begin_set(parser *p)
{
    tni_regex *r   = p->r;
    void      *set = r->set;
    if (!p->failed && r->sets == MOST_SETS) refuse(p, p->at, "the pattern has too many classes");
    if (!p->failed && !tni_grow(r->heap, &set, &r->set_cap, r->sets + 1, sizeof *r->set))
        out_of_memory(p);
    if (p->failed) return 0;
    r->set          = set;
    r->set[r->sets] = (tni_regex_set){ .first = (uint32_t)r->items };
    return r->sets++;
}

static void add_item(parser *p, tni_regex_item item)
{
    tni_regex *r    = p->r;
    void      *list = r->item;
    if (!p->failed && !tni_grow(r->heap, &list, &r->item_cap, r->items + 1, sizeof *r->item))
        out_of_memory(p);
    if (p->failed) return;
    r->item             = list;
    r->item[r->items++] = item;
}

static void add_range(parser *p, uint32_t first, uint32_t last)
{
    add_item(p, (tni_regex_item){ .kind = RE_RANGE, .first = first, .last = last });
}

// Adds a range. Where case does not count, also its letters of the other case, with the long s and
// the kelvin sign, which are cases of s and k. Letters beyond ASCII would need a table of their
// own.
static void add_characters(parser *p, const char *at, uint32_t first, uint32_t last)
{
    static const uint32_t cased = 1u << TNI_LU | 1u << TNI_LL | 1u << TNI_LT;
    add_range(p, first, last);
    if (!p->fold) return;
    if (last >= 0x80 && (first != last || (tni_category_bit(first) & cased)))
        refuse(p, at, "letters beyond ASCII without their case are not supported");
    for (uint32_t c = first; c <= last && c < 0x80; c++) {
        bool letter = (c | 32) >= 'a' && (c | 32) <= 'z';
        if (letter) add_range(p, c ^ 32, c ^ 32);
        if ((c | 32) == 's' && letter) add_range(p, 0x17f, 0x17f);
        if ((c | 32) == 'k' && letter) add_range(p, 0x212a, 0x212a);
    }
}

// Ends a set: its items are complete, so what it says about ASCII can be computed.
static void end_set(parser *p, size_t set)
{
    if (p->failed) return;
    tni_regex_set *s = &p->r->set[set];
    s->count         = (uint32_t)p->r->items - s->first;
    for (uint32_t c = 0; c < 0x80; c++)
        if (tni_regex_has(p->r, s, c)) s->ascii[c >> 6] |= (uint64_t)1 << (c & 63);
}

// ---- characters and classes --------------------------------------------------------------------

static uint32_t read_hex(parser *p, const char *from, int least, int most)
{
    uint32_t v = 0;
    int      n = 0;
    for (; n < most && p->at < p->end; n++, p->at++) {
        const char *digits = "0123456789abcdef", *d = strchr(digits, *p->at | 32);
        if (!*p->at || !d || (*p->at < '0')) break;
        v = v * 16 + (uint32_t)(d - digits);
    }
    if (n < least || v > 0x10ffff) refuse(p, from, "an escape of a character is wrong");
    return v;
}

// Reads \p{L}, \p{^L} or \P{L}, behind the letter p.
static void read_property(parser *p, const char *from, bool negated)
{
    const char *close = p->at < p->end ? memchr(p->at, '}', (size_t)(p->end - p->at)) : NULL;
    if (!accept(p, "{") || !close) {
        refuse(p, from, "a property has no name in braces");
        return;
    }
    if (accept(p, "^")) negated = !negated;
    uint32_t mask = tni_category_mask(p->at, (size_t)(close - p->at));
    if (!mask) refuse(p, from, "this property of characters is not supported");
    if (p->fold && (mask & (1u << TNI_LU | 1u << TNI_LL | 1u << TNI_LT)) &&
        mask != tni_category_mask("L", 1))
        refuse(p, from, "letters of one case where case does not count are not supported");
    add_item(p, (tni_regex_item){ .kind = RE_CATEGORY, .negated = negated, .first = mask });
    p->at = close + 1;
}

// Reads a class by one letter (\s \S \d \D \w \W, \p) behind the backslash. False if it is not one.
static bool read_class_escape(parser *p, const char *from)
{
    char c       = p->at < p->end ? *p->at : 0;
    bool negated = c == 'S' || c == 'D' || c == 'W' || c == 'P';
    if (!c || !strchr("sSdDwWpP", c)) return false;
    p->at++;
    if (c == 'p' || c == 'P') read_property(p, from, negated);
    else if (c == 's' || c == 'S') add_item(p, (tni_regex_item){ RE_SPACE, negated, 0, 0 });
    else if (c == 'w' || c == 'W') add_item(p, (tni_regex_item){ RE_WORD, negated, 0, 0 });
    else add_item(p, (tni_regex_item){ RE_CATEGORY, negated, 1u << TNI_ND, 0 });
    return true;
}

// Reads an escaped character, behind the backslash.
static uint32_t read_escape(parser *p, const char *from)
{
    static const char letters[] = "ntrfvae", meanings[] = "\n\t\r\f\v\a\033";
    char              c      = p->at < p->end ? *p->at++ : 0;
    const char       *letter = c ? strchr(letters, c) : NULL;
    if (letter) return (unsigned char)meanings[letter - letters];
    if (c == 'x' && accept(p, "{")) {
        uint32_t v = read_hex(p, from, 1, 6);
        if (!accept(p, "}")) refuse(p, from, "an escape of a character is wrong");
        return v;
    }
    if (c == 'x') return read_hex(p, from, 1, 2);
    if (c == 'u') return read_hex(p, from, 4, 4);
    bool plain = c > ' ' && c < 0x7f && !((c | 32) >= 'a' && (c | 32) <= 'z') && !tni_is_digit(c);
    if (!plain && c != ' ') refuse(p, from, "this escape is not supported");
    return (unsigned char)c;
}

// Reads a character that stands for itself, or an escaped one.
static uint32_t read_literal(parser *p)
{
    const char *from = p->at;
    if (accept(p, "\\")) return read_escape(p, from);
    uint32_t c = tni_read_character(p->at, p->end, &p->at);
    if (c == tni_no_character) refuse(p, from, "the pattern is not UTF-8");
    return c;
}

// Reads one member of a class in brackets: a character, a range, or a class of its own.
static void read_member(parser *p)
{
    const char *from = p->at;
    if (*p->at == '[' || (*p->at == '&' && p->at + 1 < p->end && p->at[1] == '&')) {
        refuse(p, from, "classes inside classes are not supported");
        return;
    }
    if (accept(p, "\\")) {
        if (read_class_escape(p, from)) return;
        p->at = from;
    }
    uint32_t first = read_literal(p), last = first;
    bool     range = is_next(p, '-') && p->at + 1 < p->end && p->at[1] != ']';
    if (range) {
        p->at++;
        if (is_next(p, '[')) refuse(p, from, "classes inside classes are not supported");
        last = read_literal(p);
    }
    if (last < first) refuse(p, from, "a range of characters is empty");
    if (!p->failed) add_characters(p, from, first, last);
}

// Reads a class in brackets, behind the opening one; returns its set.
static size_t read_brackets(parser *p, const char *from)
{
    size_t set     = begin_set(p);
    bool   negated = accept(p, "^");
    if (is_next(p, ']')) refuse(p, from, "a class is empty");
    while (!p->failed && p->at < p->end && *p->at != ']') read_member(p);
    if (!p->failed && !accept(p, "]")) refuse(p, from, "a class has no end");
    if (!p->failed) p->r->set[set].negated = negated;
    end_set(p, set);
    return set;
}

// A set that is read by one character of the pattern, or an escape: \s, \p{L}, \n, a, the dot.
static size_t read_simple_set(parser *p)
{
    const char *from = p->at;
    size_t      set  = begin_set(p);
    bool        dot  = accept(p, ".");
    if (dot) add_range(p, '\n', '\n');
    if (dot && !p->failed) p->r->set[set].negated = true;
    bool class = !dot && accept(p, "\\") && read_class_escape(p, from);
    if (!dot && !class) {
        p->at      = from;
        uint32_t c = read_literal(p);
        if (!p->failed) add_characters(p, from, c, c);
    }
    end_set(p, set);
    return set;
}

// ---- groups ------------------------------------------------------------------------------------

// A look-behind is one character of a set, or not one: no more is needed to look back.
static void parse_behind(parser *p, const char *from, bool negated)
{
    size_t set = accept(p, "[") ? read_brackets(p, from) : p->at < p->end ? read_simple_set(p) : 0;
    if (!accept(p, ")"))
        refuse(p, from, "a look-behind of more than one character is not supported");
    emit(p, (tni_regex_instruction){ .op = RE_BEHIND, .negated = negated, .set = (uint16_t)set });
}

// A block of its own: it ends with RE_MATCH, and the instruction before it knows where that is.
static void parse_block(parser *p, tni_regex_op op, bool negated, bool *empty)
{
    size_t at = reserve(p, 1);
    parse_choice(p, empty);
    emit(p, (tni_regex_instruction){ .op = RE_MATCH });
    if (!p->failed)
        p->r->code[at] = (tni_regex_instruction){ .op      = (uint8_t)op,
                                                  .negated = negated,
                                                  .a       = (int32_t)(p->r->codes - at) };
}

// Reads a group behind its "(". Sets *empty if it can match nothing.
static void parse_group(parser *p, const char *from, bool *empty)
{
    bool fold = p->fold, ignored = false;
    *empty      = true;
    bool behind = accept(p, "?<="), not_behind = !behind && accept(p, "?<!");
    if (behind || not_behind) {
        parse_behind(p, from, not_behind);
        return;
    }
    if (++p->depth > MOST_DEPTH) refuse(p, from, "too many groups inside one another");
    if (accept(p, "?=")) parse_block(p, RE_AHEAD, false, &ignored);
    else if (accept(p, "?!")) parse_block(p, RE_AHEAD, true, &ignored);
    else if (accept(p, "?>")) parse_block(p, RE_ATOMIC, false, empty);
    else if (accept(p, "?i)")) {  // up to the end of the group around it
        if (from != p->start) refuse(p, from, "this group is supported at the start alone");
        p->fold = true;
        p->depth--;
        return;
    } else {
        if (accept(p, "?i:")) p->fold = true;
        else if (accept(p, "?-i:")) p->fold = false;
        else if (!accept(p, "?:") && is_next(p, '?'))
            refuse(p, from, "this kind of group is not supported");
        if (!p->failed) parse_choice(p, empty);
    }
    p->fold = fold;
    p->depth--;
    if (!accept(p, ")")) refuse(p, from, "a group has no end");
}

// Reads a place between characters; false if there is none.
static bool parse_place(parser *p)
{
    static const struct {
        const char  *text;
        tni_regex_op op;
        bool         negated;
    } places[] = { { "^", RE_LINE_START, false },   { "$", RE_LINE_END, false },
                   { "\\A", RE_TEXT_START, false }, { "\\z", RE_TEXT_END, false },
                   { "\\b", RE_WORD_EDGE, false },  { "\\B", RE_WORD_EDGE, true } };

    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (accept(p, places[i].text)) {
            emit(p, (tni_regex_instruction){ .op      = (uint8_t)places[i].op,
                                             .negated = places[i].negated });
            return true;
        }
    return false;
}

// ---- repetitions -------------------------------------------------------------------------------

// How often something is repeated: most is MANY for any number.
typedef struct {
    int            least, most;
    tni_regex_mode mode;
} repetition;

static int read_count(parser *p)
{
    int v = -1;
    for (; p->at < p->end && tni_is_digit(*p->at); p->at++) {
        v = (v < 0 ? 0 : v * 10) + (*p->at - '0');
        if (v > MOST_REPEAT) {
            refuse(p, p->at, tni_text_of("a repetition of more than %d", MOST_REPEAT).s);
            return 0;
        }
    }
    return v;
}

// Reads {m}, {m,}, {,n} or {m,n}; false, at the same place, if it is none: then the brace is a
// brace.
static bool read_braces(parser *p, repetition *k)
{
    const char *from = p->at;
    if (!accept(p, "{")) return false;
    k->least   = read_count(p);
    bool comma = accept(p, ",");
    k->most    = comma ? read_count(p) : k->least;
    if (!accept(p, "}") || (k->least < 0 && k->most < 0)) {
        p->at = from;
        return false;
    }
    if (k->least < 0) k->least = 0;
    if (k->most >= 0 && k->most < k->least)
        refuse(p, from, "a repetition's limits are in the wrong order");
    if (is_next(p, '+') || is_next(p, '*') || (!comma && is_next(p, '?')))
        refuse(p, from, "a repetition of a repetition is not supported");
    if (accept(p, "?")) k->mode = RE_LAZY;
    return true;
}

// Reads what follows an atom; false if it is not repeated.
static bool read_repetition(parser *p, repetition *k)
{
    *k               = (repetition){ 0, MANY, RE_GREEDY };
    const char *from = p->at;
    if (is_next(p, '{')) {
        if (!read_braces(p, k)) return false;
    } else if (accept(p, "?")) k->most = 1;
    else if (accept(p, "+")) k->least = 1;
    else if (!accept(p, "*")) return false;
    if (*from != '{') {
        if (accept(p, "?")) k->mode = RE_LAZY;
        else if (accept(p, "+")) k->mode = RE_POSSESSIVE;
    }
    if (is_next(p, '*') || is_next(p, '+') || is_next(p, '?'))
        refuse(p, from, "a repetition of a repetition is not supported");
    return true;
}

static tni_regex_instruction split_to(int32_t inside, int32_t outside, tni_regex_mode mode)
{
    bool lazy = mode == RE_LAZY;
    return (tni_regex_instruction){ .op = RE_SPLIT,
                                    .a  = lazy ? outside : inside,
                                    .b  = lazy ? inside : outside };
}

// Any number of the block at `at`, the last of its copies: at least one, or none.
static void loop_block(parser *p, size_t at, int32_t length, bool none, tni_regex_mode mode)
{
    if (none) {
        insert(p, at, split_to(1, length + 2, mode));
        emit(p, (tni_regex_instruction){ .op = RE_JUMP, .a = -(length + 1) });
    } else emit(p, split_to(-length, 1, mode));
}

// Up to n more copies of the block at `at`, which stand behind it; each can end the repetition.
static void add_optional(parser *p, size_t at, int32_t length, int n, tni_regex_mode mode)
{
    for (int left = n; left > 0 && !p->failed; left--) {
        emit(p, split_to(1, left * (length + 1), mode));
        repeat_block(p, at, (size_t)length, 1);
    }
}

// Repeats the instructions from `at` on. One character is a run of its set, which needs no choice
// for each character.
static void repeat(parser *p, size_t at, repetition k, bool empty, const char *from)
{
    int32_t length = (int32_t)(p->r->codes - at);
    if (p->failed) return;
    tni_regex_instruction *i = &p->r->code[at];
    if (length == 1 && i->op == RE_SET) {
        *i = (tni_regex_instruction){
            .op = RE_RUN, .mode = (uint8_t)k.mode, .set = i->set, .a = k.least, .b = k.most
        };
        return;
    }
    if (empty && k.most == MANY)
        refuse(p, from, "a repetition of what can be empty is not supported");
    if (k.most == 0) p->r->codes = at;
    else if (k.most == MANY) {
        repeat_block(p, at, (size_t)length, k.least - 1);
        loop_block(p, p->r->codes - (size_t)length, length, k.least == 0, k.mode);
    } else if (k.least == 0) {
        int32_t whole = k.most * (length + 1);
        insert(p, at, split_to(1, whole, k.mode));
        add_optional(p, at + 1, length, k.most - 1, k.mode);
    } else {
        repeat_block(p, at, (size_t)length, k.least - 1);
        add_optional(p, at, length, k.most - k.least, k.mode);
    }
    if (k.mode == RE_POSSESSIVE) {
        insert(p, at, (tni_regex_instruction){ .op = RE_ATOMIC });
        emit(p, (tni_regex_instruction){ .op = RE_MATCH });
        if (!p->failed) p->r->code[at].a = (int32_t)(p->r->codes - at);
    }
}

// ---- the whole ---------------------------------------------------------------------------------

// Reads one atom and its repetition. Returns whether it can match nothing.
static bool parse_atom(parser *p)
{
    const char *from  = p->at;
    size_t      at    = p->r->codes;
    bool        empty = false;
    repetition  k;
    if (strchr("*+?", *p->at)) refuse(p, from, "a repetition of nothing");
    if (accept(p, "(")) parse_group(p, from, &empty);
    else if (parse_place(p)) empty = true;
    else {
        size_t set = accept(p, "[") ? read_brackets(p, from) : read_simple_set(p);
        emit(p, (tni_regex_instruction){ .op = RE_SET, .set = (uint16_t)set });
    }
    if (p->failed || !read_repetition(p, &k)) return empty;
    repeat(p, at, k, empty, from);
    return empty || k.least == 0;
}

// Alternatives: a choice before the first, a jump behind it over the others.
static void parse_choice(parser *p, bool *empty)
{
    size_t at   = p->r->codes;
    bool   none = true, others = false, fold = p->fold;
    if (++p->depth > 4 * MOST_DEPTH) refuse(p, p->at, "too many alternatives");
    while (!p->failed && p->at < p->end && *p->at != '|' && *p->at != ')') none &= parse_atom(p);
    if (!p->failed && accept(p, "|")) {
        insert(p, at, (tni_regex_instruction){ .op = RE_SPLIT, .a = 1 });
        size_t jump = reserve(p, 1);
        parse_choice(p, &others);
        if (!p->failed) {
            p->r->code[at].b = (int32_t)(jump + 1 - at);
            p->r->code[jump] = (tni_regex_instruction){ .op = RE_JUMP,
                                                        .a  = (int32_t)(p->r->codes - jump) };
        }
    }
    p->depth--;
    p->fold = fold;
    *empty  = none || others;
}

tni_regex *tni_regex_open(tni_heap *h, const char *pattern, size_t n, tni_text *why)
{
    bool       empty;
    tni_regex *r = tni_zalloc(h, sizeof *r);
    *why         = (tni_text){ "" };
    if (!r) return NULL;
    parser p = { .r = r, .start = pattern, .at = pattern, .end = pattern + n, .why = why };
    r->heap  = h;
    parse_choice(&p, &empty);
    if (p.at < p.end) refuse(&p, p.at, "a bracket closes nothing");
    emit(&p, (tni_regex_instruction){ .op = RE_MATCH });
    if (!p.failed) return r;
    tni_regex_free(h, r);
    return NULL;
}
