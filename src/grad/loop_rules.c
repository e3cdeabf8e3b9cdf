// The gradient of a loop: a loop that runs the other way. Its body is the gradient of the forward
// body, found once for each body by the rules of the table: the body is recorded over placeholders,
// tn_grad records its gradient, and what that is made of becomes the new body.
//
//   forward    carry, x[t], consts                          -> carry', y[t]
//   backward   gradient of carry', further: those of y[t],  -> gradient of carry, those of x[t]
//              x[t], carries, values kept of step t
//
// What the backward body reads of the forward one is kept (products, folds, costly maps: outputs
// that the forward loop gets for it) or computed again (cheap maps). The gradient of a constant is
// a sum over all steps. Where it is a product or a sum over rows in each step, its operands are
// stacked and it is one product, or sum, behind the loop:
//
//   gw = sum over t of h[t]' @ g[t]     ->     (T B, n)' @ (T B, m)
//
// Otherwise it is added up as a carry.
//
// Of the body h' = tanh(x + h w), whose result of each step is h', with B sequences of H numbers:
//
//   %0 matmul  (B, H)  h w          forward body; in: h (carry), x (slice), w (constant)
//   %1 add     (B, H)  x %0
//   %2 tanh    (B, H)  %1           h'
//
// tn_grad of %2 for h, x and w, by a gradient g of %2, records
//
//   %3 mul     (B, H)  %2 %2        %2 is the carry after the step: OF_NEXT, a slice of its stack
//   %4 neg     (B, H)  %3
//   %5 add     (B, H)  %4 1
//   %6 mul     (B, H)  g %5         the gradient of x, and of %0
//   %7 view    (H, H)  w            transposed
//   %8 matmul  (B, H)  %6 %7        the gradient of h; the next g is %8 plus what arrives at h itself
//   %9 view    (H, B)  h            transposed
//   %10 matmul (H, H)  %9 %6        the gradient of w in this step
//
// The backward body has g as its carry, h' and what arrives at h as slices, w as its constant; its
// outputs are %8 plus that, and %6. %10 is no part of it: its endings are, for h, x and w,
//
//   0 CARRY 0                       the gradient of h: the last g
//   1 INPUT h, 2 STACK 0, 3 PRODUCT 1 2      of w: the stacks of h and of %6, (T B, H)' @ (T B, H)
//   4 STACK 0                       of x: the stack of %6
#include "grad/grad.h"
#include "ops/composite.h"
#include "ops/loop.h"

#include <string.h>

// Maps from this cost on are kept for the backward body, cheaper ones are computed again: exp and
// its like. In memory a value costs about as much as eight additions.
enum { COSTLY = 8, MOST_ENDINGS = 4 * TNI_LOOP_INPUTS };

// What an input of the backward body, or a node of the forward one, is outside of it.
typedef enum {
    OF_CARRY,  // carry before the step
    OF_NEXT,   // carry after it
    OF_X,      // slice
    OF_OUT,    // output of the forward body that is no carry
    OF_GRAD,   // gradient that arrives at an output; of a carry, at its value before the step
    OF_CONST,
    OF_NOTHING
} what;

typedef struct {
    what kind;
    int  index;
} meaning;

// How the gradient of an input is made of the backward loop's results, as a list of steps of which
// each uses earlier ones.
typedef struct {
    enum { END_CARRY, END_STACK, END_INPUT, END_PRODUCT, END_SUM, END_ADD, END_CAST, END_VIEW } how;
    int      a, b;            // steps; of CARRY and STACK an output of the backward body
    meaning  of;              // INPUT
    bool     turn_a, turn_b;  // PRODUCT: operands are transposed in each step
    uint32_t axes;            // SUM: of one step
    tn_dtype dtype;           // CAST
    tni_view view;            // VIEW
} ending;

// The gradient of a body for some outputs and some inputs, as bits. carry[i]: which carry the
// backward carry i belongs to, or for those that add up, ~ the constant's input. Invariant: belongs
// to its loop and dies with it.
struct tni_loop_grad {
    tni_loop_grad *next;
    uint32_t       given;
    uint64_t       need;
    tni_loop      *body;
    int            carries, carry[TNI_LOOP_OUTPUTS];
    meaning        in[TNI_LOOP_INPUTS];  // after the carries
    int            endings;
    ending         end[MOST_ENDINGS];
    int result[TNI_LOOP_INPUTS];  // by input of the forward body: 1 + its ending; 0: none
};

