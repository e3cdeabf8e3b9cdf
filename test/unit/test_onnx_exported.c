// What models that other programs exported rely on, found by running such models beside ONNX
// Runtime.
#include "check.h"
#include "onnx_writer.h"
#include "rules_kit.h"
#include "scratch.h"

#include <stdlib.h>
#include <string.h>

static tn_onnx *open_bytes(tn_ctx *cx, const onnx_bytes *m)
{
    const char *path = scratch_path("m.onnx");
    return scratch_write(path, m->data, m->n) ? tn_onnx_open(cx, path) : NULL;
}

// The buckets of T5's positions are logarithms in f32, cut to integers: log(2) / log(16) * 8 is 2
// there, and a little less in double, which the host computes in.
static void numbers_of_the_host_are_rounded(void)
{
    static const float two = 2, sixteen = 2.7725887298583984f, eight = 8;
    tn_ctx            *cx = rules_open_scratch();
    onnx_bytes         g = { .n = 0 }, a = onnx_tensor("a", 1, 0, NULL, &two),
               b = onnx_tensor("b", 1, 0, NULL, &sixteen), c = onnx_tensor("c", 1, 0, NULL, &eight),
               node[] = { onnx_node("Log", "a", "l"), onnx_node("Div", "l b", "d"),
                          onnx_node("Mul", "d c", "m"), onnx_node("Cast", "m", "i"),
                          onnx_node("Add", "x i", "y") };
    onnx_attr_int(&node[3], "to", 7);
    onnx_ports(&g, "x", "y");
    onnx_message(&g, 5, &a);
    onnx_message(&g, 5, &b);
    onnx_message(&g, 5, &c);
    for (int i = 0; i < 5; i++) onnx_message(&g, 1, &node[i]);
    onnx_bytes file = onnx_model(&g, 17);
    tn_onnx   *m    = open_bytes(cx, &file);
    tn_tensor *x    = tn_zeros(cx, TN_I64, TN_SHAPE(2)), *y;
    CHECK_STATUS(tn_onnx_run(m, 1, NULL, &x, 1, NULL, &y), TN_OK);
    CHECK_VALUES(y, 2, 2);
    rules_close_scratch(cx);
}

// Weights beside a model are the context's own memory, as those inside are: they count, and what is
// computed of them may be kept, which is not so for memory that a caller may write to.
static void weights_beside_it_are_memory_of_the_context(void)
{
    enum { N = 4096 };
    tn_ctx    *cx = rules_open_scratch();
    float     *v  = calloc(N, sizeof *v);
    onnx_bytes w = { .n = 0 }, entry = { .n = 0 }, g = { .n = 0 },
               add = onnx_node("Add", "x w", "y");
    if (v) v[N - 1] = 3;
    CHECK(v && scratch_write(scratch_path("w.bin"), v, N * sizeof *v));
    free(v);
    onnx_text(&entry, 1, "location");
    onnx_text(&entry, 2, "w.bin");
    onnx_int(&w, 1, N);
    onnx_int(&w, 2, 1);
    onnx_text(&w, 8, "w");
    onnx_message(&w, 13, &entry);
    onnx_int(&w, 14, 1);
    onnx_ports(&g, "x", "y");
    onnx_message(&g, 5, &w);
    onnx_message(&g, 1, &add);
    onnx_bytes file   = onnx_model(&g, 17);
    tn_onnx   *m      = open_bytes(cx, &file);
    int64_t    before = tn_ctx_stats(cx).bytes;
    tn_scope  *s      = tn_begin(cx);
    tn_tensor *x      = tn_ones(cx, TN_F32, TN_SHAPE(1)), *y;
    CHECK_STATUS(tn_onnx_run(m, 1, NULL, &x, 1, NULL, &y), TN_OK);
    CHECK_NEAR(tn_item(tn_slice(y, 0, N - 1, N, 1)), 4, 0);
    tn_end(s);
    CHECK(tn_ctx_stats(cx).bytes - before >= N * (int64_t)sizeof(float));
    rules_close_scratch(cx);
}

// Boxes that share more than the limit with a better one are dropped, equal scores keep the first,
// and a detector's thousands of boxes of which none touch take a moment: 12,000 rows of pairs, each
// the same box twice.
static void overlapping_boxes_are_dropped(void)
{
    enum { N = 24000 };
    static const float   iou  = 0.5f;
    static const int64_t most = N;
    tn_ctx              *cx   = rules_open_scratch();
    float               *b = malloc(N * 4 * sizeof *b), *s = malloc(N * sizeof *s);
    onnx_bytes           g = { .n = 0 }, m = onnx_tensor("m", 7, 0, NULL, &most),
               t   = onnx_tensor("t", 1, 0, NULL, &iou),
               nms = onnx_node("NonMaxSuppression", "x s m t", "y"), port = onnx_port("s");
    for (int i = 0; b && s && i < N; i++) {
        float at = (float)(i / 2 * 4);
        memcpy(b + 4 * i, (float[]){ 0, at, 2, at + 2 }, 4 * sizeof *b);
        s[i] = 0.25f;
    }
    onnx_ports(&g, "x", "y");
    onnx_message(&g, 11, &port);
    onnx_message(&g, 5, &m);
    onnx_message(&g, 5, &t);
    onnx_message(&g, 1, &nms);
    onnx_bytes file = onnx_model(&g, 17);
    tn_onnx   *o    = open_bytes(cx, &file);
    tn_tensor *x[]  = { tn_from(cx, TN_F32, TN_SHAPE(1, N, 4), b),
                        tn_from(cx, TN_F32, TN_SHAPE(1, 1, N), s) },
              *y;
    CHECK_STATUS(tn_onnx_run(o, 2, NULL, x, 1, NULL, &y), TN_OK);
    CHECK(tn_size(y, 0) == N / 2 && tn_size(y, 1) == 3);
    CHECK_INT(tn_item_i64(tn_sum_all(tn_select(y, 1, 2))), (int64_t)(N / 2) * (N / 2 - 1));
    free(b);
    free(s);
    rules_close_scratch(cx);
}

// clang-format off
const test_case tests_onnx_exported[] = {
    TEST(numbers_of_the_host_are_rounded),
    TEST(weights_beside_it_are_memory_of_the_context),
    TEST(overlapping_boxes_are_dropped),
    TEST_END
};
// clang-format on
