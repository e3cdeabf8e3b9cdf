// Loads compiled code that is only in memory into the process.
#ifndef TNI_DEVICE_CPU_OBJECT_H
#define TNI_DEVICE_CPU_OBJECT_H

#include "device/cpu/command.h"

// Loads the shared object whose file would have these bytes. No file name that another process
// could replace is opened on the way. The object stays loaded until the process ends. Returns NULL,
// with the reason, if it cannot be loaded.
void *tni_object_load(const tni_runner *r, const void *data, size_t bytes, tni_text *why);
// Sets *(function pointer) to the function of that name. Returns false, and sets NULL, if the
// object has none.
bool tni_object_symbol(void *object, const char *name, void *function);
void tni_object_close(void *object);

#endif
