// test_cuda_arena.c: the arena of a GPU, over a driver that checks how ranges are reserved and
// mapped, and the cache of buffers that hands it out.
#include "check.h"

#include "device/cuda/gpu.h"
#include "tensor/buffer.h"

#include <stdlib.h>
#include <string.h>

enum { GRAIN = 4096, RESERVED = 64 };  // grains of the whole GPU

// What a driver knows: memory that is left, pieces that are mapped, and whether anything went
// wrong.
static struct {
    bool      has_ranges, no_access;
    size_t    left;  // bytes that nobody has
    tni_cuptr base;  // 0: nothing is reserved
    int       handles, mapped, waits, wrong;
    size_t    bytes[RESERVED];   // of a piece that begins at a grain
    bool      usable[RESERVED];  // it may be accessed
    size_t    handle[RESERVED + 1];
} self;

static int set_current(tni_cucontext cx)
{
    (void)cx;
    return TNI_CU_OK;
}

static int device_attribute(int *value, int which, int device)
{
    (void)device;
    *value = which == TNI_CU_HAS_RESERVED_RANGES && self.has_ranges;
    return TNI_CU_OK;
}

static int device_memory(size_t *bytes, int device)
{
    (void)device;
    *bytes = RESERVED * GRAIN - 100;  // no multiple of the grain
    return TNI_CU_OK;
}

static int mem_info(size_t *free, size_t *all)
{
    *free = self.left;
    *all  = RESERVED * GRAIN;
    return TNI_CU_OK;
}

static int stream_wait(tni_custream s)
{
    (void)s;
    self.waits++;
    return TNI_CU_OK;
}

static int granularity(size_t *bytes, const tni_cuallocation *what, int which)
{
    (void)which;
    self.wrong += what->type != TNI_CU_PINNED || what->at.type != TNI_CU_AT_DEVICE;
    *bytes = GRAIN;
    return TNI_CU_OK;
}

static int reserve(tni_cuptr *p, size_t bytes, size_t align, tni_cuptr wish,
                   unsigned long long flags)
{
    self.wrong += align || wish || flags || self.base || bytes != RESERVED * GRAIN;
    *p = self.base = (tni_cuptr)1 << 40;
    return TNI_CU_OK;
}

static int range_free(tni_cuptr p, size_t bytes)
{
    self.wrong += p != self.base || bytes != RESERVED * GRAIN || self.mapped;
    self.base = 0;
    return TNI_CU_OK;
}

static int create(tni_cumemory *m, size_t bytes, const tni_cuallocation *what,
                  unsigned long long flags)
{
    self.wrong += bytes == 0 || bytes % GRAIN || flags || what->type != TNI_CU_PINNED;
    if (bytes > self.left) return TNI_CU_OUT_OF_MEMORY;
    self.left -= bytes;
    for (int i = 1; i <= RESERVED; i++)
        if (!self.handle[i]) {
            self.handle[i] = bytes;
            *m             = (tni_cumemory)i;
            self.handles++;
            return TNI_CU_OK;
        }
    return TNI_CU_OUT_OF_MEMORY;
}

// Memory that is not mapped is gone with its handle; what is mapped, when it is unmapped.
static int release(tni_cumemory m)
{
    bool is_mapped = self.handle[m] & 1;
    if (!is_mapped) self.left += self.handle[m];
    self.handle[m] = 0;
    self.handles--;
    return TNI_CU_OK;
}

static int map(tni_cuptr p, size_t bytes, size_t offset, tni_cumemory m, unsigned long long flags)
{
    size_t at = (size_t)(p - self.base) / GRAIN;
    self.wrong += offset || flags || self.handle[m] != bytes || (p - self.base) % GRAIN;
    for (size_t i = 0; i < RESERVED; i++)
        self.wrong += self.bytes[i] && i * GRAIN < at * GRAIN + bytes &&
                      at * GRAIN < i * GRAIN + self.bytes[i];
    if (at >= RESERVED || at * GRAIN + bytes > RESERVED * GRAIN) return 1;
    self.bytes[at] = bytes;
    self.handle[m] |= 1;
    self.mapped++;
    return TNI_CU_OK;
}

