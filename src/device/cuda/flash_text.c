// What the kernels of attention share, as text: copies into shared memory and which scores count.
// cores_text.c describes the tiles and fragments.
//
// A text is printed for one case: flash_plan.c writes its constants ahead of it as
//
//     enum { HEAD_D = 64, HEAD_E = 64, IS_F16 = 0, WGMMA = 1, ROWS = 128, COLS = 64, ... };
#include "device/cuda/flash_text.h"

#define T(...) #__VA_ARGS__ "\n"

// clang-format off
const char *const tni_text_flash[] = {
    // Panels and steps of 16 columns of queries and keys (D) and of values (E), and 8-column tiles
    // of results over them: those of whole panels for the products of Hopper, which have 64
    // columns.
    T(enum { THREADS = WARPS * 32,
             PANELS_D = (HEAD_D + 63) / 64, PANELS_E = (HEAD_E + 63) / 64,
             STEPS_D = (HEAD_D + 15) / 16, STEPS_E = (HEAD_E + 15) / 16,
             TILES_D = WGMMA ? PANELS_D * 8 : STEPS_D * 2,
             TILES_E = WGMMA ? PANELS_E * 8 : STEPS_E * 2 };
      // The argument of all kernels; flash_args in flash.c is the same in C. Strides are in
      // elements: of the batch, of rows, of heads; of extras (the mask, or what the score program
      // reads): batch, head, query, key, as of their gradients, which are sums in f32. lse and
      // delta are (B, H, T). H heads of queries, HK of keys. A query sees `window` - 1 keys to
      // either side.
      struct flash {
          const elem *q; const elem *k; const elem *v; elem *o; float *lse;
          const elem *g; elem *dq; elem *dk; elem *dv; float *delta;
          const m_int *lengths; const char *extra[4]; float *extra_grad[4];
          m_long q_at[3]; m_long k_at[3]; m_long v_at[3]; m_long o_at[3]; m_long g_at[3];
          m_long dq_at[3]; m_long dk_at[3]; m_long dv_at[3];
          m_long extra_at[4][4]; m_long extra_grad_at[4][4];
          m_ulong key; m_ulong counter;
          int B; int H; int HK; int T; int S; int window; int lengths_at;
          float scale; float drop; float kept;
      };
      // Where a block works: its batch and head, the keys that the batch has, and by how much the
      // keys are ahead of the queries: query i is at the place of key i + shift.
      struct place { int b; int h; int keys; int shift; };
      M_FN m_long offset_of(const m_long (&at)[4], const place &p, int i, int j) {
          return p.b * at[0] + p.h * at[1] + i * at[2] + j * at[3];
      }),
    // ---- exponentials --------------------------------------------------------------------------
    T(M_FN float power2(float x) {
          float y;
          asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
          return y;
      }
      // For score programs. Where operands are bf16 it is the instruction, which is off by 2^-11 of
      // the result, a quarter of what rounding a score would be; else by 2^-22, absolutely.
      M_FN float coarse_tanh(float x) {
          float y;
          if constexpr (IS_F16 != 0)
              y = m_fma_f(-2.0f, m_rcp_f(1.0f + power2(x * 2.88539008f)), 1.0f);
          else asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
          return y;
      }),
    // ---- tiles ---------------------------------------------------------------------------------
    T(// Starts to copy n elements, up to eight; the rest of the chunk becomes zeros. What is not ALIGNED
      // to 16 bytes is copied here, element by element.
      M_FN void copy_chunk(m_uint to, const elem *from, int n) {
          if constexpr (ALIGNED != 0) copy_async(to, from, n > 0 ? 16 : 0);
          else {
              m_uint x[4] = {};
              UNROLL for (int i = 0; i < 8; i++)
                  if (i < n) x[i / 2] |= (m_uint)from[i] << i % 2 * 16;
              asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::
                           "r"(to), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]) : "memory");
          }
      }
      // Starts to copy a tile of COUNT rows and WIDTH columns; rows from `rows` on and columns up
      // to the next multiple of 16 become zeros. A thread has one column of chunks, and rows at
      // equal distances, which are a multiple of eight where the widths allow it: then its places
      // in the tile are at equal distances too. Whole tiles, which are most, are copied without
      // tests.
      template <int COUNT, int WIDTH>
      M_FN void copy_tile(m_uint to, const elem *from, m_long stride, int rows) {
          constexpr int CHUNKS = (WIDTH + 15) / 16 * 2;
          constexpr int STEP = THREADS / CHUNKS;
          constexpr int TURNS = COUNT / (STEP > 0 ? STEP : 1);
          int r = (int)threadIdx.x / CHUNKS;
          int c = (int)threadIdx.x % CHUNKS;
          if constexpr (ALIGNED != 0 && WIDTH % 16 == 0 && THREADS % CHUNKS == 0 && STEP % 8 == 0 &&
                        COUNT % STEP == 0) {
              to += c / 8 * (COUNT * 128) + r * 128 + ((c ^ r) & 7) * 16;
              from += r * stride + c * 8;
              if (rows >= COUNT) {
                  UNROLL for (int n = 0; n < TURNS; n++, from += STEP * stride)
                      copy_async(to + n * STEP * 128, from, 16);
              } else {
                  UNROLL for (int n = 0; n < TURNS; n++) {
                      bool there = r + n * STEP < rows;
                      copy_async(to + n * STEP * 128, there ? from + n * STEP * stride : from,
                                 there ? 16 : 0);
                  }
              }
          } else
              for (int u = threadIdx.x; u < COUNT * CHUNKS; u += THREADS) {
                  r = u / CHUNKS;
                  c = u % CHUNKS;
                  int left = r < rows ? WIDTH - c * 8 : 0;
                  copy_chunk(to + c / 8 * (COUNT * 128) + r * 128 + ((c ^ r) & 7) * 16,
                             left > 0 ? from + r * stride + c * 8 : from, left);
              }
      }),
    // ---- results in registers ------------------------------------------------------------------
    T(// Results as the left operand of the next product.
      template <int MT, int NT>
      M_FN void round_left(m_uint (&a)[MT][NT / 2][4], const float (&c)[MT][NT][4]) {
          UNROLL for (int m = 0; m < MT; m++)
              UNROLL for (int s = 0; s < NT / 2; s++) {
                  a[m][s][0] = pack(c[m][2 * s][0], c[m][2 * s][1]);
                  a[m][s][1] = pack(c[m][2 * s][2], c[m][2 * s][3]);
                  a[m][s][2] = pack(c[m][2 * s + 1][0], c[m][2 * s + 1][1]);
                  a[m][s][3] = pack(c[m][2 * s + 1][2], c[m][2 * s + 1][3]);
              }
      }),
    NULL,
};

