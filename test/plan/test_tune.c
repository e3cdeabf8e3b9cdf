// test_tune.c: winners of measuring kernels under other settings: what is kept and found again, and
// what a device offers.
#include "tune_kit.h"

#include "device/cpu/cpu_kernels.h"
#include "device/opencl/opencl.h"
#include "inspect/agreement.h"
#include "inspect/tuner.h"
#include "kernel/disk.h"
#include "kernel/launch_words.h"
#include "kernel/simt.h"
#include "kernel_kit.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <tenon.h>
#include <unistd.h>

static const char CHIP[] = "some chip";

// A launch of a map over n elements.
static void make_launch(kit_case *c, int64_t n)
{
    kit_begin(c, 1, &n, 0, NULL, false);
    int x = kit_load_new(c, TN_F32, TNI_PER_ROW);
    kit_store(c, kit_output(c, TN_F32, TNI_PER_ROW), kit_map1(c, TNI_exp, x));
    CHECK(tni_kernel_seal(&c->k));
}

static tni_tuned winner_of(const tni_launch *l, int unroll, double us)
{
    tni_tuned w;
    memset(&w, 0, sizeof w);
    tni_tuned_key(l, w.key);
    snprintf(w.chip, sizeof w.chip, "%s", CHIP);
    snprintf(w.what, sizeof w.what, "POINT (64,)");
    w.settings.of[TNI_KNOB_UNROLL] = (uint8_t)unroll;
    w.us = us, w.rule_us = 2 * us, w.next_us = 1.5 * us;
    return w;
}

// ---- winners -----------------------------------------------------------------------------------

static void winners_are_found_by_sizes_and_chip_in_a_later_process(void)
{
    kit_case *c = calloc(1, sizeof *c);
    tni_tuned w, found;
    tune_begin("winners");
    make_launch(c, 64);
    w = winner_of(&c->l, 4, 10);
    CHECK(!tni_tuned_find(CHIP, &c->l, &found));
    CHECK(tni_tuned_keep(&w));
    for (int again = 0; again < 2; again++) {
        CHECK(tni_tuned_find(CHIP, &c->l, &found));
        CHECK_INT(found.settings.of[TNI_KNOB_UNROLL], 4);
        CHECK_NEAR(found.us, 10, 1e-9);
        CHECK_NEAR(found.rule_us, 20, 1e-9);
        CHECK_NEAR(found.next_us, 15, 1e-9);
        CHECK(!tni_tuned_find("another chip", &c->l, &found));
        tni_tuned_forget();
    }
    make_launch(c, 65);
    CHECK(!tni_tuned_find(CHIP, &c->l, &found));
    free(c);
    tune_end();
}

// A launch of a map over n elements that reads places, and draws random numbers there or only
// counts them.
static void make_places(kit_case *c, int64_t n, bool draws)
{
    int64_t one[TNI_AXES + 1] = { 1 };
    kit_begin(c, 1, &n, 0, NULL, false);
    int x = kit_load_new(c, TN_F32, TNI_PER_ROW), at = kit_place(c, 0, one);
    int y = draws ? kit_random(c, TNI_uniform, TN_F32, at, 1, 2) : kit_cast(c, TN_F32, at);
    kit_store(c, kit_output(c, TN_F32, TNI_PER_ROW), kit_map2(c, TNI_mul, x, y));
    CHECK(tni_kernel_seal(&c->k));
}

// Generation reads and writes further on in each step, and counts places: the launch is the same as
// long as its shape is.
static void steps_further_on_have_the_same_winner(void)
{
    static const struct {
        int64_t offset, place;
        bool    draws, same;
    } row[]     = { { 4, 0, false, true },  { 400, 0, false, true }, { -4, 0, false, true },
                    { 0, 1, false, true },  { 8, 95, false, true },  { 1, 0, false, false },
                    { 2, 0, false, false }, { 0, 4, true, true },    { 0, 1, true, false } };
    kit_case *c = calloc(1, sizeof *c);
    tni_tuned found;
    tune_begin("further");
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        memset(c, 0, sizeof *c);
        make_places(c, 64, row[i].draws);
        tni_tuned w = winner_of(&c->l, 4, 10);
        CHECK(tni_tuned_keep(&w));
        for (int a = 0; a < c->k.naccess; a++) {
            int b = c->k.access[a].buffer;
            if (b < 0) c->l.offset[a] = row[i].place;
            else if (!c->k.buffer[b].written) c->l.offset[a] = row[i].offset;
        }
        test_case_result(tni_tuned_find(CHIP, &c->l, &found) == row[i].same,
                         "%d elements on, place %d", (int)row[i].offset, (int)row[i].place);
    }
    free(c);
    tune_end();
}

// A launch of x + transpose(x), whose tiles are each other's transposed operands.
static void make_pair(kit_case *c)
{
    int64_t n[] = { 512, 512 }, across[TNI_AXES + 1] = { 516, 1 }, down[TNI_AXES + 1] = { 1, 516 };
    kit_begin(c, 2, n, 0, NULL, false);
    int x = kit_buffer(c, TN_F32, 600 * 516, false);
    int a = kit_load(c, kit_access(c, x, 0, across, 0)),
        b = kit_load(c, kit_access(c, x, 0, down, 0));
    kit_store(c, kit_output(c, TN_F32, TNI_PER_ROW), kit_map2(c, TNI_add, a, b));
    CHECK(tni_kernel_seal(&c->k));
}

