// cumsum and cumprod by the kernels of group_text_scan.c. How a line is split, and so the order in
// which its elements are combined, depends on sizes alone, so that results are the same on every
// device.
//
// Lines whose elements are neighbours are scanned by groups of items (rows), others by one item
// each (columns). Long lines are split into chunks in three launches: totals of chunks, what
// precedes each chunk, and the scan itself.
#include "device/simt/groups.h"

#include "tensor/dtype.h"

// Sizes that trade how busy a large GPU is kept, with some hundred thousand items at a time,
// against reading x a second time for the totals.
enum {
    EACH      = 8,             // elements of an item
    ITEMS     = 256,           // items of a group
    TILE      = EACH * ITEMS,  // elements of a group at a time
    FEW       = 256,           // fewer lines leave a device idle
    GROUPS    = 2048,          // groups that keep it busy
    LINES     = 1 << 17,       // lines that keep it busy with one item each
    MIN_CHUNK = 32             // fewest elements of an item's chunk
};

// The kernels' parameters, `scan_params` of the text. width: items of a line, 0 if each line or
// chunk is one item's; shift: the logarithm of the elements that those items have of a tile.
typedef struct {
    int64_t n, lines, x_step, y_step, chunk, chunks;
    int32_t width, shift, flat, unused;
} scan_params;

_Static_assert(sizeof(scan_params) == 6 * 8 + 4 * 4,
               "no padding: the text declares the same fields");

// Gives a line as many items, in powers of two, as it has work for. Lines are split only if they
// are few and each longer than four tiles; chunks are whole tiles.
static void split_rows(scan_params *o)
{
    o->width = 1;
    o->shift = 3;
    while (o->width < ITEMS && o->width * EACH < o->n) o->width *= 2, o->shift++;
    if (o->lines >= FEW || o->n <= 4 * TILE) return;
    int64_t chunk = tni_ceil_div(o->n, tni_ceil_div(GROUPS, o->lines));
    o->chunk      = tni_ceil_div(chunk, TILE) * TILE;
}

// Lines are split only if there are not half as many as keep a device busy, and chunks have at
// least MIN_CHUNK elements.
static void split_columns(scan_params *o)
{
    o->width = 0;
    if (o->lines >= LINES / 2 || o->n < 2 * MIN_CHUNK) return;
    int64_t chunk = tni_ceil_div(o->n, tni_ceil_div(LINES, o->lines));
    o->chunk      = chunk < MIN_CHUNK ? MIN_CHUNK : chunk;
}

// The result is dense, so that its stride along the axis is the product of the sizes behind it.
// Rows need a stride of x that fits in 32 bits, which the kernel computes with.
static scan_params plan_scan(const tni_call *c)
{
    const tni_arg *in = &c->in[0], *out = &c->out;
    int            axis   = c->attr->axis.axis;
    scan_params    o      = { .n = 1, .lines = 1 };
    int64_t        behind = 1;  // stride of the result along the axis
    for (int i = 0; i < out->rank; i++) {
        if (i == axis) o.n = out->size[i];
        else o.lines *= out->size[i];
        if (i > axis) behind *= out->size[i];
    }
    o.x_step   = out->rank ? in->stride[axis] : 0;
    o.y_step   = behind;
    o.chunk    = o.n;
    bool small = o.x_step <= INT32_MAX && o.x_step >= INT32_MIN;
    if (behind == 1 && o.n > EACH && small) split_rows(&o);
    else split_columns(&o);
    o.chunks = tni_ceil_div(o.n, o.chunk);
    return o;
}

// One total per chunk, in double or 64 bits; on a device without f64 half of it is used.
size_t tni_groups_scan_scratch(const tni_call *c)
{
    scan_params o = plan_scan(c);
    return o.chunks > 1 ? (size_t)(o.lines * o.chunks) * sizeof(double) : 0;
}

