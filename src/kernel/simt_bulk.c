// Rows that bulk copies bring, in the text of a CUDA kernel for chips that have them (Hopper and
// later): one thread asks the copy engine for a row, a barrier in shared memory counts its bytes,
// and all threads compute on it from there. Once all are done with it, the next row is asked for;
// meanwhile other groups of the multiprocessor compute on theirs. If a row is too long, the groups
// of a cluster have a piece each, and send each other what they folded. What it prints, of
// test/golden/long_row.txt, a softmax by clusters of two:
//
//     auto bring = [&](const m_int line) {
//         ...
//         m_expect(&full, (m_uint)n * 16);
//         if (n) m_bring(stash + 0 * piece, b0 + a0 + lo * 8, n * 16u, &full);
//     };
//     m_int row = first, next = first + groups;
//     if (tid == 0 && rank == 0) ticket = m_ticket((m_uint *)(fail + 2) + 1, ...);
//     if (tid == 0) {
//         m_barrier_open(&full);
//         ...
//         m_barriers_opened();
//         if (first < past) bring(first);
//     }
//     m_cluster_barrier();
//     m_int turn = 0;
//     while (row < past) {
//         if (tid == 0) m_expect(&called[turn], 8);
//         if (tid < 32 && rank == 0) {
//             const m_uint third = __shfl_sync(0xffffffffu, ticket, 0);
//             if (tid < 2) m_tell(&coming[turn], tid, third, &called[turn]);
//             if (tid == 0) ticket = m_ticket((m_uint *)(fail + 2) + 1, ...);
//         }
//         ...
//         m_await(&full, turn);
//         ... loop 0 over the row in h0 ...
//         if (tid == 0) m_expect(&heard[told & 1], 16);
//         if (tid < 2) m_tell(&peer[((told & 1) * 1 + 0) * 2 + rank], tid, (m_ulong)m_bits_f(v2), &heard[told & 1]);
//         m_await(&heard[told & 1], told >> 1 & 1);
//         v2 = m_float_bits(0xff800000u);
//         for (m_int z = 0; z < 2; z++)
//             v2 = o_max_f(v2, (float)m_float_bits((m_uint)peer[((told & 1) * 1 + 0) * 2 + z]));
//         told++;
//         ...
//         m_await(&called[turn], half);
//         __syncthreads();
//         if (tid == 0 && next < past) bring(next);
//         row = next, next = 2 * groups + (m_int)coming[turn];
#include "kernel/simt_emitter.h"

#include <stdio.h>
#include <string.h>

tni_text tni_simt_group_name(const tni_simt_emitter *c)
{
    if (c->m->cluster > 1) return tni_text_of("((m_int)blockIdx.x / %d)", c->m->cluster);
    if (c->m->split_columns == TNI_SLICES_FIRST) return tni_text_of("0");
    return tni_text_of("%s", c->d->group_id);
}

bool tni_simt_ahead(const tni_simt_emitter *c, int i)
{
    const tni_ins *x    = &c->k->ins[i];
    tni_set        need = tni_needs_main(c->k);
    return tni_simt_is_ahead(c->m) && x->code == TNI_I_LOAD && x->per == TNI_PER_ELEM &&
           tni_set_has(&need, i);
}

// The loads that several loops read are copied in bulk; others are fetched as in any row.
static bool is_bulk_load(const tni_simt_emitter *c, int i)
{
    return c->k->ins[i].code == TNI_I_LOAD && (tni_simt_stashed(c, i) || tni_simt_ahead(c, i));
}

static int count_bulk_loads(const tni_simt_emitter *c)
{
    int n = 0;
    for (int i = 0; i < c->k->nins; i++) n += is_bulk_load(c, i);
    return n;
}

// In a window the number depends on the row's shift: the first vector begins before the row.
tni_text tni_simt_row_vectors(const tni_simt_emitter *c)
{
    if (!c->m->window) return tni_simt_word_name(c, TNI_WORD_VECTORS);
    return tni_text_of("(%s + shift + %d) / %d", tni_simt_word_name(c, TNI_WORD_COLS).s,
                       c->m->vector - 1, c->m->vector);
}

