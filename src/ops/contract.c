// Sums of products over any axes: einsum, and tensordot, outer, kron and their kin.
//
// Einsum gives each axis a label: a letter, or a place of the ellipsis counted from the right. Two
// operands at a time become one batched product of matrices,
//
//     "bhqd,bhkd->bhqk"   labels of both that are kept: b, h   the batch
//                         of both that are summed:      d      the inner axis
//                         of one alone:                 q, k   rows and columns
//
// or, where nothing is summed, a product by elements. Of three and more, the pair whose product is
// smallest is multiplied first.
#include "ops/composite.h"

#include <string.h>

enum { LABELS = 52 + TN_MAX_RANK, MOST = 16 };

// One operand: its tensor, and the label of each of its axes.
typedef struct {
    tn_tensor *x;
    int        rank;
    int        label[TN_MAX_RANK];
} term;

typedef struct {
    tn_ctx     *cx;
    const char *equation;
    int64_t     size[LABELS];  // of each label; -1: no operand has it
    int         rank;          // of the result, and its labels
    int         out[LABELS];
    int         n;
    term        at[MOST];
} sum_of_products;

static uint64_t labels_of(const term *t)
{
    uint64_t m = 0;
    for (int i = 0; i < t->rank; i++) m |= (uint64_t)1 << t->label[i];
    return m;
}

static bool has(uint64_t labels, int label)
{
    return labels >> label & 1;
}

// ---- reading the equation ----------------------------------------------------------------------

static bool refuse(const sum_of_products *e, const char *why)
{
    return tni_refuse(e->cx, TN_EARG, "einsum: \"%s\": %s", e->equation, why);
}

// Reads the labels up to a comma, an arrow or the end. `hidden` is the number of axes that an
// ellipsis stands for; -1: there is none. Returns the number of labels, -1 on error.
static int read_labels(const sum_of_products *e, const char **at, int hidden, int *label, int room)
{
    int n = 0;
    for (const char *p = *at;; p++) {
        int first = n;
        if (*p == ' ') continue;
        if (!*p || *p == ',' || *p == '-') {
            *at = p;
            return n;
        }
        if (!strncmp(p, "...", 3)) {
            if (hidden < 0) return refuse(e, "one ellipsis for each operand"), -1;
            for (int i = hidden; i-- > 0 && n < room;) label[n++] = 52 + i;
            hidden = -1;
            p += 2;
        } else if (*p >= 'A' && *p <= 'Z' && n < room) label[n++] = *p - 'A';
        else if (*p >= 'a' && *p <= 'z' && n < room) label[n++] = *p - 'a' + 26;
        else if (n < room) return refuse(e, "labels are letters and ..."), -1;
        if (n == room && first == n) return refuse(e, "an operand has more labels than axes"), -1;
    }
}

// How many letters a term has, and whether it has an ellipsis.
static int count_letters(const char *p, bool *dots)
{
    int n = 0;
    for (*dots = false; *p && *p != ',' && *p != '-'; p++) {
        *dots |= *p == '.';
        n += *p != '.' && *p != ' ';
    }
    return n;
}

// One operand and its labels; sizes of equal labels agree, or one of them is 1.
static bool read_term(sum_of_products *e, const char **at, term *t)
{
    bool dots;
    int  letters = count_letters(*at, &dots), rank = tn_rank(t->x);
    if (letters > rank || (letters < rank && !dots))
        return tni_refuse(e->cx, TN_ESHAPE, "einsum: \"%s\": an operand %s has %d labels",
                          e->equation, tni_shape_of(t->x).s, letters);
    t->rank = read_labels(e, at, dots ? rank - letters : 0, t->label, TN_MAX_RANK);
    if (t->rank < 0) return false;
    for (int i = 0; i < t->rank; i++) {
        int64_t n = tn_size(t->x, i), *size = &e->size[t->label[i]];
        if (*size >= 0 && *size != 1 && n != 1 && *size != n)
            return tni_refuse(e->cx, TN_ESHAPE,
                              "einsum: \"%s\": an axis has %lld and, in %s, %lld elements",
                              e->equation, (long long)*size, tni_shape_of(t->x).s, (long long)n);
        if (*size < 0 || *size == 1) *size = n;
    }
    return true;
}

