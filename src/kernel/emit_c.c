// Emits the C text of a kernel for the cpu device: the loops over units and over R around blocks of
// lanes, tails and the finish stage. kernel.h says in which order everything is added, emit_c.h how
// the functions are called; c_blocks.c decides what each block computes, c_lane_loop.c prints a
// block, and c_vectors.c adds a loop over several vectors before each lane loop, which is left out
// here. test/golden has whole texts.
//
// POINT, of test/golden/point.txt: add(mul_s(relu(x), 0.5), y). A unit is a strip of 1024 lanes;
// strips that follow each other are done in one turn.
//
//     for (m_long u = first; u < last;) {
//         const m_long many = strips - strip < last - u ? strips - strip : last - u;
//         const m_long base = strip * 1024, left = arg[1] - base;
//         const m_long n = left < many * 1024 ? left : many * 1024;
//         {
//             const float *p0 = (const float *)buffer[0] + (arg[2] + c0 * s0_0 + base);
//             const float *p4 = (const float *)buffer[1] + (arg[6] + base);
//             float *p6 = (float *)buffer[2] + (arg[10] + c0 * s2_0 + base);
//             M_LANES for (m_long j = 0; j < n; j++) {
//                 const float v0 = p0[j];
//                 ...
//                 p6[j] = v5;
//             }
//         }
//
// ROW, of test/golden/row.txt: softmax(x, 1). A unit is a row. Blocks of 1024 elements are folded
// by a function (f_block_max_f) or a lane loop; totals (q) are doubles; the exponentials are kept
// in a row of scratch (h3).
//
//     for (m_long u = first; u < last; u++) {
//         double q1 = m_double_bits((m_ulong)0xfff0000000000000u);
//         {
//             for (m_long base = 0; base < arg[1]; base += 1024) {
//                 const m_long n = arg[1] - base < 1024 ? arg[1] - base : 1024;
//                 const float *p0 = (const float *)buffer[0] + (arg[2] + c0 * s0_0 + base);
//                 q1 = o_max_d(q1, f_block_max_f(p0, n));
//             }
//         }
//         const float v1 = (float)q1;
//         double q4 = -0.0;
//         ... h3[at + j] = v3; ... q4 = o_sum_d(q4, f_block_sum_f(h3 + at, n)); ...
//         const float v4 = (float)q4;
//         const float v5 = o_reciprocal_f(v4);
//
// COL, of test/golden/col.txt: add(sum(x, 0), y). Each column has an accumulator a1 in its own
// type, which joins the partial result e1 of the chunk every 64 rows; kernel_finish joins those of
// all chunks.
//
//     for (m_long u = first; u < last; u++) {
//         ... a1[at + j] = o_sum_f(a1[at + j], v0); ...
//         if (((u - first) & 63) == 63 || u + 1 == last) {
//             M_LANES for (m_long j = 0; j < arg[1]; j++) {
//                 e1[j] = o_sum_d(e1[j], (double)a1[j]);
//                 a1[j] = -0.0f;
//             }
//         }
//         c0++;
//     }
#include "kernel/c_emitter.h"

#include <stdio.h>

// ---- the loops over R --------------------------------------------------------------------------

// Prints what a fold of nothing is, in the type of totals (wide) or in the reduction's own.
static void put_fold_start(tni_c_emitter *w, int i, bool wide)
{
    const tni_ins *x = ins_at(w, i);
    tni_out_print(w->o, "%s", tni_fold_start(x->op, wide ? wide_dtype(x) : (tn_dtype)x->dtype));
}

