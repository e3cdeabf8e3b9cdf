// The hand-written kernels, as text that is both OpenCL C and CUDA C: the header of all
// group_text*.c files. Each text is compiled for a dtype of elements, XT, and one of results, YT.
//
// What differs is spelled by macros that are made from the dialect: KERNEL(n) begins a kernel whose
// groups have n items; GLOBAL comes before the target of a pointer to a buffer; LOCAL before a
// declaration in a group's local memory, and LOCAL_PTR before the target of a pointer to it; GIVEN
// before a struct that a kernel takes. LOCAL_ID is an item's number in its group, GROUP_ID the
// group's, ITEM the item's number over all groups, BARRIER() is passed by all items of a group
// together, and BEGIN() waits for the kernel ahead in a text that may overlap with it.
// Types of 64 bits, unsigned ones and those of 16 bits are the math prelude's (m_long, m_uint,
// m_ushort), whose functions texts may call.
#ifndef TNI_SIMT_GROUP_TEXT_H
#define TNI_SIMT_GROUP_TEXT_H

#include "kernel/emit.h"

// Each an array of pieces that ends with NULL.
extern const char *const tni_text_matmul[];
extern const char *const tni_text_cumsum[];
extern const char *const tni_text_cumprod[];
extern const char *const tni_text_extremum[];
extern const char *const tni_text_fold[];
extern const char *const tni_text_sort[];
extern const char *const tni_text_index[];
extern const char *const tni_text_segments[];
extern const char *const tni_text_linalg[];
extern const char *const tni_text_fft[];
extern const char *const tni_text_sparse[];

// Convolutions, by the columns of a tile; the gradient for w, by the rows of a tile; and both for
// few channels per group. Wide ones have offsets of 64 bits. The same for images with a depth.
extern const char *const tni_text_conv_16[], *const tni_text_conv_32[], *const tni_text_conv_64[];
extern const char *const tni_text_conv_wide[];
extern const char *const tni_text_weights_16[], *const tni_text_weights_64[];
extern const char *const tni_text_weights_128[], *const tni_text_weights_wide[];
extern const char *const tni_text_conv_few[], *const tni_text_conv_few_wide[];
extern const char *const tni_text_conv3d_16[], *const tni_text_conv3d_32[];
extern const char *const tni_text_conv3d_64[], *const tni_text_conv3d_wide[];
extern const char *const tni_text_weights3d_16[], *const tni_text_weights3d_64[];
extern const char *const tni_text_weights3d_128[], *const tni_text_weights3d_wide[];
extern const char *const tni_text_conv3d_few[], *const tni_text_conv3d_few_wide[];

// Convolution of each channel with a 3 x 3 window, by its stride less 1. The second piece is the
// ending (kernel/ending.h).
extern const char *const tni_text_depthwise[4][6];

// Prints the program of a text; no_double: the device has no f64. The caller frees it by tni_free;
// NULL when memory is out.
char *tni_group_text_source(tni_heap *h, const tni_dialect *d, const char *const *text, tn_dtype x,
                            tn_dtype y, bool no_double);

#endif
