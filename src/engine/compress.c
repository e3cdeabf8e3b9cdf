// Matrices of 2:4 sparsity beside the form that a device multiplies faster. The value stays as it
// is, for all that reads it: other ops, other devices, products for which the plain form is faster.
// The packed one belongs to the node, and so to these contents alone: a write makes another node.
//
//   w       matmul's second source       a packed operand?
//   (16, 8) view (8, 16), turned         yes: the product adds up along w's rows
//   (16, 8) w itself, of x (4, 16)       no: it adds up along the columns, where four neighbours are any numbers
//   (16, 8) view (8, 4), turned          no: rows of w are left out, and the packed form is that of all
//
// Whether an operand is packed is no part of a plan's key: plans are made before and after a matrix
// is compressed, and a run tells its calls what there is. So compressing a matrix builds no plan
// anew, and a device chooses between the two forms where it chooses between algorithms.
#include "engine/engine.h"
#include "ops/composite.h"

#include <math.h>

// The most elements of a four along the rows that are not 0; NAN, reported, on failure.
static double most_of_four(tn_tensor *w)
{
    tn_tensor *kept = tn_ne_s(tn_reshape(tn_detach(w), TN_SHAPE(-1, 4)), 0);
    tn_tensor *most = tn_max_all(tn_sum(tn_cast(kept, TN_I32), 1));
    return most ? tn_item(most) : NAN;
}

// The node whose buffer holds a matrix, if that is all of it, in its order; NULL if it is not.
static tni_node *whole_base(tni_node *n)
{
    int64_t   skip;
    tni_view  v    = tni_node_layout(n);
    tni_node *base = tni_node_base(n, &skip);
    bool      same = !skip && tni_shape_equal(base->rank, base->size, n->rank, n->size);
    return same && v.stride[0] == n->size[1] && v.stride[1] == 1 ? base : NULL;
}

// An optimizer keeps its parameters as parts of one value, and a clone of a view is one, too: such
// a matrix gets memory of its own, as if it had been written with what it is.
//
// The value of w, computed, in a node of its own; NULL, reported, on failure.
static tni_node *own_value(tn_tensor *w, const char *op)
{
    tn_ctx   *cx = w->cx;
    tni_node *n = tni_value(w, op), *base = n ? whole_base(n) : NULL;
    if (!n || base) return base;
    bool       mode = tn_grad_mode(cx, false);
    tn_tensor *copy = tni_record(cx, TNI_copy, (tn_dtype)n->dtype, n->rank, n->size, 1, &n, NULL);
    bool       ok   = copy && tni_assign_node(w, copy->store->node);
    tn_grad_mode(cx, mode);
    n = ok ? tni_value(w, op) : NULL;
    return n ? whole_base(n) : NULL;
}

// A caller's memory may change without a node's knowledge, so that nothing may be kept of it.
//
// Has the device pack a matrix into that many bytes, unless it has done so.
static tn_status pack(tn_tensor *w, const char *op, size_t bytes)
{
    tn_ctx           *cx  = w->cx;
    const tni_engine *e   = cx->engine;
    tni_text          why = { "" };
    tni_node         *n   = own_value(w, op);
    if (!n) return tni_failed();
    if (!n->buf || n->buf->borrowed || n->packed) return TN_OK;
    tni_buffer *packed = tni_buffer_new(&cx->buffers, bytes);
    if (!packed) return tni_fail_status(cx, TN_EMEM, "%s: no memory for %zu bytes", op, bytes);
    tn_status s = e->device->calls->pack(e->session, (tn_dtype)n->dtype, n->size[0], n->size[1],
                                         tni_value_arg(e, n).data, packed->data, &why);
    if (s == TN_OK) n->packed = packed;
    else tni_buffer_unref(&cx->buffers, packed);
    return s == TN_OK ? s : tni_fail_status(cx, s, "%s: %s", op, why.s);
}

// The contents are checked at any rate, so that a program which runs here runs where they are
// packed.
tn_status tn_compress_2_4(tn_tensor *w)
{
    const char *op = "compress_2_4";
    tn_ctx     *cx = tni_arg1(op, w, "w");
    if (!cx || !tni_want_float(w, op)) return tni_failed();
    const tni_engine       *e     = cx->engine;
    const tni_device_calls *calls = e->device->calls;
    if (tn_rank(w) != 2 || tn_size(w, 1) % 4)
        return tni_fail_status(cx, TN_ESHAPE, "%s: w %s is not a matrix with rows of fours", op,
                               tni_shape_of(w).s);
    if (w->view)
        return tni_fail_status(cx, TN_EARG, "%s: w %s is a view: give a tn_clone of it", op,
                               tni_shape_of(w).s);
    double most = tn_count(w) ? most_of_four(w) : 0;
    if (isnan(most)) return tni_failed();
    if (most > 2)
        return tni_fail_status(cx, TN_EARG, "%s: w %s has fours with %d elements that are not 0",
                               op, tni_shape_of(w).s, (int)most);
    size_t bytes = tn_count(w) && calls->packed_bytes
                       ? calls->packed_bytes(e->session, tn_dtype_of(w), tn_size(w, 0),
                                             tn_size(w, 1))
                       : 0;
    return bytes ? pack(w, op, bytes) : TN_OK;
}

// Whether an operand is all of a matrix, with its rows along the inner axis. Axes before the last
// two repeat it.
static bool is_whole(const tni_arg *x, const tni_node *matrix, int inner, int outer)
{
    return x->size[inner] == matrix->size[1] && x->stride[inner] == 1 &&
           x->size[outer] == matrix->size[0] && x->stride[outer] == matrix->size[1];
}

void tni_call_find_packed(tni_call *c, const tni_node *n)
{
    c->packed[0] = c->packed[1] = NULL;
    for (int i = 0; i < 2 && n && n->op == TNI_matmul; i++) {
        int64_t         skip;
        const tni_node *base = tni_node_base(n->src[i], &skip);
        const tni_arg  *x    = &c->in[i];
        if (base->packed && !skip && is_whole(x, base, x->rank - 2 + !i, x->rank - 1 - !i))
            c->packed[i] = base->packed->data;
    }
}