// Lets a launch begin elsewhere: each access by itself or all of a buffer, and the buffers, which
// are not read.
static void move_launch(tni_launch *l, uint64_t *state)
{
    static const int64_t by[]   = { 0, 0, 0, 1, 2, 3, 4, 8, 16, 64, 128 };
    static const int     over[] = { 0, 0, 0, 4, 8, 16, 32 };
    enum { BY = sizeof by / sizeof *by, OVER = sizeof over / sizeof *over };
    int64_t all = by[kit_below(state, BY)];
    bool    one = kit_below(state, 2);
    for (int a = 0; a < l->kernel->naccess; a++)
        l->offset[a] += one ? by[kit_below(state, BY)] : all;
    for (int b = 0; b < l->kernel->nbuffer; b++)
        l->buffer[b] = (char *)(uintptr_t)(4096 * (b + 1) + over[kit_below(state, OVER)]);
}

// Of one kernel, moved in many ways. Returns how many launches had the words of another.
static int compare_shapes(const kit_case *c, const char *what, uint64_t *state)
{
    enum { WAYS = 40 };
    static const tni_simt_limits h200 = { .threads      = 1024,
                                          .shared_bytes = 227 * 1024,
                                          .units        = 132,
                                          .features     = TNI_GPU_ALL,
                                          .cluster      = 8 };
    static int64_t               word[WAYS][TNI_LAUNCH_WORDS];
    static tni_simt              shape[WAYS];
    int                          same = 0;
    for (int i = 0; i < WAYS; i++) {
        tni_launch l = c->l;
        move_launch(&l, state);
        int n    = tni_launch_words(&l, word[i]);
        shape[i] = tni_simt_choose(&l, &h200);
        for (int j = 0; j < i; j++) {
            if (memcmp(word[i], word[j], (size_t)n * sizeof **word)) continue;
            same++;
            test_case_result(!memcmp(&shape[i], &shape[j], sizeof *shape),
                             "%s: equal words, other shapes", what);
            break;
        }
    }
    return same;
}

// A shape is kept for all launches with equal words, whatever else they are.
static void launches_with_equal_words_have_equal_shapes(void)
{
    enum { KERNELS = 150 };
    kit_case *c    = malloc(sizeof *c);
    uint64_t  draw = 7;
    char      what[32];
    int       same = 0;
    memset(c, 0, sizeof *c);
    make_pair(c);
    same += compare_shapes(c, "a pair", &draw);
    kit_free(c);
    for (int i = 0; i < 2 * KERNELS; i++) {
        snprintf(what, sizeof what, "%s kernel %d", i % 2 ? "crossed" : "random", i / 2);
        bool ok = i % 2 ? kit_crossed_case(c, (uint64_t)i, 0)
                        : kit_random_case(c, (uint64_t)i, KIT_SMALL);
        if (!CHECK(ok)) break;
        same += compare_shapes(c, what, &draw);
        kit_free(c);
    }
    CHECK(same > KERNELS);
    free(c);
}

static void a_newer_winner_replaces_the_older(void)
{
    kit_case *c = calloc(1, sizeof *c);
    tni_tuned w, found;
    tune_begin("newer");
    make_launch(c, 64);
    w = winner_of(&c->l, 4, 10);
    tni_tuned_keep(&w);
    w = winner_of(&c->l, 2, 9);
    tni_tuned_keep(&w);
    tni_tuned_forget();
    CHECK(tni_tuned_find(CHIP, &c->l, &found));
    CHECK_INT(found.settings.of[TNI_KNOB_UNROLL], 2);
    free(c);
    tune_end();
}

static void rules_decide_if_that_is_asked_for(void)
{
    static const char *const zero[] = { "0", "0.0", "00", "0e3", ".0" };

    kit_case *c = calloc(1, sizeof *c);
    tni_tuned w, found;
    tune_begin("asked");
    make_launch(c, 64);
    w = winner_of(&c->l, 4, 10);
    tni_tuned_keep(&w);
    tni_tuned_forget();
    setenv("TN_DETERMINISTIC", "1", 1);
    CHECK(!tni_tuned_find(CHIP, &c->l, &found));
    tni_tuned_forget();
    setenv("TN_DETERMINISTIC", "0", 1);
    for (size_t i = 0; i < sizeof zero / sizeof *zero; i++) {
        setenv("TN_TUNE", zero[i], 1);
        CHECK(!tni_tuned_find(CHIP, &c->l, &found));
        tni_tuned_forget();
    }
    setenv("TN_TUNE", "", 1);
    CHECK(tni_tuned_find(CHIP, &c->l, &found));
    tni_tuned_forget();
    unsetenv("TN_TUNE");
    CHECK(tni_tuned_find(CHIP, &c->l, &found));
    free(c);
    tune_end();
}

