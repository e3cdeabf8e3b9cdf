// Products with sparse matrices, as text: a row of the result is added up by the items of one warp,
// in the order of the elements, so that the bits do not change from run to run.
//
//   spmm           32 items for each row and 128 columns: an item has four columns, 32 apart
//   spmm_narrow    up to 16 columns: 32 items for each row, as many for a column as there are elements read together
//   sddmm          4 or 16 items for each element of the result
//
// A group has 128 items. Elements are read four at a time, so that their rows of x are on the way
// together.
#include "device/simt/group_text.h"

#define T(...) #__VA_ARGS__ "\n"

// clang-format off

const char *const tni_text_sparse[] = {
    // Where operands begin in their buffers, in elements; order < 0: a value is in its element's
    // place.
    T(typedef struct { m_long values; m_long x; m_long y; m_long offsets; m_long columns; m_long order; m_long lines; int n; int lanes;
      } sparse_params;
      M_FN x_sum value_at(GLOBAL const x_kept *v, GLOBAL const int *p, const sparse_params *s, m_long i) {
          return (x_sum)x_get(v[s->values + (s->order < 0 ? i : (m_long)p[s->order + i])]);
      }),
    // A group's number is, from the fastest axis: tile of 128 columns, four rows. Neighbouring
    // items read neighbouring columns of one row of x, and all of a warp the same value and index.
    // The last tile may lack some of an item's four columns: `many` are there.
    T(KERNEL(128) spmm(GLOBAL const x_kept *v, GLOBAL const x_kept *x, GLOBAL const int *p, GLOBAL x_kept *y,
                       GIVEN sparse_params s) {
          int tiles = (s.n + 127) / 128;
          m_long row = (m_long)(GROUP_ID / tiles) * 4 + LOCAL_ID / 32;
          int c = (int)(GROUP_ID % tiles) * 128 + LOCAL_ID % 32;
          if (row >= s.lines) return;
          int end = p[s.offsets + row + 1];
          int many = (s.n - c + 31) / 32;
          x_sum sum[4];
          for (int k = 0; k < 4; k++) sum[k] = 0;
          GLOBAL const x_kept *from = x + s.x + c;
          int i = p[s.offsets + row];
          for (; i + 4 <= end && many >= 4; i += 4) {
              x_sum a[4];
              GLOBAL const x_kept *b[4];
              for (int u = 0; u < 4; u++) {
                  a[u] = value_at(v, p, &s, i + u);
                  b[u] = from + (m_long)p[s.columns + i + u] * s.n;
              }
              for (int u = 0; u < 4; u++)
                  for (int k = 0; k < 4; k++) sum[k] = x_fma(a[u], (x_sum)x_get(b[u][k * 32]), sum[k]);
          }
          for (; i < end; i++) {
              x_sum a = value_at(v, p, &s, i);
              GLOBAL const x_kept *b = from + (m_long)p[s.columns + i] * s.n;
              for (int k = 0; k < 4; k++)
                  if (k < many) sum[k] = x_fma(a, (x_sum)x_get(b[k * 32]), sum[k]);
          }
          for (int k = 0; k < 4; k++)
              if (k < many) y[s.y + row * s.n + c + k * 32] = x_put(sum[k]);
      }),
    // With few columns the items of a warp would have nothing to do: here they read several
    // elements at once, and the sums of one column meet in local memory, halved again and again,
    // always in the same order.
    //
    // lanes: items beside each other that have different columns, a power of two; the others of a
    // row have different elements.
    T(KERNEL(128) spmm_narrow(GLOBAL const x_kept *v, GLOBAL const x_kept *x, GLOBAL const int *p, GLOBAL x_kept *y,
                              GIVEN sparse_params s) {
          LOCAL x_sum part[128];
          int item = LOCAL_ID % 32;
          int c = item % s.lanes;
          int step = 32 / s.lanes;
          m_long row = (m_long)GROUP_ID * 4 + LOCAL_ID / 32;
          x_sum sum = 0;
          if (row < s.lines && c < s.n) {
              int end = p[s.offsets + row + 1];
              for (int i = p[s.offsets + row] + item / s.lanes; i < end; i += step)
                  sum = x_fma(value_at(v, p, &s, i), (x_sum)x_get(x[s.x + (m_long)p[s.columns + i] * s.n + c]), sum);
          }
          part[LOCAL_ID] = sum;
          for (int gap = 16; gap >= s.lanes; gap /= 2) {
              BARRIER();
              if (item < gap) part[LOCAL_ID] += part[LOCAL_ID + gap];
          }
          if (row < s.lines && item < s.n && item < s.lanes) y[s.y + row * s.n + item] = x_put(part[LOCAL_ID]);
      }),
    // v and x are the dense matrices; columns and order the places of the elements; n the length of
    // a sum.
    T(KERNEL(128) sddmm(GLOBAL const x_kept *v, GLOBAL const x_kept *x, GLOBAL const int *p, GLOBAL x_kept *y,
                        GIVEN sparse_params s) {
          LOCAL x_sum part[128];
          int item = LOCAL_ID % s.lanes;
          m_long i = (m_long)GROUP_ID * (128 / s.lanes) + LOCAL_ID / s.lanes;
          x_sum sum = 0;
          if (i < s.lines) {
              GLOBAL const x_kept *a = v + s.values + (m_long)p[s.order + i] * s.n;
              GLOBAL const x_kept *b = x + s.x + (m_long)p[s.columns + i] * s.n;
              for (int k = item; k < s.n; k += s.lanes) sum = x_fma((x_sum)x_get(a[k]), (x_sum)x_get(b[k]), sum);
          }
          part[LOCAL_ID] = sum;
          for (int gap = s.lanes / 2; gap > 0; gap /= 2) {
              BARRIER();
              if (item < gap) part[LOCAL_ID] += part[LOCAL_ID + gap];
          }
          if (i < s.lines && item == 0) y[s.y + i] = x_put(part[LOCAL_ID]);
      }),
    NULL,
};
