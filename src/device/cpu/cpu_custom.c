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

static tn_status failed(const tni_call *call, const char *what, tn_status status)
{
    *call->why = (tni_text){ 0 };
    tni_text_add(call->why, "%s: %s failed with status %d", call->attr->custom.def->name, what,
                 (int)status);
    return TN_EUSER;
}

tn_status tni_cpu_custom(const tni_call *call)
{
    const tn_op_def *def  = call->attr->custom.def;
    const void      *attr = call->attr->custom.bytes;
    tn_array        *in = call->scratch, *out = in + call->nin;
    int              nout = outputs(call);
    tn_status        s    = TN_OK;
    for (int i = 0; i < call->nin; i++) in[i] = describe(&call->in[i]);
    for (int k = 0; k < nout; k++) out[k] = nout > 1 ? (tn_array){ 0 } : describe(&call->out);

    if (nout > 1) s = def->shape(attr, in, out);
    if (s != TN_OK) return failed(call, "shape", s);
    int64_t start = 0;
    for (int k = 0; nout > 1 && k < nout; k++) {
        out[k].data = call->out.data + start;
        start += tni_align64(tni_shape_count(out[k].rank, out[k].size) * 8);
    }
    s = def->compute(attr, in, out);
    return s == TN_OK ? TN_OK : failed(call, "compute", s);
}
