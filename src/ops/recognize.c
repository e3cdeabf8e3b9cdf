// Attention that was spelled out in plain ops, recognized when its last product is recorded:
//
//     tn_matmul(tn_dropout(tn_softmax(f(tn_matmul(q, k')), -1), p), v)
//
// also with 0 in place of NaN behind the softmax, as exporters of models write it.
// f is any chain of maps: a scale, a bias, ALiBi out of aranges, a softcap, masks of comparisons or
// of document numbers. Everything before v is still pending, so one node of attention takes its
// place: f becomes options of the op (causal, window, mask) where these can say it, and else a
// score program. The nodes that it replaces are left as recipes: they cost nothing, and are
// computed if somebody reads them after all.
//
// B batches, H heads, T queries, S keys
#include "ops/composite.h"
#include "ops/recognize.h"

#include <string.h>

// What is found out about a product.
typedef struct {
    tn_ctx                   *cx;
    tni_score_reader          r;
    struct tni_attr_attention t;
    tni_node                 *softmax_of;  // what the softmax is of
    tn_tensor                *q, *k;
} finding;

// ---- nodes -------------------------------------------------------------------------------------

static bool is_pending(const tni_node *n, int op)
{
    return n->op == op && n->state == TNI_PENDING;
}

// Whether a node is a view that shows all of another as it is, as a cast to the same dtype gives.
static bool is_same(const tni_node *n)
{
    if (!is_pending(n, TNI_view) || n->nsrc != 1) return false;
    const tni_node *x = n->src[0];
    tni_view        v = tni_node_layout(n);
    return x->op != TNI_view && !v.offset && tni_view_contiguous(&v) &&
           tni_shape_equal(n->rank, n->size, x->rank, x->size);
}

// A node under casts between floats.
static tni_node *under_casts(finding *f, tni_node *n)
{
    while (is_same(n) || (is_pending(n, TNI_cast) && tni_is_float((tn_dtype)n->dtype) &&
                          tni_is_float((tn_dtype)n->src[0]->dtype))) {
        tni_score_reader_passes(&f->r, n);
        n = n->src[0];
    }
    return n;
}

static bool is_number(const tni_node *n, double *v)
{
    if (!tni_is_number(n->op)) return false;
    *v = n->attr.num.f;
    return true;
}

// ---- dropout and softmax -----------------------------------------------------------------------

// where(uniform >= p, x * 1 / (1 - p), 0), over random numbers of the weights' shape. Returns x, or
// n itself if it is no dropout.
static tni_node *under_dropout(finding *f, tni_node *n)
{
    double p, by, zero;
    if (!is_pending(n, TNI_where) || !is_pending(n->src[0], TNI_ge)) return n;
    tni_node *u = n->src[0]->src[0], *x = n->src[1];
    if (!is_pending(u, TNI_uniform) || u->dtype != TN_F32 || !is_pending(x, TNI_mul)) return n;
    if (!is_number(n->src[0]->src[1], &p) || !is_number(n->src[2], &zero) || zero != 0) return n;
    if (!is_number(x->src[1], &by) || fabs(by * (1 - p) - 1) > 1e-6) return n;
    f->t.drops      = true;
    f->t.dropout    = p;
    f->t.key        = u->attr.random.key;
    f->t.counter    = u->attr.random.counter;
    tni_node *all[] = { n, n->src[0], u, x };
    for (int i = 0; i < 4; i++) tni_score_reader_passes(&f->r, all[i]);
    return under_casts(f, x->src[0]);
}

// where(isnan(x), 0, x), which exporters put behind a softmax for queries that see no key:
// attention gives 0 for these. Returns x, or n itself if it is no such guard.
static tni_node *under_guard(finding *f, tni_node *n)
{
    double zero;
    if (!is_pending(n, TNI_where) || !is_pending(n->src[0], TNI_isnan)) return n;
    const tni_node *other = n->src[1];
    while (other->op == TNI_view) other = other->src[0];  // spread over all places
    if (n->src[0]->src[0] != n->src[2] || !is_number(other, &zero) || zero != 0) return n;
    tni_score_reader_passes(&f->r, n);
    tni_score_reader_passes(&f->r, n->src[0]);
    return under_casts(f, n->src[2]);
}

