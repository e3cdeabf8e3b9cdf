// table.h: what the tests that walk the op table share. A case is one graph, recorded alike in a
// context of the device under test and in one of the reference device, over the same elements.
#ifndef TEST_TABLE_H
#define TEST_TABLE_H

#include "host.h"
#include "tenon.h"
#include "tensor/dtype.h"

enum { INPUTS = 4 };

// The dtypes that are computed with, in the order of dtype.def: all, and the floats among them.
enum {
    DTYPES = 0
#define IS_MATH  1
#define IS_STORE 0
#define DTYPE(id, name, class, held, in, host, kernel, stem, digits, low, past, high, user, \
              safetensors, npy, use)                                                        \
    +IS_##use
#include "tensor/dtype.def"
    ,
    FLOATS = 0
#define DTYPE(id, name, class, held, in, host, kernel, stem, digits, low, past, high, user, \
              safetensors, npy, use)                                                        \
    +(IS_##use && TNI_CLASS_##class == TNI_CLASS_FLOAT)
#include "tensor/dtype.def"
};

extern const tn_dtype all_dtypes[DTYPES], all_floats[FLOATS];

// How the elements of an input lie in its store.
typedef enum {
    PLAIN,       // row-major
    TRANSPOSED,  // the last two axes swapped
    STEPPED,     // every other element of the last axis, the inner ones of the first
    FLIPPED,     // all axes backwards
    BROADCAST,   // the first axis repeated
    WINDOWED,    // windows that overlap
    EMPTY,       // the first axis of size 0
    ZERO_D,      // one element, no axis
    LAYOUTS
} layout;

extern const char *const layout_names[LAYOUTS];

// Which random values an input has.
typedef enum {
    WILD,      // with zeros of both signs, units, large, tiny and denormal numbers, inf and NaN;
               // integers of the whole range
    TAME,      // within 4 of 0; integers within 20
    ODD,       // as TAME, but floats with some inf and NaN
    POSITIVE,  // 0.3 to 2
    UNIT,      // 0.1 to 0.9
    APART,     // 0.1 to 2 on both sides of 0, no two closer than 0.01: away from kinks and ties
    ZEROS,     // as APART, but every third element is 0
    SHIFTS     // integers from -2 to 70
} mood;

// An input: its logical shape, and the elements of its store as the host has them.
typedef struct {
    tn_dtype dtype;
    layout   lay;
    int      rank;
    int64_t  size[TN_MAX_RANK];
    int      base_rank;
    int64_t  base[TN_MAX_RANK];
    void    *data;
} input;

// Draws a random word; an integer below n. The sequence starts anew at table_seed.
void     table_seed(uint32_t seed);
uint32_t draw(void);
int64_t  draw_below(int64_t n);

// Makes an input of random elements. EMPTY and ZERO_D change the shape. Free it with input_free.
input input_make(tn_dtype dt, layout lay, int rank, const int64_t *size, mood m);
void  input_free(input *in);
// The store of an input, and the input as a view of it.
tn_tensor *input_base(const input *in, tn_ctx *cx);
tn_tensor *input_view(const input *in, tn_tensor *base);
tn_tensor *input_put(const input *in, tn_ctx *cx);

// ---- comparing ---------------------------------------------------------------------------------

// What agreement means for floats; integers and bools are always compared exactly.
typedef enum {
    EXACT,   // the same number and the same sign of zero
    VALUE,   // the same number
    ULPS,    // of f32 and f64, 4 units in the last place; of 16-bit floats, the reference rounded
             // to the nearest, but for errors of f32 on the way: 0.51
    SUMS,    // within 1e-6 (f64: 1e-15) * sqrt(depth) * bound, 16-bit floats half a unit more
    CLOSELY  // within rtol * |y| + atol of PyTorch's assert_close, by dtype; see close_tolerance
} agreement;

// The distance between neighbours of a dtype at v.
double dtype_ulp(tn_dtype dt, double v);
// What CLOSELY allows at v in a result whose largest element (or input) is `most` and which was
// rounded to its dtype `steps` times on the way. f32: rtol 1.3e-6, atol 1e-5; f64: 1e-12 both; f16
// and bf16: rtol 1e-3 and 1.6e-2, atol 1e-5, and for each rounding before the last one unit of
// `most`.
double close_tolerance(tn_dtype dt, double v, double most, int steps);

typedef struct {
    agreement  how;
    double     depth;   // SUMS: elements that are added up
    tn_tensor *bound;   // SUMS: the sum of what is added, without signs; of y's shape, on ref
    int        steps;   // CLOSELY
    double     reach;   // CLOSELY: the largest input, which values in between may come up to
    bool       narrow;  // SUMS: what is added may have been rounded to y's dtype
    double     coarse;  // SUMS: what is added may be off by that part of it
} tolerance;

// Whether y, of any device, agrees with the reference device's: in shape, dtype and elements. The
// text says what is wrong if not.
bool agrees(tn_tensor *y, tn_tensor *ref, tolerance t, char text[256]);

// A context that records its errors and prints none, and its end.
tn_ctx *open_quiet(const char *device, int threads);

// ---- the rows of ops.def -----------------------------------------------------------------------

// One case of a row: which op, dtype, layout and way to call it, and the inputs drawn for it.
typedef struct {
    int      op;
    tn_dtype dt;
    layout   lay;
    int      variant;
    int      nin;
    input    in[INPUTS];
    double   depth;  // SUMS: elements that are added up
} sample;

// How a row is tested: how its inputs are drawn, how the graph is recorded, in how many ways, and
// what agreement means. A row that needs no case says why instead.
typedef struct {
    tn_tensor *(*build)(const sample *s, tn_ctx *cx, tn_tensor *const *x);
    void (*inputs)(sample *s);
    int       variants;
    agreement how;
    tn_tensor *(*bound)(const sample *s, tn_ctx *cx, tn_tensor *const *x);  // SUMS
    tn_status (*refuses)(const sample *s);  // the error it ends with; NULL: as the dtype rule says
    bool        source;                     // no inputs: layouts are just shapes
    const char *why;
} row;

row row_of(int op);
// The dtype that a row gives for operands of a promoted dtype, written out by hand; false where
// it takes none such.
bool row_dtype(int op, tn_dtype promoted, tn_dtype *result);

// ---- composed ops ------------------------------------------------------------------------------

enum {
    SMOOTH  = 1,  // has a second derivative (or it is zero) at the inputs drawn
    NO_GRAD = 2,  // gives integers, bools or nothing to differentiate
    WIDE    = 4   // takes matrices of any sizes
};

typedef struct {
    int     rank;
    int64_t size[5];
    mood    m;
} form_input;

// A form: one op called in one way, as a function of its float inputs.
typedef struct {
    const char *name;
    tn_tensor *(*f)(tn_tensor *const *x, void *user);
    int        flags;
    int        steps;  // roundings to the dtype on the way to the result
    int        nin;
    form_input in[INPUTS];
} form;

extern const form forms_maps[], forms_folds[], forms_moves[], forms_nets[], forms_losses[],
    forms_arrays[];
extern const form *const form_tables[];  // all of them, NULL behind the last; a name NULL ends each

#endif
