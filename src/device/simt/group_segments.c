// scatter_add where the index is the same along all other axes, as it is for rows of an embedding,
// by the kernels of group_text_segments.c. Rows of one place are added in their order, so that the
// result is that of adding all rows one after the other, to the bit.
#include "device/simt/groups.h"

#include "tensor/dtype.h"

enum { BLOCK = 1024, BLOCK_ITEMS = 256, PLACES = 16, COLUMNS = 1024, SHORT = 32 };

// `segment_params` of the text.
typedef struct {
    int64_t n, index_step, size, count, v_step, y_step;
    int32_t wide, unused;
} segment_params;

_Static_assert(sizeof(segment_params) == 6 * 8 + 2 * 4,
               "no padding: the text declares the same fields");

static segment_params segment_params_of(const tni_call *c, int64_t lines)
{
    int            axis  = c->attr->axis.axis;
    const tni_arg *index = &c->in[1];
    return (segment_params){ .n          = index->size[axis],
                             .index_step = index->stride[axis],
                             .size       = c->out.size[axis],
                             .count      = lines,
                             .v_step     = c->in[2].stride[axis],
                             .y_step     = c->out.stride[axis],
                             .wide       = index->dtype == TN_I64 };
}

bool tni_segments_can(const tni_call *c)
{
    int            axis  = c->attr->axis.axis;
    const tni_arg *index = &c->in[1];
    if (c->op != TNI_scatter_add || index->size[axis] <= SHORT) return false;
    for (int i = 0; i < index->rank; i++)
        if (i != axis && index->size[i] > 1 && index->stride[i]) return false;
    return index->size[axis] <= INT32_MAX && c->out.size[axis] <= INT32_MAX;
}

static int64_t list_bytes(const tni_call *c)
{
    return tni_align64(c->in[1].size[c->attr->axis.axis] * (int64_t)sizeof(uint64_t));
}

// Pairs of index and place, and room to merge them into.
size_t tni_segments_scratch(const tni_call *c)
{
    return (size_t)(2 * list_bytes(c));
}

static tn_status begin_segment_kernel(tni_kernel_args *h, const tni_call *c, const char *name)
{
    return tni_kernel_args_begin(h, c, tni_text_segments, name, c->in[2].dtype, c->out.dtype);
}

static void add_list(tni_kernel_args *h, const char *list)
{
    tni_kernel_args_add_long(h, tni_kernel_args_add_buffer(h, list) / (int64_t)sizeof(uint64_t));
}

static tn_status sort_blocks(const tni_call *c, const segment_params *o, const char *to,
                             int64_t fail[2])
{
    const tni_arg  *index = &c->in[1];
    tni_kernel_args h;
    tn_status       s = begin_segment_kernel(&h, c, "pair_blocks");
    if (s != TN_OK) return s;
    tni_kernel_args_add_long(&h, tni_kernel_args_add_buffer(&h, index->data) /
                                     (int64_t)tni_dtype_size(index->dtype));
    add_list(&h, to);
    tni_kernel_args_add_state(&h, fail);
    tni_kernel_args_add(&h, o, sizeof *o);
    return tni_kernel_args_launch(&h, tni_ceil_div(o->n, BLOCK), BLOCK_ITEMS, c->why);
}

static tn_status merge_runs(const tni_call *c, int64_t n, int64_t run, const char *from,
                            const char *to)
{
    tni_kernel_args h;
    tn_status       s = begin_segment_kernel(&h, c, "pair_merge");
    if (s != TN_OK) return s;
    add_list(&h, from);
    add_list(&h, to);
    tni_kernel_args_add_long(&h, n);
    tni_kernel_args_add_long(&h, run);
    return tni_kernel_args_launch_items(&h, n, c->why);
}

static tn_status add_rows(const tni_call *c, const tni_axes *lines, const segment_params *o,
                          const char *list)
{
    tni_kernel_args h;
    tn_status       s = begin_segment_kernel(&h, c, "add_segments");
    if (s != TN_OK) return s;
    add_list(&h, list);
    tni_kernel_args_add_operand(&h, lines, 1, c->in[2].data, c->in[2].dtype);
    tni_kernel_args_add_operand(&h, lines, 2, c->out.data, c->out.dtype);
    tni_kernel_args_add(&h, o, sizeof *o);
    int64_t tiles = tni_ceil_div(o->count, COLUMNS);
    return tni_kernel_args_launch(&h, tni_ceil_div(o->n, PLACES) * tiles, BLOCK_ITEMS, c->why);
}

tn_status tni_segments_add(const tni_call *c, const tni_axes *lines, int64_t fail[2])
{
    segment_params o    = segment_params_of(c, tni_axes_count(lines));
    const char    *list = c->scratch, *other = list + list_bytes(c);
    tn_status      s = sort_blocks(c, &o, list, fail);
    for (int64_t run = BLOCK; s == TN_OK && !fail[0] && run < o.n; run *= 2) {
        s                  = merge_runs(c, o.n, run, list, other);
        const char *merged = other;
        other              = list;
        list               = merged;
    }
    return s == TN_OK && !fail[0] ? add_rows(c, lines, &o, list) : s;
}
