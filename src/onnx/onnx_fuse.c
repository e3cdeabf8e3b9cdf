// Nodes that become one, which are found once for a model:
//
//   Conv, BatchNormalization      the norm's scale goes into the convolution's weights, its shift into the bias
//   MatMul(x, q), MatMul(x, k)    one product x [q k], of which each node takes its columns: so a GPU is filled by
//                                 products that are small alone, and x is read once
//
// Weights that are made so are kept from run to run in the place of those of the file, and only
// where these stay as they are: the weights of a layer do not. Maps, and transposes, which are
// views, need nothing here: plans fuse them.
#include "engine/engine.h"
#include "onnx/onnx_ops.h"

// A product among those of one input: the next and the first of them, -1 if there is none, and its
// columns of the joined one. The first also says whether they are joined: 0 not known yet, 1 they
// are, -1 they cannot be.
typedef struct {
    int32_t next, first;
    int64_t start, columns;
    int     joined;
} product;

// reader: by value, the node of the model's graph that alone reads it; -1 if there is none, or
// several.
struct tni_onnx_fusions {
    int32_t *reader;
    product *product;  // by node
};

static bool is_op(const tni_onnx_node *n, bool (*run)(tni_onnx_call *c))
{
    return n->row >= 0 && tni_onnx_op_at(n->row)->run == run;
}

static bool is_product(const tni_onnx_node *n)
{
    return (is_op(n, tni_onnx_mat_mul) || is_op(n, tni_onnx_gemm)) && n->nin >= 2 && n->nout == 1;
}

// ---- finding -----------------------------------------------------------------------------------

void tni_onnx_fusions_free(tni_onnx_run *r)
{
    if (!r->fusions) return;  // as of a model that could not be read, which has no context yet
    tni_heap *h = &r->cx->heap;
    tni_free(h, r->fusions->reader);
    tni_free(h, r->fusions->product);
    tni_free(h, r->fusions);
    r->fusions = NULL;
}

// Links the products of each value, in order of nodes; last: by value, the newest of them.
static void link_products(const tni_onnx_model *m, tni_onnx_fusions *f, int32_t *last)
{
    const tni_onnx_graph *g = &m->graph[0];
    for (uint32_t i = g->first; i < g->first + g->count; i++) {
        int32_t x = is_product(&m->node[i]) ? m->use[m->node[i].use] : TNI_ONNX_NONE;
        if (x < 0 || tni_wire_size(m->value[x].init)) continue;
        if (last[x] >= 0) f->product[last[x]].next = (int32_t)i;
        f->product[i].first = last[x] >= 0 ? f->product[last[x]].first : (int32_t)i;
        last[x]             = (int32_t)i;
    }
}

// Nodes of other graphs run under conditions of their own, and are left alone. NULL when memory is
// out: then nothing is fused.
static tni_onnx_fusions *fusions(tni_onnx_run *r)
{
    const tni_onnx_model *m = r->m;
    const tni_onnx_graph *g = &m->graph[0];
    tni_heap             *h = &r->cx->heap;
    if (r->fusions || !(r->fusions = tni_zalloc(h, sizeof *r->fusions))) return r->fusions;
    tni_onnx_fusions *f = r->fusions;
    f->reader           = tni_alloc(h, m->values * sizeof *f->reader + 1);
    f->product          = tni_alloc(h, m->nodes * sizeof *f->product + 1);
    if (!f->reader || !f->product) return tni_onnx_fusions_free(r), NULL;
    for (size_t i = 0; i < m->nodes; i++) f->product[i] = (product){ .next = -1, .first = -1 };
    for (size_t i = 0; i < m->values; i++) f->reader[i] = -1;
    link_products(m, f, f->reader);
    for (size_t i = 0; i < m->values; i++) f->reader[i] = -1;
    for (uint32_t i = g->first; i < g->first + g->count; i++)
        for (int k = 0; k < m->node[i].nin; k++) {
            int32_t v = m->use[m->node[i].use + (uint32_t)k];
            if (v >= 0 && m->value[v].readers == 1) f->reader[v] = (int32_t)i;
        }
    return f;
}

// The call of a node of the model's graph.
static tni_onnx_call call_at(tni_onnx_run *r, int32_t node)
{
    const tni_onnx_node *n = &r->m->node[node];
    return (tni_onnx_call){ r, n, r->cx, n->opset, n->nin, n->nout };
}

