// Matrix products, as text: for devices without a library, and layouts that a library does not
// take.
#include "device/simt/group_text.h"

#define T(...) #__VA_ARGS__ "\n"

// clang-format off

// y (M, N) = a (M, K) @ b (K, N) for each matrix of a batch. The shapes are the batch's; row and
// column strides are in stride[6] and stride[7]. A group computes a tile of 64 by 64 and an item 4
// by 4 of it, 16 of K at a time through local memory. A tile is loaded along its dense axis, by
// neighbouring items, and stored with a gap of four against bank conflicts.
const char *const tni_text_matmul[] = {
    // Loads 64 rows (or columns) by 16 of K into local memory, with zeros past the ends.
    // outer_stride: between rows of a, or columns of b; if that is 1, neighbouring items load along
    // it, else along K.
    T(M_FN void load_tile(LOCAL_PTR x_sum (*tile)[68], GLOBAL const x_kept *x, m_long at,
                          m_long outer_stride, m_long depth_stride, m_long first, m_long end,
                          m_long k, m_long K, int lid) {
          for (int i = lid; i < 64 * 16; i += 256) {
              int r = outer_stride == 1 ? i % 64 : i / 16;
              int c = outer_stride == 1 ? i / 64 : i % 16;
              m_long p = at + (first + r) * outer_stride + (k + c) * depth_stride;
              tile[c][r] = first + r < end && k + c < K ? (x_sum)x_get(x[p]) : (x_sum)0;
          }
      }),
    // A group's number is, from the fastest axis: tile of columns, tile of rows, matrix.
    T(KERNEL(256) matmul(GLOBAL const x_kept *a, GIVEN shape sa, GLOBAL const x_kept *b,
                         GIVEN shape sb, GLOBAL y_kept *y, GIVEN shape sy, m_long M, m_long N,
                         m_long K) {
          LOCAL x_sum ta[16][68];
          LOCAL x_sum tb[16][68];
          int lid = LOCAL_ID;
          int tx = lid % 16;
          int ty = lid / 16;
          m_long across = (N + 63) / 64;
          m_long down = (M + 63) / 64;
          m_long col = GROUP_ID % across * 64;
          m_long row = GROUP_ID / across % down * 64;
          m_long matrix = GROUP_ID / across / down;
          m_long at_a = element_offset(&sa, matrix);
          m_long at_b = element_offset(&sb, matrix);
          m_long at_y = element_offset(&sy, matrix);
          x_sum acc[4][4];
          for (int i = 0; i < 4; i++)
              for (int j = 0; j < 4; j++) acc[i][j] = 0;
          for (m_long k = 0; k < K; k += 16) {
              load_tile(ta, a, at_a, sa.stride[6], sa.stride[7], row, M, k, K, lid);
              load_tile(tb, b, at_b, sb.stride[7], sb.stride[6], col, N, k, K, lid);
              BARRIER();
              for (int c = 0; c < 16; c++) {
                  x_sum va[4];
                  x_sum vb[4];
                  for (int i = 0; i < 4; i++) va[i] = ta[c][ty * 4 + i];
                  for (int j = 0; j < 4; j++) vb[j] = tb[c][tx * 4 + j];
                  for (int i = 0; i < 4; i++)
                      for (int j = 0; j < 4; j++) acc[i][j] = x_fma(va[i], vb[j], acc[i][j]);
              }
              BARRIER();
          }
          for (int i = 0; i < 4; i++)
              for (int j = 0; j < 4; j++) {
                  m_long r = row + ty * 4 + i;
                  m_long c = col + tx * 4 + j;
                  if (r < M && c < N)
                      y[at_y + r * sy.stride[6] + c * sy.stride[7]] = y_put(acc[i][j]);
              }
      }),
    NULL,
};
