// test_csv.c: tables of numbers and categories.
#include "faulty.h"
#include "rules_kit.h"
#include "scratch.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>

static tn_data *read_text(tn_ctx *cx, const char *text, tn_csv_opts o)
{
    CHECK(scratch_write(scratch_path("t.csv"), text, strlen(text)));
    tn_data *d = tn_csv(cx, scratch_path("t.csv"), o);
    if (d) tn_data_shuffle(d, false, 0);
    return d;
}

static const tn_csv_opts plain;

// ---- odd and not so odd files, and the values of x they have; y is always the last column, 7 8

typedef struct {
    const char *what, *text;
    tn_csv_opts o;
    int         width;
    double      x[6];  // of two rows
} odd;

static const odd good[] = {
    { "plain", "a,b,y\n1,2,7\n3,4,8\n", { 0 }, 2, { 1, 2, 3, 4 } },
    { "no last end", "a,b,y\n1,2,7\n3,4,8", { 0 }, 2, { 1, 2, 3, 4 } },
    { "CRLF", "a,b,y\r\n1,2,7\r\n3,4,8\r\n", { 0 }, 2, { 1, 2, 3, 4 } },
    { "CR", "a,b,y\r1,2,7\r3,4,8\r", { 0 }, 2, { 1, 2, 3, 4 } },
    { "mark", "\xef\xbb\xbf\"a\",b,y\n1,2,7\n3,4,8\n", { 0 }, 2, { 1, 2, 3, 4 } },
    { "empty lines", "\na,b,y\n\n1,2,7\n  \n3,4,8\n\n\n", { 0 }, 2, { 1, 2, 3, 4 } },
    { "semicolons", "a;b;y\n1;2;7\n3;4;8\n", { 0 }, 2, { 1, 2, 3, 4 } },
    { "tabs", "a,x\tb\ty\n1\t2\t7\n3\t4\t8\n", { 0 }, 2, { 1, 2, 3, 4 } },
    { "separator in quotes", "\"a;;;;\",b,y\n1,2,7\n3,4,8\n", { 0 }, 2, { 1, 2, 3, 4 } },
    { "bars", "a|b|y\n1|2|7\n3|4|8\n", { .separator = '|' }, 2, { 1, 2, 3, 4 } },
    { "blanks", "a , b, y\n 1 ,\t2, 7\n3 , 4 ,8 \n", { 0 }, 2, { 1, 2, 3, 4 } },
    { "quoted", "\"a\",\"b\",\"y\"\n\"1\" , \"2\",\"7\"\n\" 3 \",4,8\n", { 0 }, 2, { 1, 2, 3, 4 } },
    { "no header", "1,2,7\n3,4,8\n", { .no_header = true }, 2, { 1, 2, 3, 4 } },
    { "numbers", "a,b,y\n+1.5e1,.5,7\n-2.,0.1E-1,8\n", { 0 }, 2, { 15, .5, -2, .01f } },
    { "long numbers",
      "a,b,y\n0.1000000000000000055511151231257827,123456789012345678901234567890,7\n1e-300,1e38,8",
      { 0 },
      2,
      { .1f, 123456789012345678901234567890.f, 0, 1e38f } },
    { "categories", "a,b,y\nu,2,7\nv,4,8\n", { 0 }, 3, { 1, 0, 2, 0, 1, 4 } },
    { "an empty category", "a,b,y\nu,2,7\n,4,8\n", { 0 }, 3, { 1, 0, 2, 0, 1, 4 } },
    { "lists", "a;b;y\n1,2,3;2;7\n1,2,3;4;8\n", { 0 }, 2, { 1, 2, 1, 4 } },
    { "one category", "a,b,y\nu,2,7\n\"u\",4,8\n", { 0 }, 2, { 1, 2, 1, 4 } },
    { "doubled quotes", "a,b,y\n\"u\"\"\",2,7\n \"u\"\"\" ,4,8\n", { 0 }, 2, { 1, 2, 1, 4 } },
    { "a quote inside", "a,b,y\n5\" u,2,7\n5\" u,4,8\n", { 0 }, 2, { 1, 2, 1, 4 } },
    { "ends of lines in quotes",
      "a,b,y\n\"u\r\nv\",2,7\n\"u\nv\",4,8\n",
      { 0 },
      3,
      { 1, 0, 2, 0, 1, 4 } },
    { "an empty name", ",b,y\n1,2,7\n3,4,8\n", { 0 }, 2, { 1, 2, 3, 4 } },
    { "target by name", "y,a,b\n7,1,2\n8,3,4\n", { .target = "y" }, 2, { 1, 2, 3, 4 } },
    { "target by number", "a,y,b\n1,7,2\n3,8,4\n", { .target = "1" }, 2, { 1, 2, 3, 4 } },
    { "a name before a number", "0,1,y\n1,2,7\n3,4,8\n", { .target = "2" }, 2, { 1, 2, 3, 4 } },
};

