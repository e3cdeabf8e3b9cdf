// Which nodes an evaluation runs, and which of their values it stores.
//
// This is the first place where a value's memory is decided: an item with `why` 0 does not outlive
// the evaluation, and is at most in the arena. The reasons are collected in this order:
//
//   ask_stores       at a step: assigned, wanted, outer scope, unconsumed       the user's tensors
//   find_spent       which nodes no gradient can pass any more                  release their sources
//   find_recomputed  values made from recomputed or released ones               stored at a step
//   find_stored      handles, pending readers; then what stored values keep     newest item first
//   find_dead_inputs computed values that only this evaluation needs            may be overwritten
//
// Nothing here recurses: large graphs are walked by lists and in id order.
#include "plan/plan.h"

// ---- gathering ---------------------------------------------------------------------------------

// The nodes found so far, and those of them whose sources are still to be looked at. Both are lists
// by `next`. A node is marked when it enters either, so it enters once. update: one of them belongs
// to an update of an optimizer.
typedef struct {
    tni_node *found, *work;
    size_t    count;
    bool      update;
} frontier;

// Adds a pending node to the list of work, unless it was met before.
static inline void find_node(frontier *f, tni_node *n)
{
    if (n->mark || n->state != TNI_PENDING) return;
    n->mark = 1;
    n->next = f->work;
    f->work = n;
}

// Adds a source or another output of a found node. After a failure a pending node may have a source
// that was not stored: it becomes pending again and is computed too. If it cannot be recomputed it
// stays as it is, and drop_lost removes what needs it.
static void find_or_recall(tn_ctx *cx, frontier *f, tni_node *n)
{
    if (n->state == TNI_UNSTORED) tni_node_reschedule(cx, n);
    find_node(f, n);
}

// Walks from the list of work to everything pending that it is made of. Outputs of one op are found
// together, since one call writes them all.
static void find_sources(tn_ctx *cx, frontier *f)
{
    while (f->work) {
        tni_node *n = f->work;
        f->work     = n->next;
        n->next     = f->found;
        f->found    = n;
        f->count++;
        f->update |= n->update;
        for (uint32_t s = 0; s < n->nsrc; s++) find_or_recall(cx, f, n->src[s]);
        for (tni_node *o = tni_outputs(n); o; o = o->output) find_or_recall(cx, f, o);
    }
}

// Makes an item of each found node, sorted by id, so that sources come before their readers.
static bool make_items(tni_graph *g, const frontier *f)
{
    tni_heap  *h    = &g->cx->heap;
    tni_node **node = tni_alloc(h, f->count * sizeof *node);
    g->item         = node ? tni_alloc(h, f->count * sizeof *g->item) : NULL;
    size_t n        = 0;
    for (tni_node *x = f->found; g->item && x; x = x->next) node[n++] = x;
    bool ok = g->item && tni_nodes_sort(h, n, node);
    for (size_t i = 0; ok && i < n; i++)
        g->item[g->count++] = (tni_item){ .n = tni_node_ref(node[i]) };
    tni_free(h, node);
    return ok || tni_no_memory(g->cx, "evaluating");
}

// Adds every pending optimizer update. A read that needs any part of an update computes all of it:
// else a step that fails afterwards would leave new parameters beside old moments.
static void find_updates(tni_graph *g, frontier *f)
{
    for (tni_store *s = g->cx->pending; s; s = s->next)
        if (s->node->update) find_node(f, s->node);
    find_sources(g->cx, f);
}

// Gathers all pending nodes that f's nodes are made of, and makes items of them. On failure no node
// is left marked.
static bool gather_nodes(tni_graph *g, frontier *f)
{
    find_sources(g->cx, f);
    if (f->update && g->mode == TNI_READ) find_updates(g, f);
    if (!f->count || make_items(g, f)) return true;
    for (tni_node *x = f->found; x; x = x->next) x->mark = 0;
    return false;
}

