// Transposed operands of POINT kernels. An access whose neighbours in memory are along another axis
// than the lane would touch a cache line for each element. Instead a group takes a square of
// points, `tile` along the lane axis and as many along that other axis. What is loaded crosswise is
// fetched by vectors along the other axis, put into shared memory, and read from there after a
// barrier by the threads that have the points; what is stored crosswise goes the other way. A group
// reads and writes the elements of its own points only, all reads of a tile before all writes, so
// that maps in place stay right.
//
// Where a buffer is read both along the lane and crosswise, as in x + transpose(x), a group takes
// two tiles that are transposes of each other (pairs): each is loaded once, along the lane, and put
// into shared memory for the threads of the other.
//
// Names in the text: h tile of a load or store, z words on their way to a tile, c0 and r0 the first
// point of the group along the lane and along the other axis, e and r a thread's distance from
// there. What it prints, of test/golden/tile.txt, mul(tanh(transpose(x, 0, 1)), y):
//
//     __shared__ m_uint h2[2112];
//     const m_uint y = place / across, x = place - y * across;
//     const m_int c0 = (m_int)x * 64, r0 = (m_int)y * 32;
//     for (m_int q = 0; q < 2; q++) {                                fetch along the other axis
//         const m_int e = tid / 8 + q * 32, r = tid % 8 * 4;
//         const m_int i0 = r0 + r, c = c0 + e;
//         if (i0 < (m_int)a.w[6] && c < (m_int)a.w[7]) {
//             const uint4 g = *(const uint4 *)(b1 + a1 + c * (m_int)a.w[11]);
//             z2[q * 4 + 0] = g.x; ...
//     ...
//             for (m_int j = 0; j < 4; j++) h2[e * 33 + r + j] = z2[q * 4 + j];
//     __syncthreads();
//     for (m_int q = 0; q < 2; q++) {                                work along the lane
//         const m_int r = tid / 8, e = tid % 8 * 4 + q * 32;
//         ...
//             for (m_int j = 0; j < 4; j++) {
//                 x2[q * 4 + j] = h2[(e + j) * 33 + r];
//             }
#include "kernel/simt_emitter.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    GROUP = 256,  // threads of a group, as elsewhere (simt.c)
    // Points along a side of a tile: a warp's. With elements of at most 2 bytes twice as many, so
    // that a line of the tile is still at least 64 bytes of memory.
    SIDE = 32,
    // Bytes between neighbours along the lane from which on a tile is used: a sector, the least
    // that memory moves. Nearer neighbours share sectors, which the cache serves.
    FAR = 32,
    // Bytes of all tiles of a group. It bounds the groups of a multiprocessor to no fewer than 9 of
    // 227 KiB, so that shared memory does not limit occupancy; accesses beyond it go element by
    // element.
    MAX_SHARED = 24 << 10,
    // Vectors a thread has at most: their words are in registers between the two directions.
    MAX_UNROLL = 16,
    // Tiles along a side of the squares that are visited together with their transposes. The cache
    // has to hold two squares between the two reads of an element.
    SQUARE = 4,
    // Tiles along both axes from which on the order of visiting matters: what is smaller stays in
    // cache in any order.
    MANY = 8
};

// ---- choosing ----------------------------------------------------------------------------------

// The accesses of a kernel by direction, as sets of access numbers.
typedef struct {
    uint64_t direct;   // neighbours along the lane
    uint64_t crossed;  // neighbours along `axis`
    int      axis;
} crossed_set;

static int access_bytes(const tni_kernel *k, int access)
{
    return (int)tni_dtype_size((tn_dtype)k->buffer[k->access[access].buffer].dtype);
}

// The accesses whose addresses depend on no index and whose loads have no guard. Only they can be
// fetched by another thread than the one that uses the element.
static uint64_t plain_accesses(const tni_kernel *k)
{
    tni_set  need = tni_needs_main(k);
    uint64_t yes = 0, no = 0;
    for (int i = 0; i < k->nins; i++) {
        const tni_ins *x = &k->ins[i];
        if (!is_memory(x) || !tni_set_has(&need, i)) continue;
        bool plain = x->code == TNI_I_STORE || (x->a == TNI_NO_VALUE && x->b == TNI_NO_VALUE);
        if (plain) yes |= (uint64_t)1 << x->access;
        else no |= (uint64_t)1 << x->access;
    }
    return yes & ~no;
}

