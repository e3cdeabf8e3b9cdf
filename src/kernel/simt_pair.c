// The largest or smallest of 16-bit floats two at a time, on devices that have instructions for it:
// a word of a vector holds two of them, which one instruction compares with two others. No rounding
// is involved, so the result is the same as one by one. What it prints, of
// test/golden/long_row.txt:
//
//     m_uint p2 = 0xff80ff80u;                                       two bf16 minus infinities
//     for (m_int j = 0; j < 4; j++) p2 = m_max_pair_bf16(p2, x0[q * 4 + j]);
//     v2 = o_max_f(v2, m_bf16_to_float((m_ushort)(p2 >> 0)));
//     v2 = o_max_f(v2, m_bf16_to_float((m_ushort)(p2 >> 16)));
#include "kernel/simt_emitter.h"

// REDUCE i has to fold the loaded element itself, or its exact conversion to f32; and no guard may
// replace elements by 0, which the words do not know about.
int tni_simt_pair_of(const tni_simt_emitter *c, int i)
{
    const tni_ins *x = &c->k->ins[i];
    if (!tni_gpu_has(c->m, TNI_GPU_PAIRS) || c->m->form != TNI_SIMT_ROW || !tni_is_row_reduce(x) ||
        c->m->vector < 2)
        return -1;
    if (x->op != TNI_max && x->op != TNI_min) return -1;
    int a = c->k->ins[x->a].code == TNI_I_CAST ? c->k->ins[x->a].a : x->a;
    if (c->k->ins[a].code != TNI_I_LOAD || c->k->ins[a].b != TNI_NO_VALUE) return -1;
    if (!tni_simt_moves_vector(c, a)) return -1;
    tn_dtype dt = buffer_dtype(c, a), as = (tn_dtype)c->k->ins[x->a].dtype;
    if (!tni_is_rounded(dt) || tni_dtype_size(dt) != 2 || (as != dt && as != TN_F32)) return -1;
    return a;
}

// The dtype in the names of the pair functions: half or bf16.
static const char *half_stem(const tni_simt_emitter *c, int load)
{
    return tni_dtype_table[buffer_dtype(c, load)].stem;
}

// Both halves begin with infinity, negative for max: 0x7f80 and 0x7c00 are the bits of positive
// infinity.
void tni_simt_declare_pair(tni_simt_emitter *c, int i)
{
    int load = tni_simt_pair_of(c, i);
    if (load < 0) return;
    bool     most = c->k->ins[i].op == TNI_max;
    unsigned low  = buffer_dtype(c, load) == TN_BF16 ? 0x7f80 : 0x7c00;
    low |= most ? 0x8000 : 0;
    tni_out_line(c->o, "m_uint p%d = 0x%04x%04xu;", i, low, low);
}

void tni_simt_fold_pairs(tni_simt_emitter *c, int i)
{
    int load = tni_simt_pair_of(c, i);
    tni_out_print(c->o, "%s", c->d->unroll);
    tni_out_line(c->o, "for (m_int j = 0; j < %d; j++) p%d = m_%s_pair_%s(p%d, x%d[%sj]);",
                 words_of(c, load), i, c->k->ins[i].op == TNI_max ? "max" : "min",
                 half_stem(c, load), i, load, tni_simt_word_base(c, load).s);
}

// Folds the two halves into the accumulator after the loop; edge vectors went there element by
// element.
void tni_simt_join_pair(tni_simt_emitter *c, int i)
{
    int load = tni_simt_pair_of(c, i);
    if (load < 0) return;
    for (int half = 0; half < 2; half++) {
        tni_text acc = tni_text_of("v%d", i);
        tni_text one = tni_text_of("m_%s_to_float((m_ushort)(p%d >> %d))", half_stem(c, load), i,
                                   16 * half);
        tni_simt_fold_line(c, i, "", acc.s, one.s);
    }
}
