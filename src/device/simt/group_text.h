// The kernels written by hand, as text that OpenCL C and CUDA C take alike. Each text is compiled
// for a dtype of elements, XT, and one of results, YT.
//
// What differs is spelled by macros that are made from the dialect: KERNEL(n) begins a kernel whose
// groups have n items; GLOBAL stands before what a pointer to a buffer points to; LOCAL before a
// declaration of a group's memory and LOCAL_PTR before what a pointer to it points to; GIVEN before
// a struct that a kernel takes; LOCAL_ID and GROUP_ID say where an item is, ITEM counts those of
// all groups, BARRIER() is passed by a group together. Types of 64, unsigned and 16 bits are those
// of the math prelude (m_long, m_uint, m_ushort), whose functions can be called too.
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

// Convolutions, by the columns of a tile; the gradient for w, by the rows of a tile; both of few
// channels a group. Wide ones count elements in 64 bits.
extern const char *const tni_text_conv_16[], *const tni_text_conv_32[], *const tni_text_conv_64[];
extern const char *const tni_text_conv_wide[];
extern const char *const tni_text_weights_16[], *const tni_text_weights_64[];
extern const char *const tni_text_weights_128[], *const tni_text_weights_wide[];
extern const char *const tni_text_conv_few[], *const tni_text_conv_few_wide[];

// The program of a text; no_double: the device has none. The caller frees it by tni_free; NULL when
// memory is out.
char *tni_group_text_source(tni_heap *h, const tni_dialect *d, const char *const *text, tn_dtype x,
                            tn_dtype y, bool no_double);

#endif
