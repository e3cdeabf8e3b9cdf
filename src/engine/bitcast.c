// Elements as the bits of another dtype. The bits are what a device has in memory, so x is computed
// into a buffer of its own, and that buffer becomes the result's: nothing is copied twice, and
// nothing waits. A device whose memory holds numbers instead of bits (ref) gives them through the
// host.
#include "engine/engine.h"

#include <string.h>

// The shape of the result: the last axis has as many elements as its bytes make. False, reported.
static bool find_shape(tn_tensor *x, tn_dtype dt, tni_view *v)
{
    size_t from = tni_dtype_size(tn_dtype_of(x)), to = tni_dtype_size(dt);
    *v = tni_layout(x);
    if (dt == TN_BOOL && tn_dtype_of(x) != TN_BOOL)
        return tni_refuse(x->cx, TN_EDTYPE, "bitcast: %s to bool, whose bytes are 0 and 1 alone",
                          tn_dtype_name(tn_dtype_of(x)));
    if (from == to) return true;
    int64_t bytes = v->rank ? v->size[v->rank - 1] * (int64_t)from : 0;
    if (!v->rank || bytes % (int64_t)to)
        return tni_refuse(x->cx, TN_ESHAPE,
                          "bitcast: the last axis of %s %s is not a whole number of %s",
                          tni_shape_of(x).s, tn_dtype_name(tn_dtype_of(x)), tn_dtype_name(dt));
    v->size[v->rank - 1] = bytes / (int64_t)to;
    return true;
}

// The elements are read as what they are and written as the others, which waits.
static tn_tensor *through_host(tn_tensor *x, tn_dtype dt, const tni_view *v)
{
    tn_ctx    *cx    = x->cx;
    int64_t    count = tn_count(x);
    tn_tensor *y     = NULL;
    void      *bits  = tni_alloc(&cx->heap, (size_t)count * tni_dtype_size(tn_dtype_of(x)) + 1);
    if (!bits) return tni_fail_memory(cx, "bitcast");
    if (tn_read(x, tn_dtype_of(x), bits, count) == TN_OK)
        y = tn_from(cx, dt, v->rank, v->size, bits);
    tni_free(&cx->heap, bits);
    return y;
}

tn_tensor *tn_bitcast(tn_tensor *x, tn_dtype dt)
{
    tni_view v;
    tn_ctx  *cx = tni_arg1("bitcast", x, "x");
    if (!cx) return NULL;
    if (!tni_dtype_ok(dt)) return tni_fail(cx, TN_EDTYPE, "bitcast: %d is not a dtype", (int)dt);
    if (!find_shape(x, dt, &v)) return NULL;
    if (cx->engine->device->memory->element_size(dt) != tni_dtype_size(dt))
        return through_host(x, dt, &v);
    // The gradient of bits is none, so x's history ends here.
    // A copy that nothing else holds when this call ends, so that no later write meets two dtypes
    // in one buffer.
    tn_tensor *own = tn_clone(tn_contiguous(tn_detach(x)));
    tni_node  *n   = own ? tni_value(own, "bitcast") : NULL;
    if (!n) return NULL;
    if (!n->buf || n->start) return through_host(own, dt, &v);
    return tni_wrap(cx, tni_node_in_buffer(cx, dt, v.rank, v.size, n->buf, 0));
}
