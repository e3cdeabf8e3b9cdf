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
    tn_tensor *flat[TNI_STATES];   // all of the tensor that state is the first part of, or NULL
    int64_t    updates;            // of this parameter: those without gradient are skipped
    double     lr_scale, weight_decay;
    uint64_t   since;   // id of the first update's node that may not be computed yet; 0: none
    int64_t    before;  // updates before that
    bool       taken;   // stands in a bunch of the update being recorded
} tni_trained;

// Slots that are updated as one flat tensor: those with a gradient that agree in dtype, settings
// and number of updates.
typedef struct {
    size_t     first, count;  // in tn_optim.order
    tn_tensor *g;             // their gradients, joined
} tni_bunch;

// One update of a bunch as a rule sees it: p, g and state joined, of one dtype, f32 at least. The rule
// sets next where it has a state, and returns the new p.
typedef struct {
    tn_tensor *p, *g;
    tn_tensor *state[TNI_RULE_STATES];  // NULL at the first update
    tn_tensor *next[TNI_RULE_STATES];
    double     lr, weight_decay;
    int64_t    t;  // this update, counted from 1
} tni_update;

// An update rule, constant. The names of its state are PyTorch's; checkpoints have them.
typedef struct {
    const char *name;                    // "adamw"
    const char *state[TNI_RULE_STATES];  // NULL where there is none
    tn_tensor *(*update)(const tn_optim *o, tni_update *u);
} tni_update_rule;

// Numbers are the user's decimals (0.9, not 0.9f as a double), so that f64 training equals
// PyTorch's. order, bunch, list and node have room for all slots and mean something only while an update
// is recorded.
struct tn_optim {
    tni_thing              thing;  // first
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
    tni_trained          **order;           // the slots of one bunch after the other
    tni_bunch             *bunch;
    size_t                 bunches;
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
// Whether a parameter has a master.
bool tni_has_master(const tn_optim *o, const tn_tensor *p);

// The stored gradient of a slot's parameter; NULL where there is none.
tn_tensor *tni_trained_grad(const tni_trained *s);

// keep * old + (1 - keep) * x, where old NULL is zeros.
tn_tensor *tni_average(tn_tensor *old, tn_tensor *x, double keep);
// The gradient with the weight decay that is part of it: g + decay * p.
tn_tensor *tni_decayed(const tni_update *u);

// The factor of the learning rate after so many updates.
double tni_schedule_factor(const tn_schedule *s, int64_t updates);
// What is wrong with a schedule; NULL if nothing.
const char *tni_schedule_wrong(const tn_schedule *s);

#endif
