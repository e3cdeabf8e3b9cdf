// Memory shared with other libraries: what is lent stays as it is, what is borrowed is released
// once.
#include "check.h"
#include "engine/engine.h"
#include "host.h"
#include "rules_kit.h"

#include <pthread.h>
#include <string.h>

_Static_assert(sizeof(tn_dl_tensor) == 48 && offsetof(tn_dl_tensor, byte_offset) == 40, "DLTensor");
_Static_assert(sizeof(tn_dl_unversioned) == 64 && offsetof(tn_dl_unversioned, deleter) == 56,
               "DLManagedTensor");
_Static_assert(sizeof(tn_dl_managed) == 80 && offsetof(tn_dl_managed, flags) == 24 &&
                   offsetof(tn_dl_managed, tensor) == 32,
               "DLManagedTensorVersioned");

static tn_ctx *open_cpu(void)
{
    tn_ctx *cx = tn_open("cpu");
    tn_on_error(cx, NULL, NULL);
    return cx;
}

// ---- lending -----------------------------------------------------------------------------------

static void what_is_exported_is_in_place_and_does_not_change(void)
{
    tn_ctx        *cx = open_cpu();
    tn_tensor     *x  = tn_add_s(tn_arange(cx, TN_F32, 0, 12, 1), 0.5);
    tn_tensor     *m  = tn_view(x, TN_SHAPE(3, 4));
    tn_dl_managed *d  = tn_to_dlpack(tn_transpose(m, 0, 1), (tn_dlpack_opts){ 0 });
    float         *p  = d->tensor.data;
    CHECK(d->major == 1 && d->flags == TN_DL_READ_ONLY && d->tensor.device.type == TN_DL_CPU);
    CHECK(d->tensor.dtype.code == 2 && d->tensor.dtype.bits == 32 && d->tensor.dtype.lanes == 1);
    CHECK(d->tensor.ndim == 2 && d->tensor.shape[0] == 4 && d->tensor.shape[1] == 3);
    CHECK(d->tensor.strides[0] == 1 && d->tensor.strides[1] == 4);
    CHECK(p == tn_ptr(x));
    tn_add_s(x, 0);
    tn_add_(x, tn_ones_like(x));
    CHECK_STATUS(tn_eval(cx), TN_OK);
    CHECK(p != tn_ptr(x) && p[0] == 0.5f && p[11] == 11.5f);
    tn_drop(m);
    tn_drop(x);
    for (int i = 0; i < 4; i++) tn_drop(tn_contiguous(tn_full(cx, TN_F32, TN_SHAPE(12), i)));
    CHECK(p[0] == 0.5f && p[11] == 11.5f);
    CHECK_INT(tn_ctx_stats(cx).exported, 1);
    tn_close(cx);
    CHECK_FAILED(cx, TN_EARG, "close: 1 values are exported to other libraries (tn_to_dlpack)");
    d->deleter(d);
    CHECK_INT(tn_ctx_stats(cx).exported, 0);
    tn_close(cx);
}

static void *delete_there(void *d)
{
    ((tn_dl_unversioned *)d)->deleter(d);
    return NULL;
}

static void deleters_run_on_any_thread(void)
{
    enum { THREADS = 4, ROUNDS = 200 };
    tn_ctx *cx = open_cpu();
    for (int i = 0; i < ROUNDS; i++) {
        tn_tensor *x = tn_full(cx, TN_F32, TN_SHAPE(1000), i);
        pthread_t  thread[THREADS];
        for (int k = 0; k < THREADS; k++) {
            tn_dl_unversioned *d = tn_to_dlpack_unversioned(x, (tn_dlpack_opts){ 0 });
            CHECK(((float *)d->tensor.data)[999] == (float)i);
            pthread_create(&thread[k], NULL, delete_there, d);
        }
        tn_drop(x);
        for (int k = 0; k < THREADS; k++) pthread_join(thread[k], NULL);
    }
    CHECK_INT(tn_ctx_stats(cx).exported, 0);
    CHECK_STATUS(tn_eval(cx), TN_OK);  // takes them back
    CHECK_INT(tn_ctx_stats(cx).bytes, 0);
    tn_close(cx);
}

