// Adding up what is in a checkpoint.
#include "train/checksum.h"

#include "base/hash.h"

#include <stdio.h>
#include <string.h>

static uint64_t hash_text(const char *s)
{
    return tni_hash(s, strlen(s));
}

bool tni_sum_tensor(const char *op, const char *name, tn_tensor *t, uint64_t *sum)
{
    tn_ctx  *cx    = t->cx;
    tn_dtype dt    = tn_dtype_of(t);
    tni_view v     = tni_layout(t);
    size_t   bytes = (size_t)tn_count(t) * tni_dtype_size(dt);
    void    *data  = tni_alloc(&cx->heap, bytes);
    if (!data) return tni_fail_memory(cx, op) != NULL;
    bool ok = tn_read(t, dt, data, tn_count(t)) == TN_OK;
    if (ok) {
        uint64_t h = tni_hash_mix(hash_text(name), hash_text(tn_dtype_name(dt)));
        h          = tni_hash_mix(h, tni_hash(v.size, (size_t)v.rank * sizeof *v.size));
        *sum += tni_hash_mix(h, tni_hash(data, bytes));
    }
    tni_free(&cx->heap, data);
    return ok;
}

void tni_sum_entry(const char *key, const char *text, uint64_t *sum)
{
    *sum += tni_hash_mix(hash_text(key), hash_text(text));
}

bool tni_sum_file(const char *op, tn_file *f, uint64_t *sum)
{
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
