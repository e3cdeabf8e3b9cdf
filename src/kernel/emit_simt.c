// The skeletons of kernels for devices with work groups: CUDA and OpenCL text of a kernel of any
// form. simt.h says how the work is cut; what one instruction is, emit.h.
//
// A thread moves vectors of V elements as 32-bit words and computes their elements one by one, in
// loops that the compiler unrolls:
//
//     fetch   for each of its vectors q: words x3[q * W ...] of the load 3
//     work    for each vector q, for each element j: values v4, v5, ...; folds; y7[j] of the store 7
//             then the vector y7
//
// Names in the text: b buffer, a base of an access in a line, i coordinate of an axis, c lane
// coordinate of a vector's first element, l that of element j, x words of a load, y elements of a
// store, v value, k value that is kept in an array, t tail, s partials of a tail.
#include "kernel/simt.h"

#include <stdio.h>
#include <string.h>

typedef enum { AT_ROW, AT_LANES, AT_LOOP, AT_FINISH } stage;

// A kernel being written. `scribe` comes first: its callbacks get the whole by a cast.
typedef struct {
    tni_scribe            scribe;
    tni_out              *o;
    const tni_kernel     *k;
    const tni_dialect    *d;
    const tni_simt_class *m;
    const char           *name;
    const char           *index;   // type of places
    const char           *uindex;  // its unsigned form, for divisions
    const char           *local;   // before the type of what a pointer to shared memory points to
    tni_simt_layout       at;
    tni_set               scalar;   // forms of lanes: values that are the same in all of them
    tni_set               kept;     // values in arrays from loop to loop
    tni_set               fetched;  // loads whose words are held
    tni_set               again;    // loads that several loops read
    tni_set               dear;     // values worth keeping
    stage                 stage;
    int                   lane;      // axis
    int                   folds;     // most reductions of one loop
    bool                  together;  // LANE: all threads are at the same r, for barriers
    int                   unroll;    // vectors in hand of the loop being written
    bool                  whole;     // the vector at hand lies in its line
} simt;

// A short text by value.
typedef struct {
    char s[96];
} name;

static bool is_tail(const tni_ins *x)
{
    return x->code == TNI_I_REDUCE && x->over_p;
}

static bool is_fold(const tni_ins *x)
{
    return x->code == TNI_I_REDUCE && !x->over_p;
}

static tn_dtype buffer_dtype(const simt *c, int i)
{
    return (tn_dtype)c->k->buffer[c->k->access[c->k->ins[i].access].buffer].dtype;
}

static const char *type_of(const simt *c, int i)
{
    return tni_compute_type((tn_dtype)c->k->ins[i].dtype);
}

// Whether LOAD or STORE i moves vectors here. A vector of one element is loaded so, not stored.
static bool moves(const simt *c, int i)
{
    const tni_ins *x = &c->k->ins[i];
    return (x->code == TNI_I_LOAD || (x->code == TNI_I_STORE && c->m->vector > 1)) &&
           c->stage != AT_FINISH && c->stage != AT_ROW && c->m->vectors >> x->access & 1;
}

static int words_of(const simt *c, int i)
{
    return tni_simt_vector_words(c->m, buffer_dtype(c, i));
}

static void begin_indent(simt *c)
{
    tni_put(c->o, "%*s", 4 * c->o->depth, "");
}

// A line that folds `other` into an accumulator, by the op of REDUCE i.
static void fold_line(simt *c, int i, const char *before, const char *acc, const char *other)
{
    const tni_ins *x = &c->k->ins[i];
    begin_indent(c);
    tni_put(c->o, "%s%s = ", before, acc);
    tni_emit_fold(c->o, x->op, (tn_dtype)x->dtype, acc, other);
    tni_put(c->o, ";\n");
}

// ---- names and places --------------------------------------------------------------------------

// Rows of LANE have their values in arrays, one for each lane.
static bool in_lanes(const simt *c, int i)
{
    const tni_ins *x = &c->k->ins[i];
    return c->m->form == TNI_SIMT_LANE && !(x->per & TNI_PER_COL) && !is_tail(x) &&
           !tni_has(&c->scalar, i) && c->stage != AT_FINISH;
}

static name value_name(const simt *c, int i)
{
    name n;
    if (in_lanes(c, i)) snprintf(n.s, sizeof n.s, "k%d[j]", i);
    else if (tni_has(&c->kept, i) && c->stage == AT_LOOP)
        snprintf(n.s, sizeof n.s, "k%d[q * %d + j]", i, c->m->vector);
    else snprintf(n.s, sizeof n.s, "v%d", i);
    return n;
}

static name word_name(const simt *c, int w)
{
    name n;
    snprintf(n.s, sizeof n.s, c->m->cuda ? "(%s)a.w[%d]" : "(%s)w%d", c->index, w);
    return n;
}

static name size_name(const simt *c, int axis)
{
    return word_name(c, TNI_WORD_SIZES + axis);
}

// The number of elements along the lane axis.
static name lanes_name(const simt *c)
{
    return size_name(c, c->lane);
}

// Adds a coordinate's part of a place.
static void put_term(simt *c, int access, int axis, const char *coordinate)
{
    int class = c->k->access[access].stride[axis];
    if (class == TNI_STRIDE_1) tni_put(c->o, " + %s", coordinate);
    if (class == TNI_STRIDE_N)
        tni_put(c->o, " + %s * %s", coordinate, word_name(c, c->at.stride[access][axis]).s);
}

static void put_axis(simt *c, int access, int axis)
{
    name n;
    snprintf(n.s, sizeof n.s, "i%d", axis);
    put_term(c, access, axis, n.s);
}

// The place of an access; `lane` names the lane coordinate.
static void put_place(simt *c, int access, const char *lane)
{
    const tni_kernel *k    = c->k;
    bool              bare = c->stage == AT_ROW && c->m->form != TNI_SIMT_ROW;  // no line yet
    if (bare || c->stage == AT_FINISH) tni_put(c->o, "%s", word_name(c, c->at.offset[access]).s);
    else tni_put(c->o, "a%d", access);
    if (bare) return;
    for (int i = k->np; i < k->np + k->nr; i++)
        if (i != c->lane || c->stage == AT_FINISH) put_axis(c, access, i);
    if (c->stage != AT_FINISH && c->stage != AT_ROW && c->lane >= 0)
        put_term(c, access, c->lane, lane);
}

static void put_index(simt *c, int i)
{
    const tni_ins *x = &c->k->ins[i];
    if (x->code != TNI_I_LOAD || x->a == TNI_NO_VALUE) return;
    tni_put(c->o, " + (%s)%s * %s", c->index, value_name(c, x->a).s,
            word_name(c, c->at.stride[x->access][TNI_AXES]).s);
}

// Coordinates of axes from .. to-1 out of a number that counts them in row-major order.
static void put_coordinates(simt *c, int from, int to, const char *number)
{
    name n;
    snprintf(n.s, sizeof n.s, "%s", number);
    for (int i = to - 1; i > from; i--) {
        tni_line(c->o, "const %s d%d = (%s)((%s)%s / (%s)%s);", c->index, i, c->index, c->uindex,
                 n.s, c->uindex, size_name(c, i).s);
        tni_line(c->o, "const %s i%d = %s - d%d * %s;", c->index, i, n.s, i, size_name(c, i).s);
        snprintf(n.s, sizeof n.s, "d%d", i);
    }
    if (from < to) tni_line(c->o, "const %s i%d = %s;", c->index, from, n.s);
}

