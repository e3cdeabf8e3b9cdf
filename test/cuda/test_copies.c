// test_copies.c: copies to a GPU beside its work, on a fake one that runs what it is given in any
// order that the streams allow: whatever the order, work reads what was uploaded for it, and a
// batch is copied while the one before it is worked on.
#include "check.h"
#include "fake_gpu.h"

#include "tensor/buffer.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_HELD = 8 };

static struct {
    tni_heap    heap;
    tni_buffers buffers;
    uint32_t    random;
    int         wrong, ran;
} self;

static uint32_t draw(uint32_t n)
{
    self.random = self.random * 1664525u + 1013904223u;
    return (self.random >> 8) % n;
}

static void begin(uint32_t seed)
{
    fake_gpu_open(seed);
    tni_cuda *c = fake_gpu_session();
    self.heap   = tni_heap_default();
    self.random = seed;
    self.wrong = self.ran = 0;
    tni_memory memory     = { .alloc       = tni_cuda_alloc,
                              .free        = tni_cuda_free,
                              .state       = c,
                              .submitted   = tni_cuda_submitted,
                              .completed   = tni_cuda_completed,
                              .wait_unused = tni_cuda_wait_unused };
    tni_buffers_open(&self.buffers, &self.heap, memory, 0);
}

static void end(void)
{
    tni_text why = { "" };
    CHECK_STATUS(tni_device_cuda.events->wait(fake_gpu_session(), &why), TN_OK);
    CHECK_INT(self.wrong, 0);
    CHECK_INT(self.buffers.bytes, 0);
    tni_buffers_close(&self.buffers);
    CHECK_INT(self.buffers.held, 0);
    CHECK_INT(fake_gpu_close(), 0);
}

// ---- work --------------------------------------------------------------------------------------

// What work does with a block: it finds a pattern there, or puts one there.
typedef struct {
    char   *data;
    size_t  bytes;
    uint8_t pattern;
} queued_write;

static void look(void *arg)
{
    queued_write *d = arg;
    for (size_t i = 0; i < d->bytes; i += 509) self.wrong += (uint8_t)d->data[i] != d->pattern;
    self.wrong += (uint8_t)d->data[d->bytes - 1] != d->pattern;
    self.ran++;
    free(d);
}

static void fill(void *arg)
{
    queued_write *d = arg;
    memset(d->data, d->pattern, d->bytes);
    self.ran++;
    free(d);
}

static void give(void (*f)(void *), const tni_buffer *b, size_t bytes, uint8_t pattern)
{
    queued_write *d = malloc(sizeof *d);
    *d              = (queued_write){ b->data, bytes, pattern };
    tni_cuda_await_uploads(fake_gpu_session());
    fake_gpu_work(f, d);
}

// As tn_from does. The host's memory is another's as soon as it returns.
static tni_buffer *upload(size_t bytes, uint8_t pattern)
{
    tni_text    why  = { "" };
    tni_cuda   *c    = fake_gpu_session();
    char       *host = malloc(bytes);
    tni_buffer *b    = tni_buffer_new_upload(&self.buffers, bytes);
    memset(host, pattern, bytes);
    tni_cuda_upload_after(c, b->last);
    CHECK_STATUS(tni_cuda_upload(c, b->data, TN_U8, host, (int64_t)bytes, &why), TN_OK);
    memset(host, 0, bytes);
    free(host);
    return b;
}

// ---- any order ---------------------------------------------------------------------------------

// Small ones mostly, some of more than a piece, a few of more than the whole ring.
static size_t some_bytes(void)
{
    uint32_t k = draw(40);
    if (k == 0) return TNI_RING + 1 + draw(TNI_PIECE);
    if (k < 4) return TNI_PIECE / 2 + draw(2 * TNI_PIECE);
    return 1 + draw(k < 20 ? 300 : 60000);
}

typedef struct {
    tni_buffer *b;
    size_t      bytes;
    uint8_t     pattern;
} held;

// One thing that a program may do next: upload, compute into a block, read a block and drop it.
static void do_something(held *h)
{
    if (h->b) {
        give(look, h->b, h->bytes, h->pattern);
        if (draw(3)) return;
        tni_buffer_unref(&self.buffers, h->b);
        h->b = NULL;
        return;
    }
    h->bytes   = some_bytes();
    h->pattern = (uint8_t)draw(256);
    if (draw(2)) {
        h->b = upload(h->bytes, h->pattern);
    } else {
        h->b = tni_buffer_new(&self.buffers, h->bytes);
        give(fill, h->b, h->bytes, h->pattern);
    }
}

