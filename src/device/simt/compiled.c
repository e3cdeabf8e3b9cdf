// What a device with work groups has compiled.
#include "device/simt/compiled.h"

#include "base/hash.h"
#include "device/simt/group_text.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MARKS = TNI_AXES + TNI_MOST_ACCESS * (TNI_AXES + 2), SLOTS = 1024, KEPT = 4 };

// All that a shape depends on besides the kernel, as numbers: sizes, strides, and how places are
// aligned. Equal marks, equal shape.
typedef struct {
    int     count;
    int64_t mark[MARKS];
} marks;

// The shape of a launch, with its marks.
typedef struct {
    tni_simt shape;
    int      count;
    int64_t  mark[];
} kept_shape;

// A generated kernel, found by its key as bytes, and what was compiled of it. Since most launches
// are like one of a step before, the shapes of a few are kept.
typedef struct entry entry;
struct entry {
    tni_kernel      kernel;
    char           *key;
    size_t          key_bytes;
    uint64_t        hash;
    bool            checks;  // it can fail on an index
    tni_variant    *variants;
    tni_simt_layout layout;  // of its words
    kept_shape     *kept[KEPT];
    int             oldest;  // of them
    entry          *next;
};

// A kernel of a text for one pair of dtypes, and its program, which other kernels of the text
// share.
typedef struct hand hand;
struct hand {
    const char *const *text;
    const char        *name;
    tn_dtype           x, y;
    void              *program, *function;
    hand              *next;
};

struct tni_compiled {
    tni_compiled_opts o;
    bool              no_double;
    pthread_mutex_t   lock;
    entry            *slot[SLOTS];
    hand             *hands;
};

tni_compiled *tni_compiled_new(const tni_compiled_opts *o)
{
    tni_compiled *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    t->o = *o;
    pthread_mutex_init(&t->lock, NULL);
    return t;
}

void tni_compiled_doubles(tni_compiled *t, bool has)
{
    t->no_double = !has;
}

bool tni_compiled_has_doubles(const tni_compiled *t)
{
    return !t->no_double;
}

static tn_status out_of_memory(const tni_compiled *t, tni_text *why)
{
    *why = (tni_text){ 0 };
    tni_text_add(why, "%s: out of memory for kernels", t->o.by->dialect->name);
    return TN_EMEM;
}

// A program of n kernels.
static void *build(tni_compiled *t, const char *source, const char *what, int n, tn_status *s,
                   tni_text *why)
{
    bool  found   = false;
    void *program = t->o.by->build(t->o.device, source, what, &found, s, why);
    if (program) atomic_fetch_add(found ? &t->o.counts->found : &t->o.counts->compiled, n);
    return program;
}

// ---- entries -----------------------------------------------------------------------------------

static bool has_checks(const tni_kernel *k)
{
    for (int i = 0; i < k->nins; i++)
        if (k->ins[i].code == TNI_I_CHECK) return true;
    return false;
}

static entry *new_entry(tni_compiled *t, const tni_kernel *k, uint64_t hash, char *key,
                        size_t bytes)
{
    entry *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    e->hash      = hash;
    e->key       = key;
    e->key_bytes = bytes;
    e->kernel    = *k;
    e->checks    = has_checks(k);
    tni_simt_layout_of(k, &e->layout);
    e->next               = t->slot[hash % SLOTS];
    t->slot[hash % SLOTS] = e;
    return e;
}

// The entry of a kernel, found or made; NULL when memory is out.
static entry *entry_of(tni_compiled *t, const tni_kernel *k)
{
    size_t bytes = tni_kernel_key(k, NULL, 0);
    char  *key   = malloc(bytes);
    if (!key) return NULL;
    tni_kernel_key(k, key, bytes);
    uint64_t hash = tni_hash(key, bytes);
    for (entry *e = t->slot[hash % SLOTS]; e; e = e->next) {
        if (e->hash != hash || e->key_bytes != bytes || memcmp(e->key, key, bytes)) continue;
        free(key);
        return e;
    }
    entry *e = new_entry(t, k, hash, key, bytes);
    if (!e) free(key);
    return e;
}

static tni_variant *variant_of(const entry *e, const tni_simt_class *c)
{
    for (tni_variant *v = e->variants; v; v = v->next)
        if (!memcmp(&v->class, c, sizeof *c)) return v;
    return NULL;
}

// ---- shapes ------------------------------------------------------------------------------------

static tni_simt lean_shape(const tni_compiled *t, const tni_launch *l)
{
    tni_simt_limits limits = t->o.limits;
    limits.lean            = true;
    return tni_simt_choose(l, &limits);
}

