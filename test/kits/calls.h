// calls.h: every public function as a call over any arguments, so that a test can hand each of them
// what it was not made for.
#ifndef TEST_CALLS_H
#define TEST_CALLS_H

#include "tenon.h"

// What a context has besides tensors, for the functions that take one; all NULL: none.
typedef struct {
    tn_layer *net;   // linear, from 2 to 3
    tn_optim *opt;   // of net
    tn_data  *data;  // images and classes
    tn_file  *file;  // with one tensor, "t"
    tn_dist  *dist;  // of one rank
    tn_onnx  *onnx;  // y = relu(x)

    tn_tensorboard *board;
    tn_report      *report;
} call_things;

// Arguments for any function: it takes those it has a use for.
typedef struct {
    tn_ctx     *cx;
    tn_tensor  *x, *y;
    int64_t     i, j;
    double      d;
    call_things has;
} call_args;

// One public function. Families of one signature stand by their address; the others have a wrapper.
// Results are evaluated by the caller; a wrapper of something else than an op returns NULL.
typedef struct {
    const char *name;
    tn_tensor *(*unary)(tn_tensor *x);
    tn_tensor *(*number)(tn_tensor *x, double v);
    tn_tensor *(*integer)(tn_tensor *x, int64_t v);
    tn_tensor *(*binary)(tn_tensor *x, tn_tensor *y);
    tn_tensor *(*axis)(tn_tensor *x, int axis);
    tn_tensor *(*axes)(tn_tensor *x, int n, const int *axes, bool keep);
    tn_tensor *(*other)(const call_args *k);
    bool takes_two;  // other: x and y must be of one context
    bool quiet;      // NULL is no error: getters, tn_drop, tn_close, ...
} call;

// Row i of the table; NULL past the last.
const call *calls_at(int i);

// Things of a context, which die with it.
call_things calls_things(tn_ctx *cx);

// Calls it; NULL where it failed or gives no tensor.
tn_tensor *calls_do(const call *c, const call_args *k);

#endif
