// The C skeleton: loops over units, rows and lanes around the text of instructions.
//
// All work on elements happens in lane loops: plain `for` loops over at most TNI_STRIP neighbours of
// one axis, which the compiler vectorizes. A *block* is what surrounds one: pointers to the first
// element of each access, values that do not vary along the lanes, the loop, and the folds of what
// the loop left in tiles. Names in the text, for instruction or access i:
//
//   v  a value          p  pointer of an access at the block's first element
//   t  tile for a fold  a  accumulator in the value's own type   q  total   e  partial results
//   h  a row kept for later loops   w  a strip kept for later blocks   r, f  random words
//   c  coordinates      s  strides  o  places
#include "kernel/emit_c.h"

#include <stdio.h>
#include <string.h>

// A kernel while it is written.
typedef struct {
    tni_scribe        s;
    tni_out          *o;
    const tni_kernel *k;
    uint8_t           axes[TNI_MOST_INS];
    int               lane;    // the axis of the lanes; -1: there is none, all is one by one
    bool              finish;  // the stage being written
    bool              inside;  // within a lane loop
    tni_set           kept;    // elem values in rows of the room
    tni_set           strip;   // row values kept in a strip, where the lane is in P
    tni_set           eval;    // what the block computes
} writer;

enum { DEAR = 4 };  // a value that costs as much to compute again is kept

// ---- facts -------------------------------------------------------------------------------------

static const tni_ins *ins(const writer *w, int i)
{
    return &w->k->ins[i];
}

static bool on_lane(const writer *w, int i)
{
    return w->lane >= 0 && w->axes[i] >> w->lane & 1;
}

static bool is_tail(const tni_ins *x)
{
    return x->code == TNI_I_REDUCE && x->over_p;
}

// A tail with a partial result for each r.
static bool is_wide_tail(const tni_ins *x)
{
    return is_tail(x) && x->per & TNI_PER_COL;
}

// A REDUCE that folds lane by lane, over rows or elements; the others fold blocks of lanes.
static bool by_lane(const writer *w, const tni_ins *x)
{
    return w->k->lane_in_r ? is_wide_tail(x) : !is_tail(x);
}

static const char *type_of(const writer *w, int i)
{
    return tni_compute_type((tn_dtype)ins(w, i)->dtype);
}

static const char *wide_of(const writer *w, int i)
{
    return tni_wide_type((tn_dtype)ins(w, i)->dtype);
}

static tn_dtype wide_dtype(const tni_ins *x)
{
    return tni_is_float((tn_dtype)x->dtype) ? TN_F64 : TN_I64;
}

static int lane_class(const writer *w, const tni_ins *x)
{
    return w->lane < 0 ? TNI_STRIDE_0 : w->k->access[x->access].stride[w->lane];
}

// A load without index and guard, from memory that the kernel does not write.
static bool is_plain_load(const writer *w, const tni_ins *x)
{
    return x->code == TNI_I_LOAD && x->a < 0 && x->b < 0 &&
           !w->k->buffer[w->k->access[x->access].buffer].written;
}

// Whether the block folds the operand of REDUCE i where it lies in memory.
static bool folds_in_place(const writer *w, int i)
{
    const tni_ins *x = ins(w, i), *a;
    if (x->code != TNI_I_REDUCE || w->finish) return false;
    a = ins(w, x->a);
    if (!is_plain_load(w, a) || lane_class(w, a) != TNI_STRIDE_1) return false;
    if (by_lane(w, x)) return false;
    tn_dtype kept = (tn_dtype)w->k->buffer[w->k->access[a->access].buffer].dtype;
    return kept >= TN_I32 && kept == (tn_dtype)x->dtype && kept != TN_F16 && kept != TN_BF16;
}

// Whether random numbers are made for all lanes at once: neighbours share a block of the generator.
static bool is_filled(const writer *w, int i)
{
    const tni_ins *x = ins(w, i);
    if (x->code != TNI_I_RANDOM || x->dtype == TN_F64 || !on_lane(w, i)) return false;
    return ins(w, x->a)->code == TNI_I_PLACE && lane_class(w, ins(w, x->a)) == TNI_STRIDE_1;
}

static bool reads(const tni_ins *x, int i)
{
    return x->a == i || x->b == i || x->c == i;
}

// Whether the lane loop or a scalar of the block reads value i.
static bool is_read(const writer *w, int i)
{
    for (int j = i + 1; j < w->k->nins; j++)
        if (tni_has(&w->eval, j) && reads(ins(w, j), i) && !folds_in_place(w, j) &&
            !is_filled(w, j))
            return true;
    return tni_has(&w->kept, i) || tni_has(&w->strip, i);
}

// What the lane loop computes or does, of the block's instructions.
static bool in_lanes(const writer *w, int i)
{
    const tni_ins *x = ins(w, i);
    if (!tni_has(&w->eval, i) || folds_in_place(w, i)) return false;
    if (x->code == TNI_I_REDUCE && !w->finish) {
        if (w->lane < 0) return false;
        if (w->k->lane_in_r) return !is_tail(x) || is_wide_tail(x);
        return is_tail(x) || on_lane(w, i);
    }
    return on_lane(w, i);
}

// ---- places and callbacks ----------------------------------------------------------------------

static void put_cols(writer *w)
{
    tni_put(w->o, "(1");
    for (int i = 0; i < w->k->nr; i++) tni_put(w->o, " * arg[%d]", w->k->np + i);
    tni_put(w->o, ")");
}

