// Values that a backward pass computes again. What a layer records that is set to be recomputed is
// a region. When the walk first needs values of it, its nodes are recorded once more, over the same
// inputs and with the same attributes, random counters among them. Rules then read the copies, and
// the values of the forward pass die where that last reads them. As plans run in the order of
// recording, the copies run right before the gradients that read them; fusion keeps them apart from
// the forward pass (tni_same_pass).
#include "grad/grad.h"

#include <string.h>

// Not: states of leaves and numbers, which
// take no memory of the forward pass; what writes stores, since it is to happen once; and values
// that are in memory already, because a read asked for them.
bool tni_is_recomputed(const tni_node *n)
{
    bool open = n->state == TNI_PENDING || n->state == TNI_UNSTORED;
    return n->region && open && !n->leaf && !n->again && !n->update && !n->constant &&
           tni_op_table[n->op].class != TNI_EFFECT && n->op != TNI_LEAF_OP;
}

// Lists a node once; until its copy is made, it is its own.
static bool list_node(tn_ctx *cx, tni_recomputed *r, tni_node *n, uint32_t region)
{
    if (n->copy || n->region != region || !tni_is_recomputed(n)) return true;
    if (!tni_grow(&cx->heap, (void **)&r->node, &r->cap, r->count + 1, sizeof *r->node))
        return false;
    n->copy             = n;
    r->node[r->count++] = n;
    return true;
}

// An output is listed with its primary, which computes it. The list grows while it is read.
static bool list_region(tn_ctx *cx, tni_recomputed *r, uint32_t region, size_t count,
                        tni_node *const *node, const bool *leads)
{
    size_t first = r->count;
    for (size_t i = 0; i < count; i++)
        if (leads[i] && !list_node(cx, r, node[i], region)) return false;
    for (size_t i = first; i < r->count; i++)
        for (uint32_t s = 0; s < r->node[i]->nsrc; s++)
            if (!list_node(cx, r, r->node[i]->src[s], region)) return false;
    return true;
}

// The source of a copy: the source's copy, or itself. A value that was not stored is computed
// again, as when a tensor is asked for.
static tni_node *source_of_copy(tn_ctx *cx, const char *op, tni_node *src)
{
    if (src->copy) return src->copy;
    const tni_node *gone = src->state > TNI_DONE ? tni_node_reschedule(cx, src) : NULL;
    if (!gone) return src;
    return tni_fail(cx, TN_EGONE, "%s: a recomputed layer needs a value of %s, which is gone", op,
                    tni_shape_text(gone->rank, gone->size).s);
}

// Makes the copy of a node whose sources have theirs. It belongs to the layer of the node, for
// profiles and messages.
static bool copy_node(tn_ctx *cx, const char *op, tni_node *n, tni_node **src)
{
    for (uint32_t s = 0; s < n->nsrc; s++)
        if (!(src[s] = source_of_copy(cx, op, n->src[s]))) return false;
    tni_node *copy = tni_record_copy(cx, n, src);
    if (!copy) return false;
    copy->again  = true;
    copy->region = cx->regions;
    copy->site   = n->site;
    n->copy      = copy;
    return true;
}

// Oldest first: ids are a topological order.
bool tni_recompute_region(tn_ctx *cx, const char *op, tni_recomputed *r, const tni_node *n,
                          size_t count, tni_node *const *node, const bool *leads)
{
    size_t   first = r->count, most = 1;
    uint64_t failures = cx->failures;
    bool     ok       = list_region(cx, r, n->region, count, node, leads) &&
              tni_nodes_sort(&cx->heap, r->count - first, r->node + first);
    for (size_t i = first; i < r->count; i++)
        if (r->node[i]->nsrc > most) most = r->node[i]->nsrc;
    tni_node **src = tni_alloc(&cx->heap, most * sizeof *src);
    ok             = ok && src;
    cx->regions++;
    for (size_t i = first; ok && i < r->count; i++) ok = copy_node(cx, op, r->node[i], src);
    tni_free(&cx->heap, src);
    if (!ok && cx->failures == failures) tni_fail_memory(cx, op);
    return ok;
}

void tni_recomputed_free(tn_ctx *cx, tni_recomputed *r)
{
    for (size_t i = 0; i < r->count; i++) {
        tni_node *n = r->node[i], *copy = n->copy;
        n->copy = NULL;
        if (copy && copy != n) tni_node_unref(cx, copy);
    }
    tni_free(&cx->heap, r->node);
    *r = (tni_recomputed){ 0 };
}
