// Memory: buffer objects behind reserved ranges of addresses, and transfers to and from the host.
#include "device/opencl/opencl.h"

#include "base/heap.h"
#include "tensor/dtype.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

// One buffer object and the range of addresses that stands for it. The range is longer than the
// buffer, so that the address just past its end belongs to it too (an empty slice may begin there).
// Owned by the heap of the context that asked for it; `blocks` points to it until it is freed.
typedef struct {
    char      *base;
    size_t     bytes, reserved;
    tni_cl_mem mem;
} block;

// Every block of the process. Guarded by the lock. Invariant: sorted by address, ranges do not
// overlap, bytes is the sum of the blocks' bytes.
static struct {
    block **at;
    size_t  count, cap;
    int64_t bytes;
} blocks;

// ---- the table: locked -------------------------------------------------------------------------

// The number of blocks that begin at or before an address, by binary search.
static size_t count_up_to(const char *address)
{
    size_t low = 0, high = blocks.count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (blocks.at[middle]->base <= address) low = middle + 1;
        else high = middle;
    }
    return low;
}

// The block whose range has the address; NULL if none has.
static block *block_of(const char *address)
{
    size_t n = count_up_to(address);
    if (n == 0) return NULL;
    block *b = blocks.at[n - 1];
    return address < b->base + b->reserved ? b : NULL;
}

// Inserts a block in order; false when out of memory. Allocations are few (the engine caches
// memory), so that moving the pointers behind it costs nothing that matters.
static bool insert_block(block *b)
{
    if (blocks.count == blocks.cap) {
        size_t  cap = blocks.cap ? 2 * blocks.cap : 64;
        block **at  = realloc(blocks.at, cap * sizeof *at);
        if (!at) return false;
        blocks.at  = at;
        blocks.cap = cap;
    }
    size_t n = count_up_to(b->base);
    memmove(blocks.at + n + 1, blocks.at + n, (blocks.count - n) * sizeof *blocks.at);
    blocks.at[n] = b;
    blocks.count++;
    blocks.bytes += (int64_t)b->bytes;
    return true;
}

static void remove_block(const block *b)
{
    size_t n = count_up_to(b->base) - 1;
    blocks.count--;
    memmove(blocks.at + n, blocks.at + n + 1, (blocks.count - n) * sizeof *blocks.at);
    blocks.bytes -= (int64_t)b->bytes;
}

tni_cl_buffer tni_cl_find_buffer(const void *address)
{
    block *b = block_of(address);
    if (!b) return (tni_cl_buffer){ 0 };
    return (tni_cl_buffer){ b->mem, (const char *)address - b->base };
}

int64_t tni_cl_blocks(int64_t *bytes)
{
    tni_cl_lock();
    int64_t n = (int64_t)blocks.count;
    *bytes    = blocks.bytes;
    tni_cl_unlock();
    return n;
}

// ---- taking and giving -------------------------------------------------------------------------

