// A product's plan, shared by the files that work on it: product_plan.c, which describes products
// to cuBLASLt and runs them, product_choice.c, which chooses algorithms, and product_search.c,
// which looks for more of them. Everything here is called under the lock of the plans, except a
// launch that uses no address of the descriptor.
#ifndef TNI_CUDA_PRODUCT_PLAN_H
#define TNI_CUDA_PRODUCT_PLAN_H

#include "device/cuda/choice.h"
#include "device/cuda/product.h"

// How many algorithms the library is asked for: more improve the chance of finding the fastest, and
// each costs timed runs. TNI_ALIGNS: addresses of a product (A, B, D, C, bias, input).
enum { TNI_PROPOSALS = 16, TNI_ALIGNS = 6 };

// All that a choice depends on besides the kind of GPU and the version of the library. The key is
// made of words only, without padding, so that keys compare and print as they are. The words before
// `in` do not concern other processes.
typedef struct {
    int64_t device, timing, small;
    int64_t in, out, tf32, residual, epilogue;
    int64_t rows, cols, depth, batch, workspace;
    int64_t matrix[3][5];
    int64_t align[TNI_ALIGNS];
} tni_product_key;

typedef struct tni_ltplan tni_ltplan;

// How products of one key are done. The table of plans owns it until the process ends. Invariant:
// if served, algo can be used at any time, whatever else is still to be chosen.
struct tni_ltplan {
    tni_ltplan          *next;
    uint64_t             hash;
    tni_product_key      key;
    tni_lthandle         handle;
    tni_ltdesc           desc;
    tni_ltlayout         layout[3];
    tni_ltalgo           algo;
    tni_ltalgo           rule;      // what algo would be if nothing had been tuned; once settled
    tni_tuned            tuned;     // what tuning found; us is 0 if it did not measure the product
    bool                 searched;  // no other algorithm is worth measuring
    int64_t              changes;   // how often tuning has changed algo
    uint32_t             imports;   // tni_tuned_imports when a winner was looked for
    struct tni_ltsearch *search;    // what was measured so far; NULL: nothing, or all
    bool                 served;    // the library has an algorithm
    bool                 settled;   // algo is the final choice
    bool                 warm;      // was launched before, so that its code is loaded
    bool                 small_faster;  // our own kernel is faster than algo
    bool        small_pending;          // our own kernel may be faster, but is still being compiled
    const char *bias;                   // the address in desc
    const char *input;                  // likewise
};

// What the functions below work on: a product, where it runs, and its plan.
typedef struct {
    const tni_blaslt      *lt;
    tni_product           *p;
    const tni_product_env *at;
    tni_ltplan            *plan;
    tni_text              *why;
} tni_ltjob;

// Returns TN_OK, or the status for an error of the library, and adds a sentence: what failed, and
// why.
tn_status tni_lt_status(const tni_ltjob *j, int status, const char *what);

// Tells the library where the bias and gelu's input of the product are.
int tni_lt_set_pointers(const tni_ltjob *j);

// Asks the library for algorithms, its best guess first, and leaves out those that cannot be used.
// *count of 0 means that it has none, which is no error.
int tni_lt_propose(const tni_ltjob *j, tni_ltproposal list[TNI_PROPOSALS], int *count);

// Launches the products of one batch by an algorithm, offset elements into the operands, with D in
// out; if D is also the residual, that is read from out as well.
int tni_lt_multiply(const tni_ltjob *j, const tni_ltalgo *algo, const int64_t offset[3], char *out);

// What a choice for a plan is kept under, by words that live as long as the plan.
tni_choice_key tni_lt_choice_key(const tni_ltjob *j);
// Returns the bytes from the first to the last element of D, over all products of the batch.
size_t tni_lt_result_bytes(const tni_product *p);

// Finds what tuning has found for a product, whose plan needs no more than its key: *algo is set if
// that is an algorithm.
bool tni_lt_find_winner(const tni_ltjob *j, tni_tuned *won, tni_ltalgo *algo);
// Takes it for a plan that is settled, if the library accepts it here.
void tni_lt_take_winner(const tni_ltjob *j);
// Lets a plan use another algorithm. A graph that was captured before launches the old one, which
// `changes` tells.
void tni_lt_use(tni_ltplan *n, const tni_ltalgo *algo);
// Looks for faster algorithms than the plan's, which gets the fastest.
void tni_lt_search(const tni_ltjob *j, tni_call_search *request);
// Frees what was measured so far.
void tni_lt_forget_search(tni_ltplan *n);
// An algorithm in words: its number and settings.
tni_text tni_lt_algo_text(const tni_blaslt *lt, const tni_ltalgo *algo);

// Takes the choice that another process kept, if the library accepts it here, and if our own kernel
// was timed as well or does not apply.
bool tni_lt_find_choice(const tni_ltjob *j);
// Times the proposals and keeps the fastest, which settles the plan. If there is no memory for
// timing, the plan's algorithm stays. TN_EARG: none of them runs.
tn_status tni_lt_choose(const tni_ltjob *j);
// See tni_product_counts.
void tni_lt_counts(int64_t *timed, int64_t *found);

#endif
