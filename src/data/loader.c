// The loader: buffers, jobs, the thread, and tn_next.
//
// A batch goes through four hands: tn_next asks for it (ask_batch: a buffer and a job in the ring),
// the thread fills it, a later tn_next takes it and makes tensors on its buffer (or copies from it,
// if it is pinned), and the buffer is idle again when these tensors are gone or the copy is done.
// Two batches are always prepared ahead, so that filling overlaps with training.
#include "data/loader.h"
#include "data/dataset.h"
#include "data/order.h"
#include "data/pixels.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

// ---- buffers -----------------------------------------------------------------------------------

// Limits on copies under way to a device. The host waits for the oldest copy if COPIES batches, or
// at least two that are COPIED bytes together, have not arrived: it is that many steps ahead then,
// and more would only take memory. IDLE_BUFFERS are kept for later batches. Pinned ones are kept as
// long as one of the last KEPT_BATCHES used them, because allocating and freeing pinned memory
// stalls the device.
enum { COPIES = 32, COPIED = 16 << 20, IDLE_BUFFERS = TNI_AHEAD + 1, KEPT_BATCHES = 256 };

static void unlink_buffer(tni_batch_buffer *t)
{
    if (t->next) t->next->prev = t->prev;
    if (t->prev) t->prev->next = t->next;
    else if (t->home) t->home->buffers = t->next;
}

// Frees a buffer, which may have outlived its loader.
static void free_buffer(tni_batch_buffer *t)
{
    tni_heap   *h = &t->cx->heap;
    tni_engine *e = t->cx->engine;
    unlink_buffer(t);
    if (t->pinned) e->pinned->free(e->session, t->data);
    else tni_free64(h, t->data);
    tni_free(h, t);
}

static bool is_idle(const tni_batch_buffer *t)
{
    return !t->borrowers && !t->queued && !t->copy;
}

// Marks buffers whose copies are done. If as many copies as allowed are under way, waits for the
// oldest.
static void update_copies(const tn_ctx *cx, tni_loader *l, size_t bytes)
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

// Frees idle buffers beyond `most`, pinned ones only when they are old, and any that are too small
// to be used again.
static void trim_buffers(tni_loader *l, int most, size_t bytes)
{
    for (tni_batch_buffer *t = l->buffers, *next; t; t = next) {
        next     = t->next;
        bool old = l->asked - t->used > KEPT_BATCHES;
        if (is_idle(t) && (t->bytes < bytes || (--most < 0 && (old || !t->pinned)))) free_buffer(t);
    }
}

// Allocates a buffer's memory: pinned, if the device has such memory, else on the heap.
static bool take_memory(tni_batch_buffer *t, size_t bytes)
{
    tni_engine *e = t->cx->engine;
    t->data       = e->pinned->alloc ? e->pinned->alloc(e->session, bytes) : NULL;
    t->pinned     = t->data != NULL;
    if (!t->data) t->data = tni_alloc64(&t->cx->heap, bytes);
    t->bytes = bytes;
    return t->data != NULL;
}

