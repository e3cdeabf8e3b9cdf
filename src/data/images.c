// Folders of pictures: a folder for each class, with JPEG and PNG files in it.
//
// Files are listed when the folder is opened, and read when they are needed, by several threads.
// One that cannot be read is noted with the reason, and the loader puts the next item of its order
// in its place.
//
// C channels, H rows, W columns
#include "data/content.h"
#include "data/dataset.h"
#include "data/picture.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { DEFAULT_SIZE = 224, NOTES = 64 };

// A reader that no thread uses at the moment.
typedef struct idle idle;
struct idle {
    tni_picture_reader reader;
    idle              *next;
};

// A folder of pictures. Names of files are texts one after the other in `names`; file i of class
// label[i] has the one at at[i]. What is behind the lock is used by loader threads.
typedef struct {
    tni_item_source source;
    char           *dir, *names;
    char          **classes;
    size_t          names_bytes, names_room, at_room, label_room, classes_room;
    size_t         *at;
    int64_t        *label;
    int64_t         size, resize, most_pixels;
    int             channels;

    pid_t           process;  // that lock and readers are of
    pthread_mutex_t lock;
    idle           *free;
    unsigned char  *bad;  // of each item: it could not be read
    int             notes;
    int64_t         noted[NOTES];  // the first of these
    char           *note[NOTES];   // "PATH: why" of each
} folder;

// The child of a fork has no loader threads, but what they held at that moment stays held there: it
// begins with a new lock and new readers.
static void enter(tni_item_source *s)
{
    folder *f = (folder *)s;
    if (f->process == getpid()) return;
    pthread_mutex_init(&f->lock, NULL);
    f->free    = NULL;
    f->process = getpid();
}

// ---- reading -----------------------------------------------------------------------------------

// A reader for this thread: one that is idle, or a new one, so that there are as many as threads
// that read at once. They keep their memory and decoder for the next picture. NULL if memory is
// out.
static idle *take_reader(folder *f)
{
    pthread_mutex_lock(&f->lock);
    idle *r = f->free;
    if (r) f->free = r->next;
    pthread_mutex_unlock(&f->lock);
    return r ? r : calloc(1, sizeof *r);
}

// Gives a reader back when its picture is read.
static void return_reader(folder *f, idle *r)
{
    pthread_mutex_lock(&f->lock);
    r->next = f->free;
    f->free = r;
    pthread_mutex_unlock(&f->lock);
}

// Notes that an item could not be read. It is counted once, however often it is tried again in
// later epochs; its text is kept if there is room. A text that cannot be allocated is left out: the
// count is what matters.
static void note_bad(folder *f, int64_t item, const char *path, const char *why)
{
    pthread_mutex_lock(&f->lock);
    if (!f->bad[item]) {
        f->bad[item] = 1;
        f->source.skipped++;
        size_t n = strlen(path) + strlen(why) + 3;
        char  *s = f->notes < NOTES ? malloc(n) : NULL;
        if (s) snprintf(s, n, "%s: %s", path, why);
        if (s) f->noted[f->notes] = item, f->note[f->notes++] = s;
    }
    pthread_mutex_unlock(&f->lock);
}

// A random part, as torchvision's RandomResizedCrop draws it: of `scale` .. 1 of the area, with
// sides of 3 : 4 .. 4 : 3; after ten that do not fit, the middle.
static tni_picture_part random_part(int64_t W, int64_t H, double scale, int64_t size, tni_draw *r)
{
    tni_picture_part p = { .to_width = size, .to_height = size, .margin = 1 };
    for (int i = 0; i < 10; i++) {
        double  area  = (double)W * (double)H * (double)tni_draw_between(r, (float)scale, 1);
        double  ratio = exp((double)tni_draw_between(r, logf(3.0f / 4), logf(4.0f / 3)));
        int64_t w = llround(sqrt(area * ratio)), h = llround(sqrt(area / ratio));
        if (w < 1 || h < 1 || w > W || h > H) continue;
        p.x      = (double)tni_draw_below(r, (int)(W - w + 1));
        p.y      = (double)tni_draw_below(r, (int)(H - h + 1));
        p.width  = (double)w;
        p.height = (double)h;
        return p;
    }
    double w = fmin((double)W, (double)H * 4 / 3), h = fmin((double)H, (double)W * 4 / 3);
    p.x      = ((double)W - w) / 2;
    p.y      = ((double)H - h) / 2;
    p.width  = w;
    p.height = h;
    return p;
}

