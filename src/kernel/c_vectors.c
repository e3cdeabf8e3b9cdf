// Several vectors in flight: a lane loop in blocks of as many lanes as some vectors have. A chain
// of maps depends on itself from instruction to instruction, and the queues of a core hold too few
// of them to find the next vector's behind it. In a block of fixed length the compiler puts the
// vectors side by side, one instruction of each after the other. What a block stores goes to arrays
// g first, which become registers: memory behind a pointer could be what the next lanes load, as
// far as the compiler knows. What it prints, of test/golden/point.txt:
//
//     enum { lanes = 4 * M_VECTOR / 4 };
//     m_long b = 0;
//     for (; b + lanes <= n; b += lanes) {
//         float gp6[lanes];
//         M_LANES for (m_long j = b; j < b + lanes; j++) {
//             const float v0 = p0[j];
//             ...
//             gp6[j - b] = v5;
//         }
//         M_LANES for (m_long j = b; j < b + lanes; j++) p6[j] = gp6[j - b];
//     }
//     M_LANES for (m_long j = b; j < n; j++) {
//         ...
//     }
#include "kernel/c_emitter.h"

#include <stdio.h>

// Whether instruction i is of a kind that compilers make vectors of, in types of 4 bytes and less.
// Of others a block would only be a longer text.
static bool is_vector_ins(const tni_c_emitter *w, int i)
{
    const tni_ins *x = ins_at(w, i);
    if (is_staged(w, i) || tni_dtype_size(tni_compute_dtype((tn_dtype)x->dtype)) > 4) return false;
    switch (x->code) {
    case TNI_I_LOAD:
        return lane_class(w, x) != TNI_STRIDE_N && !(x->a >= 0 && on_lane(w, x->a)) &&
               (x->b < 0 || !on_lane(w, x->b) || w->holds);
    case TNI_I_STORE: return lane_class(w, x) == TNI_STRIDE_1;
    case TNI_I_RANDOM: return is_filled(w, i);
    case TNI_I_CHECK: return false;
    default: return true;
    }
}

// Whether instruction i of the lane loop writes something, which stays in a register up to the end
// of the block.
static bool is_written(const tni_c_emitter *w, int i)
{
    const tni_ins *x = ins_at(w, i);
    return x->code == TNI_I_STORE || (x->code == TNI_I_REDUCE && !folds_row(w, i)) ||
           tni_set_has(&w->kept, i) || tni_set_has(&w->strip, i);
}

// Returns the last instruction of the lane loop that reads value i; -1 if none does.
static int last_reader(const tni_c_emitter *w, int i)
{
    for (int j = w->k->nins - 1; j > i; j--)
        if (in_lanes(w, j) && reads_value(ins_at(w, j), i)) return j;
    return -1;
}

// Whether the lane loop computes an exp for value i, or what takes as long.
static bool is_costly(const tni_c_emitter *w, int i)
{
    enum { COSTLY = 8 };
    return in_lanes(w, i) && is_from_operands(w, i) && tni_ins_cost(ins_at(w, i)) >= COSTLY;
}

// What a lane loop takes for each of its vectors: registers, the most values that are there at once
// and what functions have beside their result; arrays that it writes. shared: registers of values
// that all lanes read.
typedef struct {
    int registers, written, shared;
} needs;

static needs count_needs(const tni_c_emitter *w)
{
    enum { OF_COSTLY = 3 };  // what is alive within a costly function
    needs n = { 0 };
    int   until[TNI_MAX_INS];
    for (int i = 0; i < w->k->nins; i++) {
        until[i] = last_reader(w, i);
        if (!in_lanes(w, i)) {
            n.shared += !on_lane(w, i) && until[i] >= 0;
            continue;
        }
        int now = is_costly(w, i) ? OF_COSTLY : 0;
        for (int j = 0; j <= i; j++) now += on_lane(w, j) && until[j] > i;
        n.written += is_written(w, i);
        if (now + n.written > n.registers) n.registers = now + n.written;
    }
    return n;
}

// Whether a lane loop computes something costly and stores nothing: exponentials that are kept for
// the next loop, and their sum.
static bool only_keeps_costly(const tni_c_emitter *w)
{
    bool costly = false;
    for (int i = 0; i < w->k->nins; i++) {
        if (in_lanes(w, i) && ins_at(w, i)->code == TNI_I_STORE) return false;
        costly |= is_costly(w, i);
    }
    return costly;
}