static int arg_of(const writer *w, int access)
{
    int n = w->k->np + w->k->nr;
    return n + access * (n + 2);
}

static void put_stride(writer *w, int access, int axis)
{
    if (w->k->access[access].stride[axis] == TNI_STRIDE_N) tni_put(w->o, " * s%d_%d", access, axis);
}

// The place of an access at the block's first element.
static void put_place(writer *w, int access)
{
    tni_put(w->o, "arg[%d]", arg_of(w, access));
    for (int i = 0; i < w->k->np + w->k->nr; i++) {
        if (w->k->access[access].stride[i] == TNI_STRIDE_0) continue;
        if (i == w->lane) tni_put(w->o, " + base");
        else tni_put(w->o, " + c%d", i);
        put_stride(w, access, i);
    }
}

static void put_lane_offset(writer *w, const tni_ins *x)
{
    if (lane_class(w, x) == TNI_STRIDE_0) {
        tni_put(w->o, "0");
        return;
    }
    tni_put(w->o, "j");
    put_stride(w, x->access, w->lane);
}

static void value(tni_scribe *s, int i)
{
    tni_put(s->out, "v%d", i);
}

static void element(tni_scribe *s, int i)
{
    writer        *w = s->user;
    const tni_ins *x = ins(w, i);
    int            b = w->k->access[x->access].buffer;
    if (w->inside) {
        tni_put(w->o, "p%d[", i);
        put_lane_offset(w, x);
    } else {
        tni_put(w->o, "((%s *)buffer[%d])[", tni_kept_type((tn_dtype)w->k->buffer[b].dtype), b);
        put_place(w, x->access);
    }
    if (x->code == TNI_I_LOAD && x->a >= 0)
        tni_put(w->o, " + v%d * arg[%d]", x->a, arg_of(w, x->access + 1) - 1);
    tni_put(w->o, "]");
}

static void place(tni_scribe *s, int i)
{
    writer *w = s->user;
    tni_put(w->o, "(");
    if (w->inside) {
        tni_put(w->o, "o%d + ", i);
        put_lane_offset(w, ins(w, i));
    } else {
        put_place(w, ins(w, i)->access);
    }
    tni_put(w->o, ")");
}

static void number(tni_scribe *s, int n)
{
    tni_put(s->out, "number[%d]", n);
}

// ---- folds -------------------------------------------------------------------------------------

// The operand of a fold, in the fold's type.
static const char *operand(const writer *w, int i, char text[40])
{
    int         a = ins(w, i)->a;
    const char *t = type_of(w, i);
    if (!strcmp(t, type_of(w, a))) snprintf(text, 40, "v%d", a);
    else snprintf(text, 40, "(%s)v%d", t, a);
    return text;
}

static void put_fold(writer *w, int i, const char *into, const char *what, bool wide)
{
    const tni_ins *x  = ins(w, i);
    tn_dtype       dt = wide ? wide_dtype(x) : (tn_dtype)x->dtype;
    tni_put(w->o, "%*s%s = ", 4 * w->o->depth, "", into);
    tni_emit_fold(w->o, x->op, dt, into, what);
    tni_put(w->o, ";\n");
}

// What a REDUCE does in the lane loop: a lane of the tile, or of the accumulator.
static void put_lane_fold(writer *w, int i)
{
    const tni_ins *x = ins(w, i);
    char           into[40], what[40];
    operand(w, i, what);
    if (by_lane(w, x)) {
        snprintf(into, sizeof into, w->k->lane_in_r ? "a%d[at + j]" : "a%d[j]", i);
        put_fold(w, i, into, what, false);
    } else {
        tni_line(w->o, "t%d[j] = %s;", i, what);
    }
}

// After the lane loop: a block joins the total.
static void put_block_fold(writer *w, int i)
{
    const tni_ins *x = ins(w, i);
    char           into[40], what[100];
    bool           direct = folds_in_place(w, i);
    if (by_lane(w, x)) return;
    snprintf(into, sizeof into, is_wide_tail(x) ? "e%d[r]" : "q%d", i);
    snprintf(what, sizeof what, "f_block_%s_%c(%c%d, n)", tni_op_table[x->op].name,
             tni_compute_suffix((tn_dtype)x->dtype), direct ? 'p' : 't', direct ? x->a : i);
    put_fold(w, i, into, what, true);
}

// Without lanes: a row value joins the total of its tail, an element the accumulator.
static void put_single_fold(writer *w, int i)
{
    char into[40], what[40], wide[60];
    operand(w, i, what);
    snprintf(into, sizeof into, is_tail(ins(w, i)) ? "q%d" : "a%d", i);
    snprintf(wide, sizeof wide, "(%s)%s", wide_of(w, i), what);
    if (is_tail(ins(w, i))) put_fold(w, i, into, wide, true);
    else put_fold(w, i, into, what, false);
}

// ---- blocks ------------------------------------------------------------------------------------

static void put_pointer(writer *w, int i)
{
    const tni_ins *x     = ins(w, i);
    int            b     = w->k->access[x->access].buffer;
    const char    *type  = tni_kept_type((tn_dtype)w->k->buffer[b].dtype);
    const char    *fixed = x->code == TNI_I_LOAD ? "const " : "";
    tni_put(w->o, "%*s%s%s *p%d = (%s%s *)buffer[%d] + (", 4 * w->o->depth, "", fixed, type, i,
            fixed, type, b);
    put_place(w, x->access);
    tni_put(w->o, ");\n");
}

