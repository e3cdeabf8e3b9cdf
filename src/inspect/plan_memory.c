// How much memory a plan takes, before it runs: by what it is for, in all, and how far its arena is
// from the least that its lifetimes allow.
#include "inspect/inspect.h"

#include <stdlib.h>
#include <string.h>

// ---- lifetimes ---------------------------------------------------------------------------------

// From which step to which a place of the arena is in use. A result that takes the place of what it
// is made from has no lifetime of its own: it prolongs that of `other` - 1.
typedef struct {
    uint32_t first, last, other;
    uint32_t made;  // of an item in any place: 1 + the step that makes it
    bool     used;
} lifetime;

// Returns the lifetime of the place that an item is stored in.
static lifetime *life_of(const tni_plan *p, lifetime *life, size_t item)
{
    lifetime *l = &life[p->place[item].root];
    return l->other ? &life[l->other - 1] : l;
}

// Extends the lifetime of an item's place to a step, if the place is in the arena.
static void use_place(const tni_plan *p, lifetime *life, size_t item, size_t step)
{
    if (p->place[item].where != TNI_ARENA) return;
    lifetime *l = life_of(p, life, item);
    if (!life[item].made) life[item].made = (uint32_t)step + 1;
    if (!l->used) l->first = (uint32_t)step;
    l->used = true;
    l->last = (uint32_t)step;
}

// Returns whether an item is stored where another one was, in place.
static bool takes_place_of(const tni_plan *p, size_t item, size_t from)
{
    const tni_place *a = &p->place[item], *b = &p->place[from];
    return a->where == TNI_ARENA && b->where == TNI_ARENA && a->root != b->root &&
           p->place[a->root].offset == p->place[b->root].offset;
}

// Reads come first: a result may take over the place of a value that the same kernel reads.
static void use_buffers(const tni_plan *p, lifetime *life, const tni_planned_kernel *k, size_t step)
{
    for (int i = 0; i < k->kernel->nbuffer; i++)
        if (k->buffer[i] >= 0 && !k->kernel->buffer[i].written)
            use_place(p, life, (size_t)k->buffer[i], step);
    for (int i = 0; i < k->kernel->nbuffer; i++) {
        if (k->buffer[i] < 0 || !k->kernel->buffer[i].written) continue;
        size_t    item = (size_t)k->buffer[i];
        lifetime *l    = &life[p->place[item].root];
        for (int j = 0; j < k->kernel->nbuffer && !l->used && !l->other; j++)
            if (j != i && k->buffer[j] >= 0 && takes_place_of(p, item, (size_t)k->buffer[j]))
                l->other = (uint32_t)(life_of(p, life, (size_t)k->buffer[j]) - life) + 1;
        use_place(p, life, item, step);
    }
}

static void use_source(const tni_graph *g, const tni_plan *p, lifetime *life, const tni_node *src,
                       size_t step)
{
    if (src->state != TNI_PENDING) return;
    int32_t base = g->item[src->mark - 1].base;
    if (base >= 0) use_place(p, life, (size_t)base, step);
}

static void use_item(const tni_graph *g, const tni_plan *p, lifetime *life, size_t item,
                     size_t step)
{
    const tni_node *n = g->item[item].n;
    for (uint32_t s = 0; s < n->nsrc; s++) use_source(g, p, life, n->src[s], step);
    use_place(p, life, item, step);
    for (const tni_node *o = tni_outputs(n); o; o = o->output)
        use_place(p, life, o->mark - 1, step);
}

// Walks the steps in order, as they run.
static void find_lifetimes(const tni_graph *g, const tni_plan *p, lifetime *life)
{
    for (size_t t = 0; t < p->steps; t++) {
        tni_plan_step             step = p->step[t];
        const tni_planned_kernel *k    = step < 0 ? &p->kernel[~step] : NULL;
        if (!k) use_item(g, p, life, (size_t)step, t);
        else if (k->call_item >= 0) use_item(g, p, life, (size_t)k->call_item, t);
        if (k) use_buffers(p, life, k, t);
    }
}

// The parts of a concat are in use from the steps that make them, not from that of the first on.
static void begin_parts(const tni_graph *g, const tni_plan *p, const lifetime *life, size_t i,
                        int64_t *change)
{
    const tni_node *n    = g->item[i].n;
    int64_t         size = (int64_t)g->cx->engine->device->memory->element_size((tn_dtype)n->dtype);
    if (n->op != TNI_concat || !tni_concat_is_flat(n) || p->place[i].pitch) return;
    for (uint32_t s = 0; s < n->nsrc; s++) {
        int32_t  base  = tni_base_of(g, n->src[s]);
        bool     into  = base >= 0 && p->place[base].root == i;
        uint32_t made  = life[into ? (size_t)base : i].made;
        int64_t  bytes = tni_node_count(n->src[s]) * size;
        if (!made) continue;
        change[life[i].first] -= bytes;
        change[made - 1] += bytes;
    }
}

