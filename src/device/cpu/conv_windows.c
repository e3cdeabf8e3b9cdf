// Gathers windows from x (im2col), and adds windows back to where they were gathered (col2im). Both
// run over whole runs of elements: the padding is found once for each line, not for each element.
#include "device/cpu/conv_windows.h"

#include <string.h>

// Finds the i of 0 .. n-1 for which shift + i * step is in 0 .. size-1: *lo .. *hi-1. The rest is
// padding.
static void valid_range(int64_t shift, int64_t step, int64_t size, int64_t n, int64_t *lo,
                        int64_t *hi)
{
    *lo = shift >= 0 ? 0 : tni_min_i64(tni_ceil_div(-shift, step), n);
    *hi = shift >= size ? 0 : tni_min_i64(tni_ceil_div(size - shift, step), n);
    if (*hi < *lo) *hi = *lo;
}

// ---- channels first: lines of positions ----

// Writes output columns from .. to-1 of one row of positions and one element of the window: zeros,
// a strided run of a row of x, zeros. row is NULL if it is in the padding.
static void fill_columns(const tni_conv_plan *c, char *y, const char *row, int64_t kw, int64_t from,
                         int64_t to)
{
    int64_t shift = kw * c->dilation[1] - c->padding[1], lo, hi;
    valid_range(shift, c->stride[1], c->W, c->OW, &lo, &hi);
    if (!row) lo = hi = to;
    lo = tni_clamp(lo, from, to);
    hi = tni_clamp(hi, lo, to);
    memset(y, 0, (size_t)((lo - from) * c->bytes));
    if (hi > lo)
        tni_gather_run((size_t)c->bytes, y + (lo - from) * c->bytes,
                       row + (lo * c->stride[1] + shift) * c->bytes, c->stride[1], hi - lo);
    memset(y + (hi - from) * c->bytes, 0, (size_t)((to - hi) * c->bytes));
}

// Channels first: rows k0 .. k1-1 of the windows of positions p0 .. p1-1 of the image and group at
// x. Each row is one element of the window for all positions, which are runs of a row of x. Rows of
// y are ld elements apart.
static void gather_columns(const tni_conv_plan *c, const char *x, int64_t k0, int64_t k1,
                           int64_t p0, int64_t p1, char *y, int64_t ld)
{
    for (int64_t k = k0; k < k1; k++) {
        int64_t     kw = k % c->KW, kh = k / c->KW % c->KH, channel = k / (c->KW * c->KH);
        const char *plane = x + channel * c->H * c->W * c->bytes;
        char       *to    = y + (k - k0) * ld * c->bytes;
        for (int64_t p = p0, oh = p0 / c->OW, from = p0 % c->OW; p < p1; oh++, from = 0) {
            int64_t end = tni_min_i64(c->OW, from + p1 - p);
            int64_t h   = oh * c->stride[0] + kh * c->dilation[0] - c->padding[0];
            bool    in  = h >= 0 && h < c->H;
            fill_columns(c, to, in ? plane + h * c->W * c->bytes : NULL, kw, from, end);
            to += (end - from) * c->bytes;
            p += end - from;
        }
    }
}

// Every element of the window is a shifted and strided copy of the plane. They are added in the
// order of k, so that the sums have a fixed order.
void tni_conv_add_plane(const tni_conv_plan *c, const char *windows, int64_t ld, char *plane)
{
    memset(plane, 0, (size_t)(c->H * c->W * c->bytes));
    for (int64_t k = 0; k < c->KH * c->KW; k++) {
        int64_t shift_h = k / c->KW * c->dilation[0] - c->padding[0], top, bottom;
        int64_t shift_w = k % c->KW * c->dilation[1] - c->padding[1], lo, hi;
        valid_range(shift_h, c->stride[0], c->H, c->OH, &top, &bottom);
        valid_range(shift_w, c->stride[1], c->W, c->OW, &lo, &hi);
        for (int64_t i = top; i < bottom && lo < hi; i++) {
            char *y = plane + ((i * c->stride[0] + shift_h) * c->W + lo * c->stride[1] + shift_w) *
                                  c->bytes;
            const char *v = windows + (k * ld + i * c->OW + lo) * c->bytes;
            tni_add_run(c->dtype, y, v, c->stride[1], hi - lo);
        }
    }
}

