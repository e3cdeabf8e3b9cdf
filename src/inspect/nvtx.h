// NVTX: ranges with names, which Nsight and other tools show on their timelines.
#ifndef TNI_INSPECT_NVTX_H
#define TNI_INSPECT_NVTX_H

#include "inspect/inspect.h"

// Finds a tool that takes ranges, once in a process: one that is attached, or with TN_NVTX=1 the
// library of a CUDA toolkit. Ranges are then watched for in the context.
void tni_nvtx_open(tn_ctx *cx);
// Around the launch of a step: begins a range that has its name, its line and its layer; ends it.
void tni_nvtx_push(const tni_run *r, tni_plan_step step);
void tni_nvtx_pop(const tni_run *r);
// Who takes the ranges, for people; "none" and why.
tni_text tni_nvtx_state(void);

#endif
