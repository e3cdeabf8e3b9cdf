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

// Where in the result the output after a begins, if a begins at start.
static int64_t next_start(int64_t start, const tn_array *a)
{
    return start + tni_align64(count(a->rank, a->size) * (int64_t)sizeof(tni_cell));
}

static tn_status failed(const tni_call *c, const char *what, tn_status status)
{
    *c->why = (tni_text){ 0 };
    tni_text_add(c->why, "%s: %s failed with status %d", c->attr->custom.def->name, what,
                 (int)status);
    return TN_EUSER;
}

tn_status tni_ref_custom(const tni_call *c)
{
    const tn_op_def *def  = c->attr->custom.def;
    const void      *attr = c->attr->custom.bytes;
    int              nout = outputs(c);
    tn_array        *in = c->scratch, *out = in + c->nin;
    char            *at     = (char *)c->scratch + header_bytes(c);
    tn_status        status = TN_OK;

    for (int i = 0; i < c->nin; i++) in[i] = describe(&c->in[i]);
    for (int k = 0; k < nout; k++) out[k] = nout > 1 ? (tn_array){ 0 } : describe(&c->out);
    if (nout > 1) status = def->shape(attr, in, out);
    if (status) return failed(c, "shape", status);

    for (int i = 0; i < c->nin; at += host_bytes(&c->in[i]), i++) {
        in[i].data = at;
        tni_ref_download(at, in[i].dtype, c->in[i].data, count(in[i].rank, in[i].size));
    }
    int64_t start = 0;
    for (int k = 0; k < nout; start = next_start(start, &out[k]), k++) out[k].data = at + start;

    status = def->compute(attr, in, out);
    if (status) return failed(c, "compute", status);
    start = 0;
    for (int k = 0; k < nout; start = next_start(start, &out[k]), k++)
        tni_ref_upload(c->out.data + start, out[k].dtype, at + start,
                       count(out[k].rank, out[k].size));
    return TN_OK;
}
