// Products by the kernel of product_cores_text.c, as one of the methods of with_kernel.h: which
// calls it takes, tiles, the maps of TMA, and launches.
#include "device/cuda/product_cores.h"

#include "base/integers.h"
#include "device/cuda/cores_text.h"
#include "device/cuda/cuda_conv.h"
#include "device/cuda/with_kernel.h"
#include "kernel/ending.h"

#include <stdlib.h>
#include <string.h>

enum { X, W, Y };

// The rows of a tile, and the steps of a stage.
enum { ROWS = 128, DEEP = 64 };

// The kernel's argument: `struct product` of the text, field by field. TMA wants its maps at
// multiples of 128 bytes.
typedef struct {
    tni_cutensor_map a, b, near[TNI_ENDING_FETCHES], changed[TNI_PRODUCT_CHANGES];
    char            *y, *sum, *parts, *made;
    int32_t          rows, columns, depth, stages, column_tiles, tiles;
} product_args;

_Static_assert(sizeof(product_args) == 1024, "the text declares the same fields");

// The arguments behind it: those of the kernels behind and before the call.
typedef struct {
    tni_ending_args ending, prologue;
} kernels_args;

// `struct finish` and `struct turning` of the texts.
typedef struct {
    const char *parts;
    int32_t     columns, count;
} finish_args;

typedef struct {
    const char *from;
    char       *to;
    int32_t     depth, columns;
} turn_args;

// blocks: as many as are launched. turned: bytes of b in rows, in the scratch; the partial sums are
// behind it. The functions are NULL before the first launch.
typedef struct {
    tni_product_case  text;
    int32_t           blocks;
    size_t            turned, parts;
    tni_text_program *program;
    void             *f, *finish, *turn;
} product_work;

// What is multiplied: a (rows, depth) and b (columns, depth), both of them dense; turned: b is
// (depth, columns).
typedef struct {
    int64_t rows, columns, depth;
    bool    turned;
} product_sizes;

// ---- texts -------------------------------------------------------------------------------------

// The stages and panels, at a multiple of 1,024 bytes that the block finds by itself, and the
// barriers of each.
int tni_product_cores_shared(const tni_product_case *x)
{
    int barriers = x->has_prologue ? 24 : 16;
    return 1024 + x->stages * (128 * (ROWS * (1 + x->changes) + x->ntiles * 8) + barriers) +
           x->panels * (x->nears * 128 * ROWS + 16);
}

// Eight warps that multiply, one that has operands copied, and one for the panels; with a prologue
// four that change a, and the copying ones are four as well, since registers are left by four at a
// time.
int tni_product_cores_threads(const tni_product_case *x)
{
    return x->has_prologue ? 512 : x->nears ? 320 : 288;
}

static void write_prologue(tni_out *o, const tni_product_case *x)
{
    if (x->has_prologue) {
        tni_out_print(o,
                      "#define PROLOGUE_PARAMS_IN , const ending_args &p\n"
                      "#define PROLOGUE_FETCH(i, x, q) "
                      "if constexpr ((i) == CHANGED_0) load_arrived(x, there + A_TILE); "
                      "else if constexpr ((i) == CHANGED_1) load_arrived(x, there + 2 * A_TILE); "
                      "else load_each(x, q);\n%s",
                      x->prologue);
        tni_put_text(o, tni_text_product_change);
    } else
        tni_out_print(o, "#define PROLOGUE_PARAMS\n"
                         "#define CHANGE_TILES(first, full, changed)\n");
}

