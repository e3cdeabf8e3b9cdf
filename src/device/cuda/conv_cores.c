// Convolution and its gradients by kernels of our own on the tensor cores, as one of the methods of
// cuda_conv.h: which calls they take, tiles and parts of a form, and launches. The kernels are in
// conv_cores_text.c.
//
// They are for f16 and bf16, summed in f32, and for f32 where TF32 is on. Everything is decided by
// sizes and the number of multiprocessors, so that results are the same in every run.
#include "device/cuda/conv_cores.h"

#include "base/integers.h"
#include "device/cuda/cores_text.h"
#include "device/cuda/cuda_conv.h"
#include "kernel/emit.h"

#include <stdlib.h>

enum { X, W, Y };

// LEAST: channels of a group, of which a tile of fewer would be nearly empty. FEW: channels that a
// window has fewer of where cuDNN is slow, which reads 64 at a time. MOST_SCRATCH: of the parts of
// a sum.
enum { LEAST = 8, FEW = 32, MOST_SCRATCH = 64 << 20 };

// The kernels' argument: `struct conv` of the text, field by field.
typedef struct {
    const char *a, *b;
    char       *y, *partial;
    int64_t     count;
    int32_t     images, from_size[3], from_at[3], from_image, to_size[3];
    int32_t     taps[3], stride[3], padding[3], dilation[3], residues[3];
    int32_t     depth, rows, columns, a_row, b_row, tap_at, to_row, a_group, b_group, to_group;
    int32_t     row_tiles, column_tiles, groups, splits, chunk, unused;
} conv_args;

_Static_assert(sizeof(conv_args) == 5 * 8 + 42 * 4,
               "no padding: the text declares the same fields");

// A form: its text, which is being compiled, and the argument of its launches but for addresses.
typedef struct {
    tni_conv_case     text;
    tni_text_program *program;
    void             *product, *sum;  // kernels; NULL before the first launch
    conv_args         args;
    int64_t           blocks;
    size_t            scratch;
} cores_work;

// ---- texts -------------------------------------------------------------------------------------

// What a stage is over: 128 bytes of elements.
static int deep_of(const tni_conv_case *x)
{
    return x->bytes ? 128 : x->tf32 ? 32 : 64;
}

// The stages of a block, and behind them its rows, the steps of its stages and its taps, 16 bytes
// each. A block begins at a multiple of 1,024 bytes, which it finds by itself.
int tni_conv_cores_shared(const tni_conv_case *x, int taps)
{
    int rows = x->mtiles * x->warps * 16, deep = deep_of(x);
    return 1024 + x->stages * 128 * (rows + x->ntiles * 8) + 16 * (rows + x->stages * deep + taps);
}

// Called by tni_emit_program behind the prelude.
static void write_conv(tni_out *o, const tni_dialect *d, const tni_emit_item *item)
{
    const tni_conv_case *x = item->opts;
    tni_out_print(o, "#define GIVEN %s\ntypedef %s elem;\ntypedef %s num;\n", d->struct_qualifier,
                  x->bytes  ? "unsigned char"
                  : x->tf32 ? "m_uint"
                            : "m_ushort",
                  x->bytes ? "int" : "float");
    tni_out_print(o, "#define A_SIGN \"%s\"\n#define B_SIGN \"%s\"\n", x->unsigned_a ? "u8" : "s8",
                  x->unsigned_b ? "u8" : "s8");
    tni_out_print(o, "enum { PART = %d, IS_F16 = %d, IS_TF32 = %d, WGMMA = %d, ALIGNED = %d,\n",
                  x->part, x->f16, x->tf32, x->wgmma, x->aligned);
    tni_out_print(o, "       A_BYTES = %d, B_BYTES = %d, WARPS = %d, MTILES = %d, NTILES = %d,\n",
                  x->a_bytes, x->b_bytes, x->warps, x->mtiles, x->ntiles);
    tni_out_print(o, "       STAGES = %d, FLIGHT = %d, BLOCKS = %d };\n", x->stages, x->flight,
                  x->blocks);
    tni_put_text(o, tni_text_cores);
    if (x->bytes) tni_put_text(o, tni_text_cores_bytes);
    tni_put_text(o, x->wgmma ? tni_text_cores_wgmma : tni_text_cores_mma);
    tni_put_text(o, tni_text_conv_cores);
}

