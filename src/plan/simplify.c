// The matcher of simplify.def, and its rules as data.
//
// A pattern is kept in prefix form, one byte for an op or a letter: where(logical_not(x), y, z) is
// the bytes where, logical_not, x, y, z. Ops nest once, so that matching walks at most seven bytes.
// Rules of one op are neighbours in the table, and a byte string of the outer ops finds the first
// of them with one memchr.
#include "plan/simplify.h"

#include <string.h>

// Letters and known bools come after the ops.
enum { LETTER = 128, LETTERS = 4, NO = 160, YES, LONGEST = 8 };

// What else has to hold for a rule to apply. All but the last two are about one value, x.
typedef enum {
    ALWAYS,
    BOOLEAN,       // x is a bool
    INTEGER,       // x is an integer or a bool
    SIGNED,        // x can be negative
    UNSIGNED,      // x cannot be negative
    WHOLE,         // x has no fraction
    SAME,          // x has the dtype it is cast to
    LOSSLESS,      // the dtype that x is first cast to holds all that x can be
    LATER,         // x was made after y
    LATER_INTEGER  // both
} condition;

// A row of the table. from and to are in prefix form; what follows the last byte is not looked at.
typedef struct {
    uint8_t     from[LONGEST], to[LONGEST];
    uint8_t     when;
    const char *text;
} rule;

// ---- conditions --------------------------------------------------------------------------------

static tn_dtype dtype_of(const tni_unit *u, int v)
{
    return (tn_dtype)u->value[v].ins.dtype;
}

// Whether a value is exactly one of its dtype. f16 and bf16 are computed in f32 and rounded only by
// CAST, STORE and LOAD, so the result of a MAP may have more digits.
static bool is_rounded(const tni_unit *u, int v)
{
    const tni_ins *i      = &u->value[v].ins;
    bool           narrow = tni_is_rounded((tn_dtype)i->dtype);
    return !narrow || i->code == TNI_I_LOAD || i->code == TNI_I_CAST || i->code == TNI_I_NUMBER;
}

// Whether the inner cast of cast(cast(x)) can go: its dtype holds every value of x. Two cases keep
// it: a cast back to x's own dtype rounds x if nothing has rounded it; and an integer that becomes
// a narrower one wraps, but saturates if it comes by way of a float.
static bool is_lossless(const tni_unit *u, const tni_ins *i, int v)
{
    tn_dtype from = dtype_of(u, v), by = dtype_of(u, i->a), to = (tn_dtype)i->dtype;
    if (!tni_dtype_holds(by, from)) return false;
    if (by == from || (i->code == TNI_I_CAST && to == from)) return is_rounded(u, v);
    bool cut = tni_is_float(by) && !tni_is_float(from) && !tni_is_float(to) && to != TN_BOOL;
    return !cut || tni_dtype_holds(to, from);
}

// Whether a value has no fraction: an integer, cast from one, or the result of rounding.
static bool has_no_fraction(const tni_unit *u, int v)
{
    const tni_ins *i = &u->value[v].ins;
    if (!tni_is_float((tn_dtype)i->dtype)) return true;
    if (i->code == TNI_I_CAST) return !tni_is_float(dtype_of(u, i->a));
    if (i->code != TNI_I_MAP) return false;
    return i->op == TNI_floor || i->op == TNI_ceil || i->op == TNI_round || i->op == TNI_trunc ||
           i->op == TNI_sign;
}

// Whether the condition of a rule holds for instruction i and the values that the letters stand
// for.
static bool applies(condition when, const tni_unit *u, const tni_ins *i, const int16_t *value)
{
    int      v  = value[0];
    tn_dtype dt = dtype_of(u, v);
    switch (when) {
    case ALWAYS: return true;
    case BOOLEAN: return dt == TN_BOOL;
    case INTEGER: return !tni_is_float(dt);
    case SIGNED: return tni_is_signed(dt);
    case UNSIGNED: return !tni_is_signed(dt);
    case WHOLE: return has_no_fraction(u, v);
    case SAME: return dt == (tn_dtype)i->dtype;
    case LOSSLESS: return is_lossless(u, i, v);
    case LATER: return v > value[1];
    case LATER_INTEGER: return v > value[1] && !tni_is_float(dt);
    }
    return false;
}

// ---- matching ----------------------------------------------------------------------------------

// Returns the op of the table that an instruction computes; -1 if it computes none.
static int op_of(const tni_ins *i)
{
    return i->code == TNI_I_MAP ? i->op : i->code == TNI_I_CAST ? TNI_cast : -1;
}

// Whether a value is a bool literal of the plan.
static bool is_known(const tni_unit *u, int v, bool truth)
{
    const tni_ins *i = &u->value[v].ins;
    if (i->code != TNI_I_NUMBER || i->dtype != TN_BOOL) return false;
    const tni_number_binding *b = &u->number[i->number];
    return b->which == TNI_NUMBER_LITERAL && (b->literal != 0) == truth;
}

// Whether a letter can stand for value v: it stands for none yet, or for this one.
static inline bool binds(int16_t *value, int letter, int v)
{
    int16_t *old = &value[letter - LETTER];
    if (*old == TNI_NO_VALUE) *old = (int16_t)v;
    return *old == v;
}

// Matches value v against the op over letters at p. Returns the bytes of the pattern, 0 if it does
// not match.
static int matches_op(const tni_unit *u, const uint8_t *p, int v, int16_t *value)
{
    const tni_ins *i          = &u->value[v].ins;
    const int16_t  operand[3] = { i->a, i->b, i->c };
    int            k          = 0;
    if (op_of(i) != p[0]) return 0;
    for (; k < 3 && operand[k] != TNI_NO_VALUE; k++)
        if (!binds(value, p[1 + k], operand[k])) return 0;
    return 1 + k;
}

