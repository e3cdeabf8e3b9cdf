// A tokenizer.json: its vocabulary, merges and added tokens, and the order of its parts. Members
// may come in any order, so an object's members are looked for first and read then.
#include "data/tokenizer_json.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MOST_MIB = 256 };

bool tni_tokenizer_bad(tni_tokenizer_file *f, const char *fmt, ...)
{
    char    text[256];
    va_list list;
    va_start(list, fmt);
    vsnprintf(text, sizeof text, fmt, list);
    va_end(list);
    return tni_refuse(f->cx, TN_EFORMAT, "tokenizer: %s: %s", f->path, text);
}

static bool no_memory(tni_tokenizer_file *f)
{
    return tni_no_memory(f->cx, "tokenizer");
}

// ---- members -----------------------------------------------------------------------------------

// Reads the object to its end, so that an error of JSON anywhere in it is found.
bool tni_find_members(tni_tokenizer_file *f, tni_json j, const char *what, tni_member *m, int n)
{
    if (j.kind != TNI_JSON_OBJECT) return tni_tokenizer_bad(f, "%s is not an object", what);
    while (tni_json_next(&j) == TNI_JSON_KEY) {
        tni_member *member = NULL;
        for (int i = 0; i < n; i++)
            if (tni_json_is(&j, m[i].name)) member = &m[i];
        tni_json_next(&j);
        if (member) member->at = j;
        if (member) member->is = j.kind != TNI_JSON_NULL;
        if (!tni_json_skip(&j)) break;
    }
    if (j.kind == TNI_JSON_OBJECT_END) return true;
    return tni_tokenizer_bad(f, "byte %zu: %s", (size_t)(j.at - j.start),
                             j.kind == TNI_JSON_ERROR ? j.why : "a key is expected");
}

bool tni_member_bool(tni_tokenizer_file *f, const tni_member *m, bool *v, bool otherwise)
{
    *v = m->is ? m->at.kind == TNI_JSON_TRUE : otherwise;
    if (!m->is || m->at.kind == TNI_JSON_TRUE || m->at.kind == TNI_JSON_FALSE) return true;
    return tni_tokenizer_bad(f, "\"%s\" is neither true nor false", m->name);
}

bool tni_member_int(tni_tokenizer_file *f, const tni_member *m, int64_t *v, int64_t otherwise)
{
    *v = otherwise;
    if (!m->is || (m->at.kind == TNI_JSON_NUMBER && tni_json_int(&m->at, v))) return true;
    return tni_tokenizer_bad(f, "\"%s\" is not an integer", m->name);
}

bool tni_member_text(tni_tokenizer_file *f, const tni_member *m, char **text, size_t *bytes)
{
    int64_t n = m->is && m->at.kind == TNI_JSON_STRING ? tni_json_string(&m->at, NULL, 0) : -1;
    if (n < 0) return tni_tokenizer_bad(f, "\"%s\" is not a text", m->name);
    tni_free(&f->cx->heap, *text);
    *text = tni_alloc(&f->cx->heap, (size_t)n + 1);
    if (!*text) return no_memory(f);
    *bytes = (size_t)tni_json_string(&m->at, *text, (size_t)n + 1);
    return true;
}

// ---- the vocabulary ----------------------------------------------------------------------------

// Tokens, and the highest number among them.
typedef struct {
    uint32_t count, numbers;
} census;

// Counts a token with its number.
static bool count_token(tni_tokenizer_file *f, const tni_json *j, census *c)
{
    int64_t id;
    if (j->kind != TNI_JSON_NUMBER || !tni_json_int(j, &id) || id < 0 || id >= TNI_MOST_TOKENS)
        return tni_tokenizer_bad(f, "a token's number is not in 0 .. %d", TNI_MOST_TOKENS - 1);
    if (++c->count > TNI_MOST_TOKENS)
        return tni_tokenizer_bad(f, "it has more than %d tokens", TNI_MOST_TOKENS);
    if ((uint32_t)id >= c->numbers) c->numbers = (uint32_t)id + 1;
    return true;
}

