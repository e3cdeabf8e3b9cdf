// The loader: buffers, jobs, the thread, and tn_next.
#include "data/loader.h"
#include "data/dataset.h"
#include "data/order.h"
#include "data/pixels.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

// ---- buffers -------------------------------------------------------------------------------------

// So many batches of so many bytes may be on their way to a device, and at least two, before the host waits for
// the oldest: it is that many steps ahead then, and more would be memory without use. IDLE_TRAYS are kept for
// later batches; of pinned ones, since taking and giving them holds the device up, all that one of the last
// KEPT_BATCHES was filled into.
enum { COPIES = 32, COPIED = 16 << 20, IDLE_TRAYS = TNI_AHEAD + 1, KEPT_BATCHES = 256 };

static void tray_unlink(tni_batch_buffer *t)
{
    if (t->next) t->next->prev = t->prev;
    if (t->prev) t->prev->next = t->next;
    else if (t->home) t->home->buffers = t->next;
}

static void tray_free(tni_batch_buffer *t)
{
    tni_heap   *h = &t->cx->heap;
    tni_engine *e = t->cx->engine;
    tray_unlink(t);
    if (t->pinned) e->pinned->free(e->session, t->data);
    else tni_free64(h, t->data);
    tni_free(h, t);
}

static bool is_idle(const tni_batch_buffer *t)
{
    return !t->borrowers && !t->queued && !t->copy;
}

// Notes which copies are done. Where as many are under way as there may be, the oldest is waited for.
static void note_copies(const tn_ctx *cx, tni_loader *l, size_t bytes)
{
    const tni_engine *e      = cx->engine;
    uint64_t          oldest = 0;
    int               n      = 0;
    for (const tni_batch_buffer *t = l->buffers; t; t = t->next) {
        if (!t->copy) continue;
        if (!n++ || t->copy < oldest) oldest = t->copy;
    }
    if (!n) return;
    bool     full = n >= COPIES || (n >= 2 && (size_t)n * bytes >= COPIED);
    uint64_t done = e->pinned->done(e->session, full ? oldest : 0);
    for (tni_batch_buffer *t = l->buffers; t; t = t->next)
        if (t->copy <= done) t->copy = 0;
}

// Frees the idle buffers past a number, pinned ones once they are old, and those that are too small to be of use.
static void trim(tni_loader *l, int most, size_t bytes)
{
    for (tni_batch_buffer *t = l->buffers, *next; t; t = next) {
        next     = t->next;
        bool old = l->asked - t->used > KEPT_BATCHES;
        if (is_idle(t) && (t->bytes < bytes || (--most < 0 && (old || !t->pinned)))) tray_free(t);
    }
}

// Memory for a buffer, where there is any: the device's, else any.
static bool take_memory(tni_batch_buffer *t, size_t bytes)
{
    tni_engine *e = t->cx->engine;
    t->data       = e->pinned->alloc ? e->pinned->alloc(e->session, bytes) : NULL;
    t->pinned     = t->data != NULL;
    if (!t->data) t->data = tni_alloc64(&t->cx->heap, bytes);
    t->bytes = bytes;
    return t->data != NULL;
}

// An idle buffer of so many bytes, NULL when memory is out.
static tni_batch_buffer *tray_get(tn_ctx *cx, tni_loader *l, size_t bytes)
{
    note_copies(cx, l, bytes);
    trim(l, IDLE_TRAYS, bytes);
    for (tni_batch_buffer *t = l->buffers; t; t = t->next)
        if (is_idle(t)) return t;
    tni_batch_buffer *t = tni_zalloc(&cx->heap, sizeof *t);
    if (!t) return NULL;
    t->cx = cx;
    if (!take_memory(t, bytes)) {
        tni_free(&cx->heap, t);
        return NULL;
    }
    t->home = l;
    t->next = l->buffers;
    if (t->next) t->next->prev = t;
    l->buffers = t;
    return t;
}

