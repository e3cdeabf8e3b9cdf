// Checkpoints: the training state in one safetensors file, so that every tool can look into it. The
// metadata says what it is and carries a checksum of everything else: of each tensor its name,
// dtype, shape and bytes, and of each other entry of the metadata. A file is verified and read
// whole before the first value changes.
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

// Pairs of key and value, as tn_file_write takes them. Keys and texts are the list's own.
typedef struct {
    int         n;
    char        key[ENTRIES][KEY], text[ENTRIES][32];
    const char *pair[2 * ENTRIES];
} metadata;

// The key of optimizer k's kind.
static void kind_key(char key[KEY], int k)
{
    snprintf(key, KEY, "opt.%d", k);
}

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

static void describe(const tni_snapshot *s, metadata *m)
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

static bool write_pieces(tni_snapshot *s, const char **name, tn_tensor **t)
{
    metadata m = { 0 };
    char     text[TNI_SUM_TEXT];
    uint64_t sum = 0;
    int      n   = 0;
    describe(s, &m);
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

static bool save(tni_snapshot *s)
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

static bool damaged(const tni_snapshot *s, const char *why)
{
    tni_fail(s->cx, TN_EFORMAT, "%s: %.200s: %s", s->op, s->path, why);
    return false;
}

// A number of the file's metadata.
static bool read_u64(const tni_snapshot *s, tn_file *f, const char *key, uint64_t *v)
{
    const char *text = tn_file_meta(f, key);
    char       *end;
    if (!text || *text < '0' || *text > '9') return damaged(s, "a number of the metadata is none");
    errno = 0;
    *v    = strtoull(text, &end, 10);
    return (!*end && !errno) || damaged(s, "a number of the metadata is none");
}

// Reads the scalars, and checks that the file is a checkpoint at all.
static bool read_metadata(tni_snapshot *s, tn_file *f)
{
    uint64_t    step   = 0;
    const char *format = tn_file_meta(f, "format"), *version = tn_file_meta(f, "version");
    if (!format || strcmp(format, FORMAT) || !version) return damaged(s, "it is not a checkpoint");
    if (strcmp(version, VERSION)) return damaged(s, "it is a checkpoint of another version");
    if (!read_u64(s, f, "step", &step) || !read_u64(s, f, "seed", &s->seed) ||
        !read_u64(s, f, "counter", &s->counter))
        return false;
    s->step = (int64_t)step;
    return true;
}

// Whether the optimizers are of the kinds that were saved.
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

static bool verify(const tni_snapshot *s, tn_file *f)
{
    char        text[TNI_SUM_TEXT];
    const char *checksum = tn_file_meta(f, TNI_SUM_KEY);
    uint64_t    sum      = 0;
    if (!tni_sum_file(s->op, f, &sum)) return false;
    tni_sum_text(sum, text);
    if (checksum && !strcmp(text, checksum)) return true;
    return damaged(s, "it is damaged: its checksum does not agree");
}

// Which tensor of the file each piece is. A state or a gradient may be missing, and bytes that
// nobody asks for.
static bool match(tni_snapshot *s, tn_file *f)
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

// A tensor of the file that has the dtype and shape of its piece; NULL, reported, if it has not. State
// of f16 and bf16 parameters was once of their dtype: it is cast.
static tn_tensor *fitting(const tni_snapshot *s, tn_file *f, const tni_piece *p)
{
    bool         numbers = p->kind == TNI_PIECE_NUMBERS;
    tni_view     v       = numbers ? tni_view_whole(1, &p->count) : tni_layout(p->t);
    tn_file_desc d       = tn_file_info(f, p->from);
    if (!tni_shape_fits(s->cx, s->op, s->path, &d, v.rank, v.size)) return NULL;
    tn_tensor *t = tn_file_tensor(f, p->name);
    if (!t || tn_dtype_of(t) == p->dtype) return t;
    if (p->kind == TNI_PIECE_STATE && tn_dtype_of(t) == tn_dtype_of(p->t)) return t;
    return tni_fail(s->cx, TN_EDTYPE, "%s: %.120s: %.60s is %s in the file, but %s here", s->op,
                    s->path, p->name, tn_dtype_name(tn_dtype_of(t)), tn_dtype_name(p->dtype));
}

// What a gradient becomes that is there, but not in the file.
static tn_tensor *no_gradient(const tni_piece *p)
{
    tn_tensor *zeros = tn_zeros_like(p->t);
    return zeros && tn_eval_of(zeros) == TN_OK ? zeros : NULL;
}

// Makes the value of a piece ready, or reads its numbers into the snapshot.
static bool read_piece(tni_snapshot *s, tn_file *f, tni_piece *p)
{
    bool gradient = p->kind == TNI_PIECE_GRADIENT, numbers = p->kind == TNI_PIECE_NUMBERS;
    if ((numbers && !p->data) || p->unused) return true;
    if (p->from < 0 && !(gradient && tn_has_grad(p->t))) return true;
    if (p->kind == TNI_PIECE_VALUE && !tni_can_put(s->op, p->name, p->t)) return false;
    if (gradient && !tn_grad_of(p->t)) return false;  // makes its handle, of zeros
    tn_tensor *t = p->from >= 0 ? fitting(s, f, p) : no_gradient(p);
    if (t && numbers) return tn_read(t, p->dtype, p->data, p->count) == TN_OK;
    p->value = p->from >= 0 ? tni_take_copy(s->op, t, p->dtype) : t;
    return p->value != NULL;
}

static bool read_pieces(tni_snapshot *s, tn_file *f)
{
    for (size_t i = 0; i < s->pieces; i++)
        if (!read_piece(s, f, &s->piece[i])) return false;
    return true;
}

static tn_tensor **value_of(void *user, const tn_tensor *t)
{
    tni_snapshot *s = user;
    for (size_t i = 0; i < s->pieces; i++)
        if (s->piece[i].kind == TNI_PIECE_VALUE && s->piece[i].t == t) return &s->piece[i].value;
    return NULL;
}

static bool load(tni_snapshot *s)
{
    tn_file *f = tn_file_open(s->cx, s->path);
    if (!f) return false;
    bool ok = read_metadata(s, f) && verify(s, f) && kinds_fit(s, f) && match(s, f) &&
              read_pieces(s, f) && tni_snapshot_fits(s) && tni_flats_gather(s->cx, value_of, s) &&
              tni_snapshot_put(s);
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
    return with_snapshot(&s, save);
}

tn_status tn_checkpoint_load(tn_ctx *cx, const char *path, tn_checkpoint *c)
{
    tni_snapshot s      = { .cx = cx, .op = "checkpoint_load", .path = path, .c = c };
    tn_status    status = with_snapshot(&s, load);
    if (status == TN_OK) c->step = s.step;
    return status;
}
