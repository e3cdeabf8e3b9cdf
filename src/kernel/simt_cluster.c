// Rows that the groups of a cluster share, in the text of a CUDA kernel for chips that have clusters:
// each group has a piece of the row. What is folded, each warp tells to all groups of the cluster, by
// stores into their shared memory that a barrier there counts, and each warp folds what all warps
// told, in their order, so that it is the same in all of them.
#include "kernel/simt_page.h"

#include <string.h>

// Groups have to be there before one tells another something. They say so at the beginning, and ask
// when their loads are on their way.
static const char arrive[] = "asm volatile(\"barrier.cluster.arrive.relaxed.aligned;\" ::: "
                             "\"memory\");";
static const char meet[] =
    "asm volatile(\"barrier.cluster.wait.acquire.aligned;\" ::: \"memory\");";

tni_text tni_simt_group_name(const tni_page *c)
{
    if (c->m->cluster) return tni_text_of("((m_int)blockIdx.x / %d)", c->m->cluster);
    return tni_text_of("%s", c->d->group_id);
}

// Warps of a cluster.
static int count_warps(const tni_page *c)
{
    return c->m->cluster * c->m->team / 32;
}

// Pieces begin at lines of 128 bytes where the row does.
void tni_simt_open_cluster(tni_page *c)
{
    int g = c->m->cluster;
    tni_line(c->o, "__shared__ m_ulong peer[%d], heard[2];", 2 * c->folds * count_warps(c));
    tni_line(c->o, "const m_int rank = (m_int)blockIdx.x %% %d;", g);
    tni_line(c->o, "const %s piece = (%s + %d) / %d * 8, lo = rank * piece;", c->index,
             tni_simt_word_name(c, TNI_WORD_VECTORS).s, 8 * g - 1, 8 * g);
    tni_line(c->o, "m_int told = 0;");
    tni_line(c->o, "if (tid == 0) {");
    tni_line(c->o, "m_barrier_open(&heard[0]), m_barrier_open(&heard[1]);");
    tni_line(c->o, "m_barriers_opened();");
    tni_line(c->o, "}");
    tni_line(c->o, "__syncwarp();");
    tni_line(c->o, "%s", arrive);
}

// A value as the 64 bits that are told, and back.
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
                       c->folds, slot, count_warps(c));
}

static void tell(tni_page *c, const tni_set *set)
{
    int warps = c->m->team / 32, n = 0;
    for (int i = 0; i < c->k->nins; i++) n += tni_has(set, i);
    tni_line(c->o, "if (tid == 0) m_expect(&heard[told & 1], %d);", 8 * count_warps(c) * n);
    tni_line(c->o, "if (tid %% 32 < %d) {", c->m->cluster);
    for (int i = 0, slot = 0; i < c->k->nins; i++)
        if (tni_has(set, i))
            tni_line(c->o,
                     "m_tell(&peer[((told & 1) * %d + %d) * %d + rank * %d + tid / 32], tid %% 32, "
                     "(m_ulong)%s, &heard[told & 1]);",
                     c->folds, slot++, count_warps(c), warps, told(c, i).s);
    tni_line(c->o, "}");
}

// `peer` has two halves, and a barrier for each: nobody tells anew into a half before all have read
// it, since they had to hear of the half between. Nobody ends before it heard all, so that nothing is
// told to a group that is gone.
void tni_simt_fold_cluster(tni_page *c, const tni_set *set)
{
    tni_set  none = { 0 };
    int      all  = count_warps(c);
    tni_text test = tni_text_of("if (z < %d) ", all);
    if (!memcmp(set, &none, sizeof none)) return;
    for (int i = 0; i < c->k->nins; i++)
        if (tni_has(set, i)) tni_simt_fold_warp(c, i, tni_text_of("v%d", i).s, 32);
    tni_line(c->o, "if (!told) %s", meet);
    tell(c, set);
    tni_line(c->o, "m_await(&heard[told & 1], told >> 1 & 1);");
    for (int i = 0, slot = 0; i < c->k->nins; i++) {
        const tni_ins *x = &c->k->ins[i];
        if (!tni_has(set, i)) continue;
        tni_text acc = tni_text_of("v%d", i), other = heard(c, i, slot++);
        tni_line(c->o, "%s = %s;", acc.s, tni_fold_start(x->op, (tn_dtype)x->dtype));
        tni_put(c->o, "%s", c->d->unroll);
        tni_line(c->o, "for (m_int y = 0; y < %d; y++) {", (all + 31) / 32);
        tni_line(c->o, "const m_int z = y * 32 + tid %% 32;");
        tni_simt_fold_line(c, i, all % 32 ? test.s : "", acc.s, other.s);
        tni_line(c->o, "}");
        tni_simt_fold_warp(c, i, acc.s, 32);
    }
    tni_line(c->o, "told++;");
}
