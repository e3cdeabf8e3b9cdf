// test_product_search.c: algorithms that the library does not propose, in a run that tunes, with the fake cuBLASLt: what is found and
// kept, that nothing wrong wins, and that nothing of the product is disturbed.
#include "check.h"
#include "fake_clock.h"
#include "product_place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TILE = 3, LIAR = 2 };

// What a search was asked and told. may: how many more may be measured.
typedef struct {
    int       may, found;
    tni_tuned won;
    char      with[128];
} asked;

static bool may_go_on(void *arg)
{
    return ((asked *)arg)->may-- > 0;
}

static bool agree(void *arg, tn_dtype dt, const char *have, const char *want, int64_t n)
{
    (void)arg;
    return !memcmp(have, want, (size_t)n * tni_dtype_size(dt));
}

static void note_found(void *arg, const tni_tuned *won, const char *with)
{
    asked *a = arg;
    a->found++;
    a->won = *won;
    snprintf(a->with, sizeof a->with, "%s", with);
    tni_tuned_keep(won);
}

// Prepares a product with a search; returns whether time ran out.
static bool search(product_small *s, asked *a)
{
    tni_text        why = { "" };
    tni_call_search r   = { .may_go_on = may_go_on, .agree = agree, .found = note_found, .arg = a };
    s->p.search         = &r;
    CHECK_STATUS(tni_product_prepare(&s->p, &product_place, &why), TN_OK);
    s->p.search = NULL;
    return r.left;
}

// As a process begins: with what is on disk, and what the environment says.
static void begin_process(void)
{
    tni_product_forget();
    tni_tuned_forget();
}

static void end_tuned(void)
{
    unsetenv("TN_TUNE");
    product_end();
    tni_tuned_forget();
}

static void a_search_finds_what_is_not_proposed_and_keeps_it_for_the_next_process(void)
{
    product_small s;
    asked         a = { .may = 1000 };
    if (!product_begin()) return;
    tni_tuned_forget();
    product_make_small(&s);
    product_fake->tile = TILE;
    CHECK_INT(product_prepare_and_run(&s), PRODUCT_FASTEST);
    CHECK_INT(product_fake->used, 0);
    int64_t before = tni_product_changes(&s.p);
    CHECK(!search(&s, &a));
    CHECK_INT(a.found, 1);
    CHECK(tni_product_changes(&s.p) != before);
    CHECK(a.won.us > 0 && a.won.us < 0.5 * a.won.rule_us);
    CHECK_STR(a.won.what, "matmul (3, 5) of 4");
    CHECK_STR(a.with, "algorithm 7, tile 3, stages 0, cluster 0, option 0, parts 0, swizzle 0");
    CHECK_INT(product_prepare_and_run(&s), PRODUCT_FASTEST);
    CHECK_INT(product_fake->used, TILE);
    CHECK_NEAR(((float *)s.out)[14], 4, 0);
    int runs = product_fake->runs;
    CHECK(!search(&s, &a));  // there is nothing more to find
    CHECK_INT(product_fake->runs - runs, 0);
    begin_process();
    runs = product_fake->runs;
    CHECK_INT(product_prepare_and_run(&s), PRODUCT_FASTEST);
    CHECK_INT(product_fake->used, TILE);
    CHECK_INT(product_fake->runs - runs, 2);  // one loads its code
    begin_process();
    setenv("TN_TUNE", "0", 1);
    CHECK_INT(product_prepare_and_run(&s), PRODUCT_FASTEST);
    CHECK_INT(product_fake->used, 0);
    end_tuned();
}

static void an_algorithm_that_is_wrong_never_wins(void)
{
    product_small s;
    asked         a = { .may = 1000 };
    if (!product_begin()) return;
    tni_tuned_forget();
    product_make_small(&s);
    product_fake->tile = TILE;
    product_fake->liar = LIAR;
    CHECK(!search(&s, &a));
    CHECK_INT(product_prepare_and_run(&s), PRODUCT_FASTEST);
    CHECK_INT(product_fake->used, TILE);
    CHECK_NEAR(((float *)s.out)[14], 4, 0);
    end_tuned();
}

// Where nothing is faster, that is what was found.
static void a_search_may_find_that_the_rule_is_right(void)
{
    product_small s;
    asked         a = { .may = 1000 };
    if (!product_begin()) return;
    tni_tuned_forget();
    product_make_small(&s);
    CHECK(!search(&s, &a));
    CHECK_INT(a.found, 1);
    CHECK_INT(a.won.algorithm.n, 0);
    CHECK_NEAR(a.won.us, a.won.rule_us, 0);
    CHECK_INT(product_prepare_and_run(&s), PRODUCT_FASTEST);
    CHECK_INT(product_fake->used, 0);
    end_tuned();
}

