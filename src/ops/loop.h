// Loops: a body that is recorded once and run for every step of a sequence, as one op of the outer
// graph.
//
//   tni_loop_build    nodes recorded over placeholders -> a body, kept by the context     loop_body.c
//   tni_loop_record   a body over sources -> the op `loop`                                loop.c
//   tni_grad_loop     its gradient: another loop, which runs the other way                grad/loop_rules.c
//   tni_run_loop      the body's plan, once for every step                                engine/run_loop.c
//
// A body reads carries (the state that goes from step to step), slices x[t] of stacks, and
// constants. It makes the next carries and further outputs, of which the op stacks the values of
// all steps:
//
//   carry -> [  body  ] -> carry'          output c of the op, for carry c: its last value, or, stacked, the values
//   x[t]  -> [        ] -> y               before and after every step, T + 1 of them
//   const -> [        ]                    outputs after the carries: the stack of T values of y
#ifndef TNI_OPS_LOOP_H
#define TNI_OPS_LOOP_H

#include "ops/ops.h"

// The most inputs and outputs of a body: of the first a bit each is kept, the second are outputs of
// one op.
enum { TNI_LOOP_INPUTS = 64, TNI_LOOP_OUTPUTS = TNI_MOST_OUTPUTS };

typedef struct tni_loop_grad tni_loop_grad;  // grad/loop_rules.c

// A body. Its nodes are its own: none needs a gradient, none is ever evaluated but as part of a run
// of the loop, and equal bodies are one, so that the second step of a training loop finds the plan
// of the first. A context keeps its bodies until it is closed.
// Invariant: node is in order of ids. in are placeholders: computed nodes in borrowed buffers,
// whose address is set for each step. out are among the nodes, and none of them is a placeholder, a
// view or twice there. The first `declared` outs are what it was built for; the others are values
// that gradients read, added when these are found.
struct tni_loop {
    tn_ctx    *cx;
    tni_loop  *next;
    int        carries, xs, consts;  // inputs, in this order
    int        outs, declared;
    size_t     count;
    tni_node **node;
    bool      *stops;  // by node: no gradient passes it, although its sources have one (tn_detach)
    tni_node  *in[TNI_LOOP_INPUTS], *out[TNI_LOOP_OUTPUTS];
    int64_t   *key;  // what it computes, as words
    size_t     words;
    tni_loop_grad *grads;
    void (*forget_grads)(tni_loop *l);
};

static inline int tni_loop_inputs(const tni_loop *l)
{
    return l->carries + l->xs + l->consts;
}

// What a body is made of. seed: nodes that stand for inputs, the carries first, then slices, then
// constants; root: for each carry its next value, then further outputs. What depends on no seed and
// was recorded before node number `first`, or needs no step, is an input too: a constant that is
// computed once, outside of the loop.
typedef struct {
    const char      *op;
    int              carries, xs, consts, roots;
    tni_node *const *seed, *const *root;
    uint64_t first;
    bool     all;  // nothing is an input but seeds
    // Results: inputs number carries + i is seed from[i], or, from `consts` seeds on, the node
    // captured[i]. Seeds after the carries that nothing reads are left out.
    int       from[TNI_LOOP_INPUTS];
    tni_node *captured[TNI_LOOP_INPUTS];
} tni_loop_parts;

// A placeholder: a node of a shape that is computed as far as recording can tell, and has no
// memory. NULL, reported, when memory is out.
tni_node *tni_placeholder(tn_ctx *cx, tn_dtype dt, int rank, const int64_t *size);
// Builds a body, or finds an equal one. NULL, reported, on failure.
tni_loop *tni_loop_build(tn_ctx *cx, tni_loop_parts *p);
// Makes a node of a body one more output; returns its number, or -1 if there is no room.
int tni_loop_add_out(tni_loop *l, tni_node *n);
// Frees the bodies of a context.
void tni_loops_close(tn_ctx *cx);

// Records a body without carries over all slices at once, each of its nodes with one axis more
// (vmap.c). in are its sources, row-major, out the outputs that y gets. False with *without_rule,
// unreported, if a node has no rule for that; false, reported, on failure.
bool tni_loop_batch(tn_ctx *cx, const tni_loop *l, tn_tensor *const *in, int64_t examples, int n,
                    const int *out, tn_tensor **y, bool *without_rule);

// Records a body over its sources, row-major and of the inputs' shapes, stacks with one axis more
// in front. y gets its declared outputs: carries as they are after the last step, stacks of the
// others. stack, if not NULL: gets the stacks of carries, those of the mask `stacked` and all if a
// gradient may be asked for. False, reported, on failure.
bool tni_loop_record(tn_ctx *cx, const tni_loop *l, tni_node *const *src, int64_t steps,
                     bool reverse, uint32_t stacked, tn_tensor **y, tn_tensor **stack);
// The outputs of the body that a run of a loop's node computes: carries, and those that something
// holds. Returns how many there are.
int tni_loop_roots(const tni_node *n, tni_node **root);
// The dtype and shape of output k of a loop's node.
tn_array tni_loop_output(const struct tni_attr_loop *a, int k);
// The values of a stack (T + 1, ...) of carries before each step, or (after) after each, as (T,
// ...); and after the last.
tn_tensor *tni_loop_slices(tn_tensor *stack, bool reverse, bool after);
tn_tensor *tni_loop_last(tn_tensor *stack, bool reverse);

#endif