char *tni_conv_cores_source(tni_heap *h, const tni_conv_case *x)
{
    tni_emit_item item = { .opts = x };
    return tni_emit_program(h, &tni_dialect_cuda, write_conv, 1, &item, false);
}

// ---- which calls -------------------------------------------------------------------------------

static tni_conv_part part_of(const tni_call *call)
{
    return tni_is_conv(call->op)        ? TNI_CONV_FORWARD
           : call->op == TNI_conv_dgrad ? TNI_CONV_DATA
                                        : TNI_CONV_WEIGHTS;
}

static bool are_channels_last(const tni_conv_form *f)
{
    int64_t unused[5];
    return tni_conv_has_order(&f->arg[X], true, unused) &&
           tni_conv_has_order(&f->arg[W], true, unused) &&
           tni_conv_has_order(&f->arg[Y], true, unused);
}

// Whether there is a bit for each tap of each axis. In double, which does not overflow.
static bool has_tap_bits(const tni_conv_form *f)
{
    double taps = 0;
    for (int axis = 0; axis < 3; axis++) taps += (double)f->arg[W].size[2 + axis];
    return taps <= TNI_CONV_CORES_TAPS;
}

// Whether every offset and place that a kernel computes fits in 31 bits, those outside of images
// included. In double, which does not overflow.
static bool has_31_bits(const tni_conv_form *f)
{
    const double most = 1 << 30;
    for (int axis = 0; axis < 3; axis++)
        if ((double)f->stride[axis] >= most) return false;
    for (int operand = 0; operand < 3; operand++) {
        const tni_arg *x   = &f->arg[operand];
        double         far = (double)x->size[0] * (double)x->size[1];
        for (int axis = 0; axis < 3; axis++) {
            double window = (double)f->dilation[axis] * (double)f->arg[W].size[2 + axis];
            double past   = operand == W ? 0 : 2 * (double)f->padding[axis] + window;
            far *= (double)x->size[2 + axis] + past;
        }
        if (far >= most || far < 1 || !tni_shape_count(5, x->size)) return false;
    }
    return true;
}

// Whether a form is left to cuDNN. It is faster for most, so that compiling for them would only
// make the first step longer. It is not where windows have few channels, as those of a network's
// beginning: on an H200 our kernels take 0.70 of its time for 256 images of 12 channels forward,
// and 0.49 for the gradient of the weights. There both are timed.
static bool is_cudnns(tni_cuda *c, const tni_call *call, int64_t from)
{
    bool few = from >= LEAST && from < FEW && call->op != TNI_conv_dgrad;
    return !few && tni_conv_by_cudnn.version() && !tni_conv_by_cudnn.declines(c, call);
}

// Bytes are copied in pieces of four at least, and what is outside of an image is filled with
// zeros: ops/conv.c pads channels and images to what is taken here. They need no other method: what
// is declined is recorded as products of i32.
static const char *declines(tni_cuda *c, const tni_call *call)
{
    tni_conv_form f  = tni_conv_form_of(call, 3);
    tn_dtype      dt = call->out.dtype;
    int64_t       to = f.arg[W].size[0] / f.groups, from = f.arg[W].size[1];
    bool          data = call->op == TNI_conv_dgrad;
    if (!c->conv_cores) return "TN_CORES is 0";
    bool bytes = call->op == TNI_conv_i32;
    if (!bytes && dt != TN_F16 && dt != TN_BF16 && !(dt == TN_F32 && c->tf32))
        return "the tensor cores take f16, bf16 and, with TN_TF32=1, f32";
    if (bytes && call->attr->conv.fill) return "the padding is not 0";
    if (bytes && from % 4) return "a group's channels are not a multiple of 4";
    if (!tni_gpu_has_cores(c->gpu)) return "the GPU's tensor cores do not take bf16";
    if (to < LEAST || (from < LEAST && (data || f.groups > 1)))
        return "groups have fewer than 8 channels";
    if (!are_channels_last(&f)) return "channels are not neighbours in all of x, w and y";
    if (!has_31_bits(&f) || !has_tap_bits(&f))
        return "windows or tensors are too large for kernels of our own";
    return !bytes && is_cudnns(c, call, from) ? "cuDNN computes it" : NULL;
}

