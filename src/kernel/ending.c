// Printing endings. That of a folded batch norm and relu in f16 is, with lines broken here,
//
//     typedef struct { char *from[8]; m_ulong number[8]; } ending_args;
//     #define ENDING_PARAMS , GIVEN ending_args e
//     #define ENDING_BEGIN(c) float x2[EACH]; float e2[EACH]; ENDING_LOAD(x2, (float *)e.from[1] + (c))
//         for (int k = 0; k < EACH; k++) { e2[k] = x2[k]; }
//     #define ENDING(v, c, at) { for (int k = 0; k < EACH; k++) {
//         const float v3 = o_add_f(v[k], e2[k]); const float v4 = m_half_to_float(m_float_to_half(v3));
//         const float v5 = o_relu_f(v4); v[k] = v5; } }
//
// and a residual, the load of instruction 6, is loaded in front of the loop of ENDING, as x6. If the kernel stores v3 as
// well, by instruction 9, the loop has y9[k] = m_float_to_half(v3), and ENDING_STORE follows it.
#include "kernel/ending.h"

const char tni_no_ending[] =
    "#define ENDING_PARAMS\n#define ENDING_BEGIN(c)\n#define ENDING(v, c, at)\n";

static bool is_column(const tni_launch *l, const tni_ins *x, int64_t width)
{
    return x->code == TNI_I_LOAD && tni_visits_columns(l, x->access, width);
}

int tni_ending_store(const tni_kernel *k, int product)
{
    for (int i = 0; i < k->nins; i++) {
        const tni_ins *x = &k->ins[i];
        if (x->code == TNI_I_STORE &&
            k->buffer[k->access[x->access].buffer].dtype == k->buffer[product].dtype)
            return x->access;
    }
    return -1;
}

// An instruction that needs nothing but its operands and its own element.
static bool is_plain(const tni_launch *l, const tni_ins *x, int product, int64_t width)
{
    bool order = (x->code == TNI_I_LOAD || x->code == TNI_I_STORE) &&
                 tni_visits_in_order(l, x->access);
    if (x->code == TNI_I_LOAD && (x->a != TNI_NO_VALUE || x->b != TNI_NO_VALUE)) return false;
    if (x->code == TNI_I_LOAD && l->kernel->access[x->access].buffer == product) return order;
    if (x->code == TNI_I_LOAD) return order || is_column(l, x, width);
    return x->code == TNI_I_NUMBER || x->code == TNI_I_MAP || x->code == TNI_I_CAST ||
           (x->code == TNI_I_STORE && order);
}

bool tni_is_ending(const tni_launch *l, int product, int64_t width)
{
    const tni_kernel *k  = l->kernel;
    bool              ok = !k->guarded && !k->nr && !k->tails && tni_ending_store(k, product) >= 0;
    for (int i = 0; i < k->nins && ok; i++) ok = is_plain(l, &k->ins[i], product, width);
    return ok && k->naccess <= TNI_ENDING_ACCESSES && k->nnumber <= TNI_ENDING_NUMBERS;
}

int tni_ending_fetch(const tni_launch *l, int product, int64_t width)
{
    const tni_kernel *k = l->kernel;
    for (int i = 0; i < k->nins; i++) {
        const tni_ins *x = &k->ins[i];
        if (x->code != TNI_I_LOAD || is_column(l, x, width)) continue;
        int buffer = k->access[x->access].buffer;
        if (buffer != product && tni_dtype_size((tn_dtype)k->buffer[buffer].dtype) == 2)
            return x->access;
    }
    return -1;
}

// What is being printed, for the callbacks of the emitter.
typedef struct {
    const tni_launch *l;
    int               product;
    int64_t           width;
} ending;

// A value where it is read: the sum, what was loaded for the column, or a value of this element.
static void put_value(tni_emitter *s, int i)
{
    const ending  *e = s->user;
    const tni_ins *x = &s->kernel->ins[i];
    if (x->code == TNI_I_LOAD && s->kernel->access[x->access].buffer == e->product)
        tni_out_print(s->out, "v[k]");
    else tni_out_print(s->out, is_column(e->l, x, e->width) ? "e%d[k]" : "v%d", i);
}

static void put_element(tni_emitter *s, int i)
{
    tni_out_print(s->out, s->kernel->ins[i].code == TNI_I_STORE ? "y%d[k]" : "x%d[k]", i);
}

static const char *storage_of(const tni_emitter *s, const tni_ins *x)
{
    return tni_storage_type((tn_dtype)s->kernel->buffer[s->kernel->access[x->access].buffer].dtype);
}

// Whether an instruction stores something else than what v becomes.
static bool is_other_store(const tni_emitter *s, const tni_ins *x)
{
    const ending *e = s->user;
    return x->code == TNI_I_STORE && x->access != tni_ending_store(s->kernel, e->product);
}

// Whether an instruction loads something else than the call's result.
static bool is_other_load(const tni_emitter *s, const tni_ins *x)
{
    const ending *e = s->user;
    return x->code == TNI_I_LOAD && s->kernel->access[x->access].buffer != e->product;
}

