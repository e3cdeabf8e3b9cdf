// The rows of a CSV file. A first walk over them counts them, checks that all have as many cells as
// the first, and finds out what the columns are; a second one stores the values, compactly: a
// number takes four bytes, a category two, so never more than twice the file. Nothing of the file
// is kept.
//
// A column is numbers if each of its cells is one, and also if nine of ten are: then the others are
// errors. Numbers with a decimal comma count here, so that they are errors too. Else it is
// categories, numbered as they first appear. A target of whole numbers counts as classes if there
// are at most 20 different ones, and five rows to each on average. Missing cells say nothing of
// what their column is.
#include "data/csv.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// A target of whole numbers counts as classes if there are this many rows for each: with fewer it
// is more likely a quantity. INTEGER_NAME: the longest number in 17 digits.
enum { ROWS_PER_INTEGER = 5, INTEGER_NAME = 32 };

static bool no_memory(const tni_csv_reading *r)
{
    tni_fail_memory(r->cx, "csv");
    return false;
}

// ---- missing cells -----------------------------------------------------------------------------

// Returns whether the cell is empty or one of the words for a missing value, in any case.
static bool is_missing(const tni_csv_reading *r, const tni_csv_cell *c)
{
    const char *words = r->o.missing_words ? r->o.missing_words : "NA,NaN,null,?";
    const char *s = c->text, *end = s + c->length;
    while (s < end && *s == ' ') s++;
    while (s < end && end[-1] == ' ') end--;
    size_t n = (size_t)(end - s);
    if (n == 0) return true;
    for (; *words; words += *words == ',') {
        size_t length = strcspn(words, ",");
        if (length == n && strncasecmp(words, s, n) == 0) return true;
        words += length;
    }
    return false;
}

// Returns whether the row at the reader is no item: its target is missing, or any cell, if such
// rows are skipped. Looks ahead without moving the reader.
static bool is_left_out(const tni_csv_reading *r)
{
    tni_csv_reader look = r->r;
    tni_csv_cell   c    = { 0 };
    if (r->o.missing == TN_MISSING_ERROR) return false;
    for (uint32_t i = 0; !c.last && i < r->cells && tni_csv_next(&look, &c); i++) {
        bool counts = r->o.missing == TN_MISSING_SKIP || r->place[i] == r->t->target;
        if (counts && !tni_csv_ignored(r->t, r->place[i]) && is_missing(r, &c)) return true;
    }
    return false;
}

// ---- the first walk ----------------------------------------------------------------------------

// Collects the different values of the target, as long as they are few and whole.
static void note_integer(tni_csv_reading *r, double v)
{
    if (r->integers < 0) return;
    for (int i = 0; i < r->integers; i++)
        if (r->integer[i] == v) return;
    bool whole = v == floor(v) && fabs(v) < 1e15;
    if (whole && r->integers < TNI_CSV_INTEGER_CLASSES) r->integer[r->integers++] = v;
    else r->integers = -1;
}

// Counts what a cell is, for choosing the kind of its column.
static void note_cell(tni_csv_reading *r, const tni_csv_cell *c, uint32_t column)
{
    double          v;
    tni_csv_column *col = &r->t->column[column];
    if (is_missing(r, c)) {
        col->missing++;
        return;
    }
    tni_csv_kind kind = tni_csv_look(c, &v);
    if (kind == TNI_CSV_NUMBER || kind == TNI_CSV_COMMA) col->numbers++;
    if (kind == TNI_CSV_TEXT) col->texts++;
    if (kind == TNI_CSV_NUMBER && column == r->t->target) note_integer(r, v);
}

// Counts a row and checks its number of cells.
static bool survey_row(tni_csv_reading *r)
{
    tni_csv_cell c    = { 0 };
    int64_t      line = r->r.line, n = 0;
    bool         out = is_left_out(r);
    for (; !c.last; n++) {
        if (!tni_csv_next(&r->r, &c)) return tni_csv_bad_line(r);
        if (n < r->cells && !r->o.schema && !out) note_cell(r, &c, r->place[n]);
    }
    r->t->source.skipped += out;
    r->t->source.count += !out;
    if (n == r->cells) return true;
    tni_fail(r->cx, TN_EFORMAT, "csv: %s:%lld: the row has %lld cells, and the %s %u", r->path,
             (long long)line, (long long)n, r->o.no_header ? "first one" : "header",
             (unsigned)r->cells);
    return false;
}

