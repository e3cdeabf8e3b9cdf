// A user's op: its inputs and outputs in the host's dtypes lie in scratch memory, after the arrays
// that describe them. Several outputs lie in the result one after the other, each with room for
// eight bytes an element, begun at a multiple of 64.
#include "ref.h"

static int64_t count(int rank, const int64_t *size)
{
    return tni_shape_count(rank, size);
}

static int64_t host_bytes(const tni_arg *x)
{
    return tni_align64(count(x->rank, x->size) * (int64_t)tni_dtype_size(x->dtype));
}

static int outputs(const tni_call *c)
{
    int n = c->attr->custom.def->nout;
    return n > 0 ? n : 1;
}

static int64_t header_bytes(const tni_call *c)
{
    return tni_align64((c->nin + outputs(c)) * (int64_t)sizeof(tn_array));
}

// The result of several outputs is their bytes, so that it has room for them in any dtype.
size_t tni_ref_custom_scratch(const tni_call *c)
{
    int64_t bytes = header_bytes(c) + host_bytes(&c->out);
    for (int i = 0; i < c->nin; i++) bytes += host_bytes(&c->in[i]);
    return (size_t)bytes;
}

static tn_array describe(const tni_arg *x)
{
    tn_array a = { .dtype = x->dtype, .rank = x->rank };
    if (x->rank) memcpy(a.size, x->size, (size_t)x->rank * sizeof *x->size);
    return a;
}

tn_status tni_ref_custom(const tni_call *c)
{
    const tn_array *outs = tni_custom_outputs(c->attr);
    tn_array       *in = c->scratch, *out = in + c->nin;
    char           *at = (char *)c->scratch + header_bytes(c);
    for (int i = 0; i < c->nin; at += host_bytes(&c->in[i]), i++) {
        in[i]      = describe(&c->in[i]);
        in[i].data = at;
        tni_ref_get(at, in[i].dtype, c->in[i].data, count(in[i].rank, in[i].size));
    }
    for (int k = 0; k < outputs(c); k++) {
        out[k]      = outs[k];
        out[k].data = at + tni_custom_start(outs, k);
    }
    tn_status status = tni_custom_compute(c->attr, in, out, "ref", c->why);
    if (status != TN_OK) return status;
    for (int k = 0; k < outputs(c); k++) {
        int64_t start = tni_custom_start(outs, k);
        tni_ref_put(c->out.data + start, outs[k].dtype, at + start,
                    count(outs[k].rank, outs[k].size));
    }
    return TN_OK;
}
