// From a layer to an ONNX file. The layer runs on sample inputs; what it records is walked from the
// outputs back to inputs and weights, and every node becomes one or a few nodes of ONNX.
//
//   tni_export_trace    runs the layer: nodes in order, and the composite calls they came from   export_trace.c
//   tni_export_value    the name of a node's value: a weight, a constant, a view                 export_values.c
//   tni_export_call     softmax, conv2d, ... as their ONNX ops                                   export_calls.c
//   tni_export_row      a row of ops.def                                                         export_rows.c
//   tni_export_loop     a loop, with its body                                                    export_loop.c
//   tni_export_write    nodes and weights into a file                                            export_write.c
//
// With a symbolic batch the layer runs twice, on 2 and on 3 items. Both runs record the same ops in
// the same order; sizes that differ are a N + b.
#ifndef TNI_ONNX_EXPORT_H
#define TNI_ONNX_EXPORT_H

#include "nn/layer.h"
#include "base/message.h"
#include "ops/kept_calls.h"
#include "ops/loop.h"

enum { TNI_EXPORT_TRACES = 2, TNI_EXPORT_FIRST_BATCH = 2 };

// A size in each trace. Equal ones are a constant; at[1] is at[0] if there is one trace.
typedef struct {
    int64_t at[TNI_EXPORT_TRACES];
} tni_extent;

// A value as it stands in the file: a name and a shape. NULL: none.
typedef struct {
    const char *name;
    int         rank;
    tni_extent  size[TN_MAX_RANK];
} tni_operand_out;

// What is known of a node's value. `loose` broadcasts to the node's shape; `shown` is the result of
// a call that stored it in another order of axes, which views of it ask for.
typedef struct {
    tni_operand_out full, loose, shown;
    const char     *more[TNI_MOST_OUTPUTS];  // further outputs of the op, by index
    uint32_t        uses;
} tni_export_known;

// The nodes of one run of the layer, in order of ids. Invariant: the mark of node[i] is i + 1 while
// this is open. call[i]: the call that made node i, or NULL.
typedef struct {
    tni_trace        trace;
    size_t           count, cap;
    tni_node       **node;
    const tni_kept **call;
    tni_node        *in[TNI_MOST_PORTS], *out[TNI_MOST_PORTS];
    tn_tensor       *y[TNI_MOST_PORTS];
} tni_export_run;

typedef struct tni_export_graph tni_export_graph;

typedef struct {
    const char       *op;
    const char      **in, **out;
    int               nin, nout;
    const char       *name;
    tni_message       attributes;
    tni_export_graph *body;  // of a Scan; NULL: none
} tni_export_node;

typedef struct {
    const char *name;
    tn_dtype    dtype;
    int         rank;
    tni_extent  size[TN_MAX_RANK];
} tni_export_port;

// The graph in an attribute: what a loop does in each step. It sees the values of the graph around
// it by their names.
struct tni_export_graph {
    tni_export_node *node;
    size_t           nodes;
    tni_export_port  in[TNI_LOOP_INPUTS + 1], out[2 * TNI_LOOP_OUTPUTS];
    int              ins, outs;
};

// A weight or a constant. Its elements are those of `node`, turned if its two axes are to be
// swapped, or `bytes`.
typedef struct {
    const char *name;
    tn_dtype    dtype;
    int         rank;
    int64_t     size[TN_MAX_RANK];
    tni_node   *node;
    bool        turned;
    void       *bytes;
} tni_export_weight;

typedef struct {
    tn_ctx            *cx;
    tn_layer          *layer;
    const char        *path, *batch;  // batch: the symbol; NULL: sizes are fixed
    int                opset, nx, ny, traces;
    const char        *x_name[TNI_MOST_PORTS], *y_name[TNI_MOST_PORTS];
    bool               symbolic[TNI_MOST_PORTS];  // axis 0 of that input is the batch
    uint64_t           first;                     // id of the first node of the runs
    tni_export_run     run[TNI_EXPORT_TRACES];
    tni_entries        entries;  // the layer's tensors, for names
    tni_export_known  *known;    // by node
    tni_export_node   *node;
    size_t             nodes, node_cap;
    tni_export_weight *weight;
    size_t             weights, weight_cap;
    char             **text;
    size_t             texts, text_cap;
    const char        *batch_size;  // a value (1): the size of axis 0
    size_t             at;          // the node that is written
    int                number;      // of the newest node, for names
    bool               beside;      // weights are in a file of their own
    tni_extent         y_size[TNI_MOST_PORTS][TN_MAX_RANK];
    int                y_rank[TNI_MOST_PORTS];
    tn_dtype           x_dtype[TNI_MOST_PORTS], y_dtype[TNI_MOST_PORTS];
    int64_t            x_size[TNI_MOST_PORTS][TN_MAX_RANK];
    int                x_rank[TNI_MOST_PORTS];
} tni_exporter;

// An attribute of a node.
typedef struct {
    const char    *name, *s;
    int            type;  // 1 float, 2 int, 3 text, 7 ints: AttributeType
    double         f;
    int64_t        i;
    int            n;
    const int64_t *ints;
} tni_export_attr;

