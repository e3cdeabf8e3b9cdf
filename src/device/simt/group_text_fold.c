// Scans, places of extrema, the adjoint of views, sorting and writing by index, as text.
#include "device/simt/group_text.h"

#define T(...) #__VA_ARGS__ "\n"

// clang-format off

// ---- folds along axes --------------------------------------------------------------------------

const char *const tni_text_fold[] = {
    // Running sums and products: a group of 64 for each line, every item a stretch of it. Totals
    // before a stretch are added up in order.
    T(M_FN y_wide join(y_wide a, y_wide b, int product) { return product ? a * b : a + b; }
      KERNEL(64) scan(GLOBAL const x_kept *x, GIVEN shape sx, GLOBAL y_kept *y, GIVEN shape sy,
                      m_long n, m_long x_step, m_long y_step, int product) {
          LOCAL y_wide total[64];
          int lid = LOCAL_ID;
          m_long stretch = (n + 63) / 64;
          m_long first = least(lid * stretch, n);
          m_long end = least(first + stretch, n);
          m_long at_x = place(&sx, GROUP_ID);
          m_long at_y = place(&sy, GROUP_ID);
          y_wide acc = product ? (y_wide)1 : (y_wide)-0.0f;
          for (m_long i = first; i < end; i++)
              acc = join(acc, (y_wide)x_get(x[at_x + i * x_step]), product);
          total[lid] = acc;
          BARRIER();
          acc = product ? (y_wide)1 : (y_wide)-0.0f;
          for (int k = 0; k < lid; k++) acc = join(acc, total[k], product);
          for (m_long i = first; i < end; i++) {
              acc = join(acc, (y_wide)x_get(x[at_x + i * x_step]), product);
              y[at_y + i * y_step] = y_put(acc);
          }
      }),
    // The place of the first extremum: a group of 64 for each result. NaN beats everything else.
    T(M_FN int beats(x_type a, x_type b, int lowest) {
          if (a != a || b != b) return b == b;
          return lowest ? a < b : a > b;
      }
      KERNEL(64) arg_reduce(GLOBAL const x_kept *x, GIVEN shape kept, GIVEN shape folded,
                            GLOBAL m_long *y, m_long at_y, m_long n, int lowest) {
          LOCAL x_type best[64];
          LOCAL m_long where_[64];
          int lid = LOCAL_ID;
          m_long at = place(&kept, GROUP_ID);
          if (lid < n) {
              x_type v = x_get(x[at + place(&folded, lid)]);
              m_long k = lid;
              for (m_long i = lid + 64; i < n; i += 64) {
                  x_type u = x_get(x[at + place(&folded, i)]);
                  if (beats(u, v, lowest)) {
                      v = u;
                      k = i;
                  }
              }
              best[lid] = v;
              where_[lid] = k;
          }
          for (int half_ = 32; half_ > 0; half_ /= 2) {
              BARRIER();
              int other = lid + half_;
              if (lid < half_ && other < n) {
                  x_type u = best[other];
                  x_type v = best[lid];
                  if (beats(u, v, lowest) ||
                      (!beats(v, u, lowest) && where_[other] < where_[lid])) {
                      best[lid] = u;
                      where_[lid] = where_[other];
                  }
              }
          }
          if (lid == 0) y[at_y + GROUP_ID] = where_[0];
      }),
    // The adjoint of a view. The axes of the view are in two parts: those of `in`, by falling
    // stride, visit no place twice, so that a place has one index in them at most, found by
    // division; the others (`tap`) are tried one after the other.
    T(KERNEL(64) fold(GLOBAL const x_kept *x, GLOBAL x_kept *y, m_long at_y, m_long count,
                      GIVEN shape in, GIVEN shape in_x, GIVEN shape tap, GIVEN shape tap_x,
                      m_long taps) {
          m_long j = ITEM;
          if (j >= count) return;
          y_sum sum = 0;
          for (m_long t = 0; t < taps; t++) {
              m_long left = j - place(&tap, t);
              m_long from = place(&tap_x, t);
              if (left < 0) continue;
              for (int k = 0; k < in.rank; k++) {
                  m_long i = least(left / in.stride[k], in.size[k] - 1);
                  left -= i * in.stride[k];
                  from += i * in_x.stride[k];
              }
              if (left == 0) sum += (y_sum)x_get(x[from]);
          }
          y[at_y + j] = y_put(sum);
      }),
    NULL,
};