// The first walk over all rows.
static bool survey_rows(tni_csv_reading *r)
{
    const tni_item_source *s = &r->t->source;
    r->r                     = r->start;
    while (tni_csv_row(&r->r))
        if (!survey_row(r)) return false;
    if (s->count > 0) return true;
    if (s->skipped == 0) return tni_csv_bad_file(r, "it has no rows under its header");
    return tni_csv_bad_file(r, "no row is left: cells of all %lld are missing",
                            (long long)s->skipped);
}

static int compare_numbers(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Writes the name of a class that is a number: 17 digits tell any two numbers apart. Adding 0 turns
// -0 into 0.
static size_t integer_name(double v, char name[INTEGER_NAME])
{
    return (size_t)snprintf(name, INTEGER_NAME, "%.17g", v + 0.0);
}

// Turns a target of whole numbers into classes, in ascending order, if there are few of them with
// enough rows each; else it stays a number to predict.
static bool make_integers(tni_csv_reading *r)
{
    char     name[INTEGER_NAME];
    tni_csv *t = r->t;
    if (r->integers <= 0 || t->source.count < (int64_t)r->integers * ROWS_PER_INTEGER) return true;
    t->column[t->target].kind = TNI_CSV_INTEGERS;
    qsort(r->integer, (size_t)r->integers, sizeof *r->integer, compare_numbers);
    for (int i = 0; i < r->integers; i++) {
        size_t n = integer_name(r->integer[i], name);
        if (tni_csv_category(&r->cx->heap, t, t->target, name, n) < 0) return no_memory(r);
    }
    return true;
}

// Decides how missing cells of a column of numbers are filled. A column without missing cells here
// is filled as well, for files that are read later by its schema.
static void choose_filling(const tni_csv_reading *r, tni_csv_column *c)
{
    c->filled  = r->o.missing == TN_MISSING_MEAN || r->o.missing == TN_MISSING_CATEGORY;
    c->flagged = r->o.missing == TN_MISSING_CATEGORY && c->missing > 0;
}

// Chooses the kind of each column from what the first walk counted.
bool tni_csv_survey(tni_csv_reading *r)
{
    tni_csv *t = r->t;
    if (!survey_rows(r)) return false;
    if (r->o.schema) return true;
    for (uint32_t i = 0; i < t->columns; i++) {
        tni_csv_column *c      = &t->column[i];
        bool            mostly = c->numbers >= 9 * c->texts;
        c->kind                = mostly ? TNI_CSV_NUMBERS : TNI_CSV_TEXTS;
        if (mostly && i != t->target) choose_filling(r, c);
    }
    if (t->target == TNI_CSV_NO_TARGET) return true;
    return t->column[t->target].kind == TNI_CSV_TEXTS || make_integers(r);
}

// ---- the second walk ---------------------------------------------------------------------------

// Reports a missing cell that nothing fills, and the option that would.
static bool fail_missing(const tni_csv_reading *r, const tni_csv_cell *c, uint32_t i)
{
    bool        empty = c->length == 0, fills = r->o.missing && r->o.schema;
    const char *is = fills   ? (empty ? "the cell is empty, and the schema has no mean for it"
                                      : "is missing, and the schema has no mean for it")
                     : empty ? "the cell is empty: set .missing to fill such cells, or to leave "
                               "out their rows"
                             : "is no number but a missing one: set .missing to fill such "
                               "cells, or to leave out their rows";
    return tni_csv_bad_cell(r, c, i, !empty, is);
}

// Returns the cell as a finite number; false, reported, if it is none.
static bool number_of(tni_csv_reading *r, const tni_csv_cell *c, uint32_t i, double *v)
{
    tni_csv_kind kind = tni_csv_look(c, v);
    if (is_missing(r, c)) return fail_missing(r, c, i);
    if (kind == TNI_CSV_UNBOUNDED) return tni_csv_bad_cell(r, c, i, true, "is not a finite number");
    if (kind == TNI_CSV_TEXT) return tni_csv_bad_cell(r, c, i, true, "is not a number");
    if (kind == TNI_CSV_COMMA)
        return tni_csv_bad_cell(r, c, i, true, "has a decimal comma: only points are read");
    return fabs(*v) <= FLT_MAX || tni_csv_bad_cell(r, c, i, true, "is too large for f32");
}

// Stores a number as f32; one that is missing as NaN. Rows that are held out do not count to the
// mean: the test set must not leak into the inputs.
static bool store_number(tni_csv_reading *r, const tni_csv_cell *c, uint32_t i, unsigned char *dst)
{
    double          v      = NAN;
    tni_csv_column *col    = &r->t->column[r->place[i]];
    bool            filled = col->filled && is_missing(r, c);
    if (!filled && !number_of(r, c, i, &v)) return false;
    float f = (float)v;
    memcpy(dst, &f, sizeof f);
    if (!filled && !r->held_out) {
        col->sum += v;
        col->known++;
    }
    return true;
}

// Computes the means that fill missing cells, once all numbers are stored. Means of a schema stay.
static void take_means(const tni_csv_reading *r)
{
    for (uint32_t i = 0; i < r->t->columns && !r->o.schema; i++) {
        tni_csv_column *c = &r->t->column[i];
        if (c->filled && c->known > 0) c->mean = (float)(c->sum / (double)c->known);
    }
}

// Adds a category, or reports why it cannot be added.
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

// Stores a category by its index. All missing cells are one category, unless a schema does not have
// it.
static bool store_category(tni_csv_reading *r, const tni_csv_cell *c, uint32_t i,
                           unsigned char *dst)
{
    char   name[TNI_CSV_NAME];
    size_t n  = 0;
    bool none = r->o.missing != TN_MISSING_ERROR && is_missing(r, c);  // all such are one category
    double v;
    if (none) *name = 0;
    else if (r->t->column[r->place[i]].kind == TNI_CSV_INTEGERS) {
        if (!number_of(r, c, i, &v)) return false;
        n = integer_name(v, name);
    } else if (!tni_csv_name_of(r, c, name, &n)) {
        return false;
    }
    int64_t entry = tni_csv_find(&r->t->names, r->place[i], name, n);
    int64_t index = entry >= 0            ? r->t->names.entry[entry].index
                    : none && r->o.schema ? TNI_CSV_NONE
                                          : new_category(r, c, i, name, n);
    if (index < 0) return false;
    uint16_t stored = (uint16_t)index;
    memcpy(dst, &stored, sizeof stored);
    return true;
}

// The second walk: stores the values of each row that is an item.
static bool store_rows(tni_csv_reading *r)
{
    tni_csv       *t     = r->t;
    unsigned char *row   = t->rows;
    tni_data_split split = tni_data_split_of(t->source.count, r->o.held_out, r->o.split_seed);
    tni_csv_cell   c;
    r->r = r->start;
    for (int64_t k = 0, number = 0; k < t->source.count; number++) {
        tni_csv_row(&r->r);
        bool out    = is_left_out(r);
        r->held_out = tni_split_takes(&split, k);
        for (uint32_t i = 0; i < r->cells; i++) {
            const tni_csv_column *col = &t->column[r->place[i]];
            if (!tni_csv_next(&r->r, &c)) return tni_csv_bad_line(r);
            if (out || tni_csv_ignored(t, r->place[i])) continue;
            bool ok = col->kind == TNI_CSV_NUMBERS ? store_number(r, &c, i, row + col->at)
                                                   : store_category(r, &c, i, row + col->at);
            if (!ok) return false;
        }
        if (out) continue;
        if (t->row_of) t->row_of[k] = number;
        row += t->row_bytes;
        k++;
    }
    take_means(r);
    return true;
}

// Places the columns in a stored row, without padding: rows are copied, not cast.
bool tni_csv_store(tni_csv_reading *r)
{
    tni_csv *t = r->t;
    for (uint32_t i = 0; i < t->columns; i++) {
        if (tni_csv_ignored(t, i)) continue;
        t->column[i].at = (uint32_t)t->row_bytes;
        t->row_bytes += t->column[i].kind == TNI_CSV_NUMBERS ? sizeof(float) : sizeof(uint16_t);
    }
    size_t count = (size_t)t->source.count;
    t->rows      = tni_alloc(&r->cx->heap, count * t->row_bytes);
    if (t->source.skipped) {
        t->row_of = tni_alloc(&r->cx->heap, count * sizeof *t->row_of);
        if (!t->row_of) return no_memory(r);
    }
    return t->rows ? store_rows(r) : no_memory(r);
}