// Declares the accumulator and the total of a reduction over R before its loop: for each lane of
// the strip, or one. Where the lane is in R, blocks are folded by functions, so there is a total
// only.
static void put_totals(tni_c_emitter *w, int i)
{
    tni_out *o = w->o;
    if (!w->k->lane_in_r && on_lane(w, i)) {
        tni_out_line(o, "%s a%d[%d];", c_type_of(w, i), i, TNI_STRIP);
        tni_out_line(o, "%s q%d[%d];", wide_of(w, i), i, TNI_STRIP);
        tni_out_print(o, "%*sfor (m_long j = 0; j < n; j++) a%d[j] = ", 4 * o->depth, "", i);
        put_fold_start(w, i, false);
        tni_out_print(o, ", q%d[j] = ", i);
        put_fold_start(w, i, true);
        tni_out_print(o, ";\n");
        return;
    }
    if (!w->k->lane_in_r) {
        tni_out_print(o, "%*s%s a%d = ", 4 * o->depth, "", c_type_of(w, i), i);
        put_fold_start(w, i, false);
        tni_out_print(o, ";\n");
    }
    tni_out_print(o, "%*s%s q%d = ", 4 * o->depth, "", wide_of(w, i), i);
    put_fold_start(w, i, true);
    tni_out_print(o, ";\n");
}

// Prints how an accumulator joins its total and begins again; `index` is "" or that of a lane.
// Adding up at most TNI_GROUP floats before going to double keeps the error small and the inner
// loop in floats.
static void put_accumulator_join(tni_c_emitter *w, int i, char total, const char *index)
{
    char into[40], what[60];
    snprintf(into, sizeof into, "%c%d%s", total, i, index);
    snprintf(what, sizeof what, "(%s)a%d%s", wide_of(w, i), i, index);
    tni_c_put_fold(w, i, into, what, true);
    tni_out_print(w->o, "%*sa%d%s = ", 4 * w->o->depth, "", i, index);
    put_fold_start(w, i, false);
    tni_out_print(w->o, ";\n");
}

// Whether the block has a reduction over R as instruction i.
static bool folds_over_r(const tni_c_emitter *w, int i)
{
    return tni_set_has(&w->eval, i) && ins_at(w, i)->code == TNI_I_REDUCE &&
           !tni_is_tail(ins_at(w, i));
}

// Prints the joins every TNI_GROUP elements of R and at the end, where the lane is in P.
static void put_group_join(tni_c_emitter *w)
{
    tni_out *o = w->o;
    tni_out_print(o, "%*sif ((r & %d) == %d || r + 1 == ", 4 * o->depth, "", TNI_GROUP - 1,
                  TNI_GROUP - 1);
    tni_c_put_cols(w);
    tni_out_print(o, ") {\n");
    o->depth++;
    for (int i = 0; i < w->k->nins; i++) {
        if (!folds_over_r(w, i)) continue;
        if (on_lane(w, i)) {
            tni_out_line(o, "M_LANES for (m_long j = 0; j < n; j++) {");
            put_accumulator_join(w, i, 'q', "[j]");
            tni_out_line(o, "}");
        } else {
            put_accumulator_join(w, i, 'q', "");
        }
    }
    tni_out_line(o, "}");
}

// Whether the loop needs the number of an element in the row: `at`, or `r` where the lane is in P.
// Kept rows and partial results of columns are indexed by it.
static bool counts_elements(const tni_c_emitter *w)
{
    for (int i = 0; i < w->k->nins; i++) {
        const tni_ins *x = ins_at(w, i);
        if (tni_set_has(&w->eval, i) && is_wide_tail(x)) return true;
        if (!w->k->lane_in_r && folds_over_r(w, i)) return true;
        if (!tni_set_has(&w->kept, i)) continue;
        for (int j = i; j < w->k->nins; j++)
            if (tni_set_has(&w->eval, j) && (j == i || reads_value(ins_at(w, j), i))) return true;
    }
    return false;
}

// Declares n, the lanes of the block: a full strip, or what is left of the axis.
static void put_strip_bounds(tni_c_emitter *w, int axis)
{
    tni_out_line(w->o, "const m_long n = arg[%d] - base < %d ? arg[%d] - base : %d;", axis,
                 TNI_STRIP, axis, TNI_STRIP);
}

