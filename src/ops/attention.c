// Scaled dot-product attention: one op if the device has it and strides can express what it reads,
// else products and a softmax, which give the same values. A query that may look at no key has a
// result of 0.
//
// The one op never stores the (T, S) matrix of weights. For its gradient it has a second output,
// the logarithm of the sum of exponentials of each query, by which attention_grad computes the
// weights again; that output is recorded only when a gradient asks for it (log_sums).
//
// T queries, S keys and values, D their size, E that of a value; B, H the axes before them
#include "ops/composite.h"

#include <string.h>

// ---- out of other ops --------------------------------------------------------------------------

// Whether key j comes after query i, (T, S): all but the lower triangle from the top left.
static tn_tensor *future_keys(tn_ctx *cx, int64_t T, int64_t S)
{
    tn_tensor *i = tn_unsqueeze(tn_arange(cx, TN_I64, 0, (double)T, 1), 1);
    return tn_gt(tn_arange(cx, TN_I64, 0, (double)S, 1), i);
}

// A bool mask keeps where it is true; a float mask is added to the scores.
static tn_tensor *apply_mask(tn_tensor *score, tn_tensor *mask)
{
    static const char *const names[] = { "q", "mask" };
    if (!tni_args("attention", 2, (tn_tensor *const[]){ score, mask }, names)) return NULL;
    if (!tni_broadcasts("attention", mask, "mask", score, "scores")) return NULL;
    if (tn_dtype_of(mask) == TN_BOOL) return tn_masked_fill(score, tn_logical_not(mask), -INFINITY);
    if (!tni_want_float(mask, "attention: mask")) return NULL;
    return tn_add(score, tn_cast(mask, tn_dtype_of(score)));
}

// A softmax in which a row of nothing but -inf gives zeros, not NaN. The scores of such rows are
// taken as 0 beforehand, so that no NaN comes back through the gradient.
static tn_tensor *masked_softmax(tn_tensor *score)
{
    if (!score || tn_size(score, -1) == 0) return score;
    tn_tensor *blind = tn_eq_s(tn_max_keep(tn_detach(score), -1), -INFINITY);
    return tn_masked_fill(tn_softmax(tn_masked_fill(score, blind, 0), -1), blind, 0);
}

// softmax(scale q k'), masked. q is scaled, not the product: it is the smaller tensor.
tn_tensor *tni_attention_weights(tn_tensor *q, tn_tensor *k, tn_tensor *mask, double scale,
                                 bool causal)
{
    if (!q || !k) return NULL;
    tn_tensor *score = tn_matmul(tn_mul_s(q, scale), tn_transpose(k, -1, -2));
    if (causal)
        score = tn_masked_fill(score, future_keys(q->cx, tn_size(q, -2), tn_size(k, -2)),
                               -INFINITY);
    if (mask) score = apply_mask(score, mask);
    return mask ? masked_softmax(score) : tn_softmax(score, -1);
}

// ---- as one op ---------------------------------------------------------------------------------

// The operands of the op: the sizes before the last two axes after broadcasting, the same as two
// axes (B, H), and the nodes, each of four axes.
typedef struct {
    int       rank;
    int64_t   lead[TN_MAX_RANK], B, H;
    tni_node *src[4];
    int       nsrc;
} operands;

// (B, T, H, D), the order in which heads come out of a linear layer and go into the next.
static const int heads_inside[4] = { 0, 2, 1, 3 };

// Broadcasts x's leading sizes into those of all operands.
static void broadcast_lead(operands *o, bool *fits, tn_tensor *x)
{
    *fits = *fits && tni_shape_broadcast(&o->rank, o->lead, tn_rank(x) - 2, tni_sizes(x));
}

// The last of the leading axes are the heads, if there are several; the others are the batch.
static void split_lead(operands *o)
{
    o->B = o->H = 1;
    for (int i = 0; i < o->rank; i++) *(i && i == o->rank - 1 ? &o->H : &o->B) *= o->lead[i];
}

// x expanded to all leading sizes, as a view of four axes in the given order. False if strides
// cannot express it, for instance of a batch whose axes do not merge.
static bool add_operand(operands *o, tn_tensor *x, int64_t rows, int64_t cols, const int *order)
{
    tni_view        v = tni_layout(x);
    int64_t         size[TN_MAX_RANK], want[] = { o->B, o->H, rows, cols };
    tni_view_change how = { o->rank + 2, size, 4, want, order };
    memcpy(size, o->lead, sizeof size);
    size[o->rank]     = rows;
    size[o->rank + 1] = cols;
    if (tni_shape_count(o->rank + 2, size) <= 0 || !tni_change_view(&v, &how)) return false;
    o->src[o->nsrc] = tni_resolve_as(x, &v, tni_change_view, &how, "attention");
    return o->src[o->nsrc++] != NULL;
}

