// test_product.c: matrix products as cuBLASLt sees them: the declarations against the real header,
// the library's names, layouts against their definition, and, where there is a GPU, the products.
#include "check.h"
#include "host.h"
#include "product_kit.h"
#include "scratch.h"
#include "tree.h"

#include "device/cuda/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { A, B, D, RANDOM = 6000 };

// ---- declarations and names --------------------------------------------------------------------

#define SYSTEM "-isystem /usr/local/include -isystem /usr/local/cuda/include"

// Compiles what compares our declarations with the real ones, as a sed script leaves it.
static int compile(const char *change, char *out, size_t size)
{
    char command[1024];
    snprintf(command, sizeof command,
             "sed '%s' test/cuda/headers/real_blaslt.c | " TN_CC
             " -std=c11 -Werror -fsyntax-only -Iinclude -Isrc " SYSTEM " -xc -",
             change);
    return tree_run(command, out, size);
}

static void declarations_are_those_of_the_header(void)
{
    char out[2000];
    if (tree_run("echo '#include <cublasLt.h>' | " TN_CC " -fsyntax-only " SYSTEM " -xc -", out,
                 sizeof out) != 0)
        SKIP("cublasLt.h is not installed");
    test_that(compile("", out, sizeof out) == 0, "%s", out);
    CHECK(compile("s/CUDA_R_16BF/CUDA_R_16F/", out, sizeof out) != 0);
    CHECK(strstr(out, "TNI_LT_BF16 is not CUDA_R_16F"));
}

static void the_library_has_every_name(void)
{
    tni_text          why = { "" };
    const tni_blaslt *lt  = tni_blaslt_get(&why);
    if (!lt) {
        CHECK(strstr(why.s, "cuBLASLt"));
        SKIP("%s", why.s);
    }
    CHECK(*tni_blaslt_where());
    CHECK(lt->version() >= 12000);
    CHECK(*lt->status_string(TNI_LT_NOT_SUPPORTED));
}

// Descriptions need no GPU, and the library checks the size of every attribute.
static void the_library_takes_every_attribute(void)
{
    tni_text          why        = { "" };
    const tni_blaslt *lt         = tni_blaslt_get(&why);
    tni_ltdesc        desc       = NULL;
    tni_ltlayout      layout     = NULL;
    tni_ltpreference  preference = NULL;
    int32_t           one        = 1;
    int64_t           step       = 1;
    const char       *vector     = why.s;
    if (!lt) SKIP("%s", why.s);
    if (!CHECK_INT(lt->desc_create(&desc, TNI_LT_COMPUTE_TF32, TNI_LT_F32), TNI_LT_OK) ||
        !CHECK_INT(lt->layout_create(&layout, TNI_LT_BF16, 3, 4, 5), TNI_LT_OK) ||
        !CHECK_INT(lt->preference_create(&preference), TNI_LT_OK))
        return;
    CHECK_INT(lt->desc_set(desc, TNI_LT_DESC_TRANSPOSE_A, &one, sizeof one), TNI_LT_OK);
    CHECK_INT(lt->desc_set(desc, TNI_LT_DESC_TRANSPOSE_B, &one, sizeof one), TNI_LT_OK);
    CHECK_INT(lt->desc_set(desc, TNI_LT_DESC_EPILOGUE, &one, sizeof one), TNI_LT_OK);
    CHECK_INT(lt->desc_set(desc, TNI_LT_DESC_BIAS, &vector, sizeof vector), TNI_LT_OK);
    CHECK_INT(lt->desc_set(desc, TNI_LT_DESC_AUX, &vector, sizeof vector), TNI_LT_OK);
    CHECK_INT(lt->desc_set(desc, TNI_LT_DESC_AUX_LD, &step, sizeof step), TNI_LT_OK);
    CHECK(lt->desc_set(desc, TNI_LT_DESC_AUX_LD, &one, sizeof one) != TNI_LT_OK);
    CHECK_INT(lt->layout_set(layout, TNI_LT_LAYOUT_BATCH, &one, sizeof one), TNI_LT_OK);
    CHECK_INT(lt->layout_set(layout, TNI_LT_LAYOUT_STRIDE, &step, sizeof step), TNI_LT_OK);
    CHECK(lt->layout_set(layout, TNI_LT_LAYOUT_STRIDE, &one, sizeof one) != TNI_LT_OK);
    CHECK_INT(lt->preference_set(preference, TNI_LT_PREFERENCE_WORKSPACE, &step, sizeof step),
              TNI_LT_OK);
    CHECK_INT(lt->preference_set(preference, TNI_LT_PREFERENCE_REDUCTIONS, &one, sizeof one),
              TNI_LT_OK);
    for (int i = TNI_LT_PREFERENCE_ALIGN_A; i <= TNI_LT_PREFERENCE_ALIGN_D; i++)
        CHECK_INT(lt->preference_set(preference, i, &one, sizeof one), TNI_LT_OK);
    CHECK_INT(lt->desc_destroy(desc), TNI_LT_OK);
    CHECK_INT(lt->layout_destroy(layout), TNI_LT_OK);
    CHECK_INT(lt->preference_destroy(preference), TNI_LT_OK);
}

