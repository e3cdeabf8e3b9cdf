// Instructions in the text of a simt kernel: the line of a value, a fold, a tail or a store, and
// the functions that CUDA has better instructions for than the expression of the op table. What it
// prints, of test/golden/row.txt and col.txt:
//
//     const float v0 = m_float_bits(x0[q * 4 + j]);                  load
//     const float v2 = o_sub_f(v0, v1);                              map
//     k3[q * 4 + j] = m_exp_below_f(v2);                             map that is kept
//     v4 = o_sum_f(v4, k3[q * 4 + j]);                               reduce over R
//     t1[j] = o_sum_f(t1[j], v0);                                    tail
//     if (mine) b2[(m_int)a.w[11] + i1] = v3;                        store of the finish stage
#include "kernel/simt_emitter.h"

#include <stdio.h>
#include <string.h>

// What guards a store or a tail: whether this thread does it for this element. A row value is
// stored by one thread of the team, a finished value by the thread that has it; "" if every thread
// stores.
static const char *store_test(const tni_simt_emitter *c)
{
    if (c->stage == TNI_AT_FINISH) return "if (mine) ";
    if (c->m->form == TNI_SIMT_ROW && c->stage == TNI_AT_ROW)
        return c->m->cluster > 1 ? "if (t == 0 && rank == 0) " : "if (t == 0 && live) ";
    if (c->m->form == TNI_SIMT_LANE)
        return c->stage == TNI_AT_LANES ? "if (ok && k == 0) " : "if (ok) ";
    return c->m->window ? "if (ok) " : "";
}

// Prints REDUCE i: its operand folded into the accumulator, under a test.
static void put_ins_fold(tni_simt_emitter *c, int i, const char *acc, const char *test)
{
    const tni_ins *x = &c->k->ins[i];
    tni_simt_fold_line(c, i, test, acc, tni_simt_value_name(c, x->a).s);
}

// Prints what a tail adds up: into a variable (row tails), an element of an array for each column
// of the thread, or, if registers do not hold the columns, into the partial results in scratch
// themselves, which the first row writes and later rows add to.
static void put_ins_tail(tni_simt_emitter *c, int i)
{
    const tni_ins *x    = &c->k->ins[i];
    bool           elem = c->k->ins[i].per & TNI_PER_COL;
    tni_text       acc;
    snprintf(acc.s, sizeof acc.s, "t%d", i);
    if (c->m->form == TNI_SIMT_ROW && elem && c->m->tail_memory) {
        tni_out_line(c->o, "%s{", c->m->window ? "if (ok) " : "");
        tni_out_line(c->o, "if (!it) s%d[e + j] = %s;", i, tni_simt_value_name(c, x->a).s);
        snprintf(acc.s, sizeof acc.s, "s%d[e + j]", i);
        put_ins_fold(c, i, acc.s, "else ");
        tni_out_line(c->o, "}");
        return;
    }
    if (c->m->form == TNI_SIMT_ROW && elem)
        snprintf(acc.s, sizeof acc.s, c->m->rows_in_flight ? "t%d[j]" : "t%d[q * %d + j]", i,
                 c->m->vector);
    const char *test = store_test(c);
    if (c->m->form == TNI_SIMT_ROW && !elem) test = "if (live) ";
    put_ins_fold(c, i, acc.s, test);
}

// Whether exp i is of a value less the largest of its row, as in softmax: never above 0, so that
// overflow needs no care.
static bool is_below(const tni_simt_emitter *c, int i)
{
    const tni_ins *x = &c->k->ins[c->k->ins[i].a];
    if (x->code != TNI_I_MAP || x->op != TNI_sub) return false;
    const tni_ins *top = &c->k->ins[x->b];
    return tni_is_row_reduce(top) && top->op == TNI_max && top->a == x->a;
}