// Whether neighbours along the lane are so far apart in memory that each is in a sector of its own.
static bool is_far(const tni_launch *l, int access)
{
    const tni_kernel *k    = l->kernel;
    int               lane = k->np - 1;
    return k->access[access].stride[lane] == TNI_STRIDE_N &&
           llabs(l->stride[access][lane]) * access_bytes(k, access) >= FAR;
}

// Finds the axis, other than the lane, along which most far accesses have their neighbours. A tile
// has one such axis; accesses along others go element by element.
static crossed_set find_crossed(const tni_launch *l)
{
    const tni_kernel *k     = l->kernel;
    uint64_t          plain = plain_accesses(k), set[TNI_AXES] = { 0 };
    crossed_set       f = { 0 };
    for (int a = 0; a < k->naccess; a++) {
        if (!(plain >> a & 1)) continue;
        if (k->access[a].stride[k->np - 1] == TNI_STRIDE_1) f.direct |= (uint64_t)1 << a;
        for (int t = 0; t < k->np - 1 && is_far(l, a); t++)
            if (k->access[a].stride[t] == TNI_STRIDE_1 && l->size[t] >= SIDE)
                set[t] |= (uint64_t)1 << a;
    }
    for (int t = 0; t < k->np - 1; t++)
        if (count_bits(set[t]) > count_bits(f.crossed)) {
            f.crossed = set[t];
            f.axis    = t;
        }
    return f;
}

// Whether an access consists of aligned vectors of v elements along an axis.
static bool in_vectors(const tni_launch *l, int access, int axis, int v)
{
    const tni_kernel *k = l->kernel;
    if (tni_access_start(l, access, v)) return false;
    for (int i = 0; i < k->np; i++)
        if (i != axis && k->access[access].stride[i] != TNI_STRIDE_0 && l->stride[access][i] % v)
            return false;
    return l->size[axis] % v == 0;
}

// Whether all direct and crossed accesses do, and the lane axis is a whole number of vectors, so
// that no thread has lanes past its end.
static bool all_in_vectors(const tni_launch *l, const crossed_set *f, int v)
{
    if (l->size[l->kernel->np - 1] % v) return false;
    for (int a = 0; a < l->kernel->naccess && v > 1; a++) {
        if (f->direct >> a & 1 && !in_vectors(l, a, l->kernel->np - 1, v)) return false;
        if (f->crossed >> a & 1 && !in_vectors(l, a, f->axis, v)) return false;
    }
    return true;
}

// Elements in a word of a load's tile: no more than a thread fetches at once, since it writes whole
// words.
static int per_word(const tni_simt_class *c, int size)
{
    int n = size < 4 ? 4 / size : 1;
    return n < c->vector ? n : c->vector;
}

// Words of a line of a load's tile. It is odd: in both directions of going over the tile the
// threads of a warp then access different banks of shared memory.
static int load_pitch(const tni_simt_class *c, int size)
{
    return (size == 8 ? 2 * c->tile : c->tile / per_word(c, size)) + 1;
}

// Elements of a line of a store's tile; a word more than the tile, by the same rule.
static int store_pitch(const tni_simt_class *c, int size)
{
    return c->tile + (size < 4 ? 4 / size : 1);
}

// Bytes of the tiles of an access: one for each load and store by it.
static int tile_bytes(const tni_kernel *k, const tni_simt_class *c, int access)
{
    int     n = 0, size = access_bytes(k, access);
    tni_set need = tni_needs_main(k);
    for (int i = 0; i < k->nins; i++) {
        const tni_ins *x = &k->ins[i];
        if (!tni_set_has(&need, i) || !is_memory(x) || x->access != access) continue;
        n += c->tile *
             (x->code == TNI_I_LOAD ? 4 * load_pitch(c, size) : size * store_pitch(c, size));
    }
    return n * c->tiles_per_group;
}

