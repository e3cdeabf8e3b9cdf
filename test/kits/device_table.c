// device_table.c: rows of the op table on a device, against ref.
#include "device_table.h"

#include "check.h"
#include "table.h"

#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>

tn_ctx *open_eager(const char *device, bool eager)
{
    if (eager) setenv("TN_EAGER", "1", 1);
    tn_ctx *cx = open_quiet(device, 1);
    unsetenv("TN_EAGER");
    test_that(cx != NULL, "no context: %s", tn_error_text(NULL));
    return cx;
}

// Cases are recorded in both contexts and evaluated together, so that the kernels of a whole batch
// are compiled in one program.
enum { BATCH = 48 };

typedef struct {
    row        r;
    sample     s;
    tn_tensor *y[2], *bound;
    tn_status  want;
} entry;

typedef struct {
    const char *device;
    tn_ctx     *cx[2];  // the device's, ref's
    tn_scope   *scope[2];
    int         count;
    entry       at[BATCH];
} batch;

static void open_batch(batch *b, const char *device, bool eager)
{
    *b       = (batch){ .device = device };
    b->cx[0] = open_eager(device, eager);
    b->cx[1] = open_quiet("ref", 1);
    for (int k = 0; k < 2; k++) b->scope[k] = tn_begin(b->cx[k]);
    table_seed(1);
}

// A value of the device in the reference's context, as it is: comparing converts, and this spares
// the device a kernel for each conversion.
static tn_tensor *home(tn_ctx *ref, tn_tensor *y)
{
    return y ? tn_copy_to(ref, y) : NULL;
}

// The tensor cores multiply weights and scores' gradients of attention in the dtype of its 16-bit
// inputs.
static bool narrows(const batch *b, const sample *s)
{
    bool half = s->dt == TN_F16 || s->dt == TN_BF16;
    return half && (s->op == TNI_attention || s->op == TNI_attention_grad) &&
           strcmp(b->device, "cuda") == 0;
}

static void compare(batch *b, entry *e)
{
    const sample *s         = &e->s;
    char          text[256] = "";
    bool          ok        = !e->y[0] && !e->y[1];
    if (e->want == TN_OK) {
        tolerance t = {
            .how = e->r.how, .depth = s->depth, .bound = e->bound, .narrow = narrows(b, s)
        };
        ok = agrees(home(b->cx[1], e->y[0]), e->y[1], t, text);
    }
    test_case_result(ok, "%s %s %s %d: %s %s", tni_op_table[s->op].name, tn_dtype_name(s->dt),
                     layout_names[s->lay], s->variant, text, tn_error_text(b->cx[0]));
    tn_error_clear(b->cx[0]);
    tn_error_clear(b->cx[1]);
}

static void settle_batch(batch *b)
{
    tn_error_clear(b->cx[0]);
    tn_error_clear(b->cx[1]);
    tni_evaluate(b->cx[0], TNI_FLUSH, NULL);
    for (int i = 0; i < b->count; i++) compare(b, &b->at[i]);
    for (int i = 0; i < b->count; i++)
        for (int k = 0; k < b->at[i].s.nin; k++) input_free(&b->at[i].s.in[k]);
    for (int k = 0; k < 2; k++) {
        tn_end(b->scope[k]);
        tn_error_clear(b->cx[k]);
        b->scope[k] = tn_begin(b->cx[k]);
    }
    b->count = 0;
}

static void close_batch(batch *b)
{
    for (int k = 0; k < 2; k++) tn_close(b->cx[k]);
}

static tn_status expected_error(const row *r, const sample *s)
{
    tn_dtype result;
    if (r->refuses) return r->refuses(s);
    return row_dtype(s->op, s->dt, &result) ? TN_OK : TN_EDTYPE;
}

// What cannot be recorded: the gradients of conv, but by conv, which takes floats.
static bool unreachable(const row *r, const sample *s)
{
    if (r->source) return s->lay != PLAIN && s->lay != EMPTY && s->lay != ZERO_D;
    return (s->op == TNI_conv_dgrad || s->op == TNI_conv_wgrad) &&
           (!tni_is_float(s->dt) || s->lay == ZERO_D);
}

