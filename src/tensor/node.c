// Recording nodes, releasing them, and scheduling values to be computed again.
//
// Releasing is the intricate part. A node has counted references (refs), of which some come from
// recipes alone (see node.h). When refs reaches recipes, only recipes hold the node: its buffer
// goes, and it becomes unstored or gone. When refs reaches 0 it is freed. Either releases further
// nodes, so both run over one work list, linked by `next`, instead of recursing: a chain of a
// million nodes must not overflow the stack.
#include "tensor/hook.h"
#include "tensor/context.h"

#include <string.h>

// Three sources fit into the node; more, as of a concatenation, are an array of their own.
static bool hold_sources(tn_ctx *cx, tni_node *n, int nsrc, tni_node *const *src)
{
    n->src = n->few;
    if (nsrc > 3) {
        n->src = tni_alloc(&cx->heap, (size_t)nsrc * sizeof *src);
        if (!n->src) return false;
    }
    n->nsrc = (uint32_t)nsrc;
    for (int i = 0; i < nsrc; i++) {
        n->src[i] = src[i];
        src[i]->refs_and_uses += TNI_ONE_USE;
    }
    return true;
}

// Returns whether a gradient can pass through n. A node all of whose sources toward a leaf are
// spent (an earlier backward pass went through them) cannot pass one on: it drops its history here,
// so that a running sum carried over many steps does not hold the nodes of all of them. It returns
// true all the same, and a later backward pass through it reports what happened.
static bool carries_gradient(tn_ctx *cx, tni_node *n)
{
    if (n->spent || n->state != TNI_DONE || n->leaf || !n->nsrc) return true;
    bool had = false;  // else it was overwritten, and never had a way
    for (uint32_t i = 0; i < n->nsrc; i++) {
        had |= tni_passes_grad_to(n, n->src[i]);
        if (tni_passes_grad_to(n, n->src[i]) && !n->src[i]->spent) return true;
    }
    if (!had) return true;
    n->spent = true;
    tni_node_forget(cx, n);
    return true;
}

// Only the fields before `site` are zeroed; the rest is written here, and attr by the caller. The
// layer's path belongs to a context, so the path of another context, which may close first, is not
// kept.
static tni_node *new_node(tn_ctx *cx, int op, tn_dtype dt, int rank, const int64_t *size, int nsrc,
                          tni_node *const *src)
{
    tni_node *n = tni_slab_take(&cx->nodes);
    if (!n) return tni_fail_memory(cx, "recording");
    memset(n, 0, offsetof(tni_node, site));
    n->refs   = 1;
    n->op     = (uint16_t)op;
    n->dtype  = (uint8_t)dt;
    n->rank   = (uint8_t)rank;
    n->region = cx->region;
    n->site   = tni_self.site;
    if (n->site.layer && n->site.layer->owner != cx) n->site.layer = NULL;  // would not last
    for (int i = 0; i < rank; i++) n->size[i] = size[i];
    if (!hold_sources(cx, n, nsrc, src)) {
        tni_slab_give(&cx->nodes, n);
        return tni_fail_memory(cx, "recording");
    }
    n->id = ++cx->next_id;
    if (cx->grad_mode && tni_is_float(dt))
        for (int i = 0; i < nsrc; i++)
            if (tni_passes_grad_to(n, src[i]) && carries_gradient(cx, src[i])) n->needs_grad = true;
    cx->pending_nodes++;
    return n;
}

// Recording without end, as in a loop that never reads a value, would hold ever more nodes: at
// flush_at pending nodes the engine evaluates them. Not while busy, since a walk or an evaluation
// holds pointers into the graph.
tni_node *tni_node_new(tn_ctx *cx, int op, tn_dtype dt, int rank, const int64_t *size, int nsrc,
                       tni_node *const *src)
{
    if (cx->pending_nodes >= cx->flush_at && !cx->busy) {
        cx->flush(cx);
        cx->flush_at = cx->pending_nodes + cx->flush_nodes;  // few are left, unless it failed
    }
    return new_node(cx, op, dt, rank, size, nsrc, src);
}

// The primary's list of outputs is weak: it counts no reference, and unlink_output removes an
// output that is released first.
tni_node *tni_node_output(tn_ctx *cx, tni_node *primary, int64_t index, tn_dtype dt, int rank,
                          const int64_t *size)
{
    tni_node *n = new_node(cx, TNI_OUTPUT_OP, dt, rank, size, 1, &primary);
    if (!n) return NULL;
    n->attr.output.index = index;
    n->output            = primary->output;
    primary->output      = n;
    return n;
}

