// The C skeleton: kernels made by hand and at random, printed as C, compiled by the system's
// compiler and run. What they compute is compared with the definition, and in every bit with the
// interpreter.
#include "check.h"

#include "device/cpu/cpu_kernels.h"
#include "device/cpu/interpret.h"
#include "kernel/emit_c.h"
#include "kernel_kit.h"
#include "scratch.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NONE = TNI_NO_VALUE, BATCH = 40, RANDOM = 80, WAYS = 3, SIZES = 6 * WAYS };

#define FLAGS                                                                \
    " -std=c11 -O3 -Wall -Werror -ffp-contract=off -fwrapv -fno-math-errno " \
    "-fno-trapping-math -fPIC -shared "

// ---- compiling and running ---------------------------------------------------------------------

// C with stores by strips, past the caches on chips that have such stores, and for cores that
// reorder or not.
static char *program(int n, const tni_kernel *const *k, bool reorders)
{
    tni_heap      heap = tni_heap_default();
    tni_dialect   d    = tni_dialect_c;
    tni_emit_item item[BATCH];
    char          name[BATCH][16];
    for (int i = 0; i < n; i++) {
        snprintf(name[i], sizeof name[i], "k%d", i);
        item[i] = (tni_emit_item){ .kernel = k[i], .name = name[i] };
    }
    d.streams  = true;
    d.reorders = reorders;
    return tni_emit_program(&heap, &d, tni_emit_c, n, item, false);
}

// Gives a text back.
static void drop(char *text)
{
    tni_heap heap = tni_heap_default();
    tni_free(&heap, text);
}

