// Decides what each block of a C kernel computes, and what is kept from one block to the next: rows
// of costly values where the lane is in R, strips of row values where it is in P. A block is the
// text of one row point or of the inside of one loop over R.
#include "kernel/c_emitter.h"
#include "kernel/thresholds.h"

// Whether anything in the block reads value i, or a later block needs it kept. A fold of a load in
// memory reads the memory itself, and a random number made for all lanes reads the place of the
// first one only.
static bool is_read(const tni_c_emitter *w, int i)
{
    for (int j = i + 1; j < w->k->nins; j++)
        if (tni_set_has(&w->eval, j) && reads_value(ins_at(w, j), i) && !folds_in_place(w, j) &&
            !is_filled(w, j))
            return true;
    return tni_set_has(&w->kept, i) || tni_set_has(&w->strip, i);
}

// Removes from the block what nothing in it reads: loads that are folded in memory, places of
// random numbers.
static void drop_unread(tni_c_emitter *w)
{
    for (int i = w->k->nins - 1; i >= 0; i--)
        if (tni_set_has(&w->eval, i) && ins_at(w, i)->code != TNI_I_STORE &&
            ins_at(w, i)->code != TNI_I_REDUCE && on_lane(w, i) && !is_read(w, i))
            w->eval.bit[i / 64] &= ~((uint64_t)1 << i % 64);
}

static tni_set intersect_sets(tni_set a, const tni_set *b)
{
    for (size_t i = 0; i < sizeof a.bit / sizeof *a.bit; i++) a.bit[i] &= b->bit[i];
    return a;
}

// What is kept once is not computed again: `have` holds the rows that loops before this one left.
tni_set tni_c_loop_set(const tni_c_emitter *w, int q, tni_set *have)
{
    tni_set s = tni_needs_loop(w->k, q, have), left = intersect_sets(s, &w->kept);
    join_set(have, &left);
    return s;
}

// Drops the rows that no later loop reads because another kept value is between: after exp(x - max)
// is kept, x - max is not needed again.
static void prune_kept(tni_c_emitter *w)
{
    tni_set have = { { 0 } }, read = { { 0 } };
    for (int q = 0; q < w->k->phases; q++) {
        tni_set s = tni_c_loop_set(w, q, &have);
        for (int i = 0; i < w->k->nins; i++)
            for (int j = i + 1; j < w->k->nins; j++)
                if (!tni_set_has(&s, i) && tni_set_has(&s, j) && reads_value(ins_at(w, j), i))
                    tni_set_add(&read, i);
    }
    w->kept = intersect_sets(w->kept, &read);
}

// Chooses the rows that are kept where the lane is in R: values needed by a later loop whose
// recomputation costs more than TNI_KEEP_COST_C. A row usually fits in cache, so keeping costs a
// store and a load.
static void choose_kept(tni_c_emitter *w)
{
    tni_set have = { { 0 } };
    for (int q = 0; q < w->k->phases && w->k->lane_in_r; q++) {
        tni_set now = tni_needs_loop(w->k, q, &have), later = { { 0 } };
        for (int p = q + 1; p < w->k->phases; p++) {
            tni_set s = tni_needs_loop(w->k, p, &have);
            join_set(&later, &s);
        }
        for (int i = 0; i < w->k->nins; i++)
            if (tni_set_has(&now, i) && tni_set_has(&later, i) && on_lane(w, i) &&
                tni_recompute_cost(w->k, i, &have) >= TNI_KEEP_COST_C) {
                tni_set_add(&w->kept, i);
                tni_set_add(&have, i);
            }
    }
    prune_kept(w);
}

// Whether a value costs no more to have again than to keep in a strip: a load, or a place.
static bool is_reloaded(const tni_c_emitter *w, int i)
{
    const tni_ins *x = ins_at(w, i);
    return on_lane(w, i) && (is_plain_load(w, x) || x->code == TNI_I_PLACE);
}

// What varies along no axis is left out: put_launch_values computes it once for the function.
tni_set tni_c_row_set(const tni_c_emitter *w, int q)
{
    tni_set s = tni_needs_row(w->k, q), y = { { 0 } };
    for (int i = 0; i < w->k->nins; i++)
        if (tni_set_has(&s, i) && !is_launch_value(w, i)) tni_set_add(&y, i);
    return y;
}

