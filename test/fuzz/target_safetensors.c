// Fuzzes the reader of safetensors. The first byte of an input says what the rest is: a file as it
// is ('r'), a header without its length, a 0 and data ('h'), the index of two good files ('i'), or
// settings ('s').
// Damage to a header would else hardly ever come past its length.
#include "fuzz.h"

#include <stdio.h>
#include <string.h>

static const char two[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                          "\"b\":{\"dtype\":\"BOOL\",\"shape\":[],\"data_offsets\":[8,9]}}";

static void seed(char kind, const char *text, size_t data)
{
    unsigned char input[1024] = { (unsigned char)kind };
    size_t        n           = strlen(text) + 1;
    memcpy(input + 1, text, n);
    fuzz_seed(input, kind == 'h' ? 1 + n + data : n);
}

static void seeds(void)
{
    seed('h', two, 9);
    seed('h',
         "{\"__metadata__\":{\"format\":\"pt\",\"k\\u00e9\\n\":\"\"},"
         "\"w.\\\"x\\\"\":{\"dtype\":\"I64\",\"shape\":[1,0],\"data_offsets\":[0,0]},"
         "\"v\":{\"data_offsets\":[0,12],\"extra\":[{}],\"shape\":[2,1,3],\"dtype\":\"BF16\"}}   ",
         12);
    seed('h', "{\"q\":{\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[0,2]}}", 2);
    seed('h',
         "{\"u\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
         "\"f\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[1,9]}}",
         9);
    seed('h', "{}", 0);
    seed('i',
         "{\"metadata\":{\"total_size\":18},"
         "\"weight_map\":{\"a\":\"one.safetensors\",\"c\":\"two.safetensors\"}}",
         0);
    seed('s',
         "{\"model_type\":\"llama\",\"rope\":{\"factor\":8.0,\"a\":[1,[null,{}]]},\"tied\":true,"
         "\"k\\u00e9\":\"\\n\"}",
         0);
    fuzz_seed("r\x02\0\0\0\0\0\0\0{}", 11);
}

// Puts the prefix before a header and its data; the header ends at the first 0.
static const char *put_file(const char *name, const unsigned char *data, size_t n)
{
    static unsigned char file[FUZZ_ROOM + 8];
    const unsigned char *zero   = n ? memchr(data, 0, n) : NULL;
    size_t               header = zero ? (size_t)(zero - data) : n, rest = n - header - (zero != 0);
    memset(file, 0, 8);
    for (int i = 0; i < 8; i++) file[i] = (unsigned char)(header >> (8 * i) % 64);
    memcpy(file + 8, data, header);
    memcpy(file + 8 + header, data + n - rest, rest);
    return fuzz_file(name, file, 8 + header + rest);
}

static void put_shards(void)
{
    unsigned char one[sizeof two + 9] = { 0 }, other[] = "{}";
    memcpy(one, two, sizeof two);
    put_file("one.safetensors", one, sizeof one);
    static const char c[] = "{\"c\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}\0\1";
    put_file("two.safetensors", (const unsigned char *)c, sizeof c - 1);
    put_file("three.safetensors", other, 2);
}

static uint64_t look(tn_file *f)
{
    uint64_t seen = 0;
    for (int i = 0; i < tn_file_count(f); i++) {
        tn_file_desc d = tn_file_info(f, i);
        tn_tensor   *t = tn_file_tensor(f, tn_file_name(f, i));
        seen |= (uint64_t)1 << (d.rank + 9 * (t ? tn_dtype_of(t) % 5 : 5));
        if (t) FUZZ_CHECK(tn_rank(t) == d.rank);
        if (t && tn_count(t)) tn_item(tn_sum_all(t));
    }
    for (int i = 0; tn_file_meta_key(f, i); i++)
        FUZZ_CHECK(tn_file_meta(f, tn_file_meta_key(f, i)) != NULL);
    if (tn_file_meta(f, "format")) seen |= (uint64_t)1 << 62;
    return seen;
}

static uint64_t run(const unsigned char *data, size_t n)
{
    if (n == 0) return 0;
    char        kind = (char)data[0];
    const char *path = kind == 'h'   ? put_file("a.safetensors", data + 1, n - 1)
                       : kind == 'i' ? fuzz_file("a.index.json", data + 1, n - 1)
                       : kind == 's' ? fuzz_file("config.json", data + 1, n - 1)
                                     : fuzz_file("a.safetensors", data + 1, n - 1);
    if (kind == 'i') put_shards();
    tn_ctx  *cx   = fuzz_open();
    tn_file *f    = tn_file_open(cx, path);
    uint64_t seen = look(f);
    FUZZ_CHECK(f || tn_error(cx) != TN_OK);
    tn_file_free(f);
    return fuzz_join(seen, fuzz_close(cx, n));
}

static const char *const tokens[] = {
    "\"dtype\"",
    "\"shape\"",
    "\"data_offsets\"",
    "\"__metadata__\"",
    "\"weight_map\"",
    "\"F32\"",
    "\"BF16\"",
    "\"BOOL\"",
    "\"F4\"",
    "\"F6_E2M3\"",
    "\"I64\"",
    "\"U64\"",
    "[0,0]",
    "[",
    "]",
    "{",
    "}",
    ":",
    ",",
    "\"",
    "\\u0000",
    "\\ud800",
    "[1,1,1,1,1,1,1,1,1]",
    "\"one.safetensors\"",
    "\"three.safetensors\"",
    "../",
    "\"a\"",
    NULL,
};

const fuzz_target fuzz_safetensors = {
    .name = "safetensors", .seeds = seeds, .run = run, .tokens = tokens
};
