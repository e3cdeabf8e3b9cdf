// product_kit.c: random calls of matmul over host memory, and their definition.
#include "product_kit.h"

#include "host.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { POISON = 99 };

uint64_t product_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x          = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x          = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static int below(uint64_t *s, int n)
{
    return (int)(product_random(s) % (uint64_t)n);
}

// ---- layouts -----------------------------------------------------------------------------------

// The order of the axes in memory, the last one with the smallest step: as they are, or the last
// two exchanged, or any.
static void draw_order(uint64_t *s, int rank, int order[TN_MAX_RANK])
{
    int how = below(s, 4);
    for (int i = 0; i < rank; i++) order[i] = i;
    if (how == 1) {
        order[rank - 2] = rank - 1;
        order[rank - 1] = rank - 2;
    }
    for (int i = rank - 1; i > 0 && how == 2; i--) {
        int k = below(s, i + 1), t = order[i];
        order[i] = order[k];
        order[k] = t;
    }
}

// What a layout has that no product of the library can: rarely.
typedef struct {
    bool step, still, back;
} oddity;

static oddity draw_oddity(uint64_t *s, bool result)
{
    int how = below(s, 24);
    return (oddity){ .step = how == 0, .still = how == 1 && !result, .back = how == 2 };
}

// Strides of an operand of given sizes, and how many elements its memory has. Axes are wider in
// memory than they are read, now and then; leading axes of operands may stand still. Returns where
// the first element lies.
static int64_t draw_layout(uint64_t *s, tni_arg *x, bool result, int64_t *count, bool *easy)
{
    int     order[TN_MAX_RANK];
    oddity  odd = draw_oddity(s, result);
    int64_t at = 0, step = odd.step ? 2 : 1;
    draw_order(s, x->rank, order);
    if (odd.step || odd.still || odd.back || order[x->rank - 1] < x->rank - 2) *easy = false;
    for (int i = x->rank - 1; i >= 0; i--) {
        int     a     = order[i];
        int64_t wide  = x->size[a] + (below(s, 3) ? 0 : below(s, 3));
        bool    still = !result && a < x->rank - 2 && below(s, 3) == 0;
        if (odd.still && a == x->rank - 1) still = true;
        x->stride[a] = still ? 0 : step;
        if (odd.back && a == x->rank - 2) {
            at += (x->size[a] - 1) * step;
            x->stride[a] = -step;
        }
        at += (wide - x->size[a] ? below(s, (int)(wide - x->size[a]) + 1) : 0) * x->stride[a] *
              (x->stride[a] > 0);
        step *= wide;
    }
    *count = step;
    return at;
}

// ---- a case ------------------------------------------------------------------------------------

static void draw_sizes(uint64_t *s, product_case *c, int most)
{
    int rank      = 2 + (below(s, 3) ? below(s, 4) : 0);
    c->call.op    = TNI_matmul;
    c->call.nin   = 2;
    c->call.in    = c->in;
    c->in[0].rank = c->in[1].rank = c->call.out.rank = rank;
    for (int i = 0; i < rank - 2; i++)
        c->in[0].size[i] = c->in[1].size[i] = c->call.out.size[i] = 1 + below(s, 4);
    int64_t m = 1 + below(s, most), n = 1 + below(s, most), k = 1 + below(s, most);
    if (below(s, 6) == 0) m = 1;
    if (below(s, 6) == 0) n = 1;
    c->in[0].size[rank - 2] = c->call.out.size[rank - 2] = m;
    c->in[1].size[rank - 1] = c->call.out.size[rank - 1] = n;
    c->in[0].size[rank - 1] = c->in[1].size[rank - 2] = k;
}

tn_dtype product_dtype(const product_case *c, int mem)
{
    return mem < PRODUCT_D ? c->in[mem].dtype : c->call.out.dtype;
}

size_t product_bytes(const product_case *c, int mem)
{
    return (size_t)c->count[mem] * tni_dtype_size(product_dtype(c, mem));
}

