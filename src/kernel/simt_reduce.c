// Reductions over threads in the text of a simt kernel: over teams, lanes and groups, and the
// finish stage of tails. What it prints, of test/golden/row.txt, for a team of four warps (CUDA):
//
//     for (m_int d = 16; d > 0; d /= 2)
//         v1 = o_max_f(v1, __shfl_xor_sync(0xffffffffu, v1, d));
//     if (tid % 32 == 0) *(float *)&red[(par * 1 + 0) * 32 + tid / 32] = v1;
//     __syncthreads();
//     v1 = *(float *)&red[(par * 1 + 0) * 32 + tid % 4];
//     for (m_int d = 2; d > 0; d /= 2)
//         v1 = o_max_f(v1, __shfl_xor_sync(0xffffffffu, v1, d));
//     par ^= 1;
//
// and without shuffles (OpenCL):
//
//     *(__local float *)&red[tid] = v1;
//     barrier(CLK_LOCAL_MEM_FENCE);
//     for (m_int d = 64; d > 0; d /= 2) {
//         if (tid % 128 < d) *(__local float *)&red[tid] = o_max_f(...);
//         barrier(CLK_LOCAL_MEM_FENCE);
//     }
//     v1 = *(__local float *)&red[tid - tid % 128];
//     barrier(CLK_LOCAL_MEM_FENCE);
//
// Every order of folding depends on thread numbers alone, so that a sum has the same bits in every
// run.
#include "kernel/simt_emitter.h"

#include <stdio.h>
#include <string.h>

// `before` is what precedes the assignment on its line: an indentation or a test.
void tni_simt_fold_line(tni_simt_emitter *c, int i, const char *before, const char *acc,
                        const char *other)
{
    const tni_ins *x = &c->k->ins[i];
    begin_indent(c);
    tni_out_print(c->o, "%s%s = ", before, acc);
    tni_emit_fold(c->o, x->op, (tn_dtype)x->dtype, acc, other);
    tni_out_print(c->o, ";\n");
}

// Prints a butterfly over n neighbouring threads of a warp. By xor every thread ends with the same
// bits: in each step both partners add the same two numbers, and the addition of floats is
// commutative.
static void put_shuffles(tni_simt_emitter *c, int i, const char *acc, int n)
{
    tni_text other;
    if (n == 1) return;
    snprintf(other.s, sizeof other.s, c->d->shuffle, acc);
    tni_out_print(c->o, "%s", c->d->unroll);
    tni_out_line(c->o, "for (m_int d = %d; d > 0; d /= 2)", n / 2);
    tni_simt_fold_line(c, i, "    ", acc, other.s);
}

// Threads `each` apart in a warp have the same columns, `width` of them in an array.
void tni_simt_fold_vector(tni_simt_emitter *c, int i, char letter, int each, int width)
{
    tni_text acc = tni_text_of("%c%d[j]", letter, i), other;
    snprintf(other.s, sizeof other.s, c->d->shuffle, acc.s);
    tni_out_print(c->o, "%s", c->d->unroll);
    tni_out_line(c->o, "for (m_int d = %d; d >= %d; d /= 2) {", TNI_WARP / 2, each);
    tni_out_print(c->o, "%s", c->d->unroll);
    tni_out_line(c->o, "for (m_int j = 0; j < %d; j++)", width);
    tni_simt_fold_line(c, i, "    ", acc.s, other.s);
    tni_out_line(c->o, "}");
}

// Folds within each warp by shuffles; then each warp leaves its result in `red`, and all threads
// read those of all warps of the team and fold them by shuffles again; where the warps are no power
// of two, some threads take the neutral number instead. Two folds one after the other use two
// halves of `red` (par), so that one barrier is enough: no thread writes a half again before the
// barrier of the other.
static void fold_by_shuffles(tni_simt_emitter *c, const tni_set *set, char letter, int team)
{
    int warps = team / TNI_WARP, slot = 0, all = 1;
    while (all < warps) all *= 2;
    for (int i = 0; i < c->k->nins; i++) {
        tni_text acc;
        snprintf(acc.s, sizeof acc.s, "%c%d", letter, i);
        if (tni_set_has(set, i)) put_shuffles(c, i, acc.s, team < TNI_WARP ? team : TNI_WARP);
    }
    if (warps <= 1) return;
    c->uses_red = true;
    for (int i = 0; i < c->k->nins; i++)
        if (tni_set_has(set, i))
            tni_out_line(c->o,
                         "if (tid %% %d == 0) *(%s *)&red[(par * %d + %d) * %d + tid / %d] = %c%d;",
                         TNI_WARP, value_type(c, i), c->max_folds, slot++, TNI_WARP, TNI_WARP,
                         letter, i);
    tni_out_line(c->o, "%s;", c->d->barrier);
    slot = 0;
    for (int i = 0; i < c->k->nins; i++) {
        tni_text acc;
        snprintf(acc.s, sizeof acc.s, "%c%d", letter, i);
        if (!tni_set_has(set, i)) continue;
        tni_out_line(c->o, "%s = *(%s *)&red[(par * %d + %d) * %d + tid %% %d];", acc.s,
                     value_type(c, i), c->max_folds, slot++, TNI_WARP, all);
        if (all > warps)
            tni_out_line(c->o, "if (tid %% %d >= %d) %s = %s;", all, warps, acc.s,
                         tni_fold_start(c->k->ins[i].op, (tn_dtype)c->k->ins[i].dtype));
        put_shuffles(c, i, acc.s, all);
    }
    tni_out_line(c->o, "par ^= 1;");
}

