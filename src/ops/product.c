// Products of matrices: matmul with its vector forms, and linear. Each ends in one node of a
// LIBRARY op, which devices run by a library or by kernels of their own.
//
// m rows, n columns of the result, k the inner size
#include "ops/kept_calls.h"
#include "ops/complex.h"

#include <string.h>

// ---- matmul ------------------------------------------------------------------------------------

// Broadcasts the leading axes of a and b and puts the product's shape into *y. Messages show the
// operands as they were given, before vectors became matrices.
static bool broadcast_batches(tn_ctx *cx, const char *name, tn_tensor *const *given, tn_tensor **a,
                              tn_tensor **b, tni_view *y)
{
    tni_view va = tni_layout(*a), vb = tni_layout(*b);
    int64_t  lead[TN_MAX_RANK];
    int      rank = va.rank - 2;
    memcpy(lead, va.size, sizeof lead);
    if (va.size[va.rank - 1] != vb.size[vb.rank - 2]) {
        tni_fail(cx, TN_ESHAPE, "%s: %s @ %s: inner sizes differ", name, tni_shape_of(given[0]).s,
                 tni_shape_of(given[1]).s);
        return false;
    }
    if (!tni_shape_broadcast(&rank, lead, vb.rank - 2, vb.size)) {
        tni_fail(cx, TN_ESHAPE, "%s: %s @ %s: leading sizes do not broadcast", name,
                 tni_shape_of(given[0]).s, tni_shape_of(given[1]).s);
        return false;
    }
    *y = (tni_view){ .rank = rank + 2 };
    // (lead, m, k), (lead, k, n) and (lead, m, n).
    int64_t size_a[TN_MAX_RANK], size_b[TN_MAX_RANK];
    for (int i = 0; i < rank; i++) size_a[i] = size_b[i] = y->size[i] = lead[i];
    size_a[rank] = y->size[rank] = va.size[va.rank - 2];
    size_a[rank + 1] = size_b[rank] = va.size[va.rank - 1];
    size_b[rank + 1] = y->size[rank + 1] = vb.size[vb.rank - 1];
    if (!tni_shape_ok(cx, name, y->rank, y->size)) return false;
    *a = tni_expand_to(*a, rank + 2, size_a);
    *b = tni_expand_to(*b, rank + 2, size_b);
    return *a && *b;
}

// The last two axes alone: of a batch that is one matrix repeated, that matrix.
static bool first_matrix(tni_view *v, const void *how)
{
    (void)how;
    for (int i = 0; i < 2; i++) {
        v->size[i]   = v->size[v->rank - 2 + i];
        v->stride[i] = v->stride[v->rank - 2 + i];
    }
    v->rank = 2;
    return true;
}

// One matrix on the right that serves a whole batch on the left, as a linear layer's weight does:
// then the batch is just more rows, if strides allow, and product and gradients become single large
// products. The matrix is that of `right`, from which b was expanded; if right was expanded itself,
// gradients of its single matrices are not computed (unview_through in grad/walk.c reports it).
static void fold_batch(tn_tensor **a, tn_tensor **b, tn_tensor *right)
{
    tni_view va = tni_layout(*a), vb = tni_layout(*b), rows;
    int64_t  batch = 1;
    for (int i = 0; i + 2 < vb.rank; i++) {
        // An axis of stride 0 repeats one matrix.
        if (vb.size[i] > 1 && vb.stride[i] != 0) return;
        batch *= vb.size[i];
    }
    int64_t m = va.size[va.rank - 2], k = va.size[va.rank - 1];
    if (va.rank == 2 || batch == 0) return;
    // Rows of different batches must be one run: no copy is made for this.
    if (!tni_view_reshape(&va, 2, (int64_t[]){ batch * m, k }, &rows)) return;
    tni_view_change how   = { .to_rank = 2, .to = rows.size };
    bool            alone = tni_count(right) == k * vb.size[vb.rank - 1];
    first_matrix(&vb, NULL);
    tn_tensor *fa = tni_wrap_view(*a, &rows, tni_change_view, &how);
    tn_tensor *fb = fa ? tni_wrap_view(right, &vb, alone ? first_matrix : NULL, NULL) : NULL;
    if (fa && fb) {
        *a = fa;
        *b = fb;
    }
}

// The node of a product of a (..., m, k) and b (..., k, n), which have the dtypes that the op
// takes; leading sizes broadcast. A vector on the left is a row, one on the right a column, and the
// axis it lacks is missing in the result too: the node has that shape, since a product is the same
// memory with or without an axis of size 1.
static tn_tensor *record_product(tn_ctx *cx, int op, tn_dtype dt, tn_tensor *const *given,
                                 tn_tensor *a, tn_tensor *b)
{
    const char *name = tni_op_table[op].name;
    bool        row = tni_rank(given[0]) == 1, col = tni_rank(given[1]) == 1;
    if (row) a = tn_unsqueeze(a, 0);
    if (col) b = tn_unsqueeze(b, 1);
    tni_view   y;
    tn_tensor *right = b;
    if (!a || !b || !broadcast_batches(cx, name, given, &a, &b, &y)) return NULL;
    fold_batch(&a, &b, right);
    tni_node *src[] = { tni_resolve(a, name), tni_resolve(b, name) };
    if (!src[0] || !src[1]) return NULL;
    // The axes that were added to vectors are left out of the result.
    if (col) y.rank--;
    if (row) {
        y.rank--;
        if (!col) y.size[y.rank - 1] = y.size[y.rank];
    }
    if (op == TNI_matmul) return tni_record(cx, op, dt, y.rank, y.size, 2, src, NULL);
    return tni_record_or_fallback(cx, op, dt, y.rank, y.size, 2, src, &(tni_attr){ 0 });
}

