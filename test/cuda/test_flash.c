// test_flash.c: the kernels of attention on the tensor cores: that their texts compile for the chips
// that they are for, fit into them and spill nothing; and, where there is a GPU, what they give, over
// every option.
#include "check.h"

#include "device/cuda/cubin.h"
#include "device/cuda/driver.h"
#include "device/cuda/flash.h"

#include <stdio.h>
#include <string.h>

// ---- texts -------------------------------------------------------------------------------------

// What one block may use on every chip of a kind: bytes of shared memory.
enum { HOPPER_SHARED = 227 * 1024, AMPERE_SHARED = 163 * 1024 };

static void compile_case(const tni_flash_case *x)
{
    tni_heap    heap = tni_heap_default();
    tni_text    why  = { "" };
    tni_cubin   c    = { 0 };
    tni_usage   u    = { 0 };
    const char *name = tni_flash_kernel(x->part), *chip = x->wgmma ? "sm_90a" : "sm_80";
    char       *text = tni_flash_source(&heap, x);
    if (!CHECK(text != NULL)) return;
    CHECK_INT(strstr(text, "wgmma.") != NULL, x->wgmma);
    tn_status s = tni_cubin_compile(&c, text, chip, true, &why);
    test_case_result(s == TN_OK && !strstr(c.log, "warning"), "%s for %s, D %d, E %d: %s", name,
                     chip, x->D, x->E, s == TN_OK ? c.log : why.s);
    if (s == TN_OK && CHECK(tni_cubin_usage(&c, name, &u)))
        test_case_result(u.spills == 0 && u.stack == 0 && !strstr(c.log, "serialized"),
                         "%s for %s, D %d, E %d: %d bytes spilled, %d of stack", name, chip, x->D,
                         x->E, u.spills, u.stack);
    test_case_result(u.shared + tni_flash_shared(x) <= (x->wgmma ? HOPPER_SHARED : AMPERE_SHARED),
                     "%s for %s, D %d, E %d: %d bytes of shared memory", name, chip, x->D, x->E,
                     u.shared + tni_flash_shared(x));
    tni_cubin_free(&c);
    tni_free(&heap, text);
}

// Every kernel by both kinds of product at the widths that choose other tiles; options are spread over
// them.
static void texts_compile_for_their_chips_and_do_not_spill(void)
{
    static const struct {
        int D, E;
    } widths[]   = { { 64, 64 }, { 128, 128 }, { 256, 256 } };
    tni_text why = { "" };
    if (!tni_nvrtc_get(&why)) SKIP("%s", why.s);
    int n = test_long() ? 3 : 2;
    for (int part = TNI_FLASH_FORWARD; part <= TNI_FLASH_KEYS; part++)
        for (int i = 0; i < n; i++)
            for (int wgmma = 0; wgmma < 2; wgmma++)
                compile_case(&(tni_flash_case){ .part    = (tni_flash_part)part,
                                                .D       = widths[i].D,
                                                .E       = widths[i].E,
                                                .aligned = true,
                                                .wgmma   = wgmma,
                                                .causal  = true });
}

static void texts_of_every_option_compile(void)
{
    tni_text why = { "" };
    if (!tni_nvrtc_get(&why)) SKIP("%s", why.s);
    tni_flash_case all = { .D       = 64,
                           .E       = 64,
                           .rows    = 1,
                           .aligned = true,
                           .window  = true,
                           .lengths = true,
                           .dropout = true,
                           .f16     = true,
                           .mask    = TNI_FLASH_ADDED_MASK };
    for (int part = TNI_FLASH_FORWARD; part <= TNI_FLASH_DECODE; part++) {
        all.part = (tni_flash_part)part;
        compile_case(&all);
    }
    compile_case(&(tni_flash_case){
        .part = TNI_FLASH_KEYS, .D = 33, .E = 7, .causal = true, .mask = TNI_FLASH_BOOL_MASK });
    for (int rows = 1; rows <= TNI_FLASH_DECODE_ROWS; rows *= 8)
        compile_case(&(tni_flash_case){ .part    = TNI_FLASH_DECODE,
                                        .D       = 128,
                                        .E       = 128,
                                        .rows    = rows,
                                        .aligned = true,
                                        .causal  = true,
                                        .lengths = true });
}

const test_case tests_flash[] = {
    TEST(texts_compile_for_their_chips_and_do_not_spill),
    TEST(texts_of_every_option_compile),
    TEST_END,
};
