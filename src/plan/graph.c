// Which nodes an evaluation runs, and which of their values it stores.
#include "plan/plan.h"

// ---- gathering ---------------------------------------------------------------------------------

// Nodes found so far, and those of them whose sources are to be looked at. Both are lists by `next`.
// update: one of them belongs to an update of an optimizer.
typedef struct {
    tni_node *found, *work;
    size_t    count;
    bool      update;
} finds;

static inline void find(finds *f, tni_node *n)
{
    if (n->mark || n->state != TNI_PENDING) return;
    n->mark = 1;
    n->next = f->work;
    f->work = n;
}

// After a failure something pending may have a source, or another output, that is not stored: that is
// computed with it. One that cannot be stays as it is.
static void find_again(tn_ctx *cx, finds *f, tni_node *n)
{
    if (n->state == TNI_UNSTORED) tni_node_reschedule(cx, n);
    find(f, n);
}

static void find_sources(tn_ctx *cx, finds *f)
{
    while (f->work) {
        tni_node *n = f->work;
        f->work     = n->next;
        n->next     = f->found;
        f->found    = n;
        f->count++;
        f->update |= n->update;
        for (uint32_t s = 0; s < n->nsrc; s++) find_again(cx, f, n->src[s]);
        for (tni_node *o = tni_outputs(n); o; o = o->output) find_again(cx, f, o);
    }
}

// Makes an item of each, oldest first.
static bool make_items(tni_graph *g, const finds *f)
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

// A read that needs something of an optimizer's update computes all of it, and of other updates:
// else a step that fails afterwards would leave new parameters with old moments.
static void find_updates(tni_graph *g, finds *f)
{
    for (tni_store *s = g->cx->pending; s; s = s->next)
        if (s->node->update) find(f, s->node);
    find_sources(g->cx, f);
}

// Gathers f's nodes and all pending ones that they are made of.
static bool gather(tni_graph *g, finds *f)
{
    find_sources(g->cx, f);
    if (f->update && g->mode == TNI_READ) find_updates(g, f);
    if (!f->count || make_items(g, f)) return true;
    for (tni_node *x = f->found; x; x = x->next) x->mark = 0;
    return false;
}

// What was made from a value that cannot be had is gone too; for a step or a flush also what a read failed
// to compute, whose error has been told. Oldest first, so that it spreads.
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

// Finds for each item where its elements lie, and numbers the computed nodes that are read.
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

// An input dies if all who hold its buffer are inputs that only the graph needs.
static void find_dead_inputs(tni_graph *g)
{
    for (size_t i = 0; i < g->inputs; i++) g->input[i].n->buf->given = 0;
    for (size_t i = 0; i < g->inputs; i++) {
        const tni_input *in = &g->input[i];
        // A read leaves other stores as they are, and what they would return to.
        uint32_t spare = g->mode == TNI_READ ? 0 : in->n->rollbacks;
        in->n->buf->given += in->n->refs - in->n->recipes == in->edges + spare;
    }
    // Nor does anybody need what a store only returns to if this fails: a parameter that lies beside those
    // that are read, as one of an optimizer's block may.
    for (const tni_store *s = g->mode == TNI_READ ? NULL : g->cx->pending; s; s = s->next)
        if (s->rollback && !s->rollback->mark && s->rollback->refs - s->rollback->recipes == 1 &&
            s->rollback->buf && s->node->mark)
            s->rollback->buf->given++;
    for (size_t i = 0; i < g->inputs; i++) {
        const tni_buffer *b = g->input[i].n->buf;
        g->input[i].dies    = b->given == b->refs && !b->borrowed;
    }
}

// What the pending stores say of their values when a step ends.
static void ask_stores(tni_graph *g)
{
    for (const tni_store *s = g->cx->pending; s; s = s->next) {
        if (!s->node->mark || s->node->state != TNI_PENDING) continue;
        unsigned why = s->assigned ? TNI_BY_ASSIGNMENT : 0;
        if (s->wanted) why |= TNI_BY_WANT;
        // A value that outlives the innermost scope is wanted after the step.
        if (s->depth < g->cx->scope->depth) why |= TNI_BY_SCOPE;
        if (s->unused > 0) why |= TNI_UNCONSUMED;
        g->item[s->node->mark - 1].why |= (uint16_t)why;
    }
}

// How many other outputs of its op have a node as their source: they consume nothing of it.
static uint32_t count_outputs(const tni_node *n)
{
    uint32_t count = 0;
    for (const tni_node *o = tni_outputs(n); o; o = o->output) count++;
    return count;
}

