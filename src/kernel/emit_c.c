// The C skeleton: the loops over units and over R around blocks of lanes, tails and the finish
// stage. Samples of what it prints, each with its graph and its instructions: test/golden.
#include "kernel/c_emitter.h"

#include <stdio.h>

// ---- the loops over R --------------------------------------------------------------------------

static void put_start(tni_c_emitter *w, int i, bool wide)
{
    const tni_ins *x = ins(w, i);
    tni_out_print(w->o, "%s", tni_fold_start(x->op, wide ? wide_dtype(x) : (tn_dtype)x->dtype));
}

// Accumulator and total of a reduction over R before its loop.
static void put_totals(tni_c_emitter *w, int i)
{
    tni_out *o = w->o;
    if (!w->k->lane_in_r && on_lane(w, i)) {
        tni_out_line(o, "%s a%d[%d];", type_of(w, i), i, TNI_STRIP);
        tni_out_line(o, "%s q%d[%d];", wide_of(w, i), i, TNI_STRIP);
        tni_out_print(o, "%*sfor (m_long j = 0; j < n; j++) a%d[j] = ", 4 * o->depth, "", i);
        put_start(w, i, false);
        tni_out_print(o, ", q%d[j] = ", i);
        put_start(w, i, true);
        tni_out_print(o, ";\n");
        return;
    }
    if (!w->k->lane_in_r) {
        tni_out_print(o, "%*s%s a%d = ", 4 * o->depth, "", type_of(w, i), i);
        put_start(w, i, false);
        tni_out_print(o, ";\n");
    }
    tni_out_print(o, "%*s%s q%d = ", 4 * o->depth, "", wide_of(w, i), i);
    put_start(w, i, true);
    tni_out_print(o, ";\n");
}

// An accumulator joins its total and begins again; `index` is "" or that of a lane.
static void put_join(tni_c_emitter *w, int i, char total, const char *index)
{
    char into[40], what[60];
    snprintf(into, sizeof into, "%c%d%s", total, i, index);
    snprintf(what, sizeof what, "(%s)a%d%s", wide_of(w, i), i, index);
    tni_c_fold(w, i, into, what, true);
    tni_out_print(w->o, "%*sa%d%s = ", 4 * w->o->depth, "", i, index);
    put_start(w, i, false);
    tni_out_print(w->o, ";\n");
}

static bool folds_over_r(const tni_c_emitter *w, int i)
{
    return tni_set_has(&w->eval, i) && ins(w, i)->code == TNI_I_REDUCE && !is_tail(ins(w, i));
}

// Every TNI_GROUP elements of R, where the lane is in P.
static void put_group(tni_c_emitter *w)
{
    tni_out *o = w->o;
    tni_out_print(o, "%*sif ((r & %d) == %d || r + 1 == ", 4 * o->depth, "", TNI_GROUP - 1,
                  TNI_GROUP - 1);
    tni_c_cols(w);
    tni_out_print(o, ") {\n");
    o->depth++;
    for (int i = 0; i < w->k->nins; i++) {
        if (!folds_over_r(w, i)) continue;
        if (on_lane(w, i)) {
            tni_out_line(o, "M_LANES for (m_long j = 0; j < n; j++) {");
            put_join(w, i, 'q', "[j]");
            tni_out_line(o, "}");
        } else {
            put_join(w, i, 'q', "");
        }
    }
    tni_out_line(o, "}");
}

// Whether the loop speaks of elements by their number in the row: `at`, or `r` where the lane is in
// P.
static bool counts(const tni_c_emitter *w)
{
    for (int i = 0; i < w->k->nins; i++) {
        const tni_ins *x = ins(w, i);
        if (tni_set_has(&w->eval, i) && is_wide_tail(x)) return true;
        if (!w->k->lane_in_r && folds_over_r(w, i)) return true;
        if (!tni_set_has(&w->kept, i)) continue;
        for (int j = i; j < w->k->nins; j++)
            if (tni_set_has(&w->eval, j) && (j == i || reads(ins(w, j), i))) return true;
    }
    return false;
}

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

// Loops over all of R in blocks of its last axis, around one block.
static void put_rows_of_lanes(tni_c_emitter *w)
{
    int  last  = w->k->np + w->k->nr - 1;
    bool count = counts(w) || w->finish;
    if (count) tni_out_line(w->o, "m_long at = 0;");
    open_axes(w, w->k->np, last);
    tni_out_line(w->o, "for (m_long base = 0; base < arg[%d]; base += %d) {", last, TNI_STRIP);
    put_strip_bounds(w, last);
}

