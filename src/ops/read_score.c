// Recorded nodes as a score program. Maps become instructions; what they read, and is no map,
// number or iota, becomes a source. Shapes differ on the way down (a mask is (T, S), slopes are (H,
// 1, 1)), so a node is read at a place: which of its elements, in row-major order, goes with the
// score (b, h, i, j). Maps have the places of their operands; views change them.
#include "ops/recognize.h"

#include <string.h>

enum { DEEPEST = 64 };  // nodes on a way down

static const int64_t nowhere[4] = { 0, 0, 0, 0 };

tni_score_reader tni_score_reader_of(const int64_t size[4], const tni_score_op *op, int count)
{
    tni_score_reader r;
    memset(&r, 0, sizeof r);
    memcpy(r.size, size, sizeof r.size);
    if (count) memcpy(r.op, op, (size_t)count * sizeof *op);
    r.count = count;
    r.fixed = count > 0;
    return r;
}

void tni_score_steps(const tni_score_reader *r, int64_t step[4])
{
    int64_t n = 1;
    for (int a = 3; a >= 0; a--) {
        step[a] = r->size[a] > 1 ? n : 0;
        n *= r->size[a];
    }
}

// ---- instructions ------------------------------------------------------------------------------

// The dtype of a value in a program.
static tn_dtype value_dtype(tn_dtype dt)
{
    return tni_is_float(dt) ? tni_compute_dtype(dt) : dt;
}

int tni_score_append(tni_score_reader *r, const tni_score_op *x)
{
    for (int i = 0; i < r->count; i++)
        if (!memcmp(&r->op[i], x, sizeof *x)) return i;
    if (r->count == TNI_SCORE_OPS) return -1;
    memcpy(&r->op[r->count], x, sizeof *x);
    return r->count++;
}

// A blank instruction whose every byte is set, since programs are compared by bytes.
static void blank(tni_score_op *x, int op, tn_dtype dt)
{
    memset(x, 0, sizeof *x);
    x->op    = (uint16_t)op;
    x->dtype = (uint8_t)value_dtype(dt);
}

static bool is_one(const tni_score_op *x)
{
    return x->op == TNI_scalar && tni_is_float((tn_dtype)x->dtype) && x->f == 1;
}

// A map over instructions. Gradients are full of products with 1.
static int emit_map(tni_score_reader *r, const tni_node *n, const int *src)
{
    tni_score_op x;
    blank(&x, n->op, (tn_dtype)n->dtype);
    bool same = n->op == TNI_cast && r->op[src[0]].dtype == x.dtype;
    if (same) return src[0];
    if (n->op == TNI_mul && is_one(&r->op[src[0]])) return src[1];
    if ((n->op == TNI_mul || n->op == TNI_div) && is_one(&r->op[src[1]])) return src[0];
    for (uint32_t i = 0; i < n->nsrc; i++) x.src[i] = (int16_t)src[i];
    return tni_score_append(r, &x);
}

static int emit_number(tni_score_reader *r, const tni_node *n)
{
    tni_score_op x;
    blank(&x, TNI_scalar, (tn_dtype)n->dtype);
    if (tni_is_float((tn_dtype)n->dtype)) x.f = n->attr.num.f;
    else x.i = n->attr.num.i;
    return tni_score_append(r, &x);
}

static int emit_iota(tni_score_reader *r, const tni_node *n, const int64_t step[4])
{
    tni_score_op x;
    blank(&x, TNI_iota, (tn_dtype)n->dtype);
    if (tni_is_float((tn_dtype)n->dtype)) x.f = n->attr.iota.start, x.df = n->attr.iota.step;
    else x.i = n->attr.iota.istart, x.di = n->attr.iota.istep;
    memcpy(x.step, step, sizeof x.step);
    return tni_score_append(r, &x);
}

static int emit_raw(tni_score_reader *r, const int64_t step[4])
{
    tni_score_op x;
    int64_t      want[4];
    tni_score_steps(r, want);
    if (memcmp(want, step, sizeof want)) return -1;
    blank(&x, TNI_matmul, (tn_dtype)r->raw->dtype);
    return tni_score_append(r, &x);
}

// Whether the scores are among what a pending node is computed from; true also if that is not soon
// found out. Sources are older than their readers.
static bool depends_on_raw(const tni_score_reader *r, const tni_node *n)
{
    const tni_node *list[64];
    int             count = 0;
    list[count++]         = n;
    for (int i = 0; i < count; i++) {
        if (list[i] == r->raw) return true;
        if (list[i]->state != TNI_PENDING || list[i]->id < r->raw->id) continue;
        for (uint32_t s = 0; s < list[i]->nsrc; s++) {
            if (count == 64) return true;
            list[count++] = list[i]->src[s];
        }
    }
    return false;
}