// Whether n, looked at from the scores, is a reduction over keys of what x is, one value a query.
static bool is_fold_of(finding *f, tni_node *n, int op, const tni_node *x)
{
    tni_score_place p    = { n, { 0 } };
    int64_t         rows = 1;
    tni_score_steps(&f->r, p.step);
    tni_look_through(&f->r, &p);
    if (op == TNI_sum && is_pending(p.n, TNI_reciprocal)) {
        tni_score_reader_passes(&f->r, p.n);
        p.n = p.n->src[0];
        tni_look_through(&f->r, &p);
    }
    if (!is_pending(p.n, op) || p.n->src[0] != x) return false;
    if (p.n->attr.reduce.axes != 1u << (x->rank - 1)) return false;
    for (int a = 2; a >= 0; a--) {
        if (f->r.size[a] > 1 && p.step[a] != rows) return false;
        rows *= f->r.size[a];
    }
    tni_score_reader_passes(&f->r, p.n);
    return p.step[3] == 0;
}

// e * (1 / sum(e)) or e / sum(e), where e is exp(x - max(x)) or exp(x). Returns x, or NULL.
static tni_node *under_softmax(finding *f, tni_node *n)
{
    bool product = is_pending(n, TNI_mul);
    if (!product && !is_pending(n, TNI_div)) return NULL;
    tni_node *e = n->src[0];
    if (!is_pending(e, TNI_exp) || !is_fold_of(f, n->src[1], TNI_sum, e)) return NULL;
    tni_node *d = e->src[0], *x = d;
    if (is_pending(d, TNI_sub) && is_fold_of(f, d->src[1], TNI_max, d->src[0])) {
        tni_score_reader_passes(&f->r, d);
        x = d->src[0];
    }
    tni_score_reader_passes(&f->r, n);
    tni_score_reader_passes(&f->r, e);
    return x;
}

// ---- the product of queries and keys -----------------------------------------------------------

// The pending product under the softmax's argument, found by going down maps. Of several the newest
// is taken: another would be a source.
static tni_node *find_product(tni_node *n)
{
    tni_node *list[TNI_SCORE_OPS], *best = NULL;
    int       count = 0;
    list[count++]   = n;
    for (int i = 0; i < count; i++) {
        tni_node *x = list[i];
        if (x->state != TNI_PENDING) continue;
        if (x->op == TNI_matmul && (!best || x->id > best->id)) best = x;
        if (!tni_is_map(x->op) && x->op != TNI_view) continue;
        for (uint32_t s = 0; s < x->nsrc && count < TNI_SCORE_OPS; s++) list[count++] = x->src[s];
    }
    return best;
}

// An operand of the product as a tensor of its four axes, or of its last two alone if all batches
// and heads share it. A number that it is multiplied by becomes part of the scale.
static tn_tensor *find_operand(finding *f, tni_node *n, const int64_t size[4], bool shared)
{
    tni_score_place p = { n, { 0 } }, at;
    double          by;
    memcpy(f->r.size, size, sizeof f->r.size);
    tni_score_steps(&f->r, p.step);
    if (shared) p.step[0] = p.step[1] = 0;
    for (at = p;;) {
        tni_look_through(&f->r, &at);
        bool product = is_pending(at.n, TNI_mul), part = is_pending(at.n, TNI_div);
        if ((!product && !part) || !is_number(at.n->src[1], &by) || by == 0) break;
        f->t.scale *= product ? by : 1 / by;
        tni_score_reader_passes(&f->r, at.n);
        at.n = at.n->src[0];
        p    = at;
    }
    return tni_place_tensor(f->cx, &p, size, true);
}