static bool same(const odd *c, tn_batch b)
{
    double x[6], y[2];
    if (!b.x || tn_size(b.x, 1) != c->width || tn_dtype_of(b.y) != TN_F32) return false;
    tn_read(b.x, TN_F64, x, 2 * c->width);
    tn_read(b.y, TN_F64, y, 2);
    return !memcmp(x, c->x, (size_t)c->width * 2 * sizeof *x) && y[0] == 7 && y[1] == 8;
}

static void good_files_are_read(void)
{
    tn_ctx *cx = rules_open_scratch();
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        tn_data *d = read_text(cx, good[i].text, good[i].o);
        test_case_result(d && same(&good[i], tn_next(d, 2)), "%s: %s", good[i].what,
                         tn_error_text(cx));
        tn_error_clear(cx);
    }
    rules_close_scratch(cx);
}

// ---- errors

typedef struct {
    const char *text, *error;  // after the path
    tn_csv_opts o;
} wrong;

#define NINE "1,7\n1,7\n1,7\n1,7\n1,7\n1,7\n1,7\n1,7\n1,7\n"

static const wrong bad[] = {
    { "", ": it is empty", { 0 } },
    { "\n\n", ": it is empty", { 0 } },
    { "a,b\n", ": it has no rows under its header", { 0 } },
    { "a\n1\n", ": it has one column, and needs one to predict and one to predict from", { 0 } },
    { "a,b\n1,2\n3\n", ":3: the row has 1 cells, and the header 2", { 0 } },
    { "a,b\n1,2\n\n3,4,5\n", ":4: the row has 3 cells, and the header 2", { 0 } },
    { "1,2\n3\n", ":2: the row has 1 cells, and the first one 2", { .no_header = true } },
    { "a,b\n\"1\n2\",3\n4\n", ":4: the row has 1 cells", { 0 } },
    { "a,b\n1,2\n\"3,4\n5,6\n", ":3: a quote has no end", { 0 } },
    { "a,\"b\n1,2\n", ":1: a quote has no end", { 0 } },
    { "a,b\n\"1\"x,2\n", ":2: something follows a closing quote", { 0 } },
    { "a,a\n1,2\n", ":1: two columns have the name \"a\"", { 0 } },
    { "a,\xff\n1,2\n", ":1: the name \"\\xff\" is not UTF-8", { 0 } },
    { "a,b\n\xff,2\n", ":2: the name \"\\xff\" is not UTF-8", { 0 } },
    { "a,b\n" NINE "12a,7\n", ":11: column 1 (\"a\"): \"12a\" is not a number", { 0 } },
    { NINE "12a,7\n", ":10: column 1: \"12a\" is not a number", { .no_header = true } },
    { "a,b\n1,2\n\n,2\n", ":4: column 1 (\"a\"): the cell is empty", { 0 } },
    { "a,b\n,2\n,2\n", ":2: column 1 (\"a\"): the cell is empty", { 0 } },
    { "a,b\n1,2\nnan,2\n", ":3: column 1 (\"a\"): \"nan\" is no number but a missing one", { 0 } },
    { "a,b\n1,2\n1,-Inf\n", ":3: column 2 (\"b\"): \"-Inf\" is not a finite number", { 0 } },
    { "a,b\n1,2\n1e39,2\n", ":3: column 1 (\"a\"): \"1e39\" is too large for f32", { 0 } },
    { "a,b\n1,2\n1e999,2\n", ":3: column 1 (\"a\"): \"1e999\" is too large for f32", { 0 } },
    { "1,2\n3,4\n",
      ": the first line has numbers only: if it is not a header, set .no_header",
      { 0 } },
    { "1,5;2,5\n3;4\n", ": the first line has numbers only", { 0 } },
    { "a;b\n1;2\n1,5;3\n", ":3: column 1 (\"a\"): \"1,5\" has a decimal comma", { 0 } },
    { "a;b\n1;-1.234,5\n", ":2: column 2 (\"b\"): \"-1.234,5\" has a decimal comma", { 0 } },
    { "1,5;2\n2,5;3\n", ":1: column 1: \"1,5\" has a decimal comma", { .no_header = true } },
    { "a,b\n1,2\n", ": \"c\" is neither the name nor the number of a column", { .target = "c" } },
    { "a,b\n1,2\n", ": \"2\" is neither the name nor the number of a column", { .target = "2" } },
    { "a,b\n1,2\n", ": \"0x\" is neither the name nor the number of a column", { .target = "0x" } },
};

