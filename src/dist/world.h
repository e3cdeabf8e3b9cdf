// A world as devices and ops see it: ranks that run the same program, and the engine between them.
#ifndef TNI_DIST_WORLD_H
#define TNI_DIST_WORLD_H

#include "dist/mpi.h"

// Runs a collective with all ranks of a world, to its end. At one rank without an engine it is a copy. An
// error, with the reason, if it fails or a rank is gone.
// Each collective is compared with those of the other ranks first: if they differ in anything but addresses, all
// ranks fail, with the text of two that differ. what: this one in words, with its line.
tn_status tni_dist_run(tn_dist *d, const tni_collective *c, const char *what, tni_text *why);

// Tells all ranks whether one has failed at something that they did apart, and waits for all. failure: this rank's
// reason, NULL if it is well. Returns true if all ranks are; else false on all of them, with the first one's
// name and reason. what: the call, for ranks that differ. Without an engine there is this rank alone.
bool tni_dist_agree(tn_dist *d, const char *what, const char *failure, tni_text *why);

// The token of a world: a number that each collective reads, and the next one after it. It makes them run in the
// order in which they were recorded, whatever the planner does with the rest. NULL before the first, or
// without an engine.
tn_tensor **tni_dist_token(tn_dist *d);
// Whether calls have to go to an engine; the world NULL has none.
bool tni_dist_is_real(const tn_dist *d);

// What was found of engines and launchers, for tn_doctor: one line each, up to TNI_DIST_LINES of them.
enum { TNI_DIST_LINES = 4 };
int tni_dist_report(tni_text line[TNI_DIST_LINES]);

#endif
