// Splitting: a kernel that needs more registers than a thread has is cut in two. Only the device's
// compiler knows how many a kernel takes, so engine/prepare.c asks it after compiling; this file
// decides where to cut.
//
// A cut goes behind one of the kernel's items. The seeds up to that item and the item itself, which
// becomes stored if it was inlined, make the first half, the other seeds the second. Items are in
// topological order, so the first half needs nothing of the second. Each half gets a new number as
// its partition; fusion joins only items of one partition, so planning the graph again gives two
// kernels.
#include "plan/plan.h"

enum {
    A_LAUNCH =
        1 << 22,  // bytes that a GPU moves in the time one more launch takes (about 1 us at 4 TB/s)
    POINTS = 4,   // that a thread goes over with what it spilled once
    MIDDLE = 8    // a cut is near the best if the larger half has 1/8 of the work more
};

// A cut of a kernel behind item `at`: the work of its larger half, in instructions, and the bytes
// that the halves move more than the whole.
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

static bool is_stored_seed(const tni_planned_kernel *k, int32_t item)
{
    for (size_t i = 0; i < k->seeds; i++)
        if (k->seed[i] == item) return true;
    return false;
}

// Whether an item belongs to the first half of a cut behind item `at`.
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

// Finds the instructions that each half computes or reads, from the last instruction up: an
// instruction is needed by a half if a seed of it needs it. The second half loads what the first
// half computes, so it needs no operands of it.
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

// Counts the instructions of a half that cost registers and time.
static int work_of(const tni_planned_kernel *k, const bool *needed)
{
    int work = 0;
    for (int i = 0; i < k->kernel->nins; i++) {
        int code = k->kernel->ins[i].code;
        work += needed[i] && code != TNI_I_NUMBER && code != TNI_I_STORE;
    }
    return work;
}

// Returns the bytes that a load brings, each element once.
static int64_t load_bytes(const tni_planned_kernel *k, const tni_ins *x)
{
    const tni_kernel *y     = k->kernel;
    int64_t           count = 1;
    for (int i = 0; i < y->np + y->nr; i++)
        if (x->a >= 0 || k->launch.stride[x->access][i]) count *= k->launch.size[i];
    return count * (int64_t)tni_dtype_size((tn_dtype)y->buffer[y->access[x->access].buffer].dtype);
}

// Returns the bytes that the halves move more than the whole: values that both load are loaded once
// more; values of the first half that the second reads are read, and also written if they were not
// stored so far. An item of several instructions counts once.
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
                 (is_stored_seed(k, item) ? 1 : 2);
    }
    return bytes;
}

// Whether a cut behind item `at` divides anything: the second half reads the item, or the item is a
// seed.
static bool is_divided(const tni_planned_kernel *k, int32_t at, const halves *h)
{
    for (int i = 0; i < k->kernel->nins; i++)
        if (h->second[i] && k->origin[i] == at && is_made_before(k, i, at)) return true;
    return is_seed(k, at);
}

// Evaluates the cut of a kernel behind item `at`; false if it does not make two smaller halves.
static bool try_cut(const tni_graph *g, const tni_planned_kernel *k, int32_t at, int whole, cut *c)
{
    halves h;
    if (at < 0 || tni_op_table[g->item[at].n->op].class == TNI_SOURCE) return false;
    find_halves(k, at, &h);
    int first = work_of(k, h.first), second = work_of(k, h.second);
    *c = (cut){ .at = at, .work = first > second ? first : second };
    if (c->work >= whole || !second || !is_divided(k, at, &h)) return false;
    c->bytes = bytes_more(g, k, at, &h);
    return true;
}

static bool is_better_cut(const cut *a, const cut *b)
{
    if (a->bytes != b->bytes) return a->bytes < b->bytes;
    return a->work != b->work ? a->work < b->work : a->at < b->at;
}

// Finds the cut that moves the fewest bytes among those near the middle of the work: halves of very
// different size would leave one that still spills.
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
        if (best->at < 0 || is_better_cut(&all[i], best)) *best = all[i];
    }
    return best->at >= 0;
}

int32_t tni_best_cut(const tni_graph *g, const tni_planned_kernel *k)
{
    cut best;
    return find_cut(g, k, &best) ? best.at : -1;
}

static int64_t points_of(const tni_planned_kernel *k)
{
    int64_t points = 1;
    for (int i = 0; i < k->kernel->np + k->kernel->nr; i++) points *= k->launch.size[i];
    return points;
}

// A thread writes and reads what it spilled about once for every POINTS points it goes over.
int64_t tni_spilled_bytes(const tni_planned_kernel *k, int64_t spilled)
{
    int64_t turns = (points_of(k) + POINTS - 1) / POINTS;
    return spilled > INT64_MAX / turns ? INT64_MAX : spilled * turns;
}

// Returns the first number above all partitions of the graph, which earlier rounds may have given.
static int32_t next_partition(const tni_graph *g)
{
    int32_t most = 0;
    for (size_t i = 0; i < g->count; i++)
        if (most < g->item[i].partition) most = g->item[i].partition;
    return most + 1;
}

// Spilled bytes are counted against the bytes a cut moves and one launch more.
bool tni_split_kernels(tni_graph *g, const tni_plan *p, const int64_t *spilled)
{
    int32_t partition = next_partition(g), first = partition;
    for (size_t i = 0; i < p->kernels; i++) {
        const tni_planned_kernel *k = &p->kernel[i];
        cut                       c;
        if (spilled[i] <= A_LAUNCH || !find_cut(g, k, &c)) continue;
        if (spilled[i] - A_LAUNCH <= c.bytes) continue;
        for (size_t s = 0; s < k->seeds; s++) {
            int32_t item            = tni_seed_item(k->seed[s]);
            g->item[item].partition = item <= c.at ? partition : partition + 1;
        }
        g->item[c.at].partition = partition;
        partition += 2;
    }
    return partition > first;
}