// ---- forms -------------------------------------------------------------------------------------

// The bytes of the largest piece that rows of channels are made of.
static int piece_of(int64_t channels, tn_dtype dt)
{
    int64_t bytes = channels * (int64_t)tni_dtype_size(dt);
    return bytes % 16 == 0 ? 16 : bytes % 8 == 0 ? 8 : bytes % 4 == 0 ? 4 : 2;
}

static void put_axes(int32_t to[3], const int64_t *from)
{
    for (int i = 0; i < 3; i++) to[i] = (int32_t)from[i];
}

// Elements from place to place of a dense tensor with channels last.
static void put_strides(int32_t at[3], int32_t *image, const tni_arg *x)
{
    int64_t next = x->size[1];
    for (int i = 2; i >= 0; i--) {
        at[i] = (int32_t)next;
        next *= x->size[2 + i];
    }
    *image = (int32_t)next;
}

// The argument but for the split. The image that is gathered is x, and y for the data gradient.
static conv_args args_of(const tni_conv_form *f, tni_conv_part part)
{
    const tni_arg *x = &f->arg[X], *w = &f->arg[W], *y = &f->arg[Y];
    const tni_arg *image = part == TNI_CONV_DATA ? y : x, *places = part == TNI_CONV_DATA ? x : y;
    int32_t        in = (int32_t)w->size[1], out = (int32_t)(w->size[0] / f->groups);
    int32_t        window = in * (int32_t)tni_shape_count(3, w->size + 2);
    bool           data = part == TNI_CONV_DATA, weights = part == TNI_CONV_WEIGHTS;
    conv_args      o = { .images = (int32_t)x->size[0], .groups = (int32_t)f->groups };
    o.count          = tni_shape_count(5, f->arg[f->result].size);
    o.depth          = data ? out : in;
    o.rows           = out;
    o.columns        = data ? in : weights ? window : out;
    o.a_row          = (int32_t)y->size[1];
    o.b_row          = window;
    o.tap_at         = in;
    o.to_row         = weights ? window : (int32_t)places->size[1];
    o.a_group        = data || weights ? out : in;
    o.b_group        = weights ? in : out * window;
    o.to_group       = data ? in : weights ? out * window : out;
    put_axes(o.from_size, image->size + 2);
    put_axes(o.to_size, places->size + 2);
    put_strides(o.from_at, &o.from_image, image);
    put_axes(o.taps, w->size + 2);
    put_axes(o.stride, f->stride);
    put_axes(o.padding, f->padding);
    put_axes(o.dilation, f->dilation);
    for (int i = 0; i < 3; i++)
        o.residues[i] = !data ? 1 : o.stride[i] < o.to_size[i] ? o.stride[i] : o.to_size[i];
    return o;
}

// The rows of a block's kind, and the stages that the longest sum has.
static void count_work(const conv_args *o, const tni_conv_case *x, int64_t *rows, int64_t *stages)
{
    bool    data   = x->part == TNI_CONV_DATA;
    int64_t places = o->images, taps = 1;
    for (int i = 0; i < 3; i++) {
        places *= data ? tni_ceil_div(o->to_size[i], o->stride[i]) : o->to_size[i];
        // Taps that meet a residue are at most every (stride / gcd)-th.
        int64_t a = o->stride[i], b = o->dilation[i];
        while (b) {
            int64_t r = a % b;
            a         = b;
            b         = r;
        }
        taps *= data ? tni_ceil_div(o->taps[i], o->stride[i] / a) : o->taps[i];
    }
    bool weights = x->part == TNI_CONV_WEIGHTS;
    *rows        = weights ? o->rows : places;
    *stages      = tni_ceil_div(weights ? places : taps * o->depth, deep_of(x));
}

// The tiles of a block, for products by wgmma and by mma.sync. us: about how many microseconds a
// multiprocessor takes for a stage of it if it has as many blocks as it has room for, on an H200.
// Large ones read each operand less often from L2, whose rate is the limit of most.
typedef struct {
    bool   wgmma;
    int    warps, mtiles, ntiles, stages, flight, blocks;
    double us;
} tile_kind;

