// cli_kit.h: the tool as a process in a folder of its own, for the files of tests that run it.
#ifndef TEST_CLI_KIT_H
#define TEST_CLI_KIT_H

#include "check.h"
#include "scratch.h"

#include <stdio.h>

// What the last script printed, stderr too.
extern char out[1 << 18];

// Looking for leaks takes seconds a process, so sanitized builds do it in a test of its own.
#define NO_LEAKS "export ASAN_OPTIONS=detect_leaks=0; "

// Opens the scratch folder, in which a test's scripts run.
bool begin(void);
// Runs a script there, with tenon as the tool; its exit status must be as expected.
bool runs(int status, const char *script, ...) TEST_PRINTF(2, 3);
// The output must have the text.
void prints(const char *text);
// A file in the folder, to be written; NULL, reported, on failure.
FILE *create(const char *name);

#endif
