// The values of a program. A value is made when it is first asked for, after the values that it
// reads, in the section where it can be computed least often: once per chunk, once per unit, or in
// a loop. Values that vary over R are made once in every loop that reads them, or kept from an
// earlier loop.
#include "device/cpu/interpret_build.h"

#include "device/device.h"
#include "kernel/thresholds.h"

#include <string.h>

// ---- registers and steps -----------------------------------------------------------------------

int tni_new_reg(tni_builder *b, int section, tn_dtype rep, bool tile)
{
    int at        = b->g->nreg++;
    b->g->reg[at] = (tni_reg){ .rep       = (uint8_t)rep,
                               .tile      = tile,
                               .section   = section,
                               .maker     = -1,
                               .last      = -1,
                               .as        = -1,
                               .broadcast = -1,
                               .keep      = -1 };
    return at;
}

// Notes that a step of a section reads a register: its slot is free after the last such step. A
// register that is read in another section is fixed.
static void note_reg_read(tni_builder *b, int section, int step, int reg)
{
    if (reg < 0) return;
    tni_reg *r = &b->g->reg[reg];
    if (r->section != section) r->fixed = 1;
    r->last = step;
}

// The maker of a register is its first step: a total is written again by every step of its loop.
tni_tile_step *tni_new_step(tni_builder *b, int section, tni_tile_step x)
{
    tni_program *g   = b->g;
    int          at  = g->nstep++;
    tni_section *s   = &g->section[section];
    g->step[at]      = x;
    g->step[at].next = -1;
    if (s->tail >= 0) g->step[s->tail].next = at;
    else s->head = at;
    s->tail = at;
    note_reg_read(b, section, at, x.a);
    note_reg_read(b, section, at, x.b);
    note_reg_read(b, section, at, x.c);
    if (x.dst >= 0 && g->reg[x.dst].maker < 0) g->reg[x.dst].maker = at;
    return &g->step[at];
}

// A step that has nothing yet but its kind and result.
tni_tile_step tni_plain_step(int kind, int dst, bool tile)
{
    return (tni_tile_step){
        .kind = (uint8_t)kind, .one = !tile, .dst = dst, .a = -1, .b = -1, .c = -1, .access = -1
    };
}

// reg in another dtype, in a new register of a section.
int tni_convert_reg(tni_builder *b, int section, int reg, tn_dtype to)
{
    const tni_reg *r   = &b->g->reg[reg];
    tn_dtype       rep = (tn_dtype)r->rep;
    int            dst = tni_new_reg(b, section, to, r->tile);
    tni_tile_step  x   = tni_plain_step(TNI_S_CONVERT, dst, r->tile);
    x.a                = reg;
    x.f.convert        = tni_converter(b->g->tiles, rep, to);
    tni_new_step(b, section, x);
    return dst;
}

// Conversions are cached: a value that is read as f32 by ten instructions is converted once. Only
// the latest dtype is cached, as a register is hardly ever read as three dtypes.
int tni_reg_as(tni_builder *b, int reg, tn_dtype rep, bool tile)
{
    tni_program *g = b->g;
    if (g->reg[reg].rep != rep) {
        int have = g->reg[reg].as;
        if (have < 0 || g->reg[have].rep != rep) {
            have           = tni_convert_reg(b, g->reg[reg].section, reg, rep);
            g->reg[reg].as = have;
        }
        reg = have;
    }
    if (!tile || g->reg[reg].tile) return reg;
    if (g->reg[reg].broadcast < 0) {
        int           dst = tni_new_reg(b, g->reg[reg].section, rep, true);
        tni_tile_step x   = tni_plain_step(TNI_S_BROADCAST, dst, true);
        x.a               = reg;
        x.bytes           = (uint8_t)tni_dtype_size(rep);
        tni_new_step(b, g->reg[reg].section, x);
        g->reg[reg].broadcast = dst;
    }
    return g->reg[reg].broadcast;
}

// ---- values ------------------------------------------------------------------------------------

bool tni_reg_is_tile(const tni_builder *b, int reg)
{
    return reg >= 0 && b->g->reg[reg].tile;
}

bool tni_varies_over_lane(const tni_builder *b, int access)
{
    return b->lane >= 0 && b->k->access[access].stride[b->lane] != TNI_STRIDE_0;
}