static void a_search_whose_time_runs_out_goes_on_with_the_rest(void)
{
    product_small s, whole;
    asked         a = { .may = 1000 }, b = { .may = 4 };
    if (!product_begin()) return;
    tni_tuned_forget();
    product_make_small(&s);
    product_make_small(&whole);
    product_fake->tile = 5;
    product_place.gpu  = "another";
    int began          = product_fake->runs;
    CHECK(!search(&whole, &a));
    int all = product_fake->runs - began, times = 1;
    product_place.gpu = "fake";
    tni_product_forget();
    began = product_fake->runs;
    for (; times < 50 && search(&s, &b); times++) b.may = 4;
    CHECK(times > 1 && times < 50);
    CHECK(product_fake->runs - began < 2 * all);
    CHECK_INT(product_prepare_and_run(&s), PRODUCT_FASTEST);
    CHECK_INT(product_fake->used, 5);
    end_tuned();
}

static void a_search_does_not_disturb_what_is_added_to_nor_what_is_stored(void)
{
    static const tni_product_epilogue with_input = { .activation = TNI_gelu_tanh, .input = true };
    _Alignas(64) char                 z[128], same[128];
    product_small                     s, t;
    asked                             a = { .may = 1000 }, b = a;
    if (!product_begin()) return;
    tni_tuned_forget();
    product_fake->tile = TILE;
    product_make_small(&s);
    CHECK(tni_product_add_epilogue(&s.p, &(tni_product_epilogue){ .residual = true }));
    s.p.residual = s.out;
    float was    = ((float *)s.out)[14];
    CHECK(!search(&s, &a));
    CHECK_NEAR(((float *)s.out)[14], was, 0);
    CHECK_INT(product_prepare_and_run(&s), PRODUCT_FASTEST);
    CHECK_INT(product_fake->used, TILE);
    CHECK_NEAR(((float *)s.out)[14], was + 4, 0);
    product_make_small(&t);
    t.in[0].size[0] = t.call.out.size[0] = 1;
    CHECK(tni_product_of(&t.call, &t.p));
    CHECK(tni_product_add_epilogue(&t.p, &with_input));
    t.p.input = z;
    CHECK_INT(product_prepare_and_run(&t), PRODUCT_FASTEST);
    memset(z, 7, sizeof z);
    memset(same, 7, sizeof same);
    CHECK(!search(&t, &b));
    CHECK_INT(b.found, 1);
    CHECK(!memcmp(z, same, sizeof z) && t.p.input == z);
    CHECK_INT(product_prepare_and_run(&t), PRODUCT_FASTEST);
    CHECK_INT(product_fake->used, TILE);
    CHECK(memcmp(z, same, sizeof z));
    end_tuned();
}

// Without memory for results nothing is measured, and the product stays as it is.
static void a_search_without_memory_changes_nothing(void)
{
    product_small s;
    asked         a = { .may = 1000 };
    if (!product_begin()) return;
    tni_tuned_forget();
    product_make_small(&s);
    product_fake->tile = TILE;
    CHECK_INT(product_prepare_and_run(&s), PRODUCT_FASTEST);
    fake_clock_driver.mem_alloc = fake_clock_no_memory;
    CHECK(!search(&s, &a));
    fake_clock_open(&product_fake->milliseconds);
    CHECK_INT(a.found, 0);
    CHECK_INT(product_prepare_and_run(&s), PRODUCT_FASTEST);
    CHECK_INT(product_fake->used, 0);
    end_tuned();
}

// A file of another machine may name an algorithm that the library does not accept here.
static void a_winner_that_the_library_refuses_is_left_out(void)
{
    product_small s;
    asked         a = { .may = 1000 };
    if (!product_begin()) return;
    tni_tuned_forget();
    product_make_small(&s);
    product_fake->tile = TILE;
    CHECK(!search(&s, &a));
    memset(a.won.algorithm.byte, 0xff, sizeof a.won.algorithm.byte);
    CHECK(tni_tuned_keep(&a.won));
    tni_product_forget();
    CHECK_INT(product_prepare_and_run(&s), PRODUCT_FASTEST);
    CHECK_INT(product_fake->used, 0);
    end_tuned();
}

const test_case tests_product_search[] = {
    TEST(a_search_finds_what_is_not_proposed_and_keeps_it_for_the_next_process),
    TEST(an_algorithm_that_is_wrong_never_wins),
    TEST(a_search_may_find_that_the_rule_is_right),
    TEST(a_search_whose_time_runs_out_goes_on_with_the_rest),
    TEST(a_search_does_not_disturb_what_is_added_to_nor_what_is_stored),
    TEST(a_search_without_memory_changes_nothing),
    TEST(a_winner_that_the_library_refuses_is_left_out),
    TEST_END,
};
