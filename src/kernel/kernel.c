// Kernels: sealing (where values vary and in which phase they are), the bytes of the cache key, the
// text for people, and how a host device splits the work.
#include "kernel/kernel.h"

#include "kernel/prelude.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// ---- sealing -----------------------------------------------------------------------------------

// Where the address of an access varies: over P, over R, both or neither.
static int access_per(const tni_kernel *k, const tni_access *x)
{
    int per = TNI_PER_ONE;
    for (int i = 0; i < k->np + k->nr; i++)
        if (x->stride[i] != TNI_STRIDE_0) per |= i < k->np ? TNI_PER_ROW : TNI_PER_COL;
    return per;
}

// Adds to an instruction what an operand says about where and when it can be computed: it varies
// wherever the operand does, and comes after the reductions that the operand waits for. False if
// the operand does not come before it.
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

// A reduction no longer varies over what it reduces; a tail moves its readers to the finish stage.
// False if its operand does not vary over that, or is itself of the finish stage.
static bool seal_reduce(tni_kernel *k, tni_ins *x)
{
    int over = x->over_p ? TNI_PER_ROW : TNI_PER_COL;
    if (x->finish || !(x->per & over)) return false;
    x->per    = (uint8_t)(x->per & ~over);
    x->finish = x->over_p;
    k->tails |= x->over_p;
    return true;
}

// Finds per, phase and finish of one instruction. What reads a tail belongs to the finish stage,
// and cannot vary over P: there are no rows any more.
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
    // A store's address must vary wherever its value does, or rows would overwrite each other's
    // results.
    if (x->code == TNI_I_STORE) {
        int place = access_per(k, &k->access[x->access]);
        if (x->per & ~place) return false;
        x->per = (uint8_t)place;
    }
    if (x->per & TNI_PER_COL && !x->finish && k->phases < x->phase + 1)
        k->phases = (uint8_t)(x->phase + 1);
    return true;
}

// Whether a buffer is both loaded and stored. Only POINT kernels may do that: each point reads its
// own element before it writes it, whereas with R or tails several threads read an element.
static bool reads_written(const tni_kernel *k)
{
    for (int i = 0; i < k->nins; i++) {
        const tni_ins *x = &k->ins[i];
        if (x->code == TNI_I_LOAD && k->buffer[k->access[x->access].buffer].written) return true;
    }
    return false;
}

// One pass in order: every fact of an instruction follows from earlier ones.
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

// How a number of the launch is rounded to its dtype, by the columns of dtype.def. A member of
// tni_word has the letter of its compute type, so `in` of a row names the member.
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
    default: break;
    }
    return w;
}

// ---- as bytes ----------------------------------------------------------------------------------

// Bytes being written. count goes on past size, so that a caller learns how many are needed.
typedef struct {
    char  *dst;
    size_t size, count;
} key_writer;

static void put_bytes(key_writer *w, const void *p, size_t n)
{
    if (w->count + n <= w->size) memcpy(w->dst + w->count, p, n);
    w->count += n;
}

// per, phase and finish are not written: they follow from the rest.
static void put_ins(key_writer *w, const tni_ins *x)
{
    uint8_t head[4] = { x->code, x->op, x->dtype, x->over_p };
    int16_t rest[5] = { x->a, x->b, x->c, x->access, x->number };
    put_bytes(w, head, sizeof head);
    put_bytes(w, rest, sizeof rest);
}

// Everything that the text depends on, and nothing else: two kernels of equal keys share a compiled
// one. Unused strides beyond the axes of the kernel are left out, since they are not zeroed.
size_t tni_kernel_key(const tni_kernel *k, char *dst, size_t size)
{
    key_writer w       = { .dst = dst, .size = size };
    uint8_t    head[8] = { k->np,
                           k->nr,
                           k->lane_in_r,
                           (uint8_t)(k->wide | k->guarded << 1),
                           (uint8_t)k->nbuffer,
                           (uint8_t)k->naccess,
                           (uint8_t)k->nnumber,
                           (uint8_t)k->nins };
    put_bytes(&w, head, sizeof head);
    for (int i = 0; i < k->nbuffer; i++)
        put_bytes(&w, (uint8_t[]){ k->buffer[i].dtype, k->buffer[i].written }, 2);
    for (int i = 0; i < k->naccess; i++) {
        put_bytes(&w, &k->access[i].buffer, sizeof k->access[i].buffer);
        put_bytes(&w, k->access[i].stride, (size_t)k->np + k->nr);
    }
    put_bytes(&w, k->number, (size_t)k->nnumber);
    for (int i = 0; i < k->nins; i++) put_ins(&w, &k->ins[i]);
    return w.count;
}

