// What kernels of a session share: state, by which failures are host_failure, and scratch memory.
#include "device/cuda/gpu.h"

#include <string.h>

// A state as simt.h says: failure, index, count of groups, where to tell the host, and the word that
// says that something failed, which comes after all of them.
enum { HOST_ADDRESS = 3, FAILED = 4, WORDS = 8, STATE = WORDS * 8, STATES = TNI_TICKETS + 1 };

// What a failing CHECK writes on the host: the address of its state last, so that the rest is host_address
// when that is seen.
enum { HOST_STATE, HOST_INS, HOST_INDEX, HOST_WORDS };

tni_cuptr tni_cuda_state(const tni_cuda *c, int ticket)
{
    return c->state + (tni_cuptr)ticket * STATE;
}

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

// Before anything else may fail again the state of the failure is made as new.
bool tni_cuda_failed(void *session, int *ticket, int64_t fail[2])
{
    tni_cuda *c = session;
    if (!c->host_failure[HOST_STATE]) return false;
    tni_cuptr state = (tni_cuptr)c->host_failure[HOST_STATE];
    *ticket         = (int)((state - c->state) / STATE);
    fail[0]         = c->host_failure[HOST_INS];
    fail[1]         = c->host_failure[HOST_INDEX];
    tni_cuda_enter(c);
    c->gpu->cu->stream_wait(c->stream);  // others may be failing too
    c->host_failure[HOST_STATE] = 0;
    c->gpu->cu->set8(tni_cuda_state(c, STATES), 0, 8, c->stream);
    for (int i = 0; i < STATES; i++)
        c->gpu->cu->set8(c->state + (tni_cuptr)i * STATE, 0, 2 * 8, c->stream);
    return true;
}

tn_status tni_cuda_take_failure(tni_cuda *c, int64_t fail[2], tni_text *why)
{
    int ticket, error = c->gpu->cu->stream_wait(c->stream);
    tni_replay_never_graph(c);
    fail[0] = fail[1] = 0;
    if (!error) tni_cuda_failed(c, &ticket, fail);
    return tni_cuda_status(c, error, "waiting for the GPU", why);
}
