// fake_cudnn.c: a cuDNN whose engines compute any graph in host memory, op by op, so that the
// graphs are tested without a GPU: by what they compute. A test compiles it into a library. It
// keeps attributes as they are set, checks at finalizing what the real one would miss, and has a
// clock that only runs move.
#include "fake_cudnn.h"

#include "host.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RANK            = 5,
    BAD             = 2000,
    MOST_ATTRIBUTES = 16,
    MOST_TENSORS    = 64,
    MOST_OPS        = 64,
    MOST_GRAPHS     = 512
};

typedef struct {
    int     name, type;
    int64_t count;
    void   *value;
} attribute;

// graph: of a graph, and of the heuristic, configuration and plan that follow from it.
struct tni_cudnn_descriptor {
    int       kind, attributes;
    bool      final;
    attribute attribute[MOST_ATTRIBUTES];
    int       graph, engine;
};

typedef struct {
    int64_t  id, rank, size[RANK], stride[RANK];
    tn_dtype dtype;
    bool     between, number;
} tensor;

// window: of a convolution, its stride, padding and dilation.
typedef struct {
    int     kind, mode;
    int64_t axis, window[3][3];
    tensor  x[3], y;
    bool    has[3];
} op;

// A graph that was finalized, kept for as long as the process: plans are saved by its number.
typedef struct {
    int ops;
    op  op[MOST_OPS];
} graph;

fake_dnn      fake = { .engines = 3, .fastest = 1, .fails = FAKE_NONE, .broken = -1 };
static graph *graphs[MOST_GRAPHS];
static int    graph_count;

fake_dnn *fake_dnn_get(void)
{
    return &fake;
}

size_t cudnnGetVersion(void)
{
    const char *v = getenv("FAKE_CUDNN_VERSION");
    return v ? (size_t)atol(v) : 91400;
}

// A CUDA that no machine has, so that the libraries it needs are the test's.
size_t cudnnGetCudartVersion(void)
{
    return 99000;
}

const char *cudnnGetErrorString(int status)
{
    return status / 1000 == 3 ? "fake: not supported" : "fake: an error";
}

void cudnnGetLastErrorString(char *text, size_t room)
{
    snprintf(text, room, "the fake says no");
}

// Descriptors are made by several threads at once.
static void count(int *n, int by)
{
    __atomic_fetch_add(n, by, __ATOMIC_RELAXED);
}

int cudnnCreate(tni_dnnhandle *h)
{
    if (fake.fails == -1) return fake.status;
    *h = (tni_dnnhandle)&fake;
    count(&fake.handles, 1);
    return 0;
}

int cudnnDestroy(tni_dnnhandle h)
{
    count(&fake.handles, -1);
    return (void *)h != &fake;
}

int cudnnSetStream(tni_dnnhandle h, tni_custream s)
{
    return (void *)h != &fake || s != fake.stream ? BAD : 0;
}

// ---- descriptors -------------------------------------------------------------------------------

int cudnnBackendCreateDescriptor(int kind, tni_dnndesc *d)
{
    if (!(*d = calloc(1, sizeof **d))) return 4000;
    (*d)->kind = kind;
    count(&fake.alive, 1);
    return 0;
}

int cudnnBackendDestroyDescriptor(tni_dnndesc d)
{
    for (int i = 0; i < d->attributes; i++) free(d->attribute[i].value);
    free(d);
    count(&fake.alive, -1);
    return 0;
}

static size_t bytes_of(int type)
{
    switch (type) {
    case TNI_DNN_TYPE_INT64:
    case TNI_DNN_TYPE_HANDLE:
    case TNI_DNN_TYPE_POINTER:
    case TNI_DNN_TYPE_DESC: return 8;
    case TNI_DNN_TYPE_BOOL:
    case TNI_DNN_TYPE_CHAR: return 1;
    default: return 4;
    }
}

int cudnnBackendSetAttribute(tni_dnndesc d, int name, int type, int64_t count, const void *value)
{
    size_t bytes = bytes_of(type) * (size_t)count;
    if (d->final || count <= 0 || d->attributes == MOST_ATTRIBUTES) return BAD;
    attribute a = { name, type, count, malloc(bytes) };
    if (!a.value) return 4000;
    memcpy(a.value, value, bytes);
    d->attribute[d->attributes++] = a;
    return 0;
}

