// test_planned_calls.c: what a device prepares for the calls of a plan. It is asked once for each
// call, every run of the call is given the entry again, and only that call is; an entry is freed
// once, whatever becomes of its plan. Devices are watched from outside: what prepares, runs and
// frees is in this file.
#include "check.h"

#include "base/hash.h"
#include "device/simt/groups.h"
#include "engine/engine.h"
#include "faulty.h"
#include "rules_kit.h"
#include "scratch.h"
#include "skeleton.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- a device that prepares every call ---------------------------------------------------------

enum { MOST = 16384, ARGS = 4 };

// What was prepared: the call without its addresses.
typedef struct {
    bool    live;
    int     op, nin;
    tni_arg out, in[ARGS];
} entry;

static struct {
    const tni_device  *real;
    tni_device         device;
    tni_device_calls   calls;
    tni_device_kernels kernels;
    int                refuse;  // every so many-th is not prepared; 0: all are
    int                count, live, wrong, given, bare, packs, packed;
    bool               cannot_pack;
    entry              entry[MOST];
} planned;

static int shown(const tni_call *c)
{
    return c->nin < ARGS ? c->nin : ARGS;
}

static void *prepare(const tni_call *c)
{
    entry *e = &planned.entry[planned.count % MOST];
    if (planned.refuse && planned.count % planned.refuse == 0) e = NULL;
    planned.count++;
    if (!e) return NULL;
    planned.wrong += e->live || c->out.data;
    *e = (entry){ .live = true, .op = c->op, .nin = c->nin, .out = c->out };
    for (int i = 0; i < shown(c); i++) e->in[i] = c->in[i];
    planned.live++;
    return e;
}

static void forget(void *at)
{
    entry *e = at;
    planned.wrong += !e->live;
    planned.live--;
    e->live = false;
}

static bool is_like(const tni_arg *a, const tni_arg *b)
{
    size_t bytes = (size_t)a->rank * sizeof *a->size;
    return a->dtype == b->dtype && a->rank == b->rank && !memcmp(a->size, b->size, bytes) &&
           !memcmp(a->stride, b->stride, bytes);
}

static bool is_of(const entry *e, const tni_call *c)
{
    bool same = e->live && e->op == c->op && e->nin == c->nin && is_like(&e->out, &c->out);
    for (int i = 0; same && i < shown(c); i++) same = is_like(&e->in[i], &c->in[i]);
    return same;
}

// The packed form of a matrix is a hash of it here, so that a stale one is known.
static size_t packed_bytes(void *session, tn_dtype dt, int64_t rows, int64_t cols)
{
    (void)session, (void)rows, (void)cols;
    return dt == TN_BF16 ? sizeof(uint64_t) : 0;
}

static uint64_t hash_of(const char *w, int64_t count)
{
    return tni_hash(w, (size_t)count * 2);
}

static tn_status pack(void *session, tn_dtype dt, int64_t rows, int64_t cols, const char *w,
                      char *packed, tni_text *why)
{
    uint64_t hash = hash_of(w, rows * cols);
    (void)session, (void)dt;
    tni_text_add(why, "it cannot");
    memcpy(packed, &hash, sizeof hash);
    planned.packs++;
    return planned.cannot_pack ? TN_EDEVICE : TN_OK;
}

static void count_packed(const tni_call *c)
{
    for (int i = 0; i < 2 && i < c->nin; i++) {
        const tni_arg *x = &c->in[i];
        if (!c->packed[i]) continue;
        uint64_t hash = hash_of(x->data, x->size[x->rank - 2] * x->size[x->rank - 1]);
        planned.packed++;
        planned.wrong += memcmp(&hash, c->packed[i], sizeof hash) != 0;
    }
}

// Calls that a call is made of come here too: the device stays this one.
static tn_status run(const tni_call *c)
{
    const tni_op_impl *real = tni_device_impl(planned.real, c->op);
    planned.given += c->entry != NULL;
    planned.bare += c->entry == NULL;
    planned.wrong += c->entry && !is_of(c->entry, c);
    count_packed(c);
    if (real->run) return real->run(c);
    real->run_nofail(c);
    return TN_OK;
}

