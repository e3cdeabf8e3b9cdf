// test_product_search.c: algorithms that the library does not propose, in a run that tunes, with
// the fake cuBLASLt: what is found and kept, that nothing wrong wins, and that nothing of the
// product is disturbed.
#include "check.h"
#include "device/cuda/lt_tiles.h"
#include "fake_clock.h"
#include "product_place.h"
#include "scratch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TILE = 3, LIAR = 2, ALL = 1000 };

// What a search was asked and told. may: how many more may be measured; fail_at: the number of what
// memory is not given, from 1.
typedef struct {
    int       may, fail_at, taken, found, told;
    tni_tuned won;
    char      with[128];
} asked;

static bool may_go_on(void *arg)
{
    return ((asked *)arg)->may-- > 0;
}

static void *take(void *arg, size_t bytes, char **data)
{
    asked    *a = arg;
    tni_cuptr p = 0;
    if (++a->taken == a->fail_at || product_place.cu->mem_alloc(&p, bytes)) p = 0;
    return *data = (char *)(uintptr_t)p;
}

static void give(void *arg, void *memory)
{
    (void)arg;
    product_place.cu->mem_free((tni_cuptr)(uintptr_t)memory);
}

static bool agree(void *arg, tn_dtype dt, const char *have, const char *want, int64_t n)
{
    (void)arg;
    return !memcmp(have, want, (size_t)n * tni_dtype_size(dt));
}

static void note_found(void *arg, const tni_tuned *won, const tni_tuned *before, const char *with)
{
    asked *a = arg;
    a->found++;
    a->told += !before;
    a->won = *won;
    snprintf(a->with, sizeof a->with, "%s", with);
    tni_tuned_keep(won);
}

// Prepares a product with a search; returns what became of that.
static tni_search_end search(product_small *s, asked *a)
{
    tni_text        why = { "" };
    tni_call_search r   = { .may_go_on = may_go_on,
                            .take      = take,
                            .give      = give,
                            .agree     = agree,
                            .found     = note_found,
                            .arg       = a };
    s->p.search         = &r;
    CHECK_STATUS(tni_product_prepare(&s->p, &product_place, &why), TN_OK);
    s->p.search = NULL;
    return r.end;
}

