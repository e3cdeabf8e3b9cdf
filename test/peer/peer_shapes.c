// peer_shapes.c: forms of views and movement.
#include "peer.h"

#include <string.h>

// A random axis of the first input, sometimes counted from the end. False for what has none.
static bool draw_axis(peer_draw *d, peer_step *s)
{
    if (!peer_pick_input(d, s, 0)) return false;
    int rank = peer_value_of(d, s->in[0])->rank;
    if (rank == 0) return false;
    s->axis = (int)peer_pick(d, rank) - (peer_maybe(d, 30) ? rank : 0);
    return true;
}

static int64_t size_at(const peer_value *v, int axis)
{
    return v->size[axis < 0 ? axis + v->rank : axis];
}

static int one(tn_tensor **y)
{
    return y[0] ? 1 : -1;
}

// ---- cutting

// k: start, stop, step. PyTorch has no negative steps: those are a flip there.
static bool draw_slice(peer_draw *d, peer_step *s)
{
    if (!draw_axis(d, s)) return false;
    int64_t n = size_at(peer_value_of(d, s->in[0]), s->axis);
    if (n == 0) return false;
    s->k[0] = peer_pick(d, n);
    s->k[1] = s->k[0] + 1 + peer_pick(d, n - s->k[0]);
    s->k[2] = 1 + peer_pick(d, peer_maybe(d, 30) ? 3 : 1);
    if (peer_maybe(d, 20)) s->k[0] -= n;
    if (peer_maybe(d, 2)) s->k[1] = s->k[0];
    return true;
}

static int call_slice(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    y[0] = tn_slice(x[0], s->axis, s->k[0], s->k[1], s->k[2]);
    return one(y);
}

const peer_form form_slice = { draw_slice, call_slice, "tn_slice($0, #a, #0, #1, #2)",
                               "cut($0, #a, #0, #1, #2)", GIVES_ONE };

static bool draw_select(peer_draw *d, peer_step *s)
{
    if (!draw_axis(d, s)) return false;
    int64_t n = size_at(peer_value_of(d, s->in[0]), s->axis);
    if (n == 0) return false;
    s->k[0] = peer_pick(d, n) - (peer_maybe(d, 30) ? n : 0);
    return true;
}

static int call_select(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    y[0] = tn_select(x[0], s->axis, s->k[0]);
    return one(y);
}

const peer_form form_select = { draw_select, call_select, "tn_select($0, #a, #0)",
                                "$0.select(#a, #0)", GIVES_ONE };

static bool draw_squeeze(peer_draw *d, peer_step *s)
{
    return draw_axis(d, s) && size_at(peer_value_of(d, s->in[0]), s->axis) == 1;
}

static int call_axis(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    y[0] = s->row->fn.axis(x[0], s->axis);
    return one(y);
}

const peer_form form_squeeze = { draw_squeeze, call_axis, "tn_##($0, #a)", "$0.##(#a)", GIVES_ONE };

static bool draw_unsqueeze(peer_draw *d, peer_step *s)
{
    if (!peer_pick_input(d, s, 0)) return false;
    int rank = peer_value_of(d, s->in[0])->rank;
    s->axis  = (int)peer_pick(d, rank + 1) - (peer_maybe(d, 30) ? rank + 1 : 0);
    return rank < 6;
}

const peer_form form_unsqueeze = { draw_unsqueeze, call_axis, "tn_##($0, #a)", "$0.##(#a)",
                                   GIVES_ONE };

// ---- order of axes

static bool draw_transpose(peer_draw *d, peer_step *s)
{
    if (!draw_axis(d, s)) return false;
    s->k[0] = peer_pick(d, peer_value_of(d, s->in[0])->rank);
    return true;
}

static int call_transpose(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    y[0] = tn_transpose(x[0], s->axis, (int)s->k[0]);
    return one(y);
}

const peer_form form_transpose = { draw_transpose, call_transpose, "tn_transpose($0, #a, #0)",
                                   "$0.transpose(#a, #0)", GIVES_ONE };

