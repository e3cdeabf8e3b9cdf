// The two products of kernels on the tensor cores, as text: on any of them by mma.sync, or on
// Hopper by wgmma, which four warps start together and which reads its operands from shared memory
// by itself. cores_text.c describes tiles and fragments, which are the same for both.
//
//     rows_by_rows     c = a b' or, with ADD, c += a b': rows of one tile times rows of another
//     rows_by_columns  c += a b: a left operand in registers times the rows of a tile
//     tiles_by_tiles   c += a b: both from tiles, each of which has rows of 128 bytes of what is summed over, or lies
//                      along the other axis
//
// Products are started between products_begin and products_commit, and are complete after
// products_wait; mma.sync has completed them by then anyway.
#include "device/cuda/cores_text.h"

#define T(...) #__VA_ARGS__ "\n"

// clang-format off
const char *const tni_text_cores_mma[] = {
    T(M_FN void fence_copies() {}
      M_FN void products_begin() {}
      M_FN void products_commit() {}
      template <int LEFT>
      M_FN void products_wait() {}),
    T(M_FN void mma(float (&c)[4], const m_uint (&a)[4], m_uint b0, m_uint b1) {
          if constexpr (IS_TF32 != 0)
              asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, "
                           "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                           : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                           : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
          else if constexpr (IS_F16 != 0)
              asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                           "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                           : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                           : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
          else
              asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                           "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                           : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                           : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
      }
      // c = a b' or c += a b', b being rows of a tile of B_COUNT from `row` on. a is held in
      // registers or read from a tile of A_COUNT rows.
      template <int STEPS, bool HELD, int A_COUNT, int B_COUNT, bool ADD = false, int MT, int NT,
                int KEPT, typename NUM>
      M_FN void rows_by_rows(NUM (&c)[MT][NT][4], const m_uint (&a)[MT][KEPT][4], m_uint left,
                             m_uint right, int row) {
          if constexpr (!ADD) clear(c);
          int lane = threadIdx.x & 31;
          int r = row + (lane & 7) + (lane >> 4) * 8;
          UNROLL for (int s = 0; s < STEPS; s++) {
              m_uint x[MT][4];
              UNROLL for (int m = 0; m < MT; m++) {
                  if constexpr (HELD) { UNROLL for (int i = 0; i < 4; i++) x[m][i] = a[m][s][i]; }
                  else load_left<A_COUNT>(x[m], left, warp_row(m), s);
              }
              m_uint at = right + s / 4 * (B_COUNT * 128) + r * 128 +
                          (((s % 4 * 2 + (lane >> 3 & 1)) ^ r) & 7) * 16;
              UNROLL for (int n = 0; n < NT; n += 2) {
                  m_uint b[4];
                  load_matrices(b, at + n * 8 * 128);
                  UNROLL for (int m = 0; m < MT; m++) {
                      mma(c[m][n], x[m], b[0], b[1]);
                      mma(c[m][n + 1], x[m], b[2], b[3]);
                  }
              }
          }
      }
      // c += a b, b being rows of a tile of B_COUNT from `row` on, a multiple of 8.
      template <int B_COUNT, int MT, int NT, int STEPS>
      M_FN void rows_by_columns(float (&c)[MT][NT][4], const m_uint (&a)[MT][STEPS][4],
                                m_uint right, int row) {
          UNROLL for (int s = 0; s < STEPS; s++) {
              UNROLL for (int n = 0; n < NT; n += 2) {
                  m_uint b[4];
                  load_along<B_COUNT, false>(b, right + row * 128, s, n);
                  UNROLL for (int m = 0; m < MT; m++) {
                      mma(c[m][n], a[m][s], b[0], b[1]);
                      mma(c[m][n + 1], a[m][s], b[2], b[3]);
                  }
              }
          }
      }
      // c += a b, 128 bytes of both. A_COUNT, B_COUNT: rows of their tiles.
      template <int A_COUNT, int B_COUNT, bool A_ALONG, bool B_ALONG, int MT, int NT, typename NUM>
      M_FN void tiles_by_tiles(NUM (&c)[MT][NT][4], m_uint left, m_uint right) {
          m_uint a[MT][4][4];
          if constexpr (A_ALONG) load_lefts_along<A_COUNT>(a, left);
          else load_lefts<A_COUNT>(a, left);
          if constexpr (B_ALONG) rows_by_columns<B_COUNT>(c, a, right, 0);
          else rows_by_rows<4, true, A_COUNT, B_COUNT, true>(c, a, left, right, 0);
      }),
    NULL,
};

