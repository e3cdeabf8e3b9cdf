// The table as text, compiled by the system's compiler, against the table as the library compiled
// it: the two must agree in every bit.
#include "check.h"
#include "kernel/op_text.h"
#include "ops/ops.h"
#include "tensor/dtype.h"
#include "kernel/prelude_text.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <tenon.h>
#include <unistd.h>

enum { N = 4096 };

static const tn_dtype kinds[] = { TN_F32, TN_F64, TN_I32, TN_I64 };

static void write_pieces(FILE *f, const char *const *piece)
{
    for (; *piece; piece++) fputs(*piece, f);
}

// One loop over arrays for every op and type, so that the test calls each once.
static void write_loop(FILE *f, const char *name, int op, tn_dtype dt)
{
    static const char *const types[] = {
        [TN_F32] = "float", [TN_F64] = "double", [TN_I32] = "m_int", [TN_I64] = "m_long"
    };
    const tni_op_facts *o = &tni_op_table[op];
    const char         *y = o->rule == TNI_TO_BOOL ? "unsigned char" : types[dt];
    fprintf(
        f,
        "void loop_%s(%s *y, const %s *a, const %s *b, int n)\n{ (void)b; for (int i = 0; i < n; i++) ",
        name, y, types[dt], types[dt]);
    if (o->class == TNI_TERNARY) fprintf(f, "y[i] = %s(a[i] > 0, a[i], b[i]); }\n", name);
    else
        fprintf(f, o->class == TNI_BINARY ? "y[i] = %s(a[i], b[i]); }\n" : "y[i] = %s(a[i]); }\n",
                name);
}

static void *compile_table(char *dir)
{
    char path[300], command[900], text[1000];
    snprintf(path, sizeof path, "%s/table.c", dir);
    FILE *f = fopen(path, "w");
    if (!f) return NULL;
    write_pieces(f, tni_prelude_c);
    write_pieces(f, tni_prelude_text);
    for (int op = 0; op < TNI_OPS; op++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            char name[80];
            snprintf(name, sizeof name, "k_%s_%s", tni_op_table[op].name, tn_dtype_name(kinds[k]));
            if (!tni_op_text(text, sizeof text, name, op, kinds[k])) continue;
            fputs("static inline ", f);
            fputs(text, f);
            write_loop(f, name, op, kinds[k]);
        }
    fclose(f);
    snprintf(command, sizeof command,
             "%s -std=c11 -O2 -ffp-contract=off -fwrapv -fno-math-errno -fno-trapping-math -shared "
             "-fPIC -o %s/table.so %s -lm",
             TN_CC, dir, path);
    if (system(command) != 0) return NULL;
    snprintf(path, sizeof path, "%s/table.so", dir);
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

// The op by the library, through public calls alone.
static tn_tensor *by_library(int op, tn_tensor *a, tn_tensor *b)
{
    if (tni_op_table[op].class == TNI_TERNARY) return tn_where(tn_gt_s(a, 0), a, b);
    if (op == TNI_cast) return tn_clone(a);
    return tni_op_table[op].class == TNI_BINARY ? tni_binary(op, a, b) : tni_unary(op, a);
}

static bool agrees(void *lib, tn_ctx *cx, int op, tn_dtype dt, const void *a, const void *b)
{
    static _Alignas(64) char mine[N * 8], text[N * 8];
    char                     name[100];
    snprintf(name, sizeof name, "loop_k_%s_%s", tni_op_table[op].name, tn_dtype_name(dt));
    void *sym = dlsym(lib, name);
    if (!sym) return false;
    void (*loop)(void *, const void *, const void *, int);
    memcpy(&loop, &sym, sizeof loop);
    loop(text, a, b, N);
    tn_scope  *s = tn_begin(cx);
    tn_tensor *y = by_library(op, tn_from(cx, dt, TN_SHAPE(N), a), tn_from(cx, dt, TN_SHAPE(N), b));
    bool       ok   = y && tn_read(y, tn_dtype_of(y), mine, N) == TN_OK;
    size_t     each = tni_dtype_size(tn_dtype_of(y));
    for (int i = 0; ok && i < N; i++) {
        double p = 0, q = 0;
        if (dt == TN_F64 && each == 8) memcpy(&p, mine + i * 8, 8), memcpy(&q, text + i * 8, 8);
        if (dt == TN_F32 && each == 4) p = ((float *)mine)[i], q = ((float *)text)[i];
        bool both_nan = p != p && q != q;
        ok            = both_nan || !memcmp(mine + i * each, text + i * each, each);
    }
    tn_end(s);
    return ok;
}

static void fill(tn_ctx *cx, tn_dtype dt, void *dst, uint64_t seed)
{
    tn_seed(cx, seed);
    tn_scope  *s = tn_begin(cx);
    tn_tensor *x = tni_is_float(dt) ? tn_mul_s(tn_randn(cx, dt, TN_SHAPE(N)), 8)
                                    : tn_randint(cx, dt, -100, 100, TN_SHAPE(N));
    tn_read(x, dt, dst, N);
    tn_end(s);
}

static void the_text_of_every_map_gives_the_bits_of_the_library(void)
{
    static _Alignas(64) char a[N * 8], b[N * 8];
    char                     dir[] = "/tmp/tenon-text-XXXXXX", rm[100], text[1000];
    if (system(TN_CC " --version > /dev/null 2>&1") != 0) SKIP("no C compiler was found");
    if (!CHECK(mkdtemp(dir) != NULL)) return;
    void   *lib = compile_table(dir);
    tn_ctx *cx  = tn_open("cpu");
    if (CHECK(lib != NULL))
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            fill(cx, kinds[k], a, 1);
            fill(cx, kinds[k], b, 2);
            for (int op = 0; op < TNI_OPS; op++) {
                if (!tni_op_text(text, sizeof text, "f", op, kinds[k])) continue;
                test_case_result(agrees(lib, cx, op, kinds[k], a, b), "%s %s: text and library",
                                 tni_op_table[op].name, tn_dtype_name(kinds[k]));
            }
        }
    if (lib) dlclose(lib);
    tn_close(cx);
    snprintf(rm, sizeof rm, "rm -r %s", dir);
    CHECK_INT(system(rm), 0);
}

const test_case tests_op_text[] = {
    TEST(the_text_of_every_map_gives_the_bits_of_the_library),
    TEST_END,
};
