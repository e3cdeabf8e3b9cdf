// ai.onnx.ml: what scikit-learn's models are written as, of numbers; strings are refused by name.
//
//   node   compares       true   false        a tree of two nodes that compare, and three leaves
//   0      x[2] <= 0.5    1      2
//   1      leaf                               votes: a leaf gives weights to targets, which are added up over
//   2      x[0] > 3       3      4            all trees, or the least or largest of them is taken
//   3      leaf
//   4      leaf
//
// Of a classifier targets are classes; a file of two classes may have votes for one alone.
//
// Weights are lists in attributes. Trees are walked on the host: what a step reads depends on the
// one before it, and a thousand trees of ten steps take less time than to ask a device for them.
#include "onnx/onnx_ops.h"

#include <math.h>
#include <stdlib.h>

// ---- lists -------------------------------------------------------------------------------------

// The numbers of a list attribute, or of a tensor in one, as f64, on the heap: *n of them, -1 and
// NULL if the node has none.
static double *numbers(tni_onnx_call *c, const char *name, int64_t *n)
{
    static const struct {
        uint32_t number;
        uint8_t  type;
    } kinds[] = { { TNI_ATTR_INTS, TNI_WIRE_VARINT }, { TNI_ATTR_FLOATS, TNI_WIRE_4 } };
    tni_wire a;
    uint64_t bits;
    *n = -1;
    if (!tni_onnx_attribute(c->r->m, c->n, name, &a)) return NULL;
    tni_heap *h     = &c->r->cx->heap;
    tni_wire  held  = tni_onnx_bytes(a, TNI_ATTR_T);
    int64_t   count = 0;
    if (tni_wire_size(held)) {
        tn_tensor *t = tni_onnx_tensor(c->r->m, c->r->host, held);
        double    *v = t ? tni_alloc(h, (size_t)tn_count(t) * 8 + 8) : NULL;
        if (!v || tn_read(t, TN_F64, v, tn_count(t)) != TN_OK) return tni_free(h, v), NULL;
        *n = tn_count(t);
        return v;
    }
    for (int k = 0; k < 2; k++) {
        tni_wire_list l = tni_wire_list_of(a, kinds[k].number, kinds[k].type);
        while (tni_wire_list_next(&l, &bits)) count++;
    }
    double *v = tni_alloc(h, (size_t)count * 8 + 8);
    if (!v) return tni_fail_memory(c->r->cx, c->r->m->op);
    *n = 0;
    for (int k = 0; k < 2; k++) {
        tni_wire_list l = tni_wire_list_of(a, kinds[k].number, kinds[k].type);
        while (tni_wire_list_next(&l, &bits))
            v[(*n)++] = k ? tni_wire_float(bits) : (double)(int64_t)bits;
    }
    return v;
}

// The same as a vector in the call's context, or NULL.
static tn_tensor *vector(tni_onnx_call *c, const char *name, tn_dtype dt)
{
    int64_t    n;
    double    *v = numbers(c, name, &n);
    tn_tensor *t = v ? tn_cast(tn_from(c->cx, TN_F64, TN_SHAPE(n), v), dt) : NULL;
    tni_free(&c->r->cx->heap, v);
    return t;
}

// ---- maps --------------------------------------------------------------------------------------

// ArrayFeatureExtractor(x, places): these places of the last axis.
bool tni_onnx_array_feature_extractor(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0), *at = tni_onnx_in(c, 1);
    if (!x || !at) return false;
    if (tn_rank(x) == 1) x = tn_unsqueeze(x, 0);
    return tni_onnx_out(c, 0, tn_index_select(x, tn_rank(x) - 1, tn_reshape(at, TN_SHAPE(-1))));
}

// Binarizer(x; threshold): 1 above it, else 0.
bool tni_onnx_binarizer(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0);
    return x &&
           tni_onnx_out(c, 0,
                        tn_cast(tn_gt_s(x, tni_onnx_attr_real(c, "threshold", 0)), tn_dtype_of(x)));
}

// Scaler(x; offset, scale): (x - offset) * scale, as f32.
bool tni_onnx_scaler(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0), *offset = vector(c, "offset", TN_F32),
              *scale = vector(c, "scale", TN_F32);
    if (!x) return false;
    x = tn_cast(x, TN_F32);
    if (offset) x = tn_sub(x, offset);
    return tni_onnx_out(c, 0, scale ? tn_mul(x, scale) : x);
}

