// answer.c: prints a picture in the terminal with what the network sees in it: the most likely classes and a bar for
// each. A character is two pixels, one above the other, in colours; without colours it is a shade.
//
// C channels, H rows, W columns
#include "cli.h"

#include <string.h>

enum { MOST_COLUMNS = 48, LEAST_COLUMNS = 8, BAR = 20, TEXT = 52 };  // TEXT: beside the picture

static const char shades[] = " .:-=+*#%@";

// A picture, planes in [0, 1], and how it is printed: columns x lines characters.
typedef struct {
    const float *pixels;
    int64_t      C, H, W;
    int          columns, lines;
    bool         colours;
} canvas;

// The mean of channel c over the part of the picture that pixel (x, y) of columns x height stands for, 0 .. 255.
static int mean_of(const canvas *v, int64_t c, int x, int y, int height)
{
    int64_t x0 = x * v->W / v->columns, x1 = (x + 1) * v->W / v->columns;
    int64_t y0 = y * v->H / height, y1 = (y + 1) * v->H / height;
    double  sum = 0;
    if (x1 == x0) x1++;
    if (y1 == y0) y1++;
    if (c >= v->C) c = v->C - 1;
    for (int64_t i = y0; i < y1; i++)
        for (int64_t k = x0; k < x1; k++) sum += (double)v->pixels[(c * v->H + i) * v->W + k];
    sum /= (double)((x1 - x0) * (y1 - y0));
    return (int)(255 * (sum < 0 ? 0 : sum > 1 ? 1 : sum) + 0.5);
}

// The upper half block, U+2580, in the colour of the upper pixel, on that of the lower one.
static void print_line(const canvas *v, int line)
{
    for (int x = 0; x < v->columns; x++) {
        int rgb[2][3];
        for (int k = 0; k < 2; k++)
            for (int c = 0; c < 3; c++) rgb[k][c] = mean_of(v, c, x, 2 * line + k, 2 * v->lines);
        if (v->colours)
            printf("\033[38;2;%d;%d;%dm\033[48;2;%d;%d;%dm\xe2\x96\x80", rgb[0][0], rgb[0][1],
                   rgb[0][2], rgb[1][0], rgb[1][1], rgb[1][2]);
        else {
            int sum = rgb[0][0] + rgb[0][1] + rgb[0][2] + rgb[1][0] + rgb[1][1] + rgb[1][2];
            putchar(shades[sum * (int)(sizeof shades - 2) / (6 * 255)]);
        }
    }
    if (v->colours) fputs("\033[0m", stdout);
}

// "  93.1 %  ##################    cat".
static void print_guess(const cli_guess *g, bool utf8)
{
    int full = (int)(g->chance * BAR + 0.5);
    printf("  %5.1f %%  ", 100 * g->chance);
    for (int i = 0; i < BAR; i++) fputs(i >= full ? " " : utf8 ? "\xe2\x96\x88" : "#", stdout);
    printf("  %s", g->name);
}

void cli_answer(const char *title, const float *pixels, const int64_t size[3], int n,
                const cli_guess *guess)
{
    bool   utf8 = cli_utf8();
    canvas v    = { pixels,
                    size[0],
                    size[1],
                    size[2],
                    cli_columns(stdout) - TEXT,
                    0,
                    utf8 && cli_colours(stdout) };
    if (v.columns > MOST_COLUMNS) v.columns = MOST_COLUMNS;
    if (v.columns < LEAST_COLUMNS) v.columns = LEAST_COLUMNS;
    if (v.columns > 2 * v.W) v.columns = (int)(2 * v.W);
    v.lines    = (int)((v.columns * v.H / v.W + 1) / 2);  // a character is twice as high as wide
    int height = v.lines > n ? v.lines : n, first = (height - n) / 2;
    printf("%s\n", cli_shown(title));
    for (int i = 0; i < height; i++) {
        fputs("  ", stdout);
        if (i < v.lines) print_line(&v, i);
        else printf("%*s", v.columns, "");
        if (i >= first && i < first + n) print_guess(&guess[i - first], utf8);
        putchar('\n');
    }
    putchar('\n');
}
