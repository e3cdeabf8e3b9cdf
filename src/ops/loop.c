// Recording loops, and tn_scan: the user's function records one step, which is run for all.
//
//   1. scan_context, find_steps   arguments: counts, contexts, lengths of sequences
//   2. record_step                the function runs once, over placeholders, in a scope of its own
//   3. share_roots                a result that is a next state is a view of that state's stack
//   4. tni_loop_build             the nodes of the step become a body (loop_body.c)
//   5. body_is_pure               nothing else reads the placeholders: the function wrote and kept nothing
//   6. tni_loop_record            the op, over states, sequences and what the body reads besides
//
// tn_vmap goes the same way without states, up to 5, and then records the body over all slices at
// once:
//
//   6. tni_loop_batch             each node of the body with one axis more (vmap.c)
//      tni_loop_record            where a node has no rule for that
//
// An error in 2 to 5 leaves no node behind that could be computed from a placeholder.
#include "ops/loop.h"
#include "ops/composite.h"

#include <string.h>

// ---- the op ------------------------------------------------------------------------------------

tn_array tni_loop_output(const struct tni_attr_loop *a, int k)
{
    const tni_node *n   = a->body->out[k];
    bool            one = k < a->body->carries && !(a->stacked >> k & 1);
    tn_array        y   = { .dtype = (tn_dtype)n->dtype, .rank = n->rank + !one };
    memcpy(y.size + !one, n->size, n->rank * sizeof *y.size);
    if (!one) y.size[0] = a->steps + (k < a->body->carries);
    return y;
}

int tni_loop_roots(const tni_node *n, tni_node **root)
{
    const tni_loop *l     = n->attr.loop.body;
    uint32_t        alive = 1 | ((UINT32_C(1) << l->carries) - 1);
    int             roots = 0;
    for (const tni_node *o = tni_outputs(n); o; o = o->output)
        alive |= UINT32_C(1) << o->attr.output.index;
    for (int k = 0; k < l->outs; k++)
        if (alive >> k & 1) root[roots++] = l->out[k];
    return roots;
}

int tni_loop_outputs(const struct tni_attr_loop *a)
{
    return a->body->outs;
}

tn_tensor *tni_loop_slices(tn_tensor *stack, bool reverse, bool after)
{
    if (!stack) return NULL;
    int64_t first = after != reverse;
    return tn_slice(stack, 0, first, tni_sizes(stack)[0] - 1 + first, 1);
}

tn_tensor *tni_loop_last(tn_tensor *stack, bool reverse)
{
    return stack ? tn_select(stack, 0, reverse ? 0 : tni_sizes(stack)[0] - 1) : NULL;
}

// Whether values of all steps, one above the other, have at most as many axes as a tensor; else
// that is reported.
static bool can_stack(tn_ctx *cx, const tni_loop *l, uint32_t stacked)
{
    for (int i = 0; i < l->declared; i++) {
        const tni_node *n = l->out[i];
        if ((i < l->carries && !(stacked >> i & 1)) || n->rank < TN_MAX_RANK) continue;
        return tni_refuse(cx, TN_ESHAPE, "%s: values %s of all steps would have more than %d axes",
                          tni_self.site.op ? tni_self.site.op : "scan",
                          tni_shape_text(n->rank, n->size).s, TN_MAX_RANK);
    }
    return true;
}

