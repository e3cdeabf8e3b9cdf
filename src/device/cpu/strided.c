// Merges axes, copies runs of strided elements, and loads elements into tiles.
#include "device/cpu/strided.h"

#include <string.h>

tni_arg tni_arg_row_major(tn_dtype dt, int rank, const int64_t *size, void *data)
{
    tni_arg x = { .dtype = dt, .rank = rank, .data = data };
    for (int i = 0; i < rank; i++) x.size[i] = size[i];
    tni_shape_strides(rank, size, x.stride);
    return x;
}

bool tni_arg_is_row_major(const tni_arg *x)
{
    int64_t step = 1;
    for (int i = x->rank - 1; i >= 0; i--) {
        if (x->size[i] == 1) continue;
        if (x->stride[i] != step) return false;
        step *= x->size[i];
    }
    return true;
}

bool tni_arg_is_broadcast(const tni_arg *x)
{
    for (int i = 0; i < x->rank; i++)
        if (x->stride[i] != 0 && x->size[i] != 1) return false;
    return true;
}

// Returns whether an outer and an inner axis are one run in all arguments.
static bool is_one_run(int n, tni_arg *const *x, int outer, int inner)
{
    for (int k = 0; k < n; k++)
        if (x[k]->stride[outer] != x[k]->stride[inner] * x[k]->size[inner]) return false;
    return true;
}

// Goes through the axes outermost first and appends each to the axes kept so far, or merges it into
// the last of them. Fewer and longer axes make longer runs for the inner loops.
void tni_merge_axes(int n, tni_arg *const *x)
{
    int rank = x[0]->rank, kept = 0;
    for (int i = 0; i < rank; i++) {
        if (x[0]->size[i] == 1) continue;
        bool joins = kept > 0 && is_one_run(n, x, kept - 1, i);
        for (int k = 0; k < n; k++) {
            int64_t size                          = x[k]->size[i];
            x[k]->stride[joins ? kept - 1 : kept] = x[k]->stride[i];
            x[k]->size[joins ? kept - 1 : kept]   = joins ? x[k]->size[kept - 1] * size : size;
        }
        if (!joins) kept++;
    }
    for (int k = 0; k < n; k++) x[k]->rank = kept;
}

void tni_permute_axes(tni_arg *x, int rank, const int *perm)
{
    tni_arg y = *x;
    y.rank    = rank;
    for (int i = 0; i < rank; i++) {
        y.size[i]   = x->size[perm[i]];
        y.stride[i] = x->stride[perm[i]];
    }
    *x = y;
}

// An insertion sort, which is stable: axes of equal stride keep their order. Copies then walk
// memory in the order of their output.
void tni_sort_axes(int n, tni_arg *const *x)
{
    int rank = x[0]->rank, perm[TN_MAX_RANK];
    for (int i = 0; i < rank; i++) {
        int at = i;
        for (;
             at > 0 && tni_abs_stride(x[0]->stride[perm[at - 1]]) < tni_abs_stride(x[0]->stride[i]);
             at--)
            perm[at] = perm[at - 1];
        perm[at] = i;
    }
    for (int k = 0; k < n; k++) tni_permute_axes(x[k], rank, perm);
}

// The outermost axis needs no remainder, so that a number past the end is not folded back.
int64_t tni_arg_offset(const tni_arg *x, int64_t at)
{
    int64_t place = 0;
    for (int i = x->rank - 1; i > 0; i--) {
        place += at % x->size[i] * x->stride[i];
        at /= x->size[i];
    }
    return x->rank > 0 ? place + at * x->stride[0] : 0;
}

// ---- runs --------------------------------------------------------------------------------------

// One function for each element size, so that the compiler can use vector gathers or at least plain
// loads; a memcpy of a variable size would be a call for each element.
static void gather8(uint8_t *y, const uint8_t *x, int64_t stride, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] = x[i * stride];
}

static void gather16(uint16_t *y, const uint16_t *x, int64_t stride, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] = x[i * stride];
}

static void gather32(uint32_t *y, const uint32_t *x, int64_t stride, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] = x[i * stride];
}

static void gather64(uint64_t *y, const uint64_t *x, int64_t stride, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] = x[i * stride];
}

// Contiguous runs and repeated elements have faster ways than a strided loop.
void tni_gather_run(size_t bytes, void *y, const void *x, int64_t stride, int64_t n)
{
    if (stride == 1) memcpy(y, x, (size_t)n * bytes);
    else if (stride == 0) tni_fill_run(bytes, y, x, n);
    else if (bytes == 4) gather32(y, x, stride, n);
    else if (bytes == 2) gather16(y, x, stride, n);
    else if (bytes == 8) gather64(y, x, stride, n);
    else gather8(y, x, stride, n);
}

static void scatter8(uint8_t *y, const uint8_t *x, int64_t stride, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i * stride] = x[i];
}

static void scatter16(uint16_t *y, const uint16_t *x, int64_t stride, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i * stride] = x[i];
}

static void scatter32(uint32_t *y, const uint32_t *x, int64_t stride, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i * stride] = x[i];
}

static void scatter64(uint64_t *y, const uint64_t *x, int64_t stride, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i * stride] = x[i];
}

void tni_scatter_run(size_t bytes, void *y, const void *x, int64_t stride, int64_t n)
{
    if (stride == 1) memcpy(y, x, (size_t)n * bytes);
    else if (bytes == 4) scatter32(y, x, stride, n);
    else if (bytes == 2) scatter16(y, x, stride, n);
    else if (bytes == 8) scatter64(y, x, stride, n);
    else scatter8(y, x, stride, n);
}

