// Formulas: one expression of a user's op as text, read into a list of ops of the table.
//
// The language is that of the expression column of ops.def, with the precedence of C: names,
// numbers, + - * / % unary - ! ~, comparisons, && || & | ^, ?:, parentheses and the functions of
// the math prelude that are a row's expression, with or without m_.
#ifndef TNI_OPS_FORMULA_H
#define TNI_OPS_FORMULA_H

#include "ops/ops.h"

enum {
    TNI_FORMULA_INPUTS = 8,  // x0 .. x7, of which the first three are also a, b and c
    TNI_FORMULA_G      = 8,  // the gradient of the result
    TNI_FORMULA_Y      = 9,  // the result
    TNI_FORMULA_NAMES  = 10,
    TNI_FORMULA_DEPTH  = 64  // of nesting
};

// Besides the ops of the table.
enum { TNI_FORMULA_NAME = -1, TNI_FORMULA_NUMBER = -2 };

// One step: an op over earlier steps, a name (x[0] says which) or a number.
typedef struct {
    int     op;
    int32_t x[3];
    double  number;
} tni_formula_step;

// A text that was read: its steps, each after those it uses; the last is the value. No steps: the
// text was empty. Ops of numbers alone are computed while reading, in double. Whoever reads it
// into the formula frees the steps.
typedef struct {
    tni_formula_step *step;
    size_t            count, cap;
    uint32_t          names;  // bit i: it uses name i
} tni_formula;

// Where a formula is read from, and how errors call it. Several stand in one text, with semicolons.
typedef struct {
    tn_ctx     *cx;
    const char *op, *field;  // "leaky", "expr"
    const char *text;
    size_t      at;    // how far it was read
    int         nin;   // inputs that have a name
    bool        grad;  // whether g and y have
} tni_formula_text;

// Reads the next formula of a text; at is then at its semicolon or at the end. False, reported with
// the column, if it is none.
bool tni_formula_read(tni_formula_text *t, tni_formula *f);

// Records the formula over values of its names, and gives its value. NULL, reported, on failure.
tn_tensor *tni_formula_record(const tni_formula *f, tn_ctx *cx, const char *op,
                              tn_tensor *const *name);

#endif