// Where a gradient may be asked for, carries of all steps are kept for it.
bool tni_loop_record(tn_ctx *cx, const tni_loop *l, tni_node *const *src, int64_t steps,
                     bool reverse, uint32_t stacked, tn_tensor **y, tn_tensor **stack)
{
    tni_attr   a = { .loop = { .body = l, .steps = steps, .reverse = reverse } };
    tn_array   out[TNI_LOOP_OUTPUTS];
    tn_tensor *made[TNI_LOOP_OUTPUTS];
    bool       needs = false;
    for (int i = 0; i < tni_loop_inputs(l); i++) needs |= cx->grad_mode && src[i]->needs_grad;
    a.loop.stacked = needs ? (UINT32_C(1) << l->carries) - 1 : stacked;
    if (!can_stack(cx, l, a.loop.stacked)) return false;
    for (int i = 0; i < l->declared; i++) out[i] = tni_loop_output(&a.loop, i);
    if (!tni_record_outputs(cx, TNI_loop, l->declared, out, tni_loop_inputs(l), src, &a, made))
        return false;
    for (int i = 0; i < l->declared; i++) {
        bool is_stack = i < l->carries && a.loop.stacked >> i & 1;
        if (stack && i < l->carries) stack[i] = is_stack ? made[i] : NULL;
        if (!(y[i] = is_stack ? tni_loop_last(made[i], reverse) : made[i])) return false;
    }
    return true;
}

// ---- tn_scan -----------------------------------------------------------------------------------

// A scan that is recorded. seed: the nodes of the tensors that stand for carries and slices inside
// of the body; root: those of the next carries and of the outputs; out_of: which output of the loop
// y[i] is.
typedef struct {
    tn_ctx           *cx;
    tn_scan_body     *body;
    void             *user;
    int               carries, xs, ys;
    tn_tensor       **carry, **y;
    tn_tensor *const *x;
    int64_t           steps;
    tni_node         *seed[TNI_LOOP_INPUTS], *root[TNI_LOOP_OUTPUTS];
    int               seeds, out_of[TNI_LOOP_OUTPUTS];
    uint32_t          stacked;
    tni_loop_parts    parts;
} scan;

// Checks counts, pointers and tensors; the context, or NULL, reported.
static tn_ctx *scan_context(const scan *r)
{
    const char *lack = !r->body                      ? "body"
                       : r->carries > 0 && !r->carry ? "carry"
                       : r->xs > 0 && !r->x          ? "x"
                       : r->ys > 0 && !r->y          ? "y"
                                                     : NULL;
    if (lack || r->carries < 0 || r->xs < 0 || r->ys < 0 || r->carries + r->xs < 1) {
        if (lack) tni_thread_fail(TN_EARG, "scan: %s is NULL", lack);
        else tni_thread_fail(TN_EARG, "scan: there are no tensors");
        return NULL;
    }
    tn_ctx *cx  = r->carries ? tni_args("scan", r->carries, r->carry, NULL) : NULL;
    tn_ctx *all = r->xs ? tni_args("scan", r->xs, r->x, NULL) : cx;
    if (!all || (r->carries && !cx)) return NULL;
    if (cx && cx != all) return tni_fail(cx, TN_EARG, "scan: x is of another context than carry");
    if (r->carries + r->xs <= TNI_LOOP_INPUTS && r->carries + r->ys <= TNI_LOOP_OUTPUTS &&
        r->carries + r->ys > 0)
        return all;
    return tni_fail(all, TN_EARG,
                    "scan: %d carries, %d xs, %d ys: there may be %d inputs and 1 to %d outputs",
                    r->carries, r->xs, r->ys, TNI_LOOP_INPUTS, TNI_LOOP_OUTPUTS);
}

// Stacks have one length, that of the scan.
static bool find_steps(scan *r, int64_t steps)
{
    r->steps = steps;
    for (int i = 0; i < r->xs; i++) {
        if (tni_rank(r->x[i]) < 1)
            return tni_refuse(r->cx, TN_ESHAPE, "scan: x[%d] () has no axis of steps", i);
        if (!i && !steps) r->steps = tni_sizes(r->x[0])[0];
        if (tni_sizes(r->x[i])[0] != r->steps)
            return tni_refuse(r->cx, TN_ESHAPE, "scan: x[%d] %s is not of %lld steps", i,
                              tni_shape_of(r->x[i]).s, (long long)r->steps);
    }
    return r->steps >= 1 || tni_refuse(r->cx, TN_EARG, "scan: %lld steps, at least 1 is needed",
                                       (long long)r->steps);
}

