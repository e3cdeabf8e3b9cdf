// What the models share. Their calls have no lines of their own: an error names the line of the user's call
// that makes or runs the network.
#ifndef TNI_MODELS_PART_H
#define TNI_MODELS_PART_H

#define TN_PLAIN
#include <tenon.h>

// The names of models.h are here the functions behind its call forms, as those of tenon.h are in src/.
#undef TN_API
#undef TN_FORM
#define TN_API                        __attribute__((visibility("hidden")))
#define TN_FORM(result, name, params) TN_API result name params __asm__("tni_" #name);
#include <tenon/models.h>

// A layer that runs f over a zeroed struct of `bytes` bytes, tn_layer_self of it. NULL, reported,
// on failure.
tn_layer *tni_model_part(tn_ctx *cx, tn_forward_fn *f, size_t bytes);
// l itself when all that it needs was made; else NULL, and l is freed.
tn_layer *tni_model_done(tn_layer *l, bool whole);

#endif
