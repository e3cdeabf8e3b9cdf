// CUDA text to machine code, by NVRTC. It needs no GPU and no driver, so that tests compile what a
// GPU would run.
#ifndef TNI_CUDA_CUBIN_H
#define TNI_CUDA_CUBIN_H

#include "base/text.h"
#include "tenon.h"

// Machine code for one kind of chip, and what the compiler said of it. Whoever made it frees it.
typedef struct {
    char  *image;
    size_t bytes;
    char  *log;
} tni_cubin;

// What a function takes of a multiprocessor: registers of a thread, bytes of shared memory that the
// text declares, bytes of a thread's stack, and how many of them are spilled registers, stores and
// loads together.
typedef struct {
    int registers, shared, stack, spills;
} tni_usage;

// Compiles for a chip ("sm_90"); with_usage: the log is to tell what each function takes, so that nothing
// is taken from a cache. On failure *why has the first error of the text, and c->log, which is still
// to be freed, all of them.
tn_status tni_cubin_compile(tni_cubin *c, const char *text, const char *chip, bool with_usage,
                            tni_text *why);
// The same without a with_usage, from the disk cache if it is there; found says so. quick: compiled in less
// time, to code that is slower.
tn_status tni_cubin_get(tni_cubin *c, const char *text, const char *chip, bool quick, bool *found,
                        tni_text *why);
// The same from the disk cache alone. False if it is not there.
bool tni_cubin_find(tni_cubin *c, const char *text, const char *chip);
void tni_cubin_free(tni_cubin *c);

// What the assembler wrote of a function, where it was to; false if there is no such function.
bool tni_cubin_usage(const tni_cubin *c, const char *function, tni_usage *u);

#endif
