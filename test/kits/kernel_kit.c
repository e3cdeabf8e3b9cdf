// kernel_kit.c: kernels made by hand, and the memory of a case.
#include "kernel_kit.h"

#include "host.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t kit_draw(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z          = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z          = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

int64_t kit_below(uint64_t *state, int64_t n)
{
    return (int64_t)(kit_draw(state) % (uint64_t)n);
}

// ---- building ----------------------------------------------------------------------------------

void kit_begin(kit_case *c, int np, const int64_t *p, int nr, const int64_t *r, bool lane_in_r)
{
    memset(c, 0, sizeof *c);
    c->k.np        = (uint8_t)np;
    c->k.nr        = (uint8_t)nr;
    c->k.lane_in_r = lane_in_r;
    c->l.kernel    = &c->k;
    c->l.threads   = 1;
    for (int i = 0; i < np; i++) c->l.size[i] = p[i];
    for (int i = 0; i < nr; i++) c->l.size[np + i] = r[i];
}

int kit_buffer(kit_case *c, tn_dtype dt, int64_t count, bool written)
{
    int at          = c->k.nbuffer++;
    c->k.buffer[at] = (tni_kernel_buffer){ .dtype = (uint8_t)dt, .written = written };
    c->count[at]    = count;
    return at;
}

int kit_access(kit_case *c, int buffer, int64_t offset, const int64_t *stride, int64_t index)
{
    int at                    = c->k.naccess++;
    c->k.access[at].buffer    = (int16_t)buffer;
    c->l.offset[at]           = offset;
    c->l.stride[at][TNI_AXES] = index;
    for (int i = 0; i < c->k.np + c->k.nr; i++) {
        int64_t s                 = stride[i];
        c->l.stride[at][i]        = s;
        c->k.access[at].stride[i] = s == 0 ? TNI_STRIDE_0 : s == 1 ? TNI_STRIDE_1 : TNI_STRIDE_N;
    }
    return at;
}

static int rows(kit_case *c, tn_dtype dt, int per, bool written)
{
    int64_t stride[TNI_AXES] = { 0 }, count = 1;
    for (int i = c->k.np + c->k.nr - 1; i >= 0; i--) {
        if (!(per & (i < c->k.np ? TNI_PER_ROW : TNI_PER_COL))) continue;
        stride[i] = count;
        count *= c->l.size[i];
    }
    return kit_access(c, kit_buffer(c, dt, count, written), 0, stride, 0);
}

int kit_input(kit_case *c, tn_dtype dt, int per)
{
    return rows(c, dt, per, false);
}

int kit_output(kit_case *c, tn_dtype dt, int per)
{
    return rows(c, dt, per, true);
}

static int add(kit_case *c, tni_ins x)
{
    c->k.ins[c->k.nins] = x;
    return c->k.nins++;
}

// An instruction that has nothing yet but its code and dtype.
static tni_ins plain(int code, tn_dtype dt)
{
    return (tni_ins){ .code   = (uint8_t)code,
                      .dtype  = (uint8_t)dt,
                      .a      = TNI_NO_VALUE,
                      .b      = TNI_NO_VALUE,
                      .c      = TNI_NO_VALUE,
                      .access = -1,
                      .number = -1 };
}

static tn_dtype buffer_dtype(const kit_case *c, int access)
{
    return (tn_dtype)c->k.buffer[c->k.access[access].buffer].dtype;
}

int kit_load_at(kit_case *c, int access, int index, int guard)
{
    tni_ins x = plain(TNI_I_LOAD, buffer_dtype(c, access));
    x.access  = (int16_t)access;
    x.a       = (int16_t)index;
    x.b       = (int16_t)guard;
    return add(c, x);
}

int kit_load(kit_case *c, int access)
{
    return kit_load_at(c, access, TNI_NO_VALUE, TNI_NO_VALUE);
}

static int word(kit_case *c, tn_dtype dt, tni_word v)
{
    int at          = c->k.nnumber++;
    c->k.number[at] = (uint8_t)dt;
    c->l.number[at] = v;
    return at;
}

