// The thread pool, and matrix products on the CPU: our own and the BLAS's, against plain loops.
#include "check.h"

#include "base/pool.h"
#include "device/cpu/gemm_kernel.h"
#include "kernel/prelude.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#endif
#endif
#if !defined(UNDER_TSAN)
#define UNDER_TSAN 0
#endif

// ---- the pool

enum { MOST_ITEMS = 5000 };

// Counts how often each item was run, and whether two threads shared a worker's number.
typedef struct {
    atomic_int times[MOST_ITEMS];
    atomic_int inside[TNI_MAX_THREADS];
    atomic_int wrong;
    int        threads;
} counts;

static void count_item(void *arg, int64_t i, int worker)
{
    counts *c = arg;
    if (worker < 0 || worker >= c->threads) atomic_fetch_add(&c->wrong, 1);
    if (atomic_fetch_add(&c->inside[worker], 1) != 0) atomic_fetch_add(&c->wrong, 1);
    atomic_fetch_add(&c->times[i], 1);
    atomic_fetch_sub(&c->inside[worker], 1);
}

static bool each_once(int threads, int64_t items)
{
    counts *c = calloc(1, sizeof *c);
    if (!c) return false;
    c->threads = threads;
    tni_parallel(threads, items, count_item, c);
    bool ok = atomic_load(&c->wrong) == 0;
    for (int64_t i = 0; i < MOST_ITEMS; i++) ok = ok && atomic_load(&c->times[i]) == (i < items);
    free(c);
    return ok;
}

static void every_item_runs_exactly_once(void)
{
    static const int     threads[] = { 1, 2, 3, 4, 8, 17 };
    static const int64_t items[]   = { 0, 1, 2, 3, 7, 64, 1000, MOST_ITEMS };
    for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
        for (size_t i = 0; i < sizeof items / sizeof *items; i++)
            test_case_result(each_once(threads[t], items[i]), "%d threads, %d items", threads[t],
                             (int)items[i]);
    }
}

static void many_small_jobs_follow_each_other(void)
{
    int wrong = 0;
    for (int i = 0; i < 300; i++) wrong += !each_once(2 + i % 3, i % 9);
    CHECK_INT(wrong, 0);
}

static void run_inner_job(void *arg, int64_t i, int worker)
{
    (void)i, (void)worker;
    atomic_fetch_add((atomic_int *)arg, !each_once(4, 50));
}

static void a_job_inside_a_task_runs_its_items_there(void)
{
    atomic_int wrong = 0;
    tni_parallel(4, 20, run_inner_job, &wrong);
    CHECK_INT(atomic_load(&wrong), 0);
}

static void *run_many_jobs(void *arg)
{
    for (int i = 0; i < 50; i++) atomic_fetch_add((atomic_int *)arg, !each_once(4, 300));
    return NULL;
}

static void several_threads_can_start_jobs_at_once(void)
{
    pthread_t  thread[4];
    atomic_int wrong   = 0;
    int        started = 0;
    for (; started < 4; started++)
        if (!CHECK_INT(pthread_create(&thread[started], NULL, run_many_jobs, &wrong), 0)) break;
    for (int i = 0; i < started; i++) pthread_join(thread[i], NULL);
    CHECK_INT(atomic_load(&wrong), 0);
}

