// Tails in the text of a simt kernel: their accumulators, and the partial results that a group
// leaves of them. simt_reduce.c prints how the partial results of all groups are joined. What it
// prints, of test/golden/col.txt:
//
//     float *const s1 = (float *)(scratch + a.w[5] + a.w[12]) + (m_long)((m_int)blockIdx.x) * a.w[2];
//     float t1[4];
//     for (m_int j = 0; j < 4; j++) t1[j] = -0.0f;
//     ... rows: t1[j] = o_sum_f(t1[j], v0); ...
//     for (m_int q = 0; q < 1; q++) {
//         for (m_int j = 0; j < 4; j++) {
//             ... t1[q * 4 + j] is folded over the teams of the group ...
//             const m_int e = (from + q * 16) * 4 + j;
//             if (tid < 16 && e < (m_int)a.w[2]) s1[e] = t1[q * 4 + j];
//         }
//     }
#include "kernel/simt_emitter.h"

#include <stdio.h>

// Declares for each tail where the partial results of this part go, and its accumulators: one for
// each of the thread's columns, or one for a row tail.
void tni_simt_declare_tails(tni_simt_emitter *c, const char *part)
{
    bool row = c->m->form == TNI_SIMT_ROW;
    for (int i = 0; i < c->k->nins; i++) {
        const tni_ins *x = &c->k->ins[i];
        if (!tni_is_tail(x)) continue;
        const char *type = value_type(c, i), *start = tni_fold_start(x->op, (tn_dtype)x->dtype);
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

// Folds the row tails over all threads of the group; thread 0 stores the partial result.
void tni_simt_put_group_partials(tni_simt_emitter *c)
{
    tni_set rows = { 0 };
    for (int i = 0; i < c->k->nins; i++)
        if (tni_is_tail(&c->k->ins[i]) && !c->k->ins[i].per) tni_set_add(&rows, i);
    tni_simt_fold_team(c, &rows, 't', c->m->team * c->m->rows);
    for (int i = 0; i < c->k->nins; i++)
        if (tni_set_has(&rows, i)) tni_out_line(c->o, "if (tid == 0) s%d[0] = t%d;", i, i);
}

// Stores the partial results of columns four at a time, if they are aligned as the vectors of the
// row are. Returns false, and prints nothing, if they are not.
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

// Prints the partial results of ROW: each thread has accumulators of its columns, every thread of a
// team has the row tails. Several teams of a group are folded into the first one's.
void tni_simt_put_row_partials(tni_simt_emitter *c)
{
    int      v = c->m->vector;
    tni_text acc;
    for (int i = 0; i < c->k->nins; i++) {
        const tni_ins *x = &c->k->ins[i];
        if (!tni_is_tail(x) || (x->per && c->m->tail_memory)) continue;
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
