// Memory shared with other libraries by DLPack's structs, both ways.
//
// An export pins the buffer of a computed value: no evaluation writes over a buffer that others
// refer to, so what is exported stays as it is without a copy, while the tensor may be written or
// die. The consumer's deleter may run on any thread; it only puts the export on a list, from which
// the owner thread takes it (tni_exports_reclaim).
//
// Borrowing is tn_borrow. Memory with strides is borrowed as the span that it lies in, of which the
// result is a view.
#include "ops/complex.h"
#include "engine/observer.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

// A value that is exported. buf or copy holds its elements (neither, if there are none). The struct
// that the consumer gets is inside, so that the consumer's deleter and ours free nothing twice. It
// is memory of malloc, which may be touched on any thread.
struct tni_export {
    tn_ctx           *cx;
    tni_export       *next;  // in tni_exports.back
    tni_buffer       *buf;
    void             *copy;
    void             *stream;  // of the consumer; NULL: unknown
    int64_t           shape[TN_MAX_RANK], strides[TN_MAX_RANK];
    tn_dl_managed     managed;
    tn_dl_unversioned unversioned;
};

// ---- dtypes ------------------------------------------------------------------------------------

enum { INT, UINT, FLOAT, HANDLE, BFLOAT, COMPLEX, BOOL, E4M3FN = 10, E5M2 = 12 };  // DLPack's codes

static const tn_dl_dtype dl_dtype[] = {
    [TN_BOOL] = { BOOL, 8, 1 },    [TN_U8] = { UINT, 8, 1 },        [TN_I8] = { INT, 8, 1 },
    [TN_I32] = { INT, 32, 1 },     [TN_I64] = { INT, 64, 1 },       [TN_F16] = { FLOAT, 16, 1 },
    [TN_BF16] = { BFLOAT, 16, 1 }, [TN_F32] = { FLOAT, 32, 1 },     [TN_F64] = { FLOAT, 64, 1 },
    [TN_I16] = { INT, 16, 1 },     [TN_U16] = { UINT, 16, 1 },      [TN_U32] = { UINT, 32, 1 },
    [TN_U64] = { UINT, 64, 1 },    [TN_F8_E4M3] = { E4M3FN, 8, 1 }, [TN_F8_E5M2] = { E5M2, 8, 1 },
    [TN_C64] = { COMPLEX, 64, 1 }, [TN_C128] = { COMPLEX, 128, 1 },
};
enum { DTYPES = sizeof dl_dtype / sizeof *dl_dtype };

// "complex64", "int128 x 4", for messages.
static tni_text dtype_text(tn_dl_dtype d)
{
    static const char *const kind[] = { "int",    "uint",    "float", "handle",
                                        "bfloat", "complex", "bool" };
    tni_text                 t      = d.code < sizeof kind / sizeof *kind
                                          ? tni_text_of("%s%d", kind[d.code], d.bits)
                                          : tni_text_of("code %d of %d bits", d.code, d.bits);
    if (d.lanes != 1) tni_text_add(&t, " x %d", d.lanes);
    return t;
}

static bool find_dtype(tn_ctx *cx, tn_dl_dtype d, tn_dtype *dt)
{
    for (int i = 0; i < DTYPES; i++) {
        *dt = (tn_dtype)i;
        if (d.code == dl_dtype[i].code && d.bits == dl_dtype[i].bits && d.lanes == 1) return true;
    }
    return tni_refuse(cx, TN_EDTYPE, "from_dlpack: elements of %s are no dtype here",
                      dtype_text(d).s);
}

// ---- exports -----------------------------------------------------------------------------------

static void give_back(tni_export *l)
{
    _Atomic(tni_export *) *back = &l->cx->engine->exports.back;
    l->next                     = atomic_load(back);
    while (!atomic_compare_exchange_weak(back, &l->next, l)) {}
}

static void delete_managed(tn_dl_managed *m)
{
    if (m) give_back(m->manager);
}

static void delete_unversioned(tn_dl_unversioned *m)
{
    if (m) give_back(m->manager);
}

static void free_export(tn_ctx *cx, tni_export *l)
{
    tni_buffer_unref(&cx->buffers, l->buf);
    free(l->copy);
    free(l);
}

