// fake_blaslt.c: a cuBLASLt that multiplies in host memory, so that choosing and running is tested
// without a GPU. A test compiles it into a library of the real one's name. It checks what it is
// given as the real one would, knows a dozen algorithms that differ in what they cost, and has a
// clock that only products move.
#include "fake_blaslt.h"

#include "host.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { A, B, D };

struct tni_blaslt_desc {
    int32_t     compute, scale, turned[2], epilogue;
    const void *bias;
    void       *aux;
    int64_t     aux_ld;
};
struct tni_blaslt_layout {
    int32_t type, batch;
    int64_t rows, cols, ld, step;
};
struct tni_blaslt_preference {
    uint64_t workspace;
    uint32_t reductions, align[4];
};

fake_state fake = { .algos = 12, .fastest = 7 };

fake_state *fake_get(void)
{
    return &fake;
}

// ---- descriptions ------------------------------------------------------------------------------

size_t cublasLtGetVersion(void)
{
    return 990000 + (size_t)fake.version;
}

const char *cublasLtGetStatusString(int status)
{
    return status == TNI_LT_NOT_SUPPORTED ? "fake: not supported" : "fake: an error";
}

int cublasLtCreate(tni_lthandle *h)
{
    *h = (tni_lthandle)&fake;
    fake.handles++;
    return TNI_LT_OK;
}

int cublasLtMatmulDescCreate(tni_ltdesc *d, int compute, int scale)
{
    *d = calloc(1, sizeof **d);
    if (!*d) return TNI_LT_NO_MEMORY;
    **d = (struct tni_blaslt_desc){ .compute = compute, .scale = scale, .epilogue = 1 };
    fake.alive++;
    return TNI_LT_OK;
}

int cublasLtMatmulDescDestroy(tni_ltdesc d)
{
    free(d);
    fake.alive--;
    return TNI_LT_OK;
}

static int put(void *to, size_t room, const void *value, size_t bytes)
{
    if (bytes != room) return TNI_LT_INVALID;
    memcpy(to, value, bytes);
    return TNI_LT_OK;
}

int cublasLtMatmulDescSetAttribute(tni_ltdesc d, int attribute, const void *value, size_t bytes)
{
    switch (attribute) {
    case TNI_LT_DESC_TRANSPOSE_A: return put(&d->turned[A], sizeof(int32_t), value, bytes);
    case TNI_LT_DESC_TRANSPOSE_B: return put(&d->turned[B], sizeof(int32_t), value, bytes);
    case TNI_LT_DESC_EPILOGUE: return put(&d->epilogue, sizeof(uint32_t), value, bytes);
    case TNI_LT_DESC_BIAS: return put(&d->bias, sizeof(void *), value, bytes);
    case TNI_LT_DESC_AUX: return put(&d->aux, sizeof(void *), value, bytes);
    case TNI_LT_DESC_AUX_LD: return put(&d->aux_ld, sizeof(int64_t), value, bytes);
    default: return TNI_LT_INVALID;
    }
}

int cublasLtMatrixLayoutCreate(tni_ltlayout *l, int type, uint64_t rows, uint64_t cols, int64_t ld)
{
    if (!(*l = calloc(1, sizeof **l))) return TNI_LT_NO_MEMORY;
    **l = (struct tni_blaslt_layout){ type, 1, (int64_t)rows, (int64_t)cols, ld, 0 };
    fake.alive++;
    return TNI_LT_OK;
}

int cublasLtMatrixLayoutDestroy(tni_ltlayout l)
{
    free(l);
    fake.alive--;
    return TNI_LT_OK;
}

int cublasLtMatrixLayoutSetAttribute(tni_ltlayout l, int attribute, const void *value, size_t bytes)
{
    if (attribute == TNI_LT_LAYOUT_BATCH) return put(&l->batch, sizeof l->batch, value, bytes);
    if (attribute == TNI_LT_LAYOUT_STRIDE) return put(&l->step, sizeof l->step, value, bytes);
    return TNI_LT_INVALID;
}

