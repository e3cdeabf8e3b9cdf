// test_memory.c: the cache of device memory: its sizes, the best fit, the limit, what is said when
// memory is out; every allocation of a training step that fails, on every device that is here; and
// a thousand failures in a row.
#include "check.h"
#include "faulty.h"
#include "host.h"
#include "rules_kit.h"
#include "tree.h"

#include "device/cuda/gpu.h"
#include "engine/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tenon.h>

enum { MIB = 1 << 20 };

// ---- the cache by itself -----------------------------------------------------------------------

// Memory that counts its blocks, and has none past some.
typedef struct {
    int     blocks, made;
    int64_t bytes;  // that it gives
} purse;

static void *purse_alloc(void *state, size_t bytes)
{
    purse  *p  = state;
    size_t *at = p->bytes < (int64_t)bytes ? NULL : malloc(sizeof *at);
    if (!at) return NULL;
    *at = bytes;
    p->bytes -= (int64_t)bytes;
    p->blocks++;
    p->made++;
    return at;
}

static void purse_free(void *state, void *block)
{
    purse *p = state;
    p->bytes += (int64_t) * (size_t *)block;
    p->blocks--;
    free(block);
}

typedef struct {
    tni_heap    heap;
    tni_buffers b;
    purse       p;
} cache;

static tni_buffers *cache_open(cache *c, int64_t bytes, int64_t limit)
{
    *c                = (cache){ .heap = tni_heap_default(), .p = { .bytes = bytes } };
    tni_memory memory = { .alloc = purse_alloc, .free = purse_free, .state = &c->p };
    tni_buffers_open(&c->b, &c->heap, memory, limit);
    return &c->b;
}

static void cache_close(cache *c)
{
    tni_buffers_close(&c->b);
    CHECK_INT(c->p.blocks, 0);
    CHECK_INT(c->b.held, 0);
    CHECK_INT(c->b.bytes, 0);
}

static void sizes_waste_little(void)
{
    size_t last = 0;
    for (size_t n = 1; n < (size_t)1 << 40; n += n / 37 + 1) {
        size_t size = tni_buffer_size(n), waste = size - n;
        bool   ok = size >= n && size >= last && tni_buffer_size(size) == size && size % 16 == 0;
        if (n >= 64 && n <= MIB) ok = ok && waste <= n / 4;
        if (n > MIB) ok = ok && waste <= n / 8 && waste < 2 * MIB;
        if (!ok) test_that(false, "%zu bytes become %zu", n, size);
        last = size;
    }
    CHECK_INT(tni_buffer_size(0), 64);
    CHECK_INT(tni_buffer_size(MIB + 1), MIB + MIB / 8);
    CHECK_INT(tni_buffer_size(100 * MIB - 5), 100 * MIB);
}

static void the_smallest_block_that_fits_is_taken(void)
{
    cache        c;
    tni_buffers *b       = cache_open(&c, INT64_MAX, 0);
    tni_buffer  *block[] = { tni_buffer_new(b, 40 * MIB), tni_buffer_new(b, 44 * MIB),
                             tni_buffer_new(b, 42 * MIB) };
    char        *data    = block[2]->data;
    for (int i = 0; i < 3; i++) tni_buffer_unref(b, block[i]);
    tni_buffer *x = tni_buffer_new(b, 41 * MIB);
    CHECK(x->data == data);
    CHECK_INT(b->bytes, 42 * MIB);
    CHECK_INT(c.p.made, 3);
    tni_buffer *y = tni_buffer_new(b, 41 * MIB);  // 44 wastes less than an eighth
    CHECK_INT(c.p.made, 3);
    tni_buffer *z = tni_buffer_new(b, 34 * MIB);  // 40 would waste more
    CHECK_INT(c.p.made, 4);
    CHECK_INT(b->bytes, (42 + 42 + 34) * (int64_t)MIB);
    CHECK_INT(b->held, (40 + 42 + 44 + 34) * (int64_t)MIB);
    tni_buffer_unref(b, x);
    tni_buffer_unref(b, y);
    tni_buffer_unref(b, z);
    cache_close(&c);
}

static void small_blocks_are_reused_for_their_size_alone(void)
{
    cache        c;
    tni_buffers *b    = cache_open(&c, INT64_MAX, 0);
    tni_buffer  *x    = tni_buffer_new(b, 5000);
    char        *data = x->data;
    tni_buffer_unref(b, x);
    x             = tni_buffer_new(b, 4097);
    tni_buffer *y = tni_buffer_new(b, 4096);
    CHECK(x->data == data && y->data != data);
    tni_buffer_unref(b, x);
    tni_buffer_unref(b, y);
    cache_close(&c);
}

