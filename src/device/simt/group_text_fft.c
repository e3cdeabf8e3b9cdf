// Fourier transforms of lengths that are powers of two, as text: a group transforms lines of 1,024
// K elements in all, which are in local memory, 256 items with 4 K elements each in registers.
// Passes of radix 4, and one of radix 2 at the end for every other power, as Stockham has them:
// item after item reads neighbours, so that the only order that anything is put into is that of the
// last pass.
//
//   fft_lines_1, fft_lines_2   K = 1 and 2; longer lines would take more local memory than OpenCL promises
//   fft_scale                  for results of a library that does not scale
//
// The scale is a double in three floats, since some devices have no doubles. Real numbers are read
// as complex ones and written without their imaginary parts. Twiddles are computed: with the three
// of a butterfly made of one, that costs less than reading them. One place in 33 of local memory is
// empty, so that strides of 4 are in different banks: element e is at P(e).
#include "device/simt/group_text.h"

#define T(...) #__VA_ARGS__ "\n"

// clang-format off

// re and im: the lines; vr and vi: the elements of an item; lg: the logarithm of n; first: the
// group's first line.
#define HEAD(name, K)                                                                                             \
    T(KERNEL(256) name(GLOBAL const x_kept *x, GLOBAL x_kept *y, GIVEN fft_params s) {                             \
          LOCAL x_type re[1056 * K]; LOCAL x_type im[1056 * K];                                                    \
          x_type vr[4 * K]; x_type vi[4 * K];                                                                      \
          int n = s.n; int lg = s.log_n;                                                                           \
          m_long first = (m_long)GROUP_ID * (1024 * K >> lg);)

// Brings the lines. Of half a spectrum (kind 2) the second half is the mirror image of the first,
// conjugated, and the imaginary parts that a real signal's has not do not count; a real line (kind
// 1) has none. An inverse transform is a forward one with the parts exchanged.
#define LOAD(K)                                                                                                   \
    T(    for (int j = 0; j < 4 * K; j++) {                                                                        \
              int e = LOCAL_ID + 256 * j; int k = e & n - 1;                                                       \
              m_long line = first + (e >> lg);                                                                     \
              x_type a = 0; x_type b = 0;                                                                          \
              if (line < s.lines) {                                                                                \
                  m_long at = s.at_x + (s.inner < s.lines ? line / s.inner * s.outer_x + line % s.inner * s.pitch_x : line * s.pitch_x); \
                  int from = s.kind == 2 && k > n / 2 ? n - k : k;                                                 \
                  a = x[at + from * s.step_x];                                                                     \
                  if (s.kind != 1) b = x[at + from * s.step_x + 1];                                                \
                  if (s.kind == 2 && from != k) b = -b;                                                            \
                  if (s.kind == 2 && (from == 0 || 2 * from == n)) b = 0;                                          \
              }                                                                                                    \
              re[P(e)] = s.inverse ? b : a; im[P(e)] = s.inverse ? a : b;                                          \
          }                                                                                                        \
          BARRIER();)

// A pass of radix 4, first half: m elements are left of each part of a line, w of which (2^lw) have
// one twiddle. An item reads four elements that are a quarter of a line apart; all items have read
// before any writes.
#define READ(K)                                                                                                   \
    T(    int m = n; int w = 1; int lw = 0; int quarter = n / 4;                                                   \
          for (; m > 2; w *= 4, lw += 2) {                                                                         \
              m /= 4;                                                                                              \
              for (int j = 0; j < K; j++) {                                                                        \
                  int g = LOCAL_ID + 256 * j;                                                                      \
                  int at = (g >> lg - 2) * n + (g & quarter - 1);                                                  \
                  for (int k = 0; k < 4; k++) { vr[4 * j + k] = re[P(at + k * quarter)]; vi[4 * j + k] = im[P(at + k * quarter)]; } \
              }                                                                                                    \
              BARRIER();)

// Second half: the butterfly, the twiddles of its group p, e^(-2 pi i k p / 4 m) for k = 1, 2 and
// 3, and four elements w apart.
#define WRITE(K)                                                                                                  \
    T(        for (int j = 0; j < K; j++) {                                                                        \
                  int g = LOCAL_ID + 256 * j; int b = g & quarter - 1; int p = b >> lw;                            \
                  int to = (g >> lg - 2) * n + (b & w - 1) + 4 * p * w;                                            \
                  x_type ar = vr[4 * j] + vr[4 * j + 2]; x_type ai = vi[4 * j] + vi[4 * j + 2];                    \
                  x_type br = vr[4 * j] - vr[4 * j + 2]; x_type bi = vi[4 * j] - vi[4 * j + 2];                    \
                  x_type cr = vr[4 * j + 1] + vr[4 * j + 3]; x_type ci = vi[4 * j + 1] + vi[4 * j + 3];            \
                  x_type dr = vi[4 * j + 1] - vi[4 * j + 3]; x_type di = vr[4 * j + 3] - vr[4 * j + 1];            \
                  x_type turn = (x_type)p / (x_type)(2 * m);                                                       \
                  x_type c1 = cospi(turn); x_type s1 = -sinpi(turn);                                               \
                  x_type c2 = c1 * c1 - s1 * s1; x_type s2 = 2 * c1 * s1;                                          \
                  x_type c3 = c1 * c2 - s1 * s2; x_type s3 = c1 * s2 + s1 * c2;                                    \
                  x_type ur = br + dr; x_type ui = bi + di;                                                        \
                  x_type tr = ar - cr; x_type ti = ai - ci;                                                        \
                  x_type wr = br - dr; x_type wi = bi - di;                                                        \
                  re[P(to)] = ar + cr; im[P(to)] = ai + ci;                                                        \
                  to += w; re[P(to)] = ur * c1 - ui * s1; im[P(to)] = ur * s1 + ui * c1;                           \
                  to += w; re[P(to)] = tr * c2 - ti * s2; im[P(to)] = tr * s2 + ti * c2;                           \
                  to += w; re[P(to)] = wr * c3 - wi * s3; im[P(to)] = wr * s3 + wi * c3;                           \
              }                                                                                                    \
              BARRIER();                                                                                           \
          })

// The last pass of an odd power of two has radix 2 and no twiddles, so that each item writes what
// it read.
#define LAST(K)                                                                                                   \
    T(    for (int j = 0; m == 2 && j < 2 * K; j++) {                                                              \
              int g = LOCAL_ID + 256 * j;                                                                          \
              int e = (g >> lg - 1) * n + (g & n / 2 - 1); int o = e + n / 2;                                      \
              x_type ar = re[P(e)]; x_type ai = im[P(e)]; x_type br = re[P(o)]; x_type bi = im[P(o)];              \
              re[P(e)] = ar + br; im[P(e)] = ai + bi; re[P(o)] = ar - br; im[P(o)] = ai - bi;                      \
          }                                                                                                        \
          BARRIER();)

// Writes the lines, scaled: of a real one's spectrum half, of a spectrum's signal the real parts.
#define STORE(K)                                                                                                  \
    T(    for (int j = 0; j < 4 * K; j++) {                                                                        \
              int e = LOCAL_ID + 256 * j; int k = e & n - 1;                                                       \
              m_long line = first + (e >> lg);                                                                     \
              if (line >= s.lines || (s.kind == 1 && k > n / 2)) continue;                                         \
              x_type a = re[P(e)] * SCALE; x_type b = im[P(e)] * SCALE;                                            \
              m_long at = s.at_y + (s.inner < s.lines ? line / s.inner * s.outer_y + line % s.inner * s.pitch_y : line * s.pitch_y) + k * s.step_y; \
              y[at] = s.inverse ? b : a;                                                                           \
              if (s.kind != 2) y[at + 1] = s.inverse ? a : b;                                                      \
          }                                                                                                        \
      })