// A gradient being found. x: tensors that stand for the inputs; copy: the forward nodes over them,
// by place in the body; gy: the gradients of outputs; before: those of carries before the step.
typedef struct {
    tn_ctx        *cx;
    tni_loop      *l;
    tni_loop_grad *d;
    tni_node      *x[TNI_LOOP_INPUTS], **copy;
    tn_tensor     *leaf[TNI_LOOP_INPUTS];
    tni_node      *gy[TNI_LOOP_OUTPUTS], *before[TNI_LOOP_OUTPUTS];
    tni_node      *seed[TNI_LOOP_INPUTS];
    meaning        of[TNI_LOOP_INPUTS];  // of seeds after the carries
    int            seeds, carries;
    tni_node      *root[TNI_LOOP_OUTPUTS];
    int            roots;
    tni_node      *stack[TNI_LOOP_OUTPUTS];  // roots after the carries
    int            stacks;
} derivation;

// ---- the body over placeholders ----------------------------------------------------------------

// Every input gets a gradient if it can have one; which are needed is asked later.
static bool make_leaves(derivation *v)
{
    for (int i = 0; i < tni_loop_inputs(v->l); i++) {
        const tni_node *n = v->l->in[i];
        tn_tensor      *t = tni_wrap(v->cx,
                                     tni_placeholder(v->cx, (tn_dtype)n->dtype, n->rank, n->size));
        if (t && tni_is_float((tn_dtype)n->dtype)) t = tn_requires_grad(t, true);
        if (!t || !(v->x[i] = tni_resolve(t, "scan"))) return false;
        v->x[i]->below = n->below;
        v->leaf[i]     = t;
    }
    return true;
}

// Records the body's nodes once more, with history. A primary of several outputs passes on their
// gradients although it may be no float itself.
static bool copy_nodes(derivation *v)
{
    const tni_loop *l    = v->l;
    size_t          most = 1;
    for (size_t i = 0; i < l->count; i++)
        if (l->node[i]->nsrc > most) most = l->node[i]->nsrc;
    tni_node **src = tni_alloc(&v->cx->heap, most * sizeof *src);
    bool       ok  = src || tni_no_memory(v->cx, "scan");
    for (size_t i = 0; i < l->count; i++) l->node[i]->mark = (uint32_t)i + 1;
    for (int i = 0; i < tni_loop_inputs(l); i++)
        v->copy[l->in[i]->mark - 1] = tni_node_ref(v->x[i]);
    for (size_t i = 0; ok && i < l->count; i++) {
        const tni_node *n = l->node[i];
        if (v->copy[i]) continue;
        for (uint32_t s = 0; s < n->nsrc; s++) src[s] = v->copy[n->src[s]->mark - 1];
        tni_node *copy = v->copy[i] = tni_record_copy(v->cx, n, src);
        if (!(ok = copy != NULL)) break;
        if (l->stops[i]) copy->needs_grad = false;
        for (uint32_t s = 0; s < n->nsrc && tni_outputs_of(n->op, &n->attr) > 1; s++)
            copy->needs_grad |= n->op != TNI_OUTPUT_OP && tni_passes_grad_to(copy, src[s]);
    }
    for (size_t i = 0; i < l->count; i++) l->node[i]->mark = 0;
    tni_free(&v->cx->heap, src);
    return ok;
}

// The place of a copy in the body; -1 if it is none.
static int place_of(const derivation *v, const tni_node *n)
{
    for (size_t i = 0; i < v->l->count; i++)
        if (v->copy[i] == n) return (int)i;
    return -1;
}

// The place of a node in a list; -1: it is not there.
static int find_node(int count, tni_node *const *list, const tni_node *n)
{
    for (int i = 0; i < count; i++)
        if (list[i] == n) return i;
    return -1;
}

