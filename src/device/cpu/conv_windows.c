// Gathers windows from x (im2col), and adds windows back to where they were gathered (col2im). Both
// run over whole runs of elements: the padding is found once for each line, not for each element.
#include "device/cpu/conv_windows.h"

#include <string.h>

// pointwise: x is its own windows. With channels last that is so for gradients, too.
void tni_conv_sizes(tni_conv_plan *c, const tni_conv_form *f)
{
    const tni_arg *x = &f->arg[0], *w = &f->arg[1], *y = &f->arg[2];
    tni_conv_axis *axis[] = { &c->along_d, &c->along_h, &c->along_w };
    c->N = x->size[0], c->C = x->size[1];
    c->D = x->size[2], c->H = x->size[3], c->W = x->size[4];
    c->KD = w->size[2], c->KH = w->size[3], c->KW = w->size[4];
    c->OD = y->size[2], c->OH = y->size[3], c->OW = y->size[4];
    c->O = w->size[0], c->G = f->groups, c->CG = w->size[1], c->OG = c->O / c->G;
    c->I             = c->D * c->H * c->W;
    c->T             = c->KD * c->KH * c->KW;
    c->P             = c->OD * c->OH * c->OW;
    c->K             = c->CG * c->T;
    c->channels_last = c->call->attr->conv.channels_last;
    c->pointwise     = (tni_is_conv(c->call->op) || c->channels_last) && c->T == 1;
    for (int i = 0; i < 3; i++) {
        *axis[i] = (tni_conv_axis){ f->stride[i], f->padding[i], f->dilation[i] };
        c->pointwise &= f->stride[i] == 1 && f->padding[i] == 0;
    }
    c->empty = c->N * c->P * c->K * c->O == 0;
}

// Finds the i of 0 .. n-1 for which shift + i * step is in 0 .. size-1: *lo .. *hi-1. The rest is
// padding.
static void valid_range(int64_t shift, int64_t step, int64_t size, int64_t n, int64_t *lo,
                        int64_t *hi)
{
    *lo = shift >= 0 ? 0 : tni_min_i64(tni_ceil_div(-shift, step), n);
    *hi = shift >= size ? 0 : tni_min_i64(tni_ceil_div(size - shift, step), n);
    if (*hi < *lo) *hi = *lo;
}

// Returns where output position o and tap k meet along an axis of x.
static int64_t axis_place(const tni_conv_axis *a, int64_t o, int64_t k)
{
    return o * a->stride - a->padding + k * a->dilation;
}

// ---- channels first: lines of positions --------------------------------------------------------

// Writes output columns from .. to-1 of one row of positions and one element of the window: zeros,
// a strided run of a row of x, zeros. row is NULL if it is in the padding.
static void fill_columns(const tni_conv_plan *c, char *y, const char *row, int64_t kw, int64_t from,
                         int64_t to)
{
    int64_t stride = c->along_w.stride, shift = axis_place(&c->along_w, 0, kw), lo, hi;
    valid_range(shift, stride, c->W, c->OW, &lo, &hi);
    if (!row) lo = hi = to;
    lo = tni_clamp(lo, from, to);
    hi = tni_clamp(hi, lo, to);
    memset(y, 0, (size_t)((lo - from) * c->bytes));
    if (hi > lo)
        tni_gather_run((size_t)c->bytes, y + (lo - from) * c->bytes,
                       row + (lo * stride + shift) * c->bytes, stride, hi - lo);
    memset(y + (hi - from) * c->bytes, 0, (size_t)((to - hi) * c->bytes));
}

// Channels first: rows k0 .. k1-1 of the windows of positions p0 .. p1-1 of the image and group at
// x. Each row is one element of the window for all positions, which are runs of a row of x. Rows of
// y are ld elements apart.
static void gather_columns(const tni_conv_plan *c, const char *x, int64_t k0, int64_t k1,
                           int64_t p0, int64_t p1, char *y, int64_t ld)
{
    for (int64_t k = k0; k < k1; k++) {
        int64_t     kw = k % c->KW, kh = k / c->KW % c->KH, kd = k / (c->KW * c->KH) % c->KD;
        int64_t     oh = p0 / c->OW % c->OH, od = p0 / c->OW / c->OH;
        const char *channel = x + k / c->T * c->I * c->bytes;
        char       *to      = y + (k - k0) * ld * c->bytes;
        for (int64_t p = p0, from = p0 % c->OW; p < p1; from = 0) {
            int64_t end = tni_min_i64(c->OW, from + p1 - p);
            int64_t h = axis_place(&c->along_h, oh, kh), d = axis_place(&c->along_d, od, kd);
            bool    in = h >= 0 && h < c->H && d >= 0 && d < c->D;
            fill_columns(c, to, in ? channel + (d * c->H + h) * c->W * c->bytes : NULL, kw, from,
                         end);
            to += (end - from) * c->bytes;
            p += end - from;
            if (++oh == c->OH) oh = 0, od++;
        }
    }
}

