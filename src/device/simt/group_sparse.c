// Products with sparse matrices by the kernels of group_text_sparse.c.
//
// They are used on every GPU, without a library: for f32 and bf16, one column to 1,024, and one
// element in 2,000 to one in ten they took 0.2 to 0.9 of cuSPARSE's time on an H200. A row of the
// result belongs to one warp in all of them, which needs neither a second pass nor scratch memory,
// and makes the sums those of any other run.
#include "device/simt/groups.h"

#include "tensor/dtype.h"

// The kernels' parameters, `sparse_params` of the text. Places are in elements from the start of a
// buffer.
typedef struct {
    int64_t values, x, y, offsets, columns, order, lines;
    int32_t n, lanes;
} sparse_params;

_Static_assert(sizeof(sparse_params) == 7 * 8 + 2 * 4,
               "no padding: the text declares the same fields");

// Up to NARROW columns a row's items share its elements; else each has columns of its own, COLUMNS
// for all of them.
enum { NARROW = 16, COLUMNS = 128, ROWS = 4, ITEMS = 128, SHORT = 32 };

static int64_t add_operand(tni_kernel_args *h, const tni_arg *x)
{
    return tni_kernel_args_add_buffer(h, x->data) / (int64_t)tni_dtype_size(x->dtype);
}

// Passes the buffers in the order of both kernels' parameters, then s, whose places in the pattern
// count from its own start.
static void add_sparse_args(tni_kernel_args *h, const tni_call *c, sparse_params *s)
{
    s->values  = add_operand(h, &c->in[0]);
    s->x       = add_operand(h, &c->in[1]);
    int64_t at = add_operand(h, &c->in[2]);
    s->y       = add_operand(h, &c->out);
    s->offsets += at;
    s->columns += at;
    if (s->order >= 0) s->order += at;
    tni_kernel_args_add(h, s, sizeof *s);
}

// Begins a launch over the dtype of the operands.
static tn_status begin_sparse(tni_kernel_args *h, const tni_call *c, const char *name)
{
    return tni_kernel_args_begin(h, c, tni_text_sparse, name, c->out.dtype, c->out.dtype);
}

// The transposed matrix has an order of its own, by which the values are read: its rows are added
// up like those of any other, without atomic additions.
tn_status tni_groups_spmm(const tni_call *c)
{
    const struct tni_attr_sparse *a = &c->attr->sparse;
    tni_pattern                   t = tni_pattern_of(a->rows, a->cols, c->in[0].size[0]);
    int64_t                       n = c->out.size[1];
    sparse_params                 s = { .offsets = a->transposed ? t.t_offsets : t.offsets,
                                        .columns = a->transposed ? t.t_columns : t.columns,
                                        .order   = a->transposed ? t.order : -1,
                                        .lines   = c->out.size[0],
                                        .n       = (int32_t)n,
                                        .lanes   = 1 };
    tni_kernel_args               h;
    tn_status status = begin_sparse(&h, c, n <= NARROW ? "spmm_narrow" : "spmm");
    if (status != TN_OK) return status;
    while (s.lanes < n && s.lanes < NARROW) s.lanes *= 2;
    add_sparse_args(&h, c, &s);
    int64_t groups = tni_ceil_div(s.lines, ROWS) * (n <= NARROW ? 1 : tni_ceil_div(n, COLUMNS));
    return tni_kernel_args_launch(&h, groups, ITEMS, c->why);
}

// Sixteen items for each element: its two rows are read side by side, and their sums added up in a
// fixed order. Of short rows four items are enough: with sixteen most would wait for one product
// (16 columns, 7 million elements on an H200: 0.86 ms).
tn_status tni_groups_sddmm(const tni_call *c)
{
    const struct tni_attr_sparse *a = &c->attr->sparse;
    tni_pattern                   t = tni_pattern_of(a->rows, a->cols, c->out.size[0]);
    sparse_params                 s = { .columns = t.columns,
                                        .order   = t.rows,
                                        .lines   = c->out.size[0],
                                        .n       = (int32_t)c->in[0].size[1],
                                        .lanes   = c->in[0].size[1] <= SHORT ? 4 : 16 };
    tni_kernel_args               h;
    tn_status                     status = begin_sparse(&h, c, "sddmm");
    if (status != TN_OK) return status;
    add_sparse_args(&h, c, &s);
    return tni_kernel_args_launch(&h, tni_ceil_div(s.lines, ITEMS / s.lanes), ITEMS, c->why);
}
