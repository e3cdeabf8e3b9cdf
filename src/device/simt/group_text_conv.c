// Convolution and its gradients, as text: implicit matrix products, whose operands are gathered
// from the images tile by tile and never unfolded in memory, and kernels with one item per element
// if a group has very few channels.
//
// The forward pass and the gradient for x are the same product. A row is a position in the images
// of the result, a column one of its channels, and the depth runs over the channels and taps that
// are summed:
//
//     y[image, position, column] = sum over (channel, tap) of x[image, position * stride + tap, channel] * w[...]
//
// In the gradient for x only some taps meet a row, and which do depends on the row modulo the
// stride. So the rows of each residue are a product of their own, with those taps alone and no test
// for the others. The gradient for w has the channels of y as rows, channels of x and taps as
// columns, and positions as depth.
//
// If there are few tiles, the depth is split into chunks, whose sums another kernel adds in order.
// A tile is computed as usual: both operands of DEEP of the depth in local memory, double-buffered,
// and RM x RN sums in registers per item.
//
// Images have two axes of places, height and width (1 and 2 of the parameters), or three, with a
// depth before them (0): each text exists for both, so that two axes pay nothing for the third.
// What only three have stands in IF_3D.
#include "device/simt/group_text.h"

#define T(...) #__VA_ARGS__ "\n"

// clang-format off

// INDEX is the type of offsets and coordinates, 32 bits if everything fits (needs_64_bits in
// group_conv.c); UINDEX is the same without a sign. OUTSIDE is a coordinate that is outside of any
// image whatever is added to it.
#define NARROW "#define INDEX int\n#define UINDEX m_uint\n#define OUTSIDE (-1073741824)\n"
#define WIDE \
    "#define INDEX m_long\n#define UINDEX m_ulong\n#define OUTSIDE (-((m_long)1 << 60))\n"

// IF_3D(a) is a with three axes and nothing with two, PICK_3D(a, b) a or b.
#define FLAT  "#define IF_3D(a)\n#define PICK_3D(a, b) b\n#define POS_ALIGN 16\n"
#define SOLID "#define IF_3D(a) a\n#define PICK_3D(a, b) a\n#define POS_ALIGN 8\n"

// A group of 256 items computes a tile of TM rows by TN columns, an item RM by RN of it, DEEP of
// the depth at a time; f64 has half the depth, since its tiles take twice the local memory. EACH_A,
// EACH_B: elements that an item loads of either operand.
#define TILE(rows, columns)                                                                       \
    "#define RM " #rows "\n#define RN " #columns "\n#define TM (RM * 16)\n#define TN (RN * 16)\n" \
    "#define DEEP_f 16\n#define DEEP_d 8\n"     \
    "#define DEEP CAT(DEEP_, X_IN)\n"                                                            \
    "#define UNROLL _Pragma(\"unroll\")\n"                                                     \
    "#define EACH_A ((TM * DEEP + 255) / 256)\n#define EACH_B ((TN * DEEP + 255) / 256)\n"

// ---- what all share ----------------------------------------------------------------------------

// The parameters; conv_params.def explains the fields.
static const char conv_params[] =
    "typedef struct {"
#define LONG(name) " m_long " #name ";"
#define AXES(name) " m_long " #name "[3];"
#define INT(name)  " int " #name ";"
#include "device/simt/conv_params.def"
    " } conv_params;\n";

// How rows and taps of one axis meet, for one residue: row r and tap t meet in x at r * row_mul +
// row_offset + t * tap_mul. The tap is first_tap + t * tap_stride of w, and the row is position r *
// y_mul + y_add of y. A kernel has such maps as map[]; EACH(taps) lists a field of all axes,
// ALL(taps) is their product.
static const char axis_map[] =
    "#define EACH(field) PICK_3D(map[0].field, 1), map[1].field, map[2].field\n"
    "#define ALL(field) (IF_3D(map[0].field *) map[1].field * map[2].field)\n"
    T(typedef struct { INDEX row_mul; INDEX row_offset; INDEX tap_mul; INDEX first_tap;
                       INDEX tap_stride; INDEX taps; INDEX y_mul; INDEX y_add;
                       INDEX rows; } axis_map;
      // In the gradient for x the first tap that meets the residue is searched for: the division by
      // the stride must have no remainder. If no tap does, taps is 0, and such rows are zeros.
      M_FN axis_map axis_map_of(const conv_params *o, int a, INDEX residue) {
          axis_map v;
          INDEX s = (INDEX)o->stride[a];
          INDEX t = (INDEX)o->taps[a];
          INDEX at = residue + (INDEX)o->padding[a];
          INDEX i = 0;
          if (!o->is_dgrad) {
              v.row_mul = s; v.row_offset = -(INDEX)o->padding[a];
              v.tap_mul = (INDEX)o->dilation[a];
              v.first_tap = 0; v.tap_stride = 1; v.taps = t;
              v.y_mul = 1; v.y_add = 0; v.rows = (INDEX)o->y_size[a];
              return v;
          }
          while (i < t && at % s != 0) {
              at -= (INDEX)o->dilation[a];
              i++;
          }
          v.row_mul = 1; v.row_offset = at / s; v.tap_mul = -(INDEX)o->tap_shift[a];
          v.first_tap = i; v.tap_stride = (INDEX)o->tap_stride[a];
          v.taps = i < t ? (t - 1 - i) / v.tap_stride + 1 : 0;
          v.y_mul = s; v.y_add = residue; v.rows = ((INDEX)o->y_size[a] - residue - 1) / s + 1;
          return v;
      });

