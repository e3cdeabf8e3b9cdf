// The product of rows by rows on Hopper's tensor cores, as text: y[r][c] = sum over k of a[r][k]
// b[c][k], in 16 bits, summed in f32. It is for many rows and little depth, as 1x1 convolutions
// have: what takes time is reading a and writing y, and the kernel behind the product is an ending
// of it (kernel/ending.h), which saves reading y again.
//
// A block stays on its multiprocessor and takes tile after tile of ROWS x COLS. Its last warp has
// the tiles of a and b copied by TMA, STAGES of DEEP steps each, and goes on to the next tile as
// soon as there is room; so copies are on their way while the eight others, two groups of four that
// have 64 rows each, store their tile. full[s] is passed when stage s has arrived, empty[s] when
// all eight have multiplied by it. A stage is passed once a turn, and a barrier changes its parity
// then:
//
//     copies     empty | fill 0 | fill 1 | fill 2 | wait for empty[0] | fill 0 ...
//     products           wait for full[0] | multiply | pass empty[0] | wait for full[1] ...
//
// Columns. A product leaves lane 4 g + t of a warp, of each eight columns, the two from 2 t on
// (cores_text.c), which are 4 bytes of y. So b's rows are copied in another order: of 32, row 8 t +
// 2 j + e becomes row 8 j + 2 t + e of the tile, and what a lane has of four tiles of eight columns
// is eight neighbours of y, 16 bytes:
//
//     row of the tile     0  1  2  3  4  5  6  7 | 8  9 10 ...
//     row of b            0  1  8  9 16 17 24 25 | 2  3 10 ...
//
// TMA does this by itself: to it b has the axes k, e, t, j and 32s (product_cores.c). So columns
// are multiples of 32.
//
// NEAR_0, NEAR_1, NEAR_2: accesses of the ending that read an element of 16 bits for each of the
// result, as a residual is read. To read them while a tile is stored would take longer than all the
// rest: so a second warp has them copied too, in panels of 64 columns, of which PANELS of each are
// in shared memory behind the stages. What else the ending loads is read around the cache's order:
// nothing writes it.
//
// SUMS: column sums of the ending. All tiles of a block have the same columns, since the blocks are
// a multiple of the tiles side by side. So a lane adds up its columns in registers from tile to
// tile, which takes no time that could be measured. At the end a warp adds up its lanes' rows by
// shuffles, which leave each lane one column of 32 at a time:
//
//     lane 4 g + t     has columns 8 t .. 8 t + 7 of rows g and g + 8;    afterwards column 8 t + g of all 16
//
// Then the warps' totals are added, and each block leaves one partial result for each of its
// columns in o.parts. cores_finish adds the blocks' in their order, and does what follows.
//
// Statistics are of differences to the first row of the product, which keeps them exact where the
// mean is large. Its tiles are then computed by a launch ahead, with the same bits (launch_pivots
// of product_cores.c).
//
// HAS_PROLOGUE: a is made by a kernel whose input a is given as. Four more warps change a stage
// that has arrived in place, eight steps of a row at a time, while those before it are multiplied
// by: changed[s] is passed when stage s has become what that kernel makes, and the products wait
// for it instead of full[s].
//
//     changes    wait for full[0] | change | pass changed[0] | wait for full[1] ...
//     products   wait for changed[0] | multiply | pass empty[0] ...
//
// What else that kernel reads of each element, CHANGED of it, is copied beside a. CHANGE_KEPT:
// something else reads what it makes, which the blocks of the first columns store. A block has 512
// threads then, of 128 registers; where there are sums, the warps that copy and change leave theirs
// to the eight that multiply.
//
// TURNED: b is given with its columns side by side, as the weights of a data gradient are.
// cores_turn copies it into rows first: weights are small.
//
// A text begins with constants such as
//
//     typedef m_ushort elem;
//     enum { IS_F16 = 1, IS_TF32 = 0, ALIGNED = 1, WARPS = 8, NTILES = 32, STAGES = 4, BLOCKS = 1,
//            NEARS = 0, NEAR_0 = -1, NEAR_1 = -1, NEAR_2 = -1, PANELS = 0, TWICE = 0, ONCE = 0, SUMS = 0 };
//
// and with the macros of the ending, for which EACH is 8.
#include "device/cuda/product_cores.h"

