// Collectives as ops: what the row `custom` runs for them.
#ifndef TNI_OPS_COLLECTIVE_H
#define TNI_OPS_COLLECTIVE_H

#include "dist/world.h"

// Whether a definition is one of ours, whose errors have words of their own.
bool tni_is_collective(const tn_op_def *op);
// Runs one on the host. attr: the bytes of the node.
tn_status tni_collective_run(const void *attr, const tn_array *in, tn_array *out, tni_text *why);

#endif