// Chooses vector, tile and unroll for the accesses that were found: the widest vectors to which
// everything is aligned, with tiles that the threads of a group divide evenly. False if there are
// none.
static bool choose_tile_size(const tni_launch *l, const crossed_set *f, const tni_simt_limits *most,
                             tni_simt_class *c)
{
    const tni_kernel *k      = l->kernel;
    int               widest = 1, group = 1, threads = most->threads;
    const uint8_t    *set   = most->tuning ? most->tuning->of : (uint8_t[TNI_KNOBS]){ 0 };
    int               want  = set[TNI_KNOB_WARPS] ? TNI_WARP * set[TNI_KNOB_WARPS] : GROUP;
    int64_t           lanes = l->size[k->np - 1], across = l->size[f->axis];
    for (int a = 0; a < k->naccess; a++)
        if ((f->direct | f->crossed) >> a & 1 && access_bytes(k, a) > widest)
            widest = access_bytes(k, a);
    while (2 * group <= threads && group < want) group *= 2;
    int v = TNI_VECTOR_BYTES / widest < TNI_MAX_VECTOR ? TNI_VECTOR_BYTES / widest : TNI_MAX_VECTOR;
    if (set[TNI_KNOB_VECTOR] && set[TNI_KNOB_VECTOR] < v) v = set[TNI_KNOB_VECTOR];
    for (; v > 0; v /= 2) {
        bool large = widest <= 2 && v > 1 && lanes >= 2 * SIDE && across >= 2 * SIDE;
        int  side = large ? 2 * SIDE : SIDE, unroll = side * side / (v * group);
        if (unroll < 1 || unroll > MAX_UNROLL || !all_in_vectors(l, f, v)) continue;
        c->tile   = (uint16_t)side;
        c->vector = (uint8_t)v;
        c->rows   = (uint16_t)group;
        // A thread with one vector gets a second tile's: the computation of addresses, which is
        // most of the work of a copy, is shared by two vectors.
        c->tiles_per_group = unroll == 1 && lanes >= 2 * side ? 2 : 1;
        if (set[TNI_KNOB_TILE] && unroll == 1 && lanes >= set[TNI_KNOB_TILE] * side &&
            unroll * set[TNI_KNOB_TILE] <= MAX_UNROLL)
            c->tiles_per_group = set[TNI_KNOB_TILE];
        c->unroll = (uint8_t)(unroll * c->tiles_per_group);
        return true;
    }
    return false;
}

// Whether a buffer is read in both directions, as in x + transpose(x): each element is then read
// twice, by groups that are far apart unless pairs of tiles are visited together.
static bool is_mirrored(const tni_kernel *k, uint64_t crossed)
{
    uint64_t plain = plain_accesses(k) & ~crossed;
    for (int a = 0; a < k->naccess; a++)
        for (int b = 0; b < k->naccess; b++)
            if (crossed >> a & 1 && plain >> b & 1 && k->access[a].buffer == k->access[b].buffer)
                return true;
    return false;
}

// The elements that an access goes on by along an axis.
static int64_t step_of(const tni_launch *l, int access, int axis)
{
    int class = l->kernel->access[access].stride[axis];
    return class == TNI_STRIDE_N ? l->stride[access][axis] : class == TNI_STRIDE_1;
}

// Whether access b has at (i, j) of the lane and the tile axis what access a has at (j, i).
static bool is_mirror(const tni_launch *l, int a, int b, int axis)
{
    int lane = l->kernel->np - 1;
    if (l->offset[a] != l->offset[b] || step_of(l, a, lane) != step_of(l, b, axis) ||
        step_of(l, a, axis) != step_of(l, b, lane))
        return false;
    for (int i = 0; i < lane; i++)
        if (i != axis && step_of(l, a, i) != step_of(l, b, i)) return false;
    return true;
}

// The one access besides a that loads the buffer of a along the lane; -1 if there is none, or
// several.
static int other_load(const tni_kernel *k, uint64_t direct, int a)
{
    tni_set need  = tni_needs_main(k);
    int     found = -1;
    for (int i = 0; i < k->nins; i++) {
        const tni_ins *x = &k->ins[i];
        if (x->code != TNI_I_LOAD || !tni_set_has(&need, i) || x->access == a ||
            k->access[x->access].buffer != k->access[a].buffer)
            continue;
        if (!(direct >> x->access & 1) || (found >= 0 && found != x->access)) return -1;
        found = x->access;
    }
    return found;
}

