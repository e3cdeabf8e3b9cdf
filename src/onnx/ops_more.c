// Recurrent layers, sums of products by labels, random numbers.
//
// Weights of an LSTM, of H units and I inputs, and where they go:
//
//   ONNX    w (directions, 4 H, I), r (directions, 4 H, H), b (directions, 8 H)    gates input, output, forget, cell
//   Tenon   for each direction (4 H, I), (4 H, H), (4 H), (4 H)                    gates input, forget, cell, output
#include "onnx/onnx_ops.h"

// Einsum(x...; equation). Spaces mean nothing.
bool tni_onnx_einsum(tni_onnx_call *c)
{
    char       text[256];
    tni_wire   e = tni_onnx_attr_text(c, "equation");
    tn_tensor *x[16];
    size_t     n = 0;
    if (c->nin > 16) return tni_onnx_refuse(c, "it has more than 16 inputs");
    for (; e.at < e.end && n < sizeof text - 1; e.at++)
        if (*e.at != ' ') text[n++] = (char)*e.at;
    text[n] = 0;
    if (e.at < e.end) return tni_onnx_refuse(c, "its equation is too long");
    for (int i = 0; i < c->nin; i++)
        if (!(x[i] = tni_onnx_in(c, i))) return false;
    return tni_onnx_out(c, 0, tn_einsum(text, c->nin, x));
}

// ---- recurrences -------------------------------------------------------------------------------

// Blocks of H rows in another order: gates of ONNX (i o f c; z r h) in that of Tenon (i f g o; r z n).
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

// LSTM, GRU and RNN with their usual activations, by Tenon's own.
// What has other activations, a clip or peepholes is refused by name: no exporter in use writes them.
static bool recurrent(tni_onnx_call *c, tn_rnn_kind kind, int gates)
{
    tn_tensor *x = tni_onnx_in(c, 0), *w = tni_onnx_in(c, 1), *r = tni_onnx_in(c, 2),
              *b = tni_onnx_in(c, 3), *weight[8];
    int64_t h    = tni_onnx_attr_int(c, "hidden_size", 0);
    bool    both = tni_onnx_attr_is(c, "direction", "bidirectional", false),
         back    = tni_onnx_attr_is(c, "direction", "reverse", false),
         first   = tni_onnx_attr_int(c, "layout", 0) != 0;
    if (!x || !w || !r || (tni_onnx_has(c, 3) && !b)) return false;
    if (!h) h = tn_size(r, -1);
    if (tni_onnx_has_attr(c, "activations") || tni_onnx_has_attr(c, "clip") ||
        tni_onnx_attr_int(c, "input_forget", 0) || tni_onnx_has(c, 7))
        return tni_onnx_refuse(c,
                               "activations, clip, input_forget and peepholes are not supported");
    if (kind == TN_GRU && !tni_onnx_attr_int(c, "linear_before_reset", 0))
        return tni_onnx_refuse(c, "linear_before_reset 0 is not supported");
    int dirs = both ? 2 : 1;
    for (int d = 0; d < dirs; d++) {
        weight[4 * d]     = reorder(tn_select(w, 0, d), gates, h);
        weight[4 * d + 1] = reorder(tn_select(r, 0, d), gates, h);
        tn_tensor *bias   = b ? tn_select(b, 0, d)
                              : tn_zeros(c->cx, tn_dtype_of(x), TN_SHAPE(2 * gates * h));
        weight[4 * d + 2] = reorder(tn_slice(bias, 0, 0, gates * h, 1), gates, h);
        weight[4 * d + 3] = reorder(tn_slice(bias, 0, gates * h, 2 * gates * h, 1), gates, h);
    }
    tn_tensor *lengths = tni_onnx_in(c, 4), *h0 = tni_onnx_in(c, 5),
              *c0 = kind == TN_LSTM ? tni_onnx_in(c, 6) : NULL;
    if (first) {
        x  = tn_transpose(x, 0, 1);
        h0 = h0 ? tn_transpose(h0, 0, 1) : NULL;
        c0 = c0 ? tn_transpose(c0, 0, 1) : NULL;
    }
    if (back && lengths)
        return tni_onnx_refuse(c, "lengths of one reversed direction are not supported");
    if (back) x = tn_flip(x, 0);
    tn_sequence s = tn_rnn(x, 4 * dirs, weight,
                           (tn_rnn_opts){ .kind          = kind,
                                          .bidirectional = both,
                                          .h             = h0,
                                          .c             = c0,
                                          .lengths = lengths ? tn_cast(lengths, TN_I64) : NULL });
    if (!s.x || !s.h) return false;
    int64_t    T = tn_size(s.x, 0), B = tn_size(s.x, 1);
    tn_tensor *y = back ? tn_flip(s.x, 0) : s.x;
    y            = tn_permute(tn_reshape(y, TN_SHAPE(T, B, dirs, h)), 4,
                   first ? (int[]){ 1, 0, 2, 3 } : (int[]){ 0, 2, 1, 3 });
    return tni_onnx_out(c, 0, y) && tni_onnx_out(c, 1, first ? tn_transpose(s.h, 0, 1) : s.h) &&
           (c->nout < 3 || tni_onnx_out(c, 2, first ? tn_transpose(s.c, 0, 1) : s.c));
}

