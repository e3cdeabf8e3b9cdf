// Attention by kernels of our own, as one of the methods of cuda_attention.h: which calls they
// take, the texts of a form, and their launches. The kernels are in flash_text*.c.
//
// Attention is one kernel, flash_forward or, for few queries over many keys, flash_decode; the
// gradient is two, flash_queries before flash_keys, since it leaves the sums that the second one
// reads in the scratch. All are deterministic.
#include "device/cuda/flash.h"

#include "device/cuda/cuda_attention.h"

#include <stdlib.h>
#include <string.h>

// PARTS: kernels of a call, at most; RANKS: the most blocks that share the keys of a head, SLOTS:
// keys that are worth another block.
enum { PARTS = 2, RANKS = 8, SLOTS = 16 };

// The kernels' argument: `struct flash` of flash_text.c, field by field.
typedef struct {
    const char *q, *k, *v;
    char       *o, *lse;
    const char *g;
    char       *dq, *dk, *dv, *delta;
    const char *lengths, *extra[TNI_SCORE_SOURCES];
    char       *extra_grad[TNI_SCORE_SOURCES];
    int64_t     q_at[3], k_at[3], v_at[3], o_at[3], g_at[3], dq_at[3], dk_at[3], dv_at[3];
    int64_t     extra_at[TNI_SCORE_SOURCES][4], extra_grad_at[TNI_SCORE_SOURCES][4];
    uint64_t    key, counter;
    int32_t     B, H, HK, T, S, window, lengths_at;
    float       scale, drop, kept;
} flash_args;

_Static_assert(sizeof(flash_args) == 19 * 8 + (24 + 32 + 2) * 8 + 10 * 4,
               "no padding: the text declares the same fields");

// A form: its kernels in the order of their launches, with the programs that are being compiled for
// operands whose rows are aligned to 16 bytes and for others, which are compiled when they are met.
typedef struct {
    tni_compiled     *compiled;
    int               parts;
    bool              packed;  // see pack_heads
    tni_flash_case    text[PARTS];
    tni_text_program *program[PARTS][2];  // by alignment
    void             *kernel[PARTS][2];   // NULL before the first launch
    size_t            scratch;
    char             *functions;  // of the score program, NULL: none
} flash_work;

// ---- which calls -------------------------------------------------------------------------------

static bool is_half(const tni_arg *x)
{
    return x->dtype == TN_F16 || x->dtype == TN_BF16;
}

// Whether elements of a row follow each other; true of a result that is not wanted.
static bool has_dense_rows(const tni_arg *x)
{
    return !x->rank || x->size[3] == 1 || x->stride[3] == 1;
}

// Whether the elements of an argument of any rank follow each other.
static bool is_row_major(const tni_arg *x)
{
    int64_t next = 1;
    for (int i = x->rank - 1; i >= 0; i--) {
        if (x->size[i] != 1 && x->stride[i] != next) return false;
        next *= x->size[i];
    }
    return true;
}

static bool fits_int(int64_t n)
{
    return n <= INT32_MAX / 4;
}

// Whether the gradient of an extra is a sum over an axis, along which all add to the same element.
static bool is_summed(const tni_attention *a, const tni_attention_extra *x)
{
    int64_t size[] = { a->B, a->H, a->T, a->S };
    for (int i = 0; i < 4; i++)
        if (x->grad->size[i] != size[i]) return true;
    return false;
}

// The program that changes scores: that of the call, or what its mask is; NULL: none.
static const tni_score *score_of(const tni_attention *a)
{
    if (a->score || !a->extras) return a->score;
    return tni_flash_mask(a->extra[0].arg->dtype != TN_BOOL);
}

static const char *declines_extras(const tni_cuda *c, const tni_attention *a)
{
    if (a->score && a->g && a->score->slope < 0) return "the score program has no gradient";
    for (int i = 0; i < a->extras; i++) {
        if (!a->extra[i].grad) continue;
        if (score_of(a)->source_slope[i] < 0) return "the score program has no gradient";
        if (c->deterministic && is_summed(a, &a->extra[i]))
            return "the gradient of a mask is summed in any order, unlike TN_DETERMINISTIC=1";
    }
    return NULL;
}

