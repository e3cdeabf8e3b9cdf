// Matrix products: by cuBLASLt where it is here and can, else by a kernel of our own.
#include "device/cuda/gpu.h"
#include "device/cuda/product.h"
#include "device/simt/groups.h"

enum { WORKSPACE = 32 << 20 };

// Memory for the library's own sums, taken at the first product; 0 when there is none.
static tni_cuptr workspace(tni_cuda *c)
{
    if (!c->workspace && c->gpu->cu->mem_alloc(&c->workspace, WORKSPACE) != TNI_CU_OK)
        c->workspace = 0;
    return c->workspace;
}

static tni_product_place place_of(tni_cuda *c)
{
    return (tni_product_place){ .cu        = c->gpu->cu,
                                .device    = c->gpu->number,
                                .gpu       = c->gpu->name,
                                .stream    = c->stream,
                                .workspace = workspace(c),
                                .bytes     = c->workspace ? WORKSPACE : 0,
                                .capturing = c->recorder.manner == TNI_CAPTURING,
                                .timing    = !c->deterministic };
}

// TN_EARG: the library has no algorithm for it.
static tn_status by_library(tni_cuda *c, tni_product *p, tni_text *why)
{
    tni_product_place at     = place_of(c);
    const void       *mark[] = { p->at[0], p->at[1], p->at[2], p->bias };
    p->tf32                  = c->tf32;
    if (tni_product_refused(p, &at)) return TN_EARG;
    if (!tni_replay_does(c, mark, sizeof mark)) return TN_OK;
    tn_status s = c->recorder.manner == TNI_PLAINLY ? tni_product_prepare(p, &at, why) : TN_OK;
    return s == TN_OK ? tni_product_run(p, &at, why) : s;
}

tn_status tni_cuda_matmul(const tni_groups *via, const tni_call *call)
{
    tni_cuda   *c    = call->seat;
    tni_text    none = { "" };
    tni_product p;
    tni_cuda_enter(c);
    if (!tni_blaslt_get(&none) || !tni_product_of(call, &p)) return tni_groups_matmul(via, call);
    none        = (tni_text){ "" };
    tn_status s = by_library(c, &p, &none);
    if (s == TN_EARG) return tni_groups_matmul(via, call);
    if (s != TN_OK) tni_text_add(call->why, "%s", none.s);
    return s;
}

// ---- with the kernel that follows --------------------------------------------------------------

bool tni_cuda_claims(int op)
{
    return op == TNI_matmul;
}

size_t tni_cuda_room_then(const tni_call *call, void *entry, const tni_launch *l)
{
    (void)entry;
    (void)l;
    return tni_device_cuda.scratch(call);
}

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

// What a kernel does to a product, if a library can do it with it.
typedef struct {
    int         epilogue;  // TNI_LT_EPILOGUE_*
    const char *bias;
    char       *to;
} ending;

static bool is_plain_load(const tni_ins *x)
{
    return x->code == TNI_I_LOAD && x->a == TNI_NO_VALUE && x->b == TNI_NO_VALUE;
}

// The value so far is instruction *v. An addition of a bias, or relu, takes it further.
static bool takes_further(const tni_call *c, const tni_launch *l, int i, int *v, ending *e)
{
    const tni_kernel *k = l->kernel;
    const tni_ins    *x = &k->ins[i];
    if (x->code == TNI_I_MAP && x->op == TNI_relu && x->a == *v) {
        e->epilogue |= TNI_LT_EPILOGUE_RELU;
    } else if (x->code == TNI_I_MAP && x->op == TNI_add && (x->a == *v || x->b == *v) &&
               e->epilogue == 0) {
        const tni_ins *other = &k->ins[x->a == *v ? x->b : x->a];
        if (!is_plain_load(other) || other->dtype != c->out.dtype ||
            !goes_across(l, other->access, c->out.size[c->out.rank - 1]))
            return false;
        e->bias = address_of(l, other->access);
        e->epilogue |= TNI_LT_EPILOGUE_BIAS;
    } else {
        return false;
    }
    *v = i;
    return true;
}

// Kernels of one way from the product to a store, of the product's dtype.
static bool ending_of(const tni_call *c, const tni_launch *l, ending *e)
{
    const tni_kernel *k = l->kernel;
    int               v = -1, used = 0;
    *e = (ending){ 0 };
    if (k->nr || k->tails) return false;
    for (int i = 0; i < k->nins; i++) {
        const tni_ins *x = &k->ins[i];
        if (x->dtype != c->out.dtype || (used & TNI_LT_EPILOGUE_RELU && x->code != TNI_I_STORE))
            return false;
        if (is_plain_load(x)) {
            if (address_of(l, x->access) != c->out.data || v >= 0) continue;
            if (!goes_along(l, x->access)) return false;
            v = i;
        } else if (x->code == TNI_I_STORE) {
            if (x->a != v || e->to || !goes_along(l, x->access)) return false;
            e->to = address_of(l, x->access);
        } else if (!takes_further(c, l, i, &v, e)) {
            return false;
        }
        used = e->epilogue;
    }
    // Of one row the bias may be the product itself, or lie where the result will: then it would be
    // gone when algorithms are tried.
    if (e->bias && (e->bias == e->to || e->bias == c->out.data)) return false;
    return v >= 0 && e->to && e->epilogue;
}

// By a product that ends as the kernel would; TN_EARG where there is none.
static tn_status run_ending(const tni_call *call, const tni_launch *l, tni_text *why)
{
    tni_cuda   *c  = call->seat;
    tni_call    to = *call;
    ending      e;
    tni_product p;
    if (!call->sole || !ending_of(call, l, &e) || !tni_blaslt_get(why)) return TN_EARG;
    to.out.data = e.to;
    if (!tni_product_of(&to, &p) || !tni_product_then(&p, e.epilogue, e.bias)) return TN_EARG;
    tni_cuda_enter(c);
    return by_library(c, &p, why);
}

tn_status tni_cuda_run_then(const tni_call *call, void *entry, tni_launch *l, tni_text *why)
{
    tni_text  reason = { "" };
    tn_status s      = run_ending(call, l, &reason);
    if (s != TN_EARG) {
        if (s != TN_OK) tni_text_add(why, "%s", reason.s);
        return s;
    }
    s = tni_cuda_run(call);
    return s == TN_OK ? tni_cuda_launch(call->seat, entry, l, why) : s;
}
