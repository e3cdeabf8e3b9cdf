// Splitting: a kernel that takes more registers than a thread has is cut in two. The planner cannot know
// which do, so the device's compiler is asked; what is decided here is where to cut.
//
// A cut goes through a kernel behind one of its items. The seeds up to that item and the item itself,
// which is stored if it floated, make the first half, the other seeds the second. Items are in an
// order in which they can be computed, so the first half needs nothing of the second. Each half gets
// a number as its part, and fusion joins what is of one part alone.
#include "plan/plan.h"

enum {
    A_LAUNCH = 1 << 22,  // bytes that can be moved while one launch more begins
    POINTS   = 4,        // that a thread goes over with what it spilled once
    MIDDLE   = 8         // a cut is near the best if the larger half has 1/8 of the work more
};

// A cut of a kernel behind item `at`: the work of its larger half, in instructions, and the bytes that
// the halves move more than the whole.
typedef struct {
    int32_t at;
    int     work;
    int64_t bytes;
} cut;

// The halves while a cut is looked at, by instruction: what each has to compute or read.
typedef struct {
    bool first[TNI_MAX_INS], second[TNI_MAX_INS];
} halves;

static bool is_seed(const tni_planned_kernel *k, int32_t item)
{
    for (size_t i = 0; i < k->seeds; i++)
        if (tni_seed_item(k->seed[i]) == item) return true;
    return false;
}

static bool is_stored(const tni_planned_kernel *k, int32_t item)
{
    for (size_t i = 0; i < k->seeds; i++)
        if (k->seed[i] == item) return true;
    return false;
}

static bool is_in_first(const tni_planned_kernel *k, int32_t item, int32_t at)
{
    return item == at || (item >= 0 && item < at && is_seed(k, item));
}

// Whether an instruction is the value of an item that the first half has.
static bool is_made_before(const tni_planned_kernel *k, int i, int32_t at)
{
    int  code = k->kernel->ins[i].code;
    bool made = code == TNI_I_MAP || code == TNI_I_CAST || code == TNI_I_REDUCE;
    return made && is_in_first(k, k->origin[i], at);
}

static void need_operands(const tni_ins *x, bool *needed)
{
    if (x->a >= 0) needed[x->a] = true;
    if (x->b >= 0) needed[x->b] = true;
    if (x->c >= 0) needed[x->c] = true;
}

static void find_halves(const tni_planned_kernel *k, int32_t at, halves *h)
{
    *h = (halves){ .first = { false } };
    for (int i = k->kernel->nins - 1; i >= 0; i--) {
        const tni_ins *x     = &k->kernel->ins[i];
        int32_t        item  = k->origin[i];
        bool           early = is_in_first(k, item, at);
        h->first[i] |= early;
        h->second[i] |= !early && is_seed(k, item);
        if (h->first[i]) need_operands(x, h->first);
        if (h->second[i] && !is_made_before(k, i, at)) need_operands(x, h->second);
    }
}

static int work_of(const tni_planned_kernel *k, const bool *needed)
{
    int work = 0;
    for (int i = 0; i < k->kernel->nins; i++) {
        int code = k->kernel->ins[i].code;
        work += needed[i] && code != TNI_I_NUMBER && code != TNI_I_STORE;
    }
    return work;
}

// Bytes that a load brings, each once.
static int64_t load_bytes(const tni_planned_kernel *k, const tni_ins *x)
{
    const tni_kernel *y     = k->kernel;
    int64_t           count = 1;
    for (int i = 0; i < y->np + y->nr; i++)
        if (x->a >= 0 || k->launch.stride[x->access][i]) count *= k->launch.size[i];
    return count * (int64_t)tni_dtype_size((tn_dtype)y->buffer[y->access[x->access].buffer].dtype);
}