// The consumer's work may still read the memory in its stream: what is written there next comes
// after it.
void tni_exports_reclaim(tn_ctx *cx)
{
    tni_engine *e = cx->engine;
    if (!atomic_load(&e->exports.back)) return;
    tni_export *l   = atomic_exchange(&e->exports.back, NULL);
    tni_text    why = { "" };
    while (l) {
        tni_export *next = l->next;
        if (l->stream && e->events->after_stream)
            e->events->after_stream(e->session, l->stream, &why);
        e->exports.count--;
        free_export(cx, l);
        l = next;
    }
}

int64_t tni_exports_count(const tn_ctx *cx)
{
    int64_t count = cx->engine->exports.count;
    for (const tni_export *l = atomic_load(&cx->engine->exports.back); l; l = l->next) count--;
    return count;
}

// Where a context's memory is, in DLPack's words.
static tn_dl_device device_of(const tni_engine *e)
{
    const char *number = strchr(e->name, ':');
    if (e->device->memory->host) return (tn_dl_device){ TN_DL_CPU, 0 };
    return (tn_dl_device){ TN_DL_CUDA, number ? atoi(number + 1) : 0 };
}

// Copies the value to host memory (host) or to a buffer of its own. False, reported, on failure.
static bool copy_export(tn_ctx *cx, tni_export *l, tni_node *n, bool host, tn_dl_tensor *d)
{
    tn_dtype dt    = (tn_dtype)n->dtype;
    tni_view whole = tni_view_whole(n->rank, n->size);
    size_t   bytes = (size_t)tni_node_count(n) * tni_dtype_size(dt);
    tni_text why   = { "" };
    memcpy(l->strides, whole.stride, sizeof l->strides);
    if (host) {
        d->device = (tn_dl_device){ TN_DL_CPU, 0 };
        d->data = l->copy = malloc(bytes ? bytes : 1);
        if (!d->data) return tni_no_memory(cx, "to_dlpack");
        return tni_value_read(cx, "to_dlpack", n, dt, d->data) == TN_OK;
    }
    l->buf = tni_buffer_new(&cx->buffers, bytes);
    if (!l->buf) return tni_no_memory(cx, "to_dlpack");
    d->data     = l->buf->data;
    tn_status s = bytes ? tni_value_copy(cx, n, dt, d->data, &why) : TN_OK;
    return s == TN_OK || tni_refuse(cx, s, "to_dlpack: %s", why.s);
}

// Pins the memory of a computed value, or copies it. False, reported, on failure.
static bool fill_export(tn_ctx *cx, tni_export *l, tni_node *n, tn_dlpack_opts o, tn_dl_tensor *d)
{
    tni_engine *e       = cx->engine;
    bool        is_host = e->device->memory->host, has_addresses = is_host || e->borrowed->owns;
    bool        to_host = !has_addresses || (o.host && !is_host) || (o.copy && is_host);
    tni_arg     a       = tni_value_arg(e, n);
    int64_t     offset;
    tni_text    why = { "" };
    *d              = (tn_dl_tensor){ .data    = a.data,
                                      .device  = device_of(e),
                                      .ndim    = a.rank,
                                      .dtype   = dl_dtype[a.dtype],
                                      .shape   = l->shape,
                                      .strides = l->strides };
    memcpy(l->shape, a.size, sizeof l->shape);
    memcpy(l->strides, a.stride, sizeof l->strides);
    if (to_host || o.copy) {
        if (!copy_export(cx, l, n, to_host, d)) return false;
    } else {
        l->buf = tni_node_base(n, &offset)->buf;
        l->buf->refs++;
    }
    if (!tni_node_count(n)) d->data = NULL;
    if (!o.stream || d->device.type == TN_DL_CPU || !e->events->before_stream) return true;
    l->stream   = o.stream;
    tn_status s = e->events->before_stream(e->session, o.stream, &why);
    return s == TN_OK || tni_refuse(cx, s, "to_dlpack: %s", why.s);
}