// An index along the axes of places and one more, counted up without division: j innermost, then i,
// d and n. If n is counted in runs of several channels, the others stay the same within a run.
static const char place[] =
    T(typedef struct { INDEX n; INDEX d; INDEX i; INDEX j; } place;
      M_FN place place_at(INDEX k, INDEX run, INDEX D, INDEX I, INDEX J) {
          place p;
          INDEX q = k / run;
          INDEX n = q / J / I;
          p.j = q % J;
          p.i = q / J % I;
          p.d = PICK_3D(n % D, 0);
          p.n = PICK_3D(n / D, n) * run + k % run;
          return p;
      }
      // `by` is less than the whole of an axis, so that each axis carries at most once.
      M_FN void place_advance(place *p, const place *by, INDEX run, INDEX D, INDEX I, INDEX J) {
          p->j += by->j;
          p->i += by->i;
          p->n += by->n;
          IF_3D(p->d += by->d;)
          if (p->j >= J) { p->j -= J; p->i++; }
          if (p->i >= I) { p->i -= I; PICK_3D(p->d++, p->n += run); }
          IF_3D(if (p->d >= D) { p->d -= D; p->n += run; })
      });

// What a row or a tap contributes to an offset and a coordinate in x, so that the two are added per
// element; and its offset in its own tensor: a row's in y, a tap's in w. A row or tap beyond the
// end gets OUTSIDE, and reads zeros. Positions are loaded POS_ALIGN bytes at a time. NVRTC takes a
// struct to be aligned so, and as large as its fields alone: these fill whole pieces, or every
// second element of an array would be misaligned.
static const char operand_pos[] =
    T(typedef struct { INDEX x_offset; INDEX h; INDEX w; INDEX other_offset; IF_3D(INDEX d; INDEX unused;)
      } __attribute__((aligned(POS_ALIGN))) operand_pos;
      typedef char whole_operand_pos[sizeof(operand_pos) % POS_ALIGN ? -1 : 1];
      // Along one axis a: the coordinate in x of a row, its position in y, and the tap in w.
      M_FN INDEX row_at(const axis_map *a, INDEX r) { return r * a->row_mul + a->row_offset; }
      M_FN INDEX y_at(const axis_map *a, INDEX r) { return r * a->y_mul + a->y_add; }
      M_FN INDEX tap_at(const axis_map *a, INDEX t) { return a->first_tap + t * a->tap_stride; }
      M_FN operand_pos row_pos(const conv_params *o, const axis_map *map, place p, int valid) {
          operand_pos s;
          s.h = row_at(&map[1], p.i);
          s.w = row_at(&map[2], p.j);
          s.x_offset = p.n * (INDEX)o->x_image_stride + s.h * (INDEX)o->x_stride[1] +
                       s.w * (INDEX)o->x_stride[2];
          s.other_offset = p.n * (INDEX)o->y_image_stride +
                           y_at(&map[1], p.i) * (INDEX)o->y_stride[1] +
                           y_at(&map[2], p.j) * (INDEX)o->y_stride[2];
          IF_3D(s.d = row_at(&map[0], p.d);
                s.x_offset += s.d * (INDEX)o->x_stride[0];
                s.other_offset += y_at(&map[0], p.d) * (INDEX)o->y_stride[0];)
          if (!valid) s.h = OUTSIDE;
          return s;
      }
      M_FN operand_pos tap_pos(const conv_params *o, const axis_map *map, place p, int valid) {
          operand_pos s;
          s.h = p.i * map[1].tap_mul;
          s.w = p.j * map[2].tap_mul;
          s.x_offset = p.n * (INDEX)o->x_channel_stride + s.h * (INDEX)o->x_stride[1] +
                       s.w * (INDEX)o->x_stride[2];
          s.other_offset = p.n * (INDEX)o->w_channel_stride +
                           tap_at(&map[1], p.i) * (INDEX)o->w_stride[1] +
                           tap_at(&map[2], p.j) * (INDEX)o->w_stride[2];
          IF_3D(s.d = p.d * map[0].tap_mul;
                s.x_offset += s.d * (INDEX)o->x_stride[0];
                s.other_offset += tap_at(&map[0], p.d) * (INDEX)o->w_stride[0];)
          if (!valid || p.n >= (INDEX)o->channels) s.w = OUTSIDE;
          return s;
      });