#define T(...) #__VA_ARGS__ "\n"

// clang-format off
const char *const tni_text_product_cores[] = {
    T(enum { ROWS = WARPS * 16, COLS = NTILES * 8, DEEP = 64,
             COPIER = WARPS + (HAS_PROLOGUE ? 4 : 0), SOME_SUMS = SUMS ? SUMS : 1,
             THREADS = HAS_PROLOGUE ? 512 : WARPS * 32 + (NEARS ? 64 : 32),
             A_TILE = ROWS * 128, B_AT = A_TILE * (1 + CHANGED), STAGE = B_AT + COLS * 128,
             PANEL = ROWS * 128 };
      // What TMA knows of a matrix; the driver writes it.
      struct __align__(128) tensor_map { m_ulong word[16]; };
      // The argument; product_args in product_cores.c is the same in C. sum: where the product
      // itself is stored, if something else than the ending reads it. parts: SUMS rows of columns
      // for each block of a column tile. changed, made: what the prologue reads besides a, and what
      // it makes. stages: of DEEP steps.
      struct product {
          tensor_map a; tensor_map b; tensor_map near[3]; tensor_map changed[2];
          elem *y; elem *sum; float *parts; elem *made;
          int rows; int columns; int depth; int stages; int column_tiles; int tiles;
      };),
    // ---- barriers and copies -------------------------------------------------------------------
    // m_barrier_open is for one that passes.
    T(M_FN void barrier_open(m_ulong *b, int passes) {
          asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(m_near(b)), "r"(passes) : "memory");
      }
      M_FN void barrier_pass(m_ulong *b) {
          asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(m_near(b)) : "memory");
      }
      // Copies ROWS rows and DEEP steps of a, or as much of b, of which what is not there becomes
      // zeros.
      M_FN void copy_a(m_uint to, const tensor_map &a, m_ulong *full, int k, int row) {
          asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                       "[%0], [%1, {%3, %4}], [%2];" ::
                       "r"(to), "l"((m_ulong)&a), "r"(m_near(full)), "r"(k), "r"(row) : "memory");
      }
      M_FN void copy_b(m_uint to, const tensor_map &b, m_ulong *full, int k, int column) {
          asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                       "[%0], [%1, {%3, %4, %4, %4, %5}], [%2];" ::
                       "r"(to), "l"((m_ulong)&b), "r"(m_near(full)), "r"(k), "r"(0), "r"(column / 32) : "memory");
      }),
    // ---- elements ------------------------------------------------------------------------------
    // 16 bytes at a time where there are as many. The compiler may load them before what is stored
    // ahead of them.
    T(M_FN uint4 load_16(const uint4 *from) {
          uint4 y;
          asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
              : "=r"(y.x), "=r"(y.y), "=r"(y.z), "=r"(y.w) : "l"(from));
          return y;
      }
      template <typename X>
      M_FN void load_near(X (&x)[EACH], m_uint from) {
          m_uint part[4];
          asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                       : "=r"(part[0]), "=r"(part[1]), "=r"(part[2]), "=r"(part[3]) : "r"(from) : "memory");
          UNROLL for (int k = 0; k < EACH; k++) x[k] = (X)(part[k / 2] >> k % 2 * 16);
      }
      template <typename X>
      M_FN void load_each(X (&x)[EACH], const X *from) {
          if constexpr (sizeof(X) == 1) UNROLL for (int k = 0; k < EACH; k++) x[k] = from[k];
          UNROLL for (int i = 0; i < EACH * (int)sizeof(X) / 16; i++) {
              uint4 y = load_16((const uint4 *)from + i);
              m_uint part[4] = { y.x, y.y, y.z, y.w };
              UNROLL for (int k = 0; k < 16 / (int)sizeof(X); k++) {
                  if constexpr (sizeof(X) == 2) x[i * 8 + k] = (X)(part[k / 2] >> k % 2 * 16);
                  else if constexpr (sizeof(X) == 4)
                      x[i * 4 + k] = *(const X *)&part[k];
                  else x[i * 2 + k] = from[i * 2 + k];
              }
          }
      }
      template <typename X>
      M_FN void store_kept(X *to, const X (&x)[EACH]) {
          if constexpr (sizeof(X) == 2) {
              m_uint part[4];
              UNROLL for (int i = 0; i < 4; i++) part[i] = (m_uint)x[i * 2] | (m_uint)x[i * 2 + 1] << 16;
              *(uint4 *)to = make_uint4(part[0], part[1], part[2], part[3]);
          } else if constexpr (sizeof(X) == 4) {
              const m_uint *y = (const m_uint *)x;
              UNROLL for (int i = 0; i < EACH; i += 4)
                  *(uint4 *)(to + i) = make_uint4(y[i], y[i + 1], y[i + 2], y[i + 3]);
          } else UNROLL for (int k = 0; k < EACH; k++) to[k] = x[k];
      }
      M_FN void store_each(elem *to, const float (&v)[EACH]) {
          *(uint4 *)to = make_uint4(pack(v[0], v[1]), pack(v[2], v[3]), pack(v[4], v[5]),
                                    pack(v[6], v[7]));
      }),
    T(// The place of a block in its stages: the stage and the parity of its turn.
      struct turn { int stage; int parity; };
      M_FN void next_turn(turn &x, int stages) {
          if (++x.stage < stages) return;
          x.stage = 0;
          x.parity ^= 1;
      }),
    NULL,
};

