// test_print.c: tn_print gives the text that NumPy's print gives for the same array. The expected
// texts were printed by NumPy 2.4.
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon.h>

static tn_ctx *cx;

// What tn_print writes, to be freed.
static char *text_of(tn_tensor *t)
{
    char  *text = NULL;
    size_t size;
    FILE  *f = open_memstream(&text, &size);
    if (!f) return NULL;
    tn_print(t, f);
    fclose(f);
    return text;
}

static void shows(tn_tensor *t, const char *want)
{
    char *text = text_of(t);
    CHECK_STR(text, want);
    free(text);
}

#define OF(type, ...) \
    (type[])          \
    {                 \
        __VA_ARGS__   \
    }

static void begin(void)
{
    cx = tn_open("cpu");
}

static void end(void)
{
    CHECK_STR(tn_error_text(cx), "");
    tn_close(cx);
}

static void floats_have_as_many_digits_as_they_need(void)
{
    begin();
    shows(tn_from(cx, TN_F32, TN_SHAPE(3), OF(float, 1.0f, 2.5f, -3.0f)), "[ 1.   2.5 -3. ]\n");
    shows(tn_from(cx, TN_F32, TN_SHAPE(3),
                  OF(float, 0.10000000149011612f, 0.20000000298023224f, 0.3333333432674408f)),
          "[0.1        0.2        0.33333334]\n");
    shows(tn_from(cx, TN_F64, TN_SHAPE(2), OF(double, 0.3333333333333333, 2.5)),
          "[0.33333333 2.5       ]\n");
    shows(tn_from(cx, TN_F32, TN_SHAPE(3), OF(float, 0.0f, -0.0f, 1.0f)), "[ 0. -0.  1.]\n");
    shows(tn_from(cx, TN_F64, TN_SHAPE(2), OF(double, 123456.789, 1.0)),
          "[1.23456789e+05 1.00000000e+00]\n");
    end();
}

static void floats_that_lie_far_apart_get_an_exponent(void)
{
    begin();
    shows(tn_from(cx, TN_F32, TN_SHAPE(2), OF(float, 9.999999747378752e-06f, 1.0f)),
          "[1.e-05 1.e+00]\n");
    shows(tn_from(cx, TN_F32, TN_SHAPE(2), OF(float, 1.0f, 2000.0f)), "[1.e+00 2.e+03]\n");
    shows(tn_from(cx, TN_F32, TN_SHAPE(2), OF(float, 1000000.0f, 1000000.0f)), "[1.e+06 1.e+06]\n");
    shows(tn_from(cx, TN_F64, TN_SHAPE(2), OF(double, 100000000.0, 200000000.0)),
          "[1.e+08 2.e+08]\n");
    shows(tn_from(cx, TN_F64, TN_SHAPE(2), OF(double, 1e-300, 1e+300)), "[1.e-300 1.e+300]\n");
    shows(tn_from(cx, TN_F32, TN_SHAPE(3), OF(float, 16777216.0f, 30000000.0f, -1500000.0f)),
          "[ 1.6777216e+07  3.0000000e+07 -1.5000000e+06]\n");
    shows(tn_from(cx, TN_F32, TN_SHAPE(2),
                  OF(float, 1.5474250491067253e+26f, 0.0010000000474974513f)),
          "[1.5474251e+26 1.0000000e-03]\n");
    end();
}

static void nan_and_inf_line_up(void)
{
    begin();
    shows(tn_from(cx, TN_F32, TN_SHAPE(3), OF(float, 1.0f, NAN, -INFINITY)), "[  1.  nan -inf]\n");
    shows(tn_from(cx, TN_F32, TN_SHAPE(2), OF(float, INFINITY, NAN)), "[inf nan]\n");
    shows(tn_from(cx, TN_F32, TN_SHAPE(1), OF(float, -INFINITY)), "[-inf]\n");
    shows(tn_from(cx, TN_F32, TN_SHAPE(2), OF(float, 9.999999717180685e-10f, INFINITY)),
          "[1.e-09    inf]\n");
    end();
}

