// Running another program: without a shell, with everything it writes in a file, and never longer
// than it may. It works whatever the host program does with its signals and its other children.
#ifndef TNI_DEVICE_CPU_COMMAND_H
#define TNI_DEVICE_CPU_COMMAND_H

#include "base/text.h"

#include <stdatomic.h>

enum { TNI_FOLDER = 512 };

// How commands run. stop may be set from any thread: the command is ended at once. late: a command was
// ended because it took too long; others of its kind would too.
typedef struct {
    char      **environment;  // as environ; the first is TMPDIR
    int         limit_ms;     // ended after this
    atomic_bool stop, late;
} tni_runner;

// Copies the environment of this process, less what is about this process alone. False: memory.
bool tni_runner_open(tni_runner *r, int limit_ms);
void tni_runner_close(tni_runner *r);

// A folder for temporary files that nobody else can enter, in $TMPDIR or /tmp. False, with the
// reason.
bool tni_folder_make(const tni_runner *r, char folder[TNI_FOLDER], tni_text *why);
// Removes it with the files in it.
void tni_folder_remove(const char *folder);
// Removes such folders of processes that were killed, more than an hour ago.
void tni_folder_sweep(const tni_runner *r);
// A whole file of the folder, to be freed, with a 0 behind it; NULL if it cannot be read.
char *tni_folder_read(const char *folder, const char *name, size_t *bytes);
bool  tni_folder_write(const char *folder, const char *name, const void *data, size_t bytes);

// Runs argv[0], a path, in the environment of r; what it writes to its output and to its errors goes
// to files "out" and "err" of the folder. False, with the reason, if it did not run or is known to
// have failed: a host that takes the status of all its children leaves that unknown. If this process is
// killed meanwhile, the program, what it started, and the folder go with it.
bool tni_command_run(tni_runner *r, char *const argv[], const char *folder, tni_text *why);

#endif
