// Small convolutions by the kernels of conv_direct_text.c: which convolutions they take, how these
// are cut into blocks, and their launches. The best cuts by an estimate are compiled, each with all
// sizes as constants, and timed.
#include "device/cuda/conv_direct.h"

#include "base/integers.h"

#include <stdlib.h>
#include <string.h>

enum { X, W, Y };

// CUTS: cuts of a form that are compiled and timed, with tensor cores and without. SHARED: the most
// bytes of a block, if the chip allows as many: 163 KB on sm_80 and 227 KB on sm_90, but 99 KB on
// sm_86, sm_89 and sm_120.
enum { CUTS = 3, SHARED = 160 << 10, MOST_THREADS = 512 };
// The most pieces that an image's rows, and a row's places, are cut into.
enum { MOST_ROW_CUTS = 8, MOST_SEGMENTS = 4 };
// Registers of a multiprocessor, and those of a thread besides its sums.
enum { REGISTERS = 65536, BESIDE = 72 };
// Of estimates, in instructions of a warp: PIECE to begin and to end the piece of a gradient for w,
// ITEM to begin a segment of it besides its first places, SHARED_LOAD for a load from shared memory
// beside tensor cores.
enum { PIECE = 300, ITEM = 12, SHARED_LOAD = 2 };

// ---- what they take ----------------------------------------------------------------------------

static void copy_strides(int64_t to[4], const tni_arg *x)
{
    for (int i = 0; i < 4; i++) to[i] = x->stride[i];
}

// Offsets within an image and within the weights are 32 bits wide.
static bool is_near(const tni_arg *x, int first)
{
    int64_t far = 0;
    for (int i = first; i < 4; i++) {
        if (x->stride[i] < 0) return false;
        far += x->stride[i] * (x->size[i] - 1);
    }
    return far < INT32_MAX / 2;
}

// Images have the channels of a place side by side: of others a block would read and write short
// pieces of rows.
static bool has_adjacent_channels(const tni_arg *x)
{
    return x->stride[1] == 1 || x->size[1] == 1;
}

// Larger ones are bound by arithmetic, which the libraries' kernels are better at, and their sizes
// as constants would make texts that take long to compile. That takes some tenths of a second, for
// which LEAST products a run are too few.
static bool is_small(const tni_conv_form *f)
{
    enum { MOST_WEIGHTS = 64 * 64 * 9, MOST_TAPS = 25, MOST_SIDE = 64, LEAST = 1 << 21 };
    const int64_t *w = f->arg[W].size, *y = f->arg[Y].size;
    bool           ok = tni_shape_count(4, w) <= MOST_WEIGHTS && w[2] * w[3] <= MOST_TAPS;
    for (int i = 0; i < 3; i++) {
        ok &= tni_shape_count(4, f->arg[i].size) > 0 && is_near(&f->arg[i], i == W ? 0 : 1);
        ok &= i == W || (f->arg[i].size[2] <= MOST_SIDE && f->arg[i].size[3] <= MOST_SIDE);
    }
    for (int i = 0; i < 2; i++)
        ok &= f->stride[i] <= w[2 + i] && f->dilation[i] <= MOST_SIDE && f->padding[i] <= MOST_SIDE;
    ok &= f->arg[X].size[0] < INT32_MAX / MOST_SIDE;
    return ok && (double)tni_shape_count(4, w) * (double)(y[0] * y[2] * y[3]) >= LEAST;
}

// In the gradient for x, tap t of row r reads row r + padding - t dilation of y's gradient: the
// convolution of that with the taps in reverse, and with what the window spans less the padding as
// its own padding.
bool tni_direct_of(const tni_call *call, tni_direct *d)
{
    if (call->out.dtype != TN_F32 || call->out.rank > 4) return false;
    tni_conv_form  f     = tni_conv_form_of(call, 2);
    bool           dgrad = call->op == TNI_conv_dgrad;
    const tni_arg *x = &f.arg[dgrad ? Y : X], *y = &f.arg[dgrad ? X : Y], *w = &f.arg[W];
    if (f.groups != 1 || !is_small(&f)) return false;
    if (!has_adjacent_channels(x) || !has_adjacent_channels(y)) return false;
    *d = (tni_direct){ .weights = call->op == TNI_conv_wgrad,
                       .flip    = dgrad,
                       .images  = x->size[0],
                       .ci      = x->size[1],
                       .co      = y->size[1],
                       .xh      = x->size[2],
                       .xw      = x->size[3],
                       .yh      = y->size[2],
                       .yw      = y->size[3],
                       .kh      = w->size[2],
                       .kw      = w->size[3],
                       .sh      = f.stride[0],
                       .sw      = f.stride[1],
                       .ph      = f.padding[0],
                       .pw      = f.padding[1],
                       .dh      = f.dilation[0],
                       .dw      = f.dilation[1],
                       .result  = f.result };
    copy_strides(d->x, x);
    copy_strides(d->y, y);
    copy_strides(d->w, w);
    if (!dgrad) return true;
    d->w[0] = w->stride[1];
    d->w[1] = w->stride[0];
    d->ph   = (d->kh - 1) * d->dh - d->ph;
    d->pw   = (d->kw - 1) * d->dw - d->pw;
    return d->sh == 1 && d->sw == 1 && d->ph >= 0 && d->pw >= 0;
}

