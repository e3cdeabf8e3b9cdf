// Prints a block of a C kernel: pointers to the first element of each access, values that do not
// vary along the lanes, the lane loop, and the folds of what the loop left in tiles. A lane loop is
// a plain `for` over at most TNI_STRIP neighbours of one axis, which the compiler vectorizes
// (M_LANES promises that lanes do not depend on each other). What it prints, of
// test/golden/tails.txt and random.txt:
//
//     const float *p0 = (const float *)buffer[0] + (arg[2] + c0 * s0_0 + base);
//     float t7[1024];                                                 tile for a fold
//     M_LANES for (m_long j = 0; j < n; j++) {
//         const float v0 = p0[j];
//         const float v5 = o_sub_f(v0, v4);
//         const float v6 = o_exp_f(v5);
//         t7[j] = v6;
//     }
//     q7 = o_sum_d(q7, f_block_sum_f(t7, n));
//
//     const m_ulong i2 = (m_ulong)(arg[4] + base);                    random words for all lanes
//     m_uint r2[1032];
//     m_fill_words(r2, number[0], number[1], i2, n);
//     const m_uint *f2 = r2 + (i2 & 3u);
#include "kernel/c_emitter.h"

#include <stdio.h>
#include <string.h>

// ---- places and callbacks ----------------------------------------------------------------------

// Prints the number of columns: one size, or the product of several in brackets.
void tni_c_put_cols(tni_c_emitter *w)
{
    if (w->k->nr != 1) tni_out_print(w->o, "(1");
    for (int i = 0; i < w->k->nr; i++)
        tni_out_print(w->o, "%sarg[%d]", w->k->nr == 1 ? "" : " * ", w->k->np + i);
    if (w->k->nr != 1) tni_out_print(w->o, ")");
}

// Each access has an offset, a stride for each axis, and the stride of an index.
int tni_c_arg_index(const tni_c_emitter *w, int access)
{
    int n = w->k->np + w->k->nr;
    return n + access * (n + 2);
}

static void put_stride(tni_c_emitter *w, int access, int axis)
{
    if (w->k->access[access].stride[axis] == TNI_STRIDE_N)
        tni_out_print(w->o, " * s%d_%d", access, axis);
}

// Prints the index of an access at the block's first element.
void tni_c_put_place(tni_c_emitter *w, int access)
{
    tni_out_print(w->o, "arg[%d]", tni_c_arg_index(w, access));
    for (int i = 0; i < w->k->np + w->k->nr; i++) {
        if (w->k->access[access].stride[i] == TNI_STRIDE_0) continue;
        if (i == w->lane) tni_out_print(w->o, " + base");
        else tni_out_print(w->o, " + c%d", i);
        put_stride(w, access, i);
    }
}

// Prints what lane j adds: 0, j, or j times the stride.
static void put_lane_offset(tni_c_emitter *w, const tni_ins *x)
{
    if (lane_class(w, x) == TNI_STRIDE_0) {
        tni_out_print(w->o, "0");
        return;
    }
    tni_out_print(w->o, "j");
    put_stride(w, x->access, w->lane);
}

static void put_c_value(tni_emitter *s, int i)
{
    tni_out_print(s->out, "v%d", i);
}

// Inside a lane loop the element is relative to the pointer p of its access; outside there is none,
// and the whole address is printed. The index of a LOAD comes on top of both.
static void put_c_element(tni_emitter *s, int i)
{
    tni_c_emitter *w = s->user;
    const tni_ins *x = ins_at(w, i);
    int            b = w->k->access[x->access].buffer;
    if (w->block && x->code == TNI_I_STORE) {
        tni_out_print(w->o, "gp%d[j - b", i);
    } else if (w->inside && (w->windows || is_staged(w, i))) {
        tni_out_print(w->o, "z%d[j", i);
    } else if (w->inside) {
        bool piece = tni_c_in_piece(w, i);
        tni_out_print(w->o, "%c%d[", piece ? 'u' : 'p', i);
        put_lane_offset(w, x);
        if (piece) tni_out_print(w->o, " - from");
    } else {
        tni_out_print(w->o, "((%s *)buffer[%d])[",
                      tni_storage_type((tn_dtype)w->k->buffer[b].dtype), b);
        tni_c_put_place(w, x->access);
    }
    if (x->code == TNI_I_LOAD && x->a >= 0)
        tni_out_print(w->o, " + v%d * arg[%d]", x->a, tni_c_arg_index(w, x->access + 1) - 1);
    tni_out_print(w->o, "]");
}

