// Running a model: its nodes are recorded one after the other as calls of Tenon's own ops. A value
// may be known on the host, as shapes and what is computed of them are: then its op runs there, on
// a context of the ref device, and never reaches the device.
#ifndef TNI_ONNX_RUN_H
#define TNI_ONNX_RUN_H

#include "onnx/model.h"
#include "onnx/onnx_rows.h"
#include "ops/op_functions.h"

// How many numbers are kept on the host, and at most read as sizes, axes or pads.
enum { TNI_ONNX_SMALL = 4096, TNI_ONNX_SLOTS = 2 };
// How many bytes of what is computed of weights alone are kept: more than a transposed embedding of
// a small model, less than a file of a few bytes could fill a machine with.
#define TNI_ONNX_KEPT ((int64_t)1 << 30)

// A value while the model runs: nothing, a tensor in one context or in both, or a list of values.
typedef struct tni_onnx_value tni_onnx_value;
struct tni_onnx_value {
    tn_tensor      *t, *host;
    tni_onnx_value *item;  // of a sequence; NULL and is_list: an empty one
    size_t          items;
    bool            is_list;
    int8_t type;   // a TensorProto.DataType that is kept in a wider dtype; 0: what the dtype says
    bool   fixed;  // a weight, or computed of weights alone: kept from run to run
    bool   param;  // of the model's layer: its value may change at any time
    bool   asked;  // for as an output of this run
    bool
        apart;  // a weight that is not in memory, since what is made of it is: see tni_onnx_give_up
    bool       strips_turned;
    int64_t    strips_columns;
    tn_tensor *strips;  // of a fixed matrix, or its transpose: see ops_product.c; NULL: none
    // The DequantizeLinear that gives the value, which has a tensor once anything but a product of
    // bytes reads it; NULL: none.
    const tni_onnx_node *dequantize;
    const tni_onnx_node *normed;  // the batch norm that the value has passed already; NULL: none
    // Its product with several matrices side by side (onnx_fuse.c), and the first node that takes
    // columns of it; NULL: none.
    tn_tensor           *product;
    const tni_onnx_node *product_of;
    // Of a product of bytes: the value is sum, of integers, times factor; NULL: none.
    tn_tensor *sum, *factor;
    bool       factor_fixed;
    int8_t     is_zero;  // of a fixed zero point, once it was looked at: 1 all zeros, -1 not
};

// A shape that a value had; rank -1: none.
typedef struct {
    int8_t  rank, dtype;
    int64_t size[TN_MAX_RANK];
} tni_onnx_seen;

typedef struct tni_onnx_fusions tni_onnx_fusions;

typedef struct {
    tni_onnx_model *m;
    tn_ctx         *cx, *host;
    tni_onnx_value *value;  // by number
    void           *lists;  // memory of sequences, until the run ends
    int64_t         room;   // bytes of results that may still be kept from run to run
    tn_tensor *(*kept)
        [TNI_ONNX_SLOTS];       // by node: what its op computed of weights alone; NULL: nothing yet
    tni_onnx_fusions *fusions;  // nodes that become one; NULL: not looked for yet
    bool              training;
    // For whoever looks at the model: the shape of each value in the newest run, by number; NULL:
    // no one does.
    tni_onnx_seen   *seen;
    const tni_path **path;  // of each node, by which profiles and errors name it; made by and by
} tni_onnx_run;

// One application of an op: its inputs and outputs in a context, that of the device or of the host.
struct tni_onnx_call {
    tni_onnx_run        *r;
    const tni_onnx_node *n;
    tn_ctx              *cx;
    int                  opset, nin, nout;
};

// Runs the nodes of a graph whose inputs have their values. False, reported, on failure.
bool tni_onnx_run_graph(tni_onnx_run *r, const tni_onnx_graph *g);

// A tensor of the device in the dtype that the model computes in, if it is f32.
_Static_assert(sizeof(tni_onnx_value) <= TNI_ONNX_VALUE_BYTES,
               "a value is what tni_onnx_fits counts");
tn_tensor *tni_onnx_on_device(const tni_onnx_run *r, tn_tensor *t);

// ---- for ops