// The vectors of a row are divided evenly over the groups of a cluster; the last ones may get
// fewer, or none.
void tni_simt_put_piece(tni_simt_emitter *c)
{
    int g = c->m->cluster, all = c->m->team * c->m->unroll;
    if (c->m->complete) {
        if (g > 1) tni_out_line(c->o, "const %s lo = rank * %d;", c->index, all);
        tni_out_line(c->o, "const %s n = %d;", c->index, all);
        return;
    }
    if (g < 2) {
        tni_out_line(c->o, "const %s n = %s;", c->index, tni_simt_row_vectors(c).s);
        return;
    }
    tni_out_line(c->o, "const %s whole = %s, per = (whole + %d) / %d;", c->index,
                 tni_simt_row_vectors(c).s, g - 1, g);
    tni_out_line(c->o, "const %s lo = rank * per;", c->index);
    tni_out_line(c->o, "const %s n = whole - lo < per ? (whole > lo ? whole - lo : 0) : per;",
                 c->index);
}

// Prints the function that asks for a row: the aligned window around it, whose ends are not the
// row's own and are not used. The barrier learns how many bytes to expect before any copy can
// arrive. Of a row that registers hold, a warp asks for its own run of vectors.
static void put_bring_function(tni_simt_emitter *c)
{
    int      at = 0, run = TNI_WARP * c->m->unroll;
    bool     ahead = c->m->by_warps;
    tni_text lo = { "" }, from = { "" };
    if (c->m->cluster > 1) lo = tni_text_of(" + lo * %d", c->m->vector);
    if (ahead) tni_text_add(&lo, " + skip * %d", c->m->vector);
    if (ahead) from = tni_text_of(" + skip");
    tni_out_line(c->o, "auto bring = [&](const %s line) {", c->index);
    tni_simt_put_coordinates(c, 0, c->k->np, "line");
    tni_simt_put_bases(c);
    tni_simt_put_shift(c, false);
    tni_simt_put_piece(c);
    if (ahead) {
        tni_out_line(c->o, "const %s skip = tid / %d * %d;", c->index, TNI_WARP, run);
        tni_out_line(c->o, "const %s some = n - skip < %d ? (n > skip ? n - skip : 0) : %d;",
                     c->index, run, run);
    }
    const char *n = ahead ? "some" : "n", *full = ahead ? "full[tid / 32]" : "full";
    tni_out_line(c->o, "m_expect(&%s, (m_uint)%s * %d);", full, n, 16 * count_bulk_loads(c));
    for (int i = 0; i < c->k->nins; i++) {
        int a = c->k->ins[i].access;
        if (!is_bulk_load(c, i)) continue;
        tni_out_line(c->o, "if (%s) m_bring(stash + %d * piece%s, b%d + a%d%s%s, %s * 16u, &%s);",
                     n, at++, from.s, c->k->access[a].buffer, a, c->m->window ? " - shift" : "",
                     lo.s, n, full);
    }
    tni_out_line(c->o, "};");
}

// Declares the shared memory: the stash of rows, the barrier `full` that their bytes arrive at, and
// for a cluster `peer`, into which the others send their results, with a barrier for each of its
// halves. The loads count as fetched from here on.
static void declare_shared(tni_simt_emitter *c)
{
    int g = c->m->cluster > 1 ? c->m->cluster : 1;
    tni_out_line(c->o, "extern __shared__ uint4 stash[];");
    if (c->m->by_warps) tni_out_line(c->o, "__shared__ m_ulong full[%d];", c->m->team / TNI_WARP);
    else tni_out_line(c->o, "__shared__ m_ulong full;");
    tni_out_line(c->o, "const %s piece = (%s + %d) / %d;", c->index,
                 tni_simt_word_name(c, TNI_WORD_VECTORS).s, g - 1, g);
    if (g > 1) {
        tni_out_line(c->o, "__shared__ m_ulong peer[%d], heard[2];", 2 * c->max_folds * g);
        tni_out_line(c->o, "const m_int rank = (m_int)blockIdx.x %% %d;", g);
        tni_out_line(c->o, "m_int told = 0;");
    }
    for (int i = 0, at = 0; i < c->k->nins; i++) {
        if (!is_bulk_load(c, i)) continue;
        tni_out_line(c->o, "uint4 *const h%d = stash + %d * piece;", i, at++);
        if (tni_simt_stashed(c, i)) tni_set_add(&c->fetched, i);
    }
}

// Rows of groups without tickets: `chunk` of them, one after the other.
static void put_own_rows(tni_simt_emitter *c)
{
    tni_text chunk = tni_simt_word_name(c, TNI_WORD_CHUNK),
             lines = tni_simt_word_name(c, TNI_WORD_LINES);
    tni_out_line(c->o, "const %s first = %s * %s;", c->index, tni_simt_group_name(c).s, chunk.s);
    tni_out_line(c->o, "const %s past = first + %s < %s ? first + %s : %s;", c->index, chunk.s,
                 lines.s, chunk.s, lines.s);
}

