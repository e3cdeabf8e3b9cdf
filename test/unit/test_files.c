// test_files.c: safetensors files and their index, written and read; everything that is refused;
// and what is left when writing or memory fails.
#include "check.h"
#include "faulty.h"
#include "rules_kit.h"
#include "scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

// Makes a file in the test's folder and returns its path.
static const char *put(const char *name, const void *data, size_t n)
{
    const char *path = scratch_path(name);
    CHECK(scratch_write(path, data, n));
    return path;
}

static const char *put_text(const char *name, const char *text)
{
    return put(name, text, strlen(text));
}

// One with this header, and after it so many bytes 0, 1, 2, ...
static const char *put_tensors(const char *name, const char *header, int data)
{
    unsigned char file[1024] = { 0 };
    size_t        n          = strlen(header);
    for (int i = 0; i < 2; i++) file[i] = (unsigned char)(n >> (8 * i));
    memcpy(file + 8, header, n);
    for (int i = 0; i < data; i++) file[8 + n + (size_t)i] = (unsigned char)i;
    return put(name, file, 8 + n + (size_t)data);
}

static long size_of(const char *name)
{
    struct stat st;
    return stat(scratch_path(name), &st) == 0 ? (long)st.st_size : -1;
}

// ---- round trips

static const tn_dtype all_dtypes[] = { TN_BOOL, TN_U8,   TN_I8,  TN_I32,     TN_I64,
                                       TN_F16,  TN_BF16, TN_F32, TN_F64,     TN_I16,
                                       TN_U16,  TN_U32,  TN_U64, TN_F8_E4M3, TN_F8_E5M2 };
enum { DTYPES = sizeof all_dtypes / sizeof *all_dtypes };

static void every_dtype_comes_back(void)
{
    static const char *const spelled[] = { "BOOL", "U8",   "I8",  "I32",     "I64",
                                           "F16",  "BF16", "F32", "F64",     "I16",
                                           "U16",  "U32",  "U64", "F8_E4M3", "F8_E5M2" };
    static const char *const names[]   = { "bool", "u8",   "i8",  "i32",     "i64",
                                           "f16",  "bf16", "f32", "f64",     "i16",
                                           "u16",  "u32",  "u64", "f8_e4m3", "f8_e5m2" };
    CHECK(scratch_open());
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor  *t[DTYPES];
        const char *path = scratch_path("all.safetensors");
        for (int i = 0; i < DTYPES; i++)
            t[i] = tn_cast(tn_reshape(tn_arange(cx, TN_F32, 0, 6, 1), TN_SHAPE(2, 3)),
                           all_dtypes[i]);
        CHECK_STATUS(tn_file_write(cx, path, DTYPES, names, t, 0, NULL), TN_OK);
        tn_file *f = tn_file_open(cx, path);
        if (!CHECK_INT(tn_file_count(f), DTYPES)) continue;
        for (int i = 0; i < DTYPES; i++) {
            tn_file_desc d = tn_file_info(f, i);
            tn_tensor   *y = tn_file_tensor(f, names[i]);
            CHECK_STR(tn_file_name(f, i), names[i]);
            CHECK_STR(d.dtype, spelled[i]);
            CHECK(d.rank == 2 && d.size[0] == 2 && d.size[1] == 3);
            CHECK(tn_dtype_of(y) == all_dtypes[i] && tn_rank(y) == 2 && tn_size(y, 1) == 3);
            if (i) CHECK_VALUES(y, 0, 1, 2, 3, 4, 5);
            else CHECK_VALUES(y, 0, 1, 1, 1, 1, 1);
        }
    }
    scratch_close();
}

static void scalars_empty_tensors_and_views_come_back(void)
{
    static const char *const names[] = { "scalar", "empty", "turned", "tail" };
    CHECK(scratch_open());
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        const char *path = scratch_path("odd.safetensors");
        tn_tensor  *grid = tn_reshape(rules_ramp(cx, 6), TN_SHAPE(2, 3));
        tn_tensor  *t[]  = { tn_scalar(cx, 2.5), tn_zeros(cx, TN_F32, TN_SHAPE(0, 4)),
                             tn_transpose(grid, 0, 1), tn_slice(rules_ramp(cx, 5), 0, 3, 5, 1) };
        CHECK_STATUS(tn_file_write(cx, path, 4, names, t, 0, NULL), TN_OK);
        tn_file *f = tn_file_open(cx, path);
        CHECK_INT(tn_rank(tn_file_tensor(f, "scalar")), 0);
        CHECK_VALUES(tn_file_tensor(f, "scalar"), 2.5);
        CHECK_INT(tn_size(tn_file_tensor(f, "empty"), 1), 4);
        CHECK_INT(tn_count(tn_file_tensor(f, "empty")), 0);
        CHECK_VALUES(tn_file_tensor(f, "turned"), 1, 4, 2, 5, 3, 6);
        CHECK_VALUES(tn_file_tensor(f, "tail"), 4, 5);
    }
    scratch_close();
}

