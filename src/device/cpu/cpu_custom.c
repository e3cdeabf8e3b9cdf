// A user's op: its callback over arrays that describe the arguments. Several outputs lie in the
// result one after the other, each with room for eight bytes an element, begun at a multiple of
// 64, as recording laid them out.
#include "device/cpu/cpu_walk.h"

#include <string.h>

static int outputs(const tni_call *call)
{
    int n = call->attr->custom.def->nout;
    return n > 0 ? n : 1;
}

size_t tni_cpu_custom_scratch(const tni_call *call)
{
    return (size_t)(call->nin + outputs(call)) * sizeof(tn_array);
}

static tn_array describe(const tni_arg *x)
{
    tn_array a = { .dtype = x->dtype, .rank = x->rank, .data = x->data };
    memcpy(a.size, x->size, sizeof a.size);
    return a;
}

tn_status tni_cpu_custom(const tni_call *call)
{
    const tn_array *outs = tni_custom_outputs(call->attr);
    tn_array       *in = call->scratch, *out = in + call->nin;
    for (int i = 0; i < call->nin; i++) in[i] = describe(&call->in[i]);
    for (int k = 0; k < outputs(call); k++) {
        out[k]      = outs[k];
        out[k].data = call->out.data + tni_custom_start(outs, k);
    }
    return tni_custom_compute(call->attr, in, out, "cpu", call->why);
}
