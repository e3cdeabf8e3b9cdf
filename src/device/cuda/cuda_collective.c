// Collectives on the GPU: in a stream of their own beside the session's, so that they run beside
// the kernels that come after them. Each begins when the work submitted before it is done, by an
// event, and is followed by an event that whoever reads its result waits for.
#include "device/custom.h"
#include "device/cuda/gpu.h"
#include "ops/collective.h"

// Asked by the thread that watches a world, which never entered the GPU.
static bool is_busy(void *session)
{
    const tni_cuda *c = session;
    c->gpu->cu->set_current(c->gpu->cx);
    return c->gpu->cu->stream_query(c->collect.stream) == TNI_CU_NOT_READY;
}

// Makes the stream, with the highest priority: its kernels are few and others wait for them.
static int open_stream(tni_cuda *c)
{
    const tni_driver *cu    = c->gpu->cu;
    int               least = 0, most = 0, error = TNI_CU_OK;
    if (c->collect.stream) return error;
    cu->priorities(&least, &most);
    for (int i = 0; !error && i < TNI_COLLECT_EVENTS; i++)
        if (!c->collect.done[i])
            error = cu->event_create(&c->collect.done[i], TNI_CU_EVENT_NO_TIMING);
    if (!error && !c->collect.before)
        error = cu->event_create(&c->collect.before, TNI_CU_EVENT_NO_TIMING);
    if (!error) error = cu->stream_create_at(&c->collect.stream, TNI_CU_STREAM_NONBLOCKING, most);
    return error;
}

// Begins a collective behind what the session has submitted so far, and returns.
tn_status tni_cuda_collective(const tni_call *call)
{
    tni_cuda         *c  = call->session;
    const tni_driver *cu = c->gpu->cu;
    if (call->compile_only) return TN_OK;
    if (!tni_cuda_may(c, "a collective", call->why)) return TN_EDEVICE;
    tni_cuda_enter(c);
    tni_cuda_await_uploads(c);
    int error = open_stream(c);
    if (!error) error = cu->event_record(c->collect.before, c->stream);
    if (!error) error = cu->stream_after(c->collect.stream, c->collect.before, 0);
    if (error) return tni_cuda_status(c, error, "a collective", call->why);
    tn_array  in = tni_custom_array(&call->in[0]), out = tni_custom_array(&call->out);
    tn_status s = tni_collective_start(call->attr->custom.bytes, &in, &out, c->collect.stream,
                                       is_busy, c, call->why);
    cu->set_current(c->gpu->cx);  // the library may have changed it
    if (s != TN_OK) return s;
    error = cu->event_record(c->collect.done[c->collect.begun++ % TNI_COLLECT_EVENTS],
                             c->collect.stream);
    return tni_cuda_status(c, error, "a collective", call->why);
}

// The stream is in order, so the newest that has to be done stands for all before it; of those
// longer ago than there are events a later one does.
tn_status tni_cuda_collected(void *session, size_t in_flight, tni_text *why)
{
    tni_cuda *c = session;
    if (in_flight >= c->collect.begun - c->collect.arrived) return TN_OK;
    uint64_t upto = c->collect.begun - in_flight;
    if (c->collect.begun - upto >= TNI_COLLECT_EVENTS)
        upto = c->collect.begun - TNI_COLLECT_EVENTS + 1;
    tni_cuda_enter(c);
    int error          = c->gpu->cu->stream_after(c->stream,
                                                  c->collect.done[(upto - 1) % TNI_COLLECT_EVENTS], 0);
    c->collect.arrived = upto;
    return tni_cuda_status(c, error, "a collective", why);
}

void tni_cuda_collect_close(tni_cuda *c)
{
    const tni_driver *cu = c->gpu->cu;
    if (c->collect.stream) cu->stream_wait(c->collect.stream);
    for (int i = 0; i < TNI_COLLECT_EVENTS; i++)
        if (c->collect.done[i]) cu->event_destroy(c->collect.done[i]);
    if (c->collect.before) cu->event_destroy(c->collect.before);
    if (c->collect.stream) cu->stream_destroy(c->collect.stream);
}
