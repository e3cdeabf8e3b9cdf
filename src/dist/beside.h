// Collectives of host memory that run beside other work: a thread of a world, which runs them one after the other.
#ifndef TNI_DIST_BESIDE_H
#define TNI_DIST_BESIDE_H

#include "dist/dist_engine.h"
#include "dist/line.h"
#include "tensor/context.h"

typedef struct tni_beside tni_beside;

// Starts the thread; NULL if there can be none.
tni_beside *tni_beside_open(tn_dist *d);
// Ends it, after what it has.
void tni_beside_close(tni_beside *b);
// Whether it has nothing to do.
bool tni_beside_idle(tni_beside *b);
// Gives it a collective, which waits its turn.
void tni_beside_give(tni_beside *b, const tni_collective *c, const tni_line_item *what);
// Waits until all but the last in_flight of them are done. The error of the first that failed, after which none is run, with
// the reason.
tn_status tni_beside_wait(tni_beside *b, size_t in_flight, tni_text *why);

#endif