// The rule: as many as registers allow, up to 4. On a Neoverse V1, beside one vector: a chain of
// maps takes 0.78 times as long with 4, a softmax 0.82, an update of Adam 0.66; with 8 most loops
// spill. REGISTERS: of ARM and AVX-512; compilers for the 16 of AVX read memory in place of shared
// ones. STORES: a block of more gains nothing: the loops of a layer norm with its gradients, which
// write three arrays, take 0.90 times as long with 2 vectors as with 4.
//
// A core that holds more instructions than one vector takes finds the next vector by itself, and
// what compilers write to the arrays of AVX2 and AVX-512 they read back from memory: there an
// update of Adam of 101,770 parameters takes 9 us with one vector and 31 with 4, and sums of
// columns take half as long. Loops that only keep exponentials gain by 4 there, too: a softmax
// takes 0.82 times as long.
static int choose_vectors(const tni_c_emitter *w)
{
    enum { MOST = 4, REGISTERS = 32, STORES = 8 };
    needs each = count_needs(w);
    int   n    = w->s.dialect->reorders && !only_keeps_costly(w) ? 1 : MOST;
    while (n > 1 && (n * each.registers + each.shared > REGISTERS || n * each.written > STORES))
        n /= 2;
    return n;
}

int tni_c_vectors(const tni_c_emitter *w)
{
    if (w->finish || w->windows || w->lane < 0) return 1;
    for (int i = 0; i < w->k->nins; i++)
        if (in_lanes(w, i) && !tni_c_is_only_compared(w, i) && !is_vector_ins(w, i)) return 1;
    return w->vectors ? w->vectors : choose_vectors(w);
}

// Prints the array of what a block writes to NAME, or how it is copied there: index says which
// element lane j writes.
static void put_array(tni_c_emitter *w, char name, int i, const char *type, const char *index)
{
    bool piece = name == 'p' && tni_c_in_piece(w, i);
    if (type) tni_out_line(w->o, "%s g%c%d[lanes];", type, name, i);
    else
        tni_out_line(w->o,
                     "M_LANES for (m_long j = b; j < b + lanes; j++) %c%d[%s%s] = g%c%d[j - b];",
                     piece ? 'u' : name, i, index, piece ? " - from" : "", name, i);
}

// Prints the arrays of a block, or the copies out of them: of stores, folds, and values that are
// kept. These are the places that tni_c_target names in the loop.
static void put_arrays(tni_c_emitter *w, const tni_set *tiles, bool copies)
{
    const char *row = w->k->lane_in_r ? "at + j" : "j";
    for (int i = 0; i < w->k->nins; i++) {
        const tni_ins *x    = ins_at(w, i);
        const char    *type = copies ? NULL : c_type_of(w, i);
        if (tni_set_has(tiles, i)) put_array(w, 'x', i, type, "j");
        if (!in_lanes(w, i) || tni_c_is_only_compared(w, i)) continue;
        if (x->code == TNI_I_STORE) {
            tn_dtype kept = (tn_dtype)w->k->buffer[w->k->access[x->access].buffer].dtype;
            put_array(w, 'p', i, copies ? NULL : tni_storage_type(kept), "j");
        } else if (x->code == TNI_I_REDUCE) {
            if (by_lane(w, x)) put_array(w, 'a', i, type, row);
            else if (!folds_row(w, i)) put_array(w, 't', i, type, "j");
        } else {
            if (tni_set_has(&w->kept, i)) put_array(w, 'h', i, type, "at + j");
            if (tni_set_has(&w->strip, i)) put_array(w, 'w', i, type, "j");
        }
    }
}

// Whether load i is worth fetching ahead: neighbours in memory, along a row that is not the same
// for the next unit.
static bool is_row_load(const tni_c_emitter *w, int i)
{
    const tni_ins *x = ins_at(w, i);
    return is_plain_load(w, x) && lane_class(w, x) == TNI_STRIDE_1 &&
           w->k->access[x->access].stride[w->k->np - 1] != TNI_STRIDE_0;
}

// Returns the loop over R that computes most, if there are several; -1 if not.
static int costliest_loop(const tni_c_emitter *w)
{
    tni_set have = { { 0 } };
    int     most = -1, at = -1;
    for (int q = 0; q < w->k->phases; q++) {
        tni_set s    = tni_c_loop_set(w, q, &have);
        int     cost = 0;
        for (int i = 0; i < w->k->nins; i++)
            if (tni_set_has(&s, i) && on_lane(w, i)) cost += tni_ins_cost(ins_at(w, i));
        if (cost > most) most = cost, at = q;
    }
    return w->k->phases > 1 ? at : -1;
}