static void watch(tni_op_impl *impl, int n)
{
    for (int i = 0; i < n; i++) {
        if (!impl[i].run_nofail && !impl[i].run) continue;
        impl[i].run_nofail = NULL;
        impl[i].run        = run;
        impl[i].prepare    = prepare;
        impl[i].forget     = forget;
    }
}

static void use(tn_ctx *cx, int refuse)
{
    memset(&planned, 0, sizeof planned);
    planned.refuse = refuse;
    planned.real   = cx->engine->device;
    planned.device = *planned.real;
    planned.calls  = *planned.real->calls;
    if (planned.real->kernels) planned.kernels = *planned.real->kernels;
    if (planned.real->kernels) planned.device.kernels = &planned.kernels;
    watch(planned.calls.of_op, TNI_OPS);
    watch(planned.calls.of_class, TNI_CLASSES);
    planned.calls.packed_bytes = packed_bytes;
    planned.calls.pack         = pack;
    planned.device.calls       = &planned.calls;
    tni_engine_use(cx, &planned.device);
}

static tn_ctx *open_planned(const char *name, int refuse)
{
    tn_ctx *cx = skeleton_open((tn_open_opts){ .device = name, .threads = 2, .seed = 5 });
    if (cx) use(cx, refuse);
    return cx;
}

// Every entry was freed, and none was given to a call that it is not of.
static void check_all_gone(const char *what)
{
    test_that(planned.count > 0, "%s: nothing was prepared", what);
    test_that(!planned.wrong, "%s: %d entries in the wrong place", what, planned.wrong);
    test_that(TEST_DEBUG || !planned.live, "%s: %d entries are left", what, planned.live);
}

// ---- graphs ------------------------------------------------------------------------------------

enum { ROWS = 12, COLS = 8 };

// Products with and without what follows, a sort of which one output is left out, a convolution
// that is a product, a concat, sums at indices, writes to parts; from other places each time.
static double step(tn_ctx *cx, tn_tensor *x, int k)
{
    tn_tensor *a = tn_slice(x, 0, k, k + ROWS, 1), *w = tn_slice(x, 0, 0, COLS, 1);
    tn_tensor *y = tn_relu(tn_add(tn_matmul(a, w), tn_select(x, 0, k)));
    tn_tensor *z = tn_add(tn_matmul(tn_transpose(y, 0, 1), a), tn_matmul(w, w));
    tn_pair    s = tn_sort(tn_mul_s(y, k + 1), 0, TN_DESCENDING);
    tn_tensor *v = k % 2 ? s.values : tn_cast(s.indices, TN_F32);
    tn_tensor *c = tn_conv2d(tn_reshape(tn_slice(x, 0, k, k + 8, 1), TN_SHAPE(1, COLS, 4, 2)),
                             tn_reshape(w, TN_SHAPE(COLS, COLS, 1, 1)), NULL, (tn_conv_opts){ 0 });
    tn_tensor *m = tn_concat(3, (tn_tensor *[]){ a, y, v }, 1);
    tn_tensor *i = tn_remainder(tn_arange(cx, TN_I64, k, k + ROWS, 1),
                                tn_full(cx, TN_I64, TN_0D, ROWS));
    i            = tn_expand(tn_reshape(i, TN_SHAPE(ROWS, 1)), TN_SHAPE(ROWS, COLS));
    tn_tensor *p = tn_scatter_add(tn_cast(a, TN_F16), 0, i, tn_cast(v, TN_F16));
    tn_assign(tn_select(z, 0, k % COLS), tn_select(x, 0, k));
    tn_tensor *all = tn_add(tn_add(tn_sum_all(z), tn_sum_all(c)),
                            tn_add(tn_sum_all(tn_mul_s(m, 0.25)), tn_sum_all(tn_cast(p, TN_F32))));
    return tn_item(all);
}

static tn_tensor *values(tn_ctx *cx)
{
    return rules_there(cx, TN_SHAPE(40, COLS));
}

enum { STEPS = 6 };

