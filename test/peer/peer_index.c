// peer_index.c: forms of indexing, sorting, writes and gradients.
#include "peer.h"

#include <string.h>

static int one(tn_tensor **y)
{
    return y[0] ? 1 : -1;
}

// A random axis of the first input, not of nothing.
static bool draw_axis(peer_draw *d, peer_step *s)
{
    if (!peer_pick_input(d, s, 0)) return false;
    const peer_value *x = peer_value_of(d, s->in[0]);
    if (x->rank == 0 || x->count == 0) return false;
    s->axis = (int)peer_pick(d, x->rank);
    return true;
}

// ---- gather and its kin; indices count from 0, as PyTorch's must

static bool draw_gather(peer_draw *d, peer_step *s)
{
    if (!draw_axis(d, s)) return false;
    peer_value x = *peer_value_of(d, s->in[0]);
    int64_t    size[TN_MAX_RANK];
    for (int i = 0; i < x.rank; i++)
        size[i] = i == s->axis ? 1 + peer_pick(d, 4) : 1 + peer_pick(d, x.size[i]);
    s->nin   = 2;
    s->in[1] = peer_new_data(d, peer_maybe(d, 70) ? TN_I64 : TN_I32, x.rank, size, LAW_INDEX,
                             x.size[s->axis]);
    return s->in[1].step >= 0;
}

static int call_gather(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    y[0] = tn_gather(x[0], s->axis, x[1]);
    return one(y);
}

const peer_form form_gather = { draw_gather, call_gather, "tn_gather($0, #a, $1)",
                                "torch.gather($0, #a, $1.long())", GIVES_ONE };

static bool draw_take(peer_draw *d, peer_step *s)
{
    if (!draw_axis(d, s)) return false;
    peer_value x = *peer_value_of(d, s->in[0]);
    int64_t    size[TN_MAX_RANK];
    for (int i = 0; i < x.rank; i++)
        size[i] = i == s->axis ? 1 + peer_pick(d, 4) : peer_maybe(d, 30) ? 1 : x.size[i];
    s->nin   = 2;
    s->in[1] = peer_new_data(d, TN_I64, x.rank, size, LAW_INDEX, x.size[s->axis]);
    return s->in[1].step >= 0;
}

static int call_take(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    y[0] = tn_take_along_axis(x[0], x[1], s->axis);
    return one(y);
}

const peer_form form_take = { draw_take, call_take, "tn_take_along_axis($0, $1, #a)",
                              "torch.take_along_dim($0, $1, #a)", GIVES_ONE };

static bool draw_index_select(peer_draw *d, peer_step *s)
{
    if (!draw_axis(d, s)) return false;
    int64_t bound = peer_value_of(d, s->in[0])->size[s->axis], n = 1 + peer_pick(d, 5);
    s->nin   = 2;
    s->in[1] = peer_new_data(d, peer_maybe(d, 70) ? TN_I64 : TN_I32, 1, &n, LAW_INDEX, bound);
    return s->in[1].step >= 0;
}

static int call_index_select(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    y[0] = tn_index_select(x[0], s->axis, x[1]);
    return one(y);
}

const peer_form form_index_select = { draw_index_select, call_index_select,
                                      "tn_index_select($0, #a, $1)",
                                      "torch.index_select($0, #a, $1)", GIVES_ONE };

static bool draw_embedding(peer_draw *d, peer_step *s)
{
    if (!draw_axis(d, s) || peer_value_of(d, s->in[0])->rank != 2) return false;
    int64_t size[TN_MAX_RANK], bound = peer_value_of(d, s->in[0])->size[0];
    int     rank = peer_new_shape(d, size);
    for (int i = 0; i < rank; i++)
        if (size[i] > 4) size[i] = 4;
    s->nin   = 2;
    s->in[1] = peer_new_data(d, TN_I64, rank < 3 ? rank : 2, size, LAW_INDEX, bound);
    return s->in[1].step >= 0;
}

static int call_embedding(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    (void)s;
    y[0] = tn_embed(x[1], x[0]);
    return one(y);
}

const peer_form form_embedding = { draw_embedding, call_embedding, "tn_embed($1, $0)",
                                   "F.embedding($1, $0)", GIVES_ONE };

static bool draw_one_hot(peer_draw *d, peer_step *s)
{
    int64_t size[TN_MAX_RANK];
    int     rank = peer_new_shape(d, size);
    s->k[0]      = 1 + peer_pick(d, 5);
    s->nin       = 1;
    s->in[0]     = peer_new_data(d, TN_I64, rank, size, LAW_INDEX, s->k[0]);
    return s->in[0].step >= 0;
}

static int call_one_hot(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    y[0] = tn_one_hot(x[0], s->k[0]);
    return one(y);
}

const peer_form form_one_hot = { draw_one_hot, call_one_hot, "tn_one_hot($0, #0)",
                                 "F.one_hot($0, #0)", GIVES_ONE };

