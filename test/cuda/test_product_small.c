// test_product_small.c: small products of f32 by our own kernel: which it takes and how they are
// cut, and, where there is a GPU, what it gives, with all that may follow a product.
//
//     TN_GRAPHS=64 tenon-tests product_small   takes about that many of its shapes, for who watches
#include "check.h"
#include "gpu_parts.h"
#include "product_kit.h"

#include "device/cuda/gpu.h"
#include "device/cuda/product_small.h"
#include "engine/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tenon.h>

enum { UNITS = 132 };

static tni_product product_of(int64_t rows, int64_t cols, int64_t depth)
{
    return (tni_product){
        .in = TN_F32, .out = TN_F32, .rows = rows, .cols = cols, .depth = depth, .batch = 1
    };
}

static void small_products_of_f32_are_taken(void)
{
    tni_product p = product_of(256, 64, 1024);
    CHECK(tni_small_takes(&p));
    p.depth++;
    CHECK(!tni_small_takes(&p));
    p = product_of(INT32_MAX, INT32_MAX, INT32_MAX);
    CHECK(!tni_small_takes(&p));
    p       = product_of(64, 64, 64);
    p.batch = 2;
    CHECK(!tni_small_takes(&p));
    p       = product_of(64, 64, 64);
    p.loops = 1;
    CHECK(!tni_small_takes(&p));
    p     = product_of(64, 64, 64);
    p.out = p.in = TN_BF16;
    CHECK(!tni_small_takes(&p));
    for (int i = 0; i < PRODUCT_AFTERS; i++) {
        product_after after = product_after_of(i);
        bool          takes = !after.end.scaled && !after.end.residual &&
                     after.end.activation != TNI_gelu_tanh;
        p          = product_of(64, 64, 64);
        p.epilogue = after.end;
        test_case_result(tni_small_takes(&p) == takes, "with what follows by number %d", i);
    }
}

// Slices cover the inner axis, none is empty, and each begins at a multiple of four.
static void every_step_of_the_inner_axis_is_in_one_slice(void)
{
    for (int64_t depth = 1; depth < 3000; depth++) {
        tni_product     p  = product_of(1 + depth % 90, 1 + depth % 70, depth);
        tni_small_split c  = tni_small_split_of(&p, UNITS);
        bool            ok = c.slice % 4 == 0 && (int64_t)c.slice * c.ranks >= depth &&
                  (int64_t)c.slice * (c.ranks - 1) < depth &&
                  (c.ranks == 1 || c.tiles * c.ranks <= UNITS);
        test_case_result(ok, "depth %d: %d slices of %d", (int)depth, c.ranks, c.slice);
    }
}

static void the_products_of_a_small_step_fill_a_gpu(void)
{
    static const struct {
        int64_t rows, cols, depth;
        int     ranks;
        int64_t blocks;
    } row[] = { { 256, 64, 784, 8, 128 },
                { 128, 64, 256, 8, 64 },
                { 10, 64, 128, 4, 8 },
                { 128, 256, 64, 2, 64 },
                { 784, 256, 64, 1, 200 } };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        tni_product     p = product_of(row[i].rows, row[i].cols, row[i].depth);
        tni_small_split c = tni_small_split_of(&p, UNITS);
        CHECK_INT(c.ranks, row[i].ranks);
        CHECK_INT(c.tiles * c.ranks, row[i].blocks);
    }
}

// ---- on a GPU ----------------------------------------------------------------------------------

enum { ROOM = 16 << 20, MOST_WIDTH = 784 };

// A session with room for operands and a bias; and how many products were taken so far, by the
// blocks on a tile.
typedef struct {
    tni_heap  heap;
    tni_cuda *c;
    char     *mem[3], *bias;
    int       taken[TNI_SMALL_RANKS + 1];
} bench;

static bool open_bench(bench *b)
{
    tni_text  why = { "" };
    tn_status s   = TN_OK;
    *b            = (bench){ .heap = tni_heap_default() };
    b->c          = tni_device_cuda.open(&b->heap, &(tni_device_open_args){ 0 }, &s, &why);
    if (!test_that(b->c != NULL, "%s", why.s)) return false;
    for (int i = 0; i < 3; i++) b->mem[i] = tni_cuda_alloc(b->c, ROOM);
    b->bias = tni_cuda_alloc(b->c, MOST_WIDTH * sizeof(float));
    return CHECK(b->mem[0] && b->mem[1] && b->mem[2] && b->bias);
}

