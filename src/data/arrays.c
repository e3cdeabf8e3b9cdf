// Datasets of what a program has: tensors, copied to host memory, and a function of its own.
#include "data/dataset.h"

#include <pthread.h>
#include <string.h>

// ---- arrays ------------------------------------------------------------------------------------

// Each field's items are stored one after the other in data[f].
typedef struct {
    tni_item_source source;                // first
    size_t          bytes[TN_MAX_FIELDS];  // of one item's
    char           *data[TN_MAX_FIELDS];
} arrays;

static int get_arrays(const tni_item_source *s, int64_t item, void *const *dst)
{
    const arrays *a = (const arrays *)s;
    for (int f = 0; f < s->fields; f++)
        memcpy(dst[f], a->data[f] + (size_t)item * a->bytes[f], a->bytes[f]);
    return 0;
}

static void free_arrays(tni_heap *h, tni_item_source *s)
{
    arrays *a = (arrays *)s;
    for (int f = 0; f < TN_MAX_FIELDS; f++) tni_free64(h, a->data[f]);
    tni_free(h, a);
}

// All fields must have as many items.
static bool arrays_ok(tn_ctx *cx, int n, tn_tensor *const *fields)
{
    if (n < 1 || n > TN_MAX_FIELDS || !fields)
        return tni_fail(cx, TN_EARG, "arrays: %d fields are not in 1 .. %d", n, TN_MAX_FIELDS),
               false;
    tn_ctx *theirs = tni_args("arrays", n, fields, NULL);
    if (!theirs) return false;
    if (theirs != cx)
        return tni_fail(cx, TN_EARG, "arrays: the fields belong to another context"), false;
    for (int f = 0; f < n; f++) {
        if (tn_rank(fields[f]) < 1)
            return tni_fail(cx, TN_ESHAPE, "arrays: field %d has no axis of items", f), false;
        if (tn_size(fields[f], 0) != tn_size(fields[0], 0))
            return tni_fail(cx, TN_ESHAPE, "arrays: field 0 is %s, field %d is %s: items differ",
                            tni_shape_of(fields[0]).s, f, tni_shape_of(fields[f]).s),
                   false;
    }
    return true;
}

// Copies one field to the host, where the loader's thread can read it. False, reported, on failure.
static bool take_field(tn_ctx *cx, arrays *a, int f, tn_tensor *t)
{
    tn_dtype dt        = tn_dtype_of(t);
    int64_t  count     = tn_count(t);
    a->source.field[f] = tni_field(dt, tn_rank(t) - 1, tni_sizes(t) + 1);
    a->bytes[f] = a->source.count ? (size_t)(count / a->source.count) * tni_dtype_size(dt) : 0;
    a->data[f]  = tni_alloc64(&cx->heap, (size_t)count * tni_dtype_size(dt));
    if (!a->data[f]) return tni_fail_memory(cx, "arrays"), false;
    return tn_read(t, dt, a->data[f], count) == TN_OK;
}

// Returns the number of classes of field 1: one more than its largest integer, or 0 if it is not a
// class.
static int64_t count_classes(const arrays *a)
{
    const tn_array *y       = &a->source.field[1];
    int64_t         largest = -1;
    if (a->source.fields < 2 || y->rank || !tni_is_int(y->dtype)) return 0;
    for (int64_t i = 0; i < a->source.count; i++) {
        int64_t v = tni_integer_at(y->dtype, a->data[1], i);
        if (v < 0 || v == INT64_MAX) return 0;
        if (v > largest) largest = v;
    }
    return largest + 1;
}

