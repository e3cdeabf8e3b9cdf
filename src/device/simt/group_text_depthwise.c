// Convolution of each channel with a 3 x 3 window of its own, channels last, and its gradient for
// x, as text: the kernels of MobileNets. It moves bytes and multiplies little, so that all that
// counts is that pixels are read from memory once.
//
// An item has EACH = 4 neighbouring channels, 8 bytes of a pixel, and computes DOWN x ACROSS places
// of the result from pixels that it reads once into registers, a row of them at a time; the weights
// of its channels, 4 x 9 of them side by side, stay in registers too. The 128 items of a group are
// 2^lanes such vectors of channels, neighbours in memory, and 2^side items across the places times
// what is left down, whose pixels overlap in the cache.
//
// Pixel r of a row meets place d of an item's result by tap TAP(r, d), if there is one. In the
// gradient that is place + padding - step * pixel: items begin where place + padding is a multiple
// of what an item has, so that the taps are known when the text is compiled, for a step of 2 as
// well, where each place meets one or two taps of a direction.
//
//     step 2, places 0 to 3:     forward, pixels 0 to 8      gradient, pixels 0 to 2
//                                0  1  2                     2
//                                      0  1  2               .  (no tap)
//                                            0  1  2         0  2
//                                                  0  1  2   1
#include "device/simt/group_text.h"

#include "kernel/ending.h"

#define T(...) #__VA_ARGS__ "\n"

// clang-format off

#define SIZES(step)                                                                              \
    "#define STEP " #step "\n#define EACH 4\n#define TAPS 3\n#define ACROSS 4\n#define DOWN 2\n" \
    "#define UNROLL _Pragma(\"unroll\")\n"

// SPAN: pixels that n places meet. PLACE, PIXEL: the first place of items that begin at n, and the
// first pixel that it meets. WITHIN: whether a place is in the image; a place of the gradient may
// be before it.
#define FORWARD                                            \
    "#define TAP(r, d) ((r) - (d) * STEP)\n"               \
    "#define SPAN(n) (((n) - 1) * STEP + TAPS)\n"          \
    "#define PLACE(n, padding) (n)\n"                      \
    "#define PIXEL(n, padding) ((n) * STEP - (padding))\n" \
    "#define WITHIN(p, size) ((p) < (size))\n"
#define GRADIENT                                       \
    "#define TAP(r, d) ((d) + TAPS - 1 - (r) * STEP)\n" \
    "#define SPAN(n) (((n) + TAPS - 2) / STEP + 1)\n"  \
    "#define PLACE(n, padding) ((n) - (padding))\n"    \
    "#define PIXEL(n, padding) (((n) - TAPS + 1) / STEP)\n" \
    "#define WITHIN(p, size) ((m_uint)(p) < (m_uint)(size))\n"

static const char params[] =
    T(typedef struct { m_long x_offset; m_long w_offset; m_long y_offset; int height; int width;
                       int y_height; int y_width; int channels; int pad_down; int pad_across;
                       int vectors; int strips; int bands; int lanes; int side; int unused; } depthwise_params;);

// Four elements of 16 bits in one load or store.
static const char vectors[] =
    T(M_FN void split_pair(m_uint v, x_sum *f) {
          f[0] = (x_sum)x_get((x_kept)(v & 65535));
          f[1] = (x_sum)x_get((x_kept)(v >> 16));
      }
      M_FN void split(uint2 v, x_sum *f) {
          split_pair(v.x, f);
          split_pair(v.y, f + 2);
      }
      M_FN m_uint join_pair(const x_sum *f) {
          return (m_uint)(m_ushort)x_put(f[0]) | (m_uint)(m_ushort)x_put(f[1]) << 16;
      }
      M_FN void store(GLOBAL x_kept *p, const x_sum *f) {
          uint2 v;
          v.x = join_pair(f);
          v.y = join_pair(f + 2);
          *(GLOBAL uint2 *)p = v;
      });

