// argsort: a stable merge sort of the indices along an axis, in two arrays of scratch. NaN sorts
// last, or first when descending: see tni_ref_above.
#include "ref.h"

#include "base/integers.h"

size_t tni_ref_argsort_scratch(const tni_call *c)
{
    return 2 * (size_t)c->out.size[c->attr->axis.axis] * sizeof(int64_t);
}

// A line of elements to be sorted.
typedef struct {
    const tni_cell *x;
    int64_t         step;
    tn_dtype        dtype;
    bool            descending;
} line;

// Returns whether element j goes strictly before element i; false if they are equal.
static bool sorts_before(const line *l, int64_t j, int64_t i)
{
    tni_cell a = l->x[j * l->step], b = l->x[i * l->step];
    return l->descending ? tni_ref_above(l->dtype, a, b) : tni_ref_above(l->dtype, b, a);
}

// Merges the sorted runs from[lo .. mid) and from[mid .. hi) into to. Of equals, the left one goes
// first: that makes the sort stable.
static void merge_index_runs(const line *l, const int64_t *from, int64_t *to, int64_t lo,
                             int64_t mid, int64_t hi)
{
    int64_t i = lo, j = mid;
    for (int64_t k = lo; k < hi; k++) {
        bool right = i == mid || (j < hi && sorts_before(l, from[j], from[i]));
        to[k]      = right ? from[j++] : from[i++];
    }
}

// Merges runs of doubling length, back and forth. Returns the array that ends up sorted.
static int64_t *sort_line(const line *l, int64_t n, int64_t *a, int64_t *b)
{
    for (int64_t i = 0; i < n; i++) a[i] = i;
    for (int64_t run = 1; run < n; run *= 2) {
        for (int64_t lo = 0; lo < n; lo += 2 * run)
            merge_index_runs(l, a, b, lo, tni_min_i64(lo + run, n), tni_min_i64(lo + 2 * run, n));
        int64_t *sorted = b;
        b               = a;
        a               = sorted;
    }
    return a;
}

// Writes the order of each line and, if wanted, the elements in that order.
tn_status tni_ref_argsort(const tni_call *c)
{
    const tni_arg *in   = &c->in[0];
    int            axis = c->attr->axis.axis;
    int64_t        n = in->size[axis], *a = c->scratch;
    tni_cell      *values = c->nmore ? tni_cells(&c->more[0]) : NULL;
    tni_arg        first  = c->out;  // the first elements of all lines
    first.size[axis]      = 1;
    for (tni_ref_walk w = tni_ref_walk_over(first.rank, first.size); w.left;
         tni_ref_walk_next(&w)) {
        line           l      = { .x          = tni_cells(in) + tni_ref_offset(in, w.at),
                                  .step       = in->stride[axis],
                                  .dtype      = in->dtype,
                                  .descending = c->attr->axis.descending };
        const int64_t *sorted = sort_line(&l, n, a, a + n);
        int64_t        at = tni_ref_offset(&c->out, w.at), step = c->out.stride[axis];
        for (int64_t i = 0; i < n; i++) tni_cells(&c->out)[at + i * step].i = sorted[i];
        for (int64_t i = 0; values && i < n; i++) values[at + i * step] = l.x[sorted[i] * l.step];
    }
    return TN_OK;
}
