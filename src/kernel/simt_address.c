// Names and addresses in the text of a simt kernel: what a value is called where it is read, and
// which element of a buffer an access means. What it prints, of test/golden/norm.txt:
//
//     const m_int i0 = line;                                         tni_simt_put_coordinates
//     const m_int a0 = (m_int)a.w[8] + i0 * (m_int)a.w[9];           tni_simt_put_bases
//     ... *(const uint4 *)(b0 + a0 + c) ...                          tni_simt_put_place
//     const float v0 = m_bf16_to_float((m_ushort)(x0[q * 4 + j / 2] >> j % 2 * 16));    an element of words
//
// An address is the base of its line, computed once, plus the terms of R and of the lane: the
// compiler then keeps one register for each access, not one for each axis.
#include "kernel/simt_emitter.h"

#include <stdio.h>
#include <string.h>

// At a row point a load is of one element, and the finish stage reads column by column: neither has
// vectors.
bool tni_simt_moves_vector(const tni_simt_emitter *c, int i)
{
    const tni_ins *x     = &c->k->ins[i];
    bool           store = x->code == TNI_I_STORE && (c->m->vector > 1 || tni_simt_tiled(c, i));
    return (x->code == TNI_I_LOAD || store) && c->stage != TNI_AT_FINISH &&
           c->stage != TNI_AT_ROW && c->m->vectors >> x->access & 1;
}

// A LANE thread has several rows side by side, so what ROW has as one variable of the row it has as
// an array.
bool tni_simt_is_lane_array(const tni_simt_emitter *c, int i)
{
    const tni_ins *x = &c->k->ins[i];
    return c->m->form == TNI_SIMT_LANE && !(x->per & TNI_PER_COL) && !tni_is_tail(x) &&
           !tni_set_has(&c->scalar, i) && c->stage != TNI_AT_FINISH;
}

// k3[j]: one for each lane (LANE). k3[q * V + j]: kept from an earlier loop, for every element that
// the thread has. v3: a variable of the scope.
tni_text tni_simt_value_name(const tni_simt_emitter *c, int i)
{
    tni_text n;
    if (tni_simt_is_lane_array(c, i)) snprintf(n.s, sizeof n.s, "k%d[j]", i);
    else if (tni_set_has(&c->kept, i) && c->stage == TNI_AT_LOOP)
        snprintf(n.s, sizeof n.s, "k%d[q * %d + j]", i, c->m->vector);
    else snprintf(n.s, sizeof n.s, "v%d", i);
    return n;
}

tni_text tni_simt_word_name(const tni_simt_emitter *c, int w)
{
    tni_text n;
    snprintf(n.s, sizeof n.s, tni_gpu_has(c->m, TNI_GPU_STRUCT) ? "(%s)a.w[%d]" : "(%s)w%d",
             c->index, w);
    return n;
}

static tni_text size_name(const tni_simt_emitter *c, int axis)
{
    return tni_simt_word_name(c, TNI_WORD_SIZES + axis);
}

// The size of the lane axis bounds every vector: edges of windows are tested against it.
tni_text tni_simt_lanes_name(const tni_simt_emitter *c)
{
    return size_name(c, c->lane);
}

// Prints what a coordinate adds to an address. Strides of class 0 and 1 need no launch word.
static void put_stride_term(tni_simt_emitter *c, int access, int axis, const char *coordinate)
{
    int class = c->k->access[access].stride[axis];
    if (class == TNI_STRIDE_1) tni_out_print(c->o, " + %s", coordinate);
    if (class == TNI_STRIDE_N)
        tni_out_print(c->o, " + %s * %s", coordinate,
                      tni_simt_word_name(c, c->at.stride[access][axis]).s);
}

static void put_axis_term(tni_simt_emitter *c, int access, int axis)
{
    tni_text n;
    snprintf(n.s, sizeof n.s, "i%d", axis);
    put_stride_term(c, access, axis, n.s);
}

