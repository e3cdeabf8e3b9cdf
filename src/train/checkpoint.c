// Checkpoints: the training state in one safetensors file, so that every tool can look into it. A file is
// verified and read whole before the first value changes.
//
// The tensors of a file, where k counts networks, optimizers and datasets:
//
//   net.k.NAME            a parameter or buffer
//   opt.k.STATE.NAME      what the update rule remembers of a parameter: exp_avg, momentum_buffer, master ...
//   opt.k.grad.NAME       a gradient, if the parameter has one
//   opt.k.loss_scale.X    scale, since and skipped of loss scaling
//   opt.k.settings        f64: learning rate, betas and so on, in the order of numbers.c
//   opt.k.counts          i64: updates, accumulated steps, schedule, and a fingerprint of the parameters
//   opt.k.groups          f64: learning-rate scale and weight decay of each parameter
//   opt.k.updates         i64: updates of each parameter
//   data.k                i64: seed, epoch and index of the cursor, and the number of items
//   user                  u8: the caller's bytes
//
// The metadata has the format's name and version, the step, the state of the random numbers, the kind of each
// optimizer, and a checksum of everything else: of each tensor its name, dtype, shape and bytes, and of each
// other entry of the metadata.
#include "train/checksum.h"
#include "train/restore.h"
#include "train/snapshot.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT  "tenon.checkpoint"
#define VERSION "1"

// ---- metadata ----------------------------------------------------------------------------------

enum { ENTRIES = 6 + TN_MAX_CHECKPOINT, KEY = 16 };  // six of their own, and a kind per optimizer

// Pairs of key and value, as tn_file_write takes them. pair points into key and text, which the struct
// owns, so it must not be copied.
typedef struct {
    int         n;
    char        key[ENTRIES][KEY], text[ENTRIES][32];
    const char *pair[2 * ENTRIES];
} metadata;

// Writes the metadata key under which the kind of optimizer k is stored.
static void kind_key(char key[KEY], int k)
{
    snprintf(key, KEY, "opt.%d", k);
}

// Appends an entry. Invariant: callers add at most ENTRIES of them, each shorter than its array.
static void add_text(metadata *m, const char *key, const char *text)
{
    snprintf(m->key[m->n], sizeof *m->key, "%s", key);
    snprintf(m->text[m->n], sizeof *m->text, "%s", text);
    m->pair[2 * m->n]     = m->key[m->n];
    m->pair[2 * m->n + 1] = m->text[m->n];
    m->n++;
}

static void add_u64(metadata *m, const char *key, uint64_t v)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)v);
    add_text(m, key, text);
}

// Lists what a file says about itself: what it is, its scalars, and the kind of each optimizer, so that
// a state of Adam is never loaded into SGD.
static void describe_snapshot(const tni_snapshot *s, metadata *m)
{
    char key[KEY];
    add_text(m, "format", FORMAT);
    add_text(m, "version", VERSION);
    add_u64(m, "step", (uint64_t)s->step);
    add_u64(m, "seed", s->seed);
    add_u64(m, "counter", s->counter);
    for (int k = 0; k < TN_MAX_CHECKPOINT; k++) {
        if (!s->c->opt[k]) continue;
        kind_key(key, k);
        add_text(m, key, s->c->opt[k]->rule->name);
    }
}

// ---- saving ------------------------------------------------------------------------------------

// Writes all pieces that have a value. The checksum is summed on the way and added last, because it
// covers every other entry.
static bool write_pieces(tni_snapshot *s, const char **name, tn_tensor **t)
{
    metadata m = { 0 };
    char     text[TNI_SUM_TEXT];
    uint64_t sum = 0;
    int      n   = 0;
    describe_snapshot(s, &m);
    for (int i = 0; i < m.n; i++) tni_sum_entry(m.key[i], m.text[i], &sum);
    for (size_t i = 0; i < s->pieces; i++) {
        const tni_piece *p = &s->piece[i];
        if (!p->value) continue;
        if (!tni_sum_tensor(s->op, p->name, p->value, &sum)) return false;
        name[n] = p->name;
        t[n++]  = p->value;
    }
    tni_sum_text(sum, text);
    add_text(&m, TNI_SUM_KEY, text);
    return tn_file_write(s->cx, s->path, n, name, t, m.n, m.pair) == TN_OK;
}

// Saves a snapshot. The two lists are allocated for all pieces, though those without a value are left
// out of the file.
static bool save_snapshot(tni_snapshot *s)
{
    tni_heap    *h    = &s->cx->heap;
    const char **name = tni_alloc(h, s->pieces * sizeof *name);
    tn_tensor  **t    = tni_alloc(h, s->pieces * sizeof *t);
    bool         ok   = name && t;
    if (!ok) tni_fail_memory(s->cx, s->op);
    ok = ok && tni_snapshot_take(s) && write_pieces(s, name, t);
    tni_free(h, name);
    tni_free(h, t);
    return ok;
}

