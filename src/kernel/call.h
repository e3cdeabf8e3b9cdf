// A call: an op of the table over arguments with shapes, strides and addresses; ops.def and the
// list below say what each op means. The planner describes the calls of a plan without addresses,
// and a run adds them.
#ifndef TNI_KERNEL_CALL_H
#define TNI_KERNEL_CALL_H

#include "kernel/epilogue.h"
#include "kernel/tuning.h"

typedef struct tni_device tni_device;

// Elements in device memory: element (i0, i1, ...) is i0 * stride[0] + ... elements after data.
typedef struct {
    tn_dtype dtype;
    int      rank;
    int64_t  size[TN_MAX_RANK], stride[TN_MAX_RANK];
    char    *data;
} tni_arg;

// What a call can be asked to do otherwise than the rules of its device say, as bits: the choices
// of a plan from TNI_CHOICE_OTHER on.
typedef enum {
    TNI_BY_OTHER_METHOD = 1 << 0,
    TNI_BY_FEWER_PARTS  = 1 << 1,  // its work is divided into fewer, larger parts
    TNI_BY_MORE_PARTS   = 1 << 2
} tni_otherwise;
enum { TNI_OTHERWISE_BITS = 3 };

// One op to run. out is row-major and overlaps no input, except that `copy` takes any strides that
// do not overlap themselves. Empty results are neither prepared nor run. An op with several outputs
// writes the first to out and the others, which are row-major too, to more[]. An output that is not
// needed has no data, and the device does not compute it. The call is run if any output has an
// element.
//
//   maps      in[] have out's shape (strides 0 where broadcast) and the dtype they are computed in;
//             cast and copy convert from in[0]'s dtype to out's
//   full, scalar, iota, random: out alone; iota and random count in row-major order
//   reduce    out has in[0]'s rank, size 1 at the reduced axes (attr->reduce.axes)
//   scan      along attr->axis.axis
//   concat    an input that is already in its place in out is not copied
//   pad, gather (x, index), scatter and scatter_add (x, index, v), fold (out: the base)
//   matmul    a (..., m, k), b (..., k, n), out (..., m, n), leading sizes equal; matmul_i32: a and b of
//             i8 or u8, each its own, out of i32, which wraps
//   conv      x (N, C, places), w (O, C / groups, taps), one to three axes of both; conv_dgrad
//             (gy, w) -> x; conv_wgrad (gy, x) -> w; with attr->conv.channels_last x and y are (N,
//             places, C), and with TNI_WEIGHTS_LAST w is (O, taps, C / groups); tni_conv_form_of
//             shows all of them alike. conv_i32: as conv, with dtypes as matmul_i32; the padding counts
//             as attr->conv.fill
//   attention q (B, T, H, D), k (B, S, Hk, D), v (B, S, Hk, E) -> (B, T, H, E); device/attention.h
//             names what may follow v. more[0]: log(sum(e^score)) of each query, (B, H, T), in the
//             dtype that is computed in, -inf where it sees no key.
//             attention_grad: the same inputs, both outputs and the gradient of the result -> those
//             of q, k, v and of what is read beside the scores
//   argsort   out i64, along attr->axis.axis; more[0] the elements of in[0] in that order
//   linalg    in[] row-major; tni_linalg_kind lists inputs and outputs
//   fft       in[0] row-major; tni_fft_kind says of what
//   spmm      values (count), x (k, n) and the pattern (tni_pattern), row-major -> (rows, n); sddmm: x (rows, k),
//             y (cols, k) and the pattern -> (count)
//   custom    in[] row-major. The user's function writes every output, so those without data get
//             scratch; their dtypes and shapes are in tni_custom_outputs
typedef struct {
    const tni_device *device;
    void             *session;
    int               op;
    int               nin;
    const tni_arg    *in;
    tni_arg           out;
    int               nmore;  // outputs after the first
    const tni_arg    *more;
    const tni_attr   *attr;
    int               threads;
    void             *scratch;       // as many bytes as the device asked for, aligned to 64
    tni_text         *why;           // what went wrong, where run returns an error
    int               ticket;        // as tni_launch.ticket
    bool              compile_only;  // of run: only begins to compile what the call will need
    uint8_t           otherwise;  // bits of what is done otherwise than by the rule: tni_otherwise
    tni_call_search  *search;     // a faster way is looked for first; NULL: it is not
    bool wait_for_compiler;       // for compiled kernels; else any path with the same bits will do
    uint32_t
        lasting;  // bit i: in[i] was computed before this plan, which does not write it before this
    // Of in[0] and in[1]: a number that no other value of this context has or will have; 0 if the
    // plan computes it, or its memory is a caller's.
    uint64_t value[2];
    // Of in[0] and in[1] of a matmul: the form in which the device packed the matrix
    // (tni_device_calls.pack) that is the operand, all of it, with the inner axis along its rows;
    // NULL: it has none.
    const char         *packed[2];
    const tni_epilogue *epilogue;  // of run_with_epilogue: what the kernel does to the result
    tni_launch         *launch;    // of that kernel; NULL: the call is a step of its own
    void               *kernel;    // its entry, in a run
    bool
        also_read;  // something else reads the result, too, so that it is stored beside the kernel's
    // The step of the plan that made the newest of what that kernel reads besides the result; -1:
    // made before the plan.
    int64_t newest;
    // The kernel that makes in[0], and where its entry will be: run_with_epilogue launches it, or
    // computes it as it reads in[0]. NULL: in[0] is made. prologue_kept: something else reads
    // in[0], too, so that it is stored in any case.
    tni_launch  *prologue;
    void *const *prologue_kernel;
    bool         prologue_kept;
    void        *entry;  // what the device prepared for calls of these shapes, or NULL
    struct tni_tiled_epilogue
        *tiled_epilogue;  // of the cpu device: what follows each part of the result
} tni_call;