static void steps(tn_ctx *cx, double *y)
{
    tn_tensor *x = values(cx);
    for (int k = 0; k < STEPS; k++) {
        tn_scope *s = tn_begin(cx);
        y[k]        = step(cx, x, k);
        tn_end(s);
    }
}

static void check_device(const char *name, bool eager, int refuse)
{
    double  want[STEPS], have[STEPS];
    char    what[64];
    tn_ctx *plain = tn_open("ref");
    snprintf(what, sizeof what, "%s%s, %d", name, eager ? " op by op" : "", refuse);
    steps(plain, want);
    tn_close(plain);
    setenv("TN_EAGER", eager ? "1" : "0", 1);
    tn_ctx *cx = open_planned(name, refuse);
    unsetenv("TN_EAGER");
    if (!CHECK(cx != NULL)) return;
    steps(cx, have);
    for (int k = 0; k < STEPS; k++) CHECK_NEAR(have[k], want[k], 0.2);
    CHECK_STR(tn_error_text(cx), "");
    CHECK(planned.given > 0);
    tn_close(cx);
    check_all_gone(what);
}

static void calls_get_what_was_prepared_for_them(void)
{
    for (int refuse = 0; refuse <= 4; refuse += 2) {
        check_device("cpu", false, refuse);
        check_device("cpu", true, refuse);
        check_device("ref", false, refuse);
        check_device("skeleton", false, refuse);
    }
}

// There a concat is copies, a convolution a product, and sums at indices begin with a cast.
static void calls_within_calls_get_nothing(void)
{
    tni_text why = { "" };
    if (!tni_device_opencl.probe(&why)) SKIP("%s", why.s);
    check_device("opencl", false, 0);
    CHECK(planned.bare > 0);
    check_device("opencl", true, 0);
}

// ---- plans that go -----------------------------------------------------------------------------

static tn_tensor *product(tn_tensor *x, int n)
{
    tn_tensor *a = tn_slice(tn_reshape(x, TN_SHAPE(1, -1)), 1, 0, n, 1);
    return tn_add_s(tn_matmul(a, tn_transpose(a, 0, 1)), 1);
}

// More plans than are kept, and two of the first ones again.
static void plans_that_are_given_up_free_their_entries(void)
{
    tn_ctx    *cx = open_planned("cpu", 0);
    tn_tensor *x  = rules_there(cx, TN_SHAPE(TNI_PLANS + 40));
    for (int k = 0; k < TNI_PLANS + 40; k++) {
        tn_scope *s = tn_begin(cx);
        tn_item(product(x, k % (TNI_PLANS + 38) + 1));
        tn_end(s);
    }
    CHECK(planned.live <= TNI_PLANS);
    CHECK(planned.count >= TNI_PLANS + 40);
    tn_close(cx);
    check_all_gone("many plans");
}

static void plans_that_are_only_explained_free_their_entries(void)
{
    tn_ctx    *cx = open_planned("cpu", 0);
    tn_tensor *x  = rules_there(cx, TN_SHAPE(30));
    FILE      *f  = tmpfile();
    tn_want(product(x, 20));
    CHECK_STATUS(tn_explain(cx, f), TN_OK);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    CHECK_INT(planned.count, 1);
    tn_close(cx);
    if (f) fclose(f);
    check_all_gone("explained");
}

static tni_registers spill(void *session, void *e, const tni_launch *l)
{
    (void)session, (void)e;
    int over = l->kernel->nins - 12;
    return (tni_registers){ .used = l->kernel->nins, .spilled = over > 0 ? over << 23 : 0 };
}

static tn_status no_entries(void *session, int n, const tni_launch *const *first, void **at,
                            bool wait, tni_text *why)
{
    (void)session, (void)first, (void)wait, (void)why;
    for (int i = 0; i < n; i++) at[i] = NULL;
    return TN_OK;
}