// ---- layouts -----------------------------------------------------------------------------------

static double read_matrix(const tni_product *p, int i, int64_t batch, const int64_t *offset,
                          int64_t row, int64_t col)
{
    const tni_matrix *x = &p->x[i];
    int64_t           r = x->transposed ? col : row, q = x->transposed ? row : col;
    return host_get(p->in, p->at[i], offset[i] + batch * x->batch_stride + r + q * x->ld);
}

// The products of a batch, by the definition of column-major matrices.
static void multiply(const tni_product *p, const int64_t *offset)
{
    for (int64_t batch = 0; batch < p->batch; batch++) {
        for (int64_t i = 0; i < p->rows * p->cols; i++) {
            double  sum = 0;
            int64_t row = i % p->rows, col = i / p->rows;
            int64_t at = offset[D] + batch * p->x[D].batch_stride + row + col * p->x[D].ld;
            for (int64_t k = 0; k < p->depth; k++)
                sum += read_matrix(p, A, batch, offset, row, k) *
                       read_matrix(p, B, batch, offset, k, col);
            if (p->epilogue.residual) sum += host_get(p->out, p->residual, at);
            host_put(p->out, p->at[D], at, sum, 0);
        }
    }
}

static void multiply_loops(const tni_product *p, int loop, int64_t *offset)
{
    if (loop == p->loops) {
        multiply(p, offset);
        return;
    }
    for (int64_t i = 0; i < p->loop_size[loop]; i++) {
        multiply_loops(p, loop + 1, offset);
        for (int k = 0; k < 3; k++) offset[k] += p->loop_stride[k][loop];
    }
    for (int k = 0; k < 3; k++) offset[k] -= p->loop_size[loop] * p->loop_stride[k][loop];
}

// What the library demands of any description.
static bool is_sound(const tni_product *p)
{
    bool ok = p->batch >= 1 && p->rows >= 1 && p->cols >= 1 && p->depth >= 1 && !p->x[D].transposed;
    for (int i = 0; i < 3; i++) {
        const tni_matrix *x    = &p->x[i];
        int64_t           rows = i == B ? p->depth : p->rows, cols = i == A ? p->depth : p->cols;
        ok = ok && x->ld >= x->rows && x->batch_stride >= 0;
        ok = ok && x->rows == (x->transposed ? cols : rows) &&
             x->cols == (x->transposed ? rows : cols);
    }
    return ok;
}

static tn_dtype type_of(int i)
{
    static const tn_dtype list[] = { TN_F32, TN_F16, TN_BF16, TN_F64, TN_BF16 };
    return list[i % 5];
}

static tn_dtype result_type_of(int i)
{
    return i % 5 == 4 ? TN_F32 : type_of(i);
}

