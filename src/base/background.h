// Work in the background: a few threads of the process that take tasks in the order in which they came.
// For what takes long and nobody may have to wait for, such as compiling.
#ifndef TNI_BASE_BACKGROUND_H
#define TNI_BASE_BACKGROUND_H

#include <stdbool.h>

// Has a thread call work(arg) some time. first: before all that was given without it. False if there is
// neither a thread nor memory for it; then it is never called. As the process ends, what has begun is
// waited for, and what has not is left.
bool tni_background(void (*work)(void *arg), void *arg, bool first);

// Whether the process is about to end, so that a task should. To be asked by tasks now and then: what a
// library sets up while it works it takes down at the end of the process, before what was set up
// earlier, and each time the end is made to wait before that.
bool tni_background_ends(void);

#endif