static void names_and_metadata_may_hold_any_text(void)
{
    static const char *const names[] = { "a \"quoted\"\\ name\n\x01\xc3\xa9" };
    static const char *const meta[]  = {
         "", "empty key", "k\t\"", "v\\u0041\r", "e\xe2\x82\xac", ""
    };
    CHECK(scratch_open());
    tn_ctx     *cx   = rules_open("cpu");
    const char *path = scratch_path("names.safetensors");
    tn_tensor  *t    = rules_ramp(cx, 2);
    CHECK_STATUS(tn_file_write(cx, path, 1, names, &t, 3, meta), TN_OK);
    tn_file *f = tn_file_open(cx, path);
    CHECK_STR(tn_file_name(f, 0), names[0]);
    CHECK_VALUES(tn_file_tensor(f, names[0]), 1, 2);
    for (int i = 0; i < 3; i++) CHECK_STR(tn_file_meta(f, meta[2 * i]), meta[2 * i + 1]);
    CHECK(tn_file_meta(f, "none") == NULL);
    tn_close(cx);
    scratch_close();
}

static void a_file_of_nothing_is_one(void)
{
    CHECK(scratch_open());
    tn_ctx *cx = rules_open("cpu");
    CHECK_STATUS(tn_file_write(cx, scratch_path("none.safetensors"), 0, NULL, NULL, 0, NULL),
                 TN_OK);
    tn_file *f = tn_file_open(cx, scratch_path("none.safetensors"));
    CHECK(f && tn_file_count(f) == 0 && tn_file_name(f, 0) == NULL && !tn_file_info(f, 0).dtype);
    tn_close(cx);
    scratch_close();
}

static void data_begin_at_a_multiple_of_64(void)
{
    CHECK(scratch_open());
    tn_ctx *cx       = rules_open("cpu");
    char    name[80] = "x";
    for (int i = 0; i < 70; i++, strcat(name, "x")) {
        const char *names[] = { name };
        tn_tensor  *t       = rules_ramp(cx, 1);
        CHECK_STATUS(tn_file_write(cx, scratch_path("a.safetensors"), 1, names, &t, 0, NULL),
                     TN_OK);
        CHECK_INT(size_of("a.safetensors") % 64, 4);
    }
    tn_close(cx);
    scratch_close();
}

// ---- lifetimes

static void tensors_outlive_the_file_they_came_from(void)
{
    CHECK(scratch_open());
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        const char *name = "w";
        tn_tensor  *w    = rules_ramp(cx, 4);
        tn_file_write(cx, scratch_path("w.safetensors"), 1, &name, &w, 0, NULL);
        tn_file   *f = tn_file_open(cx, scratch_path("w.safetensors"));
        tn_tensor *y = tn_file_tensor(f, "w");
        tn_file_free(f);
        CHECK(unlink(scratch_path("w.safetensors")) == 0);
        CHECK_VALUES(y, 1, 2, 3, 4);
        CHECK_VALUES(tn_add_(y, w), 2, 4, 6, 8);
    }
    scratch_close();
}

static void an_aligned_tensor_is_the_mapping_itself(void)
{
    CHECK(scratch_open());
    tn_ctx              *cx      = rules_open("cpu");
    const char *const    names[] = { "a", "odd", "b" };
    static const uint8_t three[] = { 1, 2, 3 };
    tn_tensor           *t[]     = { rules_ramp(cx, 4), tn_from(cx, TN_U8, TN_SHAPE(3), three),
                                     rules_ramp(cx, 4) };
    tn_file_write(cx, scratch_path("w.safetensors"), 3, names, t, 0, NULL);
    tn_file *f = tn_file_open(cx, scratch_path("w.safetensors"));
    CHECK(tn_ptr(tn_file_tensor(f, "a")) == tn_ptr(tn_file_tensor(f, "a")));
    CHECK(tn_ptr(tn_file_tensor(f, "b")) != tn_ptr(tn_file_tensor(f, "b")));
    CHECK_VALUES(tn_file_tensor(f, "b"), 1, 2, 3, 4);
    tn_close(cx);
    scratch_close();
}

static void writing_over_an_open_file_changes_no_tensor(void)
{
    CHECK(scratch_open());
    tn_ctx     *cx   = rules_open("cpu");
    const char *name = "w";
    tn_tensor  *w    = rules_ramp(cx, 3);
    tn_file_write(cx, scratch_path("w.safetensors"), 1, &name, &w, 0, NULL);
    tn_tensor *y = tn_file_tensor(tn_file_open(cx, scratch_path("w.safetensors")), "w");
    tn_tensor *z = tn_mul_s(y, 2);
    CHECK_STATUS(tn_file_write(cx, scratch_path("w.safetensors"), 1, &name, &z, 0, NULL), TN_OK);
    CHECK_VALUES(y, 1, 2, 3);
    CHECK_VALUES(tn_file_tensor(tn_file_open(cx, scratch_path("w.safetensors")), "w"), 2, 4, 6);
    tn_close(cx);
    scratch_close();
}