// Folds by a tree in shared memory, halving the number of threads at each step, for devices without
// shuffles. The last barrier lets `red` be used again at once.
static void fold_by_tree(tni_simt_emitter *c, int i, char letter, int team)
{
    const char *type = value_type(c, i);
    tni_text    a, b, test;
    c->uses_red = true;
    snprintf(a.s, sizeof a.s, "*(%s%s *)&red[tid]", c->local, type);
    snprintf(b.s, sizeof b.s, "*(%s%s *)&red[tid + d]", c->local, type);
    tni_out_line(c->o, "%s = %c%d;", a.s, letter, i);
    tni_out_line(c->o, "%s;", c->d->barrier);
    tni_out_line(c->o, "for (m_int d = %d; d > 0; d /= 2) {", team / 2);
    snprintf(test.s, sizeof test.s, "if (tid %% %d < d) ", team);
    tni_simt_fold_line(c, i, test.s, a.s, b.s);
    tni_out_line(c->o, "%s;", c->d->barrier);
    tni_out_line(c->o, "}");
    tni_out_line(c->o, "%c%d = *(%s%s *)&red[tid - tid %% %d];", letter, i, c->local, type, team);
    tni_out_line(c->o, "%s;", c->d->barrier);
}

// With shuffles all reductions of the set share one barrier; a tree has its own barriers for each.
void tni_simt_fold_team(tni_simt_emitter *c, const tni_set *set, char letter, int team)
{
    tni_set none = { 0 };
    if (team == 1 || !memcmp(set, &none, sizeof none)) return;
    bool shuffles = tni_gpu_has(c->m, TNI_GPU_SHUFFLES);
    if (shuffles) fold_by_shuffles(c, set, letter, team);
    for (int i = 0; i < c->k->nins && !shuffles; i++)
        if (tni_set_has(set, i)) fold_by_tree(c, i, letter, team);
}

// Each thread writes the accumulators of its lanes; then each reads those of the threads y = 0 ..
// team-1 that share its rows and folds them in order. All of them have the result, which later
// loops read.
void tni_simt_fold_lanes(tni_simt_emitter *c, int i)
{
    tni_text acc, other;
    c->uses_red = true;
    snprintf(acc.s, sizeof acc.s, "k%d[j]", i);
    snprintf(other.s, sizeof other.s, "((%s%s *)red)[(y * %d + t) * %d + j]", c->local,
             value_type(c, i), c->m->rows, c->m->vector);
    tni_out_print(c->o, "%s", c->d->unroll);
    tni_out_line(c->o, "for (m_int j = 0; j < %d; j++) ((%s%s *)red)[tid * %d + j] = %s;",
                 c->m->vector, c->local, value_type(c, i), c->m->vector, acc.s);
    tni_out_line(c->o, "%s;", c->d->barrier);
    tni_out_print(c->o, "%s", c->d->unroll);
    tni_out_line(c->o, "for (m_int j = 0; j < %d; j++) {", c->m->vector);
    tni_out_line(c->o, "%s = ((%s%s *)red)[t * %d + j];", acc.s, c->local, value_type(c, i),
                 c->m->vector);
    tni_out_line(c->o, "for (m_int y = 1; y < %d; y++)", c->m->team);
    tni_simt_fold_line(c, i, "    ", acc.s, other.s);
    tni_out_line(c->o, "}");
    tni_out_line(c->o, "%s;", c->d->barrier);
}

