// Which file runs which op.
#include "device/simt/groups.h"

size_t tni_groups_scratch(const tni_groups *via, const tni_call *c)
{
    switch (c->op) {
    case TNI_attention:
    case TNI_attention_grad: return tni_groups_attention_scratch(c);
    case TNI_cumsum:
    case TNI_cumprod: return tni_groups_scan_scratch(c);
    case TNI_argmax:
    case TNI_argmin: return tni_groups_arg_reduce_scratch(c);
    case TNI_conv:
    case TNI_conv_dgrad:
    case TNI_conv_wgrad: return tni_groups_conv_scratch(c);
    case TNI_argsort: return tni_groups_argsort_scratch(c);
    case TNI_scatter:
    case TNI_scatter_add: return tni_groups_scatter_scratch(c);
    default: return tni_is_one_op(c->op) ? tni_one_op_scratch(via, c) : 0;
    }
}

static tn_status refuse(const tni_call *c)
{
    *c->why = (tni_text){ 0 };
    tni_text_add(c->why, "%s: not an op that a device runs", tni_op_table[c->op].name);
    return TN_EDEVICE;
}

tn_status tni_groups_run(const tni_groups *via, const tni_call *c)
{
    switch (c->op) {
    case TNI_matmul: return tni_groups_matmul(via, c);
    case TNI_conv:
    case TNI_conv_dgrad:
    case TNI_conv_wgrad: return tni_groups_conv(via, c);
    case TNI_attention:
    case TNI_attention_grad: return tni_groups_attention(via, c);
    case TNI_cumsum:
    case TNI_cumprod: return tni_groups_scan(via, c);
    case TNI_argmax:
    case TNI_argmin: return tni_groups_arg_reduce(via, c);
    case TNI_fold: return tni_groups_fold(via, c);
    case TNI_argsort: return tni_groups_argsort(via, c);
    case TNI_custom: return tni_groups_custom(via, c);
    case TNI_scatter:
    case TNI_scatter_add: return tni_groups_scatter(via, c);
    default: return tni_is_one_op(c->op) ? tni_one_op(via, c) : refuse(c);
    }
}