// Whether a drawn call is described as it should be; *done counts those that can be.
static bool describes(uint64_t seed, int *done)
{
    product_case c;
    tni_product  p;
    bool         ok = product_draw(&c, seed, type_of((int)seed), result_type_of((int)seed), 9);
    if (ok && tni_product_of(&c.call, &p)) {
        int64_t       offset[3] = { 0 };
        product_after after     = product_after_of((int)seed % 3);
        double       *want      = product_want(&c, &after);
        ok                      = want && product_follow(&c, &after, c.mem, &p);
        if (ok) multiply_loops(&p, 0, offset);
        ok = ok && is_sound(&p) && product_misses(&c, want, 0) == 0;
        free(want);
        (*done)++;
    } else ok = ok && !c.easy;
    product_free(&c);
    return ok;
}

static void every_layout_is_described_as_it_lies(void)
{
    int done = 0;
    for (uint64_t seed = 1; seed <= RANDOM; seed++)
        test_case_result(describes(seed, &done), "seed %d", (int)seed);
    CHECK(done > RANDOM / 2 && done < RANDOM);
}

// A call over no memory, for what is decided by sizes and strides alone.
typedef struct {
    tni_call call;
    tni_arg  in[2];
    char     mem[64];
} sample;

static tni_arg row_major(sample *s, int rank, const int64_t *size)
{
    tni_arg x    = { .dtype = TN_F32, .rank = rank, .data = s->mem };
    int64_t next = 1;
    for (int i = rank - 1; i >= 0; i--) {
        x.size[i]   = size[i];
        x.stride[i] = next;
        next *= size[i];
    }
    return x;
}

// a (batch, m, k) or (m, k) if batch is 0, times b likewise; row-major.
static void make(sample *s, int64_t batch, int64_t m, int64_t k, int64_t n)
{
    int rank    = batch ? 3 : 2;
    s->in[0]    = row_major(s, rank, (int64_t[]){ batch, m, k } + !batch);
    s->in[1]    = row_major(s, rank, (int64_t[]){ batch, k, n } + !batch);
    s->call     = (tni_call){ .op = TNI_matmul, .nin = 2, .in = s->in };
    s->call.out = row_major(s, rank, (int64_t[]){ batch, m, n } + !batch);
}

static void batches_with_one_right_side_are_one_product(void)
{
    sample      s;
    tni_product p;
    make(&s, 32, 1024, 768, 3072);
    s.in[1].stride[0] = 0;
    if (!CHECK(tni_product_of(&s.call, &p))) return;
    CHECK_INT(p.batch, 1);
    CHECK_INT(p.rows, 3072);
    CHECK_INT(p.cols, 32 * 1024);
    CHECK_INT(p.x[A].ld, 3072);
    CHECK_INT(p.x[B].ld, 768);
    CHECK(p.result_transposed && !p.x[A].transposed && !p.x[B].transposed);
}

// (B, T, H, D) read as (B, H, T, D): no one step goes over both axes of the batch.
static void heads_are_a_loop_of_batches(void)
{
    sample      s;
    tni_product p;
    int64_t     size[] = { 4, 12, 64, 64 };
    make(&s, 1, 1, 1, 1);
    s.call.out = s.in[1] = row_major(&s, 4, size);
    s.in[0]              = s.in[1];
    for (int i = 0; i < 2; i++) {
        s.in[i].stride[1] = 64;
        s.in[i].stride[2] = 64 * 12;
    }
    if (!CHECK(tni_product_of(&s.call, &p))) return;
    CHECK_INT(p.batch, 12);
    CHECK_INT(p.loops, 1);
    CHECK_INT(p.loop_size[0], 4);
    CHECK_INT(p.x[A].ld, 64 * 12);
    CHECK_INT(p.x[D].batch_stride, 64 * 64);
}

static void axes_in_equal_steps_are_one_batch(void)
{
    sample      s;
    tni_product p;
    make(&s, 1, 1, 1, 1);
    s.in[0]    = row_major(&s, 5, (int64_t[]){ 2, 3, 100, 8, 4 });
    s.in[1]    = row_major(&s, 5, (int64_t[]){ 2, 3, 100, 4, 5 });
    s.call.out = row_major(&s, 5, (int64_t[]){ 2, 3, 100, 8, 5 });
    if (!CHECK(tni_product_of(&s.call, &p))) return;
    CHECK_INT(p.batch, 600);
    CHECK_INT(p.loops, 0);
    // With gaps the longest axis is the batch, and the rest must not be too many.
    s.in[0].stride[1] *= 2;
    s.in[0].stride[0] *= 2;
    CHECK(tni_product_of(&s.call, &p) && p.batch == 100 && p.loops == 1 && p.loop_size[0] == 6);
    s.in[0].size[0] = s.in[1].size[0] = s.call.out.size[0] = 30;
    CHECK(!tni_product_of(&s.call, &p));
}

