// plot.c: points and a curve as characters.
#include "cli.h"

#include <stdio.h>
#include <string.h>

enum { MOST_WIDTH = 120, MOST_HEIGHT = 40 };

// The ranges of both axes, and the characters drawn so far, top row first.
typedef struct {
    int   width, height;
    float x0, x1, y0, y1;
    char  cell[MOST_HEIGHT][MOST_WIDTH];
} grid;

static void widen(float *low, float *high, int n, const float *v)
{
    for (int i = 0; i < n; i++) {
        if (v[i] < *low) *low = v[i];
        if (v[i] > *high) *high = v[i];
    }
}

static void mark(grid *g, int n, const float *x, const float *y, char c)
{
    for (int i = 0; i < n; i++) {
        if (!(x[i] >= g->x0 && x[i] <= g->x1 && y[i] >= g->y0 && y[i] <= g->y1)) continue;
        int column = (int)((x[i] - g->x0) / (g->x1 - g->x0) * (float)(g->width - 1) + 0.5f);
        int row    = (int)((g->y1 - y[i]) / (g->y1 - g->y0) * (float)(g->height - 1) + 0.5f);

        g->cell[row][column] = c;
    }
}

static void print_row(const grid *g, int row, bool colours)
{
    float label = g->y1 - (g->y1 - g->y0) * (float)row / (float)(g->height - 1);
    if (row == 0 || row == g->height - 1 || row == g->height / 2) printf("%6.2f |", label);
    else printf("       |");
    int end = g->width;
    while (end > 0 && g->cell[row][end - 1] == ' ') end--;
    for (int k = 0; k < end; k++) {
        char c = g->cell[row][k];
        if (colours && c == '*') printf("\033[36m*\033[0m");
        else putchar(c);
    }
    putchar('\n');
}

void cli_plot_draw(const cli_plot *p)
{
    grid g = { .width  = p->width < MOST_WIDTH ? p->width : MOST_WIDTH,
               .height = p->height < MOST_HEIGHT ? p->height : MOST_HEIGHT };
    g.x0 = g.x1 = p->x[0];
    g.y0 = g.y1 = p->y[0];
    widen(&g.x0, &g.x1, p->points, p->x);
    widen(&g.x0, &g.x1, p->steps, p->curve_x);
    widen(&g.y0, &g.y1, p->points, p->y);
    widen(&g.y0, &g.y1, p->steps, p->curve_y);
    if (!(g.x1 > g.x0)) g.x1 = g.x0 + 1;
    if (!(g.y1 > g.y0)) g.y1 = g.y0 + 1;

    memset(g.cell, ' ', sizeof g.cell);
    mark(&g, p->steps, p->curve_x, p->curve_y, '*');
    mark(&g, p->points, p->x, p->y, 'o');
    for (int row = 0; row < g.height; row++) print_row(&g, row, cli_colours());
    printf("       +");
    for (int k = 0; k < g.width; k++) putchar('-');
    printf("\n%9.2f%*.2f\n", g.x0, g.width - 2, g.x1);
}
