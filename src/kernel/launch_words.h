// What the shape of a launch follows from, besides its kernel, settings and the limits of the
// device.
#ifndef TNI_KERNEL_LAUNCH_WORDS_H
#define TNI_KERNEL_LAUNCH_WORDS_H

#include "kernel/kernel.h"

// The widest load or store of a thread of a GPU (uint4): addresses count by their alignment to as
// much.
enum { TNI_VECTOR_BYTES = 16 };
// Random numbers that are drawn together.
enum { TNI_RANDOM_BLOCK = 4 };
enum { TNI_LAUNCH_WORDS = TNI_AXES + TNI_MAX_ACCESSES * (TNI_AXES + 2) };

// The element at which an access to memory begins, modulo v, counted from an address that is
// aligned to v elements; -1 if the buffer is not even aligned to its elements, as a user's memory
// may be.
int64_t tni_access_start(const tni_launch *l, int access, int v);

// Writes the words of a launch: launches of a kernel with equal words have equal shapes, whatever
// their addresses, offsets and numbers are. So a shape is chosen once for all of them, and what was
// measured for one is used for all. Returns how many there are.
int tni_launch_words(const tni_launch *l, int64_t word[TNI_LAUNCH_WORDS]);

#endif
