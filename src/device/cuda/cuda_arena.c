// The arena of a session: a range of addresses as large as the GPU's memory, reserved once, with memory
// behind its beginning. It grows by memory at its end, so that what lies in it never moves: the
// pointers of a step are the same whenever it runs.
#include "device/cuda/gpu.h"

static size_t round_to_grain(const tni_arena_range *a, size_t bytes)
{
    return (bytes + a->grain - 1) / a->grain * a->grain;
}

static tni_cuallocation allocation_of(const tni_cuda *c)
{
    return (tni_cuallocation){ .type = TNI_CU_PINNED, .at = { TNI_CU_AT_DEVICE, c->gpu->device } };
}

// The addresses, at the first use. A GPU without such ranges is not asked twice.
static bool reserve_range(tni_cuda *c)
{
    const tni_driver *cu   = c->gpu->cu;
    tni_arena_range  *a    = &c->arena;
    tni_cuallocation  what = allocation_of(c);
    int               has  = 0;
    size_t            all  = 0;
    if (a->at || a->refused) return a->at;
    a->refused = cu->device_attribute(&has, TNI_CU_HAS_RESERVED_RANGES, c->gpu->device) || !has ||
                 cu->memory_granularity(&a->grain, &what, TNI_CU_RECOMMENDED) || !a->grain ||
                 cu->device_memory(&all, c->gpu->device) ||
                 cu->range_reserve(&a->at, round_to_grain(a, all), 0, 0, 0);
    if (a->refused) a->at = 0;
    else a->reserved = round_to_grain(a, all);
    return a->at;
}

// Memory for the next bytes of the range, a multiple of the grain.
static bool map_piece(tni_cuda *c, size_t bytes)
{
    const tni_driver *cu     = c->gpu->cu;
    tni_arena_range  *a      = &c->arena;
    tni_cuallocation  what   = allocation_of(c);
    tni_cuaccess      access = { what.at, TNI_CU_READ_WRITE };
    tni_cuptr         at     = a->at + a->held;
    tni_cumemory      memory = 0;
    if (a->pieces == TNI_ARENA_PIECES || bytes > a->reserved - a->held) return false;
    if (cu->memory_create(&memory, bytes, &what, 0) != TNI_CU_OK) return false;
    bool mapped = cu->range_map(at, bytes, 0, memory, 0) == TNI_CU_OK;
    bool ok     = mapped && cu->range_access(at, bytes, &access, 1) == TNI_CU_OK;
    if (mapped && !ok) cu->range_unmap(at, bytes);
    cu->memory_release(memory);  // it stays until it is unmapped
    if (!ok) return false;
    a->piece[a->pieces++] = bytes;
    a->held += bytes;
    return true;
}

// Everything given may still use it.
static void unmap_pieces(tni_cuda *c)
{
    const tni_driver *cu = c->gpu->cu;
    tni_arena_range  *a  = &c->arena;
    if (a->held) {
        tni_cuda_await_uploads(c);
        cu->stream_wait(c->stream);
    }
    while (a->pieces) {
        a->held -= a->piece[--a->pieces];
        cu->range_unmap(a->at + a->held, a->piece[a->pieces]);
    }
}

// An eighth more than was asked for where there is plenty, so that plans which grow a little do not add
// a piece each; then no more than that, and then all in one piece, if there is as much.
static bool grow_range(tni_cuda *c, size_t bytes, size_t most)
{
    tni_arena_range *a = &c->arena;
    size_t need = round_to_grain(a, bytes - a->held), more = round_to_grain(a, need + a->held / 8);
    size_t free = 0, all = 0;
    if (a->held + need > most || c->gpu->cu->mem_info(&free, &all)) return false;
    bool plenty = more - need < free / 4;
    if (plenty && more > need && a->held + more <= most && map_piece(c, more)) return true;
    if (map_piece(c, need)) return true;
    if (!a->held || free + a->held < round_to_grain(a, bytes)) return false;
    unmap_pieces(c);
    return map_piece(c, round_to_grain(a, bytes));
}

void *tni_cuda_arena(void *session, size_t bytes, size_t most, size_t *held)
{
    tni_cuda *c = session;
    tni_cuda_enter(c);
    bool ok = bytes == 0 ||
              (reserve_range(c) && (bytes <= c->arena.held || grow_range(c, bytes, most)));
    if (bytes == 0) unmap_pieces(c);
    *held = c->arena.held;
    return ok ? (void *)(uintptr_t)c->arena.at : NULL;
}

void tni_arena_close(tni_cuda *c)
{
    if (!c->arena.at) return;
    unmap_pieces(c);
    c->gpu->cu->range_free(c->arena.at, c->arena.reserved);
}
