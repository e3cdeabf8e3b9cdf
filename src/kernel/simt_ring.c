// Rows in a ring, in the text of a CUDA kernel for chips with bulk copies: while a group works on
// a row in shared memory, the copy engine fills another part of it with a row to come, so that memory
// is never idle. The ring has so many parts, each with a barrier that its bytes complete. Where one
// row is too long for that, the groups of a cluster have a piece each of every row.
//
// One thread asks for copies. A part is asked for again once all threads are done with it.
#include "kernel/simt_page.h"

#include <stdio.h>
#include <string.h>

int tni_simt_clusters(const tni_page *c)
{
    return c->m->cluster > 1 ? c->m->cluster : 1;
}

tni_text tni_simt_group_name(const tni_page *c)
{
    if (c->m->cluster > 1) return tni_text_of("((m_int)blockIdx.x / %d)", c->m->cluster);
    return tni_text_of("%s", c->d->group_id);
}

static bool in_ring(const tni_page *c, int i)
{
    return c->k->ins[i].code == TNI_I_LOAD && tni_simt_stashed(c, i);
}

static int count_loads(const tni_page *c)
{
    int n = 0;
    for (int i = 0; i < c->k->nins; i++) n += in_ring(c, i);
    return n;
}

// The piece of a row that is this group's: vectors from `lo` on, n of them.
void tni_simt_put_piece(tni_page *c, const char *all)
{
    int g = tni_simt_clusters(c);
    if (g == 1) {
        tni_line(c->o, "const %s n = %s;", c->index, all);
        return;
    }
    tni_line(c->o, "const %s whole = %s, per = (whole + %d) / %d;", c->index, all, g - 1, g);
    tni_line(c->o, "const %s lo = rank * per;", c->index);
    tni_line(c->o, "const %s n = whole - lo < per ? (whole > lo ? whole - lo : 0) : per;",
             c->index);
}

// How many vectors a row has.
tni_text tni_simt_row_vectors(const tni_page *c)
{
    if (!c->m->window) return tni_simt_word_name(c, TNI_WORD_VECTORS);
    return tni_text_of("(%s + shift + %d) / %d", tni_simt_word_name(c, TNI_WORD_COLS).s,
                       c->m->vector - 1, c->m->vector);
}

// A function that asks for the pieces of a row, into part `slot`.
static void put_bring(tni_page *c)
{
    int g = tni_simt_clusters(c), at = 0;
    tni_line(c->o, "const %s piece = (%s + %d) / %d;", c->index,
             tni_simt_word_name(c, TNI_WORD_VECTORS).s, g - 1, g);
    tni_line(c->o, "auto bring = [&](const %s line, m_int slot) {", c->index);
    tni_simt_put_coordinates(c, 0, c->k->np, "line");
    tni_simt_put_bases(c);
    tni_simt_put_shift(c, false);
    tni_simt_put_piece(c, tni_simt_row_vectors(c).s);
    tni_line(c->o, "m_expect(&full[slot], (m_uint)n * %d);", 16 * count_loads(c));
    for (int i = 0; i < c->k->nins; i++) {
        if (!in_ring(c, i)) continue;
        int a = c->k->ins[i].access;
        tni_line(c->o,
                 "if (n) m_bring(stash + (slot * %d + %d) * piece, b%d + a%d%s%s, n * 16u, "
                 "&full[slot]);",
                 count_loads(c), at++, c->k->access[a].buffer, a, c->m->window ? " - shift" : "",
                 g > 1 ? tni_text_of(" + lo * %d", c->m->vector).s : "");
    }
    tni_line(c->o, "};");
}

