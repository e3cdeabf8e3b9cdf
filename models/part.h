// What the models' own layers share.
#ifndef TNI_MODELS_PART_H
#define TNI_MODELS_PART_H

#include <tenon/models.h>

// A layer that runs f over a zeroed struct of so many bytes, tn_layer_self of it. NULL, reported,
// on failure.
tn_layer *tni_model_part(tn_ctx *cx, tn_forward_fn *f, size_t bytes);
// l itself when all that it needs was made; else NULL, and l is freed.
tn_layer *tni_model_done(tn_layer *l, bool whole);

#endif
