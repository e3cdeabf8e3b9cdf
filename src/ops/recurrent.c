// Recurrent networks: plain, LSTM and GRU layers, as scans over time. The inputs of all steps are
// one product; a step is the product of the state and one kernel of the gates. Names, gate order
// and meaning are PyTorch's.
//
//   RNN    h' = tanh(x + h W_hh' + b_hh), or relu of it           x stands for the step's W_ih x + b_ih
//   LSTM   i, f, g, o = x + h W_hh' + b_hh                        c' = sigmoid(f) c + sigmoid(i) tanh(g)
//                                                                 h' = sigmoid(o) tanh(c')
//   GRU    r, z, n of x and of h W_hh' + b_hh                     n = tanh(x_n + sigmoid(r) h_n)
//                                                                 h' = (1 - sigmoid(z)) n + sigmoid(z) h
//
// What a plan has for a layer of an LSTM in training, for all T steps together unless it says
// otherwise:
//
//   forward    x W_ih' + b_ih + b_hh        one product (T B, I) @ (I, 4 H)
//              h W_hh' + x of the step      a product, T times
//              gates, c', h'                a kernel, T times; keeps the tanh of every gate and of c'
//   backward   gradients of gates and c     a kernel, T times
//              gradient of h                a product, T times
//              gradients of W_hh, W_ih, x   three products; of the biases one sum of rows
//
// T time, B batch, I inputs, H width of the state, G gates: 1, LSTM 4 (i, f, g, o), GRU 3 (r, z, n)
#include "ops/composite.h"

#include <string.h>

// One layer in one direction, as its step sees it. bias: that of the state's product, inside of the
// step; NULL: it is added to the inputs.
typedef struct {
    tn_rnn_kind kind;
    int64_t     H;
    tn_tensor  *weight, *bias;
    bool        counted;  // x[1] says which sequences have not ended
} cell;

static int gates_of(tn_rnn_kind kind)
{
    return kind == TN_LSTM ? 4 : kind == TN_GRU ? 3 : 1;
}

// ---- a step ------------------------------------------------------------------------------------

// Gate number i of gates side by side.
static tn_tensor *gate(const cell *s, tn_tensor *x, int i)
{
    return tn_slice(x, -1, i * s->H, (i + 1) * s->H, 1);
}

// By tanh, one function of which the gradient needs the value alone: a gate is never far from where
// both are exact.
static tn_tensor *sigmoid(tn_tensor *x)
{
    return tn_add_s(tn_mul_s(tn_tanh(tn_mul_s(x, 0.5)), 0.5), 0.5);
}

// The four gates are slices of one product. Their gradients are stored side by side by one kernel.
static void lstm_step(const cell *s, tn_tensor *gates, tn_tensor **h, tn_tensor **c)
{
    tn_tensor *i = sigmoid(gate(s, gates, 0)), *f = sigmoid(gate(s, gates, 1));
    tn_tensor *g = tn_tanh(gate(s, gates, 2)), *o = sigmoid(gate(s, gates, 3));
    *c = tn_add(tn_mul(f, tni_widen(*c)), tn_mul(i, g));
    *h = tn_mul(o, tn_tanh(*c));
}

// The reset gate multiplies the product of the state with its bias, as in PyTorch and cuDNN.
static void gru_step(const cell *s, tn_tensor *x, tn_tensor *g, tn_tensor **h)
{
    tn_tensor *r = sigmoid(tn_add(gate(s, x, 0), gate(s, g, 0)));
    tn_tensor *z = sigmoid(tn_add(gate(s, x, 1), gate(s, g, 1)));
    tn_tensor *n = tn_tanh(tn_add(gate(s, x, 2), tn_mul(r, gate(s, g, 2))));
    *h           = tn_add(n, tn_mul(z, tn_sub(tni_widen(*h), n)));  // (1 - z) n + z h
}

// One step: carry is h, or h and c. Sequences that have ended keep their state and give zeros.
// Gates of 16 bits are computed in f32.
static void step(void *user, tn_tensor **carry, tn_tensor *const *x, tn_tensor **y)
{
    const cell *s       = user;
    tn_dtype    dt      = tni_dtype(carry[0]);
    int         n       = s->kind == TN_LSTM ? 2 : 1;
    tn_tensor  *g       = tn_matmul(carry[0], tn_transpose(s->weight, 0, 1));
    tn_tensor  *next[2] = { carry[0], carry[n - 1] }, *in = tni_widen(x[0]);
    if (!g || !in) return;
    g = tni_widen(g);
    if (s->bias) g = tn_add(g, s->bias);
    if (s->kind == TN_GRU) gru_step(s, in, g, &next[0]);
    else g = tn_add(in, g);
    if (s->kind == TN_LSTM) lstm_step(s, g, &next[0], &next[1]);
    if (s->kind == TN_RNN_TANH) next[0] = tn_tanh(g);
    if (s->kind == TN_RNN_RELU) next[0] = tn_relu(g);
    for (int i = 0; i < n; i++) {
        if (next[i] && tni_dtype(next[i]) != dt) next[i] = tn_cast(next[i], dt);
        carry[i] = s->counted ? tn_where(x[1], next[i], carry[i]) : next[i];
    }
    y[0] = s->counted ? tn_where(x[1], next[0], tn_zeros_like(next[0])) : carry[0];
}