// Without an arrow: the axes of the ellipsis, then the letters that occur once, in order.
static void implied_labels(sum_of_products *e, int hidden)
{
    int count[LABELS] = { 0 };
    for (int i = 0; i < e->n; i++)
        for (int k = 0; k < e->at[i].rank; k++) count[e->at[i].label[k]]++;
    for (int i = hidden; i-- > 0;) e->out[e->rank++] = 52 + i;
    for (int i = 0; i < 52; i++)
        if (count[i] == 1) e->out[e->rank++] = i;
}

static bool read_result(sum_of_products *e, const char *at, int hidden)
{
    uint64_t seen = 0, known = 0;
    e->rank = read_labels(e, &at, hidden, e->out, LABELS);
    if (e->rank < 0) return false;
    for (int i = 0; i < e->n; i++) known |= labels_of(&e->at[i]);
    if (*at) return refuse(e, "one arrow, and behind it no comma");
    for (int i = 0; i < e->rank; i++) {
        if (has(seen, e->out[i])) return refuse(e, "the result names an axis twice");
        if (!has(known, e->out[i])) return refuse(e, "the result names an axis of no operand");
        seen |= (uint64_t)1 << e->out[i];
    }
    return true;
}

// Terms are separated by commas; the result, if there is one, follows an arrow.
static bool read_equation(sum_of_products *e, int n, tn_tensor *const *x)
{
    const char *at     = e->equation;
    int         hidden = 0;
    for (int i = 0; i < LABELS; i++) e->size[i] = -1;
    for (e->n = 0; e->n < n; e->n++) {
        term *t = &e->at[e->n];
        t->x    = x[e->n];
        if (e->n && *at++ != ',') return refuse(e, "there are more operands than terms");
        if (!read_term(e, &at, t)) return false;
        int more = 0;
        for (int i = 0; i < t->rank; i++) more += t->label[i] >= 52;
        if (more > hidden) hidden = more;
    }
    if (!*at) implied_labels(e, hidden);
    else if (strncmp(at, "->", 2)) return refuse(e, "there are more terms than operands");
    else if (!read_result(e, at + 2, hidden)) return false;
    return e->rank <= TN_MAX_RANK || refuse(e, "the result has too many axes");
}

// ---- multiplying -------------------------------------------------------------------------------

static void drop_axis(term *t, int axis)
{
    memmove(t->label + axis, t->label + axis + 1, (size_t)(--t->rank - axis) * sizeof *t->label);
}

// A label that occurs twice is a diagonal; an axis of one element where others have more of it is
// left out, since products repeat it.
static void settle(const sum_of_products *e, term *t)
{
    for (int i = 0; i < t->rank; i++)
        for (int k = i + 1; k < t->rank; k++) {
            if (t->label[i] != t->label[k]) continue;
            int label = t->label[i];
            t->x      = tn_diagonal(t->x, 0, i, k);
            drop_axis(t, k);
            drop_axis(t, i);
            t->label[t->rank++] = label;
            i                   = -1;  // the axes have moved: from the start
            break;
        }
    for (int i = t->rank; i-- > 0 && t->x;)
        if (tn_size(t->x, i) != e->size[t->label[i]]) {
            t->x = tn_squeeze(t->x, i);
            drop_axis(t, i);
        }
}

// The term summed over the labels that are not kept.
static void sum_out(term *t, uint64_t keep)
{
    int axes[TN_MAX_RANK], n = 0;
    for (int i = 0; i < t->rank; i++)
        if (!has(keep, t->label[i])) axes[n++] = i;
    if (n && t->x) {
        tn_dtype dt = tn_dtype_of(t->x);
        t->x        = tn_cast(tn_sum_axes(t->x, n, axes, false), dt);
    }
    for (int i = n; i-- > 0;) drop_axis(t, axes[i]);
}

// t with its axes in the order of these labels.
static tn_tensor *arranged(const term *t, int n, const int *label)
{
    int axes[TN_MAX_RANK];
    for (int i = 0; i < n; i++)
        for (int k = 0; k < t->rank; k++)
            if (t->label[k] == label[i]) axes[i] = k;
    return n ? tn_permute(t->x, n, axes) : t->x;
}

static int64_t elements(const sum_of_products *e, int n, const int *label)
{
    int64_t count = 1;
    for (int i = 0; i < n; i++) count *= e->size[label[i]];
    return count;
}

