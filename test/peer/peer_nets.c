// peer_nets.c: forms of products, convolutions, pools, norms, attention and losses. PyTorch
// promotes nothing here, so all inputs of a step have one dtype.
#include "peer.h"

#include <string.h>

static int one(tn_tensor **y)
{
    return y[0] ? 1 : -1;
}

// New data of x's dtype as input i; `left` percent of the time there is none.
static bool add_operand(peer_draw *d, peer_step *s, tn_dtype dt, int rank, const int64_t *size,
                        int left)
{
    s->in[s->nin] = (peer_ref){ -1, 0 };
    if (!peer_maybe(d, left)) {
        peer_law law = s->row->needs & NEEDS_EXACT || peer_maybe(d, 50) ? LAW_GRID : LAW_SMOOTH;
        peer_ref r   = peer_new_data(d, dt, rank, size, law, 0);
        if (r.step < 0) return false;
        s->in[s->nin] = r;
    }
    s->nin++;
    return true;
}

typedef struct {
    const peer_row *row;
    int             rank;  // exactly, or with a minus sign at least
} ranked;

static bool has_rank(const peer_value *v, const void *user)
{
    const ranked *r     = user;
    unsigned      needs = r->row->needs;
    if (r->rank >= 0 ? v->rank != r->rank : v->rank < -r->rank) return false;
    if (v->count == 0 || v->count > 1500 || v->dtype == TN_BOOL) return false;
    if ((needs & NEEDS_FLOAT) && !peer_is_float(v->dtype)) return false;
    return !((needs & NEEDS_EXACT) && !v->exact);
}

// The first input: a value of that rank, else new data, floats of any kind.
static bool draw_ranked(peer_draw *d, peer_step *s, int rank, peer_value *x)
{
    static const tn_dtype floats[] = { TN_F32, TN_F32, TN_F32, TN_F64, TN_F16, TN_BF16 };
    ranked                r        = { s->row, rank };
    int64_t               size[TN_MAX_RANK];
    int                   n = rank < 0 ? -rank + (int)peer_pick(d, 2) : rank;
    s->nin                  = 1;
    if (!(peer_maybe(d, 75) && peer_pick_value(d, has_rank, &r, &s->in[0]))) {
        for (int i = 0; i < n; i++) size[i] = 1 + peer_pick(d, i < 2 ? 4 : 7);
        s->in[0] = s->row->needs & NEEDS_EXACT
                       ? peer_new_data(d, floats[peer_pick(d, 6)], n, size, LAW_GRID, 0)
                       : peer_new_like(d, floats[peer_pick(d, 6)], n, size);
        if (s->in[0].step < 0) return false;
    }
    *x = *peer_value_of(d, s->in[0]);
    return true;
}

// ---- order of memory

static bool draw_channels_last(peer_draw *d, peer_step *s)
{
    peer_value x;
    return draw_ranked(d, s, 4, &x);
}

static int call_channels_last(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    (void)s;
    y[0] = tn_channels_last(x[0]);
    return one(y);
}

const peer_form form_channels_last = { draw_channels_last, call_channels_last,
                                       "tn_channels_last($0)",
                                       "$0.clone(memory_format=torch.channels_last)", GIVES_ONE };

// ---- products

typedef struct {
    const peer_value *a;
} product;

static bool multiplies(const peer_value *v, const void *user)
{
    const peer_value *a = ((const product *)user)->a;
    if (v->dtype != a->dtype || v->rank < 1 || v->count > 1500 || v->count == 0) return false;
    if (v->size[v->rank >= 2 ? v->rank - 2 : 0] != a->size[a->rank - 1]) return false;
    for (int i = 3; i <= a->rank && i <= v->rank; i++) {
        int64_t m = a->size[a->rank - i], n = v->size[v->rank - i];
        if (m != n && m != 1 && n != 1) return false;
    }
    return true;
}