static void a_bad_number_of_seconds_is_told_of_once(void)
{
    static const char *const bad[] = { "abc", "1x", "-1", "nan", "inf", "1 s" };
    tni_text                 why   = { "" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tune_begin("seconds");
        setenv("TN_TUNE", bad[i], 1);
        why = (tni_text){ "" };
        CHECK(tni_tuned_seconds(&why) == -1);
        test_case_result(strstr(why.s, bad[i]) != NULL, "%s: \"%s\"", bad[i], why.s);
        why = (tni_text){ "" };
        CHECK(tni_tuned_seconds(&why) == -1);
        CHECK_STR(why.s, "");
        tune_end();
    }
    setenv("TN_TUNE", "2.5", 1);
    CHECK(tni_tuned_seconds(&why) == 2.5);
    tune_end();
}

// ---- processes ---------------------------------------------------------------------------------

enum { WRITERS = 4, EACH = 25 };

// Keeps winners of launches of other sizes than those of other processes.
static void keep_some(kit_case *c, int process)
{
    tni_tuned_forget();
    for (int i = 0; i < EACH; i++) {
        make_launch(c, 64 + process * EACH + i);
        tni_tuned w = winner_of(&c->l, 4, 10);
        tni_tuned_keep(&w);
    }
}

// Runs f in a process of its own, which ends with it.
static pid_t in_process(void (*f)(kit_case *c, int n), kit_case *c, int n)
{
    pid_t pid = fork();
    if (pid) return pid;
    f(c, n);
    _exit(0);
}

static void processes_that_write_at_once_lose_nothing(void)
{
    kit_case *c = calloc(1, sizeof *c);
    tni_tuned found;
    int       lost = 0;
    tune_begin("at_once");
    for (int i = 0; i < WRITERS; i++) CHECK(in_process(keep_some, c, i) > 0);
    for (int i = 0; i < WRITERS; i++) wait(NULL);
    tni_tuned_forget();
    for (int i = 0; i < WRITERS * EACH; i++) {
        make_launch(c, 64 + i);
        lost += !tni_tuned_find(CHIP, &c->l, &found);
    }
    CHECK_INT(lost, 0);
    free(c);
    tune_end();
}

static void learn_and_keep(kit_case *c, int n)
{
    tni_tuning slow = { { [TNI_KNOB_VECTOR] = 1 } }, rule = { { 0 } };
    tni_tuned  w = winner_of(&c->l, n, 10);
    tni_tuning_learn(CHIP, &c->k, &rule, &slow, 2);
    tni_tuned_keep(&w);
}

// This process has read a winner and a factor of the other's before it writes another winner.
static void what_another_process_found_later_stays(void)
{
    kit_case  *c = calloc(1, sizeof *c), *other = calloc(1, sizeof *c);
    tni_tuning slow = { { [TNI_KNOB_VECTOR] = 1 } };
    tni_tuned  found;
    tni_text   why;
    int        n;
    tune_begin("later");
    make_launch(c, 64);
    make_launch(other, 65);
    learn_and_keep(c, 2);
    CHECK(in_process(learn_and_keep, c, 8) > 0);
    wait(NULL);
    learn_and_keep(other, 4);
    // Nor has it read this one before it exports all.
    make_launch(other, 66);
    CHECK(in_process(learn_and_keep, other, 2) > 0);
    wait(NULL);
    CHECK(tni_tuned_export(scratch_path("all.txt"), &n, &why));
    CHECK_INT(n, 3);
    for (int again = 0; again < 2; again++) {
        CHECK(tni_tuned_find(CHIP, &c->l, &found));
        CHECK_INT(found.settings.of[TNI_KNOB_UNROLL], 8);
        CHECK_NEAR(tni_tuning_expect(CHIP, &c->k, &slow), pow(2, 4 / 6.), 1e-4);
        tni_tuned_forget();
    }
    free(c);
    free(other);
    tune_end();
}

// ---- files -------------------------------------------------------------------------------------

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    if (!CHECK(f != NULL)) return;
    fputs(text, f);
    fclose(f);
}

static void winners_go_from_folder_to_folder(void)
{
    kit_case *c = calloc(1, sizeof *c);
    tni_tuned w, found;
    tni_text  why = { "" };
    int       n   = 0;
    char      path[1024];
    tune_begin("from");
    snprintf(path, sizeof path, "%s", scratch_path("winners.txt"));
    make_launch(c, 64);
    w = winner_of(&c->l, 8, 3);
    tni_tuned_keep(&w);
    CHECK(tni_tuned_export(path, &n, &why) && n == 1);
    setenv("TN_CACHE_DIR", scratch_path("to"), 1);
    tni_tuned_forget();
    CHECK(!tni_tuned_find(CHIP, &c->l, &found));
    CHECK(tni_tuned_import(path, &n, &why) && n == 1);
    tni_tuned_forget();
    CHECK(tni_tuned_find(CHIP, &c->l, &found));
    CHECK_INT(found.settings.of[TNI_KNOB_UNROLL], 8);
    free(c);
    tune_end();
}

// As editors leave them, on some systems.
static void a_file_may_have_blank_lines_and_marks_of_editors(void)
{
    char     path[1024];
    tni_text why;
    int      n = 0;
    tune_begin("edited");
    snprintf(path, sizeof path, "%s", scratch_path("edited.txt"));
    write_file(path, "\xef\xbb\xbf# mine\r\n\r\n  \nwinner 1 2 3 4 5 unroll=2 chip x\r\n");
    test_that(tni_tuned_import(path, &n, &why), "%s", why.s);
    CHECK_INT(n, 1);
    tune_end();
}

