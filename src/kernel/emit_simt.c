// The skeletons of kernels for devices with work groups: CUDA and OpenCL text of a kernel of any
// form. simt.h says how the work is cut; what one instruction is, emit.h. Samples of what it prints, each
// with its graph and its instructions: test/golden.
//
// A thread moves vectors of V elements as 32-bit words and computes their elements one by one, in
// loops that the compiler unrolls:
//
//     fetch   for each of its vectors q: words x3[q * W ...] of the load 3
//     work    for each vector q, for each element j: values v4, v5, ...; folds; y7[j] of the store 7
//             then the vector y7
//
// Names in the text: b buffer, a base of an access in a line, i coordinate of an axis, c lane
// coordinate of a vector's first element, l that of element j, x words of a load, y elements of a
// store, v value, k value that is kept in an array, t tail, s partials of a tail.
#include "kernel/simt_emitter.h"

#include <stdio.h>
#include <string.h>

enum { NEAR_UNROLL = 4 };  // vectors in hand of a loop over what is near

static void open_lanes(tni_simt_emitter *c)
{
    tni_out_print(c->o, "%s", c->d->unroll);
    tni_out_line(c->o, "for (m_int j = 0; j < %d; j++) {", c->m->vector);
    if (c->m->window && !c->whole) {
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

// Arrays for what a pass makes: values kept, stores.
static void declare_arrays(tni_simt_emitter *c, const tni_set *set, bool stores)
{
    int v = c->m->vector;
    for (int i = 0; i < c->k->nins; i++) {
        const tni_ins *x = &c->k->ins[i];
        if (!tni_set_has(set, i)) continue;
        if (stores && x->code == TNI_I_STORE && tni_simt_moves(c, i))
            tni_out_line(c->o, "%s y%d[%d];", tni_storage_type(buffer_dtype(c, i)), i, v);
        if (stores || x->code == TNI_I_STORE || x->code == TNI_I_REDUCE) continue;
        if (c->stage == TNI_AT_LOOP && tni_set_has(&c->kept, i) && x->per & TNI_PER_COL)
            tni_out_line(c->o, "%s k%d[%d];", type_of(c, i), i, v * c->unroll);
        if (c->stage == TNI_AT_LANES && tni_simt_in_lanes(c, i))
            tni_out_line(c->o, "%s k%d[%d];", type_of(c, i), i, v);
    }
}

// Whether a fold takes the vector at hand by pairs.
static bool in_pairs(const tni_simt_emitter *c, int i)
{
    return c->stage == TNI_AT_LOOP && (c->whole || !c->m->window) && tni_simt_pair_of(c, i) >= 0;
}

static void put_elements(tni_simt_emitter *c, const tni_set *set)
{
    open_lanes(c);
    for (int i = 0; i < c->k->nins; i++)
        if (tni_set_has(set, i) && !tni_set_has(&c->scalar, i) && !in_pairs(c, i))
            tni_simt_put_ins(c, i);
    tni_out_line(c->o, "}");
    for (int i = 0; i < c->k->nins; i++)
        if (tni_set_has(set, i) && in_pairs(c, i)) tni_simt_fold_pairs(c, i);
}

// The work of a vector whose loads are there. Only the vectors at the ends of a line have elements
// that are not in it, so that the others are spared the question.
static void put_work(tni_simt_emitter *c, const tni_set *set, const char *guard)
{
    bool both = c->m->window && !c->whole && !c->single;
    declare_arrays(c, set, true);
    if (both) {
        tni_simt_put_edge_test(c);
        c->whole = true;
        put_elements(c, set);
        c->whole = false;
        tni_out_line(c->o, "} else {");
    }
    put_elements(c, set);
    if (both) tni_out_line(c->o, "}");
    for (int i = 0; i < c->k->nins; i++) {
        if (!tni_set_has(set, i) || c->k->ins[i].code != TNI_I_STORE || !tni_simt_moves(c, i))
            continue;
        if (*guard) tni_out_line(c->o, "if (%s) {", guard);
        if (tni_simt_tiled(c, i)) tni_simt_put_tile(c, i);
        else tni_simt_put_vector(c, i);
        if (*guard) tni_out_line(c->o, "}");
    }
}

// What a POINT thread needs to know of unit u.
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

// What there is to know of the row of vector q.
static void open_row_ahead(tni_simt_emitter *c)
{
    const tni_kernel *k   = c->k;
    tni_set           set = tni_needs_row(k, 0);
    tni_out_line(c->o, "const %s line = first + q * %d;", c->index, c->m->rows);
    if (c->sure) tni_out_line(c->o, "{");
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

void tni_simt_open_vector(tni_simt_emitter *c)
{
    const tni_kernel *k = c->k;
    if (c->together) {
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
    if (c->m->form == TNI_SIMT_POINT) {
        tni_out_line(c->o, "const %s u = u0 + q * %d;", c->index, c->m->rows);
        tni_out_line(c->o, "if (u < %s * %s) {", tni_simt_word_name(c, TNI_WORD_LINES).s,
                     tni_simt_word_name(c, TNI_WORD_VECTORS).s);
        open_unit(c);
        return;
    }
    if (c->m->rows_in_flight) {
        open_row_ahead(c);
        return;
    }
    tni_out_line(c->o, "const %s i = from + q * %d;", c->index, c->m->team);
    tni_out_line(c->o, c->sure ? "{" : "if (i < n) {");
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

// The loads of a pass, except those that registers hold. What shared memory holds was written by
// the thread that reads it, or, in windows, before a fold of the group, so no barrier is needed.
static void put_fetches(tni_simt_emitter *c, const tni_set *set)
{
    tni_set loads = { 0 }, stash = { 0 };
    int     n = 0, stashes = 0;
    for (int i = 0; i < c->k->nins; i++) {
        if (!tni_set_has(set, i) || c->k->ins[i].code != TNI_I_LOAD || !tni_simt_moves(c, i))
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
        if (tni_simt_stashed(c, i) && tni_set_has(&c->fetched, i)) tni_simt_put_stash(c, i, false);
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

static tni_set folds_of(const tni_simt_emitter *c, const tni_set *set)
{
    tni_set folds = { 0 };
    for (int i = 0; i < c->k->nins; i++)
        if (tni_set_has(set, i) && is_fold(&c->k->ins[i])) tni_set_add(&folds, i);
    return folds;
}

static void declare_folds(tni_simt_emitter *c, const tni_set *folds)
{
    for (int i = 0; i < c->k->nins; i++) {
        const tni_ins *x = &c->k->ins[i];
        if (!tni_set_has(folds, i)) continue;
        const char *start = tni_fold_start(x->op, (tn_dtype)x->dtype);
        if (c->m->form == TNI_SIMT_ROW) {
            tni_out_line(c->o, "%s v%d = %s;", type_of(c, i), i, start);
            tni_simt_declare_pair(c, i);
            continue;
        }
        tni_out_line(c->o, "%s k%d[%d];", type_of(c, i), i, c->m->vector);
        tni_out_print(c->o, "%s", c->d->unroll);
        tni_out_line(c->o, "for (m_int j = 0; j < %d; j++) k%d[j] = %s;", c->m->vector, i, start);
    }
}

// LANE: tails for each r. All threads of the group are at the same r; the first adds up.
static void put_lane_tails(tni_simt_emitter *c, const tni_set *set, bool after)
{
    for (int i = 0; i < c->k->nins; i++) {
        const tni_ins *x   = &c->k->ins[i];
        tni_set        one = { 0 };
        if (!tni_set_has(set, i) || !is_tail(x)) continue;
        if (!after) {
            tni_out_line(c->o, "%s t%d = %s;", type_of(c, i), i,
                         tni_fold_start(x->op, (tn_dtype)x->dtype));
            continue;
        }
        tni_set_add(&one, i);
        tni_simt_fold_team(c, &one, 't', c->m->rows);
        tni_out_line(c->o, "if (tid == 0) s%d[i] = t%d;", i, i);
    }
}

// Whether a loop reads nothing but what is near: it needs no loads ahead of its work.
static bool all_stashed(const tni_simt_emitter *c, const tni_set *set)
{
    for (int i = 0; i < c->k->nins; i++)
        if (tni_set_has(set, i) && c->k->ins[i].code == TNI_I_LOAD &&
            !(tni_simt_stashed(c, i) && tni_set_has(&c->fetched, i)))
            return false;
    return true;
}

// Loads and work of the vectors a thread has in hand.
static void put_pass(tni_simt_emitter *c, const tni_set *set)
{
    bool lane = c->m->form == TNI_SIMT_LANE;
    put_fetches(c, set);
    tni_simt_open_vector(c);
    if (lane) put_lane_tails(c, set, false);
    put_work(c, set, lane ? "live" : "");
    if (lane) put_lane_tails(c, set, true);
    tni_simt_close_vector(c);
}

// A turn of a loop over a row that no registers hold: where all vectors in hand are there and lie in
// the row, nothing more is asked; else they are taken one by one.
static void put_turn(tni_simt_emitter *c, const tni_set *set)
{
    bool     row = c->m->form == TNI_SIMT_ROW, window = row && c->m->window;
    int      last = (c->unroll - 1) * c->m->team, v = c->m->vector;
    tni_set  fetched = c->fetched;
    tni_text cols    = tni_simt_word_name(c, TNI_WORD_COLS);
    if (c->together || (!last && !window)) {
        c->sure = true;
        put_pass(c, set);
        c->sure = false;
        return;
    }
    const char *lo = c->m->cluster > 1 ? " + lo" : "";
    if (window)
        tni_out_line(c->o, "if ((from%s) * %d >= shift && (from%s + %d) * %d - shift <= %s) {", lo,
                     v, lo, last + 1, v, cols.s);
    else tni_out_line(c->o, "if (from + %d < n) {", last);
    c->sure = true, c->whole = row;
    put_pass(c, set);
    c->sure = c->whole = false;
    c->fetched         = fetched;
    tni_out_line(c->o, "} else {");
    tni_out_line(c->o, "for (%s one = from; one < n && one <= from + %d; one += %d) {", c->index,
                 last, c->m->team);
    tni_out_line(c->o, "const %s from = one;", c->index);
    c->unroll = 1, c->sure = true, c->single = row;
    put_pass(c, set);
    c->sure = c->single = false;
    tni_out_line(c->o, "}");
    tni_out_line(c->o, "}");
}

// The test that no vector in hand has a column that the row names, which nearly always holds. Whether
// there is such a test.
static bool put_missed(tni_simt_emitter *c, const tni_set *set)
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

// A loop over a row that is near: all vectors but those at the ends of a window lie in the row, so
// that nothing is asked of them. The first two threads have the ends.
static void put_near(tni_simt_emitter *c, const tni_set *set)
{
    bool        window  = c->m->window;
    int         last    = (NEAR_UNROLL - 1) * c->m->team;
    tni_set     fetched = c->fetched;
    const char *end     = window ? "end" : "n";
    tni_out_line(c->o, "for (%s from = %st; from < %s; from += %d) {", c->index,
                 window ? "begin + " : "", end, last + c->m->team);
    c->unroll = NEAR_UNROLL, c->sure = c->whole = true;
    begin_indent(c);
    tni_out_print(c->o, "if (from + %d < %s", last, end);
    c->missed = put_missed(c, set);
    tni_out_print(c->o, ") {\n");
    c->o->depth++;
    put_pass(c, set);
    c->unroll = 1, c->missed = false, c->fetched = fetched;
    tni_out_line(c->o, "} else {");
    tni_out_line(c->o, "for (%s one = from; one < %s && one <= from + %d; one += %d) {", c->index,
                 end, last, c->m->team);
    tni_out_line(c->o, "const %s from = one;", c->index);
    put_pass(c, set);
    c->whole = false, c->fetched = fetched;
    tni_out_line(c->o, "}");
    tni_out_line(c->o, "}");
    tni_out_line(c->o, "}");
    if (window) {
        tni_out_line(c->o, "if (t < 2 && (t ? end < n : begin > 0)) {");
        tni_out_line(c->o, "const %s from = t ? n - 1 : 0;", c->index);
        c->single = true;
        put_pass(c, set);
        c->single = false;
        tni_out_line(c->o, "}");
    }
    c->sure = false;
}

static void put_loop(tni_simt_emitter *c, int q)
{
    tni_set set = tni_needs_loop(c->k, q, &c->kept), none = { 0 };
    tni_set folds = folds_of(c, &set);
    bool    lane = c->m->form == TNI_SIMT_LANE, loops = c->m->hold != TNI_HOLD_REGISTERS;
    if (!memcmp(&set, &none, sizeof set)) return;
    c->stage = TNI_AT_LOOP;
    c->work  = set;
    for (int i = 0; i < c->k->nins && c->m->keep_costly; i++)
        if (tni_set_has(&set, i) && tni_set_has(&c->costly, i)) tni_set_add(&c->kept, i);
    bool near = c->m->form == TNI_SIMT_ROW && c->m->hold == TNI_HOLD_SHARED && all_stashed(c, &set);
    c->unroll = near ? 1 : c->m->unroll;
    declare_arrays(c, &set, false);
    declare_folds(c, &folds);
    for (int i = 0; i < c->k->nins; i++)
        if (tni_set_has(&set, i)) tni_simt_put_hoisted(c, i);
    if (near) {
        put_near(c, &set);
    } else if (loops) {
        tni_out_line(c->o, "for (%s from = %s; from < n; from += %d) {", c->index, lane ? "k" : "t",
                     c->m->team * c->unroll);
        put_turn(c, &set);
        tni_out_line(c->o, "}");
    } else {
        put_pass(c, &set);
    }
    for (int i = 0; i < c->k->nins; i++)
        if (tni_set_has(&folds, i)) tni_simt_join_pair(c, i);
    if (!lane) tni_simt_fold_team(c, &folds, 'v', c->m->team);
    if (c->m->cluster > 1 && memcmp(&folds, &none, sizeof folds)) tni_simt_fold_cluster(c, &folds);
    for (int i = 0; i < c->k->nins && lane && c->m->team > 1; i++)
        if (tni_set_has(&folds, i)) tni_simt_fold_lanes(c, i);
}

// Tails: where the partials of this part go, and accumulators.
static void declare_tails(tni_simt_emitter *c, const char *part)
{
    bool row = c->m->form == TNI_SIMT_ROW;
    for (int i = 0; i < c->k->nins; i++) {
        const tni_ins *x = &c->k->ins[i];
        if (!is_tail(x)) continue;
        const char *type = type_of(c, i), *start = tni_fold_start(x->op, (tn_dtype)x->dtype);
        tni_simt_declare_part(c, i, part);
        int n = c->m->vector * (c->m->rows_in_flight ? 1 : c->unroll);
        if (x->per && row && !c->m->tail_memory) {
            tni_out_line(c->o, "%s t%d[%d];", type, i, n);
            tni_out_print(c->o, "%s", c->d->unroll);
            tni_out_line(c->o, "for (m_int j = 0; j < %d; j++) t%d[j] = %s;", n, i, start);
        }
        if (!x->per) tni_out_line(c->o, "%s t%d = %s;", type, i, start);
    }
}

// Row tails that threads of a group added up apart.
static void put_group_partials(tni_simt_emitter *c)
{
    tni_set rows = { 0 };
    for (int i = 0; i < c->k->nins; i++)
        if (is_tail(&c->k->ins[i]) && !c->k->ins[i].per) tni_set_add(&rows, i);
    tni_simt_fold_team(c, &rows, 't', c->m->team * c->m->rows);
    for (int i = 0; i < c->k->nins; i++)
        if (tni_set_has(&rows, i)) tni_out_line(c->o, "if (tid == 0) s%d[0] = t%d;", i, i);
}

// Partials of columns by four, where they are aligned as the vectors of the row are.
static bool put_partial_vectors(tni_simt_emitter *c, int i)
{
    int         v    = c->m->vector;
    const char *type = tni_compute_suffix((tn_dtype)c->k->ins[i].dtype) == 'f' ? "float" : "int";
    tn_dtype    dt   = tni_compute_dtype((tn_dtype)c->k->ins[i].dtype);
    if (!tni_gpu_has(c->m, TNI_GPU_VECTORS) || c->m->window || v < 4 || c->m->rows > 1 ||
        (dt != TN_F32 && dt != TN_I32))
        return false;
    tni_out_print(c->o, "%s", c->d->unroll);
    tni_out_line(c->o, "for (m_int j = 0; j < %d; j += 4) {", v * c->unroll);
    tni_out_line(c->o, "const %s e = (from + j / %d * %d) * %d + j %% %d;", c->index, v, c->m->team,
                 v, v);
    tni_out_line(c->o, "if (e < %s)", tni_simt_word_name(c, TNI_WORD_COLS).s);
    tni_out_line(c->o,
                 "    *(%s4 *)(s%d + e) = make_%s4(t%d[j], t%d[j + 1], t%d[j + 2], t%d[j + 3]);",
                 type, i, type, i, i, i, i);
    tni_out_line(c->o, "}");
    return true;
}

// Partials of ROW: a thread has its columns, every thread of a team the row's.
static void put_row_partials(tni_simt_emitter *c)
{
    int      v = c->m->vector;
    tni_text acc;
    for (int i = 0; i < c->k->nins; i++) {
        const tni_ins *x = &c->k->ins[i];
        if (!is_tail(x) || (x->per && c->m->tail_memory)) continue;
        snprintf(acc.s, sizeof acc.s, x->per ? "t%d[q * %d + j]" : "t%d", i, v);
        if (!x->per) {
            tni_simt_fold_rows(c, i, acc.s);
            tni_out_line(c->o, "if (tid == 0%s) s%d[0] = t%d;",
                         c->m->cluster > 1 ? " && rank == 0" : "", i, i);
            continue;
        }
        if (put_partial_vectors(c, i)) continue;
        tni_out_print(c->o, "%s", c->d->unroll);
        tni_out_line(c->o, "for (m_int q = 0; q < %d; q++) {", c->unroll);
        tni_out_print(c->o, "%s", c->d->unroll);
        tni_out_line(c->o, "for (m_int j = 0; j < %d; j++) {", v);
        tni_simt_fold_rows(c, i, acc.s);
        tni_out_line(c->o, "const %s e = (from + q * %d) * %d + j%s;", c->index, c->m->team, v,
                     c->m->window ? " - shift" : "");
        tni_out_line(c->o, "if (tid < %d && %se < %s) s%d[e] = %s;", c->m->team,
                     c->m->window ? "e >= 0 && " : "", tni_simt_word_name(c, TNI_WORD_COLS).s, i,
                     acc.s);
        tni_simt_close_vector(c);
    }
}

// Where the loads that shared memory holds begin.
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

// Which vectors of the row, or of this group's piece of it, lie in it with all their elements.
static void put_ends(tni_simt_emitter *c)
{
    bool piece = c->m->cluster > 1;
    tni_out_line(c->o, "const %s begin = shift > 0%s && n > 0;", c->index,
                 piece ? " && lo == 0" : "");
    tni_out_line(c->o, "const %s end = n - (n > begin && (n%s) * %d - shift > %s);", c->index,
                 piece ? " + lo" : "", c->m->vector, tni_simt_word_name(c, TNI_WORD_COLS).s);
}

void tni_simt_put_row_line(tni_simt_emitter *c, bool apart)
{
    tni_out_line(c->o, "const m_int live = row < %s;", tni_simt_word_name(c, TNI_WORD_LINES).s);
    tni_out_line(c->o, "const %s line = live ? row : %s - 1;", c->index,
                 tni_simt_word_name(c, TNI_WORD_LINES).s);
    tni_simt_put_coordinates(c, 0, c->k->np, "line");
    tni_simt_put_bases(c);
    tni_simt_put_shift(c, c->k->tails && !apart);
    if (c->m->bulk) tni_simt_put_piece(c);
    else tni_out_line(c->o, "const %s n = live ? %s : 0;", c->index, tni_simt_row_vectors(c).s);
    if (c->m->hold == TNI_HOLD_SHARED && c->m->window) put_ends(c);
}

tni_text tni_simt_row_name(const tni_simt_emitter *c, const char *it)
{
    return tni_text_of("(%s * %s + %s) * %d + tid / %d", c->d->group_id,
                       tni_simt_word_name(c, TNI_WORD_CHUNK).s, it, c->m->rows, c->m->team);
}

// Whether a team has several rows, one after the other.
static bool many_rows(const tni_simt_emitter *c)
{
    return c->k->tails || c->m->bulk;
}

// Whether threads read what others put into shared memory, which the next row's words replace.
static bool shares_stash(const tni_simt_emitter *c)
{
    return c->k->tails && !c->m->bulk && c->m->hold == TNI_HOLD_SHARED && c->m->window;
}

// Rows of which only columns are added up wait for nothing, so that several are in hand.
static void put_rows_ahead(tni_simt_emitter *c)
{
    tni_set  set     = tni_needs_loop(c->k, 0, NULL);
    tni_text chunk   = tni_simt_word_name(c, TNI_WORD_CHUNK),
             lines   = tni_simt_word_name(c, TNI_WORD_LINES),
             vectors = tni_simt_word_name(c, TNI_WORD_VECTORS);
    tni_out_line(c->o, "const %s chunk = from < %s ? %s : 0;", c->index, vectors.s, chunk.s);
    tni_out_line(c->o, "for (%s it = 0; it < chunk; it += %d) {", c->index, c->unroll);
    tni_out_line(c->o, "const %s first = (%s * %s + it) * %d + tid / %d;", c->index, c->d->group_id,
                 chunk.s, c->m->rows, c->m->team);
    c->stage = TNI_AT_LOOP;
    tni_out_line(c->o, "if (it + %d < chunk && first + %d < %s) {", c->unroll - 1,
                 (c->unroll - 1) * c->m->rows, lines.s);
    c->sure = true;
    put_pass(c, &set);
    c->sure    = false;
    c->fetched = (tni_set){ 0 };
    tni_out_line(c->o, "} else {");
    put_pass(c, &set);
    tni_out_line(c->o, "}");
    tni_out_line(c->o, "}");
    c->unroll = 1;
}

static void put_row(tni_simt_emitter *c)
{
    tni_out_line(c->o, "const m_int t = tid %% %d;", c->m->team);
    declare_stash(c);
    if (c->m->hold == TNI_HOLD_REGISTERS)
        tni_out_line(c->o, "const %s from = t%s;", c->index, c->m->tiles ? c->d->second_axis : "");
    if (c->m->bulk) tni_simt_open_bulk(c);
    if (c->k->tails) declare_tails(c, tni_simt_group_name(c).s);
    if (c->k->tails && c->m->window) tni_out_line(c->o, "%s shift = 0;", c->index);
    if (c->m->rows_in_flight) {
        put_rows_ahead(c);
        put_row_partials(c);
        return;
    }
    if (c->m->prefetch_row) tni_simt_open_next(c);
    if (c->m->bulk) {
        tni_out_line(c->o, "for (%s row = first; row < past; row++) {", c->index);
    } else if (c->k->tails) {
        tni_out_line(c->o, "for (%s it = 0; it < %s; it++) {", c->index,
                     tni_simt_word_name(c, TNI_WORD_CHUNK).s);
        tni_out_line(c->o, "const %s row = %s;", c->index, tni_simt_row_name(c, "it").s);
    } else {
        tni_out_line(c->o, "const %s row = (%s)%s * %d + tid / %d;", c->index, c->index,
                     c->d->group_id, c->m->rows, c->m->team);
    }
    tni_simt_put_row_line(c, false);
    if (c->m->prefetch_row) tni_simt_fetch_next(c);
    for (int q = 0; q <= c->k->phases; q++) {
        tni_set set = tni_needs_row(c->k, q);
        c->stage    = TNI_AT_ROW;
        for (int i = 0; i < c->k->nins; i++)
            if (tni_set_has(&set, i)) tni_simt_put_ins(c, i);
        if (c->m->bulk && q == 0) tni_out_line(c->o, "m_await(&full, turn);");
        if (q < c->k->phases) put_loop(c, q);
    }
    if (c->m->bulk) tni_simt_release_row(c);
    if (c->m->prefetch_row) tni_simt_take_next(c);
    if (shares_stash(c)) tni_out_line(c->o, "%s;", c->d->barrier);
    if (many_rows(c)) tni_out_line(c->o, "}");
    if (c->k->tails) put_row_partials(c);
}

// Values that are the same in all lanes, once for a thread.
static void put_scalars(tni_simt_emitter *c)
{
    tni_set set = tni_needs_row(c->k, 0);
    c->stage    = TNI_AT_ROW;
    for (int i = 0; i < c->k->nins; i++)
        if (tni_set_has(&set, i) && tni_set_has(&c->scalar, i)) tni_simt_put_ins(c, i);
}

// The turns of a group over its units.
static void open_turns(tni_simt_emitter *c, const char *unit, int per, const char *thread)
{
    tni_text chunk = tni_simt_word_name(c, TNI_WORD_CHUNK);
    put_scalars(c);
    if (c->k->tails) {
        declare_tails(c, c->d->group_id);
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
    put_group_partials(c);
}

// All loads are on their way before the first is waited for.
static void put_point_in_tiles(tni_simt_emitter *c)
{
    tni_set set = tni_needs_row(c->k, 0);
    put_scalars(c);
    c->stage = TNI_AT_LOOP;
    tni_simt_open_tile(c, &set);
    put_fetches(c, &set);
    tni_simt_fill_tile(c, &set);
    tni_simt_open_vector(c);
    tni_simt_take_tile(c, &set);
    put_work(c, &set, "");
    tni_simt_close_vector(c);
    tni_simt_drain_tile(c, &set);
}

static void put_point(tni_simt_emitter *c)
{
    tni_set set = tni_needs_row(c->k, 0);
    open_turns(c, "u0", c->m->rows * c->unroll, "tid");
    c->stage = TNI_AT_LOOP;
    put_fetches(c, &set);
    tni_simt_open_vector(c);
    put_work(c, &set, "");
    tni_simt_close_vector(c);
    close_turns(c);
}

// A row point of LANE: fetch and work for the one vector of lanes.
static void put_lane_point(tni_simt_emitter *c, const tni_set *set)
{
    tni_set none = { 0 }, work = *set;
    for (size_t w = 0; w < sizeof work.bit / sizeof *work.bit; w++)
        work.bit[w] &= ~c->scalar.bit[w];
    if (!memcmp(&work, &none, sizeof work)) return;
    c->stage = TNI_AT_LANES;
    for (int i = 0; i < c->k->nins; i++) {
        if (!tni_set_has(&work, i) || c->k->ins[i].code != TNI_I_LOAD || !tni_simt_moves(c, i))
            continue;
        tni_out_line(c->o, "m_uint x%d[%d];", i, words_of(c, i));
        tni_simt_fetch(c, i);
    }
    declare_arrays(c, &work, false);
    tni_out_line(c->o, "{");
    put_work(c, &work, "live && k == 0");
    tni_out_line(c->o, "}");
}

static void put_lane(tni_simt_emitter *c)
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
        if (q < c->k->phases) put_loop(c, q);
    }
    close_turns(c);
}

static void put_args(tni_simt_emitter *c)
{
    const tni_kernel *k = c->k;
    tni_out_line(c->o, "struct %s_args {", c->name);
    tni_out_line(c->o, "void *b[%d];", k->nbuffer + 2);
    tni_out_line(c->o, "m_long w[%d];", c->at.count);
    tni_out_line(c->o, "};");
}

static void open_with_struct(tni_simt_emitter *c, const char *suffix, int threads)
{
    const tni_kernel *k        = c->k;
    int               most     = 1024 >> c->m->low_occupancy;  // threads of a multiprocessor
    int               resident = c->k->tails || c->m->hold == TNI_HOLD_SHARED ? most / threads : 1;
    tni_text          cluster  = { "" };
    if (c->m->cluster > 1 && !*suffix)
        cluster = tni_text_of("__cluster_dims__(%d, 1, 1) ", c->m->cluster);
    tni_out_line(c->o, "%s%s__launch_bounds__(%d, %d) %s%s(const %s_args a)", c->d->kernel,
                 cluster.s, threads, resident > 1 ? resident : 1, c->name, suffix, c->name);
    tni_out_line(c->o, "{");
    for (int i = 0; i < k->nbuffer; i++) {
        const char *word = k->buffer[i].written ? "" : "const ";
        const char *type = tni_storage_type((tn_dtype)k->buffer[i].dtype);
        tni_out_line(c->o, "%s%s *const b%d = (%s%s *)a.b[%d];", word, type, i, word, type, i);
    }
    tni_out_line(c->o, "char *const scratch = (char *)a.b[%d];", k->nbuffer);
    tni_out_line(c->o, "m_long *const fail = (m_long *)a.b[%d];", k->nbuffer + 1);
    tni_out_line(c->o, "m_begin();");
    if (k->guarded) tni_out_line(c->o, "if (*(const volatile m_long *)fail[4]) return;");
}

static void open_with_words(tni_simt_emitter *c, const char *suffix, int threads)
{
    const tni_kernel *k = c->k;
    tni_out_print(c->o, "__kernel __attribute__((reqd_work_group_size(%d, 1, 1))) void\n%s%s(",
                  threads, c->name, suffix);
    for (int i = 0; i < k->nbuffer; i++)
        tni_out_print(c->o, "__global %s%s *b%d, ", k->buffer[i].written ? "" : "const ",
                      tni_storage_type((tn_dtype)k->buffer[i].dtype), i);
    tni_out_print(c->o, "__global char *scratch, __global m_long *fail");
    for (int w = 0; w < c->at.count; w++) tni_out_print(c->o, ", m_long w%d", w);
    if (c->m->hold == TNI_HOLD_SHARED && !*suffix) tni_out_print(c->o, ", __local uint4 *stash");
    tni_out_print(c->o, ")\n");
    tni_out_line(c->o, "{");
}

// Opens a kernel; `red` is memory in which threads leave words for each other.
static void open_kernel(tni_simt_emitter *c, const char *suffix, int threads, int red)
{
    if (tni_gpu_has(c->m, TNI_GPU_STRUCT)) open_with_struct(c, suffix, threads);
    else open_with_words(c, suffix, threads);
    c->shares = false;
    c->red[0] = c->o->len;
    if (red) tni_out_line(c->o, "%sm_ulong red[%d];", c->d->shared, red);
    if (red && tni_gpu_has(c->m, TNI_GPU_SHUFFLES)) tni_out_line(c->o, "m_int par = 0;");
    c->red[1] = c->o->len;
    tni_out_line(c->o, "const m_int tid = %s;", c->d->local_id);
}

// Whether threads share words is known when the kernel is written. What is declared and never used
// would take shared memory, and some drivers of OpenCL cannot bear it.
static void close_kernel(tni_simt_emitter *c)
{
    tni_out_line(c->o, "}");
    if (!c->shares) tni_out_remove(c->o, c->red[0], c->red[1]);
}

// Words of `red` that folds over a group need: by shuffles, two halves of one for each warp; by a tree one
// for each thread.
static int folded_words(const tni_simt_emitter *c, int group)
{
    return tni_gpu_has(c->m, TNI_GPU_SHUFFLES) ? 2 * TNI_WARP * c->folds : group;
}

// Words of `red` that the main kernel needs: for folds over threads, and where threads share the
// elements of R of a lane, one for each accumulator.
static int red_words(const tni_simt_emitter *c)
{
    const tni_simt_class *m     = c->m;
    int                   group = m->team * m->rows, fold = folded_words(c, group);
    int                   lanes = m->form == TNI_SIMT_LANE && m->team > 1 ? group * m->vector : 0;
    bool                  teams = m->form == TNI_SIMT_ROW && m->rows > 1;  // fold_rows
    if (m->form != TNI_SIMT_ROW && !c->k->tails) return lanes;
    if (m->form == TNI_SIMT_ROW && tni_gpu_has(m, TNI_GPU_SHUFFLES) && m->team <= TNI_WARP &&
        !c->k->tails)
        return 0;
    bool columns = m->finish == TNI_FINISH_LAST && tni_simt_finishes_columns(c);
    if ((teams || columns) && fold < group) fold = group;
    return fold > lanes ? fold : lanes;
}

// How many reductions are folded together, at most.
static int count_folds(const tni_kernel *k)
{
    int most = 1, tails = 0;
    for (int q = 0; q < k->phases; q++) {
        tni_set set = tni_needs_loop(k, q, NULL);
        int     n   = 0;
        for (int i = 0; i < k->nins; i++) n += tni_set_has(&set, i) && is_fold(&k->ins[i]);
        if (most < n) most = n;
    }
    for (int i = 0; i < k->nins; i++) tails += is_tail(&k->ins[i]);
    return most > tails ? most : tails;
}

// Values that vary along no axis and are made of such: the same in all lanes.
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
}

static void put_finish_kernel(tni_simt_emitter *c)
{
    int threads = c->m->finish_threads;
    tni_out_print(c->o, "\n");
    open_kernel(c, "_finish", threads,
                folded_words(c, threads) > threads ? folded_words(c, threads) : threads);
    tni_simt_declare_parts(c);
    tni_text mine;
    snprintf(mine.s, sizeof mine.s, "tid == 0 && %s == 0", c->d->group_id);
    tni_simt_finish_once(c, threads, mine.s);
    snprintf(mine.s, sizeof mine.s, "%s * %d", c->d->group_id, c->m->finish_cols);
    if (tni_simt_finishes_columns(c)) tni_simt_finish_columns(c, threads, mine.s);
    close_kernel(c);
}

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
    c.folds                 = count_folds(k);
    c.unroll                = m->unroll;
    c.letter                = 'x';
    for (int i = 0; i < k->nins && m->form == TNI_SIMT_LANE; i++)
        if (is_tail(&k->ins[i]) && k->ins[i].per) c.together = true;
    tni_simt_layout_of(k, &c.at);
    find_scalars(&c);
    if (tni_gpu_has(m, TNI_GPU_STRUCT)) put_args(&c);
    open_kernel(&c, "", m->team * m->rows, red_words(&c));
    if (m->form == TNI_SIMT_ROW) put_row(&c);
    else if (m->form == TNI_SIMT_LANE) put_lane(&c);
    else if (m->tile) put_point_in_tiles(&c);
    else put_point(&c);
    // No group ends while another may still read what it left.
    if (m->cluster > 1) tni_out_line(o, "m_cluster_barrier();");
    if (m->finish == TNI_FINISH_LAST) tni_simt_finish_last(&c);
    close_kernel(&c);
    if (m->finish == TNI_FINISH_KERNEL) put_finish_kernel(&c);
}