// One of the tensors that look into a buffer is gone. Runs inside a tn_ call of the owner thread.
static void give_back(void *data, void *user)
{
    (void)data;
    tni_batch_buffer *t = user;
    if (--t->borrowers) return;
    if (t->home) trim(t->home, IDLE_TRAYS, 0);
    else tray_free(t);
}

// ---- filling, on any thread ---------------------------------------------------------------------

static int64_t field_bytes(const tni_item_source *s, int f)
{
    const tn_array *a = &s->field[f];
    return tni_shape_count(a->rank, a->size) * (int64_t)tni_dtype_size(a->dtype);
}

static int64_t item_at(const tn_data *d, const tni_order *order, int64_t place)
{
    int64_t i = d->shuffled ? tni_order_item(order, place) : place;
    return d->items ? d->items[i] : i;
}

static void fill(const tn_data *d, tni_job *j)
{
    const tni_item_source *s     = d->source;
    uint64_t               epoch = (uint64_t)j->span.epoch;
    tni_order order = tni_order_by(tni_draw_by(TNI_DRAW_ORDER, j->span.seed, epoch, 0), d->count);
    for (int64_t i = 0; i < j->span.count; i++) {
        if (atomic_load_explicit(&d->loader.cancelled, memory_order_relaxed)) return;
        void *dst[TN_MAX_FIELDS] = { 0 };
        for (int f = 0; f < s->fields; f++) dst[f] = j->field[f] + i * field_bytes(s, f);
        j->item   = item_at(d, &order, j->span.index + i);
        j->failed = s->get(s, j->item, dst);
        if (j->failed) return;
        if (d->scratch)
            tni_augment(&d->augment,
                        tni_draw_by(TNI_DRAW_AUGMENT, j->span.seed, epoch, (uint64_t)j->item),
                        s->field[0].size, dst[0], d->scratch);
    }
}

// ---- the thread --------------------------------------------------------------------------------