// ---- loading -----------------------------------------------------------------------------------

// Reports that the file cannot be used, and why.
static bool fail_damaged(const tni_snapshot *s, const char *why)
{
    tni_fail(s->cx, TN_EFORMAT, "%s: %.200s: %s", s->op, s->path, why);
    return false;
}

// Reads an unsigned number of the file's metadata. Signs and blanks, which strtoull would accept, are
// refused.
static bool read_u64(const tni_snapshot *s, tn_file *f, const char *key, uint64_t *v)
{
    const char *text = tn_file_meta(f, key);
    char       *end;
    if (!text || *text < '0' || *text > '9')
        return fail_damaged(s, "a number of the metadata is none");
    errno = 0;
    *v    = strtoull(text, &end, 10);
    return (!*end && !errno) || fail_damaged(s, "a number of the metadata is none");
}

// Reads the scalars, after checking that the file is a checkpoint of this version at all.
static bool read_metadata(tni_snapshot *s, tn_file *f)
{
    uint64_t    step   = 0;
    const char *format = tn_file_meta(f, "format"), *version = tn_file_meta(f, "version");
    if (!format || strcmp(format, FORMAT) || !version)
        return fail_damaged(s, "it is not a checkpoint");
    if (strcmp(version, VERSION)) return fail_damaged(s, "it is a checkpoint of another version");
    if (!read_u64(s, f, "step", &step) || !read_u64(s, f, "seed", &s->seed) ||
        !read_u64(s, f, "counter", &s->counter))
        return false;
    s->step = (int64_t)step;
    return true;
}

// Returns whether the optimizers are of the kinds that were saved; reports the first that is not.
static bool kinds_fit(const tni_snapshot *s, tn_file *f)
{
    char key[KEY];
    for (int k = 0; k < TN_MAX_CHECKPOINT; k++) {
        if (!s->c->opt[k]) continue;
        kind_key(key, k);
        const char *kind = tn_file_meta(f, key), *here = s->c->opt[k]->rule->name;
        if (kind && !strcmp(kind, here)) continue;
        tni_fail(s->cx, TN_EFORMAT, "%s: %.200s: optimizer %d is %.32s in the file, but %s here",
                 s->op, s->path, k, kind ? kind : "none", here);
        return false;
    }
    return true;
}

// Compares the checksum in the metadata with that of the file's contents. It guards against damage, not
// against forgery.
static bool verify_checksum(const tni_snapshot *s, tn_file *f)
{
    char        text[TNI_SUM_TEXT];
    const char *checksum = tn_file_meta(f, TNI_SUM_KEY);
    uint64_t    sum      = 0;
    if (!tni_sum_file(s->op, f, &sum)) return false;
    tni_sum_text(sum, text);
    if (checksum && !strcmp(text, checksum)) return true;
    return fail_damaged(s, "it is damaged: its checksum does not agree");
}

// Finds for each piece its tensor in the file. Parameters, buffers and the optimizer's numbers must be
// there. A state or a gradient may be missing: the parameter had none when the file was written. The
// caller's bytes may be in the file without being asked for. A tensor that no piece has a name for is
// an error.
static bool match_pieces(tni_snapshot *s, tn_file *f)
{
    tni_misfits missing = { 0 }, unknown = { 0 };
    for (int k = 0; k < tn_file_count(f); k++) {
        const char *name = tn_file_name(f, k);
        size_t      i    = 0;
        while (i < s->pieces && strcmp(s->piece[i].name, name)) i++;
        if (i < s->pieces) s->piece[i].from = k;
        else tni_misfit(&unknown, name);
    }
    for (size_t i = 0; i < s->pieces; i++) {
        const tni_piece *p = &s->piece[i];
        bool must = p->kind == TNI_PIECE_VALUE || (p->kind == TNI_PIECE_NUMBERS && p->data);
        if (must && p->from < 0) tni_misfit(&missing, p->name);
    }
    return tni_names_fit(s->cx, s->op, s->path, &missing, &unknown, "") == TN_OK;
}

// Returns the tensor of the file for a piece, if it has the piece's dtype and shape; NULL, reported, if
// not. State and gradients of another float dtype are accepted, and cast by the caller: files of earlier
// versions keep the state of f16 and bf16 parameters in the parameter's dtype, and a program may have cast
// its parameters since the file was written.
static tn_tensor *open_fitting(const tni_snapshot *s, tn_file *f, const tni_piece *p)
{
    bool         numbers = p->kind == TNI_PIECE_NUMBERS;
    tni_view     v       = numbers ? tni_view_whole(1, &p->count) : tni_layout(p->t);
    tn_file_desc d       = tn_file_info(f, p->from);
    if (!tni_shape_fits(s->cx, s->op, s->path, &d, v.rank, v.size)) return NULL;
    tn_tensor *t = tn_file_tensor(f, p->name);
    if (!t || tn_dtype_of(t) == p->dtype) return t;
    bool cast = p->kind == TNI_PIECE_STATE || p->kind == TNI_PIECE_GRADIENT;
    if (cast && tni_is_float(tn_dtype_of(t))) return t;
    return tni_fail(s->cx, TN_EDTYPE, "%s: %.120s: %.60s is %s in the file, but %s here", s->op,
                    s->path, p->name, tn_dtype_name(tn_dtype_of(t)), tn_dtype_name(p->dtype));
}