// A tree over the teams of a group, thread by thread: thread t of each team has the same columns.
// Only the accumulators of the first team are valid afterwards.
void tni_simt_fold_rows(tni_simt_emitter *c, int i, const char *acc)
{
    tni_text a, b, test;
    if (c->m->rows == 1) return;
    c->uses_red = true;
    snprintf(a.s, sizeof a.s, "*(%s%s *)&red[tid]", c->local, value_type(c, i));
    snprintf(b.s, sizeof b.s, "*(%s%s *)&red[tid + d * %d]", c->local, value_type(c, i),
             c->m->team);
    tni_out_line(c->o, "%s;", c->d->barrier);
    tni_out_line(c->o, "%s = %s;", a.s, acc);
    tni_out_line(c->o, "%s;", c->d->barrier);
    tni_out_line(c->o, "for (m_int d = %d; d > 0; d /= 2) {", c->m->rows / 2);
    snprintf(test.s, sizeof test.s, "if (tid / %d < d) ", c->m->team);
    tni_simt_fold_line(c, i, test.s, a.s, b.s);
    tni_out_line(c->o, "%s;", c->d->barrier);
    tni_out_line(c->o, "}");
    tni_out_line(c->o, "%s = %s;", acc, a.s);
}

// ---- finish ------------------------------------------------------------------------------------

// Prints launch word w in its own type, m_long, for byte counts that need 64 bits whatever the
// indices have.
static void put_bare_word(tni_simt_emitter *c, int w)
{
    tni_out_print(c->o, tni_gpu_has(c->m, TNI_GPU_STRUCT) ? "a.w[%d]" : "w%d", w);
}

//     float *const s1 = (float *)(scratch + a.w[5] + a.w[12]) + (m_long)((m_int)blockIdx.x) * a.w[2];
void tni_simt_declare_part(tni_simt_emitter *c, int i, const char *part)
{
    begin_indent(c);
    tni_out_print(c->o, "%s%s *const s%d = (%s%s *)(scratch + ", c->d->global, value_type(c, i), i,
                  c->d->global, value_type(c, i));
    put_bare_word(c, TNI_WORD_SCRATCH);
    tni_out_print(c->o, " + ");
    put_bare_word(c, c->at.tail[i]);
    tni_out_print(c->o, ") + (m_long)(%s)", part);
    if (c->k->ins[i].per) tni_out_print(c->o, " * ");
    if (c->k->ins[i].per) put_bare_word(c, TNI_WORD_COLS);
    tni_out_print(c->o, ";\n");
}

void tni_simt_declare_parts(tni_simt_emitter *c)
{
    for (int i = 0; i < c->k->nins; i++)
        if (tni_is_tail(&c->k->ins[i])) tni_simt_declare_part(c, i, "0");
}

// Declares the accumulators of a set of tails that are one value each and joins their parts in one
// loop, every step-th from thread to thread: the loads of all tails are in flight together.
static void put_parts_join(tni_simt_emitter *c, const tni_set *tails, int step)
{
    tni_set none = { 0 };
    if (!memcmp(tails, &none, sizeof none)) return;
    for (int i = 0; i < c->k->nins; i++)
        if (tni_set_has(tails, i))
            tni_out_line(c->o, "%s v%d = %s;", value_type(c, i), i,
                         tni_fold_start(c->k->ins[i].op, (tn_dtype)c->k->ins[i].dtype));
    tni_out_print(c->o, "%s", c->d->unroll_8);
    tni_out_line(c->o, "for (m_long z = tid; z < %s; z += %d) {",
                 tni_simt_word_name(c, TNI_WORD_PARTS).s, step);
    for (int i = 0; i < c->k->nins; i++) {
        if (!tni_set_has(tails, i)) continue;
        tni_text acc = tni_text_of("v%d", i), part = tni_text_of("s%d[z]", i);
        tni_simt_fold_line(c, i, "", acc.s, part.s);
    }
    tni_out_line(c->o, "}");
}

// Prints the instructions of the finish stage that are no tails.
static void put_finish_values(tni_simt_emitter *c, const tni_set *set)
{
    for (int i = 0; i < c->k->nins; i++)
        if (tni_set_has(set, i) && !tni_is_tail(&c->k->ins[i])) tni_simt_put_ins(c, i);
}

