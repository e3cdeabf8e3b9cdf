// Values by name.
//
//   a weight of the layer             its name there, "layer1.0.conv1.weight"
//   a number, a list of integers      "/constant_7"
//   the result of a node of the file  "/layer1.0.conv1/Conv_12"
//   a view of x (8, 6)                what ONNX needs to say the same:
//     tn_reshape(x, (4, 12))            Reshape
//     tn_transpose(x, 0, 1)             Transpose
//     tn_slice(x, 1, 2, 5, 1)           Slice
//     tn_expand(row, (8, 6))            nothing, where the reader broadcasts; else Expand
//     windows of 3 along axis 1         Gather, by a constant of places
//
// Values: weights, constants, sizes, and views, which Tenon has as strides and ONNX as
// Reshape, Slice, Transpose and Expand.
#include "onnx/export.h"

#include "onnx/onnx_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- names and nodes ---------------------------------------------------------------------------

// Names are made in many places and die together, with the export.
const char *tni_export_text(tni_exporter *e, const char *fmt, ...)
{
    tni_heap *h = &e->cx->heap;
    va_list   args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int   n = vsnprintf(NULL, 0, fmt, args);
    char *s = n < 0 ? NULL : tni_alloc(h, (size_t)n + 1);
    if (s) vsnprintf(s, (size_t)n + 1, fmt, again);
    va_end(args);
    va_end(again);
    if (!s || !tni_grow(h, (void **)&e->text, &e->text_cap, e->texts + 1, sizeof *e->text)) {
        tni_free(h, s);
        return tni_fail_memory(e->cx, "onnx_save");
    }
    return e->text[e->texts++] = s;
}

// Puts the layer behind the sentence, as messages of recording have it.
void *tni_export_refuse(tni_exporter *e, const char *fmt, ...)
{
    char            text[400];
    const tni_node *n = tni_export_at(e, e->at);
    va_list         args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return tni_fail(e->cx, TN_EARG, "onnx_save: %s%s", text, tni_layer_text(&n->site).s);
}

// "/layer1.0.conv1/Conv_12": where the node stands in the layer, its op, and a number. No weight
// begins with a slash.
static const char *new_name(tni_exporter *e, const char *op)
{
    const tni_path *p = tni_export_at(e, e->at)->site.layer;
    return tni_export_text(e, "/%s%s%s_%d", p ? p->text : "", p ? "/" : "", op, ++e->number);
}

// AttributeProto: name, one of the values, and which of them it is (20), without which readers of
// today refuse it.
static void put_attribute(tni_message *node, const tni_export_attr *a)
{
    tni_message m = { .heap = node->heap };
    tni_message_text(&m, TNI_ATTR_NAME, a->name);
    if (a->type == 1) tni_message_float(&m, TNI_ATTR_F, (float)a->f);
    if (a->type == 2) tni_message_int(&m, TNI_ATTR_I, a->i);
    if (a->type == 3) tni_message_text(&m, TNI_ATTR_S, a->s);
    for (int i = 0; i < a->n; i++) tni_message_int(&m, TNI_ATTR_INTS, a->ints[i]);
    tni_message_int(&m, 20, a->type);
    tni_message_nest(node, TNI_NODE_ATTRIBUTE, &m);
}