static void many_winners_of_several_chips_are_told_apart(void)
{
    enum { MANY = 5000 };
    kit_case *c = calloc(1, sizeof *c);
    char      path[1024];
    tni_tuned w, found;
    tni_text  why;
    int       n = 0;
    tune_begin("many");
    make_launch(c, 64);
    w = winner_of(&c->l, 2, 10);
    snprintf(path, sizeof path, "%s", scratch_path("many.txt"));
    FILE *f = fopen(path, "w");
    for (int i = 0; f && i < MANY; i++)
        fprintf(f, "winner %llx %llx 3 4 5 unroll=%d chip%d x\n", (unsigned long long)w.key[0],
                (unsigned long long)w.key[1] + (i & 1), i & 1 ? 8 : 4, i / 2);
    if (f) fclose(f);
    CHECK(tni_tuned_import(path, &n, &why) && n == MANY);
    for (int i = 0; i < MANY / 2; i++) {
        char chip[32];
        snprintf(chip, sizeof chip, "chip%d", i);
        CHECK(tni_tuned_find(chip, &c->l, &found) && found.settings.of[TNI_KNOB_UNROLL] == 4);
    }
    CHECK(!tni_tuned_find(CHIP, &c->l, &found));
    CHECK(tni_tuned_export(path, &n, &why));
    CHECK_INT(n, MANY);
    free(c);
    tune_end();
}

// Lines that are no winners, after one that is: nothing of such a file is kept.
static void a_bad_file_changes_nothing(void)
{
    static const char *const bad[] = {
        "winner 1 2 3 4 5 unroll=0 chip x\n",
        "winner 1 2 3 4 5 unroll=300 chip x\n",
        "winner 1 2 3 4 5 speed=3 chip x\n",
        "winner 1 2 3 4 5 vector=3 chip x\n",
        "winner 1 2 3 4 5 warps=64 chip x\n",
        "winner 1 2 -3 4 5 unroll=2 chip x\n",
        "winner 1 2 3 4 5 unroll=2,, chip x\n",
        "winner 1 2 3\n",
        "winner 1 2 3 4 5 algorithm=42 chip x\n",
        "winner 1 2 3 4 5 algorithm=xx00000000000000000000000000000000000000000000000000000000000000"
        "0000000000000000000000000000000000000000000000000000000000000000 chip x\n",
        "factor chip 0 unroll 2 0 1\n",
        "winner 1 2 inf 4 5 unroll=2 chip x\n",
        "winner 1 2 3 -4 5 unroll=2 chip x\n",
        "winner 1 2 3 4 -9e307 unroll=2 chip x\n",
        "winner 0 0 3 4 5 unroll=2 chip x\n",
        "winner 123456789012345678901234567890 2 3 4 5 unroll=2 chip x\n",
        "winner 1 2 3 4 5 unroll=2 chip x y\n",
        "winner 1 2 3 4 5 unroll=2 chip \x1b[31m\n",
        "winner 1 2 3 nan 5 unroll=2 chip x\n",
        "factor chip 0 unroll 2 3 nan\n",
        "factor chip 0 unroll 2 2147483647 1\n",
        "factor chip 0 unroll 2 3 1e300\n",
        "\x7f"
        "ELF\n",
    };
    static const char hidden[] = "winner 1 2 3 4 5 unroll=2 chip x\n\0 bad\n";

    char     path[1024], text[512];
    tni_text why;
    int      n;
    tune_begin("bad");
    snprintf(path, sizeof path, "%s", scratch_path("bad.txt"));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(text, sizeof text, "# fine\nwinner 1 2 3 4 5 unroll=2 chip x\n%s", bad[i]);
        write_file(path, text);
        test_case_result(!tni_tuned_import(path, &n, &why), "line \"%s\" was taken", bad[i]);
        CHECK_STR(why.s, "line 3 is no result of tuning");
    }
    CHECK(scratch_write(path, hidden, sizeof hidden - 1));
    CHECK(!tni_tuned_import(path, &n, &why));
    CHECK(tni_tuned_export(path, &n, &why));
    CHECK_INT(n, 0);
    CHECK(!tni_tuned_import("/nowhere/winners.txt", &n, &why));
    tune_end();
}

// A later version may share the folder and keep what this one does not know: lines behind it are
// used.
static void a_bad_line_on_disk_is_left_out(void)
{
    static const tni_disk_key key    = { "tuned", "winners 2", "", "", "" };
    static const char         text[] = "winner 1 2 3 4 5 unroll=2 chip x\n"
                                       "winner 3 4 3 4 5 speed=3 chip x\n"
                                       "winner 5 6 3 4 5 unroll=2 chip x\n";
    char                      path[1024];
    tni_disk                  d;
    tni_text                  why;
    int                       n = 0;
    tune_begin("later");
    tni_disk_open(&d);
    CHECK(tni_disk_keep(&d, &key, text, sizeof text - 1));
    snprintf(path, sizeof path, "%s", scratch_path("later.txt"));
    CHECK(tni_tuned_export(path, &n, &why));
    CHECK_INT(n, 2);
    tune_end();
}

