// CSV as a dataset: errors in the file, its header, and the items.
//
// With the target "price", the file
//
//   rooms,town,price
//   3,Bern,410000
//   2,Ulm,260000
//
// gives items x = (3, 1, 0), y = (410000) and x = (2, 0, 1), y = (260000): a number is one input, a
// column of texts one input for each of its categories. What each column is, is found by a first
// walk over the file (csv_table.c) and written down as the schema, by which another file is read in
// the same way.
#include "data/content.h"
#include "data/csv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- errors ------------------------------------------------------------------------------------

bool tni_csv_bad_file(const tni_csv_reading *r, const char *fmt, ...)
{
    tni_text why;
    va_list  args;
    va_start(args, fmt);
    vsnprintf(why.s, sizeof why.s, fmt, args);
    va_end(args);
    tni_fail(r->cx, TN_EFORMAT, "csv: %s: %s", r->path, why.s);
    return false;
}

// Reports that memory is out, as every reader of this folder does.
static bool no_memory(const tni_csv_reading *r)
{
    tni_fail_memory(r->cx, "csv");
    return false;
}

bool tni_csv_bad_line(const tni_csv_reading *r)
{
    tni_fail(r->cx, TN_EFORMAT, "csv: %s:%lld: %s", r->path, (long long)r->r.line, r->r.why);
    return false;
}

// Adds n bytes in quotes, cut if there are many. Characters that would break the line or the quotes
// are replaced.
static void add_quoted(tni_text *t, const char *s, size_t n)
{
    enum { SHOWN = 60 };
    tni_text_add(t, "\"");
    for (size_t i = 0; i < n && i < SHOWN; i++)
        tni_text_add(t, "%c", (unsigned char)s[i] < ' ' ? ' ' : s[i] == '"' ? '\'' : s[i]);
    tni_text_add(t, n > SHOWN ? "...\"" : "\"");
}

// Returns a cell's text for messages: "12a".
static tni_text quote_cell(const tni_csv_cell *c)
{
    tni_text t = { 0 };
    char     text[64];
    add_quoted(&t, text, tni_csv_text(c, text, sizeof text));
    return t;
}

// Returns column 3 ("age"), counted from 1 as lines are.
static tni_text column_text(const tni_csv_reading *r, uint32_t i)
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

// The line is that where the cell begins, which for a quoted cell of several lines is not where it
// ends.
bool tni_csv_bad_cell(const tni_csv_reading *r, const tni_csv_cell *c, uint32_t i, bool show,
                      const char *is)
{
    tni_fail(r->cx, TN_EFORMAT, "csv: %s:%lld: %s: %s%s%s", r->path, (long long)c->line,
             column_text(r, i).s, show ? quote_cell(c).s : "", show ? " " : "", is);
    return false;
}

// ---- the header --------------------------------------------------------------------------------

// A name must be UTF-8 because it goes into the schema, which is JSON.
bool tni_csv_name_of(const tni_csv_reading *r, const tni_csv_cell *c, char name[TNI_CSV_NAME],
                     size_t *length)
{
    *length     = tni_csv_text(c, name, TNI_CSV_NAME);
    bool longer = *length > TNI_CSV_NAME;
    if (!longer && tni_utf8_ok(name, *length)) return true;
    tni_text why = longer ? tni_text_of("longer than %d bytes", TNI_CSV_NAME)
                          : (tni_text){ "not UTF-8" };
    tni_fail(r->cx, TN_EFORMAT, "csv: %s:%lld: the name %s is %s", r->path, (long long)c->line,
             quote_cell(c).s, why.s);
    return false;
}

