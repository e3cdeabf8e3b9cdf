// The trace of a context: public calls with the nodes that they read and made.
#include "ops/kept_calls.h"

// Whether the result is what the call's kind says, and nothing that was there before: a call may
// return what it was given.
static bool is_result_of(const tni_kept *c, const tn_tensor *y, const tn_tensor *x)
{
    bool index = c->kind == TNI_KEPT_embed;
    if (!index && tni_dtype(y) != tni_dtype(x)) return false;
    for (int i = 0; i < TNI_KEPT_SOURCES; i++) {
        const tni_node *n = c->src[i];
        // The call may have read another view than the one that is made here.
        while (n && n->op == TNI_VIEW_OP && n->id > c->y->id) n = n->src[0];
        if (n && n->id >= c->y->id) return false;
    }
    return true;
}

// A call that cannot be kept, also when memory is out, is written as what it recorded: nothing is
// lost but its name.
void tni_trace_add(tn_tensor *y, int n, tn_tensor *const *src, const tni_kept *c)
{
    tn_ctx    *cx = y->cx;
    tni_trace *t  = cx->trace;
    tni_kept   k  = *c;
    k.y           = y->store->node;
    k.shown       = tni_layout(y);
    for (int i = 0; i < n; i++)
        if (src[i] && !(k.src[i] = tni_resolve(src[i], "trace"))) return;
    if (!is_result_of(&k, y, src[0])) return;
    if (!tni_grow(&cx->heap, (void **)&t->call, &t->cap, t->count + 1, sizeof k)) return;
    for (int i = 0; i < n; i++)
        if (k.src[i]) tni_node_ref(k.src[i]);
    tni_node_ref(k.y);
    t->call[t->count++] = k;
}

// Newest first, as nodes are best released.
void tni_trace_close(tn_ctx *cx, tni_trace *t)
{
    while (t->count) {
        tni_kept *c = &t->call[--t->count];
        for (int i = 0; i < TNI_KEPT_SOURCES; i++)
            if (c->src[i]) tni_node_unref(cx, c->src[i]);
        tni_node_unref(cx, c->y);
    }
    tni_free(&cx->heap, t->call);
    *t = (tni_trace){ 0 };
}
