// Emits the CUDA and OpenCL text of a kernel, of any form. simt.h explains how the work is divided
// over threads, emit.h how one instruction is printed; test/golden has whole texts, each with its
// graph and its instructions.
//
// A thread moves vectors of V elements as 32-bit words and computes their elements one by one, in
// loops that the compiler unrolls. All fetches of a pass come before its work, so that they are in
// flight together:
//
//     fetch   for each of its vectors q: words x3[q * W ...] of the load 3
//     work    for each vector q, for each element j: values v4, v5, ...; folds; y7[j] of the store 7
//             then the vector y7
//
// Names in the text: b buffer, a base of an access in a line, i coordinate of an axis, c lane
// coordinate of a vector's first element, l that of element j, x words of a load, y elements of a
// store, v value, k value that is kept in an array, t accumulator of a tail, s partial results of a
// tail.
//
// POINT, of test/golden/point.txt: add(mul_s(relu(x), 0.5), y). u0 is the thread's first vector;
// the first loop fetches the words of both loads, the second computes and stores.
//
//     const m_int u0 = (m_int)(m_int)blockIdx.x * 256 + tid;
//     m_uint x0[4];
//     m_uint x4[4];
//     for (m_int q = 0; q < 1; q++) { ... x0[q * 4 + 0] = g.x; ... }
//     for (m_int q = 0; q < 1; q++) {
//         const m_int u = u0 + q * 256;
//         if (u < (m_int)a.w[0] * (m_int)a.w[1]) {
//             ...
//             float y6[4];
//             for (m_int j = 0; j < 4; j++) {
//                 const m_int l = c + j;
//                 const float v0 = m_float_bits(x0[q * 4 + j]);
//                 const float v1 = o_relu_f(v0);
//                 const float v3 = o_mul_f(v1, v2);
//                 const float v4 = m_float_bits(x4[q * 4 + j]);
//                 const float v5 = o_add_f(v3, v4);
//                 y6[j] = v5;
//             }
//
// ROW, of test/golden/row.txt: softmax(x, 1). A team of 128 threads has a row, its words in
// registers (x0) from loop to loop; the exponentials (k3) are kept too.
//
//     const m_int row = (m_int)(m_int)blockIdx.x * 1 + tid / 128;
//     const m_int live = row < (m_int)a.w[0];
//     ...
//     float v1 = m_float_bits(0xff800000u);                     loop 0: the largest of the row
//     for (m_int q = 0; q < 2; q++) { ... v1 = o_max_f(v1, v0); ... }
//     for (m_int d = 16; d > 0; d /= 2)
//         v1 = o_max_f(v1, __shfl_xor_sync(0xffffffffu, v1, d));
//     ...
//     float k3[8];                                              loop 1: the exponentials and their sum
//     float v4 = -0.0f;
//     for (m_int q = 0; q < 2; q++) { ... k3[q * 4 + j] = m_exp_below_f(v2); v4 = o_sum_f(v4, k3[q * 4 + j]); ... }
//     ...
//     const float v5 = o_reciprocal_f(v4);                      row point 2
//     for (m_int q = 0; q < 2; q++) { ... const float v6 = o_mul_f(k3[q * 4 + j], v5); ... }
//
// COL, of test/golden/col.txt: add(sum(x, 0), y). A team of 16 threads has the columns, four rows
// in flight; its accumulators t1 become a partial result s1 of the group, and the last group to end
// joins those of all.
//
//     for (m_int it = 0; it < chunk; it += 4) {
//         const m_int first = ((m_int)blockIdx.x * (m_int)a.w[3] + it) * 16 + tid / 16;
//         if (it + 3 < chunk && first + 48 < (m_int)a.w[0]) {
//             m_uint x0[16];
//             for (m_int q = 0; q < 4; q++) { ... }
//             for (m_int q = 0; q < 4; q++) { ... t1[j] = o_sum_f(t1[j], v0); ... }
//         } else { ... the same with a test of each row ... }
//     }
//     ... t1[j] over the teams of a warp, by shuffles ...
//     if (tid % 32 < 16)
//         for (m_int j = 0; j < 4; j++) ((float *)(red + 0))[tid / 32 * 64 + t * 4 + j] = t1[j];
//     __syncthreads();
//     for (m_int i = tid; i < 64; i += 256) {
//         ... the sums of column i of all warps become g1 ...
//         if (e < (m_int)a.w[2]) s1[e] = g1;
//     }
//     if (tid == 0) last = m_arrive(fail + 2) + 1u == gridDim.x * gridDim.y;
//     if (!last) return;
#include "kernel/simt_emitter.h"

#include <stdio.h>
#include <string.h>

// Vectors in flight of a loop over shared memory: its latency is short, so that four hide it, and
// the text of the loop, which is printed up to four times, stays small.
enum { STASH_UNROLL = 4 };

// Opens the loop over the elements j of a vector. In a window, `ok` says whether an element is in
// the line, and `l`, at which it is read, is clamped into it: values outside are computed too, and
// not used.
static void open_lanes(tni_simt_emitter *c)
{
    tni_out_print(c->o, "%s", c->d->unroll);
    tni_out_line(c->o, "for (m_int j = 0; j < %d; j++) {", c->m->vector);
    if (c->m->window && !c->interior) {
        tni_out_line(c->o, "const m_int ok = (%s)(c + j) < (%s)%s%s;", c->uindex, c->uindex,
                     tni_simt_lanes_name(c).s, c->m->form == TNI_SIMT_LANE ? " && live" : "");
        tni_out_line(c->o, "const %s l = c + j < 0 ? 0 : c + j < %s ? c + j : %s - 1;", c->index,
                     tni_simt_lanes_name(c).s, tni_simt_lanes_name(c).s);
        return;
    }
    if (c->m->form == TNI_SIMT_LANE) tni_out_line(c->o, "const m_int ok = live;");
    else if (c->m->window) tni_out_line(c->o, "const m_int ok = 1;");
    tni_out_line(c->o, "const %s l = c + j;", c->index);
}

