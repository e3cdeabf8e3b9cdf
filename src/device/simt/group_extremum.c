// argmax and argmin by the kernels of group_text_extremum.c: how lines are split and which kernel
// takes them.
//
// A line is what is reduced to one index. If neighbouring elements are in the same line, several
// items share a line (arg_rows); if they are in neighbouring lines, each item has a line of its own
// (arg_columns). Lines that are too few and too long to keep a device busy are split into chunks,
// and arg_last compares the chunks' results.
#include "device/simt/groups.h"

#include "tensor/dtype.h"

// Sizes that trade how busy a large GPU is kept, with some hundred thousand items at a time,
// against the cost of a second kernel.
enum {
    ITEMS       = 256,      // items of a group
    SHIFT       = 8,        // logarithm of ITEMS
    EACH        = 16,       // elements that are enough work for an item
    FEW         = 1024,     // fewer lines leave a device idle
    LONG        = 8192,     // longer lines are worth a second kernel
    GROUPS      = 2048,     // groups that keep a device busy
    LINES       = 1 << 17,  // lines that keep it busy with one item each
    MIN_CHUNK   = 32,       // fewest elements of an item's chunk
    MIN_COLUMNS = 16        // neighbouring lines for which one item per line reads well
};

// The kernels' parameters, `extremum_params` of the text. Results of chunks are line_step and
// chunk_step apart in scratch, so that neighbouring items store neighbouring results.
typedef struct {
    int64_t n, lines, chunk, chunks, line_step, chunk_step;
    int32_t shift, lowest;
} extremum_params;

_Static_assert(sizeof(extremum_params) == 6 * 8 + 2 * 4,
               "no padding: the text declares the same fields");

// What a call does: the axes that are kept and those that are reduced, the kernels' parameters, and
// whether each line, or chunk, is one item's.
typedef struct {
    tni_axes        kept, reduced;
    extremum_params o;
    bool            columns;
} arg_reduce;

// Returns the logarithm of as many items as there is work for, at most a whole group.
static int shift_for(int64_t work)
{
    int s = 0;
    while (s < SHIFT && INT64_C(1) << s < work) s++;
    return s;
}

// Returns the axes of the input that are kept, or those that are reduced, in row-major order, in
// which indices count.
static tni_axes arg_axes_of(const tni_call *c, bool folded)
{
    const tni_arg *in = &c->in[0];
    tni_axes       a  = { .rank = in->rank };
    for (int i = 0; i < in->rank; i++) {
        bool reduced   = c->attr->reduce.axes >> i & 1;
        a.size[i]      = reduced == folded ? in->size[i] : 1;
        a.stride[0][i] = in->stride[i];
    }
    tni_axes_merge(&a, 1);
    return a;
}

// Returns whether neighbouring elements belong to neighbouring lines, and at least MIN_COLUMNS of
// them in a row.
static bool are_columns(const tni_axes *kept, const tni_axes *reduced)
{
    if (reduced->rank != 1 || kept->rank < 1) return false;
    int64_t along = reduced->stride[0][0], neighbour = kept->stride[0][kept->rank - 1];
    return along != 1 && along != -1 && (neighbour == 1 || neighbour == -1) &&
           kept->size[kept->rank - 1] >= MIN_COLUMNS;
}

// Returns the elements of a chunk: the whole line if there are lines enough to keep the device busy
// or the line is short, else as many as make enough chunks, but not below a minimum.
static int64_t chunk_of(const extremum_params *o, bool columns)
{
    int64_t busy = columns ? LINES : GROUPS, low = columns ? MIN_CHUNK : LONG / 4;
    bool    whole = columns ? o->lines >= LINES / 2 || o->n < 2 * MIN_CHUNK
                            : o->lines >= FEW || o->n <= LONG;
    if (whole) return o->n;
    int64_t chunk = tni_ceil_div(o->n, tni_ceil_div(busy, o->lines));
    return chunk < low ? low : chunk;
}