// ---- cuts --------------------------------------------------------------------------------------

// Floats of ROWS rows of a channel of x, an odd number.
static int plane_of(const tni_direct *d, int rows)
{
    int64_t high = (rows - 1) * d->sh + (d->kh - 1) * d->dh + 1;
    int64_t wide = (d->yw - 1) * d->sw + (d->kw - 1) * d->dw + 1;
    return (int)(high * wide) | 1;
}

// A line of channels. Of tensor cores, lanes read 8 neighbours of 4 lines: lines that begin 8 banks
// apart do not collide.
static int line_of(const tni_direct_tile *t)
{
    return t->cores ? (t->tile_co + 31) / 32 * 32 + 8 : t->tile_co + 4;
}

static int round_up(int64_t n, int to)
{
    return (int)(tni_ceil_div(n, to) * to);
}

static bool has_shared(const tni_simt_limits *gpu, int64_t bytes)
{
    return bytes <= tni_min_i64(SHARED, gpu->shared_bytes);
}

// Blocks whose shared memory a multiprocessor has room for. It has RESERVED bytes more than one
// block may ask for, and each block takes as many besides its own. Of sm_90's 228 KB only MOST
// count: by these the cuts that were timed on an H200 were estimated.
static int64_t blocks_by_shared(const tni_simt_limits *gpu, int64_t bytes)
{
    enum { RESERVED = 1 << 10, MOST = 220 << 10 };
    return tni_min_i64(MOST, gpu->shared_bytes + RESERVED) / (bytes + RESERVED);
}

// Estimates the cycles of a launch. A block loads `elements` by some 12 instructions each, of which
// a thread has BATCH in flight, and adds for `work` instructions of each of its warps, of which a
// multiprocessor issues four at a time. Few warps wait for shared memory every now and then; blocks
// that fit together hide each other's latency. Each round of them takes START to begin and to
// store.
static double cut_cycles(const tni_direct_tile *t, const tni_simt_limits *gpu, double elements,
                         double work, int registers)
{
    enum { START = 2500, PER_LOAD = 12, BATCH = 8, LATENCY = 600 };
    enum { RESIDENT = 2048 };
    int64_t fit = tni_min_i64(blocks_by_shared(gpu, t->shared), RESIDENT / t->threads);
    fit         = tni_max_i64(1, tni_min_i64(fit, REGISTERS / (t->threads * (registers + BESIDE))));
    int64_t turns = tni_ceil_div(t->blocks, gpu->units), rounds = tni_ceil_div(turns, fit);
    double  warps = t->threads / 32.0, present = warps * (double)tni_min_i64(fit, turns);
    double  load = elements * PER_LOAD / 32, waits = elements / t->threads / BATCH * LATENCY;
    double  full  = (load + work * warps) / 4 * (1 + 2 / present) * (double)turns;
    double  alone = (work * (1 + 2 / present) + load / warps + waits) * (double)rounds;
    return (double)rounds * START + (full > alone ? full : alone);
}

// Keeps the best cuts, the first ahead.
static void keep_cut(tni_direct_tile *list, int *count, int most, const tni_direct_tile *t)
{
    int at = *count;
    while (at > 0 && list[at - 1].cycles > t->cycles) at--;
    if (at == most) return;
    if (*count < most) ++*count;
    memmove(list + at + 1, list + at, (size_t)(*count - 1 - at) * sizeof *list);
    list[at] = *t;
}