// Evaluates t and makes the structs of both versions, of which the consumer gets one.
static tni_export *export_value(tn_tensor *t, tn_dlpack_opts o)
{
    tn_ctx *cx = tni_arg1_any("to_dlpack", t, "t");
    if (!cx) return NULL;
    tni_exports_reclaim(cx);
    tni_node   *n = tni_value(t, "to_dlpack");
    tni_export *l = n ? calloc(1, sizeof *l) : NULL;
    if (!l) return n ? tni_fail_memory(cx, "to_dlpack") : NULL;
    l->cx = cx;
    if (!fill_export(cx, l, n, o, &l->managed.tensor)) {
        free_export(cx, l);
        return NULL;
    }
    if (t->complex) {  // a pair is one element
        l->managed.tensor.dtype = dl_dtype[tn_dtype_of(t)];
        l->managed.tensor.ndim--;
        for (int i = 0; i < l->managed.tensor.ndim; i++) l->strides[i] /= 2;
    }
    l->managed.major       = TN_DL_MAJOR;
    l->managed.minor       = TN_DL_MINOR;
    l->managed.flags       = o.copy    ? TN_DL_COPIED
                             : l->copy ? TN_DL_COPIED | TN_DL_READ_ONLY
                                       : TN_DL_READ_ONLY;
    l->managed.manager     = l;
    l->managed.deleter     = delete_managed;
    l->unversioned.tensor  = l->managed.tensor;
    l->unversioned.manager = l;
    l->unversioned.deleter = delete_unversioned;
    cx->engine->exports.count++;
    return l;
}

tn_dl_managed *tn_to_dlpack(tn_tensor *t, tn_dlpack_opts o)
{
    tni_export *l = export_value(t, o);
    return l ? &l->managed : NULL;
}

tn_dl_unversioned *tn_to_dlpack_unversioned(tn_tensor *t, tn_dlpack_opts o)
{
    tni_export *l = export_value(t, o);
    return l ? &l->unversioned : NULL;
}

// ---- borrowing ---------------------------------------------------------------------------------

typedef void release_fn(void *data, void *user);

// The deleters as tn_borrow takes them. A struct without one is the caller's, who keeps the memory;
// nothing waits when the tensor dies.
static void release_managed(void *data, void *user)
{
    tn_dl_managed *m = user;
    (void)data;
    m->deleter(m);
}

static void release_unversioned(void *data, void *user)
{
    tn_dl_unversioned *m = user;
    (void)data;
    m->deleter(m);
}

// Runs a user's function, during which the context refuses to be closed.
static void release_now(tn_ctx *cx, release_fn *release, void *user)
{
    cx->nested++;
    if (release) release(NULL, user);
    cx->nested--;
}

// Whether a context can read memory of a device; else reported. CUDA's host memory is ordinary to
// the host.
static bool device_ok(tn_ctx *cx, tn_dl_device d)
{
    const tni_engine *e       = cx->engine;
    tn_dl_device      here    = device_of(e);
    bool              has_gpu = !e->device->memory->host && e->borrowed->owns;
    if (d.type == TN_DL_CPU || d.type == TN_DL_CUDA_HOST) return true;
    if (has_gpu && (d.type == TN_DL_CUDA || d.type == TN_DL_CUDA_MANAGED) && d.id == here.id)
        return true;
    return tni_refuse(
        cx, TN_EDEVICE,
        "from_dlpack: memory of DLPack's device type %d, number %d, cannot be read on %s",
        (int)d.type, (int)d.id, e->name);
}

// Reads shape and strides of d into v, whose offset is 0. False, reported, if they are impossible.
static bool read_layout(tn_ctx *cx, const tn_dl_tensor *d, tni_view *v)
{
    if (d->ndim < 0 || d->ndim > TN_MAX_RANK)
        return tni_refuse(cx, TN_ESHAPE, "from_dlpack: a tensor has at most %d axes, not %d",
                          (int)TN_MAX_RANK, (int)d->ndim);
    if (d->ndim && !d->shape) return tni_refuse(cx, TN_EARG, "from_dlpack: the shape is missing");
    if (!tni_shape_ok(cx, "from_dlpack", d->ndim, d->shape)) return false;
    *v = tni_view_whole(d->ndim, d->shape);
    for (int i = 0; i < d->ndim && d->strides; i++)
        if (d->shape[i] > 1) v->stride[i] = d->strides[i];
    return true;
}