static void put_fill(writer *w, int i)
{
    const tni_ins *x      = ins(w, i);
    bool           normal = x->op == TNI_normal;
    const char    *type   = normal ? "float" : "m_uint";
    tni_put(w->o, "%*sconst m_ulong i%d = (m_ulong)(", 4 * w->o->depth, "", i);
    put_place(w, ins(w, x->a)->access);
    tni_put(w->o, ");\n");
    tni_line(w->o, "%s r%d[%d];", type, i, TNI_STRIP + 8);
    tni_line(w->o, "m_fill_%s(r%d, number[%d], number[%d], i%d, n);", normal ? "normal" : "words",
             i, x->number, x->number + 1, i);
    tni_line(w->o, "const %s *f%d = r%d + (i%d & 3u);", type, i, i, i);
}

// The lane of a random number that was made before the loop.
static void put_filled(writer *w, int i)
{
    const tni_ins *x = ins(w, i);
    if (x->op == TNI_normal) tni_put(w->o, "f%d[j]", i);
    else if (x->op == TNI_random_bits) tni_put(w->o, "(m_long)f%d[j]", i);
    else
        tni_put(w->o, "m_uniform_%s(f%d[j])",
                x->dtype == TN_F32 ? "f" : tn_dtype_name((tn_dtype)x->dtype), i);
}

// Whether REDUCE i is the first of the block to fold that load where it lies.
static bool is_first_fold(const writer *w, int i)
{
    for (int j = 0; j < i; j++)
        if (tni_has(&w->eval, j) && folds_in_place(w, j) && ins(w, j)->a == ins(w, i)->a)
            return false;
    return folds_in_place(w, i);
}

// What stands before the lane loop for instruction i.
static void put_before(writer *w, int i)
{
    const tni_ins *x = ins(w, i);
    if (x->code == TNI_I_REDUCE) {
        if (is_first_fold(w, i) && !tni_has(&w->eval, x->a)) put_pointer(w, x->a);
        if (in_lanes(w, i) && !by_lane(w, x) && !w->finish)
            tni_line(w->o, "%s t%d[%d];", type_of(w, i), i, TNI_STRIP);
    } else if (!on_lane(w, i)) {
        return;
    } else if (x->code == TNI_I_LOAD || x->code == TNI_I_STORE) {
        put_pointer(w, i);
    } else if (is_filled(w, i)) {
        put_fill(w, i);
    } else if (x->code == TNI_I_PLACE) {
        tni_put(w->o, "%*sconst m_long o%d = ", 4 * w->o->depth, "", i);
        put_place(w, x->access);
        tni_put(w->o, ";\n");
    }
}

static void put_value(writer *w, int i)
{
    tni_put(w->o, "%*sconst %s v%d = ", 4 * w->o->depth, "", type_of(w, i), i);
    if (w->inside && is_filled(w, i)) put_filled(w, i);
    else tni_emit_value(&w->s, i);
    tni_put(w->o, ";\n");
}

static void put_store(writer *w, int i)
{
    tni_put(w->o, "%*s", 4 * w->o->depth, "");
    tni_emit_store(&w->s, i);
    tni_put(w->o, ";\n");
}

// Values of the block that do not vary along the lanes.
static void put_singles(writer *w)
{
    for (int i = 0; i < w->k->nins; i++) {
        if (!tni_has(&w->eval, i) || in_lanes(w, i) || folds_in_place(w, i)) continue;
        if (ins(w, i)->code == TNI_I_STORE) put_store(w, i);
        else if (ins(w, i)->code == TNI_I_REDUCE) put_single_fold(w, i);
        else put_value(w, i);
    }
}

// Values that the lane loop reads and does not compute.
static void put_brought(writer *w)
{
    for (int i = 0; i < w->k->nins; i++) {
        bool wanted = false;
        if (!on_lane(w, i) || in_lanes(w, i)) continue;
        for (int j = i + 1; j < w->k->nins; j++)
            wanted |= in_lanes(w, j) && reads(ins(w, j), i) && !is_filled(w, j);
        if (!wanted) continue;
        tni_put(w->o, "%*sconst %s v%d = ", 4 * w->o->depth, "", type_of(w, i), i);
        if (ins(w, i)->code == TNI_I_REDUCE) tni_put(w->o, "(%s)q%d[j];\n", type_of(w, i), i);
        else tni_put(w->o, w->k->lane_in_r ? "h%d[at + j];\n" : "w%d[j];\n", i);
    }
}

static void put_lane(writer *w, int i)
{
    const tni_ins *x = ins(w, i);
    if (x->code == TNI_I_REDUCE) {
        if (!w->finish) put_lane_fold(w, i);
        else tni_line(w->o, "const %s v%d = (%s)q%d[j];", type_of(w, i), i, type_of(w, i), i);
        return;
    }
    if (x->code == TNI_I_STORE) {
        put_store(w, i);
        return;
    }
    put_value(w, i);
    if (tni_has(&w->kept, i)) tni_line(w->o, "h%d[at + j] = v%d;", i, i);
    if (tni_has(&w->strip, i)) tni_line(w->o, "w%d[j] = v%d;", i, i);
}

// Takes out of the block what nothing reads in it: loads that are folded where they lie, places of
// random numbers.
static void drop_unread(writer *w)
{
    for (int i = w->k->nins - 1; i >= 0; i--)
        if (tni_has(&w->eval, i) && ins(w, i)->code != TNI_I_STORE &&
            ins(w, i)->code != TNI_I_REDUCE && on_lane(w, i) && !is_read(w, i))
            w->eval.bit[i / 64] &= ~((uint64_t)1 << i % 64);
}