const char *const tni_text_product_kernel[] = {
    // ---- the kernel ----------------------------------------------------------------------------
    T(// Has the stages of a tile copied, each as soon as there is room.
      M_FN void copy_tile(const product &o, int row, int column, m_uint first, m_ulong *full, m_ulong *empty,
                          turn &x) {
          for (int k = 0; k < o.stages; k++, next_turn(x, STAGES)) {
              m_uint to = first + x.stage * STAGE;
              m_await(empty + x.stage, x.parity);
              m_expect(full + x.stage, STAGE);
              copy_a(to, o.a, full + x.stage, k * DEEP, row);
              for (int i = 0; i < CHANGED; i++)
                  copy_a(to + (1 + i) * A_TILE, o.changed[i], full + x.stage, k * DEEP, row);
              copy_b(to + B_AT, o.b, full + x.stage, k * DEEP, column);
          }
      }
      // The same for the panels of what the ending reads.
      M_FN void copy_panels(const product &o, int row, int column, m_uint near, m_ulong *full, m_ulong *empty,
                            turn &x) {
          int end = min(column + (int)COLS, o.columns);
          for (int n = column; n < end; n += 64, next_turn(x, PANELS)) {
              m_await(empty + x.stage, x.parity);
              m_expect(full + x.stage, NEARS * PANEL);
              for (int i = 0; i < NEARS; i++)
                  copy_a(near + (x.stage * NEARS + i) * PANEL, o.near[i], full + x.stage, n, row);
          }
      }
      // One stage's products, which are only started.
      M_FN void multiply_stage(float (&c)[NTILES][4], m_uint tile, bool add) {
          m_uint left = tile + (threadIdx.x >> 7) * (64 * 128);
          products_begin();
          UNROLL for (int s = 0; s < 4; s++)
              wgmma_tiles<0, 0>(c, describe(left + s * 32), describe(tile + B_AT + s * 32), add || s > 0);
          products_commit();
      }),
    T(// The sums of a warp's 16 rows of eight columns; each lane gets that of one of them.
      M_FN float add_rows(float (&x)[EACH]) {
          int lane = threadIdx.x & 31;
          UNROLL for (int half = EACH / 2; half; half /= 2) {
              bool upper = lane & half * 4;
              UNROLL for (int i = 0; i < half; i++) {
                  float kept = upper ? x[i + half] : x[i];
                  float given = upper ? x[i] : x[i + half];
                  x[i] = kept + __shfl_xor_sync(0xffffffffu, given, half * 4);
              }
          }
          return x[0];
      }
      // The warps that multiply, not those that have copies made.
      M_FN void sync_products() {
          asm volatile("bar.sync 1, %0;" :: "n"(WARPS * 32) : "memory");
      }
      // Adds the warps' totals, in the memory of the stages, which no warp reads any more once all
      // are here.
      M_FN void store_parts(const product &o, float (&total)[NTILES / 4][SOME_SUMS][EACH], char *stages) {
          float *of = (float *)stages;
          int lane = threadIdx.x & 31;
          int first = blockIdx.x % o.column_tiles * COLS;
          sync_products();
          UNROLL for (int n = 0; n < NTILES / 4; n++)
              UNROLL for (int i = 0; i < SUMS; i++)
                  of[((threadIdx.x >> 5) * SUMS + i) * COLS + n * 32 + (lane & 3) * 8 + (lane >> 2)] =
                      add_rows(total[n][i]);
          sync_products();
          for (int k = threadIdx.x; k < SUMS * COLS; k += WARPS * 32) {
              float x = 0.0f;
              UNROLL for (int w = 0; w < WARPS; w++) x += of[w * SUMS * COLS + k];
              int column = first + k % COLS;
              int row = (int)(blockIdx.x / o.column_tiles) * SUMS + k / COLS;
              if (column < o.columns) o.parts[(m_long)row * o.columns + column] = x;
          }
      }),
    T(extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) cores_product(GIVEN product o ENDING_PARAMS PROLOGUE_PARAMS) {
          extern __shared__ char smem[];
          m_uint first = (m_near(smem) + 1023) & ~1023u;
          m_uint near = first + STAGES * STAGE;
          m_ulong *full = (m_ulong *)(smem + (near - m_near(smem)) + PANELS * NEARS * PANEL);
          m_ulong *empty = full + STAGES;
          m_ulong *changed = empty + STAGES;
          m_ulong *near_full = changed + (HAS_PROLOGUE ? STAGES : 0);
          m_ulong *near_empty = near_full + PANELS;
          int lane = threadIdx.x & 31;
          if (threadIdx.x == 0) {
              for (int s = 0; s < STAGES; s++) {
                  m_barrier_open(full + s);
                  barrier_open(empty + s, WARPS);
                  if (HAS_PROLOGUE) barrier_open(changed + s, 4);
              }
              for (int s = 0; s < PANELS; s++) {
                  m_barrier_open(near_full + s);
                  barrier_open(near_empty + s, WARPS);
              }
              m_barriers_opened();
          }
          __syncthreads();
          m_begin();
          CHANGE_TILES(first, full, changed)
          if (threadIdx.x >= COPIER * 32) {
              turn x = { 0, 1 };
              for (int tile = blockIdx.x; tile < o.tiles && lane == 0; tile += gridDim.x) {
                  int row = tile / o.column_tiles * ROWS;
                  int column = tile % o.column_tiles * COLS;
                  if (threadIdx.x < COPIER * 32 + 32) copy_tile(o, row, column, first, full, empty, x);
                  else if (NEARS > 0 && threadIdx.x < COPIER * 32 + 64)
                      copy_panels(o, row, column, near, near_full, near_empty, x);
              }
              return;
          }
          float c[NTILES][4];
          float total[NTILES / 4][SOME_SUMS][EACH];
          UNROLL for (int i = 0; i < NTILES / 4 * SUMS * EACH; i++)
              total[i / EACH / SOME_SUMS][i / EACH % SOME_SUMS][i % EACH] = 0.0f;
          turn x = { 0, 0 };
          turn panel = { 0, 0 };
          for (int tile = blockIdx.x; tile < o.tiles; tile += gridDim.x) {
              m_ulong *before = empty;
              for (int k = 0; k < o.stages; k++, next_turn(x, STAGES)) {
                  m_await((HAS_PROLOGUE ? changed : full) + x.stage, x.parity);
                  multiply_stage(c, first + x.stage * STAGE, k > 0);
                  if (k > 0) {
                      products_wait<1>();
                      if (lane == 0) barrier_pass(before);
                  }
                  before = empty + x.stage;
              }
              products_wait<0>();
              if (lane == 0) barrier_pass(before);
              int warp_row = (threadIdx.x >> 5) * 16 + (lane >> 2);
              int row = tile / o.column_tiles * ROWS + warp_row;
              int column = tile % o.column_tiles * COLS + (lane & 3) * 8;
              UNROLL for (int n = 0; n < NTILES; n += 4, column += 32) {
                  bool has_panel = NEARS > 0 && (column & ~63) < o.columns;
                  if (n % 8 == 0 && has_panel) m_await(near_full + panel.stage, panel.parity);
                  int from = column < o.columns ? column : 0;
                  float (&ending_sum)[SOME_SUMS][EACH] = total[n / 4];
                  ENDING_COLUMNS(columns)
                  ENDING_BEGIN(columns, from)
                  UNROLL for (int lower = 0; lower < 4; lower += 2) {
                      int r = row + lower * 4;
                      float v[EACH];
                      UNROLL for (int i = 0; i < EACH; i++) v[i] = c[n + i / 2][lower + i % 2];
                      if (r >= o.rows || column >= o.columns) continue;
                      m_long at = (m_long)r * o.columns + column;
                      m_uint here = near + panel.stage * NEARS * PANEL + (warp_row + lower * 4) * 128 +
                                    (((n & 4) + (lane & 3)) ^ (warp_row & 7)) * 16;
                      if constexpr (TWICE != 0) store_each(o.sum + at, v);
                      ENDING(v, columns, column, at)
                      if constexpr (ONCE == 0) store_each(o.y + at, v);
                  }
                  if (n % 8 == 4 && has_panel) {
                      __syncwarp();
                      if (lane == 0) barrier_pass(near_empty + panel.stage);
                      next_turn(panel, PANELS);
                  }
              }
          }
          if constexpr (SUMS > 0) store_parts(o, total, smem + (first - m_near(smem)));
      }),
    NULL,
};