// Declares the arrays of a pass: of values that are kept for later loops or hold the lanes of a
// thread, or (stores) of the elements of vectors that are stored.
static void declare_arrays(tni_simt_emitter *c, const tni_set *set, bool stores)
{
    int v = c->m->vector;
    for (int i = 0; i < c->k->nins; i++) {
        const tni_ins *x = &c->k->ins[i];
        if (!tni_set_has(set, i)) continue;
        if (stores && x->code == TNI_I_STORE && tni_simt_moves_vector(c, i))
            tni_out_line(c->o, "%s y%d[%d];", tni_storage_type(buffer_dtype(c, i)), i, v);
        if (stores || x->code == TNI_I_STORE || x->code == TNI_I_REDUCE) continue;
        if (c->stage == TNI_AT_LOOP && tni_set_has(&c->kept, i) && x->per & TNI_PER_COL)
            tni_out_line(c->o, "%s k%d[%d];", value_type(c, i), i, v * c->unroll);
        if (c->stage == TNI_AT_LANES && tni_simt_is_lane_array(c, i))
            tni_out_line(c->o, "%s k%d[%d];", value_type(c, i), i, v);
    }
}

// Whether REDUCE i folds the current vector two elements at a time.
static bool in_pairs(const tni_simt_emitter *c, int i)
{
    return c->stage == TNI_AT_LOOP && (c->interior || !c->m->window) && tni_simt_pair_of(c, i) >= 0;
}

// Prints the work on each element of a vector: instructions in order, then the folds that take
// whole words.
static void put_vector_elements(tni_simt_emitter *c, const tni_set *set)
{
    open_lanes(c);
    for (int i = 0; i < c->k->nins; i++)
        if (tni_set_has(set, i) && !tni_set_has(&c->scalar, i) && !tni_set_has(&c->line, i) &&
            !in_pairs(c, i))
            tni_simt_put_ins(c, i);
    tni_out_line(c->o, "}");
    for (int i = 0; i < c->k->nins; i++)
        if (tni_set_has(set, i) && in_pairs(c, i)) tni_simt_fold_pairs(c, i);
}

// Prints the work on a vector whose loads are done, and its stores under `guard`. In a window, only
// the vectors at the ends of a line have elements outside it, so the work is printed twice, with
// and without tests for each element, and a test of the vector chooses.
static void put_vector_work(tni_simt_emitter *c, const tni_set *set, const char *guard)
{
    bool both = c->m->window && !c->interior && !c->edge_vector;
    declare_arrays(c, set, true);
    if (both) {
        tni_simt_put_edge_test(c);
        c->interior = true;
        put_vector_elements(c, set);
        c->interior = false;
        tni_out_line(c->o, "} else {");
    }
    put_vector_elements(c, set);
    if (both) tni_out_line(c->o, "}");
    for (int i = 0; i < c->k->nins; i++) {
        if (!tni_set_has(set, i) || c->k->ins[i].code != TNI_I_STORE ||
            !tni_simt_moves_vector(c, i))
            continue;
        if (*guard) tni_out_line(c->o, "if (%s) {", guard);
        if (tni_simt_tiled(c, i)) tni_simt_put_tile(c, i);
        else tni_simt_put_vector(c, i);
        if (*guard) tni_out_line(c->o, "}");
    }
}

// Prints what a POINT or LANE thread needs to know about unit u: its line, coordinates, bases, and
// c.
static void open_unit(tni_simt_emitter *c)
{
    tni_text vectors = tni_simt_word_name(c, TNI_WORD_VECTORS);
    if (c->k->np > 1)
        tni_out_line(c->o, "const %s line = (%s)((%s)u / (%s)%s);", c->index, c->index, c->uindex,
                     c->uindex, vectors.s);
    if (c->k->np > 1) tni_simt_put_coordinates(c, 0, c->k->np - 1, "line");
    tni_simt_put_bases(c);
    tni_simt_put_shift(c, false);
    begin_indent(c);
    if (c->k->np > 1) tni_out_print(c->o, "const %s c = (u - line * %s)", c->index, vectors.s);
    else tni_out_print(c->o, "const %s c = u", c->index);
    tni_out_print(c->o, " * %d%s;\n", c->m->vector, c->m->window ? " - shift" : "");
}

// Prints the block of vector q where the vectors in flight belong to several rows: each has bases
// and row values of its own.
static void open_row_in_flight(tni_simt_emitter *c)
{
    const tni_kernel *k   = c->k;
    tni_set           set = tni_needs_row(k, 0);
    tni_out_line(c->o, "const %s line = first + q * %d;", c->index, c->m->rows);
    if (c->all_present) tni_out_line(c->o, "{");
    else
        tni_out_line(c->o, "if (it + q < chunk && line < %s) {",
                     tni_simt_word_name(c, TNI_WORD_LINES).s);
    tni_simt_put_coordinates(c, 0, k->np, "line");
    tni_simt_put_bases(c);
    tni_simt_put_shift(c, true);
    c->stage = TNI_AT_ROW;
    for (int i = 0; i < k->nins; i++)
        if (tni_set_has(&set, i)) tni_simt_put_ins(c, i);
    c->stage = TNI_AT_LOOP;
    tni_out_line(c->o, "const %s e = from * %d%s;", c->index, c->m->vector,
                 c->m->window ? " - shift" : "");
    tni_simt_put_coordinates(c, k->np, k->np + k->nr, "e");
    tni_out_line(c->o, "const %s c = i%d;", c->index, c->lane);
}

// POINT: prints the values that are equal along a line, ahead of a vector's fetches, whose guards
// and indices are among them.
static void put_line_values(tni_simt_emitter *c)
{
    for (int i = 0; i < c->k->nins; i++)
        if (tni_set_has(&c->line, i)) tni_simt_put_ins(c, i);
}

