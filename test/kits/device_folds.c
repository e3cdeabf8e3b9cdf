// device_folds.c: scans, places of extrema and sorts of many lengths, strides and dtypes on a
// device, against ref. The shapes are those at which a device with work groups does something else.
#include "check.h"
#include "device_table.h"
#include "on_device.h"
#include "table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

// ---- cases -------------------------------------------------------------------------------------

// A shape of three axes, and the one that is gone along.
typedef struct {
    int64_t size[3];
    int     axis;
    layout  lay;
} shape;

// What is done on both devices, and how it is compared; bound as tolerance has it, or NULL.
typedef struct {
    const char *name;
    tn_tensor *(*f)(tn_tensor *x, int axis);
    tn_tensor *(*bound)(tn_tensor *x, int axis);
} fold_op;

static int64_t count_of(const input *in)
{
    int64_t n = 1;
    for (int i = 0; i < in->base_rank; i++) n *= in->base[i];
    return n;
}

// One case; the same twice must be the same bits.
static void agree(tn_ctx *const *cx, const fold_op *d, const shape *s, const input *in)
{
    tn_tensor *y[2], *again = NULL, *bound = NULL;
    char       text[256] = "";
    tn_scope  *scope[]   = { tn_begin(cx[0]), tn_begin(cx[1]) };
    for (int k = 0; k < 2; k++) {
        tn_tensor *x = input_put(in, cx[k]);
        y[k]         = d->f(x, s->axis);
        if (!k) again = d->f(input_put(in, cx[0]), s->axis);
        if (k && d->bound) bound = d->bound(x, s->axis);
    }
    tolerance t  = bound ? (tolerance){ .how   = SUMS,
                                        .depth = (double)s->size[s->axis],
                                        .bound = bound }
                         : (tolerance){ .how = EXACT };
    bool      ok = agrees(y[0], y[1], t, text);
    if (ok) ok = agrees(again, tn_copy_to(cx[1], y[0]), (tolerance){ .how = EXACT }, text);
    test_case_result(ok, "%s of %s (%d, %d, %d) %s along %d: %s %s", d->name,
                     tn_dtype_name(in->dtype), (int)s->size[0], (int)s->size[1], (int)s->size[2],
                     layout_names[s->lay], s->axis, text, tn_error_text(cx[0]));
    tn_end(scope[1]);
    tn_end(scope[0]);
}

static void draw_and_agree(tn_ctx *const *cx, const fold_op *d, const shape *s, tn_dtype dt, mood m)
{
    input in = input_make(dt, s->lay, 3, s->size, m);
    agree(cx, d, s, &in);
    input_free(&in);
}

static bool open_both(tn_ctx **cx, const char *device)
{
    cx[0] = open_eager(device, false);
    cx[1] = open_quiet("ref", 1);
    return cx[0] && cx[1];
}

static void close_both(tn_ctx **cx)
{
    tn_close(cx[0]);
    tn_close(cx[1]);
}

// ---- scans -------------------------------------------------------------------------------------

static tn_tensor *bound_sum(tn_tensor *x, int axis)
{
    bool floats = tni_is_float(tn_dtype_of(x));
    return tn_cumsum(floats ? tn_abs(x) : x, axis);
}

static const fold_op sum     = { "cumsum", tn_cumsum, bound_sum },
                     product = { "cumprod", tn_cumprod, NULL };

// Powers of two whose product stays near one along the axis, though it goes up and down: so it is
// exact, unless what is far apart is multiplied first.
static void draw_powers(input *in, const shape *s)
{
    int64_t inner = 1, n = count_of(in);
    for (int i = s->axis + 1; i < 3; i++) inner *= s->size[i];
    for (int64_t k = 0; k < n; k++) {
        int64_t i  = k / inner % s->size[s->axis];
        int     up = i / 8 % 2 ? -1 : 1;
        host_put(in->dtype, in->data, k, ldexp(draw() & 1 ? 1 : -1, up), draw_below(7) - 3);
    }
}

static void product_agrees(tn_ctx *const *cx, const shape *s, tn_dtype dt)
{
    input in = input_make(dt, PLAIN, 3, s->size, TAME);
    draw_powers(&in, s);
    agree(cx, &product, s, &in);
    input_free(&in);
}