// Nodes are kept as lists of names until the file is written, since the names of outputs are given
// at the end.
bool tni_export_add_n(tni_exporter *e, const char *op, int nin, const char *const *in, int nattr,
                      const tni_export_attr *attr, int nout, const char **out)
{
    tni_heap       *h = &e->cx->heap;
    tni_export_node n = { .op = op, .nin = nin, .nout = nout, .attributes = { .heap = h } };
    for (int i = 0; i < nin; i++)
        if (!in[i]) return false;
    if (!(n.name = new_name(e, op))) return false;
    for (int i = 0; i < nout; i++)
        if (!(out[i] = i ? tni_export_text(e, "%s.%d", n.name, i) : n.name)) return false;
    bool ok = tni_grow(h, (void **)&e->node, &e->node_cap, e->nodes + 1, sizeof n);
    n.in    = ok ? tni_alloc(h, (size_t)(nin + nout) * sizeof *n.in) : NULL;
    if (!n.in) return tni_no_memory(e->cx, "onnx_save");
    n.out = n.in + nin;
    memcpy(n.in, in, (size_t)nin * sizeof *in);
    memcpy(n.out, out, (size_t)nout * sizeof *out);
    for (int i = 0; i < nattr; i++) put_attribute(&n.attributes, &attr[i]);
    e->node[e->nodes++] = n;
    return !n.attributes.full || tni_no_memory(e->cx, "onnx_save");
}

// The usual case of one output.
const char *tni_export_add(tni_exporter *e, const char *op, int nin, const char *const *in,
                           int nattr, const tni_export_attr *attr)
{
    const char *y = NULL;
    return tni_export_add_n(e, op, nin, in, nattr, attr, 1, &y) ? y : NULL;
}

// ---- constants ---------------------------------------------------------------------------------

// Adds a weight or constant; takes over its bytes, also on failure.
static const char *add_weight(tni_exporter *e, tni_export_weight w)
{
    if (w.name &&
        tni_grow(&e->cx->heap, (void **)&e->weight, &e->weight_cap, e->weights + 1, sizeof w)) {
        if (w.node) tni_node_ref(w.node);
        e->weight[e->weights++] = w;
        return w.name;
    }
    if (w.name) tni_no_memory(e->cx, "onnx_save");
    tni_free(&e->cx->heap, w.bytes);
    return NULL;
}

// A constant of these bytes: one that is there already, or a new one.
static const char *constant(tni_exporter *e, tn_dtype dt, int rank, const int64_t *size,
                            const void *bytes)
{
    size_t n = (size_t)tni_shape_count(rank, size) * tni_dtype_size(dt);
    for (size_t i = 0; i < e->weights; i++) {
        const tni_export_weight *w = &e->weight[i];
        if (w->bytes && w->dtype == dt && tni_shape_equal(rank, size, w->rank, w->size) &&
            !memcmp(w->bytes, bytes, n))
            return w->name;
    }
    tni_export_weight w = { .dtype = dt, .rank = rank, .bytes = tni_alloc(&e->cx->heap, n) };
    if (!w.bytes) return tni_fail_memory(e->cx, "onnx_save");
    memcpy(w.bytes, bytes, n);
    memcpy(w.size, size, (size_t)rank * sizeof *size);
    w.name = new_name(e, "constant");
    return add_weight(e, w);
}

// Shapes, axes and bounds: the same ones are stored once.
const char *tni_export_ints(tni_exporter *e, int n, const int64_t *v)
{
    return constant(e, TN_I64, 1, (int64_t[]){ n }, v);
}

// A tensor of one number: its elements are written as any tensor's.
static const char *numbers(tni_exporter *e, tn_dtype dt, int rank, const int64_t *size, tni_num v)
{
    tni_attr a = { .num = tni_num_as(dt, v) };
    for (size_t i = 0; i < e->weights; i++) {
        const tni_export_weight *w = &e->weight[i];
        const tni_num           *n = w->node ? &w->node->attr.num : NULL;
        if (n && w->node->op == TNI_full && w->dtype == dt &&
            tni_shape_equal(rank, size, w->rank, w->size) && n->i == a.num.i &&
            !memcmp(&n->f, &a.num.f, sizeof n->f))
            return w->name;
    }
    tn_tensor *t = tni_record(e->cx, TNI_full, dt, rank, size, 0, NULL, &a);
    if (!t) return NULL;
    tni_export_weight w = { .dtype = dt, .rank = rank, .node = t->store->node };
    memcpy(w.size, size, (size_t)rank * sizeof *size);
    w.name = new_name(e, "constant");
    return add_weight(e, w);
}