// Normalizer(x; norm): rows over their largest element, the sum of their absolute values, or their
// length; rows of 0 stay.
bool tni_onnx_normalizer(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0), *n;
    if (!x) return false;
    x = tn_cast(x, TN_F32);
    if (tni_onnx_attr_is(c, "norm", "L1", false)) n = tn_sum_keep(tn_abs(x), -1);
    else if (tni_onnx_attr_is(c, "norm", "L2", false)) n = tn_sqrt(tn_sum_keep(tn_square(x), -1));
    else n = tn_max_keep(x, -1);
    return tni_onnx_out(c, 0, tn_where(tn_eq_s(n, 0), x, tn_div(x, n)));
}

// Imputer(x; replaced_value, imputed_values): what stands for a missing number becomes that of its
// column.
bool tni_onnx_imputer(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0);
    if (!x) return false;
    bool       real = tni_is_float(tn_dtype_of(x));
    tn_tensor *with = vector(c, real ? "imputed_value_floats" : "imputed_value_int64s",
                             tn_dtype_of(x));
    double     what = tni_onnx_attr_real(c, "replaced_value_float", 0);
    if (!with)
        return tni_onnx_refuse(c, "it has no values for elements of %s",
                               tn_dtype_name(tn_dtype_of(x)));
    tn_tensor *hit = !real         ? tn_eq_i64(x, tni_onnx_attr_int(c, "replaced_value_int64", 0))
                     : isnan(what) ? tn_isnan(x)
                                   : tn_eq_s(x, what);
    return tni_onnx_out(c, 0, tn_where(hit, with, x));
}

// OneHotEncoder(x; cats_int64s): an axis more, with a 1 at the category.
bool tni_onnx_one_hot_encoder(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0), *cats = vector(c, "cats_int64s", TN_I64);
    if (!x) return false;
    if (!cats) return tni_onnx_refuse(c, "categories that are strings are not supported");
    return tni_onnx_out(c, 0, tn_cast(tn_eq(tn_unsqueeze(tn_cast(x, TN_I64), -1), cats), TN_F32));
}

// One of an attribute's spellings: as integers, floats or a tensor.
static tn_tensor *either(tni_onnx_call *c, const char *ints, const char *floats, const char *tensor,
                         tn_dtype *dt)
{
    tn_tensor *t;
    tni_wire   a;
    *dt = TN_I64;
    if ((t = vector(c, ints, TN_I64))) return t;
    *dt = TN_F32;
    if ((t = vector(c, floats, TN_F32))) return t;
    if (!tni_onnx_attribute(c->r->m, c->n, tensor, &a)) return NULL;
    tni_wire held = tni_onnx_bytes(a, TNI_ATTR_T);
    if (!tni_onnx_dtype(tni_onnx_int(held, TNI_TENSOR_TYPE, 0), dt)) return NULL;
    return tni_onnx_tensor(c->r->m, c->cx, held);
}

// LabelEncoder(x; keys, values, default): the value beside the key that an element is.
bool tni_onnx_label_encoder(tni_onnx_call *c)
{
    tn_tensor *x = tni_onnx_in(c, 0), *keys, *values;
    tn_dtype   kd, vd, dd;
    tni_wire   a;
    if (!x) return false;
    keys   = either(c, "keys_int64s", "keys_floats", "keys_tensor", &kd);
    values = either(c, "values_int64s", "values_floats", "values_tensor", &vd);
    if (!keys || !values || tn_count(keys) != tn_count(values) || !tn_count(keys))
        return tni_onnx_refuse(c, "keys and values that are strings are not supported");
    tn_tensor *other = tni_onnx_attribute(c->r->m, c->n, "default_tensor", &a)
                           ? either(c, "", "", "default_tensor", &dd)
                       : tni_is_float(vd)
                           ? tn_full(c->cx, vd, TN_0D, tni_onnx_attr_real(c, "default_float", -0.0))
                           : tn_full_i64(c->cx, vd, TN_0D,
                                         tni_onnx_attr_int(c, "default_int64", -1));
    x                = tn_unsqueeze(tn_cast(x, kd), -1);
    tn_tensor *hit   = tn_eq(x, keys);
    if (tni_is_float(kd)) hit = tn_logical_or(hit, tn_logical_and(tn_isnan(x), tn_isnan(keys)));
    tn_tensor *whole = tn_cast(hit, TN_I32), *at = tn_argmax(whole, -1),
              *any = tn_gt_i64(tn_max(whole, -1), 0);
    if (!at || !other) return false;
    int64_t size[TN_MAX_RANK];
    for (int i = 0; i < tn_rank(at); i++) size[i] = tn_size(at, i);
    tn_tensor *y = tn_reshape(tn_index_select(values, 0, tn_reshape(at, TN_SHAPE(-1))), tn_rank(at),
                              size);
    return tni_onnx_out(c, 0, tn_where(any, y, tn_cast(tn_reshape(other, 0, NULL), vd)));
}