void tni_simt_open_ring(tni_page *c)
{
    int      parts = c->m->ring;
    tni_text chunk = tni_simt_word_name(c, TNI_WORD_CHUNK);
    c->stage       = TNI_AT_LOOP;
    tni_line(c->o, "extern __shared__ uint4 stash[];");
    tni_line(c->o, "__shared__ m_ulong full[%d];", parts);
    if (tni_simt_clusters(c) > 1) {
        tni_line(c->o, "__shared__ m_ulong peer[%d];", 2 * c->folds * c->m->cluster);
        tni_line(c->o, "__shared__ m_ulong heard[2];");
        tni_line(c->o, "const m_int rank = (m_int)blockIdx.x %% %d;", c->m->cluster);
        tni_line(c->o, "m_int told = 0;");
    }
    put_bring(c);
    tni_line(c->o, "const %s first = %s * %s;", c->index, tni_simt_group_name(c).s, chunk.s);
    tni_line(c->o, "const %s past = first + %s < %s ? first + %s : %s;", c->index, chunk.s,
             tni_simt_word_name(c, TNI_WORD_LINES).s, chunk.s,
             tni_simt_word_name(c, TNI_WORD_LINES).s);
    tni_line(c->o, "if (tid == 0) {");
    tni_line(c->o, "for (m_int z = 0; z < %d; z++) m_barrier_open(&full[z]);", parts);
    if (tni_simt_clusters(c) > 1)
        tni_line(c->o, "for (m_int z = 0; z < 2; z++) m_barrier_open(&heard[z]);");
    tni_line(c->o, "m_barriers_opened();");
    tni_line(c->o, "for (m_int z = 0; z < %d; z++)", parts);
    tni_line(c->o, "    if (first + z < past) bring(first + z, z);");
    tni_line(c->o, "}");
    tni_line(c->o, tni_simt_clusters(c) > 1 ? "m_cluster_barrier();" : "__syncthreads();");
    tni_line(c->o, "m_int slot = 0, turn = 0;");
    for (int i = 0; i < c->k->nins; i++)
        if (in_ring(c, i)) tni_join(&c->fetched, i);
}

void tni_simt_await_row(tni_page *c)
{
    int at   = 0;
    c->stage = TNI_AT_LOOP;
    for (int i = 0; i < c->k->nins; i++)
        if (in_ring(c, i))
            tni_line(c->o, "uint4 *const h%d = stash + (slot * %d + %d) * piece;", i,
                     count_loads(c), at++);
    tni_line(c->o, "m_await(&full[slot], turn);");
}

void tni_simt_release_row(tni_page *c)
{
    tni_line(c->o, "__syncthreads();");
    tni_line(c->o, "if (tid == 0 && row + %d < past) bring(row + %d, slot);", c->m->ring,
             c->m->ring);
    tni_line(c->o, "if (++slot == %d) slot = 0, turn ^= 1;", c->m->ring);
}

// A value as the 64 bits that are told to a peer, and back.
static tni_text told(const tni_page *c, int i)
{
    char kind = tni_compute_suffix((tn_dtype)c->k->ins[i].dtype);
    return tni_text_of(kind == 'f' ? "m_bits_f(v%d)" : kind == 'd' ? "m_bits_d(v%d)" : "v%d", i);
}

static tni_text heard(const tni_page *c, int i, int slot)
{
    char        kind = tni_compute_suffix((tn_dtype)c->k->ins[i].dtype);
    const char *bits = kind == 'f' ? "m_float_bits((m_uint)" : kind == 'd' ? "m_double_bits(" : "(";
    return tni_text_of("(%s)%speer[((told & 1) * %d + %d) * %d + z])", type_of(c, i), bits,
                       c->folds, slot, c->m->cluster);
}

// Each group tells its result to all of its cluster, and folds what it was told, in order. `peer` has
// two halves, and a barrier for each: nobody tells anew into a half before all have read it, since
// they had to hear of the half between.
void tni_simt_fold_cluster(tni_page *c, const tni_set *set)
{
    int slot = 0, g = c->m->cluster, n = 0;
    for (int i = 0; i < c->k->nins; i++) n += tni_has(set, i);
    tni_line(c->o, "if (tid == 0) m_expect(&heard[told & 1], %d);", 8 * g * n);
    for (int i = 0; i < c->k->nins; i++)
        if (tni_has(set, i))
            tni_line(c->o,
                     "if (tid < %d) m_tell(&peer[((told & 1) * %d + %d) * %d + rank], tid, "
                     "(m_ulong)%s, &heard[told & 1]);",
                     g, c->folds, slot++, g, told(c, i).s);
    tni_line(c->o, "m_await(&heard[told & 1], told >> 1 & 1);");
    slot = 0;
    for (int i = 0; i < c->k->nins; i++) {
        const tni_ins *x = &c->k->ins[i];
        if (!tni_has(set, i)) continue;
        tni_text acc = tni_text_of("v%d", i), other = heard(c, i, slot++);
        tni_line(c->o, "%s = %s;", acc.s, tni_fold_start(x->op, (tn_dtype)x->dtype));
        tni_put(c->o, "%s", c->d->unroll);
        tni_line(c->o, "for (m_int z = 0; z < %d; z++)", g);
        tni_simt_fold_line(c, i, "    ", acc.s, other.s);
    }
    tni_line(c->o, "told++;");
}
