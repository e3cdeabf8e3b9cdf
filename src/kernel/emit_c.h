// The C skeleton's interface: how a cpu device calls compiled kernels.
//
// A kernel NAME becomes a function NAME that runs units first .. last-1, which are one chunk, and,
// where it has tails, NAME_finish, to be called once after all chunks. Sums have the order that
// kernel.h says. Compile with -ffp-contract=off -fwrapv -fno-math-errno -fno-trapping-math.
#ifndef TNI_KERNEL_EMIT_C_H
#define TNI_KERNEL_EMIT_C_H

#include "kernel/emit.h"
#include "kernel/tuning.h"

// The functions of a compiled kernel. buffer, number: of the launch. arg: see tni_emit_c_args.
// partials: of all chunks, eight bytes times tni_work_split.partials for each chunk. scratch:
// tni_emit_c_scratch bytes of this thread's own, aligned to 64. fail: as in the launch; a failing
// CHECK writes it unless fail[0] is set, without synchronization with other threads: any one of the
// failures may be reported.
typedef void tni_c_main(char *const *buffer, const int64_t *arg, const uint64_t *number,
                        int64_t first, int64_t last, int64_t chunk, char *partials, char *scratch,
                        int64_t *fail);
typedef void tni_c_finish(char *const *buffer, const int64_t *arg, const uint64_t *number,
                          int64_t chunks, char *partials, char *scratch);

enum { TNI_C_MAX_ARGS = TNI_AXES + TNI_MAX_ACCESSES * (TNI_AXES + 2) + 1 };

// How a launch stores what it computes for neighbours: at once, or by strips, which stay in the
// cache of the core until they are copied to memory, through the caches or past them. Only kernels
// of a dialect with streams have the last two. Texts have the numbers.
typedef enum { TNI_STORES_DIRECT, TNI_STORES_STRIPS, TNI_STORES_PAST } tni_c_stores;

// Writes the sizes of all axes, then, for each access, its offset, its stride along each axis
// and that of its index, and last how it stores; returns the number of words.
int tni_emit_c_args(const tni_launch *l, tni_c_stores stores, int64_t *arg);

// Finds how many values the kernel keeps for each element of a row: of 4 bytes, and of 8.
void tni_emit_c_rows(const tni_kernel *k, int rows[2]);
// Returns the bytes of scratch that a thread needs; the second, for a device that remembers the
// rows.
size_t tni_emit_c_scratch(const tni_launch *l);
size_t tni_c_scratch_bytes(const int rows[2], int64_t cols);

// The skeleton, for tni_emit_program. The opts of an item are its settings (tni_tuning); NULL: the
// rule's.
tni_skeleton tni_emit_c;
// Returns those of some settings that the text depends on; NULL: the rule's. None of them changes a
// bit of a result.
tni_tuning tni_emit_c_settings(const tni_tuning *t);

#endif
