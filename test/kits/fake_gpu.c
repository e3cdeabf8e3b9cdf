// A fake GPU: see fake_gpu.h.
#include "fake_gpu.h"

#include "check.h"

#include <stdlib.h>
#include <string.h>

enum { STREAMS = 3, OTHER = 2, MOST_THINGS = 4096, MOST_BLOCKS = 512 };

// An event: how often it was recorded, and up to which of these the GPU has come.
struct tni_cuda_event {
    int recorded, reached;
};

typedef enum { COPY, SEND, WORK, RECORD, WAIT } kind;

// Something in a stream.
typedef struct {
    kind        kind;
    void       *dst;
    const void *src;
    size_t      bytes;
    void (*f)(void *arg);
    void       *arg;
    tni_cuevent event;
    int         version;
    int64_t     ticket;
} thing;

// The things from first to last wait.
struct tni_cuda_stream {
    bool  open;
    int   first, last;
    thing thing[MOST_THINGS];
};

typedef struct {
    char  *data;
    size_t bytes;
} block;

static struct {
    tni_driver             cu;
    tni_gpu                gpu;
    tni_cuda               session;
    tni_heap               heap;
    struct tni_cuda_stream stream[STREAMS];
    block                  block[MOST_BLOCKS];
    int                    events, hosts, waits;
    bool                   captures;  // the other stream is captured
    int                    mode, broken;
    uint32_t               random;
    char                   stranger[64];
} self;

static uint32_t draw(uint32_t n)
{
    self.random = self.random * 1664525u + 1013904223u;
    return (self.random >> 8) % n;
}

// ---- running -----------------------------------------------------------------------------------

static bool can_run(const struct tni_cuda_stream *s, bool no_work)
{
    if (s->first == s->last) return false;
    const thing *t = &s->thing[s->first % MOST_THINGS];
    if (t->kind == WORK) return !no_work;
    return t->kind != WAIT || t->event->reached >= t->version;
}

static void run_one(struct tni_cuda_stream *s)
{
    thing *t = &s->thing[s->first++ % MOST_THINGS];
    if (t->kind == COPY || t->kind == SEND) memcpy(t->dst, t->src, t->bytes);
    if (t->kind == SEND) ((tni_fetch_slot *)t->dst)->ticket = t->ticket;
    if (t->kind == WORK) t->f(t->arg);
    if (t->kind == RECORD) t->event->reached = t->version;
}

int fake_gpu_run(int n, bool no_work)
{
    int done = 0;
    for (; done < n; done++) {
        int i = (int)draw(STREAMS), k = 0;
        while (k < STREAMS && !can_run(&self.stream[(i + k) % STREAMS], no_work)) k++;
        if (k == STREAMS) break;
        run_one(&self.stream[(i + k) % STREAMS]);
    }
    return done;
}

// What is captured never runs here. A wait for an event of another stream would break the capture.
static void give(tni_custream s, thing t)
{
    if (self.captures && s == &self.stream[OTHER]) {
        self.broken += t.kind == WAIT;
        return;
    }
    CHECK(s->last - s->first < MOST_THINGS);
    s->thing[s->last++ % MOST_THINGS] = t;
}

void fake_gpu_work(void (*f)(void *arg), void *arg)
{
    give(self.session.stream, (thing){ .kind = WORK, .f = f, .arg = arg });
}

// ---- the driver --------------------------------------------------------------------------------

static int set_current(tni_cucontext cx)
{
    (void)cx;
    return TNI_CU_OK;
}

// Calls that a capture forbids to threads that are not relaxed.
static void unsafe(void)
{
    self.broken += self.captures && self.mode != TNI_CU_CAPTURE_RELAXED;
}

static int capture_mode(int *mode)
{
    int before = self.mode;
    self.mode  = *mode;
    *mode      = before;
    return TNI_CU_OK;
}

static int capture_state(tni_custream s, int *state)
{
    bool captured = self.captures && s == &self.stream[OTHER];
    *state        = captured ? TNI_CU_CAPTURE_ACTIVE : TNI_CU_CAPTURE_NONE;
    return TNI_CU_OK;
}

