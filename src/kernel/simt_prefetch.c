// Loads ahead in the text of a simt kernel whose teams have several rows, one after the other, in
// registers: while a row is worked on, the words of the next are on their way. Words x are those of the
// row at hand, z those of the next.
#include "kernel/simt_emitter.h"

static bool is_ahead(const tni_simt_emitter *c, int i)
{
    const tni_ins *x    = &c->k->ins[i];
    tni_set        need = tni_needs_main(c->k);
    return x->code == TNI_I_LOAD && x->a == TNI_NO_VALUE && x->b == TNI_NO_VALUE &&
           x->per == TNI_PER_ELEM && tni_set_has(&need, i) && tni_simt_moves(c, i);
}

static void declare(tni_simt_emitter *c, char letter)
{
    for (int i = 0; i < c->k->nins; i++)
        if (is_ahead(c, i))
            tni_out_line(c->o, "m_uint %c%d[%d];", letter, i, words_of(c, i) * c->unroll);
}

// The fetches of a row, in a block of their own; `row` is its number.
static void put_fetches(tni_simt_emitter *c, const char *row)
{
    tni_out_line(c->o, "{");
    tni_out_line(c->o, "const %s row = %s;", c->index, row);
    tni_simt_put_row_line(c, true);
    tni_simt_open_vector(c);
    for (int i = 0; i < c->k->nins; i++)
        if (is_ahead(c, i)) tni_simt_fetch(c, i);
    tni_simt_close_vector(c);
    tni_out_line(c->o, "}");
}

void tni_simt_open_next(tni_simt_emitter *c)
{
    c->stage = TNI_AT_LOOP;
    declare(c, 'x');
    put_fetches(c, tni_simt_row_name(c, "0").s);
    for (int i = 0; i < c->k->nins; i++)
        if (is_ahead(c, i)) tni_set_add(&c->fetched, i);
}

void tni_simt_fetch_next(tni_simt_emitter *c)
{
    c->stage     = TNI_AT_LOOP;
    tni_text row = tni_text_of("it + 1 < %s ? %s : %s", tni_simt_word_name(c, TNI_WORD_CHUNK).s,
                               tni_simt_row_name(c, "(it + 1)").s,
                               tni_simt_word_name(c, TNI_WORD_LINES).s);
    declare(c, 'z');
    c->letter = 'z';
    put_fetches(c, row.s);
    c->letter = 'x';
}

void tni_simt_take_next(tni_simt_emitter *c)
{
    c->stage = TNI_AT_LOOP;
    for (int i = 0; i < c->k->nins; i++) {
        if (!is_ahead(c, i)) continue;
        tni_out_print(c->o, "%s", c->d->unroll);
        tni_out_line(c->o, "for (m_int j = 0; j < %d; j++) x%d[j] = z%d[j];",
                     words_of(c, i) * c->m->unroll, i, i);
    }
}
