// peer.h: random programs that Tenon and PyTorch both run.
//
// A program is a list of steps: an op of the table, the values it takes (by step and output), and
// its attributes. It says all there is to say, so that it can be run by Tenon, printed as C, and
// printed as Python, which is also what PyTorch is handed. Data is drawn from a seed when it is
// needed, so that a shape can be made smaller without anything else to change.
//
// A step becomes part of a program by being admitted: it runs on ref, what it gave is measured, and
// it is refused if two right implementations could differ by more than rounding. The generator
// keeps what is admitted, and the shrinker has everything admitted again.
#ifndef TEST_PEER_H
#define TEST_PEER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <tenon.h>

#if defined(__GNUC__)
#define PEER_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define PEER_PRINTF(text, first)
#endif

enum {
    PEER_STEPS = 40,
    PEER_INS   = 9,     // values that a step takes
    PEER_OUTS  = 4,     // values that a step gives
    PEER_MOST  = 6000,  // elements of a value
    PEER_TEXT  = 512
};

typedef struct peer_row  peer_row;
typedef struct peer_form peer_form;

// Output `out` of step `step`; step -1 is nothing, for an operand that is left away.
typedef struct {
    int step, out;
} peer_ref;

// How the elements of an input are drawn.
typedef enum {
    LAW_GRID,      // multiples of 1/4 within 2: every dtype holds them, and sums of
                   // products of them
    LAW_DISTINCT,  // multiples of 1/4 (of 1 for integers), each once
    LAW_SMOOTH,    // within 2
    LAW_POSITIVE,  // 0.5 to 2
    LAW_SHARE,     // probabilities: 0.05 to 0.95
    LAW_INDEX,     // integers from 0 to bound - 1
    LAW_PLACES,    // the same, none twice along an axis
    LAW_ODD        // LAW_GRID with NaN, infinities and -0
} peer_law;

// A step. What the attributes mean is the form's business; those of data are list (the shape),
// dtype, law, seed, bound and leaf.
typedef struct {
    const peer_row *row;
    int             nin, outs;
    peer_ref        in[PEER_INS];
    int             axis, n;  // n: how many of list count
    int64_t         list[TN_MAX_RANK], k[12];
    double          num[2];
    bool            flag, leaf, no_grad;  // no_grad: recorded with gradients off
    int             ny;                   // of gradients: how many of in are y; then come their gy
    tn_dtype        dtype;
    peer_law        law;
    uint64_t        seed;
    int64_t         bound;
    bool            wanted[PEER_OUTS];  // read in the end, and compared
} peer_step;

typedef struct {
    uint64_t  seed;
    bool      odd;       // has NaN and infinities; gradients are not taken then
    bool      one_step;  // evaluated as one step, else by reads
    int       count;
    peer_step step[PEER_STEPS];
} peer_program;

// What is known of a value. Exact: every element is a multiple of 2^-quantum and was computed
// without rounding, whatever the order, so that every device has the same; only then may a step
// depend on which side of a limit an element lies.
typedef struct {
    tn_tensor *t;
    tn_dtype   dtype;
    int        rank;
    int64_t    size[TN_MAX_RANK], count;
    double     lo, hi, least;  // of the finite elements; least: of their magnitudes
    double     smallest;       // the least magnitude that is not 0
    bool       odd;            // has elements that are not finite
    bool       exact, distinct;
    int        quantum;
    int        store;  // the number of the value whose memory it shares
    bool       overlaps;
} peer_value;

// A program on its way on one device. frozen: of a store, no more writes.
typedef struct {
    tn_ctx    *cx;
    peer_value value[PEER_STEPS][PEER_OUTS];
    bool       frozen[PEER_STEPS * PEER_OUTS];
    char       why[PEER_TEXT];  // the last refusal or error
    bool       error;           // Tenon itself refused what PyTorch should take
} peer_state;

// The generator: a program that grows.
typedef struct {
    peer_program *p;
    peer_state   *s;
    uint64_t      random;
} peer_draw;

// What an op needs and keeps, beyond its form.
enum {
    NEEDS_FLOAT    = 1 << 0,
    NEEDS_INT      = 1 << 1,  // bool too
    NO_BOOL        = 1 << 2,
    NEEDS_POSITIVE = 1 << 3,  // at least 0.05
    NEEDS_NONZERO  = 1 << 4,  // magnitude at least 0.1
    NEEDS_SMALL    = 1 << 5,  // magnitude at most 5
    NEEDS_EXACT    = 1 << 6,  // has limits: floats must be exact
    KEEPS_EXACT    = 1 << 7,  // no rounding and no new bits
    KEEPS_DISTINCT = 1 << 8,
    SUMS           = 1 << 9,   // exact while the bits suffice
    MULTIPLIES     = 1 << 10,  // the same, of products
    IS_VIEW        = 1 << 11,  // shares the store of its first input
    FREEZES        = 1 << 12,  // no writes to the stores of its inputs any more
    SAVES_NOTHING  = 1 << 13,  // PyTorch's gradient does not need the result
    WRITES         = 1 << 14,  // changes its first input
    NEEDS_DISTINCT = 1 << 15,
    NEEDS_SHARE    = 1 << 16,  // probabilities, well inside
    BETWEEN        = 1 << 17   // a number that lies between the multiples of 1/4
};

