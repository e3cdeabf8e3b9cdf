// Checkpoints: the training state in one safetensors file, so that every tool can look into it. A
// file is verified and read whole before the first value changes.
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
// The metadata has the format's name and version, the step, the state of the random numbers, the
// kind of each optimizer, and a checksum of everything else: of each tensor its name, dtype, shape
// and bytes, and of each other entry of the metadata.
//
// With several ranks a checkpoint is one file, which rank 0 writes, or sharded: each rank writes a
// part of it, and the path is an index of these files, written last:
//
//   ckpt              {"metadata":{"generation":"a","ranks":"2"},"weight_map":{"rank.0":"ckpt.a.rank0of2", ...}}
//   ckpt.a.rank0of2   the metadata, all numbers, and this rank's parts
//   ckpt.a.rank1of2   net.0.w[512,300]@76800 ...
//
// A tensor is in one of the files, or in slices of its elements in row-major order; a slice's name
// has the shape of the whole and its first element. Slices are joined by these names, so the number
// of ranks may be another one, and the ranks need not have the parts that they wrote. The next
// checkpoint is of generation b, so the one before is complete until its index is replaced.
#include "base/json.h"
#include "dist/world.h"
#include "io/file.h"
#include "train/checksum.h"
#include "train/restore.h"
#include "train/snapshot.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FORMAT  "tenon.checkpoint"
#define VERSION "1"

// ---- metadata ----------------------------------------------------------------------------------

enum { ENTRIES = 6 + TN_MAX_CHECKPOINT, KEY = 16 };  // six of their own, and a kind per optimizer

// Pairs of key and value, as tn_file_write takes them. pair points into key and text, which the
// struct owns, so it must not be copied.
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

// Lists what a file says about itself: what it is, its scalars, and the kind of each optimizer, so
// that a state of Adam is never loaded into SGD.
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

// ---- several ranks -----------------------------------------------------------------------------

// Returns whether all ranks are well; else reports, on those that were, who failed at what.
static bool all_well(const tni_snapshot *s, bool ok)
{
    tni_text why;
    if (tni_dist_agree(s->c->dist, s->op, ok ? NULL : tn_error_text(s->cx), &why)) return true;
    if (ok) tni_fail(s->cx, TN_EIO, "%s: %.120s: %s", s->op, s->path, why.s);
    return false;
}

// "net.0.w[512,300]@76800": the name of the slice of a piece that begins at an element.
static char *slice_name(const tni_snapshot *s, const tni_piece *p, int64_t at)
{
    tni_view v     = tni_layout(p->t);
    tni_text shape = { "[" };
    for (int i = 0; i < v.rank; i++)
        tni_text_add(&shape, "%s%lld", i ? "," : "", (long long)v.size[i]);
    tni_text_add(&shape, "]@%lld", (long long)at);
    return tni_join_names(s->cx, s->op, p->name, shape.s);
}

// Leaves of a piece what this rank writes: its slice, and of pieces that are too small to be cut
// those that fall to it. Rank 0 writes all numbers.
static bool cut_piece(const tni_snapshot *s, tni_piece *p, size_t index)
{
    enum {
        LEAST = 64 << 10
    };  // bytes; below that, the slices' names would weigh more than they save
    int64_t  rank = tn_dist_rank(s->c->dist), size = tn_dist_size(s->c->dist), from, to;
    bool     numbers = p->kind == TNI_PIECE_NUMBERS;
    tn_dtype dt      = p->value ? tn_dtype_of(p->value) : TN_F32;
    int64_t  n       = p->value ? tn_count(p->value) : 0;
    if (!p->value) return true;
    if (numbers || n * (int64_t)tni_dtype_size(dt) < LEAST || n < size) {
        if ((numbers ? 0 : (int64_t)index % size) != rank) p->value = NULL;
        return true;
    }
    from       = n * rank / size;
    to         = n * (rank + 1) / size;
    char *name = slice_name(s, p, from);
    if (!name) return false;
    tni_free(&s->cx->heap, p->name);
    p->name  = name;
    p->value = tn_slice(tn_reshape(p->value, 1, &n), 0, from, to, 1);
    return p->value != NULL;
}

// The index that is at the path now, if it is one.
typedef struct {
    char generation;  // 'a' or 'b'; 0: it is none
    int  ranks;
} index_facts;

