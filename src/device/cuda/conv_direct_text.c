// The kernels of small convolutions in f32, as text. A block brings what it reads into shared
// memory once and multiplies from there; every size is a constant, printed ahead of this text by
// conv_direct.c:
//
//     enum { CI = 32, CO = 64, XH = 13, XW = 13, YH = 11, YW = 11, KH = 3, KW = 3, SH = 1, ..., FLIP = 0 };
//     enum { ROWS = 11, TILE_CO = 32, RC = 8, RP = 4, SPLIT = 2, ... };
//
// Forward and gradient for x are one kernel: a block has ROWS rows of an image of the result and
// TILE_CO of its channels. The places of these rows are numbered, and a warp has 32 RP of them,
// side by side in its lanes, and RC channels: so a lane reads RP values and RC weights of shared
// memory for RP RC sums. SPLIT warps share the channels that are summed. The gradient for x, with
// stride 1, is the convolution of the result's gradient with the taps in reverse (FLIP).
//
// In the gradient for w a thread has RC channels of the result, one of x and all taps in registers,
// and goes over the places of rows; the window of x moves along with it, so that a place takes KH
// loads of x. SLICES threads share the places. A block takes pieces, ROWS rows of an image each, in
// turn; blocks leave partial sums, which direct_add adds in order.
//
// With TF32 the sums are the tensor cores' (mma.sync), in tiles of 16 x 8 over 8 of what is summed:
// channels and taps, numbered as w has them, or places in the gradient for w. What they multiply is
// rounded when it comes to shared memory.
#include "device/cuda/conv_direct.h"

#define T(...) #__VA_ARGS__ "\n"

// clang-format off

// X*: strides of x, Y*: of y, W*: of w, by image (N), channel (C) and place (Y down, X across); of
// w by the channel of the result (O) and of the sum (I). IH, IW: rows and columns of x that ROWS
// rows of the result meet. PLANE: floats of a channel in shared memory, such that lanes of
// different channels meet different banks: an odd number, or for tensor cores 4 or 8 more than a
// multiple of 32.
static const char shared_part[] =
    T(enum { TAPS = KH * KW, IH = (ROWS - 1) * SH + (KH - 1) * DH + 1,
             IW = (YW - 1) * SW + (KW - 1) * DW + 1 };
      struct direct_args { const float *x; const float *w; float *y; float *part; int images; int chunks; };
      // What is multiplied, rounded as tensor cores want it.
      M_FN float operand(float v) {
          unsigned bits = __float_as_uint(v);
          if (CORES) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(v));
          return __uint_as_float(bits);
      }
      // Where tap t is from the first one of a window.
      M_FN int tap_offset(int t) { return t / KW * DH * IW + t % KW * DW; }
      // Brings rows `top` and so on of C channels of an image, with zeros around it. Neighbouring
      // threads read neighbours in memory.
      template <int C> M_FN void load_rows(float *to, const float *x, int top) {
          const bool last = C > 1 && XC == 1;
          _Pragma("unroll 8")
          for (int i = threadIdx.x; i < C * IH * IW; i += THREADS) {
              int c = last ? i % C : i / (IH * IW);
              int q = last ? i / C % IW : i % IW;
              int r = last ? i / C / IW : i / IW % IH;
              int h = top + r;
              int v = q - PW;
              float g = 0;
              if ((unsigned)h < XH && (unsigned)v < XW) g = x[c * XC + h * XY + v * XX];
              to[c * PLANE + r * IW + q] = operand(g);
          }
      });

// ---- forward, and the gradient for x -----------------------------------------------------------

// The weights of TILE_CO channels, a LINE of them, with a gap against bank conflicts, for each
// channel and tap of the sum.
static const char load_weights_part[] =
    T(M_FN void load_weights(float *to, const float *w, int co) {
          const bool last = WI == 1;
          _Pragma("unroll 8")
          for (int i = threadIdx.x; i < CI * TAPS * TILE_CO; i += THREADS) {
              int k = i % (CI * TAPS);
              int o = i / (CI * TAPS);
              int c = last ? k % CI : k / TAPS;
              int t = last ? k / CI : k % TAPS;
              int kh = t / KW;
              int kw = t % KW;
              float g = 0;
              if (co + o < CO)
                  g = w[(co + o) * WO + c * WI + (FLIP ? KH - 1 - kh : kh) * WY + (FLIP ? KW - 1 - kw : kw) * WX];
              to[(c * TAPS + t) * LINE + o] = operand(g);
          }
      });
