// The cuda device: opening and closing sessions, waiting for them, and the tables of functions that
// the engine calls.
#include "device/cuda/cuda.h"

#include "base/background.h"
#include "device/cuda/gpu.h"
#include "device/cuda/product_pruned.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- sessions ----------------------------------------------------------------------------------

// The driver's current GPU is a variable of the thread, and the user's code may have changed it
// since the last call. While a run is recorded no driver function is called between its begin,
// which enters, and its end, so the call is saved there; cuda_custom.c, which runs a user's
// function in between, restores the GPU itself.
void tni_cuda_enter(const tni_cuda *c)
{
    if (c->recorder.mode != TNI_REPLAY_RECORD && c->recorder.mode != TNI_REPLAY_CHANGE)
        c->gpu->cu->set_current(c->gpu->cx);
}

// Errors of the driver in a session come through here, so that a lost GPU is remembered.
tn_status tni_cuda_status(tni_cuda *c, int error, const char *what, tni_text *why)
{
    tn_status s = tni_gpu_status(c->gpu->cu, error, what, why);
    if (s == TN_ELOST) c->lost = true;
    return s;
}

// Frees everything a session has, in the order in which the driver may still use it: the stream's
// work first, then the memory that work used. Errors are ignored, since a lost GPU answers nothing.
// After the last session no thread may be inside the compiler, whose library does not survive the
// end of the process with a thread in it: tni_background_need waits for that. Also frees a session
// that was opened halfway.
static void close_gpu_session(void *session)
{
    tni_cuda         *c  = session;
    const tni_driver *cu = c->gpu->cu;
    tni_background_need(false);
    tni_cuda_enter(c);
    if (c->stream) cu->stream_wait(c->stream);
    tni_cuda_collect_close(c);
    tni_copies_close(c);
    tni_index_check_close(c);
    tni_cuda_scratch_close(c);
    tni_arena_close(c);
    tni_solver_close(c);
    if (c->workspace) cu->mem_free(c->workspace);
    tni_replay_close(c);
    tni_timing_close(c);
    if (c->order) cu->event_destroy(c->order);
    if (c->own) cu->stream_destroy(c->own);
    tni_free(c->heap, c);
}

// Returns whether an environment variable is exactly one character: "0" or "1".
static bool env_is(const char *name, char value)
{
    const char *v = getenv(name);
    return v && v[0] == value && !v[1];
}

// Reads the switches of the environment and creates the stream, unless the caller gave one. Our own
// stream does not wait for the null stream, where a caller's other libraries may work. Returns an
// error of the driver.
static int fill_session(tni_cuda *c, void *stream)
{
    const tni_driver *cu = c->gpu->cu;
    c->no_graphs         = env_is("TN_REPLAY", '0');
    c->tf32              = env_is("TN_TF32", '1') && !env_is("NVIDIA_TF32_OVERRIDE", '0');
    c->deterministic     = env_is("TN_DETERMINISTIC", '1');
    c->compiles_first    = !c->gpu->interprets || !tni_gpu_interprets_first();
    c->conv_cores        = !env_is("TN_CORES", '0');
    snprintf(c->method, sizeof c->method, "%s", getenv("TN_METHOD") ? getenv("TN_METHOD") : "");
    c->pruned = !strcmp(c->method, TNI_PRUNED_NAME);
    if (c->pruned) *c->method = 0;
    c->small_policy = env_is("TN_SMALL", '0')   ? TNI_SMALL_NEVER
                      : env_is("TN_SMALL", '1') ? TNI_SMALL_ALWAYS
                                                : TNI_SMALL_IF_FASTER;
    int error       = cu->set_current(c->gpu->cx);
    if (!error && !stream) error = cu->stream_create(&c->own, TNI_CU_STREAM_NONBLOCKING);
    c->stream = stream ? stream : c->own;
    return error ? error : tni_index_check_open(c);
}

