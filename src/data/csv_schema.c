// What a CSV file's columns are, as JSON, so that another file can be read in the same way:
//     {"target":2,"columns":[{"name":"age","kind":"number"},
//      {"name":"town","kind":"category","categories":["Bern","Ulm"]},
//      {"name":"stars","kind":"integer","categories":["1","2","3"]}]}
// A column of numbers whose missing cells are filled has a "mean", and with "flag":true an input more.
// Without a column to predict there is no "target".
#include "base/json.h"
#include "data/csv.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const char *const kinds[] = { "number", "category", "integer" };

// ---- writing -----------------------------------------------------------------------------------

// With a point, whatever the locale has in its place.
static void put_number(tni_json_writer *w, double v)
{
    tni_text t  = tni_text_of("%.9g", v);
    char    *to = t.s;
    for (const char *s = t.s; *s; s++) {
        bool is_point = !strchr("0123456789+-e", *s);
        if (!is_point || to == t.s || to[-1] != '.') *to++ = is_point ? '.' : *s;
    }
    *to = 0;
    tni_json_put(w, t.s);
}

static void put_column(tni_json_writer *w, const tni_csv *t, const tni_csv_column *c)
{
    tni_json_put(w, "{\"name\":");
    tni_json_quote(w, tni_csv_name(t, c->name));
    tni_json_put(w, ",\"kind\":");
    tni_json_quote(w, kinds[c->kind]);
    if (c->filled) {
        tni_json_put(w, ",\"mean\":");
        put_number(w, (double)c->mean);
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

char *tni_csv_write_schema(tni_heap *h, const tni_csv *t)
{
    tni_json_writer w = { .heap = h };
    put_table(&w, t);
    if (!w.full) return w.text;
    tni_free(h, w.text);
    return NULL;
}

// ---- reading -----------------------------------------------------------------------------------

typedef struct {
    tn_ctx  *cx;
    tni_csv *t;
    size_t   cap;  // of the columns
    tni_json j;
} reading;

static bool bad(reading *r, const char *why)
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

// What adding a name returned: whether it was added.
static bool added(reading *r, int64_t index)
{
    if (index == TNI_CSV_NO_MEMORY) return no_memory(r);
    return index >= 0 || bad(r, "it has too many names");
}

// The current string; false, reported, if it cannot be a new name of the list.
static bool read_name(reading *r, uint32_t list, char name[TNI_CSV_NAME + 1], size_t *length)
{
    if (r->j.kind != TNI_JSON_STRING) return bad(r, "a name is expected");
    int64_t n = tni_json_string(&r->j, name, TNI_CSV_NAME + 1);
    if (n < 0 || n > TNI_CSV_NAME || strlen(name) != (size_t)n)
        return bad(r, "a name cannot be one: it is too long, or not a text");
    *length = (size_t)n;
    return tni_csv_find(&r->t->names, list, name, *length) == TNI_CSV_NO_NAME ||
           bad(r, "a name is there twice");
}

static bool read_column_name(reading *r, tni_csv_column *c)
{
    char   name[TNI_CSV_NAME + 1];
    size_t n;
    if (!read_name(r, TNI_CSV_HEADER, name, &n)) return false;
    int64_t entry = tni_csv_add(&r->cx->heap, &r->t->names, TNI_CSV_HEADER, r->t->columns - 1, name,
                                n);
    c->name       = (uint32_t)entry;
    return added(r, entry);
}

static bool read_kind(reading *r, tni_csv_column *c)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        c->kind = (uint8_t)i;
        if (r->j.kind == TNI_JSON_STRING && tni_json_is(&r->j, kinds[i])) return true;
    }
    return bad(r, "a column's kind is none of number, category and integer");
}

static bool read_categories(reading *r)
{
    char     name[TNI_CSV_NAME + 1];
    size_t   n;
    uint32_t column = r->t->columns - 1;
    if (r->j.kind != TNI_JSON_ARRAY) return bad(r, "a list of categories is expected");
    while (tni_json_next(&r->j) != TNI_JSON_ARRAY_END)
        if (!read_name(r, column, name, &n) ||
            !added(r, tni_csv_category(&r->cx->heap, r->t, column, name, n)))
            return false;
    return true;
}