static bool draw_matmul(peer_draw *d, peer_step *s)
{
    peer_value a;
    if (!draw_ranked(d, s, -1, &a)) return false;
    product p = { &a };
    if (peer_maybe(d, 50) && peer_pick_value(d, multiplies, &p, &s->in[1])) {
        s->nin = 2;
        return true;
    }
    int64_t size[TN_MAX_RANK];
    int     rank = peer_maybe(d, 15) ? 1 : peer_maybe(d, 75) || a.rank < 3 ? 2 : a.rank;
    for (int i = 0; i < rank - 2; i++) size[i] = peer_maybe(d, 30) ? 1 : a.size[i];
    if (rank >= 2) size[rank - 2] = a.size[a.rank - 1], size[rank - 1] = 1 + peer_pick(d, 6);
    else size[0] = a.size[a.rank - 1];
    return add_operand(d, s, a.dtype, rank, size, 0);
}

static int call_matmul(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    (void)s;
    y[0] = tn_matmul(x[0], x[1]);
    return one(y);
}

const peer_form form_matmul = { draw_matmul, call_matmul, "tn_matmul($0, $1)",
                                "torch.matmul($0, $1)", GIVES_ONE };

static bool draw_linear(peer_draw *d, peer_step *s)
{
    peer_value x;
    if (!draw_ranked(d, s, -1, &x)) return false;
    int64_t size[2] = { 1 + peer_pick(d, 6), x.size[x.rank - 1] };
    return add_operand(d, s, x.dtype, 2, size, 0) && add_operand(d, s, x.dtype, 1, size, 30);
}

static int call_linear(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    (void)s;
    y[0] = tn_linear(x[0], x[1], x[2]);
    return one(y);
}

const peer_form form_linear = { draw_linear, call_linear, "tn_linear($0, $1, $2)",
                                "F.linear($0, $1, $2)", GIVES_ONE };

// ---- convolutions: k has stride, padding and dilation, two each (three for three axes), groups,
// and the output padding of two

static int conv_axes(const peer_step *s)
{
    const peer_form *f = s->row->form;
    return f == &form_conv1d || f == &form_conv_transpose1d ? 1 : f == &form_conv3d ? 3 : 2;
}

// How many numbers an option has in k.
static int conv_room(const peer_step *s)
{
    return conv_axes(s) == 3 ? 3 : 2;
}

static tn_conv_opts conv_opts(const peer_step *s)
{
    int          n = conv_room(s);
    tn_conv_opts o = { .groups = s->k[3 * n] };
    for (int i = 0; i < n; i++) {
        o.stride[i]   = s->k[i];
        o.padding[i]  = s->k[n + i];
        o.dilation[i] = s->k[2 * n + i];
        if (n == 2) o.output_padding[i] = s->k[3 * n + 1 + i];
        // A 0 after the first would take the first.
        if (i && o.padding[0] && !o.padding[i]) o.padding[i] = TN_NO_PADDING;
        if (i && o.output_padding[0] && !o.output_padding[i]) o.output_padding[i] = TN_NO_PADDING;
    }
    return o;
}

// The window of one axis, of a size that fits into that many places.
static int64_t draw_window(peer_draw *d, peer_step *s, int axis, int64_t places)
{
    int     n   = conv_room(s);
    int64_t pad = peer_pick(d, 3), room = places + 2 * pad;
    int64_t taps       = 1 + peer_pick(d, room < 3 ? room : 3);
    s->k[axis]         = 1 + peer_pick(d, 2);
    s->k[n + axis]     = pad;
    s->k[2 * n + axis] = peer_maybe(d, 20) && (taps - 1) * 2 + 1 <= room ? 2 : 1;
    return taps;
}

static bool draw_conv(peer_draw *d, peer_step *s)
{
    int        axes = conv_axes(s);
    peer_value x;
    if (!draw_ranked(d, s, 2 + axes, &x)) return false;
    int64_t groups  = peer_maybe(d, 30) ? x.size[1] : 1;
    int64_t size[5] = { groups * (1 + peer_pick(d, 3)), x.size[1] / groups };
    for (int i = 0; i < axes; i++) size[2 + i] = draw_window(d, s, i, x.size[2 + i]);
    s->k[3 * conv_room(s)] = groups;
    return add_operand(d, s, x.dtype, 2 + axes, size, 0) && add_operand(d, s, x.dtype, 1, size, 30);
}