// ---- scores ------------------------------------------------------------------------------------

typedef enum { NONE, SOFTMAX, LOGISTIC, SOFTMAX_ZERO, PROBIT } transform;

// By name, or in TreeEnsemble by number.
static transform transform_of(tni_onnx_call *c)
{
    static const char *const names[] = { "NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT" };
    tni_wire                 t       = tni_onnx_attr_text(c, "post_transform");
    if (!tni_wire_size(t)) return (transform)tni_onnx_attr_int(c, "post_transform", NONE);
    for (int i = 0; i < 5; i++)
        if (tni_wire_is(t, names[i])) return (transform)i;
    return NONE;
}

// SOFTMAX_ZERO leaves scores of 0 as they are.
static tn_tensor *transformed(tn_tensor *y, transform how)
{
    switch (how) {
    case SOFTMAX: return tn_softmax(y, -1);
    case LOGISTIC: return tn_sigmoid(y);
    case SOFTMAX_ZERO: {
        tn_tensor *e = tn_where(tn_eq_s(y, 0), y ? tn_zeros_like(y) : NULL,
                                tn_exp(tn_sub(y, tn_max_keep(y, -1))));
        return tn_div(e, tn_sum_keep(e, -1));
    }
    case PROBIT: return tn_mul_s(tn_erfinv(tn_add_s(tn_mul_s(y, 2), -1)), sqrt(2));
    default: return y;
    }
}

// The labels of scores (N, classes), and the scores. Of two classes one may have a score alone, a
// number around 0 or, with share, a part of 1: it is the one there is, or with `second` the second
// of two.
static bool give_classes(tni_onnx_call *c, tn_tensor *y, const char *labels, bool second,
                         bool share)
{
    tn_tensor *label = vector(c, labels, TN_I64), *at;
    transform  how   = transform_of(c);
    if (!y) return false;
    if (!label) return tni_onnx_refuse(c, "labels that are strings are not supported");
    bool one = tn_size(y, 1) == 1;
    if (one || second) at = tn_cast(tn_gt_s(tn_select(y, 1, one ? 0 : 1), share ? 0.5 : 0), TN_I64);
    else at = tn_argmax(y, 1);
    if (one) {
        tn_tensor *other = share && how != LOGISTIC ? tn_rsub_s(y, 1) : tn_neg(y);
        y                = tn_concat(2, (tn_tensor *[]){ other, y }, 1);
    }
    if (!one || how == LOGISTIC) y = transformed(y, how);
    return tni_onnx_out(c, 0, tn_index_select(label, 0, at)) && tni_onnx_out(c, 1, y);
}

// x times rows of coefficients, plus an intercept each: (N, rows).
static tn_tensor *linear_scores(tni_onnx_call *c, int64_t rows)
{
    tn_tensor *x = tni_onnx_in(c, 0), *w = vector(c, "coefficients", TN_F32),
              *b = vector(c, "intercepts", TN_F32);
    if (!x || !w) return NULL;
    if (tn_rank(x) == 1) x = tn_unsqueeze(x, 0);
    if (!rows) rows = tn_count(w) / tn_size(x, 1);
    return tn_linear(tn_cast(x, TN_F32), tn_reshape(w, TN_SHAPE(rows, -1)), b);
}

// LinearRegressor(x; coefficients, intercepts, targets, post_transform).
bool tni_onnx_linear_regressor(tni_onnx_call *c)
{
    return tni_onnx_out(
        c, 0, transformed(linear_scores(c, tni_onnx_attr_int(c, "targets", 1)), transform_of(c)));
}
// LinearClassifier(x; coefficients, intercepts, classlabels_ints, post_transform): labels, scores.
bool tni_onnx_linear_classifier(tni_onnx_call *c)
{
    return give_classes(c, linear_scores(c, 0), "classlabels_ints", false, false);
}

