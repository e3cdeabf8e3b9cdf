// What a shape reads of a launch (launch_words.h). More words would tell launches apart whose
// shapes are the same: where keys and values are appended to a cache, or a token has its place,
// each step would be another launch, measured anew, with a kernel of its own that no graph of the
// step before has.
#include "kernel/launch_words.h"

#include "tensor/dtype.h"

int64_t tni_access_start(const tni_launch *l, int access, int v)
{
    int       b    = l->kernel->access[access].buffer;
    uintptr_t base = (uintptr_t)l->buffer[b];
    size_t    size = tni_dtype_size((tn_dtype)l->kernel->buffer[b].dtype);
    if (base % size) return -1;
    return (int64_t)((base / size + (uint64_t)l->offset[access]) % (uint64_t)v);
}

// Whether a kernel draws random numbers, in blocks that may begin at a place.
static bool draws(const tni_kernel *k)
{
    for (int i = 0; i < k->nins; i++)
        if (k->ins[i].code == TNI_I_RANDOM) return true;
    return false;
}

// The bytes from an aligned address to where an access begins; and which access is the first that
// begins at the same element of its buffer, since one may then read what another has loaded
// (simt_tile.c). Of an access without memory, a place, its element in a block of random numbers.
static int64_t beginning(const tni_launch *l, int access)
{
    const tni_kernel *k     = l->kernel;
    int               first = 0, b = k->access[access].buffer;
    uint64_t          at = (uint64_t)l->offset[access];
    if (b < 0) return draws(k) ? (int64_t)(at % TNI_RANDOM_BLOCK) : 0;
    while (k->access[first].buffer != b || l->offset[first] != l->offset[access]) first++;
    at = (uintptr_t)l->buffer[b] + at * tni_dtype_size((tn_dtype)k->buffer[b].dtype);
    return (int64_t)(at % TNI_VECTOR_BYTES) + TNI_VECTOR_BYTES * first;
}

int tni_launch_words(const tni_launch *l, int64_t word[TNI_LAUNCH_WORDS])
{
    const tni_kernel *k = l->kernel;
    int               n = 0, axes = k->np + k->nr;
    for (int i = 0; i < axes; i++) word[n++] = l->size[i];
    for (int a = 0; a < k->naccess; a++) {
        for (int i = 0; i < axes; i++) word[n++] = l->stride[a][i];
        word[n++] = l->stride[a][TNI_AXES];
        word[n++] = beginning(l, a);
    }
    return n;
}