// What a score program reads, and over which sizes.
static tni_flash_in in_of(const tni_attention *a)
{
    tni_flash_in in = { .size = { a->B, a->H, a->T, a->S } };
    for (int i = 0; i < a->extras; i++) {
        const tni_arg   *x    = a->extra[i].arg;
        tni_flash_extra *y    = &in.extra[i];
        int64_t          last = 0;
        for (int k = 0; k < 4; k++) {
            y->varies[k] = x->size[k] > 1;
            last += (x->size[k] - 1) * llabs(x->stride[k]);
        }
        y->dtype = x->dtype;
        y->dense = x->stride[3] == 1;
        y->small = fits_int(last);
    }
    return in;
}

// The gradients of extras that a kernel adds up: those that vary with the key alone are the rows of
// flash_keys, all others are added up by flash_queries.
static void put_grads(const tni_attention *a, tni_flash_case *x)
{
    for (int i = 0; i < a->extras; i++) {
        const tni_arg *g = a->extra[i].grad;
        if (!g || (x->part != TNI_FLASH_QUERIES && x->part != TNI_FLASH_KEYS)) continue;
        bool by_query = g->size[2] > 1, by_key = g->size[3] > 1;
        if ((by_key && !by_query) != (x->part == TNI_FLASH_KEYS)) continue;
        x->grads |= 1u << i;
        if (!by_key || !by_query) x->row_grads |= 1u << i;
        if (!by_key && !by_query) x->head_grads |= 1u << i;
    }
}

// The operands of a case; the rest of it does not depend on the kernel.
static tni_flash_case case_of(const tni_cuda *c, const tni_attention *a, tni_flash_part part)
{
    const tni_score *score = score_of(a);
    tni_flash_in     in    = in_of(a);
    tni_flash_case   x     = { .part    = part,
                               .D       = (int)a->D,
                               .E       = (int)a->E,
                               .f16     = a->q->dtype == TN_F16,
                               .aligned = true,
                               .wgmma   = part != TNI_FLASH_DECODE && tni_gpu_has_wgmma(c->gpu),
                               .causal  = a->causal,
                               .window  = a->window > 0,
                               .lengths = a->lengths != NULL,
                               .dropout = a->drops,
                               .quads   = part != TNI_FLASH_KEYS && a->S % 4 == 0 };
    put_grads(a, &x);
    x.heavy = score && tni_flash_is_heavy(score, &in, part, x.grads);
    return x;
}

static bool decodes(const tni_attention *a)
{
    return !a->g && !a->drops && a->T <= TNI_FLASH_DECODE_ROWS;
}

// Heads that a block of flash_decode serves: two if they share keys and there is one query of each.
static int heads_of(const tni_attention *a)
{
    return a->T == 1 && a->H / a->Hk % 2 == 0 ? 2 : 1;
}

// The same of a result. A call that is being recorded has results without strides: they will be
// row-major, or the form is asked about again.
static bool has_dense_result(const tni_arg *x)
{
    return x->rank < 4 || x->stride[3] == 0 || has_dense_rows(x);
}

static bool has_dense_sums(const tni_arg *lse)
{
    return lse->rank < 3 || (lse->size[2] > 1 && lse->stride[2] == 0) || is_row_major(lse);
}

// Whether results, too, can be written row by row.
static bool has_dense_results(const tni_attention *a, const tni_call *call)
{
    if (!a->g) return has_dense_result(&call->out) && (!call->nmore || has_dense_sums(a->lse));
    return has_dense_result(&call->out) && has_dense_result(&call->more[0]) &&
           has_dense_result(&call->more[1]);
}

