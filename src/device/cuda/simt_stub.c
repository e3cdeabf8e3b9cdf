// Stands in for emit_simt.c until it is there.
#include "kernel/simt.h"

__attribute__((weak)) void tni_emit_simt(tni_out *o, const tni_dialect *d, const tni_emit_item *item,
                                         bool no_double)
{
    (void)o, (void)d, (void)item, (void)no_double;
}
