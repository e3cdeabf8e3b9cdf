// test_data.c: datasets: order, batches, the cursor, splitting, augmentation, a user's function on
// the loader's thread, memory.
#include "check.h"
#include "rules_kit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tenon.h>
#include <unistd.h>

// ---- datasets to look at

// x of item i is i, y is 10 i.
static tn_data *count_up(tn_ctx *cx, int64_t n)
{
    tn_tensor *x = tn_arange(cx, TN_F32, 0, (double)n, 1);
    return tn_arrays(cx, 2, (tn_tensor *[]){ x, tn_cast(tn_mul_s(x, 10), TN_I64) });
}

// 4 x 4 images: item i has i + 1 at one pixel of its second row.
static tn_data *dots(tn_ctx *cx, int64_t n)
{
    float *v = calloc((size_t)n * 16, sizeof *v);
    for (int64_t i = 0; v && i < n; i++) v[i * 16 + 5] = (float)(i + 1);
    tn_tensor *x = tn_from(cx, TN_F32, TN_SHAPE(n, 1, 4, 4), v);
    free(v);
    return tn_arrays(cx, 1, &x);
}

// Reads `batches` batches of n into v, whose items are `size` floats; the number of items.
static int64_t gather(tn_data *d, int64_t n, int64_t batches, int64_t size, float *v)
{
    int64_t items = 0;
    for (int64_t i = 0; i < batches; i++) {
        tn_batch b = tn_next(d, n);
        if (!CHECK(b.x != NULL)) return items;
        tn_read(b.x, TN_F32, v + items * size, b.count * size);
        items += b.count;
    }
    return items;
}

static bool is_permutation(const float *v, int n)
{
    bool seen[1024] = { 0 };
    for (int i = 0; i < n; i++) {
        int k = (int)v[i];
        if (k < 0 || k >= n || seen[k]) return false;
        seen[k] = true;
    }
    return true;
}

// ---- batches

static void rule_21_batches_wrap_and_the_last_may_be_short(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_data *d = count_up(cx, 10);
        CHECK_STATUS(tn_data_shuffle(d, false, 0), TN_OK);
        CHECK_INT(tn_data_batches(d, 4), 3);
        for (int i = 0; i < 7; i++) {
            tn_batch b = tn_next(d, 4);
            CHECK_INT(b.count, i % 3 == 2 ? 2 : 4);
            CHECK_INT(b.epoch, i / 3);
            CHECK_INT(b.index, i % 3 * 4);
            CHECK_INT(b.last, i % 3 == 2);
            CHECK_INT(tn_size(b.x, 0), b.count);
            CHECK_INT(tn_item(tn_select(b.x, 0, 0)), b.index);
            CHECK_INT(tn_item_i64(tn_select(b.y, 0, 1)), 10 * (b.index + 1));
            CHECK(b.more[0] == NULL);
        }
    }
}

static void drop_last_hands_out_full_batches_only(void)
{
    tn_ctx  *cx = rules_open("cpu");
    tn_data *d  = count_up(cx, 10);
    CHECK_STATUS(tn_data_drop_last(d, true), TN_OK);
    CHECK_INT(tn_data_batches(d, 4), 2);
    for (int i = 0; i < 5; i++) {
        tn_batch b = tn_next(d, 4);
        CHECK_INT(b.count, 4);
        CHECK_INT(b.epoch, i / 2);
        CHECK_INT(b.last, i % 2 == 1);
    }
    CHECK(tn_next(d, 11).x == NULL);
    CHECK_FAILED2(cx, TN_EARG, "no batch of 11", "10 items");
    CHECK_INT(tn_next(d, 10).count, 10);  // what is left of the epoch is passed over
    CHECK_INT(tn_data_cursor(d).epoch, 4);
    tn_close(cx);
}

