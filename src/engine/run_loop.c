// Running a loop: the plan of its body, once for every step, with other addresses each time.
//
// The body is planned as any graph is, and its plan is in the same cache: it does not depend on the
// number of steps. Its inputs are placeholders and its outputs have buffers of their own, whose
// addresses are set before each step:
//
//   step t of T     carry in                     carry out                slices, outputs
//   stacked         stack[t]                     stack[t + 1]             x[t], y[t]
//   not stacked     ring[t - 1 & 1], t 0: src    ring[t & 1], last: out   x[t], y[t]
//   reverse         t counts down: stack[t + 1] in, stack[t] out
//
// Temporaries of the body, the ring and the scratch of its kernels are scratch of the loop's call
// in the outer plan:
//
//   arena of the body | scratch of its steps | ring of carry 0: two slots | ring of carry 1 | ... | values that move
//
// An output whose place in the body's plan is its own is computed where it belongs. One that shares
// a place with another, as a part of a concat that is an output too, is computed in that place and
// then copied.
//
// A body with a loop in it is run in the same way, one level deeper: everything here is by the run
// of the graph around.
//
// Devices see launches and calls as those of any plan. On a GPU they are recorded one by one with
// the launches around them, and replayed as one graph; so the host's work for each step of a loop
// is paid where a graph is compared, not where it runs.
#include "engine/run.h"

#include "engine/observer.h"
#include "ops/loop.h"

// A loop being run or measured: the body's graph and plan, and the addresses of the run. root:
// outputs of the body that are alive, number k of them output `of[k]`; direct: the plan computes it
// at the address that it is given, otherwise it is copied there. Sizes are bytes.
typedef struct {
    tni_run                     r;  // of the body
    tni_graph                   g;
    tni_plan                   *plan;
    bool                        kept, busy;
    const tni_loop             *l;
    const struct tni_attr_loop *a;
    int                         roots, of[TNI_LOOP_OUTPUTS];
    bool                        direct[TNI_LOOP_OUTPUTS];
    tni_buffer                 *fake;  // by item: the buffer of a root that is TNI_OWN
    int64_t                     in_size[TNI_LOOP_INPUTS], out_size[TNI_LOOP_OUTPUTS];
    int64_t scratch, ring, bytes;  // where the parts of the scratch begin; all of it
    char   *in[TNI_LOOP_INPUTS], *out[TNI_LOOP_OUTPUTS];  // addresses of sources and outputs
} loop_run;

static _Alignas(64) char nowhere[64];

// The bytes of a value of one step, which follow each other in a stack.
static int64_t value_bytes(const tni_engine *e, const tni_node *n)
{
    return tni_node_count(n) * (int64_t)e->device->memory->element_size((tn_dtype)n->dtype);
}

// Frees the lists of a run; the plan stays in the cache, which owns it.
static void close_body(loop_run *x)
{
    tn_ctx *cx = x->g.cx;
    tni_free(&cx->heap, x->r.own);
    tni_free(&cx->heap, x->r.data);
    tni_free(&cx->heap, x->fake);
    if (x->plan && !x->kept) tni_plan_free(&cx->heap, x->plan);
    tni_graph_close(&x->g);
    cx->busy = x->busy;
}

tni_loop_call tni_loop_call_of(const tni_node *n)
{
    tni_loop_call c = { .attr = n->attr.loop };
    c.roots         = tni_loop_roots(n, c.root);
    return c;
}

// Opens the body of a loop with its plan, ready to run. False, reported, on failure; close_body is
// due in any case. A body runs often, so that it is compiled at once.
static bool open_body(loop_run *x, tn_ctx *cx, const tni_loop_call *c)
{
    *x       = (loop_run){ .a = &c->attr, .l = c->attr.body, .busy = cx->busy };
    x->kept  = true;
    x->roots = c->roots;
    for (int k = 0, i = 0; i < x->roots; k++)
        if (x->l->out[k] == c->root[i]) x->of[i++] = k;
    if (!tni_graph_open_body(&x->g, cx, x->roots, c->root)) return false;
    if (!(x->plan = tni_plan_for(&x->g, &x->kept))) return false;
    x->plan->recurs = true;
    if (!tni_prepare(&x->g, &x->plan, x->kept)) return false;
    x->r     = (tni_run){ .cx = cx, .e = cx->engine, .g = &x->g, .plan = x->plan, .in_loop = true };
    x->r.own = tni_zalloc(&cx->heap, x->g.count * sizeof *x->r.own);
    x->r.data = tni_zalloc(&cx->heap, x->g.count * sizeof *x->r.data);
    x->fake   = tni_zalloc(&cx->heap, x->g.count * sizeof *x->fake);
    return (x->r.own && x->r.data && x->fake) || tni_no_memory(cx, "evaluating");
}

