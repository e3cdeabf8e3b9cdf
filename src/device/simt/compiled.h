// The kernels that a device with work groups has compiled: generated ones by their key and the
// class of their shape, hand-written ones by text and dtypes. They live until the process ends,
// since drivers keep what was loaded.
#ifndef TNI_SIMT_COMPILED_H
#define TNI_SIMT_COMPILED_H

#include "device/device.h"
#include "kernel/simt.h"
#include "kernel/simt_interpreter.h"

#include <stdatomic.h>

// How a device compiles. build makes a program of a text: from disk, if it is there, else by the
// compiler, optimized or quickly; with TNI_BUILD_FROM_DISK only from disk. *found says whether it
// was on disk. NULL with TN_OK: it is not on disk, and was only to be looked for. function finds a
// kernel of a program. registers tells what a thread of it uses; NULL if the device cannot tell.
// Several threads may call them at once.
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

// How a table compiles, and for what.
typedef struct {
    const tni_compiler  *by;
    void                *device;
    tni_simt_limits      limits;
    int                  batch;       // most kernels of a program
    bool                 background;  // programs are built by background threads
    tni_compiled_counts *counts;
    const char          *chip;  // what winners of measurements are kept for
} tni_compiled_opts;

// Makes an empty table; NULL when memory is out.
tni_compiled *tni_compiled_new(const tni_compiled_opts *o);
// Says whether the device computes in f64, which is assumed otherwise; to be called before other
// threads see the table.
void tni_compiled_doubles(tni_compiled *t, bool has);
bool tni_compiled_has_doubles(const tni_compiled *t);

// ---- generated kernels -------------------------------------------------------------------------

typedef struct tni_variant tni_variant;

// A kernel compiled for one class of shapes; finish is NULL if main does it all. Invariant:
// complete before it is linked into its entry, and never changed afterwards.
struct tni_variant {
    tni_simt_class class;
    const tni_simt_layout *layout;  // of its words
    void                  *main, *finish;
    tni_registers          registers;  // the larger of main's and finish's
    tni_variant           *next;
};

// The contract's prepare. wait: all kernels are compiled when it returns; otherwise those that are
// not on disk follow later, if the device has a background.
tn_status tni_compiled_prepare(tni_compiled *t, int n, const tni_launch *const *first, void **entry,
                               bool wait, tni_text *why);
// The contract's settings: those that launches like l have now, if l brings none.
void tni_compiled_settings(tni_compiled *t, void *entry, const tni_launch *l, tni_tuning *now);
// Returns the scratch of a launch; entry may be NULL.
size_t tni_compiled_scratch(tni_compiled *t, void *entry, const tni_launch *l);
// Returns whether a launch's kernel is compiled, or cannot be.
bool tni_compiled_ready(tni_compiled *t, void *entry, const tni_launch *l);
// Returns what a thread uses; zeros if that is not known, or no such launch was compiled for.
tni_registers tni_compiled_registers(tni_compiled *t, void *entry, const tni_launch *l);
// Returns the functions and, in m, the shape for a launch; wide: with 64-bit offsets whatever the
// shape says. If they do not exist yet they are compiled and, with wait, waited for. NULL with
// TN_OK: not compiled yet; NULL with another status and the reason: they cannot be.
const tni_variant *tni_compiled_variant(tni_compiled *t, void *entry, const tni_launch *l,
                                        bool wide, bool wait, tni_simt *m, tn_status *s,
                                        tni_text *why);
// Of the contract: neighbours, expect, retuned, chip.
int  tni_compiled_neighbours(const tni_compiled *t, const tni_launch *l, const tni_tuning *from,
                             tni_tuning *dst, int room);
void tni_compiled_expect(tni_compiled *t, void *entry, const tni_launch *l, bool now);
void tni_compiled_retuned(tni_compiled *t, void *entry);
const char *tni_compiled_chip(const tni_compiled *t);
// Returns the text of the kernel of a launch without what every program begins with, freed by
// tni_free; NULL if there is none.
char *tni_compiled_source(const tni_compiled *t, tni_heap *h, const tni_launch *l);
// Returns whether a kernel can fail on an index.
bool tni_compiled_checks(const void *entry);

// ---- hand-written kernels ----------------------------------------------------------------------

// Returns a kernel of a hand-written text (group_text.h) for elements of dtype x and results of
// dtype y, after waiting for the compiler; NULL with status and reason if it cannot be compiled.
void *tni_compiled_group_kernel(tni_compiled *t, const char *const *text, const char *name,
                                tn_dtype x, tn_dtype y, tn_status *s, tni_text *why);
// Starts to compile such a text in the background, ahead of others. Returns whether it is compiled.
bool tni_compiled_group_kernel_soon(tni_compiled *t, const char *const *text, tn_dtype x,
                                    tn_dtype y);

// A program of any text, which its caller printed. It lives as long as the table.
typedef struct tni_text_program tni_text_program;

// Returns the program of a text, which it takes over, and starts to build it in the background,
// ahead of others; equal texts have one program. NULL when memory is out, or if text is NULL.
tni_text_program *tni_compiled_text(tni_compiled *t, char *text, const char *what);
// Returns a kernel of a program after waiting for the compiler; NULL with status and reason if it
// cannot be compiled.
void *tni_compiled_text_kernel(tni_text_program *p, const char *name, tn_status *s, tni_text *why);

// ---- the interpreter ---------------------------------------------------------------------------

// Returns the interpreter (kernel/simt_interpreter.h) of a level or of a higher one; NULL if there
// is none.
void *tni_compiled_interpreter(tni_compiled *t, tni_interpreter_level level);
// Starts to compile all of them in the background.
void tni_compiled_interpreters_soon(tni_compiled *t);

#endif
