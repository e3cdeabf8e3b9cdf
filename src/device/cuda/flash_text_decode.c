// Attention of few queries over many keys, as text: generating a token reads every key and value
// once, so that it is bound by memory, and tensor cores would have nothing to do.
//
// RANKS blocks, a cluster, have the keys of one head, for ROWS queries: T of each of one or two
// heads that share the keys. More would share more reads, but take registers and time that few
// blocks do not have; what is read again by another cluster comes from the cache. LANES lanes read
// a key together, 16 bytes each, and as many threads take the next one: SLOTS keys of a block, then
// those of the next block of the cluster, and so in turns. A thread has the keys and values of EACH
// turns in flight, and the softmax of its own keys; threads, warps and blocks join theirs at the
// end.
#include "device/cuda/flash_text.h"

#define T(...) #__VA_ARGS__ "\n"

// clang-format off
const char *const tni_text_flash_decode[] = {
    T(enum { CHUNKS_D = (HEAD_D + 7) / 8, CHUNKS_E = (HEAD_E + 7) / 8,
             CHUNKS = CHUNKS_D > CHUNKS_E ? CHUNKS_D : CHUNKS_E,
             LANES = CHUNKS <= 1 ? 1 : CHUNKS <= 2 ? 2 : CHUNKS <= 4 ? 4 : CHUNKS <= 8 ? 8
                   : CHUNKS <= 16 ? 16 : 32,
             SLOTS = THREADS / LANES, EACH = ROWS > 2 ? 4 : 8, WIDTH = LANES * 8 };
      // Eight elements, of which n exist.
      M_FN uint4 load_chunk(const elem *from, int n) {
          uint4 x = { 0, 0, 0, 0 };
          if constexpr (ALIGNED != 0) {
              if (n > 0) x = *(const uint4 *)from;
          } else {
              elem part[8];
              UNROLL for (int i = 0; i < 8; i++) part[i] = i < n ? from[i] : 0;
              x.x = part[0] | (m_uint)part[1] << 16;
              x.y = part[2] | (m_uint)part[3] << 16;
              x.z = part[4] | (m_uint)part[5] << 16;
              x.w = part[6] | (m_uint)part[7] << 16;
          }
          return x;
      }
      M_FN void widen(float (&y)[8], uint4 x) {
          m_uint part[4] = { x.x, x.y, x.z, x.w };
          UNROLL for (int i = 0; i < 4; i++) {
              y[2 * i] = element((elem)part[i]);
              y[2 * i + 1] = element((elem)(part[i] >> 16));
          }
      }),
    // One score from its product, up to the factor of power_scale.
    T(M_FN float changed_score(float x, const flash &o, const place &p, const score_head &u,
                               const score_query &q, int i, int j) {
          score_key k = score_key_of(o, p, u, j);
          score_base t = score_base_of(o, p, u, i, j);
          float slope;
          if constexpr (PROGRAM != 0)
              return score_change(x, o, p, score_place { u, q, k, t, i, j, 0, 0 }, slope);
          return o.scale < 0 ? -x : x;
      }),
    // Where a block works: its first head, and its place among the RANKS blocks of a cluster.
    T(M_FN place place_of_block(const flash &o) {
          int head = (int)blockIdx.x / RANKS;
          int heads = ROWS / o.T;
          int of = o.H / heads;
          return place_of(o, head / of, head % of * heads);
      }
      // The first key of a turn of this block; that of slot i is i keys further.
      M_FN int key_of(const flash &o, const place &p, int turn) {
          return first_key(o, p, 0) + (turn * RANKS + (int)blockIdx.x % RANKS) * SLOTS;
      }
      M_FN int last_key(const flash &o, const place &p) { return min(end_key(o, p, o.T), o.S); }),
    // While the kernels ahead still run: brings the keys and values of a block to the cache that
    // all blocks share. How many there are may not be known yet; whatever is found serves as a
    // guess.
    T(M_FN void fetch_ahead(const flash &o) {
          place p = place_of_block(o);
          int hk = p.h / (o.H / o.HK);
          int lane = (int)threadIdx.x % LANES;
          int slot = (int)threadIdx.x / LANES;
          int end = last_key(o, p);
          const elem *k = o.k + p.b * o.k_at[0] + hk * o.k_at[2];
          const elem *v = o.v + p.b * o.v_at[0] + hk * o.v_at[2];
          for (int turn = 0; key_of(o, p, turn) < end; turn++) {
              int j = key_of(o, p, turn) + slot;
              if (j < 0 || j >= end) continue;
              for (int e = lane * 64; e < HEAD_D; e += LANES * 64) m_prefetch(k + j * o.k_at[1] + e);
              for (int e = (LANES - 1 - lane) * 64; e < HEAD_E; e += LANES * 64)
                  m_prefetch(v + j * o.v_at[1] + e);
          }
      }),
    // The softmax of some keys: the largest score, the sum of the weights, and eight columns of the
    // weighted values.
    T(struct softmax { float most; float sum; float y[8]; };
      // Weighs what a thread has by a larger score.
      M_FN void raise(softmax &x, float most, float scale) {
          float factor = weight_of(x.most, most, scale);
          x.most = most;
          x.sum *= factor;
          UNROLL for (int d = 0; d < 8; d++) x.y[d] *= factor;
      }
      // Joins those of the threads of a warp that have the same columns.
      M_FN void join_slots(softmax &x, float scale) {
          UNROLL for (int step = LANES; step < 32; step *= 2) {
              raise(x, fmaxf(x.most, __shfl_xor_sync(~0u, x.most, step)), scale);
              x.sum += __shfl_xor_sync(~0u, x.sum, step);
              UNROLL for (int d = 0; d < 8; d++) x.y[d] += __shfl_xor_sync(~0u, x.y[d], step);
          }
      }),
    // What the warps of a block have of a row, and all of the block: the largest score, the sum,
    // the values.
    T(enum { MOST, SUM, VALUES };
      struct shared_rows { float of[WARPS][ROWS][VALUES + WIDTH]; float all[ROWS][VALUES + WIDTH]; };
      M_FN float near_or_far(const float *p, int rank) {
          if constexpr (RANKS == 1) return *p;
          float v;
          asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(m_far(p, rank)) : "memory");
          return v;
      }
      M_FN void cluster_barrier() {
          if constexpr (RANKS == 1) __syncthreads();
          else m_cluster_barrier();
      }
      // Column e of a row, joined over COUNT parts: at(i, k) is number k of part i.
      template <int COUNT, typename F> M_FN softmax join_parts(float scale, int e, F at) {
          softmax x = { minus_infinity(), 0.0f };
          float top[COUNT];
          float sum[COUNT];
          float y[COUNT];
          UNROLL for (int i = 0; i < COUNT; i++) {
              top[i] = at(i, MOST);
              sum[i] = at(i, SUM);
              y[i] = at(i, VALUES + e);
          }
          UNROLL for (int i = 0; i < COUNT; i++) x.most = fmaxf(x.most, top[i]);
          x.y[0] = 0;
          UNROLL for (int i = 0; i < COUNT; i++) {
              float factor = weight_of(top[i], x.most, scale);
              x.sum = m_fma_f(sum[i], factor, x.sum);
              x.y[0] = m_fma_f(y[i], factor, x.y[0]);
          }
          return x;
      }),
    // Ends a row: element e of its result, and by the first one the logarithm of its sum.
    T(M_FN elem round_one(float x) { return (elem)pack(x, 0); }
      M_FN void put_result(const flash &o, const place &p, int r, int e, const softmax &x) {
          int h = p.h + r / o.T;
          int i = r % o.T;
          o.o[p.b * o.o_at[0] + i * o.o_at[1] + h * o.o_at[2] + e] =
              round_one(x.sum == 0.0f ? 0.0f : x.y[0] / x.sum);
          if (o.lse && e == 0)
              o.lse[((m_long)p.b * o.H + h) * o.T + i] =
                  x.sum == 0.0f ? minus_infinity()
                                : m_fma_f(x.most, power_scale(o) * 0.693147181f,
                                          __log2f(x.sum) * 0.693147181f);
      }
      // Joins the warps of each block, then the blocks of a cluster, of which each ends its share
      // of the columns.
      M_FN void finish(const flash &o, const place &p, shared_rows &s) {
          float scale = power_scale(o);
          __syncthreads();
          for (int u = threadIdx.x; u < ROWS * WIDTH; u += THREADS) {
              int r = u / WIDTH;
              int e = u % WIDTH;
              softmax x = join_parts<WARPS>(scale, e, [&](int i, int k) { return s.of[i][r][k]; });
              s.all[r][VALUES + e] = x.y[0];
              if (e == 0) s.all[r][MOST] = x.most, s.all[r][SUM] = x.sum;
          }
          cluster_barrier();
          for (int u = (int)blockIdx.x % RANKS * THREADS + threadIdx.x; u < ROWS * HEAD_E;
               u += RANKS * THREADS) {
              int r = u / HEAD_E;
              int e = u % HEAD_E;
              put_result(o, p, r, e, join_parts<RANKS>(scale, e, [&](int i, int k) {
                  return near_or_far(&s.all[r][k], i);
              }));
          }
          if constexpr (RANKS > 1) m_cluster_barrier();
      }),
    // The kernel.
    T(extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) CLUSTER flash_decode(GIVEN flash o) {
          __shared__ shared_rows shared;
          fetch_ahead(o);
          m_begin();
          place p = place_of_block(o);
          int hk = p.h / (o.H / o.HK);
          int lane = (int)threadIdx.x % LANES;
          int slot = (int)threadIdx.x / LANES;
          const elem *k = o.k + p.b * o.k_at[0] + hk * o.k_at[2] + lane * 8;
          const elem *v = o.v + p.b * o.v_at[0] + hk * o.v_at[2] + lane * 8;
          float scale = power_scale(o);
          float q[ROWS][8];
          softmax x[ROWS];
          score_head u[ROWS];
          score_query query[ROWS];
          UNROLL for (int r = 0; r < ROWS; r++) {
              place row = { p.b, p.h + r / o.T, p.keys, p.shift };
              widen(q[r], load_chunk(o.q + p.b * o.q_at[0] + r % o.T * o.q_at[1] +
                                     row.h * o.q_at[2] + lane * 8, HEAD_D - lane * 8));
              x[r].most = minus_infinity();
              x[r].sum = 0;
              UNROLL for (int i = 0; i < 8; i++) x[r].y[i] = 0;
              u[r] = score_head_of(o, row);
              query[r] = score_query_of(o, row, u[r], r % o.T);
          }
          int end = last_key(o, p);
          for (int turn = 0; key_of(o, p, turn) < end; turn += EACH) {
              uint4 kk[EACH];
              uint4 vv[EACH];
              float s[ROWS][EACH];
              UNROLL for (int i = 0; i < EACH; i++) {
                  int j = key_of(o, p, turn + i) + slot;
                  kk[i] = load_chunk(k + j * o.k_at[1], j < end ? HEAD_D - lane * 8 : 0);
              }
              UNROLL for (int i = 0; i < EACH; i++) {
                  int j = key_of(o, p, turn + i) + slot;
                  vv[i] = load_chunk(v + j * o.v_at[1], j < end ? HEAD_E - lane * 8 : 0);
              }
              UNROLL for (int i = 0; i < EACH; i++) {
                  float a[8];
                  int j = key_of(o, p, turn + i) + slot;
                  UNROLL for (int r = 0; r < ROWS; r++) s[r][i] = minus_infinity();
                  if (key_of(o, p, turn + i) >= end) continue;
                  widen(a, kk[i]);
                  UNROLL for (int r = 0; r < ROWS; r++) {
                      place row = { p.b, p.h + r / o.T, p.keys, p.shift };
                      float y = 0;
                      UNROLL for (int d = 0; d < 8; d++) y = m_fma_f(q[r][d], a[d], y);
                      UNROLL for (int step = 1; step < LANES; step *= 2)
                          y += __shfl_xor_sync(~0u, y, step);
                      if (is_seen(o, row, r % o.T, j))
                          s[r][i] = changed_score(y, o, row, u[r], query[r], r % o.T, j);
                  }
              }
              UNROLL for (int r = 0; r < ROWS; r++) {
                  float most = x[r].most;
                  UNROLL for (int i = 0; i < EACH; i++) most = fmaxf(most, s[r][i]);
                  raise(x[r], most, scale);
                  UNROLL for (int i = 0; i < EACH; i++) {
                      s[r][i] = weight_of(s[r][i], most, scale);
                      x[r].sum += s[r][i];
                  }
              }
              UNROLL for (int i = 0; i < EACH; i++) {
                  float a[8];
                  if (key_of(o, p, turn + i) >= end) continue;
                  widen(a, vv[i]);
                  UNROLL for (int r = 0; r < ROWS; r++)
                      UNROLL for (int d = 0; d < 8; d++) x[r].y[d] = m_fma_f(s[r][i], a[d], x[r].y[d]);
              }
          }
          UNROLL for (int r = 0; r < ROWS; r++) {
              float *to = shared.of[threadIdx.x / 32][r];
              join_slots(x[r], scale);
              if (threadIdx.x % 32 == 0) to[MOST] = x[r].most, to[SUM] = x[r].sum;
              if (threadIdx.x % 32 < LANES)
                  UNROLL for (int d = 0; d < 8; d++) to[VALUES + lane * 8 + d] = x[r].y[d];
          }
          finish(o, p, shared);
      }),
    NULL,
};
