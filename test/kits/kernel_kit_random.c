// kernel_kit_random.c: random kernels. Instructions are drawn one after the other and taken back
// when the list no longer seals.
#include "kernel_kit.h"

#include <string.h>

// A kernel on the way. read: whether anything reads an instruction.
typedef struct {
    kit_case *c;
    uint64_t  s;
    int       flags, axes;
    int       reductions, tails;
    bool      read[TNI_MAX_INS];
} gen;

static bool chance(gen *g, int percent)
{
    return kit_below(&g->s, 100) < percent;
}

// ---- sizes and layouts -------------------------------------------------------------------------

static int64_t draw_size(gen *g, bool lane, int64_t left)
{
    int64_t most = left < 40 ? left : 40;
    if (lane && left >= 3000 && chance(g, 25)) return 1023 + kit_below(&g->s, 1978);
    if (!lane && chance(g, 60)) most = most < 9 ? most : 9;
    if (!lane && left >= 400 && chance(g, 12)) most = 400;
    return most < 2 ? 2 : 2 + kit_below(&g->s, most - 1);
}

static void draw_domain(gen *g)
{
    int     np = 1 + (int)kit_below(&g->s, 3), nr = (int)kit_below(&g->s, 4);
    bool    in_r = nr > 0 && chance(g, 50);
    int     lane = in_r ? np + nr - 1 : np - 1;
    int64_t size[TNI_AXES], left = g->flags & KIT_SMALL ? 4000 : chance(g, 6) ? 90000 : 12000;
    size[lane] = draw_size(g, true, left);
    left /= size[lane];
    for (int i = 0; i < np + nr; i++) {
        if (i == lane) continue;
        size[i] = draw_size(g, false, left);
        left /= size[i];
    }
    if (np == 1 && chance(g, 8)) size[0] = 1;
    kit_case *c    = g->c;
    uint64_t  seed = c->seed;
    kit_begin(c, np, size, nr, size + np, in_r);
    c->seed   = seed;
    c->k.wide = chance(g, 30);
    g->axes   = np + nr;
}

// A layout of the axes in the mask, which does not meet itself: row-major or in any order, with
// gaps, backwards. The number of elements that it spans; stride and the place of the first element.
static int64_t draw_layout(gen *g, unsigned mask, const int64_t *size, int64_t *stride,
                           int64_t *first)
{
    int     order[TNI_AXES], n = 0;
    int64_t step  = chance(g, 8) ? 2 : 1;
    bool    plain = chance(g, 50);
    *first        = 0;
    memset(stride, 0, TNI_AXES * sizeof *stride);
    for (int i = 0; i < g->axes; i++) {
        if (!(mask >> i & 1)) continue;
        int at = plain || n == 0 ? n : (int)kit_below(&g->s, n + 1);
        memmove(order + at + 1, order + at, (size_t)(n - at) * sizeof *order);
        order[at] = i;
        n++;
    }
    for (int k = n - 1; k >= 0; k--) {
        int  i    = order[k];
        bool back = !plain && chance(g, 12);
        stride[i] = back ? -step : step;
        if (back) *first += (size[i] - 1) * step;
        step = step * size[i] + (!plain && chance(g, 15) ? 3 : 0);
    }
    return step;
}

static unsigned all_axes(const gen *g, int per)
{
    unsigned p = (1u << g->c->k.np) - 1, r = (1u << g->axes) - 1 - p;
    return (per & TNI_PER_ROW ? p : 0) | (per & TNI_PER_COL ? r : 0);
}

static unsigned draw_mask(gen *g)
{
    if (chance(g, 55)) return all_axes(g, TNI_PER_ELEM);
    if (chance(g, 50)) return all_axes(g, (int)kit_below(&g->s, 3));
    return (unsigned)kit_below(&g->s, 1 << g->axes);
}

// ---- instructions ------------------------------------------------------------------------------