// ---- arguments ---------------------------------------------------------------------------------

// What is given, checked. B and I of the first layer; D directions; per: weights of a layer in one
// direction.
typedef struct {
    tn_ctx           *cx;
    tn_rnn_opts       o;
    tn_tensor *const *weights;
    tn_tensor        *mask;  // (T, B, 1), NULL: all sequences have T steps
    int               layers, D, per;
    int64_t           T, B, I, H;
} network;

static bool shape_is(tn_ctx *cx, tn_tensor *x, const char *name, int rank, const int64_t *size)
{
    return tni_shape_equal(tni_rank(x), tni_sizes(x), rank, size) ||
           tni_refuse(cx, TN_ESHAPE, "rnn: %s is %s, expected %s", name, tni_shape_of(x).s,
                      tni_shape_text(rank, size).s);
}

// The weights of layer l, each of PyTorch's shape.
static bool weights_fit(const network *r, int l)
{
    static const char *const name[] = { "weight_ih", "weight_hh", "bias_ih", "bias_hh" };
    int64_t                  G = gates_of(r->o.kind), in = l ? r->D * r->H : r->I;
    for (int i = 0; i < r->D * r->per; i++) {
        int64_t  size[] = { G * r->H, i % r->per ? r->H : in };
        tni_text what = tni_text_of("%s_l%d%s", name[i % r->per], l, i < r->per ? "" : "_reverse");
        if (!shape_is(r->cx, r->weights[l * r->D * r->per + i], what.s, i % r->per < 2 ? 2 : 1,
                      size))
            return false;
    }
    return true;
}

// States are given for every layer and direction, lengths for every sequence.
static bool states_fit(const network *r)
{
    int64_t size[] = { r->layers * r->D, r->B, r->H };
    if (r->o.h && !shape_is(r->cx, r->o.h, "h", 3, size)) return false;
    if (r->o.c && !shape_is(r->cx, r->o.c, "c", 3, size)) return false;
    return !r->o.lengths || shape_is(r->cx, r->o.lengths, "lengths", 1, &r->B);
}

// Everything that can be wrong with the arguments; x is (T, B, I) by now.
static bool network_ok(network *r, int n, tn_tensor *x)
{
    int want = r->layers * r->D * r->per;
    if (r->o.kind < TN_RNN_TANH || r->o.kind > TN_GRU)
        return tni_refuse(r->cx, TN_EARG, "rnn: kind %d is none", (int)r->o.kind);
    if (r->layers < 1 || n != want)
        return tni_refuse(r->cx, TN_EARG, "rnn: %d weights, expected %d for %d layers", n, want,
                          r->layers);
    if (r->o.c && r->o.kind != TN_LSTM)
        return tni_refuse(r->cx, TN_EARG, "rnn: c is the state of an LSTM alone");
    r->T = tni_sizes(x)[0], r->B = tni_sizes(x)[1], r->I = tni_sizes(x)[2];
    if (tni_rank(r->weights[1]) != 2)
        return tni_refuse(r->cx, TN_ESHAPE, "rnn: weight_hh_l0 is %s, expected two axes",
                          tni_shape_of(r->weights[1]).s);
    r->H = tni_sizes(r->weights[1])[1];
    if (r->T < 1 || r->B < 1 || r->H < 1)
        return tni_refuse(r->cx, TN_ESHAPE, "rnn: x is %s, and has no step or no sequence",
                          tni_shape_of(x).s);
    for (int l = 0; l < r->layers; l++)
        if (!weights_fit(r, l)) return false;
    return states_fit(r);
}

// ---- layers ------------------------------------------------------------------------------------

// The state that direction number k of all begins with.
static tn_tensor *first_state(const network *r, tn_tensor *all, tn_dtype dt, int k)
{
    if (!all) return tn_zeros(r->cx, dt, TN_SHAPE(r->B, r->H));
    tn_tensor *s = tn_select(all, 0, k);
    return s && tni_dtype(s) != dt ? tn_cast(s, dt) : s;
}

