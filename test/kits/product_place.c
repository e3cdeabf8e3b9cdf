// product_place.c: a fake cuBLASLt in this process, and products to run by it.
#include "product_place.h"

#include "check.h"
#include "fake_clock.h"
#include "scratch.h"
#include "tree.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

fake_state *product_fake;

static _Alignas(64) char workspace[PRODUCT_WORKSPACE];
tni_product_env product_place;

void *product_compile_fake(const char *source, const char *soname, char *out, size_t size)
{
    char command[1200];
    snprintf(command, sizeof command,
             TN_CC " -std=c11 -O1 -shared -fPIC -D_GNU_SOURCE -Wl,-soname,%s -Iinclude "
                   "-Isrc -Itest/kits -o '%s' test/cuda/fake/%s test/kits/host.c -lm",
             soname, scratch_path(soname), source);
    if (tree_run(command, out, size) != 0) return NULL;
    return dlopen(scratch_path(soname), RTLD_NOW | RTLD_LOCAL);
}

bool product_begin(void)
{
    static void *library;
    char         out[1000] = "";
    if (!CHECK(scratch_open())) return false;
    if (!library)
        library = product_compile_fake("fake_blaslt.c", "libcublasLt.so.13", out, sizeof out);
    if (!test_that(library != NULL, "the fake library: %s", out)) return false;
    fake_state *(*get)(void);
    *(void **)&get        = dlsym(library, "fake_get");
    product_fake          = get();
    product_fake->algos   = 12;
    product_fake->fastest = PRODUCT_FASTEST;
    product_fake->broken  = 0;
    product_fake->fails   = false;
    product_fake->cost    = 0;
    product_fake->tile = product_fake->liar = 0;
    product_fake->calm                      = 1 << 20;
    product_fake->lies                      = FAKE_SCALES;
    product_fake->stream                    = fake_clock_open(&product_fake->milliseconds);
    product_place                           = (tni_product_env){ .cu        = &fake_clock_driver,
                                                                 .gpu       = "fake",
                                                                 .stream    = product_fake->stream,
                                                                 .workspace = (tni_cuptr)(uintptr_t)workspace,
                                                                 .bytes     = PRODUCT_WORKSPACE,
                                                                 .timing    = true };
    setenv("TN_CACHE_DIR", scratch_path("cache"), 1);
    tni_product_forget();
    return true;
}

void product_end(void)
{
    tni_product_forget();
    if (product_fake) CHECK_INT(product_fake->alive + fake_clock_left(), 0);
    unsetenv("TN_CACHE_DIR");
    scratch_close();
}

int64_t product_timed(void)
{
    int64_t timed, found;
    tni_product_counts(&timed, &found);
    return timed;
}

int64_t product_found(void)
{
    int64_t timed, found;
    tni_product_counts(&timed, &found);
    return found;
}

static tni_arg matrix(char *mem, int64_t rows, int64_t cols)
{
    return (tni_arg){ TN_F32, 2, { rows, cols }, { cols, 1 }, mem };
}

void product_make_small(product_small *s)
{
    s->in[0] = matrix(s->a, 3, 4);
    s->in[1] = matrix(s->b, 4, 5);
    s->call  = (tni_call){ .op = TNI_matmul, .nin = 2, .in = s->in, .out = matrix(s->out, 3, 5) };
    for (int i = 0; i < 12; i++) ((float *)s->a)[i] = 1;
    for (int i = 0; i < 20; i++) ((float *)s->b)[i] = 1;
    for (int i = 0; i < 15; i++) ((float *)s->out)[i] = 8;
    CHECK(tni_product_of(&s->call, &s->p));
}

int product_prepare_and_run(product_small *s)
{
    tni_text why = { "" };
    CHECK_STATUS(tni_product_prepare(&s->p, &product_place, &why), TN_OK);
    CHECK_STATUS(tni_product_run(&s->p, &product_place, &why), TN_OK);
    CHECK_STR(why.s, "");
    return product_fake->last;
}
