// Where each instruction of a score program is computed. Of the 64 x 64 scores of a tile a thread
// has 32, in two rows, so what depends on a row alone is computed twice instead of 32 times, and
// what is linear in the numbers of query and key by one addition of a constant. In ALiBi, slope_h
// (j - i), no more than two multiply-adds are left for each score.
#include "device/cuda/flash_score.h"
#include "kernel/dialect.h"

#include <math.h>
#include <string.h>

// EXACT: whole numbers below are exact in f32. STEADY: scores up to this magnitude need not be
// relative to the largest: e^50 is 2^72, which leaves room for sums over all keys.
// FEW: instructions for each score that leave room for a third block.
enum { EXACT = 1 << 24, STEADY = 50, FEW = 8 };

// ---- whole numbers -----------------------------------------------------------------------------

static bool is_whole(tn_dtype dt)
{
    return dt == TN_I64 || dt == TN_I32;
}

// The number that an iota or a number begins with, and its step.
static double start_of(const tni_score_op *x)
{
    return tni_is_float((tn_dtype)x->dtype) ? x->f : (double)x->i;
}

static double step_of(const tni_score_op *x)
{
    return tni_is_float((tn_dtype)x->dtype) ? x->df : (double)x->di;
}

// Returns what the magnitude of a value is at most over all places; INFINITY if that is not known.
static double magnitude_of(const tni_score_plan *p, int k)
{
    const tni_score_op *x = &p->score->op[k];
    double              n = 0, a = p->fact[x->src[0]].most, b = p->fact[x->src[1]].most;
    if (!tni_is_float((tn_dtype)x->dtype) && !is_whole((tn_dtype)x->dtype))
        return INFINITY;  // few bits, or no sign: it may wrap around
    switch (x->op) {
    case TNI_scalar: return fabs(start_of(x));
    case TNI_iota:
        for (int i = 0; i < 4; i++) n += fabs((double)x->step[i]) * (double)p->in->size[i];
        return fabs(start_of(x)) + fabs(step_of(x)) * n;
    case TNI_add:
    case TNI_sub: return a + b;
    case TNI_mul: return a * b;
    case TNI_neg:
    case TNI_abs:
    case TNI_cast: return a;
    case TNI_maximum:
    case TNI_minimum: return a > b ? a : b;
    case TNI_where: return fmax(b, p->fact[x->src[2]].most);
    case TNI_tanh:
    case TNI_erf:
    case TNI_sin:
    case TNI_cos: return 1;
    default: return INFINITY;
    }
}

// Whether integers of 64 bits, which places are, fit into 32: then they are computed so, at a
// fraction of the cost. Where one of two that are compared does not, neither is.
static void find_narrow(tni_score_plan *p)
{
    for (int k = 0; k < p->score->all; k++)
        p->fact[k].narrow = p->score->op[k].dtype == TN_I64 && p->fact[k].most < INT32_MAX;
    for (int k = 0; k < p->score->all; k++) {
        const tni_score_op *x = &p->score->op[k];
        if (x->dtype != TN_BOOL || tni_score_operands(x->op) != 2) continue;
        tni_score_fact *a = &p->fact[x->src[0]], *b = &p->fact[x->src[1]];
        if (!a->narrow || !b->narrow) a->narrow = b->narrow = false;
    }
}

// ---- levels ------------------------------------------------------------------------------------

static unsigned varies_of(const tni_score_plan *p, int k)
{
    static const unsigned axis[] = { TNI_BY_HEAD, TNI_BY_HEAD, TNI_BY_QUERY, TNI_BY_KEY };
    const tni_score_op   *x      = &p->score->op[k];
    unsigned              bits   = x->op == TNI_matmul ? TNI_BY_SCORE : 0;
    for (int i = 0; i < 4; i++) {
        if (x->op == TNI_iota && x->step[i]) bits |= axis[i];
        if (x->op == TNI_leaf && p->in->extra[x->source].varies[i]) bits |= axis[i];
    }
    for (int i = 0; i < tni_score_operands(x->op); i++) bits |= p->fact[x->src[i]].varies;
    return bits;
}

static bool is_linear(const tni_score_plan *p, int k)
{
    return p->fact[k].level == TNI_SCORE_LINEAR;
}

// Whether an instruction is a whole number, which what is LINEAR may be multiplied by or added to.
static bool is_whole_number(const tni_score_plan *p, int k)
{
    const tni_score_op *x = &p->score->op[k];
    return x->op == TNI_scalar && x->dtype != TN_BOOL && start_of(x) == rint(start_of(x));
}

