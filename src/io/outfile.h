// Files that appear whole or not at all: written beside their place, synced, renamed.
#ifndef TNI_IO_OUTFILE_H
#define TNI_IO_OUTFILE_H

#include "tensor/context.h"

// A file being written to a temporary name in the folder of path. Nothing at path changes before
// tni_outfile_commit; after that, path is the new file and safe on disk.
typedef struct tni_outfile tni_outfile;

// NULL, reported by the op's name as TN_EIO with the path and the system's reason.
tni_outfile *tni_outfile_open(tn_ctx *cx, const char *op, const char *path);
// False, reported, on failure; then only tni_outfile_abandon is left to do.
bool tni_outfile_write(tni_outfile *f, const void *data, size_t bytes);
// Flushes, syncs, renames, syncs the folder. Frees f also on failure, when the old file is as it
// was.
tn_status tni_outfile_commit(tni_outfile *f);
// Removes the temporary file and frees f.
void tni_outfile_abandon(tni_outfile *f);

#endif
