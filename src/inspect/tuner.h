// What tune.c, tune_kernel.c and tune_plan.c share: the state of tuning in a context.
#ifndef TNI_INSPECT_TUNER_H
#define TNI_INSPECT_TUNER_H

#include "inspect/inspect.h"
#include "kernel/tuning.h"

#include <math.h>

// What is known of a kernel, a call or a plan, or of one of these with some settings or choices, by
// its key. ended: it was measured as far as it is worth it; searches: how many searches for it were
// cut short.
typedef struct {
    uint64_t key[2];
    uint32_t searches;
    bool     ended;
} tni_measured;

// The kernels and library calls of the plan that runs which have a key and are still to be
// measured, and the bytes that they move (of a call: that could be moved while it computes).
// CHOSEN: they have a share of the time; POSTPONED: they get what that leaves; ASKED: a call did
// not search, and another one of its key may; MEASURED: in this run. ahead: compilers of their
// candidates have begun.
typedef enum {
    TNI_ITEM_CHOSEN,
    TNI_ITEM_POSTPONED,
    TNI_ITEM_ASKED,
    TNI_ITEM_MEASURED
} tni_item_state;
typedef struct {
    uint64_t       key[2];
    int64_t        bytes;
    tni_item_state state;
    bool           ahead;
} tni_tuner_item;

// A winner of the present run. It is used from the end of the run on, which has taken scratch for
// the settings before.
typedef struct {
    tni_tuned           won;
    tni_planned_kernel *k;
    bool                ended;        // its search has come to its end
    bool                again;        // this process has measured the kernel in a run before,
    bool                nothing_new;  // and what won then has won
} tni_tuned_kernel;

// Owned by the context's inspect. known: what is known by keys, with its hash table.
struct tni_tuner {
    tni_measured *known;
    uint32_t     *slot;
    size_t        count, cap, slots;
    // The present run: its winners, its kernels that are to be measured and how many of them are
    // chosen, with their bytes; the seconds that it has left. left: something is to be measured in
    // another run.
    tni_tuned_kernel *won;
    size_t            winners, winners_cap;
    tni_tuner_item   *item;
    size_t            items, items_cap;
    int               chosen;
    int64_t           bytes;
    double            share;
    bool              left;
    size_t step, ahead;  // the step that is measured, and up to which compilers have begun
    // The present search: when it began, and how many dozens of candidates it has asked for.
    double begun;
    int    dozens;
    double a_search;  // seconds of the first candidates of a search, by the last ones; 0: not known
    double until;     // when its share of the time is spent
    tni_call_search call;  // that of a library call, and the key of that
    uint64_t        call_key[2];
    double          waited;        // seconds that candidates have waited for their compiler
    int             waits;         // how many candidates these were
    bool            log;           // TN_LOG has "tune"
    int             told, others;  // winners so far; and those that are not the rule's
};

// TOGETHER: candidates of a kernel that are measured before the best of them goes into contests,
// those that promise most. A_COMPILER: the seconds that a compiler takes for a kernel, about.
// A_MINUTE: the most that a run gets, or the search of a plan: what is found is kept when it ends.
enum { TNI_TOGETHER = 12 };
extern const double TNI_A_COMPILER, TNI_A_MINUTE;

// Returns the tuner of a context, made if there is none; NULL when memory is out.
tni_tuner *tni_tuner_of(tn_ctx *cx);
// Whether something was measured as far as it is worth it; and to note that it was. Without memory
// for that it is measured again.
bool tni_was_measured(const tni_tuner *u, const uint64_t key[2]);
void tni_note_measured(tn_ctx *cx, const uint64_t key[2]);
// Counts a winner, instead of the one that this process found before, if there is one, and, with
// TN_LOG=tune, which `tenon tune` sets, prints it, `with` the settings or choices.
void tni_log_winner(tni_tuner *u, const tni_tuned *w, const tni_tuned *before, const char *with);
// Notes what the present best takes now, if it was measured: a sample fails when memory is out. The
// next best takes as many times that as before, since clocks and other programs change what both
// take.
static inline void tni_time_again(tni_tuned *w, double us)
{
    if (!isfinite(us)) return;
    if (w->us > 0) w->next_us *= us / w->us;
    w->us = us;
}

// Whether compilers run beside what is measured. Where the host computes they take the cores that
// are measured, so that a launch waits for all that was begun.
bool tni_compiles_beside(const tni_engine *e);
// Searches for the settings of a kernel, until some time, and notes the winner for the end of the
// run. False if nothing can be measured.
bool tni_search_kernel(const tni_run *r, tni_planned_kernel *k, double until);
// Asked by a search before each dozen of candidates: whether there is time for them.
bool tni_search_may_go_on(const tni_engine *e);
// Begins to compile, behind all else, the candidates that a search for a kernel would measure
// first; key: of its launch.
void tni_search_ahead(const tni_engine *e, const tni_planned_kernel *k, const uint64_t key[2]);

#endif