#define INDEX_BEGIN "{\"metadata\":{\"generation\":\"%c\",\"ranks\":\"%d\"},\"weight_map\":{"

static index_facts read_index(const char *path)
{
    char        text[128] = "";
    index_facts x         = { 0 };
    FILE       *f         = fopen(path, "rb");
    size_t      n         = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) fclose(f);
    text[n] = 0;
    if (sscanf(text, INDEX_BEGIN, &x.generation, &x.ranks) != 2) x = (index_facts){ 0 };
    return x;
}

// "ckpt.a.rank3of8", of the path or of its last part; NULL, reported, on failure.
static char *shard_path(const tni_snapshot *s, const char *path, index_facts x, int rank)
{
    tni_text end = tni_text_of(".%c.rank%dof%d", x.generation, rank, x.ranks);
    return tni_join_names(s->cx, s->op, path, end.s);
}

// Removes the files of an index that is not at the path any more. What cannot be removed stays.
static void remove_shards(const tni_snapshot *s, index_facts x)
{
    for (int i = 0; x.generation && i < x.ranks; i++) {
        char *path = shard_path(s, s->path, x, i);
        if (path) unlink(path);
        tni_free(&s->cx->heap, path);
    }
}

// Writes the index, beside its place and renamed. It names a marker of each file: a file brings all
// its tensors.
static bool write_index(const tni_snapshot *s, index_facts x)
{
    const char     *slash = strrchr(s->path, '/'), *last = slash ? slash + 1 : s->path;
    tni_json_writer w = { .heap = &s->cx->heap };
    char            begin[128];
    bool            ok = true;
    snprintf(begin, sizeof begin, INDEX_BEGIN, x.generation, x.ranks);
    tni_json_put(&w, begin);
    for (int i = 0; ok && i < x.ranks; i++) {
        char *path = shard_path(s, last, x, i);
        ok         = path != NULL;
        tni_json_put(&w, i ? "," : "");
        tni_json_quote(&w, tni_text_of("rank.%d", i).s);
        tni_json_put(&w, ":");
        if (ok) tni_json_quote(&w, path);
        tni_free(&s->cx->heap, path);
    }
    tni_json_put(&w, "}}\n");
    if (ok && w.full) ok = tni_fail_memory(s->cx, s->op) != NULL;
    tni_outfile *out = ok ? tni_outfile_open(s->cx, s->op, s->path) : NULL;
    ok               = out && tni_outfile_write(out, w.text, w.bytes);
    if (ok) ok = tni_outfile_commit(out) == TN_OK;
    else if (out) tni_outfile_abandon(out);
    tni_free(&s->cx->heap, w.text);
    return ok;
}

// ---- saving ------------------------------------------------------------------------------------

// What one rank writes: the pieces that have a value, and the metadata, which is rank 0's.
typedef struct {
    int          n;
    const char **name;
    tn_tensor  **t;
    metadata     m;
    uint64_t     sum;
} contents;

// Lists the pieces that have a value, and sums them with the metadata.
static bool list_contents(tni_snapshot *s, contents *c)
{
    if (tn_dist_rank(s->c->dist) == 0) describe_snapshot(s, &c->m);
    for (int i = 0; i < c->m.n; i++) tni_sum_entry(c->m.key[i], c->m.text[i], &c->sum);
    for (size_t i = 0; i < s->pieces; i++) {
        tni_piece *p = &s->piece[i];
        if (s->sharded && !cut_piece(s, p, i)) return false;
        if (!p->value) continue;
        c->name[c->n] = p->name;
        c->t[c->n++]  = p->value;
    }
    if (s->sharded) {
        c->name[c->n] = s->marker.s;
        c->t[c->n]    = tn_from(s->cx, TN_I32, TN_0D, &(int32_t){ tn_dist_rank(s->c->dist) });
        if (!c->t[c->n++]) return false;
    }
    for (int i = 0; i < c->n; i++)
        if (!tni_sum_tensor(s->op, c->name[i], c->t[i], &c->sum)) return false;
    return true;
}

