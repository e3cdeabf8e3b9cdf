// Recurrent layers. Those with the usual activations are Tenon's own; the others are spelled out, a
// step that tn_scan runs over the axis of time.
//
// Weights of an LSTM, of H units and I inputs, and where they go:
//
//   ONNX    w (directions, 4 H, I), r (directions, 4 H, H), b (directions, 8 H)    gates input, output, forget, cell
//   Tenon   for each direction (4 H, I), (4 H, H), (4 H), (4 H)                    gates input, forget, cell, output
//
// T steps, B sequences, H units.
#include "onnx/onnx_ops.h"

// Blocks of H rows in another order: gates of ONNX (i o f c; z r h) in that of Tenon (i f g o; r z
// n).
static tn_tensor *reorder(tn_tensor *w, int gates, int64_t h)
{
    static const int lstm[] = { 0, 2, 3, 1 }, gru[] = { 1, 0, 2 };
    tn_tensor       *part[4];
    if (!w || gates == 1) return w;
    for (int i = 0; i < gates; i++) {
        int from = gates == 4 ? lstm[i] : gru[i];
        part[i]  = tn_slice(w, 0, from * h, (from + 1) * h, 1);
    }
    return tn_concat(gates, part, 0);
}

// ---- activations -------------------------------------------------------------------------------

typedef struct {
    tni_wire name;
    double   alpha, beta;
} activation;

// What they are, and what alpha and beta are unless a file says so.
static const struct {
    const char *name;
    int         uses;  // 1: alpha, 2: and beta
    double      alpha, beta;
} known[] = {
    { "Sigmoid", 0, 0, 0 },         { "Tanh", 0, 0, 0 },      { "Relu", 0, 0, 0 },
    { "Softsign", 0, 0, 0 },        { "Softplus", 0, 0, 0 },  { "LeakyRelu", 1, 0.01, 0 },
    { "ThresholdedRelu", 1, 1, 0 }, { "Elu", 1, 1, 0 },       { "HardSigmoid", 2, 0.2, 0.5 },
    { "Affine", 2, 1, 0 },          { "ScaledTanh", 2, 1, 1 }
};
enum { KNOWN = sizeof known / sizeof *known };

// Names are compared at each call: a step is recorded once, whatever the number of steps.
static tn_tensor *activate(const activation *a, tn_tensor *x)
{
    if (tni_wire_is(a->name, "Sigmoid")) return tn_sigmoid(x);
    if (tni_wire_is(a->name, "Tanh")) return tn_tanh(x);
    if (tni_wire_is(a->name, "Relu")) return tn_relu(x);
    if (tni_wire_is(a->name, "Softsign")) return tn_softsign(x);
    if (tni_wire_is(a->name, "Softplus")) return tn_softplus(x);
    if (tni_wire_is(a->name, "LeakyRelu")) return tn_leaky_relu(x, a->alpha);
    if (tni_wire_is(a->name, "Elu")) return tn_elu(x, a->alpha);
    if (tni_wire_is(a->name, "ThresholdedRelu"))
        return tn_where(tn_ge_s(x, a->alpha), x, x ? tn_zeros_like(x) : NULL);
    if (tni_wire_is(a->name, "ScaledTanh"))
        return tn_mul_s(tn_tanh(tn_mul_s(x, a->beta)), a->alpha);
    tn_tensor *line = tn_add_s(tn_mul_s(x, a->alpha), a->beta);
    return tni_wire_is(a->name, "Affine") ? line : tn_clamp(line, 0, 1);
}

// Reads n activations of a direction, whose alphas and betas stand in lists of their own: those
// that use one take the next.
static bool read_activations(tni_onnx_call *c, int d, int n, activation *out)
{
    static const unsigned char sigmoid[] = "Sigmoid", tanhs[] = "Tanh";
    double                     alpha[16], beta[16];
    int                        alphas, betas, na = 0, nb = 0;
    tni_wire                   a;
    bool                       listed = tni_onnx_attribute(c->r->m, c->n, "activations", &a);
    if (!tni_onnx_attr_reals(c, "activation_alpha", 16, alpha, &alphas) ||
        !tni_onnx_attr_reals(c, "activation_beta", 16, beta, &betas))
        return false;
    for (int i = 0; i < (d + 1) * n; i++) {
        activation     v = { (tni_wire){ tanhs, tanhs + 4 }, 0, 0 };
        tni_wire_field f = { 0 };
        int            k = 0;
        if (i % n == 0 && n > 1) v.name = (tni_wire){ sigmoid, sigmoid + 7 };
        while (listed && tni_wire_next(&a, &f) > 0 && f.number != TNI_ATTR_STRINGS) continue;
        if (listed && f.number == TNI_ATTR_STRINGS) v.name = f.bytes;
        while (k < KNOWN && !tni_wire_is(v.name, known[k].name)) k++;
        if (k == KNOWN)
            return tni_onnx_refuse(c, "activation %s is not known", tni_onnx_quoted(v.name).s);
        v.alpha = known[k].uses > 0 && na < alphas ? alpha[na] : known[k].alpha;
        v.beta  = known[k].uses > 1 && nb < betas ? beta[nb] : known[k].beta;
        na += known[k].uses > 0;
        nb += known[k].uses > 1;
        if (i >= d * n) out[i - d * n] = v;
    }
    return true;
}

