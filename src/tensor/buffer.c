// The cache of buffers: bins of free blocks by size, the best fit among them, and the limit.
#include "tensor/buffer.h"

enum { SMALL = 1 << 20, STEP = 2 << 20 };  // sizes up to here are exact; larger ones grow by this

void tni_buffers_open(tni_buffers *b, tni_heap *heap, tni_memory memory, int64_t limit)
{
    *b = (tni_buffers){ .heap = heap, .memory = memory, .limit = limit };
}

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

static int octave(size_t n)
{
    return 63 - __builtin_clzll(n);
}

// At most a fifth of a small block is wasted, and a ninth of a large one.
size_t tni_buffer_size(size_t bytes)
{
    size_t n = bytes < 64 ? 64 : bytes;
    size_t q = (size_t)1 << (octave(n) - (n <= SMALL ? 2 : 3));
    if (q > STEP) q = STEP;
    return (n + q - 1) / q * q;
}

// The bin of a block that has just so many bytes.
static int bin_of(size_t n)
{
    int e = octave(n);
    if (n <= SMALL) return (e - 6) * 4 + (int)(n >> (e - 2) & 3);
    return TNI_SMALL_BINS + (e - 20) * 8 + (int)(n >> (e - 3) & 7);
}

// ---- blocks ------------------------------------------------------------------------------------

static void put(tni_buffer **list, tni_buffer *buf)
{
    buf->prev = NULL;
    buf->next = *list;
    if (buf->next) buf->next->prev = buf;
    *list = buf;
}

static void take_out(tni_buffer **list, tni_buffer *buf)
{
    if (buf->next) buf->next->prev = buf->prev;
    if (buf->prev) buf->prev->next = buf->next;
    else *list = buf->next;
}

// The arena with at least so many bytes, unless that takes it over the limit; 0: without any.
static bool stretch(tni_buffers *b, size_t bytes)
{
    tni_buffer *a    = &b->arena;
    int64_t     rest = b->held - (int64_t)a->capacity;
    size_t      most = b->limit > 0 ? (size_t)(b->limit - b->host_bytes - rest) : SIZE_MAX;
    char       *data = b->memory.arena(b->memory.state, bytes, most, &a->capacity);
    b->held          = rest + (int64_t)a->capacity;
    if (data) a->data = data;
    return data;
}

// ---- what lies free ----------------------------------------------------------------------------

// Held bytes below this are never worth giving back; a stretch of evaluations is long enough that what a
// training loop does now and then, such as an evaluation of its network, falls into most of them.
enum { LITTLE = 64 << 20, STRETCH = 256 };

static void put_free(tni_buffers *b, tni_buffer *buf)
{
    put(&b->bin[bin_of(buf->capacity)], buf);
    buf->newer = NULL;
    buf->older = b->newest;
    if (b->newest) b->newest->newer = buf;
    else b->oldest = buf;
    b->newest = buf;
}

static void take_free(tni_buffers *b, tni_buffer *buf)
{
    take_out(&b->bin[bin_of(buf->capacity)], buf);
    if (buf->newer) buf->newer->older = buf->older;
    else b->newest = buf->older;
    if (buf->older) buf->older->newer = buf->newer;
    else b->oldest = buf->newer;
}

// Gives the block that was free for longest back to the device.
static void return_oldest(tni_buffers *b)
{
    tni_buffer *buf = b->oldest;
    take_free(b, buf);
    b->held -= (int64_t)buf->capacity;
    b->returned += (int64_t)buf->capacity;
    b->memory.free(b->memory.state, buf->data);
    tni_free(b->heap, buf);
}

static void return_arena(tni_buffers *b)
{
    if (!b->arena.capacity || b->arena.refs) return;
    b->returned += (int64_t)b->arena.capacity;
    stretch(b, 0);
}

bool tni_buffers_trim(tni_buffers *b)
{
    int64_t held = b->held;
    return_arena(b);
    while (b->oldest) return_oldest(b);
    return b->held < held;
}

static int64_t highest(tni_high_water h, int64_t now)
{
    int64_t most = h.now > h.before ? h.now : h.before;
    return now > most ? now : most;
}

// Gives back blocks where `more` bytes would make too many. Some more than need be, since a device may
// have to wait for all its work to give back one.
static void bound(tni_buffers *b, size_t more)
{
    int64_t most = 2 * highest(b->high, b->bytes + (int64_t)more) + LITTLE;
    if (b->held + (int64_t)more <= most) return;
    while (b->oldest && b->held + (int64_t)more > most - most / 8) return_oldest(b);
}

void tni_buffers_end_evaluation(tni_buffers *b)
{
    if (++b->turns < STRETCH) return;
    b->turns      = 0;
    b->high       = (tni_high_water){ b->bytes, b->high.now };
    b->high_arena = (tni_high_water){ 0, b->high_arena.now };
    if ((int64_t)b->arena.capacity > 2 * b->high_arena.before + LITTLE) return_arena(b);
    bound(b, 0);
}

void tni_buffers_close(tni_buffers *b)
{
    tni_buffers_trim(b);
}

static bool is_over(const tni_buffers *b, int64_t have, size_t more)
{
    return b->limit > 0 && have + b->host_bytes + (int64_t)more > b->limit;
}