static const attribute *find(tni_dnndesc d, int name)
{
    for (int i = 0; i < d->attributes; i++)
        if (d->attribute[i].name == name) return &d->attribute[i];
    return NULL;
}

static int64_t number(tni_dnndesc d, int name)
{
    const attribute *a = find(d, name);
    int              n;
    if (!a) return 0;
    if (bytes_of(a->type) == 8) return *(const int64_t *)a->value;
    if (bytes_of(a->type) == 1) return *(const char *)a->value;
    memcpy(&n, a->value, sizeof n);
    return n;
}

static tni_dnndesc desc(tni_dnndesc d, int name)
{
    const attribute *a = find(d, name);
    return a ? *(const tni_dnndesc *)a->value : NULL;
}

// ---- graphs ------------------------------------------------------------------------------------

static tn_dtype dtype_of(int64_t type)
{
    switch (type) {
    case TNI_DNN_F16: return TN_F16;
    case TNI_DNN_BF16: return TN_BF16;
    case TNI_DNN_I32: return TN_I32;
    case TNI_DNN_BOOL: return TN_BOOL;
    default: return TN_F32;
    }
}

static bool read_tensor(tni_dnndesc d, tensor *t)
{
    if (!d || !d->final || d->kind != TNI_DNN_TENSOR) return false;
    *t                      = (tensor){ .id      = number(d, TNI_DNN_TENSOR_ID),
                                        .dtype   = dtype_of(number(d, TNI_DNN_TENSOR_DTYPE)),
                                        .between = number(d, TNI_DNN_TENSOR_VIRTUAL),
                                        .number  = number(d, TNI_DNN_TENSOR_VALUE) };
    const attribute *size   = find(d, TNI_DNN_TENSOR_SIZES),
                    *stride = find(d, TNI_DNN_TENSOR_STRIDES);
    if (size->count > RANK || size->count != stride->count) return false;
    t->rank = size->count;
    for (int i = 0; i < RANK; i++) {
        t->size[i]   = i < t->rank ? ((int64_t *)size->value)[i] : 1;
        t->stride[i] = i < t->rank ? ((int64_t *)stride->value)[i] : 0;
    }
    return true;
}

// The attributes of an op: its settings and mode, operands, result.
static const int names[][7] = {
    { TNI_DNN_OP_POINTWISE, TNI_DNN_POINTWISE_DESC, TNI_DNN_POINTWISE_MODE, TNI_DNN_POINTWISE_X,
      TNI_DNN_POINTWISE_B, TNI_DNN_POINTWISE_T, TNI_DNN_POINTWISE_Y },
    { TNI_DNN_OP_REDUCTION, TNI_DNN_REDUCTION_DESC, TNI_DNN_REDUCTION_MODE, TNI_DNN_REDUCTION_X, 0,
      0, TNI_DNN_REDUCTION_Y },
    { TNI_DNN_OP_MATMUL, TNI_DNN_MATMUL_DESC, TNI_DNN_MATMUL_DTYPE, TNI_DNN_MATMUL_A,
      TNI_DNN_MATMUL_B, 0, TNI_DNN_MATMUL_C },
    { TNI_DNN_OP_RESHAPE, 0, 0, TNI_DNN_RESHAPE_X, 0, 0, TNI_DNN_RESHAPE_Y },
    { TNI_DNN_OP_CONV, TNI_DNN_CONV_DESC, TNI_DNN_CONV_DTYPE, TNI_DNN_CONV_X, TNI_DNN_CONV_W, 0,
      TNI_DNN_CONV_Y },
    { TNI_DNN_OP_CONV_DX, TNI_DNN_CONV_DX_DESC, TNI_DNN_CONV_DTYPE, TNI_DNN_CONV_DX_DY,
      TNI_DNN_CONV_DX_W, 0, TNI_DNN_CONV_DX_DX },
    { TNI_DNN_OP_CONV_DW, TNI_DNN_CONV_DW_DESC, TNI_DNN_CONV_DTYPE, TNI_DNN_CONV_DW_DY,
      TNI_DNN_CONV_DW_X, 0, TNI_DNN_CONV_DW_DW }
};