// The tensor that stands for a carry, or for the slices of a stack. It needs a gradient, so that
// what is recorded from it can be differentiated, as it is outside.
static tn_tensor *inner_tensor(scan *r, tn_tensor *x, bool slice)
{
    tni_node  *n = tni_placeholder(r->cx, tni_dtype(x), tni_rank(x) - slice, tni_sizes(x) + slice);
    tn_tensor *t = tni_wrap(r->cx, n);
    if (t && r->cx->grad_mode && tni_is_float(tni_dtype(x))) t = tn_requires_grad(t, true);
    if (!t || !(n = tni_resolve(t, "scan"))) return NULL;
    r->seed[r->seeds++] = tni_node_ref(n);
    return t;
}

// Reports what the body did not set, or set to a tensor that cannot be used here.
static bool is_left_out(const scan *r, const tn_tensor *t, const char *name, int i)
{
    if (t && tni_tensor_alive(t, "scan") && t->cx == r->cx) return false;
    tni_fail(r->cx, TN_EARG, "scan: the body left %s[%d] %s", name, i,
             t ? "a tensor of another context, or dead" : "NULL");
    return true;
}

// Whether a node is a view of all of another one, as it is.
static bool is_whole(const tni_node *n)
{
    tni_view v = tni_node_layout(n);
    return n->op == TNI_view && !n->leaf && !v.offset && tni_view_contiguous(&v) &&
           tni_shape_equal(n->rank, n->size, n->src[0]->rank, n->src[0]->size) &&
           n->src[0]->op != TNI_view;
}

// Lets the user's function record a step over placeholders, and finds the nodes of what it makes.
static bool record_step(scan *r)
{
    tn_tensor *carry[TNI_LOOP_INPUTS], *x[TNI_LOOP_INPUTS], *y[TNI_LOOP_OUTPUTS] = { NULL };
    tni_thread before;
    for (int i = 0; i < r->carries; i++)
        if (!(carry[i] = inner_tensor(r, r->carry[i], false))) return false;
    for (int i = 0; i < r->xs; i++)
        if (!(x[i] = inner_tensor(r, r->x[i], true))) return false;
    uint64_t failures = r->cx->failures;
    r->cx->nested++;
    tni_user_sites_begin(&before);
    r->body(r->user, carry, x, y);
    tni_user_sites_end(&before);
    r->cx->nested--;
    if (r->cx->failures != failures) return false;
    for (int i = 0; i < r->carries + r->ys; i++) {
        bool       next = i < r->carries;
        tn_tensor *t    = next ? carry[i] : y[i - r->carries];
        if (is_left_out(r, t, next ? "carry" : "y", next ? i : i - r->carries)) return false;
        if (!(r->root[i] = tni_resolve(t, "scan"))) return false;
        while (is_whole(r->root[i])) r->root[i] = r->root[i]->src[0];
    }
    return true;
}

// The next carry has the dtype and the shape of the carry.
static bool carries_fit(const scan *r)
{
    for (int i = 0; i < r->carries; i++) {
        const tni_node *a = r->seed[i], *b = r->root[i];
        if (a->dtype == b->dtype && tni_shape_equal(a->rank, a->size, b->rank, b->size)) continue;
        return tni_refuse(r->cx, a->dtype == b->dtype ? TN_ESHAPE : TN_EDTYPE,
                          "scan: the body made carry[%d] %s %s of %s %s", i,
                          tn_dtype_name((tn_dtype)b->dtype), tni_shape_text(b->rank, b->size).s,
                          tn_dtype_name((tn_dtype)a->dtype), tni_shape_text(a->rank, a->size).s);
    }
    return true;
}

// An output that is a next carry is a view of that one's stack.
static void share_roots(scan *r)
{
    int n = r->carries;
    for (int i = 0; i < r->ys; i++) {
        tni_node *root = r->root[r->carries + i];
        int       at   = 0;
        while (at < r->carries && r->root[at] != root) at++;
        if (at < r->carries) r->stacked |= UINT32_C(1) << at;
        else r->root[at = n++] = root;
        r->out_of[i] = at;
    }
    r->parts.roots = n;
}