// The result has a place at least: padding takes no more than there is.
static bool draw_transposed(peer_draw *d, peer_step *s)
{
    int        axes = conv_axes(s);
    peer_value x;
    if (!draw_ranked(d, s, 2 + axes, &x)) return false;
    int64_t groups = peer_maybe(d, 30) ? x.size[1] : 1, out = 1 + peer_pick(d, 3);
    int64_t size[4] = { x.size[1], out };
    for (int i = 0; i < axes; i++) {
        size[2 + i]    = draw_window(d, s, i, x.size[2 + i]);
        int64_t stride = s->k[i], dilation = s->k[4 + i];
        int64_t whole = (x.size[2 + i] - 1) * stride + (size[2 + i] - 1) * dilation + 1;
        s->k[2 + i]   = whole > 2 * s->k[2 + i] ? s->k[2 + i] : 0;
        s->k[7 + i]   = peer_pick(d, stride > dilation ? stride : dilation);
    }
    s->k[6] = groups;
    out *= groups;
    return add_operand(d, s, x.dtype, 2 + axes, size, 0) && add_operand(d, s, x.dtype, 1, &out, 30);
}

static int call_conv(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    const peer_form *f = s->row->form;
    tn_conv_opts     o = conv_opts(s);
    if (f == &form_conv1d) y[0] = tn_conv1d(x[0], x[1], x[2], o);
    else if (f == &form_conv2d) y[0] = tn_conv2d(x[0], x[1], x[2], o);
    else if (f == &form_conv3d) y[0] = tn_conv3d(x[0], x[1], x[2], o);
    else if (f == &form_conv_transpose1d) y[0] = tn_conv_transpose1d(x[0], x[1], x[2], o);
    else y[0] = tn_conv_transpose2d(x[0], x[1], x[2], o);
    return one(y);
}

const peer_form form_conv1d = {
    draw_conv, call_conv,
    "tn_conv1d($0, $1, $2, (tn_conv_opts){ .stride = { #0 }, .padding = { #2 "
    "}, .dilation = { #4 }, .groups = #6 })",
    "F.conv1d($0, $1, $2, #0, #2, #4, #6)", GIVES_ONE
};
const peer_form form_conv2d = {
    draw_conv, call_conv,
    "tn_conv2d($0, $1, $2, (tn_conv_opts){ .stride = { #0, #1 }, .padding = { "
    "#2, #3 }, .dilation = { #4, #5 }, .groups = #6 })",
    "F.conv2d($0, $1, $2, (#0, #1), (#2, #3), (#4, #5), #6)", GIVES_ONE
};
const peer_form form_conv3d = {
    draw_conv, call_conv,
    "tn_conv3d($0, $1, $2, (tn_conv_opts){ .stride = { #0, #1, #2 }, .padding = { "
    "#3, #4, #5 }, .dilation = { #6, #7, #8 }, .groups = #9 })",
    "F.conv3d($0, $1, $2, (#0, #1, #2), (#3, #4, #5), (#6, #7, #8), #9)", GIVES_ONE
};
const peer_form form_conv_transpose1d = {
    draw_transposed, call_conv,
    "tn_conv_transpose1d($0, $1, $2, (tn_conv_opts){ .stride = { #0 }, .padding = { #2 "
    "}, .dilation = { #4 }, .groups = #6, .output_padding = { #7 } })",
    "F.conv_transpose1d($0, $1, $2, #0, #2, #7, #6, #4)", GIVES_ONE
};
const peer_form form_conv_transpose2d = {
    draw_transposed, call_conv,
    "tn_conv_transpose2d($0, $1, $2, (tn_conv_opts){ .stride = { #0, #1 }, .padding = { #2, #3 "
    "}, .dilation = { #4, #5 }, .groups = #6, .output_padding = { #7, #8 } })",
    "F.conv_transpose2d($0, $1, $2, (#0, #1), (#2, #3), (#7, #8), #6, (#4, #5))", GIVES_ONE
};