// Removes the items that cannot be computed: a source of theirs is gone; or, for a step or a flush,
// a read has failed to compute them and has reported it. Oldest first, so that the loss spreads to
// what is made from them.
static void drop_lost(tni_graph *g)
{
    size_t kept = 0;
    for (size_t i = 0; i < g->count; i++) {
        tni_node *n    = g->item[i].n;
        bool      lost = n->failed && g->mode != TNI_READ;
        for (uint32_t s = 0; s < n->nsrc; s++) lost |= n->src[s]->state > TNI_DONE;
        if (lost) {
            n->mark = 0;
            tni_node_mark_gone(g->cx, n);
            tni_node_unref(g->cx, n);
        } else {
            g->item[kept++] = g->item[i];
        }
    }
    g->count = kept;
}

// Numbers a computed node that is read, once; its mark is 1 + its number.
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

// Marks each item's node with its position, counts edges, numbers the inputs and finds the base of
// every view: the item or input that holds its elements.
static bool find_bases(tni_graph *g)
{
    for (size_t i = 0; i < g->count; i++) {
        tni_item *it = &g->item[i];
        it->n->mark  = (uint32_t)i + 1;
        it->base     = (int32_t)i;
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

int32_t tni_base_of(const tni_graph *g, const tni_node *src)
{
    if (src->state == TNI_PENDING) return g->item[src->mark - 1].base;
    int64_t   skip;
    tni_node *base = tni_node_base((tni_node *)src, &skip);
    return ~(int32_t)(base->mark - 1);
}

// ---- what is stored ----------------------------------------------------------------------------

bool tni_input_is_free(const tni_input *in)
{
    return in->dies && in->n->buf->refs == 1;
}

// Finds the inputs that die with this evaluation. A buffer dies if every reference to it is from an
// input whose own references all come from this graph (edges), or from a store that would return to
// it if the step failed (rollbacks). Recipes do not count: they hold nodes but no memory. A result
// may then overwrite the buffer (memory.c: find_donor, can_update_in_place).
static void find_dead_inputs(tni_graph *g)
{
    for (size_t i = 0; i < g->inputs; i++) g->input[i].n->buf->given = 0;
    for (size_t i = 0; i < g->inputs; i++) {
        const tni_input *in = &g->input[i];
        // A read leaves other stores alone, so the values that they would return to stay.
        uint32_t spare = g->mode == TNI_READ ? 0 : in->n->rollbacks;
        in->n->buf->given += in->n->refs - in->n->recipes == in->edges + spare;
    }
    // A value that a store only returns to if this step fails is not needed either, although the
    // graph does not read it: a parameter in the same optimizer block as those that are read.
    for (const tni_store *s = g->mode == TNI_READ ? NULL : g->cx->pending; s; s = s->next)
        if (s->rollback && !s->rollback->mark && s->rollback->refs - s->rollback->recipes == 1 &&
            s->rollback->buf && s->node->mark)
            s->rollback->buf->given++;
    for (size_t i = 0; i < g->inputs; i++) {
        const tni_buffer *b = g->input[i].n->buf;
        g->input[i].dies    = b->given == b->refs && !b->borrowed;
    }
}

// Collects at a step boundary the reasons that pending stores have to keep their values.
static void ask_stores(tni_graph *g)
{
    for (const tni_store *s = g->cx->pending; s; s = s->next) {
        if (!s->node->mark || s->node->state != TNI_PENDING) continue;
        unsigned why = s->assigned ? TNI_BY_ASSIGNMENT : 0;
        if (s->wanted) why |= TNI_BY_WANT;
        // A tensor of an outer scope is still there after the step, and may be read then.
        if (s->depth < g->cx->scope->depth) why |= TNI_BY_SCOPE;
        if (s->unused > 0) why |= TNI_UNCONSUMED;
        g->item[s->node->mark - 1].why |= (uint16_t)why;
    }
}

// Counts the other outputs of n's op. They have n as their source, but consume nothing of it.
static uint32_t count_outputs(const tni_node *n)
{
    uint32_t count = 0;
    for (const tni_node *o = tni_outputs(n); o; o = o->output) count++;
    return count;
}

// Whether a source was stored only because its own sources would be gone (TNI_BY_RECOMPUTE in an
// earlier step), and this evaluation is the last that needs it, so that its buffer is released
// afterwards.
static bool is_given_back(const tni_graph *g, tni_node *src)
{
    int64_t         skip;
    const tni_node *base = tni_node_base(src, &skip);
    if (!base->carried || src->handles || base->handles || base->rollbacks) return false;
    return base != src || base->refs - base->recipes == g->input[base->mark - 1].edges;
}

// Finds the values that would have to be recomputed from ever further back if they were not stored:
// those that are recomputed now, those made from sources that are released with this step, and
// everything made from either. A value carried from step to step is the example: without this,
// reading it after n steps would recompute n steps. Constants can be had at any time, and a view
// with its base, so neither counts.
static void find_recomputed(tni_graph *g)
{
    for (size_t i = 0; i < g->count; i++) {
        tni_item *it        = &g->item[i];
        it->from_recomputed = it->n->recomputed && !it->n->constant && it->n->op != TNI_view;
        for (uint32_t s = 0; s < it->n->nsrc; s++) {
            tni_node *src = it->n->src[s];
            it->from_recomputed |= src->state == TNI_PENDING
                                       ? g->item[src->mark - 1].from_recomputed
                                       : is_given_back(g, src);
        }
    }
}

// Returns the reasons that the holders of a value have: the user's tensors, and nodes that are
// computed later. Nothing else that holds a reference changes what is stored. A constant can be had
// at any time, so a pending reader does not make a step store it.
static unsigned ask_holders(const tni_graph *g, const tni_item *it)
{
    const tni_node *n    = it->n;
    bool            step = g->mode == TNI_STEP;
    unsigned        why  = 0;
    if (n->uses > it->edges && !(step && n->constant)) why |= TNI_BY_PENDING;
    if (!n->handles) return why;
    if (!step) return why | TNI_BY_HANDLE;
    if (it->edges == count_outputs(n)) why |= TNI_UNCONSUMED;
    if (!n->constant && tni_node_count(n) == 1) why |= TNI_SCALAR;
    if (it->from_recomputed && !n->recomputed && !n->constant && n->op != TNI_view)
        why |= TNI_BY_RECOMPUTE;
    return why;
}

// Finds the nodes that release their sources although they need gradients: this evaluation spends
// them, since a backward pass walked them; or every source through which a gradient could go is
// spent itself.
static void find_spent(tni_graph *g)
{
    for (size_t i = 0; i < g->count; i++) {
        tni_item *it = &g->item[i];
        tni_node *n  = it->n;
        if (!n->needs_grad || n->leaf) continue;
        it->becomes_spent = n->walked && g->mode != TNI_READ;
        bool way = false, blocked = false;
        for (uint32_t s = 0; s < n->nsrc; s++) {
            tni_node *src = n->src[s];
            if (!tni_passes_grad_to(n, src)) continue;
            bool over = src->spent ||
                        (src->state == TNI_PENDING && g->item[src->mark - 1].becomes_spent);
            way |= !over;
            blocked |= over;
        }
        it->becomes_spent |= blocked && !way;
    }
}

// Returns how many of its sources a stored value keeps: all if a gradient may need them, else the
// base of a view.
static uint32_t sources_kept(const tni_item *it)
{
    if (it->n->needs_grad && !it->becomes_spent && !it->n->spent) return it->n->nsrc;
    return it->n->op == TNI_view;
}

// Stores the other outputs of an op whose first output is stored, if a tensor or a recipe may need
// them. The op is not called again once its first output is stored, so they could not be
// recomputed.
static void store_outputs(tni_graph *g, const tni_node *n)
{
    for (const tni_node *o = tni_outputs(n); o; o = o->output) {
        tni_item *it = &g->item[o->mark - 1];
        if (it->why || !it->needed_later) continue;
        it->why           = TNI_BY_CALL;
        it->keeps_sources = sources_kept(it) > 0;
    }
}

// Decides which values are stored. From the newest item down: a stored value keeps its sources, so
// its own decision comes before theirs. What is not stored but may be asked for passes that on to
// its sources, which are then part of its recipe.
static void find_stored(tni_graph *g, const tni_node *root)
{
    if (root && root->mark) g->item[root->mark - 1].why |= TNI_BY_READ;
    for (size_t i = g->count; i-- > 0;) {
        tni_item *it = &g->item[i];
        tni_node *n  = it->n;
        it->why |= (uint16_t)ask_holders(g, it);
        uint32_t kept     = it->why ? sources_kept(it) : 0;
        bool     view     = n->op == TNI_view;
        it->keeps_sources = kept > 0;
        it->needed_later |= n->handles || n->recipes;
        if (it->why) store_outputs(g, n);
        for (uint32_t s = 0; s < kept; s++)
            if (n->src[s]->state == TNI_PENDING)
                g->item[n->src[s]->mark - 1].why |= view && !s ? TNI_BY_VIEW : TNI_BY_HISTORY;
        for (uint32_t s = 0; it->needed_later && !it->why && s < n->nsrc; s++)
            if (n->src[s]->state == TNI_PENDING) g->item[n->src[s]->mark - 1].needed_later = true;
    }
}

// Whether a step or a flush computes the store's value for its own sake. A constant waits until it
// is read: it needs no memory before.
static bool is_due(const tni_store *s)
{
    if (s->node->state != TNI_PENDING) return false;
    return !s->node->constant || s->wanted || s->assigned;
}

tni_text tni_why_text(unsigned why)
{
    static const char *const names[] = { "read",           "assigned",         "wanted",
                                         "outer scope",    "unconsumed",       "one element",
                                         "consumed later", "has a tensor",     "history",
                                         "holds a view",   "output of a call", "source released" };
    tni_text                 t       = { "" };
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (why >> i & 1) tni_text_add(&t, "%s%s", t.s[0] ? ", " : "", names[i]);
    return t;
}

// The order of the calls matters: marks come before reasons, reasons of stores before those of
// holders, and inputs are judged when it is known what is stored.
bool tni_graph_open(tni_graph *g, tn_ctx *cx, tni_mode mode, tni_node *root)
{
    *g         = (tni_graph){ .cx = cx, .mode = mode };
    cx->busy   = true;
    frontier f = { 0 };
    if (root) find_node(&f, root);
    for (tni_store *s = root ? NULL : cx->pending; s; s = s->next)
        if (is_due(s)) find_node(&f, s->node);
    bool ok = gather_nodes(g, &f);
    if (ok) drop_lost(g);
    ok = ok && find_bases(g);
    if (ok) {
        if (mode == TNI_STEP) ask_stores(g);
        find_spent(g);
        find_recomputed(g);
        find_stored(g, root);
        find_dead_inputs(g);
    }
    return ok;
}

// Nothing but the roots is stored, whoever holds the other nodes.
bool tni_graph_open_roots(tni_graph *g, tn_ctx *cx, int n, tni_node *const *root)
{
    *g         = (tni_graph){ .cx = cx, .mode = TNI_READ };
    cx->busy   = true;
    frontier f = { 0 };
    for (int i = 0; i < n; i++) find_node(&f, root[i]);
    bool ok = gather_nodes(g, &f) && find_bases(g);
    for (int i = 0; ok && i < n; i++) g->item[root[i]->mark - 1].why = TNI_BY_READ;
    return ok;
}

bool tni_graph_open_body(tni_graph *g, tn_ctx *cx, int n, tni_node *const *root)
{
    bool ok = tni_graph_open_roots(g, cx, n, root);
    g->body = true;
    return ok;
}

void tni_graph_unmark(tni_graph *g)
{
    for (size_t i = 0; i < g->inputs; i++) g->input[i].n->mark = 0;
    for (size_t i = 0; i < g->count; i++) g->item[i].n->mark = 0;
    g->unmarked = true;
}

void tni_graph_close(tni_graph *g)
{
    if (!g->unmarked) tni_graph_unmark(g);
    for (size_t i = 0; i < g->count; i++) tni_node_unref(g->cx, g->item[i].n);
    tni_free(&g->cx->heap, g->item);
    tni_free(&g->cx->heap, g->input);
    g->cx->busy = false;
}