static bool count_vocabulary(tni_tokenizer_file *f, tni_json j, census *c)
{
    if (j.kind != TNI_JSON_OBJECT) return tni_tokenizer_bad(f, "the vocabulary is not an object");
    while (tni_json_next(&j) == TNI_JSON_KEY) {
        tni_json_next(&j);
        if (!count_token(f, &j, c)) return false;
    }
    return true;
}

// Reads the current string to f->text: its length, or -1, reported.
static int64_t read_text(tni_tokenizer_file *f, const tni_json *j)
{
    bool    text = j->kind == TNI_JSON_STRING || j->kind == TNI_JSON_KEY;
    int64_t n    = text ? tni_json_string(j, f->text, f->map->bytes + 1) : -1;
    if (n < 0) tni_tokenizer_bad(f, "byte %zu: a text is expected", (size_t)(j->at - j->start));
    return n;
}

static bool read_vocabulary(tni_tokenizer_file *f, tni_json j)
{
    tni_vocabulary *v  = &f->t->vocabulary;
    int64_t         id = 0;
    while (tni_json_next(&j) == TNI_JSON_KEY) {
        int64_t n = read_text(f, &j);
        if (n < 0) return false;
        tni_json_next(&j);
        tni_json_int(&j, &id);
        bool twice = tni_vocabulary_find(v, f->text, (size_t)n) != tni_no_token;
        if (twice || v->token[id].is_there)
            return tni_tokenizer_bad(
                f, twice ? "the token %s appears twice" : "the token %s has the number of another",
                tni_quoted(f->text).s);
        if (!tni_vocabulary_add(v, (uint32_t)id, f->text, (size_t)n, true)) return no_memory(f);
    }
    return true;
}

// ---- merges ------------------------------------------------------------------------------------

// Adds the merge of two tokens: left_bytes of f->text, and the rest of its n bytes.
static bool add_merge(tni_tokenizer_file *f, size_t left_bytes, size_t n)
{
    const tni_vocabulary *v    = &f->t->vocabulary;
    const char           *s    = f->text;
    tni_merge             m    = { .left = tni_vocabulary_find_model(v, s, left_bytes),
                                   .right = tni_vocabulary_find_model(v, s + left_bytes, n - left_bytes),
                                   .result = tni_vocabulary_find_model(v, s, n) };
    bool                  lack = m.left == tni_no_token || m.right == tni_no_token;
    if (lack || m.result == tni_no_token)
        return tni_tokenizer_bad(f, "the merge of %u %s %s is no token", (unsigned)v->merges,
                                 lack ? "has a part that" : "makes what",
                                 lack ? "" : tni_quoted(s).s);
    tni_vocabulary_merge(&f->t->vocabulary, m);
    return true;
}

// "left right".
static bool read_merge_text(tni_tokenizer_file *f, const tni_json *j)
{
    int64_t n     = read_text(f, j);
    char   *space = n > 0 ? memchr(f->text, ' ', (size_t)n) : NULL;
    if (n < 0) return false;
    size_t left = space ? (size_t)(space - f->text) : 0, right = (size_t)n - left - (space != NULL);
    if (!space || memchr(space + 1, ' ', right))
        return tni_tokenizer_bad(f, "the merge %s is not two tokens with a space between them",
                                 tni_quoted(f->text).s);
    memmove(space, space + 1, right + 1);
    return add_merge(f, left, left + right);
}

// ["left", "right"]; j is at the bracket and ends at the closing one.
static bool read_merge_pair(tni_tokenizer_file *f, tni_json *j)
{
    tni_json_next(j);
    int64_t left = read_text(f, j);
    if (left < 0) return false;
    memcpy(f->other, f->text, (size_t)left);
    tni_json_next(j);
    int64_t right = read_text(f, j);
    if (right < 0) return false;
    if (tni_json_next(j) != TNI_JSON_ARRAY_END || left + right > (int64_t)f->map->bytes)
        return tni_tokenizer_bad(f, "a merge is not a pair of tokens");
    memmove(f->text + left, f->text, (size_t)right + 1);
    memcpy(f->text, f->other, (size_t)left);
    return add_merge(f, (size_t)left, (size_t)(left + right));
}

