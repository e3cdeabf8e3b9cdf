// The checksum of a checkpoint: over each tensor's name, dtype, shape and bytes, and over each
// entry of the metadata besides the checksum itself. The order in the file does not count.
//
// How it is computed is part of the format: if it changed, every file written before would be taken
// for damaged.
#ifndef TNI_TRAIN_CHECKSUM_H
#define TNI_TRAIN_CHECKSUM_H

#include "engine/engine.h"

#define TNI_SUM_KEY "checksum"  // its entry of the metadata
enum { TNI_SUM_TEXT = 17 };     // with the 0 at its end

// The sum of bytes, and of two sums in this order.
uint64_t tni_sum_bytes(const void *data, size_t n);
uint64_t tni_sum_join(uint64_t a, uint64_t b);

// Adds a tensor, whose value is computed, to a sum. False, reported by the op's name, on failure.
bool tni_sum_tensor(const char *op, const char *name, tn_tensor *t, uint64_t *sum);
void tni_sum_entry(const char *key, const char *text, uint64_t *sum);
// Adds everything in a file that counts.
bool tni_sum_file(const char *op, tn_file *f, uint64_t *sum);
// A sum as the metadata has it: 16 digits to the base of 16.
void tni_sum_text(uint64_t sum, char text[TNI_SUM_TEXT]);

#endif