// Opens two blocks around the text of one vector, which tni_simt_close_vector closes: the loop over
// q, and a block for the vector, behind a bounds test unless the pass is known to be complete.
// Declares what the text of a vector uses: u (POINT) or i (its number in the row), the coordinates
// of R, and c, its first lane. With lockstep barriers the loop has one turn, since every thread
// must come to every barrier. Fetch and work each open their own loop; the compiler sees that the
// coordinates are the same.
void tni_simt_open_vector(tni_simt_emitter *c)
{
    const tni_kernel *k = c->k;
    if (c->lockstep) {
        tni_out_line(c->o, "{");
        tni_out_line(c->o, "const m_int q = 0;");
        tni_out_line(c->o, "const %s i = from;", c->index);
        tni_out_line(c->o, "{");
        tni_simt_put_coordinates(c, k->np, k->np + k->nr, "i");
        return;
    }
    if (c->m->tile) {
        tni_simt_open_slot(c, false);
        return;
    }
    tni_out_print(c->o, "%s", c->d->unroll);
    tni_out_line(c->o, "for (m_int q = 0; q < %d; q++) {", c->unroll);
    if (c->m->form == TNI_SIMT_POINT && c->m->columns) {
        tni_out_line(c->o, "const %s line = first + q * step;", c->index);
        tni_out_line(c->o, "if (line < %s) {", tni_simt_word_name(c, TNI_WORD_LINES).s);
        tni_simt_put_coordinates(c, 0, k->np - 1, "line");
        tni_simt_put_bases(c);
        put_line_values(c);
        return;
    }
    if (c->m->form == TNI_SIMT_POINT) {
        tni_out_line(c->o, "const %s u = u0 + q * %d;", c->index, c->m->rows);
        tni_out_line(c->o, "if (u < %s * %s) {", tni_simt_word_name(c, TNI_WORD_LINES).s,
                     tni_simt_word_name(c, TNI_WORD_VECTORS).s);
        open_unit(c);
        put_line_values(c);
        return;
    }
    if (c->m->rows_in_flight) {
        open_row_in_flight(c);
        return;
    }
    tni_out_line(c->o, "const %s i = from + q * %d;", c->index, tni_simt_apart(c));
    tni_out_line(c->o, c->all_present ? "{" : "if (i < n) {");
    if (c->m->form == TNI_SIMT_LANE) {
        tni_simt_put_coordinates(c, k->np, k->np + k->nr, "i");
        return;
    }
    tni_out_line(c->o, "const %s e = %s * %d%s;", c->index, c->m->cluster > 1 ? "(i + lo)" : "i",
                 c->m->vector, c->m->window ? " - shift" : "");
    tni_simt_put_coordinates(c, k->np, k->np + k->nr, "e");
    tni_out_line(c->o, "const %s c = i%d;", c->index, c->lane);
}

void tni_simt_close_vector(tni_simt_emitter *c)
{
    tni_out_line(c->o, "}");
    tni_out_line(c->o, "}");
}

// Prints the fetches of the loads that are the same in every row of the thread, ahead of all rows;
// `guard` tells whether the thread has columns at all.
static void put_column_fetches(tni_simt_emitter *c, const tni_set *set, const char *guard)
{
    const tni_kernel *k     = c->k;
    tni_set           loads = { 0 };
    if (!c->m->columns) return;
    for (int i = 0; i < k->nins; i++) {
        if (!tni_set_has(set, i) || k->ins[i].code != TNI_I_LOAD ||
            !(c->m->columns >> k->ins[i].access & 1))
            continue;
        tni_set_add(&loads, i);
        tni_set_add(&c->fetched, i);
        tni_out_line(c->o, "m_uint x%d[%d];", i, words_of(c, i));
    }
    tni_out_line(c->o, "%s{", guard);
    if (k->lane_in_r) {
        tni_out_line(c->o, "const %s e = from * %d;", c->index, c->m->vector);
        tni_simt_put_coordinates(c, k->np, k->np + k->nr, "e");
        tni_out_line(c->o, "const %s c = i%d;", c->index, c->lane);
    }
    for (int a = 0; a < k->naccess; a++)
        if (c->m->columns >> a & 1) tni_simt_put_base(c, a);
    for (int i = 0; i < k->nins; i++)
        if (tni_set_has(&loads, i)) tni_simt_fetch(c, i);
    tni_out_line(c->o, "}");
}

// Prints the fetches of a pass, except of loads that registers hold already. A load that shared
// memory is to hold is fetched by the first loop that reads it, and copied there after all fetches
// were issued. No barrier is needed: a thread reads back what it wrote itself, and in a window,
// where it may not, a fold of the group comes between.
static void put_vector_fetches(tni_simt_emitter *c, const tni_set *set)
{
    tni_set loads = { 0 }, stash = { 0 };
    int     n = 0, stashes = 0;
    for (int i = 0; i < c->k->nins; i++) {
        if (!tni_set_has(set, i) || c->k->ins[i].code != TNI_I_LOAD || !tni_simt_moves_vector(c, i))
            continue;
        if (c->m->hold == TNI_HOLD_REGISTERS && tni_set_has(&c->fetched, i)) continue;
        tni_set_add(&loads, i);
        tni_out_line(c->o, "m_uint x%d[%d];", i, words_of(c, i) * c->unroll);
        n += !tni_simt_tiled(c, i);
    }
    if (!n) return;
    tni_simt_open_vector(c);
    for (int i = 0; i < c->k->nins; i++) {
        if (!tni_set_has(&loads, i) || tni_simt_tiled(c, i)) continue;
        if (tni_simt_ahead(c, i) || (tni_simt_stashed(c, i) && tni_set_has(&c->fetched, i)))
            tni_simt_put_stash(c, i, false);
        else tni_simt_fetch(c, i);
        if (!tni_simt_stashed(c, i) || tni_set_has(&c->fetched, i)) continue;
        tni_set_add(&stash, i);
        stashes++;
    }
    tni_simt_close_vector(c);
    for (size_t w = 0; w < sizeof loads.bit / sizeof *loads.bit; w++)
        c->fetched.bit[w] |= loads.bit[w];
    if (!stashes) return;
    tni_simt_open_vector(c);
    for (int i = 0; i < c->k->nins; i++)
        if (tni_set_has(&stash, i)) tni_simt_put_stash(c, i, true);
    tni_simt_close_vector(c);
}

