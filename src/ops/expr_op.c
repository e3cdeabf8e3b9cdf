// Users' ops given as an expression: parsed once a context, recorded as ops of the table, and their
// gradients. expr_op.h explains how grad_expr takes the place of the recorded ops' own gradients.
#include "ops/expr_op.h"

#include "ops/composite.h"

#include <string.h>

// ---- reading -----------------------------------------------------------------------------------

// Runs when the context closes, or after a failed parse.
static void free_expression(tni_owned *t)
{
    tni_expr_op *e = (tni_expr_op *)t;
    tni_heap    *h = &t->cx->heap;
    for (int i = 0; i < TNI_EXPR_INPUTS; i++) tni_free(h, e->gx[i].step);
    tni_free(h, e->value.step);
    tni_free(h, e->grad_expr);
    tni_free(h, e->expr);
    tni_free(h, e->name);
    tni_free(h, e);
}

// A copy, since the definition's texts may be gone when a gradient is recorded.
static bool copy_text(tn_ctx *cx, const char *from, char **to)
{
    if (from && !(*to = tni_strdup(&cx->heap, from))) return tni_no_memory(cx, "custom");
    return true;
}

// The value's expression; one that uses no input is refused, as it would have no shape.
static bool parse_expr(tn_ctx *cx, tni_expr_op *e)
{
    tni_expr_source t = {
        .cx = cx, .op = e->name, .field = "expr", .text = e->expr, .nin = e->nin
    };
    if (!tni_expr_parse(&t, &e->value)) return false;
    // A semicolon ended the expression, but only grad_expr has several.
    if (e->expr[t.at])
        return tni_refuse(cx, TN_EARG, "%s: expr: column %zu: an operator expected", e->name,
                          t.at + 1);
    if (!e->value.names) return tni_refuse(cx, TN_EARG, "%s: expr: it uses no input", e->name);
    return true;
}

// One gradient for each input, separated by semicolons; where the text is empty nothing flows.
static bool parse_grad_expr(tn_ctx *cx, tni_expr_op *e)
{
    tni_expr_source t     = { .cx    = cx,
                              .op    = e->name,
                              .field = "grad_expr",
                              .text  = e->grad_expr,
                              .nin   = e->nin,
                              .grad  = true };
    int             count = 0;
    for (bool more = e->grad_expr != NULL; more; count++) {
        if (count == e->nin)
            return tni_refuse(cx, TN_EARG,
                              "%s: grad_expr: column %zu: more than nin, %d, gradients", e->name,
                              t.at, e->nin);
        if (!tni_expr_parse(&t, &e->gx[count])) return false;
        if ((more = t.text[t.at] == ';')) t.at++;
    }
    if (e->grad_expr && count < e->nin)
        return tni_refuse(cx, TN_EARG, "%s: grad_expr: %d given for %d inputs", e->name, count,
                          e->nin);
    return true;
}

// An input that neither text uses is more likely a mistake in nin.
static bool uses_all(tn_ctx *cx, const tni_expr_op *e)
{
    uint32_t names = e->value.names;
    for (int i = 0; i < e->nin; i++) names |= e->gx[i].names;
    for (int i = 0; i < e->nin; i++)
        if (!(names >> i & 1))
            return tni_refuse(cx, TN_EARG, "%s: expr: nin is %d, but input %d (%s) is not used",
                              e->name, e->nin, i,
                              i < 3 ? tni_text_of("%c", 'a' + i).s : tni_text_of("x%d", i).s);
    return true;
}

// Checks that only ops given as an expression need; op_def_ok in custom.c has the others.
static bool expr_def_ok(tn_ctx *cx, const tn_op_def *op)
{
    if (op->nin > TNI_EXPR_INPUTS)
        return tni_refuse(cx, TN_EARG, "%s: expr: nin is %d, and %d inputs have names", op->name,
                          op->nin, TNI_EXPR_INPUTS);
    if (op->nout > 1)
        return tni_refuse(cx, TN_EARG, "%s: expr: it gives one result, and nout is %d", op->name,
                          op->nout);
    return true;
}