static void a_batch_that_goes_backwards_is_a_loop(void)
{
    sample      s;
    tni_product p;
    make(&s, 7, 2, 3, 4);
    s.in[0].stride[0] *= -1;
    if (!CHECK(tni_product_of(&s.call, &p))) return;
    CHECK_INT(p.batch, 1);
    CHECK_INT(p.loop_size[0], 7);
    CHECK_INT(p.loop_stride[B][0], -6);
    CHECK_INT(p.loop_stride[D][0], 8);
}

static void vectors_lie_along_their_elements(void)
{
    sample      s;
    tni_product p;
    make(&s, 0, 100, 30, 1);
    CHECK(tni_product_of(&s.call, &p) && p.rows == 100 && p.cols == 1 && !p.result_transposed);
    CHECK(p.x[A].transposed && p.x[A].ld == 30 && p.x[B].rows == 30 && p.x[B].ld == 32);
    make(&s, 0, 1, 30, 100);
    CHECK(tni_product_of(&s.call, &p) && p.rows == 100 && p.cols == 1 && p.result_transposed);
    CHECK(!p.x[A].transposed && p.x[A].ld == 100 && p.x[B].rows == 30 && p.x[D].ld == 104);
}

// Multiplications of all parts.
static double work_of(const tni_product_parts *s)
{
    double n = 0;
    for (int i = 0; i < s->count; i++)
        n += (double)s->part[i].rows * (double)s->part[i].cols * (double)s->part[i].depth;
    return n;
}

// Logits (m, n) in rows of n + 7, and the gradient of their input, whose depth is n.
static void sizes_that_are_no_multiple_of_16_bytes_are_divided(void)
{
    enum { M = 32768, K = 768, N = 50257, PITCH = 50264 };
    sample            s;
    tni_product       p;
    tni_product_parts parts;
    make(&s, 0, M, K, N);
    s.in[0].dtype = s.in[1].dtype = s.call.out.dtype = TN_BF16;
    s.in[1].stride[0]                                = 1;  // b is a transposed (n, k)
    s.in[1].stride[1]                                = K;
    if (!CHECK(tni_product_of(&s.call, &p))) return;
    tni_product_divide(&p, &parts);
    CHECK_INT(parts.count, 1);  // rows of n elements: nothing is gained
    s.call.out.stride[0] = PITCH;
    if (!CHECK(tni_product_of(&s.call, &p))) return;
    tni_product_divide(&p, &parts);
    CHECK_INT(parts.count, 3);
    CHECK(work_of(&parts) == (double)M * K * N);
    CHECK(parts.part[0].rows == N - 17 && parts.part[1].rows == 1 && parts.part[1].cols == M);
    CHECK(parts.part[2].rows == 16 && parts.offset[2][D] == N - 17 && parts.part[0].rows % 64 == 0);
    CHECK(parts.offset[1][A] == (int64_t)(N - 1) * K && parts.offset[1][B] == 0);
    CHECK(parts.offset[1][D] == N - 1 && !parts.part[1].epilogue.residual);
    tni_product_bind_parts(&parts, &s.call);
    CHECK_INT(parts.part[1].at[D] - parts.part[0].at[D], 2 * (N - 1));

    make(&s, 0, M, N, K);
    s.in[0].dtype = s.in[1].dtype = s.call.out.dtype = TN_BF16;
    s.in[0].stride[0]                                = PITCH;
    if (!CHECK(tni_product_of(&s.call, &p))) return;
    tni_product_divide(&p, &parts);
    CHECK_INT(parts.count, 2);
    CHECK(work_of(&parts) == (double)M * K * N && parts.part[1].depth == 1);
    CHECK(parts.part[1].epilogue.residual);
    CHECK(parts.offset[1][A] == (int64_t)(N - 1) * K && parts.offset[1][B] == N - 1);
    tni_product_bind_parts(&parts, &s.call);
    CHECK(parts.part[1].residual == s.mem && parts.part[1].at[D] == s.mem);
}

