// Score programs: what attention makes of a score before the softmax, as a list of instructions.
// They come from attention that was spelled out in plain ops (recognize.c), and a device runs them
// inside its kernel, so that no matrix of scores is ever stored. ALiBi, for instance, is
//
//     0  matmul             f32    the score: scale times the product of query i and key j
//     1  iota    (0,0,0,1)  i64    j
//     2  iota    (0,0,1,0)  i64    i
//     3  sub     1 2        i64
//     4  cast    3          f32
//     5  leaf    source 0   f32    slopes, (1, H, 1, 1)
//     6  mul     4 5        f32
//     7  add     0 6        f32    the value: the last of `count`
//
// and after it the slopes, of which there may be more instructions: here only a number 1, by which
// the gradient of the value is multiplied to be that of the score, and 4 is the slope of source 0.
#ifndef TNI_OPS_SCORE_H
#define TNI_OPS_SCORE_H

#include "ops/op_table.h"

// Tensors that a program reads, and its instructions, at most; programs that a context keeps.
enum { TNI_SCORE_SOURCES = 4, TNI_SCORE_OPS = 96, TNI_SCORES = 256 };

// One instruction, by ops of the table:
//
//   matmul  the score
//   leaf    an element of source number `source`, at the place of the score
//   scalar  the number f, or i of an integer or bool
//   iota    f + df n, or i + di n of an integer, where n = step . (b, h, i, j)
//   maps    over the instructions src[], which come before; a cast converts from the dtype of its
//           source to its own
//
// dtype is that of the value: bool, an integer, f32 or f64. A map that gives bools computes in the
// dtype of its operands. No value is rounded to 16 bits.
typedef struct {
    uint16_t op;
    uint8_t  dtype;
    int16_t  src[3];  // 0 where there is none
    int16_t  source;
    double   f, df;
    int64_t  i, di, step[4];
} tni_score_op;

// A program, kept by its context until that is closed: equal ones are one, so that its address is
// part of a plan's key. Where the weight of a score is 0, the gradient is 0, whatever the slope is.
struct tni_score {
    tni_score   *next;                 // of the context
    int          sources, count, all;  // instructions of the value, and of the slopes too
    int          slope;                // of the value by the score; -1: it has none
    int          source_slope[TNI_SCORE_SOURCES];  // and by each source
    tni_score_op op[TNI_SCORE_OPS];
};

// Operands of an instruction: 0 for those that are no maps.
static inline int tni_score_operands(int op)
{
    switch (tni_op_table[op].class) {
    case TNI_UNARY:
    case TNI_CAST: return 1;
    case TNI_BINARY: return 2;
    case TNI_TERNARY: return 3;
    default: return 0;
    }
}

#endif
