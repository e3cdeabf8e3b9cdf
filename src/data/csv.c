// CSV as a dataset. A first walk over the file counts its rows, checks that all have as many cells as
// the first, and finds out what the columns are; a second one stores the values, compactly: a number
// takes four bytes, a category two, so never more than twice the file. Nothing of the file is kept.
//
// A column is numbers if each of its cells is one, and also if nine of ten are: then the others are
// errors. Else it is categories, numbered as they first appear. A target of whole numbers counts as
// classes if there are at most 20 different ones, and five rows to each on average.
#include "data/csv.h"
#include "io/mapping.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_INTEGERS = 20, ROWS_PER_INTEGER = 5 };

// A file being read into a table. place[i] is the column that the file's i-th cells belong to.
typedef struct {
    tn_ctx        *cx;
    const char    *path;
    tn_csv_opts    o;
    tni_csv       *t;
    tni_csv_reader start, r;  // at the first row; where we are
    uint32_t      *place;
    int            integers;  // different values of the target so far, all whole; -1: it is not so
    double         integer[MOST_INTEGERS];
} reading;

// ---- errors ------------------------------------------------------------------------------------

static bool bad_file(const reading *r, const char *why)
{
    tni_fail(r->cx, TN_EFORMAT, "csv: %s: %s", r->path, why);
    return false;
}

static bool no_memory(const reading *r)
{
    tni_fail_memory(r->cx, "csv");
    return false;
}

static bool bad_line(const reading *r)
{
    tni_fail(r->cx, TN_EFORMAT, "csv: %s:%lld: %s", r->path, (long long)r->r.line, r->r.why);
    return false;
}

// Adds n bytes in quotes, cut where there are many; what would break the line or the quotes is shown
// as something else.
static void add_quoted(tni_text *t, const char *s, size_t n)
{
    enum { SHOWN = 60 };
    tni_text_add(t, "\"");
    for (size_t i = 0; i < n && i < SHOWN; i++)
        tni_text_add(t, "%c", (unsigned char)s[i] < ' ' ? ' ' : s[i] == '"' ? '\'' : s[i]);
    tni_text_add(t, n > SHOWN ? "...\"" : "\"");
}

// `"12a"` of a cell.
static tni_text quote(const tni_csv_cell *c)
{
    tni_text t = { 0 };
    char     text[64];
    add_quoted(&t, text, tni_csv_text(c, text, sizeof text));
    return t;
}

// `column 3 ("age")`, counted from 1 as lines are.
static tni_text column_text(const reading *r, uint32_t i)
{
    tni_text t = { 0 };
    tni_text_add(&t, "column %u", (unsigned)i + 1);
    if (r->o.no_header) return t;
    const char *name = tni_csv_name(r->t, r->t->column[r->place[i]].name);
    tni_text_add(&t, " (");
    add_quoted(&t, name, strlen(name));
    tni_text_add(&t, ")");
    return t;
}

// An error in the file's i-th cell of a row; `is` says what is wrong with its text, or without it.
static bool bad_cell(const reading *r, const tni_csv_cell *c, uint32_t i, bool show, const char *is)
{
    tni_fail(r->cx, TN_EFORMAT, "csv: %s:%lld: %s: %s%s%s", r->path, (long long)c->line,
             column_text(r, i).s, show ? quote(c).s : "", show ? " " : "", is);
    return false;
}

// ---- the header --------------------------------------------------------------------------------

// A cell's text as a name. False, reported with the line, if it cannot be one.
static bool name_of(const reading *r, const tni_csv_cell *c, char name[TNI_CSV_NAME],
                    size_t *length)
{
    *length         = tni_csv_text(c, name, TNI_CSV_NAME);
    const char *why = *length > TNI_CSV_NAME        ? "longer than 1024 bytes"
                      : !tni_utf8_ok(name, *length) ? "not UTF-8"
                                                    : NULL;
    if (!why) return true;
    tni_fail(r->cx, TN_EFORMAT, "csv: %s:%lld: the name %s is %s", r->path, (long long)c->line,
             quote(c).s, why);
    return false;
}

