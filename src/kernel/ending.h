// Endings: the kernel behind a call as text, for kernels of our own that compute the call. A
// hand-written text has its sums of EACH neighbouring columns in an array v, and says
//
//     ENDING_COLUMNS(columns)      declares what columns have in common
//     ENDING_BEGIN(columns, c)     before the sums: loads that of columns c, c + 1, ...
//     ENDING(v, columns, c, at)    v becomes what is stored at element `at` of the result and those behind it
//
// and ENDING_PARAMS behind its other parameters. Without a kernel all of them are empty. With one
// they are printed here, and a tni_ending_args is passed. A kernel may add up columns, too, as the
// statistics of a batch norm are: then ENDING adds to ending_sum[i][k], column c + k of sum i,
// which the text declares and adds up over all rows in its own way, and
//
//     ENDING_FINISH(c)    computes and stores what follows from the sums of column c, ending_total[i]
//
// is for a launch behind it. A text whose columns and rows are aligned may define ENDING_LOAD(x, p)
// ahead of them: it loads EACH neighbours from p into the array x, several at once; ENDING_STORE(p,
// x) likewise, for what the kernel stores besides; and ENDING_FETCH(i, x, p), which loads what
// access i reads of each element, and may have it nearer already.
#ifndef TNI_KERNEL_ENDING_H
#define TNI_KERNEL_ENDING_H

#include "kernel/emit.h"
#include "kernel/epilogue.h"

// Accesses and numbers of such a kernel, at most.
enum { TNI_ENDING_ACCESSES = 16, TNI_ENDING_NUMBERS = 16 };
// Column sums, at most; accesses that tni_ending_fetches finds, at most.
enum { TNI_ENDING_SUMS = 4, TNI_ENDING_FETCHES = 3 };

// Where the accesses begin, and the numbers; `ending_args` of the text.
typedef struct {
    char    *from[TNI_ENDING_ACCESSES];
    uint64_t number[TNI_ENDING_NUMBERS];
} tni_ending_args;

// The text of no ending.
extern const char tni_no_ending[];

// Whether a kernel can be an ending of a call whose result, of rows of `width` elements, is in its
// buffer `product`: it maps elements to elements, of which it stores one of the result's dtype, or
// adds them up by columns, or both. To add up, it may read the result's first row for all the
// others (tni_ending_reads_first_row).
bool tni_is_ending(const tni_launch *l, int product, int64_t width);
// Prints the text of such a kernel; NULL when memory is out. The caller frees it by tni_free.
char *tni_ending_text(tni_heap *h, const tni_dialect *d, const tni_launch *l, int product,
                      int64_t width);
// Prologues: the same for the kernel that makes an operand of a call, of rows of `width` elements,
// which a text has as it reads the operand. Its macros are PROLOGUE_BEGIN, PROLOGUE, and so on, v
// is what the kernel reads by the access tni_prologue_from and becomes what it stores; what else it
// reads of each element is loaded by PROLOGUE_FETCH, which the text defines. The macro ENDING_LOAD
// serves both.
//
// Returns the access, of the dtype that is stored; -1: the kernel is no prologue.
int tni_prologue_from(const tni_launch *l, int64_t width);
// Returns the access by which it stores.
int   tni_prologue_store(const tni_kernel *k);
char *tni_prologue_text(tni_heap *h, const tni_dialect *d, const tni_launch *l, int64_t width);

tni_ending_args tni_ending_args_of(const tni_launch *l);
bool            tni_ending_reads_first_row(const tni_launch *l, int product, int64_t width);
// Returns its number of column sums.
int tni_ending_sums(const tni_kernel *k);
// Finds the accesses by which it reads each element, besides the result, of a dtype of 16 bits: the
// first of them, at most TNI_ENDING_FETCHES. Returns their number.
int tni_ending_fetches(const tni_launch *l, int product, int64_t width, int *access);
// Returns the access by which it stores what v becomes, the first of the result's dtype; -1: there
// is none.
int tni_ending_store(const tni_kernel *k, int product);

#endif
