// program.c: a program in progress: its slots, reads, boundaries, scopes and gradients.
#include "program.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

uint64_t prg_random(uint64_t *s)
{
    uint64_t z = *s += 0x9e3779b97f4a7c15u;
    z          = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z          = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

void prg_fail(run *r, const char *fmt, ...)
{
    if (r->failed) return;
    va_list args;
    va_start(args, fmt);
    vsnprintf(r->text, sizeof r->text, fmt, args);
    va_end(args);
    r->failed = true;
    if (r->listing) fprintf(r->listing, "    // FAILS: %s\n", r->text);
}

void prg_say(run *r, const char *fmt, ...)
{
    if (!r->listing) return;
    va_list args;
    va_start(args, fmt);
    fprintf(r->listing, "    ");
    vfprintf(r->listing, fmt, args);
    fprintf(r->listing, ";\n");
    va_end(args);
    fflush(r->listing);
}

const char *prg_shape_text(const orc_shape *s)
{
    static char text[4][80];
    static int  turn;
    char       *t = text[turn++ % 4];
    int         n = snprintf(t, 80, "(");
    for (int i = 0; i < s->rank; i++)
        n += snprintf(t + n, 80 - (size_t)n, i ? ", %d" : "%d", (int)s->size[i]);
    snprintf(t + n, 80 - (size_t)n, ")");
    return t;
}

// ---- slots

uint32_t prg_arg(const run *r, int i)
{
    return r->at->r[i];
}

// The name of a slot in the listing; that of a tensor outside all slots is 99.
int prg_number(const slot *s, const run *r)
{
    return s >= r->slot && s < r->slot + SLOTS ? (int)(s - r->slot) : 99;
}

orc_store *prg_store(run *r, const slot *s)
{
    return &r->o.store[s->h.store];
}

bool prg_usable(run *r, const slot *s)
{
    return s->t && !prg_store(r, s)->lost;
}

bool prg_is_float(const slot *s)
{
    return tn_dtype_of(s->t) >= TN_F32;
}

slot *prg_pick(run *r, uint32_t from, fits_fn *fits, const slot *x)
{
    for (int i = 0; i < SLOTS; i++) {
        slot *s = &r->slot[(from + (uint32_t)i) % SLOTS];
        if (prg_usable(r, s) && (!fits || fits(r, x, s))) return s;
    }
    return NULL;
}

slot *prg_target(run *r)
{
    slot *s = &r->slot[prg_arg(r, 0) % SLOTS];
    if (s->t && (prg_arg(r, 0) >> 16 & 3)) {
        prg_say(r, "tn_drop(t%d)", prg_number(s, r));
        tn_drop(s->t);
    }
    *s = (slot){ .h = { .leaf = -1 } };
    return s;
}

void prg_put(run *r, slot *to, tn_tensor *t, orc_handle h, bool fresh)
{
    orc_shape got = { .rank = t ? tn_rank(t) : 0 };
    if (!t) {
        prg_fail(r, "returned NULL: %s", tn_error_text(r->cx));
        return;
    }
    for (int i = 0; i < got.rank && i < ORC_RANK; i++) got.size[i] = tn_size(t, i);
    if (strcmp(prg_shape_text(&got), prg_shape_text(&h.shape)))
        prg_fail(r, "the shape is %s, not %s", prg_shape_text(&got), prg_shape_text(&h.shape));
    *to = (slot){ .t = t, .h = h, .depth = r->depth, .fresh = fresh };
}

void prg_put_result(run *r, slot *to, tn_tensor *t, const orc_value *v, int past)
{
    bool single = t && tn_dtype_of(t) == TN_F32;
    prg_put(r, to, t, orc_make(&r->o, v, single, r->o.grad ? past : -1), true);
}

orc_value prg_read(run *r, const slot *s)
{
    prg_store(r, s)->consumed = true;
    return orc_read(&r->o, &s->h);
}

int prg_past(run *r, const slot *a, const slot *b)
{
    return orc_past_new(&r->o, orc_past_of(&r->o, &a->h), b ? orc_past_of(&r->o, &b->h) : -1, -1);
}

// ---- comparing

static double tolerance(const run *r)
{
    return r->p->singles ? 1e-4 : 1e-9;
}

static void compare(run *r, const char *what, int which, int n, const double *got,
                    const double *want, double scale)
{
    for (int i = 0; i < n; i++) scale = fmax(scale, fabs(want[i]));
    for (int i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= tolerance(r) * scale)) {
            prg_fail(r, "%s t%d: element %d is %.17g, not %.17g", what, which, i, got[i], want[i]);
            return;
        }
}

