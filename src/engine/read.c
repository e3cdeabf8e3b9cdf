// Values in and out: from host memory, to host memory, between contexts.
//
// Apart from tn_sync, reading is what waits for the device: tn_read, tn_item and tn_ptr evaluate
// the value, copy it, and check for errors that the device reports late.
#include "engine/observer.h"
#include "ops/complex.h"

#include <math.h>
#include <string.h>

// ---- in ----------------------------------------------------------------------------------------

// Checks a shape, a dtype and data, which may be NULL only if there are no elements. False,
// reported.
static bool can_copy_in(tn_ctx *cx, const char *op, tn_dtype dt, int rank, const int64_t *size,
                        const void *data)
{
    if (!tni_can_make(cx, op, dt, rank, size)) return false;
    if (data || tni_shape_count(rank, size) == 0) return true;
    tni_fail(cx, TN_EARG, "%s: data is NULL for shape %s", op, tni_shape_text(rank, size).s);
    return false;
}

// Returns a tensor whose value is in a buffer, whose reference it takes over.
static tn_tensor *make_leaf(tn_ctx *cx, tn_dtype dt, int rank, const int64_t *size, tni_buffer *b)
{
    tni_node *n = tni_node_in_buffer(cx, dt, rank, size, b, 0);
    tni_buffer_unref(&cx->buffers, b);
    return tni_wrap(cx, n);
}

// Returns memory for a value, or NULL, reported.
static tni_buffer *new_upload(tn_ctx *cx, const char *op, tn_dtype dt, int rank,
                              const int64_t *size, size_t bytes)
{
    tni_buffer *b = tni_buffer_new_upload(&cx->buffers, bytes);
    if (b) return b;
    tni_text what = tni_text_of("%s of %s", tni_shape_text(rank, size).s, tn_dtype_name(dt));
    return cx->engine->observer->out_of_memory(cx, op, what.s, (int64_t)bytes);
}

// Returns a tensor with a copy of host elements. copy, if not NULL: data is pinned memory, and
// *copy gets the number of its copy, which is not waited for. The block may still be used by
// earlier work, so the upload is ordered after that (upload_after).
static tn_tensor *copy_in(tn_ctx *cx, const char *op, tn_dtype dt, int rank, const int64_t *size,
                          const void *data, uint64_t *copy)
{
    const tni_engine *e     = cx->engine;
    int64_t           count = tni_shape_count(rank, size);
    size_t            bytes = (size_t)count * e->device->memory->element_size(dt);
    tni_buffer       *b     = new_upload(cx, op, dt, rank, size, bytes);
    if (!b) return NULL;
    tni_text  why   = { "" };
    tn_status s     = TN_OK;
    double    since = tni_host_clock(cx);
    if (count && e->events->upload_after) e->events->upload_after(e->session, b->last);
    if (count && copy) s = e->pinned->upload(e->session, b->data, dt, data, count, copy, &why);
    else if (count) s = e->device->memory->upload(e->session, b->data, dt, data, count, &why);
    if (s != TN_OK) {
        tni_buffer_unref(&cx->buffers, b);
        return tni_fail(cx, s, "%s: %s", op, why.s);
    }
    tni_host_worked(cx, TNI_HOST_UPLOAD, (int64_t)bytes, since);
    cx->stats.copies++;
    return make_leaf(cx, dt, rank, size, b);
}

// Puts the axis of the pairs behind a shape, and returns the rank with it; false, reported, if the
// shape is wrong. Complex elements are then read as those of their parts.
static int pair_shape(tn_ctx *cx, const char *op, int rank, const int64_t *size, int64_t *pairs)
{
    if (!tni_ctx_ok(cx, op) || !tni_rank_ok_of(cx, op, true, rank, size)) return -1;
    if (rank) memcpy(pairs, size, (size_t)rank * sizeof *size);
    pairs[rank] = 2;
    return rank + 1;
}

tn_tensor *tn_from(tn_ctx *cx, tn_dtype dt, int rank, const int64_t *size, const void *data)
{
    if (tni_is_complex(dt)) {
        int64_t pairs[TN_MAX_RANK];
        int     r = pair_shape(cx, "from", rank, size, pairs);
        return r < 0 ? NULL : tni_as_complex(tn_from(cx, tni_part_dtype(dt), r, pairs, data));
    }
    if (!can_copy_in(cx, "from", dt, rank, size, data)) return NULL;
    return copy_in(cx, "from", dt, rank, size, data, NULL);
}