static bool read_merges(tni_tokenizer_file *f, tni_json j)
{
    tni_json count = j;
    uint32_t n     = 0;
    if (j.kind != TNI_JSON_ARRAY) return tni_tokenizer_bad(f, "the merges are not a list");
    for (; tni_json_next(&count) != TNI_JSON_ARRAY_END; n++)
        if (!tni_json_skip(&count)) return tni_tokenizer_bad(f, "the merges are not a list");
    if (n > TNI_MOST_TOKENS)
        return tni_tokenizer_bad(f, "it has more than %d merges", TNI_MOST_TOKENS);
    if (!tni_vocabulary_begin_merges(&f->t->vocabulary, n)) return no_memory(f);
    while (tni_json_next(&j) != TNI_JSON_ARRAY_END) {
        bool pair = j.kind == TNI_JSON_ARRAY;
        if (!(pair ? read_merge_pair(f, &j) : read_merge_text(f, &j))) return false;
    }
    return true;
}

// ---- added tokens ------------------------------------------------------------------------------

enum { ADDED_ID, ADDED_TEXT, SINGLE_WORD, LSTRIP, RSTRIP, NORMALIZED, SPECIAL, ADDED_MEMBERS };

static bool added_members(tni_tokenizer_file *f, tni_json j, tni_member m[ADDED_MEMBERS])
{
    static const char *const names[] = { "id",     "content",    "single_word", "lstrip",
                                         "rstrip", "normalized", "special" };
    for (int i = 0; i < ADDED_MEMBERS; i++) m[i] = (tni_member){ .name = names[i] };
    return tni_find_members(f, j, "an added token", m, ADDED_MEMBERS);
}

static bool count_added(tni_tokenizer_file *f, tni_json j, census *c)
{
    tni_member m[ADDED_MEMBERS];
    if (j.kind != TNI_JSON_ARRAY) return tni_tokenizer_bad(f, "the added tokens are not a list");
    while (tni_json_next(&j) != TNI_JSON_ARRAY_END) {
        if (!added_members(f, j, m) || !count_token(f, &m[ADDED_ID].at, c) || !tni_json_skip(&j))
            return false;
        f->addeds++;
    }
    return true;
}

// Enters an added token in the vocabulary, unless it is there. Its number must then be the same.
static bool enter_added(tni_tokenizer_file *f, const tni_added *a)
{
    tni_vocabulary *v  = &f->t->vocabulary;
    uint32_t        id = tni_vocabulary_find(v, a->text, a->bytes);
    bool            ok = id == tni_no_token ? !v->token[a->id].is_there : id == a->id;
    if (!ok || !a->bytes)
        return tni_tokenizer_bad(f, "the added token %s %s", tni_quoted(a->text).s,
                                 !a->bytes            ? "is empty"
                                 : id == tni_no_token ? "has the number of another"
                                                      : "has another number in the vocabulary");
    if (id == tni_no_token && !tni_vocabulary_add(v, a->id, a->text, a->bytes, false))
        return no_memory(f);
    v->token[a->id].is_special |= a->special;
    return true;
}

static bool read_one_added(tni_tokenizer_file *f, tni_json j, tni_added *a)
{
    tni_member m[ADDED_MEMBERS];
    int64_t    id = 0;
    bool ok = added_members(f, j, m) && tni_member_text(f, &m[ADDED_TEXT], &a->text, &a->bytes) &&
              tni_member_int(f, &m[ADDED_ID], &id, 0) &&
              tni_member_bool(f, &m[SPECIAL], &a->special, false) &&
              tni_member_bool(f, &m[SINGLE_WORD], &a->single_word, false) &&
              tni_member_bool(f, &m[LSTRIP], &a->lstrip, false) &&
              tni_member_bool(f, &m[RSTRIP], &a->rstrip, false) &&
              tni_member_bool(f, &m[NORMALIZED], &a->normalized, !a->special);
    a->id = (uint32_t)id;
    return ok && enter_added(f, a);
}

