// Attention and its gradient by the kernels of group_text_attention.c: one launch, or one for
// queries and one for keys and values, which reads what the first found of each query.
#include "device/attention.h"
#include "device/simt/groups.h"

#include "tensor/dtype.h"

#include <string.h>

// `strides` and `looks` of the text.
typedef struct {
    int64_t at, step[4];
} strides;

typedef struct {
    strides q, k, v, m, g;
    int64_t H, T, S, D, E, to, to_k, to_v;
    int32_t masked, causal;
} looks;

static bool is_double(const tni_call *c)
{
    return c->out.dtype == TN_F64;
}

static void pass_strided(tni_hand *h, const tni_arg *x, strides *s)
{
    s->at = tni_hand_buffer(h, x->data) / (int64_t)tni_dtype_size(x->dtype);
    memcpy(s->step, x->stride, sizeof s->step);
}

static looks looks_of(const tni_attention *a)
{
    looks o = { .H = a->H, .T = a->T, .S = a->S, .D = a->D, .E = a->E, .causal = a->causal };
    if (a->mask) o.masked = a->mask->dtype == TN_BOOL ? 1 : 2;
    return o;
}

static void pass_scale(tni_hand *h, const tni_call *c, double scale)
{
    float one = (float)scale;
    if (is_double(c)) tni_hand_pass(h, &scale, sizeof scale);
    else tni_hand_pass(h, &one, sizeof one);
}

// One kernel: the operands, the result, what is kept of queries, sizes and strides. Without a mask
// another operand stands in its place, which is not read.
static tn_status start(const tni_call *c, const tni_attention *a, const char *name, int64_t groups)
{
    tni_hand       h;
    looks          o    = looks_of(a);
    const tni_arg *mask = a->mask ? a->mask : a->q;
    tn_status      s = tni_hand_begin(&h, c, tni_text_attention, name, c->out.dtype, mask->dtype);
    if (s != TN_OK) return s;
    pass_strided(&h, a->q, &o.q);
    pass_strided(&h, a->k, &o.k);
    pass_strided(&h, a->v, &o.v);
    pass_strided(&h, mask, &o.m);
    if (a->g) pass_strided(&h, a->g, &o.g);
    o.to   = tni_hand_buffer(&h, c->out.data) / (int64_t)tni_dtype_size(c->out.dtype);
    o.to_k = o.to + tni_attention_at_k(a);
    o.to_v = o.to + tni_attention_at_v(a);
    if (a->g) tni_hand_long(&h, tni_hand_buffer(&h, c->scratch) / (is_double(c) ? 8 : 4));
    tni_hand_pass(&h, &o, sizeof o);
    pass_scale(&h, c, a->scale);
    return tni_hand_groups(&h, groups, c->why);
}

// Three numbers for each query.
size_t tni_groups_attention_scratch(const tni_call *c)
{
    tni_attention a = tni_attention_of(c);
    return a.g ? (size_t)(3 * a.B * a.T * a.H) * (is_double(c) ? 8 : 4) : 0;
}

tn_status tni_groups_attention(const tni_call *c)
{
    tni_attention a = tni_attention_of(c);
    tn_status     s = start(c, &a, a.g ? "attention_rows" : "attention", a.B * a.T * a.H);
    if (s == TN_OK && a.g) s = start(c, &a, "attention_keys", a.B * a.S * a.H);
    return s;
}