static bool read_mean(reading *r, tni_csv_column *c)
{
    double v;
    if (r->j.kind != TNI_JSON_NUMBER || !tni_json_double(&r->j, &v) || !(fabs(v) <= FLT_MAX))
        return bad(r, "a mean is not a number");
    c->mean   = (float)v;
    c->filled = true;
    return true;
}

// The value of one of a column's keys.
static bool read_member(reading *r, tni_csv_column *c, const tni_json *key, bool *named)
{
    if (tni_json_is(key, "kind")) return read_kind(r, c);
    if (tni_json_is(key, "categories")) return read_categories(r);
    if (tni_json_is(key, "mean")) return read_mean(r, c);
    if (tni_json_is(key, "flag")) {
        c->flagged = r->j.kind == TNI_JSON_TRUE;
        return tni_json_skip(&r->j) || bad(r, NULL);
    }
    if (!tni_json_is(key, "name")) return tni_json_skip(&r->j) || bad(r, NULL);
    if (*named) return bad(r, "a column has two names");
    *named = true;
    return read_column_name(r, c);
}

static bool read_column(reading *r)
{
    tni_csv *t      = r->t;
    void    *column = t->column;
    bool     named  = false;
    if (r->j.kind != TNI_JSON_OBJECT) return bad(r, "a column is expected");
    if (t->columns == TNI_CSV_COLUMNS) return bad(r, "it has too many columns");
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
    if (r->j.kind != TNI_JSON_OBJECT_END || !named) return bad(r, "a column has no name");
    if ((c->kind == TNI_CSV_NUMBERS) != (c->categories == 0))
        return bad(r, "numbers have categories, or categories have none");
    if (c->kind == TNI_CSV_NUMBERS ? c->filled || !c->flagged : !c->filled && !c->flagged)
        return true;
    return bad(r, "a column has a mean or a flag that it cannot have");
}

static bool read_target(reading *r)
{
    int64_t target;
    if (r->j.kind != TNI_JSON_NUMBER || !tni_json_int(&r->j, &target) || target < 0 ||
        target >= TNI_CSV_COLUMNS)
        return bad(r, "the target is not the number of a column");
    r->t->target = (uint32_t)target;
    return true;
}

static bool read_columns(reading *r)
{
    if (r->j.kind != TNI_JSON_ARRAY) return bad(r, "a list of columns is expected");
    while (tni_json_next(&r->j) != TNI_JSON_ARRAY_END)
        if (!read_column(r)) return false;
    return true;
}

static bool read_table(reading *r)
{
    if (tni_json_next(&r->j) != TNI_JSON_OBJECT) return bad(r, "it is not an object");
    while (tni_json_next(&r->j) == TNI_JSON_KEY) {
        bool target = tni_json_is(&r->j, "target"), columns = tni_json_is(&r->j, "columns");
        tni_json_next(&r->j);
        if (target ? !read_target(r) : columns && !read_columns(r)) return false;
        if (!target && !columns && !tni_json_skip(&r->j)) return bad(r, NULL);
    }
    if (r->j.kind != TNI_JSON_OBJECT_END || tni_json_next(&r->j) != TNI_JSON_END)
        return bad(r, "it is not one object");
    return true;
}

bool tni_csv_read_schema(tn_ctx *cx, tni_csv *t, const char *schema)
{
    reading r = { .cx = cx, .t = t };
    t->target = TNI_CSV_NO_TARGET;
    tni_json_open(&r.j, schema, strlen(schema));
    if (!read_table(&r)) return false;
    bool targeted = t->target != TNI_CSV_NO_TARGET;
    if (t->columns < 1u + targeted || (targeted && t->target >= t->columns) ||
        (!targeted && !t->no_target))
        return bad(&r, "it has no column to predict, or none to predict from");
    for (uint32_t i = 0; i < t->columns; i++) {
        if (t->column[i].kind == TNI_CSV_INTEGERS && i != t->target)
            return bad(&r, "only the target can be of the kind integer");
        if (t->column[i].filled && i == t->target)
            return bad(&r, "the target cannot be filled by its mean");
    }
    return true;
}
