// answer.c: prints a picture in the terminal with what the network sees in it: the most likely
// classes and a bar for each.
#include "cli.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_COLUMNS = 48, LEAST_COLUMNS = 8, BAR = 20, TEXT = 52 };  // TEXT: beside the picture

// "  93.1 %  ##################    cat".
static void print_guess(const cli_guess *g, bool utf8)
{
    int full = (int)(g->chance * BAR + 0.5);
    printf("  %5.1f %%  ", 100 * g->chance);
    for (int i = 0; i < BAR; i++) fputs(i >= full ? " " : utf8 ? "\xe2\x96\x88" : "#", stdout);
    printf("  %s", g->name);
}

// Prints the lines of a picture, `columns` characters wide, and beside their middle the guesses.
static void print_beside(char *picture, int columns, int n, const cli_guess *guess)
{
    int lines = 0;
    for (char *s = picture; (s = strchr(s, '\n')); s++) lines++;
    int height = lines > n ? lines : n, first = (height - n) / 2;
    for (int i = 0; i < height; i++) {
        char *end = strchr(picture, '\n');
        if (end) *end = 0;
        printf("  %s%*s", picture, end ? 0 : columns, "");
        if (end) picture = end + 1;
        if (i >= first && i < first + n) print_guess(&guess[i - first], cli_utf8());
        putchar('\n');
    }
    putchar('\n');
}

bool cli_answer(const char *title, tn_tensor *x, int n, const cli_guess *guess)
{
    int    columns = cli_columns(stdout) - TEXT;
    char  *picture = NULL;
    size_t bytes;
    FILE  *f = open_memstream(&picture, &bytes);
    if (!f) return tn_error_set(tn_ctx_of(x), TN_EMEM, "out of memory") != NULL;
    if (columns > MOST_COLUMNS) columns = MOST_COLUMNS;
    if (columns < LEAST_COLUMNS) columns = LEAST_COLUMNS;
    if (columns > tn_size(x, -1)) columns = (int)tn_size(x, -1);
    bool      in_colours = cli_utf8() && cli_colours(stdout);
    tn_status status     = tn_image_print_with(
            x, f,
            (tn_image_show_opts){ .style = in_colours ? TN_IMAGE_COLOURS : TN_IMAGE_SHADES,
                                  .width = columns });
    bool whole = fclose(f) == 0 && picture;
    if (status == TN_OK && whole) {
        printf("%s\n", cli_shown(title));
        print_beside(picture, columns, n, guess);
    }
    free(picture);
    if (!whole) tn_error_set(tn_ctx_of(x), TN_EMEM, "out of memory");
    return status == TN_OK && whole;
}