// Returns a call of another op that does part of a call's work; entry and epilogue are not for that
// part.
static inline tni_call tni_call_within(const tni_call *c, int op)
{
    tni_call part  = *c;
    part.op        = op;
    part.entry     = NULL;
    part.epilogue  = NULL;
    part.launch    = NULL;
    part.also_read = false;
    part.prologue  = NULL;
    return part;
}

// Output k of a call.
static inline const tni_arg *tni_call_output(const tni_call *c, int k)
{
    return k ? &c->more[k - 1] : &c->out;
}

// A convolution or one of its gradients with a given number of axes of places: x (N, C, D, H, W), w
// (O, C / groups, KD, KH, KW) and y as x, whatever their layout, for 3 axes; entry i of the options
// is that of axis 2 + i. A call with fewer axes gets more in front of its own, of size 1.
typedef struct {
    tni_arg arg[3];  // x, w, y
    int     result;  // the number of the one that is written
    int     axes;
    int64_t stride[3], padding[3], dilation[3], groups;
} tni_conv_form;

// An argument of a convolution with `more` axes of places in front of its own; with channels last,
// (N, places, C) as (N, C, places).
static inline tni_arg tni_conv_arg(const tni_arg *x, bool channels_last, int more)
{
    tni_arg y = *x;
    y.rank    = x->rank + more;
    for (int i = 0; i < x->rank; i++) {
        int from     = channels_last ? tni_channels_last_order(x->rank)[i] : i;
        int to       = from < 2 ? from : from + more;
        y.size[to]   = x->size[i];
        y.stride[to] = x->stride[i];
    }
    for (int i = 2; i < 2 + more; i++) y.size[i] = y.stride[i] = 1;
    return y;
}

// Returns a call's operands and options, with that many axes of places.
static inline tni_conv_form tni_conv_form_of(const tni_call *c, int axes)
{
    const struct tni_attr_conv *a    = &c->attr->conv;
    int                         more = axes + 2 - c->out.rank;
    tni_conv_form               f    = { .axes = axes, .groups = a->groups };
    f.result                         = tni_is_conv(c->op) ? 2 : c->op == TNI_conv_dgrad ? 0 : 1;
    const tni_arg *in[3];
    in[f.result]              = &c->out;
    in[f.result == 2 ? 0 : 2] = &c->in[0];
    in[f.result == 1 ? 0 : 1] = &c->in[1];
    for (int i = 0; i < 3; i++) {
        bool last = i == 1 ? a->channels_last == TNI_WEIGHTS_LAST : a->channels_last != 0;
        f.arg[i]  = tni_conv_arg(in[i], last, more);
    }
    for (int i = 0; i < axes; i++) {
        f.stride[i]   = i < more ? 1 : a->stride[i - more];
        f.padding[i]  = i < more ? 0 : a->padding[i - more];
        f.dilation[i] = i < more ? 1 : a->dilation[i - more];
    }
    return f;
}

// Arguments of an offered call, at most; and of any LIBRARY op of the table (attention_grad: q, k,
// v, four extras, lengths, the result, lse, g, and six further outputs).
enum { TNI_OFFER_ARGS = 8, TNI_CALL_ARGS = 17 };

// A call and the kernel that is the first to read its result, point after point, which the planner
// offers to a device as one step. only_reader: nothing else reads the result, so it need not be
// stored. first_row: the kernel also reads the first row of the result at every other one.
//
// prologue: of an offer that was taken, with the kernel that makes the call's first operand,
// element by element, right before it; NULL: nothing but the two is offered. prologue_kept:
// something else reads that operand, too.
typedef struct {
    const tni_call *call;  // without addresses
    bool            only_reader;
    tni_epilogue    epilogue;
    tni_launch     *launch;  // of the kernel, without addresses; NULL if it is not made yet
    bool            first_row;
    tni_launch     *prologue;
    bool            prologue_kept;
} tni_offer;

// The next multiple of 64.
static inline int64_t tni_align64(int64_t n)
{
    return (n + 63) / 64 * 64;
}

#endif
