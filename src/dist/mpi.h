// MPI as the engine of worlds on the CPU: a library found at run time, of any of the three binary interfaces
// (Open MPI's, MPICH's, the standard one of MPI 5), by declarations of our own.
#ifndef TNI_DIST_MPI_H
#define TNI_DIST_MPI_H

#include "base/text.h"
#include "tensor/dtype.h"

typedef enum {
    TNI_BARRIER,
    TNI_BROADCAST,
    TNI_ALL_REDUCE,
    TNI_ALL_GATHER,
    TNI_REDUCE_SCATTER
} tni_collective_kind;
typedef enum { TNI_REDUCE_SUM, TNI_REDUCE_MAX, TNI_REDUCE_MIN, TNI_REDUCTIONS } tni_reduction;

// One collective, in host memory. count is in elements: of the whole tensor for a broadcast and an all-reduce,
// of the smaller side for the other two: one rank's part. in and out may be the same for an all-reduce, and must be for a
// broadcast.
typedef struct {
    tni_collective_kind kind;
    tn_dtype            dtype;
    tni_reduction       op;    // of an all-reduce or reduce-scatter
    int                 root;  // of a broadcast
    int64_t             count;
    const void         *in;
    void               *out;
} tni_collective;

// Asked while a collective waits for other ranks: false, with the reason, gives it up.
typedef bool tni_may_wait(void *user, tni_text *why);

// Opens MPI, once for a process; launcher: as in tni_world_place, NULL for none. False, with the reason, if there
// is no library, it does not start, or it was given up before.
bool tni_mpi_open(const char *launcher, int *rank, int *size, tni_text *why);
// Runs a collective to its end. False, with the reason: it failed, or it was given up, after which MPI cannot
// be used any more.
bool tni_mpi_run(const tni_collective *c, tni_may_wait *may_wait, void *user, tni_text *why);
// Ends the use of MPI. in_order: all ranks did; otherwise the launcher has to end the processes.
void tni_mpi_close(bool in_order);

// What was found, for people: "Open MPI 4.1.4 (libmpi.so.40)". False: why nothing was.
bool tni_mpi_describe(const char *launcher, tni_text *what);

#endif