// Bases of the accesses that the main stage uses: offset and the parts of P, without the lane.
static void put_bases(simt *c)
{
    tni_set  need = tni_needs_main(c->k);
    uint64_t used = 0;
    for (int i = 0; i < c->k->nins; i++)
        if (tni_has(&need, i) && c->k->ins[i].access >= 0 && !c->k->ins[i].finish &&
            (c->k->ins[i].code == TNI_I_LOAD || c->k->ins[i].code == TNI_I_STORE ||
             c->k->ins[i].code == TNI_I_PLACE))
            used |= (uint64_t)1 << c->k->ins[i].access;
    for (int a = 0; a < c->k->naccess; a++) {
        if (!(used >> a & 1)) continue;
        begin_indent(c);
        tni_put(c->o, "const %s a%d = %s", c->index, a, word_name(c, c->at.offset[a]).s);
        for (int i = 0; i < c->k->np; i++)
            if (i != c->lane) put_axis(c, a, i);
        tni_put(c->o, ";\n");
    }
}

// How far the first vector of a line begins before the line.
static void put_shift(simt *c, bool declared)
{
    int    a    = c->m->leader;
    size_t size = tni_dtype_size((tn_dtype)c->k->buffer[c->k->access[a].buffer].dtype);
    if (!c->m->window) return;
    begin_indent(c);
    if (!declared) tni_put(c->o, "const %s ", c->index);
    tni_put(c->o, "shift = (%s)(", c->index);
    if (c->m->cuda)
        tni_put(c->o, "(m_ulong)(b%d + a%d) / %d", c->k->access[a].buffer, a, (int)size);
    else tni_put(c->o, "a%d", a);
    tni_put(c->o, " & %d);\n", c->m->vector - 1);
}

// ---- elements ----------------------------------------------------------------------------------

// Where the words of the vector in hand begin in the array of a load.
static name word_base(const simt *c, int i)
{
    name n = { "" };
    if (c->stage != AT_LANES) snprintf(n.s, sizeof n.s, "q * %d + ", words_of(c, i));
    return n;
}

// Element j of a load's words, in the type kept in memory.
static void put_raw(simt *c, int i)
{
    tn_dtype dt   = buffer_dtype(c, i);
    int      size = (int)tni_dtype_size(dt);
    name     x, base = word_base(c, i);
    snprintf(x.s, sizeof x.s, "x%d[%.40s", i, base.s);
    if (size == 8)
        tni_put(c->o, "%s((m_ulong)%s2 * j + 1] << 32 | %s2 * j])",
                dt == TN_F64 ? "m_double_bits" : "(m_long)", x.s, x.s);
    else if (size == 4) tni_put(c->o, "%s(%sj])", dt == TN_F32 ? "m_float_bits" : "(m_int)", x.s);
    else
        tni_put(c->o, "(%s)(%sj / %d] >> j %% %d * %d)", tni_kept_type(dt), x.s, 4 / size, 4 / size,
                8 * size);
}

static void on_value(tni_scribe *s, int i)
{
    tni_put(s->out, "%s", value_name((simt *)s, i).s);
}

static void on_element(tni_scribe *s, int i)
{
    simt          *c = (simt *)s;
    const tni_ins *x = &c->k->ins[i];
    if (moves(c, i) && x->code == TNI_I_LOAD) {
        put_raw(c, i);
    } else if (moves(c, i)) {
        tni_put(s->out, "y%d[j]", i);
    } else {
        tni_put(s->out, "b%d[", c->k->access[x->access].buffer);
        put_place(c, x->access, "l");
        put_index(c, i);
        tni_put(s->out, "]");
    }
}

static void on_place(tni_scribe *s, int i)
{
    simt *c = (simt *)s;
    tni_put(s->out, "(m_long)(");
    put_place(c, c->k->ins[i].access, "(c + j)");
    tni_put(s->out, ")");
}

static void on_number(tni_scribe *s, int n)
{
    simt *c = (simt *)s;
    tni_put(s->out, c->m->cuda ? "(m_ulong)a.w[%d]" : "(m_ulong)w%d", c->at.number[n]);
}

// ---- moving vectors ----------------------------------------------------------------------------

static const char *bits_type(int bytes)
{
    return bytes == 1   ? "unsigned char"
           : bytes == 2 ? "m_ushort"
           : bytes == 4 ? "m_uint"
           : bytes == 8 ? "uint2"
                        : "uint4";
}

// How word n of several is spelled.
static const char *part_of(int words, int n)
{
    static const char *const part[] = { ".x", ".y", ".z", ".w" };
    return words > 1 ? part[n] : "";
}

static void put_words(simt *c, int i, const char *from)
{
    int w = words_of(c, i);
    for (int n = 0; n < w; n++)
        tni_line(c->o, "x%d[%s%d] = %s%s;", i, word_base(c, i).s, n, from, part_of(w, n));
}

// Elements of a vector that are in the line, one by one.
static void fetch_edge(simt *c, int i)
{
    const tni_ins *x    = &c->k->ins[i];
    int            size = (int)tni_dtype_size(buffer_dtype(c, i)), w = words_of(c, i);
    name           base = word_base(c, i);
    tni_put(c->o, "%s", c->d->unroll);
    tni_line(c->o, "for (m_int j = 0; j < %d; j++) x%d[%sj] = 0;", w, i, base.s);
    tni_put(c->o, "%s", c->d->unroll);
    tni_line(c->o, "for (m_int j = 0; j < %d; j++) {", c->m->vector);
    tni_line(c->o, "if (c + j < 0 || c + j >= %s) continue;", lanes_name(c).s);
    begin_indent(c);
    tni_put(c->o, "const %s g = ((%sconst %s *)b%d)[", size == 8 ? "uint2" : "m_uint", c->d->global,
            bits_type(size), c->k->access[x->access].buffer);
    put_place(c, x->access, "(c + j)");
    put_index(c, i);
    tni_put(c->o, "];\n");
    if (size == 8)
        tni_line(c->o, "x%d[%s2 * j] = g.x, x%d[%s2 * j + 1] = g.y;", i, base.s, i, base.s);
    else
        tni_line(c->o, "x%d[%sj / %d] |= g << j %% %d * %d;", i, base.s, 4 / size, 4 / size,
                 8 * size % 32);
    tni_line(c->o, "}");
}

static void put_edge_test(simt *c)
{
    tni_line(c->o, "if (c >= 0 && c + %d <= %s) {", c->m->vector, lanes_name(c).s);
}

// The words of LOAD i at lane coordinate c.
static void fetch(simt *c, int i)
{
    const tni_ins *x     = &c->k->ins[i];
    int            bytes = c->m->vector * (int)tni_dtype_size(buffer_dtype(c, i));
    const char    *type  = bits_type(bytes);
    if (x->b != TNI_NO_VALUE) tni_line(c->o, "if (%s) {", value_name(c, x->b).s);
    if (c->m->window) put_edge_test(c);
    else tni_line(c->o, "{");
    begin_indent(c);
    tni_put(c->o, "const %s g = *(%sconst %s *)(b%d + ", type, c->d->global, type,
            c->k->access[x->access].buffer);
    put_place(c, x->access, "c");
    put_index(c, i);
    tni_put(c->o, ");\n");
    put_words(c, i, "g");
    if (c->m->window) {
        tni_line(c->o, "} else {");
        fetch_edge(c, i);
    }
    tni_line(c->o, "}");
    if (x->b != TNI_NO_VALUE) tni_line(c->o, "}");
}

// Word w of the elements of a store.
static void put_packed(simt *c, int i, int w)
{
    tn_dtype dt   = buffer_dtype(c, i);
    int      size = (int)tni_dtype_size(dt);
    if (size == 8) {
        tni_put(c->o, "(m_uint)(%s(y%d[%d]) >> %d)", dt == TN_F64 ? "m_bits_d" : "(m_ulong)", i,
                w / 2, w % 2 * 32);
    } else if (size == 4) {
        tni_put(c->o, "%s(y%d[%d])", dt == TN_F32 ? "m_bits_f" : "(m_uint)", i, w);
    } else {
        int n = 4 / size < c->m->vector ? 4 / size : c->m->vector;
        for (int j = 0; j < n; j++)
            tni_put(c->o, "%s(m_uint)(%s)y%d[%d] << %d", j ? " | " : "(", bits_type(size), i,
                    w * 4 / size + j, 8 * size * j);
        tni_put(c->o, ")");
    }
}