// A plan whose kernels spill gives way to one that cuts them, which prepares its own calls.
static void plans_that_are_cut_free_their_entries(void)
{
    tn_ctx *cx                            = open_planned("cpu", 0);
    planned.kernels.compile_on_second_run = false;
    planned.kernels.recall                = NULL;
    planned.kernels.prepare               = no_entries;
    planned.kernels.registers             = spill;
    tni_engine_set(cx->engine, &planned.device);
    tn_tensor *x = values(cx), *y = x;
    for (int i = 0; i < 40; i++) y = i % 2 ? tn_sin(y) : tn_add(tn_mul_s(y, 0.75), x);
    tn_want(tn_matmul(tn_transpose(y, 0, 1), x));
    CHECK_STATUS(tn_eval(cx), TN_OK);
    CHECK(planned.count > planned.live);
    CHECK_INT(planned.given, 1);
    tn_close(cx);
    check_all_gone("cut");
}

// Memory that is out anywhere leaves no entry behind, and what runs afterwards is right.
static void entries_are_freed_where_memory_is_out(void)
{
    for (long n = 1, failed = 1; failed && n < 4000; n++) {
        faulty  h  = { 0 };
        tn_ctx *cx = faulty_open("cpu", &h);
        use(cx, 0);
        tn_tensor *x = tn_keep(tn_ones(cx, TN_F32, TN_SHAPE(40, COLS)));
        tn_eval(cx);
        h.countdown = n;
        tn_scope *s = tn_begin(cx);
        step(cx, x, 1);
        h.countdown = 0;
        failed      = h.failed;
        double y    = tn_item(product(x, 20));
        tn_end(s);
        tn_close(cx);
        test_that(y == 21, "allocation %ld: %g", n, y);
        test_that(TEST_DEBUG || (!planned.live && !planned.wrong && !faulty_left(&h)),
                  "allocation %ld: %d entries and %ld blocks are left", n, planned.live,
                  faulty_left(&h));
    }
}

// ---- packed matrices ---------------------------------------------------------------------------

// A matrix of 2:4 sparsity in a dtype.
static tn_tensor *pruned(tn_ctx *cx, tn_dtype dt)
{
    tn_tensor *w = tn_cast(tn_slice(values(cx), 0, 0, 16, 1), dt);
    return tn_keep(tn_mul(w, tn_cast(tn_prune_2_4(w, false), dt)));
}

// How many packed operands the computation of y was given.
static int packed_in(tn_tensor *y)
{
    int before = planned.packed;
    CHECK_STATUS(tn_eval_of(y), TN_OK);
    return planned.packed - before;
}

// A parameter that an optimizer has is part of a larger value, and a step writes it, here with what
// it was.
static void check_trained(tn_ctx *cx, tn_tensor *x)
{
    tn_layer  *l = tn_nn_linear_with(cx, COLS, 16, (tn_nn_linear_opts){ 0 });
    tn_tensor *w = tn_layer_find(l, "weight");
    CHECK_STATUS(tn_layer_cast(l, TN_BF16), TN_OK);
    bool mode = tn_grad_mode(cx, false);
    tn_assign(w, pruned(cx, TN_BF16));
    tn_grad_mode(cx, mode);
    tn_optim *opt = tn_sgd(l, (tn_sgd_opts){ .lr = 1 });
    CHECK_STATUS(tn_step(opt, tn_sum_all(tn_forward(l, tn_zeros_like(x)))), TN_OK);
    CHECK_STATUS(tn_compress_2_4(w), TN_OK);
    CHECK_INT(packed_in(tn_linear(x, w, NULL)), 1);
    CHECK_STATUS(tn_step(opt, tn_sum_all(tn_forward(l, tn_zeros_like(x)))), TN_OK);
    CHECK_INT(packed_in(tn_linear(x, w, NULL)), 0);
    tn_optim_free(opt);
}