// A place without winners, where tile TILE is fastest, and a small product.
static bool begin_tuned(product_small *s)
{
    if (!product_begin()) return false;
    tni_tuned_forget();
    product_fake->tile = TILE;
    product_make_small(s);
    return true;
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

// Runs the product, and checks by which tile.
static void runs_by(product_small *s, int tile)
{
    CHECK_INT(product_prepare_and_run(s), PRODUCT_FASTEST);
    CHECK_INT(product_fake->used, tile);
}

// ---- what is found -----------------------------------------------------------------------------

static void a_search_finds_what_is_not_proposed_and_keeps_it_for_the_next_process(void)
{
    product_small s;
    asked         a = { .may = ALL };
    if (!begin_tuned(&s)) return;
    runs_by(&s, 0);
    int64_t before = tni_product_changes(&s.p);
    CHECK_INT(search(&s, &a), TNI_SEARCHED_ALL);
    CHECK_INT(a.found, 1);
    CHECK(tni_product_changes(&s.p) != before);
    CHECK(a.won.us > 0 && a.won.us < 0.5 * a.won.rule_us);
    CHECK_STR(a.won.what, "matmul (3, 5) of 4");
    CHECK_STR(a.with, "algorithm 7, tile 3, stages 0, cluster 0, option 0, parts 0, swizzle 0");
    runs_by(&s, TILE);
    CHECK_NEAR(((float *)s.out)[14], 4, 0);
    int runs = product_fake->runs;
    CHECK_INT(search(&s, &a), TNI_SEARCHED_ALL);  // there is nothing more to find
    CHECK_INT(product_fake->runs - runs, 0);
    begin_process();
    runs = product_fake->runs;
    runs_by(&s, TILE);
    CHECK_INT(product_fake->runs - runs, 2);  // one loads its code
    begin_process();
    setenv("TN_TUNE", "0", 1);
    runs_by(&s, 0);
    end_tuned();
}

// Where nothing is faster, that is what was found; what was faster by accident has to be so again.
static void a_search_may_find_that_the_rule_is_right(void)
{
    product_small s;
    for (int calm = 0; calm < 12; calm += 4) {
        asked a = { .may = ALL };
        if (!begin_tuned(&s)) return;
        product_fake->calm = calm;
        CHECK_INT(search(&s, &a), TNI_SEARCHED_ALL);
        CHECK_INT(a.found, 1);
        CHECK_INT(a.won.algorithm.n, 0);
        CHECK_NEAR(a.won.us, a.won.rule_us, 0);
        runs_by(&s, 0);
        end_tuned();
    }
}

// Until all is measured, and told as one result.
static void a_search_whose_time_runs_out_goes_on_with_the_rest(void)
{
    product_small s, whole;
    asked         a = { .may = ALL }, b = { .may = 4 };
    int           times = 1;
    if (!begin_tuned(&s)) return;
    product_make_small(&whole);
    product_fake->tile = 5;
    product_place.gpu  = "another";
    int began          = product_fake->runs;
    CHECK_INT(search(&whole, &a), TNI_SEARCHED_ALL);
    int all           = product_fake->runs - began;
    product_place.gpu = "fake";
    tni_product_forget();
    began = product_fake->runs;
    for (; times < 50 && search(&s, &b) == TNI_SEARCH_LEFT; times++) b.may = 4;
    CHECK(times > 2 && times < 50);
    CHECK_INT(b.told, 1);
    CHECK(product_fake->runs - began < 3 * all);
    runs_by(&s, 5);
    end_tuned();
}

// What was fastest so far meets the rule's choice also where the time is over.
static void a_search_that_is_cut_short_keeps_what_it_found(void)
{
    product_small s;
    int           won = 0;
    for (int may = 3; may <= 15; may += 3) {
        asked a = { .may = may };
        if (!begin_tuned(&s)) return;
        CHECK_INT(search(&s, &a), TNI_SEARCH_LEFT);
        won += a.found;
        product_prepare_and_run(&s);
        CHECK_INT(product_fake->used, a.found ? TILE : 0);
        end_tuned();
    }
    CHECK(won >= 1);
}

// Of another version of the library, or another form, a winner is none.
static void winners_are_of_one_library_and_one_form(void)
{
    product_small s;
    asked         a = { .may = ALL };
    if (!begin_tuned(&s)) return;
    CHECK_INT(search(&s, &a), TNI_SEARCHED_ALL);
    tni_product_forget();
    product_fake->version++;
    runs_by(&s, 0);
    tni_product_forget();
    product_fake->version--;
    runs_by(&s, TILE);
    CHECK(tni_product_add_epilogue(&s.p, &(tni_product_epilogue){ .activation = TNI_relu }));
    runs_by(&s, 0);
    end_tuned();
}

// A product that ran before a file is read uses what that says.
static void an_imported_winner_is_used_from_then_on(void)
{
    product_small s;
    asked         a = { .may = ALL };
    tni_text      why;
    char          path[1024], text[2048] = "";
    int           n = 0;
    if (!begin_tuned(&s)) return;
    CHECK_INT(search(&s, &a), TNI_SEARCHED_ALL);
    snprintf(path, sizeof path, "%s", scratch_path("winners.txt"));
    CHECK(tni_tuned_export(path, &n, &why) && n == 1);
    setenv("TN_CACHE_DIR", scratch_path("empty"), 1);
    begin_process();
    runs_by(&s, 0);
    CHECK(tni_tuned_import(path, &n, &why) && n == 1);
    runs_by(&s, TILE);
    // A digit that is another one is noticed.
    FILE *f = fopen(path, "r");
    CHECK(f && fread(text, 1, sizeof text - 1, f) > 0);
    if (f) fclose(f);
    char *digit = strstr(text, "algorithm=");
    if (CHECK(digit != NULL)) digit[strlen("algorithm=") + 20] ^= 1;
    CHECK(scratch_write(path, text, strlen(text)));
    CHECK(!tni_tuned_import(path, &n, &why));
    end_tuned();
}

// ---- what is wrong -----------------------------------------------------------------------------

static void an_algorithm_that_is_wrong_never_wins(void)
{
    static const tni_product_epilogue ends[] = {
        [FAKE_SCALES]       = { .scaled = false },
        [FAKE_NO_RESIDUAL]  = { .residual = true },
        [FAKE_LAST_COLUMN]  = { .bias = true },
        [FAKE_INPUT]        = { .activation = TNI_gelu_tanh, .input = true },
        [FAKE_DOES_NOT_RUN] = { .scaled = false },
        [FAKE_UNALIGNED]    = { .scaled = false },
    };
    _Alignas(64) char  z[128];
    _Alignas(64) float bias[8] = { 1, 2, 3, 4, 5 };
    for (int lie = FAKE_SCALES; lie <= FAKE_UNALIGNED; lie++) {
        product_small s;
        asked         a = { .may = ALL };
        if (!begin_tuned(&s)) return;
        product_fake->liar = LIAR;
        product_fake->lies = (fake_lie)lie;
        if (lie == FAKE_INPUT) {  // of one row, whose length is a multiple of 8
            s.in[0].size[0] = s.call.out.size[0] = 1;
            CHECK(tni_product_of(&s.call, &s.p));
        }
        CHECK(tni_product_add_epilogue(&s.p, &ends[lie]));
        s.p.residual = s.out;
        s.p.bias     = (char *)bias;
        s.p.input    = z;
        CHECK_INT(search(&s, &a), TNI_SEARCHED_ALL);
        runs_by(&s, TILE);
        end_tuned();
    }
}

// Results of zeros and of NaNs say nothing: the product is searched when it has others.
static void nothing_is_found_by_results_that_are_all_alike(void)
{
    product_small s;
    for (int nan = 0; nan < 2; nan++) {
        asked a = { .may = ALL };
        if (!begin_tuned(&s)) return;
        runs_by(&s, 0);
        memset(s.b, nan ? 0xff : 0, sizeof s.b);
        CHECK_INT(search(&s, &a), TNI_SEARCH_LEFT);
        CHECK_INT(a.found, 0);
        product_make_small(&s);
        CHECK_INT(search(&s, &a), TNI_SEARCHED_ALL);
        runs_by(&s, TILE);
        end_tuned();
    }
}

// A winner that the library refuses here, or that does not run, leaves the rule's choice.
static void a_winner_that_the_library_refuses_is_left_out(void)
{
    product_small s;
    asked         a = { .may = ALL };
    if (!begin_tuned(&s)) return;
    CHECK_INT(search(&s, &a), TNI_SEARCHED_ALL);
    tni_product_forget();
    product_fake->liar = TILE;
    product_fake->lies = FAKE_DOES_NOT_RUN;
    runs_by(&s, 0);
    CHECK_NEAR(((float *)s.out)[14], 4, 0);
    tni_product_forget();  // one that adds to its result is not tried ahead
    CHECK(tni_product_add_epilogue(&s.p, &(tni_product_epilogue){ .residual = true }));
    s.p.residual       = s.out;
    product_fake->liar = 0;
    a                  = (asked){ .may = ALL };
    CHECK_INT(search(&s, &a), TNI_SEARCHED_ALL);
    product_fake->liar = TILE;
    runs_by(&s, 0);
    CHECK_NEAR(((float *)s.out)[14], 8, 0);
    memset(a.won.algorithm.byte, 0xff, sizeof a.won.algorithm.byte);
    CHECK(tni_tuned_keep(&a.won));
    tni_product_forget();
    product_fake->liar = 0;
    runs_by(&s, 0);
    end_tuned();
}

// ---- what is left alone ------------------------------------------------------------------------

static void a_search_does_not_disturb_what_is_added_to_nor_what_is_stored(void)
{
    static const tni_product_epilogue with_input = { .activation = TNI_gelu_tanh, .input = true };
    _Alignas(64) char                 z[128];
    product_small                     s, t;
    asked                             a = { .may = ALL }, b = a;
    if (!begin_tuned(&s)) return;
    CHECK(tni_product_add_epilogue(&s.p, &(tni_product_epilogue){ .residual = true }));
    s.p.residual = s.out;
    float was    = ((float *)s.out)[14];
    CHECK_INT(search(&s, &a), TNI_SEARCHED_ALL);
    CHECK_NEAR(((float *)s.out)[14], was, 0);
    runs_by(&s, TILE);
    CHECK_NEAR(((float *)s.out)[14], was + 4, 0);
    product_make_small(&t);
    t.in[0].size[0] = t.call.out.size[0] = 1;
    CHECK(tni_product_of(&t.call, &t.p));
    CHECK(tni_product_add_epilogue(&t.p, &with_input));
    t.p.input = z;
    runs_by(&t, 0);
    CHECK_INT(search(&t, &b), TNI_SEARCHED_ALL);
    CHECK_INT(b.found, 1);
    CHECK(t.p.input == z);
    memset(z, 7, sizeof z);
    runs_by(&t, TILE);
    CHECK_NEAR(((float *)z)[4], 4, 0);
    end_tuned();
}

// Without memory for any of the results nothing is measured, and another run may search.
static void a_search_without_memory_changes_nothing(void)
{
    product_small s;
    for (int at = 1; at <= 2; at++) {
        asked a = { .may = ALL, .fail_at = at };
        if (!begin_tuned(&s)) return;
        runs_by(&s, 0);
        CHECK_INT(search(&s, &a), TNI_SEARCH_LEFT);
        CHECK_INT(a.found, 0);
        runs_by(&s, 0);
        CHECK_INT(search(&s, &a), TNI_SEARCHED_ALL);
        runs_by(&s, TILE);
        end_tuned();
    }
}

// What is not aligned, is captured, or is not timed at all does not search.
static void only_what_can_be_compared_is_searched(void)
{
    product_small s;
    asked         a = { .may = ALL };
    if (!begin_tuned(&s)) return;
    s.p.at[1] += 4;
    CHECK_INT(search(&s, &a), TNI_SEARCHED_NOTHING);
    s.p.at[1] -= 4;
    runs_by(&s, 0);
    product_place.capturing = true;
    CHECK_INT(search(&s, &a), TNI_SEARCHED_NOTHING);
    product_place.capturing = false;
    product_place.timing    = false;
    CHECK_INT(search(&s, &a), TNI_SEARCHED_NOTHING);
    product_place.timing = true;
    CHECK_INT(a.taken, 0);
    CHECK_INT(search(&s, &a), TNI_SEARCHED_ALL);
    runs_by(&s, TILE);
    end_tuned();
}

// ---- tiles -------------------------------------------------------------------------------------

// As the library's header numbers them (headers/real_blaslt.c); and those of what is no number of a
// tile.
static void tiles_have_the_sizes_of_the_library(void)
{
    static const int want[][3] = { { 1, 8, 8 },       { 35, 256, 32 },  { 36, 8, 128 },
                                   { 209, 192, 192 }, { 311, 768, 64 }, { 312, 64, 16 },
                                   { 408, 128, 168 }, { 630, 768, 80 }, { 631, 256, 512 },
                                   { 634, 512, 1024 } };
    int              rows = 0, cols = 0;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        CHECK(tni_lt_tile_size(want[i][0], &rows, &cols));
        CHECK_INT(rows, want[i][1]);
        CHECK_INT(cols, want[i][2]);
    }
    CHECK(!tni_lt_tile_size(0, &rows, &cols));
    CHECK(!tni_lt_tile_size(635, &rows, &cols));
}