// Of one dataset and of the parts of n ranks: every batch is the same items in the same order, also
// where it is short or cannot be divided, and weights average to 1. A rest with fewer items than
// ranks is left out.
static void ranks_share_each_batch(void)
{
    enum { ITEMS = 23, BATCH = 7 };  // 7, 7, 7 and 2
    tn_ctx *cx = rules_open("cpu");
    for (int n = 1; n <= 4; n++) {
        tn_data *whole = count_up(cx, ITEMS), *part[4];
        for (int r = 0; r < n; r++) {
            part[r] = count_up(cx, ITEMS);
            CHECK_STATUS(tn_data_shard(part[r], r, n), TN_OK);
            CHECK_INT(tn_data_batches(part[r], BATCH), n <= 2 ? 4 : 3);
        }
        for (int i = 0; i < 9; i++) {
            tn_batch all = tn_next(whole, BATCH);
            if (all.count < n) all = tn_next(whole, BATCH);
            float  v[2 * BATCH], w[2 * BATCH];
            double weight = 0;
            int    at     = 0;
            tn_read(all.x, TN_F32, v, all.count);
            for (int r = 0; r < n; r++) {
                tn_batch b = tn_next(part[r], BATCH);
                CHECK_INT(b.index, all.index + at);
                CHECK_INT(b.epoch, all.epoch);
                tn_read(b.x, TN_F32, w + at, b.count);
                at += (int)b.count;
                weight += b.weight;
                CHECK_INT(tn_data_cursor(part[r]).index, tn_data_cursor(part[0]).index);
            }
            CHECK_INT(at, all.count);
            CHECK(memcmp(v, w, (size_t)at * sizeof *v) == 0);
            CHECK_NEAR(weight / n, 1, 1e-12);
        }
        CHECK_STATUS(tn_data_seek(part[n - 1], (tn_cursor){ .seed = 1, .epoch = 2, .index = 7 }),
                     TN_OK);
        CHECK_STATUS(tn_data_shard(part[n - 1], 0, 1), TN_OK);  // goes on alone
        CHECK_INT(tn_next(part[n - 1], BATCH).index, 7);
    }
    tn_data *d = count_up(cx, 3);
    CHECK_STATUS(tn_data_shard(d, 3, 3), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "data_shard: rank 3 of 3");
    CHECK_STATUS(tn_data_shard(d, 0, 4), TN_OK);
    CHECK(tn_next(d, 8).x == NULL);
    CHECK_FAILED(cx, TN_EARG, "next: a batch of 8 of 3 items for 4 ranks");
    tn_close(cx);
}

static void a_batch_larger_than_the_dataset_is_all_of_it(void)
{
    tn_ctx  *cx = rules_open("cpu");
    tn_data *d  = count_up(cx, 5);
    CHECK_INT(tn_data_batches(d, 100), 1);
    for (int i = 0; i < 3; i++) {
        tn_batch b = tn_next(d, INT64_MAX);
        CHECK_INT(b.count, 5);
        CHECK_INT(b.epoch, i);
        CHECK(b.last);
    }
    tn_close(cx);
}

static void the_batch_size_can_change_at_any_time(void)
{
    tn_ctx  *cx = rules_open("cpu");
    tn_data *d  = count_up(cx, 100);
    float    a[100], v[100];
    CHECK_INT(gather(d, 100, 1, 1, a), 100);
    CHECK_STATUS(tn_data_rewind(d), TN_OK);
    int64_t at = 0;
    for (int n = 1; at < 100; n = n * 5 % 17) at += gather(d, n, 1, 1, v + at);
    CHECK_INT(at, 100);
    CHECK(!memcmp(a, v, sizeof a));
    tn_close(cx);
}

// ---- order

static void rule_21_the_order_is_a_permutation_by_seed_and_epoch(void)
{
    tn_ctx  *cx = rules_open("cpu");
    tn_data *d  = count_up(cx, 1000);
    float    v[4][1000];
    tn_data_shuffle(d, true, 7);
    gather(d, 64, 16, 1, v[0]);
    gather(d, 64, 16, 1, v[1]);
    tn_data_shuffle(d, true, 8);
    tn_data_rewind(d);
    gather(d, 64, 16, 1, v[2]);
    tn_data_shuffle(d, true, 7);
    tn_data_rewind(d);
    gather(d, 1000, 1, 1, v[3]);
    for (int i = 0; i < 4; i++) CHECK(is_permutation(v[i], 1000));
    CHECK(memcmp(v[0], v[1], sizeof *v));   // another epoch
    CHECK(memcmp(v[0], v[2], sizeof *v));   // another seed
    CHECK(!memcmp(v[0], v[3], sizeof *v));  // another batch size
    int stay = 0, follow = 0;
    for (int i = 0; i < 1000; i++) stay += v[0][i] == (float)i;
    for (int i = 1; i < 1000; i++) follow += v[0][i] == v[0][i - 1] + 1;
    CHECK(stay < 8 && follow < 8);
    tn_close(cx);
}

static void the_order_is_the_same_on_every_machine(void)
{
    tn_ctx  *cx = rules_open("cpu");
    tn_data *d  = count_up(cx, 12);
    tn_data_shuffle(d, true, 1);
    CHECK_VALUES(tn_next(d, 12).x, 5, 0, 4, 2, 7, 3, 11, 1, 9, 8, 10, 6);
    tn_close(cx);
}

