// Convolution and its gradients by the kernels of group_text_conv.c: as products over tiles, as one
// item an element where a group has very few channels, or as matmul where they are one.
#include "device/simt/groups.h"

#include "tensor/dtype.h"

#include <string.h>

enum { X, W, Y };

// `how` of the text.
typedef struct {
    int64_t x_at, w_at, y_at, part_at;
    int64_t images, groups, chans, cols, outs;
    int64_t x_image, x_chan, x_step[2], x_size[2];
    int64_t y_image, y_chan, y_step[2], y_size[2];
    int64_t w_group, w_chan, w_col, w_step[2];
    int64_t taps[2], step[2], pad[2], dilation[2], every[2], apart[2], kinds[2];
    int64_t run, down, chunk, chunks, count, lanes;
    int32_t back, last, a_across, b_across, y_across, unused;
} how;

// A kernel for a call, known but for addresses: it depends on sizes and strides alone. arg[] are
// what the text calls x, w and y.
typedef struct {
    how                o;
    const char *const *text, *const *add;  // add: of the kernel that adds chunks
    const char *name;
    int64_t     blocks;  // of the launch, each of so many items
    int         items, result;
    tni_arg     arg[3];
} job;

// ---- sizes and strides -------------------------------------------------------------------------

static int64_t common_divisor(int64_t a, int64_t b)
{
    return b ? common_divisor(b, a % b) : a;
}

// Whether channels are neighbours in memory, and places are not.
static bool lies_last(const tni_arg *x)
{
    return x->stride[1] == 1 && (x->stride[3] != 1 || x->size[3] == 1);
}

static void take_images(job *j)
{
    how           *o = &j->o;
    const tni_arg *x = &j->arg[X], *y = &j->arg[Y];
    o->images  = x->size[0];
    o->x_image = x->stride[0];
    o->x_chan  = x->stride[1];
    o->y_image = y->stride[0];
    o->y_chan  = y->stride[1];
    for (int i = 0; i < 2; i++) {
        o->x_step[i] = x->stride[2 + i];
        o->x_size[i] = x->size[2 + i];
        o->y_step[i] = y->stride[2 + i];
        o->y_size[i] = y->size[2 + i];
    }
}

static void take_weights(job *j, const tni_call *c)
{
    how           *o   = &j->o;
    const tni_arg *w   = &j->arg[W];
    int64_t        out = w->size[0] / o->groups, in = w->size[1];
    o->outs    = out;
    o->chans   = o->back ? out : in;
    o->cols    = o->back ? in : c->op == TNI_conv ? out : in * w->size[2] * w->size[3];
    o->w_group = out * w->stride[0];
    o->w_chan  = w->stride[o->back ? 0 : 1];
    o->w_col   = w->stride[o->back ? 1 : 0];
    for (int i = 0; i < 2; i++) {
        o->w_step[i] = w->stride[2 + i];
        o->taps[i]   = w->size[2 + i];
    }
}

static void take_taps(job *j, const tni_call *c)
{
    how *o = &j->o;
    for (int i = 0; i < 2; i++) {
        int64_t step = c->attr->conv.stride[i], dilation = c->attr->conv.dilation[i];
        int64_t both   = common_divisor(step, dilation);
        o->step[i]     = step;
        o->pad[i]      = c->attr->conv.padding[i];
        o->dilation[i] = dilation;
        o->every[i]    = step / both;
        o->apart[i]    = dilation / both;
        o->kinds[i]    = !o->back ? 1 : step < o->y_size[i] ? step : o->y_size[i];
    }
}

static job job_of(const tni_call *c)
{
    job j    = { .o = { .back = c->op == TNI_conv_dgrad, .groups = c->attr->conv.groups } };
    j.result = tni_conv_operands(c, j.arg);
    if (j.o.back) {
        tni_arg x = j.arg[X];
        j.arg[X]  = j.arg[Y];
        j.arg[Y]  = x;
        j.result  = Y;
    }
    take_images(&j);
    take_weights(&j, c);
    take_taps(&j, c);
    j.o.count = tni_shape_count(4, c->out.size);
    j.o.last  = lies_last(&j.arg[j.result]);
    return j;
}

// ---- how wide places are -----------------------------------------------------------------------

// How far places and coordinates go, with those outside of images that are computed and not used.
static double reach(const tni_arg *x, const how *o)
{
    double far = 1;
    for (int i = 0; i < 4; i++) {
        double past = i < 2 ? 0
                            : 2 * (double)o->pad[i - 2] +
                                  (double)o->taps[i - 2] * (double)o->dilation[i - 2];
        double step = (double)(x->stride[i] < 0 ? -x->stride[i] : x->stride[i]);
        far += (step > 1 ? step : 1) * ((double)x->size[i] + past);
    }
    return far;
}

