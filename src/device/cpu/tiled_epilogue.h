// Runs the epilogue of a library op, a kernel that reads the op's result element by element, on
// each band of the result while the band is in the cache.
//
// The op cuts its result into bands, which are runs of whole rows, and each band into tiles, which
// threads compute in any order. The thread that completes the last tile of a band runs the kernel
// over the band. If an op does not announce its bands by tni_tiled_epilogue_begin, the kernel runs
// once, after the op.
#ifndef TNI_DEVICE_CPU_TILED_EPILOGUE_H
#define TNI_DEVICE_CPU_TILED_EPILOGUE_H

#include "base/pool.h"
#include "device/cpu/cpu_kernels.h"

typedef struct tni_tiled_epilogue tni_tiled_epilogue;
// Invariant: once started, every tile of every band is reported exactly once, and the kernel has
// run over all of the result when the last one is.
struct tni_tiled_epilogue {
    tni_c_main       *run;
    const tni_launch *l;
    int64_t     row_elements;  // elements of the result for each index of the kernel's first axis
    int         threads;       // that would run the kernel on its own
    int64_t     offset;        // of the product of a batch that is being computed, in elements
    int         tiles;         // of a band
    atomic_int *tiles_left;    // of each band: tiles still to be computed
    char       *scratch;       // of the kernel: worker_bytes for each worker
    size_t      worker_bytes;
    bool        started;  // an op has announced its bands
};

// Announces `bands` bands of `tiles` tiles each, which begin at multiples of `band` elements within
// every `whole` elements. Returns whether the kernel can run band by band; if so, every tile must
// be reported. epilogue may be NULL.
bool tni_tiled_epilogue_begin(tni_tiled_epilogue *epilogue, int64_t band, int64_t whole,
                              int64_t bands, int tiles);

// Reports a tile of band number `which`, which has `count` elements from `first` on.
void tni_tiled_epilogue_tile_done(tni_tiled_epilogue *epilogue, int64_t which, int64_t first,
                                  int64_t count, int worker);

// The same for a band of one tile that is not in the result but at `data`, so that the result
// itself is never stored: buffer is the kernel's that stands for it.
void tni_tiled_epilogue_band_at(tni_tiled_epilogue *epilogue, int buffer, char *data, int64_t first,
                                int64_t count, int worker);

// tni_parallel for items that compute a result of `all` elements band by band: each `tiles` items
// in a row compute the next `band` elements.
void tni_tiled_epilogue_parallel(tni_tiled_epilogue *epilogue, int threads, int64_t items,
                                 tni_task *task, void *arg, int tiles, int64_t band, int64_t all);

// The device's takes, scratch_with_epilogue and run_with_epilogue; see device.h.
bool      tni_cpu_takes(void *session, const tni_offer *o);
size_t    tni_cpu_scratch_with_epilogue(const tni_call *call, void *entry, const tni_launch *l);
tn_status tni_cpu_run_with_epilogue(const tni_call *call, void *entry, tni_launch *l,
                                    tni_text *why);

#endif