// Loads EACH elements as they are stored, of the columns or of the place.
static void put_load(tni_emitter *s, int i)
{
    const ending  *e  = s->user;
    const tni_ins *x  = &s->kernel->ins[i];
    const char    *dt = storage_of(s, x);
    tni_out_print(s->out, " %s x%d[EACH];", dt, i);
    if (is_column(e->l, x, e->width))
        tni_out_print(s->out, " ENDING_LOAD(x%d, (GLOBAL const %s *)e.from[%d] + (c))", i, dt,
                      x->access);
    else
        tni_out_print(s->out, " ENDING_FETCH(%d, x%d, (GLOBAL const %s *)e.from[%d] + (at))",
                      x->access, i, dt, x->access);
}

static void put_number(tni_emitter *s, int n)
{
    tni_out_print(s->out, "e.number[%d]", n);
}

static void put_begin(tni_emitter *s)
{
    const ending *e = s->user;
    for (int i = 0; i < s->kernel->nins; i++) {
        const tni_ins *x = &s->kernel->ins[i];
        if (!is_other_load(s, x) || !is_column(e->l, x, e->width)) continue;
        put_load(s, i);
        tni_out_print(s->out, " %s e%d[EACH]; for (int k = 0; k < EACH; k++) { e%d[k] = ",
                      tni_compute_type((tn_dtype)x->dtype), i, i);
        tni_emit_value(s, i);
        tni_out_print(s->out, "; }");
    }
}

// The body of ENDING's loop: every value in its order, and what is stored.
static void put_values(tni_emitter *s)
{
    const ending *e = s->user;
    for (int i = 0; i < s->kernel->nins; i++) {
        const tni_ins *x = &s->kernel->ins[i];
        if (x->code == TNI_I_LOAD &&
            (s->kernel->access[x->access].buffer == e->product || is_column(e->l, x, e->width)))
            continue;
        if (is_other_store(s, x)) {
            tni_out_print(s->out, " ");
            tni_emit_store(s, i);
        } else if (x->code == TNI_I_STORE) {
            tni_out_print(s->out, " v[k] = ");
            put_value(s, x->a);
        } else {
            tni_out_print(s->out, " const %s v%d = ", tni_compute_type((tn_dtype)x->dtype), i);
            tni_emit_value(s, i);
        }
        tni_out_print(s->out, ";");
    }
}

// Each macro is one line, since a text's pieces are printed as they are.
char *tni_ending_text(tni_heap *h, const tni_dialect *d, const tni_launch *l, int product,
                      int64_t width)
{
    tni_out     o;
    ending      e = { l, product, width };
    tni_emitter s = { .out     = &o,
                      .dialect = d,
                      .kernel  = l->kernel,
                      .user    = &e,
                      .value   = put_value,
                      .element = put_element,
                      .number  = put_number };
    tni_out_open(&o, h);
    tni_out_print(&o, "typedef struct { char *from[%d]; m_ulong number[%d]; } ending_args;\n",
                  TNI_ENDING_ACCESSES, TNI_ENDING_NUMBERS);
    tni_out_print(&o,
                  "#ifndef ENDING_LOAD\n#define ENDING_LOAD(x, p) "
                  "for (int k = 0; k < EACH; k++) x[k] = (p)[k];\n#endif\n"
                  "#ifndef ENDING_FETCH\n#define ENDING_FETCH(i, x, p) ENDING_LOAD(x, p)\n#endif\n"
                  "#ifndef ENDING_STORE\n#define ENDING_STORE(p, x) "
                  "for (int k = 0; k < EACH; k++) (p)[k] = x[k];\n#endif\n");
    tni_out_print(&o, "#define ENDING_PARAMS , GIVEN ending_args e\n#define ENDING_BEGIN(c)");
    put_begin(&s);
    tni_out_print(&o, "\n#define ENDING(v, c, at) {");
    for (int i = 0; i < l->kernel->nins; i++) {
        const tni_ins *x = &l->kernel->ins[i];
        if (is_other_load(&s, x) && !is_column(l, x, width)) put_load(&s, i);
        if (is_other_store(&s, x)) tni_out_print(&o, " %s y%d[EACH];", storage_of(&s, x), i);
    }
    tni_out_print(&o, " for (int k = 0; k < EACH; k++) {");
    put_values(&s);
    tni_out_print(&o, " }");
    for (int i = 0; i < l->kernel->nins; i++) {
        const tni_ins *x = &l->kernel->ins[i];
        if (is_other_store(&s, x))
            tni_out_print(&o, " ENDING_STORE((GLOBAL %s *)e.from[%d] + (at), y%d)",
                          storage_of(&s, x), x->access, i);
    }
    tni_out_print(&o, " }\n");
    char *text = tni_out_take(&o);
    tni_out_close(&o);
    return text;
}

tni_ending_args tni_ending_args_of(const tni_launch *l)
{
    tni_ending_args a = { { NULL }, { 0 } };
    for (int i = 0; i < l->kernel->naccess; i++) a.from[i] = tni_access_address(l, i);
    for (int i = 0; i < l->kernel->nnumber; i++) a.number[i] = l->number[i].u;
    return a;
}