// Integers are added as unsigned, so that they wrap. Floats that are rounded to be stored are added
// in f32, not here.
#define ADD(name, type, sum)                                                \
    static void name(void *to, const void *from, int64_t stride, int64_t n) \
    {                                                                       \
        type       *y = to;                                                 \
        const type *x = from;                                               \
        for (int64_t i = 0; i < n; i++) y[i * stride] = (type)(sum);        \
    }
ADD(add_f, float, y[i * stride] + x[i])
ADD(add_d, double, y[i * stride] + x[i])
ADD(add_8, uint8_t, y[i * stride] + x[i])
ADD(add_16, uint16_t, y[i * stride] + x[i])
ADD(add_32, uint32_t, y[i * stride] + x[i])
ADD(add_64, uint64_t, y[i * stride] + x[i])
ADD(or_8, uint8_t, y[i * stride] || x[i])

void tni_add_run(tn_dtype dt, void *y, const void *x, int64_t stride, int64_t n)
{
    size_t bytes = tni_dtype_size(dt);
    if (dt == TN_BOOL) or_8(y, x, stride, n);
    else if (tni_is_float(dt)) (bytes == 4 ? add_f : add_d)(y, x, stride, n);
    else (bytes == 1 ? add_8 : bytes == 2 ? add_16 : bytes == 4 ? add_32 : add_64)(y, x, stride, n);
}

static void fill16(uint16_t *y, uint16_t v, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] = v;
}

static void fill32(uint32_t *y, uint32_t v, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] = v;
}

static void fill64(uint64_t *y, uint64_t v, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] = v;
}

void tni_fill_run(size_t bytes, void *y, const void *x, int64_t n)
{
    if (bytes == 4) fill32(y, *(const uint32_t *)x, n);
    else if (bytes == 2) fill16(y, *(const uint16_t *)x, n);
    else if (bytes == 8) fill64(y, *(const uint64_t *)x, n);
    else memset(y, *(const uint8_t *)x, (size_t)n);
}

// ---- tiles -------------------------------------------------------------------------------------

// Does as little as possible: nothing if the elements are contiguous and of the right dtype; a
// conversion, or a gather; both only if they must. A single element that is broadcast is converted
// once.
const void *tni_tile_load_run(const tni_tiles *t, const char *x, tn_dtype dt, int64_t stride,
                              tn_dtype as, int64_t n, tni_tile_scratch *scratch)
{
    size_t bytes = tni_dtype_size(dt);
    if (stride == 1 && dt == as) return x;
    if (stride == 1) {
        tni_converter(t, dt, as)(scratch->ready, x, n);
    } else if (stride == 0) {
        if (dt != as) tni_converter(t, dt, as)(scratch->raw, x, 1);
        tni_fill_run(tni_dtype_size(as), scratch->ready, dt == as ? (const void *)x : scratch->raw,
                     n);
    } else if (dt == as) {
        tni_gather_run(bytes, scratch->ready, x, stride, n);
    } else {
        tni_gather_run(bytes, scratch->raw, x, stride, n);
        tni_converter(t, dt, as)(scratch->ready, scratch->raw, n);
    }
    return scratch->ready;
}

// Gathers n elements from element `first` on into y, as runs along the innermost axis.
static void gather_runs(const tni_arg *x, size_t bytes, int64_t first, int64_t n, char *y)
{
    int     last            = x->rank - 1;
    int64_t at[TN_MAX_RANK] = { 0 }, place = 0;
    for (int i = last; i >= 0; i--) {
        at[i] = i > 0 ? first % x->size[i] : first;
        place += at[i] * x->stride[i];
        first /= x->size[i];
    }
    while (n > 0) {
        const char *from = x->data + place * (int64_t)bytes;
        int64_t     run  = tni_min_i64(n, x->size[last] - at[last]);
        tni_gather_run(bytes, y, from, x->stride[last], run);
        y += run * (int64_t)bytes;
        n -= run;
        place -= at[last] * x->stride[last];
        at[last] = 0;
        for (int i = last - 1; i >= 0; i--) {
            place += x->stride[i];
            if (++at[i] < x->size[i]) break;
            place -= at[i] * x->stride[i];
            at[i] = 0;
        }
    }
}

// A tile within one line of the innermost axis is one run; else it is gathered line by line.
const void *tni_tile_load(const tni_tiles *t, const tni_arg *x, tn_dtype as, int64_t first,
                          int64_t n, tni_tile_scratch *scratch)
{
    int     last  = x->rank - 1;
    int64_t bytes = (int64_t)tni_dtype_size(x->dtype);
    if (last < 0) return tni_tile_load_run(t, x->data, x->dtype, 0, as, n, scratch);
    if (last == 0 || first % x->size[last] + n <= x->size[last])
        return tni_tile_load_run(t, x->data + tni_arg_offset(x, first) * bytes, x->dtype,
                                 x->stride[last], as, n, scratch);
    if (x->dtype == as) {
        gather_runs(x, (size_t)bytes, first, n, scratch->ready);
    } else {
        gather_runs(x, (size_t)bytes, first, n, scratch->raw);
        tni_converter(t, x->dtype, as)(scratch->ready, scratch->raw, n);
    }
    return scratch->ready;
}
