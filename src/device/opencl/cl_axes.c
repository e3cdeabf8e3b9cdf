// Axes: what several arguments of one shape have in common, in as few axes as can be.
#include "device/opencl/opencl.h"

#include "tensor/dtype.h"

#include <string.h>

int64_t tni_cl_count(const tni_cl_axes *a)
{
    return tni_shape_count(a->rank, a->size);
}

static void put_axis(tni_cl_axes *a, int to, int from, int n)
{
    a->size[to] = a->size[from];
    for (int k = 0; k < n; k++) a->stride[k][to] = a->stride[k][from];
}

static bool one_run(const tni_cl_axes *a, int outer, int inner, int n)
{
    for (int k = 0; k < n; k++)
        if (a->stride[k][outer] != a->stride[k][inner] * a->size[inner]) return false;
    return true;
}

void tni_cl_merge(tni_cl_axes *a, int n)
{
    int rank = 0;
    for (int i = 0; i < a->rank; i++) {
        if (a->size[i] == 1) continue;
        if (rank && one_run(a, rank - 1, i, n)) {
            int64_t outer = a->size[rank - 1];
            put_axis(a, rank - 1, i, n);
            a->size[rank - 1] *= outer;
        } else {
            put_axis(a, rank++, i, n);
        }
    }
    a->rank = rank;
}

static int64_t reach(int64_t stride)
{
    return stride < 0 ? -stride : stride;
}

static void swap_axes(tni_cl_axes *a, int i, int j)
{
    tni_cl_axes b = *a;
    a->size[i]    = b.size[j];
    a->size[j]    = b.size[i];
    for (int k = 0; k < 4; k++) {
        a->stride[k][i] = b.stride[k][j];
        a->stride[k][j] = b.stride[k][i];
    }
}

void tni_cl_sort_axes(tni_cl_axes *a, int argument)
{
    const int64_t *s = a->stride[argument];
    for (int i = 1; i < a->rank; i++)
        for (int j = i; j > 0 && reach(s[j - 1]) < reach(s[j]); j--) swap_axes(a, j - 1, j);
}

tni_cl_shape tni_cl_shape_of(const tni_cl_axes *a, int i, int64_t offset, tn_dtype dt)
{
    tni_cl_shape s = { .at = offset / (int64_t)tni_dtype_size(dt), .rank = a->rank };
    memcpy(s.size, a->size, sizeof s.size);
    memcpy(s.stride, a->stride[i], sizeof s.stride);
    return s;
}

tn_status tni_cl_start_items(tni_cl_launch *l, const char *what, int64_t count, tni_text *why)
{
    enum { GROUP = 64 };
    return tni_cl_start(l, what, 1, (size_t[]){ (size_t)((count + GROUP - 1) / GROUP) },
                        (size_t[]){ GROUP }, why);
}
