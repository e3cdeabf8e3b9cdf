// The adjoint of a view: the gradient of what a view reads, as the gradient of the tensor it looks
// at. Used for the op `view` and wherever a view is undone. And the sum of two gradients.
//
// A general scatter would do for all of them, but is slow and fuses with nothing; so most views are
// turned into a reshape, a permutation or a pad, which are computed where they are read.
#include "grad/grad.h"

#include <string.h>

tn_tensor *tni_record_at_view(tn_ctx *cx, int op, int rank, const int64_t *size, int n,
                              tn_tensor *const *x, const tni_view *v)
{
    tni_node *src[2];
    tni_attr  a = { .view = { .offset = v->offset } };
    memcpy(a.view.stride, v->stride, sizeof v->stride);
    for (int i = 0; i < n; i++)
        if (!x[i] || !(src[i] = tni_resolve(x[i], tni_op_table[op].name))) return NULL;
    return tni_record(cx, op, (tn_dtype)src[0]->dtype, rank, size, n, src, &a);
}

// The axes of v in memory order, if v is the whole of its source in another order.
static bool permutation_of(const tni_view *v, const tni_view *base, int *order)
{
    tni_view sorted = *v;
    if (v->offset || tni_shape_count(v->rank, v->size) != tni_shape_count(base->rank, base->size))
        return false;
    tni_view_sort(v, order);
    tni_view_permute(&sorted, order);
    return tni_view_contiguous(&sorted);
}

// A permutation and a shape, for put_in_order.
typedef struct {
    const int      *order;
    const tni_view *shape;
} reorder;

// A tni_view_fn: permutes, then reshapes. False if strides cannot express the shape.
static bool put_in_order(tni_view *v, const void *how)
{
    const reorder *r = how;
    tni_view       y = *v;
    tni_view_permute(&y, r->order);
    return tni_view_reshape(&y, r->shape->rank, r->shape->size, v);
}

// g with its axes put in order, in the shape of base: a view if possible, else a copy.
static tn_tensor *reordered(tn_tensor *g, const int *order, const tni_view *base)
{
    tni_view v   = tni_layout(g);
    reorder  how = { order, base };
    if (put_in_order(&v, &how)) return tni_wrap_view(g, &v, put_in_order, &how);
    return tn_reshape(tn_permute(g, tni_rank(g), order), base->rank, base->size);
}

// ---- views that are boxes ----------------------------------------------------------------------

// A box is how a slice or a strided view reads: a contiguous range of each axis of some shape of
// its base.
// A shape of the base in which a view covers count[j] places of axis j from start[j] on, and
// nothing else.
typedef struct {
    int     rank;
    int64_t size[TN_MAX_RANK], start[TN_MAX_RANK], count[TN_MAX_RANK];
} box;

// Splits off an axis of places `step` apart: `outer` is the span of what is left, `rest` the offset
// into it. False if the sizes do not divide, or the range leaves the axis.
static bool add_box_axis(box *b, int64_t *outer, int64_t *rest, int64_t step, int64_t count)
{
    if (b->rank == TN_MAX_RANK || *outer % step) return false;
    int j       = b->rank++;
    b->size[j]  = *outer / step;
    b->start[j] = *rest / step;
    b->count[j] = count;
    *rest %= step;
    *outer = step;
    return b->start[j] + count <= b->size[j];
}

// Finds the box whose axes end where those of v and those of `grid` do. v has its axes in memory
// order, no stride below 1 and no size of 1; grid is a row-major shape of the base. An axis that v
// does not have covers one place.
static bool find_box(const tni_view *v, const tni_view *grid, int64_t total, box *b)
{
    int64_t outer = total, rest = v->offset;
    int     i = 0, k = 0;
    b->rank = 0;
    while (outer > 1 || i < v->rank) {
        int64_t mine   = i < v->rank ? v->stride[i] : 1,
                theirs = k < grid->rank ? grid->stride[k] : 1;
        int64_t step   = mine > theirs ? mine : theirs;
        bool    moves  = i < v->rank && mine == step;
        if ((moves || step < outer) &&
            !add_box_axis(b, &outer, &rest, step, moves ? v->size[i] : 1))
            return false;
        i += moves;
        k += k < grid->rank && theirs == step;
    }
    return true;
}