// The count of tickets is the second half of the word that has the count of groups. A group takes
// one at first and one for each row, so that the last of all is known by its number.
static tni_text ticket_text(const tni_simt_emitter *c)
{
    return tni_text_of("m_ticket((m_uint *)(fail + 2) + 1, (m_uint)(groups + %s))",
                       tni_simt_word_name(c, TNI_WORD_LINES).s);
}

// Rows by tickets: a group's first two are those of its number, the third that of the ticket it
// takes now. A ticket is asked for a row before it is needed, since it takes as long as a read of
// memory.
static void put_first_tickets(tni_simt_emitter *c)
{
    bool cluster = c->m->cluster > 1;
    tni_out_line(c->o, "__shared__ m_ulong coming[2]%s;", cluster ? ", called[2]" : "");
    tni_out_line(c->o, "const %s past = %s;", c->index, tni_simt_word_name(c, TNI_WORD_LINES).s);
    tni_out_line(c->o, "const %s first = %s;", c->index, tni_simt_group_name(c).s);
    tni_out_line(c->o, "const %s groups = gridDim.x / %d;", c->index, cluster ? c->m->cluster : 1);
    tni_out_line(c->o, "%s row = first, next = first + groups;", c->index);
    tni_out_line(c->o, "m_uint ticket = 0;");
    tni_out_line(c->o, "if (tid == 0%s) ticket = %s;", cluster ? " && rank == 0" : "",
                 ticket_text(c).s);
    if (cluster) tni_out_line(c->o, "m_int half = 0;");
}

// Thread 0 initializes the barriers, makes that visible to the copy engine, and asks for the first
// row. No group of a cluster may send to another before that one's barriers exist, so the cluster
// waits.
void tni_simt_open_bulk(tni_simt_emitter *c)
{
    c->stage = TNI_AT_LOOP;
    declare_shared(c);
    put_bring_function(c);
    if (c->m->tickets) put_first_tickets(c);
    else put_own_rows(c);
    bool ahead = c->m->by_warps;
    if (ahead) tni_out_line(c->o, "if (tid %% 32 == 0) m_barrier_open(&full[tid / 32]);");
    tni_out_line(c->o, "if (tid == 0) {");
    if (!ahead) tni_out_line(c->o, "m_barrier_open(&full);");
    if (c->m->cluster > 1)
        tni_out_line(c->o, "m_barrier_open(&heard[0]), m_barrier_open(&heard[1]);");
    if (c->m->cluster > 1 && c->m->tickets)
        tni_out_line(c->o, "m_barrier_open(&called[0]), m_barrier_open(&called[1]);");
    if (ahead) tni_out_line(c->o, "}");
    if (ahead) tni_out_line(c->o, "if (tid %% 32 == 0) {");
    tni_out_line(c->o, "m_barriers_opened();");
    tni_out_line(c->o, "if (first < past) bring(first);");
    tni_out_line(c->o, "}");
    tni_out_line(c->o, c->m->cluster > 1 ? "m_cluster_barrier();" : "__syncthreads();");
    tni_out_line(c->o, "m_int turn = 0;");
}

// With tickets a row begins by telling all threads, of a cluster those of all its groups, which row
// comes after the next. They read it at the row's end, behind folds and so behind a barrier.
// `coming` has two halves: one is written again after the folds of another row, by which time all
// have read it.
void tni_simt_open_bulk_row(tni_simt_emitter *c)
{
    if (!c->m->tickets) {
        tni_out_line(c->o, "for (%s row = first; row < past; row++) {", c->index);
        return;
    }
    tni_out_line(c->o, "while (row < past) {");
    if (c->m->cluster > 1) {
        tni_out_line(c->o, "if (tid == 0) m_expect(&called[turn], 8);");
        tni_out_line(c->o, "if (tid < 32 && rank == 0) {");
        tni_out_line(c->o, "const m_uint third = __shfl_sync(0xffffffffu, ticket, 0);");
        tni_out_line(c->o, "if (tid < %d) m_tell(&coming[turn], tid, third, &called[turn]);",
                     c->m->cluster);
    } else {
        tni_out_line(c->o, "if (tid == 0) {");
        tni_out_line(c->o, "coming[turn] = ticket;");
    }
    tni_out_line(c->o, "if (tid == 0) ticket = %s;", ticket_text(c).s);
    tni_out_line(c->o, "}");
}

