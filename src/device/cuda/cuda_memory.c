// Memory of the GPU, our own and a caller's, and the way to the host. Nothing waits but downloads, and
// the end of a caller's memory.
#include "device/cuda/gpu.h"

#include <string.h>

// ---- memory ------------------------------------------------------------------------------------

static tni_cuptr gpu_address(const void *p)
{
    return (tni_cuptr)(uintptr_t)p;
}

void *tni_cuda_alloc(void *session, size_t bytes)
{
    tni_cuda *c = session;
    tni_cuptr p = 0;
    tni_cuda_enter(c);
    if (c->gpu->cu->mem_alloc(&p, bytes ? bytes : 1) != TNI_CU_OK) return NULL;
    return (void *)(uintptr_t)p;
}

// The driver waits for work that may still use the memory.
void tni_cuda_free(void *session, void *p)
{
    tni_cuda *c = session;
    tni_cuda_enter(c);
    if (p) c->gpu->cu->mem_free(gpu_address(p));
}

bool tni_cuda_space(void *session, size_t *free, size_t *all)
{
    const tni_cuda *c = session;
    tni_cuda_enter(c);
    return c->gpu->cu->mem_info(free, all) == TNI_CU_OK;
}

// ---- scratch -----------------------------------------------------------------------------------

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

void tni_cuda_scratch_close(tni_cuda *c)
{
    for (int i = 0; i < c->scratches; i++) c->gpu->cu->mem_free(c->scratch[i]);
}

// ---- a caller's memory -------------------------------------------------------------------------

// The bytes from p on in the range that it is in; SIZE_MAX where that is not known.
static size_t bytes_from(const tni_driver *cu, tni_cuptr p)
{
    tni_cuptr start = 0;
    size_t    size  = 0;
    if (cu->pointer_attribute(&start, TNI_CU_POINTER_START, p) != TNI_CU_OK ||
        cu->pointer_attribute(&size, TNI_CU_POINTER_SIZE, p) != TNI_CU_OK || p < start ||
        p - start > size)
        return SIZE_MAX;
    return size - (size_t)(p - start);
}

// What the driver does not know is the host's, and so is what is pinned there.
tn_status tni_cuda_owns(void *session, const void *p, size_t bytes, bool *here, tni_text *why)
{
    const tni_cuda   *c    = session;
    const tni_driver *cu   = c->gpu->cu;
    unsigned          type = 0;
    int               gpu  = -1;
    *here                  = false;
    tni_cuda_enter(c);
    if (cu->pointer_attribute(&type, TNI_CU_POINTER_TYPE, gpu_address(p)) != TNI_CU_OK)
        return TN_OK;
    if (type == TNI_CU_MEMORY_HOST) return TN_OK;
    int error = cu->pointer_attribute(&gpu, TNI_CU_POINTER_DEVICE, gpu_address(p));
    if (error) return tni_gpu_status(cu, error, "asking for an address", why);
    if (gpu != c->gpu->number) {
        tni_text_add(why, "data is memory of cuda:%d, and the context is at cuda:%d", gpu,
                     c->gpu->number);
        return TN_EARG;
    }
    size_t available = bytes_from(cu, gpu_address(p));
    if (available < bytes) {
        tni_text_add(why, "data has %zu bytes on the GPU, and %zu are asked for", available, bytes);
        return TN_EARG;
    }
    *here = true;
    return TN_OK;
}

void tni_cuda_wait_unused(void *session)
{
    const tni_cuda *c = session;
    tni_cuda_enter(c);
    if (!c->borrowed) c->gpu->cu->stream_wait(c->stream);
}

// ---- to the host -------------------------------------------------------------------------------

tn_status tni_cuda_download(void *session, void *host, tn_dtype dt, const void *src, int64_t count,
                            tni_text *why)
{
    tni_cuda         *c     = session;
    const tni_driver *cu    = c->gpu->cu;
    size_t            bytes = count > 0 ? (size_t)count * tni_dtype_size(dt) : 0;
    if (!bytes) return TN_OK;
    tni_cuda_enter(c);
    tni_cuda_await_uploads(c);
    int error = cu->copy_out(host, gpu_address(src), bytes, c->stream);
    if (!error) error = cu->stream_wait(c->stream);
    return tni_cuda_status(c, error, "copying from the GPU", why);
}

void tni_copies_close(tni_cuda *c)
{
    tni_uploads_close(c);
    tni_fetches_close(c);
}
