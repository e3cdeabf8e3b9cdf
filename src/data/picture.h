// Pictures in files: JPEG and PNG, decoded by libraries that are found at run time, cut and
// resized. These functions run on loader threads: they make no tn_ calls, and say what is wrong in
// a text of the reader.
//
// W, H of a picture are those that a viewer shows, after the turn that a camera noted (EXIF).
#ifndef TNI_DATA_PICTURE_H
#define TNI_DATA_PICTURE_H

#include "tensor/context.h"

typedef enum { TNI_NO_PICTURE, TNI_JPEG, TNI_PNG } tni_picture_kind;

// The kind of file that these bytes begin.
tni_picture_kind tni_picture_kind_of(const unsigned char *data, size_t bytes);

// Memory that grows as it is needed, and is kept for the next picture.
typedef struct {
    void  *data;
    size_t bytes;
} tni_room;

// Grows to at least this many bytes; the content is lost. False if memory is out.
bool tni_room_for(tni_room *r, size_t bytes);

// A reader of pictures, for one thread at a time: it begins as zeros, and tni_picture_free ends it.
// After a failure, why says what is wrong with the picture, or memory is set. While a picture is
// read: the file's bytes, what its header says (width and height as stored), and its pixels, rows
// of `channels` bytes each, `shown` columns wide, which are fewer than `width` if a JPEG was
// decoded at a fraction of its size.
typedef struct {
    const unsigned char *file;
    size_t               bytes;
    tni_picture_kind     kind;
    int64_t              width, height;
    int                  turn;      // 1 .. 8, as EXIF numbers them
    bool                 grey;      // it has one channel
    int                  channels;  // of the pixels: 1 or 3
    int64_t              shown_width, shown_height;
    tni_room             content, pixels, rows, taps;
    void                *jpeg;  // the decoder
    bool                 memory;
    tni_text             why;
} tni_picture_reader;

void tni_picture_free(tni_picture_reader *r);
// Sets why to a text and returns false.
bool tni_picture_fails(tni_picture_reader *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
// The same for memory that is out.
bool tni_picture_no_memory(tni_picture_reader *r);

// Reads a file into the reader's memory.
bool tni_picture_load(tni_picture_reader *r, const char *path);
// Reads the header of a file that is in memory, which stays there. A picture of more than `most`
// pixels is refused.
bool tni_picture_begin(tni_picture_reader *r, const unsigned char *file, size_t bytes,
                       int64_t most);
// Makes grey of RGB, in place of its first bytes.
void tni_mix_grey(unsigned char *p, size_t pixels);
// Decodes its pixels, unless they are there as RGB (kind is none). eighths: 1, 2, 4 or 8 of each 8
// pixels; only JPEG has fewer than 8.
bool tni_picture_decode(tni_picture_reader *r, int channels, int eighths);
// Its size as seen.
void tni_picture_size(const tni_picture_reader *r, int64_t *W, int64_t *H);

// A part of a picture, and what becomes of it: `to_width` x `to_height` pixels, mirrored or not.
typedef struct {
    double  x, y, width, height;
    int64_t to_width, to_height;
    bool    flip;
    double
        margin;  // a JPEG is decoded at a fraction of its size which is at least this many times the result's
} tni_picture_part;

// The middle square of a picture of W x H, `size` pixels wide, after its shorter side became
// `resize`, or 8/7 of the size if that is 0, as ImageNet's networks are evaluated.
tni_picture_part tni_picture_middle(int64_t W, int64_t H, int64_t resize, int64_t size);
// Decodes the picture, as far as it is needed, and writes a part of it as floats in [0, 1], planes
// of (C, H, W): resized as with PyTorch's antialiased bilinear interpolation.
bool tni_picture_cut(tni_picture_reader *r, const tni_picture_part *p, int channels, float *to);

// The most pixels of a picture unless the options say: 300 MB decoded, and twice what cameras have.
enum { TNI_MOST_PIXELS = 100000000 };
// Whether the options of reading pictures are valid; reports it by the op's name if not.
bool tni_image_opts_ok(tn_ctx *cx, const char *op, const tn_image_opts *o);

// ---- the libraries, each in its file -----------------------------------------------------------

// Read the header, and the pixels of 1 or 3 channels, of a file of this kind.
bool tni_jpeg_begin(tni_picture_reader *r);
bool tni_jpeg_decode(tni_picture_reader *r, int eighths);
void tni_jpeg_free(tni_picture_reader *r);
bool tni_png_begin(tni_picture_reader *r);
bool tni_png_decode(tni_picture_reader *r);

#endif