// Parses all texts of an op and keeps them with the context. NULL, reported, with nothing kept, on
// an error.
static const tni_expr_op *parse_expression(tn_ctx *cx, const tn_op_def *op)
{
    if (!expr_def_ok(cx, op)) return NULL;
    tni_expr_op *e = tni_zalloc(&cx->heap, sizeof *e);
    if (!e) return tni_fail_memory(cx, op->name);
    e->nin = op->nin;
    // First, so that free_expression finds its context whatever fails next.
    tni_owned_add(cx, &e->owned, TNI_EXPR_OP, free_expression);
    if (copy_text(cx, op->name, &e->name) && copy_text(cx, op->expr, &e->expr) &&
        copy_text(cx, op->grad_expr, &e->grad_expr) && parse_expr(cx, e) &&
        parse_grad_expr(cx, e) && uses_all(cx, e))
        return e;
    tni_owned_remove(&e->owned);
    free_expression(&e->owned);
    return NULL;
}

// NULL equals NULL only.
static bool same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

// By the texts, not by the address of the definition: a program may build its table of ops on the
// stack.
static const tni_expr_op *find_expression(tn_ctx *cx, const tn_op_def *op)
{
    // A linear search: programs have a handful of such ops.
    for (tni_owned *t = cx->objects; t; t = t->next) {
        const tni_expr_op *e = (const tni_expr_op *)t;
        if (t->kind == TNI_EXPR_OP && e->nin == op->nin && same_text(e->expr, op->expr) &&
            same_text(e->grad_expr, op->grad_expr) && same_text(e->name, op->name) && op->nout <= 1)
            return e;
    }
    return parse_expression(cx, op);
}

// ---- recording ---------------------------------------------------------------------------------

// The dtype that all inputs promote to.
static tn_dtype promoted_inputs(int n, tn_tensor *const *x)
{
    tni_operand kinds[TNI_EXPR_INPUTS];
    for (int i = 0; i < n; i++) {
        bool weak = x[i]->store->node->weak;
        kinds[i]  = (tni_operand){ tn_dtype_of(x[i]), weak ? 0 : tn_rank(x[i]) > 0 ? 2 : 1 };
    }
    return tni_promote_all(n, kinds);
}

// The shape that the inputs broadcast to, which is that of the result.
static bool broadcast_inputs(tn_ctx *cx, const tni_expr_op *e, tn_tensor *const *x, int *rank,
                             int64_t *size)
{
    *rank = 0;
    for (int i = 0; i < e->nin; i++) {
        if (tni_shape_broadcast(rank, size, tn_rank(x[i]), tni_sizes(x[i]))) continue;
        tni_text all = { "" };
        for (int k = 0; k < e->nin; k++)
            tni_text_add(&all, "%s%s", k ? " and " : "", tni_shape_of(x[k]).s);
        return tni_refuse(cx, TN_ESHAPE, "%s: shapes %s do not broadcast", e->name, all.s);
    }
    return tni_shape_ok(cx, e->name, *rank, size);
}

// The value as a node of its own: not an input itself, and of the common shape. An expression such
// as "a" records nothing, so a copy is.
static tn_tensor *own_node(tn_tensor *y, tn_tensor *const *x, int n, int rank, const int64_t *size)
{
    bool        input = false;
    const char *op    = "custom";
    for (int i = 0; i < n; i++) input |= y == x[i];
    if (!input && tni_shape_equal(rank, size, tn_rank(y), tni_sizes(y))) return y;
    tn_tensor *whole = tni_expand_to(y, rank, size);
    tni_node  *node  = whole ? tni_resolve(whole, op) : NULL;
    if (!node) return NULL;
    return tni_record(y->cx, TNI_copy, (tn_dtype)node->dtype, rank, size, 1, &node, NULL);
}

// Records the value over widened inputs, and rounds once at the end, as composite ops do.
static tn_tensor *record_value(tn_ctx *cx, const tni_expr_op *e, tn_tensor *const *x, int rank,
                               const int64_t *size)
{
    tn_tensor *name[TNI_EXPR_NAMES] = { 0 };
    for (int i = 0; i < e->nin; i++)
        if (!(name[i] = tni_widen(x[i]))) return NULL;
    tn_tensor *y = tni_expr_record(&e->value, cx, e->name, name);
    if (y && tn_dtype_of(y) == TN_F32) y = tni_narrow(y, promoted_inputs(e->nin, x));
    return y ? own_node(y, x, e->nin, rank, size) : NULL;
}

// What was recorded: a row-major node, and the order of axes in which the user sees it,
// unless that is row-major too.
typedef struct {
    tni_node *n;
    int       axes[TN_MAX_RANK], *order;
} recorded;