static const char forward_part[] =
    T(enum { GROUPS_C = TILE_CO / RC, ROW_TILES = (YH + ROWS - 1) / ROWS,
             GROUPS_P = (ROWS * YW + 32 * RP - 1) / (32 * RP), TILES_CO = (CO + TILE_CO - 1) / TILE_CO };
      // Adds channels `from` to `to` to a thread's sums; at[j] is where the window of its place j
      // begins.
      M_FN void add_channels(float (&sum)[RC][RP], const float *x, const float *w, const int (&at)[RP], int from, int to) {
          _Pragma("unroll 1")
          for (int c = from; c < to; c++) {
              _Pragma("unroll")
              for (int t = 0; t < TAPS; t++) {
                  float xv[RP];
                  float4 wv[RC / 4];
                  _Pragma("unroll")
                  for (int j = 0; j < RP; j++) xv[j] = x[c * PLANE + at[j] + tap_offset(t)];
                  _Pragma("unroll")
                  for (int i = 0; i < RC / 4; i++) wv[i] = *(const float4 *)(w + (c * TAPS + t) * LINE + i * 4);
                  _Pragma("unroll")
                  for (int i = 0; i < RC; i++) {
                      float g = i % 4 == 0 ? wv[i / 4].x : i % 4 == 1 ? wv[i / 4].y : i % 4 == 2 ? wv[i / 4].z : wv[i / 4].w;
                      _Pragma("unroll")
                      for (int j = 0; j < RP; j++) sum[i][j] = m_fma_f(g, xv[j], sum[i][j]);
                  }
              }
          }
      });
static const char forward_kernel[] =
    // A warp's number is, from the fastest: group of channels, group of places, part of the sum.
    // The parts but the first leave their sums in shared memory, RC RP lines of 32, and the first
    // adds them in order.
    T(extern "C" __global__ void __launch_bounds__(THREADS, 1) direct(const __grid_constant__ direct_args a) {
          extern __shared__ float4 memory[];
          float *w = (float *)memory;
          float *x = w + CI * TAPS * LINE;
          int tile = blockIdx.x;
          int co = tile % TILES_CO * TILE_CO;
          int row = tile / TILES_CO % ROW_TILES * ROWS;
          m_long image = tile / TILES_CO / ROW_TILES;
          int lane = threadIdx.x % 32;
          int warp = threadIdx.x / 32;
          int wc = warp % GROUPS_C * RC;
          int wp = warp / GROUPS_C % GROUPS_P * RP * 32;
          int part = warp / GROUPS_C / GROUPS_P;
          int at[RP];
          float sum[RC][RP] = {};
          m_begin();
          load_weights(w, a.w, co);
          load_rows<CI>(x, a.x + image * XN, row * SH - PH);
          for (int j = 0; j < RP; j++) {
              int p = wp + j * 32 + lane;
              at[j] = p < ROWS * YW ? p / YW * SH * IW + p % YW * SW : 0;
          }
          __syncthreads();
          add_channels(sum, x, w + wc, at, part * CI / SPLIT, (part + 1) * CI / SPLIT);
          if (SPLIT > 1) {
              float *left = (float *)memory;
              __syncthreads();
              for (int i = 0; part > 0 && i < RC * RP; i++)
                  left[((part - 1) * GROUPS_C * GROUPS_P + warp % (GROUPS_C * GROUPS_P)) * RC * RP * 32 + i * 32 + lane] =
                      sum[i / RP][i % RP];
              __syncthreads();
              if (part > 0) return;
              for (int s = 1; s < SPLIT; s++)
                  for (int i = 0; i < RC * RP; i++)
                      sum[i / RP][i % RP] += left[((s - 1) * GROUPS_C * GROUPS_P + warp) * RC * RP * 32 + i * 32 + lane];
          }
          float *y = a.y + image * YN;
          for (int j = 0; j < RP; j++) {
              int p = wp + j * 32 + lane;
              int h = row + p / YW;
              if (p >= ROWS * YW || h >= YH) continue;
              for (int i = 0; i < RC; i++)
                  if (co + wc + i < CO) y[(co + wc + i) * YC + h * YY + p % YW * YX] = sum[i][j];
          }
      });