// Removes axes of size 1 and, with `runs`, merges axes that are one run of places.
static void pack_axes(tni_view *v, bool runs)
{
    int n = 0;
    for (int i = 0; i < v->rank; i++) {
        if (v->size[i] == 1) continue;
        bool run      = runs && n && v->stride[n - 1] == v->stride[i] * v->size[i];
        int  at       = run ? n - 1 : n++;
        v->size[at]   = run ? v->size[at] * v->size[i] : v->size[i];
        v->stride[at] = v->stride[i];
    }
    v->rank = n;
}

// The box of a view, and the view's axes in the order in which the box has them. Flips are undone
// first. The finest box is tried first: it has the base's axes, which readers of the gradient loop
// over, so that no gradient is copied for it.
static bool box_of(tni_view v, const tni_view *base, int *order, box *b)
{
    tni_view grid = tni_view_whole(base->rank, base->size), none = { .rank = 0 };
    int64_t  total = tni_shape_count(base->rank, base->size);
    for (int i = 0; i < v.rank; i++) {
        if (v.size[i] == 0) return false;
        if (v.size[i] == 1) v.stride[i] = 1;
        if (v.stride[i] > 0) continue;
        v.offset += v.stride[i] * (v.size[i] - 1);
        v.stride[i] = -v.stride[i];
    }
    tni_view_sort(&v, order);
    tni_view_permute(&v, order);
    pack_axes(&v, false);
    if (find_box(&v, &grid, total, b) || find_box(&v, &none, total, b)) return true;
    pack_axes(&v, true);
    return find_box(&v, &grid, total, b) || find_box(&v, &none, total, b);
}

// g among zeros: a pad, which is computed where it is read; none if the box is all of the base, as
// it is for a flip.
static tn_tensor *pad_box(tn_tensor *g, const tni_view *v, const tni_view *base, const int *order,
                          const box *b)
{
    int64_t after[TN_MAX_RANK];
    bool    all = true;
    for (int j = 0; j < b->rank; j++) {
        after[j] = b->size[j] - b->start[j] - b->count[j];
        all &= b->count[j] == b->size[j];
    }
    for (int i = 0; i < v->rank; i++)
        if (v->stride[i] < 0 && v->size[i] > 1) g = tn_flip(g, i);
    g = tn_reshape(tn_permute(g, v->rank, order), b->rank, b->count);
    if (!all) g = tn_pad(g, b->start, after, 0);
    return tn_reshape(g, base->rank, base->size);
}

// ---- windows that overlap ----------------------------------------------------------------------

// The axes of a view along one axis of its base: `outer` goes over windows that begin `step` places
// apart, `inner` over the places of a window; -1: there is none. taps: how many windows have a
// place in common, at most.
typedef struct {
    int     outer, inner;
    int64_t step, taps;
} window_axis;

// The most terms that a place is the sum of: those of windows of 3 x 3 or 4 x 4 places at every
// second one.
enum { MOST_TERMS = 4 };

// Finds the axis of the base along which a stride goes, and how many places it goes.
static int axis_of_stride(const tni_view *grid, int64_t stride, int64_t *step)
{
    int at = -1;
    for (int b = 0; b < grid->rank; b++)
        if (grid->size[b] > 1 && grid->stride[b] <= stride &&
            (at < 0 || grid->stride[b] > grid->stride[at]))
            at = b;
    if (at < 0 || stride % grid->stride[at]) return -1;
    *step = stride / grid->stride[at];
    return at;
}

// Adds axis i of a view, which goes `step` places, to those along an axis of the base. Of two the
// one that goes farther is the outer one.
static bool add_window_axis(window_axis *w, const tni_view *v, int i, int64_t step)
{
    if (w->inner >= 0) return false;
    if (w->outer < 0) {
        w->outer = i;
        w->step  = step;
        return true;
    }
    bool    outer = step > w->step || (step == w->step && v->size[i] > v->size[w->outer]);
    int64_t least = outer ? w->step : step;
    if (least != 1) return false;
    w->inner = outer ? w->outer : i;
    if (outer) w->outer = i, w->step = step;
    return true;
}