static void errors_name_line_and_column(void)
{
    tn_ctx *cx = rules_open_scratch();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[600];
        snprintf(text, sizeof text, "csv: %s%s", scratch_path("t.csv"), bad[i].error);
        bool ok = !read_text(cx, bad[i].text, bad[i].o) && strstr(tn_error_text(cx), text);
        test_case_result(ok, "%zu: \"%s\", not \"%s\"", i, tn_error_text(cx), text);
        tn_error_clear(cx);
    }
    CHECK(tn_csv(cx, scratch_path("none"), plain) == NULL);
    CHECK_FAILED(cx, TN_EIO, "No such file");
    CHECK(tn_csv(cx, NULL, plain) == NULL);
    CHECK_FAILED(cx, TN_EARG, "csv: the path is NULL");
    CHECK(tn_csv(cx, "x", (tn_csv_opts){ .separator = '"' }) == NULL);
    CHECK_FAILED(cx, TN_EARG, "cannot be the separator");
    CHECK(scratch_write(scratch_path("t.csv"),
                        "\xff\xfe"
                        "a\0,\0b\0\n\0",
                        10));
    CHECK(tn_csv(cx, scratch_path("t.csv"), plain) == NULL);
    CHECK_FAILED(cx, TN_EFORMAT, "bytes of value 0 are in it, which no text in UTF-8 has");
    rules_close_scratch(cx);
}

// ---- limits

static void too_much_of_something_is_an_error(void)
{
    tn_ctx *cx   = rules_open_scratch();
    char   *text = malloc(1 << 20), *at = text;
    at += sprintf(at, "id,y\n");
    for (int i = 0; i < 1001; i++) at += sprintf(at, "name%d,1\n", i);
    CHECK(read_text(cx, text, plain) == NULL);
    CHECK_FAILED(cx, TN_EFORMAT, ":1002: column 1 (\"id\"): more than 1000 categories");

    memset(text, ',', 1 << 20);
    text[(1 << 20) - 1] = 0;
    CHECK(read_text(cx, text, plain) == NULL);
    CHECK_FAILED(cx, TN_EFORMAT, "it has more than 65536 columns");

    memset(text, 'x', 2000);
    strcpy(text + 2000, ",y\n1,2\n");
    CHECK(read_text(cx, text, plain) == NULL);
    CHECK_FAILED2(cx, TN_EFORMAT, "xxx...\"", "is longer than 1024 bytes");
    free(text);
    rules_close_scratch(cx);
}

// ---- targets

static void a_target_of_texts_is_classes(void)
{
    tn_ctx  *cx = rules_open_scratch();
    tn_data *d  = read_text(cx, "a,y\n1,no\n2,yes\n3,no\n", plain);
    CHECK_INT(tn_data_info(d).classes, 2);
    CHECK_STR(tn_data_class_name(d, 0), "no");
    CHECK_STR(tn_data_class_name(d, 1), "yes");
    tn_batch b = tn_next(d, 3);
    CHECK_INT(tn_dtype_of(b.y), TN_I64);
    CHECK_INT(tn_rank(b.y), 1);
    CHECK_VALUES(b.y, 0, 1, 0);
    rules_close_scratch(cx);
}

static void few_whole_numbers_are_classes_in_ascending_order(void)
{
    tn_ctx *cx = rules_open_scratch();
    char    text[400];
    strcpy(text, "a,y\n");
    for (int i = 0; i < 5; i++) strcat(text, "1,3\n2,-1\n1,10.0\n");
    tn_data *d = read_text(cx, text, plain);
    CHECK_INT(tn_data_info(d).classes, 3);
    CHECK_STR(tn_data_class_name(d, 0), "-1");
    CHECK_STR(tn_data_class_name(d, 2), "10");
    CHECK_VALUES(tn_next(d, 3).y, 1, 0, 2);

    // Fewer than five rows a value.
    d = read_text(cx, "a,y\n1,3\n2,1\n1,10\n", plain);
    CHECK_INT(tn_data_info(d).classes, 0);
    CHECK_VALUES(tn_next(d, 3).y, 3, 1, 10);
    rules_close_scratch(cx);
}

