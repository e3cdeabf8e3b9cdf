// Printing endings. That of a folded batch norm and relu in f16 is, with lines broken here,
//
//     typedef struct { char *from[8]; m_ulong number[8]; } ending_args;
//     #define ENDING_PARAMS , GIVEN ending_args e
//     #define ENDING_BEGIN(c) float e2[EACH]; for (int k = 0; k < EACH; k++) { e2[k] = ((float *)e.from[1])[c + k]; }
//     #define ENDING(v, c, at) for (int k = 0; k < EACH; k++) { const float v1 = v[k];
//         const float v3 = o_add_f(v1, e2[k]); const float v4 = m_half_to_float(m_float_to_half(v3));
//         const float v5 = o_relu_f(v4); v[k] = v5; }
#include "kernel/ending.h"

const char tni_no_ending[] =
    "#define ENDING_PARAMS\n#define ENDING_BEGIN(c)\n#define ENDING(v, c, at)\n";

static bool is_column(const tni_launch *l, const tni_ins *x, int64_t width)
{
    return x->code == TNI_I_LOAD && tni_visits_columns(l, x->access, width);
}

int tni_ending_store(const tni_kernel *k)
{
    int found = -1;
    for (int i = 0; i < k->nins; i++)
        if (k->ins[i].code == TNI_I_STORE) found = found < 0 ? k->ins[i].access : -2;
    return found;
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
    bool              ok = !k->guarded && !k->nr && !k->tails && tni_ending_store(k) >= 0;
    for (int i = 0; i < k->nins && ok; i++) ok = is_plain(l, &k->ins[i], product, width);
    return ok && k->naccess <= TNI_ENDING_ACCESSES && k->nnumber <= TNI_ENDING_NUMBERS;
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
    const ending  *e    = s->user;
    const tni_ins *x    = &s->kernel->ins[i];
    tn_dtype       dt   = (tn_dtype)s->kernel->buffer[s->kernel->access[x->access].buffer].dtype;
    bool           each = is_column(e->l, x, e->width);
    tni_out_print(s->out, "((GLOBAL const %s *)e.from[%d])[%s + k]", tni_storage_type(dt),
                  x->access, each ? "c" : "at");
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
        if (!is_column(e->l, x, e->width) || s->kernel->access[x->access].buffer == e->product)
            continue;
        tni_out_print(s->out, " %s e%d[EACH]; for (int k = 0; k < EACH; k++) { e%d[k] = ",
                      tni_compute_type((tn_dtype)x->dtype), i, i);
        tni_emit_value(s, i);
        tni_out_print(s->out, "; }");
    }
}

static void put_values(tni_emitter *s)
{
    const ending *e = s->user;
    for (int i = 0; i < s->kernel->nins; i++) {
        const tni_ins *x = &s->kernel->ins[i];
        if (x->code == TNI_I_LOAD &&
            (s->kernel->access[x->access].buffer == e->product || is_column(e->l, x, e->width)))
            continue;
        if (x->code == TNI_I_STORE) {
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
    tni_out_print(&o, "#define ENDING_PARAMS , GIVEN ending_args e\n#define ENDING_BEGIN(c)");
    put_begin(&s);
    tni_out_print(&o, "\n#define ENDING(v, c, at) for (int k = 0; k < EACH; k++) {");
    put_values(&s);
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