// Whether some number does not fit in 31 bits. 1 << 30 is more than any coordinate.
static bool is_wide(const job *j)
{
    const how   *o     = &j->o;
    double       most  = (double)(1 << 30);
    const double all[] = { (double)j->blocks,
                           (double)o->count * (double)o->chunks,
                           reach(&j->arg[X], o),
                           reach(&j->arg[W], &(how){ 0 }),
                           reach(&j->arg[Y], o),
                           (double)o->chans * (double)o->taps[0] * (double)o->taps[1] + 256,
                           (double)o->images * (double)o->y_size[0] * (double)o->y_size[1] + 256,
                           (double)o->step[0],
                           (double)o->step[1] };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] >= most) return true;
    return false;
}

// ---- tiles and chunks --------------------------------------------------------------------------

// A kernel over tiles: how many of its tiles there are, and about how many microseconds one takes
// for 16 of the depth, on a multiprocessor of its own.
typedef struct {
    const char *const *text;
    int64_t            width, tiles;
    double             us;
} tiling;

// A GPU as large as those that the times are of. It decides how the depth is cut on all devices, so
// that sums are the same.
enum { UNITS = 132, MOST_SCRATCH = 32 << 20 };

static void set_chunks(how *o, int64_t depth, int64_t n)
{
    o->chunk  = depth > 0 ? tni_parts(tni_parts(depth, n), 16) * 16 : 16;
    o->chunks = depth > o->chunk ? tni_parts(depth, o->chunk) : 1;
    o->lanes  = o->chunks > 8 ? 16 : 1;
}

// What n chunks take, in microseconds. A multiprocessor with one group waits for memory; sums of
// chunks are written and read by one more launch.
static double cost(const tiling *t, int64_t depth, int64_t n, double bytes)
{
    enum { BEGIN = 3, LAUNCH = 3, BYTES_A_US = 3000000 };
    int64_t groups = tni_parts(t->tiles * n, UNITS);
    double  us     = t->us * (double)(tni_parts(tni_parts(depth, 16), n) + BEGIN);
    us *= groups == 1 ? 1.5 : (double)groups;
    return n > 1 ? us + LAUNCH + 2 * bytes * (double)n / BYTES_A_US : us;
}

// The number of chunks that is best, among those that fill the GPU once or several times; *us is
// lowered to what it takes, or 0 is given where nothing is below.
static int64_t best_chunks(const tiling *t, int64_t depth, double bytes, double *us)
{
    enum { FILLS = 8, LEAST = 32 };
    int64_t best = 0, most = depth / LEAST;
    for (int64_t m = 0; m <= FILLS; m++) {
        int64_t n = m ? UNITS * m / t->tiles : 1;
        if (n > most) n = most;
        if (n < 1) n = 1;
        if (n > 1 && bytes * (double)n > MOST_SCRATCH) break;
        double now = cost(t, depth, n, bytes);
        if (now >= *us) continue;
        *us  = now;
        best = n;
    }
    return best;
}

// The tiling of several that is best, and its chunks.
static const tiling *best_tiling(job *j, int count, const tiling *t, int64_t depth)
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

static void as_tiles(job *j)
{
    enum { ROWS = 128 };
    how    *o      = &j->o;
    int64_t places = o->images, taps = 1;
    for (int i = 0; i < 2; i++) {
        places *= o->back ? tni_parts(o->y_size[i], o->step[i]) : o->y_size[i];
        taps *= o->back ? tni_parts(o->taps[i], o->every[i]) : o->taps[i];
    }
    // Channels that lie last are taken as deep as a tile is, one tap a tile.
    int64_t deep = j->arg[X].dtype == TN_F64 ? 8 : 16;
    bool    last = lies_last(&j->arg[X]) && o->chans >= deep;
    o->run       = last ? deep : 1;
    o->a_across  = !last;
    o->b_across  = o->w_col == 1;
    o->y_across  = !o->last;
    o->down      = tni_parts(places, ROWS);

    int64_t      rows = o->down * o->kinds[0] * o->kinds[1] * o->groups;
    const tiling t[]  = { { tni_text_conv_64, 64, rows * tni_parts(o->cols, 64), 0.95 },
                          { tni_text_conv_32, 32, rows * tni_parts(o->cols, 32), 0.68 },
                          { tni_text_conv_16, 16, rows * tni_parts(o->cols, 16), 0.48 } };
    best_tiling(j, 3, t, tni_parts(o->chans, o->run) * o->run * taps);
    j->name = "conv";
    if (is_wide(j)) {
        j->blocks = t[0].tiles * o->chunks;
        j->text   = tni_text_conv_wide;
    }
}

static void as_tiles_of_weights(job *j)
{
    how *o      = &j->o;
    o->run      = lies_last(&j->arg[X]) && o->chans > 0 ? o->chans : 1;
    o->a_across = lies_last(&j->arg[Y]);
    o->b_across = lies_last(&j->arg[X]);

    int64_t      cols = tni_parts(o->cols, 64) * o->groups;
    const tiling t[]  = { { tni_text_weights_64, 64, cols * tni_parts(o->outs, 64), 0.57 },
                          { tni_text_weights_128, 128, cols * tni_parts(o->outs, 128), 0.95 },
                          { tni_text_weights_16, 16, cols * tni_parts(o->outs, 16), 0.27 } };
    int64_t      rows = best_tiling(j, 3, t, o->images * o->y_size[0] * o->y_size[1])->width;
    j->name           = "conv_weights";
    if (is_wide(j)) {
        j->blocks = t[0].tiles * o->chunks;
        j->text   = tni_text_weights_wide;
        rows      = t[0].width;
    }
    o->down = tni_parts(o->outs, rows);
}