// Chi squared over the 24 orders of four items, 23 degrees of freedom: 49.7 in one of a thousand.
static void few_items_come_in_every_order_equally_often(void)
{
    enum { EPOCHS = 4800 };
    tn_ctx  *cx         = rules_open("cpu");
    tn_data *d          = count_up(cx, 4);
    int      seen[1024] = { 0 };
    tn_data_shuffle(d, true, 3);
    for (int e = 0; e < EPOCHS; e++) {
        tn_scope    *s = tn_begin(cx);
        const float *v = tn_ptr(tn_next(d, 4).x);
        seen[(int)v[0] * 64 + (int)v[1] * 16 + (int)v[2] * 4 + (int)v[3]]++;
        tn_end(s);
    }
    double chi = 0;
    for (int i = 0; i < 256; i++) {
        double off = seen[i] - EPOCHS / 24.0;
        if (seen[i]) chi += off * off / (EPOCHS / 24.0);
    }
    test_that(chi > 4 && chi < 49.7, "chi squared is %g", chi);
    tn_close(cx);
}

static void the_default_order_is_by_the_seed_of_the_context(void)
{
    float v[2][50];
    for (int i = 0; i < 2; i++) {
        tn_ctx  *cx = tn_open_with((tn_open_opts){ .device = "cpu", .seed = 11 });
        tn_data *d  = count_up(cx, 50);
        if (i) tn_data_shuffle(d, true, 11);
        gather(d, 50, 1, 1, v[i]);
        CHECK(!is_permutation(v[i], 49));
        tn_close(cx);
    }
    CHECK(!memcmp(v[0], v[1], sizeof v[0]));
}

// ---- cursor, augmentation

static void rule_22_a_cursor_restores_the_middle_of_an_epoch(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        float           a[20 * 16], b[20 * 16];
        tn_augment_opts o = { .shift = 1, .crop = 1, .flip = true };
        tn_data        *d = dots(cx, 30), *e = dots(cx, 30);
        tn_data_shuffle(d, true, 5);
        CHECK_STATUS(tn_data_augment(d, o), TN_OK);
        CHECK_STATUS(tn_data_augment(e, o), TN_OK);
        gather(d, 8, 6, 16, (float[8 * 6 * 16]){ 0 });
        tn_cursor c = tn_data_cursor(d);
        CHECK_INT(c.seed, 5);
        CHECK_INT(c.epoch, 1);
        CHECK_INT(c.index, 16);
        CHECK_INT(gather(d, 8, 2, 16, a), 14);
        CHECK_STATUS(tn_data_seek(e, c), TN_OK);
        CHECK_INT(gather(e, 8, 2, 16, b), 14);
        CHECK(!memcmp(a, b, 14 * 16 * sizeof *a));
        CHECK_INT(tn_data_cursor(e).epoch, 2);
        CHECK_INT(tn_data_cursor(e).index, 0);
    }
}

static void rule_21_augmentation_draws_from_seed_epoch_and_item(void)
{
    enum { N = 40 };
    tn_ctx *cx = rules_open("cpu");
    float   v[3][N * 16], at[N][16];
    for (int k = 0; k < 3; k++) {
        tn_data *d = dots(cx, N);
        tn_data_augment(d, (tn_augment_opts){ .shift = 1 });
        tn_data_shuffle(d, true, 9);
        if (k == 1) tn_data_shuffle(d, false, 0);
        if (k == 2) gather(d, N, 1, 16, v[2]);
        gather(d, k == 1 ? 3 : 16, k == 1 ? 14 : 3, 16, v[k]);
    }
    int other = 0;
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < N; i++) {
            int item = -1;
            for (int p = 0; p < 16; p++)
                if (v[k][i * 16 + p] > 0) item = (int)v[k][i * 16 + p] - 1;
            if (!CHECK(item >= 0 && item < N)) return;
            if (k == 0) memcpy(at[item], v[k] + i * 16, sizeof *at);
            if (k == 1) CHECK(!memcmp(at[item], v[k] + i * 16, sizeof *at));
            if (k == 2) other += memcmp(at[item], v[k] + i * 16, sizeof *at) != 0;
        }
    CHECK(other > N / 2);  // another epoch
    tn_close(cx);
}

static void augmentation_moves_and_flips_images(void)
{
    enum { N = 400 };
    tn_ctx *cx = rules_open("cpu");
    static const struct {
        tn_augment_opts o;
        int             places;  // where the dot may come to lie, as bits
    } row[] = { { { 0 }, 1 << 5 },          { { .flip = true }, 1 << 5 | 1 << 6 },
                { { .shift = 1 }, 0x777 },  { { .crop = 1 }, 0x777 },
                { { .shift = 4 }, 0xffff }, { { .crop = 1, .flip = true }, 0xfff } };
    for (int k = 0; k < (int)(sizeof row / sizeof *row); k++) {
        static float v[N * 16];
        tn_data     *d = dots(cx, N);
        CHECK_STATUS(tn_data_augment(d, row[k].o), TN_OK);
        gather(d, 64, (N + 63) / 64, 16, v);
        int places = 0, lit = 0;
        for (int i = 0; i < N * 16; i++)
            if (v[i] > 0) places |= 1 << i % 16, lit++;
        test_case_result(places == row[k].places && (lit == N || row[k].o.shift == 4),
                         "row %d: places %x, %d dots", k, (unsigned)places, lit);
    }
    tn_close(cx);
}