// Reads a slot one way or another and compares. A value that a step boundary was free to lose may
// be gone, where what it was made from has been written since, but not wrong.
static void check_slot(run *r, slot *s, uint32_t how)
{
    double    got[ORC_CELLS], want[ORC_CELLS];
    int       n  = s->h.shape.n;
    tn_status st = TN_OK;
    if (how % 4 == 3) {
        prg_say(r, "tn_eval_of(t%d)", prg_number(s, r));
        st = tn_eval_of(s->t);
    } else if (n == 1 && how % 4 == 2) {
        prg_say(r, "tn_item(t%d)", prg_number(s, r));
        got[0] = tn_item(s->t);
        st     = isnan(got[0]) ? tn_error(r->cx) : TN_OK;
    } else {
        prg_say(r, "tn_read(t%d)", prg_number(s, r));
        st = tn_read(s->t, TN_F64, got, n);
    }
    if (st == TN_EGONE && prg_store(r, s)->lost) {
        tn_error_clear(r->cx);
        return;
    }
    if (st != TN_OK) {
        prg_fail(r, "reading t%d: %s", prg_number(s, r), tn_error_text(r->cx));
        return;
    }
    prg_store(r, s)->lost   = false;  // it was computed again
    prg_store(r, s)->stored = true;
    orc_value v             = orc_read(&r->o, &s->h);
    for (int i = 0; i < n; i++) want[i] = orc_get(&r->o, &v, i);
    if (how % 4 != 3) compare(r, "value of", prg_number(s, r), n, got, want, 1);
    if (orc_needs(&r->o, &v) && !tn_needs_grad(s->t))
        prg_fail(r, "t%d was made from a leaf, but needs no gradient", prg_number(s, r));
}

static void check_gradient(run *r, slot *s)
{
    double          got[ORC_CELLS], want[ORC_CELLS];
    const orc_leaf *l = &r->o.leaf[s->h.leaf];
    int             n = s->h.shape.n;
    prg_say(r, "tn_read(tn_grad_of(t%d))", prg_number(s, r));
    if (tn_read(tn_grad_of(s->t), TN_F64, got, n) != TN_OK) {
        prg_fail(r, "reading the gradient of t%d: %s", prg_number(s, r), tn_error_text(r->cx));
        return;
    }
    for (int i = 0; i < n; i++) want[i] = l->g[s->h.cell[i]];
    compare(r, "gradient of", prg_number(s, r), n, got, want, l->scale);
}

// A lost store may be given a new value as a whole.
static void do_revive(run *r)
{
    for (int i = 0; i < SLOTS; i++) {
        slot *x = &r->slot[i];
        if (!x->t || !prg_store(r, x)->lost || !x->fresh || x->h.shape.n == 0) continue;
        orc_value v = { .shape = { .n = 1 }, .var = { orc_constant(&r->o, 1) } };
        prg_say(r, "tn_fill_(t%d, 1) // all of it", i);
        prg_after_write(r, x, tn_fill_(x->t, 1), prg_allowed(r, x), &v, -1);
    }
}

// ---- reads, boundaries, scopes

static void do_read(run *r)
{
    for (int i = 0; i < SLOTS; i++) {
        slot *s = &r->slot[(prg_arg(r, 1) + (uint32_t)i) % SLOTS];
        if (!s->t) continue;
        check_slot(r, s, prg_arg(r, 2));
        return;
    }
}