// ---- pools: k has kernel, stride and padding, two each; flag: padding does not count

static tn_pool_opts pool_opts(const peer_step *s)
{
    return (tn_pool_opts){ .stride          = { s->k[2], s->k[3] },
                           .padding         = { s->k[4], s->k[5] },
                           .exclude_padding = s->flag };
}

static bool draw_pool(peer_draw *d, peer_step *s)
{
    int        axes = s->row->form == &form_pool1d ? 1 : 2;
    peer_value x;
    if (!draw_ranked(d, s, 2 + axes, &x)) return false;
    int64_t pad = peer_pick(d, 2);
    for (int i = 0; i < axes; i++) {
        s->k[i]     = 1 + peer_pick(d, 3);
        s->k[2 + i] = 1 + peer_pick(d, 3);
        s->k[4 + i] = pad;
        if (s->k[i] > x.size[2 + i] || 2 * pad > s->k[i]) return false;
    }
    s->flag = strncmp(s->row->name, "avg", 3) == 0 && peer_maybe(d, 50);
    return true;
}

static int call_pool(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    y[0] = s->row->form == &form_pool1d ? s->row->fn.pool1d(x[0], s->k[0], pool_opts(s))
                                        : s->row->fn.pool2d(x[0], s->k[0], s->k[1], pool_opts(s));
    return one(y);
}

const peer_form form_pool1d = { draw_pool, call_pool,
                                "tn_##($0, #0, (tn_pool_opts){ .stride = { #2 "
                                "}, .padding = { #4 }, .exclude_padding = #b })",
                                "F.##($0, #0, #2, #4)", GIVES_ONE };
const peer_form form_pool2d = {
    draw_pool, call_pool,
    "tn_##($0, #0, #1, (tn_pool_opts){ .stride = { #2, #3 }, .padding = { #4, "
    "#5 }, .exclude_padding = #b })",
    "F.##($0, (#0, #1), (#2, #3), (#4, #5))", GIVES_ONE
};

static bool draw_adaptive(peer_draw *d, peer_step *s)
{
    peer_value x;
    if (!draw_ranked(d, s, 4, &x)) return false;
    s->k[0] = 1 + peer_pick(d, 4);
    s->k[1] = 1 + peer_pick(d, 4);
    return true;
}

static int call_adaptive(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    y[0] = s->row->fn.sizes(x[0], s->k[0], s->k[1]);
    return one(y);
}

const peer_form form_adaptive = { draw_adaptive, call_adaptive, "tn_##($0, #0, #1)",
                                  "F.##($0, (#0, #1))", GIVES_ONE };

// ---- norms: k[0] axes or groups; num[0] eps, mostly large, since rows of equal elements divide by
// it

static void draw_eps(peer_draw *d, peer_step *s)
{
    static const double eps[] = { 0.5, 0.1, 0.01, 1e-5 };
    s->num[0]                 = eps[peer_pick(d, 4)];
}

static bool draw_layer_norm(peer_draw *d, peer_step *s)
{
    peer_value x;
    if (!draw_ranked(d, s, -1, &x)) return false;
    s->k[0]             = 1 + peer_pick(d, x.rank);
    const int64_t *size = x.size + x.rank - s->k[0];
    draw_eps(d, s);
    if (!add_operand(d, s, x.dtype, (int)s->k[0], size, 30)) return false;
    return s->row->form == &form_rms_norm || add_operand(d, s, x.dtype, (int)s->k[0], size, 30);
}

static int call_layer_norm(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    y[0] = s->row->form == &form_rms_norm
               ? tn_rms_norm(x[0], (int)s->k[0], x[1], s->num[0])
               : tn_layer_norm(x[0], (int)s->k[0], x[1], x[2], s->num[0]);
    return one(y);
}

const peer_form form_layer_norm = { draw_layer_norm, call_layer_norm,
                                    "tn_layer_norm($0, #0, $1, $2, #x)",
                                    "layer_norm($0, #0, $1, $2, #x)", GIVES_ONE };