// ---- the gradient for w ------------------------------------------------------------------------

// CI and CO are the channels of x and of y here. G_LINE: a place of y's gradient in shared memory,
// a line of channels; there are PLACES, of which those behind the last row are zeros.
static const char gradient_part[] =
    T(enum { ROW_TILES = (YH + ROWS - 1) / ROWS, TILES_CO = (CO + TILE_CO - 1) / TILE_CO,
             TILES_CI = (CI + TILE_CI - 1) / TILE_CI };
      M_FN void load_gradient(float *to, const float *g, int row, int co) {
          const bool last = YC == 1;
          _Pragma("unroll 8")
          for (int i = threadIdx.x; i < PLACES * TILE_CO; i += THREADS) {
              int o = last ? i % TILE_CO : i / PLACES;
              int p = last ? i / TILE_CO : i % PLACES;
              int h = row + p / YW;
              float v = 0;
              if (p < ROWS * YW && h < YH && co + o < CO) v = g[(co + o) * YC + h * YY + p % YW * YX];
              to[p * G_LINE + o] = operand(v);
          }
      });
static const char weights_part[] =
    T(enum { SEGMENTS = (YW + SEGMENT - 1) / SEGMENT, LANES = SLICES < 32 ? SLICES : 32, MOVES = SW == 1 && DW == 1 };
      // One place: g points at its RC gradients, x at its window; column `turn` of the window's
      // registers is its first.
      template <int TURN> M_FN void add_place(float (&sum)[RC][TAPS], float (&win)[KH][KW], const float *x, const float *g) {
          float gv[RC];
          _Pragma("unroll")
          for (int i = 0; i < RC / 4; i++) *(float4 *)(gv + i * 4) = *(const float4 *)(g + i * 4);
          _Pragma("unroll")
          for (int t = 0; t < TAPS; t++)
              if (!MOVES || t % KW == KW - 1) win[t / KW][(t % KW + TURN) % KW] = x[tap_offset(t)];
          _Pragma("unroll")
          for (int i = 0; i < RC; i++)
              _Pragma("unroll")
              for (int t = 0; t < TAPS; t++)
                  sum[i][t] = m_fma_f(gv[i], win[t / KW][(t % KW + TURN) % KW], sum[i][t]);
      }
      // Places TURN and so on of `left`, KW at most, each with the window turned by one more
      // column.
      template <int TURN>
      M_FN void add_places(float (&sum)[RC][TAPS], float (&win)[KH][KW], const float *x, const float *g, int left) {
          if (left <= TURN) return;
          add_place<TURN>(sum, win, x + TURN * SW, g + TURN * G_LINE);
          if constexpr (TURN + 1 < KW) add_places<TURN + 1>(sum, win, x, g, left);
      });
