// What a CSV file's columns are, as JSON, so that another file can be read in the same way:
//     {"target":2,"columns":[{"name":"age","kind":"number"},
//      {"name":"town","kind":"category","categories":["Bern","Ulm"]},
//      {"name":"stars","kind":"integer","categories":["1","2","3"]}]}
// A column of numbers whose missing cells are filled has a "mean", and with "flag":true an input
// more. Without a column to predict there is no "target".
#include "base/json.h"
#include "data/csv.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const char *const kinds[] = { "number", "category", "integer" };

// ---- writing -----------------------------------------------------------------------------------

// Writes one column, as in the sample above.
static void put_column(tni_json_writer *w, const tni_csv *t, const tni_csv_column *c)
{
    tni_json_put(w, "{\"name\":");
    tni_json_quote(w, tni_csv_name(t, c->name));
    tni_json_put(w, ",\"kind\":");
    tni_json_quote(w, kinds[c->kind]);
    if (c->filled) {
        tni_json_put(w, ",\"mean\":");
        tni_json_put_double(w, (double)c->mean);
    }
    if (c->flagged) tni_json_put(w, ",\"flag\":true");
    uint32_t entry = c->first;
    for (uint32_t i = 0; i < c->categories; i++, entry = t->names.entry[entry].next) {
        tni_json_put(w, i ? "," : ",\"categories\":[");
        tni_json_quote(w, tni_csv_name(t, entry));
    }
    tni_json_put(w, c->categories ? "]}" : "}");
}

static void put_table(tni_json_writer *w, const tni_csv *t)
{
    tni_json_put(w, "{");
    if (t->target != TNI_CSV_NO_TARGET) {
        tni_json_put(w, "\"target\":");
        tni_json_put_int(w, (int64_t)t->target);
        tni_json_put(w, ",");
    }
    for (uint32_t i = 0; i < t->columns; i++) {
        tni_json_put(w, i ? "," : "\"columns\":[");
        put_column(w, t, &t->column[i]);
    }
    tni_json_put(w, "]}");
}

// Names are UTF-8 already, so the result is valid JSON.
char *tni_csv_write_schema(tni_heap *h, const tni_csv *t)
{
    tni_json_writer w = { .heap = h };
    put_table(&w, t);
    if (!w.full) return w.text;
    tni_free(h, w.text);
    return NULL;
}

// ---- reading -----------------------------------------------------------------------------------

// A schema being read into a table.
typedef struct {
    tn_ctx  *cx;
    tni_csv *t;
    size_t   cap;  // of the columns
    tni_json j;
} reading;

// Reports what is wrong and where; an error of the JSON itself comes first.
static bool bad_schema(reading *r, const char *why)
{
    tni_fail(r->cx, TN_EFORMAT, "csv: the schema: byte %zu: %s", (size_t)(r->j.at - r->j.start),
             r->j.kind == TNI_JSON_ERROR ? r->j.why : why);
    return false;
}

static bool no_memory(reading *r)
{
    tni_fail_memory(r->cx, "csv");
    return false;
}

// Returns whether a name was added, from what adding it returned; reports why not.
static bool name_added(reading *r, int64_t index)
{
    if (index == TNI_CSV_NO_MEMORY) return no_memory(r);
    return index >= 0 || bad_schema(r, "it has too many names");
}

// Reads the current string; false, reported, if it cannot be a new name of the list.
static bool read_name(reading *r, uint32_t list, char name[TNI_CSV_NAME + 1], size_t *length)
{
    if (r->j.kind != TNI_JSON_STRING) return bad_schema(r, "a name is expected");
    int64_t n = tni_json_string(&r->j, name, TNI_CSV_NAME + 1);
    if (n < 0 || n > TNI_CSV_NAME || strlen(name) != (size_t)n)
        return bad_schema(r, "a name cannot be one: it is too long, or not a text");
    *length = (size_t)n;
    return tni_csv_find(&r->t->names, list, name, *length) == TNI_CSV_NO_NAME ||
           bad_schema(r, "a name appears twice");
}

static bool read_column_name(reading *r, tni_csv_column *c)
{
    char   name[TNI_CSV_NAME + 1];
    size_t n;
    if (!read_name(r, TNI_CSV_HEADER, name, &n)) return false;
    int64_t entry = tni_csv_add(&r->cx->heap, &r->t->names, TNI_CSV_HEADER, r->t->columns - 1, name,
                                n);
    c->name       = (uint32_t)entry;
    return name_added(r, entry);
}

// Finds the kind by its name in the schema.
static bool read_kind(reading *r, tni_csv_column *c)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        c->kind = (uint8_t)i;
        if (r->j.kind == TNI_JSON_STRING && tni_json_is(&r->j, kinds[i])) return true;
    }
    return bad_schema(r, "a column's kind is none of number, category and integer");
}

// Reads a list of names, which are numbered as they come.
static bool read_categories(reading *r)
{
    char     name[TNI_CSV_NAME + 1];
    size_t   n;
    uint32_t column = r->t->columns - 1;
    if (r->j.kind != TNI_JSON_ARRAY) return bad_schema(r, "a list of categories is expected");
    while (tni_json_next(&r->j) != TNI_JSON_ARRAY_END)
        if (!read_name(r, column, name, &n) ||
            !name_added(r, tni_csv_category(&r->cx->heap, r->t, column, name, n)))
            return false;
    return true;
}