// The sizes B, H, T and S of scores, which have two to four axes: (T, S), (B, T, S) or all.
static bool find_sizes(const tni_node *n, int64_t size[4])
{
    if (n->rank < 2 || n->rank > 4) return false;
    size[0] = n->rank > 2 ? n->size[0] : 1;
    size[1] = n->rank > 3 ? n->size[1] : 1;
    memcpy(size + 2, n->size + n->rank - 2, 2 * sizeof *size);
    return true;
}

// Takes the product as that of queries and keys. They have the axes of the scores or, where all
// batches and heads share the keys, are two matrices, of which the queries have the rows of all.
static bool take_product(finding *f, tni_node *n)
{
    int64_t size[4];
    if (!n || !find_sizes(n, size) || !tni_is_float((tn_dtype)n->dtype)) return false;
    tni_node *q = n->src[0], *k = n->src[1];
    bool      matrices = q->rank == 2 && k->rank == 2;
    if (!matrices && (q->rank != n->rank || k->rank != n->rank)) return false;
    int64_t B = size[0], H = size[1], T = size[2], S = size[3], D = q->size[q->rank - 1];
    f->q     = find_operand(f, q, (int64_t[]){ B, H, T, D }, false);
    f->k     = tn_transpose(find_operand(f, k, (int64_t[]){ B, H, D, S }, matrices), 2, 3);
    f->r.raw = n;
    memcpy(f->r.size, size, sizeof size);
    return f->q && f->k;
}

// ---- what hides keys ---------------------------------------------------------------------------

// Hidden are: with causal the keys after the query, and those `left` or more before it, `right` or
// more after it; 0: no such bound.
typedef struct {
    bool    causal;
    int64_t left, right;
} bounds;

// c + i ci + j cj, of query i and key j.
typedef struct {
    double c, i, j;
} linear;

// Whether sums and differences of places are what they are in whole numbers: 8 and 16 bits and
// those without a sign wrap around, and a bool is 1 for all but 0.
static bool holds_places(tn_dtype dt)
{
    return tni_is_float(dt) || dt == TN_I64 || dt == TN_I32;
}

static bool is_whole(linear x)
{
    return x.c == floor(x.c) && x.i == floor(x.i) && x.j == floor(x.j);
}

// The value of an instruction as a linear form, if it is one.
static bool find_linear(const tni_score_reader *r, int at, linear *y)
{
    const tni_score_op *x = &r->op[at];
    linear              a, b;
    bool                real = tni_is_float((tn_dtype)x->dtype);
    double              by   = real ? x->df : (double)x->di;
    *y                       = (linear){ .c = real ? x->f : (double)x->i };
    if (!holds_places((tn_dtype)x->dtype)) return false;
    if (x->op == TNI_scalar) return true;
    if (x->op == TNI_iota) {
        y->i = by * (double)x->step[2], y->j = by * (double)x->step[3];
        return !x->step[0] && !x->step[1];
    }
    // A cast to integers leaves out fractions, if there are any.
    if (x->op == TNI_cast) return find_linear(r, x->src[0], y) && (real || is_whole(*y));
    if (x->op != TNI_add && x->op != TNI_sub) return false;
    if (!find_linear(r, x->src[0], &a) || !find_linear(r, x->src[1], &b)) return false;
    double sign = x->op == TNI_add ? 1 : -1;
    *y          = (linear){ a.c + sign * b.c, a.i + sign * b.i, a.j + sign * b.j };
    return true;
}

static void narrow(int64_t *bound, int64_t n)
{
    if (!*bound || n < *bound) *bound = n;
}

// Takes that keys are hidden where d > 0 into the bounds.
static bool bound_by(linear d, bounds *b)
{
    if (d.j == 1 && d.i == -1 && d.c == 0) b->causal = true;
    else if (d.j == 1 && d.i == -1 && d.c < 0) narrow(&b->right, 1 - (int64_t)d.c);
    else if (d.j == -1 && d.i == 1 && d.c <= 0) narrow(&b->left, 1 - (int64_t)d.c);
    else return false;
    return d.c == (double)(int64_t)d.c;
}

