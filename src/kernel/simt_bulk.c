// Rows that bulk copies bring, in the text of a CUDA kernel for chips that have them: one thread asks
// the copy engine for a row, whose bytes a barrier in shared memory counts, and all work on it from
// there. Once all are done with it the next is asked for; meanwhile other groups of the multiprocessor
// work on theirs. Where a row is too long, the groups of a cluster have a piece each, and tell each
// other what they folded.
#include "kernel/simt_emitter.h"

#include <stdio.h>
#include <string.h>

tni_text tni_simt_group_name(const tni_simt_emitter *c)
{
    if (c->m->cluster > 1) return tni_text_of("((m_int)blockIdx.x / %d)", c->m->cluster);
    return tni_text_of("%s", c->d->group_id);
}

static bool is_brought(const tni_simt_emitter *c, int i)
{
    return c->k->ins[i].code == TNI_I_LOAD && tni_simt_stashed(c, i);
}

static int count_brought(const tni_simt_emitter *c)
{
    int n = 0;
    for (int i = 0; i < c->k->nins; i++) n += is_brought(c, i);
    return n;
}

tni_text tni_simt_row_vectors(const tni_simt_emitter *c)
{
    if (!c->m->window) return tni_simt_word_name(c, TNI_WORD_VECTORS);
    return tni_text_of("(%s + shift + %d) / %d", tni_simt_word_name(c, TNI_WORD_COLS).s,
                       c->m->vector - 1, c->m->vector);
}

void tni_simt_put_piece(tni_simt_emitter *c)
{
    int g = c->m->cluster;
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

// A function that asks for a row: the aligned window around it, of which the ends are not its own.
static void put_bring(tni_simt_emitter *c)
{
    int      at = 0;
    tni_text lo = { "" };
    if (c->m->cluster > 1) lo = tni_text_of(" + lo * %d", c->m->vector);
    tni_out_line(c->o, "auto bring = [&](const %s line) {", c->index);
    tni_simt_put_coordinates(c, 0, c->k->np, "line");
    tni_simt_put_bases(c);
    tni_simt_put_shift(c, false);
    tni_simt_put_piece(c);
    tni_out_line(c->o, "m_expect(&full, (m_uint)n * %d);", 16 * count_brought(c));
    for (int i = 0; i < c->k->nins; i++) {
        int a = c->k->ins[i].access;
        if (!is_brought(c, i)) continue;
        tni_out_line(c->o, "if (n) m_bring(stash + %d * piece, b%d + a%d%s%s, n * 16u, &full);",
                     at++, c->k->access[a].buffer, a, c->m->window ? " - shift" : "", lo.s);
    }
    tni_out_line(c->o, "};");
}

static void declare_shared(tni_simt_emitter *c)
{
    int g = c->m->cluster > 1 ? c->m->cluster : 1;
    tni_out_line(c->o, "extern __shared__ uint4 stash[];");
    tni_out_line(c->o, "__shared__ m_ulong full;");
    tni_out_line(c->o, "const %s piece = (%s + %d) / %d;", c->index,
                 tni_simt_word_name(c, TNI_WORD_VECTORS).s, g - 1, g);
    if (g > 1) {
        tni_out_line(c->o, "__shared__ m_ulong peer[%d], heard[2];", 2 * c->folds * g);
        tni_out_line(c->o, "const m_int rank = (m_int)blockIdx.x %% %d;", g);
        tni_out_line(c->o, "m_int told = 0;");
    }
    for (int i = 0, at = 0; i < c->k->nins; i++) {
        if (!is_brought(c, i)) continue;
        tni_out_line(c->o, "uint4 *const h%d = stash + %d * piece;", i, at++);
        tni_set_add(&c->fetched, i);
    }
}

void tni_simt_open_bulk(tni_simt_emitter *c)
{
    tni_text chunk = tni_simt_word_name(c, TNI_WORD_CHUNK),
             lines = tni_simt_word_name(c, TNI_WORD_LINES);
    c->stage       = TNI_AT_LOOP;
    declare_shared(c);
    put_bring(c);
    tni_out_line(c->o, "const %s first = %s * %s;", c->index, tni_simt_group_name(c).s, chunk.s);
    tni_out_line(c->o, "const %s past = first + %s < %s ? first + %s : %s;", c->index, chunk.s,
                 lines.s, chunk.s, lines.s);
    tni_out_line(c->o, "if (tid == 0) {");
    tni_out_line(c->o, "m_barrier_open(&full);");
    if (c->m->cluster > 1)
        tni_out_line(c->o, "m_barrier_open(&heard[0]), m_barrier_open(&heard[1]);");
    tni_out_line(c->o, "m_barriers_opened();");
    tni_out_line(c->o, "if (first < past) bring(first);");
    tni_out_line(c->o, "}");
    tni_out_line(c->o, c->m->cluster > 1 ? "m_cluster_barrier();" : "__syncthreads();");
    tni_out_line(c->o, "m_int turn = 0;");
}

void tni_simt_release_row(tni_simt_emitter *c)
{
    tni_out_line(c->o, "__syncthreads();");
    tni_out_line(c->o, "if (tid == 0 && row + 1 < past) bring(row + 1);");
    tni_out_line(c->o, "turn ^= 1;");
}

// ---- clusters ----------------------------------------------------------------------------------

// A value as the 64 bits that are told, and back.
static tni_text told(const tni_simt_emitter *c, int i)
{
    char kind = tni_compute_suffix((tn_dtype)c->k->ins[i].dtype);
    return tni_text_of(kind == 'f' ? "m_bits_f(v%d)" : kind == 'd' ? "m_bits_d(v%d)" : "v%d", i);
}

static tni_text heard(const tni_simt_emitter *c, int i, int slot)
{
    char        kind = tni_compute_suffix((tn_dtype)c->k->ins[i].dtype);
    const char *bits = kind == 'f' ? "m_float_bits((m_uint)" : kind == 'd' ? "m_double_bits(" : "(";
    return tni_text_of("(%s)%speer[((told & 1) * %d + %d) * %d + z])", type_of(c, i), bits,
                       c->folds, slot, c->m->cluster);
}

// Each group tells its result to all of its cluster, and folds what it was told, in order. `peer` has
// two halves, and a barrier for each: nobody tells anew into a half before all have read it, since
// they had to hear of the half between.
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
                         g, c->folds, slot++, g, told(c, i).s);
    tni_out_line(c->o, "m_await(&heard[told & 1], told >> 1 & 1);");
    slot = 0;
    for (int i = 0; i < c->k->nins; i++) {
        const tni_ins *x = &c->k->ins[i];
        if (!tni_set_has(set, i)) continue;
        tni_text acc = tni_text_of("v%d", i), other = heard(c, i, slot++);
        tni_out_line(c->o, "%s = %s;", acc.s, tni_fold_start(x->op, (tn_dtype)x->dtype));
        tni_out_print(c->o, "%s", c->d->unroll);
        tni_out_line(c->o, "for (m_int z = 0; z < %d; z++)", g);
        tni_simt_fold_line(c, i, "    ", acc.s, other.s);
    }
    tni_out_line(c->o, "told++;");
}