static int mem_alloc(tni_cuptr *p, size_t bytes)
{
    unsafe();
    for (int i = 0; i < MOST_BLOCKS; i++)
        if (!self.block[i].data) {
            self.block[i] = (block){ malloc(bytes), bytes };
            *p            = (tni_cuptr)(uintptr_t)self.block[i].data;
            return TNI_CU_OK;
        }
    return TNI_CU_OUT_OF_MEMORY;
}

// As the driver does, everything is done first.
static int mem_free(tni_cuptr p)
{
    unsafe();
    fake_gpu_run(INT32_MAX, false);
    for (int i = 0; i < MOST_BLOCKS; i++)
        if (self.block[i].data == (char *)(uintptr_t)p) {
            free(self.block[i].data);
            self.block[i].data = NULL;
            return TNI_CU_OK;
        }
    return 1;
}

static void read_attribute(void *value, int which, tni_cuptr p)
{
    char        *at = (char *)(uintptr_t)p;
    const block *in = NULL;
    for (int i = 0; i < MOST_BLOCKS; i++) {
        const block *b = &self.block[i];
        if (b->data && at >= b->data && at < b->data + b->bytes) in = b;
    }
    bool strange = at >= self.stranger && at < self.stranger + sizeof self.stranger;
    if (!in && !strange) return;
    if (which == TNI_CU_POINTER_TYPE) *(unsigned *)value = TNI_CU_MEMORY_DEVICE;
    if (which == TNI_CU_POINTER_DEVICE) *(int *)value = in ? 0 : 1;
    if (which == TNI_CU_POINTER_START && in) *(tni_cuptr *)value = (tni_cuptr)(uintptr_t)in->data;
    if (which == TNI_CU_POINTER_SIZE && in) *(size_t *)value = in->bytes;
}

static int pointer_attributes(unsigned n, int *which, void **value, tni_cuptr p)
{
    for (unsigned i = 0; i < n; i++) read_attribute(value[i], which[i], p);
    return TNI_CU_OK;
}

static int host_alloc(void **p, size_t bytes, unsigned flags)
{
    (void)flags;
    self.hosts++;
    *p = malloc(bytes);
    return *p ? TNI_CU_OK : TNI_CU_OUT_OF_MEMORY;
}

static int host_free(void *p)
{
    self.hosts--;
    free(p);
    return TNI_CU_OK;
}

static int host_address(tni_cuptr *p, void *host, unsigned flags)
{
    (void)flags;
    *p = (tni_cuptr)(uintptr_t)host;
    return TNI_CU_OK;
}

// The kernel that sends an element is the only one there is.
static int launch(tni_cufunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                  unsigned bz, unsigned shared, tni_custream s, void **args, void **extra)
{
    (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)extra;
    CHECK(f == self.session.fetches.send);
    give(s, (thing){ .kind   = SEND,
                     .src    = *(const void **)args[0],
                     .dst    = *(void **)args[1],
                     .ticket = *(int64_t *)args[2],
                     .bytes  = (size_t) * (int *)args[3] });
    return TNI_CU_OK;
}

static int copy_in(tni_cuptr dst, const void *src, size_t bytes, tni_custream s)
{
    give(s, (thing){ .kind = COPY, .dst = (void *)(uintptr_t)dst, .src = src, .bytes = bytes });
    return TNI_CU_OK;
}

static int copy_out(void *dst, tni_cuptr src, size_t bytes, tni_custream s)
{
    give(s, (thing){ .kind = COPY, .dst = dst, .src = (void *)(uintptr_t)src, .bytes = bytes });
    return TNI_CU_OK;
}

static int stream_create(tni_custream *s, unsigned flags)
{
    (void)flags;
    *s         = &self.stream[1];
    (*s)->open = true;
    return TNI_CU_OK;
}

static int stream_destroy(tni_custream s)
{
    s->open = false;
    return TNI_CU_OK;
}