static void a_fraction_or_many_values_make_a_regression(void)
{
    tn_ctx *cx = rules_open_scratch();
    char    text[4000], row[32];
    for (int many = 0; many < 2; many++) {
        strcpy(text, "a,y\n");
        for (int i = 0; i < 210; i++) {
            snprintf(row, sizeof row, "1,%g\n", many ? i % 21 : i == 209 ? 1.5 : 1);
            strcat(text, row);
        }
        tn_data *d = read_text(cx, text, plain);
        CHECK_INT(tn_data_info(d).classes, 0);
        tn_batch b = tn_next(d, 2);
        CHECK_INT(tn_rank(b.y), 2);
        CHECK_INT(tn_size(b.y, 1), 1);
    }
    rules_close_scratch(cx);
}

// ---- schemas

static const char table[] = "age,\"to\"\"wn\",y\n1,Bern,b\n2,\"U\\l\nm\",a\n3,,b\n";

static void a_schema_reads_another_file_in_the_same_way(void)
{
    tn_ctx  *cx = rules_open_scratch();
    tn_data *d  = read_text(cx, table, plain);
    char     schema[500];
    CHECK_STR(
        tn_data_schema(d),
        "{\"target\":2,\"columns\":[{\"name\":\"age\",\"kind\":\"number\"},"
        "{\"name\":\"to\\\"wn\",\"kind\":\"category\",\"categories\":[\"Bern\",\"U\\\\l\\u000am\","
        "\"\"]},{\"name\":\"y\",\"kind\":\"category\",\"categories\":[\"b\",\"a\"]}]}");
    snprintf(schema, sizeof schema, "%s", tn_data_schema(d));

    d = read_text(cx, "y,age,\"to\"\"wn\"\na,5,\nb,6,Bern\n", (tn_csv_opts){ .schema = schema });
    CHECK_STR(tn_data_schema(d), schema);
    tn_batch b = tn_next(d, 2);
    CHECK_VALUES(b.x, 5, 0, 0, 1, 6, 1, 0, 0);
    CHECK_VALUES(b.y, 1, 0);
    CHECK_STR(tn_data_class_name(d, 1), "a");

    tn_csv_opts o = { .schema = schema, .no_header = true, .target = "y" };
    CHECK_VALUES(tn_next(read_text(cx, "7,Bern,a\n", o), 1).x, 7, 1, 0, 0);
    CHECK_STATUS(tn_error(cx), TN_OK);
    rules_close_scratch(cx);
}

static void a_schema_keeps_whole_numbers_as_classes(void)
{
    tn_ctx  *cx = rules_open_scratch();
    char     schema[300];
    tn_data *d = read_text(cx, "a,y\n1,4\n1,2\n1,2\n1,2\n1,2\n1,2\n1,4\n1,4\n1,4\n1,4\n", plain);
    snprintf(schema, sizeof schema, "%s", tn_data_schema(d));
    d = read_text(cx, "a,y\n1,4.0\n2,2\n", (tn_csv_opts){ .schema = schema });
    CHECK_INT(tn_data_info(d).classes, 2);
    CHECK_VALUES(tn_next(d, 2).y, 1, 0);
    CHECK(read_text(cx, "a,y\n1,3\n", (tn_csv_opts){ .schema = schema }) == NULL);
    CHECK_FAILED(cx, TN_EFORMAT,
                 ":2: column 2 (\"y\"): \"3\" is a category that the schema does not have");
    CHECK(read_text(cx, "a,y\n1,2.25\n", (tn_csv_opts){ .schema = schema }) == NULL);
    CHECK_FAILED(cx, TN_EFORMAT, "\"2.25\" is a category that the schema does not have");
    rules_close_scratch(cx);
}