// ---- one direction, spelled out ----------------------------------------------------------------

// What a step reads beside its state. lengths: how many steps each sequence has.
typedef struct {
    tn_rnn_kind kind;
    int64_t     h;
    tn_tensor  *r, *rb, *peep;  // (G H, H), (G H), (3 H) in order i o f
    activation  f[3];
    double      clip;
    bool        coupled, late;  // input_forget; linear_before_reset
} steps;

// What an activation gets is cut to -clip .. clip.
static tn_tensor *clipped(const steps *s, tn_tensor *x)
{
    return s->clip > 0 ? tn_clamp(x, -s->clip, s->clip) : x;
}

// Gate i of all that are side by side, and of weights below each other.
static tn_tensor *gate(const steps *s, tn_tensor *x, int i)
{
    return tn_slice(x, -1, i * s->h, (i + 1) * s->h, 1);
}
// n blocks of H rows, from the i-th on.
static tn_tensor *rows(const steps *s, tn_tensor *w, int i, int n)
{
    return tn_slice(w, 0, i * s->h, (i + n) * s->h, 1);
}

// i, o, f and c are sums of products; P is of peepholes, C the cell:
//
//   i = f(i + P C)   f = f(f + P C)   C' = f C + i g(c)   o = f(o + P C')   H' = o h(C')
static tn_tensor *lstm_step(const steps *s, tn_tensor *x, tn_tensor *h, tn_tensor **cell)
{
    tn_tensor *all = tn_add(x, tn_linear(h, s->r, s->rb)), *g[4];
    for (int i = 0; i < 4; i++) {
        g[i] = gate(s, all, i);
        if (s->peep && i != 1 && i != 3) g[i] = tn_add(g[i], tn_mul(gate(s, s->peep, i), *cell));
    }
    tn_tensor *in     = activate(&s->f[0], clipped(s, g[0])),
              *forget = s->coupled ? tn_rsub_s(in, 1) : activate(&s->f[0], clipped(s, g[2]));
    *cell = tn_add(tn_mul(forget, *cell), tn_mul(in, activate(&s->f[1], clipped(s, g[3]))));
    if (s->peep) g[1] = tn_add(g[1], tn_mul(gate(s, s->peep, 1), *cell));
    return tn_mul(activate(&s->f[0], clipped(s, g[1])), activate(&s->f[2], *cell));
}

// z and r are sums of products; with linear_before_reset r multiplies the product of the state,
// otherwise the state.
static tn_tensor *gru_step(const steps *s, tn_tensor *x, tn_tensor *h)
{
    tn_tensor *zr = tn_add(tn_slice(x, -1, 0, 2 * s->h, 1),
                           tn_linear(h, rows(s, s->r, 0, 2), rows(s, s->rb, 0, 2)));
    tn_tensor *z  = activate(&s->f[0], clipped(s, gate(s, zr, 0))),
              *r = activate(&s->f[0], clipped(s, gate(s, zr, 1))), *w = rows(s, s->r, 2, 1),
              *b    = rows(s, s->rb, 2, 1);
    tn_tensor *more = s->late ? tn_mul(r, tn_linear(h, w, b)) : tn_linear(tn_mul(r, h), w, b);
    tn_tensor *n    = activate(&s->f[1], clipped(s, tn_add(gate(s, x, 2), more)));
    return tn_add(tn_mul(tn_rsub_s(z, 1), n), tn_mul(z, h));
}

// One step for tn_scan: x[0] is the product with this step's inputs, x[1], if there are lengths,
// whether a sequence goes on.
static void one_step(void *user, tn_tensor **carry, tn_tensor *const *x, tn_tensor **y)
{
    const steps *s = user;
    tn_tensor   *h = carry[0], *cell = carry[1], *next = cell;
    tn_tensor   *to = s->kind == TN_LSTM ? lstm_step(s, x[0], h, &next)
                      : s->kind == TN_GRU
                          ? gru_step(s, x[0], h)
                          : activate(&s->f[0], clipped(s, tn_add(x[0], tn_linear(h, s->r, s->rb))));
    carry[0]        = tn_where(x[1], to, h);
    carry[1]        = tn_where(x[1], next, cell);
    y[0]            = tn_where(x[1], to, to ? tn_zeros_like(to) : NULL);
}

