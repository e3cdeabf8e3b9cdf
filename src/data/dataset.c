// Datasets: making, asking, settings, splitting, the cursor.
//
// A dataset is a source of items, a selection of them, an order and a position. What a batch
// contains follows from the cursor (seed, epoch, index), the batch size and the settings alone: not
// from threads, from what was prepared ahead or from other datasets. So a program resumes exactly
// by saving the cursor. Every change of settings first discards the batches that were prepared
// under the old ones.
#include "data/dataset.h"
#include "data/pixels.h"

#include <string.h>

// ---- making and freeing ------------------------------------------------------------------------

tn_array tni_field(tn_dtype dt, int rank, const int64_t *size)
{
    tn_array a = { .dtype = dt, .rank = rank };
    for (int i = 0; i < rank; i++) a.size[i] = size[i];
    return a;
}

// The last dataset of a source frees it.
static void source_unref(tni_heap *h, tni_item_source *s)
{
    if (--s->refs <= 0) s->free(h, s);
}

// The loader is closed first: its thread reads the source.
static void free_data(tni_owned *t)
{
    tn_data  *d = (tn_data *)t;
    tni_heap *h = &t->cx->heap;
    tni_loader_close(h, &d->loader);
    source_unref(h, d->source);
    tni_free(h, d->items);
    tni_free(h, d->scratch);
    tni_free(h, d);
}

void tn_data_free(tn_data *d)
{
    if (!d || !tni_owned_ok("data_free", d, TNI_DATA)) return;
    tni_owned_remove(&d->owned);
    free_data(&d->owned);
}

// Makes a dataset of count items of a source, of which it takes a reference. It takes items over,
// and nothing at all on failure.
static tn_data *new_data(tn_ctx *cx, tni_item_source *s, int64_t *items, int64_t count)
{
    tn_data *d = tni_zalloc(&cx->heap, sizeof *d);
    if (!d) return NULL;
    s->refs++;
    d->source = s;
    memcpy(d->field, s->field, sizeof d->field);
    d->items    = items;
    d->count    = count;
    d->shuffled = true;
    d->ranks    = 1;
    d->at.seed  = cx->seed;
    tni_loader_open(&d->loader);
    tni_owned_add(cx, &d->owned, TNI_DATA, free_data);
    return d;
}

// Checks what a reader or a user says about the items, before anything is allocated for them.
static bool source_ok(tn_ctx *cx, const char *op, const tni_item_source *s)
{
    if (s->count <= 0)
        return tni_refuse(cx, TN_EARG, "%s: a dataset of %lld items", op, (long long)s->count);
    if (s->fields < 1 || s->fields > TN_MAX_FIELDS)
        return tni_refuse(cx, TN_EARG, "%s: %d fields are not in 1 .. %d", op, s->fields,
                          TN_MAX_FIELDS);
    for (int f = 0; f < s->fields; f++) {
        const tn_array *a = &s->field[f];
        if (!tni_dtype_ok(a->dtype))
            return tni_refuse(cx, TN_EDTYPE, "%s: %d is not a dtype", op, (int)a->dtype);
        if (!tni_shape_ok(cx, op, a->rank, a->size)) return false;
        if (a->rank == TN_MAX_RANK)
            return tni_refuse(cx, TN_ESHAPE, "%s: no rank is left for the batch with items of %s",
                              op, tni_shape_text(a->rank, a->size).s);
    }
    return true;
}

// Every reader ends here, so a source is checked, owned and freed in one place.
tn_data *tni_data_make(tn_ctx *cx, const char *op, tni_item_source *s)
{
    tn_data *d = NULL;
    s->refs    = 0;
    if (source_ok(cx, op, s)) {
        d = new_data(cx, s, NULL, s->count);
        if (!d) tni_fail_memory(cx, op);
    }
    if (!d) s->free(&cx->heap, s);
    return d;
}

// ---- asking ------------------------------------------------------------------------------------

// A dataset of NULL has no items and no fields.
tn_data_desc tn_data_info(const tn_data *d)
{
    if (!d) return (tn_data_desc){ 0 };
    tn_data_desc info = { .count   = d->count,
                          .fields  = d->source->fields,
                          .classes = d->source->classes,
                          .skipped = d->source->skipped };
    memcpy(info.field, d->field, sizeof info.field);
    return info;
}

int64_t tn_data_count(const tn_data *d)
{
    return d ? d->count : 0;
}

// With drop_last, a short last batch does not count.
int64_t tn_data_batches(const tn_data *d, int64_t n)
{
    if (!d || n <= 0) return 0;
    int64_t rest = d->count % n;
    return d->count / n + (!d->drop_last && rest && rest >= d->ranks);
}