// Instructions of a warp for what it sums in one step: a channel and tap, or 8 of those by tensor
// cores, whose products take 8 cycles each; loads of shared memory take as long as four
// instructions if all warps issue them.
static double step_work(const tni_direct_tile *t)
{
    if (!t->cores) return t->rc * t->rp + t->rp + t->rc / 4.0 + 1;
    return 8.0 * t->rp * t->rc / 8 + SHARED_LOAD * (4 * t->rp + t->rc / 4.0 + 2) + 4;
}

// Fills in what follows from a cut's rows, channels and warps, and lists it unless it does not fit.
static void try_forward(const tni_direct *d, const tni_simt_limits *gpu, tni_direct_tile t,
                        tni_direct_tile *list, int *count, int most)
{
    int64_t each = t.cores ? 16 : 32, step = t.cores ? 8 : 1;
    int64_t depth  = round_up(d->ci * d->kh * d->kw, (int)step),
            places = tni_ceil_div(t.rows * d->yw, each * t.rp);
    int64_t warps = t.tile_co / t.rc * places * t.split, sums = t.rc * t.rp * each / 32;
    t.plane        = plane_of(d, t.rows);
    t.line         = line_of(&t);
    int64_t loads  = d->ci * t.plane + depth * t.tile_co;
    int64_t floats = d->ci * t.plane + depth * (t.line + t.cores);
    floats         = tni_max_i64(floats, (t.split - 1) * t.tile_co * places * t.rp * each);
    if (warps < 4 || warps * 32 > MOST_THREADS || !has_shared(gpu, floats * 4)) return;
    t.threads   = (int)warps * 32;
    t.shared    = (int)floats * 4;
    t.blocks    = d->images * tni_ceil_div(d->yh, t.rows) * tni_ceil_div(d->co, t.tile_co);
    double work = (double)(depth / step) / t.split * step_work(&t);
    t.cycles    = cut_cycles(&t, gpu, (double)loads, work, (int)sums);
    keep_cut(list, count, most, &t);
}

// Goes through the sizes of the pieces that n is cut into, 1, 2, 3 and up to `most` of them, each
// size once: 5 is cut into pieces of 2 by 3 of them and by 4.
static int next_piece(int64_t n, int most, int last)
{
    if (!last) return (int)n;
    for (int pieces = 2; pieces <= most && pieces <= n; pieces++)
        if (tni_ceil_div(n, pieces) < last) return (int)tni_ceil_div(n, pieces);
    return 0;
}

static int forward_cuts(const tni_direct *d, const tni_simt_limits *gpu, bool cores, int most,
                        tni_direct_tile *list)
{
    int count = 0, widest = cores ? 8 : 64;  // of rc * rp, in tiles of 8 channels by tensor cores
    for (int rc = cores ? 8 : 4; rc <= (cores ? 32 : 16); rc *= 2)
        for (int rp = 1; rp <= 6 && rc * rp <= (cores ? 8 : 1) * widest; rp++)
            for (int co = rc; co < d->co + rc && co <= 64; co *= 2)
                for (int split = 1; split <= 4 && (cores || split <= d->ci); split *= 2)
                    for (int rows = 0; (rows = next_piece(d->yh, MOST_ROW_CUTS, rows));)
                        try_forward(d, gpu,
                                    (tni_direct_tile){ .cores   = cores,
                                                       .rows    = rows,
                                                       .tile_co = co,
                                                       .rc      = rc,
                                                       .rp      = rp,
                                                       .split   = split },
                                    list, &count, most);
    return count;
}

// The cycles of adding the chunks: a launch, and the bytes.
static double add_cycles(const tni_direct *d, int chunks)
{
    enum { ADD = 4000, BYTES_A_CYCLE = 1500 };
    return ADD + 8.0 * chunks * (double)(d->co * d->ci * d->kh * d->kw) / BYTES_A_CYCLE;
}