// Whether a view is windows over whole axes of its base: w[] says along which, for every axis of
// the base. Not along the last one: neighbours in memory would be sums of different terms, which no
// vector computes. And not at every place: then all terms are read at all places, and adding up
// stored ones reads less.
static bool find_windows(const tni_view *v, const tni_view *base, window_axis *w)
{
    tni_view grid  = tni_view_whole(base->rank, base->size);
    int64_t  terms = 1;
    int      axes  = grid.rank;
    if (v->offset) return false;
    for (int b = 0; b < grid.rank; b++) w[b] = (window_axis){ -1, -1, 1, 1 };
    for (int i = 0; i < v->rank; i++) {
        int64_t step = 0;
        int     b = v->size[i] > 1 && v->stride[i] > 0 ? axis_of_stride(&grid, v->stride[i], &step)
                                                       : -1;
        if (v->size[i] < 1 || (v->size[i] > 1 && (b < 0 || !add_window_axis(&w[b], v, i, step))))
            return false;
    }
    for (int b = 0; b < grid.rank; b++) {
        int64_t inner = w[b].inner < 0 ? 1 : v->size[w[b].inner];
        int64_t last  = w[b].outer < 0 ? inner : (v->size[w[b].outer] - 1) * w[b].step + inner;
        if (last > grid.size[b]) return false;
        if (w[b].inner < 0 && w[b].step != 1) return false;
        if (w[b].inner >= 0 && (grid.stride[b] == 1 || w[b].step < 2)) return false;
        w[b].taps = (inner + w[b].step - 1) / w[b].step;
        terms *= w[b].taps;
        axes += w[b].inner >= 0;
    }
    return terms <= MOST_TERMS && axes <= TN_MAX_RANK;
}

// g with the base's axes, or the windows along them, in order, and behind each of the latter the
// places of a window. at[b]: where those of axis b begin.
static tn_tensor *in_window_order(tn_tensor *g, const tni_view *v, const window_axis *w, int rank,
                                  int *at)
{
    int      order[TN_MAX_RANK], n = 0, axes = 0;
    uint32_t used = 0;
    int64_t  size[TN_MAX_RANK];
    for (int b = 0; b < rank; b++) {
        int axis[] = { w[b].outer, w[b].inner };
        at[b]      = axes;
        for (int k = 0; k < 1 + (axis[1] >= 0); k++) {
            size[axes++] = axis[k] < 0 ? 1 : v->size[axis[k]];
            if (axis[k] >= 0) used |= 1u << (order[n++] = axis[k]);
        }
    }
    for (int i = 0; i < v->rank; i++)
        if (!(used >> i & 1)) order[n++] = i;
    return tn_reshape(tn_permute(g, n, order), axes, size);
}

// One term: along each axis of the base, part q of the windows' places, of which window i's are
// those of window i + q's first part. term counts the combinations.
static tn_tensor *window_term(tn_tensor *g, const window_axis *w, int rank, const int *at,
                              int64_t term)
{
    int64_t before[TN_MAX_RANK] = { 0 }, after[TN_MAX_RANK] = { 0 };
    for (int b = rank - 1; b >= 0; b--) {
        int64_t q = term % w[b].taps;
        term      = term / w[b].taps;
        if (w[b].inner < 0) continue;
        int64_t from = q * w[b].step, to = from + w[b].step, end = tn_size(g, at[b] + 1);
        before[at[b]]    = q;
        after[at[b]]     = w[b].taps - 1 - q;
        after[at[b] + 1] = to > end ? to - end : 0;
        g                = tn_slice(g, at[b] + 1, from, to < end ? to : end, 1);
    }
    return tn_pad(g, before, after, 0);
}

// The sum of all terms, with the axes of in_window_order.
static tn_tensor *window_sum(tn_tensor *g, const window_axis *w, int rank, const int *at)
{
    int64_t    terms = 1;
    tn_tensor *sum   = NULL;
    for (int b = 0; b < rank; b++) terms *= w[b].taps;
    for (int64_t t = 0; t < terms && g; t++) {
        tn_tensor *term = window_term(g, w, rank, at, t);
        sum             = t ? tn_add(sum, term) : term;
    }
    return sum;
}