int cublasLtMatmulPreferenceCreate(tni_ltpreference *w)
{
    *w = calloc(1, sizeof **w);
    fake.alive++;
    return *w ? TNI_LT_OK : TNI_LT_NO_MEMORY;
}

int cublasLtMatmulPreferenceDestroy(tni_ltpreference w)
{
    free(w);
    fake.alive--;
    return TNI_LT_OK;
}

int cublasLtMatmulPreferenceSetAttribute(tni_ltpreference w, int attribute, const void *value,
                                         size_t bytes)
{
    if (attribute == TNI_LT_PREFERENCE_WORKSPACE)
        return put(&w->workspace, sizeof w->workspace, value, bytes);
    if (attribute == TNI_LT_PREFERENCE_REDUCTIONS)
        return put(&w->reductions, sizeof w->reductions, value, bytes);
    if (attribute < TNI_LT_PREFERENCE_ALIGN_A || attribute > TNI_LT_PREFERENCE_ALIGN_D)
        return TNI_LT_INVALID;
    return put(&w->align[attribute - TNI_LT_PREFERENCE_ALIGN_A], sizeof(uint32_t), value, bytes);
}

// ---- what the real one would refuse ------------------------------------------------------------

static tn_dtype dtype_of(int type)
{
    if (type == TNI_LT_F64) return TN_F64;
    if (type == TNI_LT_F16) return TN_F16;
    return type == TNI_LT_BF16 ? TN_BF16 : TN_F32;
}

static bool types_fit(tni_ltdesc d, tni_ltlayout a, tni_ltlayout b, tni_ltlayout out)
{
    bool wide = a->type == TNI_LT_F64;
    int  want = wide ? TNI_LT_COMPUTE_F64 : TNI_LT_COMPUTE_F32;
    if (a->type != b->type || d->scale != (wide ? TNI_LT_F64 : TNI_LT_F32)) return false;
    if (d->compute != want && (a->type != TNI_LT_F32 || d->compute != TNI_LT_COMPUTE_TF32))
        return false;
    return out->type == a->type || (!wide && out->type == TNI_LT_F32);
}

static bool sizes_fit(tni_ltdesc d, tni_ltlayout a, tni_ltlayout b, tni_ltlayout out)
{
    int64_t rows = d->turned[A] ? a->cols : a->rows, depth = d->turned[A] ? a->rows : a->cols;
    int64_t cols = d->turned[B] ? b->rows : b->cols, other = d->turned[B] ? b->cols : b->rows;
    return depth == other && rows == out->rows && cols == out->cols && depth > 0 &&
           a->ld >= a->rows && b->ld >= b->rows && out->ld >= out->rows && a->batch == out->batch &&
           b->batch == out->batch;
}

// f64 has none. The auxiliary matrix is gelu's input, and its columns begin at multiples of 8
// elements.
static bool epilogue_fits(tni_ltdesc d, tni_ltlayout out)
{
    int  f    = d->epilogue & (TNI_LT_EPILOGUE_RELU | TNI_LT_EPILOGUE_GELU);
    bool both = f == (TNI_LT_EPILOGUE_RELU | TNI_LT_EPILOGUE_GELU);
    if (both || (out->type == TNI_LT_F64 && d->epilogue != TNI_LT_EPILOGUE_NONE)) return false;
    if (d->epilogue & TNI_LT_EPILOGUE_BIAS && !d->bias) return false;
    if (!(d->epilogue & TNI_LT_EPILOGUE_AUX)) return true;
    return f == TNI_LT_EPILOGUE_GELU && d->aux && (uintptr_t)d->aux % 16 == 0 && out->batch == 1 &&
           d->aux_ld % 8 == 0 && d->aux_ld >= out->rows;
}

static bool fits(tni_lthandle h, tni_ltdesc d, tni_ltlayout a, tni_ltlayout b, tni_ltlayout c,
                 tni_ltlayout out)
{
    return (void *)h == &fake && c == out && types_fit(d, a, b, out) && sizes_fit(d, a, b, out) &&
           epilogue_fits(d, out);
}

