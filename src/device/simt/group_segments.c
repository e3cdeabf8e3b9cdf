// scatter_add with the same index along all other axes, as for the rows of an embedding, by the
// kernels of group_text_segments.c: the indices are sorted with their positions, and each run of
// equal indices is added to its row. Rows of one index are added in their order, so that the bits
// are those of adding all rows one after the other.
#include "device/simt/groups.h"

#include "tensor/dtype.h"

// BLOCK: pairs sorted in shared memory; PLACES, COLUMNS: what a group adds; all fixed in the text.
// SHORT: up to this many indices, sorting is not worth its launches.
enum { BLOCK = 1024, BLOCK_ITEMS = 256, PLACES = 16, COLUMNS = 1024, SHORT = 32 };

// The kernels' parameters, `segment_params` of the text.
typedef struct {
    int64_t n, index_step, size, count, v_step, y_step;
    int32_t wide, unused;
} segment_params;

_Static_assert(sizeof(segment_params) == 6 * 8 + 2 * 4,
               "no padding: the text declares the same fields");

// Sizes and strides along the indexed axis. wide: indices have 64 bits.
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

// Index and position are 32 bits each of a pair.
bool tni_segments_can(const tni_call *c)
{
    int            axis  = c->attr->axis.axis;
    const tni_arg *index = &c->in[1];
    if (c->op != TNI_scatter_add || index->size[axis] <= SHORT) return false;
    for (int i = 0; i < index->rank; i++)
        if (i != axis && index->size[i] > 1 && index->stride[i]) return false;
    return index->size[axis] <= INT32_MAX && c->out.size[axis] <= INT32_MAX;
}

// One pair of index and position for each index.
static int64_t pair_list_bytes(const tni_call *c)
{
    return tni_align64(c->in[1].size[c->attr->axis.axis] * (int64_t)sizeof(uint64_t));
}

// A list of pairs, and a second one to merge into.
size_t tni_segments_scratch(const tni_call *c)
{
    return (size_t)(2 * pair_list_bytes(c));
}

static tn_status begin_segment_kernel(tni_kernel_args *h, const tni_call *c, const char *name)
{
    return tni_kernel_args_begin(h, c, tni_text_segments, name, c->in[2].dtype, c->out.dtype);
}

// Passes a list and where in its buffer it begins, in pairs.
static void add_pair_list(tni_kernel_args *h, const char *list)
{
    tni_kernel_args_add_long(h, tni_kernel_args_add_buffer(h, list) / (int64_t)sizeof(uint64_t));
}

// First launch: checks the indices, makes pairs and sorts blocks of them.
static tn_status sort_pair_blocks(const tni_call *c, const segment_params *o, const char *to,
                                  int64_t fail[2])
{
    const tni_arg  *index = &c->in[1];
    tni_kernel_args h;
    tn_status       s = begin_segment_kernel(&h, c, "pair_blocks");
    if (s != TN_OK) return s;
    tni_kernel_args_add_long(&h, tni_kernel_args_add_buffer(&h, index->data) /
                                     (int64_t)tni_dtype_size(index->dtype));
    add_pair_list(&h, to);
    tni_kernel_args_add_state(&h, fail);
    tni_kernel_args_add(&h, o, sizeof *o);
    return tni_kernel_args_launch(&h, tni_ceil_div(o->n, BLOCK), BLOCK_ITEMS, c->why);
}

// Merges neighbouring sorted runs into runs of twice the length.
static tn_status merge_pair_runs(const tni_call *c, int64_t n, int64_t run, const char *from,
                                 const char *to)
{
    tni_kernel_args h;
    tn_status       s = begin_segment_kernel(&h, c, "pair_merge");
    if (s != TN_OK) return s;
    add_pair_list(&h, from);
    add_pair_list(&h, to);
    tni_kernel_args_add_long(&h, n);
    tni_kernel_args_add_long(&h, run);
    return tni_kernel_args_launch_items(&h, n, c->why);
}

// Last launch: adds the rows of each run of equal indices.
static tn_status add_segment_rows(const tni_call *c, const tni_axes *lines, const segment_params *o,
                                  const char *list)
{
    tni_kernel_args h;
    tn_status       s = begin_segment_kernel(&h, c, "add_segments");
    if (s != TN_OK) return s;
    add_pair_list(&h, list);
    tni_kernel_args_add_operand(&h, lines, 1, c->in[2].data, c->in[2].dtype);
    tni_kernel_args_add_operand(&h, lines, 2, c->out.data, c->out.dtype);
    tni_kernel_args_add(&h, o, sizeof *o);
    int64_t tiles = tni_ceil_div(o->count, COLUMNS);
    return tni_kernel_args_launch(&h, tni_ceil_div(o->n, PLACES) * tiles, BLOCK_ITEMS, c->why);
}

// Merges until all is one run, to and fro between the two lists. Stops if an index was out of range
// and known to be; with a ticket it goes on, with 0 in its place.
tn_status tni_segments_add(const tni_call *c, const tni_axes *lines, int64_t fail[2])
{
    segment_params o    = segment_params_of(c, tni_axes_count(lines));
    const char    *list = c->scratch, *other = list + pair_list_bytes(c);
    tn_status      s = sort_pair_blocks(c, &o, list, fail);
    for (int64_t run = BLOCK; s == TN_OK && !fail[0] && run < o.n; run *= 2) {
        s                  = merge_pair_runs(c, o.n, run, list, other);
        const char *merged = other;
        other              = list;
        list               = merged;
    }
    return s == TN_OK && !fail[0] ? add_segment_rows(c, lines, &o, list) : s;
}
