// test_gpu_watch.c: mistakes made on purpose, so that who watches kernels is known to see them.
#include "check.h"
#include "gpu_parts.h"
#include "rules_kit.h"

#include <stdlib.h>
#include <string.h>
#include <tenon.h>

static tn_status same_shape(const void *attr, const tn_array *in, tn_array *out)
{
    (void)attr;
    out[0] = in[0];
    return TN_OK;
}

static tn_status two_warps(const void *attr, const tn_array *in, const tn_array *out,
                           tn_launch_dims *d)
{
    (void)attr, (void)in, (void)out;
    d->grid[0]  = 1;
    d->block[0] = 64;
    return TN_OK;
}

// Writes where no tensor is.
static const char stray_text[] = "extern \"C\" __global__ void stray(tn::in<0> x, tn::out<0> y)\n"
                                 "{\n"
                                 "    y[threadIdx.x ? (long long)threadIdx.x << 36 : 0] = x[0];\n"
                                 "}\n";

// Two warps write a word, and nothing says which is first.
static const char race_text[] = "extern \"C\" __global__ void race(tn::in<0> x, tn::out<0> y)\n"
                                "{\n"
                                "    __shared__ volatile float word;\n"
                                "    word = x[threadIdx.x];\n"
                                "    y[threadIdx.x] = word;\n"
                                "}\n";

static const tn_op_def stray = {
    "stray", 1, 1, same_shape, .cuda = stray_text, .launch = two_warps
};
static const tn_op_def race = { "race", 1, 1, same_shape, .cuda = race_text, .launch = two_warps };

static void make_a_mistake(int part, int parts)
{
    (void)part, (void)parts;
    tn_ctx    *cx = rules_open("cuda");
    tn_tensor *x  = tn_ones(cx, TN_F32, TN_SHAPE(64));
    tn_eval_of(
        tn_custom(strcmp(getenv("TN_TEST_MISTAKE"), "racecheck") ? &stray : &race, &x, NULL, 0));
    tn_sync(cx);
    tn_close(cx);
}

static void a_mistake_is_made_for_who_watches(void)
{
    if (!getenv("TN_TEST_MISTAKE")) SKIP("TN_TEST_MISTAKE names who is to find a mistake");
    in_parts(make_a_mistake, 1);
}

const test_case tests_gpu_watch[] = {
    TEST(a_mistake_is_made_for_who_watches),
    TEST_END,
};
