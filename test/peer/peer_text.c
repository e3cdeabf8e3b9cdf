// peer_text.c: a program as C and as Python. The Python text is also what PyTorch is handed.
#include "peer.h"

#include <math.h>
#include <string.h>

typedef enum { IN_C, IN_PYTHON } language;

static const char *const python_dtypes[] = { "boolean", "u8",   "i8",  "i32", "i64",
                                             "f16",     "bf16", "f32", "f64" };
static const char *const c_dtypes[]      = { "TN_BOOL", "TN_U8",   "TN_I8",  "TN_I32", "TN_I64",
                                             "TN_F16",  "TN_BF16", "TN_F32", "TN_F64" };

// ---- parts

static void put_value(const peer_program *p, peer_ref r, language l, FILE *f)
{
    if (r.step < 0) {
        fputs(l == IN_C ? "NULL" : "None", f);
        return;
    }
    switch (p->step[r.step].row->form->gives) {
    case GIVES_PAIR: fprintf(f, "t%d.%s", r.step, r.out ? "indices" : "values"); break;
    case GIVES_ARRAY: fprintf(f, "t%d[%d]", r.step, r.out); break;
    default: fprintf(f, "t%d", r.step);
    }
}

static void put_values(const peer_program *p, const peer_step *s, int from, int to, language l,
                       FILE *f)
{
    for (int i = from; i < to; i++) {
        if (i > from) fputs(", ", f);
        put_value(p, s->in[i], l, f);
    }
}

static void put_list(const int64_t *x, int n, FILE *f)
{
    for (int i = 0; i < n; i++) fprintf(f, i ? ", %lld" : "%lld", (long long)x[i]);
}

static void put_tuple(const peer_step *s, const char *c, language l, FILE *f)
{
    if (l == IN_C && s->n == 0) fputs("TN_0D", f);
    else if (l == IN_C) fputs(c, f), fputc('(', f), put_list(s->list, s->n, f), fputc(')', f);
    else fputc('(', f), put_list(s->list, s->n, f), fputs(s->n == 1 ? ",)" : ")", f);
}

static void put_number(double x, language l, FILE *f)
{
    if (isnan(x)) fputs(l == IN_C ? "NAN" : "nan", f);
    else if (isinf(x)) fprintf(f, "%s%s", x < 0 ? "-" : "", l == IN_C ? "INFINITY" : "inf");
    else fprintf(f, "%.17g", x);
}

static const char *const reductions[] = { "'mean'", "'sum'", "'none'" };
static const char *const reduces[]    = { "TN_REDUCTION_MEAN", "TN_REDUCTION_SUM",
                                          "TN_REDUCTION_NONE" };

// What follows # in a text; returns how many characters that is.
static int put_attribute(const peer_step *s, const char *at, language l, FILE *f)
{
    switch (*at) {
    case '#': fputs(s->row->name, f); break;
    case 'a': fprintf(f, "%d", s->axis); break;
    case 'l': put_list(s->list, s->n, f); break;
    case 'k': put_list(s->k, s->n, f); break;
    case 'S': put_tuple(s, "TN_SHAPE", l, f); break;
    case 'A': put_tuple(s, "TN_AXES", l, f); break;
    case 'x': put_number(s->num[0], l, f); break;
    case 'y': put_number(s->num[1], l, f); break;
    case 'b':
        fputs(l == IN_C ? (s->flag ? "true" : "false") : s->flag ? "True" : "False", f);
        break;
    case 'd': fputs(l == IN_C ? c_dtypes[s->dtype] : python_dtypes[s->dtype], f); break;
    case 'R': fputs(l == IN_C ? reduces[s->k[0]] : reductions[s->k[0]], f); break;
    case 'Y': fprintf(f, "%d", s->ny); break;
    case 'X': fprintf(f, "%d", s->nin - 2 * s->ny); break;
    default: fprintf(f, "%lld", (long long)s->k[*at - '0']);
    }
    return 1;
}

static void put_input(const peer_program *p, const peer_step *s, char which, language l, FILE *f)
{
    switch (which) {
    case '*': put_values(p, s, 0, s->nin, l, f); break;
    case 'y': put_values(p, s, 0, s->ny, l, f); break;
    case 'g': put_values(p, s, s->ny, 2 * s->ny, l, f); break;
    case 'x': put_values(p, s, 2 * s->ny, s->nin, l, f); break;
    default: put_value(p, s->in[which - '0'], l, f);
    }
}

static void put_text(const peer_program *p, int step, const char *text, language l, FILE *f)
{
    const peer_step *s = &p->step[step];
    for (; *text; text++) {
        if (*text == '#') text += put_attribute(s, text + 1, l, f);
        else if (*text == '$') put_input(p, s, *++text, l, f);
        else if (*text == '@') fprintf(f, "t%d", step);
        else fputc(*text, f);
    }
}

