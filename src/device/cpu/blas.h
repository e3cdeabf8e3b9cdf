// The two routines of a BLAS that the matrix product calls.
#ifndef TNI_DEVICE_CPU_BLAS_H
#define TNI_DEVICE_CPU_BLAS_H

// The numbers are those of the CBLAS interface.
enum { TNI_ROW_MAJOR = 101, TNI_NO_TRANS = 111, TNI_TRANS = 112 };

typedef void tni_sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                       const float *a, int lda, const float *b, int ldb, float beta, float *c,
                       int ldc);
typedef void tni_dgemm(int order, int trans_a, int trans_b, int m, int n, int k, double alpha,
                       const double *a, int lda, const double *b, int ldb, double beta, double *c,
                       int ldc);

// Both are there or there is no BLAS. Calls run on the calling thread alone and may be made from
// several threads at a time.
typedef struct {
    tni_sgemm *sgemm;
    tni_dgemm *dgemm;
} tni_blas;

// NULL when there is none, for which tni_blas_find has the reason, or when the memory that so many
// calls at a time need cannot be had. Once it is there for a number of calls, it stays there for that number.
const tni_blas *tni_blas_get(int calls);

// Calls are made between these two, at most so many at a time, for which tni_blas_get found memory. A
// BLAS has one number of threads for the whole process; ours is one, the caller's comes back when the
// last of us is done.
void tni_blas_enter(int calls);
void tni_blas_leave(int calls);

#endif