// All threads join parts of the tails, and fold what they have; `mine` chooses the one thread that
// stores.
void tni_simt_finish_once(tni_simt_emitter *c, int threads, const char *mine)
{
    tni_set set = tni_needs_finish(c->k, false), tails = { 0 };
    c->stage = TNI_AT_FINISH;
    for (int i = 0; i < c->k->nins; i++)
        if (tni_is_tail(&c->k->ins[i]) && !c->k->ins[i].per) tni_set_add(&tails, i);
    put_parts_join(c, &tails, threads);
    tni_simt_fold_team(c, &tails, 'v', threads);
    tni_out_line(c->o, "m_int mine = %s;", mine);
    put_finish_values(c, &set);
}

// Each group counts itself in the state once its partial results are stored; the one that counts to
// the number of groups is the last, puts the count back to zero for the next launch, and reads all
// partial results. One thread orders memory for its group (m_arrive), with a barrier ahead of it
// and one behind: a fence of every thread would wait for all that each has stored. A group that is
// alone counts nothing. This saves the launch of a finish kernel.
void tni_simt_finish_last(tni_simt_emitter *c)
{
    tni_out_line(c->o, "__shared__ m_int last;");
    tni_out_line(c->o, "__syncthreads();");
    tni_out_line(c->o, "if (gridDim.x * gridDim.y > 1) {");
    tni_out_line(c->o, "if (tid == 0) last = m_arrive(fail + 2) + 1u == gridDim.x * gridDim.y;");
    tni_out_line(c->o, "__syncthreads();");
    tni_out_line(c->o, "if (!last) return;");
    tni_out_line(c->o, "if (tid == 0) fail[2] = 0;");
    tni_out_line(c->o, "}");
    tni_out_line(c->o, "{");
    tni_simt_declare_parts(c);
    tni_simt_finish_once(c, c->m->team * c->m->rows, "tid == 0");
    if (tni_simt_finishes_columns(c)) {
        tni_out_line(c->o, "for (m_long first = 0; first < %s; first += %d) {",
                     tni_simt_word_name(c, TNI_WORD_COLS).s, c->m->finish_cols);
        tni_simt_finish_columns(c, c->m->team * c->m->rows, "first");
        tni_out_line(c->o, "}");
    }
    tni_out_line(c->o, "}");
}

// Whether any column tail is read at all.
bool tni_simt_finishes_columns(const tni_simt_emitter *c)
{
    tni_set set = tni_needs_finish(c->k, true), none = { 0 };
    return memcmp(&set, &none, sizeof set) != 0;
}

// Columns that a thread joins at once: four, whose parts are one load, if the partial results of a
// part are aligned as the vectors of a row are, or one.
static int join_width(const tni_simt_emitter *c)
{
    const tni_simt_class *m = c->m;
    if (!tni_gpu_has(m, TNI_GPU_VECTORS) || m->form != TNI_SIMT_ROW || m->window || m->vector < 4)
        return 1;
    for (int i = 0; i < c->k->nins; i++) {
        tn_dtype dt = tni_compute_dtype((tn_dtype)c->k->ins[i].dtype);
        if (tni_is_tail(&c->k->ins[i]) && c->k->ins[i].per && dt != TN_F32 && dt != TN_I32)
            return 1;
    }
    return 4;
}

// How the threads of a group share columns: `each` neighbours have the columns of one part, `width`
// each, and `ys` such rows of threads have the parts. Threads of a warp fold by shuffles first;
// `sums` is what is left for each column.
typedef struct {
    int  width, each, ys, sums;
    bool shuffles;
} sharing;

static sharing sharing_of(const tni_simt_emitter *c, int threads)
{
    sharing s  = { .width = join_width(c) };
    s.each     = c->m->finish_cols / s.width;
    s.ys       = threads / s.each;
    s.shuffles = tni_gpu_has(c->m, TNI_GPU_SHUFFLES) && s.each < TNI_WARP &&
                 threads % TNI_WARP == 0;
    s.sums = s.shuffles ? threads / TNI_WARP : s.ys;
    return s;
}

// Words of `red` for the sums of tail i.
static int sum_words(const tni_simt_emitter *c, int i, const sharing *s)
{
    int size = (int)tni_dtype_size(tni_compute_dtype((tn_dtype)c->k->ins[i].dtype));
    return (s->sums * c->m->finish_cols * size + 7) / 8;
}

int tni_simt_join_words(const tni_simt_emitter *c, int threads)
{
    sharing s    = sharing_of(c, threads);
    int     most = 0, tails = 0;
    for (int i = 0; i < c->k->nins; i++) {
        if (!tni_is_tail(&c->k->ins[i]) || !c->k->ins[i].per) continue;
        if (sum_words(c, i, &s) > most) most = sum_words(c, i, &s);
        tails += tails < TNI_TAILS_TOGETHER;
    }
    return tails * most;
}