// Adds up what windows of few places read, as a sum of maps, which is computed where it is read:
// place m step + r is that of part q of window m - q, for every q. Along a base's axis that no axis
// of the view goes along there is one place.
static tn_tensor *fold_windows(tn_tensor *g, const tni_view *v, const tni_view *base,
                               const window_axis *w)
{
    int        rank = base->rank, at[TN_MAX_RANK];
    int64_t    size[TN_MAX_RANK], none[TN_MAX_RANK] = { 0 }, after[TN_MAX_RANK];
    tn_tensor *sum = window_sum(in_window_order(g, v, w, rank, at), w, rank, at);
    if (!sum) return NULL;
    for (int b = 0; b < rank; b++) {
        size[b]  = tn_size(sum, at[b]) * (w[b].inner < 0 ? 1 : tn_size(sum, at[b] + 1));
        after[b] = base->size[b] > size[b] ? base->size[b] - size[b] : 0;
    }
    sum = tn_reshape(sum, rank, size);
    for (int b = 0; b < rank; b++)
        if (sum && size[b] > base->size[b]) sum = tn_slice(sum, b, 0, base->size[b], 1);
    return sum ? tn_pad(sum, none, after, 0) : NULL;
}

// ------------------------------------------------------------------------------------------------

// By kind, cheapest first: broadcast axes are summed; a mere reordering is undone; a box is padded
// with zeros; overlapping windows are folded (elements added up where they were read), by maps if
// few of them have a place in common; and any other view that reads each place once is written into
// zeros.
tn_tensor *tni_unview(tn_ctx *cx, tn_tensor *g, tni_view v, const tni_view *base)
{
    int      order[TN_MAX_RANK];
    uint32_t repeated = 0;
    box      b;
    for (int i = 0; i < v.rank; i++)
        if (v.stride[i] == 0 && v.size[i] > 1) {
            repeated |= 1u << i;
            v.size[i] = 1;
        }
    if (repeated) g = tni_reduce(TNI_sum, "sum", g, repeated, true);
    if (!g) return NULL;
    if (permutation_of(&v, base, order)) return reordered(g, order, base);
    window_axis w[TN_MAX_RANK];
    bool        overlaps = !tni_view_injective(&v);
    if (overlaps && find_windows(&v, base, w)) return fold_windows(g, &v, base, w);
    if (overlaps) return tni_record_at_view(cx, TNI_fold, base->rank, base->size, 1, &g, &v);
    if (box_of(v, base, order, &b)) return pad_box(g, &v, base, order, &b);
    tn_tensor *zeros = tn_zeros(cx, tni_dtype(g), base->rank, base->size);
    return tni_record_at_view(cx, TNI_update, base->rank, base->size, 2,
                              (tn_tensor *const[]){ zeros, g }, &v);
}

// ---- sums of gradients -------------------------------------------------------------------------

// The value of which g is a reshaped whole, or NULL.
static tni_node *reshaped(tn_tensor *g)
{
    tni_node *n = tni_resolve(g, "add");
    if (!n || n->op != TNI_view || n->leaf || n->nsrc != 1) return NULL;
    tni_view  v    = tni_node_layout(n);
    tni_node *base = n->src[0];
    bool      all  = !v.offset && tni_view_contiguous(&v) && base->op != TNI_view && !base->leaf;
    return all && tni_shape_count(v.rank, v.size) == tni_node_count(base) ? base : NULL;
}

// A gradient among zeros: x covers `count` places of an axis from `start` on, and all of the other
// axes.
typedef struct {
    tni_node *x;
    int       axis;
    int64_t   start, count;
} piece;

