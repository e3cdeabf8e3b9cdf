// What kernels on the tensor cores share, as text: the header of cores_text.c and
// cores_text_product.c. A program is constants, tni_text_cores, one kind of products, and the text
// of its kernels.
#ifndef TNI_CUDA_CORES_TEXT_H
#define TNI_CUDA_CORES_TEXT_H

#include "kernel/emit.h"

extern const char *const tni_text_cores[];  // tiles, fragments
extern const char
    *const tni_text_cores_bytes[];  // of bytes, before those by mma.sync: the instruction for them
extern const char *const tni_text_cores_mma[];    // products by mma.sync
extern const char *const tni_text_cores_wgmma[];  // or by wgmma

// Prints the pieces of a text.
static inline void tni_put_text(tni_out *o, const char *const *text)
{
    while (*text) tni_out_print(o, "%s", *text++);
}

#endif
