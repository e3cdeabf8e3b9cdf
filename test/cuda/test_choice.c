// test_choice.c: choosing among candidates, by libraries that exist nowhere else: what is timed and
// how often, what is kept, and who finds it.
#include "check.h"
#include "fake_clock.h"
#include "scratch.h"

#include "device/cuda/choice.h"

#include <stdlib.h>

enum { CANDIDATES = 20, WORKSPACE = 64, REFUSED = 1 };

static _Alignas(64) char workspace[WORKSPACE];

// A library whose candidates take cost[i] milliseconds, or are refused below 0; and how often each
// ran.
typedef struct {
    const char *name;
    int         version, count, own;
    double      cost[CANDIDATES];
    int         runs[CANDIDATES];
    double      clock;
    int         timed;
} library;

static int launch(void *session, int i)
{
    library *l = session;
    if (l->cost[i] < 0) return REFUSED;
    l->clock += l->cost[i];
    l->runs[i]++;
    return 0;
}

static bool begin(void)
{
    if (!CHECK(scratch_open())) return false;
    setenv("TN_CACHE_DIR", scratch_path("cache"), 1);
    tni_choice_forget();
    return true;
}

static void end(void)
{
    CHECK_INT(fake_clock_left(), 0);
    unsetenv("TN_CACHE_DIR");
    tni_choice_forget();
    scratch_close();
}

static int time_all(library *l, float ms[CANDIDATES])
{
    tni_candidates c = { .cu        = &fake_clock_driver,
                         .stream    = fake_clock_open(&l->clock),
                         .workspace = (tni_cuptr)(uintptr_t)workspace,
                         .bytes     = WORKSPACE,
                         .count     = l->count,
                         .own       = l->own,
                         .launch    = launch,
                         .session   = l };
    return tni_choice_time(&c, ms);
}

// What a library does that needs a choice: it takes the one that is kept, else it times. -1: none
// runs.
static int choose(library *l, const char *gpu, int64_t size)
{
    int64_t        word[] = { size, -1 }, kept;
    tni_choice_key key    = { l->name, (size_t)l->version, gpu, word, 2 };
    float          ms[CANDIDATES];
    if (tni_choice_find(&key, &kept, sizeof kept) == sizeof kept) return (int)kept;
    CHECK_INT(time_all(l, ms), TNI_CU_OK);
    l->timed++;
    kept = tni_choice_best(ms, l->count);
    if (kept >= 0) tni_choice_keep(&key, &kept, sizeof kept);
    return (int)kept;
}

static void a_choice_is_made_once_and_found_by_the_next_process(void)
{
    library l = { .name = "convolutions", .version = 9, .count = 4, .cost = { 3, 2, 1, 2 } };
    if (!begin()) return;
    CHECK_INT(choose(&l, "a GPU", 5), 2);
    CHECK_INT(choose(&l, "a GPU", 5), 2);
    CHECK_INT(l.timed, 1);
    tni_choice_forget();
    l.cost[0] = 0.1;  // timing again would show
    CHECK_INT(choose(&l, "a GPU", 5), 2);
    CHECK_INT(l.timed, 1);
    end();
}

static void other_libraries_versions_gpus_and_words_are_chosen_for_apart(void)
{
    library l = { .name = "convolutions", .version = 9, .count = 4, .cost = { 3, 2, 1, 2 } };
    library m = { .name = "collectives", .version = 9, .count = 2, .cost = { 1, 2 } };
    if (!begin()) return;
    CHECK_INT(choose(&l, "a GPU", 5), 2);
    CHECK_INT(choose(&m, "a GPU", 5), 0);
    l.cost[3] = 0.5;
    CHECK_INT(choose(&l, "a GPU", 6), 3);
    CHECK_INT(choose(&l, "another", 5), 3);
    l.version++;
    CHECK_INT(choose(&l, "a GPU", 5), 3);
    CHECK_INT(l.timed, 4);
    l.version--;
    CHECK_INT(choose(&l, "a GPU", 5), 2);
    CHECK_INT(choose(&m, "a GPU", 5), 0);
    CHECK_INT(l.timed + m.timed, 5);
    end();
}

static void what_is_refused_is_left_out(void)
{
    library l = { .name = "partial", .count = 5, .cost = { -1, 3, -1, 2, -1 } };
    library n = { .name = "nothing", .count = 3, .cost = { -1, -1, -1 } };
    if (!begin()) return;
    CHECK_INT(choose(&l, "a GPU", 5), 3);
    CHECK_INT(choose(&n, "a GPU", 5), -1);
    CHECK_INT(choose(&n, "a GPU", 5), -1);
    CHECK_INT(n.timed, 2);  // and nothing was kept
    end();
}