// One number, as a constant without axes, which broadcasts to everything.
const char *tni_export_number(tni_exporter *e, tn_dtype dt, tni_num v)
{
    return numbers(e, dt, 0, (int64_t[]){ 0 }, v);
}

// A vector of ones or zeros, in the place of a weight that a layer does not have.
const char *tni_export_fill(tni_exporter *e, tn_dtype dt, int64_t n, double v)
{
    return numbers(e, dt, 1, &n, tni_num_of(v));
}

// ---- sizes -------------------------------------------------------------------------------------

// Of one run both entries are the same.
tni_extent tni_export_axis(const tni_exporter *e, size_t i, int k)
{
    tni_extent v;
    for (int t = 0; t < TNI_EXPORT_TRACES; t++)
        v.at[t] = e->run[t < e->traces ? t : 0].node[i]->size[k];
    return v;
}

// The size of the batch, as a value of one element: axis 0 of the first input that has it.
const char *tni_export_batch(tni_exporter *e)
{
    int i = 0;
    while (i < e->nx && !e->symbolic[i]) i++;
    if (!e->batch_size) {
        const char *shape = tni_export_add(e, "Shape", 1, &e->x_name[i], 0, NULL);
        const char *in[]  = { shape, tni_export_ints(e, 1, (int64_t[]){ 0 }) };
        e->batch_size     = tni_export_add(e, "Gather", 2, in, 0, NULL);
    }
    return e->batch_size;
}

// A size that is a N + b, as a value of one element. Two runs of N = 2 and 3 tell a and b.
static const char *one_size(tni_exporter *e, tni_extent v)
{
    if (tni_is_fixed(v)) return tni_export_ints(e, 1, v.at);
    int64_t     a = v.at[1] - v.at[0], b = v.at[0] - TNI_EXPORT_FIRST_BATCH * a;
    const char *y = tni_export_batch(e);
    if (a != 1) {
        const char *in[] = { y, tni_export_ints(e, 1, &a) };
        y                = tni_export_add(e, "Mul", 2, in, 0, NULL);
    }
    if (b != 0) {
        const char *in[] = { y, tni_export_ints(e, 1, &b) };
        y                = tni_export_add(e, "Add", 2, in, 0, NULL);
    }
    return y;
}

// Fixed sizes are a constant; else every size is a value of one element, and they are joined.
const char *tni_export_sizes(tni_exporter *e, int n, const tni_extent *v)
{
    const char *part[2 * TN_MAX_RANK];
    int64_t     fixed[2 * TN_MAX_RANK];
    bool        all = true;
    for (int i = 0; i < n; i++) {
        all &= tni_is_fixed(v[i]);
        fixed[i] = v[i].at[0];
    }
    if (all) return tni_export_ints(e, n, fixed);
    for (int i = 0; i < n; i++) part[i] = one_size(e, v[i]);
    if (n == 1) return part[0];
    tni_export_attr axis = tni_attr_int("axis", 0);
    return tni_export_add(e, "Concat", n, part, 1, &axis);
}

// Range wants its limit without axes.
const char *tni_export_size(tni_exporter *e, tni_extent v)
{
    const char *in[] = { one_size(e, v), tni_export_ints(e, 1, (int64_t[]){ 0 }) };
    return tni_export_add(e, "Squeeze", 2, in, 0, NULL);
}

// ---- shapes ------------------------------------------------------------------------------------

// Whether a value has these sizes in both runs.
static bool same_shape(tni_operand_out x, int rank, const tni_extent *size)
{
    if (x.rank != rank) return false;
    for (int i = 0; i < rank; i++)
        if (!tni_extent_same(x.size[i], size[i])) return false;
    return true;
}