enum { KINDS = sizeof names / sizeof *names };

static bool is_conv(int kind)
{
    return kind == TNI_DNN_OP_CONV || kind == TNI_DNN_OP_CONV_DX || kind == TNI_DNN_OP_CONV_DW;
}

// Reads the window of a convolution, whose axes must be as many as the descriptor says.
static bool read_window(tni_dnndesc d, op *o)
{
    static const int part[] = { TNI_DNN_CONV_STRIDE, TNI_DNN_CONV_BEFORE, TNI_DNN_CONV_DILATION };
    int64_t          places = number(d, TNI_DNN_CONV_PLACES);
    if (places < 1 || places > 3 || number(d, TNI_DNN_CONV_MODE) != TNI_DNN_CROSS_CORRELATION)
        return false;
    for (int i = 0; i < 3; i++) {
        const attribute *a = find(d, part[i]), *after = find(d, TNI_DNN_CONV_AFTER);
        if (!a || a->count != places || !after || after->count != places) return false;
        memcpy(o->window[i], a->value, (size_t)places * sizeof(int64_t));
    }
    return true;
}

// Whether an op compares, so that NaN has to be asked for.
static bool loses_nan(const op *o)
{
    return o->kind == TNI_DNN_OP_POINTWISE &&
           (o->mode == TNI_DNN_RELU || o->mode == TNI_DNN_MAX || o->mode == TNI_DNN_MIN);
}

static bool read_op(tni_dnndesc d, op *o)
{
    const int *n = NULL;
    for (int i = 0; i < KINDS && !n; i++)
        if (d->final && names[i][0] == d->kind) n = names[i];
    if (!n) return false;
    tni_dnndesc settings = n[1] ? desc(d, n[1]) : NULL;
    if (n[1] && (!settings || !settings->final || !find(settings, n[2]))) return false;
    *o = (op){ .kind = d->kind };
    if (is_conv(d->kind) && !read_window(settings, o)) return false;
    if (settings) o->mode = (int)number(settings, n[2]);
    if (loses_nan(o) && number(settings, TNI_DNN_POINTWISE_NAN) != TNI_DNN_KEEPS_NAN) return false;
    if (settings) o->axis = number(settings, TNI_DNN_POINTWISE_AXIS);
    for (int i = 0; i < 3; i++) {
        o->has[i] = n[3 + i] && find(d, n[3 + i]);
        if (o->has[i] && !read_tensor(desc(d, n[3 + i]), &o->x[i])) return false;
    }
    return o->has[0] && read_tensor(desc(d, n[6]), &o->y);
}

static int finalize_graph(tni_dnndesc d)
{
    const attribute *a = find(d, TNI_DNN_GRAPH_OPS);
    graph           *g = calloc(1, sizeof *g);
    if (!g || !a || a->count > MOST_OPS || graph_count == MOST_GRAPHS ||
        !number(d, TNI_DNN_GRAPH_HANDLE)) {
        free(g);
        return BAD;
    }
    for (int64_t i = 0; i < a->count; i++)
        if (!read_op(((tni_dnndesc *)a->value)[i], &g->op[g->ops++])) {
            free(g);
            return BAD;
        }
    fake.ops              = g->ops;
    d->graph              = graph_count;
    graphs[graph_count++] = g;
    return 0;
}

// From a configuration, or from the text that another plan was saved as.
static int finalize_plan(tni_dnndesc d)
{
    const attribute *text = find(d, TNI_DNN_PLAN_JSON);
    tni_dnndesc      from = desc(d, TNI_DNN_PLAN_CONFIG);
    if (!number(d, TNI_DNN_PLAN_HANDLE) || (!text && !from)) return BAD;
    if (text) {
        count(&fake.loaded, 1);
        return sscanf(text->value, "fake %d %d", &d->graph, &d->engine) == 2 ? 0 : 1003;
    }
    d->graph  = from->graph;
    d->engine = from->engine;
    count(&fake.compiled, 1);
    return 0;
}