static int stream_wait(tni_custream s)
{
    unsafe();
    self.broken += self.captures && s == &self.stream[OTHER];
    self.waits++;
    while (s->first != s->last && fake_gpu_run(1, false)) continue;
    return s->first == s->last ? TNI_CU_OK
                               : TNI_CU_LAUNCH_FAILED;  // streams that wait for each other
}

static int stream_after(tni_custream s, tni_cuevent e, unsigned flags)
{
    (void)flags;
    give(s, (thing){ .kind = WAIT, .event = e, .version = e->recorded });
    return TNI_CU_OK;
}

static int event_create(tni_cuevent *e, unsigned flags)
{
    CHECK_INT(flags, TNI_CU_EVENT_NO_TIMING);
    *e = calloc(1, sizeof **e);
    self.events++;
    return *e ? TNI_CU_OK : TNI_CU_OUT_OF_MEMORY;
}

static int event_record(tni_cuevent e, tni_custream s)
{
    give(s, (thing){ .kind = RECORD, .event = e, .version = ++e->recorded });
    return TNI_CU_OK;
}

static int event_query(tni_cuevent e)
{
    return e->reached == e->recorded ? TNI_CU_OK : TNI_CU_NOT_READY;
}

static int event_wait(tni_cuevent e)
{
    self.waits++;
    while (event_query(e) != TNI_CU_OK && fake_gpu_run(1, false)) continue;
    return event_query(e) == TNI_CU_OK ? TNI_CU_OK : TNI_CU_LAUNCH_FAILED;
}

static int event_destroy(tni_cuevent e)
{
    self.events--;
    free(e);
    return TNI_CU_OK;
}

static int error_string(int error, const char **text)
{
    (void)error;
    *text = "an error of the fake";
    return TNI_CU_OK;
}

// ---- opening and closing -----------------------------------------------------------------------

void fake_gpu_open(uint32_t seed)
{
    memset(&self, 0, sizeof self);
    self.cu      = (tni_driver){ .set_current        = set_current,
                                 .mem_alloc          = mem_alloc,
                                 .mem_free           = mem_free,
                                 .pointer_attributes = pointer_attributes,
                                 .host_alloc         = host_alloc,
                                 .host_free          = host_free,
                                 .host_address       = host_address,
                                 .launch             = launch,
                                 .copy_in            = copy_in,
                                 .copy_out           = copy_out,
                                 .stream_create      = stream_create,
                                 .stream_destroy     = stream_destroy,
                                 .stream_wait        = stream_wait,
                                 .stream_after       = stream_after,
                                 .event_create       = event_create,
                                 .event_record       = event_record,
                                 .event_query        = event_query,
                                 .event_wait         = event_wait,
                                 .event_destroy      = event_destroy,
                                 .capture_mode       = capture_mode,
                                 .capture_state      = capture_state,
                                 .error_string       = error_string };
    self.gpu.cu  = &self.cu;
    self.heap    = tni_heap_default();
    self.random  = seed;
    self.session = (tni_cuda){
        .heap = &self.heap, .gpu = &self.gpu, .stream = self.stream, .own = self.stream
    };
    self.stream[0].open       = true;
    self.session.fetches.send = (tni_cufunction)(void *)&self;
}

tni_cuda *fake_gpu_session(void)
{
    return &self.session;
}

int fake_gpu_close(void)
{
    int left = 0;
    stream_wait(self.session.stream);
    tni_copies_close(&self.session);
    if (self.session.order) event_destroy(self.session.order);
    for (int i = 0; i < MOST_BLOCKS; i++) left += self.block[i].data != NULL;
    return left + self.events + self.hosts + self.stream[1].open;
}

void *fake_gpu_stranger(void)
{
    return self.stranger;
}

void *fake_gpu_other_stream(bool captures)
{
    self.captures = captures;
    return &self.stream[OTHER];
}

int fake_gpu_broken(void)
{
    return self.broken;
}

int fake_gpu_waits(void)
{
    return self.waits;
}
