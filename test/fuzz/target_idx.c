// Fuzzes the reader of IDX files. The first byte of an input says what the rest is: images ('i'),
// to which fitting labels are made, or labels ('l') of six good images; either may be gzip.
#include "fuzz.h"

#include <string.h>

static const unsigned char six[] = { 0, 0, 8, 3, 0, 0, 0, 6, 0, 0, 0, 1, 0,  0,
                                     0, 2, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 };

static void seed(char kind, const void *data, size_t n)
{
    unsigned char input[256] = { (unsigned char)kind };
    memcpy(input + 1, data, n);
    fuzz_seed(input, n + 1);
}

static void seeds(void)
{
    static const unsigned char channels[] = { 0, 0, 8, 4, 0, 0, 0, 1, 0, 0, 0, 3,
                                              0, 0, 0, 1, 0, 0, 0, 1, 7, 8, 9 };
    static const unsigned char labels[]   = { 0, 0, 8, 1, 0, 0, 0, 6, 5, 4, 3, 2, 1, 200 };
    // The six images and six labels, by zlib at levels 9 and 0.
    static const unsigned char packed[] = { 0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02,
                                            0x03, 0x63, 0x60, 0xe0, 0x60, 0x66, 0x60, 0x60, 0x60,
                                            0x03, 0x62, 0x46, 0x20, 0x66, 0x62, 0x60, 0x64, 0x62,
                                            0x66, 0x61, 0x65, 0x63, 0xe7, 0xe0, 0xe4, 0xe2, 0x06,
                                            0x00, 0xc2, 0x98, 0xd6, 0x18, 0x1c, 0x00, 0x00, 0x00 };
    static const unsigned char stored[] = { 0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00,
                                            0x02, 0x03, 0x01, 0x0e, 0x00, 0xf1, 0xff, 0x00,
                                            0x00, 0x08, 0x01, 0x00, 0x00, 0x00, 0x06, 0x00,
                                            0x01, 0x02, 0x03, 0x04, 0x05, 0x2a, 0x8b, 0xc0,
                                            0xf4, 0x0e, 0x00, 0x00, 0x00 };
    seed('i', six, sizeof six);
    seed('i', channels, sizeof channels);
    seed('l', labels, sizeof labels);
    seed('i', packed, sizeof packed);
    seed('l', stored, sizeof stored);
}

// Labels 0 for as many images as the header says, if they are few.
static const char *fitting_labels(const unsigned char *images, size_t n)
{
    unsigned char labels[8 + 64] = { 0, 0, 8, 1 };
    if (n >= 8) memcpy(labels + 4, images + 4, 4);
    return fuzz_file("y", labels, 8 + (labels[7] < 64 ? labels[7] : 64));
}

static uint64_t run(const unsigned char *data, size_t n)
{
    bool        labels = n && data[0] == 'l';
    size_t      rest   = n ? n - 1 : 0;
    const char *x      = labels ? fuzz_file("x", six, sizeof six) : fuzz_file("x", data + 1, rest);
    const char *y      = labels ? fuzz_file("y", data + 1, rest) : fitting_labels(data + 1, rest);
    bool        packed = rest >= 2 && data[1] == 0x1f && data[2] == 0x8b;
    tn_ctx     *cx     = fuzz_open();
    tn_data    *d      = tn_idx_files(cx, x, y);
    uint64_t    look   = 0;
    FUZZ_CHECK((d == NULL) == (tn_error(cx) != TN_OK));
    if (d) {
        look = fuzz_join((uint64_t)tn_data_info(d).field[0].size[0], tn_data_count(d) > 1);
        FUZZ_CHECK(tn_item(tn_max_all(tn_next(d, 1).x)) <= 1);
    }
    // A packed file counts as what it can expand to.
    return fuzz_join(look, fuzz_close(cx, packed ? n * 1032 : n));
}

static const char *const tokens[] = { "\x1f\x8b", "\x08\x03", "\x08\x01", NULL };

const fuzz_target fuzz_idx = { .name = "idx", .seeds = seeds, .run = run, .tokens = tokens };
