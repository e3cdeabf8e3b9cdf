// Prefetch in the text of a simt kernel whose teams have several rows, one after the other, in
// registers: while a row is computed, the words of the next are in flight. Words x are of the
// current row, z of the next. What it prints, of test/golden/tails.txt:
//
//     m_uint x0[8];
//     { const m_int row = ...; ... x0[q * 4 + 0] = g.x; ... }        the first row
//     for (m_int it = 0; it < (m_int)a.w[3]; it++) {
//         const m_int row = ...;
//         m_uint z0[8];
//         { const m_int row = it + 1 < ...; ... z0[q * 4 + 0] = g.x; ... }
//         ... the work on x0 ...
//         for (m_int j = 0; j < 8; j++) x0[j] = z0[j];
//     }
//
// Values of the row that are loaded (its mean, say) go the same way: x and z are then one value,
// and the row begins with `const float v3 = x3;`.
//
// Without it a team would wait for memory at the start of every row: its rows are not independent
// threads that a multiprocessor could switch between.
#include "kernel/simt_emitter.h"

// Loads of the row's elements without index and guard: an index would have to be loaded first.
static bool is_prefetched(const tni_simt_emitter *c, int i)
{
    const tni_ins *x    = &c->k->ins[i];
    tni_set        need = tni_needs_main(c->k);
    return x->code == TNI_I_LOAD && x->a == TNI_NO_VALUE && x->b == TNI_NO_VALUE &&
           x->per == TNI_PER_ELEM && tni_set_has(&need, i) && tni_simt_moves_vector(c, i);
}

// Loads of one value for the row. The first loop would wait for them, however early the elements
// came.
bool tni_simt_prefetches_value(const tni_simt_emitter *c, int i)
{
    const tni_ins *x    = &c->k->ins[i];
    tni_set        need = tni_needs_main(c->k);
    return c->m->prefetch_row && x->code == TNI_I_LOAD && x->a == TNI_NO_VALUE &&
           x->b == TNI_NO_VALUE && x->per == TNI_PER_ROW && !x->finish && tni_set_has(&need, i);
}

// Declares the arrays of words, and the values of the row, x or z.
static void declare_words(tni_simt_emitter *c, char letter)
{
    for (int i = 0; i < c->k->nins; i++) {
        if (is_prefetched(c, i))
            tni_out_line(c->o, "m_uint %c%d[%d];", letter, i, words_of(c, i) * c->unroll);
        if (tni_simt_prefetches_value(c, i))
            tni_out_line(c->o, "%s %c%d;", value_type(c, i), letter, i);
    }
}

// Prints the loads of a row's values. A row that does not exist has the address of the last one.
static void put_value_fetches(tni_simt_emitter *c)
{
    c->stage = TNI_AT_ROW;
    for (int i = 0; i < c->k->nins; i++) {
        if (!tni_simt_prefetches_value(c, i)) continue;
        begin_indent(c);
        tni_out_print(c->o, "%c%d = ", c->word_letter, i);
        tni_emit_value(&c->emitter, i);
        tni_out_print(c->o, ";\n");
    }
    c->stage = TNI_AT_LOOP;
}

// Prints the fetches of a row in a block of its own; `row` is the number of the row. The block
// declares the row's facts anew, so that they do not collide with those of the current row.
static void put_row_fetches(tni_simt_emitter *c, const char *row)
{
    tni_out_line(c->o, "{");
    tni_out_line(c->o, "const %s row = %s;", c->index, row);
    tni_simt_put_row_line(c, true);
    put_value_fetches(c);
    tni_simt_open_vector(c);
    for (int i = 0; i < c->k->nins; i++)
        if (is_prefetched(c, i)) tni_simt_fetch(c, i);
    tni_simt_close_vector(c);
    tni_out_line(c->o, "}");
}

// From here on the loads count as fetched: the first loop of a row finds their words in registers.
void tni_simt_open_prefetch(tni_simt_emitter *c)
{
    c->stage = TNI_AT_LOOP;
    declare_words(c, 'x');
    put_row_fetches(c, tni_simt_row_name(c, "0").s);
    for (int i = 0; i < c->k->nins; i++)
        if (is_prefetched(c, i)) tni_set_add(&c->fetched, i);
}

// After the last row of a team the number of the next is that of a row that does not exist: no
// loads are issued.
void tni_simt_prefetch_row(tni_simt_emitter *c)
{
    c->stage     = TNI_AT_LOOP;
    tni_text row = tni_text_of("it + 1 < %s ? %s : %s", tni_simt_word_name(c, TNI_WORD_CHUNK).s,
                               tni_simt_row_name(c, "(it + 1)").s,
                               tni_simt_word_name(c, TNI_WORD_LINES).s);
    declare_words(c, 'z');
    c->word_letter = 'z';
    put_row_fetches(c, row.s);
    c->word_letter = 'x';
}

// The next row becomes the current one. Registers cannot be indexed by the row, so the words are
// copied.
void tni_simt_take_prefetched(tni_simt_emitter *c)
{
    c->stage = TNI_AT_LOOP;
    for (int i = 0; i < c->k->nins; i++) {
        if (tni_simt_prefetches_value(c, i)) tni_out_line(c->o, "x%d = z%d;", i, i);
        if (!is_prefetched(c, i)) continue;
        tni_out_print(c->o, "%s", c->d->unroll);
        tni_out_line(c->o, "for (m_int j = 0; j < %d; j++) x%d[j] = z%d[j];",
                     words_of(c, i) * c->m->unroll, i, i);
    }
}