// As an element, with o, the place of the block's first lane, in the role of the pointer.
static void put_c_place(tni_emitter *s, int i)
{
    tni_c_emitter *w = s->user;
    tni_out_print(w->o, "(");
    if (w->inside) {
        tni_out_print(w->o, "o%d + ", i);
        put_lane_offset(w, ins_at(w, i));
    } else {
        tni_c_put_place(w, ins_at(w, i)->access);
    }
    tni_out_print(w->o, ")");
}

static void put_c_number(tni_emitter *s, int n)
{
    tni_out_print(s->out, "number[%d]", n);
}

void tni_c_callbacks(tni_c_emitter *w)
{
    w->s.value   = put_c_value;
    w->s.element = put_c_element;
    w->s.place   = put_c_place;
    w->s.number  = put_c_number;
}

// ---- folds -------------------------------------------------------------------------------------

// The operand of a fold, converted to the fold's type if that differs.
static const char *fold_operand(const tni_c_emitter *w, int i, char text[40])
{
    int         a = ins_at(w, i)->a;
    const char *t = c_type_of(w, i);
    if (!strcmp(t, c_type_of(w, a))) snprintf(text, 40, "v%d", a);
    else snprintf(text, 40, "(%s)v%d", t, a);
    return text;
}

void tni_c_put_fold(tni_c_emitter *w, int i, const char *into, const char *what, bool wide)
{
    const tni_ins *x  = ins_at(w, i);
    tn_dtype       dt = wide ? wide_dtype(x) : (tn_dtype)x->dtype;
    tni_out_print(w->o, "%*s%s = ", 4 * w->o->depth, "", into);
    tni_emit_fold(w->o, x->op, dt, into, what);
    tni_out_print(w->o, ";\n");
}

// What a REDUCE does in the lane loop: a lane of the tile, or of the accumulator.
static void put_lane_fold(tni_c_emitter *w, int i)
{
    const tni_ins *x   = ins_at(w, i);
    const char    *row = w->k->lane_in_r ? "at + j" : "j";
    char           into[40], from[40], what[40];
    fold_operand(w, i, what);
    if (folds_row(w, i)) return;
    if (by_lane(w, x)) {
        snprintf(from, sizeof from, "a%d[%s]", i, row);
        tni_c_target(w, 'a', i, row, into);
        tni_out_print(w->o, "%*s%s = ", 4 * w->o->depth, "", into);
        tni_emit_fold(w->o, x->op, (tn_dtype)x->dtype, from, what);
        tni_out_print(w->o, ";\n");
    } else {
        tni_c_target(w, 't', i, "j", into);
        tni_out_line(w->o, "%s = %s;", into, what);
    }
}

// After the lane loop: a block joins the total.
static void put_block_fold(tni_c_emitter *w, int i)
{
    const tni_ins *x = ins_at(w, i);
    char           into[40], from[40], what[100];
    bool           direct = folds_in_place(w, i);
    if (by_lane(w, x)) return;
    snprintf(into, sizeof into, is_wide_tail(x) ? "e%d[r]" : "q%d", i);
    if (direct) snprintf(from, sizeof from, "p%d", x->a);
    else if (folds_row(w, i)) snprintf(from, sizeof from, "h%d + at", x->a);
    else snprintf(from, sizeof from, "t%d", i);
    snprintf(what, sizeof what, "f_block_%s_%c(%s, n)", tni_op_table[x->op].name,
             tni_compute_suffix((tn_dtype)x->dtype), from);
    tni_c_put_fold(w, i, into, what, true);
}

// Without lanes: a row value joins the total of its tail, an element the accumulator.
static void put_single_fold(tni_c_emitter *w, int i)
{
    char into[40], what[40], wide[60];
    fold_operand(w, i, what);
    snprintf(into, sizeof into, tni_is_tail(ins_at(w, i)) ? "q%d" : "a%d", i);
    snprintf(wide, sizeof wide, "(%s)%s", wide_of(w, i), what);
    if (tni_is_tail(ins_at(w, i))) tni_c_put_fold(w, i, into, wide, true);
    else tni_c_put_fold(w, i, into, what, false);
}

// ---- blocks ------------------------------------------------------------------------------------

//     const float *p0 = (const float *)buffer[0] + (arg[2] + c0 * s0_0 + base);
static void put_access_pointer(tni_c_emitter *w, int i)
{
    const tni_ins *x     = ins_at(w, i);
    int            b     = w->k->access[x->access].buffer;
    const char    *type  = tni_storage_type((tn_dtype)w->k->buffer[b].dtype);
    const char    *fixed = x->code == TNI_I_LOAD ? "const " : "";
    tni_out_print(w->o, "%*s%s%s *p%d = (%s%s *)buffer[%d] + (", 4 * w->o->depth, "", fixed, type,
                  i, fixed, type, b);
    tni_c_put_place(w, x->access);
    tni_out_print(w->o, ");\n");
}