// ---- algorithms --------------------------------------------------------------------------------

// An algorithm: its number, the alignments that it was promised, its workspace and its tile.
enum { ID, ALIGN, WORKSPACE = ALIGN + 4, TILE, TILES = 5 };

// Every number has the same tiles, and no other setting.
int cublasLtMatmulAlgoCapGetAttribute(const tni_ltalgo *a, int attribute, void *value, size_t bytes,
                                      size_t *written)
{
    int32_t align = fake.lies == FAKE_UNALIGNED && (int)a->data[TILE] == fake.liar ? 32 : 16;
    if (attribute >= TNI_LT_HAS_ALIGN_A && attribute < TNI_LT_HAS_ALIGN_A + 4) {
        *written = sizeof align;
        return put(value, bytes, &align, sizeof align);
    }
    if (attribute != TNI_LT_HAS_TILES) return TNI_LT_INVALID;
    if (bytes < TILES * sizeof(int32_t)) return TNI_LT_INVALID;
    for (int32_t i = 0; i < TILES; i++) ((int32_t *)value)[i] = i + 1;
    *written = TILES * sizeof(int32_t);
    return TNI_LT_OK;
}

int cublasLtMatmulAlgoConfigGetAttribute(const tni_ltalgo *a, int attribute, void *value,
                                         size_t bytes, size_t *written)
{
    int32_t v = attribute == TNI_LT_ALGO_NUMBER ? (int32_t)a->data[ID]
                : attribute == TNI_LT_ALGO_TILE ? (int32_t)a->data[TILE]
                                                : 0;
    memcpy(value, &v, bytes < sizeof v ? bytes : sizeof v);
    *written = bytes;
    return TNI_LT_OK;
}

int cublasLtMatmulAlgoConfigSetAttribute(tni_ltalgo *a, int attribute, const void *value,
                                         size_t bytes)
{
    int32_t v = 0;
    if (attribute != TNI_LT_ALGO_TILE || bytes != sizeof v) return TNI_LT_INVALID;
    memcpy(&v, value, sizeof v);
    a->data[TILE] = (uint64_t)v;
    return TNI_LT_OK;
}

// The third cannot be run at all, and the fifth takes more than any caller has.
int cublasLtMatmulAlgoGetHeuristic(tni_lthandle h, tni_ltdesc d, tni_ltlayout a, tni_ltlayout b,
                                   tni_ltlayout c, tni_ltlayout out, tni_ltpreference w, int most,
                                   tni_ltproposal *found, int *count)
{
    *count = 0;
    fake.asked++;
    fake.reductions = w->reductions;
    if (!fits(h, d, a, b, c, out)) return TNI_LT_INVALID;
    if (fake.algos == 0) return TNI_LT_NOT_SUPPORTED;
    for (int i = 0; i < fake.algos && i < most; i++) {
        tni_ltproposal *p = &found[i];
        *p                = (tni_ltproposal){ .waves = 1 };
        p->algo.data[ID]  = (uint64_t)i + 1;
        for (int k = 0; k < 4; k++) p->algo.data[ALIGN + k] = w->align[k];
        p->workspace = p->algo.data[WORKSPACE] = i == 4 ? w->workspace + 1 : (size_t)i * 64;
        p->status                              = i == 2 ? TNI_LT_NOT_SUPPORTED : TNI_LT_OK;
        *count                                 = i + 1;
    }
    return TNI_LT_OK;
}

int cublasLtMatmulAlgoCheck(tni_lthandle h, tni_ltdesc d, tni_ltlayout a, tni_ltlayout b,
                            tni_ltlayout c, tni_ltlayout out, const tni_ltalgo *algo,
                            tni_ltproposal *result)
{
    if (!fits(h, d, a, b, c, out) || algo->data[ID] > (uint64_t)fake.algos ||
        algo->data[TILE] > TILES)
        return TNI_LT_INVALID;
    *result = (tni_ltproposal){ .workspace = algo->data[WORKSPACE] };
    return TNI_LT_OK;
}

