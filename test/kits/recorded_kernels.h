// recorded_kernels.h: the kernels that the tests of a run make, seen where plans are built (the
// linker puts a function of ours before tni_plan_build) and kept for a test that looks at all of
// them.
#ifndef TEST_RECORDED_KERNELS_H
#define TEST_RECORDED_KERNELS_H

#include "kernel/simt.h"

// What an H200 has.
extern const tni_simt_limits recorded_chip;

// A kernel as an H200 would have it compiled: one for each text of a file. Of `kernel` only the
// instructions it has are there; so it is read where it lies, and not copied.
typedef struct {
    const char *file;   // of tests, by the name it is listed under
    int         place;  // of the file among all
    uint64_t    text;   // a hash: it is the same for the same text
    tni_simt    shape,
        few_registers;  // few_registers: what a device compiles besides, where the other spills
    tni_kernel kernel;
} recorded_kernel;

// Begins a record that this process and all it forks from now on add to, in memory they share.
// Without it, and where there is no such memory, nothing is recorded.
void recorded_open(void);
// The file of tests whose kernels come now, and its place among all; NULL: they are not recorded.
void recorded_from(const char *file, int place);

// How many there are.
int recorded_count(void);
// Each text once, of the first file that has it, file after file: the same list however many files
// ran at once. There is room for recorded_count(); returns how many it put there.
int recorded_list(const recorded_kernel **to);
// How many had no room.
int recorded_lost(void);
// Plans that should have been fused and could not be.
int recorded_unfused(void);
// Whether this program sees plans at all.
bool recorded_can(void);

#endif