// Called by tni_emit_program behind the prelude.
static void write_product(tni_out *o, const tni_dialect *d, const tni_emit_item *item)
{
    const tni_product_case *x = item->opts;
    tni_out_print(o, "#define GIVEN %s\n#define GLOBAL\ntypedef m_ushort elem;\n",
                  d->struct_qualifier);
    tni_out_print(o, "enum { IS_F16 = %d, IS_TF32 = 0, ALIGNED = 1, WARPS = %d, NTILES = %d,\n",
                  x->f16, ROWS / 16, x->ntiles);
    tni_out_print(o, "       STAGES = %d, BLOCKS = %d, TWICE = %d, ONCE = %d, SUMS = %d,\n",
                  x->stages, x->blocks, x->twice, x->once, x->sums);
    for (int i = 0; i < TNI_ENDING_FETCHES; i++)
        tni_out_print(o, "       NEAR_%d = %d,\n", i, i < x->nears ? x->near[i] : -1);
    tni_out_print(o, "       NEARS = %d, PANELS = %d, EACH = 8 };\n", x->nears, x->panels);
    tni_out_print(o,
                  "#define ENDING_LOAD(x, p) load_each(x, p);\n"
                  "#define ENDING_STORE(p, x) store_kept(p, x);\n"
                  "#define ENDING_FETCH(i, x, p) if constexpr ((i) == NEAR_0) load_near(x, here); "
                  "else if constexpr ((i) == NEAR_1) load_near(x, here + PANEL); "
                  "else if constexpr ((i) == NEAR_2) load_near(x, here + 2 * PANEL); "
                  "else load_each(x, p);\n%s",
                  x->ending ? x->ending : tni_no_ending);
    tni_put_text(o, tni_text_cores);
    tni_put_text(o, tni_text_cores_wgmma);
    tni_out_print(o,
                  "enum { HAS_PROLOGUE = %d, CHANGE_KEPT = %d, CHANGED = %d, CHANGED_0 = %d, "
                  "CHANGED_1 = %d };\n",
                  x->has_prologue, x->kept, x->changes, x->changes > 0 ? x->changed[0] : -1,
                  x->changes > 1 ? x->changed[1] : -1);
    tni_put_text(o, tni_text_product_cores);
    write_prologue(o, x);
    tni_put_text(o, tni_text_product_kernel);
    if (x->sums) tni_put_text(o, tni_text_product_finish);
    if (x->turned) tni_put_text(o, tni_text_product_turn);
}

char *tni_product_cores_source(tni_heap *h, const tni_product_case *x)
{
    tni_emit_item item = { .opts = x };
    return tni_emit_program(h, &tni_dialect_cuda, write_product, 1, &item, false);
}

// ---- which calls -------------------------------------------------------------------------------

