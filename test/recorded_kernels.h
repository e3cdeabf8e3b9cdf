// recorded_kernels.h: the kernels that the tests of a run make, seen where plans are built (the
// linker puts a function of ours before tni_plan_build) and kept for a test that looks at all of
// them.
#ifndef TEST_RECORDED_KERNELS_H
#define TEST_RECORDED_KERNELS_H

#include "kernel/simt.h"

// What an H200 has.
extern const tni_simt_limits recorded_chip;

// A kernel as an H200 would have it compiled: one for each text. Of `kernel` only the instructions
// it has are there; so it is read where it lies, and not copied.
typedef struct {
    const char *file;  // of tests, by the name it is listed under
    tni_simt    shape;
    tni_kernel  kernel;
} recorded_kernel;

// Begins a record that this process and all it forks from now on add to, in memory they share.
// Without it, and where there is no such memory, nothing is recorded.
void recorded_open(void);
// The file of tests whose kernels come now; NULL: they are not recorded.
void recorded_from(const char *file);

// How many there are, and number i in the order they came; NULL if who wrote it died over it.
int                    recorded_count(void);
const recorded_kernel *recorded_get(int i);
// How many had no room.
int recorded_lost(void);
// Plans that should have been fused and could not be.
int recorded_unfused(void);
// Whether this program sees plans at all.
bool recorded_can(void);

#endif