static void what_cannot_be_done_is_refused(void)
{
    sample      s;
    tni_product p;
    make(&s, 0, 4, 5, 6);
    CHECK(tni_product_of(&s.call, &p));
    s.in[0].dtype = s.in[1].dtype = s.call.out.dtype = TN_I32;
    CHECK(!tni_product_of(&s.call, &p));
    make(&s, 0, 4, 0, 6);
    CHECK(!tni_product_of(&s.call, &p));
    make(&s, 0, (int64_t)1 << 31, 5, 6);
    CHECK(!tni_product_of(&s.call, &p));
    make(&s, 0, 4, 5, 6);
    s.in[0].stride[0] = 2;  // rows that overlap
    CHECK(!tni_product_of(&s.call, &p));
    s.in[0].stride[0] = 0;
    CHECK(!tni_product_of(&s.call, &p));
    s.in[0].stride[0] = 10;
    s.in[0].stride[1] = 2;
    CHECK(!tni_product_of(&s.call, &p));
    make(&s, 0, 4, 5, 6);
    s.in[1].dtype = TN_F16;
    CHECK(!tni_product_of(&s.call, &p));
    s.in[0].dtype = TN_F16;
    CHECK(tni_product_of(&s.call, &p));
    s.call.out.dtype = TN_BF16;
    CHECK(!tni_product_of(&s.call, &p));
}

// Whether these may follow.
static bool takes(tni_product *p, int activation, bool bias, bool input)
{
    return tni_product_add_epilogue(
        p, &(tni_product_epilogue){ .activation = activation, .bias = bias, .input = input });
}

static void a_bias_goes_along_the_last_axis_alone(void)
{
    sample      s;
    tni_product p;
    make(&s, 0, 4, 5, 6);
    CHECK(tni_product_of(&s.call, &p) && takes(&p, TNI_gelu_tanh, true, false));
    CHECK(p.epilogue.bias && p.epilogue.activation == TNI_gelu_tanh);
    CHECK(!takes(&p, TNI_tanh, false, false) && p.epilogue.bias);
    CHECK(takes(&p, TNI_leaf, false, false) && !p.epilogue.bias);
    s.call.out.stride[0] = 1;  // a result that lies column after column
    s.call.out.stride[1] = 4;
    CHECK(tni_product_of(&s.call, &p) && takes(&p, TNI_relu, false, false));
    CHECK(!takes(&p, TNI_leaf, true, false));
    // Many right sides side by side: the columns are more than the bias has elements.
    make(&s, 3, 1, 5, 6);
    s.in[0].stride[0] = 0;
    s.in[1].stride[0] = 6;
    s.in[1].stride[1] = 18;
    CHECK(tni_product_of(&s.call, &p) && p.rows == 18 && !takes(&p, TNI_leaf, true, false));
}

static void doubles_take_scale_and_residual_alone(void)
{
    sample      s;
    tni_product p;
    make(&s, 0, 4, 5, 8);
    s.in[0].dtype = s.in[1].dtype = s.call.out.dtype = TN_F64;
    if (!CHECK(tni_product_of(&s.call, &p))) return;
    CHECK(
        tni_product_add_epilogue(&p, &(tni_product_epilogue){ .scaled = true, .residual = true }));
    CHECK(p.epilogue.scaled && p.epilogue.residual);
    CHECK(!takes(&p, TNI_relu, false, false) && !takes(&p, TNI_leaf, true, false));
    CHECK(!takes(&p, TNI_gelu_tanh, false, true));
}