static const char weights_kernel[] =
    // A thread's number is, from the fastest: slice of places, channel of x, group of channels of
    // y.
    T(extern "C" __global__ void __launch_bounds__(THREADS, 1) direct_weights(const __grid_constant__ direct_args a) {
          extern __shared__ float4 memory[];
          float *g = (float *)memory;
          float *x = g + PLACES * G_LINE;
          int tile = blockIdx.x;
          int co = tile % TILES_CO * TILE_CO;
          int ci = tile / TILES_CO % TILES_CI * TILE_CI;
          int chunk = tile / TILES_CO / TILES_CI;
          int slice = threadIdx.x % SLICES;
          int c = threadIdx.x / SLICES % TILE_CI;
          int o = threadIdx.x / SLICES / TILE_CI * RC;
          float sum[RC][TAPS] = {};
          m_begin();
          for (int piece = chunk; piece < a.images * ROW_TILES; piece += a.chunks) {
              m_long image = piece / ROW_TILES;
              int row = piece % ROW_TILES * ROWS;
              load_gradient(g, a.y + image * YN, row, co);
              load_rows<TILE_CI>(x, a.x + image * XN + ci * XC, row * SH - PH);
              __syncthreads();
              for (int s = slice; s < ROWS * SEGMENTS; s += SLICES) {
                  int r = s / SEGMENTS;
                  int q = s % SEGMENTS * SEGMENT;
                  int end = q + SEGMENT < YW ? q + SEGMENT : YW;
                  const float *xs = x + c * PLANE + r * SH * IW;
                  float win[KH][KW];
                  for (int t = 0; t < TAPS; t++)
                      if (t % KW < KW - 1) win[t / KW][t % KW] = xs[t / KW * DH * IW + q * SW + t % KW * DW];
                  for (; q < end; q += KW)
                      add_places<0>(sum, win, xs + q * SW, g + (r * YW + q) * G_LINE + o, end - q);
              }
              __syncthreads();
          }
          for (int i = 0; i < RC; i++)
              for (int t = 0; t < TAPS; t++)
                  for (int d = LANES / 2; d > 0; d /= 2) sum[i][t] += __shfl_xor_sync(0xffffffffu, sum[i][t], d);
          if (SLICES > 32) {
              float *left = (float *)memory;
              const int warps = SLICES / 32;
              int at = threadIdx.x / SLICES * warps;
              for (int i = 0; threadIdx.x % 32 == 0 && i < RC * TAPS; i++)
                  left[(at + slice / 32) * RC * TAPS + i] = sum[i / TAPS][i % TAPS];
              __syncthreads();
              if (slice) return;
              for (int s = 1; s < warps; s++)
                  for (int i = 0; i < RC * TAPS; i++) sum[i / TAPS][i % TAPS] += left[(at + s) * RC * TAPS + i];
          }
          if (slice) return;
          for (int i = 0; i < RC; i++)
              for (int t = 0; t < TAPS; t++)
                  if (co + o + i < CO && ci + c < CI)
                      a.part[(((m_long)chunk * CO + co + o + i) * CI + ci + c) * TAPS + t] = sum[i][t];
      });

// ---- by tensor cores ---------------------------------------------------------------------------

// sum += a b: a 16 x 8, of which a lane has rows lane / 4 and 8 more of columns lane % 4 and 4
// more; b 8 x 8, of which it has column lane / 4; the sum 16 x 8, of which it has columns 2 (lane %
// 4) and one more.
static const char cores_part[] =
    T(M_FN void multiply(float (&sum)[4], const float (&a)[4], const float (&b)[2]) {
          asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                       "{%0, %1, %2, %3};" : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                       : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
                         "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
      }
      // Adds the sums of the warps that share a tile, part after part, in shared memory; returns
      // whether this warp has them.
      template <int N> M_FN bool join_parts(float *left, float (&sum)[N][4], int warp, int warps, int part) {
          int lane = threadIdx.x % 32;
          __syncthreads();
          for (int i = 0; part > 0 && i < 4 * N; i++)
              left[((part - 1) * warps + warp) * N * 128 + i * 32 + lane] = sum[i / 4][i % 4];
          __syncthreads();
          for (int s = 1; part == 0 && s < SPLIT; s++)
              for (int i = 0; i < 4 * N; i++) sum[i / 4][i % 4] += left[((s - 1) * warps + warp) * N * 128 + i * 32 + lane];
          return part == 0;
      });

// A warp has RP tiles of 16 places and RC / 8 of 8 channels. STEPS of 8 are summed, the last filled
// up with zeros.
static const char forward_cores[] =
    T(enum { STEPS = (CI * TAPS + 7) / 8, GROUPS_C = TILE_CO / RC, ROW_TILES = (YH + ROWS - 1) / ROWS,
             GROUPS_P = (ROWS * YW + 16 * RP - 1) / (16 * RP), TILES_CO = (CO + TILE_CO - 1) / TILE_CO, NC = RC / 8 };
      M_FN int window_at(int p) { return p < ROWS * YW ? p / YW * SH * IW + p % YW * SW : 0; }
      M_FN void store_pair(float *y, int p, int row, int co, float u, float v) {
          int h = row + p / YW;
          if (p >= ROWS * YW || h >= YH) return;
          y += co * YC + h * YY + p % YW * YX;
          if (YC == 1 && CO % 2 == 0 && YX % 2 == 0 && YY % 2 == 0 && YN % 2 == 0) {
              if (co < CO) *(float2 *)y = make_float2(u, v);
              return;
          }
          if (co < CO) y[0] = u;
          if (co + 1 < CO) y[YC] = v;
      });
