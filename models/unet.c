// A U-Net: convolutions on the way down to half the size at each level, and on the way up again,
// where each level is joined to what it was on the way down.
//
// B batch, C channels
#include "part.h"

enum { MAX_LEVELS = 8 };

// On the way up, for each level but the lowest, a transposed convolution from below and the
// convolutions after what it gives was joined to what went down there.
typedef struct {
    int       levels;
    tn_layer *down[MAX_LEVELS], *up[MAX_LEVELS], *joined[MAX_LEVELS], *out;
} unet;

static tn_tensor *run_unet(tn_layer *l, tn_tensor *x)
{
    const unet *u = tn_layer_self(l);
    tn_tensor  *kept[MAX_LEVELS];
    for (int i = 0; i < u->levels; i++) {
        if (i > 0) x = tn_max_pool2d(x, 2, 2, (tn_pool_opts){ .stride = { 2 } });
        x = kept[i] = tn_forward(u->down[i], x);
    }
    for (int i = u->levels - 2; i >= 0; i--) {
        tn_tensor *both[] = { kept[i], tn_forward(u->up[i], x) };
        x                 = tn_forward(u->joined[i], tn_concat(2, both, 1));
    }
    return tn_forward(u->out, x);
}

// Two convolutions, each with its norm and relu.
static tn_layer *two_convs(tn_ctx *cx, int64_t in, int64_t out)
{
    tn_nn_conv_opts o = { .padding = { 1 }, .no_bias = true };
    tn_layer       *a = tn_nn_conv2d_hw(cx, in, out, 3, 3, o), *an = tn_nn_batch_norm(cx, out);
    tn_layer       *b = tn_nn_conv2d_hw(cx, out, out, 3, 3, o), *bn = tn_nn_batch_norm(cx, out);
    tn_layer       *r = tn_nn_act(cx, tn_relu);
    return tn_nn_seq(cx, a, an, r, b, bn, tn_nn_act(cx, tn_relu));
}

// A layer "down", "up" or "joined" whose children are those of the levels.
static tn_layer *new_list(tn_ctx *cx, tn_layer *l, const char *name)
{
    return tn_layer_child(l, name, tni_model_chain(cx));
}

// Adds level i, with `width` channels.
static bool add_level(tn_ctx *cx, unet *u, tn_layer *const list[3], int i, int64_t channels,
                      int64_t width)
{
    tn_nn_conv_opts half = { .stride = { 2 } };
    char            name[8];
    snprintf(name, sizeof name, "%d", i);
    u->down[i] = tn_layer_child(list[0], name, two_convs(cx, i ? width / 2 : channels, width));
    if (i == u->levels - 1) return u->down[i];
    u->up[i]     = tn_layer_child(list[1], name,
                                  tn_nn_conv_transpose2d_hw(cx, 2 * width, width, 2, 2, half));
    u->joined[i] = tn_layer_child(list[2], name, two_convs(cx, 2 * width, width));
    return u->down[i] && u->up[i] && u->joined[i];
}

static bool options_ok(tn_ctx *cx, tn_unet_opts *o)
{
    if (!o->levels) o->levels = 5;
    if (!o->width) o->width = 32;
    if (!o->classes) o->classes = 2;
    if (!o->channels) o->channels = 3;
    const tni_model_size sizes[] = { { "levels", o->levels },
                                     { "width", o->width },
                                     { "classes", o->classes },
                                     { "channels", o->channels } };
    if (!tni_sizes_ok(cx, "unet", sizeof sizes / sizeof *sizes, sizes)) return false;
    if (o->levels <= MAX_LEVELS) return true;
    char text[64];
    snprintf(text, sizeof text, "unet: %d levels are more than %d", o->levels, MAX_LEVELS);
    return tn_error_set(cx, TN_EARG, text), false;
}

tn_layer *tn_unet(tn_ctx *cx, tn_unet_opts o)
{
    if (!options_ok(cx, &o)) return NULL;
    tn_layer *l = tni_model_part(cx, run_unet, sizeof(unet));
    if (!l) return NULL;
    unet     *u      = tn_layer_self(l);
    tn_layer *list[] = { new_list(cx, l, "down"), new_list(cx, l, "up"),
                         new_list(cx, l, "joined") };
    bool      ok     = list[0] && list[1] && list[2];
    u->levels        = o.levels;
    for (int i = 0; i < o.levels && ok; i++)
        ok = add_level(cx, u, list, i, o.channels, o.width << i);
    u->out = ok ? tn_layer_child(l, "out", tn_nn_conv2d(cx, o.width, o.classes, 1)) : NULL;
    return tni_model_done(l, u->out);
}
