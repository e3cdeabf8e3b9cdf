// A world as devices and ops see it: ranks that run the same program, and the engine between them.
#ifndef TNI_DIST_WORLD_H
#define TNI_DIST_WORLD_H

#include "dist/dist_engine.h"
#include "dist/line.h"

// Collectives are compared with those of the other ranks: all ranks do the same, or all fail, with
// two that differ. In host memory the engine compares each one before it runs it. In streams, which
// nothing may wait for, the ranks ask each other: for each collective of a list of which it is not
// known that all have run it, by a hash of it, before it begins; and at the end of every
// evaluation, by tni_dist_ask, whose answer has to be there when the next one begins.
bool      tni_dist_knows(const tn_dist *d, uint64_t hash);
tn_status tni_dist_learn(tn_dist *d, uint64_t hash, tni_text *why);
void      tni_dist_compare(tn_dist *d, bool compare);
void      tni_dist_ask(tn_dist *d);

// Runs a collective with all ranks of a world in host memory, to its end. At one rank without an
// engine it is a copy. An error, with the reason, if it fails or a rank is gone. what: this one in
// words, with its line. Between overlap(true) and overlap(false) it only begins, and runs beside
// other work, after those before it: it is done after tni_dist_collected, which waits for all but
// the last in_flight.
tn_status tni_dist_run(tn_dist *d, const tni_collective *c, const tni_line_item *what,
                       tni_text *why);
void      tni_dist_overlap(tn_dist *d, bool overlap);
tn_status tni_dist_collected(tn_dist *d, size_t in_flight, tni_text *why);
// Puts a collective into a stream of the device, which must not be reported to fail for other
// reasons while it waits there. busy: asked from another thread, whether any is still in flight.
typedef bool tni_dist_busy(void *arg);
tn_status    tni_dist_start(tn_dist *d, const tni_collective *c, void *stream,
                            const tni_line_item *what, tni_dist_busy *busy, void *arg, tni_text *why);
// Whether collectives of the world go into streams of the device.
bool tni_dist_streams(const tn_dist *d);
// Whether the world of a context was lost since: what its collectives made is worth nothing.
bool tni_dist_lost(const tn_ctx *cx, tni_text *why);

// Tells all ranks whether one has failed at something that they did apart, and waits for all.
// failure: this rank's reason, NULL if it is well. Returns true if all ranks are; else false on all
// of them, with the first one's name and reason. what: the call, for ranks that differ. Without an
// engine there is this rank alone.
bool tni_dist_agree(tn_dist *d, const char *what, const char *failure, tni_text *why);
// Adds up two numbers of all ranks, modulo 2^64. False, with the reason, if a rank is gone.
bool tni_dist_sum(tn_dist *d, const char *what, uint64_t sum[2], tni_text *why);

// Ends the world for all ranks, because the context's error made this one leave out collectives
// that the others do. Their calls fail with its name, text and line. Does nothing for a world that
// has ended, or of one rank.
void tni_dist_fail(tn_dist *d);
// Whether collectives are recorded that have not run.
bool tni_dist_pending(const tn_dist *d);

// The token of a world: a number that each collective reads, and the next one after it. It makes
// them run in the order in which they were recorded, whatever the planner does with the rest. NULL
// before the first, or without an engine.
tn_tensor **tni_dist_token(tn_dist *d);
// Whether calls have to go to an engine; the world NULL has none.
bool tni_dist_is_real(const tn_dist *d);
// Whether this rank has left a world that had an engine.
bool tni_dist_closed(const tn_dist *d);

// What was found of engines and launchers, for tn_doctor: one line each, up to TNI_DIST_LINES of
// them.
enum { TNI_DIST_LINES = 4 };
int tni_dist_report(tni_text line[TNI_DIST_LINES]);

#endif
