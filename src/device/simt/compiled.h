// What a device with work groups has compiled: generated kernels by their key and the class of
// their shape, kernels written by hand by their text and dtypes. All of it lives until the process
// ends, since a driver keeps what was loaded.
#ifndef TNI_SIMT_COMPILED_H
#define TNI_SIMT_COMPILED_H

#include "device/device.h"
#include "kernel/simt.h"
#include "kernel/simt_interpreter.h"

#include <stdatomic.h>

// How a device compiles. build makes a program of a text: from the disk, where it may be, or, unless
// kind says otherwise, by the compiler; found says whether it was on disk. NULL with TN_OK: it is not
// on disk, and was only to be looked for. function finds a kernel of a program. registers tells what a
// thread of it takes; NULL where nobody knows. Several threads may be in them at once.
typedef enum { TNI_BUILD_OPTIMIZED, TNI_BUILD_QUICK, TNI_BUILD_FROM_DISK } tni_build_kind;
typedef struct {
    const tni_dialect *dialect;
    void *(*build)(void *device, const char *source, const char *what, tni_build_kind kind,
                   bool *found, tn_status *s, tni_text *why);
    tn_status (*function)(void *device, void *program, const char *name, void **f, tni_text *why);
    tni_registers (*registers)(void *device, void *f);
} tni_compiler;

// Kernels compiled and kernels found on disk so far, by all devices of a kind.
typedef struct {
    atomic_llong compiled, found;
} tni_compiled_counts;

// The kernels of one device. The device owns it.
typedef struct tni_compiled tni_compiled;

typedef struct {
    const tni_compiler  *by;
    void                *device;
    tni_simt_limits      limits;
    int                  batch;       // kernels of a program, at most
    bool                 background;  // programs are built by other threads meanwhile
    tni_compiled_counts *counts;
} tni_compiled_opts;

// NULL when memory is out.
tni_compiled *tni_compiled_new(const tni_compiled_opts *o);
// Whether the device computes in f64; it does unless told otherwise, before any other thread has the table.
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
// may be NULL for the latter. wait: all of them are compiled when it returns; else those that are not
// on disk come later, where the device has a background.
tn_status tni_compiled_prepare(tni_compiled *t, int n, const tni_launch *const *first, void **entry,
                               bool wait, tni_text *why);
size_t    tni_compiled_scratch(tni_compiled *t, void *entry, const tni_launch *l);
// Whether a launch has been compiled for, or cannot be.
bool tni_compiled_ready(tni_compiled *t, void *entry, const tni_launch *l);
// What a thread takes; nothing where nobody knows, or if no such launch was compiled for.
tni_registers tni_compiled_registers(tni_compiled *t, void *entry, const tni_launch *l);
// The functions and the shape for a launch; wide: with 64-bit places whatever the shape says. If no
// launch before asked for such they are compiled, and, with wait, waited for. NULL with TN_OK: they are
// not there yet; NULL with another status and the reason: they cannot be had.
const tni_variant *tni_compiled_variant(tni_compiled *t, void *entry, const tni_launch *l,
                                        bool wide, bool wait, tni_simt *m, tn_status *s,
                                        tni_text *why);
// Whether a kernel can fail on an index.
bool tni_compiled_checks(const void *entry);

// ---- kernels written by hand -------------------------------------------------------------------

// A kernel of a text (group_text.h) for elements of dtype x and results of dtype y; NULL with
// status and reason if there is none.
void *tni_compiled_group_kernel(tni_compiled *t, const char *const *text, const char *name,
                                tn_dtype x, tn_dtype y, tn_status *s, tni_text *why);
// The same soon: begins to compile its text in the background. Whether it is there already.
bool tni_compiled_group_kernel_soon(tni_compiled *t, const char *const *text, tn_dtype x,
                                    tn_dtype y);

// ---- the interpreter ---------------------------------------------------------------------------

// The interpreter (kernel/simt_interpreter.h) of a level or of a higher one, whatever is there first;
// NULL if there is none.
void *tni_compiled_interpreter(tni_compiled *t, tni_interpreter_level level);
// Begins to compile all of them in the background.
void tni_compiled_interpreters_soon(tni_compiled *t);

#endif