static const char forward_cores_kernel[] =
    T(extern "C" __global__ void __launch_bounds__(THREADS, 1) direct(const __grid_constant__ direct_args a) {
          extern __shared__ float4 memory[];
          float *w = (float *)memory;
          float *x = w + STEPS * 8 * LINE;
          int *offset = (int *)(x + CI * PLANE);
          int tile = blockIdx.x;
          int co = tile % TILES_CO * TILE_CO;
          int row = tile / TILES_CO % ROW_TILES * ROWS;
          m_long image = tile / TILES_CO / ROW_TILES;
          int lane = threadIdx.x % 32;
          int warp = threadIdx.x / 32;
          int g = lane / 4;
          int t = lane % 4;
          int wc = warp % GROUPS_C * RC;
          int wp = warp / GROUPS_C % GROUPS_P * RP * 16;
          int part = warp / GROUPS_C / GROUPS_P;
          int at[2 * RP];
          float sum[RP * NC][4] = {};
          for (int k = threadIdx.x; k < STEPS * 8; k += THREADS)
              offset[k] = k < CI * TAPS ? k / TAPS * PLANE + tap_offset(k % TAPS) : 0;
          for (int i = threadIdx.x; i < (STEPS * 8 - CI * TAPS) * LINE; i += THREADS) w[CI * TAPS * LINE + i] = 0;
          for (int j = 0; j < 2 * RP; j++) at[j] = window_at(wp + j * 8 + g);
          m_begin();
          load_weights(w, a.w, co);
          load_rows<CI>(x, a.x + image * XN, row * SH - PH);
          __syncthreads();
          const float *b = w + wc + g;
          for (int s = part * STEPS / SPLIT; s < (part + 1) * STEPS / SPLIT; s++) {
              const float *x0 = x + offset[s * 8 + t];
              const float *x1 = x + offset[s * 8 + t + 4];
              float wv[NC][2];
              _Pragma("unroll")
              for (int n = 0; n < NC; n++) {
                  wv[n][0] = b[(s * 8 + t) * LINE + n * 8];
                  wv[n][1] = b[(s * 8 + t + 4) * LINE + n * 8];
              }
              _Pragma("unroll")
              for (int m = 0; m < RP; m++) {
                  float xv[4] = { x0[at[2 * m]], x0[at[2 * m + 1]], x1[at[2 * m]], x1[at[2 * m + 1]] };
                  _Pragma("unroll")
                  for (int n = 0; n < NC; n++) multiply(sum[m * NC + n], xv, wv[n]);
              }
          }
          if (SPLIT > 1 && !join_parts(w, sum, warp % (GROUPS_C * GROUPS_P), GROUPS_C * GROUPS_P, part)) return;
          float *y = a.y + image * YN;
          for (int m = 0; m < RP; m++)
              for (int n = 0; n < NC; n++) {
                  float *v = sum[m * NC + n];
                  store_pair(y, wp + m * 16 + g, row, co + wc + n * 8 + 2 * t, v[0], v[1]);
                  store_pair(y, wp + m * 16 + 8 + g, row, co + wc + n * 8 + 2 * t, v[2], v[3]);
              }
      });

