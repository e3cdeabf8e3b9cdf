// The kernels written by hand, as text. Each is compiled for XT, the dtype of the elements it
// reads, and YT, that of its results; FP64 is defined where the device has doubles. Pieces are kept
// short: C11 promises no more than 4,095 characters in a literal.
//
// What comes before is the math prelude. A shape says where elements lie; `place` counts them in
// row-major order. Integers are added and multiplied without signs, so that they wrap.
#include "device/opencl/opencl.h"

#define CL(...) #__VA_ARGS__ "\n"

// clang-format off

// ---- common ------------------------------------------------------------------------------------

const char *const tni_cl_text_common[] = {
    "#define CAT_(a, b) a##b\n"
    "#define CAT(a, b) CAT_(a, b)\n",
    // An element in memory, in computing, and in sums without signs.
    CL(typedef uchar  kept_BOOL; typedef int    type_BOOL; typedef uint   sum_BOOL;
       typedef uchar  kept_U8;   typedef int    type_U8;   typedef uint   sum_U8;
       typedef char   kept_I8;   typedef int    type_I8;   typedef uint   sum_I8;
       typedef int    kept_I32;  typedef int    type_I32;  typedef uint   sum_I32;
       typedef long   kept_I64;  typedef long   type_I64;  typedef ulong  sum_I64;
       typedef ushort kept_F16;  typedef float  type_F16;  typedef float  sum_F16;
       typedef ushort kept_BF16; typedef float  type_BF16; typedef float  sum_BF16;
       typedef float  kept_F32;  typedef float  type_F32;  typedef float  sum_F32;),
    CL(M_FN int   get_BOOL(uchar v)  { return v; }
       M_FN int   get_U8(uchar v)    { return v; }
       M_FN int   get_I8(char v)     { return v; }
       M_FN int   get_I32(int v)     { return v; }
       M_FN long  get_I64(long v)    { return v; }
       M_FN float get_F16(ushort v)  { return m_half_to_float(v); }
       M_FN float get_BF16(ushort v) { return m_bf16_to_float(v); }
       M_FN float get_F32(float v)   { return v; }
       M_FN uchar  put_BOOL(uint v)  { return v != 0; }
       M_FN uchar  put_U8(uint v)    { return (uchar)v; }
       M_FN char   put_I8(uint v)    { return (char)v; }
       M_FN int    put_I32(uint v)   { return (int)v; }
       M_FN long   put_I64(ulong v)  { return (long)v; }
       M_FN ushort put_F16(float v)  { return m_float_to_half(v); }
       M_FN ushort put_BF16(float v) { return m_float_to_bf16(v); }
       M_FN float  put_F32(float v)  { return v; }),
    // Long sums of floats are kept in double where there is one.
    "#ifdef FP64\n",
    CL(typedef double kept_F64; typedef double type_F64; typedef double sum_F64;
       typedef double wide_F16; typedef double wide_BF16; typedef double wide_F32;
       typedef double wide_F64;
       M_FN double get_F64(double v) { return v; }
       M_FN double put_F64(double v) { return v; }),
    "#else\n",
    CL(typedef float wide_F16; typedef float wide_BF16; typedef float wide_F32;),
    "#endif\n",
    CL(typedef ulong wide_BOOL; typedef ulong wide_U8; typedef ulong wide_I8;
       typedef ulong wide_I32; typedef ulong wide_I64;
       typedef CAT(kept_, XT) x_kept; typedef CAT(type_, XT) x_type; typedef CAT(sum_, XT) x_sum;
       typedef CAT(kept_, YT) y_kept; typedef CAT(type_, YT) y_type; typedef CAT(sum_, YT) y_sum;
       typedef CAT(wide_, YT) y_wide;),
    "#define x_get(v) CAT(get_, XT)(v)\n"
    "#define y_get(v) CAT(get_, YT)(v)\n"
    "#define y_put(v) CAT(put_, YT)((y_sum)(v))\n",
    CL(typedef struct { long at; int rank; int unused; long size[8]; long stride[8]; } shape;
       M_FN long place(const shape *s, long i) {
           long p = s->at;
           for (int k = s->rank - 1; k > 0; k--) {
               p += i % s->size[k] * s->stride[k];
               i /= s->size[k];
           }
           return s->rank > 0 ? p + i * s->stride[0] : p;
       }),
    NULL,
};

// ---- matrix products ---------------------------------------------------------------------------

