// Elements between files and tensors.
#include "engine/engine.h"
#include "io/file.h"

#include <string.h>

// ---- in ----------------------------------------------------------------------------------------

// Called when a borrowing tensor's memory is no longer used.
static void release_mapping(void *data, void *user)
{
    (void)data;
    tni_mapping_unref(user);
}

static void release_block(void *data, void *user)
{
    tni_free64(user, data);
}

// Copies elements of n bytes; reverses the bytes of each if the file is big-endian.
static void copy_elements(unsigned char *to, size_t n, const tni_file_entry *it)
{
    if (!it->swapped) memcpy(to, it->data, (size_t)it->bytes);
    for (const unsigned char *p = it->data; it->swapped && p < it->data + it->bytes;
         p += n, to += n)
        for (size_t i = 0; i < n; i++) to[i] = p[n - 1 - i];
}

// Returns a tensor of these sizes on the entry's bytes in the mapping, or, if they are big-endian
// or not aligned for their dtype, on a copy. The mapping is unmapped when the last tensor on it is
// gone.
static tn_tensor *borrow_entry(tn_file *f, const char *op, const tni_file_entry *it,
                               const int64_t *size)
{
    tn_ctx  *cx = f->owned.cx;
    tn_dtype dt = (tn_dtype)it->as;
    size_t n = tni_dtype_size(tni_part_dtype(dt));  // each part is aligned, and swapped, by itself
    if (!it->swapped && (uintptr_t)it->data % n == 0) {
        tni_mapping *m = f->part[it->part].map;
        m->refs++;
        return tn_borrow(cx, dt, it->rank, size, (void *)(uintptr_t)it->data, release_mapping, m);
    }
    void *block = tni_alloc64(&cx->heap, (size_t)it->bytes);
    if (!block) return tni_fail_memory(cx, op);
    copy_elements(block, n, it);
    return tn_borrow(cx, dt, it->rank, size, block, release_block, &cx->heap);
}

// Returns whether all bytes are 0 or 1: kernels rely on it.
static bool bools_ok(const tni_file_entry *it)
{
    unsigned char all = 0;
    for (int64_t i = 0; i < it->bytes; i++) all |= it->data[i];
    return all <= 1;
}

// An array in Fortran order is read as its transpose, whose axes are then permuted back: a view,
// not a copy.
tn_tensor *tni_file_entry_tensor(tn_file *f, const char *op, const tni_file_entry *it)
{
    tn_ctx  *cx   = f->owned.cx;
    tni_text name = *it->name ? tni_quoted(it->name) : (tni_text){ "the array" };
    if (it->as < 0)
        return tni_fail(cx, TN_EDTYPE, "%s: %s: %s is of dtype %s, which Tenon does not have", op,
                        f->part[it->part].path, name.s, it->dtype);
    if (it->as == TN_BOOL && !bools_ok(it))
        return tni_fail(cx, TN_EFORMAT, "%s: %s: %s has a bool that is neither 0 nor 1", op,
                        f->part[it->part].path, name.s);
    int64_t size[TN_MAX_RANK], turned[TN_MAX_RANK];
    int     axes[TN_MAX_RANK], rank = it->rank;
    tni_file_entry_sizes(it, size);
    if (!it->fortran || rank < 2) return borrow_entry(f, op, it, size);

    for (int i = 0; i < rank; i++) {
        turned[i] = size[rank - 1 - i];
        axes[i]   = rank - 1 - i;
    }
    tn_tensor *t = borrow_entry(f, op, it, turned);
    return t ? tn_permute(t, rank, axes) : NULL;
}

// ---- out ---------------------------------------------------------------------------------------

// Avoids a copy if the device's memory is the host's and the elements are contiguous.
bool tni_bytes_borrow(const char *op, tn_tensor *t, tni_bytes *b)
{
    tn_ctx  *cx    = t->cx;
    tn_dtype dt    = tn_dtype_of(t);
    int64_t  count = tn_count(t);
    *b             = (tni_bytes){ .data = "", .bytes = (size_t)count * tni_element_size(dt) };
    if (!b->bytes) return true;
    if (cx->engine->device->memory->host && tn_is_contiguous(t)) {
        b->data = tn_ptr(t);
        return b->data != NULL;
    }
    b->data = b->copy = tni_alloc64(&cx->heap, b->bytes);
    if (!b->copy) return tni_no_memory(cx, op);
    if (tn_read(t, dt, b->copy, count) == TN_OK) return true;
    tni_bytes_return(cx, b);
    return false;
}

void tni_bytes_return(tn_ctx *cx, tni_bytes *b)
{
    if (b->copy) tni_free64(&cx->heap, b->copy);
}

bool tni_elements_write(tni_outfile *out, const char *op, tn_tensor *t)
{
    tni_bytes b;
    if (!tni_bytes_borrow(op, t, &b)) return false;
    bool ok = tni_outfile_write(out, b.data, b.bytes);
    tni_bytes_return(t->cx, &b);
    return ok;
}
