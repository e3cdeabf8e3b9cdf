// plot.c: draws the loss over the steps with characters. In UTF-8 each character is a block of 2 x
// 4 braille dots, otherwise one dot.
#include "cli.h"

#include <math.h>

enum { WIDTH = 64, WIDTH_LEAST = 12, MARGIN = 11, HEIGHT = 12, INTERVALS = 3 };

// The dots, top row first, and the range of the loss, as logarithms if it spans more than a decade.
typedef struct {
    bool   utf8, logarithmic;
    int    wide;           // in characters
    int    columns, rows;  // of dots
    double low, high;
    double label[HEIGHT];  // NaN: none
    bool   dot[HEIGHT * CLI_DOTS_Y][WIDTH * CLI_DOTS_X];
} canvas;

// When all points are used, merges pairs of them, so that any number of steps fits.
void cli_curve_add(cli_curve *c, double loss)
{
    if (c->stride == 0) c->stride = 1;
    if (c->points == CLI_CURVE) {
        for (int i = 0; i < CLI_CURVE / 2; i++) c->y[i] = (c->y[2 * i] + c->y[2 * i + 1]) / 2;
        c->points /= 2;
        c->stride *= 2;
    }
    c->sum += loss;
    if (++c->steps < c->stride) return;
    c->y[c->points++] = (float)(c->sum / (double)c->steps);
    c->steps          = 0;
    c->sum            = 0;
}

// ---- axes

static double scaled(const canvas *g, double y)
{
    return g->logarithmic ? log10(y) : y;
}

static int row_of(const canvas *g, double y)
{
    return (int)((g->high - scaled(g, y)) / (g->high - g->low) * (g->rows - 1) + 0.5);
}

// Returns the largest of 1, 2 or 5 times a power of ten that is not above v.
static double round_down(double v)
{
    double power = pow(10, floor(log10(v)));
    return power * (v >= 5 * power ? 5 : v >= 2 * power ? 2 : 1);
}

// Chooses a linear axis from 0, or a logarithmic one if the losses differ by more than a factor of
// 10.
static void set_range(canvas *g, const cli_curve *c)
{
    double low = INFINITY, high = -INFINITY;
    for (int64_t i = 0; i < c->points; i++) {
        low  = fmin(low, c->y[i]);
        high = fmax(high, c->y[i]);
    }
    g->logarithmic = low > 0 && high / low > 10;
    if (!g->logarithmic && low > 0) low = 0;
    g->low  = scaled(g, low);
    g->high = scaled(g, high);
    if (!(g->high > g->low)) g->high = g->low + 1;
}

static void put_label(canvas *g, double y)
{
    double at = scaled(g, y);
    if (at >= g->low && at <= g->high) g->label[row_of(g, y) * HEIGHT / g->rows] = y;
}

// Labels round numbers: 1, 2, 5 of every decade (only 1 if there are three or more), or a few at
// equal distances.
static void set_labels(canvas *g)
{
    for (int i = 0; i < HEIGHT; i++) g->label[i] = NAN;
    if (g->logarithmic) {
        bool few = g->high - g->low < 3;
        for (int decade = (int)floor(g->low); decade <= (int)g->high; decade++) {
            if (few) put_label(g, 5 * pow(10, decade));
            if (few) put_label(g, 2 * pow(10, decade));
            put_label(g, pow(10, decade));
        }
    } else {
        double step = round_down((g->high - g->low) / INTERVALS);
        for (double k = ceil(g->low / step); k * step <= g->high; k++) put_label(g, k * step);
    }
}

// ---- the curve

// Marks a column of dots from one value to the next, so that the line has no gaps.
static void mark(canvas *g, int column, double from, double to)
{
    int a = row_of(g, from), b = row_of(g, to);
    for (int row = a < b ? a : b; row <= (a < b ? b : a); row++) g->dot[row][column] = true;
}

// Interpolates between the points, which may be fewer than the columns.
static void mark_all(canvas *g, const cli_curve *c)
{
    double before = c->y[0];
    for (int column = 0; column < g->columns; column++) {
        double  at = (double)column * (double)(c->points - 1) / (g->columns - 1);
        int64_t i  = (int64_t)at;
        double  y  = c->y[i];
        if (i + 1 < c->points) y += (at - (double)i) * ((double)c->y[i + 1] - y);
        mark(g, column, before, y);
        before = y;
    }
}

static void print_cell(const canvas *g, int row, int column)
{
    bool dots[CLI_DOTS_Y][CLI_DOTS_X];
    if (!g->utf8) {
        putchar(g->dot[row][column] ? '*' : ' ');
        return;
    }
    for (int y = 0; y < CLI_DOTS_Y; y++)
        for (int x = 0; x < CLI_DOTS_X; x++)
            dots[y][x] = g->dot[row * CLI_DOTS_Y + y][column * CLI_DOTS_X + x];
    cli_print_dots(dots);
}

static void print_row(const canvas *g, int row, bool colours)
{
    if (isnan(g->label[row])) printf("%9s ", "");
    else printf("%9.4g ", g->label[row]);
    fputs(g->utf8 ? "\xe2\x94\x82" : "|", stdout);
    if (colours) fputs("\033[36m", stdout);
    for (int column = 0; column < g->wide; column++) print_cell(g, row, column);
    puts(colours ? "\033[0m" : "");
}

// Returns the width of the terminal without the labels and its last column.
static int width(void)
{
    int room = cli_columns(stdout) - MARGIN - 1;
    return room > WIDTH ? WIDTH : room < WIDTH_LEAST ? WIDTH_LEAST : room;
}

void cli_curve_draw(const cli_curve *c)
{
    canvas g = { .utf8 = cli_utf8() };
    if (c->points < 2) return;
    g.wide    = width();
    g.columns = g.wide * (g.utf8 ? CLI_DOTS_X : 1);
    g.rows    = HEIGHT * (g.utf8 ? CLI_DOTS_Y : 1);
    set_range(&g, c);
    set_labels(&g);
    mark_all(&g, c);
    printf("%9s\n", "loss");
    for (int row = 0; row < HEIGHT; row++) print_row(&g, row, cli_colours(stdout));
    printf("%10s%s", "", g.utf8 ? "\xe2\x94\x94" : "+");
    for (int i = 0; i < g.wide; i++) fputs(g.utf8 ? "\xe2\x94\x80" : "-", stdout);
    printf("\n%12d%*lld steps\n\n", 1, g.wide - 7, (long long)(c->points * c->stride + c->steps));
}
