// Rows of ops.def as nodes of ONNX, by the table of export_rows.def.
//
//   add of f32                     "Add(a, b)"            one node
//   add of bools                   "Or(a, b)"             another one
//   expm1                          "Mul(Tanh(...), ...)"  several, with constants
//   sum, pad, gather, argsort ...  a function below       they have attributes, or their inputs another order
//
#include "onnx/export.h"

#include "onnx/onnx_run.h"

#include <stdlib.h>
#include <string.h>

// ---- expressions -------------------------------------------------------------------------------

// An expression that is read: `at` moves on.
typedef struct {
    tni_exporter      *e;
    const char        *at;
    tn_dtype           dt;
    int                n;
    const char *const *arg;
} reader;

// Blanks are only there for the reader of the table.
static void skip_blanks(reader *r)
{
    while (*r->at == ' ') r->at++;
}

// "20:text|other": the text for this opset.
static const char *choose(const tni_exporter *e, const char *text, size_t *length)
{
    const char *bar = strchr(text, '|');
    *length         = strlen(text);
    if (!bar) return text;
    char *colon;
    bool  first = e->opset >= strtol(text, &colon, 10);
    text        = first ? colon + 1 : bar + 1;
    *length     = first ? (size_t)(bar - text) : strlen(text);
    return text;
}

// [name=value]
static int read_attribute(reader *r, tni_export_attr *a)
{
    if (*r->at != '[') return 0;
    const char *equals = strchr(r->at, '='), *end = strchr(r->at, ']');
    *a = (tni_export_attr){
        .name = tni_export_text(r->e, "%.*s", (int)(equals - r->at - 1), r->at + 1),
        .s    = tni_export_text(r->e, "%.*s", (int)(end - equals - 1), equals + 1)
    };
    r->at = end + 1;
    if (!a->name || !a->s) return 0;
    a->type = !tni_is_digit(*a->s) ? 3 : strchr(a->s, '.') ? 1 : 2;
    if (a->type == 1) tni_parse_double(a->s, strlen(a->s), &a->f);
    if (a->type == 2) a->i = strtol(a->s, NULL, 10);
    return 1;
}

// An operand, a number, or Op(...). The texts are ours, and small: it calls itself a few times.
static const char *read_term(reader *r)
{
    enum { MOST = 4 };
    const char     *in[MOST] = { 0 };
    const char     *from;
    tni_export_attr attr;
    int             n = 0;
    skip_blanks(r);
    from = r->at;
    if (*from >= 'a' && *from <= 'c') return *from - 'a' < r->n ? r->arg[*r->at++ - 'a'] : NULL;
    if (tni_is_digit(*from)) {
        double v = 0;
        while (tni_is_digit(*r->at) || *r->at == '.') r->at++;
        tni_parse_double(from, (size_t)(r->at - from), &v);
        return tni_export_number(r->e, r->dt, tni_num_of(v));
    }
    while (*r->at != '(' && *r->at != '[') r->at++;
    const char *op    = tni_export_text(r->e, "%.*s", (int)(r->at - from), from);
    int         nattr = read_attribute(r, &attr);
    do {
        r->at++;
        in[n++] = read_term(r);
        skip_blanks(r);
    } while (*r->at == ',');
    r->at++;
    return op ? tni_export_add(r->e, op, n, in, nattr, &attr) : NULL;
}

const char *tni_export_spell(tni_exporter *e, const char *text, tn_dtype dt, int n,
                             const char *const *arg)
{
    size_t      length;
    const char *own = choose(e, text, &length);
    own             = tni_export_text(e, "%.*s", (int)length, own);
    reader r        = { e, own, dt, n, arg };
    return own ? read_term(&r) : NULL;
}

// ---- maps --------------------------------------------------------------------------------------

// Whether operands broadcast to the shape of node i; else one of them has to be expanded.
static bool covers(const tni_exporter *e, size_t i, int n, const tni_operand_out *x)
{
    const tni_node *y = tni_export_at(e, i);
    for (int k = 0; k < y->rank; k++) {
        tni_extent want  = tni_export_axis(e, i, k);
        bool       found = tni_extent_same(want, tni_fixed(1));
        for (int s = 0; s < n; s++) {
            int own = k - (y->rank - x[s].rank);
            found |= own >= 0 && tni_extent_same(x[s].size[own], want);
        }
        if (!found) return false;
    }
    return true;
}

