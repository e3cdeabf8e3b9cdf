// What is done to the pixels of images on their way into a batch.
#ifndef TNI_DATA_PIXELS_H
#define TNI_DATA_PIXELS_H

#include "data/draw.h"
#include "tenon.h"

// Moves and flips an image (C, H, W) as r draws. scratch has room for one more.
void tni_augment(const tn_augment_opts *o, tni_draw r, const int64_t *size, float *image,
                 float *scratch);

#endif
