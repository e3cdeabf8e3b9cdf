// JPEG by a libturbojpeg that is found at run time. What is used of its interface, which has been
// the same since 2.0, is declared here.
#include "base/find_libraries.h"
#include "data/picture.h"

#include <pthread.h>
#include <string.h>

// Of turbojpeg.h: pixel formats, colour spaces, flags and the two kinds of errors.
enum { TJPF_RGB = 0, TJPF_GRAY = 6, TJPF_CMYK = 11 };
enum { TJCS_GRAY = 2, TJCS_CMYK = 3, TJCS_YCCK = 4 };
enum { TJFLAG_LIMITSCANS = 32768 };  // a progressive file with a thousand scans would take minutes
enum { TJERR_WARNING = 0 };

static struct {
    void *(*init)(void);
    int (*destroy)(void *h);
    int (*header)(void *h, const unsigned char *file, unsigned long bytes, int *width, int *height,
                  int *subsampling, int *colours);
    int (*decode)(void *h, const unsigned char *file, unsigned long bytes, unsigned char *to,
                  int width, int pitch, int height, int format, int flags);
    char *(*error_text)(void *h);
    int (*error_code)(void *h);
} turbo;

static bool           found;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find_library(void)
{
    static const tni_symbol symbols[] = { { 0, "tjInitDecompress" },
                                          { 1 * sizeof(void *), "tjDestroy" },
                                          { 2 * sizeof(void *), "tjDecompressHeader3" },
                                          { 3 * sizeof(void *), "tjDecompress2" },
                                          { 4 * sizeof(void *), "tjGetErrorStr2" },
                                          { 5 * sizeof(void *), "tjGetErrorCode" } };

    found = tni_library_fill(tni_turbojpeg_names, &turbo, symbols,
                             sizeof symbols / sizeof *symbols);
}

// ---- the turn that a camera noted --------------------------------------------------------------

// TIFF says which order its bytes have.
static unsigned number_at(const unsigned char *p, int bytes, bool big)
{
    unsigned v = 0;
    for (int i = 0; i < bytes; i++) v |= (unsigned)p[i] << 8 * (big ? bytes - 1 - i : i);
    return v;
}

// Finds the orientation in the first directory of a TIFF header; 1 if there is none or it is
// damaged.
static int turn_of_tiff(const unsigned char *p, size_t n)
{
    enum { ORIENTATION = 0x112, ENTRY = 12 };

    if (n < 8) return 1;
    bool   big = p[0] == 'M';
    size_t at  = number_at(p + 4, 4, big);
    if (at > n - 2) return 1;
    size_t count = number_at(p + at, 2, big);
    for (at += 2; count > 0 && at + ENTRY <= n; count--, at += ENTRY) {
        if (number_at(p + at, 2, big) != ORIENTATION) continue;
        unsigned turn = number_at(p + at + 8, 2, big);
        return turn >= 1 && turn <= 8 ? (int)turn : 1;
    }
    return 1;
}

// Looks through the segments before the image for EXIF's.
static int turn_of(const unsigned char *p, size_t n)
{
    enum { APP1 = 0xe1, START_OF_SCAN = 0xda, HEAD = 6 };

    for (size_t at = 2; at + 4 <= n && p[at] == 0xff && p[at + 1] != START_OF_SCAN;) {
        size_t length = number_at(p + at + 2, 2, true), from = at + 4;
        if (length < 2 || length - 2 > n - from) return 1;
        if (p[at + 1] == APP1 && length > 2 + HEAD && !memcmp(p + from, "Exif\0", HEAD))
            return turn_of_tiff(p + from + HEAD, length - 2 - HEAD);
        at = from + length - 2;
    }
    return 1;
}

// ---- decoding ----------------------------------------------------------------------------------

// A decoder is opened with the reader's first JPEG, and used for all that follow.
static bool open_decoder(tni_picture_reader *r)
{
    pthread_once(&once, find_library);
    if (!found)
        return tni_picture_fails(r, "it is JPEG, and no libturbojpeg was found to read it: install "
                                    "libturbojpeg0");
    if (!r->jpeg) r->jpeg = turbo.init();
    return r->jpeg || tni_picture_no_memory(r);
}

void tni_jpeg_free(tni_picture_reader *r)
{
    if (r->jpeg) turbo.destroy(r->jpeg);
    r->jpeg = NULL;
}

// Reads sizes and colours. grey is left false for CMYK, whose pixels become RGB.
static bool read_header(tni_picture_reader *r, int *colours)
{
    int width = 0, height = 0, subsampling;
    if (turbo.header(r->jpeg, r->file, r->bytes, &width, &height, &subsampling, colours) != 0)
        return tni_picture_fails(r, "%s", turbo.error_text(r->jpeg));
    r->width  = width;
    r->height = height;
    r->grey   = *colours == TJCS_GRAY;
    return true;
}

bool tni_jpeg_begin(tni_picture_reader *r)
{
    int colours;
    if (!open_decoder(r) || !read_header(r, &colours)) return false;
    r->turn = turn_of(r->file, r->bytes);
    return true;
}

// Bytes that are read between two markers and have no meaning are in many files of old cameras, and
// do no harm. All other warnings are of pixels that are not those of the picture: mostly the file
// is cut short.
static bool is_harmless(const tni_picture_reader *r)
{
    return turbo.error_code(r->jpeg) == TJERR_WARNING &&
           strstr(turbo.error_text(r->jpeg), "extraneous bytes");
}

// Makes RGB of CMYK in place of its first bytes. Programs store the inks inverted, as Adobe's first
// did, so white is 255 and the product of an ink and black is the light that is left.
static void mix_inks(unsigned char *p, size_t pixels)
{
    for (size_t i = 0; i < pixels; i++)
        for (int c = 0; c < 3; c++)
            p[3 * i + (size_t)c] = (unsigned char)((p[4 * i + (size_t)c] * p[4 * i + 3] + 127) /
                                                   255);
}

// The library has a scale of n eighths in its inverse transform: its result has fewer pixels, and
// takes less time.
bool tni_jpeg_decode(tni_picture_reader *r, int eighths)
{
    int colours;
    if (!read_header(r, &colours)) return false;  // of this file, whatever the decoder read last
    bool    inks = colours == TJCS_CMYK || colours == TJCS_YCCK;
    int     each = inks ? 4 : r->channels;
    int64_t W = (r->width * eighths + 7) / 8, H = (r->height * eighths + 7) / 8;
    if (!tni_room_for(&r->pixels, (size_t)(W * H * each))) return tni_picture_no_memory(r);
    int format = inks ? TJPF_CMYK : each == 1 ? TJPF_GRAY : TJPF_RGB;
    if (turbo.decode(r->jpeg, r->file, r->bytes, r->pixels.data, (int)W, (int)W * each, (int)H,
                     format, TJFLAG_LIMITSCANS) != 0 &&
        !is_harmless(r))
        return tni_picture_fails(r, "%s", turbo.error_text(r->jpeg));
    if (inks) mix_inks(r->pixels.data, (size_t)(W * H));
    if (inks && r->channels == 1) tni_mix_grey(r->pixels.data, (size_t)(W * H));
    r->shown_width  = W;
    r->shown_height = H;
    return true;
}