// ---- splitting

static void a_split_takes_items_out(void)
{
    tn_ctx  *cx = rules_open("cpu");
    tn_data *a  = count_up(cx, 100);
    float    v[100];
    gather(a, 30, 1, 1, v);
    tn_data *b = tn_data_split(a, 0.25, 4), *c = tn_data_split(a, 0.5, 4);
    tn_data *e = tn_data_split(b, 0.2, 4);
    CHECK_INT(tn_data_count(a), 37);
    CHECK_INT(tn_data_count(b), 20);
    CHECK_INT(tn_data_count(c), 38);
    CHECK_INT(tn_data_count(e), 5);
    CHECK_INT(tn_data_cursor(a).index, 0);
    int64_t at = gather(a, 10, 4, 1, v);
    at += gather(b, 10, 2, 1, v + at);
    at += gather(c, 10, 4, 1, v + at);
    tn_data_free(a);
    tn_data_free(b);
    at += gather(e, 10, 1, 1, v + at);
    CHECK_INT(at, 100);
    CHECK(is_permutation(v, 100));
    tn_close(cx);
}

static void a_split_is_by_its_seed_and_keeps_the_order(void)
{
    tn_ctx *cx = rules_open("cpu");
    float   v[3][50];
    for (int k = 0; k < 3; k++) {
        tn_data *d = count_up(cx, 100), *e = tn_data_split(d, 0.5, k == 2);
        tn_data_shuffle(e, false, 0);
        gather(e, 50, 1, 1, v[k]);
        for (int i = 1; i < 50; i++) CHECK(v[k][i] > v[k][i - 1]);
    }
    CHECK(!memcmp(v[0], v[1], sizeof *v));
    CHECK(memcmp(v[0], v[2], sizeof *v));
    tn_close(cx);
}

// ---- a user's function

// What a user's function sees: who called it, how often, at once; and which item fails.
typedef struct {
    pthread_t   owner;
    atomic_int  calls, inside;
    atomic_bool on_owner, at_once;
    int64_t     fails;
    int         asked[1000];
} witness;

static int see(void *user, int64_t i, void *const *dst)
{
    witness *w = user;
    if (pthread_equal(pthread_self(), w->owner)) atomic_store(&w->on_owner, true);
    if (atomic_fetch_add(&w->inside, 1)) atomic_store(&w->at_once, true);
    int n = atomic_fetch_add(&w->calls, 1);
    if (n < 1000) w->asked[n] = (int)i;
    *(double *)dst[0]      = (double)i;
    *(uint8_t *)dst[1]     = (uint8_t)i;
    ((int32_t *)dst[2])[0] = ((int32_t *)dst[2])[1] = -(int32_t)i;
    atomic_fetch_sub(&w->inside, 1);
    return i == w->fails ? 42 : 0;
}

static tn_data *witnessed(tn_ctx *cx, witness *w, int64_t count)
{
    memset(w, 0, sizeof *w);
    w->owner = pthread_self();
    w->fails = -1;
    return tn_dataset(cx,
                      (tn_dataset_def){ .count  = count,
                                        .fields = 3,
                                        .field  = { { .dtype = TN_F64 },
                                                    { .dtype = TN_U8 },
                                                    { .dtype = TN_I32, .rank = 1, .size = { 2 } } },
                                        .user   = w,
                                        .get    = see });
}

static tn_dataset_def classed(int64_t classes, const char *const *names)
{
    static witness w;
    w.fails = -1;
    return (tn_dataset_def){ .count       = 4,
                             .fields      = 3,
                             .field       = { { .dtype = TN_F64 },
                                              { .dtype = TN_U8 },
                                              { .dtype = TN_I32, .rank = 1, .size = { 2 } } },
                             .user        = &w,
                             .get         = see,
                             .classes     = classes,
                             .class_names = names };
}

