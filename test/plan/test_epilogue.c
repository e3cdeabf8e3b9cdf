// test_epilogue.c: what a library may do after a product, found in the kernels that the planner
// makes, and what of it cuBLASLt takes.
#include "check.h"

#include "device/cuda/product.h"
#include "engine/engine.h"
#include "kernel/ending.h"

#include <stdlib.h>
#include <string.h>
#include <tenon.h>

// The parts of an epilogue; TAKEN: cuda has its library do it.
enum {
    ROWS     = 12,
    COLS     = 24,
    INNER    = 8,
    BIAS     = 1,
    RELU     = 2,
    GELU     = 4,
    RESIDUAL = 8,
    SCALE    = 16,
    INPUT    = 32,
    TAKEN    = 64,
    SLOPE    = 128,
    SUM      = 256,
    WIDE_Y   = 512
};

// What follows a product y. b has an element for each column, c one for each row, r is as large as
// y.
typedef struct {
    tn_tensor *y, *b, *c, *r;
} values;

typedef struct {
    const char *name;
    tn_tensor *(*then)(const values *v);
    tn_dtype dtype;
    int      want;  // 0: the kernel is no epilogue
} ending;

static tn_tensor *bias(const values *v)
{
    return tn_add(v->y, v->b);
}

static tn_tensor *bias_first(const values *v)
{
    return tn_add(v->b, v->y);
}

static tn_tensor *relu(const values *v)
{
    return tn_relu(v->y);
}

static tn_tensor *bias_relu(const values *v)
{
    return tn_relu(tn_add(v->y, v->b));
}

static tn_tensor *gelu(const values *v)
{
    return tn_gelu_tanh(v->y);
}

static tn_tensor *bias_gelu(const values *v)
{
    return tn_gelu_tanh(tn_add(v->b, v->y));
}

static tn_tensor *exact_gelu(const values *v)
{
    return tn_gelu(tn_add(v->y, v->b));
}

static tn_tensor *gelu_of_relu(const values *v)
{
    return tn_gelu_tanh(tn_relu(v->y));
}

static tn_tensor *relu_of_gelu(const values *v)
{
    return tn_relu(tn_gelu_tanh(v->y));
}

static tn_tensor *bias_after(const values *v)
{
    return tn_add(tn_relu(v->y), v->b);
}

static tn_tensor *column(const values *v)
{
    return tn_add(v->y, v->c);
}

static tn_tensor *twice(const values *v)
{
    return tn_add(tn_add(v->y, v->b), v->b);
}

static tn_tensor *itself(const values *v)
{
    return tn_add(v->y, v->y);
}

static tn_tensor *wider(const values *v)
{
    return tn_cast(tn_relu(v->y), TN_F32);
}

static tn_tensor *widened(const values *v)
{
    return tn_cast(v->y, TN_F32);
}

static tn_tensor *widened_to_f64(const values *v)
{
    return tn_cast(v->y, TN_F64);
}

static tn_tensor *rounded(const values *v)
{
    return tn_relu(tn_cast(tn_cast(v->y, TN_F16), TN_BF16));
}

static tn_tensor *residual(const values *v)
{
    return tn_add(tn_add(v->y, v->b), v->r);
}

static tn_tensor *residual_gelu(const values *v)
{
    return tn_gelu_tanh(tn_add(v->r, tn_add(v->y, v->b)));
}

static tn_tensor *two_residuals(const values *v)
{
    return tn_add(tn_add(v->y, v->r), tn_mul_s(v->r, 2));
}

static tn_tensor *scaled(const values *v)
{
    return tn_relu(tn_add(tn_mul_s(v->y, 0.125), v->b));
}

static tn_tensor *kept(const values *v)
{
    return tn_gelu_tanh(tn_keep(tn_add(v->y, v->b)));
}

static tn_tensor *trained(const values *v)
{
    tn_requires_grad(v->b, true);
    tn_tensor *y = tn_gelu_tanh(tn_add(v->y, v->b));
    CHECK_STATUS(tn_backward(tn_sum_all(tn_square(tn_matmul(y, tn_transpose(v->r, 0, 1)))), NULL),
                 TN_OK);
    return y;
}