// ---- trees -------------------------------------------------------------------------------------

// A node: with `next` 0 and 1 the nodes, or below 0 -1 - the leaf, that it leads to where its
// comparison is false and true.
typedef struct {
    int32_t feature, next[2];
    uint8_t mode;     // 0 <=, 1 <, 2 >=, 3 >, 4 ==, 5 !=, 6 one of members, 7 none: a leaf
    bool    missing;  // where a NaN goes
    double  value;
    int64_t member;  // of mode 6: where its members begin; they end with a NaN
} tree_node;

// What a leaf gives: some weights, each to a target.
typedef struct {
    int64_t node, target;
    double  weight;
} tree_vote;

typedef struct {
    tree_node *node;
    tree_vote *vote;          // in order of their nodes
    int64_t   *root, *first;  // nodes; of each node its first vote
    double    *members;
    int64_t    nodes, votes, roots, targets;
} forest;

// A number of a list as a place; -1 if it cannot be one.
static int32_t as_place(double v)
{
    return v >= 0 && v < INT32_MAX ? (int32_t)v : -1;
}

// Whether a node's comparison holds.
static bool holds(const forest *f, const tree_node *n, double x)
{
    if (isnan(x)) return n->missing;
    switch (n->mode) {
    case 0: return x <= n->value;
    case 1: return x < n->value;
    case 2: return x >= n->value;
    case 3: return x > n->value;
    case 4: return x == n->value;
    case 5: return x != n->value;
    }
    for (int64_t i = n->member; !isnan(f->members[i]); i++)
        if (f->members[i] == x) return true;
    return false;
}

// Adds what all trees say of a row. how: 0 mean, 1 sum, 2 least, 3 largest. A walk of more steps
// than there are nodes goes round.
static bool walk(const forest *f, const double *x, int64_t features, int how, double *y)
{
    for (int64_t t = 0; t < f->targets; t++) y[t] = how == 2 ? INFINITY : how == 3 ? -INFINITY : 0;
    for (int64_t r = 0; r < f->roots; r++) {
        int64_t at = f->root[r], steps = 0;
        for (; f->node[at].mode < 7; steps++) {
            const tree_node *n = &f->node[at];
            if (n->feature < 0 || n->feature >= features || steps > f->nodes) return false;
            at = n->next[holds(f, n, x[n->feature])];
            if (at < 0 || at >= f->nodes) return false;
        }
        for (int64_t v = f->first[at]; v < f->first[at + 1]; v++) {
            double w = f->vote[v].weight, *to = &y[f->vote[v].target];
            *to = how == 2 ? fmin(*to, w) : how == 3 ? fmax(*to, w) : *to + w;
        }
    }
    for (int64_t t = 0; how == 0 && t < f->targets; t++) y[t] /= (double)f->roots;
    return true;
}

// By the node that they are of.
static int compare_votes(const void *a, const void *b)
{
    const tree_vote *x = a, *y = b;
    return (x->node > y->node) - (x->node < y->node);
}

// Sorts votes by node and says where those of each begin; false if one is of no node or target.
static bool index_votes(forest *f)
{
    qsort(f->vote, (size_t)f->votes, sizeof *f->vote, compare_votes);
    for (int64_t i = 0; i <= f->nodes; i++) f->first[i] = f->votes;
    for (int64_t v = f->votes - 1; v >= 0; v--) {
        if (f->vote[v].node < 0 || f->vote[v].node >= f->nodes || f->vote[v].target < 0 ||
            f->vote[v].target >= f->targets)
            return false;
        f->first[f->vote[v].node] = v;
    }
    for (int64_t i = f->nodes - 1; i >= 0; i--)
        if (f->first[i] == f->votes) f->first[i] = f->first[i + 1];
    return true;
}

// Takes memory for a forest of as many nodes and votes as it says.
// There are at most as many roots as nodes. What is taken is freed by free_forest, also if it is
// not all.
static bool make_forest(tni_onnx_call *c, forest *f)
{
    tni_heap *h = &c->r->cx->heap;
    f->node     = tni_zalloc(h, (size_t)(f->nodes + 1) * sizeof *f->node);
    f->vote     = tni_zalloc(h, (size_t)(f->votes + 1) * sizeof *f->vote);
    f->root     = tni_zalloc(h, (size_t)(f->nodes + 1) * sizeof *f->root);
    f->first    = tni_zalloc(h, (size_t)(f->nodes + 2) * sizeof *f->first);
    return (f->node && f->vote && f->root && f->first) ||
           tni_fail_memory(c->r->cx, c->r->m->op) != NULL;
}

