// PNG by a libpng that is found at run time, through its simplified interface, which has been the
// same since 1.6 and returns where the other one jumps. What is used of it is declared here.
#include "base/find_libraries.h"
#include "data/picture.h"

#include <pthread.h>
#include <string.h>

// png_image of png.h.
typedef struct {
    void    *opaque;
    uint32_t version, width, height, format, flags, colormap_entries, warning_or_error;
    char     message[64];
} png_image;

enum { PNG_IMAGE_VERSION = 1 };
enum { PNG_FORMAT_FLAG_ALPHA = 1, PNG_FORMAT_FLAG_COLOR = 2 };
enum { PNG_IMAGE_FLAG_16BIT_sRGB = 4 };

static struct {
    int (*begin)(png_image *p, const void *file, size_t bytes);
    int (*finish)(png_image *p, const void *background, void *to, int32_t stride, void *colormap);
    void (*free)(png_image *p);
} png;

static bool           found;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find_library(void)
{
    static const tni_symbol symbols[] = { { 0, "png_image_begin_read_from_memory" },
                                          { 1 * sizeof(void *), "png_image_finish_read" },
                                          { 2 * sizeof(void *), "png_image_free" } };

    found = tni_library_fill(tni_libpng_names, &png, symbols, sizeof symbols / sizeof *symbols);
}

// Reads the header. The image must be freed if it returns true.
static bool begin(tni_picture_reader *r, png_image *p)
{
    pthread_once(&once, find_library);
    if (!found)
        return tni_picture_fails(
            r, "it is PNG, and no libpng was found to read it: install libpng16-16");
    *p = (png_image){ .version = PNG_IMAGE_VERSION };
    if (!png.begin(p, r->file, r->bytes)) return tni_picture_fails(r, "%s", p->message);
    // Without this, values of 16 bits would be taken for light instead of sRGB, and a picture would
    // be brighter than its twin of 8 bits.
    p->flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
    r->width  = p->width;
    r->height = p->height;
    r->grey   = !(p->format & PNG_FORMAT_FLAG_COLOR);
    return true;
}

// The library keeps what it read until it is freed, but not beyond a call here: a reader that is
// dropped must not leak.
bool tni_png_begin(tni_picture_reader *r)
{
    png_image p;
    if (!begin(r, &p)) return false;
    png.free(&p);
    r->turn = 1;
    return true;
}

// Keeps the first `kept` of each pixel's `each` bytes.
static void pack(unsigned char *p, size_t pixels, int each, int kept)
{
    for (size_t i = 0; i < pixels; i++)
        for (int c = 0; c < kept; c++)
            p[i * (size_t)kept + (size_t)c] = p[i * (size_t)each + (size_t)c];
}

// Transparent pixels have the colour that is stored for them, as in PIL's conversion to RGB, so
// transparency is decoded, which leaves colours alone, and left out then.
bool tni_png_decode(tni_picture_reader *r)
{
    png_image p;
    if (!begin(r, &p)) return false;
    bool alpha = p.format & PNG_FORMAT_FLAG_ALPHA, colour = !r->grey || r->channels == 3;
    int  each     = (colour ? 3 : 1) + alpha;
    p.format      = (colour ? PNG_FORMAT_FLAG_COLOR : 0u) | (alpha ? PNG_FORMAT_FLAG_ALPHA : 0u);
    size_t pixels = (size_t)p.width * p.height;
    bool   ok     = tni_room_for(&r->pixels, pixels * (size_t)each) || tni_picture_no_memory(r);
    // A file of a palette whose entries are transparent is decoded to RGBA in the same way.
    if (ok && !png.finish(&p, NULL, r->pixels.data, (int32_t)p.width * each, NULL))
        ok = tni_picture_fails(r, "%s", p.message);
    png.free(&p);
    if (ok && alpha) pack(r->pixels.data, pixels, each, each - 1);
    if (ok && colour && r->channels == 1) tni_mix_grey(r->pixels.data, pixels);
    r->shown_width  = r->width;
    r->shown_height = r->height;
    return ok;
}