// What a node of the recorded gradient is outside of the body; OF_NOTHING if it is computed inside.
// A costly value of the forward body becomes an output of that, if there is room.
static meaning meaning_of(const derivation *v, const tni_node *n)
{
    tni_loop *l  = v->l;
    int       at = find_node(tni_loop_inputs(l), v->x, n);
    if (at >= 0 && at < l->carries) return (meaning){ OF_CARRY, at };
    if (at >= 0 && at < l->carries + l->xs) return (meaning){ OF_X, at };
    if (at >= 0) return (meaning){ OF_CONST, at };
    if ((at = find_node(l->carries, v->before, n)) >= 0) return (meaning){ OF_GRAD, at };
    if ((at = find_node(l->outs, v->gy, n)) >= l->carries) return (meaning){ OF_GRAD, at };
    if ((at = place_of(v, n)) < 0) return (meaning){ OF_NOTHING, 0 };
    tni_class class = tni_op_table[n->op].class;
    bool costly     = class == TNI_LIBRARY || class == TNI_REDUCE || class == TNI_SCAN ||
                  n->op == TNI_loop || n->op == TNI_OUTPUT_OP ||
                  (tni_is_map(n->op) && tni_op_table[n->op].cost >= COSTLY);
    int k = find_node(l->outs, l->out, l->node[at]);
    if (k < 0 && costly) k = tni_loop_add_out(l, l->node[at]);
    if (k < 0) return (meaning){ OF_NOTHING, 0 };
    return (meaning){ k < l->carries ? OF_NEXT : OF_OUT, k };
}

// ---- sums over steps ---------------------------------------------------------------------------

// Appends a step to the list of endings; -1 if that is full.
static int add_ending(derivation *v, ending e)
{
    if (v->d->endings == MOST_ENDINGS) return -1;
    v->d->end[v->d->endings] = e;
    return v->d->endings++;
}

// A value of each step, stacked: one that there is, or one more output. -1: there is no such stack.
static int stacked_value(derivation *v, tni_node *n)
{
    meaning m = meaning_of(v, n);
    if (m.kind == OF_CONST) return -1;
    if (m.kind != OF_NOTHING) return add_ending(v, (ending){ .how = END_INPUT, .of = m });
    int at = find_node(v->stacks, v->stack, n);
    if (at < 0 && v->stacks + v->carries >= TNI_LOOP_OUTPUTS - 1) return -1;
    if (at < 0) v->stack[at = v->stacks++] = n;
    return add_ending(v, (ending){ .how = END_STACK, .a = at });
}

// The matrix that a transposed view shows; NULL if n is none.
static tni_node *transposed(tni_node *n)
{
    if (n->op != TNI_view || n->leaf || n->rank != 2) return NULL;
    tni_node *x = n->src[0];
    bool      t = x->rank == 2 && x->op != TNI_view && !n->attr.view.offset &&
             x->size[0] == n->size[1] && x->size[1] == n->size[0] && n->attr.view.stride[0] == 1 &&
             n->attr.view.stride[1] == x->size[1];
    return t ? x : NULL;
}

// How the sum of n over all steps is made of stacks; -1 if it has to be added up in the loop.
// Linear ops pass it on.
static int sum_over_steps(derivation *v, tni_node *n, int depth)
{
    ending e = { .how = END_PRODUCT };
    if (depth > 8 || place_of(v, n) >= 0) return -1;
    if (n->op == TNI_matmul && n->rank == 2) {
        tni_node *a = transposed(n->src[0]), *b = transposed(n->src[1]);
        e.turn_a = a, e.turn_b = b;
        e.a = stacked_value(v, a ? a : n->src[0]);
        e.b = stacked_value(v, b ? b : n->src[1]);
        return e.a < 0 || e.b < 0 ? -1 : add_ending(v, e);
    }
    if (n->op == TNI_sum && n->src[0]->rank < TN_MAX_RANK) {
        e.how  = END_SUM;
        e.axes = n->attr.reduce.axes;
        e.a    = stacked_value(v, n->src[0]);
    } else if (n->op == TNI_add && n->src[0]->rank == n->src[1]->rank) {
        e.how = END_ADD;
        e.a   = sum_over_steps(v, n->src[0], depth + 1);
        e.b   = e.a < 0 ? -1 : sum_over_steps(v, n->src[1], depth + 1);
        if (e.b < 0) return -1;
    } else if (n->op == TNI_cast || n->op == TNI_copy) {
        e.how   = END_CAST;
        e.dtype = (tn_dtype)n->dtype;
        e.a     = sum_over_steps(v, n->src[0], depth + 1);
    } else if (n->op == TNI_view) {
        int64_t   offset;
        tni_node *base = tni_node_base(n, &offset);
        e.how          = END_VIEW;
        e.view         = tni_node_layout(n);
        e.view.offset  = offset;
        e.a            = sum_over_steps(v, base, depth + 1);
    } else {
        return -1;
    }
    return e.a < 0 ? -1 : add_ending(v, e);
}

