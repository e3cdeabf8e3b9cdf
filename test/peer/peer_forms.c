// peer_forms.c: forms of maps, reductions and scans.
#include "peer.h"

#include <string.h>

// ---- data and maps of one input

static bool draw_one(peer_draw *d, peer_step *s)
{
    return peer_pick_input(d, s, 0);
}

static int call_one(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    return (y[0] = s->row->fn.one(x[0])) ? 1 : -1;
}

const peer_form form_data  = { .gives = GIVES_ONE };
const peer_form form_unary = { draw_one, call_one, "tn_##($0)", "torch.##($0)", GIVES_ONE };

// ---- maps of two inputs

// Whether two shapes broadcast, to not too many elements.
static bool broadcasts(const peer_value *v, const void *user)
{
    const peer_value *a = user;
    int64_t           n = 1;
    for (int i = 1; i <= a->rank || i <= v->rank; i++) {
        int64_t m = i <= a->rank ? a->size[a->rank - i] : 1,
                k = i <= v->rank ? v->size[v->rank - i] : 1;
        if (m != k && m != 1 && k != 1) return false;
        n *= m == 1 ? k : m;
    }
    return n <= 2000;
}

static bool broadcasts_bool(const peer_value *v, const void *user)
{
    return v->dtype == TN_BOOL && broadcasts(v, user);
}

// The shape of x with some axes of size 1, and some leading ones left away.
static int smaller_shape(peer_draw *d, const peer_value *x, int64_t *size)
{
    int drop = peer_maybe(d, 30) ? (int)peer_pick(d, x->rank + 1) : 0;
    for (int i = drop; i < x->rank; i++) size[i - drop] = peer_maybe(d, 20) ? 1 : x->size[i];
    return x->rank - drop;
}

static peer_ref new_operand(peer_draw *d, const peer_row *row, const peer_value *x, tn_dtype dt)
{
    int64_t size[TN_MAX_RANK];
    int     rank = smaller_shape(d, x, size);
    return row->needs & NEEDS_NONZERO || !strcmp(row->name, "pow") || (row->needs & NEEDS_INT)
               ? peer_new_data(d, dt, rank, size, LAW_POSITIVE, 0)
               : peer_new_like(d, dt, rank, size);
}

// The second operand: a value that broadcasts, else new data, mostly of the same dtype.
static bool draw_two(peer_draw *d, peer_step *s)
{
    if (!peer_pick_input(d, s, 0)) return false;
    peer_value x = *peer_value_of(d, s->in[0]);
    s->nin       = 2;
    if (peer_maybe(d, 60) && peer_pick_value(d, broadcasts, &x, &s->in[1])) return true;
    tn_dtype dt = peer_maybe(d, 70) ? x.dtype : peer_new_dtype(d);
    if ((s->row->needs & NEEDS_INT) && peer_is_float(dt)) dt = TN_I64;
    s->in[1] = new_operand(d, s->row, &x, dt);
    if (peer_maybe(d, 20)) {
        peer_ref a = s->in[0];
        s->in[0]   = s->in[1];
        s->in[1]   = a;
    }
    return s->in[0].step >= 0 && s->in[1].step >= 0;
}

static int call_two(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    return (y[0] = s->row->fn.two(x[0], x[1])) ? 1 : -1;
}

const peer_form form_binary = { draw_two, call_two, "tn_##($0, $1)", "torch.##($0, $1)",
                                GIVES_ONE };

// ---- with numbers

static const double fractions[] = { 0.5, -1.5, 2, -1, 0.25, 3, 1.1, -0.7 };
static const double powers[]    = { 2, 3, 0.5, -1, 1.5 };

