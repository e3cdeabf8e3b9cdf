// Shapes, strides and views: arithmetic on small arrays of sizes, nothing else.
#ifndef TNI_TENSOR_SHAPE_H
#define TNI_TENSOR_SHAPE_H

#include "tenon.h"

// How the elements of a tensor are placed in a row-major base: element (i0, i1, ...) is at offset +
// i0 * stride[0] + i1 * stride[1] + ... Strides may be zero (broadcast), negative (flip) or overlap
// (windows). All in elements.
typedef struct {
    int     rank;
    int64_t size[TN_MAX_RANK], stride[TN_MAX_RANK], offset;  // those past the rank say nothing
} tni_view;

// Number of elements, or -1 if it (or its bytes, at 8 an element) overflows, also for an empty
// shape whose other sizes do.
int64_t            tni_shape_count(int rank, const int64_t *size);
static inline bool tni_shape_equal(int rank, const int64_t *a, int rank_b, const int64_t *b)
{
    if (rank != rank_b) return false;
    for (int i = 0; i < rank; i++)
        if (a[i] != b[i]) return false;
    return true;
}
// Fills the row-major strides of a shape.
void tni_shape_strides(int rank, const int64_t *size, int64_t *stride);
// Broadcasts b into *rank, size as NumPy does. False if they do not fit.
bool tni_shape_broadcast(int *rank, int64_t *size, int rank_b, const int64_t *b);

// The whole of a row-major tensor.
tni_view tni_view_whole(int rank, const int64_t *size);
bool     tni_view_equal(const tni_view *a, const tni_view *b);
// Row-major with no gaps (axes of size 1 and empty views count as such).
bool tni_view_contiguous(const tni_view *v);
// Stretches axes of size 1 (and adds leading ones) to a shape; false where sizes differ.
bool tni_view_expand(tni_view *v, int rank, const int64_t *size);
// Writes the axes by falling stride into order; equal strides keep their order.
void tni_view_sort(const tni_view *v, int *order);
// The axes in memory order, outermost first, if that differs from their own order and no two
// elements share a place; gaps are allowed. Else false.
bool tni_view_order(const tni_view *v, int *order);
// Puts axis order[i] in place i; the other undoes it.
void tni_view_permute(tni_view *v, const int *order);
void tni_view_unpermute(tni_view *v, const int *order);
// Another shape of the same elements in the same order, without moving them. False where strides
// cannot express it. The counts must be equal.
bool tni_view_reshape(const tni_view *v, int rank, const int64_t *size, tni_view *out);
// Whether no two elements share a place. Conservative: some views without overlap are refused.
bool tni_view_injective(const tni_view *v);

#endif