static void open_axes(tni_c_emitter *w, int from, int to)
{
    for (int i = from; i < to; i++)
        tni_out_line(w->o, "for (m_long c%d = 0; c%d < arg[%d]; c%d++) {", i, i, i, i);
}

static void close_axes(tni_c_emitter *w, int n)
{
    for (int i = 0; i < n; i++) tni_out_line(w->o, "}");
}

// Opens the loops over all of R, in blocks of its last axis.
static void put_rows_of_lanes(tni_c_emitter *w)
{
    int  last  = w->k->np + w->k->nr - 1;
    bool count = counts_elements(w) || w->finish;
    if (count) tni_out_line(w->o, "m_long at = 0;");
    open_axes(w, w->k->np, last);
    tni_out_line(w->o, "for (m_long base = 0; base < arg[%d]; base += %d) {", last, TNI_STRIP);
    put_strip_bounds(w, last);
}

static void end_rows_of_lanes(tni_c_emitter *w)
{
    if (counts_elements(w) || w->finish) tni_out_line(w->o, "at += n;");
    close_axes(w, w->k->nr);
}

// Prints the loop over the elements of R, one after the other, each for all lanes of the strip
// (lane in P). A block in the other order would read memory with a stride.
static void put_r_elements(tni_c_emitter *w)
{
    bool count = counts_elements(w), fold = false;
    for (int i = 0; i < w->k->nins; i++) fold |= folds_over_r(w, i);
    if (count) tni_out_line(w->o, "m_long r = 0;");
    open_axes(w, w->k->np, w->k->np + w->k->nr);
    tni_c_put_singles(w);
    tni_c_put_block(w);
    if (fold) put_group_join(w);
    if (count) tni_out_line(w->o, "r++;");
    close_axes(w, w->k->nr);
}

// Prints loop q over R: totals, the loop around one block, and the finished reductions as values of
// the row. `have` grows by what the loop leaves in rows of scratch for later loops.
static void put_r_loop(tni_c_emitter *w, int q, tni_set *have)
{
    tni_c_begin_block(w, tni_c_loop_set(w, q, have));
    if (is_empty(&w->eval)) return;
    tni_c_begin_ahead(w, q);
    for (int i = 0; i < w->k->nins; i++)
        if (folds_over_r(w, i)) put_totals(w, i);
    tni_out_line(w->o, "{");
    if (w->k->lane_in_r) {
        put_rows_of_lanes(w);
        tni_c_put_singles(w);
        tni_c_put_block(w);
        end_rows_of_lanes(w);
    } else {
        put_r_elements(w);
    }
    tni_out_line(w->o, "}");
    w->ahead = (tni_set){ { 0 } };
    for (int i = 0; i < w->k->nins; i++)
        if (folds_over_r(w, i) && (w->k->lane_in_r || !on_lane(w, i)))
            tni_out_line(w->o, "const %s v%d = (%s)q%d;", c_type_of(w, i), i, c_type_of(w, i), i);
}

// Prints row point q: values of the row and, where the lane is in P, a lane loop over the rows of
// the strip.
static void put_row_point(tni_c_emitter *w, int q)
{
    tni_c_begin_block(w, tni_c_row_set(w, q));
    tni_c_put_singles(w);
    if (!tni_c_has_lanes(w)) return;
    tni_out_line(w->o, "{");
    tni_c_put_block(w);
    tni_out_line(w->o, "}");
}

// ---- tails -------------------------------------------------------------------------------------

// Prints how many partial results of a chunk come before those of instruction `end`; column tails
// have as many as there are columns. tni_kernel_tail_partials computes the same on the host.
static void put_before_tail(tni_c_emitter *w, int end)
{
    int wide = 0, narrow = 0;
    for (int i = 0; i < end; i++) {
        wide += is_wide_tail(ins_at(w, i));
        narrow += tni_is_tail(ins_at(w, i)) && !is_wide_tail(ins_at(w, i));
    }
    tni_out_print(w->o, "(%d", narrow);
    if (wide) {
        tni_out_print(w->o, " + %d * ", wide);
        tni_c_put_cols(w);
    }
    tni_out_print(w->o, ")");
}