static const tile_kind tiles[] = {
    // clang-format off
    { true,  8, 2, 16, 4, 1, 1, 0.89 },
    { true,  8, 2,  8, 5, 1, 1, 0.58 },
    { true,  4, 2, 16, 3, 0, 2, 0.55 },
    { true,  4, 2,  8, 3, 0, 3, 0.34 },
    { true,  4, 1, 16, 3, 0, 3, 0.34 },
    { true,  4, 1,  8, 3, 0, 4, 0.21 },
    { false, 4, 2, 16, 3, 0, 2, 0.80 },
    { false, 4, 2,  8, 3, 0, 3, 0.48 },
    { false, 4, 1, 16, 3, 0, 3, 0.48 },
    { false, 4, 1,  8, 3, 0, 4, 0.27 },
    // clang-format on
};
enum { TILES = sizeof tiles / sizeof *tiles };

// Estimates the microseconds of a tile with sums split into n parts, by what was measured on an
// H200. BEGIN: stages that a block's beginning and end take, twice as many if no other block is
// there meanwhile. A block that is alone where two have room waits for its copies, which takes as
// long as the second would. Parts cost one more launch, and are written and read at about 3 TB/s.
static double cost_of(const tile_kind *t, int64_t blocks, int64_t stages, int64_t n, int units,
                      double bytes)
{
    enum { BEGIN = 3, LAUNCH = 3, BYTES_A_US = 3000000 };
    int64_t room = (int64_t)units * t->blocks, turns = tni_ceil_div(blocks * n, room);
    int64_t beside = turns > 1 ? t->blocks : tni_ceil_div(blocks * n, units);
    if (beside == 1 && t->blocks > 1) beside = 2;
    int64_t begin = t->blocks > 1 ? BEGIN : 2 * BEGIN;
    double  us    = t->us * (double)(beside * turns * (tni_ceil_div(stages, n) + begin));
    return n > 1 ? us + LAUNCH + 2 * bytes * (double)n / BYTES_A_US : us;
}

// Takes a tile with the number of parts that is estimated to be fastest, if that is below *us. A
// part has at least LEAST_STAGES.
static void try_tile(cores_work *w, const tile_kind *t, int units, double *us)
{
    enum { LEAST_STAGES = 4 };
    conv_args *o     = &w->args;
    double     bytes = (double)o->count * sizeof(float);
    int64_t    rows, stages, residues = (int64_t)o->residues[0] * o->residues[1] * o->residues[2];
    count_work(o, &w->text, &rows, &stages);
    int64_t down   = tni_ceil_div(rows, t->warps * t->mtiles * 16);
    int64_t across = tni_ceil_div(o->columns, t->ntiles * 8);
    int64_t blocks = down * across * residues * o->groups;
    for (int64_t n = 1; n == 1 || n * LEAST_STAGES <= stages; n++) {
        if (n > 1 && bytes * (double)n > MOST_SCRATCH) break;
        double now = cost_of(t, blocks, stages, n, units, bytes);
        if (now >= *us) continue;
        *us             = now;
        w->text.warps   = t->warps;
        w->text.mtiles  = t->mtiles;
        w->text.ntiles  = t->ntiles;
        w->text.stages  = t->stages;
        w->text.flight  = t->flight;
        w->text.blocks  = t->blocks;
        o->row_tiles    = (int32_t)down;
        o->column_tiles = (int32_t)across;
        o->chunk        = (int32_t)tni_ceil_div(stages, n);
        o->splits       = (int32_t)tni_ceil_div(stages, o->chunk);
        w->blocks       = blocks * o->splits;
    }
}

static void choose_tile(cores_work *w, int units)
{
    const conv_args *o  = &w->args;
    double           us = 1e300;
    for (int i = 0; i < TILES; i++)
        if (tiles[i].wgmma == w->text.wgmma) try_tile(w, &tiles[i], units, &us);
    w->scratch = o->splits > 1 ? (size_t)(o->splits * o->count) * sizeof(float) : 0;
}

static int taps_of(const conv_args *o)
{
    return o->taps[0] * o->taps[1] * o->taps[2];
}

