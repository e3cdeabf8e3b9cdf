// The outputs of a program: reductions, tails and stores, phase after phase. Each asks for the
// values that it reads (interpret_values.c), so that a program has only steps that some output
// needs.
#include "device/cpu/interpret_build.h"

#include "device/device.h"

// ---- reductions --------------------------------------------------------------------------------

// Returns the dtype that a reduction accumulates in within a block or group; totals are wider
// (tni_total_dtype).
static tn_dtype fold_type(const tni_ins *x)
{
    return tni_compute_dtype((tn_dtype)x->dtype);
}

// Returns a step that folds, with the two functions that all folds need: to convert accumulators to
// totals, and to combine totals.
static tni_tile_step fold_step(const tni_builder *b, const tni_ins *x, int kind, int dst, bool tile)
{
    tn_dtype      ct = fold_type(x), wide = tni_total_dtype(ct);
    tni_tile_step s = tni_plain_step(kind, dst, tile);
    s.op            = x->op;
    s.dtype         = (uint8_t)ct;
    s.bytes         = (uint8_t)tni_dtype_size(ct);
    s.wide          = b->g->tiles->of[wide]->fold[x->op];
    s.widen         = tni_converter(b->g->tiles, ct, wide);
    return s;
}

// Returns the fixed register in which accumulators are converted to totals. One for floats and one
// for integers serve all folds of a program, since each is used within a step.
static int widened_reg(tni_builder *b, int section, tn_dtype ct)
{
    int32_t *have = &b->widened[tni_is_float(ct)];
    if (*have < 0) *have = tni_new_reg(b, section, tni_total_dtype(ct), true);
    b->g->reg[*have].fixed = 1;
    return *have;
}

// Makes a reduction over R: the fold in the loop of its phase, and the conversion of its total in
// the section that asked, which runs after the loop. With the lane axis in R, tiles are folded as
// blocks to one total per row; else every lane has an accumulator and a total.
int tni_make_reduction(tni_builder *b, int section, const tni_ins *x)
{
    tn_dtype      ct   = fold_type(x);
    int           loop = tni_loop_section(x->phase), r = tni_value_reg(b, x->phase, x->a), total;
    tni_tile_step s;
    if (b->k->lane_in_r) {
        r         = tni_reg_as(b, r, ct, true);
        total     = tni_new_reg(b, loop, tni_total_dtype(ct), false);
        s         = fold_step(b, x, TNI_S_BLOCK, total, true);
        s.f.block = b->g->tiles->of[ct]->block[x->op];
    } else {
        r                    = tni_reg_as(b, r, ct, false);
        bool tile            = tni_reg_is_tile(b, r);
        total                = tni_new_reg(b, loop, tni_total_dtype(ct), tile);
        s                    = fold_step(b, x, TNI_S_FOLD, total, tile);
        s.b                  = tni_new_reg(b, loop, ct, tile);
        s.c                  = widened_reg(b, loop, ct);
        s.f.fold             = b->g->tiles->of[ct]->fold[x->op];
        b->g->reg[s.b].fixed = 1;
    }
    s.a = r;
    tni_new_step(b, loop, s);
    b->g->reg[total].fixed = 1;
    return tni_convert_reg(b, section, total, tni_rep_of((tn_dtype)x->dtype));
}

// Makes a reduction over P. Its partial results are per chunk, in memory that outlives the worker;
// the finish stage combines them. A tail of values that vary along the row has an accumulator for
// each column, in the worker's memory: at most TNI_GROUP rows are added in the dtype itself before
// they join the wider total, which bounds the rounding error.
static void make_tail(tni_builder *b, int v)
{
    const tni_ins *x       = &b->k->ins[v];
    tn_dtype       ct      = fold_type(x);
    bool           elems   = b->k->ins[x->a].per & TNI_PER_COL;
    int            section = elems ? tni_loop_section(x->phase) : tni_row_section(x->phase);
    bool           in_r    = b->k->lane_in_r;
    int            kind    = !in_r ? TNI_S_TAIL_BLOCK : elems ? TNI_S_TAIL_ROWS : TNI_S_TAIL_ONE;
    bool           tile    = kind != TNI_S_TAIL_ONE;
    int            r       = tni_reg_as(b, tni_value_reg(b, elems ? x->phase : -1, x->a), ct, tile);
    tni_tile_step  s       = fold_step(b, x, kind, -1, tile);
    s.a                    = r;
    s.one                  = !tile;
    s.ins                  = elems;
    s.partial              = tni_kernel_tail_partials(b->k, &b->g->cut, v);
    if (kind == TNI_S_TAIL_ROWS) {
        s.c      = widened_reg(b, section, ct);
        s.f.fold = b->g->tiles->of[ct]->fold[x->op];
        s.mem    = b->g->state_bytes;
        b->g->state_bytes += tni_align64(b->g->cut.cols * (int64_t)tni_dtype_size(ct));
    } else {
        s.f.block = b->g->tiles->of[ct]->block[x->op];
    }
    tni_new_step(b, section, s);
}

