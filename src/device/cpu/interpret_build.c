// Building a program: what stores and reductions need is asked for from the end, and every value is
// made once in each section that has to have it.
#include "device/cpu/interpret_program.h"

#include "device/device.h"

#include <string.h>

enum {
    PER_INS    = 10,       // most steps, and registers, that an instruction becomes in one section
    DEAR       = 6,        // cost from which a value is kept for the next loop
    KEEP_MOST  = 1 << 19,  // bytes of a worker for what is kept
    FINISH_ONE = 0,
    FINISH_STORE,
    FINISH_LOOP
};

// A program on the way. finish: the stage being built; lane: its lane axis.
typedef struct {
    tni_program      *g;
    const tni_kernel *k;
    bool              finish;
    int               lane;
    int64_t           state;       // bytes of fixed things so far, in the worker's memory
    int32_t           widened[2];  // registers that accumulators are widened in: floats, integers
} builder;

// ---- registers and steps -----------------------------------------------------------------------

static tn_dtype rep_of(tn_dtype dt)
{
    return dt == TN_BOOL ? TN_BOOL : tni_compute_dtype(dt);
}

static tn_dtype wide_of(tn_dtype dt)
{
    return tni_is_float(dt) ? TN_F64 : TN_I64;
}

static int new_reg(builder *b, int section, tn_dtype rep, bool tile)
{
    int at        = b->g->nreg++;
    b->g->reg[at] = (tni_reg){ .rep     = (uint8_t)rep,
                               .tile    = tile,
                               .section = section,
                               .maker   = -1,
                               .last    = -1,
                               .as      = -1,
                               .spread  = -1,
                               .keep    = -1 };
    return at;
}

// Notes that a step of a section reads a register.
static void reads(builder *b, int section, int step, int reg)
{
    if (reg < 0) return;
    tni_reg *r = &b->g->reg[reg];
    if (r->section != section) r->fixed = 1;
    r->last = step;
}

static tni_step *new_step(builder *b, int section, tni_step x)
{
    tni_program *g   = b->g;
    int          at  = g->nstep++;
    tni_section *s   = &g->section[section];
    g->step[at]      = x;
    g->step[at].next = -1;
    if (s->tail >= 0) g->step[s->tail].next = at;
    else s->head = at;
    s->tail = at;
    reads(b, section, at, x.a);
    reads(b, section, at, x.b);
    reads(b, section, at, x.c);
    if (x.dst >= 0 && g->reg[x.dst].maker < 0) g->reg[x.dst].maker = at;
    return &g->step[at];
}

// A step that has nothing yet but its kind and result.
static tni_step plain(int kind, int dst, bool tile)
{
    return (tni_step){
        .kind = (uint8_t)kind, .one = !tile, .dst = dst, .a = -1, .b = -1, .c = -1, .access = -1
    };
}

// reg in another dtype, in a new register of a section.
static int converted(builder *b, int section, int reg, tn_dtype to)
{
    const tni_reg *r   = &b->g->reg[reg];
    tn_dtype       rep = (tn_dtype)r->rep;
    int            dst = new_reg(b, section, to, r->tile);
    tni_step       x   = plain(TNI_S_CONVERT, dst, r->tile);
    x.a                = reg;
    x.f.convert        = b->g->tiles->convert[rep][to];
    new_step(b, section, x);
    return dst;
}

// reg as elements of rep, in all lanes if asked for. Both are made once, beside reg itself.
static int as(builder *b, int reg, tn_dtype rep, bool tile)
{
    tni_program *g = b->g;
    if (g->reg[reg].rep != rep) {
        int have = g->reg[reg].as;
        if (have < 0 || g->reg[have].rep != rep) {
            have           = converted(b, g->reg[reg].section, reg, rep);
            g->reg[reg].as = have;
        }
        reg = have;
    }
    if (!tile || g->reg[reg].tile) return reg;
    if (g->reg[reg].spread < 0) {
        int      dst = new_reg(b, g->reg[reg].section, rep, true);
        tni_step x   = plain(TNI_S_SPREAD, dst, true);
        x.a          = reg;
        x.bytes      = (uint8_t)tni_dtype_size(rep);
        new_step(b, g->reg[reg].section, x);
        g->reg[reg].spread = dst;
    }
    return g->reg[reg].spread;
}