const peer_form form_rms_norm   = { draw_layer_norm, call_layer_norm, "tn_rms_norm($0, #0, $1, #x)",
                                    "F.rms_norm($0, $0.shape[-#0:], $1, #x)", GIVES_ONE };

static bool draw_group_norm(peer_draw *d, peer_step *s)
{
    peer_value x;
    if (!draw_ranked(d, s, -2, &x)) return false;
    s->k[0] = 1 + peer_pick(d, x.size[1]);
    if (x.size[1] % s->k[0] || x.count == x.size[0] * s->k[0]) return false;
    draw_eps(d, s);
    return add_operand(d, s, x.dtype, 1, x.size + 1, 30) &&
           add_operand(d, s, x.dtype, 1, x.size + 1, 30);
}

static int call_group_norm(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    y[0] = tn_group_norm(x[0], s->k[0], x[1], x[2], s->num[0]);
    return one(y);
}

const peer_form form_group_norm = { draw_group_norm, call_group_norm,
                                    "tn_group_norm($0, #0, $1, $2, #x)",
                                    "F.group_norm($0, #0, $1, $2, #x)", GIVES_ONE };

// flag: training, which also updates mean and var.
static bool draw_batch_norm(peer_draw *d, peer_step *s)
{
    peer_value x;
    if (!draw_ranked(d, s, -2, &x)) return false;
    s->flag = peer_maybe(d, 60);
    draw_eps(d, s);
    if (s->flag && x.count == x.size[1]) return false;  // one element a channel has no variance
    for (int i = 0; i < 2; i++) {
        s->in[s->nin] = peer_new_data(d, x.dtype, 1, x.size + 1, LAW_POSITIVE, 0);
        if (s->in[s->nin].step < 0) return false;
        d->p->step[s->in[s->nin].step].leaf = false;
        tn_requires_grad(peer_value_of(d, s->in[s->nin])->t, false);
        s->nin++;
    }
    return add_operand(d, s, x.dtype, 1, x.size + 1, 30) &&
           add_operand(d, s, x.dtype, 1, x.size + 1, 30);
}

static int call_batch_norm(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    y[0] = tn_batch_norm(x[0], x[1], x[2], x[3], x[4],
                         (tn_batch_norm_opts){ .training = s->flag, .eps = s->num[0] });
    return one(y);
}

const peer_form form_batch_norm = {
    draw_batch_norm, call_batch_norm,
    "tn_batch_norm($0, $1, $2, $3, $4, (tn_batch_norm_opts){ .training = #b, "
    ".eps = #x })",
    "batch_norm($0, $1, $2, $3, $4, #b, #x)", GIVES_ONE
};

// ---- attention: flag causal

static bool draw_attention(peer_draw *d, peer_step *s)
{
    peer_value q;
    if (!draw_ranked(d, s, -2, &q)) return false;
    int64_t size[TN_MAX_RANK], D = q.size[q.rank - 1], T = q.size[q.rank - 2];
    int64_t S = peer_maybe(d, 50) ? T : 1 + peer_pick(d, 5);
    memcpy(size, q.size, sizeof size);
    s->flag          = peer_maybe(d, 30);
    s->num[0]        = peer_maybe(d, 30) ? 0.5 : 0;
    size[q.rank - 2] = S;
    if (!add_operand(d, s, q.dtype, q.rank, size, 0)) return false;
    size[q.rank - 1] = peer_maybe(d, 60) ? D : 1 + peer_pick(d, 5);
    if (!add_operand(d, s, q.dtype, q.rank, size, 0)) return false;
    int64_t  mask[2] = { T, S };
    tn_dtype dt      = peer_maybe(d, 50) ? TN_BOOL : q.dtype;
    return add_operand(d, s, dt, 2, mask, s->flag ? 100 : 60);
}

static int call_attention(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    y[0] = tn_attention(x[0], x[1], x[2],
                        (tn_attention_opts){ .causal = s->flag, .mask = x[3], .scale = s->num[0] });
    return one(y);
}

const peer_form form_attention = {
    draw_attention, call_attention,
    "tn_attention($0, $1, $2, (tn_attention_opts){ .causal = #b, .mask = $3, "
    ".scale = #x })",
    "attention($0, $1, $2, $3, #b, #x)", GIVES_ONE
};

