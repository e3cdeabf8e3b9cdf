// Recognizes epilogues: goes back from the stores of a kernel to what it reads, and takes off one
// operation after the other, in the only order that libraries can compute: column sum, activation
// or its slope, bias and residual, scale. If the call's result is what remains, the kernel is an
// epilogue.
#include "kernel/epilogue.h"

// Whether an instruction is a map by that op, computed in the product's dtype: a library rounds
// nowhere else.
static bool is_map(const tni_ins *x, int op, int dtype)
{
    return x->code == TNI_I_MAP && x->op == op && x->dtype == dtype;
}

static bool is_unguarded_load(const tni_ins *x)
{
    return x->code == TNI_I_LOAD && x->a == TNI_NO_VALUE && x->b == TNI_NO_VALUE;
}

static int domain_axes(const tni_launch *l)
{
    return l->kernel->np + l->kernel->nr;
}

bool tni_visits_in_order(const tni_launch *l, int access)
{
    int64_t next = 1;
    for (int i = domain_axes(l) - 1; i >= 0; next *= l->size[i--])
        if (l->size[i] > 1 && l->stride[access][i] != next) return false;
    return true;
}

bool tni_visits_columns(const tni_launch *l, int access, int64_t width)
{
    int last = domain_axes(l) - 1;
    for (int i = 0; i < last; i++)
        if (l->size[i] > 1 && l->stride[access][i]) return false;
    return l->size[last] == width && l->stride[access][last] == 1;
}

// What a kernel stores, by the instructions that do: one or two values of every point, and the
// column sum of one of them. -1: none.
typedef struct {
    int of[2], sum;
} store_set;

// Enters STORE i; false if it is a second sum, a third value, or not laid out as the library would
// write it.
static bool note_store(const tni_launch *l, int i, int64_t width, store_set *s)
{
    const tni_kernel *k   = l->kernel;
    const tni_ins    *x   = &k->ins[i];
    bool              sum = k->ins[x->a].code == TNI_I_REDUCE;
    int              *to  = sum ? &s->sum : s->of[0] < 0 ? &s->of[0] : &s->of[1];
    if (*to >= 0 ||
        !(sum ? tni_visits_columns(l, x->access, width) : tni_visits_in_order(l, x->access)))
        return false;
    *to = i;
    return true;
}

// Finds the stores, all of the product's dtype. False if the kernel does anything else to memory,
// or adds up something that it does not store.
static bool find_stores(const tni_launch *l, int dtype, int64_t width, store_set *s)
{
    const tni_kernel *k    = l->kernel;
    int               sums = 0;
    *s                     = (store_set){ { -1, -1 }, -1 };
    for (int i = 0; i < k->nins; i++) {
        const tni_ins *x = &k->ins[i];
        if (x->code == TNI_I_CHECK) return false;
        if (x->code == TNI_I_REDUCE && (!x->over_p || x->op != TNI_sum || x->dtype != dtype))
            return false;
        sums += x->code == TNI_I_REDUCE;
        if (x->code != TNI_I_STORE) continue;
        if (k->buffer[k->access[x->access].buffer].dtype != dtype) return false;
        if (!note_store(l, i, width, s)) return false;
    }
    return s->of[0] >= 0 && sums == (s->sum >= 0);
}

// Goes back over relu or gelu from what one store keeps to the operand of the activation. A second
// store must keep that operand (z, which the gradient will read). Returns the value to go on from,
// TNI_NO_VALUE if there are two stores and neither is an activation of the other.
static int before_activation(const tni_kernel *k, int dtype, const int store[2], tni_epilogue *e)
{
    for (int i = 0; i < 2 && store[i] >= 0; i++) {
        const tni_ins *y = &k->ins[k->ins[store[i]].a];
        const tni_ins *z = store[1 - i] >= 0 ? &k->ins[store[1 - i]] : NULL;
        if (!tni_is_activation(y->op) || !is_map(y, y->op, dtype)) continue;
        if (z && z->a != y->a) continue;
        e->activation = y->op;
        e->y          = k->ins[store[i]].access;
        e->z          = z ? z->access : -1;
        return y->a;
    }
    e->y = k->ins[store[0]].access;
    return store[1] < 0 ? k->ins[store[0]].a : TNI_NO_VALUE;
}

// Goes back over the product with the slope of gelu at z, which is read element by element: the
// gradient of the activation.
static int before_slope(const tni_launch *l, int i, int product, tni_epilogue *e)
{
    const tni_kernel *k     = l->kernel;
    const tni_ins    *y     = &k->ins[i];
    int               dtype = k->buffer[product].dtype;
    if (e->activation != TNI_leaf || !is_map(y, TNI_mul, dtype)) return i;
    for (int side = 0; side < 2; side++) {
        int at = side ? y->a : y->b;
        if (!is_map(&k->ins[at], TNI_gelu_slope, dtype)) continue;
        const tni_ins *z = &k->ins[k->ins[at].a];
        if (!is_unguarded_load(z) || z->dtype != dtype || !tni_visits_in_order(l, z->access))
            continue;
        if (k->access[z->access].buffer == product) continue;
        e->activation = TNI_gelu_slope;
        e->z          = z->access;
        return y->a + y->b - at;
    }
    return i;
}

