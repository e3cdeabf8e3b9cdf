// Kernels: where values vary, in which phase they are, how they read as text, how they are cut.
#include "kernel/kernel.h"

#include "kernel/prelude.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// ---- sealing -----------------------------------------------------------------------------------

// Where an access varies.
static int access_per(const tni_kernel *k, const tni_access *x)
{
    int per = TNI_PER_ONE;
    for (int i = 0; i < k->np + k->nr; i++)
        if (x->stride[i] != TNI_STRIDE_0) per |= i < k->np ? TNI_PER_ROW : TNI_PER_COL;
    return per;
}

// Takes in what an operand says of where and when; false if it does not stand before.
static bool take_operand(const tni_kernel *k, tni_ins *x, int at, int16_t operand)
{
    if (operand == TNI_NO_VALUE) return true;
    if (operand < 0 || operand >= at) return false;
    const tni_ins *y     = &k->ins[operand];
    bool           done  = y->code == TNI_I_REDUCE && !y->over_p;
    int            phase = y->phase + done;
    if (y->code == TNI_I_STORE) return false;
    x->per |= y->per;
    x->finish |= y->finish;
    if (x->phase < phase) x->phase = (uint8_t)phase;
    return true;
}

static bool seal_reduce(tni_kernel *k, tni_ins *x)
{
    int over = x->over_p ? TNI_PER_ROW : TNI_PER_COL;
    if (x->finish || !(x->per & over)) return false;
    x->per    = (uint8_t)(x->per & ~over);
    x->finish = x->over_p;
    k->tails |= x->over_p;
    return true;
}

// A tail's value is there in the finish stage; what a reader of it does is done there too.
static bool seal_one(tni_kernel *k, int at)
{
    tni_ins *x = &k->ins[at];
    x->per = x->phase = x->finish = 0;
    if (!take_operand(k, x, at, x->a) || !take_operand(k, x, at, x->b) ||
        !take_operand(k, x, at, x->c))
        return false;
    if (x->code == TNI_I_LOAD || x->code == TNI_I_PLACE)
        x->per |= (uint8_t)access_per(k, &k->access[x->access]);
    if (x->finish && x->per & TNI_PER_ROW) return false;
    if (x->code == TNI_I_REDUCE && !seal_reduce(k, x)) return false;
    // What a store's place varies over has to be all that there is.
    if (x->code == TNI_I_STORE) {
        int place = access_per(k, &k->access[x->access]);
        if (x->per & ~place) return false;
        x->per = (uint8_t)place;
    }
    if (x->per & TNI_PER_COL && !x->finish && k->phases < x->phase + 1)
        k->phases = (uint8_t)(x->phase + 1);
    return true;
}

static bool reads_written(const tni_kernel *k)
{
    for (int i = 0; i < k->nins; i++) {
        const tni_ins *x = &k->ins[i];
        if (x->code == TNI_I_LOAD && k->buffer[k->access[x->access].buffer].written) return true;
    }
    return false;
}

bool tni_kernel_seal(tni_kernel *k)
{
    k->phases = k->nr > 0;
    k->tails  = 0;
    for (int i = 0; i < k->nins; i++)
        if (!seal_one(k, i)) return false;
    return !(k->nr || k->tails) || !reads_written(k);
}

const char *tni_kernel_kind(const tni_kernel *k)
{
    const char *kind = "POINT";
    for (int i = 0; i < k->nins; i++) {
        const tni_ins *x = &k->ins[i];
        if (x->code != TNI_I_REDUCE) continue;
        if (!x->over_p) return "ROW";
        kind = x->per || !strcmp(kind, "COL") ? "COL" : "FULL";
    }
    return kind;
}

// A member of tni_word has the letter of its computing type.
#define FROM_BOOL               l
#define FROM_UNSIGNED           l
#define FROM_SIGNED             l
#define FROM_FLOAT              f
#define AS_TRUTH(host, stem, v) (v) != 0
#define AS_SELF(host, stem, v)  (host)(v)
#define AS_WRAP(host, stem, v)  (host)(v)
#define AS_ROUND(host, stem, v) m_##stem##_to_float(m_double_to_##stem(v))

tni_word tni_word_of(tn_dtype dt, double f, int64_t l)
{
    tni_word w = { .u = 0 };
    switch (dt) {
#define DTYPE(id, name, class, held, in, host, kernel, stem, ...) \
    case TN_##id:                                                 \
        w.in = AS_##held(host, stem, FROM_##class);               \
        break;
#include "tensor/dtype.def"
    }
    return w;
}

// ---- as bytes ----------------------------------------------------------------------------------

typedef struct {
    char  *dst;
    size_t room, count;
} writer;

static void put(writer *w, const void *p, size_t n)
{
    if (w->count + n <= w->room) memcpy(w->dst + w->count, p, n);
    w->count += n;
}

static void put_ins(writer *w, const tni_ins *x)
{
    uint8_t head[4] = { x->code, x->op, x->dtype, x->over_p };
    int16_t rest[5] = { x->a, x->b, x->c, x->access, x->number };
    put(w, head, sizeof head);
    put(w, rest, sizeof rest);
}

