// Convolution and its gradients, as text: matrix products whose operands are gathered from the
// images tile by tile, and kernels of one item an element where a group has very few channels.
//
// The forward pass and the gradient for x are one product. A row is a place in the images of the
// result, a column one of its channels, and the depth runs over the channels and taps that are
// summed. In the gradient for x only some taps meet a place, and which do depends on the row modulo
// the stride; so the rows of one remainder, a kind, are a product of their own with those taps
// alone. The gradient for w has the channels of y as rows, channels and taps as columns, and places
// as depth.
//
// Where there are few tiles the depth is cut into chunks, whose sums another kernel adds.
#include "device/simt/group_text.h"

#define T(...) #__VA_ARGS__ "\n"

// clang-format off

// AT counts elements, in 32 bits where all fit; COUNT is AT without a sign. A coordinate of NOWHERE
// leads out of any image.
#define NARROW "#define AT int\n#define COUNT m_uint\n#define NOWHERE (-1073741824)\n"
#define WIDE   "#define AT m_long\n#define COUNT m_ulong\n#define NOWHERE (-((m_long)1 << 60))\n"

// A group of 256 makes a tile of TM rows by TN columns, an item RM by RN of it, DEEP of the depth
// at a time.
#define TILE(rows, cols)                                                                       \
    "#define RM " #rows "\n#define RN " #cols "\n#define TM (RM * 16)\n#define TN (RN * 16)\n" \
    "#define DEEP_f 16\n#define DEEP_d 8\n"     \
    "#define DEEP CAT(DEEP_, X_IN)\n"                                                            \
    "#define UNROLL _Pragma(\"unroll\")\n"                                                     \
    "#define EACH_A ((TM * DEEP + 255) / 256)\n#define EACH_B ((TN * DEEP + 255) / 256)\n"

// ---- what all share ----------------------------------------------------------------------------

// x is what is read where a place and a tap meet; y has an element for each place. In the gradient
// for x these are the gradients for y and for x. chans of x in a group meet cols of the result;
// w_chan and w_col are the steps between them in w. In the gradient for w, outs of y meet cols,
// which are channels of x and taps. Channels are counted in runs, within which taps stay.
static const char how[] =
    T(typedef struct { m_long x_at; m_long w_at; m_long y_at; m_long part_at;
                       m_long images; m_long groups; m_long chans; m_long cols; m_long outs;
                       m_long x_image; m_long x_chan; m_long x_step[2]; m_long x_size[2];
                       m_long y_image; m_long y_chan; m_long y_step[2]; m_long y_size[2];
                       m_long w_group; m_long w_chan; m_long w_col; m_long w_step[2];
                       m_long taps[2]; m_long step[2]; m_long pad[2]; m_long dilation[2];
                       m_long every[2]; m_long apart[2]; m_long kinds[2];
                       m_long run; m_long down; m_long chunk; m_long chunks; m_long count;
                       m_long lanes; int back; int last; int a_across; int b_across; int y_across;
                       int unused; } how;);

// An axis of a kind of rows: row r and tap t meet in x at r * mul + off + t * step. The tap is
// first + t * every of w, the place r * to + from of y.
static const char way[] =
    T(typedef struct { AT mul; AT off; AT step; AT first; AT every; AT taps; AT to; AT from;
                       AT rows; } way;
      M_FN way way_of(const how *o, int a, AT kind) {
          way v;
          AT s = (AT)o->step[a];
          AT t = (AT)o->taps[a];
          AT at = kind + (AT)o->pad[a];
          AT i = 0;
          if (!o->back) {
              v.mul = s; v.off = -(AT)o->pad[a]; v.step = (AT)o->dilation[a];
              v.first = 0; v.every = 1; v.taps = t;
              v.to = 1; v.from = 0; v.rows = (AT)o->y_size[a];
              return v;
          }
          while (i < t && at % s != 0) {
              at -= (AT)o->dilation[a];
              i++;
          }
          v.mul = 1; v.off = at / s; v.step = -(AT)o->apart[a];
          v.first = i; v.every = (AT)o->every[a];
          v.taps = i < t ? (t - 1 - i) / v.every + 1 : 0;
          v.to = s; v.from = kind; v.rows = ((AT)o->y_size[a] - kind - 1) / s + 1;
          return v;
      });

