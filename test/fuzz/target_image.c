// Fuzzes the reader of pictures: PNG of every kind, JPEG where its library is installed, and the
// portable maps. What the header says must be refused or be small; a middle square of any picture
// is a square in [0, 1].
#include "fuzz.h"
#include "picture_files.h"

#include <string.h>

enum { W = 40, H = 33, MOST_PIXELS = 1 << 16 };  // large enough to be decoded at an eighth

static void seed_png(int colour, int bits, const unsigned char *pixels)
{
    static const unsigned char palette[] = { 9, 8, 7, 60, 50, 40, 250, 200, 150, 1, 2, 3 };

    unsigned char file[PICTURE_ROOM], alpha[4] = { 0, 100, 255, 255 };
    png_file      p = { W, H, colour, bits, pixels, NULL, NULL, 0 };
    if (colour == 3) p.palette = palette, p.alpha = alpha, p.colours = 4;
    fuzz_seed(file, png_write(file, &p));
}

static void seeds(void)
{
    static const int kinds[][2] = { { 0, 1 }, { 0, 8 }, { 0, 16 }, { 2, 8 },
                                    { 3, 2 }, { 4, 8 }, { 6, 16 } };

    unsigned char pixels[W * H * 8], file[PICTURE_ROOM];
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (unsigned char)(i * 37);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        seed_png(kinds[i][0], kinds[i][1], pixels);
    for (int c = 1; c <= 4; c++) {
        size_t n = c == 2 ? 0 : jpeg_write(file, PICTURE_ROOM - 64, W, H, c, pixels, 100);
        if (n && c == 3) n = jpeg_turn(file, n, 6);
        if (n) fuzz_seed(file, n);
    }
    fuzz_seed("P5 2 1 255\nab", 13);
    fuzz_seed("P3 1 1 2 0 1 2", 14);
}

static uint64_t run(const unsigned char *data, size_t n)
{
    tn_ctx       *cx   = fuzz_open();
    const char   *path = fuzz_file("a.png", data, n);
    tn_image_opts o    = { .most_pixels = MOST_PIXELS };
    tn_tensor    *t    = tn_image_read_with(cx, path, o);
    uint64_t      look = 0;
    FUZZ_CHECK((t == NULL) == (tn_error(cx) != TN_OK));
    if (t) {
        look = fuzz_join((uint64_t)tn_size(t, 0), (uint64_t)(tn_size(t, 1) > tn_size(t, 2)));
        FUZZ_CHECK(tn_item(tn_max_all(t)) < 1.001 && tn_item(tn_min_all(t)) >= 0);
        o.size     = 2;
        o.channels = 3;
        t          = tn_image_read_with(cx, path, o);
        FUZZ_CHECK(t && tn_item(tn_max_all(t)) < 1.001 && tn_item(tn_min_all(t)) >= 0);
    }
    return fuzz_join(look, fuzz_close(cx, n));
}

static const char *const tokens[] = {
    "IHDR",     "PLTE",     "IDAT",     "tRNS",     "IEND",     "gAMA",     "\xff\xd8\xff",
    "\xff\xda", "\xff\xc4", "\xff\xdb", "\xff\xc0", "\xff\xc2", "\xff\xd9", "\xff\xe1",
    "Exif",     "MM",       "II",       "P6",       NULL
};

const fuzz_target fuzz_image = { .name = "image", .seeds = seeds, .run = run, .tokens = tokens };