static int unmap(tni_cuptr p, size_t bytes)
{
    size_t at = (size_t)(p - self.base) / GRAIN;
    self.wrong += at >= RESERVED || self.bytes[at] != bytes;
    self.bytes[at]  = 0;
    self.usable[at] = false;
    self.left += bytes;
    self.mapped--;
    return TNI_CU_OK;
}

static int access_to(tni_cuptr p, size_t bytes, const tni_cuaccess *access, size_t count)
{
    size_t at = (size_t)(p - self.base) / GRAIN;
    self.wrong += count != 1 || access->flags != TNI_CU_READ_WRITE || self.bytes[at] != bytes;
    if (self.no_access) return 1;
    self.usable[at] = true;
    return TNI_CU_OK;
}

static int capture_mode(int *mode)
{
    (void)mode;
    return TNI_CU_OK;
}

static const tni_driver driver = { .set_current        = set_current,
                                   .device_attribute   = device_attribute,
                                   .device_memory      = device_memory,
                                   .mem_info           = mem_info,
                                   .stream_wait        = stream_wait,
                                   .memory_granularity = granularity,
                                   .range_reserve      = reserve,
                                   .range_free         = range_free,
                                   .memory_create      = create,
                                   .memory_release     = release,
                                   .range_map          = map,
                                   .range_unmap        = unmap,
                                   .range_access       = access_to,
                                   .capture_mode       = capture_mode };

static const tni_gpu gpu = { .cu = &driver };

static void begin(tni_cuda *c, int grains)
{
    memset(&self, 0, sizeof self);
    self.has_ranges = true;
    self.left       = (size_t)grains * GRAIN;
    *c              = (tni_cuda){ .gpu = &gpu };
}

static void end(tni_cuda *c, int grains)
{
    tni_arena_close(c);
    CHECK_INT(self.wrong, 0);
    CHECK_INT(self.base, 0);
    CHECK_INT(self.mapped, 0);
    CHECK_INT(self.handles, 0);
    CHECK_INT(self.left, grains * GRAIN);
}

// The bytes from the beginning on that may be used.
static size_t usable(void)
{
    size_t at = 0;
    while (at < RESERVED && self.usable[at]) at += self.bytes[at] / GRAIN;
    return at * GRAIN;
}

static void it_grows_and_stays_where_it_is(void)
{
    tni_cuda c;
    size_t   held;
    begin(&c, 50);
    char *first = tni_cuda_arena(&c, 100, SIZE_MAX, &held);
    CHECK(first && held == GRAIN);
    for (size_t n = 1000; n <= 50 * GRAIN; n += 1000) {
        CHECK(tni_cuda_arena(&c, n, SIZE_MAX, &held) == (void *)first);
        CHECK(held >= n && usable() == held);
    }
    CHECK_INT(self.waits, 0);
    int pieces = self.mapped;
    CHECK(tni_cuda_arena(&c, 17 * GRAIN, SIZE_MAX, &held) == (void *)first);
    CHECK_INT(self.mapped, pieces);
    CHECK(pieces < 40);  // an eighth more each time, while there is plenty
    end(&c, 50);
}