// ---- channels last: runs of channels ----

// Finds the part of row kh of a position's window that is inside x: elements *lo .. *hi-1 along kw,
// the first at offset *at. Returns false if all of it is padding.
static bool window_row(const tni_conv_plan *c, int64_t p, int64_t kh, int64_t *lo, int64_t *hi,
                       int64_t *at)
{
    int64_t h = p / c->OW * c->stride[0] - c->padding[0] + kh * c->dilation[0];
    int64_t w = p % c->OW * c->stride[1] - c->padding[1];
    valid_range(w, c->dilation[1], c->W, c->KW, lo, hi);
    *at = (h * c->W + w + *lo * c->dilation[1]) * c->C;
    return h >= 0 && h < c->H && *lo < *hi;
}

// Returns whether a row of a window is one run of x: no dilation, and all channels in one group.
static bool has_contiguous_rows(const tni_conv_plan *c)
{
    return c->dilation[1] == 1 && c->G == 1;
}

// Channels last: the window of a position of the image and group at x, KH runs if rows are
// contiguous, else KH * KW.
static void gather_window(const tni_conv_plan *c, const char *x, int64_t p, char *row)
{
    size_t run  = (size_t)(c->CG * c->bytes);
    bool   side = has_contiguous_rows(c);
    for (int64_t kh = 0; kh < c->KH; kh++, row += (size_t)c->KW * run) {
        int64_t lo, hi, at;
        if (!window_row(c, p, kh, &lo, &hi, &at)) {
            memset(row, 0, (size_t)c->KW * run);
            continue;
        }
        if (lo > 0) memset(row, 0, (size_t)lo * run);
        if (side) memcpy(row + (size_t)lo * run, x + at * c->bytes, (size_t)(hi - lo) * run);
        for (int64_t k = lo; k < hi && !side; k++, at += c->dilation[1] * c->C)
            memcpy(row + (size_t)k * run, x + at * c->bytes, run);
        if (hi < c->KW) memset(row + (size_t)hi * run, 0, (size_t)(c->KW - hi) * run);
    }
}

void tni_conv_add_rows(const tni_conv_plan *c, const char *windows, int64_t p0, int64_t p1, char *x)
{
    for (int64_t p = p0; p < p1; p++)
        for (int64_t kh = 0; kh < c->KH; kh++, windows += c->KW * c->CG * c->bytes) {
            int64_t lo, hi, at;
            if (!window_row(c, p, kh, &lo, &hi, &at)) continue;
            int64_t step = has_contiguous_rows(c) ? hi - lo : 1;
            for (int64_t k = lo; k < hi; k += step, at += c->dilation[1] * c->C)
                tni_add_run(c->dtype, x + at * c->bytes, windows + k * c->CG * c->bytes, 1,
                            step * c->CG);
        }
}

// ---- both ----

void tni_conv_windows(const tni_conv_plan *c, int64_t g, int64_t k0, int64_t k1, int64_t q0,
                      int64_t q1, char *y)
{
    for (int64_t q = q0, n; q < q1; q += n) {
        int64_t     p = q % c->P;
        const char *x = tni_conv_x(c, q / c->P, g);
        n             = tni_min_i64(q1 - q, c->P - p);
        if (!c->channels_last)
            gather_columns(c, x, k0, k1, p, p + n, y + (q - q0) * c->bytes, q1 - q0);
        for (int64_t i = 0; i < n && c->channels_last; i++)
            gather_window(c, x, p + i, y + (q - q0 + i) * c->K * c->bytes);
    }
}