// ---- memory ------------------------------------------------------------------------------------

// Adds a part to the scratch; returns where it begins.
static int64_t add_part(int64_t *bytes, int64_t part)
{
    int64_t at = *bytes;
    *bytes += tni_align64(part);
    return at;
}

// Finds where everything is in the scratch: the body's arena, scratch of its steps, two slots for
// each carry, and roots of its plan that are no outputs themselves.
static void lay_out(loop_run *x)
{
    const tni_engine *e = x->r.e;
    for (size_t i = 0; i < x->g.count; i++) x->r.data[i] = nowhere;
    for (int i = 0; i < tni_loop_inputs(x->l); i++) {
        x->l->in[i]->buf->data = nowhere;
        x->in_size[i]          = value_bytes(e, x->l->in[i]);
    }
    add_part(&x->bytes, x->plan->arena);
    x->scratch = add_part(&x->bytes, (int64_t)tni_run_scratch(&x->r));
    x->r.bound = false;
    x->ring    = x->bytes;
    for (int c = 0; c < x->l->carries; c++) add_part(&x->bytes, 2 * tni_align64(x->in_size[c]));
    for (int k = 0; k < x->roots; k++) {
        size_t i           = x->l->out[x->of[k]]->mark - 1;
        x->out_size[k]     = value_bytes(e, x->l->out[x->of[k]]);
        const tni_place *p = &x->plan->place[i];
        x->direct[k]       = p->where == TNI_OWN && p->root == i && !p->start;
        if (x->direct[k]) x->r.own[i] = &x->fake[i];
    }
    for (size_t i = 0; i < x->g.count; i++) {
        const tni_place *p = &x->plan->place[i];
        if (p->where != TNI_OWN || p->root != i || x->r.own[i]) continue;
        x->r.own[i]      = &x->fake[i];
        x->fake[i].bytes = (size_t)add_part(&x->bytes, p->bytes);  // its place in the scratch
        x->fake[i].given = 1;
    }
}

size_t tni_loop_scratch(tn_ctx *cx, const tni_loop_call *l)
{
    loop_run x;
    size_t   bytes = 0;
    if (open_body(&x, cx, l)) {
        lay_out(&x);
        bytes = (size_t)x.bytes;
    }
    close_body(&x);
    return bytes;
}

bool tni_prepare_loops(const tni_graph *g, tni_plan *p, bool *ready)
{
    for (size_t i = 0; i < p->calls; i++) {
        loop_run x;
        if (p->call[i].call.op != TNI_loop) continue;
        tni_loop_call c  = tni_loop_call_of(g->item[p->call[i].item].n);
        bool          ok = open_body(&x, g->cx, &c);
        if (ok) *ready &= x.plan->ready;
        close_body(&x);
        // What a body's kernels need may change when they are compiled.
        p->scratch_known = false;
        if (!ok) return false;
    }
    return true;
}

// ---- steps -------------------------------------------------------------------------------------

// A copy from row-major memory to row-major memory, by the device.
static tn_status copy_bytes(const loop_run *x, const tni_node *n, char *to, char *from,
                            tni_text *why)
{
    tni_arg in = { .dtype  = (tn_dtype)n->dtype,
                   .rank   = 1,
                   .size   = { tni_node_count(n) },
                   .stride = { 1 },
                   .data   = from };
    return in.size[0] ? tni_arg_copy(x->r.cx, in, in.dtype, to, why) : TN_OK;
}