// |x| > y or |x| >= y, of a distance between query and key.
static bool bound_by_distance(const tni_score_reader *r, const tni_score_op *x, bool hidden,
                              bounds *b)
{
    const tni_score_op *a = &r->op[x->src[0]];
    linear              d, n;
    bool                above = x->op == (hidden ? TNI_gt : TNI_le);
    if (a->op != TNI_abs || (!above && x->op != (hidden ? TNI_ge : TNI_lt))) return false;
    if (!find_linear(r, a->src[0], &d) || !find_linear(r, x->src[1], &n)) return false;
    if (d.c != 0 || d.i * d.j != -1 || n.i != 0 || n.j != 0 || n.c < 0 || n.c > 1e9) return false;
    if ((int64_t)n.c + above == 0 || n.c != (double)(int64_t)n.c) return false;
    narrow(&b->left, (int64_t)n.c + above);
    narrow(&b->right, (int64_t)n.c + above);
    return true;
}

// Takes a comparison into the bounds: keys are hidden where it is true or, unless `hidden`, false.
// Places are whole numbers, so a >= b is a + 1 > b.
static bool bound_by_comparison(const tni_score_reader *r, const tni_score_op *x, bool hidden,
                                bounds *b)
{
    linear a, c, d;
    int    op = x->op;
    if (bound_by_distance(r, x, hidden, b)) return true;
    if (!find_linear(r, x->src[0], &a) || !find_linear(r, x->src[1], &c)) return false;
    if (!hidden)
        op = op == TNI_gt ? TNI_le : op == TNI_ge ? TNI_lt : op == TNI_lt ? TNI_ge : TNI_gt;
    bool more = op == TNI_gt || op == TNI_ge;
    d         = more ? (linear){ a.c - c.c, a.i - c.i, a.j - c.j }
                     : (linear){ c.c - a.c, c.i - a.i, c.j - a.j };
    if (op == TNI_ge || op == TNI_le) d.c += 1;
    return bound_by(d, b);
}

// Whether what a comparison hides is taken into the bounds; with only_causal, if it is causal.
static bool takes_comparison(const finding *f, const tni_score_op *x, bool hidden, bool only_causal,
                             bounds *b)
{
    bounds more = *b;
    if (x->op != TNI_gt && x->op != TNI_ge && x->op != TNI_lt && x->op != TNI_le) return false;
    if (!bound_by_comparison(&f->r, x, hidden, &more)) return false;
    if (only_causal && (more.left != b->left || more.right != b->right)) return false;
    *b = more;
    return true;
}

// Takes what a condition hides into the bounds, as far as they can say it. Returns the instruction
// of what is left of it; -1: nothing.
static int strip_condition(finding *f, int at, bool hidden, bool only_causal, bounds *b)
{
    tni_score_op x;
    memcpy(&x, &f->r.op[at], sizeof x);
    bool joins = x.op == (hidden ? TNI_logical_or : TNI_logical_and);
    if (takes_comparison(f, &x, hidden, only_causal, b)) return -1;
    if (x.op == TNI_logical_not) {
        int rest = strip_condition(f, x.src[0], !hidden, only_causal, b);
        if (rest < 0 || rest == x.src[0]) return rest < 0 ? -1 : at;
        x.src[0] = (int16_t)rest;
        return tni_score_append(&f->r, &x);
    }
    if (!joins) return at;
    int left  = strip_condition(f, x.src[0], hidden, only_causal, b);
    int right = strip_condition(f, x.src[1], hidden, only_causal, b);
    if (left < 0 || right < 0) return left < 0 ? right : left;
    if (left == x.src[0] && right == x.src[1]) return at;
    x.src[0] = (int16_t)left, x.src[1] = (int16_t)right;
    return tni_score_append(&f->r, &x);
}

static bool is_minus_infinity(const tni_score_op *x)
{
    return x->op == TNI_scalar && tni_is_float((tn_dtype)x->dtype) && x->f == -INFINITY;
}