// Returns zeros for a gradient that the training state has and the file has not.
static tn_tensor *zero_gradient(const tni_piece *p)
{
    tn_tensor *zeros = tn_zeros_like(p->t);
    return zeros && tn_eval_of(zeros) == TN_OK ? zeros : NULL;
}

// Makes the value of a piece ready, or reads its numbers into the snapshot. Nothing of the training
// state changes yet, except that a parameter whose gradient is in the file gets a handle for it, of
// zeros: creating it can fail, and putting the value must not.
static bool read_piece(tni_snapshot *s, tn_file *f, tni_piece *p)
{
    bool gradient = p->kind == TNI_PIECE_GRADIENT, numbers = p->kind == TNI_PIECE_NUMBERS;
    if ((numbers && !p->data) || p->unused) return true;
    if (p->from < 0 && !(gradient && tn_has_grad(p->t))) return true;
    if (p->kind == TNI_PIECE_VALUE && !tni_can_put(s->op, p->name, p->t)) return false;
    if (gradient && !tn_grad_of(p->t)) return false;  // makes its handle, of zeros
    tn_tensor *t = p->from >= 0 ? open_fitting(s, f, p) : zero_gradient(p);
    if (t && numbers) return tn_read(t, p->dtype, p->data, p->count) == TN_OK;
    p->value = p->from >= 0 ? tni_take_copy(s->op, t, p->dtype) : t;
    return p->value != NULL;
}

// Reads everything before anything is put; the file can be closed afterwards.
static bool read_pieces(tni_snapshot *s, tn_file *f)
{
    for (size_t i = 0; i < s->pieces; i++)
        if (!read_piece(s, f, &s->piece[i])) return false;
    return true;
}

// Finds the place of a parameter's new value, for tni_flats_gather.
static tn_tensor **value_of(void *user, const tn_tensor *t)
{
    tni_snapshot *s = user;
    for (size_t i = 0; i < s->pieces; i++)
        if (s->piece[i].kind == TNI_PIECE_VALUE && s->piece[i].t == t) return &s->piece[i].value;
    return NULL;
}

// Loads a file in an order that keeps the training state whole: everything that can fail (reading,
// checking, gathering values into flat blocks) comes first, and tni_snapshot_put, the last step,
// changes all or nothing.
static bool load_snapshot(tni_snapshot *s)
{
    tn_file *f = tn_file_open(s->cx, s->path);
    if (!f) return false;
    bool ok = read_metadata(s, f) && verify_checksum(s, f) && kinds_fit(s, f) &&
              match_pieces(s, f) && read_pieces(s, f) && tni_snapshot_fits(s) &&
              tni_flats_gather(s->cx, value_of, s) && tni_snapshot_put(s);
    tn_file_free(f);
    return ok;
}

// ---- the public calls --------------------------------------------------------------------------

// Runs save or load over a snapshot of c, in a scope of its own and without gradients.
static tn_status with_snapshot(tni_snapshot *s, bool (*f)(tni_snapshot *s))
{
    if (!tni_ctx_ok(s->cx, s->op)) return tni_failed();
    if (!s->path || !s->c)
        return tni_fail_status(s->cx, TN_EARG, "%s: the path or the checkpoint is NULL", s->op);
    tn_scope *scope = tn_begin(s->cx);
    if (!scope) return tni_failed();
    s->cx->grad_mode = false;
    bool ok          = tni_snapshot_open(s) && f(s);
    tni_scope_close(scope);
    tni_snapshot_close(s);
    return ok ? TN_OK : tni_failed();
}

tn_status tn_checkpoint_save(tn_ctx *cx, const char *path, const tn_checkpoint *c)
{
    tni_snapshot s = { .cx = cx, .op = "checkpoint_save", .path = path, .c = c };
    return with_snapshot(&s, save_snapshot);
}

// The caller's struct only changes if all of it was loaded.
tn_status tn_checkpoint_load(tn_ctx *cx, const char *path, tn_checkpoint *c)
{
    tni_snapshot s      = { .cx = cx, .op = "checkpoint_load", .path = path, .c = c };
    tn_status    status = with_snapshot(&s, load_snapshot);
    if (status == TN_OK) c->step = s.step;
    return status;
}