// One direction of one layer: y (T, B, H), and the state after it. Both biases are added to the
// inputs; of a GRU, whose reset gate multiplies it, that of the state is not.
static bool run_direction(const network *r, tn_tensor *x, int k, tn_tensor **y, tn_tensor **state)
{
    tn_tensor *const *w    = r->weights + k * r->per;
    bool              lstm = r->o.kind == TN_LSTM, bias = r->per == 4;
    cell       s     = { .kind = r->o.kind, .H = r->H, .weight = w[1], .counted = r->mask != NULL };
    tn_tensor *added = bias ? w[2] : NULL;
    if (bias && r->o.kind == TN_GRU) s.bias = tni_widen(w[3]);
    else if (bias) added = tn_add(w[2], w[3]);
    tn_tensor *in[2] = { tn_linear(x, w[0], added), r->mask };
    if (!in[0]) return false;
    tn_dtype dt = tni_dtype(in[0]);
    state[0]    = first_state(r, r->o.h, dt, k);
    state[1]    = lstm ? first_state(r, r->o.c, dt, k) : NULL;
    if (!state[0] || (lstm && !state[1])) return false;
    return tn_scan(step, &s, 1 + lstm, state, 1 + s.counted, in, 1, y,
                   (tn_scan_opts){ .reverse = k % r->D }) == TN_OK;
}

// All layers. y: the last one's result; the last states go into h and c, (layers * D, B, H).
static tn_sequence run_layers(const network *r, tn_tensor *x)
{
    int         n     = r->layers * r->D;
    tn_tensor **state = tni_zalloc(&r->cx->heap, 2 * (size_t)n * sizeof *state);
    tn_sequence y     = { 0 };
    if (!state) return tni_fail_memory(r->cx, "rnn"), y;
    for (int l = 0; x && l < r->layers; l++) {
        tn_tensor *part[2], *last[2];
        if (l && r->o.dropout) x = tn_dropout(x, r->o.dropout, r->o.training);
        for (int d = 0; x && d < r->D; d++) {
            int k = l * r->D + d;
            if (!run_direction(r, x, k, &part[d], last)) x = NULL;
            state[k]     = last[0];
            state[n + k] = last[1];
        }
        if (x) x = r->D == 2 ? tn_concat(2, part, -1) : part[0];
    }
    tn_tensor *h = x ? tn_stack(n, state, 0) : NULL;
    tn_tensor *c = x && r->o.kind == TN_LSTM ? tn_stack(n, state + n, 0) : NULL;
    tni_free(&r->cx->heap, state);
    if (h && (c || r->o.kind != TN_LSTM)) y = (tn_sequence){ .x = x, .h = h, .c = c };
    return y;
}

// The tensors of the results leave the scope in which the layers are recorded; all others die with
// it.
static void leave_scope(tn_scope *s, tn_tensor *t)
{
    if (!t) return;
    tni_scope_remove(t);
    tni_scope_add(s->outer, t);
}

// x as (T, B, I): without a batch, and with the batch first, it is shown so.
tn_sequence tn_rnn(tn_tensor *x, int n, tn_tensor *const *weights, tn_rnn_opts o)
{
    tn_sequence y = { 0 };
    if (!tni_arg1("rnn", x, "x")) return y;
    if (n < 2 || !weights) return tni_fail(x->cx, TN_EARG, "rnn: there are no weights"), y;
    if (!tni_args("rnn", n, weights, NULL) || !tni_want_float(x, "rnn")) return y;
    network r   = { .cx      = x->cx,
                    .o       = o,
                    .weights = weights,
                    .D       = 1 + o.bidirectional,
                    .layers  = o.layers ? o.layers : 1,
                    .per     = o.no_bias ? 2 : 4 };
    bool    one = tni_rank(x) == 2;
    if (tni_rank(x) != 3 && !one)
        return tni_fail(x->cx, TN_ESHAPE, "rnn: x is %s, expected (T, B, I) or (T, I)",
                        tni_shape_of(x).s),
               y;
    tn_scope *scope = tn_begin(x->cx);
    if (!scope) return y;
    if (one) x = tn_unsqueeze(x, 1);
    else if (o.batch_first) x = tn_transpose(x, 0, 1);
    if (one && o.h) r.o.h = tn_rank(o.h) == 2 ? tn_unsqueeze(o.h, 1) : o.h;
    if (one && o.c) r.o.c = tn_rank(o.c) == 2 ? tn_unsqueeze(o.c, 1) : o.c;
    if (x && network_ok(&r, n, x)) {
        if (o.lengths)
            r.mask = tn_unsqueeze(
                tn_lt(tn_unsqueeze(tn_arange(r.cx, TN_I64, 0, (double)r.T, 1), 1), o.lengths), 2);
        if (!o.lengths || r.mask) y = run_layers(&r, x);
    }
    if (y.x && one) {
        y.x = tn_squeeze(y.x, 1);
        y.h = tn_squeeze(y.h, 1);
        if (y.c) y.c = tn_squeeze(y.c, 1);
    } else if (y.x && o.batch_first) {
        y.x = tn_transpose(y.x, 0, 1);
    }
    leave_scope(scope, y.x);
    leave_scope(scope, y.h);
    leave_scope(scope, y.c);
    tni_scope_close(scope);
    return y;
}
