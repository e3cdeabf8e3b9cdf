// The gradients of attention on the tensor cores, as text: flash_queries, a tile of queries by all
// keys, writes dq and delta, the sums of g times the result; flash_keys, a tile of keys by all
// queries, writes dk and dv. Each computes the weights again, from the logarithms of the sums of
// e^score:
//
//     w = e^(score - lse)      dw = g v'      ds = w (dw - delta)
//     dq = scale ds k          dk = scale ds' q          dv = w' g
//
// That is seven products instead of the five of one kernel for all three, but nothing is added up in
// global memory: the results have the same bits in every run. In flash_keys rows are keys, so that w'
// and ds' are left operands in registers and never stored.
#include "device/cuda/flash_text.h"

#define T(...) #__VA_ARGS__ "\n"

// clang-format off
const char *const tni_text_flash_gradient[] = {
    // What scores are relative to, as an exponent of 2; a query that sees no key has weights of 0.
    T(M_FN float base_of(float lse) {
          return lse == minus_infinity() ? -minus_infinity() : lse * 1.44269504f;
      }
      // Sums a row of g times the result, by as many lanes as it has chunks of eight, and stores it.
      M_FN void sum_deltas(const flash &o, const place &p, int row, int count, float *near) {
          constexpr int LANES = HEAD_E <= 8 ? 1 : HEAD_E <= 16 ? 2 : HEAD_E <= 32 ? 4
                              : HEAD_E <= 64 ? 8 : HEAD_E <= 128 ? 16 : 32;
          int c = (int)threadIdx.x % LANES;
          for (int r = (int)threadIdx.x / LANES; r < count; r += THREADS / LANES) {
              float sum = 0;
              int i = row + r;
              const elem *x = o.g + p.b * o.g_at[0] + i * o.g_at[1] + p.h * o.g_at[2] + c * 8;
              const elem *y = o.o + p.b * o.o_at[0] + i * o.o_at[1] + p.h * o.o_at[2] + c * 8;
              if (i < o.T && c * 8 < HEAD_E) {
                  alignas(16) elem a[8];
                  alignas(16) elem b[8];
                  if constexpr (ALIGNED != 0) {
                      *(uint4 *)a = *(const uint4 *)x;
                      *(uint4 *)b = *(const uint4 *)y;
                  } else
                      UNROLL for (int s = 0; s < 8; s++) {
                          bool there = c * 8 + s < HEAD_E;
                          a[s] = there ? x[s] : 0;
                          b[s] = there ? y[s] : 0;
                      }
                  UNROLL for (int s = 0; s < 8; s++)
                      sum = m_fma_f(element(a[s]), element(b[s]), sum);
              }
              UNROLL for (int s = LANES / 2; s > 0; s /= 2) sum += __shfl_xor_sync(~0u, sum, s);
              if (c == 0) near[r] = sum;
              if (c == 0 && i < o.T) o.delta[((m_long)p.b * o.H + p.h) * o.T + i] = sum;
          }
      }),
    // Weights from scores. base: of each row, or ACROSS of each column.
    T(template <int MT, int NT, typename BASE>
      M_FN void weigh(float (&c)[MT][NT][4], const flash &o, BASE base) {
          UNROLL for (int m = 0; m < MT; m++)
              UNROLL for (int n = 0; n < NT; n++)
                  UNROLL for (int e = 0; e < 4; e++)
                      c[m][n][e] = power2(m_fma_f(c[m][n][e], power_scale(o), -base(m, n, e)));
      }
      // The factors of the weights under dropout.
      template <bool ACROSS, int MT, int NT>
      M_FN void draw_factors(float (&f)[MT][NT][4], const flash &o, const place &p, int row,
                             int column) {
          if constexpr (DROPOUT != 0)
              UNROLL for (int m = 0; m < MT; m++)
                  UNROLL for (int n = 0; n < NT; n++)
                      dropout_factors<ACROSS>(f[m][n], o, p, row, column, m, n);
      }
      // The weights as values saw them.
      template <int MT, int NT, int MF, int NF>
      M_FN void round_weights(m_uint (&a)[MT][NT / 2][4], const float (&c)[MT][NT][4],
                              const float (&f)[MF][NF][4]) {
          if constexpr (DROPOUT != 0) {
              float kept[MT][NT][4];
              UNROLL for (int m = 0; m < MT; m++)
                  UNROLL for (int n = 0; n < NT; n++)
                      UNROLL for (int e = 0; e < 4; e++) kept[m][n][e] = c[m][n][e] * f[m][n][e];
              round_left(a, kept);
          } else round_left(a, c);
      }
      // The gradients of scores from those of the weights, d. delta as base above.
      template <int MT, int NT, int MF, int NF, typename DELTA>
      M_FN void differentiate(const float (&c)[MT][NT][4], float (&d)[MT][NT][4],
                              const float (&f)[MF][NF][4], DELTA delta) {
          UNROLL for (int m = 0; m < MT; m++)
              UNROLL for (int n = 0; n < NT; n++)
                  UNROLL for (int e = 0; e < 4; e++) {
                      float dw = d[m][n][e];
                      if constexpr (DROPOUT != 0) dw *= f[m][n][e];
                      d[m][n][e] = c[m][n][e] * (dw - delta(m, n, e));
                  }
      }
      // Of the scaled products from those of the scores. A score of -inf has any slope, but no gradient.
      template <int MT, int NT, int MS, int NS>
      M_FN void multiply_slopes(const float (&c)[MT][NT][4], float (&d)[MT][NT][4],
                                const float (&slope)[MS][NS][4]) {
          if constexpr (PROGRAM != 0)
              UNROLL for (int m = 0; m < MT; m++)
                  UNROLL for (int n = 0; n < NT; n++)
                      UNROLL for (int e = 0; e < 4; e++)
                          d[m][n][e] = c[m][n][e] == 0.0f ? 0.0f : d[m][n][e] * slope[m][n][e];
      }
      template <int MT, int NT>
      M_FN void scale_all(float (&c)[MT][NT][4], float by) {
          UNROLL for (int m = 0; m < MT; m++)
              UNROLL for (int n = 0; n < NT; n++)
                  UNROLL for (int e = 0; e < 4; e++) c[m][n][e] *= by;
      }),
    NULL,
};