// Fills in a cut whose threads, floats of shared memory, sums of a thread and instructions of a
// warp for a piece are known: the blocks are as many as run at once.
static void try_weights(const tni_direct *d, const tni_simt_limits *gpu, tni_direct_tile t,
                        int64_t floats, int64_t sums, double work, tni_direct_tile *list,
                        int *count, int most)
{
    int64_t pieces = d->images * tni_ceil_div(d->yh, t.rows);
    int64_t tiles  = tni_ceil_div(d->co, t.tile_co) * tni_ceil_div(d->ci, t.tile_ci);
    int64_t loads  = t.places * t.tile_co + t.tile_ci * t.plane;
    if (t.threads % 32 || t.threads < 64 || t.threads > MOST_THREADS ||
        !has_shared(gpu, floats * 4))
        return;
    if (t.threads * (sums + BESIDE) > REGISTERS) return;
    t.shared    = (int)floats * 4;
    int64_t fit = tni_min_i64(blocks_by_shared(gpu, t.shared),
                              REGISTERS / (t.threads * (sums + BESIDE)));
    t.chunks = (int)tni_max_i64(1, tni_min_i64(pieces, gpu->units * tni_max_i64(1, fit) / tiles));
    t.blocks = tiles * t.chunks;
    double turns = (double)tni_ceil_div(pieces, t.chunks);
    t.cycles     = cut_cycles(&t, gpu, (double)loads * turns, work * turns, (int)sums) +
               add_cycles(d, t.chunks);
    keep_cut(list, count, most, &t);
}

static void try_slices(const tni_direct *d, const tni_simt_limits *gpu, tni_direct_tile t,
                       tni_direct_tile *list, int *count, int most)
{
    int64_t taps = d->kh * d->kw, threads = (int64_t)t.slices * t.tile_ci * (t.tile_co / t.rc);
    int64_t items  = tni_ceil_div(t.rows * tni_ceil_div(d->yw, t.segment), t.slices);
    t.plane        = plane_of(d, t.rows);
    t.line         = line_of(&t);
    t.places       = (int)(t.rows * d->yw);
    t.threads      = (int)tni_min_i64(threads, MOST_THREADS + 1);
    int64_t floats = t.places * t.line + t.tile_ci * t.plane;
    if (t.slices > 32) floats = tni_max_i64(floats, threads / 32 * t.rc * taps);
    double place = (double)(t.rc * taps + d->kh + t.rc / 4 + 4);
    double work  = (double)items * (t.segment * place + (double)taps + ITEM) + PIECE;
    try_weights(d, gpu, t, floats, t.rc * taps, work, list, count, most);
}

static void try_columns(const tni_direct *d, const tni_simt_limits *gpu, tni_direct_tile t,
                        tni_direct_tile *list, int *count, int most)
{
    int64_t taps   = d->kh * d->kw,
            groups = t.tile_co / t.rc * tni_ceil_div(t.tile_ci * taps, 8 * t.rp);
    t.plane        = plane_of(d, t.rows);
    t.line         = line_of(&t);
    t.places       = round_up(t.rows * d->yw, 8);
    t.threads      = (int)tni_min_i64(groups * t.split * 32, MOST_THREADS + 1);
    int64_t sums   = t.rc / 16 * t.rp * 4;
    int64_t floats = t.places * (t.line + 1) + t.tile_ci * t.plane;
    floats         = tni_max_i64(floats, (t.split - 1) * groups * sums * 32);
    double step    = 8.0 * t.rc / 16 * t.rp + SHARED_LOAD * (double)(t.rc / 4 + 2 * t.rp + 2) + 4;
    try_weights(d, gpu, t, floats, sums, (double)t.places / 8 / t.split * step + PIECE, list, count,
                most);
}

// Channels of x that a block has: a divisor of all, so that no block reads beyond them.
static int next_channels(const tni_direct *d, int ci)
{
    enum { MOST = 32, LEAST = 8 };
    for (ci = ci ? ci - 1 : MOST; ci > 0; ci--)
        if (d->ci % ci == 0) return ci >= LEAST || ci == d->ci ? ci : 0;
    return 0;
}

// A cut by tensor cores has split and rp besides rows and channels, another one slices and
// segments.
static int weights_cuts(const tni_direct *d, const tni_simt_limits *gpu, bool cores, int most,
                        tni_direct_tile *list)
{
    enum { SUMS = 104, COLUMNS = 9 };  // most sums of a thread, and tiles of columns of a warp
    int count = 0, taps = (int)(d->kh * d->kw);
    for (int rc = cores ? 16 : 4; rc <= (cores ? 32 : 16) && (cores || rc * taps <= SUMS); rc *= 2)
        for (int co = rc; co < d->co + rc && co <= 64; co *= 2)
            for (int ci = 0; (ci = next_channels(d, ci));)
                for (int rows = 0; (rows = next_piece(d->yh, MOST_ROW_CUTS, rows));) {
                    tni_direct_tile t = {
                        .cores = cores, .rows = rows, .tile_co = co, .rc = rc, .tile_ci = ci
                    };
                    for (t.split = 1; cores && t.split <= 8; t.split *= 2)
                        for (t.rp = 1; t.rp <= COLUMNS; t.rp++)
                            try_columns(d, gpu, t, list, &count, most);
                    for (t.slices = 1; !cores && t.slices <= 128; t.slices *= 2)
                        for (t.segment = 0;
                             (t.segment = next_piece(d->yw, MOST_SEGMENTS, t.segment));)
                            try_slices(d, gpu, t, list, &count, most);
                }
    return count;
}

