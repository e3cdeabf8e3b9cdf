// What the files that record updates share. Recording goes: ready, begin, the ops, end, and where
// something failed, give up.
#ifndef TNI_OPTIM_UPDATE_H
#define TNI_OPTIM_UPDATE_H

#include "optim/optim.h"

// What can be joined and assigned of a bunch: a state by its number, or one of these.
enum { TNI_PARAM = TNI_STATES, TNI_GRADIENT };

// Sorts the slots that have a gradient into bunches, in their order, and joins the gradients.
bool tni_bunches_make(tn_optim *o);
// Whether a slot of a bunch has state k. Others may lack it, if a file had none for them.
bool tni_bunch_has(const tn_optim *o, const tni_bunch *b, int k);
// The tensors of a bunch as one of one axis, a state that a slot lacks as zeros; of a bunch of one as
// it is.
tn_tensor *tni_bunch_join(const tn_optim *o, const tni_bunch *b, int what);
// Assigns each slot of a bunch its part of y.
bool tni_bunch_spread(const tn_optim *o, const tni_bunch *b, int what, tn_tensor *y);

// The gradients of the bunches, sums of so many steps, as the rule takes them: averaged, clipped by
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
