// Images on their way to a file or a terminal.
#ifndef TNI_DATA_IMAGE_SHOW_H
#define TNI_DATA_IMAGE_SHOW_H

#include "tensor/context.h"

// Images as one, in host memory: planes (C, H, W), C 1 or 3, 0 is black and 1 is white.
typedef struct {
    int64_t C, H, W;
    float  *pixels;  // of the context's heap
} tni_shown;

// Joins the images of x and reads them. False, reported by the op's name, if they cannot be shown.
bool tni_shown_read(const char *op, tn_tensor *x, tn_image_show_opts o, tni_shown *s);
// Returns it as a PNG file of *bytes, of the context's heap; NULL, reported by the op's name,
// without memory.
unsigned char *tni_png_of(tn_ctx *cx, const char *op, const tni_shown *s, size_t *bytes);

#endif