// Reads x where a row and a tap meet, 0 outside of the image; the unsigned comparison tests both
// ends at once. store_sum writes the result, or a chunk's sum.
static const char gather[] =
    T(M_FN int is_in(const conv_params *o, INDEX d, INDEX h, INDEX w) {
          return (UINDEX)h < (UINDEX)o->x_size[1] && (UINDEX)w < (UINDEX)o->x_size[2] &&
                 PICK_3D((UINDEX)d < (UINDEX)o->x_size[0], 1);
      }
      M_FN x_sum gather(GLOBAL const x_kept *x, const conv_params *o, operand_pos r,
                        operand_pos t) {
          return is_in(o, PICK_3D(r.d + t.d, 0), r.h + t.h, r.w + t.w)
                     ? (x_sum)x_get(x[r.x_offset + t.x_offset])
                     : (x_sum)0;
      }
      M_FN void store_sum(GLOBAL x_kept *y, GLOBAL x_sum *part, const conv_params *o, INDEX chunk,
                          INDEX at, x_sum v) {
          if (o->chunks > 1) part[chunk * (INDEX)o->count + at] = v;
          else y[at] = y_put(v);
      });

// ---- tiles -------------------------------------------------------------------------------------

// Local memory of a tile: both operands twice, the one in use and the next, with a gap of four
// against bank conflicts; the positions of the rows (or, for the gradient for w, of the columns);
// and those of the depth, twice.
static const char memory_by_rows[] =
    T(typedef struct { x_sum a[2][DEEP][TM + 4]; x_sum b[2][DEEP][TN + 4]; operand_pos outer[TM];
                       operand_pos depth[2][DEEP]; } __attribute__((aligned(16))) tile_memory;);
static const char memory_by_columns[] =
    T(typedef struct { x_sum a[2][DEEP][TM + 4]; x_sum b[2][DEEP][TN + 4]; operand_pos outer[TN];
                       operand_pos depth[2][DEEP]; } __attribute__((aligned(16))) tile_memory;);

// A warp's items form 4 rows by 8 columns of the tile, so that its reads of either operand are few
// and broadcast. put_tiles stores what an item loaded, in the order in which it was loaded: along
// rows (columns), or along the depth.
static const char multiply[] =
    T(M_FN int item_across(int lid) { return lid % 8 + lid / 32 % 2 * 8; }
      M_FN int item_down(int lid) { return lid / 8 % 4 + lid / 64 * 4; }
      M_FN void clear(x_sum (*acc)[RN]) {
          for (int i = 0; i < RM; i++)
              for (int j = 0; j < RN; j++) acc[i][j] = 0;
      }
      M_FN void multiply(x_sum (*acc)[RN], LOCAL_PTR const tile_memory *m, int b, int ty, int tx) {
          UNROLL
          for (int c = 0; c < DEEP; c++) {
              x_sum va[RM];
              x_sum vb[RN];
              for (int i = 0; i < RM; i++) va[i] = m->a[b][c][ty * RM + i];
              for (int j = 0; j < RN; j++) vb[j] = m->b[b][c][tx * RN + j];
              for (int i = 0; i < RM; i++)
                  for (int j = 0; j < RN; j++) acc[i][j] = x_fma(va[i], vb[j], acc[i][j]);
          }
      }
      M_FN void put_tiles(LOCAL_PTR tile_memory *m, const conv_params *o, int to, const x_sum *a,
                          const x_sum *b, m_uint lid) {
          for (int q = 0; q < EACH_A; q++) {
              m_uint i = lid + 256 * q;
              if (TM * DEEP % 256 != 0 && i >= TM * DEEP) break;
              if (o->a_along_rows) m->a[to][i / TM][i % TM] = a[q];
              else m->a[to][i % DEEP][i / DEEP] = a[q];
          }
          for (int q = 0; q < EACH_B; q++) {
              m_uint i = lid + 256 * q;
              if (TN * DEEP % 256 != 0 && i >= TN * DEEP) break;
              if (o->b_along_columns) m->b[to][i / TN][i % TN] = b[q];
              else m->b[to][i % DEEP][i / DEEP] = b[q];
          }
      });

// ---- the forward pass and the gradient for x ---------------------------------------------------