// The number of cells in the first row; 0, reported, if it is none that a table can have.
static uint32_t count_cells(reading *r)
{
    tni_csv_cell c = { 0 };
    uint32_t     n = 0;
    r->r           = r->start;
    if (!tni_csv_row(&r->r)) return bad_file(r, "it is empty");
    while (!c.last) {
        if (!tni_csv_next(&r->r, &c)) return bad_line(r);
        if (n++ == TNI_CSV_COLUMNS) return bad_file(r, "it has more than 65536 columns");
    }
    if (n == 1)
        return bad_file(r, "it has one column, and needs one to predict and one to predict from");
    return n;
}

// Gives the next column its name.
static bool add_column(reading *r, const char *name, size_t length)
{
    tni_csv *t     = r->t;
    int64_t  entry = tni_csv_add(&r->cx->heap, &t->names, TNI_CSV_HEADER, t->columns, name, length);
    if (entry == TNI_CSV_NO_MEMORY) return no_memory(r);
    if (entry < 0) return bad_file(r, "the names of its columns take more than 1 MiB");
    r->place[t->columns]         = t->columns;
    t->column[t->columns++].name = (uint32_t)entry;
    return true;
}

// Without a header columns are called by their number.
static bool number_columns(reading *r, uint32_t count)
{
    char name[16];
    for (uint32_t i = 0; i < count; i++) {
        int n = snprintf(name, sizeof name, "%u", (unsigned)i);
        if (!add_column(r, name, (size_t)n)) return false;
    }
    return true;
}

// Reads the names of the columns: new ones, or with a schema those that are known, in any order.
static bool read_header(reading *r, uint32_t count)
{
    tni_csv     *t = r->t;
    tni_csv_cell c;
    char         name[TNI_CSV_NAME];
    size_t       n;
    r->r = r->start;
    tni_csv_row(&r->r);
    for (uint32_t i = 0; i < count; i++) {
        if (!tni_csv_next(&r->r, &c)) return bad_line(r);
        if (!name_of(r, &c, name, &n)) return false;
        int64_t entry = tni_csv_find(&t->names, TNI_CSV_HEADER, name, n);
        if ((entry < 0) == (r->o.schema != NULL)) {
            tni_fail(r->cx, TN_EFORMAT, "csv: %s:%lld: %s %s", r->path, (long long)c.line,
                     r->o.schema ? "the schema has no column" : "two columns have the name",
                     quote(&c).s);
            return false;
        }
        if (!r->o.schema && !add_column(r, name, n)) return false;
        if (r->o.schema) r->place[i] = t->names.entry[entry].index;
    }
    r->start = r->r;
    return true;
}

// With a schema, as many columns as it has and each once: so none is missing. at, which is not in use
// yet, marks those that were there.
static bool fits_schema(const reading *r, uint32_t count)
{
    tni_csv *t = r->t;
    if (count != t->columns) {
        tni_fail(r->cx, TN_EFORMAT, "csv: %s: it has %u columns, and the schema %u", r->path,
                 (unsigned)count, (unsigned)t->columns);
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (t->column[r->place[i]].at) return bad_file(r, "two columns have the same name");
        t->column[r->place[i]].at = 1;
    }
    return true;
}

static bool make_columns(reading *r)
{
    tni_csv  *t     = r->t;
    tni_heap *h     = &r->cx->heap;
    uint32_t  count = count_cells(r);
    if (!count) return false;
    r->place = tni_alloc(h, count * sizeof *r->place);
    if (!r->o.schema) t->column = tni_zalloc(h, count * sizeof *t->column);
    if (!r->place || !t->column) return no_memory(r);
    for (uint32_t i = 0; i < count; i++) r->place[i] = i;
    if (!r->o.no_header && !read_header(r, count)) return false;
    if (r->o.schema) return fits_schema(r, count);
    return !r->o.no_header || number_columns(r, count);
}

