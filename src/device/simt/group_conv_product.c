// Convolutions that are a matrix product of their operands in place: windows of one tap, and
// windows as large as the image. The device's own matmul, which may be a library's, runs them.
//
// With one tap, y (out, positions) = w (out, in) x (in, positions) for each image. With a window as
// large as the image, y (images, out) = x (images, in * H * W) w^T.
#include "device/simt/groups.h"

enum { X, W, Y };

// Joins neighbouring axes from first to last: their size and stride as one. Returns false if the
// strides do not continue.
static bool join_axes(const tni_arg *x, int first, int last, int64_t *size, int64_t *step)
{
    *size = 1;
    *step = 1;
    for (int i = last; i >= first; i--) {
        if (x->size[i] == 1) continue;
        if (*size > 1 && x->stride[i] != *size * *step) return false;
        if (*size == 1) *step = x->stride[i];
        *size *= x->size[i];
    }
    return true;
}

// Returns a matrix in x's memory, with two axes of batch before it.
static tni_arg matrix_view(const tni_arg *x, const int64_t size[4], const int64_t stride[4])
{
    tni_arg m = { .dtype = x->dtype, .rank = 4, .data = x->data };
    for (int i = 0; i < 4; i++) {
        m.size[i]   = size[i];
        m.stride[i] = stride[i];
    }
    return m;
}

static tni_arg transposed(tni_arg x)
{
    int64_t size = x.size[2], stride = x.stride[2];
    x.size[2]   = x.size[3];
    x.stride[2] = x.stride[3];
    x.size[3]   = size;
    x.stride[3] = stride;
    return x;
}

// Makes the call out = a @ b or, if out is column-major, its transpose, which libraries and kernels
// are faster at. first: the number of the call's input that a is; what is known of the inputs goes
// with them.
static void set_product(const tni_call *c, int first, tni_arg a, tni_arg b, tni_arg out,
                        tni_arg in[2], tni_call *m)
{
    bool transpose = out.stride[2] == 1 && out.stride[3] != 1;
    int  at        = transpose ? 1 - first : first;  // the input that becomes in[0]
    *m             = tni_call_within(c, TNI_matmul);
    m->lasting     = (c->lasting >> at & 1) | (c->lasting >> (1 - at) & 1) << 1;
    m->value[0]    = c->value[at];
    m->value[1]    = c->value[1 - at];
    in[0]          = transpose ? transposed(b) : a;
    in[1]          = transpose ? transposed(a) : b;
    m->nin         = 2;
    m->in          = in;
    m->out         = transpose ? transposed(out) : out;
}

// ---- one tap -----------------------------------------------------------------------------------

// Stride and padding would make positions of x and y differ; dilation means nothing with one tap.
static bool has_one_tap(const tni_conv_form *f)
{
    for (int i = 0; i < 3; i++)
        if (f->arg[W].size[2 + i] != 1 || f->stride[i] != 1 || f->padding[i] != 0) return false;
    return true;
}

// Returns an image of a group as a matrix of channels by positions. all: images and positions join
// to one axis, as the gradient for w needs, which sums over both.
static bool image_matrix(const tni_arg *x, int64_t groups, bool all, tni_arg *m)
{
    int64_t places, step, chans = x->size[1] / groups, images = x->size[0];
    if (!join_axes(x, 2, 4, &places, &step)) return false;
    if (all && images > 1 && places > 1 && x->stride[0] != places * step) return false;
    if (all && places == 1) step = x->stride[0];
    if (all) {
        places *= images;
        images = 1;
    }
    *m = matrix_view(x, (int64_t[]){ images, groups, chans, places },
                     (int64_t[]){ x->stride[0], chans * x->stride[1], x->stride[1], step });
    return true;
}

// LEAST: with fewer channels per group, a matrix is too narrow for matmul, and the kernels of
// group_conv.c are faster.
static bool as_one_tap(const tni_call *c, const tni_conv_form *f, tni_arg in[2], tni_call *m)
{
    enum { LEAST = 8 };
    const tni_arg *x = f->arg;
    int64_t        G = f->groups, out = x[W].size[0] / G, chans = x[W].size[1];
    bool           weights = c->op == TNI_conv_wgrad;
    const int64_t *s       = x[W].stride;
    tni_arg        a, b, w;
    if (out < LEAST || chans < LEAST || !has_one_tap(f)) return false;
    // Images whose places follow each other, as with channels last, are one product and not one
    // each.
    bool all = image_matrix(&x[X], G, true, &a) && image_matrix(&x[Y], G, true, &b);
    if (!all &&
        (weights || !image_matrix(&x[X], G, false, &a) || !image_matrix(&x[Y], G, false, &b)))
        return false;
    w = matrix_view(&x[W], (int64_t[]){ a.size[0], G, out, chans },
                    (int64_t[]){ 0, out * s[0], s[0], s[1] });
    if (weights) set_product(c, 0, b, transposed(a), w, in, m);
    else if (c->op == TNI_conv) set_product(c, 1, w, a, b, in, m);
    else set_product(c, 1, transposed(w), b, a, in, m);
    return true;
}

// ---- one place ---------------------------------------------------------------------------------

// Returns whether the window covers the whole image, without padding, so that there is one output
// position.
static bool has_one_position(const tni_conv_form *f)
{
    const tni_arg *x = f->arg;
    if (f->groups != 1) return false;
    for (int i = 2; i < 5; i++) {
        bool dense = f->dilation[i - 2] == 1 || x[W].size[i] == 1;
        if (x[Y].size[i] != 1 || x[W].size[i] != x[X].size[i] || !dense) return false;
        if (f->padding[i - 2] != 0) return false;
    }
    return true;
}

// Returns the images, or the taps of all output channels, as rows of a matrix.
static bool row_matrix(const tni_arg *x, tni_arg *m)
{
    int64_t size, step;
    if (!join_axes(x, 1, 4, &size, &step)) return false;
    *m = matrix_view(x, (int64_t[]){ 1, 1, x->size[0], size },
                     (int64_t[]){ 0, 0, x->stride[0], step });
    return true;
}

// A product of images by output channels.
static bool as_full_window(const tni_call *c, const tni_conv_form *f, tni_arg in[2], tni_call *m)
{
    const tni_arg *x = f->arg;
    tni_arg        a, w, y;
    if (!has_one_position(f) || !row_matrix(&x[X], &a) || !row_matrix(&x[W], &w) ||
        !row_matrix(&x[Y], &y))
        return false;
    if (c->op == TNI_conv) set_product(c, 0, a, transposed(w), y, in, m);
    else if (c->op == TNI_conv_dgrad) set_product(c, 0, y, w, a, in, m);
    else set_product(c, 0, transposed(y), a, w, in, m);
    return true;
}

bool tni_conv_product(const tni_call *c, tni_arg in[2], tni_call *m)
{
    tni_conv_form f = tni_conv_form_of(c, 3);
    return as_full_window(c, &f, in, m) || as_one_tap(c, &f, in, m);
}
