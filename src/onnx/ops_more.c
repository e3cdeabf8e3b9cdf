// Sums of products by labels, random numbers, elements that differ.
#include "onnx/onnx_ops.h"

// Einsum(x...; equation). Spaces mean nothing.
bool tni_onnx_einsum(tni_onnx_call *c)
{
    char       text[256];
    tni_wire   e = tni_onnx_attr_text(c, "equation");
    tn_tensor *x[16];
    size_t     n = 0;
    if (c->nin > 16) return tni_onnx_refuse(c, "it has more than 16 inputs");
    for (; e.at < e.end && n < sizeof text - 1; e.at++)
        if (*e.at != ' ') text[n++] = (char)*e.at;
    text[n] = 0;
    if (e.at < e.end) return tni_onnx_refuse(c, "its equation is too long");
    for (int i = 0; i < c->nin; i++)
        if (!(x[i] = tni_onnx_in(c, i))) return false;
    return tni_onnx_out(c, 0, tn_einsum(text, c->nin, x));
}

// ---- random numbers, which are not those of other programs -------------------------------------

// The dtype and shape of the result: of attributes, or of an input.
static bool random_like(tni_onnx_call *c, bool like, tn_dtype *dt, int *rank, int64_t *size)
{
    int64_t type = tni_onnx_attr_int(c, "dtype", 0);
    *dt          = TN_F32;
    if (type && !tni_onnx_dtype(type, dt))
        return tni_onnx_refuse(c, "elements of type %lld are not supported", (long long)type);
    if (!like) return tni_onnx_attr_ints(c, "shape", TN_MAX_RANK, size, rank) && *rank >= 0;
    tn_tensor *x = tni_onnx_in(c, 0);
    if (!x) return false;
    if (!type) *dt = tn_dtype_of(x);
    *rank = tn_rank(x);
    for (int i = 0; i < *rank; i++) size[i] = tn_size(x, i);
    return true;
}

// Uniform numbers in low .. high, or normal ones; drawn on the device, anew in each run.
static bool random_numbers(tni_onnx_call *c, bool like, bool normal)
{
    tn_dtype dt;
    int      rank;
    int64_t  size[TN_MAX_RANK];
    if (!random_like(c, like, &dt, &rank, size)) return false;
    double a = normal ? tni_onnx_attr_real(c, "mean", 0) : tni_onnx_attr_real(c, "low", 0),
           b = normal ? tni_onnx_attr_real(c, "scale", 1) : tni_onnx_attr_real(c, "high", 1) - a;
    tn_tensor *y = normal ? tn_randn(c->r->cx, dt, rank, size) : tn_rand(c->r->cx, dt, rank, size);
    return tni_onnx_out(c, 0, tn_add_s(tn_mul_s(y, b), a));
}

// RandomNormal(; shape, mean, scale, dtype).
bool tni_onnx_random_normal(tni_onnx_call *c)
{
    return random_numbers(c, false, true);
}
// RandomUniform(; shape, low, high, dtype).
bool tni_onnx_random_uniform(tni_onnx_call *c)
{
    return random_numbers(c, false, false);
}
// RandomNormalLike(x; mean, scale, dtype): of x's shape, and of its dtype unless the node says so.
bool tni_onnx_random_normal_like(tni_onnx_call *c)
{
    return random_numbers(c, true, true);
}
// RandomUniformLike(x; low, high, dtype).
bool tni_onnx_random_uniform_like(tni_onnx_call *c)
{
    return random_numbers(c, true, false);
}

// Bernoulli(p; dtype): 1 with the probability p.
bool tni_onnx_bernoulli(tni_onnx_call *c)
{
    c->cx        = c->r->cx;  // what is drawn on the host would be the same in a repeated run
    tn_tensor *x = tni_onnx_in(c, 0), *y = tn_bernoulli(x);
    tn_dtype   dt   = x ? tn_dtype_of(x) : TN_F32;
    int64_t    type = tni_onnx_attr_int(c, "dtype", 0);
    if (type && !tni_onnx_dtype(type, &dt))
        return tni_onnx_refuse(c, "elements of type %lld are not supported", (long long)type);
    return tni_onnx_out(c, 0, y ? tn_cast(y, dt) : NULL);
}
