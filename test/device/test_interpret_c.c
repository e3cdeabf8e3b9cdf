// test_interpret_c.c: kernels compiled from their C text give the bits that the interpreter gives,
// so that the moment when compiled code takes over cannot be seen.
#include "check.h"
#include "kernel_kit.h"

#include "device/cpu/cc.h"
#include "device/cpu/interpret.h"
#include "device/cpu/object.h"
#include "kernel/emit_c.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A plain run compiles SOME batches, `make test-long` ALL.
enum { BATCH = 50, SOME = 2, ALL = 4 };

// The kernels of one call of the compiler.
typedef struct {
    kit_case      c[BATCH];
    char          name[BATCH][TNI_KERNEL_NAME];
    tni_emit_item item[BATCH];
    bool          taken[BATCH];  // by the emitter
    int           count;         // of those
} batch;

static void *aligned_room(size_t bytes)
{
    return aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
}

// Most are small, for the sake of time.
static int flags_of(int i)
{
    return i % 3 ? KIT_SMALL : 0;
}

// The rule's settings, and each other that changes the text: whatever is set, bits are the same.
static const tni_tuning *settings_of(int i)
{
    static const tni_tuning all[] = { { { 0 } },
                                      { { [TNI_KNOB_UNROLL] = 1 } },
                                      { { [TNI_KNOB_UNROLL] = 2, [TNI_KNOB_PREFETCH] = 2 } },
                                      { { [TNI_KNOB_UNROLL] = 4 } },
                                      { { [TNI_KNOB_UNROLL] = 8 } } };
    return &all[i / 2 % 2 ? 0 : i % 5];
}

static bool make_batch(batch *b, uint64_t seed)
{
    const char *why;
    b->count = 0;
    for (int i = 0; i < BATCH; i++) {
        if (!kit_random_case(&b->c[i], seed + (uint64_t)i, flags_of(i))) return false;
        b->taken[i] = tni_can_emit(&b->c[i].k, &why);
        if (!b->taken[i]) continue;
        snprintf(b->name[i], sizeof b->name[i], "k%d", i);
        b->item[b->count++] = (tni_emit_item){ .kernel = &b->c[i].k,
                                               .name   = b->name[i],
                                               .opts   = settings_of(i) };
    }
    return true;
}

static void *compile(tni_cc *cc, const batch *b, tni_text *why)
{
    tni_heap heap   = tni_heap_default();
    char    *source = tni_emit_program(&heap, &tni_dialect_c, tni_emit_c, b->count, b->item, false);
    size_t   bytes  = 0;
    void    *code   = source ? tni_cc_compile(cc, source, &bytes, why) : NULL;
    void    *object = code ? tni_object_load(&cc->runner, code, bytes, why) : NULL;
    free(code);
    tni_free(&heap, source);
    return object;
}

static bool run_compiled(void *object, const char *name, tni_launch *l)
{
    static int64_t arg[TNI_C_MAX_ARGS];
    char           finish[TNI_KERNEL_NAME + 8];
    tni_c_main    *run;
    tni_c_finish  *end = NULL;
    tni_work_split cut = tni_kernel_split(l);
    snprintf(finish, sizeof finish, "%s_finish", name);
    if (!tni_object_symbol(object, name, &run)) return false;
    if (l->kernel->tails && !tni_object_symbol(object, finish, &end)) return false;
    char *room     = aligned_room(tni_emit_c_scratch(l));
    char *partials = aligned_room((size_t)(cut.partials * cut.chunks) * 8);
    if (room && partials) {
        tni_emit_c_args(l, TNI_STORES_DIRECT, arg);
        for (int64_t i = 0; i < cut.chunks; i++) {
            int64_t last = (i + 1) * cut.chunk < cut.units ? (i + 1) * cut.chunk : cut.units;
            run(l->buffer, arg, &l->number[0].u, i * cut.chunk, last, i, partials, room, l->fail);
        }
        if (end) end(l->buffer, arg, &l->number[0].u, cut.chunks, partials, room);
    }
    free(room);
    free(partials);
    return room && partials;
}

static bool run_interpreted(tni_launch *l)
{
    l->threads = 2;
    l->scratch = aligned_room(tni_interpret_scratch(l));
    if (l->scratch) tni_interpret(l);
    free(l->scratch);
    return l->scratch != NULL;
}

static void compare_case(kit_case *c, int flags, void *object, const char *name, char *why)
{
    static kit_case other;
    if (!CHECK(kit_random_case(&other, c->seed, flags))) return;
    bool ok = CHECK(run_compiled(object, name, &c->l)) && CHECK(run_interpreted(&other.l));
    ok      = ok && kit_same(c, &other, why);
    test_case_result(ok, "compiled and interpreted differ: %s", why);
    kit_free(&other);
}

static void compare_batch(tni_cc *cc, batch *b, uint64_t seed, char *why)
{
    tni_text text;
    if (!CHECK(make_batch(b, seed))) return;
    void *object = compile(cc, b, &text);
    if (!test_that(object != NULL, "%s", text.s)) return;
    for (int i = 0; i < BATCH; i++)
        if (b->taken[i]) compare_case(&b->c[i], flags_of(i), object, b->name[i], why);
    tni_object_close(object);
}

static void compiled_and_interpreted_kernels_have_the_same_bits(void)
{
    static tni_cc cc;
    tni_text      text;
    if (!tni_cc_open(&cc, &text)) SKIP("%s", text.s);
    if (!tni_cc_find(&cc, &text)) SKIP("%s", text.s);
    batch *b   = calloc(1, sizeof *b);
    char  *why = malloc(KIT_WHY);
    int    n   = test_long() ? ALL : SOME;
    for (int i = 0; i < n && CHECK(b && why); i++) {
        compare_batch(&cc, b, 90000 + (uint64_t)i * BATCH, why);
        for (int k = 0; k < BATCH; k++) kit_free(&b->c[k]);
    }
    free(why);
    free(b);
    tni_cc_close(&cc);
}

const test_case tests_interpret_c[] = {
    TEST(compiled_and_interpreted_kernels_have_the_same_bits),
    TEST_END,
};