// Whether causal and window of the op say the bounds; sets them.
static bool set_bounds(finding *f, const bounds *b)
{
    bool one_side = b->left && b->causal, both = b->left && b->left == b->right;  // n each way
    if ((b->left || b->right) && !one_side && !both) return false;
    f->t.causal = b->causal;
    f->t.window = b->left;
    return true;
}

// Takes what hides keys off the end of the program, as far as bounds say it. Returns the
// instruction that is left as the value.
static int strip_value(finding *f, int at, bool only_causal, bounds *b)
{
    tni_score_op x;
    memcpy(&x, &f->r.op[at], sizeof x);
    if (x.op != TNI_where) return at;
    bool hidden = is_minus_infinity(&f->r.op[x.src[1]]);
    int  side   = hidden ? 2 : 1;
    if (!hidden && !is_minus_infinity(&f->r.op[x.src[2]])) return at;
    int rest  = strip_condition(f, x.src[0], hidden, only_causal, b);
    int value = strip_value(f, x.src[side], only_causal, b);
    if (rest < 0) return value;
    if (rest == x.src[0] && value == x.src[side]) return at;
    x.src[0] = (int16_t)rest, x.src[side] = (int16_t)value;
    return tni_score_append(&f->r, &x);
}

// Whether there is room for the instructions that are appended: one for each choice and condition,
// in two attempts.
static bool has_room(const tni_score_reader *r)
{
    int n = 0;
    for (int i = 0; i < r->count; i++)
        n += r->op[i].op == TNI_where || r->op[i].op == TNI_logical_not ||
             r->op[i].op == TNI_logical_or || r->op[i].op == TNI_logical_and;
    return r->count + 2 * n <= TNI_SCORE_OPS;
}

// What causal and window of the op can say. If they cannot say all bounds, it is causal alone.
static int strip_hiding(finding *f, int last)
{
    for (int only_causal = has_room(&f->r) ? 0 : 2; only_causal < 2; only_causal++) {
        bounds b  = { 0 };
        int    at = strip_value(f, last, only_causal, &b);
        if (set_bounds(f, &b)) return at;
    }
    return last;
}

// ---- the rest of the program -------------------------------------------------------------------

// Readers of an instruction; *by is the last of them.
static int count_readers(const tni_score_reader *r, int at, int *by)
{
    int n = 0;
    for (int i = 0; i < r->count; i++)
        for (int k = 0; k < tni_score_operands(r->op[i].op); k++)
            if (r->op[i].src[k] == at) n++, *by = i;
    return n;
}

static int find_score(const tni_score_reader *r)
{
    for (int i = 0; i < r->count; i++)
        if (r->op[i].op == TNI_matmul) return i;
    return -1;
}

// Makes a number that the score is multiplied by, before anything else, part of the scale.
static void fold_scale(finding *f)
{
    for (;;) {
        int raw = find_score(&f->r), by = 0;
        if (raw < 0 || count_readers(&f->r, raw, &by) != 1) return;
        tni_score_op *x     = &f->r.op[by];
        int           other = x->src[0] == raw ? x->src[1] : x->src[0];
        bool          part  = x->op == TNI_div && x->src[0] == raw;
        if ((x->op != TNI_mul && !part) || f->r.op[other].op != TNI_scalar) return;
        double v = f->r.op[other].f;
        if (v == 0 || !isfinite(v)) return;
        f->t.scale *= part ? 1 / v : v;
        memcpy(x, &f->r.op[raw], sizeof *x);
        tni_score_reader_trim(&f->r, f->r.count - 1);
    }
}

