// Hooks of gradients: which functions a backward pass calls when it knows the gradient of a value.
#ifndef TNI_TENSOR_HOOK_H
#define TNI_TENSOR_HOOK_H

#include "tensor/context.h"
#include "tensor/tensor.h"

// A hook stands in the context's list, in order of registration. It holds no node, or a step's
// graph would live as long as its hooks: it knows the node's id, and a node that has hooks
// (`hooked`) takes them along when it dies. A leaf's cell is held; the hook goes once its handle is
// gone.
typedef struct tni_hook {
    struct tni_hook *next;
    int64_t          number;  // what the program knows it by
    uint64_t         id;      // of the node; 0: of a leaf
    tni_leaf        *leaf;
    tn_hook_fn      *f;
    void            *user;
    void (*end)(void *user);  // NULL: nothing is to be done
} tni_hook;

// Adds a hook of a leaf or of node n; its number, or 0, reported by the op's name.
int64_t tni_hook_put(tn_ctx *cx, const char *op, tni_leaf *leaf, tni_node *n, tni_hook h);
// The hook of n, a leaf's state or another node, that follows number `after`; NULL if there is
// none.
tni_hook *tni_hook_of(tn_ctx *cx, const tni_node *n, int64_t after);
// Ends the hook of a number; false if there is none. And those of a node that dies, of leaves whose
// handles are gone, all.
bool tni_hook_end(tn_ctx *cx, int64_t number);
void tni_hooks_forget(tn_ctx *cx, uint64_t id);
void tni_hooks_prune(tn_ctx *cx);
void tni_hooks_close(tn_ctx *cx);

#endif
