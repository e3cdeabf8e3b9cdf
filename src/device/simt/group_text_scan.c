// Running sums and products, as text. Lines whose elements are neighbours are scanned by groups of
// items, tile by tile; others by one item each, so that neighbouring items read neighbouring
// elements. Long lines are split into chunks: first their totals, then what precedes each chunk,
// then the scan of each chunk from there.
//
// Elements are only ever combined with their neighbours: so a partial product is out of range only
// if some stretch of the line is.
#include "device/simt/group_text.h"

#define T(...) #__VA_ARGS__ "\n"

// clang-format off

// BUSY(n, groups): a kernel whose registers leave room for that many groups on a multiprocessor.
static const char spellings[] =
    "#ifdef __CUDACC__\n"
    "#define BUSY(n, groups) extern \"C\" __global__ void __launch_bounds__(n, groups)\n"
    "#else\n"
    "#define BUSY(n, groups) KERNEL(n)\n"
    "#endif\n";

// The items of a group belong to lines in runs of `width`, a power of two; their eight elements
// each make 1 << shift of a tile. flat: the lines of x follow each other without gaps, as those of
// the result do. The identity of a sum is -0: 0 + -0 is 0, and would lose the sign of a line of
// negative zeros.
static const char params[] =
    T(typedef struct { m_long n; m_long lines; m_long x_step; m_long y_step; m_long chunk;
                       m_long chunks; int width; int shift; int flat; int unused; } scan_params;
      M_FN y_wide combine(y_wide a, y_wide b) { return PRODUCT ? a * b : a + b; }
      M_FN y_wide identity(void) { return PRODUCT ? (y_wide)1 : (y_wide)-0.0f; });

// Returns what precedes an item in its line, from the total of each item's own elements; *all is
// the whole group's, for lines that have all of its items. It works in two levels: one of 16 items
// combines the totals of these 16, eight loads ahead of their use; for longer lines another step
// combines the totals of each 16. A gap after every 16 totals avoids bank conflicts.
static const char items_before[] =
    // Items 0 to 15, one for each 16 totals: each total becomes what precedes it among its line's,
    // and block[] gets what the 16 make together.
    T(M_FN void combine_sixteen(LOCAL_PTR y_wide *total, LOCAL_PTR y_wide *block, int width) {
          y_wide acc = identity();
          total += LOCAL_ID * 17;
          for (int h = 0; h < 16; h += 8) {
              y_wide one[8];
              for (int k = 0; k < 8; k++) one[k] = total[h + k];
              for (int k = 0; k < 8; k++) {
                  if (((h + k) & (width - 1)) == 0) acc = identity();
                  total[h + k] = acc;
                  acc = combine(acc, one[k]);
              }
          }
          block[LOCAL_ID] = acc;
      }
      // Items 0 to 15 again: ahead[] gets what precedes each 16 totals in their line, and ahead[16]
      // the whole group's.
      M_FN void combine_blocks(LOCAL_PTR const y_wide *block, LOCAL_PTR y_wide *ahead, int width) {
          int first = LOCAL_ID & ~(width / 16 - 1);
          y_wide acc = identity();
          for (int k = 0; k < 16; k++)
              if (k >= first && k < LOCAL_ID) acc = combine(acc, block[k]);
          ahead[LOCAL_ID] = acc;
          if (LOCAL_ID == 15) ahead[16] = combine(acc, block[15]);
      }
      M_FN y_wide items_before(LOCAL_PTR y_wide *total, LOCAL_PTR y_wide *block, y_wide own,
                               int width, y_wide *all) {
          int at = LOCAL_ID + LOCAL_ID / 16;
          total[at] = own;
          BARRIER();
          if (LOCAL_ID < 16) combine_sixteen(total, block, width);
          BARRIER();
          *all = identity();
          if (width <= 16) return total[at];
          if (LOCAL_ID < 16) combine_blocks(block, block + 16, width);
          BARRIER();
          *all = block[32];
          return combine(block[16 + LOCAL_ID / 16], total[at]);
      });

