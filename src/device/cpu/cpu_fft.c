// Fourier transforms: tables of the lengths of a call, made once, and lines of every axis in turn,
// in groups that threads share. Lines are transformed by fft_lanes.inc; how each length is cut is
// decided here.
//
// A length is cut by what it is made of:
//
//   1024 = 4 4 4 4 4        passes over the lanes, one for each factor: 4 as long as possible, then 2, 3, 5, and primes up to 31
//   16384 = 128 128         too long for the cache, or a line that is alone: 128 columns, twiddles, 128 lines, as a matrix (Bailey's four steps)
//   997                     a large prime: with c[k] = e^(-pi i k k / n), of which j k = (j j + k k - (j - k)^2) / 2 makes
//                           y[k] = c[k] sum_j (x[j] c[j]) conj(c[k - j]), a convolution, by transforms of 2048 (Bluestein)
//
// Real lines go two in a lane, one as the real and one as the imaginary part: half of the work.
// Roots of unity are those of tni_fft_root, to the last bit or so, so that the error of a transform
// is that of its passes, one rounding for each.
#include "base/pool.h"
#include "device/cpu/cpu_ops.h"
#include "device/cpu/fft_lanes.h"

#include <string.h>

enum {
    // Elements of a line from which it is cut in two: the lanes then take more than the second
    // cache.
    LONG_LINE = 8192,
    // A line that is alone, or one of few, is cut from here on, which fills the lanes; below, that
    // gains nothing.
    SHORT_LINE = 64
};

// What is kept of a call from run to run: the lines of each axis, in one block.
typedef struct {
    void (*forget)(void *entry);
    tni_heap     *heap;
    tni_fft_lines axis[3];
} fft_tables;

// ---- tables ------------------------------------------------------------------------------------

// The radices of n: 4 as long as possible, then small primes. False if a factor is above
// TNI_FFT_RADIX.
static bool factor(tni_fft_table *f, int64_t n)
{
    static const int first[] = { 4, 2, 3, 5 };
    f->n                     = n;
    f->passes                = 0;
    for (int i = 0; i < 4; i++)
        for (; n % first[i] == 0; n /= first[i]) f->radix[f->passes++] = (uint8_t)first[i];
    for (int p = 7; p <= TNI_FFT_RADIX; p += 2)
        for (; n % p == 0; n /= p) f->radix[f->passes++] = (uint8_t)p;
    return n == 1;
}

// The divisor of n next below its root.
static int64_t middle_divisor(int64_t n)
{
    int64_t d = 1;
    for (int64_t k = 2; k * k <= n; k++)
        if (n % k == 0) d = k;
    return d;
}

// Numbers of twiddles of a table.
static int64_t twiddles(const tni_fft_table *f)
{
    int64_t m = f->n, count = 0;
    for (int i = 0; i < f->passes; i++) {
        m /= f->radix[i];
        count += m * (f->radix[i] - 1) + (f->radix[i] > 5 ? f->radix[i] : 0);
    }
    return count;
}

// Writes a complex number as the type of `bytes` a part has.
static void put(void *to, int64_t at, int64_t bytes, const double w[2])
{
    for (int i = 0; i < 2; i++)
        if (bytes == 8) ((double *)to)[2 * at + i] = w[i];
        else ((float *)to)[2 * at + i] = (float)w[i];
}

// The twiddles of pass after pass, in the order in which they are read: those of a group's r - 1
// elements are next to each other.
static void fill_twiddles(const tni_fft_table *f, int64_t bytes)
{
    int64_t m = f->n, at = 0;
    double  w[2];
    for (int i = 0; i < f->passes; i++) {
        int r = f->radix[i];
        m /= r;
        for (int64_t p = 0; p < m; p++)
            for (int k = 1; k < r; k++) {
                tni_fft_root(m * r, p * k % (m * r), w);
                put(f->twiddle, at++, bytes, w);
            }
        for (int k = 0; r > 5 && k < r; k++) {
            tni_fft_root(r, k, w);
            put(f->twiddle, at++, bytes, w);
        }
    }
}

