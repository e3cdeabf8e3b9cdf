// Plans by their exact key.
#include "plan/plan.h"

#include "base/hash.h"

static bool is_of(const tni_plan *p, const char *key, size_t bytes)
{
    return p->key_bytes == bytes && !memcmp(p->key, key, bytes);
}

static tni_plan *find(const tni_plans *c, uint64_t hash, const char *key, size_t bytes)
{
    for (int i = 0; i < c->count; i++) {
        if (c->hash[i] != hash) continue;
        if (is_of(c->plan[i], key, bytes)) return c->plan[i];
    }
    return NULL;
}

// What a graph does, whatever its sizes are.
static uint64_t ops_hash(const tni_graph *g)
{
    uint64_t hash = g->count;
    for (size_t i = 0; i < g->count; i++)
        hash = (hash ^ (uint64_t)g->item[i].n->op) * UINT64_C(0x9E3779B97F4A7C15);
    return hash;
}

// A plan that does what another does already, for other sizes, is of a loop over sizes.
static void mark_recurring(tni_plans *c, tni_plan *p)
{
    for (int i = 0; i < c->count; i++)
        if (c->plan[i]->ops_hash == p->ops_hash) p->recurs = c->plan[i]->recurs = true;
}

static void keep(tni_plans *c, tni_heap *h, tni_plan *p)
{
    int at = c->count;
    if (at == TNI_PLANS) {
        at = 0;
        for (int i = 1; i < c->count; i++)
            if (c->plan[i]->used < c->plan[at]->used) at = i;
        tni_plan_free(h, c->plan[at]);
    } else {
        c->count++;
    }
    c->plan[at] = p;
    c->hash[at] = p->hash;
}

tni_plan *tni_plans_get(tni_plans *c, tni_graph *g, const tni_limits *limits, bool *kept)
{
    tni_heap *h = &g->cx->heap;
    size_t    bytes;
    *kept = g->count <= TNI_PLAN_NODES;
    if (!*kept) return tni_plan_build(g, limits);
    char *key = tni_key_write(g, &bytes);
    if (!key) return NULL;
    tni_plan *p    = c->last && is_of(c->last, key, bytes) ? c->last : NULL;
    uint64_t  hash = p ? p->hash : tni_hash(key, bytes);
    if (!p) p = find(c, hash, key, bytes);
    if (p) {
        g->cx->stats.hits++;
        tni_free(h, key);
    } else {
        p = tni_plan_build(g, limits);
        if (p) {
            p->hash      = hash;
            p->key       = key;
            p->key_bytes = bytes;
            p->ops_hash  = ops_hash(g);
            mark_recurring(c, p);
            keep(c, h, p);
        } else {
            tni_free(h, key);
        }
    }
    if (p) p->used = ++c->clock;
    c->last = p;
    return p;
}

bool tni_plans_recall(const tni_plans *c, tni_graph *g)
{
    size_t bytes;
    if (g->count > TNI_PLAN_NODES) return true;
    char *key = tni_key_write(g, &bytes);
    if (!key) return false;
    const tni_plan *p = find(c, tni_hash(key, bytes), key, bytes);
    for (size_t i = 0; p && p->part && i < g->count; i++) g->item[i].part = p->part[i];
    tni_free(&g->cx->heap, key);
    return true;
}

void tni_plans_replace(tni_plans *c, tni_heap *h, tni_plan *old, tni_plan *better)
{
    better->hash      = old->hash;
    better->ops_hash  = old->ops_hash;
    better->key       = old->key;
    better->key_bytes = old->key_bytes;
    better->recurs    = old->recurs;
    better->runs      = old->runs;
    better->used      = old->used;
    old->key          = NULL;
    for (int i = 0; i < c->count; i++)
        if (c->plan[i] == old) c->plan[i] = better;
    if (c->last == old) c->last = better;
    tni_plan_free(h, old);
}

void tni_plans_close(tni_plans *c, tni_heap *h)
{
    for (int i = 0; i < c->count; i++) tni_plan_free(h, c->plan[i]);
    c->count = 0;
}