const char *tn_data_schema(const tn_data *d)
{
    return d && d->source->schema ? d->source->schema : "";
}

const char *tn_data_class_name(const tn_data *d, int64_t i)
{
    if (!d || !d->source->class_names || i < 0 || i >= d->source->classes) return NULL;
    return d->source->class_names[i];
}

// A split dataset has an own list of items, and a source may have left rows out: both are looked
// through.
int64_t tn_data_row(const tn_data *d, int64_t i)
{
    if (!d || i < 0 || i >= d->count) return -1;
    int64_t item = d->items ? d->items[i] : i;
    return d->source->row_of ? d->source->row_of[item] : item;
}

// ---- settings: what was made ready by the old ones is thrown away ------------------------------

// Batches that were prepared in the old order are discarded.
tn_status tn_data_shuffle(tn_data *d, bool on, uint64_t seed)
{
    if (!tni_owned_ok("data_shuffle", d, TNI_DATA)) return tni_failed();
    tni_loader_cancel(&d->loader);
    d->shuffled = on;
    if (on) d->at.seed = seed;
    return TN_OK;
}

tn_status tn_data_drop_last(tn_data *d, bool on)
{
    if (!tni_owned_ok("data_drop_last", d, TNI_DATA)) return tni_failed();
    tni_loader_cancel(&d->loader);
    d->drop_last = on;
    return TN_OK;
}

// The cursor stays where it is, since it counts the items of all ranks.
tn_status tn_data_shard(tn_data *d, int rank, int size)
{
    tn_ctx *cx = tni_owned_ok("data_shard", d, TNI_DATA);
    if (!cx) return tni_failed();
    if (size < 1 || rank < 0 || rank >= size)
        return tni_fail_status(cx, TN_EARG, "data_shard: rank %d of %d", rank, size);
    tni_loader_cancel(&d->loader);
    d->rank  = rank;
    d->ranks = size;
    return TN_OK;
}

// The numbers of the options that have a range: 0 .. most.
static tn_status amounts_ok(tn_ctx *cx, const tn_augment_opts *o)
{
    const struct {
        const char *name;
        double      v, most;
    } amounts[] = { { "area", o->area, 1 },           { "brightness", o->brightness, 1e3 },
                    { "contrast", o->contrast, 1e3 }, { "saturation", o->saturation, 1e3 },
                    { "hue", o->hue, 0.5 },           { "mixup", o->mixup, 1 } };
    for (size_t i = 0; i < sizeof amounts / sizeof *amounts; i++)
        if (!(amounts[i].v >= 0 && amounts[i].v <= amounts[i].most))
            return tni_fail_status(cx, TN_EARG, "data_augment: %s %g is not in 0 .. %g",
                                   amounts[i].name, amounts[i].v, amounts[i].most);
    return TN_OK;
}

// Only images of f32 can be augmented, and by no more than their size.
static tn_status augment_ok(tn_data *d, const tn_augment_opts *o)
{
    tn_ctx         *cx = d->owned.cx;
    const tn_array *x = &d->source->field[0], *y = &d->source->field[1];
    int             most = o->shift > o->crop ? o->shift : o->crop;
    if (o->shift < 0 || o->crop < 0)
        return tni_fail_status(cx, TN_EARG, "data_augment: a negative number of pixels");
    if (x->rank != 3 || x->dtype != TN_F32)
        return tni_fail_status(cx, TN_ESHAPE,
                               "data_augment: x is %s of %s an item; images are (C, H, W) of f32",
                               tni_shape_text(x->rank, x->size).s, tn_dtype_name(x->dtype));
    if (o->resized_crop && !d->source->get_drawn)
        return tni_fail_status(cx, TN_EARG,
                               "data_augment: only pictures of tn_images have a resized crop");
    if (tni_jitters(o) && x->size[0] != 1 && x->size[0] != 3)
        return tni_fail_status(cx, TN_ESHAPE,
                               "data_augment: images of %lld channels have no colours",
                               (long long)x->size[0]);
    if (o->mixup > 0 && (d->source->classes < 1 || y->dtype != TN_I64 || y->rank != 0))
        return tni_fail_status(cx, TN_EARG, "data_augment: only images with classes can be mixed");
    if (most > x->size[1] || most > x->size[2])
        return tni_fail_status(cx, TN_EARG, "data_augment: %d pixels are more than images %s have",
                               most, tni_shape_text(x->rank, x->size).s);
    return amounts_ok(cx, o);
}