// ---- what is refused

// A header that must be refused: after it come `data` bytes.
typedef struct {
    const char *header;
    int         data;
    tn_status   code;
    const char *part;
} refusal;

#define F32(name, shape, begin, end) \
    "\"" name "\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"

static void bad_headers_are_refused_with_their_reason(void)
{
    static const refusal cases[] = {
        { "[]", 0, TN_EFORMAT, "the header does not begin with {" },
        { " {}", 0, TN_EFORMAT, "the header does not begin with {" },
        { "{} x", 0, TN_EFORMAT, "not JSON at byte 11: something follows the value" },
        { "{\"a\":", 0, TN_EFORMAT, "not JSON at byte 13: the text ends too early" },
        { "{\"\xff\":1}", 0, TN_EFORMAT, "a character is not UTF-8" },
        { "{\"a\":1}", 0, TN_EFORMAT, "tensor \"a\": its entry is not an object" },
        { "{\"a\":{}}", 0, TN_EFORMAT, "tensor \"a\": dtype is missing" },
        { "{\"a\":{\"dtype\":\"F32\"}}", 0, TN_EFORMAT, "shape is missing" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", 0, TN_EFORMAT, "data_offsets is missing" },
        { "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 0, TN_EFORMAT, "a field appears twice" },
        { "{\"a\":{\"dtype\":\"F31\"}}", 0, TN_EFORMAT, "there is no dtype \"F31\"" },
        { "{\"a\":{\"dtype\":32}}", 0, TN_EFORMAT, "its dtype is not a text" },
        { "{" F32("a", "[1]", "0", "4") "," F32("a", "[1]", "4", "8") "}", 8, TN_EFORMAT,
          "tensor \"a\" appears twice" },
        { "{" F32("a", "[1]", "0", "4") ",\"\\u0061\":{\"dtype\":\"F32\",\"shape\":[0],\"data_"
                                        "offsets\":[4,4]}}",
          4, TN_EFORMAT, "tensor \"a\" appears twice" },
        { "{" F32("a", "[1]", "0", "4") "," F32("b", "[1]", "8", "12") "}", 12, TN_EFORMAT,
          "bytes 4 to 8 of the data belong to no tensor" },
        { "{" F32("a", "[1]", "4", "8") "}", 8, TN_EFORMAT, "bytes 0 to 4" },
        { "{" F32("a", "[1]", "0", "4") "}", 6, TN_EFORMAT, "bytes 4 to 6" },
        { "{}", 1, TN_EFORMAT, "bytes 0 to 1" },
        { "{" F32("a", "[2]", "0", "8") "," F32("b", "[1]", "4", "8") "}", 8, TN_EFORMAT,
          "tensors \"a\" and \"b\" overlap" },
        { "{" F32("a", "[2]", "0", "8") "," F32("b", "[2]", "0", "8") "}", 8, TN_EFORMAT,
          "overlap" },
        { "{" F32("a", "[2]", "0", "8") "}", 4, TN_EFORMAT, "[0, 8] are not within 4 bytes" },
        { "{" F32("a", "[1]", "4", "0") "}", 4, TN_EFORMAT, "[4, 0] are not within" },
        { "{" F32("a", "[1]", "-4", "0") "}", 4, TN_EFORMAT,
          "its data_offsets are not two positions" },
        { "{" F32("a", "[1]", "0", "18446744073709551620") "}", 4, TN_EFORMAT,
          "are not two positions" },
        { "{" F32("a", "[1]", "0", "4,8") "}", 4, TN_EFORMAT, "are not two positions" },
        { "{" F32("a", "[1]", "0", "4.0") "}", 4, TN_EFORMAT, "are not two positions" },
        { "{" F32("a", "[2]", "0", "4") "}", 4, TN_EFORMAT,
          "(2,) of F32 does not take the 4 bytes" },
        { "{" F32("a", "[]", "0", "0") "}", 0, TN_EFORMAT, "() of F32 does not take the 0 bytes" },
        { "{" F32("a", "[-1]", "0", "4") "}", 4, TN_EFORMAT, "its shape is no list of sizes" },
        { "{" F32("a", "[[1]]", "0", "4") "}", 4, TN_EFORMAT, "its shape is no list of sizes" },
        { "{" F32("a", "4", "0", "4") "}", 4, TN_EFORMAT, "its shape is no list of sizes" },
        { "{" F32("a", "[4611686018427387905,4]", "0", "4") "}", 4, TN_EFORMAT,
          "(4611686018427387905, 4) has too many elements" },
        { "{" F32("a", "[4294967296,4294967296,0]", "0", "0") "}", 0, TN_EFORMAT,
          "too many elements" },
        { "{" F32("a", "[1,1,1,1,1,1,1,1,1]", "0", "4") "}", 4, TN_EFORMAT,
          "it has rank 9, but Tenon goes to 8" },
        { "{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1, TN_EFORMAT,
          "does not take" },
        { "{\"__metadata__\":1}", 0, TN_EFORMAT, "__metadata__ is not an object" },
        { "{\"__metadata__\":{\"a\":1}}", 0, TN_EFORMAT, "__metadata__ \"a\" is not a text" },
        { "{\"__metadata__\":{\"a\":{}}}", 0, TN_EFORMAT, "is not a text" },
        { "{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}", 0, TN_EFORMAT,
          "__metadata__ has \"a\" twice" },
        { "{\"__metadata__\":{},\"__metadata__\":{}}", 0, TN_EFORMAT,
          "__metadata__ appears twice" },
        { "{\"a\\u0000\":{}}", 0, TN_EFORMAT, "has a 0 character" },
        { "{\"\\ud800\":{}}", 0, TN_EFORMAT, "half a surrogate pair" },
    };
    CHECK(scratch_open());
    tn_ctx *cx = rules_open("cpu");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = put_tensors("bad.safetensors", cases[i].header, cases[i].data);
        bool        none = tn_file_open(cx, path) == NULL;
        test_case_result(none && tn_error(cx) == cases[i].code &&
                             strstr(tn_error_text(cx), cases[i].part) &&
                             strstr(tn_error_text(cx), path),
                         "%s: \"%s\", not \"%s\"", cases[i].header, tn_error_text(cx),
                         cases[i].part);
        tn_error_clear(cx);
    }
    tn_close(cx);
    scratch_close();
}

static void bad_beginnings_are_refused_with_their_reason(void)
{
    static const struct {
        const char *bytes;
        size_t      n;
        const char *part;
    } cases[] = {
        { "", 0, "it is empty" },
        { "\2\0\0\0\0\0\0", 7, "7 bytes are no safetensors file" },
        { "\0\0\0\0\0\0\0\0", 8, "the header does not begin with {" },
        { "\3\0\0\0\0\0\0\0{}", 10, "a header of 3 bytes in a file of 10" },
        { "\x01\xe1\xf5\5\0\0\0\0{}", 10,
          "a header of 100000001 bytes: more than 100000000 are refused" },
        { "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, "a header of 18446744073709551615 bytes" },
        { "sepal,width\n1,2\n", 16,
          "it does not look like a safetensors file: a header of 7599591740213847411 bytes" },
        { "\1\0\0\0\0\0\0\0[]", 10,
          "it does not look like a safetensors file: the header does not" },
    };
    CHECK(scratch_open());
    tn_ctx *cx = rules_open("cpu");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK(!tn_file_open(cx, put("bad.safetensors", cases[i].bytes, cases[i].n)));
        CHECK_FAILED(cx, TN_EFORMAT, cases[i].part);
    }
    tn_close(cx);
    scratch_close();
}

static void what_is_no_file_is_refused(void)
{
    CHECK(scratch_open());
    tn_ctx *cx = rules_open("cpu");
    CHECK(!tn_file_open(cx, scratch_path("missing")));
    CHECK_FAILED2(cx, TN_EIO, "file_open: ", "/missing: No such file or directory");
    CHECK(!tn_file_open(cx, scratch_path(".")));
    CHECK_FAILED(cx, TN_EIO, "it is a folder");
    CHECK(mkfifo(scratch_path("fifo"), 0600) == 0);
    CHECK(!tn_file_open(cx, scratch_path("fifo")));
    CHECK_FAILED(cx, TN_EIO, "it is not a regular file");
    CHECK(!tn_file_open(cx, NULL));
    CHECK_FAILED(cx, TN_EARG, "the path is NULL");
    tn_close(cx);
    scratch_close();
}

static void integers_of_other_programs_are_read(void)
{
    static const struct {
        const char *name;
        int         bytes;
        tn_dtype    as;
        double      value;
    } cases[] = { { "I16", 2, TN_I16, -2 },
                  { "U16", 2, TN_U16, 65534 },
                  { "U32", 4, TN_U32, 4294967294.0 },
                  { "U64", 8, TN_U64, 18446744073709551614.0 } };
    CHECK(scratch_open());
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            char    file[256];
            int     bytes = cases[i].bytes;
            int64_t value = -2;
            int     n     = snprintf(file + 8, sizeof file - 8,
                                     "{\"t\":{\"dtype\":\"%s\",\"shape\":[1],\"data_offsets\":[0,%d]}}",
                                     cases[i].name, bytes);
            memcpy(file, &(uint64_t){ (uint64_t)n }, 8);
            memcpy(file + 8 + n, &value, (size_t)bytes);
            CHECK(scratch_write(scratch_path("a.safetensors"), file, (size_t)(8 + n + bytes)));
            tn_file   *f = tn_file_open(cx, scratch_path("a.safetensors"));
            tn_tensor *t = tn_file_tensor(f, "t");
            CHECK(tn_dtype_of(t) == cases[i].as);
            CHECK_VALUES(t, cases[i].value);
        }
    }
    scratch_close();
}