// The dtype of the elements of an access.
static tn_dtype stored_as(const tni_c_emitter *w, const tni_ins *x)
{
    return (tn_dtype)w->k->buffer[w->k->access[x->access].buffer].dtype;
}

// Prints the index of lane j of row i of a turn of several rows; with `two`, for lanes that are 2
// apart.
static void put_row_lane(tni_c_emitter *w, const tni_ins *x, bool two)
{
    if (two) tni_out_print(w->o, "j * 2");
    else put_lane_offset(w, x);
    if (w->k->access[x->access].stride[w->lane - 1] == TNI_STRIDE_0) return;
    tni_out_print(w->o, " + i");
    put_stride(w, x->access, w->lane - 1);
}

// Whether instruction i loads or stores one of several windows at strides along the lanes.
static bool is_strided(const tni_c_emitter *w, int i)
{
    const tni_ins *x = ins_at(w, i);
    return (x->code == TNI_I_LOAD || x->code == TNI_I_STORE) && in_lanes(w, i) &&
           lane_class(w, x) == TNI_STRIDE_N;
}

// Whether load or store k is of the same buffer as i and could be beside it.
static bool is_like(const tni_c_emitter *w, int i, int k)
{
    const tni_ins *x = ins_at(w, i), *y = ins_at(w, k);
    if (x->code != y->code || !is_strided(w, k)) return false;
    const tni_access *a = &w->k->access[x->access], *b = &w->k->access[y->access];
    return a->buffer == b->buffer && a->stride[w->lane - 1] == b->stride[w->lane - 1];
}

// Returns the access that is printed with access i, or -1: windows of one buffer are taken two by
// two, since most are 2 wide, and lie side by side. *first: whether i is the first of the two.
static int partner_of(const tni_c_emitter *w, int i, bool *first)
{
    int open = -1;
    if (!w->windows || !is_strided(w, i)) return -1;
    for (int k = 0; k < w->k->nins; k++) {
        if (!is_like(w, i, k)) continue;
        *first = i == open;
        if (*first || (i == k && open >= 0)) return *first ? k : open;
        open = open < 0 ? k : -1;
    }
    return -1;
}

// Begins the branch in which windows i and k, first and second, lie side by side, and its loops:
//
//     if (p1 == p0 + 1 && s0_3 == 2 && s1_3 == 2 && s0_2 == s1_2) {
//         for (m_long i = 0; i < rows; i++)
//             M_LANES for (m_long j = 0; j < line; j++) {
//
// Compilers make vectors of pairs, which they cannot of every second element alone where these are
// stored.
static void begin_pairs(tni_c_emitter *w, int i, int k)
{
    int a = ins_at(w, i)->access, b = ins_at(w, k)->access, row = w->lane - 1;
    tni_out_print(w->o, "%*sif (p%d == p%d + 1 && s%d_%d == 2 && s%d_%d == 2", 4 * w->o->depth, "",
                  k, i, a, w->lane, b, w->lane);
    if (w->k->access[a].stride[row] == TNI_STRIDE_N)
        tni_out_print(w->o, " && s%d_%d == s%d_%d", a, row, b, row);
    tni_out_print(w->o, ") {\n");
    w->o->depth++;
    tni_out_line(w->o, "for (m_long i = 0; i < rows; i++)");
    w->o->depth++;
    tni_out_line(w->o, "M_LANES for (m_long j = 0; j < line; j++) {");
}

// Ends the loops, and begins the branch of other windows.
static void end_pairs(tni_c_emitter *w)
{
    tni_out_line(w->o, "}");
    w->o->depth--;
    tni_out_line(w->o, "} else {");
}

// Prints element `at` of pair j of a row, beginning at the pointer of window i: p0[j * 2 + i * s0_2
// + 1].
static void put_of_pair(tni_c_emitter *w, int i, int at)
{
    tni_out_print(w->o, "p%d[", i);
    put_row_lane(w, ins_at(w, i), true);
    tni_out_print(w->o, at ? " + 1]" : "]");
}

static void put_row_load(tni_c_emitter *w, int i, bool two)
{
    tni_out_print(w->o, "%*sM_LANES for (m_long j = 0; j < line; j++) y%d[i * line + j] = p%d[",
                  4 * w->o->depth, "", i, i);
    put_row_lane(w, ins_at(w, i), two);
    tni_out_print(w->o, "];\n");
}