static void close_bench(bench *b)
{
    for (int i = 0; i < 3; i++) tni_cuda_free(b->c, b->mem[i]);
    tni_cuda_free(b->c, b->bias);
    tni_device_cuda.close(b->c);
}

// The call of a case with its operands on the GPU, each so many elements on.
static tni_call on_gpu(const bench *b, const product_case *c, tni_arg in[2], int shift)
{
    tni_call y = c->call;
    for (int i = 0; i < 3; i++) {
        tni_arg *v = i < 2 ? &in[i] : &y.out;
        *v         = i < 2 ? c->in[i] : c->call.out;
        v->data    = b->mem[i] + shift * 4 + (v->data - c->mem[i]);
    }
    y.in = in;
    return y;
}

static bool copy_all(const bench *b, const product_case *c, int shift, tni_text *why)
{
    bool ok = true;
    for (int i = 0; i < 3; i++)
        ok = ok && c->count[i] * 4 + shift * 4 <= ROOM &&
             tni_cuda_upload(b->c, b->mem[i] + shift * 4, TN_F32, c->mem[i], c->count[i], why) ==
                 TN_OK;
    return ok && c->count[PRODUCT_BIAS] <= MOST_WIDTH &&
           tni_cuda_upload(b->c, b->bias, TN_F32, c->mem[PRODUCT_BIAS], c->count[PRODUCT_BIAS],
                           why) == TN_OK;
}

// Whether a case gives what it should, and writes nothing else; also true of one that is not taken.
static bool agrees(bench *b, product_case *c, int after, int shift, double tol, tni_text *why)
{
    tni_arg       in[2];
    tni_product   p;
    tni_call      call    = on_gpu(b, c, in, shift);
    product_after follows = product_after_of(after);
    if (!tni_product_of(&call, &p) || !tni_product_add_epilogue(&p, &follows.end)) return true;
    p.bias = b->bias;
    if (!tni_small_takes(&p)) return true;
    b->taken[tni_small_split_of(&p, b->c->gpu->limits.units).ranks]++;
    double *want = product_want(c, &follows);
    bool    ok   = want && copy_all(b, c, shift, why) &&
              tni_small_launch(b->c, &p, p.at[2], true) == TNI_CU_OK &&
              tni_cuda_download(b->c, c->mem[2], TN_F32, b->mem[2] + shift * 4, c->count[2], why) ==
                  TN_OK &&
              product_misses(c, want, tol) == 0;
    free(want);
    return ok;
}

// Of product_after_of: nothing, bias, relu, both.
static const int after[] = { 0, 6, 12, 18 };

// Of all cases some have each number of blocks on a tile; of a few that are drawn from them, none
// need.
static void check_ranks(const bench *b, bool all)
{
    if (!all) return;
    for (int n = 1; n <= TNI_SMALL_RANKS; n *= 2)
        test_case_result(b->taken[n] > 0, "no product has %d blocks on a tile", n);
}

// From one case to the next, where few draws are asked for; a watched kernel of this kind takes
// seconds.
static int step_of(int cases)
{
    enum { WATCHED = 4 };
    int draws = test_draws(cases);
    return draws < cases ? (cases * WATCHED / draws) | 1 : 1;
}

static void run_random(int part, int parts)
{
    enum { MANY = 600 };
    int   step = step_of(MANY);
    bench b;
    if (!open_bench(&b)) return;
    for (int i = part * step; i < MANY; i += parts * step) {
        product_case c;
        tni_text     why = { "" };
        bool         ok  = product_draw(&c, (uint64_t)i, TN_F32, TN_F32, i / 2 % 4 ? 70 : 500);
        ok               = ok && agrees(&b, &c, after[i / 8 % 4], i / 32 % 4, 0, &why);
        test_case_result(ok, "seed %d: %s", i, why.s);
        product_free(&c);
    }
    check_ranks(&b, step == 1);
    close_bench(&b);
}

static void small_products_on_the_gpu_are_exact_for_whole_numbers(void)
{
    in_parts(run_random, 2);
}