static void the_input_of_gelu_is_stored_where_the_library_can(void)
{
    sample      s;
    tni_product p;
    make(&s, 0, 4, 5, 8);
    CHECK(tni_product_of(&s.call, &p) && takes(&p, TNI_gelu_tanh, true, true));
    CHECK(!takes(&p, TNI_relu, false, true) && !takes(&p, TNI_leaf, false, true));
    make(&s, 0, 4, 5, 12);  // columns that begin between multiples of 8
    CHECK(tni_product_of(&s.call, &p) && !takes(&p, TNI_gelu_tanh, false, true));
    make(&s, 0, 1, 5, 12);  // a single column has no such steps
    CHECK(tni_product_of(&s.call, &p) && takes(&p, TNI_gelu_tanh, false, true));
    make(&s, 3, 4, 5, 8);  // batches
    CHECK(tni_product_of(&s.call, &p) && p.batch == 3 && !takes(&p, TNI_gelu_tanh, false, true));
    s.in[0].stride[0] *= -1;
    CHECK(tni_product_of(&s.call, &p) && p.loops == 1 && !takes(&p, TNI_gelu_tanh, false, true));
}

static void only_the_residual_may_lie_where_the_result_will(void)
{
    static char mem[4];
    tni_product p = { .at       = { mem, mem, &mem[0] },
                      .epilogue = { .residual = true, .bias = true, .input = true },
                      .residual = &mem[1],
                      .bias     = &mem[2],
                      .input    = &mem[3] };
    CHECK(tni_product_is_unaliased(&p) && !tni_product_accumulates(&p));
    p.residual = &mem[0];
    CHECK(tni_product_is_unaliased(&p) && tni_product_accumulates(&p));
    for (int i = 0; i < 3; i++) {  // the result, the residual, the bias
        p.residual = &mem[1];
        p.input    = &mem[i];
        CHECK(!tni_product_is_unaliased(&p));
    }
    p.epilogue.input = false;
    CHECK(tni_product_is_unaliased(&p));
    p.bias = &mem[0];
    CHECK(!tni_product_is_unaliased(&p));
    p.epilogue.bias = false;
    CHECK(tni_product_is_unaliased(&p));
}

// ---- on a GPU ----------------------------------------------------------------------------------

enum { ROOM = 32 << 20, WORKSPACE = 32 << 20 };

// A GPU with room for all memories of a case and a workspace. One that could not be opened has said
// why.
typedef struct {
    const tni_gpu  *gpu;
    tni_cuptr       mem[PRODUCT_MEMS];
    tni_product_env at;
} bench;

static bool open_bench(bench *x, tni_text *why)
{
    *x = (bench){ .gpu = tni_gpu_get(0, why) };
    if (!x->gpu || !tni_blaslt_get(why)) return false;
    const tni_driver *cu = x->gpu->cu;
    x->at                = (tni_product_env){ .cu = cu, .gpu = x->gpu->name, .bytes = WORKSPACE };
    int e                = cu->set_current(x->gpu->cx);
    if (!e) e = cu->stream_create(&x->at.stream, TNI_CU_STREAM_NONBLOCKING);
    if (!e) e = cu->mem_alloc(&x->at.workspace, WORKSPACE);
    for (int i = 0; i < PRODUCT_MEMS && !e; i++) e = cu->mem_alloc(&x->mem[i], ROOM);
    return tni_gpu_status(cu, e, "opening the GPU for a test", why) == TN_OK;
}

static void close_bench(bench *x)
{
    if (!x->gpu) return;
    for (int i = 0; i < PRODUCT_MEMS; i++) x->gpu->cu->mem_free(x->mem[i]);
    x->gpu->cu->mem_free(x->at.workspace);
    x->gpu->cu->stream_destroy(x->at.stream);
}

// The call of a case with its operands on the GPU.
static tni_call on_gpu(const bench *x, const product_case *c, tni_arg in[2])
{
    tni_call y = c->call;
    for (int i = 0; i < 3; i++) {
        tni_arg *v = i < 2 ? &in[i] : &y.out;
        *v         = i < 2 ? c->in[i] : c->call.out;
        v->data    = (char *)(uintptr_t)x->mem[i] + (v->data - c->mem[i]);
    }
    y.in = in;
    return y;
}

