// kernel_kit.h: kernels for tests. They are made by hand or at random, computed element by element
// from the definition in kernel.h, and what a device made of them is compared.
//
//     kit_case c;
//     kit_begin(&c, 1, (int64_t[]){ 100 }, 1, (int64_t[]){ 30 }, true);  // P, R, lane in R
//     int x = kit_load(&c, kit_input(&c, TN_F32, TNI_PER_ELEM));
//     int s = kit_reduce(&c, TNI_sum, x, false);
//     kit_store(&c, kit_output(&c, TN_F32, TNI_PER_ROW), s);
//     if (CHECK(kit_end(&c))) {   // sealed, memory filled
//         tni_interpret(&c.l);    // or any other way to run c.l over c.mem
//         kit_naive(&c);          // what should be there
//         char why[KIT_WHY];
//         CHECK(kit_compare(&c, 0, why));
//     }
//     kit_free(&c);
#ifndef TEST_KERNEL_KIT_H
#define TEST_KERNEL_KIT_H

#include "kernel/kernel.h"

enum { KIT_WHY = 16384, KIT_GUARD = 256 };

// What an element of a written buffer should be: v (integers in k) within err. An err that is not
// finite: nobody can know.
typedef struct {
    double  v, err;
    int64_t k;
    bool    set;  // a STORE writes it; else it must stay as it was
} kit_want;

// A kernel, its launch and its memory. The case owns the memory, and l.kernel and l.buffer point
// into it, so a case does not move once it has begun. Between kit_end and kit_free: mem[i] holds
// count[i] elements of buffer i, aligned to 64, with KIT_GUARD bytes before and after that nobody
// may touch; before[i] is what mem[i] held at first.
typedef struct {
    tni_kernel k;
    tni_launch l;
    int64_t    count[TNI_MAX_BUFFERS];
    char      *block[TNI_MAX_BUFFERS];  // the allocation: guard, mem, guard
    char      *mem[TNI_MAX_BUFFERS], *before[TNI_MAX_BUFFERS];
    kit_want  *want[TNI_MAX_BUFFERS];  // of written ones, by kit_naive
    int64_t    fail[2];                // by kit_naive: the first CHECK that fails, as in a launch
    uint64_t   seed;                   // of what fills the buffers and of random kernels
    double     library_ulps;      // how far functions of doubles may be off; 0: the same library
    double     spelled_ulps;      // how far those of floats may be that CUDA spells its own way
    int64_t    checked, unknown;  // by kit_compare: elements compared, elements nobody can know
} kit_case;

// ---- making one by hand. Sizes come from the arrays; every function returns a number -----------

// A case with np axes of P and nr of R.
void kit_begin(kit_case *c, int np, const int64_t *p, int nr, const int64_t *r, bool lane_in_r);
// A buffer of so many elements.
int kit_buffer(kit_case *c, tn_dtype dt, int64_t count, bool written);
// An access of a buffer (-1: of a PLACE) with a stride for each axis; index: that of an index.
int kit_access(kit_case *c, int buffer, int64_t offset, const int64_t *stride, int64_t index);
// A new buffer and an access that lies row-major over the axes in per.
int kit_input(kit_case *c, tn_dtype dt, int per);
int kit_output(kit_case *c, tn_dtype dt, int per);

// Instructions. kit_map finds the dtype by the op's rule from its last operand.
int kit_load(kit_case *c, int access);
int kit_load_at(kit_case *c, int access, int index, int guard);  // either may be TNI_NO_VALUE
int kit_number(kit_case *c, tn_dtype dt, double v);
int kit_place(kit_case *c, int64_t offset, const int64_t *stride);
int kit_random(kit_case *c, int op, tn_dtype dt, int place, uint64_t key, uint64_t counter);
int kit_map(kit_case *c, int op, int a, int b, int d);  // TNI_NO_VALUE where there is none
int kit_map1(kit_case *c, int op, int a);
int kit_map2(kit_case *c, int op, int a, int b);
int kit_load_new(kit_case *c, tn_dtype dt, int per);  // of an input of its own
int kit_cast(kit_case *c, tn_dtype dt, int a);
int kit_check(kit_case *c, int a, int64_t size);
int kit_reduce(kit_case *c, int op, int a, bool over_p);
int kit_store(kit_case *c, int access, int a);

// Seals the kernel, allocates buffers and fills them: floats in -2 .. 2, integers in -20 .. 20, in
// 0 .. 40 where they have no sign. False if the kernel breaks the rules or there is no memory. To
// fill otherwise, write to mem and call kit_keep.
bool kit_end(kit_case *c);
// Takes what mem holds now as what it holds before a run.
void kit_keep(kit_case *c);
// Puts back what the buffers held before a run, and clears l.fail.
void kit_reset(kit_case *c);
void kit_free(kit_case *c);

// ---- at random ---------------------------------------------------------------------------------

enum {
    KIT_NO_F64   = 1,  // no doubles
    KIT_NO_INDEX = 2,  // no loads by index, no CHECK
    KIT_SMALL    = 4   // a few thousand elements at most
};
// A random case, sealed and filled; the same for the same seed and flags. False: no memory.
bool kit_random_case(kit_case *c, uint64_t seed, int flags);

// A random map over axes of which two have at least 32 + more points, the last one of them; some
// loads and stores, one load at least, have their neighbours along the other. As above.
bool kit_crossed_case(kit_case *c, uint64_t seed, int64_t more);

// ---- what should be, and what is ---------------------------------------------------------------

// Computes the case from `before` into want and fail. Sums are made in long double; err says how
// far sums in another order may be from it, and goes on through the instructions. False: no memory.
bool kit_naive(kit_case *c);
// Whether mem is as want says, within `ulps` of the buffer's dtype besides err, guards and
// untouched elements included. Else what differs first, with the kernel, is written to why.
bool kit_compare(kit_case *c, double ulps, char why[KIT_WHY]);
// Whether the written buffers of two cases from one seed hold the same bits; NaNs are alike.
bool kit_same(const kit_case *a, const kit_case *b, char why[KIT_WHY]);
// The kernel and its launch as text for people.
void kit_print(const kit_case *c, char *dst, size_t room);

// A counter-based generator: the next of a state, and a number below n.
uint64_t kit_draw(uint64_t *state);
int64_t  kit_below(uint64_t *state, int64_t n);

#endif
