// oracle.h: an eager interpreter of tensor programs, plain enough to be right by reading.
//
// Every element is a scalar variable on a tape; a store is an array of cells, each naming the
// variable that lives in it now; a handle is a list of cells. Views copy lists of cells, writes
// rebind cells, ops copy every value they need into new variables. Gradients come from the tape,
// one scalar at a time, as more variables, so that gradients of gradients need nothing extra.
#ifndef TEST_ORACLE_H
#define TEST_ORACLE_H

#include <stdbool.h>
#include <stdint.h>

enum { ORC_CELLS = 48, ORC_RANK = 5, ORC_PARENTS = 4 };

typedef enum {
    ORC_CONST,
    ORC_LEAF,  // a is the leaf, b the cell
    ORC_COPY,
    ORC_ADD,
    ORC_SUB,
    ORC_MUL,
    ORC_DIV,
    ORC_SCALE,  // by k
    ORC_SHIFT,  // by k
    ORC_SIN,
    ORC_COS,
    ORC_TANH,
    ORC_EXP
} orc_op;

// One scalar: its value and how it came about. Operands stand before it on the tape. Without needs
// it is a constant to every gradient.
typedef struct {
    double v, k;
    int    a, b;
    orc_op op;
    bool   needs;
} orc_var;

typedef struct {
    int     rank, n;  // n elements
    int64_t size[ORC_RANK];
} orc_shape;

// The elements of a tensor at one moment, row-major: variables.
typedef struct {
    orc_shape shape;
    int       var[ORC_CELLS];
} orc_value;

// The mutable cells. past is a node of the coarse graph below, -1 for none.
typedef struct {
    int  n, past;
    int  cell[ORC_CELLS];  // variables
    bool single;           // f32: what is written is rounded
    bool stored;           // its present value is known to be kept by the library
    bool assigned;         // written since it was last kept
    bool consumed;         // an op has read its present value
    bool lost;             // a step boundary need not have kept it
    int  writes;
} orc_store;

// What a program holds: cells of a store in some shape. Through a leaf's handle, and views of it,
// each cell reads as a variable of that leaf; through a detached one as a constant.
typedef struct {
    orc_shape shape;
    int       store, leaf;  // leaf -1: none
    bool      detached;
    int       cell[ORC_CELLS];
} orc_handle;

// A leaf's gradient, by cell of its store.
typedef struct {
    double g[ORC_CELLS];
    double scale;  // the largest number that went into it
    bool   has;
} orc_leaf;

// The coarse graph, one node a recorded op, only to know when history may have been spent: which
// ops a backward pass can reach.
typedef struct {
    int  parent[ORC_PARENTS];
    bool walked, spent;
} orc_past;

typedef struct {
    orc_var   *var;
    int        vars, vars_cap;
    orc_store *store;
    int        stores, stores_cap;
    orc_leaf  *leaf;
    int        leaves, leaves_cap;
    orc_past  *past;
    int        pasts, pasts_cap;
    bool       grad;  // the gradient mode
} oracle;

void orc_open(oracle *o);
void orc_close(oracle *o);

// ---- shapes and values

int orc_count(int rank, const int64_t *size);
// The number of rows, columns, ... of element i.
void   orc_index(const orc_shape *s, int i, int64_t *at);
int    orc_place(const orc_shape *s, const int64_t *at);
double orc_get(const oracle *o, const orc_value *x, int i);
double orc_largest(const oracle *o, const orc_value *x);
bool   orc_needs(const oracle *o, const orc_value *x);

int       orc_constant(oracle *o, double v);
orc_value orc_constants(oracle *o, const orc_shape *s, const double *v);
orc_value orc_map1(oracle *o, orc_op op, const orc_value *x, double k);
bool      orc_broadcast(const orc_shape *a, const orc_shape *b, orc_shape *y);
// x with its elements repeated to a shape that it broadcasts to.
orc_value orc_stretch(const orc_value *x, const orc_shape *y);
orc_value orc_map2(oracle *o, orc_op op, const orc_value *a, const orc_value *b);
// The sum over one axis, or over all (axis -1), which is left with size 1 or dropped.
orc_value orc_sum(oracle *o, const orc_value *x, int axis, bool keep);
orc_value orc_cumsum(oracle *o, const orc_value *x, int axis);
orc_value orc_matmul(oracle *o, const orc_value *a, const orc_value *b);  // of rank 2
orc_value orc_concat(oracle *o, const orc_value *a, const orc_value *b, int axis);

// ---- views: which elements of x, in which shape; v.var holds positions in x

orc_value orc_all(const orc_shape *x);
orc_value orc_slice(const orc_shape *x, int axis, int64_t start, int64_t stop, int64_t step);
orc_value orc_permute(const orc_shape *x, const int *axes);
orc_value orc_diagonal(const orc_shape *x, int64_t offset, int axis1, int axis2);
orc_value orc_window(const orc_shape *x, int axis, int64_t n, int64_t step);
// The same elements in another shape.
orc_value orc_shaped(const orc_value *x, int rank, const int64_t *size);

// ---- handles

// A handle on a new store of these elements, variables that nothing else has.
orc_handle orc_make(oracle *o, const orc_value *v, bool single, int past);
orc_handle orc_view(const oracle *o, const orc_handle *x, const orc_value *which);
orc_value  orc_read(oracle *o, const orc_handle *x);
bool       orc_injective(const orc_handle *x);
void       orc_write(oracle *o, const orc_handle *x, const orc_value *v, int past);
// The node of the coarse graph that a use of x hangs on, -1 for none.
int orc_past_of(const oracle *o, const orc_handle *x);
int orc_past_new(oracle *o, int a, int b, int c);

// ---- gradients

// The gradients of the sum of y * gy, by variable, 0 for none; to be freed. They are variables
// themselves, with history while the gradient mode is on.
int *orc_reverse(oracle *o, const orc_value *y, const orc_value *gy, double *scale);
void orc_backward(oracle *o, const orc_value *y, const orc_value *gy);
// The gradient of y with respect to what x holds now; for a leaf's own handle, held at any time.
orc_value orc_grad(oracle *o, const orc_value *y, const orc_value *gy, const orc_handle *x);
// Whether a node that is spent (or only walked, if any) can be reached from one; marks all walked.
bool orc_reaches_spent(const oracle *o, int past, bool walked);
void orc_walk(oracle *o, int past);
// An evaluation that spends what was walked.
void orc_spend(oracle *o);

#endif
