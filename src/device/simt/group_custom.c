// A user's op that is computed by a function on the host: inputs are downloaded and outputs
// uploaded, which waits for the device.
#include "device/simt/groups.h"

#include <string.h>

// An array of a call in host memory. at is where it is on the device, NULL for an output that
// nothing reads.
typedef struct {
    tn_array a;
    char    *at;  // on the device; NULL for an output that nothing reads
    int64_t  count;
} host_array;

// An array without host memory yet.
static host_array device_array(const tn_array *a, char *at)
{
    return (host_array){ .a = *a, .at = at, .count = tni_shape_count(a->rank, a->size) };
}

// Inputs of a user's op are dense, so that one download gets all elements.
static host_array device_input(const tni_arg *x)
{
    tn_array a = { .dtype = x->dtype, .rank = x->rank };
    memcpy(a.size, x->size, (size_t)x->rank * sizeof *a.size);
    return device_array(&a, x->data);
}

// Allocates the host's copy, of at least one byte, so that NULL means out of memory.
static bool alloc_host_array(tni_heap *h, host_array *x)
{
    size_t bytes = (size_t)x->count * tni_dtype_size(x->a.dtype);
    return (x->a.data = tni_alloc64(h, bytes ? bytes : 1)) != NULL;
}

static tn_status out_of_host_memory(const tni_call *c)
{
    tni_text_add(c->why, "%s: out of memory on the host", c->attr->custom.def->name);
    return TN_EMEM;
}

// Downloads the inputs, runs the function and uploads the outputs. x has the inputs and then the
// outputs, list the same as the function takes them.
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

// Every array gets host memory, also outputs that nothing reads, since the function writes them.
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
        x[i]  = k < 0 ? device_input(&c->in[i])
                      : device_array(&outs[k], tni_call_output(c, k)->data);
        ok    = alloc_host_array(&heap, &x[i]);
    }
    tn_status s = ok ? run_host_function(c, x, list, n) : out_of_host_memory(c);
    for (int i = 0; x && i < n; i++) tni_free64(&heap, x[i].a.data);
    tni_free(&heap, x);
    tni_free(&heap, list);
    return s;
}
