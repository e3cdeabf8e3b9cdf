// test_npy.c: npy files, written and read in every form, and those that are refused.
#include "check.h"
#include "rules_kit.h"
#include "scratch.h"

#include <stdlib.h>
#include <string.h>

static const char *put(const void *data, size_t n)
{
    const char *path = scratch_path("a.npy");
    CHECK(scratch_write(path, data, n));
    return path;
}

// A file by hand: the version, the dictionary, and data.
static const char *npy(int major, const char *header, const void *data, size_t bytes)
{
    unsigned char file[1024] = "\x93NUMPY";
    size_t        n = strlen(header), start = major == 1 ? 10 : 12;
    file[6] = (unsigned char)major;
    file[8] = (unsigned char)n;
    memcpy(file + start, header, n);
    memcpy(file + start + n, data, bytes);
    return put(file, start + n + bytes);
}

static void every_dtype_comes_back(void)
{
    static const tn_dtype dtypes[] = {
        TN_BOOL, TN_U8, TN_I8, TN_I32, TN_I64, TN_F16, TN_F32, TN_F64
    };
    CHECK(scratch_open());
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        const char *path = scratch_path("a.npy");
        for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
            tn_tensor *x = tn_reshape(tn_arange(cx, TN_F32, 0, 6, 1), TN_SHAPE(2, 3));
            CHECK_STATUS(tn_npy_write(tn_transpose(tn_cast(x, dtypes[i]), 0, 1), path), TN_OK);
            tn_tensor *y = tn_npy_read(cx, path);
            CHECK(tn_dtype_of(y) == dtypes[i] && tn_size(y, 0) == 3 && tn_size(y, 1) == 2);
            if (i) CHECK_VALUES(y, 0, 3, 1, 4, 2, 5);
            else CHECK_VALUES(y, 0, 1, 1, 1, 1, 1);
        }
    }
    scratch_close();
}

static void scalars_and_empty_arrays_come_back(void)
{
    CHECK(scratch_open());
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        const char *path = scratch_path("a.npy");
        CHECK_STATUS(tn_npy_write(tn_scalar(cx, 2.5), path), TN_OK);
        CHECK_INT(tn_rank(tn_npy_read(cx, path)), 0);
        CHECK_VALUES(tn_npy_read(cx, path), 2.5);
        CHECK_STATUS(tn_npy_write(tn_zeros(cx, TN_I64, TN_SHAPE(3, 0)), path), TN_OK);
        CHECK_INT(tn_size(tn_npy_read(cx, path), 0), 3);
        size_t bytes = 1;
        free(scratch_read(path, &bytes));
        CHECK_INT(bytes % 64, 0);
    }
    scratch_close();
}

static void versions_orders_and_integers_are_read(void)
{
    static const float         f[]   = { 1, 2, 3, 4, 5, 6 };
    static const unsigned char big[] = { 0xff, 0xfe, 0, 3 };  // -2, 3 in big-endian i2
    static const uint16_t      u2[]  = { 65535, 7 };
    static const uint32_t      u4[]  = { 4294967295u, 8 };
    static const unsigned char f8[]  = { 0x3f, 0xf8, 0, 0, 0, 0, 0, 0 };  // 1.5
    CHECK(scratch_open());
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        CHECK_VALUES(
            tn_npy_read(cx, npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n",
                                f, 24)),
            1, 2, 3, 4, 5, 6);
        CHECK_VALUES(
            tn_npy_read(cx, npy(2, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }  \n",
                                f, 24)),
            1, 3, 5, 2, 4, 6);
        CHECK_VALUES(
            tn_npy_read(cx,
                        npy(3, "{\"shape\":(6,),\"fortran_order\":True,\"descr\":\"=f4\"}", f, 24)),
            1, 2, 3, 4, 5, 6);
        tn_tensor *i2 = tn_npy_read(
            cx, npy(1, "{'descr': '>i2', 'fortran_order': False, 'shape': (2,), }", big, 4));
        CHECK(tn_dtype_of(i2) == TN_I16);
        CHECK_VALUES(i2, -2, 3);
        CHECK_VALUES(
            tn_npy_read(cx,
                        npy(1, "{'descr': '<u2', 'fortran_order': False, 'shape': (2,), }", u2, 4)),
            65535, 7);
        CHECK_VALUES(
            tn_npy_read(cx,
                        npy(1, "{'descr': '<u4', 'fortran_order': False, 'shape': (2,), }", u4, 8)),
            4294967295.0, 8);
        CHECK_VALUES(
            tn_npy_read(cx,
                        npy(1, "{'descr': '>f8', 'fortran_order': False, 'shape': (), }", f8, 8)),
            1.5);
    }
    scratch_close();
}

// No byte behind it can be read, and none in it ends a string.
static void an_array_may_fill_whole_pages(void)
{
    static const char header[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (1003,), }";
    enum { BYTES = 1003 * sizeof(float), PAGE = 4096, START = 10 };
    unsigned char file[PAGE] = "\x93NUMPY\1";
    file[8]                  = PAGE - BYTES - START;
    memset(file + START, ' ', file[8]);
    memcpy(file + START, header, sizeof header - 1);
    memset(file + PAGE - BYTES, 0x3f, BYTES);
    CHECK(scratch_open());
    tn_ctx     *cx   = rules_open("cpu");
    const char *path = put(file, PAGE);
    CHECK_NEAR(tn_item(tn_max_all(tn_npy_read(cx, path))), 0.747, 1e-3);
    CHECK_STR(tn_file_info(tn_file_open(cx, path), 0).dtype, "<f4");
    tn_close(cx);
    scratch_close();
}

