// What a file of measurements includes. A case measures something and adds rows to the result.
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <tenon.h>

// One measured number. ratio is the number over that of what `of` names; NAN where there is nothing
// to compare with.
typedef struct {
    const char *name;  // of the case
    const char *what;
    double      value;
    const char *unit;
    double      ratio;
    const char *of;
} bench_row;

void bench_add(bench_row r);

// What a number and its ratio are wanted to be at most; 0: nothing is.
typedef struct {
    double value, ratio;
} bench_wanted;
// The row says what is wanted, and where it is missed.
void bench_add_wanted(bench_row r, bench_wanted w);

// A line instead of a number: why a case could not be measured.
void bench_note(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// Whether the question is only if the bench works (--quick): small sizes, few repetitions, no
// peers.
bool bench_quick(void);

// Whether PyTorch is asked for the same work; --no-peers and --quick leave it out.
bool bench_peers(void);
// Whether what has this name is measured: TN_BENCH_ONLY takes only names with its text in them, or
// one of its texts ("lenet|GPT-2").
bool bench_chosen(const char *name);
// The numbers of threads to measure with, and how many they are: those of --threads, else all
// threads, after one alone if that is asked for.
enum { BENCH_THREAD_COUNTS = 8 };
int bench_thread_counts(int counts[BENCH_THREAD_COUNTS], bool and_one);

double bench_seconds(void);
// The median of n numbers, which it sorts.
double bench_middle(double *v, int n);
// The median time of a call, after calls to warm up: at least 7 calls and a third of a second, but
// no more than 3 calls once they took 2 seconds.
double bench_median(void (*f)(void *arg), void *arg);
// With --profile FOLDER: runs f some more times, and writes the time of each kernel into
// FOLDER/name_threads.txt.
void bench_profile(tn_ctx *cx, const char *name, int threads, void (*f)(void *arg), void *arg);
// A context for measuring; ends the program if there is none.
tn_ctx *bench_open(tn_open_opts o);
// Ends the program if the context has an error: a wrong number is worse than none.
void bench_check(tn_ctx *cx);

// Runs this program again with arguments and settings of the environment ("A=1 B=2") in front of
// it, perhaps under another program, and gives the number that stands behind `key` in what it
// prints (stderr too). NAN if there is none.
double bench_child(const char *before, const char *arguments, const char *key);

// Runs f in a process of its own, which is ended after `seconds`; its measurements are added here.
// A crash of it is a note.
void bench_apart(const char *name, const char *what, int seconds, void (*f)(void *arg), void *arg);

// The same work in PyTorch, on that many threads, 0 for as many as Tenon takes: the fastest of the
// Pythons that TN_PYTHON, the path and the system have. seconds is NAN where none has PyTorch.
typedef struct {
    double seconds;
    char   name[64];  // "PyTorch 2.9.0"
} bench_peer;
bench_peer bench_ask_peer(const char *name, int threads);

// The cases, and what children run.
typedef void bench_case(void);
bench_case bench_record, bench_chain, bench_loop, bench_instructions, bench_matmul, bench_bandwidth,
    bench_fused, bench_training, bench_inference, bench_pictures, bench_decode, bench_cold,
    bench_gpu_ops, bench_gpu_steps, bench_gpu_gpt2, bench_gpu_images, bench_gpu_lm, bench_gpu_conv;
void bench_instructions_child(const char *mode);
void bench_matmul_child(void);
void bench_cold_child(void);
void bench_scaling_child(const char *name, const char *engine);
void bench_gpu_images_child(void);
void bench_gpu_child(void);  // whether there is a GPU, as its status

#endif
