// dist.h: training on several processes. A world is a number of processes, its ranks, which run the same
// program on their own parts of the data; a launcher starts them (tenon launch, mpiexec, srun).
//
// Part of tenon.h, which includes it.
#ifndef TENON_DIST_H
#define TENON_DIST_H

#ifndef TENON_H
#error "include <tenon.h>"
#endif

// Zero means the default. rank and size come from the launcher's variables (torchrun's, Open MPI's, MPICH's,
// Slurm's: the first complete set), unless size is given.
typedef struct {
    int rank, size;
    const char
          *engine;   // what connects the ranks: "mpi"; NULL: none for one rank, else by the device
    double timeout;  // seconds that ranks wait for each other, at most; 0: 300
} tn_dist_opts;

// Opens the world of this process, with all other ranks: each calls it at the same place of the program. One
// rank needs no engine, and its calls then do nothing, so the same program runs without a launcher; an engine
// asked for by name is opened at one rank too. Several ranks on cpu need MPI, found at run time, and processes
// that an MPI launcher started. The world belongs to the context; a process has one with an engine at a time.
TN_API tn_dist *tn_dist_open(tn_ctx *cx, tn_dist_opts o);
// Leaves the world, and waits until all ranks have. If the context has an error, nothing is waited for: the other
// ranks' calls fail with its text. tn_close does the same. Does nothing for NULL.
TN_API void tn_dist_close(tn_dist *d);
// Returns the number of this rank, from 0; 0 for NULL.
TN_API_PLAIN int tn_dist_rank(const tn_dist *d);
// Returns how many ranks there are; 1 for NULL.
TN_API_PLAIN int tn_dist_size(const tn_dist *d);
// Returns the number of this rank among those of its machine, 0 if the launcher does not say.
TN_API_PLAIN int tn_dist_local_rank(const tn_dist *d);
// Returns what connects the ranks: "mpi", or "none".
TN_API_PLAIN const char *tn_dist_engine(const tn_dist *d);
// Waits until all ranks are here. An error if one has died or left, or does not come within the time limit.
// Does nothing for NULL.
TN_API tn_status tn_dist_barrier(tn_dist *d);

#endif
