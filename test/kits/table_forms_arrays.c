// table_forms_arrays.c: the functions of tenon/arrays.h that are not maps, as table_forms.c has the
// other ops.
#include "table_forms.h"

// ---- products ----------------------------------------------------------------------------------

FORM(f_einsum, tn_einsum("bij,bjk->bik", 2, x))
FORM(f_einsum_outer, tn_einsum("ij,k->kji", 2, x))
FORM(f_einsum_diagonal, tn_einsum("iji->ij", 1, x))
FORM(f_einsum_dots, tn_einsum("...ij,jk", 2, x))
FORM(f_einsum_three, tn_einsum("ij,jk,kl->il", 3, (tn_tensor *const[]){ x[0], x[1], x[0] }))
FORM(f_tensordot, tn_tensordot(x[0], x[1], 2, (int[]){ 2, 0 }, (int[]){ -1, 1 }))
FORM(f_outer, tn_outer(x[0], x[1]))
FORM(f_cross, tn_cross(x[0], x[1], -1))
FORM(f_trace, tn_trace(x[0]))
FORM(f_kron, tn_kron(x[0], x[1]))
FORM(f_cosine, tn_cosine_similarity(x[0], x[1], 1, 1e-8))

// ---- repetition, comparison --------------------------------------------------------------------

FORM(f_tile, tn_tile(x[0], 1, (int64_t[]){ 3 }))
FORM(f_tile_more, tn_tile(x[0], 3, (int64_t[]){ 2, 1, 2 }))
FORM(f_interleave, tn_repeat_interleave(x[0], 1, (int64_t[]){ 3 }, 0))
FORM(f_interleave_by, tn_repeat_interleave(x[0], 4, (int64_t[]){ 2, 0, 1, 3 }, -1))
FORM(f_isclose, tn_isclose(x[0], x[1], 0.25, 0.5, false))
static tn_tensor *f_meshgrid(tn_tensor *const *x, void *user)
{
    (void)user;
    tn_tensor *y[2] = { 0 };
    tn_meshgrid(2, x, true, y);
    return tn_mul(y[0], y[1]);
}

// clang-format off
const form forms_arrays[] = {
    { "einsum",               f_einsum,          SMOOTH, 1, 2, { IN(3, APART, 2, 3, 4), IN(3, APART, 2, 4, 2) } },
    { "einsum, outer",        f_einsum_outer,    SMOOTH, 1, 2, { IN(2, APART, 3, 2), IN(1, APART, 4) } },
    { "einsum, diagonal",     f_einsum_diagonal, SMOOTH, 1, 1, { IN(3, APART, 3, 2, 3) } },
    { "einsum, dots",         f_einsum_dots,     SMOOTH, 1, 2, { IN(3, APART, 2, 3, 4), IN(2, APART, 4, 2) } },
    { "einsum of three",      f_einsum_three,    SMOOTH, 2, 2, { IN(2, APART, 2, 3), IN(2, APART, 3, 2) } },
    { "tensordot",            f_tensordot,       SMOOTH, 1, 2, { IN(3, APART, 2, 3, 4), IN(3, APART, 3, 2, 4) } },
    { "outer",                f_outer,           SMOOTH, 1, 2, { IN(1, APART, 3), IN(1, APART, 4) } },
    { "cross",                f_cross,           SMOOTH, 2, 2, { IN(2, APART, 4, 3), IN(2, APART, 1, 3) } },
    { "trace",                f_trace,           SMOOTH, 1, 1, { IN(3, APART, 2, 3, 4) } },
    { "kron",                 f_kron,            SMOOTH, 1, 2, { IN(2, APART, 2, 3), IN(1, APART, 2) } },
    { "cosine_similarity",    f_cosine,          SMOOTH, 2, 2, { IN(2, APART, 3, 4), IN(2, APART, 3, 4) } },
    { "tile",                 f_tile,            SMOOTH, 1, 1, { IN(2, APART, 3, 4) } },
    { "tile, more axes",      f_tile_more,       SMOOTH, 1, 1, { IN(2, APART, 3, 4) } },
    { "repeat_interleave",    f_interleave,      SMOOTH, 1, 1, { IN(2, APART, 3, 4) } },
    { "repeat_interleave by", f_interleave_by,   SMOOTH, 1, 1, { IN(2, APART, 3, 4) } },
    { "isclose",              f_isclose,         NO_GRAD, 1, 2, { IN(2, APART, 3, 4), IN(2, APART, 3, 4) } },
    { "meshgrid",             f_meshgrid,        SMOOTH, 1, 2, { IN(1, APART, 3), IN(1, APART, 4) } },
    { .name = NULL },
};
// clang-format on
