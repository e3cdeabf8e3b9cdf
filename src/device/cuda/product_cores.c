// Products by the kernel of product_cores_text.c, as one of the methods of cuda_conv.h: which calls it takes, tiles, the
// maps of TMA, and launches.
#include "device/cuda/product_cores.h"

#include "base/integers.h"
#include "device/cuda/cores_text.h"
#include "device/cuda/cuda_conv.h"
#include "kernel/ending.h"

#include <stdlib.h>
#include <string.h>

enum { X, W, Y };

// The rows of a tile, and the steps of a stage.
enum { ROWS = 128, DEEP = 64 };

// The kernel's argument: `struct product` of the text, field by field. TMA wants its maps at multiples of 128 bytes.
typedef struct {
    tni_cutensor_map a, b, near;
    char            *y, *sum;
    int32_t          rows, columns, stages, column_tiles, tiles;
} product_args;

_Static_assert(sizeof(product_args) == 512, "the text declares the same fields");

typedef struct {
    tni_product_case  text;
    tni_text_program *program;
    void             *f;  // NULL before the first launch
} product_work;

// What is multiplied: a (rows, depth) and b (columns, depth), both of them dense.
typedef struct {
    int64_t rows, columns, depth;
} product_sizes;

// ---- texts -------------------------------------------------------------------------------------

// The stages and panels, at a multiple of 1,024 bytes that the block finds by itself, and two barriers for each.
int tni_product_cores_shared(const tni_product_case *x)
{
    return 1024 + x->stages * (128 * (ROWS + x->ntiles * 8) + 16) + x->panels * (128 * ROWS + 16);
}

// Eight warps that multiply, one that has operands copied, and one for the panels.
int tni_product_cores_threads(const tni_product_case *x)
{
    return x->near ? 320 : 288;
}

// Called by tni_emit_program behind the prelude.
static void write_product(tni_out *o, const tni_dialect *d, const tni_emit_item *item)
{
    const tni_product_case *x = item->opts;
    tni_out_print(o, "#define GIVEN %s\n#define GLOBAL\ntypedef m_ushort elem;\n",
                  d->struct_qualifier);
    tni_out_print(o, "enum { IS_F16 = %d, IS_TF32 = 0, ALIGNED = 1, WARPS = %d, NTILES = %d,\n",
                  x->f16, ROWS / 16, x->ntiles);
    tni_out_print(o, "       STAGES = %d, BLOCKS = %d, TWICE = %d,\n", x->stages, x->blocks,
                  x->twice);
    tni_out_print(o, "       NEAR = %d, PANELS = %d, EACH = 8 };\n", x->near - 1, x->panels);
    tni_out_print(o,
                  "#define ENDING_LOAD(x, p) load_each(x, p);\n"
                  "#define ENDING_STORE(p, x) store_kept(p, x);\n"
                  "#define ENDING_FETCH(i, x, p) if constexpr ((i) == NEAR) load_near(x, here); "
                  "else load_each(x, p);\n%s",
                  x->ending ? x->ending : tni_no_ending);
    tni_put_text(o, tni_text_cores);
    tni_put_text(o, tni_text_cores_wgmma);
    tni_put_text(o, tni_text_product_cores);
}

char *tni_product_cores_source(tni_heap *h, const tni_product_case *x)
{
    tni_emit_item item = { .opts = x };
    return tni_emit_program(h, &tni_dialect_cuda, write_product, 1, &item, false);
}

// ---- which calls -------------------------------------------------------------------------------

// Whether a convolution is a product of the rows of x by those of w: one tap, a step of one and nothing around the
// image, with channels last.
static bool finds_conv(const tni_call *call, product_sizes *z)
{
    int64_t       unused[5];
    tni_conv_form f  = tni_conv_form_of(call, 3);
    bool          ok = call->op == TNI_conv && f.groups == 1;
    for (int i = 0; i < 3; i++) {
        ok &= f.arg[W].size[2 + i] == 1 && f.stride[i] == 1 && f.padding[i] == 0;
        ok &= tni_conv_has_order(&f.arg[i], true, unused);
    }
    z->rows    = tni_shape_count(3, f.arg[Y].size + 2) * f.arg[Y].size[0];
    z->columns = f.arg[Y].size[1];
    z->depth   = f.arg[X].size[1];
    return ok;
}

