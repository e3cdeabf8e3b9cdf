// The commands of the tool. Each takes its own arguments (argv[0] is the command) and returns the
// exit status.
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <stdbool.h>

int cli_demo(int argc, char **argv);

// Whether standard output takes colours: a terminal, and NO_COLOR is not set.
bool cli_colours(void);

// Draws points and a curve over the same x range into a grid of characters.
typedef struct {
    int          width, height;
    int          points, steps;  // of the data, of the curve
    const float *x, *y;          // the data
    const float *curve_x, *curve_y;
} cli_plot;

void cli_plot_draw(const cli_plot *p);

#endif