// Whether all that becomes of value i is added up or rounded to 16 bits, here or, if it is kept,
// anywhere: an error of a few ULP in terms far below the largest is lost then. Follows linear maps
// to their readers.
static bool is_coarse(const tni_simt_emitter *c, int i, bool all)
{
    all = all || tni_set_has(&c->kept, i);
    for (int u = i + 1; u < c->k->nins; u++) {
        const tni_ins *x = &c->k->ins[u];
        if ((x->a != i && x->b != i && x->c != i) || (!all && !tni_set_has(&c->loop_set, u)))
            continue;
        if (tni_is_row_reduce(x) && x->op == TNI_sum) continue;
        tn_dtype dt = x->code == TNI_I_STORE ? buffer_dtype(c, u) : (tn_dtype)x->dtype;
        if ((x->code == TNI_I_STORE || x->code == TNI_I_CAST) && tni_is_rounded(dt)) continue;
        bool linear = x->code == TNI_I_MAP && (x->op == TNI_mul || x->op == TNI_div ||
                                               x->op == TNI_add || x->op == TNI_sub);
        if (!linear || !is_coarse(c, u, all)) return false;
    }
    return true;
}

// The function for exp i, the fastest whose error bound suffices.
static const char *exp_name(const tni_simt_emitter *c, int i)
{
    if (!is_below(c, i)) return "m_fast_exp_f";
    return is_coarse(c, i, false) ? "m_exp_coarse_f" : "m_exp_below_f";
}

// The function that computes a map of floats with fewer instructions than the op table's
// expression; NULL if there is none. Of gelu and its slope only results that are rounded to 16 bits
// may be coarse.
static const char *better_name(const tni_simt_emitter *c, int i)
{
    const tni_ins *x = &c->k->ins[i];
    if (!tni_gpu_has(c->m, TNI_GPU_MATH) || x->code != TNI_I_MAP) return NULL;
    if (tni_compute_dtype((tn_dtype)x->dtype) != TN_F32) return NULL;
    if (x->op == TNI_exp) return exp_name(c, i);
    if (!tni_is_rounded((tn_dtype)x->dtype)) return NULL;
    if (x->op == TNI_gelu_slope) return x->dtype == TN_BF16 ? "m_slope_bf16_f" : "m_slope_coarse_f";
    return x->op == TNI_gelu_tanh ? "m_gelu_coarse_f" : NULL;
}

// Whether MAP i is a quotient of floats whose divisor is one value for the row: m_div_by_f
// multiplies by the reciprocal, which the compiler hoists out of the loop, and corrects the product
// by one step.
static bool divides_by_row(const tni_simt_emitter *c, int i)
{
    const tni_ins *x = &c->k->ins[i];
    return tni_gpu_has(c->m, TNI_GPU_MATH) && c->stage == TNI_AT_LOOP && x->code == TNI_I_MAP &&
           x->op == TNI_div && tni_compute_dtype((tn_dtype)x->dtype) == TN_F32 &&
           x->per & TNI_PER_COL && !(c->k->ins[x->b].per & TNI_PER_COL);
}

// Whether value i is the coordinate along the lane axis, plus what the row adds.
static bool is_column(const tni_simt_emitter *c, int i)
{
    const tni_ins *x = &c->k->ins[i];
    if (x->code != TNI_I_PLACE) return false;
    for (int r = c->k->np; r < c->k->np + c->k->nr; r++)
        if (c->k->access[x->access].stride[r] != (r == c->lane ? TNI_STRIDE_1 : TNI_STRIDE_0))
            return false;
    return true;
}

// Such comparisons make one-hot rows (cross entropy and its gradient). With 32-bit indices the
// wanted column is computed once for the row, and whole passes can be skipped by one test
// (put_no_match_test).
bool tni_simt_finds_column(const tni_simt_emitter *c, int i)
{
    const tni_ins *x = &c->k->ins[i];
    if (c->m->rows_in_flight || x->code != TNI_I_MAP || x->op != TNI_eq ||
        !tni_gpu_has(c->m, TNI_GPU_MATH) || c->m->wide || c->m->form != TNI_SIMT_ROW ||
        c->stage != TNI_AT_LOOP)
        return false;
    return (is_column(c, x->a) && !(c->k->ins[x->b].per & TNI_PER_COL)) ||
           (is_column(c, x->b) && !(c->k->ins[x->a].per & TNI_PER_COL));
}

//     const m_int w4 = m_column(v2 - (m_long)a1);
void tni_simt_put_hoisted(tni_simt_emitter *c, int i)
{
    const tni_ins *x = &c->k->ins[i];
    if (tni_simt_finds_column(c, i) && !tni_set_has(&c->hoisted, i)) {
        bool first = is_column(c, x->a);
        tni_set_add(&c->hoisted, i);
        tni_out_line(c->o, "const m_int w%d = m_column(%s - (m_long)a%d);", i,
                     tni_simt_value_name(c, first ? x->b : x->a).s,
                     c->k->ins[first ? x->a : x->b].access);
    }
}