static void a_file_must_fit_its_schema(void)
{
    static const wrong misfits[] = {
        { "age,\"to\"\"wn\",y\n1,Rom,a\n",
          ":2: column 2 (\"to'wn\"): \"Rom\" is a category that the schema does not have",
          { 0 } },
        { "age,\"to\"\"wn\",y\nold,Bern,a\n",
          ":2: column 1 (\"age\"): \"old\" is not a number",
          { 0 } },
        { "age,city,y\n1,Bern,a\n", ":1: the schema has no column \"city\"", { 0 } },
        { "age,y\n1,a\n", ": it has 2 columns, and the schema 3", { 0 } },
        { "age,age,y\n1,2,a\n", ": two columns have the same name", { 0 } },
        { "age,\"to\"\"wn\",y\n1,Bern,a\n",
          ": \"age\" is not the target of the schema",
          { .target = "age" } },
    };
    tn_ctx  *cx = rules_open_scratch();
    tn_data *d  = read_text(cx, table, plain);
    for (size_t i = 0; i < sizeof misfits / sizeof *misfits; i++) {
        char text[600];
        snprintf(text, sizeof text, "csv: %s%s", scratch_path("t.csv"), misfits[i].error);
        tn_csv_opts o = misfits[i].o;
        o.schema      = tn_data_schema(d);
        bool ok       = !read_text(cx, misfits[i].text, o) && !strcmp(tn_error_text(cx), text);
        test_case_result(ok, "\"%s\", not \"%s\"", tn_error_text(cx), text);
        tn_error_clear(cx);
    }
    rules_close_scratch(cx);
}

// ---- rows to predict

static void rows_to_predict_need_no_target(void)
{
    tn_ctx  *cx = rules_open_scratch();
    tn_data *d  = read_text(cx, table, plain);
    char     schema[500];
    snprintf(schema, sizeof schema, "%s", tn_data_schema(d));
    static const char *const files[] = {
        "age,\"to\"\"wn\"\n5,Bern\n6,\n", "\"to\"\"wn\",age\nBern,5\n,6\n",
        "y,age,\"to\"\"wn\"\nwhat,5,Bern\n,6,\n",  // a target that is there is not looked at
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        tn_csv_opts o = { .schema = schema, .no_target = true };
        d             = read_text(cx, files[i], o);
        tn_batch b    = tn_next(d, 2);
        CHECK_VALUES(b.x, 5, 1, 0, 0, 6, 0, 0, 1);
        CHECK(b.y == NULL);
        CHECK_INT(tn_data_info(d).fields, 1);
        CHECK_INT(tn_data_info(d).classes, 2);
        CHECK_STR(tn_data_class_name(d, 1), "a");
        CHECK_STR(tn_data_schema(d), schema);
    }
    tn_csv_opts o = { .schema = schema, .no_target = true, .no_header = true };
    CHECK_VALUES(tn_next(read_text(cx, "5,Bern\n", o), 1).x, 5, 1, 0, 0);
    CHECK_VALUES(tn_next(read_text(cx, "5,Bern,what\n", o), 1).x, 5, 1, 0, 0);
    o.no_header = false;
    CHECK(read_text(cx, "age,y\n5,a\n", o) == NULL);
    CHECK_FAILED(cx, TN_EFORMAT, "it has no column \"to\"wn\", and the schema has");
    CHECK(read_text(cx, "age\n5\n", o) == NULL);
    CHECK_FAILED(cx, TN_EFORMAT, "it has 1 columns, and the schema 3");
    rules_close_scratch(cx);
}

static void a_table_may_be_all_inputs(void)
{
    tn_ctx  *cx = rules_open_scratch();
    tn_data *d  = read_text(cx, "a,b\n1,u\n2,v\n", (tn_csv_opts){ .no_target = true });
    CHECK_VALUES(tn_next(d, 2).x, 1, 1, 0, 2, 0, 1);
    char schema[300];
    snprintf(schema, sizeof schema, "%s", tn_data_schema(d));
    d = read_text(cx, "b,a\nv,7\n", (tn_csv_opts){ .no_target = true, .schema = schema });
    CHECK_VALUES(tn_next(d, 1).x, 7, 0, 1);
    CHECK(read_text(cx, "b,a\nv,7\n", (tn_csv_opts){ .schema = schema }) == NULL);
    CHECK_FAILED(cx, TN_EFORMAT, "it has no column to predict");
    CHECK_VALUES(tn_next(read_text(cx, "a\n3\n", (tn_csv_opts){ .no_target = true }), 1).x, 3);
    rules_close_scratch(cx);
}

// ---- missing cells

// Of a column of numbers, of words, and the target: one of each is missing in one row of its own.
static const char holes[] = "n,w,y\n1,u,1.5\n ? ,u,2\n6,NA,3\n5,u,null\n2,v,4\n";