static void a_dataset_of_a_function_has_the_classes_that_it_says(void)
{
    tn_ctx     *cx       = rules_open("cpu");
    char        cat[]    = "cat";
    const char *names[3] = { cat, "dog", "bird" };
    tn_data    *d        = tn_dataset(cx, classed(3, names));
    cat[0]               = 'r';  // it was copied
    tn_data *rest        = tn_data_split(d, 0.5, 1);
    CHECK_INT(tn_data_info(d).classes, 3);
    CHECK_STR(tn_data_class_name(d, 0), "cat");
    tn_data_free(d);
    CHECK_INT(tn_data_info(rest).classes, 3);
    CHECK_STR(tn_data_class_name(rest, 2), "bird");
    CHECK(tn_data_class_name(rest, 3) == NULL && tn_data_class_name(rest, -1) == NULL);
    d = tn_dataset(cx, classed(10, NULL));
    CHECK_INT(tn_data_info(d).classes, 10);
    CHECK(tn_data_class_name(d, 0) == NULL);
    CHECK_INT(tn_data_info(tn_dataset(cx, classed(0, NULL))).classes, 0);
    CHECK(tn_dataset(cx, classed(-1, NULL)) == NULL);
    CHECK_FAILED(cx, TN_EARG, "dataset: classes -1 is not in 0 .. ");
    CHECK(tn_dataset(cx, classed(0, names)) == NULL);
    CHECK_FAILED(cx, TN_EARG, "dataset: class_names has names, but classes is 0");
    names[1] = NULL;
    CHECK(tn_dataset(cx, classed(3, names)) == NULL);
    CHECK_FAILED(cx, TN_EARG, "dataset: the name of class 1 is NULL");
    tn_dataset_def no_y = classed(3, NULL);
    no_y.fields         = 1;
    CHECK(tn_dataset(cx, no_y) == NULL);
    CHECK_FAILED(cx, TN_EARG, "dataset: there are 3 classes, but no y");
    tn_close(cx);
}

static void rule_21_a_dataset_function_runs_on_another_thread(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        witness  w;
        tn_data *d = witnessed(cx, &w, 20);
        tn_data_shuffle(d, false, 0);
        tn_batch b = tn_next(d, 3);
        CHECK_VALUES(b.x, 0, 1, 2);
        CHECK_VALUES(b.y, 0, 1, 2);
        CHECK_VALUES(b.more[0], 0, 0, -1, -1, -2, -2);
        CHECK_INT(tn_dtype_of(b.x), TN_F64);
        CHECK_INT(tn_dtype_of(b.y), TN_U8);
        CHECK_VALUES(tn_next(d, 3).x, 3, 4, 5);
        tn_data_free(d);
        CHECK(!atomic_load(&w.on_owner));
        CHECK(atomic_load(&w.calls) >= 6 && atomic_load(&w.calls) <= 12);
        for (int i = 0; i < atomic_load(&w.calls); i++) CHECK_INT(w.asked[i], i);
        CHECK_VALUES(b.x, 0, 1, 2);  // outlives its dataset
    }
}

static void rule_21_a_failing_item_is_reported_by_the_batch_that_needs_it(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        witness  w;
        tn_data *d = witnessed(cx, &w, 12);
        tn_data_shuffle(d, false, 0);
        w.fails = 5;
        CHECK_VALUES(tn_next(d, 3).x, 0, 1, 2);
        CHECK_INT(tn_error(cx), TN_OK);
        tn_batch b = tn_next(d, 3);
        CHECK(!b.x && !b.y && !b.count);
        CHECK_FAILED2(cx, TN_EUSER, "item 5", "42");
        CHECK_VALUES(tn_next(d, 3).x, 6, 7, 8);  // goes on behind it
        CHECK_VALUES(tn_next(d, 3).x, 9, 10, 11);
        CHECK_INT(tn_next(d, 5).epoch, 1);
        CHECK_INT(tn_error(cx), TN_OK);
    }
}

static void split_datasets_take_turns_in_a_users_function(void)
{
    tn_ctx  *cx = rules_open("cpu");
    witness  w;
    tn_data *a = witnessed(cx, &w, 400), *b = tn_data_split(a, 0.5, 1);
    for (int i = 0; i < 40; i++) {
        tn_scope *s = tn_begin(cx);
        CHECK(tn_next(a, 20).x && tn_next(b, 20).x);
        tn_end(s);
    }
    tn_data_free(a);
    tn_data_free(b);
    CHECK(!atomic_load(&w.at_once));
    tn_close(cx);
}