// The kernels in one library; NULL where the text does not compile without a warning, or lacks a
// function. more: further options.
static void *compile(int n, const tni_kernel *const *k, bool reorders, const char *more)
{
    char  command[2000], source[300], object[300];
    char *text = program(n, k, reorders);
    void *lib  = NULL;
    snprintf(source, sizeof source, "%s", scratch_path("kernels.c"));
    snprintf(object, sizeof object, "%s", scratch_path("kernels.so"));
    snprintf(command, sizeof command, "%s" FLAGS "-Wl,-z,defs %s -o %s %s -lm", TN_CC, more, object,
             source);
    if (text && scratch_write(source, text, strlen(text)) && system(command) == 0)
        lib = dlopen(object, RTLD_NOW | RTLD_LOCAL);
    drop(text);
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
static bool run(void *lib, int i, tni_launch *l, tni_c_stores stores)
{
    static int64_t arg[TNI_C_MAX_ARGS];
    tni_work_split cut   = tni_kernel_split(l);
    size_t         bytes = tni_emit_c_scratch(l);
    char          *room  = aligned_alloc(64, bytes + 64), *partials;
    void          *sym = symbol(lib, i, ""), *end = symbol(lib, i, "_finish");
    size_t         partial = (size_t)(cut.chunks * cut.partials) * 8;
    tni_c_main    *main_of;
    tni_c_finish  *finish;
    partials = malloc(partial + 8);
    bool ok  = sym && room && partials && (end || !l->kernel->tails);
    memcpy(&main_of, &sym, sizeof main_of);
    memcpy(&finish, &end, sizeof finish);
    tni_emit_c_args(l, stores, arg);
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
    size_t bytes = tni_interpret_scratch(l);
    l->threads   = 1;
    l->scratch   = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (!l->scratch) return false;
    tni_interpret(l);
    free(l->scratch);
    return true;
}

// Kernel i of a library on a case, against the definition and the interpreter. twin is the same
// case. stores: how it stores its results.
static void check_case(void *lib, int i, kit_case *c, kit_case *twin, tni_c_stores stores,
                       const char *name)
{
    static char why[KIT_WHY];
    bool        ran = run(lib, i, &c->l, stores), same = false;
    strcpy(why, "it did not run");
    bool right = ran && kit_naive(c) && kit_compare(c, 2, why);
    test_case_result(right, "%s: %s", name, why);
    if (ran && interpret(&twin->l)) same = kit_same(c, twin, why);
    test_case_result(same, "%s: other bits than the interpreter: %s", name, why);
    if (c->fail[0]) test_case_result(c->l.fail[0] > 0, "%s: no failure was reported", name);
    else test_case_result(c->l.fail[0] == 0, "%s: a failure was reported", name);
}

// ---- by hand -----------------------------------------------------------------------------------

static void store(kit_case *c, tn_dtype dt, int per, int a)
{
    kit_store(c, kit_output(c, dt, per), a);
}

static int scaled(kit_case *c, int a, double by)
{
    return kit_map2(c, TNI_mul, a, kit_number(c, TN_F32, by));
}

static void relu_chain(kit_case *c, int64_t n)
{
    kit_begin(c, 1, (int64_t[]){ n }, 0, NULL, false);
    int x = kit_load_new(c, TN_F32, TNI_PER_ROW), zero = kit_number(c, TN_F32, 0);
    int y = kit_map2(c, TNI_maximum, x, zero);
    store(c, TN_F32, TNI_PER_ROW,
          kit_map1(c, TNI_tanh, kit_map2(c, TNI_add, scaled(c, y, 0.5), y)));
}

static void softmax_of(kit_case *c, int64_t n, tn_dtype dt)
{
    kit_begin(c, 1, (int64_t[]){ 3 }, 1, (int64_t[]){ n + 1 }, true);
    int x = kit_load_new(c, dt, TNI_PER_ELEM);
    int e = kit_map1(c, TNI_exp, kit_map2(c, TNI_sub, x, kit_reduce(c, TNI_max, x, false)));
    store(c, dt, TNI_PER_ELEM, kit_map2(c, TNI_div, e, kit_reduce(c, TNI_sum, e, false)));
}

static void softmax_f32(kit_case *c, int64_t n)
{
    softmax_of(c, n, TN_F32);
}

static void softmax_bf16(kit_case *c, int64_t n)
{
    softmax_of(c, n, TN_BF16);
}

static void layer_norm(kit_case *c, int64_t n)
{
    kit_begin(c, 1, (int64_t[]){ 4 }, 1, (int64_t[]){ n + 1 }, true);
    int x    = kit_load_new(c, TN_F32, TNI_PER_ELEM);
    int mean = scaled(c, kit_reduce(c, TNI_sum, x, false), 1.0 / (double)(n + 1));
    int d    = kit_map2(c, TNI_sub, x, mean);
    int var  = scaled(c, kit_reduce(c, TNI_sum, kit_map2(c, TNI_mul, d, d), false),
                      1.0 / (double)(n + 1));
    int r    = kit_map1(c, TNI_rsqrt, kit_map2(c, TNI_add, var, kit_number(c, TN_F32, 1e-5)));
    int y = kit_map2(c, TNI_mul, kit_map2(c, TNI_mul, d, r), kit_load_new(c, TN_F32, TNI_PER_COL));
    store(c, TN_F32, TNI_PER_ELEM, kit_map2(c, TNI_add, y, kit_load_new(c, TN_F32, TNI_PER_COL)));
    store(c, TN_F32, TNI_PER_ROW, mean);
    store(c, TN_F32, TNI_PER_ROW, r);
}

// dx, and dgamma, dbeta as tails; a scale in the finish stage.
static void layer_norm_backward(kit_case *c, int64_t n)
{
    kit_begin(c, 1, (int64_t[]){ 150 }, 1, (int64_t[]){ n / 20 + 2 }, true);
    int x = kit_load_new(c, TN_F32, TNI_PER_ELEM), g = kit_load_new(c, TN_F32, TNI_PER_ELEM);
    int r  = kit_load_new(c, TN_F32, TNI_PER_ROW);
    int xh = kit_map2(c, TNI_mul, kit_map2(c, TNI_sub, x, kit_load_new(c, TN_F32, TNI_PER_ROW)), r);
    int gg = kit_map2(c, TNI_mul, g, kit_load_new(c, TN_F32, TNI_PER_COL));
    int a  = scaled(c, kit_reduce(c, TNI_sum, gg, false), 0.1);
    int b  = scaled(c, kit_reduce(c, TNI_sum, kit_map2(c, TNI_mul, gg, xh), false), 0.1);
    int y  = kit_map2(c, TNI_sub, gg, kit_map2(c, TNI_add, a, kit_map2(c, TNI_mul, xh, b)));
    store(c, TN_F32, TNI_PER_ELEM, kit_map2(c, TNI_mul, r, y));
    store(c, TN_BF16, TNI_PER_COL, kit_reduce(c, TNI_sum, kit_map2(c, TNI_mul, g, xh), true));
    int beta = kit_reduce(c, TNI_sum, g, true);
    store(c, TN_F32, TNI_PER_COL, kit_map2(c, TNI_add, beta, kit_load_new(c, TN_F32, TNI_PER_COL)));
    store(c, TN_F32, TNI_PER_ONE, kit_reduce(c, TNI_max, a, true));
}

static void column_sum(kit_case *c, int64_t n)
{
    kit_begin(c, 1, (int64_t[]){ n }, 1, (int64_t[]){ 200 }, false);
    int b = kit_buffer(c, TN_F32, n * 200, false);
    int x = kit_load(c, kit_access(c, b, 0, (int64_t[]){ 1, n }, 0));
    store(c, TN_F32, TNI_PER_ROW, kit_reduce(c, TNI_sum, x, false));
}

static void full_sum(kit_case *c, int64_t n)
{
    kit_begin(c, 2, (int64_t[]){ 70, n + 1 }, 0, NULL, false);
    int x = kit_load_new(c, TN_F32, TNI_PER_ROW);
    store(c, TN_F32, TNI_PER_ONE, kit_reduce(c, TNI_sum, x, true));
    store(c, TN_F32, TNI_PER_ONE, kit_reduce(c, TNI_min, kit_map1(c, TNI_abs, x), true));
}

// x.T + a row of it + a column: strides of every class.
static void transposed(kit_case *c, int64_t n)
{
    kit_begin(c, 2, (int64_t[]){ 7, n + 1 }, 0, NULL, false);
    int b = kit_buffer(c, TN_F16, 7 * (n + 1), false), v = kit_buffer(c, TN_F32, n + 1, false);
    int x = kit_load(c, kit_access(c, b, 0, (int64_t[]){ 1, 7 }, 0));
    int y = kit_load(c, kit_access(c, v, 0, (int64_t[]){ 0, 1 }, 0));
    int z = kit_load(c, kit_access(c, v, 0, (int64_t[]){ 0, 0 }, 0));
    store(c, TN_F16, TNI_PER_ROW, kit_map2(c, TNI_add, kit_map2(c, TNI_add, x, y), z));
}

// A pad: elements before `from` are 0 and not touched.
static void masked_load(kit_case *c, int64_t n)
{
    kit_begin(c, 1, (int64_t[]){ n }, 0, NULL, false);
    int64_t from = n / 3;
    int     b    = kit_buffer(c, TN_I64, n - from, false);
    int     at   = kit_place(c, 0, (int64_t[]){ 1 });
    int     in   = kit_map2(c, TNI_ge, at, kit_number(c, TN_I64, (double)from));
    int     x    = kit_load_at(c, kit_access(c, b, -from, (int64_t[]){ 1 }, 0), NONE, in);
    store(c, TN_I64, TNI_PER_ROW, kit_map2(c, TNI_add, x, at));
}

// Random numbers from an element that no block of the generator begins with.
static void random_numbers(kit_case *c, int64_t n)
{
    kit_begin(c, 1, (int64_t[]){ n }, 0, NULL, false);
    int at = kit_place(c, 7, (int64_t[]){ 1 }), far = kit_place(c, 1, (int64_t[]){ 3 });
    store(c, TN_F32, TNI_PER_ROW, kit_random(c, TNI_uniform, TN_F32, at, 11, 5));
    store(c, TN_F32, TNI_PER_ROW, kit_random(c, TNI_normal, TN_F32, at, 11, 900));
    store(c, TN_BF16, TNI_PER_ROW, kit_random(c, TNI_uniform, TN_BF16, at, 12, 5));
    store(c, TN_I64, TNI_PER_ROW, kit_random(c, TNI_random_bits, TN_I64, at, 13, 5));
    store(c, TN_F64, TNI_PER_ROW, kit_random(c, TNI_uniform, TN_F64, at, 14, 5));
    store(c, TN_F32, TNI_PER_ROW, kit_random(c, TNI_normal, TN_F32, far, 15, 5));
}

static void small_integers(kit_case *c, int64_t n)
{
    kit_begin(c, 1, (int64_t[]){ n }, 0, NULL, false);
    int x = kit_load_new(c, TN_I8, TNI_PER_ROW), u = kit_load_new(c, TN_U8, TNI_PER_ROW);
    int b = kit_cast(c, TN_BOOL, x);
    x     = kit_map2(c, TNI_mul, kit_map2(c, TNI_mul, x, x), x);
    store(c, TN_I32, TNI_PER_ROW, kit_cast(c, TN_I32, x));
    store(c, TN_U8, TNI_PER_ROW, kit_map2(c, TNI_sub, kit_number(c, TN_U8, 3), u));
    store(c, TN_BOOL, TNI_PER_ROW, kit_map2(c, TNI_add, kit_map1(c, TNI_bit_not, b), b));
    store(c, TN_I64, TNI_PER_ONE, kit_reduce(c, TNI_sum, kit_cast(c, TN_I64, x), true));
}

// Indices from -20 to 20 into 30 elements: with enough of them no failure, as -20 counts from the
// end; into 15 there is one.
static void index_of(kit_case *c, int64_t n, int64_t size)
{
    kit_begin(c, 1, (int64_t[]){ n }, 0, NULL, false);
    int at = kit_check(c, kit_load_new(c, TN_I64, TNI_PER_ROW), size),
        b  = kit_buffer(c, TN_F32, 30, false);
    int x  = kit_load_at(c, kit_access(c, b, 0, (int64_t[]){ 0 }, 1), at, NONE);
    store(c, TN_F32, TNI_PER_ROW, x);
}

static void index_inside(kit_case *c, int64_t n)
{
    index_of(c, n, 30);
}

static void index_outside(kit_case *c, int64_t n)
{
    index_of(c, n, 5);
}

// Variance over two axes.
static void two_axes(kit_case *c, int64_t n)
{
    kit_begin(c, 2, (int64_t[]){ 2, 3 }, 2, (int64_t[]){ 5, n + 1 }, true);
    int x = kit_load_new(c, TN_F32, TNI_PER_ELEM);
    int d = kit_map2(c, TNI_sub, x, scaled(c, kit_reduce(c, TNI_sum, x, false), 0.001));
    int v = kit_reduce(c, TNI_sum, kit_map2(c, TNI_mul, d, d), false);
    store(c, TN_F32, TNI_PER_ROW, v);
    store(c, TN_F32, TNI_PER_ELEM, kit_map2(c, TNI_div, kit_map1(c, TNI_erf, d), v));
    store(c, TN_F32, TNI_PER_COL, kit_reduce(c, TNI_max, d, true));
}

// Softmax down the columns: the lane is in P.
static void softmax_down(kit_case *c, int64_t n)
{
    kit_begin(c, 1, (int64_t[]){ n }, 1, (int64_t[]){ 130 }, false);
    int b = kit_buffer(c, TN_F32, n * 130, false), y = kit_buffer(c, TN_F32, n * 130, true);
    int x = kit_load(c, kit_access(c, b, 0, (int64_t[]){ 1, n }, 0));
    int s = kit_load_new(c, TN_F32, TNI_PER_ROW);
    int m = kit_map2(c, TNI_add, kit_reduce(c, TNI_max, x, false), kit_map1(c, TNI_abs, s));
    int e = kit_map1(c, TNI_exp, kit_map2(c, TNI_sub, x, m));
    e     = kit_map2(c, TNI_div, e, kit_reduce(c, TNI_sum, e, false));
    kit_store(c, kit_access(c, y, 0, (int64_t[]){ 1, n }, 0), e);
    store(c, TN_F32, TNI_PER_COL, kit_reduce(c, TNI_sum, e, true));
    store(c, TN_F32, TNI_PER_ONE, kit_reduce(c, TNI_sum, m, true));
}

// Maps of a strip at once: of what lies in memory, of each other, of one value, and of costly ones
// that are read again. Some elements are large angles.
static void turns(kit_case *c, int64_t n)
{
    kit_begin(c, 1, (int64_t[]){ n }, 0, NULL, false);
    int x = kit_load_new(c, TN_F32, TNI_PER_ROW), h = kit_load_new(c, TN_BF16, TNI_PER_ROW);
    int far = scaled(c, kit_map2(c, TNI_mul, x, kit_map2(c, TNI_mul, x, x)), 200000.0);
    int e   = kit_map1(c, TNI_exp, x);
    store(c, TN_F32, TNI_PER_ROW, kit_map1(c, TNI_tan, x));
    store(c, TN_BF16, TNI_PER_ROW, kit_map1(c, TNI_sin, h));
    int s    = kit_map1(c, TNI_sin, far);
    int both = kit_map2(c, TNI_add, kit_map1(c, TNI_cos, far), s);
    store(c, TN_F32, TNI_PER_ROW, kit_map2(c, TNI_mul, both, far));
    store(c, TN_F32, TNI_PER_ROW, kit_map1(c, TNI_cos, scaled(c, kit_map1(c, TNI_sin, e), 3.0)));
    store(c, TN_F32, TNI_PER_ROW, kit_map1(c, TNI_sin, kit_map1(c, TNI_sin, e)));
    store(c, TN_F32, TNI_PER_ONE, kit_reduce(c, TNI_sum, kit_map2(c, TNI_add, e, h), true));
}

// The same where rows are folded: of a row that is kept, kept itself, of a fold, and in the end.
static void turns_in_rows(kit_case *c, int64_t n)
{
    kit_begin(c, 1, (int64_t[]){ 3 }, 1, (int64_t[]){ n + 1 }, true);
    int x = kit_load_new(c, TN_F32, TNI_PER_ELEM);
    int s = kit_map1(c, TNI_sin, scaled(c, x, 700000.0));
    int m = kit_reduce(c, TNI_max, s, false);
    int e = kit_map1(c, TNI_exp, kit_map2(c, TNI_sub, s, m));
    int d = kit_map2(c, TNI_div, e, kit_reduce(c, TNI_sum, e, false));
    store(c, TN_F32, TNI_PER_ELEM, kit_map2(c, TNI_add, kit_map1(c, TNI_cos, e), d));
    store(c, TN_F32, TNI_PER_ROW, kit_map1(c, TNI_sin, m));
    store(c, TN_F32, TNI_PER_COL, kit_map1(c, TNI_tan, kit_reduce(c, TNI_sum, s, true)));
}

static void turns_down(kit_case *c, int64_t n)
{
    kit_begin(c, 1, (int64_t[]){ n }, 1, (int64_t[]){ 13 }, false);
    int b = kit_buffer(c, TN_F32, n * 13, false), y = kit_buffer(c, TN_F32, n * 13, true);
    int x = kit_load(c, kit_access(c, b, 0, (int64_t[]){ 1, n }, 0));
    int t = kit_map1(c, TNI_cos, kit_load_new(c, TN_F32, TNI_PER_ROW));
    int m = kit_map1(c, TNI_sin, kit_reduce(c, TNI_max, kit_map1(c, TNI_sin, x), false));
    int e = kit_map1(c, TNI_tan, kit_map2(c, TNI_mul, x, kit_map1(c, TNI_sin, m)));
    kit_store(c, kit_access(c, y, 0, (int64_t[]){ 1, n }, 0), kit_map2(c, TNI_mul, e, t));
    store(c, TN_F32, TNI_PER_ROW, m);
}

typedef struct {
    const char *name;
    void (*make)(kit_case *c, int64_t n);
} work;

#define WORK(name)  \
    {               \
#name, name \
    }
static const work works[] = {
    WORK(relu_chain),          WORK(softmax_f32),    WORK(softmax_bf16),   WORK(layer_norm),
    WORK(layer_norm_backward), WORK(column_sum),     WORK(full_sum),       WORK(transposed),
    WORK(masked_load),         WORK(random_numbers), WORK(small_integers), WORK(index_inside),
    WORK(index_outside),       WORK(two_axes),       WORK(softmax_down),   WORK(turns),
    WORK(turns_in_rows),       WORK(turns_down),
};
enum { WORKS = sizeof works / sizeof *works };

static bool same_key(const tni_kernel *a, const tni_kernel *b)
{
    static char x[8192], y[8192];
    size_t      n = tni_kernel_key(a, x, sizeof x);
    return n <= sizeof x && n == tni_kernel_key(b, y, sizeof y) && !memcmp(x, y, n);
}

// A work at six sizes, with stores of each kind; kernel[i] of `known` is the one of case i.
static void check_work(const work *w)
{
    static const int64_t sizes[SIZES / WAYS] = { 1, 3, 1023, 1024, 1025, 5000 };
    static kit_case      c[SIZES], twin[SIZES];
    const tni_kernel    *known[SIZES];
    int                  kernel[SIZES], n = 0;
    char                 name[60];
    for (int i = 0; i < SIZES; i++) {
        w->make(&c[i], sizes[i / WAYS]);
        w->make(&twin[i], sizes[i / WAYS]);
        if (!CHECK(kit_end(&c[i]) && kit_end(&twin[i]))) return;
        for (kernel[i] = 0; kernel[i] < n && !same_key(known[kernel[i]], &c[i].k);) kernel[i]++;
        if (kernel[i] == n) known[n++] = &c[i].k;
    }
    void *lib = compile(n, known, false, "");
    if (CHECK(lib != NULL))
        for (int i = 0; i < SIZES; i++) {
            snprintf(name, sizeof name, "%s %d", w->name, (int)sizes[i / WAYS]);
            check_case(lib, kernel[i], &c[i], &twin[i], (tni_c_stores)(i % WAYS), name);
        }
    for (int i = 0; i < SIZES; i++) kit_free(&c[i]), kit_free(&twin[i]);
    if (lib) dlclose(lib);
}

static void kernels_by_hand_are_right_at_every_size(void)
{
    if (!have_compiler()) SKIP("no C compiler was found");
    if (!CHECK(scratch_open())) return;
    for (int i = 0; i < WORKS; i++) check_work(&works[i]);
    scratch_close();
}

// ---- the text ----------------------------------------------------------------------------------

static char *text_of(void (*make)(kit_case *c, int64_t n), const tni_dialect *d, bool no_double)
{
    static kit_case c;
    tni_heap        heap = tni_heap_default();
    make(&c, 100);
    if (!CHECK(kit_end(&c))) return NULL;
    tni_emit_item item = { .kernel = &c.k, .name = "k" };
    char         *text = tni_emit_program(&heap, d, tni_emit_c, 1, &item, no_double);
    kit_free(&c);
    return text;
}

static void the_lane_loop_of_a_chain_reads_as_expected(void)
{
    static const char want[] =
        "                for (; b + lanes <= n; b += lanes) {\n"
        "                    float gp7[lanes];\n"
        "                    M_LANES for (m_long j = b; j < b + lanes; j++) {\n"
        "                        const float v0 = p0[j];\n"
        "                        const float v2 = o_maximum_f(v0, v1);\n"
        "                        const float v4 = o_mul_f(v2, v3);\n"
        "                        const float v5 = o_add_f(v4, v2);\n"
        "                        const float v6 = o_tanh_f(v5);\n"
        "                        gp7[j - b] = v6;\n"
        "                    }\n"
        "                    M_LANES for (m_long j = b; j < b + lanes; j++) p7[j] = gp7[j - b];\n"
        "                }\n"
        "                M_LANES for (m_long j = b; j < n; j++) {\n"
        "                    const float v0 = p0[j];\n"
        "                    const float v2 = o_maximum_f(v0, v1);\n"
        "                    const float v4 = o_mul_f(v2, v3);\n"
        "                    const float v5 = o_add_f(v4, v2);\n"
        "                    const float v6 = o_tanh_f(v5);\n"
        "                    p7[j] = v6;\n"
        "                }\n";
    char *text = text_of(relu_chain, &tni_dialect_c, false);
    if (CHECK(text != NULL)) CHECK(strstr(text, want) != NULL);
    drop(text);
}

static void stores_past_the_caches_read_as_expected(void)
{
    static const char want[] =
        "            for (m_long from = 0, to; from < n; from = to) {\n"
        "                to = stores && n - from > 1024 ? from + 1024 : n;\n"
        "                float k7[1024], *const u7 = stores ? k7 : p7 + from;\n"
        "                M_LANES for (m_long j = from; j < to; j++) {\n"
        "                    const float v0 = p0[j];\n"
        "                    const float v2 = o_maximum_f(v0, v1);\n"
        "                    const float v4 = o_mul_f(v2, v3);\n"
        "                    const float v5 = o_add_f(v4, v2);\n"
        "                    const float v6 = o_tanh_f(v5);\n"
        "                    u7[j - from] = v6;\n"
        "                }\n"
        "                if (stores) m_stream(p7 + from, k7, (to - from) * sizeof *k7, stores);\n"
        "            }\n";
    tni_dialect d = tni_dialect_c;
    d.streams     = true;
    d.reorders    = true;
    char *text    = text_of(relu_chain, &d, false);
    if (CHECK(text != NULL)) CHECK(strstr(text, want) != NULL);
    drop(text);
}

// By blocks of vectors where cores do not reorder, else by pieces of a loop of one vector.
static void the_next_row_is_fetched_on_cores_of_either_kind(void)
{
    tni_dialect d = tni_dialect_c;
    for (int reorders = 0; reorders < 2; reorders++) {
        d.reorders = reorders;
        char *text = text_of(softmax_f32, &d, false);
        if (CHECK(text != NULL)) CHECK(strstr(text, "M_FETCH(n0 + b + j)") != NULL);
        drop(text);
        text = text_of(layer_norm, &d, false);
        if (CHECK(text != NULL)) CHECK(strstr(text, "M_FETCH(n0 + b + j)") != NULL);
        if (text && reorders) CHECK(strstr(text, "for (m_long b = 0, e; b < n; b = e) {") != NULL);
        drop(text);
    }
}

static void sine_and_cosine_are_computed_for_a_strip_at_once(void)
{
    static const char want[] = "m_strip_sin_cos_f(y11, y12, x5, n);\n";
    char             *text   = text_of(turns, &tni_dialect_c, false);
    if (CHECK(text != NULL)) {
        CHECK(strstr(text, want) != NULL);
        CHECK(strstr(text, "o_sin_f") == NULL && strstr(text, "o_cos_f") == NULL);
    }
    drop(text);
}

static void a_program_has_only_what_it_uses(void)
{
    char *text = text_of(relu_chain, &tni_dialect_c, true);
    if (!CHECK(text != NULL)) return;
    CHECK(strstr(text, "double") == NULL);
    CHECK(strstr(text, "M_FN float m_exp_f(") < strstr(text, "M_FN float m_tanh_f("));
    CHECK(strstr(text, "m_log_f") == NULL);
    CHECK(strstr(text, "m_philox") == NULL);
    CHECK(strstr(strstr(text, " o_mul_f(float a") + 1, " o_mul_f(float a") == NULL);
    drop(text);
}

static void softmax_keeps_its_exponentials(void)
{
    static kit_case c;
    int             rows[2];
    softmax_f32(&c, 999);
    if (!CHECK(kit_end(&c))) return;
    tni_emit_c_rows(&c.k, rows);
    CHECK_INT(rows[0], 1);
    CHECK_INT(rows[1], 0);
    CHECK_INT(tni_emit_c_scratch(&c.l), 4032);
    kit_free(&c);
}

static void *refuse(void *user, void *old, size_t n)
{
    int *left = user;
    if (n && (*left)-- <= 0) return NULL;
    return n ? realloc(old, n) : (free(old), NULL);
}

static void memory_that_is_out_gives_no_text(void)
{
    static kit_case c;
    softmax_f32(&c, 20);
    if (!CHECK(kit_end(&c))) return;
    tni_emit_item item = { .kernel = &c.k, .name = "k" };
    char         *text = NULL;
    int           n    = 0;
    for (; !text && n < 100; n++) {
        int      left = n;
        tni_heap heap = { .alloc = refuse, .user = &left };
        text          = tni_emit_program(&heap, &tni_dialect_c, tni_emit_c, 1, &item, false);
    }
    CHECK(text != NULL && n > 3);
    drop(text);
    kit_free(&c);
}

// ---- which launches store by strips ------------------------------------------------------------

enum { LARGE_CACHE = 2 << 20, SMALL_CACHE = 1 << 20, MUCH = 1 << 28, LITTLE = 1 << 14 };

// How a launch of a kernel with that many rows and columns stores, under a setting of the knob,
// where a core has `cache` bytes; shared: it writes over what it reads. Nothing is launched: sizes
// are those of a GiB.
static tni_c_stores stores(int64_t cache, void (*make)(kit_case *c, int64_t n), int64_t rows,
                           int64_t columns, int set, bool shared)
{
    static kit_case c;
    tni_tuning      t = { { 0 } };
    make(&c, 100);
    if (!CHECK(kit_end(&c))) return TNI_STORES_DIRECT;
    t.of[TNI_KNOB_STREAM] = (uint8_t)set;
    c.l.size[0]           = rows;
    if (c.k.np + c.k.nr > 1) c.l.size[1] = columns;
    if (shared) c.l.buffer[0] = c.l.buffer[c.k.nbuffer - 1];
    tni_c_stores how = tni_cpu_stores_with(cache, &c.l, 2, set ? &t : NULL);
    kit_free(&c);
    return how;
}

static void launches_that_write_much_write_past_the_caches(void)
{
    tni_c_stores past = tni_cpu_dialect().streams ? TNI_STORES_PAST : TNI_STORES_DIRECT;
    CHECK_INT(stores(LARGE_CACHE, relu_chain, MUCH, 0, 0, false), past);
    CHECK_INT(stores(LARGE_CACHE, relu_chain, MUCH, 0, 1, false), past);
    CHECK_INT(stores(LARGE_CACHE, relu_chain, MUCH, 0, 2, false), TNI_STORES_DIRECT);
    CHECK_INT(stores(LARGE_CACHE, relu_chain, LITTLE, 0, 0, false), TNI_STORES_DIRECT);
    CHECK_INT(stores(LARGE_CACHE, relu_chain, LITTLE, 0, 1, false), TNI_STORES_DIRECT);
    CHECK_INT(stores(LARGE_CACHE, relu_chain, MUCH, 0, 0, true), TNI_STORES_DIRECT);
    CHECK_INT(stores(LARGE_CACHE, softmax_f32, MUCH / 4096, 4096, 0, false), past);
    CHECK_INT(stores(LARGE_CACHE, softmax_f32, MUCH / 65, 65, 0, false), TNI_STORES_DIRECT);
    CHECK_INT(stores(LARGE_CACHE, column_sum, MUCH / 4096, 4096, 0, false), TNI_STORES_DIRECT);
}

static void where_cores_hold_little_rows_are_stored_by_strips(void)
{
    bool         can    = tni_cpu_dialect().streams;
    tni_c_stores past   = can ? TNI_STORES_PAST : TNI_STORES_DIRECT;
    tni_c_stores strips = can ? TNI_STORES_STRIPS : TNI_STORES_DIRECT;
    CHECK_INT(stores(SMALL_CACHE, relu_chain, MUCH, 0, 0, false), TNI_STORES_DIRECT);
    CHECK_INT(stores(SMALL_CACHE, relu_chain, MUCH, 0, 1, false), past);
    CHECK_INT(stores(SMALL_CACHE, relu_chain, MUCH, 0, 3, false), strips);
    CHECK_INT(stores(SMALL_CACHE, relu_chain, LITTLE, 0, 3, false), TNI_STORES_DIRECT);
    CHECK_INT(stores(SMALL_CACHE, softmax_f32, MUCH / 4096, 4096, 0, false), strips);
    CHECK_INT(stores(SMALL_CACHE, softmax_f32, LITTLE / 4096, 4096, 0, false), TNI_STORES_DIRECT);
}

// ---- other chips -------------------------------------------------------------------------------

// A cast to each dtype, alone: no other kernel's functions make up for what its text lacks.
static void check_cast(tn_dtype to)
{
    // This chip, one that the prelude knows nothing of, and one of ARM, whose text is not to be run
    // here.
    static const char *const chips[] = { "", "-U__x86_64__ -U__aarch64__", "-D__aarch64__" };
    static kit_case          c;
    const tni_kernel        *k = &c.k;
    kit_begin(&c, 1, (int64_t[]){ 100 }, 0, NULL, false);
    store(&c, to, TNI_PER_ROW, kit_cast(&c, to, kit_load_new(&c, TN_F32, TNI_PER_ROW)));
    if (!CHECK(kit_end(&c))) return;
    for (size_t i = 0; i < sizeof chips / sizeof *chips; i++) {
        void *lib = compile(1, &k, true, chips[i]);
        test_case_result(lib != NULL, "cast to %s with \"%s\"", tn_dtype_name(to), chips[i]);
        if (lib) dlclose(lib);
    }
    kit_free(&c);
}

static void programs_name_all_that_they_call_on_any_chip(void)
{
    if (!have_compiler()) SKIP("no C compiler was found");
    if (!CHECK(scratch_open())) return;
    for (int dt = TN_BOOL; dt <= TN_F64; dt++) check_cast((tn_dtype)dt);
    scratch_close();
}

// ---- at random ---------------------------------------------------------------------------------

// Options for the widest vectors of this chip: without them x86 has those of 16 bytes. gcc 12 takes
// for possible there that a fold of lanes begins with none.
static const char *wide_vectors(void)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f")) return "-mavx512f -Wno-maybe-uninitialized";
    if (__builtin_cpu_supports("avx2")) return "-mavx2 -Wno-maybe-uninitialized";
#endif
    return "";
}

