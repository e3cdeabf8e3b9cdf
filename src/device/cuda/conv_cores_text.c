// The kernels of convolution on the tensor cores, as text: an implicit matrix product, whose left
// operand is gathered from an image while it is copied into shared memory, 16 bytes of neighbouring
// channels at a time. All tensors are dense with channels last.
//
//                   rows of the result     columns             summed over
//     forward       places of y            channels of y       taps and channels of x
//     data          places of x            channels of x       taps and channels of y
//     weights       channels of y          taps and channels   places of y
//                                          of x
//
// A block has a tile of ROWS x COLS of the result of one group, and goes through what is summed
// over in stages of 128 bytes: DEEP channels or places. STAGES of them are in shared memory, of
// which one is multiplied, and FLIGHT more may still be; the others are on their way. Operands
// whose channels are summed over are stored as rows of 128 bytes; others lie along their rows, a
// step after the other (cores_text.c).
//
// Which elements of a window are inside an image is known before the first stage: a row has a bit
// for each tap of each axis, and a tap is inside if its three bits are set. What is outside is
// filled with zeros.
//
// The data gradient of a stride s: places of x with the same residue modulo s meet the same taps,
// every one of which is at a fixed distance in y. Each residue is a product of its own, over these
// taps alone.
//
// Bytes (conv_i32) are products of the same kind, forward alone, with sums in int.
//
// Where tiles are few, the sum is split over blocks; each leaves its part in f32, and conv_sum adds
// the parts in their order.
//
// A text begins with constants such as
//
//     typedef m_ushort elem;
//     typedef float num;
//     enum { PART = 0, IS_F16 = 1, IS_TF32 = 0, WGMMA = 1, ALIGNED = 1, A_BYTES = 16, B_BYTES = 16,
//            WARPS = 4, MTILES = 2, NTILES = 16, STAGES = 3, FLIGHT = 0, BLOCKS = 2 };
#include "device/cuda/conv_cores.h"

#define T(...) #__VA_ARGS__ "\n"