// Prints the loops of load i alone.
static void put_row_copies(tni_c_emitter *w, int i)
{
    bool side = lane_class(w, ins_at(w, i)) == TNI_STRIDE_1;
    tni_out_line(w->o, "for (m_long i = 0; i < rows && z%d == y%d; i++) {", i, i);
    if (!side) {
        tni_out_line(w->o, "if (s%d_%d == 2) {", ins_at(w, i)->access, w->lane);
        put_row_load(w, i, true);
        tni_out_line(w->o, "} else {");
    }
    put_row_load(w, i, false);
    if (!side) tni_out_line(w->o, "}");
    tni_out_line(w->o, "}");
}

// Prints how load i of several rows becomes a tile, unless its rows follow each other in memory:
//
//     float y0[1024];
//     const float *z0 = y0;
//     if (s0_2 == line) z0 = p0;
//     for (m_long i = 0; i < rows && z0 == y0; i++) {
//         M_LANES for (m_long j = 0; j < line; j++) y0[i * line + j] = p0[j + i * s0_2];
//     }
//
// Lanes at a stride have a second loop for a stride of 2, that of most windows, which compilers
// make vectors of. Two windows are loaded at the second of them.
static void put_row_loads(tni_c_emitter *w, int i)
{
    const tni_ins *x     = ins_at(w, i);
    const char    *type  = tni_storage_type(stored_as(w, x));
    bool           first = false;
    int            row = w->lane - 1, other = partner_of(w, i, &first);
    tni_out_line(w->o, "%s y%d[%d];", type, i, TNI_STRIP);
    tni_out_line(w->o, "const %s *z%d = y%d;", type, i, i);
    if (lane_class(w, x) == TNI_STRIDE_1 && w->k->access[x->access].stride[row] == TNI_STRIDE_N)
        tni_out_line(w->o, "if (s%d_%d == line) z%d = p%d;", x->access, row, i, i);
    if (other >= 0 && first) return;
    if (other >= 0) {
        begin_pairs(w, other, i);
        for (int k = 0; k < 2; k++) {
            tni_out_print(w->o, "%*sy%d[i * line + j] = ", 4 * w->o->depth, "", k ? i : other);
            put_of_pair(w, other, k);
            tni_out_print(w->o, ";\n");
        }
        end_pairs(w);
        put_row_copies(w, other);
    }
    put_row_copies(w, i);
    if (other >= 0) tni_out_line(w->o, "}");
}

static void put_row_store(tni_c_emitter *w, int i)
{
    tni_out_line(w->o, "for (m_long i = 0; i < rows; i++)");
    tni_out_print(w->o, "%*sM_LANES for (m_long j = 0; j < line; j++) p%d[", 4 * w->o->depth + 4,
                  "", i);
    put_row_lane(w, ins_at(w, i), false);
    tni_out_print(w->o, "] = z%d[i * line + j];\n", i);
}

// Prints how STORE i copies its tile; two windows are stored at the second of them.
static void put_staged_store(tni_c_emitter *w, int i)
{
    bool first = false;
    int  other = partner_of(w, i, &first);
    if (!w->windows) {
        tni_out_line(w->o, "M_LANES for (m_long j = 0; j < n; j++) p%d[j * s%d_%d] = z%d[j];", i,
                     ins_at(w, i)->access, w->lane, i);
        return;
    }
    if (other >= 0 && first) return;
    if (other >= 0) {
        begin_pairs(w, other, i);
        for (int k = 0; k < 2; k++) {
            tni_out_print(w->o, "%*s", 4 * w->o->depth, "");
            put_of_pair(w, other, k);
            tni_out_print(w->o, " = z%d[i * line + j];\n", k ? i : other);
        }
        end_pairs(w);
        put_row_store(w, other);
    }
    put_row_store(w, i);
    if (other >= 0) tni_out_line(w->o, "}");
}

// Prints the random words (or normal numbers) of all lanes before the loop. A Philox block makes
// four words, so the array begins with the first word of the first lane's block, and f points to
// the first lane's: 8 words more than lanes are enough for both ends.
static void put_random_fill(tni_c_emitter *w, int i)
{
    const tni_ins *x      = ins_at(w, i);
    bool           normal = x->op == TNI_normal;
    const char    *type   = normal ? "float" : "m_uint";
    tni_out_print(w->o, "%*sconst m_ulong i%d = (m_ulong)(", 4 * w->o->depth, "", i);
    tni_c_put_place(w, ins_at(w, x->a)->access);
    tni_out_print(w->o, ");\n");
    tni_out_line(w->o, "%s r%d[%d];", type, i, TNI_STRIP + 8);
    tni_out_line(w->o, "m_fill_%s(r%d, number[%d], number[%d], i%d, n);",
                 normal ? "normal" : "words", i, x->number, x->number + 1, i);
    tni_out_line(w->o, "const %s *f%d = r%d + (i%d & 3u);", type, i, i, i);
}