static tn_tensor *kept_before_the_bias(const values *v)
{
    return tn_gelu_tanh(tn_add(tn_keep(tn_mul_s(v->y, 2)), v->b));
}

static const ending cases[] = {
    { "bias", bias, TN_F32, BIAS | TAKEN },
    { "bias first", bias_first, TN_BF16, BIAS | TAKEN },
    { "relu", relu, TN_F32, RELU | TAKEN },
    { "bias, relu", bias_relu, TN_F16, BIAS | RELU | TAKEN },
    { "gelu", gelu, TN_F16, GELU | TAKEN },
    { "bias, gelu", bias_gelu, TN_BF16, BIAS | GELU | TAKEN },
    { "bias of f64", bias, TN_F64, BIAS },
    { "gelu of f32, of which the library has fewer digits", bias_gelu, TN_F32, BIAS | GELU },
    { "bias, residual", residual, TN_F32, BIAS | RESIDUAL | TAKEN },
    { "bias, residual, gelu", residual_gelu, TN_BF16, BIAS | RESIDUAL | GELU | TAKEN },
    { "scale, bias, relu", scaled, TN_F32, SCALE | BIAS | RELU | TAKEN },
    { "bias, gelu, and what gelu was given", kept, TN_BF16, BIAS | GELU | INPUT | TAKEN },
    { "bias, gelu, and what its gradient needs", trained, TN_BF16, BIAS | GELU | INPUT | TAKEN },
    { "what came before the bias", kept_before_the_bias, TN_BF16, 0 },
    { "gelu by erf", exact_gelu, TN_BF16, 0 },
    { "gelu of relu", gelu_of_relu, TN_BF16, 0 },
    { "relu of gelu", relu_of_gelu, TN_BF16, 0 },
    { "bias after relu", bias_after, TN_F32, 0 },
    { "a bias along the other axis", column, TN_F32, 0 },
    { "two biases", twice, TN_F32, 0 },
    { "two residuals", two_residuals, TN_F32, 0 },
    { "the product as its own bias", itself, TN_F32, 0 },
    { "a result of another dtype", wider, TN_BF16, 0 },
    { "rounded on the way", rounded, TN_BF16, 0 },
    { "the sums of a product of bf16", widened, TN_BF16, WIDE_Y | TAKEN },
    { "the sums of a product of f16", widened, TN_F16, WIDE_Y | TAKEN },
    { "sums that the library has not", widened_to_f64, TN_BF16, 0 },
};

// The kernel that runs with the product, as it was launched, and the plan's call of the product.
static const tni_planned_kernel *claiming(const tn_ctx *cx, const tni_call **call)
{
    const tni_plans *all = &((const tni_engine *)cx->engine)->plans;
    for (int i = 0; i < all->count; i++) {
        const tni_plan *p = all->plan[i];
        for (size_t k = 0; k < p->kernels; k++) {
            const tni_planned_kernel *f = &p->kernel[k];
            if (f->call_item < 0) continue;
            *call = &p->call[p->place[f->call_item].call - 1].call;
            return f;
        }
    }
    return NULL;
}

static int parts_of(const tni_planned_kernel *f, const tni_call *call)
{
    const tni_epilogue *e = &f->epilogue;
    tni_offer           o = { .call = call, .only_reader = f->only_reader, .epilogue = *e };
    tni_product         p;
    if (!e->fits) return 0;
    return (e->bias >= 0 ? BIAS : 0) | (e->residual >= 0 ? RESIDUAL : 0) |
           (e->scale >= 0 ? SCALE : 0) | (e->z >= 0 ? INPUT : 0) | (e->sum >= 0 ? SUM : 0) |
           (e->activation == TNI_gelu_slope ? SLOPE : 0) | (e->activation == TNI_relu ? RELU : 0) |
           (e->wide ? WIDE_Y : 0) | (e->activation == TNI_gelu_tanh ? GELU : 0) |
           (tni_product_of_offer(&o, &p) ? TAKEN : 0);
}

