// Runs a compiled regular expression by backtracking, as Oniguruma does: the first way to match in
// the order of the pattern counts, not the longest. Choices are a list of its own, so a long text
// needs no stack; a run of characters is one choice however long it is.
#include "data/regex_code.h"

#include <string.h>

// Ways tried before a search gives up. Patterns that cut words need a few for each character.
static const int64_t MOST_STEPS = 10 * 1000 * 1000;

void tni_regex_free(tni_heap *h, tni_regex *r)
{
    if (!r) return;
    tni_free(h, r->code);
    tni_free(h, r->set);
    tni_free(h, r->item);
    tni_free(h, r->choice);
    tni_free(h, r);
}

// ---- characters --------------------------------------------------------------------------------

// What is no character is in no item, and so in every set that is negated.
static bool item_has(const tni_regex_item *i, uint32_t c)
{
    switch (i->kind) {
    case RE_RANGE: return c >= i->first && c <= i->last;
    case RE_CATEGORY: return ((tni_category_bit(c) & i->first) != 0) != i->negated;
    case RE_SPACE: return tni_is_space(c) != i->negated;
    default: return tni_is_word(c) != i->negated;
    }
}

bool tni_regex_has(const tni_regex *r, const tni_regex_set *s, uint32_t c)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (item_has(&r->item[s->first + i], c)) return !s->negated;
    return s->negated;
}

// Where the character at `at` ends if it is in a set; else NULL.
static inline const char *step(const tni_regex *r, uint16_t set, const char *at)
{
    const tni_regex_set *s = &r->set[set];
    const char          *next;
    if (at == r->end) return NULL;
    unsigned char byte = (unsigned char)*at;
    if (byte < 0x80) return s->ascii[byte >> 6] >> (byte & 63) & 1 ? at + 1 : NULL;
    return tni_regex_has(r, s, tni_read_character(at, r->end, &next)) ? next : NULL;
}

// Where the character that ends at `at` > least begins.
static const char *step_back(const char *least, const char *at)
{
    for (int n = 2; n <= 4 && at - n >= least && ((unsigned char)at[-1] & 0xc0) == 0x80; n++)
        if (tni_utf8(at - n, (size_t)n) == (size_t)n) return at - n;
    return at - 1;
}

static uint32_t character_before(const tni_regex *r, const char *at)
{
    const char *next;
    return at > r->text ? tni_read_character(step_back(r->text, at), at, &next) : tni_no_character;
}

static bool is_word_edge(const tni_regex *r, const char *at)
{
    const char *next;
    uint32_t    after = at < r->end ? tni_read_character(at, r->end, &next) : tni_no_character;
    return tni_is_word(character_before(r, at)) != tni_is_word(after);
}

// Whether a place between characters is of a kind.
static bool place_is(const tni_regex *r, const tni_regex_instruction *p, const char *at)
{
    switch (p->op) {
    case RE_LINE_START: return at == r->text || at[-1] == '\n';
    case RE_LINE_END: return at == r->end || *at == '\n';
    case RE_TEXT_START: return at == r->text;
    case RE_TEXT_END: return at == r->end;
    case RE_WORD_EDGE: return is_word_edge(r, at) != p->negated;
    default: return (at > r->text && step(r, p->set, step_back(r->text, at)) == at) != p->negated;
    }
}

// ---- choices -----------------------------------------------------------------------------------

static bool push_choice(tni_regex *r, tni_regex_choice c)
{
    void *list = r->choice;
    if (r->choices == r->choice_cap &&
        !tni_grow(r->heap, &list, &r->choice_cap, r->choices + 1, sizeof *r->choice)) {
        r->failure = TNI_REGEX_NO_MEMORY;
        return false;
    }
    r->choice               = list;
    r->choice[r->choices++] = c;
    return true;
}