static void end_rows_of_lanes(tni_c_emitter *w)
{
    if (counts(w) || w->finish) tni_out_line(w->o, "at += n;");
    close_axes(w, w->k->nr);
}

// The elements of R one after the other, all lanes of the strip at each.
static void put_elements(tni_c_emitter *w)
{
    bool count = counts(w), fold = false;
    for (int i = 0; i < w->k->nins; i++) fold |= folds_over_r(w, i);
    if (count) tni_out_line(w->o, "m_long r = 0;");
    open_axes(w, w->k->np, w->k->np + w->k->nr);
    tni_c_singles(w);
    tni_c_lanes(w);
    if (fold) put_group(w);
    if (count) tni_out_line(w->o, "r++;");
    close_axes(w, w->k->nr);
}

static void put_loop(tni_c_emitter *w, int q, tni_set *have)
{
    tni_c_begin_block(w, tni_c_loop_set(w, q, have));
    if (is_empty(&w->eval)) return;
    for (int i = 0; i < w->k->nins; i++)
        if (folds_over_r(w, i)) put_totals(w, i);
    tni_out_line(w->o, "{");
    if (w->k->lane_in_r) {
        put_rows_of_lanes(w);
        tni_c_singles(w);
        tni_c_lanes(w);
        end_rows_of_lanes(w);
    } else {
        put_elements(w);
    }
    tni_out_line(w->o, "}");
    for (int i = 0; i < w->k->nins; i++)
        if (folds_over_r(w, i) && (w->k->lane_in_r || !on_lane(w, i)))
            tni_out_line(w->o, "const %s v%d = (%s)q%d;", type_of(w, i), i, type_of(w, i), i);
}

static void put_row(tni_c_emitter *w, int q)
{
    tni_c_begin_block(w, tni_c_row_set(w, q));
    tni_c_singles(w);
    if (!tni_c_has_lanes(w)) return;
    tni_out_line(w->o, "{");
    tni_c_lanes(w);
    tni_out_line(w->o, "}");
}

// ---- tails -------------------------------------------------------------------------------------

// How many partial results stand before those of instruction `end`, in a chunk.
static void put_before_tail(tni_c_emitter *w, int end)
{
    int wide = 0, narrow = 0;
    for (int i = 0; i < end; i++) {
        wide += is_wide_tail(ins(w, i));
        narrow += is_tail(ins(w, i)) && !is_wide_tail(ins(w, i));
    }
    tni_out_print(w->o, "(%d", narrow);
    if (wide) {
        tni_out_print(w->o, " + %d * ", wide);
        tni_c_cols(w);
    }
    tni_out_print(w->o, ")");
}

// The partial results of a tail in the chunk that `chunk` says, as a pointer.
static void put_partials(tni_c_emitter *w, int i, const char *chunk)
{
    tni_out_print(w->o, "((%s *)partials + (%s * ", wide_of(w, i), chunk);
    put_before_tail(w, w->k->nins);
    tni_out_print(w->o, " + ");
    put_before_tail(w, i);
    tni_out_print(w->o, "))");
}

// Rows of the room are nobody else's: told so, the compiler mixes the turns of a loop.
static void put_row_pointer(tni_c_emitter *w, char name, int i)
{
    tni_out_line(w->o, "%s *restrict %c%d = (%s *)room;", type_of(w, i), name, i, type_of(w, i));
    tni_out_print(w->o, "%*sroom += (", 4 * w->o->depth, "");
    tni_c_cols(w);
    tni_out_print(w->o, " * (m_long)sizeof(%s) + 63) / 64 * 64;\n", type_of(w, i));
}

static void put_tail_begin(tni_c_emitter *w, int i)
{
    tni_out *o = w->o;
    if (!is_wide_tail(ins(w, i))) {
        tni_out_print(o, "%*s%s q%d = ", 4 * o->depth, "", wide_of(w, i), i);
        put_start(w, i, true);
        tni_out_print(o, ";\n");
        return;
    }
    tni_out_print(o, "%*s%s *e%d = ", 4 * o->depth, "", wide_of(w, i), i);
    put_partials(w, i, "chunk");
    tni_out_print(o, ";\n");
    if (w->k->lane_in_r) put_row_pointer(w, 'a', i);
    tni_out_print(o, "%*sfor (m_long j = 0; j < ", 4 * o->depth, "");
    tni_c_cols(w);
    tni_out_print(o, "; j++) e%d[j] = ", i);
    put_start(w, i, true);
    if (w->k->lane_in_r) {
        tni_out_print(o, ", a%d[j] = ", i);
        put_start(w, i, false);
    }
    tni_out_print(o, ";\n");
}