// Prints a pointer to the partial results of tail i in the chunk that `chunk` names.
static void put_partials_pointer(tni_c_emitter *w, int i, const char *chunk)
{
    tni_out_print(w->o, "((%s *)partials + (%s * ", wide_of(w, i), chunk);
    put_before_tail(w, w->k->nins);
    tni_out_print(w->o, " + ");
    put_before_tail(w, i);
    tni_out_print(w->o, "))");
}

// Prints a pointer to a row of this thread's scratch (a parameter that the text names `room`),
// and steps over it. `restrict` tells the compiler that the row aliases nothing, so that it can
// overlap the turns of a loop.
static void put_row_pointer(tni_c_emitter *w, char name, int i)
{
    tni_out_line(w->o, "%s *restrict %c%d = (%s *)room;", c_type_of(w, i), name, i,
                 c_type_of(w, i));
    tni_out_print(w->o, "%*sroom += (", 4 * w->o->depth, "");
    tni_c_put_cols(w);
    tni_out_print(w->o, " * (m_long)sizeof(%s) + 63) / 64 * 64;\n", c_type_of(w, i));
}

// Prints the start of a tail: a total of the chunk, or for each column a partial result and, where
// the lane is in R, an accumulator in its own type in scratch.
static void put_tail_begin(tni_c_emitter *w, int i)
{
    tni_out *o = w->o;
    if (!is_wide_tail(ins_at(w, i))) {
        tni_out_print(o, "%*s%s q%d = ", 4 * o->depth, "", wide_of(w, i), i);
        put_fold_start(w, i, true);
        tni_out_print(o, ";\n");
        return;
    }
    tni_out_print(o, "%*s%s *e%d = ", 4 * o->depth, "", wide_of(w, i), i);
    put_partials_pointer(w, i, "chunk");
    tni_out_print(o, ";\n");
    if (w->k->lane_in_r) put_row_pointer(w, 'a', i);
    tni_out_print(o, "%*sfor (m_long j = 0; j < ", 4 * o->depth, "");
    tni_c_put_cols(w);
    tni_out_print(o, "; j++) e%d[j] = ", i);
    put_fold_start(w, i, true);
    if (w->k->lane_in_r) {
        tni_out_print(o, ", a%d[j] = ", i);
        put_fold_start(w, i, false);
    }
    tni_out_print(o, ";\n");
}

// Printed at the end of a row: every TNI_GROUP rows, and after the last, accumulators join the
// partial results.
static void put_tail_group(tni_c_emitter *w)
{
    tni_out *o = w->o;
    tni_out_line(o, "if (((u - first) & %d) == %d || u + 1 == last) {", TNI_GROUP - 1,
                 TNI_GROUP - 1);
    for (int i = 0; i < w->k->nins; i++) {
        if (!is_wide_tail(ins_at(w, i))) continue;
        tni_out_print(o, "%*sM_LANES for (m_long j = 0; j < ", 4 * o->depth, "");
        tni_c_put_cols(w);
        tni_out_print(o, "; j++) {\n");
        o->depth++;
        put_accumulator_join(w, i, 'e', "[j]");
        tni_out_line(o, "}");
    }
    tni_out_line(o, "}");
}

// Stores the total of a row tail as the chunk's partial result. Column tails were joined row by
// row.
static void put_tail_end(tni_c_emitter *w, int i)
{
    if (is_wide_tail(ins_at(w, i))) return;
    tni_out_print(w->o, "%*s*", 4 * w->o->depth, "");
    put_partials_pointer(w, i, "chunk");
    tni_out_print(w->o, " = q%d;\n", i);
}

// ---- the main stage ----------------------------------------------------------------------------

static bool has_access(const tni_ins *x)
{
    return x->code == TNI_I_LOAD || x->code == TNI_I_STORE || x->code == TNI_I_PLACE;
}

