// Replay: a plan that runs again and again becomes one launch of a CUDA graph.
//
// Between begin and end of a run all work of a session's stream comes through here. The first runs
// of a plan are launched at once. Later runs are recorded: nothing is launched, the launches are
// written to a log, and the log is compared at the end with those of the plan's captured graphs. If
// one has the same sequence, the kernels whose arguments differ get new ones in it, and it is
// launched. Library calls cannot be given new arguments in a graph; each has a mark, the bytes of
// its addresses and settings, and only a graph with equal marks fits. If no graph fits, the engine
// submits the run once more, and it is captured. A plan that has to be captured too often is
// launched kernel by kernel from then on.
//
// A run that resumes the last one is not recorded as a whole: only the steps that differ are
// submitted, and their kernels get their new arguments in the graph at once. That takes a tenth of
// the time.
//
// So is a plan of a single kernel: launching it costs less than launching a graph, and it overlaps
// with the kernel ahead of it, which a graph does not. The exception is a kernel whose last block
// combines the partial results of all, which is better off without the overlap: that is a graph
// even alone.
#ifndef TNI_CUDA_REPLAY_H
#define TNI_CUDA_REPLAY_H

#include "device/cuda/driver.h"
#include "device/device.h"

// How the work of a run is submitted: launched at once, only recorded, captured into a graph, or as
// changes of the graph that ran last.
typedef enum {
    TNI_REPLAY_LAUNCH,
    TNI_REPLAY_RECORD,
    TNI_REPLAY_CAPTURE,
    TNI_REPLAY_CHANGE
} tni_replay_mode;

// One launch of a kernel. In a log its arguments are bytes of the log, found by args + 1 offsets:
// where each begins, and where the last one ends.
typedef struct {
    tni_cufunction f;
    unsigned       grid[3], block[3], shared;
    bool           overlaps;  // may begin early: its text waits for the work ahead of it (m_begin)
    bool           last_block;  // its last block combines the partial results of all blocks
    unsigned       args;        // number of arguments
    size_t         offset;      // index of its first offset in log.offset
    tni_cunode     node;        // its node in a captured graph; NULL if unknown
} tni_launch_record;

// What a run did: launches with their arguments, and the marks of library calls, one behind the
// other. step: the launches before each step of the plan.
typedef struct {
    tni_launch_record *launch;
    uint32_t          *offset;
    char              *bytes, *mark;
    size_t            *step;
    size_t             launches, offsets, byte_count, marks, steps;  // used; marks in bytes
    size_t             launch_cap, offset_cap, byte_cap, mark_cap, step_cap;
} tni_launch_log;

// The current run, part of a session. Invariant: mode is TNI_REPLAY_LAUNCH outside of a run, and
// `now` is complete unless failed.
typedef struct {
    tni_replay_mode mode;
    tni_custream
        outside;  // TNI_REPLAY_CAPTURE: the session's stream, of which c->stream is a stand-in
    struct tni_replay *plan;         // NULL outside of a run
    bool               failed;       // memory was out while recording
    int                submitted;    // kernels and library calls in this run so far
    bool               last_block;   // one of its kernels has that flag
    bool               provisional;  // see tni_replay_provisional
    bool               even;         // kernels are captured with equal shares of shared memory
    tni_launch_log     now;
    size_t             at;               // TNI_REPLAY_CHANGE: the next launch of the graph
    int64_t            step;             // of the plan, that is submitted
    int64_t            unfinished;       // see tni_replay_finish
    int64_t            launched;         // kernels since the last library call
    int64_t            graphs, changed;  // graphs launched so far; nodes that got new arguments
} tni_recorder;

struct tni_cuda;

// Launches or records a kernel of one argument over a grid of one axis, that may begin before the
// kernel ahead of it has ended. Returns an error of the driver.
int tni_replay_launch_one(struct tni_cuda *c, tni_cufunction f, int64_t blocks, int threads,
                          int shared, const void *arg, size_t bytes);
// Launches or records a kernel: argument i is bytes[offset[i]] up to bytes[offset[i + 1]]. Returns
// an error of the driver.
int tni_replay_launch(struct tni_cuda *c, const tni_launch_record *record, const uint32_t *offset,
                      const char *bytes);
// Announces a library call, whose mark is different from that of any call that would do something
// else. Returns whether the caller is to make the call now.
bool tni_replay_library_call(struct tni_cuda *c, const void *mark, size_t bytes);
// Comes before a library call that may read operands at once, before the kernels ahead of it in the
// stream have ended: kernels of our own let the next one begin when they do (m_begin), and wait
// themselves. If one of them may still be making what step `newest` of the plan made (-1: what was
// there before the plan), everything ends before the call begins. word: four bytes of memory that
// nothing needs. Returns an error of the driver.
int tni_replay_finish(struct tni_cuda *c, int64_t newest, void *word);
// Says that the kernels of the plan are short: those of its graphs get equal shares of shared
// memory.
void tni_replay_evenly(struct tni_cuda *c);
// Returns the step of the plan that is submitted, SIZE_MAX if it is not known.
size_t tni_replay_this_step(const struct tni_cuda *c);
// Says that a step shares its launch with another one, so that a run that resumes cannot change it.
void tni_replay_shares(struct tni_cuda *c, size_t step);
// Says that something better than the current run launches is being compiled: the run does not
// become a graph, and does not count as one of those before a graph.
void tni_replay_provisional(struct tni_cuda *c);
// Says that the current run waits for the device, or depends on values: its plan never becomes a
// graph.
void tni_replay_never_graph(struct tni_cuda *c);

// The contract: see device.h.
void      tni_replay_begin(void *session, void **memory);
bool      tni_replay_resume(void *session, void *memory);
void      tni_replay_step(void *session, size_t step);
tn_status tni_replay_end(void *session, bool ok, bool *again, tni_text *why);
void      tni_replay_forget(void *memory);
void      tni_replay_close(struct tni_cuda *c);

#endif
