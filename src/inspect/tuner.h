// What tune.c and tune_plan.c share: the state of tuning in a context.
#ifndef TNI_INSPECT_TUNER_H
#define TNI_INSPECT_TUNER_H

#include "inspect/inspect.h"
#include "kernel/tuning.h"

// A kernel or a plan that was measured as far as it is worth it, or with some settings or choices, by its key.
typedef struct {
    uint64_t key[2];
} tni_measured;

// The kernels of the plan that runs which have a key and are still to be measured. bytes: what they move; 0: they are not measured in this
// run, or no more. ahead: compilers of their candidates have begun.
typedef struct {
    uint64_t key[2];
    int64_t  bytes;
    bool     ahead;
} tni_tuner_item;

// A winner of the present run. It is used from the end of the run on, which has taken scratch for the settings before.
typedef struct {
    tni_tuned           won;
    tni_planned_kernel *k;
    bool                ended;  // its search had the time that it needed
    bool                known;  // it had won before, and a search that goes on found nothing else
} tni_tuned_kernel;

// Owned by the context's inspect. share, bytes: the seconds of the present run, and what its kernels move that are still to be measured
// in it, which are listed.
struct tni_tuner {
    tni_measured     *done;
    size_t            count, cap;
    tni_tuned_kernel *won;
    size_t            winners, winners_cap;
    tni_tuner_item   *item;
    size_t            items, items_cap;
    double            share;
    int64_t           bytes;
    size_t step, ahead;  // the step that is measured, and up to which compilers have begun
    double waited;       // seconds until candidates could be launched: mostly those of the compiler
    int    waits;        // how many candidates these were
    bool   log;          // TN_LOG has "tune"
    int    told, others;  // winners that it printed; and those that are not the rule's
};

// Returns the tuner of a context, made if there is none; NULL when memory is out.
tni_tuner *tni_tuner_of(tn_ctx *cx);
// Whether something was measured as far as it is worth it; and to note that it was. Without memory for that it is measured again.
bool tni_was_measured(const tni_tuner *u, const uint64_t key[2]);
void tni_note_measured(tn_ctx *cx, const uint64_t key[2]);
// TN_LOG=tune, which `tenon tune` sets: prints a winner, `with` the settings or choices.
void tni_log_winner(tni_tuner *u, const tni_tuned *w, const char *with);

#endif
