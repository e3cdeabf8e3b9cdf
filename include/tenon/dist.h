// dist.h: training on several processes. A world is a number of processes, its ranks, which run the
// same program on their own parts of the data; a launcher starts them (tenon launch, mpiexec,
// srun).
//
// Part of tenon.h, which includes it.
#ifndef TENON_DIST_H
#define TENON_DIST_H

#ifndef TENON_H
#error "include <tenon.h>"
#endif

// Zero means the default. rank and size come from the launcher's variables (torchrun's, Open MPI's,
// MPICH's, Slurm's: the first complete set), unless size is given.
typedef struct {
    int rank, size;
    const char *
        engine;  // what connects the ranks: "mpi", "nccl"; NULL: none for one rank, else by the device
    double timeout;  // seconds that ranks wait for each other, at most; 0: 300
} tn_dist_opts;

// Opens the world of this process, with all other ranks: each calls it at the same place of the
// program. One rank needs no engine, and its calls then do nothing, so the same program runs
// without a launcher; an engine asked for by name is opened at one rank too. Several ranks on cuda
// need NCCL, on cpu MPI and processes that an MPI launcher started; both are found at run time. The
// world belongs to the context; a process has one with an engine at a time.
TN_API tn_dist *tn_dist_open(tn_ctx *cx, tn_dist_opts o);
// Leaves the world, and waits until all ranks have. If the context has an error, nothing is waited
// for: the other ranks' calls fail with its text. tn_close does the same. Does nothing for NULL.
TN_API void tn_dist_close(tn_dist *d);
// Returns the number of this rank, from 0; 0 for NULL.
TN_API_PLAIN int tn_dist_rank(const tn_dist *d);
// Returns how many ranks there are; 1 for NULL.
TN_API_PLAIN int tn_dist_size(const tn_dist *d);
// Returns the number of this rank among those of its machine, 0 if the launcher does not say.
TN_API_PLAIN int tn_dist_local_rank(const tn_dist *d);
// Returns what connects the ranks: "mpi", "nccl", or "none".
TN_API_PLAIN const char *tn_dist_engine(const tn_dist *d);
// Waits until all ranks are here. An error if one has died or left, or does not come within the
// time limit. Does nothing for NULL.
TN_API tn_status tn_dist_barrier(tn_dist *d);

// Says which rank of how many this process is by the variables of a launcher, without opening a
// world. Returns false, and rank 0 of 1, if none set them or they are no rank. Both may be NULL.
TN_API_PLAIN bool tn_dist_launched(int *rank, int *size);
// Returns the name of variable i, from 0, of those by which launchers say who is who and where
// ranks meet; NULL after the last. A program that starts a world of its own removes them first.
TN_API_PLAIN const char *tn_dist_variable(int i);

// ---- training ----------------------------------------------------------------------------------

// Makes an optimizer's updates those of the whole world: the ranks begin with rank 0's parameters,
// state and counts, and every update is by the mean of all ranks' gradients, so that parameters and
// state stay equal, bit for bit. A loss that is a mean over this rank's items, times the batch's
// weight (tn_data_shard), gives the step of one process with all items. Accumulated gradients are
// exchanged once, by the step that updates; clipping is by the norm of the mean. All ranks call it,
// and tn_step, at the same places. NULL ends it; it is an error while that of a failed tn_dist_open
// is open.
//
// Gradients are exchanged in buckets of parameters, last ones first, while the backward pass goes
// on. shard_state: each rank keeps the state of its part of every bucket alone, and computes the
// update of that (ZeRO-1): memory for state is divided by the number of ranks, the parameters stay
// whole. Zero means the default.
typedef struct {
    int64_t
         bucket_bytes;  // of a bucket's gradients, about; 0: 25 MiB on GPUs, else 4 MiB, and 1 MiB for the first
    bool shard_state;
} tn_distribute_opts;
TN_API tn_status tn_optim_distribute(tn_optim *o, tn_dist *d, tn_distribute_opts opts);

// Returns a loss for tn_step whose mean over the ranks is the mean over all ranks' items: sum, over
// this rank's, divided by the number of all. count: how many this rank has, which may be 0, a
// tensor of one element. For means over items that ranks have different numbers of, as cross
// entropy with ignored targets.
TN_API tn_tensor *tn_dist_mean(tn_dist *d, tn_tensor *sum, tn_tensor *count);

// Says which items of the batch this rank has: count from `first` on, of total; total 0: all.
// Random ops that take a tensor (tn_dropout, tn_bernoulli, tn_rand_like, tn_randn_like,
// tn_multinomial, dropout of tn_attention) then draw for these what one process with all items
// would draw, if the first axis of the tensor is the items or a multiple of them; others are drawn
// alike on all ranks. tn_next says it for the batch that it returns. Dropout of tn_attention needs
// weights of an item that are a multiple of 4.
TN_API tn_status tn_random_shard(tn_ctx *cx, int64_t first, int64_t count, int64_t total);

// Has all batch norms of a network normalize by the statistics of all ranks' items, in training;
// NULL: by those of this rank's, as without it. Running statistics are then equal on all ranks.
TN_API tn_status tn_layer_sync_batch_norm(tn_layer *l, tn_dist *d);

// ---- collectives -------------------------------------------------------------------------------

// Ops over the tensors of all ranks. They are recorded like others and have gradients; all ranks
// record the same ones, with the same shapes, in the same order, in which they run. If they do not,
// the evaluation fails on all ranks, with two that differ. A rank takes part whether or not it
// reads the result. With one rank, or for the world NULL, the result is x. f16 and bf16 are reduced
// in f32 and rounded once.
typedef enum { TN_REDUCE_SUM, TN_REDUCE_MEAN, TN_REDUCE_MAX, TN_REDUCE_MIN } tn_reduce_op;
// Returns the sum, mean, maximum or minimum of all ranks' x, the same bits on all of them.
TN_API tn_tensor *tn_dist_all_reduce(tn_dist *d, tn_tensor *x, tn_reduce_op op);
// Returns all ranks' x joined along an axis, in the order of ranks.
TN_API tn_tensor *tn_dist_all_gather(tn_dist *d, tn_tensor *x, int axis);
// Returns this rank's part of what tn_dist_all_reduce would return, cut along an axis whose size is
// a multiple of the number of ranks.
TN_API tn_tensor *tn_dist_reduce_scatter(tn_dist *d, tn_tensor *x, int axis, tn_reduce_op op);
// Returns x of the rank `root`.
TN_API tn_tensor *tn_dist_broadcast(tn_dist *d, tn_tensor *x, int root);

#endif