static void missing_numbers_get_the_mean_of_their_column(void)
{
    tn_ctx  *cx = rules_open_scratch();
    tn_data *d  = read_text(cx, holes, (tn_csv_opts){ .missing = TN_MISSING_MEAN });
    CHECK_INT(tn_data_count(d), 4);
    CHECK_INT(tn_data_info(d).skipped, 1);
    tn_batch b = tn_next(d, 4);
    CHECK_VALUES(b.x, 1, 1, 0, 0, 3, 1, 0, 0, 6, 0, 1, 0, 2, 0, 0, 1);
    CHECK_VALUES(b.y, 1.5, 2, 3, 4);

    // Another file is filled by the means of the first one; a word that is missing there is ""
    // here.
    char schema[500];
    snprintf(schema, sizeof schema, "%s", tn_data_schema(d));
    CHECK(strstr(schema, "{\"name\":\"n\",\"kind\":\"number\",\"mean\":3}") != NULL);
    tn_csv_opts o = { .schema = schema, .missing = TN_MISSING_MEAN, .no_target = true };
    CHECK_VALUES(tn_next(read_text(cx, "n,w\nnull,?\n", o), 1).x, 3, 0, 1, 0);
    rules_close_scratch(cx);
}

// Rows 1 .. 40 with the square of their number; every fourth misses it.
static void rows_held_out_count_to_no_mean(void)
{
    tn_ctx     *cx         = rules_open_scratch();
    tn_csv_opts o          = { .missing = TN_MISSING_MEAN, .held_out = 0.25, .split_seed = 7 };
    char        text[2000] = "n,y\n";
    for (int i = 1; i <= 40; i++) {
        size_t used = strlen(text);
        if (i % 4) snprintf(text + used, sizeof text - used, "%d,%d.5\n", i * i, i);
        else snprintf(text + used, sizeof text - used, ",%d.5\n", i);
    }
    tn_data *d = read_text(cx, text, o), *test = tn_data_split(d, o.held_out, o.split_seed);
    CHECK_INT(tn_data_count(test), 10);
    double sum = 0, mean, v = 0;
    int    n = 0, checked = 0;
    for (int64_t k = 0; k < tn_data_count(d); k++) {
        int64_t i = tn_data_row(d, k) + 1;
        if (i % 4) sum += (double)(i * i), n++;
    }
    mean = (double)(float)(sum / n);
    CHECK(n < 30 && mean != 0);
    for (int part = 0; part < 2; part++) {
        tn_data *of = part ? test : d;
        tn_data_shuffle(of, false, 0);
        for (int64_t k = 0; k < tn_data_count(of); k++) {
            tn_batch b = tn_next(of, 1);
            int64_t  i = tn_data_row(of, k) + 1;
            CHECK_STATUS(tn_read(b.x, TN_F64, &v, 1), TN_OK);
            CHECK_NEAR(v, i % 4 ? (double)(i * i) : mean, 0);
            checked += i % 4 == 0;
        }
    }
    CHECK_INT(checked, 10);
    o.held_out = 1;
    CHECK(read_text(cx, text, o) == NULL);
    CHECK_FAILED(cx, TN_EARG, "csv: held_out 1 is not from 0 to 1, without 1");
    rules_close_scratch(cx);
}

static void missing_cells_can_be_an_input_of_their_own(void)
{
    tn_ctx  *cx = rules_open_scratch();
    tn_data *d  = read_text(cx, "m,n,y\n1,2,7\n1,,8\n",
                            (tn_csv_opts){ .missing = TN_MISSING_CATEGORY });
    CHECK_VALUES(tn_next(d, 2).x, 1, 2, 0, 1, 2, 1);
    char schema[500];
    snprintf(schema, sizeof schema, "%s", tn_data_schema(d));
    tn_csv_opts o = { .schema = schema, .missing = TN_MISSING_CATEGORY };
    CHECK_VALUES(tn_next(read_text(cx, "m,n,y\n,,7\n", o), 1).x, 1, 2, 1);
    rules_close_scratch(cx);
}