// Without a cache folder, what is known is in memory alone.
static void a_bad_file_leaves_what_only_memory_has(void)
{
    kit_case *c = calloc(1, sizeof *c);
    char      path[1024];
    tni_tuned w, found;
    tni_text  why;
    int       n;
    tune_begin("memory");
    setenv("TN_CACHE_DIR", "none", 1);
    tni_tuned_forget();
    make_launch(c, 64);
    w = winner_of(&c->l, 4, 10);
    CHECK(tni_tuned_keep(&w));
    snprintf(path, sizeof path, "%s", scratch_path("bad.txt"));
    write_file(path, "winner 1 2 3\n");
    CHECK(!tni_tuned_import(path, &n, &why));
    CHECK(tni_tuned_find(CHIP, &c->l, &found));
    free(c);
    tune_end();
}

// ---- the model ---------------------------------------------------------------------------------

static void what_was_slower_is_expected_to_be_slower(void)
{
    kit_case  *c    = calloc(1, sizeof *c);
    tni_tuning slow = { { [TNI_KNOB_VECTOR] = 1 } }, fast = { { [TNI_KNOB_VECTOR] = 4 } };
    tni_tuning other = { { [TNI_KNOB_WARPS] = 4 } }, rule = { { 0 } };
    tune_begin("model");
    make_launch(c, 64);
    for (int i = 0; i < 3; i++) {
        tni_tuning_learn(CHIP, &c->k, &rule, &slow, 2);
        tni_tuning_learn(CHIP, &c->k, &rule, &fast, 0.8);
    }
    tni_tuning_learn(CHIP, &c->k, &rule, &other, INFINITY);
    CHECK(tni_tuning_expect(CHIP, &c->k, &slow) > 1.3);
    CHECK(tni_tuning_expect(CHIP, &c->k, &fast) < 0.95);
    CHECK_NEAR(tni_tuning_expect(CHIP, &c->k, &other), 1, 1e-12);
    CHECK_NEAR(tni_tuning_expect("another chip", &c->k, &slow), 1, 1e-12);
    free(c);
    tune_end();
}

// Winners are written in between, as they are while kernels are measured one after the other.
static void what_was_learned_outlasts_writing(void)
{
    kit_case  *c    = calloc(1, sizeof *c);
    tni_tuning slow = { { [TNI_KNOB_VECTOR] = 1 } }, rule = { { 0 } };
    tni_tuned  w;
    tune_begin("outlasts");
    make_launch(c, 64);
    w = winner_of(&c->l, 4, 10);
    for (int i = 0; i < 6; i++) {
        tni_tuning_learn(CHIP, &c->k, &rule, &slow, 2);
        CHECK(tni_tuned_keep(&w));
    }
    CHECK_NEAR(tni_tuning_expect(CHIP, &c->k, &slow), pow(2, 6 / 8.), 1e-4);
    tni_tuned_forget();
    CHECK_NEAR(tni_tuning_expect(CHIP, &c->k, &slow), pow(2, 6 / 8.), 1e-4);
    free(c);
    tune_end();
}

// A knob that both settings have in common has not made the difference.
static void a_difference_is_that_of_the_knob_that_differs(void)
{
    kit_case  *c    = calloc(1, sizeof *c);
    tni_tuning from = { { [TNI_KNOB_UNROLL] = 8 } }, to = from, both = { { 0 } };
    tune_begin("differs");
    make_launch(c, 64);
    to.of[TNI_KNOB_VECTOR]   = 1;
    both.of[TNI_KNOB_VECTOR] = 1;
    tni_tuning_learn(CHIP, &c->k, &from, &to, 2);
    CHECK_NEAR(tni_tuning_expect(CHIP, &c->k, &from), 1, 1e-12);
    CHECK_NEAR(tni_tuning_expect(CHIP, &c->k, &both), pow(2, 1 / 3.), 1e-9);
    free(c);
    tune_end();
}

// ---- scratch -----------------------------------------------------------------------------------

// Plans of any context keep the bytes that they were told, while a winner with more threads may
// come from another.
static void scratch_of_the_cpu_is_enough_for_settings_to_come(void)
{
    kit_case    *c    = calloc(1, sizeof *c);
    tni_cpu_code code = { .rows = { 8, 0 } };
    tni_tuning   many = { { [TNI_KNOB_THREADS] = 8 } };
    kit_begin(c, 1, (int64_t[]){ 8 }, 1, (int64_t[]){ 2000 }, true);
    int x = kit_load_new(c, TN_F32, TNI_PER_ELEM);
    kit_store(c, kit_output(c, TN_F32, TNI_PER_ROW), kit_reduce(c, TNI_sum, x, false));
    CHECK(tni_kernel_seal(&c->k));
    c->l.threads = 8;
    size_t rule  = tni_cpu_scratch(NULL, &code, &c->l);
    c->l.tuning  = &many;
    size_t set   = tni_cpu_scratch(NULL, &code, &c->l);
    test_case_result(rule >= set, "%zu bytes of scratch, %zu with more threads", rule, set);
    free(c);
}

