// The arguments of a call of attention or attention_grad by name, for the devices that have these
// ops.
#ifndef TNI_DEVICE_ATTENTION_H
#define TNI_DEVICE_ATTENTION_H

#include "device/device.h"

// mask is NULL if there is none, g is NULL for attention. lse, the logarithms of the sums of
// e^score, is an output of attention, whose data is NULL if it is not wanted, and an input of the
// gradient. B batches of H heads, T queries, S keys and values, D the size of a query and of a key,
// E that of a value.
typedef struct {
    const tni_arg *q, *k, *v, *mask, *lse, *g;
    int64_t        B, H, T, S, D, E;
    double         scale;
    bool           causal;
} tni_attention;

// Returns the arguments of a call. The inputs are q, k, v, an optional mask and, of the gradient,
// the result, lse and g.
static inline tni_attention tni_attention_of(const tni_call *c)
{
    bool          grad = c->op == TNI_attention_grad;
    tni_attention a    = { .q = &c->in[0], .k = &c->in[1], .v = &c->in[2] };
    if (c->nin - 3 * grad == 4) a.mask = &c->in[3];
    a.lse = grad ? &c->in[c->nin - 2] : &c->more[0];
    if (grad) a.g = &c->in[c->nin - 1];
    a.B      = a.q->size[0];
    a.T      = a.q->size[1];
    a.H      = a.q->size[2];
    a.D      = a.q->size[3];
    a.S      = a.k->size[1];
    a.E      = a.v->size[3];
    a.scale  = c->attr->attention.scale;
    a.causal = c->attr->attention.causal;
    return a;
}

#endif