static void a_file_shows_its_array(void)
{
    CHECK(scratch_open());
    tn_ctx *cx = rules_open("cpu");
    CHECK_STATUS(tn_npy_write(rules_ramp(cx, 3), scratch_path("a.npy")), TN_OK);
    tn_file     *f = tn_file_open(cx, scratch_path("a.npy"));
    tn_file_desc d = tn_file_info(f, 0);
    CHECK_INT(tn_file_count(f), 1);
    CHECK_STR(tn_file_name(f, 0), "");
    CHECK_STR(d.dtype, "<f4");
    CHECK(d.rank == 1 && d.size[0] == 3 && d.bytes == 12);
    tn_tensor *t = tn_file_tensor(f, "");
    tn_file_free(f);
    CHECK_VALUES(t, 1, 2, 3);
    tn_close(cx);
    scratch_close();
}

static void bad_arrays_are_refused_with_their_reason(void)
{
    static const struct {
        const char *header;
        int         data;
        tn_status   code;
        const char *part;
    } cases[] = {
        { "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", 8, TN_EDTYPE,
          "Python objects" },
        { "{'descr': '<c4', 'fortran_order': False, 'shape': (1,), }", 8, TN_EDTYPE,
          "'<c4' is not read" },
        { "{'descr': '<U5', 'fortran_order': False, 'shape': (1,), }", 20, TN_EDTYPE,
          "'<U5' is not read" },
        { "{'descr': '|i4', 'fortran_order': False, 'shape': (1,), }", 4, TN_EDTYPE,
          "'|i4' is not read" },
        { "{'descr': '<c4', 'fortran_order': False, 'shape': (1,), }", 8, TN_EDTYPE,
          "'<c4' is not read" },
        { "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", 4, TN_EDTYPE,
          "records" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", 4, TN_EFORMAT,
          "(2,) of f4 does not take the 4 bytes" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", 8, TN_EFORMAT,
          "does not take the 8 bytes" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", 0,
          TN_EFORMAT, "does not take" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", 0,
          TN_EFORMAT, "tuple of sizes" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", 4, TN_EFORMAT,
          "not a tuple of sizes" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1), }", 4, TN_EFORMAT,
          "not a tuple" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': [1], }", 4, TN_EFORMAT,
          "not a tuple" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1), }", 4, TN_EFORMAT,
          "rank 9, but Tenon goes to 8" },
        { "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,), }", 4, TN_EFORMAT,
          "neither True nor False" },
        { "{'descr': '<f4', 'fortran_order': False, }", 4, TN_EFORMAT, "lacks descr" },
        { "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, }", 4, TN_EFORMAT,
          "descr twice" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}", 4, TN_EFORMAT,
          "a key besides" },
        { "{'descr': '<f4' 'fortran_order': False, 'shape': (1,), }", 4, TN_EFORMAT,
          "not a dictionary" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), } x", 4, TN_EFORMAT,
          "something follows" },
        { "('descr', )", 4, TN_EFORMAT, "not a dictionary" },
        { "", 0, TN_EFORMAT, "not a dictionary" },
    };
    static const char zeros[32];
    CHECK(scratch_open());
    tn_ctx *cx = rules_open("cpu");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tn_tensor *t = tn_npy_read(cx, npy(1, cases[i].header, zeros, (size_t)cases[i].data));
        test_case_result(
            !t && tn_error(cx) == cases[i].code && strstr(tn_error_text(cx), cases[i].part),
            "%s: \"%s\", not \"%s\"", cases[i].header, tn_error_text(cx), cases[i].part);
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
        { "", 0, "it is no npy file" },
        { "\x93NUMPX\1\0\0\0", 10, "it is no npy file" },
        { "\x93NUMPY\1\0", 8, "it is no npy file" },
        { "\x93NUMPY\4\0\0\0\0\0", 12, "npy version 4.0 is not known" },
        { "\x93NUMPY\1\1\0\0\0\0", 12, "npy version 1.1 is not known" },
        { "\x93NUMPY\1\0\1\0", 10, "the header does not end within the file" },
        { "\x93NUMPY\2\0\0\0", 10, "the header does not end within the file" },
        { "\x93NUMPY\2\0\xff\xff\xff\xff", 12, "the header does not end within the file" },
    };
    CHECK(scratch_open());
    tn_ctx *cx = rules_open("cpu");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK(!tn_npy_read(cx, put(cases[i].bytes, cases[i].n)));
        CHECK_FAILED2(cx, TN_EFORMAT, "npy_read: ", cases[i].part);
    }
    tn_close(cx);
    scratch_close();
}

static void bf16_is_not_in_npy(void)
{
    CHECK(scratch_open());
    tn_ctx *cx = rules_open("cpu");
    CHECK_STATUS(tn_npy_write(tn_zeros(cx, TN_BF16, TN_SHAPE(1)), scratch_path("a.npy")),
                 TN_EDTYPE);
    CHECK_FAILED2(cx, TN_EDTYPE, "npy has no bf16", "tn_file_write");
    tn_close(cx);
    scratch_close();
}

const test_case tests_npy[] = {
    TEST(every_dtype_comes_back),
    TEST(scalars_and_empty_arrays_come_back),
    TEST(versions_orders_and_integers_are_read),
    TEST(an_array_may_fill_whole_pages),
    TEST(a_file_shows_its_array),
    TEST(bad_arrays_are_refused_with_their_reason),
    TEST(bad_beginnings_are_refused_with_their_reason),
    TEST(bf16_is_not_in_npy),
    TEST_END,
};