static void look_at(const ending *e)
{
    tn_ctx    *cx = tn_open("cpu");
    tn_scope  *s  = tn_begin(cx);
    tn_tensor *x  = tn_cast(tn_randn(cx, TN_F32, TN_SHAPE(ROWS, INNER)), e->dtype);
    tn_tensor *w  = tn_cast(tn_randn(cx, TN_F32, TN_SHAPE(INNER, COLS)), e->dtype);
    values     v  = { .b = tn_cast(tn_randn(cx, TN_F32, TN_SHAPE(COLS)), e->dtype),
                      .c = tn_cast(tn_randn(cx, TN_F32, TN_SHAPE(ROWS, 1)), e->dtype),
                      .r = tn_cast(tn_randn(cx, TN_F32, TN_SHAPE(ROWS, COLS)), e->dtype) };
    tn_keep(x), tn_keep(w), tn_keep(v.b), tn_keep(v.c), tn_keep(v.r);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    v.y = tn_matmul(x, w);
    tn_keep(e->then(&v));
    CHECK_STATUS(tn_eval(cx), TN_OK);
    const tni_call           *call = NULL;
    const tni_planned_kernel *f    = claiming(cx, &call);
    if (CHECK(f))
        test_that(parts_of(f, call) == e->want, "%s: epilogue %d, and not %d", e->name,
                  parts_of(f, call), e->want);
    tn_end(s);
    tn_close(cx);
}

static void epilogues_are_found_and_offered(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) look_at(&cases[i]);
}

static bool reads_item(const tni_planned_kernel *k, int32_t item)
{
    for (int i = 0; i < k->kernel->nbuffer; i++)
        if (k->buffer[i] == item) return true;
    return false;
}

// Of a kernel that runs with a product a device knows how new what it reads is: here a bias that
// was there before, and a residual that another product makes.
static void a_call_knows_the_newest_value_that_its_kernel_reads(void)
{
    for (int i = 0; i < 2; i++) {
        tn_ctx    *cx = tn_open("cpu");
        tn_tensor *x  = tn_keep(tn_randn(cx, TN_F32, TN_SHAPE(ROWS, INNER)));
        tn_tensor *w  = tn_keep(tn_randn(cx, TN_F32, TN_SHAPE(INNER, COLS)));
        tn_tensor *b  = tn_keep(tn_randn(cx, TN_F32, TN_SHAPE(COLS)));
        CHECK_STATUS(tn_eval(cx), TN_OK);
        tn_tensor *z = i ? tn_keep(tn_matmul(x, w)) : NULL;
        tn_tensor *y = tn_add(tn_matmul(tn_neg(x), w), b);
        if (i) y = tn_add(y, z);
        tn_keep(tn_relu(y));
        CHECK_STATUS(tn_eval(cx), TN_OK);
        const tni_call           *call = NULL;
        const tni_planned_kernel *k    = claiming(cx, &call);
        const tni_plans          *all  = &((const tni_engine *)cx->engine)->plans;
        const tni_plan           *p    = all->plan[all->count - 1];
        if (CHECK(k) && !i) CHECK_INT(call->newest, -1);
        if (k && i && CHECK(call->newest >= 0 && p->step[call->newest] >= 0))
            CHECK(reads_item(k, p->step[call->newest]));
        tn_close(cx);
    }
}

// ---- backward ----------------------------------------------------------------------------------

// The cpu device, except that it also takes what a library of half precision could do at once: the
// slope of an activation with its column sum. It runs the two one after the other.
static struct {
    const tni_device  *real;
    tni_device         device;
    tni_device_calls   calls;
    tni_device_kernels kernels;
    int                taken;        // runs of what the cpu alone would not take
    bool               sums;         // it takes endings with column sums as well
    bool               first_row;    // and one of them read the first row for all others
    bool               prologues;    // it takes prologues, of which the last was
    int                begun;        // run so often,
    bool               kept;         // stored for others,
    bool               overwritten;  // and, run again behind all the rest, was other than before
} library;

