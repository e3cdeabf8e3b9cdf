// pictures.c: prints images in the terminal, with the predicted class below each. In UTF-8 each character
// is a block of 2 x 4 braille dots, with a dot for a bright pixel; otherwise it is a shade.
#include "cli.h"

#include <stdlib.h>
#include <string.h>

enum { GAP = 2, INDENT = 2 };

static const char  shades[] = " .:-=+*#%@";
static const float BRIGHT   = 0.45f;  // fraction of the brightest pixel from which a dot is set

// Grey images, contiguous in memory, and their predicted and true classes.
typedef struct {
    int            count, height, width;
    const float   *pixels;
    const int64_t *guess, *truth;
    bool           colours, utf8;
} album;

static float pixel(const album *a, int i, int row, int column)
{
    if (row >= a->height || column >= a->width) return 0;
    return a->pixels[(i * a->height + row) * a->width + column];
}

static float brightest(const album *a, int i)
{
    float most = 1e-6f;
    for (int k = 0; k < a->height * a->width; k++) {
        float v = a->pixels[i * a->height * a->width + k];
        if (v > most) most = v;
    }
    return most;
}

static void print_cell(const album *a, int i, int row, int column, float most)
{
    bool  dots[CLI_DOTS_Y][CLI_DOTS_X];
    float sum = 0;
    for (int y = 0; y < CLI_DOTS_Y; y++)
        for (int x = 0; x < CLI_DOTS_X; x++) {
            float v    = pixel(a, i, row * CLI_DOTS_Y + y, column * CLI_DOTS_X + x) / most;
            dots[y][x] = v > BRIGHT;
            sum += v;
        }
    if (a->utf8) cli_print_dots(dots);
    else putchar(shades[(int)(sum / (CLI_DOTS_X * CLI_DOTS_Y) * (sizeof shades - 2) + 0.5f)]);
}

static int cells_wide(const album *a)
{
    return (a->width + CLI_DOTS_X - 1) / CLI_DOTS_X;
}

static void print_guess(const album *a, int i)
{
    char text[64];
    bool right = a->guess[i] == a->truth[i];
    if (right) snprintf(text, sizeof text, "%lld", (long long)a->guess[i]);
    else
        snprintf(text, sizeof text, "%lld (it is %lld)", (long long)a->guess[i],
                 (long long)a->truth[i]);
    int left = (cells_wide(a) - (int)strlen(text) + 1) / 2;
    if (left < 0) left = 0;
    if (a->colours) fputs(right ? "\033[32m" : "\033[31m", stdout);
    printf("%*s%-*s", left, "", cells_wide(a) - left + GAP, text);
    if (a->colours) fputs("\033[0m", stdout);
}

// Prints images first .. end - 1 side by side, and their classes below.
static void print_some(const album *a, int first, int end)
{
    for (int row = 0; row * CLI_DOTS_Y < a->height; row++) {
        printf("%*s", INDENT, "");
        for (int i = first; i < end; i++) {
            float most = brightest(a, i);
            for (int column = 0; column < cells_wide(a); column++)
                print_cell(a, i, row, column, most);
            printf("%*s", GAP, "");
        }
        putchar('\n');
    }
    printf("%*s", INDENT, "");
    for (int i = first; i < end; i++) print_guess(a, i);
    puts("\n");
}

// Prints all images, in as few rows as the terminal allows, of equal length.
static void print_all(const album *a)
{
    int most = (cli_columns(stdout) - INDENT + GAP) / (cells_wide(a) + GAP);
    int rows = (a->count + (most > 1 ? most : 1) - 1) / (most > 1 ? most : 1);
    for (int k = 0; k < rows; k++) print_some(a, k * a->count / rows, (k + 1) * a->count / rows);
}

// Reads and prints a batch. pixels has room for its images, ids for twice its classes.
static void print_batch(tn_batch b, tn_tensor *guess, float *pixels, int64_t *ids)
{
    album a = { .count   = (int)b.count,
                .height  = (int)tn_size(b.x, 2),
                .width   = (int)tn_size(b.x, 3),
                .pixels  = pixels,
                .guess   = ids,
                .truth   = ids + b.count,
                .colours = cli_colours(stdout),
                .utf8    = cli_utf8() };
    if (tn_read(b.x, TN_F32, pixels, tn_count(b.x)) == TN_OK &&
        tn_read(guess, TN_I64, ids, b.count) == TN_OK &&
        tn_read(b.y, TN_I64, ids + b.count, b.count) == TN_OK)
        print_all(&a);
}

tn_status cli_pictures(tn_layer *net, tn_data *data, int n)
{
    tn_ctx   *cx    = tn_layer_ctx(net);
    tn_scope *scope = tn_begin(cx);
    tn_grad_mode(cx, false);
    tn_layer_train(net, false);
    tn_data_rewind(data);
    tn_batch   b      = tn_next(data, n);
    tn_tensor *guess  = tn_argmax(tn_forward(net, b.x), 1);
    float     *pixels = guess ? cli_alloc(cx, tn_count(b.x), sizeof *pixels) : NULL;
    int64_t   *ids    = guess ? cli_alloc(cx, 2 * b.count, sizeof *ids) : NULL;
    if (pixels && ids && tn_error(cx) == TN_OK) print_batch(b, guess, pixels, ids);
    free(pixels);
    free(ids);
    tn_layer_train(net, true);
    tn_end(scope);
    return tn_error(cx);
}