// Axes of one element may have any stride.
static bool is_dense(const tni_arg *x)
{
    int64_t step = 1;
    for (int i = x->rank - 1; i >= 0; i--) {
        if (x->size[i] != 1 && x->stride[i] != step) return false;
        step *= x->size[i];
    }
    return true;
}

// The same of a product of matrices: all of a's are the rows of one, and b is the same for all.
static bool finds_matmul(const tni_call *call, product_sizes *z)
{
    const tni_arg *a = &call->in[0], *b = &call->in[1];
    int            k = b->rank - 2, n = b->rank - 1;
    if (a->rank < 2 || b->rank < 2 || call->out.rank != a->rank) return false;
    z->depth   = b->size[k];
    z->columns = b->size[n];
    z->rows    = z->columns ? tni_shape_count(call->out.rank, call->out.size) / z->columns : 0;
    bool ok = b->stride[k] == 1 && b->stride[n] == z->depth && is_dense(a) && is_dense(&call->out);
    int64_t rows = tni_shape_count(a->rank, a->size) / (z->depth ? z->depth : 1);
    for (int i = 0; i < k; i++) ok &= b->size[i] == 1 || b->stride[i] == 0;
    return ok && rows == z->rows;
}

static bool finds_sizes(const tni_call *call, product_sizes *z)
{
    return call->op == TNI_matmul ? finds_matmul(call, z) : finds_conv(call, z);
}

static int64_t width_of(const tni_call *call)
{
    return call->out.size[call->out.rank - 1];
}

// Whether it may be faster than a library: there is a tile for each multiprocessor, where libraries would split sums, and a
// stage is full. With 16 to 32 steps of its 64 the libraries took half the time on an H200.
static bool is_promising(const tni_cuda *c, const product_sizes *z)
{
    return z->depth >= DEEP && z->rows * z->columns >= (int64_t)c->gpu->limits.units * ROWS * 64;
}

// TMA wants rows of multiples of 16 bytes, and b's rows are taken 32 at a time. Who asks for the method by name gets it
// whatever the sizes.
static const char *declines(tni_cuda *c, const tni_call *call)
{
    product_sizes z;
    tn_dtype      dt = call->out.dtype;
    if (!c->conv_cores) return "TN_CORES=0";
    if (!c->gpu->cu->tensor_map || !tni_gpu_has_wgmma(c->gpu))
        return "the GPU or driver has no TMA";
    if (dt != TN_F16 && dt != TN_BF16) return "operands are not of 16 bits";
    if (!finds_sizes(call, &z)) return "it is no product of rows by rows";
    if (z.columns % 32 || z.depth % 8) return "sizes are no multiples of 32 and 8";
    if (z.rows >= INT32_MAX || z.columns >= INT32_MAX || z.depth >= INT32_MAX || !z.rows ||
        !z.depth)
        return "it is too large or empty";
    if (!*c->method && !is_promising(c, &z)) return "it is too small";
    return tni_is_ending(call->launch, call->epilogue->product, width_of(call))
               ? NULL
               : "the kernel behind it does more than map elements";
}

// ---- forms -------------------------------------------------------------------------------------

// The tiles: wide ones read a less often, and of narrow ones two blocks fit on a multiprocessor, one of which stores
// while the other multiplies.
const tni_product_case tni_product_tiles[TNI_PRODUCT_TILES] = {
    { .ntiles = 32, .stages = 4, .blocks = 1 },
    { .ntiles = 16, .stages = 6, .blocks = 1 },
    { .ntiles = 8, .stages = 4, .blocks = 2 },
};

// How much of the work that tiles are made for is there: in the last turn of the blocks, multiprocessors are idle, and in
// the last tile of a row columns.
static double use_of(const tni_cuda *c, const tni_product_case *t, const product_sizes *z)
{
    int64_t across = tni_ceil_div(z->columns, t->ntiles * 8);
    int64_t all    = across * tni_ceil_div(z->rows, ROWS);
    int64_t room   = (int64_t)c->gpu->limits.units * t->blocks;
    double  wide   = (double)z->columns / (double)(across * t->ntiles * 8);
    return wide * (double)all / (double)(tni_ceil_div(all, room) * room);
}