static bool read_added(tni_tokenizer_file *f, tni_json j)
{
    tn_tokenizer *t = f->t;
    t->added        = tni_zalloc(&f->cx->heap, (size_t)f->addeds * sizeof *t->added);
    if (!t->added) return no_memory(f);
    while (tni_json_next(&j) != TNI_JSON_ARRAY_END) {
        if (!read_one_added(f, j, &t->added[t->addeds++])) return false;
        tni_json_skip(&j);
    }
    return true;
}

// Added tokens that are looked for in normalized text are looked for in their normalized form, by
// the steps from `from` to `to`.
static bool normalize_added(tni_tokenizer_file *f, int from, int to)
{
    tn_tokenizer *t = f->t;
    for (uint32_t i = 0; i < t->addeds; i++) {
        tni_added *a     = &t->added[i];
        size_t     bytes = 0;
        if (!a->normalized) continue;
        const char *s    = tni_rewrite(t, from, to, a->text, a->bytes, &bytes);
        char       *copy = s ? tni_alloc(&f->cx->heap, bytes + 1) : NULL;
        if (!copy) return s ? no_memory(f) : false;
        memcpy(copy, s, bytes);
        copy[bytes] = 0;
        tni_free(&f->cx->heap, a->text);
        a->text  = copy;
        a->bytes = bytes;
        if (!bytes) return tni_tokenizer_bad(f, "an added token is empty once it is normalized");
    }
    return true;
}

// ---- the model ---------------------------------------------------------------------------------

enum {
    TYPE,
    VOCABULARY,
    MERGES,
    DROPOUT,
    UNKNOWN,
    PREFIX,
    SUFFIX,
    FUSE,
    FALLBACK,
    IGNORE,
    MODEL_MEMBERS
};

// What the encoder does not do must be off in the file.
static bool model_ok(tni_tokenizer_file *f, const tni_member *m)
{
    double dropout = 0;
    if (!m[VOCABULARY].is || !m[MERGES].is || (m[TYPE].is && !tni_json_is(&m[TYPE].at, "BPE")))
        return tni_tokenizer_bad(f, "its model is not byte-pair encoding (BPE)");
    if (m[DROPOUT].is && (!tni_json_double(&m[DROPOUT].at, &dropout) || dropout > 0))
        return tni_tokenizer_bad(f, "the dropout of its model is not supported");
    for (int i = PREFIX; i <= SUFFIX; i++)
        if (m[i].is && m[i].at.length > 0)
            return tni_tokenizer_bad(f, "\"%s\" is not supported", m[i].name);
    return true;
}

// Tokens of bytes are spelled <0x00> to <0xFF>.
static void find_bytes(tn_tokenizer *t)
{
    for (int i = 0; i < 256; i++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)i);
        t->byte_id[i] = tni_vocabulary_find_model(&t->vocabulary, text, 6);
    }
}

static bool read_model(tni_tokenizer_file *f, const tni_member *m)
{
    tn_tokenizer *t = f->t;
    if (!read_merges(f, m[MERGES].at)) return false;
    if (m[UNKNOWN].is) {
        int64_t n = read_text(f, &m[UNKNOWN].at);
        if (n < 0) return false;
        t->unknown = tni_vocabulary_find_model(&t->vocabulary, f->text, (size_t)n);
        if (t->unknown == tni_no_token)
            return tni_tokenizer_bad(f, "the unknown token %s is no token", tni_quoted(f->text).s);
    }
    find_bytes(t);
    return tni_member_bool(f, &m[FUSE], &t->fuse_unknown, false) &&
           tni_member_bool(f, &m[FALLBACK], &t->byte_fallback, false) &&
           tni_member_bool(f, &m[IGNORE], &t->ignore_merges, false);
}

// ---- the file ----------------------------------------------------------------------------------

enum { ADDED, NORMALIZER, PRE_TOKENIZER, POST_PROCESSOR, DECODER, MODEL, FILE_MEMBERS };

static bool add_added_step(tni_tokenizer_file *f, bool normalized)
{
    tni_step *step = tni_add_step(f->t, TNI_STEP_ADDED);
    if (!step) return tni_tokenizer_bad(f, "it has too many steps");
    step->normalized = normalized;
    return true;
}