int64_t tni_lane_stride(const tni_builder *b, int access)
{
    return b->lane >= 0 ? b->g->l->stride[access][b->lane] : 0;
}

// Makes a launch's number: one element, already in its compute type.
static int make_number(tni_builder *b, int section, const tni_ins *x)
{
    int           dst = tni_new_reg(b, section, tni_rep_of((tn_dtype)x->dtype), false);
    tni_tile_step s   = tni_plain_step(TNI_S_NUMBER, dst, false);
    s.ins             = x->number;
    s.dtype           = x->dtype;
    tni_new_step(b, section, s);
    return dst;
}

// Makes a load with an index or a guard: elements are gathered one by one, in their dtype, and
// converted by the readers. The guard is broadcast to all lanes, as the step looks for runs of
// equal guards; an index that is the same for all lanes is added once.
static int make_indexed_load(tni_builder *b, int section, int loop, const tni_ins *x, tn_dtype dt)
{
    int  index = x->a >= 0 ? tni_value_reg(b, loop, x->a) : -1;
    int  guard = x->b >= 0 ? tni_value_reg(b, loop, x->b) : -1;
    bool each  = tni_reg_is_tile(b, index);
    bool tile  = each || tni_reg_is_tile(b, guard) || tni_varies_over_lane(b, x->access);
    if (index >= 0) index = tni_reg_as(b, index, TN_I64, false);
    if (guard >= 0) guard = tni_reg_as(b, guard, TN_BOOL, tile);
    int           dst = tni_new_reg(b, section, dt, tile);
    tni_tile_step s   = tni_plain_step(TNI_S_INDEXED, dst, tile);
    s.a               = index;
    s.b               = guard;
    s.ins             = each;
    s.access          = x->access;
    s.bytes           = (uint8_t)tni_dtype_size(dt);
    tni_new_step(b, section, s);
    return dst;
}

// Makes a plain load: in place if it is contiguous, needs no conversion and the buffer is not
// written; else contiguous with a conversion, or gathered.
static int make_load(tni_builder *b, int section, int loop, const tni_ins *x)
{
    int      buffer = b->k->access[x->access].buffer;
    tn_dtype dt = (tn_dtype)b->k->buffer[buffer].dtype, rep = tni_rep_of(dt);
    bool     tile = tni_varies_over_lane(b, x->access);
    if (x->a >= 0 || x->b >= 0) return make_indexed_load(b, section, loop, x, dt);
    bool          is_dense = !tile || tni_lane_stride(b, x->access) == 1;
    bool          in_place = tile && is_dense && rep == dt && !b->g->shared[buffer];
    int           dst      = tni_new_reg(b, section, is_dense ? rep : dt, tile);
    tni_tile_step s        = tni_plain_step(in_place   ? TNI_S_IN_PLACE
                                            : is_dense ? TNI_S_LOAD
                                                       : TNI_S_GATHER,
                                     dst, tile);
    s.access    = x->access;
    s.bytes     = (uint8_t)tni_dtype_size(dt);
    s.f.convert = tni_converter(b->g->tiles, dt, rep);
    tni_new_step(b, section, s);
    return dst;
}

// Makes the places of an access as numbers: coordinates, which masks and ranges are made of.
static int make_place(tni_builder *b, int section, const tni_ins *x)
{
    bool          tile = tni_varies_over_lane(b, x->access);
    int           dst  = tni_new_reg(b, section, TN_I64, tile);
    tni_tile_step s    = tni_plain_step(TNI_S_PLACE, dst, tile);
    s.access           = x->access;
    tni_new_step(b, section, s);
    return dst;
}

static tni_tile_random *random_function(const tni_tiles *t, const tni_ins *x)
{
    if (x->op == TNI_random_bits) return t->bits;
    if (x->op == TNI_uniform) return x->dtype == TN_F64 ? t->uniform_d : t->uniform_f;
    return x->dtype == TN_F64 ? t->normal_d : t->normal_f;
}