// The shape that is to be compiled for a launch: the lean one if the first is there and spills.
static tni_simt wanted_shape(const tni_compiled *t, const entry *e, const tni_launch *l)
{
    tni_simt           m = tni_simt_choose(l, &t->o.limits);
    const tni_variant *v = variant_of(e, &m.class);
    return v && v->registers.spilled ? lean_shape(t, l) : m;
}

// The shape of a launch: of those that were compiled the one that spills less.
static tni_simt choose_shape(const tni_compiled *t, const entry *e, const tni_launch *l)
{
    tni_simt           m = tni_simt_choose(l, &t->o.limits), lean;
    const tni_variant *v = variant_of(e, &m.class), *other;
    if (!v || !v->registers.spilled) return m;
    lean  = lean_shape(t, l);
    other = variant_of(e, &lean.class);
    return other && other->registers.spilled < v->registers.spilled ? lean : m;
}

bool tni_compiled_checks(const void *at)
{
    const entry *e = at;
    return e->checks;
}

// ---- compiling ---------------------------------------------------------------------------------

// Kernels that have to be compiled, as the items of one program.
typedef struct {
    int            n;
    entry        **of;
    tni_variant  **made;
    tni_emit_item *item;
    char (*name)[TNI_KERNEL_NAME];
} batch;

static bool batch_open(batch *b, int room)
{
    *b      = (batch){ 0 };
    b->of   = calloc((size_t)room, sizeof *b->of);
    b->made = calloc((size_t)room, sizeof *b->made);
    b->item = calloc((size_t)room, sizeof *b->item);
    b->name = calloc((size_t)room, sizeof *b->name);
    return b->of && b->made && b->item && b->name;
}

// What was not linked into an entry is freed.
static void batch_close(batch *b)
{
    for (int i = 0; b->made && i < b->n; i++) free(b->made[i]);
    free(b->of);
    free(b->made);
    free(b->item);
    free(b->name);
}

// Adds a kernel, unless it is there or compiled already. False when memory is out.
static bool batch_add(batch *b, entry *e, const tni_simt_class *c)
{
    if (variant_of(e, c)) return true;
    for (int i = 0; i < b->n; i++)
        if (b->of[i] == e && !memcmp(&b->made[i]->class, c, sizeof *c)) return true;
    tni_variant *v = calloc(1, sizeof *v);
    if (!v) return false;
    int i      = b->n++;
    v->class   = *c;
    v->layout  = &e->layout;
    b->made[i] = v;
    b->of[i]   = e;
    snprintf(b->name[i], sizeof b->name[i], "k%d", i);
    b->item[i] = (tni_emit_item){ .kernel = &e->kernel, .name = b->name[i], .opts = &v->class };
    return true;
}

static tn_status find_function(const tni_compiled *t, void *program, const char *name,
                               tni_variant *v, void **f, tni_text *why)
{
    const tni_compiler *by = t->o.by;
    tn_status           s  = by->function(t->o.device, program, name, f, why);
    if (s != TN_OK || !by->registers) return s;
    tni_registers r = by->registers(t->o.device, *f);
    if (v->registers.used < r.used) v->registers.used = r.used;
    if (v->registers.spilled < r.spilled) v->registers.spilled = r.spilled;
    return s;
}

static tn_status find_functions(const tni_compiled *t, void *program, batch *b, tni_text *why)
{
    tn_status s = TN_OK;
    for (int i = 0; s == TN_OK && i < b->n; i++) {
        char         finish[TNI_KERNEL_NAME + 8];
        tni_variant *v = b->made[i];
        s              = find_function(t, program, b->name[i], v, &v->main, why);
        if (s != TN_OK || v->class.finish != TNI_FINISH_KERNEL) continue;
        snprintf(finish, sizeof finish, "%s_finish", b->name[i]);
        s = find_function(t, program, finish, v, &v->finish, why);
    }
    return s;
}

static void forget_shapes(entry *e)
{
    for (int i = 0; i < KEPT; i++) {
        free(e->kept[i]);
        e->kept[i] = NULL;
    }
}

// The shape that was chosen before may be another now.
static void link_variants(batch *b)
{
    for (int i = 0; i < b->n; i++) {
        forget_shapes(b->of[i]);
        b->made[i]->next   = b->of[i]->variants;
        b->of[i]->variants = b->made[i];
        b->made[i]         = NULL;
    }
    b->n = 0;
}

