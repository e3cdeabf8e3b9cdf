// The kernels for products of few rows in 16 bits, as text. A warp multiplies by the tensor cores,
// which take up to 16 rows of the small operand B for the price of one; here that is to say that 32
// lanes add up eight columns of results without exchanging anything, and that widening elements
// costs nothing.
//
// In the library's words: D (rows, cols) = A (rows, depth) B (depth, cols), column-major, with cols
// small. Of a product over 16 steps, lane l = 4 g + t has four elements of B: steps 2 t, 2 t + 1, 2
// t + 8 and 2 t + 9 of column g, and the same four steps of row g of A. Which steps are called so
// is free, as long as A and B agree.
//
// `tiles` is for A contiguous along the inner axis. A block has eight rows of A at a time, whose
// steps its warps share; a lane loads 16 steps of its row, twice 8 that follow those of its
// neighbours, which are four products. AHEAD such loads are on their way (a warp can tell six
// apart, and needs one for what it stores in shared memory), in a graph from before the kernel
// ahead has ended (`early`): a chain of products reads its matrices almost without a pause. Up to
// three products with the same B are one launch.
//
// `strips` is for A contiguous along its rows, and not large: a block brings 16 rows of A, all
// steps of them, to shared memory, from where ldmatrix turns them around.
#include "device/cuda/product_rows.h"

#define T(...) #__VA_ARGS__ "\n"

