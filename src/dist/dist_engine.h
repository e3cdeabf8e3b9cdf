// What moves tensors between ranks: MPI between processes on CPUs, NCCL between GPUs. Both are
// libraries found at run time, with declarations of our own; each is a row of functions.
#ifndef TNI_DIST_DIST_ENGINE_H
#define TNI_DIST_DIST_ENGINE_H

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

// One collective. count is in elements: of the whole tensor for a broadcast and an all-reduce, of
// the smaller side for the other two: one rank's part. in and out may be the same for an
// all-reduce, and must be for a broadcast.
typedef struct {
    tni_collective_kind kind;
    tn_dtype            dtype;
    tni_reduction       op;    // of an all-reduce or reduce-scatter
    int                 root;  // of a broadcast
    int64_t             count;
    const void         *in;
    void               *out;
} tni_collective;

// What an engine is opened with. An engine that the launcher tells its place (MPI) sets rank and
// size; another one gets them, with an id that rank 0 made and all have.
enum { TNI_ENGINE_ID = 128 };
typedef struct {
    const char *launcher;  // as in tni_world_place, NULL for none
    int         rank, size;
    uint8_t     id[TNI_ENGINE_ID];
    void (*enter)(
        void *user);  // makes the device of the world that of the calling thread; NULL: it has none
    void *user;
} tni_engine_open;

// An engine. There is one of each in a process, and one world uses it at a time. open and run may
// wait for ever: the world's worker calls them.
//
//   describe   what was found, for people: "Open MPI 4.1.4 (libmpi.so.40)"; false: why nothing was
//   make_id    makes the id of a world, on rank 0; NULL: none is needed
//   open       connects the ranks; false, with the reason, if that fails
//   on_host    whether it moves host memory
//   run        runs a collective in host memory to its end. False, with the reason, if it failed, after which the engine cannot
//              be used any more
//   start      puts a collective of device memory into a stream, after what is there, and returns; NULL: there are no streams
//   failed     whether an error came since; NULL: run and start report all. From any thread
//   abort      ends all that is in flight, from any thread; the engine cannot be used any more. NULL: nothing can be
//   close      in_order: all ranks leave; otherwise the launcher has to end the processes
typedef struct {
    const char *name;
    bool (*describe)(const char *launcher, tni_text *what);
    bool (*make_id)(uint8_t id[TNI_ENGINE_ID], tni_text *why);
    bool (*open)(tni_engine_open *o, tni_text *why);
    bool (*on_host)(void);
    bool (*run)(const tni_collective *c, tni_text *why);
    bool (*start)(const tni_collective *c, void *stream, tni_text *why);
    bool (*failed)(tni_text *why);
    void (*abort)(void);
    void (*close)(bool in_order);
} tni_dist_engine;

extern const tni_dist_engine tni_mpi, tni_nccl;

#endif