// The checks that all products have; NULL if one fails.
static tn_ctx *product_args(const char *name, tn_tensor *a, tn_tensor *b)
{
    static const char *const names[] = { "a", "b" };
    tn_ctx                  *cx      = tni_args(name, 2, (tn_tensor *const[]){ a, b }, names);
    if (cx && (!tni_rank(a) || !tni_rank(b)))
        return tni_fail(cx, TN_ESHAPE, "%s: %s @ %s: a 0-d tensor has no product", name,
                        tni_shape_of(a).s, tni_shape_of(b).s);
    return cx;
}

// Integers keep their dtype and wrap. Complex numbers are products of their parts, and a product
// that ends attention spelled out becomes that.
tn_tensor *tn_matmul(tn_tensor *a, tn_tensor *b)
{
    tn_tensor *const given[] = { a, b };
    if (tni_any_complex(2, given)) return tni_complex_matmul(a, b);
    tn_ctx *cx = product_args("matmul", a, b);
    if (!cx || !tni_want_math_dtype(cx, "matmul", tni_dtype(a)) ||
        !tni_want_math_dtype(cx, "matmul", tni_dtype(b)))
        return NULL;
    tn_tensor *low[] = { a, b };
    if (!tni_autocast_args(cx, tni_op_table[TNI_matmul].autocast, 2, low)) return NULL;
    a           = low[0];
    b           = low[1];
    tn_dtype dt = tni_promote(tni_dtype(a), tni_dtype(b));
    // NumPy takes bool as or of ands; PyTorch refuses it too.
    if (dt == TN_BOOL) return tni_fail(cx, TN_EDTYPE, "matmul: bool is not a supported dtype");
    if (tni_dtype(a) != dt) a = tn_cast(a, dt);
    if (tni_dtype(b) != dt) b = tn_cast(b, dt);
    uint64_t   failures  = cx->failures;
    tn_tensor *attention = cx->recognizes && a && b ? tni_recognize_attention(a, b) : NULL;
    if (attention || cx->failures != failures) return attention;
    tn_tensor *y = record_product(cx, TNI_matmul, dt, given, a, b);
    return tni_traced(y, 2, (tn_tensor *[]){ a, b }, (tni_kept){ .kind = TNI_KEPT_matmul });
}

bool tni_want_bytes(const char *name, tn_tensor *a, tn_tensor *b)
{
    tn_dtype da = tni_dtype(a), db = tni_dtype(b), out;
    if (tni_dtype_rule_apply(TNI_BYTES, da, &da, &out) &&
        tni_dtype_rule_apply(TNI_BYTES, db, &db, &out))
        return true;
    return tni_refuse(a->cx, TN_EDTYPE, "%s: %s and %s: both have to be i8 or u8", name,
                      tn_dtype_name(da), tn_dtype_name(db));
}

// A device that reads operands along what is summed over gets them so.
tn_tensor *tn_matmul_i32(tn_tensor *a, tn_tensor *b)
{
    tn_ctx *cx = product_args("matmul_i32", a, b);
    if (!cx || !tni_want_bytes("matmul_i32", a, b)) return NULL;
    if (cx->conv_order && cx->conv_order(cx, tni_dtype(b), 1, 1, true) == TNI_WEIGHTS_LAST) {
        a = tn_contiguous(a);
        if (tni_rank(b) > 1) b = tn_transpose(tn_contiguous(tn_transpose(b, -1, -2)), -1, -2);
        if (!a || !b) return NULL;
    }
    return record_product(cx, TNI_matmul_i32, TN_I32, (tn_tensor *const[]){ a, b }, a, b);
}

// x w' + b. The transposed w is a view; devices read it in place. The bias is a separate op that
// the planner may make an epilogue of the product.
tn_tensor *tn_linear(tn_tensor *x, tn_tensor *w, tn_tensor *b)
{
    static const char *const names[] = { "x", "w", "b" };

    tn_ctx *cx = tni_args("linear", b ? 3 : 2, (tn_tensor *const[]){ x, w, b }, names);
    if (!cx) return NULL;
    if (tni_rank(w) != 2 || tni_rank(x) < 1 || tn_size(x, -1) != tn_size(w, 1))
        return tni_fail(cx, TN_ESHAPE, "linear: x %s and w %s do not fit", tni_shape_of(x).s,
                        tni_shape_of(w).s);
    if (b && !(tni_rank(b) == 1 && tn_size(b, 0) == tn_size(w, 0)))
        return tni_fail(cx, TN_ESHAPE, "linear: w %s and b %s do not fit", tni_shape_of(w).s,
                        tni_shape_of(b).s);
    tn_tensor *low[] = { x, w, b };
    if (!tni_autocast_args(cx, tni_op_table[TNI_matmul].autocast, b ? 3 : 2, low)) return NULL;
    tn_tensor *y = tn_matmul(low[0], tn_transpose(low[1], 0, 1));
    if (b) y = tn_add(y, low[2]);
    return tni_traced(y, 3, low, (tni_kept){ .kind = TNI_KEPT_linear });
}