// The vector of STORE i at lane coordinate c.
static void put_vector(simt *c, int i)
{
    const tni_ins *x     = &c->k->ins[i];
    int            bytes = c->m->vector * (int)tni_dtype_size(buffer_dtype(c, i));
    const char    *type  = bits_type(bytes);
    int            b     = c->k->access[x->access].buffer;
    if (c->m->window) put_edge_test(c);
    else tni_line(c->o, "{");
    tni_line(c->o, "%s g;", type);
    for (int w = 0; w < words_of(c, i); w++) {
        begin_indent(c);
        tni_put(c->o, "g%s = ", part_of(words_of(c, i), w));
        put_packed(c, i, w);
        tni_put(c->o, ";\n");
    }
    begin_indent(c);
    tni_put(c->o, "*(%s%s *)(b%d + ", c->d->global, type, b);
    put_place(c, x->access, "c");
    tni_put(c->o, ") = g;\n");
    if (c->m->window) {
        tni_line(c->o, "} else {");
        tni_put(c->o, "%s", c->d->unroll);
        tni_line(c->o, "for (m_int j = 0; j < %d; j++)", c->m->vector);
        begin_indent(c);
        tni_put(c->o, "    if (c + j >= 0 && c + j < %s) b%d[", lanes_name(c).s, b);
        put_place(c, x->access, "(c + j)");
        tni_put(c->o, "] = y%d[j];\n", i);
    }
    tni_line(c->o, "}");
}

// ---- one instruction ---------------------------------------------------------------------------

// Whether something is done by this thread, for this element: "" if always.
static const char *store_test(const simt *c)
{
    if (c->stage == AT_FINISH) return "if (mine) ";
    if (c->m->form == TNI_SIMT_ROW && c->stage == AT_ROW) return "if (t == 0 && live) ";
    if (c->m->form == TNI_SIMT_LANE)
        return c->stage == AT_LANES ? "if (ok && k == 0) " : "if (ok) ";
    return c->m->window ? "if (ok) " : "";
}

static void put_fold(simt *c, int i, const char *acc, const char *test)
{
    const tni_ins *x = &c->k->ins[i];
    fold_line(c, i, test, acc, value_name(c, x->a).s);
}

static void put_tail(simt *c, int i)
{
    const tni_ins *x    = &c->k->ins[i];
    bool           elem = c->k->ins[i].per & TNI_PER_COL;
    name           acc;
    snprintf(acc.s, sizeof acc.s, "t%d", i);
    if (c->m->form == TNI_SIMT_ROW && elem && c->m->tail_memory) {
        tni_line(c->o, "if (!it) s%d[e + j] = %s;", i, value_name(c, x->a).s);
        snprintf(acc.s, sizeof acc.s, "s%d[e + j]", i);
        put_fold(c, i, acc.s, "else ");
        return;
    }
    if (c->m->form == TNI_SIMT_ROW && elem)
        snprintf(acc.s, sizeof acc.s, "t%d[q * %d + j]", i, c->m->vector);
    const char *test = store_test(c);
    if (c->m->form == TNI_SIMT_ROW && !elem) test = "if (live) ";
    put_fold(c, i, acc.s, test);
}

// A quotient of floats whose divisor is that of a whole row: its reciprocal is found once.
static bool divides_by_row(const simt *c, int i)
{
    const tni_ins *x = &c->k->ins[i];
    return c->m->cuda && c->stage == AT_LOOP && x->code == TNI_I_MAP && x->op == TNI_div &&
           tni_compute_dtype((tn_dtype)x->dtype) == TN_F32 && x->per & TNI_PER_COL &&
           !(c->k->ins[x->b].per & TNI_PER_COL);
}

// Whether MAP i asks if a column of the lane axis is the one that a value of the row names.
static bool finds_column(const simt *c, int i)
{
    const tni_ins *x = &c->k->ins[i];
    if (x->code != TNI_I_MAP || x->op != TNI_eq || !c->m->cuda || c->m->wide ||
        c->m->form != TNI_SIMT_ROW || c->stage != AT_LOOP)
        return false;
    const tni_ins *place = &c->k->ins[x->a];
    if (place->code != TNI_I_PLACE || c->k->ins[x->b].per & TNI_PER_COL) return false;
    for (int r = c->k->np; r < c->k->np + c->k->nr; r++)
        if (c->k->access[place->access].stride[r] != (r == c->lane ? TNI_STRIDE_1 : TNI_STRIDE_0))
            return false;
    return true;
}

// What instruction i of a loop needs of the row, once, before the loop.
static void put_hoisted(simt *c, int i)
{
    const tni_ins *x = &c->k->ins[i];
    if (finds_column(c, i)) {
        tni_line(c->o, "const m_int w%d = m_column(%s - (m_long)a%d);", i, value_name(c, x->b).s,
                 c->k->ins[x->a].access);
    }
}

// A store of a value that was cast to the buffer's dtype rounds once, not twice.
static void put_store(simt *c, int i)
{
    const tni_ins *x = &c->k->ins[i], *cast = &c->k->ins[x->a];
    tn_dtype       to = buffer_dtype(c, i);
    if (cast->code != TNI_I_CAST || cast->dtype != to || tni_has(&c->kept, x->a) ||
        (to != TN_F16 && to != TN_BF16)) {
        tni_emit_store(&c->scribe, i);
        return;
    }
    tni_cast_text t = tni_text_to_kept((tn_dtype)c->k->ins[cast->a].dtype, to, c->scribe.no_double);
    on_element(&c->scribe, i);
    tni_put(c->o, " = %s%s%s", t.before, value_name(c, cast->a).s, t.after);
}

static void put_ins(simt *c, int i)
{
    const tni_ins *x = &c->k->ins[i];
    if (is_tail(x)) {
        put_tail(c, i);
        return;
    }
    if (is_fold(x)) {
        put_fold(c, i, value_name(c, i).s,
                 c->m->form == TNI_SIMT_ROW && c->m->window ? "if (ok) " : "");
        return;
    }
    begin_indent(c);
    if (x->code == TNI_I_STORE) {
        tni_put(c->o, "%s", moves(c, i) ? "" : store_test(c));
        put_store(c, i);
    } else {
        name n = value_name(c, i);
        if (*n.s == 'v') tni_put(c->o, "const %s ", type_of(c, i));
        tni_put(c->o, "%s = ", n.s);
        if (divides_by_row(c, i))
            tni_put(c->o, "m_div_by_f(%s, %s)", value_name(c, x->a).s, value_name(c, x->b).s);
        else if (finds_column(c, i)) tni_put(c->o, "l == w%d", i);
        else tni_emit_value(&c->scribe, i);
    }
    tni_put(c->o, ";\n");
}

// ---- passes over vectors -----------------------------------------------------------------------

static void open_lanes(simt *c)
{
    tni_put(c->o, "%s", c->d->unroll);
    tni_line(c->o, "for (m_int j = 0; j < %d; j++) {", c->m->vector);
    if (c->m->window && !c->whole) {
        tni_line(c->o, "const m_int ok = (%s)(c + j) < (%s)%s%s;", c->uindex, c->uindex,
                 lanes_name(c).s, c->m->form == TNI_SIMT_LANE ? " && live" : "");
        tni_line(c->o, "const %s l = c + j < 0 ? 0 : c + j < %s ? c + j : %s - 1;", c->index,
                 lanes_name(c).s, lanes_name(c).s);
        return;
    }
    if (c->m->form == TNI_SIMT_LANE) tni_line(c->o, "const m_int ok = live;");
    else if (c->m->window) tni_line(c->o, "const m_int ok = 1;");
    tni_line(c->o, "const %s l = c + j;", c->index);
}