// Compiles all of a batch in one program, and empties it.
static tn_status batch_compile(tni_compiled *t, batch *b, tni_text *why)
{
    tni_heap  heap = tni_heap_default();
    tn_status s    = TN_OK;
    if (!b->n) return TN_OK;
    char *text = tni_source(&heap, t->o.by->dialect, tni_emit_simt, b->n, b->item, t->no_double);
    if (!text) return out_of_memory(t, why);
    void *program = build(t, text, "kernel", b->n, &s, why);
    tni_free(&heap, text);
    if (program) s = find_functions(t, program, b, why);
    if (program && s == TN_OK) link_variants(b);
    return s;
}

static bool uses_double(const tni_kernel *k)
{
    for (int i = 0; i < k->nins; i++)
        if (k->ins[i].dtype == TN_F64) return true;
    return false;
}

static tn_status can_run(const tni_compiled *t, const tni_kernel *k, tni_text *why)
{
    const char *reason = "", *name = t->o.by->dialect->name;
    if (t->no_double && uses_double(k)) {
        tni_text_add(why, "the %s device has no f64", name);
        return TN_EDEVICE;
    }
    if (tni_can_emit(k, &reason)) return TN_OK;
    tni_text_add(why, "%s: a kernel cannot be written: %s", name, reason);
    return TN_EDEVICE;
}

static tn_status compile_all(tni_compiled *t, batch *b, int n, const tni_launch *const *first,
                             void **entries, tni_text *why)
{
    tn_status s = TN_OK;
    for (int i = 0; s == TN_OK && i < n; i++) {
        tni_simt shape = wanted_shape(t, entries[i], first[i]);
        if (!batch_add(b, entries[i], &shape.class)) return out_of_memory(t, why);
        if (b->n == t->o.batch) s = batch_compile(t, b, why);
    }
    return s == TN_OK ? batch_compile(t, b, why) : s;
}

// What spills is compiled once more, lean; without that it runs too.
static tn_status prepare(tni_compiled *t, batch *b, int n, const tni_launch *const *first,
                         void **out, tni_text *why)
{
    for (int i = 0; i < n; i++) {
        tn_status s = can_run(t, first[i]->kernel, why);
        if (s != TN_OK) return s;
        out[i] = entry_of(t, first[i]->kernel);
        if (!out[i]) return out_of_memory(t, why);
    }
    tni_text  ignored = { "" };
    tn_status s       = compile_all(t, b, n, first, out, why);
    if (s == TN_OK) compile_all(t, b, n, first, out, &ignored);
    return s;
}

tn_status tni_compiled_prepare(tni_compiled *t, int n, const tni_launch *const *first, void **out,
                               tni_text *why)
{
    batch     b;
    tn_status s;
    pthread_mutex_lock(&t->lock);
    if (batch_open(&b, n < t->o.batch ? n : t->o.batch)) s = prepare(t, &b, n, first, out, why);
    else s = out_of_memory(t, why);
    batch_close(&b);
    pthread_mutex_unlock(&t->lock);
    return s;
}

// ---- launching ---------------------------------------------------------------------------------

static void take_marks(const tni_launch *l, marks *m)
{
    const tni_kernel *k = l->kernel;
    int               n = k->np + k->nr, at = 0;
    for (int i = 0; i < n; i++) m->mark[at++] = l->size[i];
    for (int a = 0; a < k->naccess; a++) {
        int     b    = k->access[a].buffer;
        int64_t size = b < 0 ? 1 : (int64_t)tni_dtype_size((tn_dtype)k->buffer[b].dtype);
        int64_t base = b < 0 ? 0 : (int64_t)((uintptr_t)l->buffer[b] % 64);
        for (int i = 0; i < n; i++) m->mark[at++] = l->stride[a][i];
        m->mark[at++] = l->stride[a][TNI_AXES];
        m->mark[at++] = (base + l->offset[a] % 64 * size) % 64;
    }
    m->count = at;
}

// Keeps a shape in place of the oldest; where memory is out it is chosen again the next time.
static void keep_shape(entry *e, const tni_simt *shape, const marks *m)
{
    size_t      bytes = (size_t)m->count * sizeof *m->mark;
    kept_shape *k     = malloc(sizeof *k + bytes);
    if (!k) return;
    k->shape = *shape;
    k->count = m->count;
    memcpy(k->mark, m->mark, bytes);
    free(e->kept[e->oldest]);
    e->kept[e->oldest] = k;
    e->oldest          = (e->oldest + 1) % KEPT;
}

// The shape of a launch. The lock is held.
static tni_simt shape_of(const tni_compiled *t, entry *e, const tni_launch *l)
{
    marks now;
    take_marks(l, &now);
    for (int i = 0; i < KEPT; i++) {
        const kept_shape *k = e->kept[i];
        if (k && k->count == now.count &&
            !memcmp(now.mark, k->mark, (size_t)now.count * sizeof *now.mark))
            return k->shape;
    }
    tni_simt shape = choose_shape(t, e, l);
    keep_shape(e, &shape, &now);
    return shape;
}