// ---- scatter: the values have the shape of the index, which in one without sums names no place
// twice

static bool draw_scatter(peer_draw *d, peer_step *s)
{
    if (!draw_axis(d, s)) return false;
    peer_value x     = *peer_value_of(d, s->in[0]);
    bool       added = s->row->form == &form_scatter_add;
    int64_t    size[TN_MAX_RANK], bound = x.size[s->axis];
    for (int i = 0; i < x.rank; i++) size[i] = 1 + peer_pick(d, x.size[i]);
    if (added) size[s->axis] = 1 + peer_pick(d, 6);
    s->nin   = 3;
    s->in[1] = added ? peer_new_data(d, TN_I64, x.rank, size, LAW_INDEX, bound)
                     : peer_new_places(d, x.rank, size, s->axis, bound);
    s->in[2] = peer_new_like(d, x.dtype, x.rank, size);
    return s->in[1].step >= 0 && s->in[2].step >= 0;
}

static int call_scatter(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    y[0] = s->row->form == &form_scatter_add ? tn_scatter_add(x[0], s->axis, x[1], x[2])
                                             : tn_scatter(x[0], s->axis, x[1], x[2]);
    return one(y);
}

const peer_form form_scatter     = { draw_scatter, call_scatter, "tn_scatter($0, #a, $1, $2)",
                                     "torch.scatter($0, #a, $1, $2)", GIVES_ONE };
const peer_form form_scatter_add = { draw_scatter, call_scatter, "tn_scatter_add($0, #a, $1, $2)",
                                     "torch.scatter_add($0, #a, $1, $2)", GIVES_ONE };

// ---- sorting

static int call_pair(tn_pair p, tn_tensor **y)
{
    y[0] = p.values;
    y[1] = p.indices;
    return y[0] && y[1] ? 2 : -1;
}

static bool draw_sort(peer_draw *d, peer_step *s)
{
    s->flag = peer_maybe(d, 50);
    if (s->row->form == &form_sort) s->outs = 2;
    return draw_axis(d, s);
}

static int call_sort(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    return call_pair(tn_sort(x[0], s->axis, s->flag), y);
}

const peer_form form_sort = { draw_sort, call_sort, "tn_sort($0, #a, #b)",
                              "torch.sort($0, dim=#a, descending=#b, stable=True)", GIVES_PAIR };

static int call_argsort(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    y[0] = tn_argsort(x[0], s->axis, s->flag);
    return one(y);
}

const peer_form form_argsort = { draw_sort, call_argsort, "tn_argsort($0, #a, #b)",
                                 "torch.argsort($0, dim=#a, descending=#b, stable=True)",
                                 GIVES_ONE };

static bool draw_topk(peer_draw *d, peer_step *s)
{
    if (!draw_axis(d, s)) return false;
    s->flag = peer_maybe(d, 70);
    s->outs = 2;
    s->k[0] = 1 + peer_pick(d, peer_value_of(d, s->in[0])->size[s->axis]);
    return true;
}

static int call_topk(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    return call_pair(tn_topk(x[0], s->k[0], s->axis, s->flag), y);
}

const peer_form form_topk = { draw_topk, call_topk, "tn_topk($0, #0, #a, #b)",
                              "torch.topk($0, #0, dim=#a, largest=#b)", GIVES_PAIR };

// ---- writes

static bool is_free(const peer_value *v, const void *user)
{
    const peer_draw *d = user;
    return !d->s->frozen[v->store] && !v->overlaps && v->dtype != TN_BOOL && v->count > 0;
}

static bool fits_into(const peer_value *v, const void *user)
{
    const peer_value *x = user;
    if (v->rank > x->rank || v->store == x->store) return false;
    if (v->dtype != x->dtype && !(peer_is_float(x->dtype) && !peer_is_float(v->dtype)))
        return false;
    for (int i = 1; i <= v->rank; i++)
        if (v->size[v->rank - i] != 1 && v->size[v->rank - i] != x->size[x->rank - i]) return false;
    return true;
}

static bool draw_write(peer_draw *d, peer_step *s)
{
    if (!peer_pick_value(d, is_free, d, &s->in[0])) return false;
    peer_value x = *peer_value_of(d, s->in[0]);
    s->nin       = 2;
    s->outs      = 0;
    if (peer_maybe(d, 60) && peer_pick_value(d, fits_into, &x, &s->in[1])) return true;
    s->in[1] = s->row->needs & NEEDS_NONZERO
                   ? peer_new_data(d, x.dtype, x.rank, x.size, LAW_POSITIVE, 0)
                   : peer_new_like(d, x.dtype, x.rank, x.size);
    return s->in[1].step >= 0;
}

static int call_write(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    (void)y;
    return s->row->fn.two(x[0], x[1]) ? 0 : -1;
}

const peer_form form_write = { draw_write, call_write, "tn_##($0, $1)", "$0.##($1)", GIVES_NONE };

