// The checksum of a checkpoint: over each tensor's name, dtype, shape and bytes, and over each entry
// of the metadata besides the checksum itself. The order in the file does not count.
#ifndef TNI_TRAIN_CHECKSUM_H
#define TNI_TRAIN_CHECKSUM_H

#include "engine/engine.h"

enum { TNI_SUM_TEXT = 17 };  // with the 0 at its end

// Adds a tensor, whose value is computed, to a sum. False, reported by the op's name, on failure.
bool tni_sum_tensor(const char *op, const char *name, tn_tensor *t, uint64_t *sum);
void tni_sum_entry(const char *key, const char *text, uint64_t *sum);
// Adds all tensors of a file.
bool tni_sum_file(const char *op, tn_file *f, uint64_t *sum);
// A sum as the metadata has it: 16 digits to the base of 16.
void tni_sum_text(uint64_t sum, char text[TNI_SUM_TEXT]);

#endif