// At row points of POINT and LANE nothing but the offset is printed: the values there are scalars,
// which vary along no axis. In the finish stage there is no line, so the address begins with the
// offset, and all of R is added.
void tni_simt_put_place(tni_simt_emitter *c, int access, const char *lane)
{
    const tni_kernel *k    = c->k;
    bool              bare = c->stage == TNI_AT_ROW && c->m->form != TNI_SIMT_ROW;  // no line yet
    if (bare || c->stage == TNI_AT_FINISH)
        tni_out_print(c->o, "%s", tni_simt_word_name(c, c->at.offset[access]).s);
    else tni_out_print(c->o, "a%d", access);
    if (bare) return;
    for (int i = k->np; i < k->np + k->nr; i++)
        if (i != c->lane || c->stage == TNI_AT_FINISH) put_axis_term(c, access, i);
    if (c->stage != TNI_AT_FINISH && c->stage != TNI_AT_ROW && c->lane >= 0)
        put_stride_term(c, access, c->lane, lane);
}

// A CHECK has brought the index into range before, so it is narrowed to the type of indices here.
void tni_simt_put_index(tni_simt_emitter *c, int i)
{
    const tni_ins *x = &c->k->ins[i];
    if (x->code != TNI_I_LOAD || x->a == TNI_NO_VALUE) return;
    tni_out_print(c->o, " + (%s)%s * %s", c->index, tni_simt_value_name(c, x->a).s,
                  tni_simt_word_name(c, c->at.stride[x->access][TNI_AXES]).s);
}

// From the innermost axis outwards: a division and a product for each axis but the first, unsigned,
// for which GPUs need fewer instructions. The quotient of an axis is the number that the next one
// divides.
//
//     const m_int d1 = (m_int)((m_uint)line / (m_uint)(m_int)a.w[7]);
//     const m_int i1 = line - d1 * (m_int)a.w[7];
//     const m_int i0 = d1;
void tni_simt_put_coordinates(tni_simt_emitter *c, int from, int to, const char *number)
{
    tni_text n;
    snprintf(n.s, sizeof n.s, "%s", number);
    for (int i = to - 1; i > from; i--) {
        tni_out_line(c->o, "const %s d%d = (%s)((%s)%s / (%s)%s);", c->index, i, c->index,
                     c->uindex, n.s, c->uindex, size_name(c, i).s);
        tni_out_line(c->o, "const %s i%d = %s - d%d * %s;", c->index, i, n.s, i, size_name(c, i).s);
        snprintf(n.s, sizeof n.s, "d%d", i);
    }
    if (from < to) tni_out_line(c->o, "const %s i%d = %s;", c->index, from, n.s);
}

// The lane's term is left out: it differs from vector to vector.
void tni_simt_put_base(tni_simt_emitter *c, int access)
{
    begin_indent(c);
    tni_out_print(c->o, "const %s a%d = %s", c->index, access,
                  tni_simt_word_name(c, c->at.offset[access]).s);
    for (int i = 0; i < c->k->np; i++)
        if (i != c->lane) put_axis_term(c, access, i);
    tni_out_print(c->o, ";\n");
}

// Accesses that only the finish stage uses have no base: it may run without a line. Those of tiles
// have bases of their own, in both directions.
void tni_simt_put_bases(tni_simt_emitter *c)
{
    tni_set  need = tni_needs_main(c->k);
    uint64_t used = 0;
    for (int i = 0; i < c->k->nins; i++)
        if (tni_set_has(&need, i) && c->k->ins[i].access >= 0 && !c->k->ins[i].finish &&
            (c->k->ins[i].code == TNI_I_LOAD || c->k->ins[i].code == TNI_I_STORE ||
             c->k->ins[i].code == TNI_I_PLACE))
            used |= (uint64_t)1 << c->k->ins[i].access;
    for (int a = 0; a < c->k->naccess; a++)
        if (used >> a & 1 && !(c->m->tiled >> a & 1)) tni_simt_put_base(c, a);
}