// ---- finding a gradient ------------------------------------------------------------------------

// A tensor that stands for a gradient.
static tn_tensor *like_node(derivation *v, const tni_node *n)
{
    return tni_wrap(v->cx, tni_placeholder(v->cx, (tn_dtype)n->dtype, n->rank, n->size));
}

// Asks for the gradients of the recorded body, g[i] of input i; NULL: none is needed. Gradients of
// all carries are, since they go from step to step.
static bool record_gradient(derivation *v, tn_tensor **g)
{
    const tni_loop *l = v->l;
    tn_tensor      *y[TNI_LOOP_OUTPUTS], *gy[TNI_LOOP_OUTPUTS], *x[TNI_LOOP_INPUTS],
        *gx[TNI_LOOP_INPUTS];
    int ny = 0, nx = 0, of[TNI_LOOP_INPUTS];
    for (int k = 0; k < l->outs; k++) {
        bool carry = k < l->carries, given = v->d->given >> k & 1;
        if (!tni_is_float((tn_dtype)l->out[k]->dtype) || !(carry || given)) continue;
        int at = 0;
        while (l->node[at] != l->out[k]) at++;
        y[ny] = tni_wrap_node(v->cx, v->copy[at]);
        if (!y[ny] || !(gy[ny] = like_node(v, l->out[k]))) return false;
        v->gy[k] = gy[ny++]->store->node;
    }
    for (int i = 0; i < tni_loop_inputs(l); i++) {
        bool needed = i < l->carries || v->d->need >> i & 1;
        g[i]        = NULL;
        if (!needed || !tni_is_float((tn_dtype)l->in[i]->dtype)) continue;
        of[nx]  = i;
        x[nx++] = v->leaf[i];
    }
    if (nx && tn_grad(ny, y, nx, x, gy, gx) != TN_OK) return false;
    for (int i = 0; i < nx; i++) g[of[i]] = gx[i];
    return true;
}

// The node of a tensor, as a loop reads and writes it.
static tni_node *row_major_node(tn_tensor *t)
{
    t = t ? tn_contiguous(t) : NULL;
    return t ? tni_resolve(t, "scan") : NULL;
}

// Adds a carry of the backward body: the gradient of a carry, or a sum.
static bool add_carry(derivation *v, int of, tni_node *seed, tn_tensor *next)
{
    tni_node *root = row_major_node(next);
    if (!root) return false;
    if (v->carries >= TNI_LOOP_OUTPUTS - 1)
        return tni_refuse(v->cx, TN_EGRAD, "scan: its gradient has more than %d carries",
                          TNI_LOOP_OUTPUTS - 1);
    v->d->carry[v->carries] = of;
    v->seed[v->carries]     = seed;
    v->root[v->carries++]   = root;
    return true;
}

// The gradients of carries: what flows through the step, and what arrives at the value before it.
static bool add_carries(derivation *v, tn_tensor **g)
{
    for (int c = 0; c < v->l->carries; c++) {
        if (!g[c]) continue;
        tn_tensor *next = g[c];
        if (v->d->given >> c & 1) {
            tn_tensor *t = like_node(v, v->l->in[c]);
            if (!t) return false;
            v->before[c] = t->store->node;
            next         = tn_add(next, t);
        }
        if (!add_carry(v, c, v->gy[c], next)) return false;
        int at          = add_ending(v, (ending){ .how = END_CARRY, .a = v->carries - 1 });
        v->d->result[c] = at + 1;
    }
    return true;
}

// The gradient of an input that no gradient reached is a constant, zeros.
static bool is_nothing(const tn_tensor *g)
{
    return !g || g->store->node->constant;
}