// Loads an item's part of the next tiles into registers: A is gathered from x, B is read from w.
// Neighbouring items load neighbouring rows (along_outer) or neighbouring depth, whichever is dense
// in memory; each version is compiled apart.
static const char fetch_conv[] =
    T(M_FN void fetch_a(x_sum *a, GLOBAL const x_kept *x, LOCAL_PTR const tile_memory *m,
                        const conv_params *o, int from, int along_outer, m_uint lid) {
          for (int q = 0; q < EACH_A; q++) {
              m_uint i = lid + 256 * q;
              if (TM * DEEP % 256 != 0 && i >= TM * DEEP) break;
              a[q] = gather(x, o, m->outer[along_outer ? i % TM : i / DEEP],
                            m->depth[from][along_outer ? i / TM : i % DEEP]);
          }
      }
      M_FN void fetch_b(x_sum *b, GLOBAL const x_kept *w, LOCAL_PTR const tile_memory *m,
                        const conv_params *o, int from, int along_outer, INDEX col, m_uint lid) {
          for (int q = 0; q < EACH_B; q++) {
              m_uint i = lid + 256 * q;
              if (TN * DEEP % 256 != 0 && i >= TN * DEEP) break;
              INDEX c = col + (INDEX)(along_outer ? i % TN : i / DEEP);
              operand_pos t = m->depth[from][along_outer ? i / TN : i % DEEP];
              int in = c < (INDEX)o->columns && t.w != OUTSIDE;
              b[q] = in ? (x_sum)x_get(w[c * (INDEX)o->w_column_stride + t.other_offset])
                       : (x_sum)0;
          }
      }
      M_FN void fetch(x_sum *a, x_sum *b, GLOBAL const x_kept *x, GLOBAL const x_kept *w,
                      LOCAL_PTR const tile_memory *m, const conv_params *o, int from, INDEX col,
                      m_uint lid) {
          if (o->a_along_rows) fetch_a(a, x, m, o, from, 1, lid);
          else fetch_a(a, x, m, o, from, 0, lid);
          if (o->b_along_columns) fetch_b(b, w, m, o, from, 1, col, lid);
          else fetch_b(b, w, m, o, from, 0, col, lid);
      });

// Stores the tile. If positions are dense in y, 16 columns at a time go through local memory, so
// that neighbouring items store neighbouring positions; else neighbouring items store neighbouring
// channels directly.
static const char store_conv[] =
    T(M_FN void store_across(GLOBAL x_kept *y, GLOBAL x_sum *part, const conv_params *o,
                             INDEX chunk, x_sum (*acc)[RN], LOCAL_PTR tile_memory *m, INDEX col,
                             m_uint lid) {
          int tx = item_across(lid);
          LOCAL_PTR x_sum *mine = &m->a[tx / DEEP][tx % DEEP][item_down(lid) * RM];
          UNROLL
          for (int j = 0; j < RN; j++) {
              BARRIER();
              for (int i = 0; i < RM; i++) mine[i] = acc[i][j];
              BARRIER();
              for (m_uint i = lid; i < 16 * TM; i += 256) {
                  operand_pos r = m->outer[i % TM];
                  INDEX c = col + (INDEX)(i / TM * RN) + j;
                  x_sum v = m->a[i / TM / DEEP][i / TM % DEEP][i % TM];
                  if (r.h != OUTSIDE && c < (INDEX)o->columns)
                      store_sum(y, part, o, chunk,
                                r.other_offset + c * (INDEX)o->y_channel_stride, v);
              }
          }
      }
      M_FN void store(GLOBAL x_kept *y, GLOBAL x_sum *part, const conv_params *o, INDEX chunk,
                      x_sum (*acc)[RN], LOCAL_PTR const tile_memory *m, INDEX col, int lid) {
          INDEX c = col + item_across(lid) * RN;
          BARRIER();
          for (int i = 0; i < RM; i++) {
              operand_pos r = m->outer[item_down(lid) * RM + i];
              for (int j = 0; j < RN; j++)
                  if (r.h != OUTSIDE && c + j < (INDEX)o->columns)
                      store_sum(y, part, o, chunk,
                                r.other_offset + (c + j) * (INDEX)o->y_channel_stride, acc[i][j]);
          }
      });