// Counts through an inner, a middle and an outer axis of rows or taps. Where the outer axis is
// counted in runs, the others stay while a run passes.
static const char walk[] =
    T(typedef struct { AT n; AT i; AT j; } walk;
      M_FN walk walk_to(AT k, AT run, AT I, AT J) {
          walk p;
          AT q = k / run;
          p.j = q % J;
          p.i = q / J % I;
          p.n = q / J / I * run + k % run;
          return p;
      }
      M_FN void walk_on(walk *p, const walk *by, AT run, AT I, AT J) {
          p->j += by->j;
          p->i += by->i;
          p->n += by->n;
          if (p->j >= J) { p->j -= J; p->i++; }
          if (p->i >= I) { p->i -= I; p->n += run; }
      });

// A row's or a tap's part of a place in x and of the coordinates there, and its place in the other
// tensor: a row's in y, a tap's in w.
static const char spot[] =
    T(typedef struct { AT at; AT h; AT w; AT other; } __attribute__((aligned(16))) spot;
      M_FN spot row_of(const how *o, const way *a, const way *b, walk p, int is) {
          spot s;
          s.h = p.i * a->mul + a->off;
          s.w = p.j * b->mul + b->off;
          s.at = p.n * (AT)o->x_image + s.h * (AT)o->x_step[0] + s.w * (AT)o->x_step[1];
          s.other = p.n * (AT)o->y_image + (p.i * a->to + a->from) * (AT)o->y_step[0] +
                    (p.j * b->to + b->from) * (AT)o->y_step[1];
          if (!is) s.h = NOWHERE;
          return s;
      }
      M_FN spot tap_of(const how *o, const way *a, const way *b, walk p, int is) {
          spot s;
          s.h = p.i * a->step;
          s.w = p.j * b->step;
          s.at = p.n * (AT)o->x_chan + s.h * (AT)o->x_step[0] + s.w * (AT)o->x_step[1];
          s.other = p.n * (AT)o->w_chan + (a->first + p.i * a->every) * (AT)o->w_step[0] +
                    (b->first + p.j * b->every) * (AT)o->w_step[1];
          if (!is || p.n >= (AT)o->chans) s.w = NOWHERE;
          return s;
      });

static const char gather[] =
    T(M_FN int is_in(const how *o, AT h, AT w) {
          return (COUNT)h < (COUNT)o->x_size[0] && (COUNT)w < (COUNT)o->x_size[1];
      }
      M_FN x_sum gather(GLOBAL const x_kept *x, const how *o, spot r, spot t) {
          return is_in(o, r.h + t.h, r.w + t.w) ? (x_sum)x_get(x[r.at + t.at]) : (x_sum)0;
      }
      M_FN void keep(GLOBAL x_kept *y, GLOBAL x_sum *part, const how *o, AT chunk, AT at,
                     x_sum v) {
          if (o->chunks > 1) part[chunk * (AT)o->count + at] = v;
          else y[at] = y_put(v);
      });

// ---- tiles -------------------------------------------------------------------------------------

// The tiles at hand and the next; what is known of rows or columns, and of the depth of both.
static const char room_of_rows[] =
    T(typedef struct { x_sum a[2][DEEP][TM + 4]; x_sum b[2][DEEP][TN + 4]; spot s[TM];
                       spot k[2][DEEP]; } __attribute__((aligned(16))) room;);
static const char room_of_cols[] =
    T(typedef struct { x_sum a[2][DEEP][TM + 4]; x_sum b[2][DEEP][TN + 4]; spot s[TN];
                       spot k[2][DEEP]; } __attribute__((aligned(16))) room;);