// Sums and products are two programs of the same kernels.
static tn_status begin_scan_kernel(tni_kernel_args *h, const tni_call *c, const char *name)
{
    const char *const *text = c->op == TNI_cumsum ? tni_text_cumsum : tni_text_cumprod;
    return tni_kernel_args_begin(h, c, text, name, c->in[0].dtype, c->out.dtype);
}

// Returns whether the lines of x follow each other without gaps, so that an offset needs no
// division.
static bool is_flat(const tni_axes *lines, const scan_params *o)
{
    return o->x_step == 1 &&
           (lines->rank == 0 || (lines->rank == 1 && lines->stride[0][0] == o->n));
}

// Totals are of the type that sums are taken in, which is float if the device has no f64.
static void add_totals(tni_kernel_args *h, const tni_call *c, const void *totals)
{
    bool narrow = tni_is_float(c->out.dtype) &&
                  !tni_compiled_has_doubles(h->fns->compiled(c->session));
    tni_kernel_args_add_long(h, tni_kernel_args_add_buffer(h, totals) / (narrow ? 4 : 8));
}

// Launches a group of ITEMS for ITEMS / width lines, or one item per line; once for each chunk.
static tn_status launch_scan(tni_kernel_args *h, const tni_call *c, const scan_params *o)
{
    int64_t lines = o->width ? tni_ceil_div(o->lines, ITEMS / o->width) : o->lines;
    tni_kernel_args_add(h, o, sizeof *o);
    if (!o->width) return tni_kernel_args_launch_items(h, lines * o->chunks, c->why);
    return tni_kernel_args_launch(h, lines * o->chunks, ITEMS, c->why);
}

// First launch: the total of each chunk, into scratch.
static tn_status launch_totals(const tni_call *c, const tni_axes *lines, const scan_params *o)
{
    tni_kernel_args h;
    tn_status       s = begin_scan_kernel(&h, c, o->width ? "row_totals" : "column_totals");
    if (s != TN_OK) return s;
    tni_kernel_args_add_operand(&h, lines, 0, c->in[0].data, c->in[0].dtype);
    add_totals(&h, c, c->scratch);
    return launch_scan(&h, c, o);
}

// Second launch: scratch becomes, for each chunk, the total of all chunks before it in its line.
static tn_status launch_starts(const tni_call *c, const scan_params *o)
{
    tni_kernel_args h;
    tn_status       s = begin_scan_kernel(&h, c, "scan_starts");
    if (s != TN_OK) return s;
    add_totals(&h, c, c->scratch);
    tni_kernel_args_add_long(&h, o->width ? o->chunks : 1);
    tni_kernel_args_add_long(&h, o->width ? 1 : o->lines);
    tni_kernel_args_add_long(&h, o->chunks);
    return tni_kernel_args_launch(&h, o->lines, ITEMS, c->why);
}

// Scans each line by one launch, or, if lines are long, by three: the totals of chunks, their
// prefix sums, and the chunks with what comes before them.
tn_status tni_groups_scan(const tni_call *c)
{
    scan_params o     = plan_scan(c);
    tni_axes    lines = tni_axes_lines(c);
    bool        split = o.chunks > 1;
    o.flat            = is_flat(&lines, &o);
    tn_status s       = split ? launch_totals(c, &lines, &o) : TN_OK;
    if (s == TN_OK && split) s = launch_starts(c, &o);

    tni_kernel_args h;
    if (s == TN_OK) s = begin_scan_kernel(&h, c, o.width ? "scan_rows" : "scan_columns");
    if (s != TN_OK) return s;
    tni_kernel_args_add_operand(&h, &lines, 0, c->in[0].data, c->in[0].dtype);
    if (!o.width) tni_kernel_args_add_operand(&h, &lines, 1, c->out.data, c->out.dtype);
    else
        tni_kernel_args_add_long(&h, tni_kernel_args_add_buffer(&h, c->out.data) /
                                         (int64_t)tni_dtype_size(c->out.dtype));
    add_totals(&h, c, split ? c->scratch : c->out.data);  // not read if nothing is split
    return launch_scan(&h, c, &o);
}