// Builds the body. What it captures is held until the loop is recorded.
static tni_loop *build_body(scan *r)
{
    r->parts        = (tni_loop_parts){ .op = "scan", .carries = r->carries, .xs = r->xs };
    r->parts.first  = r->cx->next_id + 1;
    tn_scope *scope = tn_begin(r->cx);
    if (!scope) return NULL;
    bool              busy  = r->cx->busy;
    struct tni_trace *trace = r->cx->trace;
    r->cx->busy             = true;
    r->cx->trace            = NULL;  // it would keep nodes of the body
    tni_loop *l             = NULL;
    if (record_step(r) && carries_fit(r)) {
        share_roots(r);
        r->parts.seed = r->seed;
        r->parts.root = r->root;
        l             = tni_loop_build(r->cx, &r->parts);
    }
    for (int i = 0; l && i < l->xs + l->consts; i++)
        if (r->parts.from[i] >= r->seeds) tni_node_ref(r->parts.captured[i]);
    r->cx->busy  = busy;
    r->cx->trace = trace;
    tni_scope_close(scope);
    return l;
}

// What the body wrote into tensors of the outside, or kept, would be computed from placeholders: it
// is gone.
static bool body_is_pure(scan *r)
{
    bool pure = true;
    for (int i = 0; i < r->seeds; i++) {
        pure &= r->seed[i]->uses == 0;
        if (r->seed[i]->uses) tni_node_mark_gone(r->cx, r->seed[i]);
    }
    return pure ||
           tni_refuse(r->cx, TN_EARG,
                      "scan: the body wrote a tensor that was made outside of it, or keeps "
                      "one: what goes from step to step is a carry, what is read later a y");
}

// The sources of the loop: carries, stacks and what was captured, row-major. Each is held.
static bool find_sources(scan *r, const tni_loop *l, tni_node **src, int *held)
{
    for (int i = 0; i < tni_loop_inputs(l); i++) {
        int        k = i < l->carries ? i : r->parts.from[i - l->carries];
        tn_tensor *t = k < r->carries ? r->carry[k]
                       : k < r->seeds ? r->x[k - r->carries]
                                      : tni_wrap_node(r->cx, r->parts.captured[i - l->carries]);
        tn_tensor *c = t ? tn_contiguous(t) : NULL;
        tni_node  *n = c ? tni_resolve(c, "scan") : NULL;
        if (!n) return false;
        src[(*held)++] = tni_node_ref(n);
        if (c != t) tni_tensor_free(c);
        if (k >= r->seeds) tni_tensor_free(t);
    }
    return true;
}

// The results as the caller has them: last carries, and stacks.
static bool give_outputs(scan *r, bool reverse, tn_tensor **made, tn_tensor **stack)
{
    for (int i = 0; i < r->ys; i++) {
        int at  = r->out_of[i];
        r->y[i] = at < r->carries ? tni_loop_slices(stack[at], reverse, true) : made[at];
        if (!r->y[i]) return false;
    }
    for (int i = 0; i < r->carries; i++) {
        if (stack[i]) tni_tensor_free(stack[i]);
        r->carry[i] = made[i];
    }
    return true;
}

