// Convolution and its gradients by the kernels of group_text_conv.c: as implicit matrix products
// over tiles, with one item per element if a group has very few channels, or as a matmul in place
// (group_conv_product.c).
//
// Everything is decided by sizes and strides alone, never by the device: how the depth is split
// decides in which order sums are taken, and results are to be the same everywhere.
#include "device/simt/groups.h"

#include "tensor/dtype.h"

#include <string.h>

enum { X, W, Y };

// The parameters of all kernels here, made of the same rows as `conv_params` of the text.
typedef struct {
#define LONG(name) int64_t name;
#define AXES(name) int64_t name[3];
#define INT(name)  int32_t name;
#include "device/simt/conv_params.def"
} conv_params;

_Static_assert(sizeof(conv_params) == 58 * 8 + 6 * 4 &&
                   sizeof(conv_params) <= TNI_KERNEL_ARGS_BYTES / 2,
               "no padding, and room for the buffers");

// A kernel and its parameters for a call, all but the addresses, so that it depends on sizes and
// strides alone. arg[] are the text's x, w and y, of which `result` is written.
typedef struct {
    conv_params        o;
    const char *const *text, *const *add;  // add: the text of conv_add, which adds chunks
    const char *name;
    int64_t     blocks;  // groups of the launch, of `items` items each
    int         items, result;
    tni_arg     arg[3];
} conv_launch;

// The texts for images without a depth, and with one.
typedef struct {
    const char *const *conv[3], *const *conv_wide;        // of tiles of 64, 32 and 16 columns
    const char *const *weights[3], *const *weights_wide;  // of tiles of 64, 128 and 16 rows
    const char *const *few, *const *few_wide;
} conv_texts;

static const conv_texts texts[2] = {
    { { tni_text_conv_64, tni_text_conv_32, tni_text_conv_16 },
      tni_text_conv_wide,
      { tni_text_weights_64, tni_text_weights_128, tni_text_weights_16 },
      tni_text_weights_wide,
      tni_text_conv_few,
      tni_text_conv_few_wide },
    { { tni_text_conv3d_64, tni_text_conv3d_32, tni_text_conv3d_16 },
      tni_text_conv3d_wide,
      { tni_text_weights3d_64, tni_text_weights3d_128, tni_text_weights3d_16 },
      tni_text_weights3d_wide,
      tni_text_conv3d_few,
      tni_text_conv3d_few_wide },
};

// A depth of one tap and one place is none.
static const conv_texts *texts_of(const conv_launch *j)
{
    bool flat = j->o.x_size[0] == 1 && j->o.y_size[0] == 1 && j->o.taps[0] == 1 &&
                j->o.padding[0] == 0;
    return &texts[!flat];
}

// ---- sizes and strides -------------------------------------------------------------------------

// Euclid's algorithm.
static int64_t common_divisor(int64_t a, int64_t b)
{
    return b ? common_divisor(b, a % b) : a;
}

// Returns whether channels are neighbours in memory, and positions are not.
static bool is_channels_last(const tni_arg *x)
{
    return x->stride[1] == 1 && (x->stride[4] != 1 || x->size[4] == 1);
}

// Sizes and strides of the images: x and y.
static void set_images(conv_launch *j)
{
    conv_params   *o = &j->o;
    const tni_arg *x = &j->arg[X], *y = &j->arg[Y];
    o->images           = x->size[0];
    o->x_image_stride   = x->stride[0];
    o->x_channel_stride = x->stride[1];
    o->y_image_stride   = y->stride[0];
    o->y_channel_stride = y->stride[1];
    for (int i = 0; i < 3; i++) {
        o->x_stride[i] = x->stride[2 + i];
        o->x_size[i]   = x->size[2 + i];
        o->y_stride[i] = y->stride[2 + i];
        o->y_size[i]   = y->size[2 + i];
    }
}

