// The C skeleton: kernels made by hand and at random, printed as C, compiled by the system's compiler
// and run. What they compute is compared with the definition, and in every bit with the interpreter.
#include "check.h"

#include "device/cpu/interpret.h"
#include "kernel/emit_c.h"
#include "kernel_kit.h"
#include "scratch.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NONE = TNI_NO_VALUE, BATCH = 30, RANDOM = 540 };

#define FLAGS                                                                              \
    " -std=c11 -O3 -march=native -Wall -Werror -ffp-contract=off -fwrapv -fno-math-errno " \
    "-fno-trapping-math -fPIC -shared "

// ---- compiling and running ---------------------------------------------------------------------

static char *program(int n, const tni_kernel *const *k)
{
    tni_heap      heap = tni_heap_default();
    tni_emit_item item[BATCH];
    char          name[BATCH][16];
    for (int i = 0; i < n; i++) {
        snprintf(name[i], sizeof name[i], "k%d", i);
        item[i] = (tni_emit_item){ .kernel = k[i], .name = name[i] };
    }
    return tni_source(&heap, &tni_dialect_c, tni_emit_c, n, item, false);
}

// The kernels in one library; NULL where the text does not compile without a warning.
static void *compile(int n, const tni_kernel *const *k)
{
    char  command[2000], source[300], object[300];
    char *text = program(n, k);
    void *lib  = NULL;
    snprintf(source, sizeof source, "%s", scratch_path("kernels.c"));
    snprintf(object, sizeof object, "%s", scratch_path("kernels.so"));
    snprintf(command, sizeof command, "%s" FLAGS "-o %s %s -lm", TN_CC, object, source);
    if (text && scratch_write(source, text, strlen(text)) && system(command) == 0)
        lib = dlopen(object, RTLD_NOW | RTLD_LOCAL);
    free(text);
    return lib;
}

static bool have_compiler(void)
{
    return system(TN_CC " --version > /dev/null 2>&1") == 0;
}

static void *symbol(void *lib, int i, const char *end)
{
    char name[40];
    snprintf(name, sizeof name, "k%d%s", i, end);
    return dlsym(lib, name);
}

// Runs kernel i of a library on a launch; chunks in reverse, since their order must not matter.
static bool run(void *lib, int i, tni_launch *l)
{
    static int64_t arg[TNI_C_MOST_ARGS];
    tni_cut        cut   = tni_kernel_cut(l);
    size_t         bytes = tni_emit_c_room(l);
    char          *room  = aligned_alloc(64, bytes + 64), *partials;
    void          *sym = symbol(lib, i, ""), *end = symbol(lib, i, "_finish");
    size_t         partial = (size_t)(cut.chunks * cut.partials) * 8;
    tni_c_main    *main_of;
    tni_c_finish  *finish;
    partials = malloc(partial + 8);
    bool ok  = sym && room && partials && (end || !l->kernel->tails);
    memcpy(&main_of, &sym, sizeof main_of);
    memcpy(&finish, &end, sizeof finish);
    tni_emit_c_args(l, arg);
    for (int64_t c = cut.chunks - 1; ok && c >= 0; c--) {
        int64_t first = c * cut.chunk, last = first + cut.chunk;
        memset(room, 0x7f, bytes + 64);
        main_of(l->buffer, arg, &l->number[0].u, first, last < cut.units ? last : cut.units, c,
                partials, room, l->fail);
        for (size_t j = bytes; j < bytes + 64; j++) ok &= room[j] == 0x7f;
    }
    if (ok && finish) finish(l->buffer, arg, &l->number[0].u, cut.chunks, partials, room);
    free(room);
    free(partials);
    return ok;
}

static bool interpret(tni_launch *l)
{
    size_t bytes = tni_interpret_room(l);
    l->threads   = 1;
    l->scratch   = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (!l->scratch) return false;
    tni_interpret(l);
    free(l->scratch);
    return true;
}

// Kernel i of a library on a case, against the definition and the interpreter. twin is the same case.
static void check_case(void *lib, int i, kit_case *c, kit_case *twin, const char *name)
{
    static char why[KIT_WHY];
    bool        ran = run(lib, i, &c->l), same = false;
    strcpy(why, "it did not run");
    bool right = ran && kit_naive(c) && kit_compare(c, 2, why);
    test_case_result(right, "%s: %s", name, why);
    if (ran && interpret(&twin->l)) same = kit_same(c, twin, why);
    test_case_result(same, "%s: other bits than the interpreter: %s", name, why);
    if (c->fail[0]) test_case_result(c->l.fail[0] > 0, "%s: no failure was reported", name);
    else test_case_result(c->l.fail[0] == 0, "%s: a failure was reported", name);
}

// ---- at random ---------------------------------------------------------------------------------

static void check_random(uint64_t seed)
{
    static kit_case   c[BATCH], twin[BATCH];
    const tni_kernel *k[BATCH];
    const char       *why;
    char              name[60];
    int               n = 0;
    for (int i = 0; i < BATCH; i++) {
        if (!CHECK(kit_random_case(&c[n], seed + i, 0) && kit_random_case(&twin[n], seed + i, 0)))
            return;
        k[n] = &c[n].k;
        if (tni_can_emit(k[n], &why)) n++;
        else kit_free(&c[n]), kit_free(&twin[n]);
    }
    void *lib = compile(n, k);
    if (CHECK(lib != NULL))
        for (int i = 0; i < n; i++) {
            snprintf(name, sizeof name, "kernel of seed %llu", (unsigned long long)c[i].seed);
            check_case(lib, i, &c[i], &twin[i], name);
        }
    for (int i = 0; i < n; i++) kit_free(&c[i]), kit_free(&twin[i]);
    if (lib) dlclose(lib);
}

static void random_kernels_give_the_bits_of_the_interpreter(void)
{
    if (!have_compiler()) SKIP("no C compiler was found");
    if (!CHECK(scratch_open())) return;
    for (uint64_t seed = getenv("SEED") ? (uint64_t)atoi(getenv("SEED")) : 1; seed <= RANDOM; seed += BATCH) check_random(seed);
    scratch_close();
}

const test_case tests_emit[] = {
    TEST(random_kernels_give_the_bits_of_the_interpreter),
    TEST_END,
};