static void dtypes_that_tenon_lacks_are_listed_but_not_read(void)
{
    static const char *const names[] = { "F4", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ" };
    CHECK(scratch_open());
    tn_ctx *cx = rules_open("cpu");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char header[128];
        snprintf(header, sizeof header,
                 "{\"t\":{\"dtype\":\"%s\",\"shape\":[0,2],\"data_offsets\":[0,0]}}", names[i]);
        tn_file *f = tn_file_open(cx, put_tensors("a.safetensors", header, 0));
        CHECK_STR(tn_file_info(f, 0).dtype, names[i]);
        CHECK(tn_file_tensor(f, "t") == NULL);
        CHECK_FAILED2(cx, TN_EDTYPE, "\"t\" is of dtype", names[i]);
    }
    tn_close(cx);
    scratch_close();
}

static void a_bool_is_0_or_1(void)
{
    static const char header[] =
        "{\"t\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[0,3]}}";
    CHECK(scratch_open());
    tn_ctx  *cx = rules_open("cpu");
    tn_file *f  = tn_file_open(cx, put_tensors("a.safetensors", header, 3));
    CHECK(tn_file_tensor(f, "t") == NULL);  // 0 1 2
    CHECK_FAILED(cx, TN_EFORMAT, "neither 0 nor 1");
    tn_close(cx);
    scratch_close();
}