static bool load(const bench *x, const product_case *c)
{
    const tni_driver *cu = x->gpu->cu;
    bool              ok = true;
    for (int i = 0; i < PRODUCT_MEMS; i++)
        ok = ok && product_bytes(c, i) <= ROOM &&
             cu->copy_in(x->mem[i], c->mem[i], product_bytes(c, i), x->at.stream) == TNI_CU_OK;
    return ok && cu->stream_wait(x->at.stream) == TNI_CU_OK;
}

static bool unload(const bench *x, const product_case *c)
{
    const tni_driver *cu = x->gpu->cu;
    bool              ok = true;
    for (int i = PRODUCT_D; i < PRODUCT_MEMS; i++)
        ok = ok &&
             cu->copy_out(c->mem[i], x->mem[i], product_bytes(c, i), x->at.stream) == TNI_CU_OK;
    return ok && cu->stream_wait(x->at.stream) == TNI_CU_OK;
}

// How a product is done on the GPU: what follows it, and how far off it may be.
typedef struct {
    bool          tf32;
    product_after after;
    double        tol;
} manner;

// Whether a case gives on the GPU what it should; also true of one that is refused.
static bool agrees(bench *x, product_case *c, const manner *h, tni_text *why)
{
    char       *mem[PRODUCT_MEMS];
    tni_arg     in[2];
    tni_product p;
    tni_call    call = on_gpu(x, c, in);
    for (int i = 0; i < PRODUCT_MEMS; i++) mem[i] = (char *)(uintptr_t)x->mem[i];
    if (!tni_product_of(&call, &p)) return !c->easy;
    double *want = product_want(c, &h->after);
    bool    ok   = want && load(x, c);
    if (ok && product_follow(c, &h->after, mem, &p)) {
        p.tf32      = h->tf32;
        tn_status s = tni_product_prepare(&p, &x->at, why);
        if (s == TN_OK) s = tni_product_run(&p, &x->at, why);
        ok = s == TN_OK && unload(x, c) && product_misses(c, want, h->tol) == 0;
        // Not every type has every activation, or its input.
        ok = ok || (s == TN_EARG && h->after.end.activation != TNI_leaf);
    }
    free(want);
    return ok;
}

static void products_on_the_gpu_are_exact_for_whole_numbers(void)
{
    enum { MANY = 400 };
    enum { EXACT = 24 };  // those without gelu
    bench    x;
    tni_text why = { "" };
    if (!open_bench(&x, &why)) SKIP("%s", why.s);
    if (!CHECK(scratch_open())) return;
    setenv("TN_CACHE_DIR", scratch_path("cache"), 1);
    tni_product_forget();
    for (int i = 0; i < MANY; i++) {
        product_case c;
        manner       h = { .tf32 = i % 2, .after = product_after_of(i / 5 % EXACT) };
        why            = (tni_text){ "" };
        x.at.timing    = i % 8 == 0;
        bool ok        = product_draw(&c, (uint64_t)i, type_of(i), result_type_of(i), 9);
        test_case_result(ok && agrees(&x, &c, &h, &why), "seed %d: %s", i, why.s);
        product_free(&c);
    }
    scratch_close();
    close_bench(&x);
}

