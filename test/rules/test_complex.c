// test_complex.c: complex tensors on every device: made, read, printed, viewed, written, stored and
// shared as pairs, differentiated as PyTorch does, and refused by name where an op takes real
// numbers. Values of functions are in test_recorded_ops.c and the table of forms.
#include "check.h"
#include "rules_kit.h"
#include "scratch.h"

#include <math.h>
#include <string.h>

static tn_tensor *sample(tn_ctx *cx)
{
    return tn_from(cx, TN_C64, TN_SHAPE(2, 2), (float[]){ 1, 2, 3, -4, 0.5f, 0, -1, 8 });
}

static void a_complex_tensor_hides_its_pairs(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = sample(cx), *t = tn_transpose(x, 0, 1), *wide = tn_cast(x, TN_C128);
        double     z[8];
        CHECK(tn_dtype_of(x) == TN_C64 && tn_dtype_of(wide) == TN_C128);
        CHECK_STR(tn_dtype_name(TN_C64), "c64");
        CHECK_INT(tn_rank(x), 2);
        CHECK_INT(tn_count(x), 4);
        CHECK_INT(tn_stride(t, 0), 1);
        CHECK_INT(tn_stride(t, 1), 2);
        CHECK_INT(tn_offset(tn_select(x, 0, 1)), 2);
        CHECK_STATUS(tn_read(t, TN_C128, z, 4), TN_OK);
        CHECK(z[0] == 1 && z[1] == 2 && z[2] == 0.5 && z[4] == 3 && z[5] == -4);
        CHECK_VALUES(tn_real(t), 1, 0.5, 3, -1);
        CHECK_VALUES(tn_imag(tn_add(t, tn_ones(cx, TN_F32, TN_SHAPE(2)))), 2, 0, -4, 8);
        CHECK(tn_dtype_of(tn_mul(x, tn_ones(cx, TN_F64, TN_SHAPE(2)))) == TN_C128);
        CHECK(tn_dtype_of(tn_mul(x, tn_full(cx, TN_F64, TN_0D, 2))) == TN_C64);
        CHECK(tn_dtype_of(tn_abs(wide)) == TN_F64);
        CHECK_VALUES(tn_view_as_real(tn_reshape(t, TN_SHAPE(4))), 1, 2, 0.5, 0, 3, -4, -1, 8);
        CHECK_VALUES(tn_view_as_real(tn_full(cx, TN_C64, TN_SHAPE(2), 3)), 3, 0, 3, 0);
        // Strides that are not those of pairs: a copy.
        tn_tensor *crossed = tn_transpose(tn_view(rules_ramp(cx, 4), TN_SHAPE(2, 2)), 0, 1);
        CHECK_VALUES(tn_imag(tn_view_as_complex(crossed)), 3, 4);
    }
}

static void writes_reach_every_view(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = sample(cx), *row = tn_select(x, 0, 1);
        tn_assign(tn_imag(x), tn_scalar(cx, 1));
        CHECK(tn_mul_(row, tn_from(cx, TN_C64, TN_0D, (float[]){ 0, 2 })) == row);
        CHECK_VALUES(tn_view_as_real(x), 1, 1, 3, 1, -2, 1, -2, -2);
        tn_fill_(tn_select(x, 1, 0), 5);
        CHECK_VALUES(tn_view_as_real(x), 5, 0, 3, 1, 5, 0, -2, -2);
        tn_assign(x, tn_zeros(cx, TN_F32, TN_SHAPE(2)));
        CHECK_VALUES(tn_abs(x), 0, 0, 0, 0);
        CHECK(!tn_assign(tn_real(x), x));
        CHECK_FAILED(cx, TN_EDTYPE, "assign: v is c64 and does not go into x of f32");
    }
}

// Of |z|^2 at z it is 2 z; of |z| z / |z|, and 0 at 0.
static void gradients_are_of_both_parts(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = tn_requires_grad(
            tn_from(cx, TN_C64, TN_SHAPE(3), (float[]){ 3, 4, 0, 0, -2, 0 }), true);
        CHECK_STATUS(tn_backward(tn_sum_all(tn_abs(x)), NULL), TN_OK);
        CHECK(tn_dtype_of(tn_grad_of(x)) == TN_C64);
        CHECK_VALUES(tn_round(tn_mul_s(tn_view_as_real(tn_grad_of(x)), 5)), 3, 4, 0, 0, -5, 0);
        CHECK_STATUS(tn_backward(tn_sum_all(tn_real(tn_mul(x, tn_conj(x)))), NULL), TN_OK);
        CHECK_VALUES(tn_round(tn_mul_s(tn_view_as_real(tn_grad_of(x)), 5)), 33, 44, 0, 0, -25, 0);
        tn_zero_grad(x);
        CHECK_VALUES(tn_view_as_real(tn_grad_of(x)), 0, 0, 0, 0, 0, 0);
        // A complex result needs a direction; tn_grad gives complex gradients.
        tn_tensor *y = tn_mul(x, x), *g = NULL, *gy = tn_ones_like(y);
        CHECK_STATUS(tn_grad(1, &y, 1, &x, &gy, &g), TN_OK);
        CHECK(tn_dtype_of(g) == TN_C64 && tn_dtype_of(x) == TN_C64 && tn_dtype_of(gy) == TN_C64);
        CHECK_VALUES(tn_view_as_real(g), 6, -8, 0, 0, -4, 0);
        CHECK_STATUS(tn_backward(y, NULL), TN_EARG);
        CHECK_FAILED(cx, TN_EARG, "backward: y (3,) is c64, so gy is needed");
        CHECK_STATUS(tn_backward(y, tn_real(gy)), TN_EDTYPE);
        CHECK_FAILED(cx, TN_EDTYPE, "backward: y is c64 and gy is f32");
    }
}