bool tni_onnx_has(const tni_onnx_call *c, int i);
// Values as they are: input i, NULL if it is left out; what output i becomes.
tni_onnx_value *tni_onnx_value_in(const tni_onnx_call *c, int i);
void            tni_onnx_value_out(tni_onnx_call *c, int i, tni_onnx_value v);
// Makes the tensor of a value that a DequantizeLinear gives, if it has none yet.
void tni_onnx_value_make(tni_onnx_run *r, tni_onnx_value *v);
// The call of the DequantizeLinear that gives input i, if that shows its integers to products; and
// output 0 becomes one that does.
bool tni_onnx_dequantizes(const tni_onnx_call *c, int i, tni_onnx_call *by);
void tni_onnx_dequantizes_out(tni_onnx_call *c);
// Output 0, which has its tensor, is a sum of integers times a factor. fixed: that stays as it is.
void tni_onnx_sum_out(tni_onnx_call *c, tn_tensor *sum, tn_tensor *factor, bool fixed);
// What a DequantizeLinear gives; see ops_quantized.c.
tn_tensor *tni_onnx_dequantize(tni_onnx_call *c);
// A value as a tensor in the call's context; NULL, reported, if it is none.
tn_tensor *tni_onnx_value_tensor(tni_onnx_call *c, tni_onnx_value *v);
// A list of n values, which are nothing yet, until the run ends; false, reported, when memory is
// out.
bool tni_onnx_list(tni_onnx_call *c, size_t n, tni_onnx_value *list);
// The tensor that is input i, in the call's context; NULL if it is left out or could not be made.
tn_tensor *tni_onnx_in(tni_onnx_call *c, int i);
// Gives output i its tensor, of either context; false if it is NULL.
bool tni_onnx_out(tni_onnx_call *c, int i, tn_tensor *t);
// Reads input i as integers or real numbers, from 0 to `most`; false, reported, if there are more
// or they cannot be read. An input that is left out has -1 of them.
bool tni_onnx_ints(tni_onnx_call *c, int i, int most, int64_t *v, int *n);
bool tni_onnx_reals(tni_onnx_call *c, int i, int most, double *v, int *n);
// Attributes, or what they are if the node has none.
int64_t  tni_onnx_attr_int(const tni_onnx_call *c, const char *name, int64_t or);
double   tni_onnx_attr_real(const tni_onnx_call *c, const char *name, double or);
bool     tni_onnx_attr_is(const tni_onnx_call *c, const char *name, const char *text, bool or);
tni_wire tni_onnx_attr_text(const tni_onnx_call *c, const char *name);
// Reads a list of at most `most`; *n is -1 if there is none.
bool tni_onnx_attr_ints(tni_onnx_call *c, const char *name, int most, int64_t *v, int *n);
bool tni_onnx_attr_reals(tni_onnx_call *c, const char *name, int most, double *v, int *n);
bool tni_onnx_has_attr(const tni_onnx_call *c, const char *name);
// Whether input i is known without running anything: a weight, or a value of the host.
bool tni_onnx_is_constant(tni_onnx_call *c, int i);
// Whether the node is all that reads input i, a weight of the file.
bool tni_onnx_is_read_once(tni_onnx_call *c, int i);
// Whether inputs from .. to - 1 are weights, or computed of weights alone, that stay as they are.
bool tni_onnx_is_fixed(const tni_onnx_call *c, int from, int to);
// What the node has kept in a slot since an earlier run, or NULL; keeps t there, which is computed
// of fixed inputs, unless the budget is spent. Returns t.
tn_tensor *tni_onnx_kept(const tni_onnx_call *c, int slot);
tn_tensor *tni_onnx_keep(tni_onnx_call *c, int slot, tn_tensor *t);
// Lets go of input i, a weight that only this node reads, whose place something kept has taken. It
// is read from the file again if the node asks for it.
void tni_onnx_give_up(tni_onnx_call *c, int i);
// Makes output `to` the value that input `from` is.
bool tni_onnx_copy(tni_onnx_call *c, int to, int from);
// Reports why the node cannot run, after its name; false.
bool tni_onnx_refuse(tni_onnx_call *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// The TensorProto.DataType of input i where it is one that is kept in a wider dtype, or 0; output i
// becomes such a one.
int  tni_onnx_narrow_in(const tni_onnx_call *c, int i);
void tni_onnx_narrow_out(tni_onnx_call *c, int i, int type);
// Whether elements of a type are kept in a wider dtype, and as what; *bits: of one in a file.
bool tni_onnx_is_narrow(int64_t type, tn_dtype *dt, int *bits);
// Writes count elements of such a type, packed from the low bits of each byte on, as that dtype.
void tni_onnx_widen(int type, const unsigned char *packed, int64_t count, void *to);
// x as elements of such a type, kept in that dtype. Beyond its range it saturates, or a float
// becomes a NaN. round: of powers of two (type 24).
tn_tensor *tni_onnx_narrowed(tn_tensor *x, int type, bool saturate, tni_wire round);

// A tensor of a SparseTensorProto, with its zeros, and of a TensorProto, in a context. NULL,
// reported, on failure.
tn_tensor *tni_onnx_sparse(tni_onnx_model *m, tn_ctx *cx, tni_wire sparse);
tn_tensor *tni_onnx_tensor(tni_onnx_model *m, tn_ctx *cx, tni_wire tensor);
// Whether a TensorProto has one element.
bool tni_onnx_is_single(tni_wire tensor);
// The dtype of a TensorProto.DataType; false if Tenon has none.
bool tni_onnx_dtype(int64_t type, tn_dtype *dt);
// The TensorProto.DataType of a dtype.
int64_t tni_onnx_type_of(tn_dtype dt);

#endif
