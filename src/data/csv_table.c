// The rows of a CSV file. A first walk over them counts them, checks that all have as many cells as the
// first, and finds out what the columns are; a second one stores the values, compactly: a number takes
// four bytes, a category two, so never more than twice the file. Nothing of the file is kept.
//
// A column is numbers if each of its cells is one, and also if nine of ten are: then the others are
// errors. Numbers with a decimal comma count here, so that they are errors too. Else it is categories, numbered as they first appear. A target of whole numbers counts as
// classes if there are at most 20 different ones, and five rows to each on average.
#include "data/csv.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_PER_INTEGER = 5, INTEGER_NAME = 32 };

static bool no_memory(const tni_csv_reading *r)
{
    tni_fail_memory(r->cx, "csv");
    return false;
}

// ---- the first walk ----------------------------------------------------------------------------

// Keeps the different values of the target, as long as they are few and whole.
static void note_integer(tni_csv_reading *r, double v)
{
    if (r->integers < 0) return;
    for (int i = 0; i < r->integers; i++)
        if (r->integer[i] == v) return;
    bool whole = v == floor(v) && fabs(v) < 1e15;
    if (whole && r->integers < TNI_CSV_INTEGER_CLASSES) r->integer[r->integers++] = v;
    else r->integers = -1;
}

static void note_cell(tni_csv_reading *r, const tni_csv_cell *c, uint32_t column)
{
    double          v;
    tni_csv_kind    kind = tni_csv_look(c, &v);
    tni_csv_column *col  = &r->t->column[column];
    if (kind == TNI_CSV_NUMBER || kind == TNI_CSV_COMMA) col->numbers++;
    if (kind == TNI_CSV_TEXT) col->texts++;
    if (kind == TNI_CSV_NUMBER && column == r->t->target) note_integer(r, v);
}

static bool survey_row(tni_csv_reading *r)
{
    tni_csv     *t    = r->t;
    tni_csv_cell c    = { 0 };
    int64_t      line = r->r.line, n = 0;
    for (; !c.last; n++) {
        if (!tni_csv_next(&r->r, &c)) return tni_csv_bad_line(r);
        if (n < t->columns && !r->o.schema) note_cell(r, &c, r->place[n]);
    }
    if (n == t->columns) return true;
    tni_fail(r->cx, TN_EFORMAT, "csv: %s:%lld: the row has %lld cells, and the %s %u", r->path,
             (long long)line, (long long)n, r->o.no_header ? "first one" : "header",
             (unsigned)t->columns);
    return false;
}