static const char *flash_declines(tni_cuda *c, const tni_call *call)
{
    tni_attention  a    = tni_attention_of(call);
    tni_flash_case most = case_of(c, &a, a.g ? TNI_FLASH_KEYS : TNI_FLASH_FORWARD);
    if (!is_half(a.q)) return "operands are not f16 or bf16";
    if (!tni_gpu_has_cores(c->gpu)) return "the GPU's tensor cores do not take bf16";
    if (a.D > TNI_FLASH_WIDEST || a.E > TNI_FLASH_WIDEST) return "heads are wider than 256";
    if (!has_dense_rows(a.q) || !has_dense_rows(a.k) || !has_dense_rows(a.v))
        return "elements of a head are not neighbours";
    if (a.g && (!has_dense_rows(a.g) || !has_dense_rows(a.o) || !is_row_major(a.lse)))
        return "elements of a head are not neighbours";
    if (!has_dense_results(&a, call)) return "elements of a result's head are not neighbours";
    if (!fits_int(a.T) || !fits_int(a.S) || !fits_int(a.B * a.H) || !fits_int(a.window))
        return "there are too many keys";
    if (tni_flash_shared(&most) + 4096 > c->gpu->limits.shared_bytes)
        return "heads are too wide for the shared memory of this GPU";
    return declines_extras(c, &a);
}

static int64_t tiles_of(int64_t n, int rows)
{
    return (n + rows - 1) / rows;
}

// ---- forms -------------------------------------------------------------------------------------

// Starts to compile a kernel of a form for one alignment.
static tni_text_program *start_text(const flash_work *w, int part, bool aligned)
{
    tni_heap       heap = tni_heap_default();
    tni_flash_case x    = w->text[part];
    x.aligned           = aligned;
    return tni_compiled_text(w->compiled, tni_flash_source(&heap, &x), tni_flash_kernel(x.part));
}

// As many blocks share the keys of a head as find room on the GPU twice, if it has clusters, and no
// more than there are keys for.
static int ranks_of(const tni_cuda *c, const tni_attention *a)
{
    int64_t heads = a->B * a->H / heads_of(a), room = 2 * (int64_t)c->gpu->limits.units;
    int     ranks = 1;
    while (ranks < RANKS && 2 * ranks <= c->gpu->limits.cluster && 2 * ranks * heads <= room &&
           2 * ranks * SLOTS <= a->S)
        ranks *= 2;
    return ranks;
}

// Bytes of delta, and of the sums in f32 of the gradients of extras, one behind the other.
static size_t delta_bytes(const tni_attention *a)
{
    return (size_t)tni_align64(a->B * a->H * a->T * (int64_t)sizeof(float));
}

static size_t sum_bytes(const tni_attention *a)
{
    size_t n = 0;
    for (int i = 0; i < a->extras; i++)
        if (a->extra[i].grad)
            n += (size_t)tni_shape_count(4, a->extra[i].grad->size) * sizeof(float);
    return n;
}

// A call with heads in the place of queries.
typedef struct {
    tni_attention a;
    tni_call      call;
    tni_arg       q;
} packed_call;

// Whether the heads that share keys, of one query each, are taken for as many queries of one head,
// all of which see the same keys: then a block of flash_forward reads them once for all. That is
// worth it where there are blocks enough without splitting keys.
static bool packs(const tni_cuda *c, const tni_attention *a)
{
    return decodes(a) && a->T == 1 && a->H > a->Hk && !a->extras && !a->score && !a->window &&
           (a->lengths || !a->causal) && 2 * a->B * a->Hk >= c->gpu->limits.units;
}

// (B, 1, H, D) as (B, H / Hk, Hk, D).
static void pack_rows(tni_arg *x, int64_t heads)
{
    int64_t group = x->size[2] / heads, stride = x->stride[2];
    x->size[1]   = group;
    x->stride[1] = stride;
    x->size[2]   = heads;
    x->stride[2] = group * stride;
}

static void pack_heads(const tni_attention *a, const tni_call *call, packed_call *p)
{
    *p          = (packed_call){ .a = *a, .call = *call, .q = *a->q };
    p->a.q      = &p->q;
    p->a.T      = a->H / a->Hk;
    p->a.H      = a->Hk;
    p->a.causal = false;
    pack_rows(&p->q, a->Hk);
    pack_rows(&p->call.out, a->Hk);
}