// Sizes and strides of w. In the gradient for x the sum runs over output channels, and the columns
// are input channels; in the gradient for w the columns are input channels times taps.
static void set_weights(conv_launch *j, const tni_call *c)
{
    conv_params   *o   = &j->o;
    const tni_arg *w   = &j->arg[W];
    int64_t        out = w->size[0] / o->groups, in = w->size[1];
    int64_t        taps = tni_shape_count(3, w->size + 2);
    o->out_channels     = out;
    o->channels         = o->is_dgrad ? out : in;
    o->columns          = o->is_dgrad ? in : c->op == TNI_conv ? out : in * taps;
    o->w_group_stride   = out * w->stride[0];
    o->w_channel_stride = w->stride[o->is_dgrad ? 0 : 1];
    o->w_column_stride  = w->stride[o->is_dgrad ? 1 : 0];
    for (int i = 0; i < 3; i++) {
        o->w_stride[i] = w->stride[2 + i];
        o->taps[i]     = w->size[2 + i];
    }
}

// The window. In the gradient for x, tap t meets row r of the input only if r + padding - t *
// dilation is divisible by the stride s. With g = gcd(s, dilation), that is every (s / g)-th tap
// from the first one on, and from one to the next the position in the output moves back by dilation
// / g.
static void set_taps(conv_launch *j, const tni_conv_form *f)
{
    conv_params *o = &j->o;
    for (int i = 0; i < 3; i++) {
        int64_t stride = f->stride[i], dilation = f->dilation[i];
        int64_t both     = common_divisor(stride, dilation);
        o->stride[i]     = stride;
        o->padding[i]    = f->padding[i];
        o->dilation[i]   = dilation;
        o->tap_stride[i] = stride / both;
        o->tap_shift[i]  = dilation / both;
        o->residues[i]   = !o->is_dgrad ? 1 : stride < o->y_size[i] ? stride : o->y_size[i];
    }
}

// Describes a call without its kernel. In the gradient for x the images change roles: what is read
// (x of the text) is the gradient of the output, what is written (y) the gradient of the input.
static conv_launch describe_conv(const tni_call *c)
{
    tni_conv_form f = tni_conv_form_of(c, 3);
    conv_launch   j = { .o      = { .is_dgrad = c->op == TNI_conv_dgrad, .groups = f.groups },
                        .result = f.result };
    memcpy(j.arg, f.arg, sizeof j.arg);
    if (j.o.is_dgrad) {
        tni_arg x = j.arg[X];
        j.arg[X]  = j.arg[Y];
        j.arg[Y]  = x;
        j.result  = Y;
    }
    set_images(&j);
    set_weights(&j, c);
    set_taps(&j, &f);
    j.o.count         = tni_shape_count(c->out.rank, c->out.size);
    j.o.channels_last = is_channels_last(&j.arg[j.result]);
    return j;
}

// ---- the width of offsets ----------------------------------------------------------------------

// Returns a bound of how far offsets and coordinates go, counting positions outside of the images,
// which are computed and not used. In double, which does not overflow.
static double farthest_offset(const tni_arg *x, const conv_params *o)
{
    double far = 1;
    for (int i = 0; i < 5; i++) {
        double past   = i < 2 ? 0
                              : 2 * (double)o->padding[i - 2] +
                                  (double)o->taps[i - 2] * (double)o->dilation[i - 2];
        double stride = (double)(x->stride[i] < 0 ? -x->stride[i] : x->stride[i]);
        far += (stride > 1 ? stride : 1) * ((double)x->size[i] + past);
    }
    return far;
}

static double of_all_axes(const int64_t size[3])
{
    return (double)size[0] * (double)size[1] * (double)size[2];
}

// Returns whether some number of the kernel does not fit in 31 bits: then it runs in a version with
// 64-bit offsets, which is slower. 1 << 30 leaves room for sums of two such numbers, and OUTSIDE of
// the text is beyond it.
static bool needs_64_bits(const conv_launch *j)
{
    const conv_params *o     = &j->o;
    double             most  = (double)(1 << 30);
    const double       all[] = { (double)j->blocks,
                                 (double)o->count * (double)o->chunks,
                                 farthest_offset(&j->arg[X], o),
                                 farthest_offset(&j->arg[W], &(conv_params){ 0 }),
                                 farthest_offset(&j->arg[Y], o),
                                 (double)o->channels * of_all_axes(o->taps) + 256,
                                 (double)o->images * of_all_axes(o->y_size) + 256,
                                 (double)o->stride[0],
                                 (double)o->stride[1],
                                 (double)o->stride[2] };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] >= most) return true;
    return false;
}

// ---- tiles and chunks --------------------------------------------------------------------------