// ---- as text -----------------------------------------------------------------------------------

static const char *const code_name[] = { "load", "number", "place",  "random", "map",
                                         "cast", "check",  "reduce", "store" };

typedef struct {
    char  *dst;
    size_t size, count;
} text_writer;

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static void
print_text(text_writer *p, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(p->dst + p->count, p->size - p->count, format, ap);
    va_end(ap);
    if (n > 0) p->count += (size_t)n < p->size - p->count ? (size_t)n : p->size - p->count - 1;
}

// b0[n|1]: buffer, and the stride classes of P and R.
static void print_access(text_writer *p, const tni_kernel *k, const tni_access *x)
{
    static const char classes[] = "01n";
    if (x->buffer >= 0) print_text(p, " b%d", x->buffer);
    print_text(p, "[");
    for (int i = 0; i < k->np + k->nr; i++)
        print_text(p, "%s%c", i == k->np && i ? "|" : "", classes[x->stride[i]]);
    print_text(p, "]");
}

// One line, as in the sample of kernel.h:    4  reduce sum 3 over R  (f32, row, phase 1)
static void print_ins(text_writer *p, const tni_kernel *k, int i)
{
    static const char *const per[] = { "one", "row", "col", "elem" };
    const tni_ins           *x     = &k->ins[i];
    print_text(p, "%4d  %-6s", i, code_name[x->code]);
    if (x->code == TNI_I_MAP || x->code == TNI_I_REDUCE || x->code == TNI_I_RANDOM)
        print_text(p, " %s", tni_op_table[x->op].name);
    if (x->code == TNI_I_LOAD || x->code == TNI_I_STORE || x->code == TNI_I_PLACE)
        print_access(p, k, &k->access[x->access]);
    if (x->code == TNI_I_NUMBER || x->code == TNI_I_RANDOM || x->code == TNI_I_CHECK)
        print_text(p, " n%d", x->number);
    if (x->a >= 0) print_text(p, " %d", x->a);
    if (x->b >= 0) print_text(p, " %d", x->b);
    if (x->c >= 0) print_text(p, " %d", x->c);
    if (x->code == TNI_I_REDUCE) print_text(p, " over %s", x->over_p ? "P" : "R");
    print_text(p, "  (%s, %s", tn_dtype_name((tn_dtype)x->dtype), per[x->per]);
    if (x->finish) print_text(p, ", finish)\n");
    else print_text(p, ", phase %d)\n", x->phase);
}

void tni_kernel_print(const tni_kernel *k, char *dst, size_t size)
{
    text_writer p = { .dst = dst, .size = size };
    if (!size) return;
    *dst = 0;
    print_text(&p, "P %d axes, R %d axes, lane in %s%s\n", k->np, k->nr, k->lane_in_r ? "R" : "P",
               k->wide ? ", 64-bit places" : "");
    for (int i = 0; i < k->nbuffer; i++)
        print_text(&p, "  b%d %s%s\n", i, tn_dtype_name((tn_dtype)k->buffer[i].dtype),
                   k->buffer[i].written ? " written" : "");
    for (int i = 0; i < k->nins; i++) print_ins(&p, k, i);
}

// ---- cutting -----------------------------------------------------------------------------------

enum {
    // Elements of a chunk, at least: large enough that handing it to a thread costs little beside
    // its work, small enough that threads get even shares.
    TASK = 1 << 15,
    // Most chunks of a kernel with tails: each leaves partial results, which one thread joins at
    // the end. It is a constant and not the number of threads, so that sums have the same bits on
    // every machine.
    PARTS = 64
};

// Splits by sizes alone; the order of sums follows from it (kernel.h).
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
        if (tni_is_tail(&k->ins[i])) c.partials += k->ins[i].per ? c.cols : 1;
    return c;
}

int64_t tni_kernel_tail_partials(const tni_kernel *k, const tni_work_split *cut, int ins)
{
    int64_t at = 0;
    for (int i = 0; i < ins; i++)
        if (tni_is_tail(&k->ins[i])) at += k->ins[i].per ? cut->cols : 1;
    return at;
}
