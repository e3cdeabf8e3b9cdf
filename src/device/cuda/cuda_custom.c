// Users' ops on the GPU: the kernels compiled from their CUDA texts, and their launches.
#include "device/custom.h"
#include "device/cuda/gpu.h"
#include "device/cuda/user_text.h"
#include "ops/collective.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// ---- what was compiled -------------------------------------------------------------------------

typedef struct kernel kernel;

// A user's kernel on one GPU, found by everything its program was made from. It is complete before
// it enters the list, never changes afterwards, and lives until the process ends: captured graphs
// and launches in flight may use it.
struct kernel {
    const tni_gpu *gpu;
    tni_user_text  text;  // with copies of its strings
    tni_cufunction f;
    int            threads, shared;  // limits: threads of a block, and dynamic bytes
    kernel        *next;
};

// All users' kernels, newest first. The lock guards the list and is held while one is compiled, so
// that two contexts with the same op compile it once.
static struct {
    pthread_mutex_t lock;
    kernel         *first;
} kernels = { .lock = PTHREAD_MUTEX_INITIALIZER };

// Compares texts and dtypes, not addresses: a user may free an op and define it again.
static bool matches_text(const kernel *k, const tni_gpu *g, const tni_user_text *u)
{
    return k->gpu == g && k->text.nin == u->nin && k->text.nout == u->nout &&
           k->text.attr == u->attr && !memcmp(k->text.dtype, u->dtype, sizeof u->dtype) &&
           !strcmp(k->text.kernel, u->kernel) && !strcmp(k->text.text, u->text);
}

// Loads machine code and asks for the function's limits. A function may use all shared memory of a
// block beyond what its text declares, but more than 48 KB has to be requested first.
static int load_kernel(kernel *k, const char *image)
{
    const tni_driver *cu       = k->gpu->cu;
    tni_cumodule      m        = NULL;
    int               declared = 0;
    int               error    = cu->set_current(k->gpu->cx);
    int               before   = tni_cuda_relax(cu);
    if (!error) error = cu->module_load(&m, image);
    tni_cuda_restrict(cu, before);
    if (!error) error = cu->module_function(&k->f, m, k->text.kernel);
    if (!error) error = cu->function_get(&k->threads, TNI_CU_FUNCTION_THREADS, k->f);
    if (!error) error = cu->function_get(&declared, TNI_CU_FUNCTION_STATIC_SHARED, k->f);
    k->shared = k->gpu->limits.shared_bytes - declared;
    if (!error) error = cu->function_set(k->f, TNI_CU_FUNCTION_SHARED, k->shared);
    if (error && m) cu->module_unload(m);
    return error;
}

static void free_kernel(kernel *k)
{
    free((char *)(uintptr_t)k->text.kernel);
    free((char *)(uintptr_t)k->text.text);
    free(k);
}

// Copies what identifies a kernel, since the user's strings may go; NULL when memory is out.
static kernel *new_kernel(const tni_gpu *g, const tni_user_text *u)
{
    kernel *k = calloc(1, sizeof *k);
    if (!k) return NULL;
    k->gpu         = g;
    k->text        = *u;
    k->text.op     = NULL;
    k->text.kernel = strdup(u->kernel);
    k->text.text   = strdup(u->text);
    if (k->text.kernel && k->text.text) return k;
    free_kernel(k);
    return NULL;
}

// Compiles and loads a kernel and adds it to the list; the lock is held. On failure *why has the
// user's error with its line.
static kernel *build_kernel(tni_cuda *c, const tni_user_text *u, tn_status *s, tni_text *why)
{
    tni_cubin code;
    bool      found = false;
    kernel   *k     = new_kernel(c->gpu, u);
    if (!k) {
        tni_text_add(why, "%s: cuda: out of memory", u->op);
        *s = TN_EMEM;
        return NULL;
    }
    *s = tni_user_cubin(u, c->gpu->chip, &code, &found, why);
    if (*s == TN_OK) *s = tni_cuda_status(c, load_kernel(k, code.image), u->op, why);
    tni_cubin_free(&code);
    if (*s == TN_OK) {
        tni_cuda_count_kernel(found);
        k->next       = kernels.first;
        kernels.first = k;
        return k;
    }
    free_kernel(k);
    return NULL;
}

// Returns the kernel for a text, compiled at the first use; NULL, with status and reason, if it
// cannot be.
static const kernel *find_kernel(tni_cuda *c, const tni_user_text *u, tn_status *s, tni_text *why)
{
    pthread_mutex_lock(&kernels.lock);
    kernel *k = kernels.first;
    *s        = TN_OK;
    while (k && !matches_text(k, c->gpu, u)) k = k->next;
    if (!k) k = build_kernel(c, u, s, why);
    pthread_mutex_unlock(&kernels.lock);
    return k;
}

// ---- launching ---------------------------------------------------------------------------------

