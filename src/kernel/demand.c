// What a kernel has to compute, and where: the demand of each row point, each loop and the finish
// stage. Demand goes backwards from what is stored or added up; a value that nothing needs at a
// point is not computed there, even if another point computes it.
#include "kernel/emit.h"

#include <string.h>

// Whether value i varies over R, so that only a loop can compute it.
static bool in_loop(const tni_kernel *k, int i)
{
    return k->ins[i].per & TNI_PER_COL;
}

static void join_operands(const tni_ins *x, tni_set *s)
{
    if (x->a >= 0) tni_set_add(s, x->a);
    if (x->b >= 0) tni_set_add(s, x->b);
    if (x->c >= 0) tni_set_add(s, x->c);
}

// The instructions of a set that pass a test.
static tni_set select_ins(tni_set s, const tni_kernel                         *k,
                          bool (*test)(const tni_kernel *k, int i, int q), int q)
{
    tni_set y = { { 0 } };
    for (int i = 0; i < k->nins; i++)
        if (tni_set_has(&s, i) && test(k, i, q)) tni_set_add(&y, i);
    return y;
}

// ---- the main stage ----------------------------------------------------------------------------

// One pass from the last instruction to the first suffices: operands come before their readers.
tni_set tni_needs_main(const tni_kernel *k)
{
    tni_set s = { { 0 } };
    for (int i = k->nins - 1; i >= 0; i--) {
        const tni_ins *x = &k->ins[i];
        if (tni_is_tail(x) || (x->code == TNI_I_STORE && !x->finish)) tni_set_add(&s, i);
        if (tni_set_has(&s, i)) join_operands(x, &s);
    }
    return s;
}

// A tail belongs where its operand is computed: at the row point if that does not vary over R.
static bool is_at_row_point(const tni_kernel *k, int i, int q)
{
    const tni_ins *x = &k->ins[i];
    if (x->phase != q || tni_is_row_reduce(x)) return false;
    return tni_is_tail(x) ? !in_loop(k, x->a) : !in_loop(k, i);
}

tni_set tni_needs_row(const tni_kernel *k, int q)
{
    return select_ins(tni_needs_main(k), k, is_at_row_point, q);
}

// Whether instruction i is one of those that loop q exists for: reductions of what varies over R,
// and stores of it.
static bool roots_loop(const tni_kernel *k, int i, int q)
{
    const tni_ins *x = &k->ins[i];
    if (x->phase != q) return false;
    if (x->code == TNI_I_REDUCE) return in_loop(k, x->a);
    return x->code == TNI_I_STORE && in_loop(k, i);
}

// From the roots of the loop backwards, down to kept values and to values of the row.
tni_set tni_needs_loop(const tni_kernel *k, int q, const tni_set *kept)
{
    tni_set s = select_ins(tni_needs_main(k), k, roots_loop, q), y = { { 0 } };
    for (int i = k->nins - 1; i >= 0; i--) {
        bool root = roots_loop(k, i, q);
        if (!tni_set_has(&s, i) || (!root && (!in_loop(k, i) || (kept && tni_set_has(kept, i)))))
            continue;
        tni_set_add(&y, i);
        join_operands(&k->ins[i], &s);
    }
    return y;
}

// ---- the finish stage --------------------------------------------------------------------------

static bool is_per_column(const tni_kernel *k, int i, int col)
{
    return in_loop(k, i) == (col != 0);
}

// The demand of the finish stage, down to tails: their partial results are in memory.
static tni_set finish_all(const tni_kernel *k)
{
    tni_set s = { { 0 } };
    for (int i = k->nins - 1; i >= 0; i--) {
        const tni_ins *x = &k->ins[i];
        if (x->code == TNI_I_STORE && x->finish) tni_set_add(&s, i);
        if (tni_set_has(&s, i) && !tni_is_tail(x)) join_operands(x, &s);
    }
    return s;
}

tni_set tni_needs_finish(const tni_kernel *k, bool col)
{
    return select_ins(finish_all(k), k, is_per_column, col);
}

// ---- what follows from both --------------------------------------------------------------------

// A value varies along the axes of its operands and of its own access; a reduction removes the axes
// it goes over. A column tail has a partial result for each r, so it counts as varying along all of
// R.
void tni_varying_axes(const tni_kernel *k, uint8_t axes[TNI_MAX_INS])
{
    uint8_t p = (uint8_t)((1u << k->np) - 1), r = (uint8_t)(((1u << k->nr) - 1) << k->np);
    for (int i = 0; i < k->nins; i++) {
        const tni_ins *x = &k->ins[i];
        uint8_t        m = 0;
        if (x->a >= 0) m |= axes[x->a];
        if (x->b >= 0) m |= axes[x->b];
        if (x->c >= 0) m |= axes[x->c];
        if (x->code == TNI_I_LOAD || x->code == TNI_I_STORE || x->code == TNI_I_PLACE)
            for (int j = 0; j < k->np + k->nr; j++)
                if (k->access[x->access].stride[j] != TNI_STRIDE_0) m |= (uint8_t)(1u << j);
        if (x->code == TNI_I_REDUCE) m &= (uint8_t) ~(x->over_p ? p : r);
        if (tni_is_tail(x) && x->per) m = r;  // a partial result for each r
        axes[i] = m;
    }
}

// Casts and checks are not in the op table with a cost of their own; loads cost nothing here, since
// what is weighed is computing again, and their elements are held or in cache then.
int tni_ins_cost(const tni_ins *x)
{
    switch (x->code) {
    case TNI_I_MAP:
    case TNI_I_RANDOM: return tni_op_table[x->op].cost;
    case TNI_I_CAST: return 1;
    case TNI_I_CHECK: return 2;
    default: return 0;
    }
}

// The sum over the instructions between value i and what exists already, each counted once.
int tni_recompute_cost(const tni_kernel *k, int i, const tni_set *kept)
{
    tni_set s    = { { 0 } };
    int     cost = 0;
    tni_set_add(&s, i);
    for (int j = i; j >= 0; j--) {
        const tni_ins *x = &k->ins[j];
        if (!tni_set_has(&s, j) || x->code == TNI_I_REDUCE || !in_loop(k, j)) continue;
        if (j != i && kept && tni_set_has(kept, j)) continue;
        cost += tni_ins_cost(x);
        join_operands(x, &s);
    }
    return cost;
}

// Whether a loop loads from a buffer that an earlier loop of the row stores to. Then the load would
// see new values, where the planner meant the old ones.
static bool loads_overwritten(const tni_kernel *k)
{
    for (int i = 0; i < k->nins; i++) {
        const tni_ins *store = &k->ins[i];
        if (store->code != TNI_I_STORE || store->finish) continue;
        for (int q = store->phase + 1; q < k->phases; q++) {
            tni_set s = tni_needs_loop(k, q, NULL);
            for (int j = 0; j < k->nins; j++)
                if (tni_set_has(&s, j) && k->ins[j].code == TNI_I_LOAD &&
                    k->access[k->ins[j].access].buffer == k->access[store->access].buffer)
                    return true;
        }
    }
    return false;
}

bool tni_can_emit(const tni_kernel *k, const char **why)
{
    tni_set s = finish_all(k);
    *why      = NULL;
    for (int i = 0; i < k->nins; i++)
        if (tni_set_has(&s, i) && tni_is_row_reduce(&k->ins[i]))
            *why = "the finish stage reads a reduction over R";
    if (loads_overwritten(k)) *why = "a loop loads what an earlier one stores";
    return !*why;
}