static bool draw_permute(peer_draw *d, peer_step *s)
{
    if (!draw_axis(d, s)) return false;
    s->n = peer_value_of(d, s->in[0])->rank;
    for (int i = 0; i < s->n; i++) s->list[i] = i;
    for (int i = s->n - 1; i > 0; i--) {
        int64_t k = peer_pick(d, i + 1), t = s->list[i];
        s->list[i] = s->list[k];
        s->list[k] = t;
    }
    return true;
}

static int call_permute(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    int axes[TN_MAX_RANK];
    for (int i = 0; i < s->n; i++) axes[i] = (int)s->list[i];
    y[0] = tn_permute(x[0], s->n, axes);
    return one(y);
}

const peer_form form_permute = { draw_permute, call_permute, "tn_permute($0, #A)", "$0.permute(#A)",
                                 GIVES_ONE };

// ---- shapes

static bool draw_expand(peer_draw *d, peer_step *s)
{
    if (!peer_pick_input(d, s, 0)) return false;
    const peer_value *x    = peer_value_of(d, s->in[0]);
    int               more = x->rank < 4 ? (int)peer_pick(d, 2) : 0;
    int64_t           n    = x->count;
    s->n                   = x->rank + more;
    for (int i = 0; i < s->n; i++) {
        int64_t have = i < more ? 1 : x->size[i - more];
        s->list[i]   = have == 1 && n < 400 ? 1 + peer_pick(d, 4) : have;
        if (have == 1) n *= s->list[i];
        if (i >= more && s->list[i] == have && peer_maybe(d, 20)) s->list[i] = -1;
    }
    return true;
}

static int call_expand(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    y[0] = tn_expand(x[0], s->n, s->list);
    return one(y);
}

const peer_form form_expand = { draw_expand, call_expand, "tn_expand($0, #S)", "$0.expand(#S)",
                                GIVES_ONE };

// Cuts the number of elements into factors at random.
static bool draw_reshape(peer_draw *d, peer_step *s)
{
    if (!peer_pick_input(d, s, 0)) return false;
    int64_t n = peer_value_of(d, s->in[0])->count;
    if (n == 0) return false;
    s->n = 0;
    while (s->n < 4 && (n > 1 || peer_maybe(d, 30))) {
        int64_t f = 1;
        for (int64_t k = 2; k <= n; k++)
            if (n % k == 0 && peer_maybe(d, 60)) {
                f = k;
                break;
            }
        if (s->n == 3) f = n;
        s->list[s->n++] = f;
        n /= f;
    }
    if (s->n > 0 && n > 1) s->list[s->n - 1] *= n;
    if (s->n > 0 && peer_maybe(d, 30)) s->list[peer_pick(d, s->n)] = -1;
    return true;
}

static int call_reshape(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    y[0] = tn_reshape(x[0], s->n, s->list);
    return one(y);
}

const peer_form form_reshape = { draw_reshape, call_reshape, "tn_reshape($0, #S)", "$0.reshape(#S)",
                                 GIVES_ONE };

static bool draw_diagonal(peer_draw *d, peer_step *s)
{
    if (!draw_axis(d, s)) return false;
    const peer_value *x = peer_value_of(d, s->in[0]);
    if (x->rank < 2) return false;
    s->k[0] = peer_pick(d, 3) - 1;
    s->k[1] = peer_pick(d, x->rank);
    s->k[2] = (s->k[1] + 1 + peer_pick(d, x->rank - 1)) % x->rank;
    // An offset past the last column is an error of Tenon's, and no elements in PyTorch.
    return s->k[0] < x->size[s->k[2]] && -s->k[0] < x->size[s->k[1]];
}

static int call_diagonal(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    y[0] = tn_diagonal(x[0], s->k[0], (int)s->k[1], (int)s->k[2]);
    return one(y);
}

const peer_form form_diagonal = { draw_diagonal, call_diagonal, "tn_diagonal($0, #0, #1, #2)",
                                  "torch.diagonal($0, #0, #1, #2)", GIVES_ONE };