// clang-format off
const char *const tni_text_conv_cores[] = {
    T(enum { FORWARD, DATA, WEIGHTS };
      enum { SIZE = sizeof(elem), EACH = 16 / SIZE, DEEP = 128 / SIZE, THREADS = WARPS * 32,
             ROWS = MTILES * WARPS * 16, COLS = NTILES * 8, A_TILE = ROWS * 128, B_TILE = COLS * 128,
             STAGE = A_TILE + B_TILE, AHEAD = STAGES - 1 - FLIGHT,
             WIDE = sizeof(elem) != 2 };  // what is summed is what is stored
      struct __align__(8) pair { num x; num y; };
      struct __align__(16) four { num x; num y; num z; num w; };
      // The argument; conv_args in conv_cores.c is the same in C. a, b, y: operands and result;
      // partial: the parts of a sum that is split, `count` elements each. from: the image that is
      // gathered, with strides in elements. to_size: the places of the rows or, of the weights'
      // gradient, of what is summed over. depth: channels of a tap in a group; columns: of a group;
      // a_row, b_row, to_row: elements from row to row, a_group, ...: from group to group. chunk:
      // stages of a part.
      struct conv {
          const elem *a; const elem *b; elem *y; num *partial; m_long count;
          int images; int from_size[3]; int from_at[3]; int from_image; int to_size[3];
          int taps[3]; int stride[3]; int padding[3]; int dilation[3]; int residues[3];
          int depth; int rows; int columns; int a_row; int b_row; int tap_at; int to_row;
          int a_group; int b_group; int to_group;
          int row_tiles; int column_tiles; int groups; int splits; int chunk; int unused;
      };
      // A place whose window is gathered: where the window begins in the image, the bits of taps
      // that are inside, and the place's own row in the other operand or the result, -1 if there is
      // none.
      struct __align__(16) row { int from; m_uint seen; int to; int unused; };
      // A tap: its distance from where the window begins, its bits, and its place in the weights.
      struct __align__(16) tap { int offset; m_uint need; int at; int unused; };
      // What a block computes: its first row and column, and the rows' places: their residue modulo
      // the stride and how many there are along each axis.
      struct block { int row; int column; int group; int split; int residue[3]; int size[3]; };),
    // ---- places and taps -----------------------------------------------------------------------
    T(M_FN block block_of(const conv &o) {
          block b;
          int n = blockIdx.x;
          b.column = n % o.column_tiles * COLS;
          n /= o.column_tiles;
          b.row = n % o.row_tiles * ROWS;
          n /= o.row_tiles;
          UNROLL for (int i = 2; i >= 0; i--) {
              b.residue[i] = n % o.residues[i];
              n /= o.residues[i];
              b.size[i] = PART == DATA ? (o.to_size[i] - b.residue[i] + o.stride[i] - 1) / o.stride[i]
                                       : o.to_size[i];
          }
          b.group = n % o.groups;
          b.split = n / o.groups;
          return b;
      }
      // Finds how far tap t of an axis is from where a window begins. False: no place of the block
      // meets it.
      M_FN bool finds_tap(const conv &o, const block &b, int axis, int t, int &shift) {
          int far = t * o.dilation[axis];
          shift = far;
          if constexpr (PART == DATA) {
              far = b.residue[axis] + o.padding[axis] - far;
              shift = far / o.stride[axis];
              return shift * o.stride[axis] == far;
          }
          return true;
      }
      // The bits of an axis whose taps are inside, of a window that begins at `begin`.
      M_FN m_uint bits_of(const conv &o, const block &b, int axis, int begin) {
          m_uint bits = 0;
          if constexpr (PART == DATA) {
              for (int t = 0; t < o.taps[axis]; t++) {
                  int shift;
                  if (finds_tap(o, b, axis, t, shift) &&
                      (m_uint)(begin + shift) < (m_uint)o.from_size[axis]) bits |= 1u << t;
              }
          } else {
              int far = o.dilation[axis];
              int low = max(-begin, 0);
              int high = max(o.from_size[axis] - begin, 0);
              if (far > 1) low = (low + far - 1) / far, high = (high + far - 1) / far;
              low = min(low, o.taps[axis]);
              high = min(high, o.taps[axis]);
              bits = (1u << high) - 1 & ~((1u << low) - 1);
          }
          return bits;
      }
      // A place: its image and where it is along each axis.
      struct position { int image; int place[3]; };
      M_FN position position_of(const block &b, int m) {
          position y = { m, {} };
          UNROLL for (int i = 2; i >= 0; i--) {
              y.place[i] = y.image % b.size[i];
              y.image /= b.size[i];
          }
          return y;
      }
      // The place that is as far behind x as `far` is behind the first one.
      M_FN void move_on(position &x, const position &far, const block &b) {
          int carry = 0;
          UNROLL for (int i = 2; i >= 0; i--) {
              x.place[i] += far.place[i] + carry;
              carry = x.place[i] >= b.size[i];
              if (carry) x.place[i] -= b.size[i];
          }
          x.image += far.image + carry;
      }
      M_FN row row_of(const conv &o, const block &b, const position &x) {
          row y = { 0, 0, -1, 0 };
          int bit = 0;
          if (x.image >= o.images) return y;
          int to = x.image;
          y.from = x.image * o.from_image;
          UNROLL for (int i = 0; i < 3; i++) {
              int begin = PART == DATA ? x.place[i] : x.place[i] * o.stride[i] - o.padding[i];
              y.from += begin * o.from_at[i];
              to = to * o.to_size[i] + (PART == DATA ? b.residue[i] + x.place[i] * o.stride[i] : x.place[i]);
              y.seen |= bits_of(o, b, i, begin) << bit;
              bit += o.taps[i];
          }
          y.to = to * (PART == WEIGHTS ? o.a_row : o.to_row);
          return y;
      }
      // Tap number t of the window. False: as above.
      M_FN bool tap_of(const conv &o, const block &b, int t, tap &y) {
          bool found = true;
          int at[3] = { t / o.taps[2] / o.taps[1], t / o.taps[2] % o.taps[1], t % o.taps[2] };
          int bit = 0;
          y = tap { 0, 0, t * o.tap_at, 0 };
          UNROLL for (int i = 0; i < 3; i++) {
              int shift;
              found = finds_tap(o, b, i, at[i], shift) && found;
              y.offset += shift * o.from_at[i];
              y.need |= 1u << (bit + at[i]);
              bit += o.taps[i];
          }
          return found;
      }
      // Writes the taps that the block's places meet, in their order, and returns how many there
      // are. Every warp counts them.
      M_FN int list_taps(const conv &o, const block &b, tap *to) {
          int all = o.taps[0] * o.taps[1] * o.taps[2];
          int lane = threadIdx.x & 31;
          int count = 0;
          for (int from = 0; from < all; from += 32) {
              tap y;
              bool found = from + lane < all && tap_of(o, b, from + lane, y);
              m_uint others = __ballot_sync(~0u, found);
              if (found && threadIdx.x < 32) to[count + __popc(others & ((1u << lane) - 1))] = y;
              count += __popc(others);
          }
          return count;
      }),
    // ---- copies --------------------------------------------------------------------------------
    T(// Starts to copy a part of a chunk, or fills it with zeros.
      template <int BYTES>
      M_FN void copy_piece(m_uint to, const elem *from, bool there) {
          if constexpr (BYTES == 16) copy_async(to, from, there ? 16 : 0);
          else if constexpr (BYTES >= 4)
              asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::
                           "r"(to), "l"(from), "n"(BYTES), "r"(there ? BYTES : 0) : "memory");
          else {
              m_ushort x = there ? *(const m_ushort *)from : (m_ushort)0;
              asm volatile("st.shared.u16 [%0], %1;" :: "r"(to), "h"(x) : "memory");
          }
      }
      // Copies a chunk that lies in one piece, of which n elements are there.
      template <int BYTES>
      M_FN void copy_dense(m_uint to, const elem *from, const elem *none, int n) {
          UNROLL for (int p = 0; p < 16; p += BYTES) {
              bool there = p / SIZE < n;
              copy_piece<BYTES>(to + p, there ? from + p / SIZE : none, there);
          }
      }
      // A tile whose rows lie along what is not summed over, WIDTH of it, DEEP rows: the chunk of a
      // thread in a row and its first row; they are STRIDE rows apart, which is a multiple of what
      // the places of chunks repeat with.
      template <int WIDTH>
      struct along {
          enum { CHUNKS = WIDTH / EACH, STRIDE = THREADS / CHUNKS, TURNS = DEEP / STRIDE };
          M_FN int chunk() { return (int)threadIdx.x % CHUNKS; }
          M_FN int first() { return (int)threadIdx.x / CHUNKS; }
          M_FN m_uint place() {
              int c = chunk();
              int r = first();
              return c / 8 * (DEEP * 128) + r * 128 + ((c ^ (IS_TF32 ? r * 2 : r)) & 7) * 16;
          }
      };
      // A tile of rows of 128 bytes likewise: rows are 16 apart.
      enum { ACROSS_STRIDE = THREADS / 8 };
      M_FN m_uint across_place() {
          int c = threadIdx.x & 7;
          int r = threadIdx.x >> 3;
          return r * 128 + ((c ^ r) & 7) * 16;
      }),
    // The left operand of forward and data: rows of the image that its places' windows are in. A
    // thread has one chunk of the depth at a time, in a row's eight, which is at channel `c` of a
    // tap, and the next one is DEEP further.
    T(struct windows {
          enum { TURNS = ROWS / ACROSS_STRIDE };
          const elem *image; const tap *taps;
          int from[TURNS]; m_uint seen[TURNS];
          int used; int depth; int at; int c;
      };
      M_FN void open_windows(windows &w, const row *rows, int stage) {
          UNROLL for (int i = 0; i < windows::TURNS; i++) {
              row y = rows[(threadIdx.x >> 3) + i * ACROSS_STRIDE];
              w.from[i] = y.from;
              w.seen[i] = y.seen;
          }
          int k = stage * DEEP + (threadIdx.x & 7) * EACH;
          w.at = k / w.depth;
          w.c = k - w.at * w.depth;
      }
      M_FN void copy_tap(const windows &w, m_uint to, int at, int channel) {
          tap t = { 0, ~0u, 0, 0 };
          if (at < w.used) t = w.taps[at];
          UNROLL for (int i = 0; i < windows::TURNS; i++) {
              bool there = (w.seen[i] & t.need) == t.need;
              copy_piece<A_BYTES>(to + i * (ACROSS_STRIDE * 128),
                                  w.image + (there ? w.from[i] + t.offset + channel : 0), there);
          }
      }
      M_FN void copy_windows(windows &w, m_uint tile) {
          m_uint to = tile + across_place();
          int at = w.at;
          int channel = w.c;
          UNROLL for (int p = 0; p < 16; p += A_BYTES) {
              copy_tap(w, to + p, at, channel);
              channel += A_BYTES / SIZE;
              if (channel >= w.depth) channel = 0, at++;
          }
          w.c += DEEP;
          if (w.c < w.depth) return;
          int more = w.depth < DEEP ? w.c / w.depth : 1;
          w.at += more;
          w.c -= more * w.depth;
      }),
    // ---- the kernels ---------------------------------------------------------------------------
    T(// Writes a block's result: to: where each row begins, -1 if it is not there.
      template <int MT, int NT>
      M_FN void store_block(const num (&c)[MT][NT][4], const conv &o, const block &b, const row *rows,
                            m_uint tile) {
          m_long first = (m_long)b.group * o.to_group + b.column;
          int width = o.columns - b.column;
          if (WIDE != 0 || o.splits > 1) {
              num *y = (o.splits > 1 ? o.partial + b.split * o.count : (num *)o.y) + first;
              bool pairs = o.to_row % 2 == 0 && (first & 1) == 0;
              UNROLL for (int m = 0; m < MT; m++)
                  UNROLL for (int e = 0; e < 4; e += 2) {
                      int to = rows[row_at(m, e)].to;
                      if (to < 0) continue;
                      UNROLL for (int n = 0; n < NT; n++) {
                          int column = column_at(n, 0);
                          num *at = y + to + column;
                          if (pairs && column + 1 < width) *(pair *)at = pair { c[m][n][e], c[m][n][e + 1] };
                          else {
                              if (column < width) at[0] = c[m][n][e];
                              if (column + 1 < width) at[1] = c[m][n][e + 1];
                          }
                      }
                  }
          } else if constexpr (WIDE == 0)
              store_chunks<ROWS, COLS>(
                  c, tile, width, [&](int r, int n) { return rows[r].to >= 0 && n * 8 < width; },
                  [&](int r, int n) { return o.y + first + rows[r].to + n * 8; });
      }),
    T(extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) conv_product(GIVEN conv o) {
          extern __shared__ char smem[];
          m_begin();
          m_uint first = (m_near(smem) + 1023) & ~1023u;
          row *rows = (row *)(smem + (first - m_near(smem)) + STAGES * STAGE);
          row *steps = rows + ROWS;
          tap *taps = (tap *)(steps + STAGES * DEEP);
          block b = block_of(o);
          const elem *a_from = o.a + (m_long)b.group * o.a_group;
          const elem *b_from = o.b + (m_long)b.group * o.b_group;
          int used = 0;
          int depth = o.images * b.size[0] * b.size[1] * b.size[2];
          for (int r = threadIdx.x; r < ROWS; r += THREADS) {
              int m = b.row + r;
              if constexpr (PART == WEIGHTS) rows[r] = row { 0, 0, m < o.rows ? m * o.to_row : -1, 0 };
              else rows[r] = row_of(o, b, position_of(b, m));
          }
          if constexpr (PART != WEIGHTS) {
              used = list_taps(o, b, taps);
              depth = used * o.depth;
          }
          int begin = b.split * o.chunk;
          int count = min((depth + DEEP - 1) / DEEP - begin, o.chunk);
          // What is known of a step of stage s: of data, where the weights of a tap and channel
          // begin; of weights, a place. Called stage after stage.
          position next = position_of(b, begin * DEEP + (int)threadIdx.x);
          const position deep = position_of(b, DEEP);
          auto describe_steps = [&](int s) {
              if (PART == FORWARD || threadIdx.x >= DEEP) return;
              row *y = steps + s % STAGES * DEEP + threadIdx.x;
              if constexpr (PART == DATA) {
                  int k = (begin + s) * DEEP + (int)threadIdx.x;
                  int t = k / o.depth;
                  y->to = t < used ? (k - t * o.depth) * o.b_row + taps[t].at : -1;
              } else {
                  *y = row_of(o, b, next);
                  move_on(next, deep, b);
              }
          };
          __syncthreads();
          if constexpr (PART != FORWARD) {
              for (int s = 0; s <= AHEAD; s++) describe_steps(s);
              __syncthreads();
          }
          windows left = { a_from, taps, {}, {}, used, o.depth, 0, 0 };
          if constexpr (PART != WEIGHTS) open_windows(left, rows, begin);
          // Of the weights' gradient, the pieces of columns that a thread copies, which are
          // channels of a tap.
          constexpr int PIECES = 16 / B_BYTES;
          tap own[PIECES];
          if constexpr (PART == WEIGHTS)
              UNROLL for (int p = 0; p < PIECES; p++) {
                  int n = b.column + along<COLS>::chunk() * EACH + p * (B_BYTES / SIZE);
                  int t = n / o.depth;
                  tap_of(o, b, t, own[p]);
                  own[p].offset += n - t * o.depth;
                  if (n >= o.columns) own[p].need = ~0u;
              }
          ),
    T(auto copy_left = [&](int s, m_uint tile) {
              if constexpr (PART != WEIGHTS) copy_windows(left, tile);
              else {
                  typedef along<ROWS> at;
                  int c = b.row + at::chunk() * EACH;
                  UNROLL for (int i = 0; i < at::TURNS; i++) {
                      int r = at::first() + i * at::STRIDE;
                      int to = steps[s % STAGES * DEEP + r].to;
                      copy_dense<A_BYTES>(tile + at::place() + i * (at::STRIDE * 128), a_from + to + c, a_from,
                                          to < 0 ? 0 : o.rows - c);
                  }
              }
          };
          auto copy_right = [&](int s, m_uint tile) {
              if constexpr (PART == FORWARD) {
                  int k = (begin + s) * DEEP + (threadIdx.x & 7) * EACH;
                  int n = b.column + (threadIdx.x >> 3);
                  UNROLL for (int i = 0; i < COLS / ACROSS_STRIDE; i++, n += ACROSS_STRIDE)
                      copy_dense<B_BYTES>(tile + across_place() + i * (ACROSS_STRIDE * 128),
                                          b_from + (m_long)n * o.b_row + k, b_from,
                                          n < o.columns ? depth - k : 0);
              } else {
                  typedef along<COLS> at;
                  int c = b.column + at::chunk() * EACH;
                  UNROLL for (int i = 0; i < at::TURNS; i++) {
                      row y = steps[s % STAGES * DEEP + at::first() + i * at::STRIDE];
                      m_uint to = tile + at::place() + i * (at::STRIDE * 128);
                      if constexpr (PART == DATA)
                          copy_dense<B_BYTES>(to, b_from + y.to + c, b_from, y.to < 0 ? 0 : o.columns - c);
                      else
                          UNROLL for (int p = 0; p < PIECES; p++) {
                              bool there = (y.seen & own[p].need) == own[p].need;
                              copy_piece<B_BYTES>(to + p * B_BYTES,
                                                  b_from + (there ? y.from + own[p].offset : 0), there);
                          }
                  }
              }
          };
          auto copy_stage = [&](int s) {
              m_uint tile = first + s % STAGES * STAGE;
              if (s < count) {
                  copy_left(s, tile);
                  copy_right(s, tile + A_TILE);
              }
              copy_async_commit();
          };
          num c[MTILES][NTILES][4];
          clear(c);
          for (int s = 0; s < AHEAD; s++) copy_stage(s);
          for (int s = 0; s < count; s++) {
              copy_async_wait<AHEAD - 1>();
              fence_copies();
              __syncthreads();
              m_uint tile = first + s % STAGES * STAGE;
              if constexpr (!WGMMA) copy_stage(s + AHEAD);
              products_begin();
              tiles_by_tiles<PART == WEIGHTS ? DEEP : ROWS, PART == FORWARD ? COLS : DEEP, PART == WEIGHTS,
                             PART != FORWARD>(c, tile, tile + A_TILE);
              products_commit();
              if constexpr (WGMMA) copy_stage(s + AHEAD);
              if (s + AHEAD + 1 < count) describe_steps(s + AHEAD + 1);
              products_wait<FLIGHT>();
          }
          products_wait<0>();
          copy_async_wait<0>();
          __syncthreads();
          store_block(c, o, b, rows, first);
      }),
    // Adds the parts of a sum in their order.
    T(M_FN void put_sum(const conv &o, m_long i, num x) {
          if constexpr (WIDE != 0) ((num *)o.y)[i] = x;
          else o.y[i] = (elem)pack(x, 0.0f);
      }
      extern "C" __global__ void __launch_bounds__(256) conv_sum(GIVEN conv o) {
          m_begin();
          m_long i = ((m_long)blockIdx.x * 256 + threadIdx.x) * 4;
          if (i + 3 < o.count && o.count % 4 == 0) {
              four x = { 0, 0, 0, 0 };
              _Pragma("unroll 8") for (int s = 0; s < o.splits; s++) {
                  four y = *(const four *)(o.partial + s * o.count + i);
                  x.x += y.x;
                  x.y += y.y;
                  x.z += y.z;
                  x.w += y.w;
              }
              put_sum(o, i, x.x);
              put_sum(o, i + 1, x.y);
              put_sum(o, i + 2, x.z);
              put_sum(o, i + 3, x.w);
          } else
              for (m_long j = i; j < i + 4 && j < o.count; j++) {
                  num x = 0;
                  for (int s = 0; s < o.splits; s++) x += o.partial[s * o.count + j];
                  put_sum(o, j, x);
              }
      }),
    NULL,
};