tn_tensor *tni_from_pinned(tn_ctx *cx, const char *op, tn_dtype dt, int rank, const int64_t *size,
                           const void *data, uint64_t *copy)
{
    return can_copy_in(cx, op, dt, rank, size, data) ? copy_in(cx, op, dt, rank, size, data, copy)
                                                     : NULL;
}

// Where the host reaches the device's memory, the elements are written there: a file is read to
// where it is used, and no second copy of it is ever in memory.
tn_tensor *tni_from_filled(tn_ctx *cx, const char *op, tn_dtype dt, int rank, const int64_t *size,
                           bool (*fill)(void *to, size_t bytes, void *user), void *user)
{
    if (!can_copy_in(cx, op, dt, rank, size, &dt)) return NULL;
    size_t bytes = (size_t)tni_shape_count(rank, size) * tni_dtype_size(dt);
    if (cx->engine->device->memory->host) {
        tni_buffer *b = new_upload(cx, op, dt, rank, size, bytes);
        if (b && fill(b->data, bytes, user)) return make_leaf(cx, dt, rank, size, b);
        tni_buffer_unref(&cx->buffers, b);
        return NULL;
    }
    void      *copy = tni_alloc_block(&cx->heap, bytes + 1);
    tn_tensor *t    = NULL;
    if (!copy) return tni_fail_memory(cx, op);
    if (fill(copy, bytes, user)) t = copy_in(cx, op, dt, rank, size, copy, NULL);
    tni_free_block(&cx->heap, copy);
    return t;
}

bool tni_can_borrow(tn_ctx *cx, const char *op, tn_dtype dt, int64_t count, const void *data,
                    bool *here)
{
    const tni_device *dev  = cx->engine->device;
    size_t            size = dev->memory->element_size(dt);
    tni_text          why  = { "" };
    *here                  = dev->memory->host;
    if (*here || !cx->engine->borrowed->owns || !count) return true;
    tn_status s = cx->engine->borrowed->owns(cx->engine->session, data, (size_t)count * size, here,
                                             &why);
    if (s == TN_OK && *here && (uintptr_t)data % size) {
        s = TN_EARG;
        tni_text_add(&why, "data is not aligned to its element size of %zu bytes", size);
    }
    return s == TN_OK || tni_refuse(cx, s, "%s: %s", op, why.s);
}

// The memory is released at once if it was copied, or if nothing came of it; that runs the caller's
// function, during which the context refuses to be closed (nested).
tn_tensor *tn_borrow(tn_ctx *cx, tn_dtype dt, int rank, const int64_t *size, void *data,
                     void (*release)(void *data, void *user), void *user)
{
    int64_t pairs[TN_MAX_RANK];
    int     r = tni_is_complex(dt) ? pair_shape(cx, "borrow", rank, size, pairs) : 0;
    if (r > 0)
        return tni_as_complex(tn_borrow(cx, tni_part_dtype(dt), r, pairs, data, release, user));
    tn_tensor  *t  = NULL;
    tni_buffer *b  = NULL;
    bool        ok = !r && can_copy_in(cx, "borrow", dt, rank, size, data);
    if (ok) {
        bool here;
        if (!tni_can_borrow(cx, "borrow", dt, tni_shape_count(rank, size), data, &here)) {
            t = NULL;
        } else if (here) {
            b = tni_buffer_borrow(&cx->buffers, data, release, user);
            t = b ? make_leaf(cx, dt, rank, size, b) : tni_fail_memory(cx, "borrow");
        } else {
            t = copy_in(cx, "borrow", dt, rank, size, data, NULL);
        }
    }
    if (ok) cx->nested++;
    if (!b && release) release(data, user);
    if (ok) cx->nested--;
    return t;
}

// ---- out ---------------------------------------------------------------------------------------

tni_node *tni_value(tn_tensor *t, const char *op)
{
    tni_node *n = tni_resolve(t, op);
    if (!n) return NULL;
    // Evaluating can drop the cached view of the handle, which may hold the only reference.
    tni_node_ref(n);
    bool ok = tni_evaluate(t->cx, TNI_READ, n) == TN_OK && n->state == TNI_DONE;
    n->refs--;
    return ok ? n : NULL;
}

