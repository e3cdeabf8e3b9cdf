// What PyTorch calls the layer of an activation. A program hands in the public functions, whose
// addresses only a file that is not inside the library can name.
#undef TN_INSIDE
#define TN_PLAIN
#include "nn/builtin.h"

const char *tni_activation_name(tn_tensor *(*f)(tn_tensor *x))
{
    const struct {
        tn_tensor *(*f)(tn_tensor *x);
        const char *name;
    } known[] = { { tn_relu, "ReLU" },         { tn_gelu, "GELU" },
                  { tn_gelu_tanh, "GELU" },    { tn_silu, "SiLU" },
                  { tn_sigmoid, "Sigmoid" },   { tn_tanh, "Tanh" },
                  { tn_softplus, "Softplus" }, { tn_hardswish, "Hardswish" },
                  { tn_selu, "SELU" },         { tn_mish, "Mish" },
                  { tn_softsign, "Softsign" }, { tn_logsigmoid, "LogSigmoid" } };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].f == f) return known[i].name;
    return "Activation";
}