// The kernel. A group's number is, from the fastest axis: tile of columns, tile of rows, residues,
// group of channels, chunk. The loop is one round longer than the depth has tiles: each round loads
// the next tile into registers, prepares the positions of the one after, multiplies the current
// one, and stores the loaded one.
static const char conv[] =
    T(KERNEL(256) conv(GLOBAL const x_kept *x, GLOBAL const x_kept *w, GLOBAL x_kept *y,
                       GLOBAL x_sum *part, GIVEN conv_params o) {
          LOCAL tile_memory m;
          x_sum acc[RM][RN];
          x_sum a[EACH_A];
          x_sum b[EACH_B];
          int lid = LOCAL_ID;
          INDEX id = GROUP_ID;
          INDEX tiles = ((INDEX)o.columns + TN - 1) / TN;
          INDEX col = id % tiles * TN;
          id /= tiles;
          INDEX row = id % (INDEX)o.row_tiles * TM;
          id /= (INDEX)o.row_tiles;
          // The maps of the axes for the residues that this group has.
          axis_map map[3];
          map[2] = axis_map_of(&o, 2, id % (INDEX)o.residues[2]);
          id /= (INDEX)o.residues[2];
          map[1] = axis_map_of(&o, 1, id % (INDEX)o.residues[1]);
          id /= (INDEX)o.residues[1];
          IF_3D(map[0] = axis_map_of(&o, 0, id % (INDEX)o.residues[0]);
                id /= (INDEX)o.residues[0];)
          INDEX group = id % (INDEX)o.groups;
          INDEX chunk = id / (INDEX)o.groups;
          INDEX rows = (INDEX)o.images * ALL(rows);
          if (row >= rows) return;
          INDEX runs = ((INDEX)o.channels + (INDEX)o.channel_run - 1) / (INDEX)o.channel_run;
          INDEX end = runs * (INDEX)o.channel_run * ALL(taps);
          INDEX first = chunk * (INDEX)o.chunk;
          INDEX k = first;
          if (k + (INDEX)o.chunk < end) end = k + (INDEX)o.chunk;
          x += o.x_offset + group * (INDEX)o.channels * (INDEX)o.x_channel_stride;
          w += o.w_offset + group * (INDEX)o.w_group_stride;
          y += o.y_offset + group * (INDEX)o.columns * (INDEX)o.y_channel_stride;
          part += o.partial_offset + group * (INDEX)o.columns * (INDEX)o.y_channel_stride;
          place p = { 0, 0, 0, 0 };
          place by = { 0, 0, 0, 0 };
          if (k < end) p = place_at(k + lid, (INDEX)o.channel_run, EACH(taps));
          if (k < end) by = place_at(DEEP, (INDEX)o.channel_run, EACH(taps));
          if (lid < TM)
              m.outer[lid] = row_pos(&o, map, place_at(row + lid, 1, EACH(rows)),
                                row + lid < rows);
          if (lid < DEEP) m.depth[0][lid] = tap_pos(&o, map, p, k + lid < end);
          clear(acc);
          for (int now = 1; k < end + DEEP; now ^= 1) {
              BARRIER();
              if (k < end) fetch(a, b, x, w, &m, &o, now ^ 1, col, lid);
              place_advance(&p, &by, (INDEX)o.channel_run, EACH(taps));
              if (lid < DEEP) m.depth[now][lid] = tap_pos(&o, map, p, k + DEEP + lid < end);
              if (k > first) multiply(acc, &m, now, item_down(lid), item_across(lid));
              if (k < end) put_tiles(&m, &o, now ^ 1, a, b, lid);
              k += DEEP;
          }
          if (o.y_along_rows) store_across(y, part, &o, chunk, acc, &m, col, lid);
          else store(y, part, &o, chunk, acc, &m, col, lid);
      });

// ---- the gradient for w ------------------------------------------------------------------------

// As fetch_conv: A is read from y, B gathered from x, where the depth's positions are rows and the
// columns taps.
static const char fetch_weights[] =
    T(M_FN void fetch_a(x_sum *a, GLOBAL const x_kept *y, LOCAL_PTR const tile_memory *m,
                        const conv_params *o, int from, int along_outer, INDEX row, m_uint lid) {
          for (int q = 0; q < EACH_A; q++) {
              m_uint i = lid + 256 * q;
              if (TM * DEEP % 256 != 0 && i >= TM * DEEP) break;
              INDEX r = row + (INDEX)(along_outer ? i % TM : i / DEEP);
              operand_pos k = m->depth[from][along_outer ? i / TM : i % DEEP];
              int in = r < (INDEX)o->out_channels && k.h != OUTSIDE;
              a[q] = in ? (x_sum)x_get(y[r * (INDEX)o->y_channel_stride + k.other_offset])
                       : (x_sum)0;
          }
      }
      M_FN void fetch_b(x_sum *b, GLOBAL const x_kept *x, LOCAL_PTR const tile_memory *m,
                        const conv_params *o, int from, int along_outer, m_uint lid) {
          for (int q = 0; q < EACH_B; q++) {
              m_uint i = lid + 256 * q;
              if (TN * DEEP % 256 != 0 && i >= TN * DEEP) break;
              b[q] = gather(x, o, m->depth[from][along_outer ? i / TN : i % DEEP],
                            m->outer[along_outer ? i % TN : i / DEEP]);
          }
      }
      M_FN void fetch(x_sum *a, x_sum *b, GLOBAL const x_kept *x, GLOBAL const x_kept *y,
                      LOCAL_PTR const tile_memory *m, const conv_params *o, int from, INDEX row,
                      m_uint lid) {
          if (o->a_along_rows) fetch_a(a, y, m, o, from, 1, row, lid);
          else fetch_a(a, y, m, o, from, 0, row, lid);
          if (o->b_along_columns) fetch_b(b, x, m, o, from, 1, lid);
          else fetch_b(b, x, m, o, from, 0, lid);
      });

