// Arithmetic on shapes and views. Everything is in elements; sizes were checked against overflow
// when the tensor was recorded, so products here cannot overflow.
#include "tensor/shape.h"

#include <string.h>

// An eighth of the range is enough for the bytes of the widest dtype. Sizes of 0 count as 1 for the
// check: a slice or a reduction of an empty shape may be a non-empty one of the other sizes.
int64_t tni_shape_count(int rank, const int64_t *size)
{
    int64_t n = 1, most = INT64_MAX / 8;
    bool    empty = false;
    for (int i = 0; i < rank; i++) {
        empty |= size[i] == 0;
        if (size[i] < 0 || __builtin_mul_overflow(n, size[i] ? size[i] : 1, &n) || n > most)
            return -1;
    }
    return empty ? 0 : n;
}

void tni_shape_strides(int rank, const int64_t *size, int64_t *stride)
{
    int64_t step = 1;
    for (int i = rank - 1; i >= 0; i--) {
        stride[i] = step;
        step *= size[i] > 0 ? size[i] : 1;
    }
}

// NumPy's rule: shapes are aligned at their last axes, and a size of 1 stretches.
bool tni_shape_broadcast(int *rank, int64_t *size, int rank_b, const int64_t *b)
{
    if (rank_b > *rank) {
        int grow = rank_b - *rank;
        memmove(size + grow, size, (size_t)*rank * sizeof *size);
        for (int i = 0; i < grow; i++) size[i] = 1;
        *rank = rank_b;
    }
    int skip = *rank - rank_b;
    for (int i = 0; i < rank_b; i++) {
        int64_t *s = &size[skip + i];
        if (*s == 1) *s = b[i];
        else if (b[i] != 1 && b[i] != *s) return false;
    }
    return true;
}

// An axis of size 0 steps like one of size 1: strides stay well defined.
tni_view tni_view_whole(int rank, const int64_t *size)
{
    tni_view v;
    int64_t  step = 1;
    v.rank        = rank;
    v.offset      = 0;
    for (int i = rank - 1; i >= 0; i--) {
        v.size[i]   = size[i];
        v.stride[i] = step;
        step *= size[i] > 0 ? size[i] : 1;
    }
    return v;
}

bool tni_view_equal(const tni_view *a, const tni_view *b)
{
    return a->offset == b->offset && tni_shape_equal(a->rank, a->size, b->rank, b->size) &&
           tni_shape_equal(a->rank, a->stride, b->rank, b->stride);
}

// Strides of axes of size 1 do not matter.
bool tni_view_contiguous(const tni_view *v)
{
    int64_t step = 1;
    for (int i = 0; i < v->rank; i++)
        if (v->size[i] == 0) return true;
    for (int i = v->rank - 1; i >= 0; i--) {
        if (v->size[i] == 1) continue;
        if (v->stride[i] != step) return false;
        step *= v->size[i];
    }
    return true;
}

// A stable insertion sort: there are at most TN_MAX_RANK axes, and most are sorted already.
void tni_view_sort(const tni_view *v, int *order)
{
    for (int i = 0; i < v->rank; i++) {
        int at = i;
        for (; at > 0 && v->stride[order[at - 1]] < v->stride[i]; at--) order[at] = order[at - 1];
        order[at] = i;
    }
}

// A result of true means: permuted by `order`, the view is a row-major tensor, up to gaps.
bool tni_view_order(const tni_view *v, int *order)
{
    int64_t last = INT64_MAX, span = 0;
    bool    sorted = true;
    // Most views are in order, broadcast or flipped: these are done here.
    for (int i = 0; i < v->rank; i++) {
        if (v->size[i] == 1) continue;
        if (v->size[i] == 0 || v->stride[i] <= 0) return false;
        sorted &= v->stride[i] <= last;
        last = v->stride[i];
    }
    if (sorted) return false;
    tni_view_sort(v, order);
    for (int k = v->rank - 1; k >= 0; k--) {
        int i = order[k];
        if (v->size[i] == 1) continue;
        if (v->stride[i] < span) return false;
        span = v->stride[i] * v->size[i];
    }
    return true;
}