// The dtype that a map computes in: that of its operands, of which where's condition is none. A
// number beside a tensor of 16 bits is of f32 here and does not count.
static tn_dtype map_dtype(const tni_node *n)
{
    uint32_t s = n->op == TNI_where;
    while (s + 1 < n->nsrc && tni_is_number(n->src[s]->op)) s++;
    return (tn_dtype)n->src[s]->dtype;
}

// The sources of a map, without what broadcasting does. A number takes the dtype of the others.
static bool map_operands(tni_exporter *e, size_t i, const char **name)
{
    const tni_node *n  = tni_export_at(e, i);
    tn_dtype        dt = map_dtype(n);
    tni_operand_out x[3];
    for (uint32_t s = 0; s < n->nsrc; s++) {
        const tni_node *k      = n->src[s];
        bool            number = tni_is_number(k->op) && tni_is_rounded(dt) && k->dtype == TN_F32;
        x[s] = number ? (tni_operand_out){ .name = tni_export_number(e, dt, k->attr.num) }
                      : tni_export_loose(e, tni_export_index(k));
        if (!x[s].name) return false;
    }
    // A plain number has no axes that could be expanded.
    for (uint32_t s = 0; s < n->nsrc && !covers(e, i, (int)n->nsrc, x); s++)
        if (n->src[s]->rank) x[s] = tni_export_value(e, tni_export_index(n->src[s]));
    for (uint32_t s = 0; s < n->nsrc; s++)
        if (!(name[s] = x[s].name)) return false;
    return true;
}

// Writes a map by the text for the dtype that it computes in, which is that of its
// operands: comparisons give bools, and numbers in their texts are of what they compare.
static const char *write_map(tni_exporter *e, size_t i, const char *const *texts)
{
    const tni_node *n  = tni_export_at(e, i);
    tn_dtype        dt = map_dtype(n);
    const char     *arg[3], *text = texts[tni_is_float(dt) ? 0 : dt == TN_BOOL ? 2 : 1];
    size_t          length;
    if (!map_operands(e, i, arg)) return NULL;
    choose(e, text, &length);
    if (!length)
        return tni_export_refuse(e, "%s of %s has no form in opset %d", tni_op_table[n->op].name,
                                 tn_dtype_name(dt), e->opset);
    return tni_export_spell(e, text, dt, (int)n->nsrc, arg);
}

// The condition is a bool, and the other two have one dtype.
static const char *write_where(tni_exporter *e, size_t i)
{
    const char *arg[3];
    return map_operands(e, i, arg) ? tni_export_add(e, "Where", 3, arg, 0, NULL) : NULL;
}

// Floats that do not fit an integer are cut in ways that differ from runtime to runtime; here they
// saturate.
static const char *write_cast(tni_exporter *e, size_t i)
{
    const char *arg[3];
    if (!map_operands(e, i, arg)) return NULL;
    return tni_export_cast(e, arg[0], (tn_dtype)tni_export_at(e, i)->dtype);
}

// ---- folds -------------------------------------------------------------------------------------

// Returns the value of source k of node i, in its own shape.
static const char *source(tni_exporter *e, size_t i, int k)
{
    return tni_export_value(e, tni_export_index(tni_export_at(e, i)->src[k])).name;
}

// A reduction over a mask of axes, which are an attribute, or, since a version of its own, an
// input.
const char *tni_export_reduce(tni_exporter *e, const char *op, const char *x, uint32_t mask,
                              bool keep)
{
    int64_t axes[TN_MAX_RANK];
    int     n = 0, since = strcmp(op, "ReduceSum") ? 18 : 13;
    for (int k = 0; k < TN_MAX_RANK; k++)
        if (mask >> k & 1) axes[n++] = k;
    tni_export_attr attr[] = { tni_attr_int("keepdims", keep), tni_attr_ints("axes", n, axes) };
    // No axis means all axes.
    if (!n) return x;
    if (e->opset < since) return tni_export_add(e, op, 1, &x, 2, attr);
    const char *in[] = { x, tni_export_ints(e, n, axes) };
    return tni_export_add(e, op, 2, in, 1, attr);
}