// Ops in the place of attention round 16-bit scores and weights where the op does not: attention_on
// has the bounds for them.
static bool rounds_between(const batch *b, int op, tn_dtype dt)
{
    return op == TNI_attention && tni_lacks(b->cx[0], op) && (dt == TN_F16 || dt == TN_BF16);
}

static void add_sample(batch *b, int op, tn_dtype dt, layout lay, int variant)
{
    entry *e = &b->at[b->count];
    *e = (entry){ .r = row_of(op), .s = { .op = op, .dt = dt, .lay = lay, .variant = variant } };
    if (unreachable(&e->r, &e->s) || rounds_between(b, op, dt)) return;
    tn_tensor *x[2][INPUTS];
    if (e->r.inputs) e->r.inputs(&e->s);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < e->s.nin; i++) x[k][i] = input_put(&e->s.in[i], b->cx[k]);
        e->y[k] = e->r.build(&e->s, b->cx[k], x[k]);
    }
    e->want = expected_error(&e->r, &e->s);
    if (e->want == TN_OK && e->r.bound && e->y[1] && tni_is_float(tn_dtype_of(e->y[1])))
        e->bound = e->r.bound(&e->s, b->cx[1], x[1]);
    if (++b->count == BATCH) settle_batch(b);
}

static void add_complete(batch *b, int op)
{
    row r = row_of(op);
    for (int d = 0; d < DTYPES; d++)
        for (int lay = 0; lay < LAYOUTS; lay++)
            for (int v = 0; v < r.variants; v++) add_sample(b, op, all_dtypes[d], (layout)lay, v);
}

// Every class of dtypes once (bool, an integer, a 16-bit float, f32, f64), every class of layouts
// once (row-major, strided, broadcast or overlapping, empty, 0-d), every variant once, in turn.
static void add_sampled(batch *b, int op)
{
    static const tn_dtype ints[] = { TN_I32, TN_U8, TN_I64, TN_I8, TN_U16, TN_U64, TN_I16, TN_U32 };
    static const layout   layouts[][3] = { { PLAIN, PLAIN, PLAIN },
                                           { TRANSPOSED, STEPPED, FLIPPED },
                                           { BROADCAST, WINDOWED, WINDOWED } };
    row                   r            = row_of(op);
    tn_dtype classes[] = { TN_F32, ints[op % 8], op & 1 ? TN_F16 : TN_BF16, TN_F64, TN_BOOL };
    int      most      = r.variants > 5 ? r.variants : 5;
    for (int k = 0; k < most; k++)
        add_sample(b, op, classes[k % 5],
                   r.source ? PLAIN : layouts[(op + k) % 3][(op + k) % 9 / 3], k % r.variants);
    add_sample(b, op, TN_F32, EMPTY, op % r.variants);
    add_sample(b, op, TN_F32, ZERO_D, op % r.variants);
}

// A few of each, with another dtype and layout each time; i is the place in the list of ops.
static void add_few(batch *b, int op, int i)
{
    static const tn_dtype dtypes[] = { TN_F32, TN_I64, TN_BF16, TN_U8, TN_F64 };
    row                   r        = row_of(op);
    for (int v = 0; v < r.variants && v < 5; v++)
        add_sample(b, op, dtypes[(v + i) % 5], r.source ? PLAIN : (layout)((v * 2 + i) % EMPTY), v);
}

void device_table(const char *device, bool eager, how_much how, int n, const int *ops)
{
    batch *b = malloc(sizeof *b);
    if (!CHECK(b != NULL)) return;
    open_batch(b, device, eager);
    for (int i = 0; b->cx[0] && i < n; i++) {
        if (how == COMPLETE) add_complete(b, ops[i]);
        else if (how == SAMPLED) add_sampled(b, ops[i]);
        else add_few(b, ops[i], i);
    }
    if (b->cx[0]) settle_batch(b);
    close_batch(b);
    free(b);
}

int device_table_ops(tni_class class, int *ops)
{
    int n = 0;
    for (int op = 0; op < TNI_OPS; op++)
        if (tni_op_table[op].class == class && op != TNI_custom && op != TNI_output &&
            row_of(op).build)
            ops[n++] = op;
    return n;
}
