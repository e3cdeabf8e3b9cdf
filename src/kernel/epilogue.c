// Recognizing epilogues: from the stores of a kernel back to what it reads.
#include "kernel/epilogue.h"

static bool is_map(const tni_ins *x, int op, int dtype)
{
    return x->code == TNI_I_MAP && x->op == op && x->dtype == dtype;
}

static bool is_plain_load(const tni_ins *x)
{
    return x->code == TNI_I_LOAD && x->a == TNI_NO_VALUE && x->b == TNI_NO_VALUE;
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

// Finds the stores, one or two, all of the product's dtype. False if the kernel does anything else to
// memory.
static bool find_stores(const tni_launch *l, int dtype, int store[2])
{
    const tni_kernel *k = l->kernel;
    int               n = 0;
    store[0] = store[1] = -1;
    for (int i = 0; i < k->nins; i++) {
        if (k->ins[i].code == TNI_I_CHECK) return false;
        if (k->ins[i].code != TNI_I_STORE) continue;
        int to = k->ins[i].access;
        if (n == 2 || k->buffer[k->access[to].buffer].dtype != dtype || !goes_along(l, to))
            return false;
        store[n++] = i;
    }
    return n > 0;
}

// Goes back over relu or gelu from what one store keeps; what the other keeps, if there is one, must be
// what the activation was given.
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

// Goes back over one addition, of a bias or of a residual, unless it was found before.
static int before_addition(const tni_launch *l, int i, int product, int64_t width, tni_epilogue *e)
{
    const tni_kernel *k = l->kernel;
    const tni_ins    *x = &k->ins[i];
    if (!is_map(x, TNI_add, k->buffer[product].dtype)) return i;
    for (int side = 0; side < 2; side++) {
        int            at = side ? x->a : x->b;
        const tni_ins *v  = &k->ins[at];
        if (!is_plain_load(v) || v->dtype != x->dtype || k->access[v->access].buffer == product)
            continue;
        bool along  = goes_along(l, v->access) && e->residual < 0;
        bool across = goes_across(l, v->access, width) && e->bias < 0;
        if (across) e->bias = v->access;
        else if (along) e->residual = v->access;
        else continue;
        return x->a + x->b - at;
    }
    return i;
}

// Goes back over the product with a number.
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

tni_epilogue tni_epilogue_of(const tni_launch *l, int product, int64_t width)
{
    const tni_kernel *k     = l->kernel;
    int               dtype = k->buffer[product].dtype, store[2];
    tni_epilogue      e     = {
                 .activation = TNI_leaf, .scale = -1, .x = -1, .y = -1, .z = -1, .residual = -1, .bias = -1
    };
    if (k->nr || k->tails || k->guarded || !find_stores(l, dtype, store)) return e;
    int v = before_activation(k, dtype, store, &e);
    if (v == TNI_NO_VALUE) return e;
    v = before_addition(l, before_addition(l, v, product, width, &e), product, width, &e);
    v = before_scale(k, v, dtype, &e);
    const tni_ins *x = &k->ins[v];
    if (!is_plain_load(x) || x->dtype != dtype || k->access[x->access].buffer != product) return e;
    e.x    = x->access;
    e.fits = goes_along(l, e.x) &&
             (e.activation != TNI_leaf || e.scale >= 0 || e.residual >= 0 || e.bias >= 0);
    return e;
}