// y (M, N) = a (M, K) @ b (K, N) for each matrix of a batch. The shapes are of the batch; row and
// column strides are their stride[6] and stride[7]. A group makes a tile of 64 by 64 and an item 4
// by 4 of it, 16 of K at a time through local memory. Tiles are read along the axis that is dense.
const char *const tni_cl_text_matmul[] = {
    CL(M_FN void bring(local x_sum (*tile)[68], global const x_kept *x, long at, long across,
                       long along, long first, long end, long k, long K, int lid) {
           for (int i = lid; i < 64 * 16; i += 256) {
               int r = across == 1 ? i % 64 : i / 16;
               int c = across == 1 ? i / 64 : i % 16;
               long p = at + (first + r) * across + (k + c) * along;
               tile[c][r] = first + r < end && k + c < K ? (x_sum)x_get(x[p]) : (x_sum)0;
           }
       }),
    CL(kernel __attribute__((reqd_work_group_size(16, 16, 1)))
       void matmul(global const x_kept *a, shape sa, global const x_kept *b, shape sb,
                   global y_kept *y, shape sy, long M, long N, long K) {
           local x_sum ta[16][68];
           local x_sum tb[16][68];
           int tx = get_local_id(0);
           int ty = get_local_id(1);
           int lid = ty * 16 + tx;
           long col = get_group_id(0) * 64;
           long row = get_group_id(1) * 64;
           long at_a = place(&sa, get_group_id(2));
           long at_b = place(&sb, get_group_id(2));
           long at_y = place(&sy, get_group_id(2));
           x_sum acc[4][4];
           for (int i = 0; i < 4; i++)
               for (int j = 0; j < 4; j++) acc[i][j] = 0;
           for (long k = 0; k < K; k += 16) {
               bring(ta, a, at_a, sa.stride[6], sa.stride[7], row, M, k, K, lid);
               bring(tb, b, at_b, sb.stride[7], sb.stride[6], col, N, k, K, lid);
               barrier(CLK_LOCAL_MEM_FENCE);
               for (int c = 0; c < 16; c++) {
                   x_sum va[4];
                   x_sum vb[4];
                   for (int i = 0; i < 4; i++) va[i] = ta[c][ty * 4 + i];
                   for (int j = 0; j < 4; j++) vb[j] = tb[c][tx * 4 + j];
                   for (int i = 0; i < 4; i++)
                       for (int j = 0; j < 4; j++) acc[i][j] += va[i] * vb[j];
               }
               barrier(CLK_LOCAL_MEM_FENCE);
           }
           for (int i = 0; i < 4; i++)
               for (int j = 0; j < 4; j++) {
                   long r = row + ty * 4 + i;
                   long c = col + tx * 4 + j;
                   if (r < M && c < N)
                       y[at_y + r * sy.stride[6] + c * sy.stride[7]] = y_put(acc[i][j]);
               }
       }),
    NULL,
};

// ---- convolution -------------------------------------------------------------------------------

