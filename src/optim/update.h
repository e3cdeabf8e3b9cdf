// What the files that record updates share. Recording goes: ready, begin, the ops, end, and where
// something failed, give up.
#ifndef TNI_OPTIM_UPDATE_H
#define TNI_OPTIM_UPDATE_H

#include "optim/optim.h"

// What can be joined and assigned of a block: a state by its number, or one of these.
enum { TNI_PARAM = TNI_STATES, TNI_GRADIENT };

// Joins the gradients of each block (g). A block of which some slots have a gradient, or that do not
// agree any more, is divided.
bool tni_flats_begin(tn_optim *o);
// Makes what a block lacks of its states. Nothing of the update is recorded yet but the gradients.
bool tni_flat_make_states(tn_optim *o, tni_flat *f);
// The parameters of a block as one tensor: where they lie, if they lie in their block. Of a block of one it
// is that parameter, here and below.
tn_tensor *tni_flat_params(const tn_optim *o, const tni_flat *f);
// Assigns each slot of a block its part of y: the parameters or the gradients.
bool tni_flat_spread(const tn_optim *o, const tni_flat *f, int what, tn_tensor *y);

// The gradients of the blocks, sums of so many steps, as the rule takes them: averaged, clipped by
// norm, then by value.
bool tni_gradients_prepare(const tn_optim *o, int64_t steps);

// The context of an optimizer that can record now; NULL, reported, else.
tn_ctx *tni_record_ready(const char *op, const tn_optim *o);
// Recording stands in a scope of its own, without gradients and without a flush in between, so that
// nothing of it is computed before all of it is there. NULL, reported, on failure.
tn_scope *tni_record_begin(tn_ctx *cx);
void      tni_record_end(tn_scope *s);
// Something failed, of which the error tells: all stores and counts go back, and the gradients,
// which may be of any step by now, are forgotten. Returns the error's code.
tn_status tni_record_give_up(tn_optim *o);

#endif