// The scratch has delta and such sums.
static void describe_parts(const tni_cuda *c, const tni_attention *a, const tni_call *call,
                           flash_work *w)
{
    packed_call p;
    if (a->g) {
        w->text[w->parts++] = case_of(c, a, TNI_FLASH_QUERIES);
        w->text[w->parts++] = case_of(c, a, TNI_FLASH_KEYS);
        w->scratch          = delta_bytes(a) + sum_bytes(a);
    } else if (packs(c, a)) {
        pack_heads(a, call, &p);
        w->text[w->parts++] = case_of(c, &p.a, TNI_FLASH_FORWARD);
        w->packed           = true;
    } else if (decodes(a)) {
        tni_flash_case *x = &w->text[w->parts++];
        *x                = case_of(c, a, TNI_FLASH_DECODE);
        x->rows           = (int)a->T * heads_of(a);
        x->ranks          = ranks_of(c, a);
    } else w->text[w->parts++] = case_of(c, a, TNI_FLASH_FORWARD);
}

// Prints the score program, if there is one. False when memory is out.
static bool describe_score(const tni_attention *a, flash_work *w)
{
    const tni_score *score = score_of(a);
    tni_flash_in     in    = in_of(a);
    tni_heap         heap  = tni_heap_default();
    if (score) w->functions = tni_flash_program(&heap, score, &in);
    return !score || w->functions;
}

static void *flash_open(tni_cuda *c, const tni_call *call)
{
    flash_work   *w = calloc(1, sizeof *w);
    tni_attention a = tni_attention_of(call);
    if (!w || !describe_score(&a, w)) {
        free(w);
        return NULL;
    }
    w->compiled = c->gpu->compiled;
    describe_parts(c, &a, call, w);
    for (int i = 0; i < w->parts; i++) w->text[i].program = w->functions;
    for (int i = 0; i < w->parts; i++)
        if (a.D % 8 == 0 && a.E % 8 == 0) w->program[i][1] = start_text(w, i, true);
    return w;
}

// Returns a kernel of a form, after waiting for its compiler.
static void *kernel_of(flash_work *w, int part, bool aligned, tn_status *s, tni_text *why)
{
    void **f = &w->kernel[part][aligned];
    *s       = TN_OK;
    if (*f) return *f;
    if (!w->program[part][aligned]) w->program[part][aligned] = start_text(w, part, aligned);
    if (w->program[part][aligned])
        *f = tni_compiled_text_kernel(w->program[part][aligned],
                                      tni_flash_kernel(w->text[part].part), s, why);
    else *s = TN_EMEM;
    return *f;
}

// Tiles are chosen by a table. A text that does not compile is found out by its launch, which says
// why.
static int flash_count(void *work)
{
    (void)work;
    return 1;
}

static size_t flash_scratch(void *work)
{
    const flash_work *w = work;
    return w->scratch;
}

// ---- launches ----------------------------------------------------------------------------------

// Strides of the batch, of rows and of heads of an argument (B, T, H, D).
static void put_strides(int64_t at[3], const tni_arg *x)
{
    for (int i = 0; x && i < 3; i++) at[i] = x->size[i] == 1 ? 0 : x->stride[i];
}

static char *data_of(const tni_arg *x)
{
    return x ? x->data : NULL;
}

// Whether pieces of 16 bytes begin at multiples of that in all rows.
static bool is_aligned(const tni_arg *x)
{
    if (!x) return true;
    for (int i = 0; i < 3; i++)
        if (x->size[i] != 1 && x->stride[i] % 8) return false;
    return (uintptr_t)x->data % 16 == 0 && x->size[3] % 8 == 0;
}

static bool are_aligned(const tni_attention *a, const tni_call *call)
{
    bool ok = is_aligned(a->q) && is_aligned(a->k) && is_aligned(a->v) && is_aligned(&call->out);
    if (!a->g) return ok;
    return ok && is_aligned(a->g) && is_aligned(a->o) && is_aligned(&call->more[0]) &&
           is_aligned(&call->more[1]);
}

