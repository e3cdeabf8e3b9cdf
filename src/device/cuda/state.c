// What kernels of a session share: state, by which failures are told, and scratch memory.
#include "device/cuda/gpu.h"

#include <string.h>

// A state as simt.h says: failure, index, count of groups, where to tell the host, and the word that
// says that something failed, which comes after all of them.
enum { TELL = 3, FAILED = 4, WORDS = 8, STATE = WORDS * 8, STATES = TNI_TICKETS + 1 };

// What a failing CHECK writes on the host: the address of its state last, so that the rest is there
// when that is seen.
enum { TOLD_STATE, TOLD_INS, TOLD_INDEX, TOLD_WORDS };

tni_cuptr tni_cuda_state(const tni_cuda *c, int ticket)
{
    return c->state + (tni_cuptr)ticket * STATE;
}

int tni_state_open(tni_cuda *c)
{
    const tni_driver *cu   = c->gpu->cu;
    void             *host = NULL;
    tni_cuptr         there;
    int64_t           fresh[STATES + 1][WORDS] = { { 0 } };
    int error = cu->host_alloc(&host, TOLD_WORDS * 8, TNI_CU_HOST_PORTABLE | TNI_CU_HOST_MAPPED);
    if (error) return error;
    memset(host, 0, TOLD_WORDS * 8);
    c->told = host;
    error   = cu->host_address(&there, host, 0);
    if (!error) error = cu->mem_alloc(&c->state, sizeof fresh);
    for (int i = 0; i < STATES; i++) {
        fresh[i][TELL]   = (int64_t)there;
        fresh[i][FAILED] = (int64_t)tni_cuda_state(c, STATES);
    }
    if (!error) error = cu->copy_in(c->state, fresh, sizeof fresh, c->stream);
    return error ? error : cu->stream_wait(c->stream);
}

void tni_state_close(tni_cuda *c)
{
    const tni_driver *cu = c->gpu->cu;
    if (c->state) cu->mem_free(c->state);
    if (c->told) cu->host_free((void *)(uintptr_t)c->told);
    for (int i = 0; i < c->scratches; i++) cu->mem_free(c->scratch[i]);
}

// Before anything else may fail again the state of the failure is made as new.
bool tni_cuda_failed(void *session, int *ticket, int64_t fail[2])
{
    tni_cuda *c = session;
    if (!c->told[TOLD_STATE]) return false;
    tni_cuptr state = (tni_cuptr)c->told[TOLD_STATE];
    *ticket         = (int)((state - c->state) / STATE);
    fail[0]         = c->told[TOLD_INS];
    fail[1]         = c->told[TOLD_INDEX];
    tni_cuda_enter(c);
    c->gpu->cu->stream_wait(c->stream);  // others may be failing too
    c->told[TOLD_STATE] = 0;
    c->gpu->cu->set8(tni_cuda_state(c, STATES), 0, 8, c->stream);
    for (int i = 0; i < STATES; i++)
        c->gpu->cu->set8(c->state + (tni_cuptr)i * STATE, 0, 2 * 8, c->stream);
    return true;
}

tn_status tni_cuda_take_failure(tni_cuda *c, int64_t fail[2], tni_text *why)
{
    int ticket, error = c->gpu->cu->stream_wait(c->stream);
    tni_replay_never(c);
    fail[0] = fail[1] = 0;
    if (!error) tni_cuda_failed(c, &ticket, fail);
    return tni_cuda_status(c, error, "waiting for the GPU", why);
}

// What was given before stays: kernels that are under way, and graphs, have it.
tni_cuptr tni_cuda_scratch(tni_cuda *c, size_t bytes)
{
    size_t more = 2 * c->scratch_bytes;
    if (!bytes) return 0;
    if (bytes <= c->scratch_bytes) return c->scratch[c->scratches - 1];
    if (c->scratches == TNI_SCRATCHES) return 0;
    if (more < bytes) more = bytes;
    if (more < 1 << 20) more = 1 << 20;
    if (c->gpu->cu->mem_alloc(&c->scratch[c->scratches], more) != TNI_CU_OK) return 0;
    c->scratch_bytes = more;
    return c->scratch[c->scratches++];
}