// Rows of one item, of several, of a tile and more, and in chunks; columns, in chunks or not.
static const shape scanned[] = {
    { { 2, 9, 100 }, 2, STEPPED },   { { 1, 1, 8200 }, 2, PLAIN },
    { { 1, 100, 7 }, 1, FLIPPED },   { { 2, 5, 8 }, 2, PLAIN },
    { { 3, 7, 9 }, 2, PLAIN },       { { 3, 4, 128 }, 2, PLAIN },
    { { 1, 3, 300 }, 2, BROADCAST }, { { 1, 3, 2048 }, 2, FLIPPED },
    { { 1, 2, 2049 }, 2, PLAIN },    { { 1, 2, 8197 }, 2, STEPPED },
    { { 5, 6, 7 }, 1, PLAIN },       { { 3, 70, 9 }, 1, TRANSPOSED },
    { { 70, 3, 5 }, 0, PLAIN },
};
// Many rows of several tiles, many columns, and more chunks than a group has items.
static const shape scanned_long[] = {
    { { 2, 130, 2300 }, 2, BROADCAST }, { { 1, 259, 4100 }, 2, PLAIN },
    { { 2, 9, 40000 }, 1, PLAIN },      { { 1, 20000, 2 }, 1, PLAIN },
    { { 1, 1, 700000 }, 2, PLAIN },     { { 1, 3, 300000 }, 2, STEPPED },
};
static void scans_agree(tn_ctx *const *cx, const shape *s, tn_dtype dt, mood m)
{
    shape plain = *s;
    plain.lay   = PLAIN;
    draw_and_agree(cx, &sum, s, dt, m);
    product_agrees(cx, &plain, dt);
}

void scans_on(const char *device)
{
    tn_ctx *cx[2];
    table_seed(7);
    if (!open_both(cx, device)) return;
    for (int k = 0; k < COUNT(scanned); k++)
        for (int d = 0; d < DTYPES; d++)
            if (all_dtypes[d] == TN_F32 || k < 3)
                scans_agree(cx, &scanned[k], all_dtypes[d], k % 4 == 3 ? ODD : TAME);
    close_both(cx);
}

// ---- places of extrema -------------------------------------------------------------------------

static tn_tensor *largest_of_all(tn_tensor *x, int axis)
{
    (void)axis;
    return tn_argmax_all(x);
}

static const fold_op places[] = { { "argmax", tn_argmax, NULL },
                                  { "argmin", tn_argmin, NULL },
                                  { "argmax of all", largest_of_all, NULL } };

// Rows of one item, of several and of a group, and in chunks; columns, in chunks or not; windows,
// whose rows are neither.
static const shape searched[] = {
    { { 3, 7, 10 }, 2, STEPPED },     { { 1, 1, 8195 }, 2, FLIPPED },
    { { 1, 99, 17 }, 1, PLAIN },      { { 5, 7, 3 }, 2, PLAIN },
    { { 2, 4, 128 }, 2, PLAIN },      { { 1, 2, 5021 }, 2, PLAIN },
    { { 4, 20, 19 }, 1, PLAIN },      { { 70, 2, 19 }, 0, PLAIN },
    { { 1, 90, 95 }, 1, TRANSPOSED }, { { 1, 30, 30 }, 2, WINDOWED },
    { { 1, 70, 5 }, 1, PLAIN },
};
// Many rows, many columns, and more chunks than a group has items.
static const shape searched_long[] = {
    { { 1, 270, 9100 }, 2, PLAIN },     { { 1, 3, 30011 }, 2, STEPPED },
    { { 1, 20000, 17 }, 1, PLAIN },     { { 3, 3, 23000 }, 1, PLAIN },
    { { 2, 400, 200 }, 1, TRANSPOSED }, { { 1, 1, 1200000 }, 2, PLAIN },
};

// Few values, many of them equal; zeros of both signs, and rarely NaN or an infinity.
static void draw_ties(input *in)
{
    int64_t n = count_of(in);
    for (int64_t i = 0; i < n; i++) {
        int64_t v = draw_below(9) - 4, odd = draw_below(9000);
        double  f = odd == 0 ? NAN : odd == 1 ? INFINITY : odd == 2 ? -INFINITY : (double)v;
        host_put(in->dtype, in->data, i, v ? f : draw() & 1 ? 0.0 : -0.0, v);
    }
}