static inline tni_export_attr tni_attr_int(const char *name, int64_t v)
{
    return (tni_export_attr){ .name = name, .type = 2, .i = v };
}
static inline tni_export_attr tni_attr_float(const char *name, double v)
{
    return (tni_export_attr){ .name = name, .type = 1, .f = v };
}
static inline tni_export_attr tni_attr_text(const char *name, const char *s)
{
    return (tni_export_attr){ .name = name, .type = 3, .s = s };
}
static inline tni_export_attr tni_attr_ints(const char *name, int n, const int64_t *v)
{
    return (tni_export_attr){ .name = name, .type = 7, .n = n, .ints = v };
}

// Runs the layer once or twice and lists what it recorded. False, reported.
bool tni_export_trace(tni_exporter *e, tn_tensor *const *x);
void tni_export_untrace(tni_exporter *e);
// The index of a node of the first run.
static inline size_t tni_export_index(const tni_node *n)
{
    return (size_t)n->mark - 1;
}
static inline tni_node *tni_export_at(const tni_exporter *e, size_t i)
{
    return e->run[0].node[i];
}
// Whether a node was there before the layer ran, or holds data: its value is in the file.
bool tni_export_is_weight(const tni_exporter *e, const tni_node *n);

// A text that lives as long as the export; NULL, reported, when memory is out.
const char *tni_export_text(tni_exporter *e, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
// Reports that the node that is written cannot be, as TN_EARG, with the layer it is in; NULL.
void *tni_export_refuse(tni_exporter *e, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

// Adds a node of ONNX and returns the name of its only output. NULL in, NULL out; "" is an input
// that is left out.
const char *tni_export_add(tni_exporter *e, const char *op, int nin, const char *const *in,
                           int nattr, const tni_export_attr *attr);
// The same with nout outputs, whose names it makes.
bool tni_export_add_n(tni_exporter *e, const char *op, int nin, const char *const *in, int nattr,
                      const tni_export_attr *attr, int nout, const char **out);

// Constants: a number of a dtype, 0-d; n integers, 1-d; n equal numbers, 1-d.
const char *tni_export_number(tni_exporter *e, tn_dtype dt, tni_num v);
const char *tni_export_ints(tni_exporter *e, int n, const int64_t *v);
const char *tni_export_fill(tni_exporter *e, tn_dtype dt, int64_t n, double v);
// x cast to a dtype.
const char *tni_export_cast(tni_exporter *e, const char *x, tn_dtype dt);
// The size of the batch as a 1-d value of one element.
const char *tni_export_batch(tni_exporter *e);
// n sizes as a 1-d value: a constant, or computed from the batch; one as a 0-d value.
const char *tni_export_sizes(tni_exporter *e, int n, const tni_extent *v);
const char *tni_export_size(tni_exporter *e, tni_extent v);

// The size of axis k of node i.
tni_extent         tni_export_axis(const tni_exporter *e, size_t i, int k);
static inline bool tni_is_fixed(tni_extent v)
{
    return v.at[0] == v.at[1];
}
static inline tni_extent tni_fixed(int64_t v)
{
    return (tni_extent){ { v, v } };
}
static inline bool tni_extent_same(tni_extent a, tni_extent b)
{
    return a.at[0] == b.at[0] && a.at[1] == b.at[1];
}

// The value of node i: of its shape; or of one that broadcasts to it. Has no name after a failure.
tni_operand_out tni_export_value(tni_exporter *e, size_t i);
tni_operand_out tni_export_loose(tni_exporter *e, size_t i);
// x in another shape: itself if it has that already.
const char *tni_export_reshape(tni_exporter *e, tni_operand_out x, int rank,
                               const tni_extent *size);
// The value of a matrix, node i, with its axes swapped: a weight that is read but once is stored
// so.
const char *tni_export_turned(tni_exporter *e, size_t i);
// Writes x with its axes permuted: axis order[k] comes to place k.
const char *tni_export_permute(tni_exporter *e, const char *x, int rank, const int *order);

// Write node i: its value becomes known. False, reported. A call may have no op in this opset, or
// none for these arguments: tni_export_call_fits says so beforehand, and then what it recorded is
// written.
bool tni_export_call_fits(const tni_exporter *e, const tni_kept *c);
bool tni_export_call(tni_exporter *e, size_t i);
bool tni_export_row(tni_exporter *e, size_t i);
// Writes all nodes of the run, in order. False, reported.
bool tni_export_nodes(tni_exporter *e);
// Writes node i, a loop, as a Scan, and returns its first output.
const char *tni_export_loop(tni_exporter *e, size_t i);
// Frees nodes, and the graphs in them.
void tni_export_free_nodes(tni_exporter *e, tni_export_node *node, size_t nodes);
// A reduction of x over a mask of axes.
const char *tni_export_reduce(tni_exporter *e, const char *op, const char *x, uint32_t mask,
                              bool keep);
// A name with the shape of node i.
tni_operand_out tni_export_shaped(const tni_exporter *e, size_t i, const char *name);
// Sets the value of node i, which has its shape.
bool tni_export_set(tni_exporter *e, size_t i, const char *name);
// Writes an expression over names, as `Mul(a, Add(Erf(a), 1))`: see export_rows.def. dt is the
// dtype of its numbers.
const char *tni_export_spell(tni_exporter *e, const char *text, tn_dtype dt, int n,
                             const char *const *arg);

// Names the outputs of the file, after all nodes are written. False, reported.
bool tni_export_outputs(tni_exporter *e);
// Writes the file, and the one beside it. False, reported.
bool tni_export_write(tni_exporter *e);

#endif