// Makes random numbers. If the element numbers come from a PLACE, they are an affine function of
// the lane, and need not be computed as a tile: contiguous ones are made four at a time.
static int make_random(tni_builder *b, int section, int loop, const tni_ins *x)
{
    const tni_ins *y      = &b->k->ins[x->a];
    bool           affine = y->code == TNI_I_PLACE;
    int            at     = affine ? -1 : tni_value_reg(b, loop, x->a);
    bool           tile   = affine ? tni_varies_over_lane(b, y->access) : tni_reg_is_tile(b, at);
    int            dst    = tni_new_reg(b, section, tni_rep_of((tn_dtype)x->dtype), tile);
    tni_tile_step  s      = tni_plain_step(TNI_S_RANDOM, dst, tile);
    s.a                   = at;
    s.access              = affine ? y->access : -1;
    s.op                  = x->op;
    s.dtype               = x->dtype;
    s.ins                 = x->number;
    s.f.random            = random_function(b->g->tiles, x);
    tni_new_step(b, section, s);
    return dst;
}

// Returns a register with the value wrapped to a narrow integer, or 0 and 1 for bool. Floats are
// left alone: kernel.h rounds them by CAST and STORE only.
static int narrow_reg(tni_builder *b, int section, int reg, tn_dtype dt)
{
    if (tni_compute_dtype(dt) == dt || tni_is_float(dt)) return reg;
    return tni_convert_reg(b, section, reg, dt);
}

// And of two bools as bytes, without widening them to int32: the bounds of pads are made of these.
static void and_bools(void *y, const void *a, const void *b, const void *c, int64_t n)
{
    uint8_t       *to = y;
    const uint8_t *p = a, *q = b;
    (void)c;
    for (int64_t i = 0; i < n; i++) to[i] = p[i] & q[i];
}

static bool is_bools(const tni_builder *b, int op, const int *reg)
{
    return op == TNI_logical_and && b->g->reg[reg[0]].rep == TN_BOOL &&
           b->g->reg[reg[1]].rep == TN_BOOL;
}

// Makes a map: operands in the compute type of the last one (the first of `where` is bool), in all
// lanes if any operand is a tile, and the result narrowed. A map of single elements stays a single
// element, so that scalar arithmetic costs one element, not a tile.
static int make_map(tni_builder *b, int section, int loop, const tni_ins *x)
{
    int16_t v[3] = { x->a, x->b, x->c };
    int     r[3] = { -1, -1, -1 }, n = 0;
    bool    tile = false, select = tni_op_table[x->op].class == TNI_TERNARY;
    int     op         = x->op == TNI_bit_not && x->dtype == TN_BOOL ? TNI_logical_not : x->op;
    bool    gives_bool = tni_op_table[op].rule == TNI_TO_BOOL;
    for (; n < 3 && v[n] >= 0; n++) {
        r[n] = tni_value_reg(b, loop, v[n]);
        tile |= tni_reg_is_tile(b, r[n]);
    }
    tn_dtype      ct  = tni_compute_dtype((tn_dtype)b->k->ins[v[n - 1]].dtype);
    tni_tile_map *map = b->g->tiles->of[ct]->map[op];
    if (!map) return r[0];  // rounding of integers
    if (is_bools(b, op, r)) ct = TN_BOOL, map = and_bools;
    for (int i = 0; i < n; i++) r[i] = tni_reg_as(b, r[i], select && i == 0 ? TN_BOOL : ct, tile);

    int           dst = tni_new_reg(b, section, gives_bool ? TN_BOOL : ct, tile);
    tni_tile_step s   = tni_plain_step(TNI_S_MAP, dst, tile);
    s.a               = r[0];
    s.b               = r[1];
    s.c               = r[2];
    s.f.map           = map;
    tni_new_step(b, section, s);
    return gives_bool ? dst : narrow_reg(b, section, dst, (tn_dtype)x->dtype);
}

// Makes a cast by way of the compute type, since tiles convert only to and from that.
static int make_cast(tni_builder *b, int section, int loop, const tni_ins *x)
{
    tn_dtype to = (tn_dtype)x->dtype;
    int      r  = tni_value_reg(b, loop, x->a);
    if (b->g->reg[r].rep == to) return r;
    r = tni_reg_as(b, r, tni_rep_of((tn_dtype)b->g->reg[r].rep), false);
    return b->g->reg[r].rep == to ? r : tni_convert_reg(b, section, r, to);
}

