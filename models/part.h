// Functions that the models share. TN_PLAIN is defined, so their calls have no lines: an error names the
// line of the user's call that makes or runs the network.
#ifndef TNI_MODELS_PART_H
#define TNI_MODELS_PART_H

#define TN_PLAIN
#include <tenon.h>

// Here a name of models.h is the function behind both of its call forms, as names of tenon.h are in src/.
#undef TN_API
#undef TN_FORM
#define TN_API                        __attribute__((visibility("hidden")))
#define TN_FORM(result, name, params) TN_API result name params __asm__("tni_" #name);
#include <tenon/models.h>

// Makes a layer that runs f, with a zeroed struct of this size as its tn_layer_self. Returns NULL with an
// error on failure.
tn_layer *tni_model_part(tn_ctx *cx, tn_forward_fn *f, size_t bytes);
// Ends the construction of l: returns l if ok. Otherwise frees l and returns NULL.
tn_layer *tni_model_done(tn_layer *l, bool ok);

#endif