// The target by its name, else by its number.
static bool choose_target(reading *r)
{
    tni_csv    *t    = r->t;
    const char *name = r->o.target;
    char       *end;
    if (!name && !r->o.schema) t->target = t->columns - 1;
    if (!name) return true;
    int64_t  entry  = tni_csv_find(&t->names, TNI_CSV_HEADER, name, strlen(name));
    uint32_t target = t->columns;
    if (entry >= 0) {
        target = t->names.entry[entry].index;
    } else if (*name >= '0' && *name <= '9') {
        unsigned long number = strtoul(name, &end, 10);
        if (!*end && number < t->columns) target = r->place[number];
    }
    bool ok = target < t->columns && (!r->o.schema || target == t->target);
    if (!ok)
        tni_fail(r->cx, TN_EARG, "csv: %s: \"%s\" is %s", r->path, name,
                 target < t->columns ? "not the target of the schema"
                                     : "neither the name nor the number of a column");
    t->target = target;
    return ok;
}

// ---- the first walk ----------------------------------------------------------------------------

// Keeps the different values of the target, as long as they are few and whole.
static void note_integer(reading *r, double v)
{
    if (r->integers < 0) return;
    for (int i = 0; i < r->integers; i++)
        if (r->integer[i] == v) return;
    bool whole = v == floor(v) && fabs(v) < 1e15;
    if (whole && r->integers < MOST_INTEGERS) r->integer[r->integers++] = v + 0.0;  // no -0
    else r->integers = -1;
}

static void note_cell(reading *r, const tni_csv_cell *c, uint32_t column)
{
    double          v;
    tni_csv_kind    kind = tni_csv_look(c, &v);
    tni_csv_column *col  = &r->t->column[column];
    if (kind == TNI_CSV_NUMBER) col->numbers++;
    if (kind == TNI_CSV_TEXT) col->texts++;
    if (kind == TNI_CSV_NUMBER && column == r->t->target) note_integer(r, v);
}

static bool survey_row(reading *r)
{
    tni_csv     *t    = r->t;
    tni_csv_cell c    = { 0 };
    int64_t      line = r->r.line, n = 0;
    for (; !c.last; n++) {
        if (!tni_csv_next(&r->r, &c)) return bad_line(r);
        if (n < t->columns && !r->o.schema) note_cell(r, &c, r->place[n]);
    }
    if (n == t->columns) return true;
    tni_fail(r->cx, TN_EFORMAT, "csv: %s:%lld: the row has %lld cells, and the %s %u", r->path,
             (long long)line, (long long)n, r->o.no_header ? "first one" : "header",
             (unsigned)t->columns);
    return false;
}

