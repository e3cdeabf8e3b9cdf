// Convolution networks that the library does not have and that several files measure.
#ifndef BENCH_NETWORKS_H
#define BENCH_NETWORKS_H

#include <tenon.h>

// Makes torchvision's MobileNetV2 for 1000 classes, from (B, 3, H, W) to (B, 1000).
tn_layer *bench_mobilenet(tn_ctx *cx);
// Makes a U-Net of 5 levels with 32 to 512 channels, from (B, 3, H, W) to (B, 2, H, W); H and W are multiples of 16.
tn_layer *bench_unet(tn_ctx *cx);

#endif
