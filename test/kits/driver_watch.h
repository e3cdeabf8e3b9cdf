// driver_watch.h: counts what is asked of the CUDA driver, whatever the library says of itself.
#ifndef TEST_DRIVER_WATCH_H
#define TEST_DRIVER_WATCH_H

#include "tenon.h"

// The host waits: for a stream, for the context, or for an event that has not come yet.
typedef enum {
    WATCH_GRAPHS,
    WATCH_KERNELS,  // launched outside of a graph, with copies and fills on the device
    WATCH_UPLOADS,
    WATCH_DOWNLOADS,
    WATCH_WAITS,
    WATCH_MEMORY,    // taken or given back, on the device or pinned on the host
    WATCH_MODULES,   // loaded
    WATCH_CAPTURES,  // begun, and graphs made
    WATCH_KINDS
} watch_kind;

// From here on calls for the GPU of a context are counted, for the life of the process; false, and
// nothing is, if it is on another device. Work that cuBLASLt starts by itself is not seen.
bool    driver_watch(tn_ctx *cx);
int64_t driver_watched(watch_kind k);

#endif