// The gradients of constants: behind the loop, or as carries that add up.
static bool add_constants(derivation *v, tn_tensor **g)
{
    const tni_loop *l = v->l;
    for (int i = l->carries + l->xs; i < tni_loop_inputs(l); i++) {
        if (is_nothing(g[i])) continue;
        tni_node *n     = g[i]->store->node;
        int       begun = v->d->endings, stacks = v->stacks;
        int       at = sum_over_steps(v, n, 0);
        if (at >= 0 && g[i]->view)
            at = add_ending(v, (ending){ .how = END_VIEW, .a = at, .view = *g[i]->view });
        if (at < 0) {
            v->d->endings = begun;
            v->stacks     = stacks;
            tn_tensor *t  = like_node(v, l->in[i]);
            if (!t || !add_carry(v, ~i, t->store->node, tn_add(t, g[i]))) return false;
            at = add_ending(v, (ending){ .how = END_CARRY, .a = v->carries - 1 });
        }
        v->d->result[i] = at + 1;
    }
    return true;
}

// The gradients of slices are outputs.
static bool add_slices(derivation *v, tn_tensor **g)
{
    const tni_loop *l = v->l;
    for (int i = l->carries; i < l->carries + l->xs; i++) {
        if (is_nothing(g[i])) continue;
        tni_node *n = row_major_node(g[i]);
        if (!n) return false;
        int at = find_node(v->stacks, v->stack, n);
        if (at < 0) v->stack[at = v->stacks++] = n;
        at              = add_ending(v, (ending){ .how = END_STACK, .a = at });
        v->d->result[i] = at + 1;
        if (v->stacks + v->carries >= TNI_LOOP_OUTPUTS)
            return tni_refuse(v->cx, TN_EGRAD, "scan: its gradient has more than %d outputs",
                              TNI_LOOP_OUTPUTS);
    }
    return true;
}

// Lists a node of the recorded gradient once.
static bool list_node(derivation *v, tni_node ***list, size_t *count, size_t *cap, tni_node *n)
{
    if (n->mark) return true;
    if (!tni_grow(&v->cx->heap, (void **)list, cap, *count + 1, sizeof **list))
        return tni_no_memory(v->cx, "scan");
    n->mark             = 1;
    (*list)[(*count)++] = n;
    return true;
}

static bool add_seed(derivation *v, tni_node *n, meaning m)
{
    if (v->seeds == TNI_LOOP_INPUTS)
        return tni_refuse(v->cx, TN_EGRAD, "scan: its gradient reads more than %d values",
                          TNI_LOOP_INPUTS);
    v->of[v->seeds]     = m;
    v->seed[v->seeds++] = n;
    return true;
}

// Finds among the nodes that the roots are made of those that are inputs of the backward body: what
// differs from step to step, then (constants) constants. The list grows while it is read.
static bool find_seeds(derivation *v, bool constants)
{
    tni_node **list  = NULL;
    size_t     count = 0, cap = 0;
    bool       ok = true;
    for (int i = 0; i < v->carries; i++) v->seed[i]->mark = 1;
    for (int k = 0; ok && k < v->roots; k++) ok = list_node(v, &list, &count, &cap, v->root[k]);
    for (size_t i = 0; ok && i < count; i++) {
        tni_node *n = list[i];
        meaning   m = meaning_of(v, n);
        for (uint32_t s = 0; ok && m.kind == OF_NOTHING && s < n->nsrc; s++)
            ok = list_node(v, &list, &count, &cap, n->src[s]);
        if (m.kind != OF_NOTHING && (m.kind == OF_CONST) == constants) ok = ok && add_seed(v, n, m);
    }
    for (size_t i = 0; i < count; i++) list[i]->mark = 0;
    for (int i = 0; i < v->carries; i++) v->seed[i]->mark = 0;
    tni_free(&v->cx->heap, list);
    return ok;
}

// Makes the backward body of the roots.
static bool build_backward(derivation *v)
{
    v->seeds = v->carries;
    if (!find_seeds(v, false)) return false;
    int xs = v->seeds - v->carries;
    if (!find_seeds(v, true)) return false;
    tni_loop_parts p = { .op      = "scan",
                         .carries = v->carries,
                         .xs      = xs,
                         .consts  = v->seeds - v->carries - xs,
                         .roots   = v->roots,
                         .seed    = v->seed,
                         .root    = v->root,
                         .all     = true };
    v->d->carries    = v->carries;
    if (!(v->d->body = tni_loop_build(v->cx, &p))) return false;
    for (int i = 0; i < v->d->body->xs + v->d->body->consts; i++) {
        if (p.from[i] >= v->seeds)
            return tni_refuse(v->cx, TN_EGRAD, "scan: the gradient of its body reads a tensor");
        v->d->in[i] = v->of[p.from[i]];
    }
    return true;
}

