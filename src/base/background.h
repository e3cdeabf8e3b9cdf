// Background tasks: a few threads of the process that run tasks in the order in which they were
// given. For work that takes long and should delay no caller, such as compiling. Safe to call from any
// thread.
#ifndef TNI_BASE_BACKGROUND_H
#define TNI_BASE_BACKGROUND_H

#include <stdbool.h>

// Has a background thread call work(arg) at some time. first: before all tasks given without it, behind those given with it.
// False if there is no thread or memory for it; then work is never called. At the end of the
// process running tasks are waited for, and tasks not begun are dropped.
bool tni_background(void (*work)(void *arg), void *arg, bool first);

// Counts users of the queue: a cuda session calls it with true when it opens and with false when it
// closes. After the last, no task begins and running ones are waited for, until somebody needs them
// again; so no thread is inside a library as the process ends, which is safer than the guard below.
// Before the first call tasks begin as they come.
void tni_background_need(bool on);

// For tasks to call now and then while they use a library. Libraries take down at exit what they
// set up, in reverse order; each call makes the exit wait for tasks before that.
void tni_background_guard(void);

#endif
