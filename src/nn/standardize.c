// Standardization around a network: what goes in has mean 0 and deviation 1, and a number that
// comes out is in the target's own units. Means and deviations are buffers, saved with the weights.
#include "nn/builtin.h"

// The tensors belong to the layer, and body is its child.
typedef struct {
    tn_layer  *body;
    tn_tensor *mean, *std;
    tn_tensor *target_mean, *target_std;  // (outputs), NULL without outputs
} standardize;

// Standardizes the input, and undoes the same for the output, so that a loss is in the target's
// units.
static tn_tensor *standardize_forward(tn_layer *l, tn_tensor *x)
{
    standardize *s = l->self;
    tn_tensor   *y = tn_forward(s->body, tn_div(tn_sub(x, s->mean), s->std));
    return s->target_mean ? tn_add(tn_mul(y, s->target_std), s->target_mean) : y;
}

// Buffers, not parameters: they are data about the data, saved with the weights and never trained.
static bool make_buffers(tn_layer *l, int rank, const int64_t *size, int64_t outputs)
{
    standardize *s = l->self;
    s->mean        = tni_new_buffer(l, "mean", TN_F32, 0, rank, size);
    if (s->mean) s->std = tni_new_buffer(l, "std", TN_F32, 1, rank, size);
    if (!s->std || outputs == 0) return s->std != NULL;
    s->target_mean = tni_new_buffer(l, "target_mean", TN_F32, 0, 1, &outputs);
    if (s->target_mean) s->target_std = tni_new_buffer(l, "target_std", TN_F32, 1, 1, &outputs);
    return s->target_std != NULL;
}

tn_layer *tn_nn_standardize_nd(tn_ctx *cx, int rank, const int64_t *size, tn_layer *body,
                               tn_nn_standardize_opts o)
{
    const char *op = "nn_standardize";
    if (!tni_ctx_ok(cx, op) || !tni_rank_ok(cx, op, rank, size)) return NULL;
    for (int i = 0; i < rank; i++)
        if (!tni_size_arg(cx, op, "size", size[i])) return NULL;
    if (o.outputs && !tni_size_arg(cx, op, "outputs", o.outputs)) return NULL;
    if (!tni_layer_arg(cx, op, "body", body)) return NULL;
    tn_layer *l = tni_layer_make(cx, op, "Standardize", standardize_forward, sizeof(standardize));
    if (!l) return NULL;
    standardize *s = l->self;
    s->body        = make_buffers(l, rank, size, o.outputs) ? tn_layer_child(l, "net", body) : NULL;
    return s->body ? l : tni_layer_give_up(l);
}

tn_layer *tn_nn_standardize(tn_ctx *cx, int64_t columns, tn_layer *body)
{
    return tn_nn_standardize_nd(cx, 1, &columns, body, (tn_nn_standardize_opts){ 0 });
}