// Whether everything that goes through tiles is a load of what another load has along the lane, as
// in x + transpose(x), and nothing is stored crosswise. A group then takes a tile and its
// transpose: each is loaded once and is the other's transposed operand, so that no element is
// loaded twice.
static bool can_pair(const tni_launch *l, const crossed_set *f, uint64_t tiled)
{
    const tni_kernel *k = l->kernel;
    if (tiled != f->crossed) return false;
    for (int i = 0; i < k->nins; i++)
        if (k->ins[i].code == TNI_I_STORE && tiled >> k->ins[i].access & 1) return false;
    for (int a = 0; a < k->naccess; a++) {
        int b = tiled >> a & 1 ? other_load(k, f->direct, a) : -1;
        if (tiled >> a & 1 && (b < 0 || !is_mirror(l, a, b, f->axis))) return false;
    }
    return true;
}

// Groups for one page: the points that differ along the lane and the tile axis only.
static int64_t page_groups(const tni_simt_class *c, int64_t lanes, int64_t other)
{
    int64_t side = c->tile, line = side * c->tiles_per_group, square = side * c->square;
    int64_t n = square ? (lanes + square - 1) / square : 0;
    if (c->pairs) return n * (n + 1) / 2 * c->square * c->square;
    if (square) return n * (n + 1) * (c->square / c->tiles_per_group) * c->square;
    return (lanes + line - 1) / line * ((other + side - 1) / side);
}

// Tiles along a side of a square: the rule's, or a setting's if the tiles of a group divide it; 0:
// no squares.
static uint8_t square_side(const tni_simt_limits *limits, int tiles)
{
    int set = limits->tuning ? limits->tuning->of[TNI_KNOB_SQUARE] : 0;
    if (set == 1) return 0;
    return (uint8_t)(set && set % tiles == 0 ? set : SQUARE);
}

// Accesses get tiles in order of their number until shared memory is full; the others go element by
// element. Tiles that are transposes of each other are visited in pairs if the two axes are equal
// and long.
bool tni_simt_choose_tile(const tni_launch *l, const tni_simt_limits *limits, tni_simt *m)
{
    const tni_kernel *k     = l->kernel;
    tni_simt_class    c     = m->class;
    int64_t           lines = 1, bytes = 0;
    if (k->np < 2 || k->nr || k->tails || l->size[k->np - 1] < SIDE) return false;
    crossed_set f = find_crossed(l);
    if (!f.crossed || !choose_tile_size(l, &f, limits, &c)) return false;
    for (int a = 0; a < k->naccess; a++) {
        if (!(f.crossed >> a & 1)) continue;
        int n = tile_bytes(k, &c, a);
        if (bytes + n > MAX_SHARED || bytes + n > limits->shared_bytes) continue;
        bytes += n;
        c.tiled |= (uint64_t)1 << a;
    }
    if (!c.tiled) return false;
    c.tile_axis   = (uint8_t)f.axis;
    c.vectors     = f.direct | c.tiled;
    c.window      = 0;
    c.leader      = 0;
    int64_t lanes = l->size[k->np - 1], other = l->size[f.axis];
    if (lanes == other && lanes >= MANY * c.tile && is_mirrored(k, c.tiled))
        c.square = square_side(limits, c.tiles_per_group);
    if (c.square && 2 * bytes / c.tiles_per_group <= MAX_SHARED && can_pair(l, &f, c.tiled)) {
        c.pairs           = 1;
        c.unroll          = (uint8_t)(2 * c.unroll / c.tiles_per_group);
        c.tiles_per_group = 1;
    }
    for (int i = 0; i < k->np - 1; i++)
        if (i != f.axis) lines *= l->size[i];
    m->class   = c;
    m->lines   = lines;
    m->vectors = page_groups(&c, lanes, other);
    return true;
}

// ---- the text ----------------------------------------------------------------------------------

bool tni_simt_tiled(const tni_simt_emitter *c, int i)
{
    return is_memory(&c->k->ins[i]) && c->m->tiled >> c->k->ins[i].access & 1;
}

// Whether instruction i of a set is a LOAD, or a STORE (code), that goes through a tile.
static bool goes_through(const tni_simt_emitter *c, const tni_set *set, int i, int code)
{
    return tni_set_has(set, i) && c->k->ins[i].code == code && tni_simt_tiled(c, i);
}