// At the end of a row: every TNI_GROUP rows accumulators join the partial results.
static void put_tail_group(tni_c_emitter *w)
{
    tni_out *o = w->o;
    tni_out_line(o, "if (((u - first) & %d) == %d || u + 1 == last) {", TNI_GROUP - 1,
                 TNI_GROUP - 1);
    for (int i = 0; i < w->k->nins; i++) {
        if (!is_wide_tail(ins(w, i))) continue;
        tni_out_print(o, "%*sM_LANES for (m_long j = 0; j < ", 4 * o->depth, "");
        tni_c_cols(w);
        tni_out_print(o, "; j++) {\n");
        o->depth++;
        put_join(w, i, 'e', "[j]");
        tni_out_line(o, "}");
    }
    tni_out_line(o, "}");
}

static void put_tail_end(tni_c_emitter *w, int i)
{
    if (is_wide_tail(ins(w, i))) return;
    tni_out_print(w->o, "%*s*", 4 * w->o->depth, "");
    put_partials(w, i, "chunk");
    tni_out_print(w->o, " = q%d;\n", i);
}

// ---- the main stage ----------------------------------------------------------------------------

static bool has_access(const tni_ins *x)
{
    return x->code == TNI_I_LOAD || x->code == TNI_I_STORE || x->code == TNI_I_PLACE;
}

// The strides that are no constants.
static void put_strides(tni_c_emitter *w, const tni_set *s)
{
    bool done[TNI_MAX_ACCESSES] = { false };
    for (int i = 0; i < w->k->nins; i++) {
        const tni_ins *x = ins(w, i);
        if (!tni_set_has(s, i) || !has_access(x) || done[x->access]) continue;
        done[x->access] = true;
        for (int axis = 0; axis < w->k->np + w->k->nr; axis++)
            if (w->k->access[x->access].stride[axis] == TNI_STRIDE_N)
                tni_out_line(w->o, "const m_long s%d_%d = arg[%d];", x->access, axis,
                             tni_c_arg(w, x->access) + 1 + axis);
    }
}

static void put_ones(tni_c_emitter *w, const tni_set *s)
{
    w->eval = (tni_set){ { 0 } };
    for (int i = 0; i < w->k->nins; i++)
        if (tni_set_has(s, i) && is_one(w, i)) tni_set_add(&w->eval, i);
    tni_c_singles(w);
}

// Axes that a unit has a coordinate on: all of P, without the lanes.
static int unit_axes(const tni_c_emitter *w)
{
    return w->k->lane_in_r || w->lane < 0 ? w->k->np : w->k->np - 1;
}

static bool is_used(const tni_c_emitter *w, const tni_set *s, int axis)
{
    for (int i = 0; i < w->k->nins; i++)
        if (tni_set_has(s, i) && has_access(ins(w, i)) &&
            w->k->access[ins(w, i)->access].stride[axis])
            return true;
    return false;
}

// The coordinates of the first unit.
static void put_coordinates(tni_c_emitter *w, const tni_set *s)
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

static void put_next(tni_c_emitter *w)
{
    int n = unit_axes(w);
    for (int i = n - 1; i > 0; i--) {
        tni_out_line(w->o, "if (++c%d == arg[%d]) {", i, i);
        tni_out_line(w->o, "c%d = 0;", i);
    }
    if (n > 0) tni_out_line(w->o, "c0++;");
    close_axes(w, n - 1);
}

// Strips that lie side by side are done in one go where nothing depends on where they end.
static bool is_merged(const tni_c_emitter *w)
{
    for (int i = 0; i < w->k->nins; i++)
        if (is_filled(w, i) || (tni_set_has(&w->at_once, i) && on_lane(w, i))) return false;
    return !w->k->nr && !w->k->tails;
}

static void open_strip(tni_c_emitter *w)
{
    tni_out *o = w->o;
    tni_out_line(o, "for (m_long u = first; u < last;) {");
    if (is_merged(w))
        tni_out_line(o,
                     "const m_long many = strips - strip < last - u ? strips - strip : last - u;");
    else tni_out_line(o, "const m_long many = 1;");
    tni_out_line(o, "const m_long base = strip * %d, left = arg[%d] - base;", TNI_STRIP, w->lane);
    tni_out_line(o, "const m_long n = left < many * %d ? left : many * %d;", TNI_STRIP, TNI_STRIP);
    for (int i = 0; i < w->k->nins; i++)
        if (tni_set_has(&w->strip, i)) tni_out_line(o, "%s w%d[%d];", type_of(w, i), i, TNI_STRIP);
}

