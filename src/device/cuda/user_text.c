// The program around a user's text.
//
// Before the text comes what it may use: `tn::in` and the like, and the functions of the math
// prelude that it names. Behind it come assertions about its kernel, so that the compiler itself
// checks the parameters: their number, the dtype of each array, the size of the attributes.
#include "device/cuda/user_text.h"

#include "kernel/dialect.h"
#include "kernel/emit.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define T(...) #__VA_ARGS__ "\n"

_Static_assert(sizeof(tni_user_array) == 88, "as the text below has it");
_Static_assert(TNI_USER_ARRAYS * sizeof(tni_user_array) <= TNI_USER_BYTES, "they fit");

// ---- the program -------------------------------------------------------------------------------

// clang-format off

// What a user's text may use. tn::array<T> is laid out as tni_user_array. Dtypes that memory holds
// in 16 or 8 bits are structs that convert to and from float; the conversion from float is explicit
// except in assignments, so that `c ? x[i] : 0.0f` has one meaning.
static const char prologue[] =
    T(namespace tn {
          template <class T> struct array {
              typedef T type;
              T        *data;
              long long count, size[8];
              int       rank, unused;
              __device__ operator T *() const { return data; }
          };
      })
    // Dtypes that memory holds rounded: tn::f16 and the like.
