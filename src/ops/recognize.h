// Reading recorded nodes back as a score program (read_score.c), programs and their slopes
// (score.c), and attention recognized in a product (recognize.c).
#ifndef TNI_OPS_RECOGNIZE_H
#define TNI_OPS_RECOGNIZE_H

#include "ops/ops.h"

enum { TNI_READ_KNOWN = 192, TNI_READ_PASSED = 128 };

// An element of a node for each score: number step . (b, h, i, j) of the node in row-major order.
typedef struct {
    tni_node *n;
    int64_t   step[4];
} tni_score_place;

// Instructions read so far, and from where. known: what instruction a node at a place became.
// passed: pending nodes that instructions replace, or that were looked through.
typedef struct {
    int64_t         size[4];  // B, H, T, S
    tni_node       *raw;      // the product of queries and keys, or NULL
    int             count, sources, knowns, passes;
    bool            fixed;  // only known nodes may be read, no further sources
    tni_score_op    op[TNI_SCORE_OPS];
    tni_score_place source[TNI_SCORE_SOURCES];
    struct {
        tni_score_place place;
        int             at;
    } known[TNI_READ_KNOWN];
    tni_node *passed[TNI_READ_PASSED];
} tni_score_reader;

// A reading that continues a program over scores of a size.
tni_score_reader tni_score_reader_of(const int64_t size[4], const tni_score_op *op, int count);
// The place of each score in a node of the scores' shape, with or without axes of size 1.
void tni_score_steps(const tni_score_reader *r, int64_t step[4]);
// x, of the scores' shape, is the value of instruction `at`.
void tni_score_reader_knows(tni_score_reader *r, tn_tensor *x, int at);
// Lists a node as passed, once.
void tni_score_reader_passes(tni_score_reader *r, tni_node *n);
// Appends an instruction, or finds an equal one; -1 if there are too many.
int tni_score_append(tni_score_reader *r, const tni_score_op *x);
// Appends the instructions of a node; returns the last, or -1 if it cannot be one of a program.
int tni_read_node(tni_score_reader *r, tni_node *n, const int64_t step[4]);
// The same of a tensor of the scores' shape.
int tni_read_value(tni_score_reader *r, tn_tensor *x);
// Looks through views, as far as the place of each score in what they view can be said.
void tni_look_through(tni_score_reader *r, tni_score_place *p);
// The elements of a place as a tensor (B, H, T, S), of size 1 along axes where nothing changes
// unless whole.
tn_tensor *tni_place_tensor(tn_ctx *cx, const tni_score_place *p, const int64_t size[4],
                            bool whole);
// Keeps the instructions that `last` needs and the sources that these need, in their order.
void tni_score_reader_trim(tni_score_reader *r, int last);

// The program of these instructions, of which the last is the value. NULL if the context has too
// many, or, reported, when memory is out.
const tni_score *tni_score_keep(tn_ctx *cx, const tni_score_op *op, int count, int sources);
// The gradients of the scores (gx[0]) and of the sources (gx[1 ..]) for those of a program's
// slopes, in the same order and all of the scores' shape; NULL where nothing comes back. False,
// reported, on failure.
bool tni_score_slope_grads(tn_ctx *cx, const tni_score *s, tn_tensor *raw, tn_tensor *const *extra,
                           tn_tensor *const *g, tn_tensor **gx);

#endif
