// Compiled kernels that an earlier process left on disk, found by the kernel alone: without printing its
// text, and without asking the compiler for its name.
//
// What is compiled is a text of several kernels, kept under that text. Beside it every kernel of it has a
// small file of its own, under the kernel's key and the compiler as the environment shows it, which says
// in which of the texts it is, and its number there.
#ifndef TNI_DEVICE_CPU_RECALL_H
#define TNI_DEVICE_CPU_RECALL_H

#include "device/cpu/cc.h"
#include "kernel/disk.h"
#include "kernel/emit_c.h"

// What became of a kernel: run NULL: nothing.
typedef struct {
    tni_c_main   *run;
    tni_c_finish *finish;
    bool          found;  // on disk
} tni_made;

// The name of kernel i of a text, and its functions in what was made of the text; tails: it has a second.
void tni_made_name(char name[TNI_KERNEL_NAME], int i);
bool tni_made_find(void *object, int i, bool tails, tni_made *m);

// A kernel by the bytes of its key. One thread at a time; what is loaded stays until the process ends.
bool tni_recall(const tni_disk *d, const tni_cc *c, const char *key, size_t bytes, bool tails,
                tni_made *m);
// Says on disk that a kernel is number i of a text that is kept there.
void tni_recall_keep(tni_disk *d, const tni_cc *c, const char *key, size_t bytes,
                     tni_disk_hash text, int i);

#endif