// A mask as the op takes it: bool, or of the dtype of the scores, to which it may have to be cast.
// NULL if the other ops have to take it: it needs a gradient, or it is wrong and they report why.
static tn_tensor *fit_mask(tn_ctx *cx, tn_tensor *mask, const operands *scores, tn_dtype dt)
{
    static const char *const name[] = { "mask" };
    tni_view                 v;
    if (!tni_args("attention", 1, &mask, name)) return NULL;
    tni_node *n = tni_resolve(mask, "attention");
    v           = tni_layout(mask);
    if (!n || (cx->grad_mode && n->needs_grad)) return NULL;
    if (mask->cx != cx || !tni_view_expand(&v, scores->rank + 2, scores->lead)) return NULL;
    if (tn_dtype_of(mask) == TN_BOOL) return mask;
    if (!tni_is_float(tn_dtype_of(mask))) return NULL;
    return tn_dtype_of(mask) == dt ? mask : tn_cast(mask, dt);
}

// Fills in the operands if the op can be recorded over these tensors. The mask broadcasts with the
// scores of q and k, before v's leading sizes count.
static bool gather_operands(tn_ctx *cx, tn_tensor *const *x, tn_attention_opts opts, operands *o)
{
    int64_t T = tn_size(x[0], -2), S = tn_size(x[1], -2), D = tn_size(x[0], -1);
    int64_t E    = tn_size(x[2], -1);
    bool    fits = true;
    for (int i = 0; i < 2; i++) broadcast_lead(o, &fits, x[i]);
    operands scores              = *o;
    scores.lead[scores.rank]     = T;
    scores.lead[scores.rank + 1] = S;
    tn_tensor *mask = fits && opts.mask ? fit_mask(cx, opts.mask, &scores, tn_dtype_of(x[0]))
                                        : NULL;
    broadcast_lead(o, &fits, x[2]);
    if (!fits || (opts.mask && !mask) || tni_shape_count(o->rank, o->lead) <= 0) return false;
    split_lead(o);
    return add_operand(o, x[0], T, D, heads_inside) && add_operand(o, x[1], S, D, heads_inside) &&
           add_operand(o, x[2], S, E, heads_inside) && (!mask || add_operand(o, mask, T, S, NULL));
}

// NULL, not reported, if it cannot be one op: no device code, dropout on the weights, or an operand
// that strides cannot express. The node is (B, T, H, E), shown as (B, H, T, E): heads come out in
// the order that the next linear layer reads.
static tn_tensor *record_attention(tn_ctx *cx, tn_tensor *const *given, tn_attention_opts opts,
                                   const tni_attr *attr)
{
    operands   o = { 0 };
    tn_tensor *x[3];
    if (tni_lacks(cx, TNI_attention) || opts.dropout != 0) return NULL;
    tn_dtype dt = tni_promote(tn_dtype_of(given[0]), tn_dtype_of(given[1]));
    dt          = tni_promote(dt, tn_dtype_of(given[2]));
    for (int i = 0; i < 3; i++)
        if (!(x[i] = tn_dtype_of(given[i]) == dt ? given[i] : tn_cast(given[i], dt))) return NULL;
    if (!gather_operands(cx, x, opts, &o)) return NULL;
    int64_t    T = tn_size(x[0], -2), E = tn_size(x[2], -1);
    int64_t    size[] = { o.B, T, o.H, E };
    tn_tensor *y      = tni_record(cx, TNI_attention, dt, 4, size, o.nsrc, o.src, attr);
    y                 = tni_show_permuted(y, heads_inside);
    if (!y || o.rank == 2) return y;
    o.lead[o.rank]     = T;
    o.lead[o.rank + 1] = E;
    y                  = tn_reshape(y, o.rank + 2, o.lead);
    return y ? tni_share(y, "attention") : NULL;
}

// The node of a tensor that a gradient is recorded over; NULL in, NULL out.
static tni_node *grad_source(tn_tensor *x)
{
    return x ? tni_resolve(x, "attention") : NULL;
}

// Output 1 of attention: for each query the logarithm of the sum of exp(score), (B, H, T), in the
// dtype that is computed in.
static tn_tensor *log_sums(tn_ctx *cx, tni_node *n)
{
    tn_dtype   dt      = tni_compute_dtype((tn_dtype)n->dtype);
    tn_array   out     = { .dtype = dt, .rank = 3, .size = { n->size[0], n->size[2], n->size[1] } };
    tni_node  *primary = tni_node_ref(n);
    tn_tensor *y       = tni_output(cx, &primary, 1, &out);
    tni_node_unref(cx, primary);
    return y;
}