int cudnnBackendFinalize(tni_dnndesc d)
{
    int e = d->final ? BAD : 0;
    if (fake.fails == d->kind) return fake.status;
    if (d->kind == TNI_DNN_TENSOR &&
        (number(d, TNI_DNN_TENSOR_ID) < 1 || !find(d, TNI_DNN_TENSOR_DTYPE) ||
         !find(d, TNI_DNN_TENSOR_SIZES) || !find(d, TNI_DNN_TENSOR_STRIDES) ||
         number(d, TNI_DNN_TENSOR_ALIGN) != 16))
        e = BAD;
    if (!e && d->kind == TNI_DNN_GRAPH) e = finalize_graph(d);
    if (!e && d->kind == TNI_DNN_PLAN) e = finalize_plan(d);
    d->final = !e;
    return e;
}

// Engine i asks for i times 256 bytes of workspace.
int cudnnBackendGetAttribute(tni_dnndesc d, int name, int type, int64_t room, int64_t *count,
                             void *value)
{
    char text[64];
    if (d->kind == TNI_DNN_HEURISTIC && name == TNI_DNN_HEURISTIC_RESULTS && d->final) {
        bool fast = number(d, TNI_DNN_HEURISTIC_MODE) == TNI_DNN_HEURISTIC_A;
        *count    = fast ? fake.engines : 0;
        for (int64_t i = 0; i < room && i < *count; i++) {
            tni_dnndesc c = ((tni_dnndesc *)value)[i];
            c->graph      = desc(d, TNI_DNN_HEURISTIC_GRAPH)->graph;
            c->engine     = (int)i;
        }
        return 0;
    }
    if (name == TNI_DNN_CONFIG_ENGINE) {
        (*(tni_dnndesc *)value)->engine = d->engine;
        return 0;
    }
    if (name == TNI_DNN_ENGINE_NOTES) {
        *count = 0;
        for (int i = 0; i < 32 && d->engine < FAKE_NOTED; i++)
            if (fake.notes[d->engine] >> i & 1) ((int *)value)[(*count)++] = i;
        return 0;
    }
    if (name == TNI_DNN_ENGINE_BEHAVIOR) {
        *count        = fake.compiles >> d->engine & 1;
        *(int *)value = TNI_DNN_BEHAVIOR_COMPILES;
        return 0;
    }
    if (name == TNI_DNN_CONFIG_WORKSPACE || name == TNI_DNN_PLAN_WORKSPACE) {
        *(int64_t *)value = d->engine * (fake.workspace ? fake.workspace : 256);
        return 0;
    }
    if (name != TNI_DNN_PLAN_JSON || type != TNI_DNN_TYPE_CHAR || !d->final) return BAD;
    snprintf(text, sizeof text, "fake %d %d", d->graph, d->engine);
    *count = (int64_t)strlen(text) + 1;
    if (room >= *count) memcpy(value, text, (size_t)*count);
    return 0;
}

// ---- running -----------------------------------------------------------------------------------

// Where the elements of each tensor are, by id.
typedef struct {
    void *at[MOST_TENSORS + 1];
    bool  own[MOST_TENSORS + 1];
} memory;

static int64_t span(const tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < RANK; i++) n += (t->size[i] - 1) * t->stride[i];
    return n;
}

static void *at(memory *m, const tensor *t)
{
    if (!m->at[t->id] && t->between) {
        m->at[t->id]  = calloc((size_t)span(t), 8);
        m->own[t->id] = true;
    }
    return m->at[t->id];
}

// The element of a tensor at an index of another: repeated along axes of size 1, and for groups of
// heads.
static int64_t place(const tensor *t, const int64_t i[RANK], const int64_t of[RANK])
{
    int64_t n = 0;
    for (int k = 0; k < t->rank; k++)
        n += (t->size[k] == of[k] ? i[k] : k == 1 ? i[k] / (of[k] / t->size[k]) : 0) * t->stride[k];
    return n;
}

static double read(memory *m, const tensor *t, int64_t n)
{
    return t->number ? *(float *)at(m, t) : host_get(t->dtype, at(m, t), n);
}

static void write(memory *m, const tensor *t, int64_t n, double v)
{
    host_put(t->dtype, at(m, t), n, v, (int64_t)v);
}

