// Printing endings. That of a folded batch norm and relu in f16 is, with lines broken here,
//
//     typedef struct { char *from[8]; m_ulong number[8]; } ending_args;
//     #define ENDING_PARAMS , GIVEN ending_args e
//     #define ENDING_COLUMNS(columns) struct { float e2[EACH]; } columns;
//     #define ENDING_BEGIN(columns, c) { float x2[EACH]; ENDING_LOAD(x2, (float *)e.from[1] + (c))
//         for (int k = 0; k < EACH; k++) { columns.e2[k] = x2[k]; } }
//     #define ENDING(v, columns, c, at) { for (int k = 0; k < EACH; k++) {
//         const float v3 = o_add_f(v[k], columns.e2[k]); const float v4 = m_half_to_float(m_float_to_half(v3));
//         const float v5 = o_relu_f(v4); v[k] = v5; } }
//
// and a residual, the load of instruction 6, is loaded in front of the loop of ENDING, as x6. If
// the kernel stores v3 as well, by instruction 9, the loop has y9[k] = m_float_to_half(v3), and
// ENDING_STORE follows it.
//
// Of a kernel that adds up v3 by columns, by instruction 5, and stores a number times that in f32,
// it has besides
//
//     ending_sum[0][k] = o_sum_f(ending_sum[0][k], v3);
//     #define ENDING_FINISH(c) { const float v5 = ending_total[0]; const float v6 = m_as_float(e.number[0]);
//         const float v7 = o_mul_f(v5, v6); ((float *)e.from[4])[c] = v7; }
//
// Prologues are printed in the same way, with p for e.
#include "kernel/ending.h"

const char tni_no_ending[] =
    "#define ENDING_PARAMS\n#define ENDING_COLUMNS(columns)\n"
    "#define ENDING_BEGIN(columns, c)\n#define ENDING(v, columns, c, at)\n";

// Whether a load is the same for all elements of a column, or for all.
static bool is_column(const tni_launch *l, const tni_ins *x, int64_t width)
{
    return x->code == TNI_I_LOAD && tni_visits_columns(l, x->access, width);
}

static bool is_single(const tni_launch *l, const tni_ins *x)
{
    const tni_kernel *k = l->kernel;
    if (x->code != TNI_I_LOAD && x->code != TNI_I_STORE) return false;
    for (int i = 0; i < k->np + k->nr; i++)
        if (l->size[i] > 1 && l->stride[x->access][i]) return false;
    return true;
}

static bool is_shared(const tni_launch *l, const tni_ins *x, int64_t width)
{
    return is_column(l, x, width) || (x->code == TNI_I_LOAD && is_single(l, x));
}

int tni_ending_store(const tni_kernel *k, int product)
{
    for (int i = 0; i < k->nins; i++) {
        const tni_ins *x = &k->ins[i];
        if (x->code == TNI_I_STORE && !x->finish &&
            k->buffer[k->access[x->access].buffer].dtype == k->buffer[product].dtype)
            return x->access;
    }
    return -1;
}

int tni_ending_sums(const tni_kernel *k)
{
    int sums = 0;
    for (int i = 0; i < k->nins; i++) sums += tni_is_tail(&k->ins[i]);
    return sums;
}

// Texts add up in f32.
static bool is_sum(const tni_ins *x)
{
    return tni_is_tail(x) && x->op == TNI_sum && x->per == TNI_PER_COL &&
           tni_compute_suffix((tn_dtype)x->dtype) == 'f';
}

// An instruction that needs nothing but its operands and its own element or, of what follows from
// sums, column.
static bool is_plain(const tni_launch *l, const tni_ins *x, int product, int64_t width)
{
    bool memory = x->code == TNI_I_LOAD || x->code == TNI_I_STORE;
    bool order  = memory && tni_visits_in_order(l, x->access);
    if (x->code == TNI_I_LOAD && (x->a != TNI_NO_VALUE || x->b != TNI_NO_VALUE)) return false;
    if (x->code == TNI_I_LOAD && l->kernel->access[x->access].buffer == product)
        return order || (l->kernel->tails && is_column(l, x, width));
    if (x->code == TNI_I_LOAD) return order || is_shared(l, x, width);
    if (x->code == TNI_I_STORE && x->finish) return tni_visits_columns(l, x->access, width);
    return x->code == TNI_I_NUMBER || x->code == TNI_I_MAP || x->code == TNI_I_CAST || is_sum(x) ||
           (x->code == TNI_I_STORE && order);
}