// Decides how lines of n are transformed, `lines` of them; writes no tables yet. A chirp needs m >=
// 2 n - 1 elements, so that what wraps around meets zeros. A split whose parts would not fill the
// lanes is none.
static void choose_lines(tni_fft_lines *f, int64_t n, int64_t lines, int lanes)
{
    *f = (tni_fft_lines){ .n = n };
    if (!factor(&f->first, n)) {
        int64_t m = 1;
        while (m < 2 * n - 1) m *= 2;
        factor(&f->first, m);
        f->chirp = f;  // to be filled
        return;
    }
    int64_t d = n >= LONG_LINE || (lines < lanes && n >= SHORT_LINE) ? middle_divisor(n) : 1;
    if (d < lanes) return;
    f->split = true;
    factor(&f->first, d);
    factor(&f->second, n / d);
    while ((int64_t)1 << (2 * f->shift) < n) f->shift++;
}

// Bytes of the tables of an axis: about as much as one line for passes, two for a chirp, and the
// square root of that for a split, whose twiddles are products of two.
static int64_t table_bytes(const tni_fft_lines *f, int64_t bytes)
{
    int64_t all = tni_align64(2 * bytes * twiddles(&f->first)) +
                  tni_align64(2 * bytes * twiddles(&f->second));
    if (f->split)
        all += tni_align64(16 * ((f->n >> f->shift) + 1)) + tni_align64((int64_t)16 << f->shift);
    if (f->chirp) all += tni_align64(2 * bytes * f->n) + tni_align64(2 * bytes * f->first.n);
    return all;
}

// The next `bytes` of the block of tables.
static void *take(char **at, int64_t bytes)
{
    void *p = *at;
    *at += tni_align64(bytes);
    return p;
}

// Fills the tables of an axis from *at on. scratch: of a group. The squares of a chirp are taken
// modulo 2 n as they grow: k k itself has more digits than an angle.
static void fill_lines(tni_fft_lines *f, int64_t bytes, char **at, char *scratch)
{
    double w[2];
    f->first.twiddle  = take(at, 2 * bytes * twiddles(&f->first));
    f->second.twiddle = take(at, 2 * bytes * twiddles(&f->second));
    fill_twiddles(&f->first, bytes);
    if (f->split) {
        int64_t most = f->n >> f->shift, step = (int64_t)1 << f->shift;
        fill_twiddles(&f->second, bytes);
        f->coarse = take(at, 16 * (most + 1));
        f->fine   = take(at, 16 * step);
        for (int64_t k = 0; k <= most && k * step < f->n; k++)
            tni_fft_root(f->n, k * step, f->coarse + 2 * k);
        for (int64_t k = 0; k < step && k < f->n; k++) tni_fft_root(f->n, k, f->fine + 2 * k);
    }
    if (!f->chirp) return;
    f->chirp  = take(at, 2 * bytes * f->n);
    f->filter = take(at, 2 * bytes * f->first.n);
    for (int64_t k = 0, e = 0; k < f->n; e = (e + 2 * k + 1) % (2 * f->n), k++) {
        tni_fft_root(2 * f->n, e, w);  // e = k k
        put(f->chirp, k, bytes, w);
    }
    tni_fft_isa_get()->chirp[bytes == 8](f, scratch);
}

// ---- a call ------------------------------------------------------------------------------------

// Threads take groups of lines: as many as a vector has lanes, or, of columns, as fill whole lines
// of the cache, so that no two threads write to one. Few lines are few groups: a single long line
// runs on one thread.
//
// What threads share: lines of one axis. Groups lie side by side along `inner`, the elements after
// the axis, or, where there are none, one line after the other.
typedef struct {
    const tni_fft_lines *lines;
    tni_fft_group        group;
    int64_t              count, inner, per_item, in_outer, out_outer, bytes, each;
    int                  lanes;  // of columns; 0: lines one after the other
    char                *scratch;
    void (*run)(const tni_fft_group *g);
} axis_job;

