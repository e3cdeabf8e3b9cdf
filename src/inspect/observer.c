// The observer of every context: what of it is awake, the environment says as the context opens.
#include "inspect/inspect.h"

#include "device/ref/ref.h"

#include <stdlib.h>
#include <string.h>

static bool is_on(const char *name)
{
    const char *v = getenv(name);
    return v && *v && strcmp(v, "0");
}

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
    return true;
}

static void close_inspect(tn_ctx *cx)
{
    if (cx->engine->inspect) tni_profile_close(cx);
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
    .out_of_memory = tni_oom_report,
};
