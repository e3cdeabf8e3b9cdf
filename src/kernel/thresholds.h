// The numbers by which the planner and the emitters decide what is computed together, what is kept and
// what is computed again: one place to look at for another chip, and what measuring may replace. Costs are
// those of ops.def, in additions an element.
#ifndef TNI_THRESHOLDS_H
#define TNI_THRESHOLDS_H

enum {
    // ---- computed again, or kept for the next loop of a kernel. Keeping costs most on a GPU, where it
    // takes registers that the rows need, cheaper in a tile of the interpreter, which is stored and loaded
    // by calls of their own, and cheapest in a tile of compiled C.
    TNI_KEEP_COST_GPU         = 8,
    TNI_KEEP_COST_INTERPRETED = 6,
    TNI_KEEP_COST_C           = 4,

    // ---- computed by each of its readers, or stored by a kernel of its own, once. Storing an f32 and
    // loading it moves 8 bytes, for which an H200 (4.2 TB/s, 60 TFLOP/s) could do 57 additions; half of
    // that leaves room for what the readers compute besides. Reading more than so many values to compute
    // one moves more than storing it would.
    TNI_INLINE_COST  = 30,
    TNI_INLINE_READS = 4,
    TNI_INLINE_BYTES = 1 << 20,  // what a cache holds: moving less is not counted
    // What one reader takes in of values that nobody else reads. More makes kernels whose values a
    // thread's registers do not hold.
    TNI_FLOAT_COST  = 40,
    TNI_FLOAT_READS = 10,
    // Not computed several times an element (under a window, or a repeated index) from the cost of an exp
    // on; nor by all of its readers, if they together spend more than eight of those on it.
    TNI_REPEAT_COST  = 8,
    TNI_REPEATS_COST = 64,

    // ---- joined into one kernel. Units that only share an input are joined if they were recorded within
    // so many ids: those of one layer or of its gradient. Farther ones would keep values alive in between.
    TNI_JOIN_NEAR = 200,
    // Units that a seed may join, and units looked at before the search for a cycle gives up (and does
    // not join). Both bound the time of planning: it is their product, for every seed.
    TNI_JOIN_UNITS  = 12,
    TNI_JOIN_VISITS = 400,
    TNI_JOIN_PARTS  = 4,  // values that a kernel picks from by place: each is a branch an element

    // ---- unrolled. Elements that a window folds for each row (4 x 4), and instructions of the kernel in
    // the end, two thirds of what a kernel may have.
    TNI_UNROLL_ELEMENTS = 16,
    TNI_UNROLL_INS      = 128
};

#endif