// What tn_print writes.
static const char *printed(tn_tensor *x)
{
    static char text[400];
    FILE       *f = tmpfile();
    tn_print(x, f);
    rewind(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    return text;
}

static void complex_numbers_are_printed_as_numpy_prints_them(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *odd = tn_from(cx, TN_C64, TN_SHAPE(2), (float[]){ NAN, -INFINITY, 1, 10.5f });
        CHECK_STR(printed(sample(cx)), "[[ 1. +2.j  3. -4.j]\n [ 0.5+0.j -1. +8.j]]\n");
        CHECK_STR(printed(odd), "[nan -infj  1.+10.5j]\n");
        CHECK_STR(printed(tn_select(tn_select(sample(cx), 0, 1), 0, 0)), "(0.5+0j)\n");
    }
}

static void files_and_dlpack_keep_complex_numbers(void)
{
    if (!CHECK(scratch_open())) return;
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor  *x = sample(cx), *wide = tn_cast(tn_transpose(x, 0, 1), TN_C128);
        const char *npy = scratch_path("z.npy"), *safe = scratch_path("z.safetensors"), *name = "z";
        CHECK_STATUS(tn_npy_write(wide, npy), TN_OK);
        tn_tensor *y = tn_npy_read(cx, npy);
        CHECK(tn_dtype_of(y) == TN_C128);
        CHECK_VALUES(tn_imag(y), 2, 0, -4, 8);
        CHECK_STATUS(tn_file_write(cx, safe, 1, &name, &x, 0, NULL), TN_OK);
        tn_file *f = tn_file_open(cx, safe);
        y          = tn_file_tensor(f, "z");
        CHECK(tn_dtype_of(y) == TN_C64);
        CHECK_VALUES(tn_real(y), 1, 3, 0.5, -1);
        tn_file_free(f);
        CHECK_STATUS(tn_file_write(cx, safe, 1, &name, &wide, 0, NULL), TN_EDTYPE);
        CHECK_FAILED(cx, TN_EDTYPE, "file_write: z is c128, which the format has not");
        tn_dl_managed *m = tn_to_dlpack(tn_transpose(x, 0, 1), (tn_dlpack_opts){ .host = true });
        if (!CHECK(m != NULL)) continue;
        CHECK_INT(m->tensor.ndim, 2);
        CHECK_INT(m->tensor.dtype.code, 5);
        CHECK_INT(m->tensor.dtype.bits, 64);
        y = tn_from_dlpack(cx, m);
        CHECK(tn_dtype_of(y) == TN_C64);
        CHECK_VALUES(tn_view_as_real(y), 1, 2, 0.5, 0, 3, -4, -1, 8);
        tn_drop(y);
    }
    scratch_close();
}

static void other_ops_refuse_complex_numbers_by_name(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = sample(cx), *f = tn_real(x);
        CHECK(!tn_softmax(x, 0));
        CHECK_FAILED(cx, TN_EDTYPE, "softmax: x is c64; this op takes real numbers");
        CHECK(!tn_maximum(f, x));
        CHECK_FAILED(cx, TN_EDTYPE, "maximum: b is c64; this op takes real numbers");
        CHECK(!tn_linear(x, f, NULL));
        CHECK_FAILED(cx, TN_EDTYPE, "linear: x is c64");
        CHECK(!tn_max(x, 0));
        CHECK_FAILED(cx, TN_EDTYPE, "max: x is c64");
        CHECK(isnan(tn_item(tn_sum_all(x))));
        CHECK_FAILED(cx, TN_EDTYPE, "item: t is c64");
        CHECK(!tn_cast(x, TN_F32));
        CHECK_FAILED2(cx, TN_EDTYPE, "cast: x is c64 and does not become f32", "tn_real");
        CHECK(!tn_rand(cx, TN_C64, TN_SHAPE(2)));
        CHECK_FAILED(cx, TN_EDTYPE, "rand: c64 is not a dtype that it makes");
        CHECK(!tn_imag(f));
        CHECK_FAILED(cx, TN_EDTYPE, "imag: x is f32");
        CHECK(!tn_view_as_complex(tn_zeros(cx, TN_F32, TN_SHAPE(2, 3))));
        CHECK_FAILED(cx, TN_ESHAPE, "the last axis of x (2, 3) has not size 2");
        CHECK(!tn_complex(f, tn_zeros(cx, TN_F32, TN_SHAPE(3))));
        CHECK_FAILED(cx, TN_ESHAPE, "complex: re (2, 2) and im (3,)");
        CHECK(!tn_matmul(x, tn_zeros(cx, TN_C64, TN_SHAPE(3))));
        CHECK_FAILED(cx, TN_ESHAPE, "matmul: (2, 2) @ (3,): inner sizes differ");
        CHECK_STATUS(tn_read(x, TN_F32, (float[4]){ 0 }, 4), TN_EDTYPE);
        CHECK_FAILED(cx, TN_EDTYPE, "cast: x is c64");
    }
}

const test_case tests_complex[] = {
    TEST(a_complex_tensor_hides_its_pairs),
    TEST(writes_reach_every_view),
    TEST(gradients_are_of_both_parts),
    TEST(complex_numbers_are_printed_as_numpy_prints_them),
    TEST(files_and_dlpack_keep_complex_numbers),
    TEST(other_ops_refuse_complex_numbers_by_name),
    TEST_END,
};
