// Choosing among candidates that compute the same: algorithms that a library proposes, and kernels
// of our own. They are timed once, and the choice is kept on disk for all processes. No library is
// known here.
#ifndef TNI_CUDA_CHOICE_H
#define TNI_CUDA_CHOICE_H

#include "device/cuda/driver.h"

// Words of a key, at most; a product's key has 31, attention's 96.
enum { TNI_CHOICE_WORDS = 256 };

// All that a choice depends on: the library with its version, the kind of GPU, and the work in
// words, which mean the same in every process.
typedef struct {
    const char    *library;
    size_t         version;
    const char    *gpu;
    const int64_t *word;
    int            words;
} tni_choice_key;

// Reads the choice kept under a key, in whatever form its library wrote it. Returns its bytes; 0,
// with nothing written, if there is none or it does not fit.
size_t tni_choice_find(const tni_choice_key *k, void *what, size_t room);
// Keeps a choice, replacing an older one.
void tni_choice_keep(const tni_choice_key *k, const void *what, size_t bytes);
// Opens the cache folder again at the next use, as a new process would. For tests.
void tni_choice_forget(void);

// The candidates to time, in a stream that is not being captured: first a library's proposals, its
// best guess ahead, then `own` candidates of ours, which are always timed.
typedef struct {
    const tni_driver *cu;
    tni_custream      stream;
    tni_cuptr         workspace;  // of `bytes`; it is overwritten
    size_t            bytes;
    int               count, own;
    int (*launch)(void *session, int i);  // launches candidate i once; not 0: it cannot run
    void *session;
} tni_candidates;

// Times candidates: ms[i] becomes the milliseconds of one launch of candidate i, negative if it
// cannot run or was not tried. Returns an error of the driver.
int tni_choice_time(const tni_candidates *c, float *ms);

// Times one candidate: the milliseconds of one launch, the best of some rounds of `runs` launches
// one after the other, behind one that loads its code; negative if it cannot run.
float tni_choice_time_one(const tni_candidates *c, int i, int rounds, int runs);

// Returns the fastest candidate of those that ran, -1 if none did. A later one has to be faster by
// more than the clock's noise.
int tni_choice_best(const float *ms, int count);

#endif
