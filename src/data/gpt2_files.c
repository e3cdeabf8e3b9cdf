// GPT-2's files. encoder.json has every token's number, vocab.bpe the merges in their order. Both
// spell bytes as characters (tni_byte_character).
#include "base/json.h"
#include "data/tokenizer.h"
#include "io/mapping.h"

#include <string.h>

enum { MOST_LINE = 8192, MOST_MIB = 256 };

// The state of loading.
typedef struct {
    tn_tokenizer   *t;
    tni_vocabulary *v;
    tn_ctx         *cx;
    const char     *path;  // of the file being read
    tni_mapping    *map;   // of it
    char           *text;  // of a token; as large as the file
    bool           *made;  // by number: it is a single byte, or made by a merge so far
} loading;

static bool no_memory(loading *l)
{
    return tni_no_memory(l->cx, "tokenizer");
}

// Whether every character of a text stands for a byte.
static bool is_bytes(const char *s, size_t n)
{
    const char *end = s + n;
    while (s < end)
        if (tni_character_byte(tni_read_character(s, end, &s)) < 0) return false;
    return true;
}

// ---- encoder.json ------------------------------------------------------------------------------

static bool bad_json(loading *l, const tni_json *j, const char *why)
{
    return tni_refuse(l->cx, TN_EFORMAT, "tokenizer: %s: byte %zu: %s", l->path,
                      (size_t)(j->at - j->start), j->kind == TNI_JSON_ERROR ? j->why : why);
}

// The first walk: the file is JSON of the right form, and its size is known before anything is
// allocated.
static bool count_tokens(loading *l, tni_json *j, uint32_t *count)
{
    uint32_t n = 0;
    if (tni_json_next(j) != TNI_JSON_OBJECT) return bad_json(l, j, "it is not an object");
    for (; tni_json_next(j) == TNI_JSON_KEY; n++) {
        if (tni_json_next(j) != TNI_JSON_NUMBER) return bad_json(l, j, "a token has no number");
        if (n == TNI_MOST_TOKENS)
            return bad_json(l, j, tni_text_of("it has more than %d tokens", TNI_MOST_TOKENS).s);
    }
    if (j->kind != TNI_JSON_OBJECT_END || tni_json_next(j) != TNI_JSON_END)
        return bad_json(l, j, "it is not one object");
    *count = n;
    return true;
}

// Reads a token and its number.
static bool read_token(loading *l, tni_json *j)
{
    tni_vocabulary *v = l->v;
    int64_t         id, n = tni_json_string(j, l->text, l->map->bytes + 1);
    if (n < 0 || !is_bytes(l->text, (size_t)n))
        return bad_json(l, j, "a token has a character that stands for no byte");
    tni_json_next(j);
    bool number = tni_json_int(j, &id) && id >= 0 && id < v->count;
    if (n == 0 || !number || v->token[id].is_there)
        return bad_json(l, j,
                        n == 0    ? "a token is empty"
                        : !number ? "a token's number is not below their count"
                                  : "two tokens have one number");
    if (tni_vocabulary_find(v, l->text, (size_t)n) != tni_no_token)
        return bad_json(l, j, "a token appears twice");
    return tni_vocabulary_add(v, (uint32_t)id, l->text, (size_t)n, true) || no_memory(l);
}

// Every single byte must have a token: then every text can be encoded.
static bool find_bytes(loading *l)
{
    for (int byte = 0; byte < 256; byte++) {
        uint32_t id = l->v->of_character[tni_byte_character(byte)];
        if (id == tni_no_token)
            return tni_refuse(l->cx, TN_EFORMAT, "tokenizer: %s: the byte 0x%02x has no token",
                              l->path, (unsigned)byte);
        l->made[id] = true;
    }
    return true;
}

// Reads encoder.json: counts, allocates, reads.
static bool read_encoder(loading *l)
{
    uint32_t    count = 0;
    const char *text  = (const char *)l->map->data;
    tni_json    j;
    tni_json_open(&j, text, l->map->bytes);
    if (!count_tokens(l, &j, &count)) return false;
    l->made = tni_zalloc(&l->cx->heap, count);
    l->text = tni_alloc(&l->cx->heap, l->map->bytes + 1);
    if (!tni_vocabulary_begin(l->v, count, count) || !l->made || !l->text) return no_memory(l);

    tni_json_open(&j, text, l->map->bytes);
    tni_json_next(&j);
    while (tni_json_next(&j) == TNI_JSON_KEY)
        if (!read_token(l, &j)) return false;
    return find_bytes(l);
}