// Declares the strides that are not constants (class n), once for each access, outside all loops.
static void put_strides(tni_c_emitter *w, const tni_set *s)
{
    bool done[TNI_MAX_ACCESSES] = { false };
    for (int i = 0; i < w->k->nins; i++) {
        const tni_ins *x = ins_at(w, i);
        if (!tni_set_has(s, i) || !has_access(x) || done[x->access]) continue;
        done[x->access] = true;
        for (int axis = 0; axis < w->k->np + w->k->nr; axis++)
            if (w->k->access[x->access].stride[axis] == TNI_STRIDE_N)
                tni_out_line(w->o, "const m_long s%d_%d = arg[%d];", x->access, axis,
                             tni_c_arg_index(w, x->access) + 1 + axis);
    }
}

// Prints the values that vary along no axis, once for the function: numbers and what is made of
// them.
static void put_launch_values(tni_c_emitter *w, const tni_set *s)
{
    w->eval = (tni_set){ { 0 } };
    for (int i = 0; i < w->k->nins; i++)
        if (tni_set_has(s, i) && is_launch_value(w, i)) tni_set_add(&w->eval, i);
    tni_c_put_singles(w);
}

// The number of axes that a unit has a coordinate on: all of P, without the lane axis.
static int unit_axes(const tni_c_emitter *w)
{
    return w->k->lane_in_r || w->lane < 0 ? w->k->np : w->k->np - 1;
}

// Whether any access steps along an axis; if not, its coordinate would be an unused variable.
static bool is_used(const tni_c_emitter *w, const tni_set *s, int axis)
{
    for (int i = 0; i < w->k->nins; i++)
        if (tni_set_has(s, i) && has_access(ins_at(w, i)) &&
            w->k->access[ins_at(w, i)->access].stride[axis])
            return true;
    return false;
}

// Prints the coordinates of the first unit, by divisions; put_next_unit then counts them up, which
// is cheaper.
static void put_unit_coordinates(tni_c_emitter *w, const tni_set *s)
{
    int n = unit_axes(w);
    if (!w->k->lane_in_r && w->lane >= 0) {
        tni_out_line(w->o, "const m_long strips = (arg[%d] + %d) / %d;", w->lane, TNI_STRIP - 1,
                     TNI_STRIP);
        tni_out_line(w->o, "m_long strip = first %% strips;");
    }
    if (n > 0)
        tni_out_line(w->o, "m_long c0 = first%s;",
                     !w->k->lane_in_r && w->lane >= 0 ? " / strips" : "");
    for (int i = n - 1; i > 0; i--) {
        tni_out_line(w->o, "m_long c%d = c0 %% arg[%d];", i, i);
        tni_out_line(w->o, "c0 /= arg[%d];", i);
    }
    for (int i = 0; i < n; i++)
        if (!is_used(w, s, i)) tni_out_line(w->o, "(void)c%d;", i);
}

// Prints the step to the next unit: an odometer over the axes of P.
//
//     if (++c1 == arg[1]) {
//         c1 = 0;
//         c0++;
//     }
//
// or, of several rows, if ((c1 += rows) == arg[1]).
static void put_next_unit(tni_c_emitter *w)
{
    int n = unit_axes(w);
    for (int i = n - 1; i > 0; i--) {
        if (w->windows && i == n - 1) tni_out_line(w->o, "if ((c%d += rows) == arg[%d]) {", i, i);
        else tni_out_line(w->o, "if (++c%d == arg[%d]) {", i, i);
        tni_out_line(w->o, "c%d = 0;", i);
    }
    if (n > 0) tni_out_line(w->o, w->windows && n == 1 ? "c0 += rows;" : "c0++;");
    close_axes(w, n - 1);
}

// Whether strips that are side by side may be done in one turn: if no tile has the length of a
// strip and no sum depends on where a strip ends.
static bool is_merged(const tni_c_emitter *w)
{
    for (int i = 0; i < w->k->nins; i++)
        if (is_filled(w, i) || is_staged(w, i) || (tni_set_has(&w->strip_maps, i) && on_lane(w, i)))
            return false;
    return !w->k->nr && !w->k->tails;
}