// Whether a convolution is a product of the rows of x by those of w, and its data gradient one of
// the rows of y by w's columns: one tap, a step of one and nothing around the image, with channels
// last.
static bool finds_conv(const tni_call *call, product_sizes *z)
{
    int64_t       unused[5];
    tni_conv_form f = tni_conv_form_of(call, 3);
    z->turned       = call->op == TNI_conv_dgrad;
    bool ok         = (call->op == TNI_conv || z->turned) && f.groups == 1;
    for (int i = 0; i < 3; i++) {
        ok &= f.arg[W].size[2 + i] == 1 && f.stride[i] == 1 && f.padding[i] == 0;
        ok &= tni_conv_has_order(&f.arg[i], true, unused);
    }
    z->rows    = tni_shape_count(3, f.arg[Y].size + 2) * f.arg[Y].size[0];
    z->columns = f.arg[z->turned ? X : Y].size[1];
    z->depth   = f.arg[z->turned ? Y : X].size[1];
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
    z->turned  = b->stride[n] == 1 && b->stride[k] == z->columns;
    bool ok    = z->turned || (b->stride[k] == 1 && b->stride[n] == z->depth);
    ok &= is_dense(a) && is_dense(&call->out);
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

// Whether it may be faster than a library: there is a tile for each multiprocessor, where libraries
// would split sums, and a stage is full. With 16 to 32 steps of its 64 the libraries took half the
// time on an H200.
static bool is_promising(const tni_cuda *c, const product_sizes *z)
{
    return z->depth >= DEEP && z->rows >= ROWS &&
           z->rows * z->columns >= (int64_t)c->gpu->limits.units * ROWS * 64;
}

// Why the kernel before a call is no prologue of it. What it reads of each element beside the first
// comes with the stages, for which there is room twice. Its instructions are words of a form, as
// those of the kernel behind it are.
static const char *declines_prologue(const tni_call *call, const product_sizes *z)
{
    enum { INSTRUCTIONS = 128 };
    const tni_launch *l     = call->prologue;
    int64_t           count = 1;
    int               unused[TNI_ENDING_FETCHES], from = tni_prologue_from(l, z->depth);
    for (int i = 0; i < l->kernel->np; i++) count *= l->size[i];
    if (from < 0 || count != z->rows * z->depth)
        return "the kernel before it does more than map elements";
    if (l->kernel->nins + call->launch->kernel->nins > INSTRUCTIONS)
        return "the kernels are too long";
    int buffer = l->kernel->access[from].buffer;
    if (l->kernel->buffer[buffer].dtype != call->out.dtype)
        return "the kernel before it makes no operand of 16 bits";
    return tni_ending_fetches(l, buffer, z->depth, unused) > TNI_PRODUCT_CHANGES
               ? "the kernel before it reads too much"
               : NULL;
}

// TMA wants rows of multiples of 16 bytes, and b's rows are taken 32 at a time. Who asks for the
// method by name gets it whatever the sizes.
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
    int product = call->epilogue->product;
    if (!call->also_read && tni_ending_reads_first_row(call->launch, product, width_of(call)))
        return "the result is not stored";
    const char *why = call->prologue ? declines_prologue(call, &z) : NULL;
    if (why) return why;
    return tni_is_ending(call->launch, product, width_of(call))
               ? NULL
               : "the kernel behind it does more than map elements and add up columns";
}

// ---- forms -------------------------------------------------------------------------------------

// The tiles: wide ones read a less often, and of narrow ones two blocks fit on a multiprocessor,
// one of which stores while the other multiplies.
const tni_product_case tni_product_tiles[TNI_PRODUCT_TILES] = {
    { .ntiles = 32, .stages = 4, .blocks = 1 },
    { .ntiles = 16, .stages = 6, .blocks = 1 },
    { .ntiles = 8, .stages = 4, .blocks = 2 },
};

// How much of the work that tiles are made for is there: in the last turn of the blocks,
// multiprocessors are idle, and in the last tile of a row columns.
static double use_of(const tni_cuda *c, const tni_product_case *t, const product_sizes *z)
{
    int64_t across = tni_ceil_div(z->columns, t->ntiles * 8);
    int64_t all    = across * tni_ceil_div(z->rows, ROWS);
    int64_t room   = (int64_t)c->gpu->limits.units * t->blocks;
    double  wide   = (double)z->columns / (double)(across * t->ntiles * 8);
    return wide * (double)all / (double)(tni_ceil_div(all, room) * room);
}

// Returns the widest tile unless a narrower one is used better by a tenth. One is compiled, since
// that takes longer than timing it: between two that are used alike there were a few percent on an
// H200. first: the widest that has the registers.
static tni_product_case choose_tile(const tni_cuda *c, const product_sizes *z, int first)
{
    const tni_product_case *best = &tni_product_tiles[first];
    for (int i = first + 1; i < TNI_PRODUCT_TILES; i++)
        if (use_of(c, &tni_product_tiles[i], z) > 1.1 * use_of(c, best, z))
            best = &tni_product_tiles[i];
    return *best;
}

// What a multiprocessor has for stages and panels is 208 KB, 104 for each of two blocks. Two panels
// of each are enough if several are read: they take as long as the stages. Two blocks would not
// have the registers to add up as well.
void tni_product_cores_panels(tni_product_case *x)
{
    if (!x->nears && !x->has_prologue) return;
    if (x->nears > 1 || (x->nears && x->sums) || x->has_prologue) x->blocks = 1;
    int room  = 208 / x->blocks;
    x->panels = !x->nears ? 0 : x->nears > 1 || x->ntiles == 8 || x->has_prologue ? 2 : 4;
    x->stages = (room - x->panels * x->nears * 16) / (16 * (1 + x->changes) + x->ntiles);
}

