// scatter and scatter_add by the kernel of group_text_fold.c: x is copied, then each line along the
// indexed axis is written in order. f16 and bf16 are added up in f32, in scratch, and rounded once.
// Whole rows are added by group_segments.c.
#include "device/simt/groups.h"

#include "tensor/dtype.h"

// The kernel's parameters, `scatter_params` of the text.
typedef struct {
    int64_t count, length, size, index_step, v_step, y_step;
    int32_t wide, add;
} scatter_params;

_Static_assert(sizeof(scatter_params) == 6 * 8 + 2 * 4,
               "no padding: the text declares the same fields");

// Returns whether sums are kept in f32 scratch. Segments add all values of an element before they
// round it, and need none.
static bool sums_in_float(const tni_call *c)
{
    return c->op == TNI_scatter_add && tni_is_rounded(c->out.dtype) && !tni_segments_can(c);
}

size_t tni_groups_scatter_scratch(const tni_call *c)
{
    if (tni_segments_can(c)) return tni_segments_scratch(c);
    if (!sums_in_float(c)) return 0;
    return (size_t)tni_shape_count(c->out.rank, c->out.size) * sizeof(float);
}

// Through the device's own call, which may have a faster copy.
static tn_status copy_through_device(const tni_call *c, const tni_arg *from, const tni_arg *to)
{
    tni_call call = tni_call_within(c, from->dtype == to->dtype ? TNI_copy : TNI_cast);
    call.nin      = 1;
    call.in       = from;
    call.out      = *to;
    return tni_call_run(&call);
}

// The lines along the indexed axis, over all other axes: argument 0 is the index, 1 the values, 2
// the result.
static tni_axes scatter_lines(const tni_call *c, const tni_arg *y)
{
    const tni_arg *index = &c->in[1], *v = &c->in[2];
    tni_axes       lines = { .rank = index->rank };
    for (int i = 0; i < index->rank; i++) {
        lines.size[i]      = i == c->attr->axis.axis ? 1 : index->size[i];
        lines.stride[0][i] = index->stride[i];
        lines.stride[1][i] = v->stride[i];
        lines.stride[2][i] = y->stride[i];
    }
    tni_axes_merge(&lines, 3);
    return lines;
}

// Sizes and strides along the indexed axis. wide: indices have 64 bits.
static scatter_params scatter_params_of(const tni_call *c, const tni_arg *y, int64_t lines)
{
    int            axis  = c->attr->axis.axis;
    const tni_arg *index = &c->in[1];
    return (scatter_params){ .count      = lines,
                             .length     = index->size[axis],
                             .size       = y->size[axis],
                             .index_step = index->stride[axis],
                             .v_step     = c->in[2].stride[axis],
                             .y_step     = y->stride[axis],
                             .wide       = index->dtype == TN_I64,
                             .add        = c->op == TNI_scatter_add };
}

// One item per line, so that several writes to one element are done in the order of the index.
static tn_status scatter_values(const tni_call *c, const tni_arg *y, int64_t fail[2])
{
    const tni_arg *x[]   = { &c->in[1], &c->in[2], y };
    tni_axes       lines = scatter_lines(c, y);
    scatter_params o     = scatter_params_of(c, y, tni_axes_count(&lines));
    if (tni_segments_can(c)) return tni_segments_add(c, &lines, fail);
    tni_kernel_args h;
    tn_status s = tni_kernel_args_begin(&h, c, tni_text_index, "scatter", x[1]->dtype, y->dtype);
    if (s != TN_OK) return s;
    for (int k = 0; k < 3; k++) tni_kernel_args_add_operand(&h, &lines, k, x[k]->data, x[k]->dtype);
    tni_kernel_args_add_state(&h, fail);
    tni_kernel_args_add(&h, &o, sizeof o);
    return tni_kernel_args_launch_items(&h, o.count, c->why);
}

// Reports an index as the CHECK of a generated kernel would be.
static tn_status report_out_of_range(const tni_call *c, int64_t index)
{
    int axis = c->attr->axis.axis;
    *c->why  = (tni_text){ 0 };
    tni_text_add(c->why, "%s: index %lld is out of range for size %lld along axis %d",
                 tni_op_table[c->op].name, (long long)index, (long long)c->in[0].size[axis], axis);
    return TN_EARG;
}

// fail is only filled when there is no ticket; otherwise the failure is reported later.
tn_status tni_groups_scatter(const tni_call *c)
{
    tni_arg y       = c->out;
    int64_t fail[2] = { 0 };
    if (sums_in_float(c)) {
        y.dtype = TN_F32;
        y.data  = c->scratch;
    }
    tn_status s = copy_through_device(c, &c->in[0], &y);
    if (s == TN_OK && tni_shape_count(c->in[1].rank, c->in[1].size) > 0)
        s = scatter_values(c, &y, fail);
    if (s == TN_OK && fail[0]) s = report_out_of_range(c, fail[1]);
    if (s == TN_OK && sums_in_float(c)) s = copy_through_device(c, &y, &c->out);
    return s;
}
