// The system's C compiler, as a maker of shared objects: TN_CC if it is set (a path, or a command
// with arguments; "none" turns compiling off), else cc, gcc or clang, whichever is first on PATH.
#ifndef TNI_DEVICE_CPU_CC_H
#define TNI_DEVICE_CPU_CC_H

#include "device/cpu/command.h"

enum { TNI_CC_WORDS = 64 };

// A compiler. tni_cc_open fills in the first group of fields from the environment, without running
// anything; tni_cc_find runs the compiler and fills in the second group. One thread at a time may
// use it, except that any thread may set runner.stop.
typedef struct {
    tni_runner runner;
    char       wanted[512];   // TN_CC, or ""
    char       search[4096];  // PATH
    char identity[2048];  // what its code depends on, known without running it: its file and words,
                          // this chip, and this library; "" where that is not known

    char     path[1024];    // of the program
    char     words[512];    // what TN_CC has behind it, with spaces
    char     options[320];  // how it compiles, with spaces
    tni_text name;          // the first line of what it says of itself
    char     chip[40];  // hash of all that it knows of its target, this chip's features included
} tni_cc;

// Describes this chip by what can be asked without running a compiler: its model and enabled
// features. Returns false if it cannot be identified.
bool tni_cpu_chip_text(tni_text *t);

// Reads the environment, so that no other thread has to read it later. Returns false, with the
// reason, if no compiler is wanted or allowed.
bool tni_cc_open(tni_cc *c, tni_text *why);
void tni_cc_close(tni_cc *c);
// Finds the compiler and asks it for its name and target. Returns false, with the reason, if it
// cannot.
bool tni_cc_find(tni_cc *c, tni_text *why);
// Compiles a text and returns the bytes of a shared object, to be freed by free(). Returns NULL
// with the reason, which has the first error of the compiler in it.
void *tni_cc_compile(tni_cc *c, const char *source, size_t *bytes, tni_text *why);

#endif
