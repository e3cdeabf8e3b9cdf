// The system's C compiler, as a maker of shared objects: TN_CC where it is set (a path, or a command
// with arguments; "none" is none), else cc, gcc or clang, the first on PATH.
#ifndef TNI_DEVICE_CPU_CC_H
#define TNI_DEVICE_CPU_CC_H

#include "device/cpu/command.h"

enum { TNI_CC_WORDS = 64 };

// A compiler. tni_cc_open fills in what the environment says; what is found out by running it stands
// behind, filled in by tni_cc_find. One thread at a time uses it; runner.stop is free to all.
typedef struct {
    tni_runner runner;
    char       wanted[512];   // TN_CC, "" where it is not set
    char       search[4096];  // PATH
    char who[2048];  // what its code depends on, known without running it: its file and words,
                     // this chip, and this library; "" where that is not known

    char     path[1024];    // of the program
    char     words[512];    // what TN_CC has behind it, with spaces
    char     options[320];  // how it compiles, with spaces
    tni_text name;          // the first line of what it says of itself
    char     chip[40];  // hash of all that it knows of its target, this chip's features included
} tni_cc;

// Reads the environment, so that it is not read later, from another thread. False, with the reason,
// where no compiler is wanted.
bool tni_cc_open(tni_cc *c, tni_text *why);
void tni_cc_close(tni_cc *c);
// Looks for the compiler and asks it for its name and target. False, with the reason.
bool tni_cc_find(tni_cc *c, tni_text *why);
// Compiles a text to the bytes of a shared object, to be freed. NULL, with the reason; the first
// line of what the compiler said is in it.
void *tni_cc_compile(tni_cc *c, const char *source, size_t *bytes, tni_text *why);

#endif