// Arrays for what a pass makes: values kept, stores.
static void declare_arrays(simt *c, const tni_set *set, bool stores)
{
    int v = c->m->vector;
    for (int i = 0; i < c->k->nins; i++) {
        const tni_ins *x = &c->k->ins[i];
        if (!tni_has(set, i)) continue;
        if (stores && x->code == TNI_I_STORE && moves(c, i))
            tni_line(c->o, "%s y%d[%d];", tni_kept_type(buffer_dtype(c, i)), i, v);
        if (stores || x->code == TNI_I_STORE || x->code == TNI_I_REDUCE) continue;
        if (c->stage == AT_LOOP && tni_has(&c->kept, i) && x->per & TNI_PER_COL)
            tni_line(c->o, "%s k%d[%d];", type_of(c, i), i, v * c->unroll);
        if (c->stage == AT_LANES && in_lanes(c, i))
            tni_line(c->o, "%s k%d[%d];", type_of(c, i), i, v);
    }
}

static void put_elements(simt *c, const tni_set *set)
{
    open_lanes(c);
    for (int i = 0; i < c->k->nins; i++)
        if (tni_has(set, i) && !tni_has(&c->scalar, i)) put_ins(c, i);
    tni_line(c->o, "}");
}

// The work of a vector whose loads are there. Only the vectors at the ends of a line have elements
// that are not in it, so that the others are spared the question.
static void put_work(simt *c, const tni_set *set, const char *guard)
{
    declare_arrays(c, set, true);
    if (c->m->window) {
        put_edge_test(c);
        c->whole = true;
        put_elements(c, set);
        c->whole = false;
        tni_line(c->o, "} else {");
    }
    put_elements(c, set);
    if (c->m->window) tni_line(c->o, "}");
    for (int i = 0; i < c->k->nins; i++) {
        if (!tni_has(set, i) || c->k->ins[i].code != TNI_I_STORE || !moves(c, i)) continue;
        if (*guard) tni_line(c->o, "if (%s) {", guard);
        put_vector(c, i);
        if (*guard) tni_line(c->o, "}");
    }
}

// What a POINT thread needs to know of unit u.
static void open_unit(simt *c)
{
    name vectors = word_name(c, TNI_WORD_VECTORS);
    if (c->k->np > 1)
        tni_line(c->o, "const %s line = (%s)((%s)u / (%s)%s);", c->index, c->index, c->uindex,
                 c->uindex, vectors.s);
    if (c->k->np > 1) put_coordinates(c, 0, c->k->np - 1, "line");
    put_bases(c);
    put_shift(c, false);
    begin_indent(c);
    if (c->k->np > 1) tni_put(c->o, "const %s c = (u - line * %s)", c->index, vectors.s);
    else tni_put(c->o, "const %s c = u", c->index);
    tni_put(c->o, " * %d%s;\n", c->m->vector, c->m->window ? " - shift" : "");
}

// Begins the loop over the vectors q a thread has in hand, and the block for one of them.
static void open_vector(simt *c)
{
    const tni_kernel *k = c->k;
    if (c->together) {
        tni_line(c->o, "{");
        tni_line(c->o, "const m_int q = 0;");
        tni_line(c->o, "const %s i = from;", c->index);
        tni_line(c->o, "{");
        put_coordinates(c, k->np, k->np + k->nr, "i");
        return;
    }
    tni_put(c->o, "%s", c->d->unroll);
    tni_line(c->o, "for (m_int q = 0; q < %d; q++) {", c->unroll);
    if (c->m->form == TNI_SIMT_POINT) {
        tni_line(c->o, "const %s u = u0 + q * %d;", c->index, c->m->rows);
        tni_line(c->o, "if (u < %s * %s) {", word_name(c, TNI_WORD_LINES).s,
                 word_name(c, TNI_WORD_VECTORS).s);
        open_unit(c);
        return;
    }
    tni_line(c->o, "const %s i = from + q * %d;", c->index, c->m->team);
    tni_line(c->o, "if (i < n) {");
    if (c->m->form == TNI_SIMT_LANE) {
        put_coordinates(c, k->np, k->np + k->nr, "i");
        return;
    }
    tni_line(c->o, "const %s e = i * %d%s;", c->index, c->m->vector,
             c->m->window ? " - shift" : "");
    put_coordinates(c, k->np, k->np + k->nr, "e");
    tni_line(c->o, "const %s c = i%d;", c->index, c->lane);
}

static void close_vector(simt *c)
{
    tni_line(c->o, "}");
    tni_line(c->o, "}");
}

// The vector i of LOAD i in shared memory, to or from its words.
static void put_stash(simt *c, int i, bool out)
{
    int         w    = words_of(c, i);
    const char *type = w == 1 ? "m_uint" : w == 2 ? "uint2" : "uint4";
    tni_line(c->o, "{");
    if (out) {
        tni_line(c->o, "%s g;", type);
        for (int n = 0; n < w; n++)
            tni_line(c->o, "g%s = x%d[q * %d + %d];", part_of(w, n), i, w, n);
        tni_line(c->o, "((%s%s *)h%d)[i] = g;", c->local, type, i);
    } else {
        tni_line(c->o, "const %s g = ((%sconst %s *)h%d)[i];", type, c->local, type, i);
        put_words(c, i, "g");
    }
    tni_line(c->o, "}");
}

static bool stashed(const simt *c, int i)
{
    return c->m->hold == TNI_HOLD_SHARED && tni_has(&c->again, i) && moves(c, i);
}

// The loads of a pass, except those that registers hold. What shared memory holds was written by
// the thread that reads it, so no barrier is needed.
static void put_fetches(simt *c, const tni_set *set)
{
    tni_set loads = { 0 };
    int     n     = 0;
    for (int i = 0; i < c->k->nins; i++) {
        if (!tni_has(set, i) || c->k->ins[i].code != TNI_I_LOAD || !moves(c, i)) continue;
        if (c->m->hold == TNI_HOLD_REGISTERS && tni_has(&c->fetched, i)) continue;
        tni_join(&loads, i);
        tni_line(c->o, "m_uint x%d[%d];", i, words_of(c, i) * c->unroll);
        n++;
    }
    if (!n) return;
    open_vector(c);
    for (int i = 0; i < c->k->nins; i++) {
        if (!tni_has(&loads, i)) continue;
        if (stashed(c, i) && tni_has(&c->fetched, i)) put_stash(c, i, false);
        else fetch(c, i);
        if (stashed(c, i) && !tni_has(&c->fetched, i)) put_stash(c, i, true);
        tni_join(&c->fetched, i);
    }
    close_vector(c);
}

// ---- folding over threads ----------------------------------------------------------------------

static void put_shuffles(simt *c, int i, const char *acc, int n)
{
    name other;
    if (n == 1) return;
    snprintf(other.s, sizeof other.s, "__shfl_xor_sync(0xffffffffu, %s, d)", acc);
    tni_put(c->o, "%s", c->d->unroll);
    tni_line(c->o, "for (m_int d = %d; d > 0; d /= 2)", n / 2);
    fold_line(c, i, "    ", acc, other.s);
}