static bool survey(reading *r)
{
    r->r = r->start;
    for (; tni_csv_row(&r->r); r->t->source.count++)
        if (!survey_row(r)) return false;
    return r->t->source.count > 0 || bad_file(r, "it has no rows under its header");
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Makes a target of whole numbers one of classes, in ascending order.
static bool make_integers(reading *r)
{
    char     name[32];
    tni_csv *t = r->t;
    if (r->integers <= 0 || t->source.count < (int64_t)r->integers * ROWS_PER_INTEGER) return true;
    t->column[t->target].kind = TNI_CSV_INTEGERS;
    qsort(r->integer, (size_t)r->integers, sizeof *r->integer, compare);
    for (int i = 0; i < r->integers; i++) {
        int n = snprintf(name, sizeof name, "%.0f", r->integer[i]);
        if (tni_csv_category(&r->cx->heap, t, t->target, name, (size_t)n) < 0) return no_memory(r);
    }
    return true;
}

static bool find_kinds(reading *r)
{
    tni_csv *t = r->t;
    for (uint32_t i = 0; i < t->columns; i++) {
        tni_csv_column *c      = &t->column[i];
        bool            mostly = c->numbers >= 9 * c->texts;
        c->kind                = mostly ? TNI_CSV_NUMBERS : TNI_CSV_TEXTS;
    }
    return t->column[t->target].kind == TNI_CSV_TEXTS || make_integers(r);
}

// ---- the second walk ---------------------------------------------------------------------------

// The cell as a finite number; false, reported, if it is none.
static bool number_of(reading *r, const tni_csv_cell *c, uint32_t i, double *v)
{
    tni_csv_kind kind = tni_csv_look(c, v);
    if (kind == TNI_CSV_EMPTY) return bad_cell(r, c, i, false, "the cell is empty");
    if (kind == TNI_CSV_UNBOUNDED) return bad_cell(r, c, i, true, "is not a finite number");
    if (kind == TNI_CSV_TEXT) return bad_cell(r, c, i, true, "is not a number");
    return fabs(*v) <= FLT_MAX || bad_cell(r, c, i, true, "is too large for f32");
}

static bool store_number(reading *r, const tni_csv_cell *c, uint32_t i, unsigned char *dst)
{
    double v;
    if (!number_of(r, c, i, &v)) return false;
    float f = (float)v;
    memcpy(dst, &f, sizeof f);
    return true;
}

// Adds a category, or says why it cannot be.
static int64_t new_category(reading *r, const tni_csv_cell *c, uint32_t i, const char *name,
                            size_t n)
{
    uint32_t column = r->place[i];
    if (r->o.schema) {
        bad_cell(r, c, i, true, "is a category that the schema does not have");
        return TNI_CSV_NO_NAME;
    }
    int64_t index = tni_csv_category(&r->cx->heap, r->t, column, name, n);
    if (index == TNI_CSV_NO_MEMORY) no_memory(r);
    if (index == TNI_CSV_FULL && r->t->column[column].categories == TNI_CSV_CATEGORIES)
        bad_cell(r, c, i, false,
                 "more than 1000 categories: is it free text, or a name of the row?");
    else if (index == TNI_CSV_FULL)
        bad_file(r, "it has more than 131072 categories, or more than 1 MiB of them");
    return index;
}

static bool store_category(reading *r, const tni_csv_cell *c, uint32_t i, unsigned char *dst)
{
    char   name[TNI_CSV_NAME];
    size_t n;
    double v;
    if (r->t->column[r->place[i]].kind == TNI_CSV_INTEGERS) {
        if (!number_of(r, c, i, &v)) return false;
        n = (size_t)snprintf(name, sizeof name, "%.17g", v + 0.0);
    } else if (!name_of(r, c, name, &n)) {
        return false;
    }
    int64_t entry = tni_csv_find(&r->t->names, r->place[i], name, n);
    int64_t index = entry >= 0 ? r->t->names.entry[entry].index : new_category(r, c, i, name, n);
    if (index < 0) return false;
    uint16_t stored = (uint16_t)index;
    memcpy(dst, &stored, sizeof stored);
    return true;
}

static bool store_rows(reading *r)
{
    tni_csv       *t   = r->t;
    unsigned char *row = t->rows;
    tni_csv_cell   c;
    r->r = r->start;
    for (int64_t k = 0; k < t->source.count; k++, row += t->row_bytes) {
        tni_csv_row(&r->r);
        for (uint32_t i = 0; i < t->columns; i++) {
            const tni_csv_column *col = &t->column[r->place[i]];
            if (!tni_csv_next(&r->r, &c)) return bad_line(r);
            bool ok = col->kind == TNI_CSV_NUMBERS ? store_number(r, &c, i, row + col->at)
                                                   : store_category(r, &c, i, row + col->at);
            if (!ok) return false;
        }
    }
    return true;
}

static bool make_rows(reading *r)
{
    tni_csv *t = r->t;
    for (uint32_t i = 0; i < t->columns; i++) {
        t->column[i].at = (uint32_t)t->row_bytes;
        t->row_bytes += t->column[i].kind == TNI_CSV_NUMBERS ? sizeof(float) : sizeof(uint16_t);
    }
    t->rows = tni_alloc(&r->cx->heap, (size_t)t->source.count * t->row_bytes);
    return t->rows ? store_rows(r) : no_memory(r);
}

// ---- the dataset -------------------------------------------------------------------------------

static int get_row(const tni_source *s, int64_t item, void *const *dst)
{
    const tni_csv       *t   = (const tni_csv *)s;
    const unsigned char *row = t->rows + (size_t)item * t->row_bytes;
    float               *x   = dst[0];
    for (uint32_t i = 0; i < t->columns; i++) {
        const tni_csv_column *c = &t->column[i];
        uint16_t              category;
        float                *to = i == t->target ? dst[1] : x;
        if (c->kind == TNI_CSV_NUMBERS) {
            memcpy(to, row + c->at, sizeof *to);
            x += i != t->target;
            continue;
        }
        memcpy(&category, row + c->at, sizeof category);
        if (i == t->target) {
            *(int64_t *)dst[1] = category;
            continue;
        }
        memset(x, 0, c->categories * sizeof *x);
        x[category] = 1;
        x += c->categories;
    }
    return 0;
}

static void free_csv(tni_heap *h, tni_source *s)
{
    tni_csv *t = (tni_csv *)s;
    tni_csv_names_free(h, &t->names);
    tni_free(h, t->column);
    tni_free(h, t->rows);
    tni_free(h, t->schema);
    tni_free(h, t->class_names);
    tni_free(h, t);
}

// Says what the items are: x of all columns but the target, y of that.
static bool describe(reading *r)
{
    tni_csv              *t     = r->t;
    const tni_csv_column *y     = &t->column[t->target];
    int64_t               width = 0;
    for (uint32_t i = 0; i < t->columns; i++) {
        const tni_csv_column *c = &t->column[i];
        if (i != t->target) width += c->kind == TNI_CSV_NUMBERS ? 1 : c->categories;
    }
    t->source.fields   = 2;
    t->source.field[0] = tni_field(TN_F32, TN_SHAPE(width));
    t->source.field[1] = y->kind == TNI_CSV_NUMBERS ? tni_field(TN_F32, TN_SHAPE(1))
                                                    : tni_field(TN_I64, TN_0D);
    t->source.get      = get_row;
    t->source.schema = t->schema = tni_csv_write_schema(&r->cx->heap, t);
    t->class_names               = tni_alloc(&r->cx->heap, y->categories * sizeof *t->class_names);
    if (!t->schema || !t->class_names) return no_memory(r);
    uint32_t entry = y->first;
    for (uint32_t i = 0; i < y->categories; i++, entry = t->names.entry[entry].next)
        t->class_names[i] = tni_csv_name(t, entry);
    t->source.classes     = y->categories;
    t->source.class_names = y->categories ? t->class_names : NULL;
    return true;
}

// Sets the reader to the first character, past a mark of UTF-8.
static bool begin(reading *r, const tni_mapping *m)
{
    const char *s = (const char *)m->data, *end = s + m->bytes;
    if (memchr(s, 0, m->bytes))
        return bad_file(r, "it has 0 bytes: it is not a text, or not one in UTF-8");
    if (m->bytes >= 3 && memcmp(s, "\xef\xbb\xbf", 3) == 0) s += 3;
    char separator = r->o.separator ? r->o.separator : tni_csv_separator(s, end);
    r->start       = (tni_csv_reader){ .at = s, .end = end, .separator = separator, .line = 1 };
    return true;
}

static bool read_file(reading *r, const tni_mapping *m)
{
    return (!r->o.schema || tni_csv_read_schema(r->cx, r->t, r->o.schema)) && begin(r, m) &&
           make_columns(r) && choose_target(r) && survey(r) && (r->o.schema || find_kinds(r)) &&
           make_rows(r) && describe(r);
}

static tn_data *open_csv(tn_ctx *cx, const char *path, tn_csv_opts o)
{
    if (!tni_ctx_ok(cx, "csv")) return NULL;
    if (o.separator && strchr("\"\r\n", o.separator))
        return tni_fail(cx, TN_EARG, "csv: a quote or the end of a line cannot be the separator");
    tni_mapping *m = tni_mapping_open(cx, "csv", path);
    if (!m) return NULL;
    tni_csv *t  = tni_zalloc(&cx->heap, sizeof *t);
    reading  r  = { .cx = cx, .path = path, .o = o, .t = t };
    bool     ok = t ? read_file(&r, m) : no_memory(&r);
    tni_free(&cx->heap, r.place);
    tni_mapping_unref(m);
    if (!t) return NULL;
    t->source.free = free_csv;
    if (ok) return tni_data_make(cx, "csv", &t->source);
    free_csv(&cx->heap, &t->source);
    return NULL;
}

tn_data *tn_csv(tn_ctx *cx, const char *path, tn_csv_opts o)
{
    tni_enter(tni_self.site);  // so that a handler that jumps finds nothing half way
    tn_data *d = open_csv(cx, path, o);
    tni_leave(false, NULL);
    return d;
}
