// A world as devices and ops see it: ranks that run the same program, and the engine between them.
#ifndef TNI_DIST_WORLD_H
#define TNI_DIST_WORLD_H

#include "dist/mpi.h"

// Runs a collective with all ranks of a world, to its end. At one rank without an engine it is a copy. An
// error, with the reason, if it fails or a rank is gone.
tn_status tni_dist_run(tn_dist *d, const tni_collective *c, tni_text *why);

// What was found of engines and launchers, for tn_doctor: one line each, up to TNI_DIST_LINES of them.
enum { TNI_DIST_LINES = 4 };
int tni_dist_report(tni_text line[TNI_DIST_LINES]);

#endif