// Prints a random number of which the vector has the whole block (a finish stage has single
// columns):
//
//     m_uniform_f(m_block_bits(m_philox((m_ulong)a.w[10], (m_ulong)a.w[11] + (m_ulong)((m_long)(a1 + c) >> 2) + j / 4, 0), j))
//
// j is a constant in each turn of the unrolled loop, and compilers compute what is equal in four of
// them once.
static void put_block_draw(tni_simt_emitter *c, int i)
{
    const tni_ins *x = &c->k->ins[i];
    tni_text       before, after = tni_text_of(")");
    if (x->op == TNI_random_bits) before = tni_text_of("(m_long)m_block_bits(");
    else if (x->op != TNI_uniform) before = tni_text_of("m_block_normal_f(");
    else {
        before = tni_text_of("m_uniform_%s(m_block_bits(",
                             x->dtype == TN_F32 ? "f" : tn_dtype_name((tn_dtype)x->dtype));
        after  = tni_text_of("))");
    }
    tni_out_print(c->o, "%sm_philox(", before.s);
    c->emitter.number(&c->emitter, x->number);
    tni_out_print(c->o, ", ");
    c->emitter.number(&c->emitter, x->number + 1);
    tni_out_print(c->o, " + (m_ulong)((m_long)(");
    tni_simt_put_place(c, c->k->ins[x->a].access, "c");
    tni_out_print(c->o, ") >> 2) + j / 4, 0), j%s", after.s);
}

// A store of a value that was cast to the buffer's dtype takes the operand of the cast: rounding
// twice to the same dtype is rounding once.
static void put_ins_store(tni_simt_emitter *c, int i)
{
    const tni_ins *x = &c->k->ins[i], *cast = &c->k->ins[x->a];
    tn_dtype       to = buffer_dtype(c, i);
    if (cast->code != TNI_I_CAST || cast->dtype != to || tni_set_has(&c->kept, x->a) ||
        !tni_is_rounded(to)) {
        tni_emit_store(&c->emitter, i);
        return;
    }
    tni_cast_text t = tni_text_to_storage((tn_dtype)c->k->ins[cast->a].dtype, to);
    c->emitter.element(&c->emitter, i);
    tni_out_print(c->o, " = %s%s%s", t.before, tni_simt_value_name(c, cast->a).s, t.after);
}

// A value is declared where it is computed if it is a variable (v); arrays (k) are declared before
// the loop.
void tni_simt_put_ins(tni_simt_emitter *c, int i)
{
    const tni_ins *x = &c->k->ins[i];
    if (tni_is_tail(x)) {
        put_ins_tail(c, i);
        return;
    }
    if (tni_is_row_reduce(x)) {
        put_ins_fold(c, i, tni_simt_value_name(c, i).s,
                     c->m->form == TNI_SIMT_ROW && c->m->window ? "if (ok) " : "");
        return;
    }
    begin_indent(c);
    if (x->code == TNI_I_STORE) {
        tni_out_print(c->o, "%s", tni_simt_moves_vector(c, i) ? "" : store_test(c));
        put_ins_store(c, i);
    } else {
        tni_text n = tni_simt_value_name(c, i);
        if (*n.s == 'v') tni_out_print(c->o, "const %s ", value_type(c, i));
        tni_out_print(c->o, "%s = ", n.s);
        const char *better = better_name(c, i);
        if (tni_simt_prefetches_value(c, i)) tni_out_print(c->o, "x%d", i);
        else if (better) tni_out_print(c->o, "%s(%s)", better, tni_simt_value_name(c, x->a).s);
        else if (divides_by_row(c, i))
            tni_out_print(c->o, "m_div_by_f(%s, %s)", tni_simt_value_name(c, x->a).s,
                          tni_simt_value_name(c, x->b).s);
        else if (c->m->whole_blocks && x->code == TNI_I_RANDOM && c->stage != TNI_AT_FINISH)
            put_block_draw(c, i);
        else if (tni_simt_finds_column(c, i))
            tni_out_print(c->o, c->no_column_match ? "0" : "l == w%d", i);
        else tni_emit_value(&c->emitter, i);
    }
    tni_out_print(c->o, ";\n");
}
