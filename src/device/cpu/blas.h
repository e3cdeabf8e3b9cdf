// The routines of a BLAS that the matrix product calls, those of a LAPACK in the same library, and
// the memory and threads that they take.
#ifndef TNI_DEVICE_CPU_BLAS_H
#define TNI_DEVICE_CPU_BLAS_H

#include <stdbool.h>
#include <stddef.h>

// The numbers are those of the CBLAS interface.
enum { TNI_ROW_MAJOR = 101, TNI_NO_TRANS = 111, TNI_TRANS = 112 };

typedef void tni_sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                       const float *a, int lda, const float *b, int ldb, float beta, float *c,
                       int ldc);
typedef void tni_dgemm(int order, int trans_a, int trans_b, int m, int n, int k, double alpha,
                       const double *a, int lda, const double *b, int ldb, double beta, double *c,
                       int ldc);

// Invariant: both are set, or there is no BLAS. A call runs on the calling thread alone, and
// several threads may make calls at a time.
typedef struct {
    tni_sgemm *sgemm;
    tni_dgemm *dgemm;
    bool       leads;  // it is MKL, or TN_BLAS names it: f32 is its own even where ours is fast
} tni_blas;

// Returns the BLAS for `calls` calls at a time. Returns NULL if there is none, for which
// tni_blas_find has the reason, or if the address space that those calls may ask for cannot be
// had. Once it was returned for a number of calls, it always is for that number, so that a plan can
// rely on it.
const tni_blas *tni_blas_get(int calls);

// Returns whether a BLAS that is found may lead, in the sense of tni_blas: nothing is loaded to
// know that.
bool tni_blas_may_lead(void);

// Calls are made between these two, at most `calls` at a time, for which tni_blas_get has reserved
// memory. A BLAS has one number of threads for the whole process: it is one between enter and
// leave, and the program's own number again when the last user leaves.
void tni_blas_enter(int calls);
void tni_blas_leave(int calls);

// Routines of a LAPACK as Fortran declares them, all of them in one library: entry 0 is for floats,
// entry 1 for doubles. Matrices are stored by columns. After the arguments come the lengths of the
// texts.
typedef struct {
    void (*potrf[2])(const char *uplo, const int *n, void *a, const int *lda, int *info, size_t);
    void (*getrf[2])(const int *m, const int *n, void *a, const int *lda, int *pivot, int *info);
    void (*trsm[2])(const char *side, const char *uplo, const char *trans, const char *diag,
                    const int *m, const int *n, const void *alpha, const void *a, const int *lda,
                    void *b, const int *ldb, size_t, size_t, size_t, size_t);
    void (*geqrf[2])(const int *m, const int *n, void *a, const int *lda, void *tau, void *work,
                     const int *lwork, int *info);
    void (*orgqr[2])(const int *m, const int *n, const int *k, void *a, const int *lda,
                     const void *tau, void *work, const int *lwork, int *info);
    void (*syevd[2])(const char *job, const char *uplo, const int *n, void *a, const int *lda,
                     void *w, void *work, const int *lwork, int *iwork, const int *liwork,
                     int *info, size_t, size_t);
    void (*gesdd[2])(const char *job, const int *m, const int *n, void *a, const int *lda, void *s,
                     void *u, const int *ldu, void *vt, const int *ldvt, void *work,
                     const int *lwork, int *iwork, int *info, size_t);
} tni_lapack;

// Returns the LAPACK for `calls` calls at a time, under the terms of tni_blas_get; NULL if the
// library has none.
const tni_lapack *tni_lapack_get(int calls);
// Between enter and leave: a call that runs alone may use that many of the library's own threads.
void tni_blas_widen(int threads);

#endif