// ---- sorting -----------------------------------------------------------------------------------

// Indices are sorted by merging runs; of equals the left goes first. An item finds the place of one
// index: in blocks of 32 by counting, in longer runs by bisection in the other run.
const char *const tni_text_sort[] = {
    T(M_FN int before(x_type a, x_type b, int descending) {
          x_type hi = descending ? a : b;
          x_type lo = descending ? b : a;
          if (hi != hi) return lo == lo;
          return hi > lo;
      }
      typedef struct { m_long n; m_long count; m_long x_step; m_long step; m_long run;
                       int descending; int unused; } sorting;),
    T(KERNEL(64) sort_blocks(GLOBAL const x_kept *x, GIVEN shape sx, GLOBAL m_long *to,
                             GIVEN shape line, GIVEN sorting s) {
          m_long g = ITEM;
          if (g >= s.count) return;
          m_long i = g % s.n;
          m_long at = place(&sx, g / s.n);
          m_long lo = i / 32 * 32;
          m_long hi = least(lo + 32, s.n);
          m_long rank_ = lo;
          x_type v = x_get(x[at + i * s.x_step]);
          for (m_long j = lo; j < hi; j++) {
              x_type u = x_get(x[at + j * s.x_step]);
              if (j < i) rank_ += !before(v, u, s.descending);
              if (j > i) rank_ += before(u, v, s.descending);
          }
          to[place(&line, g / s.n) + rank_ * s.step] = i;
      }),
    T(KERNEL(64) sort_merge(GLOBAL const x_kept *x, GIVEN shape sx, GLOBAL const m_long *from,
                            m_long at_from, GLOBAL m_long *to, m_long at_to, GIVEN shape line,
                            GIVEN sorting s) {
          m_long g = ITEM;
          if (g >= s.count) return;
          m_long i = g % s.n;
          m_long at = place(&sx, g / s.n);
          m_long p = place(&line, g / s.n);
          m_long lo = i / (2 * s.run) * 2 * s.run;
          m_long mid = least(lo + s.run, s.n);
          int left = i < mid;
          m_long index = from[at_from + p + i * s.step];
          x_type v = x_get(x[at + index * s.x_step]);
          m_long a = left ? mid : lo;
          m_long b = left ? least(mid + s.run, s.n) : mid;
          m_long first = a;
          while (a < b) {
              m_long m = (a + b) / 2;
              x_type u = x_get(x[at + from[at_from + p + m * s.step] * s.x_step]);
              int goes_first = left ? before(u, v, s.descending) : !before(v, u, s.descending);
              if (goes_first) a = m + 1;
              else b = m;
          }
          m_long to_ = (left ? i : lo + i - mid) + a - first;
          to[at_to + p + to_ * s.step] = index;
      }),
    NULL,
};

// ---- by index ----------------------------------------------------------------------------------

// An item goes along the indexed axis in order, so of several the last counts and sums have a fixed
// order. An index out of range ends it and is noted, as a CHECK of a generated kernel notes one.
const char *const tni_text_index[] = {
    T(typedef struct { m_long count; m_long length; m_long size; m_long index_step; m_long v_step;
                       m_long y_step; int wide; int add; } scattering;
      KERNEL(64) scatter(GLOBAL const int *index, GIVEN shape si, GLOBAL const x_kept *v,
                         GIVEN shape sv, GLOBAL y_kept *y, GIVEN shape sy, GLOBAL m_long *fail,
                         GIVEN scattering s) {
          m_long g = ITEM;
          if (g >= s.count) return;
          m_long at_i = place(&si, g);
          m_long at_v = place(&sv, g);
          m_long at_y = place(&sy, g);
          for (m_long k = 0; k < s.length; k++) {
              m_long p = at_i + k * s.index_step;
              m_long i = s.wide ? ((GLOBAL const m_long *)index)[p] : index[p];
              if (i < -s.size || i >= s.size) {
                  m_check(i, s.size, 0, fail);
                  return;
              }
              GLOBAL y_kept *to = y + at_y + (i < 0 ? i + s.size : i) * s.y_step;
              y_sum u = (y_sum)x_get(v[at_v + k * s.v_step]);
              *to = y_put(s.add ? (y_sum)y_get(*to) + u : u);
          }
      }),
    NULL,
};