// The reductions over R of a set.
static tni_set folds_of(const tni_simt_emitter *c, const tni_set *set)
{
    tni_set folds = { 0 };
    for (int i = 0; i < c->k->nins; i++)
        if (tni_set_has(set, i) && tni_is_row_reduce(&c->k->ins[i])) tni_set_add(&folds, i);
    return folds;
}

// Declares the accumulators of the reductions of a loop, started with what a fold of nothing is:
// one for a thread (ROW), or one for each lane (LANE).
static void declare_folds(tni_simt_emitter *c, const tni_set *folds)
{
    for (int i = 0; i < c->k->nins; i++) {
        const tni_ins *x = &c->k->ins[i];
        if (!tni_set_has(folds, i)) continue;
        const char *start = tni_fold_start(x->op, (tn_dtype)x->dtype);
        if (c->m->form == TNI_SIMT_ROW) {
            tni_out_line(c->o, "%s v%d = %s;", value_type(c, i), i, start);
            tni_simt_declare_pair(c, i);
            continue;
        }
        tni_out_line(c->o, "%s k%d[%d];", value_type(c, i), i, c->m->vector);
        tni_out_print(c->o, "%s", c->d->unroll);
        tni_out_line(c->o, "for (m_int j = 0; j < %d; j++) k%d[j] = %s;", c->m->vector, i, start);
    }
}

// LANE: prints the accumulator of each column tail before the work on an r, or after it (after) the
// fold over the group and the store of the partial result. All threads are at the same r.
static void put_lane_tails(tni_simt_emitter *c, const tni_set *set, bool after)
{
    for (int i = 0; i < c->k->nins; i++) {
        const tni_ins *x   = &c->k->ins[i];
        tni_set        one = { 0 };
        if (!tni_set_has(set, i) || !tni_is_tail(x)) continue;
        if (!after) {
            tni_out_line(c->o, "%s t%d = %s;", value_type(c, i), i,
                         tni_fold_start(x->op, (tn_dtype)x->dtype));
            continue;
        }
        tni_set_add(&one, i);
        tni_simt_fold_team(c, &one, 't', c->m->rows);
        tni_out_line(c->o, "if (tid == 0) s%d[i] = t%d;", i, i);
    }
}

// Whether a loop reads shared memory only: it needs no loads in flight ahead of its work.
static bool all_stashed(const tni_simt_emitter *c, const tni_set *set)
{
    for (int i = 0; i < c->k->nins; i++)
        if (tni_set_has(set, i) && c->k->ins[i].code == TNI_I_LOAD &&
            !(tni_simt_stashed(c, i) && tni_set_has(&c->fetched, i)))
            return false;
    return true;
}

// Prints the fetches and the work of the vectors that a thread has in flight.
static void put_vector_pass(tni_simt_emitter *c, const tni_set *set)
{
    bool lane = c->m->form == TNI_SIMT_LANE;
    put_vector_fetches(c, set);
    if (c->m->by_warps) tni_simt_ask_ahead(c, false);
    tni_simt_open_vector(c);
    if (lane) put_lane_tails(c, set, false);
    put_vector_work(c, set, lane ? "live" : "");
    if (lane) put_lane_tails(c, set, true);
    tni_simt_close_vector(c);
}

// Prints one turn of a loop over a row that registers do not hold, twice: where all vectors in
// flight exist and are inside the row, without any test; else vector by vector. Both branches fetch
// the same loads, so the set of what was fetched is restored in between.
static void put_loop_turn(tni_simt_emitter *c, const tni_set *set)
{
    bool     row = c->m->form == TNI_SIMT_ROW, window = row && c->m->window;
    int      last = (c->unroll - 1) * c->m->team, v = c->m->vector;
    tni_set  fetched = c->fetched;
    tni_text cols    = tni_simt_word_name(c, TNI_WORD_COLS);
    if (c->lockstep || (!last && !window)) {
        c->all_present = true;
        put_vector_pass(c, set);
        c->all_present = false;
        return;
    }
    const char *lo = c->m->cluster > 1 ? " + lo" : "";
    if (window)
        tni_out_line(c->o, "if ((from%s) * %d >= shift && (from%s + %d) * %d - shift <= %s) {", lo,
                     v, lo, last + 1, v, cols.s);
    else tni_out_line(c->o, "if (from + %d < n) {", last);
    c->all_present = true, c->interior = row;
    put_vector_pass(c, set);
    c->all_present = c->interior = false;
    c->fetched                   = fetched;
    tni_out_line(c->o, "} else {");
    tni_out_line(c->o, "for (%s one = from; one < n && one <= from + %d; one += %d) {", c->index,
                 last, c->m->team);
    tni_out_line(c->o, "const %s from = one;", c->index);
    c->unroll = 1, c->all_present = true, c->edge_vector = row;
    put_vector_pass(c, set);
    c->all_present = c->edge_vector = false;
    tni_out_line(c->o, "}");
    tni_out_line(c->o, "}");
}

// Prints the test that no vector in flight holds a column that the row names (a one-hot target),
// which nearly always passes. Returns whether anything was tested: the work printed behind it then
// takes the comparison to be false.
static bool put_no_match_test(tni_simt_emitter *c, const tni_set *set)
{
    bool asked = false;
    for (int i = 0; i < c->k->nins; i++) {
        if (!tni_set_has(set, i) || !tni_simt_finds_column(c, i)) continue;
        asked = true;
        for (int q = 0; q < c->unroll; q++)
            tni_out_print(c->o, " && (m_uint)(w%d%s - (from%s + %d) * %d) >= %du", i,
                          c->m->window ? " + shift" : "", c->m->cluster > 1 ? " + lo" : "",
                          q * c->m->team, c->m->vector, c->m->vector);
    }
    return asked;
}