// The shapes are of x (N, C, H, W), w (O, C / groups, KH, KW) and y (N, O, OH, OW) whichever of
// them is the result. One item an element of the result; the gradient for w is a sum over all
// images and places, for which a group of 64 works together.
const char *const tni_cl_text_conv[] = {
    CL(typedef struct { long step[2]; long pad[2]; long dilation[2]; long groups; long count; } how;
       M_FN long at4(const shape *s, long a, long b, long c, long d) {
           return s->at + a * s->stride[0] + b * s->stride[1] + c * s->stride[2] + d * s->stride[3];
       }
       M_FN void split4(const shape *s, long i, long *at) {
           for (int k = 3; k >= 0; k--) {
               at[k] = i % s->size[k];
               i /= s->size[k];
           }
       }),
    CL(kernel void conv(global const x_kept *x, shape sx, global const x_kept *w, shape sw,
                        global x_kept *y, shape sy, how o) {
           long at[4];
           if (get_global_id(0) >= o.count) return;
           split4(&sy, get_global_id(0), at);
           long first = at[1] / (sw.size[0] / o.groups) * sw.size[1];
           x_sum sum = 0;
           for (long c = 0; c < sw.size[1]; c++)
               for (long i = 0; i < sw.size[2]; i++) {
                   long row = at[2] * o.step[0] - o.pad[0] + i * o.dilation[0];
                   if (row < 0 || row >= sx.size[2]) continue;
                   for (long j = 0; j < sw.size[3]; j++) {
                       long col = at[3] * o.step[1] - o.pad[1] + j * o.dilation[1];
                       if (col < 0 || col >= sx.size[3]) continue;
                       sum += (x_sum)x_get(x[at4(&sx, at[0], first + c, row, col)]) *
                              (x_sum)x_get(w[at4(&sw, at[1], c, i, j)]);
                   }
               }
           y[at4(&sy, at[0], at[1], at[2], at[3])] = y_put(sum);
       }),
    CL(kernel void conv_dgrad(global x_kept *x, shape sx, global const x_kept *w, shape sw,
                              global const x_kept *y, shape sy, how o) {
           long at[4];
           if (get_global_id(0) >= o.count) return;
           split4(&sx, get_global_id(0), at);
           long outs = sw.size[0] / o.groups;
           long first = at[1] / sw.size[1] * outs;
           long c = at[1] % sw.size[1];
           x_sum sum = 0;
           for (long i = 0; i < sw.size[2]; i++) {
               long row = at[2] + o.pad[0] - i * o.dilation[0];
               if (row < 0 || row % o.step[0] != 0 || row / o.step[0] >= sy.size[2]) continue;
               for (long j = 0; j < sw.size[3]; j++) {
                   long col = at[3] + o.pad[1] - j * o.dilation[1];
                   if (col < 0 || col % o.step[1] != 0 || col / o.step[1] >= sy.size[3]) continue;
                   for (long k = first; k < first + outs; k++)
                       sum += (x_sum)x_get(
                                  y[at4(&sy, at[0], k, row / o.step[0], col / o.step[1])]) *
                              (x_sum)x_get(w[at4(&sw, k, c, i, j)]);
               }
           }
           x[at4(&sx, at[0], at[1], at[2], at[3])] = y_put(sum);
       }),
    CL(kernel __attribute__((reqd_work_group_size(64, 1, 1)))
       void conv_wgrad(global const x_kept *x, shape sx, global x_kept *w, shape sw,
                       global const x_kept *y, shape sy, how o) {
           local x_sum part[64];
           int lid = get_local_id(0);
           long at[4];
           split4(&sw, get_group_id(0), at);
           long channel = at[0] / (sw.size[0] / o.groups) * sw.size[1] + at[1];
           long places = sy.size[2] * sy.size[3];
           x_sum sum = 0;
           for (long p = lid; p < sy.size[0] * places; p += 64) {
               long image = p / places;
               long i = p % places / sy.size[3];
               long j = p % sy.size[3];
               long row = i * o.step[0] - o.pad[0] + at[2] * o.dilation[0];
               long col = j * o.step[1] - o.pad[1] + at[3] * o.dilation[1];
               if (row < 0 || row >= sx.size[2] || col < 0 || col >= sx.size[3]) continue;
               sum += (x_sum)x_get(x[at4(&sx, image, channel, row, col)]) *
                      (x_sum)x_get(y[at4(&sy, image, at[0], i, j)]);
           }
           part[lid] = sum;
           for (int half_ = 32; half_ > 0; half_ /= 2) {
               barrier(CLK_LOCAL_MEM_FENCE);
               if (lid < half_) part[lid] += part[lid + half_];
           }
           if (lid == 0) w[at4(&sw, at[0], at[1], at[2], at[3])] = y_put(part[0]);
       }),
    NULL,
};

// ---- folds along axes --------------------------------------------------------------------------

