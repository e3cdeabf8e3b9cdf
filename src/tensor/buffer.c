// The caching allocator of device memory: bins of free blocks by size, best fit among them, a bound
// on what is kept, and the context's limit.
//
// A request takes, in this order: a free block that fits, fresh memory of the device, and fresh
// memory once more after everything free was returned. A block whose last reference goes becomes
// free and stays with the cache, since alloc and free of a device are slow and may wait for all
// work on it.
//
// Thread safety: none is needed. A cache belongs to a context, which one thread uses at a time.
#include "tensor/buffer.h"

// Sizes up to SMALL are few enough for a bin each, so that a free block fits exactly. Beyond, a
// size class grows by at most STEP: a quarter of a GiB-sized block would be too much to waste, and
// 2 MiB is the granularity in which GPUs map memory anyway.
enum { SMALL = 1 << 20, STEP = 2 << 20 };  // sizes up to here are exact; larger ones grow by this

void tni_buffers_open(tni_buffers *b, tni_heap *heap, tni_memory memory, int64_t limit)
{
    *b = (tni_buffers){ .heap = heap, .memory = memory, .limit = limit };
}

// Accepts "512", "64K", "2g". Refuses what overflows, so that a limit of 2^63 is not read as a
// small one.
bool tni_parse_bytes(const char *text, int64_t *bytes)
{
    static const char units[] = "KMG";
    int64_t           n       = 0;
    const char       *s       = text;
    for (; *s >= '0' && *s <= '9'; s++) {
        if (n > (INT64_MAX - 9) / 10) return false;
        n = 10 * n + (*s - '0');
    }
    if (s == text || n == 0) return false;
    for (int i = 0; *s && units[i]; i++) {
        if (n > INT64_MAX >> 10) return false;
        n <<= 10;
        if (*s == units[i] || *s == units[i] + ('a' - 'A')) {
            *bytes = n;
            return !s[1];
        }
    }
    *bytes = n;
    return !*s;
}

// ---- sizes -------------------------------------------------------------------------------------

// The position of the highest bit; n is not 0.
static int floor_log2(size_t n)
{
    return 63 - __builtin_clzll(n);
}

// Rounds up to a quarter of an octave (small) or an eighth (large), so that a request of almost the
// same size finds the block again. At most a fifth of a small block is wasted, and a ninth of a
// large one.
size_t tni_buffer_size(size_t bytes)
{
    size_t n = bytes < 64 ? 64 : bytes;
    size_t q = (size_t)1 << (floor_log2(n) - (n <= SMALL ? 2 : 3));
    if (q > STEP) q = STEP;
    return (n + q - 1) / q * q;
}

// The bin of a block of n bytes, where n is a result of tni_buffer_size: the octave and the two or
// three bits below the leading one. Large bins hold several sizes, small bins one.
static int bin_of(size_t n)
{
    int e = floor_log2(n);
    if (n <= SMALL) return (e - 6) * 4 + (int)(n >> (e - 2) & 3);
    return TNI_SMALL_BINS + (e - 20) * 8 + (int)(n >> (e - 3) & 7);
}

// ---- blocks ------------------------------------------------------------------------------------

// The lists are doubly linked, so that a buffer leaves its list in constant time. A buffer is in
// one of them: `used` or that of its bin.
static void push_on_list(tni_buffer **list, tni_buffer *buf)
{
    buf->prev = NULL;
    buf->next = *list;
    if (buf->next) buf->next->prev = buf;
    *list = buf;
}

static void remove_from_list(tni_buffer **list, tni_buffer *buf)
{
    if (buf->next) buf->next->prev = buf->prev;
    if (buf->prev) buf->prev->next = buf->next;
    else *list = buf->next;
}

// Grows the arena to at least `bytes`, or gives its memory back (0 bytes). The device may take more
// than was asked for, so that small steps of growth do not follow each other, but at most what the
// limit leaves. The contents are lost: only an arena without references is resized. False if it
// cannot grow.
static bool resize_arena(tni_buffers *b, size_t bytes)
{
    tni_buffer *a    = &b->arena;
    int64_t     rest = b->held - (int64_t)a->capacity;
    size_t      most = b->limit > 0 ? (size_t)(b->limit - b->host_bytes - rest) : SIZE_MAX;
    char       *data = b->memory.arena(b->memory.state, bytes, most, &a->capacity);
    b->held          = rest + (int64_t)a->capacity;
    if (data) a->data = data;
    return data;
}

