// The steps that a text goes through before it is encoded. Each gets a piece of the text, changes
// or cuts it, and hands every piece that comes out to the next step at once; so only texts that are
// changed are copied, and only as long as their pieces are. Empty pieces vanish.
#include "data/tokenizer.h"

#include <stdlib.h>
#include <string.h>

// GPT-2's words: runs of letters, of numbers and of the rest, each with one space before it; the
// endings of English contractions; white space, without the space that belongs to the next word.
static const char gpt2_words[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

// A piece of the text, and whether it begins the text.
typedef struct {
    const char *s;
    size_t      n;
    bool        first;
} piece;

// The text that is being encoded, where its tokens go, and who asked for it.
typedef struct {
    tn_tokenizer   *t;
    const char     *op;
    bool            plain;  // special tokens are ordinary text
    tni_token_sink *sink;
} encoding;

static bool run_steps(const encoding *e, int k, piece p);

// ---- finding -----------------------------------------------------------------------------------

// Finds the next match of a step's pattern at or after `at`. False if there is none, or on failure,
// which is reported and sets *failed.
static bool find_match(const encoding *e, const tni_step *step, piece p, const char *at,
                       const char **from, const char **to, bool *failed)
{
    const char *end = p.s + p.n;
    if (step->regex) {
        tni_found found = tni_regex_find(step->regex, p.s, at, end, from, to);
        if (found == TNI_REGEX_NO_MEMORY) tni_fail_memory(e->t->owned.cx, e->op);
        if (found == TNI_REGEX_TOO_LONG)
            tni_fail(e->t->owned.cx, TN_EARG,
                     "%s: the tokenizer's pattern takes too long on this text", e->op);
        *failed = found != TNI_REGEX_FOUND && found != TNI_REGEX_NONE;
        return found == TNI_REGEX_FOUND;
    }
    *failed = false;
    for (size_t n = step->text_bytes; n && (size_t)(end - at) >= n; at++) {
        at = memchr(at, step->text[0], (size_t)(end - at) - n + 1);
        if (!at) return false;
        if (memcmp(at, step->text, n) != 0) continue;
        *from = at;
        *to   = at + n;
        return true;
    }
    return false;
}

// The matches of a pattern in a piece, one after the other.
typedef struct {
    const char *at;    // where the next is looked for
    const char *last;  // where the last one ended; NULL before the first
    bool        failed;
} search;

// Moves to the next match. An empty one right behind the last match does not count.
static bool next_match(const encoding *e, const tni_step *step, piece p, search *s,
                       const char **from, const char **to)
{
    const char *end = p.s + p.n;
    while (s->at && find_match(e, step, p, s->at, from, to, &s->failed)) {
        bool again = *from == *to && s->last == *to;
        s->last = s->at = *to;
        if (!again) return true;
        if (s->at == end) break;
        tni_read_character(s->at, end, &s->at);
    }
    s->at = NULL;
    return false;
}

// ---- cutting -----------------------------------------------------------------------------------

// A cut text: the part that waits, since the next one may join it.
typedef struct {
    const encoding *e;
    const tni_step *step;
    int             next;  // the step that gets the parts
    piece           whole;
    const char     *from, *to;  // the part that waits; NULL: none
    bool            was_match;
} cutting;

static bool hand_on(cutting *c)
{
    piece p = { c->from, (size_t)(c->to - c->from), c->whole.first && c->from == c->whole.s };
    if (!c->from) return true;
    c->from = NULL;
    return run_steps(c->e, c->next, p);
}

// Takes the next part of the text: a match, or what is between two.
static bool take_part(cutting *c, const char *from, const char *to, bool match)
{
    bool joins = false;
    if (c->step->invert) match = !match;
    switch (c->step->behavior) {
    case TNI_SPLIT_WITH_PREVIOUS: joins = match && !c->was_match; break;
    case TNI_SPLIT_WITH_NEXT: joins = !match && c->was_match; break;
    case TNI_SPLIT_CONTIGUOUS: joins = match == c->was_match; break;
    default: break;
    }
    c->was_match = match;
    if (joins && c->from) {
        c->to = to;
        return true;
    }
    if (!hand_on(c)) return false;
    if (match && c->step->behavior == TNI_SPLIT_REMOVED) return true;
    c->from = from;
    c->to   = to;
    return true;
}

static bool cut(const encoding *e, int k, piece p)
{
    const tni_step *step = &e->t->step[k];
    cutting         c    = { .e = e, .step = step, .next = k + 1, .whole = p };
    search          s    = { .at = p.s };
    const char     *done = p.s, *from, *to;
    while (next_match(e, step, p, &s, &from, &to)) {
        if (from > done && !take_part(&c, done, from, false)) return false;
        if (!take_part(&c, from, to, true)) return false;
        done = to;
    }
    if (s.failed) return false;
    if (done < p.s + p.n && !take_part(&c, done, p.s + p.n, false)) return false;
    return hand_on(&c);
}

// ---- added tokens ------------------------------------------------------------------------------

// Whether white space or a place next to it: the character before, and after, is no part of a word.
static bool is_single_word(piece p, const char *from, const char *to)
{
    const char *next, *before = from;
    if (to < p.s + p.n && tni_joins_words(tni_read_character(to, p.s + p.n, &next))) return false;
    if (from == p.s) return true;
    do before--;
    while (before > p.s && from - before < 4 && ((unsigned char)*before & 0xc0) == 0x80);
    return !tni_joins_words(tni_read_character(before, from, &next));
}

// The longest added token at `at`; NULL if there is none.
static const tni_added *added_at(const encoding *e, bool normalized, const char *at,
                                 const char *end)
{
    const tn_tokenizer *t = e->t;
    unsigned            c = (unsigned char)*at;
    for (uint32_t i = t->added_from[c]; i < t->added_from[c + 1]; i++) {
        const tni_added *a = &t->added[i];
        if (a->normalized == normalized && a->bytes <= (size_t)(end - at) &&
            memcmp(a->text, at, a->bytes) == 0)
            return a;
    }
    return NULL;
}

static const char *skip_space(const char *at, const char *end)
{
    const char *next;
    while (at < end && tni_is_space(tni_read_character(at, end, &next))) at = next;
    return at;
}

// Where the white space that ends at `at` begins.
static const char *space_start(const char *s, const char *at)
{
    const char *start = s, *next;
    for (; s < at; s = next)
        if (!tni_is_space(tni_read_character(s, at, &next))) start = next;
    return start;
}

// Takes an added token out of the text, with the white space that it takes along. `done` is where
// the token before it ended.
static bool take_added(const encoding *e, int k, piece p, const tni_added *a, const char *at,
                       const char **done)
{
    const char *from = at, *to = at + a->bytes, *end = p.s + p.n;
    if (a->lstrip) from = space_start(*done < at ? *done : at, at);
    if (a->rstrip) to = skip_space(to, end);
    piece between = { *done, from > *done ? (size_t)(from - *done) : 0, p.first && *done == p.s };
    *done         = to;
    return run_steps(e, k + 1, between) && e->sink->put(e->sink, &a->id, 1);
}

// Cuts a text at added tokens: the leftmost, of those the longest.
static bool cut_added(const encoding *e, int k, piece p)
{
    bool        normalized = e->t->step[k].normalized;
    const char *done = p.s, *end = p.s + p.n;
    for (const char *at = p.s; at < end;) {
        const tni_added *a = added_at(e, normalized, at, end);
        if (!a) {
            at++;
            continue;
        }
        const char *next = at + a->bytes;
        bool        skip = (e->plain && a->special) ||
                    (a->single_word && !is_single_word(p, at, at + a->bytes));
        if (!skip && !take_added(e, k, p, a, at, &done)) return false;
        at = next;
    }
    piece rest = { done, done < end ? (size_t)(end - done) : 0, p.first && done == p.s };
    return run_steps(e, k + 1, rest);
}

// ---- changing ----------------------------------------------------------------------------------

static bool starts_with(piece p, const char *s, size_t n)
{
    return p.n >= n && memcmp(p.s, s, n) == 0;
}

// Writes a text with its matches replaced.
static bool replace(const encoding *e, tni_step *step, piece p, tni_heap *h)
{
    search      s    = { .at = p.s };
    const char *done = p.s, *from, *to;
    bool        ok   = true;
    while (ok && next_match(e, step, p, &s, &from, &to)) {
        ok = tni_byte_list_add(h, &step->out, done, (size_t)(from - done)) &&
             tni_byte_list_add(h, &step->out, step->content, step->content_bytes);
        done = to;
    }
    if (s.failed) return false;
    ok = ok && tni_byte_list_add(h, &step->out, done, (size_t)(p.s + p.n - done));
    return ok || tni_no_memory(e->t->owned.cx, e->op);
}

// The characters are of one or two bytes.
static bool write_bytes(tni_step *step, piece p, tni_heap *h)
{
    if (!tni_byte_list_add(h, &step->out, NULL, 0)) return false;
    void *data     = step->out.data;
    bool  ok       = tni_grow(h, &data, &step->out.capacity, 2 * p.n + 1, 1);
    step->out.data = data;
    if (!ok) return false;
    char *to = step->out.data;
    for (size_t i = 0; i < p.n; i++)
        to += tni_utf8_put(to, tni_byte_character((unsigned char)p.s[i]));
    step->out.bytes = (size_t)(to - step->out.data);
    return true;
}

static piece strip(const tni_step *step, piece p)
{
    const char *end = p.s + p.n, *from = step->left ? skip_space(p.s, end) : p.s;
    if (step->right) end = space_start(from, end);
    return (piece){ from, (size_t)(end - from), p.first };
}

// Changes a piece by a step. The new text is in the step's memory until it is used again, which is
// after all steps behind it are done with it. False, reported.
static bool change(const encoding *e, int k, piece *p)
{
    tni_step *step = &e->t->step[k];
    tni_heap *h    = &e->t->owned.cx->heap;
    bool      ok   = true;
    if (step->kind == TNI_STEP_STRIP) {
        *p = strip(step, *p);
        return true;
    }
    bool has = step->if_missing && starts_with(*p, step->text, step->text_bytes);
    if (step->kind == TNI_STEP_PREFIX && (has || (step->first && !p->first))) return true;
    step->out.bytes = 0;
    if (step->kind == TNI_STEP_REPLACE) {
        if (!replace(e, step, *p, h)) return false;
    } else if (step->kind == TNI_STEP_BYTES) ok = write_bytes(step, *p, h);
    else if (step->kind == TNI_STEP_CANONICAL)
        ok = tni_canonical(h, &step->out, p->s, p->n, step->composed);
    else
        ok = tni_byte_list_add(h, &step->out, step->text, step->text_bytes) &&
             tni_byte_list_add(h, &step->out, p->s, p->n);
    if (!ok) return tni_no_memory(e->t->owned.cx, e->op);
    *p = (piece){ step->out.data, step->out.bytes, p->first };
    return true;
}

// ---- all steps ---------------------------------------------------------------------------------

// Hands a piece to step k; a cut goes on by itself. Nested as deep as there are steps.
static bool run_steps(const encoding *e, int k, piece p)
{
    for (; p.n > 0 && k < e->t->steps; k++) {
        if (e->t->step[k].kind == TNI_STEP_ADDED) return cut_added(e, k, p);
        if (e->t->step[k].kind == TNI_STEP_SPLIT) return cut(e, k, p);
        if (!change(e, k, &p)) return false;
    }
    return p.n == 0 || tni_encode_word(e->t, e->op, p.s, p.n, e->sink);
}

bool tni_encode(tn_tokenizer *t, const char *op, const char *s, size_t n, bool plain,
                tni_token_sink *sink)
{
    const encoding e = { t, op, plain, sink };
    return run_steps(&e, 0, (piece){ s, n, true });
}

const char *tni_rewrite(tn_tokenizer *t, int from, int to, const char *s, size_t n, size_t *bytes)
{
    const encoding e = { t, "tokenizer", false, NULL };
    piece          p = { s, n, true };
    for (int k = from; p.n > 0 && k < to; k++)
        if (!change(&e, k, &p)) return NULL;
    *bytes = p.n;
    return p.s;
}

// ---- making them -------------------------------------------------------------------------------

tni_step *tni_add_step(tn_tokenizer *t, tni_step_type kind)
{
    if (t->steps == TNI_MOST_STEPS) return NULL;
    t->step[t->steps] = (tni_step){ .kind = kind };
    return &t->step[t->steps++];
}

tni_step *tni_add_split(tn_tokenizer *t, const char *path, const char *pattern, size_t n)
{
    tni_text  why;
    tn_ctx   *cx   = t->owned.cx;
    tni_step *step = tni_add_step(t, TNI_STEP_SPLIT);
    if (!step) return tni_fail(cx, TN_EFORMAT, "tokenizer: %s: it has too many steps", path);
    step->behavior = TNI_SPLIT_ISOLATED;
    step->regex    = tni_regex_open(&cx->heap, pattern, n, &why);
    if (step->regex) return step;
    if (!*why.s) return tni_fail_memory(cx, "tokenizer");
    return tni_fail(cx, TN_EFORMAT, "tokenizer: %s: in a pattern, %s", path, why.s);
}

bool tni_add_byte_level(tn_tokenizer *t, const char *path, bool prefix, bool words)
{
    tni_step *step = prefix ? tni_add_step(t, TNI_STEP_PREFIX) : NULL;
    if (step) {
        step->if_missing = true;
        step->text_bytes = 1;
        step->text       = tni_strdup(&t->owned.cx->heap, " ");
        if (!step->text) return tni_no_memory(t->owned.cx, "tokenizer");
    }
    if (words && !tni_add_split(t, path, gpt2_words, sizeof gpt2_words - 1)) return false;
    if (tni_add_step(t, TNI_STEP_BYTES) && (step || !prefix)) return true;
    return tni_refuse(t->owned.cx, TN_EFORMAT, "tokenizer: %s: it has too many steps", path);
}

static int compare_added(const void *a, const void *b)
{
    const tni_added *x = a, *y = b;
    unsigned char    c = (unsigned char)x->text[0], d = (unsigned char)y->text[0];
    if (c != d) return c < d ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return memcmp(x->text, y->text, x->bytes);
}

void tni_order_added(tn_tokenizer *t)
{
    if (t->addeds) qsort(t->added, t->addeds, sizeof *t->added, compare_added);
    for (uint32_t c = 0, i = 0; c <= 256; c++) {
        while (i < t->addeds && (unsigned char)t->added[i].text[0] < c) i++;
        t->added_from[c] = i;
    }
}