// Loading and storing tiles of 2048 elements. In local memory a tile has a gap after every eight,
// so that items, which have eight in a row, use different banks. Offsets within a tile are 32 bits.
static const char rows[] =
    // An item's own eight elements, which stay in registers for the second pass, and their total.
    T(M_FN y_wide get_run(LOCAL_PTR const y_kept *tile, y_kept *v) {
          y_wide acc = identity();
          for (int j = 0; j < 8; j++) v[j] = tile[LOCAL_ID * 9 + j];
          for (int j = 0; j < 8; j++) acc = combine(acc, (y_wide)y_get(v[j]));
          return acc;
      }
      // Loads are strided by 256, so that neighbouring items load neighbouring elements; elements
      // past the end of a line are zeros, which nothing stores. load_apart does the same with an
      // offset for each line.
      M_FN void load_flat(x_kept *v, GLOBAL const x_kept *x, int count, int lines, int shift,
                          int n) {
          for (int j = 0; j < 8; j++) {
              int k = LOCAL_ID + 256 * j;
              int own = k >> shift;
              int i = k & ((1 << shift) - 1);
              v[j] = own < lines && i < count ? x[own * n + i] : (x_kept)0;
          }
      }
      M_FN void load_apart(x_kept *v, GLOBAL const x_kept *x, LOCAL_PTR const m_long *at, int count,
                           int lines, int shift, int x_step) {
          for (int j = 0; j < 8; j++) {
              int k = LOCAL_ID + 256 * j;
              int own = k >> shift;
              int i = k & ((1 << shift) - 1);
              v[j] = own < lines && i < count ? x[at[own] + (m_long)i * x_step] : (x_kept)0;
          }
      }
      M_FN void store_tile(LOCAL_PTR const y_kept *tile, GLOBAL y_kept *y, int count, int lines,
                           int shift, int n) {
          for (int j = 0; j < 8; j++) {
              int k = LOCAL_ID + 256 * j;
              int own = k >> shift;
              int i = k & ((1 << shift) - 1);
              if (own < lines && i < count) y[own * n + i] = tile[k + k / 8];
          }
      });

// Scans rows. The next tile is loaded into registers before the current one is scanned. With
// chunks, groups go from the last chunk to the first: the last one's elements were read last for
// their total, and may still be in the cache.
static const char scan_rows[] =
    T(BUSY(256, 4) scan_rows(GLOBAL const x_kept *x, GIVEN shape sx, GLOBAL y_kept *y, m_long at_y,
                             GLOBAL const y_wide *starts, m_long at_starts, GIVEN scan_params s) {
          LOCAL y_kept tile[2304];
          LOCAL y_wide total[272];
          LOCAL y_wide block[33];
          LOCAL m_long at[256];
          int per = 256 / s.width;
          int chunks = (int)s.chunks;
          int group = chunks > 1 ? (int)s.lines * chunks - 1 - GROUP_ID : GROUP_ID;
          int part = chunks > 1 ? group % chunks : 0;
          m_long line = chunks > 1 ? group / chunks : (m_long)group * per;
          int lines = (int)min_long(per, s.lines - line);
          int step_ = (int)s.x_step;
          m_long first = part * s.chunk;
          m_long left = min_long(s.chunk, s.n - first);
          if (!s.flat && LOCAL_ID < lines) at[LOCAL_ID] = element_offset(&sx, line + LOCAL_ID);
          y_wide carry = identity();
          if (chunks > 1) carry = starts[at_starts + group];
          x += s.flat ? sx.at + line * s.n + first : first * s.x_step;
          y += at_y + line * s.n + first;
          BARRIER();
          x_kept v[8];
          int count = (int)min_long(left, 2048);
          if (s.flat) load_flat(v, x, count, lines, s.shift, (int)s.n);
          else load_apart(v, x, at, count, lines, s.shift, step_);
          // carry: what precedes the tile in its line, or in its chunk's line.
          for (; left > 0; left -= 2048) {
              for (int j = 0; j < 8; j++)
                  tile[LOCAL_ID + 256 * j + (LOCAL_ID + 256 * j) / 8] = (y_kept)v[j];
              BARRIER();
              x += 2048 * s.x_step;
              int next = (int)min_long(left - 2048, 2048);
              if (next > 0 && s.flat) load_flat(v, x, next, 1, 11, 0);
              if (next > 0 && !s.flat) load_apart(v, x, at, next, 1, 11, step_);
              y_kept run[8];
              y_wide all;
              y_wide acc = get_run(tile, run);
              acc = combine(carry, items_before(total, block, acc, s.width, &all));
              carry = combine(carry, all);
              for (int j = 0; j < 8; j++) {
                  acc = combine(acc, (y_wide)y_get(run[j]));
                  tile[LOCAL_ID * 9 + j] = y_put(acc);
              }
              BARRIER();
              store_tile(tile, y, count, lines, s.shift, (int)s.n);
              y += 2048;
              count = next;
          }
      });

// Totals of chunks. A sum may be taken in any fixed order, here without a tile: each item adds
// every 256th element.
static const char row_sums[] =
    T(BUSY(256, 5) row_totals(GLOBAL const x_kept *x, GIVEN shape sx, GLOBAL y_wide *totals,
                              m_long at_totals, GIVEN scan_params s) {
          LOCAL y_wide total[272];
          LOCAL y_wide block[33];
          int chunks = (int)s.chunks;
          m_long first = GROUP_ID % chunks * s.chunk;
          m_long t = LOCAL_ID;
          m_long n = min_long(s.chunk, s.n - first);
          y_wide acc = identity();
          x += element_offset(&sx, GROUP_ID / chunks) + first * s.x_step;
          for (; t + 1792 < n; t += 2048) {
              x_kept v[8];
              for (int j = 0; j < 8; j++) v[j] = x[(t + 256 * j) * s.x_step];
              for (int j = 0; j < 8; j++) acc += (y_wide)x_get(v[j]);
          }
          for (; t < n; t += 256) acc += (y_wide)x_get(x[t * s.x_step]);
          items_before(total, block, acc, 256, &acc);
          if (LOCAL_ID == 0) totals[at_totals + GROUP_ID] = acc;
      });