// Group i: some lines of one slab of `inner`, or of all lines.
static void run_group(void *arg, int64_t i, int worker)
{
    const axis_job *j      = arg;
    tni_fft_group   g      = j->group;
    int64_t         across = (j->inner + j->per_item - 1) / j->per_item;
    int64_t         outer = i / across, first = i % across * j->per_item;
    int64_t         left = j->inner - first;
    g.count              = (int)(left < j->per_item ? left : j->per_item);
    g.in      = (const char *)g.in + (outer * j->in_outer + first * g.in_pitch) * j->bytes;
    g.out     = (char *)g.out + (outer * j->out_outer + first * g.out_pitch) * j->bytes;
    g.scratch = j->scratch + worker * j->each;
    // Columns beside whole vectors of them are a group of their own.
    int rest = j->lanes ? g.count % j->lanes : 0;
    if (rest && g.count > j->lanes) {
        g.count -= rest;
        j->run(&g);
        g.in    = (const char *)g.in + g.count * g.in_pitch * j->bytes;
        g.out   = (char *)g.out + g.count * g.out_pitch * j->bytes;
        g.count = rest;
    }
    j->run(&g);
}

// Runs the lines of an axis, `outer` slabs of them.
static void run_axis(const tni_call *call, axis_job *j, int64_t outer)
{
    int64_t across = (j->inner + j->per_item - 1) / j->per_item;
    tni_parallel(call->threads, outer * across, run_group, j);
}

// Bytes of scratch of one worker: the longest axis' group.
static int64_t worker_bytes(const tni_fft_lines *axis, int axes, int64_t bytes)
{
    int64_t most = 0;
    for (int i = 0; i < axes; i++) {
        int64_t one = tni_fft_group_scratch(&axis[i], bytes);
        most        = one > most ? one : most;
    }
    return tni_align64(most);
}

// A line of another axis than the last lies beside others, as many as there are elements after it:
// these fill the lanes, and the line need not be cut for that.
//
// How the axes of a call are cut. Lines of an axis count as one where others lie beside them.
static void choose_axes(const tni_fft *f, tni_fft_lines *axis)
{
    int     a = f->how.axes, lanes = tni_fft_isa_get()->lanes[f->dtype == TN_F64];
    int64_t lines = f->batch, last = f->how.kind == TNI_FFT_C2C ? f->n[a - 1] : f->half;
    for (int i = 0; i + 1 < a; i++) lines *= f->n[i];
    for (int i = a - 1, rest = 0; i >= 0; i--, rest++)
        choose_lines(&axis[i], f->n[i], rest ? last : lines, lanes);
}

// Of spectra to real numbers over several axes, a copy of the spectra comes first in scratch.
static int64_t copy_bytes_of(const tni_fft *f)
{
    int64_t n = 2 * f->batch * f->half * (int64_t)tni_dtype_size(f->dtype);
    if (f->how.kind != TNI_FFT_C2R || f->how.axes == 1) return 0;
    for (int i = 0; i + 1 < f->how.axes; i++) n *= f->n[i];
    return tni_align64(n);
}

// Each worker has lanes of its own.
size_t tni_cpu_fft_scratch(const tni_call *call)
{
    tni_fft       f = tni_fft_of(call);
    tni_fft_lines axis[3];
    choose_axes(&f, axis);
    int64_t bytes = (int64_t)tni_dtype_size(f.dtype);
    return (size_t)(copy_bytes_of(&f) + call->threads * worker_bytes(axis, f.how.axes, bytes));
}

// Tables are one block with what describes them.
static void forget_tables(void *entry)
{
    fft_tables *t = entry;
    tni_free64(t->heap, t);
}

// The tables of a call in one block; NULL if memory is out.
static fft_tables *make_tables(const tni_call *call)
{
    tni_fft       f     = tni_fft_of(call);
    int64_t       bytes = (int64_t)tni_dtype_size(f.dtype), all = tni_align64(sizeof(fft_tables));
    tni_heap     *heap = call->session;
    tni_fft_lines axis[3];
    choose_axes(&f, axis);
    for (int i = 0; i < f.how.axes; i++) all += table_bytes(&axis[i], bytes);
    fft_tables *t       = tni_alloc64(heap, (size_t)all);
    char       *scratch = tni_alloc64(heap, (size_t)worker_bytes(axis, f.how.axes, bytes));
    char       *at      = (char *)t + tni_align64(sizeof *t);
    if (t && scratch) {
        t->heap   = heap;
        t->forget = forget_tables;
        memcpy(t->axis, axis, sizeof axis);
        for (int i = 0; i < f.how.axes; i++) fill_lines(&t->axis[i], bytes, &at, scratch);
    } else if (t) {
        tni_free64(heap, t);
        t = NULL;
    }
    if (scratch) tni_free64(heap, scratch);
    return t;
}

