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
    int               lane;     // the axis of the lanes; -1: there is none, all is one by one
    bool              finish;   // the stage being written
    bool              inside;   // within a lane loop
    tni_set           kept;     // elem values in rows of the room
    tni_set           strip;    // row values kept in a strip, where the lane is in P
    tni_set           eval;     // what the block computes
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
    if (a->code != TNI_I_LOAD || a->a >= 0 || a->b >= 0 || lane_class(w, a) != TNI_STRIDE_1)
        return false;
    if (w->k->lane_in_r ? is_wide_tail(x) : !is_tail(x)) return false;  // these have no blocks
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
    if (w->k->lane_in_r == is_wide_tail(x) && (w->k->lane_in_r || !is_tail(x))) {
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
    if (w->k->lane_in_r ? is_tail(x) : !is_tail(x)) return;
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

// What stands before the lane loop for instruction i.
static void put_before(writer *w, int i)
{
    const tni_ins *x = ins(w, i);
    if (x->code == TNI_I_REDUCE) {
        if (folds_in_place(w, i) && !tni_has(&w->eval, x->a)) put_pointer(w, x->a);
        if (folds_in_place(w, i) || !in_lanes(w, i)) return;
        if (w->k->lane_in_r ? !is_tail(x) : is_tail(x))
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
        put_brought(w);
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
