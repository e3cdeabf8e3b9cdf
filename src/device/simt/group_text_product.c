// Matrix products and convolutions, as text.
#include "device/simt/group_text.h"

#define T(...) #__VA_ARGS__ "\n"

// clang-format off

// ---- matrix products ---------------------------------------------------------------------------

// y (M, N) = a (M, K) @ b (K, N) for each matrix of a batch. The shapes are of the batch; row and
// column strides are their stride[6] and stride[7]. A group makes a tile of 64 by 64 and an item 4
// by 4 of it, 16 of K at a time through local memory. Tiles are read along the axis that is dense.
const char *const tni_text_matmul[] = {
    T(M_FN void bring(LOCAL_PTR x_sum (*tile)[68], GLOBAL const x_kept *x, m_long at, m_long across,
                      m_long along, m_long first, m_long end, m_long k, m_long K, int lid) {
          for (int i = lid; i < 64 * 16; i += 256) {
              int r = across == 1 ? i % 64 : i / 16;
              int c = across == 1 ? i / 64 : i % 16;
              m_long p = at + (first + r) * across + (k + c) * along;
              tile[c][r] = first + r < end && k + c < K ? (x_sum)x_get(x[p]) : (x_sum)0;
          }
      }),
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
          m_long at_a = place(&sa, matrix);
          m_long at_b = place(&sb, matrix);
          m_long at_y = place(&sy, matrix);
          x_sum acc[4][4];
          for (int i = 0; i < 4; i++)
              for (int j = 0; j < 4; j++) acc[i][j] = 0;
          for (m_long k = 0; k < K; k += 16) {
              bring(ta, a, at_a, sa.stride[6], sa.stride[7], row, M, k, K, lid);
              bring(tb, b, at_b, sb.stride[7], sb.stride[6], col, N, k, K, lid);
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

// ---- convolution -------------------------------------------------------------------------------

// The shapes are of x (N, C, H, W), w (O, C / groups, KH, KW) and y (N, O, OH, OW) whichever of
// them is the result. One item an element of the result; the gradient for w is a sum over all
// images and places, for which a group of 64 works together.
const char *const tni_text_conv[] = {
    T(typedef struct { m_long step[2]; m_long pad[2]; m_long dilation[2]; m_long groups;
                       m_long count; } how;
      M_FN m_long at4(const shape *s, m_long a, m_long b, m_long c, m_long d) {
          return s->at + a * s->stride[0] + b * s->stride[1] + c * s->stride[2] + d * s->stride[3];
      }
      M_FN void split4(const shape *s, m_long i, m_long *at) {
          for (int k = 3; k >= 0; k--) {
              at[k] = i % s->size[k];
              i /= s->size[k];
          }
      }),
    T(KERNEL(64) conv(GLOBAL const x_kept *x, GIVEN shape sx, GLOBAL const x_kept *w,
                      GIVEN shape sw, GLOBAL x_kept *y, GIVEN shape sy, GIVEN how o) {
          m_long at[4];
          if (ITEM >= o.count) return;
          split4(&sy, ITEM, at);
          m_long first = at[1] / (sw.size[0] / o.groups) * sw.size[1];
          x_sum sum = 0;
          for (m_long c = 0; c < sw.size[1]; c++)
              for (m_long i = 0; i < sw.size[2]; i++) {
                  m_long row = at[2] * o.step[0] - o.pad[0] + i * o.dilation[0];
                  if (row < 0 || row >= sx.size[2]) continue;
                  for (m_long j = 0; j < sw.size[3]; j++) {
                      m_long col = at[3] * o.step[1] - o.pad[1] + j * o.dilation[1];
                      if (col < 0 || col >= sx.size[3]) continue;
                      sum = x_fma((x_sum)x_get(x[at4(&sx, at[0], first + c, row, col)]),
                                  (x_sum)x_get(w[at4(&sw, at[1], c, i, j)]), sum);
                  }
              }
          y[at4(&sy, at[0], at[1], at[2], at[3])] = y_put(sum);
      }),
    T(KERNEL(64) conv_dgrad(GLOBAL x_kept *x, GIVEN shape sx, GLOBAL const x_kept *w,
                            GIVEN shape sw, GLOBAL const x_kept *y, GIVEN shape sy, GIVEN how o) {
          m_long at[4];
          if (ITEM >= o.count) return;
          split4(&sx, ITEM, at);
          m_long outs = sw.size[0] / o.groups;
          m_long first = at[1] / sw.size[1] * outs;
          m_long c = at[1] % sw.size[1];
          x_sum sum = 0;
          for (m_long i = 0; i < sw.size[2]; i++) {
              m_long row = at[2] + o.pad[0] - i * o.dilation[0];
              if (row < 0 || row % o.step[0] != 0 || row / o.step[0] >= sy.size[2]) continue;
              for (m_long j = 0; j < sw.size[3]; j++) {
                  m_long col = at[3] + o.pad[1] - j * o.dilation[1];
                  if (col < 0 || col % o.step[1] != 0 || col / o.step[1] >= sy.size[3]) continue;
                  for (m_long k = first; k < first + outs; k++)
                      sum = x_fma((x_sum)x_get(y[at4(&sy, at[0], k, row / o.step[0],
                                                     col / o.step[1])]),
                                  (x_sum)x_get(w[at4(&sw, k, c, i, j)]), sum);
              }
          }
          x[at4(&sx, at[0], at[1], at[2], at[3])] = y_put(sum);
      }),
    T(KERNEL(64) conv_wgrad(GLOBAL const x_kept *x, GIVEN shape sx, GLOBAL x_kept *w,
                            GIVEN shape sw, GLOBAL const x_kept *y, GIVEN shape sy, GIVEN how o) {
          LOCAL x_sum part[64];
          int lid = LOCAL_ID;
          m_long at[4];
          split4(&sw, GROUP_ID, at);
          m_long channel = at[0] / (sw.size[0] / o.groups) * sw.size[1] + at[1];
          m_long places = sy.size[2] * sy.size[3];
          x_sum sum = 0;
          for (m_long p = lid; p < sy.size[0] * places; p += 64) {
              m_long image = p / places;
              m_long i = p % places / sy.size[3];
              m_long j = p % sy.size[3];
              m_long row = i * o.step[0] - o.pad[0] + at[2] * o.dilation[0];
              m_long col = j * o.step[1] - o.pad[1] + at[3] * o.dilation[1];
              if (row < 0 || row >= sx.size[2] || col < 0 || col >= sx.size[3]) continue;
              sum = x_fma((x_sum)x_get(x[at4(&sx, image, channel, row, col)]),
                          (x_sum)x_get(y[at4(&sy, image, at[0], i, j)]), sum);
          }
          part[lid] = sum;
          for (int half_ = 32; half_ > 0; half_ /= 2) {
              BARRIER();
              if (lid < half_) part[lid] += part[lid + half_];
          }
          if (lid == 0) w[at4(&sw, at[0], at[1], at[2], at[3])] = y_put(part[0]);
      }),
    NULL,
};