// By shuffles in warps; then each warp leaves its result and reads those of all. Two such steps one
// after the other use two halves of `red`, so that one barrier is enough.
static void fold_cuda(simt *c, const tni_set *set, char letter, int team)
{
    int warps = team / 32, slot = 0;
    for (int i = 0; i < c->k->nins; i++) {
        name acc;
        snprintf(acc.s, sizeof acc.s, "%c%d", letter, i);
        if (tni_has(set, i)) put_shuffles(c, i, acc.s, team < 32 ? team : 32);
    }
    if (warps <= 1) return;
    for (int i = 0; i < c->k->nins; i++)
        if (tni_has(set, i))
            tni_line(c->o,
                     "if (tid %% 32 == 0) *(%s *)&red[(par * %d + %d) * 32 + tid / 32] = %c%d;",
                     type_of(c, i), c->folds, slot++, letter, i);
    tni_line(c->o, "%s;", c->d->barrier);
    slot = 0;
    for (int i = 0; i < c->k->nins; i++) {
        name acc;
        snprintf(acc.s, sizeof acc.s, "%c%d", letter, i);
        if (!tni_has(set, i)) continue;
        tni_line(c->o, "%s = *(%s *)&red[(par * %d + %d) * 32 + tid %% %d];", acc.s, type_of(c, i),
                 c->folds, slot++, warps);
        put_shuffles(c, i, acc.s, warps);
    }
    tni_line(c->o, "par ^= 1;");
}

// By a tree in local memory.
static void fold_opencl(simt *c, int i, char letter, int team)
{
    const char *type = type_of(c, i);
    name        a, b, test;
    snprintf(a.s, sizeof a.s, "*(__local %s *)&red[tid]", type);
    snprintf(b.s, sizeof b.s, "*(__local %s *)&red[tid + d]", type);
    tni_line(c->o, "%s = %c%d;", a.s, letter, i);
    tni_line(c->o, "%s;", c->d->barrier);
    tni_line(c->o, "for (m_int d = %d; d > 0; d /= 2) {", team / 2);
    snprintf(test.s, sizeof test.s, "if (tid %% %d < d) ", team);
    fold_line(c, i, test.s, a.s, b.s);
    tni_line(c->o, "%s;", c->d->barrier);
    tni_line(c->o, "}");
    tni_line(c->o, "%c%d = *(__local %s *)&red[tid - tid %% %d];", letter, i, type, team);
    tni_line(c->o, "%s;", c->d->barrier);
}

// Folds the variables letter and number of the instructions in set over `team` neighbouring threads.
static void fold_team(simt *c, const tni_set *set, char letter, int team)
{
    tni_set none = { 0 };
    if (team == 1 || !memcmp(set, &none, sizeof none)) return;
    if (c->m->cuda) fold_cuda(c, set, letter, team);
    for (int i = 0; i < c->k->nins && !c->m->cuda; i++)
        if (tni_has(set, i)) fold_opencl(c, i, letter, team);
}

// Folds the accumulators of lanes over the threads that share their R.
static void fold_lanes(simt *c, int i)
{
    name acc, other;
    snprintf(acc.s, sizeof acc.s, "k%d[j]", i);
    snprintf(other.s, sizeof other.s, "((%s%s *)red)[(y * %d + t) * %d + j]", c->local,
             type_of(c, i), c->m->rows, c->m->vector);
    tni_put(c->o, "%s", c->d->unroll);
    tni_line(c->o, "for (m_int j = 0; j < %d; j++) ((%s%s *)red)[tid * %d + j] = %s;", c->m->vector,
             c->local, type_of(c, i), c->m->vector, acc.s);
    tni_line(c->o, "%s;", c->d->barrier);
    tni_put(c->o, "%s", c->d->unroll);
    tni_line(c->o, "for (m_int j = 0; j < %d; j++) {", c->m->vector);
    tni_line(c->o, "%s = ((%s%s *)red)[t * %d + j];", acc.s, c->local, type_of(c, i), c->m->vector);
    tni_line(c->o, "for (m_int y = 1; y < %d; y++)", c->m->team);
    fold_line(c, i, "    ", acc.s, other.s);
    tni_line(c->o, "}");
    tni_line(c->o, "%s;", c->d->barrier);
}

// ---- loops over R ------------------------------------------------------------------------------

static tni_set folds_of(const simt *c, const tni_set *set)
{
    tni_set folds = { 0 };
    for (int i = 0; i < c->k->nins; i++)
        if (tni_has(set, i) && is_fold(&c->k->ins[i])) tni_join(&folds, i);
    return folds;
}

static void declare_folds(simt *c, const tni_set *folds)
{
    for (int i = 0; i < c->k->nins; i++) {
        const tni_ins *x = &c->k->ins[i];
        if (!tni_has(folds, i)) continue;
        const char *start = tni_fold_start(x->op, (tn_dtype)x->dtype);
        if (c->m->form == TNI_SIMT_ROW) {
            tni_line(c->o, "%s v%d = %s;", type_of(c, i), i, start);
            continue;
        }
        tni_line(c->o, "%s k%d[%d];", type_of(c, i), i, c->m->vector);
        tni_put(c->o, "%s", c->d->unroll);
        tni_line(c->o, "for (m_int j = 0; j < %d; j++) k%d[j] = %s;", c->m->vector, i, start);
    }
}

// LANE: tails for each r. All threads of the group are at the same r; the first adds up.
static void put_lane_tails(simt *c, const tni_set *set, bool after)
{
    for (int i = 0; i < c->k->nins; i++) {
        const tni_ins *x   = &c->k->ins[i];
        tni_set        one = { 0 };
        name           acc, value;
        if (!tni_has(set, i) || !is_tail(x)) continue;
        if (!after) {
            tni_line(c->o, "%s t%d = %s;", type_of(c, i), i,
                     tni_fold_start(x->op, (tn_dtype)x->dtype));
            continue;
        }
        tni_join(&one, i);
        fold_team(c, &one, 't', c->m->rows);
        snprintf(acc.s, sizeof acc.s, "s%d[i]", i);
        snprintf(value.s, sizeof value.s, "t%d", i);
        begin_indent(c);
        tni_put(c->o, "if (tid == 0) %s = !it ? %s : ", acc.s, value.s);
        tni_emit_fold(c->o, x->op, (tn_dtype)x->dtype, acc.s, value.s);
        tni_put(c->o, ";\n");
    }
}

// Whether a loop reads nothing but what is near: it needs no loads ahead of its work.
static bool all_stashed(const simt *c, const tni_set *set)
{
    for (int i = 0; i < c->k->nins; i++)
        if (tni_has(set, i) && c->k->ins[i].code == TNI_I_LOAD &&
            !(stashed(c, i) && tni_has(&c->fetched, i)))
            return false;
    return true;
}

static void put_loop(simt *c, int q)
{
    tni_set set = tni_needs_loop(c->k, q, &c->kept), none = { 0 };
    tni_set folds = folds_of(c, &set);
    bool    lane = c->m->form == TNI_SIMT_LANE, loops = c->m->hold != TNI_HOLD_REGISTERS;
    if (!memcmp(&set, &none, sizeof set)) return;
    c->stage = AT_LOOP;
    for (int i = 0; i < c->k->nins && c->m->keep_dear; i++)
        if (tni_has(&set, i) && tni_has(&c->dear, i)) tni_join(&c->kept, i);
    c->unroll = c->m->hold == TNI_HOLD_SHARED && all_stashed(c, &set) ? 1 : c->m->unroll;
    declare_arrays(c, &set, false);
    declare_folds(c, &folds);
    for (int i = 0; i < c->k->nins; i++)
        if (tni_has(&set, i)) put_hoisted(c, i);
    if (loops)
        tni_line(c->o, "for (%s from = %s; from < n; from += %d) {", c->index, lane ? "k" : "t",
                 c->m->team * c->unroll);
    put_fetches(c, &set);
    open_vector(c);
    if (lane) put_lane_tails(c, &set, false);
    put_work(c, &set, lane ? "live" : "");
    if (lane) put_lane_tails(c, &set, true);
    close_vector(c);
    if (loops) tni_line(c->o, "}");
    if (!lane) fold_team(c, &folds, 'v', c->m->team);
    for (int i = 0; i < c->k->nins && lane && c->m->team > 1; i++)
        if (tni_has(&folds, i)) fold_lanes(c, i);
}