// Prints a loop over a row in shared memory. All vectors except those at the ends of a window are
// inside the row, so the loop goes from `begin` to `end` without tests of elements, STASH_UNROLL
// vectors at a time and the rest one by one; threads 0 and 1 take the two ends.
static void put_stashed_loop(tni_simt_emitter *c, const tni_set *set)
{
    bool        window  = c->m->window;
    int         last    = (STASH_UNROLL - 1) * c->m->team;
    tni_set     fetched = c->fetched;
    const char *end     = window ? "end" : "n";
    tni_out_line(c->o, "for (%s from = %st; from < %s; from += %d) {", c->index,
                 window ? "begin + " : "", end, last + c->m->team);
    c->unroll = STASH_UNROLL, c->all_present = c->interior = true;
    begin_indent(c);
    tni_out_print(c->o, "if (from + %d < %s", last, end);
    c->no_column_match = put_no_match_test(c, set);
    tni_out_print(c->o, ") {\n");
    c->o->depth++;
    put_vector_pass(c, set);
    c->unroll = 1, c->no_column_match = false, c->fetched = fetched;
    tni_out_line(c->o, "} else {");
    tni_out_line(c->o, "for (%s one = from; one < %s && one <= from + %d; one += %d) {", c->index,
                 end, last, c->m->team);
    tni_out_line(c->o, "const %s from = one;", c->index);
    put_vector_pass(c, set);
    c->interior = false, c->fetched = fetched;
    tni_out_line(c->o, "}");
    tni_out_line(c->o, "}");
    tni_out_line(c->o, "}");
    if (window) {
        tni_out_line(c->o, "if (t < 2 && (t ? end < n : begin > 0)) {");
        tni_out_line(c->o, "const %s from = t ? n - 1 : 0;", c->index);
        c->edge_vector = true;
        put_vector_pass(c, set);
        c->edge_vector = false;
        tni_out_line(c->o, "}");
    }
    c->all_present = false;
}

// Prints loop q over R of a row: declarations, the part of instructions that the row decides, the
// passes over the vectors by where the row is held (shared memory: put_stashed_loop; nothing:
// put_loop_turn in a loop; registers: one pass), then the folds over pairs, team, cluster or lanes.
// Values that are costly are marked as kept first, so that later loops find them in arrays.
static void put_phase_loop(tni_simt_emitter *c, int q)
{
    tni_set set = tni_needs_loop(c->k, q, &c->kept), none = { 0 };
    tni_set folds = folds_of(c, &set);
    bool    lane = c->m->form == TNI_SIMT_LANE, loops = c->m->hold != TNI_HOLD_REGISTERS;
    if (!memcmp(&set, &none, sizeof set)) return;
    c->stage    = TNI_AT_LOOP;
    c->loop_set = set;
    for (int i = 0; i < c->k->nins && c->m->keep_costly; i++)
        if (tni_set_has(&set, i) && tni_set_has(&c->costly, i)) tni_set_add(&c->kept, i);
    bool near = c->m->form == TNI_SIMT_ROW && c->m->hold == TNI_HOLD_SHARED && all_stashed(c, &set);
    c->unroll = near ? 1 : c->m->unroll;
    declare_arrays(c, &set, false);
    declare_folds(c, &folds);
    for (int i = 0; i < c->k->nins; i++)
        if (tni_set_has(&set, i)) tni_simt_put_hoisted(c, i);
    if (near) {
        put_stashed_loop(c, &set);
    } else if (loops) {
        tni_out_line(c->o, "for (%s from = %s; from < n; from += %d) {", c->index, lane ? "k" : "t",
                     c->m->team * c->unroll);
        put_loop_turn(c, &set);
        tni_out_line(c->o, "}");
    } else {
        c->all_present = c->m->complete;
        put_vector_pass(c, &set);
        c->all_present = false;
    }
    for (int i = 0; i < c->k->nins; i++)
        if (tni_set_has(&folds, i)) tni_simt_join_pair(c, i);
    if (!lane) tni_simt_fold_team(c, &folds, 'v', c->m->team);
    if (tni_simt_is_ahead(c->m))
        tni_simt_ask_ahead(c, memcmp(&folds, &none, sizeof folds) != 0 && c->m->team > TNI_WARP);
    if (c->m->cluster > 1 && memcmp(&folds, &none, sizeof folds)) tni_simt_fold_cluster(c, &folds);
    for (int i = 0; i < c->k->nins && lane && c->m->team > 1; i++)
        if (tni_set_has(&folds, i)) tni_simt_fold_lanes(c, i);
}

// Declares h, where each load that shared memory holds begins; loads follow each other, padded to
// 16 bytes.
static void declare_stash(tni_simt_emitter *c)
{
    int before = -1, words = 0;
    if (c->m->hold != TNI_HOLD_SHARED || c->m->bulk) return;
    if (tni_gpu_has(c->m, TNI_GPU_STRUCT)) tni_out_line(c->o, "extern __shared__ uint4 stash[];");
    c->stage = TNI_AT_LOOP;
    for (int i = 0; i < c->k->nins; i++) {
        if (c->k->ins[i].code != TNI_I_LOAD || !tni_simt_stashed(c, i)) continue;
        if (before < 0) tni_out_line(c->o, "%suint4 *const h%d = stash;", c->local, i);
        else
            tni_out_line(c->o, "%suint4 *const h%d = h%d + (%s * %d + 3) / 4;", c->local, i, before,
                         tni_simt_word_name(c, TNI_WORD_VECTORS).s, words);
        before = i;
        words  = words_of(c, i);
    }
}

