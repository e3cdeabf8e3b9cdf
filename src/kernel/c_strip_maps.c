// Maps that a function of the prelude computes for all lanes of a block at once (strips.h). What such a
// map is a map of has to lie in memory, so the lane loop is cut before it: a loop leaves the operand in
// a tile x, the function makes a tile y of it, and the loops after that read both.
#include "kernel/c_emitter.h"
#include "kernel/strips.h"
#include "kernel/thresholds.h"

#include <stdio.h>

enum { MOST = 16 };  // such maps of a kernel: each takes two tiles, 8 KiB, of a thread's stack

void tni_c_choose_at_once(tni_c_emitter *w)
{
    for (int i = 0, n = 0; i < w->k->nins && n < MOST; i++) {
        const tni_ins *x = ins(w, i);
        if (x->code != TNI_I_MAP || !w->axes[i] || !tni_is_strip_map(x->op)) continue;
        if (tni_compute_suffix((tn_dtype)x->dtype) != 'f') continue;
        tni_set_add(&w->at_once, i);
        n++;
    }
}

// What a lane loop computes to have the values of s, of the block's instructions.
static tni_set with_operands(const tni_c_emitter *w, tni_set s)
{
    for (int j = w->k->nins - 1; j >= 0; j--)
        for (int i = 0; i < j && tni_set_has(&s, j) && is_from_operands(w, j); i++)
            if (reads(ins(w, j), i) && in_lanes(w, i)) tni_set_add(&s, i);
    return s;
}

// Whether a loop after that over `now` reads value i.
static bool is_read_later(const tni_c_emitter *w, const tni_set *now, int i)
{
    for (int j = i + 1; j < w->k->nins; j++)
        if (in_lanes(w, j) && !tni_set_has(now, j) && reads(ins(w, j), i)) return true;
    return false;
}

// A lane loop that leaves value a in its tile, and costly ones on the way that are read again.
static void put_tile_of(tni_c_emitter *w, int a)
{
    tni_set all = w->eval, now = { { 0 } }, tiles = { { 0 } };
    tni_set_add(&tiles, a);
    if (in_lanes(w, a)) now = with_operands(w, tiles);
    for (int i = 0; i < w->k->nins; i++)
        if (tni_set_has(&now, i) && is_from_operands(w, i) &&
            tni_ins_cost(ins(w, i)) >= TNI_KEEP_COST_C && is_read_later(w, &now, i))
            tni_set_add(&tiles, i);
    for (int i = 0; i < w->k->nins; i++)
        if (tni_set_has(&tiles, i)) tni_out_line(w->o, "%s x%d[%d];", type_of(w, i), i, TNI_STRIP);
    w->eval = now;
    tni_c_lane_loop(w, &tiles);
    w->eval = all;
    join_set(&w->tiled, &tiles);
}

// Whether value a lies in memory as a tile would.
static bool is_tile_in_memory(const tni_c_emitter *w, int a)
{
    const tni_ins *x = ins(w, a);
    return in_lanes(w, a) && is_plain_load(w, x) && lane_class(w, x) == TNI_STRIDE_1 &&
           w->k->buffer[w->k->access[x->access].buffer].dtype == TN_F32;
}

// The cosine of what i is the sine of, or the other way round, in this block; -1: there is none. They
// share all but the end.
static int partner(const tni_c_emitter *w, int i)
{
    int other = ins(w, i)->op == TNI_sin ? TNI_cos : TNI_sin;
    if (ins(w, i)->op != TNI_sin && ins(w, i)->op != TNI_cos) return -1;
    for (int j = 0; j < w->k->nins; j++)
        if (in_lanes(w, j) && tni_set_has(&w->at_once, j) && ins(w, j)->op == other &&
            ins(w, j)->a == ins(w, i)->a)
            return j;
    return -1;
}

// Tile y of map i, and that of its partner with the first of the two.
static void put_at_once(tni_c_emitter *w, int i)
{
    int  a = ins(w, i)->a, pair = partner(w, i);
    char from = 'x';
    if (pair >= 0 && pair < i) return;
    if (in_lanes(w, a) && tni_set_has(&w->at_once, a)) from = 'y';
    else if (is_tile_in_memory(w, a)) from = 'p';
    else if (!tni_set_has(&w->tiled, a)) put_tile_of(w, a);
    tni_out_line(w->o, "float y%d[%d];", i, TNI_STRIP);
    if (pair >= 0) {
        bool sine = ins(w, i)->op == TNI_sin;
        tni_out_line(w->o, "float y%d[%d];", pair, TNI_STRIP);
        tni_out_line(w->o, "m_strip_sin_cos_f(y%d, y%d, %c%d, n);", sine ? i : pair,
                     sine ? pair : i, from, a);
        return;
    }
    tni_out_line(w->o, "m_strip_%s_f(y%d, %c%d, n);", tni_op_table[ins(w, i)->op].name, i, from, a);
}

// What a lane loop is there for: what it stores, folds, or keeps for later blocks.
static bool is_end(const tni_c_emitter *w, int i)
{
    int code = ins(w, i)->code;
    return code == TNI_I_STORE || (code == TNI_I_REDUCE && !w->finish) ||
           tni_set_has(&w->kept, i) || tni_set_has(&w->strip, i);
}

tni_set tni_c_strips(tni_c_emitter *w)
{
    tni_set ends = { { 0 } };
    bool    any  = false;
    for (int i = 0; i < w->k->nins; i++) {
        if (!in_lanes(w, i)) continue;
        if (tni_set_has(&w->at_once, i)) put_at_once(w, i);
        any |= tni_set_has(&w->at_once, i);
        if (is_end(w, i)) tni_set_add(&ends, i);
    }
    return any ? with_operands(w, ends) : w->eval;
}
