// graph_ways.h: ways to run random graphs, each against ref.
#ifndef TEST_GRAPH_WAYS_H
#define TEST_GRAPH_WAYS_H

#include "tenon.h"

// A way to run graphs: a device with what the environment says as its context opens.
typedef struct {
    const char *name, *device, *variable, *setting;
} graph_way;

tn_ctx *graph_way_open(const graph_way *w);
// The context of the way after *w, which becomes it, in a list that ends with a way without a name;
// cx, that of *w, is closed, and an error left in it is a failure. NULL for cx begins, and NULL is
// the end. A way that is not here is left out, with a line that says so.
tn_ctx *graph_way_next(const graph_way *list, const graph_way **w, tn_ctx *cx);
// Runs graphs from a seed on, each a case of the running test, or the one that TN_GRAPH names; ends
// after three that fail. Skips the test if the device is not here.
void graph_way_run(const graph_way *w, uint64_t first, int count);
// The same in a context that was opened so, which is closed.
void graph_way_run_in(const graph_way *w, tn_ctx *cx, uint64_t first, int count);

#endif
