// What kernels on the tensor cores share, as text: copies into shared memory, and fragments, which
// are what a lane has of an operand or a result. cores_text_product.c has the products.
//
// Tiles. A tile of rows (queries or keys) is stored in panels of 64 columns. A row of a panel is
// 128 bytes, eight chunks of 16; chunk c of row r is at place c ^ (r & 7), so that the eight rows
// that an instruction reads at one column lie in different banks. This is also the layout that the
// products of Hopper call "128-byte swizzle", so that both kinds of product read the same tiles.
//
// Fragments. A warp has 16 rows of a product (a group of four warps 64). Lane l = 4 g + t has of
// each 16 x 8 tile of a result four numbers: c[0], c[1] are row g, columns 2 t and 2 t + 1; c[2],
// c[3] row g + 8, the same columns. Two such tiles side by side, rounded to 16 bits, are the left
// operand of a product over 16 steps: {c0 c1}, {c2 c3} of the first, {c0 c1}, {c2 c3} of the
// second. So the result of a product (scores) becomes the operand of the next without leaving the
// registers:
//
//              columns   0  1 | 2  3 | 4  5 | 6  7
//     row 0            l=0    | l=1  | l=2  | l=3        c[0] c[1]
//     row 1            l=4    | l=5  | ...
//     ...
//     row 8            l=0    | l=1  | ...               c[2] c[3]
//
//
// Operands in f32, which are rounded to TF32, have half as many elements in the same bytes: a chunk
// has four, and a step of a product is over 8. Of a tile that is read along its rows, chunk c of
// row r is at place c ^ (2 r & 7) then, since it is read by words.
//
// A text that is printed with this one begins with its constants, among them WARPS, IS_F16, IS_TF32
// and ALIGNED, and with the type of an element.
#include "device/cuda/cores_text.h"

#define T(...) #__VA_ARGS__ "\n"