// Sums are of columns if those are all that is reduced.
bool tni_is_ending(const tni_launch *l, int product, int64_t width)
{
    const tni_kernel *k    = l->kernel;
    int               sums = tni_ending_sums(k);
    bool              ok   = !k->guarded && sums <= TNI_ENDING_SUMS;
    if (sums) ok &= k->nr == 1 && l->size[k->np] == width;
    else ok &= !k->nr && tni_ending_store(k, product) >= 0;
    for (int i = 0; i < k->nins && ok; i++) ok = is_plain(l, &k->ins[i], product, width);
    return ok && k->naccess <= TNI_ENDING_ACCESSES && k->nnumber <= TNI_ENDING_NUMBERS;
}

int tni_prologue_store(const tni_kernel *k)
{
    int store = -1;
    for (int i = 0; i < k->nins; i++)
        if (k->ins[i].code == TNI_I_STORE) store = k->ins[i].access;
    return store;
}

// Whether an access is the only one that reads elements of its buffer in order, as the text takes
// all such loads for that of v.
static bool reads_alone(const tni_launch *l, const tni_ins *x)
{
    const tni_kernel *k = l->kernel;
    for (int i = 0; i < k->naccess; i++)
        if (i != x->access && k->access[i].buffer == k->access[x->access].buffer &&
            tni_visits_in_order(l, i))
            return false;
    return tni_visits_in_order(l, x->access);
}

// What is stored is read by nothing of the kernel.
int tni_prologue_from(const tni_launch *l, int64_t width)
{
    const tni_kernel *k      = l->kernel;
    int               stores = 0, store = tni_prologue_store(k);
    if (k->nr || k->tails || k->guarded || store < 0 || k->naccess > TNI_ENDING_ACCESSES ||
        k->nnumber > TNI_ENDING_NUMBERS)
        return -1;
    for (int i = 0; i < k->nins; i++) {
        stores += k->ins[i].code == TNI_I_STORE;
        if (!is_plain(l, &k->ins[i], -1, width)) return -1;
    }
    for (int i = 0; i < k->nins && stores == 1; i++) {
        const tni_ins *x = &k->ins[i];
        if (x->code == TNI_I_LOAD && !is_shared(l, x, width) && reads_alone(l, x) &&
            k->buffer[k->access[x->access].buffer].dtype ==
                k->buffer[k->access[store].buffer].dtype)
            return x->access;
    }
    return -1;
}

bool tni_ending_reads_first_row(const tni_launch *l, int product, int64_t width)
{
    const tni_kernel *k = l->kernel;
    for (int i = 0; i < k->nins; i++)
        if (k->ins[i].code == TNI_I_LOAD && k->access[k->ins[i].access].buffer == product &&
            !tni_visits_in_order(l, k->ins[i].access) && is_column(l, &k->ins[i], width))
            return true;
    return false;
}

int tni_ending_fetches(const tni_launch *l, int product, int64_t width, int *access)
{
    const tni_kernel *k     = l->kernel;
    tni_set           main  = tni_needs_main(k);
    int               count = 0;
    for (int i = 0; i < k->nins && count < TNI_ENDING_FETCHES; i++) {
        const tni_ins *x = &k->ins[i];
        if (x->code != TNI_I_LOAD || !tni_set_has(&main, i) || is_shared(l, x, width)) continue;
        int  buffer = k->access[x->access].buffer;
        bool known  = buffer == product;
        for (int j = 0; j < count; j++) known |= access[j] == x->access;
        if (!known && tni_dtype_size((tn_dtype)k->buffer[buffer].dtype) == 2)
            access[count++] = x->access;
    }
    return count;
}

// What is being printed, for the callbacks of the emitter.
typedef struct {
    const tni_launch *l;
    int               product;
    int64_t           width;
    const char       *word;    // ENDING or PROLOGUE
    char              arg;     // the parameter with addresses and numbers
    bool              finish;  // what follows from the sums of a column
    tni_set           main;    // what is computed for each element
} ending;

// Whether an instruction loads the element that the text is given. The first row of a result is
// loaded as any column is.
static bool is_product(const tni_emitter *s, const tni_ins *x)
{
    const ending *e = s->user;
    return x->code == TNI_I_LOAD && s->kernel->access[x->access].buffer == e->product &&
           tni_visits_in_order(e->l, x->access);
}

// A value where it is read: the sum, what was loaded for the column, or a value of this element.
static void put_value(tni_emitter *s, int i)
{
    const ending  *e = s->user;
    const tni_ins *x = &s->kernel->ins[i];
    if (is_product(s, x)) tni_out_print(s->out, "v[k]");
    else
        tni_out_print(s->out, !e->finish && is_shared(e->l, x, e->width) ? "columns.e%d[k]" : "v%d",
                      i);
}

