// bare.c: a device without LIBRARY ops.
#include "bare.h"

#include "engine/engine.h"

#include <string.h>

static struct {
    tni_device       device;
    tni_device_calls calls;
} bare;

tn_ctx *bare_open(tn_open_opts o)
{
    if (!o.device || strcmp(o.device, "bare")) return tn_open_with(o);
    bare.device       = tni_device_cpu;
    bare.device.name  = "bare";
    bare.device.calls = &bare.calls;
    bare.calls        = *tni_device_cpu.calls;
    bare.calls.takes  = NULL;
    for (int op = 0; op < TNI_OPS; op++)
        if (tni_op_table[op].class == TNI_LIBRARY) bare.calls.of_op[op] = (tni_op_impl){ 0 };
    o.device   = "cpu";
    tn_ctx *cx = tn_open_with(o);
    if (cx) tni_engine_use(cx, &bare.device);
    return cx;
}
