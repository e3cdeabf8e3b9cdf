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

// ---- shapes ------------------------------------------------------------------------------------

// The sizes before the last two axes after broadcasting, of the scores and of the result; the same
// as two axes (B, H); and Hk, the heads of keys and values, which divides H.
typedef struct {
    int     rank, score_rank;
    int64_t lead[TN_MAX_RANK], score_lead[TN_MAX_RANK];
    int64_t B, H, Hk;
} extents;

static int64_t heads_of(const tn_tensor *x)
{
    return tn_rank(x) > 2 ? tn_size(x, -3) : 1;
}

// Keys and values have one number of heads, or 1; it divides that of the queries, which may be 1
// too.
static bool find_heads(extents *e, tn_tensor *const *x)
{
    int64_t q = heads_of(x[0]), k = heads_of(x[1]), v = heads_of(x[2]);
    e->Hk = k == 1 ? v : k;
    e->H  = q == 1 ? e->Hk : q;
    if (v != e->Hk && v != 1) return false;
    return e->Hk > 0 ? e->H % e->Hk == 0 : e->H == 0;
}

// Broadcasts x's leading sizes, with the heads that serve several counted as such, into size.
static bool broadcast_lead(const extents *e, int *rank, int64_t *size, const tn_tensor *x)
{
    int     n = tn_rank(x) - 2;
    int64_t own[TN_MAX_RANK];
    for (int i = 0; i < n; i++) own[i] = tn_size(x, i);
    if (n > 0 && own[n - 1] == e->Hk && e->Hk > 1) own[n - 1] = e->H;
    return tni_shape_broadcast(rank, size, n, own);
}

// The last of the leading axes are the heads, if there are several or if they are grouped; the
// others are the batch.
static void split_lead(extents *e)
{
    int64_t all = tni_shape_count(e->rank, e->lead);
    if (e->rank == 0 || (e->rank == 1 && e->H == e->Hk)) e->H = e->Hk = 1;
    e->B = e->H > 0 ? all / e->H : 0;
}

// False if heads or other leading axes do not fit.
static bool find_extents(extents *e, tn_tensor *const *x)
{
    *e = (extents){ 0 };
    if (!find_heads(e, x)) return false;
    if (!broadcast_lead(e, &e->score_rank, e->score_lead, x[0]) ||
        !broadcast_lead(e, &e->score_rank, e->score_lead, x[1]))
        return false;
    e->rank = e->score_rank;
    memcpy(e->lead, e->score_lead, sizeof e->lead);
    if (!broadcast_lead(e, &e->rank, e->lead, x[2])) return false;
    split_lead(e);
    return true;
}

// The axes that lengths has one number for: those before the heads, or the only one.
static int length_axes(const extents *e)
{
    return e->rank - (e->rank > 1 || e->H > 1);
}

// ---- as one op ---------------------------------------------------------------------------------

// (B, T, H, D), the order in which heads come out of a linear layer and go into the next.
static const int heads_inside[4] = { 0, 2, 1, 3 };

// The nodes that the op is recorded over.
typedef struct {
    const extents *e;
    tni_node      *src[4 + TNI_SCORE_SOURCES];
    int            nsrc;
} operands;

static bool add_source(operands *o, tni_node *n)
{
    o->src[o->nsrc] = n;
    return o->src[o->nsrc++] != NULL;
}

// Adds x, expanded to all leading sizes, as a view of four axes in the given order. False if
// strides cannot express it, for instance of a batch whose axes do not merge.
static bool add_operand(operands *o, tn_tensor *x, int64_t heads)
{
    const extents  *e    = o->e;
    tni_view        v    = tni_layout(x);
    int             rank = e->rank + 2;
    int64_t         size[TN_MAX_RANK], want[] = { e->B, heads, tn_size(x, -2), tn_size(x, -1) };
    tni_view_change how = { rank, size, 4, want, heads_inside };
    memcpy(size, e->lead, sizeof size);
    if (heads != e->H) size[e->rank - 1] = heads;
    memcpy(size + e->rank, want + 2, 2 * sizeof *want);
    if (tni_shape_count(rank, size) <= 0 || !tni_change_view(&v, &how)) return false;
    return add_source(o, tni_resolve_as(x, &v, tni_change_view, &how, "attention"));
}