static const char *storage_of(const tni_emitter *s, const tni_ins *x)
{
    return tni_storage_type((tn_dtype)s->kernel->buffer[s->kernel->access[x->access].buffer].dtype);
}

static void put_element(tni_emitter *s, int i)
{
    const ending  *e = s->user;
    const tni_ins *x = &s->kernel->ins[i];
    if (e->finish)
        tni_out_print(s->out, "((GLOBAL %s *)%c.from[%d])[%s]", storage_of(s, x), e->arg, x->access,
                      is_single(e->l, x) ? "0" : "c");
    else tni_out_print(s->out, x->code == TNI_I_STORE ? "y%d[k]" : "x%d[k]", i);
}

// Whether an instruction stores something else than what v becomes.
static bool is_other_store(const tni_emitter *s, const tni_ins *x)
{
    const ending *e = s->user;
    return x->code == TNI_I_STORE && x->access != tni_ending_store(s->kernel, e->product);
}

// Loads EACH elements as they are stored, of the columns or of the place.
static void put_load(tni_emitter *s, int i)
{
    const ending  *e  = s->user;
    const tni_ins *x  = &s->kernel->ins[i];
    const char    *dt = storage_of(s, x);
    tni_out_print(s->out, " %s x%d[EACH];", dt, i);
    if (is_column(e->l, x, e->width))
        tni_out_print(s->out, " ENDING_LOAD(x%d, (GLOBAL const %s *)%c.from[%d] + (c))", i, dt,
                      e->arg, x->access);
    else if (is_single(e->l, x))
        tni_out_print(s->out,
                      " for (int k = 0; k < EACH; k++) x%d[k] = *(GLOBAL const %s *)%c.from[%d];",
                      i, dt, e->arg, x->access);
    else
        tni_out_print(s->out, " %s_FETCH(%d, x%d, (GLOBAL const %s *)%c.from[%d] + (at))", e->word,
                      x->access, i, dt, e->arg, x->access);
}

static void put_number(tni_emitter *s, int n)
{
    const ending *e = s->user;
    tni_out_print(s->out, "%c.number[%d]", e->arg, n);
}

// Whether instruction i is computed for each element, and loads something besides the result, of
// columns or not.
static bool loads(const tni_emitter *s, int i, bool shared)
{
    const ending  *e = s->user;
    const tni_ins *x = &s->kernel->ins[i];
    return tni_set_has(&e->main, i) && x->code == TNI_I_LOAD && !is_product(s, x) &&
           is_shared(e->l, x, e->width) == shared;
}

static void put_columns(tni_emitter *s)
{
    int count = 0;
    for (int i = 0; i < s->kernel->nins; i++)
        if (loads(s, i, true))
            tni_out_print(s->out, "%s %s e%d[EACH];", count++ ? "" : " struct {",
                          tni_compute_type((tn_dtype)s->kernel->ins[i].dtype), i);
    if (count) tni_out_print(s->out, " } columns;");
}

static void put_begin(tni_emitter *s)
{
    for (int i = 0; i < s->kernel->nins; i++) {
        if (!loads(s, i, true)) continue;
        put_load(s, i);
        tni_out_print(s->out, " for (int k = 0; k < EACH; k++) { columns.e%d[k] = ", i);
        tni_emit_value(s, i);
        tni_out_print(s->out, "; }");
    }
}

// Adds to sum number `sum`.
static void put_sum(tni_emitter *s, const tni_ins *x, int sum)
{
    tni_out_print(s->out, " ending_sum[%d][k] = o_sum_f(ending_sum[%d][k], ", sum, sum);
    put_value(s, x->a);
    tni_out_print(s->out, ");");
}

