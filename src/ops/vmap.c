// Functions over one axis more: tn_vmap's rules. A function that was recorded once, over single
// examples, as the body of a loop (loop_body.c) is recorded again over all of them, each of its
// nodes with a batch axis in front. Of the body
//
//   %0 view    (3, 2)  w                       transposed; w is the same for all examples
//   %1 matmul  (1, 2)  x %0
//   %2 sum     ()      %1       axes 0, 1
//
// over B examples x (B, 1, 3) becomes
//
//   view    (3, 2)     w                       reads no example: as it was
//   matmul  (B, 2)     x as (B, 3), %0         one product, since w is one
//   sum     (B)        (B, 1, 2)  axes 1, 2
//
// Nodes have few kinds, so that there are few rules: maps take operands of one shape, views stride
// over one axis more, attributes that count axes count one more. What has no rule (random numbers
// made of an example, linear algebra, attention, users' ops, loops, gradients of convolutions by
// their weights) makes the whole function a loop over the examples instead.
//
//   maps, casts          operands that are the same for all are expanded, which costs nothing
//   reductions, scans    the numbers of axes go up by one
//   views                one axis in front, whose stride is the size of an example
//   fold, update         the same for the places that are written
//   pad, concat, gather, scatter, argsort    no padding of examples; the axis goes up by one
//   matmul               more rows of one product, or a batch of products
//   conv, conv_dgrad     more images, if the weights are the same for all
//
// A gradient inside of the function was recorded by the rules of grad/ as ordinary ops, so it needs
// no rules of its own, and neither does the gradient of what is recorded here.
//
// B examples
#include "ops/loop.h"
#include "ops/composite.h"

#include <string.h>

// A body being recorded again. y: the value of each of its nodes; batched: whether it has the axis
// of examples. Invariant: the mark of body node i is i + 1 while this runs.
typedef struct {
    tn_ctx         *cx;
    const tni_loop *l;
    int64_t         B;
    tn_tensor     **y;
    bool           *batched;
} replay;

// What became of a node: recorded; without a rule, which is no error; or failed, reported.
typedef enum { RECORDED, NO_RULE, FAILED } outcome;

// The place of a node in the body, by its mark.
static size_t index_of(const tni_node *n)
{
    return n->mark - 1;
}

// The shape of n with the axis of examples in front.
static int with_examples(const replay *r, const tni_node *n, int64_t *size)
{
    size[0] = r->B;
    memcpy(size + 1, n->size, n->rank * sizeof *size);
    return n->rank + 1;
}

// The value of source s of a node, with the axis of examples: one that has none is the same for
// all. The stride of that axis is 0, so that nothing is copied.
static tn_tensor *for_all(const replay *r, const tni_node *source)
{
    tn_tensor *y = r->y[index_of(source)];
    int64_t    size[TN_MAX_RANK + 1];
    if (r->batched[index_of(source)]) return y;
    int rank = with_examples(r, source, size);
    return tn_expand(tn_unsqueeze(y, 0), rank, size);
}

// Records an op with other attributes over the sources of n, all with the axis of examples.
static tn_tensor *record_for_all(const replay *r, const tni_node *n, const tni_attr *a)
{
    tni_node *src[64];
    int64_t   size[TN_MAX_RANK + 1];
    int       rank = with_examples(r, n, size);
    for (uint32_t s = 0; s < n->nsrc; s++) {
        tn_tensor *x = for_all(r, n->src[s]);
        if (!x || !(src[s] = tni_resolve(x, "vmap"))) return NULL;
    }
    return tni_record(r->cx, n->op, (tn_dtype)n->dtype, rank, size, (int)n->nsrc, src, a);
}

// ---- rules -------------------------------------------------------------------------------------

// A map over sources of its own shape; a plain number stays one, since it fits every shape.
static tn_tensor *map_rule(const replay *r, const tni_node *n)
{
    tni_node *src[8];
    int64_t   size[TN_MAX_RANK + 1];
    int       rank = with_examples(r, n, size);
    for (uint32_t s = 0; s < n->nsrc; s++) {
        const tni_node *from = n->src[s];
        bool            keep = from->rank == 0 && n->rank > 0 && !r->batched[index_of(from)];
        tn_tensor      *x    = keep ? r->y[index_of(from)] : for_all(r, from);
        if (!x || !(src[s] = tni_resolve(x, "vmap"))) return NULL;
    }
    return tni_record(r->cx, n->op, (tn_dtype)n->dtype, rank, size, (int)n->nsrc, src, &n->attr);
}