// A source of the program. A whole matrix of numbers that would first have to be computed from the
// scores is none.
static int emit_source(tni_score_reader *r, tni_node *n, const int64_t step[4])
{
    tni_score_op x;
    if (r->fixed || tni_is_storage_only((tn_dtype)n->dtype)) return -1;
    if (r->raw && depends_on_raw(r, n)) return -1;
    int at = 0;
    while (at < r->sources && (r->source[at].n != n || memcmp(r->source[at].step, step, 32))) at++;
    if (at == TNI_SCORE_SOURCES) return -1;
    blank(&x, TNI_leaf, (tn_dtype)n->dtype);
    x.source = (int16_t)at;
    int y    = tni_score_append(r, &x);
    if (y < 0 || at < r->sources) return y;
    r->source[at].n = n;
    memcpy(r->source[at].step, step, sizeof r->source[at].step);
    r->sources++;
    return y;
}

// ---- places ------------------------------------------------------------------------------------

// Which axis of a node of a shape each axis of the scores moves along, -1 if along none. False if a
// step is not that of an axis.
static bool find_axes(const tni_score_reader *r, const tni_node *n, const int64_t step[4],
                      int axis[4])
{
    tni_view v = tni_view_whole(n->rank, n->size);
    for (int a = 0; a < 4; a++) {
        axis[a] = -1;
        if (step[a] == 0) continue;
        for (int k = 0; k < v.rank; k++)
            if (v.stride[k] == step[a] && v.size[k] >= r->size[a]) axis[a] = k;
        if (axis[a] < 0) return false;
    }
    return true;
}

// The place in what a view looks at; false if it does not begin there, or cannot be said.
static bool step_through(const tni_score_reader *r, tni_score_place *p)
{
    int axis[4];
    if (p->n->op != TNI_view || p->n->nsrc != 1 || p->n->leaf || p->n->attr.view.offset)
        return false;
    if (!find_axes(r, p->n, p->step, axis)) return false;
    for (int a = 0; a < 4; a++) p->step[a] = axis[a] < 0 ? 0 : p->n->attr.view.stride[axis[a]];
    p->n = p->n->src[0];
    return true;
}

void tni_score_reader_passes(tni_score_reader *r, tni_node *n)
{
    for (int i = 0; i < r->passes; i++)
        if (r->passed[i] == n) return;
    if (r->passes < TNI_READ_PASSED) r->passed[r->passes++] = n;
}

static void pass_pending(tni_score_reader *r, tni_node *n)
{
    if (n->state == TNI_PENDING) tni_score_reader_passes(r, n);
}

void tni_look_through(tni_score_reader *r, tni_score_place *p)
{
    tni_score_place at = *p;
    while (step_through(r, &at)) {
        pass_pending(r, p->n);
        *p = at;
    }
}

tn_tensor *tni_place_tensor(tn_ctx *cx, const tni_score_place *p, const int64_t size[4], bool whole)
{
    tn_tensor *t = tni_wrap_node(cx, p->n);
    tni_view   v = { .rank = 4 };
    int        axis[4];
    if (!t) return NULL;
    tni_view         lay = tni_layout(t);
    tni_score_reader r   = { .size = { size[0], size[1], size[2], size[3] } };
    if (t->view && !find_axes(&r, p->n, p->step, axis)) return NULL;
    v.offset = t->view ? lay.offset : 0;
    for (int a = 0; a < 4; a++) {
        v.stride[a] = !t->view ? p->step[a] : axis[a] < 0 ? 0 : lay.stride[axis[a]];
        v.size[a]   = v.stride[a] || whole ? size[a] : 1;
    }
    return tni_wrap_view(t, &v, NULL, NULL);
}

// ---- nodes -------------------------------------------------------------------------------------

static int read_at(tni_score_reader *r, tni_node *n, const int64_t step[4], int depth);

// A pending map: its operands, then itself. An operand of one element is the same everywhere.
static int read_map(tni_score_reader *r, tni_node *n, const int64_t step[4], int depth)
{
    int src[3];
    if (n->nsrc > 3 || tni_score_operands(n->op) != (int)n->nsrc) return -1;
    for (uint32_t i = 0; i < n->nsrc; i++) {
        src[i] = read_at(r, n->src[i], n->src[i]->rank ? step : nowhere, depth + 1);
        if (src[i] < 0) return -1;
    }
    return emit_map(r, n, src);
}