// ---- free blocks -------------------------------------------------------------------------------

// MIN_KEPT: below this many bytes nothing is worth returning; 64 MiB are a small part of any GPU's
// memory, and less than a step of most models allocates. WINDOW: the number of evaluations over
// which the high-water mark is measured. It is long enough that something a training loop does now
// and then, such as a validation run, happens in most windows, so its blocks are not returned and
// allocated again each time.
enum { MIN_KEPT = 64 << 20, WINDOW = 256 };

// A free block is in two lists: its bin, newest first, since the memory freed last is most likely
// in a cache; and the list of all free blocks by age, of which the oldest are returned first.
static void add_free(tni_buffers *b, tni_buffer *buf)
{
    push_on_list(&b->bin[bin_of(buf->capacity)], buf);
    buf->newer = NULL;
    buf->older = b->newest;
    if (b->newest) b->newest->newer = buf;
    else b->oldest = buf;
    b->newest = buf;
}

static void remove_free(tni_buffers *b, tni_buffer *buf)
{
    remove_from_list(&b->bin[bin_of(buf->capacity)], buf);
    if (buf->newer) buf->newer->older = buf->older;
    else b->newest = buf->older;
    if (buf->older) buf->older->newer = buf->newer;
    else b->oldest = buf->newer;
}

// Gives the block that was free for longest back to the device.
static void return_oldest(tni_buffers *b)
{
    tni_buffer *buf = b->oldest;
    remove_free(b, buf);
    b->held -= (int64_t)buf->capacity;
    b->returned += (int64_t)buf->capacity;
    b->memory.free(b->memory.state, buf->data);
    tni_free(b->heap, buf);
}

// The arena's address range stays reserved; only the memory behind it goes. In use it cannot go.
static void return_arena(tni_buffers *b)
{
    if (!b->arena.capacity || b->arena.refs) return;
    b->returned += (int64_t)b->arena.capacity;
    resize_arena(b, 0);
}

bool tni_buffers_trim(tni_buffers *b)
{
    int64_t held = b->held;
    return_arena(b);
    while (b->oldest) return_oldest(b);
    return b->held < held;
}

// The larger of this window and the one before: right after a window ends, its own mark says little
// yet.
static int64_t high_water_mark(tni_high_water h, int64_t now)
{
    int64_t most = h.now > h.before ? h.now : h.before;
    return now > most ? now : most;
}

// Returns blocks if `more` further bytes would exceed the bound: twice the high-water mark, and
// MIN_KEPT. Twice, because sizes that change from step to step cannot all reuse each other's
// blocks. It goes an eighth below the bound at once, since a device may have to wait for all its
// work before it frees a block.
static void trim_to_bound(tni_buffers *b, size_t more)
{
    int64_t most = 2 * high_water_mark(b->high, b->bytes + (int64_t)more) + MIN_KEPT;
    if (b->held + (int64_t)more <= most) return;
    while (b->oldest && b->held + (int64_t)more > most - most / 8) return_oldest(b);
}

// Once a window of evaluations, starts new high-water marks and returns what the last two did not
// need.
void tni_buffers_end_evaluation(tni_buffers *b)
{
    if (++b->turns < WINDOW) return;
    b->turns      = 0;
    b->high       = (tni_high_water){ b->bytes, b->high.now };
    b->high_arena = (tni_high_water){ 0, b->high_arena.now };
    if ((int64_t)b->arena.capacity > 2 * b->high_arena.before + MIN_KEPT) return_arena(b);
    trim_to_bound(b, 0);
}

void tni_buffers_close(tni_buffers *b)
{
    tni_buffers_trim(b);
}

// Whether `more` bytes beyond `have` and the host's share exceed the limit; a limit of 0 is none.
static bool exceeds_limit(const tni_buffers *b, int64_t have, size_t more)
{
    return b->limit > 0 && have + b->host_bytes + (int64_t)more > b->limit;
}

// Free device blocks are returned to make space, although they are other memory: the limit is one
// number for both, and unused memory should not keep a file from being read.
bool tni_buffers_reserve_host(tni_buffers *b, size_t bytes)
{
    if (bytes > tni_buffers_left(b)) return false;
    if (exceeds_limit(b, b->held, bytes)) tni_buffers_trim(b);
    if (exceeds_limit(b, b->held, bytes)) return false;  // a device that keeps its arena
    b->host_bytes += (int64_t)bytes;
    return true;
}