// Adds up what is in use at each step: first as changes from step to step, then as sums.
static void sum_use(const tni_graph *g, const tni_plan *p, const lifetime *life, int64_t *change)
{
    for (size_t i = 0; i < p->count; i++) {
        if (!life[i].used) continue;
        change[life[i].first] += p->place[i].bytes;
        change[life[i].last + 1] -= p->place[i].bytes;
        begin_parts(g, p, life, i, change);
    }
    for (size_t t = 1; t < p->steps; t++) change[t] += change[t - 1];
}

bool tni_arena_use(const tni_graph *g, const tni_plan *p, int64_t *at_step)
{
    tni_heap *h      = &g->cx->heap;
    lifetime *life   = tni_zalloc(h, p->count * sizeof *life);
    int64_t  *change = tni_zalloc(h, (p->steps + 1) * sizeof *change);
    bool      ok     = life && change;
    if (ok) {
        find_lifetimes(g, p, life);
        sum_use(g, p, life, change);
        memcpy(at_step, change, p->steps * sizeof *change);
    }
    tni_free(h, life);
    tni_free(h, change);
    return ok;
}

// Shown by explain beside the planned size, to judge the planner's packing.
int64_t tni_arena_bound(const tni_graph *g, const tni_plan *p)
{
    int64_t *use  = tni_alloc(&g->cx->heap, p->steps * sizeof *use + 1);
    int64_t  most = use && tni_arena_use(g, p, use) ? 0 : -1;
    for (size_t t = 0; most >= 0 && t < p->steps; t++)
        if (use[t] > most) most = use[t];
    tni_free(&g->cx->heap, use);
    return most;
}

// ---- what memory is for ------------------------------------------------------------------------

// What is known of a graph's stores. leaf: the leaves that nodes of the graph stand for, each once;
// store: those of the leaves and of their gradients, as far as they take part. Both by address.
typedef struct {
    tni_graph        *g;
    const tni_leaf  **leaf;
    const tni_store **store;
    size_t            leaves, leaves_cap, count, cap;
    bool              failed;
    tn_plan_memory    m;
} ledger;

static int by_address(const void *a, const void *b)
{
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    return x < y ? -1 : x > y;
}

// Adds the leaf that a node stands for, if it has a handle.
static void add_leaf(ledger *l, const tni_node *n)
{
    if (!n->leaf || !n->leaf->handle || l->failed) return;
    l->failed = !tni_grow(&l->g->cx->heap, (void **)&l->leaf, &l->leaves_cap, l->leaves + 1,
                          sizeof *l->leaf);
    if (!l->failed) l->leaf[l->leaves++] = n->leaf;
}

// Finds the leaves of the graph, each once: sorts them by address and drops repeats.
static void find_leaves(ledger *l)
{
    size_t kept = 0;
    for (size_t i = 0; i < l->g->count; i++) {
        const tni_node *n = l->g->item[i].n;
        add_leaf(l, n);
        for (uint32_t s = 0; s < n->nsrc; s++)
            if (n->src[s]->state != TNI_PENDING) add_leaf(l, n->src[s]);
    }
    if (l->leaves) qsort(l->leaf, l->leaves, sizeof *l->leaf, by_address);
    for (size_t i = 0; i < l->leaves; i++)
        if (!kept || l->leaf[kept - 1] != l->leaf[i]) l->leaf[kept++] = l->leaf[i];
    l->leaves = kept;
}

// Returns the bytes of a store's value in the device's own representation.
static int64_t store_bytes(const ledger *l, const tni_store *s)
{
    const tni_node *n = s->node;
    return tni_node_count(n) *
           (int64_t)l->g->cx->engine->device->memory->element_size((tn_dtype)n->dtype);
}

// Returns whether a node is in the graph.
static bool takes_part(const tni_node *n)
{
    return n && n->mark != 0;
}

// Adds a store that takes part in the graph; returns its bytes, or 0 if it does not.
static int64_t add_store(ledger *l, const tni_store *s)
{
    if ((!takes_part(s->node) && !takes_part(s->rollback)) || l->failed) return 0;
    l->failed = !tni_grow(&l->g->cx->heap, (void **)&l->store, &l->cap, l->count + 1,
                          sizeof *l->store);
    if (l->failed) return 0;
    l->store[l->count++] = s;
    return store_bytes(l, s);
}

