// Ops with several outputs (sort, attention, users' ops): a primary node, and beside it a node for
// each other output. node.h says how they hold each other.
#include "ops/ops.h"

#include <string.h>

// A gradient of any output goes through the primary, also if the primary itself is no float (the
// indices of a sort).
static tni_node *primary_node(tn_ctx *cx, int op, const tn_array *out, int nsrc,
                              tni_node *const *src)
{
    tni_node *n = tni_node_new(cx, op, out->dtype, out->rank, out->size, nsrc, src);
    for (int i = 0; n && cx->grad_mode && i < nsrc; i++)
        if (tni_passes_grad_to(n, src[i])) n->needs_grad = true;
    return n;
}

// If one output cannot be made, those before it stay valid: the caller's frame frees them. The
// device is asked when all outputs are there: it may want to know them.
bool tni_record_outputs(tn_ctx *cx, int op, int nout, const tn_array *out, int nsrc,
                        tni_node *const *src, const tni_attr *attr, tn_tensor **y)
{
    for (int i = 0; i < nout; i++) y[i] = NULL;
    if (tni_lacks(cx, op)) return tni_fallback(cx, op, nout, out, nsrc, src, attr, y);
    tni_node *n = primary_node(cx, op, out, nsrc, src);
    if (!n) return false;
    n->attr = *attr;
    y[0]    = tni_wrap(cx, n);
    for (int i = 1; i < nout && y[i - 1]; i++)
        y[i] = tni_wrap(cx, tni_node_output(cx, n, i, out[i].dtype, out[i].rank, out[i].size));
    if (!y[nout - 1]) return false;
    if (tni_op_table[op].class != TNI_LIBRARY || !tni_declines(cx, n)) return true;
    for (int i = nout - 1; i >= 0; i--) tni_tensor_free(y[i]), y[i] = NULL;
    return tni_fallback(cx, op, nout, out, nsrc, src, attr, y);
}

tn_tensor *tni_record_or_fallback(tn_ctx *cx, int op, tn_dtype dt, int rank, const int64_t *size,
                                  int nsrc, tni_node *const *src, const tni_attr *attr)
{
    tn_array   out = { .dtype = dt, .rank = rank };
    tn_tensor *y;
    if (rank) memcpy(out.size, size, (size_t)rank * sizeof *size);
    return tni_record_outputs(cx, op, 1, &out, nsrc, src, attr, &y) ? y : NULL;
}

// References keep the row-major copies until the node has them. The call may run much later, so
// that a failure of its own is no failure here.
bool tni_record_packed(int op, const tni_attr *attr, int nin, tn_tensor *const *x, int nout,
                       const tn_array *out, tn_tensor **y)
{
    tni_node *src[4];
    int       held = 0;
    bool      ok   = true;
    tn_ctx   *cx   = x[0] ? x[0]->cx : NULL;
    for (int i = 0; i < nout; i++) y[i] = NULL;
    for (; ok && held < nin; held += ok) {
        tn_tensor *c = x[held] ? tn_contiguous(x[held]) : NULL;
        tni_node  *n = c ? tni_resolve(c, tni_op_table[op].name) : NULL;
        if ((ok = n != NULL)) src[held] = tni_node_ref(n);
        if (c) tni_tensor_free(c);
    }
    ok = ok && tni_record_outputs(cx, op, nout, out, nin, src, attr, y);
    while (held > 0) tni_node_unref(cx, src[--held]);
    return ok;
}

// Records a primary that was computed already once more, over the same sources: an output that was
// not asked for then is needed now (the log-sums of attention, for its gradient). NULL, reported,
// when memory is out.
static tni_node *record_again(tn_ctx *cx, const tni_node *n)
{
    tn_array out  = { .dtype = (tn_dtype)n->dtype, .rank = n->rank };
    tni_attr attr = n->attr;
    memcpy(out.size, n->size, sizeof out.size);
    if (n->owns_bytes && !tni_custom_copy(cx, &attr)) return NULL;
    tni_node *new = primary_node(cx, n->op, &out, (int)n->nsrc, n->src);
    if (new) {
        new->attr       = attr;
        new->owns_bytes = n->owns_bytes;
    } else if (n->owns_bytes) {
        tni_free(&cx->heap, attr.custom.bytes);
    }
    return new;
}

// An output that exists is used; a pending primary gets one more; a computed one is recorded again.
tn_tensor *tni_output(tn_ctx *cx, tni_node **primary, int64_t index, const tn_array *out)
{
    tni_node  *n = *primary;
    tn_tensor *p = n->state == TNI_UNSTORED ? tni_wrap_node(cx, n) : NULL;
    if (n->state == TNI_UNSTORED && (!p || !tni_resolve(p, tni_op_table[n->op].name))) return NULL;
    for (tni_node *o = tni_outputs(n); o; o = o->output)
        if (o->attr.output.index == index) return tni_wrap_node(cx, o);
    if (n->state != TNI_PENDING) {
        if (!(n = record_again(cx, n))) return NULL;
        tni_node_unref(cx, *primary);
        *primary = n;
    }
    return tni_wrap(cx, tni_node_output(cx, n, index, out->dtype, out->rank, out->size));
}

tni_node *tni_record_copy(tn_ctx *cx, const tni_node *n, tni_node *const *src)
{
    tni_attr attr = n->attr;
    if (n->op == TNI_OUTPUT_OP)
        return tni_node_output(cx, src[0], attr.output.index, (tn_dtype)n->dtype, n->rank, n->size);
    if (n->owns_bytes && !tni_custom_copy(cx, &attr)) return NULL;
    tni_node *copy = tni_node_new(cx, n->op, (tn_dtype)n->dtype, n->rank, n->size, (int)n->nsrc,
                                  src);
    if (copy) {
        copy->attr       = attr;
        copy->owns_bytes = n->owns_bytes;
        copy->weak       = n->weak;
        copy->below      = n->below;
        copy->constant   = n->constant;
    } else if (n->owns_bytes) tni_free(&cx->heap, attr.custom.bytes);
    return copy;
}
