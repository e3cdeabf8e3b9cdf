// argsort, as text. An element becomes an unsigned key whose order is the wanted one, NaN the
// largest and both zeros equal. With the element's position it makes a pair; no two pairs are
// equal, so that the order is stable. Blocks of 1024 pairs are sorted in local memory, and sorted
// runs are then merged in pairs: a group merges 1024 places of the result, an item eight of them.
#include "device/simt/group_text.h"

#define T(...) #__VA_ARGS__ "\n"

// clang-format off

const char *const tni_text_sort[] = {
    // The key of a signed integer has its sign bit flipped. A float's bits are ordered like an
    // integer's if they are positive, and backwards if negative, so that those are inverted.
    T(M_FN m_uint key_i(int v) { return (m_uint)v ^ 0x80000000u; }
      // b << 1 drops the sign: above infinity's bits it is NaN, 0 is one of the zeros.
      M_FN m_uint key_f(float v) {
          m_uint b = m_bits_f(v);
          if (b << 1 > 0xff000000u) return 0xffffffffu;
          if (b << 1 == 0) return 0x80000000u;
          return b >> 31 ? ~b : b | 0x80000000u;
      }
      M_FN m_ulong key_u(m_ulong v) { return v; }
      M_FN m_ulong key_l(m_long v) { return (m_ulong)v ^ (m_ulong)1 << 63; }),
    "#ifdef FP64\n",
    T(M_FN m_ulong key_d(double v) {
          m_ulong b = m_bits_d(v);
          if (b << 1 > (m_ulong)0x7ff << 53) return ~(m_ulong)0;
          if (b << 1 == 0) return (m_ulong)1 << 63;
          return b >> 63 ? ~b : b | (m_ulong)1 << 63;
      }),
    "#endif\n"
    "#define wide_key_l 1\n#define wide_key_u 1\n#define wide_key_d 1\n"
    "#define x_key(v) CAT(key_, X_IN)(v)\n"
    "#if CAT(wide_key_, X_IN)\n",
    // Keys of 64 bits need pairs of two words.
    T(typedef struct { m_ulong key; m_ulong at; } pair;
      M_FN pair pair_of(m_ulong key, m_long at, int descending) {
          pair p;
          p.key = descending ? ~key : key;
          p.at = (m_ulong)at;
          return p;
      }
      // Fills places past the end of a line: behind every real pair.
      M_FN pair last_pair(void) {
          pair p;
          p.key = p.at = ~(m_ulong)0;
          return p;
      }
      M_FN int precedes(pair a, pair b) {
          return a.key < b.key || (a.key == b.key && a.at < b.at);
      }
      M_FN m_long index_in(pair p) { return (m_long)p.at; }),
    "#else\n",
    // A key of 32 bits and a position fit in one word, which compares as a pair does.
    T(typedef m_ulong pair;
      M_FN pair pair_of(m_uint key, m_long at, int descending) {
          return (m_ulong)(descending ? ~key : key) << 32 | (m_ulong)at;
      }
      M_FN pair last_pair(void) { return ~(m_ulong)0; }
      M_FN int precedes(pair a, pair b) { return a < b; }
      M_FN m_long index_in(pair p) { return (m_long)(p & 0xffffffffu); }),
    "#endif\n",
    // Pairs in local memory have a gap after every eight, so that items, which have eight each, use
    // different banks.
    T(typedef struct { m_long n; m_long lines; m_long x_step; m_long y_step; m_long blocks;
                       m_long run; int shift; int descending; int is_last; int values;
                     } sort_params;
      M_FN int padded(int k) { return k + k / 8; }
      // Stores an item's eight pairs at their padded places.
      M_FN void put_eight(LOCAL_PTR pair *p, const pair *v) {
          for (int j = 0; j < 8; j++) p[LOCAL_ID * 9 + j] = v[j];
      }),
    // Merge path: of the first n of two sorted runs at a and b together, returns how many are from
    // a, by bisection. So every item finds where its share of a merge begins, and merges eight from
    // there.
    T(M_FN int merge_path(LOCAL_PTR const pair *p, int a, int of_a, int b, int of_b, int n) {
          int lo = n > of_b ? n - of_b : 0;
          int hi = n < of_a ? n : of_a;
          while (lo < hi) {
              int m = (lo + hi) / 2;
              if (precedes(p[padded(a + m)], p[padded(b + n - 1 - m)])) lo = m + 1;
              else hi = m;
          }
          return lo;
      }
      // Merges the eight places from n on of two runs into registers. Reads stay inside of the
      // block: an item may look one place past the end of a run, whose value it then does not use.
      M_FN void merge_eight(LOCAL_PTR const pair *p, int a, int of_a, int b, int of_b, int n,
                            pair *v) {
          int i = merge_path(p, a, of_a, b, of_b, n);
          int end_a = a + of_a;
          int end_b = b + of_b;
          b += n - i;
          a += i;
          pair next_a = p[padded(a < 1023 ? a : 1023)];
          pair next_b = p[padded(b < 1023 ? b : 1023)];
          for (int j = 0; j < 8; j++)
              if (b >= end_b || (a < end_a && precedes(next_a, next_b))) {
                  v[j] = next_a;
                  a++;
                  next_a = p[padded(a < 1023 ? a : 1023)];
              } else {
                  v[j] = next_b;
                  b++;
                  next_b = p[padded(b < 1023 ? b : 1023)];
              }
      }),
    // Sorts a block. An item sorts its own eight by odd-even transposition, in registers; then runs
    // are merged, twice as long each time, until each run is a line's width.
    T(M_FN void sort_tile(LOCAL_PTR pair *p, int width) {
          pair v[8];
          for (int j = 0; j < 8; j++) v[j] = p[LOCAL_ID * 9 + j];
          // eight rounds of odd-even transposition sort eight elements
          for (int turn = 0; turn < 8; turn++)
              for (int j = turn & 1; j < 7; j += 2)
                  if (precedes(v[j + 1], v[j])) {
                      pair u = v[j];
                      v[j] = v[j + 1];
                      v[j + 1] = u;
                  }
          put_eight(p, v);
          for (int run = 8; run < width; run *= 2) {
              BARRIER();
              int n = LOCAL_ID * 8 & (2 * run - 1);
              int a = LOCAL_ID * 8 - n;
              merge_eight(p, a, run, a + run, run, n, v);
              BARRIER();
              put_eight(p, v);
          }
          BARRIER();
      }),
    // A group sorts one block of a line, or several lines of `width` places each, and writes pairs
    // or, if blocks are whole lines, the result.
    T(KERNEL(128) sort_blocks(GLOBAL const x_kept *x, GIVEN shape sx, GLOBAL pair *to,
                              m_long at_to, GLOBAL m_long *y, GIVEN shape sy, GLOBAL x_kept *v,
                              GIVEN shape sv, GIVEN sort_params s) {
          LOCAL pair p[1152];
          int width = 1 << s.shift;
          m_long first = GROUP_ID % s.blocks * 1024;
          m_long line = (GROUP_ID / s.blocks) << (10 - s.shift);
          for (int k = LOCAL_ID; k < 1024; k += 128) {
              m_long own = line + (k >> s.shift);
              m_long i = first + (k & (width - 1));
              p[padded(k)] = last_pair();
              if (own < s.lines && i < s.n)
                  p[padded(k)] = pair_of(x_key(x_get(x[element_offset(&sx, own) + i * s.x_step])),
                                         i, s.descending);
          }
          BARRIER();
          sort_tile(p, width);
          for (int k = LOCAL_ID; k < 1024; k += 128) {
              m_long own = line + (k >> s.shift);
              m_long i = first + (k & (width - 1));
              if (own >= s.lines || i >= s.n) continue;
              if (!s.is_last) to[at_to + own * s.n + i] = p[padded(k)];
              else {
                  m_long at = index_in(p[padded(k)]);
                  y[element_offset(&sy, own) + i * s.y_step] = at;
                  if (s.values)
                      v[element_offset(&sv, own) + i * s.y_step] = x[element_offset(&sx, own) +
                                                                     at * s.x_step];
              }
          }
      }),
    // The same for runs in a buffer, then the kernel of one merge pass. Two items find which parts
    // of the two runs the group's 1024 places come from; those are loaded, merged as in sort_tile,
    // and written as pairs or, in the last pass, as the result.
    T(M_FN m_long merge_path_runs(GLOBAL const pair *a, m_long of_a, GLOBAL const pair *b,
                                m_long of_b, m_long n) {
          m_long lo = n > of_b ? n - of_b : 0;
          m_long hi = min_long(n, of_a);
          while (lo < hi) {
              m_long m = (lo + hi) / 2;
              if (precedes(a[m], b[n - 1 - m])) lo = m + 1;
              else hi = m;
          }
          return lo;
      }
      KERNEL(128) sort_merge(GLOBAL const pair *from, m_long at_from, GLOBAL const x_kept *x,
                             GIVEN shape sx, GLOBAL pair *to, m_long at_to, GLOBAL m_long *y,
                             GIVEN shape sy, GLOBAL x_kept *w, GIVEN shape sw,
                             GIVEN sort_params s) {
          LOCAL pair p[1152];
          LOCAL m_long cut[2];
          int lid = LOCAL_ID;
          m_long line = GROUP_ID / s.blocks;
          m_long first = GROUP_ID % s.blocks * 1024;
          m_long lo = first / (2 * s.run) * 2 * s.run;
          m_long mid = min_long(lo + s.run, s.n);
          m_long end = min_long(mid + s.run, s.n);
          m_long n = min_long(1024, end - first);
          GLOBAL const pair *a = from + at_from + line * s.n + lo;
          GLOBAL const pair *b = from + at_from + line * s.n + mid;
          // Item 0 finds where the group's places begin in the two runs, item 64, of another warp,
          // where they end.
          if (lid % 64 == 0)
              cut[lid / 64] = merge_path_runs(a, mid - lo, b, end - mid,
                                            first - lo + (lid ? n : 0));
          BARRIER();
          int of_a = (int)(cut[1] - cut[0]);
          a += cut[0];
          b += first - lo - cut[0] - of_a;
          for (int k = lid; k < 1024; k += 128) {
              p[padded(k)] = last_pair();
              if (k < n) p[padded(k)] = (k < of_a ? a : b)[k];
          }
          BARRIER();
          pair v[8];
          merge_eight(p, 0, of_a, of_a, 1024 - of_a, lid * 8, v);
          BARRIER();
          put_eight(p, v);
          BARRIER();
          for (int k = lid; k < n; k += 128) {
              m_long i = first + k;
              if (!s.is_last) to[at_to + line * s.n + i] = p[padded(k)];
              else {
                  m_long at = index_in(p[padded(k)]);
                  y[element_offset(&sy, line) + i * s.y_step] = at;
                  if (s.values)
                      w[element_offset(&sw, line) + i * s.y_step] = x[element_offset(&sx, line) +
                                                                      at * s.x_step];
              }
          }
      }),
    NULL,
};