static void as_items(job *j)
{
    how *o    = &j->o;
    o->chunks = 1;
    j->name   = "conv_direct";
    j->blocks = tni_parts(o->count, 64);
    j->items  = 64;
    j->text   = is_wide(j) ? tni_text_conv_few_wide : tni_text_conv_few;
}

// Small groups, 16 for each multiprocessor.
static void as_items_of_weights(job *j)
{
    enum { SMALL_GROUPS = 16 * UNITS };
    how    *o     = &j->o;
    bool    last  = lies_last(&j->arg[X]) && lies_last(&j->arg[Y]);
    int64_t depth = o->images * o->y_size[0] * o->y_size[1];
    int64_t tiles = last ? tni_parts(o->count, 64) : o->count;
    int64_t n = tni_parts(SMALL_GROUPS, tiles), most = depth / (last ? 64 : 1024);
    set_chunks(o, depth, n < most ? n : most > 1 ? most : 1);
    j->name   = last ? "weights_direct_last" : "weights_direct";
    j->blocks = tiles * o->chunks;
    j->items  = 64;
    j->text   = is_wide(j) ? tni_text_conv_few_wide : tni_text_conv_few;
}

// A tile that is nearly empty is worse than none.
static job choose(const tni_call *c)
{
    job  j       = job_of(c);
    bool weights = c->op == TNI_conv_wgrad;
    if (weights && j.o.outs * j.o.cols < 64) as_items_of_weights(&j);
    else if (weights) as_tiles_of_weights(&j);
    else if (j.o.cols <= 2) as_items(&j);
    else as_tiles(&j);
    j.add = is_wide(&j) ? tni_text_conv_few_wide : tni_text_conv_few;
    return j;
}

// ---- running -----------------------------------------------------------------------------------

static int64_t sum_size(const tni_call *c)
{
    return c->out.dtype == TN_F64 ? 8 : 4;
}

size_t tni_groups_conv_scratch(const tni_call *c)
{
    tni_call m;
    tni_arg  in[2];
    if (tni_conv_product(c, in, &m)) return 0;
    job j = choose(c);
    return j.o.chunks > 1 ? (size_t)(j.o.chunks * j.o.count * sum_size(c)) : 0;
}

static tn_status start(const tni_call *c, const job *j)
{
    tni_kernel_args h;
    how             o    = j->o;
    int64_t         size = (int64_t)tni_dtype_size(c->out.dtype);
    tn_status       s = tni_kernel_args_begin(&h, c, j->text, j->name, c->out.dtype, c->out.dtype);
    if (s != TN_OK) return s;
    o.x_at    = tni_kernel_args_add_buffer(&h, j->arg[X].data) / size;
    o.w_at    = tni_kernel_args_add_buffer(&h, j->arg[W].data) / size;
    o.y_at    = tni_kernel_args_add_buffer(&h, j->arg[Y].data) / size;
    o.part_at = tni_kernel_args_add_buffer(&h, o.chunks > 1 ? c->scratch : c->out.data) /
                sum_size(c);
    tni_kernel_args_add(&h, &o, sizeof o);
    return tni_kernel_args_launch(&h, j->blocks, j->items, c->why);
}

static tn_status add_chunks(const tni_call *c, const job *j)
{
    tni_kernel_args h;
    how             o = j->o;
    tn_status s = tni_kernel_args_begin(&h, c, j->add, "conv_add", c->out.dtype, c->out.dtype);
    if (s != TN_OK) return s;
    o.y_at    = tni_kernel_args_add_buffer(&h, c->out.data) / (int64_t)tni_dtype_size(c->out.dtype);
    o.part_at = tni_kernel_args_add_buffer(&h, c->scratch) / sum_size(c);
    tni_kernel_args_add(&h, &o, sizeof o);
    return tni_kernel_args_launch(&h, tni_parts(o.count, 256 / o.lanes), 256, c->why);
}

const char *tni_groups_conv_varies(const tni_call *c)
{
    tni_call           m;
    tni_arg            in[2];
    const tni_op_impl *product = tni_device_impl(c->device, TNI_matmul);
    return product->varies && tni_conv_product(c, in, &m) ? product->varies(&m) : NULL;
}

tn_status tni_groups_conv(const tni_call *c)
{
    tni_call m;
    tni_arg  in[2];
    if (tni_conv_product(c, in, &m)) return tni_call_run(&m);
    job       j = choose(c);
    tn_status s = start(c, &j);
    return s == TN_OK && j.o.chunks > 1 ? add_chunks(c, &j) : s;
}