typedef tn_tensor *peer_fn1(tn_tensor *x);
typedef tn_tensor *peer_fn2(tn_tensor *a, tn_tensor *b);
typedef tn_tensor *peer_fn_axis(tn_tensor *x, int axis);
typedef tn_tensor *peer_fn_axes(tn_tensor *x, int n, const int *axes, bool keep);
typedef tn_tensor *peer_fn_number(tn_tensor *x, double v);
typedef tn_tensor *peer_fn_whole(tn_tensor *x, int64_t n);
typedef tn_pair    peer_fn_sort(tn_tensor *x, int axis, bool descending);
typedef tn_tensor *peer_fn_pool1d(tn_tensor *x, int64_t kernel, tn_pool_opts o);
typedef tn_tensor *peer_fn_pool2d(tn_tensor *x, int64_t kh, int64_t kw, tn_pool_opts o);
typedef tn_tensor *peer_fn_sizes(tn_tensor *x, int64_t h, int64_t w);
typedef tn_tensor *peer_fn_loss(tn_tensor *x, tn_tensor *target, tn_loss_opts o);
typedef tn_tensor *peer_fn_class(tn_tensor *x, tn_tensor *target, tn_class_opts o);

typedef union {
    peer_fn1       *one;
    peer_fn2       *two;
    peer_fn_axis   *axis;
    peer_fn_number *number;
    peer_fn_whole  *whole;
    peer_fn_sort   *sort;
    peer_fn_pool1d *pool1d;
    peer_fn_pool2d *pool2d;
    peer_fn_sizes  *sizes;
    peer_fn_loss   *loss;
    peer_fn_class  *by_class;
} peer_fn;

// How ops of one kind are proposed, called and written. draw fills inputs and attributes and may
// append data to the program; false where nothing fits. call records the op in y and returns how
// many values it gave, or -1. The texts have $0, $1 for inputs, $* for all, #a axis, #l the list,
// #k as many of k, #S a shape, #A axes, #x #y numbers, #b flag, #d dtype, #0 .. #9 of k; ## is the
// row's name.
struct peer_form {
    bool (*draw)(peer_draw *d, peer_step *s);
    int (*call)(const peer_step *s, tn_tensor *const *x, tn_tensor **y);
    const char *c, *python;
    enum { GIVES_ONE, GIVES_PAIR, GIVES_ARRAY, GIVES_NONE } gives;
};

// An op. The texts are the form's where they are NULL.
struct peer_row {
    const char      *name;
    const peer_form *form;
    peer_fn          fn;
    unsigned         needs;
    int              weight;
    const char      *python, *c;
    peer_fn_axis    *keep;  // reductions: the other spellings
    peer_fn1        *all;
    peer_fn_axes    *axes;
};

// ---- random numbers and data: peer_data.c

uint64_t peer_next(uint64_t *state);
int64_t  peer_below(uint64_t *state, int64_t n);
bool     peer_chance(uint64_t *state, int of_100);
bool     peer_is_float(tn_dtype dt);
int      peer_digits(tn_dtype dt);  // bits of the mantissa; of integers, of the range
double   peer_round(double x, tn_dtype dt);
int64_t  peer_count(int rank, const int64_t *size);
// The elements of a step of data, as doubles that its dtype holds.
void       peer_elements(const peer_step *s, double *x);
tn_tensor *peer_tensor(const peer_step *s, tn_ctx *cx);

// ---- admission: peer_state.c

// Whether the next step of the program may be: runs it in the state, measures it, and fills what it
// gave. Why not is in s->why; s->error says that Tenon refused it.
bool peer_admit(peer_state *s, const peer_program *p, int step);
bool peer_open_state(peer_state *s, tn_ctx *cx);
// Runs a step alone: y gets what it gave; how many, or -1.
int peer_call_step(const peer_step *s, tn_ctx *cx, tn_tensor *const *x, tn_tensor **y);
// Has a whole program admitted anew, in a scope of its own on ref.
bool peer_admit_all(tn_ctx *ref, const peer_program *p, char *why);
PEER_PRINTF(2, 3) bool peer_refuse(peer_state *s, const char *fmt, ...);

// ---- the table: peer_rows.c, and its forms

extern const peer_row peer_rows[];
extern const peer_row peer_data_row, peer_grad_row;
const peer_row       *peer_find_row(const char *name);

