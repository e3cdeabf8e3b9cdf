// argsort by the kernels of group_text_fold.c: blocks of 32, then runs of twice the length each
// time, to and fro between the result and scratch memory, so that the last one ends in the result.
#include "device/simt/groups.h"

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

size_t tni_groups_argsort_scratch(const tni_call *c)
{
    bool one = merges(c->out.rank ? c->out.size[c->attr->axis.axis] : 1) == 0;
    return one ? 0 : (size_t)tni_shape_count(c->out.rank, c->out.size) * sizeof(int64_t);
}

// The lines that are sorted: argument 0 is x, 1 the result, row-major as scratch is.
static tni_axes lines_of(const tni_call *c)
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

static tn_status begin(tni_hand *h, const tni_groups *via, const tni_call *c, const char *name,
                       const tni_axes *lines)
{
    const tni_arg *x = &c->in[0];
    tn_status      s = tni_hand_begin(h, via, c, tni_text_sort, name, x->dtype, TN_I64);
    if (s == TN_OK) tni_hand_arg(h, lines, 0, x->data, x->dtype);
    return s;
}

static tn_status sort_blocks(const tni_groups *via, const tni_call *c, const tni_axes *lines,
                             const sorting *o, const void *to)
{
    tni_hand  h;
    tn_status s = begin(&h, via, c, "sort_blocks", lines);
    if (s != TN_OK) return s;
    tni_hand_arg(&h, lines, 1, to, TN_I64);
    tni_hand_pass(&h, o, sizeof *o);
    return tni_hand_items(&h, o->count, c->why);
}

static tn_status merge_runs(const tni_groups *via, const tni_call *c, const tni_axes *lines,
                            const sorting *o, const void *from, const void *to)
{
    tni_hand  h;
    tn_status s = begin(&h, via, c, "sort_merge", lines);
    if (s != TN_OK) return s;
    tni_hand_long(&h, tni_hand_buffer(&h, from) / 8);
    tni_hand_long(&h, tni_hand_buffer(&h, to) / 8);
    tni_hand_axes(&h, lines, 1, 0);
    tni_hand_pass(&h, o, sizeof *o);
    return tni_hand_items(&h, o->count, c->why);
}

tn_status tni_groups_argsort(const tni_groups *via, const tni_call *c)
{
    int         axis  = c->attr->axis.axis;
    bool        lined = c->out.rank > 0;
    tni_axes    lines = lines_of(c);
    sorting     o     = { .n          = lined ? c->out.size[axis] : 1,
                          .count      = tni_shape_count(c->out.rank, c->out.size),
                          .x_step     = lined ? c->in[0].stride[axis] : 0,
                          .step       = lined ? c->out.stride[axis] : 0,
                          .run        = BLOCK,
                          .descending = c->attr->axis.descending };
    const void *to = merges(o.n) % 2 ? c->scratch : c->out.data, *from = to;
    tn_status   s = sort_blocks(via, c, &lines, &o, to);
    for (; s == TN_OK && o.run < o.n; o.run *= 2) {
        from = to;
        to   = from == c->scratch ? (const void *)c->out.data : c->scratch;
        s    = merge_runs(via, c, &lines, &o, from, to);
    }
    return s;
}