// Returns the number of cells in the first row; 0, reported, if a table cannot have that many.
static uint32_t count_cells(tni_csv_reading *r)
{
    tni_csv_cell c = { 0 };
    uint32_t     n = 0;
    r->r           = r->start;
    if (!tni_csv_row(&r->r)) return tni_csv_bad_file(r, "it is empty");
    while (!c.last) {
        if (!tni_csv_next(&r->r, &c)) return tni_csv_bad_line(r);
        if (n++ == TNI_CSV_COLUMNS)
            return tni_csv_bad_file(r, "it has more than %d columns", TNI_CSV_COLUMNS);
    }
    if (n == 1 && !r->o.no_target)
        return tni_csv_bad_file(
            r, "it has one column, and needs one to predict and one to predict from");
    return n;
}

// Gives the next column its name and its place, which without a schema is its number.
static bool add_column(tni_csv_reading *r, const char *name, size_t length)
{
    tni_csv *t     = r->t;
    int64_t  entry = tni_csv_add(&r->cx->heap, &t->names, TNI_CSV_HEADER, t->columns, name, length);
    if (entry == TNI_CSV_NO_MEMORY) return no_memory(r);
    if (entry < 0)
        return tni_csv_bad_file(r, "the names of its columns take more than %d MiB",
                                TNI_CSV_NAME_BYTES >> 20);
    r->place[t->columns]         = t->columns;
    t->column[t->columns++].name = (uint32_t)entry;
    return true;
}

// Without a header, columns are named by their numbers.
static bool number_columns(tni_csv_reading *r, uint32_t count)
{
    char name[16];
    for (uint32_t i = 0; i < count; i++) {
        int n = snprintf(name, sizeof name, "%u", (unsigned)i);
        if (!add_column(r, name, (size_t)n)) return false;
    }
    return true;
}

// Reads the names of the columns: new ones, or, with a schema, the known ones in any order.
static bool read_header(tni_csv_reading *r, uint32_t count)
{
    tni_csv     *t = r->t;
    tni_csv_cell c;
    char         name[TNI_CSV_NAME];
    size_t       n;
    r->r = r->start;
    tni_csv_row(&r->r);
    for (uint32_t i = 0; i < count; i++) {
        if (!tni_csv_next(&r->r, &c)) return tni_csv_bad_line(r);
        if (!tni_csv_name_of(r, &c, name, &n)) return false;
        int64_t entry = tni_csv_find(&t->names, TNI_CSV_HEADER, name, n);
        if ((entry < 0) == (r->o.schema != NULL)) {
            tni_fail(r->cx, TN_EFORMAT, "csv: %s:%lld: %s %s", r->path, (long long)c.line,
                     r->o.schema ? "the schema has no column" : "two columns have the name",
                     quote_cell(&c).s);
            return false;
        }
        if (!r->o.schema && !add_column(r, name, n)) return false;
        if (r->o.schema) r->place[i] = t->names.entry[entry].index;
    }
    r->start = r->r;
    return true;
}

// Returns whether the first line has only numbers, like a file without a header: taking that for
// names would silently lose a row.
static bool begins_with_numbers(tni_csv_reading *r)
{
    tni_csv_cell c = { 0 };
    double       v;
    r->r = r->start;
    tni_csv_row(&r->r);
    while (!c.last) {
        tni_csv_kind kind = tni_csv_next(&r->r, &c) ? tni_csv_look(&c, &v) : TNI_CSV_TEXT;
        if (kind != TNI_CSV_NUMBER && kind != TNI_CSV_COMMA) return false;
    }
    return true;
}

// Returns whether the file has all of the schema's columns except the target, judged by their
// number.
static bool lacks_target(const tni_csv_reading *r)
{
    return r->o.schema && r->t->no_target && r->t->target != TNI_CSV_NO_TARGET &&
           r->cells == r->t->columns - 1;
}

