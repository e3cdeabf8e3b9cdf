// The thread pool: one per process, shared by every context. A job is a number of independent
// items; which thread runs which item never changes a result, so a caller that finds the pool
// busy with another context's job simply runs its items itself.
#ifndef TNI_BASE_POOL_H
#define TNI_BASE_POOL_H

#include <stdint.h>

// Runs item i of a job. worker is in 0 .. threads-1 and is never used by two threads at a time,
// so it can index scratch memory.
typedef void tni_task(void *arg, int64_t i, int worker);

// Calls task for every i in 0 .. items-1, on at most `threads` threads, the caller being one of
// them, and returns when all are done. Never fails: without helpers the caller does all the work.
void tni_parallel(int threads, int64_t items, tni_task *task, void *arg);

// TN_NUM_THREADS where it is set to a positive number, else the number of cores this process may
// use (its affinity mask), at least 1 and at most TNI_MAX_THREADS.
int tni_threads_default(void);
// Returns how many cores the machine has, whether or not they may be used.
int tni_cores(void);

// An upper bound for the arrays of per-thread scratch; more threads than that gain nothing on one
// process.
enum { TNI_MAX_THREADS = 256 };

#endif
