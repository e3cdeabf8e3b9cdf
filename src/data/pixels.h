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
// Changes the colours of an image (C, H, W) in [0, 1], C of 1 or 3, as r draws; one channel has no
// saturation and hue.
bool tni_jitters(const tn_augment_opts *o);
void tni_jitter(const tn_augment_opts *o, tni_draw r, const int64_t *size, float *image);
// Mixes each of n rows of `width` floats with the one before it, the first with the last: its part
// is `own`. scratch has a row.
void tni_mix_rows(float *rows, int64_t n, int64_t width, float own, float *scratch);
// A number from Beta(a, a), a in (0, 1].
float tni_draw_beta(tni_draw r, double a);

#endif