// A view is read in its base's buffer: its strides, and the offsets of the views on the path to the
// base.
tni_arg tni_value_arg(const tni_engine *e, tni_node *n)
{
    int64_t   offset;
    tni_view  v    = tni_node_layout(n);
    tni_node *base = tni_node_base(n, &offset);
    tni_arg   a    = { .dtype = (tn_dtype)n->dtype, .rank = v.rank };
    memcpy(a.size, v.size, sizeof a.size);
    memcpy(a.stride, v.stride, sizeof a.stride);
    offset += base->start;
    a.data = base->buf->data + offset * (int64_t)e->device->memory->element_size(a.dtype);
    return a;
}

// One call of the device's copy or cast, which is in order with all other work.
tn_status tni_arg_copy(tn_ctx *cx, tni_arg from, tn_dtype dt, void *to, tni_text *why)
{
    static const tni_attr none;
    tni_engine           *e     = cx->engine;
    tni_view              whole = tni_view_whole(from.rank, from.size);
    tni_call              call  = { .device            = e->device,
                                    .session           = e->session,
                                    .op                = dt == from.dtype ? TNI_copy : TNI_cast,
                                    .nin               = 1,
                                    .in                = &from,
                                    .out               = from,
                                    .attr              = &none,
                                    .threads           = e->threads,
                                    .wait_for_compiler = tni_waits_for_compiler(e),
                                    .why               = why };
    call.out.dtype              = dt;
    call.out.data               = to;
    memcpy(call.out.stride, whole.stride, sizeof whole.stride);
    return tni_call_run(&call);
}

tn_status tni_value_copy(tn_ctx *cx, tni_node *n, tn_dtype dt, void *to, tni_text *why)
{
    return tni_arg_copy(cx, tni_value_arg(cx->engine, n), dt, to, why);
}

// Copies row-major elements of the device to the host. A profile counts the wait for them.
static tn_status download(tn_ctx *cx, tn_dtype dt, const char *from, int64_t count, void *dst,
                          tni_text *why)
{
    const tni_engine *e     = cx->engine;
    double            since = tni_host_clock(cx);
    tn_status         s     = e->device->memory->download(e->session, dst, dt, from, count, why);
    tni_host_worked(cx, TNI_HOST_DOWNLOAD, count * (int64_t)tni_dtype_size(dt), since);
    return s;
}

// A value that is not row-major or has another dtype is copied or cast on the device first.
tn_status tni_value_read(tn_ctx *cx, const char *op, tni_node *n, tn_dtype dt, void *dst)
{
    tni_engine *e     = cx->engine;
    tni_arg     from  = tni_value_arg(e, n);
    tni_view    v     = tni_node_layout(n);
    int64_t     count = tni_node_count(n);
    cx->stats.copies++;
    if (!count) return TN_OK;
    tni_text why = { "" };
    if (dt == from.dtype && tni_view_contiguous(&v)) {
        tn_status s = download(cx, dt, from.data, count, dst, &why);
        return s == TN_OK ? tni_deferred_errors_check(cx)
                          : tni_fail_status(cx, s, "%s: %s", op, why.s);
    }
    tni_buffer *b = tni_buffer_new(&cx->buffers,
                                   (size_t)count * e->device->memory->element_size(dt));
    if (!b) {
        e->observer->out_of_memory(cx, op, "a copy",
                                   count * (int64_t)e->device->memory->element_size(dt));
        return tni_failed();
    }
    tn_status s = tni_value_copy(cx, n, dt, b->data, &why);
    if (s == TN_OK) s = download(cx, dt, b->data, count, dst, &why);
    tni_buffer_unref(&cx->buffers, b);
    return s == TN_OK ? tni_deferred_errors_check(cx) : tni_fail_status(cx, s, "%s: %s", op, why.s);
}