// Returns an idle buffer of at least this many bytes, or a new one; NULL if memory is out.
static tni_batch_buffer *get_buffer(tn_ctx *cx, tni_loader *l, size_t bytes)
{
    update_copies(cx, l, bytes);
    trim_buffers(l, IDLE_BUFFERS, bytes);
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

// Called when one of the tensors on a buffer is gone, inside a tn_ call of the owner thread.
static void return_buffer(void *data, void *user)
{
    (void)data;
    tni_batch_buffer *t = user;
    if (--t->borrowers) return;
    if (t->home) trim_buffers(t->home, IDLE_BUFFERS, 0);
    else free_buffer(t);
}

// ---- filling, on any thread --------------------------------------------------------------------

// Returns the bytes of one item's field.
static int64_t field_bytes(const tn_data *d, int f)
{
    const tn_array *a = &d->field[f];
    return tni_shape_count(a->rank, a->size) * (int64_t)tni_dtype_size(a->dtype);
}

// Returns the source's number for the item at a place of the epoch.
static int64_t item_at(const tn_data *d, const tni_order *order, int64_t place)
{
    int64_t i = d->shuffled ? tni_order_item(order, place) : place;
    return d->items ? d->items[i] : i;
}

// Whether images are moved, or mirrored by other than their source.
static bool moves(const tn_data *d)
{
    const tn_augment_opts *o = &d->augment;
    return o->shift || o->crop || (o->flip && !d->source->get_drawn);
}

// Fills one item; where the source leaves out what fails, the next place of the epoch that does not
// fail. Everything random is keyed by seed, epoch and item, so that the thread that runs it does
// not matter. Returns what the last item's source returned.
static int fill_item(const tn_data *d, const tni_job *j, const tni_order *order, int64_t place,
                     void *const *dst, float *scratch, int64_t *item)
{
    const tni_item_source *s      = d->source;
    int                    failed = 0;
    for (int64_t i = 0, n = s->skips ? d->count : 1; i < n && (i == 0 || failed); i++) {
        if (atomic_load_explicit(&d->loader.cancelled, memory_order_relaxed)) return failed;
        *item      = item_at(d, order, (place + i) % d->count);
        tni_draw r = tni_draw_by(TNI_DRAW_AUGMENT, j->span.seed, (uint64_t)j->span.epoch,
                                 (uint64_t)*item);
        failed     = s->get_drawn ? s->get_drawn(s, *item, &d->augment, &r, dst)
                                  : s->get(s, *item, dst);
        if (!failed && scratch && moves(d))
            tni_augment(&d->augment, r, !s->get_drawn, s->field[0].size, dst[0], scratch);
        if (!failed && tni_jitters(&d->augment))
            tni_jitter(&d->augment,
                       tni_draw_by(TNI_DRAW_JITTER, j->span.seed, (uint64_t)j->span.epoch,
                                   (uint64_t)*item),
                       s->field[0].size, dst[0]);
    }
    return failed;
}

// Fills items of a batch that no other thread has begun, until there are none. worker is this
// thread's number.
static void fill_items(tn_data *d, tni_job *j, int worker)
{
    const tni_item_source *s     = d->source;
    tni_loader            *l     = &d->loader;
    tni_order              order = tni_order_by(
                     tni_draw_by(TNI_DRAW_ORDER, j->span.seed, (uint64_t)j->span.epoch, 0), d->count);
    float *scratch = d->scratch ? d->scratch + worker * tni_shape_count(3, s->field[0].size) : NULL;
    for (int64_t i; (i = atomic_fetch_add(&l->next, 1)) < j->span.mine;) {
        // The owner waits for the thread when settings change; it need not wait for a whole batch.
        if (atomic_load_explicit(&l->cancelled, memory_order_relaxed)) return;
        void   *dst[TN_MAX_FIELDS] = { 0 };
        int64_t item               = 0;
        int64_t label              = 0;
        bool    mixes              = d->augment.mixup > 0;
        for (int f = 0; f < s->fields; f++) dst[f] = j->field[f] + i * field_bytes(d, f);
        float *weights = dst[1];
        if (mixes) dst[1] = &label;
        int failed = fill_item(d, j, &order, j->span.index + j->span.from + i, dst, scratch, &item);
        for (int64_t k = 0; mixes && k < s->classes; k++) weights[k] = k == label;
        if (!failed) continue;
        atomic_store(&l->next, j->span.mine);
        pthread_mutex_lock(&l->lock);
        if (!j->failed || item < j->item) j->item = item;
        j->failed = failed;
        pthread_mutex_unlock(&l->lock);
        return;
    }
}

// ---- the thread --------------------------------------------------------------------------------

// A helper: fills items while there are any.
static void *run_helper(void *data)
{
    tn_data    *d = data;
    tni_loader *l = &d->loader;
    pthread_mutex_lock(&l->lock);
    int worker = ++l->joined;
    for (;;) {
        while (!l->stop && !l->open) pthread_cond_wait(&l->work, &l->lock);
        if (l->stop) break;
        l->inside++;
        tni_job *j = &l->job[l->filled % TNI_AHEAD];
        pthread_mutex_unlock(&l->lock);
        fill_items(d, j, worker);
        pthread_mutex_lock(&l->lock);
        l->open = false;
        if (--l->inside == 0) pthread_cond_signal(&l->idle);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

// Mixes the images of a batch, and their classes, by a weight for all of them.
static void mix_batch(const tn_data *d, const tni_job *j)
{
    const tni_item_source *s     = d->source;
    int64_t                image = tni_shape_count(3, s->field[0].size), n = j->span.mine;
    float                 *scratch = d->scratch + (s->threads > 1 ? s->threads : 1) * image;
    float own = tni_draw_beta(tni_draw_by(TNI_DRAW_MIX, j->span.seed, (uint64_t)j->span.epoch,
                                          (uint64_t)j->span.index),
                              d->augment.mixup);
    void *x = j->field[0], *y = j->field[1];
    tni_mix_rows(x, n, image, own, scratch);
    tni_mix_rows(y, n, s->classes, own, scratch);
}

// Fills the oldest batch, with the helpers. The lock is held before and after.
static void fill_batch(tn_data *d)
{
    tni_loader *l = &d->loader;
    tni_job    *j = &l->job[l->filled % TNI_AHEAD];
    atomic_store(&l->next, 0);
    l->open = true;
    if (l->helpers) pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    fill_items(d, j, 0);
    pthread_mutex_lock(&l->lock);
    l->open = false;
    while (l->inside > 0) pthread_cond_wait(&l->idle, &l->lock);
    if (!(d->augment.mixup > 0) || j->failed || l->cancelled) return;
    pthread_mutex_unlock(&l->lock);
    mix_batch(d, j);
    pthread_mutex_lock(&l->lock);
}

// The thread: waits for jobs and fills them in order. The lock is released while a batch is filled.
static void *run_loader(void *data)
{
    tn_data    *d = data;
    tni_loader *l = &d->loader;
    pthread_mutex_lock(&l->lock);
    for (;;) {
        while (!l->stop && l->filled == l->asked) pthread_cond_wait(&l->wake, &l->lock);
        if (l->stop) break;
        l->busy = true;
        fill_batch(d);
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
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->idle, NULL);
    l->process = getpid();
}

// Starts the helpers of a source that several threads may read, as many as can be had.
static void start_helpers(tn_data *d)
{
    tni_loader *l = &d->loader;
    int         n = d->source->threads - 1;
    if (n > 0 && !l->helper)
        l->helper = tni_alloc(&d->owned.cx->heap, (size_t)n * sizeof *l->helper);
    while (l->helper && l->helpers < n &&
           pthread_create(&l->helper[l->helpers], NULL, run_helper, d) == 0)
        l->helpers++;
}

// Returns whether the thread is running, after starting it if need be. The threads block all
// signals: they are the program's.
static bool start_thread(tn_data *d)
{
    tni_loader *l = &d->loader;
    if (l->running) return true;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    start_helpers(d);  // first: later the thread reads their number
    l->running = pthread_create(&l->thread, NULL, run_loader, d) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return l->running;
}

// Discards the jobs that were asked for and not taken; the thread must not be working on any.
static void empty_ring(tni_loader *l, int64_t asked)
{
    for (int64_t i = l->taken; i < asked; i++) l->job[i % TNI_AHEAD].buffer->queued = false;
    l->taken = l->filled = l->asked;
}

// The child of a fork has the loader's memory but not its thread, so it starts anew. Pinned memory
// still belongs to the parent, whose device may be reading it and whose driver the child cannot
// call: the child forgets such buffers.
static void notice_fork(tni_loader *l)
{
    if (l->process == getpid()) return;
    tni_loader_open(l);
    l->running = l->busy = l->open = false;
    l->helpers = l->joined = l->inside = 0;
    empty_ring(l, l->asked);
    for (tni_batch_buffer *t = l->buffers, *next; t; t = next) {
        next = t->next;
        if (!t->pinned) continue;
        unlink_buffer(t);
        tni_free(&t->cx->heap, t);
    }
}

// Lowers `asked` first, so that the thread does not begin another job, then waits for the one in
// progress.
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

// Buffers that tensors still use are cut loose, and freed with the last of these tensors.
void tni_loader_close(tni_heap *h, tni_loader *l)
{
    tni_loader_cancel(l);
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_signal(&l->wake);
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    if (l->running) pthread_join(l->thread, NULL);
    while (l->helpers > 0) pthread_join(l->helper[--l->helpers], NULL);
    tni_free(h, l->helper);
    for (tni_batch_buffer *t = l->buffers, *next; t; t = next) {
        next = t->next;
        if (!t->borrowers) free_buffer(t);
    }
    for (tni_batch_buffer *t = l->buffers, *next; t; t = next) {
        next    = t->next;
        t->home = NULL;
        t->prev = t->next = NULL;
    }
    pthread_cond_destroy(&l->idle);
    pthread_cond_destroy(&l->work);
    pthread_cond_destroy(&l->done);
    pthread_cond_destroy(&l->wake);
    pthread_mutex_destroy(&l->lock);
}

// ---- asking and taking -------------------------------------------------------------------------

// Returns the batch of n at cursor c, and this rank's part of it. A rest that is too short is
// skipped and the next epoch begins: too short for a batch with drop_last, else for an item of each
// rank.
static tni_span span_at(const tn_data *d, tn_cursor c, int64_t n)
{
    tni_span s     = { .seed = c.seed, .epoch = c.epoch, .index = c.index, .n = n };
    int64_t  least = d->drop_last ? n : d->ranks;
    if (least > d->count - s.index) {
        s.epoch++;
        s.index = 0;
    }
    int64_t left = d->count - s.index;
    s.count      = n < left ? n : left;
    s.last       = left - s.count < least;
    // The first ranks get one item more where it cannot be divided equally.
    int64_t each = s.count / d->ranks, more = s.count % d->ranks, rank = d->rank;
    s.mine = each + (rank < more);
    s.from = rank * each + (rank < more ? rank : more);
    return s;
}

// Returns the cursor behind a batch.
static tn_cursor cursor_after(tn_cursor c, const tni_span *s)
{
    c.epoch = s->last ? s->epoch + 1 : s->epoch;
    c.index = s->last ? 0 : s->index + s->count;
    return c;
}

static bool same_span(const tni_span *a, const tni_span *b)
{
    return a->seed == b->seed && a->epoch == b->epoch && a->index == b->index && a->n == b->n;
}

// Returns whether the bytes of a batch can be counted without overflow.
static bool countable(const tn_data *d, int64_t items)
{
    int64_t most = INT64_MAX / (2 * TN_MAX_FIELDS);  // of a field
    for (int f = 0; f < d->source->fields; f++)
        if (field_bytes(d, f) > most - 64 || items > most / (field_bytes(d, f) + 64)) return false;
    return true;
}

// Places the fields of a batch in a buffer, each at a multiple of 64, and returns the bytes of all.
static size_t place_fields(const tn_data *d, int64_t items, char *base, char **field)
{
    int64_t at = 0;
    for (int f = 0; f < d->source->fields; f++) {
        field[f] = base ? base + at : NULL;
        at += (items * field_bytes(d, f) + 63) / 64 * 64;
    }
    return (size_t)at;
}

// Puts a job into the ring. False if memory is out.
static bool ask_batch(tn_data *d, const tni_span *span)
{
    tni_loader *l = &d->loader;
    tni_job     j = { .span = *span };
    // The last batch of an epoch is shorter, but gets a buffer of full size, which can be used
    // again.
    bool    whole = span->n <= d->count;
    int64_t items = whole ? (span->n + d->ranks - 1) / d->ranks : span->mine;
    if (!countable(d, items)) return false;
    size_t bytes = place_fields(d, items, NULL, j.field);
    j.buffer     = get_buffer(d->owned.cx, l, bytes);
    if (!j.buffer) return false;
    j.buffer->queued = true;
    j.buffer->used   = l->asked;
    place_fields(d, span->mine, j.buffer->data, j.field);
    pthread_mutex_lock(&l->lock);
    l->job[l->asked++ % TNI_AHEAD] = j;
    pthread_cond_signal(&l->wake);
    pthread_mutex_unlock(&l->lock);
    return true;
}

// Keeps the ring full with the batches after this one. If memory is out they are asked for later.
static void ask_ahead(tn_data *d, tni_span span)
{
    tni_loader *l = &d->loader;
    for (int64_t i = l->taken; i < l->taken + TNI_AHEAD; i++) {
        span = span_at(d, cursor_after(d->at, &span), span.n);
        if (i >= l->asked && !ask_batch(d, &span)) return;
    }
}

// Returns the oldest job, waiting for it; without a thread it is filled here.
static tni_job take_batch(tn_data *d, bool threaded)
{
    tni_loader *l = &d->loader;
    pthread_mutex_lock(&l->lock);
    if (!threaded) fill_batch(d), l->filled++;
    while (l->filled == l->taken) pthread_cond_wait(&l->done, &l->lock);
    tni_job j = l->job[l->taken++ % TNI_AHEAD];
    pthread_mutex_unlock(&l->lock);
    j.buffer->queued = false;
    return j;
}

// Makes the tensors of a batch. They view the job's buffer, which is returned when the last of them
// is gone; all fields go through tn_borrow, even after a failure, so that each is released once.
// From a pinned buffer they are copied, and it is idle again when the copy is done.
static bool make_tensors(tn_data *d, const tni_job *j, tn_tensor **t)
{
    const tni_item_source *s      = d->source;
    tni_batch_buffer      *buffer = j->buffer;
    bool                   ok     = true;
    buffer->borrowers             = buffer->pinned ? 0 : s->fields;
    for (int f = 0; f < s->fields; f++) {
        int64_t size[TN_MAX_RANK] = { j->span.mine };
        for (int i = 0; i < d->field[f].rank; i++) size[i + 1] = d->field[f].size[i];
        tn_dtype dt   = d->field[f].dtype;
        int      rank = d->field[f].rank + 1;
        t[f]          = buffer->pinned
                            ? tni_from_pinned(d->owned.cx, "next", dt, rank, size, j->field[f],
                                              &buffer->copy)
                            : tn_borrow(d->owned.cx, dt, rank, size, j->field[f], return_buffer, buffer);
        ok            = ok && t[f];
    }
    for (int f = 0; !ok && f < s->fields; f++)
        if (t[f]) tni_tensor_free(t[f]);
    return ok;
}

// Refuses a batch size that no call could ever satisfy.
static bool batch_ok(tn_data *d, int64_t n)
{
    tn_ctx *cx = d->owned.cx;
    if (n <= 0) tni_fail(cx, TN_EARG, "next: a batch of %lld items", (long long)n);
    else if (n < d->ranks || d->count < d->ranks)
        tni_fail(cx, TN_EARG, "next: a batch of %lld of %lld items for %lld ranks", (long long)n,
                 (long long)d->count, (long long)d->ranks);
    else if (d->drop_last && n > d->count)
        tni_fail(cx, TN_EARG,
                 "next: no batch of %lld in %lld items, and short ones are dropped (drop_last)",
                 (long long)n, (long long)d->count);
    else return true;
    return false;
}

// Reports an item that could not be filled.
static void fail_item(const tn_data *d, const tni_job *j)
{
    const tni_item_source *s = d->source;
    if (s->why)
        tni_fail(d->owned.cx, TN_EFORMAT, "next: %s%s", s->why(s, j->item),
                 s->skips ? "; nor can any other item be read" : "");
    else
        tni_fail(d->owned.cx, TN_EUSER, "next: item %lld: the dataset's function returned %d",
                 (long long)j->item, j->failed);
}

// The usual case finds the wanted batch at the head of the ring, filled. Otherwise, after a seek or
// with another batch size, the ring is emptied first. A batch whose item failed is skipped: the
// next call returns the one behind it. After any other failure the next call is for the same batch.
tn_batch tn_next(tn_data *d, int64_t n)
{
    tn_batch none = { 0 };
    tn_ctx  *cx   = tni_owned_ok("next", d, TNI_DATA);
    if (!cx || !batch_ok(d, n)) return none;
    tni_loader *l    = &d->loader;
    tni_span    span = span_at(d, d->at, n);
    notice_fork(l);
    if (d->source->enter) d->source->enter(d->source);
    if (l->taken == l->asked || !same_span(&l->job[l->taken % TNI_AHEAD].span, &span)) {
        tni_loader_cancel(l);
        if (!ask_batch(d, &span)) return tni_fail_memory(cx, "next"), none;
    }
    bool threaded = start_thread(d);
    if (!threaded && d->source->threaded)
        return tni_fail(cx, TN_ETHREAD, "next: no thread to run the dataset's function on"), none;
    tni_job    j                = take_batch(d, threaded);
    tn_tensor *t[TN_MAX_FIELDS] = { 0 };
    if (!j.failed && !make_tensors(d, &j, t)) return none;
    d->at           = cursor_after(d->at, &span);
    bool parts      = d->ranks > 1;
    cx->items.first = parts ? span.from : 0;
    cx->items.count = parts ? span.mine : 0;
    cx->items.total = parts ? span.count : 0;
    if (threaded) ask_ahead(d, span);
    if (j.failed) return fail_item(d, &j), none;
    tn_batch b = { .x      = t[0],
                   .y      = t[1],
                   .count  = span.mine,
                   .epoch  = span.epoch,
                   .index  = span.index + span.from,
                   .last   = span.last,
                   .weight = (double)(span.mine * d->ranks) / (double)span.count };
    memcpy(b.more, t + 2, sizeof b.more);
    return b;
}