// The body of ENDING's loop: every value in its order, what is stored, and sums.
static void put_values(tni_emitter *s)
{
    const ending *e   = s->user;
    int           sum = 0;
    for (int i = 0; i < s->kernel->nins; i++) {
        const tni_ins *x = &s->kernel->ins[i];
        if (!tni_set_has(&e->main, i) || is_product(s, x) || is_shared(e->l, x, e->width)) continue;
        if (tni_is_tail(x)) {
            put_sum(s, x, sum++);
            continue;
        }
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

// Prints the loads ahead of the loop over a vector, the loop, and the stores of other results
// behind it.
static void put_ending(tni_emitter *s)
{
    const ending *e = s->user;
    for (int i = 0; i < s->kernel->nins; i++) {
        const tni_ins *x = &s->kernel->ins[i];
        if (loads(s, i, false)) put_load(s, i);
        if (tni_set_has(&e->main, i) && is_other_store(s, x))
            tni_out_print(s->out, " %s y%d[EACH];", storage_of(s, x), i);
    }
    tni_out_print(s->out, " for (int k = 0; k < EACH; k++) {");
    put_values(s);
    tni_out_print(s->out, " }");
    for (int i = 0; i < s->kernel->nins; i++) {
        const tni_ins *x = &s->kernel->ins[i];
        if (tni_set_has(&e->main, i) && is_other_store(s, x))
            tni_out_print(s->out, " ENDING_STORE((GLOBAL %s *)%c.from[%d] + (at), y%d)",
                          storage_of(s, x), e->arg, x->access, i);
    }
}

// What follows from the sums of a column.
static void put_finish(tni_emitter *s)
{
    ending *e    = s->user;
    tni_set once = tni_needs_finish(s->kernel, false), each = tni_needs_finish(s->kernel, true);
    int     sum = 0;
    e->finish   = true;
    for (int i = 0; i < s->kernel->nins; i++) {
        const tni_ins *x = &s->kernel->ins[i];
        if (tni_is_tail(x)) sum++;
        if (!tni_set_has(&once, i) && !tni_set_has(&each, i)) continue;
        tni_out_print(s->out, " ");
        if (x->code == TNI_I_STORE) tni_emit_store(s, i);
        else tni_out_print(s->out, "const %s v%d = ", tni_compute_type((tn_dtype)x->dtype), i);
        if (tni_is_tail(x)) tni_out_print(s->out, "ending_total[%d]", sum - 1);
        else if (x->code != TNI_I_STORE) tni_emit_value(s, i);
        tni_out_print(s->out, ";");
    }
    e->finish = false;
}

// Each macro is one line, since a text's pieces are printed as they are.
static char *print_macros(tni_out *o, const tni_dialect *d, ending *e)
{
    const char *word = e->word;
    tni_emitter s    = { .out     = o,
                         .dialect = d,
                         .kernel  = e->l->kernel,
                         .user    = e,
                         .value   = put_value,
                         .element = put_element,
                         .number  = put_number };
    tni_out_print(o, "#define %s_PARAMS , GIVEN ending_args %c\n#define %s_COLUMNS(columns)", word,
                  e->arg, word);
    put_columns(&s);
    tni_out_print(o, "\n#define %s_BEGIN(columns, c) {", word);
    put_begin(&s);
    tni_out_print(o, " }\n#define %s(v, columns, c, at) {", word);
    put_ending(&s);
    tni_out_print(o, " }\n");
    if (e->l->kernel->tails) {
        tni_out_print(o, "#define %s_FINISH(c) {", word);
        put_finish(&s);
        tni_out_print(o, " }\n");
    }
    char *text = tni_out_take(o);
    tni_out_close(o);
    return text;
}

char *tni_ending_text(tni_heap *h, const tni_dialect *d, const tni_launch *l, int product,
                      int64_t width)
{
    tni_out o;
    ending  e = { l, product, width, "ENDING", 'e', false, tni_needs_main(l->kernel) };
    tni_out_open(&o, h);
    tni_out_print(&o, "typedef struct { char *from[%d]; m_ulong number[%d]; } ending_args;\n",
                  TNI_ENDING_ACCESSES, TNI_ENDING_NUMBERS);
    tni_out_print(&o,
                  "#ifndef ENDING_LOAD\n#define ENDING_LOAD(x, p) "
                  "for (int k = 0; k < EACH; k++) x[k] = (p)[k];\n#endif\n"
                  "#ifndef ENDING_FETCH\n#define ENDING_FETCH(i, x, p) ENDING_LOAD(x, p)\n#endif\n"
                  "#ifndef ENDING_STORE\n#define ENDING_STORE(p, x) "
                  "for (int k = 0; k < EACH; k++) (p)[k] = x[k];\n#endif\n");
    return print_macros(&o, d, &e);
}

char *tni_prologue_text(tni_heap *h, const tni_dialect *d, const tni_launch *l, int64_t width)
{
    tni_out o;
    int     from = l->kernel->access[tni_prologue_from(l, width)].buffer;
    ending  e    = { l, from, width, "PROLOGUE", 'p', false, tni_needs_main(l->kernel) };
    tni_out_open(&o, h);
    return print_macros(&o, d, &e);
}

tni_ending_args tni_ending_args_of(const tni_launch *l)
{
    tni_ending_args a = { { NULL }, { 0 } };
    for (int i = 0; i < l->kernel->naccess; i++) a.from[i] = tni_access_address(l, i);
    for (int i = 0; i < l->kernel->nnumber; i++) a.number[i] = l->number[i].u;
    return a;
}