// clang-format off
const char *const tni_text_cores[] = {
    "#define UNROLL _Pragma(\"unroll\")\n",
    // ---- instructions --------------------------------------------------------------------------
    // Bits of f32 are rounded to those of TF32, of which the products would cut off the rest.
    T(M_FN void copy_async(m_uint to, const elem *from, int bytes) {
          asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::
                       "r"(to), "l"(from), "r"(bytes) : "memory");
      }
      M_FN void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
      template <int LEFT>
      M_FN void copy_async_wait() {
          asm volatile("cp.async.wait_group %0;" :: "n"(LEFT) : "memory");
      }
      M_FN void round_operand(m_uint (&r)[4]) {
          if constexpr (IS_TF32 != 0)
              UNROLL for (int i = 0; i < 4; i++) asm("cvt.rna.tf32.f32 %0, %0;" : "+r"(r[i]));
      }
      M_FN void load_matrices(m_uint (&r)[4], m_uint at) {
          asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                       : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
          round_operand(r);
      }
      M_FN void load_matrices_transposed(m_uint (&r)[4], m_uint at) {
          asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                       : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
      }
      M_FN m_uint load_word(m_uint at) {
          m_uint y;
          asm volatile("ld.shared.u32 %0, [%1];" : "=r"(y) : "r"(at) : "memory");
          return y;
      }
      // Two numbers rounded to 16 bits, the first in the lower half.
      M_FN m_uint pack(float low, float high) {
          m_uint y;
          if constexpr (IS_F16 != 0)
              asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
          else asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
          return y;
      }
      M_FN float element(elem x) {
          return IS_F16 ? m_half_to_float(x) : m_bf16_to_float(x);
      }),
    // ---- operands ------------------------------------------------------------------------------
    T(// Reads a warp's 16 rows and 32 bytes, from row `row` and step `step` on, as left operand.
      template <int COUNT>
      M_FN void load_left(m_uint (&a)[4], m_uint tile, int row, int step) {
          int lane = threadIdx.x & 31;
          int r = row + (lane & 15);
          int c = step % 4 * 2 + (lane >> 4);
          load_matrices(a, tile + step / 4 * (COUNT * 128) + r * 128 + ((c ^ r) & 7) * 16);
      }
      // The first of the 16 rows of a warp in tile m of its block.
      M_FN int warp_row(int m) { return (m * WARPS + (int)(threadIdx.x >> 5)) * 16; }
      template <int COUNT, int MT, int STEPS>
      M_FN void load_lefts(m_uint (&a)[MT][STEPS][4], m_uint tile) {
          UNROLL for (int m = 0; m < MT; m++)
              UNROLL for (int s = 0; s < STEPS; s++)
                  load_left<COUNT>(a[m][s], tile, warp_row(m), s);
      }
      // Reads, of a tile of COUNT rows that are the steps of a product, step `step` and 16 columns
      // from tile n of eight on: as left operand, or as the right ones of n and n + 1.
      template <int COUNT, bool LEFT>
      M_FN void load_along(m_uint (&x)[4], m_uint tile, int step, int n) {
          int lane = threadIdx.x & 31;
          if constexpr (IS_TF32 != 0) {
              UNROLL for (int i = 0; i < 4; i++) {
                  int r = step * 8 + (lane & 3) + (LEFT ? i >> 1 : i & 1) * 4;
                  int at = n + (LEFT ? i & 1 : i >> 1);
                  x[i] = load_word(tile + at / 4 * (COUNT * 128) + r * 128 +
                                   (((at % 4 * 2 + (lane >> 4)) ^ r * 2) & 7) * 16 +
                                   (lane >> 2 & 3) * 4);
              }
              round_operand(x);
          } else {
              int r = step * 16 + (LEFT ? (lane & 7) + (lane >> 4) * 8 : lane & 15);
              int c = n % 8 + (LEFT ? lane >> 3 & 1 : lane >> 4);
              load_matrices_transposed(x, tile + n / 8 * (COUNT * 128) + r * 128 +
                                          ((c ^ r) & 7) * 16);
          }
      }
      template <int COUNT, int MT, int STEPS>
      M_FN void load_lefts_along(m_uint (&a)[MT][STEPS][4], m_uint tile) {
          UNROLL for (int m = 0; m < MT; m++)
              UNROLL for (int s = 0; s < STEPS; s++)
                  load_along<COUNT, true>(a[m][s], tile, s, warp_row(m) / 8);
      }),
    // ---- results -------------------------------------------------------------------------------
    // Row and column of number e of tile n, of tile m of rows, in a block's result.
    T(M_FN int row_at(int m, int e) {
          return warp_row(m) + ((int)threadIdx.x >> 2 & 7) + (e >> 1) * 8;
      }
      M_FN int column_at(int n, int e) { return n * 8 + ((int)threadIdx.x & 3) * 2 + (e & 1); }
      template <int MT, int NT, typename NUM>
      M_FN void clear(NUM (&c)[MT][NT][4]) {
          UNROLL for (int m = 0; m < MT; m++)
              UNROLL for (int n = 0; n < NT; n++)
                  UNROLL for (int i = 0; i < 4; i++) c[m][n][i] = 0;
      }
      // Stores a warp's rows of a result of up to WIDTH columns, of which there are `width`, by way
      // of its rows of a tile, so that global memory is written in pieces of 16 bytes. there:
      // whether chunk n of eight columns of row r is stored; where: its address.
      template <int COUNT, int WIDTH, int MT, int NT, typename THERE, typename WHERE>
      M_FN void store_chunks(const float (&c)[MT][NT][4], m_uint tile, int width, THERE there,
                             WHERE where) {
          constexpr int CHUNKS = (WIDTH + 7) / 8;
          int lane = threadIdx.x & 31;
          UNROLL for (int m = 0; m < MT; m++)
              UNROLL for (int n = 0; n < CHUNKS; n++)
                  UNROLL for (int e = 0; e < 4; e += 2) {
                      int r = row_at(m, e);
                      asm volatile("st.shared.u32 [%0], %1;" ::
                                   "r"(tile + n / 8 * (COUNT * 128) + r * 128 +
                                       ((n ^ r) & 7) * 16 + (lane & 3) * 4),
                                   "r"(pack(c[m][n][e], c[m][n][e + 1])) : "memory");
                  }
          __syncwarp();
          UNROLL for (int m = 0; m < MT; m++)
              for (int u = lane; u < 16 * CHUNKS; u += 32) {
                  int r = warp_row(m) + u / CHUNKS;
                  int n = u % CHUNKS;
                  uint4 x;
                  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                               : "r"(tile + n / 8 * (COUNT * 128) + r * 128 + ((n ^ r) & 7) * 16)
                               : "memory");
                  if (!there(r, n)) continue;
                  elem *at = where(r, n);
                  if constexpr (ALIGNED != 0) *(uint4 *)at = x;
                  else {
                      m_uint part[4] = { x.x, x.y, x.z, x.w };
                      UNROLL for (int i = 0; i < 8; i++)
                          if (n * 8 + i < width) at[i] = (elem)(part[i / 2] >> i % 2 * 16);
                  }
              }
      }),
    NULL,
};

// Products of bytes, which add up in int: a step is over 32. An operand of either sign is
// multiplied as it is.
const char *const tni_text_cores_bytes[] = {
    T(M_FN void mma(int (&c)[4], const m_uint (&a)[4], m_uint b0, m_uint b1) {
          asm volatile("mma.sync.aligned.m16n8k32.row.col.s32." A_SIGN "." B_SIGN ".s32 {%0, %1, %2, %3}, "
                       "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                       : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                       : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
      }),
    NULL,
};