// Reads one file and writes a part of it: a random one, or the middle. The header is read first, so
// that a picture that is too large is refused before anything is decoded.
static bool read_item(const folder *f, tni_picture_reader *r, const char *path,
                      const tn_augment_opts *o, tni_draw *draw, float *to)
{
    int64_t W, H;
    if (!tni_picture_load(r, path) || !tni_picture_begin(r, r->file, r->bytes, f->most_pixels))
        return false;
    tni_picture_size(r, &W, &H);
    double           scale = o->area > 0 ? o->area : 0.08;
    tni_picture_part p     = o->resized_crop ? random_part(W, H, scale, f->size, draw)
                                             : tni_picture_middle(W, H, f->resize, f->size);
    p.flip                 = o->flip && tni_draw_below(draw, 2);
    return tni_picture_cut(r, &p, f->channels, to);
}

// The path of an item's file; false if it is too long for the system.
static bool path_of(const folder *f, int64_t item, char path[TNI_PATH])
{
    return snprintf(path, TNI_PATH, "%s/%s/%s", f->dir, f->classes[f->label[item]],
                    f->names + f->at[item]) < TNI_PATH;
}

// Runs on any of the loader's threads.
static int get_drawn(const tni_item_source *s, int64_t item, const tn_augment_opts *o,
                     tni_draw *draw, void *const *dst)
{
    folder *f              = (folder *)(uintptr_t)s;  // what changes in it is behind its lock
    char    path[TNI_PATH] = "";
    idle   *r              = take_reader(f);
    bool    ok = r && path_of(f, item, path) && read_item(f, &r->reader, path, o, draw, dst[0]);
    if (!ok) note_bad(f, item, path, r ? r->reader.why.s : "out of memory");
    if (r) return_reader(f, r);
    *(int64_t *)dst[1] = f->label[item];
    return !ok;
}

// For a loader that draws nothing: the middle of the picture.
static int get(const tni_item_source *s, int64_t item, void *const *dst)
{
    tn_augment_opts none = { 0 };
    tni_draw        draw = { 0 };
    return get_drawn(s, item, &none, &draw, dst);
}

// For the message of a batch that failed.
static const char *why(const tni_item_source *s, int64_t item)
{
    folder     *f    = (folder *)(uintptr_t)s;
    const char *text = "a picture could not be read";
    pthread_mutex_lock(&f->lock);
    for (int i = 0; i < f->notes; i++)
        if (f->noted[i] == item) text = f->note[i];
    pthread_mutex_unlock(&f->lock);
    return text;
}

// The last dataset of the folder is gone, and its threads with it.
static void free_folder(tni_heap *h, tni_item_source *s)
{
    folder *f = (folder *)s;
    for (idle *r = f->free, *next; r; r = next) {
        next = r->next;
        tni_picture_free(&r->reader);
        free(r);
    }
    for (int i = 0; i < f->notes; i++) free(f->note[i]);
    for (int64_t i = 0; i < s->classes; i++) tni_free(h, f->classes[i]);
    tni_free(h, f->classes);
    tni_free(h, f->dir);
    tni_free(h, f->names);
    tni_free(h, f->at);
    tni_free(h, f->label);
    tni_free(h, f->bad);
    pthread_mutex_destroy(&f->lock);
    tni_free(h, f);
}

// ---- listing -----------------------------------------------------------------------------------

