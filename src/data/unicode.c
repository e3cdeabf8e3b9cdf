// Categories by binary search in a table of runs. Canonical forms by the standard's three steps:
// decompose, order the marks after each base by their classes, compose. Hangul is computed.
#include "data/unicode.h"
#include "base/text.h"

#include <string.h>

// ---- categories --------------------------------------------------------------------------------

// Runs in which upper and lower case alternate have a category of their own here.
enum { LULL = TNI_CATEGORIES, LLLU };

#define R(first, category) ((uint32_t)(first) << 8 | (uint32_t)(category)),
#define LU                 TNI_LU
#define LL                 TNI_LL
#define LT                 TNI_LT
#define LM                 TNI_LM
#define LO                 TNI_LO
#define MN                 TNI_MN
#define MC                 TNI_MC
#define ME                 TNI_ME
#define ND                 TNI_ND
#define NL                 TNI_NL
#define NO                 TNI_NO
#define PC                 TNI_PC
#define PD                 TNI_PD
#define PS                 TNI_PS
#define PE                 TNI_PE
#define PI                 TNI_PI
#define PF                 TNI_PF
#define PO                 TNI_PO
#define SM                 TNI_SM
#define SC                 TNI_SC
#define SK                 TNI_SK
#define SO                 TNI_SO
#define ZS                 TNI_ZS
#define ZL                 TNI_ZL
#define ZP                 TNI_ZP
#define CC                 TNI_CC
#define CF                 TNI_CF
#define CS                 TNI_CS
#define CO                 TNI_CO
#define CN                 TNI_CN

// Where a run begins, and its category in the lowest byte. Ascending; the first begins at 0.
static const uint32_t runs[] = {
#include "data/unicode.def"
};

// The last run that begins at or before c has its category.
uint32_t tni_category_bit(uint32_t c)
{
    size_t low = 0, high = sizeof runs / sizeof *runs;
    if (c > 0x10ffff) return 0;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (runs[middle] >> 8 <= c) low = middle;
        else high = middle;
    }
    uint32_t category = runs[low] & 0xff;
    if (category >= TNI_CATEGORIES)
        category = ((c - (runs[low] >> 8)) & 1) == (category == LLLU) ? TNI_LU : TNI_LL;
    return (uint32_t)1 << category;
}

// A letter alone is the group of all categories that begin with it.
uint32_t tni_category_mask(const char *name, size_t n)
{
    static const char names[] = "LuLlLtLmLoMnMcMeNdNlNoPcPdPsPePiPfPoSmScSkSoZsZlZpCcCfCsCoCn";
    uint32_t          mask    = 0;
    for (int i = 0; i < TNI_CATEGORIES; i++)
        if ((n == 1 || n == 2) && memcmp(names + 2 * i, name, n) == 0) mask |= (uint32_t)1 << i;
    return mask;
}

bool tni_is_space(uint32_t c)
{
    if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
           c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

// Beside the categories, the letters in circles and squares, which are symbols.
static bool is_word_letter(uint32_t c)
{
    static const uint32_t mask = 1u << TNI_LU | 1u << TNI_LL | 1u << TNI_LT | 1u << TNI_LM |
                                 1u << TNI_LO | 1u << TNI_MN | 1u << TNI_MC | 1u << TNI_ME |
                                 1u << TNI_ND | 1u << TNI_NL | 1u << TNI_PC;

    return (tni_category_bit(c) & mask) || (c >= 0x24b6 && c <= 0x24e9) ||
           (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
           (c >= 0x1f170 && c <= 0x1f189);
}

// Oniguruma also takes the small digits and fractions of Latin-1.
bool tni_is_word(uint32_t c)
{
    return c == 0xb2 || c == 0xb3 || c == 0xb9 || (c >= 0xbc && c <= 0xbe) || is_word_letter(c);
}

bool tni_joins_words(uint32_t c)
{
    return c == 0x200c || c == 0x200d || is_word_letter(c);
}

uint32_t tni_read_character(const char *s, const char *end, const char **next)
{
    *next = s + 1;
    if ((unsigned char)*s < 0x80) return (unsigned char)*s;
    size_t n = tni_utf8(s, (size_t)(end - s));
    if (!n) return tni_no_character;
    *next = s + n;
    return tni_code_point(s, n);
}

bool tni_byte_list_add(tni_heap *h, tni_byte_list *b, const char *s, size_t n)
{
    void *data = b->data;
    bool  ok   = tni_grow(h, &data, &b->capacity, b->bytes + n + 1, 1);
    b->data    = data;
    if (!ok) return false;
    if (n) memcpy(b->data + b->bytes, s, n);
    b->bytes += n;
    return true;
}

// ---- canonical forms ---------------------------------------------------------------------------

// A character and the two that it is composed of; b is 0 where it only stands for another.
typedef struct {
    uint32_t whole, a, b;
    bool     composes;
} composition;

typedef struct {
    uint32_t first, last, class;
} combining;

// Ascending by `whole`.
static const composition compositions[] = {
#define C(whole, a, b) { whole, a, b, true },
#define X(whole, a, b) { whole, a, b, false },
#define B(c)
#define K(first, last, class)
#include "data/canonical.def"
#undef C
#undef X
#undef B
#undef K
};

// What can come second in a composition that is not Hangul. Ascending.
static const uint32_t seconds[] = {
#define C(whole, a, b)
#define X(whole, a, b)
#define B(c) c,
#define K(first, last, class)
#include "data/canonical.def"
#undef C
#undef X
#undef B
#undef K
};

// Ascending.
static const combining classes[] = {
#define C(whole, a, b)
#define X(whole, a, b)
#define B(c)
#define K(first, last, class) { first, last, class },
#include "data/canonical.def"
#undef C
#undef X
#undef B
#undef K
};

enum {
    COMPOSITIONS = sizeof compositions / sizeof *compositions,
    SECONDS      = sizeof seconds / sizeof *seconds,
    CLASSES      = sizeof classes / sizeof *classes,
    // Hangul syllables: 19 leading consonants, 21 vowels, 27 trailing consonants or none.
    S_BASE  = 0xac00,
    L_BASE  = 0x1100,
    V_BASE  = 0x1161,
    T_BASE  = 0x11a7,
    L_COUNT = 19,
    V_COUNT = 21,
    T_COUNT = 28
};

static uint32_t class_of(uint32_t c)
{
    size_t low = 0, high = CLASSES;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (c > classes[middle].last) low = middle + 1;
        else high = middle;
    }
    return low < CLASSES && c >= classes[low].first ? classes[low].class : 0;
}

static const composition *find_composition(uint32_t c)
{
    size_t low = 0, high = COMPOSITIONS;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (c > compositions[middle].whole) low = middle + 1;
        else high = middle;
    }
    return low < COMPOSITIONS && compositions[low].whole == c ? &compositions[low] : NULL;
}