const char *const tni_text_fft[] = {
    "#define P(e) ((e) + (e) / 32)\n"
    "#define SCALE ((x_type)s.scale0 + (x_type)s.scale1 + (x_type)s.scale2)\n",
    T(typedef struct { m_long at_x; m_long at_y; m_long lines; m_long inner; m_long outer_x; m_long outer_y; m_long pitch_x; m_long pitch_y;
                       m_long step_x; m_long step_y; float scale0; float scale1; float scale2; int n; int log_n; int kind; int inverse; int unused;
      } fft_params;),
    HEAD(fft_lines_1, 1) LOAD(1) READ(1) WRITE(1) LAST(1) STORE(1),
    HEAD(fft_lines_2, 2) LOAD(2) READ(2) WRITE(2) LAST(2) STORE(2),
    // What a library left unscaled, `lines` numbers from at_y on, eight for each item: one load in
    // flight is too few to fill memory's bandwidth.
    T(KERNEL(256) fft_scale(GLOBAL x_kept *y, GIVEN fft_params s) {
          m_long at = (m_long)GROUP_ID * 2048 + LOCAL_ID;
          x_type v[8];
          for (int j = 0; j < 8; j++) v[j] = at + 256 * j < s.lines ? y[s.at_y + at + 256 * j] : 0;
          for (int j = 0; j < 8; j++)
              if (at + 256 * j < s.lines) y[s.at_y + at + 256 * j] = v[j] * SCALE;
      }),
    NULL,
};
