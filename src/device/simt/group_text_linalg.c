// Linear algebra of small matrices, as text: one group for each matrix, which is in local memory.
// Rows there are one element longer than n, so that a column is not all in one bank.
//
//   cholesky_small   l of each matrix, and info
//   lu_small         l and u, the order of the rows, and info
//   solve_small      solutions by one triangle of a matrix, or by l and u
//
// A group's items decide alike whether a matrix failed, since they read the same element of local
// memory, so that all of them meet at every barrier. NaN is made of a 0 that the compiler does not
// know.
#include "device/simt/group_text.h"

#define T(...) #__VA_ARGS__ "\n"

// clang-format off

const char *const tni_text_linalg[] = {
    "#define SIDE (16640 / (int)sizeof(x_type))\n"
    "#define X_NAN ((x_type)0 / (x_type)zero)\n",
    T(typedef struct { m_long at_a; m_long at_b; m_long at_lu; m_long at_order; m_long at_y; m_long at_info; int n; int k;
                       int upper; int unit; int transposed; int by_lu; int has_y; int has_order; int has_info; int zero;
      } linalg_params;),
    // Step k finds column k of l and takes its products from what is to the right of it.
    //
    // l, column after column: item (row, column) of the trailing triangle takes the product of what
    // was found. A matrix that is not positive becomes NaN.
    T(KERNEL(128) cholesky_small(GLOBAL const x_kept *a, GLOBAL x_kept *y, GLOBAL int *info, GIVEN linalg_params s) {
          LOCAL x_type l[SIDE];
          int n = s.n;
          int ld = n + 1;
          int failed = 0;
          x_type zero = (x_type)s.zero;
          m_long first = s.at_a + (m_long)GROUP_ID * n * n;
          for (int i = LOCAL_ID; i < n * n; i += 128) l[i / n * ld + i % n] = a[first + i];
          BARRIER();
          for (int k = 0; k < n; k++) {
              x_type d = l[k * ld + k];
              if (!(d > 0)) { failed = k + 1; break; }
              d = sqrt(d);
              BARRIER();
              for (int i = k + LOCAL_ID; i < n; i += 128) l[i * ld + k] = i == k ? d : l[i * ld + k] / d;
              BARRIER();
              for (int i = k + 1 + LOCAL_ID / 16; i < n; i += 8)
                  for (int j = k + 1 + LOCAL_ID % 16; j <= i; j += 16)
                      l[i * ld + j] -= l[i * ld + k] * l[j * ld + k];
              BARRIER();
          }
          first = s.at_y + (m_long)GROUP_ID * n * n;
          if (s.has_y)
              for (int i = LOCAL_ID; i < n * n; i += 128)
                  y[first + i] = failed ? X_NAN : i % n > i / n ? 0 : l[i / n * ld + i % n];
          if (s.has_info && LOCAL_ID == 0) info[s.at_info + GROUP_ID] = failed;
      }),
    // l and u with the largest element of each column as pivot, the first one of equals, found by a
    // tree.
    T(KERNEL(128) lu_small(GLOBAL const x_kept *a, GLOBAL x_kept *y, GLOBAL m_long *order, GLOBAL int *info,
                           GIVEN linalg_params s) {
          LOCAL x_type l[SIDE];
          LOCAL x_type best[128];
          LOCAL int row[128];
          LOCAL int rows[128];
          int n = s.n;
          int ld = n + 1;
          int failed = 0;
          m_long first = s.at_a + (m_long)GROUP_ID * n * n;
          for (int i = LOCAL_ID; i < n * n; i += 128) l[i / n * ld + i % n] = a[first + i];
          rows[LOCAL_ID] = LOCAL_ID;
          BARRIER();
          for (int k = 0; k < n; k++) {
              int i = k + LOCAL_ID;
              x_type v = i < n ? l[i * ld + k] : (x_type)-1;
              best[LOCAL_ID] = i < n && v < 0 ? -v : v;
              row[LOCAL_ID] = i;
              for (int gap = 64; gap > 0; gap /= 2) {
                  BARRIER();
                  if (LOCAL_ID < gap && gap < 2 * n && best[LOCAL_ID + gap] > best[LOCAL_ID]) {
                      best[LOCAL_ID] = best[LOCAL_ID + gap];
                      row[LOCAL_ID] = row[LOCAL_ID + gap];
                  }
              }
              BARRIER();
              int p = row[0];
              x_type d = l[p * ld + k];
              BARRIER();
              for (int j = LOCAL_ID; j < n && p != k; j += 128) {
                  x_type t = l[k * ld + j];
                  l[k * ld + j] = l[p * ld + j];
                  l[p * ld + j] = t;
              }
              if (LOCAL_ID == 0 && p != k) {
                  int t = rows[k];
                  rows[k] = rows[p];
                  rows[p] = t;
              }
              if (d == 0 && !failed) failed = k + 1;
              BARRIER();
              if (d == 0) continue;
              for (i = k + 1 + LOCAL_ID; i < n; i += 128) l[i * ld + k] /= d;
              BARRIER();
              for (i = k + 1 + LOCAL_ID / 16; i < n; i += 8)
                  for (int j = k + 1 + LOCAL_ID % 16; j < n; j += 16)
                      l[i * ld + j] -= l[i * ld + k] * l[k * ld + j];
              BARRIER();
          }
          first = s.at_y + (m_long)GROUP_ID * n * n;
          if (s.has_y)
              for (int i = LOCAL_ID; i < n * n; i += 128) y[first + i] = l[i / n * ld + i % n];
          if (s.has_order && LOCAL_ID < n) order[s.at_order + (m_long)GROUP_ID * n + LOCAL_ID] = rows[LOCAL_ID];
          if (s.has_info && LOCAL_ID == 0) info[s.at_info + GROUP_ID] = failed;
      }),
    // Solutions of 32 right sides for each group, one an item, by one triangle or by l and u.
    T(M_FN void solve_column(LOCAL_PTR const x_type *l, LOCAL_PTR x_type *x, int n, int upper, int transposed, int unit) {
          int back = upper != transposed;
          int ld = n + 1;
          for (int t = 0; t < n; t++) {
              int i = back ? n - 1 - t : t;
              x_type v = x[i * 32];
              for (int u = 0; u < t; u++) {
                  int j = back ? n - 1 - u : u;
                  v -= (transposed ? l[j * ld + i] : l[i * ld + j]) * x[j * 32];
              }
              x[i * 32] = unit ? v : v / l[i * ld + i];
          }
      }),
    T(KERNEL(32) solve_small(GLOBAL const x_kept *a, GLOBAL const x_kept *b, GLOBAL const m_long *order, GLOBAL x_kept *y,
                             GIVEN linalg_params s) {
          LOCAL x_type l[SIDE];
          LOCAL x_type x[SIDE / 2];
          int n = s.n;
          int ld = n + 1;
          int tiles = (s.k + 31) / 32;
          m_long i0 = GROUP_ID / tiles;
          int j = GROUP_ID % tiles * 32 + LOCAL_ID;
          x_type zero = (x_type)s.zero;
          int singular = 0;
          m_long first = s.at_a + i0 * n * n;
          m_long column = i0 * n * s.k + j;
          GLOBAL const m_long *rows = order + s.at_order + i0 * n;
          for (int i = LOCAL_ID; i < n * n; i += 32) l[i / n * ld + i % n] = a[first + i];
          BARRIER();
          if (j >= s.k) return;
          LOCAL_PTR x_type *own = x + LOCAL_ID;
          for (int i = 0; i < n; i++)
              own[i * 32] = b[s.at_b + column + (s.by_lu && !s.transposed ? rows[i] : i) * s.k];
          for (int i = 0; s.by_lu && i < n; i++) singular |= l[i * ld + i] == 0;
          if (!s.by_lu) solve_column(l, own, n, s.upper, s.transposed, s.unit);
          else {
              solve_column(l, own, n, s.transposed, s.transposed, !s.transposed);
              solve_column(l, own, n, !s.transposed, s.transposed, s.transposed);
          }
          for (int i = 0; i < n; i++)
              y[s.at_y + column + (s.by_lu && s.transposed ? rows[i] : i) * s.k] = singular ? X_NAN : own[i * 32];
      }),
    NULL,
};
