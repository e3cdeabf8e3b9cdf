// The cache of buffers: bins of free blocks by size class, and the limit.
#include "tensor/buffer.h"

void tni_buffers_open(tni_buffers *b, tni_heap *heap, tni_memory memory, int64_t limit)
{
    *b = (tni_buffers){ .heap = heap, .memory = memory, .limit = limit };
}

static void give_back(tni_buffers *b, tni_buffer *buf)
{
    b->memory.free(b->memory.state, buf->data);
    tni_free(b->heap, buf);
}

// Gives everything that lies free back to the device.
static void trim(tni_buffers *b)
{
    for (int i = 0; i < TNI_BINS; i++)
        while (b->bin[i]) {
            tni_buffer *buf = b->bin[i];
            b->bin[i]       = buf->next;
            give_back(b, buf);
        }
    b->kept = 0;
}

void tni_buffers_close(tni_buffers *b)
{
    trim(b);
}

// Four classes to an octave, from 64 bytes up: at most a fifth is wasted.
static int bin_of(size_t bytes, size_t *rounded)
{
    size_t n = bytes < 64 ? 64 : bytes;
    int    e = 63 - __builtin_clzll(n);
    size_t q = (size_t)1 << (e - 2), up = (n + q - 1) / q * q;
    e        = 63 - __builtin_clzll(up);
    *rounded = up;
    return (e - 6) * 4 + (int)((up >> (e - 2)) & 3);
}

size_t tni_buffer_size(size_t bytes)
{
    size_t rounded;
    bin_of(bytes, &rounded);
    return rounded;
}

static tni_buffer *fresh(tni_buffers *b, size_t bytes)
{
    tni_buffer *buf = tni_zalloc(b->heap, sizeof *buf);
    if (!buf) return NULL;
    buf->data = b->memory.alloc(b->memory.state, bytes);
    if (buf->data) return buf;
    tni_free(b->heap, buf);
    return NULL;
}

tni_buffer *tni_buffer_new(tni_buffers *b, size_t bytes)
{
    size_t rounded;
    if (bytes > SIZE_MAX / 4) return NULL;
    int bin = bin_of(bytes, &rounded);
    if (bin >= TNI_BINS) return NULL;
    if (b->limit > 0 && b->bytes + (int64_t)rounded > b->limit) return NULL;
    tni_buffer *buf = b->bin[bin];
    if (buf) {
        b->bin[bin] = buf->next;
        b->kept -= (int64_t)rounded;
    } else {
        if (b->limit > 0 && b->bytes + b->kept + (int64_t)rounded > b->limit) trim(b);
        buf = fresh(b, rounded);
        if (!buf && b->kept) {
            trim(b);
            buf = fresh(b, rounded);
        }
        if (!buf) return NULL;
    }
    buf->refs  = 1;
    buf->bin   = bin;
    buf->bytes = rounded;
    b->bytes += (int64_t)rounded;
    if (b->bytes > b->peak) b->peak = b->bytes;
    return buf;
}

tni_buffer *tni_buffer_borrow(tni_buffers *b, void *data, void (*release)(void *, void *),
                              void *user)
{
    tni_buffer *buf = tni_zalloc(b->heap, sizeof *buf);
    if (!buf) return NULL;
    buf->refs     = 1;
    buf->borrowed = true;
    buf->data     = data;
    buf->release  = release;
    buf->user     = user;
    return buf;
}

void tni_buffer_unref(tni_buffers *b, tni_buffer *buf)
{
    if (!buf || --buf->refs) return;
    if (buf->borrowed) {
        b->releasing++;
        if (buf->release) buf->release(buf->data, buf->user);
        b->releasing--;
        tni_free(b->heap, buf);
        return;
    }
    b->bytes -= (int64_t)buf->bytes;
    b->kept += (int64_t)buf->bytes;
    buf->next        = b->bin[buf->bin];
    b->bin[buf->bin] = buf;
}
