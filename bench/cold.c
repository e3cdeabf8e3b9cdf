// cold.c: the first training step of a process that finds nothing compiled on disk. The compiler
// runs at the same time, and nothing waits for it.
#include "bench.h"

#include "device/cpu/command.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <tenon/models.h>

// B batch
enum { B = 64, PIXELS = 784, PROCESSES = 7 };

// Prints how long the first step takes, from recording its forward pass to the return of tn_step.
void bench_cold_child(void)
{
    static float   x[B * PIXELS];
    static int64_t y[B];
    for (int i = 0; i < B * PIXELS; i++) x[i] = (float)(i * 31 % 255) / 255;
    for (int i = 0; i < B; i++) y[i] = i * 7 % 10;
    tn_ctx    *cx    = bench_open((tn_open_opts){ .device = "cpu", .seed = 1 });
    tn_layer  *net   = tn_mlp(cx, TN_SHAPE(PIXELS, 128, 10));
    tn_optim  *opt   = tn_adam(net, (tn_adam_opts){ .lr = 1e-3f });
    tn_tensor *image = tn_from(cx, TN_F32, TN_SHAPE(B, PIXELS), x);
    tn_tensor *digit = tn_from(cx, TN_I64, TN_SHAPE(B), y);
    double     start = bench_seconds();
    tn_step(opt, tn_cross_entropy(tn_forward(net, image), digit));
    double took = bench_seconds() - start;
    bench_check(cx);
    printf("seconds %.9f\n", took);
    tn_close(cx);
}

// One process, with an empty cache.
static double first_step(const tni_runner *r)
{
    char     before[TNI_FOLDER + 64], folder[TNI_FOLDER];
    tni_text why;
    if (!tni_folder_make(r, folder, &why)) return NAN;
    snprintf(before, sizeof before, "TN_COMPILE=later TN_CACHE_DIR='%s'", folder);
    double took = bench_child(before, "--child cold", "seconds ");
    tni_folder_remove(folder);
    return took;
}

void bench_cold(void)
{
    double     took[PROCESSES];
    int        n = 0;
    tni_runner r;
    if (!tni_runner_open(&r, 0)) return;
    for (int i = 0; i < (bench_quick() ? 1 : PROCESSES); i++) {
        double t = first_step(&r);
        if (!isnan(t)) took[n++] = t;
    }
    tni_runner_close(&r);
    if (!n) {
        bench_note("cold", "the first step could not be measured");
        return;
    }
    bench_row row = { "cold", "first mlp step, batch 64", bench_middle(took, n) * 1e3, "ms", NAN,
                      NULL };
    bench_add_wanted(row, (bench_wanted){ .value = 50 });
}
