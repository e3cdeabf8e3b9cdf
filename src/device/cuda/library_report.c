// Versions and files of NVIDIA's libraries in this process, for `tenon doctor`.
#include "device/cuda/library_report.h"

#include "device/cuda/blaslt.h"
#include "device/cuda/cuda_fft.h"
#include "device/cuda/cudnn.h"
#include "device/cuda/cusolver.h"
#include "device/cuda/cusparselt.h"
#include "device/cuda/driver.h"

// *cuda: the version of CUDA that the driver serves, such as 13000.
static tni_nvidia_library report_driver(int *cuda)
{
    tni_nvidia_library p  = { .name = "driver" };
    const tni_driver  *cu = tni_driver_get(&p.detail);
    p.found               = cu != NULL;
    if (!cu) return p;
    cu->driver_version(cuda);
    p.version = tni_text_of("%d.%d", *cuda / 1000, *cuda % 1000 / 10);
    p.detail  = tni_driver_path();
    return p;
}

// Machine code of a newer compiler than the driver may not load, which is worth a word.
static tni_nvidia_library report_nvrtc(int cuda)
{
    int                major = 0, minor = 0;
    tni_nvidia_library p   = { .name = "NVRTC" };
    const tni_nvrtc   *rtc = tni_nvrtc_get(&p.detail);
    p.found                = rtc != NULL;
    if (!rtc) return p;
    rtc->version(&major, &minor);
    p.version = tni_text_of("%d.%d", major, minor);
    p.detail  = tni_nvrtc_path();
    if (cuda && major > cuda / 1000)
        tni_text_add(&p.detail, " (newer than the driver, which may not load its kernels)");
    return p;
}

// As the libraries of CUDA 12 and above number themselves: 130102 is 13.1.2.
static tni_text three_numbers(size_t version)
{
    return tni_text_of("%zu.%zu.%zu", version / 10000, version / 100 % 100, version % 100);
}

// Without cuBLASLt everything works, but products are slower.
static tni_nvidia_library report_blaslt(void)
{
    tni_nvidia_library p  = { .name = "cuBLASLt" };
    const tni_blaslt  *lt = tni_blaslt_get(&p.detail);
    p.found               = lt != NULL;
    if (!lt) {
        tni_text_add(&p.detail, ": matrix products are Tenon's own, which are slower");
        return p;
    }
    p.version = three_numbers(lt->version());
    tni_text_add(&p.detail, "%s", tni_blaslt_where());
    return p;
}

// Without cuDNN everything works. Attention in 16 bits is by whichever is faster for its form.
static tni_nvidia_library report_cudnn(void)
{
    tni_nvidia_library p   = { .name = "cuDNN" };
    const tni_cudnn   *dnn = tni_cudnn_get(&p.detail);
    p.found                = dnn != NULL;
    if (!dnn) {
        tni_text_add(&p.detail,
                     ": attention in f16 and bf16 and convolution are by Tenon's own kernels");
        return p;
    }
    p.version = three_numbers(dnn->version());
    tni_text_add(
        &p.detail,
        "%s: attention in f16 and bf16 and convolution are by it or Tenon's own kernels, by time",
        tni_cudnn_where());
    return p;
}

// As those number themselves that are older: 12200 is 12.2.0.
static tni_text older_numbers(int version)
{
    return tni_text_of("%d.%d.%d", version / 1000, version / 100 % 10, version % 100);
}

// Without cuFFT everything works, on the host if need be.
static tni_nvidia_library report_cufft(void)
{
    tni_nvidia_library p       = { .name = "cuFFT" };
    int                version = 0;
    p.found                    = tni_cufft_find(&version, &p.detail);
    p.version                  = older_numbers(version);
    if (!p.found) tni_text_add(&p.detail, ": " TNI_WITHOUT_CUFFT);
    return p;
}

// It is of use with the cuBLAS that belongs to it alone, which the reason tells apart.
static tni_nvidia_library report_cusolver(void)
{
    tni_nvidia_library  p       = { .name = "cuSOLVER" };
    const tni_cusolver *lib     = tni_cusolver_get(&p.detail);
    int                 version = 0;
    p.found                     = lib && !lib->version(&version);
    p.version                   = older_numbers(version);
    tni_text_add(&p.detail, "%s",
                 lib ? tni_cusolver_where()
                     : ": factorizations of matrices above 64 x 64 run on the host");
    return p;
}

// It is no part of CUDA's toolkit, so that it is missing on most machines without PyTorch.
static tni_nvidia_library report_cusparselt(void)
{
    tni_nvidia_library    p  = { .name = "cuSPARSELt" };
    const tni_cusparselt *lt = tni_cusparselt_get(&p.detail);
    p.found                  = lt != NULL;
    if (lt) p.version = three_numbers(tni_cusparselt_version(lt));
    tni_text_add(&p.detail, "%s",
                 lt ? tni_cusparselt_where() : ": products with 2:4 weights are dense");
    return p;
}

// Without a driver the libraries are of no use, and are not looked for.
int tni_nvidia_report(tni_nvidia_library library[TNI_NVIDIA_LIBRARIES])
{
    int n = 0, cuda = 0;
    library[n++] = report_driver(&cuda);
    library[n++] = report_nvrtc(cuda);
    if (!library[0].found) return n;
    library[n++] = report_blaslt();
    library[n++] = report_cudnn();
    library[n++] = report_cufft();
    library[n++] = report_cusolver();
    library[n++] = report_cusparselt();
    return n;
}
