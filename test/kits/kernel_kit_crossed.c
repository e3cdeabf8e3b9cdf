// kernel_kit_crossed.c: random maps of which some operands are transposed.
#include "kernel_kit.h"

enum { NONE = TNI_NO_VALUE };

// A kernel of which some loads and stores have their neighbours along `axis`, drawn by a seed.
typedef struct {
    kit_case *c;
    uint64_t  s;
    int       axis;    // tiles lie along it and the last
    bool      narrow;  // only elements of two bytes or one
} draft;

static bool chance(draft *d, int percent)
{
    return kit_below(&d->s, 100) < percent;
}

static tn_dtype draw_dtype(draft *d)
{
    static const tn_dtype wide[] = { TN_F32, TN_F32, TN_F32, TN_I32, TN_I64, TN_F64 },
                          thin[] = { TN_F16, TN_BF16, TN_BF16, TN_U8, TN_I8, TN_BOOL };
    return (d->narrow || chance(d, 35) ? thin : wide)[kit_below(&d->s, 6)];
}

// An access whose neighbours lie along an axis, over all axes of the mask; now and then it is not
// aligned.
static int draw_access(draft *d, tn_dtype dt, int near, unsigned mask, bool written)
{
    kit_case *c                = d->c;
    int       np               = c->k.np;
    int64_t   stride[TNI_AXES] = { 0 }, step = 1, first = chance(d, 6) ? 1 : 0;
    for (int n = 0; n < np; n++) {
        int i = n == 0 ? near : np - n - (np - n <= near);
        if (!(mask >> i & 1)) continue;
        stride[i] = step;
        step *= c->l.size[i];
    }
    return kit_access(c, kit_buffer(c, dt, step + first, written), first, stride, 0);
}

static int draw_load(draft *d, bool crossed)
{
    kit_case *c    = d->c;
    int       lane = c->k.np - 1;
    unsigned  all = (1u << c->k.np) - 1, both = 1u << lane | 1u << d->axis;
    unsigned  mask = chance(d, 70) ? all : crossed ? both : (unsigned)kit_below(&d->s, all + 1);
    int       x    = kit_load(c, draw_access(d, draw_dtype(d),
                                    crossed || !(mask >> lane & 1) ? d->axis : lane, mask, false));
    return kit_cast(c, TN_F32, x);
}

static void draw_store(draft *d, bool crossed, int x)
{
    kit_case *c    = d->c;
    tn_dtype  dt   = draw_dtype(d);
    unsigned  all  = (1u << c->k.np) - 1;
    int       near = crossed ? d->axis : c->k.np - 1;
    kit_store(c, draw_access(d, dt, near, all, true), kit_cast(c, dt, x));
}

// A load with a guard, and one of a buffer that the kernel writes: x += y where x is transposed.
static int draw_odd(draft *d, int x)
{
    kit_case *c   = d->c;
    unsigned  all = (1u << c->k.np) - 1;
    if (chance(d, 30)) {
        int64_t stride[TNI_AXES] = { 0 };
        stride[c->k.np - 1]      = 1;
        int p                    = kit_place(c, 0, stride);
        int g                    = kit_map(c, TNI_ge, p, kit_number(c, TN_I64, 3), NONE);
        int at                   = draw_access(d, TN_F32, d->axis, all, false);
        x                        = kit_map(c, TNI_add, x, kit_load_at(c, at, NONE, g), NONE);
    }
    if (!d->narrow && chance(d, 30)) {
        int at = draw_access(d, TN_F32, d->axis, all, true);
        kit_store(c, at, kit_map(c, TNI_add, kit_load(c, at), x, NONE));
    }
    return x;
}

bool kit_crossed_case(kit_case *c, uint64_t seed, int64_t more)
{
    draft   d  = { .c = c, .s = seed };
    int     np = 2 + (int)kit_below(&d.s, 3), unit = 1 << kit_below(&d.s, 4);
    int64_t size[4];
    d.axis   = (int)kit_below(&d.s, np - 1);
    d.narrow = chance(&d, 30);
    for (int i = 0; i < np; i++) size[i] = 2 + kit_below(&d.s, 2);
    int64_t least = (d.narrow ? 64 : 32) + more;
    size[d.axis]  = (least + kit_below(&d.s, 50) + unit - 1) / unit * unit;
    size[np - 1]  = (least + kit_below(&d.s, 50) + unit - 1) / unit * unit;
    kit_begin(c, np, size, 0, NULL, false);
    c->seed   = seed;
    c->k.wide = chance(&d, 30);
    int x     = draw_load(&d, true);
    for (int n = (int)kit_below(&d.s, 4); n > 0; n--)
        x = kit_map(c, n % 2 ? TNI_sub : TNI_add, x, draw_load(&d, chance(&d, 50)), NONE);
    x = draw_odd(&d, x);
    draw_store(&d, chance(&d, 40), x);
    if (chance(&d, 40)) draw_store(&d, chance(&d, 50), kit_map(c, TNI_neg, x, NONE, NONE));
    return kit_end(c);
}
