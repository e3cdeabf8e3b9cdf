// Places of extrema, as text. Lines along which elements are neighbours are taken by as many items
// as they are worth, of others each by one item, beside the items of the neighbouring lines. Long
// lines are cut into chunks, whose places are compared by another kernel.
#include "device/simt/group_text.h"

#define T(...) #__VA_ARGS__ "\n"

// clang-format off

const char *const tni_text_extremum[] = {
    // Items of a group are a line's in runs of width, 1 << shift. Places of chunks stand line_step
    // and chunk_step apart.
    T(typedef struct { m_long n; m_long lines; m_long chunk; m_long chunks; m_long line_step;
                       m_long chunk_step; int shift; int lowest; } picking;
      M_FN int beats(x_type a, x_type b, int lowest) {
          if (a != a || b != b) return b == b;
          return lowest ? a < b : a > b;
      }
      M_FN m_long offset(const shape *folded, m_long i) {
          return folded->rank > 1 ? place(folded, i) : folded->at + i * folded->stride[0];
      }),
    // The best of the items of a line, the first of equals; the first item has it in the end.
    T(M_FN m_long best_item(LOCAL_PTR x_type *best, LOCAL_PTR m_long *where_, x_type v, m_long k,
                            int width, int lowest) {
          int lid = LOCAL_ID;
          best[lid] = v;
          where_[lid] = k;
          for (int apart = width / 2; apart > 0; apart /= 2) {
              BARRIER();
              if ((lid & (width - 1)) < apart) {
                  x_type u = best[lid + apart];
                  m_long m = where_[lid + apart];
                  if (beats(u, v, lowest) || (!beats(v, u, lowest) && m < k)) {
                      v = u;
                      k = m;
                      best[lid] = v;
                      where_[lid] = k;
                  }
              }
          }
          return k;
      }),
    // Loads go in eights, whose best is found before it is compared with the one so far. What is
    // folded may be several axes; then each place is computed.
    T(M_FN void look_at(x_type u, m_long i, int lowest, x_type *v, m_long *k) {
          if (beats(u, *v, lowest)) {
              *v = u;
              *k = i;
          }
      }
      M_FN m_long look_along(GLOBAL const x_kept *x, m_long i, m_long apart, m_long end,
                             m_long stride, int lowest, x_type *v, m_long *k) {
          for (; i + 7 * apart < end; i += 8 * apart) {
              x_type u[8];
              for (int j = 0; j < 8; j++) u[j] = x_get(x[(i + j * apart) * stride]);
              int best = 0;
              for (int j = 1; j < 8; j++)
                  if (beats(u[j], u[0], lowest)) {
                      u[0] = u[j];
                      best = j;
                  }
              look_at(u[0], i + best * apart, lowest, v, k);
          }
          return i;
      }
      KERNEL(256) arg_rows(GLOBAL const x_kept *x, GIVEN shape kept, GIVEN shape folded,
                           GLOBAL m_long *y, m_long at_y, GIVEN picking s) {
          LOCAL x_type best[256];
          LOCAL m_long where_[256];
          int width = 1 << s.shift;
          int sub = LOCAL_ID & (width - 1);
          int chunks = (int)s.chunks;
          int part = chunks > 1 ? GROUP_ID % chunks : 0;
          m_long group = chunks > 1 ? GROUP_ID / chunks : GROUP_ID;
          m_long line = (group << (8 - s.shift)) + (LOCAL_ID >> s.shift);
          m_long first = part * s.chunk;
          m_long end = least(first + s.chunk, s.n);
          x += place(&kept, least(line, s.lines - 1));
          m_long k = least(first + sub, end - 1);
          x_type v = x_get(x[offset(&folded, k)]);
          m_long i = first + sub;
          if (folded.rank <= 1)
              i = look_along(x + folded.at, i, width, end, folded.stride[0], s.lowest, &v, &k);
          for (; i < end; i += width)
              look_at(x_get(x[offset(&folded, i)]), i, s.lowest, &v, &k);
          k = best_item(best, where_, v, k, width, s.lowest);
          if (sub == 0 && line < s.lines)
              y[at_y + line * s.line_step + part * s.chunk_step] = k;
      }),
    T(KERNEL(64) arg_columns(GLOBAL const x_kept *x, GIVEN shape kept, GIVEN shape folded,
                             GLOBAL m_long *y, m_long at_y, GIVEN picking s) {
          m_long g = ITEM;
          if (g >= s.lines * s.chunks) return;
          m_long part = g / s.lines;
          m_long line = g - part * s.lines;
          m_long k = part * s.chunk;
          m_long end = least(k + s.chunk, s.n);
          m_long stride = folded.stride[0];
          x += place(&kept, line) + folded.at;
          x_type v = x_get(x[k * stride]);
          m_long i = look_along(x, k, 1, end, stride, s.lowest, &v, &k);
          for (; i < end; i++) look_at(x_get(x[i * stride]), i, s.lowest, &v, &k);
          y[at_y + line * s.line_step + part * s.chunk_step] = k;
      }),
    // The best of the places that chunks have.
    T(KERNEL(256) arg_last(GLOBAL const x_kept *x, GIVEN shape kept, GIVEN shape folded,
                           GLOBAL const m_long *list, m_long at_list, GLOBAL m_long *y,
                           m_long at_y, GIVEN picking s) {
          LOCAL x_type best[256];
          LOCAL m_long where_[256];
          int width = 1 << s.shift;
          int sub = LOCAL_ID & (width - 1);
          m_long line = ((m_long)GROUP_ID << (8 - s.shift)) + (LOCAL_ID >> s.shift);
          m_long own = least(line, s.lines - 1);
          x += place(&kept, own);
          list += at_list + own * s.line_step;
          m_long k = list[least(sub, s.chunks - 1) * s.chunk_step];
          x_type v = x_get(x[offset(&folded, k)]);
          for (m_long i = sub + width; i < s.chunks; i += width) {
              m_long m = list[i * s.chunk_step];
              look_at(x_get(x[offset(&folded, m)]), m, s.lowest, &v, &k);
          }
          k = best_item(best, where_, v, k, width, s.lowest);
          if (sub == 0 && line < s.lines) y[at_y + line] = k;
      }),
    NULL,
};
