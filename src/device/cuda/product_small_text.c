// The kernel for small products in f32, as text. Such a product is bound by latency: a block
// therefore requests everything it needs before its first sum, and the inner axis is split over the
// blocks of a cluster and, within a block, over four groups of 64 threads.
//
// A block computes a tile of 32 x 32 results over its slice of the inner axis, in stages of 64
// steps; a thread has 4 x 4 of the results and adds four steps at a time. Each operand is stored in
// shared memory as it is in global memory, along the inner axis or across it; which rows a thread
// has depends on that, so that in neither case do reads of a warp collide in the same banks. The
// sums of the four groups, then those of the blocks, are added in a fixed order.
#include "device/cuda/product_small.h"

#define T(...) #__VA_ARGS__ "\n"

// clang-format off
const char *const tni_text_small[] = {
    // What CUDA C has no words for: asynchronous copies from global to shared memory, of which all
    // but `bytes` bytes are zeros; a load from the shared memory of another block of the cluster;
    // and the two halves of the cluster's barrier.
    T(M_FN void copy_async_16(float *to, const float *from, int bytes) {
          asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::
                       "r"(m_near(to)), "l"(from), "r"(bytes) : "memory");
      }
      M_FN void copy_async_4(float *to, const float *from, int bytes) {
          asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::
                       "r"(m_near(to)), "l"(from), "r"(bytes) : "memory");
      }
      M_FN void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
      M_FN void copy_async_wait() { asm volatile("cp.async.wait_group 1;" ::: "memory"); }
      M_FN float4 load_remote4(const float *p, int rank) {
          float4 v;
          asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                       : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                       : "r"(m_far(p, rank)) : "memory");
          return v;
      }
      M_FN void cluster_arrive() { asm volatile("barrier.cluster.arrive.aligned;" ::: "memory"); }
      M_FN void cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }),
    // The argument; small_args in product_small.c is the same in C. A is rows x depth, B depth x
    // cols, D rows x cols, all column-major. An operand is ALONG_K if its elements along the inner
    // axis are neighbours. It is VEC4 if every column begins at a multiple of 16 bytes. slice:
    // steps of the inner axis per block; tiles: tiles down the rows.
    T(struct small {
          const float *a; const float *b; const float *bias; float *d;
          m_long lda; m_long ldb; m_long ldd;
          int rows; int cols; int depth;
          int slice;
          int tiles;
          int flags;
      };
      enum { A_ALONG_K = 1, B_ALONG_K = 2, A_VEC4 = 4, B_VEC4 = 8, D_VEC4 = 16, RELU = 32 };
      // LINE: a line of 64 steps and a gap of four floats, so that lines begin in different banks.
      // STAGE: one operand's room for a stage.
      enum { TILE = 32, STEPS = 64, LINE = STEPS + 4, STAGE = TILE * LINE, ITEMS = 256 };
      // ROW, PART: a group's partial sums of the tile, column by column, with gaps against bank
      // conflicts.
      enum { ROW = 40, PART = TILE * ROW, GROUPS = 4 };),
    // Copies four elements, of which n exist and the rest become zeros, in one access if they are
    // aligned.
    T(M_FN void copy_async_some(float *to, const float *from, int n, int wide) {
          if (wide) {
              copy_async_16(to, from, n * 4);
              return;
          }
          for (int i = 0; i < 4; i++) copy_async_4(to + i, i < n ? from + i : from, i < n ? 4 : 0);
      }
      M_FN int clamp0(int n, int most) { return n < 0 ? 0 : n < most ? n : most; }),
    // Starts to copy steps k to `end` of the inner axis, at most STEPS, of a tile of an operand.
    // count: rows or columns of the operand; what is missing of the last four steps is filled with
    // zeros, so that the sums need no test.
    T(template <bool ALONG_K>
      M_FN void load_stage(float *to, const float *x, m_long ld, int wide, int first, int count,
                           int k, int end) {
          for (int u = LOCAL_ID; u < TILE * STEPS / 4; u += ITEMS) {
              int row = ALONG_K ? u / 16 : u % 8 * 4;
              int step = ALONG_K ? u % 16 * 4 : u / 8;
              int left = count - first - row;
              int n = ALONG_K ? (left > 0 ? clamp0(end - k - step, 4) : 0)
                              : (k + step < end ? clamp0(left, 4) : 0);
              if (k + step >= (end + 3) / 4 * 4) continue;
              const float *from = x + (ALONG_K ? (first + row) * ld + k + step
                                               : (k + step) * ld + first + row);
              copy_async_some(to + (ALONG_K ? row * LINE + step : step * TILE + row), n ? from : x,
                              n, wide);
          }
      }),
    // Reads a thread's four rows of four steps: v[step][row].
    T(template <bool ALONG_K>
      M_FN void read(const float *x, int step, int i, float (&v)[4][4]) {
          for (int e = 0; e < 4; e++) {
              const float *at = x + (ALONG_K ? (i + e * 8) * LINE + step
                                             : (step + e) * TILE + i * 4);
              float4 g = *(const float4 *)at;
              v[ALONG_K ? 0 : e][ALONG_K ? e : 0] = g.x;
              v[ALONG_K ? 1 : e][ALONG_K ? e : 1] = g.y;
              v[ALONG_K ? 2 : e][ALONG_K ? e : 2] = g.z;
              v[ALONG_K ? 3 : e][ALONG_K ? e : 3] = g.w;
          }
      }
      template <bool A, bool B>
      // Adds a stage to the thread's sums: 64 threads of a group cover the tile, and the groups
      // take turns at four steps each.
      M_FN void multiply(const float *a, const float *b, int steps, float (&sum)[4][4]) {
          int i = LOCAL_ID % 8;
          int j = LOCAL_ID / 8 % 8;
          for (int s = LOCAL_ID / 64 * 4; s < steps; s += GROUPS * 4) {
              float x[4][4];
              float y[4][4];
              read<A>(a, s, i, x);
              read<B>(b, s, j, y);
              for (int k = 0; k < 4; k++)
                  for (int c = 0; c < 4; c++)
                      for (int r = 0; r < 4; r++)
                          sum[c][r] = m_fma_f(x[k][r], y[k][c], sum[c][r]);
          }
      }),
    // Sums a block's slice of the inner axis. Two stages are in flight at a time: while one is
    // multiplied, the other arrives.
    T(template <bool A, bool B>
      M_FN void sum_slice(const small &o, float *smem, int row, int col, int k, int end,
                          float (&sum)[4][4]) {
          float *a = smem;
          float *b = smem + 2 * STAGE;
          int stages = end > k ? (end - k + STEPS - 1) / STEPS : 0;
          for (int s = -2; s < stages; s++) {
              int now = (s & 1) * STAGE;
              if (s >= 0) {
                  copy_async_wait();
                  BARRIER();
                  int at = k + s * STEPS;
                  multiply<A, B>(a + now, b + now, clamp0(end - at, STEPS), sum);
                  if (s + 2 < stages) BARRIER();
              }
              if (s + 2 < stages) {
                  int at = k + (s + 2) * STEPS;
                  load_stage<A>(a + now, o.a, o.lda, o.flags & A_VEC4, row, o.rows, at, end);
                  load_stage<B>(b + now, o.b, o.ldb, o.flags & B_VEC4, col, o.cols, at, end);
              }
              copy_async_commit();
          }
          BARRIER();
      }
      template <bool A, bool B>
      // Puts a thread's 4 x 4 sums into its group's part, where they are ordered by row and column
      // again.
      M_FN void store_partial(float *part, const float (&sum)[4][4]) {
          int i = LOCAL_ID % 8;
          int j = LOCAL_ID / 8 % 8;
          float *to = part + LOCAL_ID / 64 * PART;
          for (int c = 0; c < 4; c++)
              for (int r = 0; r < 4; r++)
                  to[(B ? j + c * 8 : j * 4 + c) * ROW + (A ? i + r * 8 : i * 4 + r)] = sum[c][r];
      }
      template <bool A, bool B>
      M_FN void sum_tile(const small &o, float *smem, int row, int col, int k, int end) {
          float sum[4][4] = {};
          sum_slice<A, B>(o, smem, row, col, k, end, sum);
          store_partial<A, B>(smem, sum);
      }),
    // Ends four results of one column: bias, relu, and the store.
    T(M_FN void add4(float (&v)[4], float4 g) {
          v[0] += g.x; v[1] += g.y; v[2] += g.z; v[3] += g.w;
      }
      M_FN void store4(const small &o, int row, int col, const float (&bias)[4], float (&v)[4]) {
          float *to = o.d + col * o.ldd + row;
          if (col >= o.cols) return;
          for (int i = 0; i < 4; i++) {
              v[i] += bias[i];
              if (o.flags & RELU) v[i] = m_relu_f(v[i]);
          }
          if ((o.flags & D_VEC4) && row + 4 <= o.rows) {
              *(float4 *)to = make_float4(v[0], v[1], v[2], v[3]);
              return;
          }
          for (int i = 0; i < 4; i++)
              if (row + i < o.rows) to[i] = v[i];
      }),
    // The whole kernel. A thread ends with four rows of a column, the same rows in every block. The
    // blocks of a cluster exchange their sums through shared memory: each adds up its share of the
    // tile in the order of ranks, and may leave only when all others have read its sums. It arrives
    // at that barrier before it stores its results, since arriving waits for all stores before it.
    T(template <int RANKS>
      M_FN void multiply_small(const small &o, float *smem) {
          int t = LOCAL_ID;
          int rank = GROUP_ID % RANKS;
          int tile = GROUP_ID / RANKS;
          int row = tile % o.tiles * TILE;
          int col = tile / o.tiles * TILE;
          int k = rank * o.slice;
          int end = k + o.slice < o.depth ? k + o.slice : o.depth;
          int first_row = row + t % 8 * 4;
          float bias[4] = {};
          float v[4] = {};
          m_begin();
          for (int i = 0; i < 4; i++)
              if (o.bias && first_row + i < o.rows) bias[i] = o.bias[first_row + i];
          int along_k = o.flags & (A_ALONG_K | B_ALONG_K);
          if (along_k == 0) sum_tile<false, false>(o, smem, row, col, k, end);
          else if (along_k == A_ALONG_K) sum_tile<true, false>(o, smem, row, col, k, end);
          else if (along_k == B_ALONG_K) sum_tile<false, true>(o, smem, row, col, k, end);
          else sum_tile<true, true>(o, smem, row, col, k, end);
          BARRIER();
          for (int g = 0; g < GROUPS; g++)
              add4(v, *(const float4 *)(smem + g * PART + t / 8 * ROW + t % 8 * 4));
          if (RANKS == 1) {
              store4(o, first_row, col + t / 8, bias, v);
              return;
          }
          float *whole = smem + GROUPS * PART;
          *(float4 *)(whole + t * 4) = make_float4(v[0], v[1], v[2], v[3]);
          m_cluster_barrier();
          int u = rank * (ITEMS / RANKS) + t;
          float sum[4] = {};
          if (t < ITEMS / RANKS) {
              float4 g[RANKS];
              for (int i = 0; i < RANKS; i++) g[i] = load_remote4(whole + u * 4, i);
              for (int i = 0; i < RANKS; i++) add4(sum, g[i]);
          }
          cluster_arrive();
          if (t < ITEMS / RANKS) store4(o, first_row, col + u / 8, bias, sum);
          cluster_wait();
      }),
    // One kernel for each number of blocks per tile; the cluster's size is fixed when it is
    // compiled.
    T(KERNEL(256) small_1(GIVEN small o) {
          LOCAL float4 smem[STAGE];
          multiply_small<1>(o, (float *)smem);
      }
      KERNEL(256) __cluster_dims__(2, 1, 1) small_2(GIVEN small o) {
          LOCAL float4 smem[STAGE];
          multiply_small<2>(o, (float *)smem);
      }
      KERNEL(256) __cluster_dims__(4, 1, 1) small_4(GIVEN small o) {
          LOCAL float4 smem[STAGE];
          multiply_small<4>(o, (float *)smem);
      }
      KERNEL(256) __cluster_dims__(8, 1, 1) small_8(GIVEN small o) {
          LOCAL float4 smem[STAGE];
          multiply_small<8>(o, (float *)smem);
      }),
    NULL,
};