// With a schema, the file must have each of its columns once; only a target that is not asked for
// may be missing.
static bool fits_schema(const tni_csv_reading *r)
{
    tni_csv *t = r->t;
    if (r->cells != t->columns && !lacks_target(r)) {
        tni_fail(r->cx, TN_EFORMAT, "csv: %s: it has %u columns, and the schema %u", r->path,
                 (unsigned)r->cells, (unsigned)t->columns);
        return false;
    }
    for (uint32_t i = 0; i < r->cells; i++) {
        tni_csv_column *c = &t->column[r->place[i]];
        if (c->found) return tni_csv_bad_file(r, "two columns have the same name");
        c->found = true;
    }
    for (uint32_t i = 0; i < t->columns; i++)
        if (!t->column[i].found && !tni_csv_ignored(t, i))
            return tni_csv_bad_file(r, "it has no column \"%.60s\", and the schema has",
                                    tni_csv_name(t, t->column[i].name));
    return true;
}

// Finds the file's columns and where each belongs in the table.
static bool make_columns(tni_csv_reading *r)
{
    tni_csv  *t     = r->t;
    tni_heap *h     = &r->cx->heap;
    uint32_t  count = count_cells(r);
    if (!count) return false;
    r->cells = count;
    r->place = tni_alloc(h, count * sizeof *r->place);
    if (!r->o.schema) t->column = tni_zalloc(h, count * sizeof *t->column);
    if (!r->place || !t->column) return no_memory(r);
    for (uint32_t i = 0; i < count; i++) r->place[i] = i + (lacks_target(r) && i >= t->target);
    if (!r->o.no_header && !r->o.schema && begins_with_numbers(r))
        return tni_csv_bad_file(r, "the first line has numbers only: if it is not a header, set "
                                   ".no_header; if it is, give the columns names");
    if (!r->o.no_header && !read_header(r, count)) return false;
    if (r->o.schema) return fits_schema(r);
    return !r->o.no_header || number_columns(r, count);
}

