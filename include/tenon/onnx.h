// onnx.h: models from other programs, as ONNX files.
//
// Part of tenon.h, which includes it.
#ifndef TENON_ONNX_H
#define TENON_ONNX_H

#ifndef TENON_H
#error "include <tenon.h>"
#endif

typedef struct tn_onnx tn_onnx;  // a model that was read from a file

// Reads a model of opset 6 or newer; weights that lie beside it must be in its folder. Nothing runs
// yet. Returns NULL on failure. A model belongs to its context; tn_onnx_close is optional.
TN_API tn_onnx *tn_onnx_open(tn_ctx *cx, const char *path);
TN_API void     tn_onnx_close(tn_onnx *m);

// What a model says of an input or output.
typedef struct {
    const char *name;
    tn_dtype    dtype;
    int         rank;                 // -1: not said
    int64_t     size[TN_MAX_RANK];    // -1: not said, or a symbol
    const char *symbol[TN_MAX_RANK];  // "batch"; NULL if the size has no name
    bool        optional;             // an input that has a default
} tn_onnx_port;
// Return how many inputs and outputs there are, and each; weights are no inputs. The texts live as
// long as the model.
TN_API_PLAIN int          tn_onnx_inputs(const tn_onnx *m);
TN_API_PLAIN int          tn_onnx_outputs(const tn_onnx *m);
TN_API_PLAIN tn_onnx_port tn_onnx_input(const tn_onnx *m, int i);
TN_API_PLAIN tn_onnx_port tn_onnx_output(const tn_onnx *m, int i);

// Runs the model on nx inputs, by name or, if names is NULL, in order, and fills y with the ny
// outputs that are named, or the first ones. Other values of the graph can be asked for by name,
// too: features, for a head of your own. Values that are not read are not computed. As with any op
// the work is recorded, unless a size depends on a value, for which it waits. The third run of the
// same shapes is kept, and later ones are not recorded: the work begins with the call, on a GPU as
// one launch, and outputs are new tensors. Runs whose inputs need a gradient, or of a model that is
// a layer, are always recorded.
TN_API tn_status tn_onnx_run(tn_onnx *m, int nx, const char *const *x_names, tn_tensor *const *x,
                             int ny, const char *const *y_names, tn_tensor **y);

// Computes in another dtype from now on: what is f32 in the file, inputs among it, is f16 or bf16
// on the device, and f32 again in outputs. Sums, norms and softmax have more inside, as everywhere.
TN_API tn_status tn_onnx_cast(tn_onnx *m, tn_dtype dt);

// The model as a layer, of at most 16 inputs and outputs, which it takes and gives in order.
// Weights are parameters with their names, so that it is trained further, saved and loaded as any
// layer; the statistics of batch norms are buffers. There is one layer of a model, which runs until
// the model is closed.
TN_API tn_layer *tn_onnx_layer(tn_onnx *m);

typedef struct {
    int                opset;   // 13 to 21; 0: 17, which runtimes since 2022 read
    bool               beside;  // weights go to PATH.data, as from 2 GiB on they must
    const char        *batch;   // the symbol of axis 0, "N"; NULL: the size of x
    const char *const *x_names, *const *y_names;  // NULL: x and y, or x0, x1, ...
} tn_onnx_save_opts;
// Writes a layer as an ONNX model, in evaluation mode. The layer records a pass over inputs of the
// shapes and dtypes of x, whose values do not matter; with a symbol for the batch, inputs whose
// first axis is as long as that of x[0] have it there. Weights keep their names. A layer of the
// user's own can be any function (tn_layer_new_n). An op that ONNX lacks is refused by its name.
// The file appears whole or not at all.
TN_API tn_status tn_onnx_save(tn_layer *l, const char *path, int nx, tn_tensor *const *x,
                              tn_onnx_save_opts o);

// A node of the model's graph, functions inlined; the texts live as long as the model.
typedef struct {
    const char        *op, *name;  // "Conv"; "" if it has no name
    const char *const *in, *const *out;
    int  ins, outs;
    bool known;  // whether Tenon has the op; a model with another does not run
} tn_onnx_node;
// Return how many nodes there are, -1 on failure, and each.
TN_API int                tn_onnx_nodes(tn_onnx *m);
TN_API_PLAIN tn_onnx_node tn_onnx_node_at(const tn_onnx *m, int i);
// Returns what value i of a node is, its inputs before its outputs: of a weight what the file says,
// of others what they were in the newest run after tn_onnx_nodes was first called. rank -1: not
// known, or no tensor.
TN_API_PLAIN tn_onnx_port tn_onnx_node_value(const tn_onnx *m, int node, int i);

#endif