static void rows_with_missing_cells_can_be_left_out(void)
{
    tn_ctx  *cx = rules_open_scratch();
    tn_data *d  = read_text(cx, holes, (tn_csv_opts){ .missing = TN_MISSING_SKIP });
    CHECK_INT(tn_data_count(d), 2);
    CHECK_INT(tn_data_info(d).skipped, 3);
    CHECK_INT(tn_data_row(d, 0), 0);
    CHECK_INT(tn_data_row(d, 1), 4);
    CHECK_INT(tn_data_row(d, 2), -1);
    tn_batch b = tn_next(d, 2);
    CHECK_VALUES(b.x, 1, 1, 0, 2, 0, 1);
    CHECK_VALUES(b.y, 1.5, 4);
    CHECK(read_text(cx, "a,y\n,1\nNA,2\n", (tn_csv_opts){ .missing = TN_MISSING_SKIP }) == NULL);
    CHECK_FAILED(cx, TN_EFORMAT, "no row is left: cells of all 2 are missing");
    rules_close_scratch(cx);
}

static void missing_cells_do_not_make_a_column_of_words(void)
{
    tn_ctx *cx = rules_open_scratch();
    CHECK(read_text(cx, "a,y\n?,1\n2,2\n?,3\n", plain) == NULL);
    CHECK_FAILED2(cx, TN_EFORMAT, ":2: column 1 (\"a\"): \"?\" is no number but a missing one",
                  "set .missing");
    tn_csv_opts o = { .missing = TN_MISSING_MEAN, .missing_words = "-,-99" };
    CHECK_VALUES(tn_next(read_text(cx, "a,y\n-,1\n2,2\n-99,3\n", o), 3).x, 2, 2, 2);
    CHECK(read_text(cx, "a,y\nNA,1\n2,2\n3,3\n4,4\n5,5\n6,6\n7,7\n8,8\n9,9\n8,8\n", o) == NULL);
    CHECK_FAILED(cx, TN_EFORMAT, "\"NA\" is not a number");
    CHECK(read_text(cx, "a,y\n1,1\n", (tn_csv_opts){ .missing = 4 }) == NULL);
    CHECK_FAILED(cx, TN_EARG, "csv: missing is 4, none of tn_missing");

    // A schema that was made without means has none to fill with.
    char schema[300];
    snprintf(schema, sizeof schema, "%s", tn_data_schema(read_text(cx, "a,y\n1,2\n", plain)));
    o = (tn_csv_opts){ .missing = TN_MISSING_MEAN, .schema = schema };
    CHECK(read_text(cx, "a,y\n,2\n", o) == NULL);
    CHECK_FAILED(cx, TN_EFORMAT, "the cell is empty, and the schema has no mean for it");
    rules_close_scratch(cx);
}

// The text "a,y\n1,7\n3,8\n", as gzip stores it.
static const unsigned char packed[] = { 0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00,
                                        0x02, 0x03, 0x4b, 0xd4, 0xa9, 0xe4, 0x32, 0xd4,
                                        0x31, 0xe7, 0x32, 0xd6, 0xb1, 0xe0, 0x02, 0x00,
                                        0x45, 0x4d, 0xe0, 0xed, 0x0c, 0x00, 0x00, 0x00 };

static void a_file_may_be_gzip(void)
{
    tn_ctx *cx = rules_open_scratch();
    CHECK(scratch_write(scratch_path("t.csv.gz"), packed, sizeof packed));
    tn_data *d = tn_csv(cx, scratch_path("t.csv.gz"), plain);
    if (d) tn_data_shuffle(d, false, 0);
    CHECK_VALUES(tn_next(d, 2).x, 1, 3);
    rules_close_scratch(cx);
}

#define COLUMNS(text) "{\"target\":1,\"columns\":[{\"name\":\"a\"}," text "]}"