// Prints how the next row is asked for once all threads are done with the shared memory of this
// one: those of the group, or of the warp.
static void put_request(tni_simt_emitter *c, bool barrier)
{
    bool        warps = c->m->by_warps;
    const char *next  = c->m->tickets ? "next" : "row + 1";
    if (warps) tni_out_line(c->o, "__syncwarp();");
    else if (!barrier) tni_out_line(c->o, "__syncthreads();");
    tni_out_line(c->o, "if (tid%s == 0 && %s < past) bring(%s);", warps ? " % 32" : "", next, next);
}

// `turn` is the parity that the barrier's phase has next; `half` that of `called`, of which each
// has every second row.
void tni_simt_release_row(tni_simt_emitter *c)
{
    if (c->m->tickets && c->m->cluster > 1) tni_out_line(c->o, "m_await(&called[turn], half);");
    if (!c->row_released) put_request(c, false);
    if (c->m->tickets) {
        tni_out_line(c->o, "row = next, next = 2 * groups + (%s)coming[turn];", c->index);
        if (c->m->cluster > 1) tni_out_line(c->o, "half ^= turn;");
    }
    tni_out_line(c->o, "turn ^= 1;");
}

// Nothing is asked for twice: of several loops the one that fetches the last of the loads does.
void tni_simt_ask_ahead(tni_simt_emitter *c, bool barrier)
{
    if (c->row_released) return;
    for (int i = 0; i < c->k->nins; i++)
        if (is_bulk_load(c, i) && !tni_set_has(&c->fetched, i)) return;
    put_request(c, barrier);
    c->row_released = true;
}

int tni_simt_apart(const tni_simt_emitter *c)
{
    return c->m->by_warps ? TNI_WARP : c->m->team;
}

// ---- clusters ----------------------------------------------------------------------------------

// A value as the 64 bits that are sent, and a received word as a value.
static tni_text sent_bits(const tni_simt_emitter *c, int i)
{
    char kind = tni_compute_suffix((tn_dtype)c->k->ins[i].dtype);
    return tni_text_of(kind == 'f' ? "m_bits_f(v%d)" : kind == 'd' ? "m_bits_d(v%d)" : "v%d", i);
}

static tni_text received_bits(const tni_simt_emitter *c, int i, int slot)
{
    char        kind = tni_compute_suffix((tn_dtype)c->k->ins[i].dtype);
    const char *bits = kind == 'f' ? "m_float_bits((m_uint)" : kind == 'd' ? "m_double_bits(" : "(";
    return tni_text_of("(%s)%speer[((told & 1) * %d + %d) * %d + z])", value_type(c, i), bits,
                       c->max_folds, slot, c->m->cluster);
}

// Each group sends its result to all groups of its cluster (thread i to group i), and folds what it
// received, in order of rank, so that all have the same bits. `peer` has two halves, each with a
// barrier: a group sends into a half again only after it has received everything of the other half,
// by which time all have read this one.
void tni_simt_fold_cluster(tni_simt_emitter *c, const tni_set *set)
{
    int slot = 0, g = c->m->cluster, n = 0;
    for (int i = 0; i < c->k->nins; i++) n += tni_set_has(set, i);
    tni_out_line(c->o, "if (tid == 0) m_expect(&heard[told & 1], %d);", 8 * g * n);
    for (int i = 0; i < c->k->nins; i++)
        if (tni_set_has(set, i))
            tni_out_line(c->o,
                         "if (tid < %d) m_tell(&peer[((told & 1) * %d + %d) * %d + rank], tid, "
                         "(m_ulong)%s, &heard[told & 1]);",
                         g, c->max_folds, slot++, g, sent_bits(c, i).s);
    tni_out_line(c->o, "m_await(&heard[told & 1], told >> 1 & 1);");
    slot = 0;
    for (int i = 0; i < c->k->nins; i++) {
        const tni_ins *x = &c->k->ins[i];
        if (!tni_set_has(set, i)) continue;
        tni_text acc = tni_text_of("v%d", i), other = received_bits(c, i, slot++);
        tni_out_line(c->o, "%s = %s;", acc.s, tni_fold_start(x->op, (tn_dtype)x->dtype));
        tni_out_print(c->o, "%s", c->d->unroll);
        tni_out_line(c->o, "for (m_int z = 0; z < %d; z++)", g);
        tni_simt_fold_line(c, i, "    ", acc.s, other.s);
    }
    tni_out_line(c->o, "told++;");
}
