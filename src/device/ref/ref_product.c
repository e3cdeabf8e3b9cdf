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

// Adds one term y += x * w of the convolution, or the same term of the gradient of x or of w: the
// three ops differ in nothing else.
static void add_term(int op, double *x, double *w, double *y)
{
    if (op == TNI_conv) *y += *x * *w;
    else if (op == TNI_conv_dgrad) *x += *y * *w;
    else *w += *y * *x;
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

// Visits all terms: every element of y (image, out channel, place) with every element of its window
// (in channel, tap), except those in the padding.
static void all_terms(int op, const tni_conv_form *f)
{
    const tni_arg *x = &f->arg[0], *w = &f->arg[1], *y = &f->arg[2];
    int64_t        outs = w->size[0] / f->groups;  // out channels of a group
    for (tni_ref_walk p = tni_ref_walk_over(y->rank, y->size); p.left; tni_ref_walk_next(&p)) {
        int64_t o = p.at[1], in_x[TN_MAX_RANK] = { p.at[0] }, in_w[TN_MAX_RANK] = { o };
        for (tni_ref_walk k = tni_ref_walk_over(w->rank - 1, w->size + 1); k.left;
             tni_ref_walk_next(&k)) {
            in_x[1] = o / outs * w->size[1] + k.at[0];
            if (!meeting_place(f, p.at + 2, k.at + 1, in_x + 2)) continue;
            memcpy(in_w + 1, k.at, (size_t)(w->rank - 1) * sizeof *in_w);
            add_term(op, &tni_cells(x)[tni_ref_offset(x, in_x)].f,
                     &tni_cells(w)[tni_ref_offset(w, in_w)].f,
                     &tni_cells(y)[tni_ref_offset(y, p.at)].f);
        }
    }
}

size_t tni_ref_conv_scratch(const tni_call *c)
{
    (void)c;
    return 0;
}

// Serves conv, conv_dgrad and conv_wgrad: clears the result, then adds every term to it.
tn_status tni_ref_conv(const tni_call *c)
{
    tni_conv_form f = tni_conv_form_of(c, c->out.rank - 2);
    memset(c->out.data, 0, (size_t)tni_shape_count(c->out.rank, c->out.size) * sizeof(tni_cell));
    all_terms(c->op, &f);
    return TN_OK;
}