int tni_direct_tiles(const tni_direct *d, const tni_simt_limits *gpu, bool cores, int most,
                     tni_direct_tile *tile)
{
    return d->weights ? weights_cuts(d, gpu, cores, most, tile)
                      : forward_cuts(d, gpu, cores, most, tile);
}

// ---- texts -------------------------------------------------------------------------------------

typedef struct {
    const tni_direct      *d;
    const tni_direct_tile *t;
} direct_case;

static const char *const *text_of(const tni_direct *d, const tni_direct_tile *t)
{
    if (d->weights) return t->cores ? tni_text_direct_weights_cores : tni_text_direct_weights;
    return t->cores ? tni_text_direct_cores : tni_text_direct;
}

static void put_strides(tni_out *o, const char *names, char of, const int64_t stride[4])
{
    for (int i = 0; i < 4; i++)
        tni_out_print(o, ", %c%c = %lld", of, names[i],
                      (long long)(i || of == 'W' ? stride[i] : 0));
}

// Called by tni_emit_program behind the prelude. The stride of images is a macro, since it may be
// wider than an int.
static void write_direct(tni_out *o, const tni_dialect *dialect, const tni_emit_item *item)
{
    const direct_case     *x = item->opts;
    const tni_direct      *d = x->d;
    const tni_direct_tile *t = x->t;
    (void)dialect;
    tni_out_print(o,
                  "enum { CI = %d, CO = %d, XH = %d, XW = %d, YH = %d, YW = %d, KH = %d, KW = %d",
                  (int)d->ci, (int)d->co, (int)d->xh, (int)d->xw, (int)d->yh, (int)d->yw,
                  (int)d->kh, (int)d->kw);
    tni_out_print(o, ", SH = %d, SW = %d, PH = %d, PW = %d, DH = %d, DW = %d, FLIP = %d",
                  (int)d->sh, (int)d->sw, (int)d->ph, (int)d->pw, (int)d->dh, (int)d->dw, d->flip);
    put_strides(o, "0CYX", 'X', d->x);
    put_strides(o, "0CYX", 'Y', d->y);
    put_strides(o, "OIYX", 'W', d->w);
    tni_out_print(o, " };\n#define XN ((m_long)%lld)\n#define YN ((m_long)%lld)\n",
                  (long long)d->x[0], (long long)d->y[0]);
    tni_out_print(
        o,
        "enum { CORES = %d, ROWS = %d, TILE_CO = %d, RC = %d, RP = %d, SPLIT = %d, THREADS = %d, PLANE = %d, ",
        t->cores, t->rows, t->tile_co, t->rc, t->rp, t->split, t->threads, t->plane);
    if (d->weights)
        tni_out_print(o, "TILE_CI = %d, SLICES = %d, SEGMENT = %d, G_LINE = %d, PLACES = %d };\n",
                      t->tile_ci, t->slices ? t->slices : 1, t->segment ? t->segment : 1, t->line,
                      t->places);
    else tni_out_print(o, "LINE = %d };\n", t->line);
    for (const char *const *p = text_of(d, t); *p; p++) tni_out_print(o, "%s", *p);
}

char *tni_direct_source(tni_heap *h, const tni_direct *d, const tni_direct_tile *t)
{
    direct_case   x    = { d, t };
    tni_emit_item item = { .opts = &x };
    return tni_emit_program(h, &tni_dialect_cuda, write_direct, 1, &item, false);
}

// ---- the method --------------------------------------------------------------------------------

// A form, its cuts, their programs and, once they are compiled, their kernels.
typedef struct {
    tni_direct        d;
    int               cuts;
    tni_direct_tile   tile[2 * CUTS];
    tni_text_program *program[2 * CUTS];
    tni_cufunction    main[2 * CUTS], add[2 * CUTS];
} direct_work;

// The kernels' argument: `struct direct_args` of the text.
typedef struct {
    const void *x, *w;
    void       *y, *part;
    int32_t     images, chunks;
} direct_args;

static size_t direct_version(void)
{
    return 2;
}