static bool draw_number(peer_draw *d, peer_step *s)
{
    if (!peer_pick_input(d, s, 0)) return false;
    bool whole = !peer_is_float(peer_value_of(d, s->in[0])->dtype);
    bool power = !strcmp(s->row->name, "pow_s");
    s->num[0]  = power ? powers[peer_pick(d, whole ? 2 : 5)] : fractions[peer_pick(d, 8)];
    if (whole && !power && peer_maybe(d, 80)) s->num[0] = (double)(1 + peer_pick(d, 4));
    // Between the multiples of 1/4 of data, where a limit is one of a gradient.
    if (s->row->needs & BETWEEN && !whole) s->num[0] += 0.0372;
    if (s->row->needs & BETWEEN && whole) s->num[0] = (double)(1 + peer_pick(d, 4));
    return true;
}

static int call_number(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    return (y[0] = s->row->fn.number(x[0], s->num[0])) ? 1 : -1;
}

const peer_form form_number = { draw_number, call_number, "tn_##($0, #x)", NULL, GIVES_ONE };

static bool draw_clamp(peer_draw *d, peer_step *s)
{
    if (!peer_pick_input(d, s, 0)) return false;
    bool whole = !peer_is_float(peer_value_of(d, s->in[0])->dtype);
    s->num[0]  = whole ? (double)peer_pick(d, 2) : (double)(peer_pick(d, 5) - 5) / 4 + 0.0372;
    s->num[1]  = s->num[0] + (double)(1 + peer_pick(d, 4)) / (whole ? 1 : 4);
    return true;
}

static int call_clamp(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    return (y[0] = tn_clamp(x[0], s->num[0], s->num[1])) ? 1 : -1;
}

const peer_form form_clamp = { draw_clamp, call_clamp, "tn_clamp($0, #x, #y)",
                               "torch.clamp($0, #x, #y)", GIVES_ONE };

// ---- casts and choices

static bool draw_cast(peer_draw *d, peer_step *s)
{
    s->dtype = peer_new_dtype(d);
    return peer_pick_input(d, s, 0);
}

static int call_cast(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    return (y[0] = tn_cast(x[0], s->dtype)) ? 1 : -1;
}

const peer_form form_cast = { draw_cast, call_cast, "tn_cast($0, #d)", "$0.to(#d, copy=True)",
                              GIVES_ONE };

static bool draw_mask(peer_draw *d, const peer_value *x, peer_ref *mask)
{
    int64_t size[TN_MAX_RANK];
    if (peer_maybe(d, 60) && peer_pick_value(d, broadcasts_bool, x, mask)) return true;
    int rank = smaller_shape(d, x, size);
    *mask    = peer_new_data(d, TN_BOOL, rank, size, LAW_GRID, 0);
    return mask->step >= 0;
}

static bool draw_where(peer_draw *d, peer_step *s)
{
    peer_step two = *s;
    if (!draw_two(d, &two)) return false;
    peer_value x = *peer_value_of(d, two.in[0]);
    s->nin       = 3;
    s->in[1]     = two.in[0];
    s->in[2]     = two.in[1];
    return draw_mask(d, &x, &s->in[0]);
}

static int call_where(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    (void)s;
    return (y[0] = tn_where(x[0], x[1], x[2])) ? 1 : -1;
}

const peer_form form_where = { draw_where, call_where, "tn_where($0, $1, $2)",
                               "torch.where($0, $1, $2)", GIVES_ONE };

// masked_fill wants a mask that broadcasts to x, not the other way.
static bool fits_inside(const peer_value *v, const void *user)
{
    const peer_value *x = user;
    if (v->dtype != TN_BOOL || v->rank > x->rank) return false;
    for (int i = 1; i <= v->rank; i++)
        if (v->size[v->rank - i] != 1 && v->size[v->rank - i] != x->size[x->rank - i]) return false;
    return true;
}

static bool draw_masked_fill(peer_draw *d, peer_step *s)
{
    if (!peer_pick_input(d, s, 0)) return false;
    peer_value x = *peer_value_of(d, s->in[0]);
    int64_t    size[TN_MAX_RANK];
    s->nin    = 2;
    s->num[0] = peer_is_float(x.dtype) ? fractions[peer_pick(d, 5)] : (double)peer_pick(d, 2);
    if (peer_maybe(d, 60) && peer_pick_value(d, fits_inside, &x, &s->in[1])) return true;
    int rank = smaller_shape(d, &x, size);
    s->in[1] = peer_new_data(d, TN_BOOL, rank, size, LAW_GRID, 0);
    return s->in[1].step >= 0;
}

