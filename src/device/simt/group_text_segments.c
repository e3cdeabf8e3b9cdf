// scatter_add of whole rows, as text: each index is combined with its position to one number, the
// numbers are sorted, and each run of equal indices is added up by one group, in order. No two
// numbers are equal, so that any sort is stable.
#include "device/simt/group_text.h"

#define T(...) #__VA_ARGS__ "\n"

// clang-format off

const char *const tni_text_segments[] = {
    // n indices into `size` rows of `count` elements each.
    T(typedef struct { m_long n; m_long index_step; m_long size; m_long count; m_long v_step;
                       m_long y_step; int wide; int unused; } segment_params;),
    // Checks the indices and makes pairs: the index above 32 bits of its position. Blocks of 1024
    // are sorted by a bitonic network; what is past the end is the largest number, and goes last.
    T(KERNEL(256) pair_blocks(GLOBAL const int *index, m_long at_index, GLOBAL m_ulong *to,
                              m_long at_to, GLOBAL m_long *fail, GIVEN segment_params s) {
          LOCAL m_ulong p[1024];
          m_long first = (m_long)GROUP_ID * 1024;
          for (int k = LOCAL_ID; k < 1024; k += 256) {
              m_long at = at_index + (first + k) * s.index_step;
              p[k] = ~(m_ulong)0;
              if (first + k >= s.n) continue;
              m_long i = s.wide ? ((GLOBAL const m_long *)index)[at] : index[at];
              p[k] = (m_ulong)m_check(i, s.size, 0, fail) << 32 | (m_ulong)(first + k);
          }
          // Bitonic network: a & run decides the direction, so that two neighbouring runs form a
          // bitonic sequence.
          for (int run = 2; run <= 1024; run *= 2)
              for (int gap = run / 2; gap > 0; gap /= 2) {
                  BARRIER();
                  for (int k = LOCAL_ID; k < 512; k += 256) {
                      int a = k / gap * 2 * gap + k % gap;
                      m_ulong u = p[a];
                      m_ulong v = p[a + gap];
                      if ((u > v) == ((a & run) == 0)) {
                          p[a] = v;
                          p[a + gap] = u;
                      }
                  }
              }
          BARRIER();
          for (int k = LOCAL_ID; k < 1024; k += 256)
              if (first + k < s.n) to[at_to + first + k] = p[k];
      }),
    // Merges sorted runs in pairs: one item per number, which finds by bisection how many of the
    // other run precede it. That plus its place in its own run is its place in the result.
    T(KERNEL(64) pair_merge(GLOBAL const m_ulong *from, m_long at_from, GLOBAL m_ulong *to,
                            m_long at_to, m_long n, m_long run) {
          m_long i = ITEM;
          if (i >= n) return;
          m_long lo = i / (2 * run) * 2 * run;
          m_long mid = min_long(lo + run, n);
          int left = i < mid;
          m_ulong v = from[at_from + i];
          m_long a = left ? mid : lo;
          m_long b = left ? min_long(mid + run, n) : mid;
          m_long first = a;
          while (a < b) {
              m_long m = (a + b) / 2;
              if (from[at_from + m] < v) a = m + 1;
              else b = m;
          }
          to[at_to + (left ? i : lo + i - mid) + a - first] = v;
      }),
    // Returns the end of the run of equal indices that h is in: by steps that double, then by
    // bisection, since most runs are short and some are very long.
    T(M_FN m_long end_of(GLOBAL const m_ulong *p, m_long h, m_long n, m_ulong key) {
          m_long step = 1;
          while (h + step < n && p[h + step] >> 32 == key) step *= 2;
          m_long a = h + step / 2 + 1;
          m_long b = min_long(h + step, n);
          while (a < b) {
              m_long m = (a + b) / 2;
              if (p[m] >> 32 == key) a = m + 1;
              else b = m;
          }
          return b;
      }),
    // A group adds the runs that begin in 16 places, in 1024 columns; a run that begins before them
    // is another group's. The sum starts with the row's own value and is rounded once.
    T(KERNEL(256) add_segments(GLOBAL const m_ulong *p, m_long at_p, GLOBAL const x_kept *v,
                               GIVEN shape sv, GLOBAL y_kept *y, GIVEN shape sy,
                               GIVEN segment_params s) {
          m_long tiles = (s.count + 1023) / 1024;
          m_long column = GROUP_ID % tiles * 1024;
          m_long h = GROUP_ID / tiles * 16;
          m_long last = min_long(h + 16, s.n);
          p += at_p;
          while (h < last) {
              m_ulong key = p[h] >> 32;
              m_long end = end_of(p, h, s.n, key);
              int begins = h == 0 || p[h - 1] >> 32 != key;
              for (int k = LOCAL_ID; begins && k < 1024 && column + k < s.count; k += 256) {
                  m_long at = element_offset(&sv, column + k);
                  GLOBAL y_kept *to = y + element_offset(&sy, column + k) + (m_long)key * s.y_step;
                  y_sum sum = (y_sum)y_get(*to);
                  for (m_long q = h; q < end; q++)
                      sum += (y_sum)x_get(v[at + (m_long)(p[q] & 0xffffffffu) * s.v_step]);
                  *to = y_put(sum);
              }
              h = end;
          }
      }),
    NULL,
};
