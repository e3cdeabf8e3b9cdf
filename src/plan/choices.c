// Choices: what the planner decides about single values, and measuring may choose otherwise
// (inspect/tune_plan.c).
//
// A choice is of a kind and about a value (kernel/tuning.h). decide.c, fuse.c, axes.c,
// offer_epilogues.c and pad_rows.c look at the choices of an item where they would decide by a
// rule, and note in `could` where they decided by one that measuring may doubt. All choices keep a
// plan right: they only move the border between kernels, or say where a value is stored.
//
// Values are named by a hash of what they are and of what they are made from, two ops deep. So one
// choice is about the same value of every layer of a network, whose layers are alike: each of them
// alone would make less of a difference than times vary. Values that have one hash and are not
// alike get the choice as well, and the plan is measured with it.
//
// For softmax(x + b) with rows that are too long for registers, in which each loop computes the sum
// again,
//
//   store at add    x + b is computed once and stored, and softmax reads it
//   cut at max      the rows' maxima are made by a kernel, and the rest by another
//
// are listed, and whichever is fastest with the right results is kept for this graph on this chip.
#include "plan/fuse.h"

#include "kernel/disk.h"

#include <stdlib.h>
#include <string.h>

// ---- values ------------------------------------------------------------------------------------

// Words that name a value: its own, those of three sources, and of three sources of each.
enum {
    SOURCES    = 3,
    NODE_WORDS = 5 + TN_MAX_RANK,
    WORDS      = NODE_WORDS * (1 + SOURCES * (1 + SOURCES))
};

// What describes one node by itself. Views count as what they are views of, with their own shape.
// By which op an input was made is no part of it, as of the key: a weight is random numbers first,
// and then an update.
static size_t put_node(const tni_graph *g, const tni_node *n, int64_t *word)
{
    bool            item = n->state == TNI_PENDING;
    const tni_item *it   = item ? &g->item[n->mark - 1] : NULL;
    size_t          at   = 0;
    word[at++]           = item ? n->op : 0;
    word[at++]           = item;
    word[at++]           = n->dtype;
    word[at++]           = n->rank;
    word[at++]           = it ? it->why != 0 : 0;
    for (int i = 0; i < n->rank; i++) word[at++] = n->size[i];
    return at;
}

// Adds the sources of a node that are still to be computed, up to some depth.
static size_t put_sources(const tni_graph *g, const tni_node *n, int depth, int64_t *word)
{
    size_t at = put_node(g, n, word);
    for (uint32_t s = 0; depth && n->state == TNI_PENDING && s < n->nsrc && s < SOURCES; s++)
        at += put_sources(g, n->src[s], depth - 1, word + at);
    return at;
}

uint32_t tni_choice_where(const tni_graph *g, size_t item)
{
    int64_t  word[WORDS];
    uint64_t hash[2];
    size_t   n = put_sources(g, g->item[item].n, 2, word);
    tni_disk_hash_bytes(word, n * sizeof *word, hash);
    return (uint32_t)hash[0] ? (uint32_t)hash[0] : 1;
}

// Without choices nothing is hashed: most plans have none.
void tni_choose(tni_graph *g, const tni_choices *c)
{
    for (size_t i = 0; i < g->count; i++) {
        g->item[i].choices = 0;
        uint32_t where     = c->n ? tni_choice_where(g, i) : 0;
        for (int k = 0; k < c->n; k++)
            if (c->of[k].where == where) g->item[i].choices |= (uint16_t)(1 << c->of[k].kind);
    }
}

bool tni_find_winner(const tni_graph *g, const tni_limits *limits, const void *key, size_t bytes,
                     tni_tuned *won)
{
    if (!limits->chip || !tni_tuned_find_bytes(limits->chip, key, bytes, won)) return false;
    for (int k = 0; k < won->choices.n; k++) {
        size_t i = 0;
        while (i < g->count && tni_choice_where(g, i) != won->choices.of[k].where) i++;
        if (i == g->count) return false;
    }
    return true;
}

// ---- alternatives ------------------------------------------------------------------------------

// A list being made, and by item: the bytes that the steps move which make or read it, how many
// kernels compute it, and the last of these.
typedef struct {
    const tni_graph *g;
    tni_alternative *list;
    int              count, room;
    int64_t         *bytes;
    int32_t         *kernels, *last;
} listing;

// Whether something else was chosen for the item that this would contradict, or just this.
static bool is_settled(const tni_item *it, int kind)
{
    enum {
        MEMORY = 1 << TNI_CHOICE_STORE | 1 << TNI_CHOICE_INLINE | 1 << TNI_CHOICE_CUT,
        CALL   = 1 << TNI_CHOICE_OTHER | 1 << TNI_CHOICE_FEWER | 1 << TNI_CHOICE_MORE
    };
    unsigned own = 1u << kind;
    return it->choices & own || (own & MEMORY && it->choices & MEMORY) ||
           (own & CALL && it->choices & CALL);
}

// Adds an alternative; one about values that are alike counts once, with the bytes of all.
static void add_alternative(listing *l, int kind, int32_t item, int64_t bytes)
{
    uint32_t where = tni_choice_where(l->g, (size_t)item);
    if (is_settled(&l->g->item[item], kind)) return;
    for (int i = 0; i < l->count; i++) {
        tni_alternative *a = &l->list[i];
        if (a->choice.kind != kind || a->choice.where != where) continue;
        a->bytes += bytes;
        return;
    }
    if (l->count == l->room) return;
    l->list[l->count++] = (tni_alternative){ { (uint8_t)kind, where }, bytes, item };
}