// ---- batch norms -------------------------------------------------------------------------------

// Whether the node behind is a batch norm by numbers of the file, which nothing else stands
// between. *norm: its call.
static bool norm_behind(tni_onnx_call *c, tni_onnx_call *norm)
{
    tni_onnx_fusions *f = c->cx == c->r->cx ? fusions(c->r) : NULL;
    int32_t           v = c->r->m->use[c->n->use + (uint32_t)c->nin];
    if (!f || c->r->training || v < 0 || f->reader[v] < 0 || c->r->value[v].asked) return false;
    *norm = call_at(c->r, f->reader[v]);
    return is_op(norm->n, tni_onnx_batch_normalization) && norm->nin == 5 &&
           !tni_onnx_attr_int(norm, "training_mode", 0) && tni_onnx_attr_int(norm, "spatial", 1) &&
           tni_onnx_is_fixed(norm, 1, 5) && tni_onnx_is_fixed(c, 1, 3) &&
           !tni_onnx_is_fixed(c, 0, 1);  // what is kept may be asked for later
}

// Computes weights and bias, in f32 whatever the model computes in: (w x + b - mean) s + shift,
// where s is scale / sqrt(var + eps). False if they could not be kept.
static bool fold_norm(tni_onnx_call *c, tni_onnx_call *norm)
{
    double     eps   = tni_onnx_attr_real(norm, "epsilon", 1e-5);
    tn_scope  *scope = tn_begin(c->cx);
    tn_tensor *w = tni_onnx_in(c, 1), *b = tni_onnx_in(c, 2), *p[4];
    tn_dtype   dt = w ? tn_dtype_of(w) : TN_F32;
    int64_t    size[TN_MAX_RANK];
    for (int i = 0; i < 4; i++) p[i] = tn_cast(tni_onnx_in(norm, 1 + i), TN_F32);
    tn_tensor *s     = tn_mul(p[0], tn_rsqrt(tn_add_s(p[3], eps)));
    tn_tensor *shift = tn_neg(p[2]);
    if (b) shift = tn_add(tn_cast(b, TN_F32), shift);
    shift = tn_add(tn_mul(shift, s), p[1]);
    for (int i = 0; w && i < tn_rank(w); i++) size[i] = i ? 1 : tn_size(w, 0);
    bool       fits   = w && s && tn_rank(s) == 1 && tn_size(s, 0) == tn_size(w, 0);
    tn_tensor *scaled = fits ? tn_mul(tn_cast(w, TN_F32), tn_reshape(s, tn_rank(w), size)) : NULL;
    if (scaled) {
        tni_onnx_keep(c, 0, tn_cast(scaled, dt));
        tni_onnx_keep(c, 1, tn_cast(shift, dt));
    }
    tn_end(scope);
    bool kept = tni_onnx_kept(c, 0) && tni_onnx_kept(c, 1);
    if (kept) tni_onnx_give_up(c, 1);
    return kept;
}

// The norm's node then finds that its input is its output.
bool tni_onnx_conv_with_norm(tni_onnx_call *c)
{
    tni_onnx_call norm;
    if (!norm_behind(c, &norm)) return false;
    if (!(tni_onnx_kept(c, 0) && tni_onnx_kept(c, 1)) && !fold_norm(c, &norm)) return false;
    tn_tensor *y = tni_onnx_convolve(c, tni_onnx_in(c, 0), tni_onnx_kept(c, 0),
                                     tni_onnx_kept(c, 1));
    if (!tni_onnx_out(c, 0, y)) return false;
    c->r->value[c->r->m->use[c->n->use + (uint32_t)c->nin]].normed = norm.n;
    return true;
}

// ---- products of one input ---------------------------------------------------------------------

// What a product must be like to be joined with others of its input: a plain one with a matrix of
// the file.
static bool is_joinable(tni_onnx_call *c)
{
    bool             gemm = is_op(c->n, tni_onnx_gemm);
    tni_onnx_operand a, b;
    if (!tni_onnx_is_fixed(c, 1, 2)) return false;
    if (tni_onnx_is_byte_matmul(c, gemm && tni_onnx_attr_int(c, "transB", 0), &a, &b)) return false;
    if (!gemm) return true;
    return tni_onnx_attr_real(c, "alpha", 1) == 1 && !tni_onnx_attr_int(c, "transA", 0);
}

