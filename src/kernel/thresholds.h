// The numbers by which the planner and the emitters decide what is computed together, what is kept
// and what is computed again: one place to look at for another chip, and what measuring may
// replace. Costs are those of ops.def, in additions for each element.
#ifndef TNI_THRESHOLDS_H
#define TNI_THRESHOLDS_H

enum {
    // ---- computed again, or kept for the next loop of a kernel: the cost from which on a value is
    // kept. Keeping costs most on a GPU, where it takes registers that the row's elements need too;
    // less in a tile of the interpreter, which is stored and loaded by calls of their own; least in
    // compiled C, where the loop that uses it also loads it, from cache. 8 is the cost of an exp,
    // so on a GPU only transcendental functions and long chains are kept.
    TNI_KEEP_COST_GPU         = 8,
    TNI_KEEP_COST_INTERPRETED = 6,
    TNI_KEEP_COST_C           = 4,

    // ---- computed by each of its readers, or stored once by a kernel of its own. Storing an f32
    // and loading it moves 8 bytes, for which an H200 (4.2 TB/s, 60 TFLOP/s) could do 57 additions;
    // half of that leaves time for what the readers compute besides.
    TNI_INLINE_COST = 30,
    // Reading more values than this to compute one moves more than storing the result and loading
    // it in each reader would.
    TNI_INLINE_READS = 4,
    // A value of which each element is loaded for at least this many points is in cache, and no
    // load that counts: a bias, the statistic of a row.
    TNI_CACHED_POINTS = 8,
    // What one reader takes in of values that no other item reads, by cost and by values read. Such
    // a value costs nothing twice, so both are larger than above; more makes kernels whose values a
    // thread's registers do not hold.
    TNI_READER_COST  = 40,
    TNI_READER_READS = 10,
    // Items and loads that are told apart while these are counted: beyond all of the limits above.
    TNI_TALLY = 64,
    // A value that would be computed several times for each element (under a window, or a repeated
    // index) is stored from the cost of an exp on; and one whose readers together would spend more
    // than eight times that on it.
    TNI_REPEAT_COST  = 8,
    TNI_REPEATS_COST = 64,

    // ---- computed by a kernel that would load it, though it is in memory, if all that it is made
    // from is loaded there anyway: up to this cost for each byte. An H200 does 14 additions while
    // it loads one; half of that leaves time for the rest.
    TNI_AGAIN_COST = 7,

    // ---- joined into one kernel. Units that only share an input are joined if they were recorded
    // within this many ids of each other: about one layer, or its gradient. Joining what is farther
    // apart would keep the values in between alive for longer.
    TNI_JOIN_NEAR = 200,
    // Units that a seed may try to join, and units visited before the search for a cycle gives up
    // (and does not join). Both bound the time of planning, which is their product for every seed;
    // a miss costs a launch, not correctness.
    TNI_JOIN_UNITS  = 12,
    TNI_JOIN_VISITS = 400,
    // Values that a kernel picks from by position (a concat): each is a branch for every element.
    TNI_JOIN_PARTS = 4,

    // ---- folded. A row of that many elements is worth tails instead of a main reduction, if there
    // are fewer rows than the device has lanes. The last stage of a ResNet-50 has 3136 places of
    // 2048 channels in a batch of 64: on an H200 its training step took 9.84 ms with main
    // reductions, 8.92 with tails.
    TNI_MANY_FOLDED = 1024,

    // ---- overwritten. Rows of at least this many elements are read by several warps together: see
    // memory.c.
    TNI_LONG_ROW = 8192,

    // ---- unrolled. Elements that a window folds for each row (4 x 4, a usual pooling), and
    // instructions of the kernel afterwards: three quarters of TNI_MAX_INS.
    TNI_UNROLL_ELEMENTS = 16,
    TNI_UNROLL_INS      = 144
};

#endif
