// Kernels that a library can do together with the product they follow: a bias, relu, gelu.
#include "device/cuda/product.h"

static char *address_of(const tni_launch *l, int access)
{
    int b = l->kernel->access[access].buffer;
    return l->buffer[b] +
           l->offset[access] * (int64_t)tni_dtype_size((tn_dtype)l->kernel->buffer[b].dtype);
}

// Whether an access goes element after element through all of the domain.
static bool goes_along(const tni_launch *l, int access)
{
    int64_t next = 1;
    for (int i = l->kernel->np - 1; i >= 0; next *= l->size[i--])
        if (l->size[i] > 1 && l->stride[access][i] != next) return false;
    return true;
}

// Whether it goes along the last axis and stands still on all others.
static bool goes_across(const tni_launch *l, int access, int64_t width)
{
    int last = l->kernel->np - 1;
    for (int i = 0; i < last; i++)
        if (l->size[i] > 1 && l->stride[access][i]) return false;
    return l->size[last] == width && l->stride[access][last] == 1;
}

static bool is_plain_load(const tni_ins *x)
{
    return x->code == TNI_I_LOAD && x->a == TNI_NO_VALUE && x->b == TNI_NO_VALUE;
}

// The operand of a map that stands beside a number; -1 if it is no such map.
static int beside(const tni_launch *l, int i, int op, double number)
{
    const tni_ins *x = &l->kernel->ins[i];
    if (x->code != TNI_I_MAP || x->op != op || x->dtype != TN_F32) return -1;
    for (int k = 0; k < 2; k++) {
        int            at = k ? x->b : x->a;
        const tni_ins *n  = &l->kernel->ins[at];
        if (n->code == TNI_I_NUMBER && l->number[n->number].f == (float)number)
            return x->a + x->b - at;
    }
    return -1;
}

// The two operands of a map; false if it is another.
static bool is_pair(const tni_launch *l, int i, int op, int *a, int *b)
{
    const tni_ins *x = &l->kernel->ins[i];
    *a               = x->a;
    *b               = x->b;
    return x->code == TNI_I_MAP && x->op == op && x->dtype == TN_F32;
}

static bool is_cube(const tni_launch *l, int i, int v)
{
    int a, b, c, d;
    return is_pair(l, i, TNI_mul, &a, &b) && (a == v || b == v) &&
           is_pair(l, a + b - v, TNI_mul, &c, &d) && c == v && d == v;
}

// Whether i is tanh(0.79788456 (v + 0.044715 v^3)), as tn_gelu_tanh records it.
static bool is_gate(const tni_launch *l, int i, int v)
{
    const tni_ins *t   = &l->kernel->ins[i];
    int            sum = t->code == TNI_I_MAP && t->op == TNI_tanh
                             ? beside(l, t->a, TNI_mul, 0.79788456080286535588)
                             : -1;
    int            a, b;
    if (sum < 0 || !is_pair(l, sum, TNI_add, &a, &b) || (a != v && b != v)) return false;
    int cube = beside(l, a + b - v, TNI_mul, 0.044715);
    return cube >= 0 && is_cube(l, cube, v);
}

// The value whose gelu, by tanh, instruction i is; -1 if it is none.
static int gelu_of(const tni_launch *l, int i)
{
    int a, b;
    if (!is_pair(l, i, TNI_mul, &a, &b)) return -1;
    for (int k = 0; k < 2; k++) {
        int v = beside(l, k ? b : a, TNI_mul, 0.5), gate = beside(l, k ? a : b, TNI_add, 1);
        if (v >= 0 && gate >= 0 && is_gate(l, gate, v)) return v;
    }
    return -1;
}

// The value before casts from the product's dtype to f32 and back, which the library computes in.
static int before_casts(const tni_call *c, const tni_kernel *k, int i)
{
    for (const tni_ins *x = &k->ins[i]; x->code == TNI_I_CAST; x = &k->ins[i]) {
        int from = k->ins[x->a].dtype;
        if ((from != TN_F32 && from != (int)c->out.dtype) ||
            (x->dtype != TN_F32 && x->dtype != (int)c->out.dtype))
            break;
        i = x->a;
    }
    return i;
}

// Goes back over relu or gelu. The library's gelu has the few digits of half precision.
static int before_gate(const tni_call *c, const tni_launch *l, int i, tni_ending *e)
{
    const tni_ins *x    = &l->kernel->ins[i];
    bool           half = tni_is_rounded(c->out.dtype);
    if (x->code == TNI_I_MAP && x->op == TNI_relu) {
        e->epilogue |= TNI_LT_EPILOGUE_RELU;
        return x->a;
    }
    int gelu = half ? gelu_of(l, before_casts(c, l->kernel, i)) : -1;
    if (gelu < 0) return i;
    e->epilogue |= TNI_LT_EPILOGUE_GELU;
    return before_casts(c, l->kernel, gelu);
}

static bool is_bias(const tni_call *c, const tni_launch *l, int i)
{
    const tni_ins *x = &l->kernel->ins[i];
    return is_plain_load(x) && x->dtype == c->out.dtype &&
           address_of(l, x->access) != c->out.data &&
           goes_across(l, x->access, c->out.size[c->out.rank - 1]);
}

// Goes back over the addition of a bias.
static int before_bias(const tni_call *c, const tni_launch *l, int i, tni_ending *e)
{
    const tni_ins *x = &l->kernel->ins[i];
    if (x->code != TNI_I_MAP || x->op != TNI_add || x->dtype != c->out.dtype) return i;
    int bias = is_bias(c, l, x->b) ? x->b : x->a;
    if (!is_bias(c, l, bias)) return i;
    e->bias = address_of(l, l->kernel->ins[bias].access);
    e->epilogue |= TNI_LT_EPILOGUE_BIAS;
    return x->a + x->b - bias;
}

// The only thing that a kernel does to memory; NULL if it does more.
static const tni_ins *only_store(const tni_kernel *k)
{
    const tni_ins *store = NULL;
    for (int i = 0; i < k->nins; i++) {
        if (k->ins[i].code == TNI_I_CHECK || (k->ins[i].code == TNI_I_STORE && store)) return NULL;
        if (k->ins[i].code == TNI_I_STORE) store = &k->ins[i];
    }
    return store;
}

// Found from its end.
bool tni_product_end(const tni_call *c, const tni_launch *l, tni_ending *e)
{
    const tni_kernel *k     = l->kernel;
    const tni_ins    *store = only_store(k);
    *e                      = (tni_ending){ 0 };
    if (k->nr || k->tails || k->guarded || !store || !goes_along(l, store->access)) return false;
    if (k->buffer[k->access[store->access].buffer].dtype != c->out.dtype) return false;
    int            v    = before_bias(c, l, before_gate(c, l, store->a, e), e);
    const tni_ins *from = &k->ins[v];
    if (!is_plain_load(from) || from->dtype != c->out.dtype || !goes_along(l, from->access) ||
        address_of(l, from->access) != c->out.data)
        return false;
    e->to = address_of(l, store->access);
    // Of one row the bias may be the product itself, or lie where the result will: then it would be
    // gone when algorithms are tried.
    if (e->bias && (e->bias == e->to || e->bias == c->out.data)) return false;
    return e->epilogue;
}