// Steps an index through a shape; false behind its end.
static bool next(int64_t i[RANK], const int64_t size[RANK])
{
    for (int k = RANK - 1; k >= 0; k--) {
        if (++i[k] < size[k]) return true;
        i[k] = 0;
    }
    return false;
}

static double map(const op *o, double x, double b, double t, const int64_t i[RANK])
{
    switch (o->mode) {
    case TNI_DNN_ADD: return x + b;
    case TNI_DNN_MUL: return x * b;
    case TNI_DNN_DIV: return x / b;
    case TNI_DNN_SUB: return x - b;
    case TNI_DNN_MIN: return isnan(x) || x < b ? x : b;
    case TNI_DNN_MAX: return isnan(x) || x > b ? x : b;
    case TNI_DNN_RELU: return isnan(x) || x > 0 ? x : 0;
    case TNI_DNN_TANH: return tanh(x);
    case TNI_DNN_NEG: return -x;
    case TNI_DNN_RECIPROCAL: return 1 / x;
    case TNI_DNN_EXP: return exp(x);
    case TNI_DNN_LOG: return log(x);
    case TNI_DNN_GE: return x >= b;
    case TNI_DNN_LT: return x < b;
    case TNI_DNN_AND: return x != 0 && b != 0;
    case TNI_DNN_GEN_INDEX: return (double)i[o->axis];
    case TNI_DNN_SELECT: return t != 0 ? x : b;
    default: return x;
    }
}

static void run_map(memory *m, const op *o)
{
    int64_t i[RANK] = { 0 };
    do {
        double v[3] = { 0 };
        for (int k = 0; k < 3; k++)
            if (o->has[k]) v[k] = read(m, &o->x[k], place(&o->x[k], i, o->y.size));
        write(m, &o->y, place(&o->y, i, o->y.size), map(o, v[0], v[1], v[2], i));
    } while (next(i, o->y.size));
}

static void run_product(memory *m, const op *o)
{
    int64_t i[RANK] = { 0 }, depth = o->x[0].size[3];
    do {
        double sum = 0;
        for (int64_t k = 0; k < depth; k++) {
            int64_t a[RANK]  = { i[0], i[1], i[2], k },
                    na[RANK] = { o->y.size[0], o->y.size[1], o->y.size[2], depth };
            int64_t b[RANK]  = { i[0], i[1], k, i[3] },
                    nb[RANK] = { o->y.size[0], o->y.size[1], depth, o->y.size[3] };
            sum += read(m, &o->x[0], place(&o->x[0], a, na)) *
                   read(m, &o->x[1], place(&o->x[1], b, nb));
        }
        write(m, &o->y, place(&o->y, i, o->y.size), sum);
    } while (next(i, o->y.size));
}

// Elements of x that are at the same place of y are folded; the first comes at index 0 of the
// reduced axes.
static void run_reduction(memory *m, const op *o)
{
    int64_t i[RANK] = { 0 };
    do {
        bool first = true;
        for (int k = 0; k < RANK; k++) {
            int64_t group = o->x[0].size[k] / o->y.size[k];
            first         = first && (group == 1 || i[k] % group == 0);
        }
        int64_t j[RANK];
        for (int k = 0; k < RANK; k++) j[k] = i[k] / (o->x[0].size[k] / o->y.size[k]);
        double  v = read(m, &o->x[0], place(&o->x[0], i, o->x[0].size));
        int64_t n = place(&o->y, j, o->y.size);
        double  w = first ? v : read(m, &o->y, n);
        if (!first) w = o->mode == TNI_DNN_REDUCE_MAX ? fmax(w, v) : w + v;
        write(m, &o->y, n, w);
    } while (next(i, o->x[0].size));
}

// Which of a convolution's tensors are the image, the weights and the result's image.
static void conv_tensors(const op *o, const tensor *t[3])
{
    t[0] = o->kind == TNI_DNN_OP_CONV ? &o->x[0] : o->kind == TNI_DNN_OP_CONV_DX ? &o->y : &o->x[1];
    t[1] = o->kind == TNI_DNN_OP_CONV_DW ? &o->y : &o->x[1];
    t[2] = o->kind == TNI_DNN_OP_CONV ? &o->y : &o->x[0];
}

