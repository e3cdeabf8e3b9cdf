// Programs: kernels, and before them what they call. Nothing is listed: every name in a text that
// names a function of the shim, the prelude, the op table or the dialect's folds brings that
// function in, with what it calls before it.
#include "kernel/emit.h"
#include "kernel/op_text.h"
#include "kernel/prelude_text.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum {
    MOST_ROWS  = 400,  // of a shim, or of the prelude
    MOST_FOLDS = 8,    // functions for each fold
    FUNCTION   = 4096  // characters of one made here
};

static const int fold_ops[4] = { TNI_sum, TNI_prod, TNI_max, TNI_min };

// A program while it is put together. `done` flags say which functions are in it.
typedef struct {
    tni_out           *out;
    const tni_dialect *dialect;
    bool               no_double;
    bool               shim[MOST_ROWS], more[MOST_ROWS], prelude[MOST_ROWS];
    bool               op[TNI_OPS][TNI_COMPUTES], fold[MOST_FOLDS][4][TNI_COMPUTES];
} program;

// A name in a text.
typedef struct {
    const char *s;
    size_t      n;
} word;

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static bool word_is(word w, const char *s)
{
    return strlen(s) == w.n && !memcmp(w.s, s, w.n);
}

static bool begins(const char *s, const char *with)
{
    return !strncmp(s, with, strlen(with));
}

// The name of the function that a piece of text defines; empty if it is none.
static word defined(const char *piece)
{
    const char *end = strchr(piece, '(');
    if (!end || (!begins(piece, "M_FN") && !begins(piece, "M_APART") && !begins(piece, "static")))
        return (word){ piece, 0 };
    const char *s = end;
    while (s > piece && is_name(s[-1])) s--;
    return (word){ s, (size_t)(end - s) };
}

static void take_names(program *p, const char *text);

static void take_text(program *p, const char *text)
{
    if (p->no_double && strstr(text, "double")) return;
    take_names(p, text);
    tni_out_print(p->out, "%s", text);
}

static bool take_row(program *p, word w, const char *const *rows, bool *done)
{
    for (int i = 0; rows[i]; i++) {
        word name = defined(rows[i]);
        if (name.n != w.n || memcmp(name.s, w.s, w.n) != 0) continue;
        if (!done[i]) {
            done[i] = true;
            take_text(p, rows[i]);
        }
        return true;
    }
    return false;
}

// The type that the last letter of a name says; -1 if it says none.
static int kind_of(word w)
{
    int kind = w.n > 2 && w.s[w.n - 2] == '_' ? TNI_COMPUTES - 1 : -1;
    while (kind >= 0 && tni_compute_table[kind].letter != w.s[w.n - 1]) kind--;
    return kind;
}

static tn_dtype dtype_of(int kind)
{
    return (tn_dtype)tni_compute_table[kind].dtype;
}

// o_add_f
static void take_op(program *p, word w)
{
    int  kind           = kind_of(w);
    char text[FUNCTION] = "M_FN ", name[64];
    if (kind < 0 || w.n >= sizeof name) return;
    for (int op = 0; op < TNI_OPS; op++) {
        if (!word_is((word){ w.s + 2, w.n - 4 }, tni_op_table[op].name) || p->op[op][kind])
            continue;
        p->op[op][kind] = true;
        snprintf(name, sizeof name, "%.*s", (int)w.n, w.s);
        if (tni_op_text(text + 5, FUNCTION - 5, name, op, dtype_of(kind)) ||
            tni_fold_text(text + 5, FUNCTION - 5, name, op, dtype_of(kind)))
            take_text(p, text);
    }
}

// The text of a fold's function, with the marks replaced.
static void fill_marks(char *dst, const char *text, int op, int kind)
{
    char   suffix[2] = { tni_compute_table[kind].letter, 0 };
    size_t n         = 0;
    for (const char *s = text; *s && n + 16 < FUNCTION; s++) {
        const char *put = NULL;
        size_t      cut = 1;
        if (begins(s, "@op")) put = tni_op_table[op].name, cut = 2;
        else if (begins(s, "@s")) put = suffix;
        else if (begins(s, "@t")) put = tni_compute_type(dtype_of(kind));
        else if (begins(s, "@w")) put = tni_total_type(dtype_of(kind));
        if (!put) {
            dst[n++] = *s;
            continue;
        }
        n += (size_t)snprintf(dst + n, FUNCTION - n, "%s", put);
        s += cut;
    }
    dst[n] = 0;
}

// f_block_sum_f
static void take_fold(program *p, word w)
{
    char text[FUNCTION];
    int  kind = kind_of(w);
    if (kind < 0) return;
    for (int f = 0; p->dialect->folds[f]; f++)
        for (int o = 0; o < 4; o++) {
            fill_marks(text, p->dialect->folds[f], fold_ops[o], kind);
            word name = defined(text);
            if (name.n != w.n || memcmp(name.s, w.s, w.n) != 0 || p->fold[f][o][kind]) continue;
            p->fold[f][o][kind] = true;
            take_text(p, text);
            return;
        }
}

static void take_names(program *p, const char *text)
{
    for (const char *s = text; *s;) {
        word w = { s, 0 };
        while (is_name(s[w.n])) w.n++;
        s += w.n ? w.n : 1;
        if (w.n < 4 || w.s[1] != '_') continue;
        if (w.s[0] == 'o') take_op(p, w);
        else if (w.s[0] == 'f') take_fold(p, w);
        else if (w.s[0] == 'm' && !take_row(p, w, p->dialect->more, p->more) &&
                 !take_row(p, w, p->dialect->shim, p->shim))
            take_row(p, w, tni_prelude_text, p->prelude);
    }
}

// What is no function begins the program.
static void put_head(program *p)
{
    for (const char *const *piece = p->dialect->shim; *piece; piece++)
        if (!defined(*piece).n && !(p->no_double && strstr(*piece, "double")))
            tni_out_print(p->out, "%s", *piece);
}

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
        put_head(p);
        take_names(p, text);
        tni_out_print(&out, "%s", text);
    } else {
        out.failed = true;
    }
    tni_free(h, text);
    tni_free(h, p);
    return tni_out_take(&out);
}
