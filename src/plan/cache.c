// Plans by their exact key, the least recently used freed first.
//
// Keys are compared byte by byte, so that a hash collision cannot run a wrong plan. A training loop
// asks for the plan it used last: that one is compared first, without hashing the key.
#include "plan/plan.h"

#include "base/hash.h"

static bool has_key(const tni_plan *p, const char *key, size_t bytes)
{
    return p->key_bytes == bytes && !memcmp(p->key, key, bytes);
}

static tni_plan *find_by_key(const tni_plans *c, uint64_t hash, const char *key, size_t bytes)
{
    for (int i = 0; i < c->count; i++) {
        if (c->hash[i] != hash) continue;
        if (has_key(c->plan[i], key, bytes)) return c->plan[i];
    }
    return NULL;
}

// Returns a hash of a graph's ops in order, without sizes: equal for the iterations of a loop over
// sizes.
static uint64_t ops_hash(const tni_graph *g)
{
    uint64_t hash = g->count;
    for (size_t i = 0; i < g->count; i++)
        hash = (hash ^ (uint64_t)g->item[i].n->op) * UINT64_C(0x9E3779B97F4A7C15);
    return hash;
}

// Marks a plan and those it has the ops in common with as recurring: the program loops over sizes,
// so each of them is worth compiling at its first run (engine/prepare.c).
static void mark_recurring(tni_plans *c, tni_plan *p)
{
    for (int i = 0; i < c->count; i++)
        if (c->plan[i]->ops_hash == p->ops_hash) p->recurs = c->plan[i]->recurs = true;
}

// Adds a plan, in the place of the least recently used one if the cache is full.
static void keep_plan(tni_plans *c, tni_heap *h, tni_plan *p)
{
    int at = c->count;
    if (at == TNI_PLANS) {
        uint64_t oldest = UINT64_MAX;
        for (int i = 0; i < c->count; i++)
            if (!c->plan[i]->pinned && c->plan[i]->used < oldest) oldest = c->plan[at = i]->used;
        tni_plan_free(h, c->plan[at]);
    } else {
        c->count++;
    }
    c->plan[at] = p;
    c->hash[at] = p->hash;
}

// Gives the items of a graph the choices that were measured for its key on this chip, if there are
// any, and returns them.
static tni_choices choose_winner(tni_graph *g, const tni_limits *limits, const char *key,
                                 size_t bytes)
{
    tni_tuned won;
    if (!tni_find_winner(g, limits, key, bytes, &won)) return (tni_choices){ 0 };
    tni_choose(g, &won.choices);
    return won.choices;
}

// A graph that is too large for the cache gets no key at all: writing it would cost as much as
// planning.
tni_plan *tni_plans_get(tni_plans *c, tni_graph *g, const tni_limits *limits, bool *kept)
{
    tni_heap *h = &g->cx->heap;
    size_t    bytes;
    *kept = g->count <= TNI_PLAN_NODES;
    if (!*kept) return tni_plan_build(g, limits);
    char *key = tni_key_write(g, &bytes);
    if (!key) return NULL;
    tni_plan *p    = c->last && has_key(c->last, key, bytes) ? c->last : NULL;
    uint64_t  hash = p ? p->hash : tni_hash(key, bytes);
    if (!p) p = find_by_key(c, hash, key, bytes);
    if (p) {
        g->cx->stats.hits++;
        tni_free(h, key);
    } else {
        tni_choices chosen = choose_winner(g, limits, key, bytes);
        p                  = tni_plan_build(g, limits);
        if (p) {
            p->choices   = chosen;
            p->hash      = hash;
            p->key       = key;
            p->key_bytes = bytes;
            p->ops_hash  = ops_hash(g);
            mark_recurring(c, p);
            keep_plan(c, h, p);
        } else {
            tni_free(h, key);
        }
    }
    if (p) p->used = ++c->clock;
    c->last = p;
    return p;
}

bool tni_plans_recall(const tni_plans *c, tni_graph *g, const tni_limits *limits)
{
    size_t bytes;
    if (g->count > TNI_PLAN_NODES) return true;
    char *key = tni_key_write(g, &bytes);
    if (!key) return false;
    const tni_plan *p = find_by_key(c, tni_hash(key, bytes), key, bytes);
    for (size_t i = 0; p && p->partition && i < g->count; i++)
        g->item[i].partition = p->partition[i];
    if (p) tni_choose(g, &p->choices);
    else choose_winner(g, limits, key, bytes);
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

// Without a key it is equal to no graph. At most a quarter of the plans, so that others still find
// room.
bool tni_plans_pin(tni_plans *c, tni_plan *p)
{
    int pinned = 0, at = -1;
    for (int i = 0; i < c->count; i++) {
        pinned += c->plan[i]->pinned;
        if (c->plan[i] == p) at = i;
    }
    if (at < 0 || p->pinned || pinned >= TNI_PLANS / 4) return false;
    p->pinned    = true;
    p->key_bytes = 0;
    c->hash[at] = p->hash = 0;
    if (c->last == p) c->last = NULL;
    return true;
}

void tni_plans_drop(tni_plans *c, tni_heap *h, tni_plan *p)
{
    for (int i = 0; i < c->count; i++) {
        if (c->plan[i] != p) continue;
        c->plan[i] = c->plan[--c->count];
        c->hash[i] = c->hash[c->count];
        tni_plan_free(h, p);
        return;
    }
}

void tni_plans_close(tni_plans *c, tni_heap *h)
{
    for (int i = 0; i < c->count; i++) tni_plan_free(h, c->plan[i]);
    c->count = 0;
}