// What launch asks for, while it is recorded what scratch was given for: see
// a_winner_of_another_context...
static struct {
    const tni_device_kernels *of;
    size_t                    most_given;
    int                       sized, launched, too_large;
} watched;

// Another context keeps a winner, which needs more scratch, right after this one has asked.
static size_t scratch_then_retune(void *session, void *entry, const tni_launch *l)
{
    size_t    bytes = watched.of->scratch(session, entry, l);
    tni_tuned w     = winner_of(l, 0, 1);
    if (bytes > watched.most_given) watched.most_given = bytes;
    snprintf(w.chip, sizeof w.chip, "%s", watched.of->chip(session, l->threads));
    w.settings.of[TNI_KNOB_GRID] = (uint8_t)(1 + watched.sized++ % 16);
    tni_tuned_keep(&w);
    watched.of->retuned(session, entry, l);
    return bytes;
}

static tn_status launch_within_scratch(void *session, void *entry, tni_launch *l, tni_text *why)
{
    watched.launched++;
    watched.too_large += watched.of->scratch(session, entry, l) > watched.most_given;
    return watched.of->launch(session, entry, l, why);
}

// Sums of all of a tensor, in steps between which the grid of the winner grows.
static void a_winner_of_another_context_waits_for_the_next_run(void)
{
    if (tni_device_opencl.probe(&(tni_text){ "" }) == false) SKIP("no opencl device");
    tune_begin("another");
    tn_ctx            *cx   = rules_open("opencl");
    tni_device_kernels mine = *cx->engine->kernels;
    watched.of              = cx->engine->kernels;
    mine.scratch            = scratch_then_retune;
    mine.launch             = launch_within_scratch;
    tn_tensor *x            = tn_full(cx, TN_F32, TN_SHAPE(1 << 20), 0.5);
    tn_eval(cx);
    cx->engine->kernels = &mine;
    for (int i = 0; i < 16; i++) {
        tn_scope *s        = tn_begin(cx);
        watched.most_given = 0;
        CHECK_NEAR(tn_item(tn_sum_all(x)), 1 << 19, 1e-3 * (1 << 19));
        tn_end(s);
    }
    CHECK(watched.launched >= 16 && watched.sized >= 16);
    CHECK_INT(watched.too_large, 0);
    cx->engine->kernels = watched.of;
    tn_close(cx);
    tune_end();
}

// ---- candidates --------------------------------------------------------------------------------

// Settings that cut the work as the rule does would be measured against themselves.
static void candidates_of_the_cpu_differ_from_the_rule(void)
{
    static const int64_t    sizes[] = { 64, 5000, 100000, 10000000 };
    static const tni_tuning rule;
    tni_tuning              near[48];
    int                     most = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        kit_case *c = calloc(1, sizeof *c);
        make_launch(c, sizes[i]);
        c->l.threads = 4;
        int n        = tni_cpu_neighbours(NULL, &c->l, &rule, near, 48);
        for (int k = 0; k < n; k++)
            test_case_result(!tni_cpu_runs_equal(&c->l, &near[k], NULL) ||
                                 !tni_cpu_texts_equal(&c->l, &near[k], NULL),
                             "%s is the rule's choice for %lld elements",
                             tni_tuning_text(&near[k]).s, (long long)sizes[i]);
        if (n > most) most = n;
        free(c);
    }
    CHECK(most > 4);
}

// Softmax and what is like it: rows that several loops pass, of an odd length, with sums of rows
// and of columns.
// Times of the rule and of a winner, as `sample` gives them.
static double seconds_of(void *arg, const void *way)
{
    (void)arg;
    return *(const double *)way;
}

// Times that are equal, as noise may make them, take an older winner back no more than they let a
// new one win; one that is slower or does not run goes either way.
static void an_older_winner_stays_unless_the_rule_wins(void)
{
    static const double rule = 1e-3, equal = 1e-3, slower = 2e-3, faster = 5e-4, fails = INFINITY;
    double              us[2];
    CHECK(!tni_winner_stays(seconds_of, NULL, &rule, &equal, false, us));
    CHECK(tni_winner_stays(seconds_of, NULL, &rule, &equal, true, us));
    for (int older = 0; older < 2; older++) {
        CHECK(!tni_winner_stays(seconds_of, NULL, &rule, &slower, older, us));
        CHECK(!tni_winner_stays(seconds_of, NULL, &rule, &fails, older, us));
        CHECK(tni_winner_stays(seconds_of, NULL, &rule, &faster, older, us));
        CHECK_NEAR(us[0], 1000, 1e-9);
        CHECK_NEAR(us[1], 500, 1e-9);
    }
}

static void make_rows(kit_case *c, int64_t rows, int64_t columns)
{
    kit_begin(c, 1, &rows, 1, &columns, true);
    int x = kit_load_new(c, TN_F32, TNI_PER_ELEM);
    int e = kit_map1(c, TNI_exp, kit_map2(c, TNI_sub, x, kit_reduce(c, TNI_max, x, false)));
    int y = kit_map2(c, TNI_div, e, kit_reduce(c, TNI_sum, e, false));
    kit_store(c, kit_output(c, TN_F32, TNI_PER_ELEM), y);
    kit_store(c, kit_output(c, TN_F32, TNI_PER_COL), kit_reduce(c, TNI_sum, y, true));
}