// Every part may be missing.
static void free_forest(tni_onnx_call *c, forest *f)
{
    tni_heap *h = &c->r->cx->heap;
    tni_free(h, f->node);
    tni_free(h, f->vote);
    tni_free(h, f->root);
    tni_free(h, f->first);
    tni_free(h, f->members);
}

// The scores of all rows: (N, targets), computed on the host in f64. base: added to each target.
static tn_tensor *forest_scores(tni_onnx_call *c, const forest *f, int how, const double *base,
                                int64_t bases)
{
    tn_tensor *x = tni_onnx_in(c, 0), *y = NULL;
    if (!x || tn_rank(x) < 1) return NULL;
    if (tn_rank(x) == 1) x = tn_unsqueeze(x, 0);
    int64_t   rows = tn_size(x, 0), features = tn_size(x, 1), count = tn_count(x);
    tni_heap *h  = &c->r->cx->heap;
    double   *in = tni_alloc(h, (size_t)(count + rows * f->targets) * 8 + 8),
           *out  = in ? in + count : NULL;
    bool ok      = in && tn_read(x, TN_F64, in, count) == TN_OK;
    for (int64_t i = 0; ok && i < rows; i++) {
        ok = walk(f, in + i * features, features, how, out + i * f->targets) ||
             tni_onnx_refuse(c,
                             "its trees lead nowhere, or ask for a feature that x %s does not have",
                             tni_shape_of(x).s);
        for (int64_t t = 0; t < bases && t < f->targets; t++) out[i * f->targets + t] += base[t];
    }
    if (ok)
        y = tn_cast(tn_from(c->cx, TN_F64, TN_SHAPE(rows, f->targets), out),
                    tn_dtype_of(x) == TN_F64 ? TN_F64 : TN_F32);
    tni_free(h, in);
    return y;
}

// Lists that describe nodes or votes, side by side: `least` of them must be there, all as long as
// the first. Frees none.
static bool read_lists(tni_onnx_call *c, int n, int least, const char *const *names, double **v,
                       int64_t *count)
{
    bool ok = true;
    for (int i = 0; i < n; i++) {
        int64_t have;
        v[i] = numbers(c, names[i], &have);
        if (i == 0) *count = have;
        ok = ok && (have == *count || (have < 0 && i >= least));
        if (have < 0) v[i] = NULL;
    }
    return (ok && *count >= 0) || tni_onnx_refuse(c, "its lists are not of one length");
}

// The mode of each node, whose names are strings.
static void read_modes(tni_onnx_call *c, forest *f)
{
    static const char *const modes[] = { "BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE",
                                         "BRANCH_GT",  "BRANCH_EQ", "BRANCH_NEQ" };
    tni_wire                 a;
    tni_wire_field           w;
    int64_t                  i = 0;
    for (int64_t k = 0; k < f->nodes; k++) f->node[k].mode = 7;
    if (!tni_onnx_attribute(c->r->m, c->n, "nodes_modes", &a)) return;
    while (i < f->nodes && tni_wire_next(&a, &w) > 0) {
        if (w.number != TNI_ATTR_STRINGS || w.type != TNI_WIRE_BYTES) continue;
        for (int m = 0; m < 6; m++)
            if (tni_wire_is(w.bytes, modes[m])) f->node[i].mode = (uint8_t)m;
        i++;
    }
}

// The place of a node that a tree's id and its own id name: ids of a tree's nodes count from 0, in
// order. *last: the tree that was found before, at which the search begins.
static int64_t place_of(const forest *f, const double *tree, double id, double node, int64_t *last)
{
    for (int64_t k = 0; k < f->roots; k++) {
        int64_t r = (*last + k) % f->roots;
        if (tree[f->root[r]] != id) continue;
        *last = r;
        return as_place((double)f->root[r] + node);
    }
    return -1;
}

