// An ONNX model as it will run: nodes in order, values by number. Texts, attributes and weights
// stay in the mapped file, where they are read when they are needed.
#ifndef TNI_ONNX_MODEL_H
#define TNI_ONNX_MODEL_H

#include "base/text.h"
#include "io/mapping.h"
#include "base/wire.h"

// Limits on what a file may ask for before anything runs: a few bytes can describe a function that
// calls another twice, which calls a third twice, and so on.
enum {
    TNI_ONNX_NODES = 1000000,  // after functions are inlined
    TNI_ONNX_DEPTH = 64,       // graphs in attributes of nodes of graphs, functions in functions
    TNI_ONNX_NONE  = -1        // a value that is left out
};

// Numbers of fields, by message; see onnx.proto.
enum {
    TNI_MODEL_IR          = 1,
    TNI_MODEL_PRODUCER    = 2,
    TNI_MODEL_GRAPH       = 7,
    TNI_MODEL_OPSET       = 8,
    TNI_MODEL_META        = 14,
    TNI_MODEL_FUNCTION    = 25,
    TNI_OPSET_DOMAIN      = 1,
    TNI_OPSET_VERSION     = 2,
    TNI_GRAPH_NODE        = 1,
    TNI_GRAPH_NAME        = 2,
    TNI_GRAPH_INITIALIZER = 5,
    TNI_GRAPH_INPUT       = 11,
    TNI_GRAPH_OUTPUT      = 12,
    TNI_GRAPH_SPARSE      = 15,
    TNI_NODE_INPUT        = 1,
    TNI_NODE_OUTPUT       = 2,
    TNI_NODE_NAME         = 3,
    TNI_NODE_OP           = 4,
    TNI_NODE_ATTRIBUTE    = 5,
    TNI_NODE_DOMAIN       = 7,
    TNI_NODE_OVERLOAD     = 8,
    TNI_ATTR_NAME         = 1,
    TNI_ATTR_F            = 2,
    TNI_ATTR_I            = 3,
    TNI_ATTR_S            = 4,
    TNI_ATTR_T            = 5,
    TNI_ATTR_G            = 6,
    TNI_ATTR_FLOATS       = 7,
    TNI_ATTR_INTS         = 8,
    TNI_ATTR_STRINGS      = 9,
    TNI_ATTR_GRAPHS       = 11,
    TNI_ATTR_REF          = 21,
    TNI_ATTR_SPARSE       = 22,
    TNI_TENSOR_DIMS       = 1,
    TNI_TENSOR_TYPE       = 2,
    TNI_TENSOR_FLOATS     = 4,
    TNI_TENSOR_INTS       = 5,
    TNI_TENSOR_STRINGS    = 6,
    TNI_TENSOR_LONGS      = 7,
    TNI_TENSOR_NAME       = 8,
    TNI_TENSOR_RAW        = 9,
    TNI_TENSOR_DOUBLES    = 10,
    TNI_TENSOR_ULONGS     = 11,
    TNI_TENSOR_EXTERNAL   = 13,
    TNI_TENSOR_LOCATION   = 14,
    TNI_SPARSE_VALUES     = 1,
    TNI_SPARSE_INDICES    = 2,
    TNI_SPARSE_DIMS       = 3,
    TNI_VALUE_NAME        = 1,
    TNI_VALUE_TYPE        = 2,
    TNI_TYPE_TENSOR       = 1,
    TNI_TYPE_SEQUENCE     = 4,
    TNI_TYPE_MAP          = 5,
    TNI_TYPE_OPTIONAL     = 9,
    TNI_FUNCTION_NAME     = 1,
    TNI_FUNCTION_INPUT    = 4,
    TNI_FUNCTION_OUTPUT   = 5,
    TNI_FUNCTION_NODE     = 7,
    TNI_FUNCTION_OPSET    = 9,
    TNI_FUNCTION_DOMAIN   = 10,
    TNI_FUNCTION_DEFAULT  = 11,
    TNI_FUNCTION_OVERLOAD = 13
};