static bool any_goes_through(const tni_simt_emitter *c, const tni_set *set, int code)
{
    for (int i = 0; i < c->k->nins; i++)
        if (goes_through(c, set, i, code)) return true;
    return false;
}

static int element_bytes(const tni_simt_emitter *c, int i)
{
    return (int)tni_dtype_size(buffer_dtype(c, i));
}

// Words of one tile of LOAD i.
static int tile_words(const tni_simt_emitter *c, int i)
{
    return c->m->tile * load_pitch(c->m, element_bytes(c, i));
}

// Declares h for each tile: words for a load, elements for a store.
static void declare_tiles(tni_simt_emitter *c, const tni_set *set)
{
    for (int i = 0; i < c->k->nins; i++) {
        if (goes_through(c, set, i, TNI_I_LOAD))
            tni_out_line(c->o, "%sm_uint h%d[%d];", c->d->shared, i,
                         tile_words(c, i) * (c->m->pairs ? 2 : c->m->tiles_per_group));
        if (goes_through(c, set, i, TNI_I_STORE))
            tni_out_line(
                c->o, "%s%s h%d[%d];", c->d->shared, tni_storage_type(buffer_dtype(c, i)), i,
                c->m->tile * c->m->tiles_per_group * store_pitch(c->m, element_bytes(c, i)));
    }
}

// Prints which tile of a page the group has, where a buffer is read along both axes: the tiles of a
// square, then those of the square that is its transpose, so that what both read comes from memory
// once. Pairs of squares (row, column), column <= row, are numbered by two rows at a time, the k-th
// and the k-th from the end, which together have as many pairs as any other two: that makes the
// number of a pair a division, not a root. A square on the diagonal has no second one: the groups
// for that find no points.
static void put_mirrored(tni_simt_emitter *c)
{
    int side = c->m->tile, line = side * c->m->tiles_per_group, square = side * c->m->square;
    int across = square / line, tiles = across * c->m->square;
    tni_out_line(c->o, "const m_uint side = (m_uint)((%s + %d) / %d);", tni_simt_lanes_name(c).s,
                 square - 1, square);
    tni_out_line(c->o, "const m_uint n = place / %d, w = place %% %d;", tiles, tiles);
    tni_out_line(c->o, "const m_uint k = n / 2 / (side + 1), m = n / 2 - k * (side + 1);");
    tni_out_line(c->o, "const m_uint y = m <= k ? k : side - 1 - k, x = m <= k ? m : m - k - 1;");
    tni_out_line(c->o, "const m_uint p = n %% 2 ? y : x, o = n %% 2 ? x == y ? side : x : y;");
    tni_out_line(c->o, "const %s c0 = (%s)p * %d + w %% %d * %d, r0 = (%s)o * %d + w / %d * %d;",
                 c->index, c->index, square, across, line, c->index, square, across, side);
}

// The same where a group has a tile and its transpose. Of a square on the diagonal the tiles above
// it are the transposes of those below: their groups get a place past the end, where there are no
// points.
static void put_pair(tni_simt_emitter *c)
{
    int side = c->m->tile, square = side * c->m->square, tiles = c->m->square * c->m->square;
    tni_out_line(c->o, "const m_uint side = (m_uint)((%s + %d) / %d);", tni_simt_lanes_name(c).s,
                 square - 1, square);
    tni_out_line(c->o, "const m_uint n = place / %d, w = place %% %d;", tiles, tiles);
    tni_out_line(c->o, "const m_uint k = n / (side + 1), m = n - k * (side + 1);");
    tni_out_line(c->o, "const m_uint y = m <= k ? k : side - 1 - k, x = m <= k ? m : m - k - 1;");
    tni_out_line(c->o, "const m_uint o = x == y && w %% %d > w / %d ? side : x;", c->m->square,
                 c->m->square);
    tni_out_line(c->o, "const %s c0 = (%s)o * %d + w %% %d * %d, r0 = (%s)y * %d + w / %d * %d;",
                 c->index, c->index, square, c->m->square, side, c->index, square, c->m->square,
                 side);
}