int kit_number(kit_case *c, tn_dtype dt, double v)
{
    tni_ins  x = plain(TNI_I_NUMBER, dt);
    tni_word w = { .u = 0 };
    tn_dtype t = tni_compute_dtype(dt);
    if (t == TN_F32) w.f = (float)v;
    else if (t == TN_F64) w.d = v;
    else if (t == TN_I64) w.l = (int64_t)v;
    else w.i = dt == TN_BOOL ? v != 0 : (int32_t)v;
    x.number = (int16_t)word(c, dt, w);
    return add(c, x);
}

int kit_place(kit_case *c, int64_t offset, const int64_t *stride)
{
    tni_ins x = plain(TNI_I_PLACE, TN_I64);
    x.access  = (int16_t)kit_access(c, -1, offset, stride, 0);
    return add(c, x);
}

int kit_random(kit_case *c, int op, tn_dtype dt, int place, uint64_t key, uint64_t counter)
{
    tni_ins x = plain(TNI_I_RANDOM, dt);
    x.op      = (uint8_t)op;
    x.a       = (int16_t)place;
    x.number  = (int16_t)word(c, TN_I64, (tni_word){ .u = key });
    word(c, TN_I64, (tni_word){ .u = counter });
    return add(c, x);
}

int kit_map(kit_case *c, int op, int a, int b, int d)
{
    int      last = d != TNI_NO_VALUE ? d : b != TNI_NO_VALUE ? b : a;
    tn_dtype in, out;
    tni_dtype_rule_apply(tni_op_table[op].rule, (tn_dtype)c->k.ins[last].dtype, &in, &out);
    tni_ins x = plain(TNI_I_MAP, out);
    x.op      = (uint8_t)op;
    x.a       = (int16_t)a;
    x.b       = (int16_t)b;
    x.c       = (int16_t)d;
    return add(c, x);
}

int kit_map1(kit_case *c, int op, int a)
{
    return kit_map(c, op, a, TNI_NO_VALUE, TNI_NO_VALUE);
}

int kit_map2(kit_case *c, int op, int a, int b)
{
    return kit_map(c, op, a, b, TNI_NO_VALUE);
}

int kit_load_new(kit_case *c, tn_dtype dt, int per)
{
    return kit_load(c, kit_input(c, dt, per));
}

int kit_cast(kit_case *c, tn_dtype dt, int a)
{
    tni_ins x = plain(TNI_I_CAST, dt);
    x.op      = TNI_cast;
    x.a       = (int16_t)a;
    return add(c, x);
}

int kit_check(kit_case *c, int a, int64_t size)
{
    tni_ins x = plain(TNI_I_CHECK, TN_I64);
    x.a       = (int16_t)a;
    x.number  = (int16_t)word(c, TN_I64, (tni_word){ .l = size });
    return add(c, x);
}

int kit_reduce(kit_case *c, int op, int a, bool over_p)
{
    tni_ins x = plain(TNI_I_REDUCE, (tn_dtype)c->k.ins[a].dtype);
    x.op      = (uint8_t)op;
    x.a       = (int16_t)a;
    x.over_p  = over_p;
    return add(c, x);
}

int kit_store(kit_case *c, int access, int a)
{
    tni_ins x = plain(TNI_I_STORE, buffer_dtype(c, access));
    x.access  = (int16_t)access;
    x.a       = (int16_t)a;
    return add(c, x);
}

// ---- memory ------------------------------------------------------------------------------------

static size_t bytes_of(const kit_case *c, int i)
{
    return (size_t)c->count[i] * tni_dtype_size((tn_dtype)c->k.buffer[i].dtype);
}