// A kernel over tiles of a width: how many tiles there are, and about how many microseconds one
// takes for 16 of the depth, alone on a multiprocessor.
typedef struct {
    const char *const *text;
    int64_t            width, tiles;
    double             us;
} tiling;

// The H200 that the times were measured on has 132 multiprocessors. The number decides how the
// depth is split on every device, since the order of sums must not depend on the device.
// MOST_SCRATCH bounds the memory for partial sums.
enum { MULTIPROCESSORS = 132, MOST_SCRATCH = 32 << 20 };

// Splits the depth into n chunks of whole 16s, a tile's depth. Many chunks are added by 16 items
// per element, in a tree.
static void set_chunks(conv_params *o, int64_t depth, int64_t n)
{
    o->chunk     = depth > 0 ? tni_ceil_div(tni_ceil_div(depth, n), 16) * 16 : 16;
    o->chunks    = depth > o->chunk ? tni_ceil_div(depth, o->chunk) : 1;
    o->add_lanes = o->chunks > 8 ? 16 : 1;
}

// Estimates the microseconds of n chunks: a group begins, goes through its share of the depth and
// ends; multiprocessors take groups in turn, and one that has only a single group waits for memory,
// which costs it half as much again. Chunks cost one more launch, and their sums are written and
// read at about 3 TB/s.
static double tiling_cost(const tiling *t, int64_t depth, int64_t n, double bytes)
{
    enum { BEGIN = 3, LAUNCH = 3, BYTES_A_US = 3000000 };
    int64_t groups = tni_ceil_div(t->tiles * n, MULTIPROCESSORS);
    double  us     = t->us * (double)(tni_ceil_div(tni_ceil_div(depth, 16), n) + BEGIN);
    us *= groups == 1 ? 1.5 : (double)groups;
    return n > 1 ? us + LAUNCH + 2 * bytes * (double)n / BYTES_A_US : us;
}

// Tries the numbers of chunks that fill the GPU once, twice and so on, and one chunk. Returns the
// best, with *us lowered to its cost, or 0 if none is below *us. A chunk has at least LEAST of the
// depth.
static int64_t best_chunks(const tiling *t, int64_t depth, double bytes, double *us)
{
    enum { FILLS = 8, LEAST = 32 };
    int64_t best = 0, most = depth / LEAST;
    for (int64_t m = 0; m <= FILLS; m++) {
        int64_t n = m ? MULTIPROCESSORS * m / t->tiles : 1;
        if (n > most) n = most;
        if (n < 1) n = 1;
        if (n > 1 && bytes * (double)n > MOST_SCRATCH) break;
        double now = tiling_cost(t, depth, n, bytes);
        if (now >= *us) continue;
        *us  = now;
        best = n;
    }
    return best;
}

// Takes the best of several tilings with the best number of chunks for it, and fills in the launch.
static const tiling *best_tiling(conv_launch *j, int count, const tiling *t, int64_t depth)
{
    const tiling *best  = t;
    double        us    = 1e300;
    double        bytes = (double)j->o.count * (j->arg[X].dtype == TN_F64 ? 8 : 4);
    for (int i = 0; i < count; i++) {
        int64_t n = best_chunks(&t[i], depth, bytes, &us);
        if (n == 0) continue;
        best = &t[i];
        set_chunks(&j->o, depth, n);
    }
    j->blocks = best->tiles * j->o.chunks;
    j->items  = 256;
    j->text   = best->text;
    return best;
}

// ---- kernels -----------------------------------------------------------------------------------