const char *const tni_cl_text_fold[] = {
    // Running sums and products: a group of 64 for each line, every item a stretch of it. Totals
    // before a stretch are added up in order.
    CL(M_FN y_wide join(y_wide a, y_wide b, int product) { return product ? a * b : a + b; }
       kernel __attribute__((reqd_work_group_size(64, 1, 1)))
       void scan(global const x_kept *x, shape sx, global y_kept *y, shape sy, long n, long x_step,
                 long y_step, int product) {
           local y_wide total[64];
           int lid = get_local_id(0);
           long stretch = (n + 63) / 64;
           long first = min(lid * stretch, n);
           long end = min(first + stretch, n);
           long at_x = place(&sx, get_group_id(0));
           long at_y = place(&sy, get_group_id(0));
           y_wide acc = product ? (y_wide)1 : (y_wide)-0.0f;
           for (long i = first; i < end; i++)
               acc = join(acc, (y_wide)x_get(x[at_x + i * x_step]), product);
           total[lid] = acc;
           barrier(CLK_LOCAL_MEM_FENCE);
           acc = product ? (y_wide)1 : (y_wide)-0.0f;
           for (int k = 0; k < lid; k++) acc = join(acc, total[k], product);
           for (long i = first; i < end; i++) {
               acc = join(acc, (y_wide)x_get(x[at_x + i * x_step]), product);
               y[at_y + i * y_step] = y_put(acc);
           }
       }),
    // The place of the first extremum: a group of 64 for each result. NaN beats everything else.
    CL(M_FN int beats(x_type a, x_type b, int least) {
           if (a != a || b != b) return b == b;
           return least ? a < b : a > b;
       }
       kernel __attribute__((reqd_work_group_size(64, 1, 1)))
       void arg_reduce(global const x_kept *x, shape kept, shape folded, global long *y, long at_y,
                       long n, int least) {
           local x_type best[64];
           local long where_[64];
           int lid = get_local_id(0);
           long at = place(&kept, get_group_id(0));
           if (lid < n) {
               x_type v = x_get(x[at + place(&folded, lid)]);
               long k = lid;
               for (long i = lid + 64; i < n; i += 64) {
                   x_type u = x_get(x[at + place(&folded, i)]);
                   if (beats(u, v, least)) {
                       v = u;
                       k = i;
                   }
               }
               best[lid] = v;
               where_[lid] = k;
           }
           for (int half_ = 32; half_ > 0; half_ /= 2) {
               barrier(CLK_LOCAL_MEM_FENCE);
               int other = lid + half_;
               if (lid < half_ && other < n) {
                   x_type u = best[other];
                   x_type v = best[lid];
                   if (beats(u, v, least) ||
                       (!beats(v, u, least) && where_[other] < where_[lid])) {
                       best[lid] = u;
                       where_[lid] = where_[other];
                   }
               }
           }
           if (lid == 0) y[at_y + get_group_id(0)] = where_[0];
       }),
    // The adjoint of a view. The axes of the view are in two parts: those of `in`, by falling
    // stride, visit no place twice, so that a place has one index in them at most, found by
    // division; the others (`tap`) are tried one after the other.
    CL(kernel void fold(global const x_kept *x, global x_kept *y, long at_y, long count, shape in,
                        shape in_x, shape tap, shape tap_x, long taps) {
           long j = get_global_id(0);
           if (j >= count) return;
           y_sum sum = 0;
           for (long t = 0; t < taps; t++) {
               long left = j - place(&tap, t);
               long from = place(&tap_x, t);
               if (left < 0) continue;
               for (int k = 0; k < in.rank; k++) {
                   long i = min(left / in.stride[k], in.size[k] - 1);
                   left -= i * in.stride[k];
                   from += i * in_x.stride[k];
               }
               if (left == 0) sum += (y_sum)x_get(x[from]);
           }
           y[at_y + j] = y_put(sum);
       }),
    NULL,
};

// ---- sorting -----------------------------------------------------------------------------------

// Indices are sorted by merging runs; of equals the left goes first. An item finds the place of one
// index: in blocks of 32 by counting, in longer runs by bisection in the other run.
const char *const tni_cl_text_sort[] = {
    CL(M_FN int before(x_type a, x_type b, int descending) {
           x_type hi = descending ? a : b;
           x_type lo = descending ? b : a;
           if (hi != hi) return lo == lo;
           return hi > lo;
       }
       typedef struct { long n; long count; long x_step; long step; long run; int descending;
                        int unused; } sorting;),
    CL(kernel void sort_blocks(global const x_kept *x, shape sx, global long *to, shape line,
                               sorting s) {
           long g = get_global_id(0);
           if (g >= s.count) return;
           long i = g % s.n;
           long at = place(&sx, g / s.n);
           long lo = i / 32 * 32;
           long hi = min(lo + 32, s.n);
           long rank_ = lo;
           x_type v = x_get(x[at + i * s.x_step]);
           for (long j = lo; j < hi; j++) {
               x_type u = x_get(x[at + j * s.x_step]);
               if (j < i) rank_ += !before(v, u, s.descending);
               if (j > i) rank_ += before(u, v, s.descending);
           }
           to[place(&line, g / s.n) + rank_ * s.step] = i;
       }),
    CL(kernel void sort_merge(global const x_kept *x, shape sx, global const long *from,
                              long at_from, global long *to, long at_to, shape line, sorting s) {
           long g = get_global_id(0);
           if (g >= s.count) return;
           long i = g % s.n;
           long at = place(&sx, g / s.n);
           long p = place(&line, g / s.n);
           long lo = i / (2 * s.run) * 2 * s.run;
           long mid = min(lo + s.run, s.n);
           int left = i < mid;
           long index = from[at_from + p + i * s.step];
           x_type v = x_get(x[at + index * s.x_step]);
           long a = left ? mid : lo;
           long b = left ? min(mid + s.run, s.n) : mid;
           long first = a;
           while (a < b) {
               long m = (a + b) / 2;
               x_type u = x_get(x[at + from[at_from + p + m * s.step] * s.x_step]);
               int goes_first = left ? before(u, v, s.descending) : !before(v, u, s.descending);
               if (goes_first) a = m + 1;
               else b = m;
           }
           long to_ = (left ? i : lo + i - mid) + a - first;
           to[at_to + p + to_ * s.step] = index;
       }),
    NULL,
};