// The memory of what follows: small whole numbers, and a poisoned place for the input.
static bool add_after(product_case *c)
{
    c->count[PRODUCT_RESIDUAL] = c->count[PRODUCT_INPUT] = c->count[PRODUCT_D];
    c->count[PRODUCT_BIAS]                               = c->call.out.size[c->call.out.rank - 1];
    for (int i = PRODUCT_RESIDUAL; i < PRODUCT_MEMS; i++) {
        c->mem[i] = aligned_alloc(64, (product_bytes(c, i) + 63) / 64 * 64);
        if (!c->mem[i]) return false;
        for (int64_t k = 0; k < c->count[i]; k++)
            host_put(product_dtype(c, i), c->mem[i], k,
                     i == PRODUCT_INPUT ? POISON : (double)((k * 5 + i) % 7 - 3), 0);
    }
    return true;
}

bool product_draw(product_case *c, uint64_t seed, tn_dtype in, tn_dtype out, int most)
{
    uint64_t s    = seed * 2654435761u + 1;
    *c            = (product_case){ .easy = true };
    tni_arg *x[3] = { &c->in[0], &c->in[1], &c->call.out };
    draw_sizes(&s, c, most);
    for (int i = 0; i < 3; i++) {
        x[i]->dtype  = i < 2 ? in : out;
        size_t  size = tni_dtype_size(x[i]->dtype);
        int64_t at   = draw_layout(&s, x[i], i == 2, &c->count[i], &c->easy);
        c->mem[i]    = aligned_alloc(64, ((size_t)c->count[i] * size + 63) / 64 * 64);
        if (!c->mem[i]) return false;
        x[i]->data = c->mem[i] + at * (int64_t)size;
        for (int64_t k = 0; k < c->count[i]; k++)
            host_put(x[i]->dtype, c->mem[i], k, i < 2 ? below(&s, 7) - 3 : POISON, 0);
    }
    return add_after(c);
}

bool product_make(product_case *c, const int64_t size[3], bool turn_a, bool turn_b, tn_dtype in,
                  tn_dtype out)
{
    int64_t m = size[0], k = size[1], n = size[2];
    *c            = (product_case){ .easy = true };
    c->call       = (tni_call){ .op = TNI_matmul, .nin = 2, .in = c->in };
    c->in[0]      = (tni_arg){ in, 2, { m, k }, { turn_a ? 1 : k, turn_a ? m : 1 }, NULL };
    c->in[1]      = (tni_arg){ in, 2, { k, n }, { turn_b ? 1 : n, turn_b ? k : 1 }, NULL };
    c->call.out   = (tni_arg){ out, 2, { m, n }, { n, 1 }, NULL };
    tni_arg *x[3] = { &c->in[0], &c->in[1], &c->call.out };
    for (int i = 0; i < 3; i++) {
        c->count[i] = x[i]->size[0] * x[i]->size[1];
        x[i]->data = c->mem[i] = calloc((size_t)c->count[i], tni_dtype_size(x[i]->dtype));
        if (!c->mem[i]) return false;
    }
    return add_after(c);
}

void product_fill(product_case *c, uint64_t seed)
{
    for (int i = 0; i < 2; i++)
        for (int64_t k = 0; k < c->count[i]; k++)
            host_put(c->in[i].dtype, c->mem[i], k,
                     ldexp((double)(product_random(&seed) >> 11), -53) - 0.5, 0);
}

void product_free(product_case *c)
{
    for (int i = 0; i < PRODUCT_MEMS; i++) free(c->mem[i]);
}

// ---- what follows ------------------------------------------------------------------------------

product_after product_after_of(int i)
{
    static const struct {
        int  activation;
        bool input;
    } last[] = {
        { TNI_leaf, false }, { TNI_relu, false }, { TNI_gelu_tanh, false }, { TNI_gelu_tanh, true }
    };
    return (product_after){ .end      = { .activation = last[i / 12 % 4].activation,
                                          .input      = last[i / 12 % 4].input,
                                          .residual   = i % 3 > 0,
                                          .scaled     = i / 3 % 2,
                                          .bias       = i / 6 % 2 },
                            .in_place = i % 3 == 2,
                            .scale    = 0.5 };
}

