// The context: one device, one owner thread, one error slot, and everything recorded in it.
#ifndef TNI_TENSOR_CONTEXT_H
#define TNI_TENSOR_CONTEXT_H

#include "base/text.h"
#include "tensor/tensor.h"

typedef struct tni_engine tni_engine;  // src/engine/: device, plans, asynchronous items

typedef enum {
    TNI_LAYER,
    TNI_OPTIM,
    TNI_DATA,
    TNI_TOKENIZER,
    TNI_FILE,
    TNI_CACHE,
    TNI_EXPR_OP,
    TNI_DIST,
    TNI_ONNX,
    TNI_TENSORBOARD,
    TNI_REPORT
} tni_kind;

// An object that belongs to a context besides tensors: a layer, an optimizer, a dataset, a
// tokenizer, a file, a cache of keys, a parsed expression, a world, a model, an event file. It is
// the first member of the object's struct. tn_close frees those that are left, newest first, before
// the tensors. A child layer belongs to its parent and is in no list.
typedef struct tni_owned tni_owned;
struct tni_owned {
    tni_kind   kind;
    tn_ctx    *cx;
    tni_owned *prev, *next;  // in the context's list
    void (*free)(tni_owned *t);
    // Called after a failed step was rolled back: every store has its last computed value again.
    // May be NULL.
    void (*rolled_back)(tni_owned *t);
};

// Owned by the program and used by its owner thread alone; everything in it dies with it. All
// public calls on it go through tni_ctx_ok, which checks the thread, so nothing here is locked.
// Invariant: between evaluations `pending` has every store whose node is pending.
struct tn_ctx {
    uint32_t magic;
    uint64_t owner;  // thread, 0 while none
    bool     grad_mode;
    tn_dtype autocast;  // the 16-bit float that products are computed in; TN_F32: off

    tni_fault   fault;
    uint64_t    failures;  // counts every error, also those after the first
    tn_handler *handler;
    void       *user;
    tni_fault   warning;  // the first
    tn_handler *warning_handler;
    void       *warning_user;
    bool        warning_handler_set;  // the program chose one, or none

    tni_heap    heap;
    tni_buffers buffers;
    tni_slab    nodes, stores, tensors, views, leaves, origins, scopes;

    tn_scope  *scope, root;  // innermost, outermost
    tn_scope   owned;        // not a scope: the list of tensors with owners
    tni_store *pending;      // stores whose node is pending, and some that reads computed since
    size_t   pending_stores, computed_pending;  // its length; upper bound of those already computed
    uint64_t next_id;
    uint64_t stores_made;
    int64_t  pending_nodes, flush_nodes;
    int64_t  flush_at;       // number of pending nodes at which the next flush runs
    uint64_t seed, counter;  // of random numbers; counter counts blocks of four
    struct {                 // which of a batch's items this rank has; total 0: all
        int64_t first, count, total;
    } items;
    uint32_t region, regions;  // of what is recorded now (tni_node.region); numbers given so far

    tni_node **walked;  // nodes that the next evaluation makes spent
    size_t     walked_count, walked_cap;

    tni_owned *objects;  // owned by the context, newest first
    tni_path **path;     // of layers: a hash table by text, NULL for empty slots
    size_t     paths, path_slots;

    tn_stats    stats;
    tni_engine *engine;
    uint64_t    lacks[4];  // bit set of LIBRARY ops that the device does not run: see tni_lacks
    // Asks the device about a recorded LIBRARY node; NULL if it runs it, else why not. Set by the
    // engine. declined: the latest such answer since the last evaluation and the op, for
    // tn_explain; "" if there was none.
    const char *(*declines)(tn_ctx *cx, const tni_node *n);
    tni_text declined;
    // T * S from which attention spelled out in plain ops is recognized (ops/recognize.c), 0:
    // never; and the score programs that it made.
    int64_t          recognizes;
    tni_score       *scores;
    tni_loop        *loops;  // the bodies of loops (ops/loop.h)
    struct tni_hook *hooks;  // of gradients, in order of registration (tensor/hook.h)
    struct tni_trace
           *trace;  // where composite calls are kept (ops/kept_calls.h); NULL: they are not
    int64_t last_hook;
    bool    joins;  // the gradient of a body is recorded: gradients side by side are joined
    // Asks the device how a convolution that is recorded stores its images and weights, as
    // attr.conv.channels_last says. from, to: channels of x and of the result; last: x is channels
    // last already. Set by the engine; NULL: as x is.
    int (*conv_order)(tn_ctx *cx, tn_dtype dt, int64_t from, int64_t to, bool last);
    // Evaluates everything pending that may still be asked for, without losing a value; set by the
    // engine. Not called while busy: in the middle of a walk or an evaluation.
    tn_status (*flush)(tn_ctx *cx);
    void (*enter)(
        tn_ctx *cx);        // makes its device that of the calling thread; NULL: nothing is needed
    struct tn_dist *world;  // the one that has an engine; NULL: none
    bool            busy;
    bool recording;  // an update, as a whole or not at all: what it computes is not stopped
    bool updating;   // an optimizer records its update, which is computed whole or not at all
    int  nested;     // nested calls of a user's function in progress
};