static void a_later_candidate_has_to_be_better_by_more_than_noise(void)
{
    CHECK_INT(tni_choice_best((float[]){ 1, 0.99f, 0.985f }, 3), 0);
    CHECK_INT(tni_choice_best((float[]){ 1, 0.97f, 0.96f }, 3), 1);
    CHECK_INT(tni_choice_best((float[]){ -1, 5, 4 }, 2), 1);
    CHECK_INT(tni_choice_best((float[]){ -1, -1 }, 2), -1);
    CHECK_INT(tni_choice_best(NULL, 0), -1);
}

// What takes little time runs often; of what takes long, only the first proposals run, and what is
// our own.
static void the_pace_is_that_of_what_takes_as_long(void)
{
    float   ms[CANDIDATES];
    library l = { .count = CANDIDATES, .own = 1 };
    for (int i = 0; i < CANDIDATES; i++) l.cost[i] = 0.001;
    CHECK_INT(time_all(&l, ms), TNI_CU_OK);
    CHECK_INT(l.runs[CANDIDATES - 1], 7);
    CHECK_NEAR(ms[CANDIDATES - 1], 0.001, 1e-6);
    l = (library){ .count = CANDIDATES, .own = 1 };
    for (int i = 0; i < CANDIDATES; i++) l.cost[i] = i < 10 ? -1 : 5;
    CHECK_INT(time_all(&l, ms), TNI_CU_OK);
    CHECK_INT(l.runs[11], 2);
    CHECK(ms[9] < 0 && ms[10] > 0 && ms[17] > 0 && ms[18] < 0 && ms[19] > 0);
    CHECK_INT(l.runs[18], 0);
}

static int refuse_event(tni_cuevent e, tni_custream s)
{
    (void)e;
    (void)s;
    return TNI_CU_NOT_FOUND;
}

static void an_error_of_the_driver_ends_it_and_nothing_is_left(void)
{
    library        l = { .count = 2, .cost = { 1, 1 } };
    float          ms[2];
    tni_candidates c               = { .cu      = &fake_clock_driver,
                                       .stream  = fake_clock_open(&l.clock),
                                       .count   = 2,
                                       .launch  = launch,
                                       .session = &l };
    fake_clock_driver.event_record = refuse_event;
    CHECK_INT(tni_choice_time(&c, ms), TNI_CU_NOT_FOUND);
    CHECK_INT(fake_clock_left(), 0);
    CHECK_INT(l.runs[1], 0);
}

static void what_does_not_fit_is_not_found(void)
{
    int64_t        word[TNI_CHOICE_WORDS + 1] = { 0 }, kept[2] = { 1, 2 }, got = 0;
    tni_choice_key key = { "a library", 1, "a GPU", word, TNI_CHOICE_WORDS };
    if (!begin()) return;
    for (int i = 0; i < TNI_CHOICE_WORDS; i++) word[i] = INT64_MIN;  // the longest texts
    CHECK_INT(tni_choice_find(&key, &got, sizeof got), 0);
    tni_choice_keep(&key, kept, sizeof kept);
    CHECK_INT(tni_choice_find(&key, &got, sizeof got), 0);
    CHECK_INT(got, 0);
    CHECK_INT(tni_choice_find(&key, kept, sizeof kept), (int)sizeof kept);
    word[TNI_CHOICE_WORDS - 1]++;
    CHECK_INT(tni_choice_find(&key, kept, sizeof kept), 0);
    key.words++;  // more than a key has
    tni_choice_keep(&key, kept, sizeof kept);
    CHECK_INT(tni_choice_find(&key, kept, sizeof kept), 0);
    end();
}

const test_case tests_choice[] = {
    TEST(a_choice_is_made_once_and_found_by_the_next_process),
    TEST(other_libraries_versions_gpus_and_words_are_chosen_for_apart),
    TEST(what_is_refused_is_left_out),
    TEST(a_later_candidate_has_to_be_better_by_more_than_noise),
    TEST(the_pace_is_that_of_what_takes_as_long),
    TEST(an_error_of_the_driver_ends_it_and_nothing_is_left),
    TEST(what_does_not_fit_is_not_found),
    TEST_END,
};
