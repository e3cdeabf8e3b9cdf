// The record of kernels. Tests limit their files, count their calls and let allocations fail while
// plans are built, so it takes no file and no heap: it is memory mapped before any test runs, which
// children fill without locks.
#include "recorded_kernels.h"

#include "base/hash.h"
#include "plan/plan.h"

#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>

enum { SLOTS = 1 << 19, MOST = SLOTS / 2, ROOM = 1 << 28 };

// seen is a table of the hashes of texts, 0 where free; at has where in `bytes` a record begins, plus
// one. Everything only grows, and a place in `at` is filled when its record is complete.
typedef struct {
    _Atomic uint64_t seen[SLOTS];
    _Atomic uint32_t at[MOST];
    atomic_uint      count, used, lost, unfused;
    _Alignas(8) char bytes[ROOM];
} record;

const tni_simt_limits recorded_chip = {
    .threads = 1024, .shared_bytes = 227 * 1024, .units = 132, .cuda = true, .cluster = 8
};

static record     *all;
static const char *file = "";

void recorded_open(void)
{
    void *p = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p != MAP_FAILED) all = p;
}

void recorded_from(const char *name)
{
    file = name;
}

int recorded_count(void)
{
    unsigned n = all ? all->count : 0;
    return (int)(n < MOST ? n : MOST);
}

int recorded_lost(void)
{
    return all ? (int)all->lost : 0;
}

int recorded_unfused(void)
{
    return all ? (int)all->unfused : 0;
}

const recorded_kernel *recorded_get(int i)
{
    uint32_t at = all->at[i];
    return at ? (const recorded_kernel *)(all->bytes + at - 1) : NULL;
}

// ---- writing -----------------------------------------------------------------------------------

// Defined where the linker can put a function before another.
#ifdef TN_TEST_WRAP

// Whether a hash is new; it is known from now on.
static bool is_new(uint64_t hash)
{
    hash += !hash;
    for (unsigned i = (unsigned)(hash >> 32), tries = 0; tries < 64; i++, tries++) {
        uint64_t there = 0;
        if (atomic_compare_exchange_strong(&all->seen[i % SLOTS], &there, hash)) return true;
        if (there == hash) return false;
    }
    all->lost++;
    return false;
}

static void append(const tni_kernel *k, const tni_simt *shape)
{
    size_t kernel = offsetof(tni_kernel, ins) + (size_t)k->nins * sizeof *k->ins;
    size_t bytes  = (offsetof(recorded_kernel, kernel) + kernel + 7) / 8 * 8;
    if (all->used + bytes + 2 * sizeof *k > ROOM || all->count >= MOST) {
        all->lost++;
        return;
    }
    uint32_t         at = atomic_fetch_add(&all->used, (unsigned)bytes);
    unsigned         i  = atomic_fetch_add(&all->count, 1);
    recorded_kernel *r  = (recorded_kernel *)(all->bytes + at);
    r->file             = file;
    r->shape            = *shape;
    memcpy(&r->kernel, k, kernel);
    if (i < MOST) all->at[i] = at + 1;
}

static void add(const tni_launch *planned)
{
    char        key[sizeof(tni_kernel) + 2 * sizeof(tni_simt_class)];
    const char *why;
    if (!tni_can_emit(planned->kernel, &why)) return;
    tni_simt shape = tni_simt_choose(planned, &recorded_chip);
    size_t   bytes = tni_simt_key(planned->kernel, &shape.class, key, sizeof key);
    if (bytes > sizeof key) all->lost++;
    else if (is_new(tni_hash(key, bytes))) append(planned->kernel, &shape);
}

tni_plan *__real_tni_plan_build(tni_graph *g, const tni_limits *limits);
tni_plan *__wrap_tni_plan_build(tni_graph *g, const tni_limits *limits);

// What the linker calls where tni_plan_build is called.
tni_plan *__wrap_tni_plan_build(tni_graph *g, const tni_limits *limits)
{
    tni_plan *p = __real_tni_plan_build(g, limits);
    for (size_t i = 0; all && file && p && i < p->kernels; i++) add(&p->kernel[i].launch);
    if (all && p && p->unfused) all->unfused++;
    return p;
}

bool recorded_can(void)
{
    return all != NULL;
}
#else
bool recorded_can(void)
{
    return false;
}
#endif
