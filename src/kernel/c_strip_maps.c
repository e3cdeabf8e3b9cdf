// Strip maps: maps that a function of the prelude computes for all lanes of a block at once
// (strips.h). The operand of such a map has to be in memory, so the lane loop is split before it:
// one loop leaves the operand in a tile x, the function makes a tile y of it, and the loops after
// that read both. What it prints, of test/golden/strip.txt, sin(mul_s(x, 2)):
//
//     float x2[1024];
//     M_LANES for (m_long j = 0; j < n; j++) {
//         const float v0 = p0[j];
//         const float v2 = o_mul_f(v0, v1);
//         x2[j] = v2;
//     }
//     float y3[1024];
//     m_strip_sin_f(y3, x2, n);
//     M_LANES for (m_long j = 0; j < n; j++) {
//         const float v3 = y3[j];
//         p4[j] = v3;
//     }
#include "kernel/c_emitter.h"
#include "kernel/strips.h"
#include "kernel/thresholds.h"

#include <stdio.h>

// Strip maps of a kernel, at most: each takes two tiles, 8 KiB, of a thread's stack. Further maps
// are computed element by element, with the same bits.
enum { MAX_STRIP_MAPS = 16 };

// Maps of floats that vary along some axis; a value of the whole launch is computed once and needs
// no strip.
void tni_c_choose_strip_maps(tni_c_emitter *w)
{
    for (int i = 0, n = 0; i < w->k->nins && n < MAX_STRIP_MAPS; i++) {
        const tni_ins *x = ins_at(w, i);
        if (x->code != TNI_I_MAP || !w->axes[i] || !tni_is_strip_map(x->op)) continue;
        if (tni_compute_suffix((tn_dtype)x->dtype) != 'f') continue;
        tni_set_add(&w->strip_maps, i);
        n++;
    }
}

// What a lane loop has to compute for the values of s: their operands, down to tiles and loads.
static tni_set with_operands(const tni_c_emitter *w, tni_set s)
{
    for (int j = w->k->nins - 1; j >= 0; j--)
        for (int i = 0; i < j && tni_set_has(&s, j) && is_from_operands(w, j); i++)
            if (reads_value(ins_at(w, j), i) && in_lanes(w, i)) tni_set_add(&s, i);
    return s;
}

// Whether a loop after the one over `now` reads value i.
static bool is_read_later(const tni_c_emitter *w, const tni_set *now, int i)
{
    for (int j = i + 1; j < w->k->nins; j++)
        if (in_lanes(w, j) && !tni_set_has(now, j) && reads_value(ins_at(w, j), i)) return true;
    return false;
}

// Prints a lane loop that leaves value a in its tile, and beside it the costly values on the way
// that later loops read too, so that they are not computed twice.
static void put_tile_of(tni_c_emitter *w, int a)
{
    tni_set all = w->eval, now = { { 0 } }, tiles = { { 0 } };
    tni_set_add(&tiles, a);
    if (in_lanes(w, a)) now = with_operands(w, tiles);
    for (int i = 0; i < w->k->nins; i++)
        if (tni_set_has(&now, i) && is_from_operands(w, i) &&
            tni_ins_cost(ins_at(w, i)) >= TNI_KEEP_COST_C && is_read_later(w, &now, i))
            tni_set_add(&tiles, i);
    for (int i = 0; i < w->k->nins; i++)
        if (tni_set_has(&tiles, i))
            tni_out_line(w->o, "%s x%d[%d];", c_type_of(w, i), i, TNI_STRIP);
    w->eval = now;
    tni_c_put_lane_loop(w, &tiles);
    w->eval = all;
    join_set(&w->tiled, &tiles);
}

// Whether value a is in memory just as a tile would be: an f32 load of neighbours. The function
// then reads it there.
static bool is_tile_in_memory(const tni_c_emitter *w, int a)
{
    const tni_ins *x = ins_at(w, a);
    return in_lanes(w, a) && is_plain_load(w, x) && lane_class(w, x) == TNI_STRIDE_1 &&
           w->k->buffer[w->k->access[x->access].buffer].dtype == TN_F32;
}

// The cosine of what i is the sine of, or the other way round, in this block; -1 if there is none.
// One function computes both, since they share the reduction of the argument.
static int sin_cos_partner(const tni_c_emitter *w, int i)
{
    int other = ins_at(w, i)->op == TNI_sin ? TNI_cos : TNI_sin;
    if (ins_at(w, i)->op != TNI_sin && ins_at(w, i)->op != TNI_cos) return -1;
    for (int j = 0; j < w->k->nins; j++)
        if (in_lanes(w, j) && tni_set_has(&w->strip_maps, j) && ins_at(w, j)->op == other &&
            ins_at(w, j)->a == ins_at(w, i)->a)
            return j;
    return -1;
}

// Prints tile y of map i, and that of its partner with the first of the two.
static void put_strip_map(tni_c_emitter *w, int i)
{
    int  a = ins_at(w, i)->a, pair = sin_cos_partner(w, i);
    char from = 'x';
    if (pair >= 0 && pair < i) return;
    if (in_lanes(w, a) && tni_set_has(&w->strip_maps, a)) from = 'y';
    else if (is_tile_in_memory(w, a)) from = 'p';
    else if (!tni_set_has(&w->tiled, a)) put_tile_of(w, a);
    tni_out_line(w->o, "float y%d[%d];", i, TNI_STRIP);
    if (pair >= 0) {
        bool sine = ins_at(w, i)->op == TNI_sin;
        tni_out_line(w->o, "float y%d[%d];", pair, TNI_STRIP);
        tni_out_line(w->o, "m_strip_sin_cos_f(y%d, y%d, %c%d, n);", sine ? i : pair,
                     sine ? pair : i, from, a);
        return;
    }
    tni_out_line(w->o, "m_strip_%s_f(y%d, %c%d, n);", tni_op_table[ins_at(w, i)->op].name, i, from,
                 a);
}

// Whether i is what a lane loop exists for: what it stores, folds, or keeps for later blocks.
static bool is_loop_output(const tni_c_emitter *w, int i)
{
    int code = ins_at(w, i)->code;
    return code == TNI_I_STORE || (code == TNI_I_REDUCE && !w->finish) ||
           tni_set_has(&w->kept, i) || tni_set_has(&w->strip, i);
}

// Goes through the block in order, so that a map of a map finds the tile of its operand.
tni_set tni_c_put_strip_maps(tni_c_emitter *w)
{
    tni_set ends = { { 0 } };
    bool    any  = false;
    for (int i = 0; i < w->k->nins; i++) {
        if (!in_lanes(w, i)) continue;
        if (tni_set_has(&w->strip_maps, i)) put_strip_map(w, i);
        any |= tni_set_has(&w->strip_maps, i);
        if (is_loop_output(w, i)) tni_set_add(&ends, i);
    }
    return any ? with_operands(w, ends) : w->eval;
}