// The kernel for the gradient for w, with the same loop over positions.
static const char conv_weights[] =
    T(M_FN void store(GLOBAL x_kept *w, GLOBAL x_sum *part, const conv_params *o, INDEX chunk,
                      x_sum (*acc)[RN], LOCAL_PTR const tile_memory *m, INDEX row, int lid) {
          INDEX r = row + item_down(lid) * RM;
          BARRIER();
          for (int j = 0; j < RN; j++) {
              operand_pos t = m->outer[item_across(lid) * RN + j];
              for (int i = 0; i < RM; i++)
                  if (t.w != OUTSIDE && r + i < (INDEX)o->out_channels)
                      store_sum(w, part, o, chunk, (r + i) * (INDEX)o->w_column_stride +
                                t.other_offset, acc[i][j]);
          }
      }
      KERNEL(256) conv_weights(GLOBAL const x_kept *x, GLOBAL x_kept *w, GLOBAL const x_kept *y,
                               GLOBAL x_sum *part, GIVEN conv_params o) {
          LOCAL tile_memory m;
          x_sum acc[RM][RN];
          x_sum a[EACH_A];
          x_sum b[EACH_B];
          int lid = LOCAL_ID;
          INDEX id = GROUP_ID;
          INDEX tiles = ((INDEX)o.columns + TN - 1) / TN;
          INDEX col = id % tiles * TN;
          id /= tiles;
          INDEX row = id % (INDEX)o.row_tiles * TM;
          id /= (INDEX)o.row_tiles;
          INDEX group = id % (INDEX)o.groups;
          INDEX chunk = id / (INDEX)o.groups;
          axis_map map[3];
          map[2] = axis_map_of(&o, 2, 0);
          map[1] = axis_map_of(&o, 1, 0);
          IF_3D(map[0] = axis_map_of(&o, 0, 0);)
          INDEX end = (INDEX)o.images * ALL(rows);
          INDEX first = chunk * (INDEX)o.chunk;
          INDEX k = first;
          if (k + (INDEX)o.chunk < end) end = k + (INDEX)o.chunk;
          x += o.x_offset + group * (INDEX)o.channels * (INDEX)o.x_channel_stride;
          y += o.y_offset + group * (INDEX)o.out_channels * (INDEX)o.y_channel_stride;
          w += o.w_offset + group * (INDEX)o.w_group_stride;
          part += o.partial_offset + group * (INDEX)o.w_group_stride;
          place p = place_at(k + lid, 1, EACH(rows));
          place by = place_at(DEEP, 1, EACH(rows));
          if (lid < TN)
              m.outer[lid] = tap_pos(&o, map,
                                     place_at(col + lid, (INDEX)o.channel_run, EACH(taps)),
                                     col + lid < (INDEX)o.columns);
          if (lid < DEEP) m.depth[0][lid] = row_pos(&o, map, p, k + lid < end);
          clear(acc);
          for (int now = 1; k < end + DEEP; now ^= 1) {
              BARRIER();
              if (k < end) fetch(a, b, x, y, &m, &o, now ^ 1, row, lid);
              place_advance(&p, &by, 1, EACH(rows));
              if (lid < DEEP) m.depth[now][lid] = row_pos(&o, map, p, k + DEEP + lid < end);
              if (k > first) multiply(acc, &m, now, item_down(lid), item_across(lid));
              if (k < end) put_tiles(&m, &o, now ^ 1, a, b, lid);
              k += DEEP;
          }
          store(w, part, &o, chunk, acc, &m, row, lid);
      });

// ---- few channels a group ----------------------------------------------------------------------

// One item computes one element of the result.
static const char conv_direct[] =
    T(KERNEL(64) conv_direct(GLOBAL const x_kept *x, GLOBAL const x_kept *w, GLOBAL x_kept *y,
                             GLOBAL x_sum *part, GIVEN conv_params o) {
          if (ITEM >= o.count) return;
          INDEX item = (INDEX)ITEM;
          INDEX C = (INDEX)o.groups * (INDEX)o.columns;
          INDEX D = (INDEX)o.y_size[0];
          INDEX H = (INDEX)o.y_size[1];
          INDEX W = (INDEX)o.y_size[2];
          INDEX chan = o.channels_last ? item % C : item / W / H / PICK_3D(D, 1) % C;
          place p = place_at(o.channels_last ? item / C : item, 1, D, H, W);
          axis_map map[3];
          map[1] = axis_map_of(&o, 1, p.i % (INDEX)o.residues[1]);
          map[2] = axis_map_of(&o, 2, p.j % (INDEX)o.residues[2]);
          IF_3D(map[0] = axis_map_of(&o, 0, p.d % (INDEX)o.residues[0]);)
          INDEX d = PICK_3D(row_at(&map[0], p.d / (INDEX)o.residues[0]), 0);
          INDEX h = row_at(&map[1], p.i / (INDEX)o.residues[1]);
          INDEX v = row_at(&map[2], p.j / (INDEX)o.residues[2]);
          INDEX group = chan / (INDEX)o.columns;
          x += o.x_offset + (o.channels_last ? p.n : p.n / C) * (INDEX)o.x_image_stride +
               group * (INDEX)o.channels * (INDEX)o.x_channel_stride;
          w += o.w_offset + group * (INDEX)o.w_group_stride +
               chan % (INDEX)o.columns * (INDEX)o.w_column_stride;
          x_sum sum = 0;
          for (INDEX c = 0; c < (INDEX)o.channels; c++) {
              IF_3D(for (INDEX r = 0; r < map[0].taps; r++))
              for (INDEX s = 0; s < map[1].taps; s++)
                  for (INDEX t = 0; t < map[2].taps; t++) {
                      INDEX dr = PICK_3D(d + r * map[0].tap_mul, 0);
                      INDEX hs = h + s * map[1].tap_mul;
                      INDEX vt = v + t * map[2].tap_mul;
                      if (is_in(&o, dr, hs, vt))
                          sum = x_fma((x_sum)x_get(x[c * (INDEX)o.x_channel_stride +
                                                     IF_3D(dr * (INDEX)o.x_stride[0] +)
                                                     hs * (INDEX)o.x_stride[1] +
                                                     vt * (INDEX)o.x_stride[2]]),
                                      (x_sum)x_get(w[c * (INDEX)o.w_channel_stride +
                                                     IF_3D(tap_at(&map[0], r) *
                                                           (INDEX)o.w_stride[0] +)
                                                     tap_at(&map[1], s) * (INDEX)o.w_stride[1] +
                                                     tap_at(&map[2], t) * (INDEX)o.w_stride[2]]),
                                      sum);
                  }
          }
          y[o.y_offset + item] = y_put(sum);
      });