// Returns the widest tile unless a narrower one is used better by a tenth. One is compiled, since that takes
// longer than timing it: between two that are used alike there were a few percent on an H200.
static const tni_product_case *choose_tile(const tni_cuda *c, const product_sizes *z)
{
    const tni_product_case *best = &tni_product_tiles[0];
    for (int i = 1; i < TNI_PRODUCT_TILES; i++)
        if (use_of(c, &tni_product_tiles[i], z) > 1.1 * use_of(c, best, z))
            best = &tni_product_tiles[i];
    return best;
}

// Exchanges 32 KB of stages for four panels, or one stage.
void tni_product_cores_panels(tni_product_case *x)
{
    x->stages -= x->ntiles == 16 ? 2 : 1;
    x->panels = x->ntiles == 8 ? 2 : 4;
}

// Begins to compile.
static void *open(tni_cuda *c, const tni_call *call)
{
    product_sizes z;
    int           product = call->epilogue->product;
    tni_heap      heap    = tni_heap_default();
    product_work *w       = calloc(1, sizeof *w);
    char         *ending  = tni_ending_text(c->heap, &tni_dialect_cuda, call->launch, product,
                                            width_of(call));
    if (w && ending && finds_sizes(call, &z)) {
        w->text        = *choose_tile(c, &z);
        w->text.f16    = call->out.dtype == TN_F16;
        w->text.twice  = call->also_read;
        w->text.near   = 1 + tni_ending_fetch(call->launch, product, width_of(call));
        w->text.ending = ending;
        if (w->text.near) tni_product_cores_panels(&w->text);
        w->program = tni_compiled_text(c->gpu->compiled, tni_product_cores_source(&heap, &w->text),
                                       "cores_product");
        w->text.ending = NULL;  // it is part of the program's text
    }
    tni_free(c->heap, ending);
    if (w && w->program) return w;
    free(w);
    return NULL;
}

static int count(void *work)
{
    return work != NULL;
}

static size_t scratch(void *work)
{
    (void)work;
    return 0;
}

// ---- launches ----------------------------------------------------------------------------------

// Tells TMA of a matrix of rows of `depth` elements, of which a box of `deep` steps is copied as rows of 128 bytes,
// swizzled as cores_text.c describes.
static int map_tensor(const tni_driver *cu, tni_cutensor_map *m, const char *at, int rank,
                      const uint64_t *size, const uint64_t *bytes, const uint32_t *box)
{
    static const uint32_t every[5] = { 1, 1, 1, 1, 1 };
    return cu->tensor_map(m, TNI_CU_TENSOR_U16, (uint32_t)rank, (void *)(uintptr_t)at, size, bytes,
                          box, every, 0, TNI_CU_SWIZZLE_128, TNI_CU_PROMOTE_256, 0);
}

static int map_a(const tni_driver *cu, tni_cutensor_map *m, const char *at, const product_sizes *z)
{
    uint64_t size[]  = { (uint64_t)z->depth, (uint64_t)z->rows };
    uint64_t bytes[] = { (uint64_t)z->depth * 2 };
    uint32_t box[]   = { DEEP, ROWS };
    return map_tensor(cu, m, at, 2, size, bytes, box);
}

// Row 32 i + 8 t + 2 j + e has the place e, t, j, i, so that the tile has these rows in the order i, j, t, e. columns: of a
// tile.
static int map_b(const tni_driver *cu, tni_cutensor_map *m, const char *at, const product_sizes *z,
                 int columns)
{
    uint64_t row     = (uint64_t)z->depth * 2;
    uint64_t size[]  = { (uint64_t)z->depth, 2, 4, 4, (uint64_t)z->columns / 32 };
    uint64_t bytes[] = { row, row * 8, row * 2, row * 32 };
    uint32_t box[]   = { DEEP, 2, 4, 4, (uint32_t)columns / 32 };
    return map_tensor(cu, m, at, 5, size, bytes, box);
}