// Finds everything of a gradient, in the order in which each part needs the one before.
static bool derive(derivation *v)
{
    tn_tensor *g[TNI_LOOP_INPUTS];
    v->copy = tni_zalloc(&v->cx->heap, v->l->count * sizeof *v->copy);
    if (!v->copy) return tni_no_memory(v->cx, "scan");
    if (!make_leaves(v) || !copy_nodes(v) || !record_gradient(v, g)) return false;
    if (!add_carries(v, g) || !add_constants(v, g) || !add_slices(v, g)) return false;
    v->roots = v->carries;
    for (int i = 0; i < v->stacks; i++) v->root[v->roots++] = v->stack[i];
    return !v->roots || build_backward(v);
}

// Frees the gradients of a body; their own bodies belong to the context.
static void forget_grads(tni_loop *l)
{
    while (l->grads) {
        tni_loop_grad *d = l->grads;
        l->grads         = d->next;
        tni_free(&l->cx->heap, d);
    }
}

// The gradient of a body, found or made. In a scope of its own, so that what is recorded dies; a
// walk may be in progress, which does not meet it.
static const tni_loop_grad *gradient_of(tn_ctx *cx, tni_loop *l, uint32_t given, uint64_t need)
{
    for (tni_loop_grad *d = l->grads; d; d = d->next)
        if (d->given == given && d->need == need) return d;
    tni_loop_grad *d = tni_zalloc(&cx->heap, sizeof *d);
    if (!d) return tni_fail_memory(cx, "scan");
    d->given        = given;
    d->need         = need;
    derivation v    = { .cx = cx, .l = l, .d = d };
    bool       busy = cx->busy;
    tn_scope  *s    = tn_begin(cx);
    tn_dtype   mode = cx->autocast;
    cx->busy = cx->grad_mode = true;
    cx->autocast             = TN_F32;
    cx->joins                = true;
    bool ok                  = s && derive(&v);
    cx->joins                = false;
    for (size_t i = 0; v.copy && i < l->count; i++)
        if (v.copy[i]) tni_node_unref(cx, v.copy[i]);
    tni_free(&cx->heap, v.copy);
    cx->busy     = busy;
    cx->autocast = mode;
    if (s) tni_scope_close(s);
    if (!ok) {
        tni_free(&cx->heap, d);
        return NULL;
    }
    l->forget_grads = forget_grads;
    d->next         = l->grads;
    return l->grads = d;
}

// ---- the rule ----------------------------------------------------------------------------------

// The tensor that is meant, outside of the loop: a stack for what differs from step to step.
static tn_tensor *outside(tni_grad_args *r, tni_node **n, meaning m)
{
    const struct tni_attr_loop *a = &r->n->attr.loop;
    tn_array                    shape;
    switch (m.kind) {
    case OF_X:
    case OF_CONST: return tni_wrap_node(r->cx, r->n->src[m.index]);
    case OF_GRAD:
        if (m.index >= a->body->carries) return r->out_g[m.index];
        return tni_loop_slices(r->out_g[m.index], a->reverse, false);
    case OF_NOTHING: return NULL;
    case OF_CARRY:
    case OF_NEXT:
    case OF_OUT: break;
    }
    shape        = tni_loop_output(a, m.index);
    tn_tensor *y = m.index ? tni_output(r->cx, n, m.index, &shape) : tni_wrap_node(r->cx, *n);
    return m.kind == OF_OUT ? y : tni_loop_slices(y, a->reverse, m.kind == OF_NEXT);
}

// What a carry of the backward loop begins with: the gradient of the last state, or zeros.
static tn_tensor *first_carry(tni_grad_args *r, int carry)
{
    const struct tni_attr_loop *a = &r->n->attr.loop;
    const tni_node             *n = a->body->in[carry < 0 ? ~carry : carry];
    if (carry >= 0 && r->out_g[carry]) return tni_loop_last(r->out_g[carry], a->reverse);
    return tn_zeros(r->cx, (tn_dtype)n->dtype, n->rank, n->size);
}

