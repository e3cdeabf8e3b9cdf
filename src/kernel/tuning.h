// Settings of a kernel that rules choose and that measuring may replace, and the winners of such measurements.
//
// A setting is a number for each knob; 0 leaves the choice to the rule. Devices read them where the rule would decide
// (kernel/simt.c, device/cpu/cpu_launch.c), as far as the kernel and the chip allow it: settings that a device offers, or that
// were read from a file, make a launch that is right, though sums may have another order.
//
// Winners are lines of one text of the disk cache (kernel/disk.h), by kernel, sizes, strides and chip. A process reads it
// once, when the first kernel is looked for. With TN_DETERMINISTIC=1, or TN_TUNE=0, there are none.
#ifndef TNI_KERNEL_TUNING_H
#define TNI_KERNEL_TUNING_H

#include "base/text.h"
#include "kernel/kernel.h"

typedef enum {
    TNI_KNOB_VECTOR,   // most elements of a vector
    TNI_KNOB_UNROLL,   // vectors that a thread has in flight
    TNI_KNOB_WARPS,    // threads of a group, in warps of 32
    TNI_KNOB_HOLD,     // where a row is held between loops: TNI_HOLD_BY_
    TNI_KNOB_CLUSTER,  // 1 + the line of the table of groups that share a row (simt.c: sharing)
    TNI_KNOB_OCCUPANCY,  // 1: half as many threads on a multiprocessor, each with more registers; 2: not
    TNI_KNOB_GRID,       // groups of a kernel with tails, in quarters of those that run at once
    TNI_KNOB_PREFETCH,  // 1: the next row is loaded while one is computed; 2: not
    TNI_KNOB_TILE,      // tiles of a group that transposes, side by side
    TNI_KNOB_SQUARE,  // tiles along a side of the squares that are visited with their transposes; 1: none are
    TNI_KNOB_THREADS,  // threads of the cpu
    TNI_KNOB_CHUNKS,   // chunks for each thread of the cpu
    TNI_KNOBS
} tni_knob;

// Where a row is held; each falls back to the next. TNI_SHARINGS: values of TNI_KNOB_CLUSTER.
enum { TNI_HOLD_BY_REGISTERS = 1, TNI_HOLD_BY_FEWER, TNI_HOLD_BY_BULK, TNI_HOLD_BY_LOOP };
enum { TNI_SHARINGS = 18 };

// Compared and kept as bytes.
struct tni_tuning {
    uint8_t of[TNI_KNOBS];
};

// Writes "vector 4, unroll 2"; "as the rule says" if nothing is set.
tni_text tni_tuning_text(const tni_tuning *t);

// A winner: its settings, and the microseconds of a launch that were measured with them, by the rule, and by the best of the
// others (0: there was none).
typedef struct {
    uint64_t   key[2];
    char       chip[64];
    tni_tuning settings;
    double     us, rule_us, next_us;
    char       what[64];  // for people: the kernel's kind and sizes
} tni_tuned;

// Fills in the key of a launch: all that its shape follows from. Addresses count by their alignment.
void tni_tuned_key(const tni_launch *l, uint64_t key[2]);
// Finds the winner for a launch on a chip. False if there is none.
bool tni_tuned_find(const char *chip, const tni_launch *l, tni_tuned *found);
// Keeps a winner, in this process and on disk, instead of an older one with that key. False when memory is out.
bool tni_tuned_keep(const tni_tuned *t);
// Writes all winners to a file, or adds those of one, of any chip, newer ones replacing older ones; *count says how many. False with the
// reason if that failed; a line that is no winner fails the whole file, and nothing of it is kept.
bool tni_tuned_export(const char *path, int *count, tni_text *why);
bool tni_tuned_import(const char *path, int *count, tni_text *why);
// Reads file and environment again at the next use, as a new process would. For tests.
void tni_tuned_forget(void);

// ---- what settings did on this chip so far ---------------------------------------------------------

// A model of the time under some settings beside the rule's: each value of a knob multiplies it by a factor, the mean of what was measured
// with that value in kernels of a kind (POINT, ROW, COL, FULL), drawn towards 1 as long as measurements are few. It is kept with the winners.
double tni_tuning_expect(const char *chip, const tni_kernel *k, const tni_tuning *t);
// Learns that a launch under settings t took `ratio` times as long as under `from`.
void tni_tuning_learn(const char *chip, const tni_kernel *k, const tni_tuning *from,
                      const tni_tuning *t, double ratio);

#endif