// Declares which vectors of the row, or of this group's piece of it, have all their elements in the
// row.
static void put_interior_bounds(tni_simt_emitter *c)
{
    bool piece = c->m->cluster > 1;
    tni_out_line(c->o, "const %s begin = shift > 0%s && n > 0;", c->index,
                 piece ? " && lo == 0" : "");
    tni_out_line(c->o, "const %s end = n - (n > begin && (n%s) * %d - shift > %s);", c->index,
                 piece ? " + lo" : "", c->m->vector, tni_simt_word_name(c, TNI_WORD_COLS).s);
}

// A row past the last is computed as the last one again (`line`), with no vectors and no stores
// (`live`), so that all threads of the group reach every barrier.
void tni_simt_put_row_line(tni_simt_emitter *c, bool own_block)
{
    tni_out_line(c->o, "const m_int live = row < %s;", tni_simt_word_name(c, TNI_WORD_LINES).s);
    tni_out_line(c->o, "const %s line = live ? row : %s - 1;", c->index,
                 tni_simt_word_name(c, TNI_WORD_LINES).s);
    tni_simt_put_coordinates(c, 0, c->k->np, "line");
    tni_simt_put_bases(c);
    tni_simt_put_shift(c, c->k->tails && !own_block);
    if (c->m->bulk) tni_simt_put_piece(c);
    else tni_out_line(c->o, "const %s n = live ? %s : 0;", c->index, tni_simt_row_vectors(c).s);
    if (c->m->hold == TNI_HOLD_SHARED && c->m->window) put_interior_bounds(c);
}

tni_text tni_simt_row_name(const tni_simt_emitter *c, const char *it)
{
    return tni_text_of("(%s * %s + %s) * %d + tid / %d", c->d->group_id,
                       tni_simt_word_name(c, TNI_WORD_CHUNK).s, it, c->m->rows, c->m->team);
}

// Whether a team has several rows, one after the other.
static bool has_many_rows(const tni_simt_emitter *c)
{
    return c->k->tails || c->m->bulk;
}

// Whether threads read what others put into shared memory, so that a barrier must come before the
// words of the next row replace it.
static bool shares_stash(const tni_simt_emitter *c)
{
    return c->k->tails && !c->m->bulk && c->m->hold == TNI_HOLD_SHARED && c->m->window;
}

// Prints the loop over rows of which only columns are added up. No thread waits for another, so
// that each has vectors of `unroll` rows in flight. As in put_loop_turn the turn is printed twice,
// with and without tests.
static void put_rows_in_flight(tni_simt_emitter *c)
{
    tni_set  set     = tni_needs_loop(c->k, 0, NULL);
    tni_text chunk   = tni_simt_word_name(c, TNI_WORD_CHUNK),
             lines   = tni_simt_word_name(c, TNI_WORD_LINES),
             vectors = tni_simt_word_name(c, TNI_WORD_VECTORS);
    tni_text guard   = tni_text_of("if (from < %s) ", vectors.s);
    c->stage         = TNI_AT_LOOP;
    put_column_fetches(c, &set, guard.s);
    tni_set columns = c->fetched;
    tni_out_line(c->o, "const %s chunk = from < %s ? %s : 0;", c->index, vectors.s, chunk.s);
    tni_out_line(c->o, "for (%s it = 0; it < chunk; it += %d) {", c->index, c->unroll);
    tni_out_line(c->o, "const %s first = (%s * %s + it) * %d + tid / %d;", c->index,
                 tni_simt_group_name(c).s, chunk.s, c->m->rows, c->m->team);
    tni_out_line(c->o, "if (it + %d < chunk && first + %d < %s) {", c->unroll - 1,
                 (c->unroll - 1) * c->m->rows, lines.s);
    c->all_present = true;
    put_vector_pass(c, &set);
    c->all_present = false;
    c->fetched     = columns;
    tni_out_line(c->o, "} else {");
    put_vector_pass(c, &set);
    tni_out_line(c->o, "}");
    tni_out_line(c->o, "}");
    c->unroll = 1;
}

// Prints the body of ROW. A team of threads takes a row (`row`), or with tails or bulk copies one
// row after the other; for each row the row points and loops alternate, q = 0 .. phases: values of
// the row that phase q needs are computed by every thread of the team, alike, then loop q goes over
// the row's vectors. After the last row the partial results of tails are stored.
static void put_row_form(tni_simt_emitter *c)
{
    tni_out_line(c->o, "const m_int t = tid %% %d;", c->m->team);
    declare_stash(c);
    tni_text slice = { "" };
    if (c->m->split_columns == TNI_SLICES_SECOND)
        snprintf(slice.s, sizeof slice.s, c->d->second_axis, c->m->team);
    if (c->m->split_columns == TNI_SLICES_FIRST)
        slice = tni_text_of(" + (%s)%s * %d", c->index, c->d->group_id, c->m->team);
    if (c->m->by_warps)
        tni_out_line(c->o, "const %s from = tid / %d * %d + tid %% %d;", c->index, TNI_WARP,
                     TNI_WARP * c->unroll, TNI_WARP);
    else if (c->m->hold == TNI_HOLD_REGISTERS)
        tni_out_line(c->o, "const %s from = t%s;", c->index, slice.s);
    if (c->m->bulk) tni_simt_open_bulk(c);
    if (c->k->tails) tni_simt_declare_tails(c, c->m->tickets ? "0" : tni_simt_group_name(c).s);
    if (c->k->tails && c->m->window) tni_out_line(c->o, "%s shift = 0;", c->index);
    if (c->m->rows_in_flight) {
        put_rows_in_flight(c);
        tni_simt_put_row_partials(c);
        return;
    }
    if (c->m->prefetch_row) tni_simt_open_prefetch(c);
    if (c->m->bulk) {
        tni_simt_open_bulk_row(c);
    } else if (c->k->tails) {
        tni_out_line(c->o, "for (%s it = 0; it < %s; it++) {", c->index,
                     tni_simt_word_name(c, TNI_WORD_CHUNK).s);
        tni_out_line(c->o, "const %s row = %s;", c->index, tni_simt_row_name(c, "it").s);
    } else {
        tni_out_line(c->o, "const %s row = (%s)%s * %d + tid / %d;", c->index, c->index,
                     c->d->group_id, c->m->rows, c->m->team);
    }
    tni_simt_put_row_line(c, false);
    if (c->m->prefetch_row) tni_simt_prefetch_row(c);
    for (int q = 0; q <= c->k->phases; q++) {
        tni_set set = tni_needs_row(c->k, q);
        c->stage    = TNI_AT_ROW;
        for (int i = 0; i < c->k->nins; i++)
            if (tni_set_has(&set, i)) tni_simt_put_ins(c, i);
        if (c->m->bulk && q == 0)
            tni_out_line(c->o, "m_await(&full%s, turn);", c->m->by_warps ? "[tid / 32]" : "");
        if (q < c->k->phases) put_phase_loop(c, q);
    }
    if (c->m->tickets) tni_simt_put_ticket_partials(c);
    if (c->m->bulk) tni_simt_release_row(c);
    if (c->m->prefetch_row) tni_simt_take_prefetched(c);
    if (shares_stash(c)) tni_out_line(c->o, "%s;", c->d->barrier);
    if (has_many_rows(c)) tni_out_line(c->o, "}");
    if (c->k->tails && !c->m->tickets) tni_simt_put_row_partials(c);
}