static void it_has_no_more_than_it_may(void)
{
    tni_cuda c;
    size_t   held;
    begin(&c, 40);
    CHECK(tni_cuda_arena(&c, 16 * GRAIN, SIZE_MAX, &held));
    CHECK(tni_cuda_arena(&c, 17 * GRAIN, 17 * GRAIN, &held));  // not an eighth more
    CHECK_INT(held, 17 * GRAIN);
    CHECK(!tni_cuda_arena(&c, 18 * GRAIN, 18 * GRAIN - 1, &held));
    CHECK_INT(held, 17 * GRAIN);
    CHECK(!tni_cuda_arena(&c, 41 * GRAIN, SIZE_MAX, &held));  // there are 40
    CHECK(!tni_cuda_arena(&c, 65 * GRAIN, SIZE_MAX, &held));
    CHECK(tni_cuda_arena(&c, 40 * GRAIN, SIZE_MAX, &held));
    CHECK(tni_cuda_arena(&c, 0, SIZE_MAX, &held));
    CHECK_INT(held, 0);
    CHECK_INT(self.left, 40 * GRAIN);
    self.no_access = true;
    CHECK(!tni_cuda_arena(&c, 5, SIZE_MAX, &held));
    CHECK_INT(self.left, 40 * GRAIN);
    end(&c, 40);
}

static void without_ranges_there_is_none(void)
{
    tni_cuda c;
    size_t   held = 1;
    begin(&c, 40);
    self.has_ranges = false;
    CHECK(!tni_cuda_arena(&c, 10, SIZE_MAX, &held));
    CHECK_INT(held, 0);
    end(&c, 40);
}

// ---- the cache ---------------------------------------------------------------------------------

// Blocks are numbers, of the memory that the arena takes from too.
static void *block_alloc(void *state, size_t bytes)
{
    (void)state;
    if (bytes > self.left) return NULL;
    self.left -= bytes;
    size_t *at = malloc(sizeof *at);
    *at        = bytes;
    return at;
}

static void block_free(void *state, void *p)
{
    (void)state;
    self.left += *(size_t *)p;
    free(p);
}

static void evaluations_share_it_one_after_the_other(void)
{
    tni_cuda    c;
    tni_buffers b;
    tni_heap    heap = tni_heap_default();
    begin(&c, 40);
    tni_buffers_open(
        &b, &heap,
        (tni_memory){
            .alloc = block_alloc, .free = block_free, .arena = tni_cuda_arena, .state = &c },
        30 * GRAIN);
    tni_buffer *x  = tni_buffer_new_temp(&b, 3 * GRAIN);
    char       *at = x->data;
    CHECK_INT(b.bytes, 3 * GRAIN);
    tni_buffer *inner = tni_buffer_new_temp(&b, GRAIN);  // it is in use: a block of its own
    CHECK(inner && inner != x && inner->data != at);
    CHECK_INT(b.held, 4 * GRAIN);
    tni_buffer_unref(&b, inner);
    tni_buffer_unref(&b, x);
    x = tni_buffer_new_temp(&b, 20 * GRAIN);
    CHECK(x && x->data == at && self.waits == 0);
    CHECK(!tni_buffer_new(&b, 10 * GRAIN + 1));  // over the limit
    tni_buffer_unref(&b, x);
    CHECK_INT(b.bytes, 0);
    // What lies free is given back for a block, and the arena too.
    tni_buffer *big = tni_buffer_new(&b, 16 * GRAIN);
    CHECK(big && b.held == 16 * GRAIN);
    CHECK_INT(self.mapped, 0);
    // Then the arena cannot have as much, and a block neither; less it can.
    CHECK(!tni_buffer_new_temp(&b, 15 * GRAIN));
    x = tni_buffer_new_temp(&b, 10 * GRAIN);
    CHECK(x && x->data == at);
    CHECK_INT(b.peak, 26 * GRAIN);
    tni_buffer_unref(&b, x);
    tni_buffer_unref(&b, big);
    tni_buffers_close(&b);
    CHECK_INT(b.held, 0);
    end(&c, 40);
}

const test_case tests_cuda_arena[] = {
    TEST(it_grows_and_stays_where_it_is),
    TEST(it_has_no_more_than_it_may),
    TEST(without_ranges_there_is_none),
    TEST(evaluations_share_it_one_after_the_other),
    TEST_END,
};