// In CUDA the real address decides, so that a window holds for any offset; in OpenCL, where a text
// cannot see addresses, the index in the buffer, whose start is aligned. declared: `shift` exists,
// outside a loop over rows, because the partial results after the loop need it.
void tni_simt_put_shift(tni_simt_emitter *c, bool declared)
{
    if (!c->m->window) return;
    int    a    = c->m->leader;
    size_t size = tni_dtype_size((tn_dtype)c->k->buffer[c->k->access[a].buffer].dtype);
    begin_indent(c);
    if (!declared) tni_out_print(c->o, "const %s ", c->index);
    tni_out_print(c->o, "shift = (%s)(", c->index);
    if (tni_gpu_has(c->m, TNI_GPU_STRUCT))
        tni_out_print(c->o, "(m_ulong)(b%d + a%d) / %d", c->k->access[a].buffer, a, (int)size);
    else tni_out_print(c->o, "a%d", a);
    tni_out_print(c->o, " & %d);\n", c->m->vector - 1);
}

// Row points of LANE have one vector and no q, and what is the same in every row is there once.
tni_text tni_simt_word_base(const tni_simt_emitter *c, int i)
{
    tni_text n = { "" };
    if (c->stage != TNI_AT_LANES && !(c->m->columns >> c->k->ins[i].access & 1))
        snprintf(n.s, sizeof n.s, "q * %d + ", words_of(c, i));
    return n;
}

// Prints element j of a load's words, in the storage type: 8-byte elements from two words, 4-byte
// ones by a bit cast, narrower ones by a shift, since 4 / size of them share a word.
static void put_element_bits(tni_simt_emitter *c, int i)
{
    tn_dtype dt   = buffer_dtype(c, i);
    int      size = (int)tni_dtype_size(dt);
    tni_text x, base = tni_simt_word_base(c, i);
    tni_text before = tni_text_of("(%s)", tni_storage_type(dt));
    if (tni_is_float(dt)) before = tni_text_of(size == 8 ? "m_double_bits" : "m_float_bits");
    snprintf(x.s, sizeof x.s, "x%d[%.40s", i, base.s);
    if (size == 8)
        tni_out_print(c->o, "%s((m_ulong)%s2 * j + 1] << 32 | %s2 * j])", before.s, x.s, x.s);
    else if (size == 4) tni_out_print(c->o, "%s(%sj])", before.s, x.s);
    else
        tni_out_print(c->o, "(%s)(%sj / %d] >> j %% %d * %d)", tni_storage_type(dt), x.s, 4 / size,
                      4 / size, 8 * size);
}

static void put_simt_value(tni_emitter *s, int i)
{
    tni_out_print(s->out, "%s", tni_simt_value_name((tni_simt_emitter *)s, i).s);
}

// The element of a LOAD is taken from its words if it moved as a vector, that of a STORE goes to
// the array y of its vector; else both are elements of the buffer.
static void put_simt_element(tni_emitter *s, int i)
{
    tni_simt_emitter *c = (tni_simt_emitter *)s;
    const tni_ins    *x = &c->k->ins[i];
    if (tni_simt_moves_vector(c, i) && x->code == TNI_I_LOAD) {
        put_element_bits(c, i);
    } else if (tni_simt_moves_vector(c, i)) {
        tni_out_print(s->out, "y%d[j]", i);
    } else {
        tni_out_print(s->out, "b%d[", c->k->access[x->access].buffer);
        tni_simt_put_place(c, x->access, "l");
        tni_simt_put_index(c, i);
        tni_out_print(s->out, "]");
    }
}

static void put_simt_place(tni_emitter *s, int i)
{
    tni_simt_emitter *c = (tni_simt_emitter *)s;
    tni_out_print(s->out, "(m_long)(");
    tni_simt_put_place(c, c->k->ins[i].access, "(c + j)");
    tni_out_print(s->out, ")");
}

static void put_simt_number(tni_emitter *s, int n)
{
    tni_simt_emitter *c = (tni_simt_emitter *)s;
    tni_out_print(s->out, tni_gpu_has(c->m, TNI_GPU_STRUCT) ? "(m_ulong)a.w[%d]" : "(m_ulong)w%d",
                  c->at.number[n]);
}

// `user` stays NULL: the emitter is the first member of tni_simt_emitter, and callbacks cast to
// that.
tni_emitter tni_simt_callbacks(const tni_kernel *k, const tni_dialect *d, tni_out *o)
{
    return (tni_emitter){ .out     = o,
                          .dialect = d,
                          .kernel  = k,
                          .value   = put_simt_value,
                          .element = put_simt_element,
                          .place   = put_simt_place,
                          .number  = put_simt_number };
}