// The body first, in a scope that dies with it; then the loop, in the scope of the caller. Nodes
// that only the first scope held are held here in between.
tn_status tn_scan(tn_scan_body *body, void *user, int carries, tn_tensor **carry, int xs,
                  tn_tensor *const *x, int ys, tn_tensor **y, tn_scan_opts o)
{
    scan       r = { .body    = body,
                     .user    = user,
                     .carries = carries,
                     .carry   = carry,
                     .xs      = xs,
                     .x       = x,
                     .ys      = ys,
                     .y       = y };
    tni_node  *src[TNI_LOOP_INPUTS];
    tn_tensor *made[TNI_LOOP_OUTPUTS], *stack[TNI_LOOP_OUTPUTS];
    int        held = 0;
    if (!(r.cx = scan_context(&r)) || !find_steps(&r, o.steps)) return tni_failed();
    tni_loop *l  = build_body(&r);
    bool      ok = body_is_pure(&r) && l && find_sources(&r, l, src, &held) &&
              tni_loop_record(r.cx, l, src, r.steps, o.reverse, r.stacked, made, stack) &&
              give_outputs(&r, o.reverse, made, stack);
    while (held) tni_node_unref(r.cx, src[--held]);
    for (int i = 0; l && i < l->xs + l->consts; i++)
        if (r.parts.from[i] >= r.seeds) tni_node_unref(r.cx, r.parts.captured[i]);
    while (r.seeds) tni_node_unref(r.cx, r.seed[--r.seeds]);
    return ok ? TN_OK : tni_failed();
}

// ---- tn_vmap -----------------------------------------------------------------------------------

enum { MOST_ARGUMENTS = 16 };

// A function over examples. mapped: the arguments that differ from example to example, with their
// axis in front.
typedef struct {
    tn_vmap_fn       *f;
    void             *user;
    int               n, ny;
    tn_tensor *const *x;
    tn_tensor        *mapped[MOST_ARGUMENTS];
    int               at[MOST_ARGUMENTS];  // by argument: its place in mapped, or -1
    int               count;
} examples;

// Strides express every order of axes, so that nothing is copied here; a rule that needs examples
// one after the other copies. An axis of a tensor moved to another place.
static tn_tensor *move_axis(tn_tensor *x, int from, int to)
{
    int order[TN_MAX_RANK], n = 0;
    for (int i = 0; i < tni_rank(x); i++)
        if (i != from) order[n++] = i;
    memmove(order + to + 1, order + to, (size_t)(n - to) * sizeof *order);
    order[to] = from;
    return from == to ? x : tn_permute(x, n + 1, order);
}

// Calls the function for one example; what it does not set is reported by its own name.
static void run_example(void *user, tn_tensor **carry, tn_tensor *const *x, tn_tensor **y)
{
    examples  *e = user;
    tn_tensor *arg[MOST_ARGUMENTS];
    (void)carry;
    for (int i = 0; i < e->n; i++) arg[i] = e->at[i] < 0 ? e->x[i] : x[e->at[i]];
    uint64_t failures = e->x[0]->cx->failures;
    e->f(e->user, arg, y);
    for (int i = 0; i < e->ny; i++)
        if (!y[i] && e->x[0]->cx->failures == failures)
            tni_fail(e->x[0]->cx, TN_EARG, "vmap: the function left y[%d] NULL", i);
}

// Finds which arguments are mapped and moves their axes to the front. The context, or NULL,
// reported.
static tn_ctx *find_examples(examples *e, const int *in)
{
    if (!e->f || !e->x || e->n < 1 || e->n > MOST_ARGUMENTS || e->ny < 1 ||
        e->ny > MOST_ARGUMENTS) {
        tni_thread_fail(TN_EARG,
                        "vmap: there is no function, or it has %d inputs and %d outputs, not "
                        "1 .. %d",
                        e->n, e->ny, MOST_ARGUMENTS);
        return NULL;
    }
    tn_ctx *cx = tni_args("vmap", e->n, e->x, NULL);
    for (int i = 0; cx && i < e->n; i++) {
        int axis = in ? in[i] : 0, rank = tni_rank(e->x[i]);
        e->at[i] = -1;
        if (axis == TN_NO_AXIS) continue;
        if (axis < -rank || axis >= rank)
            return tni_fail(cx, TN_EARG, "vmap: x[%d] %s has no axis %d", i,
                            tni_shape_of(e->x[i]).s, axis);
        tn_tensor *x = move_axis(e->x[i], axis < 0 ? axis + rank : axis, 0);
        if (!x) return NULL;
        e->mapped[e->at[i] = e->count++] = x;
        if (tni_sizes(x)[0] != tni_sizes(e->mapped[0])[0])
            return tni_fail(cx, TN_ESHAPE, "vmap: x[%d] %s has %lld examples, others have %lld", i,
                            tni_shape_of(e->x[i]).s, (long long)tni_sizes(x)[0],
                            (long long)tni_sizes(e->mapped[0])[0]);
    }
    if (cx && !e->count) return tni_fail(cx, TN_EARG, "vmap: no argument has an axis of examples");
    return cx;
}