// Prints the random number of lane j, out of the words that were made before the loop.
static void put_random_lane(tni_c_emitter *w, int i)
{
    const tni_ins *x = ins_at(w, i);
    if (x->op == TNI_normal) tni_out_print(w->o, "f%d[j]", i);
    else if (x->op == TNI_random_bits) tni_out_print(w->o, "(m_long)f%d[j]", i);
    else
        tni_out_print(w->o, "m_uniform_%s(f%d[j])",
                      x->dtype == TN_F32 ? "f" : tn_dtype_name((tn_dtype)x->dtype), i);
}

// Recognizes a comparison of the lane's own place with a number that all lanes share (masks,
// one-hot): it is made in 32 bits, of j with a distance d that is computed before the loop, so that
// the loop needs no 64-bit lanes. Returns the operator, and in place_first whether the place is its
// left side; NULL if i is none.
static const char *lane_test(const tni_c_emitter *w, int i, bool *place_first)
{
    static const struct {
        uint8_t     op;
        const char *sign;
    } tests[]        = { { TNI_eq, "==" }, { TNI_ne, "!=" }, { TNI_lt, "<" },
                         { TNI_le, "<=" }, { TNI_gt, ">" },  { TNI_ge, ">=" } };
    const tni_ins *x = ins_at(w, i);
    if (x->code != TNI_I_MAP || x->b < 0 || ins_at(w, x->a)->dtype != TN_I64) return NULL;
    *place_first         = on_lane(w, x->a);
    const tni_ins *place = ins_at(w, *place_first ? x->a : x->b);
    if (on_lane(w, x->a) == on_lane(w, x->b) || place->code != TNI_I_PLACE) return NULL;
    if (lane_class(w, place) != TNI_STRIDE_1) return NULL;
    for (size_t k = 0; k < sizeof tests / sizeof *tests; k++)
        if (tests[k].op == x->op) return tests[k].sign;
    return NULL;
}

// Whether REDUCE i is the first of the block that folds its load in memory: that one prints the
// pointer.
static bool is_first_fold(const tni_c_emitter *w, int i)
{
    for (int j = 0; j < i; j++)
        if (tni_set_has(&w->eval, j) && folds_in_place(w, j) && ins_at(w, j)->a == ins_at(w, i)->a)
            return false;
    return folds_in_place(w, i);
}

// Prints what instruction i needs before the lane loop: the pointer of an access, a tile for a
// fold, random words, the distance of a comparison, the first lane's place.
static void put_lane_prologue(tni_c_emitter *w, int i)
{
    const tni_ins *x = ins_at(w, i);
    bool           place_first;
    if (x->code == TNI_I_REDUCE) {
        if (is_first_fold(w, i) && !tni_set_has(&w->eval, x->a)) put_access_pointer(w, x->a);
        if (in_lanes(w, i) && !by_lane(w, x) && !folds_row(w, i) && !w->finish)
            tni_out_line(w->o, "%s t%d[%d];", c_type_of(w, i), i, TNI_STRIP);
    } else if (!on_lane(w, i)) {
        return;
    } else if (x->code == TNI_I_LOAD || x->code == TNI_I_STORE) {
        put_access_pointer(w, i);
        if (w->windows && x->code == TNI_I_LOAD) put_row_loads(w, i);
        else if (is_staged(w, i))
            tni_out_line(w->o, "%s z%d[%d];", tni_storage_type(stored_as(w, x)), i, TNI_STRIP);
    } else if (is_filled(w, i)) {
        put_random_fill(w, i);
    } else if (lane_test(w, i, &place_first)) {
        tni_out_line(w->o, "const m_int d%d = m_lanes_to(v%d - o%d);", i, place_first ? x->b : x->a,
                     place_first ? x->a : x->b);
    } else if (x->code == TNI_I_PLACE) {
        tni_out_print(w->o, "%*sconst m_long o%d = ", 4 * w->o->depth, "", i);
        tni_c_put_place(w, x->access);
        tni_out_print(w->o, ";\n");
    }
}

// Where all guards hold they are constants, and what they were computed from may have no other
// reader.
static void put_unused(tni_c_emitter *w, int i)
{
    if (w->holds && tni_set_has(&w->guard_values, i)) tni_out_line(w->o, "(void)v%d;", i);
}