static bool draw_write_number(peer_draw *d, peer_step *s)
{
    if (!peer_pick_value(d, is_free, d, &s->in[0])) return false;
    s->nin    = 1;
    s->outs   = 0;
    s->num[0] = peer_is_float(peer_value_of(d, s->in[0])->dtype) ? (double)(peer_pick(d, 9) - 4) / 4
                                                                 : (double)peer_pick(d, 4);
    return true;
}

static int call_write_number(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    (void)y;
    return s->row->fn.number(x[0], s->num[0]) ? 0 : -1;
}

const peer_form form_write_number = { draw_write_number, call_write_number, "tn_##($0, #x)",
                                      "$0.##(#x)", GIVES_NONE };

// ---- reads on the way

static bool draw_read(peer_draw *d, peer_step *s)
{
    s->outs = 0;
    s->nin  = 1;
    return peer_pick_value(d, NULL, NULL, &s->in[0]);
}

static int call_read(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    (void)s, (void)y;
    return tn_eval_of(x[0]) == TN_OK ? 0 : -1;
}

const peer_form form_read = { draw_read, call_read, "tn_eval_of($0)", "pass", GIVES_NONE };

// ---- gradients: in has ny values y, as many gy (or nothing, for 1), then the leaves

static bool needs(const peer_value *v, const void *user)
{
    (void)user;
    return peer_is_float(v->dtype) && tn_needs_grad(v->t) && v->count > 0;
}

static bool has_input(const peer_step *s, peer_ref r, int first)
{
    for (int i = first; i < s->nin; i++)
        if (peer_same_value(s->in[i], r)) return true;
    return false;
}

// Whether a product took a matrix of a batch that lies where v does, whose matrices may be one.
// Tenon then multiplies by that one, and has no gradient of each.
static bool is_right_operand(const peer_draw *d, const peer_value *v)
{
    for (int i = 0; i < d->p->count && v->overlaps; i++) {
        const peer_step *s     = &d->p->step[i];
        bool             takes = s->row->form == &form_matmul || s->row->form == &form_attention;
        for (int k = 1; takes && k < s->nin; k++)
            if (s->in[k].step >= 0 && peer_value_of(d, s->in[k])->store == v->store) return true;
    }
    return false;
}

// Whether the gradient for a value may be asked: for a leaf always; for others unless something is
// written, since PyTorch then means the value after the write, or gradients were taken before:
// whether those depend on a value on the way (on a result or on what it was made from) is open.
static bool may_be_asked(peer_draw *d, peer_ref r)
{
    const peer_program *p = d->p;
    if (r.out >= p->step[r.step].outs) return false;
    if (p->step[r.step].leaf) return true;
    for (int i = 0; i < p->count; i++)
        if ((p->step[i].row->needs & WRITES) || p->step[i].row == &peer_grad_row) return false;
    const peer_value *v = peer_value_of(d, r);
    return peer_maybe(d, 25) && needs(v, NULL) && !is_right_operand(d, v);
}

static void draw_leaves(peer_draw *d, peer_step *s)
{
    int wanted = 1 + (int)peer_pick(d, 3), first = s->nin;
    for (int tries = 0; tries < 30 && s->nin - first < wanted; tries++) {
        peer_ref r = { (int)peer_pick(d, d->p->count), peer_maybe(d, 80) ? 0 : 1 };
        if (may_be_asked(d, r) && !has_input(s, r, first)) s->in[s->nin++] = r;
    }
    s->outs = s->nin - first;
}

static bool draw_grad(peer_draw *d, peer_step *s)
{
    s->no_grad = false;
    s->ny      = peer_maybe(d, 20) ? 2 : 1;
    for (int i = 0; i < s->ny; i++)
        if (!peer_pick_value(d, needs, NULL, &s->in[i])) return false;
    if (s->ny == 2 && peer_same_value(s->in[0], s->in[1])) s->ny = 1;
    for (int i = 0; i < s->ny; i++) {
        peer_value y     = *peer_value_of(d, s->in[i]);
        s->in[s->ny + i] = (peer_ref){ -1, 0 };
        if (y.count == 1 && peer_maybe(d, 50)) continue;
        s->in[s->ny + i] = peer_new_data(d, y.dtype, y.rank, y.size, LAW_SMOOTH, 0);
        if (s->in[s->ny + i].step < 0) return false;
    }
    s->nin = 2 * s->ny;
    draw_leaves(d, s);
    return s->outs > 0;
}

static int call_grad(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    int nx = s->nin - 2 * s->ny;
    return tn_grad(s->ny, x, nx, x + 2 * s->ny, x + s->ny, y) == TN_OK ? nx : -1;
}

// Both texts name their inputs by part: $y, $g and $x.
const peer_form form_grad = { draw_grad, call_grad,
                              "tn_grad(#Y, (tn_tensor *[]){ $y }, #X, "
                              "(tn_tensor *[]){ $x }, (tn_tensor *[]){ $g }, @)",
                              "grad([$y], [$x], [$g])", GIVES_ARRAY };
