// Device memory: our own, scratch, and a caller's; and copies to the host. Only downloads wait, and
// the end of a caller's memory.
#include "device/cuda/gpu.h"

#include <string.h>

// ---- memory ------------------------------------------------------------------------------------

static tni_cuptr gpu_address(const void *p)
{
    return (tni_cuptr)(uintptr_t)p;
}

static int alloc_relaxed(const tni_driver *cu, tni_cuptr *p, size_t bytes)
{
    int before = tni_cuda_relax(cu), error = cu->mem_alloc(p, bytes);
    tni_cuda_restrict(cu, before);
    return error;
}

// The driver's allocation is slow, and waits for the GPU in some cases; the engine keeps freed
// blocks and comes here only for more (tensor/buffer.h). A block of 0 bytes still has an address of
// its own.
void *tni_cuda_alloc(void *session, size_t bytes)
{
    tni_cuda *c = session;
    tni_cuptr p = 0;
    tni_cuda_enter(c);
    return alloc_relaxed(c->gpu->cu, &p, bytes ? bytes : 1) ? NULL : (void *)(uintptr_t)p;
}

// The driver itself waits for work that may still use the memory. A graph that a caller captured
// may use it at any time; such memory stays until the process ends.
void tni_cuda_free(void *session, void *p)
{
    tni_cuda *c = session;
    if (!p || c->captured) return;
    tni_cuda_enter(c);
    int before = tni_cuda_relax(c->gpu->cu);
    c->gpu->cu->mem_free(gpu_address(p));
    tni_cuda_restrict(c->gpu->cu, before);
}

bool tni_cuda_space(void *session, size_t *free, size_t *all)
{
    const tni_cuda *c = session;
    tni_cuda_enter(c);
    return c->gpu->cu->mem_info(free, all) == TNI_CU_OK;
}

// ---- scratch -----------------------------------------------------------------------------------

// One block serves all kernels: they run one after the other in one stream, so that each may
// overwrite what the last one left. A larger block is at least twice as large, and never below 1
// MiB, so that there are few of them (TNI_SCRATCHES covers every size of memory). Older blocks
// stay: kernels in flight and captured graphs contain their addresses.
tni_cuptr tni_cuda_scratch(tni_cuda *c, size_t bytes)
{
    size_t more = 2 * c->scratch_bytes;
    if (!bytes) return 0;
    if (bytes <= c->scratch_bytes) return c->scratch[c->scratches - 1];
    if (c->scratches == TNI_SCRATCHES) return 0;
    if (more < bytes) more = bytes;
    if (more < 1 << 20) more = 1 << 20;
    if (alloc_relaxed(c->gpu->cu, &c->scratch[c->scratches], more) != TNI_CU_OK) return 0;
    c->scratch_bytes = more;
    return c->scratch[c->scratches++];
}

// Cleared in the stream's order, once: kernels of one stream run one after the other.
tni_cuptr tni_cuda_zeros(tni_cuda *c)
{
    const tni_driver *cu    = c->gpu->cu;
    size_t            bytes = TNI_CUDA_ZEROS;
    if (c->zeros || cu->mem_alloc(&c->zeros, bytes) != TNI_CU_OK) return c->zeros;
    if (cu->set8(c->zeros, 0, bytes, c->stream) == TNI_CU_OK) return c->zeros;
    cu->mem_free(c->zeros);
    return c->zeros = 0;
}

void tni_cuda_scratch_close(tni_cuda *c)
{
    if (c->zeros) c->gpu->cu->mem_free(c->zeros);
    for (int i = 0; i < c->scratches; i++) c->gpu->cu->mem_free(c->scratch[i]);
}

// ---- a caller's memory -------------------------------------------------------------------------

// Returns how many bytes from p on belong to the range that p is in; SIZE_MAX if the driver does
// not say, as for memory that it only maps.
static size_t bytes_from(tni_cuptr p, tni_cuptr start, size_t size)
{
    if (!size || p < start || p - start > size) return SIZE_MAX;
    return size - (size_t)(p - start);
}

// An address that the driver does not know has no type: it is ordinary host memory, and pinned
// memory is the host's too: both are copied. Memory of another GPU, or too little of this one, is
// an error that names what was found. One question for all: a function of another library asks for
// each of its tensors.
tn_status tni_cuda_owns(void *session, const void *p, size_t bytes, bool *here, tni_text *why)
{
    const tni_cuda *c       = session;
    unsigned        type    = 0;
    int             gpu     = -1;
    tni_cuptr       start   = 0;
    size_t          size    = 0;
    int             which[] = { TNI_CU_POINTER_TYPE, TNI_CU_POINTER_DEVICE, TNI_CU_POINTER_START,
                                TNI_CU_POINTER_SIZE };
    void           *value[] = { &type, &gpu, &start, &size };
    *here                   = false;
    tni_cuda_enter(c);
    int error = c->gpu->cu->pointer_attributes(4, which, value, gpu_address(p));
    if (error) return tni_gpu_status(c->gpu->cu, error, "asking for an address", why);
    if (!type || type == TNI_CU_MEMORY_HOST) return TN_OK;
    if (gpu != c->gpu->number) {
        tni_text_add(why, "data is in memory of cuda:%d, but the context is on cuda:%d", gpu,
                     c->gpu->number);
        return TN_EARG;
    }
    size_t available = bytes_from(gpu_address(p), start, size);
    if (available < bytes) {
        tni_text_add(why, "data has %zu bytes on the GPU, but %zu are needed", available, bytes);
        return TN_EARG;
    }
    *here = true;
    return TN_OK;
}

// With a stream of the caller's, its own order of work keeps the memory safe, and nothing waits.
void tni_cuda_wait_unused(void *session)
{
    const tni_cuda *c = session;
    tni_cuda_enter(c);
    if (c->stream == c->own) c->gpu->cu->stream_wait(c->stream);
}

// ---- to the host -------------------------------------------------------------------------------

// Waits for everything submitted before, and so for uploads as well: the value may be one of them.
tn_status tni_cuda_download(void *session, void *host, tn_dtype dt, const void *src, int64_t count,
                            tni_text *why)
{
    tni_cuda         *c     = session;
    const tni_driver *cu    = c->gpu->cu;
    size_t            bytes = count > 0 ? (size_t)count * tni_dtype_size(dt) : 0;
    if (!bytes) return TN_OK;
    if (!tni_cuda_may(c, "copying from the GPU", why)) return TN_EDEVICE;
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