// LSTM(x, w, r, b, lengths, h, c, peepholes): all states, the last state, the last cell.
bool tni_onnx_lstm(tni_onnx_call *c)
{
    return recurrent(c, TN_LSTM, 4);
}
// GRU(x, w, r, b, lengths, h): all states, the last state.
bool tni_onnx_gru(tni_onnx_call *c)
{
    return recurrent(c, TN_GRU, 3);
}
// RNN(x, w, r, b, lengths, h): with tanh.
bool tni_onnx_rnn(tni_onnx_call *c)
{
    return recurrent(c, TN_RNN_TANH, 1);
}

// ---- random numbers, which are not those of other programs -------------------------------------

// The dtype and shape of the result: of attributes, or of an input.
static bool random_like(tni_onnx_call *c, bool like, tn_dtype *dt, int *rank, int64_t *size)
{
    int64_t type = tni_onnx_attr_int(c, "dtype", 0);
    *dt          = TN_F32;
    if (type && !tni_onnx_dtype(type, dt))
        return tni_onnx_refuse(c, "elements of type %lld are not supported", (long long)type);
    if (!like) return tni_onnx_attr_ints(c, "shape", TN_MAX_RANK, size, rank) && *rank >= 0;
    tn_tensor *x = tni_onnx_in(c, 0);
    if (!x) return false;
    if (!type) *dt = tn_dtype_of(x);
    *rank = tn_rank(x);
    for (int i = 0; i < *rank; i++) size[i] = tn_size(x, i);
    return true;
}

// Uniform numbers in low .. high, or normal ones; drawn on the device, anew in each run.
static bool random_numbers(tni_onnx_call *c, bool like, bool normal)
{
    tn_dtype dt;
    int      rank;
    int64_t  size[TN_MAX_RANK];
    if (!random_like(c, like, &dt, &rank, size)) return false;
    double a = normal ? tni_onnx_attr_real(c, "mean", 0) : tni_onnx_attr_real(c, "low", 0),
           b = normal ? tni_onnx_attr_real(c, "scale", 1) : tni_onnx_attr_real(c, "high", 1) - a;
    tn_tensor *y = normal ? tn_randn(c->r->cx, dt, rank, size) : tn_rand(c->r->cx, dt, rank, size);
    return tni_onnx_out(c, 0, tn_add_s(tn_mul_s(y, b), a));
}

bool tni_onnx_random_normal(tni_onnx_call *c)
{
    return random_numbers(c, false, true);
}
bool tni_onnx_random_uniform(tni_onnx_call *c)
{
    return random_numbers(c, false, false);
}
bool tni_onnx_random_normal_like(tni_onnx_call *c)
{
    return random_numbers(c, true, true);
}
bool tni_onnx_random_uniform_like(tni_onnx_call *c)
{
    return random_numbers(c, true, false);
}

// Bernoulli(p; dtype): 1 with the probability p.
bool tni_onnx_bernoulli(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0), *y = tn_bernoulli(x);
    tn_dtype   dt   = x ? tn_dtype_of(x) : TN_F32;
    int64_t    type = tni_onnx_attr_int(c, "dtype", 0);
    if (type && !tni_onnx_dtype(type, &dt))
        return tni_onnx_refuse(c, "elements of type %lld are not supported", (long long)type);
    return tni_onnx_out(c, 0, y ? tn_cast(y, dt) : NULL);
}