static void a_tensor_that_is_not_there_is_an_error(void)
{
    CHECK(scratch_open());
    tn_ctx  *cx = rules_open("cpu");
    tn_file *f  = tn_file_open(cx, put_tensors("a.safetensors", "{}", 0));
    CHECK(tn_file_tensor(f, "w") == NULL);
    CHECK_FAILED2(cx, TN_EARG, "file_tensor: ", "has no tensor \"w\"");
    tn_close(cx);
    scratch_close();
}

static void bad_arguments_of_writing_are_refused(void)
{
    static const char *const twice[] = { "a", "a" }, *const empty[] = { "" },
                             *const none[] = { NULL };
    static const char *const bytes[] = { "\xff" }, *const kept[] = { "__metadata__" };
    static const char *const meta[] = { "k", "1", "k", "2" };
    CHECK(scratch_open());
    tn_ctx     *cx = rules_open("cpu"), *other = rules_open("cpu");
    const char *path = scratch_path("a.safetensors");
    tn_tensor  *t[]  = { rules_ramp(cx, 1), rules_ramp(cx, 1) };
    tn_tensor  *m[]  = { t[0], rules_ramp(other, 1) };
    const char *ab[] = { "a", "b" };
    CHECK_STATUS(tn_file_write(cx, path, 2, twice, t, 0, NULL), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "name \"a\" appears twice");
    CHECK_STATUS(tn_file_write(cx, path, 1, empty, t, 0, NULL), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "name 0 is empty");
    CHECK_STATUS(tn_file_write(cx, path, 1, none, t, 0, NULL), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "name 0 is NULL");
    CHECK_STATUS(tn_file_write(cx, path, 1, bytes, t, 0, NULL), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "is not UTF-8");
    CHECK_STATUS(tn_file_write(cx, path, 1, kept, t, 0, NULL), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "which the format keeps");
    CHECK_STATUS(tn_file_write(cx, path, 2, ab, t, 2, meta), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "meta key \"k\" appears twice");
    CHECK_STATUS(tn_file_write(cx, path, 2, ab, m, 0, NULL), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "belong to different contexts");
    CHECK_STATUS(tn_file_write(other, path, 2, ab, t, 0, NULL), TN_EARG);
    CHECK_FAILED(other, TN_EARG, "belong to another context");
    CHECK_STATUS(tn_file_write(cx, path, -1, ab, t, 0, NULL), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "-1 tensors");
    m[1] = NULL;
    CHECK_STATUS(tn_file_write(cx, path, 2, ab, m, 0, NULL), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "b is NULL");
    CHECK(access(path, F_OK) != 0);
    tn_close(other);
    tn_close(cx);
    scratch_close();
}

// ---- several files

