// What is done to the pixels of images on their way into a batch.
#ifndef TNI_DATA_PIXELS_H
#define TNI_DATA_PIXELS_H

#include "data/draw.h"
#include "tenon.h"

// Bytes as floats in [0, 1]: each over 255.
void tni_unit_floats(float *dst, const uint8_t *src, int64_t n);
// Moves and, if `flips`, flips an image (C, H, W) as r draws. scratch is as large as the image.
void tni_augment(const tn_augment_opts *o, tni_draw r, bool flips, const int64_t *size,
                 float *image, float *scratch);

#endif