// ---- values ------------------------------------------------------------------------------------

static int value(builder *b, int loop, int v);

static bool is_tile(const builder *b, int reg)
{
    return reg >= 0 && b->g->reg[reg].tile;
}

static bool lane_varies(const builder *b, int access)
{
    return b->lane >= 0 && b->k->access[access].stride[b->lane] != TNI_STRIDE_0;
}

static int64_t lane_stride(const builder *b, int access)
{
    return b->lane >= 0 ? b->g->l->stride[access][b->lane] : 0;
}

static int make_number(builder *b, int section, const tni_ins *x)
{
    int      dst = new_reg(b, section, rep_of((tn_dtype)x->dtype), false);
    tni_step s   = plain(TNI_S_NUMBER, dst, false);
    s.ins        = x->number;
    s.dtype      = x->dtype;
    new_step(b, section, s);
    return dst;
}

// A load with an index or a guard: gathered one by one, then converted.
static int make_load_at(builder *b, int section, int loop, const tni_ins *x, tn_dtype dt)
{
    int  index = x->a >= 0 ? value(b, loop, x->a) : -1;
    int  guard = x->b >= 0 ? value(b, loop, x->b) : -1;
    bool tile  = is_tile(b, index) || is_tile(b, guard) || lane_varies(b, x->access);
    if (index >= 0) index = as(b, index, TN_I64, tile);
    if (guard >= 0) guard = as(b, guard, TN_BOOL, tile);
    int      dst = new_reg(b, section, dt, tile);
    tni_step s   = plain(TNI_S_AT, dst, tile);
    s.a          = index;
    s.b          = guard;
    s.access     = x->access;
    s.bytes      = (uint8_t)tni_dtype_size(dt);
    new_step(b, section, s);
    return rep_of(dt) == dt ? dst : converted(b, section, dst, rep_of(dt));
}

static int make_load(builder *b, int section, int loop, const tni_ins *x)
{
    int      buffer = b->k->access[x->access].buffer;
    tn_dtype dt = (tn_dtype)b->k->buffer[buffer].dtype, rep = rep_of(dt);
    bool     tile = lane_varies(b, x->access);
    if (x->a >= 0 || x->b >= 0) return make_load_at(b, section, loop, x, dt);
    bool     beside = !tile || lane_stride(b, x->access) == 1;
    bool     here   = tile && beside && rep == dt && !b->g->shared[buffer];
    int      dst    = new_reg(b, section, beside ? rep : dt, tile);
    tni_step s      = plain(here ? TNI_S_HERE : beside ? TNI_S_LOAD : TNI_S_GATHER, dst, tile);
    s.access        = x->access;
    s.bytes         = (uint8_t)tni_dtype_size(dt);
    s.f.convert     = b->g->tiles->convert[dt][rep];
    new_step(b, section, s);
    return beside || rep == dt ? dst : converted(b, section, dst, rep);
}

static int make_place(builder *b, int section, const tni_ins *x)
{
    bool     tile = lane_varies(b, x->access);
    int      dst  = new_reg(b, section, TN_I64, tile);
    tni_step s    = plain(TNI_S_PLACE, dst, tile);
    s.access      = x->access;
    new_step(b, section, s);
    return dst;
}

static tni_tile_random *random_of(const tni_tiles *t, const tni_ins *x)
{
    if (x->op == TNI_random_bits) return t->bits;
    if (x->op == TNI_uniform) return x->dtype == TN_F64 ? t->uniform_d : t->uniform_f;
    return x->dtype == TN_F64 ? t->normal_d : t->normal_f;
}

