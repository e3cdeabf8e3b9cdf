// Products: matrices, and convolution with its gradients. Sums of products in double, in the order
// of the loops; integers in uint64, wrapped once at the end, which is the same as wrapping at every
// step. M, N, K sizes of a product: (M, K) @ (K, N).
#include "ref.h"

// Returns the dot product of a row and a column; the steps are strides.
static double float_dot(int64_t K, const tni_cell *a, int64_t step_a, const tni_cell *b,
                        int64_t step_b)
{
    double y = 0;
    for (int64_t k = 0; k < K; k++) y += a[k * step_a].f * b[k * step_b].f;
    return y;
}

static int64_t int_dot(int64_t K, const tni_cell *a, int64_t step_a, const tni_cell *b,
                       int64_t step_b)
{
    uint64_t y = 0;
    for (int64_t k = 0; k < K; k++) y += (uint64_t)a[k * step_a].i * (uint64_t)b[k * step_b].i;
    return (int64_t)y;
}

// Multiplies one matrix of the batch.
static void multiply_matrices(const tni_call *c, const tni_cell *a, const tni_cell *b, tni_cell *y)
{
    int            r  = c->out.rank - 2;  // the axis of rows
    const int64_t *sa = c->in[0].stride + r, *sb = c->in[1].stride + r, *sy = c->out.stride + r;
    int64_t        M = c->out.size[r], N = c->out.size[r + 1], K = c->in[0].size[r + 1];
    tn_dtype       dt = c->out.dtype;
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++) {
            const tni_cell *row = a + i * sa[0], *col = b + j * sb[1];
            tni_cell       *v = y + i * sy[0] + j * sy[1];
            if (tni_is_float(dt)) v->f = float_dot(K, row, sa[1], col, sb[0]);
            else v->i = tni_ref_wrap(dt, int_dot(K, row, sa[1], col, sb[0]));
        }
}

size_t tni_ref_matmul_scratch(const tni_call *c)
{
    (void)c;
    return 0;
}

size_t tni_ref_matmul_i32_scratch(const tni_call *c)
{
    return tni_ref_matmul_scratch(c);
}

tn_status tni_ref_matmul_i32(const tni_call *c)
{
    return tni_ref_matmul(c);
}

// Leading axes are walked one matrix at a time; a broadcast axis has stride 0.
tn_status tni_ref_matmul(const tni_call *c)
{
    const tni_arg *a = &c->in[0], *b = &c->in[1], *y = &c->out;
    for (tni_ref_walk w = tni_ref_walk_over(y->rank - 2, y->size); w.left; tni_ref_walk_next(&w))
        multiply_matrices(c, tni_cells(a) + tni_ref_offset(a, w.at),
                          tni_cells(b) + tni_ref_offset(b, w.at),
                          tni_cells(y) + tni_ref_offset(y, w.at));
    return TN_OK;
}

// ---- convolution -------------------------------------------------------------------------------

// Adds the terms y += x * w of n input channels, or the same terms of the gradient of x or of w:
// the three ops differ in nothing else. The steps are strides.
static void add_terms(int op, int64_t n, tni_cell *x, int64_t step_x, tni_cell *w, int64_t step_w,
                      tni_cell *y)
{
    double gy = y->f;
    if (op == TNI_conv_i32) y->i = tni_ref_wrap(TN_I32, y->i + int_dot(n, x, step_x, w, step_w));
    else if (op == TNI_conv) y->f += float_dot(n, x, step_x, w, step_w);
    else if (op == TNI_conv_dgrad)
        for (int64_t c = 0; c < n; c++) x[c * step_x].f += gy * w[c * step_w].f;
    else
        for (int64_t c = 0; c < n; c++) w[c * step_w].f += gy * x[c * step_x].f;
}

// Sets the place in x where a place of y and a tap meet; returns false if it is in the padding.
static bool meeting_place(const tni_conv_form *f, const int64_t *place, const int64_t *tap,
                          int64_t *at)
{
    bool in = true;
    for (int i = 0; i < f->axes; i++) {
        at[i] = place[i] * f->stride[i] - f->padding[i] + tap[i] * f->dilation[i];
        in &= at[i] >= 0 && at[i] < f->arg[0].size[2 + i];
    }
    return in;
}

// Visits all terms: every image and place of y with every tap; there every output channel with
// every input channel of its group. Where these meet in the padding, x is `fill`.
static void all_terms(int op, const tni_conv_form *f, int64_t fill)
{
    const tni_arg *x = &f->arg[0], *w = &f->arg[1], *y = &f->arg[2];
    int64_t        outs = w->size[0] / f->groups, ins = w->size[1];  // channels of a group
    int64_t        one[TN_MAX_RANK];                                 // y of one channel
    tni_cell       padding = { .i = fill };
    memcpy(one, y->size, (size_t)y->rank * sizeof *one);
    one[1] = 1;
    for (tni_ref_walk p = tni_ref_walk_over(y->rank, one); p.left; tni_ref_walk_next(&p))
        for (tni_ref_walk k = tni_ref_walk_over(f->axes, w->size + 2); k.left;
             tni_ref_walk_next(&k)) {
            int64_t in_x[TN_MAX_RANK] = { p.at[0] }, in_w[TN_MAX_RANK] = { 0 };
            bool    inside = meeting_place(f, p.at + 2, k.at, in_x + 2);
            if (!inside && !fill) continue;
            memcpy(in_w + 2, k.at, (size_t)f->axes * sizeof *in_w);
            int64_t   step = inside ? x->stride[1] : 0;
            tni_cell *at_x = inside ? tni_cells(x) + tni_ref_offset(x, in_x) : &padding,
                     *at_w = tni_cells(w) + tni_ref_offset(w, in_w),
                     *at_y = tni_cells(y) + tni_ref_offset(y, p.at);
            for (int64_t o = 0; o < w->size[0]; o++)
                add_terms(op, ins, at_x + o / outs * ins * step, step, at_w + o * w->stride[0],
                          w->stride[1], at_y + o * y->stride[1]);
        }
}

size_t tni_ref_conv_scratch(const tni_call *c)
{
    (void)c;
    return 0;
}

// Serves conv, its gradients and conv_i32: clears the result, then adds every term to it.
tn_status tni_ref_conv(const tni_call *c)
{
    tni_conv_form f = tni_conv_form_of(c, c->out.rank - 2);
    memset(c->out.data, 0, (size_t)tni_shape_count(c->out.rank, c->out.size) * sizeof(tni_cell));
    all_terms(c->op, &f, c->attr->conv.fill);
    return TN_OK;
}

size_t tni_ref_conv_i32_scratch(const tni_call *c)
{
    return tni_ref_conv_scratch(c);
}

tn_status tni_ref_conv_i32(const tni_call *c)
{
    return tni_ref_conv(c);
}
