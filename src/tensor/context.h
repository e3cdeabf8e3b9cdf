// The context: one device, one owner thread, one error slot, and everything recorded in it.
#ifndef TNI_TENSOR_CONTEXT_H
#define TNI_TENSOR_CONTEXT_H

#include "base/text.h"
#include "tensor/tensor.h"

typedef struct tni_engine tni_engine;  // src/engine/: device, plans, late values

typedef enum { TNI_LAYER, TNI_OPTIM, TNI_DATA, TNI_BPE, TNI_FILE, TNI_EXPR_OP } tni_kind;

// What belongs to a context besides tensors. It is the first member of the struct of such an object; tn_close frees those
// that are left, newest first, before the tensors. A child layer belongs to its parent and stands
// in no list.
typedef struct tni_owned tni_owned;
struct tni_owned {
    tni_kind   kind;
    tn_ctx    *cx;
    tni_owned *prev, *next;  // in the context's list
    void (*free)(tni_owned *t);
    // A step failed and every store is back at its last computed value; NULL where nothing follows.
    void (*rolled_back)(tni_owned *t);
};

// Owned by the program and used by its owner thread alone; everything in it dies with it.
// Invariant: between evaluations, pending lists just the stores whose node is pending.
struct tn_ctx {
    uint32_t magic;
    uint64_t owner;  // thread, 0 while none
    bool     grad_mode;

    tni_fault   fault;
    uint64_t    failures;  // counts every error, also those after the first
    tn_handler *handler;
    void       *user;
    tni_fault   warning;  // the first, once told or waiting to be
    tn_handler *warning_handler;
    void       *warning_user;
    bool        warning_handler_set;  // by the program

    tni_heap    heap;
    tni_buffers buffers;
    tni_slab    nodes, stores, tensors, views, leaves, origins, scopes;

    tn_scope  *scope, root;  // innermost, outermost
    tn_scope   owned;        // no scope: the tensors that have owners
    tni_store *pending;      // stores whose node is pending, and some that a read has computed
    size_t     pending_stores, computed_pending;  // their number; of those at most so many computed
    uint64_t   next_id;
    uint64_t   stores_made;
    int64_t    pending_nodes, flush_nodes;
    int64_t    flush_at;       // pending nodes at which the next flush is tried
    uint64_t   seed, counter;  // of the random numbers; counter counts blocks of four

    tni_node **walked;  // nodes that the next evaluation makes spent
    size_t     walked_count, walked_cap;

    tni_owned *objects;  // that belong to the context, newest first
    tni_path **path;     // of layers, by the hash of their texts; NULL where none is
    size_t     paths, path_slots;

    tn_stats    stats;
    tni_engine *engine;
    uint64_t    lacks[4];  // LIBRARY ops that the device does not run, as bits: see tni_lacks
    // Evaluates everything that is needed, losing nothing; set by the engine. Not called while
    // busy: in the middle of a walk or an evaluation.
    tn_status (*flush)(tn_ctx *cx);
    bool busy;
    bool updating;  // an optimizer records its update: what is written now is computed as a whole
    int  nested;    // calls in progress that run a user's function, one inside the other
};

enum { TNI_CTX_LIVE = 0x7e407e40, TNI_CTX_DEAD = 0x0ead0ead, TNI_SCOPE_LIVE = 0x5c09e };

// Reports an error to a context (its first one is kept) and returns NULL.
void *tni_fail(tn_ctx *cx, tn_status code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
// The same for calls that return a status: returns code.
tn_status tni_fail_status(tn_ctx *cx, tn_status code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
// Keeps a warning, the first of the context, and tells it when the public call ends.
void  tni_warn(tn_ctx *cx, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void *tni_fail_memory(tn_ctx *cx, const char *op);
// The same for checks: they return false.
bool tni_refuse(tn_ctx *cx, tn_status code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
bool tni_no_memory(tn_ctx *cx, const char *op);
// The status that a call returns after something reported an error on this thread.
static inline tn_status tni_failed(void)
{
    return (tn_status)tni_self.latest;
}

// Whether this context can be used here and now; reports what is wrong in the thread's slot.
bool tni_ctx_ok(const tn_ctx *cx, const char *op);
// The context of n tensors, all there, alive, and of one context; else NULL, reported as the
// rules of NULL say. names are those of the arguments, for the message.
tn_ctx *tni_args(const char *op, int n, tn_tensor *const *x, const char *const *names);
tn_ctx *tni_arg1(const char *op, tn_tensor *x, const char *name);

// Puts a new object into the context's list, and takes one out of it.
void tni_owned_add(tn_ctx *cx, tni_owned *t, tni_kind kind, void (*free)(tni_owned *t));
void tni_owned_remove(tni_owned *t);
// The context of an object that begins with a tni_owned; NULL, reported, if the object is NULL or cannot
// be used here and now. As with tensors, NULL after an error is not reported again.
tn_ctx *tni_owned_ok(const char *op, const void *owned, tni_kind kind);

// Whether t can be asked something: quiet for NULL, an error for a dead one where that can be told.
bool tni_tensor_alive(const tn_tensor *t, const char *op);

// "(2, 3)" of a tensor.
tni_text tni_shape_of(const tn_tensor *x);
// Turns an axis that may be negative into 0 .. rank-1; -1, reported, if there is none such.
int tni_axis(tn_ctx *cx, const char *op, int rank, int axis);
// Whether a rank is one, and its sizes are there; reports it by the op's name.
bool tni_rank_ok(tn_ctx *cx, const char *op, int rank, const int64_t *size);
// Whether a shape can be had; reports it by the op's name.
bool tni_shape_ok(tn_ctx *cx, const char *op, int rank, const int64_t *size);

// The public call in progress: both call forms of a function stand between these two (engine/sites.c), so
// that the functions behind them need not. An error inside is told to the handler when the outermost call
// ends, so that a handler that jumps finds nothing half way.
void tni_enter(const char *file, int line, const char *op);
// Ends it. reap: tensors made inside, except keep, die. Then tells a new error to the handler.
void tni_leave(bool reap, const tn_tensor *keep);
// Around a call of the user's code inside a public call. The public calls it makes have sites of their
// own, which keep the outermost one beside them; a call without a line has the site around it.
// tni_user_sites_begin leaves it at that: what the code makes dies with our frame. After tni_user_frames_begin they
// also have frames of their own, so that their temporaries die with them and the user's tensors do
// not die with ours. The handler waits for the outermost call. before lasts until the end.
void tni_user_sites_begin(tni_thread *before);
void tni_user_sites_end(const tni_thread *before);
void tni_user_frames_begin(tni_thread *before);
void tni_user_frames_end(const tni_thread *before);

// The path of that text, made when it is first asked for; NULL when memory is out.
const tni_path *tni_path_of(tn_ctx *cx, const char *text);
void            tni_paths_close(tn_ctx *cx);

#endif
