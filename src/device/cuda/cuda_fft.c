// Fourier transforms by cuFFT, found at run time; without it by the kernels of device/simt, which
// have powers of two up to 2,048, and others on the host.
//
// A plan of cuFFT is made when a plan of ours is, never in a run: making one allocates and may
// compile, which a graph cannot capture. It runs in the session's stream. Results are not scaled by
// it: a kernel does that, and as transforms back from spectra of several axes write over their
// input, these get a copy.
#include "base/find_libraries.h"
#include "device/cuda/cuda_fft.h"
#include "device/cuda/library_log.h"
#include "device/host_fft.h"
#include "device/host_linalg.h"

#include <pthread.h>
#include <stdlib.h>

enum { R2C = 0x2a, C2R = 0x2c, C2C = 0x29, D2Z = 0x6a, Z2D = 0x6c, Z2Z = 0x69 };

// The functions of cuFFT that are used; plans are small integers, results 0 for success.
//   version           of the library
//   create, destroy   a plan
//   make              what it is of: axes and their lengths, how lines lie in memory (NULL: one after the other), a type from above, how many;
//                     allocates the plan's work space
//   stream            in which its transforms run
//   c2c ... z2d       run: complex, real to complex and back, of f32 and of f64; direction -1 is forward
typedef struct {
    int (*version)(int *version);
    int (*create)(int *plan);
    int (*make)(int plan, int rank, long long *n, long long *inembed, long long istride,
                long long idist, long long *onembed, long long ostride, long long odist, int type,
                long long batch, size_t *work);
    int (*stream)(int plan, void *stream);
    int (*c2c)(int plan, void *in, void *out, int direction);
    int (*r2c)(int plan, void *in, void *out);
    int (*c2r)(int plan, void *in, void *out);
    int (*z2z)(int plan, void *in, void *out, int direction);
    int (*d2z)(int plan, void *in, void *out);
    int (*z2d)(int plan, void *in, void *out);
    int (*destroy)(int plan);
} cufft;

static const tni_symbol symbols[] = {
    { offsetof(cufft, version), "cufftGetVersion" },  { offsetof(cufft, create), "cufftCreate" },
    { offsetof(cufft, make), "cufftMakePlanMany64" }, { offsetof(cufft, stream), "cufftSetStream" },
    { offsetof(cufft, c2c), "cufftExecC2C" },         { offsetof(cufft, r2c), "cufftExecR2C" },
    { offsetof(cufft, c2r), "cufftExecC2R" },         { offsetof(cufft, z2z), "cufftExecZ2Z" },
    { offsetof(cufft, d2z), "cufftExecD2Z" },         { offsetof(cufft, z2d), "cufftExecZ2D" },
    { offsetof(cufft, destroy), "cufftDestroy" },
};
enum { CALLS = sizeof symbols / sizeof *symbols };

// Filled once, read-only from then on.
static struct {
    pthread_once_t once;
    cufft          table;
    bool           there;
    tni_text       where, missing;
} found = { .once = PTHREAD_ONCE_INIT };

// CUDA 13 has version 12, CUDA 12 version 11.
static void find_cufft(void)
{
    static const char *const names[] = { "libcufft.so.12", "libcufft.so.11", NULL };
    void                    *lib     = tni_nvidia_open(names, &found.where);
    const char *missing = lib ? tni_symbols_fill(lib, &found.table, symbols, CALLS) : NULL;
    found.there         = lib && !missing;
    if (!lib) tni_text_add(&found.missing, "there is no cuFFT (libcufft.so)");
    if (missing) tni_text_add(&found.missing, "cuFFT (%s) has no %s", found.where.s, missing);
    if (!found.there) tni_library_log("%s: " TNI_WITHOUT_CUFFT, found.missing.s);
}

bool tni_cufft_find(int *version, tni_text *detail)
{
    pthread_once(&found.once, find_cufft);
    tni_text_add(detail, "%s", found.there ? found.where.s : found.missing.s);
    return found.there && !found.table.version(version);
}

// TN_CUFFT=0 turns it off.
static const cufft *get_cufft(void)
{
    const char *off = getenv("TN_CUFFT");
    if (off && off[0] == '0') return NULL;
    pthread_once(&found.once, find_cufft);
    return found.there ? &found.table : NULL;
}

// What a plan of ours keeps of a call: cuFFT's plan.
typedef struct {
    int plan;
} planned_fft;