static bool is_for_a_library(const tni_call *c, bool only_reader, const tni_epilogue *e)
{
    return c->op == TNI_matmul && only_reader && e->fits && tni_is_rounded(c->out.dtype);
}

static bool takes_sums(const tni_offer *o)
{
    int64_t width = o->call->out.size[o->call->out.rank - 1];
    bool    ok    = library.sums && o->launch && tni_ending_sums(o->launch->kernel) &&
              tni_is_ending(o->launch, o->epilogue.product, width);
    library.first_row |= ok && o->first_row;
    return ok;
}

static bool takes(void *session, const tni_offer *o)
{
    const tni_arg *a = &o->call->in[0];
    if (o->prologue)
        return library.prologues && tni_prologue_from(o->prologue, a->size[a->rank - 1]) >= 0;
    return takes_sums(o) || library.real->calls->takes(session, o) ||
           is_for_a_library(o->call, o->only_reader, &o->epilogue);
}

static tn_status run_with_prologue(const tni_call *call, void *entry, tni_launch *l, tni_text *why);

static tn_status run_with_epilogue(const tni_call *call, void *entry, tni_launch *l, tni_text *why)
{
    if (call->prologue) return run_with_prologue(call, entry, l, why);
    tni_call c = *call;
    c.device   = library.real;
    c.epilogue = NULL;
    if (!l->kernel->tails) return library.real->calls->run_with_epilogue(&c, entry, l, why);
    library.taken++;
    tn_status s = tni_call_run(&c);
    return s == TN_OK ? library.real->kernels->launch(call->session, entry, l, why) : s;
}

// A device may compute the prologue at any time of the step, and more than once.
static tn_status run_with_prologue(const tni_call *call, void *entry, tni_launch *l, tni_text *why)
{
    tni_call       rest   = *call;
    const tni_arg *a      = &call->in[0];
    size_t         bytes  = (size_t)tni_shape_count(a->rank, a->size) * tni_dtype_size(a->dtype);
    char          *before = malloc(bytes);
    rest.prologue         = NULL;
    const tni_device_kernels *by = library.real->kernels;
    tn_status s = by->launch(call->session, *call->prologue_kernel, call->prologue, why);
    if (CHECK(before)) memcpy(before, a->data, bytes);
    if (s == TN_OK) s = run_with_epilogue(&rest, entry, l, why);
    memset(a->data, 0, bytes);
    if (s == TN_OK) s = by->launch(call->session, *call->prologue_kernel, call->prologue, why);
    library.overwritten |= before && memcmp(before, a->data, bytes);
    library.kept = call->prologue_kept;
    library.begun++;
    free(before);
    return s;
}

// lanes: as of a GPU, which reduces rows where they lie; 0: as the cpu.
static tn_ctx *open_library(int lanes)
{
    tn_ctx *cx                      = tn_open("cpu");
    library.real                    = cx->engine->device;
    library.device                  = *library.real;
    library.calls                   = *library.real->calls;
    library.calls.takes             = takes;
    library.calls.run_with_epilogue = run_with_epilogue;
    library.device.calls            = &library.calls;
    library.kernels                 = *library.real->kernels;
    library.kernels.lanes           = lanes;
    library.device.kernels          = &library.kernels;
    library.taken                   = 0;
    library.sums = library.first_row = false;
    library.prologues = library.kept = library.overwritten = false;
    library.begun                                          = 0;
    tni_engine_use(cx, &library.device);
    return cx;
}

// A network of two linear layers with gelu between them, and how it is trained.
typedef struct {
    const char *name;
    tn_dtype    dtype;
    bool        bias;    // the first layer has one
    bool        twice;   // and once more, which adds to the gradients and is not taken
    bool        erf;     // gelu by erf
    bool        summed;  // the hidden values are also added up
    int         want;    // of what follows the product of the backward pass; 0: nothing was taken
} training;

