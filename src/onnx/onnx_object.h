// The public object: a model with its weights.
#ifndef TNI_ONNX_OBJECT_H
#define TNI_ONNX_OBJECT_H

#include "onnx/onnx_run.h"

// How many shapes of inputs are kept with what runs them (onnx_again.c).
enum { TNI_ONNX_AGAIN = 4 };
typedef struct tni_onnx_again tni_onnx_again;

// What tn_onnx_run is asked for.
typedef struct {
    int                nx, ny;
    const char *const *x_names, *const *y_names;
    tn_tensor *const *x;
} tni_onnx_ask;

struct tn_onnx {
    tni_owned       owned;  // first
    tni_onnx_model  model;
    tni_onnx_run    run;
    tn_onnx_port   *in, *out;
    int             ins, outs;
    char           *text;     // names and symbols of ports
    tn_layer       *layer;    // tn_onnx_layer, whose self the model is; NULL: none
    bool            trained;  // weights are those of a layer, which may be gone
    tn_onnx_node   *node;     // tn_onnx_nodes; NULL until it is asked for
    char           *node_text;
    const char    **node_list;
    tni_onnx_again *again[TNI_ONNX_AGAIN];
    uint64_t        runs;
};

// Lets go of all that is kept from run to run: weights, and what was computed of them.
void tni_onnx_forget(tn_onnx *m);

// Runs of the same shapes, which are recorded a few times and then repeated. Finds, or notes, one
// that is like what is asked for; NULL if it has to be recorded, whatever came before.
tni_onnx_again *tni_onnx_find_run(tn_onnx *m, const tni_onnx_ask *k);
// Repeats it for other inputs. False if it has to be recorded, or failed, which is reported.
bool tni_onnx_run_again(const tn_ctx *cx, tni_onnx_again *a, tn_tensor *const *x, tn_tensor **y);
// Around a recording that may be repeated later: *x become the inputs to record; if it is *kept it
// has been computed, and tni_onnx_results gives it instead of y. False, reported, on failure.
bool tni_onnx_begin_keeping(tn_ctx *cx, tni_onnx_again *a, tn_tensor *const **x);
bool tni_onnx_end_keeping(tn_ctx *cx, tni_onnx_again *a, tn_tensor **y, bool *kept);
bool tni_onnx_results(const tni_onnx_again *a, tn_tensor **y);
void tni_onnx_forget_runs(tn_onnx *m);

#endif