bool product_follow(const product_case *c, const product_after *after, char *const mem[],
                    tni_product *p)
{
    ptrdiff_t at = c->call.out.data - c->mem[PRODUCT_D];
    if (!tni_product_add_epilogue(p, &after->end)) return false;
    p->scale    = after->scale;
    p->bias     = mem[PRODUCT_BIAS];
    p->residual = mem[after->in_place ? PRODUCT_D : PRODUCT_RESIDUAL] + at;
    p->input    = mem[PRODUCT_INPUT] + at;
    return true;
}

// ---- its definition ----------------------------------------------------------------------------

static double activate(double y, int activation)
{
    const double root = 0.79788456080286535588;  // of 2 / pi
    if (activation == TNI_relu) return y > 0 ? y : 0;
    if (activation == TNI_gelu_tanh) return 0.5 * y * (1 + tanh(root * (y + 0.044715 * y * y * y)));
    return y;
}

// Element number i of the result in row-major order: where it lies, and what it is.
static int64_t element(const product_case *c, int64_t i, double *y)
{
    const tni_arg *a = &c->in[0], *b = &c->in[1], *d = &c->call.out;
    int            r   = d->rank;
    int64_t        ia  = (a->data - c->mem[0]) / (int64_t)tni_dtype_size(a->dtype);
    int64_t        ib  = (b->data - c->mem[1]) / (int64_t)tni_dtype_size(b->dtype);
    int64_t        id  = (d->data - c->mem[2]) / (int64_t)tni_dtype_size(d->dtype);
    double         sum = 0;
    for (int q = r - 1; q >= 0; q--) {
        int64_t at = i % d->size[q];
        i /= d->size[q];
        id += at * d->stride[q];
        if (q != r - 1) ia += at * a->stride[q];
        if (q != r - 2) ib += at * b->stride[q];
    }
    for (int64_t k = 0; k < a->size[r - 1]; k++)
        sum += host_get(a->dtype, c->mem[0], ia + k * a->stride[r - 1]) *
               host_get(b->dtype, c->mem[1], ib + k * b->stride[r - 2]);
    *y = sum;
    return id;
}

double *product_want(const product_case *c, const product_after *after)
{
    const tni_arg              *d     = &c->call.out;
    const tni_product_epilogue *e     = &after->end;
    int64_t                     count = c->count[PRODUCT_D], all = 1, width = d->size[d->rank - 1];
    double                     *want  = malloc((size_t)count * 2 * sizeof *want);
    const char                 *added = c->mem[after->in_place ? PRODUCT_D : PRODUCT_RESIDUAL];
    if (!want) return NULL;
    for (int64_t i = 0; i < count; i++) {
        want[i]         = host_get(d->dtype, c->mem[PRODUCT_D], i);
        want[count + i] = host_get(d->dtype, c->mem[PRODUCT_INPUT], i);
    }
    for (int i = 0; i < d->rank; i++) all *= d->size[i];
    for (int64_t i = 0; i < all; i++) {
        double  y;
        int64_t at = element(c, i, &y);
        if (e->scaled) y *= after->scale;
        if (e->residual) y += host_get(d->dtype, added, at);
        if (e->bias) y += host_get(d->dtype, c->mem[PRODUCT_BIAS], i % width);
        if (e->input) want[count + at] = y;
        want[at] = activate(y, e->activation);
    }
    return want;
}

int64_t product_misses(const product_case *c, const double *want, double tol)
{
    int64_t n = 0, count = c->count[PRODUCT_D];
    for (int64_t i = 0; i < 2 * count; i++) {
        const char *mem  = c->mem[i < count ? PRODUCT_D : PRODUCT_INPUT];
        double      y    = host_get(c->call.out.dtype, mem, i % count);
        double      size = fabs(want[i]);
        n += !(fabs(y - want[i]) <= tol * (size > 1 ? size : 1));
    }
    return n;
}