// Whether the program is the score plus a source, or the score where a source of bools is true:
// that is the mask of the op.
static bool is_mask(const finding *f)
{
    const tni_score_reader *r = &f->r;
    const tni_score_op     *x = &r->op[r->count - 1];
    if (r->sources != 1) return false;
    int a = r->op[x->src[0]].op, b = r->op[x->src[1]].op;
    if (x->op == TNI_add && r->source[0].n->dtype == r->raw->dtype)
        return (a == TNI_matmul && b == TNI_leaf) || (a == TNI_leaf && b == TNI_matmul);
    return x->op == TNI_where && a == TNI_leaf && b == TNI_matmul &&
           is_minus_infinity(&r->op[x->src[2]]);
}

// Reads the argument of the softmax as options and a program. False if it is none.
static bool read_program(finding *f)
{
    int64_t step[4];
    tni_score_steps(&f->r, step);
    int last = tni_read_node(&f->r, f->softmax_of, step);
    if (last < 0) return false;
    tni_score_reader_trim(&f->r, strip_hiding(f, last));
    if (find_score(&f->r) < 0) return false;
    fold_scale(f);
    f->t.extras = f->r.sources;
    if (f->r.count == 1 || is_mask(f)) return true;
    f->t.score = tni_score_keep(f->cx, f->r.op, f->r.count, f->r.sources);
    return f->t.score != NULL;
}

// ---- recording ---------------------------------------------------------------------------------

// Whether a gradient would have to pass a program that has no slope.
static bool lacks_slope(const finding *f, tn_tensor *const *x)
{
    bool needs = false;
    if (!f->t.score || f->t.score->slope >= 0 || !f->cx->grad_mode) return false;
    for (int i = 0; i < 3; i++) needs |= tn_needs_grad(x[i]);
    for (int i = 0; i < f->r.sources; i++) needs |= f->r.source[i].n->needs_grad;
    return needs;
}

// Drops from the list the nodes that a step has to store: they were asked for by name, or have a
// tensor of an outer scope, which is still there afterwards.
static void keep_asked_for(finding *f)
{
    tni_score_reader *r = &f->r;
    int               n = 0;
    for (int i = 0; i < r->passes; i++) r->passed[i]->visited = true;
    for (const tni_store *s = f->cx->pending; s; s = s->next)
        if (s->wanted || s->assigned || s->depth < f->cx->scope->depth) s->node->visited = false;
    for (int i = 0; i < r->passes; i++)
        if (r->passed[i]->visited) r->passed[n++] = r->passed[i];
    for (int i = 0; i < n; i++) r->passed[i]->visited = false;
    r->passes = n;
}

// Leaves the nodes that attention replaces as recipes, newest first, unless others read them. They
// were never computed, so computing them is no repetition.
static void leave_replaced(finding *f)
{
    tni_score_reader *r = &f->r;
    keep_asked_for(f);
    for (int i = 1; i < r->passes; i++)
        for (int k = i; k > 0 && r->passed[k]->id > r->passed[k - 1]->id; k--) {
            tni_node *n      = r->passed[k];
            r->passed[k]     = r->passed[k - 1];
            r->passed[k - 1] = n;
        }
    for (int i = 0; i < r->passes; i++) {
        tni_node *n = r->passed[i];
        if (n->state == TNI_PENDING && !n->uses && !n->constant) tni_node_mark_unstored(f->cx, n);
        if (n->state == TNI_UNSTORED) n->recomputed = false;
        n->replaced = n->needs_grad;
    }
}

// A source as a tensor. A matrix of numbers whose keys are not neighbours, as that of a table of
// biases by distance, is read by every batch and in three kernels: it is copied first.
static tn_tensor *source_tensor(finding *f, int i)
{
    tn_tensor *x = tni_place_tensor(f->cx, &f->r.source[i], f->r.size, false);
    if (!x || tn_size(x, 2) == 1 || tn_size(x, 3) == 1) return x;
    return tni_layout(x).stride[3] == 1 ? x : tn_contiguous(x);
}