// Adds the element (kh, kw) of the windows of one slice of y, OH lines of OW, to a plane of x.
static void add_plane(const tni_conv_plan *c, const char *windows, int64_t kh, int64_t kw,
                      char *plane)
{
    int64_t shift = axis_place(&c->along_w, 0, kw), stride = c->along_w.stride, top, end, lo, hi;
    valid_range(axis_place(&c->along_h, 0, kh), c->along_h.stride, c->H, c->OH, &top, &end);
    valid_range(shift, stride, c->W, c->OW, &lo, &hi);
    for (int64_t i = top; i < end && lo < hi; i++) {
        char *y = plane + (axis_place(&c->along_h, i, kh) * c->W + lo * stride + shift) * c->bytes;
        tni_add_run(c->dtype, y, windows + (i * c->OW + lo) * c->bytes, stride, hi - lo);
    }
}

// Every element of the window is a shifted and strided copy of the channel. They are added in the
// order of k, so that the sums have a fixed order.
void tni_conv_add_channel(const tni_conv_plan *c, const char *windows, int64_t ld, char *channel)
{
    memset(channel, 0, (size_t)(c->I * c->bytes));
    for (int64_t k = 0; k < c->T; k++) {
        int64_t kd = k / (c->KW * c->KH), lo, hi;
        valid_range(axis_place(&c->along_d, 0, kd), c->along_d.stride, c->D, c->OD, &lo, &hi);
        for (int64_t i = lo; i < hi; i++)
            add_plane(c, windows + (k * ld + i * c->OH * c->OW) * c->bytes, k / c->KW % c->KH,
                      k % c->KW, channel + axis_place(&c->along_d, i, kd) * c->H * c->W * c->bytes);
    }
}

// ---- channels last: runs of channels -----------------------------------------------------------

// Finds the part of a row of a position's window that is inside x: elements *lo .. *hi-1 along kw,
// the first at offset *at. Rows are counted through depth and height, row = kd * KH + kh. Returns
// false if all of it is padding.
static bool window_row(const tni_conv_plan *c, int64_t p, int64_t row, int64_t *lo, int64_t *hi,
                       int64_t *at)
{
    bool    flat = c->KD == 1 && c->OD == 1;  // without divisions by OH and KH
    int64_t line = p / c->OW;
    int64_t h    = axis_place(&c->along_h, flat ? line : line % c->OH, flat ? row : row % c->KH);
    int64_t d    = axis_place(&c->along_d, flat ? 0 : line / c->OH, flat ? 0 : row / c->KH);
    int64_t w    = axis_place(&c->along_w, p % c->OW, 0);
    valid_range(w, c->along_w.dilation, c->W, c->KW, lo, hi);
    *at = ((d * c->H + h) * c->W + w + *lo * c->along_w.dilation) * c->C;
    return h >= 0 && h < c->H && d >= 0 && d < c->D && *lo < *hi;
}

// Returns whether a row of a window is one run of x: no dilation, and all channels in one group.
static bool has_contiguous_rows(const tni_conv_plan *c)
{
    return c->along_w.dilation == 1 && c->G == 1;
}

// Channels last: the window of a position of the image and group at x, KD * KH runs if rows are
// contiguous, else KD * KH * KW.
static void gather_window(const tni_conv_plan *c, const char *x, int64_t p, char *row)
{
    size_t run  = (size_t)(c->CG * c->bytes);
    bool   side = has_contiguous_rows(c);
    for (int64_t k = 0; k < c->KD * c->KH; k++, row += (size_t)c->KW * run) {
        int64_t lo, hi, at;
        if (!window_row(c, p, k, &lo, &hi, &at)) {
            memset(row, c->fill, (size_t)c->KW * run);
            continue;
        }
        if (lo > 0) memset(row, c->fill, (size_t)lo * run);
        if (side) memcpy(row + (size_t)lo * run, x + at * c->bytes, (size_t)(hi - lo) * run);
        for (int64_t i = lo; i < hi && !side; i++, at += c->along_w.dilation * c->C)
            memcpy(row + (size_t)i * run, x + at * c->bytes, run);
        if (hi < c->KW) memset(row + (size_t)hi * run, c->fill, (size_t)(c->KW - hi) * run);
    }
}

void tni_conv_add_rows(const tni_conv_plan *c, const char *windows, int64_t p0, int64_t p1, char *x)
{
    for (int64_t p = p0; p < p1; p++)
        for (int64_t k = 0; k < c->KD * c->KH; k++, windows += c->KW * c->CG * c->bytes) {
            int64_t lo, hi, at;
            if (!window_row(c, p, k, &lo, &hi, &at)) continue;
            int64_t step = has_contiguous_rows(c) ? hi - lo : 1;
            for (int64_t i = lo; i < hi; i += step, at += c->along_w.dilation * c->C)
                tni_add_run(c->dtype, x + at * c->bytes, windows + i * c->CG * c->bytes, 1,
                            step * c->CG);
        }
}

// ---- both --------------------------------------------------------------------------------------

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
