// What rules choose and measuring may replace, for kernels and for plans, and the winners of such
// measurements.
//
// A setting is a number for each knob; 0 leaves the choice to the rule. Devices read them where the
// rule would decide (kernel/simt.c, device/cpu/cpu_launch.c), as far as the kernel and the chip
// allow it: settings that a device offers, or that were read from a file, make a launch that is
// right, though sums may have another order.
//
// Of a plan, what the planner decided about single values may be chosen otherwise: plan/choices.h.
// Choices are legal for any plan; where one does not apply, the rule does. Of a library call, an
// algorithm may be chosen that the library does not propose.
//
// Winners are lines of one text of the disk cache (kernel/disk.h), by kernel, sizes, strides and
// chip, or by the key of a plan or call and chip. A process reads it when the first kernel is
// looked for, and before it writes. With TN_DETERMINISTIC=1, or TN_TUNE=0, there are none.
#ifndef TNI_KERNEL_TUNING_H
#define TNI_KERNEL_TUNING_H

#include "base/text.h"
#include "kernel/kernel.h"

typedef enum {
    TNI_KNOB_VECTOR,   // most elements of a vector
    TNI_KNOB_UNROLL,   // vectors that a thread has in flight, on a GPU and on the cpu
    TNI_KNOB_WARPS,    // threads of a group, in warps of 32
    TNI_KNOB_HOLD,     // where a row is held between loops: TNI_HOLD_BY_
    TNI_KNOB_CLUSTER,  // 1 + the line of the table of groups that share a row (simt.c: sharing)
    TNI_KNOB_OCCUPANCY,  // 1: half as many threads on a multiprocessor, each with more registers; 2: not
    TNI_KNOB_GRID,       // groups of a kernel with tails, in quarters of those that run at once
    TNI_KNOB_PREFETCH,  // 1: the next row is loaded while one is computed, on the cpu into cache; 2: not; 3: by bulk copies of each warp
    TNI_KNOB_TILE,      // tiles of a group that transposes, side by side
    TNI_KNOB_SQUARE,  // tiles along a side of the squares that are visited with their transposes; 1: none are
    TNI_KNOB_THREADS,  // threads of the cpu
    TNI_KNOB_CHUNKS,   // chunks for each thread of the cpu
    TNI_KNOB_STREAM,  // how the cpu stores what it computes: 1 past its caches, where the processor can; 2 through them; 3 so by strips
    TNI_KNOBS
} tni_knob;

// Where a row is held; each falls back to the next. AHEAD: in registers, which bulk copies fill.
// TNI_SHARINGS: values of TNI_KNOB_CLUSTER.
enum {
    TNI_HOLD_BY_REGISTERS = 1,
    TNI_HOLD_BY_FEWER,
    TNI_HOLD_BY_AHEAD,
    TNI_HOLD_BY_BULK,
    TNI_HOLD_BY_LOOP
};
enum { TNI_SHARINGS = 18 };

// Compared and kept as bytes.
struct tni_tuning {
    uint8_t of[TNI_KNOBS];
};

// Writes "vector 4, unroll 2"; "as the rule says" if nothing is set.
tni_text tni_tuning_text(const tni_tuning *t);
// The name of a knob or, from TNI_KNOBS on, of a kind of choices; and the number of a name of n
// characters, -1 if there is none.
const char *tni_knob_name(int knob);
int         tni_knob_of(const char *name, size_t n);

// What may be chosen of a plan, for a value of its graph.
typedef enum {
    TNI_CHOICE_CUT,  // the kernel that makes it ends with it: what reads it is in another kernel
    TNI_CHOICE_JOIN,  // its kernel is joined with one that reads the same, however far away that was recorded
    TNI_CHOICE_STORE,   // it is stored, where each of its readers would compute it
    TNI_CHOICE_INLINE,  // each of its readers computes it, where it would be stored
    TNI_CHOICE_LOAD,    // kernels load it that would compute it again, though it is stored
    TNI_CHOICE_PLAIN,   // the library call that makes it has no epilogue
    TNI_CHOICE_DENSE,   // its rows have no gaps
    TNI_CHOICE_OTHER,  // the call that makes it uses the other method: of the cpu, the BLAS or our own product
    TNI_CHOICE_FEWER,  // the call divides its work into fewer, larger parts: panels of a product of the cpu
    TNI_CHOICE_MORE,    // the call divides its work into more, smaller parts
    TNI_CHOICE_SPREAD,  // the sum that it is, down a column, is of partial sums of the whole device if it would not be, or else is not
    TNI_CHOICE_KINDS
} tni_choice_kind;

// A choice for all values that a hash of what they are made from names (plan/choices.c), as the
// same value of each layer; never 0.
typedef struct {
    uint8_t  kind;
    uint32_t where;
} tni_choice;

// TNI_CHOICES: of one plan. More are hardly found by measuring, and have to fit a line.
enum { TNI_CHOICES = 8 };
typedef struct {
    int        n;
    tni_choice of[TNI_CHOICES];
} tni_choices;

// The name of a kind, "cut".
const char *tni_choice_name(int kind);

// An algorithm of a library, in the n bytes that the library takes; n is 0 if there is none. In a
// file a hash of winner and bytes follows them, so that none is read that did not win; who reads
// them asks the library, which may be another, whether it accepts them.
enum { TNI_ALGORITHM_BYTES = 64 };
typedef struct {
    uint8_t n, byte[TNI_ALGORITHM_BYTES];
} tni_algorithm;