// dq and delta of a tile of queries; and what scores give to the gradients of the mask, or of what the
// score program reads.
const char *const tni_text_flash_queries[] = {
    // GRADS: a bit for each extra whose gradient is wanted. Scores that broadcast from one element are
    // added up in any order.
    T(template <int N>
      M_FN void add_extra(const flash &o, const place &p, int i, int j, float ds) {
          if constexpr ((GRADS >> N & 1) != 0)
              atomicAdd(o.extra_grad[N] + offset_of(o.extra_grad_at[N], p, i, j),
                        ds * extra_slope<N>(o, p, i, j));
      }
      template <int MT, int NT>
      M_FN void add_extras(const float (&d)[MT][NT][4], const flash &o, const place &p, int row,
                           int column) {
          if constexpr (GRADS != 0)
              UNROLL for (int m = 0; m < MT; m++)
                  UNROLL for (int n = 0; n < NT; n++)
                      UNROLL for (int e = 0; e < 4; e++) {
                          int i = row + row_at(m, e);
                          int j = column + column_at(n, e);
                          if (i >= o.T || j >= p.keys || d[m][n][e] == 0.0f) continue;
                          add_extra<0>(o, p, i, j, d[m][n][e]);
                          add_extra<1>(o, p, i, j, d[m][n][e]);
                          add_extra<2>(o, p, i, j, d[m][n][e]);
                          add_extra<3>(o, p, i, j, d[m][n][e]);
                      }
      }),
    T(M_FN void copy_keys(const flash &o, const elem *k, const elem *v, int j, int keys, m_uint k_to,
                          m_uint v_to) {
          copy_tile<COLS, HEAD_D>(k_to, k + j * o.k_at[1], o.k_at[1], keys - j);
          copy_tile<COLS, HEAD_E>(v_to, v + j * o.v_at[1], o.v_at[1], keys - j);
          copy_async_commit();
      }
      extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) flash_queries(GIVEN flash o) {
          extern __shared__ char smem[];
          constexpr int COUNT = MTILES * WARPS * 16;
          constexpr int NT = SUB / 8;
          constexpr int K_BYTES = PANELS_D * COLS * 128;
          constexpr int V_BYTES = PANELS_E * COLS * 128;
          __shared__ float deltas[COUNT];
          m_begin();
          m_uint q_tile = (m_near(smem) + 1023) & ~1023u;
          m_uint g_tile = q_tile + PANELS_D * COUNT * 128;
          m_uint k_tile = g_tile + PANELS_E * COUNT * 128;
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
          float y[MTILES][TILES_D][4];
          float base[MTILES][2];
          float delta[MTILES][2];
          m_uint q[MTILES][HELD ? STEPS_D : 1][4];
          m_uint g[MTILES][HELD ? STEPS_E : 1][4];
          clear(y);
          if (n >= first) {
              copy_tile<COUNT, HEAD_D>(q_tile, o.q + p.b * o.q_at[0] + row * o.q_at[1] +
                                       p.h * o.q_at[2], o.q_at[1], o.T - row);
              copy_tile<COUNT, HEAD_E>(g_tile, o.g + p.b * o.g_at[0] + row * o.g_at[1] +
                                       p.h * o.g_at[2], o.g_at[1], o.T - row);
              copy_keys(o, k, v, n * COLS, p.keys, k_tile, v_tile);
          }
          sum_deltas(o, p, row, COUNT, deltas);
          UNROLL for (int m = 0; m < MTILES; m++)
              UNROLL for (int r = 0; r < 2; r++) {
                  int i = row + row_at(m, 2 * r);
                  base[m][r] = base_of(i < o.T ? o.lse[((m_long)p.b * o.H + p.h) * o.T + i]
                                               : minus_infinity());
              }
          bool begun = false;
          for (int at = 0; n >= first; n--, at ^= 1) {
              copy_async_wait<0>();
              fence_copies();
              __syncthreads();
              if (n > first)
                  copy_keys(o, k, v, (n - 1) * COLS, p.keys, k_tile + (at ^ 1) * K_BYTES,
                            v_tile + (at ^ 1) * V_BYTES);
              if (!begun) {
                  if constexpr (HELD != 0) {
                      load_lefts<COUNT>(q, q_tile);
                      load_lefts<COUNT>(g, g_tile);
                  }
                  UNROLL for (int m = 0; m < MTILES; m++)
                      UNROLL for (int r = 0; r < 2; r++) delta[m][r] = deltas[row_at(m, 2 * r)];
              }
              begun = true;
              for (int s = 0; s < COLS; s += SUB) {
                  float c[MTILES][NT][4];
                  float d[MTILES][NT][4];
                  float slope[PROGRAM ? MTILES : 1][PROGRAM ? NT : 1][4];
                  m_uint w[MTILES][NT / 2][4];
                  int column = n * COLS + s;
                  float factor[DROPOUT ? MTILES : 1][DROPOUT ? NT : 1][4];
                  products_begin();
                  rows_by_rows<STEPS_D, HELD != 0, COUNT, COLS>(c, q, q_tile, k_tile + at * K_BYTES,
                                                                s);
                  products_commit();
                  rows_by_rows<STEPS_E, HELD != 0, COUNT, COLS>(d, g, g_tile, v_tile + at * V_BYTES,
                                                                s);
                  products_commit();
                  products_wait<1>();
                  change_scores<false, PROGRAM != 0>(c, slope, o, p, row, column,
                                                     has_edge(o, p, row, COUNT, column, SUB));
                  weigh(c, o, [&](int m, int, int e) { return base[m][e >> 1]; });
                  draw_factors<false>(factor, o, p, row, column);
                  products_wait<0>();
                  differentiate(c, d, factor,
                                [&](int m, int, int e) { return delta[m][e >> 1]; });
                  add_extras(d, o, p, row, column);
                  multiply_slopes(c, d, slope);
                  round_left(w, d);
                  products_begin();
                  rows_by_columns<COLS>(y, w, k_tile + at * K_BYTES, s);
                  products_commit();
                  products_wait<0>();
              }
          }
          __syncthreads();
          if (!o.dq) return;
          scale_all(y, o.scale);
          store_rows<COUNT, HEAD_D>(y, q_tile, o.dq + p.b * o.dq_at[0] + row * o.dq_at[1] +
                                    p.h * o.dq_at[2], o.dq_at[1], o.T - row);
      }),
    NULL,
};