static tn_dtype draw_dtype(gen *g)
{
    static const tn_dtype some[] = { TN_F32,  TN_F32, TN_F32, TN_F32, TN_F32, TN_F16, TN_BF16,
                                     TN_BF16, TN_F64, TN_I32, TN_I64, TN_U8,  TN_I8,  TN_BOOL };
    tn_dtype              dt     = some[kit_below(&g->s, sizeof some / sizeof *some)];
    return dt == TN_F64 && g->flags & KIT_NO_F64 ? TN_F32 : dt;
}

static const tni_ins *ins(const gen *g, int i)
{
    return &g->c->k.ins[i];
}

// Whether the kernel still holds with its last instruction; else it is taken back.
static bool holds(gen *g, int at)
{
    tni_kernel *k          = &g->c->k;
    bool        ok         = tni_kernel_seal(k);
    tni_ins    *x          = &k->ins[at];
    int16_t     operand[3] = { x->a, x->b, x->c };
    // The finish stage has no rows: it cannot compute a reduction over R again.
    for (int i = 0; i < 3 && ok; i++) {
        if (operand[i] < 0 || !x->finish || (x->code == TNI_I_REDUCE && x->over_p)) continue;
        const tni_ins *y = &k->ins[operand[i]];
        ok               = y->finish || (y->phase == 0 && y->code != TNI_I_REDUCE);
    }
    if (x->phase > 3) ok = false;
    if (!ok) {
        k->nins = (int16_t)at;
        tni_kernel_seal(k);
        return false;
    }
    for (int i = 0; i < 3; i++)
        if (operand[i] >= 0) g->read[operand[i]] = true;
    g->read[at] = false;
    return true;
}

// A value drawn from those there are, rather a late one; -1 if none of the dtype (-1: any) is met.
static int draw_value(gen *g, int dtype)
{
    int n = g->c->k.nins;
    for (int tries = 0; tries < 12; tries++) {
        int at = chance(g, 60) && n > 6 ? n - 1 - (int)kit_below(&g->s, 6)
                                        : (int)kit_below(&g->s, n);
        if (ins(g, at)->code == TNI_I_STORE) continue;
        if (dtype < 0 || ins(g, at)->dtype == dtype) return at;
    }
    return -1;
}

// A value of a dtype, with a cast where none is found.
static int value_as(gen *g, tn_dtype dt)
{
    int v = draw_value(g, (int)dt);
    if (v >= 0) return v;
    v = kit_cast(g->c, dt, draw_value(g, -1));
    return holds(g, v) ? v : -1;
}

static int load_plain(gen *g)
{
    int64_t stride[TNI_AXES], first;
    int64_t count  = draw_layout(g, draw_mask(g), g->c->l.size, stride, &first);
    int     buffer = kit_buffer(g->c, draw_dtype(g), count, false);
    return kit_load(g->c, kit_access(g->c, buffer, first, stride, 0));
}

// Elements of a table by an index that is read, or computed.
static int load_indexed(gen *g)
{
    enum { TABLE = 47 };
    kit_case *c = g->c;
    int64_t   stride[TNI_AXES], first, place[TNI_AXES];
    int64_t   count = draw_layout(g, draw_mask(g), c->l.size, place, &first);
    int index  = kit_load(c, kit_access(c, kit_buffer(c, TN_I64, count, false), first, place, 0));
    index      = kit_check(c, index, TABLE);
    count      = draw_layout(g, draw_mask(g), c->l.size, stride, &first);
    int buffer = kit_buffer(c, draw_dtype(g), count * TABLE, false);
    return kit_load_at(c, kit_access(c, buffer, first, stride, count), index, TNI_NO_VALUE);
}

