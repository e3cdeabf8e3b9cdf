// Axes: the shape that several arguments have in common, with as few axes as possible, since
// kernels divide by the size of each axis for every element.
#include "device/simt/groups.h"

#include "tensor/dtype.h"

#include <string.h>

// Elements of all axes; 1 if there are none.
int64_t tni_axes_count(const tni_axes *a)
{
    return tni_shape_count(a->rank, a->size);
}

// Copies an axis with its strides in n arguments.
static void move_axis(tni_axes *a, int to, int from, int n)
{
    a->size[to] = a->size[from];
    for (int k = 0; k < n; k++) a->stride[k][to] = a->stride[k][from];
}

// Returns whether two neighbouring axes are one in all n arguments: a step of the outer one is as
// long as all of the inner one.
static bool is_contiguous_pair(const tni_axes *a, int outer, int inner, int n)
{
    for (int k = 0; k < n; k++)
        if (a->stride[k][outer] != a->stride[k][inner] * a->size[inner]) return false;
    return true;
}

// Keeps the row-major order of elements, which kernels count by.
void tni_axes_merge(tni_axes *a, int n)
{
    int rank = 0;
    for (int i = 0; i < a->rank; i++) {
        if (a->size[i] == 1) continue;
        if (rank && is_contiguous_pair(a, rank - 1, i, n)) {
            int64_t outer = a->size[rank - 1];
            move_axis(a, rank - 1, i, n);
            a->size[rank - 1] *= outer;
        } else {
            move_axis(a, rank++, i, n);
        }
    }
    a->rank = rank;
}

// Axes are sorted by distance in memory, in either direction.
static int64_t magnitude(int64_t stride)
{
    return stride < 0 ? -stride : stride;
}

static void swap_two_axes(tni_axes *a, int i, int j)
{
    tni_axes b = *a;
    a->size[i] = b.size[j];
    a->size[j] = b.size[i];
    for (int k = 0; k < 4; k++) {
        a->stride[k][i] = b.stride[k][j];
        a->stride[k][j] = b.stride[k][i];
    }
}

// The axis itself becomes one of size 1 and is dropped by merging.
tni_axes tni_axes_lines(const tni_call *c)
{
    tni_axes lines = { .rank = c->out.rank };
    for (int i = 0; i < c->out.rank; i++) {
        lines.size[i]      = i == c->attr->axis.axis ? 1 : c->out.size[i];
        lines.stride[0][i] = c->in[0].stride[i];
        lines.stride[1][i] = c->out.stride[i];
    }
    tni_axes_merge(&lines, 2);
    return lines;
}

// Insertion sort: there are at most TN_MAX_RANK axes, mostly in order.
void tni_axes_sort(tni_axes *a, int argument)
{
    const int64_t *s = a->stride[argument];
    for (int i = 1; i < a->rank; i++)
        for (int j = i; j > 0 && magnitude(s[j - 1]) < magnitude(s[j]); j--)
            swap_two_axes(a, j - 1, j);
}

// Lays out axes as `shape` of the texts has them (group_text.c).
static tni_operand_shape operand_shape(const tni_axes *a, int i, int64_t at)
{
    tni_operand_shape s = { .at = at, .rank = a->rank };
    memcpy(s.size, a->size, sizeof s.size);
    memcpy(s.stride, a->stride[i], sizeof s.stride);
    return s;
}

void tni_kernel_args_add_axes(tni_kernel_args *h, const tni_axes *a, int i, int64_t at)
{
    tni_operand_shape s = operand_shape(a, i, at);
    tni_kernel_args_add(h, &s, sizeof s);
}

void tni_kernel_args_add_operand(tni_kernel_args *h, const tni_axes *a, int i, const void *data,
                                 tn_dtype dt)
{
    int64_t offset = tni_kernel_args_add_buffer(h, data);
    tni_kernel_args_add_axes(h, a, i, offset / (int64_t)tni_dtype_size(dt));
}