// Prints value i, in the loop or before it. In the loop it may come from a comparison of lanes, a
// tile, a strip function or random words; else it is the text of its instruction.
static void put_lane_value(tni_c_emitter *w, int i)
{
    bool        place_first;
    const char *test = w->inside && is_from_operands(w, i) ? lane_test(w, i, &place_first) : NULL;
    tni_out_print(w->o, "%*sconst %s v%d = ", 4 * w->o->depth, "", c_type_of(w, i), i);
    if (w->holds && tni_set_has(&w->guards, i)) tni_out_print(w->o, "1");
    else if (test && place_first) tni_out_print(w->o, "(m_int)j %s d%d", test, i);
    else if (test) tni_out_print(w->o, "d%d %s (m_int)j", i, test);
    else if (w->inside && tni_set_has(&w->tiled, i)) tni_out_print(w->o, "x%d[j]", i);
    else if (w->inside && tni_set_has(&w->strip_maps, i)) tni_out_print(w->o, "y%d[j]", i);
    else if (w->inside && is_filled(w, i)) put_random_lane(w, i);
    else tni_emit_value(&w->s, i);
    tni_out_print(w->o, ";\n");
    put_unused(w, i);
}

static void put_c_store(tni_c_emitter *w, int i)
{
    tni_out_print(w->o, "%*s", 4 * w->o->depth, "");
    tni_emit_store(&w->s, i);
    tni_out_print(w->o, ";\n");
}

// Values, folds and stores that do not vary along the lanes, in order, outside the lane loop.
void tni_c_put_singles(tni_c_emitter *w)
{
    for (int i = 0; i < w->k->nins; i++) {
        if (!tni_set_has(&w->eval, i) || in_lanes(w, i) || folds_in_place(w, i)) continue;
        if (ins_at(w, i)->code == TNI_I_STORE) put_c_store(w, i);
        else if (ins_at(w, i)->code == TNI_I_REDUCE) put_single_fold(w, i);
        else put_lane_value(w, i);
    }
}

// Declares in the loop a value that it does not compute.
static void put_kept_value(tni_c_emitter *w, int i)
{
    tni_out_print(w->o, "%*sconst %s v%d = ", 4 * w->o->depth, "", c_type_of(w, i), i);
    if (w->holds && tni_set_has(&w->guards, i)) tni_out_print(w->o, "1;\n");
    else if (ins_at(w, i)->code == TNI_I_REDUCE)
        tni_out_print(w->o, "(%s)q%d[j];\n", c_type_of(w, i), i);
    else tni_out_print(w->o, w->k->lane_in_r ? "h%d[at + j];\n" : "w%d[j];\n", i);
    put_unused(w, i);
}

// Declares in the loop the values that it reads, or leaves in tiles, and does not compute: rows and
// strips kept by earlier blocks, and finished reductions of each lane.
static void put_kept_values(tni_c_emitter *w, const tni_set *tiles)
{
    for (int i = 0; i < w->k->nins; i++) {
        bool wanted = tni_set_has(tiles, i);
        if (!on_lane(w, i) || in_lanes(w, i)) continue;
        for (int j = i + 1; j < w->k->nins; j++)
            wanted |= in_lanes(w, j) && reads_value(ins_at(w, j), i) && is_from_operands(w, j) &&
                      !(ins_at(w, j)->code == TNI_I_REDUCE && folds_row(w, j));
        if (wanted) put_kept_value(w, i);
    }
}

// Whether all that reads a place in the lane loop compares it: the place itself is then not needed.
bool tni_c_is_only_compared(const tni_c_emitter *w, int i)
{
    bool place_first;
    for (int j = i + 1; j < w->k->nins; j++)
        if (in_lanes(w, j) && reads_value(ins_at(w, j), i) && !lane_test(w, j, &place_first))
            return false;
    return ins_at(w, i)->code == TNI_I_PLACE && !tni_set_has(&w->kept, i) &&
           !tni_set_has(&w->strip, i);
}

// Prints how value i is kept for what follows the lane loop.
static void put_copy(tni_c_emitter *w, char name, int i, const char *index)
{
    char into[40];
    tni_c_target(w, name, i, index, into);
    tni_out_line(w->o, "%s = v%d;", into, i);
}