// Parameters and gradients are counted apart, and sorted so that add_assigned can skip them.
static void add_stores(ledger *l)
{
    for (size_t i = 0; i < l->leaves; i++) {
        const tni_leaf *leaf = l->leaf[i];
        l->m.parameters += add_store(l, leaf->handle->store);
        if (leaf->grad) l->m.gradients += add_store(l, leaf->grad->store);
    }
    if (l->count) qsort(l->store, l->count, sizeof *l->store, by_address);
}

// Counts the other stores that are assigned in place: an optimizer's state, running statistics.
static void add_assigned(ledger *l)
{
    for (const tni_store *s = l->g->cx->pending; s; s = s->next) {
        if (!s->assigned || !takes_part(s->node)) continue;
        if (l->count && bsearch(&s, l->store, l->count, sizeof *l->store, by_address)) continue;
        l->m.optimizer += store_bytes(l, s);
    }
}

// Returns whether the plan allocates memory for an item that outlives it, rather than taking over
// an input's.
static bool is_new(const tni_plan *p, size_t i)
{
    return p->place[i].where == TNI_OWN && !p->place[p->place[i].root].donated;
}

static bool is_result(const tni_plan *p, const tni_node *n)
{
    return n->state == TNI_PENDING && n->mark && is_new(p, n->mark - 1);
}

// Returns the bytes that the plan allocates while it runs, without scratch. Sets activations: the
// part of it that is not for parameters, gradients and the like.
static int64_t count_places(ledger *l, const tni_plan *p)
{
    int64_t taken = p->arena ? (int64_t)tni_buffer_size((size_t)p->arena) : 0, results = 0;
    for (size_t i = 0; i < p->count; i++) {
        if (!is_new(p, i) || p->place[i].root != i) continue;
        taken += (int64_t)tni_buffer_size((size_t)p->place[i].bytes);
        results += p->place[i].bytes;
    }
    for (const tni_store *s = l->g->cx->pending; s; s = s->next)
        if (s->assigned && is_result(p, s->node)) results -= store_bytes(l, s);
    l->m.activations = p->arena + (results > 0 ? results : 0);
    return taken;
}

// Fills in all but the peak; returns what the plan allocates, without scratch.
static int64_t count_owners(ledger *l, const tni_plan *p, int64_t workspace)
{
    find_leaves(l);
    add_stores(l);
    add_assigned(l);
    l->m.workspace = workspace;
    return count_places(l, p);
}

static void free_ledger(tn_ctx *cx, ledger *l)
{
    tni_free(&cx->heap, l->leaf);
    tni_free(&cx->heap, l->store);
}

bool tni_memory_by_owner(tni_graph *g, const tni_plan *p, int64_t workspace, tn_plan_memory *m)
{
    ledger l = { .g = g };
    count_owners(&l, p, workspace);
    free_ledger(g->cx, &l);
    *m = l.m;
    return !l.failed;
}

// Uses the plan that the next evaluation will use, built now if it is new.
static bool fill_ledger(ledger *l)
{
    tn_ctx *cx   = l->g->cx;
    bool    kept = true;
    l->m.peak    = cx->buffers.bytes;
    if (!l->g->count) return true;
    tni_plan *p    = tni_plan_for(l->g, &kept);
    int64_t   work = p ? tni_plan_workspace(l->g, &p, kept) : -1;
    if (work >= 0) {
        l->m.peak += count_owners(l, p, work);
        if (work) l->m.peak += (int64_t)tni_buffer_size((size_t)work);
    }
    if (!kept) tni_plan_free(&cx->heap, p);
    if (l->failed) return tni_no_memory(cx, "ctx_plan_memory");
    return work >= 0;
}

tn_plan_memory tn_ctx_plan_memory(tn_ctx *cx)
{
    tni_graph g;
    ledger    l = { .g = &g };
    if (!tni_ctx_ok(cx, "ctx_plan_memory")) return l.m;
    if (cx->busy) {
        tni_fail(cx, TN_EARG, "ctx_plan_memory: a tn_ call is in progress");
        return l.m;
    }
    bool ok = tni_graph_open(&g, cx, TNI_STEP, NULL) && fill_ledger(&l);
    tni_graph_close(&g);
    free_ledger(cx, &l);
    return ok ? l.m : (tn_plan_memory){ 0 };
}