// ---- the forms ---------------------------------------------------------------------------------

static void put_raw_word(simt *c, int w)
{
    tni_put(c->o, c->m->cuda ? "a.w[%d]" : "w%d", w);
}

// Where the partials of tail i are, of a part.
static void declare_part(simt *c, int i, const char *part)
{
    begin_indent(c);
    tni_put(c->o, "%s%s *const s%d = (%s%s *)(scratch + ", c->d->global, type_of(c, i), i,
            c->d->global, type_of(c, i));
    put_raw_word(c, TNI_WORD_SCRATCH);
    tni_put(c->o, " + ");
    put_raw_word(c, c->at.tail[i]);
    tni_put(c->o, ") + (m_long)(%s)", part);
    if (c->k->ins[i].per) tni_put(c->o, " * ");
    if (c->k->ins[i].per) put_raw_word(c, TNI_WORD_COLS);
    tni_put(c->o, ";\n");
}

// Tails: where the partials of this part go, and accumulators.
static void declare_tails(simt *c, const char *part)
{
    bool row = c->m->form == TNI_SIMT_ROW;
    for (int i = 0; i < c->k->nins; i++) {
        const tni_ins *x = &c->k->ins[i];
        if (!is_tail(x)) continue;
        const char *type = type_of(c, i), *start = tni_fold_start(x->op, (tn_dtype)x->dtype);
        declare_part(c, i, part);
        int n = c->m->vector * c->unroll;
        if (x->per && row && !c->m->tail_memory) {
            tni_line(c->o, "%s t%d[%d];", type, i, n);
            tni_put(c->o, "%s", c->d->unroll);
            tni_line(c->o, "for (m_int j = 0; j < %d; j++) t%d[j] = %s;", n, i, start);
        }
        if (!x->per) tni_line(c->o, "%s t%d = %s;", type, i, start);
    }
}

// Row tails that threads of a group added up apart.
static void put_group_partials(simt *c)
{
    tni_set rows = { 0 };
    for (int i = 0; i < c->k->nins; i++)
        if (is_tail(&c->k->ins[i]) && !c->k->ins[i].per) tni_join(&rows, i);
    fold_team(c, &rows, 't', c->m->team * c->m->rows);
    for (int i = 0; i < c->k->nins; i++)
        if (tni_has(&rows, i)) tni_line(c->o, "if (tid == 0) s%d[0] = t%d;", i, i);
}

// Folds an accumulator of a column or row over the teams of a group, into that of the first.
static void fold_rows(simt *c, int i, const char *acc)
{
    name a, b, test;
    if (c->m->rows == 1) return;
    snprintf(a.s, sizeof a.s, "*(%s%s *)&red[tid]", c->local, type_of(c, i));
    snprintf(b.s, sizeof b.s, "*(%s%s *)&red[tid + d * %d]", c->local, type_of(c, i), c->m->team);
    tni_line(c->o, "%s;", c->d->barrier);
    tni_line(c->o, "%s = %s;", a.s, acc);
    tni_line(c->o, "%s;", c->d->barrier);
    tni_line(c->o, "for (m_int d = %d; d > 0; d /= 2) {", c->m->rows / 2);
    snprintf(test.s, sizeof test.s, "if (tid / %d < d) ", c->m->team);
    fold_line(c, i, test.s, a.s, b.s);
    tni_line(c->o, "%s;", c->d->barrier);
    tni_line(c->o, "}");
    tni_line(c->o, "%s = %s;", acc, a.s);
}

// Partials of ROW: a thread has its columns, every thread of a team the row's.
static void put_row_partials(simt *c)
{
    int  v = c->m->vector;
    name acc;
    for (int i = 0; i < c->k->nins; i++) {
        const tni_ins *x = &c->k->ins[i];
        if (!is_tail(x) || (x->per && c->m->tail_memory)) continue;
        snprintf(acc.s, sizeof acc.s, x->per ? "t%d[q * %d + j]" : "t%d", i, v);
        if (!x->per) {
            fold_rows(c, i, acc.s);
            tni_line(c->o, "if (tid == 0) s%d[0] = t%d;", i, i);
            continue;
        }
        tni_put(c->o, "%s", c->d->unroll);
        tni_line(c->o, "for (m_int q = 0; q < %d; q++) {", c->unroll);
        tni_put(c->o, "%s", c->d->unroll);
        tni_line(c->o, "for (m_int j = 0; j < %d; j++) {", v);
        fold_rows(c, i, acc.s);
        tni_line(c->o, "const %s e = (from + q * %d) * %d + j%s;", c->index, c->m->team, v,
                 c->m->window ? " - shift" : "");
        tni_line(c->o, "if (tid < %d && %se < %s) s%d[e] = %s;", c->m->team,
                 c->m->window ? "e >= 0 && " : "", word_name(c, TNI_WORD_COLS).s, i, acc.s);
        close_vector(c);
    }
}

// Where the loads that shared memory holds begin.
static void declare_stash(simt *c)
{
    int before = -1, words = 0;
    if (c->m->hold != TNI_HOLD_SHARED) return;
    if (c->m->cuda) tni_line(c->o, "extern __shared__ uint4 stash[];");
    c->stage = AT_LOOP;
    for (int i = 0; i < c->k->nins; i++) {
        if (c->k->ins[i].code != TNI_I_LOAD || !stashed(c, i)) continue;
        if (before < 0) tni_line(c->o, "%suint4 *const h%d = stash;", c->local, i);
        else
            tni_line(c->o, "%suint4 *const h%d = h%d + (%s * %d + 3) / 4;", c->local, i, before,
                     word_name(c, TNI_WORD_VECTORS).s, words);
        before = i;
        words  = words_of(c, i);
    }
}

static void put_row_line(simt *c)
{
    name vectors = word_name(c, TNI_WORD_VECTORS), cols = word_name(c, TNI_WORD_COLS);
    tni_line(c->o, "const m_int live = row < %s;", word_name(c, TNI_WORD_LINES).s);
    tni_line(c->o, "const %s line = live ? row : %s - 1;", c->index,
             word_name(c, TNI_WORD_LINES).s);
    put_coordinates(c, 0, c->k->np, "line");
    put_bases(c);
    put_shift(c, c->k->tails);
    if (c->m->window)
        tni_line(c->o, "const %s n = live ? (%s + shift + %d) / %d : 0;", c->index, cols.s,
                 c->m->vector - 1, c->m->vector);
    else tni_line(c->o, "const %s n = live ? %s : 0;", c->index, vectors.s);
}

static void put_row(simt *c)
{
    tni_line(c->o, "const m_int t = tid %% %d;", c->m->team);
    declare_stash(c);
    if (c->m->hold == TNI_HOLD_REGISTERS)
        tni_line(c->o, "const %s from = t%s;", c->index,
                 !c->m->tiles ? ""
                 : c->m->cuda ? " + (m_int)(blockIdx.y * blockDim.x)"
                              : " + (m_int)(get_group_id(1) * get_local_size(0))");
    if (c->k->tails) declare_tails(c, c->d->group_id);
    if (c->k->tails && c->m->window) tni_line(c->o, "%s shift = 0;", c->index);
    if (c->k->tails && c->m->tiles) tni_line(c->o, "#pragma unroll 4");
    if (c->k->tails) {
        tni_line(c->o, "for (%s it = 0; it < %s; it++) {", c->index,
                 word_name(c, TNI_WORD_CHUNK).s);
        tni_line(c->o, "const %s row = (%s * %s + it) * %d + tid / %d;", c->index, c->d->group_id,
                 word_name(c, TNI_WORD_CHUNK).s, c->m->rows, c->m->team);
    } else {
        tni_line(c->o, "const %s row = (%s)%s * %d + tid / %d;", c->index, c->index, c->d->group_id,
                 c->m->rows, c->m->team);
    }
    put_row_line(c);
    for (int q = 0; q <= c->k->phases; q++) {
        tni_set set = tni_needs_row(c->k, q);
        c->stage    = AT_ROW;
        for (int i = 0; i < c->k->nins; i++)
            if (tni_has(&set, i)) put_ins(c, i);
        if (q < c->k->phases) put_loop(c, q);
    }
    if (!c->k->tails) return;
    tni_line(c->o, "}");
    put_row_partials(c);
}

