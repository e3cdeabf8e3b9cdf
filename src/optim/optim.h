// Optimizers: which parameters, their state, and the rule that updates them.
#ifndef TNI_OPTIM_OPTIM_H
#define TNI_OPTIM_OPTIM_H

#include "grad/grad.h"
#include "nn/layer.h"

#include <math.h>

// The tensors of state that a parameter may have: those of its rule (RMSprop has the most, three),
// the master, and the running average of its values. The last two begin as the parameter, the
// others with a number.
enum { TNI_RULE_STATES = 3, TNI_MASTER = TNI_RULE_STATES, TNI_EMA, TNI_STATES };

// What loss scaling keeps on the device: the scale (f32), updates since it changed (i64), updates
// skipped (i64).
enum { TNI_SCALE, TNI_SINCE, TNI_SKIPPED, TNI_SCALING };
extern const char *const tni_scaling_name[TNI_SCALING];  // in checkpoints

// One slot of an optimizer: a parameter and the state kept for it. The optimizer shares ownership
// of p and owns the state, which is made at the parameter's first update. since and before undo a
// failed step: p's store returns to a node older than since, and the count of updates to before.
//
// State is f32 if p is f16 or bf16: a second moment underflows in f16, and in bf16 0.999 times one
// rounds back to it. Such a p is, unless the user declines, the rounding of an f32 master, which
// updates change, so that steps smaller than p's precision add up. Where an element of p is not the
// rounding of its master, the user has written p, and the master takes p's value. This is seen by
// comparing values, so the optimizer need not be notified.
typedef struct {
    char      *name;  // full, in the network
    tn_tensor *p;
    tn_tensor *state[TNI_STATES];  // by tni_state_name; NULL before the first update, or unused
    size_t     flat;               // its block, and its offset there, in elements; undefined if p
    int64_t    at;                 // has no elements
    int64_t    updates;            // of this parameter: updates without a gradient are skipped
    double     lr_scale, weight_decay;
    uint64_t   since;   // id of the first update's node that may not be computed yet; 0: none
    int64_t    before;  // updates before that
    bool       due;     // has a gradient for the update being recorded
    bool       taken;   // stands in a block already
    bool       low;     // the update being recorded writes its copy in 16 bits (tni_store.low)
    bool       picked;  // for the block being made
    bool vector;  // the rule updates it as a vector of elements, though it may be a matrix (muon.c)
} tni_trained;

// A flat block: slots that are updated as one tensor, stored one after the other, each from offset
// `at` on. Invariant: they agree in dtype, settings and number of updates; where the rule looks at
// whole parameters, a block is one slot. The parameters of a block are in one buffer, except those
// that the user has written since the last update; each still has a store of its own. The slots'
// states are views of the block's. A block is divided when only some of its slots get a gradient;
// blocks are joined by tni_flats_place alone.
//
// For an optimizer of several ranks a block is a bucket, of bucket_bytes at most. If state is
// sharded, each rank has `part` elements of a block: those from rank * part on, with zeros behind
// the end of the block; state[] is of this size then, and the slots have none.
typedef struct {
    size_t  first, count;  // in tn_optim.order
    int64_t size;          // elements
    tn_tensor
        *state[TNI_STATES];  // owned; NULL before the first update, or if it must be joined again
    tn_tensor *g;  // while an update is recorded: the joined gradients, of the part; NULL: none
    bool       summed;  // over all ranks
    int64_t    part;    // elements; 0: the block is not sharded
} tni_flat;

// One update of a block, as a rule sees it: p, g and the states are whole blocks of one dtype, f32
// or f64, or, if the rule takes whole parameters, one of them in its shape. The rule sets next for
// each state that it has, and returns the new p.
typedef struct {
    tn_tensor *p, *g;
    tn_tensor
        *state[TNI_RULE_STATES];  // the rule's `first` at the first update; NULL where it has none
    tn_tensor *next[TNI_RULE_STATES];
    double     lr, weight_decay;
    bool       vector;  // of its only slot
    int64_t    t;       // this update, counted from 1
    tn_tensor
        *counted;  // under loss scaling: the same without skipped updates, f32, 0-d; else NULL
} tni_update;

// An update rule, constant. The names of its states are PyTorch's; checkpoints use them.
typedef struct {
    const char *name;                    // "adamw"
    const char *state[TNI_RULE_STATES];  // NULL where there is none
    tn_tensor *(*update)(tn_optim *o, tni_update *u);
    // Returns whether the settings need state k of a slot; NULL: all named ones.
    bool (*has)(const tn_optim *o, const tni_trained *s, int k);
    const char *settings[4];  // its numbers that tn_optim_set can set, up to a NULL
    bool
        whole;  // it looks at whole parameters, by their norm or as matrices, and not at elements alone
} tni_update_rule;

// What L-BFGS keeps beside this (lbfgs.c).
typedef struct tni_lbfgs tni_lbfgs;
void                     tni_lbfgs_free(tn_optim *o);

