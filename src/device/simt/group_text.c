// The program of a text written by hand: what the dialect spells, what the texts share, the text.
//
// A shape says where elements lie; `place` counts them in row-major order. Integers are added and
// multiplied without signs, so that they wrap.
#include "device/simt/group_text.h"

#include "kernel/dialect.h"

#include <string.h>

#define T(...) #__VA_ARGS__ "\n"

// clang-format off

// Pieces are kept short: C11 promises no more than 4,095 characters in a literal.
static const char *const common[] = {
    "#define CAT_(a, b) a##b\n"
    "#define CAT(a, b) CAT_(a, b)\n",
    // An element in memory, in computing, and in sums without signs.
    T(typedef unsigned char m_uchar;
      typedef signed char   m_char;
      typedef m_uchar  kept_BOOL; typedef int    type_BOOL; typedef m_uint  sum_BOOL;
      typedef m_uchar  kept_U8;   typedef int    type_U8;   typedef m_uint  sum_U8;
      typedef m_char   kept_I8;   typedef int    type_I8;   typedef m_uint  sum_I8;
      typedef int      kept_I32;  typedef int    type_I32;  typedef m_uint  sum_I32;
      typedef m_long   kept_I64;  typedef m_long type_I64;  typedef m_ulong sum_I64;
      typedef m_ushort kept_F16;  typedef float  type_F16;  typedef float   sum_F16;
      typedef m_ushort kept_BF16; typedef float  type_BF16; typedef float   sum_BF16;
      typedef float    kept_F32;  typedef float  type_F32;  typedef float   sum_F32;),
    T(M_FN int    get_BOOL(m_uchar v)  { return v; }
      M_FN int    get_U8(m_uchar v)    { return v; }
      M_FN int    get_I8(m_char v)     { return v; }
      M_FN int    get_I32(int v)       { return v; }
      M_FN m_long get_I64(m_long v)    { return v; }
      M_FN float  get_F16(m_ushort v)  { return m_half_to_float(v); }
      M_FN float  get_BF16(m_ushort v) { return m_bf16_to_float(v); }
      M_FN float  get_F32(float v)     { return v; }
      M_FN m_uchar  put_BOOL(m_uint v) { return v != 0; }
      M_FN m_uchar  put_U8(m_uint v)   { return (m_uchar)v; }
      M_FN m_char   put_I8(m_uint v)   { return (m_char)v; }
      M_FN int      put_I32(m_uint v)  { return (int)v; }
      M_FN m_long   put_I64(m_ulong v) { return (m_long)v; }
      M_FN m_ushort put_F16(float v)   { return m_float_to_half(v); }
      M_FN m_ushort put_BF16(float v)  { return m_float_to_bf16(v); }
      M_FN float    put_F32(float v)   { return v; }),
    // a b + c, of floats rounded once.
    T(M_FN m_uint  fma_BOOL(m_uint a, m_uint b, m_uint c)   { return a * b + c; }
      M_FN m_uint  fma_U8(m_uint a, m_uint b, m_uint c)     { return a * b + c; }
      M_FN m_uint  fma_I8(m_uint a, m_uint b, m_uint c)     { return a * b + c; }
      M_FN m_uint  fma_I32(m_uint a, m_uint b, m_uint c)    { return a * b + c; }
      M_FN m_ulong fma_I64(m_ulong a, m_ulong b, m_ulong c) { return a * b + c; }
      M_FN float   fma_F16(float a, float b, float c)       { return m_fma_f(a, b, c); }
      M_FN float   fma_BF16(float a, float b, float c)      { return m_fma_f(a, b, c); }
      M_FN float   fma_F32(float a, float b, float c)       { return m_fma_f(a, b, c); }),
    // Long sums of floats are kept in double where there is one.
    "#ifdef FP64\n",
    T(typedef double kept_F64; typedef double type_F64; typedef double sum_F64;
      typedef double wide_F16; typedef double wide_BF16; typedef double wide_F32;
      typedef double wide_F64;
      M_FN double get_F64(double v) { return v; }
      M_FN double put_F64(double v) { return v; }
      M_FN double fma_F64(double a, double b, double c) { return m_fma_d(a, b, c); }),
    "#else\n",
    T(typedef float wide_F16; typedef float wide_BF16; typedef float wide_F32;),
    "#endif\n",
    T(typedef m_ulong wide_BOOL; typedef m_ulong wide_U8; typedef m_ulong wide_I8;
      typedef m_ulong wide_I32; typedef m_ulong wide_I64;
      typedef CAT(kept_, XT) x_kept; typedef CAT(type_, XT) x_type; typedef CAT(sum_, XT) x_sum;
      typedef CAT(kept_, YT) y_kept; typedef CAT(type_, YT) y_type; typedef CAT(sum_, YT) y_sum;
      typedef CAT(wide_, YT) y_wide;),
    "#define x_get(v) CAT(get_, XT)(v)\n"
    "#define x_fma(a, b, c) CAT(fma_, XT)(a, b, c)\n"
    "#define y_get(v) CAT(get_, YT)(v)\n"
    "#define y_put(v) CAT(put_, YT)((y_sum)(v))\n",
    T(typedef struct { m_long at; int rank; int unused; m_long size[8]; m_long stride[8]; } shape;
      M_FN m_long least(m_long a, m_long b) { return a < b ? a : b; }
      M_FN m_long place(const shape *s, m_long i) {
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

// A text and its dtypes: what the skeleton below is given.
typedef struct {
    const char *const *text;
    tn_dtype           x, y;
} hand;

static const char *const element_name[TNI_DTYPES] = { "BOOL", "U8",   "I8",  "I32", "I64",
                                                      "F16",  "BF16", "F32", "F64" };

// A struct that a CUDA kernel takes is read where it lies, if it is not to be changed.
static void put_spellings(tni_out *o, const tni_dialect *d)
{
    bool cuda = d == &tni_dialect_cuda;
    tni_put(o, "#define KERNEL(n) %s\n",
            cuda ? "extern \"C\" __global__ void __launch_bounds__(n, 1)"
                 : "__kernel __attribute__((reqd_work_group_size(n, 1, 1))) void");
    tni_put(o, "#define GIVEN %s\n", cuda ? "const __grid_constant__" : "const");
    tni_put(o, "#define GLOBAL %s\n#define LOCAL %s\n", d->global, d->shared);
    tni_put(o, "#define LOCAL_PTR %s\n", cuda ? "" : d->shared);
    tni_put(o, "#define BARRIER() %s\n", d->barrier);
    tni_put(o, "#define LOCAL_ID (%s)\n#define GROUP_ID (%s)\n", d->local_id, d->group_id);
    tni_put(o, "#define ITEM ((m_long)GROUP_ID * %s + LOCAL_ID)\n", d->local_size);
}

static void write_hand(tni_out *o, const tni_dialect *d, const tni_emit_item *item, bool no_double)
{
    const hand *h = item->opts;
    put_spellings(o, d);
    tni_put(o, "%s#define XT %s\n#define YT %s\n", no_double ? "" : "#define FP64\n",
            element_name[h->x], element_name[h->y]);
    for (const char *const *p = common; *p; p++) tni_put(o, "%s", *p);
    for (const char *const *p = h->text; *p; p++) tni_put(o, "%s", *p);
}

char *tni_hand_source(tni_heap *h, const tni_dialect *d, const char *const *text, tn_dtype x,
                      tn_dtype y, bool no_double)
{
    hand          what = { text, x, y };
    tni_emit_item item = { .opts = &what };
    return tni_source(h, d, write_hand, 1, &item, no_double);
}