const char *const tni_text_cores_wgmma[] = {
    "#define REGS_32 \"%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, \" \\\n"
    "    \"%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31\"\n"
    "#define SUMS_4(c) \"+f\"(c[0]), \"+f\"(c[1]), \"+f\"(c[2]), \"+f\"(c[3])\n"
    "#define SUMS_32(c) SUMS_4(c[0]), SUMS_4(c[1]), SUMS_4(c[2]), SUMS_4(c[3]), \\\n"
    "    SUMS_4(c[4]), SUMS_4(c[5]), SUMS_4(c[6]), SUMS_4(c[7])\n"
    "#define REGS_64 REGS_32 \", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, \" \\\n"
    "    \"%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63\"\n"
    "#define SUMS_64(c) SUMS_32(c), SUMS_4(c[8]), SUMS_4(c[9]), SUMS_4(c[10]), SUMS_4(c[11]), \\\n"
    "    SUMS_4(c[12]), SUMS_4(c[13]), SUMS_4(c[14]), SUMS_4(c[15])\n"
    "#define REGS_128 REGS_64 \", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, \" \\\n"
    "    \"%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, \" \\\n"
    "    \"%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, \" \\\n"
    "    \"%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127\"\n"
    "#define SUMS_128(c) SUMS_64(c), SUMS_4(c[16]), SUMS_4(c[17]), SUMS_4(c[18]), SUMS_4(c[19]), \\\n"
    "    SUMS_4(c[20]), SUMS_4(c[21]), SUMS_4(c[22]), SUMS_4(c[23]), SUMS_4(c[24]), SUMS_4(c[25]), \\\n"
    "    SUMS_4(c[26]), SUMS_4(c[27]), SUMS_4(c[28]), SUMS_4(c[29]), SUMS_4(c[30]), SUMS_4(c[31])\n",
    // A group of four warps multiplies 64 rows by 64 columns over 16 steps, the left operand from
    // registers or from a tile, the right one from a tile: across (b') or along its rows. Tiles are
    // described by address, by 1,024 bytes from eight rows to the next, by the swizzle and, along
    // more than 64 columns, by the bytes of a panel.
    T(M_FN m_ulong describe(m_uint at, m_uint panel = 16) {
          return (m_ulong)((at & 0x3ffff) >> 4) | (m_ulong)(panel >> 4) << 16 | (m_ulong)64 << 32 |
                 (m_ulong)1 << 62;
      }
      M_FN void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
      M_FN void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
      template <int LEFT>
      M_FN void products_wait() {
          asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(LEFT) : "memory");
      }
      M_FN void fence_copies() {
          asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      }
      template <int ALONG>
      M_FN void wgmma_held(float (&c)[8][4], const m_uint (&a)[4], m_ulong right, int add) {
          if constexpr (IS_F16 != 0 && ALONG != 0)
              asm volatile("{ .reg .pred p; setp.ne.b32 p, %37, 0; "
                       "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" REGS_32 "}, "
                       "{%32, %33, %34, %35}, %36, p, 1, 1, 1; }"
                       : SUMS_32(c) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(right), "r"(add));
          else if constexpr (IS_F16 != 0)
              asm volatile("{ .reg .pred p; setp.ne.b32 p, %37, 0; "
                       "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" REGS_32 "}, "
                       "{%32, %33, %34, %35}, %36, p, 1, 1, 0; }"
                       : SUMS_32(c) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(right), "r"(add));
          else if constexpr (ALONG != 0)
              asm volatile("{ .reg .pred p; setp.ne.b32 p, %37, 0; "
                       "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" REGS_32 "}, "
                       "{%32, %33, %34, %35}, %36, p, 1, 1, 1; }"
                       : SUMS_32(c) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(right), "r"(add));
          else
              asm volatile("{ .reg .pred p; setp.ne.b32 p, %37, 0; "
                       "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" REGS_32 "}, "
                       "{%32, %33, %34, %35}, %36, p, 1, 1, 0; }"
                       : SUMS_32(c) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(right), "r"(add));
      }
      // Both from tiles, 64, 128 or 256 columns.
      template <int A_ALONG, int B_ALONG>
      M_FN void wgmma_tiles(float (&c)[8][4], m_ulong left, m_ulong right, int add) {
          if constexpr (IS_F16 != 0)
              asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0; "
                       "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" REGS_32 "}, "
                       "%32, %33, p, 1, 1, %35, %36; }"
                       : SUMS_32(c) : "l"(left), "l"(right), "r"(add), "n"(A_ALONG), "n"(B_ALONG));
          else
              asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0; "
                       "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" REGS_32 "}, "
                       "%32, %33, p, 1, 1, %35, %36; }"
                       : SUMS_32(c) : "l"(left), "l"(right), "r"(add), "n"(A_ALONG), "n"(B_ALONG));
      }
      template <int A_ALONG, int B_ALONG>
      M_FN void wgmma_tiles(float (&c)[16][4], m_ulong left, m_ulong right, int add) {
          if constexpr (IS_F16 != 0)
              asm volatile("{ .reg .pred p; setp.ne.b32 p, %66, 0; "
                       "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" REGS_64 "}, "
                       "%64, %65, p, 1, 1, %67, %68; }"
                       : SUMS_64(c) : "l"(left), "l"(right), "r"(add), "n"(A_ALONG), "n"(B_ALONG));
          else
              asm volatile("{ .reg .pred p; setp.ne.b32 p, %66, 0; "
                       "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" REGS_64 "}, "
                       "%64, %65, p, 1, 1, %67, %68; }"
                       : SUMS_64(c) : "l"(left), "l"(right), "r"(add), "n"(A_ALONG), "n"(B_ALONG));
      }
      template <int A_ALONG, int B_ALONG>
      M_FN void wgmma_tiles(float (&c)[32][4], m_ulong left, m_ulong right, int add) {
          if constexpr (IS_F16 != 0)
              asm volatile("{ .reg .pred p; setp.ne.b32 p, %130, 0; "
                       "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" REGS_128 "}, "
                       "%128, %129, p, 1, 1, %131, %132; }"
                       : SUMS_128(c) : "l"(left), "l"(right), "r"(add), "n"(A_ALONG), "n"(B_ALONG));
          else
              asm volatile("{ .reg .pred p; setp.ne.b32 p, %130, 0; "
                       "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" REGS_128 "}, "
                       "%128, %129, p, 1, 1, %131, %132; }"
                       : SUMS_128(c) : "l"(left), "l"(right), "r"(add), "n"(A_ALONG), "n"(B_ALONG));
      }),
    T(// COUNT tiles of a result, as one product has them.
      template <int COUNT = 8, int NT>
      M_FN float (&panel_of(float (&c)[NT][4], int n))[COUNT][4] {
          return *(float (*)[COUNT][4])&c[n];
      }
      // c = a b', as above; only starts it.
      template <int STEPS, bool HELD, int A_COUNT, int B_COUNT, bool ADD = false, int MT, int NT,
                int KEPT>
      M_FN void rows_by_rows(float (&c)[MT][NT][4], const m_uint (&a)[MT][KEPT][4], m_uint left,
                             m_uint right, int row) {
          UNROLL for (int m = 0; m < MT; m++)
              UNROLL for (int n = 0; n < NT; n += 8)
                  UNROLL for (int s = 0; s < STEPS; s++) {
                      m_ulong b = describe(right + s / 4 * (B_COUNT * 128) + (row + n * 8) * 128 +
                                           s % 4 * 32);
                      int first = (m * (WARPS / 4) + (int)(threadIdx.x >> 7)) * 64;
                      if constexpr (HELD) wgmma_held<0>(panel_of(c[m], n), a[m][s], b, ADD || s > 0);
                      else
                          wgmma_tiles<0, 0>(panel_of(c[m], n),
                                      describe(left + s / 4 * (A_COUNT * 128) + first * 128 +
                                               s % 4 * 32), b, ADD || s > 0);
                  }
      }
      // c += a b, as above; only starts it.
      template <int B_COUNT, int MT, int NT, int STEPS>
      M_FN void rows_by_columns(float (&c)[MT][NT][4], const m_uint (&a)[MT][STEPS][4],
                                m_uint right, int row) {
          UNROLL for (int m = 0; m < MT; m++)
              UNROLL for (int n = 0; n < NT; n += 8)
                  UNROLL for (int s = 0; s < STEPS; s++)
                      wgmma_held<1>(panel_of(c[m], n), a[m][s],
                                    describe(right + n / 8 * (B_COUNT * 128) + (row + s * 16) * 128),
                                    1);
      }
      // c += a b, as above; only starts it.
      template <int A_COUNT, int B_COUNT, bool A_ALONG, bool B_ALONG, int MT, int NT>
      M_FN void tiles_by_tiles(float (&c)[MT][NT][4], m_uint left, m_uint right) {
          constexpr int PANEL = NT % 16 == 0 ? 16 : 8;
          UNROLL for (int s = 0; s < 4; s++)
              UNROLL for (int m = 0; m < MT; m++) {
                  int row = m * (WARPS / 4) + (int)(threadIdx.x >> 7);
                  m_ulong a = describe(left + (A_ALONG ? row * (A_COUNT * 128) + s * 2048
                                                       : row * (64 * 128) + s * 32));
                  UNROLL for (int n = 0; n < NT; n += PANEL)
                      wgmma_tiles<A_ALONG, B_ALONG>(panel_of<PANEL>(c[m], n), a,
                          describe(right + (B_ALONG ? n / 8 * (B_COUNT * 128) + s * 2048
                                                    : n * 8 * 128 + s * 32), B_COUNT * 128), 1);
              }
      }),
    NULL,
};