// The elements before and after the first one that strides reach. False if they do not fit into 64
// bits.
static bool find_span(const tni_view *v, int64_t *before, int64_t *after)
{
    *before = *after = 0;
    for (int i = 0; i < v->rank; i++) {
        int64_t reach;
        if (__builtin_mul_overflow(v->size[i] - 1, v->stride[i], &reach)) return false;
        if (__builtin_add_overflow(reach < 0 ? *before : *after, reach, reach < 0 ? before : after))
            return false;
    }
    return *after < INT64_MAX / 16 && *before > -INT64_MAX / 16;
}

// Copies elements of host memory to row-major memory.
static void pack(const tni_view *v, size_t bytes, const char *from, char *to)
{
    int64_t at[TN_MAX_RANK] = { 0 }, count = tni_shape_count(v->rank, v->size);
    for (int64_t k = 0; k < count; k++) {
        memcpy(to + (size_t)k * bytes, from, bytes);
        for (int i = v->rank - 1; i >= 0; i--) {
            from += v->stride[i] * (int64_t)bytes;
            if (++at[i] < v->size[i]) break;
            from -= v->size[i] * v->stride[i] * (int64_t)bytes;
            at[i] = 0;
        }
    }
}

// A copy of host memory that cannot be read in place: another device's, or not aligned.
static tn_tensor *copy_packed(tn_ctx *cx, tn_dtype dt, const tni_view *v, const char *data)
{
    size_t bytes  = tni_dtype_size(dt);
    char  *packed = tni_alloc(&cx->heap, (size_t)tni_shape_count(v->rank, v->size) * bytes + 1);
    if (!packed) return tni_fail_memory(cx, "from_dlpack");
    pack(v, bytes, data, packed);
    tn_tensor *t = tn_from(cx, dt, v->rank, v->size, packed);
    tni_free(&cx->heap, packed);
    return t;
}

// Borrows the span that the elements lie in, and views it. On failure the memory is released.
static tn_tensor *borrow_span(tn_ctx *cx, tn_dtype dt, tni_view *v, char *data, release_fn *release,
                              void *user)
{
    int64_t before = 0, after = 0;
    if (!find_span(v, &before, &after)) {
        tni_fail(cx, TN_EARG, "from_dlpack: the strides reach beyond any memory");
        release_now(cx, release, user);
        return NULL;
    }
    int64_t    span = after - before + 1;
    tn_tensor *base = tn_borrow(cx, dt, 1, &span, data + before * (int64_t)tni_dtype_size(dt),
                                release, user);
    tni_node  *b    = base ? tni_resolve(base, "from_dlpack") : NULL;
    v->offset       = -before;
    tni_node  *n    = b ? tni_node_view(cx, b, v) : NULL;
    tn_tensor *t    = n ? tni_wrap_node(cx, n) : NULL;
    if (n) tni_node_unref(cx, n);
    if (base) tni_tensor_free(base);
    return t;
}

// The layout of complex elements as pairs of their parts. False, reported, if that is an axis too
// many.
static bool as_pairs(tn_ctx *cx, tni_view *v, tn_dtype *dt)
{
    if (!tni_is_complex(*dt)) return true;
    if (v->rank == TN_MAX_RANK)
        return tni_refuse(cx, TN_ESHAPE, "from_dlpack: a tensor of %s has at most %d axes",
                          tn_dtype_name(*dt), TN_MAX_RANK - 1);
    for (int i = 0; i < v->rank; i++) v->stride[i] *= 2;
    v->size[v->rank]     = 2;
    v->stride[v->rank++] = 1;
    *dt                  = tni_part_dtype(*dt);
    return true;
}