// Declares the rows of a turn, which are those of an image as far as a strip holds them, and its
// lanes.
static void put_turn_of_rows(tni_c_emitter *w)
{
    tni_out *o = w->o;
    tni_out_line(o, "const m_long base = strip * %d, left = arg[%d] - base;", TNI_STRIP, w->lane);
    tni_out_line(o, "const m_long line = left < %d ? left : %d;", TNI_STRIP, TNI_STRIP);
    tni_out_line(o, "m_long rows = strips > 1 ? 1 : %d / line;", TNI_STRIP);
    tni_out_line(o, "if (rows > arg[%d] - c%d) rows = arg[%d] - c%d;", w->lane - 1, w->lane - 1,
                 w->lane - 1, w->lane - 1);
    tni_out_line(o, "if (rows > last - u) rows = last - u;");
    tni_out_line(o, "const m_long n = rows * line;");
}

// Opens the loop over strips (lane in P) and declares the values that are kept for a strip from
// block to block.
static void open_strip(tni_c_emitter *w)
{
    tni_out *o = w->o;
    tni_out_line(o, "for (m_long u = first; u < last;) {");
    if (w->windows) {
        put_turn_of_rows(w);
        return;
    }
    if (is_merged(w))
        tni_out_line(o,
                     "const m_long many = strips - strip < last - u ? strips - strip : last - u;");
    else tni_out_line(o, "const m_long many = 1;");
    tni_out_line(o, "const m_long base = strip * %d, left = arg[%d] - base;", TNI_STRIP, w->lane);
    tni_out_line(o, "const m_long n = left < many * %d ? left : many * %d;", TNI_STRIP, TNI_STRIP);
    for (int i = 0; i < w->k->nins; i++)
        if (tni_set_has(&w->strip, i))
            tni_out_line(o, "%s w%d[%d];", c_type_of(w, i), i, TNI_STRIP);
}

static void close_strip(tni_c_emitter *w)
{
    tni_out_line(w->o, w->windows ? "u += rows;" : "u += many;");
    tni_out_line(w->o, w->windows ? "strip++;" : "strip += many;");
    tni_out_line(w->o, "if (strip == strips) {");
    tni_out_line(w->o, "strip = 0;");
    put_next_unit(w);
    tni_out_line(w->o, "}");
    tni_out_line(w->o, "}");
}

// Prints one unit: row points and loops over R alternate, as emit.h explains.
static void put_unit(tni_c_emitter *w)
{
    tni_set have = { { 0 } };
    bool    wide = false;
    for (int q = 0; q <= w->k->phases; q++) {
        put_row_point(w, q);
        if (q < w->k->phases) put_r_loop(w, q, &have);
    }
    for (int i = 0; i < w->k->nins; i++) wide |= is_wide_tail(ins_at(w, i));
    if (wide && w->k->lane_in_r) put_tail_group(w);
}

// Prints the loop over the units first .. last-1: strips where the lane is in P, else rows.
static void put_units(tni_c_emitter *w)
{
    if (!w->k->lane_in_r && w->lane >= 0) {
        open_strip(w);
        put_unit(w);
        close_strip(w);
        return;
    }
    tni_out_line(w->o, "for (m_long u = first; u < last; u++) {");
    put_unit(w);
    put_next_unit(w);
    tni_out_line(w->o, "}");
}