// A load that reaches memory only in lo .. hi-1 of one axis.
static int load_guarded(gen *g)
{
    kit_case *c             = g->c;
    int       ax            = (int)kit_below(&g->s, g->axes);
    int64_t   lo            = kit_below(&g->s, c->l.size[ax]);
    int64_t   hi            = lo + kit_below(&g->s, c->l.size[ax] - lo + 1);
    int64_t   one[TNI_AXES] = { 0 }, size[TNI_AXES], stride[TNI_AXES], first;
    memcpy(size, c->l.size, sizeof size);
    one[ax]       = 1;
    size[ax]      = hi - lo > 0 ? hi - lo : 1;
    int     place = kit_place(c, 0, one);
    int     above = kit_map(c, TNI_ge, place, kit_number(c, TN_I64, (double)lo), TNI_NO_VALUE);
    int     below = kit_map(c, TNI_lt, place, kit_number(c, TN_I64, (double)hi), TNI_NO_VALUE);
    int     guard = kit_map(c, TNI_logical_and, above, below, TNI_NO_VALUE);
    int64_t count = draw_layout(g, draw_mask(g) | 1u << ax, size, stride, &first);
    int     at = kit_access(c, kit_buffer(c, draw_dtype(g), count, false), first - lo * stride[ax],
                            stride, 0);
    return kit_load_at(c, at, TNI_NO_VALUE, guard);
}

static int draw_random(gen *g)
{
    static const int ops[] = { TNI_random_bits, TNI_uniform, TNI_normal };
    int64_t          stride[TNI_AXES], first;
    int              op = ops[kit_below(&g->s, 3)];
    tn_dtype         dt = draw_dtype(g);
    if (op == TNI_random_bits) dt = TN_I64;
    else if (!tni_is_float(dt)) dt = TN_F32;
    draw_layout(g, draw_mask(g), g->c->l.size, stride, &first);
    int place = kit_place(g->c, first + kit_below(&g->s, 9), stride);
    return kit_random(g->c, op, dt, place, kit_draw(&g->s), kit_draw(&g->s));
}

static void draw_source(gen *g)
{
    int     before = g->c->k.nins, kind = (int)kit_below(&g->s, 100);
    int64_t stride[TNI_AXES], first;
    if (kind < 8 && !(g->flags & KIT_NO_INDEX)) load_indexed(g);
    else if (kind < 16) load_guarded(g);
    else if (kind < 22) draw_random(g);
    else if (kind < 35) kit_number(g->c, draw_dtype(g), (double)(1 + kit_below(&g->s, 3)));
    else if (kind < 40) {
        draw_layout(g, draw_mask(g), g->c->l.size, stride, &first);
        kit_place(g->c, first, stride);
    } else load_plain(g);
    tni_kernel_seal(&g->c->k);
    for (int i = before; i < g->c->k.nins; i++) {
        g->read[i] = i + 1 < g->c->k.nins;
    }
}

static void draw_map(gen *g)
{
    static const int likely[] = { TNI_add, TNI_sub, TNI_mul,  TNI_maximum, TNI_minimum,
                                  TNI_neg, TNI_exp, TNI_tanh, TNI_abs,     TNI_where,
                                  TNI_lt,  TNI_div, TNI_sqrt, TNI_add,     TNI_mul };
    int              op       = likely[kit_below(&g->s, sizeof likely / sizeof *likely)];
    tn_dtype         in, out;
    if (chance(g, 30)) op = TNI_neg + (int)kit_below(&g->s, TNI_where - TNI_neg + 1);
    int a = draw_value(g, -1), b = TNI_NO_VALUE, c = TNI_NO_VALUE;
    if (a < 0 || op == TNI_cast) return;
    tn_dtype dt = (tn_dtype)ins(g, a)->dtype;
    if (!tni_dtype_rule_apply(tni_op_table[op].rule, dt, &in, &out) || in != dt) return;
    if (tni_op_table[op].rule == TNI_REAL && !tni_is_float(dt)) return;
    if (tni_op_table[op].class != TNI_UNARY && (b = value_as(g, dt)) < 0) return;
    if (tni_op_table[op].class == TNI_TERNARY) {
        c = b;
        b = a;
        if ((a = value_as(g, TN_BOOL)) < 0) return;
    }
    holds(g, kit_map(g->c, op, a, b, c));
}