static bool draw_window(peer_draw *d, peer_step *s)
{
    if (!draw_axis(d, s)) return false;
    int64_t n = size_at(peer_value_of(d, s->in[0]), s->axis);
    if (n == 0) return false;
    s->k[0] = 1 + peer_pick(d, n < 4 ? n : 4);
    s->k[1] = 1 + peer_pick(d, 3);
    return true;
}

static int call_window(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    y[0] = tn_window(x[0], s->axis, s->k[0], s->k[1]);
    return one(y);
}

const peer_form form_window = { draw_window, call_window, "tn_window($0, #a, #0, #1)",
                                "$0.unfold(#a, #0, #1)", GIVES_ONE };

// ---- several views

static bool draw_split(peer_draw *d, peer_step *s)
{
    if (!draw_axis(d, s)) return false;
    int64_t n = size_at(peer_value_of(d, s->in[0]), s->axis);
    if (n == 0) return false;
    s->k[0] = (n + 3) / 4 + peer_pick(d, n - (n + 3) / 4 + 1);
    s->outs = (int)((n + s->k[0] - 1) / s->k[0]);
    return true;
}

static int call_split(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    return tn_split(x[0], s->k[0], s->axis, PEER_OUTS, y);
}

const peer_form form_split = { draw_split, call_split, "tn_split($0, #0, #a, 4, @)",
                               "torch.split($0, #0, #a)", GIVES_ARRAY };

static bool draw_chunk(peer_draw *d, peer_step *s)
{
    if (!draw_axis(d, s)) return false;
    int64_t n = size_at(peer_value_of(d, s->in[0]), s->axis);
    if (n == 0) return false;
    s->k[0] = 1 + peer_pick(d, 4);
    s->outs = (int)((n + (n + s->k[0] - 1) / s->k[0] - 1) / ((n + s->k[0] - 1) / s->k[0]));
    return true;
}

static int call_chunk(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    return tn_chunk(x[0], (int)s->k[0], s->axis, y);
}

const peer_form form_chunk = { draw_chunk, call_chunk, "tn_chunk($0, #0, #a, @)",
                               "torch.chunk($0, #0, #a)", GIVES_ARRAY };

// ---- joining

// Shapes equal but for one axis, or (axis -1) equal.
typedef struct {
    const peer_value *x;
    int               axis;
} join;

static bool joins(const peer_value *v, const void *user)
{
    const join *j = user;
    if (v->rank != j->x->rank) return false;
    for (int i = 0; i < v->rank; i++)
        if (i != j->axis && v->size[i] != j->x->size[i]) return false;
    return true;
}

static bool draw_more(peer_draw *d, peer_step *s, const peer_value *x, int axis)
{
    int64_t size[TN_MAX_RANK];
    join    j    = { x, axis };
    int     many = 2 + (int)peer_pick(d, 2);
    for (s->nin = 1; s->nin < many; s->nin++) {
        if (peer_pick_value(d, joins, &j, &s->in[s->nin]) && peer_maybe(d, 80)) continue;
        memcpy(size, x->size, sizeof size);
        if (axis >= 0) size[axis] = 1 + peer_pick(d, 4);
        s->in[s->nin] = peer_new_like(d, peer_maybe(d, 80) ? x->dtype : peer_new_dtype(d), x->rank,
                                      size);
        if (s->in[s->nin].step < 0) return false;
    }
    s->k[0] = s->nin;
    return true;
}

static bool draw_concat(peer_draw *d, peer_step *s)
{
    if (!draw_axis(d, s)) return false;
    peer_value x = *peer_value_of(d, s->in[0]);
    return draw_more(d, s, &x, s->axis < 0 ? s->axis + x.rank : s->axis);
}

static int call_concat(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    y[0] = tn_concat(s->nin, x, s->axis);
    return one(y);
}

const peer_form form_concat = { draw_concat, call_concat,
                                "tn_concat(#0, (tn_tensor *[]){ $* }, #a)", "torch.cat([$*], #a)",
                                GIVES_ONE };