// Seeds are odd and even in turn: for cores that reorder or not.
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
    void *lib = compile(n, k, seed % 2, seed % 2 ? wide_vectors() : "");
    if (CHECK(lib != NULL))
        for (int i = 0; i < n; i++) {
            snprintf(name, sizeof name, "kernel of seed %llu", (unsigned long long)c[i].seed);
            check_case(lib, i, &c[i], &twin[i], (tni_c_stores)(i % WAYS), name);
        }
    for (int i = 0; i < n; i++) kit_free(&c[i]), kit_free(&twin[i]);
    if (lib) dlclose(lib);
}

static void random_kernels_give_the_bits_of_the_interpreter(void)
{
    if (!have_compiler()) SKIP("no C compiler was found");
    if (!CHECK(scratch_open())) return;
    for (uint64_t seed = 1; seed <= RANDOM; seed += BATCH + 1) check_random(seed);
    scratch_close();
}

const test_case tests_emit[] = {
    TEST(kernels_by_hand_are_right_at_every_size),
    TEST(the_lane_loop_of_a_chain_reads_as_expected),
    TEST(stores_past_the_caches_read_as_expected),
    TEST(the_next_row_is_fetched_on_cores_of_either_kind),
    TEST(sine_and_cosine_are_computed_for_a_strip_at_once),
    TEST(a_program_has_only_what_it_uses),
    TEST(softmax_keeps_its_exponentials),
    TEST(memory_that_is_out_gives_no_text),
    TEST(launches_that_write_much_write_past_the_caches),
    TEST(where_cores_hold_little_rows_are_stored_by_strips),
    TEST(programs_name_all_that_they_call_on_any_chip),
    TEST(random_kernels_give_the_bits_of_the_interpreter),
    TEST_END,
};