static void integers_and_bools_line_up(void)
{
    begin();
    shows(tn_from(cx, TN_I32, TN_SHAPE(2, 2), OF(int32_t, 1, -20, 300, 4)), "[[  1 -20]\n"
                                                                            " [300   4]]\n");
    shows(tn_from(cx, TN_I64, TN_SHAPE(2), OF(int64_t, INT64_MIN, INT64_MAX)),
          "[-9223372036854775808  9223372036854775807]\n");
    shows(tn_from(cx, TN_U8, TN_SHAPE(2), OF(uint8_t, 0, 255)), "[  0 255]\n");
    shows(tn_from(cx, TN_BOOL, TN_SHAPE(2, 2), OF(bool, true, false, false, true)),
          "[[ True False]\n"
          " [False  True]]\n");
    end();
}

static void one_number_is_bare(void)
{
    begin();
    shows(tn_from(cx, TN_F32, TN_0D, OF(float, 2.5f)), "2.5\n");
    shows(tn_from(cx, TN_F32, TN_0D, OF(float, 3.0f)), "3.0\n");
    shows(tn_from(cx, TN_F32, TN_0D, OF(float, 1000000.0f)), "1e+06\n");
    shows(tn_from(cx, TN_F32, TN_0D, OF(float, 9.999999747378752e-05f)), "1e-04\n");
    shows(tn_from(cx, TN_F64, TN_0D, OF(double, 1000000000000000.0)), "1000000000000000.0\n");
    shows(tn_from(cx, TN_F64, TN_0D, OF(double, 1e+16)), "1e+16\n");
    shows(tn_from(cx, TN_F64, TN_0D, OF(double, -0.0)), "-0.0\n");
    shows(tn_from(cx, TN_I32, TN_0D, OF(int32_t, -7)), "-7\n");
    shows(tn_from(cx, TN_BOOL, TN_0D, OF(bool, true)), "True\n");
    shows(tn_from(cx, TN_F32, TN_0D, OF(float, NAN)), "nan\n");
    shows(tn_from(cx, TN_F32, TN_0D, OF(float, -INFINITY)), "-inf\n");
    end();
}

static void axes_nest(void)
{
    begin();
    shows(tn_from(cx, TN_F32, TN_SHAPE(2, 3, 2),
                  OF(float, 0.0f, 1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f, 7.0f, 8.0f, 9.0f, 10.0f,
                     11.0f)),
          "[[[ 0.  1.]\n"
          "  [ 2.  3.]\n"
          "  [ 4.  5.]]\n"
          "\n"
          " [[ 6.  7.]\n"
          "  [ 8.  9.]\n"
          "  [10. 11.]]]\n");
    shows(tn_from(cx, TN_I32, TN_SHAPE(1, 1, 6), OF(int32_t, 0, 1, 2, 3, 4, 5)),
          "[[[0 1 2 3 4 5]]]\n");
    end();
}

static void long_rows_break(void)
{
    begin();
    shows(tn_from(cx, TN_I32, TN_SHAPE(40),
                  OF(int32_t, 0, 1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 10000, 11000,
                     12000, 13000, 14000, 15000, 16000, 17000, 18000, 19000, 20000, 21000, 22000,
                     23000, 24000, 25000, 26000, 27000, 28000, 29000, 30000, 31000, 32000, 33000,
                     34000, 35000, 36000, 37000, 38000, 39000)),
          "[    0  1000  2000  3000  4000  5000  6000  7000  8000  9000 10000 11000\n"
          " 12000 13000 14000 15000 16000 17000 18000 19000 20000 21000 22000 23000\n"
          " 24000 25000 26000 27000 28000 29000 30000 31000 32000 33000 34000 35000\n"
          " 36000 37000 38000 39000]\n");
    shows(tn_from(cx, TN_F32, TN_SHAPE(1, 22),
                  OF(float, 0.0f, 0.125f, 0.25f, 0.375f, 0.5f, 0.625f, 0.75f, 0.875f, 1.0f, 1.125f,
                     1.25f, 1.375f, 1.5f, 1.625f, 1.75f, 1.875f, 2.0f, 2.125f, 2.25f, 2.375f, 2.5f,
                     2.625f)),
          "[[0.    0.125 0.25  0.375 0.5   0.625 0.75  0.875 1.    1.125 1.25  1.375\n"
          "  1.5   1.625 1.75  1.875 2.    2.125 2.25  2.375 2.5   2.625]]\n");
    end();
}