static void a_forked_child_reads_on(void)
{
    if (strstr(TN_SANITIZE, "thread")) SKIP("the sanitizer allows no threads after a fork");
    tn_ctx  *cx = rules_open("cpu");
    tn_data *d  = count_up(cx, 100);
    float    v[20], e[20];
    gather(d, 10, 1, 1, v);
    tn_cursor c     = tn_data_cursor(d);
    pid_t     child = fork();
    gather(d, 10, 2, 1, v);
    if (child == 0) {
        tn_data_seek(d, c);
        gather(d, 10, 2, 1, e);
        tn_close(cx);
        _exit(memcmp(v, e, sizeof v) ? 1 : 0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    CHECK_INT(status, 0);
    tn_close(cx);
}

// ---- memory

static void rule_07_batches_kept_stay_as_they_are(void)
{
    enum { KEPT = 20 };
    tn_ctx  *cx = rules_open("cpu");
    tn_data *d  = count_up(cx, 1000);
    tn_batch b[KEPT];
    tn_data_shuffle(d, false, 0);
    for (int i = 0; i < KEPT; i++) b[i] = tn_next(d, 4);
    for (int i = 0; i < KEPT; i++) CHECK_VALUES(b[i].x, 4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3);
    tn_tensor *sum = tn_add(b[3].x, b[4].x);  // not computed yet
    tn_data_free(d);
    tn_drop(b[3].x);
    tn_drop(b[4].x);
    CHECK_VALUES(sum, 28, 30, 32, 34);
    CHECK_VALUES(b[19].y, 760, 770, 780, 790);
    tn_close(cx);
}

static void nothing_is_copied_on_the_cpu(void)
{
    tn_ctx  *cx     = rules_open("cpu");
    tn_data *d      = count_up(cx, 1000);
    int64_t  copies = tn_ctx_stats(cx).copies;
    for (int i = 0; i < 20; i++) {
        tn_scope *s = tn_begin(cx);
        tn_next(d, 16);
        tn_end(s);
    }
    CHECK_INT(tn_ctx_stats(cx).copies, copies);
    tn_close(cx);
}

static void writing_to_a_batch_does_not_reach_the_dataset(void)
{
    tn_ctx    *cx = rules_open("cpu");
    tn_data   *d  = count_up(cx, 4);
    tn_tensor *x  = tn_next(d, 4).x;
    tn_zero_(x);
    CHECK_VALUES(x, 0, 0, 0, 0);
    CHECK_VALUES(tn_sum_all(tn_next(d, 4).x), 6);
    tn_close(cx);
}

static void arrays_are_copied_when_the_dataset_is_made(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = tn_add_s(rules_ramp(cx, 6), 1);
        tn_tensor *m = tn_transpose(tn_view(x, TN_SHAPE(2, 3)), 0, 1);
        tn_data   *d = tn_arrays(cx, 1, &m);
        tn_zero_(x);
        tn_data_shuffle(d, false, 0);
        tn_batch b = tn_next(d, 3);
        CHECK_VALUES(b.x, 2, 5, 3, 6, 4, 7);
        CHECK(b.y == NULL);
    }
}

// An allocator that counts, and whose n-th allocation from now fails.
typedef struct {
    long live, made, fail_at;
} counted;

static void *count_alloc(void *user, void *old, size_t n)
{
    counted *c = user;
    if (n == 0) {
        c->live--;
        free(old);
        return NULL;
    }
    if (++c->made == c->fail_at) return NULL;
    void *p = realloc(old, n);
    if (p && !old) c->live++;
    return p;
}

static tn_ctx *open_counted(counted *c)
{
    tn_ctx *cx = tn_open_with(
        (tn_open_opts){ .device = "cpu", .user = c, .alloc = count_alloc, .threads = 1 });
    if (cx) tn_on_error(cx, NULL, NULL);
    return cx;
}

static void two_thousand_batches_take_no_more_memory(void)
{
    counted  c    = { 0 };
    tn_ctx  *cx   = open_counted(&c);
    tn_data *d    = count_up(cx, 1000);
    long     made = 0, live = 0;
    for (int i = 0; i < 2100; i++) {
        tn_scope *s = tn_begin(cx);
        tn_batch  b = tn_next(d, 64), e = tn_next(d, 64);
        CHECK(b.x && e.x);
        tn_end(s);
        if (i == 99) made = c.made, live = c.live;
    }
    CHECK(TEST_DEBUG || c.live == live);
    test_that(TEST_DEBUG || c.made - made <= 2 * 4000, "%ld allocations", c.made - made);
    tn_close(cx);
    CHECK(TEST_DEBUG || c.live == 0);
}

static void every_allocation_of_a_batch_can_fail(void)
{
    for (long n = 1; n < 200; n++) {
        counted  c  = { 0 };
        tn_ctx  *cx = open_counted(&c);
        tn_data *d  = count_up(cx, 100);
        tn_data_shuffle(d, false, 0);
        long before = c.made;
        c.fail_at   = before + n;
        tn_data *e  = NULL;
        float    v[12];
        tn_batch b = tn_next(d, 4);
        if (b.x && tn_data_augment(d, (tn_augment_opts){ 0 }) != TN_OK) tn_error_clear(cx);
        if (b.x) b = tn_next(d, 4);
        if (b.x) e = tn_data_split(d, 0.5, 1);
        bool done = c.made < c.fail_at;
        test_case_result((b.x && e) || tn_error(cx) == TN_EMEM, "allocation %ld: %s", n,
                         tn_error_text(cx));
        c.fail_at = 0;
        tn_error_clear(cx);
        if (!e) {
            tn_data_rewind(d);
            CHECK_INT(gather(d, 4, 3, 1, v), 12);
            for (int i = 0; i < 12; i++) CHECK_INT(v[i], i);
        }
        tn_close(cx);
        test_case_result(TEST_DEBUG || c.live == 0, "allocation %ld: %ld blocks are left", n,
                         c.live);
        if (done) return;
    }
    CHECK(!"the sweep came to an end");
}

// ---- asking, misuse

static void a_dataset_describes_itself(void)
{
    tn_ctx      *cx   = rules_open("cpu");
    tn_data     *d    = dots(cx, 7);
    tn_data_desc info = tn_data_info(d);
    CHECK_INT(info.count, 7);
    CHECK_INT(info.fields, 1);
    CHECK_INT(info.field[0].rank, 3);
    CHECK_INT(info.field[0].size[2], 4);
    CHECK_INT(info.classes, 0);
    CHECK_STR(tn_data_schema(d), "");
    CHECK(tn_data_class_name(d, 0) == NULL);
    CHECK_INT(tn_data_batches(d, 0), 0);
    tn_data_free(NULL);
    CHECK_INT(tn_data_count(NULL), 0);
    CHECK_INT(tn_data_info(NULL).count, 0);
    tn_close(cx);
}

static void integers_of_arrays_are_classes(void)
{
    static const tn_dtype whole[] = { TN_U8, TN_I8, TN_I32, TN_I64 };

    tn_ctx    *cx     = rules_open("cpu");
    tn_tensor *labels = tn_from(cx, TN_I64, TN_SHAPE(4), (int64_t[]){ 2, 0, 6, 1 });
    tn_tensor *t[2]   = { labels, NULL };
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        t[1] = tn_cast(labels, whole[i]);
        CHECK_INT(tn_data_info(tn_arrays(cx, 2, t)).classes, 7);
    }
    tn_tensor *other[] = { tn_neg(labels), tn_cast(labels, TN_F32), tn_cast(labels, TN_BOOL),
                           tn_reshape(labels, TN_SHAPE(4, 1)),
                           tn_from(cx, TN_I64, TN_SHAPE(4), (int64_t[]){ 0, INT64_MAX, 1, 2 }) };
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        t[1] = other[i];
        CHECK_INT(tn_data_info(tn_arrays(cx, 2, t)).classes, 0);
    }
    tn_close(cx);
}

