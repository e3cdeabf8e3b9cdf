// The frame of a simt kernel: its arguments, the shared memory in which threads exchange results,
// how it is opened and closed. What it prints, of test/golden/row.txt:
//
//     struct kernel_args {
//         void *b[4];
//         m_long w[12];
//     };
//     extern "C" __global__ void __launch_bounds__(128, 1) kernel(const kernel_args a)
//     {
//         const float *const b0 = (const float *)a.b[0];
//         float *const b1 = (float *)a.b[1];
//         char *const scratch = (char *)a.b[2];
//         m_long *const fail = (m_long *)a.b[3];
//         m_begin();
//         __shared__ m_ulong red[64];
//         m_int par = 0;
//         const m_int tid = (m_int)threadIdx.x;
#include "kernel/simt_emitter.h"

// Prints the struct that tni_simt_pack fills. Passed by value, it is in constant memory, and costs
// no copy.
void tni_simt_put_args(tni_simt_emitter *c)
{
    const tni_kernel *k = c->k;
    tni_out_line(c->o, "struct %s_args {", c->name);
    tni_out_line(c->o, "void *b[%d];", k->nbuffer + 2);
    tni_out_line(c->o, "m_long w[%d];", c->at.count);
    tni_out_line(c->o, "};");
}

// Whether an access reads the same run of elements for every row, as the weight of a norm is read.
static bool is_shared_row(const tni_kernel *k, int access)
{
    const tni_access *x = &k->access[access];
    if (k->nr != 1 || x->buffer < 0 || k->buffer[x->buffer].written) return false;
    for (int i = 0; i < k->np; i++)
        if (x->stride[i] != TNI_STRIDE_0) return false;
    for (int i = 0; i < k->nins; i++)
        if (k->ins[i].code == TNI_I_LOAD && k->ins[i].access == access && k->ins[i].a >= 0)
            return false;
    return x->stride[k->np] == TNI_STRIDE_1;
}

// A few rows wait for memory more than for anything else: what all of them read is brought to the
// cache while the kernel ahead still runs.
static void put_prefetches(tni_simt_emitter *c, int threads)
{
    const tni_kernel *k = c->k;
    for (int i = 0; c->m->form == TNI_SIMT_ROW && i < k->naccess; i++) {
        if (!is_shared_row(k, i)) continue;
        int b = k->access[i].buffer, line = 128 / (int)tni_dtype_size((tn_dtype)k->buffer[b].dtype);
        tni_out_line(c->o, "if (gridDim.x < 5)");
        tni_out_line(c->o, "    for (m_int e = threadIdx.x * %d; e < %s; e += %d)", line,
                     tni_simt_word_name(c, TNI_WORD_COLS).s, threads * line);
        tni_out_line(c->o, "        m_prefetch(b%d + %s + e);", b,
                     tni_simt_word_name(c, c->at.offset[i]).s);
    }
}

// Opens a kernel that takes one struct (CUDA). __launch_bounds__ names the groups that should be
// resident where the shape was made for a number of them: with tails, with rows in shared memory,
// and where a group has two tiles. m_begin waits for the kernel before it in the stream, where
// launches may overlap.
static void open_with_struct(tni_simt_emitter *c, const char *suffix, int threads)
{
    const tni_kernel *k        = c->k;
    bool              many     = c->k->tails || c->m->hold == TNI_HOLD_SHARED || c->m->bulk;
    int               resident = many ? tni_simt_resident(c->m, threads) : 1;
    tni_text          cluster  = { "" };
    // A thread with two vectors needs few registers; as many threads as a multiprocessor runs hide
    // the barrier.
    if (c->m->pairs && c->m->unroll == 2) resident = 2048 / threads;
    if (c->m->cluster > 1 && !*suffix)
        cluster = tni_text_of("__cluster_dims__(%d, 1, 1) ", c->m->cluster);
    tni_out_line(c->o, "%s%s__launch_bounds__(%d, %d) %s%s(const %s_args a)", c->d->kernel,
                 cluster.s, threads, resident, c->name, suffix, c->name);
    tni_out_line(c->o, "{");
    for (int i = 0; i < k->nbuffer; i++) {
        const char *word = k->buffer[i].written ? "" : "const ";
        const char *type = tni_storage_type((tn_dtype)k->buffer[i].dtype);
        tni_out_line(c->o, "%s%s *const b%d = (%s%s *)a.b[%d];", word, type, i, word, type, i);
    }
    tni_out_line(c->o, "char *const scratch = (char *)a.b[%d];", k->nbuffer);
    tni_out_line(c->o, "m_long *const fail = (m_long *)a.b[%d];", k->nbuffer + 1);
    if (!*suffix) put_prefetches(c, threads);
    tni_out_line(c->o, "m_begin();");
    if (k->guarded) tni_out_line(c->o, "if (*(const volatile m_long *)fail[4]) return;");
}