static bool survey_rows(tni_csv_reading *r)
{
    r->r = r->start;
    for (; tni_csv_row(&r->r); r->t->source.count++)
        if (!survey_row(r)) return false;
    return r->t->source.count > 0 || tni_csv_bad_file(r, "it has no rows under its header");
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// The name of a class that is a number: another one for every number, whole or not. No -0.
static size_t integer_name(double v, char name[INTEGER_NAME])
{
    return (size_t)snprintf(name, INTEGER_NAME, "%.17g", v + 0.0);
}

// Makes a target of whole numbers one of classes, in ascending order.
static bool make_integers(tni_csv_reading *r)
{
    char     name[INTEGER_NAME];
    tni_csv *t = r->t;
    if (r->integers <= 0 || t->source.count < (int64_t)r->integers * ROWS_PER_INTEGER) return true;
    t->column[t->target].kind = TNI_CSV_INTEGERS;
    qsort(r->integer, (size_t)r->integers, sizeof *r->integer, compare);
    for (int i = 0; i < r->integers; i++) {
        size_t n = integer_name(r->integer[i], name);
        if (tni_csv_category(&r->cx->heap, t, t->target, name, n) < 0) return no_memory(r);
    }
    return true;
}

bool tni_csv_survey(tni_csv_reading *r)
{
    tni_csv *t = r->t;
    if (!survey_rows(r)) return false;
    if (r->o.schema) return true;
    for (uint32_t i = 0; i < t->columns; i++) {
        tni_csv_column *c      = &t->column[i];
        bool            mostly = c->numbers >= 9 * c->texts;
        c->kind                = mostly ? TNI_CSV_NUMBERS : TNI_CSV_TEXTS;
    }
    return t->column[t->target].kind == TNI_CSV_TEXTS || make_integers(r);
}

// ---- the second walk ---------------------------------------------------------------------------

// The cell as a finite number; false, reported, if it is none.
static bool number_of(tni_csv_reading *r, const tni_csv_cell *c, uint32_t i, double *v)
{
    tni_csv_kind kind = tni_csv_look(c, v);
    if (kind == TNI_CSV_EMPTY) return tni_csv_bad_cell(r, c, i, false, "the cell is empty");
    if (kind == TNI_CSV_UNBOUNDED) return tni_csv_bad_cell(r, c, i, true, "is not a finite number");
    if (kind == TNI_CSV_TEXT) return tni_csv_bad_cell(r, c, i, true, "is not a number");
    if (kind == TNI_CSV_COMMA)
        return tni_csv_bad_cell(r, c, i, true, "has a decimal comma: only points are read");
    return fabs(*v) <= FLT_MAX || tni_csv_bad_cell(r, c, i, true, "is too large for f32");
}

static bool store_number(tni_csv_reading *r, const tni_csv_cell *c, uint32_t i, unsigned char *dst)
{
    double v;
    if (!number_of(r, c, i, &v)) return false;
    float f = (float)v;
    memcpy(dst, &f, sizeof f);
    return true;
}

// Adds a category, or says why it cannot be.
static int64_t new_category(tni_csv_reading *r, const tni_csv_cell *c, uint32_t i, const char *name,
                            size_t n)
{
    uint32_t column = r->place[i];
    tni_text many   = tni_text_of("more than %d categories: is it free text, or a name of the row?",
                                  TNI_CSV_CATEGORIES);
    if (r->o.schema) {
        tni_csv_bad_cell(r, c, i, true, "is a category that the schema does not have");
        return TNI_CSV_NO_NAME;
    }
    int64_t index = tni_csv_category(&r->cx->heap, r->t, column, name, n);
    if (index == TNI_CSV_NO_MEMORY) no_memory(r);
    if (index == TNI_CSV_FULL && r->t->column[column].categories < TNI_CSV_CATEGORIES)
        tni_csv_bad_file(r, "it has more than %d categories, or more than %d MiB of them",
                         TNI_CSV_NAMES, TNI_CSV_NAME_BYTES >> 20);
    else if (index == TNI_CSV_FULL) tni_csv_bad_cell(r, c, i, false, many.s);
    return index;
}

static bool store_category(tni_csv_reading *r, const tni_csv_cell *c, uint32_t i,
                           unsigned char *dst)
{
    char   name[TNI_CSV_NAME];
    size_t n;
    double v;
    if (r->t->column[r->place[i]].kind == TNI_CSV_INTEGERS) {
        if (!number_of(r, c, i, &v)) return false;
        n = integer_name(v, name);
    } else if (!tni_csv_name_of(r, c, name, &n)) {
        return false;
    }
    int64_t entry = tni_csv_find(&r->t->names, r->place[i], name, n);
    int64_t index = entry >= 0 ? r->t->names.entry[entry].index : new_category(r, c, i, name, n);
    if (index < 0) return false;
    uint16_t stored = (uint16_t)index;
    memcpy(dst, &stored, sizeof stored);
    return true;
}

static bool store_rows(tni_csv_reading *r)
{
    tni_csv       *t   = r->t;
    unsigned char *row = t->rows;
    tni_csv_cell   c;
    r->r = r->start;
    for (int64_t k = 0; k < t->source.count; k++, row += t->row_bytes) {
        tni_csv_row(&r->r);
        for (uint32_t i = 0; i < t->columns; i++) {
            const tni_csv_column *col = &t->column[r->place[i]];
            if (!tni_csv_next(&r->r, &c)) return tni_csv_bad_line(r);
            bool ok = col->kind == TNI_CSV_NUMBERS ? store_number(r, &c, i, row + col->at)
                                                   : store_category(r, &c, i, row + col->at);
            if (!ok) return false;
        }
    }
    return true;
}

bool tni_csv_store(tni_csv_reading *r)
{
    tni_csv *t = r->t;
    for (uint32_t i = 0; i < t->columns; i++) {
        t->column[i].at = (uint32_t)t->row_bytes;
        t->row_bytes += t->column[i].kind == TNI_CSV_NUMBERS ? sizeof(float) : sizeof(uint16_t);
    }
    t->rows = tni_alloc(&r->cx->heap, (size_t)t->source.count * t->row_bytes);
    return t->rows ? store_rows(r) : no_memory(r);
}