// The widest tile that has registers for an ending. Sums are registers for each column of a lane:
// the widest tile has none for them, and the next only if the ending reads little besides. Beside a
// prologue warps have as many as the next needs.
static int first_tile(int sums, int nears, bool prologue)
{
    return prologue ? 1 : !sums ? 0 : sums + nears > 2 ? 2 : 1;
}

// Describes the prologue, but for its text.
static void add_prologue(const tni_call *call, const product_sizes *z, tni_product_case *x)
{
    const tni_launch *l    = call->prologue;
    int               from = tni_prologue_from(l, z->depth), access[TNI_ENDING_FETCHES];
    x->has_prologue        = true;
    x->kept                = call->prologue_kept;
    x->changes = tni_ending_fetches(l, l->kernel->access[from].buffer, z->depth, access);
    memcpy(x->changed, access, sizeof x->changed);
}

// Describes the text for a call, but for its ending and prologue.
static tni_product_case case_of(const tni_cuda *c, const tni_call *call, const product_sizes *z)
{
    const tni_launch *l       = call->launch;
    int               product = call->epilogue->product, sums = tni_ending_sums(l->kernel);
    int               near[TNI_ENDING_FETCHES] = { 0 };
    int               nears = tni_ending_fetches(l, product, width_of(call), near);
    tni_product_case  x     = choose_tile(c, z, first_tile(sums, nears, call->prologue != NULL));
    x.f16                   = call->out.dtype == TN_F16;
    x.pivots                = tni_ending_reads_first_row(l, product, width_of(call));
    x.twice                 = call->also_read;
    x.once                  = tni_ending_store(l->kernel, product) < 0;
    x.turned                = z->turned;
    x.sums                  = sums;
    x.nears                 = nears;
    memcpy(x.near, near, sizeof near);
    if (call->prologue) add_prologue(call, z, &x);
    tni_product_cores_panels(&x);
    return x;
}

// A block for each place on the multiprocessors, or for each tile if there are fewer. For the sake
// of sums all tiles of a block have the same columns.
static int32_t count_blocks(const tni_cuda *c, const tni_product_case *x, const product_sizes *z)
{
    int64_t across = tni_ceil_div(z->columns, x->ntiles * 8);
    int64_t all    = across * tni_ceil_div(z->rows, ROWS);
    int64_t room   = (int64_t)c->gpu->limits.units * x->blocks;
    if (x->sums) room = room > across ? room / across * across : across;
    return (int32_t)(all < room ? all : room);
}

// Begins to compile.
static void *open(tni_cuda *c, const tni_call *call)
{
    product_sizes z;
    tni_heap      heap     = tni_heap_default();
    product_work *w        = calloc(1, sizeof *w);
    bool          found    = finds_sizes(call, &z);
    char         *ending   = tni_ending_text(c->heap, &tni_dialect_cuda, call->launch,
                                             call->epilogue->product, width_of(call));
    char         *prologue = found && call->prologue
                                 ? tni_prologue_text(c->heap, &tni_dialect_cuda, call->prologue, z.depth)
                                 : NULL;
    if (w && ending && found && (prologue || !call->prologue)) {
        w->text          = case_of(c, call, &z);
        w->blocks        = count_blocks(c, &w->text, &z);
        w->turned        = z.turned ? (size_t)tni_align64(z.columns * z.depth * 2) : 0;
        int64_t across   = tni_ceil_div(z.columns, w->text.ntiles * 8);
        w->parts         = (size_t)(w->blocks / across * w->text.sums * z.columns * 4);
        w->text.ending   = ending;
        w->text.prologue = prologue;
        w->program = tni_compiled_text(c->gpu->compiled, tni_product_cores_source(&heap, &w->text),
                                       "cores_product");
        w->text.ending = w->text.prologue = NULL;  // they are part of the program's text
    }
    tni_free(c->heap, ending);
    tni_free(c->heap, prologue);
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
    const product_work *w = work;
    return w->turned + w->parts;
}