// clang-format off
const char *const tni_text_tiles[] = {
    // The argument; tiles_args in product_rows.c is the same in C. `tiles`: of a part, those of it
    // and of the parts before it.
    T(struct part {
          const x_kept *a; const x_kept *bias; const x_kept *residual; x_kept *d; x_kept *input;
          m_long lda; m_long ldd;
          int count; int tiles;
          int flags;
          float scale;
      };
      struct tiles_args {
          part of[3];
          const x_kept *b;
          m_long ldb;
          int parts; int cols; int depth;
          int early;
      };
      enum { RELU = 1, GELU = 2, THREADS = 256, WARPS = 8, AHEAD = 4, HELD = 16, STEP = 64 * WARPS, MOST = 8, TALL = 8, WIDE = 16 };),
    // sum += A B: a0, a1 are B's four elements, b0, b1 those of A: the small operand is the
    // library's left one.
    "#ifdef X_F16\n"
    "#define MMA \"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 \"\n"
    "#else\n"
    "#define MMA \"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 \"\n"
    "#endif\n",
    T(M_FN void multiply(float (&sum)[4], m_uint a0, m_uint a1, m_uint b0, m_uint b1) {
          asm volatile(MMA "{%0, %1, %2, %3}, {%4, %5, %6, %5}, {%7, %8}, {%0, %1, %2, %3};"
                       : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                       : "r"(a0), "r"(0), "r"(a1), "r"(b0), "r"(b1));
      }
      // 16 bytes, or zeros if they are not there: without a branch, which would wait for the load.
      M_FN uint4 load_once(const x_kept *p, bool there) {
          uint4 v;
          asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0; mov.u32 %0, 0; mov.u32 %1, 0; mov.u32 %2, 0; "
                       "mov.u32 %3, 0; @p ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4]; }"
                       : "=&r"(v.x), "=&r"(v.y), "=&r"(v.z), "=&r"(v.w) : "l"(p), "r"((m_uint)there));
          return v;
      }
      // What is added to a result, loaded while the product is still computed; and its end: scale,
      // residual, bias, activation, the store.
      struct added { float residual; float bias; };
      M_FN added load_added(const part &o, int row, int col) {
          added y = { 0.0f, 0.0f };
          if (row >= o.count) return y;
          if (o.residual) y.residual = x_get(o.residual[row + col * o.ldd]);
          if (o.bias) y.bias = x_get(o.bias[row]);
          return y;
      }
      M_FN void finish(const part &o, int row, int col, float sum, added y) {
          if (row >= o.count) return;
          m_long at = row + col * o.ldd;
          float v = sum * o.scale;
          if (o.residual) v += y.residual;
          if (o.bias) v += y.bias;
          if (o.input) o.input[at] = x_put(v);
          if (o.flags & RELU) v = m_relu_f(v);
          if (o.flags & GELU) v = m_gelu_coarse_f(v);
          o.d[at] = x_put(v);
      }
      // All of B, once the kernels ahead have ended.
      M_FN void stage(const tiles_args &o, uint4 *to) {
          int each = o.depth / 8;
          _Pragma("unroll 1") for (int c = 0; c < o.cols; c++)
              _Pragma("unroll 1") for (int i = threadIdx.x; i < each; i += THREADS)
                  to[c * each + i] = *(const uint4 *)(o.b + c * o.ldb + i * 8);
      }),
    // Where a lane loads next: its row of a tile, and the step in it.
    T(struct cursor { const x_kept *row; int tile; int k; };
      M_FN int part_of(const tiles_args &o, int tile) {
          return (o.parts > 1 && tile >= o.of[0].tiles) + (o.parts > 2 && tile >= o.of[1].tiles);
      }
      M_FN int first_of(const tiles_args &o, int at) { return at ? o.of[at - 1].tiles : 0; }
      M_FN void point_at_row(const tiles_args &o, int tiles, cursor &c) {
          c.row = nullptr;
          if (c.tile >= tiles) return;
          int at = part_of(o, c.tile);
          int row = (c.tile - first_of(o, at)) * TALL + (int)threadIdx.x % 32 / 4;
          if (row < o.of[at].count) c.row = o.of[at].a + row * o.of[at].lda;
      }
      // Loads 16 steps and moves on: the steps of a warp are STEP apart.
      M_FN void next_steps(const tiles_args &o, int tiles, int from, int end, cursor &c, uint4 (&w)[2]) {
          w[0] = load_once(c.row + c.k, c.row && c.k < o.depth);
          w[1] = load_once(c.row + c.k + 32, c.row && c.k + 32 < o.depth);
          c.k += STEP;
          if (c.k >= end) {
              c.k = from;
              c.tile += gridDim.x;
              point_at_row(o, tiles, c);
          }
      }),
    // Ends the tiles whose sums the warps have left in `share`: `held` of them, from `tile` on. The
    // sums of the warps are added in their order. y: what is added to result number threadIdx.x of
    // the first call.
    T(M_FN void finish_tiles(const tiles_args &o, const float *share, int tile, int held, bool first, added y) {
          int each = o.cols * TALL;
          __syncthreads();
          _Pragma("unroll 1") for (int i = threadIdx.x; i < held * each; i += THREADS) {
              int j = i / each;
              int own = part_of(o, tile + j * (int)gridDim.x);
              int row = (tile + j * (int)gridDim.x - first_of(o, own)) * TALL + i % TALL;
              int col = (i - j * each) / TALL;
              float v = 0;
              for (int w = 0; w < WARPS; w++) v += share[(j * WARPS + w) * each + i - j * each];
              if (!first || i >= THREADS) y = load_added(o.of[own], row, col);
              finish(o.of[own], row, col, v, y);
          }
      }
      M_FN void fetch_bias(const part &o, int row) {
          if (o.bias && row < o.count) m_prefetch(o.bias + row);
      }
      M_FN added first_added(const tiles_args &o, int tiles) {
          added y = { 0.0f, 0.0f };
          int each = o.cols * TALL;
          int tile = blockIdx.x + threadIdx.x / each * gridDim.x;
          if (tile >= tiles) return y;
          int own = part_of(o, tile);
          int row = (tile - first_of(o, own)) * TALL + threadIdx.x % TALL;
          return load_added(o.of[own], row, threadIdx.x % each / TALL);
      }),
    // The tiles of a block are gridDim.x apart. Each warp leaves the sums of its steps of a tile in
    // shared memory, behind B; they are ended several tiles at a time. All warps pass as many steps
    // as the longest.
    T(extern "C" __global__ void __launch_bounds__(256, 3) tiles(GIVEN tiles_args o) {
          extern __shared__ uint4 staged[];
          float *share = (float *)(staged + o.cols * o.depth / 8);
          int t = threadIdx.x;
          int g = t % 32 / 4;
          int from = t / 32 * 64 + t % 4 * 8;
          int end = (o.depth + STEP - 1) / STEP * STEP;
          int tiles = o.of[o.parts - 1].tiles;
          cursor at = { nullptr, (int)blockIdx.x, from };
          uint4 w[AHEAD][2];
          float sum[4] = {};
          float more[4] = {};
          if (!o.early) m_begin();
          point_at_row(o, tiles, at);
          _Pragma("unroll") for (int u = 0; u < AHEAD; u++) next_steps(o, tiles, from, end, at, w[u]);
          int begins = part_of(o, blockIdx.x);
          if (t == 0) fetch_bias(o.of[begins], ((int)blockIdx.x - first_of(o, begins)) * TALL);
          if (o.early) m_begin();
          added y = first_added(o, tiles);
          stage(o, staged);
          __syncthreads();
          const uint4 *own = staged + g * o.depth / 8;
          int reach = g < o.cols ? o.depth : 0;
          int each = o.cols * TALL;
          int left = (tiles - 1 - (int)blockIdx.x) / (int)gridDim.x + 1;
          int tile = blockIdx.x;
          int held = 0;
          int k = from;
          bool first = true;
          for (;;) {
              _Pragma("unroll") for (int u = 0; u < AHEAD; u++) {
                  uint4 x = make_uint4(0, 0, 0, 0);
                  uint4 z = make_uint4(0, 0, 0, 0);
                  if (k < reach) x = own[k / 8];
                  if (k + 32 < reach) z = own[k / 8 + 4];
                  multiply(sum, x.x, x.y, w[u][0].x, w[u][0].y);
                  multiply(more, x.z, x.w, w[u][0].z, w[u][0].w);
                  multiply(sum, z.x, z.y, w[u][1].x, w[u][1].y);
                  multiply(more, z.z, z.w, w[u][1].z, w[u][1].w);
                  next_steps(o, tiles, from, end, at, w[u]);
                  k += STEP;
                  if (k < end) continue;
                  if (reach && held < left) {
                      float *to = share + (held * WARPS + t / 32) * each + g * TALL + t % 4 * 2;
                      to[0] = sum[0] + more[0];
                      to[1] = sum[1] + more[1];
                  }
                  held++;
                  k = from;
                  for (int i = 0; i < 4; i++) sum[i] = more[i] = 0;
              }
              if (held < left && held <= HELD - AHEAD) continue;
              if (held > left) held = left;
              finish_tiles(o, share, tile, held, first, y);
              left -= held;
              if (left == 0) return;
              tile += held * gridDim.x;
              held = 0;
              first = false;
              __syncthreads();
          }
      }),
    // A strip is WIDE rows of A, two chunks of 16 bytes for each step; behind it in shared memory
    // is B. A warp has 16 steps at a time.
    T(extern "C" __global__ void __launch_bounds__(256, 2) strips(GIVEN tiles_args o) {
          extern __shared__ uint4 staged[];
          LOCAL float share[WARPS][MOST * WIDE];
          const part &p = o.of[0];
          int t = threadIdx.x;
          int warp = t / 32;
          int g = t % 32 / 4;
          int first = blockIdx.x * WIDE;
          uint4 *b = staged + o.depth * 2;
          if (!o.early) m_begin();
          for (int i = t; i < o.depth * 2; i += THREADS) {
              int row = first + i % 2 * 8;
              const x_kept *from = p.a + (m_long)(i / 2) * p.lda + (row < p.count ? row : first);
              asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;"
                           :: "r"(m_near(&staged[i])), "l"(from) : "memory");
          }
          asm volatile("cp.async.commit_group;" ::: "memory");
          if (t == 0) fetch_bias(p, first);
          if (o.early) m_begin();
          stage(o, b);
          added y = { 0.0f, 0.0f };
          if (t < o.cols * WIDE) y = load_added(p, first + t % WIDE, t / WIDE);
          asm volatile("cp.async.wait_group 0;" ::: "memory");
          __syncthreads();
          float sum[4] = {};
          float more[4] = {};
          const m_uint *x = (const m_uint *)(b + g * o.depth / 8) + t % 4;
          for (int k = warp * 16; k < o.depth; k += 16 * WARPS) {
              m_uint r[4];
              asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                           : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                           : "r"(m_near(&staged[(k + t % 16) * 2 + t % 32 / 16])) : "memory");
              m_uint a0 = g < o.cols ? x[k / 2] : 0;
              m_uint a1 = g < o.cols ? x[k / 2 + 4] : 0;
              multiply(sum, a0, a1, r[0], r[1]);
              multiply(more, a0, a1, r[2], r[3]);
          }
          if (g < o.cols) {
              float *to = &share[warp][g * WIDE + t % 4 * 2];
              to[0] = sum[0];
              to[1] = sum[1];
              to[8] = more[0];
              to[9] = more[1];
          }
          __syncthreads();
          if (t >= o.cols * WIDE) return;
          float v = 0;
          for (int j = 0; j < WARPS; j++) v += share[j][t];
          finish(p, first + t % WIDE, t / WIDE, v, y);
      }),
    NULL,
};
