// Layers: a tree of named tensors and a function. What the folders after this one need of it.
#ifndef TNI_NN_LAYER_H
#define TNI_NN_LAYER_H

#include "engine/engine.h"

enum { TNI_MOST_PORTS = 16 };  // inputs, or outputs, of a layer: they are on the stack

// A tensor or a child by its name in the layer. Both names and arrays are the layer's.
typedef struct {
    char      *name;
    tn_tensor *t;
    bool       spare;  // a file of weights may lack it: it stays as it is
} tni_named;

typedef struct {
    char     *name;
    tn_layer *l;
} tni_child;

// A weight that is computed from parameters and buffers of its layer before each forward pass. w is
// the handle that the layer's function reads: its store is bound to the value of this pass, with
// its history.
typedef struct tni_derived {
    struct tni_derived *next;
    char               *name;  // of w, which stands in no list of the layer
    tn_tensor          *w;
    bool                spectral;
    tn_tensor          *source;  // NAME_v, or NAME_orig: a parameter
    tn_tensor          *g;       // weight norm: the lengths, a parameter
    tn_tensor          *u, *v;   // spectral norm: buffers
    tn_tensor          *mask;    // of a pruned weight: a buffer
    int                 axis, iterations;
    double              eps;
} tni_derived;

// Parameters and buffers are owned (tni_tensor_own); a child belongs to its parent. A layer without
// a parent stands in the context's list of owned objects. Invariant: every parameter is a leaf
// unless it is frozen; names in one layer are unique.
struct tn_layer {
    tni_owned        owned;  // first
    const char      *type;   // "Linear", for the summary
    tn_layer        *parent;
    const tni_path  *path;  // from the root, for messages; NULL until it first runs, and in a root
    tn_forward_fn   *forward;
    tn_forward_n_fn *forward_n;  // instead of forward; neither: a container
    int              in, out;    // inputs and outputs that it takes and gives
    int              optional;   // how many of the inputs, at the end, may be missing
    bool             builtin;    // forward is ours: its temporaries die with the call
    bool             training;
    bool             recompute;   // its values are computed again in the backward pass
    bool             repeatable;  // see tn_layer_repeatable
    int              running;     // calls in progress that use the layer: it cannot be freed
    void            *self;
    void (*free_self)(void *self);
    tni_named *param, *buffer;
    tni_child *child;
    size_t     params, buffers, children, param_cap, buffer_cap, child_cap;
    // While a summary runs: called at the end of every forward call. Set in the tree's root.
    void (*watch)(tn_layer *l, int ny, tn_tensor *const *y, void *user);
    void        *watch_user;
    tni_derived *derived;  // weights that are computed in each pass
    tn_cache    *cache;    // of the tn_forward_cached in progress; set in the tree's root
};

// Makes a built-in layer with a zeroed struct of self_bytes bytes, tn_layer_self of it; 0: none.
// The caller has checked cx. NULL, reported by the op's name, on failure.
tn_layer *tni_layer_make(tn_ctx *cx, const char *op, const char *type, tn_forward_fn *f,
                         size_t self_bytes);
// The same for a function of several inputs and outputs.
tn_layer *tni_layer_make_n(tn_ctx *cx, const char *op, const char *type, tn_forward_n_fn *f,
                           tn_layer_counts n, size_t self_bytes);
// Computes the weights of l that are derived from others; false, reported, on failure.
bool tni_derive_weights(tn_layer *l);
// Frees a layer that could not be finished; returns NULL.
void *tni_layer_give_up(tn_layer *l);

// Around a user's function that is given l or its tensors: until it returns, neither the layer nor
// the context can be freed.
static inline void tni_layer_hold(tn_layer *l)
{
    l->running++;
    l->owned.cx->nested++;
}
static inline void tni_layer_let_go(tn_layer *l)
{
    l->running--;
    l->owned.cx->nested--;
}

// A dry run: layers run as in evaluation and without gradients, and nothing that they record is
// computed, since it dies with the scope. Modes, the gradient mode and the counter of random
// numbers are as before afterwards.
typedef struct {
    tn_layer *l;
    tn_scope *scope;
    bool     *training;  // of all layers below l, in order
    uint64_t  counter;
    int64_t   flush_at;
} tni_dry_run;
bool tni_dry_begin(tni_dry_run *d, const char *op, tn_layer *l);
void tni_dry_end(const tni_dry_run *d);

// The child whose name is the n characters at name; NULL if there is none.
tn_layer *tni_layer_child_named(const tn_layer *l, const char *name, size_t n);
// The layer at the top of l's tree.
tn_layer *tni_layer_root(tn_layer *l);
// The layer after l in the tree below root, parents before children; NULL after the last.
tn_layer *tni_layer_next(const tn_layer *root, tn_layer *l);
// "layer1.0.weight": what stands below l under that name, from root on; NULL when memory is out.
// The caller frees it.
char *tni_layer_full_name(const tn_layer *root, const tn_layer *l, const char *name);
// Finds out where l stands in its tree, for l->path. False when memory is out.
bool tni_layer_place(tn_layer *l);
// A child's name in its parent.
const char *tni_layer_name(const tn_layer *l);

// Whether another pass of one token is the pass of one token before it, one place further: the plan
// is the same, and no layer chose by the number of tokens. tni_cache_advance counts the token of a
// pass that was repeated.
bool tni_cache_repeats(const tn_cache *c);
void tni_cache_advance(tn_cache *c);

// One tensor of a tree, by its full name.
typedef struct {
    char      *name;
    tn_tensor *t;
    bool       is_param;
    bool       spare;  // as in tni_named
    int        first;  // of a tied tensor: the entry that has it first; else its own index
} tni_entry;

// All tensors of a tree: of each layer its parameters, then its buffers, then its children's.
typedef struct {
    tn_ctx    *cx;
    tni_entry *entry;
    size_t     count, cap;
} tni_entries;

// False, reported by the op's name, when memory is out; then there is nothing to free.
bool tni_layer_list(tn_layer *l, const char *op, tni_entries *list);
void tni_entries_free(tni_entries *list);

#endif
