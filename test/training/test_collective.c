// test_collective.c: what collectives are, in a world of one rank with an engine: the stand-in for
// NCCL.
#include "rules_kit.h"
#include "dist/world.h"
#include "ops/collective.h"
#include "tensor/context.h"

#include <stdlib.h>
#include <string.h>
#include <tenon.h>

// Records one of several collectives that differ in one fact each.
static void record_one(tn_dist *d, tn_tensor *x, int which)
{
    tn_tensor *ints = tn_cast(x, TN_I32);
    if (which < 2) tn_dist_all_reduce(d, x, (tn_reduce_op)which);
    else if (which < 4) tn_dist_all_reduce(d, ints, (tn_reduce_op)which);
    else if (which < 5) tn_dist_all_reduce(d, tn_reshape(x, TN_SHAPE(3, 2)), TN_REDUCE_SUM);
    else if (which < 6) tn_dist_all_reduce(d, ints, TN_REDUCE_SUM);
    else if (which < 8) tn_dist_all_gather(d, x, which - 6);
    else if (which < 10) tn_dist_reduce_scatter(d, x, which - 8, TN_REDUCE_SUM);
    else tn_dist_broadcast(d, x, 0);
}

// Ranks compare the hash, and print the words: both tell all of them apart.
static void a_collective_has_all_its_facts(void)
{
    enum { KINDS = 11 };
    setenv("TN_NCCL", TN_BUILD_DIR "/libnccl_standin.so", 1);
    tn_ctx       *cx = tn_open("cpu");
    tn_dist      *d  = tn_dist_open(cx, (tn_dist_opts){ .engine = "nccl", .size = 1 });
    tn_tensor    *x  = tn_ones(cx, TN_F32, TN_SHAPE(2, 3));
    tni_line_item item[KINDS];
    for (int i = 0; CHECK(d != NULL) && i < KINDS; i++) {
        record_one(d, x, i);
        const tni_node *n = (*tni_dist_token(d))->store->node;
        while (!tni_node_is_collective(n)) n = n->src[0];
        item[i]                                  = tni_collective_item(n);
        item[i].what[strcspn(item[i].what, ".")] = 0;  // the line is no fact
        for (int k = 0; k < i; k++)
            test_case_result(item[k].hash != item[i].hash && strcmp(item[k].what, item[i].what),
                             "%s and %s", item[k].what, item[i].what);
    }
    if (d) CHECK_STR(item[1].what, "all_reduce mean f32 (2, 3) (test_collective");
    if (d) CHECK_STR(item[7].what, "all_gather f32 (2, 3) axis 1 (test_collective");
    if (d) CHECK_STR(item[10].what, "broadcast f32 (2, 3) of rank 0 (test_collective");
    tn_close(cx);
    unsetenv("TN_NCCL");
}

const test_case tests_collective[] = {
    TEST(a_collective_has_all_its_facts),
    TEST_END,
};
