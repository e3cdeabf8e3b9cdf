// registers.h: random programs of calls on a few registers, which are tensors of one shape. A call
// gives a register a new handle, writes through one, or evaluates; registers share stores where a
// call made a view.
#ifndef TEST_REGISTERS_H
#define TEST_REGISTERS_H

#include "tenon.h"

// One call: from registers a and b into d; k is below the number of columns.
typedef struct {
    int op, d, a, b, k;
} step;

// What the programs of one test run on: (rows, cols) registers, and the calls of its own beside
// those that all numbers take.
typedef struct {
    int     registers;
    int64_t rows, cols;
    int     own_calls;
    // Call i, below own_calls, on two registers; a new handle.
    tn_tensor *(*own)(int i, tn_tensor *a, tn_tensor *b, int k);
    // What writes store of a value, so that it stays in bounds; NULL: the value itself.
    tn_tensor *(*tame)(tn_tensor *x);
} registers;

// Draws n steps, by the generator of table.h.
void registers_draw(const registers *m, int n, step *code);
// Runs n steps on r[m->registers]; eager evaluates every register after every step. false: a call
// failed.
bool registers_run(const registers *m, int n, const step *code, tn_tensor **r, bool eager);

#endif
