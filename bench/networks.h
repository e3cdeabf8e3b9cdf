// Convolution networks that several files measure, as functions of a context.
#ifndef BENCH_NETWORKS_H
#define BENCH_NETWORKS_H

#include <tenon.h>

// From (B, 3, H, W) to (B, 1000).
tn_layer *bench_resnet18(tn_ctx *cx);
tn_layer *bench_resnet50(tn_ctx *cx);
tn_layer *bench_mobilenet(tn_ctx *cx);
// A U-Net of 5 levels with 32 to 512 channels, from (B, 3, H, W) to (B, 2, H, W); H and W are
// multiples of 16.
tn_layer *bench_unet(tn_ctx *cx);

#endif