// Prints the loop over the parts of a thread: some at a time, whose loads are in flight together.
static void put_part_loop(tni_simt_emitter *c, const tni_set *tails, const sharing *s)
{
    int      w = s->width, n = w == 4 ? 4 : 8;
    tni_text all   = tni_simt_word_name(c, TNI_WORD_COLS),
             parts = tni_simt_word_name(c, TNI_WORD_PARTS);
    tni_out_line(c->o, "for (%s z = tid / %d; z < %s; z += %d) {", c->index, s->each, parts.s,
                 n * s->ys);
    for (int i = 0; i < c->k->nins; i++)
        if (tni_set_has(tails, i))
            tni_out_line(c->o, "%s p%d[%d];", w == 4 ? "uint4" : value_type(c, i), i, n);
    for (int fold = 0; fold < 2; fold++) {
        tni_out_print(c->o, "%s", c->d->unroll);
        tni_out_line(c->o, "for (m_int q = 0; q < %d; q++) {", n);
        tni_out_line(c->o, "if (z + q * %d < %s) {", s->ys, parts.s);
        for (int i = 0; i < c->k->nins; i++) {
            if (!tni_set_has(tails, i)) continue;
            if (!fold)
                tni_out_line(c->o, "p%d[q] = *(%s%s *)(s%d + (m_long)(z + q * %d) * %s + at);", i,
                             c->d->global, w == 4 ? "const uint4" : value_type(c, i), i, s->ys,
                             all.s);
            bool bits = w == 4 && tni_compute_suffix((tn_dtype)c->k->ins[i].dtype) == 'f';
            for (int j = 0; j < w && fold; j++) {
                tni_text acc = tni_text_of("g%d[%d]", i, j), other = tni_text_of("p%d[q]", i);
                if (w == 4)
                    other = tni_text_of(bits ? "m_float_bits(p%d[q].%c)" : "(m_int)p%d[q].%c", i,
                                        "xyzw"[j]);
                tni_simt_fold_line(c, i, "", acc.s, other.s);
            }
        }
        tni_out_line(c->o, "}");
        tni_out_line(c->o, "}");
    }
    tni_out_line(c->o, "}");
}

// Folds what threads that share columns have joined: those of a warp by shuffles; then the sums are
// left in `red`, and a thread adds up those of one column, in order.
static void share_columns(tni_simt_emitter *c, const tni_set *tails, const sharing *s)
{
    int cols = c->m->finish_cols, w = s->width, base = 0;
    int group   = s->shuffles ? TNI_WARP : s->each;
    c->uses_red = true;
    for (int i = 0; i < c->k->nins; i++)
        if (tni_set_has(tails, i) && s->shuffles) tni_simt_fold_vector(c, i, 'g', s->each, w);
    tni_out_line(c->o, "%s;", c->d->barrier);
    for (int i = 0; i < c->k->nins; i++) {
        if (!tni_set_has(tails, i)) continue;
        if (s->shuffles) tni_out_line(c->o, "if (tid %% %d < %d)", TNI_WARP, s->each);
        tni_out_print(c->o, "%s", c->d->unroll);
        tni_out_line(
            c->o,
            "for (m_int j = 0; j < %d; j++) ((%s%s *)(red + %d))[tid / %d * %d + tid %% %d "
            "* %d + j] = g%d[j];",
            w, c->local, value_type(c, i), base, group, cols, s->each, w, i);
        base += sum_words(c, i, s);
    }
    tni_out_line(c->o, "%s;", c->d->barrier);
    base = 0;
    for (int i = 0; i < c->k->nins; i++) {
        tni_text acc = tni_text_of("v%d", i), other;
        if (!tni_set_has(tails, i)) continue;
        other = tni_text_of("((%s%s *)(red + %d))[", c->local, value_type(c, i), base);
        tni_out_line(c->o, "%s %s = %stid %% %d];", value_type(c, i), acc.s, other.s, cols);
        tni_text_add(&other, "y * %d + tid %% %d]", cols, cols);
        tni_out_print(c->o, "%s", c->d->unroll);
        tni_out_line(c->o, "for (m_int y = 1; y < %d; y++)", s->sums);
        tni_simt_fold_line(c, i, "    ", acc.s, other.s);
        base += sum_words(c, i, s);
    }
}