static void close_strip(tni_c_emitter *w)
{
    tni_out_line(w->o, "u += many;");
    tni_out_line(w->o, "strip += many;");
    tni_out_line(w->o, "if (strip == strips) {");
    tni_out_line(w->o, "strip = 0;");
    put_next(w);
    tni_out_line(w->o, "}");
    tni_out_line(w->o, "}");
}

static void put_unit(tni_c_emitter *w)
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
    put_next(w);
    tni_out_line(w->o, "}");
}

static void put_main(tni_c_emitter *w, const char *name)
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
        if (is_tail(ins(w, i))) put_tail_begin(w, i);
    }
    put_ones(w, &s);
    put_coordinates(w, &s);
    put_units(w);
    for (int i = 0; i < w->k->nins; i++)
        if (is_tail(ins(w, i))) put_tail_end(w, i);
    tni_out_line(w->o, "}");
}

// ---- the finish stage --------------------------------------------------------------------------

// The total of a tail over all chunks: one, or those of the block's lanes.
static void put_tail_total(tni_c_emitter *w, int i)
{
    tni_out    *o     = w->o;
    bool        wide  = is_wide_tail(ins(w, i));
    const char *lanes = wide ? "M_LANES for (m_long j = 0; j < n; j++) " : "";
    char        into[40];
    snprintf(into, sizeof into, wide ? "q%d[j]" : "q%d", i);
    if (wide) tni_out_line(o, "%s q%d[%d];", wide_of(w, i), i, TNI_STRIP);
    else tni_out_line(o, "%s q%d;", wide_of(w, i), i);
    tni_out_print(o, "%*s%s%s = ", 4 * o->depth, "", lanes, into);
    put_start(w, i, true);
    tni_out_print(o, ";\n");
    tni_out_line(o, "for (m_long i = 0; i < chunks; i++) {");
    tni_out_print(o, "%*sconst %s *e%d = ", 4 * o->depth, "", wide_of(w, i), i);
    put_partials(w, i, "i");
    tni_out_print(o, wide ? " + at;\n" : ";\n");
    tni_out_print(o, "%*s%s", 4 * o->depth, "", lanes);
    tni_out_print(o, "%s = o_%s_%c(%s, e%d[%s]);\n", into, tni_op_table[ins(w, i)->op].name,
                  tni_compute_suffix(wide_dtype(ins(w, i))), into, i, wide ? "j" : "0");
    tni_out_line(o, "}");
    if (!wide) tni_out_line(o, "const %s v%d = (%s)q%d;", type_of(w, i), i, type_of(w, i), i);
}

static void put_finish_ones(tni_c_emitter *w)
{
    tni_set s = tni_needs_finish(w->k, false);
    for (int i = 0; i < w->k->nins; i++)
        if (tni_set_has(&s, i) && is_tail(ins(w, i))) put_tail_total(w, i);
    w->eval = (tni_set){ { 0 } };
    for (int i = 0; i < w->k->nins; i++)
        if (tni_set_has(&s, i) && !is_tail(ins(w, i))) tni_set_add(&w->eval, i);
    tni_c_singles(w);
}

static void put_finish_cols(tni_c_emitter *w)
{
    w->eval = tni_needs_finish(w->k, true);
    if (is_empty(&w->eval)) return;
    put_rows_of_lanes(w);
    for (int i = 0; i < w->k->nins; i++)
        if (tni_set_has(&w->eval, i) && is_tail(ins(w, i))) put_tail_total(w, i);
    tni_c_singles(w);
    tni_c_lanes(w);
    end_rows_of_lanes(w);
}

static void put_finish(tni_c_emitter *w, const char *name)
{
    tni_set s = tni_needs_finish(w->k, false), cols = tni_needs_finish(w->k, true);
    bool    checks = false;
    join_set(&s, &cols);
    w->finish = true;
    w->lane   = w->k->nr ? w->k->np + w->k->nr - 1 : -1;
    w->kept = w->strip = (tni_set){ { 0 } };
    for (int i = 0; i < w->k->nins; i++)
        checks |= tni_set_has(&s, i) && ins(w, i)->code == TNI_I_CHECK;
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

void tni_emit_c(tni_out *o, const tni_dialect *d, const tni_emit_item *item)
{
    tni_c_emitter w;
    tni_c_open(&w, o, d, item->kernel);
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
    tni_c_emitter w;
    tni_c_open(&w, NULL, NULL, k);
    rows[0] = rows[1] = 0;
    for (int i = 0; i < k->nins; i++)
        if (tni_set_has(&w.kept, i) || (is_wide_tail(&k->ins[i]) && k->lane_in_r)) {
            tn_dtype dt = tni_compute_dtype((tn_dtype)k->ins[i].dtype);
            rows[tni_dtype_size(dt) == 8]++;
        }
}

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