// Prints the function that runs one chunk of units; see tni_c_main.
static void put_main_function(tni_c_emitter *w, const char *name)
{
    tni_set s = tni_needs_main(w->k);
    tni_out_line(w->o, "void %s(char *const *buffer, const m_long *arg, const m_ulong *number,",
                 name);
    tni_out_line(w->o, "    m_long first, m_long last, m_long chunk, char *partials, char *room,");
    tni_out_line(w->o, "    m_long *fail)");
    tni_out_line(w->o, "{");
    put_strides(w, &s);
    for (int i = 0; i < w->k->nins; i++) {
        if (tni_set_has(&w->kept, i)) put_row_pointer(w, 'h', i);
        if (tni_is_tail(ins_at(w, i))) put_tail_begin(w, i);
    }
    tni_c_begin_streams(w);
    put_launch_values(w, &s);
    put_unit_coordinates(w, &s);
    put_units(w);
    tni_c_end_streams(w);
    for (int i = 0; i < w->k->nins; i++)
        if (tni_is_tail(ins_at(w, i))) put_tail_end(w, i);
    tni_out_line(w->o, "}");
}

// ---- the finish stage --------------------------------------------------------------------------

// Prints the total of a tail over all chunks, in the order of chunks: one value, or one for each
// lane of the block.
static void put_tail_total(tni_c_emitter *w, int i)
{
    tni_out    *o     = w->o;
    bool        wide  = is_wide_tail(ins_at(w, i));
    const char *lanes = wide ? "M_LANES for (m_long j = 0; j < n; j++) " : "";
    char        into[40];
    snprintf(into, sizeof into, wide ? "q%d[j]" : "q%d", i);
    if (wide) tni_out_line(o, "%s q%d[%d];", wide_of(w, i), i, TNI_STRIP);
    else tni_out_line(o, "%s q%d;", wide_of(w, i), i);
    tni_out_print(o, "%*s%s%s = ", 4 * o->depth, "", lanes, into);
    put_fold_start(w, i, true);
    tni_out_print(o, ";\n");
    tni_out_line(o, "for (m_long i = 0; i < chunks; i++) {");
    tni_out_print(o, "%*sconst %s *e%d = ", 4 * o->depth, "", wide_of(w, i), i);
    put_partials_pointer(w, i, "i");
    tni_out_print(o, wide ? " + at;\n" : ";\n");
    tni_out_print(o, "%*s%s", 4 * o->depth, "", lanes);
    tni_out_print(o, "%s = o_%s_%c(%s, e%d[%s]);\n", into, tni_op_table[ins_at(w, i)->op].name,
                  tni_compute_suffix(wide_dtype(ins_at(w, i))), into, i, wide ? "j" : "0");
    tni_out_line(o, "}");
    if (!wide) tni_out_line(o, "const %s v%d = (%s)q%d;", c_type_of(w, i), i, c_type_of(w, i), i);
}

// Prints what the finish stage computes once: totals of row tails first, then what reads them.
static void put_finish_ones(tni_c_emitter *w)
{
    tni_set s = tni_needs_finish(w->k, false);
    for (int i = 0; i < w->k->nins; i++)
        if (tni_set_has(&s, i) && tni_is_tail(ins_at(w, i))) put_tail_total(w, i);
    w->eval = (tni_set){ { 0 } };
    for (int i = 0; i < w->k->nins; i++)
        if (tni_set_has(&s, i) && !tni_is_tail(ins_at(w, i))) tni_set_add(&w->eval, i);
    tni_c_put_singles(w);
}

// Prints the loop over R of the finish stage, block by block, with the totals of column tails in
// tiles.
static void put_finish_cols(tni_c_emitter *w)
{
    w->eval = tni_needs_finish(w->k, true);
    if (is_empty(&w->eval)) return;
    put_rows_of_lanes(w);
    for (int i = 0; i < w->k->nins; i++)
        if (tni_set_has(&w->eval, i) && tni_is_tail(ins_at(w, i))) put_tail_total(w, i);
    tni_c_put_singles(w);
    tni_c_put_block(w);
    end_rows_of_lanes(w);
}

