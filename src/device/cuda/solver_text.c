// What surrounds the calls of cuSOLVER, as text: pivots as an order of rows, rows in that order,
// triangles, and NaN where a matrix could not be factored. `word` is what a library or a kernel
// before left on the GPU: not 0 if it failed.
#include "device/cuda/solver.h"

#define T(...) #__VA_ARGS__ "\n"

// clang-format off

const char *const tni_text_solver[] = {
    "#define X_NAN ((x_type)0 / (x_type)zero)\n",
    // Places of x and y in elements; word and order, which lie in scratch, are their own pointers.
    T(typedef struct { m_long x; m_long y; m_long word; m_long order; m_long info; m_long n; m_long k; int what; int zero;
      } solver_params;),
    // One group. word becomes the first pivot on the diagonal of x that is not above 0 (what 0) or
    // that is 0 (what 1), from 1, unless the library found one already; info gets it.
    T(KERNEL(256) solver_check(GLOBAL const x_kept *x, GLOBAL int *word, GLOBAL int *info, GIVEN solver_params s) {
          LOCAL int first[256];
          int found = 2147483647;
          int before = s.what ? 0 : word[s.word];
          for (m_long i = LOCAL_ID; i < s.n; i += 256) {
              x_type d = x[s.x + i * s.n + i];
              if ((s.what ? d == 0 : !(d > 0)) && found > i) found = (int)i + 1;
          }
          first[LOCAL_ID] = found;
          for (int gap = 128; gap > 0; gap /= 2) {
              BARRIER();
              if (LOCAL_ID < gap && first[LOCAL_ID + gap] < first[LOCAL_ID]) first[LOCAL_ID] = first[LOCAL_ID + gap];
          }
          BARRIER();
          if (LOCAL_ID == 0) {
              found = before > 0 ? before : first[0] == 2147483647 ? 0 : first[0];
              word[s.word] = found;
              if (s.info >= 0) info[s.info] = found;
          }
      }),
    // Elements of y (n, k): NaN if word is above 0; else 0 above the diagonal (what 1) or below it
    // (what 2).
    T(KERNEL(256) solver_end(GLOBAL const int *word, GLOBAL x_kept *y, GIVEN solver_params s) {
          x_type zero = (x_type)s.zero;
          m_long i = (m_long)GROUP_ID * 256 + LOCAL_ID;
          if (i >= s.n * s.k) return;
          m_long r = i / s.k;
          m_long c = i % s.k;
          if (word[s.word] > 0) y[s.y + i] = X_NAN;
          else if ((s.what == 1 && c > r) || (s.what == 2 && c < r)) y[s.y + i] = 0;
      }),
    // One group: pivots, exchanges from 1 on, become the order of the rows. Up to 8192 are
    // exchanged in local memory, where one exchange waits for the next about twenty times less
    // long.
    T(KERNEL(256) solver_order(GLOBAL const m_long *pivots, GLOBAL m_long *order, GLOBAL const int *word, GLOBAL int *info,
                               GIVEN solver_params s) {
          LOCAL int rows[8192];
          int local = s.n <= 8192;
          GLOBAL m_long *to = order + s.order;
          for (m_long i = LOCAL_ID; i < s.n; i += 256) {
              if (local) rows[i] = (int)i;
              else to[i] = i;
          }
          BARRIER();
          if (LOCAL_ID == 0) {
              if (s.info >= 0) info[s.info] = word[s.word] > 0 ? word[s.word] : 0;
              for (m_long i = 0; i < s.n; i++) {
                  m_long p = pivots[s.x + i] - 1;
                  if (p < 0 || p >= s.n || p == i) continue;
                  if (local) {
                      int t = rows[i];
                      rows[i] = rows[p];
                      rows[p] = t;
                  } else {
                      m_long t = to[i];
                      to[i] = to[p];
                      to[p] = t;
                  }
              }
          }
          BARRIER();
          if (local) for (m_long i = LOCAL_ID; i < s.n; i += 256) to[i] = rows[i];
      }),
    // y (n, k) = the rows of x in an order, or (what 1) x in the places that the order names.
    T(KERNEL(256) solver_rows(GLOBAL const x_kept *x, GLOBAL const m_long *order, GLOBAL x_kept *y, GIVEN solver_params s) {
          m_long i = (m_long)GROUP_ID * 256 + LOCAL_ID;
          if (i >= s.n * s.k) return;
          m_long r = i / s.k;
          m_long c = i % s.k;
          m_long o = order[s.order + r];
          if (s.what) y[s.y + o * s.k + c] = x[s.x + i];
          else y[s.y + i] = x[s.x + o * s.k + c];
      }),
    // word becomes 1 if an element of the lower triangle of x (n, n) is infinite or NaN. It was 0
    // before.
    T(KERNEL(256) solver_finite(GLOBAL const x_kept *x, GLOBAL int *word, GIVEN solver_params s) {
          m_long i = (m_long)GROUP_ID * 256 + LOCAL_ID;
          if (i >= s.n * s.n || i % s.n > i / s.n) return;
          x_type v = x[s.x + i];
          if (v - v != 0) word[s.word] = 1;
      }),
    NULL,
};
