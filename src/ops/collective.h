// Collectives as ops: what the row `custom` runs for them.
#ifndef TNI_OPS_COLLECTIVE_H
#define TNI_OPS_COLLECTIVE_H

#include "dist/world.h"

#include "ops/ops.h"

// Whether a definition is one of ours, whose errors have words of their own; whether a node is a
// collective.
bool               tni_is_collective(const tn_op_def *op);
static inline bool tni_node_is_collective(const tni_node *n)
{
    return n->op == TNI_custom && tni_is_collective(n->attr.custom.def);
}
// Whether its result may be written over what it reads.
bool tni_collective_in_place(const tni_node *n);
// What such a node is, to be compared with other ranks; its world.
tni_line_item tni_collective_item(const tni_node *n);
tn_dist      *tni_collective_world(const tni_node *n);
// Runs one on the host. attr: the bytes of the node.
tn_status tni_collective_run(const void *attr, const tn_array *in, tn_array *out, tni_text *why);
// Whether it goes into a stream of the device instead; and that. busy, arg: as in tni_dist_start.
bool      tni_collective_streams(const void *attr);
tn_status tni_collective_start(const void *attr, const tn_array *in, const tn_array *out,
                               void *stream, tni_dist_busy *busy, void *arg, tni_text *why);

#endif