// A product of neighbours only, as in the scan, which needs the tile.
static const char row_products[] =
    T(KERNEL(256) row_totals(GLOBAL const x_kept *x, GIVEN shape sx, GLOBAL y_wide *totals,
                             m_long at_totals, GIVEN scan_params s) {
          LOCAL y_kept tile[2304];
          LOCAL y_wide total[272];
          LOCAL y_wide block[33];
          m_long first = GROUP_ID % s.chunks * s.chunk;
          m_long end = min_long(first + s.chunk, s.n);
          m_long at = element_offset(&sx, GROUP_ID / s.chunks);
          y_wide all;
          y_wide acc = identity();
          for (m_long t = first; t < end; t += 2048) {
              for (int j = 0; j < 8; j++) {
                  int k = LOCAL_ID + 256 * j;
                  tile[k + k / 8] = t + k < end ? (y_kept)x[at + (t + k) * s.x_step] : y_put(1);
              }
              BARRIER();
              y_kept run[8];
              items_before(total, block, get_run(tile, run), 256, &all);
              acc = combine(acc, all);
          }
          if (LOCAL_ID == 0) totals[at_totals + GROUP_ID] = acc;
      });

// Turns totals into what precedes them, in place: a group per line, and a stretch of its chunks per
// item.
static const char starts[] =
    T(KERNEL(256) scan_starts(GLOBAL y_wide *totals, m_long at_totals, m_long line_step,
                              m_long chunk_step, m_long chunks) {
          LOCAL y_wide total[272];
          LOCAL y_wide block[33];
          m_long stretch = (chunks + 255) / 256;
          m_long first = min_long(LOCAL_ID * stretch, chunks);
          m_long end = min_long(first + stretch, chunks);
          totals += at_totals + GROUP_ID * line_step;
          y_wide all;
          y_wide acc = identity();
          for (m_long i = first; i < end; i++) acc = combine(acc, totals[i * chunk_step]);
          acc = items_before(total, block, acc, 256, &all);
          for (m_long i = first; i < end; i++) {
              y_wide one = totals[i * chunk_step];
              totals[i * chunk_step] = acc;
              acc = combine(acc, one);
          }
      });

// One item per chunk of a line, next to the items of the same chunk of other lines. Eight loads are
// in flight ahead of the stores that need them.
static const char columns[] =
    T(KERNEL(64) column_totals(GLOBAL const x_kept *x, GIVEN shape sx, GLOBAL y_wide *totals,
                               m_long at_totals, GIVEN scan_params s) {
          m_long g = ITEM;
          if (g >= s.lines * s.chunks) return;
          m_long part = g / s.lines;
          m_long left = min_long(s.chunk, s.n - part * s.chunk);
          x += element_offset(&sx, g - part * s.lines) + part * s.chunk * s.x_step;
          y_wide acc = identity();
          for (; left >= 8; left -= 8) {
              x_kept v[8];
              for (int j = 0; j < 8; j++, x += s.x_step) v[j] = *x;
              for (int j = 0; j < 8; j++) acc = combine(acc, (y_wide)x_get(v[j]));
          }
          for (; left > 0; left--, x += s.x_step) acc = combine(acc, (y_wide)x_get(*x));
          totals[at_totals + g] = acc;
      }
      KERNEL(64) scan_columns(GLOBAL const x_kept *x, GIVEN shape sx, GLOBAL y_kept *y,
                              GIVEN shape sy, GLOBAL const y_wide *starts, m_long at_starts,
                              GIVEN scan_params s) {
          m_long g = ITEM;
          if (g >= s.lines * s.chunks) return;
          m_long part = g / s.lines;
          m_long line = g - part * s.lines;
          m_long left = min_long(s.chunk, s.n - part * s.chunk);
          x += element_offset(&sx, line) + part * s.chunk * s.x_step;
          y += element_offset(&sy, line) + part * s.chunk * s.y_step;
          y_wide acc = s.chunks > 1 ? starts[at_starts + g] : identity();
          for (; left >= 8; left -= 8) {
              x_kept v[8];
              for (int j = 0; j < 8; j++, x += s.x_step) v[j] = *x;
              for (int j = 0; j < 8; j++, y += s.y_step) {
                  acc = combine(acc, (y_wide)x_get(v[j]));
                  *y = y_put(acc);
              }
          }
          for (; left > 0; left--, x += s.x_step, y += s.y_step) {
              acc = combine(acc, (y_wide)x_get(*x));
              *y = y_put(acc);
          }
      });

const char *const tni_text_cumsum[] = {
    "#define PRODUCT 0\n", spellings, params, items_before, rows, scan_rows, row_sums,
    starts, columns, NULL,
};
const char *const tni_text_cumprod[] = {
    "#define PRODUCT 1\n", spellings, params, items_before, rows, scan_rows, row_products,
    starts, columns, NULL,
};
