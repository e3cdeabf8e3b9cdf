// The arguments that a kernel on a device with work groups is launched with (simt.h): which word
// holds what, and their values.
#include "kernel/simt_emitter.h"

#include <string.h>

// Each tail begins at a cache line.
int64_t tni_simt_tail_bytes(const tni_simt *m, const tni_ins *x, int64_t cols)
{
    int64_t size = (int64_t)tni_dtype_size(tni_compute_dtype((tn_dtype)x->dtype));
    int64_t n    = m->parts * (x->per ? cols : 1) * size;
    return (n + 63) / 64 * 64;
}

// Numbers the launch words: the fixed ones, sizes, then for each access its offset and its strides
// of class n (classes 0 and 1 are constants in the text), indices' strides and tails in the order
// of instructions, and the numbers. The emitter and the launcher both call this, so the order is
// defined here alone.
void tni_simt_layout_of(const tni_kernel *k, tni_simt_layout *at)
{
    memset(at, -1, sizeof *at);
    int n = TNI_WORD_SIZES + k->np + k->nr;
    for (int a = 0; a < k->naccess; a++) {
        at->offset[a] = (int16_t)n++;
        for (int i = 0; i < k->np + k->nr; i++)
            if (k->access[a].stride[i] == TNI_STRIDE_N) at->stride[a][i] = (int16_t)n++;
    }
    for (int i = 0; i < k->nins; i++) {
        const tni_ins *x = &k->ins[i];
        if (x->code == TNI_I_LOAD && x->a != TNI_NO_VALUE && at->stride[x->access][TNI_AXES] < 0)
            at->stride[x->access][TNI_AXES] = (int16_t)n++;
        if (tni_is_tail(x)) at->tail[i] = (int16_t)n++;
    }
    for (int i = 0; i < k->nnumber; i++) at->number[i] = (int16_t)n++;
    at->count = (int16_t)n;
}

// TNI_WORD_SCRATCH is 0 here: a device whose scratch begins inside a buffer object adds the bytes.
int tni_simt_words(const tni_launch *l, const tni_simt *m, const tni_simt_layout *at,
                   int64_t dst[TNI_MAX_WORDS])
{
    const tni_kernel *k    = l->kernel;
    int64_t           cols = 1;
    for (int i = 0; i < k->nr; i++) cols *= l->size[k->np + i];
    dst[TNI_WORD_LINES]   = m->lines;
    dst[TNI_WORD_VECTORS] = m->vectors;
    dst[TNI_WORD_COLS]    = cols;
    dst[TNI_WORD_CHUNK]   = m->chunk;
    dst[TNI_WORD_PARTS]   = m->parts;
    dst[TNI_WORD_SCRATCH] = 0;
    for (int i = 0; i < k->np + k->nr; i++) dst[TNI_WORD_SIZES + i] = l->size[i];
    for (int a = 0; a < k->naccess; a++) {
        dst[at->offset[a]] = l->offset[a];
        for (int i = 0; i <= TNI_AXES; i++)
            if (at->stride[a][i] >= 0) dst[at->stride[a][i]] = l->stride[a][i];
    }
    int64_t bytes = 0;
    for (int i = 0; i < k->nins; i++) {
        if (at->tail[i] < 0) continue;
        dst[at->tail[i]] = bytes;
        bytes += tni_simt_tail_bytes(m, &k->ins[i], cols);
    }
    for (int i = 0; i < k->nnumber; i++) dst[at->number[i]] = (int64_t)l->number[i].u;
    return at->count;
}

// Packs addresses and words as the struct `NAME_args` of the text declares them; all members have 8
// bytes.
size_t tni_simt_pack(const tni_launch *l, const tni_simt *m, const tni_simt_layout *at,
                     const void *state, char *dst)
{
    const tni_kernel *k = l->kernel;
    int64_t           word[TNI_MAX_WORDS];
    int               n = tni_simt_words(l, m, at, word), used = 0;
    for (int i = 0; i < k->nbuffer; i++, used += 8) memcpy(dst + used, &l->buffer[i], 8);
    memcpy(dst + used, &l->scratch, 8);
    memcpy(dst + used + 8, &state, 8);
    memcpy(dst + used + 16, word, 8 * (size_t)n);
    return (size_t)used + 16 + 8 * (size_t)n;
}