// Prints NAME_finish. Its lanes are along the last axis of R wherever those of the main stage are,
// and nothing is kept. A CHECK here has passed in the main stage already, so that its failure goes
// to a variable that is not read.
static void put_finish_function(tni_c_emitter *w, const char *name)
{
    tni_set s = tni_needs_finish(w->k, false), cols = tni_needs_finish(w->k, true);
    bool    checks = false;
    join_set(&s, &cols);
    w->finish = true;
    w->lane   = w->k->nr ? w->k->np + w->k->nr - 1 : -1;
    w->kept = w->strip = (tni_set){ { 0 } };
    for (int i = 0; i < w->k->nins; i++)
        checks |= tni_set_has(&s, i) && ins_at(w, i)->code == TNI_I_CHECK;
    tni_out_line(w->o,
                 "void %s_finish(char *const *buffer, const m_long *arg, const m_ulong *number,",
                 name);
    tni_out_line(w->o, "    m_long chunks, char *partials, char *room)");
    tni_out_line(w->o, "{");
    if (checks) tni_out_line(w->o, "m_long fail[2] = { 0, 0 };");
    put_strides(w, &s);
    put_finish_ones(w);
    put_finish_cols(w);
    tni_out_line(w->o, "}");
}

// ---- the interface -----------------------------------------------------------------------------

// The skeleton for C: NAME, and NAME_finish if the kernel has tails.
void tni_emit_c(tni_out *o, const tni_dialect *d, const tni_emit_item *item)
{
    tni_c_emitter w;
    tni_c_open(&w, o, d, item->kernel);
    tni_tuning set = tni_emit_c_settings(item->opts);
    w.vectors      = set.of[TNI_KNOB_UNROLL];
    w.fetches      = set.of[TNI_KNOB_PREFETCH] != 2;
    tni_c_open_streams(&w);
    put_main_function(&w, item->name);
    if (item->kernel->tails) put_finish_function(&w, item->name);
}

tni_tuning tni_emit_c_settings(const tni_tuning *t)
{
    tni_tuning s = { { 0 } };
    if (!t) return s;
    s.of[TNI_KNOB_UNROLL] = t->of[TNI_KNOB_UNROLL];
    if (t->of[TNI_KNOB_PREFETCH] == 2) s.of[TNI_KNOB_PREFETCH] = 2;
    return s;
}

// The order is that of tni_c_arg_index: sizes, then offset, strides and index stride of each
// access; behind them how it stores.
int tni_emit_c_args(const tni_launch *l, tni_c_stores stores, int64_t *arg)
{
    int axes = l->kernel->np + l->kernel->nr, n = 0;
    for (int i = 0; i < axes; i++) arg[n++] = l->size[i];
    for (int i = 0; i < l->kernel->naccess; i++) {
        arg[n++] = l->offset[i];
        for (int j = 0; j < axes; j++) arg[n++] = l->stride[i][j];
        arg[n++] = l->stride[i][TNI_AXES];
    }
    arg[n++] = stores;
    return n;
}

// Rows depend on the kernel only, not on sizes: a device asks once and multiplies by the columns of
// each launch.
void tni_emit_c_rows(const tni_kernel *k, int rows[2])
{
    tni_c_emitter w;
    tni_c_open(&w, NULL, NULL, k);
    rows[0] = rows[1] = 0;
    for (int i = 0; i < k->nins; i++)
        if (tni_set_has(&w.kept, i) || (is_wide_tail(&k->ins[i]) && k->lane_in_r)) {
            tn_dtype dt = tni_compute_dtype((tn_dtype)k->ins[i].dtype);
            rows[tni_dtype_size(dt) == 8]++;
        }
}

// Each row is padded to 64 bytes, a cache line, as put_row_pointer steps.
size_t tni_c_scratch_bytes(const int rows[2], int64_t cols)
{
    size_t n = (size_t)cols;
    return (size_t)rows[0] * ((n * 4 + 63) / 64 * 64) + (size_t)rows[1] * ((n * 8 + 63) / 64 * 64);
}

size_t tni_emit_c_scratch(const tni_launch *l)
{
    int rows[2];
    tni_emit_c_rows(l->kernel, rows);
    return tni_c_scratch_bytes(rows, tni_kernel_split(l).cols);
}
