// Optimizers: which parameters, their state, and the rule that updates them.
#ifndef TNI_OPTIM_OPTIM_H
#define TNI_OPTIM_OPTIM_H

#include "grad/grad.h"
#include "nn/layer.h"

#include <math.h>

// The tensors of state that a parameter may have: those of its rule, of which rmsprop has most, and
// the master.
enum { TNI_RULE_STATES = 3, TNI_MASTER = TNI_RULE_STATES, TNI_STATES };

// One slot of an optimizer: a parameter and what is remembered of it. The optimizer owns p and
// the state, beside whoever else owns p. State is made at the parameter's first update. since and
// before tell a step that failed from one that did not: p's store returns to a node older than
// since, and the count to before.
//
// State is f32 where p is f16 or bf16: a second moment of f16 underflows, and 0.999 of one in bf16 is
// rounded back to it. Such a p is, unless the user wants none, the rounding of an f32 master, which
// updates go by: steps smaller than p's precision add up. Where p is not the rounding of its master,
// someone else wrote p, and the master is p; this is told by value, element by element, so nothing has
// to be told to the optimizer.
typedef struct {
    char      *name;  // full, in the network
    tn_tensor *p;
    tn_tensor *state[TNI_STATES];  // by tni_state_name; NULL before the first update, or unused
    size_t     flat;               // its block, and where it begins there; of one without elements
    int64_t    at;                 // neither means anything
    int64_t    updates;            // of this parameter: those without gradient are skipped
    double     lr_scale, weight_decay;
    uint64_t   since;   // id of the first update's node that may not be computed yet; 0: none
    int64_t    before;  // updates before that
    bool       due;     // has a gradient for the update being recorded
    bool       taken;   // stands in a block already
} tni_trained;

// A flat block: slots that are updated as one tensor, one after the other, each from `at` on for as many
// elements as it has. They agree in dtype, settings and number of updates. The parameters of a block lie
// in one buffer but for those that somebody wrote since the last update; each has its own store all the
// same. The slots' states are views of the block's. A block is divided when only some of its slots get a
// gradient, and never joined with another but by tni_flats_lay.
typedef struct {
    size_t     first, count;       // in tn_optim.order
    int64_t    size;               // elements
    tn_tensor *state[TNI_STATES];  // owned; NULL before the first update, or to be joined again
    tn_tensor *g;                  // while an update is recorded: the gradients, joined; NULL: none
} tni_flat;

// One update of a block as a rule sees it: p, g and state joined, of one dtype, f32 at least. The rule
// sets next where it has a state, and returns the new p.
typedef struct {
    tn_tensor *p, *g;
    tn_tensor *state[TNI_RULE_STATES];  // zeros at the first update; NULL where the rule has none
    tn_tensor *next[TNI_RULE_STATES];
    double     lr, weight_decay;
    int64_t    t;  // this update, counted from 1
} tni_update;

// An update rule, constant. The names of its state are PyTorch's; checkpoints have them.
typedef struct {
    const char *name;                    // "adamw"
    const char *state[TNI_RULE_STATES];  // NULL where there is none
    tn_tensor *(*update)(const tn_optim *o, tni_update *u);
    bool (*has)(const tn_optim *o,
                int             k);  // whether the settings need state k; NULL: all named ones
} tni_update_rule;

// Numbers are the user's decimals (0.9, not 0.9f as a double), so that f64 training equals
// PyTorch's. order, flat, spare, list and node have room for all slots; the last three mean something only
// inside the functions of flat.c.
struct tn_optim {
    tni_owned              owned;  // first
    const tni_update_rule *rule;
    tni_trained           *slot;
    size_t                 slots;
    tn_tensor            **sorted;  // the slots' p, by address
    double                 lr;      // before the schedule
    double                 beta1, beta2, alpha, eps, momentum, dampening;
    double                 weight_decay;  // of parameters in no group
    double                 clip_norm, clip_value;
    bool                   nesterov, centered, no_master;
    tn_schedule            schedule;
    int64_t                accumulate;      // tn_steps to an update
    int64_t                updates, micro;  // updates done; tn_steps since the last
    tni_trained          **order;           // the slots of one block after the other
    tni_flat              *flat, *spare;
    size_t                 flats;
    tn_tensor            **list;  // the tensors being made
    tni_node             **node;  // the values being joined
};

// An optimizer of net's parameters with these settings, which are checked. NULL, reported, on
// failure.
tn_optim *tni_optim_make(const char *op, tn_layer *net, const tn_optim *settings);
// What is wrong with an optimizer's settings, as a phrase; empty if nothing.
tni_text tni_optim_wrong(const tn_optim *o);
// Whether v is a number from 0 on, and not infinite.
static inline bool tni_not_negative(double v)
{
    return v >= 0 && v < INFINITY;
}
// A number of an options struct: the shortest decimal that is this float; 0: the fallback.
double tni_option(float v, double fallback);
// The shortest decimal that is this float.
double tni_decimal(float v);
// Whether t is one of the parameters.
bool tni_optim_trains(const tn_optim *o, const tn_tensor *t);

// The name of state k, NULL where the rule has none.
const char *tni_state_name(const tn_optim *o, int k);
// The dtype of the state of a parameter: f32 at least.
tn_dtype tni_state_dtype(const tn_tensor *p);
// Whether a parameter has state k, of the rule or the master.
bool tni_has_state(const tn_optim *o, const tn_tensor *p, int k);

// Sorts all slots into blocks anew. Their states stay, and are joined when they are next needed.
void tni_flats_divide(tn_optim *o);
// The same, and parameters that are computed move into their blocks. False, reported, when that fails;
// the others then lie where they did.
bool tni_flats_lay(tn_optim *o);
// The place of the value that a tensor is about to get from a file; NULL where it gets none.
typedef tn_tensor **tni_value_of(void *user, const tn_tensor *t);
// Moves such values of parameters into blocks, as far as whole blocks get one, before they are put. False,
// reported, on failure; the values are then still good.
bool tni_flats_gather(tn_ctx *cx, tni_value_of *find, void *user);
// Gives a slot another state, or none (NULL). That of its block is joined again when it is next needed.
void tni_state_set(tn_optim *o, tni_trained *s, int k, tn_tensor *t);

// The stored gradient of a slot's parameter; NULL where there is none.
tn_tensor *tni_trained_grad(const tni_trained *s);

// keep * old + (1 - keep) * x.
tn_tensor *tni_average(tn_tensor *old, tn_tensor *x, double keep);
// The gradient with the weight decay that is part of it: g + decay * p.
tn_tensor *tni_decayed(const tni_update *u);

// The factor of the learning rate after so many updates.
double tni_schedule_factor(const tn_schedule *s, int64_t updates);
// What is wrong with a schedule; NULL if nothing.
const char *tni_schedule_wrong(const tn_schedule *s);

#endif
