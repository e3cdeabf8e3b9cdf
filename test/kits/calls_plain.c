// calls_plain.c: the table of calls once more, compiled by a program that has no call-site macros.
#define TN_PLAIN
#define calls_at          calls_plain_at
#define calls_do          calls_plain_do
#define calls_things      calls_plain_things
#define calls_nowhere     calls_plain_nowhere
#define calls_shape       calls_plain_shape
#define calls_of_tensors  calls_plain_of_tensors
#define calls_of_layers   calls_plain_of_layers
#define calls_of_training calls_plain_of_training
#include "calls.c"
#include "calls_layers.c"
#include "calls_training.c"