// Adds what broadcasts to the scores: (B, H, T, S) with a size of 1 along every axis that it is the
// same over, so that its gradient is no larger than it is.
static bool add_extra(operands *o, tn_tensor *x, int64_t T, int64_t S)
{
    const extents  *e    = o->e;
    tni_view        v    = tni_layout(x);
    int             rank = e->rank + 2;
    int64_t         size[TN_MAX_RANK], want[] = { e->B, e->H, T, S };
    tni_view_change how = { rank, size, 4, want, NULL };
    memcpy(size, e->lead, sizeof size);
    memcpy(size + e->rank, want + 2, 2 * sizeof *want);
    if (tni_shape_count(rank, size) <= 0 || !tni_change_view(&v, &how)) return false;
    for (int i = 0; i < 4; i++)
        if (v.stride[i] == 0) v.size[i] = 1;
    return add_source(o, tni_resolve_as(x, &v, NULL, NULL, "attention"));
}

// Adds the lengths as (B), of i32.
static bool add_lengths(operands *o, tn_tensor *x)
{
    const extents  *e   = o->e;
    tni_view_change how = { length_axes(e), e->lead, 1, &e->B, NULL };
    if (tn_dtype_of(x) != TN_I32 && !(x = tn_cast(x, TN_I32))) return false;
    tni_view v = tni_layout(x);
    if (!tni_change_view(&v, &how)) return false;
    return add_source(o, tni_resolve_as(x, &v, tni_change_view, &how, "attention"));
}

// The nodes of all sources, in the order of device/attention.h. False if one cannot be expressed.
static bool gather_operands(operands *o, tn_tensor *const *x, const tn_attention_opts *opts)
{
    const extents *e = o->e;
    int64_t        T = tn_size(x[0], -2), S = tn_size(x[1], -2);
    tn_dtype       dt   = tn_dtype_of(x[0]);
    tn_tensor     *mask = opts->mask;
    if (mask && tn_dtype_of(mask) != TN_BOOL && tn_dtype_of(mask) != dt) mask = tn_cast(mask, dt);
    if (opts->mask && !mask) return false;
    return add_operand(o, x[0], e->H) && add_operand(o, x[1], e->Hk) &&
           add_operand(o, x[2], e->Hk) && (!mask || add_extra(o, mask, T, S)) &&
           (!opts->lengths || add_lengths(o, opts->lengths));
}

// Records the node and asks the device about it. It is (B, T, H, E), shown as (B, H, T, E): heads
// come out in the order that the next linear layer reads.
static tn_tensor *record_operands(tn_ctx *cx, const operands *o, tn_dtype dt, int64_t T, int64_t E,
                                  const tni_attr *attr)
{
    const extents *e      = o->e;
    int64_t        size[] = { e->B, T, e->H, E }, all[TN_MAX_RANK];
    tn_tensor     *y      = tni_record(cx, TNI_attention, dt, 4, size, o->nsrc, o->src, attr);
    if (y && tni_declines(cx, y->store->node)) {
        tni_tensor_free(y);
        return NULL;
    }
    y = tni_show_permuted(y, heads_inside);
    if (!y || e->rank == 2) return y;
    memcpy(all, e->lead, sizeof all);
    all[e->rank]     = T;
    all[e->rank + 1] = E;
    y                = tn_reshape(y, e->rank + 2, all);
    return y ? tni_share(y, "attention") : NULL;
}

tn_tensor *tni_attention_record(tn_tensor *const x[3], tn_tensor *const *extra,
                                const tni_attr *attr)
{
    extents  e;
    operands o = { .e = &e };
    int64_t  T = tn_size(x[0], -2), S = tn_size(x[1], -2);
    if (!find_extents(&e, x)) return NULL;
    bool ok = add_operand(&o, x[0], e.H) && add_operand(&o, x[1], e.Hk) &&
              add_operand(&o, x[2], e.Hk);
    for (int i = 0; ok && i < attr->attention.extras; i++) ok = add_extra(&o, extra[i], T, S);
    if (!ok) return NULL;
    return record_operands(x[0]->cx, &o, tn_dtype_of(x[0]), T, tn_size(x[2], -1), attr);
}