// Notes which items the kernels of a plan touch, and which they compute.
static void count_kernels(listing *l, const tni_plan *p)
{
    for (size_t j = 0; j < p->kernels; j++) {
        const tni_planned_kernel *k = &p->kernel[j];
        for (int i = 0; i < k->kernel->nbuffer; i++)
            if (k->buffer[i] >= 0) l->bytes[k->buffer[i]] += k->bytes;
        for (int i = 0; i < k->kernel->nins; i++) {
            int     code = k->kernel->ins[i].code;
            int32_t item = k->origin[i];
            if (item < 0 || (code != TNI_I_MAP && code != TNI_I_CAST) ||
                l->last[item] == (int32_t)j + 1)
                continue;
            l->last[item] = (int32_t)j + 1;
            l->kernels[item]++;
            l->bytes[item] += k->bytes;
        }
    }
}

// Lists where a kernel could end: where it is cut best if its registers spill, and behind each fold
// that it goes on from.
static void list_cuts(listing *l, const tni_planned_kernel *k)
{
    int32_t best = tni_best_cut(l->g, k);
    if (best >= 0) add_alternative(l, TNI_CHOICE_CUT, best, k->bytes);
    for (size_t i = 0; i + 1 < k->seeds; i++) {
        int32_t item = tni_seed_item(k->seed[i]);
        if (item != best && tni_op_table[l->g->item[item].n->op].fuse == TNI_FUSE_FOLD)
            add_alternative(l, TNI_CHOICE_CUT, item, k->bytes);
    }
}

_Static_assert(TNI_CHOICE_FEWER == TNI_CHOICE_OTHER + 1 && TNI_CHOICE_MORE == TNI_CHOICE_OTHER + 2,
               "choices of calls are in the order of tni_otherwise");

// Lists what a call could do otherwise: by another method of the device, or in other parts.
// FLOPS_A_BYTE: what a processor computes in the time in which it moves one; products take longer
// than what they move.
static void list_method(listing *l, const tni_limits *limits, int32_t item)
{
    enum { FLOPS_A_BYTE = 8 };
    const tni_node *n = l->g->item[item].n;
    tni_arg         arg[TNI_OFFER_ARGS];
    if (!limits->others || tni_call_args(n) > TNI_OFFER_ARGS) return;
    tni_call c      = tni_call_of(n, arg);
    unsigned others = limits->others(limits->device, &c);
    for (int i = 0; i < TNI_OTHERWISE_BITS; i++)
        if (others >> i & 1)
            add_alternative(l, TNI_CHOICE_OTHER + i, item,
                            (int64_t)(tni_node_flops(n) / FLOPS_A_BYTE));
}

// Lists what can be told from the steps of a plan: where kernels could end, calls could have no
// epilogue, or use another method.
static void list_by_steps(listing *l, const tni_limits *limits, const tni_plan *p)
{
    for (size_t t = 0; t < p->steps; t++) {
        int32_t item = p->step[t] < 0 ? p->kernel[~p->step[t]].call_item : p->step[t];
        if (item >= 0) list_method(l, limits, item);
    }
    for (size_t j = 0; j < p->kernels; j++) {
        const tni_planned_kernel *k = &p->kernel[j];
        if (k->call_item >= 0) add_alternative(l, TNI_CHOICE_PLAIN, k->call_item, k->bytes);
        else list_cuts(l, k);
    }
}

// Lists what could be chosen about each value.
static void list_by_values(listing *l, const tni_fusion *f, const tni_plan *p)
{
    for (size_t i = 0; i < l->g->count; i++) {
        const tni_decision *x     = &f->decision[i];
        const tni_node     *n     = l->g->item[i].n;
        int64_t             bytes = l->bytes[i];
        for (int kind = 0; kind < TNI_CHOICE_KINDS; kind++)
            if (x->could >> kind & 1) add_alternative(l, kind, (int32_t)i, bytes);
        if (x->kind == TNI_AS_INLINED && l->kernels[i] > 1 && tni_is_map(n->op))
            add_alternative(l, TNI_CHOICE_STORE, (int32_t)i, bytes);
        if (p->place[i].pitch && !x->fills) add_alternative(l, TNI_CHOICE_DENSE, (int32_t)i, bytes);
    }
}

// The most bytes first; of equal ones the first item, so that the order does not depend on the
// sort.
static int by_bytes(const void *a, const void *b)
{
    const tni_alternative *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes) - (x->bytes > y->bytes)
                                : (x->item > y->item) - (x->item < y->item);
}

// The graph is fused once more for the notes of the rules, which no plan keeps.
int tni_alternatives(tni_graph *g, const tni_limits *limits, const tni_plan *p,
                     tni_alternative *dst, int room)
{
    tni_heap  *h = &g->cx->heap;
    listing    l = { .g = g, .list = dst, .room = room };
    tni_fusion f = { .g = g, .limits = limits };
    l.bytes      = tni_zalloc(h, g->count * sizeof *l.bytes + 1);
    l.kernels    = tni_zalloc(h, g->count * sizeof *l.kernels + 1);
    l.last       = tni_zalloc(h, g->count * sizeof *l.last + 1);
    bool ok      = l.bytes && l.kernels && l.last && tni_fuse(&f);
    if (ok) {
        count_kernels(&l, p);
        list_by_steps(&l, limits, p);
        list_by_values(&l, &f, p);
        qsort(dst, (size_t)l.count, sizeof *dst, by_bytes);
    }
    tni_fusion_close(&f);
    tni_free(h, l.bytes);
    tni_free(h, l.kernels);
    tni_free(h, l.last);
    return ok ? l.count : -1;
}
