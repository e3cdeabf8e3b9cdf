// The kernels of this process: interpreted at first, compiled in the background, and compiled from
// then on. The results do not show which of the two ran.
#ifndef TNI_DEVICE_CPU_CPU_KERNELS_H
#define TNI_DEVICE_CPU_CPU_KERNELS_H

#include "device/device.h"
#include "kernel/emit_c.h"

#include <stdatomic.h>

// One kernel, shared by all plans of all contexts that use it; lives until the process ends.
// Invariant: run is set once, after finish and rows, with release order, so that a launch that sees
// run may use all three.
typedef struct {
    _Atomic(tni_c_main *)          run;      // NULL: interpreted
    tni_c_finish                  *finish;   // NULL if the kernel has no tails
    int                            rows[2];  // sizes of a thread's scratch: see tni_c_scratch_bytes
    _Atomic(struct tni_cpu_won *)  won;      // settings that won, by sizes: see cpu_tune.c
    _Atomic(struct tni_cpu_made *) made;  // the kernel with texts of other settings: see cpu_tune.c
} tni_cpu_code;

// The device's recall, prepare, scratch and launch; see device.h. A launch takes no lock, allocates
// nothing and opens no file.
void      tni_cpu_recall(void *session, int n, const tni_launch *const *first, void **entry);
tn_status tni_cpu_prepare(void *session, int n, const tni_launch *const *first, void **entry,
                          bool wait, tni_text *why);
size_t    tni_cpu_scratch(void *session, void *entry, const tni_launch *l);
tn_status tni_cpu_launch(void *session, void *entry, tni_launch *l, tni_text *why);
// The device's chip, neighbours and retuned; and the settings under which a launch of an entry
// runs, NULL if rules decide.
const char *tni_cpu_chip(const void *session, int threads);
int  tni_cpu_neighbours(void *session, const tni_launch *l, const tni_tuning *from, tni_tuning *dst,
                        int room);
void tni_cpu_retuned(void *session, void *entry, const tni_launch *l);
void tni_cpu_expect(void *session, void *entry, const tni_launch *l, bool now);
// Returns the code and the settings under which a launch of an entry runs; settings are NULL if
// rules decide.
const tni_cpu_code *tni_cpu_choice(tni_cpu_code *code, const tni_launch *l,
                                   const tni_tuning **settings);
// Returns the entry of a kernel with the text that some settings make; NULL if there is none. Its
// code is compiled in the background, or before this returns.
const tni_cpu_code *tni_cpu_variant(const tni_kernel *k, const tni_tuning *t, bool wait);
// Returns the number of threads that run a launch.
int tni_cpu_threads(const tni_launch *l);
// Returns C as it is best for this chip.
tni_dialect tni_cpu_dialect(void);
// Returns how a launch on `threads` threads stores what it computes, under some settings; NULL: the
// rule's.
tni_c_stores tni_cpu_stores(const tni_launch *l, int threads, const tni_tuning *t);
// The same where a core has `cache` bytes for itself.
tni_c_stores tni_cpu_stores_with(int64_t cache, const tni_launch *l, int threads,
                                 const tni_tuning *t);
// Whether two settings run a launch alike: in the same chunks, on as many threads, with the same
// stores; and whether they make the same text. NULL: the rule's.
bool tni_cpu_runs_equal(const tni_launch *l, const tni_tuning *a, const tni_tuning *b);
bool tni_cpu_texts_equal(const tni_launch *l, const tni_tuning *a, const tni_tuning *b);

// Waits until no kernel is being compiled or queued. With TN_COMPILE=wait every prepare does.
void tni_cpu_kernels_wait(void);

// Sets how long a compiler may run, in milliseconds, before it is ended and compiling is turned
// off. A minute, unless a test sets it before the first kernel.
void tni_cpu_kernels_limit(int ms);

// How many kernels of this process were compiled, found on disk, are queued, and failed to compile.
typedef struct {
    int64_t  compiled, found, queued, failed;  // found: on disk
    bool     off;                              // compiling is turned off
    tni_text why;  // the latest reason why a kernel was not compiled, or ""
} tni_cpu_counts;

tni_cpu_counts tni_cpu_kernels_counts(void);

// The device's counts and text; see device.h.
void  tni_cpu_compile_counts(int64_t *compiled, int64_t *found);
char *tni_cpu_text(void *session, tni_heap *h, const tni_launch *l);

// Describes the compiler in a line; returns false, with the reason, if there is none. Runs the
// compiler.
bool tni_cpu_compiler(tni_text *detail);

#endif