static int map_near(const tni_driver *cu, tni_cutensor_map *m, const char *at,
                    const product_sizes *z)
{
    uint64_t size[]  = { (uint64_t)z->columns, (uint64_t)z->rows };
    uint64_t bytes[] = { (uint64_t)z->columns * 2 };
    uint32_t box[]   = { 64, ROWS };
    return map_tensor(cu, m, at, 2, size, bytes, box);
}

// Launches a block for each place on the multiprocessors, or for each tile if there are fewer.
static tn_status launch_kernel(tni_cuda *c, const product_work *w, const product_args *o,
                               const tni_ending_args *ending, tni_text *why)
{
    struct {
        product_args    o;
        tni_ending_args ending;
    } args;
    uint32_t          offset[] = { 0, sizeof *o, sizeof *o + sizeof *ending };
    int32_t           room     = c->gpu->limits.units * w->text.blocks;
    tni_launch_record d        = { .f        = w->f,
                                   .grid     = { (unsigned)(o->tiles < room ? o->tiles : room), 1, 1 },
                                   .block    = { (unsigned)tni_product_cores_threads(&w->text), 1, 1 },
                                   .shared   = (unsigned)tni_product_cores_shared(&w->text),
                                   .overlaps = c->gpu->overlaps,
                                   .args     = 2 };
    memcpy(&args.o, o, sizeof *o);
    memcpy(&args.ending, ending, sizeof *ending);
    return tni_cuda_status(c, tni_replay_launch(c, &d, offset, (const char *)&args), "multiplying",
                           why);
}

// Addresses have to be multiples of 16 bytes.
static tn_status launch(tni_cuda *c, void *work, const tni_call *call, int candidate, tni_text *why)
{
    product_work   *w = work;
    product_sizes   z;
    product_args    o;
    tni_ending_args ending = tni_ending_args_of(call->launch);
    tn_status       s      = TN_OK;
    int             width  = w->text.ntiles * 8;
    (void)candidate;
    if (!finds_sizes(call, &z)) return TN_EARG;
    if (!w->f && !(w->f = tni_compiled_text_kernel(w->program, "cores_product", &s, why))) return s;
    memset(&o, 0, sizeof o);
    o.y           = ending.from[tni_ending_store(call->launch->kernel, call->epilogue->product)];
    const char *a = call->in[0].data, *b = call->in[1].data;
    if (((uintptr_t)a | (uintptr_t)b | (uintptr_t)o.y | (uintptr_t)call->out.data) % 16) {
        tni_text_add(why, "an operand is not at a multiple of 16 bytes");
        return TN_EARG;
    }
    int e = map_a(c->gpu->cu, &o.a, a, &z);
    if (e == TNI_CU_OK) e = map_b(c->gpu->cu, &o.b, b, &z, width);
    if (e == TNI_CU_OK && w->text.near)
        e = map_near(c->gpu->cu, &o.near, ending.from[w->text.near - 1], &z);
    if (e != TNI_CU_OK) return tni_cuda_status(c, e, "describing a matrix", why);
    int64_t column_tiles = tni_ceil_div(z.columns, width);
    int64_t all          = column_tiles * tni_ceil_div(z.rows, ROWS);
    if (all >= INT32_MAX / 2) return TN_EARG;
    o.sum          = call->out.data;
    o.rows         = (int32_t)z.rows;
    o.columns      = (int32_t)z.columns;
    o.stages       = (int32_t)tni_ceil_div(z.depth, DEEP);
    o.column_tiles = (int32_t)column_tiles;
    o.tiles        = (int32_t)all;
    return launch_kernel(c, w, &o, &ending, why);
}

static size_t version(void)
{
    return TNI_PRODUCT_CORES_VERSION;
}

const tni_method tni_conv_by_tiles = { .name     = "Tenon's tiles",
                                       .version  = version,
                                       .declines = declines,
                                       .open     = open,
                                       .count    = count,
                                       .scratch  = scratch,
                                       .launch   = launch };