// Plans the forward pass or the gradient for x as a product over tiles of 128 rows. Rows of each
// residue modulo the stride are a product of their own in the gradient for x, so that their tiles
// add up. The times are microseconds per 16 of the depth, measured for each width of tile.
static void plan_tiles(conv_launch *j)
{
    enum { ROWS = 128 };
    conv_params *o      = &j->o;
    int64_t      places = o->images, taps = 1;
    for (int i = 0; i < 3; i++) {
        places *= o->is_dgrad ? tni_ceil_div(o->y_size[i], o->stride[i]) : o->y_size[i];
        taps *= o->is_dgrad ? tni_ceil_div(o->taps[i], o->tap_stride[i]) : o->taps[i];
    }
    // Channels last: a tile's depth is that many channels of one tap, which are neighbours.
    int64_t deep       = j->arg[X].dtype == TN_F64 ? 8 : 16;
    bool    last       = is_channels_last(&j->arg[X]) && o->channels >= deep;
    o->channel_run     = last ? deep : 1;
    o->a_along_rows    = !last;
    o->b_along_columns = o->w_column_stride == 1;
    o->y_along_rows    = !o->channels_last;
    o->row_tiles       = tni_ceil_div(places, ROWS);

    int64_t                   rows = o->row_tiles * tni_shape_count(3, o->residues) * o->groups;
    const char *const *const *text = texts_of(j)->conv;
    const tiling              t[]  = { { text[0], 64, rows * tni_ceil_div(o->columns, 64), 0.95 },
                                       { text[1], 32, rows * tni_ceil_div(o->columns, 32), 0.68 },
                                       { text[2], 16, rows * tni_ceil_div(o->columns, 16), 0.48 } };
    best_tiling(j, 3, t, tni_ceil_div(o->channels, o->channel_run) * o->channel_run * taps);
    j->name = "conv";
    if (needs_64_bits(j)) {
        j->blocks = t[0].tiles * o->chunks;
        j->text   = texts_of(j)->conv_wide;
    }
}

// Plans the gradient for w as a product over tiles of 64 columns: rows are output channels, columns
// input channels and taps, the depth all positions.
static void plan_weight_tiles(conv_launch *j)
{
    conv_params *o     = &j->o;
    o->channel_run     = is_channels_last(&j->arg[X]) && o->channels > 0 ? o->channels : 1;
    o->a_along_rows    = is_channels_last(&j->arg[Y]);
    o->b_along_columns = is_channels_last(&j->arg[X]);

    int64_t                   columns = tni_ceil_div(o->columns, 64) * o->groups;
    const char *const *const *text    = texts_of(j)->weights;
    const tiling t[]  = { { text[0], 64, columns * tni_ceil_div(o->out_channels, 64), 0.57 },
                          { text[1], 128, columns * tni_ceil_div(o->out_channels, 128), 0.95 },
                          { text[2], 16, columns * tni_ceil_div(o->out_channels, 16), 0.27 } };
    int64_t      rows = best_tiling(j, 3, t, o->images * tni_shape_count(3, o->y_size))->width;
    j->name           = "conv_weights";
    if (needs_64_bits(j)) {
        j->blocks = t[0].tiles * o->chunks;
        j->text   = texts_of(j)->weights_wide;
        rows      = t[0].width;
    }
    o->row_tiles = tni_ceil_div(o->out_channels, rows);
}

static const char *const *few_text(const conv_launch *j)
{
    return needs_64_bits(j) ? texts_of(j)->few_wide : texts_of(j)->few;
}

// Plans one item per element of the result, which goes over channels and taps by itself.
static void plan_direct(conv_launch *j)
{
    conv_params *o = &j->o;
    o->chunks      = 1;
    j->name        = "conv_direct";
    j->blocks      = tni_ceil_div(o->count, 64);
    j->items       = 64;
    j->text        = few_text(j);
}

// Plans the gradient for w of few channels: a group of 64 per element, or, with channels last, an
// item per element. The depth is split so that every multiprocessor has about 16 such small groups.
static void plan_direct_weights(conv_launch *j)
{
    enum { SMALL_GROUPS = 16 * MULTIPROCESSORS };
    conv_params *o     = &j->o;
    bool         last  = is_channels_last(&j->arg[X]) && is_channels_last(&j->arg[Y]);
    int64_t      depth = o->images * tni_shape_count(3, o->y_size);
    int64_t      tiles = last ? tni_ceil_div(o->count, 64) : o->count;
    int64_t      n = tni_ceil_div(SMALL_GROUPS, tiles), most = depth / (last ? 64 : 1024);
    set_chunks(o, depth, n < most ? n : most > 1 ? most : 1);
    j->name   = last ? "weights_direct_last" : "weights_direct";
    j->blocks = tiles * o->chunks;
    j->items  = 64;
    j->text   = few_text(j);
}

// Returns whether taps are next to each other, as the kernels without tiles count the weights.
static bool is_channels_first(const tni_arg *w)
{
    int64_t taps = w->size[2] * w->size[3] * w->size[4];
    return taps == 1 || w->size[1] == 1 || w->stride[1] == taps;
}