// Values that are the same in all lanes, once for a thread.
static void put_scalars(simt *c)
{
    tni_set set = tni_needs_row(c->k, 0);
    c->stage    = AT_ROW;
    for (int i = 0; i < c->k->nins; i++)
        if (tni_has(&set, i) && tni_has(&c->scalar, i)) put_ins(c, i);
}

// The turns of a group over its units.
static void open_turns(simt *c, const char *unit, int per, const char *thread)
{
    name chunk = word_name(c, TNI_WORD_CHUNK);
    put_scalars(c);
    if (c->k->tails) {
        declare_tails(c, c->d->group_id);
        tni_line(c->o, "for (%s it = 0; it < %s; it++) {", c->index, chunk.s);
        tni_line(c->o, "const %s %s = ((%s)%s * %s + it) * %d + %s;", c->index, unit, c->index,
                 c->d->group_id, chunk.s, per, thread);
    } else {
        tni_line(c->o, "const %s %s = (%s)%s * %d + %s;", c->index, unit, c->index, c->d->group_id,
                 per, thread);
    }
}

static void close_turns(simt *c)
{
    if (!c->k->tails) return;
    tni_line(c->o, "}");
    put_group_partials(c);
}

static void put_point(simt *c)
{
    tni_set set = tni_needs_row(c->k, 0);
    open_turns(c, "u0", c->m->rows * c->unroll, "tid");
    c->stage = AT_LOOP;
    put_fetches(c, &set);
    open_vector(c);
    put_work(c, &set, "");
    close_vector(c);
    close_turns(c);
}

// A row point of LANE: fetch and work for the one vector of lanes.
static void put_lane_point(simt *c, const tni_set *set)
{
    tni_set none = { 0 }, work = *set;
    for (size_t w = 0; w < sizeof work.bit / sizeof *work.bit; w++)
        work.bit[w] &= ~c->scalar.bit[w];
    if (!memcmp(&work, &none, sizeof work)) return;
    c->stage = AT_LANES;
    for (int i = 0; i < c->k->nins; i++) {
        if (!tni_has(&work, i) || c->k->ins[i].code != TNI_I_LOAD || !moves(c, i)) continue;
        tni_line(c->o, "m_uint x%d[%d];", i, words_of(c, i));
        fetch(c, i);
    }
    declare_arrays(c, &work, false);
    tni_line(c->o, "{");
    put_work(c, &work, "live && k == 0");
    tni_line(c->o, "}");
}

static void put_lane(simt *c)
{
    name lines = word_name(c, TNI_WORD_LINES), vectors = word_name(c, TNI_WORD_VECTORS);
    tni_line(c->o, "const m_int t = tid %% %d, k = tid / %d;", c->m->rows, c->m->rows);
    open_turns(c, "unit", c->m->rows, "t");
    tni_line(c->o, "const %s units = %s * %s;", c->index, lines.s, vectors.s);
    tni_line(c->o, "const m_int live = unit < units;");
    tni_line(c->o, "const %s u = live ? unit : units - 1;", c->index);
    open_unit(c);
    tni_line(c->o, "const %s n = %s;", c->index, word_name(c, TNI_WORD_COLS).s);
    for (int q = 0; q <= c->k->phases; q++) {
        tni_set set = tni_needs_row(c->k, q);
        put_lane_point(c, &set);
        if (q < c->k->phases) put_loop(c, q);
    }
    close_turns(c);
}

// ---- finish ------------------------------------------------------------------------------------

// Joins the parts of a tail from `first` on, every step-th.
static void put_join(simt *c, int i, const char *first, int step)
{
    const tni_ins *x = &c->k->ins[i];
    name           acc, part;
    snprintf(acc.s, sizeof acc.s, "v%d", i);
    snprintf(part.s, sizeof part.s, x->per ? "s%d[z * %s + e]" : "s%d[z]", i,
             x->per ? word_name(c, TNI_WORD_COLS).s : "");
    tni_line(c->o, "%s %s = %s;", type_of(c, i), acc.s, tni_fold_start(x->op, (tn_dtype)x->dtype));
    tni_line(c->o, "for (m_long z = %s; z < %s; z += %d)", first, word_name(c, TNI_WORD_PARTS).s,
             step);
    fold_line(c, i, "    ", acc.s, part.s);
}

static void put_finish_values(simt *c, const tni_set *set)
{
    for (int i = 0; i < c->k->nins; i++)
        if (tni_has(set, i) && !is_tail(&c->k->ins[i])) put_ins(c, i);
}

// Everything that is one value, by all threads of a group.
static void finish_once(simt *c, int threads, const char *mine)
{
    tni_set set = tni_needs_finish(c->k, false), tails = { 0 };
    c->stage = AT_FINISH;
    for (int i = 0; i < c->k->nins; i++) {
        if (!is_tail(&c->k->ins[i]) || c->k->ins[i].per) continue;
        tni_join(&tails, i);
        put_join(c, i, "tid", threads);
    }
    fold_team(c, &tails, 'v', threads);
    tni_line(c->o, "m_int mine = %s;", mine);
    put_finish_values(c, &set);
}

static void declare_parts(simt *c)
{
    for (int i = 0; i < c->k->nins; i++)
        if (is_tail(&c->k->ins[i])) declare_part(c, i, "0");
}

// The last group to get here finishes.
static void finish_last(simt *c)
{
    tni_line(c->o, "__shared__ m_int last;");
    tni_line(c->o, "__threadfence();");
    tni_line(c->o, "__syncthreads();");
    tni_line(c->o, "if (tid == 0) last = atomicAdd((m_uint *)(fail + 2), 1u) + 1u == gridDim.x;");
    tni_line(c->o, "__syncthreads();");
    tni_line(c->o, "if (!last) return;");
    tni_line(c->o, "if (tid == 0) fail[2] = 0;");
    tni_line(c->o, "__threadfence();");
    tni_line(c->o, "{");
    declare_parts(c);
    finish_once(c, c->m->team * c->m->rows, "tid == 0");
    tni_line(c->o, "}");
}

// Columns: 32 to a group, each by as many threads as there are; they leave what they joined and add
// it up in order.
static void finish_columns(simt *c, int threads)
{
    tni_set set = tni_needs_finish(c->k, true), none = { 0 };
    if (!memcmp(&set, &none, sizeof set)) return;
    int ys = threads / 32;
    tni_line(c->o, "const %s column = (%s)%s * 32 + tid %% 32;", c->index, c->index,
             c->d->group_id);
    tni_line(c->o, "mine = tid < 32 && column < %s;", word_name(c, TNI_WORD_COLS).s);
    tni_line(c->o, "const %s e = column < %s ? column : 0;", c->index,
             word_name(c, TNI_WORD_COLS).s);
    put_coordinates(c, c->k->np, c->k->np + c->k->nr, "e");
    for (int i = 0; i < c->k->nins; i++) {
        const tni_ins *x = &c->k->ins[i];
        name           acc, other;
        if (!is_tail(x) || !x->per) continue;
        put_join(c, i, "tid / 32", ys);
        snprintf(acc.s, sizeof acc.s, "v%d", i);
        snprintf(other.s, sizeof other.s, "*(%s%s *)&red[y * 32 + tid %% 32]", c->local,
                 type_of(c, i));
        tni_line(c->o, "%s;", c->d->barrier);
        tni_line(c->o, "*(%s%s *)&red[tid] = v%d;", c->local, type_of(c, i), i);
        tni_line(c->o, "%s;", c->d->barrier);
        tni_line(c->o, "v%d = *(%s%s *)&red[tid %% 32];", i, c->local, type_of(c, i));
        tni_line(c->o, "for (m_int y = 1; y < %d; y++)", ys);
        fold_line(c, i, "    ", acc.s, other.s);
    }
    put_finish_values(c, &set);
}