// Finds the target by its name, else by its number; the last column if none is named.
static bool choose_target(tni_csv_reading *r)
{
    tni_csv    *t    = r->t;
    const char *name = r->o.target;
    char       *end;
    if (!r->o.schema) t->target = t->no_target ? TNI_CSV_NO_TARGET : t->columns - 1;
    if (!name || t->no_target) return true;
    int64_t  entry  = tni_csv_find(&t->names, TNI_CSV_HEADER, name, strlen(name));
    uint32_t target = t->columns;
    if (entry >= 0) {
        target = t->names.entry[entry].index;
    } else if (tni_is_digit(*name)) {
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

// ---- the dataset -------------------------------------------------------------------------------

// Returns a stored number, filled if it was missing, and behind it whether it was, if the column
// has that input.
static void get_number(const tni_csv_column *c, const unsigned char *from, float *to)
{
    memcpy(to, from, sizeof *to);
    bool missing = isnan(*to);
    if (missing) *to = c->mean;
    if (c->flagged) to[1] = missing;
}

// A number as f32, or the index of a class as i64.
static void get_target(const tni_csv_column *c, const unsigned char *from, void *to)
{
    uint16_t category;
    if (c->kind == TNI_CSV_NUMBERS) {
        memcpy(to, from, sizeof(float));
        return;
    }
    memcpy(&category, from, sizeof category);
    *(int64_t *)to = category;
}

// Expands a stored row to the inputs of a network: numbers as they are, categories one-hot.
static int get_row(const tni_item_source *s, int64_t item, void *const *dst)
{
    const tni_csv       *t   = (const tni_csv *)s;
    const unsigned char *row = t->rows + (size_t)item * t->row_bytes;
    float               *x   = dst[0];
    for (uint32_t i = 0; i < t->columns; i++) {
        const tni_csv_column *c = &t->column[i];
        uint16_t              category;
        if (i == t->target) {
            if (!t->no_target) get_target(c, row + c->at, dst[1]);
            continue;
        }
        if (c->kind == TNI_CSV_NUMBERS) get_number(c, row + c->at, x);
        else {
            memcpy(&category, row + c->at, sizeof category);
            memset(x, 0, c->categories * sizeof *x);
            if (category != TNI_CSV_NONE) x[category] = 1;
        }
        x += tni_csv_inputs(c);
    }
    return 0;
}

// The source is the table itself.
static void free_csv(tni_heap *h, tni_item_source *s)
{
    tni_csv *t = (tni_csv *)s;
    tni_csv_names_free(h, &t->names);
    tni_free(h, t->column);
    tni_free(h, t->rows);
    tni_free(h, t->schema);
    tni_free(h, t->class_names);
    tni_free(h, t->row_of);
    tni_free(h, t);
}

// Describes the items: x of all columns but the target, y of the target. Without y, the classes
// that a schema has for it are still given, since a prediction needs their names.
static bool describe_items(tni_csv_reading *r)
{
    static const tni_csv_column none;

    tni_csv              *t     = r->t;
    const tni_csv_column *y     = t->target == TNI_CSV_NO_TARGET ? &none : &t->column[t->target];
    int64_t               width = 0;
    for (uint32_t i = 0; i < t->columns; i++)
        if (i != t->target) width += tni_csv_inputs(&t->column[i]);
    t->source.fields   = t->no_target ? 1 : 2;
    t->source.field[0] = tni_field(TN_F32, TN_SHAPE(width));
    t->source.field[1] = y->kind == TNI_CSV_NUMBERS ? tni_field(TN_F32, TN_SHAPE(1))
                                                    : tni_field(TN_I64, TN_0D);
    t->source.get      = get_row;
    t->source.row_of   = t->row_of;
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
static bool begin(tni_csv_reading *r, const tni_content *m)
{
    const char *s = (const char *)m->data, *end = s + m->bytes;
    if (memchr(s, 0, m->bytes))
        return tni_csv_bad_file(r, "bytes of value 0 are in it, which no text in UTF-8 has: is it "
                                   "UTF-16, or not a text?");
    if (m->bytes >= 3 && memcmp(s, "\xef\xbb\xbf", 3) == 0) s += 3;
    char separator = r->o.separator ? r->o.separator : tni_csv_separator(s, end);
    r->start       = (tni_csv_reader){ .at = s, .end = end, .separator = separator, .line = 1 };
    return true;
}

static bool read_file(tni_csv_reading *r, const tni_content *m)
{
    return (!r->o.schema || tni_csv_read_schema(r->cx, r->t, r->o.schema)) && begin(r, m) &&
           make_columns(r) && choose_target(r) && tni_csv_survey(r) && tni_csv_store(r) &&
           describe_items(r);
}

// Checks the options before it opens the file, so that a wrong option costs no read; then reads it
// whole. On failure the partly read table is freed here, since no dataset owns it yet.
tn_data *tn_csv(tn_ctx *cx, const char *path, tn_csv_opts o)
{
    if (!tni_ctx_ok(cx, "csv")) return NULL;
    if (o.separator && strchr("\"\r\n", o.separator))
        return tni_fail(cx, TN_EARG, "csv: a quote or the end of a line cannot be the separator");
    if (o.missing < TN_MISSING_ERROR || o.missing > TN_MISSING_SKIP)
        return tni_fail(cx, TN_EARG, "csv: missing is %d, none of tn_missing", o.missing);
    if (!(o.held_out >= 0 && o.held_out < 1))
        return tni_fail(cx, TN_EARG, "csv: held_out %g is not from 0 to 1, without 1", o.held_out);
    tni_content m;
    if (!tni_content_open(cx, "csv", path, NULL, &m)) return NULL;
    tni_csv        *t = tni_zalloc(&cx->heap, sizeof *t);
    tni_csv_reading r = { .cx = cx, .path = path, .o = o, .t = t };
    if (t) t->no_target = o.no_target;
    bool ok = t ? read_file(&r, &m) : no_memory(&r);
    tni_free(&cx->heap, r.place);
    tni_content_close(&cx->heap, &m);
    if (!t) return NULL;
    t->source.free = free_csv;
    if (ok) return tni_data_make(cx, "csv", &t->source);
    free_csv(&cx->heap, &t->source);
    return NULL;
}