// ---- products ----------------------------------------------------------------------------------

static double read(tni_ltlayout l, const void *mem, bool turned, int64_t batch, int64_t row,
                   int64_t col)
{
    int64_t r = turned ? col : row, c = turned ? row : col;
    return host_get(dtype_of(l->type), mem, batch * l->step + r + c * l->ld);
}

static double after(tni_ltdesc d, double y)
{
    if (d->epilogue & TNI_LT_EPILOGUE_RELU) return y > 0 ? y : 0;
    if (d->epilogue & TNI_LT_EPILOGUE_GELU)
        return 0.5 * y * (1 + tanh(0.79788456080286535588 * (y + 0.044715 * y * y * y)));
    return y;
}

static bool aligned(const tni_ltalgo *algo, int i, const void *p)
{
    uint64_t n = algo->data[ALIGN + i];
    return n >= 2 && n <= 16 && (uintptr_t)p % n == 0;
}

static double scale_of(tni_ltdesc d, const void *p)
{
    return d->scale == TNI_LT_F64 ? *(const double *)p : *(const float *)p;
}

int cublasLtMatmul(tni_lthandle h, tni_ltdesc d, const void *alpha, const void *a, tni_ltlayout la,
                   const void *b, tni_ltlayout lb, const void *beta, const void *c, tni_ltlayout lc,
                   void *out, tni_ltlayout lout, const tni_ltalgo *algo, void *workspace,
                   size_t bytes, tni_custream s)
{
    tn_dtype type  = dtype_of(lout->type);
    int64_t  depth = d->turned[A] ? la->rows : la->cols;
    int      id = (int)algo->data[ID], tile = (int)algo->data[TILE];
    bool     lies = tile && tile == fake.liar, fast = tile && tile == fake.tile && fake.calm > 0;
    double   takes = lies ? 0.1 : fast ? 0.25 : 1 + 0.1 * tile;
    if (!fits(h, d, la, lb, lc, lout) || algo->data[WORKSPACE] > bytes || !workspace ||
        s != fake.stream)
        return TNI_LT_INVALID;
    for (int i = 0; i < 4; i++)
        if (!aligned(algo, i, i == 0 ? a : i == 1 ? b : i == 2 ? c : out)) return TNI_LT_INVALID;
    if (fake.fails || id == fake.broken || (lies && fake.lies == FAKE_DOES_NOT_RUN))
        return TNI_LT_NOT_SUPPORTED;
    fake.runs++;
    fake.last = id;
    fake.used = tile;
    fake.calm -= fast;
    fake.milliseconds += (id == fake.fastest ? 0.5 : 1 + 0.01 * id) *
                         (fake.cost > 0 ? fake.cost : 1) * takes;
    for (int64_t batch = 0; batch < lout->batch; batch++) {
        for (int64_t i = 0; i < lout->rows * lout->cols; i++) {
            int64_t row = i % lout->rows, col = i / lout->rows;
            int64_t at = batch * lout->step + row + col * lout->ld;
            double  y  = 0;
            for (int64_t k = 0; k < depth; k++)
                y += read(la, a, d->turned[A], batch, row, k) *
                     read(lb, b, d->turned[B], batch, k, col);
            y *= scale_of(d, alpha) * (lies && fake.lies == FAKE_SCALES ? 1.5 : 1);
            y += lies && fake.lies == FAKE_LAST_COLUMN && col == lout->cols - 1;
            if (scale_of(d, beta) != 0 && !(lies && fake.lies == FAKE_NO_RESIDUAL))
                y += scale_of(d, beta) * host_get(type, c, at);
            if (d->epilogue & TNI_LT_EPILOGUE_BIAS) y += host_get(type, d->bias, row);
            if (d->epilogue & TNI_LT_EPILOGUE_AUX)
                host_put(type, d->aux, row + col * d->aux_ld, y + (lies && fake.lies == FAKE_INPUT),
                         0);
            host_put(type, out, at, after(d, y), 0);
        }
    }
    return TNI_LT_OK;
}
