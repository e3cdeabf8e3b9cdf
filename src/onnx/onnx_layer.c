// A model as a layer: its weights become parameters, under their names, and are trained, saved and
// loaded as those of any layer.
//
//   Conv(x, conv1.weight, conv1.bias)         parameters
//   BatchNormalization(x, w, b, mean, var)    w and b parameters, mean and var buffers
//   Gather(embedding, ids)                    a parameter
//   Resize(x, "", scales)                     a constant
//
// What a weight is, the nodes that read it say. Exporters fold batch norms into convolutions and
// leave dropout out, so that a network that is trained further may have neither.
#include "nn/layer.h"
#include "onnx/onnx_object.h"

#include <math.h>
#include <string.h>

// Ops whose weights are trained; of the second list, only what is no mask. Ops that pass a weight
// on to another are among them: an exporter writes a shared weight as an Identity.
static const char *const trained[] = {
    "Conv",
    "ConvTranspose",
    "Gemm",
    "MatMul",
    "Gather",
    "LayerNormalization",
    "PRelu",
    "InstanceNormalization",
    "Einsum",
    "GroupNormalization",
    "LSTM",
    "RMSNormalization",
    "GRU",
    "RNN",
    "Transpose",
    "Identity",
    "FusedConv",
    "FusedMatMul",
    "FusedGemm",
    "SkipLayerNormalization",
    "Attention",
    "SimplifiedLayerNormalization",
    "BiasGelu",
    "SkipSimplifiedLayerNormalization",
    "MultiHeadAttention",
};
static const char *const added[] = { "Add",     "Sub",       "Mul",     "Div",   "Concat", "Expand",
                                     "Reshape", "Unsqueeze", "Squeeze", "Slice", "Split",  "Cast" };
enum { TRAINED = sizeof trained / sizeof *trained, ADDED = sizeof added / sizeof *added };

typedef enum { CONSTANT, ADDEND, PARAMETER, BUFFER } weight_role;

// The lists are short, and looked through once for each input of a node.
static bool is_among(tni_wire op, const char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        if (tni_wire_is(op, names[i])) return true;
    return false;
}

// What a node makes of its input i.
static weight_role role_in(const tni_onnx_node *n, int i)
{
    tni_wire op = tni_onnx_bytes(n->message, TNI_NODE_OP);
    if (tni_wire_is(op, "BatchNormalization")) return i < 3 ? PARAMETER : BUFFER;
    if (is_among(op, trained, TRAINED)) return PARAMETER;
    return is_among(op, added, ADDED) ? ADDEND : CONSTANT;
}

// What all nodes together make of each value: a buffer if any of them does, a parameter if any
// trains it.
static void find_roles(const tni_onnx_model *m, uint8_t *role)
{
    for (size_t n = 0; n < m->nodes; n++)
        for (int i = 0; i < m->node[n].nin; i++) {
            int32_t     v = m->use[m->node[n].use + (uint32_t)i];
            weight_role r = role_in(&m->node[n], i);
            if (v >= 0 && r > role[v]) role[v] = (uint8_t)r;
        }
}

// Whether elements are far below 0, as those of a mask, which is added to scores so that none of
// them counts. Positions and biases of a network are not.
static bool is_mask(tn_tensor *t)
{
    double     lo    = 0;
    tn_scope  *scope = tn_begin(t->cx);
    tn_tensor *least = tn_min_all(t);
    bool       known = least && tn_read(least, TN_F64, &lo, 1) == TN_OK;
    tn_end(scope);
    return !known || !(lo > -1e4);
}

// Gives a weight of the file to the layer. Constants and numbers stay as they are. False, reported,
// on failure. A name with dots makes containers on its way, as PyTorch's names have them, so that
// the tree of the layer is that of the network it was exported from.
static bool add_weight(tn_onnx *m, tn_layer *l, size_t value, weight_role role)
{
    tni_onnx_model *f    = &m->model;
    tni_wire        init = f->value[value].init, name = tni_onnx_bytes(init, TNI_TENSOR_NAME);
    tn_dtype        dt;
    char            text[512];
    if (role == CONSTANT || f->value[value].sparse || tni_onnx_is_single(init) ||
        !tni_onnx_dtype(tni_onnx_int(init, TNI_TENSOR_TYPE, 0), &dt) || !tni_is_float(dt))
        return true;
    if (tni_wire_size(name) >= sizeof text || memchr(name.at, 0, tni_wire_size(name)))
        return tni_onnx_wrong(f, "the name %s of a weight is too long for a parameter",
                              tni_onnx_quoted(name).s);
    memcpy(text, name.at, tni_wire_size(name));
    text[tni_wire_size(name)] = 0;
    tn_tensor *t              = tni_onnx_tensor(f, m->owned.cx, init);
    if (!t) return false;
    if (role == ADDEND && tn_rank(t) > 1 && is_mask(t)) return true;
    t = role == BUFFER ? tn_layer_buffer(l, text, t) : tn_layer_param(l, text, t);
    if (!t) return false;
    tn_retain(t);
    m->run.value[value] = (tni_onnx_value){ .t = t, .fixed = true, .param = true };
    m->trained          = true;
    return true;
}

// Runs the model, in training with batch norms by the statistics of the batch.
static void forward(tn_layer *l, int nx, tn_tensor *const *x, int ny, tn_tensor **y)
{
    tn_onnx *m = tn_layer_self(l);
    if (!m) {
        tni_fail(tn_layer_ctx(l), TN_EARG, "forward: the model of this layer was closed");
        return;
    }
    m->run.training = tn_layer_training(l);
    tn_onnx_run(m, nx, NULL, x, ny, NULL, y);
    m->run.training = false;
}

// Called when the layer dies before its model, which goes on with the weights as they are.
static void let_go(void *self)
{
    ((tn_onnx *)self)->layer = NULL;
}

// What was computed of weights before is thrown away: they change from now on.
tn_layer *tn_onnx_layer(tn_onnx *m)
{
    const char *op = "onnx_layer";
    tn_ctx     *cx = tni_owned_ok(op, m, TNI_ONNX);
    if (!cx || m->layer) return cx ? m->layer : NULL;
    if (m->ins > TNI_MOST_PORTS || m->outs > TNI_MOST_PORTS || m->ins < 1 || m->outs < 1)
        return tni_fail(cx, TN_EARG, "%s: the model has %d inputs and %d outputs, a layer 1 to %d",
                        op, m->ins, m->outs, TNI_MOST_PORTS);
    int optional = 0;
    while (optional < m->ins - 1 && m->in[m->ins - 1 - optional].optional) optional++;
    tn_layer *l = tn_layer_new_n(
        cx, forward, (tn_layer_counts){ .in = m->ins, .out = m->outs, .optional = optional }, m,
        let_go);
    if (!l) return NULL;
    l->type     = "OnnxModel";
    m->model.op = op;
    tni_onnx_forget(m);
    for (size_t i = 0; i < m->model.values; i++)
        m->run.value[i].fixed = tni_wire_size(m->model.value[i].init) > 0;
    uint8_t *role = tni_zalloc(&cx->heap, m->model.values + 1);
    bool     ok   = role || tni_no_memory(cx, op);
    if (ok) find_roles(&m->model, role);
    for (size_t i = 0; ok && i < m->model.values; i++)
        if (m->run.value[i].fixed && !m->model.value[i].replaceable)
            ok = add_weight(m, l, i, (weight_role)role[i]);
    tni_free(&cx->heap, role);
    return ok ? m->layer = l : tni_layer_give_up(l);
}