// Views look straight at a whole value, whose examples lie one after the other.
static tn_tensor *view_rule(const replay *r, const tni_node *n)
{
    const tni_node *base = n->src[0];
    tn_tensor      *x    = tn_contiguous(r->y[index_of(base)]);
    if (!x) return NULL;
    tni_view v = tni_layout(x), y = { .offset = v.offset + n->attr.view.offset };
    y.rank      = with_examples(r, n, y.size);
    y.stride[0] = tni_node_count(base);
    memcpy(y.stride + 1, n->attr.view.stride, n->rank * sizeof *y.stride);
    return tni_wrap_view(x, &y, NULL, NULL);
}

// Places in a base: update and fold write what a view reads. Their strides are by the axes of the
// last source.
static tn_tensor *place_rule(const replay *r, const tni_node *n)
{
    tni_attr a    = n->attr;
    int      rank = n->src[n->nsrc - 1]->rank;
    memcpy(a.view.stride + 1, n->attr.view.stride, (size_t)rank * sizeof *a.view.stride);
    a.view.stride[0] = tni_node_count(n);
    return record_for_all(r, n, &a);
}

// Nothing is put before or behind the examples.
static tn_tensor *pad_rule(const replay *r, const tni_node *n)
{
    tni_attr a = n->attr;
    memcpy(a.pad.before + 1, n->attr.pad.before, n->rank * sizeof *a.pad.before);
    a.pad.before[0] = 0;
    return record_for_all(r, n, &a);
}

// concat, gather, scatter, cumulative sums and sorting count their axis from the front.
static tn_tensor *axis_rule(const replay *r, const tni_node *n)
{
    tni_attr a = n->attr;
    a.axis.axis++;
    return record_for_all(r, n, &a);
}

// Bit i of the axes is that of axis i, which is one further from the front; the axis of examples is
// never reduced.
static tn_tensor *reduce_rule(const replay *r, const tni_node *n)
{
    tni_attr a    = n->attr;
    a.reduce.axes = a.reduce.axes << 1;
    return record_for_all(r, n, &a);
}

// The first two axes of x joined, and a node's shape with them apart again.
static tn_tensor *join_examples(const replay *r, const tni_node *n)
{
    int64_t size[TN_MAX_RANK + 1];
    int     rank = with_examples(r, n, size);
    size[1] *= size[0];
    return tn_reshape(r->y[index_of(n)], rank - 1, size + 1);
}

// Records n over its sources, of which the first has its examples in its first axis and the others
// have none.
static tn_tensor *record_joined(const replay *r, const tni_node *n)
{
    int64_t    size[TN_MAX_RANK + 1];
    int        rank = with_examples(r, n, size);
    tni_node  *src[3];
    tn_tensor *x = join_examples(r, n->src[0]);
    for (uint32_t s = 0; s < n->nsrc; s++) {
        tn_tensor *t = s ? r->y[index_of(n->src[s])] : x;
        if (!t || !(src[s] = tni_resolve(t, "vmap"))) return NULL;
    }
    size[1] *= size[0];
    x       = tni_record(r->cx, n->op, (tn_dtype)n->dtype, rank - 1, size + 1, (int)n->nsrc, src,
                         &n->attr);
    size[1] = n->size[0];
    return x ? tn_reshape(x, rank, size) : NULL;
}

// Whether only the first source has examples, so that they can be more rows of it.
static bool is_first_alone(const replay *r, const tni_node *n)
{
    bool alone = n->nsrc <= 3 && r->batched[index_of(n->src[0])];
    for (uint32_t s = 1; s < n->nsrc; s++) alone = alone && !r->batched[index_of(n->src[s])];
    return alone;
}

// A matrix times one that is the same for all examples is one product of more rows; others are
// batches of products.
static tn_tensor *matmul_rule(const replay *r, const tni_node *n)
{
    bool rows = n->rank == 2 && is_first_alone(r, n);
    return rows ? record_joined(r, n) : record_for_all(r, n, NULL);
}

// ---- the body ----------------------------------------------------------------------------------

// Most captured values are weights and views of them: they stay one for all examples, so that
// products with them stay one product. A node that reads no example is recorded as it was.
static tn_tensor *record_as_it_was(const replay *r, const tni_node *n)
{
    tni_node *src[64];
    for (uint32_t s = 0; s < n->nsrc; s++)
        if (!(src[s] = tni_resolve(r->y[index_of(n->src[s])], "vmap"))) return NULL;
    if (n->op != TNI_view) return tni_wrap(r->cx, tni_record_copy(r->cx, n, src));
    tn_tensor *x = tn_contiguous(r->y[index_of(n->src[0])]);
    if (!x) return NULL;
    tni_view v = tni_layout(x), y = tni_node_layout(n);
    y.offset += v.offset;
    return tni_wrap_view(x, &y, NULL, NULL);
}