// Elements of a PLACE need not be computed to be known.
static int make_random(builder *b, int section, int loop, const tni_ins *x)
{
    const tni_ins *y      = &b->k->ins[x->a];
    bool           affine = y->code == TNI_I_PLACE;
    int            at     = affine ? -1 : value(b, loop, x->a);
    bool           tile   = affine ? lane_varies(b, y->access) : is_tile(b, at);
    int            dst    = new_reg(b, section, rep_of((tn_dtype)x->dtype), tile);
    tni_step       s      = plain(TNI_S_RANDOM, dst, tile);
    s.a                   = at;
    s.access              = affine ? y->access : -1;
    s.op                  = x->op;
    s.dtype               = x->dtype;
    s.ins                 = x->number;
    s.f.random            = random_of(b->g->tiles, x);
    new_step(b, section, s);
    return dst;
}

// Narrow integers wrap, and bools are 0 or 1.
static int narrowed(builder *b, int section, int reg, tn_dtype dt)
{
    if (tni_compute_dtype(dt) == dt || tni_is_float(dt)) return reg;
    reg = converted(b, section, reg, dt);
    return dt == TN_BOOL ? reg : converted(b, section, reg, TN_I32);
}

static int make_map(builder *b, int section, int loop, const tni_ins *x)
{
    int16_t v[3] = { x->a, x->b, x->c };
    int     r[3] = { -1, -1, -1 }, n = 0;
    bool    tile = false, select = tni_op_table[x->op].class == TNI_TERNARY;
    int     op    = x->op == TNI_bit_not && x->dtype == TN_BOOL ? TNI_logical_not : x->op;
    bool    tells = tni_op_table[op].rule == TNI_TO_BOOL;
    for (; n < 3 && v[n] >= 0; n++) {
        r[n] = value(b, loop, v[n]);
        tile |= is_tile(b, r[n]);
    }
    tn_dtype      ct  = tni_compute_dtype((tn_dtype)b->k->ins[v[n - 1]].dtype);
    tni_tile_map *map = b->g->tiles->of[ct]->map[op];
    if (!map) return r[0];  // rounding of integers
    for (int i = 0; i < n; i++) r[i] = as(b, r[i], select && i == 0 ? TN_BOOL : ct, tile);

    int      dst = new_reg(b, section, tells ? TN_BOOL : ct, tile);
    tni_step s   = plain(TNI_S_MAP, dst, tile);
    s.a          = r[0];
    s.b          = r[1];
    s.c          = r[2];
    s.f.map      = map;
    new_step(b, section, s);
    return tells ? dst : narrowed(b, section, dst, (tn_dtype)x->dtype);
}

static int make_cast(builder *b, int section, int loop, const tni_ins *x)
{
    tn_dtype to = (tn_dtype)x->dtype;
    int      r  = value(b, loop, x->a);
    if (b->g->reg[r].rep == to) return r;
    r = converted(b, section, r, to);
    return rep_of(to) == to ? r : converted(b, section, r, rep_of(to));
}

static int make_check(builder *b, int section, int loop, int v)
{
    const tni_ins *x    = &b->k->ins[v];
    int            r    = as(b, value(b, loop, x->a), TN_I64, false);
    bool           tile = is_tile(b, r);
    int            dst  = new_reg(b, section, TN_I64, tile);
    tni_step       s    = plain(TNI_S_CHECK, dst, tile);
    s.a                 = r;
    s.ins               = v;
    new_step(b, section, s);
    return dst;
}

// ---- reductions --------------------------------------------------------------------------------

// The type that a reduction folds in.
static tn_dtype fold_type(const tni_ins *x)
{
    return tni_compute_dtype((tn_dtype)x->dtype);
}

static tni_step fold_step(const builder *b, const tni_ins *x, int kind, int dst, bool tile)
{
    tn_dtype ct = fold_type(x), wide = wide_of(ct);
    tni_step s = plain(kind, dst, tile);
    s.op       = x->op;
    s.dtype    = (uint8_t)ct;
    s.bytes    = (uint8_t)tni_dtype_size(ct);
    s.wide     = b->g->tiles->of[wide]->fold[x->op];
    s.widen    = b->g->tiles->convert[ct][wide];
    return s;
}