static void a_copy_may_be_written(void)
{
    tn_ctx        *cx = open_cpu();
    tn_tensor     *x  = tn_ones(cx, TN_I16, TN_SHAPE(3));
    tn_dl_managed *d  = tn_to_dlpack(x, (tn_dlpack_opts){ .copy = true });
    CHECK_INT(d->flags, TN_DL_COPIED);
    memset(d->tensor.data, 0, 6);
    CHECK(tn_item(tn_sum_all(x)) == 3);
    d->deleter(d);
    d = tn_to_dlpack(tn_zeros(cx, TN_F64, TN_SHAPE(0, 3)), (tn_dlpack_opts){ 0 });
    CHECK(!d->tensor.data && d->tensor.shape[1] == 3);
    d->deleter(d);
    tn_close(cx);
    // The reference device holds doubles: what it lends is a copy.
    cx = tn_open("ref");
    d  = tn_to_dlpack(tn_full(cx, TN_BF16, TN_SHAPE(2), 1), (tn_dlpack_opts){ 0 });
    CHECK(((uint16_t *)d->tensor.data)[1] == 0x3f80 && d->tensor.dtype.code == 4);
    CHECK_INT(d->flags, TN_DL_COPIED | TN_DL_READ_ONLY);
    d->deleter(d);
    tn_close(cx);
}

// ---- borrowing ---------------------------------------------------------------------------------

static int deleted;

static void count_deletion(tn_dl_managed *m)
{
    (void)m;
    deleted++;
}

static float numbers[24];

static tn_dl_managed lend_numbers(int rank, int64_t *shape, int64_t *strides, int first)
{
    for (int i = 0; i < 24; i++) numbers[i] = (float)i;
    return (tn_dl_managed){ .major   = 1,
                            .deleter = count_deletion,
                            .tensor  = { .data        = numbers,
                                         .device      = { TN_DL_CPU, 0 },
                                         .ndim        = rank,
                                         .dtype       = { 2, 32, 1 },
                                         .shape       = shape,
                                         .strides     = strides,
                                         .byte_offset = (uint64_t)first * 4 } };
}

// Every layout reads the same memory, and none writes to it.
static void memory_of_any_strides_is_read_in_place(void)
{
    static const struct {
        int     rank, first;
        int64_t shape[3], stride[3];
    } layouts[] = {
        { 2, 0, { 4, 6 }, { 6, 1 } },
        { 2, 1, { 6, 3 }, { 1, 6 } },
        { 1, 23, { 8 }, { -3 } },
        { 2, 5, { 3, 4 }, { 0, 2 } },
        { 3, 12, { 2, 3, 2 }, { -12, 4, 1 } },
        { 2, 2, { 1, 5 }, { 77, 2 } },
        { 2, 0, { 5, 4 }, { 1, 1 } },
    };
    for (size_t k = 0; k < sizeof layouts / sizeof *layouts; k++) {
        tn_ctx *cx = open_cpu();
        int64_t shape[3], stride[3], at[3] = { 0 };
        memcpy(shape, layouts[k].shape, sizeof shape);
        memcpy(stride, layouts[k].stride, sizeof stride);
        tn_dl_managed m = lend_numbers(layouts[k].rank, shape, stride, layouts[k].first);
        deleted         = 0;
        tn_tensor *x = tn_from_dlpack(cx, &m), *y = tn_mul_s(x, 2);
        float      got[24];
        CHECK_INT(tn_ctx_stats(cx).copies, 0);
        CHECK_STATUS(tn_read(y, TN_F32, got, tn_count(x)), TN_OK);
        for (int64_t i = 0; i < tn_count(x); i++) {
            int64_t from = layouts[k].first, left = i;
            for (int a = layouts[k].rank - 1; a >= 0; left /= shape[a--]) {
                at[a] = left % shape[a];
                from += at[a] * stride[a];
            }
            CHECK(got[i] == 2 * (float)from);
        }
        // Where two elements share memory a write would mean nothing.
        bool once = tn_fill_(x, -1) != NULL;
        CHECK(once == (k != 3 && k != 6));
        tn_error_clear(cx);
        CHECK(!once || tn_item(tn_sum_all(x)) == -tn_count(x));
        CHECK(numbers[5] == 5);
        tn_drop(y);
        tn_drop(x);
        tn_eval(cx);
        CHECK_INT(deleted, 1);
        tn_close(cx);
    }
}