// The contract's open. Once tni_background_need(true) was called, every way out goes through
// close_gpu_session, which takes it back.
static void *open_gpu_session(tni_heap *heap, const tni_device_open_args *args, tn_status *s,
                              tni_text *why)
{
    const tni_gpu *g = tni_gpu_get(args->number, why);
    *s               = TN_EDEVICE;
    if (!g) return NULL;
    tni_cuda *c = tni_zalloc(heap, sizeof *c);
    *s          = TN_EMEM;
    if (!c) {
        tni_text_add(why, "out of memory");
        return NULL;
    }
    c->heap = heap;
    c->gpu  = g;
    tni_background_need(true);
    *s = tni_gpu_status(g->cu, fill_session(c, args->stream), "opening the GPU", why);
    if (*s == TN_OK) return c;
    close_gpu_session(c);
    return NULL;
}

// The contract's wait: includes uploads, which the compute stream is made to wait for first. The
// driver reports an error of any kernel since the last wait here, and not where it was launched.
static tn_status wait_stream(void *session, tni_text *why)
{
    tni_cuda *c = session;
    if (!tni_cuda_may(c, "waiting for the GPU", why)) return TN_EDEVICE;
    tni_cuda_enter(c);
    tni_cuda_await_uploads(c);
    return tni_cuda_status(c, c->gpu->cu->stream_wait(c->stream), "waiting for the GPU", why);
}

// ---- other streams -----------------------------------------------------------------------------

static void *own_stream(const void *session)
{
    return ((const tni_cuda *)session)->stream;
}

// Makes stream `late` wait for what is in stream `early` now. One event serves all: waiting for it
// is waiting for its last record before that call.
static tn_status order_streams(tni_cuda *c, tni_custream early, tni_custream late, tni_text *why)
{
    const tni_driver *cu    = c->gpu->cu;
    int               error = TNI_CU_OK;
    if (early == late) return TN_OK;
    tni_cuda_enter(c);
    if (!c->order) error = cu->event_create(&c->order, TNI_CU_EVENT_NO_TIMING);
    if (!error) error = cu->event_record(c->order, early);
    if (!error) error = cu->stream_after(late, c->order, 0);
    return tni_cuda_status(c, error, "ordering two streams", why);
}

static tn_status after_stream(void *session, void *other, tni_text *why)
{
    tni_cuda *c = session;
    return order_streams(c, other, c->stream, why);
}

// What was submitted includes uploads, which are in a stream of their own.
static tn_status before_stream(void *session, void *other, tni_text *why)
{
    tni_cuda *c = session;
    tni_cuda_enter(c);
    tni_cuda_await_uploads(c);
    return order_streams(c, c->stream, other, why);
}

static bool is_capturing(const tni_cuda *c, tni_custream s)
{
    int state = TNI_CU_CAPTURE_NONE;
    return c->gpu->cu->capture_state(s, &state) == TNI_CU_OK && state == TNI_CU_CAPTURE_ACTIVE;
}

// Lets the host wait for what was submitted before a capture: the graph cannot wait for work from
// outside, which must be done when it runs. Nothing of it is left in a program that waited before
// it began to capture, as PyTorch does.
static int finish_before_capture(tni_cuda *c)
{
    const tni_driver *cu     = c->gpu->cu;
    int               before = tni_cuda_relax(cu);
    int               error  = c->uploads.pending ? cu->stream_wait(c->uploads.stream) : TNI_CU_OK;
    if (!error && !is_capturing(c, c->stream)) error = cu->stream_wait(c->stream);
    c->uploads.pending = false;
    tni_cuda_restrict(cu, before);
    return error;
}

// The contract's use_stream. Work that is captured does not run now, so that the stream used next
// does not wait for it.
static tn_status use_stream(void *session, void *other, tni_text *why)
{
    tni_cuda    *c     = session;
    tni_custream next  = other ? other : c->own ? c->own : c->stream;
    tn_status    s     = TN_OK;
    int          error = TNI_CU_OK;
    tni_cuda_enter(c);
    bool capturing = is_capturing(c, next);
    bool was       = next == c->stream ? c->capturing : is_capturing(c, c->stream);
    if (capturing && !was) error = finish_before_capture(c);
    else if (capturing == was) s = order_streams(c, c->stream, next, why);
    if (error || s != TN_OK) return error ? tni_cuda_status(c, error, "using a stream", why) : s;
    c->stream    = next;
    c->capturing = capturing;
    c->captured |= capturing;
    return TN_OK;
}

static void enter_thread(const void *session)
{
    const tni_cuda *c = session;
    c->gpu->cu->set_current(c->gpu->cx);
}

static bool stream_captures(const void *session)
{
    return ((const tni_cuda *)session)->capturing;
}

