// Which nodes an evaluation runs, and which of their values it stores.
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

// ---- gathering ---------------------------------------------------------------------------------

static bool add_item(tni_graph *g, tni_node *n)
{
    if (n->mark) return true;
    if (!tni_grow(&g->cx->heap, (void **)&g->item, &g->cap, g->count + 1, sizeof *g->item)) {
        tni_fail_memory(g->cx, "evaluating");
        return false;
    }
    n->mark             = 1;
    g->item[g->count++] = (tni_item){ .n = tni_node_ref(n) };
    return true;
}

static bool add_pending_sources(tni_graph *g)
{
    for (size_t i = 0; i < g->count; i++) {
        tni_node *n = g->item[i].n;
        for (uint32_t s = 0; s < n->nsrc; s++)
            if (n->src[s]->state == TNI_PENDING && !add_item(g, n->src[s])) return false;
    }
    return true;
}

// Ids of one step lie close together: each item is put down at its id, and they are taken up in
// order.
static bool sort_by_place(tni_graph *g, uint64_t first, size_t range)
{
    tni_item *to = tni_alloc(&g->cx->heap, g->cap * sizeof *to);
    uint32_t *at = to ? tni_zalloc(&g->cx->heap, range * sizeof *at) : NULL;
    size_t    n  = 0;
    for (size_t i = 0; at && i < g->count; i++) at[g->item[i].n->id - first] = (uint32_t)i + 1;
    for (size_t i = 0; at && i < range; i++)
        if (at[i]) to[n++] = g->item[at[i] - 1];
    tni_free(&g->cx->heap, at);
    tni_free(&g->cx->heap, at ? g->item : to);
    if (at) g->item = to;
    return at || tni_no_memory(g->cx, "evaluating");
}

// Item `at` sinks into the heap of n items below it, largest id on top.
static void sink(tni_item *item, size_t at, size_t n)
{
    tni_item x = item[at];
    for (size_t down; (down = 2 * at + 1) < n; at = down) {
        if (down + 1 < n && item[down + 1].n->id > item[down].n->id) down++;
        if (item[down].n->id < x.n->id) break;
        item[at] = item[down];
    }
    item[at] = x;
}

static void sort_by_heap(tni_item *item, size_t n)
{
    for (size_t i = n / 2; i-- > 0;) sink(item, i, n);
    for (size_t last = n; last-- > 1;) {
        tni_item x = item[last];
        item[last] = item[0];
        item[0]    = x;
        sink(item, 0, last);
    }
}

static bool sort_by_id(tni_graph *g)
{
    uint64_t low = UINT64_MAX, high = 0;
    for (size_t i = 0; i < g->count; i++) {
        uint64_t id = g->item[i].n->id;
        if (id < low) low = id;
        if (id > high) high = id;
    }
    if (g->count && high - low < 16 * g->count) return sort_by_place(g, low, high - low + 1);
    sort_by_heap(g->item, g->count);
    return true;
}

// What was made from a value that is gone is gone too; for a step or a flush also what a read failed
// to compute, whose error has been told. Oldest first, so that it spreads.
static void drop_lost(tni_graph *g)
{
    size_t kept = 0;
    for (size_t i = 0; i < g->count; i++) {
        tni_node *n    = g->item[i].n;
        bool      lost = n->failed && g->mode != TNI_READ;
        for (uint32_t s = 0; s < n->nsrc; s++) lost |= n->src[s]->state == TNI_GONE;
        if (lost) {
            n->mark = 0;
            tni_node_gone(g->cx, n);
            tni_node_unref(g->cx, n);
        } else {
            g->item[kept++] = g->item[i];
        }
    }
    g->count = kept;
}

static bool add_input(tni_graph *g, tni_node *n)
{
    if (n->mark) return true;
    if (!tni_grow(&g->cx->heap, (void **)&g->input, &g->inputs_cap, g->inputs + 1,
                  sizeof *g->input)) {
        tni_fail_memory(g->cx, "evaluating");
        return false;
    }
    g->input[g->inputs++] = (tni_input){ .n = n };
    n->mark               = (uint32_t)g->inputs;
    return true;
}

// The computed values that a concat would copy may lie one after the other already, as slices of an
// earlier result do: then it is a view of them.
static bool lies_joined(const tni_node *n)
{
    int64_t     next = 0, at;
    tni_buffer *buf  = NULL;
    if (n->op != TNI_concat || !tni_concat_is_flat(n)) return false;
    for (uint32_t s = 0; s < n->nsrc; s++) {
        tni_view  v    = tni_node_layout(n->src[s]);
        tni_node *base = tni_node_base(n->src[s], &at);
        if (base->state != TNI_DONE || !tni_view_contiguous(&v)) return false;
        if (s > 0 && (base->buf != buf || base->start + at != next)) return false;
        buf  = base->buf;
        next = base->start + at + tni_node_count(n->src[s]);
    }
    return true;
}

// Finds for each item where its elements lie, and numbers the computed nodes that are read.
static bool find_bases(tni_graph *g)
{
    for (size_t i = 0; i < g->count; i++) {
        tni_item *it = &g->item[i];
        it->n->mark  = (uint32_t)i + 1;
        it->base     = (int32_t)i;
        it->joined   = lies_joined(it->n);
        int64_t skip = 0;
        for (uint32_t s = 0; s < it->n->nsrc; s++) {
            tni_node *src = it->n->src[s];
            if (src->state == TNI_PENDING) {
                g->item[src->mark - 1].edges++;
                if (it->n->op == TNI_view && s == 0) it->base = g->item[src->mark - 1].base;
                continue;
            }
            tni_node *base = tni_node_base(src, &skip);
            if (!add_input(g, base)) return false;
            if (base == src) g->input[base->mark - 1].edges++;
            if (it->n->op == TNI_view && s == 0) it->base = ~(int32_t)(base->mark - 1);
        }
    }
    return true;
}