// Appends the labels of t that are, or are not, in these.
static int add_labels(int *to, int n, const term *t, uint64_t labels, bool in)
{
    for (int i = 0; i < t->rank; i++)
        if (has(labels, t->label[i]) == in) to[n++] = t->label[i];
    return n;
}

// The product of a and b, which takes the place of a, summed over the labels that are not kept.
static bool multiply(const sum_of_products *e, term *a, term *b, uint64_t keep)
{
    sum_out(a, keep | labels_of(b));
    sum_out(b, keep | labels_of(a));
    uint64_t both = labels_of(a) & labels_of(b), gone = both & ~keep;
    int      batch[LABELS], mine[LABELS], other[LABELS], inner[LABELS], l[LABELS];
    int nb = add_labels(batch, 0, a, both & keep, true), nm = add_labels(mine, 0, a, both, false);
    int no = add_labels(other, 0, b, both, false), ni = add_labels(inner, 0, a, gone, true);
    int64_t size[LABELS], B = elements(e, nb, batch), I = elements(e, ni, inner);
    int     rank = nb + nm + no;
    if (rank > TN_MAX_RANK) return refuse(e, "a product has too many axes");
    memcpy(l, batch, (size_t)nb * sizeof *l);
    memcpy(l + nb, mine, (size_t)nm * sizeof *l);
    memcpy(l + nb + nm, inner, (size_t)ni * sizeof *l);
    tn_tensor *x = arranged(a, nb + nm + ni, l);
    memcpy(l + nb, inner, (size_t)ni * sizeof *l);
    memcpy(l + nb + ni, other, (size_t)no * sizeof *l);
    tn_tensor *y = arranged(b, nb + ni + no, l);
    memcpy(l + nb, mine, (size_t)nm * sizeof *l);
    memcpy(l + nb + nm, other, (size_t)no * sizeof *l);
    for (int i = 0; i < rank; i++) size[i] = e->size[l[i]];
    if (ni) {
        x    = tn_reshape(x, TN_SHAPE(B, elements(e, nm, mine), I));
        y    = tn_reshape(y, TN_SHAPE(B, I, elements(e, no, other)));
        a->x = tn_reshape(tn_matmul(x, y), rank, size);
    } else {
        for (int i = 0; i < no; i++) x = tn_unsqueeze(x, -1);
        for (int i = 0; i < nm; i++) y = tn_unsqueeze(y, nb);
        a->x = tn_mul(x, y);
    }
    a->rank = rank;
    memcpy(a->label, l, (size_t)rank * sizeof *l);
    return a->x != NULL;
}

// The labels that the result or an operand other than these two has.
static uint64_t wanted(const sum_of_products *e, int a, int b)
{
    uint64_t m = 0;
    for (int i = 0; i < e->rank; i++) m |= (uint64_t)1 << e->out[i];
    for (int i = 0; i < e->n; i++)
        if (i != a && i != b) m |= labels_of(&e->at[i]);
    return m;
}

// The pair whose product has the fewest elements; of equals the first.
static void choose_pair(const sum_of_products *e, int *a, int *b)
{
    double least = INFINITY;
    for (int i = 0; i < e->n; i++)
        for (int k = i + 1; k < e->n; k++) {
            uint64_t m = (labels_of(&e->at[i]) | labels_of(&e->at[k])) & wanted(e, i, k);
            double   n = 1;
            for (int l = 0; l < LABELS; l++)
                if (has(m, l)) n *= (double)e->size[l];
            if (n >= least) continue;
            least = n;
            *a = i, *b = k;
        }
}

// Diagonals and single elements first, then pair by pair, then what is left is summed and put in
// order.
tn_tensor *tn_einsum(const char *equation, int n, tn_tensor *const *x)
{
    if (n < 1 || !x || !equation) {
        tni_thread_fail(TN_EARG, "einsum: there are no tensors or there is no equation");
        return NULL;
    }
    tn_ctx         *cx = tni_args("einsum", n, x, NULL);
    sum_of_products e  = { .cx = cx, .equation = equation };
    if (!cx) return NULL;
    if (n > MOST) return tni_fail(cx, TN_EARG, "einsum: %d operands, at most %d", n, MOST);
    if (!read_equation(&e, n, x)) return NULL;
    for (int i = 0; i < n; i++) settle(&e, &e.at[i]);
    while (e.n > 1) {
        int a = 0, b = 1;
        choose_pair(&e, &a, &b);
        if (!e.at[a].x || !e.at[b].x || !multiply(&e, &e.at[a], &e.at[b], wanted(&e, a, b)))
            return NULL;
        e.at[b] = e.at[--e.n];
    }
    sum_out(&e.at[0], wanted(&e, 0, 0));
    return e.at[0].x ? arranged(&e.at[0], e.rank, e.out) : NULL;
}

