// Expressions: the text of a user's op, parsed into a list of ops of the table.
//
// The language is that of the expression column of ops.def, with the precedence of C: names,
// numbers, + - * / % unary - ! ~, comparisons, && || & | ^, ?:, parentheses and the functions of
// the math prelude that are a row's expression, with or without m_.
#ifndef TNI_OPS_EXPR_H
#define TNI_OPS_EXPR_H

#include "ops/ops.h"

enum {
    TNI_EXPR_INPUTS = 8,  // x0 .. x7, of which the first three are also a, b and c
    TNI_EXPR_G      = 8,  // the gradient of the result
    TNI_EXPR_Y      = 9,  // the result
    TNI_EXPR_NAMES  = 10,
    TNI_EXPR_DEPTH  = 64  // of nesting
};

// Steps that are no op of the table.
enum { TNI_EXPR_NAME = -1, TNI_EXPR_NUMBER = -2 };

// One step: an op over earlier steps, a name (x[0] says which) or a number.
typedef struct {
    int     op;
    int32_t x[3];
    double  number;
} tni_expr_step;

// A parsed expression: its steps, each after those it uses; the last is the value. No steps: the
// text was empty. Ops of numbers alone are computed while parsing, in double. The caller of
// tni_expr_parse frees the steps.
typedef struct {
    tni_expr_step *step;
    size_t         count, cap;
    uint32_t       names;  // bit i: it uses name i
} tni_expr;

// The text to parse and how errors call it. Several expressions stand in one text, separated by
// semicolons.
typedef struct {
    tn_ctx     *cx;
    const char *op, *field;  // "leaky", "expr"
    const char *text;
    size_t      at;    // how far it was read
    int         nin;   // number of inputs
    bool        grad;  // whether g and y may be used
} tni_expr_source;

// Parses the next expression of a text; `at` is then at its semicolon or at the end. False,
// reported with the column, on a syntax error.
bool tni_expr_parse(tni_expr_source *t, tni_expr *f);

// Records the expression over tensors for its names and returns its value. NULL, reported, on
// failure.
tn_tensor *tni_expr_record(const tni_expr *f, tn_ctx *cx, const char *op, tn_tensor *const *name);

#endif
