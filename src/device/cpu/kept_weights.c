// Weights in the form that a call multiplies by, kept from run to run; and the entries of all
// calls.
#include "device/cpu/kept_weights.h"

#include "base/heap.h"
#include "device/cpu/cpu_ops.h"

// Times that a value is made in scratch: it may be one that changes with every run, or the plan one
// that is soon replaced, as that of a model whose runs become an executable. Memory would be taken
// in vain.
enum { IN_SCRATCH = 2 };

// From the next time on it is in memory of its own, where every later run finds it.
void *tni_kept_weights_place(const tni_call *call, size_t bytes, void *scratch, bool *make)
{
    tni_kept_weights *kept  = call->entry;
    uint64_t          value = call->value[1];
    bool same   = kept && value && kept->value == value && kept->data == call->in[1].data;
    int  before = same ? kept->times : 0;
    if (before >= IN_SCRATCH && !kept->made) kept->made = tni_alloc_block(kept->heap, bytes);
    bool keeps = before >= IN_SCRATCH && kept->made;
    *make      = !keeps || !kept->valid;
    if (kept) {
        kept->value = value;
        kept->data  = call->in[1].data;
        kept->valid = keeps;
        kept->times = before < IN_SCRATCH ? before + 1 : before;
    }
    return keeps ? kept->made : scratch;
}

static void forget_weights(void *entry)
{
    tni_kept_weights *kept = entry;
    tni_heap         *heap = kept->heap;
    tni_free_block(heap, kept->made);
    tni_free(heap, kept);
}

void *tni_cpu_prepare_call(const tni_call *call)
{
    bool bytes = call->op == TNI_matmul_i32 || call->op == TNI_conv_i32;
    if (call->op == TNI_fft) return tni_cpu_prepare_fft(call);
    if (!bytes && !tni_cpu_conv_keeps(call)) return NULL;
    tni_kept_weights *kept = tni_alloc(call->session, sizeof *kept);
    if (kept) *kept = (tni_kept_weights){ .forget = forget_weights, .heap = call->session };
    return kept;
}

void tni_cpu_forget_call(void *entry)
{
    (*(void (**)(void *))entry)(entry);
}
