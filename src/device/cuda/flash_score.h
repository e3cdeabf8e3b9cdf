// How a score program (ops/score.h) is computed inside the kernels of attention: what of it once
// for a head, once for a query or a key, what is known from the place of a tile, and what for each
// score.
#ifndef TNI_CUDA_FLASH_SCORE_H
#define TNI_CUDA_FLASH_SCORE_H

#include "device/cuda/flash.h"

// A tile's rows and columns are at most this many, and divide it.
enum { TNI_FLASH_MOST_ROWS = 128 };

// Where an instruction is computed.
//
//   CONSTANT  it is a number, printed where it is read
//   HEAD      once for a batch and head; QUERY and KEY: once for each of these
//   LINEAR    c + a i + b j, of whole numbers: computed at the first place of a tile, to which the
//             others add constants
//   SCALED    a value of a head times what is LINEAR: likewise
//   SCORE     for each score
typedef enum {
    TNI_SCORE_CONSTANT,
    TNI_SCORE_HEAD,
    TNI_SCORE_QUERY,
    TNI_SCORE_KEY,
    TNI_SCORE_LINEAR,
    TNI_SCORE_SCALED,
    TNI_SCORE_EACH
} tni_score_level;

// What an instruction varies with, as bits.
enum { TNI_BY_HEAD = 1, TNI_BY_QUERY = 2, TNI_BY_KEY = 4, TNI_BY_SCORE = 8 };

// What is known of an instruction. most: what its magnitude is at most over all places, INFINITY if
// that is not known; narrow: of an integer of 64 bits, that it is computed in 32; per_query,
// per_key: of what is LINEAR, or of the factor `of` of what is SCALED by `by`.
typedef struct {
    tni_score_level level;
    unsigned        varies;
    bool            narrow;
    double          most, per_query, per_key;
    int             by, of;
} tni_score_fact;

// Of a score that a program hides where a comparison holds, the comparison: op, of what varies with
// the query and what varies with the key, which are whole numbers. A tile where it holds for the
// least and the largest of both is not computed. op of 0: there is none.
typedef struct {
    int  op, query, key;
    bool by_head;  // one of them may differ between heads that share keys
} tni_score_hiding;

// A program to be printed. value and slope may be other instructions than the program's, of which
// what is printed differs by a factor.
typedef struct {
    const tni_score    *score;
    const tni_flash_in *in;
    int                 value, slope, source_slope[TNI_SCORE_SOURCES];  // -1: none
    double              value_factor, slope_factor;
    bool                sloped;   // the slope is no number
    bool                guarded;  // and may be one that 0 must not be multiplied by
    bool                steady;   // scores are so small that the softmax needs no maximum
    tni_score_hiding    hiding;
    tni_score_fact      fact[TNI_SCORE_OPS];
} tni_score_plan;

tni_score_plan tni_score_plan_of(const tni_score *score, const tni_flash_in *in);
// Returns whether a slope by a source depends on the score.
bool tni_score_slope_varies(const tni_score_plan *p, int source);

#endif
