// Memory: buffers behind reserved ranges of addresses, and the way to and from the host.
#include "device/opencl/opencl.h"

#include "base/heap.h"
#include "tensor/dtype.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

// One buffer and the range of addresses that stands for it. The range is longer than the buffer, so
// that the address just past its end is its own too. Lives in the heap of the context that asked
// for it; the table below points to it until it is freed.
typedef struct {
    char      *base;
    size_t     bytes, reserved;
    tni_cl_mem mem;
} block;

// Every block of the process, sorted by address. Guarded by the lock.
static struct {
    block **at;
    size_t  count, cap;
    int64_t bytes;
} table;

// ---- the table: locked -------------------------------------------------------------------------

// The number of blocks that begin at or before an address.
static size_t begun_at(const char *address)
{
    size_t low = 0, high = table.count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (table.at[middle]->base <= address) low = middle + 1;
        else high = middle;
    }
    return low;
}

static block *block_of(const char *address)
{
    size_t n = begun_at(address);
    if (n == 0) return NULL;
    block *b = table.at[n - 1];
    return address < b->base + b->reserved ? b : NULL;
}

static bool insert(block *b)
{
    if (table.count == table.cap) {
        size_t  cap = table.cap ? 2 * table.cap : 64;
        block **at  = realloc(table.at, cap * sizeof *at);
        if (!at) return false;
        table.at  = at;
        table.cap = cap;
    }
    size_t n = begun_at(b->base);
    memmove(table.at + n + 1, table.at + n, (table.count - n) * sizeof *table.at);
    table.at[n] = b;
    table.count++;
    table.bytes += (int64_t)b->bytes;
    return true;
}

static void withdraw(const block *b)
{
    size_t n = begun_at(b->base) - 1;
    table.count--;
    memmove(table.at + n, table.at + n + 1, (table.count - n) * sizeof *table.at);
    table.bytes -= (int64_t)b->bytes;
}

tni_cl_place tni_cl_find(const void *address)
{
    block *b = block_of(address);
    if (!b) return (tni_cl_place){ 0 };
    return (tni_cl_place){ b->mem, (const char *)address - b->base };
}

int64_t tni_cl_blocks(int64_t *bytes)
{
    tni_cl_lock();
    int64_t n = (int64_t)table.count;
    *bytes    = table.bytes;
    tni_cl_unlock();
    return n;
}

// ---- taking and giving -------------------------------------------------------------------------

static void *reserve(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

// Drivers put off finding memory for a buffer until it is first used, when it is too late to do
// without; bringing it to the device makes them find it. What the device has in all is counted
// here, since a driver on a CPU promises more than there is.
static tni_cl_mem take_buffer(const tni_cl *cl, size_t bytes)
{
    int32_t code = 0;
    if ((int64_t)bytes > cl->most || table.bytes + (int64_t)bytes > cl->memory) return NULL;
    tni_cl_mem m = cl->api.clCreateBuffer(cl->context, (uint64_t)TNI_CL_MEM_READ_WRITE, bytes, NULL,
                                          &code);
    if (!m) return NULL;
    code = cl->api.clEnqueueMigrateMemObjects(
        cl->queue, 1, &m, (uint64_t)TNI_CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED, 0, NULL, NULL);
    if (code == TNI_CL_SUCCESS) return m;
    cl->api.clReleaseMemObject(m);
    return NULL;
}

static bool fill_block(const tni_cl *cl, block *b, size_t bytes)
{
    enum { PAGE = 1 << 16 };
    b->bytes    = bytes;
    b->reserved = (bytes / PAGE + 1) * PAGE;
    b->mem      = take_buffer(cl, bytes);
    b->base     = b->mem ? reserve(b->reserved) : NULL;
    if (b->base && insert(b)) return true;
    if (b->base) munmap(b->base, b->reserved);
    if (b->mem) cl->api.clReleaseMemObject(b->mem);
    return false;
}

void *tni_cl_alloc(void *session, size_t bytes)
{
    tni_cl *cl = tni_cl_get();
    block  *b  = cl && bytes <= SIZE_MAX / 2 ? tni_zalloc(session, sizeof *b) : NULL;
    if (!b) return NULL;
    tni_cl_lock();
    bool ok = fill_block(cl, b, bytes ? bytes : 64);
    tni_cl_unlock();
    if (ok) return b->base;
    tni_free(session, b);
    return NULL;
}

// Work in the queue that uses the buffer keeps it alive until it is done.
void tni_cl_free(void *session, void *p)
{
    if (!p) return;
    tni_cl *cl = tni_cl_get();
    tni_cl_lock();
    block *b = block_of(p);
    withdraw(b);
    munmap(b->base, b->reserved);
    cl->api.clReleaseMemObject(b->mem);
    if (!table.count) cl->api.clFinish(cl->queue);  // nobody is left who would wait for it
    tni_cl_unlock();
    tni_free(session, b);
}

// ---- transfers ---------------------------------------------------------------------------------

// Memory that the device reads directly, in slots used in turn: what is uploaded is copied here and
// the caller goes on, though work before it in the queue is not done. A slot is used again when
// its last transfer is. Guarded by the lock; NULL where the driver has no such memory.
enum { SLOTS = 8, SLOT = 1 << 20 };

static struct {
    bool         tried;
    tni_cl_mem   mem;
    char        *memory;  // mem, as the host sees it
    tni_cl_event done[SLOTS];
    int          next;
} staging;

static void open_staging(const tni_cl *cl)
{
    int32_t  code = 0;
    uint64_t how  = (uint64_t)(TNI_CL_MEM_READ_WRITE | TNI_CL_MEM_ALLOC_HOST_PTR);
    staging.tried = true;
    staging.mem   = cl->api.clCreateBuffer(cl->context, how, (size_t)SLOTS * SLOT, NULL, &code);
    if (!staging.mem) return;
    staging.memory = cl->api.clEnqueueMapBuffer(cl->queue, staging.mem, 1,
                                                (uint64_t)(TNI_CL_MAP_READ | TNI_CL_MAP_WRITE), 0,
                                                (size_t)SLOTS * SLOT, 0, NULL, NULL, &code);
}

static int32_t write_slot(const tni_cl *cl, tni_cl_place to, const char *host, size_t bytes)
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

static int32_t write_all(const tni_cl *cl, tni_cl_place to, const char *host, size_t bytes)
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

tn_status tni_cl_upload(void *session, void *dst, tn_dtype dt, const void *host, int64_t count,
                        tni_text *why)
{
    tni_cl *cl = tni_cl_get();
    (void)session;
    if (count <= 0) return TN_OK;
    tni_cl_lock();
    int32_t code = write_all(cl, tni_cl_find(dst), host, (size_t)count * tni_dtype_size(dt));
    tni_cl_unlock();
    return code == TNI_CL_SUCCESS ? TN_OK : tni_cl_error(why, "copying to the device", code);
}

// Waits for all that was launched before, without the lock: another thread may go on launching.
tn_status tni_cl_download(void *session, void *host, tn_dtype dt, const void *src, int64_t count,
                          tni_text *why)
{
    tni_cl *cl = tni_cl_get();
    (void)session;
    if (count <= 0) return TN_OK;
    tni_cl_lock();
    tni_cl_place from = tni_cl_find(src);
    tni_cl_unlock();
    int32_t code = cl->api.clEnqueueReadBuffer(cl->queue, from.mem, 1, (size_t)from.offset,
                                               (size_t)count * tni_dtype_size(dt), host, 0, NULL,
                                               NULL);
    return code == TNI_CL_SUCCESS ? TN_OK : tni_cl_error(why, "copying from the device", code);
}