static bool any_lanes(const writer *w)
{
    for (int i = 0; i < w->k->nins; i++)
        if (in_lanes(w, i)) return true;
    return false;
}

// The lane loop and what goes around it; values that do not vary along it stand already.
static void put_lanes(writer *w)
{
    for (int i = 0; i < w->k->nins; i++)
        if (tni_has(&w->eval, i)) put_before(w, i);
    if (any_lanes(w)) {
        tni_line(w->o, "M_LANES for (m_long j = 0; j < n; j++) {");
        w->inside = true;
        if (!w->finish) put_brought(w);
        for (int i = 0; i < w->k->nins; i++)
            if (in_lanes(w, i)) put_lane(w, i);
        w->inside = false;
        tni_line(w->o, "}");
    }
    for (int i = 0; i < w->k->nins && !w->finish; i++)
        if (tni_has(&w->eval, i) && ins(w, i)->code == TNI_I_REDUCE &&
            (folds_in_place(w, i) || in_lanes(w, i)))
            put_block_fold(w, i);
}

static bool is_empty(const tni_set *s)
{
    for (size_t i = 0; i < sizeof s->bit / sizeof *s->bit; i++)
        if (s->bit[i]) return false;
    return true;
}

// ---- what is kept ------------------------------------------------------------------------------

static void join_set(tni_set *s, const tni_set *more)
{
    for (size_t i = 0; i < sizeof s->bit / sizeof *s->bit; i++) s->bit[i] |= more->bit[i];
}

static tni_set both(tni_set a, const tni_set *b)
{
    for (size_t i = 0; i < sizeof a.bit / sizeof *a.bit; i++) a.bit[i] &= b->bit[i];
    return a;
}

// What a loop computes, given what earlier ones left; adds to that what this one leaves.
static tni_set next_loop(const writer *w, int q, tni_set *have)
{
    tni_set s = tni_needs_loop(w->k, q, have), left = both(s, &w->kept);
    join_set(have, &left);
    return s;
}

// Drops the rows that no later loop reads, since another one that is kept stands between.
static void prune_kept(writer *w)
{
    tni_set have = { { 0 } }, read = { { 0 } };
    for (int q = 0; q < w->k->phases; q++) {
        tni_set s = next_loop(w, q, &have);
        for (int i = 0; i < w->k->nins; i++)
            for (int j = i + 1; j < w->k->nins; j++)
                if (!tni_has(&s, i) && tni_has(&s, j) && reads(ins(w, j), i)) tni_join(&read, i);
    }
    w->kept = both(w->kept, &read);
}

// Where the lane is in R a row fits in cache, so what is dear and needed again is kept.
static void choose_kept(writer *w)
{
    tni_set have = { { 0 } };
    for (int q = 0; q < w->k->phases && w->k->lane_in_r; q++) {
        tni_set now = tni_needs_loop(w->k, q, &have), later = { { 0 } };
        for (int p = q + 1; p < w->k->phases; p++) {
            tni_set s = tni_needs_loop(w->k, p, &have);
            join_set(&later, &s);
        }
        for (int i = 0; i < w->k->nins; i++)
            if (tni_has(&now, i) && tni_has(&later, i) && on_lane(w, i) &&
                tni_cost_again(w->k, i, &have) >= DEAR) {
                tni_join(&w->kept, i);
                tni_join(&have, i);
            }
    }
    prune_kept(w);
}

// A value that costs no more to have again than to keep in a strip.
static bool is_reloaded(const writer *w, int i)
{
    const tni_ins *x = ins(w, i);
    return on_lane(w, i) && (is_plain_load(w, x) || x->code == TNI_I_PLACE);
}

static bool is_one(const writer *w, int i)
{
    const tni_ins *x = ins(w, i);
    return !w->axes[i] && !x->phase && x->code != TNI_I_STORE && x->code != TNI_I_REDUCE;
}

// What the block at row point q computes, without what is computed once for all rows.
static tni_set row_set(const writer *w, int q)
{
    tni_set s = tni_needs_row(w->k, q), y = { { 0 } };
    for (int i = 0; i < w->k->nins; i++)
        if (tni_has(&s, i) && !is_one(w, i)) tni_join(&y, i);
    return y;
}

// Adds what is loaded again in a block because it reads it.
static tni_set with_reloads(const writer *w, tni_set s)
{
    for (int j = 0; j < w->k->nins && !w->k->lane_in_r; j++)
        for (int i = 0; i < j && tni_has(&s, j); i++)
            if (reads(ins(w, j), i) && is_reloaded(w, i) && !(ins(w, i)->per & TNI_PER_COL))
                tni_join(&s, i);
    return s;
}

// Marks the row values that a block reads and another one computes.
static void mark_strips(writer *w, const tni_set *s)
{
    for (int j = 0; j < w->k->nins; j++)
        for (int i = 0; i < j && tni_has(s, j); i++)
            if (reads(ins(w, j), i) && !tni_has(s, i) && on_lane(w, i) &&
                ins(w, i)->code != TNI_I_REDUCE)
                tni_join(&w->strip, i);
}

static void choose_strips(writer *w)
{
    for (int q = 0; q <= w->k->phases && !w->k->lane_in_r; q++) {
        tni_set row = with_reloads(w, row_set(w, q));
        mark_strips(w, &row);
        if (q == w->k->phases) break;
        tni_set loop = with_reloads(w, tni_needs_loop(w->k, q, NULL));
        mark_strips(w, &loop);
    }
}

