// Adding up what is in a checkpoint.
#include "train/checksum.h"

#include "io/file.h"

#include <stdio.h>
#include <string.h>

// Multiplying by the golden ratio's bits spreads every bit upwards, and the shift brings high bits
// down again, so that the order of a and b counts. The constants are part of the file format.
uint64_t tni_sum_join(uint64_t a, uint64_t b)
{
    a = (a ^ b) * 0x9e3779b97f4a7c15u;
    return a ^ (a >> 29);
}

// Sums eight bytes at a time, little-endian. The last ones are padded with zeros; since the sum
// starts from the length, padding does not equal zeros in the data.
uint64_t tni_sum_bytes(const void *data, size_t n)
{
    const unsigned char *p = data;
    uint64_t             h = 0x243f6a8885a308d3u ^ n;
    uint64_t             v = 0;
    for (; n >= sizeof v; p += sizeof v, n -= sizeof v) {
        memcpy(&v, p, sizeof v);
        h = tni_sum_join(h, v);
    }
    v = 0;
    memcpy(&v, p, n);
    return tni_sum_join(tni_sum_join(h, v), h >> 32);
}

static uint64_t sum_text(const char *s)
{
    return tni_sum_bytes(s, strlen(s));
}

// Adds, rather than joins, the tensor's own sum: the order of tensors in a file does not count.
bool tni_sum_tensor(const char *op, const char *name, tn_tensor *t, uint64_t *sum)
{
    tni_view  v = tni_layout(t);
    tni_bytes b;
    if (!tni_bytes_borrow(op, t, &b)) return false;
    uint64_t h = tni_sum_join(sum_text(name), sum_text(tn_dtype_name(tn_dtype_of(t))));
    h          = tni_sum_join(h, tni_sum_bytes(v.size, (size_t)v.rank * sizeof *v.size));
    *sum += tni_sum_join(h, tni_sum_bytes(b.data, b.bytes));
    tni_bytes_return(t->cx, &b);
    return true;
}

void tni_sum_entry(const char *key, const char *text, uint64_t *sum)
{
    *sum += tni_sum_join(sum_text(key), sum_text(text));
}

// Adds every entry of one file's metadata except the checksum itself.
static void sum_metadata(const tni_file_part *part, uint64_t *sum)
{
    const char *key = part->meta;
    for (size_t i = 0; i < part->nmeta; i++) {
        const char *text = tni_next_text(key);
        if (strcmp(key, TNI_SUM_KEY)) tni_sum_entry(key, text, sum);
        key = tni_next_text(text);
    }
}

// Tensors are dropped one by one, so that a file larger than the memory limit can be checked.
bool tni_sum_file(const char *op, tn_file *f, uint64_t *sum)
{
    for (size_t i = 0; i < f->parts; i++) sum_metadata(&f->part[i], sum);
    for (int i = 0; i < tn_file_count(f); i++) {
        const char *name = tn_file_name(f, i);
        tn_tensor  *t    = tn_file_tensor(f, name);
        if (!t || !tni_sum_tensor(op, name, t, sum)) return false;
        tn_drop(t);
    }
    return true;
}

void tni_sum_text(uint64_t sum, char text[TNI_SUM_TEXT])
{
    snprintf(text, TNI_SUM_TEXT, "%016llx", (unsigned long long)sum);
}
