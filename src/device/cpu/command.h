// Runs another program: without a shell, with everything it writes in a file, and for a limited
// time. Works whatever the host program does with its signals and its other children.
#ifndef TNI_DEVICE_CPU_COMMAND_H
#define TNI_DEVICE_CPU_COMMAND_H

#include "base/text.h"

#include <stdatomic.h>

enum { TNI_FOLDER = 512 };

// How commands run. Any thread may set stop, which ends a running command at once. late is set when
// a command was ended because it took too long, which others of its kind would too.
typedef struct {
    char      **environment;  // as environ; the first is TMPDIR
    int         limit_ms;     // ended after this
    atomic_bool stop, late;
} tni_runner;

// Copies the environment of this process, without the variables that concern this process alone.
// Returns false if memory is out.
bool tni_runner_open(tni_runner *r, int limit_ms);
void tni_runner_close(tni_runner *r);

// Makes a folder for temporary files that no other user can enter, in $TMPDIR or /tmp. Returns
// false, with the reason, if it cannot.
bool tni_folder_make(const tni_runner *r, char folder[TNI_FOLDER], tni_text *why);
// Removes the folder and the files in it.
void tni_folder_remove(const char *folder);
// Removes such folders that killed processes left behind more than an hour ago.
void tni_folder_sweep(const tni_runner *r);
// Returns a whole file of the folder, to be freed by free(), with a 0 after it; NULL if it cannot
// be read.
char *tni_folder_read(const char *folder, const char *name, size_t *bytes);
bool  tni_folder_write(const char *folder, const char *name, const void *data, size_t bytes);

// Runs argv[0], a path, in the environment of r; its output and its errors go to the files "out"
// and "err" of the folder. Returns false, with the reason, if it did not run or is known to have
// failed: in a host that collects the status of all children itself, the status is unknown and
// counts as success. If this process is killed meanwhile, the program, the programs it started and
// the folder are removed too.
bool tni_command_run(tni_runner *r, char *const argv[], const char *folder, tni_text *why);

#endif
