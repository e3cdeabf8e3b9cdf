// What the files that choose a shape (simt.c, simt_choose_bulk.c) share. Nothing outside src/kernel
// includes this.
#ifndef TNI_KERNEL_SIMT_CHOOSE_H
#define TNI_KERNEL_SIMT_CHOOSE_H

#include "kernel/simt_emitter.h"

// Bytes of shared memory left for `red` and the driver, where rows take the rest.
enum { TNI_SHARED_KEPT = 4096 };

// A launch and what the choice needs to know about it. Found once, by find_launch_facts, and
// constant after.
typedef struct {
    const tni_launch      *l;
    const tni_kernel      *k;
    const tni_simt_limits *limits;
    uint8_t                varies[TNI_MAX_INS];
    int                    lane;  // axis whose neighbours are side by side in memory
    int64_t                rows, cols, lanes;
    uint64_t               movers;      // accesses that may move vectors
    uint64_t               columns;     // those of them that may be loaded once for several rows
    int                    col_tails;   // tails of elements
    bool                   col_finish;  // the finish goes over columns
    bool                   row_work;    // a row value is stored or added up, or a row is reduced
    bool                   reduces;     // over R
    bool                   doubles;     // something is computed in f64
    bool                   draws;       // random numbers
} tni_launch_facts;

// What a knob is set to; 0: the rule decides.
static inline int tni_setting(const tni_launch_facts *f, tni_knob k)
{
    return f->limits->tuning ? f->limits->tuning->of[k] : 0;
}

static inline tn_dtype tni_access_dtype(const tni_kernel *k, int access)
{
    return (tn_dtype)k->buffer[k->access[access].buffer].dtype;
}

// Whether a thread's registers hold its part of the row.
bool tni_simt_fits_registers(const tni_launch_facts *f, const tni_simt_class *c);

// ---- rows that bulk copies bring: simt_choose_bulk.c -------------------------------------------

// Bytes of shared memory for the loads of a row that several loops read; each load is padded to 16
// bytes.
int64_t tni_simt_stash_bytes(const tni_launch_facts *f, const tni_simt *m);
// A long row: held in shared memory, into which a bulk copy brings the next row as soon as this one
// is done with. False if that is not to be had.
bool tni_simt_bring_row(const tni_launch_facts *f, tni_simt *m);
// The same for a row that registers hold, those of a cluster of groups if it is long: bulk copies
// bring the next row into shared memory while one is computed.
bool tni_simt_bring_ahead(const tni_launch_facts *f, tni_simt *m);
// Has bulk copies bring the next row where a team has many rows with sums of columns. False, and
// nothing done, if they cannot.
bool tni_simt_prefetch_in_bulk(const tni_launch_facts *f, tni_simt *m);
// Groups, or clusters of them, that the device runs at once where bulk copies bring rows.
int64_t tni_simt_bulk_concurrent(const tni_launch_facts *f, const tni_simt_class *c);
// Whether rows are taken by tickets.
bool tni_simt_takes_tickets(const tni_launch_facts *f, const tni_simt_class *c);

#endif