static const training trainings[] = {
    { "slope and sum", TN_BF16, .bias = true, .want = SLOPE | INPUT | SUM },
    { "of f16", TN_F16, .bias = true, .want = SLOPE | INPUT | SUM },
    { "no bias", TN_BF16, .want = SLOPE | INPUT },
    { "f32, of which a library has fewer digits", TN_F32, .bias = true },
    { "a sum that is added to", TN_BF16, true, .twice = true, .want = SLOPE | INPUT | SUM },
    { "gelu by erf", TN_BF16, .bias = true, .erf = true },
    { "a gradient that comes two ways", TN_BF16, .bias = true, .summed = true },
};

static void record(tn_ctx *cx, const training *t, tn_tensor *const w[4])
{
    tn_tensor *h = tn_matmul(w[0], w[1]);
    if (t->bias) h = tn_add(h, w[2]);
    h            = t->erf ? tn_gelu(h) : tn_gelu_tanh(h);
    tn_tensor *l = tn_sum_all(tn_square(tn_matmul(h, w[3])));
    if (t->summed) l = tn_add(l, tn_sum_all(h));
    CHECK_STATUS(tn_backward(l, NULL), TN_OK);
    CHECK_STATUS(tn_eval(cx), TN_OK);
}

// Trains, and reads the gradients of w1, b and w2 one after the other.
static void train(tn_ctx *cx, const training *t, double *grad)
{
    static const int64_t size[4][2] = {
        { ROWS, INNER }, { INNER, COLS }, { COLS }, { COLS, INNER }
    };
    tn_tensor *w[4];
    tn_seed(cx, 3);
    for (int i = 0; i < 4; i++) {
        w[i] = tn_cast(tn_randn(cx, TN_F32, i == 2 ? 1 : 2, size[i]), t->dtype);
        tn_keep(tn_requires_grad(w[i], i > 0));
    }
    CHECK_STATUS(tn_eval(cx), TN_OK);
    for (int i = 0; i <= t->twice; i++) record(cx, t, w);
    for (int i = 1; i < 4; grad += tn_count(w[i++]))
        if (i != 2 || t->bias)
            CHECK_STATUS(tn_read(tn_grad_of(w[i]), TN_F64, grad, tn_count(w[i])), TN_OK);
}

// The parts of the claims with a slope that such a library takes.
static int slope_in(const tn_ctx *cx)
{
    const tni_plans *all  = &((const tni_engine *)cx->engine)->plans;
    int              what = 0;
    for (int i = 0; i < all->count; i++)
        for (size_t k = 0; k < all->plan[i]->kernels; k++) {
            const tni_plan           *p = all->plan[i];
            const tni_planned_kernel *f = &p->kernel[k];
            if (f->call_item < 0 || f->epilogue.activation != TNI_gelu_slope) continue;
            const tni_call *c = &p->call[p->place[f->call_item].call - 1].call;
            if (is_for_a_library(c, f->only_reader, &f->epilogue)) what = parts_of(f, c);
        }
    return what;
}

static void look_at_training(const training *t)
{
    enum { ALL = INNER * COLS * 2 + COLS };
    double    want[ALL] = { 0 }, have[ALL] = { 0 };
    tn_ctx   *cx = tn_open("cpu");
    tn_scope *s  = tn_begin(cx);
    train(cx, t, want);
    test_that(!(slope_in(cx) & SUM), "%s: the cpu takes a sum", t->name);
    tn_end(s);
    tn_close(cx);
    cx = open_library(0);
    s  = tn_begin(cx);
    train(cx, t, have);
    int what = slope_in(cx), runs = t->want & SUM ? 1 : 0;
    test_that(what == t->want, "%s: epilogue %d, and not %d", t->name, what, t->want);
    test_that(library.taken == runs, "%s: %d taken, and not %d", t->name, library.taken, runs);
    test_that(!memcmp(want, have, sizeof want), "%s: other gradients", t->name);
    tn_end(s);
    tn_close(cx);
}

