// scratch.h: a folder under /tmp for the files of a test. One is open at a time.
#ifndef TEST_SCRATCH_H
#define TEST_SCRATCH_H

#include <stdbool.h>
#include <stddef.h>

// Makes the folder, empty; removes it with everything in it.
bool scratch_open(void);
void scratch_close(void);
// The path of a name in it; in a ring of eight.
const char *scratch_path(const char *name);
// How many files it has.
int scratch_count(void);

// A whole file, to be freed; NULL if it cannot be read. Writes one, with nothing done for safety.
char *scratch_read(const char *path, size_t *bytes);
bool  scratch_write(const char *path, const void *data, size_t bytes);
// Whether two files have the same bytes.
bool scratch_equal(const char *a, const char *b);

#endif