// A scale of 0 would multiply the -inf of keys that are not seen; what is next to it does the same.
static float scale_of(const tni_attention *a)
{
    return a->scale == 0 ? 1e-30f : (float)a->scale;
}

// Writes the kernels' argument; the sums of the gradients of extras are added by clear_sums.
static flash_args args_of(const tni_attention *a, const tni_call *call)
{
    const tni_arg *o = a->g ? a->o : &call->out;
    flash_args     p = { .q          = data_of(a->q),
                         .k          = data_of(a->k),
                         .v          = data_of(a->v),
                         .o          = data_of(o),
                         .lse        = data_of(a->lse),
                         .g          = data_of(a->g),
                         .delta      = call->scratch,
                         .lengths    = data_of(a->lengths),
                         .key        = a->key,
                         .counter    = a->counter,
                         .B          = (int32_t)a->B,
                         .H          = (int32_t)a->H,
                         .HK         = (int32_t)a->Hk,
                         .T          = (int32_t)a->T,
                         .S          = (int32_t)a->S,
                         .window     = (int32_t)a->window,
                         .lengths_at = a->lengths ? (int32_t)a->lengths->stride[0] : 0,
                         .scale      = scale_of(a),
                         .drop       = (float)a->dropout,
                         .kept       = (float)(1 / (1 - a->dropout)) };
    if (a->g) {
        p.dq = call->out.data, p.dk = call->more[0].data, p.dv = call->more[1].data;
        put_strides(p.dq_at, &call->out);
        put_strides(p.dk_at, &call->more[0]), put_strides(p.dv_at, &call->more[1]);
    }
    put_strides(p.q_at, a->q), put_strides(p.k_at, a->k), put_strides(p.v_at, a->v);
    put_strides(p.o_at, o), put_strides(p.g_at, a->g);
    for (int i = 0; i < a->extras; i++) {
        p.extra[i] = a->extra[i].arg->data;
        memcpy(p.extra_at[i], a->extra[i].stride, sizeof p.extra_at[i]);
    }
    return p;
}

static int64_t blocks_of(const tni_attention *a, const tni_flash_case *x)
{
    if (x->part == TNI_FLASH_DECODE) return a->B * a->H / heads_of(a) * x->ranks;
    int rows = tni_flash_rows(x);
    if (x->part == TNI_FLASH_KEYS)
        return tiles_of(a->S, rows) * a->B * a->Hk * (1 + tni_flash_splits(x));
    return tiles_of(a->T, rows) * a->B * a->H;
}

static tn_status launch_part(tni_cuda *c, flash_work *w, int part, bool aligned,
                             const tni_attention *a, const flash_args *args, tni_text *why)
{
    const tni_flash_case *x        = &w->text[part];
    uint32_t              offset[] = { 0, sizeof *args };
    int64_t               blocks   = blocks_of(a, x);
    tn_status             s;
    tni_launch_record     d = { .f        = kernel_of(w, part, aligned, &s, why),
                                .grid     = { (unsigned)blocks, 1, 1 },
                                .block    = { (unsigned)tni_flash_tile_of(x).warps * 32, 1, 1 },
                                .shared   = (unsigned)tni_flash_shared(x),
                                .overlaps = c->gpu->overlaps,
                                .args     = 1 };
    if (!d.f || blocks > INT32_MAX) return s == TN_OK ? TN_EDEVICE : s;
    return tni_cuda_status(c, tni_replay_launch(c, &d, offset, (const char *)args), "attention",
                           why);
}

// Runs a copy, which converts.
static tn_status copy_sums(const tni_call *call, const tni_arg *from, const tni_arg *to)
{
    tni_call part = tni_call_within(call, TNI_copy);
    part.in       = from;
    part.out      = *to;
    part.nin      = 1;
    part.nmore    = 0;
    return tni_groups_copy(&part);
}