// Takes sums and differences, and products with numbers, of what is LINEAR.
static bool join_linear(const tni_score_plan *p, int k, tni_score_fact *y)
{
    const tni_score_op *x = &p->score->op[k];
    int                 a = x->src[0], b = x->src[1];
    bool                la = is_linear(p, a), lb = is_linear(p, b);
    if ((!la && !is_whole_number(p, a)) || (!lb && !is_whole_number(p, b))) return false;
    const tni_score_fact *fa = &p->fact[a], *fb = &p->fact[b];
    if (x->op == TNI_mul) {
        if (la == lb) return false;
        double by    = start_of(&p->score->op[la ? b : a]);
        y->per_query = by * (la ? fa : fb)->per_query;
        y->per_key   = by * (la ? fa : fb)->per_key;
        return true;
    }
    double sign  = x->op == TNI_add ? 1 : -1;
    y->per_query = fa->per_query + sign * fb->per_query;
    y->per_key   = fa->per_key + sign * fb->per_key;
    return la || lb;
}

// Whether an instruction is LINEAR; y gets its coefficients. As an f32 it is so while it is exact.
static bool find_linear(const tni_score_plan *p, int k, tni_score_fact *y)
{
    const tni_score_op *x    = &p->score->op[k];
    bool                real = x->dtype == TN_F32;
    if (!real && !is_whole((tn_dtype)x->dtype)) return false;
    if (!(y->varies & (TNI_BY_QUERY | TNI_BY_KEY)) || (real && !(y->most < EXACT))) return false;
    switch (x->op) {
    case TNI_iota:
        y->per_query = step_of(x) * (double)x->step[2];
        y->per_key   = step_of(x) * (double)x->step[3];
        return start_of(x) == rint(start_of(x)) && step_of(x) == rint(step_of(x));
    case TNI_cast:
    case TNI_neg:
        if (!is_linear(p, x->src[0])) return false;
        y->per_query = (x->op == TNI_neg ? -1 : 1) * p->fact[x->src[0]].per_query;
        y->per_key   = (x->op == TNI_neg ? -1 : 1) * p->fact[x->src[0]].per_key;
        return real || is_whole((tn_dtype)p->score->op[x->src[0]].dtype);
    case TNI_add:
    case TNI_sub:
    case TNI_mul: return join_linear(p, k, y);
    default: return false;
    }
}

// Whether an instruction is a value of a head times what is LINEAR.
static bool find_scaled(const tni_score_plan *p, int k, tni_score_fact *y)
{
    const tni_score_op *x = &p->score->op[k];
    if (x->op != TNI_mul || x->dtype != TN_F32) return false;
    for (int i = 0; i < 2; i++) {
        tni_score_level by = p->fact[x->src[i]].level;
        if (by > TNI_SCORE_HEAD || !is_linear(p, x->src[1 - i])) continue;
        y->by        = x->src[i];
        y->of        = x->src[1 - i];
        y->per_query = p->fact[y->of].per_query;
        y->per_key   = p->fact[y->of].per_key;
        return true;
    }
    return false;
}

static tni_score_level level_of(const tni_score_plan *p, int k, tni_score_fact *y)
{
    if (p->score->op[k].op == TNI_scalar) return TNI_SCORE_CONSTANT;
    if (find_linear(p, k, y)) return TNI_SCORE_LINEAR;
    if (find_scaled(p, k, y)) return TNI_SCORE_SCALED;
    if (y->varies & TNI_BY_SCORE) return TNI_SCORE_EACH;
    switch (y->varies & (TNI_BY_QUERY | TNI_BY_KEY)) {
    case 0: return TNI_SCORE_HEAD;
    case TNI_BY_QUERY: return TNI_SCORE_QUERY;
    case TNI_BY_KEY: return TNI_SCORE_KEY;
    default: return TNI_SCORE_EACH;
    }
}

// ---- results -----------------------------------------------------------------------------------

// Whether instruction k is where(condition, a, b) with the given number as a (side 1) or b (side
// 2).
static bool chooses(const tni_score_plan *p, int k, int side, double number)
{
    const tni_score_op *x = &p->score->op[k];
    if (k < 0 || x->op != TNI_where) return false;
    const tni_score_op *y = &p->score->op[x->src[side]];
    return y->op == TNI_scalar && tni_is_float((tn_dtype)y->dtype) && y->f == number;
}

