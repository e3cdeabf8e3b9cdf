// test_pinned.c: a loader fills pinned memory of the device, on the cpu with a group that counts,
// keeps copies under way for as long as a test likes, and sees what is written to their memory
// meanwhile.
#include "check.h"

#include "data/loader.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tenon.h>
#include <unistd.h>

enum { UNDER_WAY = 128, BATCH = 16, MOST = 32 };

typedef struct {
    const void *host;
    size_t      bytes;
    uint64_t    sum;
} copy;

// open: memory that was taken and not given back. late: copies are done only when they are waited
// for.
static struct {
    tni_device        device;
    tni_device_memory memory;
    copy              way[UNDER_WAY], block[UNDER_WAY];  // copies; memory that was taken, in turn
    uint64_t          begun, done;
    int               open, taken, staged, waits, most, wrong;
    bool              late, none;
} fake;

static uint64_t sum_of(const copy *c)
{
    const unsigned char *p   = c->host;
    uint64_t             sum = 0;
    for (size_t i = 0; i < c->bytes; i++) sum = sum * 31 + p[i];
    return sum;
}

static void *fake_alloc(void *session, size_t bytes)
{
    (void)session;
    if (fake.none) return NULL;
    copy *b  = &fake.block[fake.taken++ % UNDER_WAY];
    b->bytes = (bytes + 63) / 64 * 64;
    b->host  = aligned_alloc(64, b->bytes);
    fake.open++;
    return (void *)b->host;
}

// Those up to a number end, with what they found when they began still in place.
static void end_copies(uint64_t until)
{
    for (; fake.done < until; fake.done++) {
        const copy *c = &fake.way[fake.done % UNDER_WAY];
        fake.wrong += sum_of(c) != c->sum;
    }
}

static void fake_free(void *session, void *p)
{
    (void)session;
    end_copies(fake.begun);
    for (int i = 0; i < UNDER_WAY; i++)
        if (fake.block[i].host == p) fake.block[i] = (copy){ 0 };
    fake.open--;
    free(p);
}

static tn_status fake_upload(void *session, void *dst, tn_dtype dt, const void *host, int64_t count,
                             uint64_t *number, tni_text *why)
{
    (void)session, (void)why;
    copy c = { host, (size_t)count * tni_dtype_size(dt), 0 };
    c.sum  = sum_of(&c);
    memcpy(dst, host, c.bytes);
    fake.way[fake.begun++ % UNDER_WAY] = c;
    *number                            = fake.begun;
    if ((int)(fake.begun - fake.done) > fake.most) fake.most = (int)(fake.begun - fake.done);
    return TN_OK;
}

static uint64_t fake_done(void *session, uint64_t until)
{
    (void)session;
    fake.waits += until > fake.done;
    end_copies(fake.late ? until : fake.begun);
    return fake.done;
}

// Copies that go through the owner's thread.
static tn_status staged(void *session, void *dst, tn_dtype dt, const void *host, int64_t count,
                        tni_text *why)
{
    fake.staged++;
    return tni_device_cpu.memory->upload(session, dst, dt, host, count, why);
}

static tn_ctx *open_fake(bool late, bool none)
{
    static const tni_device_pinned pinned = { fake_alloc, fake_free, fake_upload, fake_done };
    memset(&fake, 0, sizeof fake);
    fake.device        = tni_device_cpu;
    fake.device.pinned = &pinned;
    fake.device.memory = &fake.memory;
    fake.memory        = *tni_device_cpu.memory;
    fake.memory.upload = staged;
    fake.late          = late;
    fake.none          = none;
    tn_ctx *cx         = tn_open("cpu");
    tni_engine_use(cx, &fake.device);
    return cx;
}

static tn_data *digits(tn_ctx *cx)
{
    return tn_digits(cx, (tn_digits_opts){ .count = 1000 });
}

// The sums of so many batches of a dataset, of sizes that change.
static void sums(tn_data *d, int n, double *sum)
{
    for (int i = 0; i < n; i++) {
        tn_batch  b = tn_next(d, i < n / 2 ? BATCH : BATCH + i % 3);
        tn_scope *s = tn_begin(b.x->cx);
        sum[i]      = tn_item(tn_sum_all(b.x)) + tn_item(tn_sum_all(tn_cast(b.y, TN_F32)));
        tn_end(s);
        tn_drop(b.x);
        tn_drop(b.y);
    }
}