// Takes up the newest choice of those from `base` on: the instruction and the place to go on from;
// NULL if there is none.
static const tni_regex_instruction *take_choice(tni_regex *r, size_t base, const char **at)
{
    if (r->choices == base || r->failure != TNI_REGEX_FOUND) return NULL;
    if (++r->steps > MOST_STEPS) {
        r->failure = TNI_REGEX_TOO_LONG;
        return NULL;
    }
    tni_regex_choice            *c = &r->choice[r->choices - 1];
    const tni_regex_instruction *p = c->p;
    if (c->count >= 0) {  // a lazy run takes one character more
        *at = step(r, p->set, c->at);
        if (!*at || (p->b >= 0 && c->count + 1 >= p->b)) r->choices--;
        else c->at = *at, c->count++;
        return *at ? p + 1 : take_choice(r, base, at);
    }
    *at = c->at;
    if (c->least) *at = c->at = step_back(c->least, c->at);
    if (!c->least || c->at == c->least) r->choices--;
    return p;
}

// Takes the characters of a run, and keeps the shorter or longer ones as a choice. NULL if there
// are too few of them.
static const char *take_run(tni_regex *r, const tni_regex_instruction *p, const char *at)
{
    const char *least = at, *next;
    int32_t     n = 0, most = p->mode == RE_LAZY ? p->a : p->b;
    for (; n != most && (next = step(r, p->set, at)) != NULL; at = next) {
        n++;
        if (n == p->a) least = next;
    }
    if (n < p->a) return NULL;
    if (p->mode == RE_GREEDY && at > least)
        push_choice(r, (tni_regex_choice){ p + 1, at, least, -1 });
    if (p->mode == RE_LAZY && n != p->b) push_choice(r, (tni_regex_choice){ p, at, NULL, n });
    return at;
}

// Whether a choice can be seen to fail by its first character: then it need not be taken.
static bool begins_here(const tni_regex *r, const tni_regex_instruction *p, const char *at)
{
    bool set = p->op == RE_SET || (p->op == RE_RUN && p->a > 0);
    return !set || step(r, p->set, at);
}

// Runs the block at p from `at` on: where its match ends, or NULL. Look-ahead and atomic groups are
// runs inside it, as deep as the pattern.
static const char *run_block(tni_regex *r, const tni_regex_instruction *p, const char *at)
{
    size_t base = r->choices;
    while (p && p->op != RE_MATCH) {
        const char *next = at;
        int32_t     by   = 1;
        switch (p->op) {
        case RE_SET: next = step(r, p->set, at); break;
        case RE_RUN: next = take_run(r, p, at); break;
        case RE_JUMP: by = p->a; break;
        case RE_SPLIT:
            by = begins_here(r, p + p->a, at) ? p->a : p->b;
            if (by == p->a && !push_choice(r, (tni_regex_choice){ p + p->b, at, NULL, -1 }))
                next = NULL;
            break;
        case RE_AHEAD:
            if ((run_block(r, p + 1, at) != NULL) == p->negated) next = NULL;
            by = p->a;
            break;
        case RE_ATOMIC:
            next = run_block(r, p + 1, at);
            by   = p->a;
            break;
        default:
            if (!place_is(r, p, at)) next = NULL;
        }
        p  = next ? p + by : take_choice(r, base, &next);
        at = next;
    }
    r->choices = base;
    return p && r->failure == TNI_REGEX_FOUND ? at : NULL;
}

tni_found tni_regex_find(tni_regex *r, const char *text, const char *at, const char *end,
                         const char **from, const char **to)
{
    r->text    = text;
    r->end     = end;
    r->steps   = 0;
    r->choices = 0;
    r->failure = TNI_REGEX_FOUND;
    for (;;) {
        *from = at;
        *to   = run_block(r, r->code, at);
        if (*to) return TNI_REGEX_FOUND;
        if (r->failure != TNI_REGEX_FOUND) return r->failure;
        if (at == end) return TNI_REGEX_NONE;
        tni_read_character(at, end, &at);
    }
}