// A fixed register that accumulators of a type are widened in.
static int widened(builder *b, int section, tn_dtype ct)
{
    int32_t *have = &b->widened[tni_is_float(ct)];
    if (*have < 0) *have = new_reg(b, section, wide_of(ct), true);
    b->g->reg[*have].fixed = 1;
    return *have;
}

// A reduction over R: folded in the loop of its phase, there from the next row section on.
static int make_main(builder *b, int section, const tni_ins *x)
{
    tn_dtype ct   = fold_type(x);
    int      loop = tni_loop_section(x->phase), r = value(b, x->phase, x->a), total;
    tni_step s;
    if (b->k->lane_in_r) {
        r         = as(b, r, ct, true);
        total     = new_reg(b, loop, wide_of(ct), false);
        s         = fold_step(b, x, TNI_S_BLOCK, total, true);
        s.f.block = b->g->tiles->of[ct]->block[x->op];
    } else {
        r                    = as(b, r, ct, false);
        bool tile            = is_tile(b, r);
        total                = new_reg(b, loop, wide_of(ct), tile);
        s                    = fold_step(b, x, TNI_S_FOLD, total, tile);
        s.b                  = new_reg(b, loop, ct, tile);
        s.c                  = widened(b, loop, ct);
        s.f.fold             = b->g->tiles->of[ct]->fold[x->op];
        b->g->reg[s.b].fixed = 1;
    }
    s.a = r;
    new_step(b, loop, s);
    b->g->reg[total].fixed = 1;
    return converted(b, section, total, rep_of((tn_dtype)x->dtype));
}

static void make_tail(builder *b, int v)
{
    const tni_ins *x       = &b->k->ins[v];
    tn_dtype       ct      = fold_type(x);
    bool           elems   = b->k->ins[x->a].per & TNI_PER_COL;
    int            section = elems ? tni_loop_section(x->phase) : tni_row_section(x->phase);
    bool           in_r    = b->k->lane_in_r;
    int            kind    = !in_r ? TNI_S_TAIL_BLOCK : elems ? TNI_S_TAIL_ROWS : TNI_S_TAIL_ONE;
    bool           tile    = kind != TNI_S_TAIL_ONE;
    int            r       = as(b, value(b, elems ? x->phase : -1, x->a), ct, tile);
    tni_step       s       = fold_step(b, x, kind, -1, tile);
    s.a                    = r;
    s.one                  = !tile;
    s.ins                  = elems;
    s.partial              = tni_kernel_tail(b->k, &b->g->cut, v);
    if (kind == TNI_S_TAIL_ROWS) {
        s.c      = widened(b, section, ct);
        s.f.fold = b->g->tiles->of[ct]->fold[x->op];
        s.mem    = b->state;
        b->state += tni_align64(b->g->cut.cols * (int64_t)tni_dtype_size(ct));
    } else {
        s.f.block = b->g->tiles->of[ct]->block[x->op];
    }
    new_step(b, section, s);
}

// A tail's value in the finish stage.
static int make_join(builder *b, int section, int v)
{
    const tni_ins *x    = &b->k->ins[v];
    bool           tile = x->per & TNI_PER_COL;
    int            dst  = new_reg(b, section, wide_of(fold_type(x)), tile);
    tni_step       s    = fold_step(b, x, TNI_S_JOIN, dst, tile);
    s.partial           = tni_kernel_tail(b->k, &b->g->cut, v);
    new_step(b, section, s);
    return converted(b, section, dst, rep_of((tn_dtype)x->dtype));
}

// ---- stores ------------------------------------------------------------------------------------