// Sines of some thousand angles take longer than a transform does.
void *tni_cpu_prepare_fft(const tni_call *call)
{
    return make_tables(call);
}

// The last axis, whose lines are contiguous, from `in` to the result.
static void run_last(const tni_call *call, const tni_fft *f, const fft_tables *t, axis_job *j,
                     const void *in, int64_t lines)
{
    int     kind = f->how.kind, isa = f->dtype == TN_F64, last = f->how.axes - 1;
    int64_t n   = f->n[last];
    j->lines    = &t->axis[last];
    j->inner    = lines;
    j->lanes    = 0;
    j->per_item = tni_fft_isa_get()->lanes[isa] * (kind == TNI_FFT_C2C ? 1 : 2);
    if (j->lines->split) j->per_item = 1;
    j->group = (tni_fft_group){
        .f         = j->lines,
        .kind      = kind,
        .inverse   = kind == TNI_FFT_C2R || f->how.inverse,
        .scale     = f->how.scale,
        .in        = in,
        .out       = f->out,
        .in_step   = 2,
        .out_step  = 2,
        .in_pitch  = kind == TNI_FFT_R2C ? n : 2 * (kind == TNI_FFT_C2C ? n : f->half),
        .out_pitch = kind == TNI_FFT_C2R ? n : 2 * (kind == TNI_FFT_C2C ? n : f->half)
    };
    run_axis(call, j, 1);
}

// The axes before the last, in place: lines beside each other fill the lanes.
static void run_others(const tni_call *call, const tni_fft *f, const fft_tables *t, axis_job *j,
                       char *x, int64_t last, bool inverse)
{
    int64_t inner = last, outer = f->batch;
    for (int i = 0; i + 1 < f->how.axes; i++) outer *= f->n[i];
    for (int i = f->how.axes - 2; i >= 0; i--) {
        int64_t n = f->n[i];
        outer /= n;
        j->lines    = &t->axis[i];
        j->inner    = inner;
        j->per_item = j->lines->split
                          ? 1
                          : tni_fft_isa_get()->lanes[f->dtype == TN_F64] * TNI_FFT_COLUMNS;
        j->lanes    = j->lines->split ? 0 : tni_fft_isa_get()->lanes[f->dtype == TN_F64];
        j->in_outer = j->out_outer = 2 * n * inner;
        j->group                   = (tni_fft_group){ .f         = j->lines,
                                                      .inverse   = inverse,
                                                      .scale     = 1,
                                                      .in        = x,
                                                      .out       = x,
                                                      .in_step   = 2 * inner,
                                                      .out_step  = 2 * inner,
                                                      .in_pitch  = 2,
                                                      .out_pitch = 2 };
        run_axis(call, j, outer);
        inner *= n;
    }
}

// The last axis first, from the input to the result, then the others in place; of spectra to real
// numbers the others first, in a copy. Lines are computed alone, so that the number of threads
// changes no bit.
tn_status tni_cpu_fft(const tni_call *call)
{
    tni_fft           f    = tni_fft_of(call);
    fft_tables       *made = call->entry ? NULL : make_tables(call);
    const fft_tables *t    = call->entry ? call->entry : made;
    if (!t) {
        tni_text_add(call->why, "fft: out of memory");
        return TN_EMEM;
    }
    int64_t  copy = copy_bytes_of(&f), lines = f.batch;
    axis_job j = { .bytes   = (int64_t)tni_dtype_size(f.dtype),
                   .scratch = (char *)call->scratch + copy,
                   .run     = tni_fft_isa_get()->run[f.dtype == TN_F64] };
    j.each     = worker_bytes(t->axis, f.how.axes, j.bytes);
    for (int i = 0; i + 1 < f.how.axes; i++) lines *= f.n[i];
    const void *in = f.in;
    if (copy) {
        memcpy(call->scratch, f.in, (size_t)(2 * lines * f.half * j.bytes));
        run_others(call, &f, t, &j, call->scratch, f.half, true);
        in = call->scratch;
    }
    run_last(call, &f, t, &j, in, lines);
    if (f.how.kind != TNI_FFT_C2R)
        run_others(call, &f, t, &j, f.out, f.how.kind == TNI_FFT_C2C ? f.n[f.how.axes - 1] : f.half,
                   f.how.inverse);
    if (made) forget_tables(made);
    return TN_OK;
}