static void work_reads_what_was_uploaded_in_any_order(void)
{
    for (uint32_t seed = 1; seed <= 12; seed++) {
        held h[MOST_HELD] = { { 0 } };
        begin(seed);
        for (int i = 0; i < 400; i++) {
            do_something(&h[draw(MOST_HELD)]);
            if (draw(2)) fake_gpu_run((int)draw(5), draw(3) == 0);
        }
        for (int i = 0; i < MOST_HELD; i++) tni_buffer_unref(&self.buffers, h[i].b);
        end();
        test_case_result(self.wrong == 0 && self.ran > 200, "seed %u: %d of %d wrong", seed,
                         self.wrong, self.ran);
    }
}

// Whether the newest upload is on the GPU.
static bool is_copied(void)
{
    const tni_cuda    *c = fake_gpu_session();
    const tni_uploads *u = &c->uploads;
    return c->gpu->cu->event_query(u->piece[(u->pieces - 1) % TNI_PIECES].done) == TNI_CU_OK;
}

// Nobody says which work used the memory.
static void an_upload_into_unknown_memory_comes_after_all_work(void)
{
    begin(5);
    tni_text    why = { "" };
    tni_buffer *b   = tni_buffer_new(&self.buffers, 1000);
    tni_buffer_unref(&self.buffers, upload(8, 1));
    fake_gpu_run(INT32_MAX, false);
    give(fill, b, 1000, 1);
    give(look, b, 1000, 1);
    static char twos[1000];
    memset(twos, 2, sizeof twos);
    CHECK_STATUS(tni_cuda_upload(fake_gpu_session(), b->data, TN_U8, twos, 1000, &why), TN_OK);
    fake_gpu_run(100, true);
    CHECK(!is_copied());
    give(look, b, 1000, 2);
    tni_buffer_unref(&self.buffers, b);
    end();
}

// ---- batches -----------------------------------------------------------------------------------

// Steps of a training: x and y are uploaded, worked on, and dropped when the step is given.
static void step(int i)
{
    tni_buffer *x = upload(50000, (uint8_t)i), *y = upload(512, (uint8_t)(i + 100));
    give(look, x, 50000, (uint8_t)i);
    give(look, y, 512, (uint8_t)(i + 100));
    tni_buffer_unref(&self.buffers, x);
    tni_buffer_unref(&self.buffers, y);
}

static void a_batch_is_copied_while_the_one_before_is_worked_on(void)
{
    begin(3);
    for (int i = 0; i < 6; i++) {
        step(i);
        fake_gpu_run(INT32_MAX, false);
    }
    int64_t before = self.buffers.held;
    int     ran    = self.ran;
    step(6);
    step(7);
    fake_gpu_run(INT32_MAX, true);
    CHECK(is_copied());  // both batches are there, and work on neither has begun
    CHECK_INT(self.ran, ran);
    step(8);
    fake_gpu_run(INT32_MAX, true);
    CHECK(!is_copied());  // a third has to wait for memory
    for (int i = 9; i < 40; i++) step(i);
    CHECK_INT(self.buffers.held, before);
    end();
}

// A host that is ahead waits for nothing, and takes no more memory for it than two batches.
static void a_host_that_is_ahead_does_not_wait(void)
{
    begin(4);
    for (int i = 0; i < 4; i++) step(i);
    int64_t before = self.buffers.held;
    int     waits  = fake_gpu_waits();
    for (int i = 4; i < 24; i++) step(i);
    CHECK_INT(self.buffers.held, before);
    CHECK_INT(fake_gpu_waits(), waits);
    end();
}

// ---- pinned memory -----------------------------------------------------------------------------

// Host memory of the device, which is filled again as soon as the copy from it is done, and no
// sooner.
typedef struct {
    char    *host;
    uint64_t copy;
} tray;

static tni_buffer *send(tray *t, size_t bytes, uint8_t pattern)
{
    tni_text  why = { "" };
    tni_cuda *c   = fake_gpu_session();
    if (t->copy > tni_cuda_pinned_done(c, 0))
        CHECK(tni_cuda_pinned_done(c, draw(2) ? t->copy : UINT64_MAX) >= t->copy);
    tni_buffer *b = tni_buffer_new_upload(&self.buffers, bytes);
    memset(t->host, pattern, bytes);
    tni_cuda_upload_after(c, b->last);
    CHECK_STATUS(tni_cuda_pinned_upload(c, b->data, TN_U8, t->host, (int64_t)bytes, &t->copy, &why),
                 TN_OK);
    return b;
}

