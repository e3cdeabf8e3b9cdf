// A thread that makes the calls of an engine, one after the other. They may run beside other work;
// and a call may never return after another rank has died, so whoever waits for the thread looks
// around meanwhile, and can give it up.
#ifndef TNI_DIST_WORKER_H
#define TNI_DIST_WORKER_H

#include "dist/dist_engine.h"

typedef struct tni_dist_worker tni_dist_worker;

// A call: false, with the reason, if it failed. arg: a copy that the thread has; what else a call
// uses has to stay where it is after the thread was given up.
typedef bool tni_worker_call(void *arg, tni_text *why);
// Asked while something waits for other ranks: false, with the reason, gives it up.
typedef bool tni_may_wait(void *user, tni_text *why);

enum {
    TNI_WORKER_ROOM = 64,
    TNI_WORKER_ARG  = 192
};  // calls that wait their turn, and bytes of each

// Starts the thread; NULL if there can be none.
tni_dist_worker *tni_worker_open(void);
// Ends it, after the call that it is in; leaves it there if it was given up, and then returns
// false.
bool tni_worker_close(tni_dist_worker *w);
// Gives it a call, of which there are less than TNI_WORKER_ROOM.
void tni_worker_give(tni_dist_worker *w, tni_worker_call *call, const void *arg, size_t bytes);
// Waits until all but the last in_flight calls are done, as long as may_wait lets it. False, with
// the reason, once one has failed or was given up: none is made after that.
bool tni_worker_wait(tni_dist_worker *w, size_t in_flight, tni_may_wait *may_wait, void *user,
                     tni_text *why);
// How many calls are not done.
size_t tni_worker_left(tni_dist_worker *w);
// The argument of the call that failed or was given up; NULL: none.
const void *tni_worker_failed(tni_dist_worker *w);
// Whether it was given up.
bool tni_worker_stuck(tni_dist_worker *w);

#endif