static int call_masked_fill(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    return (y[0] = tn_masked_fill(x[0], x[1], s->num[0])) ? 1 : -1;
}

const peer_form form_masked_fill = { draw_masked_fill, call_masked_fill,
                                     "tn_masked_fill($0, $1, #x)", "$0.masked_fill($1, #x)",
                                     GIVES_ONE };

// ---- reductions: k[0] is the spelling; list has the axes, of `all` all of them

enum { BY_AXIS, BY_KEEP, BY_ALL, BY_AXES };

static void draw_axes(peer_draw *d, peer_step *s, int rank)
{
    bool taken[TN_MAX_RANK] = { false };
    int  many               = s->k[0] == BY_ALL ? rank : 1 + (int)peer_pick(d, rank);
    s->n                    = 0;
    if (s->k[0] == BY_AXIS || s->k[0] == BY_KEEP) many = 1;
    for (int i = 0; i < many; i++) {
        int axis = s->k[0] == BY_ALL ? i : (int)peer_pick(d, rank);
        if (taken[axis]) continue;
        taken[axis]     = true;
        s->list[s->n++] = peer_maybe(d, 30) && s->k[0] != BY_ALL ? axis - rank : axis;
    }
}

static bool draw_reduce(peer_draw *d, peer_step *s)
{
    if (!peer_pick_input(d, s, 0)) return false;
    const peer_value *x = peer_value_of(d, s->in[0]);
    // Of nothing there is no largest; PyTorch says so too.
    if (x->count == 0) return false;
    s->k[0] = x->rank == 0 ? BY_ALL : peer_pick(d, s->row->axes ? 4 : 3);
    s->flag = s->k[0] == BY_KEEP || (s->k[0] == BY_AXES && peer_maybe(d, 50));
    draw_axes(d, s, x->rank);
    return true;
}

static int call_reduce(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    int axes[TN_MAX_RANK];
    for (int i = 0; i < s->n; i++) axes[i] = (int)s->list[i];
    switch (s->k[0]) {
    case BY_AXIS: y[0] = s->row->fn.axis(x[0], axes[0]); break;
    case BY_KEEP: y[0] = s->row->keep(x[0], axes[0]); break;
    case BY_ALL: y[0] = s->row->all(x[0]); break;
    default: y[0] = s->row->axes(x[0], s->n, axes, s->flag); break;
    }
    return y[0] ? 1 : -1;
}

// The spelling of C depends on k[0]: peer_text.c knows.
const peer_form form_reduce = { draw_reduce, call_reduce, NULL, "torch.##($0, #A, keepdim=#b)",
                                GIVES_ONE };
const peer_form form_arg    = { draw_reduce, call_reduce, NULL, "arg(torch.##, $0, #A, #b)",
                                GIVES_ONE };

// ---- along one axis

static bool draw_scan(peer_draw *d, peer_step *s)
{
    if (!peer_pick_input(d, s, 0)) return false;
    int rank = peer_value_of(d, s->in[0])->rank;
    if (rank == 0 || peer_value_of(d, s->in[0])->count == 0) return false;
    s->axis = (int)peer_pick(d, rank) - (peer_maybe(d, 30) ? rank : 0);
    return true;
}

static int call_scan(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    return (y[0] = s->row->fn.axis(x[0], s->axis)) ? 1 : -1;
}

const peer_form form_scan = { draw_scan, call_scan, "tn_##($0, #a)", "torch.##($0, #a)",
                              GIVES_ONE };
const peer_form form_flip = { draw_scan, call_scan, "tn_##($0, #a)", "torch.flip($0, (#a,))",
                              GIVES_ONE };
