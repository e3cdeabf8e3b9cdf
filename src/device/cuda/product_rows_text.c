// The kernels for products with few rows, as text. Each element of the matrix A is read once, 16
// bytes at a time, and all loads of a thread are on their way before the first is used. In a graph
// the first of them begin before the kernel ahead has ended (`early`): a chain of small products
// then reads its matrices almost without a pause.
//
// In the library's words: D (rows, cols) = A (rows, depth) B (depth, cols), column-major, with cols
// small. `dots` is for A contiguous along the inner axis: a warp adds up row after row. `columns`
// is for A contiguous along its rows: 8 threads have a line of 128 bytes, 32 of these eights take
// turns at the steps of the inner axis, which the blocks of a cluster split; sums are added in a
// fixed order.
#include "device/cuda/product_rows.h"

#define T(...) #__VA_ARGS__ "\n"

// clang-format off
const char *const tni_text_rows[] = {
    // The argument; rows_args in product_rows.c is the same in C. slice: of columns, the steps of a
    // block; of dots, the warps of all blocks.
    T(struct rows {
          const x_kept *a; const x_kept *b; const x_kept *bias; const x_kept *residual;
          x_kept *d; x_kept *input;
          m_long lda; m_long ldb; m_long ldd;
          int count; int cols; int depth;
          int slice;
          int flags;
          float scale;
      };
      enum { RELU = 1, GELU = 2, EARLY = 4, THREADS = 256, WARPS = 8, EACH = 16 / sizeof(x_kept), WIDE = 8 * EACH };),
    // Sixteen bytes as floats.
    T(M_FN void widen(float (&y)[EACH], uint4 v) {
          const x_kept *p = (const x_kept *)&v;
          for (int i = 0; i < EACH; i++) y[i] = x_get(p[i]);
      }
      M_FN uint4 load_once(const x_kept *p) {
          uint4 v;
          asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                       : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
          return v;
      }
      // Ends one result: scale, residual, bias, activation, and the store.
      M_FN void finish(const rows &o, int row, int col, float sum) {
          m_long at = row + col * o.ldd;
          float v = sum * o.scale;
          if (o.residual) v += x_get(o.residual[at]);
          if (o.bias) v += x_get(o.bias[row]);
          if (o.input) o.input[at] = x_put(v);
          if (o.flags & RELU) v = m_relu_f(v);
          if (o.flags & GELU) v = m_gelu_coarse_f(v);
          o.d[at] = x_put(v);
      }),
    // A warp adds up one row of A after the other, PART vectors of each lane at a time, and the
    // next ones are on their way meanwhile. `item` counts the parts of all rows of the warp.
    T(enum { PART = 4 };
      struct place { int row; int at; };
      M_FN place place_of(const rows &o, int item, int parts) {
          place p = { (int)(GROUP_ID * WARPS + LOCAL_ID / 32) + item / parts * o.slice,
                      item % parts * (32 * PART) + (int)LOCAL_ID % 32 };
          return p;
      }
      M_FN void load_part(const rows &o, place p, uint4 (&w)[PART]) {
          for (int u = 0; u < PART; u++) {
              int i = p.at + u * 32;
              w[u] = make_uint4(0, 0, 0, 0);
              if (i < o.depth / EACH && p.row < o.count)
                  w[u] = load_once(o.a + p.row * o.lda + (m_long)i * EACH);
          }
      }
      template <int COLS>
      M_FN void add_part(const rows &o, place p, const uint4 (&w)[PART], float (&sum)[COLS]) {
          for (int u = 0; u < PART; u++) {
              int i = p.at + u * 32;
              if (i >= o.depth / EACH) break;
              float y[EACH];
              widen(y, w[u]);
              for (int c = 0; c < COLS; c++) {
                  float x[EACH];
                  widen(x, *(const uint4 *)(o.b + c * o.ldb + (m_long)i * EACH));
                  for (int e = 0; e < EACH; e++) sum[c] = m_fma_f(y[e], x[e], sum[c]);
              }
          }
      }),
    T(template <int COLS>
      M_FN void dots_of(const rows &o) {
          int lane = LOCAL_ID % 32;
          int parts = (o.depth / EACH + 32 * PART - 1) / (32 * PART);
          uint4 w[PART];
          float sum[COLS] = {};
          if (!(o.flags & EARLY)) m_begin();
          load_part(o, place_of(o, 0, parts), w);
          if (o.flags & EARLY) m_begin();
          for (int item = 0; ; item++) {
              place now = place_of(o, item, parts);
              if (now.row >= o.count) break;
              uint4 next[PART];
              load_part(o, place_of(o, item + 1, parts), next);
              add_part<COLS>(o, now, w, sum);
              for (int u = 0; u < PART; u++) w[u] = next[u];
              if ((item + 1) % parts) continue;
              for (int c = 0; c < COLS; c++) {
                  for (int d = 16; d > 0; d /= 2) sum[c] += __shfl_xor_sync(0xffffffffu, sum[c], d);
                  if (lane == c) finish(o, now.row, c, sum[c]);
                  sum[c] = 0;
              }
          }
      }),
    // Steps k, k + 32, ... of the inner axis at a thread's EACH rows of A.
    T(template <int AHEAD>
      M_FN void load_steps(const rows &o, int row, int k, int end, uint4 (&w)[AHEAD]) {
          for (int u = 0; u < AHEAD; u++) {
              w[u] = make_uint4(0, 0, 0, 0);
              if (k + u * 32 < end && row < o.count)
                  w[u] = load_once(o.a + (m_long)(k + u * 32) * o.lda + row);
          }
      }
      template <int AHEAD, int COLS>
      M_FN void add_steps(const rows &o, int k, int end, const uint4 (&w)[AHEAD], float (&sum)[COLS][EACH]) {
          for (int u = 0; u < AHEAD; u++) {
              if (k + u * 32 >= end) break;
              float y[EACH];
              widen(y, w[u]);
              for (int c = 0; c < COLS; c++) {
                  float x = x_get(o.b[c * o.ldb + k + u * 32]);
                  for (int e = 0; e < EACH; e++) sum[c][e] = m_fma_f(y[e], x, sum[c][e]);
              }
          }
      }
      M_FN float load_remote(const float *p, int rank) {
          float v;
          asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(m_far(p, rank)) : "memory");
          return v;
      }),
    // A tile of WIDE rows of A. The sums of the eights of a warp are added by shuffles, those of
    // the warps and then of the blocks through shared memory; each block ends its share of the
    // tile.
    T(template <int RANKS, int COLS>
      M_FN void columns(const rows &o) {
          enum { AHEAD = 8 };
          LOCAL float part[WARPS][COLS * WIDE];
          LOCAL float whole[COLS * WIDE];
          int t = LOCAL_ID;
          int rank = GROUP_ID % RANKS;
          int first = GROUP_ID / RANKS * WIDE;
          int row = first + t % 8 * EACH;
          int k = rank * o.slice + t / 8;
          int end = (rank + 1) * o.slice < o.depth ? (rank + 1) * o.slice : o.depth;
          uint4 w[AHEAD];
          float sum[COLS][EACH] = {};
          if (!(o.flags & EARLY)) m_begin();
          load_steps<AHEAD>(o, row, k, end, w);
          if (o.flags & EARLY) m_begin();
          for (; k < end; k += 32 * AHEAD) {
              uint4 next[AHEAD];
              load_steps<AHEAD>(o, row, k + 32 * AHEAD, end, next);
              add_steps<AHEAD, COLS>(o, k, end, w, sum);
              for (int u = 0; u < AHEAD; u++) w[u] = next[u];
          }
          for (int c = 0; c < COLS; c++)
              for (int e = 0; e < EACH; e++) {
                  sum[c][e] += __shfl_xor_sync(0xffffffffu, sum[c][e], 8);
                  sum[c][e] += __shfl_xor_sync(0xffffffffu, sum[c][e], 16);
                  if (t % 32 < 8) part[t / 32][c * WIDE + t * EACH % WIDE + e] = sum[c][e];
              }
          BARRIER();
          for (int i = t; i < COLS * WIDE; i += THREADS) {
              float v = 0;
              for (int j = 0; j < WARPS; j++) v += part[j][i];
              if (RANKS > 1) whole[i] = v;
              else if (first + i % WIDE < o.count) finish(o, first + i % WIDE, i / WIDE, v);
          }
          if (RANKS == 1) return;
          m_cluster_barrier();
          for (int i = rank * (COLS * WIDE / RANKS) + t; i < (rank + 1) * (COLS * WIDE / RANKS); i += THREADS) {
              float v = 0;
              for (int j = 0; j < RANKS; j++) v += load_remote(&whole[i], j);
              if (first + i % WIDE < o.count) finish(o, first + i % WIDE, i / WIDE, v);
          }
          m_cluster_barrier();
      }),
    // Dispatch over the number of columns.
    T(template <int RANKS>
      M_FN void columns_of(const rows &o) {
          if (o.cols == 1) columns<RANKS, 1>(o);
          else if (o.cols == 2) columns<RANKS, 2>(o);
          else if (o.cols == 3) columns<RANKS, 3>(o);
          else columns<RANKS, 4>(o);
      }
      KERNEL(256) dots(GIVEN rows o) {
          if (o.cols == 1) dots_of<1>(o);
          else if (o.cols == 2) dots_of<2>(o);
          else if (o.cols == 3) dots_of<3>(o);
          else dots_of<4>(o);
      }
      KERNEL(256) columns_1(GIVEN rows o) { columns_of<1>(o); }
      KERNEL(256) __cluster_dims__(2, 1, 1) columns_2(GIVEN rows o) { columns_of<2>(o); }
      KERNEL(256) __cluster_dims__(4, 1, 1) columns_4(GIVEN rows o) { columns_of<4>(o); }
      KERNEL(256) __cluster_dims__(8, 1, 1) columns_8(GIVEN rows o) { columns_of<8>(o); }),
    NULL,
};
