// Compiled code that is only in memory, brought into the process.
#ifndef TNI_DEVICE_CPU_OBJECT_H
#define TNI_DEVICE_CPU_OBJECT_H

#include "device/cpu/command.h"

// Loads the shared object whose file would be these bytes: no name that somebody could change is
// opened on the way. It stays until the process ends. NULL, with the reason.
void *tni_object_load(const tni_runner *r, const void *data, size_t bytes, tni_text *why);
// Sets *(function pointer) to what it has under a name; false, and NULL, if there is none.
bool tni_object_symbol(void *object, const char *name, void *function);
void tni_object_close(void *object);

#endif
