// Fuzzes the reader of CSV. The first byte of an input is a bit set: 1 no header, 2 semicolons, 4 a
// schema comes first, up to a 0, 8 no target; the upper two bits are what becomes of missing cells.
// What could be read is read again by its own schema: that must give the same.
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void seed(char flags, const char *schema, const char *text)
{
    char input[2048];
    int  n = snprintf(input, sizeof input, "%c%s%c%s", flags, schema, 0, text);
    if (*schema) fuzz_seed(input, (size_t)n);
    n = snprintf(input, sizeof input, "%c%s", flags & ~4, text);
    fuzz_seed(input, (size_t)n);
}

static void seeds(void)
{
    seed('0', "", "a,b,y\n1,2,7\n3,4,8\n");
    seed('1', "", "1,2,7\r\n3,\"4\",-8e1\r\n");
    seed('2', "", "a;b\n\"u\n\"\"v\";1.25\n\"u\";.5\n");
    seed('0', "", "\xef\xbb\xbf x , y\nu,0\nv,1\nu,1\nv,0\nw,0\nu,1\nv,1\nu,0\nv,0\nu,1\n");
    seed('0', "", "a\tb\nyes\tno\nno\tnan\n\t1\n");
    seed(
        '4',
        "{\"target\":1,\"columns\":[{\"name\":\"a\",\"kind\":\"category\",\"categories\":[\"u\",\"v\"]},"
        "{\"name\":\"y\",\"kind\":\"integer\",\"categories\":[\"0\",\"1\"]}]}",
        "y,a\n0,u\n1,v\n");
    seed('@', "", "a,b,y\n1,u,7\n?,NA,8\n3,u,\n");
    seed('\x88', "", "a,b\n1,u\nnull,v\n3,\n");
    seed('\xc0', "", "a,b,y\n1,u,7\n?,NA,8\n3,u,\n");
    seed(
        '\x4c',
        "{\"target\":1,\"columns\":[{\"name\":\"a\",\"kind\":\"number\",\"mean\":1.5,\"flag\":true},"
        "{\"name\":\"y\"}]}",
        "a\n1\nnan\n");
    seed('5', "{\"target\":0,\"columns\":[{\"name\":\"a\"},{\"name\":\"b\"}]}", "1,2\n");
}

// Reads the file again by the schema of d.
static void read_again(tn_ctx *cx, const char *path, tn_csv_opts o, tn_data *d)
{
    o.schema     = tn_data_schema(d);
    tn_data *too = tn_csv(cx, path, o);
    FUZZ_CHECK(too != NULL);
    FUZZ_CHECK(tn_data_count(too) == tn_data_count(d));
    FUZZ_CHECK(strcmp(tn_data_schema(too), tn_data_schema(d)) == 0);
    tn_data_shuffle(d, false, 0);
    tn_data_shuffle(too, false, 0);
    tn_batch a = tn_next(d, 1), b = tn_next(too, 1);
    FUZZ_CHECK(tn_item_i64(tn_all_all(tn_eq(a.x, b.x))) == 1);
    FUZZ_CHECK(o.no_target == !a.y);
    FUZZ_CHECK(o.no_target || tn_item_i64(tn_all_all(tn_eq(a.y, b.y))) == 1);
}

static uint64_t run(const unsigned char *data, size_t n)
{
    int         flags = n ? data[0] : 0;
    const void *zero  = n > 1 && flags & 4 ? memchr(data + 1, 0, n - 1) : NULL;
    size_t      start = zero ? (size_t)((const unsigned char *)zero - data) + 1 : n > 0;
    const char *path  = fuzz_file("t.csv", data + start, n - start);
    tn_csv_opts o     = { .no_header = flags & 1,
                          .separator = flags & 2 ? ';' : 0,
                          .no_target = flags & 8,
                          .missing   = flags >> 6 & 3,
                          .schema    = zero ? (const char *)data + 1 : NULL };
    tn_ctx     *cx    = fuzz_open();
    tn_data    *d     = tn_csv(cx, path, o);
    uint64_t    look  = 0;
    FUZZ_CHECK((d == NULL) == (tn_error(cx) != TN_OK));
    if (d) {
        look = fuzz_join(tn_data_info(d).classes > 0, o.no_header);
        read_again(cx, path, o, d);
    }
    return fuzz_join(look, fuzz_close(cx, 2 * n));
}

static const char *const tokens[] = {
    ",",      ";",        "\t",         "\n",           "\r\n",     "\"",
    "\"\"",   "1",        "-1.5e3",     "nan",          "NA",       "?",
    "inf",    "1e39",     ".",          "\xef\xbb\xbf", "\"name\"", "\"kind\"",
    "number", "category", "\"target\"", "categories",   NULL,
};

const fuzz_target fuzz_csv = { .name = "csv", .seeds = seeds, .run = run, .tokens = tokens };