static void check_batches(bool late, bool none)
{
    enum { STEPS = 100 };
    double   want[STEPS], have[STEPS];
    tn_ctx  *plain = tn_open("cpu"), *cx = open_fake(late, none);
    tn_data *d = digits(cx);
    sums(digits(plain), STEPS, want);
    sums(d, STEPS, have);
    for (int i = 0; i < STEPS; i++) CHECK(have[i] == want[i]);
    CHECK_INT(fake.staged, 0);
    CHECK_INT((int64_t)fake.begun, none ? 0 : 2 * STEPS);
    // Two fields a batch, and so many batches on their way at most.
    CHECK(late ? fake.waits > 0 && fake.most <= 2 * (MOST + 1) : fake.waits == 0);
    CHECK(fake.open <= TNI_AHEAD + 1 + (late ? MOST : 1));
    tn_data_free(d);
    CHECK_INT(fake.open, 0);
    CHECK_INT(fake.wrong, 0);
    tn_close(cx);
    tn_close(plain);
}

static void batches_are_copied_from_where_they_are_filled(void)
{
    check_batches(false, false);
}

static void memory_is_filled_again_when_its_copy_is_done(void)
{
    check_batches(true, false);
}

static void without_pinned_memory_batches_are_borrowed(void)
{
    check_batches(false, true);
}

// In a steady loop no memory is taken.
static void a_loop_keeps_its_pinned_memory(void)
{
    tn_ctx  *cx = open_fake(true, false);
    tn_data *d  = digits(cx);
    double   sum[8];
    int      taken = 0;
    for (int i = 0; i < 3 * MOST; i++) {
        if (i == 2 * MOST) taken = fake.taken;
        tn_batch b = tn_next(d, BATCH);
        tn_drop(b.x);
        tn_drop(b.y);
    }
    CHECK_INT(fake.taken, taken);
    // A dataset that goes back throws away what was made ready, and what is under way stays as it
    // is.
    tn_data_seek(d, (tn_cursor){ 0 });
    sums(d, 8, sum);
    tn_close(cx);
    CHECK_INT(fake.open, 0);
    CHECK_INT(fake.wrong, 0);
}

// Memory that only a burst of copies needed goes back once as many batches as are remembered did
// without it.
static void pinned_memory_of_a_burst_goes_back(void)
{
    tn_ctx  *cx = open_fake(true, false);
    tn_data *d  = digits(cx);
    for (int i = 0; i < 300; i++) {
        fake.late  = i < 30;
        tn_batch b = tn_next(d, BATCH);
        tn_drop(b.x);
        tn_drop(b.y);
        if (i == 30) CHECK(fake.open > 20);
    }
    CHECK(fake.open <= TNI_AHEAD + 2);
    tn_close(cx);
    CHECK_INT(fake.open, 0);
    CHECK_INT(fake.wrong, 0);
}

// What the parent's device may be reading, the child neither writes nor gives back; its driver has
// no more memory for it.
static bool reads_on_alone(tn_data *d, const double *want)
{
    double sum[8];
    int    open = fake.open;
    fake.none   = true;
    for (int i = 0; i < UNDER_WAY; i++) {
        if (fake.block[i].host) memset((void *)fake.block[i].host, 7, fake.block[i].bytes);
        fake.block[i].sum = sum_of(&fake.block[i]);
    }
    sums(d, 8, sum);
    for (int i = 0; i < UNDER_WAY; i++)
        if (sum_of(&fake.block[i]) != fake.block[i].sum) return false;
    tn_data_free(d);
    return fake.open == open && !memcmp(sum, want, sizeof sum);
}

static void a_forked_child_leaves_pinned_memory_alone(void)
{
    if (strstr(TN_SANITIZE, "thread")) SKIP("the sanitizer allows no threads after a fork");
    tn_ctx  *cx = open_fake(true, false);
    tn_data *d  = digits(cx);
    double   sum[8], want[8];
    int      status = -1;
    sums(d, 8, sum);
    tn_cursor c = tn_data_cursor(d);
    sums(d, 8, want);
    tn_data_seek(d, c);
    sums(d, 1, sum);
    tn_data_seek(d, c);
    tn_drop(tn_next(d, BATCH).x);  // the next batches are asked for
    pid_t child = fork();
    if (child == 0) {
        tn_data_seek(d, c);
        _exit(reads_on_alone(d, want) ? 0 : 1);
    }
    waitpid(child, &status, 0);
    CHECK_INT(status, 0);
    tn_close(cx);
    CHECK_INT(fake.open, 0);
    CHECK_INT(fake.wrong, 0);
}

const test_case tests_pinned[] = {
    TEST(batches_are_copied_from_where_they_are_filled),
    TEST(memory_is_filled_again_when_its_copy_is_done),
    TEST(without_pinned_memory_batches_are_borrowed),
    TEST(a_loop_keeps_its_pinned_memory),
    TEST(pinned_memory_of_a_burst_goes_back),
    TEST(a_forked_child_leaves_pinned_memory_alone),
    TEST_END,
};