// The slot of a carry's value: before step number s (after: after it), of those that are run, in
// order.
static char *carry_slot(const loop_run *x, char *memory, int c, int64_t s, bool after)
{
    const struct tni_attr_loop *a    = x->a;
    int64_t                     size = x->in_size[c], n = s + after;
    char                       *out = x->out[c], *ring = memory + x->ring;
    if (out && a->stacked >> c & 1) return out + (a->reverse ? a->steps - n : n) * size;
    if (n == 0) return x->in[c];
    if (n == a->steps && out) return out;
    for (int i = 0; i < c; i++) ring += 2 * tni_align64(x->in_size[i]);
    return ring + (n & 1) * tni_align64(size);
}

// Sets all addresses for step number s.
static void bind_step(loop_run *x, char *memory, int64_t s)
{
    const tni_loop *l = x->l;
    int64_t         t = x->a->reverse ? x->a->steps - 1 - s : s;
    for (int i = 0; i < tni_loop_inputs(l); i++) {
        bool slice          = i >= l->carries && i < l->carries + l->xs;
        l->in[i]->buf->data = i < l->carries ? carry_slot(x, memory, i, s, false)
                                             : x->in[i] + (slice ? t * x->in_size[i] : 0);
    }
    for (int k = 0; k < x->roots; k++) {
        if (!x->direct[k]) continue;
        x->fake[l->out[x->of[k]]->mark - 1].data = x->of[k] < l->carries
                                                       ? carry_slot(x, memory, x->of[k], s, true)
                                                       : x->out[x->of[k]] + t * x->out_size[k];
    }
    for (size_t i = 0; i < x->g.count; i++) x->r.data[i] = tni_find_data(&x->r, i);
}

// Runs the body once. Outputs that the plan has elsewhere are copied to their slots.
static tn_status run_body(loop_run *x, char *memory, int64_t s, tni_text *why)
{
    size_t  item;
    int64_t t = x->a->reverse ? x->a->steps - 1 - s : s;
    bind_step(x, memory, s);
    for (size_t i = 0; i < x->plan->steps; i++) {
        tn_status status = tni_run_plan_step(&x->r, x->plan->step[i], &item);
        if (status != TN_OK) return status;
    }
    for (int k = 0; k < x->roots; k++) {
        if (x->direct[k]) continue;
        const tni_node *n      = x->l->out[x->of[k]];
        char           *to     = x->of[k] < x->l->carries ? carry_slot(x, memory, x->of[k], s, true)
                                                          : x->out[x->of[k]] + t * x->out_size[k];
        tn_status       status = copy_bytes(x, n, to, x->r.data[n->mark - 1], why);
        if (status != TN_OK) return status;
    }
    return TN_OK;
}

// The addresses of the loop's sources and outputs. A stack begins with the carry that the loop is
// given.
static tn_status bind_loop(loop_run *x, const tni_call *c, tni_text *why)
{
    tn_status s = TN_OK;
    for (int i = 0; i < c->nin; i++) x->in[i] = c->in[i].data;
    x->out[0] = c->out.data;
    for (int k = 1; k <= c->nmore; k++) x->out[k] = c->more[k - 1].data;
    for (int i = 0; s == TN_OK && i < x->l->carries; i++)
        if (x->out[i] && x->a->stacked >> i & 1)
            s = copy_bytes(x, x->l->in[i], carry_slot(x, NULL, i, 0, false), x->in[i], why);
    return s;
}

// An error inside is reported with the line of the body that recorded it. A body whose plan was
// built anew since the scratch was taken may need more than that.
tn_status tni_run_loop(tn_ctx *cx, const tni_loop_call *l, const tni_call *c, size_t room,
                       bool *reported)
{
    loop_run  x;
    char     *memory   = c->scratch;
    tn_status s        = TN_OK;
    uint64_t  failures = cx->failures;
    if (!open_body(&x, cx, l)) {
        s = tni_failed();
    } else {
        lay_out(&x);
        x.r.arena   = &(tni_buffer){ .data = memory };
        x.r.scratch = &(tni_buffer){ .data = memory + x.scratch };
        for (size_t i = 0; i < x.g.count; i++)
            if (x.fake[i].given) x.fake[i].data = memory + x.fake[i].bytes;
        s = (size_t)x.bytes <= room ? bind_loop(&x, c, c->why) : TN_EMEM;
        for (int64_t i = 0; s == TN_OK && i < x.a->steps; i++) s = run_body(&x, memory, i, c->why);
        x.plan->runs++;
    }
    close_body(&x);
    *reported = cx->failures != failures;
    return s;
}