// A step boundary. Some stores are wanted; of the others, those that the rules name must stay.
static void do_eval(run *r)
{
    for (int i = 0; i < SLOTS; i++) {
        slot *s = &r->slot[i];
        if (!prg_usable(r, s) || !(prg_arg(r, 1) >> i & 1)) continue;
        prg_say(r, "tn_want(t%d)", i);
        tn_want(s->t);
        prg_store(r, s)->stored = true;
    }
    prg_say(r, "tn_eval(cx)");
    if (tn_eval(r->cx) != TN_OK) prg_fail(r, "tn_eval: %s", tn_error_text(r->cx));
    for (int i = 0; i < r->o.stores; i++) {
        orc_store *s = &r->o.store[i];
        if (!s->stored && !s->assigned && s->n != 1 && s->consumed) s->lost = true;
        s->stored   = !s->lost;
        s->assigned = false;
    }
    orc_spend(&r->o);
}

static void do_begin(run *r)
{
    if (r->depth == DEPTH) return;
    prg_say(r, "s%d = tn_begin(cx)", r->depth);
    r->mode[r->depth]  = r->o.grad;
    r->scope[r->depth] = tn_begin(r->cx);
    if (!r->scope[r->depth]) prg_fail(r, "tn_begin: %s", tn_error_text(r->cx));
    else r->depth++;
}

static void do_end(run *r)
{
    if (!r->depth) return;
    for (int i = 0; i < SLOTS; i++) {
        slot *s = &r->slot[i];
        if (!s->t || s->depth != r->depth) continue;
        if (prg_arg(r, 1) >> i & 1) {
            prg_say(r, "tn_keep(t%d)", i);
            if (tn_keep(s->t) != s->t) prg_fail(r, "tn_keep: %s", tn_error_text(r->cx));
            s->depth--;
        } else {
            prg_say(r, "// t%d dies", i);
            s->t = NULL;
        }
    }
    r->depth--;
    prg_say(r, "tn_end(s%d)", r->depth);
    if (tn_end(r->scope[r->depth]) != TN_OK) prg_fail(r, "tn_end: %s", tn_error_text(r->cx));
    r->o.grad = r->mode[r->depth];
    if (r->depth || r->p->wrapped) return;
    for (int i = 0; i < r->o.stores; i++) {
        r->o.store[i].stored |= !r->o.store[i].lost;
        r->o.store[i].assigned = false;
    }
    orc_spend(&r->o);
}

static void do_drop(run *r)
{
    slot *s = &r->slot[prg_arg(r, 1) % SLOTS];
    if (!s->t) return;
    prg_say(r, "tn_drop(t%d)", prg_number(s, r));
    tn_drop(s->t);
    s->t = NULL;
}

static void do_mode(run *r)
{
    bool on = !r->o.grad || prg_arg(r, 1) % 3 == 0;
    prg_say(r, "tn_grad_mode(cx, %s)", on ? "true" : "false");
    if (tn_grad_mode(r->cx, on) != r->o.grad)
        prg_fail(r, "tn_grad_mode does not return the mode before");
    r->o.grad = on;
}

// ---- gradients

static void do_leaf(run *r)
{
    slot *x = prg_pick(r, prg_arg(r, 1), NULL, NULL);
    if (!x || !prg_is_float(x) || x->h.shape.n == 0 || tn_needs_grad(x->t) || !orc_injective(&x->h))
        return;
    prg_say(r, "tn_requires_grad(t%d, true)", prg_number(x, r));
    if (tn_requires_grad(x->t, true) != x->t) {
        if (tn_error(r->cx) == TN_EARG) tn_error_clear(r->cx);
        else prg_fail(r, "tn_requires_grad: %s", tn_error_text(r->cx));
        return;
    }
    oracle *o = &r->o;
    if (o->leaves == o->leaves_cap) {
        o->leaves_cap = o->leaves_cap * 2 + 8;
        o->leaf       = realloc(o->leaf, (size_t)o->leaves_cap * sizeof *o->leaf);
    }
    o->leaf[o->leaves] = (orc_leaf){ .scale = 1 };
    x->h.leaf          = o->leaves++;
    x->leaf            = true;
}

