// argsort by the kernels of group_text_sort.c: blocks of 1024 are sorted, then runs of twice the
// length are merged in each pass, to and fro between two lists of pairs, the last pass into the
// result.
#include "device/simt/groups.h"

#include "tensor/dtype.h"

// BLOCK, SHIFT (its logarithm), ITEMS: fixed in the text. PAIR: bytes of a pair with a key of 32
// bits.
enum { BLOCK = 1024, SHIFT = 10, ITEMS = 128, PAIR = 8 };

// The kernels' parameters, `sort_params` of the text. shift: the logarithm of the places that a
// line has in a block, so that a block sorts several short lines; is_last: this launch writes the
// result; values: sorted elements are wanted too.
typedef struct {
    int64_t n, lines, x_step, y_step, blocks, run;
    int32_t shift, descending, is_last, values;
} sort_params;

_Static_assert(sizeof(sort_params) == 6 * 8 + 4 * 4,
               "no padding: the text declares the same fields");

// Lists of pairs of key and position, which a pass reads and writes. One of them may be the memory
// of the result, which only the last pass writes as such.
typedef struct {
    const char *from, *to;
    int64_t     pair;  // bytes of a pair
} lists;

// Keys have the type that a dtype is computed in: that of u32 has 8 bytes.
static bool is_wide(const tni_call *c)
{
    return tni_dtype_size(tni_compute_dtype(c->in[0].dtype)) == 8;
}

// Passes of merging for a line of n elements.
static int merge_passes(int64_t n)
{
    int k = 0;
    for (int64_t run = BLOCK; run < n; run *= 2) k++;
    return k;
}

static int64_t length_of(const tni_call *c)
{
    return c->out.rank ? c->out.size[c->attr->axis.axis] : 1;
}

// A pair for each element of all lines.
static int64_t sort_list_bytes(const tni_call *c)
{
    return tni_shape_count(c->out.rank, c->out.size) * (is_wide(c) ? 2 * PAIR : PAIR);
}

// No list if blocks are the whole lines, one for a single pass. For more passes two, of which
// narrow pairs, as long as the indices of the result, use the result's own memory for one.
size_t tni_groups_argsort_scratch(const tni_call *c)
{
    int own = merge_passes(length_of(c));
    if (own > 1) own = is_wide(c) ? 2 : 1;
    return (size_t)(own * sort_list_bytes(c));
}

// Lines of up to 1024 elements get the smallest power of two that holds them, at least 8, which an
// item sorts alone.
static sort_params plan_sort(const tni_call *c, const tni_axes *lines)
{
    int         axis = c->attr->axis.axis;
    sort_params o    = { .n          = length_of(c),
                         .lines      = tni_axes_count(lines),
                         .x_step     = c->out.rank ? c->in[0].stride[axis] : 0,
                         .y_step     = c->out.rank ? c->out.stride[axis] : 0,
                         .run        = BLOCK,
                         .shift      = 3,
                         .descending = c->attr->axis.descending,
                         .values     = c->nmore && c->more[0].data };
    o.blocks         = tni_ceil_div(o.n, BLOCK);
    while (o.shift < SHIFT && INT64_C(1) << o.shift < o.n) o.shift++;
    return o;
}

// Chooses the lists so that the last pass reads scratch, and may overwrite the result.
static lists lists_of(const tni_call *c, int merges)
{
    const char *scratch = c->scratch,
               *other   = is_wide(c) ? scratch + sort_list_bytes(c) : c->out.data;
    return (lists){ .from = merges % 2 ? other : scratch,
                    .to   = merges % 2 ? scratch : other,
                    .pair = is_wide(c) ? 2 * PAIR : PAIR };
}

static void add_sort_list(tni_kernel_args *h, const lists *l, const char *list)
{
    tni_kernel_args_add_long(h, tni_kernel_args_add_buffer(h, list) / l->pair);
}

static tn_status begin_sort_kernel(tni_kernel_args *h, const tni_call *c, const char *name)
{
    return tni_kernel_args_begin(h, c, tni_text_sort, name, c->in[0].dtype, TN_I64);
}

// Passes the rest of the arguments: where pairs go, or indices and elements in the last launch, and
// the parameters.
static tn_status launch_sort(tni_kernel_args *h, const tni_call *c, const tni_axes *lines,
                             const sort_params *o, const lists *l)
{
    int64_t per = (INT64_C(1) << SHIFT) >> o->shift;
    tni_kernel_args_add_operand(h, lines, 0, c->in[0].data, c->in[0].dtype);
    add_sort_list(h, l, o->is_last ? (const char *)c->out.data : l->to);
    tni_kernel_args_add_operand(h, lines, 1, c->out.data, TN_I64);
    tni_kernel_args_add_operand(h, lines, 1, o->values ? c->more[0].data : c->out.data,
                                c->in[0].dtype);
    tni_kernel_args_add(h, o, sizeof *o);
    return tni_kernel_args_launch(h, tni_ceil_div(o->lines, per) * o->blocks, ITEMS, c->why);
}

static tn_status sort_line_blocks(const tni_call *c, const tni_axes *lines, const sort_params *o,
                                  const lists *l)
{
    tni_kernel_args h;
    tn_status       s = begin_sort_kernel(&h, c, "sort_blocks");
    if (s != TN_OK) return s;
    return launch_sort(&h, c, lines, o, l);
}

// One pass of merging, from one list to the other or to the result.
static tn_status merge_sort_runs(const tni_call *c, const tni_axes *lines, const sort_params *o,
                                 const lists *l)
{
    tni_kernel_args h;
    tn_status       s = begin_sort_kernel(&h, c, "sort_merge");
    if (s != TN_OK) return s;
    add_sort_list(&h, l, l->from);
    return launch_sort(&h, c, lines, o, l);
}

// Narrow pairs have 32 bits for the position.
tn_status tni_groups_argsort(const tni_call *c)
{
    tni_axes    lines = tni_axes_lines(c);
    sort_params o     = plan_sort(c, &lines);
    int         left  = merge_passes(o.n);
    lists       l     = lists_of(c, left);
    if (!is_wide(c) && o.n >= UINT32_MAX) {
        *c->why = (tni_text){ 0 };
        tni_text_add(c->why, "argsort: %lld elements in a line are too many", (long long)o.n);
        return TN_EDEVICE;
    }
    o.is_last   = left == 0;
    tn_status s = sort_line_blocks(c, &lines, &o, &l);
    for (; s == TN_OK && left > 0; o.run *= 2) {
        const char *written = l.to;
        l.to                = l.from;
        l.from              = written;
        o.is_last           = --left == 0;
        s                   = merge_sort_runs(c, &lines, &o, &l);
    }
    return s;
}