static void misuse_is_told_in_words(void)
{
    tn_ctx  *cx = rules_open("cpu");
    tn_data *d = count_up(cx, 10), *pictures = dots(cx, 3);
    CHECK(tn_next(d, 0).x == NULL);
    CHECK_FAILED(cx, TN_EARG, "next: a batch of 0 items");
    CHECK(tn_data_split(d, 1, 0) == NULL);
    CHECK_FAILED(cx, TN_EARG, "data_split: 1 is not between 0 and 1");
    CHECK(tn_data_split(d, 0.01, 0) == NULL);
    CHECK_FAILED(cx, TN_EARG, "data_split: 0.01 of 10 items");
    CHECK_STATUS(tn_data_seek(d, (tn_cursor){ .index = 10 }), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "data_seek: epoch 0, item 10 of 10");
    CHECK_STATUS(tn_data_seek(d, (tn_cursor){ .epoch = INT64_MAX }), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "data_seek: epoch 9223372036854775807, item 0 of 10");
    CHECK_STATUS(tn_data_seek(d, (tn_cursor){ .epoch = -1 }), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "data_seek: epoch -1");
    CHECK_STATUS(tn_data_augment(d, (tn_augment_opts){ .flip = true }), TN_ESHAPE);
    CHECK_FAILED(cx, TN_ESHAPE, "images are (C, H, W)");
    CHECK_STATUS(tn_data_augment(pictures, (tn_augment_opts){ .shift = -1 }), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "negative");
    CHECK_STATUS(tn_data_augment(pictures, (tn_augment_opts){ .crop = 5 }), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "5 pixels");
    CHECK(tn_digits(cx, (tn_digits_opts){ .count = -1 }) == NULL);
    CHECK_FAILED(cx, TN_EARG, "digits: a dataset of -1 items");
    CHECK_INT(tn_next(d, 3).count, 3);
    tn_close(cx);
}

