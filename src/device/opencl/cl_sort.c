// argsort by the kernels of cl_text.c: blocks of 32, then runs of twice the length each time, to
// and fro between the result and scratch memory, so that the last one ends in the result.
#include "device/opencl/opencl.h"

#include "tensor/dtype.h"

enum { BLOCK = 32 };

// `sorting` of the text.
typedef struct {
    int64_t n, count, x_step, step, run;
    int32_t descending, unused;
} sorting;

static int merges(int64_t n)
{
    int k = 0;
    for (int64_t run = BLOCK; run < n; run *= 2) k++;
    return k;
}

size_t tni_cl_argsort_scratch(const tni_call *c)
{
    bool one = merges(c->out.rank ? c->out.size[c->attr->axis.axis] : 1) == 0;
    return one ? 0 : (size_t)tni_shape_count(c->out.rank, c->out.size) * sizeof(int64_t);
}

// The lines that are sorted: argument 0 is x, 1 the result, row-major as scratch is.
static tni_cl_axes lines_of(const tni_call *c)
{
    tni_cl_axes lines = { .rank = c->out.rank };
    for (int i = 0; i < c->out.rank; i++) {
        lines.size[i]      = i == c->attr->axis.axis ? 1 : c->out.size[i];
        lines.stride[0][i] = c->in[0].stride[i];
        lines.stride[1][i] = c->out.stride[i];
    }
    tni_cl_merge(&lines, 2);
    return lines;
}

static tn_status take_kernel(const tni_call *c, const char *name, const tni_cl_axes *lines,
                             tni_cl_launch *l)
{
    const tni_arg *x = &c->in[0];
    tn_status      s = tni_cl_kernel_of(tni_cl_text_sort, name, x->dtype, TN_I64, l, c->why);
    if (s != TN_OK) return s;
    tni_cl_shape shape = tni_cl_shape_of(lines, 0, tni_cl_pass_buffer(l, x->data), x->dtype);
    tni_cl_pass(l, &shape, sizeof shape);
    return TN_OK;
}

static tn_status sort_blocks(const tni_call *c, const tni_cl_axes *lines, const sorting *o,
                             const void *to)
{
    tni_cl_launch l;
    tn_status     s = take_kernel(c, "sort_blocks", lines, &l);
    if (s != TN_OK) return s;
    tni_cl_shape line = tni_cl_shape_of(lines, 1, tni_cl_pass_buffer(&l, to), TN_I64);
    tni_cl_pass(&l, &line, sizeof line);
    tni_cl_pass(&l, o, sizeof *o);
    return tni_cl_start_items(&l, "argsort", o->count, c->why);
}

static tn_status merge_runs(const tni_call *c, const tni_cl_axes *lines, const sorting *o,
                            const void *from, const void *to)
{
    tni_cl_launch l;
    tn_status     s = take_kernel(c, "sort_merge", lines, &l);
    if (s != TN_OK) return s;
    tni_cl_pass_long(&l, tni_cl_pass_buffer(&l, from) / 8);
    tni_cl_pass_long(&l, tni_cl_pass_buffer(&l, to) / 8);
    tni_cl_shape line = tni_cl_shape_of(lines, 1, 0, TN_I64);
    tni_cl_pass(&l, &line, sizeof line);
    tni_cl_pass(&l, o, sizeof *o);
    return tni_cl_start_items(&l, "argsort", o->count, c->why);
}

tn_status tni_cl_argsort(const tni_call *c)
{
    int         axis  = c->attr->axis.axis;
    bool        lined = c->out.rank > 0;
    tni_cl_axes lines = lines_of(c);
    sorting     o     = { .n          = lined ? c->out.size[axis] : 1,
                          .count      = tni_shape_count(c->out.rank, c->out.size),
                          .x_step     = lined ? c->in[0].stride[axis] : 0,
                          .step       = lined ? c->out.stride[axis] : 0,
                          .run        = BLOCK,
                          .descending = c->attr->axis.descending };
    const void *to = merges(o.n) % 2 ? c->scratch : c->out.data, *from = to;
    tni_cl_lock();
    tn_status s = sort_blocks(c, &lines, &o, to);
    for (; s == TN_OK && o.run < o.n; o.run *= 2) {
        from = to;
        to   = from == c->scratch ? (const void *)c->out.data : c->scratch;
        s    = merge_runs(c, &lines, &o, from, to);
    }
    tni_cl_unlock();
    return s;
}