// 16-bit floats are made of random bits between about 1/8 and 2.
static void fill(kit_case *c, int i, uint64_t *state)
{
    char *p = c->mem[i];
    for (int64_t j = 0; j < c->count[i]; j++) {
        int64_t k = kit_below(state, 41) - 20;
        double  f = (double)(kit_below(state, 2001) - 1000) / 500;
        switch ((tn_dtype)c->k.buffer[i].dtype) {
        case TN_BOOL: p[j] = k & 1; break;
        case TN_U8: p[j] = (char)(k + 20); break;
        case TN_I8: p[j] = (char)k; break;
        case TN_I32: ((int32_t *)p)[j] = (int32_t)k; break;
        case TN_I64: ((int64_t *)p)[j] = k; break;
        case TN_F16: ((uint16_t *)p)[j] = (uint16_t)(0x3000 + kit_below(state, 0xe00)); break;
        case TN_BF16: ((uint16_t *)p)[j] = (uint16_t)(0x3e00 + kit_below(state, 0x1ff)); break;
        case TN_F32: ((float *)p)[j] = (float)f; break;
        case TN_F64: ((double *)p)[j] = f; break;
        default: host_put((tn_dtype)c->k.buffer[i].dtype, p, j, f, k); break;
        }
        if (c->k.buffer[i].dtype == TN_F16 || c->k.buffer[i].dtype == TN_BF16)
            ((uint16_t *)p)[j] |= (uint16_t)(kit_below(state, 2) << 15);
    }
}

static bool make(kit_case *c, int i, uint64_t *state)
{
    size_t bytes = bytes_of(c, i);
    c->block[i]  = aligned_alloc(64, (bytes + 63) / 64 * 64 + 2 * KIT_GUARD);
    c->before[i] = malloc(bytes + 1);
    if (!c->block[i] || !c->before[i]) return false;
    memset(c->block[i], 0xa5, bytes + 2 * KIT_GUARD);
    c->mem[i]      = c->block[i] + KIT_GUARD;
    c->l.buffer[i] = c->mem[i];
    fill(c, i, state);
    memcpy(c->before[i], c->mem[i], bytes);
    return true;
}

bool kit_end(kit_case *c)
{
    uint64_t state = c->seed ^ 0x5eed;
    if (!tni_kernel_seal(&c->k)) return false;
    for (int i = 0; i < c->k.nbuffer; i++)
        if (!make(c, i, &state)) return false;
    return true;
}

void kit_keep(kit_case *c)
{
    for (int i = 0; i < c->k.nbuffer; i++) memcpy(c->before[i], c->mem[i], bytes_of(c, i));
}

void kit_reset(kit_case *c)
{
    for (int i = 0; i < c->k.nbuffer; i++) memcpy(c->mem[i], c->before[i], bytes_of(c, i));
    c->l.fail[0] = c->l.fail[1] = 0;
}

void kit_free(kit_case *c)
{
    for (int i = 0; i < TNI_MAX_BUFFERS; i++) {
        free(c->block[i]);
        free(c->before[i]);
        free(c->want[i]);
        c->block[i] = c->before[i] = NULL;
        c->want[i]                 = NULL;
    }
}

// ---- as text -----------------------------------------------------------------------------------

#if defined(__GNUC__)
__attribute__((format(printf, 4, 5)))
#endif
static void
say(char *dst, size_t room, size_t *at, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(dst + *at, room - *at, format, ap);
    va_end(ap);
    if (n > 0) *at += (size_t)n < room - *at ? (size_t)n : room - *at - 1;
}

void kit_print(const kit_case *c, char *dst, size_t room)
{
    int axes = c->k.np + c->k.nr;
    tni_kernel_print(&c->k, dst, room);
    size_t at = strlen(dst);
    say(dst, room, &at, "seed %llu, sizes", (unsigned long long)c->seed);
    for (int i = 0; i < axes; i++)
        say(dst, room, &at, "%s%lld", i == c->k.np ? " | " : " ", (long long)c->l.size[i]);
    for (int i = 0; i < c->k.naccess; i++) {
        say(dst, room, &at, "\naccess %d: b%d + %lld, strides", i, c->k.access[i].buffer,
            (long long)c->l.offset[i]);
        for (int j = 0; j < axes; j++) say(dst, room, &at, " %lld", (long long)c->l.stride[i][j]);
        say(dst, room, &at, ", index %lld", (long long)c->l.stride[i][TNI_AXES]);
    }
    for (int i = 0; i < c->k.nnumber; i++)
        say(dst, room, &at, "\nnumber %d: %llx (float %g, double %g)", i,
            (unsigned long long)c->l.number[i].u, (double)c->l.number[i].f, c->l.number[i].d);
    say(dst, room, &at, "\n");
}