// Where a score is: what is known of its head, query and key, and of the first place of its thread
// in the tile, from which it is di queries and dj keys away.
const char tni_text_score_place[] =
    T(struct score_place {
          const score_head &u; const score_query &q; const score_key &k; const score_base &t;
          int i; int j; int di; int dj;
      };);

const char tni_text_hides_nothing[] =
    T(enum { HIDING = 0, HIDING_BY_HEAD = 0 };
      typedef int score_mark;
      M_FN score_mark mark_of(const score_query &) { return 0; }
      M_FN score_mark mark_of(const score_key &) { return 0; }
      M_FN bool hides_all(const score_mark (&)[2], const score_mark (&)[2]) { return false; });

const char *const tni_text_flash_unchanged[] = {
    T(M_FN score_head score_head_of(const flash &, const place &) { return score_head(); }
      M_FN score_query score_query_of(const flash &, const place &, const score_head &, int) {
          return score_query();
      }
      M_FN score_key score_key_of(const flash &, const place &, const score_head &, int) {
          return score_key();
      }
      M_FN score_base score_base_of(const flash &, const place &, const score_head &, int, int) {
          return score_base();
      }
      M_FN float score_factor() { return 1; }
      M_FN float slope_factor() { return 1; }
      M_FN float score_change(float x, const flash &, const place &, const score_place &, float &) {
          return x;
      }
      template <int N>
      M_FN float extra_slope(float, const flash &, const place &, const score_place &) { return 1; }),
    NULL,
};