// One size that is not fixed is left to be found (-1); several are computed.
const char *tni_export_reshape(tni_exporter *e, tni_operand_out x, int rank, const tni_extent *size)
{
    tni_extent want[TN_MAX_RANK];
    int        open = 0, empty = 0, at = 0;
    if (!x.name || same_shape(x, rank, size)) return x.name;
    for (int i = 0; i < rank; i++) {
        want[i] = size[i];
        empty += size[i].at[0] == 0;
        if (!tni_is_fixed(size[i])) open++, at = i;
    }
    if (open == 1 && !empty) want[at] = tni_fixed(-1);
    const char *in[] = { x.name, tni_export_sizes(e, rank, want) };
    // A 0 means the size of the input, or, with this attribute, 0.
    tni_export_attr zero = tni_attr_int("allowzero", 1);
    return tni_export_add(e, "Reshape", 2, in, empty && e->opset >= 14, &zero);
}

// Nothing is written for an order that changes nothing.
const char *tni_export_permute(tni_exporter *e, const char *x, int rank, const int *order)
{
    int64_t perm[TN_MAX_RANK];
    bool    same = true;
    for (int i = 0; i < rank; i++) {
        perm[i] = order[i];
        same &= order[i] == i;
    }
    tni_export_attr a = tni_attr_ints("perm", rank, perm);
    return same ? x : tni_export_add(e, "Transpose", 1, &x, 1, &a);
}

// ---- views -------------------------------------------------------------------------------------

// A view as ONNX says it. The base is seen as axes of `dims`, one for each axis of the view that is
// neither single nor repeated, by falling stride, and what is left as one more; of each, `count`
// elements are taken from `start` on in steps of `step`; axis k of these is axis to[k] of the view.
//
//   base (2, 6), view (3, 2) with strides 1, 6 and offset 2:   dims 2, 6   start 0, 2   count 2, 3   to 1, 0
typedef struct {
    int     n;  // with what is left
    int64_t dims[TN_MAX_RANK + 1], start[TN_MAX_RANK + 1], count[TN_MAX_RANK + 1],
        step[TN_MAX_RANK + 1];
    int to[TN_MAX_RANK];
} view_steps;

// Euclid's.
static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b) {
        int64_t r = a % b;
        a         = b;
        b         = r;
    }
    return a;
}