// Reads the mean that fills missing cells; its presence says that they are filled.
static bool read_mean(reading *r, tni_csv_column *c)
{
    double v;
    if (r->j.kind != TNI_JSON_NUMBER || !tni_json_double(&r->j, &v) || !(fabs(v) <= FLT_MAX))
        return bad_schema(r, "a mean is not a number");
    c->mean   = (float)v;
    c->filled = true;
    return true;
}

// Reads the value of one of a column's keys. Unknown keys are skipped, so that later versions can
// add some.
static bool read_member(reading *r, tni_csv_column *c, const tni_json *key, bool *named)
{
    if (tni_json_is(key, "kind")) return read_kind(r, c);
    if (tni_json_is(key, "categories")) return read_categories(r);
    if (tni_json_is(key, "mean")) return read_mean(r, c);
    if (tni_json_is(key, "flag")) {
        c->flagged = r->j.kind == TNI_JSON_TRUE;
        return tni_json_skip(&r->j) || bad_schema(r, NULL);
    }
    if (!tni_json_is(key, "name")) return tni_json_skip(&r->j) || bad_schema(r, NULL);
    if (*named) return bad_schema(r, "a column has two names");
    *named = true;
    return read_column_name(r, c);
}

// Reads one column, and checks that its kind, categories and mean agree.
static bool read_column(reading *r)
{
    tni_csv *t      = r->t;
    void    *column = t->column;
    bool     named  = false;
    if (r->j.kind != TNI_JSON_OBJECT) return bad_schema(r, "a column is expected");
    if (t->columns == TNI_CSV_COLUMNS) return bad_schema(r, "it has too many columns");
    if (!tni_grow(&r->cx->heap, &column, &r->cap, t->columns + 1, sizeof *t->column))
        return no_memory(r);
    t->column         = column;
    tni_csv_column *c = &t->column[t->columns++];
    *c                = (tni_csv_column){ 0 };
    while (tni_json_next(&r->j) == TNI_JSON_KEY) {
        tni_json key = r->j;
        tni_json_next(&r->j);
        if (!read_member(r, c, &key, &named)) return false;
    }
    if (r->j.kind != TNI_JSON_OBJECT_END || !named) return bad_schema(r, "a column has no name");
    if ((c->kind == TNI_CSV_NUMBERS) != (c->categories == 0))
        return bad_schema(r, "numbers have categories, or categories have none");
    if (c->kind == TNI_CSV_NUMBERS ? c->filled || !c->flagged : !c->filled && !c->flagged)
        return true;
    return bad_schema(r, "a column has a mean or a flag that it cannot have");
}

// The number of the column to predict.
static bool read_target(reading *r)
{
    int64_t target;
    if (r->j.kind != TNI_JSON_NUMBER || !tni_json_int(&r->j, &target) || target < 0 ||
        target >= TNI_CSV_COLUMNS)
        return bad_schema(r, "the target is not the number of a column");
    r->t->target = (uint32_t)target;
    return true;
}

static bool read_columns(reading *r)
{
    if (r->j.kind != TNI_JSON_ARRAY) return bad_schema(r, "a list of columns is expected");
    while (tni_json_next(&r->j) != TNI_JSON_ARRAY_END)
        if (!read_column(r)) return false;
    return true;
}

// Reads the whole object; target and columns may come in either order.
static bool read_table(reading *r)
{
    if (tni_json_next(&r->j) != TNI_JSON_OBJECT) return bad_schema(r, "it is not an object");
    while (tni_json_next(&r->j) == TNI_JSON_KEY) {
        bool target = tni_json_is(&r->j, "target"), columns = tni_json_is(&r->j, "columns");
        tni_json_next(&r->j);
        if (target ? !read_target(r) : columns && !read_columns(r)) return false;
        if (!target && !columns && !tni_json_skip(&r->j)) return bad_schema(r, NULL);
    }
    if (r->j.kind != TNI_JSON_OBJECT_END || tni_json_next(&r->j) != TNI_JSON_END)
        return bad_schema(r, "it is not one object");
    return true;
}

// Checks at the end that target and columns fit together.
bool tni_csv_read_schema(tn_ctx *cx, tni_csv *t, const char *schema)
{
    reading r = { .cx = cx, .t = t };
    t->target = TNI_CSV_NO_TARGET;
    tni_json_open(&r.j, schema, strlen(schema));
    if (!read_table(&r)) return false;
    bool targeted = t->target != TNI_CSV_NO_TARGET;
    if (t->columns < 1u + targeted || (targeted && t->target >= t->columns) ||
        (!targeted && !t->no_target))
        return bad_schema(&r, "it has no column to predict, or none to predict from");
    for (uint32_t i = 0; i < t->columns; i++) {
        if (t->column[i].kind == TNI_CSV_INTEGERS && i != t->target)
            return bad_schema(&r, "only the target can be of the kind integer");
        if (t->column[i].filled && i == t->target)
            return bad_schema(&r, "the target cannot be filled by its mean");
    }
    return true;
}