// Adds to a block the values that it reads and that are loaded again rather than kept (lane in P).
static tni_set with_reloads(const tni_c_emitter *w, tni_set s)
{
    for (int j = 0; j < w->k->nins && !w->k->lane_in_r; j++)
        for (int i = 0; i < j && tni_set_has(&s, j); i++)
            if (reads_value(ins_at(w, j), i) && is_reloaded(w, i) &&
                !(ins_at(w, i)->per & TNI_PER_COL))
                tni_set_add(&s, i);
    return s;
}

// Marks the row values that this block reads and another one computes: they have to be kept in a
// strip w.
static void mark_strips(tni_c_emitter *w, const tni_set *s)
{
    for (int j = 0; j < w->k->nins; j++)
        for (int i = 0; i < j && tni_set_has(s, j); i++)
            if (reads_value(ins_at(w, j), i) && !tni_set_has(s, i) && on_lane(w, i) &&
                ins_at(w, i)->code != TNI_I_REDUCE)
                tni_set_add(&w->strip, i);
}

// Chooses the strips that are kept where the lane is in P: a row value of the strip is computed at
// one row point and read in later blocks.
static void choose_strips(tni_c_emitter *w)
{
    for (int q = 0; q <= w->k->phases && !w->k->lane_in_r; q++) {
        tni_set row = with_reloads(w, tni_c_row_set(w, q));
        mark_strips(w, &row);
        if (q == w->k->phases) break;
        tni_set loop = with_reloads(w, tni_needs_loop(w->k, q, NULL));
        mark_strips(w, &loop);
    }
}

// Whether nothing in instruction i tells one row of lanes from the next but the place of what it
// loads or stores.
static bool is_same_in_rows(const tni_c_emitter *w, int i)
{
    const tni_ins *x   = ins_at(w, i);
    bool           row = w->axes[i] >> (w->lane - 1) & 1;
    switch (x->code) {
    case TNI_I_LOAD: return x->a < 0 && x->b < 0 && (on_lane(w, i) || !row);
    case TNI_I_STORE: return on_lane(w, i) && lane_class(w, x) != TNI_STRIDE_0;
    case TNI_I_MAP:
        return (on_lane(w, i) || !row) && !(on_lane(w, i) && tni_set_has(&w->strip_maps, i));
    case TNI_I_CAST: return on_lane(w, i) || !row;
    case TNI_I_PLACE: return !on_lane(w, i) && !row;
    case TNI_I_NUMBER: return true;
    default: return false;
    }
}

// Whether a turn is several rows: pooling and its gradient, which load or store several windows at
// strides along the lanes. Rows of images are short, often shorter than a vector, and finding the
// pointers of each would take longer than its lanes.
static bool joins_rows(const tni_c_emitter *w)
{
    bool done[TNI_MAX_ACCESSES] = { false };
    int  strided                = 0;
    if (w->k->lane_in_r || w->k->nr || w->k->tails || w->lane < 1) return false;
    for (int i = 0; i < w->k->nins; i++) {
        const tni_ins *x = ins_at(w, i);
        if (!is_same_in_rows(w, i)) return false;
        if ((x->code != TNI_I_LOAD && x->code != TNI_I_STORE) || done[x->access]) continue;
        done[x->access] = true;
        strided += lane_class(w, x) == TNI_STRIDE_N;
    }
    return strided > 1;
}

// With o and d NULL it only finds what the kernel keeps, for tni_emit_c_rows.
void tni_c_open(tni_c_emitter *w, tni_out *o, const tni_dialect *d, const tni_kernel *k)
{
    *w   = (tni_c_emitter){ .o = o, .k = k };
    w->s = (tni_emitter){ .out = o, .dialect = d, .kernel = k, .user = w };
    tni_c_callbacks(w);
    w->lane = k->lane_in_r ? k->np + k->nr - 1 : k->np - 1;
    tni_varying_axes(k, w->axes);
    choose_kept(w);
    choose_strips(w);
    tni_c_choose_strip_maps(w);
    w->windows = joins_rows(w);
}

// eval is the block from here on: every question about "the block" in c_emitter.h reads it.
void tni_c_begin_block(tni_c_emitter *w, tni_set s)
{
    w->eval = with_reloads(w, s);
    drop_unread(w);
}