const char *const tni_text_flash_scores[] = {
    // ---- scores --------------------------------------------------------------------------------
    T(M_FN place place_of(const flash &o, int b, int h) {
          int keys = LENGTHS ? min(o.lengths[b * o.lengths_at], o.S) : o.S;
          return place { b, h, keys, LENGTHS ? keys - o.T : 0 };
      }
      M_FN bool is_seen(const flash &o, const place &p, int i, int j) {
          return j < p.keys && i < o.T && (!CAUSAL || j <= i + p.shift) &&
                 (!WINDOW || (j > i + p.shift - o.window && j < i + p.shift + o.window));
      }
      // Whether a key and query in these ranges, which are not empty, may not see each other.
      M_FN bool has_edge(const flash &o, const place &p, int i, int queries, int j, int keys) {
          return j + keys > p.keys || i + queries > o.T || (CAUSAL && j + keys - 1 > i + p.shift) ||
                 (WINDOW && (j <= i + queries - 1 + p.shift - o.window ||
                             j + keys - 1 >= i + p.shift + o.window));
      }
      // The keys that any of the queries in a range sees: from, up to.
      M_FN int first_key(const flash &o, const place &p, int i) {
          return WINDOW ? max(0, i + p.shift - o.window + 1) : 0;
      }
      M_FN int end_key(const flash &o, const place &p, int end) {
          int last = min(end, o.T) - 1 + p.shift;
          return min(p.keys, CAUSAL ? last + 1 : WINDOW ? last + o.window : p.keys);
      }
      // The factor by which scores become exponents of 2. It is never negative, so that the largest
      // score is the largest product; change_scores sees to the sign.
      M_FN float power_scale(const flash &o) {
          return (PROGRAM ? score_factor() : fabsf(o.scale)) * 1.44269504f;
      }
      M_FN float minus_infinity() { return m_float_bits(0xff800000u); }
      // The weight of a score relative to the largest, 2^(scale (x - most)), and 0 without one. A
      // mask may hold the least number of a dtype, as Hugging Face's do: times the scale that is no
      // number, but the difference is one.
      M_FN float weight_of(float x, float most, float scale) {
          float base = most * scale;
          if (base == minus_infinity())
              return power2(most == minus_infinity() ? x * scale : (x - most) * scale);
          return power2(m_fma_f(x, scale, -base));
      }),
    // What a score program knows of a row and of a column, which are a query and a key or, ACROSS,
    // a key and a query.
    T(template <bool YES, typename X, typename Y> struct pick { typedef X type; };
      template <typename X, typename Y> struct pick<false, X, Y> { typedef Y type; };
      typedef pick<ACROSS != 0, score_key, score_query>::type score_row;
      typedef pick<ACROSS != 0, score_query, score_key>::type score_column;
      M_FN void know(score_query &y, const flash &o, const place &p, const score_head &u, int i) {
          y = score_query_of(o, p, u, i);
      }
      M_FN void know(score_key &y, const flash &o, const place &p, const score_head &u, int j) {
          y = score_key_of(o, p, u, j);
      }
      M_FN const score_query &query_of(const score_query &x, const score_key &) { return x; }
      M_FN const score_query &query_of(const score_key &, const score_query &y) { return y; }
      M_FN const score_key &key_of(const score_query &, const score_key &y) { return y; }
      M_FN const score_key &key_of(const score_key &x, const score_query &) { return x; }
      template <int MT>
      M_FN void know_rows(score_row (&y)[MT][2], const flash &o, const place &p, const score_head &u,
                          int row) {
          UNROLL for (int m = 0; m < MT; m++)
              UNROLL for (int e = 0; e < 2; e++) know(y[m][e], o, p, u, row + row_at(m, e * 2));
      }
      template <int NT>
      M_FN void know_columns(score_column (&y)[NT][2], const flash &o, const place &p,
                             const score_head &u, int column) {
          UNROLL for (int n = 0; n < NT; n++)
              UNROLL for (int e = 0; e < 2; e++) know(y[n][e], o, p, u, column + column_at(n, e));
      }
      // All that a program knows of a tile of scores whose first row and column are these, and the
      // place of number e of tile n, of tile m of rows, in it.
      template <int MT, int NT>
      struct score_tile {
          const score_head &u; const score_row (&rows)[MT][2]; const score_column (&columns)[NT][2];
          score_base t; int r; int c;
      };
      template <int MT, int NT>
      M_FN score_tile<MT, NT> tile_of(const flash &o, const place &p, const score_head &u,
                                      const score_row (&rows)[MT][2],
                                      const score_column (&columns)[NT][2], int row, int column) {
          int r = row + row_at(0, 0);
          int c = column + column_at(0, 0);
          return score_tile<MT, NT> {
              u, rows, columns, score_base_of(o, p, u, ACROSS ? c : r, ACROSS ? r : c), r, c
          };
      }
      template <int MT, int NT>
      M_FN score_place place_in(const score_tile<MT, NT> &tile, int m, int n, int e) {
          int dr = m * (WARPS * 16) + (e >> 1) * 8;
          int dc = n * 8 + (e & 1);
          int r = tile.r + dr;
          int c = tile.c + dc;
          const score_row &x = tile.rows[m][e >> 1];
          const score_column &y = tile.columns[n][e & 1];
          return score_place { tile.u, query_of(x, y), key_of(x, y), tile.t, ACROSS ? c : r,
                               ACROSS ? r : c, ACROSS ? dc : dr, ACROSS ? dr : dc };
      }
      // Scores from products, up to the factor of power_scale, and -inf where a query does not see
      // a key.
      template <int MT, int NT>
      M_FN void change_scores(float (&c)[MT][NT][4], const flash &o, const place &p,
                              const score_tile<MT, NT> &tile, bool edge) {
          float slope;
          if (PROGRAM != 0 || o.scale < 0)
              UNROLL for (int m = 0; m < MT; m++)
                  UNROLL for (int n = 0; n < NT; n++)
                      UNROLL for (int e = 0; e < 4; e++)
                          c[m][n][e] = PROGRAM ? score_change(c[m][n][e], o, p, place_in(tile, m, n, e), slope)
                                               : -c[m][n][e];
          if (!edge) return;
          UNROLL for (int m = 0; m < MT; m++)
              UNROLL for (int n = 0; n < NT; n++)
                  UNROLL for (int e = 0; e < 4; e++) {
                      score_place s = place_in(tile, m, n, e);
                      if (!is_seen(o, p, s.i, s.j)) c[m][n][e] = minus_infinity();
                  }
      }),
    // ---- tiles without a weight ----------------------------------------------------------------
    // The least and the largest mark of COUNT rows or columns, by eight lanes.
    T(template <typename SIDE, int COUNT>
      M_FN void marks_of(score_mark (&y)[2], const flash &o, const place &p, const score_head &u,
                         int from) {
          UNROLL for (int n = 0; n < COUNT / 8; n++) {
              SIDE x;
              know(x, o, p, u, from + n * 8 + ((int)threadIdx.x & 7));
              score_mark mark = mark_of(x);
              y[0] = n && y[0] < mark ? y[0] : mark;
              y[1] = n && y[1] > mark ? y[1] : mark;
          }
          UNROLL for (int s = 1; s < 8; s *= 2) {
              score_mark low = __shfl_xor_sync(~0u, y[0], s);
              score_mark high = __shfl_xor_sync(~0u, y[1], s);
              y[0] = low < y[0] ? low : y[0];
              y[1] = high > y[1] ? high : y[1];
          }
      }
      // Moves the first and the last tile of columns that a block goes through to those in which
      // its program lets anything be seen, for any of the heads: documents one behind the other
      // hide all but a few tiles. All threads call it.
      template <int COUNT>
      M_FN void leave_out_hidden(const flash &o, const place &p, int row, int heads, int &first,
                                 int &last) {
          if constexpr (HIDING != 0) {
              __shared__ int seen[2];
              if (threadIdx.x == 0) seen[0] = last + 1, seen[1] = first - 1;
              __syncthreads();
              for (int h = 0; h < (HIDING_BY_HEAD ? heads : 1); h++) {
                  place x = p;
                  x.h += h;
                  score_head u = score_head_of(o, x);
                  score_mark r[2];
                  score_mark c[2];
                  marks_of<score_row, COUNT>(r, o, x, u, row);
                  for (int n = first; n <= last; n += THREADS / 8) {
                      int t = min(n + (int)threadIdx.x / 8, last);
                      marks_of<score_column, COLS>(c, o, x, u, t * COLS);
                      if ((ACROSS ? hides_all(c, r) : hides_all(r, c)) || threadIdx.x & 7) continue;
                      atomicMin(&seen[0], t);
                      atomicMax(&seen[1], t);
                  }
              }
              __syncthreads();
              first = seen[0];
              last = seen[1];
          }
      }),
    // ---- dropout -------------------------------------------------------------------------------
    // The factors of the four weights of a tile that a lane has, 0 or 1 / (1 - rate). A block of
    // the generator has the words of four neighbouring keys, where rows of weights are a multiple
    // of that long (QUADS): lanes that need words of the same four blocks compute one each and
    // exchange them.
    T(M_FN m_ulong weight_number(const flash &o, const place &p, int i, int j) {
          return (m_ulong)((((m_long)p.b * o.H + p.h) * o.T + i) * o.S + j);
      }
      M_FN float factor_of(const flash &o, m_uint word) {
          return m_uniform_f(word) < o.drop ? 0.0f : o.kept;
      }
      M_FN m_quad words_of(const flash &o, const place &p, int i, int j) {
          return m_philox(o.key, o.counter + (weight_number(o, p, i, j) >> 2), 0);
      }
      // Rows are queries: two lanes have a block of row g, and one of row g + 8.
      M_FN void quads_down(float (&f)[4], const flash &o, const place &p, int i, int j) {
          int odd = threadIdx.x & 1;
          m_quad w = words_of(o, p, i + odd * 8, j - odd * 2);
          m_uint a = __shfl_xor_sync(~0u, odd ? w.x : w.z, 1);
          m_uint b = __shfl_xor_sync(~0u, odd ? w.y : w.w, 1);
          f[0] = factor_of(o, odd ? a : w.x);
          f[1] = factor_of(o, odd ? b : w.y);
          f[2] = factor_of(o, odd ? w.z : a);
          f[3] = factor_of(o, odd ? w.w : b);
      }
      // Rows are keys: four lanes have the words of two columns, in two halves of the rows. Lane k
      // of them computes the block of number k of f, and in turn r gets its word of block k - r.
      M_FN void quads_across(float (&f)[4], const flash &o, const place &p, int i, int j) {
          int lane = threadIdx.x & 31;
          int k = lane >> 2 & 3;
          m_quad w = words_of(o, p, i + (k & 1), j - k + (k >> 1) * 8);
          UNROLL for (int r = 0; r < 4; r++) {
              int to = k + r & 3;
              m_uint word = to & 2 ? (to & 1 ? w.w : w.z) : to & 1 ? w.y : w.x;
              int from = k - r & 3;
              float x = factor_of(o, __shfl_sync(~0u, word, (lane & ~12) | from << 2));
              UNROLL for (int e = 0; e < 4; e++) f[e] = from == e ? x : f[e];
          }
      }
      M_FN void dropout_factors(float (&f)[4], const flash &o, const place &p, int row, int column,
                                int m, int n) {
          int r = row + row_at(m, 0);
          int s = column + column_at(n, 0);
          if constexpr (QUADS != 0 && ACROSS != 0) quads_across(f, o, p, s, r);
          else if constexpr (QUADS != 0) quads_down(f, o, p, r, s);
          else
              UNROLL for (int e = 0; e < 4; e++) {
                  int i = ACROSS ? s + (e & 1) : r + (e >> 1) * 8;
                  int j = ACROSS ? r + (e >> 1) * 8 : s + (e & 1);
                  f[e] = factor_of(o, m_rand_bits(o.key, o.counter, weight_number(o, p, i, j)));
              }
      }),
    // ---- results -------------------------------------------------------------------------------
    // Stores a warp's rows of a result of WIDTH columns by way of its rows of a tile. rows: how
    // many the block has.
    T(template <int COUNT, int WIDTH, int MT, int NT>
      M_FN void store_rows(const float (&c)[MT][NT][4], m_uint tile, elem *to, m_long stride,
                           int rows) {
          store_chunks<COUNT, WIDTH>(c, tile, WIDTH, [=](int r, int n) { return r < rows; },
                                     [=](int r, int n) { return to + r * stride + n * 8; });
      }),
    NULL,
};