// Trains a batch norm behind a product and reads what it gives and the gradient for the product's
// weight.
static void normalize(tn_ctx *cx, double *have)
{
    enum { MANY = 4096 };
    tn_seed(cx, 3);
    tn_tensor *x = tn_keep(tn_randn(cx, TN_F32, TN_SHAPE(MANY, INNER)));
    tn_tensor *w = tn_keep(tn_requires_grad(tn_randn(cx, TN_F32, TN_SHAPE(INNER, COLS)), true));
    tn_tensor *r = tn_keep(tn_randn(cx, TN_F32, TN_SHAPE(MANY, COLS)));
    CHECK_STATUS(tn_eval(cx), TN_OK);
    tn_batch_norm_opts o = { .training = true };
    tn_tensor         *y = tn_batch_norm(tn_matmul(x, w), NULL, NULL, NULL, NULL, o);
    CHECK_STATUS(tn_backward(tn_sum_all(tn_mul(tn_relu(y), r)), NULL), TN_OK);
    tn_tensor *all = tn_keep(tn_sum(y, 1));
    CHECK_STATUS(tn_eval(cx), TN_OK);
    CHECK_STATUS(tn_read(all, TN_F64, have, MANY), TN_OK);
    CHECK_STATUS(tn_read(tn_grad_of(w), TN_F64, have + MANY, tn_count(w)), TN_OK);
}

// Its statistics are those of differences to the first row.
static void statistics_are_offered_with_the_product_they_are_of(void)
{
    enum { ALL = 4096 + INNER * COLS };
    static double want[ALL], have[ALL];
    tn_ctx       *cx = open_library(1 << 14);
    tn_scope     *s  = tn_begin(cx);
    normalize(cx, want);
    CHECK_INT(library.taken, 0);
    tn_end(s);
    tn_close(cx);
    cx           = open_library(1 << 14);
    s            = tn_begin(cx);
    library.sums = true;
    normalize(cx, have);
    CHECK(library.taken > 0 && library.first_row);
    CHECK(!memcmp(want, have, sizeof want));
    tn_end(s);
    tn_close(cx);
}

// ---- prologues ---------------------------------------------------------------------------------

// What an operand is made of, and what follows: x and r (ROWS, INNER), s (INNER), c (ROWS, 1) are
// there before, y is the product, b (COLS). later: what else reads the operand.
typedef struct {
    tn_tensor *x, *r, *s, *c, *w, *b;
} operands;

static tn_tensor *normed(const operands *v)
{
    return tn_relu(tn_mul(v->x, v->s));
}

// Of a value that dies with it, whose memory the result must not take.
static tn_tensor *summed(const operands *v)
{
    return tn_relu(tn_add(tn_cumsum(v->x, 1), v->r));
}

static tn_tensor *by_rows(const operands *v)
{
    return tn_mul(v->x, v->c);
}

static tn_tensor *centered(const operands *v)
{
    return tn_sub(v->x, tn_mean_keep(v->x, 1));
}

static tn_tensor *of_columns(const operands *v)
{
    return tn_relu(tn_transpose(tn_reshape(v->r, TN_SHAPE(INNER, ROWS)), 0, 1));
}

static tn_tensor *turned(const operands *v)
{
    return tn_transpose(tn_relu(tn_reshape(v->r, TN_SHAPE(INNER, ROWS))), 0, 1);
}

typedef enum { NOTHING, WANTED, ENDING, EARLIER, LATER } reader;

typedef struct {
    const char *name;
    tn_tensor *(*make)(const operands *v);
    reader also;
    bool   taken, kept;
} beginning;

static const beginning beginnings[] = {
    { "a scale and relu", normed, NOTHING, true, false },
    { "that is wanted", normed, WANTED, true, true },
    { "that another product reads later", normed, LATER, true, true },
    { "that another product reads before", normed, EARLIER, false, false },
    { "that the kernel behind reads, too", normed, ENDING, false, false },
    { "a residual", summed, NOTHING, true, false },
    { "a residual that is wanted", summed, WANTED, true, true },
    { "a number for each row", by_rows, NOTHING, false, false },
    { "a mean of rows", centered, NOTHING, false, false },
    { "of columns", of_columns, NOTHING, false, false },
    { "read in another order", turned, NOTHING, false, false },
};

