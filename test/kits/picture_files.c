#include "picture_files.h"

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

static bool has_library(const char *name)
{
    void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (lib) dlclose(lib);
    return lib != NULL;
}

bool has_libpng(void)
{
    return has_library("libpng16.so.16");
}

bool has_libturbojpeg(void)
{
    return has_library("libturbojpeg.so.0");
}

// ---- PNG

static void put_u32(unsigned char *to, uint32_t v)
{
    for (int i = 0; i < 4; i++) to[i] = (unsigned char)(v >> 8 * (3 - i));
}

uint32_t crc_of(const unsigned char *p, size_t n)
{
    uint32_t c = ~0u;
    for (size_t i = 0; i < n; i++) {
        c ^= p[i];
        for (int k = 0; k < 8; k++) c = c >> 1 ^ (0xedb88320u & (0u - (c & 1)));
    }
    return ~c;
}

static uint32_t adler(const unsigned char *p, size_t n)
{
    uint32_t a = 1, b = 0;
    for (size_t i = 0; i < n; i++) {
        a = (a + p[i]) % 65521;
        b = (b + a) % 65521;
    }
    return b << 16 | a;
}

// Appends a chunk, whose content may lie where it is written.
static size_t chunk(unsigned char *to, const char *name, const void *data, size_t n)
{
    put_u32(to, (uint32_t)n);
    memmove(to + 8, data, n);
    memcpy(to + 4, name, 4);
    put_u32(to + 8 + n, crc_of(to + 4, n + 4));
    return n + 12;
}

// zlib's format with one stored block: a filter byte, 0, before each row.
static size_t deflate_rows(unsigned char *to, const png_file *p)
{
    static const int samples[] = { [0] = 1, [2] = 3, [3] = 1, [4] = 2, [6] = 4 };

    size_t row = (size_t)(p->width * samples[p->colour] * p->bits + 7) / 8, n = 0;
    for (int y = 0; y < p->height; y++) {
        to[7 + n++] = 0;
        memcpy(to + 7 + n, p->rows + (size_t)y * row, row);
        n += row;
    }
    unsigned char head[] = { 0x78, 1, 1, n & 255, n >> 8 & 255, ~n & 255, ~n >> 8 & 255 };
    memcpy(to, head, sizeof head);
    put_u32(to + 7 + n, adler(to + 7, n));
    return n + 11;
}

size_t png_write(unsigned char *to, const png_file *p)
{
    unsigned char head[13] = { [8] = (unsigned char)p->bits, (unsigned char)p->colour };
    size_t        n        = 8;
    memcpy(to, "\x89PNG\r\n\x1a\n", 8);
    put_u32(head, (uint32_t)p->width);
    put_u32(head + 4, (uint32_t)p->height);
    n += chunk(to + n, "IHDR", head, sizeof head);
    if (p->palette) n += chunk(to + n, "PLTE", p->palette, 3 * (size_t)p->colours);
    if (p->alpha) n += chunk(to + n, "tRNS", p->alpha, (size_t)p->colours);
    n += chunk(to + n, "IDAT", to + n + 8, deflate_rows(to + n + 8, p));
    return n + chunk(to + n, "IEND", "", 0);
}

// ---- JPEG

// Puts a segment with the orientation behind the first marker.
size_t jpeg_turn(unsigned char *to, size_t n, int turn)
{
    unsigned char exif[] = { 0xff, 0xe1, 0, 34, 'E', 'x', 'i', 'f', 0, 0,  'M', 'M',
                             0,    42,   0, 0,  0,   8,   0,   1,   1, 18, 0,   3,
                             0,    0,    0, 1,  0,   0,   0,   0,   0, 0,  0,   0 };
    exif[29]             = (unsigned char)turn;
    memmove(to + 2 + sizeof exif, to + 2, n - 2);
    memcpy(to + 2, exif, sizeof exif);
    return n + sizeof exif;
}

size_t jpeg_write(unsigned char *to, size_t room, int width, int height, int channels,
                  const unsigned char *pixels, int quality)
{
    enum { RGB = 0, GRAY = 6, CMYK = 11, SAMPLED_444 = 0, SAMPLED_GRAY = 3 };

    void *lib = dlopen("libturbojpeg.so.0", RTLD_NOW | RTLD_LOCAL);
    void *(*init)(void);
    int (*compress)(void *, const unsigned char *, int, int, int, int, unsigned char **,
                    unsigned long *, int, int, int);
    int (*destroy)(void *);
    void (*release)(unsigned char *);
    if (!lib) return 0;
    *(void **)&init       = dlsym(lib, "tjInitCompress");
    *(void **)&compress   = dlsym(lib, "tjCompress2");
    *(void **)&destroy    = dlsym(lib, "tjDestroy");
    *(void **)&release    = dlsym(lib, "tjFree");
    unsigned char *made   = NULL;
    unsigned long  n      = 0;
    void          *h      = init();
    int            format = channels == 1 ? GRAY : channels == 3 ? RGB : CMYK;
    if (compress(h, pixels, width, 0, height, format, &made, &n,
                 channels == 1 ? SAMPLED_GRAY : SAMPLED_444, quality, 0) != 0 ||
        n > room)
        n = 0;
    if (n) memcpy(to, made, n);
    release(made);
    destroy(h);
    dlclose(lib);
    return n;
}
