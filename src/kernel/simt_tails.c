// Tails in the text of a simt kernel: their accumulators, and the partial results that a group
// leaves of them. simt_reduce.c prints how the partial results of all groups are joined. What it
// prints, of test/golden/col.txt:
//
//     float *const s1 = (float *)(scratch + a.w[5] + a.w[12]) + (m_long)((m_int)blockIdx.x) * a.w[2];
//     float t1[4];
//     for (m_int j = 0; j < 4; j++) t1[j] = -0.0f;
//     ... rows: t1[j] = o_sum_f(t1[j], v0); ...
//     ... t1[j] over the teams of a warp, by shuffles ...
//     if (tid % 32 < 16)
//         for (m_int j = 0; j < 4; j++) ((float *)(red + 0))[tid / 32 * 64 + t * 4 + j] = t1[j];
//     __syncthreads();
//     for (m_int i = tid; i < 64; i += 256) {
//         ... the sums of column i of all warps become g1 ...
//         if (e < (m_int)a.w[2]) s1[e] = g1;
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

// Not in a window, whose vectors begin before the row, nor with several vectors of columns a
// thread, which would need that many times the shared memory.
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
    tni_out_line(c->o, "const %s e = (from + j / %d * %d) * %d + j %% %d;", c->index, v,
                 tni_simt_apart(c), v, v);
    tni_out_line(c->o, "if (e < %s)", tni_simt_word_name(c, TNI_WORD_COLS).s);
    tni_out_line(c->o,
                 "    *(%s4 *)(s%d + e) = make_%s4(t%d[j], t%d[j + 1], t%d[j + 2], t%d[j + 3]);",
                 type, i, type, i, i, i, i);
    tni_out_line(c->o, "}");
    return true;
}

// Whether the teams of a warp fold by shuffles.
static bool folds_by_shuffles(const tni_simt_class *m)
{
    return tni_gpu_has(m, TNI_GPU_SHUFFLES) && m->team < TNI_WARP &&
           m->team * m->rows % TNI_WARP == 0;
}

// Words of `red` for the sums of tail i: of each warp, or of each larger team, for all columns.
static int team_words(const tni_simt_emitter *c, int i)
{
    const tni_simt_class *m = c->m;
    int size                = (int)tni_dtype_size(tni_compute_dtype((tn_dtype)c->k->ins[i].dtype));
    int sums                = m->team * m->rows / (folds_by_shuffles(m) ? TNI_WARP : m->team);
    return (sums * m->team * m->vector * size + 7) / 8;
}

int tni_simt_team_words(const tni_simt_emitter *c)
{
    int most = 0, tails = 0;
    for (int i = 0; i < c->k->nins && tni_simt_joins_teams(c); i++) {
        if (!tni_is_tail(&c->k->ins[i]) || !c->k->ins[i].per) continue;
        if (team_words(c, i) > most) most = team_words(c, i);
        tails += tails < TNI_TAILS_TOGETHER;
    }
    return tails * most;
}