// Prints instruction i in the lane loop, and the copy of a value that later blocks need.
static void put_lane_ins(tni_c_emitter *w, int i)
{
    const tni_ins *x = ins_at(w, i);
    if (tni_c_is_only_compared(w, i)) return;
    if (x->code == TNI_I_REDUCE) {
        if (!w->finish) put_lane_fold(w, i);
        else
            tni_out_line(w->o, "const %s v%d = (%s)q%d[j];", c_type_of(w, i), i, c_type_of(w, i),
                         i);
        return;
    }
    if (x->code == TNI_I_STORE) {
        put_c_store(w, i);
        return;
    }
    put_lane_value(w, i);
    if (tni_set_has(&w->kept, i)) put_copy(w, 'h', i, "at + j");
    if (tni_set_has(&w->strip, i)) put_copy(w, 'w', i, "j");
}

static bool has_lane_loop(const tni_c_emitter *w)
{
    for (int i = 0; i < w->k->nins; i++)
        if (in_lanes(w, i)) return true;
    return false;
}

// Prints the inside of a lane loop: kept values come first, then the instructions in order, then
// the copies into tiles x.
static void put_lanes(tni_c_emitter *w, const tni_set *tiles)
{
    w->inside = true;
    if (!w->finish) put_kept_values(w, tiles);
    for (int i = 0; i < w->k->nins; i++)
        if (in_lanes(w, i)) put_lane_ins(w, i);
    for (int i = 0; i < w->k->nins; i++)
        if (tni_set_has(tiles, i)) put_copy(w, 'x', i, "j");
    w->inside = false;
    tni_out_line(w->o, "}");
}

// ---- lanes for which all guards hold -----------------------------------------------------------

// Whether value i is true for a range of lanes: comparisons of places, which grow evenly along the
// lanes, and what and makes of them.
static bool is_range(const tni_c_emitter *w, int i)
{
    const tni_ins *x = ins_at(w, i);
    if (!on_lane(w, i)) return true;
    if (x->code != TNI_I_MAP || !is_from_operands(w, i)) return false;
    if (x->op == TNI_logical_and) return is_range(w, x->a) && is_range(w, x->b);
    for (int k = 0; k < 2; k++) {
        int side = k ? x->b : x->a;
        if (side < 0 || (on_lane(w, side) && ins_at(w, side)->code != TNI_I_PLACE)) return false;
    }
    return x->op == TNI_lt || x->op == TNI_le || x->op == TNI_gt || x->op == TNI_ge;
}

// Adds the values of the lanes that value i is computed from.
static void add_operands(const tni_c_emitter *w, int i, tni_set *s)
{
    if (i < 0 || !on_lane(w, i) || tni_set_has(s, i)) return;
    tni_set_add(s, i);
    if (!in_lanes(w, i) || ins_at(w, i)->code != TNI_I_MAP) return;
    add_operands(w, ins_at(w, i)->a, s);
    add_operands(w, ins_at(w, i)->b, s);
}

// Collects the guards of the loop's loads into w->guards, and what they are computed from: none if
// one of them is no range.
static bool find_guards(tni_c_emitter *w)
{
    bool any  = false;
    w->guards = w->guard_values = (tni_set){ { 0 } };
    for (int i = 0; i < w->k->nins && !w->finish; i++) {
        const tni_ins *x = ins_at(w, i);
        if (!in_lanes(w, i) || x->code != TNI_I_LOAD || x->b < 0 || !on_lane(w, x->b)) continue;
        if (x->a >= 0 || !is_range(w, x->b)) return false;
        tni_set_add(&w->guards, x->b);
        add_operands(w, x->b, &w->guard_values);
        any = true;
    }
    return any;
}

// Prints how the lanes lo .. hi-1 are found for which all guards hold: from below, then from above.
static void put_guard_range(tni_c_emitter *w)
{
    tni_out_line(w->o, "m_long lo = 0, hi = n;");
    tni_out_line(w->o, "for (m_long j = 0, up = 1; lo < hi;) {");
    w->inside = true;
    for (int i = 0; i < w->k->nins; i++) {
        if (!tni_set_has(&w->guard_values, i) || tni_c_is_only_compared(w, i)) continue;
        if (in_lanes(w, i)) put_lane_value(w, i);
        else put_kept_value(w, i);
        tni_out_line(w->o, "(void)v%d;", i);
    }
    w->inside = false;
    tni_out_print(w->o, "%*sconst m_int all = 1", 4 * w->o->depth, "");
    for (int i = 0; i < w->k->nins; i++)
        if (tni_set_has(&w->guards, i)) tni_out_print(w->o, " && v%d", i);
    tni_out_print(w->o, ";\n");
    tni_out_line(w->o, "if (all && !up) break;");
    tni_out_line(w->o, "if (all) up = 0;");
    tni_out_line(w->o, "else if (up) lo++;");
    tni_out_line(w->o, "else hi--;");
    tni_out_line(w->o, "j = up ? lo : hi - 1;");
    tni_out_line(w->o, "}");
}

