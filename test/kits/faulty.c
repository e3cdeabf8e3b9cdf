// An allocator that fails when it is told to.
#include "faulty.h"

#include "check.h"
#include "tensor/context.h"

#include <stdlib.h>

static bool fails_now(faulty *h)
{
    h->made++;
    if (h->countdown == 0) return false;
    if (h->countdown > 1) {
        h->countdown--;
        return false;
    }
    if (!h->forever) h->countdown = 0;
    h->failed++;
    return true;
}

void *faulty_alloc(void *user, void *old, size_t n)
{
    faulty *h = user;
    if (n == 0) {
        h->live--;
        free(old);
        return NULL;
    }
    if (fails_now(h)) return NULL;
    void *p = realloc(old, n);
    if (p && !old) h->live++;
    return p;
}

static void silent(tn_ctx *cx, const tn_fault *f, void *user)
{
    (void)cx, (void)f, (void)user;
}

tn_ctx *faulty_open(const char *device, faulty *h)
{
    tn_ctx *cx = tn_open_with((tn_open_opts){
        .device = device, .handler = silent, .user = h, .alloc = faulty_alloc, .threads = 1 });
    if (cx) cx->heap.keeps = false;  // so that every block is asked for
    return cx;
}

long faulty_left(const faulty *h)
{
    return TEST_DEBUG ? 0 : h->live;
}