const char *const tni_text_product_change[] = {
    "#define UNROLL_4 _Pragma(\"unroll 4\")\n",
    T(M_FN void store_near(m_uint to, const float (&v)[EACH]) {
          asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" :: "r"(to), "r"(pack(v[0], v[1])),
                       "r"(pack(v[2], v[3])), "r"(pack(v[4], v[5])), "r"(pack(v[6], v[7])) : "memory");
      }
      // Four warps together leave registers to others, or take them. Without sums 128 are enough
      // for all.
      template <int COUNT> M_FN void leave_registers() {
          if constexpr (SUMS > 0) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(COUNT));
      }
      template <int COUNT> M_FN void take_registers() {
          if constexpr (SUMS > 0) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(COUNT));
      }
      // An address that is known behind what comes before; loads from there need not be in the
      // order of stores, so that those of several rows are on their way at once.
      M_FN m_uint arrived(m_uint at) {
          asm volatile("" : "+r"(at) :: "memory");
          return at;
      }
      template <typename X>
      M_FN void load_arrived(X (&x)[EACH], m_uint from) {
          m_uint part[4];
          asm("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
              : "=r"(part[0]), "=r"(part[1]), "=r"(part[2]), "=r"(part[3]) : "r"(from));
          UNROLL for (int k = 0; k < EACH; k++) x[k] = (X)(part[k / 2] >> k % 2 * 16);
      }
      // Eight steps of rows 16 apart for each thread. Steps outside of a stay 0; rows may become
      // anything, since what they are multiplied to is not used. What the prologue reads of columns
      // is loaded before a stage is there.
      M_FN void change_tiles(const product &o PROLOGUE_PARAMS_IN, m_uint first, m_ulong *full, m_ulong *changed) {
          turn x = { 0, 0 };
          int part = threadIdx.x & 7;
          for (int tile = blockIdx.x; tile < o.tiles; tile += gridDim.x) {
              bool stores = CHANGE_KEPT && tile % o.column_tiles == 0;
              for (int k = 0; k < o.stages; k++, next_turn(x, STAGES)) {
                  int c = k * DEEP + part * 8;
                  int from = c < o.depth ? c : 0;
                  PROLOGUE_COLUMNS(columns)
                  PROLOGUE_BEGIN(columns, from)
                  m_await(full + x.stage, x.parity);
                  int r = threadIdx.x >> 3 & 15;
                  m_uint begin = arrived(first + x.stage * STAGE + r * 128 + (part ^ (r & 7)) * 16);
                  int last = c < o.depth ? ROWS : 0;
                  UNROLL_4 for (int i = 0; i < last; i += 16) {
                      int row = tile / o.column_tiles * ROWS + r + i;
                      m_long at = (m_long)min(row, o.rows - 1) * o.depth + c;
                      m_uint there = begin + i * 128;
                      elem raw[EACH];
                      float v[EACH];
                      load_arrived(raw, there);
                      UNROLL for (int k = 0; k < EACH; k++) v[k] = element(raw[k]);
                      PROLOGUE(v, columns, c, at)
                      store_near(there, v);
                      if (stores && row < o.rows) store_each(o.made + at, v);
                  }
                  fence_copies();
                  __syncwarp();
                  if ((threadIdx.x & 31) == 0) barrier_pass(changed + x.stage);
              }
          }
      }),
    "#define CHANGE_TILES(first, full, changed) "
    "if (threadIdx.x >= COPIER * 32) leave_registers<24>(); "
    "else if (threadIdx.x >= WARPS * 32) { leave_registers<104>(); change_tiles(o, p, first, full, changed); return; } "
    "else take_registers<192>();\n",
    NULL,
};