// ---- what is stored ----------------------------------------------------------------------------

bool tni_input_free(const tni_input *in)
{
    return in->dies && in->n->buf->refs == 1;
}

// An input dies if all who hold its buffer are inputs that only the graph needs.
static void find_dead_inputs(tni_graph *g)
{
    for (size_t i = 0; i < g->inputs; i++) g->input[i].n->buf->given = 0;
    for (size_t i = 0; i < g->inputs; i++) {
        const tni_input *in = &g->input[i];
        // A read leaves other stores as they are, and what they would return to.
        uint32_t spare = g->mode == TNI_READ ? 0 : in->n->fallback;
        in->n->buf->given += in->n->refs == in->edges + spare;
    }
    for (size_t i = 0; i < g->inputs; i++) {
        const tni_buffer *b = g->input[i].n->buf;
        g->input[i].dies    = b->given == b->refs && !b->borrowed;
    }
}

static void count_handles(tni_graph *g)
{
    for (tni_store *s = g->cx->pending; s; s = s->next) {
        if (!s->node->mark || s->node->state != TNI_PENDING) continue;
        tni_item *it = &g->item[s->node->mark - 1];
        it->handles++;
        // A value that outlives the innermost scope is wanted after the step.
        it->wanted |= s->wanted || s->assigned || s->depth < g->cx->scope->depth;
        it->unused |= s->unused > 0;
        for (tn_tensor *t = s->views; t; t = t->view_next)
            if (t->node->mark && t->node->state == TNI_PENDING)
                g->item[t->node->mark - 1].handles++;
    }
}

// A node lets its sources go although it needs gradients: when it was walked and this evaluation
// spends it, or when no gradient can pass its sources any more.
static void find_dying(tni_graph *g)
{
    for (size_t i = 0; i < g->count; i++) {
        tni_item *it = &g->item[i];
        tni_node *n  = it->n;
        if (!n->needs_grad || n->leaf) continue;
        it->dies = n->walked && g->mode != TNI_READ;
        bool way = false, blocked = false;
        for (uint32_t s = 0; s < n->nsrc; s++) {
            tni_node *src = n->src[s];
            if (!src->needs_grad) continue;
            bool over = src->spent || (src->state == TNI_PENDING && g->item[src->mark - 1].dies);
            way |= !over;
            blocked |= over;
        }
        it->dies |= blocked && !way;
    }
}

// How many of its sources a stored value keeps: all for a gradient, else what a view lies in.
static uint32_t sources_kept(const tni_item *it)
{
    if (it->n->needs_grad && !it->dies && !it->n->spent) return it->n->nsrc;
    return it->n->op == TNI_view;
}

// From the newest down, since a value that keeps its sources decides for them.
static void find_live(tni_graph *g, const tni_node *root)
{
    for (size_t i = g->count; i-- > 0;) {
        tni_item *it    = &g->item[i];
        tni_node *n     = it->n;
        uint32_t  mine  = 1 + it->edges + (n->walked ? 1 : 0);
        uint32_t  other = n->refs - mine - it->handles;
        if (g->mode != TNI_STEP) it->live |= n == root || n->refs > mine;
        else
            it->live |= it->wanted || other > 0 ||
                        (it->handles > 0 && (it->edges == 0 || it->unused ||
                                             (tni_node_count(n) == 1 && !n->constant)));
        uint32_t kept = it->live ? sources_kept(it) : 0;
        it->keeps     = kept > 0;
        for (uint32_t s = 0; s < kept; s++)
            if (n->src[s]->state == TNI_PENDING) g->item[n->src[s]->mark - 1].live = true;
    }
}

// Whether a boundary computes the store's value for its own sake. A constant can wait.
static bool is_due(const tni_store *s)
{
    if (s->node->state != TNI_PENDING) return false;
    return !s->node->constant || s->wanted || s->assigned;
}

bool tni_graph_open(tni_graph *g, tn_ctx *cx, tni_mode mode, tni_node *root)
{
    *g       = (tni_graph){ .cx = cx, .mode = mode };
    cx->busy = true;
    bool ok  = true;
    if (root) {
        ok = root->state != TNI_PENDING || add_item(g, root);
    } else {
        for (tni_store *s = cx->pending; s && ok; s = s->next)
            if (is_due(s)) ok = add_item(g, s->node);
    }
    ok = ok && add_pending_sources(g) && sort_by_id(g);
    if (ok) drop_lost(g);
    ok = ok && find_bases(g);
    if (ok) {
        if (mode == TNI_STEP) count_handles(g);
        find_dying(g);
        find_live(g, root);
        find_dead_inputs(g);
    }
    return ok;
}

void tni_graph_close(tni_graph *g)
{
    for (size_t i = 0; i < g->inputs; i++) g->input[i].n->mark = 0;
    for (size_t i = 0; i < g->count; i++) g->item[i].n->mark = 0;
    for (size_t i = 0; i < g->count; i++) tni_node_unref(g->cx, g->item[i].n);
    tni_free(&g->cx->heap, g->item);
    tni_free(&g->cx->heap, g->input);
    g->cx->busy = false;
}
