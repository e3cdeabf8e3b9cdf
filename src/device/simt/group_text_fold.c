// The adjoint of views (fold), scatter and scatter_add, as text.
#include "device/simt/group_text.h"

#define T(...) #__VA_ARGS__ "\n"

// clang-format off

// ---- the adjoint of views ----------------------------------------------------------------------

const char *const tni_text_fold[] = {
    // One item per element j of the base. For each combination of `tap` axes, what is left of j is
    // divided by the strides of the `in` axes, largest first; if nothing remains, the view shows j
    // there. min_long keeps an index inside of its axis, so that a remainder is left if j is beyond
    // the end.
    T(KERNEL(64) fold(GLOBAL const x_kept *x, GLOBAL x_kept *y, m_long at_y, m_long count,
                      GIVEN shape in, GIVEN shape in_x, GIVEN shape tap, GIVEN shape tap_x,
                      m_long taps) {
          m_long j = ITEM;
          if (j >= count) return;
          y_sum sum = 0;
          for (m_long t = 0; t < taps; t++) {
              m_long left = j - element_offset(&tap, t);
              m_long from = element_offset(&tap_x, t);
              if (left < 0) continue;
              for (int k = 0; k < in.rank; k++) {
                  m_long i = min_long(left / in.stride[k], in.size[k] - 1);
                  left -= i * in.stride[k];
                  from += i * in_x.stride[k];
              }
              if (left == 0) sum += (y_sum)x_get(x[from]);
          }
          y[at_y + j] = y_put(sum);
      }),
    NULL,
};

// ---- by index ----------------------------------------------------------------------------------

// An item goes along the indexed axis in order, so that of several writes the last one counts and
// sums have a fixed order. An index out of range ends the line and is reported as a CHECK of a
// generated kernel reports it.
const char *const tni_text_index[] = {
    T(typedef struct { m_long count; m_long length; m_long size; m_long index_step; m_long v_step;
                       m_long y_step; int wide; int add; } scatter_params;
      KERNEL(64) scatter(GLOBAL const int *index, GIVEN shape si, GLOBAL const x_kept *v,
                         GIVEN shape sv, GLOBAL y_kept *y, GIVEN shape sy, GLOBAL m_long *fail,
                         GIVEN scatter_params s) {
          m_long g = ITEM;
          if (g >= s.count) return;
          m_long at_i = element_offset(&si, g);
          m_long at_v = element_offset(&sv, g);
          m_long at_y = element_offset(&sy, g);
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
