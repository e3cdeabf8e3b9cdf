// Operands whose rows do not begin at multiples of 16 bytes, as the 50257 columns of a classifier: the
// library has only slow algorithms for them. A large product is worth a copy that lies better.
#include "device/cuda/product.h"

enum { LINE = 16, PITCH = 64, WORTH = 64 };  // bytes; flops for each byte that is copied

static const double LEAST = 1e9;  // flops of a product for which a launch more is nothing

static int64_t magnitude(int64_t x)
{
    return x < 0 ? -x : x;
}

// Whether an axis but the one of single steps leads to places that are no multiple of a line.
static bool lies_badly(const tni_arg *x)
{
    int64_t size = (int64_t)tni_dtype_size(x->dtype);
    bool    bad  = (uintptr_t)x->data % LINE;
    for (int i = 0; i < x->rank; i++)
        bad |= x->size[i] > 1 && magnitude(x->stride[i]) != 1 && x->stride[i] * size % LINE;
    return bad;
}

// The same elements, from the beginning of a place on: the axis of single steps stays so, each other
// goes on in whole lines; what is repeated is there once.
static int64_t lay_well(const tni_arg *x, tni_arg *y)
{
    int64_t pitch = PITCH / (int64_t)tni_dtype_size(x->dtype), next = 1;
    int     last = x->rank - 1, inner = x->stride[last] == 1 ? last : last - 1;
    *y = *x;
    for (int k = 0; k < x->rank; k++) {
        // The inner axis first, then the other of the matrix, then those before them from the back.
        int i        = k == 0 ? inner : k == 1 ? last + last - 1 - inner : last - k;
        y->stride[i] = x->stride[i] ? next : 0;
        if (!x->stride[i]) continue;
        next *= x->size[i];
        if (k == 0) next = (next + pitch - 1) / pitch * pitch;
    }
    return next * (int64_t)tni_dtype_size(x->dtype);
}

static double elements(const tni_arg *x)
{
    double n = 1;
    for (int i = 0; i < x->rank; i++) n *= x->stride[i] ? (double)x->size[i] : 1;
    return n;
}

static double flops_of(const tni_call *c)
{
    double n = 2.0 * (double)c->in[0].size[c->in[0].rank - 1];
    for (int i = 0; i < c->out.rank; i++) n *= (double)c->out.size[i];
    return n;
}

// All that lie badly, or none: one of them is enough to be slow.
bool tni_product_pads(const tni_call *c, bool tf32, tni_pads *p)
{
    bool   half  = c->in[0].dtype == TN_F16 || c->in[0].dtype == TN_BF16;
    double flops = flops_of(c), moved = 0;
    *p = (tni_pads){ 0 };
    if (c->out.rank < 2 || flops < LEAST || !(half || (tf32 && c->in[0].dtype == TN_F32)))
        return false;
    for (int i = 0; i < 3; i++) {
        const tni_arg *x = i < 2 ? &c->in[i] : &c->out;
        if (!lies_badly(x)) continue;
        p->begin[i] = p->bytes;
        p->is[i]    = true;
        p->bytes += (lay_well(x, &p->at[i]) + PITCH - 1) / PITCH * PITCH;
        moved += 2 * elements(x) * (double)tni_dtype_size(x->dtype);
    }
    if (p->bytes && flops >= WORTH * moved) return true;
    *p = (tni_pads){ 0 };
    return false;
}