static void an_index_joins_its_files(void)
{
    CHECK(scratch_open());
    tn_ctx *cx = rules_open("cpu");
    put_tensors("m-1.safetensors",
                "{\"__metadata__\":{\"format\":\"pt\"}," F32("a", "[1]", "0", "4") "}", 4);
    put_tensors("m-2.safetensors", "{" F32("b", "[]", "0", "4") "," F32("c", "[0]", "4", "4") "}",
                4);
    const char *path = put_text(
        "m.safetensors.index.json",
        "{\"metadata\":{\"total_size\":8},\"weight_map\":{\"b\":\"m-2.safetensors\","
        "\"a\":\"m-1.safetensors\",\"c\":\"m-2.safetensors\"}}");
    tn_file *f = tn_file_open(cx, path);
    CHECK_INT(tn_file_count(f), 3);
    CHECK_INT(tn_rank(tn_file_tensor(f, "a")), 1);
    CHECK_INT(tn_rank(tn_file_tensor(f, "b")), 0);
    CHECK_INT(tn_count(tn_file_tensor(f, "c")), 0);
    CHECK_STR(tn_file_meta(f, "format"), "pt");
    tn_close(cx);
    scratch_close();
}

static void a_bad_index_is_refused(void)
{
    static const struct {
        const char *index;
        tn_status   code;
        const char *part;
    } cases[] = {
        { "[]", TN_EFORMAT, "it is not an index" },
        { "{}", TN_EFORMAT, "there is not just one weight_map" },
        { "{\"weight_map\":{}", TN_EFORMAT, "the text ends too early" },
        { "{\"weight_map\":{},\"weight_map\":{}}", TN_EFORMAT, "not just one weight_map" },
        { "{\"weight_map\":[]}", TN_EFORMAT, "weight_map is not an object" },
        { "{\"weight_map\":{\"a\":1}}", TN_EFORMAT, "does not map names to files" },
        { "{\"weight_map\":{\"a\":\"\"}}", TN_EFORMAT, "does not map names to files" },
        { "{\"weight_map\":{\"a\":\"../x\"}}", TN_EFORMAT, "a file in another folder" },
        { "{\"weight_map\":{\"a\":\"/etc/passwd\"}}", TN_EFORMAT, "a file in another folder" },
        { "{\"weight_map\":{\"a\":\"..\"}}", TN_EFORMAT, "a file in another folder" },
        { "{\"weight_map\":{\"a\":\"none.safetensors\"}}", TN_EIO,
          "none.safetensors: No such file" },
        { "{\"weight_map\":{\"b\":\"m-1.safetensors\"}}", TN_EFORMAT,
          "tensor \"b\" is not in \"m-1.safetensors\"" },
        { "{\"weight_map\":{\"a\":\"m-1.safetensors\",\"b\":\"m-2.safetensors\"}}", TN_EFORMAT,
          "tensor \"a\" appears twice" },
    };
    CHECK(scratch_open());
    tn_ctx *cx = rules_open("cpu");
    put_tensors("m-1.safetensors", "{" F32("a", "[1]", "0", "4") "}", 4);
    put_tensors("m-2.safetensors", "{" F32("a", "[1]", "0", "4") "}", 4);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK(!tn_file_open(cx, put_text("m.index.json", cases[i].index)));
        CHECK_FAILED(cx, cases[i].code, cases[i].part);
    }
    tn_close(cx);
    scratch_close();
}

// ---- settings

static void settings_are_metadata(void)
{
    CHECK(scratch_open());
    tn_ctx     *cx = rules_open("cpu");
    const char *text =
        "{\"model_type\": \"ll\\u0061ma\", \"hidden_size\": 2048, \"eps\": 1e-05, \"tied\": true, "
        "\"head_dim\": null, \"rope\": {\"factor\": 8.0, \"in\": {\"x\": false}}, \"eos\": [1, [2]], "
        "\"none\": {}}";
    tn_file *f = tn_file_open(cx, put_text("config.json", text));
    CHECK_INT(tn_file_count(f), 0);
    CHECK_STR(tn_file_meta(f, "model_type"), "llama");
    CHECK_STR(tn_file_meta(f, "hidden_size"), "2048");
    CHECK_STR(tn_file_meta(f, "eps"), "1e-05");
    CHECK_STR(tn_file_meta(f, "tied"), "true");
    CHECK_STR(tn_file_meta(f, "head_dim"), "null");
    CHECK_STR(tn_file_meta(f, "rope.factor"), "8.0");
    CHECK_STR(tn_file_meta(f, "rope.in.x"), "false");
    CHECK_STR(tn_file_meta(f, "eos.0"), "1");
    CHECK_STR(tn_file_meta(f, "eos.1.0"), "2");
    CHECK(tn_file_meta(f, "none") == NULL && tn_file_meta(f, "rope") == NULL);
    CHECK_STR(tn_file_meta_key(f, 8), "eos.1.0");
    CHECK(tn_file_meta_key(f, 9) == NULL);
    f = tn_file_open(cx, put_text("empty.json", "{}"));
    CHECK(f != NULL && tn_file_meta_key(f, 0) == NULL);
    tn_close(cx);
    scratch_close();
}

