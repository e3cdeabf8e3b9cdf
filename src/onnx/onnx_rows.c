// The table of operators, from onnx_ops.def, which is read twice: for the declarations of their
// functions, and for the rows.
//
//   OP(Conv, conv)            { "Conv", tni_onnx_conv, ... }            a function of its own
//   ONE(Abs, tn_abs)          { "Abs", tni_onnx_one, tn_abs, ... }      a map of Tenon's, by one function for all of them
//   THEIRS(QGemm, q_gemm)     { "QGemm", tni_onnx_q_gemm, ..., 'm' }    of another domain, where names may be the same
#include "onnx/onnx_rows.h"
#include "onnx/onnx_ops.h"

#include <stdlib.h>
#include <string.h>

static const tni_onnx_op rows[] = {
#define OP(name, f)      { #name, tni_onnx_##f, NULL, NULL, false, 0 },
#define FLOW(name, f)    { #name, tni_onnx_##f, NULL, NULL, true, 0 },
#define ONE(name, f)     { #name, tni_onnx_one, f, NULL, false, 0 },
#define TWO(name, f)     { #name, tni_onnx_two, NULL, f, false, 0 },
#define FOLD(name, f)    { #name, tni_onnx_variadic, NULL, f, false, 0 },
#define THEIRS(name, f)  { #name, tni_onnx_##f, NULL, NULL, false, 'm' },
#define LEARNED(name, f) { #name, tni_onnx_##f, NULL, NULL, false, 'l' },
#include "onnx/onnx_ops.def"
};
enum { ROWS = sizeof rows / sizeof *rows };

// A row that tni_onnx_row gave.
const tni_onnx_op *tni_onnx_op_at(int row)
{
    return &rows[row];
}

// The names are compared one after the other, once for each node of a file.
int16_t tni_onnx_row(tni_wire op, tni_wire domain)
{
    static const struct {
        const char *name;
        char        is;
    } domains[] = { { "", 0 },
                    { "ai.onnx", 0 },
                    { "ai.onnx.preview", 0 },
                    { "ai.onnx.preview.training", 0 },
                    { "com.microsoft", 'm' },
                    { "ai.onnx.ml", 'l' } };
    for (int d = 0; d < (int)(sizeof domains / sizeof *domains); d++)
        for (int i = 0; i < ROWS && tni_wire_is(domain, domains[d].name); i++)
            if (rows[i].domain == domains[d].is && tni_wire_is(op, rows[i].name)) return (int16_t)i;
    return -1;
}