// Records attention over what was found; NULL if the device declines it.
static tn_tensor *record_found(finding *f, tn_tensor *v)
{
    tn_tensor *x[3]  = { f->q, f->k, v }, *extra[TNI_SCORE_SOURCES];
    tni_attr   attr  = { .attention = f->t };
    int        lacks = 4 - tn_rank(v);  // heads, and batches
    for (int i = 0; i < lacks; i++)
        if (!(x[2] = tn_unsqueeze(x[2], lacks == 2 ? 0 : 1))) return NULL;
    if (lacks_slope(f, x)) return NULL;
    for (int i = 0; i < f->r.sources; i++) {
        extra[i] = source_tensor(f, i);
        if (!extra[i]) return NULL;
    }
    tn_tensor *y = tni_attention_record(x, extra, &attr);
    for (int i = 0; i < lacks && y; i++) y = tn_squeeze(y, lacks == 2 ? 0 : 1);
    return y && lacks ? tni_share(y, "matmul") : y;
}

// The softmax is over keys, so p has the product's shape, and v its leading sizes or 1.
static bool shapes_agree(const finding *f, const tni_node *p, const tn_tensor *v)
{
    const tni_node *n = f->r.raw;
    if (!tni_shape_equal(p->rank, p->size, n->rank, n->size) || tn_rank(v) != n->rank) return false;
    for (int i = 0; i + 2 < n->rank; i++)
        if (tn_size(v, i) != n->size[i] && tn_size(v, i) != 1) return false;
    return tn_size(v, -2) == n->size[n->rank - 1] && tn_dtype_of(v) == (tn_dtype)n->dtype;
}

// Values that several heads or batches share, as each of them has them.
static tn_tensor *spread_values(const finding *f, tn_tensor *v)
{
    int64_t size[4];
    int     rank = (int)f->r.raw->rank;
    for (int i = 0; i < rank; i++) size[i] = i + 2 < rank ? f->r.raw->size[i] : tn_size(v, i);
    return tni_expand_to(v, rank, size);
}

// Whether a pending node can be weights: a softmax, perhaps dropped and cast. Most products fail
// here.
static bool may_be_weights(const tni_node *n)
{
    if (n->rank < 2 || n->rank > 4) return false;
    while (is_same(n) || is_pending(n, TNI_cast)) n = n->src[0];
    if (is_pending(n, TNI_where)) n = n->src[0]->op == TNI_isnan ? n->src[2] : n->src[1];
    if (is_pending(n, TNI_mul) && tni_is_number(n->src[1]->op)) n = n->src[0];
    while (is_same(n) || is_pending(n, TNI_cast)) n = n->src[0];
    if (!is_pending(n, TNI_mul) && !is_pending(n, TNI_div)) return false;
    return n->src[0]->op == TNI_exp;
}

// Follows the weights p back to queries and keys and records attention; NULL if they are not such.
static tn_tensor *follow_weights(finding *f, tni_node *p, tn_tensor *v)
{
    tni_node *weights = under_guard(f, under_dropout(f, under_casts(f, p)));
    f->softmax_of     = under_softmax(f, weights);
    if (!f->softmax_of) return NULL;
    f->softmax_of = under_casts(f, f->softmax_of);
    if (!take_product(f, find_product(f->softmax_of)) || !shapes_agree(f, p, v)) return NULL;
    if (!read_program(f) || !(v = spread_values(f, v))) return NULL;
    return record_found(f, v);
}

// busy keeps recording from evaluating in between: what is looked at is pending.
tn_tensor *tni_recognize_attention(tn_tensor *a, tn_tensor *b)
{
    tn_ctx   *cx = a->cx;
    tni_node *p  = a->store->node;
    if (cx->busy || a->view || !may_be_weights(p) || tni_lacks(cx, TNI_attention)) return NULL;
    int64_t size[4];
    if (!find_sizes(p, size) || size[2] * size[3] < cx->recognizes) return NULL;
    finding f    = { .cx = cx, .r = tni_score_reader_of(size, NULL, 0), .t = { .scale = 1 } };
    cx->busy     = true;
    tn_tensor *y = follow_weights(&f, p, b);
    if (y) leave_replaced(&f);
    cx->busy = false;
    return y;
}