static void misuse_of_arrays_and_functions_is_told_in_words(void)
{
    tn_ctx    *cx = rules_open("cpu"), *other = rules_open("cpu");
    tn_tensor *x = rules_ramp(cx, 3), *y = rules_ramp(cx, 4), *s = tn_scalar(cx, 1);
    CHECK(tn_arrays(cx, 2, (tn_tensor *[]){ x, y }) == NULL);
    CHECK_FAILED2(cx, TN_ESHAPE, "(3,)", "field 1 is (4,)");
    CHECK(tn_arrays(cx, 1, &s) == NULL);
    CHECK_FAILED(cx, TN_ESHAPE, "field 0 has no axis of items");
    CHECK(tn_arrays(cx, 0, &x) == NULL);
    CHECK_FAILED(cx, TN_EARG, "arrays: 0 fields");
    CHECK(tn_arrays(other, 1, &x) == NULL);
    CHECK_FAILED(other, TN_EARG, "another context");
    CHECK(tn_dataset(cx, (tn_dataset_def){ .count = 1, .fields = 1 }) == NULL);
    CHECK_FAILED(cx, TN_EARG, "get is NULL");
    CHECK(tn_dataset(cx, (tn_dataset_def){ .fields = 1, .get = see }) == NULL);
    CHECK_FAILED(cx, TN_EARG, "dataset: a dataset of 0 items");
    CHECK(tn_dataset(cx, (tn_dataset_def){ .count = 1, .fields = 9, .get = see }) == NULL);
    CHECK_FAILED(cx, TN_EARG, "9 fields");
    tn_dataset_def deep = { .count = 1, .fields = 1, .field = { { .rank = 8 } }, .get = see };
    CHECK(tn_dataset(cx, deep) == NULL);
    CHECK_FAILED(cx, TN_ESHAPE, "no rank is left");
    tn_dataset_def vast = deep;
    vast.count          = INT64_MAX / 2;
    vast.field[0]       = (tn_array){ .rank = 1, .size = { 1 << 30 } };
    CHECK(tn_next(tn_dataset(cx, vast), INT64_MAX).x == NULL);
    CHECK_FAILED(cx, TN_EMEM, "next: out of memory");
    vast.field[0] = (tn_array){ .dtype = TN_F64, .rank = 1, .size = { INT64_MAX / 8 } };
    CHECK(tn_next(tn_dataset(cx, vast), 1).x == NULL);
    CHECK_FAILED(cx, TN_EMEM, "next: out of memory");
    vast.field[0] = (tn_array){ .dtype = TN_F32 };
    for (int bits = 61; bits < 63; bits++) {
        vast.count = (int64_t)1 << bits;
        CHECK(tn_data_split(tn_dataset(cx, vast), 0.5, 1) == NULL);
        CHECK_FAILED(cx, TN_EMEM, "data_split: out of memory");
    }
    CHECK_INT(tn_next(NULL, 3).count, 0);
    CHECK_FAILED(NULL, TN_EARG, "next: the dataset is NULL");
    tn_close(cx);
    tn_close(other);
}

const test_case tests_data[] = {
    TEST(rule_21_batches_wrap_and_the_last_may_be_short),
    TEST(drop_last_hands_out_full_batches_only),
    TEST(ranks_share_each_batch),
    TEST(a_batch_larger_than_the_dataset_is_all_of_it),
    TEST(the_batch_size_can_change_at_any_time),
    TEST(rule_21_the_order_is_a_permutation_by_seed_and_epoch),
    TEST(the_order_is_the_same_on_every_machine),
    TEST(few_items_come_in_every_order_equally_often),
    TEST(the_default_order_is_by_the_seed_of_the_context),
    TEST(rule_22_a_cursor_restores_the_middle_of_an_epoch),
    TEST(rule_21_augmentation_draws_from_seed_epoch_and_item),
    TEST(augmentation_moves_and_flips_images),
    TEST(a_split_takes_items_out),
    TEST(a_split_is_by_its_seed_and_keeps_the_order),
    TEST(rule_21_a_dataset_function_runs_on_another_thread),
    TEST(a_dataset_of_a_function_has_the_classes_that_it_says),
    TEST(rule_21_a_failing_item_is_reported_by_the_batch_that_needs_it),
    TEST(split_datasets_take_turns_in_a_users_function),
    TEST(a_forked_child_reads_on),
    TEST(rule_07_batches_kept_stay_as_they_are),
    TEST(nothing_is_copied_on_the_cpu),
    TEST(writing_to_a_batch_does_not_reach_the_dataset),
    TEST(arrays_are_copied_when_the_dataset_is_made),
    TEST(two_thousand_batches_take_no_more_memory),
    TEST(every_allocation_of_a_batch_can_fail),
    TEST(a_dataset_describes_itself),
    TEST(integers_of_arrays_are_classes),
    TEST(misuse_is_told_in_words),
    TEST(misuse_of_arrays_and_functions_is_told_in_words),
    TEST_END,
};
