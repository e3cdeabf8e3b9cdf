// Indices out of range: the words by which a failing CHECK of a kernel reaches the host.
//
// Every ticket has a state of eight words in device memory, which its kernels get as an argument
// (kernel/simt.h lays it out). The first CHECK that fails writes its instruction and index there
// and then to host memory, and sets one word that all states point to. Kernels that update lasting
// values read that word and do nothing once it is set, so that a failed step changes no parameter.
// The host looks at its memory between steps, without waiting.
#include "device/cuda/gpu.h"

#include <string.h>

// Words of a state: 0 the failing instruction, 1 the index, 2 a count of finished groups, 3 the
// address of the words on the host, 4 the address of the word that says that something failed,
// which follows the last state. Ticket 0 is for launches that wait, so there is one state more than
// tickets.
enum { HOST_ADDRESS = 3, FAILED = 4, WORDS = 8, STATE = WORDS * 8, STATES = TNI_TICKETS + 1 };

// Words on the host. HOST_STATE, the address of the failing kernel's state, is written last, so
// that the other two are complete once it is not 0.
enum { HOST_STATE, HOST_INS, HOST_INDEX, HOST_WORDS };

// The ticket is thus found again from the address of a state.
tni_cuptr tni_cuda_state(const tni_cuda *c, int ticket)
{
    return c->state + (tni_cuptr)ticket * STATE;
}

// Allocates the words on the host, mapped for the GPU, and all states, which it fills by one copy.
// Waits for that copy, since its source is on the stack.
int tni_index_check_open(tni_cuda *c)
{
    const tni_driver *cu   = c->gpu->cu;
    void             *host = NULL;
    tni_cuptr         host_address;
    int64_t           fresh[STATES + 1][WORDS] = { { 0 } };
    int error = cu->host_alloc(&host, HOST_WORDS * 8, TNI_CU_HOST_PORTABLE | TNI_CU_HOST_MAPPED);
    if (error) return error;
    memset(host, 0, HOST_WORDS * 8);
    c->host_failure = host;
    error           = cu->host_address(&host_address, host, 0);
    if (!error) error = cu->mem_alloc(&c->state, sizeof fresh);
    for (int i = 0; i < STATES; i++) {
        fresh[i][HOST_ADDRESS] = (int64_t)host_address;
        fresh[i][FAILED]       = (int64_t)tni_cuda_state(c, STATES);
    }
    if (!error) error = cu->copy_in(c->state, fresh, sizeof fresh, c->stream);
    return error ? error : cu->stream_wait(c->stream);
}

void tni_index_check_close(tni_cuda *c)
{
    const tni_driver *cu = c->gpu->cu;
    if (c->state) cu->mem_free(c->state);
    if (c->host_failure) cu->host_free((void *)(uintptr_t)c->host_failure);
}

// Clears failure and index of every state and the common word, so that later failures are reported
// again. It waits first: other kernels of the failed step may be reporting too, and their words
// must not arrive after the clearing.
bool tni_cuda_failed(void *session, int *ticket, int64_t fail[2])
{
    tni_cuda *c = session;
    if (!c->host_failure[HOST_STATE] || c->capturing) return false;
    tni_cuptr state = (tni_cuptr)c->host_failure[HOST_STATE];
    *ticket         = (int)((state - c->state) / STATE);
    fail[0]         = c->host_failure[HOST_INS];
    fail[1]         = c->host_failure[HOST_INDEX];
    tni_cuda_enter(c);
    c->gpu->cu->stream_wait(c->stream);
    c->host_failure[HOST_STATE] = 0;
    c->gpu->cu->set8(tni_cuda_state(c, STATES), 0, 8, c->stream);
    for (int i = 0; i < STATES; i++)
        c->gpu->cu->set8(c->state + (tni_cuptr)i * STATE, 0, 2 * 8, c->stream);
    return true;
}

// Used for ticket 0, whose failure nothing reports later. A run that waits cannot be captured, so
// that its plan is never made a graph.
tn_status tni_cuda_take_failure(tni_cuda *c, int64_t fail[2], tni_text *why)
{
    int ticket, error = c->gpu->cu->stream_wait(c->stream);
    tni_replay_never_graph(c);
    fail[0] = fail[1] = 0;
    if (!error) tni_cuda_failed(c, &ticket, fail);
    return tni_cuda_status(c, error, "waiting for the GPU", why);
}
