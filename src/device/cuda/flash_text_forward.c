// The forward kernel of attention on the tensor cores, as text. A block has a tile of queries of
// one head and goes through the keys, from the last one that it sees to the first: scores, their
// softmax so far, and the sum of values by it. While a tile of keys is multiplied the next one
// arrives.
//
// The softmax is of scores in base 2, so that an exponential is one multiply-add and one
// instruction. The largest score so far is kept of every row; when it rises, the sums so far are
// scaled down.
#include "device/cuda/flash_text.h"

#define T(...) #__VA_ARGS__ "\n"

// clang-format off
const char *const tni_text_flash_forward[] = {
    // Turns scores into weights, relative to the row's largest so far unless all are small. factor:
    // what all sums so far are to be scaled by. A row without a key keeps -inf as its largest
    // score, and zeros. What is rare in weight_of is in a branch with the rest of that.
    T(enum { RELATIVE = STEADY == 0 || IS_F16 != 0 };
      template <int MT, int NT>
      M_FN void soften(float (&c)[MT][NT][4], float (&most)[MT][2], float (&sum)[MT][2],
                       float (&factor)[MT][2], float scale) {
          UNROLL for (int m = 0; m < MT; m++)
              UNROLL for (int r = 0; r < 2; r++) {
                  float base = 0;
                  float part = 0;
                  factor[m][r] = 1;
                  if constexpr (RELATIVE != 0) {
                      float top = most[m][r];
                      UNROLL for (int n = 0; n < NT; n++)
                          top = fmaxf(top, fmaxf(c[m][n][2 * r], c[m][n][2 * r + 1]));
                      top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
                      top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
                      base = top * scale;
                      factor[m][r] = power2(m_fma_f(most[m][r], scale, -base));
                      if (base == minus_infinity()) {
                          factor[m][r] = weight_of(most[m][r], top, scale);
                          base = 0;
                          if (PROGRAM && top != minus_infinity())
                              UNROLL for (int n = 0; n < NT; n++) {
                                  c[m][n][2 * r] -= top;
                                  c[m][n][2 * r + 1] -= top;
                              }
                      }
                      most[m][r] = top;
                  }
                  UNROLL for (int n = 0; n < NT; n++)
                      UNROLL for (int e = 2 * r; e < 2 * r + 2; e++) {
                          c[m][n][e] = power2(RELATIVE ? m_fma_f(c[m][n][e], scale, -base)
                                                       : c[m][n][e] * scale);
                          part += c[m][n][e];
                      }
                  sum[m][r] = RELATIVE ? m_fma_f(sum[m][r], factor[m][r], part) : sum[m][r] + part;
              }
      }
      template <int MT, int NE>
      M_FN void scale_rows(float (&y)[MT][NE][4], const float (&factor)[MT][2]) {
          if constexpr (RELATIVE != 0)
              UNROLL for (int m = 0; m < MT; m++)
                  UNROLL for (int n = 0; n < NE; n++)
                      UNROLL for (int e = 0; e < 4; e++) y[m][n][e] *= factor[m][e >> 1];
      }
      template <int MT, int NT>
      M_FN void drop_weights(float (&c)[MT][NT][4], const flash &o, const place &p, int row,
                             int column) {
          UNROLL for (int m = 0; m < MT; m++)
              UNROLL for (int n = 0; n < NT; n++) {
                  float f[4] = {};
                  dropout_factors(f, o, p, row, column, m, n);
                  UNROLL for (int e = 0; e < 4; e++) c[m][n][e] *= f[e];
              }
      }),
    // Divides by the sums, and writes the results and, if they are wanted, the logarithms of the
    // sums of e^score.
    T(template <int MT, int NE>
      M_FN void finish(float (&y)[MT][NE][4], const float (&most)[MT][2], float (&sum)[MT][2],
                       const flash &o, const place &p, int row, m_uint tile) {
          constexpr int COUNT = MT * WARPS * 16;
          UNROLL for (int m = 0; m < MT; m++)
              UNROLL for (int r = 0; r < 2; r++) {
                  float s = sum[m][r];
                  s += __shfl_xor_sync(~0u, s, 1);
                  s += __shfl_xor_sync(~0u, s, 2);
                  float inverse = s == 0.0f ? 0.0f : 1.0f / s;
                  UNROLL for (int n = 0; n < NE; n++) {
                      y[m][n][2 * r] *= inverse;
                      y[m][n][2 * r + 1] *= inverse;
                  }
                  int i = row + row_at(m, 2 * r);
                  if (o.lse && i < o.T && (threadIdx.x & 3) == 0)
                      o.lse[((m_long)p.b * o.H + p.h) * o.T + i] =
                          s == 0.0f ? minus_infinity()
                                    : m_fma_f(most[m][r], power_scale(o) * 0.693147181f,
                                              __log2f(s) * 0.693147181f);
              }
          elem *to = o.o + p.b * o.o_at[0] + row * o.o_at[1] + p.h * o.o_at[2];
          store_rows<COUNT, HEAD_E>(y, tile, to, o.o_at[1], o.T - row);
      }),
    // The kernel. Tiles of keys and values have two places each, of which one is filled while the
    // other is read: a block's warps meet once a tile. The scores of a tile are multiplied ahead of
    // the sum of the values of the tile before, so that the tensor cores sum while the warps take
    // exponentials.
    T(extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) flash_forward(GIVEN flash o) {
          extern __shared__ char smem[];
          constexpr int COUNT = MTILES * WARPS * 16;
          constexpr int NT = COLS / 8;
          constexpr int WIDEST = PANELS_D > PANELS_E ? PANELS_D : PANELS_E;
          constexpr int K_BYTES = PANELS_D * COLS * 128;
          constexpr int V_BYTES = PANELS_E * COLS * 128;
          m_begin();
          m_uint q_tile = (m_near(smem) + 1023) & ~1023u;
          m_uint k_tile = q_tile + WIDEST * COUNT * 128;
          m_uint v_tile = k_tile + 2 * K_BYTES;
          int tiles = (o.T + COUNT - 1) / COUNT;
          int tile = (int)blockIdx.x % tiles;
          int head = (int)blockIdx.x / tiles;
          place p = place_of(o, head / o.H, head % o.H);
          int row = (CAUSAL ? tiles - 1 - tile : tile) * COUNT;
          int hk = p.h / (o.H / o.HK);
          const elem *k = o.k + p.b * o.k_at[0] + hk * o.k_at[2];
          const elem *v = o.v + p.b * o.v_at[0] + hk * o.v_at[2];
          int first = first_key(o, p, row) / COLS;
          int n = (end_key(o, p, row + COUNT) + COLS - 1) / COLS - 1;
          leave_out_hidden<COUNT>(o, p, row, 1, first, n);
          float y[MTILES][TILES_E][4];
          float c[MTILES][NT][4];
          m_uint w[MTILES][NT / 2][4];
          float most[MTILES][2];
          float sum[MTILES][2];
          float factor[MTILES][2];
          m_uint q[MTILES][HELD ? STEPS_D : 1][4];
          score_head u = score_head_of(o, p);
          score_row rows[MTILES][2];
          score_column columns[NT][2];
          know_rows(rows, o, p, u, row);
          clear(y);
          UNROLL for (int m = 0; m < MTILES; m++)
              UNROLL for (int r = 0; r < 2; r++)
                  most[m][r] = RELATIVE ? minus_infinity() : 0.0f, sum[m][r] = 0;
          auto copy_k = [&](int n, int at) {
              copy_tile<COLS, HEAD_D>(k_tile + at * K_BYTES, k + n * COLS * o.k_at[1], o.k_at[1],
                                      p.keys - n * COLS);
          };
          auto copy_v = [&](int n, int at) {
              copy_tile<COLS, HEAD_E>(v_tile + at * V_BYTES, v + n * COLS * o.v_at[1], o.v_at[1],
                                      p.keys - n * COLS);
          };
          // Waits for the copies so far; then all warps are done with what was read before.
          auto meet = [&]() {
              copy_async_commit();
              copy_async_wait<0>();
              fence_copies();
              __syncthreads();
          };
          auto weigh_tile = [&](int n) {
              change_scores(c, o, p, tile_of(o, p, u, rows, columns, row, n * COLS),
                            has_edge(o, p, row, COUNT, n * COLS, COLS));
              soften(c, most, sum, factor, power_scale(o));
              if constexpr (DROPOUT != 0) drop_weights(c, o, p, row, n * COLS);
          };
          if (n >= first) {
              copy_tile<COUNT, HEAD_D>(q_tile, o.q + p.b * o.q_at[0] + row * o.q_at[1] +
                                       p.h * o.q_at[2], o.q_at[1], o.T - row);
              copy_k(n, 0);
              meet();
              copy_v(n, 0);
              if (n > first) copy_k(n - 1, 1);
              if constexpr (HELD != 0) load_lefts<COUNT>(q, q_tile);
              products_begin();
              rows_by_rows<STEPS_D, HELD != 0, COUNT, COLS>(c, q, q_tile, k_tile, 0);
              products_commit();
              know_columns(columns, o, p, u, n * COLS);
              products_wait<0>();
              weigh_tile(n);
              round_left(w, c);
              int at = 1;
              for (n--; n >= first; n--, at ^= 1) {
                  meet();
                  copy_v(n, at);
                  if (n > first) copy_k(n - 1, at ^ 1);
                  products_begin();
                  rows_by_rows<STEPS_D, HELD != 0, COUNT, COLS>(c, q, q_tile, k_tile + at * K_BYTES,
                                                                0);
                  products_commit();
                  rows_by_columns<COLS>(y, w, v_tile + (at ^ 1) * V_BYTES, 0);
                  products_commit();
                  know_columns(columns, o, p, u, n * COLS);
                  products_wait<1>();
                  weigh_tile(n);
                  products_wait<0>();
                  scale_rows(y, factor);
                  round_left(w, c);
              }
              meet();
              products_begin();
              rows_by_columns<COLS>(y, w, v_tile + (at ^ 1) * V_BYTES, 0);
              products_commit();
              products_wait<0>();
          }
          __syncthreads();
          finish(y, most, sum, o, p, row, q_tile);
      }),
    NULL,
};