// A scan hands nodes to its loop; here ops are recorded over them, with histories of their own, so
// handles are needed. What the body reads, as tensors: the examples, and what is captured.
static bool find_inputs(scan *r, const tni_loop *l, tn_tensor **in)
{
    for (int i = 0; i < tni_loop_inputs(l); i++) {
        int        k = r->parts.from[i];
        tn_tensor *t = k < r->seeds ? r->x[k] : tni_wrap_node(r->cx, r->parts.captured[i]);
        if (!(in[i] = t ? tn_contiguous(t) : NULL)) return false;
    }
    return true;
}

// Records the function for all examples at once, or as a loop over them where an op of it has no
// rule.
static bool record_examples(scan *r, const tni_loop *l)
{
    tn_tensor *in[TNI_LOOP_INPUTS], *made[TNI_LOOP_OUTPUTS], *stack[TNI_LOOP_OUTPUTS];
    tni_node  *src[TNI_LOOP_INPUTS];
    int        held = 0;
    bool       without_rule;
    if (!find_inputs(r, l, in)) return false;
    if (tni_loop_batch(r->cx, l, in, r->steps, r->ys, r->out_of, r->y, &without_rule)) return true;
    bool ok = without_rule && find_sources(r, l, src, &held) &&
              tni_loop_record(r->cx, l, src, r->steps, false, 0, made, stack) &&
              give_outputs(r, false, made, stack);
    while (held) tni_node_unref(r->cx, src[--held]);
    return ok;
}

// The way of a scan without states up to its body, which is then recorded over all examples.
// Temporaries die with this call; results leave the scope.
tn_status tn_vmap(tn_vmap_fn *f, void *user, int n, tn_tensor *const *x, const int *in, int ny,
                  tn_tensor **y, int out)
{
    examples   e = { .f = f, .user = user, .n = n, .ny = ny, .x = x };
    tn_tensor *result[MOST_ARGUMENTS];
    for (int i = 0; y && i < ny; i++) y[i] = NULL;
    tn_ctx *cx = y ? find_examples(&e, in) : NULL;
    if (!y) tni_thread_fail(TN_EARG, "vmap: y is NULL");
    if (!cx) return tni_failed();
    scan r = { .cx   = cx,
               .body = run_example,
               .user = &e,
               .xs   = e.count,
               .x    = e.mapped,
               .ys   = ny,
               .y    = result };
    if (!find_steps(&r, 0)) return tni_failed();
    tni_loop *l  = build_body(&r);
    bool      ok = body_is_pure(&r) && l && record_examples(&r, l);
    for (int i = 0; ok && i < ny; i++) {
        int rank = tni_rank(result[i]);
        ok       = (out >= -rank && out < rank) ||
             tni_refuse(cx, TN_EARG, "vmap: y[%d] %s has no axis %d", i, tni_shape_of(result[i]).s,
                        out);
        y[i] = ok ? move_axis(result[i], 0, out < 0 ? out + rank : out) : NULL;
        ok   = ok && y[i];
    }
    for (int i = 0; i < ny && !ok; i++) y[i] = NULL;
    for (int i = 0; l && i < l->xs + l->consts; i++)
        if (r.parts.from[i] >= r.seeds) tni_node_unref(r.cx, r.parts.captured[i]);
    while (r.seeds) tni_node_unref(r.cx, r.seed[--r.seeds]);
    return ok ? TN_OK : tni_failed();
}
