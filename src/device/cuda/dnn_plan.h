// Plans: what cuDNN makes of a graph, by several engines of different speed. They are compiled by
// background threads, and the one that is chosen is kept on disk, so that the next process loads it
// in milliseconds. A plan knows nothing of the op that its graph is for.
//
// The library never breaks a program: a graph that it has no engine for, or any error, is an
// answer, with one line under TN_LOG=library.
#ifndef TNI_CUDA_DNN_PLAN_H
#define TNI_CUDA_DNN_PLAN_H

#include "device/cuda/cudnn.h"
#include "device/cuda/dnn_graph.h"
#include "device/cuda/driver.h"

// Engines that are compared, at most: attention has two to five.
enum { TNI_DNN_CANDIDATES = 8 };

// Where plans run. cx is the context of the GPU, current in the calling thread; gpu names the kind
// of GPU, for the disk.
typedef struct {
    const tni_driver *cu;
    tni_cucontext     cx;
    int               device;
    const char       *gpu;
    bool   timing;     // candidates are chosen by time; else the first that the library proposes
    size_t workspace;  // bytes of workspace that an engine may need now; 0: any
    size_t most_workspace;  // the same if nothing else were in the GPU's memory
    int    compiles;  // engines of a graph that the library has to compile, at most; 0: any number
} tni_dnn_env;

// The candidates of a graph. Belongs to the table of the process.
typedef struct tni_dnn_plans tni_dnn_plans;

// Finds or makes the candidates of a graph; `what` names it for the log. Asks the library which
// engines there are, unless a choice is on disk, and compiles nothing. NULL, with the reason, if
// there are none.
tni_dnn_plans *tni_dnn_find(const tni_dnn_graph *g, const tni_dnn_env *at, const char *what,
                            tni_text *why);
// Begins to compile, in the background.
void tni_dnn_begin(tni_dnn_plans *p);
// Waits until that is done; false if no candidate could be compiled.
bool tni_dnn_wait(tni_dnn_plans *p);

// Returns how many candidates there are; one as soon as the choice is known.
int tni_dnn_count(const tni_dnn_plans *p);
// Returns whether some candidate has a note (TNI_DNN_NOTE_...).
bool tni_dnn_has_note(const tni_dnn_plans *p, int note);
// Returns whether engines were left out for lack of memory that another process may have: what is
// chosen is for this one only.
bool tni_dnn_is_scarce(const tni_dnn_plans *p);
// Returns the bytes of workspace that are enough for all of them.
size_t tni_dnn_workspace(const tni_dnn_plans *p);

// The addresses of a run: at[i] is that of tensor i, in device memory for those in memory and in
// host memory for numbers. The workspace is at a multiple of 256.
typedef struct {
    void *at[TNI_DNN_TENSORS + 1];
    void *workspace;
} tni_dnn_binding;

// Runs a candidate in a stream; waits for it to be compiled. Returns a status of the library.
int tni_dnn_run(tni_dnn_plans *p, int candidate, const tni_dnn_binding *b, tni_custream s);
// Settles on a candidate: it becomes the only one, and is kept on disk unless the choice was
// scarce.
void tni_dnn_settle(tni_dnn_plans *p, int candidate);

// Counts of this process: plans that it compiled, and plans that it found on disk.
void tni_dnn_counts(int64_t *compiled, int64_t *found);
// Forgets all plans, as a new process would, for tests; nothing may be running.
void tni_dnn_forget(void);

#endif
