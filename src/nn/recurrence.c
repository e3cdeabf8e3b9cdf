// Recurrent layers with PyTorch's names: weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, and
// _reverse of the second direction; then those of layer 1, and so on.
#include "nn/builtin.h"

#include <math.h>

// The weights, in the order that tn_rnn has them in: four for each of up to 16 layers and
// directions.
typedef struct {
    tn_rnn_opts o;
    int         n;
    tn_tensor  *w[64];
} recurrence;

static tn_tensor *recurrence_forward(tn_layer *l, tn_tensor *x)
{
    recurrence *s = l->self;
    tn_rnn_opts o = s->o;
    o.training    = l->training;
    return tn_rnn(x, s->n, s->w, o).x;
}

// The weights of one layer in one direction.
static bool make_weights(tn_layer *l, int64_t in, int64_t hidden, int layer, bool reverse)
{
    static const char *const part[] = { "weight_ih", "weight_hh", "bias_ih", "bias_hh" };
    recurrence              *s      = l->self;
    int64_t rows  = hidden * (s->o.kind == TN_LSTM ? 4 : s->o.kind == TN_GRU ? 3 : 1);
    double  bound = 1 / sqrt((double)hidden);
    for (int i = 0; i < (s->o.no_bias ? 2 : 4); i++) {
        tni_text   name   = tni_text_of("%s_l%d%s", part[i], layer, reverse ? "_reverse" : "");
        int64_t    size[] = { rows, i ? hidden : in };
        tn_tensor *w      = tni_new_param(l, name.s, tni_start_within, bound, i < 2 ? 2 : 1, size);
        if (!w) return false;
        s->w[s->n++] = w;
    }
    return true;
}

// All weights start uniformly within 1 / sqrt(hidden), as PyTorch's.
tn_layer *tn_nn_rnn(tn_ctx *cx, int64_t in, int64_t hidden, tn_nn_rnn_opts o)
{
    static const char *const name[] = { "RNN", "RNN", "LSTM", "GRU" };
    const char              *op     = "nn_rnn";
    if (!tni_ctx_ok(cx, op) || !tni_size_arg(cx, op, "in", in) ||
        !tni_size_arg(cx, op, "hidden", hidden) || !tni_unit_arg(cx, op, "dropout", o.dropout))
        return NULL;
    int layers = o.layers ? o.layers : 1, ways = 1 + o.bidirectional;
    if (o.kind < TN_RNN_TANH || o.kind > TN_GRU)
        return tni_fail(cx, TN_EARG, "nn_rnn: kind %d is none", (int)o.kind);
    if (layers < 1 || layers * ways > 16)
        return tni_fail(cx, TN_EARG, "nn_rnn: layers is %d, expected 1 to %d", o.layers, 16 / ways);
    tn_layer *l = tni_layer_make(cx, op, name[o.kind], recurrence_forward, sizeof(recurrence));
    if (!l) return NULL;
    recurrence *s = l->self;
    s->o          = (tn_rnn_opts){ .kind          = o.kind,
                                   .layers        = layers,
                                   .bidirectional = o.bidirectional,
                                   .batch_first   = o.batch_first,
                                   .no_bias       = o.no_bias,
                                   .dropout       = o.dropout };
    for (int i = 0; i < layers * ways; i++)
        if (!make_weights(l, i < ways ? in : ways * hidden, hidden, i / ways, i % ways))
            return tni_layer_give_up(l);
    return l;
}