// Stores lanes that lie side by side, or the one element.
static void store_beside(builder *b, int section, int reg, int access, bool tile)
{
    tn_dtype dt = (tn_dtype)b->k->buffer[b->k->access[access].buffer].dtype;
    tni_step s  = plain(TNI_S_STORE, -1, tile);
    s.a         = reg;
    s.access    = (int16_t)access;
    s.bytes     = (uint8_t)tni_dtype_size(dt);
    s.f.convert = b->g->tiles->convert[b->g->reg[reg].rep][dt];
    new_step(b, section, s);
}

static void store_apart(builder *b, int section, int reg, int access)
{
    tn_dtype dt = (tn_dtype)b->k->buffer[b->k->access[access].buffer].dtype;
    if (b->g->reg[reg].rep != dt) reg = converted(b, section, reg, dt);
    tni_step s = plain(TNI_S_SCATTER, -1, true);
    s.a        = reg;
    s.access   = (int16_t)access;
    s.bytes    = (uint8_t)tni_dtype_size(dt);
    new_step(b, section, s);
}

// Whether what a register holds can be made where it is stored.
static bool goes_out(const builder *b, int section, int reg, int buffer)
{
    const tni_reg *r = &b->g->reg[reg];
    if (r->section != section || r->keep >= 0 || b->g->shared[buffer]) return false;
    if (r->rep != b->k->buffer[buffer].dtype) return false;
    const tni_step *s = &b->g->step[r->maker];
    return s->lead == TNI_LEAD_NONE && (s->kind == TNI_S_MAP || s->kind == TNI_S_CONVERT) &&
           s->dst == reg;
}

// ---- where values are made ---------------------------------------------------------------------

static int home(const builder *b, int loop, const tni_ins *x)
{
    bool col = x->per & TNI_PER_COL, fold = x->code == TNI_I_REDUCE;
    if (b->finish) return tni_finish_section(b->g, col ? FINISH_LOOP : FINISH_ONE);
    if (col) return tni_loop_section(loop);
    if (x->per == TNI_PER_ONE && x->phase == 0 && !fold) return TNI_SECTION_ONE;
    return tni_row_section(x->phase + fold);
}

static int make(builder *b, int section, int loop, int v)
{
    const tni_ins *x = &b->k->ins[v];
    switch (x->code) {
    case TNI_I_LOAD: return make_load(b, section, loop, x);
    case TNI_I_NUMBER: return make_number(b, section, x);
    case TNI_I_PLACE: return make_place(b, section, x);
    case TNI_I_RANDOM: return make_random(b, section, loop, x);
    case TNI_I_MAP: return make_map(b, section, loop, x);
    case TNI_I_CAST: return make_cast(b, section, loop, x);
    case TNI_I_CHECK: return make_check(b, section, loop, v);
    default: return x->over_p ? make_join(b, section, v) : make_main(b, section, x);
    }
}

// Elements that a loop over R has in a unit.
static int64_t unit_elements(const tni_program *g)
{
    return g->cut.cols * (g->l->kernel->lane_in_r ? 1 : g->lanes);
}

// Makes a register's elements where they stay for the whole unit. If they were made where they are
// stored, they have to be stored now.
static void keep(builder *b, int reg)
{
    tni_program *g     = b->g;
    tni_reg     *r     = &g->reg[reg];
    tni_step    *maker = &g->step[r->maker];
    bool         out   = maker->lead == TNI_LEAD_OUT;
    r->keep            = g->keep_bytes;
    maker->lead        = TNI_LEAD_KEEP;
    if (out) store_beside(b, r->section, reg, maker->out, true);
}

