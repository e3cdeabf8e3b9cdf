// The gradients of attention on the tensor cores, as text: flash_queries, a tile of queries by all
// keys, writes dq and delta, the sums of g times the result; flash_keys, a tile of keys by all
// queries, writes dk and dv. Each computes the weights again, from the logarithms of the sums of
// e^score:
//
//     w = e^(score - lse)      dw = g v'      ds = w (dw - delta)
//     dq = scale ds k          dk = scale ds' q          dv = w' g
//
// That is seven products instead of the five of one kernel for all three, but nothing is added up
// in global memory: the results have the same bits in every run. In flash_keys rows are keys, so
// that w' and ds' are left operands in registers and never stored.
#include "device/cuda/flash_text.h"

#define T(...) #__VA_ARGS__ "\n"

// clang-format off
const char *const tni_text_flash_gradient[] = {
    // What scores are relative to, as an exponent of 2; a query that sees no key has weights of 0,
    // and so has one of whose scores no exponent is a number.
    T(M_FN float base_of(float lse) {
          float base = lse * 1.44269504f;
          return base == minus_infinity() ? -minus_infinity() : base;
      }
      // Sums a row of g times the result, by as many lanes as it has chunks of eight, and stores
      // it.
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
    // Weights from products, in place and times the slope of the score program; a gets them as
    // values saw them. base: of each row, or ACROSS of each column. WHOLE, RAW: the weights
    // themselves and the products are kept for the gradients of extras. A score of -inf has any
    // slope, but no gradient.
    // EARLY: what is not seen is hidden before, as products of -1e30, of which all that is bounded
    // is a number; that takes fewer registers.
    T(enum { WHOLE = GRADS != 0 && SLOPED != 0, RAW = (GRADS & VARYING) != 0,
             EARLY = SLOPED != 0 && ACROSS != 0 && BLOCKS > 2 };
      template <int MT, int NT>
      struct kept {
          float weight[WHOLE ? MT : 1][WHOLE ? NT : 1][4];
          float product[RAW ? MT : 1][RAW ? NT : 1][4];
          float factor[DROPOUT ? MT : 1][DROPOUT ? NT : 1][4];
      };
      M_FN float hidden_product() { return -1e30f; }
      // Weights where a query does not see a key become 0; EARLY, products are hidden.
      template <bool PACKS, int MT, int NT, int MA, int NA>
      M_FN void hide(float (&c)[MT][NT][4], m_uint (&a)[MA][NA][4], kept<MT, NT> &k, const flash &o,
                     const place &p, const score_tile<MT, NT> &tile) {
          UNROLL for (int m = 0; m < MT; m++)
              UNROLL for (int n = 0; n < NT; n++)
                  UNROLL for (int e = 0; e < 4; e++) {
                      score_place s = place_in(tile, m, n, e);
                      if (is_seen(o, p, s.i, s.j)) continue;
                      c[m][n][e] = EARLY ? hidden_product() : 0.0f;
                      if constexpr (WHOLE != 0) k.weight[m][n][e] = 0;
                      if constexpr (PACKS && SLOPED != 0 && EARLY == 0)
                          a[m][n / 2][n % 2 * 2 + (e >> 1)] &= e & 1 ? 0xffffu : 0xffff0000u;
                  }
      }
      template <int MT, int NT>
      M_FN void round_weights(m_uint (&a)[MT][NT / 2][4], const float (&c)[MT][NT][4],
                              const kept<MT, NT> &k) {
          if constexpr (DROPOUT != 0) {
              float seen[MT][NT][4];
              UNROLL for (int m = 0; m < MT; m++)
                  UNROLL for (int n = 0; n < NT; n++)
                      UNROLL for (int e = 0; e < 4; e++)
                          seen[m][n][e] = c[m][n][e] * k.factor[m][n][e];
              round_left(a, seen);
          } else round_left(a, c);
      }
      template <bool PACKS, int MT, int NT, int MA, int NA, typename BASE>
      M_FN void weigh(float (&c)[MT][NT][4], m_uint (&a)[MA][NA][4], kept<MT, NT> &k,
                      const flash &o, const place &p, const score_tile<MT, NT> &tile, bool edge,
                      BASE base) {
          float scale = (PROGRAM ? score_factor() : o.scale) * 1.44269504f;
          if (EARLY && edge) hide<PACKS>(c, a, k, o, p, tile);
          UNROLL for (int m = 0; m < MT; m++)
              UNROLL for (int n = 0; n < NT; n++) {
                  float seen[4];
                  UNROLL for (int e = 0; e < 4; e++) {
                      float slope = 1;
                      float x = score_change(c[m][n][e], o, p, place_in(tile, m, n, e), slope);
                      float w = power2(m_fma_f(x, scale, -base(m, n, e)));
                      if (EARLY && c[m][n][e] == hidden_product()) w = 0;
                      if constexpr (WHOLE != 0) k.weight[m][n][e] = w;
                      if constexpr (RAW != 0) k.product[m][n][e] = c[m][n][e];
                      seen[e] = w;
                      if constexpr (DROPOUT != 0) seen[e] *= k.factor[m][n][e];
                      if constexpr (GUARDED != 0) w = w == 0.0f ? 0.0f : w * slope;
                      else if constexpr (SLOPED != 0) w *= slope;
                      c[m][n][e] = w;
                  }
                  if constexpr (PACKS && SLOPED != 0) {
                      a[m][n / 2][n % 2 * 2] = pack(seen[0], seen[1]);
                      a[m][n / 2][n % 2 * 2 + 1] = pack(seen[2], seen[3]);
                  }
              }
          if (!EARLY && edge) hide<PACKS>(c, a, k, o, p, tile);
          if constexpr (PACKS && SLOPED == 0) round_weights(a, c, k);
      }
      // The factors of the weights under dropout.
      template <int MT, int NT>
      M_FN void draw_factors(kept<MT, NT> &k, const flash &o, const place &p, int row, int column) {
          if constexpr (DROPOUT != 0)
              UNROLL for (int m = 0; m < MT; m++)
                  UNROLL for (int n = 0; n < NT; n++)
                      dropout_factors(k.factor[m][n], o, p, row, column, m, n);
      }
      // The gradients of products from those of the weights, d. delta as base above.
      template <int MT, int NT, typename DELTA>
      M_FN void differentiate(const float (&c)[MT][NT][4], float (&d)[MT][NT][4],
                              const kept<MT, NT> &k, DELTA delta) {
          UNROLL for (int m = 0; m < MT; m++)
              UNROLL for (int n = 0; n < NT; n++)
                  UNROLL for (int e = 0; e < 4; e++) {
                      float dw = d[m][n][e];
                      if constexpr (DROPOUT != 0) dw *= k.factor[m][n][e];
                      d[m][n][e] = c[m][n][e] * (dw - delta(m, n, e));
                  }
      }
      template <int MT, int NT>
      M_FN void scale_all(float (&c)[MT][NT][4], float by) {
          UNROLL for (int m = 0; m < MT; m++)
              UNROLL for (int n = 0; n < NT; n++)
                  UNROLL for (int e = 0; e < 4; e++) c[m][n][e] *= by;
      }),
    // What scores give to the gradients of extras. GRADS: a bit for each extra whose gradient this
    // kernel adds up; ROW_GRADS: of them, those that are the same along a row, which are added up
    // in registers first; HEAD_GRADS: those that are the same for all rows too. What broadcasts
    // from one element is added up in any order.
    T(template <int MT>
      struct extra_sums { float of[4][MT][2]; };
      template <int N, int MT>
      M_FN void add_extra(extra_sums<MT> &sums, int m, int e, const flash &o, const place &p,
                          const score_place &s, float x, float ds) {
          if constexpr ((GRADS >> N & 1) != 0) {
              float g = ds * extra_slope<N>(x, o, p, s);
              if constexpr ((ROW_GRADS >> N & 1) != 0) sums.of[N][m][e >> 1] += g;
              else atomicAdd(o.extra_grad[N] + offset_of(o.extra_grad_at[N], p, s.i, s.j), g);
          }
      }
      // c: weights times slopes; d: the gradients of weights; delta as above.
      template <int MT, int NT, typename DELTA>
      M_FN void add_extras(extra_sums<MT> &sums, const float (&c)[MT][NT][4],
                           const float (&d)[MT][NT][4], const kept<MT, NT> &k, const flash &o,
                           const place &p, const score_tile<MT, NT> &tile, DELTA delta) {
          if constexpr (GRADS != 0)
              UNROLL for (int m = 0; m < MT; m++)
                  UNROLL for (int n = 0; n < NT; n++)
                      UNROLL for (int e = 0; e < 4; e++) {
                          float w = c[m][n][e];
                          float x = 0;
                          float dw = d[m][n][e];
                          if constexpr (WHOLE != 0) w = k.weight[m][n][e];
                          if constexpr (RAW != 0) x = k.product[m][n][e];
                          if constexpr (DROPOUT != 0) dw *= k.factor[m][n][e];
                          float ds = w * (dw - delta(m, n, e));
                          score_place s = place_in(tile, m, n, e);
                          if (s.i >= o.T || s.j >= p.keys || ds == 0.0f) continue;
                          add_extra<0>(sums, m, e, o, p, s, x, ds);
                          add_extra<1>(sums, m, e, o, p, s, x, ds);
                          add_extra<2>(sums, m, e, o, p, s, x, ds);
                          add_extra<3>(sums, m, e, o, p, s, x, ds);
                      }
      }
      // Adds the sums of rows, and begins new ones. A row's four lanes, or all lanes, join theirs.
      template <int N, int MT>
      M_FN void flush_extra(extra_sums<MT> &sums, const flash &o, const place &p, int row) {
          constexpr bool ALL = (HEAD_GRADS >> N & 1) != 0;
          if constexpr ((GRADS & ROW_GRADS & 1 << N) != 0) {
              float total = 0;
              UNROLL for (int m = 0; m < MT; m++)
                  UNROLL for (int e = 0; e < 2; e++) {
                      float x = sums.of[N][m][e];
                      sums.of[N][m][e] = 0;
                      total += x;
                      if constexpr (!ALL) {
                          UNROLL for (int s = 1; s < 4; s *= 2) x += __shfl_xor_sync(~0u, x, s);
                          int r = row + row_at(m, e * 2);
                          bool there = ACROSS ? r < p.keys : r < o.T;
                          if (there && (threadIdx.x & 3) == 0)
                              atomicAdd(o.extra_grad[N] + offset_of(o.extra_grad_at[N], p,
                                                                    ACROSS ? 0 : r, ACROSS ? r : 0), x);
                      }
                  }
              if constexpr (ALL) {
                  UNROLL for (int s = 1; s < 32; s *= 2) total += __shfl_xor_sync(~0u, total, s);
                  if ((threadIdx.x & 31) == 0)
                      atomicAdd(o.extra_grad[N] + offset_of(o.extra_grad_at[N], p, 0, 0), total);
              }
          }
      }
      template <int MT>
      M_FN void flush_extras(extra_sums<MT> &sums, const flash &o, const place &p, int row) {
          flush_extra<0>(sums, o, p, row);
          flush_extra<1>(sums, o, p, row);
          flush_extra<2>(sums, o, p, row);
          flush_extra<3>(sums, o, p, row);
      }
      template <int MT>
      M_FN void clear_extras(extra_sums<MT> &sums) {
          UNROLL for (int n = 0; n < 4; n++)
              UNROLL for (int m = 0; m < MT; m++) sums.of[n][m][0] = sums.of[n][m][1] = 0;
      }),
    NULL,
};

// dq and delta of a tile of queries.
const char *const tni_text_flash_queries[] = {
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
          leave_out_hidden<COUNT>(o, p, row, 1, first, n);
          float y[MTILES][TILES_D][4];
          float base[MTILES][2];
          float delta[MTILES][2];
          m_uint q[MTILES][HELD ? STEPS_D : 1][4];
          m_uint g[MTILES][HELD ? STEPS_E : 1][4];
          score_head u = score_head_of(o, p);
          score_row rows[MTILES][2];
          extra_sums<MTILES> extras;
          know_rows(rows, o, p, u, row);
          clear_extras(extras);
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
                  kept<MTILES, NT> more;
                  m_uint w[MTILES][NT / 2][4];
                  score_column columns[NT][2];
                  int column = n * COLS + s;
                  auto delta_at = [&](int m, int, int e) { return delta[m][e >> 1]; };
                  products_begin();
                  rows_by_rows<STEPS_D, HELD != 0, COUNT, COLS>(c, q, q_tile, k_tile + at * K_BYTES,
                                                                s);
                  products_commit();
                  rows_by_rows<STEPS_E, HELD != 0, COUNT, COLS>(d, g, g_tile, v_tile + at * V_BYTES,
                                                                s);
                  products_commit();
                  know_columns(columns, o, p, u, column);
                  draw_factors(more, o, p, row, column);
                  score_tile<MTILES, NT> scores = tile_of(o, p, u, rows, columns, row, column);
                  products_wait<1>();
                  weigh<false>(c, w, more, o, p, scores, has_edge(o, p, row, COUNT, column, SUB),
                               [&](int m, int, int e) { return base[m][e >> 1]; });
                  products_wait<0>();
                  add_extras(extras, c, d, more, o, p, scores, delta_at);
                  differentiate(c, d, more, delta_at);
                  round_left(w, d);
                  products_begin();
                  rows_by_columns<COLS>(y, w, k_tile + at * K_BYTES, s);
                  products_commit();
                  products_wait<0>();
              }
          }
          __syncthreads();
          flush_extras(extras, o, p, row);
          if (!o.dq) return;
          scale_all(y, o.scale * slope_factor());
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
          if constexpr (HIDING != 0) {
              int end_block = first + blocks - 1;
              leave_out_hidden<COUNT>(o, p, row, group, first, end_block);
              last = (end_block + 1) * COLS;
              blocks = max(0, end_block - first + 1);
          }
          float dk[IN_K ? MTILES : 1][IN_K ? TILES_D : 1][4];
          float dv[IN_V ? MTILES : 1][IN_V ? TILES_E : 1][4];
          m_uint k[MTILES][HELD ? STEPS_D : 1][4];
          m_uint v[MTILES][HELD ? STEPS_E : 1][4];
          score_head u = score_head_of(o, p);
          score_row rows[MTILES][2];
          extra_sums<MTILES> extras;
          know_rows(rows, o, p, u, row);
          clear_extras(extras);
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
                  kept<MTILES, NT> more;
                  m_uint w[MTILES][NT / 2][4];
                  m_uint x[MTILES][NT / 2][4];
                  score_column columns[NT][2];
                  const float *of = sums[at] + s;
                  auto delta_at = [&](int, int n, int e) { return of[COLS + column_at(n, e)]; };
                  products_begin();
                  rows_by_rows<STEPS_D, HELD != 0, COUNT, COLS>(c, k, k_tile, q_tile + at * Q_BYTES,
                                                                s);
                  products_commit();
                  if constexpr (IN_K)
                      rows_by_rows<STEPS_E, HELD != 0, COUNT, COLS>(d, v, v_tile,
                                                                    g_tile + at * G_BYTES, s);
                  products_commit();
                  know_columns(columns, o, p, u, i + s);
                  draw_factors(more, o, p, row, i + s);
                  score_tile<MTILES, NT> scores = tile_of(o, p, u, rows, columns, row, i + s);
                  products_wait<1>();
                  weigh<IN_V>(c, w, more, o, p, scores, has_edge(o, p, i + s, SUB, row, COUNT),
                              [&](int, int n, int e) { return base_of(of[column_at(n, e)]); });
                  products_wait<0>();
                  if constexpr (IN_K) {
                      add_extras(extras, c, d, more, o, p, scores, delta_at);
                      differentiate(c, d, more, delta_at);
                      round_left(x, d);
                  }
                  products_begin();
                  if constexpr (IN_V) rows_by_columns<COLS>(dv, w, g_tile + at * G_BYTES, s);
                  if constexpr (IN_K) rows_by_columns<COLS>(dk, x, q_tile + at * Q_BYTES, s);
                  products_commit();
                  products_wait<0>();
              }
              if (turn && IN_K) flush_extras(extras, o, p, row);
              p.h += turn;
              i = next;
              if (PROGRAM != 0 && turn && n + 1 < blocks * group) {
                  u = score_head_of(o, p);
                  know_rows(rows, o, p, u, row);
              }
          }
          __syncthreads();
          if constexpr (IN_K) {
              scale_all(dk, o.scale * slope_factor());
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
