// What the constructors of our own layers share: checks of arguments, and tensors made in place.
#ifndef TNI_NN_BUILTIN_H
#define TNI_NN_BUILTIN_H

#include "nn/layer.h"

// Checks of an argument by its name; false, reported by the op's name, if it will not do.
bool tni_size_arg(tn_ctx *cx, const char *op, const char *name, int64_t v);  // 1 .. INT32_MAX
bool tni_unit_arg(tn_ctx *cx, const char *op, const char *name, double v);   // 0 .. 1
// The numbers of an option of three axes: none is negative, but those after the first may be
// `least`.
bool tni_axes_arg(tn_ctx *cx, const char *op, const char *name, const int64_t *v, int64_t least);
// Whether a layer was handed over; as with tensors, NULL after an error is not reported again.
bool tni_layer_arg(tn_ctx *cx, const char *op, const char *name, const tn_layer *l);

// Runs a function of one tensor that a layer was given: ours or a user's, whose lines count then.
tn_tensor *tni_function_run(tn_tensor *(*f)(tn_tensor *x), tn_tensor *x);
// The name of its layer, "ReLU"; "Activation" for a user's.
const char *tni_activation_name(tn_tensor *(*f)(tn_tensor *x));

// How a parameter starts: fills t by a number and returns it, as tn_init_constant does.
typedef tn_tensor *tni_start(tn_tensor *t, double v);
tn_tensor         *tni_start_within(tn_tensor *t, double bound);  // uniform in -bound .. bound
tn_tensor         *tni_start_normal(tn_tensor *t, double std);

// Gives l a new f32 parameter, or a buffer full of v, and returns it. What that takes besides dies
// here: nothing is left in the caller's scope.
tn_tensor *tni_new_param(tn_layer *l, const char *name, tni_start *start, double v, int rank,
                         const int64_t *size);
tn_tensor *tni_new_buffer(tn_layer *l, const char *name, tn_dtype dt, double v, int rank,
                          const int64_t *size);

// Adds a child to l and returns it. child is NULL if making it failed, which was reported then; it
// is freed if adding fails.
tn_layer *tni_add_child(tn_layer *l, const char *name, tn_layer *child);

#endif
