// What a program is for: reductions and stores, phase after phase, which ask for what they need.
#include "device/cpu/interpret_build.h"

#include "device/device.h"

// ---- reductions --------------------------------------------------------------------------------

// The type that a reduction folds in.
static tn_dtype fold_type(const tni_ins *x)
{
    return tni_compute_dtype((tn_dtype)x->dtype);
}

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

// A fixed register that accumulators of a type are widened in.
static int widened(tni_builder *b, int section, tn_dtype ct)
{
    int32_t *have = &b->widened[tni_is_float(ct)];
    if (*have < 0) *have = tni_new_reg(b, section, tni_total_dtype(ct), true);
    b->g->reg[*have].fixed = 1;
    return *have;
}

// A reduction over R: folded in the loop of its phase, there from the next row section on.
int tni_make_main(tni_builder *b, int section, const tni_ins *x)
{
    tn_dtype      ct   = fold_type(x);
    int           loop = tni_loop_section(x->phase), r = tni_value_reg(b, x->phase, x->a), total;
    tni_tile_step s;
    if (b->k->lane_in_r) {
        r         = tni_as(b, r, ct, true);
        total     = tni_new_reg(b, loop, tni_total_dtype(ct), false);
        s         = fold_step(b, x, TNI_S_BLOCK, total, true);
        s.f.block = b->g->tiles->of[ct]->block[x->op];
    } else {
        r                    = tni_as(b, r, ct, false);
        bool tile            = tni_is_tile(b, r);
        total                = tni_new_reg(b, loop, tni_total_dtype(ct), tile);
        s                    = fold_step(b, x, TNI_S_FOLD, total, tile);
        s.b                  = tni_new_reg(b, loop, ct, tile);
        s.c                  = widened(b, loop, ct);
        s.f.fold             = b->g->tiles->of[ct]->fold[x->op];
        b->g->reg[s.b].fixed = 1;
    }
    s.a = r;
    tni_new_step(b, loop, s);
    b->g->reg[total].fixed = 1;
    return tni_converted(b, section, total, tni_rep_of((tn_dtype)x->dtype));
}

static void make_tail(tni_builder *b, int v)
{
    const tni_ins *x       = &b->k->ins[v];
    tn_dtype       ct      = fold_type(x);
    bool           elems   = b->k->ins[x->a].per & TNI_PER_COL;
    int            section = elems ? tni_loop_section(x->phase) : tni_row_section(x->phase);
    bool           in_r    = b->k->lane_in_r;
    int            kind    = !in_r ? TNI_S_TAIL_BLOCK : elems ? TNI_S_TAIL_ROWS : TNI_S_TAIL_ONE;
    bool           tile    = kind != TNI_S_TAIL_ONE;
    int            r       = tni_as(b, tni_value_reg(b, elems ? x->phase : -1, x->a), ct, tile);
    tni_tile_step  s       = fold_step(b, x, kind, -1, tile);
    s.a                    = r;
    s.one                  = !tile;
    s.ins                  = elems;
    s.partial              = tni_kernel_tail_partials(b->k, &b->g->cut, v);
    if (kind == TNI_S_TAIL_ROWS) {
        s.c      = widened(b, section, ct);
        s.f.fold = b->g->tiles->of[ct]->fold[x->op];
        s.mem    = b->g->state_bytes;
        b->g->state_bytes += tni_align64(b->g->cut.cols * (int64_t)tni_dtype_size(ct));
    } else {
        s.f.block = b->g->tiles->of[ct]->block[x->op];
    }
    tni_new_step(b, section, s);
}

// A tail's value in the finish stage.
int tni_make_join(tni_builder *b, int section, int v)
{
    const tni_ins *x    = &b->k->ins[v];
    bool           tile = x->per & TNI_PER_COL;
    int            dst  = tni_new_reg(b, section, tni_total_dtype(fold_type(x)), tile);
    tni_tile_step  s    = fold_step(b, x, TNI_S_JOIN, dst, tile);
    s.partial           = tni_kernel_tail_partials(b->k, &b->g->cut, v);
    tni_new_step(b, section, s);
    return tni_converted(b, section, dst, tni_rep_of((tn_dtype)x->dtype));
}

// ---- stores ------------------------------------------------------------------------------------

// Stores lanes that lie side by side, or the one element.
void tni_store_beside(tni_builder *b, int section, int reg, int access, bool tile)
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