// Makes the value of a tail in the finish stage: the partial results of all chunks, combined in
// order.
int tni_make_tail_total(tni_builder *b, int section, int v)
{
    const tni_ins *x    = &b->k->ins[v];
    bool           tile = x->per & TNI_PER_COL;
    int            dst  = tni_new_reg(b, section, tni_total_dtype(fold_type(x)), tile);
    tni_tile_step  s    = fold_step(b, x, TNI_S_COMBINE, dst, tile);
    s.partial           = tni_kernel_tail_partials(b->k, &b->g->cut, v);
    tni_new_step(b, section, s);
    return tni_convert_reg(b, section, dst, tni_rep_of((tn_dtype)x->dtype));
}

// ---- stores ------------------------------------------------------------------------------------

// STORE converts while it stores; without a conversion SCATTER copies, for which a stride of 1 is a
// memcpy.
void tni_make_dense_store(tni_builder *b, int section, int reg, int access, bool tile)
{
    tn_dtype      dt  = (tn_dtype)b->k->buffer[b->k->access[access].buffer].dtype;
    tn_dtype      rep = (tn_dtype)b->g->reg[reg].rep;
    tni_tile_step s   = tni_plain_step(rep == dt ? TNI_S_SCATTER : TNI_S_STORE, -1, tile);
    s.a               = reg;
    s.access          = (int16_t)access;
    s.bytes           = (uint8_t)tni_dtype_size(dt);
    if (rep != dt) s.f.convert = tni_converter(b->g->tiles, rep, dt);
    tni_new_step(b, section, s);
}

// Stores lanes that are a stride apart: converted in a tile first, if need be.
static void make_strided_store(tni_builder *b, int section, int reg, int access)
{
    tn_dtype dt = (tn_dtype)b->k->buffer[b->k->access[access].buffer].dtype;
    if (b->g->reg[reg].rep != dt) reg = tni_convert_reg(b, section, reg, dt);
    tni_tile_step s = tni_plain_step(TNI_S_SCATTER, -1, true);
    s.a             = reg;
    s.access        = (int16_t)access;
    s.bytes         = (uint8_t)tni_dtype_size(dt);
    tni_new_step(b, section, s);
}

// Returns whether the step that makes a register can write its elements directly into the buffer,
// which saves a copy of every stored tile. Not if another section reads it, if the buffer is
// shared, if the dtype differs, or if the step does not write a tile of its own (loads in place,
// kept values, folds).
static bool can_store_directly(const tni_builder *b, int section, int reg, int buffer)
{
    const tni_reg *r = &b->g->reg[reg];
    if (r->section != section || r->keep >= 0 || b->g->shared[buffer]) return false;
    if (r->rep != b->k->buffer[buffer].dtype) return false;
    const tni_tile_step *s = &b->g->step[r->maker];
    return s->dest == TNI_DEST_SLOT && s->dst == reg &&
           (s->kind == TNI_S_MAP || s->kind == TNI_S_CONVERT || s->kind == TNI_S_LOAD ||
            s->kind == TNI_S_GATHER || s->kind == TNI_S_INDEXED || s->kind == TNI_S_RANDOM);
}

// Stores one element in all lanes, which are contiguous: broadcast directly into the buffer.
static void make_broadcast_store(tni_builder *b, int section, int reg, int access)
{
    tn_dtype      dt  = (tn_dtype)b->k->buffer[b->k->access[access].buffer].dtype;
    int           one = tni_reg_as(b, reg, dt, false);
    tni_tile_step s   = tni_plain_step(TNI_S_BROADCAST, tni_new_reg(b, section, dt, true), true);
    s.a               = one;
    s.bytes           = (uint8_t)tni_dtype_size(dt);
    s.dest            = TNI_DEST_OUT;
    s.out             = (int16_t)access;
    tni_new_step(b, section, s);
}