// Prints the values that are equal in all lanes, once for a thread.
static void put_scalars(tni_simt_emitter *c)
{
    tni_set set = tni_needs_row(c->k, 0);
    c->stage    = TNI_AT_ROW;
    for (int i = 0; i < c->k->nins; i++)
        if (tni_set_has(&set, i) && tni_set_has(&c->scalar, i)) tni_simt_put_ins(c, i);
}

// Opens the turns of a group over its units, of which a turn has `per`: one turn, or with tails
// `chunk` turns of which the group leaves one partial result. `unit` is declared as the number of
// this thread's unit.
static void open_turns(tni_simt_emitter *c, const char *unit, int per, const char *thread)
{
    tni_text chunk = tni_simt_word_name(c, TNI_WORD_CHUNK);
    put_scalars(c);
    if (c->k->tails) {
        tni_simt_declare_tails(c, c->d->group_id);
        tni_out_line(c->o, "for (%s it = 0; it < %s; it++) {", c->index, chunk.s);
        tni_out_line(c->o, "const %s %s = ((%s)%s * %s + it) * %d + %s;", c->index, unit, c->index,
                     c->d->group_id, chunk.s, per, thread);
    } else {
        tni_out_line(c->o, "const %s %s = (%s)%s * %d + %s;", c->index, unit, c->index,
                     c->d->group_id, per, thread);
    }
}

static void close_turns(tni_simt_emitter *c)
{
    if (!c->k->tails) return;
    tni_out_line(c->o, "}");
    tni_simt_put_group_partials(c);
}

// Prints the body of POINT with tiles: fetch what goes through tiles, fetch the rest, fill the
// tiles, wait, work, drain. All loads are in flight before the first is waited for.
static void put_tiled_form(tni_simt_emitter *c)
{
    tni_set set = tni_needs_row(c->k, 0);
    put_scalars(c);
    c->stage = TNI_AT_LOOP;
    tni_simt_open_tile(c, &set);
    put_vector_fetches(c, &set);
    tni_simt_fill_tile(c, &set);
    tni_simt_open_vector(c);
    tni_simt_take_tile(c, &set);
    put_vector_work(c, &set, "");
    tni_simt_close_vector(c);
    tni_simt_drain_tile(c, &set);
}

// POINT whose threads have the same columns of several rows: a group's turn is `step` whole rows,
// `first` is the first row of this thread, c the first lane of its vectors.
static void open_rows_of_group(tni_simt_emitter *c)
{
    tni_text vectors = tni_simt_word_name(c, TNI_WORD_VECTORS);
    tni_out_line(c->o, "const %s step = (%s)(%du / (%s)%s);", c->index, c->index, c->m->rows,
                 c->uindex, vectors.s);
    tni_out_line(c->o, "const %s at = (%s)((%s)tid / (%s)%s);", c->index, c->index, c->uindex,
                 c->uindex, vectors.s);
    tni_out_line(c->o, "const %s first = (%s)%s * step * %d + at;", c->index, c->index,
                 c->d->group_id, c->unroll);
    tni_out_line(c->o, "const %s c = (tid - at * %s) * %d;", c->index, vectors.s, c->m->vector);
}

// Prints the body of POINT: fetches and work of the thread's vectors, in turns if there are tails.
static void put_point_form(tni_simt_emitter *c)
{
    tni_set set = tni_needs_row(c->k, 0);
    if (c->m->columns) put_scalars(c);
    else open_turns(c, "u0", c->m->rows * c->unroll, "tid");
    c->stage = TNI_AT_LOOP;
    if (c->m->columns) open_rows_of_group(c);
    put_column_fetches(c, &set, "");
    put_vector_fetches(c, &set);
    tni_simt_open_vector(c);
    put_vector_work(c, &set, "");
    tni_simt_close_vector(c);
    close_turns(c);
}

// Prints a row point of LANE: fetches and work for the one vector of lanes, outside the loops over
// R. The values go to arrays, since later loops read them lane by lane.
static void put_lane_point(tni_simt_emitter *c, const tni_set *set)
{
    tni_set none = { 0 }, work = *set;
    for (size_t w = 0; w < sizeof work.bit / sizeof *work.bit; w++)
        work.bit[w] &= ~c->scalar.bit[w];
    if (!memcmp(&work, &none, sizeof work)) return;
    c->stage = TNI_AT_LANES;
    for (int i = 0; i < c->k->nins; i++) {
        if (!tni_set_has(&work, i) || c->k->ins[i].code != TNI_I_LOAD ||
            !tni_simt_moves_vector(c, i))
            continue;
        tni_out_line(c->o, "m_uint x%d[%d];", i, words_of(c, i));
        tni_simt_fetch(c, i);
    }
    declare_arrays(c, &work, false);
    tni_out_line(c->o, "{");
    put_vector_work(c, &work, "live && k == 0");
    tni_out_line(c->o, "}");
}