// ---- C

static void put_c_data(const peer_step *s, FILE *f)
{
    double  x[PEER_MOST];
    int64_t n = peer_count(s->n, s->list);
    peer_elements(s, x);
    fputs(s->leaf ? "tn_requires_grad(tn_cast(" : "tn_cast(", f);
    fputs("tn_from(cx, TN_F64, ", f);
    put_tuple(s, "TN_SHAPE", IN_C, f);
    fputs(", (double[]){ ", f);
    for (int64_t i = 0; i < n; i++) fputs(i ? ", " : "", f), put_number(x[i], IN_C, f);
    fprintf(f, " }), %s)%s", c_dtypes[s->dtype], s->leaf ? ", true)" : "");
}

static const char *c_text(const peer_step *s)
{
    static const char *const spellings[] = { "tn_##($0, #l)", "tn_##_keep($0, #l)", "tn_##_all($0)",
                                             "tn_##_axes($0, #A, #b)" };
    if (s->row->form == &form_reduce || s->row->form == &form_arg) return spellings[s->k[0]];
    return s->row->c ? s->row->c : s->row->form->c;
}

void peer_print_c(const peer_program *p, FILE *f)
{
    for (int i = 0; i < p->count; i++) {
        const peer_step *s = &p->step[i];
        if (s->no_grad) fputs("tn_grad_mode(cx, false);\n", f);
        switch (s->row->form->gives) {
        case GIVES_ONE: fprintf(f, "tn_tensor *t%d = ", i); break;
        case GIVES_PAIR: fprintf(f, "tn_pair t%d = ", i); break;
        case GIVES_ARRAY: fprintf(f, "tn_tensor *t%d[%d];\n", i, PEER_OUTS); break;
        default: break;
        }
        if (s->row == &peer_data_row) put_c_data(s, f);
        else put_text(p, i, c_text(s), IN_C, f);
        fputs(";\n", f);
        if (s->no_grad) fputs("tn_grad_mode(cx, true);\n", f);
    }
    for (int i = 0; i < p->count; i++)
        for (int k = 0; k < p->step[i].outs; k++)
            if (p->step[i].wanted[k]) {
                fputs(p->one_step ? "tn_want(" : "tn_print(", f);
                put_value(p, (peer_ref){ i, k }, IN_C, f);
                fputs(p->one_step ? ");\n" : ", stdout);\n", f);
            }
    if (p->one_step) fputs("tn_eval(cx);\n", f);
}

// ---- Python

// Whether an op that has limits depends on a step; then its data stays as it is.
static void find_fixed(const peer_program *p, bool *fixed)
{
    for (int i = p->count - 1; i >= 0; i--) {
        const peer_step *s      = &p->step[i];
        bool             limits = (s->row->needs & (NEEDS_EXACT | NEEDS_INT | NEEDS_SHARE)) != 0;
        if (limits || (s->row->form == &form_cast && !peer_is_float(s->dtype))) fixed[i] = true;
        for (int k = 0; fixed[i] && k < s->nin; k++)
            if (s->in[k].step >= 0) fixed[s->in[k].step] = true;
    }
}

static void put_python_data(const peer_step *s, bool fixed, FILE *f)
{
    double  x[PEER_MOST];
    int64_t n = peer_count(s->n, s->list);
    peer_elements(s, x);
    fputs("data('", f);
    for (int64_t i = 0; i < n; i++) fputs(i ? " " : "", f), put_number(x[i], IN_PYTHON, f);
    fprintf(f, "', '%s', ", python_dtypes[s->dtype]);
    put_tuple(s, "", IN_PYTHON, f);
    fprintf(f, ", leaf=%s, free=%s)", s->leaf ? "True" : "False",
            fixed || !peer_is_float(s->dtype) ? "False" : "True");
}

void peer_print_python(const peer_program *p, FILE *f)
{
    bool fixed[PEER_STEPS] = { false };
    find_fixed(p, fixed);
    for (int i = 0; i < p->count; i++) {
        const peer_step *s = &p->step[i];
        if (s->no_grad) fputs("torch.set_grad_enabled(False)\n", f);
        if (s->row->form->gives != GIVES_NONE) fprintf(f, "t%d = ", i);
        if (s->row == &peer_data_row) put_python_data(s, fixed[i], f);
        else put_text(p, i, s->row->python ? s->row->python : s->row->form->python, IN_PYTHON, f);
        fputs("\n", f);
        if (s->no_grad) fputs("torch.set_grad_enabled(True)\n", f);
    }
    fputs("show([", f);
    for (int i = 0, n = 0; i < p->count; i++)
        for (int k = 0; k < p->step[i].outs; k++)
            if (p->step[i].wanted[k]) {
                if (n++) fputs(", ", f);
                put_value(p, (peer_ref){ i, k }, IN_PYTHON, f);
            }
    fputs("])\n", f);
}
