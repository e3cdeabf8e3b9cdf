// Users' own ops, tn_custom: an expression, which is recorded as ops of the table (expr_op.c), or
// callbacks behind the row `custom`: `shape` is called here while recording, `compute` or CUDA text
// by the device while evaluating, `grad` by tni_grad_custom (grad/rules.c).
//
// A definition is the program's memory and must outlive the context. The attributes of a call are
// copied into the node, with the shapes of the outputs behind them, since the call may run much
// later.
#include "ops/collective.h"
#include "ops/expr_op.h"

#include <string.h>

// Reports the first member that a definition lacks; true if it lacks none.
static bool op_def_ok(tn_ctx *cx, const tn_op_def *op)
{
    bool        runs = op->expr || op->compute || op->cuda;
    const char *lack = !op->name                 ? "name"
                       : !op->expr && !op->shape ? "shape"
                       : !runs                   ? "compute, expr or cuda"
                       : op->nin < 1             ? "nin"
                                                 : NULL;
    // The shape callback fills an array of that size on the stack.
    if (op->nout > TNI_MOST_OUTPUTS) lack = "space for more than 16 outputs";
    if (!lack) return true;
    tni_fail(cx, TN_EARG, "custom: %s has no %s", op->name ? op->name : "the op", lack);
    return false;
}

// A node as callbacks see it: shape and dtype, no data yet.
static tn_array array_of_node(const tni_node *n)
{
    tn_array a = { .dtype = (tn_dtype)n->dtype, .rank = n->rank };
    memcpy(a.size, n->size, (size_t)n->rank * sizeof *a.size);
    return a;
}

// Asks the op for the shapes of its outputs and checks them. The callback may call the library;
// `nested` lets tn_close refuse to run inside it.
static bool infer_shapes(tn_ctx *cx, const tn_op_def *op, tni_node *const *src, const void *attr,
                         int nout, tn_array *out)
{
    tn_array *in = tni_alloc(&cx->heap, (size_t)op->nin * sizeof *in);
    if (!in) {
        tni_fail_memory(cx, op->name);
        return false;
    }
    for (int i = 0; i < op->nin; i++) in[i] = array_of_node(src[i]);
    // An output that the callback forgets is a 0-d tensor of dtype 0, which the checks below see.
    memset(out, 0, (size_t)nout * sizeof *out);
    // The callback may not close the context.
    cx->nested++;
    tn_status s = op->shape(attr, in, out);
    cx->nested--;
    tni_free(&cx->heap, in);
    if (s != TN_OK) {
        tni_fail(cx, TN_EUSER, "%s: shape failed with status %d for x[0] %s", op->name, (int)s,
                 tni_shape_text(src[0]->rank, src[0]->size).s);
        return false;
    }
    for (int i = 0; i < nout; i++) {
        if (!tni_dtype_ok(out[i].dtype)) {
            tni_fail(cx, TN_EDTYPE, "%s: output %d has no dtype", op->name, i);
            return false;
        }
        if (!tni_shape_ok(cx, op->name, out[i].rank, out[i].size)) return false;
    }
    return true;
}