// Values that no type holds exactly, in sizes for which the library has many algorithms.
static void products_on_the_gpu_are_as_good_as_their_type(void)
{
    // Of product_after_of; all: with bias, scale and a residual of its own.
    enum { PLAIN = 0, SCALE_AND_RESIDUAL = 4, GELU = 24, GELU_INPUT = 36, GELU_ALL = 46 };
    static const struct {
        tn_dtype in, out;
        bool     tf32;
        int      after;
        double   tol;
    } row[] = { { TN_F32, TN_F32, false, PLAIN, 1e-4 },
                { TN_F32, TN_F32, true, PLAIN, 2e-2 },
                { TN_F32, TN_F32, false, GELU, 2e-3 },
                { TN_F32, TN_F32, false, GELU_ALL, 2e-3 },
                { TN_F16, TN_F16, false, PLAIN, 2e-3 },
                { TN_BF16, TN_BF16, false, PLAIN, 1.6e-2 },
                { TN_BF16, TN_BF16, false, GELU, 1.6e-2 },
                { TN_BF16, TN_BF16, false, GELU_INPUT, 1.6e-2 },
                { TN_BF16, TN_BF16, false, GELU_ALL, 1.6e-2 },
                { TN_F16, TN_F16, false, GELU_ALL, 4e-3 },
                { TN_BF16, TN_F32, false, PLAIN, 2e-4 },
                { TN_F64, TN_F64, false, PLAIN, 1e-13 },
                { TN_F64, TN_F64, false, SCALE_AND_RESIDUAL, 1e-13 } };
    bench    x;
    tni_text why = { "" };
    if (!open_bench(&x, &why)) SKIP("%s", why.s);
    static const int64_t size[][3] = {
        { 64, 784, 48 }, { 65, 1000, 33 }, { 8, 4096, 10 }, { 1, 300, 500 }, { 500, 300, 1 }
    };
    for (int i = 0; i < (int)(sizeof row / sizeof *row) * 20; i++) {
        const int64_t *n = size[i / 4 % 5];
        int            r = i / 20;
        product_case   c;
        manner         h  = { .tf32  = row[r].tf32,
                              .after = product_after_of(row[r].after),
                              .tol   = row[r].tol };
        bool           ok = product_make(&c, n, i % 2, i / 2 % 2, row[r].in, row[r].out);
        why               = (tni_text){ "" };
        x.at.timing       = i / 4 % 2;
        if (ok) product_fill(&c, (uint64_t)i);
        test_case_result(ok && agrees(&x, &c, &h, &why), "row %d, size %d, transposed %d: %s", r,
                         i / 4 % 5, i % 4, why.s);
        product_free(&c);
    }
    close_bench(&x);
}

static void a_choice_on_the_gpu_is_made_once_for_all_processes(void)
{
    bench       x;
    sample      s;
    tni_product p;
    tni_text    why = { "" };
    int64_t     timed, found, timed_then, found_then;
    if (!open_bench(&x, &why)) SKIP("%s", why.s);
    if (!CHECK(scratch_open())) return;
    setenv("TN_CACHE_DIR", scratch_path("cache"), 1);
    tni_product_forget();
    make(&s, 0, 512, 768, 640);
    s.in[0].data    = (char *)(uintptr_t)x.mem[0];
    s.in[1].data    = (char *)(uintptr_t)x.mem[1];
    s.call.out.data = (char *)(uintptr_t)x.mem[2];
    x.at.timing     = true;
    tni_product_counts(&timed, &found);
    for (int i = 0; i < 2 && CHECK(tni_product_of(&s.call, &p)); i++) {
        CHECK_STATUS(tni_product_prepare(&p, &x.at, &why), TN_OK);
        CHECK_STATUS(tni_product_run(&p, &x.at, &why), TN_OK);
        tni_product_counts(&timed_then, &found_then);
        CHECK_INT(timed_then - timed, 1);
        CHECK_INT(found_then - found, i);
        tni_product_forget();
    }
    CHECK_INT(x.gpu->cu->stream_wait(x.at.stream), TNI_CU_OK);
    scratch_close();
    close_bench(&x);
}

const test_case tests_product[] = {
    TEST(declarations_are_those_of_the_header),
    TEST(the_library_has_every_name),
    TEST(the_library_takes_every_attribute),
    TEST(every_layout_is_described_as_it_lies),
    TEST(batches_with_one_right_side_are_one_product),
    TEST(heads_are_a_loop_of_batches),
    TEST(axes_in_equal_steps_are_one_batch),
    TEST(a_batch_that_goes_backwards_is_a_loop),
    TEST(vectors_lie_along_their_elements),
    TEST(sizes_that_are_no_multiple_of_16_bytes_are_divided),
    TEST(what_cannot_be_done_is_refused),
    TEST(a_bias_goes_along_the_last_axis_alone),
    TEST(doubles_take_scale_and_residual_alone),
    TEST(the_input_of_gelu_is_stored_where_the_library_can),
    TEST(only_the_residual_may_lie_where_the_result_will),
    TEST(products_on_the_gpu_are_exact_for_whole_numbers),
    TEST(products_on_the_gpu_are_as_good_as_their_type),
    TEST(a_choice_on_the_gpu_is_made_once_for_all_processes),
    TEST_END,
};
