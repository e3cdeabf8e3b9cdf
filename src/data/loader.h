// The loader of a dataset: a thread that prepares the next batches while the program works on the
// current one.
//
// Memory is taken and given back by the owner thread alone. The owner asks for batches by jobs in a
// ring; the thread fills them in order; the owner takes them in order. Between ask and take a job
// belongs to the thread, and so do the dataset's source, items, order and augmentation: the owner
// changes these only after tni_loader_cancel.
#ifndef TNI_DATA_LOADER_H
#define TNI_DATA_LOADER_H

#include "engine/engine.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

typedef struct tni_loader tni_loader;

// Memory for one batch. It is idle, or queued (in a job), or borrowed by tensors that view it. If
// the device copies from pinned memory, the buffer is pinned and becomes idle when its copy is
// done. A borrowed buffer may outlive its loader (home is NULL then); the last of its borrowers
// frees it.
typedef struct tni_batch_buffer tni_batch_buffer;
struct tni_batch_buffer {
    tn_ctx           *cx;
    tni_loader       *home;
    tni_batch_buffer *prev, *next;  // of its home
    size_t            bytes;
    int               borrowers;
    bool              queued;
    bool              pinned;  // data is the device's
    uint64_t          copy;    // under way from it, by number; 0: none
    int64_t           used;    // for the job of this number last
    char             *data;
};

// Which items a batch of n has: count of them from a place in an epoch's order on, of which `mine`,
// from the item `from` on, are of this rank.
typedef struct {
    uint64_t seed;
    int64_t  epoch, index, count, n, from, mine;
    bool     last;  // of its epoch
} tni_span;

// A batch to fill, then filled: or failed at an item, with what its source returned.
typedef struct {
    tni_span          span;
    tni_batch_buffer *buffer;
    char             *field[TN_MAX_FIELDS];  // where each field begins in the buffer
    int               failed;                // 0: it did not
    int64_t           item;
} tni_job;

enum { TNI_AHEAD = 2 };  // batches made ready

// Jobs are numbered; number i stands at job[i % TNI_AHEAD]. Invariant: taken <= filled <= asked <=
// taken + TNI_AHEAD. filled, asked, busy and stop are guarded by lock. Only the owner writes asked,
// and while the thread is busy only the thread writes filled, so each reads its own without the
// lock. taken is the owner's alone.
//
// If the source may be read by several threads, helpers fill items of the batch that the thread is
// busy with, each the next one (`next`) that none has begun, while `open` says that there are any.
// The thread goes on when none is inside.
struct tni_loader {
    bool              running;  // the thread was started
    pid_t             process;  // that it was opened in
    pthread_t         thread;
    pthread_mutex_t   lock;
    pthread_cond_t    wake, done;
    int64_t           asked, filled, taken;
    bool              busy, stop;
    atomic_bool       cancelled;  // the batch being filled will be discarded
    tni_job           job[TNI_AHEAD];
    tni_batch_buffer *buffers;
    pthread_t        *helper;
    int               helpers, joined, inside;  // started, begun, filling an item
    bool              open;
    pthread_cond_t    work, idle;
    _Atomic int64_t   next;
};

void tni_loader_open(tni_loader *l);
// Discards the prepared batches; afterwards the thread is idle.
void tni_loader_cancel(tni_loader *l);
void tni_loader_close(tni_heap *h, tni_loader *l);

#endif