// Sources: those of attention, then its result, the log-sums and g. The result saves a pass: the
// sum of p dp over a row, which the softmax's gradient needs, is the dot product of g and the
// result.
bool tni_attention_grad(tn_ctx *cx, tni_node *n, tn_tensor *g, tn_tensor *gx[3])
{
    tni_node *src[7];
    int       nsrc   = (int)n->nsrc;
    tn_array  out[3] = { { .rank = 4 }, { .rank = 4 }, { .rank = 4 } };
    for (int i = 0; i < nsrc; i++)
        if (!(src[i] = grad_source(tni_wrap_node(cx, n->src[i])))) return false;
    for (int i = 0; i < 3; i++) {
        out[i].dtype = (tn_dtype)n->dtype;
        memcpy(out[i].size, src[i]->size, 4 * sizeof *src[i]->size);
    }
    tn_tensor *more[] = { tni_wrap_node(cx, n), log_sums(cx, n), g };
    for (int i = 0; i < 3; i++)
        if (!(src[nsrc++] = grad_source(more[i]))) return false;
    return tni_record_outputs(cx, TNI_attention_grad, 3, out, nsrc, src, &n->attr, gx);
}

// ---- the call ----------------------------------------------------------------------------------

// Whether the leading axes broadcast. If only the heads (axis -3) differ, the message says so,
// since that is the usual mistake with grouped queries.
static bool heads_fit(tn_ctx *cx, tn_tensor *q, tn_tensor *k, tn_tensor *v)
{
    operands o  = { 0 };
    bool     ok = true, heads = tn_rank(q) > 2 && tn_rank(k) > 2 && tn_rank(v) > 2;
    broadcast_lead(&o, &ok, q);
    broadcast_lead(&o, &ok, k);
    broadcast_lead(&o, &ok, v);
    if (ok) return true;
    int64_t H[] = { heads ? tn_size(q, -3) : 0, heads ? tn_size(k, -3) : 0,
                    heads ? tn_size(v, -3) : 0 };
    int64_t most = H[0] > H[1] ? H[0] : H[1];
    if (H[2] > most) most = H[2];
    for (int i = 0; i < 3; i++) ok |= H[i] != 1 && H[i] != most;
    if (heads && ok)
        return tni_refuse(
            cx, TN_ESHAPE,
            "attention: q %s has %lld heads (axis -3), k %s %lld and v %s %lld: they must be "
            "equal, or 1",
            tni_shape_of(q).s, (long long)H[0], tni_shape_of(k).s, (long long)H[1],
            tni_shape_of(v).s, (long long)H[2]);
    return tni_refuse(
        cx, TN_ESHAPE,
        "attention: q %s, k %s and v %s: the axes before the last two do not broadcast",
        tni_shape_of(q).s, tni_shape_of(k).s, tni_shape_of(v).s);
}

// (T, D), (S, D) and (S, E) at the end, and leading axes that broadcast.
static bool attention_shapes_fit(tn_ctx *cx, tn_tensor *q, tn_tensor *k, tn_tensor *v)
{
    bool ok = tn_rank(q) >= 2 && tn_rank(k) >= 2 && tn_rank(v) >= 2 &&
              tn_size(q, -1) == tn_size(k, -1) && tn_size(k, -2) == tn_size(v, -2);
    if (!ok)
        tni_fail(cx, TN_ESHAPE, "attention: q %s, k %s and v %s are not (T, D), (S, D) and (S, E)",
                 tni_shape_of(q).s, tni_shape_of(k).s, tni_shape_of(v).s);
    return ok && heads_fit(cx, q, k, v) && tni_want_float(q, "attention");
}

// Tries the one op first; a NULL without a new error means the other ops are to do it.
tn_tensor *tn_attention(tn_tensor *q, tn_tensor *k, tn_tensor *v, tn_attention_opts o)
{
    static const char *const names[] = { "q", "k", "v" };
    tn_tensor *const         x[]     = { q, k, v };
    tn_ctx                  *cx      = tni_args("attention", 3, x, names);
    if (!cx || !attention_shapes_fit(cx, q, k, v)) return NULL;
    double     scale    = tni_or_default(o.scale, 1 / sqrt((double)tn_size(q, -1)));
    tni_attr   attr     = { .attention = { .scale = scale, .causal = o.causal } };
    uint64_t   failures = cx->failures;
    tn_tensor *y        = record_attention(cx, x, o, &attr);
    if (y || cx->failures != failures) return y;
    tn_tensor *p = tni_attention_weights(q, k, o.mask, scale, o.causal);
    if (o.dropout != 0) p = tn_dropout(p, o.dropout, true);
    return tn_matmul(p, v);
}
