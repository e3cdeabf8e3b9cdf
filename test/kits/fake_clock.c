// fake_clock.c: a driver over host memory whose events read a clock of the test.
#include "fake_clock.h"

#include <stdlib.h>
#include <string.h>

static double *now;
static int     left;

struct tni_cuda_event {
    double at;
};

static tni_custream stream(void)
{
    return (tni_custream)&fake_clock_driver;
}

static int event_create(tni_cuevent *e, unsigned flags)
{
    *e = calloc(1, sizeof **e);
    left += *e != NULL;
    return flags || !*e;
}

static int event_destroy(tni_cuevent e)
{
    free(e);
    left--;
    return TNI_CU_OK;
}

static int event_record(tni_cuevent e, tni_custream s)
{
    e->at = *now;
    return s != stream();
}

static int event_wait(tni_cuevent e)
{
    return !e;
}

static int elapsed(float *ms, tni_cuevent from, tni_cuevent to)
{
    *ms = (float)(to->at - from->at);
    return TNI_CU_OK;
}

static int mem_alloc(tni_cuptr *p, size_t bytes)
{
    *p = (tni_cuptr)(uintptr_t)aligned_alloc(64, (bytes + 63) / 64 * 64);
    left += *p != 0;
    return *p ? TNI_CU_OK : TNI_CU_OUT_OF_MEMORY;
}

int fake_clock_no_memory(tni_cuptr *p, size_t bytes)
{
    (void)p;
    (void)bytes;
    return TNI_CU_OUT_OF_MEMORY;
}

static int mem_free(tni_cuptr p)
{
    free((void *)(uintptr_t)p);
    left--;
    return TNI_CU_OK;
}

static int set8(tni_cuptr p, unsigned char value, size_t n, tni_custream s)
{
    memset((void *)(uintptr_t)p, value, n);
    return s != stream();
}

static int copy(tni_cuptr to, tni_cuptr from, size_t n, tni_custream s)
{
    memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, n);
    return s != stream();
}

static int stream_wait(tni_custream s)
{
    return s != stream();
}

// Nothing is ever captured, so that no mode matters.
static int capture_mode(int *mode)
{
    (void)mode;
    return TNI_CU_OK;
}

tni_driver fake_clock_driver;

tni_custream fake_clock_open(double *milliseconds)
{
    fake_clock_driver = (tni_driver){ .event_create  = event_create,
                                      .event_destroy = event_destroy,
                                      .event_record  = event_record,
                                      .event_wait    = event_wait,
                                      .elapsed       = elapsed,
                                      .capture_mode  = capture_mode,
                                      .mem_alloc     = mem_alloc,
                                      .mem_free      = mem_free,
                                      .set8          = set8,
                                      .copy          = copy,
                                      .stream_wait   = stream_wait };
    now               = milliseconds;
    left              = 0;
    return stream();
}

int fake_clock_left(void)
{
    return left;
}
