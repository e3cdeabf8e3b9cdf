// The sizes of cuBLASLt's tiles, by the numbers of cublasLt.h, and what follows from them: see
// lt_tiles.h.
//
// The first 35 numbers are a list. From there on they count rows in steps of 8 and columns in steps
// of 64, then rows in steps of 64 and columns in steps of 8, up to an area each, and leave out what
// has a number; the last four are larger:
//
//     36: 8 x 128   37: 8 x 192   ...   47: 16 x 64   ...   311: 768 x 64
//     312: 64 x 16  313: 64 x 24  314: 64 x 40  ...  408: 128 x 168  ...  630: 768 x 80
//     631: 256 x 512  632: 256 x 1024  633: 512 x 512  634: 512 x 1024
#include "device/cuda/lt_tiles.h"

#include <math.h>
#include <pthread.h>

enum { LISTED = 35, NUMBERS = 634, LONGEST = 768 };

typedef struct {
    uint16_t rows, cols;
} tile;

// From number 1 on; written once.
static struct {
    pthread_once_t once;
    int            count;
    tile           of[NUMBERS];
} known = { .once  = PTHREAD_ONCE_INIT,
            .count = LISTED,
            .of    = { { 8, 8 },     { 8, 16 },    { 16, 8 },    { 8, 32 },    { 16, 16 },
                       { 32, 8 },    { 8, 64 },    { 16, 32 },   { 32, 16 },   { 64, 8 },
                       { 32, 32 },   { 32, 64 },   { 64, 32 },   { 32, 128 },  { 64, 64 },
                       { 128, 32 },  { 64, 128 },  { 128, 64 },  { 64, 256 },  { 128, 128 },
                       { 256, 64 },  { 64, 512 },  { 128, 256 }, { 256, 128 }, { 512, 64 },
                       { 64, 96 },   { 96, 64 },   { 96, 128 },  { 128, 160 }, { 160, 128 },
                       { 192, 128 }, { 128, 192 }, { 128, 96 },  { 32, 256 },  { 256, 32 } } };

static bool has_number(int rows, int cols)
{
    for (int i = 0; i < known.count; i++)
        if (known.of[i].rows == rows && known.of[i].cols == cols) return true;
    return false;
}

static void number_tile(int rows, int cols)
{
    if (!has_number(rows, cols) && known.count < NUMBERS)
        known.of[known.count++] = (tile){ (uint16_t)rows, (uint16_t)cols };
}

// Gives numbers to the tiles of two steps up to an area that have none.
static void number_tiles(int row_step, int col_step, int area)
{
    for (int rows = row_step; rows <= LONGEST; rows += row_step)
        for (int cols = col_step; cols <= LONGEST && rows * cols <= area; cols += col_step)
            number_tile(rows, cols);
}

static void number_all(void)
{
    number_tiles(8, 64, 49152);
    number_tiles(64, 8, 65536);
    for (int rows = 256; rows <= 512; rows += 256)
        for (int cols = 512; cols <= 1024; cols += 512) number_tile(rows, cols);
}

bool tni_lt_tile_size(int32_t number, int *rows, int *cols)
{
    pthread_once(&known.once, number_all);
    if (number < 1 || number > NUMBERS) return false;
    *rows = known.of[number - 1].rows;
    *cols = known.of[number - 1].cols;
    return true;
}

// Rounds of the multiprocessors, in the last of which some have nothing to do, by what a block
// multiplies and by what it loads for that. EDGE: elements of a tile that are multiplied while one
// of its edge is loaded. By this one the fastest tile was mostly among the first ten of 17 products
// in bf16 on an H200, and in one the forty-first.
double tni_lt_tile_expect(const tni_lt_extent *of, int32_t number)
{
    const double EDGE = 48;
    int          rows, cols;
    if (!tni_lt_tile_size(number, &rows, &cols)) return INFINITY;
    double parts  = of->parts > 1 ? (double)of->parts : 1;
    double blocks = ceil((double)of->rows / rows) * ceil((double)of->cols / cols) *
                    (double)of->batch * parts;
    double rounds = ceil(blocks / (of->units > 0 ? (double)of->units : 1));
    return rounds * (rows * cols + EDGE * (rows + cols)) / parts;
}