static void open_writer(writer *w, tni_out *o, const tni_dialect *d, const tni_kernel *k)
{
    *w      = (writer){ .o = o, .k = k };
    w->s    = (tni_scribe){ .out     = o,
                            .dialect = d,
                            .kernel  = k,
                            .user    = w,
                            .value   = value,
                            .element = element,
                            .place   = place,
                            .number  = number };
    w->lane = k->lane_in_r ? k->np + k->nr - 1 : k->np - 1;
    tni_varies(k, w->axes);
    choose_kept(w);
    choose_strips(w);
}

// ---- the loops over R --------------------------------------------------------------------------

static void put_start(writer *w, int i, bool wide)
{
    const tni_ins *x = ins(w, i);
    tni_put(w->o, "%s", tni_fold_start(x->op, wide ? wide_dtype(x) : (tn_dtype)x->dtype));
}

// Accumulator and total of a reduction over R before its loop.
static void put_totals(writer *w, int i)
{
    tni_out *o = w->o;
    if (!w->k->lane_in_r && on_lane(w, i)) {
        tni_line(o, "%s a%d[%d];", type_of(w, i), i, TNI_STRIP);
        tni_line(o, "%s q%d[%d];", wide_of(w, i), i, TNI_STRIP);
        tni_put(o, "%*sfor (m_long j = 0; j < n; j++) a%d[j] = ", 4 * o->depth, "", i);
        put_start(w, i, false);
        tni_put(o, ", q%d[j] = ", i);
        put_start(w, i, true);
        tni_put(o, ";\n");
        return;
    }
    if (!w->k->lane_in_r) {
        tni_put(o, "%*s%s a%d = ", 4 * o->depth, "", type_of(w, i), i);
        put_start(w, i, false);
        tni_put(o, ";\n");
    }
    tni_put(o, "%*s%s q%d = ", 4 * o->depth, "", wide_of(w, i), i);
    put_start(w, i, true);
    tni_put(o, ";\n");
}

// An accumulator joins its total and begins again; `index` is "" or that of a lane.
static void put_join(writer *w, int i, char total, const char *index)
{
    char into[40], what[60];
    snprintf(into, sizeof into, "%c%d%s", total, i, index);
    snprintf(what, sizeof what, "(%s)a%d%s", wide_of(w, i), i, index);
    put_fold(w, i, into, what, true);
    tni_put(w->o, "%*sa%d%s = ", 4 * w->o->depth, "", i, index);
    put_start(w, i, false);
    tni_put(w->o, ";\n");
}

static bool folds_over_r(const writer *w, int i)
{
    return tni_has(&w->eval, i) && ins(w, i)->code == TNI_I_REDUCE && !is_tail(ins(w, i));
}

// Every TNI_GROUP elements of R, where the lane is in P.
static void put_group(writer *w)
{
    tni_out *o = w->o;
    tni_put(o, "%*sif ((r & %d) == %d || r + 1 == ", 4 * o->depth, "", TNI_GROUP - 1,
            TNI_GROUP - 1);
    put_cols(w);
    tni_put(o, ")");
    tni_line(o, " {");
    for (int i = 0; i < w->k->nins; i++) {
        if (!folds_over_r(w, i)) continue;
        if (on_lane(w, i)) {
            tni_line(o, "M_LANES for (m_long j = 0; j < n; j++) {");
            put_join(w, i, 'q', "[j]");
            tni_line(o, "}");
        } else {
            put_join(w, i, 'q', "");
        }
    }
    tni_line(o, "}");
}

// Whether the loop speaks of elements by their number in the row: `at`, or `r` where the lane is in P.
static bool counts(const writer *w)
{
    for (int i = 0; i < w->k->nins; i++) {
        const tni_ins *x = ins(w, i);
        if (tni_has(&w->eval, i) && is_wide_tail(x)) return true;
        if (!w->k->lane_in_r && folds_over_r(w, i)) return true;
        if (!tni_has(&w->kept, i)) continue;
        for (int j = i; j < w->k->nins; j++)
            if (tni_has(&w->eval, j) && (j == i || reads(ins(w, j), i))) return true;
    }
    return false;
}

static void put_strip_bounds(writer *w, int axis)
{
    tni_line(w->o, "const m_long n = arg[%d] - base < %d ? arg[%d] - base : %d;", axis, TNI_STRIP,
             axis, TNI_STRIP);
}

static void open_axes(writer *w, int from, int to)
{
    for (int i = from; i < to; i++)
        tni_line(w->o, "for (m_long c%d = 0; c%d < arg[%d]; c%d++) {", i, i, i, i);
}

static void close_axes(writer *w, int n)
{
    for (int i = 0; i < n; i++) tni_line(w->o, "}");
}

// Loops over all of R in blocks of its last axis, around one block.
static void put_rows_of_lanes(writer *w)
{
    int  last  = w->k->np + w->k->nr - 1;
    bool count = counts(w) || w->finish;
    if (count) tni_line(w->o, "m_long at = 0;");
    open_axes(w, w->k->np, last);
    tni_line(w->o, "for (m_long base = 0; base < arg[%d]; base += %d) {", last, TNI_STRIP);
    put_strip_bounds(w, last);
}

static void end_rows_of_lanes(writer *w)
{
    if (counts(w) || w->finish) tni_line(w->o, "at += n;");
    close_axes(w, w->k->nr);
}