// A slope without the choice of 0 where the value is -inf: such a score has no weight, and so no
// gradient whatever the slope is.
static int without_hiding(const tni_score_plan *p, int slope)
{
    int value = p->score->count - 1;
    for (int side = 1; side <= 2; side++)
        if (chooses(p, slope, side, 0) && chooses(p, value, side, -INFINITY) &&
            p->score->op[slope].src[0] == p->score->op[value].src[0])
            return p->score->op[slope].src[3 - side];
    return slope;
}

// What a positive number is multiplied by, if an instruction is such a product; *factor gets the
// number. Factors of all scores, and of all slopes, cost nothing where these are scaled anyway.
static int without_factor(const tni_score_plan *p, int k, double *factor)
{
    *factor = 1;
    if (k < 0 || p->score->op[k].op != TNI_mul || p->score->op[k].dtype != TN_F32) return k;
    for (int i = 0; i < 2; i++) {
        const tni_score_op *x = &p->score->op[p->score->op[k].src[i]];
        if (x->op != TNI_scalar || !(x->f > 0) || !isfinite(x->f)) continue;
        *factor = x->f;
        return p->score->op[k].src[1 - i];
    }
    return k;
}

// Returns what the magnitude of the scores that have a weight is at most.
static double find_bound(const tni_score_plan *p, int k)
{
    for (int side = 1; side <= 2; side++)
        if (chooses(p, k, side, -INFINITY)) return find_bound(p, p->score->op[k].src[3 - side]);
    return p->fact[k].most;
}