// The place in the image that a tap of the window at a place of the result meets; false: outside.
static bool meets(const op *o, const tensor *x, const int64_t y[RANK], const int64_t w[RANK],
                  int64_t at[RANK])
{
    for (int k = 2; k < x->rank; k++) {
        const int64_t(*v)[3] = o->window;
        at[k]                = y[k] * v[0][k - 2] - v[1][k - 2] + w[k] * v[2][k - 2];
        if (at[k] < 0 || at[k] >= x->size[k]) return false;
    }
    return true;
}

// Every pair of a place of the result and a weight adds one product to whichever tensor is
// computed. Sums are in double, one for each of its elements.
static void run_conv(memory *m, const op *o)
{
    const tensor *t[3];
    conv_tensors(o, t);
    int     out     = o->kind == TNI_DNN_OP_CONV ? 2 : o->kind == TNI_DNN_OP_CONV_DX ? 0 : 1;
    double *sum     = calloc((size_t)span(t[out]), sizeof *sum);
    int64_t y[RANK] = { 0 }, each = t[2]->size[1] / (t[0]->size[1] / t[1]->size[1]);
    do {
        int64_t w[RANK] = { 0 }, size[RANK], at[RANK] = { 0 };
        memcpy(size, t[1]->size, sizeof size);
        size[0] = 1;
        do {
            int64_t i[RANK];
            memcpy(i, w, sizeof i);
            i[0]  = y[1];
            at[0] = y[0];
            at[1] = y[1] / each * t[1]->size[1] + w[1];
            if (!meets(o, t[0], y, w, at)) continue;
            int64_t n[] = { place(t[0], at, t[0]->size), place(t[1], i, t[1]->size),
                            place(t[2], y, t[2]->size) };
            int     a = out == 0 ? 1 : 0, b = out == 2 ? 1 : 2;
            sum[n[out]] += read(m, t[a], n[a]) * read(m, t[b], n[b]);
        } while (next(w, size));
    } while (next(y, t[2]->size));
    int64_t i[RANK] = { 0 };
    do {
        int64_t n = place(t[out], i, t[out]->size);
        write(m, t[out], n, sum[n]);
    } while (next(i, t[out]->size));
    free(sum);
}

// The elements stay where they are, and are seen by other strides.
static void run_reshape(memory *m, const op *o)
{
    int64_t n = span(&o->y);
    for (int64_t i = 0; i < n && span(&o->x[0]) == n; i++) write(m, &o->y, i, read(m, &o->x[0], i));
}

static void run_graph(memory *m, const graph *g)
{
    for (int i = 0; i < g->ops; i++) {
        const op *o = &g->op[i];
        if (o->kind == TNI_DNN_OP_POINTWISE) run_map(m, o);
        else if (o->kind == TNI_DNN_OP_MATMUL) run_product(m, o);
        else if (o->kind == TNI_DNN_OP_REDUCTION) run_reduction(m, o);
        else if (is_conv(o->kind)) run_conv(m, o);
        else run_reshape(m, o);
    }
}

int cudnnBackendExecute(tni_dnnhandle h, tni_dnndesc plan, tni_dnndesc pack)
{
    memory           m  = { { 0 }, { 0 } };
    const attribute *id = find(pack, TNI_DNN_PACK_IDS), *to = find(pack, TNI_DNN_PACK_POINTERS);
    if ((void *)h != &fake || !plan->final || !pack->final || !id || !to ||
        id->count != to->count || !find(pack, TNI_DNN_PACK_WORKSPACE))
        return BAD;
    if (fake.no_run || plan->engine == fake.broken) return fake.status;
    for (int64_t i = 0; i < id->count; i++)
        m.at[((int64_t *)id->value)[i]] = ((void **)to->value)[i];
    run_graph(&m, graphs[plan->graph]);
    for (int i = 0; i <= MOST_TENSORS; i++)
        if (m.own[i]) free(m.at[i]);
    fake.runs++;
    fake.last = plan->engine;
    fake.milliseconds += plan->engine == fake.fastest ? 0.5 : 1;
    return 0;
}