// Reserves addresses without memory: any access faults.
static void *reserve_addresses(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

// Makes a buffer object; NULL if the device has no memory left. Drivers put off finding memory for
// a buffer until its first use, when it is too late to fall back; migrating it to the device makes
// them find it now. Bytes in use are counted here and compared with the device's memory, since a
// driver on a CPU promises more than there is.
static tni_cl_mem create_buffer(const tni_cl *cl, size_t bytes)
{
    int32_t code = 0;
    if ((int64_t)bytes > cl->max_buffer || blocks.bytes + (int64_t)bytes > cl->memory) return NULL;
    tni_cl_mem m = cl->api.clCreateBuffer(cl->context, (uint64_t)TNI_CL_MEM_READ_WRITE, bytes, NULL,
                                          &code);
    if (!m) return NULL;
    code = cl->api.clEnqueueMigrateMemObjects(
        cl->queue, 1, &m, (uint64_t)TNI_CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED, 0, NULL, NULL);
    if (code == TNI_CL_SUCCESS) return m;
    cl->api.clReleaseMemObject(m);
    return NULL;
}

// Makes the buffer and the range of a block and enters it; undoes everything on failure. PAGE is 64
// KiB, the largest page size in use on the hosts that are supported: a multiple of any smaller one.
static bool open_block(const tni_cl *cl, block *b, size_t bytes)
{
    enum { PAGE = 1 << 16 };
    b->bytes    = bytes;
    b->reserved = (bytes / PAGE + 1) * PAGE;
    b->mem      = create_buffer(cl, bytes);
    b->base     = b->mem ? reserve_addresses(b->reserved) : NULL;
    if (b->base && insert_block(b)) return true;
    if (b->base) munmap(b->base, b->reserved);
    if (b->mem) cl->api.clReleaseMemObject(b->mem);
    return false;
}

// An empty tensor gets a buffer too, since OpenCL has none of 0 bytes and every address must be
// distinct.
void *tni_cl_alloc(void *session, size_t bytes)
{
    tni_cl *cl = tni_cl_get();
    block  *b  = cl && bytes <= SIZE_MAX / 2 ? tni_zalloc(session, sizeof *b) : NULL;
    if (!b) return NULL;
    tni_cl_lock();
    bool ok = open_block(cl, b, bytes ? bytes : 64);
    tni_cl_unlock();
    if (ok) return b->base;
    tni_free(session, b);
    return NULL;
}

// The buffer object lives on until the work in the queue that uses it is done: OpenCL counts
// references.
void tni_cl_free(void *session, void *p)
{
    if (!p) return;
    tni_cl *cl = tni_cl_get();
    tni_cl_lock();
    block *b = block_of(p);
    remove_block(b);
    munmap(b->base, b->reserved);
    cl->api.clReleaseMemObject(b->mem);
    if (!blocks.count) cl->api.clFinish(cl->queue);  // no later call would wait for the queue
    tni_cl_unlock();
    tni_free(session, b);
}

// ---- transfers ---------------------------------------------------------------------------------

// Pinned host memory that the device reads directly, in slots used in turn: an upload is copied
// into slots and returns, although work before it in the queue is not done. A slot is used again
// when its last transfer is done. 8 slots of 1 MiB: batches of images fit, and larger uploads go by
// a blocking write, where one more copy on the host would cost more than the wait. Guarded by the
// lock; memory stays NULL if the driver has no such memory.
enum { SLOTS = 8, SLOT = 1 << 20 };

static struct {
    bool         tried;
    tni_cl_mem   mem;
    char        *memory;  // mem, as the host sees it
    tni_cl_event done[SLOTS];
    int          next;
} staging;

// Allocates and maps the slots, on the first upload. It stays mapped for the life of the process.
static void open_staging(const tni_cl *cl)
{
    int32_t  code  = 0;
    uint64_t flags = (uint64_t)(TNI_CL_MEM_READ_WRITE | TNI_CL_MEM_ALLOC_HOST_PTR);
    staging.tried  = true;
    staging.mem    = cl->api.clCreateBuffer(cl->context, flags, (size_t)SLOTS * SLOT, NULL, &code);
    if (!staging.mem) return;
    staging.memory = cl->api.clEnqueueMapBuffer(cl->queue, staging.mem, 1,
                                                (uint64_t)(TNI_CL_MAP_READ | TNI_CL_MAP_WRITE), 0,
                                                (size_t)SLOTS * SLOT, 0, NULL, NULL, &code);
}

// Copies up to SLOT bytes into the next slot and enqueues their transfer.
static int32_t write_slot(const tni_cl *cl, tni_cl_buffer to, const char *host, size_t bytes)
{
    tni_cl_event *done = &staging.done[staging.next];
    char         *slot = staging.memory + (size_t)staging.next * SLOT;
    staging.next       = (staging.next + 1) % SLOTS;
    if (*done) {
        cl->api.clWaitForEvents(1, done);
        cl->api.clReleaseEvent(*done);
        *done = NULL;
    }
    memcpy(slot, host, bytes);
    return cl->api.clEnqueueWriteBuffer(cl->queue, to.mem, 0, (size_t)to.offset, bytes, slot, 0,
                                        NULL, done);
}

// Uploads through the slots, or by a blocking write if there are none or the upload is larger than
// all of them. The flush makes the driver begin.
static int32_t upload_bytes(const tni_cl *cl, tni_cl_buffer to, const char *host, size_t bytes)
{
    if (!staging.tried) open_staging(cl);
    if (!staging.memory || bytes > (size_t)SLOTS * SLOT)
        return cl->api.clEnqueueWriteBuffer(cl->queue, to.mem, 1, (size_t)to.offset, bytes, host, 0,
                                            NULL, NULL);
    int32_t code = TNI_CL_SUCCESS;
    for (size_t n; bytes && code == TNI_CL_SUCCESS;
         bytes -= n, host += n, to.offset += (int64_t)n) {
        n    = bytes < SLOT ? bytes : SLOT;
        code = write_slot(cl, to, host, n);
    }
    cl->api.clFlush(cl->queue);
    return code;
}

// The host's memory may be reused when this returns: it was copied to a slot, or the write has
// ended.
tn_status tni_cl_upload(void *session, void *dst, tn_dtype dt, const void *host, int64_t count,
                        tni_text *why)
{
    tni_cl *cl = tni_cl_get();
    (void)session;
    if (count <= 0) return TN_OK;
    tni_cl_lock();
    int32_t code = upload_bytes(cl, tni_cl_find_buffer(dst), host,
                                (size_t)count * tni_dtype_size(dt));
    tni_cl_unlock();
    return code == TNI_CL_SUCCESS ? TN_OK : tni_cl_error(why, "copying to the device", code);
}

// Waits for everything launched before, without the lock: other threads may go on launching.
tn_status tni_cl_download(void *session, void *host, tn_dtype dt, const void *src, int64_t count,
                          tni_text *why)
{
    tni_cl *cl = tni_cl_get();
    (void)session;
    if (count <= 0) return TN_OK;
    tni_cl_lock();
    tni_cl_buffer from = tni_cl_find_buffer(src);
    tni_cl_unlock();
    int32_t code = cl->api.clEnqueueReadBuffer(cl->queue, from.mem, 1, (size_t)from.offset,
                                               (size_t)count * tni_dtype_size(dt), host, 0, NULL,
                                               NULL);
    return code == TNI_CL_SUCCESS ? TN_OK : tni_cl_error(why, "copying from the device", code);
}