// Makes the check of an index; the step reports the first that is out of range and goes on with 0.
static int make_check(tni_builder *b, int section, int loop, int v)
{
    const tni_ins *x    = &b->k->ins[v];
    int            r    = tni_reg_as(b, tni_value_reg(b, loop, x->a), TN_I64, false);
    bool           tile = tni_reg_is_tile(b, r);
    int            dst  = tni_new_reg(b, section, TN_I64, tile);
    tni_tile_step  s    = tni_plain_step(TNI_S_CHECK, dst, tile);
    s.a                 = r;
    s.ins               = v;
    tni_new_step(b, section, s);
    return dst;
}

// ---- where values are made ---------------------------------------------------------------------

// Returns the section that computes a value: as far out as its operands allow. A reduction is
// available one phase after its own.
static int section_of(const tni_builder *b, int loop, const tni_ins *x)
{
    bool col = x->per & TNI_PER_COL, fold = x->code == TNI_I_REDUCE;
    if (b->finish) return tni_finish_section(b->g, col ? TNI_FINISH_LOOP : TNI_FINISH_ONE);
    if (col) return tni_loop_section(loop);
    if (x->per == TNI_PER_ONE && x->phase == 0 && !fold) return TNI_SECTION_ONE;
    return tni_row_section(x->phase + fold);
}

// Makes the steps of a value in a section, and returns its register. loop: where its operands are
// read.
static int make_value(tni_builder *b, int section, int loop, int v)
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
    default:
        return x->over_p ? tni_make_tail_total(b, section, v) : tni_make_reduction(b, section, x);
    }
}

// Returns the elements that a loop over R visits in a unit, which is what a kept value takes.
static int64_t unit_elements(const tni_program *g)
{
    return g->cut.cols * (g->l->kernel->lane_in_r ? 1 : g->lanes);
}

// Has a register's elements computed where they stay for the whole unit. If they were being
// computed directly in an output, they are stored from there instead.
static void keep_reg(tni_builder *b, int reg)
{
    tni_program   *g     = b->g;
    tni_reg       *r     = &g->reg[reg];
    tni_tile_step *maker = &g->step[r->maker];
    bool           out   = maker->dest == TNI_DEST_OUT;
    r->keep              = g->keep_bytes;
    maker->dest          = TNI_DEST_KEPT;
    if (out) tni_make_dense_store(b, r->section, reg, maker->out, true);
}

// Returns a register for a costly value of an earlier loop, or -1 if computing it again is cheaper:
// below TNI_KEEP_COST_INTERPRETED, if it does not fit TNI_KEEP_MOST, or if it is a plain load,
// which reads memory either way. The exp of a softmax is the usual case: computed for the sum, kept
// for the division.
static int kept_reg(tni_builder *b, int loop, int v)
{
    tni_program *g    = b->g;
    int          from = -1;
    for (int q = 0; q < loop && from < 0; q++) from = g->loop_reg[q * b->k->nins + v];
    if (from < 0 || g->cost[v] < TNI_KEEP_COST_INTERPRETED) return -1;
    const tni_reg *r     = &g->reg[from];
    int            kind  = g->step[r->maker].kind;
    int64_t        bytes = unit_elements(g) * (int64_t)tni_dtype_size((tn_dtype)r->rep);
    if (r->keep < 0) {
        if (!r->tile || g->keep_bytes + bytes > TNI_KEEP_MOST) return -1;
        if (kind == TNI_S_IN_PLACE || kind == TNI_S_LOAD) return -1;
        keep_reg(b, from);
        g->keep_bytes += tni_align64(bytes);
    }
    int dst          = tni_new_reg(b, tni_loop_section(loop), (tn_dtype)r->rep, true);
    g->reg[dst].keep = g->reg[from].keep;
    tni_new_step(b, tni_loop_section(loop), tni_plain_step(TNI_S_KEPT, dst, true));
    return dst;
}

// The three caches are per loop, per row and for the finish stage, because a register made in one
// loop holds another tile in the next.
int tni_value_reg(tni_builder *b, int loop, int v)
{
    tni_program   *g   = b->g;
    const tni_ins *x   = &b->k->ins[v];
    bool           col = x->per & TNI_PER_COL && !b->finish;
    int32_t       *reg = col         ? &g->loop_reg[loop * b->k->nins + v]
                         : b->finish ? &g->fin_reg[v]
                                     : &g->row_reg[v];
    if (*reg >= 0) return *reg;
    int r = col && loop > 0 ? kept_reg(b, loop, v) : -1;
    if (r < 0) r = make_value(b, section_of(b, loop, x), col ? loop : -1, v);
    return *reg = r;
}
