// Translating kernels to pointwise ops. The kernel of a folded batch norm, a residual and relu in
// f16,
//
//     0  load   b0      the convolution        tensor 4, virtual f32
//     1  cast   0       to f32                 is 0
//     2  load   b1      the summand            tensor 5, one number a channel
//     3  map    add 1 2                        tensor 6, virtual f32
//     4  cast   3       to f16                 is 3
//     5  load   b2      the residual           tensor 7
//     6  map    add 4 5                        tensor 8, virtual f32
//     7  map    relu 6                         tensor 9, y
//     8  store  b3 7
//
// becomes three ops. A cast between floats is none: what is between ops is not rounded.
#include "device/cuda/dnn_kernel.h"

#include <string.h>

// Instructions of a kernel, at most.
enum { MOST = 32 };

// A map and the library's mode. exact: of each, so that it also serves in f32, where the library's
// approximations have too few digits.
typedef struct {
    int  op, mode;
    bool exact;
} map_mode;

static const map_mode modes[] = {
    { TNI_add, TNI_DNN_ADD, true },
    { TNI_sub, TNI_DNN_SUB, true },
    { TNI_mul, TNI_DNN_MUL, true },
    { TNI_relu, TNI_DNN_RELU, true },
    { TNI_maximum, TNI_DNN_MAX, true },
    { TNI_minimum, TNI_DNN_MIN, true },
    { TNI_neg, TNI_DNN_NEG, true },
    { TNI_abs, TNI_DNN_ABS, true },
    { TNI_div, TNI_DNN_DIV, false },
    { TNI_reciprocal, TNI_DNN_RECIPROCAL, false },
    { TNI_exp, TNI_DNN_EXP, false },
    { TNI_log, TNI_DNN_LOG, false },
    { TNI_sqrt, TNI_DNN_SQRT, false },
    { TNI_rsqrt, TNI_DNN_RSQRT, false },
    { TNI_tanh, TNI_DNN_TANH, false },
    { TNI_erf, TNI_DNN_ERF, false },
    { TNI_gelu_tanh, TNI_DNN_GELU_TANH, false },
};

// Returns the mode of an op, -1 if the library has none that is good enough for the dtype.
static int mode_of(int op, int dtype)
{
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (modes[i].op == op && (modes[i].exact || dtype != TN_F32)) return modes[i].mode;
    return -1;
}

static int dtype_of(int dt)
{
    return dt == TN_F32    ? TNI_DNN_F32
           : dt == TN_F16  ? TNI_DNN_F16
           : dt == TN_BF16 ? TNI_DNN_BF16
                           : -1;
}

// A translation: value[i] is the tensor of instruction i; last is the instruction whose value is
// stored, by the access `store`.
typedef struct {
    tni_dnn_graph    *g;
    const tni_launch *l;
    int               product, result, last, store;
    int               value[MOST];
    tni_dnn_kernel   *of;
} translation;

// Finds what the kernel stores, which must be one value, computed, and in the order of the result.
static bool find_store(translation *t)
{
    const tni_kernel *k = t->l->kernel;
    t->store            = -1;
    for (int i = 0; i < k->nins; i++) {
        if (k->ins[i].code != TNI_I_STORE) continue;
        if (t->store >= 0) return false;
        t->store = k->ins[i].access;
        t->last  = k->ins[i].a;
    }
    if (t->store < 0 || !tni_visits_in_order(t->l, t->store)) return false;
    while (k->ins[t->last].code == TNI_I_CAST) t->last = k->ins[t->last].a;
    return k->ins[t->last].code == TNI_I_MAP;
}

static int bind(translation *t, int tensor, int access, int number)
{
    tni_dnn_kernel *of = t->of;
    if (of->count == TNI_DNN_BOUND || !tensor) return 0;
    of->bound[of->count++] = (tni_dnn_bound){ tensor, access, number };
    return tensor;
}

// A tensor of an access: an image like the result or one number a channel. 0 if it is neither.
static int add_access(translation *t, int access)
{
    const tni_dnn_tensor *y = &t->g->tensor[t->result - 1];
    int     dtype = dtype_of(t->l->kernel->buffer[t->l->kernel->access[access].buffer].dtype);
    int64_t C = y->size[1], size[] = { 1, C, 1, 1 }, stride[] = { C, 1, C, C };
    if (dtype < 0) return 0;
    if (tni_visits_columns(t->l, access, C))
        return bind(t, tni_dnn_memory(t->g, dtype, 4, size, stride), access, -1);
    if (!tni_visits_in_order(t->l, access)) return 0;
    return bind(t, tni_dnn_memory(t->g, dtype, 4, y->size, y->stride), access, -1);
}

static int add_load(translation *t, const tni_ins *x)
{
    if (x->a != TNI_NO_VALUE || x->b != TNI_NO_VALUE) return 0;
    if (t->l->kernel->access[x->access].buffer != t->product) return add_access(t, x->access);
    return tni_visits_in_order(t->l, x->access) ? t->result : 0;
}

// The last map's result is y in memory, all others are virtual.
static int add_map(translation *t, int i)
{
    const tni_kernel *k      = t->l->kernel;
    const tni_ins    *x      = &k->ins[i];
    int               arg[2] = { x->a, x->b }, mode = mode_of(x->op, x->dtype), tensor[2] = { 0 };
    if (mode < 0 || dtype_of(x->dtype) < 0 || x->c != TNI_NO_VALUE) return 0;
    for (int j = 0; j < 2; j++) {
        if (arg[j] == t->last) return 0;
        if (arg[j] != TNI_NO_VALUE) tensor[j] = t->value[arg[j]];
    }
    const tni_dnn_tensor like = t->g->tensor[t->result - 1];
    int                  y    = i == t->last ? add_access(t, t->store)
                                             : tni_dnn_virtual(t->g, TNI_DNN_F32, like.size, like.stride);
    if (y) tni_dnn_map_to(t->g, mode, tensor[0], tensor[1], y);
    return y;
}

// Returns the tensor of instruction i; 0 if there can be none.
static int translate(translation *t, int i)
{
    const tni_kernel *k = t->l->kernel;
    const tni_ins    *x = &k->ins[i];
    switch (x->code) {
    case TNI_I_LOAD: return add_load(t, x);
    case TNI_I_NUMBER:
        return k->number[x->number] == TN_F64 ? 0 : bind(t, tni_dnn_number(t->g), -1, x->number);
    case TNI_I_CAST:
        return dtype_of(x->dtype) < 0 || dtype_of(k->ins[x->a].dtype) < 0 ? 0 : t->value[x->a];
    case TNI_I_MAP: return add_map(t, i);
    default: return 0;
    }
}

bool tni_dnn_add_kernel(tni_dnn_graph *g, const tni_launch *l, int product, int result,
                        tni_dnn_kernel *of)
{
    const tni_kernel *k = l->kernel;
    translation       t = { .g = g, .l = l, .product = product, .result = result, .of = of };
    memset(of, 0, sizeof *of);
    if (g->full || k->guarded || k->nr || k->tails || k->nins > MOST || !find_store(&t))
        return false;
    for (int i = 0; i < k->nins; i++) {
        if (k->ins[i].code == TNI_I_STORE) continue;
        t.value[i] = translate(&t, i);
        if (!t.value[i]) return false;
    }
    return !g->full;
}