// Chooses the kernel. A tile that is nearly empty wastes its time, so that few columns, or few
// weights, go to the kernels without tiles.
static conv_launch plan_conv(const tni_call *c)
{
    conv_launch j       = describe_conv(c);
    bool        weights = c->op == TNI_conv_wgrad;
    bool        few     = j.o.out_channels * j.o.columns < 64;
    if (weights && few && is_channels_first(&j.arg[W])) plan_direct_weights(&j);
    else if (weights) plan_weight_tiles(&j);
    else if (j.o.columns <= 2) plan_direct(&j);
    else plan_tiles(&j);
    j.add = few_text(&j);
    return j;
}

// ---- running -----------------------------------------------------------------------------------

// Partial sums are in f32, or in f64 for f64.
static int64_t sum_bytes(const tni_call *c)
{
    return c->out.dtype == TN_F64 ? 8 : 4;
}

// Partial sums of all chunks, if there are several.
size_t tni_groups_conv_scratch(const tni_call *c)
{
    tni_call m;
    tni_arg  in[2];
    if (tni_conv_product(c, in, &m)) return 0;
    conv_launch j = plan_conv(c);
    return j.o.chunks > 1 ? (size_t)(j.o.chunks * j.o.count * sum_bytes(c)) : 0;
}

// Launches the kernel of a plan, into the result or, with several chunks, into scratch.
static tn_status launch_conv(const tni_call *c, const conv_launch *j)
{
    tni_kernel_args h;
    conv_params     o    = j->o;
    int64_t         size = (int64_t)tni_dtype_size(c->out.dtype);
    tn_status       s = tni_kernel_args_begin(&h, c, j->text, j->name, c->out.dtype, c->out.dtype);
    if (s != TN_OK) return s;
    o.x_offset       = tni_kernel_args_add_buffer(&h, j->arg[X].data) / size;
    o.w_offset       = tni_kernel_args_add_buffer(&h, j->arg[W].data) / size;
    o.y_offset       = tni_kernel_args_add_buffer(&h, j->arg[Y].data) / size;
    o.partial_offset = tni_kernel_args_add_buffer(&h, o.chunks > 1 ? c->scratch : c->out.data) /
                       sum_bytes(c);
    tni_kernel_args_add(&h, &o, sizeof o);
    return tni_kernel_args_launch(&h, j->blocks, j->items, c->why);
}

// Launches the kernel that adds the chunks' sums in their order.
static tn_status add_chunks(const tni_call *c, const conv_launch *j)
{
    tni_kernel_args h;
    conv_params     o = j->o;
    tn_status s = tni_kernel_args_begin(&h, c, j->add, "conv_add", c->out.dtype, c->out.dtype);
    if (s != TN_OK) return s;
    o.y_offset = tni_kernel_args_add_buffer(&h, c->out.data) /
                 (int64_t)tni_dtype_size(c->out.dtype);
    o.partial_offset = tni_kernel_args_add_buffer(&h, c->scratch) / sum_bytes(c);
    tni_kernel_args_add(&h, &o, sizeof o);
    return tni_kernel_args_launch(&h, tni_ceil_div(o.count, 256 / o.add_lanes), 256, c->why);
}

// Only a convolution that is a matmul can vary, as that does.
const char *tni_groups_conv_varies(const tni_call *c)
{
    tni_call           m;
    tni_arg            in[2];
    const tni_op_impl *product = tni_device_impl(c->device, TNI_matmul);
    return product->varies && tni_conv_product(c, in, &m) ? product->varies(&m) : NULL;
}

static bool is_aligned(const tni_call *c)
{
    return (uintptr_t)c->out.data % 16 == 0 && (uintptr_t)c->in[0].data % 16 == 0 &&
           (uintptr_t)c->in[1].data % 16 == 0;
}

// As a matmul if it is one in place, else by a kernel here.
tn_status tni_groups_conv(const tni_call *c)
{
    tni_call m;
    tni_arg  in[2];
    if (tni_conv_product(c, in, &m)) return tni_call_run(&m);
    if (tni_groups_takes_depthwise(c) && is_aligned(c))
        return tni_groups_depthwise(c, tni_groups_depthwise_text(c), c->out.data, NULL);
    conv_launch j = plan_conv(c);
    tn_status   s = launch_conv(c, &j);
    return s == TN_OK && j.o.chunks > 1 ? add_chunks(c, &j) : s;
}