// The arrays of a call as the op's functions see them, and as its kernel takes them.
typedef struct {
    int            nin, n;
    tn_array       a[TNI_USER_ARRAYS];  // the inputs, then the outputs
    tni_user_array bytes[TNI_USER_ARRAYS];
} arrays;

// Lays out an array as tn::array of the text has it. Sizes beyond the rank are 1, so that a kernel
// may read all of them.
static tni_user_array pack_array(const tn_array *a)
{
    tni_user_array p = { .data  = a->data,
                         .count = tni_shape_count(a->rank, a->size),
                         .rank  = a->rank };
    for (int i = 0; i < TN_MAX_RANK; i++) p.size[i] = i < a->rank ? a->size[i] : 1;
    return p;
}

// Describes the arrays of a call; outputs that nothing reads are in scratch.
static void gather_arrays(const tni_call *call, arrays *x)
{
    x->nin = call->nin;
    x->n   = call->nin + 1 + call->nmore;
    for (int i = 0; i < x->nin; i++) x->a[i] = tni_custom_array(&call->in[i]);
    tni_custom_place_outputs(call, call->scratch, x->a + x->nin);
    for (int i = 0; i < x->n; i++) x->bytes[i] = pack_array(&x->a[i]);
}

// Asks the user's launch function for grid and block, or takes one thread per element of the
// largest output, and checks them against the limits, so that an error names the op and not a
// launch.
static tn_status ask_dims(const tni_call *call, const arrays *x, const kernel *k, tn_launch_dims *d)
{
    const tn_op_def *def = call->attr->custom.def;
    const tn_array  *out = x->a + x->nin;
    tn_status        s   = TN_OK;
    *d                   = tni_user_dims(out, x->n - x->nin);
    if (def->launch) {
        const tni_cuda *c = call->session;
        s                 = def->launch(call->attr->custom.bytes, x->a, out, d);
        c->gpu->cu->set_current(c->gpu->cx);  // the user's function may have changed it
    }
    if (s != TN_OK) tni_text_add(call->why, "%s: launch failed with status %d", def->name, (int)s);
    else if (tni_user_dims_ok(def->name, d, k->threads, k->shared, call->why)) return TN_OK;
    return TN_EUSER;
}

// Packs the arrays and the attributes as the kernel's arguments and launches it, through replay
// like any kernel.
static int launch_user_kernel(tni_cuda *c, const kernel *k, const arrays *x,
                              const tn_launch_dims *dims, const tni_attr *attr)
{
    char              bytes[TNI_USER_BYTES];
    uint32_t          offset[TNI_USER_ARRAYS + 2];
    size_t            used = (size_t)x->n * sizeof *x->bytes, more = attr->custom.count;
    tni_launch_record d = { .f = k->f, .shared = (unsigned)dims->shared };
    for (int i = 0; i < 3; i++) {
        d.grid[i]  = (unsigned)dims->grid[i];
        d.block[i] = (unsigned)dims->block[i];
    }
    memcpy(bytes, x->bytes, used);
    if (more) memcpy(bytes + used, attr->custom.bytes, more);
    d.args = (unsigned)x->n + (more > 0);
    for (int i = 0; i <= x->n; i++) offset[i] = (uint32_t)((size_t)i * sizeof *x->bytes);
    offset[d.args] = (uint32_t)(used + more);
    return tni_replay_launch(c, &d, offset, bytes);
}

// An op without CUDA text runs on the host, with copies that wait: such a run can never be a graph.
static tn_status run_on_host(const tni_call *call)
{
    tni_replay_never_graph(call->session);
    return tni_groups_custom(call);
}

size_t tni_cuda_custom_scratch(const tni_call *call)
{
    return call->attr->custom.def->cuda ? tni_custom_place_outputs(call, NULL, NULL) : 0;
}

// compile_only does nothing: a user's text is compiled by the first call that needs it, which then
// reports its errors.
tn_status tni_cuda_custom(const tni_call *call)
{
    tni_cuda        *c    = call->session;
    const tni_attr  *attr = call->attr;
    const tn_op_def *def  = attr->custom.def;
    arrays           x;
    tn_launch_dims   dims;
    tn_status        s;
    if (call->compile_only) return TN_OK;
    if (tni_is_collective(def) && tni_collective_streams(attr->custom.bytes))
        return tni_cuda_collective(call);
    if (!def->cuda) return run_on_host(call);
    if (!tni_user_fits(def, attr->custom.count, call->why)) return TN_EUSER;
    tni_cuda_enter(c);
    gather_arrays(call, &x);
    tni_user_text text = tni_user_text_of(def, x.a, x.a + x.nin, attr->custom.count);
    const kernel *k    = find_kernel(c, &text, &s, call->why);
    if (k) s = ask_dims(call, &x, k, &dims);
    if (s != TN_OK) return s;
    return tni_cuda_status(c, launch_user_kernel(c, k, &x, &dims, attr), def->name, call->why);
}