// ---- launches ----------------------------------------------------------------------------------

// Tells TMA of a matrix of rows of `depth` elements, of which a box of `deep` steps is copied as
// rows of 128 bytes, swizzled as cores_text.c describes.
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

// Row 32 i + 8 t + 2 j + e has the place e, t, j, i, so that the tile has these rows in the order
// i, j, t, e. columns: of a tile.
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

// Finds the functions of the program, which waits until it is compiled.
static bool find_functions(product_work *w, tn_status *s, tni_text *why)
{
    if (w->text.turned && !w->turn)
        w->turn = tni_compiled_text_kernel(w->program, "cores_turn", s, why);
    if (w->text.sums && !w->finish)
        w->finish = tni_compiled_text_kernel(w->program, "cores_finish", s, why);
    if (!w->f) w->f = tni_compiled_text_kernel(w->program, "cores_product", s, why);
    return w->f && (w->turn || !w->text.turned) && (w->finish || !w->text.sums);
}

// Copies b into rows.
static int launch_turn(tni_cuda *c, const product_work *w, const product_sizes *z, const char *from,
                       char *to)
{
    turn_args         o        = { from, to, (int32_t)z->depth, (int32_t)z->columns };
    uint32_t          offset[] = { 0, sizeof o };
    tni_launch_record d        = { .f        = w->turn,
                                   .grid     = { (unsigned)(z->columns / 32),
                                                 (unsigned)tni_ceil_div(z->depth, 32), 1 },
                                   .block    = { 256, 1, 1 },
                                   .overlaps = c->gpu->overlaps,
                                   .args     = 1 };
    return tni_replay_launch(c, &d, offset, (const char *)&o);
}

static int launch_product(tni_cuda *c, const product_work *w, const product_args *o, int32_t blocks,
                          const kernels_args *kernels)
{
    struct {
        product_args o;
        kernels_args kernels;
    } args;
    uint32_t          offset[] = { 0, sizeof *o, sizeof *o + sizeof kernels->ending, sizeof args };
    tni_launch_record d        = { .f        = w->f,
                                   .grid     = { (unsigned)blocks, 1, 1 },
                                   .block    = { (unsigned)tni_product_cores_threads(&w->text), 1, 1 },
                                   .shared   = (unsigned)tni_product_cores_shared(&w->text),
                                   .overlaps = c->gpu->overlaps,
                                   .args     = w->text.has_prologue ? 3 : 2 };
    memcpy(&args.o, o, sizeof *o);
    memcpy(&args.kernels, kernels, sizeof *kernels);
    return tni_replay_launch(c, &d, offset, (const char *)&args);
}

// Computes the first row, with those of its tiles. What it adds up is not right, since it does not
// know that row yet, and is overwritten.
static int launch_pivots(tni_cuda *c, const product_work *w, const product_args *o,
                         const kernels_args *kernels)
{
    product_args first = *o;
    first.tiles        = o->column_tiles;
    return launch_product(c, w, &first, o->column_tiles, kernels);
}

// Adds up what the blocks of a column tile left.
static int launch_finish(tni_cuda *c, const product_work *w, const product_args *o,
                         const tni_ending_args *ending)
{
    struct {
        finish_args     o;
        tni_ending_args ending;
    } args                     = { { o->parts, o->columns, w->blocks / o->column_tiles }, *ending };
    uint32_t          offset[] = { 0, sizeof args.o, sizeof args };
    tni_launch_record d        = { .f        = w->finish,
                                   .grid     = { (unsigned)(o->columns / 32), 1, 1 },
                                   .block    = { 256, 1, 1 },
                                   .overlaps = c->gpu->overlaps,
                                   .args     = 2 };
    return tni_replay_launch(c, &d, offset, (const char *)&args);
}