static void begin_and_read(tn_ctx *cx, const beginning *t, double *have)
{
    operands v;
    tn_seed(cx, 5);
    v.x = tn_keep(tn_randn(cx, TN_F32, TN_SHAPE(ROWS, INNER)));
    v.r = tn_keep(tn_randn(cx, TN_F32, TN_SHAPE(ROWS, INNER)));
    v.s = tn_keep(tn_randn(cx, TN_F32, TN_SHAPE(INNER)));
    v.c = tn_keep(tn_randn(cx, TN_F32, TN_SHAPE(ROWS, 1)));
    v.w = tn_keep(tn_randn(cx, TN_F32, TN_SHAPE(INNER, INNER)));
    v.b = tn_keep(tn_randn(cx, TN_F32, TN_SHAPE(INNER)));
    CHECK_STATUS(tn_eval(cx), TN_OK);
    tn_tensor *u = t->make(&v), *w = v.w, *z = NULL;
    if (t->also == EARLIER) w = tn_slice(z = tn_keep(tn_matmul(u, w)), 0, 0, INNER, 1);
    tn_tensor *y = tn_add(tn_matmul(u, w), v.b);
    if (t->also == ENDING) y = tn_add(y, u);
    y = tn_keep(tn_relu(y));
    if (t->also == WANTED) tn_keep(u);
    if (t->also == LATER) z = tn_keep(tn_matmul(u, tn_slice(y, 0, 0, INNER, 1)));
    FILE *f          = tmpfile();
    char  text[4096] = "";
    if (CHECK(f && tn_explain(cx, f) == TN_OK)) {
        rewind(f);
        CHECK(fread(text, 1, sizeof text - 1, f) > 0);
        CHECK((strstr(text, "by the next step") != NULL) == (library.prologues && t->taken));
        fclose(f);
    }
    CHECK_STATUS(tn_eval(cx), TN_OK);
    CHECK_STATUS(tn_read(y, TN_F64, have, ROWS * INNER), TN_OK);
    CHECK_STATUS(tn_read(z ? z : u, TN_F64, have + ROWS * INNER, ROWS * INNER), TN_OK);
}

// The kernel that makes an operand is offered with the product and the kernel behind it, and what
// it reads stays as it is until the end of their step.
static void what_makes_an_operand_is_offered_with_the_product(void)
{
    enum { ALL = 2 * ROWS * INNER };
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++) {
        const beginning *t = &beginnings[i];
        double           want[ALL], have[ALL];
        for (int run = 0; run < 2; run++) {
            tn_ctx   *cx      = open_library(0);
            tn_scope *s       = tn_begin(cx);
            library.prologues = run;
            begin_and_read(cx, t, run ? have : want);
            test_that(library.begun == (run && t->taken), "%s: %d taken", t->name, library.begun);
            if (run && t->taken)
                test_that(library.kept == t->kept && !library.overwritten,
                          "%s: kept %d, overwritten %d", t->name, library.kept,
                          library.overwritten);
            tn_end(s);
            tn_close(cx);
        }
        test_that(!memcmp(want, have, sizeof want), "%s: other values", t->name);
    }
}

static void the_backward_product_takes_gelus_slope_and_the_biass_sum(void)
{
    for (size_t i = 0; i < sizeof trainings / sizeof *trainings; i++)
        look_at_training(&trainings[i]);
}

const test_case tests_epilogue[] = {
    TEST(epilogues_are_found_and_offered),
    TEST(a_call_knows_the_newest_value_that_its_kernel_reads),
    TEST(statistics_are_offered_with_the_product_they_are_of),
    TEST(the_backward_product_takes_gelus_slope_and_the_biass_sum),
    TEST(what_makes_an_operand_is_offered_with_the_product),
    TEST_END,
};