// The register of an earlier loop's dear value in this one; -1 if it has to be computed again.
static int kept(builder *b, int loop, int v)
{
    tni_program *g    = b->g;
    int          from = -1;
    for (int q = 0; q < loop && from < 0; q++) from = g->loop_reg[q * b->k->nins + v];
    if (from < 0 || g->cost[v] < DEAR) return -1;
    const tni_reg *r     = &g->reg[from];
    int            kind  = g->step[r->maker].kind;
    int64_t        bytes = unit_elements(g) * (int64_t)tni_dtype_size((tn_dtype)r->rep);
    if (r->keep < 0) {
        if (!r->tile || g->keep_bytes + bytes > KEEP_MOST) return -1;
        if (kind == TNI_S_HERE || kind == TNI_S_LOAD) return -1;
        keep(b, from);
        g->keep_bytes += tni_align64(bytes);
    }
    int dst          = new_reg(b, tni_loop_section(loop), (tn_dtype)r->rep, true);
    g->reg[dst].keep = g->reg[from].keep;
    new_step(b, tni_loop_section(loop), plain(TNI_S_KEPT, dst, true));
    return dst;
}

// The register of a value for readers in a loop over R, or (-1) outside.
static int value(builder *b, int loop, int v)
{
    tni_program   *g   = b->g;
    const tni_ins *x   = &b->k->ins[v];
    bool           col = x->per & TNI_PER_COL && !b->finish;
    int32_t       *reg = col         ? &g->loop_reg[loop * b->k->nins + v]
                         : b->finish ? &g->fin_reg[v]
                                     : &g->row_reg[v];
    if (*reg >= 0) return *reg;
    int r = col && loop > 0 ? kept(b, loop, v) : -1;
    if (r < 0) r = make(b, home(b, loop, x), col ? loop : -1, v);
    return *reg = r;
}

