// Optimizers: which parameters, their state, and the rule that updates them.
#ifndef TNI_OPTIM_OPTIM_H
#define TNI_OPTIM_OPTIM_H

#include "nn/layer.h"

enum { TNI_STATES = 3 };  // most tensors of state a parameter has: adam's two, rmsprop's three

// One parameter and what the rule remembers of it. The optimizer owns p and the state, beside
// whoever else owns p. State is made at the parameter's first update.
typedef struct {
    char      *name;  // full, in the network
    tn_tensor *p;
    tn_tensor *state[TNI_STATES];  // by the rule's names; NULL before the first update, or unused
    int64_t    updates;            // of this parameter: those without gradient are skipped
    double     lr_scale, weight_decay;
} tni_slot;

// An update rule, constant: what its state is called (in checkpoints), and the update of a batch of
// parameters that agree in dtype, settings and number of updates.
typedef struct tni_rule_of_update tni_rule_of_update;

// Numbers are the user's decimals (0.9, not 0.9f as a double), so that f64 training equals
// PyTorch's.
struct tn_optim {
    tni_thing                 thing;  // first
    const tni_rule_of_update *rule;
    tni_slot                 *slot;
    size_t                    slots;
    double                    lr;  // before the schedule
    double                    beta1, beta2, alpha, eps, momentum, dampening;
    double                    clip_norm, clip_value;
    bool                      nesterov, centered;
    tn_schedule               schedule;
    int64_t                   accumulate;      // tn_steps to an update
    int64_t                   updates, micro;  // updates done; tn_steps since the last
};

struct tni_rule_of_update {
    const char *name;               // "adamw"
    const char *state[TNI_STATES];  // "m", "v"; NULL where there is none
    // p and g are flat, of n equal-setting parameters joined; state too, NULL where it is new. Sets
    // next[] and returns the new p. lr and decay are those of the group, t counts this update from 1.
    tn_tensor *(*update)(const tn_optim *o, tn_tensor *p, tn_tensor *g, tn_tensor *const *state,
                         tn_tensor **next, double lr, double decay, int64_t t);
};

// The factor of the learning rate after so many updates.
double tni_schedule_factor(const tn_schedule *s, int64_t updates);
// The shortest decimal that is this float.
double tni_decimal(float v);

#endif