// What both halves load is loaded once more; what the second reads of the first is read, and written
// if it was not stored so far. An item of several instructions counts once.
static int64_t bytes_more(const tni_graph *g, const tni_planned_kernel *k, int32_t at,
                          const halves *h)
{
    int64_t bytes = 0;
    int32_t last  = -1;
    for (int i = 0; i < k->kernel->nins; i++) {
        const tni_ins *x    = &k->kernel->ins[i];
        int32_t        item = k->origin[i];
        if (x->code == TNI_I_LOAD && h->first[i] && h->second[i]) bytes += load_bytes(k, x);
        if (!h->second[i] || item == last || !is_made_before(k, i, at)) continue;
        const tni_node *n = g->item[item].n;
        last              = item;
        bytes += tni_node_count(n) * (int64_t)tni_dtype_size((tn_dtype)n->dtype) *
                 (is_stored(k, item) ? 1 : 2);
    }
    return bytes;
}

// Whether the second half reads item `at`; a seed need not be read.
static bool is_read(const tni_planned_kernel *k, int32_t at, const halves *h)
{
    for (int i = 0; i < k->kernel->nins; i++)
        if (h->second[i] && k->origin[i] == at && is_made_before(k, i, at)) return true;
    return is_seed(k, at);
}

// Cuts a kernel behind item `at`; false if that makes no halves.
static bool try_cut(const tni_graph *g, const tni_planned_kernel *k, int32_t at, int whole, cut *c)
{
    halves h;
    if (at < 0 || tni_op_table[g->item[at].n->op].class == TNI_SOURCE) return false;
    find_halves(k, at, &h);
    int first = work_of(k, h.first), second = work_of(k, h.second);
    *c = (cut){ .at = at, .work = first > second ? first : second };
    if (c->work >= whole || !second || !is_read(k, at, &h)) return false;
    c->bytes = bytes_more(g, k, at, &h);
    return true;
}

static bool is_better(const cut *a, const cut *b)
{
    if (a->bytes != b->bytes) return a->bytes < b->bytes;
    return a->work != b->work ? a->work < b->work : a->at < b->at;
}

// Of the cuts near the middle the one that moves least.
static bool find_cut(const tni_graph *g, const tni_planned_kernel *k, cut *best)
{
    cut  all[TNI_MAX_INS];
    bool needed[TNI_MAX_INS];
    int  n = 0, least = TNI_MAX_INS;
    for (int i = 0; i < k->kernel->nins; i++) needed[i] = true;
    int whole = work_of(k, needed);
    for (int i = 0; i < k->kernel->nins; i++) {
        if (!try_cut(g, k, k->origin[i], whole, &all[n])) continue;
        if (all[n].work < least) least = all[n].work;
        n++;
    }
    best->at = -1;
    for (int i = 0; i < n; i++) {
        if (all[i].work > least + whole / MIDDLE) continue;
        if (best->at < 0 || is_better(&all[i], best)) *best = all[i];
    }
    return best->at >= 0;
}

static int64_t points_of(const tni_planned_kernel *k)
{
    int64_t points = 1;
    for (int i = 0; i < k->kernel->np + k->kernel->nr; i++) points *= k->launch.size[i];
    return points;
}

int64_t tni_spilled_bytes(const tni_planned_kernel *k, int64_t spilled)
{
    int64_t turns = (points_of(k) + POINTS - 1) / POINTS;
    return spilled > INT64_MAX / turns ? INT64_MAX : spilled * turns;
}

static int32_t next_part(const tni_graph *g)
{
    int32_t most = 0;
    for (size_t i = 0; i < g->count; i++)
        if (most < g->item[i].part) most = g->item[i].part;
    return most + 1;
}

bool tni_split_kernels(tni_graph *g, const tni_plan *p, const int64_t *spilled)
{
    int32_t part = next_part(g), first = part;
    for (size_t i = 0; i < p->kernels; i++) {
        const tni_planned_kernel *k = &p->kernel[i];
        cut                       c;
        if (spilled[i] <= A_LAUNCH || !find_cut(g, k, &c)) continue;
        if (spilled[i] - A_LAUNCH <= c.bytes) continue;
        for (size_t s = 0; s < k->seeds; s++) {
            int32_t item       = tni_seed_item(k->seed[s]);
            g->item[item].part = item <= c.at ? part : part + 1;
        }
        g->item[c.at].part = part;
        part += 2;
    }
    return part > first;
}
