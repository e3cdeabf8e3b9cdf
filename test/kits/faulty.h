// faulty.h: an allocator that fails when it is told to, for tn_open_opts.alloc.
#ifndef TEST_FAULTY_H
#define TEST_FAULTY_H

#include <stdbool.h>
#include <tenon.h>

// countdown: the n-th allocation or growth from now fails, and if forever is set every later one
// too; 0: none does. live counts the blocks that are there.
typedef struct {
    long live, countdown, failed, made;
    bool forever;
} faulty;

// user is a faulty.
void *faulty_alloc(void *user, void *old, size_t n);
// A silent context of one thread whose memory comes from h, on a device.
tn_ctx *faulty_open(const char *device, faulty *h);
// Blocks that are left although the context is closed. None in a TN_DEBUG build, which keeps closed
// contexts on purpose.
long faulty_left(const faulty *h);

#endif
