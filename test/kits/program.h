// program.h: random tensor programs, run by the library and by the oracle side by side.
//
// A program is a list of instructions made of random numbers. What an instruction means depends on
// the tensors there are when it runs, and it always means something, so that a program stays one
// when instructions are taken out.
#ifndef TEST_PROGRAM_H
#define TEST_PROGRAM_H

#include "check.h"
#include "oracle.h"

#include <stdio.h>
#include <tenon.h>

enum { SLOTS = 10, LENGTH = 56, DEPTH = 2, ARGS = 7 };

typedef struct {
    int      kind;
    uint32_t r[ARGS];
} instr;

typedef struct {
    uint64_t    seed;
    const char *device;
    int64_t     flush_nodes;
    bool        singles;         // has f32 tensors, and is compared less closely
    bool        wrapped;         // all in one scope, after which nothing may be left
    void (*opened)(tn_ctx *cx);  // called with the context of a run; NULL: nothing is
    int   count;
    instr code[LENGTH];
} program;

// A tensor of the program, on both sides.
typedef struct {
    tn_tensor *t;  // NULL: the slot is free
    orc_handle h;
    int        depth;  // of the scope it belongs to
    bool       fresh;  // no view
    bool       leaf;   // the leaf's own handle
} slot;

// A program in progress. text is why it failed; lines are the listing, when asked for.
typedef struct {
    const program *p;
    tn_ctx        *cx;
    oracle         o;
    slot           slot[SLOTS];
    tn_scope      *scope[DEPTH];
    bool           mode[DEPTH];
    int            depth;
    long           blocks;  // of host memory, alive
    FILE          *listing;
    const instr   *at;
    bool           failed;
    char           text[512];
} run;

// ---- the whole: program.c

// A program of a seed on a device.
void prg_generate(program *p, uint64_t seed, const char *device);
// Whether both sides agree on a program; why not goes into text[512], the listing into a file
// (either may be NULL).
bool prg_agrees(const program *p, FILE *listing, char *text);

// ---- for instructions: program.c

// Ends the program as failed; a line of the listing.
void prg_fail(run *r, const char *fmt, ...) TEST_PRINTF(2, 3);
void prg_say(run *r, const char *fmt, ...) TEST_PRINTF(2, 3);

uint64_t    prg_random(uint64_t *seed);
uint32_t    prg_arg(const run *r, int i);  // number i of the instruction
const char *prg_shape_text(const orc_shape *s);
int         prg_number(const slot *s, const run *r);
orc_store  *prg_store(run *r, const slot *s);
bool        prg_usable(run *r, const slot *s);
bool        prg_is_float(const slot *s);

typedef bool fits_fn(run *r, const slot *x, const slot *s);
// The first slot from a random one on that fits to x; NULL if none does.
slot *prg_pick(run *r, uint32_t from, fits_fn *fits, const slot *x);
// The slot that argument 0 names for a result. What was there is dropped or forgotten.
slot *prg_target(run *r);
void  prg_put(run *r, slot *to, tn_tensor *t, orc_handle h, bool fresh);
// A result of an op, in a store of its own.
void      prg_put_result(run *r, slot *to, tn_tensor *t, const orc_value *v, int past);
orc_value prg_read(run *r, const slot *s);
int       prg_past(run *r, const slot *a, const slot *b);

// ---- creation, views, ops, writes: program_ops.c

double      prg_small(uint64_t *seed);
const char *prg_dtype_text(tn_dtype dt);
tn_tensor  *prg_from(run *r, tn_dtype dt, const orc_shape *s, double *v);
// What the rules say of writing through x: TN_OK, or the error.
tn_status prg_allowed(run *r, const slot *x);
// The library has written (or not); so does the oracle. Some views with no place twice may be
// refused.
void prg_after_write(run *r, slot *x, tn_tensor *t, tn_status want, const orc_value *v, int past);

void prg_do_from(run *r);
void prg_do_full(run *r);
void prg_do_view(run *r);
void prg_do_map1(run *r);
void prg_do_kink(run *r);
void prg_do_map2(run *r);
void prg_do_reduce(run *r);
void prg_do_matmul(run *r);
void prg_do_concat(run *r);
void prg_do_copy(run *r);
void prg_do_write(run *r);
void prg_do_shift(run *r);

#endif
