// What a device with work groups has compiled: generated kernels by their key and the class of
// their shape, kernels written by hand by their text and dtypes. All of it lives until the process
// ends, since a driver keeps what was loaded.
#ifndef TNI_SIMT_COMPILED_H
#define TNI_SIMT_COMPILED_H

#include "device/device.h"
#include "kernel/simt.h"

#include <stdatomic.h>

// How a device compiles. build makes a program of a text, found says whether it was on disk; what
// names it in the reason. function finds a kernel of a program. registers tells what a thread of it
// takes; NULL where nobody knows. All are called by one thread at a time.
typedef struct {
    const tni_dialect *dialect;
    void *(*build)(void *device, const char *source, const char *what, bool *found, tn_status *s,
                   tni_text *why);
    tn_status (*function)(void *device, void *program, const char *name, void **f, tni_text *why);
    tni_registers (*registers)(void *device, void *f);
} tni_compiler;

// Kernels compiled and kernels found on disk so far, by all devices of a kind.
typedef struct {
    atomic_llong compiled, found;
} tni_compiled_counts;

// The kernels of one device. The device owns it; one thread at a time is inside. no_double and
// batch may be changed between calls.
typedef struct tni_compiled tni_compiled;

typedef struct {
    const tni_compiler  *by;
    void                *device;
    tni_simt_limits      limits;
    int                  batch;  // kernels of a program, at most
    tni_compiled_counts *counts;
} tni_compiled_opts;

// NULL when memory is out.
tni_compiled *tni_compiled_new(const tni_compiled_opts *o);
// Whether the device computes in f64; it does unless told otherwise.
void tni_compiled_doubles(tni_compiled *t, bool has);
bool tni_compiled_has_doubles(const tni_compiled *t);

// ---- generated kernels -------------------------------------------------------------------------

// A kernel compiled for one class of shapes; finish is NULL where main does it all. Complete before
// anyone sees it, and then never changed.
typedef struct tni_variant tni_variant;
struct tni_variant {
    tni_simt_class class;
    const tni_simt_layout *layout;  // of its words
    void                  *main, *finish;
    tni_registers          registers;  // the most of both
    tni_variant           *next;
};

// As the contract has them: entries for the kernels of a plan, and scratch for a launch. The entry
// may be NULL for the latter.
tn_status tni_compiled_prepare(tni_compiled *t, int n, const tni_launch *const *first, void **entry,
                               tni_text *why);
size_t    tni_compiled_room(tni_compiled *t, void *entry, const tni_launch *l);
// What a thread takes; nothing where nobody knows, or if no such launch was compiled for.
tni_registers tni_compiled_registers(tni_compiled *t, void *entry, const tni_launch *l);
// The functions and the shape for a launch; wide: with 64-bit places whatever the shape says. They
// are compiled now if no launch before asked for such. NULL with status and reason if they cannot
// be.
const tni_variant *tni_compiled_take(tni_compiled *t, void *entry, const tni_launch *l, bool wide,
                                     tni_simt *m, tn_status *s, tni_text *why);
// Whether a kernel can fail on an index.
bool tni_compiled_checks(const void *entry);

// ---- kernels written by hand -------------------------------------------------------------------

// A kernel of a text (group_text.h) for elements of dtype x and results of dtype y; NULL with
// status and reason if there is none.
void *tni_compiled_hand(tni_compiled *t, const char *const *text, const char *name, tn_dtype x,
                        tn_dtype y, tn_status *s, tni_text *why);

#endif
