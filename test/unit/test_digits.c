// test_digits.c: the drawn digits: their values, labels, and that they are a pure function of seed
// and number.
#include "check.h"
#include "rules_kit.h"

#include <stdlib.h>
#include <string.h>
#include <tenon.h>

enum { PIXELS = 28 * 28 };

// The first n images and labels.
static bool draw(tn_ctx *cx, tn_digits_opts o, int64_t n, float *x, int64_t *y)
{
    tn_scope *s = tn_begin(cx);
    tn_data  *d = tn_digits(cx, o);
    tn_data_shuffle(d, false, 0);
    tn_batch b  = tn_next(d, n);
    bool     ok = CHECK_INT(b.count, n) && tn_read(b.x, TN_F32, x, n * PIXELS) == TN_OK &&
              tn_read(b.y, TN_I64, y, n) == TN_OK;
    tn_data_free(d);
    tn_end(s);
    return ok;
}

static void digits_are_images_with_labels(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_data *d = tn_digits(cx, (tn_digits_opts){ .count = 50 });
        tn_batch b = tn_next(d, 7);
        CHECK_INT(tn_rank(b.x), 4);
        CHECK_INT(tn_size(b.x, 0), 7);
        CHECK_INT(tn_size(b.x, 1), 1);
        CHECK_INT(tn_size(b.x, 2), 28);
        CHECK_INT(tn_size(b.x, 3), 28);
        CHECK_INT(tn_dtype_of(b.x), TN_F32);
        CHECK_INT(tn_rank(b.y), 1);
        CHECK_INT(tn_dtype_of(b.y), TN_I64);
        CHECK_INT(tn_data_info(d).classes, 10);
        CHECK_STR(tn_data_class_name(d, 7), "7");
        CHECK(tn_data_class_name(d, 10) == NULL);
        CHECK_INT(tn_data_count(tn_digits(cx, (tn_digits_opts){ 0 })), 60000);
    }
}

static void values_lie_between_0_and_1_and_labels_are_balanced(void)
{
    enum { N = 1000 };
    tn_ctx  *cx = rules_open("cpu");
    float   *x  = malloc(sizeof *x * N * PIXELS);
    int64_t *y  = malloc(sizeof *y * N);
    if (CHECK(x && y) && draw(cx, (tn_digits_opts){ .count = N, .seed = 4 }, N, x, y)) {
        int seen[10] = { 0 }, in_order = 0;
        for (int i = 0; i < N; i++) {
            if (CHECK(y[i] >= 0 && y[i] < 10)) seen[y[i]]++;
            in_order += y[i] == i % 10;
        }
        for (int i = 0; i < 10; i++) CHECK_INT(seen[i], N / 10);
        CHECK(in_order < N / 5);
        double sum = 0;
        bool   ok  = true;
        for (int i = 0; i < N * PIXELS; i++) {
            ok = ok && x[i] >= 0 && x[i] <= 1;
            sum += x[i];
        }
        CHECK(ok);
        test_that(sum / (N * PIXELS) > 0.08 && sum / (N * PIXELS) < 0.2, "the mean is %g",
                  sum / (N * PIXELS));
    }
    free(x);
    free(y);
    tn_close(cx);
}

static void seeds_and_the_test_set_give_other_images(void)
{
    enum { N = 20 };
    static float x[4][N * PIXELS];
    int64_t      y[4][N];
    tn_ctx      *cx = rules_open("cpu");
    draw(cx, (tn_digits_opts){ .seed = 1 }, N, x[0], y[0]);
    draw(cx, (tn_digits_opts){ .seed = 1, .count = 100 }, N, x[1], y[1]);
    draw(cx, (tn_digits_opts){ .seed = 2 }, N, x[2], y[2]);
    draw(cx, (tn_digits_opts){ .seed = 1, .test = true }, N, x[3], y[3]);
    CHECK(!memcmp(x[0], x[1], sizeof *x) && !memcmp(y[0], y[1], sizeof *y));
    for (int k = 2; k < 4; k++) {
        CHECK(memcmp(y[0], y[k], sizeof *y));
        for (int i = 0; i < N; i++)
            CHECK(memcmp(x[0] + i * PIXELS, x[k] + i * PIXELS, PIXELS * sizeof **x));
    }
    tn_close(cx);
}

// FNV-1a over the bits of the floats.
static uint64_t hash_bits(const float *x, int n)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (int i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        h = (h ^ bits) * 0x100000001b3u;
    }
    return h;
}

static void digits_are_equal_on_every_machine(void)
{
    enum { N = 200 };
    static float x[N * PIXELS];
    int64_t      y[N];
    tn_ctx      *cx = rules_open("cpu");
    if (draw(cx, (tn_digits_opts){ .seed = 1 }, N, x, y)) {
        uint64_t h = hash_bits(x, N * PIXELS);
        test_that(h == 0x19067cefb9710fadu, "the hash is 0x%llx", (unsigned long long)h);
        static const int first[10] = { 2, 6, 5, 1, 4, 8, 7, 3, 0, 9 };
        for (int i = 0; i < 10; i++) CHECK_INT(y[i], first[i]);
    }
    tn_close(cx);
}

const test_case tests_digits[] = {
    TEST(digits_are_images_with_labels),
    TEST(values_lie_between_0_and_1_and_labels_are_balanced),
    TEST(seeds_and_the_test_set_give_other_images),
    TEST(digits_are_equal_on_every_machine),
    TEST_END,
};