// NULL, not reported, if it cannot be one op: no device code, nothing to compute, every weight
// dropped, or an operand that strides cannot express.
static tn_tensor *record_attention(tn_ctx *cx, const extents *e, tn_tensor *const *given,
                                   const tn_attention_opts *opts, const tni_attr *attr)
{
    operands   o = { .e = e };
    tn_tensor *x[3];
    if (tni_lacks(cx, TNI_attention) || opts->dropout == 1) return NULL;
    tn_dtype dt = tni_promote(tn_dtype_of(given[0]), tn_dtype_of(given[1]));
    dt          = tni_promote(dt, tn_dtype_of(given[2]));
    for (int i = 0; i < 3; i++)
        if (!(x[i] = tn_dtype_of(given[i]) == dt ? given[i] : tn_cast(given[i], dt))) return NULL;
    if (!gather_operands(&o, x, opts)) return NULL;
    return record_operands(cx, &o, dt, tn_size(x[0], -2), tn_size(x[2], -1), attr);
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
// result. Outputs: the gradients of queries, keys, values and, as far as `extras` says, of what is
// read beside the scores.
bool tni_attention_grad(tn_ctx *cx, tni_node *n, tn_tensor *g, int extras,
                        tn_tensor *gx[TNI_ATTENTION_GRADS])
{
    tni_node *src[7 + TNI_SCORE_SOURCES];
    int       nsrc                     = (int)n->nsrc;
    tn_array  out[TNI_ATTENTION_GRADS] = { 0 };
    for (int i = 0; i < nsrc; i++)
        if (!(src[i] = grad_source(tni_wrap_node(cx, n->src[i])))) return false;
    for (int i = 0; i < 3 + extras; i++) {
        out[i].rank  = 4;
        out[i].dtype = (tn_dtype)src[i]->dtype;
        memcpy(out[i].size, src[i]->size, 4 * sizeof *src[i]->size);
    }
    tn_tensor *more[] = { tni_wrap_node(cx, n), log_sums(cx, n), g };
    for (int i = 0; i < 3; i++)
        if (!(src[nsrc++] = grad_source(more[i]))) return false;
    return tni_record_outputs(cx, TNI_attention_grad, 3 + extras, out, nsrc, src, &n->attr, gx);
}

// ---- the call ----------------------------------------------------------------------------------

// Says why the leading axes do not fit: if it is the heads (axis -3), the message says so, since
// that is the usual mistake with grouped queries.
static bool refuse_lead(tn_ctx *cx, tn_tensor *const *x)
{
    extents e;
    if (find_heads(&e, x))
        return tni_refuse(
            cx, TN_ESHAPE,
            "attention: q %s, k %s and v %s: the axes before the last two do not broadcast",
            tni_shape_of(x[0]).s, tni_shape_of(x[1]).s, tni_shape_of(x[2]).s);
    return tni_refuse(cx, TN_ESHAPE,
                      "attention: q %s has %lld heads (axis -3), k %s %lld and v %s %lld: those of "
                      "k and v must be equal, or 1, and divide those of q",
                      tni_shape_of(x[0]).s, (long long)heads_of(x[0]), tni_shape_of(x[1]).s,
                      (long long)heads_of(x[1]), tni_shape_of(x[2]).s, (long long)heads_of(x[2]));
}

// (T, D), (S, D) and (S, E) at the end, and leading axes that fit.
static bool attention_shapes_fit(tn_ctx *cx, tn_tensor *const *x, extents *e)
{
    bool ok = tn_rank(x[0]) >= 2 && tn_rank(x[1]) >= 2 && tn_rank(x[2]) >= 2 &&
              tn_size(x[0], -1) == tn_size(x[1], -1) && tn_size(x[1], -2) == tn_size(x[2], -2);
    if (!ok)
        return tni_refuse(cx, TN_ESHAPE,
                          "attention: q %s, k %s and v %s are not (T, D), (S, D) and (S, E)",
                          tni_shape_of(x[0]).s, tni_shape_of(x[1]).s, tni_shape_of(x[2]).s);
    if (!find_extents(e, x)) return refuse_lead(cx, x);
    return tni_want_float(x[0], "attention");
}

// The mask broadcasts to the scores, before v's leading sizes count.
static bool mask_fits(tn_ctx *cx, const extents *e, tn_tensor *const *x, tn_tensor *mask)
{
    static const char *const names[] = { "q", "mask" };
    int64_t                  size[TN_MAX_RANK];
    int                      rank = e->score_rank + 2;
    if (!tni_args("attention", 2, (tn_tensor *const[]){ x[0], mask }, names)) return false;
    memcpy(size, e->score_lead, sizeof size);
    size[rank - 2] = tn_size(x[0], -2);
    size[rank - 1] = tn_size(x[1], -2);
    tni_view v     = tni_layout(mask);
    if (!tni_view_expand(&v, rank, size))
        return tni_refuse(cx, TN_ESHAPE, "attention: mask %s does not broadcast to scores %s",
                          tni_shape_of(mask).s, tni_shape_text(rank, size).s);
    return tn_dtype_of(mask) == TN_BOOL || tni_want_float(mask, "attention: mask");
}

// One integer for each batch.
static bool lengths_fit(tn_ctx *cx, const extents *e, tn_tensor *q, tn_tensor *lengths)
{
    static const char *const names[] = { "q", "lengths" };
    if (!tni_args("attention", 2, (tn_tensor *const[]){ q, lengths }, names)) return false;
    tni_view v = tni_layout(lengths);
    if (!tni_is_int(tn_dtype_of(lengths)))
        return tni_refuse(cx, TN_EDTYPE, "attention: lengths is %s, not an integer type",
                          tn_dtype_name(tn_dtype_of(lengths)));
    if (!tni_view_expand(&v, length_axes(e), e->lead))
        return tni_refuse(cx, TN_ESHAPE, "attention: lengths %s does not broadcast to batches %s",
                          tni_shape_of(lengths).s, tni_shape_text(length_axes(e), e->lead).s);
    return true;
}

static bool options_fit(tn_ctx *cx, const extents *e, tn_tensor *const *x,
                        const tn_attention_opts *o)
{
    if (!(o->dropout >= 0 && o->dropout <= 1))
        return tni_refuse(cx, TN_EARG, "attention: dropout %g is not in 0 .. 1", o->dropout);
    if (o->window < 0)
        return tni_refuse(cx, TN_EARG, "attention: window %lld is negative", (long long)o->window);
    return (!o->mask || mask_fits(cx, e, x, o->mask)) &&
           (!o->lengths || lengths_fit(cx, e, x[0], o->lengths));
}

// Weights as other ops make them, times values. Dropped weights are numbered over the leading axes
// of the result, as the op numbers them.
static tn_tensor *compose_attention(const extents *e, tn_tensor *const *x,
                                    const tn_attention_opts *o, const tni_attr *attr)
{
    int                rank = e->rank + 2;
    int64_t            size[TN_MAX_RANK];
    tni_attention_args a = { x[0], x[1], x[2], { o->mask }, NULL, attr };
    memcpy(size, e->lead, sizeof size);
    size[rank - 2] = tn_size(x[0], -2);
    size[rank - 1] = tn_size(x[1], -2);
    if (o->lengths) {
        int n     = length_axes(e);
        a.lengths = tn_expand(o->lengths, n, size);
        for (; a.lengths && n < rank; n++) a.lengths = tn_unsqueeze(a.lengths, -1);
        if (!a.lengths) return NULL;
    }
    tn_tensor *p = tni_attention_weights(&a);
    if (o->dropout != 0) p = tni_attention_drop(attr, p ? tni_expand_to(p, rank, size) : NULL);
    return tn_matmul(p, tni_repeat_heads(x[2], heads_of(x[0])));
}

// Tries the one op first; a NULL without a new error means the other ops are to do it.
tn_tensor *tn_attention(tn_tensor *q, tn_tensor *k, tn_tensor *v, tn_attention_opts o)
{
    static const char *const names[] = { "q", "k", "v" };
    tn_tensor               *x[]     = { q, k, v };
    extents                  e;
    tn_ctx                  *cx = tni_args("attention", 3, x, names);
    if (!cx || !attention_shapes_fit(cx, x, &e) || !options_fit(cx, &e, x, &o)) return NULL;
    if (!tni_autocast_args(cx, tni_op_table[TNI_attention].autocast, 3, x)) return NULL;
    tni_attr attr = { .attention = {
                          .scale   = tni_or_default(o.scale, 1 / sqrt((double)tn_size(q, -1))),
                          .causal  = o.causal,
                          .window  = o.window,
                          .counted = o.lengths != NULL,
                          .extras  = o.mask != NULL,
                          .drops   = o.dropout != 0,
                          .dropout = o.dropout } };
    if (o.dropout > 0 && o.dropout < 1) {
        // Numbers begin with a counter here, so ranks whose items do not draw others than one
        // process would.
        int64_t weights = tni_shape_count(e.rank, e.lead) * tn_size(q, -2) * tn_size(k, -2), shift;
        attr.attention.key     = cx->seed;
        attr.attention.counter = tni_random_reserve_items(cx, TN_F32, weights, e.lead[0], &shift);
    }
    uint64_t   failures = cx->failures;
    tn_tensor *y        = record_attention(cx, &e, x, &o, &attr);
    if (y || cx->failures != failures) return y;
    return compose_attention(&e, x, &o, &attr);
}