// A warp has RC / 16 tiles of 16 channels of y and RP of 8 columns, which are channels of x and
// taps as w has them.
static const char weights_cores_kernel[] =
    T(enum { COLUMNS = TILE_CI * TAPS, GROUPS_C = TILE_CO / RC, GROUPS_N = (COLUMNS + 8 * RP - 1) / (8 * RP), MC = RC / 16 };
      extern "C" __global__ void __launch_bounds__(THREADS, 1) direct_weights(const __grid_constant__ direct_args a) {
          extern __shared__ float4 memory[];
          float *gy = (float *)memory;
          float *x = gy + PLACES * G_LINE;
          int *offset = (int *)(x + TILE_CI * PLANE);
          int tile = blockIdx.x;
          int co = tile % TILES_CO * TILE_CO;
          int ci = tile / TILES_CO % TILES_CI * TILE_CI;
          int chunk = tile / TILES_CO / TILES_CI;
          int warp = threadIdx.x / 32;
          int g = threadIdx.x % 32 / 4;
          int t = threadIdx.x % 4;
          int wc = warp % GROUPS_C * RC;
          int wn = warp / GROUPS_C % GROUPS_N * RP * 8;
          int part = warp / GROUPS_C / GROUPS_N;
          int at[RP];
          float sum[MC * RP][4] = {};
          for (int p = threadIdx.x; p < PLACES; p += THREADS)
              offset[p] = p < ROWS * YW ? p / YW * SH * IW + p % YW * SW : 0;
          for (int n = 0; n < RP; n++) {
              int j = wn + n * 8 + g;
              at[n] = j < COLUMNS ? j / TAPS * PLANE + tap_offset(j % TAPS) : 0;
          }
          m_begin();
          for (int piece = chunk; piece < a.images * ROW_TILES; piece += a.chunks) {
              m_long image = piece / ROW_TILES;
              int row = piece % ROW_TILES * ROWS;
              load_gradient(gy, a.y + image * YN, row, co);
              load_rows<TILE_CI>(x, a.x + image * XN + ci * XC, row * SH - PH);
              __syncthreads();
              for (int s = part; s < PLACES / 8; s += SPLIT) {
                  const float *x0 = x + offset[s * 8 + t];
                  const float *x1 = x + offset[s * 8 + t + 4];
                  const float *g0 = gy + (s * 8 + t) * G_LINE + wc + g;
                  const float *g1 = g0 + 4 * G_LINE;
                  float gv[MC][4];
                  _Pragma("unroll")
                  for (int m = 0; m < MC; m++) {
                      gv[m][0] = g0[m * 16];
                      gv[m][1] = g0[m * 16 + 8];
                      gv[m][2] = g1[m * 16];
                      gv[m][3] = g1[m * 16 + 8];
                  }
                  _Pragma("unroll")
                  for (int n = 0; n < RP; n++) {
                      float xv[2] = { x0[at[n]], x1[at[n]] };
                      _Pragma("unroll")
                      for (int m = 0; m < MC; m++) multiply(sum[m * RP + n], gv[m], xv);
                  }
              }
              __syncthreads();
          }
          if (SPLIT > 1 && !join_parts(gy, sum, warp % (GROUPS_C * GROUPS_N), GROUPS_C * GROUPS_N, part)) return;
          for (int m = 0; m < MC; m++)
              for (int n = 0; n < RP; n++)
                  for (int i = 0; i < 4; i++) {
                      int o = co + wc + m * 16 + i / 2 * 8 + g;
                      int j = wn + n * 8 + 2 * t + i % 2;
                      if (o < CO && j < COLUMNS && ci + j / TAPS < CI)
                          a.part[((m_long)chunk * CO + o) * (CI * TAPS) + ci * TAPS + j] = sum[m * RP + n][i];
                  }
      });

// ---- chunks ------------------------------------------------------------------------------------

static const char add_kernel[] =
    T(// Adds the chunks' sums: 8 threads share those of an element, and add every eighth in order, then each other's.
      extern "C" __global__ void __launch_bounds__(256, 1) direct_add(const __grid_constant__ direct_args a) {
          __shared__ float sums[256];
          int tid = threadIdx.x;
          int e = blockIdx.x * 32 + tid % 32;
          float sum = 0;
          m_begin();
          if (e < CO * TAPS * CI) {
              _Pragma("unroll 8")
              for (int c = tid / 32; c < a.chunks; c += 8) sum += a.part[(m_long)c * (CO * TAPS * CI) + e];
          }
          sums[tid] = sum;
          __syncthreads();
          if (tid >= 32 || e >= CO * TAPS * CI) return;
          for (int i = 1; i < 8; i++) sum += sums[i * 32 + tid];
          int t = e % TAPS;
          a.y[e / TAPS / CI * WO + e / TAPS % CI * WI + t / KW * WY + t % KW * WX] = sum;
      });

const char *const tni_text_direct[]         = { shared_part, load_weights_part, forward_part, forward_kernel, NULL };
const char *const tni_text_direct_weights[] = { shared_part, gradient_part, weights_part, weights_kernel, add_kernel, NULL };

const char *const tni_text_direct_cores[] = { shared_part,   cores_part, load_weights_part,
                                              forward_cores, forward_cores_kernel, NULL };
const char *const tni_text_direct_weights_cores[] = { shared_part, cores_part, gradient_part, weights_cores_kernel, add_kernel,
                                                      NULL };