static bool draw_stack(peer_draw *d, peer_step *s)
{
    if (!peer_pick_input(d, s, 0)) return false;
    peer_value x = *peer_value_of(d, s->in[0]);
    s->axis      = (int)peer_pick(d, x.rank + 1);
    return x.rank < 5 && draw_more(d, s, &x, -1);
}

static int call_stack(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    y[0] = tn_stack(s->nin, x, s->axis);
    return one(y);
}

const peer_form form_stack = { draw_stack, call_stack, "tn_stack(#0, (tn_tensor *[]){ $* }, #a)",
                               "stack([$*], #a)", GIVES_ONE };

// ---- repeating, padding

static bool draw_repeat(peer_draw *d, peer_step *s)
{
    if (!peer_pick_input(d, s, 0)) return false;
    const peer_value *x = peer_value_of(d, s->in[0]);
    s->n                = x->rank + (x->rank < 4 ? (int)peer_pick(d, 2) : 0);
    int64_t n           = x->count;
    for (int i = 0; i < s->n; i++) {
        s->list[i] = n < 300 ? 1 + peer_pick(d, 3) : 1;
        n *= s->list[i];
    }
    return s->n > 0;
}

static int call_repeat(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    y[0] = tn_repeat(x[0], s->n, s->list);
    return one(y);
}

const peer_form form_repeat = { draw_repeat, call_repeat, "tn_repeat($0, #S)", "$0.repeat(#S)",
                                GIVES_ONE };

static bool draw_roll(peer_draw *d, peer_step *s)
{
    s->k[0] = peer_pick(d, 9) - 4;
    return draw_axis(d, s);
}

static int call_roll(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    y[0] = tn_roll(x[0], s->k[0], s->axis);
    return one(y);
}

const peer_form form_roll = { draw_roll, call_roll, "tn_roll($0, #0, #a)", "torch.roll($0, #0, #a)",
                              GIVES_ONE };

// list: before; k: after.
static bool draw_pad(peer_draw *d, peer_step *s)
{
    if (!draw_axis(d, s)) return false;
    const peer_value *x = peer_value_of(d, s->in[0]);
    s->n                = x->rank;
    for (int i = 0; i < s->n; i++) {
        s->list[i] = peer_pick(d, 3);
        s->k[i]    = peer_pick(d, 3);
        if (x->size[i] > 2 && peer_maybe(d, 15)) s->list[i] = -1;
    }
    s->num[0] = peer_is_float(x->dtype) ? (double)(peer_pick(d, 5) - 2) / 4
                                        : (double)peer_pick(d, 2);
    return x->rank <= 5;
}

static int call_pad(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    y[0] = tn_pad(x[0], s->list, s->k, s->num[0]);
    return one(y);
}

const peer_form form_pad = { draw_pad, call_pad,
                             "tn_pad($0, (int64_t[]){ #l }, (int64_t[]){ #k }, #x)",
                             "pad($0, [#l], [#k], #x)", GIVES_ONE };

static bool draw_band(peer_draw *d, peer_step *s)
{
    s->k[0] = peer_pick(d, 5) - 2;
    return draw_axis(d, s) && peer_value_of(d, s->in[0])->rank >= 2;
}

static int call_band(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    y[0] = s->row->fn.whole(x[0], s->k[0]);
    return one(y);
}

const peer_form form_band = { draw_band, call_band, "tn_##($0, #0)", "torch.##($0, #0)",
                              GIVES_ONE };

static bool draw_flatten(peer_draw *d, peer_step *s)
{
    if (!draw_axis(d, s)) return false;
    int rank = peer_value_of(d, s->in[0])->rank;
    if (s->axis < 0) s->axis += rank;
    s->k[0] = s->axis + peer_pick(d, rank - s->axis);
    return true;
}

static int call_flatten(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    y[0] = tn_flatten(x[0], s->axis, (int)s->k[0]);
    return one(y);
}

const peer_form form_flatten = { draw_flatten, call_flatten, "tn_flatten($0, #a, #0)",
                                 "flatten($0, #a, #0)", GIVES_ONE };