static void large_tensors_are_shown_by_their_edges(void)
{
    begin();
    shows(tn_reshape(tn_arange(cx, TN_I32, 0, 3000, 1), TN_SHAPE(30, 100)),
          "[[   0    1    2 ...   97   98   99]\n"
          " [ 100  101  102 ...  197  198  199]\n"
          " [ 200  201  202 ...  297  298  299]\n"
          " ...\n"
          " [2700 2701 2702 ... 2797 2798 2799]\n"
          " [2800 2801 2802 ... 2897 2898 2899]\n"
          " [2900 2901 2902 ... 2997 2998 2999]]\n");
    shows(tn_reshape(tn_mul_s(tn_arange(cx, TN_F32, 0, 2000, 1), 0.5), TN_SHAPE(4, 50, 10)),
          "[[[0.000e+00 5.000e-01 1.000e+00 ... 3.500e+00 4.000e+00 4.500e+00]\n"
          "  [5.000e+00 5.500e+00 6.000e+00 ... 8.500e+00 9.000e+00 9.500e+00]\n"
          "  [1.000e+01 1.050e+01 1.100e+01 ... 1.350e+01 1.400e+01 1.450e+01]\n"
          "  ...\n"
          "  [2.350e+02 2.355e+02 2.360e+02 ... 2.385e+02 2.390e+02 2.395e+02]\n"
          "  [2.400e+02 2.405e+02 2.410e+02 ... 2.435e+02 2.440e+02 2.445e+02]\n"
          "  [2.450e+02 2.455e+02 2.460e+02 ... 2.485e+02 2.490e+02 2.495e+02]]\n"
          "\n"
          " [[2.500e+02 2.505e+02 2.510e+02 ... 2.535e+02 2.540e+02 2.545e+02]\n"
          "  [2.550e+02 2.555e+02 2.560e+02 ... 2.585e+02 2.590e+02 2.595e+02]\n"
          "  [2.600e+02 2.605e+02 2.610e+02 ... 2.635e+02 2.640e+02 2.645e+02]\n"
          "  ...\n"
          "  [4.850e+02 4.855e+02 4.860e+02 ... 4.885e+02 4.890e+02 4.895e+02]\n"
          "  [4.900e+02 4.905e+02 4.910e+02 ... 4.935e+02 4.940e+02 4.945e+02]\n"
          "  [4.950e+02 4.955e+02 4.960e+02 ... 4.985e+02 4.990e+02 4.995e+02]]\n"
          "\n"
          " [[5.000e+02 5.005e+02 5.010e+02 ... 5.035e+02 5.040e+02 5.045e+02]\n"
          "  [5.050e+02 5.055e+02 5.060e+02 ... 5.085e+02 5.090e+02 5.095e+02]\n"
          "  [5.100e+02 5.105e+02 5.110e+02 ... 5.135e+02 5.140e+02 5.145e+02]\n"
          "  ...\n"
          "  [7.350e+02 7.355e+02 7.360e+02 ... 7.385e+02 7.390e+02 7.395e+02]\n"
          "  [7.400e+02 7.405e+02 7.410e+02 ... 7.435e+02 7.440e+02 7.445e+02]\n"
          "  [7.450e+02 7.455e+02 7.460e+02 ... 7.485e+02 7.490e+02 7.495e+02]]\n"
          "\n"
          " [[7.500e+02 7.505e+02 7.510e+02 ... 7.535e+02 7.540e+02 7.545e+02]\n"
          "  [7.550e+02 7.555e+02 7.560e+02 ... 7.585e+02 7.590e+02 7.595e+02]\n"
          "  [7.600e+02 7.605e+02 7.610e+02 ... 7.635e+02 7.640e+02 7.645e+02]\n"
          "  ...\n"
          "  [9.850e+02 9.855e+02 9.860e+02 ... 9.885e+02 9.890e+02 9.895e+02]\n"
          "  [9.900e+02 9.905e+02 9.910e+02 ... 9.935e+02 9.940e+02 9.945e+02]\n"
          "  [9.950e+02 9.955e+02 9.960e+02 ... 9.985e+02 9.990e+02 9.995e+02]]]\n");
    shows(tn_arange(cx, TN_I64, 0, 1000000, 1),
          "[     0      1      2 ... 999997 999998 999999]\n");
    end();
}