// ---- the whole ---------------------------------------------------------------------------------

static void put_args(simt *c)
{
    const tni_kernel *k = c->k;
    tni_line(c->o, "struct %s_args {", c->name);
    tni_line(c->o, "void *b[%d];", k->nbuffer + 2);
    tni_line(c->o, "m_long w[%d];", c->at.count);
    tni_line(c->o, "};");
}

static void open_cuda(simt *c, const char *suffix, int threads)
{
    const tni_kernel *k        = c->k;
    int               resident = c->k->tails || c->m->hold == TNI_HOLD_SHARED ? 1024 / threads : 1;
    tni_line(c->o, "%s__launch_bounds__(%d, %d) %s%s(const %s_args a)", c->d->kernel, threads,
             resident > 1 ? resident : 1, c->name, suffix, c->name);
    tni_line(c->o, "{");
    for (int i = 0; i < k->nbuffer; i++) {
        const char *word = k->buffer[i].written ? "" : "const ";
        const char *type = tni_kept_type((tn_dtype)k->buffer[i].dtype);
        tni_line(c->o, "%s%s *const b%d = (%s%s *)a.b[%d];", word, type, i, word, type, i);
    }
    tni_line(c->o, "char *const scratch = (char *)a.b[%d];", k->nbuffer);
    tni_line(c->o, "m_long *const fail = (m_long *)a.b[%d];", k->nbuffer + 1);
}

static void open_opencl(simt *c, const char *suffix, int threads)
{
    const tni_kernel *k = c->k;
    tni_put(c->o, "__kernel __attribute__((reqd_work_group_size(%d, 1, 1))) void\n%s%s(", threads,
            c->name, suffix);
    for (int i = 0; i < k->nbuffer; i++)
        tni_put(c->o, "__global %s%s *b%d, ", k->buffer[i].written ? "" : "const ",
                tni_kept_type((tn_dtype)k->buffer[i].dtype), i);
    tni_put(c->o, "__global char *scratch, __global m_long *fail");
    for (int w = 0; w < c->at.count; w++) tni_put(c->o, ", m_long w%d", w);
    if (c->m->hold == TNI_HOLD_SHARED && !*suffix) tni_put(c->o, ", __local uint4 *stash");
    tni_put(c->o, ")\n");
    tni_line(c->o, "{");
}

// Opens a kernel; `red` is memory in which threads leave words for each other.
static void open_kernel(simt *c, const char *suffix, int threads, int red)
{
    if (c->m->cuda) open_cuda(c, suffix, threads);
    else open_opencl(c, suffix, threads);
    if (red) tni_line(c->o, "%sm_ulong red[%d];", c->d->shared, red);
    if (red && c->m->cuda) tni_line(c->o, "m_int par = 0;");
    tni_line(c->o, "const m_int tid = %s;", c->d->local_id);
}

// Words of `red` that the main kernel needs: for folds over threads, and where threads share the
// elements of R of a lane, one for each accumulator.
static int red_words(const simt *c)
{
    const tni_simt_class *m     = c->m;
    int                   group = m->team * m->rows, fold = m->cuda ? 64 * c->folds : group;
    int                   lanes = m->form == TNI_SIMT_LANE && m->team > 1 ? group * m->vector : 0;
    bool                  teams = m->form == TNI_SIMT_ROW && m->rows > 1;  // fold_rows
    if (m->form != TNI_SIMT_ROW && !c->k->tails) return lanes;
    if (m->form == TNI_SIMT_ROW && m->cuda && m->team <= 32 && !c->k->tails) return 0;
    if (teams && fold < group) fold = group;
    return fold > lanes ? fold : lanes;
}

// How many reductions are folded together, at most.
static int count_folds(const tni_kernel *k)
{
    int most = 1, tails = 0;
    for (int q = 0; q < k->phases; q++) {
        tni_set set = tni_needs_loop(k, q, NULL);
        int     n   = 0;
        for (int i = 0; i < k->nins; i++) n += tni_has(&set, i) && is_fold(&k->ins[i]);
        if (most < n) most = n;
    }
    for (int i = 0; i < k->nins; i++) tails += is_tail(&k->ins[i]);
    return most > tails ? most : tails;
}

// Values that vary along no axis and are made of such: the same in all lanes.
static void find_scalars(simt *c)
{
    uint8_t varies[TNI_MOST_INS];
    tni_varies(c->k, varies);
    for (int i = 0; i < c->k->nins && c->m->form != TNI_SIMT_ROW; i++) {
        const tni_ins *x     = &c->k->ins[i];
        const int16_t  op[3] = { x->a, x->b, x->c };
        bool           all   = !varies[i] && x->code != TNI_I_REDUCE && x->code != TNI_I_STORE;
        for (int n = 0; n < 3; n++)
            if (op[n] != TNI_NO_VALUE && !tni_has(&c->scalar, op[n])) all = false;
        if (all) tni_join(&c->scalar, i);
    }
}

static void put_finish_kernel(simt *c)
{
    int threads = c->m->finish_threads;
    tni_put(c->o, "\n");
    open_kernel(c, "_finish", threads,
                c->m->cuda && 64 * c->folds > threads ? 64 * c->folds : threads);
    declare_parts(c);
    name mine;
    snprintf(mine.s, sizeof mine.s, "tid == 0 && %s == 0", c->d->group_id);
    finish_once(c, threads, mine.s);
    finish_columns(c, threads);
    tni_line(c->o, "}");
}

void tni_emit_simt(tni_out *o, const tni_dialect *d, const tni_emit_item *item, bool no_double)
{
    const tni_simt_class *m = item->opts;
    const tni_kernel     *k = item->kernel;
    simt                  c = { .o = o, .k = k, .d = d, .m = m, .name = item->name };
    c.scribe                = (tni_scribe){ .out       = o,
                                            .dialect   = d,
                                            .kernel    = k,
                                            .no_double = no_double,
                                            .value     = on_value,
                                            .element   = on_element,
                                            .place     = on_place,
                                            .number    = on_number };
    c.index                 = m->wide ? "m_long" : "m_int";
    c.uindex                = m->wide ? "m_ulong" : "m_uint";
    c.local                 = m->cuda ? "" : "__local ";
    c.lane                  = k->lane_in_r ? k->np + k->nr - 1 : k->np - 1;
    c.again                 = tni_simt_again(k);
    c.dear                  = tni_simt_dear(k);
    c.folds                 = count_folds(k);
    c.unroll                = m->unroll;
    tni_simt_layout_of(k, &c.at);
    find_scalars(&c);
    if (m->cuda) put_args(&c);
    open_kernel(&c, "", m->team * m->rows, red_words(&c));
    if (m->form == TNI_SIMT_ROW) put_row(&c);
    else if (m->form == TNI_SIMT_LANE) put_lane(&c);
    else put_point(&c);
    if (m->finish == TNI_FINISH_LAST) finish_last(&c);
    tni_line(o, "}");
    if (m->finish == TNI_FINISH_KERNEL) put_finish_kernel(&c);
}