const char *const tni_text_product_finish[] = {
    // Blocks of 32 columns and TURNS threads for each, few enough to wait on multiprocessors that
    // still multiply. count: of the partial results of a column.
    T(struct finish { const float *parts; int columns; int count; };
      extern "C" __global__ void __launch_bounds__(256) cores_finish(GIVEN finish o ENDING_PARAMS) {
          enum { TURNS = 8 };
          __shared__ float part[TURNS][SUMS][32];
          int lane = threadIdx.x & 31;
          int turn = threadIdx.x >> 5;
          int c = blockIdx.x * 32 + lane;
          float ending_total[SUMS];
          m_begin();
          UNROLL for (int i = 0; i < SUMS; i++) ending_total[i] = 0.0f;
          for (int p = turn; p < o.count; p += TURNS)
              UNROLL for (int i = 0; i < SUMS; i++)
                  ending_total[i] += o.parts[((m_long)p * SUMS + i) * o.columns + c];
          UNROLL for (int i = 0; i < SUMS; i++) part[turn][i][lane] = ending_total[i];
          __syncthreads();
          if (turn > 0) return;
          UNROLL for (int i = 0; i < SUMS; i++)
              UNROLL for (int k = 1; k < TURNS; k++) ending_total[i] += part[k][i][lane];
          ENDING_FINISH(c)
      }),
    NULL,
};

const char *const tni_text_product_turn[] = {
    // From (depth, columns) to (columns, depth), 32 of each at a time.
    T(struct turning { const elem *from; elem *to; int depth; int columns; };
      extern "C" __global__ void __launch_bounds__(256) cores_turn(GIVEN turning o) {
          __shared__ elem tile[32][34];
          int lane = threadIdx.x & 31;
          int k = blockIdx.y * 32;
          int c = blockIdx.x * 32;
          m_begin();
          for (int i = threadIdx.x >> 5; i < 32; i += 8)
              if (k + i < o.depth) tile[i][lane] = o.from[(m_long)(k + i) * o.columns + c + lane];
          __syncthreads();
          for (int i = threadIdx.x >> 5; i < 32; i += 8)
              if (k + lane < o.depth) o.to[(m_long)(c + i) * o.depth + k + lane] = tile[lane][i];
      }),
    NULL,
};