extern const peer_form form_data, form_unary, form_binary, form_number, form_reduce, form_arg,
    form_scan, form_cast, form_where, form_masked_fill, form_clamp;
extern const peer_form form_slice, form_select, form_squeeze, form_unsqueeze, form_transpose,
    form_permute, form_expand, form_flip, form_diagonal, form_window, form_reshape, form_flatten,
    form_split, form_chunk, form_concat, form_stack, form_repeat, form_roll, form_pad, form_band;
extern const peer_form form_gather, form_take, form_index_select, form_scatter, form_scatter_add,
    form_one_hot, form_embedding, form_sort, form_argsort, form_topk, form_write, form_write_number,
    form_read, form_grad;
extern const peer_form form_channels_last, form_matmul, form_linear, form_conv1d, form_conv2d,
    form_conv3d, form_conv_transpose1d, form_conv_transpose2d, form_pool1d, form_pool2d,
    form_adaptive, form_layer_norm, form_rms_norm, form_group_norm, form_batch_norm, form_attention,
    form_class_loss, form_loss;

// ---- for forms: peer_draw.c

// No program from now on has these ops, named with spaces between.
void peer_leave_out(const char *names);
bool peer_generate(peer_program *p, uint64_t seed, tn_ctx *ref, char *why);
// A random number below n; a value of the program; a new input, admitted.
int64_t           peer_pick(peer_draw *d, int64_t n);
bool              peer_maybe(peer_draw *d, int of_100);
const peer_value *peer_value_of(const peer_draw *d, peer_ref r);
typedef bool      peer_fits(const peer_value *v, const void *user);
bool              peer_pick_value(peer_draw *d, peer_fits *fits, const void *user, peer_ref *r);
// A random value, or now and then new data, that a row can take.
bool     peer_pick_input(peer_draw *d, peer_step *s, int i);
peer_ref peer_new_data(peer_draw *d, tn_dtype dt, int rank, const int64_t *size, peer_law law,
                       int64_t bound);
peer_ref peer_new_like(peer_draw *d, tn_dtype dt, int rank, const int64_t *size);
peer_ref peer_new_places(peer_draw *d, int rank, const int64_t *size, int axis, int64_t bound);
int      peer_new_shape(peer_draw *d, int64_t *size);
tn_dtype peer_new_dtype(peer_draw *d);
bool     peer_same_value(peer_ref a, peer_ref b);

// ---- text: peer_text.c

void peer_print_c(const peer_program *p, FILE *f);
// The program as Python, its data marked as free to move where no limit depends on it.
void peer_print_python(const peer_program *p, FILE *f);

// ---- running and comparing: peer_run.c

// A value of Tenon's, read: integers are held by i, floats by x.
typedef struct {
    tn_dtype dtype;
    int      rank;
    int64_t  size[TN_MAX_RANK], count;
    double  *x;
    int64_t *i;
} peer_array;

typedef struct {
    int        count;
    peer_array out[PEER_STEPS * PEER_OUTS];
    char       error[PEER_TEXT];
} peer_result;

bool peer_run(const peer_program *p, tn_ctx *cx, peer_result *r);
void peer_free(peer_result *r);

// What PyTorch gave: own in the program's dtypes, best in double; for each
// value the largest error that PyTorch itself makes in the program's dtypes;
// and for each step the largest magnitude of its values and what a unit in the
// last place of 1 is in its dtype.
typedef struct {
    peer_result own, best;
    double      slack[PEER_STEPS * PEER_OUTS], large[PEER_STEPS], unit[PEER_STEPS];
} peer_truth;

// Whether Tenon's result is as near to the truth as can be asked. Why not, in text[PEER_TEXT].
bool peer_agree(const peer_program *p, const peer_result *have, const peer_truth *want, char *text);

// ---- PyTorch: peer_torch.c

// A Python process that runs programs in PyTorch: that of TN_PYTHON, else python3, whichever has
// it.
typedef struct {
    int  pid, to, from;  // to: -1 when there is none
    char version[64];
} peer_torch;
bool peer_torch_start(peer_torch *t);
void peer_torch_stop(peer_torch *t);
// Has PyTorch run a program, `more` times more with other data nearby, to know its errors better.
typedef enum { PEER_TOLD, PEER_REFUSED, PEER_GONE } peer_answer;
peer_answer peer_torch_ask(peer_torch *t, const peer_program *p, int more, peer_truth *truth,
                           char *why);
void        peer_truth_free(peer_truth *t);

// ---- shrinking: peer_shrink.c

// Whether a program fails, in the way that is looked for.
typedef bool peer_fails(const peer_program *p, void *user);
// Takes out what nothing asks for.
void peer_prune(peer_program *p);
// Makes a failing program as small as can be.
void peer_shrink(peer_program *p, tn_ctx *ref, peer_fails *fails, void *user);

#endif