// A node that has lost its axes has fewer of them than its source. An integer sum is of i64 here,
// as in NumPy, and of the dtype of its input in ONNX.
static const char *write_reduce(tni_exporter *e, size_t i)
{
    const tni_node *n  = tni_export_at(e, i);
    const char     *op = n->op == TNI_sum    ? "ReduceSum"
                         : n->op == TNI_prod ? "ReduceProd"
                         : n->op == TNI_max  ? "ReduceMax"
                                             : "ReduceMin";
    const char     *x  = source(e, i, 0);
    tn_dtype        dt = (tn_dtype)n->dtype;
    // Sums of small integers are wider than they are; extremes of bools are those of integers.
    if (n->src[0]->dtype != n->dtype) x = tni_export_cast(e, x, dt);
    if (dt == TN_BOOL) x = tni_export_cast(e, x, TN_I32);
    x = tni_export_reduce(e, op, x, n->attr.reduce.axes, n->rank == n->src[0]->rank);
    return dt == TN_BOOL ? tni_export_cast(e, x, dt) : x;
}

// Of equal elements the first counts, here as there.
static const char *write_arg(tni_exporter *e, size_t i)
{
    const tni_node *n    = tni_export_at(e, i);
    uint32_t        mask = n->attr.reduce.axes;
    int             axis = 0;
    while (axis < TN_MAX_RANK && !(mask >> axis & 1)) axis++;
    tni_operand_out x = tni_export_value(e, tni_export_index(n->src[0])),
                    y = { .rank = 1, .size = { tni_fixed(1) } };
    tni_extent size[TN_MAX_RANK], all = tni_fixed(1);
    // Over all axes it is the place in row-major order.
    bool whole = mask == (1u << x.rank) - 1, flat = whole && x.rank != 1;
    if (mask != 1u << axis && !whole)
        return tni_export_refuse(e, "%s over some axes has no form in ONNX",
                                 tni_op_table[n->op].name);
    for (int t = 0; t < TNI_EXPORT_TRACES; t++)
        for (int k = 0; flat && k < x.rank; k++) all.at[t] *= x.size[k].at[t];
    if (flat) x.name = tni_export_reshape(e, x, 1, &all);
    tni_export_attr a[] = { tni_attr_int("axis", flat ? 0 : axis),
                            tni_attr_int("keepdims", flat || n->rank == x.rank) };
    y.name = tni_export_add(e, n->op == TNI_argmax ? "ArgMax" : "ArgMin", 1, &x.name, 2, a);
    for (int k = 0; k < n->rank; k++) size[k] = tni_export_axis(e, i, k);
    return flat ? tni_export_reshape(e, y, n->rank, size) : y.name;
}

// The axis is an input, of one number.
static const char *write_cumsum(tni_exporter *e, size_t i)
{
    const tni_node *n = tni_export_at(e, i);
    const char     *x = source(e, i, 0);
    if (n->src[0]->dtype != n->dtype) x = tni_export_cast(e, x, (tn_dtype)n->dtype);
    const char *in[] = { x, tni_export_number(e, TN_I64, tni_num_i64(n->attr.axis.axis)) };
    return tni_export_add(e, "CumSum", 2, in, 0, NULL);
}

// ---- movement ----------------------------------------------------------------------------------

// A copy and the next state of a store are new memory here, and no op there.
static const char *write_same(tni_exporter *e, size_t i)
{
    return source(e, i, 0);
}