// A row of the item's pixels is loaded without branches, so that its loads, and those of the next
// row, are under way together. One pixel, row r and column j, meets each place of the result whose
// window it is in.
static const char kernel[] =
    T(M_FN void add_pixel(uint2 v, const x_sum *w, int r, int j, x_sum (*sum)[ACROSS][EACH]) {
          x_sum pixel[EACH];
          split(v, pixel);
          UNROLL for (int d = 0; d < DOWN; d++) {
              UNROLL for (int a = 0; a < ACROSS; a++) {
                  int i = TAP(r, d);
                  int k = TAP(j, a);
                  if (i >= 0 && i < TAPS && k >= 0 && k < TAPS) {
                      UNROLL for (int e = 0; e < EACH; e++)
                          sum[d][a][e] = x_fma(pixel[e], w[e * TAPS * TAPS + i * TAPS + k], sum[d][a][e]);
                  }
              }
          }
      }
      KERNEL(128) depthwise(GLOBAL const x_kept *x, GLOBAL const x_kept *w, GLOBAL x_kept *y,
                            GIVEN depthwise_params o ENDING_PARAMS) {
          BEGIN();
          x_sum sum[DOWN][ACROSS][EACH];
          x_sum weight[TAPS * TAPS * EACH];
          m_long id = GROUP_ID;
          int item = (int)LOCAL_ID >> o.lanes;
          int c = ((int)(id % o.vectors) << o.lanes | ((int)LOCAL_ID & ((1 << o.lanes) - 1))) * EACH;
          id /= o.vectors;
          int q = ((int)(id % o.strips) << o.side | (item & ((1 << o.side) - 1))) * ACROSS;
          id /= o.strips;
          int p = ((int)(id % o.bands) << (7 - o.lanes - o.side) | item >> o.side) * DOWN;
          m_long image = id / o.bands;
          int top = PIXEL(p, o.pad_down);
          int left = PIXEL(q, o.pad_across);
          p = PLACE(p, o.pad_down);
          q = PLACE(q, o.pad_across);
          if (c >= o.channels || q >= o.y_width || p >= o.y_height) return;
          w += o.w_offset + (m_long)c * TAPS * TAPS;
          x += o.x_offset + image * o.height * o.width * o.channels + c;
          y += o.y_offset;
          UNROLL for (int i = 0; i < TAPS * TAPS; i++)
              split(*(GLOBAL const uint2 *)(w + i * EACH), weight + i * EACH);
          UNROLL for (int d = 0; d < DOWN; d++)
              UNROLL for (int a = 0; a < ACROSS; a++)
                  UNROLL for (int e = 0; e < EACH; e++) sum[d][a][e] = 0;
          UNROLL for (int r = 0; r < SPAN(DOWN); r++) {
              uint2 row[SPAN(ACROSS)];
              GLOBAL const x_kept *from = x + ((m_long)(top + r) * o.width + left) * o.channels;
              int inside = top + r >= 0 && top + r < o.height;
              UNROLL for (int j = 0; j < SPAN(ACROSS); j++) {
                  row[j].x = row[j].y = 0;
                  if (inside && left + j >= 0 && left + j < o.width)
                      row[j] = *(GLOBAL const uint2 *)(from + (m_long)j * o.channels);
              }
              UNROLL for (int j = 0; j < SPAN(ACROSS); j++) add_pixel(row[j], weight, r, j, sum);
          }
          ENDING_COLUMNS(columns)
          ENDING_BEGIN(columns, c)
          UNROLL for (int d = 0; d < DOWN; d++) {
              UNROLL for (int a = 0; a < ACROSS; a++) {
                  if (WITHIN(p + d, o.y_height) && WITHIN(q + a, o.y_width)) {
                      m_long at = ((image * o.y_height + p + d) * o.y_width + q + a) * o.channels + c;
                      ENDING(sum[d][a], columns, c, at)
                      store(y + at, sum[d][a]);
                  }
              }
          }
      });

const char *const tni_text_depthwise[4][6] = {
    { SIZES(1) FORWARD, tni_no_ending, params, vectors, kernel, NULL },
    { SIZES(2) FORWARD, tni_no_ending, params, vectors, kernel, NULL },
    { SIZES(1) GRADIENT, tni_no_ending, params, vectors, kernel, NULL },
    { SIZES(2) GRADIENT, tni_no_ending, params, vectors, kernel, NULL },
};