tni_node *tni_node_view(tn_ctx *cx, tni_node *src, const tni_view *v)
{
    tni_node *n = tni_node_new(cx, TNI_VIEW_OP, src->dtype, v->rank, v->size, 1, &src);
    if (!n) return NULL;
    n->weak             = src->weak;
    n->below            = src->below;
    n->attr.view.offset = v->offset;
    for (int i = 0; i < v->rank; i++) n->attr.view.stride[i] = v->stride[i];
    return n;
}

tni_view tni_node_layout(const tni_node *n)
{
    if (n->op != TNI_VIEW_OP) return tni_view_whole(n->rank, n->size);
    tni_view v;
    v.rank   = n->rank;
    v.offset = n->attr.view.offset;
    for (int i = 0; i < n->rank; i++) {
        v.size[i]   = n->size[i];
        v.stride[i] = n->attr.view.stride[i];
    }
    return v;
}

// ---- letting go --------------------------------------------------------------------------------

// Puts a node that nothing, or only recipes, hold on the list of nodes to release. Until its turn
// comes, a node that recipes hold has one reference more, so that it is not queued twice.
static inline tni_node *queue_release(tni_node *n, tni_node *list)
{
    if (n->refs) {
        if (n->state > TNI_DONE) return list;  // has no value to release
        n->refs++;
    }
    n->next = list;
    return n;
}

// The recipe of n becomes its sources: they are counted as uses again.
static void recipe_to_sources(tni_node *n)
{
    for (uint32_t i = 0; i < n->nsrc; i++) {
        n->src[i]->recipes--;
        n->src[i]->uses++;
    }
}

// The primary of an output that releases it no longer knows it.
static void unlink_output(tni_node *n)
{
    tni_node **at = &n->src[0]->output;
    while (*at != n) at = &(*at)->output;
    *at       = n->output;
    n->output = NULL;
}

// Releases the outputs that a stored primary holds for recipes.
static tni_node *release_held(tni_node *n, tni_node *list)
{
    for (tni_node *o = n->held, *next; o; o = next) {
        next      = o->output;
        o->output = NULL;
        if (--o->refs <= o->recipes) list = queue_release(o, list);
    }
    n->held = NULL;
    return list;
}

// Releases all sources but the first `keep`. A view keeps its first, which has its elements.
static tni_node *drop_sources(tn_ctx *cx, tni_node *n, uint32_t keep, tni_node *list)
{
    if (n->op == TNI_OUTPUT_OP && n->nsrc) unlink_output(n);
    if (!keep && n->nsrc && n->src[0]->low == n) n->src[0]->low = NULL;
    if (n->state == TNI_UNSTORED) recipe_to_sources(n);
    for (uint32_t i = keep; i < n->nsrc; i++) {
        tni_node *s = n->src[i];
        s->refs_and_uses -= TNI_ONE_USE;
        if (s->refs <= s->recipes) list = queue_release(s, list);
    }
    if (keep < n->nsrc) n->nsrc = keep;
    if (keep) return list;
    if (n->src != n->few) tni_free(&cx->heap, n->src);
    n->src = n->few;
    return list;
}

// Frees the node itself; what it held may be freed after it.
static tni_node *free_node(tn_ctx *cx, tni_node *n, tni_node *list)
{
    list = release_held(n, drop_sources(cx, n, 0, list));
    if (n->hooked) tni_hooks_forget(cx, n->id);
    if (n->state == TNI_PENDING) cx->pending_nodes--;
    if (n->leaf) tni_leaf_unref(cx, n->leaf);
    if (n->origin) tni_origin_unref(cx, n->origin);
    if (n->buf) tni_buffer_unref(&cx->buffers, n->buf);
    tni_buffer_unref(&cx->buffers, n->packed);
    if (n->owns_bytes) tni_free(&cx->heap, n->attr.custom.bytes);
    tni_slab_give(&cx->nodes, n);
    return list;
}

// The reason of a loss, at the public call in progress. Its layer may be another context's and is
// dropped.
static tni_lost lost_here(tni_lost_reason how)
{
    tni_lost why   = { tni_self.site, 0, (uint8_t)how };
    why.site.layer = NULL;
    return why;
}