static const char *direct_declines(tni_cuda *c, const tni_call *call)
{
    tni_direct      d;
    tni_direct_tile t;
    bool fits = tni_direct_of(call, &d) && tni_direct_tiles(&d, &c->gpu->limits, false, 1, &t);
    return fits ? NULL : "it is no small convolution of f32";
}

// Tensor cores take TF32 since sm_80.
static bool has_tf32(const tni_gpu *g)
{
    return atoi(g->chip + strlen("sm_")) >= 80;
}

// Every cut that is worth timing begins to compile. Nothing is timed if results are to be the same
// in every run: the best by the estimate is all there is then.
static void *direct_open(tni_cuda *c, const tni_call *call)
{
    tni_heap     heap = tni_heap_default();
    direct_work *w    = calloc(1, sizeof *w);
    if (!w || !tni_direct_of(call, &w->d)) {
        free(w);
        return NULL;
    }
    const tni_simt_limits *gpu  = &c->gpu->limits;
    int                    most = c->deterministic ? 1 : CUTS;
    if (c->tf32 && has_tf32(c->gpu)) w->cuts = tni_direct_tiles(&w->d, gpu, true, most, w->tile);
    w->cuts += tni_direct_tiles(&w->d, gpu, false, most, w->tile + w->cuts);
    for (int i = 0; i < w->cuts; i++)
        w->program[i] = tni_compiled_text(
            c->gpu->compiled, tni_direct_source(&heap, &w->d, &w->tile[i]), "a convolution");
    return w;
}

// Waits for the compiler. Cuts that do not compile are moved out of the list.
static int direct_count(void *work)
{
    direct_work *w = work;
    int          n = 0;
    for (int i = 0; i < w->cuts; i++) {
        tn_status s;
        tni_text  why = { "" };
        if (!w->program[i]) continue;
        w->tile[n]    = w->tile[i];
        w->program[n] = w->program[i];
        w->main[n]    = tni_compiled_text_kernel(w->program[i],
                                              w->d.weights ? "direct_weights" : "direct", &s, &why);
        if (w->d.weights)
            w->add[n] = tni_compiled_text_kernel(w->program[i], "direct_add", &s, &why);
        n += w->main[n] && (!w->d.weights || w->add[n]);
    }
    return w->cuts = n;
}

static int64_t weight_count(const tni_direct *d)
{
    return d->co * d->ci * d->kh * d->kw;
}

static size_t direct_scratch(void *work)
{
    const direct_work *w    = work;
    size_t             most = 0;
    for (int i = 0; i < w->cuts && w->d.weights; i++) {
        size_t need = (size_t)(w->tile[i].chunks * weight_count(&w->d)) * sizeof(float);
        if (need > most) most = need;
    }
    return most;
}

// Operands of the kernel: of the gradient for x, x is the gradient of the result; the gradient for
// w writes w, by direct_add alone.
static tn_status direct_launch(tni_cuda *c, void *work, const tni_call *call, int candidate,
                               tni_text *why)
{
    enum { ADD_EACH = 32, ADD_THREADS = 256 };  // direct_add: 8 threads for each of 32 elements
    const direct_work     *w = work;
    const tni_direct_tile *t = &w->tile[candidate];
    tni_conv_form          f = tni_conv_form_of(call, 2);
    direct_args            a = { .x      = f.arg[w->d.flip ? Y : X].data,
                                 .w      = f.arg[W].data,
                                 .y      = f.arg[w->d.flip ? X : Y].data,
                                 .part   = call->scratch,
                                 .images = (int32_t)w->d.images,
                                 .chunks = t->chunks };
    if (t->cores && (uintptr_t)a.y % 8) {
        tni_text_add(why, "the result is not at a multiple of 8 bytes");
        return TN_EARG;
    }
    int error = tni_replay_launch_one(c, w->main[candidate], t->blocks, t->threads, t->shared, &a,
                                      sizeof a);
    a.y       = f.arg[W].data;
    if (!error && w->d.weights)
        error = tni_replay_launch_one(c, w->add[candidate],
                                      tni_ceil_div(weight_count(&w->d), ADD_EACH), ADD_THREADS, 0,
                                      &a, sizeof a);
    return tni_cuda_status(c, error, "convolving", why);
}

const tni_method tni_conv_direct = { .name     = "direct kernels",
                                     .version  = direct_version,
                                     .declines = direct_declines,
                                     .open     = direct_open,
                                     .count    = direct_count,
                                     .scratch  = direct_scratch,
                                     .launch   = direct_launch };