// A product gets the packed form of a matrix that it reads as a whole and along its rows, on either
// side and for any number of products; nothing else does, and nothing does once the matrix was
// written.
static void products_get_packed_matrices(void)
{
    tn_ctx    *cx = open_planned("cpu", 0);
    tn_tensor *w = pruned(cx, TN_BF16), *wide = pruned(cx, TN_F32);
    tn_tensor *x = tn_cast(tn_slice(values(cx), 0, 0, 32, 1), TN_BF16), *t = tn_transpose(x, 0, 1);
    CHECK_INT(packed_in(tn_linear(x, w, NULL)), 0);
    CHECK_STATUS(tn_compress_2_4(w), TN_OK);
    CHECK_STATUS(tn_compress_2_4(w), TN_OK);
    CHECK_STATUS(tn_compress_2_4(wide), TN_OK);
    CHECK_INT(planned.packs, 1);
    CHECK_INT(packed_in(tn_linear(x, w, NULL)), 1);
    CHECK_INT(packed_in(tn_linear(tn_reshape(x, TN_SHAPE(4, 8, COLS)), w, NULL)), 1);
    CHECK_INT(packed_in(tn_matmul(w, t)), 1);
    CHECK_INT(packed_in(tn_matmul(w, tn_transpose(w, 0, 1))), 2);
    CHECK_INT(packed_in(tn_matmul(tn_transpose(w, 0, 1), w)), 0);
    CHECK_INT(packed_in(tn_linear(x, tn_slice(w, 0, 0, 8, 1), NULL)), 0);
    CHECK_INT(packed_in(tn_linear(x, tn_slice(w, 0, 8, 16, 1), NULL)), 0);
    CHECK_INT(packed_in(tn_linear(tn_slice(x, 1, 0, 4, 1), tn_slice(w, 1, 0, 4, 1), NULL)), 0);
    CHECK_INT(packed_in(tn_linear(tn_cast(x, TN_F32), wide, NULL)), 0);
    tn_assign(tn_select(w, 0, 3), tn_select(x, 0, 3));
    CHECK_INT(packed_in(tn_linear(x, w, NULL)), 0);
    CHECK_STATUS(tn_compress_2_4(w), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "compress_2_4: w (16, 8) has fours with 4 elements that are not 0");
    tn_assign(w, pruned(cx, TN_BF16));
    CHECK_STATUS(tn_compress_2_4(w), TN_OK);
    CHECK_INT(packed_in(tn_linear(x, w, NULL)), 1);
    check_trained(cx, x);
    tn_close(cx);
    check_all_gone("packed");
}

// What cannot be packed is refused by name, or stays as it is.
static void what_is_not_2_4_is_not_packed(void)
{
    static float memory[4 * 8];
    tn_ctx      *cx = open_planned("cpu", 0);
    tn_tensor   *w  = pruned(cx, TN_BF16);
    CHECK_STATUS(tn_compress_2_4(tn_transpose(w, 0, 1)), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "compress_2_4: w (8, 16) is a view: give a tn_clone of it");
    CHECK_STATUS(tn_compress_2_4(tn_clone(tn_slice(w, 0, 4, 8, 1))), TN_OK);
    CHECK_INT(planned.packs, 1);
    CHECK_STATUS(tn_compress_2_4(tn_slice(w, 1, 0, 6, 1)), TN_ESHAPE);
    CHECK_FAILED(cx, TN_ESHAPE, "compress_2_4: w (16, 6) is not a matrix with rows of fours");
    CHECK_STATUS(tn_compress_2_4(tn_zeros(cx, TN_F32, TN_SHAPE(8))), TN_ESHAPE);
    CHECK_FAILED(cx, TN_ESHAPE, "compress_2_4: w (8,) is not a matrix with rows of fours");
    CHECK_STATUS(tn_compress_2_4(tn_zeros(cx, TN_I32, TN_SHAPE(8, 8))), TN_EDTYPE);
    CHECK_FAILED(cx, TN_EDTYPE, "compress_2_4: i32 is not a float type");
    CHECK_STATUS(tn_compress_2_4(tn_zeros(cx, TN_BF16, TN_SHAPE(0, 8))), TN_OK);
    CHECK_STATUS(tn_compress_2_4(tn_borrow(cx, TN_BF16, TN_SHAPE(4, 8), memory, NULL, NULL)),
                 TN_OK);
    CHECK_INT(planned.packs, 1);
    planned.cannot_pack = true;
    CHECK_STATUS(tn_compress_2_4(w), TN_EDEVICE);
    CHECK_FAILED(cx, TN_EDEVICE, "compress_2_4: it cannot");
    CHECK_INT(packed_in(tn_linear(tn_cast(values(cx), TN_BF16), w, NULL)), 0);
    tn_close(cx);
}