void tni_buffers_release_host(tni_buffers *b, size_t bytes)
{
    b->host_bytes -= (int64_t)bytes;
}

size_t tni_buffers_left(const tni_buffers *b)
{
    int64_t used = b->bytes + b->host_bytes;
    if (b->limit <= 0) return SIZE_MAX;
    return used < b->limit ? (size_t)(b->limit - used) : 0;
}

// Fresh memory of the device. The limit is checked against everything held, free blocks included,
// so that the sum can never exceed it; the caller trims and tries again.
static tni_buffer *alloc_block(tni_buffers *b, size_t capacity)
{
    trim_to_bound(b, capacity);
    if (exceeds_limit(b, b->held, capacity)) return NULL;
    tni_buffer *buf = tni_zalloc(b->heap, sizeof *buf);
    if (!buf) return NULL;
    buf->capacity = capacity;
    buf->data     = b->memory.alloc(b->memory.state, capacity);
    if (buf->data) {
        b->held += (int64_t)capacity;
        return buf;
    }
    tni_free(b->heap, buf);
    return NULL;
}

// Fresh memory, if need be after everything free was returned: fragmentation may hide enough of it.
static tni_buffer *alloc_after_trim(tni_buffers *b, size_t capacity)
{
    tni_buffer *buf = alloc_block(b, capacity);
    return buf || !tni_buffers_trim(b) ? buf : alloc_block(b, capacity);
}

// ---- the best fit ------------------------------------------------------------------------------

// How many blocks of a small bin are looked at. All have one size, so the first fits, unless the
// oldest is asked for; thousands of small blocks may be free, and a search must not grow with them.
enum { MAX_PROBES = 16 };

// The smallest free block of at least n bytes that wastes at most an eighth (small ones: nothing),
// among equals the one freed last, or with `oldest` the one freed first. *alone: no other of its
// size was seen. An eighth, because a block that is much too large is missed by the request that it
// would fit.
static tni_buffer *find_fit(const tni_buffers *b, size_t n, bool oldest, bool *alone)
{
    size_t      most = n <= SMALL ? n : n + n / 8;
    tni_buffer *best = NULL;
    int         last = bin_of(most), looks = 0;
    for (int i = bin_of(n); i <= last && i < TNI_BINS && !best; i++)
        for (tni_buffer *f = b->bin[i]; f && (n > SMALL || looks++ < MAX_PROBES); f = f->next) {
            bool same = best && f->capacity == best->capacity;
            if (f->capacity < n || f->capacity > most || (best && f->capacity > best->capacity))
                continue;
            *alone = !same;
            if (!same || oldest) best = f;
            if (!oldest && best->capacity == n) return best;
        }
    return best;
}

// The smallest free block of at least n bytes, whatever it wastes. Bins grow, so the first bin with
// a block that is large enough has the best one.
static tni_buffer *find_any_larger(const tni_buffers *b, size_t n)
{
    tni_buffer *best = NULL;
    for (int i = bin_of(n); i < TNI_BINS && !best; i++)
        for (tni_buffer *f = b->bin[i]; f; f = f->next)
            if (f->capacity >= n && (!best || f->capacity < best->capacity)) best = f;
    return best;
}

// The first reference. Counts the rounded size, not the capacity: what a block wastes is the
// cache's matter.
static tni_buffer *hand_out_buffer(tni_buffers *b, tni_buffer *buf, size_t bytes)
{
    buf->refs      = 1;
    buf->rewritten = false;
    buf->bytes     = bytes;
    buf->site      = (tni_site){ 0 };
    b->taken++;
    push_on_list(&b->used, buf);
    b->bytes += (int64_t)bytes;
    if (b->bytes > b->peak) b->peak = b->bytes;
    if (b->bytes > b->high.now) b->high.now = b->bytes;
    return buf;
}

// The rounded size of a request; 0 if it exceeds the limit or what the bins can hold.
static size_t rounded_size(const tni_buffers *b, size_t bytes)
{
    size_t n = bytes > SIZE_MAX / 4 ? 0 : tni_buffer_size(bytes);
    return n && bin_of(n) < TNI_BINS && !exceeds_limit(b, b->bytes, n) ? n : 0;
}

