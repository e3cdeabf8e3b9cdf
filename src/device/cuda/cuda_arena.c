// The arena of a session: a range of addresses as large as the GPU's memory, reserved once, of
// which only the beginning has memory behind it. The arena grows by mapping more memory at the end,
// so that nothing in it ever moves: the addresses of a plan's temporaries are the same in every
// run, and its graph can be launched again without changing a node.
#include "device/cuda/gpu.h"

// The driver maps memory in multiples of a granularity, 2 MiB on current chips.
static size_t round_to_grain(const tni_arena_range *a, size_t bytes)
{
    return (bytes + a->granularity - 1) / a->granularity * a->granularity;
}

// Describes the memory to map: ordinary device memory of the session's GPU.
static tni_cuallocation allocation_of(const tni_cuda *c)
{
    return (tni_cuallocation){ .type = TNI_CU_PINNED, .at = { TNI_CU_AT_DEVICE, c->gpu->device } };
}

// Reserves the addresses at the first use; returns whether the range exists. A range as large as
// all of the memory costs only addresses, and is never outgrown. If the GPU or its driver cannot,
// that is remembered, and the engine uses ordinary blocks instead.
static bool reserve_range(tni_cuda *c)
{
    const tni_driver *cu   = c->gpu->cu;
    tni_arena_range  *a    = &c->arena;
    tni_cuallocation  what = allocation_of(c);
    int               has  = 0;
    size_t            all  = 0;
    if (a->at || a->refused) return a->at;
    a->refused = cu->device_attribute(&has, TNI_CU_HAS_RESERVED_RANGES, c->gpu->device) || !has ||
                 cu->memory_granularity(&a->granularity, &what, TNI_CU_RECOMMENDED) ||
                 !a->granularity || cu->device_memory(&all, c->gpu->device) ||
                 cu->range_reserve(&a->at, round_to_grain(a, all), 0, 0, 0);
    if (a->refused) a->at = 0;
    else a->reserved = round_to_grain(a, all);
    return a->at;
}

// Maps memory behind the next bytes of the range, a multiple of the granularity. The driver wants
// three steps: create memory, map it at an address, allow access; if one fails, those before are
// undone. The handle is released at once, since memory lives on while it is mapped.
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

// Gives all memory back and keeps the addresses. Waits first, since work in flight may use the
// memory, and copies to it are ordered before that work.
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

// Grows to at least the given bytes, or returns false. Three attempts, from the most comfortable to
// the most modest: an eighth more than needed, so that plans which grow a little (a longer last
// batch) do not add a piece each time, but only if that eighth is less than a quarter of the free
// memory; exactly what is needed; and, if even that is not free beside what is held, all of it in
// one piece after giving back the pieces, which may be fragments.
static bool grow_range(tni_cuda *c, size_t bytes, size_t most)
{
    tni_arena_range *a = &c->arena;
    size_t need = round_to_grain(a, bytes - a->held), more = round_to_grain(a, need + a->held / 8);
    size_t free = 0, all = 0;
    if (a->held + need > most || c->gpu->cu->mem_info(&free, &all)) return false;
    bool plenty = more - need < free / 4;
    if (plenty && more > need && a->held + more <= most && map_piece(c, more)) return true;
    if (map_piece(c, need)) return true;
    if (!a->held || c->captured || free + a->held < round_to_grain(a, bytes)) return false;
    unmap_pieces(c);
    return map_piece(c, round_to_grain(a, bytes));
}

// The contract's arena. bytes of 0 gives the memory back, as the engine does before it reports to
// be out of memory, unless a caller's graph may use it. The address returned never changes while
// the session is open.
void *tni_cuda_arena(void *session, size_t bytes, size_t most, size_t *held)
{
    tni_cuda *c = session;
    tni_cuda_enter(c);
    int  before = tni_cuda_relax(c->gpu->cu);
    bool ok     = bytes == 0 ||
              (reserve_range(c) && (bytes <= c->arena.held || grow_range(c, bytes, most)));
    if (bytes == 0 && !c->captured) unmap_pieces(c);
    tni_cuda_restrict(c->gpu->cu, before);
    *held = c->arena.held;
    return ok ? (void *)(uintptr_t)c->arena.at : NULL;
}

void tni_arena_close(tni_cuda *c)
{
    if (!c->arena.at) return;
    unmap_pieces(c);
    c->gpu->cu->range_free(c->arena.at, c->arena.reserved);
}
