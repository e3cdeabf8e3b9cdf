// A user's op: its callback gets arrays that describe the arguments, which are in scratch. Elements
// are passed in place, as device memory is host memory.
#include "device/cpu/cpu_ops.h"
#include "device/custom.h"

static int64_t custom_header_bytes(const tni_call *call)
{
    return tni_align64((call->nin + 1 + call->nmore) * (int64_t)sizeof(tn_array));
}

size_t tni_cpu_custom_scratch(const tni_call *call)
{
    return (size_t)custom_header_bytes(call) + tni_custom_place_outputs(call, NULL, NULL);
}

tn_status tni_cpu_custom(const tni_call *call)
{
    tn_array *in = call->scratch, *out = in + call->nin;
    for (int i = 0; i < call->nin; i++) in[i] = tni_custom_array(&call->in[i]);
    tni_custom_place_outputs(call, (char *)call->scratch + custom_header_bytes(call), out);
    return tni_custom_compute(call->attr, in, out, "cpu", call->why);
}
