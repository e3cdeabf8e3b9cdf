// Convolution of each channel with a window of its own and its gradient for x, by the kernel of
// group_text_depthwise.c.
#include "device/simt/groups.h"

enum { X, W, Y };

// EACH, ACROSS, DOWN: of an item, as in the text. A group has 2^ITEMS items.
enum { EACH = 4, TAPS = 3, ACROSS = 4, DOWN = 2, ITEMS = 7 };

// The parameters, field by field as in the text.
typedef struct {
    int64_t x_offset, w_offset, y_offset;
    int32_t height, width, y_height, y_width, channels, pad_down, pad_across;
    int32_t vectors, strips, bands, lanes, side, unused;
} depthwise_params;

_Static_assert(sizeof(depthwise_params) == 3 * 8 + 13 * 4 + 4, "no padding");

// Whether an image or weight is dense with its channels last.
static bool is_dense(const tni_arg *x)
{
    static const int axis[] = { 1, 3, 2, 0 };
    int64_t          next   = 1;
    for (int i = 0; i < 4; i++) {
        if (x->size[axis[i]] > 1 && x->stride[axis[i]] != next) return false;
        next *= x->size[axis[i]];
    }
    return next < INT32_MAX;
}

// In 16 bits, over two axes of places, with as many channels as groups.
bool tni_groups_takes_depthwise(const tni_call *c)
{
    tni_conv_form f;
    if ((c->op != TNI_conv && c->op != TNI_conv_dgrad) || c->out.rank != 4 ||
        !tni_is_rounded(c->out.dtype))
        return false;
    f       = tni_conv_form_of(c, 2);
    bool ok = f.groups == f.arg[X].size[1] && f.groups == f.arg[Y].size[1] && f.groups % EACH == 0;
    for (int i = 0; i < 3; i++) ok &= is_dense(&f.arg[i]) && f.arg[i].dtype == c->out.dtype;
    for (int i = 0; i < 2; i++) {
        ok &= f.arg[W].size[2 + i] == TAPS && f.dilation[i] == 1 && f.stride[i] == f.stride[0];
        ok &= f.padding[i] < (1 << 20);
    }
    return ok && (f.stride[0] == 1 || f.stride[0] == 2);
}

const char *const *tni_groups_depthwise_text(const tni_call *c)
{
    return tni_text_depthwise[2 * (c->op == TNI_conv_dgrad) + c->attr->conv.stride[0] - 1];
}

// Divides the items of groups among vectors of channels, strips and bands, for the fewest groups:
// those of small images have few items across. Of vectors there are 8 or 16, half a line of memory
// or one, and 16 if that takes no more groups; items that are neighbours in both directions share
// most pixels.
static void divide_items(depthwise_params *o, int64_t vectors, int64_t strips, int64_t bands)
{
    static const int sides[] = { 2, 1, 3, 0 };
    int64_t          fewest  = INT64_MAX;
    for (int lanes = 4; lanes >= 3; lanes--)
        for (int i = 0; i < 4; i++) {
            int     side  = sides[i];
            int64_t n[]   = { tni_ceil_div(vectors, 1 << lanes), tni_ceil_div(strips, 1 << side),
                              tni_ceil_div(bands, 1 << (ITEMS - lanes - side)) };
            int64_t count = n[0] * n[1] * n[2];
            if (count >= fewest) continue;
            fewest     = count;
            o->vectors = (int32_t)n[0];
            o->strips  = (int32_t)n[1];
            o->bands   = (int32_t)n[2];
            o->lanes   = lanes;
            o->side    = side;
        }
}

// Items beyond an end do nothing. In the gradient images change roles, and items begin at minus the
// padding.
tn_status tni_groups_depthwise(const tni_call *c, const char *const *text, char *y,
                               const tni_ending_args *ending)
{
    tni_kernel_args  h;
    tni_conv_form    f    = tni_conv_form_of(c, 2);
    bool             back = c->op == TNI_conv_dgrad;
    const tni_arg   *from = &f.arg[back ? Y : X];
    const int64_t   *x = from->size, *to = f.arg[back ? X : Y].size;
    int64_t          before[2] = { back ? f.padding[0] : 0, back ? f.padding[1] : 0 };
    depthwise_params o         = { .height     = (int32_t)x[2],
                                   .width      = (int32_t)x[3],
                                   .y_height   = (int32_t)to[2],
                                   .y_width    = (int32_t)to[3],
                                   .channels   = (int32_t)x[1],
                                   .pad_down   = (int32_t)f.padding[0],
                                   .pad_across = (int32_t)f.padding[1] };
    divide_items(&o, tni_ceil_div(x[1], EACH), tni_ceil_div(to[3] + before[1], ACROSS),
                 tni_ceil_div(to[2] + before[0], DOWN));
    tn_status s = tni_kernel_args_begin(&h, c, text, "depthwise", c->out.dtype, c->out.dtype);
    if (s != TN_OK) return s;
    h.overlaps = true;
    o.x_offset = tni_kernel_args_add_buffer(&h, from->data) / 2;
    o.w_offset = tni_kernel_args_add_buffer(&h, f.arg[W].data) / 2;
    o.y_offset = tni_kernel_args_add_buffer(&h, y) / 2;
    tni_kernel_args_add(&h, &o, sizeof o);
    if (ending) tni_kernel_args_add(&h, ending, sizeof *ending);
    return tni_kernel_args_launch(&h, (int64_t)o.vectors * o.strips * o.bands * x[0], 1 << ITEMS,
                                  c->why);
}