// The checksum is added last, because it covers every other entry.
static bool write_contents(tni_snapshot *s, contents *c, const char *path)
{
    char text[TNI_SUM_TEXT];
    tni_sum_text(c->sum, text);
    if (tn_dist_rank(s->c->dist) == 0) add_text(&c->m, TNI_SUM_KEY, text);
    return path && tn_file_write(s->cx, path, c->n, c->name, c->t, c->m.n, c->m.pair) == TN_OK;
}

// Adds up the ranks' sums, and has rank 0 choose the generation.
static bool join_sums(const tni_snapshot *s, contents *c, index_facts *x)
{
    tni_text why;
    uint64_t all[2] = { c->sum, 0 };
    if (tn_dist_rank(s->c->dist) == 0) all[1] = read_index(s->path).generation == 'a' ? 'b' : 'a';
    if (!tni_dist_sum(s->c->dist, s->op, all, &why))
        return tni_refuse(s->cx, TN_EIO, "%s: %.120s: %s", s->op, s->path, why.s);
    c->sum = all[0];
    *x     = (index_facts){ (char)all[1], tn_dist_size(s->c->dist) };
    return true;
}

// Whether rank 0 sees the files of all ranks, before it writes an index of them. A file system of
// several machines may show them a moment later.
static bool find_shards(const tni_snapshot *s, index_facts x)
{
    enum { PAUSE = 50, PAUSES = 40 };  // ms; two seconds for all
    bool ok = true;
    for (int i = 0, pauses = 0; ok && i < x.ranks; i++) {
        char *path = shard_path(s, s->path, x, i);
        while (path && access(path, R_OK) != 0 && pauses++ < PAUSES) poll(NULL, 0, PAUSE);
        ok = path && access(path, R_OK) == 0;
        if (path && !ok)
            tni_fail(s->cx, TN_EIO,
                     "%s: there is no %.120s, which rank %d wrote: all ranks need the same folder",
                     s->op, path, i);
        tni_free(&s->cx->heap, path);
    }
    return ok;
}

// Every rank writes its file, and when all have, rank 0 the index. Before that, files of a
// checkpoint that is none are removed; afterwards it is not known whether the index is there.
static bool save_shards(tni_snapshot *s, contents *c, bool ok)
{
    index_facts x = { 0 }, old = { 0 };
    int         rank = tn_dist_rank(s->c->dist);
    if (!all_well(s, ok) || !join_sums(s, c, &x)) return false;
    char *path = shard_path(s, s->path, x, rank);
    ok         = all_well(s, write_contents(s, c, path));
    ok         = ok && all_well(s, rank != 0 || find_shards(s, x));
    if (!ok && path) unlink(path);
    tni_free(&s->cx->heap, path);
    if (!ok) return false;
    if (rank == 0) old = read_index(s->path);
    if (!all_well(s, rank != 0 || write_index(s, x))) return false;
    remove_shards(s, old);
    return true;
}

// Rank 0 writes all of it; the others wait until it is there.
static bool save_whole(tni_snapshot *s, contents *c, bool ok)
{
    index_facts old  = { 0 };
    bool        mine = tn_dist_rank(s->c->dist) == 0;
    if (mine) old = read_index(s->path);
    if (!all_well(s, ok && (!mine || write_contents(s, c, s->path)))) return false;
    remove_shards(s, old);
    return true;
}

// Saves a snapshot, which opened or did not. The two lists are allocated for all pieces, though
// those without a value are left out of the file.
static bool save_snapshot(tni_snapshot *s, bool ok)
{
    tni_heap *h = &s->cx->heap;
    contents  c = { .name = tni_alloc(h, (s->pieces + 1) * sizeof *c.name),
                    .t    = tni_alloc(h, (s->pieces + 1) * sizeof *c.t) };
    if (!c.name || !c.t) ok = tni_fail_memory(s->cx, s->op) != NULL;
    s->sharded = s->c->sharded && tn_dist_size(s->c->dist) > 1;
    s->marker  = tni_text_of("rank.%d", tn_dist_rank(s->c->dist));
    if (s->sharded || tn_dist_rank(s->c->dist) == 0)
        ok = ok && tni_snapshot_take(s) && list_contents(s, &c);
    ok = s->sharded ? save_shards(s, &c, ok) : save_whole(s, &c, ok);
    tni_free(h, c.name);
    tni_free(h, c.t);
    return ok;
}

// ---- loading -----------------------------------------------------------------------------------

