// argmax and argmin, as text. A contiguous line is searched by several threads, at most one for
// each element; a strided line by one thread, next to the threads of neighbouring lines. Long lines
// are split into chunks, whose results another kernel compares. Of equal elements the first one
// counts, and a NaN beats everything.
#include "device/simt/group_text.h"

#define T(...) #__VA_ARGS__ "\n"

// clang-format off

const char *const tni_text_extremum[] = {
    // The items of a group belong to lines in runs of `width` = 1 << shift. Results of chunks are
    // line_step and chunk_step apart. beats: whether a replaces b, which it does only if it is
    // better, so that the first of equals stays.
    T(typedef struct { m_long n; m_long lines; m_long chunk; m_long chunks; m_long line_step;
                       m_long chunk_step; int shift; int lowest; } extremum_params;
      M_FN int beats(x_type a, x_type b, int lowest) {
          if (a != a || b != b) return b == b;
          return lowest ? a < b : a > b;
      }
      // The offset of element i of the reduced axes; one axis needs no division.
      M_FN m_long folded_offset(const shape *folded, m_long i) {
          return folded->rank > 1 ? element_offset(folded, i) : folded->at + i * folded->stride[0];
      }),
    // Finds the best of a line's items in a tree: of equal values the smaller index. The first item
    // has the result. All items of the group take part, since they pass barriers together.
    T(M_FN m_long best_item(LOCAL_PTR x_type *best, LOCAL_PTR m_long *where_best, x_type v,
                            m_long k, int width, int lowest) {
          int lid = LOCAL_ID;
          best[lid] = v;
          where_best[lid] = k;
          for (int gap = width / 2; gap > 0; gap /= 2) {
              BARRIER();
              if ((lid & (width - 1)) < gap) {
                  x_type u = best[lid + gap];
                  m_long m = where_best[lid + gap];
                  if (beats(u, v, lowest) || (!beats(v, u, lowest) && m < k)) {
                      v = u;
                      k = m;
                      best[lid] = v;
                      where_best[lid] = k;
                  }
              }
          }
          return k;
      }),
    // Elements are loaded in eights, to have more loads in flight, and the best of eight is found
    // before it is compared with the best so far. If several axes are reduced, each offset is
    // computed by division instead.
    T(M_FN void consider(x_type u, m_long i, int lowest, x_type *v, m_long *k) {
          if (beats(u, *v, lowest)) {
              *v = u;
              *k = i;
          }
      }
      // Considers elements i, i + gap and so on in eights, and returns the first that is left over.
      M_FN m_long consider_strided(GLOBAL const x_kept *x, m_long i, m_long gap, m_long end,
                             m_long stride, int lowest, x_type *v, m_long *k) {
          for (; i + 7 * gap < end; i += 8 * gap) {
              x_type u[8];
              for (int j = 0; j < 8; j++) u[j] = x_get(x[(i + j * gap) * stride]);
              int best = 0;
              for (int j = 1; j < 8; j++)
                  if (beats(u[j], u[0], lowest)) {
                      u[0] = u[j];
                      best = j;
                  }
              consider(u[0], i + best * gap, lowest, v, k);
          }
          return i;
      }
      // Several items per line. Items without a line, or without an element in theirs, repeat the
      // last one, which changes nothing and lets all pass the same barriers.
      KERNEL(256) arg_rows(GLOBAL const x_kept *x, GIVEN shape kept, GIVEN shape folded,
                           GLOBAL m_long *y, m_long at_y, GIVEN extremum_params s) {
          LOCAL x_type best[256];
          LOCAL m_long where_best[256];
          BEGIN();
          int width = 1 << s.shift;
          int sub = LOCAL_ID & (width - 1);
          int chunks = (int)s.chunks;
          int part = chunks > 1 ? GROUP_ID % chunks : 0;
          m_long group = chunks > 1 ? GROUP_ID / chunks : GROUP_ID;
          m_long line = (group << (8 - s.shift)) + (LOCAL_ID >> s.shift);
          m_long first = part * s.chunk;
          m_long end = min_long(first + s.chunk, s.n);
          x += element_offset(&kept, min_long(line, s.lines - 1));
          m_long k = min_long(first + sub, end - 1);
          x_type v = x_get(x[folded_offset(&folded, k)]);
          m_long i = first + sub;
          if (folded.rank <= 1)
              i = consider_strided(x + folded.at, i, width, end, folded.stride[0], s.lowest, &v,
                                   &k);
          for (; i < end; i += width)
              consider(x_get(x[folded_offset(&folded, i)]), i, s.lowest, &v, &k);
          k = best_item(best, where_best, v, k, width, s.lowest);
          if (sub == 0 && line < s.lines)
              y[at_y + line * s.line_step + part * s.chunk_step] = k;
      }),
    // One item per line or chunk.
    T(KERNEL(64) arg_columns(GLOBAL const x_kept *x, GIVEN shape kept, GIVEN shape folded,
                             GLOBAL m_long *y, m_long at_y, GIVEN extremum_params s) {
          m_long g = ITEM;
          BEGIN();
          if (g >= s.lines * s.chunks) return;
          m_long part = g / s.lines;
          m_long line = g - part * s.lines;
          m_long k = part * s.chunk;
          m_long end = min_long(k + s.chunk, s.n);
          m_long stride = folded.stride[0];
          x += element_offset(&kept, line) + folded.at;
          x_type v = x_get(x[k * stride]);
          m_long i = consider_strided(x, k, 1, end, stride, s.lowest, &v, &k);
          for (; i < end; i++) consider(x_get(x[i * stride]), i, s.lowest, &v, &k);
          y[at_y + line * s.line_step + part * s.chunk_step] = k;
      }),
    // Compares the elements at the indices that the chunks found.
    T(KERNEL(256) arg_last(GLOBAL const x_kept *x, GIVEN shape kept, GIVEN shape folded,
                           GLOBAL const m_long *list, m_long at_list, GLOBAL m_long *y,
                           m_long at_y, GIVEN extremum_params s) {
          LOCAL x_type best[256];
          LOCAL m_long where_best[256];
          BEGIN();
          int width = 1 << s.shift;
          int sub = LOCAL_ID & (width - 1);
          m_long line = ((m_long)GROUP_ID << (8 - s.shift)) + (LOCAL_ID >> s.shift);
          m_long own = min_long(line, s.lines - 1);
          x += element_offset(&kept, own);
          list += at_list + own * s.line_step;
          m_long k = list[min_long(sub, s.chunks - 1) * s.chunk_step];
          x_type v = x_get(x[folded_offset(&folded, k)]);
          for (m_long i = sub + width; i < s.chunks; i += width) {
              m_long m = list[i * s.chunk_step];
              consider(x_get(x[folded_offset(&folded, m)]), m, s.lowest, &v, &k);
          }
          k = best_item(best, where_best, v, k, width, s.lowest);
          if (sub == 0 && line < s.lines) y[at_y + line] = k;
      }),
    NULL,
};
