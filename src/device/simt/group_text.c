// The program of a hand-written text: the dialect's spellings, the types of its two dtypes, what
// all texts share, and the text itself. For a text over bf16 on CUDA it has, after the prelude of
// math functions, lines such as
//
//     #define KERNEL(n) extern "C" __global__ void __launch_bounds__(n, 1)
//     #define BARRIER() __syncthreads()
//     #define X_IN f
//     typedef m_ushort x_kept; typedef float x_type; typedef float x_sum; typedef double x_wide;
//     #define x_get(v) (m_bf16_to_float(v))
//     #define x_put(v) ((x_kept)m_float_to_bf16((x_sum)(v)))
//     #define x_fma(a, b, c) m_fma_f(a, b, c)
#include "device/simt/group_text.h"

#include "kernel/dialect.h"

#include <string.h>

#define T(...) #__VA_ARGS__ "\n"

// clang-format off

// `shape` is tni_operand_shape: where elements are; element_offset finds the i-th in row-major
// order. Pieces of text are kept short, since C11 promises no more than 4,095 characters in a
// literal.
static const char *const common[] = {
    "#define CAT_(a, b) a##b\n"
    "#define CAT(a, b) CAT_(a, b)\n",
    T(typedef struct { m_long at; int rank; int unused; m_long size[8]; m_long stride[8]; } shape;
      M_FN m_long min_long(m_long a, m_long b) { return a < b ? a : b; }
      M_FN m_long element_offset(const shape *s, m_long i) {
          m_long p = s->at;
          for (int k = s->rank - 1; k > 0; k--) {
              p += i % s->size[k] * s->stride[k];
              i /= s->size[k];
          }
          return s->rank > 0 ? p + i * s->stride[0] : p;
      }),
    NULL,
};
// clang-format on

// ---- the program -------------------------------------------------------------------------------

// What write_group_text is given: a text and its dtypes.
typedef struct {
    const char *const *text;
    tn_dtype           x, y;
    bool               no_double;
} group_source;

// Prints what texts call an operand's dtype, for operand x:
//
//   X_IN             the letter of the type it is computed in, to choose functions by
//   X_F16            of f16 alone, for instructions that tell it from bf16
//   x_kept, x_type   an element in memory, and in computing
//   x_sum, x_wide    sums, short and long ones: of integers without signs, so that they wrap; long
//                    ones of floats in double if the device has it
//   x_get, x_put     from memory, and a sum into it
//   x_fma            a b + c of sums, of floats rounded once
static void put_element_types(tni_out *o, char x, tn_dtype dt, bool no_double)
{
    tni_cast_text            get = tni_text_from_storage(dt), put = tni_text_to_storage(dt, dt);
    const tni_compute_facts *f    = &tni_compute_table[tni_dtype_table[dt].number];
    const char              *wide = tni_compute_table[tni_dtype_table[f->total].number].wraps;
    if (tni_is_float(dt) && no_double) wide = "float";
    tni_out_print(o, "#define %c_IN %c\n", x - 'a' + 'A', f->letter);
    if (dt == TN_F16) tni_out_print(o, "#define %c_F16\n", x - 'a' + 'A');
    tni_out_print(
        o, "typedef %s %c_kept; typedef %s %c_type; typedef %s %c_sum; typedef %s %c_wide;\n",
        tni_storage_type(dt), x, f->type, x, f->wraps, x, wide, x);
    tni_out_print(o, "#define %c_get(v) (%sv%s)\n", x, get.before, get.after);
    tni_out_print(o, "#define %c_put(v) ((%c_kept)%s(%c_sum)(v)%s)\n", x, x, put.before, x,
                  put.after);
    if (tni_is_float(dt))
        tni_out_print(o, "#define %c_fma(a, b, c) m_fma_%c(a, b, c)\n", x, f->letter);
    else
        tni_out_print(o, "#define %c_fma(a, b, c) ((%c_sum)(a) * (%c_sum)(b) + (%c_sum)(c))\n", x,
                      x, x, x);
}

// Prints the macros by which a text is OpenCL C or CUDA C; group_text.h explains them.
static void put_text_spellings(tni_out *o, const tni_dialect *d)
{
    tni_out_print(o, "#define KERNEL(n) %s\n#define GIVEN %s\n", d->sized_kernel,
                  d->struct_qualifier);
    tni_out_print(o, "#define GLOBAL %s\n#define LOCAL %s\n", d->global, d->shared);
    tni_out_print(o, "#define LOCAL_PTR %s\n", d->local);
    tni_out_print(o, "#define BARRIER() %s\n#define BEGIN() %s\n", d->barrier, d->begin);
    tni_out_print(o, "#define LOCAL_ID (%s)\n#define GROUP_ID (%s)\n", d->local_id, d->group_id);
    tni_out_print(o, "#define ITEM ((m_long)GROUP_ID * %s + LOCAL_ID)\n", d->local_size);
}

// Called by tni_emit_program behind the prelude.
static void write_group_text(tni_out *o, const tni_dialect *d, const tni_emit_item *item)
{
    const group_source *h = item->opts;
    put_text_spellings(o, d);
    tni_out_print(o, "%s", h->no_double ? "" : "#define FP64\n");
    put_element_types(o, 'x', h->x, h->no_double);
    put_element_types(o, 'y', h->y, h->no_double);
    for (const char *const *p = common; *p; p++) tni_out_print(o, "%s", *p);
    for (const char *const *p = h->text; *p; p++) tni_out_print(o, "%s", *p);
}

char *tni_group_text_source(tni_heap *h, const tni_dialect *d, const char *const *text, tn_dtype x,
                            tn_dtype y, bool no_double)
{
    group_source  what = { text, x, y, no_double };
    tni_emit_item item = { .opts = &what };
    return tni_emit_program(h, d, write_group_text, 1, &item, no_double);
}