// Reports that the file cannot be used, and why.
static bool fail_damaged(const tni_snapshot *s, const char *why)
{
    tni_fail(s->cx, TN_EFORMAT, "%s: %.200s: %s", s->op, s->path, why);
    return false;
}

// Reads an unsigned number of the file's metadata. Signs and blanks, which strtoull would accept,
// are refused.
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

// Compares the checksum in the metadata with that of the file's contents. It guards against damage,
// not against forgery.
static bool verify_checksum(tni_snapshot *s, tn_file *f)
{
    char        text[TNI_SUM_TEXT];
    const char *checksum = tn_file_meta(f, TNI_SUM_KEY);
    if (!tni_sum_file(s->op, f, &s->sum)) return false;
    tni_sum_text(s->sum, text);
    if (checksum && !strcmp(text, checksum)) return true;
    return fail_damaged(s, "it is damaged: its checksum does not agree");
}

// Returns the piece of which a tensor of the file is a slice; the number of pieces if there is
// none.
static size_t find_slice(tni_snapshot *s, const char *name)
{
    const char *at = strrchr(name, '@'), *shape = strrchr(name, '[');
    size_t      i = 0, n = at && shape && shape < at ? (size_t)(shape - name) : 0;
    while (i < s->pieces && (!n || strncmp(s->piece[i].name, name, n) || s->piece[i].name[n])) i++;
    if (i < s->pieces) s->piece[i].sliced = true;
    return i;
}

static bool is_marker(const char *name)
{
    return !strncmp(name, "rank.", 5);
}

// Finds for each piece its tensor in the file. Parameters, buffers and the optimizer's numbers must
// be there. A state or a gradient may be missing: the parameter had none when the file was written.
// The caller's bytes may be in the file without being asked for. A tensor that no piece has a name
// for is an error.
static bool match_pieces(tni_snapshot *s, tn_file *f)
{
    tni_misfits missing = { 0 }, unknown = { 0 };
    for (int k = 0; k < tn_file_count(f); k++) {
        const char *name = tn_file_name(f, k);
        size_t      i    = 0;
        while (i < s->pieces && strcmp(s->piece[i].name, name)) i++;
        if (i == s->pieces) i = find_slice(s, name);
        if (i < s->pieces) s->piece[i].from = k;
        else if (!is_marker(name)) tni_misfit(&unknown, name);
    }
    for (size_t i = 0; i < s->pieces; i++) {
        const tni_piece *p = &s->piece[i];
        bool must = p->kind == TNI_PIECE_VALUE || (p->kind == TNI_PIECE_NUMBERS && p->data);
        if (must && p->from < 0) tni_misfit(&missing, p->name);
    }
    return tni_names_fit(s->cx, s->op, s->path, &missing, &unknown, "") == TN_OK;
}

// Copies the slices of a piece, one after the other, to `to`. Returns false, reported, if one is
// missing: by its name, so that another shape shows.
static bool copy_slices(const tni_snapshot *s, tn_file *f, const tni_piece *p, char *to,
                        int64_t count, size_t size)
{
    for (int64_t at = 0; at < count;) {
        char                 *name = slice_name(s, p, at);
        const tni_file_entry *it   = name ? tni_file_entry_find(f, name) : NULL;
        int64_t               n    = it ? it->bytes / (int64_t)size : 0;
        bool                  ok   = n > 0 && n <= count - at;
        if (ok) memcpy(to + (size_t)at * size, it->data, (size_t)it->bytes);
        else if (name)
            tni_fail(s->cx, TN_EFORMAT, "%s: %.120s: there is no slice %.100s", s->op, s->path,
                     name);
        tni_free(&s->cx->heap, name);
        if (!ok) return false;
        at += n;
    }
    return true;
}