bool tni_cuda_may(const tni_cuda *c, const char *what, tni_text *why)
{
    if (!c->capturing) return true;
    tni_text_add(why, "cuda: %s: not while a CUDA graph is captured", what);
    return false;
}

int tni_cuda_relax(const tni_driver *cu)
{
    int mode = TNI_CU_CAPTURE_RELAXED;
    return cu->capture_mode(&mode) == TNI_CU_OK ? mode : -1;
}

void tni_cuda_restrict(const tni_driver *cu, int before)
{
    if (before >= 0) cu->capture_mode(&before);
}

// ---- time --------------------------------------------------------------------------------------

// The events are made for each measurement: measuring is rare, and an event without timing, as the
// session's others are, is cheaper.
double tni_cuda_seconds(void *session, void (*f)(void *arg), void *arg, int times)
{
    tni_cuda         *c    = session;
    const tni_driver *cu   = c->gpu->cu;
    tni_cuevent       from = NULL, to = NULL;
    float             ms = NAN;
    tni_cuda_enter(c);
    if (cu->event_create(&from, 0) == TNI_CU_OK && cu->event_create(&to, 0) == TNI_CU_OK) {
        cu->event_record(from, c->stream);
        for (int i = 0; i < times; i++) f(arg);
        cu->event_record(to, c->stream);
        if (cu->event_wait(to) != TNI_CU_OK || cu->elapsed(&ms, from, to) != TNI_CU_OK) ms = NAN;
    }
    if (from) cu->event_destroy(from);
    if (to) cu->event_destroy(to);
    return (double)ms * 1e-3;
}

// The groups of the contract, as device.h describes them.
static const tni_device_memory memory = {
    .alloc        = tni_cuda_alloc,
    .free         = tni_cuda_free,
    .element_size = tni_dtype_size,
    .upload       = tni_cuda_upload,
    .download     = tni_cuda_download,
    .arena        = tni_cuda_arena,
    .space        = tni_cuda_space,
};

static const tni_device_kernels kernels = {
    .loads_before_stores = true,
    .lanes               = 1 << 14,  // 132 multiprocessors, each with 128 rows in vectors of 8
    .prepare             = tni_cuda_prepare,
    .launch              = tni_cuda_launch,
    .ready               = tni_cuda_ready,
    .registers           = tni_cuda_registers,
    .chip                = tni_cuda_chip,
    .neighbours          = tni_cuda_neighbours,
    .expect              = tni_cuda_expect,
    .retuned             = tni_cuda_retuned,
    .counts              = tni_cuda_counts,
    .text                = tni_cuda_text,
};

static const tni_device_events events = {
    .wait          = wait_stream,
    .failed        = tni_cuda_failed,
    .fetch         = tni_cuda_fetch,
    .fetched       = tni_cuda_fetched,
    .submitted     = tni_cuda_submitted,
    .completed     = tni_cuda_completed,
    .upload_after  = tni_cuda_upload_after,
    .event_record  = tni_cuda_event_record,
    .event_elapsed = tni_cuda_event_elapsed,
    .hold_queue    = tni_cuda_hold_queue,
    .stream        = own_stream,
    .after_stream  = after_stream,
    .before_stream = before_stream,
    .use_stream    = use_stream,
    .captures      = stream_captures,
    .collected     = tni_cuda_collected,
    .enter         = enter_thread,
};

static const tni_device_replay replay = { tni_replay_begin, tni_replay_resume, tni_replay_step,
                                          tni_replay_end, tni_replay_forget };

static const tni_device_borrowed borrowed = { tni_cuda_owns, tni_cuda_wait_unused };

static const tni_device_pinned pinned = { tni_cuda_pinned_alloc, tni_cuda_pinned_free,
                                          tni_cuda_pinned_upload, tni_cuda_pinned_done };

const tni_device tni_device_cuda = {
    .name     = "cuda",
    .probe    = tni_gpu_probe,
    .count    = tni_gpu_count,
    .open     = open_gpu_session,
    .close    = close_gpu_session,
    .memory   = &memory,
    .calls    = &tni_cuda_calls,
    .kernels  = &kernels,
    .events   = &events,
    .replay   = &replay,
    .borrowed = &borrowed,
    .pinned   = &pinned,
};
