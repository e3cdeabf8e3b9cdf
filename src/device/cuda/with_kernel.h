// Calls with the kernel behind them, as forms of a family: what the kernel adds to a form, running
// the two, and the family of matrix products. That of convolutions is in cuda_conv.c. Either may
// have the kernel before it as its prologue.
#ifndef TNI_CUDA_WITH_KERNEL_H
#define TNI_CUDA_WITH_KERNEL_H

#include "device/cuda/method.h"

// Products with a kernel: by cuBLASLt if that has an epilogue for it, by a kernel of our own, or
// one after the other.
extern const tni_family tni_products_with_kernels;
// The same of convolutions (cuda_conv.c).
extern const tni_family tni_convs_with_kernels;
// Calls of either with the kernel before them, too: by a kernel of our own that does it all, or by
// that kernel, and then as the call without it.
extern const tni_family tni_calls_with_prologues;

// Convolutions alone (cuda_conv.c).
extern const tni_family tni_convs;

// The method of product_cores.c: a product, or a convolution that is one, and the kernels around it
// in one launch.
extern const tni_method tni_call_by_tiles;
// The call alone by the fastest of its own methods, then the kernel behind it.
extern const tni_method tni_call_by_pair;

// Puts the kernel's instructions.
void tni_form_put_kernel(tni_form_words *w, const tni_call *call);
// Libraries and kernels of our own read 16 bytes at once, and forms promise such addresses.
bool tni_call_is_aligned(const tni_call *call);
// Whether one step may do both: every address is aligned, and nothing that is read is overwritten
// but the call's result, which is not stored.
bool tni_call_suits_form(const tni_call *call, const tni_launch *l);
// Runs both: by a method, or one after the other if there is no form or addresses do not suit.
tn_status tni_form_with_kernel(tni_form *f, const tni_call *call, void *entry, tni_launch *l,
                               tni_text *why);

#endif
