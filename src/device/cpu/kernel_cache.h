// Compiled kernels that an earlier process left on disk, found by the kernel alone: neither is its
// text printed nor the compiler run.
//
// One compilation makes a text of several kernels into one object, which is stored under a hash of
// the text. Beside it, every kernel of that text has a small file of its own, stored under the
// kernel's key and the compiler's identity (tni_cc.identity), which names the object and the
// kernel's number in it.
#ifndef TNI_DEVICE_CPU_KERNEL_CACHE_H
#define TNI_DEVICE_CPU_KERNEL_CACHE_H

#include "device/cpu/cc.h"
#include "kernel/disk.h"
#include "kernel/emit_c.h"

// The functions of a compiled kernel. run is NULL if it is not compiled.
typedef struct {
    tni_c_main   *run;
    tni_c_finish *finish;
    bool          found;  // was on disk, not compiled by this process
} tni_cpu_functions;

// Writes the name of kernel i of a text; finds the functions of kernel i in the object that was
// made from the text. tails: the kernel has a finish function, too.
void tni_cpu_function_name(char name[TNI_KERNEL_NAME], int i);
bool tni_cpu_functions_find(void *object, int i, bool tails, tni_cpu_functions *m);

// Finds a kernel by the bytes of its key. For one thread at a time; a loaded object stays until the
// process ends.
bool tni_kernel_cache_find(const tni_disk *d, const tni_cc *c, const char *key, size_t bytes,
                           bool tails, tni_cpu_functions *m);
// Writes to disk that a kernel is number i of a text that is stored there.
void tni_kernel_cache_keep(tni_disk *d, const tni_cc *c, const char *key, size_t bytes,
                           tni_disk_hash text, int i);

#endif