// ---- its kin -----------------------------------------------------------------------------------

// The axes of x that are not among n others, which are checked; -1 if these are wrong.
static int other_axes(tn_tensor *x, const char *name, int n, const int *axes, int *order)
{
    uint32_t seen = 0;
    int      rank = tn_rank(x), m = 0;
    for (int i = 0; i < n; i++) {
        int a = tni_axis(x->cx, "tensordot", rank, axes[i]);
        if (a < 0) return -1;
        if (seen >> a & 1) {
            tni_fail(x->cx, TN_EARG, "tensordot: axis %d of %s twice", a, name);
            return -1;
        }
        seen |= 1u << a;
    }
    for (int i = 0; i < rank; i++)
        if (!(seen >> i & 1)) order[m++] = i;
    return m;
}

// The summed axes last in a and first in b, so that one product of matrices does it.
tn_tensor *tn_tensordot(tn_tensor *a, tn_tensor *b, int n, const int *axes_a, const int *axes_b)
{
    static const char *const names[] = { "a", "b" };
    tn_ctx                  *cx = tni_args("tensordot", 2, (tn_tensor *const[]){ a, b }, names);
    int                      first[2 * TN_MAX_RANK], second[2 * TN_MAX_RANK], rank = 0;
    int64_t                  size[2 * TN_MAX_RANK], inner = 1;
    if (!cx) return NULL;
    if (n < 0 || n > TN_MAX_RANK || (n > 0 && (!axes_a || !axes_b)))
        return tni_fail(cx, TN_EARG, "tensordot: %d axes", n);
    int na = other_axes(a, "a", n, axes_a, first), nb = other_axes(b, "b", n, axes_b, second + n);
    if (na < 0 || nb < 0) return NULL;
    for (int i = 0; i < n; i++) {
        first[na + i] = tni_axis(cx, "tensordot", tn_rank(a), axes_a[i]);
        second[i]     = tni_axis(cx, "tensordot", tn_rank(b), axes_b[i]);
        if (tn_size(a, first[na + i]) != tn_size(b, second[i]))
            return tni_fail(cx, TN_ESHAPE, "tensordot: axis %d of a %s and axis %d of b %s differ",
                            first[na + i], tni_shape_of(a).s, second[i], tni_shape_of(b).s);
        inner *= tn_size(b, second[i]);
    }
    for (int i = 0; i < na; i++) size[rank++] = tn_size(a, first[i]);
    for (int i = 0; i < nb; i++) size[rank++] = tn_size(b, second[n + i]);
    int64_t    rows = tni_shape_count(na, size), cols = tni_shape_count(nb, size + na);
    tn_tensor *x = tn_reshape(tn_permute(a, na + n, first), TN_SHAPE(rows, inner));
    tn_tensor *y = tn_reshape(tn_permute(b, n + nb, second), TN_SHAPE(inner, cols));
    return tn_reshape(tn_matmul(x, y), rank, size);
}

tn_tensor *tn_outer(tn_tensor *a, tn_tensor *b)
{
    static const char *const names[] = { "a", "b" };
    tn_ctx                  *cx      = tni_args("outer", 2, (tn_tensor *const[]){ a, b }, names);
    if (!cx) return NULL;
    if (tn_rank(a) != 1 || tn_rank(b) != 1)
        return tni_fail(cx, TN_ESHAPE, "outer: a %s and b %s must have one axis each",
                        tni_shape_of(a).s, tni_shape_of(b).s);
    return tn_mul(tn_unsqueeze(a, 1), b);
}