static void bad_settings_are_refused(void)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        { "", "it is not an object of settings" },
        { "[1]", "it is not an object of settings" },
        { "{\"a\": 1", "the text ends too early" },
        { "{\"a\": [1, }", "" },
        { "{\"a\": 1} 2", "something follows the value" },
        { "{\"a\": \"x\\u0000y\"}", "the value of \"a\" is no text" },
        { "{\"a\": \"\\ud800\"}", "the value of \"a\" is no text" },
        { "{\"\\ud800\": 1}", "a key is no text" },
    };
    CHECK(scratch_open());
    tn_ctx *cx = rules_open("cpu");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK(!tn_file_open(cx, put_text("config.json", cases[i].text)));
        CHECK_FAILED(cx, TN_EFORMAT, cases[i].part);
    }
    char deep[4096] = "", *at = deep;
    for (int i = 0; i < 60; i++) at += sprintf(at, "{\"a key that is long\":[");
    CHECK(!tn_file_open(cx, put_text("config.json", deep)));
    CHECK_FAILED(cx, TN_EFORMAT, "");
    tn_close(cx);
    scratch_close();
}

// ---- writing that fails

// Writes n floats under the name w.
static tn_status write_ramp(tn_ctx *cx, const char *path, int64_t n)
{
    const char *name = "w";
    tn_tensor  *w    = tn_arange(cx, TN_F32, 0, (double)n, 1);
    return tn_file_write(cx, path, 1, &name, &w, 0, NULL);
}

static int64_t count_in(tn_ctx *cx, const char *path)
{
    return tn_count(tn_file_tensor(tn_file_open(cx, path), "w"));
}

static void a_full_disk_leaves_the_old_file(void)
{
    struct rlimit before, small;
    CHECK(scratch_open());
    tn_ctx     *cx   = rules_open("cpu");
    const char *path = scratch_path("w.safetensors");
    CHECK_STATUS(write_ramp(cx, path, 7), TN_OK);
    getrlimit(RLIMIT_FSIZE, &before);
    small          = before;
    small.rlim_cur = 100000;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    tn_status s = write_ramp(cx, path, 1000000);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_DFL);
    CHECK_STATUS(s, TN_EIO);
    CHECK_FAILED2(cx, TN_EIO, "w.safetensors", strerror(EFBIG));
    CHECK_INT(count_in(cx, path), 7);
    CHECK_INT(scratch_count(), 1);
    CHECK_STATUS(write_ramp(cx, path, 8), TN_OK);
    CHECK_INT(count_in(cx, path), 8);
    tn_close(cx);
    scratch_close();
}

static void a_place_that_cannot_be_written_is_an_error(void)
{
    CHECK(scratch_open());
    tn_ctx *cx = rules_open("cpu");
    CHECK_STATUS(write_ramp(cx, scratch_path("none/w"), 1), TN_EIO);
    CHECK_FAILED2(cx, TN_EIO, "none/w", strerror(ENOENT));
    CHECK(mkdir(scratch_path("folder"), 0700) == 0);
    CHECK_STATUS(write_ramp(cx, scratch_path("folder"), 1), TN_EIO);
    CHECK_FAILED(cx, TN_EIO, "it is a folder");
    CHECK_STATUS(write_ramp(cx, "", 1), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "the path is empty");
    CHECK_INT(scratch_count(), 1);
    tn_close(cx);
    scratch_close();
}

static void an_unwritable_folder_leaves_the_old_file(void)
{
    enum { NOBODY = 65534 };
    CHECK(scratch_open());
    tn_ctx     *cx   = rules_open("cpu");
    const char *path = scratch_path("w.safetensors");
    CHECK_STATUS(write_ramp(cx, path, 7), TN_OK);
    CHECK(chmod(scratch_path("."), 0555) == 0);
    bool root = geteuid() == 0;  // may write everywhere
    CHECK(!root || seteuid(NOBODY) == 0);
    CHECK_STATUS(write_ramp(cx, path, 8), TN_EIO);
    CHECK(!root || seteuid(0) == 0);
    CHECK(chmod(scratch_path("."), 0700) == 0);
    CHECK_FAILED(cx, TN_EIO, strerror(EACCES));
    CHECK_INT(count_in(cx, path), 7);
    CHECK_INT(scratch_count(), 1);
    tn_close(cx);
    scratch_close();
}