// An optimizer. Numbers are the user's decimals (0.9, not 0.9f as a double), so that f64 training
// equals PyTorch's. order, flat, spare, list and node are arrays of one element for each slot; the
// last three are work space of the functions in flat.c.
struct tn_optim {
    tni_owned              owned;  // first
    const tni_update_rule *rule;
    tni_trained           *slot;
    size_t                 slots;
    tn_tensor            **sorted;  // the slots' p, by address
    double                 lr;      // before the schedule
    double                 beta1, beta2, alpha, eps, momentum, dampening;
    double  decay;  // of the learning rate (Adagrad) or the momentum (NAdam) with each update
    double  first;  // what the elements of state 0 begin with
    double  ema;  // how much of the running average of parameters an update keeps; 0: there is none
    double  product;  // NAdam's product of momenta, of the first `factors` updates
    int64_t factors;
    double  weight_decay;  // of parameters in no group
    double  clip_norm, clip_value, clip_each;
    bool    nesterov, centered, no_master, match_rms;
    tn_schedule   schedule;
    tn_dist      *dist;          // whose ranks update together; NULL: this process alone
    int64_t       bucket_bytes;  // of a block; 0: any number
    bool          shard_state;
    int64_t       accumulate;      // tn_steps to an update
    int64_t       updates, micro;  // updates done; tn_steps since the last
    double        loss_scale;      // at the beginning; 0: losses are not scaled
    double        scale_growth, scale_backoff;
    int64_t       scale_interval;
    tn_tensor    *scaling[TNI_SCALING];  // owned, 0-d; NULL without loss scaling
    tn_tensor    *norm;    // owned, 0-d: of the last update's gradients; NULL: it was not asked for
    tn_tensor    *finite;  // while an update is recorded under loss scaling: whether it is done
    tni_trained **order;   // the slots of one block after the other
    tni_flat     *flat, *spare;
    size_t        flats;
    tn_tensor   **list;   // the tensors being made
    tni_node    **node;   // the values being joined
    tni_lbfgs    *lbfgs;  // NULL: the rule updates by one gradient
};

// The options that all optimizers have, as settings.
#define TNI_COMMON_OF(o)                                                                    \
    .clip_norm = tni_option((o).clip_norm, 0), .clip_value = tni_option((o).clip_value, 0), \
    .clip_each = tni_option((o).clip_each, 0), .accumulate = (o).accumulate,                \
    .schedule = (o).schedule, .no_master = (o).no_master, .ema = tni_option((o).ema, 0),    \
    .loss_scale = (o).loss_scale, .scale_growth = tni_option((o).scale_growth, 2),          \
    .scale_backoff  = tni_option((o).scale_backoff, 0.5),                                   \
    .scale_interval = (o).scale_interval ? (o).scale_interval : 2000

// Makes an optimizer of net's parameters with these settings, after checking them. NULL, reported,
// on failure.
tn_optim *tni_optim_make(const char *op, tn_layer *net, const tn_optim *settings);
// Returns what is wrong with an optimizer's settings, as a phrase; empty if nothing is.
tni_text tni_optim_wrong(const tn_optim *o);
// Returns whether updates look at whole parameters, and not at elements alone: then a block is one
// slot.
static inline bool tni_takes_whole(const tn_optim *o)
{
    return o->rule->whole || o->clip_each > 0;
}
// Returns whether v is finite and not negative.
static inline bool tni_not_negative(double v)
{
    return v >= 0 && v < INFINITY;
}
// Returns a number of an options struct as tni_decimal does; the fallback if it is 0.
double tni_option(double v, double fallback);
// Returns the number that a program meant by v. A v that is exactly a float was most likely written
// as one, as 1e-3f: the result is then the shortest decimal that rounds to this float, 0.001. Every
// other v is returned unchanged.
double tni_decimal(double v);
// Returns whether t is one of the parameters.
bool tni_optim_trains(const tn_optim *o, const tn_tensor *t);

// Returns the name of state k; NULL if the rule has no such state.
const char *tni_state_name(const tn_optim *o, int k);
// Returns the dtype of a parameter's state: f32 or wider.
tn_dtype tni_state_dtype(const tn_tensor *p);
// Returns whether a slot has state k, of the rule or of those behind it.
bool tni_has_state(const tn_optim *o, const tni_trained *s, int k);

// Sorts all slots into blocks anew. Their states stay, and are joined when they are next needed.
void tni_flats_divide(tn_optim *o);
// The same, and moves computed parameters into their blocks. False, reported, if that fails;
// parameters not moved yet then stay where they were.
bool tni_flats_place(tn_optim *o);
// Returns the place of the value that a tensor is about to get from a file; NULL if it gets none.
typedef tn_tensor **tni_value_of(void *user, const tn_tensor *t);
// Moves such values into flat blocks before they are put, for blocks all of whose parameters get
// one. False, reported, on failure; the values are then still valid.
bool tni_flats_gather(tn_ctx *cx, tni_value_of *find, void *user);
// Makes the states of all slots whole if they are sharded, for whoever reads or writes them; the
// next update divides them again. All ranks call it. False, reported, on failure.
bool tni_optim_whole(tn_optim *o);
// Gives a slot another state, or none (NULL). The block's state is joined again when it is next
// needed.
void tni_state_set(tn_optim *o, tni_trained *s, int k, tn_tensor *t);

// Returns the stored gradient of a slot's parameter; NULL if it has none.
tn_tensor *tni_trained_grad(const tni_trained *s);

// Returns keep * old + (1 - keep) * x.
tn_tensor *tni_average(tn_tensor *old, tn_tensor *x, double keep);
// Returns the gradient including weight decay: g + decay * p.
tn_tensor *tni_decayed(const tni_update *u);
// Returns the parameter after decoupled weight decay: p * (1 - lr * decay).
tn_tensor *tni_shrunk(const tni_update *u);
// Returns the new p by AdamW, whose moments are states `first` and the one behind it.
tn_tensor *tni_update_adamw(const tn_optim *o, tni_update *u, int first);

// Returns the factor of the learning rate after this number of updates.
double tni_schedule_factor(const tn_schedule *s, int64_t updates);
// Returns what is wrong with a schedule; NULL if nothing is.
const char *tni_schedule_wrong(const tn_schedule *s);

#endif
