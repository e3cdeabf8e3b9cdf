// calls_arrays.c: the functions of tenon/arrays.h in the table of calls.
#include "call_rows.h"

CALL(einsum)
{
    static const char *const texts[] = { "ij,jk->ik", "...i,...i", "ab", "ii->i,", NULL };
    return tn_einsum(texts[k->i & 3], (int)k->j & 3, (tn_tensor *const[]){ k->x, k->y, k->x });
}
CALL(tensordot)
{
    return tn_tensordot(k->x, k->y, (int)k->i & 3, (int[]){ (int)k->j, 1, 2 }, (int[]){ 0, 1, 2 });
}
CALL(cross)
{
    // Of any tensors, or of three elements.
    if (k->j & 1) return tn_cross(k->x, k->y, (int)k->i);
    return tn_cross(tn_expand(tn_sum_all(k->x), TN_SHAPE(3)),
                    tn_expand(tn_sum_all(k->y), TN_SHAPE(3)), 0);
}
CALL(outer)
{
    return tn_outer(tn_reshape(k->x, TN_SHAPE(-1)),
                    k->i & 1 ? k->y : tn_reshape(k->y, TN_SHAPE(-1)));
}
CALL(kron)
{
    return tn_kron(k->x, k->y);
}
CALL(cosine_similarity)
{
    return tn_cosine_similarity(k->x, k->y, (int)k->i, k->d);
}
CALL(tile)
{
    return tn_tile(k->x, (int)k->i, (int64_t[16]){ k->j, 2, 1, 1, 1, 1, 1, 1 });
}
CALL(repeat_interleave)
{
    return tn_repeat_interleave(k->x, 1 + ((int)k->i & 1), (int64_t[]){ k->j, 2 }, (int)k->i);
}
CALL(meshgrid)
{
    tn_tensor *y[2] = { 0 };
    tn_tensor *v[]  = { k->x, k->y };
    return tn_meshgrid(2, v, k->i & 1, y) == TN_OK ? y[0] : NULL;
}
CALL(isclose)
{
    return tn_isclose(k->x, k->y, k->d, 0.5, k->i & 1);
}
CALL(allclose)
{
    tn_allclose(k->x, k->y, k->d, 0.5, k->i & 1);
    return NULL;
}

// clang-format off
const call calls_of_arrays[] = {
    U(asin), U(acos), U(sinh), U(cosh), U(asinh), U(acosh), U(atanh), U(log10), U(erfinv), U(lgamma), U(digamma), U(signbit),
    B(atan2), B(hypot), B(logaddexp), B(copysign), B(nextafter), B(fmod), B(trunc_divide),
    T(einsum), T(tensordot), T(outer), T(cross), U(trace), T(kron), T(cosine_similarity), O(tile), O(repeat_interleave),
    T(meshgrid), T(isclose), T(allclose),
    { 0 },
};
// clang-format on