static bool is_like(run *r, const slot *x, const slot *s)
{
    (void)r;
    bool same = tn_dtype_of(x->t) == tn_dtype_of(s->t) && x->h.shape.rank == s->h.shape.rank;
    for (int i = 0; same && i < x->h.shape.rank; i++)
        same = x->h.shape.size[i] == s->h.shape.size[i];
    return same;
}

// A gradient for y: NULL where y is one element and the dice say so, a tensor that is there, or a
// new one. *from is the slot it is from.
static tn_tensor *weights(run *r, const slot *y, orc_value *v, slot **from)
{
    *from = (prg_arg(r, 3) >> 1) % 3 == 0 ? prg_pick(r, prg_arg(r, 4), is_like, y) : NULL;
    if (*from) {
        *v = orc_read(&r->o, &(*from)->h);
        if (orc_largest(&r->o, v) <= 8) return (*from)->t;
        *from = NULL;
    }

    double   k[ORC_CELLS] = { 0 };
    uint64_t seed         = prg_arg(r, 3);
    bool     none         = y->h.shape.n == 1 && prg_arg(r, 3) & 1;
    for (int i = 0; i < y->h.shape.n; i++) k[i] = none ? 1 : prg_small(&seed);
    *v = orc_constants(&r->o, &y->h.shape, k);
    return none ? NULL : prg_from(r, tn_dtype_of(y->t), &y->h.shape, k);
}

static bool differs(run *r, const slot *x, const slot *s)
{
    (void)x;
    (void)r;
    return prg_is_float(s) && s->h.shape.n > 0 && tn_needs_grad(s->t);
}

// After a walk every value may have been read by a gradient rule.
static void all_consumed(run *r)
{
    for (int i = 0; i < r->o.stores; i++) r->o.store[i].consumed = true;
}

// A gradient through what was spent is an error, and leaves all as it was.
static bool walked_well(run *r, tn_status st, bool may_be_spent, const char *op)
{
    if (st == TN_OK) return true;
    if (st == TN_EGRAD && may_be_spent) tn_error_clear(r->cx);
    else prg_fail(r, "%s: %s", op, tn_error_text(r->cx));
    return false;
}

static void do_backward(run *r)
{
    slot *y = prg_pick(r, prg_arg(r, 1), differs, NULL);
    if (!y || r->o.vars > 60000) return;
    orc_value  v = orc_read(&r->o, &y->h), gv;
    slot      *from;
    tn_tensor *gy    = weights(r, y, &gv, &from);
    int        past  = orc_past_of(&r->o, &y->h);
    bool       spent = orc_reaches_spent(&r->o, past, r->p->flush_nodes > 0);
    prg_say(r, "tn_backward(t%d, %s%.0d)", prg_number(y, r),
            from ? "t"
            : gy ? "random"
                 : "NULL",
            from ? prg_number(from, r) : 0);
    tn_status st = tn_backward(y->t, gy);
    if (gy && !from) tn_drop(gy);
    all_consumed(r);
    if (!walked_well(r, st, spent, "tn_backward")) return;
    orc_backward(&r->o, &v, &gv);
    orc_walk(&r->o, past);
}

static bool can_be_x(run *r, const slot *x, const slot *s)
{
    (void)x;
    return prg_is_float(s) &&
           (s->leaf || (s->fresh && !r->o.store[s->h.store].writes && s->h.leaf < 0));
}

