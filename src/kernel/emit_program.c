// Programs: kernels, and before them the functions that they call. Nothing is listed by hand: every
// name in a text that is a function of the shim, the prelude, the op table or the dialect's folds
// brings that function in, after what it calls itself. So the text has only what it needs, which
// keeps compile times short.
#include "base/hash.h"
#include "kernel/emit.h"
#include "kernel/op_text.h"
#include "kernel/prelude_text.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_ROWS  = 400,   // functions of a shim, or of the prelude
    MAX_FOLDS = 8,     // functions that a dialect has for each fold
    FUNCTION  = 4096,  // characters of an op's function, or of a fold's with its marks filled in
    MAX_SEEN  = 256,   // names that are remembered, and their characters
    MAX_NAME  = 31
};

static const int fold_ops[4] = { TNI_sum, TNI_prod, TNI_max, TNI_min };

// A name that was looked up, in the place that its characters give it.
typedef struct {
    unsigned char n;
    char          s[MAX_NAME];
} seen_name;

// A program while it is put together. The flags say which functions are in it already: each is
// taken once, and marked before its text is searched, so that the search ends. seen: names that
// have been looked up; most are met again and again.
typedef struct {
    tni_out           *out;
    const tni_dialect *dialect;
    bool               no_double;
    bool               shim[MAX_ROWS], functions[MAX_ROWS], prelude[MAX_ROWS];
    bool               op[TNI_OPS][TNI_COMPUTES], fold[MAX_FOLDS][4][TNI_COMPUTES];
    seen_name          seen[MAX_SEEN];
} program;

// A name in a text: not terminated.
typedef struct {
    const char *s;
    size_t      n;
} name_span;

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static bool word_is(name_span w, const char *s)
{
    return strlen(s) == w.n && !memcmp(w.s, s, w.n);
}

static bool begins_with(const char *s, const char *with)
{
    return !strncmp(s, with, strlen(with));
}

// The name of the function that a piece of text defines, which is what stands before the first
// bracket; empty if the piece is no function.
static name_span defined_name(const char *piece)
{
    const char *end = strchr(piece, '(');
    if (!end || (!begins_with(piece, "M_FN") && !begins_with(piece, "M_APART") &&
                 !begins_with(piece, "static")))
        return (name_span){ piece, 0 };
    const char *s = end;
    while (s > piece && is_name(s[-1])) s--;
    return (name_span){ s, (size_t)(end - s) };
}

static void take_names(program *p, const char *text);

// Adds a function after what it calls. Without doubles in the device, functions that use them are
// left out: kernels that need them are rejected before.
static void take_function(program *p, const char *text)
{
    if (p->no_double && strstr(text, "double")) return;
    take_names(p, text);
    tni_out_print(p->out, "%s", text);
}

// Takes the function of that name from a table of texts; false if the table has none.
static bool take_row(program *p, name_span w, const char *const *rows, bool *done)
{
    for (int i = 0; rows[i]; i++) {
        name_span name = defined_name(rows[i]);
        if (name.n != w.n || memcmp(name.s, w.s, w.n) != 0) continue;
        if (!done[i]) {
            done[i] = true;
            take_function(p, rows[i]);
        }
        return true;
    }
    return false;
}

// The compute type that the last letter of a name stands for (o_add_f: f); -1 if it is none.
static int suffix_type(name_span w)
{
    int kind = w.n > 2 && w.s[w.n - 2] == '_' ? TNI_COMPUTES - 1 : -1;
    while (kind >= 0 && tni_compute_table[kind].letter != w.s[w.n - 1]) kind--;
    return kind;
}

static tn_dtype compute_dtype_of(int kind)
{
    return (tn_dtype)tni_compute_table[kind].dtype;
}

// Takes the function of an op, for example o_add_f: made from its row of the op table.
static void take_op(program *p, name_span w)
{
    int  kind           = suffix_type(w);
    char text[FUNCTION] = "M_FN ", name[64];
    if (kind < 0 || w.n >= sizeof name) return;
    for (int op = 0; op < TNI_OPS; op++) {
        if (!word_is((name_span){ w.s + 2, w.n - 4 }, tni_op_table[op].name) || p->op[op][kind])
            continue;
        p->op[op][kind] = true;
        snprintf(name, sizeof name, "%.*s", (int)w.n, w.s);
        if (tni_op_text(text + 5, FUNCTION - 5, name, op, compute_dtype_of(kind)) ||
            tni_fold_text(text + 5, FUNCTION - 5, name, op, compute_dtype_of(kind)))
            take_function(p, text);
    }
}

