// What a kernel has to compute, and where: the demand of each point and loop of its stages.
#include "kernel/emit.h"

#include <string.h>

static bool is_tail(const tni_ins *x)
{
    return x->code == TNI_I_REDUCE && x->over_p;
}

static bool over_r(const tni_ins *x)
{
    return x->code == TNI_I_REDUCE && !x->over_p;
}

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

static tni_set only(tni_set s, const tni_kernel *k, bool (*test)(const tni_kernel *k, int i, int q),
                    int q)
{
    tni_set y = { { 0 } };
    for (int i = 0; i < k->nins; i++)
        if (tni_set_has(&s, i) && test(k, i, q)) tni_set_add(&y, i);
    return y;
}

// ---- the main stage ----------------------------------------------------------------------------

tni_set tni_needs_main(const tni_kernel *k)
{
    tni_set s = { { 0 } };
    for (int i = k->nins - 1; i >= 0; i--) {
        const tni_ins *x = &k->ins[i];
        if (is_tail(x) || (x->code == TNI_I_STORE && !x->finish)) tni_set_add(&s, i);
        if (tni_set_has(&s, i)) join_operands(x, &s);
    }
    return s;
}

static bool at_row(const tni_kernel *k, int i, int q)
{
    const tni_ins *x = &k->ins[i];
    if (x->phase != q || over_r(x)) return false;
    return is_tail(x) ? !in_loop(k, x->a) : !in_loop(k, i);
}

tni_set tni_needs_row(const tni_kernel *k, int q)
{
    return only(tni_needs_main(k), k, at_row, q);
}

// What a loop is there for.
static bool roots_loop(const tni_kernel *k, int i, int q)
{
    const tni_ins *x = &k->ins[i];
    if (x->phase != q) return false;
    if (x->code == TNI_I_REDUCE) return in_loop(k, x->a);
    return x->code == TNI_I_STORE && in_loop(k, i);
}

tni_set tni_needs_loop(const tni_kernel *k, int q, const tni_set *kept)
{
    tni_set s = only(tni_needs_main(k), k, roots_loop, q), y = { { 0 } };
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

static bool by_col(const tni_kernel *k, int i, int col)
{
    return in_loop(k, i) == (col != 0);
}

static tni_set finish_all(const tni_kernel *k)
{
    tni_set s = { { 0 } };
    for (int i = k->nins - 1; i >= 0; i--) {
        const tni_ins *x = &k->ins[i];
        if (x->code == TNI_I_STORE && x->finish) tni_set_add(&s, i);
        if (tni_set_has(&s, i) && !is_tail(x)) join_operands(x, &s);
    }
    return s;
}

tni_set tni_needs_finish(const tni_kernel *k, bool col)
{
    return only(finish_all(k), k, by_col, col);
}

// ---- what follows from both --------------------------------------------------------------------

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
        if (is_tail(x) && x->per) m = r;  // a partial result for each r
        axes[i] = m;
    }
}

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

// A loop that loads again what an earlier one may have overwritten.
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
        if (tni_set_has(&s, i) && over_r(&k->ins[i]))
            *why = "the finish stage reads a reduction over R";
    if (loads_overwritten(k)) *why = "a loop loads what an earlier one stores";
    return !*why;
}