static void what_lies_free_is_given_back_before_memory_is_out(void)
{
    for (int limited = 0; limited < 2; limited++) {
        cache        c;
        int64_t      all = 100 * (int64_t)MIB;
        tni_buffers *b   = cache_open(&c, limited ? INT64_MAX : all, limited ? all : 0);
        tni_buffer  *x = tni_buffer_new(b, 60 * MIB), *y = tni_buffer_new(b, 1000);
        tni_buffer_unref(b, x);
        CHECK_INT(b->held - b->bytes, 60 * MIB);
        x = tni_buffer_new(b, 90 * MIB);
        CHECK(x != NULL);
        CHECK_INT(c.p.blocks, 2);
        CHECK(tni_buffer_new(b, 10 * MIB) == NULL);
        CHECK_INT(c.p.blocks, 2);
        tni_buffer_unref(b, x);
        CHECK(tni_buffer_new(b, SIZE_MAX) == NULL && tni_buffer_new(b, (size_t)1 << 60) == NULL);
        tni_buffer_unref(b, y);
        CHECK(b->peak <= all && b->held <= all);
        cache_close(&c);
    }
}

static void blocks_of_ever_other_sizes_are_given_back(void)
{
    cache        c;
    tni_buffers *b    = cache_open(&c, INT64_MAX, 0);
    int64_t      most = 0, high = 0;
    for (int i = 0; i < 300; i++) {
        int64_t     mib = 20 + (i * 37) % 83;
        tni_buffer *x   = tni_buffer_new(b, (size_t)mib * MIB);
        tni_buffer *y   = tni_buffer_new_temp(b, (size_t)mib * MIB);
        if (b->bytes > high) high = b->bytes;
        if (b->held > most) most = b->held;
        tni_buffer_unref(b, y);
        tni_buffer_unref(b, x);
        tni_buffers_end_evaluation(b);
        test_that(b->held <= 2 * high + 64 * MIB, "round %d: %lld", i, (long long)b->held);
    }
    CHECK(most > high && b->returned > 0);
    cache_close(&c);
}

// A loop whose plans take turns finds every block again, and so does a loop after a long time.
static void what_is_used_again_is_not_given_back(void)
{
    static const size_t mib[] = { 90, 70, 30, 10, 1 };
    enum { SIZES = 5 };
    cache        c;
    tni_buffers *b    = cache_open(&c, INT64_MAX, 0);
    int          made = 0;
    for (int i = 0; i < 3000; i++) {
        tni_buffer *x = tni_buffer_new(b, mib[i % SIZES] * MIB);
        tni_buffer_unref(b, x);
        tni_buffers_end_evaluation(b);
        if (i == SIZES) made = c.p.made;
    }
    CHECK_INT(made, SIZES);
    CHECK_INT(c.p.made, made);
    CHECK_INT(b->returned, 0);
    cache_close(&c);
}

static void a_high_tide_leaves_its_memory_to_others_in_the_end(void)
{
    cache        c;
    tni_buffers *b = cache_open(&c, INT64_MAX, 0);
    tni_buffer_unref(b, tni_buffer_new(b, 2000 * (size_t)MIB));
    tni_buffer_unref(b, tni_buffer_new(b, 300 * (size_t)MIB));
    CHECK_INT(b->held, 2300 * (int64_t)MIB);
    for (int i = 0; i < 1000; i++) {
        tni_buffer_unref(b, tni_buffer_new(b, 20 * MIB));
        tni_buffers_end_evaluation(b);
    }
    CHECK_INT(b->held, 20 * MIB);  // the others were free for longer
    CHECK_INT(b->returned, 2300 * (int64_t)MIB);
    cache_close(&c);
}

// An arena at one address.
static char the_arena;

static void *purse_arena(void *state, size_t bytes, size_t most, size_t *held)
{
    (void)state, (void)most;
    if (bytes == 0 || bytes > *held) *held = bytes;
    return &the_arena;
}

// One large evaluation does not keep the memory of all that come after it.
static void an_arena_that_is_much_too_large_is_given_back(void)
{
    cache        c;
    tni_buffers *b  = cache_open(&c, INT64_MAX, 0);
    b->memory.arena = purse_arena;
    tni_buffer_unref(b, tni_buffer_new_temp(b, 2000 * (size_t)MIB));
    for (int i = 0; i < 1000; i++) {
        tni_buffer *x = tni_buffer_new_temp(b, 30 * MIB);
        CHECK(x && x->data == &the_arena);
        tni_buffer_unref(b, x);
        if (i == 100) CHECK_INT(b->held, 2000 * (int64_t)MIB);
        tni_buffers_end_evaluation(b);
    }
    CHECK_INT(b->held, 30 * MIB);
    CHECK_INT(b->returned, 2000 * (int64_t)MIB);
    cache_close(&c);
}

