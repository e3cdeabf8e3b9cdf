#include "onnx/onnx_rows.h"
#include "onnx/onnx_ops.h"

#include <stdlib.h>
#include <string.h>

static const tni_onnx_op rows[] = {
#define OP(name, f)   { #name, tni_onnx_##f, NULL, NULL, false, false },
#define FLOW(name, f) { #name, tni_onnx_##f, NULL, NULL, true, false },
#define ONE(name, f)  { #name, tni_onnx_one, f, NULL, false, false },
#define TWO(name, f)  { #name, tni_onnx_two, NULL, f, false, false },
#define FOLD(name, f) { #name, tni_onnx_variadic, NULL, f, false, false },
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
    bool plain  = !tni_wire_size(domain) || tni_wire_is(domain, "ai.onnx");
    bool theirs = tni_wire_is(domain, "com.microsoft");
    for (int i = 0; i < ROWS && (plain || theirs); i++)
        if (rows[i].microsoft == theirs && tni_wire_is(op, rows[i].name)) return (int16_t)i;
    return -1;
}