bool tni_buffers_reserve_host(tni_buffers *b, size_t bytes)
{
    if (bytes > tni_buffers_left(b)) return false;
    if (is_over(b, b->held, bytes)) tni_buffers_trim(b);
    if (is_over(b, b->held, bytes)) return false;  // a device that keeps its arena
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

static tni_buffer *fresh(tni_buffers *b, size_t capacity)
{
    bound(b, capacity);
    if (is_over(b, b->held, capacity)) return NULL;
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

// Fresh memory, if need be after all that is free was given back.
static tni_buffer *fresh_after_all(tni_buffers *b, size_t capacity)
{
    tni_buffer *buf = fresh(b, capacity);
    return buf || !tni_buffers_trim(b) ? buf : fresh(b, capacity);
}

// ---- the best fit ------------------------------------------------------------------------------

enum { LOOKED_AT = 16 };  // of small blocks, of which there may be very many

// The smallest free block of at least n bytes that wastes no more than an eighth, and among equals
// the one freed last, or the oldest of some. alone: there is no other of its size.
static tni_buffer *find(const tni_buffers *b, size_t n, bool oldest, bool *alone)
{
    size_t      most = n <= SMALL ? n : n + n / 8;
    tni_buffer *best = NULL;
    int         last = bin_of(most), looks = 0;
    for (int i = bin_of(n); i <= last && i < TNI_BINS && !best; i++)
        for (tni_buffer *f = b->bin[i]; f && (n > SMALL || looks++ < LOOKED_AT); f = f->next) {
            bool same = best && f->capacity == best->capacity;
            if (f->capacity < n || f->capacity > most || (best && f->capacity > best->capacity))
                continue;
            *alone = !same;
            if (!same || oldest) best = f;
            if (!oldest && best->capacity == n) return best;
        }
    return best;
}

// The smallest free block of at least n bytes, whatever it wastes.
static tni_buffer *find_larger(const tni_buffers *b, size_t n)
{
    tni_buffer *best = NULL;
    for (int i = bin_of(n); i < TNI_BINS && !best; i++)
        for (tni_buffer *f = b->bin[i]; f; f = f->next)
            if (f->capacity >= n && (!best || f->capacity < best->capacity)) best = f;
    return best;
}

static tni_buffer *hand_out(tni_buffers *b, tni_buffer *buf, size_t bytes)
{
    buf->refs  = 1;
    buf->bytes = bytes;
    buf->site  = (tni_site){ 0 };
    put(&b->used, buf);
    b->bytes += (int64_t)bytes;
    if (b->bytes > b->peak) b->peak = b->bytes;
    if (b->bytes > b->high.now) b->high.now = b->bytes;
    return buf;
}

// What tni_buffer_size makes of a number of bytes; 0 if nobody has that many.
static size_t rounded(const tni_buffers *b, size_t bytes)
{
    size_t n = bytes > SIZE_MAX / 4 ? 0 : tni_buffer_size(bytes);
    return n && bin_of(n) < TNI_BINS && !is_over(b, b->bytes, n) ? n : 0;
}

// passing: needed for an evaluation alone. Such a block may be much larger, as long as it is large anyway:
// it is free again before anybody misses it, and plans of many sizes share one.
static tni_buffer *new_buffer(tni_buffers *b, size_t bytes, bool passing)
{
    bool   alone;
    size_t n = rounded(b, bytes);
    if (!n) return NULL;
    tni_buffer *buf = find(b, n, false, &alone);
    if (!buf && passing && n > SMALL) buf = find_larger(b, n);
    if (buf) take_free(b, buf);
    else buf = fresh_after_all(b, n);
    return buf ? hand_out(b, buf, n) : NULL;
}

tni_buffer *tni_buffer_new(tni_buffers *b, size_t bytes)
{
    return new_buffer(b, bytes, false);
}

tni_buffer *tni_buffer_new_temp(tni_buffers *b, size_t bytes)
{
    tni_buffer *a = &b->arena;
    size_t      n = b->memory.arena && !a->refs ? rounded(b, bytes) : 0;
    if (!n || (n > a->capacity && !stretch(b, n))) return new_buffer(b, bytes, true);
    if ((int64_t)n > b->high_arena.now) b->high_arena.now = (int64_t)n;
    return hand_out(b, a, n);
}

// Twice this much is not held for one batch.
enum { MOST_TO_DOUBLE = 256 << 20 };

tni_buffer *tni_buffer_new_upload(tni_buffers *b, size_t bytes)
{
    bool   alone = false;
    size_t n     = b->memory.completed ? rounded(b, bytes) : 0;
    if (!n || n > MOST_TO_DOUBLE) return tni_buffer_new(b, bytes);
    tni_buffer *old = find(b, n, true, &alone), *buf = NULL;
    if (!old || (alone && !b->memory.completed(b->memory.state, old->last))) buf = fresh(b, n);
    if (!buf && !old) return tni_buffer_new(b, bytes);
    if (buf) return hand_out(b, buf, n);
    take_free(b, old);
    return hand_out(b, old, n);
}

// ---- a caller's memory, and the end of both ----------------------------------------------------

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

static void release(tni_buffers *b, tni_buffer *buf)
{
    if (buf->release && b->memory.wait_unused) b->memory.wait_unused(b->memory.state);
    b->releasing++;
    if (buf->release) buf->release(buf->data, buf->user);
    b->releasing--;
    tni_free(b->heap, buf);
}

void tni_buffer_unref(tni_buffers *b, tni_buffer *buf)
{
    if (!buf || --buf->refs) return;
    if (buf->borrowed) {
        release(b, buf);
        return;
    }
    b->bytes -= (int64_t)buf->bytes;
    buf->last = b->memory.submitted ? b->memory.submitted(b->memory.state) : 0;
    take_out(&b->used, buf);
    if (buf != &b->arena) put_free(b, buf);
}