static void the_child_of_a_fork_has_a_working_pool(void)
{
    if (UNDER_TSAN) SKIP("ThreadSanitizer allows no new threads after a fork");
    CHECK(each_once(4, 100));
    pid_t child = fork();
    if (!CHECK(child >= 0)) return;
    if (child == 0) {
        alarm(20);
        _exit(each_once(4, 100) && each_once(2, 1000) ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    CHECK_INT(status, 0);
    CHECK(each_once(4, 100));
}

static void the_number_of_threads_can_be_set(void)
{
    const char *set  = getenv("TN_NUM_THREADS");
    char       *kept = set ? strdup(set) : NULL;
    setenv("TN_NUM_THREADS", "3", 1);
    CHECK_INT(tni_threads_default(), 3);
    setenv("TN_NUM_THREADS", "100000", 1);
    CHECK_INT(tni_threads_default(), TNI_MAX_THREADS);
    setenv("TN_NUM_THREADS", "none", 1);
    CHECK(tni_threads_default() >= 1);
    if (kept) setenv("TN_NUM_THREADS", kept, 1);
    else unsetenv("TN_NUM_THREADS");
    free(kept);
}

// ---- products: elements of any type

static const tn_dtype dtypes[] = { TN_F32, TN_F64, TN_F16, TN_BF16, TN_I32, TN_I64, TN_U8, TN_I8 };
static const char *const dtype_names[] = { "bool", "u8",   "i8",  "i32", "i64",
                                           "f16",  "bf16", "f32", "f64" };

enum { DTYPES = sizeof dtypes / sizeof *dtypes };

static bool is_float(tn_dtype t)
{
    return t == TN_F16 || t == TN_BF16 || t == TN_F32 || t == TN_F64;
}

static size_t bytes_of(tn_dtype t)
{
    return t == TN_U8 || t == TN_I8      ? 1
           : t == TN_F16 || t == TN_BF16 ? 2
           : t == TN_I64 || t == TN_F64  ? 8
                                         : 4;
}

static double float_at(tn_dtype t, const void *p, int64_t i)
{
    switch (t) {
    case TN_F16: return m_half_to_float(((const uint16_t *)p)[i]);
    case TN_BF16: return m_bf16_to_float(((const uint16_t *)p)[i]);
    case TN_F32: return ((const float *)p)[i];
    default: return ((const double *)p)[i];
    }
}

static int64_t int_at(tn_dtype t, const void *p, int64_t i)
{
    switch (t) {
    case TN_U8: return ((const uint8_t *)p)[i];
    case TN_I8: return ((const int8_t *)p)[i];
    case TN_I32: return ((const int32_t *)p)[i];
    default: return ((const int64_t *)p)[i];
    }
}

static void set_float(tn_dtype t, void *p, int64_t i, double x)
{
    switch (t) {
    case TN_F16: ((uint16_t *)p)[i] = m_float_to_half((float)x); break;
    case TN_BF16: ((uint16_t *)p)[i] = m_float_to_bf16((float)x); break;
    case TN_F32: ((float *)p)[i] = (float)x; break;
    default: ((double *)p)[i] = x; break;
    }
}

static int64_t wrapped(tn_dtype t, uint64_t x)
{
    switch (t) {
    case TN_U8: return (uint8_t)x;
    case TN_I8: return (int8_t)(uint8_t)x;
    case TN_I32: return (int32_t)(uint32_t)x;
    default: return (int64_t)x;
    }
}

static uint64_t random_bits(void)
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

// `count` random elements: floats in -1 .. 1, integers of all bits.
static void *random_elements(tn_dtype t, int64_t count)
{
    char *p = malloc((size_t)count * bytes_of(t) + 1);
    if (!p) abort();
    for (int64_t i = 0; i < count; i++) {
        uint64_t bits = random_bits();
        if (is_float(t)) set_float(t, p, i, (double)(bits >> 11) * 0x1p-52 - 1.0);
        else memcpy(p + (size_t)i * bytes_of(t), &bits, bytes_of(t));
    }
    return p;
}

// ---- products: operands of any strides

typedef enum {
    BY_ROWS,
    BY_COLS,
    PADDED,
    PADDED_COLS,
    SPREAD,
    BACKWARDS,
    SAME_ROW,
    SAME_COL,
    FORMS
} form;

static const char *const form_names[] = { "rows",   "columns",   "padded",   "padded columns",
                                          "spread", "backwards", "same row", "same column" };

// An operand of size (rows, cols): its memory, and where element (0, 0) and the others are.
typedef struct {
    void   *memory;
    int64_t count, first, row, col;
} operand;

static operand operand_make(tn_dtype t, form f, int64_t rows, int64_t cols, int64_t copies)
{
    operand o = { .row = cols, .col = 1 };
    switch (f) {
    case BY_COLS: o.row = 1, o.col = rows; break;
    case PADDED: o.row = cols + 3; break;
    case PADDED_COLS: o.row = 1, o.col = rows + 5; break;
    case SPREAD: o.row = 2 * cols + 1, o.col = 2; break;
    case BACKWARDS: o.row = -cols, o.col = -1; break;
    case SAME_ROW: o.row = 0; break;
    case SAME_COL: o.row = 1, o.col = 0; break;
    default: break;
    }
    int64_t span = llabs(o.row) * rows + llabs(o.col) * cols + 1;
    o.count      = span * copies;
    o.first      = f == BACKWARDS ? span - 1 : 0;
    o.memory     = random_elements(t, o.count);
    return o;
}

static const void *operand_at(const operand *o, tn_dtype t)
{
    return (const char *)o->memory + (size_t)o->first * bytes_of(t);
}

// ---- products: running and checking one

// One product with all it needs; c has a margin of 2 elements after each row.
typedef struct {
    tni_gemm_batch g;
    operand        a, b;
    void          *c, *before;  // before: c as it was
    int64_t        c_count;
} trial;

static trial trial_make(tn_dtype t, form fa, form fb, int64_t m, int64_t n, int64_t k,
                        int64_t batch)
{
    trial x   = { .a = operand_make(t, fa, m, k, batch), .b = operand_make(t, fb, k, n, batch) };
    x.c_count = batch * m * (n + 2) + 1;
    x.c       = random_elements(t, x.c_count);
    x.before  = malloc((size_t)x.c_count * bytes_of(t));
    if (!x.before) abort();
    memcpy(x.before, x.c, (size_t)x.c_count * bytes_of(t));
    x.g = (tni_gemm_batch){
        .one    = { .dtype = t,
                    .m     = m,
                    .n     = n,
                    .k     = k,
                    .a     = operand_at(&x.a, t),
                    .a_row = x.a.row,
                    .a_col = x.a.col,
                    .b     = operand_at(&x.b, t),
                    .b_row = x.b.row,
                    .b_col = x.b.col,
                    .c     = x.c,
                    .ldc   = n + 2 },
        .batch  = batch,
        .a_step = x.a.count / batch,
        .b_step = x.b.count / batch,
        .c_step = m * (n + 2),
    };
    return x;
}

static void trial_free(trial *x)
{
    free(x->a.memory);
    free(x->b.memory);
    free(x->c);
    free(x->before);
}

typedef enum { OWN, ANY } path;

// Scratch is exactly as large as asked for, so that a sanitizer sees every byte beyond.
static void trial_run(trial *x, path p, int threads)
{
    size_t size    = p == OWN ? tni_gemm_own_scratch(&x->g, threads)
                              : tni_gemm_batch_scratch(&x->g, threads);
    void  *scratch = NULL;
    if (posix_memalign(&scratch, 64, size ? size : 1) != 0) abort();
    memset(scratch, 0xff, size);
    memcpy(x->c, x->before, (size_t)x->c_count * bytes_of(x->g.one.dtype));
    if (p == OWN) tni_gemm_own_run(&x->g, threads, scratch);
    else tni_gemm_batch_run(&x->g, threads, scratch);
    free(scratch);
}

static double rounding(tn_dtype t)
{
    return t == TN_F64 ? 0x1p-53 : t == TN_F32 ? 0x1p-24 : t == TN_F16 ? 0x1p-11 : 0x1p-8;
}

// Element (i, j) of product `which` against a plain loop. The bound: one rounding of the result,
// and one of each addition in the type computed in.
static bool float_is_right(const trial *x, int64_t which, int64_t i, int64_t j)
{
    const tni_gemm *g   = &x->g.one;
    tn_dtype        t   = g->dtype;
    int64_t         to  = which * x->g.c_step + i * g->ldc + j;
    double          sum = g->accumulate ? float_at(t, x->before, to) : 0.0, size = fabs(sum);
    for (int64_t p = 0; p < g->k; p++) {
        double term = float_at(t, g->a, which * x->g.a_step + i * g->a_row + p * g->a_col) *
                      float_at(t, g->b, which * x->g.b_step + p * g->b_row + j * g->b_col);
        sum += term;
        size += fabs(term);
    }
    double unit  = t == TN_F64 ? 0x1p-53 : 0x1p-24;
    double bound = rounding(t) * fabs(sum) * 1.01 + unit * (double)(g->k + 4) * size +
                   0x1p-24 * (t == TN_F16);
    return fabs(float_at(t, x->c, to) - sum) <= bound;
}

static bool int_is_right(const trial *x, int64_t which, int64_t i, int64_t j)
{
    const tni_gemm *g   = &x->g.one;
    tn_dtype        t   = g->dtype;
    int64_t         to  = which * x->g.c_step + i * g->ldc + j;
    uint64_t        sum = g->accumulate ? (uint64_t)int_at(t, x->before, to) : 0;
    for (int64_t p = 0; p < g->k; p++)
        sum += (uint64_t)int_at(t, g->a, which * x->g.a_step + i * g->a_row + p * g->a_col) *
               (uint64_t)int_at(t, g->b, which * x->g.b_step + p * g->b_row + j * g->b_col);
    return int_at(t, x->c, to) == wrapped(t, sum);
}

// Every element right, or of large products a sample with the last rows and columns; and the
// margins as they were.
static bool trial_is_right(const trial *x)
{
    const tni_gemm *g    = &x->g.one;
    size_t          size = bytes_of(g->dtype);
    double          work = (double)g->m * (double)g->n * (double)g->k * (double)x->g.batch;
    int64_t         skip = work > 4e5 ? 7 : 1;
    for (int64_t w = 0; w < x->g.batch; w++) {
        for (int64_t i = 0; i < g->m; i++) {
            for (int64_t j = 0; j < g->n; j++) {
                if ((i * 3 + j) % skip && i < g->m - 1 && j < g->n - 1) continue;
                if (!(is_float(g->dtype) ? float_is_right(x, w, i, j) : int_is_right(x, w, i, j)))
                    return false;
            }
            size_t margin = (size_t)(w * x->g.c_step + i * g->ldc + g->n) * size;
            if (memcmp((char *)x->c + margin, (char *)x->before + margin, 2 * size)) return false;
        }
    }
    return true;
}

static void check_product(tn_dtype t, form fa, form fb, int64_t m, int64_t n, int64_t k, bool add)
{
    trial x            = trial_make(t, fa, fb, m, n, k, 1);
    x.g.one.accumulate = add;
    for (path p = OWN; p <= ANY; p++) {
        trial_run(&x, p, 2);
        test_case_result(trial_is_right(&x), "%s, %s (%d, %d) @ %s (%d, %d)%s, %s", dtype_names[t],
                         form_names[fa], (int)m, (int)k, form_names[fb], (int)k, (int)n,
                         add ? ", accumulated" : "", p == OWN ? "own" : "blas");
    }
    trial_free(&x);
}

// ---- products: the tests

static void products_of_all_small_sizes_are_right(void)
{
    static const int64_t sizes[] = { 0, 1, 2, 3, 5, 8, 13, 17 };
    for (int d = 0; d < DTYPES; d++) {
        for (int i = 0; i < 8 * 8 * 8; i++)
            check_product(dtypes[d], BY_ROWS, BY_ROWS, sizes[i % 8], sizes[i / 8 % 8],
                          sizes[i / 64], (i + d) % 3 == 0);
    }
}

static void operands_may_have_any_strides(void)
{
    static const int64_t sizes[][3] = {
        { 1, 37, 21 }, { 37, 1, 21 }, { 5, 19, 300 }, { 33, 50, 40 }
    };
    for (int d = 0; d < DTYPES; d++) {
        for (int i = 0; i < FORMS * FORMS * 4; i++)
            check_product(dtypes[d], (form)(i % FORMS), (form)(i / FORMS % FORMS),
                          sizes[i / FORMS / FORMS][0], sizes[i / FORMS / FORMS][1],
                          sizes[i / FORMS / FORMS][2], i % 2);
    }
}

static void sizes_around_the_borders_of_blocks_are_right(void)
{
    static const int64_t sizes[][3] = {
        { 239, 49, 31 },  { 241, 97, 33 }, { 31, 511, 20 },   { 33, 513, 20 },  { 16, 24, 255 },
        { 17, 25, 256 },  { 15, 23, 257 }, { 9, 13, 513 },    { 1, 1025, 257 }, { 1030, 1, 260 },
        { 250, 250, 64 }, { 96, 96, 96 },  { 260, 520, 260 }, { 3, 129, 129 },  { 600, 40, 70 },
    };
    for (int d = 0; d < DTYPES; d++) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            check_product(dtypes[d], i % 2 ? BY_COLS : BY_ROWS, i % 3 ? BY_ROWS : BY_COLS,
                          sizes[i][0], sizes[i][1], sizes[i][2], i % 4 == 1);
    }
}

static void batches_are_right(void)
{
    // Of one row with 32 and 16 columns: strips, whose sums stay in registers.
    static const int64_t sizes[][4] = { { 1, 1, 1, 9 },    { 8, 8, 8, 100 }, { 33, 20, 17, 5 },
                                        { 1, 40, 30, 6 },  { 40, 1, 30, 6 }, { 70, 80, 90, 3 },
                                        { 1, 32, 600, 5 }, { 1, 16, 300, 4 } };
    for (int d = 0; d < DTYPES; d++) {
        for (int i = 0; i < 8 * 2; i++) {
            const int64_t *s = sizes[i / 2];
            trial x = trial_make(dtypes[d], i % 2 ? BY_COLS : BY_ROWS, BY_ROWS, s[0], s[1], s[2],
                                 s[3]);
            for (path p = OWN; p <= ANY; p++) {
                trial_run(&x, p, 3);
                test_case_result(trial_is_right(&x), "%s, batch of %d (%d, %d) @ (%d, %d)",
                                 dtype_names[dtypes[d]], (int)s[3], (int)s[0], (int)s[2], (int)s[2],
                                 (int)s[1]);
            }
            trial_free(&x);
        }
    }
}

static void a_batch_may_share_an_operand(void)
{
    for (int i = 0; i < 4; i++) {
        trial x = trial_make(TN_F32, BY_ROWS, i % 2 ? BY_COLS : BY_ROWS, 12, 30, 50, 6);
        if (i < 2) {
            x.g.b_step = 0;
            x.g.a_step = 12 * 50;  // evenly apart: folded into one product
        } else {
            x.g.a_step = 0;
        }
        trial_run(&x, ANY, 2);
        CHECK(trial_is_right(&x));
        trial_free(&x);
    }
}

static void sixteen_bit_sums_are_rounded_once(void)
{
    // In f16 the sum would stop at 1024, where 1/2 is less than it can add.
    enum { K = 4096 };
    uint16_t a[K], b[K], c = 0;
    for (int i = 0; i < K; i++) {
        a[i] = m_float_to_half(0.5f);
        b[i] = m_float_to_half(1.0f);
    }
    tni_gemm g       = { .dtype = TN_F16,
                         .m     = 1,
                         .n     = 1,
                         .k     = K,
                         .a     = a,
                         .a_row = K,
                         .a_col = 1,
                         .b     = b,
                         .b_row = 1,
                         .b_col = 1,
                         .c     = &c,
                         .ldc   = 1 };
    void    *scratch = NULL;
    if (posix_memalign(&scratch, 64, tni_gemm_scratch(&g, 1) + 1) != 0) abort();
    tni_gemm_run(&g, 1, scratch);
    free(scratch);
    CHECK_NEAR(m_half_to_float(c), 2048.0, 0.0);
}

// ---- equal bits

static const int64_t bit_sizes[][3] = { { 300, 310, 520 }, { 64, 128, 784 }, { 1, 2000, 600 },
                                        { 2000, 1, 600 },  { 7, 700, 300 },  { 513, 513, 33 },
                                        { 128, 600, 600 } };

enum { BIT_SIZES = sizeof bit_sizes / sizeof *bit_sizes };

static void check_bits(trial *x, path p)
{
    size_t size = (size_t)x->c_count * bytes_of(x->g.one.dtype);
    void  *once = malloc(size);
    if (!once) abort();
    trial_run(x, p, 1);
    memcpy(once, x->c, size);
    for (int threads = 2; threads <= 4; threads++) {
        trial_run(x, p, threads);
        test_case_result(memcmp(once, x->c, size) == 0, "%s, (%d, %d) by %d, %d threads",
                         dtype_names[x->g.one.dtype], (int)x->g.one.m, (int)x->g.one.n,
                         (int)x->g.one.k, threads);
    }
    free(once);
}

static void bits_are_equal_for_any_number_of_threads(void)
{
    static const tn_dtype types[] = { TN_F32, TN_F64, TN_BF16 };
    for (int i = 0; i < 3 * BIT_SIZES; i++) {
        const int64_t *s = bit_sizes[i / 3];
        trial x = trial_make(types[i % 3], BY_ROWS, i % 2 ? BY_COLS : BY_ROWS, s[0], s[1], s[2], 1);
        check_bits(&x, OWN);
        check_bits(&x, ANY);
        trial_free(&x);
    }
}

typedef struct {
    path p;
    bool equal;
} racer;

static void *race(void *arg)
{
    racer *r = arg;
    enum { M = 150, N = 170, K = 300 };
    float *a = calloc(M * K, 4), *b = calloc(K * N, 4), *c = calloc(M * N, 4),
          *d = calloc(M * N, 4);
    for (int i = 0; a && i < M * K; i++) a[i] = (float)(i % 37) / 37.0f - 0.4f;
    for (int i = 0; b && i < K * N; i++) b[i] = (float)(i % 41) / 41.0f - 0.6f;
    tni_gemm_batch g       = { .one   = { .dtype = TN_F32,
                                          .m     = M,
                                          .n     = N,
                                          .k     = K,
                                          .a     = a,
                                          .a_row = K,
                                          .a_col = 1,
                                          .b     = b,
                                          .b_row = N,
                                          .b_col = 1,
                                          .c     = c,
                                          .ldc   = N },
                               .batch = 1 };
    void          *scratch = NULL;
    if (posix_memalign(&scratch, 64, tni_gemm_own_scratch(&g, 4) + 1) != 0) abort();
    for (int i = 0; i < 30; i++) {
        g.one.c = i ? d : c;
        if (r->p == OWN) tni_gemm_own_run(&g, 1 + i % 4, scratch);
        else tni_gemm_batch_run(&g, 1 + i % 4, scratch);
        r->equal = r->equal && (i == 0 || memcmp(c, d, sizeof(float) * M * N) == 0);
    }
    free(a), free(b), free(c), free(d), free(scratch);
    return NULL;
}

static void bits_are_equal_while_the_pool_is_busy(void)
{
    pthread_t thread[3];
    racer     r[3]    = { { OWN, true }, { ANY, true }, { OWN, true } };
    int       started = 0;
    for (; started < 3; started++)
        if (!CHECK_INT(pthread_create(&thread[started], NULL, race, &r[started]), 0)) break;
    for (int i = 0; i < started; i++) {
        pthread_join(thread[i], NULL);
        CHECK(r[i].equal);
    }
}

// Rows [i, i + rows) of a product alone.
static void run_rows(trial *x, int64_t i, int64_t rows)
{
    tni_gemm_batch g    = x->g;
    size_t         size = bytes_of(g.one.dtype);
    g.one.m             = rows;
    g.one.a             = (const char *)g.one.a + i * g.one.a_row * (int64_t)size;
    g.one.c             = (char *)g.one.c + i * g.one.ldc * (int64_t)size;
    void *scratch       = NULL;
    if (posix_memalign(&scratch, 64, tni_gemm_own_scratch(&g, 2) + 1) != 0) abort();
    tni_gemm_own_run(&g, 2, scratch);
    free(scratch);
}

static void an_element_of_our_own_product_does_not_depend_on_its_neighbours(void)
{
    static const int64_t  pieces[] = { 1, 2, 3, 1, 8, 13, 40, 1, 100 };
    static const tn_dtype types[]  = { TN_F32, TN_F64, TN_F16 };
    for (int i = 0; i < 3 * FORMS; i++) {
        trial  x = trial_make(types[i % 3], i % 2 ? BY_COLS : BY_ROWS, (form)(i / 3), 169, 75, 530,
                              1);
        size_t size = (size_t)x.c_count * bytes_of(types[i % 3]);
        void  *once = malloc(size);
        if (!once) abort();
        trial_run(&x, OWN, 1);
        memcpy(once, x.c, size);
        memcpy(x.c, x.before, size);
        for (int64_t p = 0, at = 0; p < 9; at += pieces[p++]) run_rows(&x, at, pieces[p]);
        test_case_result(memcmp(once, x.c, size) == 0, "%s, %s", dtype_names[types[i % 3]],
                         form_names[i / 3]);
        free(once);
        trial_free(&x);
    }
}

static void a_missing_blas_is_explained(void)
{
    tni_blas_info info = tni_blas_find();
    if (info.found) {
        CHECK(info.path && *info.path && info.name && *info.name);
    } else {
        CHECK(info.detail && *info.detail);
    }
}

const test_case tests_gemm[] = {
    TEST(every_item_runs_exactly_once),
    TEST(many_small_jobs_follow_each_other),
    TEST(a_job_inside_a_task_runs_its_items_there),
    TEST(several_threads_can_start_jobs_at_once),
    TEST(the_child_of_a_fork_has_a_working_pool),
    TEST(the_number_of_threads_can_be_set),
    TEST(products_of_all_small_sizes_are_right),
    TEST(operands_may_have_any_strides),
    TEST(sizes_around_the_borders_of_blocks_are_right),
    TEST(batches_are_right),
    TEST(a_batch_may_share_an_operand),
    TEST(sixteen_bit_sums_are_rounded_once),
    TEST(bits_are_equal_for_any_number_of_threads),
    TEST(bits_are_equal_while_the_pool_is_busy),
    TEST(an_element_of_our_own_product_does_not_depend_on_its_neighbours),
    TEST(a_missing_blas_is_explained),
    TEST_END,
};