// One application of an op. Its values are numbers in tni_onnx_model.use, from `use` on: nin
// inputs, then nout outputs.
typedef struct {
    tni_wire message;
    uint32_t use, scope;
    uint16_t nin, nout;
    int16_t  row;    // in the table of ops; -1: not known
    int16_t  opset;  // of the op's domain where the node stands
} tni_onnx_node;

// Where names are looked up: a graph within another sees its names, the body of a function only its
// own. A call of a function has the node that calls, for attributes that the body takes from it.
typedef struct {
    int32_t  outer;     // -1: none
    tni_wire caller;    // a NodeProto; empty in graphs
    uint32_t from;      // the scope that the caller stands in
    tni_wire function;  // a FunctionProto, in its body and in graphs there; else empty
} tni_onnx_scope;

// The nodes of a graph are side by side. key and scope tell graphs in attributes apart: the body of
// a function is read once for each call.
typedef struct {
    const unsigned char *key;    // start of the GraphProto
    uint32_t             scope;  // of the node that has it
    uint32_t             first, count;
    uint32_t             in, nin, out, nout;  // in use
} tni_onnx_graph;

typedef struct {
    tni_wire name;
    uint32_t scope;
    int32_t  value;
} tni_onnx_name;

// What the file says of a value: a weight, if init is not empty (a TensorProto, or with sparse a
// SparseTensorProto).
typedef struct {
    tni_wire init;
    bool     sparse;
    bool     replaceable;  // also an input, for which it is the default
    uint32_t readers;      // nodes and outputs that read it
} tni_onnx_static;

// Graph 0 is the model's own.
typedef struct {
    tn_ctx          *cx;
    const char      *op;  // the public call, for messages
    char            *path;
    tni_mapping     *map;
    tni_wire         message, graph_message;
    int64_t          ir;
    tn_dtype         as;  // what f32 of the file is on the device: tn_onnx_cast
    tni_onnx_node   *node;
    tni_onnx_scope  *scope;
    tni_onnx_graph  *graph;
    int32_t         *use;
    tni_onnx_static *value;
    tni_onnx_name   *name;  // a hash table; entries with value -2 are free
    size_t nodes, node_cap, scopes, scope_cap, graphs, graph_cap, uses, use_cap, values, value_cap,
        names, name_slots;
} tni_onnx_model;

// Reads the mapped file. False, reported by the op's name, if it is no model; the caller closes it
// either way.
bool tni_onnx_model_read(tni_onnx_model *m);
void tni_onnx_model_close(tni_onnx_model *m);
// Reports what is wrong with the file as TN_EFORMAT, after the op and the path; false.
bool tni_onnx_wrong(tni_onnx_model *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// Whether what was read so far, and `more` bytes for it, stay within what a file of its size may
// take; false, reported, if not.
bool tni_onnx_fits(tni_onnx_model *m, size_t more);
enum { TNI_ONNX_VALUE_BYTES = 128 };  // of a value while the model runs, at most

// The value of that name in the model's graph, or TNI_ONNX_NONE.
int32_t tni_onnx_named(const tni_onnx_model *m, const char *name);
// The graph in an attribute of a node.
const tni_onnx_graph *tni_onnx_subgraph(const tni_onnx_model *m, const tni_onnx_node *n,
                                        const char *attribute);
// The attribute of a node, where its function takes it from its caller that of the caller; false if
// it has none.
bool tni_onnx_attribute(const tni_onnx_model *m, const tni_onnx_node *n, const char *name,
                        tni_wire *attribute);
// A text of the file for a message: in quotes, escaped, cut.
tni_text tni_onnx_quoted(tni_wire text);
// The bytes of a field, or none.
tni_wire tni_onnx_bytes(tni_wire message, uint32_t number);
// The integer of a field, or `or`.
int64_t tni_onnx_int(tni_wire message, uint32_t number, int64_t or);
// `Conv "layer1/conv"` of a node, for messages.
tni_text tni_onnx_node_text(const tni_onnx_node *n);

#endif
