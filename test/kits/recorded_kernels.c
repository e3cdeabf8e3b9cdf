// The record of kernels. Tests limit their files, count their calls and let allocations fail while
// plans are built, so it takes no file and no heap: it is memory mapped before any test runs, which
// children fill without locks.
#include "recorded_kernels.h"

#include "base/hash.h"
#include "plan/plan.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { SLOTS = 1 << 19, MOST = SLOTS / 2, ROOM = 1 << 28 };

// seen is a table of the hashes of texts and who had them, 0 where free; at has where in `bytes` a
// record begins, plus one. Everything only grows, and a place in `at` is filled when its record is
// complete.
typedef struct {
    _Atomic uint64_t seen[SLOTS];
    _Atomic uint32_t at[MOST];
    atomic_uint      count, used, lost, unfused;
    _Alignas(8) char bytes[ROOM];
} record;

const tni_simt_limits recorded_chip = {
    .threads = 1024, .shared_bytes = 227 * 1024, .units = 132, .features = TNI_GPU_ALL, .cluster = 8
};

static record     *all;
static const char *file = "";
static int         place;

void recorded_open(void)
{
    void *p = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p != MAP_FAILED) all = p;
}

void recorded_from(const char *name, int number)
{
    file  = name;
    place = number;
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

// ---- reading -----------------------------------------------------------------------------------

// By place, and those of a place as they came: room is taken from low to high.
static int by_place(const void *a, const void *b)
{
    const recorded_kernel *x = *(const recorded_kernel *const *)a,
                          *y = *(const recorded_kernel *const *)b;
    if (x->place != y->place) return x->place < y->place ? -1 : 1;
    return x < y ? -1 : x > y;
}

static int by_text(const void *a, const void *b)
{
    const recorded_kernel *x = *(const recorded_kernel *const *)a,
                          *y = *(const recorded_kernel *const *)b;
    if (x->text != y->text) return x->text < y->text ? -1 : 1;
    return by_place(a, b);
}

int recorded_list(const recorded_kernel **to)
{
    int n = 0, kept = 0;
    for (int i = 0; i < recorded_count(); i++)
        if (all->at[i]) to[n++] = (const recorded_kernel *)(all->bytes + all->at[i] - 1);
    qsort(to, (size_t)n, sizeof *to, by_text);
    for (int i = 0; i < n; i++)
        if (!kept || to[kept - 1]->text != to[i]->text) to[kept++] = to[i];
    qsort(to, (size_t)kept, sizeof *to, by_place);
    return kept;
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

static void append(const tni_launch *l, const tni_simt *shape, uint64_t text)
{
    const tni_kernel *k     = l->kernel;
    tni_simt_limits   fewer = recorded_chip;
    fewer.few_registers     = true;
    size_t kernel           = offsetof(tni_kernel, ins) + (size_t)k->nins * sizeof *k->ins;
    size_t bytes            = (offsetof(recorded_kernel, kernel) + kernel + 7) / 8 * 8;
    bool   full             = all->used > ROOM || all->count >= MOST;
    // Others take room too, between a look at what there is and this.
    uint32_t at = full ? ROOM : atomic_fetch_add(&all->used, (unsigned)bytes);
    if (at + bytes > ROOM) {
        all->lost++;
        return;
    }
    unsigned         i = atomic_fetch_add(&all->count, 1);
    recorded_kernel *r = (recorded_kernel *)(all->bytes + at);
    r->file            = file;
    r->place           = place;
    r->text            = text;
    r->shape           = *shape;
    r->few_registers   = tni_simt_choose(l, &fewer);
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
    if (bytes > sizeof key) {
        all->lost++;
        return;
    }
    // A text of two files is recorded of both, since who comes first may change from run to run.
    uint64_t had[2] = { tni_hash(key, bytes), (uint64_t)place };
    if (is_new(tni_hash(had, sizeof had))) append(planned, &shape, had[0]);
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