// Classes have rules as a whole where all their ops go element by element or along given axes; of
// moves and calls each has its own. A new row of ops.def that is a map, a reduction or a scan needs
// nothing here.
// The value of n for all examples, by the rule of its kind. NULL with *how NO_RULE where there is
// none.
static tn_tensor *apply_rule(const replay *r, const tni_node *n, outcome *how)
{
    *how = FAILED;
    switch (tni_op_table[n->op].class) {
    case TNI_UNARY:
    case TNI_BINARY:
    case TNI_TERNARY:
    case TNI_CAST: return map_rule(r, n);
    case TNI_REDUCE: return reduce_rule(r, n);
    case TNI_SCAN: return axis_rule(r, n);
    default: break;
    }
    switch (n->op) {
    case TNI_view:
        if (n->nsrc == 1) return view_rule(r, n);
        break;
    case TNI_copy: return record_for_all(r, n, &n->attr);
    case TNI_fold:
    case TNI_update: return place_rule(r, n);
    case TNI_pad: return pad_rule(r, n);
    case TNI_concat:
    case TNI_gather:
    case TNI_scatter:
    case TNI_scatter_add:
    case TNI_argsort: return axis_rule(r, n);
    case TNI_matmul: return matmul_rule(r, n);
    case TNI_conv:
    case TNI_conv_i32:
    case TNI_conv_dgrad:
        if (is_first_alone(r, n)) return record_joined(r, n);
        break;
    default: break;
    }
    *how = NO_RULE;
    return NULL;
}

// Records node i, or says why not. More axes or sources than fit have no rule either.
static outcome record_node(replay *r, size_t i)
{
    const tni_node *n   = r->l->node[i];
    outcome         how = FAILED;
    for (uint32_t s = 0; s < n->nsrc; s++) r->batched[i] |= r->batched[index_of(n->src[s])];
    if (n->nsrc > 64 || (r->batched[i] && n->rank >= TN_MAX_RANK)) return NO_RULE;
    tn_tensor *y = r->batched[i] ? apply_rule(r, n, &how) : record_as_it_was(r, n);
    if (y && r->l->stops[i]) y = tn_detach(y);
    r->y[i] = y;
    return y ? RECORDED : how;
}

// The results, of all examples also where they are the same for all.
static bool give_results(const replay *r, int n, const int *out, tn_tensor **result)
{
    for (int i = 0; i < n; i++) {
        tn_tensor *y = for_all(r, r->l->out[out[i]]);
        result[i]    = y ? tni_share(y, "vmap") : NULL;
        if (!result[i]) return false;
    }
    return true;
}

// The body stays as it is, and is kept by the context: the loop of the same function, where a rule
// is missing, is built of it, and so is the next call of tn_vmap with this function.
// busy keeps recording from evaluating meanwhile, which uses the marks.
bool tni_loop_batch(tn_ctx *cx, const tni_loop *l, tn_tensor *const *in, int64_t examples, int n,
                    const int *out, tn_tensor **y, bool *without_rule)
{
    replay r   = { .cx = cx, .l = l, .B = examples };
    r.y        = tni_zalloc(&cx->heap, (l->count + 1) * sizeof *r.y);
    r.batched  = tni_zalloc(&cx->heap, (l->count + 1) * sizeof *r.batched);
    bool    ok = (r.y && r.batched) || tni_no_memory(cx, "vmap"), busy = cx->busy;
    outcome how = RECORDED;
    cx->busy    = true;
    for (size_t i = 0; i < l->count; i++) l->node[i]->mark = (uint32_t)i + 1;
    for (int i = 0; i < tni_loop_inputs(l) && ok; i++) {
        r.y[index_of(l->in[i])]       = in[i];
        r.batched[index_of(l->in[i])] = i < l->xs;
    }
    for (size_t i = 0; i < l->count && ok; i++) {
        if (!r.y[i]) how = record_node(&r, i);
        ok = how == RECORDED;
    }
    ok = ok && give_results(&r, n, out, y);
    for (size_t i = 0; i < l->count; i++) l->node[i]->mark = 0;
    cx->busy = busy;
    tni_free(&cx->heap, r.y);
    tni_free(&cx->heap, r.batched);
    *without_rule = how == NO_RULE;
    return ok;
}
