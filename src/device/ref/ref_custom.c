// A user's op. Its function works on the host's dtypes, so inputs and outputs are converted to and
// from arrays in scratch, after the headers that describe them.
#include "ref.h"

static int64_t array_count(const tn_array *a)
{
    return tni_shape_count(a->rank, a->size);
}

static int64_t host_bytes(const tn_array *a)
{
    return tni_align64(array_count(a) * (int64_t)tni_dtype_size(a->dtype));
}

static int64_t ref_custom_header_bytes(const tni_call *c)
{
    return tni_align64((c->nin + 1 + c->nmore) * (int64_t)sizeof(tn_array));
}

static tn_array array_of_arg(const tni_arg *x)
{
    tn_array a = { .dtype = x->dtype, .rank = x->rank };
    if (x->rank) memcpy(a.size, x->size, (size_t)x->rank * sizeof *x->size);
    return a;
}

// Returns array i of the call, without data: its inputs, then its outputs.
static tn_array call_array(const tni_call *c, int i)
{
    return i < c->nin ? array_of_arg(&c->in[i]) : tni_custom_outputs(c->attr)[i - c->nin];
}

size_t tni_ref_custom_scratch(const tni_call *c)
{
    int64_t bytes = ref_custom_header_bytes(c);
    for (int i = 0; i < c->nin + 1 + c->nmore; i++) {
        tn_array a = call_array(c, i);
        bytes += host_bytes(&a);
    }
    return (size_t)bytes;
}

// Converts the inputs, calls the user's function, and converts the outputs that are wanted.
tn_status tni_ref_custom(const tni_call *c)
{
    tn_array *in = c->scratch, *out = in + c->nin;
    char     *at = (char *)c->scratch + ref_custom_header_bytes(c);
    for (int i = 0; i < c->nin + 1 + c->nmore; at += host_bytes(&in[i]), i++) {
        in[i]      = call_array(c, i);
        in[i].data = at;
        if (i < c->nin) tni_ref_to_host(at, in[i].dtype, c->in[i].data, array_count(&in[i]));
    }
    tn_status status = tni_custom_compute(c->attr, in, out, "ref", c->why);
    for (int k = 0; k <= c->nmore && status == TN_OK; k++) {
        char *to = tni_call_output(c, k)->data;
        if (to) tni_ref_from_host(to, out[k].dtype, out[k].data, array_count(&out[k]));
    }
    return status;
}