// The count is checked before anything is evaluated, so that a wrong call costs and changes
// nothing.
tn_status tn_read(tn_tensor *t, tn_dtype dt, void *dst, int64_t count)
{
    tn_ctx *cx = tni_arg1_any("read", t, "t");
    if (!cx) return tni_failed();
    if ((t->complex || tni_is_complex(dt)) && count == tn_count(t)) {
        if (t->complex != tni_is_complex(dt) && !(t = tn_cast(t, dt))) return tni_failed();
        return tn_read(tni_pairs(t), tni_part_dtype(dt), dst, 2 * count);
    }
    if (!tni_dtype_ok(dt) && !tni_is_complex(dt))
        return tni_fail_status(cx, TN_EDTYPE, "read: %d is not a dtype", (int)dt);
    if (count != tn_count(t) || (count && !dst))
        return tni_fail_status(cx, TN_EARG,
                               "read: dst has room for %lld elements, but t %s has %lld",
                               dst ? (long long)count : 0, tni_shape_of(t).s,
                               (long long)tn_count(t));
    cx->stats.syncs++;
    tni_node *n = tni_value(t, "read");
    return n ? tni_value_read(cx, "read", n, dt, dst) : tni_failed();
}

// Reads the only element of t as dt; false, reported, if it has another number of elements.
static bool read_item(tn_tensor *t, const char *op, tn_dtype dt, void *dst)
{
    tn_ctx *cx = tni_arg1(op, t, "t");
    if (!cx) return false;
    if (tn_count(t) != 1) {
        tni_fail(cx, TN_ESHAPE, "%s: t %s is not one element", op, tni_shape_of(t).s);
        return false;
    }
    cx->stats.syncs++;
    tni_node *n = tni_value(t, op);
    return n && tni_value_read(cx, op, n, dt, dst) == TN_OK;
}

double tn_item(tn_tensor *t)
{
    double v;
    return read_item(t, "item", TN_F64, &v) ? v : NAN;
}

int64_t tn_item_i64(tn_tensor *t)
{
    int64_t v;
    return read_item(t, "item_i64", TN_I64, &v) ? v : 0;
}

// On a device whose memory the host cannot read this is a device address; the caller gets it only
// once all work that writes it is done.
const void *tn_ptr(tn_tensor *t)
{
    tn_ctx *cx = tni_arg1_any("ptr", t, "t");
    if (!cx) return NULL;
    const tni_device *d = cx->engine->device;
    if (!d->memory->host && !cx->engine->borrowed->owns)
        return tni_fail(cx, TN_EDEVICE, "ptr: values of device %s have no address; see tn_read",
                        d->name);
    tni_node *n = tni_value(t, "ptr");
    if (!n || (!d->memory->host && tn_sync(cx) != TN_OK)) return NULL;
    return tni_value_arg(cx->engine, n).data;
}

// ---- into a caller's memory --------------------------------------------------------------------

// Kernels store vectors, so their results begin at multiples of this, as in memory of our own.
enum { INTO_ALIGNED = 64 };

// Copies a computed value to where it was asked for, unless it is there.
static tn_status put_value(tn_ctx *cx, tni_node *n, void *data, bool here)
{
    tni_text why = { "" };
    tn_dtype dt  = (tn_dtype)n->dtype;
    tni_arg  is  = tni_value_arg(cx->engine, n);
    if (!tni_node_count(n) || is.data == data) return TN_OK;
    if (!here) return tni_value_read(cx, "eval_into", n, dt, data);
    cx->stats.copies++;
    tn_status s = tni_value_copy(cx, n, dt, data, &why);
    return s == TN_OK ? s : tni_fail_status(cx, s, "eval_into: %s", why.s);
}

// Values that go to a caller's memory: here[i]: the device can use data[i]; into: of which it is
// used in place.
typedef struct {
    int               n;
    tn_tensor *const *t;
    void *const      *data;
    void (*release)(void *data, void *user);
    void     *user;
    bool     *here;
    tni_into *into;
    size_t    intos;
} destination;

// Makes buffers over the caller's memory for what is not computed yet. False, reported, on failure.
static bool place_results(tn_ctx *cx, destination *d)
{
    for (int i = 0; i < d->n; i++) {
        tni_node *v     = tni_resolve(d->t[i], "eval_into");
        int64_t   count = v ? tni_node_count(v) : 0;
        if (!v ||
            !tni_can_borrow(cx, "eval_into", (tn_dtype)v->dtype, count, d->data[i], &d->here[i]))
            return false;
        if (!d->here[i] || v->state != TNI_PENDING || (uintptr_t)d->data[i] % INTO_ALIGNED)
            continue;
        tni_buffer *b = tni_buffer_borrow(&cx->buffers, d->data[i], d->release, d->user);
        if (!b) return tni_no_memory(cx, "eval_into");
        d->into[d->intos++] = (tni_into){ v, b };
    }
    return true;
}

