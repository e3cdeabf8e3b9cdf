// Replay: a plan that runs again and again becomes one launch of a graph.
//
// Between begin and end of a run everything that goes into a session's stream comes through here. The
// first runs of a plan launch at once. Then nothing is launched at first: record would have been is
// written down, and at the end compared with the graphs that were captured of the plan. Kernels
// whose arguments differ get new ones in the graph; work of libraries, which cannot be changed, has
// to be at the same addresses. If no graph fits, the run is done over and captured; if that happens
// too often, the plan is launched plainly from then on. So is a plan of one kernel: it costs less than
// a graph does, and overlaps with record is ahead of it, which a graph does not. A kernel whose last
// group joins record all have left is better off without the overlap, and is a graph even alone.
#ifndef TNI_CUDA_REPLAY_H
#define TNI_CUDA_REPLAY_H

#include "device/cuda/driver.h"
#include "device/device.h"

typedef enum { TNI_REPLAY_LAUNCH, TNI_REPLAY_RECORD, TNI_REPLAY_CAPTURE } tni_replay_mode;

// A kernel that was launched. Its arguments are bytes of the log: where each begins, and one more for
// the end of the last.
typedef struct {
    tni_cufunction f;
    unsigned       grid[3], block[3], shared;
    bool           overlaps;    // its text waits for record is ahead of it (m_begin)
    bool           last_block;  // its last group joins record all groups have left
    unsigned       args;        // how many
    size_t         offset;      // of the first offset in log.offset
    tni_cunode     node;        // of a capture
} tni_launch_record;

// What a run did: kernels, and marks that tell libraries' work apart.
typedef struct {
    tni_launch_record *launch;
    uint32_t          *offset;
    char              *bytes, *mark;
    size_t             launches, offsets, byte_count, marks;
    size_t             launch_cap, offset_cap, byte_cap, mark_cap;
} tni_launch_log;

// The run at hand, part of a session.
typedef struct {
    tni_replay_mode    mode;
    struct tni_replay *plan;         // NULL outside of a run
    bool               failed;       // memory was out while writing down
    int                submitted;    // kernels and work of libraries in this run so far
    bool               last_block;   // one of the kernels does
    bool               provisional;  // see tni_replay_provisional
    tni_launch_log     now;
    int64_t            graphs, changed;  // launched so far; nodes that got new arguments
} tni_recorder;

struct tni_cuda;

// Launches a kernel with n arguments: argument i is bytes[offset[i]] up to bytes[offset[i + 1]].
int tni_replay_launch(struct tni_cuda *c, const tni_launch_record *record, const uint32_t *offset,
                      const char *bytes);
// Whether work of another kind, which its mark tells apart from all other, is to be launched now.
bool tni_replay_library_call(struct tni_cuda *c, const void *mark, size_t bytes);
// Something better than record is launched in the run at hand is being compiled: the run is no graph, and
// does not count as one of those before a graph.
void tni_replay_provisional(struct tni_cuda *c);
// The run at hand waits for the device, or depends on values: it can never be a graph.
void tni_replay_never_graph(struct tni_cuda *c);

// The contract: see device.h.
void      tni_replay_begin(void *session, void **memory);
tn_status tni_replay_end(void *session, bool ok, bool *again, tni_text *why);
void      tni_replay_forget(void *memory);
void      tni_replay_close(struct tni_cuda *c);

#endif