// The elements of R one after the other, all lanes of the strip at each.
static void put_elements(writer *w)
{
    bool count = counts(w), fold = false;
    for (int i = 0; i < w->k->nins; i++) fold |= folds_over_r(w, i);
    if (count) tni_line(w->o, "m_long r = 0;");
    open_axes(w, w->k->np, w->k->np + w->k->nr);
    put_singles(w);
    put_lanes(w);
    if (fold) put_group(w);
    if (count) tni_line(w->o, "r++;");
    close_axes(w, w->k->nr);
}

static void put_loop(writer *w, int q, tni_set *have)
{
    w->eval = with_reloads(w, next_loop(w, q, have));
    if (is_empty(&w->eval)) return;
    drop_unread(w);
    for (int i = 0; i < w->k->nins; i++)
        if (folds_over_r(w, i)) put_totals(w, i);
    tni_line(w->o, "{");
    if (w->k->lane_in_r) {
        put_rows_of_lanes(w);
        put_singles(w);
        put_lanes(w);
        end_rows_of_lanes(w);
    } else {
        put_elements(w);
    }
    tni_line(w->o, "}");
    for (int i = 0; i < w->k->nins; i++)
        if (folds_over_r(w, i) && (w->k->lane_in_r || !on_lane(w, i)))
            tni_line(w->o, "const %s v%d = (%s)q%d;", type_of(w, i), i, type_of(w, i), i);
}

static void put_row(writer *w, int q)
{
    w->eval = with_reloads(w, row_set(w, q));
    drop_unread(w);
    put_singles(w);
    if (!any_lanes(w)) {
        bool direct = false;
        for (int i = 0; i < w->k->nins; i++) direct |= tni_has(&w->eval, i) && folds_in_place(w, i);
        if (!direct) return;
    }
    tni_line(w->o, "{");
    put_lanes(w);
    tni_line(w->o, "}");
}

// ---- tails -------------------------------------------------------------------------------------

// How many partial results stand before those of instruction `end`, in a chunk.
static void put_before_tail(writer *w, int end)
{
    int wide = 0, narrow = 0;
    for (int i = 0; i < end; i++) {
        wide += is_wide_tail(ins(w, i));
        narrow += is_tail(ins(w, i)) && !is_wide_tail(ins(w, i));
    }
    tni_put(w->o, "(%d", narrow);
    if (wide) {
        tni_put(w->o, " + %d * ", wide);
        put_cols(w);
    }
    tni_put(w->o, ")");
}

// The partial results of a tail in the chunk that `chunk` says, as a pointer.
static void put_partials(writer *w, int i, const char *chunk)
{
    tni_put(w->o, "((%s *)partials + (%s * ", wide_of(w, i), chunk);
    put_before_tail(w, w->k->nins);
    tni_put(w->o, " + ");
    put_before_tail(w, i);
    tni_put(w->o, "))");
}

static void put_row_pointer(writer *w, char name, int i)
{
    tni_line(w->o, "%s *%c%d = (%s *)room;", type_of(w, i), name, i, type_of(w, i));
    tni_put(w->o, "%*sroom += (", 4 * w->o->depth, "");
    put_cols(w);
    tni_put(w->o, " * (m_long)sizeof(%s) + 63) / 64 * 64;\n", type_of(w, i));
}

static void put_tail_begin(writer *w, int i)
{
    tni_out *o = w->o;
    if (!is_wide_tail(ins(w, i))) {
        tni_put(o, "%*s%s q%d = ", 4 * o->depth, "", wide_of(w, i), i);
        put_start(w, i, true);
        tni_put(o, ";\n");
        return;
    }
    tni_put(o, "%*s%s *e%d = ", 4 * o->depth, "", wide_of(w, i), i);
    put_partials(w, i, "chunk");
    tni_put(o, ";\n");
    if (w->k->lane_in_r) put_row_pointer(w, 'a', i);
    tni_put(o, "%*sfor (m_long j = 0; j < ", 4 * o->depth, "");
    put_cols(w);
    tni_put(o, "; j++) e%d[j] = ", i);
    put_start(w, i, true);
    if (w->k->lane_in_r) {
        tni_put(o, ", a%d[j] = ", i);
        put_start(w, i, false);
    }
    tni_put(o, ";\n");
}

// At the end of a row: every TNI_GROUP rows accumulators join the partial results.
static void put_tail_group(writer *w)
{
    tni_out *o = w->o;
    tni_line(o, "if (((u - first) & %d) == %d || u + 1 == last) {", TNI_GROUP - 1, TNI_GROUP - 1);
    for (int i = 0; i < w->k->nins; i++) {
        if (!is_wide_tail(ins(w, i))) continue;
        tni_put(o, "%*sM_LANES for (m_long j = 0; j < ", 4 * o->depth, "");
        put_cols(w);
        tni_put(o, "; j++)");
        tni_line(o, " {");
        put_join(w, i, 'e', "[j]");
        tni_line(o, "}");
    }
    tni_line(o, "}");
}

static void put_tail_end(writer *w, int i)
{
    if (is_wide_tail(ins(w, i))) return;
    tni_put(w->o, "%*s*", 4 * w->o->depth, "");
    put_partials(w, i, "chunk");
    tni_put(w->o, " = q%d;\n", i);
}

// ---- the main stage ----------------------------------------------------------------------------

static bool has_access(const tni_ins *x)
{
    return x->code == TNI_I_LOAD || x->code == TNI_I_STORE || x->code == TNI_I_PLACE;
}

