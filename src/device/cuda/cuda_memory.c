// Memory of the GPU, and the way to and from the host. Nothing waits but downloads.
#include "device/cuda/gpu.h"

#include <string.h>

// ---- memory ------------------------------------------------------------------------------------

static tni_cuptr address(const void *p)
{
    return (tni_cuptr)(uintptr_t)p;
}

void *tni_cuda_alloc(void *seat, size_t bytes)
{
    tni_cuda *c = seat;
    tni_cuptr p = 0;
    tni_cuda_enter(c);
    if (c->gpu->cu->mem_alloc(&p, bytes ? bytes : 1) != TNI_CU_OK) return NULL;
    return (void *)(uintptr_t)p;
}

// The driver waits for work that may still use the memory.
void tni_cuda_free(void *seat, void *p)
{
    tni_cuda *c = seat;
    tni_cuda_enter(c);
    if (p) c->gpu->cu->mem_free(address(p));
}

// ---- to the device -----------------------------------------------------------------------------

static int open_slots(tni_cuda *c)
{
    const tni_driver *cu    = c->gpu->cu;
    tni_staging      *s     = &c->staging;
    void             *host  = NULL;
    int               error = TNI_CU_OK;
    if (s->slot) return error;
    for (int i = 0; !error && i < TNI_SLOTS; i++)
        if (!s->slot_done[i]) error = cu->event_create(&s->slot_done[i], TNI_CU_EVENT_NO_TIMING);
    if (!error) error = cu->host_alloc(&host, (size_t)TNI_SLOTS * TNI_SLOT, TNI_CU_HOST_PORTABLE);
    if (!error) s->slot = host;
    return error;
}

static int upload_part(tni_cuda *c, tni_cuptr dst, const char *host, size_t bytes)
{
    const tni_driver *cu    = c->gpu->cu;
    tni_staging      *s     = &c->staging;
    int               i     = (int)(s->slots % TNI_SLOTS);
    char             *slot  = s->slot + (size_t)i * TNI_SLOT;
    int               error = s->slots >= TNI_SLOTS ? cu->event_wait(s->slot_done[i]) : TNI_CU_OK;
    if (error) return error;
    s->slots++;
    memcpy(slot, host, bytes);
    error = cu->copy_in(dst, slot, bytes, c->stream);
    return error ? error : cu->event_record(s->slot_done[i], c->stream);
}

tn_status tni_cuda_upload(void *seat, void *dst, tn_dtype dt, const void *host, int64_t count,
                          tni_text *why)
{
    tni_cuda   *c    = seat;
    size_t      left = count > 0 ? (size_t)count * tni_dtype_size(dt) : 0;
    tni_cuptr   to   = address(dst);
    const char *from = host;
    if (!left) return TN_OK;
    tni_cuda_enter(c);
    int error = open_slots(c);
    for (size_t n; !error && left; left -= n, to += n, from += n) {
        n     = left < TNI_SLOT ? left : TNI_SLOT;
        error = upload_part(c, to, from, n);
    }
    return tni_cuda_status(c, error, "copying to the GPU", why);
}

// ---- to the host -------------------------------------------------------------------------------

tn_status tni_cuda_download(void *seat, void *host, tn_dtype dt, const void *src, int64_t count,
                            tni_text *why)
{
    tni_cuda         *c     = seat;
    const tni_driver *cu    = c->gpu->cu;
    size_t            bytes = count > 0 ? (size_t)count * tni_dtype_size(dt) : 0;
    if (!bytes) return TN_OK;
    tni_cuda_enter(c);
    int error = cu->copy_out(host, address(src), bytes, c->stream);
    if (!error) error = cu->stream_wait(c->stream);
    return tni_cuda_status(c, error, "copying from the GPU", why);
}

static int open_fetches(tni_cuda *c)
{
    const tni_driver *cu    = c->gpu->cu;
    tni_staging      *s     = &c->staging;
    void             *host  = NULL;
    int               error = TNI_CU_OK;
    if (s->fetched) return error;
    for (int i = 0; !error && i < TNI_FETCHES; i++)
        if (!s->fetch_done[i]) error = cu->event_create(&s->fetch_done[i], TNI_CU_EVENT_NO_TIMING);
    if (!error)
        error = cu->host_alloc(&host, TNI_FETCHES * sizeof *s->fetched, TNI_CU_HOST_PORTABLE);
    if (!error) s->fetched = host;
    return error;
}

int64_t tni_cuda_fetch(void *seat, tn_dtype dt, const void *src)
{
    tni_cuda         *c  = seat;
    const tni_driver *cu = c->gpu->cu;
    tni_staging      *s  = &c->staging;
    tni_cuda_enter(c);
    if (open_fetches(c) != TNI_CU_OK) return 0;
    int i     = (int)(s->fetches % TNI_FETCHES);
    int error = cu->copy_out(&s->fetched[i], address(src), tni_dtype_size(dt), c->stream);
    if (!error) error = cu->event_record(s->fetch_done[i], c->stream);
    return error ? 0 : ++s->fetches;
}

bool tni_cuda_fetched(void *seat, int64_t ticket, void *host)
{
    tni_cuda    *c = seat;
    tni_staging *s = &c->staging;
    int          i = (int)((ticket - 1) % TNI_FETCHES);
    if (ticket <= s->fetches - TNI_FETCHES) return false;  // its place was used again
    tni_cuda_enter(c);
    if (c->gpu->cu->event_query(s->fetch_done[i]) != TNI_CU_OK) return false;
    memcpy(host, &s->fetched[i], sizeof s->fetched[i]);
    return true;
}

void tni_staging_close(tni_cuda *c)
{
    const tni_driver *cu = c->gpu->cu;
    tni_staging      *s  = &c->staging;
    for (int i = 0; i < TNI_SLOTS; i++)
        if (s->slot_done[i]) cu->event_destroy(s->slot_done[i]);
    for (int i = 0; i < TNI_FETCHES; i++)
        if (s->fetch_done[i]) cu->event_destroy(s->fetch_done[i]);
    if (s->slot) cu->host_free(s->slot);
    if (s->fetched) cu->host_free(s->fetched);
}
