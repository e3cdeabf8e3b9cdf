// graphs.h: random graphs for the planner: views, broadcasts, reductions over any axes, mixed
// dtypes, writes in place, several outputs. A graph is a list of steps made of random numbers; what
// a step means depends on the values there are, and it always means something, so that a graph
// stays one when steps are taken out.
#ifndef TEST_GRAPHS_H
#define TEST_GRAPHS_H

#include "tenon.h"

#include <stdio.h>

enum { GRAPH_STEPS = 28, GRAPH_VALUES = 48, GRAPH_ARGS = 6, GRAPH_MOST = 6000 };

typedef struct {
    uint32_t kind, r[GRAPH_ARGS];
} graph_step;

typedef struct {
    uint64_t   seed;
    int        count;
    graph_step step[GRAPH_STEPS];
} graph;

// What a graph gave: its outputs one after the other, how near each has to be, and where each
// began.
typedef struct {
    double *x, *near;
    int64_t count, cap;
    int     outputs;
    char    error[256];
} graph_result;

void graph_draw(graph *g, uint64_t seed);
// Builds the graph in cx, evaluates it as one step, and reads its outputs. Listed as C, if a file
// is given. False with an error, or when memory is out.
bool graph_run(const graph *g, tn_ctx *cx, graph_result *out, FILE *listing);
// Whether have is near want, which is ref's; why not, in text[256].
bool graph_agree(const graph_result *want, const graph_result *have, char *text);
void graph_result_free(graph_result *r);

#endif
