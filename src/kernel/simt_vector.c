// Vectors in the text of a simt kernel: between memory, words and elements. What it prints, of
// test/golden/point.txt and norm.txt:
//
//     {                                                              tni_simt_fetch
//         const uint4 g = *(const uint4 *)(b0 + a0 + c);
//         x0[q * 4 + 0] = g.x;
//         x0[q * 4 + 1] = g.y;
//         x0[q * 4 + 2] = g.z;
//         x0[q * 4 + 3] = g.w;
//     }
//     {                                                              tni_simt_put_vector
//         uint4 g;
//         g.x = ((m_uint)(m_ushort)y30[0] << 0 | (m_uint)(m_ushort)y30[1] << 16);
//         ...
//         *(uint4 *)(b2 + a2 + c) = g;
//     }
//
// Words, not elements, are what stays in registers between fetch and work: two 16-bit elements take
// one.
#include "kernel/simt_emitter.h"

#include <stdio.h>
#include <string.h>

// Whether a vector may have elements outside its line: in a window, unless the pass excludes it.
static bool may_cross_edge(const tni_simt_emitter *c)
{
    return c->m->window && !c->interior;
}

// The type that moves `bytes` bytes in one instruction.
static const char *bits_type(int bytes)
{
    return bytes == 1   ? "unsigned char"
           : bytes == 2 ? "m_ushort"
           : bytes == 4 ? "m_uint"
           : bytes == 8 ? "uint2"
                        : "uint4";
}

// How word n of a vector of several words is spelled: g.x; of one word: g.
static const char *component_of(int words, int n)
{
    static const char *const part[] = { ".x", ".y", ".z", ".w" };
    return words > 1 ? part[n] : "";
}

// Prints the assignment of w words of a vector, from word `at` on, to the array of LOAD i.
static void put_words(tni_simt_emitter *c, int i, const char *from, int at, int w)
{
    for (int n = 0; n < w; n++)
        tni_out_line(c->o, "%c%d[%s%d] = %s%s;", c->word_letter, i, tni_simt_word_base(c, i).s,
                     at + n, from, component_of(w, n));
}

// Prints the fetch of a vector that crosses an end of the line: the elements inside one by one,
// shifted to their place in the words; the others are 0. Never a load outside the line, which may
// be outside the buffer.
static void fetch_edge(tni_simt_emitter *c, int i)
{
    const tni_ins *x    = &c->k->ins[i];
    int            size = (int)tni_dtype_size(buffer_dtype(c, i)), w = words_of(c, i);
    tni_text       base = tni_simt_word_base(c, i);
    tni_out_print(c->o, "%s", c->d->unroll);
    tni_out_line(c->o, "for (m_int j = 0; j < %d; j++) %c%d[%sj] = 0;", w, c->word_letter, i,
                 base.s);
    tni_out_print(c->o, "%s", c->d->unroll);
    tni_out_line(c->o, "for (m_int j = 0; j < %d; j++) {", c->m->vector);
    tni_out_line(c->o, "if (c + j < 0 || c + j >= %s) continue;", tni_simt_lanes_name(c).s);
    begin_indent(c);
    tni_out_print(c->o, "const %s g = ((%sconst %s *)b%d)[", size == 8 ? "uint2" : "m_uint",
                  c->d->global, bits_type(size), c->k->access[x->access].buffer);
    tni_simt_put_place(c, x->access, "(c + j)");
    tni_simt_put_index(c, i);
    tni_out_print(c->o, "];\n");
    if (size == 8)
        tni_out_line(c->o, "%c%d[%s2 * j] = g.x, %c%d[%s2 * j + 1] = g.y;", c->word_letter, i,
                     base.s, c->word_letter, i, base.s);
    else
        tni_out_line(c->o, "%c%d[%sj / %d] |= g << j %% %d * %d;", c->word_letter, i, base.s,
                     4 / size, 4 / size, 8 * size % 32);
    tni_out_line(c->o, "}");
}

void tni_simt_put_edge_test(tni_simt_emitter *c)
{
    tni_out_line(c->o, "if (c >= 0 && c + %d <= %s) {", c->m->vector, tni_simt_lanes_name(c).s);
}

// Prints the load of a piece of a vector, all of it or 16 bytes from element `at` on.
static void put_piece_load(tni_simt_emitter *c, int i, int at, int bytes)
{
    const tni_ins *x    = &c->k->ins[i];
    const char    *type = bits_type(bytes);
    int            size = (int)tni_dtype_size(buffer_dtype(c, i));
    begin_indent(c);
    tni_out_print(c->o, "const %s g = *(%sconst %s *)(b%d + ", type, c->d->global, type,
                  c->k->access[x->access].buffer);
    tni_simt_put_place(c, x->access, "c");
    tni_simt_put_index(c, i);
    if (at) tni_out_print(c->o, " + %d", at);
    tni_out_print(c->o, ");\n");
    put_words(c, i, "g", at * size / 4, (bytes + 3) / 4);
}