static bool can_be_second(uint32_t c)
{
    size_t low = 0, high = SECONDS;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (c > seconds[middle]) low = middle + 1;
        else high = middle;
    }
    return low < SECONDS && seconds[low] == c;
}

// The character that two become, or 0. The table is ordered by results, so this looks at all of it,
// but only for the few marks and vowels that can come second.
static uint32_t compose(uint32_t a, uint32_t b)
{
    if (a - L_BASE < L_COUNT && b - V_BASE < V_COUNT)
        return S_BASE + ((a - L_BASE) * V_COUNT + (b - V_BASE)) * T_COUNT;
    if (a - S_BASE < L_COUNT * V_COUNT * T_COUNT && (a - S_BASE) % T_COUNT == 0 &&
        b - T_BASE - 1 < T_COUNT - 1)
        return a + (b - T_BASE);
    int n = can_be_second(b) ? COMPOSITIONS : 0;
    for (int i = 0; i < n; i++)
        if (compositions[i].b == b && compositions[i].a == a && compositions[i].composes)
            return compositions[i].whole;
    return 0;
}

// The characters of a text while it is brought into a canonical form.
typedef struct {
    tni_heap *heap;
    uint32_t *c;
    size_t    count, capacity;
} characters;

// Appends one, behind those of higher classes that end the text: a stable sort of the marks.
static bool append_ordered(characters *t, uint32_t c)
{
    void *data = t->c;
    bool  ok   = tni_grow(t->heap, &data, &t->capacity, t->count + 1, sizeof *t->c);
    t->c       = data;
    if (!ok) return false;
    uint32_t class = class_of(c);
    size_t at      = t->count++;
    for (; class && at && class_of(t->c[at - 1]) > class; at--) t->c[at] = t->c[at - 1];
    t->c[at] = c;
    return true;
}

// Appends what a character stands for, all the way down. Its second part is never composed itself.
static bool append_decomposed(characters *t, uint32_t c)
{
    uint32_t           s = c - S_BASE;
    const composition *k = find_composition(c);
    if (s < L_COUNT * V_COUNT * T_COUNT)
        return append_ordered(t, L_BASE + s / (V_COUNT * T_COUNT)) &&
               append_ordered(t, V_BASE + s % (V_COUNT * T_COUNT) / T_COUNT) &&
               (s % T_COUNT == 0 || append_ordered(t, T_BASE + s % T_COUNT));
    if (!k) return append_ordered(t, c);
    return append_decomposed(t, k->a) && (!k->b || append_ordered(t, k->b));
}

// Composes each mark with the base before it, unless something of the same or a higher class, or a
// base, stands between them.
static void compose_all(characters *t)
{
    size_t   n = 0, base = SIZE_MAX;
    uint32_t before = 0;  // class of the last one kept after the base
    for (size_t i = 0; i < t->count; i++) {
        uint32_t c = t->c[i], class = class_of(c), whole = 0;
        bool     open = base != SIZE_MAX && (n == base + 1 || (before && before < class));
        if (open) whole = compose(t->c[base], c);
        if (whole) {
            t->c[base] = whole;
            continue;
        }
        if (!class) base = n;
        before    = class;
        t->c[n++] = c;
    }
    t->count = n;
}

// Whether nothing can change: below U+0300 there are no marks, and what is composed is in NFC.
static bool is_plain(const char *s, size_t n, bool composed)
{
    unsigned char limit = composed ? 0xcc : 0x80;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] >= limit) return false;
    return true;
}

// A byte that is not UTF-8 ends what may be composed, so the text is done in parts between them.
bool tni_canonical(tni_heap *h, tni_byte_list *to, const char *s, size_t n, bool composed)
{
    characters  t   = { .heap = h };
    const char *end = s + n;
    bool        ok  = true;
    to->bytes       = 0;
    if (is_plain(s, n, composed)) return tni_byte_list_add(h, to, s, n);
    while (ok && s < end) {
        const char *next = s;
        t.count          = 0;
        for (uint32_t c = 0; ok && s < end; s = next) {
            c = tni_read_character(s, end, &next);
            if (c == tni_no_character) break;
            ok = append_decomposed(&t, c);
        }
        if (composed) compose_all(&t);
        for (size_t i = 0; ok && i < t.count; i++) {
            char utf8[4];
            ok = tni_byte_list_add(h, to, utf8, tni_utf8_put(utf8, t.c[i]));
        }
        if (ok && s < end) ok = tni_byte_list_add(h, to, s++, 1);
    }
    tni_free(h, t.c);
    return ok;
}
