// The observer of every context. Which parts of it are active is read from the environment when a
// context opens; the engine calls it through engine/observer.h and does not depend on this folder.
#include "inspect/inspect.h"
#include "inspect/nvtx.h"

#include "device/ref/ref.h"

#include <stdlib.h>
#include <string.h>

// A variable counts as set unless it is empty or 0.
static bool is_on(const char *name)
{
    const char *v = getenv(name);
    return v && *v && strcmp(v, "0");
}

// Turns on what the environment asks for. Nothing is watched otherwise, so that a run pays one test
// of e->watch.
static bool open_inspect(tn_ctx *cx)
{
    tni_engine *e = cx->engine;
    e->inspect    = tni_zalloc(&cx->heap, sizeof *e->inspect);
    if (!e->inspect) return false;
    const char *check = getenv("TN_CHECK");
    if (check && !strcmp(check, "nan")) e->watch |= TNI_WATCH_CALLS;
    if (is_on("TN_VERIFY") && e->device != &tni_device_ref) e->watch |= TNI_WATCH_VALUES;
    tni_plan_log_open(e->inspect);
    tni_profile_open(cx);
    tni_nvtx_open(cx);
    tni_tune_open(cx);
    return true;
}

// A context that failed to open may have no inspect. Tuning ends first: that a profile watched the
// kernels may be why nothing was measured.
static void close_inspect(tn_ctx *cx)
{
    if (!cx->engine->inspect) return;
    tni_tune_close(cx);
    tni_profile_close(cx);
    tni_plan_log_close(cx);
}

const tni_observer tni_observer_inspect = {
    .open          = open_inspect,
    .close         = close_inspect,
    .plan_built    = tni_plan_log,
    .call_ran      = tni_check_call,
    .step_begins   = tni_verify_before,
    .step_ran      = tni_verify_after,
    .run_begins    = tni_profile_start,
    .step_launched = tni_profile_step,
    .run_ends      = tni_profile_stop,
    .name_begins   = tni_nvtx_push,
    .name_ends     = tni_nvtx_pop,
    .host_worked   = tni_profile_host,
    .plan_tunes    = tni_plan_tunes,
    .tuning_begins = tni_tuning_begins,
    .kernel_begins = tni_kernel_tunes,
    .call_begins   = tni_call_tunes,
    .call_searched = tni_call_searched,
    .tuning_ends   = tni_tuning_ends,
    .out_of_memory = tni_oom_report,
};