// Three steps of a sequence of length 2, and one of length 3:   a b -  becomes  b a -,   c d e  becomes  e d c.
// Each sequence backwards within its length; the rest stays where it is.
static tn_tensor *turned(tn_tensor *x, tn_tensor *lengths)
{
    int64_t    T = tn_size(x, 0);
    tn_tensor *t = tn_reshape(tn_arange_i64(tn_ctx_of(x), TN_I64, 0, T, 1), TN_SHAPE(T, 1)),
              *l = tn_unsqueeze(lengths, 0);
    t            = tn_where(tn_lt(t, l), tn_sub(tn_add_i64(l, -1), t), t);
    return tn_take_along_axis(x, tn_unsqueeze(t, -1), 0);
}

// The product of all inputs is made before the steps, as one.
// Runs direction d of all weights over x (T, B, I). Writes (T, B, H) and the last states, (B, H).
static bool run_direction(tni_onnx_call *c, steps s, int d, bool back, tn_tensor *x,
                          tn_tensor *lengths, tn_tensor **y, tn_tensor **state)
{
    int        gates = s.kind == TN_LSTM ? 4 : s.kind == TN_GRU ? 3 : 1;
    int64_t    T = tn_size(x, 0), B = tn_size(x, 1), all = gates * s.h;
    tn_dtype   dt = tn_dtype_of(x);
    tn_tensor *b  = tni_onnx_has(c, 3) ? tn_select(tni_onnx_in(c, 3), 0, d)
                                       : tn_zeros(c->cx, dt, TN_SHAPE(2 * all));
    s.r           = tn_select(tni_onnx_in(c, 2), 0, d);
    s.rb          = tn_slice(b, 0, all, 2 * all, 1);
    s.peep        = tni_onnx_has(c, 7) ? tn_select(tni_onnx_in(c, 7), 0, d) : NULL;
    if (!read_activations(c, d, s.kind == TN_LSTM ? 3 : s.kind == TN_GRU ? 2 : 1, s.f))
        return false;
    for (int i = 0; i < 2; i++)
        if (!state[i]) state[i] = tn_zeros(c->cx, dt, TN_SHAPE(B, s.h));
    if (!lengths) lengths = tn_full_i64(c->cx, TN_I64, TN_SHAPE(B), T);
    if (back) x = turned(x, lengths);
    tn_tensor *t     = tn_reshape(tn_arange_i64(c->cx, TN_I64, 0, T, 1), TN_SHAPE(T, 1, 1)),
              *in[2] = { tn_linear(x, tn_select(tni_onnx_in(c, 1), 0, d),
                                   tn_slice(b, 0, 0, all, 1)),
                         tn_contiguous(tn_lt(t, tn_reshape(lengths, TN_SHAPE(B, 1)))) };
    if (!in[0] || !in[1] || !s.r || !s.rb || !state[0] || !state[1]) return false;
    if (tn_scan(one_step, &s, 2, state, 2, in, 1, y, (tn_scan_opts){ 0 }) != TN_OK) return false;
    if (back) *y = turned(*y, lengths);
    return *y != NULL;
}

// Both directions: states (T, directions, B, H) and last ones.
static bool run_steps(tni_onnx_call *c, tn_rnn_kind kind, int64_t h, tn_tensor *x,
                      tn_tensor *lengths, tn_tensor *const first[2], tn_tensor **y,
                      tn_tensor *last[2])
{
    bool both = tni_onnx_attr_is(c, "direction", "bidirectional", false),
         back = tni_onnx_attr_is(c, "direction", "reverse", false);
    tn_tensor *out[2], *state[2][2];
    steps      s = { .kind    = kind,
                     .h       = h,
                     .clip    = tni_onnx_attr_real(c, "clip", 0),
                     .coupled = tni_onnx_attr_int(c, "input_forget", 0) != 0,
                     .late    = tni_onnx_attr_int(c, "linear_before_reset", 0) != 0 };
    for (int d = 0; d <= both; d++) {
        tn_tensor *at[2];
        for (int i = 0; i < 2; i++) at[i] = first[i] ? tn_select(first[i], 0, d) : NULL;
        if (!run_direction(c, s, d, back || d, x, lengths, &out[d], at)) return false;
        for (int i = 0; i < 2; i++) state[i][d] = at[i];
    }
    *y = tn_stack(1 + both, out, 1);
    for (int i = 0; i < 2; i++) last[i] = tn_stack(1 + both, state[i], 0);
    return *y && last[0] && last[1];
}

// ---- the operators -----------------------------------------------------------------------------