// Prints the coordinates of the axes that tiles do not extend along, out of the number `page`.
static void put_outer(tni_simt_emitter *c)
{
    tni_text n     = { "page" };
    int      first = c->m->tile_axis == 0 ? 1 : 0;
    for (int i = c->k->np - 2; i > first; i--) {
        if (i == c->m->tile_axis) continue;
        tni_text size = tni_simt_word_name(c, TNI_WORD_SIZES + i);
        tni_out_line(c->o, "const %s d%d = (%s)((%s)%s / (%s)%s);", c->index, i, c->index,
                     c->uindex, n.s, c->uindex, size.s);
        tni_out_line(c->o, "const %s i%d = %s - d%d * %s;", c->index, i, n.s, i, size.s);
        snprintf(n.s, sizeof n.s, "d%d", i);
    }
    tni_out_line(c->o, "const %s i%d = %s;", c->index, first, n.s);
}

// Prints where the group's tile begins: its page, then c0 and r0.
static void put_corner(tni_simt_emitter *c)
{
    int side = c->m->tile, line = side * c->m->tiles_per_group;
    if (c->k->np > 2) {
        tni_text all = tni_simt_word_name(c, TNI_WORD_VECTORS);
        tni_out_line(c->o, "const %s page = (%s)((m_uint)%s / (m_uint)%s);", c->index, c->index,
                     c->d->group_id, all.s);
        tni_out_line(c->o, "const m_uint place = (m_uint)%s - (m_uint)page * (m_uint)%s;",
                     c->d->group_id, all.s);
        put_outer(c);
    } else {
        tni_out_line(c->o, "const m_uint place = (m_uint)%s;", c->d->group_id);
    }
    if (c->m->square) {
        (c->m->pairs ? put_pair : put_mirrored)(c);
        return;
    }
    tni_out_line(c->o, "const m_uint across = (m_uint)((%s + %d) / %d);", tni_simt_lanes_name(c).s,
                 line - 1, line);
    tni_out_line(c->o, "const m_uint y = place / across, x = place - y * across;");
    tni_out_line(c->o, "const %s c0 = (%s)x * %d, r0 = (%s)y * %d;", c->index, c->index, line,
                 c->index, side);
}

// crossed, neighbouring threads have neighbours along the tile axis (r), else along the lane (e).
// The slot of thread and turn q is the same number in both directions, so that fetch and work have
// as many vectors each.
void tni_simt_open_slot(tni_simt_emitter *c, bool crossed)
{
    const tni_simt_class *m = c->m;
    int                   t = m->tile_axis, per = m->tile / m->vector;
    tni_text              next = tni_text_of(" + q * %d", m->tile);
    tni_out_print(c->o, "%s", c->d->unroll);
    tni_out_line(c->o, "for (m_int q = 0; q < %d; q++) {", c->unroll);
    if (m->pairs) {
        // The second half of a thread's vectors is of the transpose, which a tile on the diagonal
        // does not have.
        tni_out_line(c->o, "const m_int s = tid + q %% %d * %d;", c->unroll / 2, m->rows);
        tni_out_line(c->o, "const m_int r = s / %d, e = s %% %d * %d;", per, per, m->vector);
        tni_out_line(c->o, "const %s i%d = (q < %d ? r0 : c0) + r, c = (q < %d ? c0 : r0) + e;",
                     c->index, t, c->unroll / 2, c->unroll / 2);
        tni_out_line(c->o, "if (i%d < %s && c < %s && (q < %d || r0 != c0)) {", t,
                     tni_simt_word_name(c, TNI_WORD_SIZES + t).s, tni_simt_lanes_name(c).s,
                     c->unroll / 2);
        if (!crossed) tni_simt_put_bases(c);
        return;
    }
    if (m->tiles_per_group > 1) {
        // A vector of each of the squares side by side.
        tni_out_line(c->o, "const m_int %c = tid / %d%s, %c = tid %% %d * %d%s;",
                     crossed ? 'e' : 'r', per, crossed ? next.s : "", crossed ? 'r' : 'e', per,
                     m->vector, crossed ? "" : next.s);
    } else {
        tni_out_line(c->o, "const m_int s = tid + q * %d;", m->rows);
        tni_out_line(c->o, "const m_int %c = s / %d, %c = s %% %d * %d;", crossed ? 'e' : 'r', per,
                     crossed ? 'r' : 'e', per, m->vector);
    }
    tni_out_line(c->o, "const %s i%d = r0 + r, c = c0 + e;", c->index, t);
    tni_out_line(c->o, "if (i%d < %s && c < %s) {", t, tni_simt_word_name(c, TNI_WORD_SIZES + t).s,
                 tni_simt_lanes_name(c).s);
    if (!crossed) tni_simt_put_bases(c);
}

