// pictures.c: prints images in the terminal, with the predicted class below each.
#include "cli.h"

#include <stdlib.h>
#include <string.h>

enum { GAP = 2, INDENT = GAP };

// Grey images (N, 1, H, W) and their predicted and true classes. A character is `across` pixels
// wide.
typedef struct {
    tn_tensor     *x;
    const int64_t *guess, *truth;
    bool           colours;
    int            across, cells;  // cells: characters that an image is wide
} album;

static void print_guess(const album *a, int64_t i)
{
    char text[64];
    bool right = a->guess[i] == a->truth[i];
    if (right) snprintf(text, sizeof text, "%lld", (long long)a->guess[i]);
    else
        snprintf(text, sizeof text, "%lld (it is %lld)", (long long)a->guess[i],
                 (long long)a->truth[i]);
    int left = (a->cells - (int)strlen(text) + 1) / 2;
    if (left < 0) left = 0;
    if (a->colours) fputs(right ? "\033[32m" : "\033[31m", stdout);
    printf("%*s%-*s", left, "", a->cells - left + GAP, text);
    if (a->colours) fputs("\033[0m", stdout);
}

// Prints images first .. end - 1 side by side, and their classes below. The grid has its padding on
// all sides; only that between the images and to their left is wanted.
static void print_some(const album *a, int64_t first, int64_t end)
{
    int64_t            pad = GAP * a->across;
    tn_image_show_opts o   = { .columns = end - first, .padding = pad, .style = TN_IMAGE_DOTS };
    // A single image would get no padding.
    tn_tensor *x = tn_pad(tn_slice(a->x, 0, first, end, 1), (int64_t[4]){ 0 },
                          (int64_t[4]){ end - first == 1 }, 0);
    o.columns    = tn_size(x, 0);
    tn_image_print_with(tn_slice(tn_image_grid(x, o), 1, pad, -pad, 1), stdout, o);
    printf("%*s", INDENT, "");
    for (int64_t i = first; i < end; i++) print_guess(a, i);
    puts("\n");
}

// Prints all images, in as few rows as the terminal allows, of equal length.
static void print_all(const album *a)
{
    int64_t n = tn_size(a->x, 0), most = (cli_columns(stdout) - 2 * GAP) / (a->cells + GAP);
    int64_t rows = (n + (most > 1 ? most : 1) - 1) / (most > 1 ? most : 1);
    for (int64_t k = 0; k < rows; k++) print_some(a, k * n / rows, (k + 1) * n / rows);
}

tn_status cli_pictures(tn_layer *net, tn_data *data, int n)
{
    tn_ctx   *cx    = tn_layer_ctx(net);
    tn_scope *scope = tn_begin(cx);
    tn_grad_mode(cx, false);
    tn_layer_train(net, false);
    tn_data_rewind(data);
    tn_batch   b     = tn_next(data, n);
    tn_tensor *guess = tn_argmax(tn_forward(net, b.x), 1);
    int64_t   *ids   = guess ? cli_alloc(cx, 2 * b.count, sizeof *ids) : NULL;
    album      a     = { .x       = b.x,
                         .guess   = ids,
                         .truth   = ids + b.count,
                         .colours = cli_colours(stdout),
                         .across  = cli_utf8() ? CLI_DOTS_X : 1 };
    a.cells          = (int)((tn_size(b.x, 3) + a.across - 1) / a.across);
    if (ids && tn_read(guess, TN_I64, ids, b.count) == TN_OK &&
        tn_read(b.y, TN_I64, ids + b.count, b.count) == TN_OK)
        print_all(&a);
    free(ids);
    tn_layer_train(net, true);
    tn_end(scope);
    return tn_error(cx);
}