// Decides on kernel, chunks and items per line, by sizes and strides alone: the scratch of a plan
// is computed before it runs.
static arg_reduce plan_arg_reduce(const tni_call *c)
{
    arg_reduce       j = { .kept = arg_axes_of(c, false), .reduced = arg_axes_of(c, true) };
    extremum_params *o = &j.o;
    j.columns          = are_columns(&j.kept, &j.reduced);
    o->n               = tni_axes_count(&j.reduced);
    o->lines           = tni_axes_count(&j.kept);
    o->lowest          = c->op == TNI_argmin;
    o->chunk           = chunk_of(o, j.columns);
    o->chunks          = tni_ceil_div(o->n, o->chunk);
    o->shift           = shift_for(tni_ceil_div(o->n, EACH));
    o->line_step       = j.columns ? 1 : o->chunks;
    o->chunk_step      = j.columns ? o->lines : 1;
    return j;
}

// One index per chunk of each line.
size_t tni_groups_arg_reduce_scratch(const tni_call *c)
{
    arg_reduce j = plan_arg_reduce(c);
    return j.o.chunks > 1 ? (size_t)(j.o.lines * j.o.chunks) * sizeof(int64_t) : 0;
}

// Begins a launch with the arguments that all three kernels have: x, its kept axes and its reduced
// axes.
static tn_status begin_arg_kernel(tni_kernel_args *h, const tni_call *c, const char *name,
                                  const arg_reduce *j)
{
    const tni_arg *in = &c->in[0];
    tn_status      s  = tni_kernel_args_begin(h, c, tni_text_extremum, name, in->dtype, TN_I64);
    if (s != TN_OK) return s;
    h->overlaps = true;
    tni_kernel_args_add_operand(h, &j->kept, 0, in->data, in->dtype);
    tni_kernel_args_add_axes(h, &j->reduced, 0, 0);
    return TN_OK;
}

// Passes a buffer of indices and where in it they begin.
static void add_indices(tni_kernel_args *h, const void *places)
{
    tni_kernel_args_add_long(h, tni_kernel_args_add_buffer(h, places) / (int64_t)sizeof(int64_t));
}

// A group of ITEMS has ITEMS >> shift lines.
static tn_status launch_rows(tni_kernel_args *h, const tni_call *c, const extremum_params *o,
                             int64_t chunks)
{
    tni_kernel_args_add(h, o, sizeof *o);
    return tni_kernel_args_launch(h, tni_ceil_div(o->lines, ITEMS >> o->shift) * chunks, ITEMS,
                                  c->why);
}

// Compares the chunks' results; a line has as many items as it has chunks, up to a group.
static tn_status combine_chunks(const tni_call *c, arg_reduce *j)
{
    tni_kernel_args h;
    tn_status       s = begin_arg_kernel(&h, c, "arg_last", j);
    if (s != TN_OK) return s;
    add_indices(&h, c->scratch);
    add_indices(&h, c->out.data);
    j->o.shift = shift_for(j->o.chunks);
    return launch_rows(&h, c, &j->o, 1);
}

tn_status tni_groups_arg_reduce(const tni_call *c)
{
    arg_reduce      j     = plan_arg_reduce(c);
    bool            split = j.o.chunks > 1;
    tni_kernel_args h;
    tn_status       s = begin_arg_kernel(&h, c, j.columns ? "arg_columns" : "arg_rows", &j);
    if (s != TN_OK) return s;
    add_indices(&h, split ? c->scratch : c->out.data);
    if (j.columns) {
        tni_kernel_args_add(&h, &j.o, sizeof j.o);
        s = tni_kernel_args_launch_items(&h, j.o.lines * j.o.chunks, c->why);
    } else {
        s = launch_rows(&h, c, &j.o, j.o.chunks);
    }
    return s == TN_OK && split ? combine_chunks(c, &j) : s;
}