// Whether x is the whole result of a library call, which may write it anywhere, or a concat of
// such. What a kernel computes is better added where it is read, except in the body of a loop,
// whose kernels store their results side by side (plan/decide.c: fill_concats).
static bool is_result(const tn_ctx *cx, const tni_node *x)
{
    tni_view v     = tni_node_layout(x);
    int64_t  count = tni_node_count(x);
    for (; x->op == TNI_view; x = x->src[0])
        if (x->nsrc != 1) return false;
    return x->op == TNI_concat ||
           (tni_view_contiguous(&v) && tni_node_count(x) == count &&
            (x->op == TNI_output || tni_op_table[x->op].class == TNI_LIBRARY || cx->joins));
}

// Whether g is such a gradient, reshaped or not: what comes back from a slice.
static bool piece_of(tn_tensor *g, tni_node **pad, piece *p)
{
    tni_node *n    = reshaped(g);
    int       axes = 0;
    if (!n) n = tni_resolve(g, "add");
    if (!n || n->op != TNI_pad || n->leaf || n->state != TNI_PENDING) return false;
    if (tni_is_float((tn_dtype)n->dtype) ? n->attr.pad.value != 0 : n->attr.pad.ivalue != 0)
        return false;
    *pad = n;
    p->x = n->src[0];
    for (int i = 0; i < n->rank; i++) {
        if (n->size[i] == p->x->size[i]) continue;
        p->axis = i;
        axes++;
    }
    if (axes != 1 || !is_result(g->cx, p->x)) return false;
    p->start = n->attr.pad.before[p->axis];
    p->count = p->x->size[p->axis];
    return true;
}

// Lists the sources of a piece: those of a concat that was made here before, or the piece itself.
static int list_sources(tn_ctx *cx, const piece *p, tn_tensor **list, int room)
{
    tni_node *x    = p->x;
    bool      many = x->op == TNI_concat && x->attr.axis.axis == p->axis && (int)x->nsrc <= room;
    int       n    = many ? (int)x->nsrc : 1;
    for (int i = 0; i < n && i < room; i++) list[i] = tni_wrap_node(cx, many ? x->src[i] : x);
    return n;
}

// The sum of two gradients that are side by side, as gradients of queries, keys and values that are
// slices of one projection: a concat, which calls can write their results into, instead of two
// pads. NULL, not reported, if they are not.
static tn_tensor *join_pieces(tn_ctx *cx, tn_tensor *a, tn_tensor *b)
{
    enum { MOST = 16 };  // a concat of more sources is no kernel (decide.c)
    tni_node  *n, *m;
    piece      p, q;
    tn_tensor *list[MOST];
    int64_t    before[TN_MAX_RANK] = { 0 }, after[TN_MAX_RANK] = { 0 };
    if (!piece_of(a, &n, &p) || !piece_of(b, &m, &q) || p.axis != q.axis) return NULL;
    if (n->dtype != m->dtype || !tni_shape_equal(n->rank, n->size, m->rank, m->size)) return NULL;
    if (q.start + q.count == p.start) {
        piece first = q;
        q           = p;
        p           = first;
    }
    if (p.start + p.count != q.start) return NULL;
    int count = list_sources(cx, &p, list, MOST - 1);
    count += list_sources(cx, &q, list + count, MOST - count);
    if (count > MOST) return NULL;
    before[p.axis] = p.start;
    after[p.axis]  = n->size[p.axis] - q.start - q.count;
    tn_tensor *y   = tn_concat(count, list, p.axis);
    return before[p.axis] || after[p.axis] ? tn_pad(y, before, after, 0) : y;
}

// Gradients that are side by side are joined. Two that are reshaped wholes of values of one shape
// are added in that shape: the sum then fuses with what computed them, and one reshape follows.
tn_tensor *tni_add_gradients(tn_ctx *cx, tn_tensor *a, tn_tensor *b)
{
    tni_node  *x = reshaped(a), *y = reshaped(b);
    tni_view   v      = tni_layout(a);
    tn_tensor *joined = a && b ? join_pieces(cx, a, b) : NULL;
    if (joined) return tn_reshape(joined, v.rank, v.size);
    if (!x || !y || !tni_shape_equal(x->rank, x->size, y->rank, y->size)) return tn_add(a, b);
    return tn_reshape(tn_add(tni_wrap_node(cx, x), tni_wrap_node(cx, y)), v.rank, v.size);
}