static void places_agree(tn_ctx *const *cx, const shape *s, tn_dtype dt)
{
    input in = input_make(dt, s->lay, 3, s->size, WILD);
    for (int i = 0; i < 3; i++) agree(cx, &places[i], s, &in);
    draw_ties(&in);
    for (int i = 0; i < 3; i++) agree(cx, &places[i], s, &in);
    input_free(&in);
}

void extrema_on(const char *device)
{
    tn_ctx *cx[2];
    table_seed(8);
    if (!open_both(cx, device)) return;
    for (int k = 0; k < COUNT(searched); k++)
        for (int d = 0; d < DTYPES; d++)
            if (all_dtypes[d] == TN_F32 || k < 3) places_agree(cx, &searched[k], all_dtypes[d]);
    close_both(cx);
}

// ---- sorts -------------------------------------------------------------------------------------

static tn_tensor *rising(tn_tensor *x, int axis)
{
    return tn_argsort(x, axis, false);
}

static tn_tensor *falling(tn_tensor *x, int axis)
{
    return tn_argsort(x, axis, true);
}

static tn_tensor *risen(tn_tensor *x, int axis)
{
    return tn_sort(x, axis, false).values;
}

static tn_tensor *fallen(tn_tensor *x, int axis)
{
    return tn_sort(x, axis, true).values;
}

static const fold_op orders[] = { { "argsort", rising, NULL },
                                  { "argsort, falling", falling, NULL },
                                  { "sort", risen, NULL },
                                  { "sort, falling", fallen, NULL } };

// Several lines a group, one, and lines of many groups; a last run alone, and with another.
static const shape sorted[] = {
    { { 2, 15, 9 }, 2, STEPPED },     { { 1, 1500, 2 }, 1, PLAIN },
    { { 1, 1, 2100 }, 2, FLIPPED },   { { 3, 5, 1 }, 2, PLAIN },
    { { 2, 11, 7 }, 2, PLAIN },       { { 3, 4, 33 }, 2, FLIPPED },
    { { 1, 3, 512 }, 2, PLAIN },      { { 1, 2, 1000 }, 2, PLAIN },
    { { 1, 2, 1024 }, 2, PLAIN },     { { 1, 2, 1025 }, 2, STEPPED },
    { { 200, 2, 3 }, 0, TRANSPOSED },
};
static const shape sorted_long[] = { { { 1, 3, 5000 }, 2, FLIPPED },
                                     { { 1, 9000, 3 }, 1, PLAIN },
                                     { { 1, 1, 70000 }, 2, PLAIN },
                                     { { 7, 300, 65 }, 2, PLAIN } };

static void orders_agree(tn_ctx *const *cx, const shape *s, tn_dtype dt)
{
    input in = input_make(dt, s->lay, 3, s->size, WILD);
    for (int i = 0; i < COUNT(orders); i++) agree(cx, &orders[i], s, &in);
    draw_ties(&in);
    for (int i = 0; i < COUNT(orders); i++) agree(cx, &orders[i], s, &in);
    input_free(&in);
}

void sorts_on(const char *device)
{
    tn_ctx *cx[2];
    table_seed(9);
    if (!open_both(cx, device)) return;
    for (int k = 0; k < COUNT(sorted); k++)
        for (int d = 0; d < DTYPES; d++)
            if (all_dtypes[d] == TN_F32 || k < 3) orders_agree(cx, &sorted[k], all_dtypes[d]);
    close_both(cx);
}

// ---- long lines, and many ----------------------------------------------------------------------

void long_lines_on(const char *device)
{
    static const tn_dtype wide[] = { TN_F32, TN_F64, TN_BF16 };
    tn_ctx               *cx[2];
    table_seed(10);
    if (!open_both(cx, device)) return;
    for (int k = 0; k < COUNT(scanned_long); k++)
        scans_agree(cx, &scanned_long[k], wide[k % 3], k == 1 ? ODD : TAME);
    for (int k = 0; k < COUNT(searched_long); k++) places_agree(cx, &searched_long[k], wide[k % 3]);
    for (int k = 0; k < COUNT(sorted_long); k++) {
        orders_agree(cx, &sorted_long[k], TN_F32);
        orders_agree(cx, &sorted_long[k], TN_I64);
    }
    close_both(cx);
}
