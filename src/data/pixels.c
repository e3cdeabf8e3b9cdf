// Pixels: bytes to floats, and augmentation.
//
// C channels, H rows, W columns of an image.
#include "data/pixels.h"

#include <string.h>

void tni_unit_floats(float *dst, const uint8_t *src, int64_t n)
{
    for (int64_t i = 0; i < n; i++) dst[i] = (float)src[i] / 255.0f;
}

// dst[x] = src[x - by], 0 where there is none.
static void move_row(float *dst, const float *src, int64_t W, int64_t by)
{
    if (by > W) by = W;
    if (by < -W) by = -W;
    int64_t from = by < 0 ? -by : 0, to = by > 0 ? by : 0;
    int64_t n = W - from - to;
    memset(dst, 0, (size_t)to * sizeof *dst);
    memcpy(dst + to, src + from, (size_t)n * sizeof *dst);
    memset(dst + to + n, 0, (size_t)(W - to - n) * sizeof *dst);
}

static void flip_row(float *row, int64_t W)
{
    for (int64_t a = 0, b = W - 1; a < b; a++, b--) {
        float t = row[a];
        row[a]  = row[b];
        row[b]  = t;
    }
}

// Padding by p and cropping to the old size at a random place is a move by at most p pixels. Both moves
// are added and made once, so that nothing is cut off twice.
void tni_augment(const tn_augment_opts *o, tni_draw r, bool flips, const int64_t *size,
                 float *image, float *scratch)
{
    int64_t C = size[0], H = size[1], W = size[2];
    int64_t dx = tni_draw_below(&r, 2 * o->shift + 1) - o->shift;
    int64_t dy = tni_draw_below(&r, 2 * o->shift + 1) - o->shift;
    dx += tni_draw_below(&r, 2 * o->crop + 1) - o->crop;
    dy += tni_draw_below(&r, 2 * o->crop + 1) - o->crop;
    bool flip = flips && o->flip && tni_draw_below(&r, 2);
    memcpy(scratch, image, (size_t)(C * H * W) * sizeof *image);
    for (int64_t c = 0; c < C; c++)
        for (int64_t y = 0; y < H; y++) {
            float *row  = image + (c * H + y) * W;
            bool   bare = y - dy < 0 || y - dy >= H;
            if (bare) memset(row, 0, (size_t)W * sizeof *row);
            else move_row(row, scratch + (c * H + y - dy) * W, W, dx);
            if (flip) flip_row(row, W);
        }
}
