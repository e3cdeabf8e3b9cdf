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

// One run of one of them: when it began, since the profile did, and how long it took; the
// evaluation that it is of, and how much of that one's arena was in use.
typedef struct {
    int64_t  ns, from, live;
    uint32_t row, run;
} tni_profile_event;

// An evaluation: when it began, and the memory then, by owner; arena is the part of its activations
// that is planned, held all that the context has in use.
typedef struct {
    int64_t        from, until, arena, held;
    tn_plan_memory memory;
} tni_profile_run;

// Something that the host did.
typedef struct {
    int64_t       from, ns, bytes;
    tni_host_work what;
} tni_profile_host_event;

// A point in time: a timing event of the device, or, if it has none, the host's clock.
typedef struct {
    int64_t event;
    double  clock;
} tni_time_point;

enum { TNI_PROFILE_BATCH = TNI_TIMING_EVENTS / 4, TNI_PROFILE_EVENTS = 1 << 20 };

// What a context measured; its engine owns it. Steps of a running plan are kept as timing events
// until the plan is done or there are TNI_PROFILE_BATCH of them, so that nothing waits in between.
// slot is a hash table of rows: a row's number plus 1, or 0 if free; it is never full. Only the
// first TNI_PROFILE_EVENTS runs are remembered as events; rows count all of them. So it is with
// evaluations and the host's work.
struct tni_profile {
    char *to;  // TN_PROFILE: from the opening of the context to its close, and where to; else NULL
    tni_profile_row        *row;
    size_t                  rows, rows_cap;
    uint32_t               *slot;
    size_t                  slots;
    tni_profile_event      *event;
    size_t                  events, events_cap;
    tni_profile_run        *run;
    size_t                  runs_kept, runs_cap;
    tni_profile_host_event *host;
    size_t                  hosts, hosts_cap;
    int64_t                 hosts_in_all;    // also those that are not remembered
    double                  host_free;       // when the newest work of the host ended
    int64_t                *live;            // by step of the running plan; NULL: not known
    size_t                  live_cap, at;    // at: which step is launched next
    int64_t                 launches, runs;  // kernels and calls; plans
    int64_t                 ns;              // of all rows
    int64_t                 lost;            // that could not be timed or remembered
    double                  begun, ended;    // by the host's clock
    tni_time_point          last;            // the newest point whose time is known
    int64_t                 now;             // that time, since the profile began
    int                     pending;
    tni_time_point          first;
    struct {
        tni_plan_step  step;
        int64_t        live;
        tni_time_point end;
    } step[TNI_PROFILE_BATCH];
    // Ceilings of the device, measured when they are first asked for: bytes a second of a copy,
    // flops a second of a product. 0: not yet; negative: they could not be.
    double copy, product[TNI_DTYPES];
};

// Prints it as a table, as the events of a trace in JSON, or as a page. False when memory is out.
void tni_profile_table(tn_ctx *cx, tni_profile *p, FILE *f);
bool tni_profile_trace(tn_ctx *cx, tni_profile *p, FILE *f);
bool tni_profile_html(tn_ctx *cx, tni_profile *p, FILE *f);

// A line of the table: rows that differ only in their layers. sum adds them up, and is otherwise
// like the first.
typedef struct {
    tni_profile_row         sum;
    const tni_profile_row **row;
    size_t                  rows;
} tni_profile_group;

// Groups rows, the longest group first: n of them. row has room for all rows, and is theirs.
size_t tni_profile_groups(const tni_profile *p, const tni_profile_row **row, tni_profile_group *g);
// How much of the device's best a row reaches, in tenths of a percent; -1 if there is nothing to
// compare with.
int64_t tni_profile_per_mille(tn_ctx *cx, tni_profile *p, const tni_profile_row *r);
// "model.c:12 linear in layer1.fc", in UTF-8; and the first layer that a row names, or "".
tni_text    tni_profile_line(const tni_site *s);
const char *tni_profile_layer(const tni_profile_row *r);
// The memory of the context over time, by owner: calls `put` at each change, in order of time.
enum { TNI_OWNERS = 6 };
extern const char *const tni_owner_name[TNI_OWNERS];
void                     tni_profile_memory(const tni_profile *p, void *to,
                                            void (*put)(void *to, int64_t ns, const int64_t *bytes));
extern const char *const tni_host_name[];  // by tni_host_work

// Returns the host's clock, in seconds.
double tni_clock_now(void);
// Returns the present; and the seconds between two points, waiting for both; NAN if that is not
// known.
tni_time_point tni_time_now(const tni_engine *e);
double         tni_seconds_between(const tni_engine *e, tni_time_point from, tni_time_point to);

// The most a device can do: a copy's bytes a second, a product's flops a second; 0 where it could
// not be measured.
double tni_roofline_copy(tn_ctx *cx, tni_profile *p);
double tni_roofline_product(tn_ctx *cx, tni_profile *p, tn_dtype dt);

#endif
