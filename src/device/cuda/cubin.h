// CUDA text to machine code, by NVRTC. It needs no GPU and no driver, so that tests compile what a
// GPU would run on machines without one.
#ifndef TNI_CUDA_CUBIN_H
#define TNI_CUDA_CUBIN_H

#include "base/text.h"
#include "tenon.h"

// Machine code for one kind of chip, and the compiler's log. Freed by tni_cubin_free.
typedef struct {
    char  *image;
    size_t bytes;
    char  *log;
} tni_cubin;

// What a function uses: registers per thread, bytes of shared memory that its text declares, bytes
// of stack per thread, and bytes of spilled registers, stores and loads together.
typedef struct {
    int registers, shared, stack, spills;
} tni_usage;

// Compiles for a chip ("sm_90"). with_usage: the log is to report what each function uses, so that
// no cache is used. On failure *why has the first error, and c->log, which is still to be freed,
// all of them.
tn_status tni_cubin_compile(tni_cubin *c, const char *text, const char *chip, bool with_usage,
                            tni_text *why);
// Finds machine code in the disk cache or compiles it, without usage; found says which. quick:
// compile in less time to slower code.
tn_status tni_cubin_get(tni_cubin *c, const char *text, const char *chip, bool quick, bool *found,
                        tni_text *why);
// Looks in the disk cache alone. Returns false if it is not there.
bool tni_cubin_find(tni_cubin *c, const char *text, const char *chip);
void tni_cubin_free(tni_cubin *c);

// Reads what a function uses from the log of a compilation with usage; false if the log does not
// name it.
bool tni_cubin_usage(const tni_cubin *c, const char *function, tni_usage *u);

#endif