// Returns the comparison of b and a that holds where that of a and b does, or, negated, the one
// that holds where it does not; 0 if op is no comparison.
static int other_comparison(int op, bool swapped, bool negated)
{
    static const int row[][4] = {
        // as it is, swapped, not, both
        { TNI_eq, TNI_eq, TNI_ne, TNI_ne }, { TNI_ne, TNI_ne, TNI_eq, TNI_eq },
        { TNI_lt, TNI_gt, TNI_ge, TNI_le }, { TNI_gt, TNI_lt, TNI_le, TNI_ge },
        { TNI_le, TNI_ge, TNI_gt, TNI_lt }, { TNI_ge, TNI_le, TNI_lt, TNI_gt },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (row[i][0] == op) return row[i][swapped + 2 * negated];
    return 0;
}

// Finds a comparison of a query's number with a key's by which condition k is `when`, whatever else
// it depends on.
static bool find_comparison(const tni_score_plan *p, int k, bool when, tni_score_hiding *y)
{
    const tni_score_op *x = &p->score->op[k];
    int                 a = x->src[0], b = x->src[1];
    if (x->op == TNI_logical_not) return find_comparison(p, a, !when, y);
    if (x->op == (when ? TNI_logical_or : TNI_logical_and))
        return find_comparison(p, a, when, y) || find_comparison(p, b, when, y);
    bool swapped = p->fact[a].level == TNI_SCORE_KEY;
    y->op        = other_comparison(x->op, swapped, !when);
    y->query     = swapped ? b : a;
    y->key       = swapped ? a : b;
    return y->op && p->fact[y->query].level == TNI_SCORE_QUERY &&
           p->fact[y->key].level == TNI_SCORE_KEY && is_whole((tn_dtype)p->score->op[a].dtype);
}

// Whether anything that a program reads differs between the heads of a batch.
static bool differs_by_head(const tni_score_plan *p)
{
    bool yes = false;
    for (int i = 0; i < p->score->sources; i++) yes |= p->in->extra[i].varies[1];
    for (int k = 0; k < p->score->all; k++) yes |= p->score->op[k].step[1] != 0;
    return yes;
}

// Finds what hides scores in value k: its choice of -inf, or one in what it chooses otherwise.
static tni_score_hiding find_hiding(const tni_score_plan *p, int k)
{
    tni_score_hiding y = { .op = 0 };
    for (int side = 1; side <= 2; side++) {
        if (!chooses(p, k, side, -INFINITY)) continue;
        if (!find_comparison(p, p->score->op[k].src[0], side == 1, &y))
            return find_hiding(p, p->score->op[k].src[3 - side]);
        y.by_head = differs_by_head(p);
        return y;
    }
    return y;
}

static void plan_results(tni_score_plan *p)
{
    const tni_score *s = p->score;
    p->value           = without_factor(p, s->count - 1, &p->value_factor);
    p->slope           = without_factor(p, without_hiding(p, s->slope), &p->slope_factor);
    p->sloped          = p->slope >= 0 && s->op[p->slope].op != TNI_scalar;
    if (p->slope >= 0 && !p->sloped) p->slope_factor *= s->op[p->slope].f;
    p->steady  = p->value_factor * find_bound(p, p->value) <= STEADY;
    p->guarded = p->sloped && !(p->fact[p->slope].most < INFINITY);
    p->hiding  = find_hiding(p, p->value);
    for (int i = 0; i < s->sources; i++) p->source_slope[i] = without_hiding(p, s->source_slope[i]);
}

tni_score_plan tni_score_plan_of(const tni_score *score, const tni_flash_in *in)
{
    tni_score_plan p = { .score = score, .in = in };
    for (int k = 0; k < score->all; k++) {
        tni_score_fact *y = &p.fact[k];
        y->varies         = varies_of(&p, k);
        y->most           = magnitude_of(&p, k);
        y->level          = level_of(&p, k, y);
    }
    find_narrow(&p);
    plan_results(&p);
    return p;
}

// ---- masks -------------------------------------------------------------------------------------

// Added: score + mask. Of bools: where(mask, score, -inf), whose slope is 1 where there is a
// weight.
const tni_score *tni_flash_mask(bool added)
{
    enum { F = TN_F32 };
    static const tni_score sum    = { .sources      = 1,
                                      .count        = 3,
                                      .all          = 4,
                                      .slope        = 3,
                                      .source_slope = { 3, -1, -1, -1 },
                                      .op           = { { .op = TNI_matmul, .dtype = F },
                                                        { .op = TNI_leaf, .dtype = F },
                                                        { .op = TNI_add, .dtype = F, .src = { 0, 1 } },
                                                        { .op = TNI_scalar, .dtype = F, .f = 1 } } };
    static const tni_score choice = { .sources      = 1,
                                      .count        = 4,
                                      .all          = 5,
                                      .slope        = 4,
                                      .source_slope = { -1, -1, -1, -1 },
                                      .op           = { { .op = TNI_matmul, .dtype = F },
                                                        { .op = TNI_leaf, .dtype = TN_BOOL },
                                                        { .op = TNI_scalar, .dtype = F, .f = -INFINITY },
                                                        { .op = TNI_where, .dtype = F, .src = { 1, 0, 2 } },
                                                        { .op = TNI_scalar, .dtype = F, .f = 1 } } };
    return added ? &sum : &choice;
}

// Registers of the values that a thread has of the 16 columns of its scores.
static int column_registers(const tni_score_plan *p, tni_score_level level)
{
    int n = 0;
    for (int k = 0; k < p->score->all; k++) {
        bool read = false;
        for (int i = k + 1; i < p->score->all; i++)
            for (int a = 0; a < tni_score_operands(p->score->op[i].op); a++)
                read |= p->score->op[i].src[a] == k && p->fact[i].level == TNI_SCORE_EACH;
        bool wide = p->score->op[k].dtype == TN_I64 || p->score->op[k].dtype == TN_F64;
        if (read && p->fact[k].level == level) n += wide ? 32 : 16;
    }
    return n;
}

bool tni_flash_is_heavy(const tni_score *score, const tni_flash_in *in, tni_flash_part part,
                        unsigned grads)
{
    tni_score_plan p      = tni_score_plan_of(score, in);
    bool           across = part == TNI_FLASH_KEYS, varying = false;
    bool           sloped = p.sloped && (across || part == TNI_FLASH_QUERIES);
    int columns = column_registers(&p, across ? TNI_SCORE_QUERY : TNI_SCORE_KEY), each = 0;
    for (int i = 0; i < score->sources; i++)
        varying |= (grads >> i & 1) && tni_score_slope_varies(&p, i);
    for (int k = 0; k < score->all; k++) {
        bool wide = score->op[k].dtype == TN_I64 && !p.fact[k].narrow;
        if (p.fact[k].level >= TNI_SCORE_LINEAR) each += wide ? FEW + 1 : 1;
    }
    return varying || columns > 32 || (sloped && (grads || columns || each > FEW));
}

bool tni_score_slope_varies(const tni_score_plan *p, int source)
{
    int k = p->source_slope[source];
    return k >= 0 && (p->fact[k].varies & TNI_BY_SCORE);
}
