// Which launches store by strips, and which of these past the caches.
//
// A store of a line that is in no cache reads it from memory first, and the line pushes out another
// on its way back. x86 has stores that do neither, which compiled kernels have beside the others
// (kernel/c_streams.c). They pay on some chips, where a launch writes more than stays in the caches
// up to its next reader: relu(x) * 0.5 + 1 on two threads, in ms, by itself and with a sum of
// squares of the result after it:
//
//     Xeon with          2 MiB of cache for each core              1 MiB for each core
//     written     through the caches    past them      through the caches    past them
//       8 MB         0.41, 1.06         0.51, 1.45         0.36, 0.60         0.66, 1.23
//      17 MB         0.90, 3.80         1.07, 3.07         1.22, 1.89         1.81, 2.87
//      34 MB         3.62, 9.86         2.82, 6.40         3.24, 4.98         4.07, 6.02
//      67 MB         8.24, 20.0         5.53, 12.0         6.51, 10.3         8.21, 12.0
//     268 MB         28.8, 75.7         22.2, 45.4         26.3, 41.4         32.8, 47.9
//
// An EPYC of Zen 3, whose cores share 32 MiB, gains, too, with one thread, and loses nothing with
// two, from twice as much on:
//
//                       one thread                          two threads
//     written     through the caches    past them      through the caches    past them
//      17 MB         1.89, 3.03         2.07, 3.46         1.28, 2.19         2.05, 2.84
//      34 MB         4.58, 6.98         4.38, 7.25         3.47, 5.21         4.16, 5.76
//      67 MB         13.1, 19.8         9.18, 15.6         8.33, 12.1         8.32, 11.6
//     268 MB         42.4, 71.4         37.5, 62.4         33.6, 51.1         33.2, 46.5
//
// Strips (kernel/c_streams.c) gain by themselves on some where the loads of a loop come from the
// caches, as those of a row do that was summed before: nothing but stores waits for memory then. At
// once, by strips through the caches, and past them, in ms:
//
//                                              Xeon of 1 MiB          Zen 3
//     a softmax, (8192, 4096)                24.2   22.5   24.0    15.6   18.9   14.1
//     a layer norm and its gradients,
//     (8192, 1024)                           15.9   12.4   13.0     6.0    7.5    5.7
//     a chain of 8 maps, 16 M                 6.5    8.1    9.2     3.8    4.9    3.4
#include "device/cpu/cpu_kernels.h"

#include <stdatomic.h>
#include <unistd.h>

#ifdef __x86_64__
enum { IS_X86 = true };

static bool is_amd(void)
{
    return __builtin_cpu_is("amd");
}
#else
enum { IS_X86 = false };

static bool is_amd(void)
{
    return false;
}
#endif

// What distinguishes cores of x86; those of ARM see by themselves that whole lines are overwritten.
tni_dialect tni_cpu_dialect(void)
{
    tni_dialect d = tni_dialect_c;
    d.streams = d.reorders = IS_X86;
    return d;
}

#ifndef _SC_LEVEL2_CACHE_SIZE
#define _SC_LEVEL2_CACHE_SIZE (-1)
#endif

// Returns the bytes of cache that a core has for itself. LEAST: where the system does not say it,
// and for chips that have little of it and more in common. EPYC: a core's part of the last cache of
// AMD's servers, which eight cores share; in virtual machines the system's word on it is wrong.
static int64_t core_cache(void)
{
    enum { LEAST = 1 << 20, EPYC = 4 << 20 };
    static atomic_long known;
    long               bytes = atomic_load_explicit(&known, memory_order_relaxed);
    if (bytes) return bytes;
    bytes = is_amd() ? EPYC : sysconf(_SC_LEVEL2_CACHE_SIZE);
    if (bytes < LEAST) bytes = LEAST;
    atomic_store_explicit(&known, bytes, memory_order_relaxed);
    return bytes;
}

// Whether a launch reads the memory of buffer b: then its lines are in the caches when they are
// written.
static bool is_read(const tni_launch *l, int b)
{
    const tni_kernel *k = l->kernel;
    for (int i = 0; i < k->nins; i++) {
        int of = k->ins[i].code == TNI_I_LOAD ? k->access[k->ins[i].access].buffer : -1;
        if (of >= 0 && l->buffer[of] == l->buffer[b]) return true;
    }
    return false;
}

