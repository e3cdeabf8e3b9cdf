// Choosing among candidates that do the same: algorithms that a library proposes, and kernels of our own.
// They are timed once, and what was chosen is kept on disk for all processes. No library is known here.
#ifndef TNI_CUDA_CHOICE_H
#define TNI_CUDA_CHOICE_H

#include "device/cuda/driver.h"

enum { TNI_CHOICE_WORDS = 64 };

// All that a choice depends on: the library with its version, the kind of GPU, and what is to be done in
// words, TNI_CHOICE_WORDS at most, which mean the same in every process.
typedef struct {
    const char    *library;
    size_t         version;
    const char    *gpu;
    const int64_t *word;
    int            words;
} tni_choice_key;

// Reads what is kept under a key, in whatever form its library wrote it. The bytes it has; 0, with
// nothing written, where there are none, or more than there is room for.
size_t tni_choice_find(const tni_choice_key *k, void *what, size_t room);
// Keeps it, replacing what was there.
void tni_choice_keep(const tni_choice_key *k, const void *what, size_t bytes);
// Looks for the folder again, as a new process would.
void tni_choice_forget(void);

// What is timed, in a stream that is not being captured. Those that a library proposed come first, its
// best guess ahead of others, then the last `own` of them, which are timed in any case.
typedef struct {
    const tni_driver *cu;
    tni_custream      stream;
    tni_cuptr         workspace;  // of bytes; it is overwritten
    size_t            bytes;
    int               count, own;
    int (*launch)(void *session, int i);  // candidate i, once; else than 0: it cannot be run
    void *session;
} tni_candidates;

// Times candidates, each into its ms: milliseconds of one launch, below 0 where it cannot be run or was
// not tried, since the library's first guesses are good enough for what takes long. An error of the
// driver.
int tni_choice_time(const tni_candidates *c, float *ms);

// The fastest of those that ran, -1 if none did. A later one has to be better by more than the clock's
// noise.
int tni_choice_best(const float *ms, int count);

#endif
