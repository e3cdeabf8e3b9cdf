// Runs a call by what its device registered for the op.
#include "device/host_linalg.h"

// An implementation for the op comes before one for its class. The result has neither run function
// if the device does not have the op. Linear algebra and Fourier transforms, which no other ops
// could stand for, run on the host then.
const tni_op_impl *tni_device_impl(const tni_device *d, int op)
{
    static const tni_op_impl on_host = { .run = tni_call_on_host };
    const tni_op_impl       *r       = &d->calls->of_op[op];
    if (r->run_nofail || r->run) return r;
    return op == TNI_linalg || op == TNI_fft ? &on_host
                                             : &d->calls->of_class[tni_op_table[op].class];
}

bool tni_device_runs(const tni_device *d, int op)
{
    const tni_op_impl *r = tni_device_impl(d, op);
    return r->run_nofail || r->run;
}

// A context asks tni_device_runs when it is opened, and records the LIBRARY ops that its device
// lacks as other ops; so the error here means that a device's table is incomplete.
tn_status tni_call_run(const tni_call *call)
{
    const tni_op_impl *r = tni_device_impl(call->device, call->op);
    if (r->run) return r->run(call);
    if (!r->run_nofail) {
        *call->why = tni_text_of("%s: not an op that %s runs", tni_op_table[call->op].name,
                                 call->device->name);
        return TN_EDEVICE;
    }
    r->run_nofail(call);
    return TN_OK;
}

size_t tni_call_scratch(const tni_call *call)
{
    const tni_op_impl *r = tni_device_impl(call->device, call->op);
    return r->scratch ? r->scratch(call) : 0;
}