// Enters the column sum; false if it is not the sum of y.
static bool match_column_sum(const tni_kernel *k, const store_set *s, tni_epilogue *e)
{
    const tni_ins *y = &k->ins[s->of[k->ins[s->of[0]].access != e->y]];
    if (s->sum < 0) return true;
    e->sum = k->ins[s->sum].access;
    return k->ins[k->ins[s->sum].a].a == y->a;
}

// Goes back over one addition of a bias or of a residual. Each is taken once; called twice, it
// takes both in either order. With one row both layouts fit, and the bias comes first.
static int before_addition(const tni_launch *l, int i, int product, int64_t width, tni_epilogue *e)
{
    const tni_kernel *k = l->kernel;
    const tni_ins    *x = &k->ins[i];
    if (!is_map(x, TNI_add, k->buffer[product].dtype)) return i;
    for (int side = 0; side < 2; side++) {
        int            at = side ? x->a : x->b;
        const tni_ins *v  = &k->ins[at];
        if (!is_unguarded_load(v) || v->dtype != x->dtype || k->access[v->access].buffer == product)
            continue;
        bool along  = tni_visits_in_order(l, v->access) && e->residual < 0;
        bool across = tni_visits_columns(l, v->access, width) && e->bias < 0;
        if (across) e->bias = v->access;
        else if (along) e->residual = v->access;
        else continue;
        return x->a + x->b - at;
    }
    return i;
}

// Goes back over the product with a number of the launch.
static int before_scale(const tni_kernel *k, int i, int dtype, tni_epilogue *e)
{
    const tni_ins *x = &k->ins[i];
    if (!is_map(x, TNI_mul, dtype)) return i;
    for (int side = 0; side < 2; side++) {
        int at = side ? x->a : x->b;
        if (k->ins[at].code != TNI_I_NUMBER) continue;
        e->scale = k->ins[at].number;
        return x->a + x->b - at;
    }
    return i;
}

// Enters a kernel that only casts 16 bits to f32, as gradients of weights are cast on their way to
// the leaf: a library can store its sums as they are.
static bool match_widening(const tni_launch *l, int product, tni_epilogue *e)
{
    const tni_kernel *k    = l->kernel;
    const tni_ins    *last = &k->ins[k->nins - 1];
    if (k->nins != 3 || last->code != TNI_I_STORE || k->ins[last->a].code != TNI_I_CAST)
        return false;
    const tni_ins *x  = &k->ins[k->ins[last->a].a];
    tn_dtype       to = (tn_dtype)k->buffer[k->access[last->access].buffer].dtype;
    if (!tni_is_rounded((tn_dtype)k->buffer[product].dtype) || to != TN_F32) return false;
    if (!is_unguarded_load(x) || k->access[x->access].buffer != product) return false;
    e->x    = x->access;
    e->y    = last->access;
    e->wide = tni_visits_in_order(l, e->x) && tni_visits_in_order(l, e->y);
    return e->wide;
}

// A guarded kernel does nothing after a failure, which a library cannot know, so it is no epilogue.
// Nor is a kernel that only copies: there would be nothing to fuse.
tni_epilogue tni_epilogue_of(const tni_launch *l, int product, int64_t width)
{
    const tni_kernel *k     = l->kernel;
    int               dtype = k->buffer[product].dtype;
    store_set         s;
    tni_epilogue      e = { .activation = TNI_leaf,
                            .product    = product,
                            .scale      = -1,
                            .x          = -1,
                            .y          = -1,
                            .z          = -1,
                            .residual   = -1,
                            .bias       = -1,
                            .sum        = -1 };
    if (k->guarded || k->nins < 2) return e;
    if (match_widening(l, product, &e)) {
        e.fits = true;
        return e;
    }
    if (!find_stores(l, dtype, width, &s)) return e;
    int v = before_activation(k, dtype, s.of, &e);
    if (v == TNI_NO_VALUE || !match_column_sum(k, &s, &e)) return e;
    v = before_slope(l, v, product, &e);
    v = before_addition(l, before_addition(l, v, product, width, &e), product, width, &e);
    v = before_scale(k, v, dtype, &e);
    const tni_ins *x = &k->ins[v];
    if (!is_unguarded_load(x) || x->dtype != dtype || k->access[x->access].buffer != product)
        return e;
    e.x    = x->access;
    e.fits = tni_visits_in_order(l, e.x) && (e.activation != TNI_leaf || e.scale >= 0 ||
                                             e.residual >= 0 || e.bias >= 0 || e.sum >= 0);
    return e;
}
