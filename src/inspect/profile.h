// A profile: how long every kernel and call took while it was on, and what that is of the most the
// device can do.
#ifndef TNI_INSPECT_PROFILE_H
#define TNI_INSPECT_PROFILE_H

#include "inspect/inspect.h"
#include "inspect/step_facts.h"

// A kernel or call that ran, as often as it did. Owned by the profile, with its list of calls.
typedef struct {
    uint64_t      hash;  // of what it is: its sizes, bytes, lines and layers
    uint64_t      kind;  // the same without the layers: equal layers share it
    tni_text      name;  // "matmul + POINT (64, 128)"
    int64_t       bytes;
    tni_effort    effort;
    tni_registers registers;  // of a kernel, where the device knows
    int           sites;
    tni_site     *site;  // the user's calls that it comes from; op is never NULL
    int64_t       count;
    int64_t       ns, best;  // in all, and of the shortest
} tni_profile_row;

// One run of one of them: when it began, since the profile did, and how long it took.
typedef struct {
    int64_t  ns, from;
    uint32_t row;
} tni_profile_event;

// A point in time: a stamp of the device, or, where it has none, the host's clock.
typedef struct {
    int64_t stamp;
    double  clock;
} tni_moment;

enum { TNI_PROFILE_BATCH = TNI_TIMING_EVENTS / 4, TNI_PROFILE_EVENTS = 1 << 20 };

// What a context measured. Its engine owns it. Steps of a running plan are kept as stamps until the
// plan is done, or there are many, so that nobody waits in between. slot finds rows by their hashes:
// one more than a row's number, 0 where there is none, and never full. Only the first so many events
// are remembered; rows count all.
struct tni_profile {
    char *to;  // TN_PROFILE: from the opening of the context to its close, and where to; else NULL
    tni_profile_row   *row;
    size_t             rows, rows_cap;
    uint32_t          *slot;
    size_t             slots;
    tni_profile_event *event;
    size_t             events, events_cap;
    int64_t            launches, runs;  // kernels and calls; plans
    int64_t            ns;              // of all rows
    int64_t            lost;            // that could not be timed or remembered
    double             begun, ended;    // by the host's clock
    tni_moment         last;            // the newest moment whose time is known
    int64_t            now;             // that time, since the profile began
    int                pending;
    tni_moment         first;
    struct {
        tni_plan_step step;
        tni_moment    end;
    } step[TNI_PROFILE_BATCH];
    // Ceilings of the device, measured when they are first asked for: bytes a second of a copy, flops
    // a second of a product. 0: not yet; negative: they could not be.
    double copy, product[TNI_DTYPES];
};

// Prints it as a table, or as the events of a trace in JSON. False when memory is out.
void tni_profile_table(tn_ctx *cx, tni_profile *p, FILE *f);
bool tni_profile_trace(tn_ctx *cx, tni_profile *p, FILE *f);

// Now, and the seconds between two moments once they are reached; NAN if that is not known.
tni_moment tni_moment_now(const tni_engine *e);
double     tni_moments_apart(const tni_engine *e, tni_moment from, tni_moment to);

// The most a device can do: a copy's bytes a second, a product's flops a second; 0 where it could not
// be measured.
double tni_ceiling_copy(tn_ctx *cx, tni_profile *p);
double tni_ceiling_product(tn_ctx *cx, tni_profile *p, tn_dtype dt);

#endif