// An input as a source of the gradient's view: expanded, and in the value's order of axes.
static tni_node *resolve_input(const tni_expr_op *e, tn_tensor *x, int rank, const int64_t *size,
                               const int *order)
{
    if (tn_rank(x)) x = tni_expand_to(x, rank, size);
    if (x && tn_rank(x) && order) x = tni_permuted_view(x, order);
    return x ? tni_resolve(x, e->name) : NULL;
}

// A view of all of y, a value of that shape, whose gradient goes to the inputs, by the user's
// expression.
static tni_node *with_gradient(tn_ctx *cx, const tni_expr_op *e, tn_tensor *const *x,
                               const recorded *y, int rank, const int64_t *size)
{
    tni_node *src[1 + TNI_EXPR_INPUTS] = { y->n };
    tni_view  whole                    = tni_view_whole(rank, y->n->size);
    for (int i = 0; i < e->nin; i++)
        if (!(src[1 + i] = resolve_input(e, x[i], rank, size, y->order))) return NULL;
    tni_node *n = tni_node_new(cx, TNI_view, (tn_dtype)y->n->dtype, rank, whole.size, 1 + e->nin,
                               src);
    if (!n) return NULL;
    n->weak             = y->n->weak;
    n->attr.view.offset = 0;
    n->attr.view.rule   = e;
    memcpy(n->attr.view.stride, whole.stride, sizeof whole.stride);
    return n;
}

// With a grad_expr that is needed, the value is recorded without gradients and gets its view
// afterwards.
static bool record_op(tn_ctx *cx, const tni_expr_op *e, tn_tensor *const *x, recorded *out)
{
    int     rank;
    int64_t size[TN_MAX_RANK];
    bool    mode = cx->grad_mode, needed = false;
    if (!broadcast_inputs(cx, e, x, &rank, size)) return false;
    for (int i = 0; i < e->nin; i++) needed |= tn_needs_grad(x[i]);
    // Without a gradient to take, the plain ops are enough.
    bool by_user  = mode && needed && e->grad_expr;
    cx->grad_mode = mode && !by_user;
    tn_tensor *y  = record_value(cx, e, x, rank, size);
    out->order    = y && y->view && tni_view_order(y->view, out->axes) ? out->axes : NULL;
    // A view that is no permutation, such as an expanded one, cannot be a store's node.
    if (y && y->view && !out->order) y = tn_contiguous(y);
    cx->grad_mode = mode;
    if (!y) return false;
    out->n = y->store->node;
    if (by_user && tni_is_float(tn_dtype_of(y))) out->n = with_gradient(cx, e, x, out, rank, size);
    else tni_node_ref(out->n);
    return out->n != NULL;
}

// Intermediate handles die with a scope of their own; only the node of the result is taken out of
// it.
tn_tensor *tni_expr_op_record(tn_ctx *cx, const tn_op_def *op, tn_tensor *const *x)
{
    const tni_expr_op *e = find_expression(cx, op);
    tn_scope          *s = e ? tn_begin(cx) : NULL;
    recorded           y;
    if (!s) return NULL;
    bool ok = record_op(cx, e, x, &y);
    tni_scope_close(s);
    if (!ok) return NULL;
    tn_tensor *t = tni_wrap(cx, y.n);
    return y.order ? tni_show_permuted(t, y.order) : t;
}

// The expression sees x, y and g in f32 at least. Its value is expanded, as it may use fewer
// inputs.
tn_tensor *tni_expr_op_grad(const tni_expr_op *e, int i, tn_tensor *const *x, tn_tensor *y,
                            tn_tensor *g)
{
    tn_tensor      *name[TNI_EXPR_NAMES] = { 0 };
    const tni_expr *f                    = &e->gx[i];
    if (!f->count) return NULL;
    for (int k = 0; k < e->nin; k++)
        if (!(name[k] = tni_widen(x[k]))) return NULL;
    name[TNI_EXPR_Y] = tni_widen(y);
    name[TNI_EXPR_G] = tni_widen(g);
    if (!name[TNI_EXPR_Y] || !name[TNI_EXPR_G]) return NULL;
    tn_tensor *gx = tni_expr_record(f, y->cx, e->name, name);
    return gx ? tni_expand_to(gx, tn_rank(y), tni_sizes(y)) : NULL;
}
