// Score programs: what attention makes of a score before the softmax, as a list of instructions.
#ifndef TNI_OPS_SCORE_H
#define TNI_OPS_SCORE_H

#include "ops/op_table.h"

// Tensors that a program reads, at most.
enum { TNI_SCORE_SOURCES = 4 };

#endif
