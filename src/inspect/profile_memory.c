// The memory of a context while it was profiled, over time and by owner. What an evaluation holds
// is known when it begins (plan_memory.c); while it runs, the part of its arena that is in use
// changes from step to step.
#include "inspect/profile.h"

#include <string.h>

const char *const tni_owner_name[TNI_OWNERS] = { "parameters",  "gradients", "optimizer",
                                                 "activations", "workspace", "other" };

const char *const tni_host_name[] = { [TNI_HOST_RECORD]   = "record",
                                      [TNI_HOST_PLAN]     = "plan",
                                      [TNI_HOST_COMPILE]  = "compile",
                                      [TNI_HOST_LAUNCH]   = "launch and wait",
                                      [TNI_HOST_UPLOAD]   = "copy to the device",
                                      [TNI_HOST_DOWNLOAD] = "copy to the host" };

// Fills in the owners while `live` bytes of the arena are in use. Other memory: data, values of
// earlier evaluations, weights that receive no gradients. An owner's bytes are those of its
// elements, while what is held is rounded up.
static void fill_owners(const tni_profile_run *r, int64_t live, int64_t *bytes)
{
    const tn_plan_memory *m = &r->memory;
    int64_t known = m->parameters + m->gradients + m->optimizer + m->activations + m->workspace;
    bytes[0]      = m->parameters;
    bytes[1]      = m->gradients;
    bytes[2]      = m->optimizer;
    bytes[3]      = m->activations - r->arena + live;
    bytes[4]      = m->workspace;
    bytes[5]      = r->held > known ? r->held - known : 0;
}

// Ends an evaluation: its arena and its scratch are free again, its results stay.
static void end_run(const tni_profile_run *r, void *to,
                    void (*put)(void *to, int64_t ns, const int64_t *bytes))
{
    int64_t bytes[TNI_OWNERS];
    fill_owners(r, 0, bytes);
    bytes[4] = 0;
    put(to, r->until, bytes);
}

// Walks the runs of kernels in order: the first of an evaluation begins its memory, each of them
// changes how much of the arena is in use, and the first of the next one ends it. Where nothing
// changes, nothing is put.
void tni_profile_memory(const tni_profile *p, void *to,
                        void (*put)(void *to, int64_t ns, const int64_t *bytes))
{
    int64_t  bytes[TNI_OWNERS], live = -1;
    uint32_t run = 0;
    for (size_t i = 0; i < p->events; i++) {
        const tni_profile_event *e = &p->event[i];
        if (!e->run || e->run > p->runs_kept) continue;
        if (run && e->run != run) end_run(&p->run[run - 1], to, put);
        if (e->run != run || e->live != live) {
            fill_owners(&p->run[e->run - 1], e->live, bytes);
            put(to, e->from, bytes);
        }
        run  = e->run;
        live = e->live;
    }
    if (run) end_run(&p->run[run - 1], to, put);
}