static void *work(void *data)
{
    tn_data    *d = data;
    tni_loader *l = &d->loader;
    pthread_mutex_lock(&l->lock);
    for (;;) {
        while (!l->stop && l->filled == l->asked) pthread_cond_wait(&l->wake, &l->lock);
        if (l->stop) break;
        l->busy = true;
        pthread_mutex_unlock(&l->lock);
        fill(d, &l->job[l->filled % TNI_AHEAD]);
        pthread_mutex_lock(&l->lock);
        l->busy = false;
        l->filled++;
        pthread_cond_signal(&l->done);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

void tni_loader_open(tni_loader *l)
{
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->wake, NULL);
    pthread_cond_init(&l->done, NULL);
    l->process = getpid();
}

// Whether the thread is there, started if need be. It blocks all signals: they are the program's.
static bool running(tn_data *d)
{
    tni_loader *l = &d->loader;
    if (l->running) return true;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    l->running = pthread_create(&l->thread, NULL, work, d) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return l->running;
}

// Throws away what was asked for and not taken; the thread is at none of it.
static void empty_ring(tni_loader *l, int64_t asked)
{
    for (int64_t i = l->taken; i < asked; i++) l->job[i % TNI_AHEAD].buffer->queued = false;
    l->taken = l->filled = l->asked;
}

// The child of a fork has the loader's memory but not its thread: it begins anew. Pinned memory stays the
// parent's, whose device may be reading it, and whose driver the child cannot call: buffers there are left.
static void notice_fork(tni_loader *l)
{
    if (l->process == getpid()) return;
    tni_loader_open(l);
    l->running = l->busy = false;
    empty_ring(l, l->asked);
    for (tni_batch_buffer *t = l->buffers, *next; t; t = next) {
        next = t->next;
        if (!t->pinned) continue;
        tray_unlink(t);
        tni_free(&t->cx->heap, t);
    }
}

void tni_loader_cancel(tni_loader *l)
{
    notice_fork(l);
    pthread_mutex_lock(&l->lock);
    int64_t asked = l->asked;
    l->asked      = l->filled + l->busy;
    atomic_store(&l->cancelled, true);
    while (l->busy) pthread_cond_wait(&l->done, &l->lock);
    atomic_store(&l->cancelled, false);
    empty_ring(l, asked);
    pthread_mutex_unlock(&l->lock);
}

void tni_loader_close(tni_loader *l)
{
    tni_loader_cancel(l);
    if (l->running) {
        pthread_mutex_lock(&l->lock);
        l->stop = true;
        pthread_cond_signal(&l->wake);
        pthread_mutex_unlock(&l->lock);
        pthread_join(l->thread, NULL);
    }
    for (tni_batch_buffer *t = l->buffers, *next; t; t = next) {
        next = t->next;
        if (!t->borrowers) tray_free(t);
    }
    for (tni_batch_buffer *t = l->buffers, *next; t; t = next) {
        next    = t->next;
        t->home = NULL;
        t->prev = t->next = NULL;
    }
    pthread_cond_destroy(&l->done);
    pthread_cond_destroy(&l->wake);
    pthread_mutex_destroy(&l->lock);
}

// ---- asking and taking -------------------------------------------------------------------------

// The batch of n that stands at c.
static tni_span span_at(const tn_data *d, tn_cursor c, int64_t n)
{
    tni_span s = { .seed = c.seed, .epoch = c.epoch, .index = c.index, .n = n };
    if (d->drop_last && n > d->count - s.index) {
        s.epoch++;
        s.index = 0;
    }
    int64_t left = d->count - s.index;
    s.count      = n < left ? n : left;
    left -= s.count;
    s.last = d->drop_last ? left < n : left == 0;
    return s;
}

static tn_cursor after(tn_cursor c, const tni_span *s)
{
    c.epoch = s->last ? s->epoch + 1 : s->epoch;
    c.index = s->last ? 0 : s->index + s->count;
    return c;
}

static bool same_span(const tni_span *a, const tni_span *b)
{
    return a->seed == b->seed && a->epoch == b->epoch && a->index == b->index && a->n == b->n;
}

// Whether the bytes of a batch can be counted at all.
static bool countable(const tni_item_source *s, int64_t items)
{
    int64_t most = INT64_MAX / (2 * TN_MAX_FIELDS);  // of a field
    for (int f = 0; f < s->fields; f++)
        if (field_bytes(s, f) > most - 64 || items > most / (field_bytes(s, f) + 64)) return false;
    return true;
}

// Lays the fields of a batch out in a buffer; the bytes of all.
static size_t lay_out(const tni_item_source *s, int64_t items, char *base, char **field)
{
    int64_t at = 0;
    for (int f = 0; f < s->fields; f++) {
        field[f] = base ? base + at : NULL;
        at += (items * field_bytes(s, f) + 63) / 64 * 64;
    }
    return (size_t)at;
}

// Puts a job into the ring. False when memory is out.
static bool ask(tn_data *d, const tni_span *span)
{
    tni_loader *l = &d->loader;
    tni_job     j = { .span = *span };
    // The last batch of an epoch is shorter, and gets a whole buffer: a smaller one would be of no use later.
    int64_t items = span->n > span->count && span->n <= d->count ? span->n : span->count;
    if (!countable(d->source, items)) return false;
    size_t bytes = lay_out(d->source, items, NULL, j.field);
    j.buffer     = tray_get(d->owned.cx, l, bytes);
    if (!j.buffer) return false;
    j.buffer->queued = true;
    j.buffer->used   = l->asked;
    lay_out(d->source, span->count, j.buffer->data, j.field);
    pthread_mutex_lock(&l->lock);
    l->job[l->asked++ % TNI_AHEAD] = j;
    pthread_cond_signal(&l->wake);
    pthread_mutex_unlock(&l->lock);
    return true;
}

// Keeps the ring full with the batches that follow one. When memory is out they are asked for later.
static void ask_ahead(tn_data *d, tni_span span)
{
    tni_loader *l = &d->loader;
    for (int64_t i = l->taken; i < l->taken + TNI_AHEAD; i++) {
        span = span_at(d, after(d->at, &span), span.n);
        if (i >= l->asked && !ask(d, &span)) return;
    }
}

// The oldest job, waited for; without a thread it is done here.
static tni_job take(tn_data *d, bool threaded)
{
    tni_loader *l = &d->loader;
    pthread_mutex_lock(&l->lock);
    if (!threaded) fill(d, &l->job[l->filled++ % TNI_AHEAD]);
    while (l->filled == l->taken) pthread_cond_wait(&l->done, &l->lock);
    tni_job j = l->job[l->taken++ % TNI_AHEAD];
    pthread_mutex_unlock(&l->lock);
    j.buffer->queued = false;
    return j;
}

// Tensors that look into the job's buffer, which comes back when the last of them is gone. The fields
// all go through tn_borrow, also after a failure, so that it gives back each. From a pinned buffer they are
// copied instead, and it comes back when that is done.
static bool lend(tn_data *d, const tni_job *j, tn_tensor **t)
{
    const tni_item_source *s      = d->source;
    tni_batch_buffer      *buffer = j->buffer;
    bool                   ok     = true;
    buffer->borrowers             = buffer->pinned ? 0 : s->fields;
    for (int f = 0; f < s->fields; f++) {
        int64_t size[TN_MAX_RANK] = { j->span.count };
        for (int i = 0; i < s->field[f].rank; i++) size[i + 1] = s->field[f].size[i];
        tn_dtype dt   = s->field[f].dtype;
        int      rank = s->field[f].rank + 1;
        t[f]          = buffer->pinned
                            ? tni_from_pinned(d->owned.cx, "next", dt, rank, size, j->field[f],
                                              &buffer->copy)
                            : tn_borrow(d->owned.cx, dt, rank, size, j->field[f], give_back, buffer);
        ok            = ok && t[f];
    }
    for (int f = 0; !ok && f < s->fields; f++)
        if (t[f]) tni_tensor_free(t[f]);
    return ok;
}

static bool can_have(tn_data *d, int64_t n)
{
    tn_ctx *cx = d->owned.cx;
    if (n <= 0) tni_fail(cx, TN_EARG, "next: a batch of %lld items", (long long)n);
    else if (d->drop_last && n > d->count)
        tni_fail(cx, TN_EARG,
                 "next: no batch of %lld in %lld items, and short ones are dropped (drop_last)",
                 (long long)n, (long long)d->count);
    else return true;
    return false;
}

// A batch that failed is passed over: the next call goes on behind it. After any other failure the
// next call is for the same batch.
tn_batch tn_next(tn_data *d, int64_t n)
{
    tn_batch none = { 0 };
    tn_ctx  *cx   = tni_owned_ok("next", d, TNI_DATA);
    if (!cx || !can_have(d, n)) return none;
    tni_loader *l    = &d->loader;
    tni_span    span = span_at(d, d->at, n);
    notice_fork(l);
    if (l->taken == l->asked || !same_span(&l->job[l->taken % TNI_AHEAD].span, &span)) {
        tni_loader_cancel(l);
        if (!ask(d, &span)) return tni_fail_memory(cx, "next"), none;
    }
    bool threaded = running(d);
    if (!threaded && d->source->threaded)
        return tni_fail(cx, TN_ETHREAD, "next: no thread to run the dataset's function on"), none;
    tni_job    j                = take(d, threaded);
    tn_tensor *t[TN_MAX_FIELDS] = { 0 };
    if (!j.failed && !lend(d, &j, t)) return none;
    d->at = after(d->at, &span);
    if (threaded) ask_ahead(d, span);
    if (j.failed)
        return tni_fail(cx, TN_EUSER, "next: item %lld: the dataset's function returned %d",
                        (long long)j.item, j.failed),
               none;
    tn_batch b = { .x     = t[0],
                   .y     = t[1],
                   .count = span.count,
                   .epoch = span.epoch,
                   .index = span.index,
                   .last  = span.last };
    memcpy(b.more, t + 2, sizeof b.more);
    return b;
}
