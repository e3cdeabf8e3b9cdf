// cuSOLVER, and the triangular solver of cuBLAS, as this folder calls them, found at run time, with
// declarations of our own: no header of CUDA is needed to build. cusolver.def has the libraries'
// name of each function.
#ifndef TNI_CUDA_CUSOLVER_H
#define TNI_CUDA_CUSOLVER_H

#include "base/text.h"
#include "device/cuda/cu_types.h"

// What the libraries call their choices. Types are those of both.
enum { TNI_SOLVER_F32, TNI_SOLVER_F64 };
enum { TNI_SOLVER_LOWER, TNI_SOLVER_UPPER };
enum { TNI_SOLVER_PLAIN, TNI_SOLVER_TRANSPOSED };
enum { TNI_SOLVER_LEFT, TNI_SOLVER_RIGHT };

typedef struct tni_solver_handle *tni_solver_handle;
typedef struct tni_solver_params *tni_solver_params;
typedef struct tni_blas_handle   *tni_blas_handle;

// The functions, over matrices that are stored by columns. The libraries are used only if they have
// all of them. All return 0 or an error. A _size function tells how many bytes of device and host
// memory the call wants; info is a word of device memory. Of two entries the first is for f32, the
// second for f64.
typedef struct {
    int (*version)(int *version);  // 12200: 12.2.0
    int (*create)(tni_solver_handle *h);
    int (*destroy)(tni_solver_handle h);
    int (*set_stream)(tni_solver_handle h, tni_custream s);
    int (*params_create)(tni_solver_params *p);
    int (*params_destroy)(tni_solver_params p);
    int (*potrf_size)(tni_solver_handle h, tni_solver_params p, int triangle, int64_t n, int type,
                      const void *a, int64_t ld, int compute, size_t *device, size_t *host);
    int (*potrf)(tni_solver_handle h, tni_solver_params p, int triangle, int64_t n, int type,
                 void *a, int64_t ld, int compute, void *device, size_t device_bytes, void *host,
                 size_t host_bytes, int *info);
    int (*getrf_size)(tni_solver_handle h, tni_solver_params p, int64_t m, int64_t n, int type,
                      const void *a, int64_t ld, int compute, size_t *device, size_t *host);
    int (*getrf)(tni_solver_handle h, tni_solver_params p, int64_t m, int64_t n, int type, void *a,
                 int64_t ld, int64_t *pivots, int compute, void *device, size_t device_bytes,
                 void *host, size_t host_bytes, int *info);
    int (*geqrf_size)(tni_solver_handle h, tni_solver_params p, int64_t m, int64_t n, int type,
                      const void *a, int64_t ld, int tau_type, const void *tau, int compute,
                      size_t *device, size_t *host);
    int (*geqrf)(tni_solver_handle h, tni_solver_params p, int64_t m, int64_t n, int type, void *a,
                 int64_t ld, int tau_type, void *tau, int compute, void *device,
                 size_t device_bytes, void *host, size_t host_bytes, int *info);
    int (*orgqr_size[2])(tni_solver_handle h, int m, int n, int k, const void *a, int ld,
                         const void *tau, int *elements);
    int (*orgqr[2])(tni_solver_handle h, int m, int n, int k, void *a, int ld, const void *tau,
                    void *work, int elements, int *info);
    int (*syevd_size)(tni_solver_handle h, tni_solver_params p, int vectors, int triangle,
                      int64_t n, int type, const void *a, int64_t ld, int w_type, const void *w,
                      int compute, size_t *device, size_t *host);
    int (*syevd)(tni_solver_handle h, tni_solver_params p, int vectors, int triangle, int64_t n,
                 int type, void *a, int64_t ld, int w_type, void *w, int compute, void *device,
                 size_t device_bytes, void *host, size_t host_bytes, int *info);
    int (*blas_create)(tni_blas_handle *h);
    int (*blas_destroy)(tni_blas_handle h);
    int (*blas_set_stream)(tni_blas_handle h, tni_custream s);
    int (*trsm[2])(tni_blas_handle h, int side, int triangle, int op, int unit, int m, int n,
                   const void *alpha, const void *a, int lda, void *b, int ldb);
} tni_cusolver;

// Returns the functions, loaded once and kept until the process ends; NULL, with the reason, if a
// library is not there.
const tni_cusolver *tni_cusolver_get(tni_text *why);
// Returns the file of cuSOLVER, "" if it was not found. Valid after tni_cusolver_get.
const char *tni_cusolver_where(void);

#endif