static void run_shapes(int part, int parts)
{
    static const int64_t size[][3] = { { 64, 784, 256 }, { 64, 256, 128 }, { 64, 128, 10 },
                                       { 10, 64, 128 },  { 128, 64, 256 }, { 256, 64, 784 },
                                       { 64, 10, 128 },  { 64, 128, 256 }, { 1024, 128, 10 },
                                       { 65, 1001, 33 }, { 1, 4099, 300 }, { 300, 517, 1 },
                                       { 1, 70001, 1 },  { 33, 31, 35 } };
    enum { SIZES = sizeof size / sizeof *size, CASES = SIZES * 4 * 4 * 2 };
    int   step = step_of(CASES);
    bench b;
    if (!open_bench(&b)) return;
    for (int i = part * step; i < CASES; i += parts * step) {
        const int64_t *n     = size[i / 32];
        int            shift = i / 16 % 2;
        product_case   c;
        tni_text       why = { "" };
        bool           ok  = product_make(&c, n, i % 2, i / 2 % 2, TN_F32, TN_F32);
        if (ok) product_fill(&c, (uint64_t)i);
        ok = ok && agrees(&b, &c, after[i / 4 % 4], shift, 1e-4, &why);
        test_case_result(ok, "size %d, turned %d, epilogue %d, shift %d: %s", i / 32, i % 4,
                         after[i / 4 % 4], shift, why.s);
        product_free(&c);
    }
    check_ranks(&b, step == 1);
    close_bench(&b);
}

static void small_products_on_the_gpu_are_as_good_as_f32(void)
{
    in_parts(run_shapes, 2);
}

// ---- as part of a plan -------------------------------------------------------------------------

enum { BATCH = 64, WIDE = 784, HIDDEN = 96, CLASSES = 10 };

static tn_tensor *numbers(tn_ctx *cx, int64_t rows, int64_t cols, uint64_t seed)
{
    static float v[BATCH * WIDE * 2];
    for (int64_t i = 0; i < rows * cols; i++)
        v[i] = (float)((double)(product_random(&seed) >> 11) * 0x1p-53 - 0.5);
    return tn_from(cx, TN_F32, TN_SHAPE(rows, cols), v);
}

// Our own kernel ran, that of the first product, which eight blocks share; and in a graph.
static void check_graphs(const tni_cuda *c)
{
    if (c->gpu->limits.cluster >= TNI_SMALL_RANKS) CHECK(c->small_kernel[3] != NULL);
    CHECK(c->recorder.graphs > 0);
}

// The same net on new rows again and again: first plainly, then by a graph whose kernels get other
// addresses.
static void run_net(const char *device, float y[][BATCH * CLASSES], int times)
{
    tn_ctx    *cx = open_seeded(device, 1);
    tn_tensor *w1 = numbers(cx, HIDDEN, WIDE, 1), *b1 = numbers(cx, 1, HIDDEN, 2);
    tn_tensor *w2 = numbers(cx, HIDDEN, CLASSES, 3), *b2 = numbers(cx, 1, CLASSES, 4);
    for (int i = 0; i < times; i++) {
        tn_tensor *x = numbers(cx, BATCH, WIDE, (uint64_t)i + 10);
        tn_tensor *h = tn_relu(
            tn_add(tn_matmul(x, tn_transpose(w1, 0, 1)), tn_reshape(b1, TN_SHAPE(HIDDEN))));
        tn_tensor *z = tn_add(tn_matmul(h, w2), tn_reshape(b2, TN_SHAPE(CLASSES)));
        CHECK_STATUS(tn_read(z, TN_F32, y[i], BATCH * CLASSES), TN_OK);
    }
    if (cx->engine->device == &tni_device_cuda) check_graphs(cx->engine->session);
    tn_close(cx);
}

static void run_replays(int part, int parts)
{
    enum { TIMES = 9 };
    static float y[TIMES][BATCH * CLASSES], want[TIMES][BATCH * CLASSES];
    (void)part;
    (void)parts;
    run_net("ref", want, TIMES);
    setenv("TN_SMALL", "1", 1);
    run_net(tested_device(), y, TIMES);
    for (int i = 0; i < TIMES; i++) {
        int wrong = 0;
        for (int k = 0; k < BATCH * CLASSES; k++) wrong += !(fabsf(y[i][k] - want[i][k]) < 1e-3f);
        test_case_result(!wrong, "run %d: %d of %d are wrong", i, wrong, BATCH * CLASSES);
    }
}

static void small_products_are_right_in_graphs(void)
{
    in_parts(run_replays, 1);
}

const test_case tests_product_small[] = {
    TEST(small_products_of_f32_are_taken),
    TEST(every_step_of_the_inner_axis_is_in_one_slice),
    TEST(the_products_of_a_small_step_fill_a_gpu),
    TEST(small_products_on_the_gpu_are_exact_for_whole_numbers),
    TEST(small_products_on_the_gpu_are_as_good_as_f32),
    TEST(small_products_are_right_in_graphs),
    TEST_END,
};
