// What a step of a plan is, for those who show it: its name, its sizes, the bytes it moves, what it
// computes and the calls it comes from. The graph of the plan is open.
#ifndef TNI_INSPECT_STEP_FACTS_H
#define TNI_INSPECT_STEP_FACTS_H

#include "engine/engine.h"

// Bytes of a node's elements; of the different ones that are read through it where it is a source.
int64_t tni_node_bytes(const tni_node *n);
int64_t tni_source_bytes(const tni_node *n);
// Bytes that item i reads of its source number s; and bytes that it writes.
int64_t tni_read_bytes(const tni_graph *g, const tni_plan *p, size_t i, uint32_t s);
int64_t tni_written_bytes(const tni_graph *g, const tni_plan *p, size_t i);

// Whether a step does anything: it is a kernel, or a call of something.
bool tni_step_runs(const tni_graph *g, const tni_plan *p, tni_plan_step step);
// Bytes that it reads and writes, each element once.
int64_t tni_step_bytes(const tni_graph *g, const tni_plan *p, tni_plan_step step);
// "matmul", "ROW" or "matmul + POINT"; "(64, 128)" or "(64 | 128)", reduced axes behind the bar.
tni_text tni_step_name(const tni_graph *g, const tni_plan *p, tni_plan_step step);
tni_text tni_step_sizes(const tni_graph *g, const tni_plan *p, tni_plan_step step);

// What a step computes, an addition being 1 and every other op what the table says. products: in
// products of matrices alone (matmul, convolution, attention); dtype: theirs.
typedef struct {
    double   flops, products;
    tn_dtype dtype;
} tni_effort;

tni_effort tni_step_effort(const tni_graph *g, const tni_plan *p, tni_plan_step step);

// Describes the planned call of a step, without addresses, and returns how the device runs it; NULL
// if the step has none.
const tni_op_impl *tni_step_call(const tni_engine *e, const tni_graph *g, const tni_plan *p,
                                 tni_plan_step step, tni_call *c);

// What computes the library call of a step, in the device's words: "cuDNN"; and why the bits of its
// result may differ from run to run. NULL: there is nothing to say.
const char *tni_step_method(const tni_engine *e, const tni_graph *g, const tni_plan *p,
                            tni_plan_step step);
const char *tni_step_varies(const tni_engine *e, const tni_graph *g, const tni_plan *p,
                            tni_plan_step step);

// The calls that a step comes from, each line once; first that of a library op before its kernel.
// *at begins as 0; NULL behind the last.
const tni_node *tni_step_origin(const tni_graph *g, const tni_plan *p, tni_plan_step step, int *at);

#endif