static void views_are_shown_as_they_are_seen(void)
{
    begin();
    tn_tensor *x = tn_reshape(tn_arange(cx, TN_I32, 0, 3000, 1), TN_SHAPE(30, 100));
    shows(tn_transpose(x, 0, 1), "[[   0  100  200 ... 2700 2800 2900]\n"
                                 " [   1  101  201 ... 2701 2801 2901]\n"
                                 " [   2  102  202 ... 2702 2802 2902]\n"
                                 " ...\n"
                                 " [  97  197  297 ... 2797 2897 2997]\n"
                                 " [  98  198  298 ... 2798 2898 2998]\n"
                                 " [  99  199  299 ... 2799 2899 2999]]\n");
    shows(tn_flip(tn_slice(tn_select(x, 0, 1), 0, 2, 12, 3), 0), "[111 108 105 102]\n");
    end();
}

static void half_floats_have_digits_of_their_own(void)
{
    begin();
    tn_tensor *x = tn_from(cx, TN_F32, TN_SHAPE(3), OF(float, 1, 0.1f, 1 / 3.0f));
    shows(tn_cast(x, TN_F16), "[1.     0.1    0.3333]\n");
    shows(tn_cast(x, TN_BF16), "[1.    0.1   0.334]\n");
    shows(tn_cast(tn_full(cx, TN_F32, TN_0D, 65504), TN_F16), "6.55e+04\n");
    shows(tn_cast(tn_full(cx, TN_F32, TN_SHAPE(1), 3.140625), TN_BF16), "[3.14]\n");
    end();
}

static void empty_tensors_are_two_brackets(void)
{
    begin();
    shows(tn_zeros(cx, TN_F32, TN_SHAPE(0)), "[]\n");
    shows(tn_zeros(cx, TN_I64, TN_SHAPE(3, 0, 2)), "[]\n");
    end();
}

static void printing_leaves_nothing_behind(void)
{
    begin();
    tn_tensor *x      = tn_zeros(cx, TN_F32, TN_SHAPE(200, 200));
    int64_t    before = tn_ctx_stats(cx).nodes;
    free(text_of(x));
    free(text_of(x));
    CHECK_INT(tn_ctx_stats(cx).nodes, before);
    CHECK_NEAR(tn_item(tn_sum_all(x)), 0, 0);  // printing has not cost x its value
    end();
}

static void no_tensor_or_no_file_is_an_error(void)
{
    begin();
    tn_on_error(cx, NULL, NULL);
    tn_error_clear(NULL);
    shows(NULL, "");
    CHECK_STR(tn_error_text(NULL), "print: t is NULL");
    tn_print(tn_scalar(cx, 1), NULL);
    CHECK_STATUS(tn_error(cx), TN_EARG);
    tn_close(cx);
}

const test_case tests_print[] = {
    TEST(floats_have_as_many_digits_as_they_need),
    TEST(floats_that_lie_far_apart_get_an_exponent),
    TEST(nan_and_inf_line_up),
    TEST(integers_and_bools_line_up),
    TEST(one_number_is_bare),
    TEST(axes_nest),
    TEST(long_rows_break),
    TEST(large_tensors_are_shown_by_their_edges),
    TEST(views_are_shown_as_they_are_seen),
    TEST(half_floats_have_digits_of_their_own),
    TEST(empty_tensors_are_two_brackets),
    TEST(printing_leaves_nothing_behind),
    TEST(no_tensor_or_no_file_is_an_error),
    TEST_END,
};