// Makes a store in the section where its value is known: the loop of its phase, a row section, or
// the finish stage. The cases are, from cheapest to most expensive: nothing at all (the value is
// computed in the buffer), a contiguous copy or conversion, elements a stride apart.
static void make_store(tni_builder *b, int v)
{
    const tni_ins *x      = &b->k->ins[v];
    int            buffer = b->k->access[x->access].buffer;
    bool           col = x->per & TNI_PER_COL, tile = tni_varies_over_lane(b, x->access);
    int            r = tni_value_reg(b, col && !b->finish ? x->phase : -1, x->a);
    int section  = b->finish ? tni_finish_section(b->g, col ? TNI_FINISH_LOOP : TNI_FINISH_STORE)
                   : col     ? tni_loop_section(x->phase)
                             : tni_row_section(x->phase);
    tn_dtype rep = (tn_dtype)b->g->reg[r].rep;
    if (rep != b->k->buffer[buffer].dtype) r = tni_reg_as(b, r, tni_rep_of(rep), false);
    bool is_dense = !tile || tni_lane_stride(b, x->access) == 1;
    if (tile && !tni_reg_is_tile(b, r) && is_dense) {
        make_broadcast_store(b, section, r, x->access);
        return;
    }
    r = tni_reg_as(b, r, (tn_dtype)b->g->reg[r].rep, tile);
    if (!is_dense) {
        make_strided_store(b, section, r, x->access);
    } else if (tile && can_store_directly(b, section, r, buffer)) {
        tni_tile_step *maker = &b->g->step[b->g->reg[r].maker];
        maker->dest          = TNI_DEST_OUT;
        maker->out           = x->access;
    } else {
        tni_make_dense_store(b, section, r, x->access, tile);
    }
}

// ---- stages ------------------------------------------------------------------------------------

static void mark_needed(tni_program *g, int16_t v)
{
    if (v >= 0) g->needed[v] = true;
}

// Finds the values that stores and tails need, directly or through others; and, of each value, the
// cost of computing it again within a loop, operands included. A strided load costs 3 additions, as
// it reads more cache lines; costs are capped so that long chains do not overflow 16 bits.
static void find_needs(tni_program *g, const tni_kernel *k)
{
    for (int i = k->nins - 1; i >= 0; i--) {
        const tni_ins *x = &k->ins[i];
        if (x->code == TNI_I_STORE || (x->code == TNI_I_REDUCE && x->over_p)) g->needed[i] = true;
        if (!g->needed[i]) continue;
        mark_needed(g, x->a);
        mark_needed(g, x->b);
        mark_needed(g, x->c);
    }
    for (int i = 0; i < k->nins; i++) {
        const tni_ins *x    = &k->ins[i];
        int16_t        v[3] = { x->a, x->b, x->c };
        int            cost = 1;
        if (x->code == TNI_I_MAP || x->code == TNI_I_RANDOM) cost = tni_op_table[x->op].cost;
        if (x->code == TNI_I_LOAD && g->l->stride[x->access][g->lane] != 1) cost = 3;
        for (int j = 0; j < 3; j++)
            if (v[j] >= 0 && k->ins[v[j]].per & TNI_PER_COL) cost += g->cost[v[j]];
        g->cost[i] = (int16_t)(cost < 1000 ? cost : 1000);
    }
}

// Builds the main stage. Phases go in order, so that a loop knows what earlier loops have computed
// and can keep it. A reduction is made in its own phase, though its readers come later: its fold
// belongs to that phase's loop.
static void build_main(tni_builder *b)
{
    const tni_kernel *k = b->k;
    b->lane             = b->g->lane;
    for (int p = 0; p <= b->g->phases; p++)
        for (int i = 0; i < k->nins; i++) {
            const tni_ins *x = &k->ins[i];
            if (x->phase != p || !b->g->needed[i]) continue;
            if (x->code == TNI_I_STORE && !x->finish) make_store(b, i);
            else if (x->code == TNI_I_REDUCE && x->over_p) make_tail(b, i);
            else if (x->code == TNI_I_REDUCE) tni_value_reg(b, -1, i);
        }
}

// Builds the finish stage: only stores remain, which ask for tails and for whatever else they read.
static void build_finish(tni_builder *b)
{
    b->finish = true;
    b->lane   = b->g->finish_lane;
    for (int i = 0; i < b->k->nins; i++)
        if (b->k->ins[i].code == TNI_I_STORE && b->k->ins[i].finish) make_store(b, i);
}

void tni_program_build_steps(tni_program *g)
{
    tni_builder b = { .g = g, .k = g->l->kernel, .widened = { -1, -1 } };
    find_needs(g, b.k);
    build_main(&b);
    if (b.k->tails) build_finish(&b);
}