// ---- doubles without doubles -------------------------------------------------------------------

// What is read into the host as f64 is cast here, also on a device that cannot compute in it: the
// bits of a double are put together. An integer is rounded to 53 bits, nearest even.
const char *const tni_cl_text_bits[] = {
    CL(M_FN ulong bits_of_float(float v) {
           uint b = as_uint(v);
           ulong sign_ = (ulong)(b >> 31) << 63;
           uint e = b >> 23 & 255;
           ulong m = b & 0x7fffff;
           if (e == 255) return sign_ | 0x7ff0000000000000ul | m << 29;
           if (e == 0 && m == 0) return sign_;
           if (e == 0) {
               int up = (int)clz((uint)m) - 8;
               m = m << up & 0x7fffff;
               e = 1 - up;
           }
           return sign_ | (ulong)((int)e + 1023 - 127) << 52 | m << 29;
       }),
    CL(M_FN ulong bits_of_long(long v) {
           ulong u = v < 0 ? 0ul - (ulong)v : (ulong)v;
           if (u == 0) return 0;
           int up = (int)clz(u);
           ulong m = u << up;
           ulong rest = m & 0x7ff;
           m >>= 11;
           m += rest > 0x400 || (rest == 0x400 && (m & 1));
           return (v < 0 ? 1ul << 63 : 0) | (((ulong)(1023 + 63 - up) << 52) + (m - (1ul << 52)));
       }
       M_FN ulong bits_of_int(int v) { return bits_of_long(v); }),
    "#define bits_BOOL bits_of_int\n"
    "#define bits_U8 bits_of_int\n"
    "#define bits_I8 bits_of_int\n"
    "#define bits_I32 bits_of_int\n"
    "#define bits_I64 bits_of_long\n"
    "#define bits_F16 bits_of_float\n"
    "#define bits_BF16 bits_of_float\n"
    "#define bits_F32 bits_of_float\n",
    CL(kernel void to_double(global const x_kept *x, shape sx, global ulong *y, shape sy,
                             long count) {
           long g = get_global_id(0);
           if (g < count) y[place(&sy, g)] = CAT(bits_, XT)(x_get(x[place(&sx, g)]));
       }),
    NULL,
};

// ---- by index ----------------------------------------------------------------------------------

// An item goes along the indexed axis in order, so of several the last counts and sums have a fixed
// order. The first index out of range, in row-major order, is noted.
const char *const tni_cl_text_index[] = {
    CL(typedef struct { long count; long inner; long length; long size; long index_step;
                        long v_step; long y_step; int wide; int add; } scattering;
       kernel void scatter(global const int *index, shape si, global const x_kept *v, shape sv,
                           global y_kept *y, shape sy, global int *bad, scattering s) {
           long g = get_global_id(0);
           if (g >= s.count) return;
           long at_i = place(&si, g);
           long at_v = place(&sv, g);
           long at_y = place(&sy, g);
           for (long k = 0; k < s.length; k++) {
               long p = at_i + k * s.index_step;
               long i = s.wide ? ((global const long *)index)[p] : index[p];
               if (i < -s.size || i >= s.size) {
                   long row_major = (g / s.inner * s.length + k) * s.inner + g % s.inner;
                   atomic_min(bad, (int)min(row_major, (long)INT_MAX - 1));
                   return;
               }
               global y_kept *to = y + at_y + (i < 0 ? i + s.size : i) * s.y_step;
               y_sum u = (y_sum)x_get(v[at_v + k * s.v_step]);
               *to = y_put(s.add ? (y_sum)y_get(*to) + u : u);
           }
       }),
    NULL,
};
