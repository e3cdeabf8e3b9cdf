// Attention and its gradient, query by query: all weights of one query, then their products. The
// definition, without blocks and without reuse of stored sums:
//
//     score_j = scale sum_d(q_d k_jd) + mask_j   w = softmax(score)   y_e = sum_j(kept_j w_j v_je)
//
// B batches, H heads, T queries, S keys and values, D their size, E that of a value
#include "ref.h"

#include "device/attention.h"
#include "kernel/prelude.h"

#include <math.h>

// One query, i, of head h of batch b, and the keys it sees.
typedef struct {
    const tni_attention *a;
    int64_t              b, h, i;
    tni_key_range        keys;
    double              *w;   // S weights
    double              *dw;  // and their gradients
} query;

// Returns element (row, d) of a head of x, which is (B, T or S, heads, D or E), of the query's
// batch.
static double element_at(const query *c, const tni_arg *x, int64_t head, int64_t row, int64_t d)
{
    return tni_cells(x)[tni_ref_offset(x, (int64_t[]){ c->b, row, head, d })].f;
}

// Returns the head of keys and values that the query reads.
static int64_t key_head(const query *c)
{
    return c->h / (c->a->H / c->a->Hk);
}

// Returns the place of the query's value for key j in what is read beside the scores.
static int64_t place_of(const query *c, const int64_t *stride, int64_t j)
{
    return c->b * stride[0] + c->h * stride[1] + c->i * stride[2] + j * stride[3];
}

// Returns the score of key j, scaled.
static double raw_score(const query *c, int64_t j)
{
    double s = 0;
    for (int64_t d = 0; d < c->a->D; d++)
        s += element_at(c, c->a->q, c->h, c->i, d) * element_at(c, c->a->k, key_head(c), j, d);
    return s * c->a->scale;
}

// Returns a value of the score program that is no map.
static tni_cell input_value(const query *c, const tni_score_op *x, double raw, int64_t j)
{
    const tni_attention_extra *e = &c->a->extra[x->source];
    int64_t                    n = place_of(c, x->step, j);
    if (x->op == TNI_matmul) return (tni_cell){ .f = raw };
    if (x->op == TNI_leaf) return tni_cells(e->arg)[place_of(c, e->stride, j)];
    bool real = tni_is_float((tn_dtype)x->dtype);
    if (real) return (tni_cell){ .f = x->f + (x->op == TNI_iota ? x->df * (double)n : 0) };
    return (tni_cell){ .i = x->i + (x->op == TNI_iota ? x->di * n : 0) };
}

// Computes one map of the score program, in double or in 64 bits, as ref computes ops.
static tni_cell map_value(const tni_score_op *op, const tni_score_op *x, const tni_cell *v)
{
    int      n    = tni_score_operands(x->op);
    tn_dtype from = (tn_dtype)op[x->src[n - 1]].dtype, to = (tn_dtype)x->dtype;
    int      bits = 8 * (int)tni_dtype_size(tni_compute_dtype(from));
    double   f[3] = { 0 };
    int64_t  i[3] = { 0 };
    if (x->op == TNI_cast) return tni_ref_convert(to, from, v[x->src[0]]);
    for (int k = 0; k < n; k++) {
        tni_cell a = v[x->src[k]];
        f[k]       = tni_is_float((tn_dtype)op[x->src[k]].dtype) ? a.f : (double)a.i;
        i[k]       = a.i;
    }
    if (!tni_is_float(from))
        return (tni_cell){ .i = tni_ref_wrap(to, tni_map_i(x->op, i[0], i[1], i[2], bits)) };
    double y = tni_map_f(x->op, f[0], f[1], f[2]);
    return tni_is_float(to) ? (tni_cell){ .f = y } : (tni_cell){ .i = y != 0 };
}

// Runs the first `count` instructions of the score program for key j.
static void run_program(const query *c, double raw, int64_t j, int count, tni_cell *v)
{
    const tni_score_op *op = c->a->score->op;
    for (int k = 0; k < count; k++)
        v[k] = tni_score_operands(op[k].op) ? map_value(op, &op[k], v)
                                            : input_value(c, &op[k], raw, j);
}

// Returns the score of key j: -inf if the query does not see it.
static double query_score(const query *c, int64_t j)
{
    tni_attention_extra mask = tni_attention_mask(c->a);
    if (j < c->keys.first || j >= c->keys.end) return -INFINITY;
    double s = raw_score(c, j);
    if (c->a->score) {
        tni_cell v[TNI_SCORE_OPS];
        run_program(c, s, j, c->a->score->count, v);
        return v[c->a->score->count - 1].f;
    }
    if (!mask.arg) return s;
    tni_cell m = tni_cells(mask.arg)[place_of(c, mask.stride, j)];
    if (mask.arg->dtype == TN_BOOL) return m.i ? s : -INFINITY;
    return s + m.f;
}