// Numbers before all axes, then after all axes; negative ones cut off. What comes after follows
// from the sizes, in each run, so that a batch that is padded stays symbolic.
static const char *write_pad(tni_exporter *e, size_t i)
{
    const tni_node *n = tni_export_at(e, i), *b = e->run[e->traces - 1].node[i];
    size_t          from = tni_export_index(n->src[0]);
    tni_extent      pads[2 * TN_MAX_RANK];
    tn_dtype        dt = (tn_dtype)n->dtype;
    for (int k = 0; k < n->rank; k++) {
        tni_extent x = tni_export_axis(e, from, k), y = tni_export_axis(e, i, k);
        pads[k] = (tni_extent){ { n->attr.pad.before[k], b->attr.pad.before[k] } };
        for (int t = 0; t < TNI_EXPORT_TRACES; t++)
            pads[n->rank + k].at[t] = y.at[t] - x.at[t] - pads[k].at[t];
    }
    tni_num v = tni_is_float(dt) ? tni_num_of(n->attr.pad.value) : tni_num_i64(n->attr.pad.ivalue);
    const char *in[] = { source(e, i, 0), tni_export_sizes(e, 2 * n->rank, pads),
                         tni_export_number(e, dt, v) };
    return tni_export_add(e, "Pad", 3, in, 0, NULL);
}

// The inputs are as many as the program gave.
static const char *write_concat(tni_exporter *e, size_t i)
{
    const tni_node *n    = tni_export_at(e, i);
    const char    **in   = tni_alloc(&e->cx->heap, n->nsrc * sizeof *in), *y;
    tni_export_attr axis = tni_attr_int("axis", n->attr.axis.axis);
    if (!in) return tni_fail_memory(e->cx, "onnx_save");
    for (uint32_t k = 0; k < n->nsrc; k++) in[k] = source(e, i, (int)k);
    y = tni_export_add(e, "Concat", (int)n->nsrc, in, 1, &axis);
    tni_free(&e->cx->heap, in);
    return y;
}

// An index that is the same along all other axes selects rows.
static bool selects_rows(const tni_exporter *e, size_t i, tni_operand_out index)
{
    const tni_node *n    = tni_export_at(e, i);
    size_t          from = tni_export_index(n->src[0]);
    if (index.rank != n->rank) return false;
    for (int k = 0; k < n->rank; k++) {
        if (k == n->attr.axis.axis) continue;
        if (!tni_extent_same(index.size[k], tni_fixed(1)) ||
            !tni_extent_same(tni_export_axis(e, from, k), tni_export_axis(e, i, k)))
            return false;
    }
    return true;
}

// Rows by number are a Gather, as of an embedding; single elements are GatherElements, which is
// the row as it is.
static const char *write_gather(tni_exporter *e, size_t i)
{
    const tni_node *n     = tni_export_at(e, i);
    size_t          at    = tni_export_index(n->src[1]);
    tni_operand_out index = tni_export_loose(e, at);
    tni_export_attr axis  = tni_attr_int("axis", n->attr.axis.axis);
    if (!index.name) return NULL;
    bool        rows = selects_rows(e, i, index);
    tni_extent  all  = tni_export_axis(e, i, n->attr.axis.axis);
    const char *in[] = { source(e, i, 0), rows ? tni_export_reshape(e, index, 1, &all)
                                               : tni_export_value(e, at).name };
    return tni_export_add(e, rows ? "Gather" : "GatherElements", 2, in, 1, &axis);
}

// Of indices that repeat ONNX says nothing; here the last one counts, and runtimes do that too.
static const char *write_scatter(tni_exporter *e, size_t i)
{
    const tni_node *n   = tni_export_at(e, i);
    bool            add = n->op == TNI_scatter_add;
    if (add && e->opset < 16)
        return tni_export_refuse(e, "scatter_add needs opset 16, not %d", e->opset);
    tni_export_attr a[]  = { tni_attr_int("axis", n->attr.axis.axis),
                             tni_attr_text("reduction", "add") };
    const char     *in[] = { source(e, i, 0), source(e, i, 1), source(e, i, 2) };
    return tni_export_add(e, "ScatterElements", 3, in, 1 + add, a);
}

// ---- the others --------------------------------------------------------------------------------

