// Attention and its gradient, query by query: all weights of one, then what they make.
//
// B batches, H heads, T queries, S keys and values, D their size, E that of a value
#include "ref.h"

#include "device/attention.h"

#include <math.h>

// One query of one head: its own place and those of the first key, value and gradient row.
typedef struct {
    const tni_attention *a;
    int64_t              b, h, i;
    double              *w;   // S weights
    double              *dw;  // and their gradients
} query;

// Element (row, d) of x, which is (B, T or S, H, D or E), for the query's batch and head.
static double at(const query *c, const tni_arg *x, int64_t row, int64_t d)
{
    return tni_cells(x)[tni_ref_place(x, (int64_t[]){ c->b, row, c->h, d })].f;
}

static double score(const query *c, int64_t j)
{
    const tni_attention *a = c->a;
    double               s = 0;
    if (a->causal && j > c->i) return -INFINITY;
    for (int64_t d = 0; d < a->D; d++) s += at(c, a->q, c->i, d) * at(c, a->k, j, d);
    s *= a->scale;
    if (!a->mask) return s;
    tni_cell m = tni_cells(a->mask)[tni_ref_place(a->mask, (int64_t[]){ c->b, c->h, c->i, j })];
    if (a->mask->dtype == TN_BOOL) return m.i ? s : -INFINITY;
    return s + m.f;
}

// The softmax of the scores, zeros where all of them are -inf; the logarithm of their sum is returned.
static double weigh(const query *c)
{
    int64_t S    = c->a->S;
    double  most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < S; j++) {
        c->w[j] = score(c, j);
        if (c->w[j] > most || isnan(c->w[j])) most = c->w[j];
    }
    if (most == -INFINITY) most = 0;
    for (int64_t j = 0; j < S; j++) sum += c->w[j] = exp(c->w[j] - most);
    for (int64_t j = 0; j < S && sum != 0; j++) c->w[j] /= sum;
    return most + log(sum);
}

static void forward(const query *c, tni_cell *y)
{
    for (int64_t e = 0; e < c->a->E; e++) {
        double sum = 0;
        for (int64_t j = 0; j < c->a->S; j++) sum += c->w[j] * at(c, c->a->v, j, e);
        y[e].f = sum;
    }
}

// Adds what this query has to do with each key and value, whose gradients begin at dk and dv; NULL: not
// wanted.
static void backward(const query *c, tni_cell *dq, tni_cell *dk, tni_cell *dv)
{
    const tni_attention *a     = c->a;
    double               delta = 0;
    for (int64_t j = 0; j < a->S; j++) {
        c->dw[j] = 0;
        for (int64_t e = 0; e < a->E; e++) c->dw[j] += at(c, a->g, c->i, e) * at(c, a->v, j, e);
        delta += c->w[j] * c->dw[j];
    }
    for (int64_t j = 0; j < a->S; j++) {
        double ds = c->w[j] * (c->dw[j] - delta) * a->scale;
        for (int64_t d = 0; d < a->D; d++) {
            dq[d].f += ds * at(c, a->k, j, d);
            if (dk) dk[j * a->H * a->D + d].f += ds * at(c, a->q, c->i, d);
        }
        for (int64_t e = 0; dv && e < a->E; e++)
            dv[j * a->H * a->E + e].f += c->w[j] * at(c, a->g, c->i, e);
    }
}

size_t tni_ref_attention_scratch(const tni_call *call)
{
    return 2 * (size_t)call->in[1].size[1] * sizeof(double);
}

// An output from an element on; NULL where nobody wants it.
static tni_cell *output_at(const tni_call *call, int k, int64_t at)
{
    const tni_arg *x = tni_call_output(call, k);
    return x->data ? tni_cells(x) + at : NULL;
}

static void clear(const tni_call *call)
{
    for (int k = 0; k <= call->nmore; k++) {
        const tni_arg *x = tni_call_output(call, k);
        if (x->data) memset(x->data, 0, (size_t)tni_shape_count(4, x->size) * sizeof(tni_cell));
    }
}

// The gradient computes its weights from queries and keys again: it is what other ways are held to.
tn_status tni_ref_attention(const tni_call *call)
{
    tni_attention a    = tni_attention_of(call);
    int64_t       n[3] = { a.B, a.H, a.T };
    if (a.g) clear(call);
    for (tni_ref_walk p = tni_ref_walk_over(3, n); p.left; tni_ref_walk_next(&p)) {
        query   c   = { &a, p.at[0], p.at[1], p.at[2], call->scratch, NULL };
        int64_t row = (c.b * a.T + c.i) * a.H + c.h, first = c.b * a.S * a.H + c.h;
        c.dw       = c.w + a.S;
        double sum = weigh(&c);
        if (a.g) {
            backward(&c, output_at(call, 0, row * a.D), output_at(call, 1, first * a.D),
                     output_at(call, 2, first * a.E));
        } else {
            forward(&c, output_at(call, 0, row * a.E));
            tni_cell *to = output_at(call, 1, (c.b * a.H + c.h) * a.T + c.i);
            if (to) to->f = sum;
        }
    }
    return TN_OK;
}