// Makes n gone: it has neither a value nor a way to compute one. `why` NULL: its last tensor died,
// here. The reason takes the place of the attributes, which nothing needs any more.
static tni_node *mark_lost(tn_ctx *cx, tni_node *n, const tni_lost *why, tni_node *list)
{
    list     = drop_sources(cx, n, 0, list);
    n->state = TNI_GONE;
    if (n->owns_bytes) tni_free(&cx->heap, n->attr.custom.bytes);
    n->owns_bytes = false;
    n->attr.lost  = why ? *why : lost_here(TNI_LOST_RELEASED);
    return list;
}

// Makes n unstored: its sources become its recipe. They are no longer uses, so the buffers of those
// that nothing else needs go as well.
static tni_node *sources_to_recipe(tni_node *n, tni_node *list)
{
    n->state      = TNI_UNSTORED;
    n->recomputed = true;
    for (uint32_t i = 0; i < n->nsrc; i++) {
        tni_node *s = n->src[i];
        s->uses--;
        if (s->refs <= ++s->recipes) list = queue_release(s, list);
    }
    return list;
}

// Only recipes hold n: its buffer goes. It can be computed again, and becomes unstored, if it still
// has all its sources; a leaf, a node that dropped sources, and an output whose primary stays done
// cannot.
static tni_node *release_value(tn_ctx *cx, tni_node *n, const tni_lost *why, tni_node *list)
{
    bool done = n->state == TNI_DONE;
    if (!done) cx->pending_nodes--;
    tni_buffer_unref(&cx->buffers, n->buf);
    tni_buffer_unref(&cx->buffers, n->packed);
    n->buf = n->packed = NULL;
    list               = release_held(n, list);
    bool recomputable  = n->op != TNI_LEAF_OP && !n->dropped_sources &&
                        (n->op != TNI_OUTPUT_OP || !done);
    return recomputable ? sources_to_recipe(n, list) : mark_lost(cx, n, why, list);
}

// The loop behind every release. `why` is the reason that nodes lost on the way keep for messages.
static void release_nodes(tn_ctx *cx, tni_node *list, const tni_lost *why)
{
    while (list) {
        tni_node *n = list;
        list        = n->next;
        if (!n->refs || !--n->refs) list = free_node(cx, n, list);
        else if (n->refs == n->recipes) list = release_value(cx, n, why, list);
    }
}

void tni_node_unref(tn_ctx *cx, tni_node *n)
{
    if (n && --n->refs <= n->recipes) release_nodes(cx, queue_release(n, NULL), NULL);
}

void tni_node_overwrite(tn_ctx *cx, tni_node *n, const tni_node *by, uint64_t store)
{
    if (!n || --n->refs > n->recipes) return;
    tni_lost why = { by->site, store, TNI_LOST_OVERWRITTEN };
    release_nodes(cx, queue_release(n, NULL), &why);
}

// Views keep their source: it has the elements.
void tni_node_forget(tn_ctx *cx, tni_node *n)
{
    bool view = n->op == TNI_VIEW_OP;
    n->dropped_sources |= n->nsrc > 0 && !view;
    release_nodes(cx, drop_sources(cx, n, view, NULL), NULL);
}

void tni_node_hold_output(tn_ctx *cx, tni_node *n)
{
    tni_node *primary = n->src[0];
    n->refs++;
    tni_node_forget(cx, n);
    n->output     = primary->held;
    primary->held = n;
}

void tni_node_mark_gone(tn_ctx *cx, tni_node *n)
{
    tni_lost why = lost_here(TNI_LOST_FAILED);
    if (n->state == TNI_PENDING) cx->pending_nodes--;
    release_nodes(cx, mark_lost(cx, n, &why, NULL), &why);
}

// An output whose primary is done or gone is lost: the call that computes it does not run again for
// it.
void tni_node_mark_unstored(tn_ctx *cx, tni_node *n)
{
    int  primary = n->op == TNI_OUTPUT_OP ? n->src[0]->state : TNI_PENDING;
    bool lost    = primary == TNI_DONE || primary == TNI_GONE;
    cx->pending_nodes--;
    release_nodes(cx, lost ? mark_lost(cx, n, NULL, NULL) : sources_to_recipe(n, NULL), NULL);
}

// ---- computing again ---------------------------------------------------------------------------