// Prints the bases of the loads, or stores, that go through tiles.
static void put_tile_bases(tni_simt_emitter *c, const tni_set *set, int code)
{
    uint64_t used = 0;
    for (int i = 0; i < c->k->nins; i++)
        if (goes_through(c, set, i, code)) used |= (uint64_t)1 << c->k->ins[i].access;
    for (int a = 0; a < c->k->naccess; a++)
        if (used >> a & 1) tni_simt_put_base(c, a);
}

// The words stay in registers (z) until the direct loads were issued as well: tni_simt_fill_tile is
// printed after those.
void tni_simt_open_tile(tni_simt_emitter *c, const tni_set *set)
{
    declare_tiles(c, set);
    put_corner(c);
    if (!any_goes_through(c, set, TNI_I_LOAD) || c->m->pairs) return;
    for (int i = 0; i < c->k->nins; i++)
        if (goes_through(c, set, i, TNI_I_LOAD))
            tni_out_line(c->o, "m_uint z%d[%d];", i, words_of(c, i) * c->unroll);
    tni_simt_open_slot(c, true);
    put_tile_bases(c, set, TNI_I_LOAD);
    c->word_letter = 'z';
    for (int i = 0; i < c->k->nins; i++)
        if (goes_through(c, set, i, TNI_I_LOAD)) tni_simt_fetch(c, i);
    c->word_letter = 'x';
    tni_simt_close_vector(c);
}

// The load whose words are those of LOAD i, transposed.
static int mirror_of(const tni_simt_emitter *c, const tni_set *set, int i)
{
    const tni_kernel *k = c->k;
    for (int j = 0; j < k->nins; j++)
        if (tni_set_has(set, j) && k->ins[j].code == TNI_I_LOAD && !tni_simt_tiled(c, j) &&
            k->access[k->ins[j].access].buffer == k->access[k->ins[i].access].buffer)
            return j;
    return i;
}

// Writes the words of both tiles, line r along the lane, each to where the other's threads read; on
// the diagonal to its own.
static void fill_pair(tni_simt_emitter *c, const tni_set *set)
{
    tni_simt_open_slot(c, true);
    for (int i = 0; i < c->k->nins; i++) {
        if (!goes_through(c, set, i, TNI_I_LOAD)) continue;
        int      size = element_bytes(c, i), w = words_of(c, i), per = per_word(c->m, size);
        tni_text word = tni_text_of(size == 8 ? "2 * e" : per > 1 ? "e / %d" : "e", per);
        tni_out_line(c->o, "{");
        tni_out_line(c->o, "const m_int h = (q < %d && r0 != c0 ? %d : 0) + r * %d + %s;",
                     c->unroll / 2, tile_words(c, i), load_pitch(c->m, size), word.s);
        tni_out_print(c->o, "%s", c->d->unroll);
        tni_out_line(c->o, "for (m_int j = 0; j < %d; j++) h%d[h + j] = x%d[q * %d + j];", w, i,
                     mirror_of(c, set, i), w);
        tni_out_line(c->o, "}");
    }
    tni_simt_close_vector(c);
    tni_out_line(c->o, "%s;", c->d->barrier);
}