// ---- losses: k[0] how it is reduced

static bool draw_class_loss(peer_draw *d, peer_step *s)
{
    peer_value x;
    int64_t    size[TN_MAX_RANK];
    if (!draw_ranked(d, s, -2, &x)) return false;
    size[0] = x.size[0];
    for (int i = 2; i < x.rank; i++) size[i - 1] = x.size[i];
    s->in[s->nin] = peer_new_data(d, TN_I64, x.rank - 1, size, LAW_INDEX, x.size[1]);
    if (s->in[s->nin++].step < 0) return false;
    s->in[s->nin] = (peer_ref){ -1, 0 };
    if (peer_maybe(d, 30))
        s->in[s->nin] = peer_new_data(d, x.dtype, 1, x.size + 1, LAW_POSITIVE, 0);
    if (s->in[s->nin].step >= 0) {
        d->p->step[s->in[s->nin].step].leaf = false;
        tn_requires_grad(peer_value_of(d, s->in[s->nin])->t, false);
    }
    s->nin++;
    s->k[0]   = peer_pick(d, 3);
    s->num[0] = !strcmp(s->row->name, "cross_entropy") && peer_maybe(d, 30) ? 0.25 : 0;
    s->flag   = peer_maybe(d, 20);
    s->k[1]   = s->flag ? peer_pick(d, x.size[1]) : -100;
    return true;
}

static int call_class_loss(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    y[0] = s->row->fn.by_class(x[0], x[1],
                               (tn_class_opts){ .weight          = x[2],
                                                .label_smoothing = s->num[0],
                                                .ignore          = s->k[1],
                                                .use_ignore      = s->flag,
                                                .reduce          = (tn_reduction)s->k[0] });
    return one(y);
}

const peer_form form_class_loss = {
    draw_class_loss, call_class_loss,
    "tn_##_with($0, $1, (tn_class_opts){ .weight = $2, .label_smoothing = #x, "
    ".ignore = #1, .use_ignore = #b, .reduce = #R })",
    NULL, GIVES_ONE
};

static bool draw_loss(peer_draw *d, peer_step *s)
{
    peer_value x;
    if (!draw_ranked(d, s, -1, &x)) return false;
    peer_law law = s->row->needs & NEEDS_EXACT        ? LAW_GRID
                   : strcmp(s->row->name, "mse") == 0 ? LAW_SMOOTH
                   : strcmp(s->row->name, "kl") == 0  ? LAW_POSITIVE
                                                      : LAW_SHARE;
    if (s->row->needs & NEEDS_SHARE) {
        s->in[0] = peer_new_data(d, x.dtype, x.rank, x.size, LAW_SHARE, 0);
        if (s->in[0].step < 0) return false;
    }
    s->in[1] = peer_new_data(d, x.dtype, x.rank, x.size, law, 0);
    if (s->in[1].step < 0) return false;
    d->p->step[s->in[1].step].leaf = false;  // a target takes no gradient
    tn_requires_grad(peer_value_of(d, s->in[1])->t, false);
    s->nin  = 2;
    s->k[0] = peer_pick(d, 3);
    // Between the multiples of 1/4, where the second gradient of huber has a limit.
    s->num[0] = 1.0372 + 0.5 * (double)peer_pick(d, 2);
    s->flag   = strcmp(s->row->name, "kl") == 0 && peer_maybe(d, 30);
    return true;
}

static int call_loss(const peer_step *s, tn_tensor *const *x, tn_tensor **y)
{
    tn_loss_opts o = { .reduce = (tn_reduction)s->k[0], .log_target = s->flag };
    if (!strcmp(s->row->name, "huber")) o.delta = s->num[0];
    y[0] = s->row->fn.loss(x[0], x[1], o);
    return one(y);
}

const peer_form form_loss = { draw_loss, call_loss,
                              "tn_##_with($0, $1, (tn_loss_opts){ .reduce = #R })", NULL,
                              GIVES_ONE };