// Evaluates t[0], or everything pending if there are several.
static tn_status eval_there(tn_ctx *cx, const destination *d)
{
    tn_status s       = TN_OK;
    cx->engine->into  = d->into;
    cx->engine->intos = d->intos;
    for (int i = 0; i < d->n; i++) d->t[i]->store->wanted = true;
    if (d->n > 1) s = tn_eval(cx);
    else if (!tni_value(d->t[0], "eval_into")) s = tni_failed();
    cx->engine->into  = NULL;
    cx->engine->intos = 0;
    return s;
}

// Returns the caller's memory that no buffer is over.
static void release_rest(tn_ctx *cx, const destination *d)
{
    cx->nested++;
    for (int i = 0; i < d->n && d->release; i++) {
        bool used = false;
        for (size_t k = 0; k < d->intos; k++) used = used || d->into[k].memory->data == d->data[i];
        if (!used) d->release(d->data[i], d->user);
    }
    cx->nested--;
}

static tn_status put_values(tn_ctx *cx, destination *d)
{
    tn_status s = place_results(cx, d) ? eval_there(cx, d) : tni_failed();
    for (int i = 0; i < d->n && s == TN_OK; i++) {
        tni_node *v = tni_value(d->t[i], "eval_into");
        s           = v ? put_value(cx, v, d->data[i], d->here[i]) : tni_failed();
    }
    release_rest(cx, d);
    for (size_t i = 0; i < d->intos; i++) tni_buffer_unref(&cx->buffers, d->into[i].memory);
    return s;
}

// A value that was computed before, is a view, or is written over an input's memory is copied after
// all.
tn_status tn_eval_into(int n, tn_tensor *const *t, void *const *data,
                       void (*release)(void *data, void *user), void *user)
{
    destination d  = { n, t, data, release, user, NULL, NULL, 0 };
    tn_ctx     *cx = n > 0 && t ? tni_arg1_any("eval_into", t[0], "t[0]") : NULL;
    tn_status   s  = cx || n == 0 ? TN_OK : tni_failed();
    for (int i = 0; i < n && s == TN_OK; i++)
        if (tni_arg1_any("eval_into", t[i], "t") != cx || !data || (!data[i] && tn_count(t[i])))
            s = tni_fail_status(cx, TN_EARG, "eval_into: t[%d] or data[%d] is missing", i, i);
    if (s == TN_OK && n) {
        d.into = tni_alloc(&cx->heap, (size_t)n * sizeof *d.into);
        d.here = tni_zalloc(&cx->heap, (size_t)n);
        if (d.into && d.here) {
            s = put_values(cx, &d);
            tni_free(&cx->heap, d.into);
            tni_free(&cx->heap, d.here);
            return s;
        }
        tni_free(&cx->heap, d.into);
        tni_free(&cx->heap, d.here);
        tni_fail_memory(cx, "eval_into");
        s = TN_EMEM;
    }
    for (int i = 0; i < n && release && data; i++) release(data[i], user);
    return s;
}

tn_status tn_eval_of(tn_tensor *t)
{
    tn_ctx *cx = tni_arg1_any("eval_of", t, "t");
    if (!cx) return tni_failed();
    return tni_value(t, "eval_of") ? TN_OK : tni_failed();
}

// Copies by way of host memory: contexts may be on different devices.
tn_tensor *tn_copy_to(tn_ctx *cx, tn_tensor *t)
{
    tn_ctx *from = tni_arg1_any("copy_to", t, "t");
    if (!from || !tni_ctx_ok(cx, "copy_to")) return NULL;
    if (t->complex) return tni_as_complex(tn_copy_to(cx, tni_pairs(t)));
    tni_view v     = tni_layout(t);
    tn_dtype dt    = tn_dtype_of(t);
    size_t   bytes = (size_t)tn_count(t) * tni_dtype_size(dt);
    void    *host  = tni_alloc(&cx->heap, bytes);
    if (!host) return tni_fail_memory(cx, "copy_to");
    tn_tensor *y = NULL;
    if (tn_read(t, dt, host, tn_count(t)) == TN_OK)
        y = copy_in(cx, "copy_to", dt, v.rank, v.size, host, NULL);
    tni_free(&cx->heap, host);
    return y;
}
