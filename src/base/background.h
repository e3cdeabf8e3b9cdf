// Background tasks: a few threads of the process that run tasks in the order in which they were
// given. For work that takes long and should delay no caller, such as compiling. Safe to call from
// any thread.
#ifndef TNI_BASE_BACKGROUND_H
#define TNI_BASE_BACKGROUND_H

#include <stdbool.h>

// When a task is wanted: before others, since a caller may soon wait for it; in its turn; or when
// there is nothing else to do.
typedef enum { TNI_TASK_SOON, TNI_TASK_IN_TURN, TNI_TASK_IDLE, TNI_TASK_KINDS } tni_task_kind;

// Has a background thread call work(arg) at some time: behind all tasks of its kind, and of those
// that come before it. False if there is no thread or memory for it; then work is never called. At
// the end of the process running tasks are waited for, and tasks not begun are dropped.
bool tni_background(void (*work)(void *arg), void *arg, tni_task_kind kind);

// Counts users of the queue: a cuda session calls it with true when it opens and with false when it
// closes. After the last, no task begins and running ones are waited for, until somebody needs them
// again; so no thread is inside a library as the process ends, which is safer than the guard below.
// Before the first call tasks begin as they come.
void tni_background_need(bool on);

// For tasks to call now and then while they use a library. Libraries take down at exit what they
// set up, in reverse order; each call makes the exit wait for tasks before that.
void tni_background_guard(void);

#endif