size_t tni_compiled_room(tni_compiled *t, void *at, const tni_launch *l)
{
    if (!at) return (size_t)tni_simt_choose(l, &t->o.limits).scratch_bytes;
    pthread_mutex_lock(&t->lock);
    size_t bytes = (size_t)shape_of(t, at, l).scratch_bytes;
    pthread_mutex_unlock(&t->lock);
    return bytes;
}

tni_registers tni_compiled_registers(tni_compiled *t, void *at, const tni_launch *l)
{
    pthread_mutex_lock(&t->lock);
    tni_simt           m = choose_shape(t, at, l);
    const tni_variant *v = variant_of(at, &m.class);
    tni_registers      r = v ? v->registers : (tni_registers){ 0 };
    pthread_mutex_unlock(&t->lock);
    return r;
}

// A variant that is not there yet. The lock is held.
static tni_variant *make_variant(tni_compiled *t, entry *e, const tni_simt_class *c, tn_status *s,
                                 tni_text *why)
{
    batch b;
    if (batch_open(&b, 1) && batch_add(&b, e, c)) *s = batch_compile(t, &b, why);
    else *s = out_of_memory(t, why);
    batch_close(&b);
    return variant_of(e, c);
}

// A launch of a class that none before was of. If it spills, the lean one is tried.
static tni_variant *make_launch(tni_compiled *t, entry *e, const tni_launch *l, tni_simt *m,
                                tn_status *s, tni_text *why)
{
    tn_status    ignored;
    tni_text     reason = { "" };
    tni_variant *v      = make_variant(t, e, &m->class, s, why);
    if (!v || !v->registers.spilled || m->class.wide) return v;
    tni_simt lean = wanted_shape(t, e, l);
    make_variant(t, e, &lean.class, &ignored, &reason);
    *m = shape_of(t, e, l);
    return variant_of(e, &m->class);
}

const tni_variant *tni_compiled_take(tni_compiled *t, void *at, const tni_launch *l, bool wide,
                                     tni_simt *m, tn_status *s, tni_text *why)
{
    pthread_mutex_lock(&t->lock);
    *s = TN_OK;
    *m = shape_of(t, at, l);
    if (wide) m->class.wide = 1;
    tni_variant *v = variant_of(at, &m->class);
    if (!v) v = make_launch(t, at, l, m, s, why);
    pthread_mutex_unlock(&t->lock);
    return v;
}

// ---- kernels written by hand -------------------------------------------------------------------

static void *program_of(tni_compiled *t, const char *const *text, const char *name, tn_dtype x,
                        tn_dtype y, tn_status *s, tni_text *why)
{
    tni_heap heap = tni_heap_default();
    for (const hand *k = t->hands; k; k = k->next)
        if (k->text == text && k->x == x && k->y == y) return k->program;
    char *source = tni_hand_source(&heap, t->o.by->dialect, text, x, y, t->no_double);
    if (!source) {
        *s = out_of_memory(t, why);
        return NULL;
    }
    void *program = build(t, source, name, 1, s, why);
    tni_free(&heap, source);
    return program;
}

static void *make_hand(tni_compiled *t, const char *const *text, const char *name, tn_dtype x,
                       tn_dtype y, tn_status *s, tni_text *why)
{
    void *f = NULL, *program = program_of(t, text, name, x, y, s, why);
    if (!program) return NULL;
    hand *k = malloc(sizeof *k);
    *s      = k ? t->o.by->function(t->o.device, program, name, &f, why) : out_of_memory(t, why);
    if (*s != TN_OK) {
        free(k);
        return NULL;
    }
    *k       = (hand){ text, name, x, y, program, f, t->hands };
    t->hands = k;
    return f;
}

void *tni_compiled_hand(tni_compiled *t, const char *const *text, const char *name, tn_dtype x,
                        tn_dtype y, tn_status *s, tni_text *why)
{
    *s = TN_EDEVICE;
    if (t->no_double && (x == TN_F64 || y == TN_F64)) {
        tni_text_add(why, "%s: the %s device has no f64", name, t->o.by->dialect->name);
        return NULL;
    }
    pthread_mutex_lock(&t->lock);
    hand *k = t->hands;
    while (k && (k->text != text || k->x != x || k->y != y || strcmp(k->name, name))) k = k->next;
    *s      = TN_OK;
    void *f = k ? k->function : make_hand(t, text, name, x, y, s, why);
    pthread_mutex_unlock(&t->lock);
    return f;
}
