// The arguments of a call of attention or attention_grad by name, for the devices that have these
// ops; and, of query i of head h of batch b and key j, what every device has to agree about.
//
//     score(j) = scale q_i . k_j + mask_j, or what the score program makes of scale q_i . k_j
//     w = softmax(score)      y_i = sum_j(kept(j) w_j v_j)
//
// kept(j) is 1 or, with dropout p, 1 / (1 - p) if m_rand_uniform_f(key, counter, n) >= (float)p and
// else 0, where n = ((b H + h) T + i) S + j: what tn_dropout does to the (B, H, T, S) weights.
//
// B batches, H heads, T queries, S keys and values, D the size of a query and of a key, E that of a
// value. Hk heads of keys and values: query head h reads head h / (H / Hk) of them.
#ifndef TNI_DEVICE_ATTENTION_H
#define TNI_DEVICE_ATTENTION_H

#include "device/device.h"
#include "ops/score.h"

// What a call reads beside the scores: the mask, or a source of the score program. arg is
// (B, H, T, S), of size 1 along the axes over which it broadcasts, or NULL. grad, of
// attention_grad, is its gradient, summed over those axes and row-major; NULL if it is not wanted.
// The strides are those of (b, h, i, j), 0 along axes of size 1.
typedef struct {
    const tni_arg *arg, *grad;
    int64_t        stride[4], grad_stride[4];
} tni_attention_extra;

// lse, the logarithms of the sums of e^score, (B, H, T), is an output of attention, whose data is
// NULL if it is not wanted, and an input of the gradient; o is the result as the gradient gets it,
// g its gradient; both are NULL for attention. lengths is (B), of i32, with a stride of 0 if one
// serves all, or NULL: see tni_attention_keys. The mask, extra[0] where there is no score program,
// is of bools (true: seen) or of q's dtype (added).
typedef struct {
    const tni_arg      *q, *k, *v, *lengths, *o, *lse, *g;
    int                 extras;
    tni_attention_extra extra[TNI_SCORE_SOURCES];
    int64_t             B, H, Hk, T, S, D, E;
    double              scale;
    bool                causal;
    int64_t             window;  // 0: none
    const tni_score    *score;   // ops/score.h; NULL: none
    bool                drops;   // weights are dropped with probability `dropout`
    double              dropout;
    uint64_t            key, counter;
} tni_attention;

// The strides of an argument over (b, h, i, j).
static inline void tni_attention_strides(const tni_arg *x, int64_t stride[4])
{
    for (int i = 0; i < 4; i++) stride[i] = x->size[i] == 1 ? 0 : x->stride[i];
}

// Returns the arguments of a call. The inputs are q, k, v, extras, lengths and, of the gradient,
// the result, lse and g. Its outputs are the gradients of q (call->out), k and v (call->more[0] and
// [1], without data if not wanted), and of the extras. A planned call has no addresses yet.
static inline tni_attention tni_attention_of(const tni_call *c)
{
    const struct tni_attr_attention *t    = &c->attr->attention;
    bool                             grad = c->op == TNI_attention_grad;
    tni_attention                    a    = { .q       = &c->in[0],
                                              .k       = &c->in[1],
                                              .v       = &c->in[2],
                                              .extras  = t->extras,
                                              .scale   = t->scale,
                                              .causal  = t->causal,
                                              .window  = t->window,
                                              .score   = t->score,
                                              .drops   = t->drops,
                                              .dropout = t->dropout,
                                              .key     = t->key,
                                              .counter = t->counter };
    for (int i = 0; i < t->extras; i++) {
        tni_attention_extra *x = &a.extra[i];
        x->arg                 = &c->in[3 + i];
        tni_attention_strides(x->arg, x->stride);
        if (!grad || c->more[2 + i].rank == 0) continue;
        x->grad = &c->more[2 + i];
        tni_attention_strides(x->grad, x->grad_stride);
    }
    if (t->counted) a.lengths = &c->in[3 + t->extras];
    a.lse = grad ? &c->in[c->nin - 2] : &c->more[0];
    if (grad) a.o = &c->in[c->nin - 3], a.g = &c->in[c->nin - 1];
    a.B = a.q->size[0], a.T = a.q->size[1], a.H = a.q->size[2], a.D = a.q->size[3];
    a.S = a.k->size[1], a.Hk = a.k->size[2], a.E = a.v->size[3];
    return a;
}

// Returns the mask; one without arg if there is none.
static inline tni_attention_extra tni_attention_mask(const tni_attention *a)
{
    return a->score ? (tni_attention_extra){ 0 } : a->extra[0];
}

// Keys that a query sees: first .. end - 1, none if that is empty.
typedef struct {
    int64_t first, end;
} tni_key_range;

// Returns the keys that query i sees by causal, window and length; length is lengths[b] in 0 .. S,
// and not used where there are no lengths. A window of n reaches n - 1 keys to either side. Neither
// end goes down from one query to the next.
static inline tni_key_range tni_attention_keys(const tni_attention *a, int64_t length, int64_t i)
{
    int64_t       place = a->lengths ? length - a->T + i : i;
    tni_key_range r     = { 0, a->lengths ? length : a->S };
    if (a->window && r.first < place - a->window + 1) r.first = place - a->window + 1;
    if (a->window && r.end > place + a->window) r.end = place + a->window;
    if (a->causal && r.end > place + 1) r.end = place + 1;
    if (r.end < 0) r.end = 0;
    if (r.first > r.end) r.first = r.end;
    return r;
}

#endif