static int find_known(const tni_score_reader *r, const tni_node *n, const int64_t step[4])
{
    for (int i = 0; i < r->knowns; i++)
        if (r->known[i].place.n == n && !memcmp(r->known[i].place.step, step, 4 * sizeof *step))
            return r->known[i].at;
    return -1;
}

static int read_kind(tni_score_reader *r, tni_node *n, const int64_t step[4], int depth);

// A view of something that can be read is that at another place. If it cannot, the view itself is
// the source, not what it views: a gradient asked for the view finds it.
static int read_view(tni_score_reader *r, tni_node *n, const int64_t step[4], int depth)
{
    tni_score_place p = { n, { step[0], step[1], step[2], step[3] } };
    if (depth >= DEEPEST || !step_through(r, &p)) return -1;
    int at = find_known(r, p.n, p.step);
    if (at < 0) at = read_kind(r, p.n, p.step, depth + 1);
    if (at >= 0) pass_pending(r, p.n);
    return at;
}

static int read_kind(tni_score_reader *r, tni_node *n, const int64_t step[4], int depth)
{
    if (n == r->raw) return emit_raw(r, step);
    if (tni_is_number(n->op)) return emit_number(r, n);
    if (n->op == TNI_iota) return emit_iota(r, n, step);
    if (n->op == TNI_view && !n->leaf) return read_view(r, n, step, depth);
    return n->state == TNI_PENDING && tni_is_map(n->op) ? read_map(r, n, step, depth) : -1;
}

// What cannot be read is a source, and what was appended for it is taken back.
static int read_at(tni_score_reader *r, tni_node *n, const int64_t step[4], int depth)
{
    int count = r->count, sources = r->sources, knowns = r->knowns, passes = r->passes;
    int at = find_known(r, n, step);
    if (at >= 0) return at;
    at = depth < DEEPEST ? read_kind(r, n, step, depth) : -1;
    if (at >= 0) {
        pass_pending(r, n);
    } else {
        r->count = count, r->sources = sources, r->knowns = knowns, r->passes = passes;
        at = emit_source(r, n, step);
    }
    if (at < 0 || r->knowns == TNI_READ_KNOWN) return at;
    r->known[r->knowns].place.n = n;
    memcpy(r->known[r->knowns].place.step, step, 4 * sizeof *step);
    r->known[r->knowns++].at = at;
    return at;
}

int tni_read_node(tni_score_reader *r, tni_node *n, const int64_t step[4])
{
    return read_at(r, n, step, 0);
}

void tni_score_reader_knows(tni_score_reader *r, tn_tensor *x, int at)
{
    tni_node *n = tni_resolve(x, "matmul");
    if (!n || n->rank != 4 || tni_is_number(n->op) || r->knowns == TNI_READ_KNOWN) return;
    r->known[r->knowns].place.n = n;
    tni_score_steps(r, r->known[r->knowns].place.step);
    r->known[r->knowns++].at = at;
}

int tni_read_value(tni_score_reader *r, tn_tensor *x)
{
    int64_t   step[4];
    tni_node *n = tni_resolve(x, "matmul");
    tni_score_steps(r, step);
    return n ? tni_read_node(r, n, n->rank ? step : nowhere) : -1;
}

// ---- trimming ----------------------------------------------------------------------------------

// Backwards what is needed, then forwards the new numbers: operands come before their readers, so a
// number is known when it is asked for.
void tni_score_reader_trim(tni_score_reader *r, int last)
{
    bool need[TNI_SCORE_OPS] = { false };
    int  to[TNI_SCORE_OPS], source[TNI_SCORE_SOURCES], count = 0, sources = 0;
    need[last] = true;
    for (int i = last; i >= 0; i--)
        for (int k = 0; need[i] && k < tni_score_operands(r->op[i].op); k++)
            need[r->op[i].src[k]] = true;
    for (int s = 0; s < r->sources; s++) {
        source[s] = -1;
        for (int i = 0; i <= last; i++)
            if (need[i] && r->op[i].op == TNI_leaf && r->op[i].source == s) source[s] = sources;
        if (source[s] >= 0) r->source[sources++] = r->source[s];
    }
    for (int i = 0; i <= last; i++) {
        if (!need[i]) continue;
        tni_score_op *x = &r->op[i];
        for (int k = 0; k < tni_score_operands(x->op); k++) x->src[k] = (int16_t)to[x->src[k]];
        if (x->op == TNI_leaf) x->source = (int16_t)source[x->source];
        to[i] = count;
        memmove(&r->op[count++], x, sizeof *x);
    }
    r->count   = count;
    r->sources = sources;
}