static void a_wrong_schema_is_an_error(void)
{
    static const char *const schemas[][2] = {
        { "", "the text ends too early" },
        { "[]", "it is not an object" },
        { "{}", "it has no column to predict, or none to predict from" },
        { "{} x", "something follows the value" },
        { "{\"target\":-1}", "the target is not the number of a column" },
        { "{\"target\":2,\"columns\":[{\"name\":\"a\"},{\"name\":\"b\"}]}", "it has no column" },
        { "{\"columns\":1}", "a list of columns is expected" },
        { COLUMNS("1"), "a column is expected" },
        { COLUMNS("{}"), "a column has no name" },
        { COLUMNS("{\"name\":1}"), "a name is expected" },
        { COLUMNS("{\"name\":\"a\"}"), "a name appears twice" },
        { COLUMNS("{\"name\":\"b\",\"name\":\"c\"}"), "a column has two names" },
        { COLUMNS("{\"name\":\"b\\u0000\"}"), "a name cannot be one" },
        { COLUMNS("{\"name\":\"b\",\"kind\":\"x\"}"), "a column's kind is none of" },
        { COLUMNS("{\"name\":\"b\",\"kind\":\"category\"}"), "categories have none" },
        { COLUMNS("{\"name\":\"b\",\"categories\":[\"x\"]}"), "numbers have categories" },
        { COLUMNS("{\"name\":\"b\",\"categories\":[\"x\",\"x\"]}"), "a name appears twice" },
        { COLUMNS("{\"name\":\"b\",\"categories\":[1]}"), "a name is expected" },
        { COLUMNS("{\"name\":\"b\",\"categories\":{}}"), "a list of categories is expected" },
        { COLUMNS("{\"name\":\"b\"},{\"name\":\"c\",\"kind\":\"integer\",\"categories\":[\"1\"]}"),
          "only the target can be of the kind integer" },
        { COLUMNS("{\"name\":\"b\",\"x\":[1,{}}"), "a comma or a closing bracket is expected" },
    };
    tn_ctx *cx = rules_open_scratch();
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
        CHECK(read_text(cx, "a,b\n1,2\n", (tn_csv_opts){ .schema = schemas[i][0] }) == NULL);
        CHECK_FAILED2(cx, TN_EFORMAT, "csv: the schema: byte ", schemas[i][1]);
    }
    rules_close_scratch(cx);
}

// ---- the rest

static void the_locale_does_not_matter(void)
{
    static const char *const commas[] = { "de_DE.UTF-8", "fr_FR.UTF-8", "pl_PL.UTF-8" };
    const char              *set      = NULL;
    for (size_t i = 0; i < 3 && !set; i++) set = setlocale(LC_NUMERIC, commas[i]);
    if (!set) SKIP("no locale with a decimal comma is installed");
    tn_ctx *cx = rules_open_scratch();
    CHECK_VALUES(tn_next(read_text(cx, "a,y\n1.5,0.12345678901234567890\n", plain), 1).x, 1.5);
    tn_data *d = read_text(cx, "a,y\n1.5,2\n", (tn_csv_opts){ .missing = TN_MISSING_MEAN });
    CHECK(strstr(tn_data_schema(d), "\"mean\":1.5}") != NULL);
    setlocale(LC_NUMERIC, "C");
    rules_close_scratch(cx);
}

static void every_allocation_may_fail(void)
{
    CHECK(scratch_open());
    bool done = false;
    for (long n = 1; n < 200 && !done; n++) {
        faulty  h   = { 0 };
        tn_ctx *cx  = faulty_open("cpu", &h);
        h.countdown = n;
        tn_data *d  = read_text(cx, table, plain);
        char     schema[500];
        if (d) snprintf(schema, sizeof schema, "%s", tn_data_schema(d));
        if (d) d = read_text(cx, table, (tn_csv_opts){ .schema = schema });
        if (d) d = read_text(cx, holes, (tn_csv_opts){ .missing = TN_MISSING_MEAN });
        done = !h.failed;
        test_that(done ? d != NULL : !d && tn_error(cx) == TN_EMEM, "allocation %ld: %s", n,
                  tn_error_text(cx));
        h.countdown = 0;
        tn_close(cx);
        CHECK_INT(h.live, 0);
    }
    CHECK(done);
    scratch_close();
}

const test_case tests_csv[] = {
    TEST(good_files_are_read),
    TEST(errors_name_line_and_column),
    TEST(too_much_of_something_is_an_error),
    TEST(a_target_of_texts_is_classes),
    TEST(few_whole_numbers_are_classes_in_ascending_order),
    TEST(a_fraction_or_many_values_make_a_regression),
    TEST(a_schema_reads_another_file_in_the_same_way),
    TEST(a_schema_keeps_whole_numbers_as_classes),
    TEST(a_file_must_fit_its_schema),
    TEST(a_wrong_schema_is_an_error),
    TEST(rows_to_predict_need_no_target),
    TEST(a_table_may_be_all_inputs),
    TEST(missing_numbers_get_the_mean_of_their_column),
    TEST(rows_held_out_count_to_no_mean),
    TEST(missing_cells_can_be_an_input_of_their_own),
    TEST(rows_with_missing_cells_can_be_left_out),
    TEST(missing_cells_do_not_make_a_column_of_words),
    TEST(a_file_may_be_gzip),
    TEST(the_locale_does_not_matter),
    TEST(every_allocation_may_fail),
    TEST_END,
};