static void what_cannot_be_borrowed_is_deleted_and_named(void)
{
    tn_ctx       *cx       = open_cpu();
    int64_t       shape[9] = { 2, 3 }, far[2] = { INT64_MAX / 2, 4 };
    tn_dl_managed m = lend_numbers(2, shape, NULL, 0);
    deleted         = 0;
#define REFUSES(change, code, text)            \
    {                                          \
        m = lend_numbers(2, shape, NULL, 0);   \
        change;                                \
        int before = deleted;                  \
        CHECK(tn_from_dlpack(cx, &m) == NULL); \
        CHECK_FAILED(cx, code, text);          \
        CHECK_INT(deleted, before + 1);        \
    }
    REFUSES(m.major = 2, TN_EARG, "from_dlpack: version 2.0 of DLPack is not known here");
    REFUSES(m.tensor.dtype.code = 5, TN_EDTYPE,
            "from_dlpack: elements of complex32 are no dtype here");
    REFUSES(m.tensor.dtype.lanes = 4, TN_EDTYPE, "from_dlpack: elements of float32 x 4");
    REFUSES(m.tensor.device.type = 2, TN_EDEVICE, "device type 2, number 0, cannot be read on cpu");
    REFUSES(m.tensor.ndim = 9, TN_ESHAPE, "from_dlpack: a tensor has at most 8 axes, not 9");
    REFUSES(m.tensor.shape = NULL, TN_EARG, "from_dlpack: the shape is missing");
    REFUSES(m.tensor.data = NULL, TN_EARG, "from_dlpack: the data is missing");
    REFUSES(m.tensor.strides = far, TN_EARG, "from_dlpack: the strides reach beyond any memory");
    CHECK(tn_from_dlpack(cx, NULL) == NULL);
    CHECK_FAILED(cx, TN_EARG, "from_dlpack: m is NULL");
    // Not aligned: read all the same, as a copy.
    m             = lend_numbers(1, (int64_t[]){ 4 }, NULL, 0);
    char *odd     = (char *)numbers + 1;
    float four[4] = { 1, 2, 3, 4 };
    memcpy(odd, four, sizeof four);
    m.tensor.data = odd;
    CHECK(tn_item(tn_sum_all(tn_from_dlpack(cx, &m))) == 10);
    tn_close(cx);
}

// ---- streams, and results in a caller's memory -------------------------------------------------

static char calls[64];

static tn_status note(void *other, char what)
{
    size_t n = strlen(calls);
    CHECK(other == (void *)7);
    if (n + 1 < sizeof calls) calls[n] = what;
    return TN_OK;
}

static tn_status after(void *session, void *other, tni_text *why)
{
    (void)session, (void)why;
    return note(other, 'a');
}

static tn_status before(void *session, void *other, tni_text *why)
{
    (void)session, (void)why;
    return note(other, 'b');
}

static tn_status owns(void *session, const void *p, size_t bytes, bool *here, tni_text *why)
{
    (void)session, (void)p, (void)bytes, (void)why;
    *here = true;
    return TN_OK;
}