// temporary: for one evaluation only. Such a request may take a far larger block, as long as it is
// large itself: the block is free again before another request misses it, and plans of many sizes
// share it.
static tni_buffer *new_buffer(tni_buffers *b, size_t bytes, bool temporary)
{
    bool   alone;
    size_t n = rounded_size(b, bytes);
    if (!n) return NULL;
    tni_buffer *buf = find_fit(b, n, false, &alone);
    if (!buf && temporary && n > SMALL) buf = find_any_larger(b, n);
    if (buf) remove_free(b, buf);
    else buf = alloc_after_trim(b, n);
    return buf ? hand_out_buffer(b, buf, n) : NULL;
}

tni_buffer *tni_buffer_new(tni_buffers *b, size_t bytes)
{
    return new_buffer(b, bytes, false);
}

// One address for all evaluations keeps recorded launches (CUDA graphs) valid from step to step.
// While an evaluation inside another one runs, the arena is in use, and the inner one gets an
// ordinary block.
tni_buffer *tni_buffer_new_temp(tni_buffers *b, size_t bytes)
{
    tni_buffer *a = &b->arena;
    size_t      n = b->memory.arena && !a->refs ? rounded_size(b, bytes) : 0;
    if (!n || (n > a->capacity && !resize_arena(b, n))) return new_buffer(b, bytes, true);
    if ((int64_t)n > b->high_arena.now) b->high_arena.now = (int64_t)n;
    return hand_out_buffer(b, a, n);
}

// Batches above this size are not double-buffered: the second copy would cost more memory than the
// overlap of copy and compute gains.
enum { MAX_DOUBLE_BUFFERED = 256 << 20 };

// The copy from the host runs beside the compute stream, so the block must not be in use by work
// that was submitted earlier. With two blocks of the size, the older one is done by now. If the
// only one is still in use, a second is allocated, which from then on alternates with it.
tni_buffer *tni_buffer_new_upload(tni_buffers *b, size_t bytes)
{
    bool   alone = false;
    size_t n     = b->memory.completed ? rounded_size(b, bytes) : 0;
    if (!n || n > MAX_DOUBLE_BUFFERED) return tni_buffer_new(b, bytes);
    tni_buffer *old = find_fit(b, n, true, &alone), *buf = NULL;
    if (!old || (alone && !b->memory.completed(b->memory.state, old->last)))
        buf = alloc_block(b, n);
    if (!buf && !old) return tni_buffer_new(b, bytes);
    if (buf) return hand_out_buffer(b, buf, n);
    remove_free(b, old);
    return hand_out_buffer(b, old, n);
}

// ---- a caller's memory, and the end of both ----------------------------------------------------

// A caller's memory counts to no limit: the cache neither allocated it nor can return it.
tni_buffer *tni_buffer_borrow(tni_buffers *b, void *data, void (*release)(void *, void *),
                              void *user)
{
    tni_buffer *buf = tni_zalloc(b->heap, sizeof *buf);
    if (!buf) return NULL;
    buf->refs     = 1;
    buf->borrowed = true;
    buf->data     = data;
    buf->release  = release;
    buf->user     = user;
    return buf;
}

// Waits for the device first: the caller may free or overwrite the memory in its release function.
// That function may call the library again; `releasing` lets tn_close refuse to run inside it.
static void release_borrowed(tni_buffers *b, tni_buffer *buf)
{
    if (buf->release && b->memory.wait_unused) b->memory.wait_unused(b->memory.state);
    b->releasing++;
    if (buf->release) buf->release(buf->data, buf->user);
    b->releasing--;
    tni_free(b->heap, buf);
}

// `last` remembers the work submitted so far, for uploads that do not wait for the stream. The
// arena has no bin: it is reused through its own field.
void tni_buffer_unref(tni_buffers *b, tni_buffer *buf)
{
    if (!buf || --buf->refs) return;
    if (buf->borrowed) {
        release_borrowed(b, buf);
        return;
    }
    b->bytes -= (int64_t)buf->bytes;
    buf->last = b->memory.submitted ? b->memory.submitted(b->memory.state) : 0;
    remove_from_list(&b->used, buf);
    if (buf != &b->arena) add_free(b, buf);
}