// ---- vocab.bpe ---------------------------------------------------------------------------------

static bool bad_line(loading *l, int64_t line, const char *why)
{
    return tni_refuse(l->cx, TN_EFORMAT, "tokenizer: %s:%lld: %s", l->path, (long long)line, why);
}

// Reads one line, "left right", as the next merge. A merge may only use bytes and results of
// earlier merges, so that the order of merging does not matter.
static bool read_merge(loading *l, int64_t line, const char *s, size_t n)
{
    char            whole[MOST_LINE];
    tni_vocabulary *v     = l->v;
    const char     *space = memchr(s, ' ', n);
    if (n > MOST_LINE)
        return bad_line(l, line, tni_text_of("it is longer than %d bytes", MOST_LINE).s);
    if (!space || space == s || space == s + n - 1)
        return bad_line(l, line, "it is not two tokens with a space between them");
    size_t left = (size_t)(space - s), right = n - left - 1;
    if (!is_bytes(s, left) || !is_bytes(space + 1, right))
        return bad_line(l, line, "it has a character that stands for no byte");
    memcpy(whole, s, left);
    memcpy(whole + left, space + 1, right);
    tni_merge m = { .left   = tni_vocabulary_find(v, s, left),
                    .right  = tni_vocabulary_find(v, space + 1, right),
                    .result = tni_vocabulary_find(v, whole, left + right) };
    if (m.left == tni_no_token || m.right == tni_no_token || m.result == tni_no_token)
        return bad_line(l, line, "it has a token, or makes one, that has no number");
    if (!l->made[m.left] || !l->made[m.right])
        return bad_line(l, line, "it merges a token that no line before it makes");
    if (tni_vocabulary_rank(v, m.left, m.right) != TNI_NO_RANK)
        return bad_line(l, line, "an earlier line merges the same tokens");
    l->made[m.result] = true;
    tni_vocabulary_merge(v, m);
    return true;
}

// Returns the end of the line at `at`, and of its text, without the carriage return.
static const char *next_line(const char *at, const char *end, const char **s, size_t *n)
{
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    const char *last = stop ? stop : end;
    *s               = at;
    *n               = (size_t)(last - at);
    if (*n && last[-1] == '\r') --*n;
    return stop ? stop + 1 : end;
}

// Reads vocab.bpe: counts lines, allocates, reads. Empty lines and the version in the first are
// skipped.
static bool read_vocab(loading *l)
{
    const char *text = (const char *)l->map->data, *end = text + l->map->bytes, *s;
    size_t      n, lines                                = 0;
    for (const char *at = text; at < end; lines++) at = next_line(at, end, &s, &n);
    if (lines > TNI_MOST_TOKENS)
        return bad_line(l, (int64_t)lines,
                        tni_text_of("it has more than %d lines", TNI_MOST_TOKENS).s);
    if (!tni_vocabulary_begin_merges(l->v, (uint32_t)lines)) return no_memory(l);

    int64_t line = 1;
    for (const char *at = text; at < end; line++) {
        at           = next_line(at, end, &s, &n);
        bool version = line == 1 && n >= 8 && memcmp(s, "#version", 8) == 0;
        if (!version && n && !read_merge(l, line, s, n)) return false;
    }
    if (l->v->merges == 0) return bad_line(l, line, "it has no merges");
    return true;
}

// ---- both --------------------------------------------------------------------------------------

// The limit keeps a file that is no tokenizer from taking all memory.
static bool read_file(loading *l, const char *path, bool (*read)(loading *l))
{
    l->path = path;
    l->map  = tni_mapping_open(l->cx, "tokenizer", path);
    if (!l->map) return false;
    bool ok = l->map->bytes <= (size_t)MOST_MIB << 20;
    if (ok) ok = read(l);
    else tni_fail(l->cx, TN_EFORMAT, "tokenizer: %s: it is larger than %d MiB", path, MOST_MIB);
    tni_mapping_unref(l->map);
    return ok;
}

bool tni_gpt2_load(tn_tokenizer *t, const char *vocab, const char *encoder)
{
    loading               l     = { .t = t, .v = &t->vocabulary, .cx = t->owned.cx };
    const tni_decode_step bytes = { .kind = TNI_DECODE_BYTES };

    bool ok = read_file(&l, encoder, read_encoder) && read_file(&l, vocab, read_vocab) &&
              tni_add_byte_level(t, encoder, false, true) && tni_decoder_make(t, &bytes, 1);
    tni_free(&l.cx->heap, l.text);
    tni_free(&l.cx->heap, l.made);
    return ok;
}