// Writes a fold's function with the marks @op, @s, @t and @w replaced (dialect.h says by what).
static void fill_marks(char *dst, const char *text, int op, int kind)
{
    char   suffix[2] = { tni_compute_table[kind].letter, 0 };
    size_t n         = 0;
    for (const char *s = text; *s && n + 16 < FUNCTION; s++) {
        const char *put = NULL;
        size_t      cut = 1;
        if (begins_with(s, "@op")) put = tni_op_table[op].name, cut = 2;
        else if (begins_with(s, "@s")) put = suffix;
        else if (begins_with(s, "@t")) put = tni_compute_type(compute_dtype_of(kind));
        else if (begins_with(s, "@w")) put = tni_total_type(compute_dtype_of(kind));
        if (!put) {
            dst[n++] = *s;
            continue;
        }
        n += (size_t)snprintf(dst + n, FUNCTION - n, "%s", put);
        s += cut;
    }
    dst[n] = 0;
}

// Takes a function of a fold, for example f_block_sum_f, by trying the texts of all four folds.
static void take_fold(program *p, name_span w)
{
    char text[FUNCTION];
    int  kind = suffix_type(w);
    if (kind < 0) return;
    for (int f = 0; p->dialect->folds[f]; f++)
        for (int o = 0; o < 4; o++) {
            fill_marks(text, p->dialect->folds[f], fold_ops[o], kind);
            name_span name = defined_name(text);
            if (name.n != w.n || memcmp(name.s, w.s, w.n) != 0 || p->fold[f][o][kind]) continue;
            p->fold[f][o][kind] = true;
            take_function(p, text);
            return;
        }
}

// Whether a name was looked up before; remembers it in the place of another.
static bool was_seen(program *p, name_span w)
{
    if (w.n > MAX_NAME) return false;
    seen_name *at = &p->seen[tni_hash(w.s, w.n) % MAX_SEEN];
    if (at->n == w.n && !memcmp(at->s, w.s, w.n)) return true;
    at->n = (unsigned char)w.n;
    memcpy(at->s, w.s, w.n);
    return false;
}

// Looks at every name of the form x_...; the first letter says which table has it. A dialect's own
// function comes before the shim's and the prelude's of the same name: that is how CUDA replaces
// some.
static void take_names(program *p, const char *text)
{
    for (const char *s = text; *s;) {
        name_span w = { s, 0 };
        while (is_name(s[w.n])) w.n++;
        s += w.n ? w.n : 1;
        if (w.n < 4 || w.s[1] != '_' || was_seen(p, w)) continue;
        if (w.s[0] == 'o') take_op(p, w);
        else if (w.s[0] == 'f') take_fold(p, w);
        else if (w.s[0] == 'm' && !take_row(p, w, p->dialect->functions, p->functions) &&
                 !take_row(p, w, p->dialect->shim, p->shim))
            take_row(p, w, tni_prelude_text, p->prelude);
    }
}

// Prints the pieces of the shim that are no functions (types, macros): they begin the program.
static void put_preamble(program *p)
{
    for (const char *const *piece = p->dialect->shim; *piece; piece++)
        if (!defined_name(*piece).n && !(p->no_double && strstr(*piece, "double")))
            tni_out_print(p->out, "%s", *piece);
}

// The kernels are written first, into a text of their own, since their names decide what has to
// come before them.
char *tni_emit_program(tni_heap *h, const tni_dialect *d, tni_skeleton *skeleton, int n,
                       const tni_emit_item *item, bool no_double)
{
    tni_out  out, kernels;
    program *p = tni_zalloc(h, sizeof *p);
    if (!p) return NULL;
    tni_out_open(&out, h);
    tni_out_open(&kernels, h);
    for (int i = 0; i < n; i++) skeleton(&kernels, d, &item[i]);
    *p         = (program){ .out = &out, .dialect = d, .no_double = no_double };
    char *text = tni_out_take(&kernels);
    if (text) {
        put_preamble(p);
        take_names(p, text);
        tni_out_print(&out, "%s", text);
    } else {
        out.failed = true;
    }
    tni_free(h, text);
    tni_free(h, p);
    return tni_out_take(&out);
}
