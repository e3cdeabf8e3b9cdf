// picture_files.h: small PNG and JPEG files. PNG is written here, uncompressed; JPEG by
// libturbojpeg, where it is installed.
#ifndef TEST_PICTURE_FILES_H
#define TEST_PICTURE_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A PNG file to write: rows of (width * samples * bits + 7) / 8 bytes each, and for colour 3 a
// palette of RGB.
typedef struct {
    int                  width, height;
    int                  colour;  // 0 grey, 2 RGB, 3 palette, 4 grey and alpha, 6 RGBA
    int                  bits;    // of a sample
    const unsigned char *rows, *palette, *alpha;  // alpha: of the palette's colours, or NULL
    int                  colours;                 // of the palette
} png_file;

enum { PICTURE_ROOM = 1 << 15 };

// Write a file and return its length. A PNG takes at most PICTURE_ROOM bytes. A JPEG has 1 (grey),
// 3 (RGB) or 4 (CMYK) bytes a pixel; its length is 0 if there is no library, or no room.
size_t png_write(unsigned char *to, const png_file *p);
size_t jpeg_write(unsigned char *to, size_t room, int width, int height, int channels,
                  const unsigned char *pixels, int quality);
// Adds EXIF with a turn, 1 .. 8, to a JPEG of n bytes, 64 bytes at most; returns its new length.
size_t jpeg_turn(unsigned char *file, size_t n, int turn);

// The CRC-32 of PNG and gzip.
uint32_t crc_of(const unsigned char *p, size_t n);

// Whether the libraries that read them are installed.
bool has_libpng(void);
bool has_libturbojpeg(void);

#endif