// The node may have other axes than the product of its sources: rows of a batch that are one run, a
// vector as a matrix.
static const char *write_matmul(tni_exporter *e, size_t i)
{
    const tni_node *n    = tni_export_at(e, i);
    size_t          at[] = { tni_export_index(n->src[0]), tni_export_index(n->src[1]) };
    const char     *in[] = { source(e, i, 0), source(e, i, 1) },
               *op       = n->op == TNI_matmul ? "MatMul" : "MatMulInteger";
    tni_operand_out y = { .name = tni_export_add(e, op, 2, in, 0, NULL), .rank = n->src[0]->rank };
    tni_extent      size[TN_MAX_RANK];
    for (int k = 0; k < y.rank; k++)
        y.size[k] = tni_export_axis(e, at[k == y.rank - 1],
                                    k == y.rank - 1 ? n->src[1]->rank - 1 : k);
    for (int k = 0; k < n->rank; k++) size[k] = tni_export_axis(e, i, k);
    return tni_export_reshape(e, y, n->rank, size);
}

// The sorted elements are the second output here, and the first of ONNX.
// TopK of all elements is a sort. Of equal ones the lower index comes first in runtimes, as the
// stable sort has it here.
static const char *write_argsort(tni_exporter *e, size_t i)
{
    const tni_node *n    = tni_export_at(e, i);
    int             k    = n->attr.axis.axis;
    tni_extent      all  = tni_export_axis(e, i, k);
    const char     *in[] = { source(e, i, 0), tni_export_sizes(e, 1, &all) }, *out[2];
    tni_export_attr a[]  = { tni_attr_int("axis", k),
                             tni_attr_int("largest", n->attr.axis.descending),
                             tni_attr_int("sorted", 1) };
    if (!tni_export_add_n(e, "TopK", 2, in, 3, a, 2, out)) return NULL;
    e->known[i].more[1] = out[0];
    return out[1];
}

// An output after the first has been written with the node that computes it.
static const char *write_output(tni_exporter *e, size_t i)
{
    const tni_node *n = tni_export_at(e, i);
    const char     *y = e->known[tni_export_index(n->src[0])].more[n->attr.output.index];
    if (y) return y;
    return tni_export_refuse(e, "output %lld of %s", (long long)n->attr.output.index,
                             tni_op_table[n->src[0]->op].name);
}

// Numbers of the runtime's own.
static const char *write_random(tni_exporter *e, size_t i)
{
    const tni_node *n = tni_export_at(e, i);
    tni_extent      size[TN_MAX_RANK];
    for (int k = 0; k < n->rank; k++) size[k] = tni_export_axis(e, i, k);
    const char *in[] = { tni_export_number(e, (tn_dtype)n->dtype, tni_num_of(0)),
                         tni_export_sizes(e, n->rank, size) };
    const char *like = tni_export_add(e, "Expand", 2, in, 0, NULL);
    return tni_export_add(e, n->op == TNI_normal ? "RandomNormalLike" : "RandomUniformLike", 1,
                          &like, 0, NULL);
}

// A body is a graph of its own: export_loop.c.
static const char *write_loop(tni_exporter *e, size_t i)
{
    return tni_export_loop(e, i);
}

// What ONNX has no op for, and no few ops either.
static const char *write_nothing(tni_exporter *e, size_t i)
{
    return tni_export_refuse(e, "%s has no form in ONNX",
                             tni_op_table[tni_export_at(e, i)->op].name);
}

// ---- the table ---------------------------------------------------------------------------------

// Texts by dtype, or a function. Every op has one of both: an op without a row is refused when the
// library is compiled.
static const struct {
    const char *text[3];
    const char *(*write)(tni_exporter *e, size_t i);
} rows[TNI_OPS] = {
#define SPELL(row, floats, integers, bools) [TNI_##row] = { { floats, integers, bools }, NULL },
#define BY(row, f)                          [TNI_##row] = { { NULL }, write_##f },
#define CALL(call, text)
#include "onnx/export_rows.def"
};

enum {
    ROWS = 0
#define SPELL(row, floats, integers, bools) +1
#define BY(row, f)                          +1
#define CALL(call, text)
#include "onnx/export_rows.def"
};
_Static_assert((int)ROWS == (int)TNI_OPS, "every row of ops.def is in export_rows.def");

// Texts and functions are in one table, so that no row can have neither.
bool tni_export_row(tni_exporter *e, size_t i)
{
    int op = tni_export_at(e, i)->op;
    return tni_export_set(e, i,
                          rows[op].write ? rows[op].write(e, i) : write_map(e, i, rows[op].text));
}
