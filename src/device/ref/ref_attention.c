// Attention and its gradient, query by query: all weights of one query, then their products. The
// definition, without blocks and without reuse of stored sums:
//
//     score_j = scale sum_d(q_d k_jd) + mask_j       w = softmax(score)      y_e = sum_j(w_j v_je)
//
// B batches, H heads, T queries, S keys and values, D their size, E that of a value
#include "ref.h"

#include "device/attention.h"

#include <math.h>

// One query, i, of head h of batch b.
typedef struct {
    const tni_attention *a;
    int64_t              b, h, i;
    double              *w;   // S weights
    double              *dw;  // and their gradients
} query;

// Returns element (row, d) of x, which is (B, T or S, H, D or E), for the query's batch and head.
static double element_at(const query *c, const tni_arg *x, int64_t row, int64_t d)
{
    return tni_cells(x)[tni_ref_offset(x, (int64_t[]){ c->b, row, c->h, d })].f;
}

// Returns the score of key j: -inf if the query does not see it.
static double query_score(const query *c, int64_t j)
{
    const tni_attention *a = c->a;
    double               s = 0;
    if (a->causal && j > c->i) return -INFINITY;
    for (int64_t d = 0; d < a->D; d++)
        s += element_at(c, a->q, c->i, d) * element_at(c, a->k, j, d);
    s *= a->scale;
    if (!a->mask) return s;
    tni_cell m = tni_cells(a->mask)[tni_ref_offset(a->mask, (int64_t[]){ c->b, c->h, c->i, j })];
    if (a->mask->dtype == TN_BOOL) return m.i ? s : -INFINITY;
    return s + m.f;
}

// Computes the weights: the softmax of the scores, or zeros if all of them are -inf. Returns the
// logarithm of the sum of e^score.
static double softmax_query(const query *c)
{
    int64_t S    = c->a->S;
    double  most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < S; j++) {
        c->w[j] = query_score(c, j);
        if (c->w[j] > most || isnan(c->w[j])) most = c->w[j];
    }
    if (most == -INFINITY) most = 0;
    for (int64_t j = 0; j < S; j++) sum += c->w[j] = exp(c->w[j] - most);
    for (int64_t j = 0; j < S && sum != 0; j++) c->w[j] /= sum;
    return most + log(sum);
}

// Writes the result of the query: the weighted sum of the values.
static void attend_query(const query *c, tni_cell *y)
{
    for (int64_t e = 0; e < c->a->E; e++) {
        double sum = 0;
        for (int64_t j = 0; j < c->a->S; j++) sum += c->w[j] * element_at(c, c->a->v, j, e);
        y[e].f = sum;
    }
}

// Writes the gradient of the query, and adds its part to the gradients of keys and values, which
// begin at dk and dv; NULL: not wanted. With d_j = sum_e(g_e v_je), the gradient of the score is
// w_j (d_j - sum(w d)).
static void add_query_grads(const query *c, tni_cell *dq, tni_cell *dk, tni_cell *dv)
{
    const tni_attention *a     = c->a;
    double               delta = 0;
    for (int64_t j = 0; j < a->S; j++) {
        c->dw[j] = 0;
        for (int64_t e = 0; e < a->E; e++)
            c->dw[j] += element_at(c, a->g, c->i, e) * element_at(c, a->v, j, e);
        delta += c->w[j] * c->dw[j];
    }
    for (int64_t j = 0; j < a->S; j++) {
        double ds = c->w[j] * (c->dw[j] - delta) * a->scale;
        for (int64_t d = 0; d < a->D; d++) {
            dq[d].f += ds * element_at(c, a->k, j, d);
            if (dk) dk[j * a->H * a->D + d].f += ds * element_at(c, a->q, c->i, d);
        }
        for (int64_t e = 0; dv && e < a->E; e++)
            dv[j * a->H * a->E + e].f += c->w[j] * element_at(c, a->g, c->i, e);
    }
}

// Weights and their gradients of one query.
size_t tni_ref_attention_scratch(const tni_call *call)
{
    return 2 * (size_t)call->in[1].size[1] * sizeof(double);
}

// Returns an output from element `at` on; NULL if it is not wanted.
static tni_cell *output_at(const tni_call *call, int k, int64_t at)
{
    const tni_arg *x = tni_call_output(call, k);
    return x->data ? tni_cells(x) + at : NULL;
}

// Clears the gradients, which are summed over queries.
static void clear_outputs(const tni_call *call)
{
    for (int k = 0; k <= call->nmore; k++) {
        const tni_arg *x = tni_call_output(call, k);
        if (x->data) memset(x->data, 0, (size_t)tni_shape_count(4, x->size) * sizeof(tni_cell));
    }
}

// Serves attention and attention_grad. The gradient computes its weights again from queries and
// keys, instead of using the stored log-sums: other devices' log-sums are judged, too.
tn_status tni_ref_attention(const tni_call *call)
{
    tni_attention a    = tni_attention_of(call);
    int64_t       n[3] = { a.B, a.H, a.T };
    if (a.g) clear_outputs(call);
    for (tni_ref_walk p = tni_ref_walk_over(3, n); p.left; tni_ref_walk_next(&p)) {
        query   c   = { &a, p.at[0], p.at[1], p.at[2], call->scratch, NULL };
        int64_t row = (c.b * a.T + c.i) * a.H + c.h, first = c.b * a.S * a.H + c.h;
        c.dw       = c.w + a.S;
        double sum = softmax_query(&c);
        if (a.g) {
            add_query_grads(&c, output_at(call, 0, row * a.D), output_at(call, 1, first * a.D),
                            output_at(call, 2, first * a.E));
        } else {
            attend_query(&c, output_at(call, 0, row * a.E));
            tni_cell *to = output_at(call, 1, (c.b * a.H + c.h) * a.T + c.i);
            if (to) to->f = sum;
        }
    }
    return TN_OK;
}