static void make_map(kit_case *c, int64_t rows, int64_t columns)
{
    kit_begin(c, 2, (int64_t[]){ rows, columns }, 0, NULL, false);
    int x = kit_load_new(c, TN_F32, TNI_PER_ROW), y = kit_load_new(c, TN_F32, TNI_PER_ROW);
    kit_store(c, kit_output(c, TN_F32, TNI_PER_ROW),
              kit_map2(c, TNI_mul, kit_map1(c, TNI_tanh, x), y));
}

// Launches a case under some settings, compiled. False if that was not possible.
static bool launch_compiled(kit_case *c, void *entry, const tni_tuning *t)
{
    tni_text why           = { "" };
    c->l.tuning            = t;
    c->l.wait_for_compiler = true;
    size_t bytes           = (tni_cpu_scratch(NULL, entry, &c->l) + 63) / 64 * 64;
    c->l.scratch           = aligned_alloc(64, bytes + 64);
    bool ok                = c->l.scratch && tni_cpu_launch(NULL, entry, &c->l, &why) == TN_OK;
    free(c->l.scratch);
    return ok;
}

// Runs a case under every setting that is a neighbour of the rule's, and compares bits. Returns how
// many had a text of their own.
static int compare_settings(void (*make)(kit_case *, int64_t, int64_t), int64_t rows,
                            int64_t columns)
{
    static kit_case         rule, c;
    static const tni_tuning none;
    tni_tuning              near[48];
    char                   *why   = malloc(KIT_WHY);
    const tni_launch       *first = &rule.l;
    void                   *entry = NULL;
    tni_text                error = { "" };
    int                     texts = 0;
    make(&rule, rows, columns);
    rule.l.threads = 2;
    bool ok        = CHECK(why && kit_end(&rule)) &&
              CHECK_STATUS(tni_cpu_prepare(NULL, 1, &first, &entry, true, &error), TN_OK) &&
              CHECK(launch_compiled(&rule, entry, &none));
    int n = ok ? tni_cpu_neighbours(NULL, &rule.l, &none, near, 48) : 0;
    for (int i = 0; i < n; i++) {
        const tni_tuning *t = NULL;
        make(&c, rows, columns);
        c.l.threads = 2;
        ok          = CHECK(kit_end(&c)) && CHECK(launch_compiled(&c, entry, &near[i]));
        texts += ok && tni_cpu_choice(entry, &c.l, &t) != entry;
        if (ok)
            test_case_result(kit_same(&rule, &c, why), "%s: %s", tni_tuning_text(&near[i]).s, why);
        kit_free(&c);
    }
    kit_free(&rule);
    free(why);
    return texts;
}

// Sizes that no vector and no block of vectors divides, and rows shorter than one.
static void any_settings_of_the_cpu_run_and_agree(void)
{
    tni_text why;
    if (!tni_cpu_compiler(&why)) SKIP("%s", why.s);
    tune_begin("any_settings");
    CHECK(compare_settings(make_map, 3, 12345) >= 3);
    CHECK(compare_settings(make_rows, 301, 1031) >= 4);
    CHECK(compare_settings(make_rows, 501, 37) >= 4);
    compare_settings(make_rows, 77, 5);
    tune_end();
}

// A winner with a text of its own is compiled when the kernel is prepared, launched, and shown.
// Results are those of the rule.
static void a_winner_of_the_cpu_has_its_text(void)
{
    static kit_case   rule, c;
    tni_heap          heap = tni_heap_default();
    tni_text          why  = { "" };
    const tni_tuning *set = NULL, none = { { 0 } };
    const tni_launch *first = &c.l;
    void             *entry = NULL;
    if (!tni_cpu_compiler(&why)) SKIP("%s", why.s);
    tune_begin("winner_text");
    char *differs = malloc(KIT_WHY);
    make_map(&rule, 5, 1203);
    make_map(&c, 5, 1203);
    bool ok     = CHECK(differs && kit_end(&rule)) && CHECK(kit_end(&c));
    c.l.threads = rule.l.threads = 2;
    c.l.wait_for_compiler        = true;
    tni_tuned w                  = winner_of(&c.l, 8, 1);
    snprintf(w.chip, sizeof w.chip, "%s", tni_cpu_chip(NULL, 2));
    CHECK(ok && tni_tuned_keep(&w));
    CHECK_STATUS(tni_cpu_prepare(NULL, 1, &first, &entry, true, &why), TN_OK);
    ok = ok && CHECK(launch_compiled(&c, entry, NULL)) &&
         CHECK(launch_compiled(&rule, entry, &none)) && CHECK(kit_same(&rule, &c, differs));
    CHECK(ok && tni_cpu_choice(entry, &c.l, &set) != entry && set);
    char *text = tni_cpu_text(NULL, &heap, &c.l);
    CHECK(text && strstr(text, "lanes = 8 *"));
    tni_free(&heap, text);
    free(differs);
    kit_free(&rule);
    kit_free(&c);
    tune_end();
}

// ---- callers -----------------------------------------------------------------------------------