// A warp has 4 items down and 8 across. Items put what they brought along rows and columns, or
// along the depth.
static const char multiply[] =
    T(M_FN int item_across(int lid) { return lid % 8 + lid / 32 % 2 * 8; }
      M_FN int item_down(int lid) { return lid / 8 % 4 + lid / 64 * 4; }
      M_FN void clear(x_sum (*acc)[RN]) {
          for (int i = 0; i < RM; i++)
              for (int j = 0; j < RN; j++) acc[i][j] = 0;
      }
      M_FN void multiply(x_sum (*acc)[RN], LOCAL_PTR const room *m, int b, int ty, int tx) {
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
      M_FN void put_tiles(LOCAL_PTR room *m, const how *o, int to, const x_sum *a, const x_sum *b,
                          m_uint lid) {
          for (int q = 0; q < EACH_A; q++) {
              m_uint i = lid + 256 * q;
              if (TM * DEEP % 256 != 0 && i >= TM * DEEP) break;
              if (o->a_across) m->a[to][i / TM][i % TM] = a[q];
              else m->a[to][i % DEEP][i / DEEP] = a[q];
          }
          for (int q = 0; q < EACH_B; q++) {
              m_uint i = lid + 256 * q;
              if (TN * DEEP % 256 != 0 && i >= TN * DEEP) break;
              if (o->b_across) m->b[to][i / TN][i % TN] = b[q];
              else m->b[to][i % DEEP][i / DEEP] = b[q];
          }
      });

// ---- the forward pass and the gradient for x ---------------------------------------------------

static const char fetch_conv[] =
    T(M_FN void fetch_a(x_sum *a, GLOBAL const x_kept *x, LOCAL_PTR const room *m, const how *o,
                        int from, int across, m_uint lid) {
          for (int q = 0; q < EACH_A; q++) {
              m_uint i = lid + 256 * q;
              if (TM * DEEP % 256 != 0 && i >= TM * DEEP) break;
              a[q] = gather(x, o, m->s[across ? i % TM : i / DEEP],
                            m->k[from][across ? i / TM : i % DEEP]);
          }
      }
      M_FN void fetch_b(x_sum *b, GLOBAL const x_kept *w, LOCAL_PTR const room *m, const how *o,
                        int from, int across, AT col, m_uint lid) {
          for (int q = 0; q < EACH_B; q++) {
              m_uint i = lid + 256 * q;
              if (TN * DEEP % 256 != 0 && i >= TN * DEEP) break;
              AT c = col + (AT)(across ? i % TN : i / DEEP);
              spot t = m->k[from][across ? i / TN : i % DEEP];
              int in = c < (AT)o->cols && t.w != NOWHERE;
              b[q] = in ? (x_sum)x_get(w[c * (AT)o->w_col + t.other]) : (x_sum)0;
          }
      }
      M_FN void fetch(x_sum *a, x_sum *b, GLOBAL const x_kept *x, GLOBAL const x_kept *w,
                      LOCAL_PTR const room *m, const how *o, int from, AT col, m_uint lid) {
          if (o->a_across) fetch_a(a, x, m, o, from, 1, lid);
          else fetch_a(a, x, m, o, from, 0, lid);
          if (o->b_across) fetch_b(b, w, m, o, from, 1, col, lid);
          else fetch_b(b, w, m, o, from, 0, col, lid);
      });

// Where places are dense, 16 columns at a time go through local memory, so that items store along
// places.
static const char store_conv[] =
    T(M_FN void store_across(GLOBAL x_kept *y, GLOBAL x_sum *part, const how *o, AT chunk,
                             x_sum (*acc)[RN], LOCAL_PTR room *m, AT col, m_uint lid) {
          int tx = item_across(lid);
          LOCAL_PTR x_sum *mine = &m->a[tx / DEEP][tx % DEEP][item_down(lid) * RM];
          UNROLL
          for (int j = 0; j < RN; j++) {
              BARRIER();
              for (int i = 0; i < RM; i++) mine[i] = acc[i][j];
              BARRIER();
              for (m_uint i = lid; i < 16 * TM; i += 256) {
                  spot r = m->s[i % TM];
                  AT c = col + (AT)(i / TM * RN) + j;
                  x_sum v = m->a[i / TM / DEEP][i / TM % DEEP][i % TM];
                  if (r.h != NOWHERE && c < (AT)o->cols)
                      keep(y, part, o, chunk, r.other + c * (AT)o->y_chan, v);
              }
          }
      }
      M_FN void store(GLOBAL x_kept *y, GLOBAL x_sum *part, const how *o, AT chunk,
                      x_sum (*acc)[RN], LOCAL_PTR const room *m, AT col, int lid) {
          AT c = col + item_across(lid) * RN;
          BARRIER();
          for (int i = 0; i < RM; i++) {
              spot r = m->s[item_down(lid) * RM + i];
              for (int j = 0; j < RN; j++)
                  if (r.h != NOWHERE && c + j < (AT)o->cols)
                      keep(y, part, o, chunk, r.other + (c + j) * (AT)o->y_chan, acc[i][j]);
          }
      });

static const char conv[] =
    T(KERNEL(256) conv(GLOBAL const x_kept *x, GLOBAL const x_kept *w, GLOBAL x_kept *y,
                       GLOBAL x_sum *part, GIVEN how o) {
          LOCAL room m;
          x_sum acc[RM][RN];
          x_sum a[EACH_A];
          x_sum b[EACH_B];
          int lid = LOCAL_ID;
          AT id = GROUP_ID;
          AT tiles = ((AT)o.cols + TN - 1) / TN;
          AT col = id % tiles * TN;
          id /= tiles;
          AT row = id % (AT)o.down * TM;
          id /= (AT)o.down;
          way across = way_of(&o, 1, id % (AT)o.kinds[1]);
          id /= (AT)o.kinds[1];
          way down = way_of(&o, 0, id % (AT)o.kinds[0]);
          id /= (AT)o.kinds[0];
          AT group = id % (AT)o.groups;
          AT chunk = id / (AT)o.groups;
          AT rows = (AT)o.images * down.rows * across.rows;
          if (row >= rows) return;
          AT runs = ((AT)o.chans + (AT)o.run - 1) / (AT)o.run;
          AT end = runs * (AT)o.run * down.taps * across.taps;
          AT first = chunk * (AT)o.chunk;
          AT k = first;
          if (k + (AT)o.chunk < end) end = k + (AT)o.chunk;
          x += o.x_at + group * (AT)o.chans * (AT)o.x_chan;
          w += o.w_at + group * (AT)o.w_group;
          y += o.y_at + group * (AT)o.cols * (AT)o.y_chan;
          part += o.part_at + group * (AT)o.cols * (AT)o.y_chan;
          walk p = { 0, 0, 0 };
          walk by = { 0, 0, 0 };
          if (k < end) p = walk_to(k + lid, (AT)o.run, down.taps, across.taps);
          if (k < end) by = walk_to(DEEP, (AT)o.run, down.taps, across.taps);
          if (lid < TM)
              m.s[lid] = row_of(&o, &down, &across, walk_to(row + lid, 1, down.rows, across.rows),
                                row + lid < rows);
          if (lid < DEEP) m.k[0][lid] = tap_of(&o, &down, &across, p, k + lid < end);
          clear(acc);
          for (int now = 1; k < end + DEEP; now ^= 1) {
              BARRIER();
              if (k < end) fetch(a, b, x, w, &m, &o, now ^ 1, col, lid);
              walk_on(&p, &by, (AT)o.run, down.taps, across.taps);
              if (lid < DEEP)
                  m.k[now][lid] = tap_of(&o, &down, &across, p, k + DEEP + lid < end);
              if (k > first) multiply(acc, &m, now, item_down(lid), item_across(lid));
              if (k < end) put_tiles(&m, &o, now ^ 1, a, b, lid);
              k += DEEP;
          }
          if (o.y_across) store_across(y, part, &o, chunk, acc, &m, col, lid);
          else store(y, part, &o, chunk, acc, &m, col, lid);
      });

// ---- the gradient for w ------------------------------------------------------------------------

static const char fetch_weights[] =
    T(M_FN void fetch_a(x_sum *a, GLOBAL const x_kept *y, LOCAL_PTR const room *m, const how *o,
                        int from, int across, AT row, m_uint lid) {
          for (int q = 0; q < EACH_A; q++) {
              m_uint i = lid + 256 * q;
              if (TM * DEEP % 256 != 0 && i >= TM * DEEP) break;
              AT r = row + (AT)(across ? i % TM : i / DEEP);
              spot k = m->k[from][across ? i / TM : i % DEEP];
              int in = r < (AT)o->outs && k.h != NOWHERE;
              a[q] = in ? (x_sum)x_get(y[r * (AT)o->y_chan + k.other]) : (x_sum)0;
          }
      }
      M_FN void fetch_b(x_sum *b, GLOBAL const x_kept *x, LOCAL_PTR const room *m, const how *o,
                        int from, int across, m_uint lid) {
          for (int q = 0; q < EACH_B; q++) {
              m_uint i = lid + 256 * q;
              if (TN * DEEP % 256 != 0 && i >= TN * DEEP) break;
              b[q] = gather(x, o, m->k[from][across ? i / TN : i % DEEP],
                            m->s[across ? i % TN : i / DEEP]);
          }
      }
      M_FN void fetch(x_sum *a, x_sum *b, GLOBAL const x_kept *x, GLOBAL const x_kept *y,
                      LOCAL_PTR const room *m, const how *o, int from, AT row, m_uint lid) {
          if (o->a_across) fetch_a(a, y, m, o, from, 1, row, lid);
          else fetch_a(a, y, m, o, from, 0, row, lid);
          if (o->b_across) fetch_b(b, x, m, o, from, 1, lid);
          else fetch_b(b, x, m, o, from, 0, lid);
      });

static const char conv_weights[] =
    T(M_FN void store(GLOBAL x_kept *w, GLOBAL x_sum *part, const how *o, AT chunk,
                      x_sum (*acc)[RN], LOCAL_PTR const room *m, AT row, int lid) {
          AT r = row + item_down(lid) * RM;
          BARRIER();
          for (int j = 0; j < RN; j++) {
              spot t = m->s[item_across(lid) * RN + j];
              for (int i = 0; i < RM; i++)
                  if (t.w != NOWHERE && r + i < (AT)o->outs)
                      keep(w, part, o, chunk, (r + i) * (AT)o->w_col + t.other, acc[i][j]);
          }
      }
      KERNEL(256) conv_weights(GLOBAL const x_kept *x, GLOBAL x_kept *w, GLOBAL const x_kept *y,
                               GLOBAL x_sum *part, GIVEN how o) {
          LOCAL room m;
          x_sum acc[RM][RN];
          x_sum a[EACH_A];
          x_sum b[EACH_B];
          int lid = LOCAL_ID;
          AT id = GROUP_ID;
          AT tiles = ((AT)o.cols + TN - 1) / TN;
          AT col = id % tiles * TN;
          id /= tiles;
          AT row = id % (AT)o.down * TM;
          id /= (AT)o.down;
          AT group = id % (AT)o.groups;
          AT chunk = id / (AT)o.groups;
          way across = way_of(&o, 1, 0);
          way down = way_of(&o, 0, 0);
          AT end = (AT)o.images * down.rows * across.rows;
          AT first = chunk * (AT)o.chunk;
          AT k = first;
          if (k + (AT)o.chunk < end) end = k + (AT)o.chunk;
          x += o.x_at + group * (AT)o.chans * (AT)o.x_chan;
          y += o.y_at + group * (AT)o.outs * (AT)o.y_chan;
          w += o.w_at + group * (AT)o.w_group;
          part += o.part_at + group * (AT)o.w_group;
          walk p = walk_to(k + lid, 1, down.rows, across.rows);
          walk by = walk_to(DEEP, 1, down.rows, across.rows);
          if (lid < TN)
              m.s[lid] = tap_of(&o, &down, &across,
                                walk_to(col + lid, (AT)o.run, down.taps, across.taps),
                                col + lid < (AT)o.cols);
          if (lid < DEEP) m.k[0][lid] = row_of(&o, &down, &across, p, k + lid < end);
          clear(acc);
          for (int now = 1; k < end + DEEP; now ^= 1) {
              BARRIER();
              if (k < end) fetch(a, b, x, y, &m, &o, now ^ 1, row, lid);
              walk_on(&p, &by, 1, down.rows, across.rows);
              if (lid < DEEP)
                  m.k[now][lid] = row_of(&o, &down, &across, p, k + DEEP + lid < end);
              if (k > first) multiply(acc, &m, now, item_down(lid), item_across(lid));
              if (k < end) put_tiles(&m, &o, now ^ 1, a, b, lid);
              k += DEEP;
          }
          store(w, part, &o, chunk, acc, &m, row, lid);
      });

// ---- few channels a group ----------------------------------------------------------------------

// An item makes an element of the result.
static const char conv_direct[] =
    T(KERNEL(64) conv_direct(GLOBAL const x_kept *x, GLOBAL const x_kept *w, GLOBAL x_kept *y,
                             GLOBAL x_sum *part, GIVEN how o) {
          if (ITEM >= o.count) return;
          AT item = (AT)ITEM;
          AT C = (AT)o.groups * (AT)o.cols;
          AT H = (AT)o.y_size[0];
          AT W = (AT)o.y_size[1];
          AT chan = o.last ? item % C : item / W / H % C;
          AT place = o.last ? item / C : item;
          AT j = place % W;
          AT i = place / W % H;
          AT n = o.last ? place / W / H : item / W / H / C;
          way down = way_of(&o, 0, i % (AT)o.kinds[0]);
          way across = way_of(&o, 1, j % (AT)o.kinds[1]);
          AT h = i / (AT)o.kinds[0] * down.mul + down.off;
          AT v = j / (AT)o.kinds[1] * across.mul + across.off;
          AT group = chan / (AT)o.cols;
          x += o.x_at + n * (AT)o.x_image + group * (AT)o.chans * (AT)o.x_chan;
          w += o.w_at + group * (AT)o.w_group + chan % (AT)o.cols * (AT)o.w_col +
               down.first * (AT)o.w_step[0] + across.first * (AT)o.w_step[1];
          x_sum sum = 0;
          for (AT c = 0; c < (AT)o.chans; c++)
              for (AT s = 0; s < down.taps; s++)
                  for (AT t = 0; t < across.taps; t++) {
                      AT hs = h + s * down.step;
                      AT vt = v + t * across.step;
                      if (is_in(&o, hs, vt))
                          sum = x_fma((x_sum)x_get(x[c * (AT)o.x_chan + hs * (AT)o.x_step[0] +
                                                     vt * (AT)o.x_step[1]]),
                                      (x_sum)x_get(w[c * (AT)o.w_chan +
                                                     s * down.every * (AT)o.w_step[0] +
                                                     t * across.every * (AT)o.w_step[1]]), sum);
                  }
          y[o.y_at + item] = y_put(sum);
      });

// The sum of a chunk of places from the first, every by-th of them, for one element of w: output
// channel out, tap (i, j) of the group's channel c.
static const char sum_places[] =
    T(M_FN x_sum sum_places(GLOBAL const x_kept *x, GLOBAL const x_kept *y, const how *o, AT chunk,
                            AT first, AT by, AT out, AT c, AT i, AT j) {
          AT H = (AT)o->y_size[0];
          AT W = (AT)o->y_size[1];
          AT end = (AT)o->images * H * W;
          AT p = chunk * (AT)o->chunk;
          if (p + (AT)o->chunk < end) end = p + (AT)o->chunk;
          p += first;
          walk at = walk_to(p, 1, H, W);
          walk on = walk_to(by, 1, H, W);
          AT h0 = i * (AT)o->dilation[0] - (AT)o->pad[0];
          AT v0 = j * (AT)o->dilation[1] - (AT)o->pad[1];
          x += o->x_at + (out / (AT)o->outs * (AT)o->chans + c) * (AT)o->x_chan;
          y += o->y_at + out * (AT)o->y_chan;
          x_sum sum = 0;
          for (; p < end; p += by) {
              AT h = at.i * (AT)o->step[0] + h0;
              AT v = at.j * (AT)o->step[1] + v0;
              if (is_in(o, h, v))
                  sum = x_fma((x_sum)x_get(x[at.n * (AT)o->x_image + h * (AT)o->x_step[0] +
                                             v * (AT)o->x_step[1]]),
                              (x_sum)x_get(y[at.n * (AT)o->y_image + at.i * (AT)o->y_step[0] +
                                             at.j * (AT)o->y_step[1]]), sum);
              walk_on(&at, &on, 1, H, W);
          }
          return sum;
      });

// A group of 64 makes an element of w together; or, where channels lie last, each item one of 64
// elements of the same tap.
static const char weights_direct[] =
    T(KERNEL(64) weights_direct(GLOBAL const x_kept *x, GLOBAL x_kept *w, GLOBAL const x_kept *y,
                                GLOBAL x_sum *part, GIVEN how o) {
          LOCAL x_sum sums[64];
          int lid = LOCAL_ID;
          AT id = GROUP_ID;
          AT e = id % (AT)o.count;
          AT chunk = id / (AT)o.count;
          AT j = e % (AT)o.taps[1];
          AT i = e / (AT)o.taps[1] % (AT)o.taps[0];
          AT c = e / (AT)o.taps[1] / (AT)o.taps[0] % (AT)o.chans;
          AT out = e / (AT)o.taps[1] / (AT)o.taps[0] / (AT)o.chans;
          sums[lid] = sum_places(x, y, &o, chunk, lid, 64, out, c, i, j);
          for (int h = 32; h > 0; h /= 2) {
              BARRIER();
              if (lid < h) sums[lid] += sums[lid + h];
          }
          if (lid == 0) keep(w + o.w_at, part + o.part_at, &o, chunk, e, sums[0]);
      }
      KERNEL(64) weights_direct_last(GLOBAL const x_kept *x, GLOBAL x_kept *w,
                                     GLOBAL const x_kept *y, GLOBAL x_sum *part, GIVEN how o) {
          AT tiles = ((AT)o.count + 63) / 64;
          AT id = GROUP_ID;
          AT e = id % tiles * 64 + LOCAL_ID;
          AT chunk = id / tiles;
          AT outs = (AT)o.groups * (AT)o.outs;
          if (e >= (AT)o.count) return;
          AT out = e % outs;
          AT t = e / outs;
          AT j = t % (AT)o.taps[1];
          AT i = t / (AT)o.taps[1] % (AT)o.taps[0];
          AT c = t / (AT)o.taps[1] / (AT)o.taps[0];
          x_sum sum = sum_places(x, y, &o, chunk, 0, 1, out, c, i, j);
          keep(w + o.w_at, part + o.part_at, &o, chunk,
               out * (AT)o.w_col + (c * (AT)o.taps[0] + i) * (AT)o.taps[1] + j, sum);
      });

// ---- chunks ------------------------------------------------------------------------------------

// Adds the sums of chunks: so many lanes for each element, then those together.
static const char conv_add[] =
    T(KERNEL(256) conv_add(GLOBAL x_kept *y, GLOBAL const x_sum *part, GIVEN how o) {
          LOCAL x_sum sums[256];
          int lid = LOCAL_ID;
          int lanes = (int)o.lanes;
          int wide = 256 / lanes;
          AT e = (AT)GROUP_ID * wide + lid % wide;
          x_sum sum = 0;
          part += o.part_at;
          for (AT c = lid / wide; e < (AT)o.count && c < (AT)o.chunks; c += lanes)
              sum += part[c * (AT)o.count + e];
          sums[lid] = sum;
          for (int h = lanes / 2; h > 0; h /= 2) {
              BARRIER();
              if (lid < h * wide) sums[lid] += sums[lid + h * wide];
          }
          if (lid < wide && e < (AT)o.count) y[o.y_at + e] = y_put(sums[lid]);
      });

// ---- the texts ---------------------------------------------------------------------------------

#define CONV(places, rows, cols)                                                                   \
    {                                                                                              \
        places TILE(rows, cols), how, way, walk, spot, gather, room_of_rows, multiply, fetch_conv, \
            store_conv, conv, NULL                                                                 \
    }
#define WEIGHTS(places, rows, cols)                                                    \
    {                                                                                  \
        places TILE(rows, cols), how, way, walk, spot, gather, room_of_cols, multiply, \
            fetch_weights, conv_weights, NULL                                          \
    }
#define FEW(places)                                                                              \
    {                                                                                            \
        places, how, way, walk, spot, gather, conv_direct, sum_places, weights_direct, conv_add, \
            NULL                                                                                 \
    }

const char *const tni_text_conv_16[]   = CONV(NARROW, 8, 1);
const char *const tni_text_conv_32[]   = CONV(NARROW, 8, 2);
const char *const tni_text_conv_64[]   = CONV(NARROW, 8, 4);
const char *const tni_text_conv_wide[] = CONV(WIDE, 8, 4);

const char *const tni_text_weights_16[]   = WEIGHTS(NARROW, 1, 4);
const char *const tni_text_weights_64[]   = WEIGHTS(NARROW, 4, 4);
const char *const tni_text_weights_128[]  = WEIGHTS(NARROW, 8, 4);
const char *const tni_text_weights_wide[] = WEIGHTS(WIDE, 4, 4);

const char *const tni_text_conv_few[]      = FEW(NARROW);
const char *const tni_text_conv_few_wide[] = FEW(WIDE);
