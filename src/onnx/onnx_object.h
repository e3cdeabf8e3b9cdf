// The public object: a model with its weights.
#ifndef TNI_ONNX_OBJECT_H
#define TNI_ONNX_OBJECT_H

#include "onnx/onnx_run.h"

struct tn_onnx {
    tni_owned      owned;  // first
    tni_onnx_model model;
    tni_onnx_run   run;
    tn_onnx_port  *in, *out;
    int            ins, outs;
    char          *text;   // names and symbols of ports
    tn_layer      *layer;  // tn_onnx_layer, whose self the model is; NULL: none
    tn_onnx_node  *node;   // tn_onnx_nodes; NULL until it is asked for
    char          *node_text;
    const char   **node_list;
};

// Lets go of all that is kept from run to run: weights, and what was computed of them.
void tni_onnx_forget(tn_onnx *m);

#endif