// A stack (T, ...) of matrices as one matrix whose inner axis is that of all steps: (T, k, n) as (T
// k, n), or, where each is turned, (T, n, k) as the same.
static tn_tensor *joined(tn_tensor *x, bool inner_last)
{
    if (!x) return NULL;
    if (inner_last) x = tn_transpose(x, 1, 2);
    const int64_t *s = tni_sizes(x);
    return tn_reshape(x, TN_SHAPE(s[0] * s[1], s[2]));
}

// Computes the list of endings: value[i] is that of step i.
static bool run_endings(tni_grad_args *r, const tni_loop_grad *d, tni_node **n, tn_tensor **made,
                        tn_tensor **value)
{
    for (int i = 0; i < d->endings; i++) {
        const ending *e = &d->end[i];
        tn_tensor    *a = e->how > END_INPUT ? value[e->a] : NULL;
        switch (e->how) {
        case END_CARRY: value[i] = made[e->a]; break;
        case END_STACK: value[i] = made[d->carries + e->a]; break;
        case END_INPUT: value[i] = outside(r, n, e->of); break;
        case END_PRODUCT:
            // (m, k) of each step as (T k, m), turned: a product over the steps, too.
            value[i] = tn_matmul(tn_transpose(joined(a, !e->turn_a), 0, 1),
                                 joined(value[e->b], e->turn_b));
            break;
        case END_SUM:
            a        = tni_reduce(TNI_sum, "scan", a, e->axes << 1 | 1, true);
            value[i] = a ? tn_select(a, 0, 0) : NULL;
            break;
        case END_ADD: value[i] = tn_add(a, value[e->b]); break;
        case END_CAST: value[i] = tn_cast(a, e->dtype); break;
        case END_VIEW:
            a        = tn_contiguous(a);
            value[i] = a ? tni_wrap_view(a, &e->view, NULL, NULL) : NULL;
            break;
        }
        if (!value[i]) return false;
    }
    return true;
}

// The sources of the backward loop, each held.
static bool find_sources(tni_grad_args *r, const tni_loop_grad *d, tni_node **n, tni_node **src,
                         int *held)
{
    for (int i = 0; i < tni_loop_inputs(d->body); i++) {
        tn_tensor *t = i < d->carries ? first_carry(r, d->carry[i])
                                      : outside(r, n, d->in[i - d->carries]);
        tni_node  *x = row_major_node(t);
        if (!x) return false;
        src[(*held)++] = tni_node_ref(x);
    }
    return true;
}

// Records the backward loop and what is computed of its results. The gradient is kept with the
// body, one for each set of outputs that gradients arrive at and of inputs that need one: a
// training step has the same every time.
void tni_grad_loop(tni_grad_args *r)
{
    const struct tni_attr_loop *a     = &r->n->attr.loop;
    tni_loop                   *l     = (tni_loop *)a->body;
    uint32_t                    given = 0;
    uint64_t                    need  = 0;
    for (int k = 0; k < l->outs; k++) given |= (uint32_t)(r->out_g[k] != NULL) << k;
    for (int i = 0; i < tni_loop_inputs(l); i++) need |= (uint64_t)r->need[i] << i;
    const tni_loop_grad *d = gradient_of(r->cx, l, given, need);
    tni_node            *n = tni_node_ref(r->n), *src[TNI_LOOP_INPUTS];
    tn_tensor           *made[TNI_LOOP_OUTPUTS];
    tn_tensor          **value = tni_alloc(&r->cx->heap, MOST_ENDINGS * sizeof *value);
    int                  held  = 0;
    if (!value) tni_fail_memory(r->cx, "scan");
    if (value && d && d->body && find_sources(r, d, &n, src, &held) &&
        tni_loop_record(r->cx, d->body, src, a->steps, !a->reverse, 0, made, NULL) &&
        run_endings(r, d, &n, made, value))
        for (int i = 0; i < tni_loop_inputs(l); i++)
            if (r->need[i] && d->result[i]) r->gx[i] = value[d->result[i] - 1];
    while (held) tni_node_unref(r->cx, src[--held]);
    tni_node_unref(r->cx, n);
    tni_free(&r->cx->heap, value);
}