// A full last round promises more than one that is nearly empty, an almost square tile more than a
// narrow one, and a tile of no known size nothing.
static void tiles_promise_by_rounds_and_by_what_they_load(void)
{
    enum { T128x128 = 20, T128x256 = 23, T64x8 = 10, T64x256 = 19 };
    tni_lt_extent full  = { 128 * 11, 128 * 12, 1, 1, 132 },
                  more  = { 128 * 11, 128 * 12, 1, 1, 131 };
    tni_lt_extent eight = { 128, 256, 1, 8, 132 }, one = { 128, 256, 1, 1, 132 };
    double        once = tni_lt_tile_expect(&full, T128x128);
    CHECK_NEAR(tni_lt_tile_expect(&more, T128x128), 2 * once, 0);
    CHECK(tni_lt_tile_expect(&full, T64x8) > 3 * once);
    CHECK(tni_lt_tile_expect(&full, T64x256) > once);
    CHECK_NEAR(8 * tni_lt_tile_expect(&eight, T128x256), tni_lt_tile_expect(&one, T128x256), 0);
    CHECK(isinf(tni_lt_tile_expect(&full, 0)));
}

const test_case tests_product_search[] = {
    TEST(tiles_have_the_sizes_of_the_library),
    TEST(tiles_promise_by_rounds_and_by_what_they_load),
    TEST(a_search_finds_what_is_not_proposed_and_keeps_it_for_the_next_process),
    TEST(a_search_may_find_that_the_rule_is_right),
    TEST(a_search_whose_time_runs_out_goes_on_with_the_rest),
    TEST(a_search_that_is_cut_short_keeps_what_it_found),
    TEST(winners_are_of_one_library_and_one_form),
    TEST(an_imported_winner_is_used_from_then_on),
    TEST(an_algorithm_that_is_wrong_never_wins),
    TEST(nothing_is_found_by_results_that_are_all_alike),
    TEST(a_winner_that_the_library_refuses_is_left_out),
    TEST(a_search_does_not_disturb_what_is_added_to_nor_what_is_stored),
    TEST(a_search_without_memory_changes_nothing),
    TEST(only_what_can_be_compared_is_searched),
    TEST_END,
};
