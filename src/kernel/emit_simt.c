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
    tni_simt_layout       at;
    tni_set               scalar;   // forms of lanes: values that are the same in all of them
    tni_set               kept;     // values in arrays from loop to loop
    tni_set               fetched;  // loads whose words are held
    tni_set               again;    // loads that several loops read
    stage                 stage;
    int                   lane;  // axis
    int                   folds;  // most reductions of one loop
} simt;

typedef struct {
    char s[64];
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
    const tni_kernel *k = c->k;
    if (c->stage == AT_FINISH) tni_put(c->o, "%s", word_name(c, c->at.offset[access]).s);
    else tni_put(c->o, "a%d", access);
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
        tni_put(c->o, "%*sconst %s a%d = %s", 4 * c->o->depth, "", c->index, a,
                word_name(c, c->at.offset[a]).s);
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
    tni_put(c->o, "%*s%s%sshift = (%s)(", 4 * c->o->depth, "", declared ? "" : "const ",
            declared ? "" : c->index[2] == 'i' ? "m_int " : "m_long ", c->index);
    if (c->m->cuda)
        tni_put(c->o, "(m_ulong)(b%d + a%d) / %d", c->k->access[a].buffer, a, (int)size);
    else tni_put(c->o, "a%d", a);
    tni_put(c->o, " & %d);\n", c->m->vector - 1);
}

// ---- elements ----------------------------------------------------------------------------------