// Where the outputs begin behind the user's bytes: aligned for a tn_array.
static size_t outputs_at(size_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

const tn_array *tni_custom_outputs(const tni_attr *attr)
{
    return (const tn_array *)((const char *)attr->custom.bytes + outputs_at(attr->custom.count));
}

// Called by devices that run on the host, during an evaluation; *why is for their message.
tn_status tni_custom_compute(const tni_attr *attr, const tn_array *in, tn_array *out,
                             const char *device, tni_text *why)
{
    const tn_op_def *op = attr->custom.def;
    *why                = (tni_text){ 0 };
    if (tni_is_collective(op)) return tni_collective_run(attr->custom.bytes, in, out, why);
    if (!op->compute) {
        tni_text_add(why, "%s: CUDA text cannot run on %s; give the op a compute function too",
                     op->name, device);
        return TN_EDEVICE;
    }
    tn_status s = op->compute(attr->custom.bytes, in, out);
    if (s == TN_OK) return TN_OK;
    tni_text_add(why, "%s: compute failed with status %d", op->name, (int)s);
    return TN_EUSER;
}

// Bytes for attributes and outputs; NULL, reported, when memory is out.
static void *alloc_bytes(tn_ctx *cx, const tn_op_def *op, size_t bytes)
{
    void *p = tni_alloc(&cx->heap, bytes);
    return p ? p : tni_fail_memory(cx, op->name);
}

// The user's bytes and the shapes of the outputs, in one block that the node will own.
static bool copy_attributes(tn_ctx *cx, tni_attr *to, const tn_op_def *op, const void *attr,
                            size_t bytes, const tn_array *out, int nout)
{
    size_t at = outputs_at(bytes), size = (size_t)nout * sizeof *out;
    char  *p = alloc_bytes(cx, op, at + size);
    if (!p) return false;
    if (bytes) memcpy(p, attr, bytes);
    memcpy(p + at, out, size);
    *to = (tni_attr){ .custom = { .def = op, .bytes = p, .count = bytes } };
    return true;
}

// A second node over the same call needs bytes of its own, since each node frees its bytes.
bool tni_custom_copy(tn_ctx *cx, tni_attr *attr)
{
    int    nout = tni_outputs_of(TNI_custom, attr);
    size_t size = outputs_at(attr->custom.count) + (size_t)nout * sizeof(tn_array);
    void  *p    = alloc_bytes(cx, attr->custom.def, size);
    if (!p) return false;
    memcpy(p, attr->custom.bytes, size);
    attr->custom.bytes = p;
    return true;
}

// Records the op over its sources; y[i] become handles of its outputs. The node owns the bytes once
// it exists.
static bool record_custom(tn_ctx *cx, const tn_op_def *op, tni_node *const *src, const void *attr,
                          size_t bytes, const tn_array *out, int nout, tn_tensor **y)
{
    tni_attr a;
    if (!copy_attributes(cx, &a, op, attr, bytes, out, nout)) return false;
    bool ok = tni_record_outputs(cx, TNI_custom, nout, out, op->nin, src, &a, y);
    // From here on the node frees the bytes, also if a later output failed.
    if (y[0]) y[0]->store->node->owns_bytes = true;
    else tni_free(&cx->heap, a.custom.bytes);
    return ok;
}

static tn_ctx *custom_args(const tn_op_def *op, tn_tensor *const *x)
{
    if (!op || !x) {
        tni_thread_fail(TN_EARG, "custom: %s is NULL", op ? "x" : "op");
        return NULL;
    }
    tn_ctx *cx = tni_args(op->name ? op->name : "custom", op->nin < 1 ? 0 : op->nin, x, NULL);
    return cx && op_def_ok(cx, op) ? cx : NULL;
}

// An expression has no callback to hand attributes to.
static tn_status record_expression(tn_ctx *cx, const tn_op_def *op, tn_tensor *const *x,
                                   size_t bytes, tn_tensor **y)
{
    if (bytes)
        return tni_fail_status(cx, TN_EARG,
                               "%s: an expr sees no attr; give numbers as inputs of one element",
                               op->name);
    y[0] = tni_expr_op_record(cx, op, x);
    return y[0] ? TN_OK : tni_failed();
}

// Inputs are made row-major, which is what callbacks expect. References keep the nodes alive until
// the op holds them, since the handles of row-major copies are freed at once.
tn_status tn_custom_n(const tn_op_def *op, tn_tensor *const *x, const void *attr, size_t bytes,
                      tn_tensor **y)
{
    tn_ctx *cx = custom_args(op, x);
    if (!cx) return tni_failed();
    int         nout = op->nout > 0 ? op->nout : 1;
    const char *lack = !y ? "y is NULL" : bytes && !attr ? "attr is NULL" : NULL;
    if (lack) return tni_fail_status(cx, TN_EARG, "%s: %s", op->name, lack);
    // Defined also after a failure, which may come in the middle.
    for (int i = 0; i < nout; i++) y[i] = NULL;
    if (op->expr) return record_expression(cx, op, x, bytes, y);
    if (tni_lacks(cx, TNI_custom))
        return tni_fail_status(
            cx, TN_EDEVICE, "%s: this device runs no functions of the user's; give the op an expr",
            op->name);
    tn_array   out[TNI_MOST_OUTPUTS];
    tni_node **src  = tni_alloc(&cx->heap, (size_t)op->nin * sizeof *src);
    bool       ok   = src != NULL;
    int        held = 0;
    if (!ok) tni_fail_memory(cx, op->name);
    while (ok && held < op->nin) {
        tn_tensor *c    = tn_contiguous(x[held]);
        tni_node  *node = c ? tni_resolve(c, op->name) : NULL;
        if ((ok = node != NULL)) src[held++] = tni_node_ref(node);
        if (c) tni_tensor_free(c);
    }
    ok = ok && infer_shapes(cx, op, src, attr, nout, out) &&
         record_custom(cx, op, src, attr, bytes, out, nout, y);
    while (held > 0) tni_node_unref(cx, src[--held]);
    tni_free(&cx->heap, src);
    return ok ? TN_OK : tni_failed();
}

// One output, as the result of the call.
tn_tensor *tn_custom(const tn_op_def *op, tn_tensor *const *x, const void *attr, size_t bytes)
{
    tn_tensor *y  = NULL;
    tn_ctx    *cx = custom_args(op, x);
    if (!cx) return NULL;
    if (op->nout > 1)
        return tni_fail(cx, TN_EARG, "%s: it has %d outputs; see tn_custom_n", op->name, op->nout);
    tn_custom_n(op, x, attr, bytes, &y);
    return y;
}
