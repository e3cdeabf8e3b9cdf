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

// Not in a window, whose vectors begin before the row, nor with several vectors of columns a thread,
// which would need that many times the shared memory.
bool tni_simt_joins_teams(const tni_simt_emitter *c)
{
    return c->m->form == TNI_SIMT_ROW && c->m->rows_in_flight && !c->m->window && c->m->rows > 1;
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

// Prints the partial results of columns of several teams: those of a warp are folded by shuffles;
// then each warp, or each larger team, leaves the sums of its columns in `red`, and a thread joins
// those of one column. Two barriers for all columns: a tree for each would wait at dozens.
//
//     for (m_int d = 16; d >= 8; d /= 2)
//         for (m_int j = 0; j < 8; j++) t5[j] = o_sum_f(t5[j], __shfl_xor_sync(0xffffffffu, t5[j], d));
//     __syncthreads();
//     if (tid % 32 < 8)
//         for (m_int j = 0; j < 8; j++) ((float *)red)[tid / 32 * 64 + t * 8 + j] = t5[j];
//     __syncthreads();
//     for (m_int i = tid; i < 64; i += 256) {
//         float g = ((float *)red)[i];
//         for (m_int y = 1; y < 8; y++) g = o_sum_f(g, ((float *)red)[y * 64 + i]);
//         const m_int e = (from - t) * 8 + i;
//         if (e < (m_int)a.w[2]) s5[e] = g;
//     }
static void put_team_partials(tni_simt_emitter *c, int i)
{
    const tni_simt_class *m    = c->m;
    const char           *type = value_type(c, i);
    int  team = m->team, v = m->vector, group = team * m->rows, each = team, cols = team * v;
    bool shuffles = tni_gpu_has(m, TNI_GPU_SHUFFLES) && team < TNI_WARP && group % TNI_WARP == 0;
    tni_text acc  = tni_text_of("t%d[j]", i), other;
    c->uses_red   = true;
    if (shuffles) {
        each = TNI_WARP;
        snprintf(other.s, sizeof other.s, c->d->shuffle, acc.s);
        tni_out_print(c->o, "%s", c->d->unroll);
        tni_out_line(c->o, "for (m_int d = %d; d >= %d; d /= 2) {", TNI_WARP / 2, team);
        tni_out_print(c->o, "%s", c->d->unroll);
        tni_out_line(c->o, "for (m_int j = 0; j < %d; j++)", v);
        tni_simt_fold_line(c, i, "    ", acc.s, other.s);
        tni_out_line(c->o, "}");
    }
    tni_out_line(c->o, "%s;", c->d->barrier);
    if (shuffles) tni_out_line(c->o, "if (tid %% %d < %d)", TNI_WARP, team);
    tni_out_print(c->o, "%s", c->d->unroll);
    tni_out_line(c->o,
                 "for (m_int j = 0; j < %d; j++) ((%s%s *)red)[tid / %d * %d + t * %d + j] = %s;",
                 v, c->local, type, each, cols, v, acc.s);
    tni_out_line(c->o, "%s;", c->d->barrier);
    tni_out_line(c->o, "for (m_int i = tid; i < %d; i += %d) {", cols, group);
    tni_out_line(c->o, "%s g = ((%s%s *)red)[i];", type, c->local, type);
    tni_out_line(c->o, "for (m_int y = 1; y < %d; y++)", group / each);
    other = tni_text_of("((%s%s *)red)[y * %d + i]", c->local, type, cols);
    tni_simt_fold_line(c, i, "    ", "g", other.s);
    tni_out_line(c->o, "const %s e = (from - t) * %d + i;", c->index, v);
    tni_out_line(c->o, "if (e < %s) s%d[e] = g;", tni_simt_word_name(c, TNI_WORD_COLS).s, i);
    tni_out_line(c->o, "}");
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
        if (tni_simt_joins_teams(c)) {
            put_team_partials(c, i);
            continue;
        }
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