// A row that several loops pass is in cache for all but the first, which begins with what no one
// has asked for: the prefetcher of a core follows the passes, not the rows. So one loop fetches
// what the first one of the next row loads: that which computes most, since it has the most time
// for it.
void tni_c_begin_ahead(tni_c_emitter *w, int q)
{
    w->ahead = (tni_set){ { 0 } };
    if (!w->fetches || !w->k->lane_in_r || !w->k->np || q != costliest_loop(w)) return;
    tni_set first = tni_needs_loop(w->k, 0, NULL);
    for (int i = 0; i < w->k->nins; i++)
        if (tni_set_has(&first, i) && is_row_load(w, i)) tni_set_add(&w->ahead, i);
}

// Prints the pointer to the same place of the next row; in the last row of a chunk, of this one.
static void put_ahead_pointer(tni_c_emitter *w, int i)
{
    int         access = ins_at(w, i)->access, b = w->k->access[access].buffer;
    const char *type = tni_storage_type((tn_dtype)w->k->buffer[b].dtype);
    tni_out_print(w->o, "%*sconst %s *n%d = (const %s *)buffer[%d] + (", 4 * w->o->depth, "", type,
                  i, type, b);
    tni_c_put_place(w, access);
    tni_out_print(w->o, ") + (u + 1 < last ? ");
    if (w->k->access[access].stride[w->k->np - 1] == TNI_STRIDE_1) tni_out_print(w->o, "1");
    else tni_out_print(w->o, "s%d_%d", access, w->k->np - 1);
    tni_out_print(w->o, " : 0);\n");
}

// Prints the pointers to what is fetched ahead.
static void put_ahead_pointers(tni_c_emitter *w)
{
    for (int i = 0; i < w->k->nins; i++)
        if (tni_set_has(&w->ahead, i)) put_ahead_pointer(w, i);
}

// Fetches the lines of `many` lanes from b on.
static void put_fetches(tni_c_emitter *w, const char *many)
{
    for (int i = 0; i < w->k->nins; i++)
        if (tni_set_has(&w->ahead, i))
            tni_out_line(w->o,
                         "for (m_long j = 0; j < %s; j += 64 / sizeof *n%d) M_FETCH(n%d + b + j);",
                         many, i, i);
}

// A loop of one vector runs in pieces, each behind the fetches of as many lanes of the next row:
// more than a few lines at once find no room in what a core waits for. On a Zen 3 a layer norm of
// (8192, 1024) takes 0.78 times as long.
//
//     for (m_long b = 0, e; b < n; b = e) {
//         e = n - b > 128 ? b + 128 : n;
//         for (m_long j = 0; j < e - b; j += 64 / sizeof *n0) M_FETCH(n0 + b + j);
//         M_LANES for (m_long j = b; j < e; j++) {
//             ...
//         }
//     }
bool tni_c_begin_fetches(tni_c_emitter *w, const char **from, const char **to)
{
    enum { LANES = 128 };
    bool any = false;
    for (int i = 0; i < w->k->nins; i++) any |= tni_set_has(&w->ahead, i);
    if (!any) return false;
    tni_out_line(w->o, "{");
    put_ahead_pointers(w);
    tni_out_line(w->o, "for (m_long b = %s, e; b < %s; b = e) {", *from, *to);
    tni_out_line(w->o, "e = %s - b > %d ? b + %d : %s;", *to, LANES, LANES, *to);
    put_fetches(w, "e - b");
    *from = "b";
    *to   = "e";
    return true;
}

void tni_c_end_fetches(tni_c_emitter *w)
{
    tni_out_line(w->o, "}");
    tni_out_line(w->o, "}");
}

// Opens the loop over blocks of the lanes from .. to-1, and that over the lanes of a block.
void tni_c_begin_vectors(tni_c_emitter *w, int vectors, const char *from, const char *to,
                         const tni_set *tiles)
{
    tni_out_line(w->o, "enum { lanes = %d * M_VECTOR / 4 };", vectors);
    put_ahead_pointers(w);
    tni_out_line(w->o, "m_long b = %s;", from);
    tni_out_line(w->o, "for (; b + lanes <= %s; b += lanes) {", to);
    put_fetches(w, "lanes");
    put_arrays(w, tiles, false);
    tni_out_line(w->o, "M_LANES for (m_long j = b; j < b + lanes; j++) {");
    w->block = true;
}

void tni_c_end_vectors(tni_c_emitter *w, const tni_set *tiles)
{
    w->block = false;
    put_arrays(w, tiles, true);
    tni_out_line(w->o, "}");
}

// In a block, lane j writes element j - b of an array.
void tni_c_target(const tni_c_emitter *w, char name, int i, const char *index, char text[40])
{
    if (w->block) snprintf(text, 40, "g%c%d[j - b]", name, i);
    else snprintf(text, 40, "%c%d[%s]", name, i, index);
}