// Opens a kernel that takes each buffer and word as an argument (OpenCL, which has no pointers in
// structs).
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

// Opens a kernel; `red` is the number of words in which threads leave results for each other. Where
// the text of its declaration is stays known, for tni_simt_close_kernel.
void tni_simt_open_kernel(tni_simt_emitter *c, const char *suffix, int threads, int red)
{
    if (tni_gpu_has(c->m, TNI_GPU_STRUCT)) open_with_struct(c, suffix, threads);
    else open_with_words(c, suffix, threads);
    c->uses_red    = false;
    c->red_text[0] = c->o->len;
    if (red) tni_out_line(c->o, "%sm_ulong red[%d];", c->d->shared, red);
    if (red && tni_gpu_has(c->m, TNI_GPU_SHUFFLES)) tni_out_line(c->o, "m_int par = 0;");
    c->red_text[1] = c->o->len;
    tni_out_line(c->o, "const m_int tid = %s;", c->d->local_id);
}

// Closes a kernel and removes the declaration of `red` if no fold used it, which only the finished
// text tells: unused it would take shared memory, and some OpenCL drivers reject it.
void tni_simt_close_kernel(tni_simt_emitter *c)
{
    tni_out_line(c->o, "}");
    if (!c->uses_red) tni_out_remove(c->o, c->red_text[0], c->red_text[1]);
}

// Words of `red` that folds over a group need. By shuffles: one for each warp and reduction, twice,
// since two folds in a row alternate between halves; by a tree: one for each thread.
int tni_simt_fold_words(const tni_simt_emitter *c, int group)
{
    return tni_gpu_has(c->m, TNI_GPU_SHUFFLES) ? 2 * TNI_WARP * c->max_folds : group;
}

// Words of `red` that the main kernel needs: for folds over threads and, if threads share the
// elements of R of a lane, one for each accumulator. Rows of at most a warp fold by shuffles
// without any.
int tni_simt_red_words(const tni_simt_emitter *c)
{
    const tni_simt_class *m     = c->m;
    int                   group = m->team * m->rows, fold = tni_simt_fold_words(c, group);
    int                   lanes = m->form == TNI_SIMT_LANE && m->team > 1 ? group * m->vector : 0;
    bool                  teams = m->form == TNI_SIMT_ROW && m->rows > 1;  // fold_rows
    if (m->form != TNI_SIMT_ROW && !c->k->tails) return lanes;
    if (m->form == TNI_SIMT_ROW && tni_gpu_has(m, TNI_GPU_SHUFFLES) && m->team <= TNI_WARP &&
        !c->k->tails)
        return 0;
    bool columns = m->finish == TNI_FINISH_LAST && tni_simt_finishes_columns(c);
    if (teams && fold < group) fold = group;
    if (columns && fold < tni_simt_join_words(c, group)) fold = tni_simt_join_words(c, group);
    if (fold < tni_simt_team_words(c)) fold = tni_simt_team_words(c);
    return fold > lanes ? fold : lanes;
}

// The most reductions that are folded over threads together: those of one loop, or all tails.
int tni_simt_count_folds(const tni_kernel *k)
{
    int most = 1, tails = 0;
    for (int q = 0; q < k->phases; q++) {
        tni_set set = tni_needs_loop(k, q, NULL);
        int     n   = 0;
        for (int i = 0; i < k->nins; i++)
            n += tni_set_has(&set, i) && tni_is_row_reduce(&k->ins[i]);
        if (most < n) most = n;
    }
    for (int i = 0; i < k->nins; i++) tails += tni_is_tail(&k->ins[i]);
    return most > tails ? most : tails;
}
