// Shared by the files that record updates. A recording is: tni_record_ready, tni_record_begin, the
// ops, tni_record_end; and tni_record_give_up if anything failed.
#ifndef TNI_OPTIM_UPDATE_H
#define TNI_OPTIM_UPDATE_H

#include "optim/optim.h"

// The kinds of tensors of a block that can be joined and assigned: a state by its number, or one of
// these. TNI_LOW is the copy of a parameter in 16 bits, which some slots have.
enum { TNI_PARAM = TNI_STATES, TNI_GRADIENT, TNI_LOW };

// Joins the gradients of each block (in g). A block is divided first if only some of its slots have
// a gradient, or if they no longer agree.
bool tni_flats_begin(tn_optim *o);
// Makes the states that a block lacks. Called before anything of the update but the gradients is
// recorded.
bool tni_flat_make_states(tn_optim *o, tni_flat *f);
// Returns the parameters of a block as one tensor: a view of their buffer, if they are contiguous.
// For a block of one slot it is that parameter, here and below.
tn_tensor *tni_flat_params(const tn_optim *o, const tni_flat *f);
// Assigns each slot of a block its part of y: the parameters or the gradients.
bool tni_flat_spread(const tn_optim *o, const tni_flat *f, int what, tn_tensor *y);
// The same for parameters and their copies in 16 bits: those that autocast took since the last
// update get the new value too, so that no step has to cast a weight. The others are freed.
bool tni_flat_spread_params(const tn_optim *o, const tni_flat *f, tn_tensor *y);

// Prepares the gradients of all blocks, which are sums over `steps` steps, for the rule: adds those
// of all ranks, divides them by the loss scale, averages them, clips them by norm, then by value.
bool tni_gradients_prepare(tn_optim *o, int64_t steps);

// Replaces the gradient of each block by the sum over all ranks of the optimizer's world, of this
// rank's part if state is sharded (distribute.c).
bool tni_gradients_sum_ranks(tn_optim *o);
// Returns this rank's part of a block's values, or all of them if it is not sharded; and the whole
// block of the ranks' parts.
tn_tensor *tni_flat_part(const tn_optim *o, const tni_flat *f, tn_tensor *whole);
tn_tensor *tni_flat_whole(const tn_optim *o, const tni_flat *f, tn_tensor *part);
// Computes t in the middle of a recording, of which it needs nothing.
bool tni_compute_now(tn_tensor *t);

// ---- loss scaling (scaling.c) ------------------------------------------------------------------

// Makes what loss scaling keeps, if the settings ask for it; frees it.
bool tni_scaling_open(tn_optim *o);
void tni_scaling_close(tn_optim *o);
// Returns the gradient that the backward pass of a loss begins with: the scale. For an optimizer
// with loss scaling, as the next two.
tn_tensor *tni_scaling_seed(const tn_optim *o, const tn_tensor *loss);
// Returns 1 / scale.
tn_tensor *tni_scaling_inverse(const tn_optim *o);
// Decides by the norm of the gradients whether the update being recorded is done or skipped
// (o->finite).
bool tni_scaling_check(tn_optim *o, tn_tensor *norm);
// Returns next if the update is done, old if it is skipped; next without loss scaling.
tn_tensor *tni_scaling_keep(const tn_optim *o, tn_tensor *next, tn_tensor *old);
// Returns the number of a parameter's update, counted without those skipped; NULL without loss
// scaling.
tn_tensor *tni_scaling_count(const tn_optim *o, int64_t updates);
// Assigns the next scale and counts.
bool tni_scaling_update(const tn_optim *o);

// Returns the context of an optimizer that can record now; NULL, reported, if it cannot.
tn_ctx *tni_record_ready(const char *op, const tn_optim *o);
// Opens a scope for the recording, without gradients, autocast and flushes, so that nothing of it
// is computed before all of it is recorded. NULL, reported, on failure.
tn_scope *tni_record_begin(tn_ctx *cx);
void      tni_record_end(tn_scope *s);
// Called after a failure that was reported: takes all stores and counts back, and clears the
// gradients, which may belong to any step by now. Returns the error's code.
tn_status tni_record_give_up(tn_optim *o);

#endif
