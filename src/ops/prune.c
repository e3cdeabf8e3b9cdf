// 2:4 sparsity: which two of each four neighbouring weights stay. Tensor cores of NVIDIA multiply
// such matrices with half of the work; a mask that also holds for the transposed matrix serves the
// gradient of the input, too.
#include "ops/composite.h"

#include <string.h>

// An element stays if fewer than two of its four are larger; of equal ones the first counts as
// larger. NaN is below nothing, so that it stays and is seen.
static tn_tensor *along_rows(tn_tensor *a)
{
    tn_ctx *cx   = a->cx;
    int     rank = tn_rank(a);
    int64_t size[TN_MAX_RANK];
    memcpy(size, tni_sizes(a), sizeof size);
    tn_tensor *four = tn_reshape(a, TN_SHAPE(-1, 4)), *at = tn_arange(cx, TN_I64, 0, 4, 1);
    tn_tensor *own = tn_unsqueeze(four, 2), *other = tn_unsqueeze(four, 1);
    tn_tensor *first   = tn_lt(tn_unsqueeze(at, 0), tn_unsqueeze(at, 1));
    tn_tensor *ahead   = tn_logical_or(tn_gt(other, own), tn_logical_and(tn_eq(other, own), first));
    tn_tensor *rank_of = tn_sum(tn_cast(ahead, TN_I32), 2);
    return rank_of ? tn_reshape(tn_lt_s(rank_of, 2), rank, size) : NULL;
}

// There are 6 ways to keep two elements of a row, and so 1,296 of four rows; in 90 of them each
// column keeps two as well.
//
// All ways to keep two elements of each row and of each column of four rows of four, as rows of 16
// numbers.
enum { WAYS = 90, TILE = 16 };
static void list_ways(float way[WAYS][TILE])
{
    static const int pair[6] = { 3, 5, 6, 9, 10, 12 };  // the columns of a row, as bits
    int              n       = 0;
    for (int i = 0; i < 6 * 6 * 6 * 6; i++) {
        int row[4] = { pair[i % 6], pair[i / 6 % 6], pair[i / 36 % 6], pair[i / 216] }, columns = 0;
        for (int c = 0; c < 4; c++) {
            int kept = 0;
            for (int r = 0; r < 4; r++) kept += row[r] >> c & 1;
            columns += kept == 2;
        }
        if (columns < 4) continue;
        for (int k = 0; k < TILE; k++) way[n][k] = (float)(row[k / 4] >> k % 4 & 1);
        n++;
    }
}

// The tiles as rows of 16 numbers, times the ways as columns: a sum of magnitudes for each. Taking
// the largest is exact, where choosing element by element might leave a tile with no way to end.
//
// Of each tile of 4 x 4 the way that keeps most, found by one product with all of them. a: (...,
// rows, cols) of magnitudes.
static tn_tensor *by_tiles(tn_tensor *a)
{
    static const int order[] = { 0, 1, 3, 2, 4 };
    float            way[WAYS][TILE];
    tn_ctx          *cx   = a->cx;
    tn_dtype         mode = cx->autocast;
    int              rank = tn_rank(a);
    int64_t          size[TN_MAX_RANK], m = tn_size(a, -2) / 4, n = tn_size(a, -1) / 4;
    memcpy(size, tni_sizes(a), sizeof size);
    list_ways(way);
    tn_tensor *ways  = tn_from(cx, TN_F32, TN_SHAPE(WAYS, TILE), way);
    tn_tensor *tiles = tn_permute(tn_reshape(tn_cast(a, TN_F32), TN_SHAPE(-1, m, 4, n, 4)), 5,
                                  order);
    cx->autocast     = TN_F32;  // which way keeps most is a question of digits
    tn_tensor *kept  = tn_matmul(tn_reshape(tiles, TN_SHAPE(-1, TILE)), tn_transpose(ways, 0, 1));
    cx->autocast     = mode;
    tn_tensor *best  = tn_argmax(kept, 1);
    tni_set_below(best, WAYS);
    tn_tensor *mask = tn_reshape(tn_index_select(ways, 0, best), TN_SHAPE(-1, m, n, 4, 4));
    mask            = tn_reshape(tn_permute(mask, 5, order), rank, size);
    return mask ? tn_ne_s(mask, 0) : NULL;
}

// As NVIDIA's tools count: fours lie along the axis that a product adds up, the last one of a
// weight (out, in).
//
// The mask has no gradient: what stays is chosen, not computed.
tn_tensor *tn_prune_2_4(tn_tensor *w, bool both)
{
    tn_ctx *cx = tni_arg1("prune_2_4", w, "w");
    if (!cx || !tni_want_float(w, "prune_2_4")) return NULL;
    int rank = tn_rank(w);
    if (rank < 1 + both || tn_size(w, -1) % 4 || (both && tn_size(w, -2) % 4))
        return tni_fail(cx, TN_ESHAPE, "prune_2_4: w %s is not of fours along its last %s",
                        tni_shape_of(w).s, both ? "two axes" : "axis");
    if (!tn_count(w)) return tn_zeros(cx, TN_BOOL, rank, tni_sizes(w));
    tn_tensor *a = tn_abs(tn_detach(w));
    return !a ? NULL : both ? by_tiles(a) : along_rows(a);
}