static void permissions_and_links_stay(void)
{
    struct stat st;
    CHECK(scratch_open());
    tn_ctx     *cx   = rules_open("cpu");
    const char *path = scratch_path("w.safetensors"), *link = scratch_path("link.safetensors");
    mode_t      mask = umask(027);
    CHECK_STATUS(write_ramp(cx, path, 1), TN_OK);
    umask(mask);
    CHECK(stat(path, &st) == 0 && (st.st_mode & 0777) == 0640);
    CHECK(chmod(path, 0604) == 0 && symlink("w.safetensors", link) == 0);
    CHECK_STATUS(write_ramp(cx, link, 2), TN_OK);
    CHECK(lstat(link, &st) == 0 && S_ISLNK(st.st_mode));
    CHECK(stat(path, &st) == 0 && (st.st_mode & 0777) == 0604);
    CHECK_INT(count_in(cx, path), 2);
    tn_close(cx);
    scratch_close();
}

// ---- memory that is out

static tn_status write_two(tn_ctx *cx, const char *path)
{
    static const char *const names[] = { "a", "turned" }, *const meta[] = { "k", "v" };
    tn_tensor *a   = tn_arange(cx, TN_F32, 0, 6, 1);
    tn_tensor *t[] = { a, tn_transpose(tn_reshape(a, TN_SHAPE(2, 3)), 0, 1) };
    return tn_file_write(cx, path, 2, names, t, 1, meta);
}

static tn_status read_two(tn_ctx *cx, const char *path)
{
    tn_file   *f = tn_file_open(cx, path);
    tn_tensor *a = tn_file_tensor(f, "a"), *t = tn_file_tensor(f, "turned");
    double     sum = tn_item(tn_sum_all(a)) + tn_item(tn_sum_all(t));
    tn_file_free(f);
    return tn_error(cx) ? tn_error(cx) : sum == 30 ? TN_OK : TN_EUSER;
}

// Runs f with the n-th allocation failing, n = 1, 2, ... until it goes through.
static void sweep(tn_status (*f)(tn_ctx *cx, const char *path), const char *path, bool forever)
{
    for (long n = 1; n < 10000; n++) {
        faulty    h  = { .countdown = n, .forever = forever };
        tn_ctx   *cx = faulty_open("cpu", &h);
        tn_status s  = cx ? f(cx, path) : TN_EMEM;
        tn_close(cx);
        test_case_result(TEST_DEBUG || h.live == 0, "%ld blocks stay after fault %ld", h.live, n);
        test_case_result(scratch_count() <= 1, "a file stays after fault %ld", n);
        if (!h.failed) {
            CHECK_STATUS(s, TN_OK);
            return;
        }
        test_case_result(s == TN_OK || s == TN_EMEM, "fault %ld is %s", n, tn_status_name(s));
    }
    CHECK(!"it never goes through");
}

static void every_allocation_of_writing_may_fail(void)
{
    CHECK(scratch_open());
    const char *path = scratch_path("two.safetensors");
    sweep(write_two, path, false);
    sweep(write_two, path, true);
    scratch_close();
}

static void every_allocation_of_reading_may_fail(void)
{
    CHECK(scratch_open());
    tn_ctx     *cx   = rules_open("cpu");
    const char *path = scratch_path("two.safetensors");
    CHECK_STATUS(write_two(cx, path), TN_OK);
    tn_close(cx);
    sweep(read_two, path, false);
    sweep(read_two, path, true);
    scratch_close();
}

const test_case tests_files[] = {
    TEST(every_dtype_comes_back),
    TEST(scalars_empty_tensors_and_views_come_back),
    TEST(names_and_metadata_may_hold_any_text),
    TEST(a_file_of_nothing_is_one),
    TEST(data_begin_at_a_multiple_of_64),
    TEST(tensors_outlive_the_file_they_came_from),
    TEST(an_aligned_tensor_is_the_mapping_itself),
    TEST(writing_over_an_open_file_changes_no_tensor),
    TEST(bad_headers_are_refused_with_their_reason),
    TEST(bad_beginnings_are_refused_with_their_reason),
    TEST(what_is_no_file_is_refused),
    TEST(integers_of_other_programs_are_read),
    TEST(dtypes_that_tenon_lacks_are_listed_but_not_read),
    TEST(a_bool_is_0_or_1),
    TEST(a_tensor_that_is_not_there_is_an_error),
    TEST(bad_arguments_of_writing_are_refused),
    TEST(an_index_joins_its_files),
    TEST(a_bad_index_is_refused),
    TEST(settings_are_metadata),
    TEST(bad_settings_are_refused),
    TEST(a_full_disk_leaves_the_old_file),
    TEST(a_place_that_cannot_be_written_is_an_error),
    TEST(an_unwritable_folder_leaves_the_old_file),
    TEST(permissions_and_links_stay),
    TEST(every_allocation_of_writing_may_fail),
    TEST(every_allocation_of_reading_may_fail),
    TEST_END,
};