// Trees as TreeEnsembleRegressor and TreeEnsembleClassifier have them. kind: "target" or "class",
// which their votes are named by.
static bool read_trees(tni_onnx_call *c, const char *kind, forest *f)
{
    static const char *const names[] = { "nodes_treeids",
                                         "nodes_nodeids",
                                         "nodes_featureids",
                                         "nodes_falsenodeids",
                                         "nodes_truenodeids",
                                         "nodes_values",
                                         "nodes_missing_value_tracks_true",
                                         "nodes_values_as_tensor" };
    char                     text[5][40];
    const char *votes[5] = { text[0], text[1], text[2], text[3], text[4] }, *const parts[] = {
        "treeids", "nodeids", "ids", "weights", "weights_as_tensor"
    };
    double *n[8], *v[5];
    int64_t last = 0;
    for (int i = 0; i < 5; i++) snprintf(text[i], sizeof text[i], "%s_%s", kind, parts[i]);
    bool ok = read_lists(c, 8, 5, names, n, &f->nodes);
    ok      = read_lists(c, 5, 3, votes, v, &f->votes) && ok;
    ok      = ok && f->nodes < INT32_MAX && make_forest(c, f);
    if (ok) read_modes(c, f);
    for (int64_t i = 0; ok && i < f->nodes; i++)
        if (!i || n[0][i] != n[0][i - 1]) f->root[f->roots++] = i;
    for (int64_t i = 0, r = -1; ok && i < f->nodes; i++) {
        r += r + 1 < f->roots && f->root[r + 1] == i;
        int64_t at = f->root[r];
        ok = n[1][i] == (double)(i - at) || tni_onnx_refuse(c, "nodes of a tree are not in order");
        f->node[i].feature = as_place(n[2][i]);
        for (int k = 0; k < 2; k++) f->node[i].next[k] = as_place((double)at + n[3 + k][i]);
        f->node[i].value   = n[5] ? n[5][i] : n[7] ? n[7][i] : 0;
        f->node[i].missing = n[6] && n[6][i] != 0;
    }
    for (int64_t i = 0; ok && i < f->votes; i++)
        f->vote[i] = (tree_vote){ place_of(f, n[0], v[0][i], v[1][i], &last), as_place(v[2][i]),
                                  v[3]   ? v[3][i]
                                  : v[4] ? v[4][i]
                                         : 0 };
    for (int i = 0; i < 8; i++) tni_free(&c->r->cx->heap, n[i]);
    for (int i = 0; i < 5; i++) tni_free(&c->r->cx->heap, v[i]);
    return ok;
}

// What is added to every row: floats, or a tensor.
static double *base_values(tni_onnx_call *c, int64_t *n)
{
    double *v = numbers(c, "base_values", n);
    return v ? v : numbers(c, "base_values_as_tensor", n);
}

// TreeEnsembleRegressor(x; nodes_*, target_*, n_targets, aggregate_function, base_values,
// post_transform).
bool tni_onnx_tree_ensemble_regressor(tni_onnx_call *c)
{
    static const char *const how[] = { "AVERAGE", "SUM", "MIN", "MAX" };
    forest                   f     = { .targets = tni_onnx_attr_int(c, "n_targets", 1) };
    int                      sum   = 1;
    int64_t                  n;
    double                  *base = base_values(c, &n);
    tn_tensor               *y    = NULL;
    for (int i = 0; i < 4; i++)
        if (tni_onnx_attr_is(c, "aggregate_function", how[i], false)) sum = i;
    if (f.targets > 0 && f.targets < 1 << 20 && read_trees(c, "target", &f))
        y = index_votes(&f) ? forest_scores(c, &f, sum, base, n)
                            : (tni_onnx_refuse(c, "its targets are out of range"), NULL);
    free_forest(c, &f);
    tni_free(&c->r->cx->heap, base);
    return tni_onnx_out(c, 0, transformed(y, transform_of(c)));
}