// Many plans of different sizes share a block for what they need on their way; what lasts does not
// lie in a block that is much too large.
static void what_is_needed_on_the_way_may_lie_in_a_larger_block(void)
{
    cache        c;
    tni_buffers *b   = cache_open(&c, INT64_MAX, 0);
    tni_buffer  *big = tni_buffer_new(b, 100 * MIB);
    tni_buffer_unref(b, big);
    tni_buffer *x = tni_buffer_new_temp(b, 10 * MIB), *y = tni_buffer_new(b, 10 * MIB);
    CHECK(x == big && y != big);
    CHECK_INT(b->bytes, 20 * MIB);
    CHECK_INT(c.p.made, 2);
    tni_buffer_unref(b, x);
    x = tni_buffer_new_temp(b, 1000);  // not worth it
    CHECK(x != big);
    tni_buffer_unref(b, x);
    tni_buffer_unref(b, y);
    cache_close(&c);
}

// ---- the limit and the message -----------------------------------------------------------------

static void numbers_of_bytes_are_read(void)
{
    static const struct {
        const char *text;
        int64_t     bytes;  // 0: it is none
    } cases[] = { { "1", 1 },          { "512", 512 },
                  { "3K", 3072 },      { "512M", 512 << 20 },
                  { "2G", 2ll << 30 }, { "7m", 7 << 20 },
                  { "", 0 },           { "0", 0 },
                  { "-5", 0 },         { "5X", 0 },
                  { "5MB", 0 },        { "M", 0 },
                  { "1.5G", 0 },       { "99999999999999999999", 0 },
                  { "9999999999G", 0 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t n  = 0;
        bool    ok = tni_parse_bytes(cases[i].text, &n);
        test_case_result(ok == (cases[i].bytes > 0) && (!ok || n == cases[i].bytes), "\"%s\": %lld",
                         cases[i].text, (long long)n);
    }
}

static tn_ctx *open_limited(const char *device, const char *variable, int64_t limit)
{
    if (variable) setenv("TN_MEM_LIMIT", variable, 1);
    tn_ctx *cx = tn_open_with((tn_open_opts){ .device = device, .mem_limit = limit, .threads = 1 });
    unsetenv("TN_MEM_LIMIT");
    if (cx) tn_on_error(cx, NULL, NULL);
    return cx;
}

// Whether a context was opened; if not, the test is skipped for the reason.
static bool is_here(tn_ctx *cx)
{
    if (!cx) test_skip("%s", tn_error_text(NULL));
    tn_error_clear(NULL);
    return cx != NULL;
}

static void the_environment_limits_who_sets_no_limit(void)
{
    static float data[2000];
    tn_ctx      *cx = open_limited("cpu", "4K", 0);
    CHECK(tn_from(cx, TN_F32, TN_SHAPE(2000), data) == NULL);
    CHECK_STATUS(tn_error(cx), TN_EMEM);
    tn_close(cx);
    cx = open_limited("cpu", "4K", 1 << 20);
    CHECK(tn_from(cx, TN_F32, TN_SHAPE(2000), data) != NULL);
    tn_close(cx);
    CHECK(open_limited("cpu", "much", 0) == NULL);
    CHECK_STR(tn_error_text(NULL),
              "open: TN_MEM_LIMIT is \"much\", not a number of bytes such as 512M");
    tn_error_clear(NULL);
}

static void the_message_says_who_has_the_memory(void)
{
    static float data[30000];
    tn_ctx      *cx   = open_limited("cpu", NULL, 250000);
    tn_tensor   *w    = tn_set_name(tn_from(cx, TN_F32, TN_SHAPE(200, 100), data), "weights");
    int          line = __LINE__ + 1;
    tn_tensor   *y    = tn_want(tn_exp(tn_from(cx, TN_F32, TN_SHAPE(10000), data)));
    CHECK_STATUS(tn_eval(cx), TN_OK);
    CHECK(w && y && tn_from(cx, TN_F32, TN_SHAPE(3, 10000), data) == NULL);
    const char *text = tn_error_text(cx);
    test_that(strstr(text, "from: out of memory for (3, 10000) of f32: no 117.2 KiB besides the "
                           "160.0 KiB in use, of a limit of 244.1 KiB; the largest: "
                           "weights (200, 100) of f32, 80.0 KiB; (10000,) of f32 made at "),
              "%s", text);
    test_that(strstr(text, SITE(line)) != NULL, "%s", text);
    tn_error_clear(cx);
    tn_tensor *z = tn_want(tn_expand(tn_unsqueeze(y, 0), TN_SHAPE(9, 10000)));
    line         = __LINE__ + 1;
    z            = tn_want(tn_add_s(z, 1));
    CHECK_STATUS(tn_eval(cx), TN_EMEM);
    CHECK_FAILED2(cx, TN_EMEM, "add: out of memory for (9, 10000) of f32 recorded at", SITE(line));
    CHECK(tn_item(tn_sum_all(y)) == 10000);
    tn_close(cx);
}

// ---- a caller's memory -------------------------------------------------------------------------

static struct {
    float memory[64];
    int   settled, released;
    bool  elsewhere;
} lender;

static tn_status holds(void *session, const void *p, size_t bytes, bool *here, tni_text *why)
{
    const char *at = p, *from = (char *)lender.memory;
    (void)session;
    *here = at >= from && at + bytes <= from + sizeof lender.memory;
    if (!lender.elsewhere) return TN_OK;
    tni_text_add(why, "it is elsewhere");
    return TN_EARG;
}

static void settle(void *session)
{
    (void)session;
    lender.settled++;
}

static void release(void *data, void *user)
{
    (void)data, (void)user;
    lender.released++;
    CHECK(lender.settled > 0 || data != lender.memory);
}

// The cpu as a device whose memory is not the host's.
static void memory_of_the_device_is_used_as_it_is(void)
{
    tni_device          d        = tni_device_cpu;
    tni_device_memory   memory   = *d.memory;
    tni_device_borrowed borrowed = { holds, settle };
    tn_ctx             *cx       = open_limited("cpu", NULL, 0);
    memory.host                  = false;
    d.memory                     = &memory;
    d.borrowed                   = &borrowed;
    tni_engine_set(cx->engine, &d);
    cx->buffers.memory.wait_unused = settle;
    memset(&lender, 0, sizeof lender);
    float      other[4] = { 1, 2, 3, 4 };
    tn_tensor *x        = tn_borrow(cx, TN_F32, TN_SHAPE(4), lender.memory + 4, release, NULL);
    CHECK_INT(tn_ctx_stats(cx).copies, 0);
    lender.memory[5] = 5;
    CHECK(tn_item(tn_sum_all(x)) == 5);
    CHECK_INT(lender.released, 0);
    tn_drop(x);
    CHECK(lender.released == 1 && lender.settled == 1);
    x = tn_borrow(cx, TN_F32, TN_SHAPE(4), other, release, NULL);  // is copied
    CHECK(lender.released == 2 && lender.settled == 1);
    other[0] = 100;
    CHECK(tn_item(tn_sum_all(x)) == 10);
    CHECK(tn_borrow(cx, TN_F32, TN_SHAPE(2), (char *)lender.memory + 2, release, NULL) == NULL);
    CHECK_FAILED(cx, TN_EARG, "borrow: data is not aligned to its element size of 4 bytes");
    lender.elsewhere = true;
    CHECK(tn_borrow(cx, TN_F32, TN_SHAPE(4), other, release, NULL) == NULL);
    CHECK_FAILED(cx, TN_EARG, "borrow: it is elsewhere");
    CHECK_INT(lender.released, 4);
    tn_close(cx);
}

static void memory_of_a_gpu_is_used_as_it_is(void)
{
    tn_ctx  *cx    = open_limited("cuda", NULL, 0);
    tni_text why   = { "" };
    float    v[64] = { 0 };
    if (!is_here(cx)) return;
    memset(&lender, 0, sizeof lender);
    lender.settled = 1;
    tni_cuda *c    = cx->engine->session;
    float    *p    = tni_cuda_alloc(c, sizeof v);
    for (int i = 0; i < 64; i++) v[i] = (float)i;
    CHECK_STATUS(tni_cuda_upload(c, p, TN_F32, v, 64, &why), TN_OK);
    tn_tensor *x = tn_borrow(cx, TN_F32, TN_SHAPE(6, 10), p + 4, release, NULL);
    CHECK_INT(tn_ctx_stats(cx).copies, 0);
    CHECK(tn_item(tn_sum_all(tn_add_s(x, 1))) == 60 * 33.5 + 60);
    tn_add_(x, x);  // is written somewhere else
    CHECK(tn_item(tn_sum_all(x)) == 2 * 60 * 33.5);
    CHECK_STATUS(tni_cuda_download(c, v, TN_F32, p, 64, &why), TN_OK);
    CHECK(v[4] == 4 && v[63] == 63);
    CHECK_INT(lender.released, 1);
    CHECK(tn_borrow(cx, TN_F32, TN_SHAPE(1 << 28), p, release, NULL) == NULL);
    CHECK_FAILED(cx, TN_EARG, "borrow: data has ");
    tni_cuda_free(c, p);
    tn_close(cx);
}

// ---- uploads beside work -----------------------------------------------------------------------

// Each step uploads a batch, has work to do for longer than that takes, and adds the batch up.
static void upload_and_work(const char *device)
{
    enum { FEW = 4096, MANY = 1 << 20, STEPS = 300 };
    tn_ctx *cx = open_limited(device, NULL, 0);
    if (!is_here(cx)) return;
    float     *data  = malloc(MANY * sizeof *data);
    tn_tensor *big   = tn_keep(tn_rand(cx, TN_F32, TN_SHAPE(256, 256)));
    tn_tensor *total = tn_keep(tn_zeros(cx, TN_F64, TN_0D));
    double     want  = 0;
    for (int i = 0; i < STEPS; i++) {
        int64_t n = i % 50 == 49 ? MANY : FEW;
        for (int64_t k = 0; k < n; k++) data[k] = (float)(i % 7);
        want += (double)n * (i % 7);
        tn_scope  *s    = tn_begin(cx);
        tn_tensor *x    = tn_from(cx, TN_F32, TN_SHAPE(n), data);
        tn_tensor *work = tn_sum_all(tn_matmul(tn_matmul(big, big), big));
        tn_add_(total, tn_cast(tn_add(tn_sum_all(x), tn_mul_s(work, 0)), TN_F64));
        CHECK_STATUS(tn_eval(cx), TN_OK);
        tn_end(s);
    }
    CHECK(tn_item(total) == want);
    free(data);
    tn_close(cx);
}

static void batches_are_read_as_uploaded_on_cpu(void)
{
    upload_and_work("cpu");
}

static void batches_are_read_as_uploaded_on_cuda(void)
{
    upload_and_work("cuda");
}

// ---- allocations that fail ---------------------------------------------------------------------

// A device's memory, which fails from the n-th allocation on, if n is not 0.
typedef struct {
    tni_memory memory;
    long       countdown, made, failed;
} broken;

static bool breaks(broken *b)
{
    b->made++;
    if (b->countdown == 1) b->failed++;
    if (b->countdown > 1) b->countdown--;
    else return b->countdown == 1;
    return false;
}

static void *broken_alloc(void *state, size_t bytes)
{
    broken *b = state;
    return breaks(b) ? NULL : b->memory.alloc(b->memory.state, bytes);
}

static void *broken_arena(void *state, size_t bytes, size_t most, size_t *held)
{
    broken *b = state;
    if (bytes && breaks(b)) return NULL;
    return b->memory.arena(b->memory.state, bytes, most, held);
}

static void broken_free(void *state, void *p)
{
    broken *b = state;
    b->memory.free(b->memory.state, p);
}

static uint64_t broken_now(void *state)
{
    broken *b = state;
    return b->memory.submitted ? b->memory.submitted(b->memory.state) : 0;
}

static bool broken_done(void *state, uint64_t work)
{
    broken *b = state;
    return b->memory.completed ? b->memory.completed(b->memory.state, work) : true;
}

static void break_memory(tn_ctx *cx, broken *b)
{
    *b                 = (broken){ .memory = cx->buffers.memory };
    cx->buffers.memory = (tni_memory){ .alloc       = broken_alloc,
                                       .free        = broken_free,
                                       .arena       = b->memory.arena ? broken_arena : NULL,
                                       .state       = b,
                                       .submitted   = broken_now,
                                       .completed   = broken_done,
                                       .wait_unused = b->memory.wait_unused };
}

// Gives back what the cache keeps, so that all is asked for again.
static void empty_cache(tn_ctx *cx)
{
    tni_buffers_trim(&cx->buffers);
    CHECK_INT(cx->buffers.held, cx->buffers.bytes);
}

// ---- a training

enum { IN = 24, OUT = 5, BATCH = 16 };

typedef struct {
    tn_ctx   *cx;
    tn_layer *net;
    tn_optim *opt;
    int       steps;
} training;

static bool training_open(training *t, const char *device)
{
    *t = (training){ .cx = tn_open_with((tn_open_opts){ .device = device, .seed = 3 }) };
    if (!is_here(t->cx)) return false;
    tn_on_error(t->cx, NULL, NULL);
    t->net = tn_nn_seq(t->cx, tn_nn_linear(t->cx, IN, 40), tn_nn_batch_norm(t->cx, 40),
                       tn_nn_act(t->cx, tn_relu), tn_nn_linear(t->cx, 40, OUT));
    t->opt = tn_adamw(t->net, (tn_adamw_opts){ .lr = 1e-2f, .clip_norm = 1 });
    return CHECK(t->net && t->opt);
}

// A step on the batch of its number; true if it was done.
static bool training_step(training *t)
{
    float   x[BATCH * IN];
    int64_t y[BATCH];
    for (int i = 0; i < BATCH * IN; i++) x[i] = sinf((float)(i + 31 * t->steps));
    for (int i = 0; i < BATCH; i++) y[i] = (i + t->steps) % OUT;
    tn_scope  *s    = tn_begin(t->cx);
    tn_tensor *in   = tn_from(t->cx, TN_F32, TN_SHAPE(BATCH, IN), x);
    tn_tensor *want = tn_from(t->cx, TN_I64, TN_SHAPE(BATCH), y);
    tn_tensor *loss = tn_cross_entropy(tn_forward(t->net, in), want);
    bool       ok   = loss && tn_step(t->opt, loss) == TN_OK;
    ok              = tn_end(s) == TN_OK && ok;
    t->steps += ok;
    return ok;
}

static void add_elements(const char *name, tn_tensor *p, void *user)
{
    double *sum = user;
    int64_t n   = tn_count(p);
    float  *v   = calloc((size_t)n, sizeof *v);
    CHECK_STATUS(tn_read(p, TN_F32, v, n), TN_OK);
    for (int64_t k = 0; k < n; k++) *sum += (double)v[k] * (double)(k % 101 + name[0]);
    free(v);
}

// The sum of the elements of every parameter and buffer, each by a weight.
static double fingerprint(training *t)
{
    double sum = 0;
    CHECK_STATUS(tn_layer_each(t->net, add_elements, &sum), TN_OK);
    return sum;
}

// Fails the n-th allocation of a step and those behind it; then the step is done. False once a step
// takes fewer.
static bool fail_step(training *t, broken *b, const char *device, long n)
{
    empty_cache(t->cx);
    double before = fingerprint(t);
    empty_cache(t->cx);
    b->failed    = 0;
    b->countdown = n;
    bool ok      = training_step(t);
    b->countdown = 0;
    if (!b->failed) return false;
    test_case_result(!ok && tn_error(t->cx) == TN_EMEM, "%s, allocation %ld: %s", device, n,
                     tn_error_text(t->cx));
    tn_error_clear(t->cx);
    double after = fingerprint(t);
    test_case_result(after == before && !tn_error(t->cx), "%s, allocation %ld: half a step", device,
                     n);
    if (!ok) ok = training_step(t);
    test_case_result(ok, "%s, after allocation %ld: %s", device, n, tn_error_text(t->cx));
    return true;
}

static void fail_everywhere(const char *device)
{
    training t, twin;
    broken   b;
    long     n = 1;
    if (!training_open(&t, device)) return;
    if (!CHECK(training_open(&twin, device))) return;
    break_memory(t.cx, &b);
    for (int i = 0; i < 4; i++) CHECK(training_step(&t));
    int64_t bytes = tn_ctx_stats(t.cx).bytes;
    while (n < 200 && fail_step(&t, &b, device, n)) n++;
    CHECK(n > 3);
    CHECK_INT(tn_ctx_stats(t.cx).bytes, bytes);
    while (twin.steps < t.steps) CHECK(training_step(&twin));
    CHECK(fingerprint(&t) == fingerprint(&twin));
    tn_close(t.cx);
    tn_close(twin.cx);
}

static void any_device_allocation_may_fail_on_cpu(void)
{
    fail_everywhere("cpu");
}

static void any_device_allocation_may_fail_on_ref(void)
{
    fail_everywhere("ref");
}

static void any_device_allocation_may_fail_on_opencl(void)
{
    fail_everywhere("opencl");
}

// Nothing is chosen by time, so that the twin does the same.
static void any_device_allocation_may_fail_on_cuda(void)
{
    setenv("TN_DETERMINISTIC", "1", 1);
    fail_everywhere("cuda");
    unsetenv("TN_DETERMINISTIC");
}

// ---- steady steps ------------------------------------------------------------------------------

// Blocks of more than a megabyte, of sizes that are near each other.
static void a_steady_step_takes_no_device_memory(void)
{
    enum { ROWS = 300, WARM = 6 };
    broken    b;
    tn_ctx   *cx   = open_limited("cpu", NULL, 0);
    tn_layer *net  = tn_nn_seq(cx, tn_nn_linear(cx, 1000, 1100), tn_nn_act(cx, tn_gelu),
                               tn_nn_linear(cx, 1100, 1050), tn_nn_act(cx, tn_relu),
                               tn_nn_linear(cx, 1050, 10));
    tn_optim *opt  = tn_sgd(net, (tn_sgd_opts){ .lr = 1e-3f, .momentum = 0.9f });
    long      made = 0;
    break_memory(cx, &b);
    for (int i = 0; i < 2 * WARM; i++) {
        if (i == WARM) made = b.made;
        tn_scope  *s = tn_begin(cx);
        tn_tensor *x = tn_randn(cx, TN_F32, TN_SHAPE(ROWS, 1000));
        CHECK_STATUS(tn_step(opt, tn_mean_all(tn_square(tn_forward(net, x)))), TN_OK);
        tn_end(s);
    }
    CHECK(made > 0);
    CHECK_INT(b.made, made);
    tn_close(cx);
}

// Values of another size every time: what the process has stays near what it needs at once.
static void use_many_sizes(const char *device, bool host)
{
    enum { ROUNDS = 40, MOST = 6 << 20 };
    tn_ctx *cx = open_limited(device, NULL, 0);
    if (!is_here(cx)) return;
    long     before = host_resident(), most = 0;
    uint32_t random = 1;
    for (int i = 0; i < ROUNDS; i++) {
        random      = random * 1664525u + 1013904223u;
        tn_scope *s = tn_begin(cx);
        tn_eval_of(tn_cumsum(tn_full(cx, TN_F32, TN_SHAPE(1 + (random >> 8) % MOST), 1), 0));
        tn_end(s);
        if (host_resident() - before > most) most = host_resident() - before;
    }
    tn_stats st = tn_ctx_stats(cx);
    CHECK(st.peak > MOST && st.returned > 0);
    test_that(st.bytes + st.kept <= 2 * st.peak + 64 * MIB, "%lld kept", (long long)st.kept);
    if (host && !TN_SANITIZE[0])
        test_that(most < 2 * st.peak + 80 * MIB, "%ld bytes, peak %lld", most, (long long)st.peak);
    tn_close(cx);
}

static void values_of_many_sizes_leave_little_behind_on_cpu(void)
{
    use_many_sizes("cpu", true);
}

static void values_of_many_sizes_leave_little_behind_on_opencl(void)
{
    use_many_sizes("opencl", false);  // the driver's memory may be the host's or not
}

static void values_of_many_sizes_leave_little_behind_on_cuda(void)
{
    use_many_sizes("cuda", false);
}

// ---- a thousand failures -----------------------------------------------------------------------

// A step that fails in one of three places: uploading, the temporary values, the results.
static tn_status ask_too_much(tn_ctx *cx, int which)
{
    static float data[200000];
    tn_scope    *s      = tn_begin(cx);
    tn_status    status = TN_OK;
    if (which == 0) {
        status = tn_from(cx, TN_F32, TN_SHAPE(200000), data) ? TN_OK : tn_error(cx);
    } else if (which == 1) {
        tn_tensor *a = tn_rand(cx, TN_F32, TN_SHAPE(400, 400));
        tn_want(tn_sum_all(tn_matmul(tn_matmul(a, a), a)));
        status = tn_eval(cx);
    } else {
        tn_tensor *a = tn_want(tn_rand(cx, TN_F32, TN_SHAPE(60000)));
        tn_want(tn_mul(a, a));
        tn_want(tn_add(a, a));
        status = tn_eval(cx);
    }
    tn_error_clear(cx);
    tn_end(s);
    tn_error_clear(cx);
    return status;
}

static void fail_often(const char *device)
{
    tn_ctx *cx = open_limited(device, NULL, 600000);
    if (!is_here(cx)) return;
    tn_tensor *w = tn_keep(tn_full(cx, TN_F32, TN_SHAPE(300), 2));
    tn_stats   before;
    long       memory = 0, wrong = 0;
    for (int i = 0; i < 1030; i++) {
        wrong += ask_too_much(cx, i % 3) != TN_EMEM;
        tn_scope *s = tn_begin(cx);
        wrong += tn_item(tn_sum_all(w)) != 600;
        tn_end(s);
        if (i != 30) continue;
        before = tn_ctx_stats(cx);
        memory = host_resident();
    }
    tn_stats after = tn_ctx_stats(cx);
    CHECK_INT(wrong, 0);
    CHECK_INT(after.bytes, before.bytes);
    CHECK_INT(after.nodes, before.nodes);
    CHECK_INT(after.plans, before.plans);
    CHECK(after.peak <= 600000 && after.bytes + after.kept <= 600000);
    if (!TN_SANITIZE[0] && !TEST_DEBUG) CHECK(host_resident() - memory < 1 << 20);
    tn_close(cx);
}

static void a_thousand_failures_leave_nothing_behind_on_cpu(void)
{
    fail_often("cpu");
}

static void a_thousand_failures_leave_nothing_behind_on_opencl(void)
{
    fail_often("opencl");
}

static void a_thousand_failures_leave_nothing_behind_on_cuda(void)
{
    fail_often("cuda");
}

// There is no limit but the GPU's own memory.
static void a_terabyte_is_refused_a_thousand_times_on_cuda(void)
{
    tn_ctx *cx = open_limited("cuda", NULL, 0);
    if (!is_here(cx)) return;
    tn_tensor *w      = tn_keep(tn_full(cx, TN_F32, TN_SHAPE(300), 2));
    int64_t    before = 0;
    int        wrong  = 0;
    for (int i = 0; i < 1000; i++) {
        tn_scope *s = tn_begin(cx);
        tn_want(tn_rand(cx, TN_F32, TN_SHAPE((int64_t)1 << 38)));
        wrong += tn_eval(cx) != TN_EMEM || !strstr(tn_error_text(cx), "are free on the device");
        tn_error_clear(cx);
        wrong += tn_item(tn_sum_all(w)) != 600 || tn_end(s) != TN_OK;
        tn_error_clear(cx);
        if (i == 10) before = tn_ctx_stats(cx).bytes;
    }
    CHECK_INT(wrong, 0);
    CHECK_INT(tn_ctx_stats(cx).bytes, before);
    tn_close(cx);
}

// ---- address space -----------------------------------------------------------------------------

// A library that asks for memory again and again until it gets some must not keep a step for ever.
static void a_program_ends_however_short_address_space_is(void)
{
    static const int kilobytes[] = { 40000, 70000, 100000, 140000, 200000, 300000, 400000 };
    char             command[512], out[4096];
    if (TN_SANITIZE[0]) SKIP("a sanitizer wants more address space than there is to limit");
    for (size_t i = 0; i < sizeof kilobytes / sizeof *kilobytes; i++) {
        snprintf(command, sizeof command,
                 "ulimit -v %d && TN_DEVICE=cpu TN_CC=none timeout -s KILL 60 '" TN_BUILD_DIR
                 "/tenon' train --model mlp --data digits --limit 64 --epochs 1",
                 kilobytes[i]);
        int  status = tree_run(command, out, sizeof out);
        bool ended  = status == 0 ? strstr(out, "test accuracy") != NULL
                                  : status == 1 && strstr(out, "memory") != NULL;
        test_case_result(ended, "%d KB: status %d: %.600s", kilobytes[i], status, out);
    }
}

const test_case tests_memory[] = {
    TEST(sizes_waste_little),
    TEST(the_smallest_block_that_fits_is_taken),
    TEST(small_blocks_are_reused_for_their_size_alone),
    TEST(what_lies_free_is_given_back_before_memory_is_out),
    TEST(blocks_of_ever_other_sizes_are_given_back),
    TEST(what_is_used_again_is_not_given_back),
    TEST(a_high_tide_leaves_its_memory_to_others_in_the_end),
    TEST(an_arena_that_is_much_too_large_is_given_back),
    TEST(what_is_needed_on_the_way_may_lie_in_a_larger_block),
    TEST(numbers_of_bytes_are_read),
    TEST(the_environment_limits_who_sets_no_limit),
    TEST(the_message_says_who_has_the_memory),
    TEST(memory_of_the_device_is_used_as_it_is),
    TEST(memory_of_a_gpu_is_used_as_it_is),
    TEST(batches_are_read_as_uploaded_on_cpu),
    TEST(batches_are_read_as_uploaded_on_cuda),
    TEST(any_device_allocation_may_fail_on_cpu),
    TEST(any_device_allocation_may_fail_on_ref),
    TEST(any_device_allocation_may_fail_on_opencl),
    TEST(any_device_allocation_may_fail_on_cuda),
    TEST(a_steady_step_takes_no_device_memory),
    TEST(values_of_many_sizes_leave_little_behind_on_cpu),
    TEST(values_of_many_sizes_leave_little_behind_on_opencl),
    TEST(values_of_many_sizes_leave_little_behind_on_cuda),
    TEST(a_thousand_failures_leave_nothing_behind_on_cpu),
    TEST(a_thousand_failures_leave_nothing_behind_on_opencl),
    TEST(a_thousand_failures_leave_nothing_behind_on_cuda),
    TEST(a_terabyte_is_refused_a_thousand_times_on_cuda),
    TEST(a_program_ends_however_short_address_space_is),
    TEST_END,
};