// Returns what the weight of key j is multiplied by after the softmax.
static double kept(const query *c, int64_t j)
{
    const tni_attention *a  = c->a;
    uint64_t             at = (uint64_t)(((c->b * a->H + c->h) * a->T + c->i) * a->S + j);
    if (!a->drops) return 1;
    bool in = m_rand_uniform_f(a->key, a->counter, at) >= (float)a->dropout;
    return in ? 1 / (1 - a->dropout) : 0;
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

// Writes the result of the query: the weighted sum of the values. What it does not see is not read:
// the rest of a cache of keys may hold anything.
static void attend_query(const query *c, tni_cell *y)
{
    int64_t head = key_head(c);
    for (int64_t e = 0; e < c->a->E; e++) {
        double sum = 0;
        for (int64_t j = c->keys.first; j < c->keys.end; j++)
            sum += c->w[j] * kept(c, j) * element_at(c, c->a->v, head, j, e);
        y[e].f = sum;
    }
}

// Turns d_j = kept_j sum_e(g_e v_je), the gradients of the weights, into those of the scores:
// w_j (d_j - sum(w d)).
static void score_grads(const query *c)
{
    const tni_attention *a     = c->a;
    double               delta = 0;
    for (int64_t j = c->keys.first; j < c->keys.end; j++) {
        c->dw[j] = 0;
        for (int64_t e = 0; e < a->E; e++)
            c->dw[j] += element_at(c, a->g, c->h, c->i, e) * element_at(c, a->v, key_head(c), j, e);
        c->dw[j] *= kept(c, j);
        delta += c->w[j] * c->dw[j];
    }
    for (int64_t j = c->keys.first; j < c->keys.end; j++) c->dw[j] = c->w[j] * (c->dw[j] - delta);
}

// Adds the gradients of the query's scores to those of what was read beside them, and turns them
// into those of the products of query and keys. A mask is added to the score; a score program has
// slopes.
static void add_extra_grads(const query *c)
{
    const tni_score *s = c->a->score;
    tni_cell         v[TNI_SCORE_OPS];
    for (int64_t j = c->keys.first; j < c->keys.end; j++) {
        if (s) run_program(c, raw_score(c, j), j, s->all, v);
        for (int x = 0; x < c->a->extras; x++) {
            const tni_attention_extra *m = &c->a->extra[x];
            if (!m->grad || !m->grad->data || c->w[j] == 0) continue;
            if (s && s->source_slope[x] < 0) continue;
            double slope = s ? v[s->source_slope[x]].f : 1;
            tni_cells(m->grad)[place_of(c, m->grad_stride, j)].f += c->dw[j] * slope;
        }
        if (s) c->dw[j] = c->w[j] == 0 ? 0 : c->dw[j] * v[s->slope].f;
    }
}

// Writes the gradient of the query, and adds its part to the gradients of keys and values, which
// begin at dk and dv; NULL: not wanted.
static void add_query_grads(const query *c, tni_cell *dq, tni_cell *dk, tni_cell *dv)
{
    const tni_attention *a    = c->a;
    int64_t              head = key_head(c);
    score_grads(c);
    add_extra_grads(c);
    for (int64_t j = c->keys.first; j < c->keys.end; j++) {
        double ds = c->dw[j] * a->scale;
        for (int64_t d = 0; d < a->D; d++) {
            dq[d].f += ds * element_at(c, a->k, head, j, d);
            if (dk) dk[j * a->Hk * a->D + d].f += ds * element_at(c, a->q, c->h, c->i, d);
        }
        for (int64_t e = 0; dv && e < a->E; e++)
            dv[j * a->Hk * a->E + e].f += c->w[j] * kept(c, j) * element_at(c, a->g, c->h, c->i, e);
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

// Returns how many keys batch b has.
static int64_t length_of(const tni_attention *a, int64_t b)
{
    if (!a->lengths) return a->S;
    int64_t n = tni_cells(a->lengths)[b * a->lengths->stride[0]].i;
    return n < 0 ? 0 : n > a->S ? a->S : n;
}

// Serves attention and attention_grad. The gradient computes its weights again from queries and
// keys, instead of using the stored log-sums: other devices' log-sums are judged, too.
tn_status tni_ref_attention(const tni_call *call)
{
    tni_attention a    = tni_attention_of(call);
    int64_t       n[3] = { a.B, a.H, a.T };
    if (a.g) clear_outputs(call);
    for (tni_ref_walk p = tni_ref_walk_over(3, n); p.left; tni_ref_walk_next(&p)) {
        query   c   = { .a = &a, .b = p.at[0], .h = p.at[1], .i = p.at[2], .w = call->scratch };
        int64_t row = (c.b * a.T + c.i) * a.H + c.h, first = c.b * a.S * a.Hk + key_head(&c);
        c.keys     = tni_attention_keys(&a, length_of(&a, c.b), c.i);
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