static void do_grad(run *r)
{
    slot *y = prg_pick(r, prg_arg(r, 1), differs, NULL),
         *x = prg_pick(r, prg_arg(r, 2), can_be_x, NULL);
    if (!y || !x || r->o.vars > 60000) return;
    // The oracle knows no gradient of a sum over nothing.
    orc_value v = orc_read(&r->o, &y->h), vx = orc_read(&r->o, &x->h), gv;
    if (orc_needs(&r->o, &vx) != tn_needs_grad(x->t)) return;
    slot      *from;
    tn_tensor *gy = weights(r, y, &gv, &from), *gx = NULL;
    int        past = prg_past(r, y, x);
    if (from) past = orc_past_new(&r->o, past, orc_past_of(&r->o, &from->h), -1);
    bool spent = orc_reaches_spent(&r->o, past, r->p->flush_nodes > 0);
    prg_say(r, "t%d = tn_grad(t%d, t%d, %s%.0d)", (int)(prg_arg(r, 0) % SLOTS), prg_number(y, r),
            prg_number(x, r),
            from ? "t"
            : gy ? "random"
                 : "NULL",
            from ? prg_number(from, r) : 0);
    tn_status st = tn_grad(1, &y->t, 1, &x->t, &gy, &gx);
    if (gy && !from) tn_drop(gy);
    all_consumed(r);
    if (!walked_well(r, st, spent, "tn_grad")) return;
    orc_value g  = orc_grad(&r->o, &v, &gv, &x->h);
    slot     *to = prg_target(r);
    prg_put_result(r, to, gx, &g, past);
    if (orc_largest(&r->o, &g) < 1e3) return;
    check_slot(r, to, 0);
    tn_drop(to->t);
    to->t = NULL;
}

static bool is_leaf(run *r, const slot *x, const slot *s)
{
    (void)r;
    (void)x;
    return s->leaf;
}

// Reads, clears or takes a step along the gradient of a leaf.
static void do_gradient(run *r)
{
    slot *x = prg_pick(r, prg_arg(r, 1), is_leaf, NULL);
    if (!x) return;
    orc_leaf *l = &r->o.leaf[x->h.leaf];
    if (prg_arg(r, 2) % 6 < 2) {
        check_gradient(r, x);
    } else if (prg_arg(r, 2) % 6 == 4) {
        prg_say(r, "tn_mul_(tn_grad_of(t%d), tn_scalar(cx, 0.5))", prg_number(x, r));
        if (!tn_mul_(tn_grad_of(x->t), tn_scalar(r->cx, 0.5)))
            prg_fail(r, "writing to the gradient of t%d: %s", prg_number(x, r),
                     tn_error_text(r->cx));
        for (int i = 0; i < ORC_CELLS; i++) l->g[i] *= 0.5;
    } else if (prg_arg(r, 2) % 6 == 5) {
        prg_say(r, "tn_requires_grad(t%d, false)", prg_number(x, r));
        if (tn_requires_grad(x->t, false) != x->t)
            prg_fail(r, "tn_requires_grad: %s", tn_error_text(r->cx));
        x->h.leaf = -1;
        x->leaf   = false;
    } else if (prg_arg(r, 2) % 6 == 2) {
        prg_say(r, "tn_zero_grad(t%d)", prg_number(x, r));
        tn_zero_grad(x->t);
        *l = (orc_leaf){ .scale = 1 };
    } else if (l->scale < 100) {
        prg_say(r, "tn_add_(t%d, tn_mul_s(tn_grad_of(t%d), -0.125)) // no grad", prg_number(x, r),
                prg_number(x, r));
        bool       mode = tn_grad_mode(r->cx, false), o_mode = r->o.grad;
        tn_tensor *t = tn_add_(x->t, tn_mul_s(tn_grad_of(x->t), -0.125));
        r->o.grad    = false;
        double step[ORC_CELLS];
        for (int i = 0; i < x->h.shape.n; i++) step[i] = -0.125 * l->g[x->h.cell[i]];
        orc_value old = orc_read(&r->o, &x->h), s = orc_constants(&r->o, &x->h.shape, step);
        orc_value v = orc_map2(&r->o, ORC_ADD, &old, &s);
        prg_after_write(r, x, t, prg_allowed(r, x), &v, -1);
        r->o.grad = o_mode;
        tn_grad_mode(r->cx, mode);
    }
}

// ---- running a program

static const struct {
    void (*run)(run *r);
    int weight;
} kinds[] = { { prg_do_from, 6 }, { prg_do_full, 2 },   { prg_do_view, 14 },  { prg_do_map1, 7 },
              { prg_do_map2, 9 }, { prg_do_reduce, 4 }, { prg_do_matmul, 4 }, { prg_do_concat, 2 },
              { prg_do_copy, 4 }, { prg_do_write, 12 }, { prg_do_shift, 2 },  { do_read, 6 },
              { do_eval, 3 },     { do_begin, 3 },      { do_end, 3 },        { do_drop, 2 },
              { do_mode, 2 },     { do_leaf, 4 },       { do_backward, 5 },   { do_grad, 3 },
              { do_gradient, 5 }, { do_revive, 1 },     { prg_do_kink, 3 } };