size_t tni_kernel_key(const tni_kernel *k, char *dst, size_t room)
{
    writer  w       = { .dst = dst, .room = room };
    uint8_t head[8] = { k->np,
                        k->nr,
                        k->lane_in_r,
                        (uint8_t)(k->wide | k->guarded << 1),
                        (uint8_t)k->nbuffer,
                        (uint8_t)k->naccess,
                        (uint8_t)k->nnumber,
                        (uint8_t)k->nins };
    put(&w, head, sizeof head);
    for (int i = 0; i < k->nbuffer; i++)
        put(&w, (uint8_t[]){ k->buffer[i].dtype, k->buffer[i].written }, 2);
    for (int i = 0; i < k->naccess; i++) {
        put(&w, &k->access[i].buffer, sizeof k->access[i].buffer);
        put(&w, k->access[i].stride, (size_t)k->np + k->nr);
    }
    put(&w, k->number, (size_t)k->nnumber);
    for (int i = 0; i < k->nins; i++) put_ins(&w, &k->ins[i]);
    return w.count;
}

// ---- as text -----------------------------------------------------------------------------------

static const char *const code_name[] = { "load", "number", "place",  "random", "map",
                                         "cast", "check",  "reduce", "store" };

typedef struct {
    char  *dst;
    size_t room, count;
} page;

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static void
print(page *p, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(p->dst + p->count, p->room - p->count, format, ap);
    va_end(ap);
    if (n > 0) p->count += (size_t)n < p->room - p->count ? (size_t)n : p->room - p->count - 1;
}

static void print_access(page *p, const tni_kernel *k, const tni_access *x)
{
    static const char classes[] = "01n";
    if (x->buffer >= 0) print(p, " b%d", x->buffer);
    print(p, "[");
    for (int i = 0; i < k->np + k->nr; i++)
        print(p, "%s%c", i == k->np && i ? "|" : "", classes[x->stride[i]]);
    print(p, "]");
}

static void print_ins(page *p, const tni_kernel *k, int i)
{
    static const char *const per[] = { "one", "row", "col", "elem" };
    const tni_ins           *x     = &k->ins[i];
    print(p, "%4d  %-6s", i, code_name[x->code]);
    if (x->code == TNI_I_MAP || x->code == TNI_I_REDUCE || x->code == TNI_I_RANDOM)
        print(p, " %s", tni_op_table[x->op].name);
    if (x->code == TNI_I_LOAD || x->code == TNI_I_STORE || x->code == TNI_I_PLACE)
        print_access(p, k, &k->access[x->access]);
    if (x->code == TNI_I_NUMBER || x->code == TNI_I_RANDOM || x->code == TNI_I_CHECK)
        print(p, " n%d", x->number);
    if (x->a >= 0) print(p, " %d", x->a);
    if (x->b >= 0) print(p, " %d", x->b);
    if (x->c >= 0) print(p, " %d", x->c);
    if (x->code == TNI_I_REDUCE) print(p, " over %s", x->over_p ? "P" : "R");
    print(p, "  (%s, %s", tn_dtype_name((tn_dtype)x->dtype), per[x->per]);
    if (x->finish) print(p, ", finish)\n");
    else print(p, ", phase %d)\n", x->phase);
}

void tni_kernel_print(const tni_kernel *k, char *dst, size_t room)
{
    page p = { .dst = dst, .room = room };
    if (!room) return;
    *dst = 0;
    print(&p, "P %d axes, R %d axes, lane in %s%s\n", k->np, k->nr, k->lane_in_r ? "R" : "P",
          k->wide ? ", 64-bit places" : "");
    for (int i = 0; i < k->nbuffer; i++)
        print(&p, "  b%d %s%s\n", i, tn_dtype_name((tn_dtype)k->buffer[i].dtype),
              k->buffer[i].written ? " written" : "");
    for (int i = 0; i < k->nins; i++) print_ins(&p, k, i);
}

// ---- cutting -----------------------------------------------------------------------------------

enum {
    TASK  = 1 << 15,  // elements of a chunk, at least
    PARTS = 64        // most chunks where each leaves partial results
};

static bool is_tail(const tni_ins *x)
{
    return x->code == TNI_I_REDUCE && x->over_p;
}

tni_work_split tni_kernel_split(const tni_launch *l)
{
    const tni_kernel *k = l->kernel;
    tni_work_split    c = { .rows = 1, .cols = 1, .strips = 1 };
    for (int i = 0; i < k->np; i++) c.rows *= l->size[i];
    for (int i = 0; i < k->nr; i++) c.cols *= l->size[k->np + i];
    int64_t lane = k->np ? l->size[k->np - 1] : 1, work = c.cols;
    c.units = c.rows;
    if (!k->lane_in_r) {
        c.strips = (lane + TNI_STRIP - 1) / TNI_STRIP;
        c.units  = c.rows / lane * c.strips;
        work *= lane < TNI_STRIP ? lane : TNI_STRIP;
    }
    c.chunk = work < TASK ? TASK / work : 1;
    if (k->tails && c.chunk < (c.units + PARTS - 1) / PARTS)
        c.chunk = (c.units + PARTS - 1) / PARTS;
    c.chunks = (c.units + c.chunk - 1) / c.chunk;
    for (int i = 0; i < k->nins; i++)
        if (is_tail(&k->ins[i])) c.partials += k->ins[i].per ? c.cols : 1;
    return c;
}

int64_t tni_kernel_tail_partials(const tni_kernel *k, const tni_work_split *cut, int ins)
{
    int64_t at = 0;
    for (int i = 0; i < ins; i++)
        if (is_tail(&k->ins[i])) at += k->ins[i].per ? cut->cols : 1;
    return at;
}