// The strides that are no constants.
static void put_strides(writer *w, const tni_set *s)
{
    bool done[TNI_MOST_ACCESS] = { false };
    for (int i = 0; i < w->k->nins; i++) {
        const tni_ins *x = ins(w, i);
        if (!tni_has(s, i) || !has_access(x) || done[x->access]) continue;
        done[x->access] = true;
        for (int axis = 0; axis < w->k->np + w->k->nr; axis++)
            if (w->k->access[x->access].stride[axis] == TNI_STRIDE_N)
                tni_line(w->o, "const m_long s%d_%d = arg[%d];", x->access, axis,
                         arg_of(w, x->access) + 1 + axis);
    }
}

static void put_ones(writer *w, const tni_set *s)
{
    w->eval = (tni_set){ { 0 } };
    for (int i = 0; i < w->k->nins; i++)
        if (tni_has(s, i) && is_one(w, i)) tni_join(&w->eval, i);
    put_singles(w);
}

// Axes that a unit has a coordinate on: all of P, without the lanes.
static int unit_axes(const writer *w)
{
    return w->k->lane_in_r || w->lane < 0 ? w->k->np : w->k->np - 1;
}

static bool is_used(const writer *w, const tni_set *s, int axis)
{
    for (int i = 0; i < w->k->nins; i++)
        if (tni_has(s, i) && has_access(ins(w, i)) && w->k->access[ins(w, i)->access].stride[axis])
            return true;
    return false;
}

// The coordinates of the first unit.
static void put_coordinates(writer *w, const tni_set *s)
{
    int n = unit_axes(w);
    if (!w->k->lane_in_r && w->lane >= 0) {
        tni_line(w->o, "const m_long strips = (arg[%d] + %d) / %d;", w->lane, TNI_STRIP - 1,
                 TNI_STRIP);
        tni_line(w->o, "m_long strip = first %% strips;");
    }
    if (n > 0)
        tni_line(w->o, "m_long c0 = first%s;", !w->k->lane_in_r && w->lane >= 0 ? " / strips" : "");
    for (int i = n - 1; i > 0; i--) {
        tni_line(w->o, "m_long c%d = c0 %% arg[%d];", i, i);
        tni_line(w->o, "c0 /= arg[%d];", i);
    }
    for (int i = 0; i < n; i++)
        if (!is_used(w, s, i)) tni_line(w->o, "(void)c%d;", i);
}

static void put_next(writer *w)
{
    int n = unit_axes(w);
    for (int i = n - 1; i > 0; i--) {
        tni_line(w->o, "if (++c%d == arg[%d]) {", i, i);
        tni_line(w->o, "c%d = 0;", i);
    }
    if (n > 0) tni_line(w->o, "c0++;");
    close_axes(w, n - 1);
}

// Strips that lie side by side are done in one go where nothing depends on where they end.
static bool is_merged(const writer *w)
{
    for (int i = 0; i < w->k->nins; i++)
        if (is_filled(w, i)) return false;
    return !w->k->nr && !w->k->tails;
}

static void open_strip(writer *w)
{
    tni_out *o = w->o;
    tni_line(o, "for (m_long u = first; u < last;) {");
    if (is_merged(w))
        tni_line(o, "const m_long many = strips - strip < last - u ? strips - strip : last - u;");
    else tni_line(o, "const m_long many = 1;");
    tni_line(o, "const m_long base = strip * %d, left = arg[%d] - base;", TNI_STRIP, w->lane);
    tni_line(o, "const m_long n = left < many * %d ? left : many * %d;", TNI_STRIP, TNI_STRIP);
    for (int i = 0; i < w->k->nins; i++)
        if (tni_has(&w->strip, i)) tni_line(o, "%s w%d[%d];", type_of(w, i), i, TNI_STRIP);
}

static void close_strip(writer *w)
{
    tni_line(w->o, "u += many;");
    tni_line(w->o, "strip += many;");
    tni_line(w->o, "if (strip == strips) {");
    tni_line(w->o, "strip = 0;");
    put_next(w);
    tni_line(w->o, "}");
    tni_line(w->o, "}");
}

static void put_unit(writer *w)
{
    tni_set have = { { 0 } };
    bool    wide = false;
    for (int q = 0; q <= w->k->phases; q++) {
        put_row(w, q);
        if (q < w->k->phases) put_loop(w, q, &have);
    }
    for (int i = 0; i < w->k->nins; i++) wide |= is_wide_tail(ins(w, i));
    if (wide && w->k->lane_in_r) put_tail_group(w);
}

static void put_units(writer *w)
{
    if (!w->k->lane_in_r && w->lane >= 0) {
        open_strip(w);
        put_unit(w);
        close_strip(w);
        return;
    }
    tni_line(w->o, "for (m_long u = first; u < last; u++) {");
    put_unit(w);
    put_next(w);
    tni_line(w->o, "}");
}

static void put_main(writer *w, const char *name)
{
    tni_set s = tni_needs_main(w->k);
    tni_line(w->o, "void %s(char *const *buffer, const m_long *arg, const m_ulong *number,", name);
    tni_line(w->o, "    m_long first, m_long last, m_long chunk, char *partials, char *room,");
    tni_line(w->o, "    m_long *fail)");
    tni_line(w->o, "{");
    put_strides(w, &s);
    for (int i = 0; i < w->k->nins; i++) {
        if (tni_has(&w->kept, i)) put_row_pointer(w, 'h', i);
        if (is_tail(ins(w, i))) put_tail_begin(w, i);
    }
    put_ones(w, &s);
    put_coordinates(w, &s);
    put_units(w);
    for (int i = 0; i < w->k->nins; i++)
        if (is_tail(ins(w, i))) put_tail_end(w, i);
    tni_line(w->o, "}");
}