static void store_apart(tni_builder *b, int section, int reg, int access)
{
    tn_dtype dt = (tn_dtype)b->k->buffer[b->k->access[access].buffer].dtype;
    if (b->g->reg[reg].rep != dt) reg = tni_converted(b, section, reg, dt);
    tni_tile_step s = tni_plain_step(TNI_S_SCATTER, -1, true);
    s.a             = reg;
    s.access        = (int16_t)access;
    s.bytes         = (uint8_t)tni_dtype_size(dt);
    tni_new_step(b, section, s);
}

// Whether what a register holds can be made where it is stored.
static bool goes_out(const tni_builder *b, int section, int reg, int buffer)
{
    const tni_reg *r = &b->g->reg[reg];
    if (r->section != section || r->keep >= 0 || b->g->shared[buffer]) return false;
    if (r->rep != b->k->buffer[buffer].dtype) return false;
    const tni_tile_step *s = &b->g->step[r->maker];
    return s->lead == TNI_LEAD_NONE && s->dst == reg &&
           (s->kind == TNI_S_MAP || s->kind == TNI_S_CONVERT || s->kind == TNI_S_LOAD ||
            s->kind == TNI_S_GATHER || s->kind == TNI_S_AT || s->kind == TNI_S_RANDOM);
}

// One element stored in all lanes, which lie side by side.
static void store_spread(tni_builder *b, int section, int reg, int access)
{
    tn_dtype      dt  = (tn_dtype)b->k->buffer[b->k->access[access].buffer].dtype;
    int           one = tni_as(b, reg, dt, false);
    tni_tile_step s   = tni_plain_step(TNI_S_SPREAD, tni_new_reg(b, section, dt, true), true);
    s.a               = one;
    s.bytes           = (uint8_t)tni_dtype_size(dt);
    s.lead            = TNI_LEAD_OUT;
    s.out             = (int16_t)access;
    tni_new_step(b, section, s);
}

static void make_store(tni_builder *b, int v)
{
    const tni_ins *x      = &b->k->ins[v];
    int            buffer = b->k->access[x->access].buffer;
    bool           col = x->per & TNI_PER_COL, tile = tni_lane_varies(b, x->access);
    int            r = tni_value_reg(b, col && !b->finish ? x->phase : -1, x->a);
    int section  = b->finish ? tni_finish_section(b->g, col ? TNI_FINISH_LOOP : TNI_FINISH_STORE)
                   : col     ? tni_loop_section(x->phase)
                             : tni_row_section(x->phase);
    tn_dtype rep = (tn_dtype)b->g->reg[r].rep;
    if (rep != b->k->buffer[buffer].dtype) r = tni_as(b, r, tni_rep_of(rep), false);
    bool beside = !tile || tni_lane_stride(b, x->access) == 1;
    if (tile && !tni_is_tile(b, r) && beside) {
        store_spread(b, section, r, x->access);
        return;
    }
    r = tni_as(b, r, (tn_dtype)b->g->reg[r].rep, tile);
    if (!beside) {
        store_apart(b, section, r, x->access);
    } else if (tile && goes_out(b, section, r, buffer)) {
        tni_tile_step *maker = &b->g->step[b->g->reg[r].maker];
        maker->lead          = TNI_LEAD_OUT;
        maker->out           = x->access;
    } else {
        tni_store_beside(b, section, r, x->access, tile);
    }
}

// ---- stages ------------------------------------------------------------------------------------

static void need(tni_program *g, int16_t v)
{
    if (v >= 0) g->needed[v] = true;
}

// What stores and tails need, and what it costs to compute a value again within a loop.
static void find_needs(tni_program *g, const tni_kernel *k)
{
    for (int i = k->nins - 1; i >= 0; i--) {
        const tni_ins *x = &k->ins[i];
        if (x->code == TNI_I_STORE || (x->code == TNI_I_REDUCE && x->over_p)) g->needed[i] = true;
        if (!g->needed[i]) continue;
        need(g, x->a);
        need(g, x->b);
        need(g, x->c);
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

// Phases in order, so that a loop knows what earlier ones have computed.
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

static void build_finish(tni_builder *b)
{
    b->finish = true;
    b->lane   = b->g->finish_lane;
    for (int i = 0; i < b->k->nins; i++)
        if (b->k->ins[i].code == TNI_I_STORE && b->k->ins[i].finish) make_store(b, i);
}

void tni_program_steps(tni_program *g)
{
    tni_builder b = { .g = g, .k = g->l->kernel, .widened = { -1, -1 } };
    find_needs(g, b.k);
    build_main(&b);
    if (b.k->tails) build_finish(&b);
}
