// Single elements on their way to the host (tn_item_late): a kernel behind the work that computes
// the element writes it into mapped host memory, and the host looks there when it is asked. A copy
// by the driver would use a copy engine, and each change between kernels and a copy engine costs
// more than all kernels of a small step.
#include "device/cuda/gpu.h"

#include <string.h>

#define T(...) #__VA_ARGS__ "\n"

// clang-format off

// One thread copies up to 8 bytes and then the ticket. The fence between the two orders them for
// the host: it reads the ticket first, and once it sees the one it waits for, the value is
// complete.
const char *const tni_text_send[] = {
    T(KERNEL(32) send(const unsigned char *x, volatile m_long *slot, m_long ticket, int bytes) {
          BEGIN();
          if (LOCAL_ID) return;
          m_ulong v = bytes == 8 ? *(const m_ulong *)x : bytes == 4 ? *(const m_uint *)x
                    : bytes == 2 ? *(const m_ushort *)x : *x;
          slot[0] = (m_long)v;
          __threadfence_system();
          slot[1] = ticket;
      }),
    NULL,
};

// clang-format on

// Allocates the ring in host memory that the GPU can write; ticket 0 in every slot is never asked
// for.
static int open_fetch_ring(tni_cuda *c)
{
    const tni_driver *cu    = c->gpu->cu;
    tni_fetches      *f     = &c->fetches;
    size_t            bytes = TNI_FETCHES * sizeof *f->slot;
    void             *host  = NULL;
    if (f->slot) return TNI_CU_OK;
    int error = cu->host_alloc(&host, bytes, TNI_CU_HOST_PORTABLE | TNI_CU_HOST_MAPPED);
    if (!error) error = cu->host_address(&f->at, host, 0);
    if (error) {
        if (host) cu->host_free(host);
        return error;
    }
    memset(host, 0, bytes);
    f->slot = host;
    return TNI_CU_OK;
}

// Compiles the kernel and allocates the ring at the first fetch. If either fails, the caller reads
// by a download instead.
static bool open_fetches(tni_cuda *c)
{
    tni_fetches *f   = &c->fetches;
    tni_text     why = { "" };
    tn_status    s;
    if (!f->send)
        f->send = tni_compiled_group_kernel(c->gpu->compiled, tni_text_send, "send", TN_U8, TN_U8,
                                            &s, &why);
    return f->send && open_fetch_ring(c) == TNI_CU_OK;
}

// The launch goes through replay like any kernel, so that inside of a graph only its arguments
// change. The slot is reused after TNI_FETCHES tickets; a reader that comes later finds another
// ticket there.
int64_t tni_cuda_fetch(void *session, tn_dtype dt, const void *src)
{
    tni_cuda    *c = session;
    tni_fetches *f = &c->fetches;
    tni_cuda_enter(c);
    if (!open_fetches(c)) return 0;
    struct {
        const void *x;
        tni_cuptr   slot;
        int64_t     ticket;
        int         bytes;
    } a = { src, f->at + (size_t)(f->tickets % TNI_FETCHES) * sizeof *f->slot, f->tickets + 1,
            (int)tni_dtype_size(dt) };
    uint32_t          offset[] = { 0, 8, 16, 24, 28 };
    tni_launch_record d        = { .f        = f->send,
                                   .grid     = { 1, 1, 1 },
                                   .block    = { 32, 1, 1 },
                                   .overlaps = c->gpu->overlaps,
                                   .args     = 4 };
    return tni_replay_launch(c, &d, offset, (const char *)&a) ? 0 : ++f->tickets;
}

// Returns false both for a value that has not arrived and for one whose slot a newer fetch has
// taken.
bool tni_cuda_fetched(void *session, int64_t ticket, void *host)
{
    const tni_cuda *c = session;
    tni_fetch_slot *s = &c->fetches.slot[(ticket - 1) % TNI_FETCHES];
    if (ticket <= c->fetches.tickets - TNI_FETCHES) return false;  // a newer fetch has its slot
    if (atomic_load_explicit(&s->ticket, memory_order_acquire) != ticket) return false;
    memcpy(host, &s->value, sizeof s->value);
    return true;
}

void tni_fetches_close(tni_cuda *c)
{
    if (c->fetches.slot) c->gpu->cu->host_free(c->fetches.slot);
}