static void pinned_memory_may_change_when_its_copy_is_done(void)
{
    enum { TRAYS = 3, BYTES = 40000 };
    for (uint32_t seed = 1; seed <= 12; seed++) {
        tray t[TRAYS] = { { 0 } };
        begin(seed);
        for (int i = 0; i < TRAYS; i++)
            t[i].host = tni_cuda_pinned_alloc(fake_gpu_session(), BYTES);
        for (int i = 0; i < 300; i++) {
            size_t      bytes = 1 + draw(BYTES);
            tni_buffer *b     = draw(4) ? send(&t[draw(TRAYS)], bytes, (uint8_t)i)
                                        : upload(bytes, (uint8_t)i);
            if (draw(8)) give(look, b, bytes, (uint8_t)i);
            tni_buffer_unref(&self.buffers, b);
            if (draw(2)) fake_gpu_run((int)draw(5), draw(3) == 0);
        }
        tni_buffer *b = send(&t[0], BYTES, 7);
        give(look, b, BYTES, 7);
        tni_buffer_unref(&self.buffers, b);
        for (int i = 0; i < TRAYS; i++) tni_cuda_pinned_free(fake_gpu_session(), t[i].host);
        end();
        test_case_result(self.wrong == 0 && self.ran > 200, "seed %u: %d of %d wrong", seed,
                         self.wrong, self.ran);
    }
}

// A copy from pinned memory waits for nobody on the host, and its memory is not done before it is.
static void a_copy_from_pinned_memory_is_done_when_it_ran(void)
{
    begin(9);
    tni_cuda   *c     = fake_gpu_session();
    tray        t     = { tni_cuda_pinned_alloc(c, 1000), 0 };
    tni_buffer *b     = send(&t, 1000, 5);
    int         waits = fake_gpu_waits();
    CHECK(tni_cuda_pinned_done(c, 0) < t.copy);
    fake_gpu_run(INT32_MAX, false);
    CHECK(tni_cuda_pinned_done(c, 0) == t.copy);
    CHECK_INT(fake_gpu_waits(), waits);
    give(look, b, 1000, 5);
    tni_buffer_unref(&self.buffers, b);
    tni_cuda_pinned_free(c, t.host);
    end();
}

// ---- a caller's memory -------------------------------------------------------------------------

static void memory_of_this_gpu_is_told_from_other(void)
{
    static char host[64];
    tni_text    why  = { "" };
    bool        here = false;
    begin(6);
    tni_cuda *c = fake_gpu_session();
    char     *p = tni_cuda_alloc(c, 1000);
    CHECK_STATUS(tni_cuda_owns(c, host, 64, &here, &why), TN_OK);
    CHECK(!here);
    CHECK_STATUS(tni_cuda_owns(c, p + 100, 900, &here, &why), TN_OK);
    CHECK(here);
    CHECK_STATUS(tni_cuda_owns(c, p + 100, 901, &here, &why), TN_EARG);
    CHECK(!here);
    CHECK_STR(why.s, "data has 900 bytes on the GPU, but 901 are needed");
    why = (tni_text){ "" };
    CHECK_STATUS(tni_cuda_owns(c, fake_gpu_stranger(), 8, &here, &why), TN_EARG);
    CHECK_STR(why.s, "data is in memory of cuda:1, but the context is on cuda:0");
    tni_cuda_free(c, p);
    end();
}

// The end of a caller's memory: work that reads it is done, unless the caller's own stream will see
// to that.
static void release(void *data, void *user)
{
    (void)data;
    *(int *)user = self.ran;
}

static void a_callers_memory_is_released_when_no_work_reads_it(void)
{
    for (int borrowed = 0; borrowed < 2; borrowed++) {
        int ran = -1;
        begin(7);
        tni_cuda *c = fake_gpu_session();
        if (borrowed) c->own = NULL;
        char       *p     = tni_cuda_alloc(c, 1000);
        tni_buffer *b     = tni_buffer_borrow(&self.buffers, p, release, &ran);
        tni_buffer *other = tni_buffer_new(&self.buffers, 1000);
        give(fill, other, 1000, 1);
        give(look, other, 1000, 1);
        tni_buffer_unref(&self.buffers, other);
        tni_buffer_unref(&self.buffers, b);
        CHECK_INT(ran, borrowed ? 0 : 2);
        tni_cuda_free(c, p);
        end();
    }
}

