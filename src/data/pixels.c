// Pixels: bytes to floats, and augmentation.
//
// C channels, H rows, W columns of an image.
#include "data/pixels.h"

#include <math.h>
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

// Padding by p and cropping to the old size at a random place is a move by at most p pixels. Both
// moves are added and made once, so that nothing is cut off twice.
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

// ---- colours -----------------------------------------------------------------------------------

static float clamp(float v)
{
    return v < 0 ? 0 : v > 1 ? 1 : v;
}

// The luma of a pixel, whose channels are `area` apart.
static float luma(const float *p, int64_t area)
{
    return 0.299f * p[0] + 0.587f * p[area] + 0.114f * p[2 * area];
}

// Turns the hue of a pixel: to HSV's hue and back, as torchvision does.
static void turn_hue(float *p, int64_t area, float by)
{
    float r = p[0], g = p[area], b = p[2 * area];
    float most = fmaxf(r, fmaxf(g, b)), least = fminf(r, fminf(g, b)), range = most - least;
    if (!(range > 0)) return;
    float h = most == r ? (g - b) / range : most == g ? 2 + (b - r) / range : 4 + (r - g) / range;
    h       = h / 6 + by;
    h       = 6 * (h - floorf(h));
    for (int c = 0; c < 3; c++) {
        // How far the channel is from the least: it falls and rises over the circle, a third later
        // each.
        float k = (float)(5 - 2 * c) + h;
        if (k >= 6) k -= 6;
        float f     = fminf(k, 4 - k);
        p[c * area] = most - range * fmaxf(0, fminf(f, 1));
    }
}

bool tni_jitters(const tn_augment_opts *o)
{
    return o->brightness > 0 || o->contrast > 0 || o->saturation > 0 || o->hue > 0;
}

// A factor around 1, not below 0.
static float factor(tni_draw *r, double v)
{
    return tni_draw_between(r, (float)(v < 1 ? 1 - v : 0), (float)(1 + v));
}

// The mean that contrast is around is that of the luma, after brightness was changed.
void tni_jitter(const tn_augment_opts *o, tni_draw r, const int64_t *size, float *image)
{
    int64_t C = size[0], area = size[1] * size[2];
    float   light = factor(&r, o->brightness), contrast = factor(&r, o->contrast);
    float   colour = factor(&r, o->saturation);
    float   hue    = tni_draw_between(&r, (float)-o->hue, (float)o->hue);
    double  sum    = 0;
    for (int64_t i = 0; i < C * area; i++) image[i] = clamp(image[i] * light);
    for (int64_t i = 0; i < area; i++) sum += (double)(C == 3 ? luma(image + i, area) : image[i]);
    float mean = (float)(sum / (double)area) * (1 - contrast);
    for (int64_t i = 0; i < C * area; i++) image[i] = clamp(image[i] * contrast + mean);
    for (int64_t i = 0; C == 3 && o->saturation > 0 && i < area; i++) {
        float grey = luma(image + i, area) * (1 - colour);
        for (int64_t c = 0; c < 3; c++)
            image[c * area + i] = clamp(image[c * area + i] * colour + grey);
    }
    for (int64_t i = 0; C == 3 && o->hue > 0 && i < area; i++) turn_hue(image + i, area, hue);
}

// ---- mixing ------------------------------------------------------------------------------------

// From the last row to the first, so that a row is read before it is written; only the last is
// needed twice.
void tni_mix_rows(float *rows, int64_t n, int64_t width, float own, float *scratch)
{
    memcpy(scratch, rows + (n - 1) * width, (size_t)width * sizeof *rows);
    for (int64_t i = n - 1; i >= 0; i--) {
        const float *before = i ? rows + (i - 1) * width : scratch;
        float       *row    = rows + i * width;
        for (int64_t k = 0; k < width; k++) row[k] = own * row[k] + (1 - own) * before[k];
    }
}

// Joehnk's method, which is quick where a is small.
float tni_draw_beta(tni_draw r, double a)
{
    for (;;) {
        double u = (double)tni_draw_between(&r, 0x1p-25f, 1),
               v = (double)tni_draw_between(&r, 0, 1);
        double x = pow(u, 1 / a), y = pow(v, 1 / a);
        if (x + y > 0 && x + y <= 1) return (float)(x / (x + y));
    }
}