// Sums positions `first`, `first + by` and so on of a chunk, for one element of w: output channel
// out, and the tap `at` of the group's channel at.n.
static const char sum_places[] =
    T(M_FN x_sum sum_places(GLOBAL const x_kept *x, GLOBAL const x_kept *y, const conv_params *o,
                            INDEX chunk, INDEX first, INDEX by, INDEX out, place tap) {
          INDEX D = (INDEX)o->y_size[0];
          INDEX H = (INDEX)o->y_size[1];
          INDEX W = (INDEX)o->y_size[2];
          INDEX end = (INDEX)o->images * PICK_3D(D, 1) * H * W;
          INDEX p = chunk * (INDEX)o->chunk;
          if (p + (INDEX)o->chunk < end) end = p + (INDEX)o->chunk;
          p += first;
          place at = place_at(p, 1, D, H, W);
          place on = place_at(by, 1, D, H, W);
          INDEX d0 = PICK_3D(tap.d * (INDEX)o->dilation[0] - (INDEX)o->padding[0], 0);
          INDEX h0 = tap.i * (INDEX)o->dilation[1] - (INDEX)o->padding[1];
          INDEX v0 = tap.j * (INDEX)o->dilation[2] - (INDEX)o->padding[2];
          x += o->x_offset + (out / (INDEX)o->out_channels * (INDEX)o->channels + tap.n) *
                             (INDEX)o->x_channel_stride;
          y += o->y_offset + out * (INDEX)o->y_channel_stride;
          x_sum sum = 0;
          for (; p < end; p += by) {
              INDEX d = PICK_3D(at.d * (INDEX)o->stride[0] + d0, 0);
              INDEX h = at.i * (INDEX)o->stride[1] + h0;
              INDEX v = at.j * (INDEX)o->stride[2] + v0;
              if (is_in(o, d, h, v))
                  sum = x_fma((x_sum)x_get(x[at.n * (INDEX)o->x_image_stride +
                                             IF_3D(d * (INDEX)o->x_stride[0] +)
                                             h * (INDEX)o->x_stride[1] +
                                             v * (INDEX)o->x_stride[2]]),
                              (x_sum)x_get(y[at.n * (INDEX)o->y_image_stride +
                                             IF_3D(at.d * (INDEX)o->y_stride[0] +)
                                             at.i * (INDEX)o->y_stride[1] +
                                             at.j * (INDEX)o->y_stride[2]]), sum);
              place_advance(&at, &on, 1, D, H, W);
          }
          return sum;
      });

// A group of 64 sums one element of w together, and adds its partial sums in a tree; with channels
// last, each item sums one of 64 elements of the same tap, so that neighbouring items read
// neighbouring channels.
static const char weights_direct[] =
    T(KERNEL(64) weights_direct(GLOBAL const x_kept *x, GLOBAL x_kept *w, GLOBAL const x_kept *y,
                                GLOBAL x_sum *part, GIVEN conv_params o) {
          LOCAL x_sum sums[64];
          int lid = LOCAL_ID;
          INDEX id = GROUP_ID;
          INDEX e = id % (INDEX)o.count;
          INDEX chunk = id / (INDEX)o.count;
          place tap = place_at(e, 1, (INDEX)o.taps[0], (INDEX)o.taps[1], (INDEX)o.taps[2]);
          INDEX out = tap.n / (INDEX)o.channels;
          tap.n %= (INDEX)o.channels;
          sums[lid] = sum_places(x, y, &o, chunk, lid, 64, out, tap);
          for (int h = 32; h > 0; h /= 2) {
              BARRIER();
              if (lid < h) sums[lid] += sums[lid + h];
          }
          if (lid == 0) store_sum(w + o.w_offset, part + o.partial_offset, &o, chunk, e, sums[0]);
      }
      KERNEL(64) weights_direct_last(GLOBAL const x_kept *x, GLOBAL x_kept *w,
                                     GLOBAL const x_kept *y, GLOBAL x_sum *part,
                                     GIVEN conv_params o) {
          INDEX tiles = ((INDEX)o.count + 63) / 64;
          INDEX id = GROUP_ID;
          INDEX e = id % tiles * 64 + LOCAL_ID;
          INDEX chunk = id / tiles;
          INDEX out_channels = (INDEX)o.groups * (INDEX)o.out_channels;
          if (e >= (INDEX)o.count) return;
          INDEX out = e % out_channels;
          INDEX t = e / out_channels;
          place tap = place_at(t, 1, (INDEX)o.taps[0], (INDEX)o.taps[1], (INDEX)o.taps[2]);
          x_sum sum = sum_places(x, y, &o, chunk, 0, 1, out, tap);
          store_sum(w + o.w_offset, part + o.partial_offset, &o, chunk,
                    out * (INDEX)o.w_column_stride + t, sum);
      });

