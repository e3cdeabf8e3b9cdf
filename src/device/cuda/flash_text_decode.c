// Attention of few queries over many keys, as text: generating a token reads every key and value once,
// so that it is bound by memory, and tensor cores would have nothing to do.
//
// A block has some of the keys of one head, for ROWS queries: T of each of one or two heads that share
// the keys. More would share more reads, but take registers and time that few blocks do not have; what
// is read again by another block comes from the cache. LANES lanes read a key together, 16 bytes each; a thread has EACH keys
// and values in flight at a time, and the queries in registers. Where several blocks split the keys of
// a head, each writes what it has so far, and the last one to arrive joins them.
#include "device/cuda/flash_text.h"

#define T(...) #__VA_ARGS__ "\n"

// clang-format off
const char *const tni_text_flash_decode[] = {
    T(enum { CHUNKS_D = (HEAD_D + 7) / 8, CHUNKS_E = (HEAD_E + 7) / 8,
             CHUNKS = CHUNKS_D > CHUNKS_E ? CHUNKS_D : CHUNKS_E,
             LANES = CHUNKS <= 1 ? 1 : CHUNKS <= 2 ? 2 : CHUNKS <= 4 ? 4 : CHUNKS <= 8 ? 8
                   : CHUNKS <= 16 ? 16 : 32,
             SLOTS = THREADS / LANES, EACH = 8, KEYS = SLOTS * EACH, WIDTH = LANES * 8,
             STATE = HEAD_E + 2 };
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
    // What a block knows of a row: the largest score and the sum of weights, here and in `part`.
    T(struct rows {
          float score[2][ROWS][KEYS];
          float most[ROWS]; float sum[ROWS]; float factor[ROWS];
          float value[WARPS][ROWS][WIDTH];
          int last;
      };
      // The softmax of KEYS scores of each row, a warp to a row, as flash_forward has it.
      M_FN void soften(rows &x, int at, float scale) {
          int lane = threadIdx.x & 31;
          for (int r = (int)threadIdx.x / 32; r < ROWS; r += WARPS) {
              float top = x.most[r];
              float sum = 0;
              for (int j = lane; j < KEYS; j += 32) top = fmaxf(top, x.score[at][r][j]);
              UNROLL for (int s = 16; s > 0; s /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, s));
              float base = top == minus_infinity() ? 0.0f : top * scale;
              float factor = power2(m_fma_f(x.most[r], scale, -base));
              for (int j = lane; j < KEYS; j += 32) {
                  float w = power2(m_fma_f(x.score[at][r][j], scale, -base));
                  x.score[at][r][j] = w;
                  sum += w;
              }
              UNROLL for (int s = 16; s > 0; s /= 2) sum += __shfl_xor_sync(~0u, sum, s);
              __syncwarp();
              if (lane == 0) {
                  x.most[r] = top;
                  x.sum[r] = m_fma_f(x.sum[r], factor, sum);
                  x.factor[r] = factor;
              }
          }
      }),
    // Ends a row: element e of its result, and by the first one the logarithm of its sum.
    T(M_FN elem round_one(float x) { return (elem)pack(x, 0); }
      M_FN void put_result(const flash &o, const place &p, int r, int e, float value, float most,
                           float sum) {
          int h = p.h + r / o.T;
          int i = r % o.T;
          o.o[p.b * o.o_at[0] + i * o.o_at[1] + h * o.o_at[2] + e] =
              round_one(sum == 0.0f ? 0.0f : value / sum);
          if (o.lse && e == 0)
              o.lse[((m_long)p.b * o.H + h) * o.T + i] =
                  sum == 0.0f ? minus_infinity()
                              : m_fma_f(most, power_scale(o), __log2f(sum)) * 0.693147181f;
      }
      // Joins the parts of all blocks of a head: by the last of them, to which the others' writes are
      // visible.
      M_FN void join(const flash &o, const place &p, int head, int used) {
          const float *part = o.part + (m_long)head * o.splits * ROWS * STATE;
          for (int u = threadIdx.x; u < ROWS * HEAD_E; u += THREADS) {
              int r = u / HEAD_E;
              int e = u % HEAD_E;
              float most = minus_infinity();
              float sum = 0;
              float value = 0;
              for (int s = 0; s < used; s++)
                  most = fmaxf(most, __ldcg(part + (s * ROWS + r) * STATE + HEAD_E));
              for (int s = 0; s < used; s++) {
                  const float *from = part + (s * ROWS + r) * STATE;
                  float top = __ldcg(from + HEAD_E);
                  float factor = top == minus_infinity() ? 0.0f
                               : power2((top - most) * power_scale(o));
                  sum = m_fma_f(__ldcg(from + HEAD_E + 1), factor, sum);
                  value = m_fma_f(__ldcg(from + e), factor, value);
              }
              put_result(o, p, r, e, value, most, sum);
          }
      }),
    // Adds up a block's values: of the keys of a warp by shuffles, of the warps in shared memory. Writes
    // results, or what join needs.
    T(M_FN void finish(const flash &o, const place &p, rows &x, float (&y)[ROWS][8], int head,
                       int split, int used) {
          int lane = threadIdx.x & 31;
          UNROLL for (int r = 0; r < ROWS; r++)
              UNROLL for (int i = 0; i < 8; i++) {
                  UNROLL for (int s = LANES; s < 32; s *= 2)
                      y[r][i] += __shfl_xor_sync(~0u, y[r][i], s);
                  if (lane < LANES) x.value[threadIdx.x / 32][r][lane * 8 + i] = y[r][i];
              }
          __syncthreads();
          float *part = o.part + ((m_long)head * o.splits + split) * ROWS * STATE;
          for (int u = threadIdx.x; u < ROWS * HEAD_E; u += THREADS) {
              int r = u / HEAD_E;
              int e = u % HEAD_E;
              float value = 0;
              UNROLL for (int w = 0; w < WARPS; w++) value += x.value[w][r][e];
              if (used == 1) put_result(o, p, r, e, value, x.most[r], x.sum[r]);
              else part[r * STATE + e] = value;
              if (used > 1 && e == 0) {
                  part[r * STATE + HEAD_E] = x.most[r];
                  part[r * STATE + HEAD_E + 1] = x.sum[r];
              }
          }
          if (used == 1) return;
          __threadfence();
          __syncthreads();
          if (threadIdx.x == 0) {
              x.last = atomicAdd(o.arrived + head, 1) == used - 1;
              if (x.last) o.arrived[head] = 0;
          }
          __syncthreads();
          __threadfence();
          if (x.last) join(o, p, head, used);
      }),
    // While the kernels ahead still run: brings the keys and values of a block to the cache that all blocks share. How
    // many there are may not be known yet; whatever is found serves as a guess.
    T(M_FN void fetch_ahead(const flash &o) {
          int split = (int)blockIdx.x % o.splits;
          int head = (int)blockIdx.x / o.splits;
          int heads = ROWS / o.T;
          int of = o.H / heads;
          place p = place_of(o, head / of, head % of * heads);
          int hk = p.h / (o.H / o.HK);
          int pieces = (max(0, min(p.keys, o.S)) + KEYS - 1) / KEYS;
          int used = pieces <= 2 ? 1 : min(pieces, o.splits);
          int end = min(pieces * (split + 1) / used * KEYS, p.keys);
          if (split >= used || end > o.S) return;
          for (int j = pieces * split / used * KEYS + (int)threadIdx.x; j < end; j += THREADS) {
              const elem *k = o.k + p.b * o.k_at[0] + hk * o.k_at[2] + j * o.k_at[1];
              const elem *v = o.v + p.b * o.v_at[0] + hk * o.v_at[2] + j * o.v_at[1];
              UNROLL for (int e = 0; e < HEAD_D; e += 64) m_prefetch(k + e);
              UNROLL for (int e = 0; e < HEAD_E; e += 64) m_prefetch(v + e);
          }
      }),
    // The kernel. Keys are split evenly in pieces of KEYS. Where lengths leave fewer pieces than blocks, the
    // blocks beyond have nothing to do; two pieces are faster one after the other than joined.
    T(extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) flash_decode(GIVEN flash o) {
          __shared__ rows x;
          fetch_ahead(o);
          m_begin();
          int split = (int)blockIdx.x % o.splits;
          int head = (int)blockIdx.x / o.splits;
          int heads = ROWS / o.T;
          int of = o.H / heads;
          place p = place_of(o, head / of, head % of * heads);
          int hk = p.h / (o.H / o.HK);
          int lane = (int)threadIdx.x % LANES;
          int slot = (int)threadIdx.x / LANES;
          const elem *k = o.k + p.b * o.k_at[0] + hk * o.k_at[2] + lane * 8;
          const elem *v = o.v + p.b * o.v_at[0] + hk * o.v_at[2] + lane * 8;
          float q[ROWS][8];
          float y[ROWS][8];
          UNROLL for (int r = 0; r < ROWS; r++) {
              widen(q[r], load_chunk(o.q + p.b * o.q_at[0] + r % o.T * o.q_at[1] +
                                     (p.h + r / o.T) * o.q_at[2] + lane * 8, HEAD_D - lane * 8));
              UNROLL for (int i = 0; i < 8; i++) y[r][i] = 0;
          }
          score_head u[ROWS];
          score_query query[ROWS];
          UNROLL for (int r = 0; r < ROWS; r++) {
              place row = { p.b, p.h + r / o.T, p.keys, p.shift };
              u[r] = score_head_of(o, row);
              query[r] = score_query_of(o, row, u[r], r % o.T);
          }
          for (int r = threadIdx.x; r < ROWS; r += THREADS) x.most[r] = minus_infinity(), x.sum[r] = 0;
          int from = first_key(o, p, 0) / KEYS;
          int pieces = (end_key(o, p, o.T) + KEYS - 1) / KEYS - from;
          int used = pieces <= 2 ? 1 : min(pieces, o.splits);
          if (split >= used) return;
          int end = from + pieces * (split + 1) / used;
          int at = 0;
          for (int n = from + pieces * split / used; n < end; n++, at ^= 1) {
              uint4 kk[EACH];
              uint4 vv[EACH];
              UNROLL for (int i = 0; i < EACH; i++) {
                  int j = n * KEYS + i * SLOTS + slot;
                  bool there = j < p.keys;
                  kk[i] = load_chunk(k + j * o.k_at[1], there ? HEAD_D - lane * 8 : 0);
              }
              UNROLL for (int i = 0; i < EACH; i++) {
                  int j = n * KEYS + i * SLOTS + slot;
                  bool there = j < p.keys;
                  vv[i] = load_chunk(v + j * o.v_at[1], there ? HEAD_E - lane * 8 : 0);
              }
              UNROLL for (int i = 0; i < EACH; i++) {
                  float a[8];
                  int j = n * KEYS + i * SLOTS + slot;
                  widen(a, kk[i]);
                  UNROLL for (int r = 0; r < ROWS; r++) {
                      float s = 0;
                      UNROLL for (int d = 0; d < 8; d++) s = m_fma_f(q[r][d], a[d], s);
                      UNROLL for (int step = 1; step < LANES; step *= 2)
                          s += __shfl_xor_sync(~0u, s, step);
                      place row = { p.b, p.h + r / o.T, p.keys, p.shift };
                      bool seen = is_seen(o, row, r % o.T, j);
                      if (lane == 0)
                          x.score[at][r][i * SLOTS + slot] =
                              seen ? changed_score(s, o, row, u[r], query[r], r % o.T, j)
                                   : minus_infinity();
                  }
              }
              __syncthreads();
              soften(x, at, power_scale(o));
              __syncthreads();
              UNROLL for (int r = 0; r < ROWS; r++)
                  UNROLL for (int i = 0; i < 8; i++) y[r][i] *= x.factor[r];
              UNROLL for (int i = 0; i < EACH; i++) {
                  float a[8];
                  widen(a, vv[i]);
                  UNROLL for (int r = 0; r < ROWS; r++) {
                      float w = x.score[at][r][i * SLOTS + slot];
                      UNROLL for (int d = 0; d < 8; d++) y[r][d] = m_fma_f(w, a[d], y[r][d]);
                  }
              }
          }
          __syncthreads();
          finish(o, p, x, y, head, split, used);
      }),
    NULL,
};