// Writes the words into the tile, line e along the tile axis, and waits for all threads of the
// group.
void tni_simt_fill_tile(tni_simt_emitter *c, const tni_set *set)
{
    if (!any_goes_through(c, set, TNI_I_LOAD)) return;
    if (c->m->pairs) {
        fill_pair(c, set);
        return;
    }
    tni_simt_open_slot(c, true);
    for (int i = 0; i < c->k->nins; i++) {
        if (!goes_through(c, set, i, TNI_I_LOAD)) continue;
        int      size = element_bytes(c, i), w = words_of(c, i);
        tni_text word = { "r" };
        if (size == 8) word = tni_text_of("2 * r");
        if (per_word(c->m, size) > 1) word = tni_text_of("r / %d", per_word(c->m, size));
        tni_out_print(c->o, "%s", c->d->unroll);
        tni_out_line(c->o, "for (m_int j = 0; j < %d; j++) h%d[e * %d + %s + j] = z%d[q * %d + j];",
                     w, i, load_pitch(c->m, size), word.s, i, w);
    }
    tni_simt_close_vector(c);
    tni_out_line(c->o, "%s;", c->d->barrier);
}

// Prints how a thread gathers the words of LOAD i at its points: one element from each of V lines
// of the tile, packed as a vector of memory would be.
static void take_tile_words(tni_simt_emitter *c, int i)
{
    int      size = element_bytes(c, i), w = words_of(c, i), per = per_word(c->m, size);
    int      pitch = load_pitch(c->m, size), bits = 8 * size;
    tni_text tile = { "" };
    if (c->m->pairs) tile = tni_text_of("(q < %d ? 0 : %d) + ", c->unroll / 2, tile_words(c, i));
    if (per > 1) {
        tni_out_print(c->o, "%s", c->d->unroll);
        tni_out_line(c->o, "for (m_int j = 0; j < %d; j++) x%d[q * %d + j] = 0;", w, i, w);
    }
    tni_out_print(c->o, "%s", c->d->unroll);
    tni_out_line(c->o, "for (m_int j = 0; j < %d; j++) {", c->m->vector);
    if (size == 8) {
        tni_out_line(c->o, "x%d[q * %d + 2 * j] = h%d[%s(e + j) * %d + 2 * r];", i, w, i, tile.s,
                     pitch);
        tni_out_line(c->o, "x%d[q * %d + 2 * j + 1] = h%d[%s(e + j) * %d + 2 * r + 1];", i, w, i,
                     tile.s, pitch);
    } else if (per > 1) {
        tni_out_line(c->o, "const m_uint g = h%d[%s(e + j) * %d + r / %d] >> r %% %d * %d;", i,
                     tile.s, pitch, per, per, bits);
        tni_out_line(c->o, "x%d[q * %d + j / %d] |= (g & %uu) << j %% %d * %d;", i, w, per,
                     (1u << bits) - 1, per, bits);
    } else {
        tni_out_line(c->o, "x%d[q * %d + j] = h%d[%s(e + j) * %d + r];", i, w, i, tile.s, pitch);
    }
    tni_out_line(c->o, "}");
}

void tni_simt_take_tile(tni_simt_emitter *c, const tni_set *set)
{
    for (int i = 0; i < c->k->nins; i++)
        if (goes_through(c, set, i, TNI_I_LOAD)) take_tile_words(c, i);
}

void tni_simt_put_tile(tni_simt_emitter *c, int i)
{
    tni_out_print(c->o, "%s", c->d->unroll);
    tni_out_line(c->o, "for (m_int j = 0; j < %d; j++) h%d[(e + j) * %d + r] = y%d[j];",
                 c->m->vector, i, store_pitch(c->m, element_bytes(c, i)), i);
}

// After a barrier the elements of stores are read along the tile axis, and stored as vectors.
void tni_simt_drain_tile(tni_simt_emitter *c, const tni_set *set)
{
    if (!any_goes_through(c, set, TNI_I_STORE)) return;
    tni_out_line(c->o, "%s;", c->d->barrier);
    tni_simt_open_slot(c, true);
    put_tile_bases(c, set, TNI_I_STORE);
    for (int i = 0; i < c->k->nins; i++) {
        if (!goes_through(c, set, i, TNI_I_STORE)) continue;
        tni_out_line(c->o, "%s y%d[%d];", tni_storage_type(buffer_dtype(c, i)), i, c->m->vector);
        tni_out_print(c->o, "%s", c->d->unroll);
        tni_out_line(c->o, "for (m_int j = 0; j < %d; j++) y%d[j] = h%d[e * %d + r + j];",
                     c->m->vector, i, i, store_pitch(c->m, element_bytes(c, i)));
        tni_simt_put_vector(c, i);
    }
    tni_simt_close_vector(c);
}