static int map_operands(const tni_driver *cu, const product_work *w, const product_sizes *z,
                        const char *a, const char *b, const kernels_args *kernels, product_args *o)
{
    int e = map_a(cu, &o->a, a, z);
    if (e == TNI_CU_OK) e = map_b(cu, &o->b, b, z, w->text.ntiles * 8);
    for (int i = 0; i < w->text.nears && e == TNI_CU_OK; i++)
        e = map_near(cu, &o->near[i], kernels->ending.from[w->text.near[i]], z);
    for (int i = 0; i < w->text.changes && e == TNI_CU_OK; i++)
        e = map_a(cu, &o->changed[i], kernels->prologue.from[w->text.changed[i]], z);
    return e;
}

// Finds the arguments of the kernel before a call, and what a is made from.
static const char *find_prologue(const tni_call *call, const product_sizes *z,
                                 kernels_args *kernels, product_args *o)
{
    const tni_launch *l = call->prologue;
    kernels->prologue   = tni_ending_args_of(l);
    o->made             = kernels->prologue.from[tni_prologue_store(l->kernel)];
    return kernels->prologue.from[tni_prologue_from(l, z->depth)];
}

// Addresses have to be multiples of 16 bytes.
static tn_status launch(tni_cuda *c, void *work, const tni_call *call, int candidate, tni_text *why)
{
    product_work *w = work;
    product_sizes z;
    product_args  o;
    kernels_args  kernels = { .ending = tni_ending_args_of(call->launch) };
    int           store   = tni_ending_store(call->launch->kernel, call->epilogue->product);
    tn_status     s       = TN_OK;
    (void)candidate;
    if (!finds_sizes(call, &z) || z.turned != w->text.turned) return TN_EARG;
    if (!find_functions(w, &s, why)) return s;
    memset(&o, 0, sizeof o);
    o.y           = store < 0 ? NULL : kernels.ending.from[store];
    const char *a = call->in[0].data, *b = call->in[1].data;
    if (call->prologue) a = find_prologue(call, &z, &kernels, &o);
    if (((uintptr_t)a | (uintptr_t)b | (uintptr_t)o.y | (uintptr_t)call->out.data) % 16) {
        tni_text_add(why, "an operand is not at a multiple of 16 bytes");
        return TN_EARG;
    }
    int64_t column_tiles = tni_ceil_div(z.columns, w->text.ntiles * 8);
    int64_t all          = column_tiles * tni_ceil_div(z.rows, ROWS);
    if (all >= INT32_MAX / 2) return TN_EARG;
    o.sum          = call->out.data;
    o.parts        = w->text.sums ? (char *)call->scratch + w->turned : NULL;
    o.rows         = (int32_t)z.rows;
    o.columns      = (int32_t)z.columns;
    o.depth        = (int32_t)z.depth;
    o.stages       = (int32_t)tni_ceil_div(z.depth, DEEP);
    o.column_tiles = (int32_t)column_tiles;
    o.tiles        = (int32_t)all;
    int e          = map_operands(c->gpu->cu, w, &z, a, z.turned ? call->scratch : b, &kernels, &o);
    if (e != TNI_CU_OK) return tni_cuda_status(c, e, "describing a matrix", why);
    if (z.turned) e = launch_turn(c, w, &z, b, call->scratch);
    if (e == TNI_CU_OK && w->text.pivots) e = launch_pivots(c, w, &o, &kernels);
    if (e == TNI_CU_OK) e = launch_product(c, w, &o, w->blocks, &kernels);
    if (e == TNI_CU_OK && w->text.sums) e = launch_finish(c, w, &o, &kernels.ending);
    return tni_cuda_status(c, e, "multiplying", why);
}

static size_t version(void)
{
    return TNI_PRODUCT_CORES_VERSION;
}

const tni_method tni_call_by_tiles = { .name     = "Tenon's tiles",
                                       .version  = version,
                                       .declines = declines,
                                       .open     = open,
                                       .count    = count,
                                       .scratch  = scratch,
                                       .launch   = launch };
