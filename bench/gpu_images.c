// gpu_images.c: training on 60,000 images from IDX files, as a user waits for it: from the start of
// the process to its end, with an empty cache of kernels and with a full one.
//
// B batch
#include "gpu_kit.h"

#include "device/cpu/command.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon/models.h>

enum { COUNT = 60000, QUICK_COUNT = 600, PIXELS = 784, B = 512, EPOCHS = 5, WARM_RUNS = 5 };

static const char group[] = "gpu_images";

// ---- the images --------------------------------------------------------------------------------

static uint32_t mixed(uint32_t i)
{
    i = (i ^ i >> 16) * 0x7feb352du;
    i = (i ^ i >> 15) * 0x846ca68bu;
    return i ^ i >> 16;
}

// A digit is a pattern of its own under noise, so that a network can learn it.
static void draw(uint8_t *image, int digit, uint32_t number)
{
    for (uint32_t i = 0; i < PIXELS; i++) {
        uint32_t pattern = mixed((uint32_t)digit * PIXELS + i) & 63;
        uint32_t noise   = mixed(0x10000 + number * PIXELS + i) % 192;
        image[i]         = (uint8_t)(pattern + noise);
    }
}

static void put_number(FILE *f, uint32_t v)
{
    for (int shift = 24; shift >= 0; shift -= 8) fputc((int)(v >> shift & 255), f);
}

static bool write_images(const char *folder, uint32_t count)
{
    char path[TNI_FOLDER + 64];
    snprintf(path, sizeof path, "%s/train-images-idx3-ubyte", folder);
    FILE *images = fopen(path, "wb");
    snprintf(path, sizeof path, "%s/train-labels-idx1-ubyte", folder);
    FILE *labels = fopen(path, "wb");
    if (images && labels) {
        const uint32_t head[] = { 0x803, count, 28, 28 };
        for (int i = 0; i < 4; i++) put_number(images, head[i]);
        put_number(labels, 0x801);
        put_number(labels, count);
    }
    for (uint32_t i = 0; images && labels && i < count; i++) {
        uint8_t image[PIXELS];
        int     digit = (int)(mixed(i) % 10);
        draw(image, digit, i);
        fwrite(image, 1, PIXELS, images);
        fputc(digit, labels);
    }
    bool ok = images && labels;
    if (images && fclose(images)) ok = false;
    if (labels && fclose(labels)) ok = false;
    return ok;
}

// ---- the program -------------------------------------------------------------------------------

// What a user's program would do, and prints at its end. TN_BENCH_IMAGES is the folder.
void bench_gpu_images_child(void)
{
    tn_ctx *cx = gpu_open(group, true);
    if (!cx) exit(1);
    tn_data  *data = tn_idx(cx, getenv("TN_BENCH_IMAGES"), false);
    tn_layer *net  = tn_mlp(cx, TN_SHAPE(PIXELS, 256, 128, 10));
    tn_optim *opt  = tn_adam(net, (tn_adam_opts){ .lr = 1e-3f });
    double    last = NAN;
    for (int epoch = 0; epoch < EPOCHS && tn_error(cx) == TN_OK;) {
        tn_scope  *s    = tn_begin(cx);
        tn_batch   b    = tn_next(data, B);
        tn_tensor *loss = tn_cross_entropy(tn_forward(net, b.x), b.y);
        tn_step(opt, loss);
        epoch += b.last;
        if (epoch == EPOCHS) last = tn_item(loss);
        tn_end(s);
    }
    if (!gpu_is_well(cx, group, "training")) exit(1);
    printf("loss %.6f\n", last);
    tn_close(cx);
}

// ---- measuring ---------------------------------------------------------------------------------

// Seconds of a process; NAN, with a note, if it fails or has learnt nothing.
static double run_once(const char *images, const char *cache)
{
    char before[2 * TNI_FOLDER + 128];
    snprintf(before, sizeof before, "TN_BENCH_IMAGES='%s' TN_CACHE_DIR='%s'", images, cache);
    double start = bench_seconds();
    double loss  = bench_child(before, "--child images", "loss ");
    double took  = bench_seconds() - start;
    if (loss < (bench_quick() ? 3 : 0.3)) return took;
    bench_note(group, "the loss after %d epochs is %g", EPOCHS, loss);
    return NAN;
}

static void measure(const char *images, const char *cache)
{
    double took[WARM_RUNS];
    int    runs = bench_quick() ? 1 : WARM_RUNS;
    double cold = run_once(images, cache);
    for (int i = 0; i < runs; i++) took[i] = run_once(images, cache);
    double    warm = bench_middle(took, runs);
    bench_row c    = { group, "60,000 images, 5 epochs, cold", cold, "s", NAN, NULL };
    bench_row w    = { group, "60,000 images, 5 epochs, warm", warm, "s", NAN, NULL };
    if (!isnan(cold)) bench_add_wanted(c, (bench_wanted){ .value = 4 });
    if (!isnan(warm)) bench_add_wanted(w, (bench_wanted){ .value = 1.5 });
}

void bench_gpu_images(void)
{
    char       images[TNI_FOLDER], cache[TNI_FOLDER];
    tni_text   why = { "" };
    tni_runner r;
    if (!gpu_there(group) || !tni_runner_open(&r, 0)) return;
    bool a = tni_folder_make(&r, images, &why), b = tni_folder_make(&r, cache, &why);
    if (a && b && write_images(images, bench_quick() ? QUICK_COUNT : COUNT)) measure(images, cache);
    else bench_note(group, "no folder for images: %s", why.s);
    if (a) tni_folder_remove(images);
    if (b) tni_folder_remove(cache);
    tni_runner_close(&r);
}