// Whether a source that was stored for that is given back with this step, which alone needs it.
static bool is_given_back(const tni_graph *g, tni_node *src)
{
    int64_t         skip;
    const tni_node *base = tni_node_base(src, &skip);
    if (!base->carried || src->handles || base->handles || base->rollbacks) return false;
    return base != src || base->refs - base->recipes == g->input[base->mark - 1].edges;
}

// What is made from a value that is computed again could be had later from ever further back, as one that is
// carried from step to step. It is stored, and so is what is made from that when that is given back. A
// constant, as the zeros that a gradient is cleared to, can be had at any time, and a view with its base.
static void find_fleeting(tni_graph *g)
{
    for (size_t i = 0; i < g->count; i++) {
        tni_item *it = &g->item[i];
        it->fleeting = it->n->recomputed && !it->n->constant && it->n->op != TNI_view;
        for (uint32_t s = 0; s < it->n->nsrc; s++) {
            tni_node *src = it->n->src[s];
            it->fleeting |= src->state == TNI_PENDING ? g->item[src->mark - 1].fleeting
                                                      : is_given_back(g, src);
        }
    }
}

// What the holders of a value say of it: the user's tensors, and nodes that are computed later. A constant
// can be had at any time.
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
    if (it->fleeting && !n->recomputed && !n->constant && n->op != TNI_view) why |= TNI_FLEETING;
    return why;
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
            if (!tni_passes_grad_to(n, src)) continue;
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

// An op whose own value is stored is not called again, so what can be asked for of its other outputs is
// stored with it.
static void store_outputs(tni_graph *g, const tni_node *n)
{
    for (const tni_node *o = tni_outputs(n); o; o = o->output) {
        tni_item *it = &g->item[o->mark - 1];
        if (it->why || !it->asked) continue;
        it->why   = TNI_BY_CALL;
        it->keeps = sources_kept(it) > 0;
    }
}

// From the newest down, since a value that keeps its sources decides for them.
static void find_stored(tni_graph *g, const tni_node *root)
{
    if (root && root->mark) g->item[root->mark - 1].why |= TNI_BY_READ;
    for (size_t i = g->count; i-- > 0;) {
        tni_item *it = &g->item[i];
        tni_node *n  = it->n;
        it->why |= (uint16_t)ask_holders(g, it);
        uint32_t kept = it->why ? sources_kept(it) : 0;
        bool     view = n->op == TNI_view;
        it->keeps     = kept > 0;
        it->asked |= n->handles || n->recipes;
        if (it->why) store_outputs(g, n);
        for (uint32_t s = 0; s < kept; s++)
            if (n->src[s]->state == TNI_PENDING)
                g->item[n->src[s]->mark - 1].why |= view && !s ? TNI_BY_VIEW : TNI_BY_HISTORY;
        for (uint32_t s = 0; it->asked && !it->why && s < n->nsrc; s++)
            if (n->src[s]->state == TNI_PENDING) g->item[n->src[s]->mark - 1].asked = true;
    }
}

// Whether a boundary computes the store's value for its own sake. A constant can wait.
static bool is_due(const tni_store *s)
{
    if (s->node->state != TNI_PENDING) return false;
    return !s->node->constant || s->wanted || s->assigned;
}

tni_text tni_why_text(unsigned why)
{
    static const char *const names[] = {
        "read",       "assigned",     "wanted",           "outer scope",
        "unconsumed", "one element",  "consumed later",   "has a tensor",
        "history",    "holds a view", "output of a call", "made from what goes"
    };
    tni_text t = { "" };
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (why >> i & 1) tni_text_add(&t, "%s%s", t.s[0] ? ", " : "", names[i]);
    return t;
}

bool tni_graph_open(tni_graph *g, tn_ctx *cx, tni_mode mode, tni_node *root)
{
    *g       = (tni_graph){ .cx = cx, .mode = mode };
    cx->busy = true;
    finds f  = { 0 };
    if (root) find(&f, root);
    for (tni_store *s = root ? NULL : cx->pending; s; s = s->next)
        if (is_due(s)) find(&f, s->node);
    bool ok = gather(g, &f);
    if (ok) drop_lost(g);
    ok = ok && find_bases(g);
    if (ok) {
        if (mode == TNI_STEP) ask_stores(g);
        find_dying(g);
        find_fleeting(g);
        find_stored(g, root);
        find_dead_inputs(g);
    }
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
