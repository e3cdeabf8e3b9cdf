// loading.c: batches of pictures for training from a folder of JPEG files, as large as ImageNet's:
// decoded, a random part resized to 224 x 224, half of them mirrored. With one thread and with all,
// in turn with torchvision.
#include "bench.h"
#include "picture_files.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { W = 500, H = 375, FILES = 64, BATCH = 64, ROOM = 1 << 20, ROUNDS = 3 };

static char folder[256];

// Smooth shapes with some noise, which make a file of about 110 KB, as ImageNet's are on average.
static void draw(unsigned char *p, int n)
{
    unsigned noise = 12345u + (unsigned)n;
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++)
            for (int c = 0; c < 3; c++) {
                noise    = noise * 1664525u + 1013904223u;
                double v = 128 + 60 * sin(0.02 * x * (1 + n % 5) + c) + 50 * cos(0.03 * y + n * c);
                *p++     = (unsigned char)(v + (double)(noise >> 28) - 7.5);
            }
}

static bool make_folder(void)
{
    unsigned char *pixels = malloc(W * H * 3), *file = malloc(ROOM);
    char           path[320];
    bool           ok   = pixels && file;
    const char    *temp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/tenon-pictures-XXXXXX", temp && *temp ? temp : "/tmp");
    ok = ok && mkdtemp(folder);
    snprintf(path, sizeof path, "%s/a", folder);
    ok = ok && mkdir(path, 0700) == 0;
    for (int i = 0; i < FILES && ok; i++) {
        draw(pixels, i);
        size_t n = jpeg_write(file, ROOM, W, H, 3, pixels, 94);
        snprintf(path, sizeof path, "%s/a/%d.jpg", folder, i);
        FILE *f = n ? fopen(path, "wb") : NULL;
        ok      = f && fwrite(file, 1, n, f) == n;
        if (f) ok = fclose(f) == 0 && ok;
    }
    free(pixels);
    free(file);
    return ok;
}

static void remove_folder(void)
{
    char path[320];
    for (int i = 0; i < FILES; i++) {
        snprintf(path, sizeof path, "%s/a/%d.jpg", folder, i);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/a", folder);
    rmdir(path);
    rmdir(folder);
}

typedef struct {
    tn_ctx  *cx;
    tn_data *data;
} loading;

static void next_batch(void *arg)
{
    loading  *l = arg;
    tn_scope *s = tn_begin(l->cx);
    tn_next(l->data, BATCH);
    tn_end(s);
}

// The two take turns, so that what else the machine does is done to both.
static void measure(int threads)
{
    char       what[64], of[96];
    double     ours[ROUNDS], theirs[ROUNDS];
    int        rounds = bench_peers() ? ROUNDS : 1;
    bench_peer peer   = { .seconds = NAN };
    tn_ctx    *cx = bench_open((tn_open_opts){ .device = "cpu", .seed = 1, .threads = threads });
    loading    l  = { cx, tn_images(cx, folder, (tn_image_opts){ .threads = threads }) };
    tn_data_augment(l.data, (tn_augment_opts){ .resized_crop = true, .flip = true });
    for (int i = 0; i < rounds; i++) {
        ours[i]   = bench_median(next_batch, &l);
        peer      = bench_ask_peer("pictures", threads);
        theirs[i] = peer.seconds;
    }
    bench_check(cx);
    tn_close(cx);
    if (isnan(peer.seconds) && bench_peers()) bench_note("pictures", "no torchvision found");
    double mine = BATCH / bench_middle(ours, rounds);
    double its  = isnan(peer.seconds) ? NAN : BATCH / bench_middle(theirs, rounds);
    snprintf(what, sizeof what, "JPEG of 500 x 375 to 224 x 224, %d thread%s", threads,
             threads > 1 ? "s" : "");
    snprintf(of, sizeof of, "torchvision, %s (%.0f)", peer.name, its);
    bench_add((bench_row){ "pictures", what, mine, "img/s", mine / its, of });
}

void bench_pictures(void)
{
    if (!has_libturbojpeg()) {
        bench_note("pictures", "no libturbojpeg found");
        return;
    }
    int threads[BENCH_THREAD_COUNTS], n = bench_thread_counts(threads, true);
    if (!make_folder()) bench_note("pictures", "no folder in /tmp");
    else {
        setenv("TN_BENCH_PICTURES", folder, 1);
        for (int k = 0; k < n; k++) measure(threads[k]);
    }
    remove_folder();
}
