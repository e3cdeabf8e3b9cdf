// networks.c: networks of the library with the options that they are measured with.
#include "networks.h"

#include <tenon/models.h>

tn_layer *bench_resnet18(tn_ctx *cx)
{
    return tn_resnet(cx, (tn_resnet_opts){ .depth = 18 });
}

tn_layer *bench_resnet50(tn_ctx *cx)
{
    return tn_resnet(cx, (tn_resnet_opts){ .depth = 50 });
}

tn_layer *bench_mobilenet(tn_ctx *cx)
{
    return tn_mobilenet_v2(cx, (tn_mobilenet_v2_opts){ 0 });
}

tn_layer *bench_unet(tn_ctx *cx)
{
    return tn_unet(cx, (tn_unet_opts){ 0 });
}