// Work goes from the session's stream to the caller's and back, each behind the other's.
static void work_follows_the_stream_that_is_used(void)
{
    tni_text why = { "" };
    for (uint32_t seed = 20; seed < 40; seed++) {
        begin(seed);
        tni_cuda   *c = fake_gpu_session();
        tni_buffer *b = upload(1000, 1);
        for (uint8_t i = 1; i < 9; i++) {
            give(look, b, 1000, i);
            give(fill, b, 1000, i + 1);
            void *next = i % 2 ? fake_gpu_other_stream(false) : NULL;
            CHECK_STATUS(tni_device_cuda.events->use_stream(c, next, &why), TN_OK);
            CHECK(c->stream == (next ? next : c->own));
        }
        tni_buffer_unref(&self.buffers, b);
        CHECK_STATUS(tni_device_cuda.events->use_stream(c, NULL, &why), TN_OK);
        end();
    }
}

// What a caller captures must not contain waits or copies from the host, and no call may break the
// capture: memory is allocated as one that is permitted, and never given back.
static void a_captured_stream_gets_launches_alone(void)
{
    const tni_device_events *events  = tni_device_cuda.events;
    tni_text                 why     = { "" };
    char                     host[8] = { 0 };
    begin(9);
    tni_cuda   *c = fake_gpu_session();
    tni_buffer *b = upload(1000, 1);
    give(look, b, 1000, 1);
    CHECK_STATUS(events->use_stream(c, fake_gpu_other_stream(true), &why), TN_OK);
    CHECK(events->captures(c));
    CHECK_INT(self.ran, 1);  // what the graph cannot wait for is done
    tni_buffer *other = tni_buffer_new(&self.buffers, 5000);
    char       *kept  = other->data;
    give(fill, other, 5000, 1);
    CHECK_STATUS(tni_cuda_upload(c, b->data, TN_U8, host, 8, &why), TN_EDEVICE);
    CHECK_STR(why.s, "cuda: copying to the GPU: not while a CUDA graph is captured");
    CHECK_STATUS(tni_cuda_download(c, host, TN_U8, b->data, 8, &why), TN_EDEVICE);
    CHECK_STATUS(events->wait(c, &why), TN_EDEVICE);
    tni_buffer_unref(&self.buffers, other);
    tni_buffers_trim(&self.buffers);
    CHECK_INT(fake_gpu_broken(), 0);
    CHECK_STATUS(events->use_stream(c, fake_gpu_other_stream(false), &why), TN_OK);
    CHECK(!events->captures(c) && c->captured);
    CHECK_STATUS(events->use_stream(c, NULL, &why), TN_OK);
    c->captured = false;  // so that the rest is freed
    tni_cuda_free(c, kept);
    tni_buffer_unref(&self.buffers, b);
    end();
}

static void an_element_arrives_when_its_work_is_done(void)
{
    begin(8);
    int64_t     v = 0;
    tni_buffer *b = tni_buffer_new(&self.buffers, 8);
    give(fill, b, 8, 3);
    int64_t ticket = tni_cuda_fetch(fake_gpu_session(), TN_I64, b->data);
    CHECK(ticket > 0 && !tni_cuda_fetched(fake_gpu_session(), ticket, &v));
    tni_buffer_unref(&self.buffers, b);
    tni_buffer_unref(&self.buffers, upload(8, 4));
    fake_gpu_run(INT32_MAX, false);
    CHECK(tni_cuda_fetched(fake_gpu_session(), ticket, &v));
    CHECK_INT(v, 0x0303030303030303);
    for (int i = 0; i < TNI_FETCHES; i++) tni_cuda_fetch(fake_gpu_session(), TN_I64, b->data);
    CHECK(!tni_cuda_fetched(fake_gpu_session(), ticket, &v));
    end();
}

const test_case tests_copies[] = {
    TEST(work_reads_what_was_uploaded_in_any_order),
    TEST(an_upload_into_unknown_memory_comes_after_all_work),
    TEST(a_batch_is_copied_while_the_one_before_is_worked_on),
    TEST(a_host_that_is_ahead_does_not_wait),
    TEST(pinned_memory_may_change_when_its_copy_is_done),
    TEST(a_copy_from_pinned_memory_is_done_when_it_ran),
    TEST(memory_of_this_gpu_is_told_from_other),
    TEST(a_callers_memory_is_released_when_no_work_reads_it),
    TEST(work_follows_the_stream_that_is_used),
    TEST(a_captured_stream_gets_launches_alone),
    TEST(an_element_arrives_when_its_work_is_done),
    TEST_END,
};