// cuFFT's plan for a call, with its own work space; packed lines, so that strides are not given.
// NULL if cuFFT cannot, or memory is out.
static planned_fft *make_plan(const tni_call *c, const cufft *lib)
{
    tni_fft      f    = tni_fft_of(c);
    bool         wide = f.dtype == TN_F64;
    int          type = f.how.kind == TNI_FFT_C2C   ? (wide ? Z2Z : C2C)
                        : f.how.kind == TNI_FFT_R2C ? (wide ? D2Z : R2C)
                        : wide                      ? Z2D
                                                    : C2R;
    planned_fft *p    = malloc(sizeof *p);
    long long    n[3] = { f.n[0], f.n[1], f.n[2] };
    size_t       work = 0;
    tni_cuda_enter(c->session);
    if (!p || lib->create(&p->plan)) {
        free(p);
        return NULL;
    }
    if (!lib->make(p->plan, f.how.axes, n, NULL, 1, 0, NULL, 1, 0, type, f.batch, &work)) return p;
    lib->destroy(p->plan);
    free(p);
    return NULL;
}

// Outside of any run: see above.
void *tni_cuda_prepare_fft(const tni_call *c)
{
    const cufft *lib = get_cufft();
    return lib ? make_plan(c, lib) : NULL;
}

void tni_cuda_forget_fft(void *entry)
{
    planned_fft *p = entry;
    found.table.destroy(p->plan);
    free(p);
}

size_t tni_cuda_fft_scratch(const tni_call *c)
{
    return tni_groups_fft_scratch(c);
}

// Brings the input of a transform that writes over it into scratch.
static tn_status copy_input(const tni_call *c, const tni_arg *to)
{
    tni_call copy = tni_call_within(c, TNI_copy);
    copy.out      = *to;
    return tni_groups_copy(&copy);
}

// cuFFT's call, in the stream; in a replay it is a node of the graph that has these addresses.
static tn_status execute(const tni_call *c, const planned_fft *p, void *in)
{
    const cufft *lib  = &found.table;
    tni_cuda    *s    = c->session;
    bool         wide = c->in[0].dtype == TN_F64;
    int          kind = c->attr->fft.kind, direction = c->attr->fft.inverse ? 1 : -1, e;
    struct {
        const void *at[2];
        int64_t     plan;
    } mark = { { in, c->out.data }, p->plan };
    tni_cuda_enter(s);
    tni_cuda_await_uploads(s);
    if (!tni_replay_library_call(s, &mark, sizeof mark)) return TN_OK;
    e = lib->stream(p->plan, s->stream);
    if (e) {
    } else if (kind == TNI_FFT_C2C)
        e = (wide ? lib->z2z : lib->c2c)(p->plan, in, c->out.data, direction);
    else if (kind == TNI_FFT_R2C) e = (wide ? lib->d2z : lib->r2c)(p->plan, in, c->out.data);
    else e = (wide ? lib->z2d : lib->c2r)(p->plan, in, c->out.data);
    if (!e) return TN_OK;
    tni_text_add(c->why, "fft: cuFFT returned %d", e);
    return TN_EDEVICE;
}

// Copies first where the input must stay, and scales at the end.
static tn_status run_cufft(const tni_call *c, const planned_fft *p)
{
    tni_fft   f  = tni_fft_of(c);
    void     *in = c->in[0].data;
    tn_status s  = TN_OK;
    if (f.how.kind == TNI_FFT_C2R && f.how.axes > 1) {
        tni_arg to = c->in[0];
        to.data    = c->scratch;
        s          = copy_input(c, &to);
        in         = c->scratch;
    }
    if (s == TN_OK && !c->compile_only) s = execute(c, p, in);
    return s == TN_OK && f.how.scale != 1 ? tni_groups_fft_scale(c) : s;
}

// By the plan that was prepared, by our own kernels, or by a plan for this run alone, which is then
// no graph; on the host at last.
tn_status tni_cuda_fft(const tni_call *c)
{
    const cufft *lib = c->entry ? NULL : get_cufft();
    if (c->entry) return run_cufft(c, c->entry);
    if (!lib && tni_groups_takes_fft(c)) return tni_groups_fft_lines(c);
    if (c->compile_only) return TN_OK;
    // A plan that could not be kept: one for this run, which is then no graph.
    planned_fft *p = lib ? make_plan(c, lib) : NULL;
    tni_replay_never_graph(c->session);
    if (!p) return tni_call_on_host(c);
    tn_status s = run_cufft(c, p);
    tni_cuda_forget_fft(p);
    return s;
}

// In words for tn_explain.
const char *tni_cuda_fft_method(const tni_call *c)
{
    if (get_cufft()) return "cuFFT";
    return tni_groups_takes_fft(c) ? "own" : "host";
}