// Folders and files whose names begin with a dot are those of other programs.
static int is_visible(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

// By the ending, since 1.3 million files of ImageNet take minutes to be opened; what a file is, is
// seen when it is read.
static int is_picture(const struct dirent *e)
{
    const char *dot = strrchr(e->d_name, '.');
    return is_visible(e) && dot &&
           (!strcasecmp(dot, ".jpg") || !strcasecmp(dot, ".jpeg") || !strcasecmp(dot, ".png"));
}

// By bytes: the order must not depend on the locale.
static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void free_entries(struct dirent **e, int n)
{
    for (int i = 0; i < n; i++) free(e[i]);
    free(e);
}

// Adds a file of the newest class. Names are in one block: a million of them as blocks of their own
// would take twice the memory.
static bool add_file(tn_ctx *cx, folder *f, const char *name)
{
    int64_t i = f->source.count;
    size_t  n = strlen(name) + 1;
    if (!tni_grow(&cx->heap, (void **)&f->names, &f->names_room, f->names_bytes + n, 1) ||
        !tni_grow(&cx->heap, (void **)&f->at, &f->at_room, (size_t)i + 1, sizeof *f->at) ||
        !tni_grow(&cx->heap, (void **)&f->label, &f->label_room, (size_t)i + 1, sizeof *f->label))
        return tni_no_memory(cx, "images");
    memcpy(f->names + f->names_bytes, name, n);
    f->at[i]    = f->names_bytes;
    f->label[i] = f->source.classes - 1;
    f->names_bytes += n;
    f->source.count++;
    return true;
}

// Adds a class and its files, if the folder has any.
static bool add_class(tn_ctx *cx, folder *f, const char *name)
{
    char            path[TNI_PATH];
    struct dirent **e = NULL;
    if (snprintf(path, sizeof path, "%s/%s", f->dir, name) >= TNI_PATH) return true;
    int  n  = scandir(path, &e, is_picture, by_name);  // -1 for what is no folder
    bool ok = n >= 0 || errno != ENOMEM || tni_no_memory(cx, "images");
    if (ok && n > 0) {
        int64_t i = f->source.classes;
        ok        = tni_grow(&cx->heap, (void **)&f->classes, &f->classes_room, (size_t)i + 1,
                             sizeof *f->classes) &&
             (f->classes[i] = tni_strdup(&cx->heap, name));
        f->source.classes += ok;
        if (!ok) tni_no_memory(cx, "images");
    }
    for (int i = 0; ok && i < n; i++) ok = add_file(cx, f, e[i]->d_name);
    free_entries(e, n);
    return ok;
}

// Lists the folders of classes and their files. What is no folder, or has no pictures, is no class,
// so that a file such as README.txt beside the folders does no harm.
static bool list_files(tn_ctx *cx, folder *f)
{
    struct dirent **e = NULL;
    int             n = scandir(f->dir, &e, is_visible, by_name);
    bool ok           = n >= 0 || tni_refuse(cx, TN_EIO, "images: %s: %s", f->dir, strerror(errno));
    for (int i = 0; ok && i < n; i++) ok = add_class(cx, f, e[i]->d_name);
    free_entries(e, n);
    if (ok && f->source.count == 0)
        ok = tni_refuse(
            cx, TN_EFORMAT,
            "images: %s has no folders of classes with .jpg, .jpeg or .png files in them", f->dir);
    f->bad = ok ? tni_zalloc(&cx->heap, (size_t)f->source.count) : NULL;
    return ok && (f->bad || tni_no_memory(cx, "images"));
}

// ---- opening -----------------------------------------------------------------------------------

// Where the options say nothing, what ImageNet's networks are evaluated with.
static void set_options(tn_ctx *cx, folder *f, const tn_image_opts *o)
{
    f->size        = o->size ? o->size : DEFAULT_SIZE;
    f->resize      = o->resize;
    f->channels    = o->channels ? o->channels : 3;
    f->most_pixels = o->most_pixels ? o->most_pixels : TNI_MOST_PIXELS;
    f->source      = (tni_item_source){ .fields    = 2,
                                        .field     = { tni_field(TN_F32,
                                                                 TN_SHAPE(f->channels, f->size, f->size)),
                                                       tni_field(TN_I64, TN_0D) },
                                        .threads   = o->threads ? o->threads : cx->engine->threads,
                                        .skips     = !o->strict,
                                        .get       = get,
                                        .get_drawn = get_drawn,
                                        .why       = why,
                                        .enter     = enter,
                                        .free      = free_folder };
}

tn_data *tn_images(tn_ctx *cx, const char *dir, tn_image_opts o)
{
    if (!tni_ctx_ok(cx, "images") || !tni_folder_ok(cx, "images", dir) ||
        !tni_image_opts_ok(cx, "images", &o))
        return NULL;
    folder *f = tni_zalloc(&cx->heap, sizeof *f);
    if (!f) return tni_fail_memory(cx, "images");
    set_options(cx, f, &o);
    enter(&f->source);
    f->dir = tni_strdup(&cx->heap, dir);
    if (f->dir ? list_files(cx, f) : tni_no_memory(cx, "images")) {
        f->source.class_names = (const char *const *)f->classes;
        return tni_data_make(cx, "images", &f->source);
    }
    free_folder(&cx->heap, &f->source);
    return NULL;
}

// The text stays as long as the dataset: notes are only added.
const char *tn_data_skipped(const tn_data *d, int64_t i)
{
    if (!d || d->source->get != get || i < 0 || i >= NOTES) return NULL;
    folder *f = (folder *)d->source;
    enter(d->source);
    pthread_mutex_lock(&f->lock);
    const char *text = i < f->notes ? f->note[i] : NULL;
    pthread_mutex_unlock(&f->lock);
    return text;
}