// Returns the lane axis of a kernel; -1 if it has none.
static int lane_axis(const tni_kernel *k)
{
    return (k->lane_in_r ? k->np + k->nr : k->np) - 1;
}

// Returns the bytes that store i writes to neighbours along the lanes; 0 if it writes others, or
// what the kernel returns at its end.
static int64_t stored_bytes(const tni_launch *l, int i)
{
    const tni_kernel *k = l->kernel;
    int               a = k->ins[i].access, lane = lane_axis(k);
    int64_t           n = (int64_t)tni_dtype_size((tn_dtype)k->buffer[k->access[a].buffer].dtype);
    if (k->ins[i].finish || lane < 0 || l->stride[a][lane] != 1) return 0;
    for (int j = 0; j < k->np + k->nr; j++)
        if (l->stride[a][j]) n *= l->size[j];
    return n;
}

// Returns the bytes that a launch writes in rows that are long enough; 0 if any of them replace
// what it reads, whichever: it has one word for all of its stores. ROW: the lines in which rows
// begin and end are written through the caches, and each kind of store waits for the other; 64 MB
// in rows of 65 floats take 1.5 times as long past the caches, and the two are equal at 100 to 200.
static int64_t written_bytes(const tni_launch *l)
{
    enum { ROW = 1024 };
    const tni_kernel *k    = l->kernel;
    int64_t           sum  = 0;
    int               lane = lane_axis(k);
    for (int i = 0; i < k->nins; i++) {
        int64_t n = k->ins[i].code == TNI_I_STORE ? stored_bytes(l, i) : 0;
        if (!n) continue;
        int b = k->access[k->ins[i].access].buffer;
        if (is_read(l, b)) return 0;
        if (l->size[lane] * (int64_t)tni_dtype_size((tn_dtype)k->buffer[b].dtype) >= ROW) sum += n;
    }
    return sum;
}

// Whether a launch writes at least some number of bytes. Most launches are short, and have too few
// elements for it.
static bool writes(const tni_launch *l, int64_t bytes)
{
    enum { LARGEST = 16 };  // bytes of an element
    const tni_kernel *k   = l->kernel;
    int64_t           all = LARGEST * k->nbuffer;
    for (int i = 0; i < k->np + k->nr; i++) all *= l->size[i];
    return all >= bytes && written_bytes(l) >= bytes;
}

// ENOUGH: times what the cores that run it hold, from where on it pays in the tables above. What
// all cores share may be more, but is shared with other programs, too. WORTH_A_TRY: from where on
// measuring may choose it. A kernel is measured by itself, which shows nothing of what its reader
// loses where it writes less. PAST_PAYS: what a core holds on the chips that gain by stores past
// the caches; on others the rule is strips through them, for rows, whose loads come from the caches
// by the time they are stored.
tni_c_stores tni_cpu_stores_with(int64_t cache, const tni_launch *l, int threads,
                                 const tni_tuning *t)
{
    enum { PAST_PAYS = 2 << 20, ENOUGH = 4, WORTH_A_TRY = 2 };
    static const tni_c_stores of_knob[] = { [0] = TNI_STORES_DIRECT,
                                            [1] = TNI_STORES_PAST,
                                            [2] = TNI_STORES_DIRECT,
                                            [3] = TNI_STORES_STRIPS };
    int                       set       = t ? t->of[TNI_KNOB_STREAM] : 0;
    tni_c_stores              how       = of_knob[set];
    if (!set) {
        how = l->kernel->lane_in_r ? TNI_STORES_STRIPS : TNI_STORES_DIRECT;
        if (cache >= PAST_PAYS) how = TNI_STORES_PAST;
    }
    if (!IS_X86 || how == TNI_STORES_DIRECT) return TNI_STORES_DIRECT;
    return writes(l, cache * threads * (set ? WORTH_A_TRY : ENOUGH)) ? how : TNI_STORES_DIRECT;
}

// SHARED: one thread has all of the 32 MiB that AMD's cores share, so that up to four threads count
// as four: it pays from twice that cache on.
tni_c_stores tni_cpu_stores(const tni_launch *l, int threads, const tni_tuning *t)
{
    enum { SHARED = 4 };
    return tni_cpu_stores_with(core_cache(), l, is_amd() && threads < SHARED ? SHARED : threads, t);
}