// Elements of three along an axis, the next two of which come first: (x, y, z) as (y, z, x).
tn_tensor *tn_cross(tn_tensor *a, tn_tensor *b, int axis)
{
    static const char *const names[] = { "a", "b" };
    tn_ctx                  *cx      = tni_args("cross", 2, (tn_tensor *const[]){ a, b }, names);
    if (!cx || !tni_broadcast_pair("cross", a, "a", b, "b")) return NULL;
    int rank = tn_rank(a) > tn_rank(b) ? tn_rank(a) : tn_rank(b);
    int i    = tni_axis(cx, "cross", rank, axis) - rank;  // from the end, as shapes broadcast
    if (i < -rank) return NULL;
    if (-i > tn_rank(a) || -i > tn_rank(b) || tn_size(a, i) != 3 || tn_size(b, i) != 3)
        return tni_fail(cx, TN_ESHAPE, "cross: a %s and b %s must have 3 elements along axis %d",
                        tni_shape_of(a).s, tni_shape_of(b).s, axis);
    tn_tensor *u = tn_mul(tn_roll(a, -1, i), tn_roll(b, -2, i));
    return tn_sub(u, tn_mul(tn_roll(a, -2, i), tn_roll(b, -1, i)));
}

tn_tensor *tn_trace(tn_tensor *x)
{
    tn_ctx *cx = tni_arg1("trace", x, "x");
    if (!cx) return NULL;
    if (tn_rank(x) < 2)
        return tni_fail(cx, TN_ESHAPE, "trace: x %s is no matrix", tni_shape_of(x).s);
    return tn_sum(tn_diagonal(x, 0, -2, -1), -1);
}

// Every axis of a beside that of b: (a0, 1, a1, 1) times (1, b0, 1, b1).
tn_tensor *tn_kron(tn_tensor *a, tn_tensor *b)
{
    static const char *const names[] = { "a", "b" };
    tn_ctx                  *cx      = tni_args("kron", 2, (tn_tensor *const[]){ a, b }, names);
    int64_t                  sa[TN_MAX_RANK], sb[TN_MAX_RANK], size[TN_MAX_RANK];
    if (!cx) return NULL;
    int ra = tn_rank(a), rb = tn_rank(b), rank = ra > rb ? ra : rb;
    if (2 * rank > TN_MAX_RANK)
        return tni_fail(cx, TN_ESHAPE, "kron: a %s and b %s have more than %d axes",
                        tni_shape_of(a).s, tni_shape_of(b).s, TN_MAX_RANK / 2);
    for (int i = 0; i < rank; i++) {
        int64_t na = i < rank - ra ? 1 : tn_size(a, i - rank + ra);
        int64_t nb = i < rank - rb ? 1 : tn_size(b, i - rank + rb);
        sa[2 * i] = na, sa[2 * i + 1] = 1;
        sb[2 * i] = 1, sb[2 * i + 1] = nb;
        size[i] = na * nb;
    }
    tn_tensor *y = tn_mul(tn_reshape(a, 2 * rank, sa), tn_reshape(b, 2 * rank, sb));
    return tn_reshape(y, rank, size);
}

// Both are divided by their lengths first, so that no product overflows.
tn_tensor *tn_cosine_similarity(tn_tensor *a, tn_tensor *b, int axis, double eps)
{
    static const char *const names[] = { "a", "b" };
    tn_ctx *cx = tni_args("cosine_similarity", 2, (tn_tensor *const[]){ a, b }, names);
    if (!cx || !tni_want_float(a, "cosine_similarity") || !tni_want_float(b, "cosine_similarity"))
        return NULL;
    if (!tni_broadcast_pair("cosine_similarity", a, "a", b, "b")) return NULL;
    int rank = tn_rank(a) > tn_rank(b) ? tn_rank(a) : tn_rank(b);
    int i    = tni_axis(cx, "cosine_similarity", rank, axis) - rank;
    if (i < -rank) return NULL;
    if (-i > tn_rank(a) || -i > tn_rank(b))
        return tni_fail(cx, TN_ESHAPE, "cosine_similarity: a %s and b %s have no axis %d in common",
                        tni_shape_of(a).s, tni_shape_of(b).s, axis);
    tn_tensor *x = tni_widen(a), *y = tni_widen(b);
    x = tn_div(x, tn_maximum_s(tn_norm_keep(x, i), eps));
    y = tn_div(y, tn_maximum_s(tn_norm_keep(y, i), eps));
    return tni_narrow(tn_sum(tn_mul(x, y), i),
                      tn_dtype_of(a) == tn_dtype_of(b) ? tn_dtype_of(a) : TN_F32);
}
