// The rules of attention, which rules.c calls.
#ifndef TNI_GRAD_ATTENTION_RULES_H
#define TNI_GRAD_ATTENTION_RULES_H

#include "grad/grad.h"

void tni_rule_attention(tni_rule_args *r);
void tni_rule_attention_grad(tni_rule_args *r);

#endif
