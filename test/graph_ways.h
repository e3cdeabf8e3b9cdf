// graph_ways.h: ways to run random graphs, each against ref.
#ifndef TEST_GRAPH_WAYS_H
#define TEST_GRAPH_WAYS_H

#include "tenon.h"

// A way to run graphs: a device with what the environment says as its context opens.
typedef struct {
    const char *name, *device, *variable, *setting;
} graph_way;

tn_ctx *graph_way_open(const graph_way *w);
// Runs graphs from a seed on, each a case of the running test, or the one that TN_GRAPH names; ends
// after three that fail. Skips the test if the device is not here.
void graph_way_run(const graph_way *w, uint64_t first, int count);
// The same in a context that was opened so, which is closed.
void graph_way_run_in(const graph_way *w, tn_ctx *cx, uint64_t first, int count);

#endif
