// Fuzzes the reader of ONNX models, and what runs them: small models of many ops.
#include "fuzz.h"
#include "onnx_writer.h"

#include <string.h>

// A model of nodes in a row, x -> a -> b -> ... -> y, with integers in i, a matrix in w and a node
// that is put in.
static void seed(int opset, const char *const *ops, const onnx_bytes *more)
{
    onnx_bytes g = { .n = 0 },
               w = onnx_tensor("w", 1, 2, (int64_t[]){ 2, 2 }, (float[]){ 1, 2, 3, 4 }),
               i = onnx_tensor("i", 7, 1, (int64_t[]){ 2 }, (int64_t[]){ 1, 0 }), file;
    char in[16] = "x", out[16] = "a";
    onnx_ports(&g, "x", "y");
    onnx_message(&g, 5, &w);
    onnx_message(&g, 5, &i);
    if (more) onnx_message(&g, 1, more);
    for (; *ops; ops++) {
        char both[24];
        strcpy(both, in);
        strcat(both, strcmp(*ops, "Reshape") && strcmp(*ops, "Gather") && strcmp(*ops, "Expand")
                         ? " w"
                         : " i");
        if (!ops[1]) strcpy(out, "y");
        onnx_bytes n = onnx_node(*ops, both, out);
        onnx_message(&g, 1, &n);
        strcpy(in, out);
        out[0]++;
    }
    file = onnx_model(&g, opset);
    fuzz_seed(file.data, file.n);
}

static void seeds(void)
{
    seed(17, (const char *[]){ "MatMul", "Add", "Relu", "Softmax", NULL }, NULL);
    seed(13, (const char *[]){ "Gather", "Transpose", "Concat", NULL }, NULL);
    seed(11, (const char *[]){ "Gemm", "Clip", "Flatten", "Split", NULL }, NULL);
    seed(21, (const char *[]){ "Expand", "Where", "Pow", "ReduceSum", NULL }, NULL);
    onnx_bytes pad = onnx_node("Pad", "x", "p"), branch = onnx_node("If", "w", "p"),
               then = { .n = 0 }, attr = { .n = 0 };
    onnx_ints(&pad, "pads", 4, (int64_t[]){ 1, 0, 0, 1 }, 1);
    seed(10, (const char *[]){ "Reshape", "Identity", NULL }, &pad);
    onnx_bytes inside = onnx_node("Identity", "x", "q");
    onnx_bytes result = onnx_port("q");
    onnx_message(&then, 1, &inside);
    onnx_message(&then, 12, &result);
    onnx_text(&attr, 1, "then_branch");
    onnx_message(&attr, 6, &then);
    onnx_int(&attr, 20, 5);
    onnx_message(&branch, 5, &attr);
    seed(16, (const char *[]){ "Shape", "Cast", NULL }, &branch);
}

static uint64_t run(const unsigned char *data, size_t n)
{
    tn_ctx     *cx   = fuzz_open();
    const char *path = fuzz_file("a.onnx", data, n);
    tn_onnx    *m    = tn_onnx_open(cx, path);
    uint64_t    look = 0;
    FUZZ_CHECK((m == NULL) == (tn_error(cx) != TN_OK));
    if (m) {
        tn_tensor *x = tn_ones(cx, TN_F32, TN_SHAPE(2, 2)), *y = NULL;
        look        = fuzz_join((uint64_t)tn_onnx_inputs(m), (uint64_t)tn_onnx_outputs(m));
        tn_status s = tn_onnx_run(m, 1, NULL, &x, 1, NULL, &y);
        FUZZ_CHECK((s == TN_OK) == (y != NULL));
        // What a few bytes may ask for is not what they hold: only small results are computed.
        if (y && tn_count(y) < 10000) tn_item(tn_max_all(tn_cast(y, TN_F32)));
    }
    return fuzz_join(look, fuzz_close(cx, n + (1 << 22)));
}

static const char *const tokens[] = {
    "Relu", "Conv",  "Gather", "Loop",   "If", "Scan", "Reshape", "axes", "body", "else_branch",
    "Tile", "Slice", "Resize", "OneHot", "x",  "y",    "w",       "i",    NULL,
};

const fuzz_target fuzz_onnx = { .name = "onnx", .seeds = seeds, .run = run, .tokens = tokens };