// Prints the body of LANE. Thread t of a turn has a vector of neighbouring rows; k numbers the
// threads that share its elements of R. Threads past the last unit compute the last one again and
// store nothing.
static void put_lane_form(tni_simt_emitter *c)
{
    tni_text lines   = tni_simt_word_name(c, TNI_WORD_LINES),
             vectors = tni_simt_word_name(c, TNI_WORD_VECTORS);
    tni_out_line(c->o, "const m_int t = tid %% %d, k = tid / %d;", c->m->rows, c->m->rows);
    open_turns(c, "unit", c->m->rows, "t");
    tni_out_line(c->o, "const %s units = %s * %s;", c->index, lines.s, vectors.s);
    tni_out_line(c->o, "const m_int live = unit < units;");
    tni_out_line(c->o, "const %s u = live ? unit : units - 1;", c->index);
    open_unit(c);
    tni_out_line(c->o, "const %s n = %s;", c->index, tni_simt_word_name(c, TNI_WORD_COLS).s);
    for (int q = 0; q <= c->k->phases; q++) {
        tni_set set = tni_needs_row(c->k, q);
        put_lane_point(c, &set);
        if (q < c->k->phases) put_phase_loop(c, q);
    }
    close_turns(c);
}

// Finds the values that vary along no axis and are made of such values only: equal in all lanes;
// and those of POINT that do not vary along the lane. ROW computes them at its row points anyway.
static void find_scalars(tni_simt_emitter *c)
{
    uint8_t varies[TNI_MAX_INS];
    tni_varying_axes(c->k, varies);
    for (int i = 0; i < c->k->nins && c->m->form != TNI_SIMT_ROW; i++) {
        const tni_ins *x     = &c->k->ins[i];
        const int16_t  op[3] = { x->a, x->b, x->c };
        bool           all   = !varies[i] && x->code != TNI_I_REDUCE && x->code != TNI_I_STORE;
        for (int n = 0; n < 3; n++)
            if (op[n] != TNI_NO_VALUE && !tni_set_has(&c->scalar, op[n])) all = false;
        if (all) tni_set_add(&c->scalar, i);
    }
    tni_set need = tni_needs_main(c->k);
    for (int i = 0; i < c->k->nins && c->m->form == TNI_SIMT_POINT && !c->m->tile; i++) {
        const tni_ins *x = &c->k->ins[i];
        bool computed = x->code != TNI_I_REDUCE && x->code != TNI_I_STORE && tni_set_has(&need, i);
        if (computed && c->lane >= 0 && !(varies[i] >> c->lane & 1) && !tni_set_has(&c->scalar, i))
            tni_set_add(&c->line, i);
    }
}

// Prints NAME_finish, which joins the partial results of all parts: group 0 what is one value, and
// each group its finish_cols columns.
static void put_finish_kernel(tni_simt_emitter *c)
{
    int threads = c->m->finish_threads, red = tni_simt_fold_words(c, threads);
    if (red < tni_simt_join_words(c, threads)) red = tni_simt_join_words(c, threads);
    tni_out_print(c->o, "\n");
    tni_simt_open_kernel(c, "_finish", threads, red);
    tni_simt_declare_parts(c);
    tni_text mine;
    snprintf(mine.s, sizeof mine.s, "tid == 0 && %s == 0", c->d->group_id);
    tni_simt_finish_once(c, threads, mine.s);
    snprintf(mine.s, sizeof mine.s, "%s * %d", c->d->group_id, c->m->finish_cols);
    if (tni_simt_finishes_columns(c)) tni_simt_finish_columns(c, threads, mine.s);
    tni_simt_close_kernel(c);
}

// The skeleton for CUDA and OpenCL: prints kernel NAME of an item whose opts is its class, and
// NAME_finish if its tails are finished by a second kernel.
void tni_emit_simt(tni_out *o, const tni_dialect *d, const tni_emit_item *item)
{
    const tni_simt_class *m = item->opts;
    const tni_kernel     *k = item->kernel;
    tni_simt_emitter      c = { .o = o, .k = k, .d = d, .m = m, .name = item->name };
    c.emitter               = tni_simt_callbacks(k, d, o);
    c.index                 = m->wide ? "m_long" : "m_int";
    c.uindex                = m->wide ? "m_ulong" : "m_uint";
    c.local                 = d->local;
    c.lane                  = k->lane_in_r ? k->np + k->nr - 1 : k->np - 1;
    c.reread                = tni_simt_reread(k);
    c.costly                = tni_simt_costly(k);
    c.max_folds             = tni_simt_count_folds(k);
    c.unroll                = m->unroll;
    c.word_letter           = 'x';
    for (int i = 0; i < k->nins && m->form == TNI_SIMT_LANE; i++)
        if (tni_is_tail(&k->ins[i]) && k->ins[i].per) c.lockstep = true;
    tni_simt_layout_of(k, &c.at);
    find_scalars(&c);
    if (tni_gpu_has(m, TNI_GPU_STRUCT)) tni_simt_put_args(&c);
    tni_simt_open_kernel(&c, "", m->team * m->rows, tni_simt_red_words(&c));
    if (m->form == TNI_SIMT_ROW) put_row_form(&c);
    else if (m->form == TNI_SIMT_LANE) put_lane_form(&c);
    else if (m->tile) put_tiled_form(&c);
    else put_point_form(&c);
    // A group whose shared memory another one of the cluster may still read must not end.
    if (m->cluster > 1) tni_out_line(o, "m_cluster_barrier();");
    if (m->finish == TNI_FINISH_LAST) tni_simt_finish_last(&c);
    tni_simt_close_kernel(&c);
    if (m->finish == TNI_FINISH_KERNEL) put_finish_kernel(&c);
}