// TreeEnsembleClassifier(x; nodes_*, class_*, classlabels_int64s, base_values, post_transform):
// labels, scores. Where all votes are for the first of two classes, there is one score, of the
// second: a part of 1 if no weight is below 0.
bool tni_onnx_tree_ensemble_classifier(tni_onnx_call *c)
{
    forest     f = { .targets = 1 };
    int64_t    n, least = 0, most = 0;
    double    *base = base_values(c, &n);
    tn_tensor *y = NULL, *label = vector(c, "classlabels_int64s", TN_I64);
    bool       share = true, single = false;
    if (!label) tni_onnx_refuse(c, "labels that are strings are not supported");
    if (label && read_trees(c, "class", &f)) {
        for (int64_t i = 0; i < f.votes; i++) {
            least = !i || f.vote[i].target < least ? f.vote[i].target : least;
            most  = f.vote[i].target > most ? f.vote[i].target : most;
            share = share && f.vote[i].weight >= 0;
        }
        single    = tn_count(label) == 2 && least == most;
        f.targets = single && !most ? 1 : tn_count(label);
        if (index_votes(&f)) y = forest_scores(c, &f, 1, base, n);
        else tni_onnx_refuse(c, "its classes are out of range");
    }
    free_forest(c, &f);
    tni_free(&c->r->cx->heap, base);
    return y && give_classes(c, y, "classlabels_int64s", single, share);
}

// The nodes of TreeEnsemble, of lists n, with leaves behind them as nodes of their own; false:
// reported.
static bool fill_nodes(tni_onnx_call *c, forest *f, double *const *n, int64_t inner,
                       int64_t members)
{
    int64_t next = 0;
    for (int64_t i = 0; i < inner; i++) {
        tree_node *t = &f->node[i];
        *t           = (tree_node){ .feature = as_place(n[0][i]),
                                    .value   = n[5][i],
                                    .mode    = (uint8_t)(as_place(n[6][i]) & 7),
                                    .missing = n[7] && n[7][i] != 0 };
        for (int k = 0; k < 2; k++)
            t->next[k] = as_place(n[1 + k][i] + (n[3 + k][i] != 0 ? (double)inner : 0));
        if (t->mode != 6) continue;
        t->member = next;
        while (next < members && !isnan(f->members[next])) next++;
        if (next++ >= members) return tni_onnx_refuse(c, "members of a node are missing");
    }
    for (int64_t i = inner; i < f->nodes; i++) f->node[i].mode = 7;
    return true;
}

// TreeEnsemble(x; nodes_*, leaf_*, tree_roots, n_targets, aggregate_function, post_transform), of
// ai.onnx.ml 5: leaves have lists of their own.
bool tni_onnx_tree_ensemble(tni_onnx_call *c)
{
    static const char *const        names[]  = { "nodes_featureids",  "nodes_falsenodeids",
                                                 "nodes_truenodeids", "nodes_falseleafs",
                                                 "nodes_trueleafs",   "nodes_splits",
                                                 "nodes_modes",       "nodes_missing_value_tracks_true" },
                             *const leaves[] = { "leaf_targetids", "leaf_weights" };
    forest                          f        = { .targets = tni_onnx_attr_int(c, "n_targets", 1) };
    double                         *n[8], *v[2], *root = numbers(c, "tree_roots", &f.roots);
    int64_t                         inner = 0, members = 0;
    tn_tensor                      *y = NULL;
    f.members                         = numbers(c, "membership_values", &members);
    bool ok                           = read_lists(c, 8, 7, names, n, &inner);
    ok                                = read_lists(c, 2, 2, leaves, v, &f.votes) && ok;
    f.nodes                           = ok ? inner + f.votes : 0;
    ok = ok && root && f.roots <= f.nodes && f.nodes < INT32_MAX && f.targets > 0 &&
         f.targets < 1 << 20 && make_forest(c, &f) && fill_nodes(c, &f, n, inner, members);
    for (int64_t i = 0; ok && i < f.votes; i++)
        f.vote[i] = (tree_vote){ inner + i, as_place(v[0][i]), v[1][i] };
    for (int64_t i = 0; ok && i < f.roots; i++) {
        f.root[i] = as_place(root[i]);
        ok = (f.root[i] >= 0 && f.root[i] < f.nodes) || tni_onnx_refuse(c, "a root is no node");
    }
    if (ok && index_votes(&f))
        y = forest_scores(c, &f, (int)tni_onnx_attr_int(c, "aggregate_function", 1), NULL, 0);
    for (int i = 0; i < 8; i++) tni_free(&c->r->cx->heap, n[i]);
    for (int i = 0; i < 2; i++) tni_free(&c->r->cx->heap, v[i]);
    tni_free(&c->r->cx->heap, root);
    free_forest(c, &f);
    return tni_onnx_out(c, 0, transformed(y, transform_of(c)));
}
