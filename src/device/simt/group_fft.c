// Fourier transforms by the kernels of group_text_fft.c, axis by axis, if every length is a power
// of two that local memory holds; others run on the host.
#include "device/host_fft.h"
#include "device/host_linalg.h"
#include "device/simt/groups.h"

#include <string.h>

// The kernels' parameters, `fft_params` of the text: places and strides in numbers. Line l begins
// at l / inner * outer + l % inner * pitch, and its elements are `step` apart.
typedef struct {
    int64_t at_x, at_y, lines, inner, outer_x, outer_y, pitch_x, pitch_y, step_x, step_y;
    float   scale[3];  // their sum
    int32_t n, log_n, kind, inverse, unused;
} fft_params;

_Static_assert(sizeof(fft_params) == 10 * 8 + 8 * 4,
               "no padding: the text declares the same fields");

// Lines of another length, or of a length that is no power of two, would need twiddles and radices
// of their own, or several launches: on a device without cuFFT they are rare enough to go to the
// host.
//
// Elements of a line, at most: two arrays of them, of 4 or 8 bytes, are in the 32 KiB of local
// memory that OpenCL promises.
bool tni_groups_takes_fft(const tni_call *c)
{
    tni_fft f    = tni_fft_of(c);
    int64_t most = f.dtype == TN_F64 ? 1024 : 2048;
    for (int i = 0; i < f.how.axes; i++)
        if (f.n[i] > most || (f.n[i] & (f.n[i] - 1))) return false;
    return true;
}

// A double as floats of which each holds what the ones before leave.
static void put_scale(fft_params *o, double v)
{
    for (int i = 0; i < 3; i++) {
        o->scale[i] = (float)v;
        v -= (double)o->scale[i];
    }
}

// Launches the lines of one axis from x to y, which may be one.
static tn_status launch_lines(const tni_call *c, tn_dtype dt, const void *x, void *y, fft_params o)
{
    tni_kernel_args h;
    int64_t         e = (int64_t)tni_dtype_size(dt), group = o.n > 1024 ? 2048 : 1024;
    tn_status       s = tni_kernel_args_begin(&h, c, tni_text_fft,
                                        o.n > 1024 ? "fft_lines_2" : "fft_lines_1", dt, dt);
    if (s != TN_OK || o.lines == 0) return s;
    while (1 << o.log_n < o.n) o.log_n++;
    o.at_x = tni_kernel_args_add_buffer(&h, x) / e;
    o.at_y = tni_kernel_args_add_buffer(&h, y) / e;
    tni_kernel_args_add(&h, &o, sizeof o);
    return tni_kernel_args_launch(&h, tni_ceil_div(o.lines, group / o.n), 256, c->why);
}

// Lines of an axis before the last are columns: neighbours of a group's items are `inner` pairs
// apart, so that memory is read in pieces of 8 or 16 bytes. A library, where there is one, does
// that better.
//
// The axes before the last, whose elements have `last` pairs each; from x to y first, then in
// place.
static tn_status launch_others(const tni_call *c, const tni_fft *f, const void *x, void *y,
                               int64_t last, bool inverse)
{
    int64_t   inner = last, lines = f->batch * last;
    tn_status s = TN_OK;
    for (int i = 0; i + 1 < f->how.axes; i++) lines *= f->n[i];
    for (int i = f->how.axes - 2; i >= 0 && s == TN_OK; i--) {
        int64_t    n = f->n[i];
        fft_params o = { .lines   = lines / n,
                         .inner   = inner,
                         .outer_x = 2 * n * inner,
                         .outer_y = 2 * n * inner,
                         .pitch_x = 2,
                         .pitch_y = 2,
                         .step_x  = 2 * inner,
                         .step_y  = 2 * inner,
                         .scale   = { 1 },
                         .n       = (int32_t)n,
                         .inverse = inverse };
        s            = launch_lines(c, f->dtype, x, y, o);
        x            = y;
        inner *= n;
    }
    return s;
}

// Of spectra to real numbers over several axes: the spectra after all axes but the last.
size_t tni_groups_fft_scratch(const tni_call *c)
{
    tni_fft f = tni_fft_of(c);
    int64_t n = 2 * f.batch * f.half * (int64_t)tni_dtype_size(f.dtype);
    if (f.how.kind != TNI_FFT_C2R || f.how.axes == 1) return 0;
    for (int i = 0; i + 1 < f.how.axes; i++) n *= f.n[i];
    return (size_t)n;
}

// The last axis from the input to the result, the others in place; of spectra to real numbers the
// others first, into scratch.
tn_status tni_groups_fft_lines(const tni_call *c)
{
    tni_fft     f   = tni_fft_of(c);
    bool        c2c = f.how.kind == TNI_FFT_C2C, c2r = f.how.kind == TNI_FFT_C2R;
    int64_t     n = f.n[f.how.axes - 1], pairs = 2 * (c2c ? n : f.half), lines = f.batch;
    tn_status   s  = TN_OK;
    const void *in = f.in;
    for (int i = 0; i + 1 < f.how.axes; i++) lines *= f.n[i];
    if (c2r && f.how.axes > 1) {
        s  = launch_others(c, &f, in, c->scratch, f.half, true);
        in = c->scratch;
    }
    fft_params o = { .lines   = lines,
                     .inner   = lines ? lines : 1,
                     .pitch_x = f.how.kind == TNI_FFT_R2C ? n : pairs,
                     .pitch_y = c2r ? n : pairs,
                     .step_x  = f.how.kind == TNI_FFT_R2C ? 1 : 2,
                     .step_y  = c2r ? 1 : 2,
                     .n       = (int32_t)n,
                     .kind    = f.how.kind,
                     .inverse = c2r || f.how.inverse };
    put_scale(&o, f.how.scale);
    if (s == TN_OK) s = launch_lines(c, f.dtype, in, f.out, o);
    if (s == TN_OK && !c2r) s = launch_others(c, &f, f.out, f.out, pairs / 2, f.how.inverse);
    return s;
}

// Eight numbers for each item, as the kernel has them.
tn_status tni_groups_fft_scale(const tni_call *c)
{
    tni_kernel_args h;
    fft_params      o = { .lines = tni_shape_count(c->out.rank, c->out.size) };
    tn_status       s = tni_kernel_args_begin(&h, c, tni_text_fft, "fft_scale", c->out.dtype,
                                              c->out.dtype);
    if (s != TN_OK) return s;
    put_scale(&o, c->attr->fft.scale);
    o.at_y = tni_kernel_args_add_buffer(&h, c->out.data) / (int64_t)tni_dtype_size(c->out.dtype);
    tni_kernel_args_add(&h, &o, sizeof o);
    return tni_kernel_args_launch(&h, tni_ceil_div(o.lines, 2048), 256, c->why);
}

tn_status tni_groups_fft(const tni_call *c)
{
    return tni_groups_takes_fft(c) ? tni_groups_fft_lines(c) : tni_call_on_host(c);
}