// The matrix of a product as (K, N); NULL if it is none of floats.
static tn_tensor *matrix_of(tni_onnx_call *c)
{
    bool       turned = is_op(c->n, tni_onnx_gemm) && tni_onnx_attr_int(c, "transB", 0);
    tn_tensor *w      = tni_onnx_in(c, 1);
    if (!w || tn_rank(w) != 2 || !tni_is_float(tn_dtype_of(w))) return NULL;
    return turned ? tn_transpose(w, 0, 1) : w;
}

enum { MOST_JOINED = 8 };

// Puts the matrices of the products from node `first` on side by side, and keeps them with that
// node. False if there is but one, or if they do not fit or could not be kept.
static bool join_weights(tni_onnx_run *r, int32_t first)
{
    tn_tensor    *w[MOST_JOINED];
    tni_onnx_call c[MOST_JOINED];
    product      *p     = r->fusions->product;
    int64_t       start = 0;
    int           n     = 0;
    bool          fits  = p[first].next >= 0;
    tn_scope     *scope = tn_begin(r->cx);
    for (int32_t i = first; fits && i >= 0; i = p[i].next, n++) {
        if (!(fits = n < MOST_JOINED)) break;
        c[n] = call_at(r, i);
        w[n] = is_joinable(&c[n]) ? matrix_of(&c[n]) : NULL;
        fits = w[n] && tn_size(w[n], 0) == tn_size(w[0], 0) &&
               tn_dtype_of(w[n]) == tn_dtype_of(w[0]);
        p[i].start   = start;
        p[i].columns = fits ? tn_size(w[n], 1) : 0;
        start += p[i].columns;
    }
    if (fits) tni_onnx_keep(&c[0], 0, tn_concat(n, w, 1));
    tn_end(scope);
    fits = fits && tni_onnx_kept(&c[0], 0);
    for (int i = 0; fits && i < n; i++) tni_onnx_give_up(&c[i], 1);
    return fits;
}

// Whether all matrices that x is multiplied with are known: in the first run those that are
// computed of weights may not be yet.
static bool are_known(tni_onnx_run *r, int32_t first)
{
    for (int32_t i = first; i >= 0; i = r->fusions->product[i].next) {
        int32_t               v = r->m->use[r->m->node[i].use + 1];
        const tni_onnx_value *w = v < 0 ? NULL : &r->value[v];
        if (w && !w->fixed && !w->t && !w->host && !w->dequantize) return false;
    }
    return true;
}

// Of one row on a processor each weight is read once, in strips (ops_product.c), which is as fast
// without joining.
static bool is_worth_joining(tni_onnx_call *c, tn_tensor *x)
{
    bool one = tn_rank(x) && tn_count(x) == tn_size(x, -1);
    return c->cx == c->r->cx && !c->r->training && c->cx->autocast == TN_F32 && tn_rank(x) &&
           !(one && c->cx->engine->device->memory->host);
}

// The joined product is computed by the first node that asks, and stays with x until the run ends.
tn_tensor *tni_onnx_joined_product(tni_onnx_call *c, tn_tensor *x)
{
    tni_onnx_fusions *f    = is_worth_joining(c, x) ? fusions(c->r) : NULL;
    product          *own  = f ? &f->product[c->n - c->r->m->node] : NULL, *lead;
    tni_onnx_value   *from = &c->r->value[c->r->m->use[c->n->use]];
    if (!own || own->first < 0) return NULL;
    lead = &f->product[own->first];
    if (!lead->joined && are_known(c->r, own->first))
        lead->joined = join_weights(c->r, own->first) ? 1 : -1;
    if (lead->joined <= 0) return NULL;
    tni_onnx_call first = call_at(c->r, own->first);
    tn_tensor    *w     = tni_onnx_kept(&first, 0);
    // A copy of the value, as an Identity makes it, has other products.
    if (from->product_of != first.n) from->product = NULL;
    from->product_of = first.n;
    if (!from->product && tn_size(x, -1) == tn_size(w, 0) && tn_dtype_of(x) == tn_dtype_of(w))
        from->product = tn_matmul(x, w);
    return from->product ? tn_slice(from->product, -1, own->start, own->start + own->columns, 1)
                         : NULL;
}