enum { KINDS = sizeof kinds / sizeof *kinds };

void prg_generate(program *p, uint64_t seed, const char *device)
{
    *p             = (program){ .seed = seed, .device = device, .count = LENGTH };
    p->singles     = seed % 5 == 0;
    p->wrapped     = seed % 4 == 0;
    p->flush_nodes = seed % 3 == 0 ? 1 + (int64_t)(seed % 7) : 0;
    int total      = 0;
    for (int i = 0; i < KINDS; i++) total += kinds[i].weight;
    for (int i = 0; i < LENGTH; i++) {
        int dice = (int)(prg_random(&seed) % (uint64_t)total);
        if (i < 3) dice = 0;
        while (dice >= kinds[p->code[i].kind].weight) dice -= kinds[p->code[i].kind++].weight;
        for (int k = 0; k < ARGS; k++) p->code[i].r[k] = (uint32_t)(prg_random(&seed) >> 20);
    }
    p->code[3].kind = 17;  // a leaf early
}

static void *count_blocks(void *user, void *old, size_t n)
{
    run *r = user;
    if (!old && n) r->blocks++;
    if (old && !n) r->blocks--;
    if (n) return realloc(old, n);
    free(old);
    return NULL;
}

static void silent(tn_ctx *cx, const tn_fault *f, void *user)
{
    (void)cx;
    (void)f;
    (void)user;
}

static void check_all(run *r)
{
    for (int i = 0; i < SLOTS && !r->failed; i++) {
        slot *s = &r->slot[i];
        if (s->t) check_slot(r, s, 0);
        if (s->t && s->leaf && !r->failed) check_gradient(r, s);
    }
    if (tn_error(r->cx) != TN_OK) prg_fail(r, "an error is left: %s", tn_error_text(r->cx));
}

static void check_nothing_left(run *r, tn_scope *all)
{
    if (tn_end(all) != TN_OK) prg_fail(r, "tn_end: %s", tn_error_text(r->cx));
    tn_stats s = tn_ctx_stats(r->cx);
    if (s.nodes || s.bytes)
        prg_fail(r, "after the outermost scope %lld nodes and %lld bytes are left",
                 (long long)s.nodes, (long long)s.bytes);
}

bool prg_agrees(const program *p, FILE *listing, char *text)
{
    static run r;
    r = (run){ .p = p, .listing = listing };
    for (int i = 0; i < SLOTS; i++) r.slot[i].h.leaf = -1;
    r.cx = tn_open_with((tn_open_opts){ .device      = p->device,
                                        .handler     = silent,
                                        .user        = &r,
                                        .flush_nodes = p->flush_nodes,
                                        .threads     = 1,
                                        .alloc       = count_blocks });
    if (!r.cx) prg_fail(&r, "tn_open: %s", tn_error_text(NULL));
    else if (p->opened) p->opened(r.cx);
    orc_open(&r.o);
    tn_scope *all = p->wrapped && r.cx ? tn_begin(r.cx) : NULL;
    for (int i = 0; i < p->count && !r.failed; i++) {
        r.at = &p->code[i];
        kinds[r.at->kind].run(&r);
        if (!r.failed && tn_error(r.cx) != TN_OK)
            prg_fail(&r, "an unexpected error: %s", tn_error_text(r.cx));
    }
    if (!r.failed) check_all(&r);
    if (!r.failed && all) check_nothing_left(&r, all);
    tn_close(r.cx);
    if (!r.failed && r.blocks && !TEST_DEBUG)
        prg_fail(&r, "%ld blocks are alive after tn_close", r.blocks);
    orc_close(&r.o);
    if (text) memcpy(text, r.text, sizeof r.text);
    return !r.failed;
}
