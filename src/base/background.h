// Work in the background: a few threads of the process that take tasks in the order in which they came.
// For what takes long and nobody may have to wait for, such as compiling.
#ifndef TNI_BASE_BACKGROUND_H
#define TNI_BASE_BACKGROUND_H

#include <stdbool.h>

// Has a thread call work(arg) some time. first: before all that was given without it. False if there is
// neither a thread nor memory for it; then it is never called. As the process ends, what has begun is
// waited for, and what has not is left.
bool tni_background(void (*work)(void *arg), void *arg, bool first);

// Who needs tasks done says so, and when no longer. After the last no task begins, and those that have are
// waited for, until somebody needs them again: no thread is in a library as the process ends, which is
// surer than the guard below. Before the first call tasks begin as they come.
void tni_background_need(bool on);

// To be called by tasks now and then. What a library sets up while it works it takes down at the end of
// the process, before what was set up earlier: each call has the end wait for tasks before that.
void tni_background_guard(void);

#endif
