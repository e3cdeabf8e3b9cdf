// A product's plan, between the two files that work on it: product_plan.c, which describes products to
// the library and runs them, and product_choice.c, which chooses algorithms. All of it is called
// under the lock of the plans, but for a launch that reads no address of the description.
#ifndef TNI_CUDA_PRODUCT_PLAN_H
#define TNI_CUDA_PRODUCT_PLAN_H

#include "device/cuda/product.h"

enum { TNI_PROPOSALS = 16, TNI_ALIGNS = 6 };

// All that a choice depends on besides the GPU's kind and the library's version: words, so that
// they compare and print as they are. What stands before `in` does not concern other processes.
typedef struct {
    int64_t device, timing, small;
    int64_t in, out, tf32, residual, epilogue;
    int64_t rows, cols, depth, batch, workspace;
    int64_t matrix[3][5];
    int64_t align[TNI_ALIGNS];
} tni_product_key;

// How products of one key are done. Owned by the table of plans until the process ends.
typedef struct tni_ltplan tni_ltplan;
struct tni_ltplan {
    tni_ltplan     *next;
    uint64_t        hash;
    tni_product_key key;
    tni_lthandle    handle;
    tni_ltdesc      desc;
    tni_ltlayout    layout[3];
    tni_ltalgo      algo;
    bool            served;        // the library has an algorithm
    bool            settled;       // nothing better is to be looked for
    bool            warm;          // it was launched before, so that its code is loaded
    bool            small_faster;  // the place's own kernel is faster than algo
    bool        small_pending;  // or may be: it is still being compiled, and algo serves until then
    const char *bias;           // the one that desc has
    const char *input;          // likewise
};

// What the functions work on: a product at a place, by its plan.
typedef struct {
    const tni_blaslt      *lt;
    tni_product           *p;
    const tni_product_env *at;
    tni_ltplan            *plan;
    tni_text              *why;
} tni_ltjob;

// TN_OK, or what a status of the library means, with a sentence: what could not be done, and why.
tn_status tni_lt_status(const tni_ltjob *j, int status, const char *what);

// What the library proposes, best guess first; those that cannot be used are left out. None: *count
// is 0, which is no error.
int tni_lt_propose(const tni_ltjob *j, tni_ltproposal list[TNI_PROPOSALS], int *count);

// One launch by an algorithm: the products of a batch, so many elements on, with D in out, and the
// residual too where D lies on it.
int tni_lt_multiply(const tni_ltjob *j, const tni_ltalgo *algo, const int64_t offset[3], char *out);

// Takes the choice of another process, if the library agrees that it can be used, and if the place's own
// kernel was among what was timed or cannot do the product.
bool tni_lt_find_choice(const tni_ltjob *j);
// Times the proposals and keeps the best: then the plan is settled. Where there is no memory for it,
// the algorithm stays. TN_EARG: none of them runs.
tn_status tni_lt_choose(const tni_ltjob *j);
// See tni_product_counts.
void tni_lt_counts(int64_t *timed, int64_t *found);

#endif