static void draw_cast(gen *g)
{
    int v = draw_value(g, -1);
    if (v >= 0) holds(g, kit_cast(g->c, draw_dtype(g), v));
}

static void draw_reduce(gen *g, bool over_p)
{
    static const int ops[] = { TNI_sum, TNI_sum, TNI_sum, TNI_max, TNI_min, TNI_prod };
    int              op = ops[kit_below(&g->s, 6)], v = draw_value(g, -1);
    if (v < 0 || (over_p ? g->tails : g->reductions) >= (over_p ? 2 : 3)) return;
    if (op != TNI_max && op != TNI_min && !tni_is_float((tn_dtype)ins(g, v)->dtype) &&
        ins(g, v)->dtype != TN_I64) {
        v = kit_cast(g->c, TN_I64, v);
        if (!holds(g, v)) return;
    }
    if (!holds(g, kit_reduce(g->c, op, v, over_p))) return;
    if (over_p) g->tails++;
    else g->reductions++;
}

// ---- stores ------------------------------------------------------------------------------------

static void draw_store(gen *g, int v)
{
    kit_case *c = g->c;
    int     per = ins(g, v)->per & TNI_PER_COL || (c->k.nr > 0 && chance(g, 12)) ? TNI_PER_COL : 0;
    int64_t stride[TNI_AXES], first;
    if (!ins(g, v)->finish) per |= TNI_PER_ROW;
    int64_t  count = draw_layout(g, all_axes(g, per), c->l.size, stride, &first);
    tn_dtype dt    = chance(g, 70) ? (tn_dtype)ins(g, v)->dtype : draw_dtype(g);
    int      at    = kit_access(c, kit_buffer(c, dt, count, true), first, stride, 0);
    holds(g, kit_store(c, at, v));
}

// A map stores into the memory of a load that varies everywhere, which nothing later reads.
static void store_in_place(gen *g)
{
    tni_kernel *k = &g->c->k;
    int         v = draw_value(g, -1), n = k->nins;
    if (v < 0 || k->nr || k->tails) return;
    for (int i = 0; i < n; i++) {
        const tni_ins *x = &k->ins[i];
        if (x->code != TNI_I_LOAD || x->a >= 0 || x->b >= 0) continue;
        int  b    = k->access[x->access].buffer;
        bool full = !k->buffer[b].written;
        for (int j = 0; j < g->axes; j++)
            full &= k->access[x->access].stride[j] != TNI_STRIDE_0 || g->c->l.size[j] == 1;
        if (!full) continue;
        k->buffer[b].written = 1;
        if (!holds(g, kit_store(g->c, x->access, v))) k->buffer[b].written = 0;
        return;
    }
}

static void draw_stores(gen *g)
{
    int n = g->c->k.nins, stores = 0, most = 2 + (int)kit_below(&g->s, 3);
    for (int i = n - 1; i >= 0; i--) {
        bool fold = ins(g, i)->code == TNI_I_REDUCE || ins(g, i)->finish;
        if (g->read[i] || (!fold && stores >= most)) continue;
        draw_store(g, i);
        stores++;
    }
    if (chance(g, 50)) store_in_place(g);
}

bool kit_random_case(kit_case *c, uint64_t seed, int flags)
{
    gen g = { .c = c, .s = seed * 7919 + 1, .flags = flags };
    memset(c, 0, sizeof *c);
    c->seed = seed;
    draw_domain(&g);
    for (int n = 1 + (int)kit_below(&g.s, 4); n > 0; n--) draw_source(&g);
    for (int n = 3 + (int)kit_below(&g.s, 22); n > 0; n--) {
        int kind = (int)kit_below(&g.s, 100);
        if (kind < 62) draw_map(&g);
        else if (kind < 70) draw_cast(&g);
        else if (kind < 82) draw_reduce(&g, false);
        else if (kind < 90) draw_reduce(&g, true);
        else draw_source(&g);
    }
    draw_stores(&g);
    return kit_end(c);
}