enum { TNI_CTX_LIVE = 0x7e407e40, TNI_CTX_DEAD = 0x0ead0ead, TNI_SCOPE_LIVE = 0x5c09e };

// Reports an error to a context (the first one is kept) and returns NULL.
void *tni_fail(tn_ctx *cx, tn_status code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
// The same for calls that return a status: returns code.
tn_status tni_fail_status(tn_ctx *cx, tn_status code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
// Keeps a warning, the first of the context, and reports it when the public call ends.
void  tni_warn(tn_ctx *cx, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void *tni_fail_memory(tn_ctx *cx, const char *op);
// The same for checks: they return false.
bool tni_refuse(tn_ctx *cx, tn_status code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
bool tni_no_memory(tn_ctx *cx, const char *op);
// The status that a call returns after an error was reported on this thread.
static inline tn_status tni_failed(void)
{
    return (tn_status)tni_self.latest;
}

// Whether this thread can use the context now; reports the reason in the thread's slot if not.
bool tni_ctx_ok(const tn_ctx *cx, const char *op);
// The context of n tensors if all are non-NULL, alive and of one context; else NULL. A NULL tensor
// is not reported after an earlier error, which probably caused it. names are those of the
// arguments, for the message.
tn_ctx *tni_args(const char *op, int n, tn_tensor *const *x, const char *const *names);
tn_ctx *tni_arg1(const char *op, tn_tensor *x, const char *name);
// The same for functions that know complex tensors; the two above refuse them.
tn_ctx *tni_args_any(const char *op, int n, tn_tensor *const *x, const char *const *names);
tn_ctx *tni_arg1_any(const char *op, tn_tensor *x, const char *name);

// Puts a new object into the context's list; removes one from it.
void tni_owned_add(tn_ctx *cx, tni_owned *t, tni_kind kind, void (*free)(tni_owned *t));
void tni_owned_remove(tni_owned *t);
// The context of an object that begins with a tni_owned; NULL, reported, if the object is NULL or
// its context cannot be used here. As with tensors, NULL after an error is not reported again.
tn_ctx *tni_owned_ok(const char *op, const void *owned, tni_kind kind);

// Whether a getter can look at t: false without a report for NULL; for a dead tensor debug builds
// report it.
bool tni_tensor_alive(const tn_tensor *t, const char *op);

// "(2, 3)" of a tensor.
tni_text tni_shape_of(const tn_tensor *x);
// Turns an axis that may be negative into 0 .. rank-1; -1, reported, if it is out of range.
int tni_axis(tn_ctx *cx, const char *op, int rank, int axis);
// Whether a rank is in range and its sizes are given; else reported by the op's name.
bool tni_rank_ok(tn_ctx *cx, const char *op, int rank, const int64_t *size);
// The same of a complex tensor, which has one axis more than its shape shows.
static inline bool tni_rank_ok_of(tn_ctx *cx, const char *op, bool complex, int rank,
                                  const int64_t *size)
{
    static const int64_t none = 0;
    return tni_rank_ok(cx, op, rank < 0 ? rank : rank + complex, rank || !complex ? size : &none);
}
// Whether a tensor of that shape can exist: no negative size, no overflow; else reported by the
// op's name.
bool tni_shape_ok(tn_ctx *cx, const char *op, int rank, const int64_t *size);

// Begins a public call. Both call forms of a public function stand between tni_enter and tni_leave
// (engine/sites.c), so the functions behind them need not. An error inside is reported to the
// handler when the outermost call ends, so that a handler that jumps leaves nothing half done.
void tni_enter(const char *file, int line, const char *op);
// Ends it. reap: tensors made inside, except keep, die. Then reports a new error to the handler.
void tni_leave(bool reap, const tn_tensor *keep);
// Around a call of user code inside a public call. Public calls that it makes have sites of their
// own, which keep the outermost one beside them; a call without a line has the site around it.
// After tni_user_sites_begin, what the user code makes dies with the frame of the public call.
// After tni_user_frames_begin its calls also have frames of their own, so that their temporaries
// die with them and the user's tensors survive ours. The handler waits for the outermost call in
// both. `before` must live until the matching end.
void tni_user_sites_begin(tni_thread *before);
void tni_user_sites_end(const tni_thread *before);
void tni_user_frames_begin(tni_thread *before);
void tni_user_frames_end(const tni_thread *before);

// The path of that text, made when it is first asked for; NULL when memory is out.
const tni_path *tni_path_of(tn_ctx *cx, const char *text);
void            tni_paths_close(tn_ctx *cx);

#endif
