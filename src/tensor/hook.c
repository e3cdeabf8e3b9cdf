// The list of hooks of a context. It is short: programs look at a few gradients, so it is searched
// from its beginning.
#include "tensor/hook.h"

// Takes the hook at a place of the list out of it and frees it. The program's function may call
// anything but a backward pass, hence the list is in order before it runs.
static void take_out(tn_ctx *cx, tni_hook **at)
{
    tni_hook *h = *at;
    *at         = h->next;
    if (h->leaf) tni_leaf_unref(cx, h->leaf);
    if (h->end) h->end(h->user);
    tni_free(&cx->heap, h);
}

// Hooks of leaves that are gone make room first, so that a program that registers one in every step
// keeps few.
int64_t tni_hook_put(tn_ctx *cx, const char *op, tni_leaf *leaf, tni_node *n, tni_hook h)
{
    tni_hook **last = &cx->hooks, *made = tni_alloc(&cx->heap, sizeof *made);
    if (!made) {
        tni_fail_memory(cx, op);
        return 0;
    }
    tni_hooks_prune(cx);
    while (*last) last = &(*last)->next;
    *made        = h;
    made->next   = NULL;
    made->number = ++cx->last_hook;
    made->leaf   = leaf ? tni_leaf_ref(leaf) : NULL;
    made->id     = leaf ? 0 : n->id;
    if (!leaf) n->hooked = true;
    *last = made;
    return made->number;
}

// By number, and not by following links: a hook may end itself or others while it runs.
tni_hook *tni_hook_of(tn_ctx *cx, const tni_node *n, int64_t after)
{
    for (tni_hook *h = cx->hooks; h; h = h->next)
        if (h->number > after && (n->leaf ? h->leaf == n->leaf : h->id && h->id == n->id)) return h;
    return NULL;
}

// A number is never given twice, so that one that has ended ends nothing else.
bool tni_hook_end(tn_ctx *cx, int64_t number)
{
    for (tni_hook **at = &cx->hooks; *at; at = &(*at)->next)
        if ((*at)->number == number) {
            take_out(cx, at);
            return true;
        }
    return false;
}

// From the beginning again after each, since the end of one may change the list.
void tni_hooks_forget(tn_ctx *cx, uint64_t id)
{
    for (tni_hook **at = &cx->hooks; *at;)
        if ((*at)->id == id) {
            take_out(cx, at);
            at = &cx->hooks;
        } else {
            at = &(*at)->next;
        }
}

// A leaf's cell outlives its handle while nodes or hooks hold it.
void tni_hooks_prune(tn_ctx *cx)
{
    for (tni_hook **at = &cx->hooks; *at;)
        if ((*at)->leaf && !(*at)->leaf->handle) {
            take_out(cx, at);
            at = &cx->hooks;
        } else {
            at = &(*at)->next;
        }
}

// While tensors still exist, so that the program's functions may let go of some.
void tni_hooks_close(tn_ctx *cx)
{
    while (cx->hooks) take_out(cx, &cx->hooks);
}