// Whether rule r applies to instruction i; value[] gets the values that its letters stand for.
static bool fires(const rule *r, const tni_unit *u, const tni_ins *i, int16_t *value)
{
    const uint8_t *p          = r->from + 1;
    const int16_t  operand[3] = { i->a, i->b, i->c };
    for (int k = 0; k < LETTERS; k++) value[k] = TNI_NO_VALUE;
    for (int k = 0; k < 3 && operand[k] != TNI_NO_VALUE; k++) {
        int bytes;
        if (*p >= NO) bytes = is_known(u, operand[k], *p == YES);
        else if (*p >= LETTER) bytes = binds(value, *p, operand[k]);
        else bytes = matches_op(u, p, operand[k], value);
        if (!bytes) return false;
        p += bytes;
    }
    return applies((condition)r->when, u, i, value);
}

// Rewrites an instruction as the result of a rule: one op over letters.
static void become(tni_ins *i, const uint8_t *to, const int16_t *value)
{
    int operands = to[0] == TNI_where ? 3 : tni_op_table[to[0]].class == TNI_BINARY ? 2 : 1;
    i->code      = to[0] == TNI_cast ? TNI_I_CAST : TNI_I_MAP;
    i->op        = to[0] == TNI_cast ? 0 : to[0];
    i->a         = value[to[1] - LETTER];
    i->b         = operands > 1 ? value[to[2] - LETTER] : TNI_NO_VALUE;
    i->c         = operands > 2 ? value[to[3] - LETTER] : TNI_NO_VALUE;
}

// ---- the table ---------------------------------------------------------------------------------

// The words of the table, in prefix form: neg(neg(x)) is TNI_neg, TNI_neg, x.
enum { x = LETTER, y, z, w, no = NO, yes = YES };
#define neg(a)            TNI_neg, a
#define abs(a)            TNI_abs, a
#define sign(a)           TNI_sign, a
#define floor(a)          TNI_floor, a
#define ceil(a)           TNI_ceil, a
#define round(a)          TNI_round, a
#define trunc(a)          TNI_trunc, a
#define isnan(a)          TNI_isnan, a
#define isinf(a)          TNI_isinf, a
#define isfinite(a)       TNI_isfinite, a
#define logical_not(a)    TNI_logical_not, a
#define bit_not(a)        TNI_bit_not, a
#define cast(a)           TNI_cast, a
#define add(a, b)         TNI_add, a, b
#define sub(a, b)         TNI_sub, a, b
#define mul(a, b)         TNI_mul, a, b
#define div(a, b)         TNI_div, a, b
#define maximum(a, b)     TNI_maximum, a, b
#define minimum(a, b)     TNI_minimum, a, b
#define eq(a, b)          TNI_eq, a, b
#define ne(a, b)          TNI_ne, a, b
#define lt(a, b)          TNI_lt, a, b
#define le(a, b)          TNI_le, a, b
#define gt(a, b)          TNI_gt, a, b
#define ge(a, b)          TNI_ge, a, b
#define logical_and(a, b) TNI_logical_and, a, b
#define logical_or(a, b)  TNI_logical_or, a, b
#define logical_xor(a, b) TNI_logical_xor, a, b
#define bit_and(a, b)     TNI_bit_and, a, b
#define bit_or(a, b)      TNI_bit_or, a, b
#define bit_xor(a, b)     TNI_bit_xor, a, b
#define where(a, b, c)    TNI_where, a, b, c

static const rule rules[] = {
#define RULE(pattern, result, when) \
    { { pattern }, { result }, when, #pattern " -> " #result ", " #when },
#include "plan/simplify.def"
};

// The op of each row, side by side, to be searched at once.
#define FIRST(...)     FIRST_(__VA_ARGS__, 0)
#define FIRST_(a, ...) a
static const uint8_t outer[] = {
#define RULE(pattern, result, when) FIRST(pattern),
#include "plan/simplify.def"
};

enum { RULES = sizeof rules / sizeof *rules };

const char *tni_simplify_text(int i)
{
    return i < RULES ? rules[i].text : NULL;
}

// Returns the first rule from number `from` on that applies to an instruction; RULES if none does.
static int find_rule(int from, const tni_unit *u, const tni_ins *i, int16_t *value)
{
    int k = from;
    while (k < RULES && outer[k] == op_of(i) && !fires(&rules[k], u, i, value)) k++;
    return k < RULES && outer[k] == op_of(i) ? k : RULES;
}

// Applies rules until none fits. Every rule leaves fewer instructions, or an op nearer to the front
// of ops.def, or operands in order, so this ends.
int tni_simplify(const tni_unit *u, tni_ins *i, bool *drops_reads)
{
    int16_t        value[LETTERS];
    const uint8_t *row;
    while ((row = memchr(outer, op_of(i), RULES)) != NULL) {
        int k = find_rule((int)(row - outer), u, i, value);
        if (k == RULES) break;
        const rule *r = &rules[k];
        *drops_reads |= r->when < LATER;
        if (r->to[0] == NO) return TNI_IS_NO;
        if (r->to[0] == YES) return TNI_IS_YES;
        if (r->to[0] >= LETTER) return value[r->to[0] - LETTER];
        become(i, r->to, value);
    }
    return TNI_NO_VALUE;
}
