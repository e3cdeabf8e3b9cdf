// The kernels of this process: interpreted at first, compiled in the background, from then on
// compiled. Which of the two ran cannot be seen from the results.
#ifndef TNI_DEVICE_CPU_CPU_KERNELS_H
#define TNI_DEVICE_CPU_CPU_KERNELS_H

#include "device/device.h"
#include "kernel/emit_c.h"

#include <stdatomic.h>

// One kernel, shared by all plans of all contexts that have it, good until the process ends. run is
// set once, after finish: a launch that sees it may call both.
typedef struct {
    _Atomic(tni_c_main *) run;      // NULL: to be interpreted
    tni_c_finish         *finish;   // NULL where the kernel has no tails
    int                   rows[2];  // what a thread's room is made of: see tni_c_scratch_bytes
} tni_cpu_code;

// What the device offers as recall, prepare, room and launch. A launch takes no lock, no memory and no file.
void      tni_cpu_recall(void *session, int n, const tni_launch *const *first, void **entry);
tn_status tni_cpu_prepare(void *session, int n, const tni_launch *const *first, void **entry,
                          bool wait, tni_text *why);
size_t    tni_cpu_scratch(void *session, void *entry, const tni_launch *l);
tn_status tni_cpu_launch(void *session, void *entry, tni_launch *l, tni_text *why);
// The threads that run it.
int tni_cpu_threads(const tni_launch *l);

// Until nothing is being compiled or waits for it. TN_COMPILE=wait does so in every prepare.
void tni_cpu_kernels_wait(void);

// How long a compiler may take, in milliseconds, before it is ended and no more is compiled: a minute,
// unless a test sets it before the first kernel is met.
void tni_cpu_kernels_limit(int ms);

// Kernels by what became of them since the process began.
typedef struct {
    int64_t  compiled, found, queued, failed;  // found: on disk
    bool     off;                              // nothing is compiled any more
    tni_text why;  // the newest reason why one was not compiled; "" where there is none
} tni_cpu_counts;

tni_cpu_counts tni_cpu_kernels_counts(void);

// The same and the text of a kernel as the device offers them.
void  tni_cpu_counts_of(int64_t *compiled, int64_t *found);
char *tni_cpu_text(tni_heap *h, const tni_launch *l);

// The compiler that kernels get, in a line; false, with the reason, if there is none. Runs it.
bool tni_cpu_compiler(tni_text *detail);

#endif