static void note_warning(tn_ctx *cx, const tn_fault *f, void *user)
{
    (void)cx;
    *(tni_text *)user = tni_text_of("%s", f->text);
}

static void winners_that_no_folder_keeps_are_told_of(void)
{
    char      path[1024];
    tni_text  told = { "" };
    kit_case *c    = calloc(1, sizeof *c);
    tn_ctx   *cx   = tune_open();
    tune_begin("no_folder");
    make_launch(c, 64);
    tni_tuned w = winner_of(&c->l, 4, 10);
    tni_tuned_keep(&w);
    snprintf(path, sizeof path, "%s", scratch_path("winners.txt"));
    tn_on_warning(cx, note_warning, &told);
    CHECK_INT(tn_tune_export(cx, path), 1);
    CHECK_INT(tn_tune_import(cx, path), 1);
    CHECK_STR(told.s, "");
    setenv("TN_CACHE_DIR", "none", 1);
    tni_tuned_forget();
    CHECK_INT(tn_tune_import(cx, path), 1);
    CHECK_STR(told.s,
              "tune_import: the winners are known to this process alone: TN_CACHE_DIR is none");
    CHECK(tni_tuned_find(CHIP, &c->l, &w));
    tn_close(cx);
    free(c);
    tune_end();
}

// A disk that takes nothing, as a full one: what is known is not said to be kept, and is written
// with the next winner.
static void winners_that_a_disk_does_not_take_are_told_of(void)
{
    kit_case     *c = calloc(1, sizeof *c);
    struct rlimit was, none;
    tni_text      where, why = { "" };
    tune_begin("full");
    make_launch(c, 64);
    tni_tuned w = winner_of(&c->l, 2, 10);
    CHECK(tni_tuned_kept(&where, &why));
    CHECK_INT(getrlimit(RLIMIT_FSIZE, &was), 0);
    none             = (struct rlimit){ .rlim_cur = 0, .rlim_max = was.rlim_max };
    void (*old)(int) = signal(SIGXFSZ, SIG_IGN);
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &none), 0);
    CHECK(tni_tuned_keep(&w));
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &was), 0);
    signal(SIGXFSZ, old);
    CHECK(!tni_tuned_kept(&where, &why));
    CHECK(strstr(why.s, "takes no more") != NULL);
    w.key[0]++;
    CHECK(tni_tuned_keep(&w));
    CHECK(tni_tuned_kept(&where, &why));
    tni_tuned_forget();
    CHECK(tni_tuned_find(CHIP, &c->l, &w));
    free(c);
    tune_end();
}

static void bad_arguments_are_refused(void)
{
    static const double bad[] = { -1, NAN, INFINITY };
    tn_ctx             *cx    = tune_open();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_INT(tn_tune(cx, bad[i]), TN_EARG);
        CHECK(strstr(tn_error_text(cx), "tune: ") != NULL);
        tn_error_clear(cx);
    }
    CHECK_INT(tn_tune_export(cx, NULL), -1);
    CHECK_INT(tn_error(cx), TN_EARG);
    tn_error_clear(cx);
    CHECK_INT(tn_tune_import(cx, "/nowhere/winners.txt"), -1);
    CHECK_INT(tn_error(cx), TN_EIO);
    CHECK_STR(tn_error_text(cx),
              "tune_import: \"/nowhere/winners.txt\" cannot be read: No such file or directory");
    tn_error_clear(cx);
    tn_close(cx);
}

const test_case tests_tune[] = { TEST(an_older_winner_stays_unless_the_rule_wins),
                                 TEST(winners_are_found_by_sizes_and_chip_in_a_later_process),
                                 TEST(steps_further_on_have_the_same_winner),
                                 TEST(launches_with_equal_words_have_equal_shapes),
                                 TEST(a_newer_winner_replaces_the_older),
                                 TEST(rules_decide_if_that_is_asked_for),
                                 TEST(a_bad_number_of_seconds_is_told_of_once),
                                 TEST(processes_that_write_at_once_lose_nothing),
                                 TEST(what_another_process_found_later_stays),
                                 TEST(many_winners_of_several_chips_are_told_apart),
                                 TEST(winners_go_from_folder_to_folder),
                                 TEST(a_file_may_have_blank_lines_and_marks_of_editors),
                                 TEST(a_bad_file_changes_nothing),
                                 TEST(a_bad_line_on_disk_is_left_out),
                                 TEST(a_bad_file_leaves_what_only_memory_has),
                                 TEST(what_was_slower_is_expected_to_be_slower),
                                 TEST(what_was_learned_outlasts_writing),
                                 TEST(a_difference_is_that_of_the_knob_that_differs),
                                 TEST(scratch_of_the_cpu_is_enough_for_settings_to_come),
                                 TEST(a_winner_of_another_context_waits_for_the_next_run),
                                 TEST(candidates_of_the_cpu_differ_from_the_rule),
                                 TEST(any_settings_of_the_cpu_run_and_agree),
                                 TEST(a_winner_of_the_cpu_has_its_text),
                                 TEST(winners_that_no_folder_keeps_are_told_of),
                                 TEST(winners_that_a_disk_does_not_take_are_told_of),
                                 TEST(bad_arguments_are_refused),
                                 TEST_END };
