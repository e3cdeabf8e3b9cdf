// Products with sparse matrices, by the kernels of gemm_sparse.inc. Threads take rows with about as
// many elements each. A row is added up by one thread, in order, so that their number changes no
// bit.
//
// f16 and bf16 are converted to f32 in scratch, and the result is rounded once.
#include "base/pool.h"
#include "device/cpu/cpu_ops.h"
#include "device/cpu/gemm_kernel.h"
#include "device/cpu/strided.h"

#include <math.h>

// Least multiplications of a task: waking a thread costs some microseconds, in which a core does
// about this many.
enum { TASK = 1 << 15 };

// The operands as they are computed with: in place, or converted into scratch.
typedef struct {
    const tni_call *call;
    tn_dtype        dt;       // f32 or f64
    tni_arg         x[2], y;  // in[0], in[1] and the result
    tni_pattern     at;
    const int32_t  *p;
    bool            transposed;
    int64_t tasks, lines, count, width;  // lines: rows of the result; width: terms for each element
    tni_sparse_rows rows;
    tni_sparse_dots dots;
} sparse_job;

static int64_t converted_bytes(const tni_arg *x)
{
    bool narrow = x->dtype != TN_F32 && x->dtype != TN_F64;
    return narrow ? tni_align64(tni_arg_count(x) * (int64_t)sizeof(float)) : 0;
}

// The operands and the result in f32, if they have 16 bits.
static size_t scratch_of(const tni_call *c)
{
    return (size_t)(converted_bytes(&c->in[0]) + converted_bytes(&c->in[1]) +
                    converted_bytes(&c->out));
}

// x in f32 at *scratch, which moves on; x itself if it needs no conversion.
static tni_arg converted(const tni_arg *x, char **scratch)
{
    if (!converted_bytes(x)) return *x;
    tni_arg y = tni_arg_row_major(TN_F32, x->rank, x->size, *scratch);
    *scratch += converted_bytes(x);
    return y;
}

// Sets up a job; converts the operands. There are up to eight tasks for each thread, so that one
// that gets fewer cycles than the others does not hold them up.
static sparse_job begin_job(const tni_call *c)
{
    const struct tni_attr_sparse *a       = &c->attr->sparse;
    sparse_job                    j       = { .call = c, .p = (const int32_t *)c->in[2].data };
    char                         *scratch = c->scratch;
    j.transposed                          = a->transposed;
    j.count                               = (c->op == TNI_spmm ? &c->in[0] : &c->out)->size[0];
    j.width                               = c->in[1].size[1];
    j.at                                  = tni_pattern_of(a->rows, a->cols, j.count);
    for (int i = 0; i < 2; i++) {
        j.x[i] = converted(&c->in[i], &scratch);
        if (j.x[i].data != c->in[i].data) tni_copy_arg(c->threads, &c->in[i], &j.x[i]);
    }
    j.y     = converted(&c->out, &scratch);
    j.dt    = j.y.dtype;
    j.lines = c->out.size[0];
    j.tasks = 1 + (int64_t)((double)j.count * (double)j.width / TASK);
    if (j.tasks > 8 * c->threads) j.tasks = 8 * c->threads;
    return j;
}

// Runs the tasks, and rounds a result of 16 bits. A job of one task runs in the calling thread.
static tn_status run_job(sparse_job *j, void (*run)(void *, int64_t, int))
{
    int threads = j->tasks < j->call->threads ? (int)j->tasks : j->call->threads;
    tni_parallel(threads, j->tasks, run, j);
    if (j->y.data != j->call->out.data) tni_copy_arg(j->call->threads, &j->y, &j->call->out);
    return TN_OK;
}

// ---- rows times a matrix -----------------------------------------------------------------------

// The first row of task i: where its share of all elements and rows begins. A row counts as an
// element, since its result is written.
static int64_t first_row(const sparse_job *j, int64_t i)
{
    int64_t from = 0, to = j->lines;
    int64_t share = (int64_t)((double)(j->count + j->lines) * (double)i / (double)j->tasks);
    if (i >= j->tasks) return to;
    while (from < to) {
        int64_t mid = (from + to) / 2;
        if (j->rows.offsets[mid] + mid < share) from = mid + 1;
        else to = mid;
    }
    return from;
}

// A thread's rows lie one after the other, and so does what it writes: threads share no line of the
// cache but at the ends.
static void rows_task(void *arg, int64_t i, int worker)
{
    const sparse_job *j = arg;
    (void)worker;
    tni_gemm_isa_get()->sparse_rows[j->dt == TN_F64](&j->rows, first_row(j, i),
                                                     first_row(j, i + 1));
}

size_t tni_cpu_spmm_scratch(const tni_call *c)
{
    return scratch_of(c);
}

// The transposed matrix has an order of its own, by which the values are read.
tn_status tni_cpu_spmm(const tni_call *c)
{
    sparse_job j = begin_job(c);
    bool       t = j.transposed;
    j.rows       = (tni_sparse_rows){ .offsets = j.p + (t ? j.at.t_offsets : j.at.offsets),
                                      .columns = j.p + (t ? j.at.t_columns : j.at.columns),
                                      .order   = t ? j.p + j.at.order : NULL,
                                      .values  = j.x[0].data,
                                      .x       = j.x[1].data,
                                      .y       = j.y.data,
                                      .n       = j.width };
    return run_job(&j, rows_task);
}

// ---- products of rows --------------------------------------------------------------------------

static void dots_task(void *arg, int64_t i, int worker)
{
    const sparse_job *j = arg;
    int64_t share = tni_ceil_div(j->count, j->tasks), first = tni_min_i64(j->count, i * share);
    (void)worker;
    tni_gemm_isa_get()->sparse_dots[j->dt == TN_F64](&j->dots, first,
                                                     tni_min_i64(j->count, first + share));
}

size_t tni_cpu_sddmm_scratch(const tni_call *c)
{
    return scratch_of(c);
}

// Elements are by rows, so that a task reads a row of x many times in a row.
tn_status tni_cpu_sddmm(const tni_call *c)
{
    sparse_job j = begin_job(c);
    j.dots       = (tni_sparse_dots){ .rows    = j.p + j.at.rows,
                                      .columns = j.p + j.at.columns,
                                      .x       = j.x[0].data,
                                      .y       = j.x[1].data,
                                      .to      = j.y.data,
                                      .k       = j.width };
    return run_job(&j, dots_task);
}