// Returns a tensor of the file whose slices are in several places, as one; NULL, reported, on
// failure.
static tn_tensor *join_slices(const tni_snapshot *s, tn_file *f, const tni_piece *p)
{
    tni_view              v     = tni_layout(p->t);
    const tni_file_entry *first = &f->entry[p->from];
    if (first->as < 0)
        return tni_fail(s->cx, TN_EDTYPE, "%s: %.120s: %.60s is %s in the file", s->op, s->path,
                        p->name, first->dtype);
    int64_t    count = tni_shape_count(v.rank, v.size);
    size_t     size  = tni_dtype_size((tn_dtype)first->as);
    char      *data  = tni_alloc(&s->cx->heap, (size_t)count * size);
    tn_tensor *t     = NULL;
    if (!data) return tni_fail_memory(s->cx, s->op);
    if (copy_slices(s, f, p, data, count, size))
        t = tn_from(s->cx, (tn_dtype)first->as, v.rank, v.size, data);
    tni_free(&s->cx->heap, data);
    return t;
}

// Returns the tensor of the file for a piece, if it has the piece's dtype and shape; NULL,
// reported, if not. State and gradients of another float dtype are accepted, and cast by the
// caller: files of earlier versions keep the state of f16 and bf16 parameters in the parameter's
// dtype, and a program may have cast its parameters since the file was written.
static tn_tensor *open_fitting(const tni_snapshot *s, tn_file *f, const tni_piece *p)
{
    bool         numbers = p->kind == TNI_PIECE_NUMBERS;
    tni_view     v       = numbers ? tni_view_whole(1, &p->count) : tni_layout(p->t);
    tn_file_desc d       = tn_file_info(f, p->from);
    // Those that a file of an earlier version does not have stay as they are.
    if (p->least && d.rank == 1 && d.size[0] >= p->least && d.size[0] < p->count)
        v.size[0] = d.size[0];
    if (!p->sliced && !tni_shape_fits(s->cx, s->op, s->path, &d, v.rank, v.size)) return NULL;
    tn_tensor *t = p->sliced ? join_slices(s, f, p) : tn_file_tensor(f, p->name);
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
    if (t && numbers) return tn_read(t, p->dtype, p->data, tn_count(t)) == TN_OK;
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

// Reads all of a file: everything that can fail, and changes nothing.
static bool read_snapshot(tni_snapshot *s)
{
    tn_file *f = tn_file_open(s->cx, s->path);
    if (!f) return false;
    bool ok = read_metadata(s, f) && verify_checksum(s, f) && kinds_fit(s, f) &&
              match_pieces(s, f) && read_pieces(s, f) && tni_snapshot_fits(s) &&
              tni_flats_gather(s->cx, value_of, s);
    tn_file_free(f);
    return ok;
}

// Returns whether all ranks have read the same file; reports two that differ.
static bool same_file(const tni_snapshot *s)
{
    tni_text why, what = tni_text_of("%s of step %lld, checksum %016llx", s->op, (long long)s->step,
                                     (unsigned long long)s->sum);
    if (tni_dist_agree(s->c->dist, what.s, NULL, &why)) return true;
    return tni_refuse(s->cx, TN_EIO, "%s: %.120s: %s", s->op, s->path, why.s);
}

// Loads in an order that keeps the training state whole, on all ranks: tni_snapshot_put, the last
// step, changes all or nothing.
static bool load_snapshot(tni_snapshot *s, bool ok)
{
    return all_well(s, ok && read_snapshot(s)) && same_file(s) && tni_snapshot_put(s);
}

// ---- the public calls --------------------------------------------------------------------------

// Returns whether the world is one of this context; NULL is no world.
static bool world_ok(const tni_snapshot *s)
{
    tn_dist *d  = s->c->dist;
    tn_ctx  *cx = d ? tni_owned_ok(s->op, d, TNI_DIST) : s->cx;
    if (cx && cx != s->cx)
        tni_fail(s->cx, TN_EARG, "%s: the world belongs to another context", s->op);
    return cx == s->cx;
}

// Runs save or load over a snapshot of c, in a scope of its own and without gradients. A rank whose
// snapshot cannot be listed says so to the others.
static tn_status with_snapshot(tni_snapshot *s, bool (*f)(tni_snapshot *s, bool ok))
{
    if (!tni_ctx_ok(s->cx, s->op)) return tni_failed();
    if (!s->path || !s->c)
        return tni_fail_status(s->cx, TN_EARG, "%s: the path or the checkpoint is NULL", s->op);
    if (!world_ok(s)) return tni_failed();
    tn_scope *scope = tn_begin(s->cx);
    if (!scope) return tni_failed();
    s->cx->grad_mode = false;
    bool ok          = f(s, tni_snapshot_open(s));
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