// The sums in f32 of the gradient of an extra, row-major in the scratch.
static tni_arg sums_of(const tni_call *call, const tni_attention *a, int extra)
{
    tni_arg x    = *a->extra[extra].grad;
    int64_t next = 1;
    x.dtype      = TN_F32;
    x.data       = (char *)call->scratch + delta_bytes(a);
    for (int i = 0; i < extra; i++)
        if (a->extra[i].grad)
            x.data += (size_t)tni_shape_count(4, a->extra[i].grad->size) * sizeof(float);
    for (int i = 3; i >= 0; i--) {
        x.stride[i] = next;
        next *= x.size[i];
    }
    return x;
}

// Clears the sums, by copies of a zero.
static tn_status clear_sums(tni_cuda *c, const tni_call *call, const tni_attention *a,
                            flash_args *args)
{
    int64_t count = (int64_t)(sum_bytes(a) / sizeof(float));
    if (!count) return TN_OK;
    if (!tni_cuda_zeros(c)) return TN_EMEM;
    for (int i = 0; i < a->extras; i++) {
        if (!a->extra[i].grad) continue;
        tni_arg x           = sums_of(call, a, i);
        args->extra_grad[i] = x.data;
        tni_attention_strides(&x, args->extra_grad_at[i]);
    }
    char   *at   = (char *)call->scratch + delta_bytes(a);
    tni_arg zero = { TN_F32, 1, { count }, { 0 }, (char *)(uintptr_t)c->zeros };
    return copy_sums(call, &zero, &(tni_arg){ TN_F32, 1, { count }, { 1 }, at });
}

static tn_status round_sums(const tni_call *call, const tni_attention *a)
{
    tn_status s = TN_OK;
    for (int i = 0; i < a->extras && s == TN_OK; i++) {
        const tni_arg *g = a->extra[i].grad;
        if (!g || !g->data) continue;
        tni_arg x = sums_of(call, a, i);
        s         = copy_sums(call, &x, g);
    }
    return s;
}

// Launches all parts. Kernels that are not compiled are waited for before the first is launched.
// The gradients of keys and values may not be wanted; the kernel for them computes both.
static tn_status launch_parts(tni_cuda *c, flash_work *w, const tni_attention *a,
                              const tni_call *call, tni_text *why)
{
    bool       aligned = are_aligned(a, call);
    tn_status  s       = TN_OK;
    flash_args args    = args_of(a, call);
    for (int i = 0; i < w->parts && s == TN_OK; i++) kernel_of(w, i, aligned, &s, why);
    if (s == TN_OK && a->g) s = clear_sums(c, call, a, &args);
    for (int i = 0; i < w->parts && s == TN_OK; i++)
        if (w->text[i].part != TNI_FLASH_KEYS || args.dk || args.dv || w->text[i].grads)
            s = launch_part(c, w, i, aligned, a, &args, why);
    return s == TN_OK && a->g ? round_sums(call, a) : s;
}

static tn_status flash_launch(tni_cuda *c, void *work, const tni_call *call, int candidate,
                              tni_text *why)
{
    flash_work   *w = work;
    tni_attention a = tni_attention_of(call);
    packed_call   p;
    (void)candidate;
    if (!w->packed) return launch_parts(c, w, &a, call, why);
    pack_heads(&a, call, &p);
    return launch_parts(c, w, &p.a, &p.call, why);
}

static const char *flash_varies(tni_cuda *c, void *work, const tni_call *call)
{
    (void)work;
    tni_attention a = tni_attention_of(call);
    for (int i = 0; i < a.extras && !c->deterministic; i++)
        if (a.extra[i].grad && is_summed(&a, &a.extra[i]))
            return "the gradient of a mask is summed in any order, unless TN_DETERMINISTIC=1";
    return NULL;
}

static size_t flash_version(void)
{
    return TNI_FLASH_VERSION;
}

const tni_method tni_attention_by_flash = { .name     = "flash",
                                            .version  = flash_version,
                                            .declines = flash_declines,
                                            .open     = flash_open,
                                            .count    = flash_count,
                                            .scratch  = flash_scratch,
                                            .launch   = flash_launch,
                                            .varies   = flash_varies };
