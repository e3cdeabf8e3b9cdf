// What follows a library op: a kernel, run part by part while the op's result is in the cache.
//
// The op cuts its result into parts, runs of elements, and parts into pieces, which threads compute
// in any order; whoever computes the last piece of a part runs the kernel over it. What an op does
// not announce by tni_tiled_epilogue_begin follows when all of it is done.
#ifndef TNI_DEVICE_CPU_TILED_EPILOGUE_H
#define TNI_DEVICE_CPU_TILED_EPILOGUE_H

#include "base/pool.h"
#include "device/cpu/cpu_kernels.h"

typedef struct tni_tiled_epilogue tni_tiled_epilogue;
struct tni_tiled_epilogue {
    tni_c_main       *run;
    const tni_launch *l;
    int64_t           along;    // elements of the result for each index of the kernel's first axis
    int               threads;  // that the kernel alone would be run by
    int64_t           base;     // where the result that is being computed begins, in elements
    int               pieces;   // of a part
    atomic_int       *left;     // pieces of each part still to come
    char             *rooms;    // of the kernel, one a worker
    size_t            room;
    bool              begun;
};

// Whether the kernel can follow parts: `parts` of them, each of `pieces` pieces, beginning at
// multiples of `part` in each `whole` elements. then may be NULL. If so, every piece is to be told.
bool tni_tiled_epilogue_begin(tni_tiled_epilogue *epilogue, int64_t part, int64_t whole,
                              int64_t parts, int pieces);

// A piece of part number `which` is there, which has `count` elements from `first` on.
void tni_tiled_epilogue_piece(tni_tiled_epilogue *epilogue, int64_t which, int64_t first,
                              int64_t count, int worker);

// tni_parallel of items that compute a result of `all` elements part by part: `pieces` items, one
// after the other, compute the next `part` elements.
void tni_tiled_epilogue_parallel(tni_tiled_epilogue *epilogue, int threads, int64_t items,
                                 tni_task *task, void *arg, int pieces, int64_t part, int64_t all);

// What the device offers.
bool      tni_cpu_takes(void *session, const tni_offer *o);
size_t    tni_cpu_scratch_with_epilogue(const tni_call *call, void *entry, const tni_launch *l);
tn_status tni_cpu_run_with_epilogue(const tni_call *call, void *entry, tni_launch *l,
                                    tni_text *why);

#endif
