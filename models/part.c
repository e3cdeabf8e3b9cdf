// Construction of the layers that models define.
#include "part.h"

#include <stdlib.h>

tn_layer *tni_model_part(tn_ctx *cx, tn_forward_fn *f, size_t bytes)
{
    void *self = calloc(1, bytes);
    if (!self) return tn_error_set(cx, TN_EMEM, "layer: out of memory");
    return tn_layer_new(cx, f, self, free);
}

tn_layer *tni_model_done(tn_layer *l, bool ok)
{
    if (l && ok) return l;
    if (l) tn_layer_free(l);
    return NULL;
}
