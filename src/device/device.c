// Running a call by what its device registered.
#include "device/device.h"

const tni_op_impl *tni_device_impl(const tni_device *d, int op)
{
    const tni_op_impl *r = &d->calls->of_op[op];
    return r->sure || r->run ? r : &d->calls->of_class[tni_op_table[op].class];
}

bool tni_device_runs(const tni_device *d, int op)
{
    const tni_op_impl *r = tni_device_impl(d, op);
    return r->sure || r->run;
}

tn_status tni_call_run(const tni_call *call)
{
    const tni_op_impl *r = tni_device_impl(call->device, call->op);
    if (r->run) return r->run(call);
    if (!r->sure) {
        *call->why = tni_text_of("%s: not an op that %s runs", tni_op_table[call->op].name,
                                 call->device->name);
        return TN_EDEVICE;
    }
    r->sure(call);
    return TN_OK;
}

size_t tni_call_scratch(const tni_call *call)
{
    const tni_op_impl *r = tni_device_impl(call->device, call->op);
    return r->scratch ? r->scratch(call) : 0;
}
