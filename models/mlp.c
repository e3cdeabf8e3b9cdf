// The multi-layer perceptron: linear layers with relu between.
#include <stdlib.h>
#include <tenon/models.h>

tn_layer *tn_mlp(tn_ctx *cx, int n, const int64_t *sizes)
{
    if (n < 2 || !sizes)
        return tn_error_set(cx, TN_EARG, "mlp: it needs at least the sizes of input and output");
    int        steps = 2 * n - 2;  // one flatten, n - 1 linear, n - 2 relu
    tn_layer **step  = calloc((size_t)steps, sizeof *step);
    if (!step) return tn_error_set(cx, TN_EMEM, "mlp: out of memory");
    step[0] = tn_nn_flatten(cx);
    for (int i = 1; i < n; i++) {
        step[2 * i - 1] = tn_nn_linear(cx, sizes[i - 1], sizes[i]);
        if (i + 1 < n) step[2 * i] = tn_nn_act(cx, tn_relu);
    }
    tn_layer *net = tn_nn_seq_n(cx, steps, step);
    free(step);
    return net;
}