// The tensors may change afterwards: the dataset has copies.
tn_data *tn_arrays(tn_ctx *cx, int n, tn_tensor *const *fields)
{
    if (!tni_ctx_ok(cx, "arrays") || !arrays_ok(cx, n, fields)) return NULL;
    arrays *a = tni_zalloc(&cx->heap, sizeof *a);
    if (!a) return tni_fail_memory(cx, "arrays");
    a->source = (tni_item_source){
        .count = tn_size(fields[0], 0), .fields = n, .get = get_arrays, .free = free_arrays
    };
    for (int f = 0; f < n; f++)
        if (!take_field(cx, a, f, fields[f])) return free_arrays(&cx->heap, &a->source), NULL;
    a->source.classes = count_classes(a);
    return tni_data_make(cx, "arrays", &a->source);
}

// ---- a user's function -------------------------------------------------------------------------

// Datasets split from one another have a thread each; the lock lets one of them in at a time, so
// that the user's function need not be reentrant.
typedef struct {
    tni_item_source source;  // first
    tn_dataset_def  def;
    char          **class_names;  // def.classes of them, or NULL
    pthread_mutex_t lock;
} callback;

static int get_callback(const tni_item_source *s, int64_t item, void *const *dst)
{
    callback *c = (callback *)s;  // const but for the lock
    pthread_mutex_lock(&c->lock);
    int code = c->def.get(c->def.user, item, dst);
    pthread_mutex_unlock(&c->lock);
    return code;
}

static void free_callback(tni_heap *h, tni_item_source *s)
{
    callback *c = (callback *)s;
    pthread_mutex_destroy(&c->lock);
    for (int64_t i = 0; c->class_names && i < c->def.classes; i++) tni_free(h, c->class_names[i]);
    tni_free(h, c->class_names);
    tni_free(h, c);
}

// Returns whether the number and names of classes agree with each other.
static bool classes_ok(tn_ctx *cx, const tn_dataset_def *def)
{
    if (def->classes < 0 || def->classes > INT32_MAX)
        return tni_refuse(cx, TN_EARG, "dataset: classes %lld is not in 0 .. %d",
                          (long long)def->classes, INT32_MAX);
    if (def->classes && def->fields < 2)
        return tni_refuse(cx, TN_EARG, "dataset: there are %lld classes, but no y",
                          (long long)def->classes);
    if (def->class_names && !def->classes)
        return tni_refuse(cx, TN_EARG, "dataset: class_names has names, but classes is 0");
    for (int64_t i = 0; def->class_names && i < def->classes; i++)
        if (!def->class_names[i])
            return tni_refuse(cx, TN_EARG, "dataset: the name of class %lld is NULL", (long long)i);
    return true;
}

// Copies the names of the classes; on failure, those already copied are freed with c.
static bool copy_names(tni_heap *h, callback *c)
{
    if (!c->def.class_names) return true;
    c->class_names = tni_zalloc(h, (size_t)c->def.classes * sizeof *c->class_names);
    for (int64_t i = 0; c->class_names && i < c->def.classes; i++)
        if (!(c->class_names[i] = tni_strdup(h, c->def.class_names[i]))) return false;
    return c->class_names != NULL;
}

// The user's function and pointer are kept as they are; everything else is copied.
tn_data *tn_dataset(tn_ctx *cx, tn_dataset_def def)
{
    if (!tni_ctx_ok(cx, "dataset")) return NULL;
    if (!def.get) return tni_fail(cx, TN_EARG, "dataset: the function get is NULL");
    if (!classes_ok(cx, &def)) return NULL;
    callback *c = tni_zalloc(&cx->heap, sizeof *c);
    if (!c) return tni_fail_memory(cx, "dataset");
    c->def = def;
    pthread_mutex_init(&c->lock, NULL);
    if (!copy_names(&cx->heap, c)) {
        free_callback(&cx->heap, &c->source);
        return tni_fail_memory(cx, "dataset");
    }
    c->source = (tni_item_source){ .count       = def.count,
                                   .fields      = def.fields,
                                   .classes     = def.classes,
                                   .class_names = (const char *const *)c->class_names,
                                   .threaded    = true,
                                   .get         = get_callback,
                                   .free        = free_callback };
    memcpy(c->source.field, def.field, sizeof def.field);
    return tni_data_make(cx, "dataset", &c->source);
}