// The images for moving and mixing pixels are allocated here, once: the loader's threads must not
// allocate.
tn_status tn_data_augment(tn_data *d, tn_augment_opts o)
{
    tn_ctx *cx = tni_owned_ok("data_augment", d, TNI_DATA);
    if (!cx || augment_ok(d, &o) != TN_OK) return tni_failed();
    float                 *scratch = NULL;
    const tni_item_source *s       = d->source;
    if (o.shift || o.crop || o.mixup > 0 || (o.flip && !s->get_drawn)) {
        int64_t image = tni_shape_count(3, s->field[0].size), n = s->threads > 1 ? s->threads : 1;
        int64_t row = image > s->classes ? image : s->classes;
        scratch     = tni_alloc(&cx->heap, (size_t)(n * image + row) * sizeof *scratch);
        if (!scratch) return tni_fail_memory(cx, "data_augment"), tni_failed();
    }
    tni_loader_cancel(&d->loader);
    tni_free(&cx->heap, d->scratch);
    d->scratch  = scratch;
    d->augment  = o;
    d->field[1] = o.mixup > 0 ? tni_field(TN_F32, TN_SHAPE(s->classes)) : s->field[1];
    return TN_OK;
}

// ---- splitting ---------------------------------------------------------------------------------

// The order is drawn by the split's own seed, so that the same fraction and seed give the same
// items whatever else was drawn.
tni_data_split tni_data_split_of(int64_t count, double fraction, uint64_t seed)
{
    int64_t take = (int64_t)(fraction * (double)count + 0.5);
    return (tni_data_split){ .order = tni_order_by(tni_draw_by(TNI_DRAW_SPLIT, seed, 0, 0), count),
                             .take  = take < count ? take : 0 };
}

// Items that the split takes go to `out`, the others to `rest`; both keep their order.
static void deal_items(const tn_data *d, const tni_data_split *split, int64_t *out, int64_t *rest)
{
    for (int64_t i = 0; i < d->count; i++) {
        int64_t item = d->items ? d->items[i] : i;
        if (tni_split_takes(split, i)) *out++ = item;
        else *rest++ = item;
    }
}

// Both lists are allocated before either dataset changes. The old dataset starts its epoch again,
// since its order is another one now.
tn_data *tn_data_split(tn_data *d, double fraction, uint64_t seed)
{
    tn_ctx *cx = tni_owned_ok("data_split", d, TNI_DATA);
    if (!cx) return NULL;
    if (!(fraction > 0 && fraction < 1))
        return tni_fail(cx, TN_EARG, "data_split: %g is not between 0 and 1", fraction);
    if ((uint64_t)d->count > PTRDIFF_MAX / sizeof *d->items)
        return tni_fail_memory(cx, "data_split");
    tni_data_split split = tni_data_split_of(d->count, fraction, seed);
    int64_t        take  = split.take;
    if (take == 0)
        return tni_fail(cx, TN_EARG, "data_split: %g of %lld items leaves one side empty", fraction,
                        (long long)d->count);
    int64_t *out  = tni_alloc(&cx->heap, (size_t)take * sizeof *out);
    int64_t *rest = tni_alloc(&cx->heap, (size_t)(d->count - take) * sizeof *rest);
    tn_data *part = out && rest ? new_data(cx, d->source, out, take) : NULL;
    if (!part) {
        tni_free(&cx->heap, out);
        tni_free(&cx->heap, rest);
        return tni_fail_memory(cx, "data_split");
    }
    tni_loader_cancel(&d->loader);
    deal_items(d, &split, out, rest);
    tni_free(&cx->heap, d->items);
    d->items = rest;
    d->count -= take;
    d->at.epoch = d->at.index = 0;
    return part;
}

// ---- the cursor --------------------------------------------------------------------------------

tn_cursor tn_data_cursor(const tn_data *d)
{
    return d ? d->at : (tn_cursor){ 0 };
}

// No program trains that long, and epochs can be counted on from there without overflow.
static const int64_t LAST_EPOCH = INT64_MAX / 2;

// A cursor outside the dataset comes from another dataset; it is refused rather than wrapped.
tn_status tn_data_seek(tn_data *d, tn_cursor c)
{
    tn_ctx *cx = tni_owned_ok("data_seek", d, TNI_DATA);
    if (!cx) return tni_failed();
    if (c.epoch < 0 || c.epoch > LAST_EPOCH || c.index < 0 || c.index >= d->count)
        return tni_fail_status(cx, TN_EARG, "data_seek: epoch %lld, item %lld of %lld",
                               (long long)c.epoch, (long long)c.index, (long long)d->count);
    tni_loader_cancel(&d->loader);
    d->at = c;
    return TN_OK;
}

tn_status tn_data_rewind(tn_data *d)
{
    if (!tni_owned_ok("data_rewind", d, TNI_DATA)) return tni_failed();
    tni_loader_cancel(&d->loader);
    d->at.epoch = d->at.index = 0;
    return TN_OK;
}