// The cpu as a device with streams. A consumer's stream waits for the value, and what reuses the
// memory waits for the stream.
static void a_consumers_stream_is_ordered_by_events(void)
{
    tni_device          d        = tni_device_cpu;
    tni_device_memory   memory   = *d.memory;
    tni_device_borrowed borrowed = { .owns = owns };
    tni_device_events   events   = { .after_stream = after, .before_stream = before };
    tn_ctx             *cx       = open_cpu();
    memory.host                  = false;
    d.memory                     = &memory;
    d.borrowed                   = &borrowed;
    d.events                     = &events;
    tni_engine_set(cx->engine, &d);
    memset(calls, 0, sizeof calls);
    tn_tensor     *x = tn_ones(cx, TN_F32, TN_SHAPE(4));
    tn_dl_managed *m = tn_to_dlpack(x, (tn_dlpack_opts){ .stream = (void *)7 });
    CHECK(m->tensor.device.type == TN_DL_CUDA && m->flags == TN_DL_READ_ONLY);
    CHECK_STR(calls, "b");
    m->deleter(m);
    tn_eval(cx);
    CHECK_STR(calls, "ba");
    m = tn_to_dlpack(x, (tn_dlpack_opts){ .host = true, .stream = (void *)7 });
    CHECK(m->tensor.device.type == TN_DL_CPU && m->flags == (TN_DL_READ_ONLY | TN_DL_COPIED));
    m->deleter(m);
    m = tn_to_dlpack(x, (tn_dlpack_opts){ .copy = true });
    CHECK(m->tensor.device.type == TN_DL_CUDA && m->flags == TN_DL_COPIED &&
          m->tensor.data != tn_ptr(x));
    m->deleter(m);
    CHECK_STATUS(tn_ctx_wait_stream(cx, (void *)7), TN_OK);
    CHECK_STATUS(tn_ctx_signal_stream(cx, (void *)7), TN_OK);
    CHECK_STR(calls, "baab");
    tn_close(cx);
}

static int into_released;

static void count_release(void *data, void *user)
{
    (void)data, (void)user;
    into_released++;
}

static void results_are_computed_in_a_callers_memory(void)
{
    tn_ctx            *cx = open_cpu();
    _Alignas(64) float at[3][16], *odd = at[2] + 1;
    tn_tensor         *x = tn_arange(cx, TN_F32, 0, 8, 1), *y = tn_add_s(x, 1), *z = tn_mul(y, y);
    for (int i = 0; i < 16; i++) at[0][i] = at[1][i] = -1;
    into_released  = 0;
    tn_tensor *t[] = { y, z };
    CHECK_STATUS(tn_eval_into(2, t, (void *[]){ at[0], at[1] }, count_release, NULL), TN_OK);
    for (int i = 0; i < 8; i++)
        CHECK(at[0][i] == (float)(i + 1) && at[1][i] == at[0][i] * at[0][i]);
    CHECK(at[0][8] == -1 && at[1][8] == -1);
    CHECK(tn_ptr(y) == (void *)at[0] && tn_ptr(z) == (void *)at[1]);
    // What is computed, a view, or not aligned is copied.
    tn_tensor *turned = tn_flip(z, 0), *w = tn_add_s(z, 1);
    CHECK_STATUS(tn_eval_into(1, &turned, (void *[]){ at[2] }, count_release, NULL), TN_OK);
    CHECK(at[2][0] == 64 && at[2][7] == 1);
    CHECK_STATUS(tn_eval_into(1, &w, (void *[]){ odd }, NULL, NULL), TN_OK);
    CHECK(odd[0] == 2 && odd[7] == 65 && tn_ptr(w) != (void *)odd);
    tn_add_(y, y);  // is written somewhere else
    CHECK(tn_item(tn_sum_all(y)) == 72 && at[0][0] == 1);
    CHECK_STATUS(tn_eval_into(1, &w, (void *[]){ NULL }, count_release, NULL), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "eval_into: t[0] or data[0] is missing");
    CHECK_INT(into_released,
              3);  // of y, which has other memory by now, of turned, and of the failure
    tn_drop(turned);
    tn_drop(w);
    tn_drop(z);
    tn_eval(cx);
    CHECK_INT(into_released, 4);
    tn_close(cx);
}

const test_case tests_dlpack[] = {
    TEST(what_is_exported_is_in_place_and_does_not_change),
    TEST(deleters_run_on_any_thread),
    TEST(a_copy_may_be_written),
    TEST(memory_of_any_strides_is_read_in_place),
    TEST(what_cannot_be_borrowed_is_deleted_and_named),
    TEST(a_consumers_stream_is_ordered_by_events),
    TEST(results_are_computed_in_a_callers_memory),
    TEST_END,
};
