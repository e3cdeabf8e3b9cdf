// fuzz.h: what a target of the fuzzer includes. A target is one reader of files: inputs to start
// from, and a function that reads an input and says how that went. It ends with its row,
//
//     const fuzz_target fuzz_npy = { .name = "npy", .seeds = seeds, .run = run, .tokens = tokens };
//
// and targets.h has a line for it. Whatever the input, a run must not crash, must report what is
// wrong, and must take little memory and give all of it back: fuzz_close checks the last two.
#ifndef TEST_FUZZ_H
#define TEST_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <tenon.h>

enum { FUZZ_ROOM = 1 << 16 };  // the longest input

// Static data of its file. tokens end with NULL and may be left out: words of the format, put
// into inputs as they are.
typedef struct {
    const char *name;
    void (*seeds)(void);                                   // calls fuzz_seed a few times
    uint64_t (*run)(const unsigned char *data, size_t n);  // equal outcomes give equal numbers
    const char *const *tokens;
} fuzz_target;

// An input to start from; more than FUZZ_ROOM bytes are cut.
void fuzz_seed(const void *data, size_t n);

// A context of one thread whose memory is counted.
tn_ctx *fuzz_open(void);
// Closes it and returns its outcome: a hash of its first error, without the numbers and quoted
// names in its text. Checks that it never had more than twice the input's n bytes plus 16 MiB, and
// that nothing is left of it.
uint64_t fuzz_close(tn_ctx *cx, size_t n);
// The same of any status and text, for a reader without a context; and of two outcomes, one.
uint64_t fuzz_outcome(int status, const char *text);
uint64_t fuzz_join(uint64_t a, uint64_t b);

// Puts an input (or a part of it) into a file of this name and returns its path, which stands until
// the next call with this name. NULL data removes the file.
const char *fuzz_file(const char *name, const void *data, size_t n);
// Names a file that the target itself may write there.
const char *fuzz_path(const char *name);

// Stops the run as a finding, with the line and the condition.
#define FUZZ_CHECK(...) ((__VA_ARGS__) ? (void)0 : fuzz_fail(__FILE__, __LINE__, #__VA_ARGS__))
_Noreturn void fuzz_fail(const char *file, int line, const char *text);

// ---- between the files of the fuzzer itself ----------------------------------------------------

// A generator of numbers, all of a run's randomness.
typedef struct {
    uint64_t state;
} fuzz_random;

uint64_t fuzz_next(fuzz_random *r);
// A number below n > 0.
size_t fuzz_below(fuzz_random *r, size_t n);

// Damages data[0 .. n-1] in place in one to eight ways, some of them with bytes of another input;
// returns the new length, at most FUZZ_ROOM.
size_t fuzz_mutate(fuzz_random *r, unsigned char *data, size_t n, const unsigned char *other,
                   size_t other_n, const char *const *tokens);

// The folder of fuzz_file, made and removed by whoever runs targets.
void fuzz_folder_make(void);
void fuzz_folder_remove(void);
// The most bytes that any context had so far.
size_t fuzz_peak(void);

#endif