// The order in which a text goes through them: added tokens that are looked for in the text as it
// is, the normalizer, those that are looked for in normalized text, the pre-tokenizer.
static bool read_steps(tni_tokenizer_file *f, const tni_member *m)
{
    tn_tokenizer *t = f->t;
    if (!add_added_step(f, false)) return false;
    int from = t->steps;
    if (m[NORMALIZER].is && !tni_read_normalizer(f, m[NORMALIZER].at)) return false;
    int to = t->steps;
    if (!add_added_step(f, true) || !normalize_added(f, from, to)) return false;
    tni_order_added(t);
    return !m[PRE_TOKENIZER].is || tni_read_pre_tokenizer(f, m[PRE_TOKENIZER].at);
}

static bool read_rest(tni_tokenizer_file *f, const tni_member *m)
{
    f->t->decoder.spaced = !m[DECODER].is;
    return (!m[POST_PROCESSOR].is || tni_read_post_processor(f, m[POST_PROCESSOR].at)) &&
           (!m[DECODER].is || tni_read_decoder(f, m[DECODER].at)) &&
           tni_decoder_make(f->t, f->decode, f->decodes);
}

// Counts first, so that all tables have their size; the steps need the tokens, the decoder both.
static bool read_json(tni_tokenizer_file *f)
{
    tni_member top[FILE_MEMBERS] = { { .name = "added_tokens" },  { .name = "normalizer" },
                                     { .name = "pre_tokenizer" }, { .name = "post_processor" },
                                     { .name = "decoder" },       { .name = "model" } };
    tni_member m[MODEL_MEMBERS]  = { { .name = "type" },
                                     { .name = "vocab" },
                                     { .name = "merges" },
                                     { .name = "dropout" },
                                     { .name = "unk_token" },
                                     { .name = "continuing_subword_prefix" },
                                     { .name = "end_of_word_suffix" },
                                     { .name = "fuse_unk" },
                                     { .name = "byte_fallback" },
                                     { .name = "ignore_merges" } };
    census     c                 = { 0 };
    tni_json   j;
    tni_json_open(&j, (const char *)f->map->data, f->map->bytes);
    tni_json_next(&j);
    if (!tni_find_members(f, j, "it", top, FILE_MEMBERS)) return false;
    if (!top[MODEL].is) return tni_tokenizer_bad(f, "it has no model");
    if (!tni_find_members(f, top[MODEL].at, "its model", m, MODEL_MEMBERS) || !model_ok(f, m) ||
        !count_vocabulary(f, m[VOCABULARY].at, &c) ||
        (top[ADDED].is && !count_added(f, top[ADDED].at, &c)))
        return false;
    if (c.count == 0) return tni_tokenizer_bad(f, "it has no tokens");
    if (!tni_vocabulary_begin(&f->t->vocabulary, c.numbers, c.count)) return no_memory(f);
    return read_vocabulary(f, m[VOCABULARY].at) &&
           (!top[ADDED].is || read_added(f, top[ADDED].at)) && read_model(f, m) &&
           read_steps(f, top) && read_rest(f, top);
}

// The limit keeps a file that is no tokenizer from taking all memory.
bool tni_tokenizer_load_json(tn_tokenizer *t, const char *path)
{
    tni_tokenizer_file f = { .t = t, .cx = t->owned.cx, .path = path };
    tni_heap          *h = &f.cx->heap;
    f.map                = tni_mapping_open(f.cx, "tokenizer", path);
    if (!f.map) return false;
    bool ok = f.map->bytes <= (size_t)MOST_MIB << 20;
    if (!ok) tni_tokenizer_bad(&f, "it is larger than %d MiB", MOST_MIB);
    f.text  = ok ? tni_alloc(h, f.map->bytes + 1) : NULL;
    f.other = ok ? tni_alloc(h, f.map->bytes + 1) : NULL;
    if (ok && (!f.text || !f.other)) ok = no_memory(&f);
    ok = ok && read_json(&f);
    tni_free(h, f.text);
    tni_free(h, f.other);
    tni_mapping_unref(f.map);
    return ok;
}