#define USER_SELF(...)
#define USER_TRUTH(...)
#define USER_WRAP(...)
#define USER_ROUND(name, kernel, stem)                                                           \
    T(namespace tn {                                                                             \
          struct name {                                                                          \
              kernel bits;                                                                       \
              name() = default;                                                                  \
              __device__ explicit name(float x) : bits(m_float_to_##stem(x)) {}                  \
              __device__ name &operator=(float x) { bits = m_float_to_##stem(x); return *this; } \
              __device__ operator float() const { return m_##stem##_to_float(bits); }            \
          };                                                                                     \
      })
#define DTYPE(id, name, class, held, in, host, kernel, stem, ...) USER_##held(name, kernel, stem)
#include "tensor/dtype.def"
    T(namespace tn {
          __device__ inline long long index() {
              return (long long)blockIdx.x * blockDim.x + threadIdx.x;
          }
      });

// Templates by which the assertions behind the text look at the kernel's parameters.
static const char checks[] =
    T(namespace tn {
          template <class A, class B> constexpr bool same = false;
          template <class A> constexpr bool same<A, A> = true;
          template <class A> constexpr bool points = false;
          template <class A> constexpr bool points<A *> = true;
          template <class F> constexpr int parameters = -1;
          template <class... P> constexpr int parameters<void (*)(P...)> = sizeof...(P);
          template <int I, class F> struct parameter;
          template <class P, class... Q> struct parameter<0, void (*)(P, Q...)> { typedef P type; };
          template <int I, class P, class... Q> struct parameter<I, void (*)(P, Q...)>
              : parameter<I - 1, void (*)(Q...)> {};
      });

// clang-format on

// Prints the types of inputs or outputs by number, so that a text says tn::in<0>; a number that the
// op does not have is refused with a sentence. Prints, for one input of f32:
//
//     namespace tn {
//     template <int I> struct in_type { typedef int type; static_assert(I < 0, "tn::in: the op has only 1"); };
//     template <> struct in_type<0> { typedef float type; };
//     template <int I> using in = array<const typename in_type<I>::type>;
//     }
static void put_array_types(tni_out *o, const char *direction, const char *is,
                            const tn_dtype *dtype, int n)
{
    tni_out_print(
        o,
        "namespace tn {\ntemplate <int I> struct %s_type { typedef int type; static_assert(I < 0, "
        "\"tn::%s: the op has only %d\"); };\n",
        direction, direction, n);
    for (int i = 0; i < n; i++)
        tni_out_print(o, "template <> struct %s_type<%d> { typedef %s type; };\n", direction, i,
                      tni_dtype_table[dtype[i]].user);
    tni_out_print(o, "template <int I> using %s = array<%s typename %s_type<I>::type>;\n}\n",
                  direction, is, direction);
}

// Prints an assertion for each parameter of the kernel, whose message is what the user reads.
// Prints, for one input:
//
//     static_assert(tn::same<tn::parameter<0, tn_kernel>::type, tn::in<0>>, "parameter 0 has to be
//         tn::in<0>, here tn::array<const float>");
static void put_checks(tni_out *o, const tni_user_text *u)
{
    int n = u->nin + u->nout;
    tni_out_print(o, "using tn_kernel = decltype(&%s);\n%s", u->kernel, checks);
    tni_out_print(
        o,
        "static_assert(tn::parameters<tn_kernel> == %d, \"kernel %s has to take %d parameters: "
        "%d inputs, %d outputs%s\");\n",
        n + (u->attr > 0), u->kernel, n + (u->attr > 0), u->nin, u->nout,
        u->attr ? " and the attributes" : "");
    for (int i = 0; i < n; i++) {
        bool        in = i < u->nin;
        const char *a = in ? "in" : "out", *type = tni_dtype_table[u->dtype[i]].user;
        int         k = in ? i : i - u->nin;
        tni_out_print(o,
                      "static_assert(tn::same<tn::parameter<%d, tn_kernel>::type, tn::%s<%d>>, "
                      "\"parameter %d has to be tn::%s<%d>, here tn::array<%s%s>\");\n",
                      i, a, k, i, a, k, in ? "const " : "", type);
    }
    if (!u->attr) return;
    tni_out_print(
        o,
        "static_assert(sizeof(tn::parameter<%d, tn_kernel>::type) == %zu && "
        "!tn::points<tn::parameter<%d, tn_kernel>::type>, \"parameter %d, the attributes, has "
        "to be a value of %zu bytes\");\n",
        n, u->attr, n, n, u->attr);
}

// Prints prologue, user's text and checks. #line gives the user's text its own name and lines from
// 1, and ours the name "tenon", by which report_user_error tells them apart: line 1 of ours behind
// the text is the declaration that fails if there is no such kernel.
static void write_program(tni_out *o, const tni_dialect *d, const tni_emit_item *item)
{
    const tni_user_text *u = item->opts;
    (void)d;
    tni_out_print(o, "#line 1000 \"tenon\"\n%s", prologue);
    put_array_types(o, "in", "const", u->dtype, u->nin);
    put_array_types(o, "out", "", u->dtype + u->nin, u->nout);
    tni_out_print(o, "#line 1 \"%s.cu\"\n%s\n#line 1 \"tenon\"\n", u->kernel, u->text);
    put_checks(o, u);
}

// ---- what is compiled --------------------------------------------------------------------------

// Returns whether a string can be the name of a function.
static bool is_identifier(const char *s)
{
    if (tni_is_digit(*s)) return false;
    for (const char *c = s; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '_') return false;
    return *s != 0;
}

// A kernel is named like its op unless the op says otherwise.
static const char *kernel_name(const tn_op_def *op)
{
    return op->kernel ? op->kernel : op->name;
}

static int output_count(const tn_op_def *op)
{
    return op->nout > 0 ? op->nout : 1;
}

// Checked for each call, before anything is compiled, so that the sentence names the op.
bool tni_user_fits(const tn_op_def *op, size_t attr, tni_text *why)
{
    int  nout = output_count(op);
    bool fits = op->nin <= TNI_USER_ARRAYS - nout &&
                attr <= TNI_USER_BYTES - (size_t)(op->nin + nout) * sizeof(tni_user_array);
    if (!is_identifier(kernel_name(op)))
        tni_text_add(why, "%s: cuda: \"%s\" cannot be the name of a kernel; give .kernel", op->name,
                     kernel_name(op));
    else if (!fits)
        tni_text_add(why,
                     "%s: cuda: a kernel takes %d arrays and %d bytes at most, %d of them an array",
                     op->name, TNI_USER_ARRAYS, TNI_USER_BYTES, (int)sizeof(tni_user_array));
    else return true;
    return false;
}

tni_user_text tni_user_text_of(const tn_op_def *op, const tn_array *in, const tn_array *out,
                               size_t attr)
{
    tni_user_text u = { .op     = op->name,
                        .kernel = kernel_name(op),
                        .text   = op->cuda,
                        .nin    = op->nin,
                        .nout   = output_count(op),
                        .attr   = attr };
    for (int i = 0; i < u.nin; i++) u.dtype[i] = in[i].dtype;
    for (int i = 0; i < u.nout; i++) u.dtype[u.nin + i] = out[i].dtype;
    return u;
}

// ---- errors ------------------------------------------------------------------------------------

// Returns the first line of a log that has a word, its first line if none does; *end is the line's
// end.
static const char *line_with(const char *log, const char *word, const char **end)
{
    const char *at = strstr(log, word);
    if (!at) at = log;
    *end = at + strcspn(at, "\n");
    while (at > log && at[-1] != '\n') at--;
    return at;
}

static void report_no_kernel(const tni_user_text *u, tni_text *why)
{
    tni_text_add(why, "%s: cuda: the text has no kernel extern \"C\" __global__ void %s(...)",
                 u->op, u->kernel);
}

// Turns the first error of a log, "swish.cu(3): error: ..." or "tenon(1): error: static assertion
// failed with "..."", into a sentence: with the line if it is in the user's text, with our own
// words if it is an assertion of ours. Any other error in our part means that the user's text ended
// too early.
static void report_user_error(const tni_user_text *u, const char *log, tni_text *why)
{
    static const char said[] = "static assertion failed with \"";
    const char       *end, *at = line_with(log, "error", &end);
    const char       *text = strstr(at, "error: ");
    if (!text || text > end) {
        tni_text_add(why, "%s: cuda: %.*s", u->op, (int)(end - at), at);
        return;
    }
    bool        ours  = !strncmp(at, "tenon(", 6);
    const char *place = ours ? at + 5 : strstr(at, ".cu(");
    int         line  = place && place < text ? atoi(place + (ours ? 1 : 4)) : 0;
    if (ours && line == 1) {
        report_no_kernel(u, why);
        return;
    }
    tni_text_add(why, "%s: cuda: ", u->op);
    text += strlen("error: ");
    bool asserted = !strncmp(text, said, sizeof said - 1);
    if (ours && asserted) text += sizeof said - 1, end -= end[-1] == '"';
    else if (ours) tni_text_add(why, "the text is not complete: ");
    else if (line) tni_text_add(why, "line %d: ", line);
    tni_text_add(why, "%.*s", (int)(end - text), text);
}

// Returns whether machine code has a kernel of this unmangled name: its section is ".text.NAME". A
// kernel without extern "C" has a mangled one.
static bool has_kernel(const tni_cubin *c, const char *name)
{
    static const char text[] = ".text.";
    size_t            m = sizeof text - 1, n = strlen(name) + 1;
    for (size_t i = 0; i + m + n <= c->bytes; i++)
        if (!memcmp(c->image + i, text, m) && !memcmp(c->image + i + m, name, n)) return true;
    return false;
}

// A log means that the text is wrong, which is the user's error; without one, the compiler or
// memory failed.
tn_status tni_user_cubin(const tni_user_text *u, const char *chip, tni_cubin *c, bool *found,
                         tni_text *why)
{
    tni_heap      heap = tni_heap_default();
    tni_emit_item item = { .opts = u };
    tni_text      said = { "" };
    *c                 = (tni_cubin){ 0 };
    char *source       = tni_emit_program(&heap, &tni_dialect_cuda, write_program, 1, &item, false);
    if (!source) {
        tni_text_add(why, "%s: cuda: out of memory", u->op);
        return TN_EMEM;
    }
    tn_status s = tni_cubin_get(c, source, chip, false, found, &said);
    tni_free(&heap, source);
    if (s == TN_OK && has_kernel(c, u->kernel)) return TN_OK;
    if (s == TN_OK) report_no_kernel(u, why);
    else if (c->log && *c->log) report_user_error(u, c->log, why);
    else tni_text_add(why, "%s: cuda: %s", u->op, said.s);
    return s == TN_OK || (c->log && *c->log) ? TN_EUSER : s;
}

// ---- launches ----------------------------------------------------------------------------------

// A block of 256 threads fits on a multiprocessor however many registers its threads use.
enum { THREADS = 256 };

static int64_t element_count(const tn_array *a)
{
    int64_t n = 1;
    for (int i = 0; i < a->rank; i++) n *= a->size[i];
    return n;
}

tn_launch_dims tni_user_dims(const tn_array *out, int nout)
{
    int64_t most = 0;
    for (int i = 0; i < nout; i++)
        most = element_count(&out[i]) > most ? element_count(&out[i]) : most;
    return (tn_launch_dims){ { (most + THREADS - 1) / THREADS, 1, 1 }, { THREADS, 1, 1 }, 0 };
}

// Returns whether three sizes are between 1 and their limits.
static bool dims_within(const int64_t d[3], int64_t x, int64_t y, int64_t z)
{
    return d[0] >= 1 && d[1] >= 1 && d[2] >= 1 && d[0] <= x && d[1] <= y && d[2] <= z;
}

// The limits are those of every chip since 2012, except threads and shared memory, which are the
// kernel's.
bool tni_user_dims_ok(const char *op, const tn_launch_dims *d, int threads, int shared,
                      tni_text *why)
{
    const int64_t *g = d->grid, *b = d->block;
    if (!dims_within(g, INT32_MAX, 65535, 65535))
        tni_text_add(why, "%s: launch: grid %s: from 1 to 2147483647, 65535 and 65535 blocks", op,
                     tni_shape_text(3, g).s);
    else if (!dims_within(b, 1024, 1024, 64))
        tni_text_add(why, "%s: launch: block %s: from 1 to 1024, 1024 and 64 threads", op,
                     tni_shape_text(3, b).s);
    else if (b[0] * b[1] * b[2] > threads)
        tni_text_add(why, "%s: launch: block %s has %lld threads, and the kernel takes %d", op,
                     tni_shape_text(3, b).s, (long long)(b[0] * b[1] * b[2]), threads);
    else if (d->shared < 0 || d->shared > shared)
        tni_text_add(why, "%s: launch: shared is %lld, and there are %d bytes", op,
                     (long long)d->shared, shared);
    else return true;
    return false;
}