// A winner: its settings, the choices of a plan or the algorithm of a call, and the microseconds of
// a launch or of a run that were measured with them, by the rule, and by the best of the others (0:
// there was none).
typedef struct {
    uint64_t      key[2];
    char          chip[64];
    tni_tuning    settings;
    tni_choices   choices;
    tni_algorithm algorithm;
    double        us, rule_us, next_us;
    char          what[64];  // for people: the kernel's kind and sizes
} tni_tuned;

// What won in a word, "vector=4,unroll=2", "cut=1f0c22d9", "algorithm=4200..." or "-"; and back,
// into a winner of zeros, false for what is never offered.
tni_text tni_tuned_word(const tni_tuned *w);
bool     tni_tuned_read_word(const char *s, tni_tuned *w);

// Fills in the key of a launch: a hash of its kernel and of what its shape follows from
// (launch_words.h).
void tni_tuned_key(const tni_launch *l, uint64_t key[2]);
// Finds the winner for a launch on a chip. False if there is none.
bool tni_tuned_find(const char *chip, const tni_launch *l, tni_tuned *found);
// The same for a plan or a library call, by the bytes that describe it (plan/key.c,
// device/cuda/product_search.c).
void tni_tuned_bytes_key(const void *bytes, size_t n, uint64_t key[2]);
bool tni_tuned_find_bytes(const char *chip, const void *bytes, size_t n, tni_tuned *found);
// Keeps a winner, in this process and on disk, instead of an older one with that key. False when
// memory is out.
bool tni_tuned_keep(const tni_tuned *t);
// Whether winners are on disk, and in which folder; why not, if they are not.
bool tni_tuned_kept(tni_text *where, tni_text *why);
// Writes all winners to a file, or adds those of one, of any chip, newer ones replacing older ones;
// *count says how many. False with the reason if that failed; a line that is no winner fails the
// whole file, and nothing of it is kept.
bool tni_tuned_export(const char *path, int *count, tni_text *why);
bool tni_tuned_import(const char *path, int *count, tni_text *why);
// How often winners were imported or forgotten in this process: who keeps what it has found looks
// again.
uint32_t tni_tuned_imports(void);
// The seconds of TN_TUNE; -1 if it is not set or no such number. Of the latter why says so, once in
// a process.
double tni_tuned_seconds(tni_text *why);
// Whether TN_TUNE=0 or TN_DETERMINISTIC=1 leaves everything to the rules: winners are not used, and
// nothing is to be measured.
bool tni_tuned_off(void);
// Reads file and environment again at the next use, as a new process would. For tests.
void tni_tuned_forget(void);

// ---- contests ----------------------------------------------------------------------------------

// Contests that a winner must win.
enum { TNI_CONTESTS = 2 };

// How often what takes `seconds` is run for a sample that should be as long as `enough`: for a
// GPU's events, TNI_SAMPLE_BY_EVENTS.
#define TNI_SAMPLE_BY_EVENTS 300e-6
int tni_sample_runs(double seconds, double enough);

// Takes samples of two ways in turns: sample(arg, way) returns the seconds of one, INFINITY if it
// failed. Returns whether the second is faster by more than the samples of either vary, or in each
// of its samples, and by a hundredth, in each of `times` contests; us gets the microseconds of both
// in the last.
bool tni_wins(double (*sample)(void *arg, const void *way), void *arg, const void *best,
              const void *other, int times, double us[2]);
// Lets the rule's way and a winner meet once more, so that both times, us, are of one contest.
// Returns whether the winner stays: a new one has to win again; an older one, of a search before,
// runs and the rule does not win against it, so that noise does not take it back.
bool tni_winner_stays(double (*sample)(void *arg, const void *way), void *arg, const void *rule,
                      const void *winner, bool older, double us[2]);

// Orders doubles, for qsort.
int tni_by_size(const void *a, const void *b);

// What became of a search: the call did not search, it knows all that it wants to know, or time or
// memory ran out and another run may go on.
typedef enum { TNI_SEARCHED_NOTHING, TNI_SEARCHED_ALL, TNI_SEARCH_LEFT } tni_search_end;

// Asked of a library call that runs: to look for a faster way to compute it first, and to compute
// it so from then on.
typedef struct {
    // Whether there is time to measure one more.
    bool (*may_go_on)(void *arg);
    // Takes memory on the device until it is given back; NULL: there is none.
    void *(*take)(void *arg, size_t bytes, char **data);
    void (*give)(void *arg, void *memory);
    // Whether n elements on the device agree, as numbers that were added in another order.
    bool (*agree)(void *arg, tn_dtype dt, const char *have, const char *want, int64_t n);
    // Receives a winner, which may be the rule's, and in words what it is; before: what the same
    // search found before, or NULL.
    void (*found)(void *arg, const tni_tuned *won, const tni_tuned *before, const char *with);
    void          *arg;
    tni_search_end end;  // set by the call
} tni_call_search;

// ---- what settings did on this chip so far -----------------------------------------------------

// A model of the time under some settings beside the rule's: each value of a knob multiplies it by
// a factor, the mean of what was measured with that value in kernels of a kind (POINT, ROW, COL,
// FULL), drawn towards 1 as long as measurements are few. It is kept with the winners.
double tni_tuning_expect(const char *chip, const tni_kernel *k, const tni_tuning *t);
// Learns that a launch under settings t took `ratio` times as long as under `from`.
void tni_tuning_learn(const char *chip, const tni_kernel *k, const tni_tuning *from,
                      const tni_tuning *t, double ratio);
// The same for a choice: what the part of a plan takes that it is about.
double tni_choice_expect(const char *chip, int kind);
void   tni_choice_learn(const char *chip, int kind, double ratio);

#endif