// Element j of a load's words, in the type kept in memory.
static void put_raw(simt *c, int i)
{
    tn_dtype dt   = buffer_dtype(c, i);
    int      size = (int)tni_dtype_size(dt), w = words_of(c, i);
    char     x[48];
    snprintf(x, sizeof x, c->stage == AT_LANES ? "x%d[" : "x%d[q * %d + ", i, w);
    if (size == 8)
        tni_put(c->o, "%s((m_ulong)%s2 * j + 1] << 32 | %s2 * j])",
                dt == TN_F64 ? "m_double_bits" : "(m_long)", x, x);
    else if (size == 4) tni_put(c->o, "%s(%sj])", dt == TN_F32 ? "m_float_bits" : "(m_int)", x);
    else
        tni_put(c->o, "(%s)(%sj / %d] >> j %% %d * %d)", tni_kept_type(dt), x, 4 / size, 4 / size,
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
    put_place(c, c->k->ins[i].access, "l");
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

static void put_words(simt *c, int i, const char *from)
{
    int         w = words_of(c, i);
    const char *q = c->stage == AT_LANES ? "0 * q" : "q";
    for (int n = 0; n < w; n++)
        tni_line(c->o, "x%d[%s * %d + %d] = %s%.2s;", i, q, w, n, from, w > 1 ? &".x.y.z.w"[2 * n] : "");
}

static void begin_indent(simt *c)
{
    tni_put(c->o, "%*s", 4 * c->o->depth, "");
}

// Elements of a vector that are in the line, one by one.
static void fetch_edge(simt *c, int i)
{
    const tni_ins *x    = &c->k->ins[i];
    int            size = (int)tni_dtype_size(buffer_dtype(c, i)), w = words_of(c, i);
    const char    *q = c->stage == AT_LANES ? "" : "q * ", *b = bits_type(size);
    char           base[32] = "";
    if (*q) snprintf(base, sizeof base, "q * %d + ", w);
    tni_put(c->o, "%s", c->d->unroll);
    tni_line(c->o, "for (m_int j = 0; j < %d; j++) x%d[%sj] = 0;", w, i, base);
    tni_put(c->o, "%s", c->d->unroll);
    tni_line(c->o, "for (m_int j = 0; j < %d; j++) {", c->m->vector);
    tni_line(c->o, "if (c + j < 0 || c + j >= %s) continue;", lanes_name(c).s);
    begin_indent(c);
    tni_put(c->o, "const %s g = ((%sconst %s *)b%d)[", size == 8 ? "uint2" : "m_uint",
            c->d->global, b, c->k->access[x->access].buffer);
    put_place(c, x->access, "(c + j)");
    put_index(c, i);
    tni_put(c->o, "];\n");
    if (size == 8) tni_line(c->o, "x%d[%s2 * j] = g.x, x%d[%s2 * j + 1] = g.y;", i, base, i, base);
    else
        tni_line(c->o, "x%d[%sj / %d] |= g << j %% %d * %d;", i, base, 4 / size, 4 / size,
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
        tni_put(c->o, "g%.2s = ", bytes > 4 ? &".x.y.z.w"[2 * w] : "");
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
    begin_indent(c);
    tni_put(c->o, "%s%s = ", test, acc);
    tni_emit_fold(c->o, x->op, (tn_dtype)x->dtype, acc, value_name(c, x->a).s);
    tni_put(c->o, ";\n");
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
        tni_emit_store(&c->scribe, i);
    } else {
        name n = value_name(c, i);
        if (*n.s == 'v') tni_put(c->o, "const %s ", type_of(c, i));
        tni_put(c->o, "%s = ", n.s);
        tni_emit_value(&c->scribe, i);
    }
    tni_put(c->o, ";\n");
}

// ---- passes over vectors -----------------------------------------------------------------------

static void open_lanes(simt *c)
{
    tni_put(c->o, "%s", c->d->unroll);
    tni_line(c->o, "for (m_int j = 0; j < %d; j++) {", c->m->vector);
    if (c->m->window) {
        tni_line(c->o, "const m_int ok = c + j >= 0 && c + j < %s%s;", lanes_name(c).s,
                 c->m->form == TNI_SIMT_LANE ? " && live" : "");
        tni_line(c->o, "const %s l = c + j < 0 ? 0 : c + j < %s ? c + j : %s - 1;", c->index,
                 lanes_name(c).s, lanes_name(c).s);
        return;
    }
    if (c->m->form == TNI_SIMT_LANE) tni_line(c->o, "const m_int ok = live;");
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
            tni_line(c->o, "%s k%d[%d];", type_of(c, i), i, v * c->m->unroll);
        if (c->stage == AT_LANES && in_lanes(c, i))
            tni_line(c->o, "%s k%d[%d];", type_of(c, i), i, v);
    }
}

// The work of a vector whose loads are there.
static void put_work(simt *c, const tni_set *set, const char *guard)
{
    declare_arrays(c, set, true);
    open_lanes(c);
    for (int i = 0; i < c->k->nins; i++)
        if (tni_has(set, i) && !tni_has(&c->scalar, i)) put_ins(c, i);
    tni_line(c->o, "}");
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
    tni_line(c->o, "const %s line = (%s)((%s)u / (%s)%s);", c->index, c->index, c->uindex,
             c->uindex, vectors.s);
    if (c->k->np > 1) put_coordinates(c, 0, c->k->np - 1, "line");
    put_bases(c);
    put_shift(c, false);
    tni_line(c->o, "const %s c = (u - line * %s) * %d%s;", c->index, vectors.s, c->m->vector,
             c->m->window ? " - shift" : "");
}

// Begins the loop over the vectors q a thread has in hand, and the block for one of them.
static void open_vector(simt *c)
{
    const tni_kernel *k = c->k;
    tni_put(c->o, "%s", c->d->unroll);
    tni_line(c->o, "for (m_int q = 0; q < %d; q++) {", c->m->unroll);
    if (c->m->form == TNI_SIMT_POINT) {
        tni_line(c->o, "const %s u = u0 + q * %d;", c->index, c->m->rows);
        tni_line(c->o, "if (u < %s * %s) {", word_name(c, TNI_WORD_LINES).s,
                 word_name(c, TNI_WORD_VECTORS).s);
        open_unit(c);
        return;
    }
    tni_line(c->o, "const %s i = i0 + q * %d;", c->index, c->m->team);
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

// The words of LOAD i in shared memory at vector i; `out` copies them there.
static void put_stash(simt *c, int i, bool out)
{
    int         w    = words_of(c, i);
    const char *type = w == 1 ? "m_uint" : w == 2 ? "uint2" : "uint4";
    tni_line(c->o, "{");
    if (out) {
        tni_line(c->o, "%s g;", type);
        for (int n = 0; n < w; n++)
            tni_line(c->o, "g%.2s = x%d[q * %d + %d];", w > 1 ? &".x.y.z.w"[2 * n] : "", i, w, n);
        tni_line(c->o, "((%s%s *)h%d)[i] = g;", c->d->shared[2] == 's' ? "" : c->d->shared, type, i);
    } else {
        tni_line(c->o, "const %s g = ((%s%s *)h%d)[i];", type,
                 c->d->shared[2] == 's' ? "" : c->d->shared, type, i);
        put_words(c, i, "g");
    }
    tni_line(c->o, "}");
}

// The loads of a pass: those not held yet. In shared memory a thread reads what it wrote itself, so
// no barrier is needed.
static void put_fetches(simt *c, const tni_set *set)
{
    bool opened = false, loops = c->m->hold != TNI_HOLD_REGISTERS;
    for (int i = 0; i < c->k->nins; i++) {
        if (!tni_has(set, i) || c->k->ins[i].code != TNI_I_LOAD || !moves(c, i)) continue;
        bool stash = c->m->hold == TNI_HOLD_SHARED && tni_has(&c->again, i);
        bool held  = tni_has(&c->fetched, i);
        if (held && !loops) continue;
        if (!held || loops)
            tni_line(c->o, "m_uint x%d[%d];", i, words_of(c, i) * c->m->unroll);
    }
    for (int i = 0; i < c->k->nins; i++) {
        if (!tni_has(set, i) || c->k->ins[i].code != TNI_I_LOAD || !moves(c, i)) continue;
        bool stash = c->m->hold == TNI_HOLD_SHARED && tni_has(&c->again, i);
        bool held  = tni_has(&c->fetched, i);
        if (held && !loops) continue;
        if (!opened) open_vector(c);
        opened = true;
        if (held && stash) put_stash(c, i, false);
        else fetch(c, i);
        if (!held && stash) put_stash(c, i, true);
        tni_join(&c->fetched, i);
    }
    if (opened) close_vector(c);
}