// Fills the steps; false if there are none, as for windows that overlap.
static bool find_steps(const tni_view *v, int64_t base, view_steps *s)
{
    int     order[TN_MAX_RANK], n = 0;
    int64_t unit = base, offset = v->offset;
    for (int i = 0; i < v->rank; i++) {
        if (v->size[i] == 1 || v->stride[i] == 0) continue;
        int at = n++;
        for (; at > 0 && llabs(v->stride[order[at - 1]]) < llabs(v->stride[i]); at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    s->n = n + 1;
    for (int k = 0; k < n; k++) {
        int64_t stride = v->stride[order[k]], next = common_divisor(llabs(stride), unit);
        s->dims[k]  = unit / next;
        s->count[k] = v->size[order[k]];
        s->step[k]  = stride / next;
        s->start[k] = offset / next;
        s->to[k]    = order[k];
        int64_t end = s->start[k] + (s->count[k] - 1) * s->step[k];
        if (end < 0 || end >= s->dims[k] || s->start[k] >= s->dims[k]) return false;
        offset %= next;
        unit = next;
    }
    s->dims[n]  = unit;
    s->count[n] = s->step[n] = 1;
    s->start[n]              = offset;
    return true;
}

// The steps of a view in both runs; false if they differ in more than sizes.
typedef struct {
    view_steps run[TNI_EXPORT_TRACES];
    int        n;
} view_plan;

// Finds the steps of view i in each run. An empty view has none: its strides say nothing.
static bool plan_view(const tni_exporter *e, size_t i, view_plan *p)
{
    for (int t = 0; t < TNI_EXPORT_TRACES; t++) {
        const tni_node *n = e->run[t < e->traces ? t : 0].node[i];
        tni_view        v = tni_node_layout(n);
        if (tni_node_count(n) == 0 || !find_steps(&v, tni_node_count(n->src[0]), &p->run[t]))
            return false;
    }
    // What is left over may be an axis more than a tensor has.
    p->n = p->run[0].n;
    if (p->run[1].n != p->n || p->n > TN_MAX_RANK) return false;
    for (int k = 0; k < p->n - 1; k++)
        if (p->run[0].to[k] != p->run[1].to[k] || p->run[0].step[k] != p->run[1].step[k])
            return false;
    return true;
}

// A size by its values in the two runs.
static tni_extent both(int64_t a, int64_t b)
{
    return (tni_extent){ { a, b } };
}

// Whether axis k is cut.
static bool is_cut(const view_plan *p, int k)
{
    for (int t = 0; t < TNI_EXPORT_TRACES; t++) {
        const view_steps *s = &p->run[t];
        if (s->start[k] != 0 || s->count[k] != s->dims[k] || s->step[k] != 1) return true;
    }
    return false;
}

// Cuts x, which has the axes of the plan. An end beyond all counts as the end of the axis, one
// below 0 with a negative step as its beginning.
static const char *slice(tni_exporter *e, const view_plan *p, const char *x)
{
    tni_extent start[TN_MAX_RANK + 1], end[TN_MAX_RANK + 1];
    int64_t    axis[TN_MAX_RANK + 1], step[TN_MAX_RANK + 1];
    int        n = 0;
    for (int k = 0; k < p->n; k++) {
        const view_steps *a = &p->run[0], *b = &p->run[1];
        if (!is_cut(p, k)) continue;
        int64_t last[2] = { a->start[k] + a->count[k] * a->step[k],
                            b->start[k] + b->count[k] * b->step[k] };
        bool    all     = a->step[k] == 1 && last[0] == a->dims[k] && last[1] == b->dims[k];
        start[n]        = both(a->start[k], b->start[k]);
        end[n]          = all ? tni_fixed(INT64_MAX) : both(last[0], last[1]);
        if (a->step[k] < 0 && last[0] < 0 && last[1] < 0) end[n] = tni_fixed(INT64_MIN + 1);
        step[n]   = a->step[k];
        axis[n++] = k;
    }
    if (!n) return x;
    const char *in[] = { x, tni_export_sizes(e, n, start), tni_export_sizes(e, n, end),
                         tni_export_ints(e, n, axis), tni_export_ints(e, n, step) };
    return tni_export_add(e, "Slice", 5, in, 0, NULL);
}

// Reshape, Slice, Transpose, Reshape, as far as they are needed. The axes that repeat have size 1.
static tni_operand_out follow_plan(tni_exporter *e, size_t i, const view_plan *p,
                                   tni_operand_out base)
{
    const tni_node *n = tni_export_at(e, i);
    tni_operand_out y = { .rank = n->rank }, x = { .rank = p->n };
    int             order[TN_MAX_RANK + 1];
    bool            plain = true;
    for (int k = 0; k < p->n; k++) {
        x.size[k] = both(p->run[0].dims[k], p->run[1].dims[k]);
        plain &= !is_cut(p, k) &&
                 (k == 0 || k == p->n - 1 || p->run[0].to[k] > p->run[0].to[k - 1]);
    }
    // What is left of the base is mostly one element: an axis less.
    if (tni_extent_same(x.size[p->n - 1], tni_fixed(1))) x.rank--;
    for (int k = 0; k < n->rank; k++) {
        y.size[k] = tni_export_axis(e, i, k);
        if (tni_node_layout(n).stride[k] == 0) y.size[k] = tni_fixed(1);
    }
    if (plain) {
        y.name = tni_export_reshape(e, base, y.rank, y.size);
        return y;
    }
    x.name = slice(e, p, tni_export_reshape(e, base, x.rank, x.size));
    for (int k = 0; k < x.rank; k++) x.size[k] = both(p->run[0].count[k], p->run[1].count[k]);
    // The axes of the view in its own order, and last what is left.
    int at = 0;
    for (int axis = 0; axis < n->rank; axis++)
        for (int k = 0; k < p->n - 1; k++)
            if (p->run[0].to[k] == axis) order[at++] = k;
    if (x.rank == p->n) order[at] = p->n - 1;
    tni_operand_out turned = { .name = tni_export_permute(e, x.name, x.rank, order),
                               .rank = x.rank };
    for (int k = 0; k < x.rank; k++) turned.size[k] = x.size[order[k]];
    y.name = tni_export_reshape(e, turned, y.rank, y.size);
    return y;
}

// A view that has no such steps: elements by their places, which are a constant; with a symbolic
// batch, places in an item.
static tni_operand_out gather_view(tni_exporter *e, size_t i, tni_operand_out base)
{
    enum { MOST = 1 << 24 };
    tni_operand_out y = { .rank = 0 };
    const tni_node *a = tni_export_at(e, i), *b = e->run[e->traces - 1].node[i];
    tni_view        v = tni_node_layout(a), w = tni_node_layout(b);
    int             from = 0;
    int64_t         item = tni_node_count(a->src[0]), count = 1, at = 0;
    bool            batch = e->traces > 1 && a->rank > 0 && a->size[0] != b->size[0];
    if (batch) {
        item  = item / a->size[0];
        from  = 1;
        batch = v.stride[0] == item && w.stride[0] == item && v.offset == w.offset &&
                tni_node_count(a->src[0]) == item * a->size[0] &&
                tni_node_count(b->src[0]) == item * b->size[0];
    }
    for (int k = from; k < v.rank; k++) {
        count *= v.size[k];
        if (v.size[k] != w.size[k] || v.stride[k] != w.stride[k]) count = MOST + 1;
    }
    if ((from && !batch) || count > MOST || v.offset != w.offset) {
        tni_export_refuse(e, "a view %s of %s has no form in ONNX%s",
                          tni_shape_text(a->rank, a->size).s,
                          tni_shape_text(a->src[0]->rank, a->src[0]->size).s,
                          e->traces > 1 ? " with a symbolic batch" : "");
        return y;
    }
    int64_t *place = tni_alloc(&e->cx->heap, (size_t)count * sizeof *place);
    if (!place) {
        tni_fail_memory(e->cx, "onnx_save");
        return y;
    }
    for (int64_t k = 0; k < count; k++) {
        int64_t rest = k;
        at           = v.offset;
        for (int axis = v.rank - 1; axis >= from; axis--) {
            at += rest % v.size[axis] * v.stride[axis];
            rest /= v.size[axis];
        }
        place[k] = at;
    }
    tni_extent      flat[] = { tni_export_axis(e, i, 0), tni_fixed(item) };
    tni_export_attr axis   = tni_attr_int("axis", from);
    const char     *in[]   = { tni_export_reshape(e, base, 1 + from, flat + !from),
                               constant(e, TN_I64, v.rank - from, v.size + from, place) };
    tni_free(&e->cx->heap, place);
    y = (tni_operand_out){ .rank = a->rank, .name = tni_export_add(e, "Gather", 2, in, 1, &axis) };
    for (int k = 0; k < a->rank; k++) y.size[k] = tni_export_axis(e, i, k);
    return y;
}

// Whether a view shows the result of a call as its caller sees it.
static bool is_shown(const tni_exporter *e, size_t base, size_t i)
{
    for (int t = 0; t < e->traces; t++) {
        const tni_kept *c = e->run[t].call[base];
        tni_view        v = tni_node_layout(e->run[t].node[i]);
        if (!c || !tni_view_equal(&v, &c->shown)) return false;
    }
    return true;
}

// A view by the shortest way: as a call showed it, by steps, or element by element.
static tni_operand_out loose_view(tni_exporter *e, size_t i)
{
    size_t    base = tni_export_index(tni_export_at(e, i)->src[0]);
    view_plan p;
    if (e->known[base].shown.name && is_shown(e, base, i)) return e->known[base].shown;
    tni_operand_out from = tni_export_value(e, base);
    if (!from.name) return from;
    return plan_view(e, i, &p) ? follow_plan(e, i, &p, from) : gather_view(e, i, from);
}

// ---- values ------------------------------------------------------------------------------------

// The name of a tensor of the layer; NULL if it has none. Tied tensors have the first name.
static const char *weight_name(const tni_exporter *e, const tni_node *n)
{
    for (size_t i = 0; i < e->entries.count; i++) {
        const tn_tensor *t = e->entries.entry[i].t;
        if (!t->view && t->store->node == n) return e->entries.entry[i].name;
    }
    return NULL;
}

// Names that the file uses for other values are avoided: those of ports, and those that begin with
// a slash.
static const char *free_name(tni_exporter *e, const char *name)
{
    bool taken = *name == '/';
    for (int i = 0; i < e->nx; i++) taken |= !strcmp(e->x_name[i], name);
    for (int i = 0; i < e->ny; i++) taken |= !strcmp(e->y_name[i], name);
    return taken ? tni_export_text(e, "weight:%s", name) : name;
}

// Adds the value of node i as a weight, by its name in the layer; a constant that the layer made
// for itself gets a number.
static const char *add_node_weight(tni_exporter *e, size_t i, bool turned)
{
    tni_node         *n    = tni_export_at(e, i);
    const char       *name = weight_name(e, n);
    tni_export_weight w    = { .dtype = (tn_dtype)n->dtype, .rank = n->rank, .node = n };
    memcpy(w.size, n->size, sizeof w.size);
    w.turned = turned;
    if (turned) w.size[0] = n->size[1], w.size[1] = n->size[0];
    name   = name ? free_name(e, name) : new_name(e, "constant");
    w.name = name ? tni_export_text(e, turned ? "%s_transposed" : "%s", name) : NULL;
    return add_weight(e, w);
}

// The sizes are those of both runs.
tni_operand_out tni_export_shaped(const tni_exporter *e, size_t i, const char *name)
{
    const tni_node *n = tni_export_at(e, i);
    tni_operand_out y = { .name = name, .rank = n->rank };
    for (int k = 0; k < n->rank; k++) y.size[k] = tni_export_axis(e, i, k);
    return y;
}

// start, start + step, ...: as many as the axis has.
static const char *range(tni_exporter *e, size_t i)
{
    const tni_node             *n     = tni_export_at(e, i);
    const struct tni_attr_iota *a     = &n->attr.iota;
    bool                        f     = tni_is_float((tn_dtype)n->dtype);
    tn_dtype                    dt    = f ? (tn_dtype)n->dtype : TN_I64;
    tni_num                     start = f ? tni_num_of(a->start) : tni_num_i64(a->istart),
            step                      = f ? tni_num_of(a->step) : tni_num_i64(a->istep);
    // Counted in integers, so that the last element is what rounding cannot change.
    tni_num     zero = tni_num_i64(0), one = tni_num_i64(1);
    const char *in[] = { tni_export_number(e, TN_I64, zero),
                         tni_export_size(e, tni_export_axis(e, i, 0)),
                         tni_export_number(e, TN_I64, one) };
    const char *y    = tni_export_add(e, "Range", 3, in, 0, NULL);
    if (n->rank != 1) return tni_export_refuse(e, "a sequence of several axes");
    if (f) y = tni_export_cast(e, y, dt);
    if (step.f != 1) {
        const char *by[] = { y, tni_export_number(e, dt, step) };
        y                = tni_export_add(e, "Mul", 2, by, 0, NULL);
    }
    if (start.f != 0) {
        const char *from[] = { y, tni_export_number(e, dt, start) };
        y                  = tni_export_add(e, "Add", 2, from, 0, NULL);
    }
    return dt == (tn_dtype)n->dtype ? y : tni_export_cast(e, y, (tn_dtype)n->dtype);
}

// `to` is a number of TensorProto.DataType.
const char *tni_export_cast(tni_exporter *e, const char *x, tn_dtype dt)
{
    tni_export_attr to = tni_attr_int("to", tni_onnx_type_of(dt));
    return tni_export_add(e, "Cast", 1, &x, 1, &to);
}

// The node from its result as the call shows it: the axes are put back.
static const char *unshown(tni_exporter *e, size_t i)
{
    const tni_view *v = &e->run[0].call[i]->shown;
    int             order[TN_MAX_RANK];
    tni_view_sort(v, order);
    return tni_export_permute(e, e->known[i].shown.name, v->rank, order);
}

// Values that cost nothing are written when something reads them; all others have been by then.
tni_operand_out tni_export_loose(tni_exporter *e, size_t i)
{
    tni_export_known *k = &e->known[i];
    const tni_node   *n = tni_export_at(e, i);
    if (k->loose.name) return k->loose;
    if (k->full.name) return k->full;
    if (k->shown.name) return tni_export_value(e, i);
    if (tni_export_is_weight(e, n))
        k->loose = k->full = tni_export_shaped(e, i, add_node_weight(e, i, false));
    else if (tni_is_number(n->op))
        k->loose.name = tni_export_number(e, (tn_dtype)n->dtype, n->attr.num);
    else if (n->op == TNI_iota) k->loose = k->full = tni_export_shaped(e, i, range(e, i));
    else if (n->op == TNI_VIEW_OP) k->loose = loose_view(e, i);
    else tni_export_refuse(e, "%s was not written", tni_op_table[n->op].name);
    return k->loose;
}

// What broadcasts is expanded here, for ops that do not broadcast by themselves.
tni_operand_out tni_export_value(tni_exporter *e, size_t i)
{
    tni_export_known *k = &e->known[i];
    if (k->full.name) return k->full;
    tni_operand_out whole = tni_export_shaped(e, i, NULL);
    if (k->shown.name) {
        whole.name     = unshown(e, i);
        return k->full = whole;
    }
    tni_operand_out x = tni_export_loose(e, i);
    if (!x.name || same_shape(x, whole.rank, whole.size)) return k->full = x;
    // Of the shape that it is expanded to, a 1 leaves an axis as it is.
    tni_extent size[TN_MAX_RANK];
    for (int a = 0; a < whole.rank; a++) {
        int own = a - (whole.rank - x.rank);
        size[a] = own >= 0 && tni_extent_same(x.size[own], whole.size[a]) ? tni_fixed(1)
                                                                          : whole.size[a];
    }
    const char *in[] = { x.name, tni_export_sizes(e, whole.rank, size) };
    whole.name       = tni_export_add(e, "Expand", 2, in, 0, NULL);
    return k->full   = whole;
}

// Whether node i is a view that swaps the axes of all of a matrix.
static bool is_turned(const tni_node *n)
{
    if (n->op != TNI_VIEW_OP || n->src[0]->rank != 2 || n->rank != 2) return false;
    const tni_node *b = n->src[0];
    tni_view        v = tni_node_layout(n);
    return v.size[0] == b->size[1] && v.size[1] == b->size[0] && v.stride[0] == 1 &&
           v.stride[1] == b->size[1] && v.offset == 0;
}

// A tied weight, which another node reads as it is, is turned by a node instead, so that the file
// has it once.
const char *tni_export_turned(tni_exporter *e, size_t i)
{
    const tni_node *n = tni_export_at(e, i);
    if (is_turned(n)) return tni_export_value(e, tni_export_index(n->src[0])).name;
    if (n->rank == 2 && tni_export_is_weight(e, n) && e->known[i].uses == 1)
        return add_node_weight(e, i, true);
    return tni_export_permute(e, tni_export_value(e, i).name, 2, (int[]){ 1, 0 });
}

// Called for inputs, and for what rows wrote.
bool tni_export_set(tni_exporter *e, size_t i, const char *name)
{
    if (name) e->known[i].full = tni_export_shaped(e, i, name);
    return name != NULL;
}