// Adds n to the list unless it has a value or is listed; `visited` marks it while
// tni_node_reschedule runs.
static tni_node *find_unstored(tni_node *n, tni_node *list)
{
    if (n->state != TNI_UNSTORED || n->visited) return list;
    n->visited = true;
    n->next    = list;
    return n;
}

// In two passes. The first collects everything unstored below n, and stops at nothing; the second
// changes states, and only if nothing needed is gone. So a failure leaves the graph as it was. All
// outputs of one call become pending together, since the call computes them together. Stores of
// these nodes return to the context's list of pending stores.
const tni_node *tni_node_reschedule(tn_ctx *cx, tni_node *n)
{
    const tni_node *lost  = n->state == TNI_GONE ? n : NULL;
    tni_node       *found = NULL, *work = find_unstored(n, NULL);
    while (work) {
        tni_node *x = work;
        work        = x->next;
        x->next     = found;
        found       = x;
        for (uint32_t i = 0; i < x->nsrc; i++) {
            if (x->src[i]->state == TNI_GONE) lost = x->src[i];
            work = find_unstored(x->src[i], work);
        }
        for (tni_node *o = tni_outputs(x); o; o = o->output) work = find_unstored(o, work);
    }
    for (; found; found = found->next) {
        found->visited = false;
        if (lost) continue;
        found->state = TNI_PENDING;
        cx->pending_nodes++;
        recipe_to_sources(found);
        while (found->waiting) tni_store_mark_pending(cx, found->waiting);
    }
    return lost;
}

// ---- computed ----------------------------------------------------------------------------------

// For the out-of-memory report: the first value that a buffer was taken for.
static void note_first_value(tni_buffer *buf, const tni_node *n)
{
    buf->site  = n->site;
    buf->dtype = n->dtype;
    buf->rank  = n->rank;
    memcpy(buf->size, n->size, sizeof buf->size);
}

void tni_node_mark_done(tn_ctx *cx, tni_node *n, tni_buffer *buf, int64_t start)
{
    if (buf && !buf->site.file) note_first_value(buf, n);
    if (n->state == TNI_PENDING) cx->pending_nodes--;
    n->state = TNI_DONE;
    n->buf   = buf;
    n->start = start;
}

tni_node *tni_node_in_buffer(tn_ctx *cx, tn_dtype dt, int rank, const int64_t *size,
                             tni_buffer *buf, int64_t start)
{
    tni_node *n = tni_node_new(cx, TNI_LEAF_OP, dt, rank, size, 0, NULL);
    if (!n) return NULL;
    buf->refs++;
    tni_node_mark_done(cx, n, buf, start);
    return n;
}

// ---- in order ----------------------------------------------------------------------------------

// Restores the heap order (largest id on top) below `at`.
static void sift_down(tni_node **node, size_t at, size_t n)
{
    tni_node *x = node[at];
    for (size_t down; (down = 2 * at + 1) < n; at = down) {
        if (down + 1 < n && node[down + 1]->id > node[down]->id) down++;
        if (node[down]->id < x->id) break;
        node[at] = node[down];
    }
    node[at] = x;
}

// Heapsort: in place and without a worst case.
static void sort_by_heap(tni_node **node, size_t n)
{
    for (size_t i = n / 2; i-- > 0;) sift_down(node, i, n);
    for (size_t last = n; last-- > 1;) {
        tni_node *x = node[last];
        node[last]  = node[0];
        node[0]     = x;
        sift_down(node, 0, last);
    }
}

// Nodes recorded together have ids close together: then a counting sort over the range of ids is
// linear. Beyond 16 ids a node the table would cost more than a heapsort.
bool tni_nodes_sort(tni_heap *h, size_t n, tni_node **node)
{
    uint64_t low = UINT64_MAX, high = 0;
    for (size_t i = 0; i < n; i++) {
        if (node[i]->id < low) low = node[i]->id;
        if (node[i]->id > high) high = node[i]->id;
    }
    if (n < 2) return true;
    if ((high - low) / 16 > n) {
        sort_by_heap(node, n);
        return true;
    }
    size_t     range = (size_t)(high - low) + 1, sorted = 0;
    tni_node **at = tni_zalloc(h, range * sizeof *at);
    for (size_t i = 0; at && i < n; i++) at[node[i]->id - low] = node[i];
    for (size_t i = 0; at && i < range; i++)
        if (at[i]) node[sorted++] = at[i];
    tni_free(h, at);
    return at != NULL;
}