// Joins the parts of some column tails, of finish_cols columns from `first` on. For two tails of 32
// columns in a group of 256, of which each thread reads four columns of every 32nd part:
//
//     const m_long part = (m_long)first + tid % 8 * 4;
//     const m_long at = part < (m_int)a.w[2] ? part : 0;
//     float g6[4];
//     float g8[4];
//     for (m_int z = tid / 8; z < (m_int)a.w[4]; z += 128) {
//         uint4 p6[4];
//         uint4 p8[4];
//         for (m_int q = 0; q < 4; q++) {
//             if (z + q * 32 < (m_int)a.w[4]) {
//                 p6[q] = *(const uint4 *)(s6 + (m_long)(z + q * 32) * (m_int)a.w[2] + at);
//                 ...
//             }
//         }
//         for (m_int q = 0; q < 4; q++) {
//             if (z + q * 32 < (m_int)a.w[4]) {
//                 g6[0] = o_sum_f(g6[0], m_float_bits(p6[q].x));
//                 ...
//             }
//         }
//     }
//     ... g6[j] and g8[j] over the threads of a warp that have the same columns, by shuffles ...
//     __syncthreads();
//     if (tid % 32 < 8)
//         for (m_int j = 0; j < 4; j++) ((float *)(red + 0))[tid / 32 * 32 + tid % 8 * 4 + j] = g6[j];
//     ...
//     __syncthreads();
//     float v6 = ((float *)(red + 0))[tid % 32];
//     for (m_int y = 1; y < 8; y++) v6 = o_sum_f(v6, ((float *)(red + 0))[y * 32 + tid % 32]);
static void join_columns(tni_simt_emitter *c, const tni_set *tails, int threads)
{
    sharing s = sharing_of(c, threads);
    for (int i = 0; i < c->k->nins; i++) {
        if (!tni_set_has(tails, i)) continue;
        tni_out_line(c->o, "%s g%d[%d];", value_type(c, i), i, s.width);
        tni_out_print(c->o, "%s", c->d->unroll);
        tni_out_line(c->o, "for (m_int j = 0; j < %d; j++) g%d[j] = %s;", s.width, i,
                     tni_fold_start(c->k->ins[i].op, (tn_dtype)c->k->ins[i].dtype));
    }
    put_part_loop(c, tails, &s);
    share_columns(c, tails, &s);
}

// Whether instruction i of the finish stage is a load that waits for no other value.
static bool loads_at_once(const tni_simt_emitter *c, int i)
{
    const tni_ins *x = &c->k->ins[i];
    return x->code == TNI_I_LOAD && x->a == TNI_NO_VALUE && x->b == TNI_NO_VALUE;
}

// Threads tid % cols of a group have a column each; the parts of all columns are joined by all of
// them. Threads past the last column read column 0 and store nothing: they have to reach the
// barriers. What else the columns read is loaded beside the parts.
void tni_simt_finish_columns(tni_simt_emitter *c, int threads, const char *first)
{
    tni_set  set  = tni_needs_finish(c->k, true);
    int      cols = c->m->finish_cols, width = join_width(c);
    tni_text all = tni_simt_word_name(c, TNI_WORD_COLS);
    tni_out_line(c->o, "const %s column = (%s)%s + tid %% %d;", c->index, c->index, first, cols);
    tni_out_line(c->o, "mine = tid < %d && column < %s;", cols, all.s);
    tni_out_line(c->o, "const %s e = column < %s ? column : 0;", c->index, all.s);
    tni_out_line(c->o, "const m_long part = (m_long)%s + tid %% %d * %d;", first, cols / width,
                 width);
    tni_out_line(c->o, "const m_long at = part < %s ? part : 0;", all.s);
    tni_simt_put_coordinates(c, c->k->np, c->k->np + c->k->nr, "e");
    for (int i = 0; i < c->k->nins; i++)
        if (tni_set_has(&set, i) && loads_at_once(c, i)) tni_simt_put_ins(c, i);
    for (int i = 0, n = 0; i < c->k->nins; i++, n = 0) {
        tni_set tails = { 0 };
        for (; i < c->k->nins; i++) {
            if (!tni_is_tail(&c->k->ins[i]) || !c->k->ins[i].per) continue;
            tni_set_add(&tails, i);
            if (++n == TNI_TAILS_TOGETHER) break;
        }
        if (n) join_columns(c, &tails, threads);
    }
    for (int i = 0; i < c->k->nins; i++)
        if (tni_set_has(&set, i) && !tni_is_tail(&c->k->ins[i]) && !loads_at_once(c, i))
            tni_simt_put_ins(c, i);
}