// Prints the partial results of columns of several teams: those of a warp are folded by shuffles;
// then each warp, or each larger team, leaves the sums of its columns in `red`, and a thread joins
// those of one column. Two barriers for all columns of some tails: a tree for each would wait at
// dozens.
//
//     for (m_int d = 16; d >= 8; d /= 2) {
//         for (m_int j = 0; j < 4; j++)
//             t5[j] = o_sum_f(t5[j], __shfl_xor_sync(0xffffffffu, t5[j], d));
//     }
//     __syncthreads();
//     if (tid % 32 < 8)
//         for (m_int j = 0; j < 4; j++) ((float *)(red + 0))[tid / 32 * 32 + t * 4 + j] = t5[j];
//     __syncthreads();
//     for (m_int i = tid; i < 32; i += 256) {
//         const m_int e = (from - t) * 4 + i;
//         float g5 = ((float *)(red + 0))[i];
//         for (m_int y = 1; y < 8; y++)
//             g5 = o_sum_f(g5, ((float *)(red + 0))[y * 32 + i]);
//         if (e < (m_int)a.w[2]) s5[e] = g5;
//     }
static void put_team_partials(tni_simt_emitter *c, const tni_set *tails)
{
    const tni_simt_class *m = c->m;
    int  team = m->team, v = m->vector, group = team * m->rows, cols = team * v, base = 0;
    bool shuffles = folds_by_shuffles(m);
    int  each     = shuffles ? TNI_WARP : team;
    c->uses_red   = true;
    for (int i = 0; i < c->k->nins; i++)
        if (tni_set_has(tails, i) && shuffles) tni_simt_fold_vector(c, i, 't', team, v);
    tni_out_line(c->o, "%s;", c->d->barrier);
    for (int i = 0; i < c->k->nins; i++) {
        if (!tni_set_has(tails, i)) continue;
        if (shuffles) tni_out_line(c->o, "if (tid %% %d < %d)", TNI_WARP, team);
        tni_out_print(c->o, "%s", c->d->unroll);
        tni_out_line(
            c->o,
            "for (m_int j = 0; j < %d; j++) ((%s%s *)(red + %d))[tid / %d * %d + t * %d + j] "
            "= t%d[j];",
            v, c->local, value_type(c, i), base, each, cols, v, i);
        base += team_words(c, i);
    }
    tni_out_line(c->o, "%s;", c->d->barrier);
    tni_out_line(c->o, "for (m_int i = tid; i < %d; i += %d) {", cols, group);
    tni_out_line(c->o, "const %s e = (from - t) * %d + i;", c->index, v);
    base = 0;
    for (int i = 0; i < c->k->nins; i++) {
        tni_text acc = tni_text_of("g%d", i), other;
        if (!tni_set_has(tails, i)) continue;
        other = tni_text_of("((%s%s *)(red + %d))[", c->local, value_type(c, i), base);
        tni_out_line(c->o, "%s g%d = %si];", value_type(c, i), i, other.s);
        tni_text_add(&other, "y * %d + i]", cols);
        tni_out_print(c->o, "%s", c->d->unroll);
        tni_out_line(c->o, "for (m_int y = 1; y < %d; y++)", group / each);
        tni_simt_fold_line(c, i, "    ", acc.s, other.s);
        tni_out_line(c->o, "if (e < %s) s%d[e] = g%d;", tni_simt_word_name(c, TNI_WORD_COLS).s, i,
                     i);
        base += team_words(c, i);
    }
    tni_out_line(c->o, "}");
}

// Those of all column tails, some at a time.
static void put_all_team_partials(tni_simt_emitter *c)
{
    tni_set tails = { 0 };
    int     n     = 0;
    for (int i = 0; i < c->k->nins; i++) {
        if (!tni_is_tail(&c->k->ins[i]) || !c->k->ins[i].per) continue;
        tni_set_add(&tails, i);
        if (++n < TNI_TAILS_TOGETHER) continue;
        put_team_partials(c, &tails);
        tails = (tni_set){ 0 };
        n     = 0;
    }
    if (n) put_team_partials(c, &tails);
}

// The accumulators begin anew for the next row: who has it is left to chance, so that sums over the
// rows of a group would have another order in every run.
void tni_simt_put_ticket_partials(tni_simt_emitter *c)
{
    const char *first = c->m->cluster > 1 ? "tid == 0 && rank == 0" : "tid == 0";
    for (int i = 0; i < c->k->nins; i++) {
        const tni_ins *x = &c->k->ins[i];
        if (!tni_is_tail(x)) continue;
        tni_out_line(c->o, "if (%s) s%d[row] = t%d;", first, i, i);
        tni_out_line(c->o, "t%d = %s;", i, tni_fold_start(x->op, (tn_dtype)x->dtype));
    }
}

// Prints the partial results of ROW: each thread has accumulators of its columns, every thread of a
// team has the row tails. Several teams of a group are folded into the first one's.
void tni_simt_put_row_partials(tni_simt_emitter *c)
{
    int      v     = c->m->vector;
    bool     teams = tni_simt_joins_teams(c);
    tni_text acc;
    if (teams) put_all_team_partials(c);
    for (int i = 0; i < c->k->nins; i++) {
        const tni_ins *x = &c->k->ins[i];
        if (!tni_is_tail(x) || (x->per && (c->m->tail_memory || teams))) continue;
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
        tni_out_line(c->o, "const %s e = (from + q * %d) * %d + j%s;", c->index, tni_simt_apart(c),
                     v, c->m->window ? " - shift" : "");
        tni_out_line(c->o, "if (tid < %d && %se < %s) s%d[e] = %s;", c->m->team,
                     c->m->window ? "e >= 0 && " : "", tni_simt_word_name(c, TNI_WORD_COLS).s, i,
                     acc.s);
        tni_simt_close_vector(c);
    }
}