// A guard is tested once for the vector, since it does not vary along the lanes; where it is false
// the words stay undefined, and the value of the LOAD selects 0. The index adds the same to all
// elements.
void tni_simt_fetch(tni_simt_emitter *c, int i)
{
    const tni_ins *x    = &c->k->ins[i];
    int            size = (int)tni_dtype_size(buffer_dtype(c, i)), bytes = c->m->vector * size;
    int            more = bytes > TNI_VECTOR_BYTES ? TNI_VECTOR_BYTES / size : 0;
    if (x->b != TNI_NO_VALUE) tni_out_line(c->o, "if (%s) {", tni_simt_value_name(c, x->b).s);
    if (may_cross_edge(c)) tni_simt_put_edge_test(c);
    else tni_out_line(c->o, "{");
    put_piece_load(c, i, 0, more ? TNI_VECTOR_BYTES : bytes);
    for (int at = more; more && at < c->m->vector; at += more) {
        tni_out_line(c->o, "}");
        tni_out_line(c->o, "{");
        put_piece_load(c, i, at, TNI_VECTOR_BYTES);
    }
    if (may_cross_edge(c)) {
        tni_out_line(c->o, "} else {");
        fetch_edge(c, i);
    }
    tni_out_line(c->o, "}");
    if (x->b != TNI_NO_VALUE) tni_out_line(c->o, "}");
}

// Prints word w of the elements y of STORE i: half of an 8-byte element, the bits of a 4-byte one,
// or several narrower ones side by side.
static void put_packed(tni_simt_emitter *c, int i, int w)
{
    tn_dtype dt   = buffer_dtype(c, i);
    int      size = (int)tni_dtype_size(dt);
    if (size == 8) {
        tni_out_print(c->o, "(m_uint)(%s(y%d[%d]) >> %d)", dt == TN_F64 ? "m_bits_d" : "(m_ulong)",
                      i, w / 2, w % 2 * 32);
    } else if (size == 4) {
        tni_out_print(c->o, "%s(y%d[%d])", dt == TN_F32 ? "m_bits_f" : "(m_uint)", i, w);
    } else {
        int n = 4 / size < c->m->vector ? 4 / size : c->m->vector;
        for (int j = 0; j < n; j++)
            tni_out_print(c->o, "%s(m_uint)(%s)y%d[%d] << %d", j ? " | " : "(", bits_type(size), i,
                          w * 4 / size + j, 8 * size * j);
        tni_out_print(c->o, ")");
    }
}

// Packs the elements y into words and stores them. At an edge, elements outside the line are not
// written: they belong to the neighbouring line, or to another buffer.
void tni_simt_put_vector(tni_simt_emitter *c, int i)
{
    const tni_ins *x     = &c->k->ins[i];
    int            bytes = c->m->vector * (int)tni_dtype_size(buffer_dtype(c, i));
    const char    *type  = bits_type(bytes);
    int            b     = c->k->access[x->access].buffer;
    if (may_cross_edge(c)) tni_simt_put_edge_test(c);
    else tni_out_line(c->o, "{");
    tni_out_line(c->o, "%s g;", type);
    for (int w = 0; w < words_of(c, i); w++) {
        begin_indent(c);
        tni_out_print(c->o, "g%s = ", component_of(words_of(c, i), w));
        put_packed(c, i, w);
        tni_out_print(c->o, ";\n");
    }
    begin_indent(c);
    // NVIDIA's compiler splits a plain vector store into elements if the other branch stores
    // elements; m_put_ is inline assembly.
    bool put = tni_gpu_has(c->m, TNI_GPU_VECTORS) && c->m->window && bytes >= 8;
    if (put) tni_out_print(c->o, "m_put_%s(b%d + ", type, b);
    else tni_out_print(c->o, "*(%s%s *)(b%d + ", c->d->global, type, b);
    tni_simt_put_place(c, x->access, "c");
    tni_out_print(c->o, put ? ", g);\n" : ") = g;\n");
    if (may_cross_edge(c)) {
        tni_out_line(c->o, "} else {");
        tni_out_print(c->o, "%s", c->d->unroll);
        tni_out_line(c->o, "for (m_int j = 0; j < %d; j++)", c->m->vector);
        begin_indent(c);
        tni_out_print(c->o, "    if (c + j >= 0 && c + j < %s) b%d[", tni_simt_lanes_name(c).s, b);
        tni_simt_put_place(c, x->access, "(c + j)");
        tni_out_print(c->o, "] = y%d[j];\n", i);
    }
    tni_out_line(c->o, "}");
}

// i counts the vectors of the row, so that neighbouring threads access neighbouring banks.
void tni_simt_put_stash(tni_simt_emitter *c, int i, bool out)
{
    int         w    = words_of(c, i);
    const char *type = w == 1 ? "m_uint" : w == 2 ? "uint2" : "uint4";
    tni_out_line(c->o, "{");
    if (out) {
        tni_out_line(c->o, "%s g;", type);
        for (int n = 0; n < w; n++)
            tni_out_line(c->o, "g%s = x%d[q * %d + %d];", component_of(w, n), i, w, n);
        tni_out_line(c->o, "((%s%s *)h%d)[i] = g;", c->local, type, i);
    } else {
        tni_out_line(c->o, "const %s g = ((%sconst %s *)h%d)[i];", type, c->local, type, i);
        put_words(c, i, "g", 0, w);
    }
    tni_out_line(c->o, "}");
}

bool tni_simt_stashed(const tni_simt_emitter *c, int i)
{
    return c->m->hold == TNI_HOLD_SHARED && tni_set_has(&c->reread, i) &&
           tni_simt_moves_vector(c, i);
}