// Returns how many accesses of the loop have a stride along the lanes that is no constant, and
// prints the condition that all of them are 2, if `print`.
static int put_stride_test(tni_c_emitter *w, bool print)
{
    bool done[TNI_MAX_ACCESSES] = { false };
    int  n                      = 0;
    for (int i = 0; i < w->k->nins && !w->finish; i++) {
        const tni_ins *x = ins_at(w, i);
        if (!in_lanes(w, i) || (x->code != TNI_I_LOAD && x->code != TNI_I_STORE)) continue;
        if (lane_class(w, x) != TNI_STRIDE_N || done[x->access] || is_staged(w, i)) continue;
        if (w->windows) continue;
        if (print) tni_out_print(w->o, "%ss%d_%d == 2", n ? " && " : "", x->access, w->lane);
        done[x->access] = true;
        n++;
    }
    return n;
}

// Begins the branch of a loop that knows its strides, for loops with several such accesses:
// windows, most of which are 2 apart. Compilers load every second element as vectors if they know
// that. Returns whether it did.
static bool begin_stride_branch(tni_c_emitter *w)
{
    if (put_stride_test(w, false) < 2) return false;
    tni_out_print(w->o, "%*sif (", 4 * w->o->depth, "");
    put_stride_test(w, true);
    tni_out_print(w->o, ") {\n");
    w->o->depth++;
    return true;
}

// Prints the loop over lanes from .. to-1: in blocks of several vectors, then one by one.
static void put_vector_loops(tni_c_emitter *w, const tni_set *tiles, const char *from,
                             const char *to)
{
    int vectors = tni_c_vectors(w);
    tni_c_begin_piece(w, &from, &to);
    if (vectors > 1) {
        tni_out_line(w->o, "{");
        tni_c_begin_vectors(w, vectors, from, to, tiles);
        put_lanes(w, tiles);
        tni_c_end_vectors(w, tiles);
        from = "b";
    }
    bool fetches = vectors == 1 && tni_c_begin_fetches(w, &from, &to);
    tni_out_line(w->o, "M_LANES for (m_long j = %s; j < %s; j++) {", from, to);
    put_lanes(w, tiles);
    if (fetches) tni_c_end_fetches(w);
    if (vectors > 1) tni_out_line(w->o, "}");
    tni_c_end_piece(w);
}

// Loads under a guard are branches, which keep a loop from becoming vectors: the lanes for which
// all guards hold have a loop of their own, the others one before that.
void tni_c_put_lane_loop(tni_c_emitter *w, const tni_set *tiles)
{
    bool        guarded = find_guards(w);
    const char *from = guarded ? "lo" : "0", *to = guarded ? "hi" : "n";
    if (guarded) {
        tni_out_line(w->o, "{");
        put_guard_range(w);
        tni_out_line(w->o,
                     "for (m_long j = lo > 0 ? 0 : hi; j < n; j = j + 1 == lo ? hi : j + 1) {");
        put_lanes(w, tiles);
    }
    w->holds = guarded;
    bool two = begin_stride_branch(w);
    for (int k = 0; k <= two; k++) {
        put_vector_loops(w, tiles, from, to);
        if (two) tni_out_line(w->o, k ? "}" : "} else {");
    }
    w->holds = false;
    if (guarded) tni_out_line(w->o, "}");
    for (int i = 0; i < w->k->nins; i++)
        if (in_lanes(w, i) && is_staged(w, i)) put_staged_store(w, i);
}

// Prints the block: what stands before the loop, the lane loops (several if a strip function needs
// its operand in memory), and the folds of tiles and of loads in memory.
void tni_c_put_block(tni_c_emitter *w)
{
    tni_set all = w->eval, none = { { 0 } };
    for (int i = 0; i < w->k->nins; i++)
        if (tni_set_has(&w->eval, i)) put_lane_prologue(w, i);
    if (has_lane_loop(w)) {
        w->eval = tni_c_put_strip_maps(w);
        tni_c_put_lane_loop(w, &none);
        w->eval  = all;
        w->tiled = none;
    }
    for (int i = 0; i < w->k->nins && !w->finish; i++)
        if (tni_set_has(&w->eval, i) && ins_at(w, i)->code == TNI_I_REDUCE &&
            (folds_in_place(w, i) || in_lanes(w, i)))
            put_block_fold(w, i);
}

bool tni_c_has_lanes(const tni_c_emitter *w)
{
    for (int i = 0; i < w->k->nins; i++)
        if (tni_set_has(&w->eval, i) && folds_in_place(w, i)) return true;
    return has_lane_loop(w);
}