// Makes the tensor of d, of complex elements as pairs. release(_, user) is called once, when its
// memory is no longer used or on failure.
static tn_tensor *borrow_parts(tn_ctx *cx, const tn_dl_tensor *d, release_fn *release, void *user)
{
    tn_dtype dt;
    tni_view v;
    bool     here = false;
    char    *data = d->data ? (char *)d->data + d->byte_offset : NULL;
    bool ok = device_ok(cx, d->device) && find_dtype(cx, d->dtype, &dt) && read_layout(cx, d, &v) &&
              as_pairs(cx, &v, &dt);
    int64_t count = ok ? tni_shape_count(v.rank, v.size) : 0;
    if (ok && count && !data) ok = tni_refuse(cx, TN_EARG, "from_dlpack: the data is missing");
    bool on_host = d->device.type == TN_DL_CPU || d->device.type == TN_DL_CUDA_HOST;
    if (ok && on_host)
        here = cx->engine->device->memory->host && (uintptr_t)data % tni_dtype_size(dt) == 0;
    else here = ok;
    tn_tensor *t = NULL;
    if (ok && count && here && !tni_view_contiguous(&v))
        return borrow_span(cx, dt, &v, data, release, user);
    if (ok && count && here) return tn_borrow(cx, dt, v.rank, v.size, data, release, user);
    if (ok) t = count ? copy_packed(cx, dt, &v, data) : tn_zeros(cx, dt, v.rank, v.size);
    release_now(cx, release, user);
    return t;
}

static tn_tensor *borrow(tn_ctx *cx, const tn_dl_tensor *d, release_fn *release, void *user)
{
    bool       complex = d->dtype.code == COMPLEX;  // d may be gone afterwards
    tn_tensor *t       = borrow_parts(cx, d, release, user);
    return complex ? tni_as_complex(t) : t;
}

tn_tensor *tn_from_dlpack(tn_ctx *cx, tn_dl_managed *m)
{
    bool ok = tni_ctx_ok(cx, "from_dlpack");
    if (!m) return ok ? tni_fail(cx, TN_EARG, "from_dlpack: m is NULL") : NULL;
    // Of another major version only the deleter is where it is here.
    if (ok && m->major == TN_DL_MAJOR)
        return borrow(cx, &m->tensor, m->deleter ? release_managed : NULL, m);
    if (ok)
        tni_fail(cx, TN_EARG, "from_dlpack: version %u.%u of DLPack is not known here", m->major,
                 m->minor);
    if (m->deleter) m->deleter(m);
    return NULL;
}

tn_tensor *tn_from_dlpack_unversioned(tn_ctx *cx, tn_dl_unversioned *m)
{
    bool ok = tni_ctx_ok(cx, "from_dlpack");
    if (!m) return ok ? tni_fail(cx, TN_EARG, "from_dlpack: m is NULL") : NULL;
    if (ok) return borrow(cx, &m->tensor, m->deleter ? release_unversioned : NULL, m);
    if (m->deleter) m->deleter(m);
    return NULL;
}

// ---- streams -----------------------------------------------------------------------------------

void *tn_ctx_stream(const tn_ctx *cx)
{
    if (!cx || cx->magic != TNI_CTX_LIVE) return NULL;
    const tni_engine *e = cx->engine;
    return e->events->stream ? e->events->stream(e->session) : NULL;
}

tn_status tn_ctx_wait_stream(tn_ctx *cx, void *stream)
{
    if (!tni_ctx_ok(cx, "ctx_wait_stream")) return tni_failed();
    const tni_engine *e   = cx->engine;
    tni_text          why = { "" };
    tn_status s = e->events->after_stream ? e->events->after_stream(e->session, stream, &why)
                                          : TN_OK;
    return s == TN_OK ? s : tni_fail_status(cx, s, "ctx_wait_stream: %s", why.s);
}

tn_status tn_ctx_use_stream(tn_ctx *cx, void *stream)
{
    if (!tni_ctx_ok(cx, "ctx_use_stream")) return tni_failed();
    const tni_engine *e   = cx->engine;
    tni_text          why = { "" };
    tn_status s = e->events->use_stream ? e->events->use_stream(e->session, stream, &why) : TN_OK;
    return s == TN_OK ? s : tni_fail_status(cx, s, "ctx_use_stream: %s", why.s);
}

tn_status tn_ctx_signal_stream(tn_ctx *cx, void *stream)
{
    if (!tni_ctx_ok(cx, "ctx_signal_stream")) return tni_failed();
    const tni_engine *e   = cx->engine;
    tni_text          why = { "" };
    tn_status s = e->events->before_stream ? e->events->before_stream(e->session, stream, &why)
                                           : TN_OK;
    return s == TN_OK ? s : tni_fail_status(cx, s, "ctx_signal_stream: %s", why.s);
}