static void make_store(builder *b, int v)
{
    const tni_ins *x      = &b->k->ins[v];
    int            buffer = b->k->access[x->access].buffer;
    bool           col = x->per & TNI_PER_COL, tile = lane_varies(b, x->access);
    int            r       = value(b, col && !b->finish ? x->phase : -1, x->a);
    int            section = b->finish ? tni_finish_section(b->g, col ? FINISH_LOOP : FINISH_STORE)
                             : col     ? tni_loop_section(x->phase)
                                       : tni_row_section(x->phase);
    r                      = as(b, r, (tn_dtype)b->g->reg[r].rep, tile);
    if (tile && lane_stride(b, x->access) != 1) {
        store_apart(b, section, r, x->access);
    } else if (tile && goes_out(b, section, r, buffer)) {
        tni_step *maker = &b->g->step[b->g->reg[r].maker];
        maker->lead     = TNI_LEAD_OUT;
        maker->out      = x->access;
    } else {
        store_beside(b, section, r, x->access, tile);
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
static void build_main(builder *b)
{
    const tni_kernel *k = b->k;
    b->lane             = b->g->lane;
    for (int p = 0; p <= b->g->phases; p++)
        for (int i = 0; i < k->nins; i++) {
            const tni_ins *x = &k->ins[i];
            if (x->phase != p || !b->g->needed[i]) continue;
            if (x->code == TNI_I_STORE && !x->finish) make_store(b, i);
            else if (x->code == TNI_I_REDUCE && x->over_p) make_tail(b, i);
            else if (x->code == TNI_I_REDUCE) value(b, -1, i);
        }
}

static void build_finish(builder *b)
{
    b->finish = true;
    b->lane   = b->g->finish_lane;
    for (int i = 0; i < b->k->nins; i++)
        if (b->k->ins[i].code == TNI_I_STORE && b->k->ins[i].finish) make_store(b, i);
}

// ---- slots -------------------------------------------------------------------------------------

// Whether a register's elements lie in a slot. What is used in place, or goes out, has a pointer.
static bool has_slot(const tni_program *g, const tni_reg *r)
{
    const tni_step *s = r->maker >= 0 ? &g->step[r->maker] : NULL;
    return r->tile && r->keep < 0 && !(s && (s->kind == TNI_S_HERE || s->lead == TNI_LEAD_OUT));
}

// Gives slots that no living register has to the registers of a section, in the order of its steps.
// The number of slots wanted.
static int share_slots(tni_program *g, int section, int32_t *free_list, int64_t base)
{
    int slots = 0, nfree = 0;
    for (int i = g->section[section].head; i >= 0; i = g->step[i].next) {
        const tni_step *s       = &g->step[i];
        int32_t         read[3] = { s->a, s->b, s->c };
        if (s->dst >= 0 && g->reg[s->dst].maker == i && !g->reg[s->dst].fixed &&
            has_slot(g, &g->reg[s->dst])) {
            int slot              = nfree > 0 ? free_list[--nfree] : slots++;
            g->reg[s->dst].offset = base + slot * g->slot_bytes;
        }
        for (int j = 0; j < 3; j++) {
            tni_reg *r = read[j] >= 0 ? &g->reg[read[j]] : NULL;
            if (!r || r->fixed || r->section != section || r->last != i || !has_slot(g, r))
                continue;
            free_list[nfree++] = (int32_t)((r->offset - base) / g->slot_bytes);
            r->last            = -1;  // read twice by one step
        }
    }
    return slots;
}

// Worker memory: pointers of registers, single elements, fixed things, kept rows, shared slots.
static void assign_slots(builder *b, int32_t *free_list)
{
    tni_program *g    = b->g;
    bool         wide = false;
    int          most = 0;
    for (int i = 0; i < g->nreg; i++)
        wide |= g->reg[i].tile && tni_dtype_size((tn_dtype)g->reg[i].rep) == 8;
    g->slot_bytes = tni_align64(g->lanes * (wide ? 8 : 4)) + 64;
    for (int i = 0; i < g->nreg; i++) {
        tni_reg *r = &g->reg[i];
        if (!(r->tile && r->fixed && has_slot(g, r))) continue;
        r->offset = b->state;
        b->state += g->slot_bytes;
    }
    for (int i = 0; i < g->nreg; i++) {
        if (g->reg[i].tile) continue;
        g->reg[i].offset = b->state;
        b->state += 8;
    }
    int64_t keep = tni_align64(b->state), base = keep + g->keep_bytes;
    for (int i = 0; i < g->nreg; i++)
        if (g->reg[i].keep >= 0) g->reg[i].keep += keep;
    for (int i = 0; i < g->nsection; i++) {
        int slots = share_slots(g, i, free_list, base);
        if (slots > most) most = slots;
    }
    g->worker_bytes = tni_align64(base + most * g->slot_bytes);
}

// ---- the whole ---------------------------------------------------------------------------------

static int most_steps(const tni_kernel *k)
{
    return PER_INS * k->nins * (k->phases + 2) + 8;
}

static int sections(const tni_kernel *k)
{
    return 2 + 2 * k->phases + 3;
}

// Takes bytes of mem; where mem is NULL, only counts them.
static void *take(char *mem, size_t *used, size_t bytes)
{
    void *p = mem ? mem + *used : NULL;
    *used += (bytes + 63) / 64 * 64;
    return p;
}

// Lays a program's arrays out in mem, or counts its bytes.
static size_t lay_out(const tni_kernel *k, char *mem, tni_program *g, int32_t **free_list)
{
    size_t used = 0, most = (size_t)most_steps(k), nins = (size_t)k->nins;
    take(mem, &used, sizeof *g);
    g->step     = take(mem, &used, most * sizeof *g->step);
    g->reg      = take(mem, &used, most * sizeof *g->reg);
    g->section  = take(mem, &used, (size_t)sections(k) * sizeof *g->section);
    g->loop_reg = take(mem, &used, nins * k->phases * sizeof *g->loop_reg);
    g->row_reg  = take(mem, &used, nins * sizeof *g->row_reg);
    g->fin_reg  = take(mem, &used, nins * sizeof *g->fin_reg);
    g->cost     = take(mem, &used, nins * sizeof *g->cost);
    g->needed   = take(mem, &used, nins * sizeof *g->needed);
    g->delta    = take(mem, &used, (size_t)k->naccess * TNI_AXES * sizeof *g->delta);
    *free_list  = take(mem, &used, most * sizeof **free_list);
    return used;
}

size_t tni_program_bytes(const tni_kernel *k)
{
    tni_program g;
    int32_t    *free_list;
    return lay_out(k, NULL, &g, &free_list);
}

int64_t tni_program_most(const tni_kernel *k, const tni_cut *cut)
{
    int64_t slot = TNI_STRIP * 8 + 64 + (int64_t)sizeof(char *);
    return most_steps(k) * slot + 2 * KEEP_MOST + k->nins * tni_align64(cut->cols * 8);
}

// Axis i goes on by one, and the axes after it up to `last` go back to their beginning.
static void find_deltas(tni_program *g, const tni_launch *l, int first, int last)
{
    int naccess = l->kernel->naccess;
    for (int a = 0; a < naccess; a++) {
        int64_t back = 0;
        for (int i = last; i >= first; i--) {
            g->delta[i * naccess + a] = l->stride[a][i] - back;
            back += (l->size[i] - 1) * l->stride[a][i];
        }
    }
}

static void find_shared(tni_program *g, const tni_launch *l)
{
    const tni_kernel *k = l->kernel;
    for (int i = 0; i < k->nbuffer; i++) {
        g->shared[i] = false;
        for (int j = 0; j < k->nbuffer; j++)
            if (i != j && (k->buffer[i].written || k->buffer[j].written))
                g->shared[i] |= l->buffer[i] == l->buffer[j];
    }
    // A buffer that is loaded and stored.
    for (int i = 0; i < k->nins; i++)
        if (k->ins[i].code == TNI_I_LOAD) {
            int b = k->access[k->ins[i].access].buffer;
            g->shared[b] |= k->buffer[b].written;
        }
}

static void find_lanes(tni_program *g, const tni_launch *l)
{
    const tni_kernel *k = l->kernel;
    g->lane             = k->lane_in_r ? k->np + k->nr - 1 : k->np - 1;
    g->finish_lane      = k->nr > 0 ? k->np + k->nr - 1 : -1;
    g->lanes            = l->size[g->lane];
    if (k->tails && g->finish_lane >= 0 && l->size[g->finish_lane] > g->lanes)
        g->lanes = l->size[g->finish_lane];
    if (g->lanes > TNI_STRIP) g->lanes = TNI_STRIP;
}

tni_program *tni_program_build(tni_launch *l, char *mem)
{
    const tni_kernel *k = l->kernel;
    tni_program      *g = (tni_program *)mem;
    int32_t          *free_list;
    lay_out(k, mem, g, &free_list);
    g->tiles    = tni_tiles_get();
    g->l        = l;
    g->cut      = tni_kernel_cut(l);
    g->phases   = k->phases;
    g->nsection = sections(k);
    g->nstep = g->nreg = 0;
    g->keep_bytes      = 0;
    find_lanes(g, l);
    find_shared(g, l);
    memset(g->section, -1, (size_t)g->nsection * sizeof *g->section);
    memset(g->loop_reg, -1, (size_t)(k->nins * k->phases) * sizeof *g->loop_reg);
    memset(g->row_reg, -1, (size_t)k->nins * sizeof *g->row_reg);
    memset(g->fin_reg, -1, (size_t)k->nins * sizeof *g->fin_reg);
    memset(g->needed, 0, (size_t)k->nins * sizeof *g->needed);
    int outer_p = k->lane_in_r ? k->np - 1 : k->np - 2;
    int last_r  = k->np + k->nr - 1 - k->lane_in_r;
    find_deltas(g, l, 0, outer_p);
    find_deltas(g, l, k->np, last_r);
    find_needs(g, k);

    builder b = { .g = g, .k = k, .widened = { -1, -1 } };
    build_main(&b);
    if (k->tails) build_finish(&b);
    b.state += tni_align64(g->nreg * (int64_t)sizeof(char *));
    for (int i = 0; i < g->nstep; i++)
        if (g->step[i].kind == TNI_S_TAIL_ROWS)
            g->step[i].mem += tni_align64(g->nreg * (int64_t)sizeof(char *));
    assign_slots(&b, free_list);
    return g;
}
