// Places of extrema by the kernels of group_text_extremum.c.
#include "device/simt/groups.h"

#include "tensor/dtype.h"

enum {
    ITEMS  = 256,      // of a group
    SHIFT  = 8,        // its logarithm
    EACH   = 16,       // elements of an item that are enough
    FEW    = 1024,     // lines that leave a device idle
    LONG   = 8192,     // elements that are worth another kernel
    GROUPS = 2048,     // that keep a device busy
    LINES  = 1 << 17,  // that keep it busy, one an item
    LEAST  = 32,       // elements of an item's chunk
    BESIDE = 16        // neighbouring lines from which on one item a line reads well
};

// `picking` of the text.
typedef struct {
    int64_t n, lines, chunk, chunks, line_step, chunk_step;
    int32_t shift, lowest;
} picking;

// What is done: axes that stay and that are folded, whether each line is one item's.
typedef struct {
    tni_axes stay, gone;
    picking  o;
    bool     columns;
} job;

// The logarithm of as many items as there is work for.
static int shift_for(int64_t work)
{
    int s = 0;
    while (s < SHIFT && INT64_C(1) << s < work) s++;
    return s;
}

// The axes of in that stay, or those that are folded; in row-major order, which is what is counted.
static tni_axes axes_of(const tni_call *c, bool folded)
{
    const tni_arg *in = &c->in[0];
    tni_axes       a  = { .rank = in->rank };
    for (int i = 0; i < in->rank; i++) {
        bool gone      = c->attr->reduce.axes >> i & 1;
        a.size[i]      = gone == folded ? in->size[i] : 1;
        a.stride[0][i] = in->stride[i];
    }
    tni_axes_merge(&a, 1);
    return a;
}

// Whether neighbours stand beside each other in lines next to each other, not in one line.
static bool are_columns(const tni_axes *stay, const tni_axes *gone)
{
    if (gone->rank != 1 || stay->rank < 1) return false;
    int64_t along = gone->stride[0][0], beside = stay->stride[0][stay->rank - 1];
    return along != 1 && along != -1 && (beside == 1 || beside == -1) &&
           stay->size[stay->rank - 1] >= BESIDE;
}

static int64_t chunk_of(const picking *o, bool columns)
{
    int64_t busy = columns ? LINES : GROUPS, low = columns ? LEAST : LONG / 2;
    bool    whole = columns ? o->lines >= LINES / 2 || o->n < 2 * LEAST
                            : o->lines >= FEW || o->n <= LONG;
    if (whole) return o->n;
    int64_t chunk = tni_parts(o->n, tni_parts(busy, o->lines));
    return chunk < low ? low : chunk;
}

static job job_of(const tni_call *c)
{
    job      j    = { .stay = axes_of(c, false), .gone = axes_of(c, true) };
    picking *o    = &j.o;
    j.columns     = are_columns(&j.stay, &j.gone);
    o->n          = tni_axes_count(&j.gone);
    o->lines      = tni_axes_count(&j.stay);
    o->lowest     = c->op == TNI_argmin;
    o->chunk      = chunk_of(o, j.columns);
    o->chunks     = tni_parts(o->n, o->chunk);
    o->shift      = shift_for(tni_parts(o->n, EACH));
    o->line_step  = j.columns ? 1 : o->chunks;
    o->chunk_step = j.columns ? o->lines : 1;
    return j;
}

size_t tni_groups_arg_reduce_scratch(const tni_call *c)
{
    job j = job_of(c);
    return j.o.chunks > 1 ? (size_t)(j.o.lines * j.o.chunks) * sizeof(int64_t) : 0;
}

static tn_status begin(tni_kernel_args *h, const tni_call *c, const char *name, const job *j)
{
    const tni_arg *in = &c->in[0];
    tn_status      s  = tni_kernel_args_begin(h, c, tni_text_extremum, name, in->dtype, TN_I64);
    if (s != TN_OK) return s;
    tni_kernel_args_add_operand(h, &j->stay, 0, in->data, in->dtype);
    tni_kernel_args_add_axes(h, &j->gone, 0, 0);
    return TN_OK;
}

static void pass_places(tni_kernel_args *h, const void *places)
{
    tni_kernel_args_add_long(h, tni_kernel_args_add_buffer(h, places) / (int64_t)sizeof(int64_t));
}

static tn_status start_rows(tni_kernel_args *h, const tni_call *c, const picking *o, int64_t chunks)
{
    tni_kernel_args_add(h, o, sizeof *o);
    return tni_kernel_args_launch(h, tni_parts(o->lines, ITEMS >> o->shift) * chunks, ITEMS,
                                  c->why);
}

static tn_status last_of(const tni_call *c, job *j)
{
    tni_kernel_args h;
    tn_status       s = begin(&h, c, "arg_last", j);
    if (s != TN_OK) return s;
    pass_places(&h, c->scratch);
    pass_places(&h, c->out.data);
    j->o.shift = shift_for(j->o.chunks);
    return start_rows(&h, c, &j->o, 1);
}

tn_status tni_groups_arg_reduce(const tni_call *c)
{
    job             j   = job_of(c);
    bool            cut = j.o.chunks > 1;
    tni_kernel_args h;
    tn_status       s = begin(&h, c, j.columns ? "arg_columns" : "arg_rows", &j);
    if (s != TN_OK) return s;
    pass_places(&h, cut ? c->scratch : c->out.data);
    if (j.columns) {
        tni_kernel_args_add(&h, &j.o, sizeof j.o);
        s = tni_kernel_args_launch_items(&h, j.o.lines * j.o.chunks, c->why);
    } else {
        s = start_rows(&h, c, &j.o, j.o.chunks);
    }
    return s == TN_OK && cut ? last_of(c, &j) : s;
}