// dk and dv of a tile of keys: all heads that share the keys, one after the other, and of each the
// queries that see a key of the tile.
const char *const tni_text_flash_keys[] = {
    T(M_FN void copy_float(m_uint to, const float *from, int bytes) {
          asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::
                       "r"(to), "l"(from), "r"(bytes) : "memory");
      }
      // Starts to copy COLS queries with what belongs to them; sums: COLS of lse, then of delta.
      M_FN void copy_queries(const flash &o, int b, int h, int i, m_uint q_to, m_uint g_to,
                             m_uint sums) {
          copy_tile<COLS, HEAD_D>(q_to, o.q + b * o.q_at[0] + i * o.q_at[1] + h * o.q_at[2],
                                  o.q_at[1], o.T - i);
          copy_tile<COLS, HEAD_E>(g_to, o.g + b * o.g_at[0] + i * o.g_at[1] + h * o.g_at[2],
                                  o.g_at[1], o.T - i);
          m_long at = ((m_long)b * o.H + h) * o.T + i;
          for (int u = threadIdx.x; u < 2 * COLS; u += THREADS) {
              int s = u % COLS;
              const float *from = u < COLS ? o.lse : o.delta;
              copy_float(sums + u * 4, i + s < o.T ? from + at + s : from, i + s < o.T ? 4 : 0);
          }
          copy_async_commit();
      }),
    // IN_K, IN_V: which of the two a block computes.
    T(template <bool IN_K, bool IN_V>
      M_FN void sum_keys(const flash &o, int block, m_uint k_tile, float (&sums)[2][2 * COLS]) {
          constexpr int COUNT = MTILES * WARPS * 16;
          constexpr int NT = SUB / 8;
          constexpr int Q_BYTES = PANELS_D * COLS * 128;
          constexpr int G_BYTES = PANELS_E * COLS * 128;
          m_uint v_tile = k_tile + PANELS_D * COUNT * 128;
          m_uint q_tile = v_tile + PANELS_E * COUNT * 128;
          m_uint g_tile = q_tile + 2 * Q_BYTES;
          int tiles = (o.S + COUNT - 1) / COUNT;
          int row = block % tiles * COUNT;
          int head = block / tiles;
          int hk = head % o.HK;
          int group = o.H / o.HK;
          place p = place_of(o, head / o.HK, hk * group);
          int end = min(row + COUNT, p.keys);
          int last = WINDOW ? min(o.T, end - 1 + o.window - p.shift) : o.T;
          int first = CAUSAL ? row - p.shift : WINDOW ? row - o.window + 1 - p.shift : 0;
          first = max(0, first) / COLS;
          int blocks = row < p.keys && last > first * COLS ? (last + COLS - 1) / COLS - first : 0;
          float dk[IN_K ? MTILES : 1][IN_K ? TILES_D : 1][4];
          float dv[IN_V ? MTILES : 1][IN_V ? TILES_E : 1][4];
          m_uint k[MTILES][HELD ? STEPS_D : 1][4];
          m_uint v[MTILES][HELD ? STEPS_E : 1][4];
          clear(dk);
          clear(dv);
          if (blocks > 0) {
              copy_tile<COUNT, HEAD_D>(k_tile, o.k + p.b * o.k_at[0] + row * o.k_at[1] +
                                       hk * o.k_at[2], o.k_at[1], p.keys - row);
              copy_tile<COUNT, HEAD_E>(v_tile, o.v + p.b * o.v_at[0] + row * o.v_at[1] +
                                       hk * o.v_at[2], o.v_at[1], p.keys - row);
              copy_queries(o, p.b, p.h, first * COLS, q_tile, g_tile, m_near(sums[0]));
          }
          int i = first * COLS;
          for (int n = 0, at = 0; n < blocks * group; n++, at ^= 1) {
              bool turn = i + COLS >= last;
              int next = turn ? first * COLS : i + COLS;
              copy_async_wait<0>();
              fence_copies();
              __syncthreads();
              if (n + 1 < blocks * group)
                  copy_queries(o, p.b, p.h + turn, next, q_tile + (at ^ 1) * Q_BYTES,
                               g_tile + (at ^ 1) * G_BYTES, m_near(sums[at ^ 1]));
              if constexpr (HELD != 0)
                  if (n == 0) {
                      load_lefts<COUNT>(k, k_tile);
                      load_lefts<COUNT>(v, v_tile);
                  }
              for (int s = 0; s < COLS; s += SUB) {
                  float c[MTILES][NT][4];
                  float d[MTILES][NT][4];
                  float slope[PROGRAM ? MTILES : 1][PROGRAM ? NT : 1][4];
                  float factor[DROPOUT ? MTILES : 1][DROPOUT ? NT : 1][4];
                  m_uint w[MTILES][NT / 2][4];
                  m_uint x[MTILES][NT / 2][4];
                  const float *of = sums[at] + s;
                  products_begin();
                  rows_by_rows<STEPS_D, HELD != 0, COUNT, COLS>(c, k, k_tile, q_tile + at * Q_BYTES,
                                                                s);
                  products_commit();
                  if constexpr (IN_K)
                      rows_by_rows<STEPS_E, HELD != 0, COUNT, COLS>(d, v, v_tile,
                                                                    g_tile + at * G_BYTES, s);
                  products_commit();
                  products_wait<1>();
                  change_scores<true, PROGRAM != 0>(c, slope, o, p, row, i + s,
                                                    has_edge(o, p, i + s, SUB, row, COUNT));
                  weigh(c, o, [&](int, int n, int e) { return base_of(of[column_at(n, e)]); });
                  draw_factors<true>(factor, o, p, row, i + s);
                  if constexpr (IN_V) round_weights(w, c, factor);
                  products_wait<0>();
                  if constexpr (IN_K) {
                      differentiate(c, d, factor,
                                    [&](int, int n, int e) { return of[COLS + column_at(n, e)]; });
                      multiply_slopes(c, d, slope);
                      round_left(x, d);
                  }
                  products_begin();
                  if constexpr (IN_V) rows_by_columns<COLS>(dv, w, g_tile + at * G_BYTES, s);
                  if constexpr (IN_K) rows_by_columns<COLS>(dk, x, q_tile + at * Q_BYTES, s);
                  products_commit();
                  products_wait<0>();
              }
              p.h += turn;
              i = next;
          }
          __syncthreads();
          if constexpr (IN_K) {
              scale_all(dk, o.scale);
              if (o.dk)
                  store_rows<COUNT, HEAD_D>(dk, k_tile, o.dk + p.b * o.dk_at[0] +
                                            row * o.dk_at[1] + hk * o.dk_at[2], o.dk_at[1],
                                            o.S - row);
          }
          if constexpr (IN_V)
              if (o.dv)
                  store_rows<COUNT, HEAD_E>(dv, v_tile, o.dv + p.b * o.dv_at[0] +
                                            row * o.dv_at[1] + hk * o.dv_at[2], o.dv_at[1],
                                            o.S - row);
      }),
    // SPLIT: heads so wide that the sums of both do not fit into the registers.
    T(extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) flash_keys(GIVEN flash o) {
          extern __shared__ char smem[];
          __shared__ float sums[2][2 * COLS];
          m_begin();
          m_uint tile = (m_near(smem) + 1023) & ~1023u;
          int block = blockIdx.x;
          if constexpr (SPLIT != 0) {
              if (block & 1) sum_keys<false, true>(o, block / 2, tile, sums);
              else sum_keys<true, false>(o, block / 2, tile, sums);
          } else sum_keys<true, true>(o, block, tile, sums);
      }),
    NULL,
};