// ---- the finish stage --------------------------------------------------------------------------

// The total of a tail over all chunks: one, or those of the block's lanes.
static void put_tail_total(writer *w, int i)
{
    tni_out    *o     = w->o;
    bool        wide  = is_wide_tail(ins(w, i));
    const char *lanes = wide ? "M_LANES for (m_long j = 0; j < n; j++) " : "";
    char        into[40];
    snprintf(into, sizeof into, wide ? "q%d[j]" : "q%d", i);
    if (wide) tni_line(o, "%s q%d[%d];", wide_of(w, i), i, TNI_STRIP);
    else tni_line(o, "%s q%d;", wide_of(w, i), i);
    tni_put(o, "%*s%s%s = ", 4 * o->depth, "", lanes, into);
    put_start(w, i, true);
    tni_put(o, ";\n");
    tni_line(o, "for (m_long i = 0; i < chunks; i++) {");
    tni_put(o, "%*sconst %s *e%d = ", 4 * o->depth, "", wide_of(w, i), i);
    put_partials(w, i, "i");
    tni_put(o, wide ? " + at;\n" : ";\n");
    tni_put(o, "%*s%s", 4 * o->depth, "", lanes);
    tni_put(o, "%s = o_%s_%c(%s, e%d[%s]);\n", into, tni_op_table[ins(w, i)->op].name,
            tni_compute_suffix(wide_dtype(ins(w, i))), into, i, wide ? "j" : "0");
    tni_line(o, "}");
    if (!wide) tni_line(o, "const %s v%d = (%s)q%d;", type_of(w, i), i, type_of(w, i), i);
}

static void put_finish_ones(writer *w)
{
    tni_set s = tni_needs_finish(w->k, false);
    for (int i = 0; i < w->k->nins; i++)
        if (tni_has(&s, i) && is_tail(ins(w, i))) put_tail_total(w, i);
    w->eval = (tni_set){ { 0 } };
    for (int i = 0; i < w->k->nins; i++)
        if (tni_has(&s, i) && !is_tail(ins(w, i))) tni_join(&w->eval, i);
    put_singles(w);
}

static void put_finish_cols(writer *w)
{
    w->eval = tni_needs_finish(w->k, true);
    if (is_empty(&w->eval)) return;
    put_rows_of_lanes(w);
    for (int i = 0; i < w->k->nins; i++)
        if (tni_has(&w->eval, i) && is_tail(ins(w, i))) put_tail_total(w, i);
    put_singles(w);
    put_lanes(w);
    end_rows_of_lanes(w);
}

static void put_finish(writer *w, const char *name)
{
    tni_set s = tni_needs_finish(w->k, false), cols = tni_needs_finish(w->k, true);
    bool    checks = false;
    join_set(&s, &cols);
    w->finish = true;
    w->lane   = w->k->nr ? w->k->np + w->k->nr - 1 : -1;
    w->kept = w->strip = (tni_set){ { 0 } };
    for (int i = 0; i < w->k->nins; i++) checks |= tni_has(&s, i) && ins(w, i)->code == TNI_I_CHECK;
    tni_line(w->o, "void %s_finish(char *const *buffer, const m_long *arg, const m_ulong *number,",
             name);
    tni_line(w->o, "    m_long chunks, char *partials, char *room)");
    tni_line(w->o, "{");
    if (checks) tni_line(w->o, "m_long fail[2] = { 0, 0 };");
    put_strides(w, &s);
    put_finish_ones(w);
    put_finish_cols(w);
    tni_line(w->o, "}");
}

// ---- the interface -----------------------------------------------------------------------------

void tni_emit_c(tni_out *o, const tni_dialect *d, const tni_emit_item *item, bool no_double)
{
    writer w;
    open_writer(&w, o, d, item->kernel);
    w.s.no_double = no_double;
    put_main(&w, item->name);
    if (item->kernel->tails) put_finish(&w, item->name);
}

int tni_emit_c_args(const tni_launch *l, int64_t *arg)
{
    int axes = l->kernel->np + l->kernel->nr, n = 0;
    for (int i = 0; i < axes; i++) arg[n++] = l->size[i];
    for (int i = 0; i < l->kernel->naccess; i++) {
        arg[n++] = l->offset[i];
        for (int j = 0; j < axes; j++) arg[n++] = l->stride[i][j];
        arg[n++] = l->stride[i][TNI_AXES];
    }
    return n;
}

void tni_emit_c_rows(const tni_kernel *k, int rows[2])
{
    writer w;
    open_writer(&w, NULL, NULL, k);
    rows[0] = rows[1] = 0;
    for (int i = 0; i < k->nins; i++)
        if (tni_has(&w.kept, i) || (is_wide_tail(&k->ins[i]) && k->lane_in_r)) {
            char s = tni_compute_suffix((tn_dtype)k->ins[i].dtype);
            rows[s == 'd' || s == 'l']++;
        }
}

size_t tni_c_room(const int rows[2], int64_t cols)
{
    size_t n = (size_t)cols;
    return (size_t)rows[0] * ((n * 4 + 63) / 64 * 64) + (size_t)rows[1] * ((n * 8 + 63) / 64 * 64);
}

size_t tni_emit_c_room(const tni_launch *l)
{
    int rows[2];
    tni_emit_c_rows(l->kernel, rows);
    return tni_c_room(rows, tni_kernel_cut(l).cols);
}
