// The multi-layer perceptron: linear layers with relu between them.
#include "part.h"

#include <stdio.h>

// Appends a layer to a sequence. On failure frees the layer and returns false.
static bool append(tn_layer *net, int at, tn_layer *l)
{
    char name[16];
    snprintf(name, sizeof name, "%d", at);
    if (l && tn_layer_child(net, name, l)) return true;
    tn_layer_free(l);
    return false;
}

tn_layer *tn_mlp(tn_ctx *cx, int n, const int64_t *sizes)
{
    if (n < 2 || !sizes)
        return tn_error_set(cx, TN_EARG, "mlp: it needs at least the sizes of input and output");
    tn_layer *net = tn_nn_seq(cx, tn_nn_flatten(cx));
    bool      ok  = net != NULL;
    for (int i = 1, at = 1; ok && i < n; i++) {
        ok = append(net, at++, tn_nn_linear(cx, sizes[i - 1], sizes[i]));
        if (ok && i + 1 < n) ok = append(net, at++, tn_nn_act(cx, tn_relu));
    }
    if (ok) return net;
    tn_layer_free(net);
    return NULL;
}
