// Fuzzes the reader of npy files.
#include "fuzz.h"

#include <stdio.h>
#include <string.h>

static void seed(int major, const char *header, size_t data)
{
    unsigned char file[512] = "\x93NUMPY";
    size_t        n = strlen(header), start = major == 1 ? 10 : 12;
    file[6] = (unsigned char)major;
    file[8] = (unsigned char)n;
    memcpy(file + start, header, n);
    for (size_t i = 0; i < data; i++) file[start + n + i] = (unsigned char)(i % 2);
    fuzz_seed(file, start + n + data);
}

static void seeds(void)
{
    seed(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", 24);
    seed(2, "{'descr': '>i8', 'fortran_order': True, 'shape': (2, 2), }\n", 32);
    seed(3, "{'descr': '|b1', 'fortran_order': False, 'shape': (5,), }\n", 5);
    seed(1, "{'shape': (), 'descr': '<f8', 'fortran_order': False}\n", 8);
    seed(1, "{'descr': '<u2', 'fortran_order': True, 'shape': (0, 3), }\n", 0);
    seed(1, "{'descr': '>i2', 'fortran_order': True, 'shape': (1, 2, 3), }\n", 12);
    seed(1, "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n", 8);
}

static uint64_t run(const unsigned char *data, size_t n)
{
    tn_ctx     *cx   = fuzz_open();
    const char *path = fuzz_file("a.npy", data, n);
    tn_tensor  *t    = tn_npy_read(cx, path);
    uint64_t    look = 0;
    FUZZ_CHECK((t == NULL) == (tn_error(cx) != TN_OK));
    if (t) {
        look = fuzz_join((uint64_t)tn_dtype_of(t), (uint64_t)tn_rank(t));
        look = fuzz_join(look, (uint64_t)tn_is_contiguous(t));
        FUZZ_CHECK(tn_count(t) <= (int64_t)n);
        if (tn_count(t)) FUZZ_CHECK(tn_ptr(t) != NULL);
        tn_item(tn_sum_all(t));
    }
    return fuzz_join(look, fuzz_close(cx, n));
}

static const char *const tokens[] = {
    "'descr'",
    "'fortran_order'",
    "'shape'",
    "True",
    "False",
    "(",
    ")",
    ",",
    "{",
    "}",
    ":",
    "'<f4'",
    "'>f8'",
    "'|b1'",
    "<i2",
    ">u4",
    "|O",
    "=f2",
    "<u8",
    "(1,)",
    "()",
    "(0,)",
    "\x93NUMPY\x01",
    " ",
    "\n",
    "'",
    "[('a',",
    NULL,
};

const fuzz_target fuzz_npy = { .name = "npy", .seeds = seeds, .run = run, .tokens = tokens };