void tni_view_permute(tni_view *v, const int *order)
{
    tni_view old = *v;
    for (int i = 0; i < v->rank; i++) {
        v->size[i]   = old.size[order[i]];
        v->stride[i] = old.stride[order[i]];
    }
}

void tni_view_unpermute(tni_view *v, const int *order)
{
    tni_view old = *v;
    for (int i = 0; i < v->rank; i++) {
        v->size[order[i]]   = old.size[i];
        v->stride[order[i]] = old.stride[i];
    }
}

// A stretched axis has stride 0, so that each of its elements is the same place.
bool tni_view_expand(tni_view *v, int rank, const int64_t *size)
{
    int grow = rank - v->rank;
    if (grow < 0 || rank > TN_MAX_RANK) return false;
    tni_view out = { .rank = rank, .offset = v->offset };
    for (int i = 0; i < rank; i++) {
        int64_t have = i < grow ? 1 : v->size[i - grow];
        out.size[i]  = size[i];
        if (have == size[i] && i >= grow) out.stride[i] = v->stride[i - grow];
        else if (have != 1) return false;
    }
    *v = out;
    return true;
}

// Merges neighbouring axes that are one run of memory, so that a new shape only has to split them.
// Returns the number of merged axes.
static int merge_axes(const tni_view *v, int64_t *size, int64_t *stride)
{
    int n = 0;
    for (int i = 0; i < v->rank; i++) {
        if (v->size[i] == 1) continue;
        if (n && stride[n - 1] == v->stride[i] * v->size[i]) {
            size[n - 1] *= v->size[i];
            stride[n - 1] = v->stride[i];
        } else {
            size[n]     = v->size[i];
            stride[n++] = v->stride[i];
        }
    }
    return n;
}

// Works like NumPy's attempt without a copy: merged runs of memory are split into the new sizes,
// from the innermost outwards; a new axis that would span two runs has no single stride.
bool tni_view_reshape(const tni_view *v, int rank, const int64_t *size, tni_view *out)
{
    int64_t have[TN_MAX_RANK], step[TN_MAX_RANK];
    *out        = tni_view_whole(rank, size);
    out->offset = v->offset;
    if (tni_shape_count(rank, size) == 0) return true;
    int n = merge_axes(v, have, step), at = n - 1;
    // From the innermost axis outwards, each new axis takes its part of the current merged one.
    int64_t left = n ? have[at] : 1;
    for (int i = rank - 1; i >= 0; i--) {
        if (size[i] == 1) continue;
        if (left == 1 && at > 0) left = have[--at];
        if (at < 0 || left % size[i]) return false;
        out->stride[i] = step[at] * (have[at] / left);
        left /= size[i];
    }
    return true;
}

// Sufficient, not necessary: each axis must step past everything that the axes of smaller stride
// span. A view that interleaves without overlap is refused too.
bool tni_view_injective(const tni_view *v)
{
    int     order[TN_MAX_RANK], n = 0;
    int64_t step[TN_MAX_RANK];
    for (int i = 0; i < v->rank; i++) {
        if (v->size[i] == 0) return true;
        if (v->size[i] == 1) continue;
        step[i] = v->stride[i] < 0 ? -v->stride[i] : v->stride[i];
        int at  = n++;
        for (; at > 0 && step[order[at - 1]] > step[i]; at--) order[at] = order[at - 1];
        order[at] = i;
    }
    // In order of stride, each axis must step past everything the smaller ones span.
    int64_t span = 0;
    for (int k = 0; k < n; k++) {
        if (step[order[k]] <= span) return false;
        span += step[order[k]] * (v->size[order[k]] - 1);
    }
    return true;
}
