// A user's op that is computed by a function of the host: its inputs are host_array there, and its outputs
// back, which waits for the device.
#include "device/simt/groups.h"

#include <string.h>

// An array of a call in memory of the host.
typedef struct {
    tn_array a;
    char    *at;  // on the device; NULL for an output that nobody wants
    int64_t  count;
} host_array;

static host_array array_of(const tn_array *a, char *at)
{
    return (host_array){ .a = *a, .at = at, .count = tni_shape_count(a->rank, a->size) };
}

static host_array input_of(const tni_arg *x)
{
    tn_array a = { .dtype = x->dtype, .rank = x->rank };
    memcpy(a.size, x->size, (size_t)x->rank * sizeof *a.size);
    return array_of(&a, x->data);
}

static bool alloc_host_array(tni_heap *h, host_array *x)
{
    size_t bytes = (size_t)x->count * tni_dtype_size(x->a.dtype);
    return (x->a.data = tni_alloc64(h, bytes ? bytes : 1)) != NULL;
}

static tn_status out_of_memory(const tni_call *c)
{
    tni_text_add(c->why, "%s: out of memory on the host", c->attr->custom.def->name);
    return TN_EMEM;
}

// x has the inputs and then the outputs, list the same as their function takes them.
static tn_status run_host_function(const tni_call *c, host_array *x, tn_array *list, int n)
{
    const tni_device *d = c->device;
    tn_status         s = TN_OK;
    for (int i = 0; i < c->nin && s == TN_OK; i++)
        s = d->memory->download(c->session, x[i].a.data, x[i].a.dtype, x[i].at, x[i].count, c->why);
    for (int i = 0; i < n; i++) list[i] = x[i].a;
    if (s == TN_OK) s = tni_custom_compute(c->attr, list, list + c->nin, d->name, c->why);
    for (int i = c->nin; i < n && s == TN_OK; i++)
        if (x[i].at)
            s = d->memory->upload(c->session, x[i].at, x[i].a.dtype, list[i].data, x[i].count,
                                  c->why);
    return s;
}

tn_status tni_groups_custom(const tni_call *c)
{
    const tn_array *outs = tni_custom_outputs(c->attr);
    int             n    = c->nin + 1 + c->nmore;
    tni_heap        heap = tni_heap_default();
    host_array     *x    = tni_zalloc(&heap, (size_t)n * sizeof *x);
    tn_array       *list = tni_zalloc(&heap, (size_t)n * sizeof *list);
    bool            ok   = x && list;
    for (int i = 0; i < n && ok; i++) {
        int k = i - c->nin;
        x[i]  = k < 0 ? input_of(&c->in[i]) : array_of(&outs[k], tni_call_output(c, k)->data);
        ok    = alloc_host_array(&heap, &x[i]);
    }
    tn_status s = ok ? run_host_function(c, x, list, n) : out_of_memory(c);
    for (int i = 0; x && i < n; i++) tni_free64(&heap, x[i].a.data);
    tni_free(&heap, x);
    tni_free(&heap, list);
    return s;
}