// ---- what varies -------------------------------------------------------------------------------

static const char *varies(const tni_call *c)
{
    return c->out.dtype == TN_F32 ? "of a mood" : NULL;
}

static int times(const char *page, const char *what)
{
    int n = 0;
    for (; (page = strstr(page, what)); page++) n++;
    return n;
}

// Explain marks calls by what the device says of them, those that run with a kernel too, and
// convolutions that a device with work groups has its product do.
static void calls_that_vary_are_marked(void)
{
    tn_ctx *cx                             = open_planned("cpu", 0);
    planned.calls.of_op[TNI_matmul].varies = varies;
    planned.calls.of_op[TNI_conv].varies   = tni_groups_conv_varies;
    tn_tensor *x = values(cx), *a = tn_reshape(x, TN_SHAPE(5, COLS, 4, 2));
    tn_tensor *w    = tn_reshape(tn_slice(x, 0, 0, 8, 1), TN_SHAPE(COLS, COLS, 1, 1));
    tn_tensor *v    = tn_reshape(tn_slice(x, 0, 0, 9, 1), TN_SHAPE(1, COLS, 3, 3));
    char      *page = NULL;
    size_t     size = 0;
    FILE      *f    = open_memstream(&page, &size);
    tn_matmul(tn_transpose(x, 0, 1), x);
    tn_relu(tn_matmul(x, tn_transpose(x, 0, 1)));
    tn_matmul(tn_cast(tn_transpose(x, 0, 1), TN_F64), tn_cast(x, TN_F64));
    tn_conv2d(a, w, NULL, (tn_conv_opts){ 0 });
    tn_conv2d(a, v, NULL, (tn_conv_opts){ .padding = { 1, 1 } });
    CHECK_STATUS(tn_explain(cx, f), TN_OK);
    fclose(f);
    if (!CHECK_INT(times(page, "not deterministic: of a mood"), 3)) puts(page);
    free(page);
    tn_close(cx);
}

static const char *method(const tni_call *c)
{
    return c->out.dtype == TN_F32 ? "an abacus" : NULL;
}

// So does a profile: both say what computes a call.
static void what_computes_a_call_is_named(void)
{
    char      *page = NULL, *profile;
    size_t     size = 0;
    tn_ctx    *cx   = open_planned("cpu", 0);
    tn_tensor *x    = values(cx);
    FILE      *f    = open_memstream(&page, &size);
    if (!CHECK(scratch_open())) return;
    planned.calls.of_op[TNI_matmul].method = method;
    CHECK_STATUS(tn_profile_begin(cx), TN_OK);
    tn_want(tn_matmul(tn_transpose(x, 0, 1), x));
    tn_want(tn_relu(tn_matmul(x, tn_transpose(x, 0, 1))));
    tn_want(tn_matmul(tn_cast(tn_transpose(x, 0, 1), TN_F64), tn_cast(x, TN_F64)));
    CHECK_STATUS(tn_explain(cx, f), TN_OK);
    fclose(f);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    CHECK_STATUS(tn_profile_end(cx), TN_OK);
    CHECK_STATUS(tn_profile_write(cx, scratch_path("profile")), TN_OK);
    CHECK_INT(times(page, "by an abacus\n"), 2);
    profile = scratch_read(scratch_path("profile"), &size);
    if (CHECK(profile != NULL)) CHECK_INT(times(profile, ") by an abacus "), 2);
    free(profile);
    free(page);
    tn_close(cx);
    scratch_close();
}

const test_case tests_planned_calls[] = {
    TEST(calls_get_what_was_prepared_for_them),
    TEST(calls_within_calls_get_nothing),
    TEST(plans_that_are_given_up_free_their_entries),
    TEST(plans_that_are_only_explained_free_their_entries),
    TEST(plans_that_are_cut_free_their_entries),
    TEST(entries_are_freed_where_memory_is_out),
    TEST(products_get_packed_matrices),
    TEST(what_is_not_2_4_is_not_packed),
    TEST(calls_that_vary_are_marked),
    TEST(what_computes_a_call_is_named),
    TEST_END,
};