// ---- chunks ------------------------------------------------------------------------------------

// Adds the sums of chunks: add_lanes items per element add every add_lanes-th chunk in order, then
// each other's in a tree.
static const char conv_add[] =
    T(KERNEL(256) conv_add(GLOBAL x_kept *y, GLOBAL const x_sum *part, GIVEN conv_params o) {
          LOCAL x_sum sums[256];
          int lid = LOCAL_ID;
          int lanes = (int)o.add_lanes;
          int wide = 256 / lanes;
          INDEX e = (INDEX)GROUP_ID * wide + lid % wide;
          x_sum sum = 0;
          part += o.partial_offset;
          for (INDEX c = lid / wide; e < (INDEX)o.count && c < (INDEX)o.chunks; c += lanes)
              sum += part[c * (INDEX)o.count + e];
          sums[lid] = sum;
          for (int h = lanes / 2; h > 0; h /= 2) {
              BARRIER();
              if (lid < h * wide) sums[lid] += sums[lid + h * wide];
          }
          if (lid < wide && e < (INDEX)o.count) y[o.y_offset + e] = y_put(sums[lid]);
      });

// ---- the texts ---------------------------------------------------------------------------------

#define SHARED conv_params, axis_map, place, operand_pos, gather
// The programs: the number of axes and the width of offsets, rows and columns of an item, and the
// pieces above.
#define CONV(index, rows, columns)                                                       \
    {                                                                                    \
        index TILE(rows, columns), SHARED, memory_by_rows, multiply, fetch_conv, store_conv, \
            conv, NULL                                                                   \
    }
#define WEIGHTS(index, rows, columns)                                                    \
    {                                                                                    \
        index TILE(rows, columns), SHARED, memory_by_columns, multiply, fetch_weights,   \
            conv_weights, NULL                                                           \
    }
#define FEW(index) { index, SHARED, conv_direct, sum_places, weights_direct, conv_add, NULL }

const char *const tni_text_conv_16[]   = CONV(FLAT NARROW, 8, 1);
const char *const tni_text_conv_32[]   = CONV(FLAT NARROW, 8, 2);
const char *const tni_text_conv_64[]   = CONV(FLAT NARROW, 8, 4);
const char *const tni_text_conv_wide[] = CONV(FLAT WIDE, 8, 4);

const char *const tni_text_weights_16[]   = WEIGHTS(FLAT NARROW, 1, 4);
const char *const tni_text_weights_64[]   = WEIGHTS(FLAT NARROW, 4, 4);
const char *const tni_text_weights_128[]  = WEIGHTS(FLAT NARROW, 8, 4);
const char *const tni_text_weights_wide[] = WEIGHTS(FLAT WIDE, 4, 4);

const char *const tni_text_conv_few[]      = FEW(FLAT NARROW);
const char *const tni_text_conv_few_wide[] = FEW(FLAT WIDE);

const char *const tni_text_conv3d_16[]   = CONV(SOLID NARROW, 8, 1);
const char *const tni_text_conv3d_32[]   = CONV(SOLID NARROW, 8, 2);
const char *const tni_text_conv3d_64[]   = CONV(SOLID NARROW, 8, 4);
const char *const tni_text_conv3d_wide[] = CONV(SOLID WIDE, 8, 4);

const char *const tni_text_weights3d_16[]   = WEIGHTS(SOLID NARROW, 1, 4);
const char *const tni_text_weights3d_64[]   = WEIGHTS(SOLID NARROW, 4, 4);
const char *const tni_text_weights3d_128[]  = WEIGHTS(SOLID NARROW, 8, 4);
const char *const tni_text_weights3d_wide[] = WEIGHTS(SOLID WIDE, 4, 4);

const char *const tni_text_conv3d_few[]      = FEW(SOLID NARROW);
const char *const tni_text_conv3d_few_wide[] = FEW(SOLID WIDE);