// The same by Tenon's own layers, whose gates are in another order.
static bool run_own(tni_onnx_call *c, tn_rnn_kind kind, int64_t h, tn_tensor *x, tn_tensor *lengths,
                    tn_tensor *const first[2], tn_tensor **y, tn_tensor *last[2])
{
    tn_tensor *w = tni_onnx_in(c, 1), *r = tni_onnx_in(c, 2), *b = tni_onnx_in(c, 3), *weight[8];
    int        gates = kind == TN_LSTM ? 4 : kind == TN_GRU ? 3 : 1;
    bool       both  = tni_onnx_attr_is(c, "direction", "bidirectional", false),
         back        = tni_onnx_attr_is(c, "direction", "reverse", false);
    int dirs         = both ? 2 : 1;
    for (int d = 0; d < dirs; d++) {
        weight[4 * d]     = reorder(tn_select(w, 0, d), gates, h);
        weight[4 * d + 1] = reorder(tn_select(r, 0, d), gates, h);
        tn_tensor *bias   = b ? tn_select(b, 0, d)
                              : tn_zeros(c->cx, tn_dtype_of(x), TN_SHAPE(2 * gates * h));
        weight[4 * d + 2] = reorder(tn_slice(bias, 0, 0, gates * h, 1), gates, h);
        weight[4 * d + 3] = reorder(tn_slice(bias, 0, gates * h, 2 * gates * h, 1), gates, h);
    }
    tn_sequence s = tn_rnn(back ? tn_flip(x, 0) : x, 4 * dirs, weight,
                           (tn_rnn_opts){ .kind          = kind,
                                          .bidirectional = both,
                                          .h             = first[0],
                                          .c             = first[1],
                                          .lengths       = lengths });
    if (!s.x || !s.h) return false;
    *y = tn_reshape(back ? tn_flip(s.x, 0) : s.x, TN_SHAPE(tn_size(x, 0), tn_size(x, 1), dirs, h));
    *y = tn_transpose(*y, 1, 2);
    last[0] = s.h;
    last[1] = s.c;
    return *y != NULL;
}

// With layout 1 batches come first in x, states and results.
static bool recurrent(tni_onnx_call *c, tn_rnn_kind kind)
{
    tn_tensor *x = tni_onnx_in(c, 0), *w = tni_onnx_in(c, 1), *r = tni_onnx_in(c, 2),
              *lengths  = tni_onnx_in(c, 4),
              *first[2] = { tni_onnx_in(c, 5), kind == TN_LSTM ? tni_onnx_in(c, 6) : NULL }, *y,
              *last[2];
    bool swap = tni_onnx_attr_int(c, "layout", 0) != 0;
    if (!x || !w || !r) return false;
    if (tn_rank(x) != 3 || tn_rank(w) != 3 || tn_rank(r) != 3)
        return tni_onnx_refuse(c, "x %s, w %s and r %s have not three axes each", tni_shape_of(x).s,
                               tni_shape_of(w).s, tni_shape_of(r).s);
    if (lengths) lengths = tn_cast(lengths, TN_I64);
    if (swap) x = tn_transpose(x, 0, 1);
    for (int i = 0; i < 2 && swap; i++) first[i] = first[i] ? tn_transpose(first[i], 0, 1) : NULL;
    bool spelled = tni_onnx_has_attr(c, "activations") || tni_onnx_has_attr(c, "clip") ||
                   tni_onnx_attr_int(c, "input_forget", 0) ||
                   (kind == TN_LSTM && tni_onnx_has(c, 7)) ||
                   (kind == TN_GRU && !tni_onnx_attr_int(c, "linear_before_reset", 0)) ||
                   (lengths && tni_onnx_attr_is(c, "direction", "reverse", false));
    if (!(spelled ? run_steps : run_own)(c, kind, tn_size(r, 2), x, lengths, first, &y, last))
        return false;
    if (swap) y = tn_permute(y, TN_AXES(2, 0, 1, 3));
    if (!tni_onnx_out(c, 0, y)) return false;
    for (int i = 0; i < (kind == TN_LSTM ? 2 : 1) && i + 1 < c->nout; i++)
        if (!tni_onnx_out(c, i + 1, swap ? tn_transpose(last[i], 0, 1) : last[i])) return false;
    return true;
}

// LSTM(x, w, r, b, lengths, h, c, peepholes): all states, the last state, the last cell.
bool tni_onnx_lstm(tni_onnx_call *c)
{
    return recurrent(c, TN_LSTM);
}
// GRU(x, w, r, b, lengths, h): all states, the last state.
bool tni_onnx_gru(tni_onnx_call *c)
{
    return recurrent(c, TN_GRU);
}
// RNN(x, w, r, b, lengths, h): with tanh unless it says so.
bool tni_onnx_rnn(tni_onnx_call *c)
{
    return recurrent(c, TN_RNN_TANH);
}