// Describes a form, all but its tile.
static void describe(const tni_cuda *c, const tni_call *call, cores_work *w)
{
    tni_conv_form  f  = tni_conv_form_of(call, 3);
    tn_dtype       dt = call->out.dtype;
    tni_conv_case *x  = &w->text;
    x->part           = part_of(call);
    x->bytes          = call->op == TNI_conv_i32;
    x->unsigned_a     = call->in[0].dtype == TN_U8;
    x->unsigned_b     = call->in[1].dtype == TN_U8;
    dt                = x->bytes ? TN_U8 : dt;
    x->f16            = dt == TN_F16;
    x->tf32           = dt == TN_F32;
    x->wgmma          = !x->tf32 && !x->bytes && tni_gpu_has_wgmma(c->gpu);
    w->args           = args_of(&f, x->part);
    x->a_bytes        = piece_of(x->part == TNI_CONV_FORWARD ? w->args.depth : w->args.rows, dt);
    x->b_bytes        = piece_of(f.arg[W].size[1], dt);
    x->aligned        = piece_of(w->args.columns, dt) == 16;
}

// Starts to compile, with as many stages as the GPU has room for. False: not even two, or memory is
// out.
static bool start_text(const tni_cuda *c, cores_work *w)
{
    tni_heap heap = tni_heap_default();
    while (tni_conv_cores_shared(&w->text, taps_of(&w->args)) > c->gpu->limits.shared_bytes)
        if (--w->text.stages < 2 + w->text.flight) return false;
    w->program = tni_compiled_text(c->gpu->compiled, tni_conv_cores_source(&heap, &w->text),
                                   "conv_product");
    return w->program != NULL;
}

static void *open(tni_cuda *c, const tni_call *call)
{
    cores_work *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    describe(c, call, w);
    choose_tile(w, c->gpu->limits.units);
    if (start_text(c, w)) return w;
    free(w);
    return NULL;
}

static int count(void *work)
{
    return work != NULL;
}

static size_t scratch(void *work)
{
    return ((const cores_work *)work)->scratch;
}

// ---- launches ----------------------------------------------------------------------------------

// Finds the kernels, after waiting for the compiler the first time.
static tn_status find_kernels(cores_work *w, tni_text *why)
{
    tn_status s = TN_OK;
    if (!w->product) w->product = tni_compiled_text_kernel(w->program, "conv_product", &s, why);
    if (w->product && !w->sum) w->sum = tni_compiled_text_kernel(w->program, "conv_sum", &s, why);
    return s;
}

// Launches the product and, if its sums are split, the kernel that adds the parts. Addresses have
// to be multiples of 16 bytes.
static tn_status launch(tni_cuda *c, void *work, const tni_call *call, int candidate, tni_text *why)
{
    enum { SUM_THREADS = 256, SUM_EACH = 4 };
    cores_work   *w = work;
    conv_args     o = w->args;
    tni_conv_form f = tni_conv_form_of(call, 3);
    (void)candidate;
    for (int i = 0; i < 3; i++) {
        if ((uintptr_t)f.arg[i].data % 16 == 0) continue;
        tni_text_add(why, "an operand is not at a multiple of 16 bytes");
        return TN_EARG;
    }
    tn_status s = find_kernels(w, why);
    if (s != TN_OK) return s;
    o.a       = call->in[0].data;
    o.b       = call->in[1].data;
    o.y       = call->out.data;
    o.partial = o.splits > 1 ? call->scratch : NULL;
    int e     = tni_replay_launch_one(c, w->product, w->blocks, w->text.warps * 32,
                                      tni_conv_cores_shared(&w->text, taps_of(&o)), &o, sizeof o);
    if (!e && o.splits > 1)
        e = tni_replay_launch_one(c, w->sum, tni_ceil_div(o.count, SUM_THREADS * SUM_EACH),
                                  SUM_THREADS, 0, &o, sizeof o);
    return tni_cuda_status(c, e, "convolution", why);
}

static size_t cores_version(void)
{
    return TNI_CONV_CORES_VERSION;
}

const tni_method tni_conv_by_cores = { .name     = "Tenon's product",
                                       .version  = cores_version,
                                       .declines = declines,
                                       .open     = open,
                                       .count    = count,
                                       .scratch  = scratch,
                                       .launch   = launch };
